//! Which loss the policy is trained with. Every name is one of a closed list: a name that is not
//! known is refused when the file is read.

choice! {
    /// The loss of a token. Clip bounds are `clip_low`, `clip_high` and, for `ppo`, `clip_dual`.
    PolicyLoss: Copy {
        /// PPO-clip (Schulman et al., 2017): the larger of the plain and the clipped loss.
        "ppo" => Ppo,
        /// GSPO (Zheng et al., 2025): one ratio for a row, the geometric mean of its tokens' ratios; bounds of about 0.0003 to 0.04; always aggregated as seq_mean_token_mean.
        "gspo" => Gspo,
        /// CISPO (MiniMax, 2025): the clipped ratio is a constant weight of the log-prob, so that no token loses its gradient.
        "cispo" => Cispo,
        /// GMPO (Zhao et al., 2025): the geometric mean of a row's ratios, clipped token by token in the log; bounds of about 0.4; always aggregated as seq_mean_token_mean.
        "gmpo" => Gmpo,
        /// GPG (Chu et al., 2025): the plain policy gradient, without a ratio.
        "gpg" => Gpg,
        /// Clip-Cov (Cui et al., 2025): PPO-clip where some tokens of high covariance between advantage and log-prob, drawn at random, are left out.
        "clip_cov" => ClipCov(tokens: ClipCovSettings),
        /// KL-Cov (Cui et al., 2025): no clip; the tokens of the highest covariance pay for |log ratio|.
        "kl_cov" => KlCov(tokens: KlCovSettings),
    }
}

#[allow(clippy::derivable_impls)]
impl Default for PolicyLoss {
    fn default() -> Self {
        Self::Ppo
    }
}

settings! {
    /// Which tokens Clip-Cov leaves out.
    ClipCovSettings: Copy {
        /// Most tokens left out, as a share of the trained tokens of a mini-batch; at least one.
        share: f32 = 2e-4, unit "share",
            where from_to(0.0, 1.0) or "it is no share";
        /// Only tokens whose covariance is above this can be left out.
        lower: f32 = 1.0;
        /// Only tokens whose covariance is below this can be left out.
        upper: f32 = 5.0;
    }
}

settings! {
    /// Which tokens KL-Cov holds back, and how much.
    KlCovSettings: Copy {
        /// How many tokens are held back, as a share of the trained tokens of a mini-batch; at least one.
        share: f32 = 2e-4, unit "share",
            where from_to(0.0, 1.0) or "it is no share";
        /// Weight of |log ratio| at those tokens.
        weight: f32 = 1.0,
            where at_least(0.0) or "the policy would be driven away from where it sampled";
    }
}

choice! {
    /// How the losses of tokens become one number. Denominators are counted over the whole mini-batch before it is split.
    Aggregation: Copy {
        /// Sum over all trained tokens / their number: long rows weigh more.
        "token_mean" => TokenMean,
        /// Sum over all trained tokens / number of rows.
        "seq_mean_token_sum" => SeqMeanTokenSum,
        /// Mean over each row's trained tokens, then mean over rows: every row weighs the same.
        "seq_mean_token_mean" => SeqMeanTokenMean,
        /// Sum over all trained tokens / a constant (Dr. GRPO, Liu et al., 2025), for example rows of a mini-batch * tokens of a long row.
        "seq_mean_token_sum_norm" => SeqMeanTokenSumNorm(tokens: f32, where above(0.0) or "the loss would be divided by 0"),
    }
}

#[allow(clippy::derivable_impls)]
impl Default for Aggregation {
    fn default() -> Self {
        Self::TokenMean
    }
}

choice! {
    /// How the KL to the reference is estimated from one token, with d = log-prob - reference (Schulman, 2020).
    KlKind: Copy Eq {
        /// d: unbiased as a value; its gradient is 0 on average.
        "k1" => K1,
        /// |d|.
        "abs" => Abs,
        /// d² / 2: its gradient is that of the KL on average.
        "k2" => K2,
        /// exp(-d) + d - 1, never negative; d is kept in -20 to 20 and the result in -10 to 10.
        "k3" => K3,
        /// The value of k1 with the gradient of k2 ("k1+" elsewhere).
        "k1_straight" => K1Straight,
        /// The value of abs with the gradient of k2 ("abs+" elsewhere).
        "abs_straight" => AbsStraight,
        /// The value of k3 with the gradient of k2 ("k3+" elsewhere).
        "k3_straight" => K3Straight,
    }
    planned { "full" because "the KL over the whole vocabulary needs the logits of the reference, and scores are log-probs of single tokens" }
}

