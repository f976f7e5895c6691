//! Lessons and what-if: the numbers are the learner's.

use eframe::egui::{Key, Modifiers, Role};
use egui_kittest::Harness;
use egui_kittest::kittest::NodeT as _;
use palimpsest::credit::memory::MemoryCreditState;
use palimpsest::experiment::{Baseline, CreditSettings, Estimator, RolloutContext, Threshold};
use palimpsest::gui::{
    LessonRecord, Run, Scope, Tab, Window, inputs, lesson_names, recompute, recorded_settings,
    state_before,
};
use palimpsest::trajectory::Purpose;

use crate::pupil::{PIECES, STATIONS, answer, asks, between, label, lesson, numbers};
use crate::support::{
    all_text, click, labels, press, press_with, sample, scripted, show, window, window_of,
};

/// Works every training step of a run out again and compares every weight, bit for bit.
fn reproduces(run: &mut Run) -> usize {
    let recorded = recorded_settings(run).unwrap();
    let steps: Vec<u32> = run
        .steps()
        .into_iter()
        .filter(|(purpose, _)| *purpose == Purpose::Train)
        .map(|(_, step)| step)
        .collect();
    let mut compared = 0;
    for step in steps {
        let inputs = inputs(run, step).unwrap();
        let state = state_before(run, step, &recorded, &recorded).unwrap();
        let scope = Scope {
            recorded: &recorded,
            state: &state,
        };
        let made = recompute(&inputs, &recorded, &scope).unwrap();
        for (member, result) in inputs
            .groups
            .iter()
            .flatten()
            .zip(made.groups.iter().flatten())
        {
            for (round, was) in result.memory.iter().zip(&member.memory) {
                assert_eq!(
                    round.reward.to_bits(),
                    was.reward.to_bits(),
                    "{} turn {}",
                    member.id,
                    was.turn
                );
            }
            for (block, credit) in member.blocks.iter().zip(&result.credit) {
                for (token, (was, now)) in block.weight.iter().zip(&credit.weight).enumerate() {
                    assert_eq!(
                        was.to_bits(),
                        now.to_bits(),
                        "{} token {token}: {was} {now}",
                        member.id
                    );
                    compared += usize::from(block.mask[token]);
                }
            }
        }
    }
    compared
}

fn loaded(path: &std::path::Path) -> Run {
    let mut run = Run::open(path, &eframe::egui::Context::default());
    run.settle(std::time::Duration::from_secs(120));
    run
}

#[test]
fn the_recorded_settings_of_every_lesson_reproduce_its_weights_bit_for_bit() {
    for (name, _) in lesson_names() {
        let mut run = LessonRecord::named(name).unwrap().open().unwrap();
        assert!(reproduces(&mut run) > 100, "{name}");
    }
}

#[test]
fn any_run_reproduces_its_weights_under_every_estimator_and_context() {
    let settings = [
        CreditSettings::mempo(),
        CreditSettings::grpo(),
        CreditSettings::per_answer(),
        CreditSettings {
            estimator: Estimator::Rloo,
            ..CreditSettings::himpo()
        },
        CreditSettings {
            baseline: Baseline::PositionAverage(0.9),
            ..CreditSettings::mempo_prob()
        },
        CreditSettings {
            estimator: Estimator::ReinforcePlusPlus(1.0),
            ..CreditSettings::mempo()
        },
    ];
    for (number, credit) in settings.into_iter().enumerate() {
        let folder = tempfile::tempdir().unwrap();
        let path = scripted(folder.path(), |experiment| {
            experiment.credit = credit;
            if number % 2 == 1 {
                experiment.rollout.context = RolloutContext::Deployed;
            }
        });
        let compared = reproduces(&mut loaded(&path));
        assert!(compared > 50, "settings {number}: {compared}");
    }
}

#[test]
fn what_was_not_scored_is_refused_and_never_guessed() {
    let folder = tempfile::tempdir().unwrap();
    let path = scripted(folder.path(), |experiment| {
        experiment.credit = CreditSettings::mempo();
    });
    let mut run = loaded(&path);
    let recorded = recorded_settings(&run).unwrap();
    let inputs = inputs(&mut run, 0).unwrap();
    let scope = Scope {
        recorded: &recorded,
        state: &MemoryCreditState::default(),
    };
    let previous = CreditSettings {
        target: palimpsest::experiment::Target::MinusPrevious,
        ..recorded
    };
    let refused = recompute(&inputs, &previous, &scope)
        .unwrap_err()
        .to_string();
    assert!(refused.contains("was not scored"), "{refused}");
    // Another threshold needs no other context.
    let threshold = CreditSettings {
        threshold: Threshold::Off,
        ..recorded
    };
    recompute(&inputs, &threshold, &scope).unwrap();
}

