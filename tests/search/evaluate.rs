//! Evaluations of the search task with a scripted policy.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use palimpsest::engine::GenerateRequest;
use palimpsest::experiment::{ContextKind, Retrieval, RetrieverSettings};
use palimpsest::record::Event;
use palimpsest::tools::{Tool, ToolCall, ToolError, ToolFuture, ToolLink};
use palimpsest::trajectory::{Action, FormatRule, StopReason, ToolFailure};

use super::players::{by_text, diligent, experiment, measure};

#[test]
fn every_context_is_played_in_its_own_form_to_the_right_answer() {
    let folder = tempfile::tempdir().unwrap();
    let contexts = [
        ContextKind::Full,
        ContextKind::Deployed,
        ContextKind::LastTurn,
        ContextKind::Mem1,
        ContextKind::Chunks,
        ContextKind::NoNotes,
    ];
    let measured = measure(
        folder.path(),
        experiment(folder.path(), &contexts),
        by_text(diligent),
        None,
    );
    assert_eq!(measured.lines.len(), contexts.len());
    for line in &measured.lines {
        assert_eq!(
            (line.em, line.f1, line.cem, line.objectives_em),
            (1.0, 1.0, 1.0, 1.0),
            "{line:?}"
        );
        assert_eq!(
            (line.n, line.samples, line.format_errors),
            (2, 1, 0.0),
            "{line:?}"
        );
        let searches = if line.context == ContextKind::Chunks {
            0.0
        } else {
            1.0
        };
        assert_eq!((line.searches, line.answered), (searches, 1.0), "{line:?}");
        assert!(line.dependency > 0.0 && line.total_tokens >= line.peak_tokens);
        // All that was shown stands in notes or thoughts; ReAct writes nothing down.
        let kept = (line.context != ContextKind::NoNotes).then_some(1.0);
        assert_eq!(line.notes_recall, kept, "{line:?}");
        assert_eq!(line.pass_at_k, 1.0);
    }
    let text = |context: ContextKind| {
        let found = measured
            .transcripts
            .iter()
            .find(|of| of.context == context)
            .unwrap();
        found.turns[0]
            .tool
            .as_ref()
            .map(|tool| tool.text.clone())
            .unwrap_or_default()
    };
    assert!(
        text(ContextKind::Mem1).contains("You have 3 turns left."),
        "{}",
        text(ContextKind::Mem1)
    );
    assert!(!text(ContextKind::Deployed).contains("turns left"));
    let reader = measured
        .transcripts
        .iter()
        .find(|of| of.context == ContextKind::Chunks)
        .unwrap();
    assert!(!reader.question.chunks.is_empty());
    assert_eq!(
        reader.turns.len(),
        reader.question.chunks.len() + 1,
        "a turn a part, then the answer"
    );
}

#[test]
fn mem1_is_told_the_turns_that_are_left_also_when_a_tool_fails_and_a_reader_may_only_answer() {
    let folder = tempfile::tempdir().unwrap();
    let mut experiment = experiment(folder.path(), &[ContextKind::Mem1, ContextKind::Chunks]);
    let tools = ToolLink::start(vec![], 60.0, 120).unwrap();
    experiment.task.chunks.passages = 1;
    let player = |request: &GenerateRequest, text: &str| {
        if text.ends_with("<mem>") {
            return " nothing</mem>".to_owned();
        }
        let action = match request.turn {
            0 | 1 => "<search>x</search>",
            _ => "<answer>x</answer>",
        };
        format!("<think></think>{action}")
    };
    let measured = measure(folder.path(), experiment, player, Some(tools));
    for transcript in &measured.transcripts {
        if transcript.context == ContextKind::Mem1 {
            let told = &transcript.turns[0].tool.as_ref().unwrap().text;
            assert!(
                told.starts_with("<tool> You have 3 turns left. error: "),
                "{told}"
            );
        } else {
            // A search after the last part would lose the notes and show nothing.
            assert_eq!(transcript.reason, StopReason::Malformed);
            let last = transcript.turns.last().unwrap();
            assert_eq!(last.broken, Some(FormatRule::OneAction));
            assert!(last.tool.is_none());
        }
    }
}

#[test]
fn notes_alone_are_not_enough_for_a_policy_that_writes_none() {
    let folder = tempfile::tempdir().unwrap();
    let contexts = [ContextKind::MemoryOnly, ContextKind::Deployed];
    let measured = measure(
        folder.path(),
        experiment(folder.path(), &contexts),
        by_text(diligent),
        None,
    );
    for line in &measured.lines {
        // Results are never shown with memory_only, so nothing can be written down.
        let right = if line.context == ContextKind::MemoryOnly {
            0.0
        } else {
            1.0
        };
        assert_eq!(line.em, right, "{line:?}");
    }
}

