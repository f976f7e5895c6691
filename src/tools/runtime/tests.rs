use super::*;

struct Slow;
impl Tool for Slow {
    fn name(&self) -> &'static str {
        "slow"
    }
    fn serves(&self, action: &Action) -> bool {
        matches!(action, Action::Search(_))
    }
    fn call(&self, _: ToolCall) -> ToolFuture {
        Box::pin(async {
            tokio::time::sleep(Duration::from_secs(60)).await;
            Ok(String::new())
        })
    }
}

fn call(action: Action) -> ToolCall {
    let question = QuestionData {
        documents: vec![(
            "capital of Peru".into(),
            "The capital of Peru is Lima.".into(),
        )],
        ..QuestionData::default()
    };
    ToolCall {
        id: TrajectoryId::default(),
        turn: 0,
        action,
        question: Arc::new(question),
    }
}

#[test]
fn a_slow_tool_times_out_and_an_unknown_one_says_so() {
    let mut link = ToolLink::start(vec![Arc::new(Slow)], 0.05, 120).unwrap();
    link.call(call(Action::Search("x".into())));
    link.wait_for_all().unwrap();
    let replies = link.take_replies();
    assert!(
        matches!(replies[0].result, Err(ToolError::TimedOut { .. })),
        "{replies:?}"
    );
    link.call(call(Action::Access("x".into())));
    link.wait_for_all().unwrap();
    assert!(matches!(
        link.take_replies()[0].result,
        Err(ToolError::Unknown(_))
    ));
}

#[test]
fn search_finds_the_exact_query_and_nothing_else() {
    let mut link = ToolLink::start(crate::tools::embedded(), 1.0, 120).unwrap();
    for (query, expected) in [
        (" capital of Peru", "The capital of Peru is Lima."),
        ("capital of Chile", "nothing found."),
    ] {
        link.call(call(Action::Search(query.into())));
        link.wait_for_all().unwrap();
        assert_eq!(link.take_replies()[0].result.as_deref(), Ok(expected));
    }
}

/// Says how many calls are at work while it is.
struct Crowd(Arc<AtomicU32>, Arc<AtomicU32>);
impl Tool for Crowd {
    fn name(&self) -> &'static str {
        "crowd"
    }
    fn serves(&self, action: &Action) -> bool {
        matches!(action, Action::Search(_))
    }
    fn call(&self, _: ToolCall) -> ToolFuture {
        let (now, most) = (Arc::clone(&self.0), Arc::clone(&self.1));
        Box::pin(async move {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(20)).await;
            now.fetch_sub(1, Ordering::SeqCst);
            Ok(String::new())
        })
    }
}

#[test]
fn no_more_calls_are_at_work_than_there_is_room_and_all_are_answered() {
    let most = Arc::new(AtomicU32::new(0));
    let tool = Crowd(Arc::default(), Arc::clone(&most));
    let mut link = ToolLink::start(vec![Arc::new(tool)], 60.0, 5).unwrap();
    for turn in 0..23 {
        link.call(ToolCall {
            turn,
            ..call(Action::Search("x".into()))
        });
    }
    link.wait_for_all().unwrap();
    assert!(link.take_replies().iter().all(|reply| reply.result.is_ok()));
    assert_eq!(most.load(Ordering::SeqCst), 5);
}

#[test]
fn calls_that_are_stopped_are_neither_waited_for_nor_answered() {
    let mut link = ToolLink::start(vec![Arc::new(Slow)], 3600.0, 120).unwrap();
    link.call(call(Action::Search("x".into())));
    assert_eq!(link.outstanding(), 1);
    link.cancel();
    link.wait_for_all().unwrap();
    assert!(link.take_replies().is_empty());
    // The place of a stopped call is free again.
    let mut link = ToolLink::start(vec![Arc::new(Slow)], 0.05, 1).unwrap();
    link.call(call(Action::Search("x".into())));
    link.cancel();
    link.call(call(Action::Search("y".into())));
    link.wait_for_all().unwrap();
    assert_eq!(link.take_replies().len(), 1);
}

/// Breaks down, before or after it has begun to wait.
struct Broken(bool);
impl Tool for Broken {
    fn name(&self) -> &'static str {
        "broken"
    }
    fn serves(&self, _: &Action) -> bool {
        true
    }
    fn call(&self, _: ToolCall) -> ToolFuture {
        assert!(self.0, "broken at once");
        Box::pin(async {
            tokio::time::sleep(Duration::from_millis(1)).await;
            panic!("broken while at work")
        })
    }
}

#[test]
fn a_tool_that_panics_has_failed_and_nobody_waits_for_it() {
    for late in [false, true] {
        let mut link = ToolLink::start(vec![Arc::new(Broken(late))], 3600.0, 1).unwrap();
        for turn in 0..2 {
            link.call(ToolCall {
                turn,
                ..call(Action::Search("x".into()))
            });
        }
        link.wait_for_all().unwrap();
        for reply in link.take_replies() {
            let error = reply.result.unwrap_err();
            assert_eq!(error.failure(), ToolFailure::Failed);
            assert!(error.to_string().contains("it broke down"), "{error}");
        }
    }
}

#[test]
fn nobody_waits_for_a_tool_once_the_run_is_asked_to_stop() {
    let mut link = ToolLink::start(vec![Arc::new(Slow)], 3600.0, 120).unwrap();
    link.call(call(Action::Search("x".into())));
    let interrupts = Interrupts::default();
    interrupts.request();
    link.wait_unless(&interrupts).unwrap();
    assert_eq!(link.outstanding(), 1);
}
