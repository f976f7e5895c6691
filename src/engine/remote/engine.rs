//! The engine of a run whose turns a server writes: a server, and a learner beside it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{AbortHandle, JoinSet};

use super::agree::{Gap, judge};
use super::handshake::{PROBE, PROBE_IDS, meet};
use super::http::Http;
use super::load::Store;
use super::reply::{Ask, check};
use super::score::Sheet;
use super::server::Server;
use super::{Needs, RemoteError};
use crate::engine::{
    Engine, EngineError, GenerateRequest, Generated, LearnBatch, LearnReport, ScoreRequest, Scored,
    SupervisedBatch, SupervisedReport, Weights,
};
use crate::experiment::{Experiment, LoraSettings, ScoringSetting};
use crate::tokenizer::TextTokenizer;
use crate::tools::{Runtime, start_runtime};
use crate::trajectory::TrajectoryId;

/// Threads of the client: it waits, and reads JSON.
const WORKERS: usize = 2;

/// Longest wait for a turn in one step, so that new requests are not kept waiting.
const MOMENT: Duration = Duration::from_millis(5);

/// Generates and scores on a server; `L` learns. The server gets the learner's weights before it is
/// asked for anything under them.
pub struct RemoteEngine<L> {
    // Before the runtime, so that turns under way are dropped first.
    flights: Flights,
    server: Arc<Server>,
    learner: L,
    needs: Needs,
    scoring: ScoringSetting,
    /// None in a run that only measures.
    store: Option<Store>,
    /// Whether the learner's weights are not the server's.
    stale: bool,
    /// Weight updates so far.
    updates: u64,
    runtime: Runtime,
}

impl<L: Engine> RemoteEngine<L> {
    /// Meets the server that the experiment names, refuses it if it lacks what the run needs, and
    /// only then makes the learner.
    ///
    /// # Errors
    /// [`EngineError::Remote`]; what `learner` returned.
    pub fn connect(
        experiment: &Experiment,
        tokenizer: Arc<TextTokenizer>,
        learner: impl FnOnce() -> Result<L, EngineError>,
    ) -> Result<Self, EngineError> {
        let generator = &experiment.engine.generator;
        let settings = generator.server().ok_or_else(|| {
            RemoteError::Setting("is libtorch, and names no server to connect to".into())
        })?;
        let needs = Needs::of(experiment);
        let runtime = start_runtime("server", WORKERS)
            .map_err(|error| EngineError::Backend(format!("no threads for the client: {error}")))?;
        let http = Http::new(settings)?;
        let (line, can) = runtime.block_on(meet(http, generator, settings, &tokenizer))?;
        let url = line.http.url().to_owned();
        tracing::info!("engine: {can}");
        let lacks = can.lacks(&needs);
        if !lacks.is_empty() {
            let product = can.product.clone();
            return Err(RemoteError::Lacks {
                url,
                product,
                lacks,
            }
            .into());
        }
        let store = match needs.trains {
            true => Some(Store::open(settings, &can, &url)?),
            false => None,
        };
        if let Some(setting) = needs.scoring.filter(|setting| !can.server_scores(*setting)) {
            tracing::info!("engine: memories are scored by the learner ({setting:?})");
        }
        Ok(Self {
            flights: Flights::default(),
            server: Arc::new(Server {
                line,
                can,
                tokenizer,
                strict: needs.trains,
            }),
            learner: learner()?,
            needs,
            scoring: settings.scoring,
            stale: store.is_some(),
            store,
            updates: 0,
            runtime,
        })
    }

    /// What the handshake found.
    #[must_use]
    pub fn capabilities(&self) -> &super::Capabilities {
        &self.server.can
    }

    /// Gives the server the learner's weights if it has others, and compares.
    fn refresh(&mut self) -> Result<(), EngineError> {
        let Some(store) = self.store.as_ref().filter(|_| self.stale) else {
            return Ok(());
        };
        let update = self.updates + 1;
        self.learner.save(&store.here, false)?;
        self.runtime
            .block_on(self.server.load_weights(&store.there, update))?;
        self.compare(update)?;
        self.updates = update;
        self.stale = false;
        Ok(())
    }

