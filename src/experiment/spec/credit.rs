//! The grammar of credit: one setting a line. Values that are known and not built yet are refused by
//! name; combinations without sense are refused in `check/credit.rs`.

settings! {
    /// How credit is assigned; one line of the grammar each. As RON: `mempo`, `grpo`, or
    /// `mempo(threshold: none)` for a preset with changes. Formulas and sources: `docs/credit_grammar.md`.
    CreditSettings: Copy {
        /// How the outcome advantage is made.
        estimator: Estimator = Estimator::Grpo;
        /// Whether the memory advantage is used at all; false: plain GRPO.
        memory: bool = true;
        /// What notes are compared with.
        target: Target = Target::MinusFull;
        /// The space in which the difference is taken.
        space: Space = Space::Prob;
        /// Which answer tokens count.
        threshold: Threshold = Threshold::Own(0.5);
        /// How several answers are scored.
        answers: Answers = Answers::JoinedFirstAlias;
        /// How much of later rounds' gain a round is paid, from 0 (its own round only).
        discount: f32 = 0.0,
            where from_to(0.0, 1.0) or "later rounds would count more than a round's own gain, or against it";
        /// What the memory rewards are compared with.
        baseline: Baseline = Baseline::Pooled;
        /// What the centred memory rewards are divided by.
        scale: Scale = Scale::Std;
        /// When the memory advantage counts.
        gate: Gate = Gate::Off;
        /// Factor of the memory advantage.
        weight: Weight = Weight::Constant(1.0);
        /// The tokens of a turn that its memory advantage falls on.
        tokens: CreditTokens = CreditTokens::Notes;
        /// What a turn is worth that closed no notes.
        unclosed: Unclosed = Unclosed::Skip;
        /// What notes cost by length.
        length: Length = Length::Off;
        /// Whether a gain needs support in an observation.
        support: Support = Support::Off;
        /// Who scores the answer.
        scorer: Scorer = Scorer::Policy;
        /// What the first round's notes earn.
        first: First = First::Skip;
        /// A control arm that must learn nothing.
        placebo: Placebo = Placebo::Off;
    }
    presets {
        "mempo" => Self::mempo(),
        "grpo" => Self::grpo(),
        "mempo_prob" => Self::mempo_prob(),
        "information_gain" => Self::information_gain(),
        "infomem" => Self::infomem(),
        "mgpo" => Self::mgpo(),
        "himpo" => Self::himpo(),
        "per_answer" => Self::per_answer(),
        "unbiased" => Self::unbiased(),
        "guarded" => Self::guarded(),
        "turn_gain" => Self::turn_gain(),
        "placebo" => Self::placebo(),
    }
}

choice! {
    /// How the outcome advantage is made from the rewards of a question's rollouts. Formulas, sources and weaknesses: `docs/credit.md`.
    Estimator: Copy {
        /// Against the mean of the question, divided by its standard deviation (DeepSeekMath).
        "grpo" => Grpo,
        /// Against the mean of the question, divided by nothing (Dr. GRPO).
        "dr_grpo" => DrGrpo,
        /// Against the mean of the other rollouts of the question.
        "rloo" => Rloo,
        /// Against the mean of the question, long rollouts counting more (OPO).
        "opo" => Opo,
        /// Against the mean of the question, times all rollouts of the step / those with a reward (GPG).
        "gpg" => Gpg,
        /// No baseline: discounted returns of tokens, whitened over all tokens of the step (REINFORCE++).
        "reinforce_plus_plus" => ReinforcePlusPlus(gamma: f32, where from_to(0.0, 1.0) or "tokens would count more the further they are from the answer, or against it"),
        /// Against the mean of the question, whitened over all tokens of the step (REINFORCE++ with a baseline).
        "reinforce_plus_plus_baseline" => ReinforcePlusPlusBaseline,
        /// Only the best rollout of the question is paid, its lead divided by the standard deviation (pass@k GRPO).
        "passk" => Passk,
    }
    planned {
        "remax" because "it compares with a greedy rollout of every question, and all rollouts of a step are sampled",
        "gae" because "it compares with the values of a critic, and the policy has no value head"
    }
}

choice! {
    /// What notes are compared with.
    Target: Copy Eq {
        /// V(notes) - V(everything up to that round).
        "minus_full" => MinusFull,
        /// V(notes) - V(notes of the round before): what this round added.
        "minus_previous" => MinusPrevious,
        /// V(notes) - V(empty notes): what the notes are worth beyond a guess.
        "minus_empty" => MinusEmpty,
        /// V(notes) itself.
        "absolute" => Absolute,
    }
}

choice! {
    /// The space in which the difference is taken.
    Space: Copy {
        /// Probabilities: V is the geometric mean over the answer's tokens.
        "prob" => Prob,
        /// Log-probs: V is their mean, and differences are clipped to -clip..clip.
        "log" => Log(clip: f32, where above_or_inf(0.0) or "every difference would be clipped to nothing"),
    }
}

choice! {
    /// Which answer tokens take part in V.
    Threshold: Copy {
        /// All.
        "none" => Off,
        /// Those whose own probability is above this.
        "own" => Own(p: f32, where from_below(0.0, 1.0) or "no answer token could ever count: every memory reward is 0"),
        /// Those whose probability is above this in one of the two contexts compared: the same on both sides.
        "union" => Union(p: f32, where from_below(0.0, 1.0) or "no answer token could ever count: every memory reward is 0"),
    }
}

