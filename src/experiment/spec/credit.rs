//! The grammar of credit: one setting a line. Values that are known and not built yet are refused by
//! name.

settings! {
    /// How credit is assigned; one line of the grammar each. As RON: `mempo`, `grpo`, or
    /// `mempo(threshold: none)` for a preset with changes.
    CreditSettings: Copy {
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
            where from_to(0.0, 0.0) or "returns over rounds are planned and not built yet";
        /// What the memory rewards are compared with.
        baseline: Baseline = Baseline::Pooled;
        /// What the centred memory rewards are divided by.
        scale: Scale = Scale::Std;
        /// What the centred outcome rewards of a group are divided by.
        outcome_scale: Scale = Scale::Std;
        /// When the memory advantage counts.
        gate: Gate = Gate::Off;
        /// Factor of the memory advantage.
        weight: Weight = Weight::Constant(1.0);
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
    }
}

choice! {
    /// What notes are compared with.
    Target: Copy Eq {
        /// P(answer after the notes) - P(answer after everything up to that round).
        "minus_full" => MinusFull,
    }
    planned { "minus_previous", "minus_empty", "absolute" }
}

choice! {
    /// The space in which the difference is taken.
    Space: Copy Eq {
        /// Probabilities: P is the geometric mean over the answer's tokens.
        "prob" => Prob,
    }
    planned { "log" }
}

choice! {
    /// Which answer tokens take part in P.
    Threshold: Copy {
        /// All.
        "none" => Off,
        /// Those whose own probability is above this.
        "own" => Own(p: f32, where from_below(0.0, 1.0) or "no answer token could ever count: every memory reward is 0"),
    }
    planned { "union" }
}

choice! {
    /// How several answers are scored.
    Answers: Copy Eq {
        /// Joined to one text, the first alias of each.
        "joined_first_alias" => JoinedFirstAlias,
    }
    planned { "joined_max_alias", "per_answer" }
}

choice! {
    /// What memory rewards are compared with.
    Baseline: Copy Eq {
        /// The mean over all rounds of all rollouts of the question.
        "pooled" => Pooled,
        /// The mean over the same round of all rollouts of the question.
        "per_round" => PerRound,
    }
    planned { "leave_one_out", "absorbing", "position_average" }
}

choice! {
    /// What centred rewards are divided by.
    Scale: Copy Eq {
        /// Their standard deviation.
        "std" => Std,
        /// Nothing.
        "none" => Off,
    }
    planned { "std_floor" }
}

choice! {
    /// When the memory advantage counts.
    Gate: Copy Eq {
        /// Always.
        "none" => Off,
    }
    planned { "sign", "success", "group_spread" }
}

choice! {
    /// Factor of the memory advantage.
    Weight: Copy {
        /// The same in every step.
        "constant" => Constant(factor: f32, where at_least(0.0) or "good notes would be punished"),
    }
    planned { "linear" }
}

choice! {
    /// What notes cost by length.
    Length: Copy Eq {
        /// Nothing.
        "none" => Off,
    }
    planned { "price", "budget" }
}

choice! {
    /// Whether a gain needs support in an observation.
    Support: Copy Eq {
        /// No.
        "off" => Off,
    }
    planned { "on" }
}

choice! {
    /// Who scores the answer.
    Scorer: Copy Eq {
        /// The policy itself, as it is in this step.
        "policy" => Policy,
    }
    planned { "frozen", "average" }
}

choice! {
    /// What the first round's notes earn.
    First: Copy Eq {
        /// Nothing: there was nothing to note yet.
        "skip" => Skip,
    }
    planned { "minus_empty" }
}

choice! {
    /// A control arm.
    Placebo: Copy Eq {
        /// None.
        "off" => Off,
    }
    planned { "shuffled_gold" }
}
