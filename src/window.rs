//! The modes with a window: watching, lessons, and training beside one.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc;

use anyhow::{Context as _, anyhow};
use palimpsest::gui::{Live, Open, Picture, Tab, ThemePreference, open};
use palimpsest::run::Controls;
use palimpsest::tools::Interrupts;
use palimpsest::trajectory::TrajectoryId;

use crate::arguments::{Train, WindowArguments};
use crate::commands::{self, Beside};

/// `palimpsest watch RUN...`.
pub fn watch(runs: Vec<PathBuf>, arguments: &WindowArguments) -> anyhow::Result<ExitCode> {
    let mut with = opening(arguments)?;
    with.runs = runs;
    open(with)?;
    Ok(ExitCode::SUCCESS)
}

/// `palimpsest lesson [NAME]`.
pub fn lesson(name: Option<String>, arguments: &WindowArguments) -> anyhow::Result<ExitCode> {
    let mut with = opening(arguments)?;
    let name = name.unwrap_or_default();
    if Path::new(&name).join("events.jsonl").is_file() {
        with.runs = vec![name.into()];
        with.lesson = Some(String::new());
    } else {
        // A wrong name is better told here than in a window.
        palimpsest::gui::LessonRecord::named(&name)?;
        with.lesson = Some(name);
    }
    open(with)?;
    Ok(ExitCode::SUCCESS)
}

/// `palimpsest --experiment FILE --gui`: the run in a thread of its own, the window in this one, as
/// windows want it. The window may be closed and the run goes on; its end leaves the window open.
pub fn train_and_watch(arguments: Train) -> anyhow::Result<ExitCode> {
    let controls = Controls::default();
    let interrupts = Interrupts::default();
    let (sender, folder) = mpsc::channel();
    let beside = Beside {
        interrupts: interrupts.clone(),
        controls: Some(controls.clone()),
        folder: Some(sender),
    };
    let told = controls.clone();
    let run = std::thread::Builder::new()
        .name("simulation".into())
        .spawn(move || {
            let outcome = commands::train(&arguments, beside);
            told.end();
            outcome
        })
        .context("no thread could be started for the run")?;
    // Without a folder the run ended before it began, and its own error says why.
    let shown = folder.recv().map(|folder| {
        open(Open {
            runs: vec![folder],
            live: Some(Live::new(controls.clone(), interrupts)),
            ..Open::default()
        })
    });
    if let Ok(Err(error)) = shown {
        tracing::warn!("{error}; the run goes on without a window");
    }
    // Nobody can end a pause any more once the window is closed.
    controls.set(palimpsest::run::Pace::Free);
    run.join().map_err(|_| anyhow!("the run panicked"))?
}

/// What the arguments say of the window.
fn opening(arguments: &WindowArguments) -> anyhow::Result<Open> {
    let tab = match &arguments.panel {
        None => None,
        Some(name) => Some(Tab::named(name).ok_or_else(|| {
            let known: Vec<String> = Tab::ALL
                .iter()
                .map(|tab| tab.text().to_lowercase())
                .collect();
            anyhow!(
                "--panel {name:?} is no panel; panels are {}",
                known.join(", ")
            )
        })?),
    };
    let theme = match arguments.theme.as_str() {
        "light" => ThemePreference::Light,
        "dark" => ThemePreference::Dark,
        "system" => ThemePreference::System,
        other => {
            return Err(anyhow!(
                "--theme {other:?} is no theme; use light, dark or system"
            ));
        }
    };
    let size = arguments.size.as_deref().map(size).transpose()?;
    let at = arguments.at.as_deref().map(place).transpose()?;
    let picture = arguments.screenshot.clone().map(|path| Picture { path });
    Ok(Open {
        tab,
        theme,
        size,
        picture,
        at,
        ..Open::default()
    })
}

/// `4` or `4/2/0` as a training rollout.
fn place(text: &str) -> anyhow::Result<TrajectoryId> {
    let bad = || {
        anyhow!("--at {text:?} is no place; write it as 4 (a step) or 4/2/0 (step, group, rollout)")
    };
    let numbers: Option<Vec<u32>> = text.split('/').map(|part| part.parse().ok()).collect();
    match numbers.ok_or_else(bad)?[..] {
        [step, ref rest @ ..] if step > 0 && rest.len() < 3 => Ok(TrajectoryId {
            step: step - 1,
            group: rest.first().copied().unwrap_or(0),
            member: rest.get(1).copied().unwrap_or(0),
            ..TrajectoryId::default()
        }),
        _ => Err(bad()),
    }
}

/// `1400x900` as two numbers.
fn size(text: &str) -> anyhow::Result<(f32, f32)> {
    let bad = || anyhow!("--size {text:?} is no size; write it as 1400x900, at least 480x360");
    let (width, height) = text.split_once('x').ok_or_else(bad)?;
    let number = |text: &str| text.parse::<f32>().ok().filter(|side| side.is_finite());
    let (width, height) = (
        number(width).ok_or_else(bad)?,
        number(height).ok_or_else(bad)?,
    );
    if width < 480.0 || height < 360.0 {
        return Err(bad());
    }
    Ok((width, height))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_count_steps_from_one() {
        let of = |text| place(text).map(|id| (id.step, id.group, id.member));
        assert_eq!(of("4").unwrap(), (3, 0, 0));
        assert_eq!(of("4/2/1").unwrap(), (3, 2, 1));
        for bad in ["0", "a", "1/2/3/4", ""] {
            assert!(of(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_are_read_and_bad_ones_are_named() {
        assert_eq!(size("1400x900").unwrap(), (1400.0, 900.0));
        for bad in ["1400", "ax900", "1x1", "NaNx900"] {
            assert!(size(bad).unwrap_err().to_string().contains(bad));
        }
    }
}