    /// Lets the server write a probe, and the learner score it.
    fn compare(&mut self, update: u64) -> Result<(), EngineError> {
        let context = self.server.tokenizer.encode(PROBE);
        let ask = Ask {
            what: "a probe of the weights",
            context: &context,
            max_new_tokens: PROBE_IDS,
            temperature: self.needs.temperature,
            seed: update as u32,
            stop: &[],
        };
        let answer = self.runtime.block_on(self.server.line.generate(&ask))?;
        check(&ask, &answer, self.server.tokenizer.vocab_size())?;
        let (Some(ids), Some(told)) = (answer.ids, answer.logprobs) else {
            return Err(RemoteError::BadReply {
                what: ask.what.to_owned(),
                field: "the list of ids or log-probs".into(),
                problem: "is missing".into(),
            }
            .into());
        };
        let request = |temperature| ScoreRequest {
            id: TrajectoryId::default(),
            trunk: [&context[..], &ids].concat(),
            score_trunk: true,
            branches: Vec::new(),
            temperature,
            under: Weights::Policy,
        };
        let requests = [request(self.needs.temperature), request(1.0)];
        let scored = self.learner.score(&requests)?;
        let gaps: Vec<Gap> = scored
            .iter()
            .map(|scored| {
                let own = scored.trunk.get(context.len()..).unwrap_or_default();
                Gap::between(&told, own)
            })
            .collect();
        if let [at_temperature, at_one] = gaps[..] {
            if update == 1 {
                tracing::info!(
                    "engine: server and learner differ by {:.2e} nats in the mean of a probe",
                    at_temperature.mean
                );
            }
            judge(update, at_temperature, at_one, &self.needs)?;
        }
        Ok(())
    }

    /// Log-probs by the server, all rows at once.
    fn score_there(&mut self, requests: &[ScoreRequest]) -> Result<Vec<Scored>, EngineError> {
        let sheet = Sheet::new(requests)?;
        self.refresh()?;
        let server = &self.server;
        let rows = sheet.rows.clone();
        let scores = self.runtime.block_on(async move {
            let mut under_way = JoinSet::new();
            let count = rows.len();
            for (number, row) in rows.into_iter().enumerate() {
                let server = Arc::clone(server);
                under_way.spawn(async move { (number, server.row(number, &row).await) });
            }
            let mut scores = vec![Vec::new(); count];
            while let Some(ended) = under_way.join_next().await {
                // The first failure drops the others with their connections.
                let (number, scored) = ended.map_err(|error| {
                    EngineError::Backend(format!("a request was lost: {error}"))
                })?;
                if let Some(place) = scores.get_mut(number) {
                    *place = scored?;
                }
            }
            Ok::<_, EngineError>(scores)
        })?;
        Ok(sheet.replies(requests, &scores))
    }
}

/// Turns under way.
#[derive(Default)]
struct Flights {
    turns: JoinSet<Result<Generated, RemoteError>>,
    aborts: BTreeMap<(TrajectoryId, u32), AbortHandle>,
}

impl Flights {
    /// Starts a turn.
    fn start(&mut self, server: &Arc<Server>, request: GenerateRequest, runtime: &Runtime) {
        let server = Arc::clone(server);
        let key = (request.id, request.turn);
        let turn = async move { server.turn(&request).await };
        let abort = self.turns.spawn_on(turn, runtime.handle());
        self.aborts.insert(key, abort);
    }