choice! {
    /// How several answers are scored.
    Answers: Copy Eq {
        /// Joined to one text, the first alias of each.
        "joined_first_alias" => JoinedFirstAlias,
        /// Joined to one text; the best of the texts with one alias exchanged.
        "joined_max_alias" => JoinedMaxAlias,
        /// Each on its own slice of the joined text, then the mean of the differences.
        "per_answer" => PerAnswer,
    }
}

choice! {
    /// What memory rewards are compared with.
    Baseline: Copy {
        /// The mean over all rounds of all rollouts of the question.
        "pooled" => Pooled,
        /// The mean over the same round of all rollouts of the question.
        "per_round" => PerRound,
        /// The mean over all rounds of the other rollouts of the question.
        "leave_one_out" => LeaveOneOut,
        /// The mean over the same round of all rollouts, 0 for those that have ended.
        "absorbing" => Absorbing,
        /// A moving average of the same round over the steps before; 0 before there is one.
        "position_average" => PositionAverage(decay: f32, where from_below(0.0, 1.0) or "the average would never move"),
    }
}

choice! {
    /// What centred rewards are divided by.
    Scale: Copy {
        /// Their standard deviation.
        "std" => Std,
        /// Their standard deviation, but at least this.
        "std_floor" => StdFloor(least: f32, where above(0.0) or "it would be no floor"),
        /// Nothing.
        "none" => Off,
    }
}

choice! {
    /// When the memory advantage counts.
    Gate: Copy Eq {
        /// Always.
        "none" => Off,
        /// Where the outcome advantage is not negative.
        "sign" => Sign,
        /// Where the answer was right.
        "success" => Success,
        /// Where the outcomes of the group differ.
        "group_spread" => GroupSpread,
    }
}

choice! {
    /// The tokens of a turn that its memory advantage falls on.
    CreditTokens: Copy Eq {
        /// Its notes alone (MemPO).
        "notes" => Notes,
        /// All that the policy wrote in the turn: notes, thoughts and the call (IGPO).
        "turn" => Turn,
    }
}

choice! {
    /// What a turn is worth that closed no notes.
    Unclosed: Copy Eq {
        /// Nothing: it is no round (MemPO).
        "skip" => Skip,
        /// What empty notes are worth, and all of its tokens answer for it: what was known is lost.
        "empty" => Empty,
    }
}

choice! {
    /// Factor of the memory advantage.
    Weight: Copy {
        /// The same in every step.
        "constant" => Constant(factor: f32, where at_least(0.0) or "good notes would be punished"),
        /// From one factor to another over the first steps, then the second.
        "linear" => Linear(schedule: LinearSettings),
    }
}

settings! {
    /// A weight that moves with the steps, as `linear(from: 1.0, to: 0.0, steps: 20)` or `linear(1.0, 0.0, 20)`.
    LinearSettings: Copy {
        /// At the first step.
        from: f32 = 1.0,
            where at_least(0.0) or "good notes would be punished";
        /// At the end.
        to: f32 = 0.0,
            where at_least(0.0) or "good notes would be punished";
        /// How long it takes.
        steps: u32 = 20, unit "steps",
            where at_least(1.0) or "it would never be `from`";
    }
}

choice! {
    /// What notes cost by length.
    Length: Copy {
        /// Nothing.
        "none" => Off,
        /// A fixed price: reward - beta * length / budget.
        "price" => Price(of: PriceSettings),
        /// A price that rises while the mean length is over so many tokens, and falls while it is under.
        "budget" => Budget(tokens: f32, where above(0.0) or "no note could keep it"),
    }
}

settings! {
    /// What a token of notes costs, as `price(beta: 0.05, budget: 60.0)` or `price(0.05, 60.0)`.
    PriceSettings: Copy {
        /// What notes as long as the budget cost.
        beta: f32 = 0.05, unit "reward",
            where above(0.0) or "notes would cost nothing, or be paid by length";
        /// Length that costs beta.
        budget: f32 = 60.0, unit "tokens",
            where above(0.0) or "a price per budget needs a budget";
    }
}

choice! {
    /// Whether a gain needs support in an observation.
    Support: Copy Eq {
        /// No.
        "off" => Off,
        /// Yes: no gain where the notes hold an answer that no observation has shown so far.
        "on" => On,
    }
}

choice! {
    /// Who scores the answer.
    Scorer: Copy {
        /// The policy itself, as it is in this step.
        "policy" => Policy,
        /// The policy as it was at the start of RL.
        "frozen" => Frozen,
        /// A moving average of the policy's weights: decay * average + (1 - decay) * policy after every update, from the start of RL on.
        "average" => Average(decay: f32, where between(0.0, 1.0) or "at 0 it is the policy and at 1 the frozen one, which have names of their own"),
    }
}

choice! {
    /// What the first round's notes earn.
    First: Copy Eq {
        /// Nothing: there was nothing to note yet.
        "skip" => Skip,
        /// V(notes) - V(empty notes).
        "minus_empty" => MinusEmpty,
    }
}

choice! {
    /// A control arm.
    Placebo: Copy Eq {
        /// None.
        "off" => Off,
        /// Notes are paid for the gold answer of another question of the step. Outcomes stay as they are.
        "shuffled_gold" => ShuffledGold,
    }
}
