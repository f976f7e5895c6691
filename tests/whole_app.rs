//! The whole application with the scripted engine: no libtorch, every system, real run folders.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::{Player, run, small_experiment};
use palimpsest::record::RunStatus;

#[test]
fn a_perfect_player_answers_everything_in_both_contexts() {
    let folder = tempfile::tempdir().unwrap();
    let done = run(
        &folder.path().join("run"),
        small_experiment(),
        Player::Perfect,
        false,
    );
    assert_eq!(done.status, RunStatus::Finished);
    let last: Vec<_> = done
        .evaluations
        .iter()
        .filter(|line| line.step == 2)
        .collect();
    assert_eq!(last.len(), 4);
    for line in last {
        assert_eq!(
            (line.em, line.f1, line.notes_recall),
            (1.0, 1.0, Some(1.0)),
            "{line:?}"
        );
    }
}

#[test]
fn a_forgetful_player_fails_only_where_it_is_deployed() {
    let folder = tempfile::tempdir().unwrap();
    let done = run(
        &folder.path().join("run"),
        small_experiment(),
        Player::Forgetful,
        false,
    );
    for line in done.evaluations {
        let deployed = line.context == palimpsest::experiment::ContextKind::Deployed;
        assert_eq!(line.em, if deployed { 0.0 } else { 1.0 }, "{line:?}");
        assert_eq!(line.notes_recall, Some(0.0));
    }
}

#[test]
fn two_runs_of_one_seed_write_the_same_events_and_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let paths = ["a", "b", "shuffled"].map(|name| folder.path().join(name));
    for (number, path) in paths.iter().enumerate() {
        run(path, small_experiment(), Player::Careless, number == 2);
    }
    for file in ["events.jsonl", "tokens.bin"] {
        let bytes = paths
            .each_ref()
            .map(|path| std::fs::read(path.join(file)).unwrap());
        assert!(!bytes[0].is_empty());
        assert_eq!(bytes[0], bytes[1], "{file} of a second run");
        assert_eq!(
            bytes[0], bytes[2],
            "{file} with plugins registered in another order"
        );
    }
}

#[test]
fn one_or_many_in_flight_give_the_same_trajectories() {
    let folder = tempfile::tempdir().unwrap();
    let mut all = Vec::new();
    for in_flight in [1, 3, 64] {
        let mut experiment = small_experiment();
        experiment.rollout.in_flight = in_flight;
        let done = run(
            &folder.path().join(in_flight.to_string()),
            experiment,
            Player::Careless,
            false,
        );
        all.push(done.turns);
    }
    assert!(!all[0].is_empty());
    assert_eq!(all[0], all[1]);
    assert_eq!(all[0], all[2]);
}

#[test]
fn free_running_gives_the_same_trajectories_as_lockstep() {
    let folder = tempfile::tempdir().unwrap();
    let mut all = Vec::new();
    for lockstep in [true, false] {
        let mut experiment = small_experiment();
        experiment.rollout.lockstep = lockstep;
        all.push(
            run(
                &folder.path().join(lockstep.to_string()),
                experiment,
                Player::Careless,
                false,
            )
            .turns,
        );
    }
    assert_eq!(all[0], all[1]);
}
