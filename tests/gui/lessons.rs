//! Lessons and what-if: the numbers are the learner's.

use eframe::egui::Key;
use palimpsest::credit::memory::MemoryCreditState;
use palimpsest::experiment::{Baseline, CreditSettings, Estimator, Threshold};
use palimpsest::gui::{
    LessonRecord, Run, Scope, Tab, inputs, lesson_names, recompute, recorded_settings, state_before,
};
use palimpsest::trajectory::Purpose;

use crate::support::{all_text, click, press, scripted, show, window};

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
                experiment.rollout.context = palimpsest::experiment::RolloutContext::Deployed;
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
fn every_station_asks_first_and_then_shows_its_numbers() {
    let mut harness = window(&[]);
    show(&mut harness, Tab::Lesson);
    for (title, option, after) in [
        (
            "1 One",
            "none: all get the same",
            "advantage of every token",
        ),
        ("2 Two", "those of turn", "each token gets"),
        ("3 The", "some rewards", "answer tokens given the notes"),
        ("4 Credit", "the difference,", "pay P(answer | notes)"),
        ("5 The", "yes", "drift"),
        ("6 Bug", "most of them", "as it was published"),
    ] {
        click(&mut harness, title);
        let text = all_text(&harness);
        assert!(text.contains("Predict first"), "{title}: {text}");
        assert!(!text.contains(after), "{title} shows {after:?} too early");
        click(&mut harness, option);
        let text = all_text(&harness);
        assert!(text.contains(after), "{title}: {text}");
        assert!(
            text.contains("As you said.") || text.contains("Not so."),
            "{title}"
        );
        assert!(!text.contains("cannot be worked out"), "{title}: {text}");
    }
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
