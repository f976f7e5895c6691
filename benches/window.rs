//! What a frame of the window costs the processor, drawing by the graphics card left out: layout,
//! painting into shapes, the tree for screen readers, and tessellation.
//!
//! `cargo bench --bench window`. First 100,000 tokens that scroll, then a run of 500 steps.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

#[path = "../tests/common/mod.rs"]
mod common;

use std::path::Path;
use std::time::{Duration, Instant};

use eframe::egui::{Event, Modifiers, MouseWheelSource, MouseWheelUnit, TouchPhase, pos2, vec2};
use egui_kittest::Harness;
use palimpsest::gui::{Tab, ThemePreference, Window};
use palimpsest::record::{RecordWriter, RunFolder, RunStart, TokenBlock};
use palimpsest::trajectory::{Outcome, StopReason, TrajectoryId};

const TOKENS: usize = 100_000;
const STEPS: u32 = 500;
const FRAMES: usize = 300;

fn window(run: &Path) -> Harness<'static, Window> {
    let mut harness = Harness::builder()
        .with_size([1400.0, 900.0])
        .with_accessibility_check(false)
        .build_eframe(|creation| Window::new(&creation.egui_ctx, ThemePreference::Dark).unwrap());
    harness.state_mut().world.open(run);
    harness.state_mut().world.runs[0].settle(Duration::from_secs(600));
    harness.run_steps(3);
    harness
}

/// Milliseconds of frames while the wheel turns: median, and the 99th percentile.
fn frames(harness: &mut Harness<'static, Window>) -> (f64, f64) {
    let mut spent = Vec::new();
    harness.hover_at(pos2(700.0, 500.0));
    for frame in 0..FRAMES {
        harness.event(Event::MouseWheel {
            unit: MouseWheelUnit::Point,
            // Down through the document, and now and then far.
            delta: vec2(0.0, if frame % 50 == 49 { -20_000.0 } else { -60.0 }),
            phase: TouchPhase::Move,
            source: MouseWheelSource::Wheel,
            modifiers: Modifiers::NONE,
        });
        let began = Instant::now();
        harness.step();
        let shapes = harness.output().shapes.clone();
        let meshes = harness.ctx.tessellate(shapes, 1.0);
        spent.push(began.elapsed().as_secs_f64() * 1e3);
        std::hint::black_box(meshes);
    }
    spent.sort_by(f64::total_cmp);
    (spent[FRAMES / 2], spent[FRAMES * 99 / 100])
}

/// One trajectory of so many tokens, in two hundred turns.
fn write_tokens(folder: &Path) -> std::path::PathBuf {
    let run = RunFolder::create(folder, "tokens").unwrap();
    let words: Vec<String> = [
        "<mem>",
        "</mem>",
        "<think>",
        "</think>",
        "<answer>",
        "</answer>",
    ]
    .into_iter()
    .map(str::to_owned)
    .chain((0..2000).map(|number| format!(" w{}", number * 7919 % 100_003)))
    .collect();
    let start = RunStart {
        name: "tokens",
        seed: 0,
        experiment: "(name: \"tokens\")",
        vocabulary: &words,
        tensorboard: false,
    };
    let mut writer = RecordWriter::create(&run, &start).unwrap();
    let id = TrajectoryId::default();
    let mut block = TokenBlock {
        id,
        ..TokenBlock::default()
    };
    let turn = TOKENS / 200;
    for token in 0..TOKENS {
        let place = token % turn;
        block.ids.push(match place {
            0 => 0,
            80 => 1,
            81 => 2,
            120 => 3,
            121 => 4,
            place if place == turn - 1 => 5,
            place => 6 + (place * 31 + token / turn) as u32 % 2000,
        });
        block.turn.push((token / turn) as u32);
        block.mask.push(!place.is_multiple_of(5));
        let value = ((token * 37) % 200) as f32 / 100.0 - 1.0;
        let value = if !place.is_multiple_of(5) { value } else { 0.0 };
        block.sampled.push(-value.abs());
        block.learner.push(-value.abs());
        block.outcome.push(value);
        block.memory.push(0.0);
        block.kl.push(0.0);
        block.entropy.push(value.abs());
        block.weight.push(value);
    }
    let at = writer.append_tokens(&block).unwrap();
    let reason = StopReason::Answered;
    let outcome = Outcome::default();
    for event in [
        palimpsest::record::Event::TrajectoryTerminated {
            id,
            reason,
            outcome,
        },
        palimpsest::record::Event::CreditAssigned {
            id,
            outcome: 0.0,
            kl: 0.0,
            memory: Vec::new(),
            scores: Vec::new(),
            tokens: vec![at],
        },
    ] {
        writer.append(&event).unwrap();
    }
    writer.sync().unwrap();
    run.path().to_path_buf()
}

/// Resident memory of this process, MiB.
fn resident() -> f64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: f64 = text
        .split_whitespace()
        .nth(1)
        .and_then(|n| n.parse().ok())
        .unwrap_or(0.0);
    pages * 4096.0 / (1024.0 * 1024.0)
}

fn main() {
    let folder = tempfile::tempdir().unwrap();
    let run = write_tokens(folder.path());
    let mut harness = window(&run);
    harness.state_mut().world.tab = Tab::Tokens;
    let began = Instant::now();
    harness.run_steps(1);
    println!(
        "100,000 tokens, first frame: {:.1} ms",
        began.elapsed().as_secs_f64() * 1e3
    );
    let (median, worst) = frames(&mut harness);
    println!("100,000 tokens, scrolling: {median:.2} ms a frame, 99 % under {worst:.2} ms");
    drop(harness);

    let path = folder.path().join("long");
    let mut experiment = common::small_experiment();
    experiment.rollout.groups = 8;
    experiment.rollout.group_size = 16;
    experiment.learner.steps = STEPS;
    experiment.record.checkpoint_every = 0;
    let began = Instant::now();
    common::run(&path, experiment, common::Player::Careless, false);
    println!(
        "wrote {STEPS} steps in {:.1} s",
        began.elapsed().as_secs_f64()
    );
    let bytes: u64 = ["events.jsonl", "metrics.jsonl", "tokens.bin"]
        .iter()
        .map(|name| std::fs::metadata(path.join(name)).unwrap().len())
        .sum();
    let before = resident();
    let began = Instant::now();
    let mut harness = window(&path);
    let seconds = began.elapsed().as_secs_f64();
    let trajectories = harness.state().world.run().unwrap().view.trajectories.len();
    println!(
        "{STEPS} steps, {trajectories} rollouts, {:.0} MiB on disk: open in {seconds:.1} s, {:.0} MiB more memory",
        bytes as f64 / (1024.0 * 1024.0),
        resident() - before
    );
    for tab in [
        Tab::Watch,
        Tab::Tokens,
        Tab::Memory,
        Tab::Curves,
        Tab::WhatIf,
    ] {
        harness.state_mut().world.tab = tab;
        harness.run_steps(3);
        let (median, worst) = frames(&mut harness);
        println!(
            "{:>8}: {median:.2} ms a frame, 99 % under {worst:.2} ms",
            tab.text()
        );
    }
}