#[allow(clippy::derivable_impls)]
impl Default for KlKind {
    fn default() -> Self {
        Self::K3
    }
}

choice! {
    /// Who decides the weight of the KL to the reference.
    KlControl: Copy {
        /// It stays at `kl_weight`.
        "fixed" => Fixed,
        /// It begins at `kl_weight` and follows a target (Ziegler et al., 2019).
        "adaptive" => Adaptive(aim: KlAim),
    }
}

#[allow(clippy::derivable_impls)]
impl Default for KlControl {
    fn default() -> Self {
        Self::Fixed
    }
}

settings! {
    /// What the weight of the KL follows: after each step it is multiplied by 1 + clip(KL / target - 1, -0.2, 0.2) * rows / horizon.
    KlAim: Copy {
        /// The mean KL per token to keep.
        target: f32 = 0.1, unit "nats",
            where above(0.0) or "the KL would be divided by 0";
        /// Rows after which an error counts fully.
        horizon: f32 = 10_000.0, unit "rows",
            where above(0.0) or "rows would be divided by 0";
    }
}

choice! {
    /// Whether sampled tokens that leave the reference cost reward, before advantages are made: weight * KL, each. `docs/credit.md` says what becomes of it.
    KlInReward: Copy {
        /// They do not.
        "none" => Off,
        /// They do, at a weight that stays.
        "fixed" => Fixed(cost: KlCostSettings),
        /// They do, at a weight that follows a target (Ziegler et al., 2019).
        "adaptive" => Adaptive(aim: KlCostAim),
    }
}

#[allow(clippy::derivable_impls)]
impl Default for KlInReward {
    fn default() -> Self {
        Self::Off
    }
}

settings! {
    /// What leaving the reference costs, as `fixed(weight: 0.001, kind: k1)` or `fixed(0.001, k1)`.
    KlCostSettings: Copy {
        /// Reward for a KL of one.
        weight: f32 = 0.001,
            where above(0.0) or "the KL would cost nothing, or be paid";
        /// How the KL is estimated from one token.
        kind: KlKind = KlKind::K1;
    }
}

settings! {
    /// What the weight of the KL in the reward follows: after each step it is multiplied by 1 + clip(KL / target - 1, -0.2, 0.2) * trajectories / horizon.
    KlCostAim: Copy {
        /// Reward for a KL of one, to begin with.
        weight: f32 = 0.001,
            where above(0.0) or "a weight of 0 stays 0 whatever it is multiplied by";
        /// How the KL is estimated from one token.
        kind: KlKind = KlKind::K1;
        /// The mean KL per token to keep.
        target: f32 = 0.1, unit "nats",
            where above(0.0) or "the KL would be divided by 0";
        /// Trajectories after which an error counts fully.
        horizon: f32 = 10_000.0, unit "trajectories",
            where above(0.0) or "trajectories would be divided by 0";
    }
}

choice! {
    /// What is done where the engine that sampled and the learner disagree about a probability. Weights are P(learner) / P(engine); with them, the ratio of the policy loss is taken to the learner's own log-probs at the start of the update.
    Importance: Copy {
        /// Nothing: the sampled log-probs are the old log-probs.
        "none" => Off,
        /// Weights above the upper bound are cut to it.
        "truncate" => Truncate(bounds: ImportanceSettings),
        /// Weights outside the bounds become 0.
        "mask" => Mask(bounds: ImportanceSettings),
    }
}

#[allow(clippy::derivable_impls)]
impl Default for Importance {
    fn default() -> Self {
        Self::Off
    }
}

settings! {
    /// Bounds of the weights between engine and learner.
    ImportanceSettings: Copy {
        /// What a weight belongs to.
        level: ImportanceLevel = ImportanceLevel::Token;
        /// Upper bound.
        upper: f32 = 2.0,
            where above(1.0) or "equal policies would already be cut";
        /// Lower bound of `mask`; 0: 1 / upper.
        lower: f32 = 0.0,
            where from_below(0.0, 1.0) or "equal policies would already be masked";
        /// A row with a token whose ratio is below this counts nothing; 0: off.
        veto: f32 = 1e-4,
            where from_below(0.0, 1.0) or "equal policies would already be vetoed";
    }
}

choice! {
    /// What a weight between engine and learner belongs to.
    ImportanceLevel: Copy Eq {
        /// Each token has its own ratio.
        "token" => Token,
        /// A row has the product of its tokens' ratios.
        "sequence" => Sequence,
        /// A row has the geometric mean of its tokens' ratios.
        "geometric" => Geometric,
    }
}

#[allow(clippy::derivable_impls)]
impl Default for ImportanceLevel {
    fn default() -> Self {
        Self::Token
    }
}
