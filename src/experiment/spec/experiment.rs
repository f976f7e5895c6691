//! The experiment as a whole: the questions, the weights and the machine.

use super::{
    ColdStartSettings, CreditSettings, DenseKind, EvaluationSettings, GeneratorSetting,
    LearnerSettings, RecordSettings, ResultShape, Retrieval, RewardSettings, RolloutSettings,
};

settings! {
    /// A whole experiment.
    Experiment {
        /// Name of the run; part of its folder's name. Empty: the name of the file.
        name: String = String::new();
        /// Seed of everything that is random.
        seed: u64 = 0;
        /// Where questions come from.
        task: TaskSettings = TaskSettings::default();
        /// The weights to begin with.
        policy: PolicySettings = PolicySettings::default();
        /// Supervised stage before RL.
        cold_start: ColdStartSettings = ColdStartSettings::default();
        /// How trajectories are made.
        rollout: RolloutSettings = RolloutSettings::default();
        /// What an answer earns.
        reward: RewardSettings = RewardSettings::default();
        /// How credit is assigned to tokens.
        credit: CreditSettings = CreditSettings::default();
        /// How the policy learns.
        learner: LearnerSettings = LearnerSettings::default();
        /// When and how the policy is measured.
        evaluation: EvaluationSettings = EvaluationSettings::default();
        /// What is written down.
        record: RecordSettings = RecordSettings::default();
        /// Device, threads, and who generates.
        engine: EngineSettings = EngineSettings::default();
    }
}

settings! {
    /// The document that the context `chunks` reads, part by part.
    ChunkSettings: Copy {
        /// Search: the document is made of so many passages, those that fit the question best, in the order of the corpus.
        passages: u32 = 20, unit "passages",
            where at_least(1.0) or "there would be no document";
        /// Tokens of a part.
        tokens: u32 = 512, unit "tokens",
            where at_least(16.0) or "a part would hold no sentence";
        /// Most parts; what follows is not read.
        most: u32 = 16, unit "parts",
            where at_least(1.0) or "nothing would be read";
    }
}

settings! {
    /// Where questions come from.
    TaskSettings {
        /// The kind of task.
        kind: TaskKind = TaskKind::Lookup;
        /// File of facts; a path as in `policy`. Empty: the facts shipped inside the program.
        facts: String = String::new();
        /// Fewest objectives in one training question.
        objectives_min: u32 = 2, unit "objectives",
            where at_least(1.0) or "a question would ask for nothing";
        /// Most objectives in one training question.
        objectives_max: u32 = 3, unit "objectives",
            where at_least(1.0) or "a question would ask for nothing";
        /// Draw the facts of every training question anew, so that nothing can be memorised.
        redraw: bool = true;
        /// Search: the corpus, JSON lines with `contents` (title, line break, text) and perhaps `url`.
        corpus: String = String::new();
        /// Search: the questions, JSON lines or verl's Parquet rows.
        questions: String = String::new();
        /// Search: the questions of evaluations. Empty: those of training.
        test_questions: String = String::new();
        /// Search: how passages are found.
        retrieval: Retrieval = Retrieval::Lexical;
        /// Search: how vectors are found with `dense` and `hybrid`.
        index: DenseKind = DenseKind::Exact;
        /// Search: passages of a result.
        passages: u32 = 3, unit "passages",
            where at_least(1.0) or "a search would find nothing";
        /// Search: how passages are told.
        result_shape: ResultShape = ResultShape::SearchR1;
        /// Search: tell the policy the protocol before the question.
        instructions: bool = true;
        /// Search: show a worked example before the question, in the form of the context.
        example: bool = false;
        /// Search: put the question into the chat template of the policy, as a message of the user.
        chat: bool = false;
        /// Search: read pages of the live web that the corpus has not; never those of this machine or its network.
        live_pages: bool = false;
        /// The document that the context `chunks` reads.
        chunks: ChunkSettings = ChunkSettings::default();
    }
}

choice! {
    /// Kinds of task.
    TaskKind: Copy Eq {
        /// Facts about countries and elements, one search each.
        "Lookup" => Lookup,
        /// Questions over a text corpus, with search and page access.
        "Search" => Search,
    }
}

choice! {
    /// The weights to begin with.
    PolicySettings {
        /// New random weights of this shape, as `New(hidden_size: 96)`.
        "New" => New(shape: DecoderSettings),
        /// A Hugging Face folder, as `Folder("assets/lookup/policy")`: relative to the file that names
        /// it, to the current folder, or to the program.
        "Folder" => Folder(path: String),
        /// A model of the Hugging Face Hub, as `Hub("HuggingFaceTB/SmolLM2-135M-Instruct")`, with
        /// `@revision` behind it if wanted: from the local cache, or fetched into it.
        "Hub" => Hub(name: String),
    }
}

impl Default for PolicySettings {
    fn default() -> Self {
        Self::Folder("assets/lookup/policy".to_owned())
    }
}

settings! {
    /// Shape of a Qwen2-style decoder.
    DecoderSettings {
        /// Width of the residual stream.
        hidden_size: i64 = 96, unit "channels",
            where at_least(1.0) or "the decoder would have no width";
        /// Number of blocks.
        num_hidden_layers: i64 = 3, unit "blocks",
            where at_least(1.0) or "the decoder would see one token at a time";
        /// Query heads.
        num_attention_heads: i64 = 4, unit "heads",
            where at_least(1.0) or "there would be no attention";
        /// Key and value heads (grouped-query attention).
        num_key_value_heads: i64 = 4, unit "heads",
            where at_least(1.0) or "there would be no attention";
        /// Width of the feed-forward layer.
        intermediate_size: i64 = 192, unit "channels",
            where at_least(1.0) or "the feed-forward layer would have no width";
        /// Base of the rotary embedding.
        rope_theta: f64 = 1000.0,
            where above(1.0) or "positions could not be told apart";
        /// Longest context.
        max_position_embeddings: i64 = 1024, unit "tokens",
            where at_least(16.0) or "no question fits";
        /// Standard deviation of the initial weights.
        initializer_range: f64 = 0.02,
            where above(0.0) or "all weights would be equal and stay so";
        /// Vocabulary of the tokenizer.
        vocab_size: i64 = 1536, unit "tokens",
            where at_least(2.0) or "there would be nothing to choose from";
    }
}

settings! {
    /// Device, threads, and who generates.
    EngineSettings {
        /// Where tensors live.
        device: DeviceSetting = DeviceSetting::Auto;
        /// Threads of libtorch; 0: as many as cores.
        threads: u32 = 0, unit "threads";
        /// Most memory of the keys and values that generation keeps; 0: half of what is free on the
        /// processor when they are first needed, 8 GiB on CUDA.
        cache_bytes: u64 = 0, unit "bytes";
        /// Who generates and scores. Learning always happens here, in libtorch.
        generator: GeneratorSetting = GeneratorSetting::Libtorch;
    }
}

choice! {
    /// Where tensors live.
    DeviceSetting: Copy Eq {
        /// A CUDA device if the build and the machine have one, else the processor.
        "auto" => Auto,
        /// The processor.
        "cpu" => Cpu,
        /// The CUDA device of this number.
        "cuda" => Cuda(number: u32),
    }
}
