//! The lessons that ship with the program: steps of the project's own runs. `scripts/make_lessons.py`
//! records them.

use crate::gui::GuiError;
use crate::gui::run::Run;

/// A recorded lesson: the four files of a run folder, cut to one step.
pub struct LessonRecord {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is about.
    pub title: &'static str,
    events: &'static str,
    tokens: &'static [u8],
    vocabulary: &'static str,
    experiment: &'static str,
}

macro_rules! lesson {
    ($name:literal, $title:literal) => {
        LessonRecord {
            name: $name,
            title: $title,
            events: include_str!(concat!("../../../assets/lessons/", $name, "/events.jsonl")),
            tokens: include_bytes!(concat!("../../../assets/lessons/", $name, "/tokens.bin")),
            vocabulary: include_str!("../../../assets/lessons/vocab.json"),
            experiment: include_str!(concat!(
                "../../../assets/lessons/",
                $name,
                "/experiment.ron"
            )),
        }
    };
}

/// Every lesson, the first to learn first.
const LESSONS: [LessonRecord; 2] = [
    lesson!("two-notes", "Two notes of one rollout (early in training)"),
    lesson!("late", "The same run later: notes that carry facts along"),
];

/// Name and title of every lesson.
pub fn lesson_names() -> impl Iterator<Item = (&'static str, &'static str)> {
    LESSONS.iter().map(|lesson| (lesson.name, lesson.title))
}

impl LessonRecord {
    /// The lesson of a name; the first for an empty one.
    ///
    /// # Errors
    /// [`GuiError::NoLesson`]; [`GuiError::NoRun`] for a folder, of which only runs can be lessons.
    pub fn named(name: &str) -> Result<&'static Self, GuiError> {
        let found = LESSONS
            .iter()
            .find(|lesson| name.is_empty() || lesson.name == name);
        found.ok_or_else(|| {
            let known: Vec<&str> = LESSONS.iter().map(|lesson| lesson.name).collect();
            let known = known.join(", ");
            let path = std::path::PathBuf::from(name);
            if path.is_dir() {
                return GuiError::NoRun { path, known };
            }
            GuiError::NoLesson {
                name: name.to_owned(),
                known,
            }
        })
    }

    /// Its record as a run.
    ///
    /// # Errors
    /// [`GuiError::Asset`]; a test rules it out.
    pub fn open(&self) -> Result<Run, GuiError> {
        Run::embedded(
            self.name,
            self.events,
            self.tokens,
            self.vocabulary,
            self.experiment,
        )
        .map_err(|why| GuiError::Asset {
            name: "assets/lessons",
            why,
        })
    }
}