    /// Waits a moment for a turn to end; gives it with all others that have ended.
    ///
    /// # Errors
    /// What stopped a turn. Every other one is then dropped, and its connection with it.
    fn land(&mut self, runtime: &Runtime) -> Result<Vec<Generated>, EngineError> {
        let mut all = Vec::new();
        let wait = async { tokio::time::timeout(MOMENT, self.turns.join_next()).await };
        let mut ended = runtime.block_on(wait).ok().flatten();
        while let Some(turn) = ended {
            let landed = match turn {
                Ok(landed) => Some(landed.map_err(EngineError::from)),
                // Dropped on purpose.
                Err(error) if error.is_cancelled() => None,
                Err(error) => Some(Err(EngineError::Backend(format!(
                    "a turn was lost: {error}"
                )))),
            };
            match landed {
                Some(Ok(turn)) if self.aborts.remove(&(turn.id, turn.turn)).is_some() => {
                    all.push(turn);
                }
                Some(Err(error)) => {
                    self.turns = JoinSet::new();
                    self.aborts.clear();
                    return Err(error);
                }
                // It ended just before it was dropped, so it is not given out.
                Some(Ok(_)) | None => {}
            }
            ended = self.turns.try_join_next();
        }
        Ok(all)
    }

    /// Drops the turns of a trajectory, and says how many; the server stops writing them.
    fn drop_turns_of(&mut self, id: TrajectoryId) -> usize {
        let before = self.aborts.len();
        self.aborts.retain(|key, abort| {
            if key.0 == id {
                abort.abort();
            }
            key.0 != id
        });
        before - self.aborts.len()
    }
}

impl<L: Engine> Engine for RemoteEngine<L> {
    fn submit(&mut self, requests: Vec<GenerateRequest>) -> Result<(), EngineError> {
        self.refresh()?;
        for request in requests {
            self.flights.start(&self.server, request, &self.runtime);
        }
        Ok(())
    }

    fn step(&mut self) -> Result<Vec<Generated>, EngineError> {
        self.flights.land(&self.runtime)
    }

    fn unfinished(&self) -> usize {
        self.flights.aborts.len()
    }

    fn release(&mut self, trajectories: &[TrajectoryId]) -> usize {
        self.learner.release(trajectories);
        let dropped = trajectories.iter();
        dropped.map(|&id| self.flights.drop_turns_of(id)).sum()
    }

    fn score(&mut self, requests: &[ScoreRequest]) -> Result<Vec<Scored>, EngineError> {
        // The server has one set of weights, and scores at temperature 1.
        let there = |request: &ScoreRequest| {
            self.server.can.server_scores(self.scoring)
                && request.under == Weights::Policy
                && request.temperature == 1.0
        };
        let (theirs, ours): (Vec<_>, Vec<_>) = requests.iter().cloned().partition(there);
        let order: Vec<bool> = requests.iter().map(there).collect();
        let mut here = match ours.is_empty() {
            true => Vec::new(),
            false => self.learner.score(&ours)?,
        }
        .into_iter();
        let mut there = match theirs.is_empty() {
            true => Vec::new(),
            false => self.score_there(&theirs)?,
        }
        .into_iter();
        Ok(order
            .into_iter()
            .filter_map(|theirs| if theirs { there.next() } else { here.next() })
            .collect())
    }

    fn learn(&mut self, batch: &LearnBatch) -> Result<LearnReport, EngineError> {
        self.stale = self.store.is_some();
        self.learner.learn(batch)
    }

    fn supervise(&mut self, batch: &SupervisedBatch) -> Result<SupervisedReport, EngineError> {
        self.stale = self.store.is_some();
        self.learner.supervise(batch)
    }

    fn freeze_reference(&mut self) {
        self.learner.freeze_reference();
    }

    fn begin_average(&mut self) {
        self.learner.begin_average();
    }

    fn begin_rl(&mut self) {
        self.learner.begin_rl();
    }

    fn begin_adapters(&mut self, adapters: &LoraSettings, seed: u64) -> Result<(), EngineError> {
        self.learner.begin_adapters(adapters, seed)
    }

    fn save(&mut self, folder: &Path, with_optimizer: bool) -> Result<(), EngineError> {
        self.learner.save(folder, with_optimizer)
    }

    fn load(&mut self, folder: &Path, with_optimizer: bool) -> Result<(), EngineError> {
        self.stale = self.store.is_some();
        self.learner.load(folder, with_optimizer)
    }
}
