//! What a fake server thinks with: a toy language model whose every probability can be worked out
//! anew, and a learner with the same.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use palimpsest::engine::{
    Engine, EngineError, GenerateRequest, Generated, LearnBatch, LearnReport, ScoreRequest, Scored,
    StopMatcher, SupervisedBatch, SupervisedReport,
};
use palimpsest::tokenizer::TextTokenizer;
use palimpsest::trajectory::{TokenId, TrajectoryId};

/// What was generated.
pub struct Said {
    pub ids: Vec<TokenId>,
    /// At the temperature that was sampled at.
    pub logprobs: Vec<f32>,
    /// At temperature 1.
    pub raw: Vec<f32>,
    /// The stop string that ended it.
    pub stop: Option<String>,
    /// Whether it ended by itself.
    pub ended: bool,
}

/// Generates, scores, loads.
pub trait Brain: Send + Sync {
    fn generate(
        &self,
        context: &[TokenId],
        most: usize,
        temperature: f32,
        seed: u64,
        stop: &[String],
    ) -> Said;
    /// Log-prob of every id but the first, given those before it, at temperature 1.
    fn score(&self, ids: &[TokenId]) -> Vec<f32>;
    fn load(&self, folder: &str) -> Result<(), String>;
}

/// Probabilities are hashes of the last two ids, the next one, and the version of the weights.
pub struct Toy {
    tokenizer: TextTokenizer,
    pub version: AtomicU64,
}

fn hash(parts: &[u64]) -> u64 {
    parts.iter().fold(0x9e37_79b9_7f4a_7c15, |sum, part| {
        let mixed = (sum ^ part).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ (mixed >> 29)
    })
}

fn unit(parts: &[u64]) -> f64 {
    (hash(parts) >> 11) as f64 / (1u64 << 53) as f64
}

/// Only printable ids can be sampled, so that text and ids say the same.
fn speakable(tokenizer: &TextTokenizer, id: usize) -> bool {
    tokenizer
        .token_bytes(id as TokenId)
        .iter()
        .all(|byte| (32..127).contains(byte))
}

impl Toy {
    pub fn new(tokenizer: &TextTokenizer) -> Self {
        Self {
            tokenizer: tokenizer.clone(),
            version: AtomicU64::new(0),
        }
    }

    /// Log-probs of every next id.
    pub fn logprobs(&self, context: &[TokenId], temperature: f32) -> Vec<f64> {
        let heat = if temperature == 0.0 {
            1.0
        } else {
            f64::from(temperature)
        };
        let version = self.version.load(Ordering::SeqCst);
        let mut last = context.iter().rev().map(|&id| u64::from(id));
        let (a, b) = (last.next().unwrap_or(0), last.next().unwrap_or(0));
        let logits: Vec<f64> = (0..self.tokenizer.vocab_size())
            .map(|id| {
                let cut = if speakable(&self.tokenizer, id) {
                    0.0
                } else {
                    -30.0
                };
                cut + 8.0 * unit(&[version, a, b, id as u64]) / heat
            })
            .collect();
        let total = logits.iter().map(|logit| logit.exp()).sum::<f64>().ln();
        logits.into_iter().map(|logit| logit - total).collect()
    }

    fn of(&self, ids: &[TokenId], temperature: f32) -> Vec<f32> {
        (1..ids.len())
            .map(|at| self.logprobs(&ids[..at], temperature)[ids[at] as usize] as f32)
            .collect()
    }
}

impl Brain for Toy {
    fn generate(
        &self,
        context: &[TokenId],
        most: usize,
        temperature: f32,
        seed: u64,
        stop: &[String],
    ) -> Said {
        let mut seen = context.to_vec();
        let mut said = Said {
            ids: Vec::new(),
            logprobs: Vec::new(),
            raw: Vec::new(),
            stop: None,
            ended: false,
        };
        let mut matcher = StopMatcher::new(&stop.into());
        while said.ids.len() < most && !said.ended {
            let logprobs = self.logprobs(&seen, temperature);
            let best = (0..logprobs.len()).max_by(|a, b| logprobs[*a].total_cmp(&logprobs[*b]));
            let mut left = unit(&[seed, seen.len() as u64]);
            let drawn = logprobs.iter().position(|logprob| {
                left -= logprob.exp();
                left <= 0.0
            });
            let id = if temperature == 0.0 { best } else { drawn }
                .or(best)
                .unwrap();
            said.logprobs.push(logprobs[id] as f32);
            said.raw.push(self.logprobs(&seen, 1.0)[id] as f32);
            said.ids.push(id as TokenId);
            seen.push(id as TokenId);
            if matcher.push(self.tokenizer.token_bytes(id as TokenId)) {
                let text = self.tokenizer.decode(&said.ids);
                said.stop = stop.iter().find(|stop| text.contains(*stop)).cloned();
                said.ended = true;
            }
        }
        said
    }

    fn score(&self, ids: &[TokenId]) -> Vec<f32> {
        self.of(ids, 1.0)
    }

    fn load(&self, folder: &str) -> Result<(), String> {
        let path = Path::new(folder).join("version");
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{path:?}: {error}"))?;
        self.version.store(text.parse().unwrap(), Ordering::SeqCst);
        Ok(())
    }
}

/// Learns by counting; its policy is the toy's.
pub struct ToyLearner(pub Arc<Toy>);

