//! How the policy is measured and what is written down.

use super::ContextKind;

settings! {
    /// When and how the policy is measured.
    EvaluationSettings {
        /// Steps between small evaluations; 0: only at step 0 and at the end.
        every: u32 = 6, unit "steps";
        /// Questions per entry (context and number of objectives) during training.
        questions_during: u32 = 32, unit "questions",
            where at_least(1.0) or "an evaluation would measure nothing";
        /// Objectives during training, one entry each.
        objectives_during: Vec<u32> = vec![3], unit "objectives",
            where at_least(1.0) or "a question would ask for nothing";
        /// Questions per entry at step 0 and at the end.
        questions: u32 = 96, unit "questions",
            where at_least(1.0) or "an evaluation would measure nothing";
        /// Objectives at step 0 and at the end, one entry each.
        objectives: Vec<u32> = vec![2, 3, 4, 5, 6], unit "objectives",
            where at_least(1.0) or "a question would ask for nothing";
        /// Contexts, one entry each.
        contexts: Vec<ContextKind> = vec![ContextKind::Full, ContextKind::Deployed];
        /// Entities asked about.
        split: Split = Split::Validation;
        /// Answers to each question, for avg@k and pass@k; with a temperature of 0 they are all the same.
        samples: u32 = 1, unit "answers",
            where from_to(1.0, 1024.0) or "nothing would be measured";
        /// Draws of the bootstrap that gives the intervals.
        bootstrap: u32 = 1000, unit "draws",
            where from_to(1.0, 100000.0) or "there would be no interval";
        /// Measure once and end: nothing is trained or saved. `palimpsest eval` sets it.
        only: bool = false;
        /// Sampling temperature; 0: greedy.
        temperature: f32 = 0.0,
            where at_least(0.0) or "probabilities would turn around";
        /// Seed of the questions: the same in every run, so that runs can be compared.
        seed: u64 = 1000;
    }
}

choice! {
    /// Which entities a question may ask about. Evaluation entities are never trained on.
    Split: Copy Eq PartialOrd Ord {
        /// Entities for the cold start and RL.
        "Train" => Train,
        /// Entities for choosing settings.
        "Validation" => Validation,
        /// Entities for the numbers that are reported.
        "Test" => Test,
    }
}

settings! {
    /// What is written down.
    RecordSettings {
        /// Folder of runs, relative to the current folder.
        runs: String = "runs".to_owned();
        /// RL steps between checkpoints; 0: only at the end.
        checkpoint_every: u32 = 8, unit "steps";
        /// Cold start steps between checkpoints; 0: only at the end.
        cold_start_checkpoint_every: u32 = 200, unit "steps";
        /// Write TensorBoard event files.
        tensorboard: bool = true;
        /// Checkpoints kept, the newest; 0: all.
        keep_checkpoints: u32 = 0, unit "checkpoints";
        /// Trajectories of each step whose text and tokens are kept; 0: all.
        trajectories: u32 = 0, unit "trajectories";
        /// What a fault of the credit audit does. Every update is audited: before it is sent weights,
        /// masks and log-probs against what was sampled and declared, after it what was learned from.
        audit: Audit = Audit::Stop;
        /// How far the ratio of a token may lie from 1 in the first mini-batch, where engine and learner
        /// use the same weights, before the audit calls it a fault; inf: anywhere.
        audit_ratio: f32 = 0.01,
            where above_or_inf(0.0) or "rounding alone would be a fault";
    }
}

choice! {
    /// What a fault of the credit audit does.
    Audit: Copy Eq {
        /// The run stops. A fault found before the update leaves the weights untouched; one found after it is not saved.
        "stop" => Stop,
        /// It is recorded as trouble, and the run goes on.
        "warn" => Warn,
        /// Nothing is audited.
        "off" => Off,
    }
}
