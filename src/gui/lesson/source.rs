//! Where a lesson comes from: a lesson that ships, or the run that is shown.

use std::path::PathBuf;

use super::bench::Bench;
use super::record::LessonRecord;
use crate::gui::run::{Health, Run};
use crate::gui::world::World;
use crate::trajectory::Purpose;

/// What lies on the table, or why nothing does.
pub struct Opened {
    /// What it is called.
    pub title: String,
    /// The step.
    pub bench: Result<Bench, String>,
    of: Of,
}

/// What a lesson was made of.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Of {
    /// A lesson that ships, asked for by its name.
    Named,
    /// The first lesson that ships, for want of a run.
    First,
    /// A run, and how much of it had been read.
    Run(PathBuf, u64),
}

impl Opened {
    /// Opens what is asked for: a lesson by its name, or (an empty name) the run that is shown, and the
    /// first lesson if none is.
    #[must_use]
    pub fn new(name: &str, world: &mut World) -> Self {
        let id = world.selection.id;
        if name.is_empty()
            && let Some(run) = world.run_mut()
        {
            let step = match id.purpose {
                Purpose::Train => id.step,
                Purpose::Evaluate => last_step(run),
            };
            let of = Of::Run(run.path.clone(), run.revision);
            let title = format!("Lesson on {}, step {}", run.name(), step + 1);
            let bench = match &run.health {
                Health::Refused(why) => Err(why.clone()),
                _ => Bench::new(run, step).map_err(|error| error.to_string()),
            };
            return Self { title, bench, of };
        }
        let found = LessonRecord::named(name);
        let title = found
            .as_ref()
            .map_or(String::new(), |record| record.title.to_owned());
        let bench = found
            .and_then(LessonRecord::open)
            .and_then(|mut run| {
                let step = last_step(&run);
                Bench::new(&mut run, step)
            })
            .map_err(|error| error.to_string());
        let of = if name.is_empty() {
            Of::First
        } else {
            Of::Named
        };
        Self { title, bench, of }
    }

    /// What should be opened in place of this: another run is shown than it was made of, or more of a run
    /// has been read that was not enough.
    #[must_use]
    pub fn stale(&self, world: &World) -> bool {
        let Some(run) = world.run() else { return false };
        match &self.of {
            Of::Named => false,
            Of::First => true,
            Of::Run(path, revision) => {
                *path != run.path || self.bench.is_err() && *revision != run.revision
            }
        }
    }
}

/// The last training step that has credit.
fn last_step(run: &Run) -> u32 {
    let steps = run.steps();
    let credited = |(purpose, step): &&(Purpose, u32)| {
        let first = run.members(*purpose, *step, None).first().copied();
        let of = first.and_then(|id| run.view.trajectories.get(&id));
        *purpose == Purpose::Train && of.is_some_and(|of| of.outcome_advantage.is_some())
    };
    let last = steps.iter().rev().find(credited);
    last.map_or(0, |(_, step)| *step)
}
