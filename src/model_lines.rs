//! A model on the command line: JSON lines in, JSON lines out, one for each, in their order.
//!
//! Every line is checked before the first is computed, so nothing is lost to a bad one.

#[cfg(not(feature = "torch"))]
mod without_torch {
    use std::path::Path;
    use std::process::ExitCode;

    use palimpsest::experiment::DeviceSetting;

    const PROBLEM: &str = "this program was built without libtorch (feature `torch`), so it runs no \
                           model; build it with default features";

    /// See the module.
    pub fn score(_: &Path, _: &Path, _: DeviceSetting) -> anyhow::Result<ExitCode> {
        Err(anyhow::anyhow!(PROBLEM))
    }
    /// See the module.
    pub fn generate(_: &Path, _: DeviceSetting) -> anyhow::Result<ExitCode> {
        Err(anyhow::anyhow!(PROBLEM))
    }
}
#[cfg(not(feature = "torch"))]
pub use without_torch::{generate, score};

#[cfg(feature = "torch")]
pub use with_torch::{generate, score};

#[cfg(feature = "torch")]
mod with_torch {
    use std::collections::BTreeMap;
    use std::io::{BufRead as _, BufReader, Read, Write as _};
    use std::path::Path;
    use std::process::ExitCode;
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use anyhow::{Context as _, bail};
    use palimpsest::engine::{
        Engine as _, EngineError, Finish, GenerateRequest, Sampling, ScoreRequest, Weights,
    };
    use palimpsest::experiment::{DeviceSetting, EngineSettings};
    use palimpsest::tokenizer::{ChatMessage, ChatTemplate, ChatTurns, TextTokenizer};
    use palimpsest::torch::{TorchEngine, Vocabulary};
    use palimpsest::trajectory::{TokenId, TrajectoryId};
    use serde::de::DeserializeOwned;
    use serde::{Deserialize, Serialize};
    use serde_json::Value;

    /// Ids that a line samples at most if it does not say.
    const MAX_NEW_TOKENS: u32 = 256;

    /// Both commands compute in f32, so that the numbers of two devices can be compared.
    fn settings(device: DeviceSetting) -> EngineSettings {
        EngineSettings {
            device,
            ..EngineSettings::default()
        }
    }

    /// A vocabulary of ids that nobody reads.
    struct IdsAlone;

    impl Vocabulary for IdsAlone {
        fn size(&self) -> usize {
            0
        }
        fn bytes(&self, _: TokenId) -> &[u8] {
            &[]
        }
        fn save(&self, _: &Path) -> Result<(), EngineError> {
            Ok(())
        }
    }

    /// Other fields may stand beside these.
    #[derive(Deserialize)]
    struct ToScore {
        #[serde(default)]
        id: Value,
        input_ids: Vec<TokenId>,
    }

    #[derive(Serialize)]
    struct Scored {
        id: Value,
        /// The first id is given, so it has none.
        logprobs: Vec<Option<f32>>,
    }

    /// `palimpsest score --model DIR --ids FILE`.
    pub fn score(model: &Path, file: &Path, device: DeviceSetting) -> anyhow::Result<ExitCode> {
        let (input, name): (Box<dyn Read>, _) = if file == Path::new("-") {
            (Box::new(std::io::stdin()), "standard input".to_owned())
        } else {
            let opened = std::fs::File::open(file);
            (
                Box::new(opened.with_context(|| format!("cannot read {file:?}"))?),
                file.display().to_string(),
            )
        };
        let lines: Vec<(String, ToScore)> = read_lines(input, &name)?;
        let mut engine = TorchEngine::from_folder(model, Arc::new(IdsAlone), &settings(device))?;
        let shape = engine.shape();
        let (rows, most) = (shape.vocab_size, shape.max_position_embeddings);
        let mut requests = Vec::new();
        for (number, (place, line)) in (0u32..).zip(&lines) {
            check_ids(place, &line.input_ids, rows)?;
            if line.input_ids.len() as i64 > most {
                bail!(
                    "{place}: input_ids has {} ids, but the model reads at most {most} (max_position_embeddings)",
                    line.input_ids.len()
                );
            }
            if !line.input_ids.is_empty() {
                requests.push(ScoreRequest {
                    id: TrajectoryId {
                        member: number,
                        ..TrajectoryId::default()
                    },
                    trunk: line.input_ids.clone(),
                    score_trunk: true,
                    branches: Vec::new(),
                    temperature: 1.0,
                    under: Weights::Policy,
                });
            }
        }
        let started = Instant::now();
        let mut scored = engine.score(&requests)?.into_iter();
        let ids = requests.iter().map(|request| request.trunk.len()).sum();
        say_rate("scored", ids, started.elapsed());
        let mut out = std::io::stdout().lock();
        for (_, line) in lines {
            let logprobs = if line.input_ids.is_empty() {
                Vec::new()
            } else {
                scored.next().map(|scored| scored.trunk).unwrap_or_default()
            };
            let first = logprobs.first().map(|_| None);
            let rest = logprobs.into_iter().skip(1).map(Some);
            let scored = Scored {
                id: line.id,
                logprobs: first.into_iter().chain(rest).collect(),
            };
            writeln!(out, "{}", serde_json::to_string(&scored)?)?;
        }
        Ok(ExitCode::SUCCESS)
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct ToWrite {
        #[serde(default)]
        id: Value,
        input_ids: Option<Vec<TokenId>>,
        prompt: Option<String>,
        messages: Option<Vec<ChatMessage>>,
        max_new_tokens: Option<u32>,
        /// 0, greedy, if it is not there.
        temperature: Option<f32>,
        stop: Option<Stop>,
        seed: Option<u64>,
        ignore_eos: Option<bool>,
        top_k: Option<u32>,
        top_p: Option<f32>,
        min_p: Option<f32>,
        repetition_penalty: Option<f32>,
    }

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Stop {
        One(String),
        Several(Vec<String>),
    }

    #[derive(Serialize)]
    struct Written<'a> {
        id: &'a Value,
        ids: Vec<TokenId>,
        /// Special tokens included; null for a folder without a tokenizer.
        text: Option<String>,
        logprobs: Vec<f32>,
        finish_reason: Finish,
    }

