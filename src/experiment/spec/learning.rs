//! How an update is computed: its numbers, its memory, its schedule, and which weights learn.

choice! {
    /// The kind of numbers that forward and backward passes of the learner compute with.
    Precision: Copy Eq {
        /// 32 bits: the learner computes what generation computes, to rounding.
        "f32" => F32,
        /// bf16 with f32 master weights: half the memory of activations; slow on processors without bf16 instructions. Log-probs differ from the sampled ones by about 1 %, so `importance` should be on, and the audit does not compare them.
        "bf16" => Bf16,
        /// bf16 where the device computes it fast (CUDA, processors with AVX-512 bf16), else f32.
        "auto" => Auto,
    }
}

#[allow(clippy::derivable_impls)]
impl Default for Precision {
    fn default() -> Self {
        Self::F32
    }
}

choice! {
    /// Whether layers are computed a second time in the backward pass (activation checkpointing; Chen et al., 2016).
    Recompute: Copy Eq {
        /// In micro-batches whose activations are estimated to take more than 4 GiB: long rows.
        "auto" => Auto,
        /// Always.
        "always" => Always,
        /// Never.
        "never" => Never,
    }
}

#[allow(clippy::derivable_impls)]
impl Default for Recompute {
    fn default() -> Self {
        Self::Auto
    }
}

choice! {
    /// The way from the peak to the last step's learning rate.
    LrDecay: Copy Eq {
        /// A straight line.
        "linear" => Linear,
        /// Half a cosine: slow at both ends (Loshchilov and Hutter, 2016).
        "cosine" => Cosine,
    }
}

#[allow(clippy::derivable_impls)]
impl Default for LrDecay {
    fn default() -> Self {
        Self::Linear
    }
}

choice! {
    /// Which weights RL trains.
    Lora {
        /// All of them.
        "none" => Off,
        /// LoRA (Hu et al., 2021): the policy at the start of RL stays, and small matrices beside its own learn. Checkpoints hold them in a folder `adapter` that PEFT reads; the final policy has them merged.
        "adapters" => On(adapters: LoraSettings),
    }
}

#[allow(clippy::derivable_impls)]
impl Default for Lora {
    fn default() -> Self {
        Self::Off
    }
}

impl Lora {
    /// The adapters, if there are any.
    #[must_use]
    pub fn settings(&self) -> Option<&LoraSettings> {
        match self {
            Self::Off => None,
            Self::On(settings) => Some(settings),
        }
    }
}

settings! {
    /// Low-rank adapters, as `adapters(rank: 16, alpha: 32, targets: [q_proj, v_proj])`. There is no dropout: sampled and learned log-probs would differ.
    LoraSettings {
        /// Columns of the small matrices.
        rank: u32 = 16, unit "columns",
            where from_to(1.0, 4096.0) or "nothing could be learned, or more than the matrices themselves hold";
        /// What they add is multiplied by this / rank.
        alpha: f32 = 32.0,
            where above(0.0) or "they would add nothing, or the opposite of what they learned";
        /// The matrices that have them, by the names of Hugging Face.
        targets: Vec<LoraTarget> = LoraTarget::ALL.to_vec();
    }
}

choice! {
    /// A matrix of every block.
    LoraTarget: Copy Eq PartialOrd Ord {
        /// Queries.
        "q_proj" => Q,
        /// Keys.
        "k_proj" => K,
        /// Values.
        "v_proj" => V,
        /// Output of attention.
        "o_proj" => O,
        /// Gate of the feed-forward layer.
        "gate_proj" => Gate,
        /// Its way up.
        "up_proj" => Up,
        /// Its way down.
        "down_proj" => Down,
    }
}

#[allow(clippy::derivable_impls)]
impl Default for LoraTarget {
    fn default() -> Self {
        Self::Q
    }
}

impl LoraTarget {
    /// All of them, in the order of a block.
    pub const ALL: [Self; 7] = [
        Self::Q,
        Self::K,
        Self::V,
        Self::O,
        Self::Gate,
        Self::Up,
        Self::Down,
    ];

    /// Its name in a Hugging Face file.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Q => "q_proj",
            Self::K => "k_proj",
            Self::V => "v_proj",
            Self::O => "o_proj",
            Self::Gate => "gate_proj",
            Self::Up => "up_proj",
            Self::Down => "down_proj",
        }
    }
}