impl Engine for ToyLearner {
    fn submit(&mut self, _: Vec<GenerateRequest>) -> Result<(), EngineError> {
        panic!("the server generates");
    }
    fn step(&mut self) -> Result<Vec<Generated>, EngineError> {
        Ok(Vec::new())
    }
    fn unfinished(&self) -> usize {
        0
    }
    fn release(&mut self, _: &[TrajectoryId]) -> usize {
        0
    }
    fn score(&mut self, requests: &[ScoreRequest]) -> Result<Vec<Scored>, EngineError> {
        let of = |request: &ScoreRequest| Scored {
            id: request.id,
            trunk: match request.score_trunk {
                true => [vec![0.0], self.0.of(&request.trunk, request.temperature)].concat(),
                false => Vec::new(),
            },
            branches: request
                .branches
                .iter()
                .map(|branch| {
                    let whole = [&request.trunk[..branch.at as usize], &branch.ids[..]].concat();
                    let from = (branch.at + branch.scored_from) as usize - 1;
                    self.0.of(&whole, request.temperature)[from..].to_vec()
                })
                .collect(),
        };
        Ok(requests.iter().map(of).collect())
    }
    fn learn(&mut self, _: &LearnBatch) -> Result<LearnReport, EngineError> {
        self.0.version.fetch_add(1, Ordering::SeqCst);
        Ok(LearnReport::default())
    }
    fn supervise(&mut self, _: &SupervisedBatch) -> Result<SupervisedReport, EngineError> {
        self.0.version.fetch_add(1, Ordering::SeqCst);
        Ok(SupervisedReport::default())
    }
    fn freeze_reference(&mut self) {}
    fn begin_average(&mut self) {}
    fn begin_rl(&mut self) {}
    fn save(&mut self, folder: &Path, _: bool) -> Result<(), EngineError> {
        let version = self.0.version.load(Ordering::SeqCst);
        std::fs::write(folder.join("version"), version.to_string()).unwrap();
        Ok(())
    }
    fn load(&mut self, _: &Path, _: bool) -> Result<(), EngineError> {
        Ok(())
    }
}

/// The engine in libtorch, on a thread of its own.
#[cfg(feature = "torch")]
pub struct Local {
    work: std::sync::Mutex<std::sync::mpsc::Sender<Work>>,
    turns: AtomicU64,
}

#[cfg(feature = "torch")]
type Work = Box<dyn FnOnce(&mut palimpsest::torch::TorchEngine) + Send>;

#[cfg(feature = "torch")]
impl Local {
    /// With the weights in `folder`.
    pub fn new(folder: &'static str) -> Self {
        let (work, inbox) = std::sync::mpsc::channel::<Work>();
        std::thread::spawn(move || {
            let settings = palimpsest::experiment::EngineSettings {
                device: palimpsest::experiment::DeviceSetting::Cpu,
                threads: 1,
                ..Default::default()
            };
            let folder = Path::new(folder);
            let tokenizer = super::tokenizer();
            let mut engine =
                palimpsest::torch::TorchEngine::from_folder(folder, tokenizer, &settings).unwrap();
            for work in inbox {
                work(&mut engine);
            }
        });
        Self {
            work: std::sync::Mutex::new(work),
            turns: AtomicU64::new(0),
        }
    }

    fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut palimpsest::torch::TorchEngine) -> T + Send + 'static,
    ) -> T {
        let (reply, replied) = std::sync::mpsc::channel();
        let work: Work = Box::new(move |engine| reply.send(work(engine)).unwrap());
        self.work.lock().unwrap().send(work).unwrap();
        replied.recv().unwrap()
    }

    fn scored(&self, ids: &[TokenId], temperature: f32) -> Vec<f32> {
        let request = ScoreRequest {
            id: TrajectoryId::default(),
            trunk: ids.to_vec(),
            score_trunk: true,
            branches: Vec::new(),
            temperature,
            under: palimpsest::engine::Weights::Policy,
        };
        self.ask(move |engine| {
            engine
                .score(&[request])
                .unwrap()
                .remove(0)
                .trunk
                .split_off(1)
        })
    }
}

#[cfg(feature = "torch")]
impl Brain for Local {
    fn generate(
        &self,
        context: &[TokenId],
        most: usize,
        temperature: f32,
        seed: u64,
        stop: &[String],
    ) -> Said {
        let turn = self.turns.fetch_add(1, Ordering::SeqCst) as u32;
        let request = GenerateRequest {
            id: TrajectoryId {
                group: turn,
                ..TrajectoryId::default()
            },
            turn: 0,
            context: context.to_vec(),
            max_new_tokens: most as u32,
            sampling: palimpsest::engine::Sampling::plain(temperature, seed),
            stop: stop.into(),
            ignore_eos: false,
        };
        let id = request.id;
        let turn = self.ask(move |engine| {
            let turn = engine.generate(&[request]).unwrap().remove(0);
            engine.release(&[id]);
            turn
        });
        let text = super::tokenizer().decode(&turn.ids);
        let whole = [context, &turn.ids[..]].concat();
        let raw = self.scored(&whole, 1.0).split_off(context.len() - 1);
        Said {
            ids: turn.ids,
            logprobs: turn.logprobs,
            raw,
            stop: stop.iter().find(|stop| text.contains(*stop)).cloned(),
            ended: turn.finish == palimpsest::engine::Finish::Stop,
        }
    }

    fn score(&self, ids: &[TokenId]) -> Vec<f32> {
        self.scored(ids, 1.0)
    }

    fn load(&self, folder: &str) -> Result<(), String> {
        let folder = folder.to_owned();
        let loaded = self.ask(move |engine| engine.load(Path::new(&folder), false));
        loaded.map_err(|error| error.to_string())
    }
}