    /// The texts of a model, where its folder has them.
    struct Texts {
        tokenizer: Option<Arc<TextTokenizer>>,
        template: Option<ChatTemplate>,
    }

    impl Texts {
        fn load(model: &Path) -> anyhow::Result<Self> {
            let there = model.join("tokenizer.json").exists();
            let tokenizer = there.then(|| TextTokenizer::load(model)).transpose()?;
            Ok(Self {
                tokenizer: tokenizer.map(Arc::new),
                template: ChatTemplate::load(model)?,
            })
        }

        fn tokenizer(&self, place: &str, field: &str) -> anyhow::Result<&Arc<TextTokenizer>> {
            self.tokenizer.as_ref().with_context(|| {
                format!("{place}: {field} needs a tokenizer, but the folder has no tokenizer.json; send input_ids")
            })
        }

        /// The ids that a line begins with.
        fn context(&self, place: &str, line: &ToWrite) -> anyhow::Result<Vec<TokenId>> {
            match (&line.input_ids, &line.prompt, &line.messages) {
                (Some(ids), None, None) => Ok(ids.clone()),
                (None, Some(prompt), None) => {
                    Ok(self.tokenizer(place, "prompt")?.encode_prompt(prompt))
                }
                (None, None, Some(messages)) => {
                    let tokenizer = self.tokenizer(place, "messages")?;
                    let template = self.template.as_ref().with_context(|| {
                        format!("{place}: messages need a chat template, but the folder has neither chat_template.jinja nor chat_template in tokenizer_config.json; send a prompt")
                    })?;
                    let text = template
                        .render(messages, true)
                        .with_context(|| place.to_owned())?;
                    Ok(tokenizer.encode(&text))
                }
                _ => bail!("{place}: must have exactly one of input_ids, prompt and messages"),
            }
        }

        /// Says what to know about the chat template before anything is sampled.
        fn check_turns(&self) {
            let (Some(tokenizer), Some(template)) = (&self.tokenizer, &self.template) else {
                return;
            };
            let told = ChatTurns::find(template).and_then(|turns| {
                let rewrites = turns.rewrites().map(str::to_owned);
                Ok(rewrites.or(turns.compare(template, tokenizer)?))
            });
            match told {
                Ok(None) => {}
                Ok(Some(how)) => tracing::info!(
                    "over several turns, keep the ids that were sampled: the chat template renders history otherwise ({how})"
                ),
                Err(error) => tracing::info!("{error}"),
            }
        }
    }

