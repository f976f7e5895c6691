//! The stations of the lessons: every sentence is held against the record, by what the panel says through
//! its accessibility tree.

use eframe::egui::{Key, Role};
use egui_kittest::Harness;
use palimpsest::experiment::{Baseline, CreditSettings};
use palimpsest::gui::{Window, lesson_names};

use crate::pupil::{PIECES, Step, answer, asks, between, everywhere, label, lesson, numbers, read};
use crate::support::{all_text, click, labels, press, scripted, window_of};

#[test]
fn under_grpo_every_token_of_a_rollout_has_the_number_that_is_said() {
    for (name, _) in lesson_names() {
        let asked = everywhere(name, "1 One", |step, group, at, verdict, text| {
            assert!(verdict.contains("one number"), "{verdict}");
            let settings = CreditSettings {
                memory: false,
                ..step.recorded
            };
            let made = &step.under(settings, group)[at];
            let said = numbers(between(
                between(text, "The mean reward is ", " on every token"),
                " gets ",
                "!",
            ))[0];
            let mut trained = 0;
            for (block, credit) in step.inputs.groups[group][at]
                .blocks
                .iter()
                .zip(&made.credit)
            {
                for (_, weight) in block.mask.iter().zip(&credit.weight).filter(|(on, _)| **on) {
                    assert!((f64::from(*weight) - said).abs() < 0.006, "{weight} {said}");
                    trained += 1;
                }
            }
            assert!(trained > 5);
            // Notes are only told apart where they do differ.
            let notes = text.contains("From the notes that");
            if notes {
                let found = numbers(between(text, "From the notes that", "Under GRPO"));
                assert!((found[2] - found[4]).abs() > 0.005, "{text}");
            }
            let rounds = &step.inputs.groups[group][at].memory;
            let low = rounds.iter().map(|of| of.p_memory).fold(1.0, f32::min);
            assert_eq!(notes, rounds.iter().any(|of| of.p_memory - low >= 0.01));
        });
        assert!(asked > 10, "{name}: {asked}");
    }
}

#[test]
fn notes_are_said_to_be_paid_more_only_where_they_are() {
    let (mut better, mut worse) = (0, 0);
    for (name, _) in lesson_names() {
        everywhere(name, "2 Two", |step, group, at, verdict, text| {
            let rounds = &step.inputs.groups[group][at].memory;
            let of = |turn: f64| rounds.iter().find(|of| f64::from(of.turn) == turn).unwrap();
            let near = |a: f32, b: f64| (f64::from(a) - b).abs() < 6e-4;
            assert!(verdict.contains("memory part"), "{verdict}");
            if let Some((before, _)) =
                text.split_once(": of these two, those that tell more are paid more")
            {
                let at = before.rfind("The notes of turn").unwrap();
                let [more, p, by, less, q] = numbers(&before[at..])[..] else {
                    panic!("{before}");
                };
                assert!(p > q && by > 0.0, "{before}");
                assert!(near(of(more).p_memory, p) && near(of(less).p_memory, q));
                let apart = of(more).advantage - of(less).advantage;
                assert!((f64::from(apart) - by).abs() < 2e-3, "{before}");
                better += 1;
            }
            if let Some((before, after)) = text.split_once(", though they tell more") {
                let at = before.rfind("he notes of turn").unwrap();
                let at = before[..at].rfind("he notes of turn").unwrap();
                let [less, p, more, q] = numbers(&before[at..])[..] else {
                    panic!("{before}");
                };
                assert!(p > q, "{before}");
                assert!(of(less).advantage < of(more).advantage, "{before}");
                // The reason is what they are compared with, and the subtraction is written out.
                assert!(of(less).reward < of(more).reward);
                let sums = after.split_once("What counts is the reward: ").unwrap().1;
                let [p, q, reward, ..] = numbers(sums)[..] else {
                    panic!("{sums}");
                };
                assert!((p - q - reward).abs() < 2e-3, "{sums}");
                worse += 1;
            }
            // Nobody has to guess what a reward was made of.
            for round in rounds.iter().filter(|round| round.turn > 0) {
                let cell = format!("{:.3} from the full history", round.p_full.unwrap());
                assert!(text.contains(&cell), "{cell}: {text}");
            }
        });
    }
    assert!(better > 10 && worse > 5, "{better} {worse}");
}

