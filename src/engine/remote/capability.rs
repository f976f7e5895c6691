//! What a server can do, what a run needs, and what to do about the difference.

use std::fmt;

use crate::experiment::{Experiment, GeneratorSetting, Importance, ScoringSetting};

/// How log-probs of a prompt are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScoreWay {
    /// SGLang: `return_logprob` with `logprob_start_len`.
    InputLogprobs,
    /// vLLM: `prompt_logprobs`.
    PromptLogprobs,
    /// `echo` with `logprobs`.
    Echo,
}

/// What the server does with stop strings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stops {
    /// It ends with the id that completes one, and returns that id.
    Kept,
    /// It returns fewer ids (llama.cpp), goes on (no tokenizer), or refuses: turns are then generated
    /// in pieces and cut here.
    Unreliable,
}

/// How the server is told to load weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loader {
    /// SGLang's /update_weights_from_disk; `pauses`: between /pause_generation and
    /// /continue_generation.
    FromDisk {
        /// Whether the server has those two.
        pauses: bool,
    },
    /// vLLM in development mode: /pause, `reload_weights` on all workers, /resume.
    Reload,
}

/// What a handshake found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Kind and version.
    pub product: String,
    /// The model as the server calls it.
    pub model: String,
    /// Where the server read its weights from, if it says.
    pub root: Option<String>,
    /// Most ids of a context with its turn, if it says.
    pub context: Option<u32>,
    /// Whether it returns the sampled ids.
    pub ids: bool,
    /// Whether it returns their log-probs.
    pub logprobs: bool,
    /// Whether its text of a probe is what the policy's tokenizer makes of the ids; none if it
    /// returned no text or no ids.
    pub same_text: Option<bool>,
    /// What it does with stop strings.
    pub stops: Stops,
    /// How it scores, if it can.
    pub scores: Option<ScoreWay>,
    /// How it loads weights, if it can.
    pub loader: Option<Loader>,
    /// Whether it samples by our seeds.
    pub seeded: bool,
}

/// What a run needs of a server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Needs {
    /// Weights change: ids, log-probs and weight updates.
    pub trains: bool,
    /// Memories are scored, and who is to do it.
    pub scoring: Option<ScoringSetting>,
    /// Ids of the longest context with its turn.
    pub context_tokens: u32,
    /// Temperature of the rollouts.
    pub temperature: f32,
    /// Whether the learner weighs tokens where engine and learner disagree.
    pub importance: bool,
    /// Largest |ratio - 1| that the credit audit allows where engine and learner agree.
    pub ratio: f64,
}

impl Needs {
    /// What this experiment needs.
    #[must_use]
    pub fn of(experiment: &Experiment) -> Self {
        let generator: &GeneratorSetting = &experiment.engine.generator;
        let scored = experiment.learner.steps > 0 && experiment.credit.memory;
        let scoring = generator.server().map(|server| server.scoring);
        Self {
            trains: experiment.trains(),
            scoring: scoring.filter(|_| scored),
            context_tokens: experiment.rollout.limits.context_tokens,
            temperature: experiment.rollout.temperature,
            importance: experiment.learner.importance != Importance::Off,
            ratio: f64::from(experiment.record.audit_ratio),
        }
    }
}

/// Something that a run needs and the server lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lack {
    /// What is missing.
    pub what: String,
    /// What to do.
    pub remedy: String,
}

impl Capabilities {
    /// Whether the server is the one that scores.
    #[must_use]
    pub fn server_scores(&self, setting: ScoringSetting) -> bool {
        setting != ScoringSetting::Learner && self.scores.is_some()
    }

    /// Everything that the run needs and the server lacks; empty if it can serve.
    #[must_use]
    pub fn lacks(&self, needs: &Needs) -> Vec<Lack> {
        let mut lacks = Vec::new();
        let mut lack = |what: &str, remedy: &str| {
            lacks.push(Lack {
                what: what.to_owned(),
                remedy: remedy.to_owned(),
            });
        };
        if let Some(most) = self.context.filter(|most| *most < needs.context_tokens) {
            lack(
                &format!(
                    "contexts of {} tokens (rollout.limits.context_tokens); it takes {most}",
                    needs.context_tokens
                ),
                "start it with a longer context (vLLM --max-model-len, SGLang --context-length, llama.cpp -c), or lower the limit",
            );
        }
        if needs.scoring == Some(ScoringSetting::Server) && self.scores.is_none() {
            lack(
                "log-probs of a prompt, which engine.generator.scoring: server asks for",
                "scoring: auto lets the learner score; or use a server that has them (SGLang; vLLM with prompt_logprobs)",
            );
        }
        if !needs.trains {
            return lacks;
        }
        if !self.ids {
            lack(
                "the sampled token ids; it returns text, and text would have to be tokenised again into other ids than were sampled",
                "vLLM 0.10.2 or newer (return_token_ids), SGLang by its own protocol (generator: sglang), or llama.cpp; a run that only measures may go without",
            );
        }
        if !self.logprobs {
            lack(
                "log-probs of the sampled ids",
                "allow them on the server (vLLM --max-logprobs 1 or more), or use one that has them; a run that only measures may go without",
            );
        }
        if self.same_text == Some(false) {
            lack(
                "the policy's tokenizer: its text of the probe is not that of the same ids here",
                "start it with the folder of the policy, tokenizer files included",
            );
        }
        if self.loader.is_none() {
            lack(
                "a way to load new weights",
                "vLLM: start it with VLLM_SERVER_DEV_MODE=1 (0.14 or newer); SGLang has /update_weights_from_disk; llama.cpp can only measure (learner.steps: 0, no cold start)",
            );
        }
        lacks
    }
}

impl fmt::Display for Capabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let yes = |on: bool| if on { "yes" } else { "no" };
        write!(
            f,
            "{}, model {:?}: sampled ids {}, their log-probs {}, stop strings {}, scoring {}, weight updates {}, seeds {}",
            self.product,
            self.model,
            yes(self.ids),
            yes(self.logprobs),
            match self.stops {
                Stops::Kept => "on the server",
                Stops::Unreliable => "cut here",
            },
            match self.scores {
                Some(ScoreWay::InputLogprobs) => "by logprob_start_len",
                Some(ScoreWay::PromptLogprobs) => "by prompt_logprobs",
                Some(ScoreWay::Echo) => "by echo",
                None => "no",
            },
            match self.loader {
                Some(Loader::FromDisk { .. }) => "from disk",
                Some(Loader::Reload) => "by reload",
                None => "no",
            },
            yes(self.seeded),
        )?;
        match self.context {
            Some(most) => write!(f, ", contexts up to {most} tokens"),
            None => Ok(()),
        }
    }
}
