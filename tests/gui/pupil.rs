//! Reads a lesson as a pupil does, answers it, and works it out beside the window.

use eframe::egui::{Key, Role};
use egui_kittest::Harness;
use egui_kittest::kittest::NodeT as _;
use palimpsest::credit::memory::MemoryCreditState;
use palimpsest::experiment::CreditSettings;
use palimpsest::gui::{
    LessonRecord, Member, MemberResult, Run, Scope, StepInputs, Tab, Window, inputs, recompute,
    recorded_settings,
};
use palimpsest::trajectory::Purpose;

use crate::support::{all_text, click, press, show, window_of};

/// The beginnings of the stations' titles.
pub const STATIONS: [&str; 7] = [
    "1 One", "2 Two", "3 The", "4 Credit", "5 The", "6 Bug", "7 From",
];
/// The beginnings of the museum's pieces.
pub const PIECES: [&str; 4] = [
    "Only the last turn",
    "The reward stops",
    "The tool's words",
    "Normalised by",
];

/// A window that shows a lesson, tall enough for all of it.
pub fn lesson(name: &str) -> Harness<'static, Window> {
    let mut harness = window_of([1500.0, 3000.0], &[]);
    harness.state_mut().world.lesson = Some(name.to_owned());
    show(&mut harness, Tab::Lesson);
    harness
}

/// The labels in the order in which they are read.
pub fn read(harness: &Harness<'_, Window>) -> Vec<String> {
    let text = |node: egui_kittest::Node<'_>| {
        let node = node.accesskit_node();
        // The lines of a text repeat it.
        let text = node.label().or_else(|| node.value());
        text.filter(|text| node.role() != Role::TextRun && !text.is_empty())
    };
    let all = harness.root().children_recursive();
    all.filter_map(text).collect()
}

/// The first label that begins like this; empty if there is none.
pub fn label(harness: &Harness<'_, Window>, beginning: &str) -> String {
    let found = read(harness)
        .into_iter()
        .find(|text| text.starts_with(beginning));
    found.unwrap_or_default()
}

/// The options of the question that is open.
pub fn options(harness: &Harness<'_, Window>) -> Vec<String> {
    let read = read(harness);
    let from = read.iter().position(|text| text == "Predict first");
    let to = read
        .iter()
        .position(|text| text.starts_with("The numbers appear"));
    match (from, to) {
        (Some(from), Some(to)) => read[from + 2..to].to_vec(),
        _ => Vec::new(),
    }
}

/// Answers the open question with each option in turn until it is right, and gives what is said then.
pub fn answer(harness: &mut Harness<'_, Window>) -> String {
    let options = options(harness);
    assert!(options.len() > 1, "{}", all_text(harness));
    let mut right = String::new();
    for option in &options {
        click(harness, option);
        let verdict = label(harness, "As you said.");
        if !verdict.is_empty() {
            assert!(right.is_empty(), "two answers are right: {options:?}");
            right = verdict;
        } else {
            assert!(!label(harness, "Not so.").is_empty());
        }
    }
    let answered = label(harness, "As you said.");
    assert!(
        !right.is_empty(),
        "no answer is right: {options:?} {answered}"
    );
    right
}

/// Whether the station asks here; if it does not, it says why, and shows no numbers.
pub fn asks(harness: &Harness<'_, Window>) -> bool {
    let text = all_text(harness);
    let refused = text.contains("cannot be worked out from the record: ");
    let open = text.contains("Predict first");
    assert!(refused != open, "{text}");
    assert_eq!(
        label(harness, "Scale from"),
        "",
        "numbers before an answer: {text}"
    );
    assert!(
        !text.contains("As you said.") && !text.contains("Not so."),
        "{text}"
    );
    open
}

/// All numbers in a text, signs and decimals included.
pub fn numbers(text: &str) -> Vec<f64> {
    let part = |letter: char| letter.is_ascii_digit() || ".+-".contains(letter);
    text.split(|letter| !part(letter))
        .filter_map(|word| word.trim_end_matches('.').parse().ok())
        .collect()
}

/// What stands between two phrases.
pub fn between<'a>(text: &'a str, from: &str, to: &str) -> &'a str {
    let (_, rest) = text
        .split_once(from)
        .unwrap_or_else(|| panic!("{from:?} in {text}"));
    rest.split_once(to).map_or(rest, |(found, _)| found)
}

/// A lesson's step, to be worked out beside the window.
pub struct Step {
    pub inputs: StepInputs,
    pub recorded: CreditSettings,
    gold: Vec<String>,
}

impl Step {
    fn of(run: &mut Run) -> Self {
        let recorded = recorded_settings(run).unwrap();
        let steps = run.steps();
        let (_, step) = steps
            .into_iter()
            .rfind(|(of, _)| *of == Purpose::Train)
            .unwrap();
        let inputs = inputs(run, step).unwrap();
        let gold = |group: &Vec<Member>| {
            let question = run.view.question_of(group[0].id).unwrap();
            question.gold.trim().to_owned()
        };
        let gold = inputs.groups.iter().map(gold).collect();
        Self {
            inputs,
            recorded,
            gold,
        }
    }

    pub fn named(name: &str) -> Self {
        Self::of(&mut LessonRecord::named(name).unwrap().open().unwrap())
    }

    pub fn under(&self, settings: CreditSettings, group: usize) -> Vec<MemberResult> {
        self.changed(settings, group, |_| {})
    }

    pub fn changed(
        &self,
        settings: CreditSettings,
        group: usize,
        change: impl FnOnce(&mut Vec<Member>),
    ) -> Vec<MemberResult> {
        let mut inputs = self.inputs.clone();
        change(&mut inputs.groups[group]);
        let scope = Scope {
            recorded: &self.recorded,
            state: &MemoryCreditState::default(),
        };
        recompute(&inputs, &settings, &scope)
            .unwrap()
            .groups
            .swap_remove(group)
    }

    /// The group that the window shows.
    pub fn shown(&self, harness: &Harness<'_, Window>) -> usize {
        let read = read(harness);
        self.gold
            .iter()
            .position(|gold| read.contains(gold))
            .unwrap()
    }
}

/// Goes through every group and every rollout of a station that asks, answers, and checks.
pub fn everywhere(
    name: &str,
    station: &str,
    mut check: impl FnMut(&Step, usize, usize, &str, &str),
) -> usize {
    let step = Step::named(name);
    let mut harness = lesson(name);
    click(&mut harness, station);
    assert!(asks(&harness), "{name} {station} starts with a question");
    let mut asked = 0;
    for _ in 0..step.inputs.groups.len() {
        let group = step.shown(&harness);
        for (at, member) in step.inputs.groups[group].iter().enumerate() {
            click(&mut harness, &format!("#{} ", member.id.member));
            if !asks(&harness) {
                continue;
            }
            let question = {
                let read = read(&harness);
                let from = read
                    .iter()
                    .position(|text| text == "Predict first")
                    .unwrap();
                read[from + 1].clone()
            };
            let verdict = answer(&mut harness);
            asked += 1;
            let text = format!("{question}\n{verdict}\n{}", all_text(&harness));
            check(&step, group, at, &verdict, &text);
        }
        press(&mut harness, Key::M);
    }
    asked
}