#[test]
fn every_lesson_starts_with_better_notes_that_are_paid_more() {
    for (name, _) in lesson_names() {
        let mut harness = lesson(name);
        click(&mut harness, "2 Two");
        answer(&mut harness);
        let text = all_text(&harness);
        assert!(
            text.contains("those that tell more are paid more"),
            "{name}: {text}"
        );
    }
}

#[test]
fn the_threshold_leaves_less_than_a_fifth_of_the_rewards_of_every_lesson() {
    for (name, _) in lesson_names() {
        let asked = everywhere(name, "3 The", |step, group, _, verdict, text| {
            // By hand, from the log-probs: the geometric mean, over all tokens and over those above 0.5.
            let value = |logprobs: &[f32], floor: f64| {
                let kept: Vec<f64> = logprobs
                    .iter()
                    .map(|lp| f64::from(*lp))
                    .filter(|lp| lp.exp() > floor)
                    .collect();
                if kept.is_empty() {
                    0.0
                } else {
                    (kept.iter().sum::<f64>() / kept.len() as f64).exp()
                }
            };
            let rounds = || {
                step.inputs.groups[group]
                    .iter()
                    .flat_map(|member| &member.scores)
            };
            let size = |floor: f64| {
                let rewards: Vec<f64> = rounds()
                    .map(|of| (value(&of.notes[0], floor) - value(&of.against[0], floor)).abs())
                    .collect();
                rewards.iter().sum::<f64>() / rewards.len() as f64
            };
            let (all, left) = (size(0.0), size(0.5));
            assert!(left < 0.2 * all, "{name}: {all} {left}");
            let said = numbers(between(verdict, "It goes from ", ". Of"));
            assert!(
                (said[0] - all).abs() < 1e-4 && (said[1] - left).abs() < 1e-4,
                "{verdict}"
            );
            // Both sides stay near 1; nothing is 0.
            let sides = numbers(between(verdict, "the values are ", " on average"));
            assert!(sides.iter().all(|side| *side > 0.95), "{verdict}");
            assert!(rounds().all(|of| value(&of.notes[0], 0.5) > 0.5));
            assert!(text.contains("blown up to full scale"), "{text}");
        });
        assert!(asked > 10, "{name}: {asked}");
    }
}

#[test]
fn a_threshold_is_read_in_both_contexts_where_it_is_meant_so() {
    let mut harness = lesson("two-notes");
    click(&mut harness, "3 The");
    answer(&mut harness);
    let counts = |harness: &Harness<'_, Window>| -> Vec<String> {
        let all = labels(harness, Role::Image);
        let bars = all
            .into_iter()
            .filter(|text| text.contains("answer tokens count"));
        bars.map(|text| between(&text, "", " answer tokens").to_owned())
            .collect()
    };
    let own = counts(&harness);
    assert!(own.chunks(2).any(|pair| pair[0] != pair[1]), "{own:?}");
    click(&mut harness, "answer tokens");
    click(&mut harness, "above it in either context");
    let union = counts(&harness);
    assert!(union.chunks(2).all(|pair| pair[0] == pair[1]), "{union:?}");
}