#[test]
fn a_dead_server_costs_error_observations_and_never_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = super::world::runtime();
    let listener = super::world::listener(&runtime);
    let address = listener.local_addr().unwrap();
    drop(listener);
    let mut experiment = experiment(folder.path(), &[ContextKind::Deployed]);
    experiment.task.corpus.clear();
    experiment.task.retrieval = Retrieval::Served(RetrieverSettings {
        retry_seconds: 0.0,
        ..super::world::settings(address)
    });
    // It gives up after the first error.
    let player = |text: &str| {
        let action = if text.contains("error:") {
            "<answer>unknown</answer>"
        } else {
            "<search>x</search>"
        };
        format!("</mem><think></think>{action}")
    };
    let measured = measure(folder.path(), experiment.clone(), by_text(player), None);
    assert_eq!(measured.lines[0].tool_failures, 1.0);
    for transcript in &measured.transcripts {
        assert_eq!(transcript.reason, StopReason::Answered);
        let tool = transcript.turns[0].tool.as_ref().unwrap();
        assert_eq!(tool.failure, Some(ToolFailure::Failed));
        assert!(
            tool.text.contains("error: the tool \"search\" failed"),
            "{}",
            tool.text
        );
    }
    let told = measured.events.iter().filter(|event| {
        matches!(
            event,
            Event::ToolReturned {
                failure: Some(ToolFailure::Failed),
                ..
            }
        )
    });
    assert_eq!(told.count(), 2);
    // One that never gives up is ended by the limit, with a reason of its own.
    std::fs::remove_dir_all(folder.path().join("run")).unwrap();
    experiment.rollout.limits.turns = 64;
    experiment.rollout.limits.tool_failures = 2;
    let stubborn = |_: &str| "</mem><think></think><search>x</search>".to_owned();
    let measured = measure(folder.path(), experiment, by_text(stubborn), None);
    for transcript in &measured.transcripts {
        assert_eq!(
            (transcript.reason, transcript.turns.len()),
            (StopReason::ToolFailed, 3)
        );
    }
}

/// Answers at once, but for one call: that waits until everybody else has answered.
struct OneSlow {
    answered: Arc<AtomicU32>,
    others: u32,
}

impl Tool for OneSlow {
    fn name(&self) -> &'static str {
        "search"
    }

    fn serves(&self, action: &Action) -> bool {
        matches!(action, Action::Search(_))
    }

    fn call(&self, call: ToolCall) -> ToolFuture {
        let (answered, others) = (Arc::clone(&self.answered), self.others);
        Box::pin(async move {
            while call.id.group == 0 && answered.load(Ordering::SeqCst) < others {
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            }
            if call.id.group == 0 && answered.load(Ordering::SeqCst) > others {
                return Err(ToolError::Gone);
            }
            Ok("nothing".to_owned())
        })
    }
}

#[test]
fn an_evaluation_of_256_trajectories_never_waits_for_one_slow_tool() {
    let folder = tempfile::tempdir().unwrap();
    let mut experiment = experiment(folder.path(), &[ContextKind::Deployed]);
    let questions: Vec<String> = (0..256)
        .map(|n| format!(r#"{{"question": "Question {n}?", "golden_answers": ["no"]}}"#))
        .collect();
    std::fs::write(&experiment.task.questions, questions.join("\n")).unwrap();
    experiment.evaluation.questions = 256;
    let answered = Arc::new(AtomicU32::new(0));
    let tool = OneSlow {
        answered: Arc::clone(&answered),
        others: 255,
    };
    let tools = ToolLink::start(vec![Arc::new(tool)], 600.0, 120).unwrap();
    let player = move |request: &GenerateRequest, _: &str| {
        if request.turn == 0 {
            return "</mem><think></think><search>x</search>".to_owned();
        }
        answered.fetch_add(1, Ordering::SeqCst);
        "</mem><think></think><answer>no</answer>".to_owned()
    };
    let measured = measure(folder.path(), experiment, player, Some(tools));
    // Had anybody waited for the slow call, it would never have come back.
    assert_eq!((measured.lines[0].n, measured.lines[0].em), (256, 1.0));
    assert_eq!(measured.lines[0].tool_failures, 0.0);
}

#[test]
fn several_answers_to_a_question_are_its_samples() {
    let folder = tempfile::tempdir().unwrap();
    let mut experiment = experiment(folder.path(), &[ContextKind::NoNotes]);
    experiment.evaluation.samples = 4;
    experiment.evaluation.questions = 50;
    let player = |request: &GenerateRequest, text: &str| {
        let right = if text.contains("mayor") {
            "a. lee"
        } else {
            "in Italy"
        };
        let says = if request.id.member == 3 {
            right
        } else {
            "nobody"
        };
        format!("<think></think><answer>{says}</answer>")
    };
    let measured = measure(folder.path(), experiment, player, None);
    let line = measured.lines[0];
    // "in Italy" covers the words and is no exact match; the set has two questions, not fifty.
    assert_eq!((line.n, line.samples), (2, 4));
    assert_eq!((line.em, line.pass_at_k, line.cem), (0.125, 0.5, 0.25));
    assert!(line.em_low <= line.em && line.em <= line.em_high);
}
