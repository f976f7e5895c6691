//! What leaves the window: tables as CSV, pictures as PNG.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use eframe::egui::{ColorImage, Context, ScreenshotCallback, ViewportCommand};

use super::app::Panels;
use super::world::{Tab, World};
use super::{GuiError, Value};

/// The table of the shown panel: a name for its file, and CSV.
///
/// # Errors
/// Why there is none, for the user.
pub fn table(panels: &mut Panels, world: &mut World) -> Result<(&'static str, String), String> {
    match world.tab {
        Tab::Watch => Ok(("rollouts", rollouts(world)?)),
        Tab::Tokens => Ok(("tokens", tokens(world)?)),
        Tab::Memory => Ok(("memory", memory(world)?)),
        Tab::Curves => Ok(("curves", panels.curves.table(world))),
        Tab::Lesson => Ok(("lesson", panels.lesson.table()?)),
        Tab::WhatIf => Ok(("what-if", panels.whatif.table())),
    }
}

/// Saves the shown panel as a table, and asks for its picture. Both lie in the current folder: a run
/// folder may be read-only.
pub fn panel(panels: &mut Panels, world: &mut World, context: &Context) {
    let (name, csv) = match table(panels, world) {
        Ok(table) => table,
        Err(why) => return world.say(why),
    };
    let of = world.run().map_or("lesson".into(), super::run::Run::name);
    let stem = free(&format!("{of}-{name}"));
    let written = write(&stem.with_extension("csv"), csv.as_bytes());
    let picture = stem.with_extension("png");
    let target = picture.clone();
    context.send_viewport_cmd(ViewportCommand::Screenshot(ScreenshotCallback::new(
        move |image: Arc<ColorImage>| {
            if let Err(error) = write_png(&target, &image) {
                tracing::error!("{error}");
            }
        },
    )));
    context.request_repaint();
    match written {
        Ok(()) => world.say(format!(
            "Saved {} and .png",
            stem.with_extension("csv").display()
        )),
        Err(error) => world.say(error.to_string()),
    }
}

/// A name that no file has yet.
fn free(stem: &str) -> PathBuf {
    let taken = |stem: &Path| {
        ["csv", "png"]
            .iter()
            .any(|end| stem.with_extension(end).exists())
    };
    let mut path = PathBuf::from(stem);
    let mut number = 2;
    while taken(&path) {
        path = PathBuf::from(format!("{stem}-{number}"));
        number += 1;
    }
    path
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), GuiError> {
    std::fs::write(path, bytes).map_err(|error| GuiError::Write {
        path: path.to_path_buf(),
        why: error.to_string(),
    })
}

/// Writes a picture.
///
/// # Errors
/// [`GuiError::Write`].
pub fn write_png(path: &Path, image: &ColorImage) -> Result<(), GuiError> {
    let refused = |why: String| GuiError::Write {
        path: path.to_path_buf(),
        why,
    };
    let [width, height] = image.size.map(|side| side as u32);
    let bytes: Vec<u8> = image
        .pixels
        .iter()
        .flat_map(eframe::egui::Color32::to_array)
        .collect();
    let picture = image::RgbaImage::from_raw(width, height, bytes)
        .ok_or_else(|| refused("the picture has another size than its pixels".into()))?;
    picture
        .save_with_format(path, image::ImageFormat::Png)
        .map_err(|error| refused(error.to_string()))
}

fn rollouts(world: &World) -> Result<String, String> {
    let run = world.run().ok_or("No run is open")?;
    let id = world.selection.id;
    let mut text = String::from("step,group,rollout,turns,reward,em,f1,outcome_advantage\n");
    for id in run.members(id.purpose, id.step, None) {
        let Some(of) = run.view.trajectories.get(&id) else {
            continue;
        };
        let outcome = of.outcome.unwrap_or_default();
        let advantage = of
            .outcome_advantage
            .map_or(String::new(), |a| a.to_string());
        text.push_str(&format!(
            "{},{},{},{},{},{},{},{advantage}\n",
            id.step + 1,
            id.group,
            id.member,
            of.turns.len(),
            outcome.reward,
            outcome.em,
            outcome.f1,
        ));
    }
    Ok(text)
}

fn tokens(world: &mut World) -> Result<String, String> {
    let id = world.selection.id;
    let run = world.run_mut().ok_or("No run is open")?;
    let document = run.document(id)?;
    let names: Vec<&str> = Value::ALL.iter().map(|value| value.text()).collect();
    let mut text = format!("token,id,text,turn,sampled,{}\n", names.join(","));
    for token in 0..document.len() {
        let segment = document
            .segment_of(token)
            .and_then(|at| document.segments.get(at));
        let values: Vec<String> = Value::ALL
            .iter()
            .map(|value| match value.known(&document) {
                true => value.at(&document, token).to_string(),
                false => String::new(),
            })
            .collect();
        text.push_str(&format!(
            "{token},{},\"{}\",{},{},{}\n",
            document.ids.get(token).copied().unwrap_or(0),
            document
                .text(token)
                .replace('"', "\"\"")
                .replace('\n', "\\n"),
            segment.map_or(0, |of| of.turn),
            document.mask.get(token).copied().unwrap_or(false),
            values.join(","),
        ));
    }
    Ok(text)
}

fn memory(world: &World) -> Result<String, String> {
    let of = world.trajectory().ok_or("No trajectory is selected")?;
    let mut text = String::from("turn,p_memory,p_full,p_previous,p_empty,reward,advantage\n");
    for round in &of.memory {
        let cell = |value: Option<f32>| value.map_or(String::new(), |value| value.to_string());
        text.push_str(&format!(
            "{},{},{},{},{},{},{}\n",
            round.turn,
            round.p_memory,
            cell(round.p_full),
            cell(round.p_previous),
            cell(round.p_empty),
            round.reward,
            round.advantage,
        ));
    }
    Ok(text)
}