#[test]
fn what_was_handed_down_is_the_largest_that_a_rollout_was_handed() {
    for (name, _) in lesson_names() {
        everywhere(name, "4 Credit", |step, group, at, verdict, text| {
            let rounds = &step.inputs.groups[group][at].memory;
            let handed = rounds
                .array_windows()
                .map(|[a, b]| (a.p_memory, b.p_memory));
            let (before, after) = handed.max_by(|a, b| a.0.total_cmp(&b.0)).unwrap();
            let said = numbers(between(text, "the right answer had probability ", ". Paid"));
            assert!((said[0] - f64::from(before)).abs() < 6e-3, "{text}");
            assert!((said[1] - f64::from(after)).abs() < 6e-3, "{text}");
            assert!(verdict.contains("stood in the notes it was handed"));
            // Paid in full, what is carried along is paid again in every turn.
            let said = text.split_once("The rewards add up to ").unwrap().1;
            let [sum, last, ..] = numbers(said)[..] else {
                panic!("{said}");
            };
            let carried = said.contains("what is carried along is paid in every turn");
            assert_eq!(carried, sum > last, "{said}");
        });
        // All rollouts of the step, and not one that happens to be flat.
        let step = Step::named(name);
        let most = step.inputs.groups.iter().flatten().flat_map(|member| {
            let rounds = member.memory.array_windows();
            rounds.map(|[before, _]| before.p_memory)
        });
        let most = most.fold(0.0, f32::max);
        let mut harness = lesson(name);
        click(&mut harness, "4 Credit");
        let asked = label(&harness, "Before turn");
        let said = numbers(between(&asked, "had probability ", " from the notes"));
        assert!((said[0] - f64::from(most)).abs() < 6e-3, "{asked} {most}");
        answer(&mut harness);
        click(&mut harness, "pay the difference to the notes before");
        let text = all_text(&harness);
        assert!(text.contains("Nothing is paid twice."), "{text}");
    }
}

#[test]
fn what_is_said_of_a_baseline_holds_for_every_note_of_the_group() {
    let baselines = [
        ("mean of all rounds", Baseline::Pooled),
        ("mean of the same round", Baseline::PerRound),
        ("mean of the other rollouts", Baseline::LeaveOneOut),
        ("same round, 0 after the end", Baseline::Absorbing),
    ];
    for (name, _) in lesson_names() {
        let step = Step::named(name);
        let mut harness = lesson(name);
        click(&mut harness, "5 The");
        let mut checked = 0;
        for _ in 0..step.inputs.groups.len() {
            let group = step.shown(&harness);
            for (at, member) in step.inputs.groups[group].iter().enumerate() {
                click(&mut harness, &format!("#{} ", member.id.member));
                if !asks(&harness) {
                    assert!(member.memory.len() < 2, "{}", all_text(&harness));
                    continue;
                }
                answer(&mut harness);
                for (text, baseline) in baselines {
                    click(&mut harness, text);
                    let settings = CreditSettings {
                        baseline,
                        ..step.recorded
                    };
                    let was = step.under(settings, group);
                    let is = step.changed(settings, group, |members| {
                        members[at].scores.truncate(1);
                        members[at].memory.truncate(1);
                    });
                    let mut moved = [0.0f32; 2];
                    for (number, (was, is)) in was.iter().zip(&is).enumerate() {
                        for (turn, now) in &is.advantages.memory {
                            let before = was
                                .advantages
                                .memory
                                .iter()
                                .find(|of| of.0 == *turn)
                                .unwrap();
                            let by = (now - before.1).abs();
                            let side = usize::from(number != at);
                            moved[side] = moved[side].max(by);
                        }
                    }
                    let said = all_text(&harness);
                    let still = said.contains("keeps stay as they are.");
                    assert_eq!(still, moved[0] < 5e-4, "{text}: {moved:?} {said}");
                    let others = said.contains("Notes of other rollouts move by up to ");
                    assert_eq!(others, moved[1] >= 5e-4, "{text}: {moved:?} {said}");
                    if others {
                        let by = numbers(between(&said, "other rollouts move by up to ", " ("))[0];
                        assert!(
                            (by.abs() - f64::from(moved[1])).abs() < 1e-3,
                            "{by} {moved:?}"
                        );
                    }
                    if baseline == Baseline::Pooled && !still {
                        assert!(said.contains("biases the gradient"), "{said}");
                    }
                    let blamed = said.contains("verl #7244).");
                    assert_eq!(blamed, others && baseline == Baseline::PerRound, "{said}");
                    checked += 1;
                }
                click(&mut harness, "mean of all rounds");
            }
            press(&mut harness, Key::M);
        }
        assert!(checked > 40, "{name}: {checked}");
    }
}

