//! Facts kept: what was shown, and what was written down of it.

use super::*;
use crate::experiment::{LimitSettings, Split};
use crate::rollout::{parse_turn, tool_result};
use crate::task::search::tests::task;

/// The search task with one question about the mayor of Ulm, and its own turns.
struct World {
    task: TaskHandle,
    question: QuestionData,
    _folder: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (_, task) = task(folder.path(), |_| {});
        let question = task.question(7, 1, 0, 1, Split::Test, false);
        Self {
            task: TaskHandle::new(task.into()),
            question,
            _folder: folder,
        }
    }

    /// A turn in a form, and what a tool said then.
    fn turn(&self, view: ContextKind, form: TurnForm, text: &str, said: Option<&str>) -> Turn {
        let tokenizer = self.task.task.tokenizer();
        let ids = tokenizer.encode(text);
        let parsed = parse_turn(&ids, form, |id| tokenizer.token_bytes(id));
        assert_eq!(parsed.broken, None, "{text}");
        let limits = LimitSettings {
            tool_short_chars: 12,
            ..LimitSettings::default()
        };
        Turn {
            spans: parsed.spans,
            action: parsed.action,
            tool: said.map(|said| tool_result(&Ok(said.to_owned()), view, 1, &self.task, &limits)),
            logprobs: vec![0.0; ids.len()],
            ids,
            ..Turn::default()
        }
    }

    /// Facts kept, and whether notes had a length.
    fn kept(&self, view: ContextKind, turns: &[Turn]) -> (f32, bool) {
        let reward = RewardSettings::default();
        let outcome = outcome_of(
            self.task.task.as_ref(),
            &self.question,
            view,
            turns,
            StopReason::Answered,
            &reward,
        );
        (outcome.notes_recall, outcome.notes_tokens > 0.0)
    }
}

const ASKS: &str = "<mem></mem><think></think><search>q</search>";
const NOTES: &str = "<mem> Ann Lee</mem><think></think><answer>x</answer>";
const FORGETS: &str = "<mem> nothing</mem><think></think><answer>x</answer>";

#[test]
fn the_last_word_of_a_result_is_shown_like_any_other() {
    let world = World::new();
    let view = ContextKind::Full;
    let turns = |notes| {
        [
            world.turn(view, TurnForm::Noted, ASKS, Some("Its mayor is Ann Lee.")),
            world.turn(view, TurnForm::Noted, notes, None),
        ]
    };
    assert_eq!(world.kept(view, &turns(NOTES)), (1.0, true));
    assert_eq!(world.kept(view, &turns(FORGETS)), (0.0, true));
}

#[test]
fn only_what_a_context_has_shown_counts() {
    let world = World::new();
    // The short form ends before the name.
    let said = "Its mayor is, as all know, Ann Lee.";
    for (view, shows) in [
        (ContextKind::Full, true),
        (ContextKind::Deployed, false),
        (ContextKind::LastTurn, false),
        (ContextKind::MemoryOnly, false),
    ] {
        // Notes that hold it all the same are a guess, and no fact that was kept.
        let turns = [
            world.turn(view, TurnForm::Noted, ASKS, Some(said)),
            world.turn(view, TurnForm::Noted, NOTES, None),
        ];
        let expected = if shows { 1.0 } else { 0.0 };
        assert_eq!(world.kept(view, &turns), (expected, true), "{view:?}");
    }
}

#[test]
fn a_perfect_reader_keeps_everything_though_the_answer_has_no_notes() {
    let mut world = World::new();
    let part = world.task.task.render_tool("Its mayor is Ann Lee.").1;
    world.question.chunks = vec![part];
    let view = ContextKind::Chunks;
    let turns = [
        world.turn(view, TurnForm::Reading, "<mem> Ann Lee</mem>", None),
        world.turn(
            view,
            TurnForm::Answering,
            "<think></think><answer>Ann Lee</answer>",
            None,
        ),
    ];
    assert_eq!(world.kept(view, &turns), (1.0, true));
}

#[test]
fn the_thoughts_of_mem1_are_its_notes_and_those_of_react_are_not() {
    let world = World::new();
    let said = "Ann Lee is mayor.";
    for (view, expected) in [
        (ContextKind::Mem1, (1.0, true)),
        (ContextKind::NoNotes, (0.0, false)),
    ] {
        let turns = [
            world.turn(
                view,
                TurnForm::Bare,
                "<think></think><search>q</search>",
                Some(said),
            ),
            world.turn(
                view,
                TurnForm::Bare,
                "<think> Ann Lee it is</think><answer>x</answer>",
                None,
            ),
        ];
        assert_eq!(world.kept(view, &turns), expected, "{view:?}");
    }
}
