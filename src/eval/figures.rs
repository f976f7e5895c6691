//! What one trajectory took, beside what it was worth.

use crate::trajectory::{Action, FormatRule, StopReason, Turn};

/// Counts over the turns of a trajectory.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TrajectoryFigures {
    /// Turns.
    pub turns: u32,
    /// Searches that a tool answered.
    pub searches: u32,
    /// Pages that a tool answered.
    pub accesses: u32,
    /// Turns that broke a rule of the format.
    pub format_errors: u32,
    /// The same by rule, in the order of [`FormatRule::ALL`].
    pub broken: [u32; FormatRule::COUNT],
    /// How it ended.
    pub reason: Option<StopReason>,
    /// Tool calls that failed.
    pub tool_failures: u32,
    /// Whether it ended with an answer.
    pub answered: bool,
    /// MEM1's dependency on what the policy saw: the sum over turns of (context + length / 2) * length,
    /// in tokens; the prompt counts (MEM1's own code leaves it out).
    pub dependency: f64,
}

impl TrajectoryFigures {
    /// The counts of a trajectory that ended so.
    #[must_use]
    pub fn of(turns: &[Turn], reason: StopReason) -> Self {
        let mut figures = Self {
            turns: turns.len() as u32,
            answered: reason == StopReason::Answered,
            reason: Some(reason),
            ..Self::default()
        };
        for turn in turns {
            figures.format_errors += u32::from(turn.broken.is_some());
            for (count, rule) in figures.broken.iter_mut().zip(FormatRule::ALL) {
                *count += u32::from(turn.broken == Some(rule));
            }
            if let Some(tool) = &turn.tool {
                match &turn.action {
                    Some(Action::Search(_)) => figures.searches += 1,
                    Some(Action::Access(_)) => figures.accesses += 1,
                    _ => {}
                }
                figures.tool_failures += u32::from(tool.failure.is_some());
            }
            let length = turn.ids.len().saturating_sub(turn.forced as usize);
            let seen = f64::from(turn.context_tokens) + (length / 2) as f64;
            figures.dependency += seen * length as f64;
        }
        figures
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trajectory::{FormatRule, ToolFailure, ToolResult};

    #[test]
    fn turns_calls_errors_and_dependency_are_counted() {
        let turn = |action: Option<Action>, failure, forced| Turn {
            forced,
            ids: vec![1; 5],
            tool: action.as_ref().map(|_| ToolResult {
                failure,
                ..ToolResult::default()
            }),
            broken: action.is_none().then_some(FormatRule::MemoryFirst),
            action,
            context_tokens: 10,
            ..Turn::default()
        };
        let turns = [
            turn(Some(Action::Search("q".into())), None, 0),
            turn(
                Some(Action::Access("u".into())),
                Some(ToolFailure::Failed),
                1,
            ),
            turn(None, None, 0),
        ];
        let figures = TrajectoryFigures::of(&turns, StopReason::Malformed);
        assert_eq!(
            (figures.turns, figures.searches, figures.accesses),
            (3, 1, 1)
        );
        assert_eq!((figures.format_errors, figures.tool_failures), (1, 1));
        assert!(!figures.answered);
        assert_eq!(figures.broken, [1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(figures.reason, Some(StopReason::Malformed));
        // (10 + 2) * 5, (10 + 2) * 4, (10 + 2) * 5.
        assert!((figures.dependency - 168.0).abs() < 1e-9);
    }
}