#[test]
fn a_rollout_that_stops_stands_in_the_table_of_a_large_group_with_what_was_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let run = scripted(folder.path(), |experiment| {
        experiment.rollout.group_size = 14;
        experiment.credit = CreditSettings::mempo_prob();
    });
    let mut harness = window_of([1500.0, 3000.0], &[&run]);
    press(&mut harness, Key::Num5);
    click(&mut harness, "5 The");
    let mut seen = 0;
    for number in 9..14 {
        click(&mut harness, &format!("#{number} "));
        if !asks(&harness) {
            continue;
        }
        answer(&mut harness);
        let text = read(&harness);
        assert!(text.contains(&format!("#{number} (stops)")), "{text:?}");
        seen += 1;
    }
    assert!(seen > 0, "{}", all_text(&harness));
}

#[test]
fn each_piece_of_the_museum_has_a_question_and_shows_its_bug() {
    for (name, _) in lesson_names() {
        for piece in PIECES {
            let mut harness = lesson(name);
            click(&mut harness, "6 Bug");
            click(&mut harness, piece);
            assert!(asks(&harness), "{name} {piece}");
            answer(&mut harness);
            let lines = |harness: &Harness<'_, Window>| -> Vec<String> {
                let all = labels(harness, Role::ListItem);
                all.into_iter()
                    .filter(|line| line.starts_with("turn "))
                    .collect()
            };
            let right = lines(&harness);
            let said = label(&harness, "As it was published, ");
            let [changed, trained, silenced, turned, taught] = numbers(&said)[..] else {
                panic!("{said}");
            };
            assert!(changed <= trained && silenced + turned <= changed, "{said}");
            assert!(changed + taught > 0.0, "{name} {piece}: {said}");
            assert_eq!(taught > 0.0, piece == "The tool's words", "{said}");
            click(&mut harness, "as it was published");
            let published = lines(&harness);
            assert_ne!(right, published, "{name} {piece}");
            if piece == "The tool's words" {
                let trained = |lines: &[String]| {
                    let of =
                        |line: &&String| line.contains("context") && line.contains("mean weight");
                    lines.iter().filter(of).count()
                };
                assert_eq!(trained(&right), 0, "{right:?}");
                assert!(trained(&published) > 0, "{published:?}");
            }
        }
    }
}

#[test]
fn the_stations_on_stopping_and_on_the_turn_index_agree() {
    let mut harness = lesson("two-notes");
    click(&mut harness, "5 The");
    answer(&mut harness);
    click(&mut harness, "mean of the same round");
    let text = all_text(&harness);
    assert!(text.contains("verl #7244)"), "{text}");
    // And what was chosen there changes nothing here.
    click(&mut harness, "6 Bug");
    click(&mut harness, "Normalised by");
    answer(&mut harness);
    let said = label(&harness, "As it was published, ");
    assert!(numbers(&said)[0] > 0.0, "{said}");
}

#[test]
fn the_push_is_what_one_less_p_leaves_of_the_weights() {
    for (name, _) in lesson_names() {
        let asked = everywhere(name, "7 From", |step, group, at, verdict, text| {
            let member = &step.inputs.groups[group][at];
            let (mut weights, mut push) = (0.0, 0.0);
            for block in &member.blocks {
                for token in (0..block.ids.len()).filter(|token| block.mask[*token]) {
                    let weight = f64::from(block.weight[token].abs());
                    weights += weight;
                    push += weight * (1.0 - f64::from(block.learner[token]).exp());
                }
            }
            let said = numbers(verdict.trim_start_matches("As you said. "));
            assert!(
                (said[0] - push).abs() < 0.01 && (said[1] - weights).abs() < 0.06,
                "{verdict}"
            );
            let share = numbers(between(text, "1 - p leaves ", " %"))[0];
            assert!((share - 100.0 * push / weights).abs() < 0.6, "{share}");
        });
        assert!(asked > 10, "{name}: {asked}");
    }
}
