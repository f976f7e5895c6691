use super::*;

fn limits() -> LimitSettings {
    LimitSettings {
        turns: 4,
        turn_tokens: 10,
        trajectory_tokens: 40,
        context_tokens: 100,
        tool_failures: 1,
        ..LimitSettings::default()
    }
}

fn after() -> AfterTurn {
    AfterTurn {
        finish: Finish::Stop,
        broken: false,
        answered: false,
        reading: false,
        left: Budget {
            turns: 1,
            tokens: 10,
        },
        context: 50,
    }
}

#[test]
fn every_ending_of_a_turn_has_its_own_reason() {
    let ended = TurnState::Terminated;
    let cases = [
        (after(), TurnState::ProcessingTools),
        (
            AfterTurn {
                reading: true,
                ..after()
            },
            TurnState::Pending,
        ),
        (
            AfterTurn {
                answered: true,
                ..after()
            },
            ended(StopReason::Answered),
        ),
        (
            AfterTurn {
                broken: true,
                ..after()
            },
            ended(StopReason::Malformed),
        ),
        (
            AfterTurn {
                finish: Finish::Length,
                broken: true,
                ..after()
            },
            ended(StopReason::TokenLimit),
        ),
        (
            AfterTurn {
                finish: Finish::Length,
                context: 100,
                ..after()
            },
            ended(StopReason::ContextFull),
        ),
        (
            AfterTurn {
                left: Budget {
                    turns: 0,
                    tokens: 10,
                },
                ..after()
            },
            ended(StopReason::TurnLimit),
        ),
        (
            AfterTurn {
                left: Budget {
                    turns: 1,
                    tokens: 0,
                },
                ..after()
            },
            ended(StopReason::TokenLimit),
        ),
        // An answer counts also on the last turn and with the last token.
        (
            AfterTurn {
                answered: true,
                left: Budget {
                    turns: 0,
                    tokens: 0,
                },
                ..after()
            },
            ended(StopReason::Answered),
        ),
    ];
    for (after, state) in cases {
        assert_eq!(state_after_turn(after, &limits()), state, "{after:?}");
    }
}

#[test]
fn a_tool_result_that_leaves_no_room_ends_the_trajectory() {
    let state = |next_context| {
        state_after_tool(
            AfterTool {
                error: None,
                failures: 0,
                next_context,
            },
            &limits(),
        )
    };
    assert_eq!(state(99), TurnState::Pending);
    assert_eq!(state(100), TurnState::Terminated(StopReason::ResultTooLong));
    let slow = ToolError::TimedOut {
        name: "search".into(),
        seconds: "1".into(),
    };
    let broken = ToolError::Failed {
        name: "search".into(),
        problem: "x".into(),
    };
    let failed = |error, failures| {
        let after = AfterTool {
            error: Some(error),
            failures,
            next_context: 1,
        };
        state_after_tool(after, &limits())
    };
    assert_eq!(
        failed(&slow, 1),
        TurnState::Pending,
        "a failure is an observation"
    );
    assert_eq!(
        failed(&slow, 2),
        TurnState::Terminated(StopReason::TimedOut)
    );
    assert_eq!(failed(&broken, 1), TurnState::Pending);
    assert_eq!(
        failed(&broken, 2),
        TurnState::Terminated(StopReason::ToolFailed)
    );
}
