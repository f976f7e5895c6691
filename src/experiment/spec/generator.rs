//! Servers that generate and score in place of libtorch. `docs/engines.md` says how to start them.

choice! {
    /// Who generates and scores.
    GeneratorSetting {
        /// This process: generating, scoring and learning use the same weights.
        "libtorch" => Libtorch,
        /// An SGLang server, by its own `/generate`, as `sglang(url: "http://127.0.0.1:30000")`.
        "sglang" => Sglang(server: ServerSettings),
        /// A server with `/v1/completions` (vLLM, SGLang, llama.cpp), as `openai(url: "http://127.0.0.1:8000", model: "policy")`.
        "openai" => OpenAi(server: ServerSettings),
    }
}

// Written out, because the macro knows no attributes of words.
#[allow(clippy::derivable_impls)]
impl Default for GeneratorSetting {
    fn default() -> Self {
        Self::Libtorch
    }
}

impl GeneratorSetting {
    /// The server, if one generates.
    #[must_use]
    pub fn server(&self) -> Option<&ServerSettings> {
        match self {
            Self::Libtorch => None,
            Self::Sglang(server) | Self::OpenAi(server) => Some(server),
        }
    }
}

settings! {
    /// A server that generates and scores.
    ServerSettings {
        /// Its address, as `http://127.0.0.1:30000`; a `/v1` at the end is left off.
        url: String = String::new();
        /// Name of the model for `/v1/completions`; empty: the only one that the server has.
        model: String = String::new();
        /// Name of the environment variable that holds the API key; empty: no key. The key itself never stands in a file.
        api_key_env: String = String::new();
        /// Folder that the learner writes the policy to before the server loads it; empty: a temporary folder (SGLang only: vLLM reads again the folder it was started with, and that one must be named).
        weights_folder: String = String::new();
        /// The same folder as the server sees it, where it has another name there; empty: the same.
        server_folder: String = String::new();
        /// Who scores memories.
        scoring: ScoringSetting = ScoringSetting::Auto;
        /// Most requests under way at once.
        in_flight: u32 = 128, unit "requests",
            where from_to(1.0, 4096.0) or "no request could be sent, or more than a server takes";
        /// Tries of a request when the connection fails or the server answers 429 or 5xx.
        tries: u32 = 5, unit "tries",
            where from_to(1.0, 20.0) or "no request could be sent, or a dead server would hold the run for hours";
        /// Wait before the second try; it doubles with each further one.
        retry_seconds: f32 = 0.5, unit "seconds",
            where from_to(0.0, 60.0) or "a dead server would hold the run for hours";
        /// Time a request may take, its generation included.
        timeout_seconds: f32 = 600.0, unit "seconds",
            where above(0.0) or "every request would time out";
        /// Time the server may take to load weights.
        load_seconds: f32 = 600.0, unit "seconds",
            where above(0.0) or "every weight update would time out";
    }
}

choice! {
    /// Who scores memories.
    ScoringSetting: Copy Eq {
        /// The server if it returns log-probs of a prompt, else the learner.
        "auto" => Auto,
        /// The server; a run is refused if it cannot.
        "server" => Server,
        /// The learner: exact, and on its device.
        "learner" => Learner,
    }
}

#[allow(clippy::derivable_impls)]
impl Default for ScoringSetting {
    fn default() -> Self {
        Self::Auto
    }
}