#[test]
fn a_group_that_was_not_kept_whole_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = scripted(folder.path(), |experiment| {
        experiment.record.trajectories = 2;
    });
    let refused = inputs(&mut loaded(&path), 0).unwrap_err().to_string();
    assert!(refused.contains("holds 2 of 4 rollouts"), "{refused}");
}

#[test]
fn equal_rewards_give_no_signal_and_the_reset_brings_it_back() {
    let mut harness = window(&[]);
    show(&mut harness, Tab::Lesson);
    click(&mut harness, "none: all get the same");
    assert!(all_text(&harness).contains("The mean reward is"));
    click(&mut harness, "Make all rewards equal");
    assert!(
        all_text(&harness).contains("No spread, no signal"),
        "{}",
        all_text(&harness)
    );
    press(&mut harness, Key::R);
    assert!(!all_text(&harness).contains("No spread, no signal"));
}

#[test]
fn a_finished_run_opens_as_a_lesson() {
    let folder = tempfile::tempdir().unwrap();
    let run = scripted(folder.path(), |_| {});
    let mut harness = window(&[&run]);
    harness.state_mut().world.lesson = Some(String::new());
    show(&mut harness, Tab::Lesson);
    let text = all_text(&harness);
    assert!(text.contains("Lesson on scripted"), "{text}");
    assert!(text.contains("One reward for everybody"));
}

#[test]
fn a_wrong_name_of_a_lesson_is_answered_with_the_right_ones() {
    let refused = LessonRecord::named("nonsense").err().unwrap().to_string();
    assert!(refused.contains("two-notes"), "{refused}");
}

#[test]
fn a_guess_holds_for_what_it_was_made_of_and_nothing_else() {
    let mut harness = lesson("two-notes");
    for station in STATIONS {
        click(&mut harness, station);
        assert!(asks(&harness), "{station}");
        let first = label(&harness, "#");
        answer(&mut harness);
        press(&mut harness, Key::M);
        asks(&harness);
        press(&mut harness, Key::M);
        asks(&harness);
        press(&mut harness, Key::M);
        // The third group is the first again, and perhaps another rollout of it.
        let again = all_text(&harness);
        assert!(
            again.contains("As you said.") || again.contains("Not so."),
            "{station} {first}"
        );
    }
    click(&mut harness, "6 Bug");
    for piece in &PIECES[1..] {
        click(&mut harness, piece);
        assert!(asks(&harness), "{piece}");
    }
}

#[test]
fn what_is_moved_in_one_station_changes_nothing_in_another() {
    let folder = tempfile::tempdir().unwrap();
    // As in quickstart: the first notes are not scored.
    let run = scripted(folder.path(), |experiment| {
        experiment.credit = CreditSettings::mempo_prob();
    });
    let mut harness = window_of([1500.0, 3000.0], &[&run]);
    press(&mut harness, Key::Num5);
    assert!(
        all_text(&harness).contains("Lesson on scripted"),
        "{}",
        all_text(&harness)
    );
    click(&mut harness, "2 Two");
    if asks(&harness) {
        answer(&mut harness);
    }
    let before = all_text(&harness);
    click(&mut harness, "4 Credit");
    assert!(asks(&harness), "{}", all_text(&harness));
    answer(&mut harness);
    for choice in [
        "pay the difference to the notes before",
        "pay the difference to the full",
    ] {
        click(&mut harness, choice);
        let text = all_text(&harness);
        assert!(!text.contains("cannot be worked out"), "{text}");
        assert!(text.contains("The rewards add up to"), "{text}");
    }
    // What nobody scored is not offered, and the station names the setting.
    assert!(all_text(&harness).contains("credit.first: minus_empty scores empty notes"));
    click(&mut harness, "2 Two");
    assert_eq!(
        all_text(&harness).contains("each token gets"),
        before.contains("each token gets")
    );
}

#[test]
fn any_run_has_a_question_or_a_reason_in_every_station() {
    let settings = [
        (CreditSettings::grpo(), RolloutContext::Full),
        (CreditSettings::mempo(), RolloutContext::Deployed),
        (CreditSettings::himpo(), RolloutContext::Full),
        (CreditSettings::per_answer(), RolloutContext::Full),
        (
            CreditSettings {
                estimator: Estimator::ReinforcePlusPlus(1.0),
                ..CreditSettings::mempo_prob()
            },
            RolloutContext::Full,
        ),
    ];
    for (number, (credit, context)) in settings.into_iter().enumerate() {
        let folder = tempfile::tempdir().unwrap();
        let run = scripted(folder.path(), |experiment| {
            experiment.credit = credit;
            experiment.rollout.context = context;
        });
        let mut harness = window_of([1500.0, 3000.0], &[&run]);
        press(&mut harness, Key::Num5);
        for station in STATIONS {
            click(&mut harness, station);
            if asks(&harness) {
                answer(&mut harness);
                let text = all_text(&harness);
                assert!(!text.contains("NaN"), "{number} {station}: {text}");
                assert!(
                    !text.contains("cannot be worked out"),
                    "{number} {station}: {text}"
                );
            } else {
                assert!(station != "1 One", "{number}: {}", all_text(&harness));
            }
        }
        if credit.threshold == Threshold::Off && !credit.memory {
            click(&mut harness, "2 Two");
            assert!(all_text(&harness).contains("scored no notes"));
        }
    }
}