    /// `palimpsest generate --model DIR`.
    pub fn generate(model: &Path, device: DeviceSetting) -> anyhow::Result<ExitCode> {
        let lines: Vec<(String, ToWrite)> = read_lines(std::io::stdin(), "standard input")?;
        let texts = Texts::load(model)?;
        let vocabulary: Arc<dyn Vocabulary + Send + Sync> = match &texts.tokenizer {
            Some(tokenizer) => Arc::<TextTokenizer>::clone(tokenizer),
            None => Arc::new(IdsAlone),
        };
        let mut engine = TorchEngine::from_folder(model, vocabulary, &settings(device))?;
        let shape = engine.shape();
        let (rows, most) = (shape.vocab_size, shape.max_position_embeddings);
        let mut requests = Vec::new();
        let mut names = BTreeMap::new();
        for (place, line) in &lines {
            let request = request(&texts, place, line, &mut names)?;
            check_ids(place, &request.context, rows)?;
            let length = request.context.len() as i64;
            if length == 0 || length >= most {
                bail!(
                    "{place}: the prompt has {length} ids, but must have 1 to {} to leave room to write (max_position_embeddings {most})",
                    most - 1
                );
            }
            requests.push(request);
        }
        if lines.iter().any(|(_, line)| line.messages.is_some()) {
            texts.check_turns();
        }
        let started = Instant::now();
        let written = engine.generate(&requests)?;
        let ids = written.iter().map(|turn| turn.ids.len()).sum();
        say_rate("wrote", ids, started.elapsed());
        let mut out = std::io::stdout().lock();
        for ((_, line), turn) in lines.iter().zip(written) {
            let tokenizer = texts.tokenizer.as_ref();
            let written = Written {
                id: &line.id,
                text: tokenizer.map(|tokenizer| tokenizer.decode(&turn.ids)),
                ids: turn.ids,
                logprobs: turn.logprobs,
                finish_reason: turn.finish,
            };
            writeln!(out, "{}", serde_json::to_string(&written)?)?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn request(
        texts: &Texts,
        place: &str,
        line: &ToWrite,
        names: &mut BTreeMap<String, u64>,
    ) -> anyhow::Result<GenerateRequest> {
        let stop = match &line.stop {
            None => Vec::new(),
            Some(Stop::One(stop)) => vec![stop.clone()],
            Some(Stop::Several(stops)) => stops.clone(),
        };
        if !stop.is_empty() {
            texts.tokenizer(place, "stop")?;
        }
        let temperature = line.temperature.unwrap_or(0.0);
        if !(temperature >= 0.0 && temperature.is_finite()) {
            bail!("{place}: temperature is {temperature}, but must be 0 (greedy) or above");
        }
        Ok(GenerateRequest {
            id: address(&line.id, names),
            turn: 0,
            context: texts.context(place, line)?,
            max_new_tokens: line.max_new_tokens.unwrap_or(MAX_NEW_TOKENS),
            sampling: Sampling {
                top_k: line.top_k.unwrap_or(0),
                top_p: line.top_p.unwrap_or(1.0),
                min_p: line.min_p.unwrap_or(0.0),
                repetition_penalty: line.repetition_penalty.unwrap_or(1.0),
                ..Sampling::plain(temperature, line.seed.unwrap_or(0))
            },
            stop: stop.into(),
            ignore_eos: line.ignore_eos.unwrap_or(false),
        })
    }

    /// The address of a line's random numbers: its id (FNV-1a), and how many lines before had the
    /// same. What else is asked for changes nothing.
    fn address(id: &Value, names: &mut BTreeMap<String, u64>) -> TrajectoryId {
        let name = id.to_string();
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let before = names.entry(name).or_insert(0);
        let place = hash.wrapping_add(*before);
        *before += 1;
        TrajectoryId {
            group: (place >> 32) as u32,
            member: place as u32,
            ..TrajectoryId::default()
        }
    }

    /// Tells how fast it went, on standard error: `scripts/gpu_check` reads it.
    fn say_rate(what: &str, ids: usize, took: Duration) {
        let seconds = took.as_secs_f64();
        let rate = ids as f64 / seconds.max(1e-9);
        tracing::info!("{what} {ids} ids in {seconds:.3} s, {rate:.0} a second");
    }

    fn check_ids(place: &str, ids: &[TokenId], rows: i64) -> anyhow::Result<()> {
        match ids.iter().position(|&id| i64::from(id) >= rows) {
            None => Ok(()),
            Some(at) => bail!(
                "{place}: id {at} is {}, but ids must be below {rows} (vocab_size of config.json)",
                ids[at]
            ),
        }
    }

    /// The lines of an input, each with its name for messages; empty ones are left out.
    fn read_lines<T: DeserializeOwned>(
        input: impl Read,
        name: &str,
    ) -> anyhow::Result<Vec<(String, T)>> {
        let mut lines = Vec::new();
        for (number, line) in (1..).zip(BufReader::new(input).lines()) {
            let place = format!("{name}, line {number}");
            let line = line.with_context(|| format!("{place} cannot be read"))?;
            if line.trim().is_empty() {
                continue;
            }
            let read = serde_json::from_str(&line).with_context(|| place.clone())?;
            lines.push((place, read));
        }
        Ok(lines)
    }
}
