//! The window, by roles and labels: what a test finds here, a screen reader finds too.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

#[path = "../common/mod.rs"]
mod common;
#[path = "../sample_run/mod.rs"]
mod sample_run;

mod commands;
mod cursor;
mod incomplete;
mod keyboard;
mod lessons;
mod live;
mod measures;
mod narrow;
mod panels;
mod pupil;
mod start;
mod stations;
mod support;
mod survival;