#[test]
fn colours_keep_their_scale_and_two_settings_stand_side_by_side() {
    let mut harness = lesson("two-notes");
    answer(&mut harness);
    let scale = label(&harness, "Scale from");
    assert!(!scale.is_empty());
    press(&mut harness, Key::A);
    click(&mut harness, "Make all rewards equal");
    assert_eq!(label(&harness, "Scale from"), scale);
    let text = all_text(&harness);
    for title in ["A: One rollout", "B: One rollout", "A less B"] {
        assert!(text.contains(title), "{title}: {text}");
    }
    let strongest = |harness: &Harness<'_, Window>| -> Vec<f64> {
        let lines = labels(harness, Role::ListItem);
        let of = lines.iter().filter(|line| line.contains("mean weight"));
        of.map(|line| numbers(between(line, "mean weight ", ","))[0])
            .collect()
    };
    let values = strongest(&harness);
    let third = values.len() / 3;
    for line in 0..third {
        let (a, b, less) = (values[line], values[third + line], values[2 * third + line]);
        assert!((a - b - less).abs() < 0.011, "{a} {b} {less}");
    }
    assert!(values[third..].iter().any(|value| value.abs() > 0.1));
    press_with(&mut harness, Modifiers::SHIFT, Key::A);
    assert_eq!(strongest(&harness)[..third], values[third..2 * third]);
    press(&mut harness, Key::A);
    assert!(!all_text(&harness).contains("A less B"));
    // The pointer over a token shows its numbers.
    let line = harness
        .root()
        .children_recursive()
        .find(|node| {
            node.accesskit_node()
                .label()
                .is_some_and(|of| of.contains("mean weight"))
        })
        .map(|node| node.rect())
        .unwrap();
    let at = eframe::egui::pos2(line.left() + 116.0, line.center().y);
    harness.event(eframe::egui::Event::PointerMoved(at));
    harness.run_steps(3);
    let text = all_text(&harness);
    assert!(
        text.contains("= outcome ") && text.contains(", push "),
        "{text}"
    );
}

#[test]
fn without_an_answer_nothing_is_saved_or_copied_and_the_panel_says_so() {
    let mut harness = lesson("late");
    press_with(&mut harness, Modifiers::COMMAND, Key::S);
    let text = all_text(&harness);
    assert!(
        text.contains("answer the question of the station first"),
        "{text}"
    );
    assert!(!text.contains("Saved"), "{text}");
    press(&mut harness, Key::A);
    assert!(!all_text(&harness).contains("Forget B"));
}

#[test]
fn the_lesson_is_on_the_run_that_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    let run = sample(folder.path(), 2);
    let mut harness = window(&[&run]);
    press(&mut harness, Key::Num5);
    let text = all_text(&harness);
    assert!(text.contains("Lesson on "), "{text}");
    // A lesson that was asked for by its name stays.
    harness.state_mut().world.lesson = Some("late".into());
    harness.run_steps(3);
    assert!(!all_text(&harness).contains("Lesson on "));
}

#[test]
fn a_run_of_a_newer_schema_says_so_in_the_lesson_too() {
    let folder = tempfile::tempdir().unwrap();
    let line = r#"{"seq":0,"kind":"run_started","schema":9,"name":"a","seed":0,"version":"7.0.0","experiment":"x"}"#;
    std::fs::write(folder.path().join("events.jsonl"), format!("{line}\n")).unwrap();
    let mut harness = window(&[folder.path()]);
    press(&mut harness, Key::Num5);
    let text = all_text(&harness);
    assert!(text.contains("palimpsest 7.0.0 or later"), "{text}");
    assert!(!text.contains("training rollouts"), "{text}");
}

#[test]
fn a_folder_without_a_record_is_answered_with_what_it_lacks() {
    let folder = tempfile::tempdir().unwrap();
    let name = folder.path().to_str().unwrap();
    let refused = LessonRecord::named(name).err().unwrap().to_string();
    assert!(refused.contains("events.jsonl is missing"), "{refused}");
}
