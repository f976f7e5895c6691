//! The program itself, started under Xvfb: window up, run opened, a picture of every panel.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::support::{sample, scripted};

/// A virtual screen; ends with the test.
struct Screen {
    server: Child,
    display: String,
}

impl Screen {
    /// Starts one on a free number. None where there is no Xvfb; in CI that is an error.
    fn start() -> Option<Self> {
        let read_display = || {
            let mut server = Command::new("Xvfb")
                .args([
                    "-displayfd",
                    "1",
                    "-screen",
                    "0",
                    "1600x1000x24",
                    "-nolisten",
                    "tcp",
                ])
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .ok()?;
            let mut line = String::new();
            let out = server.stdout.take()?;
            std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).ok()?;
            let display = format!(":{}", line.trim());
            Some(Self { server, display })
        };
        let screen = read_display();
        assert!(
            screen.is_some() || std::env::var_os("CI").is_none(),
            "CI must have Xvfb: .ci/run installs it"
        );
        if screen.is_none() {
            println!("skipped: there is no Xvfb here");
        }
        screen
    }

    /// Takes a picture with the program; gives its pixels.
    fn picture(&self, arguments: &[&str], file: &Path) -> image::RgbaImage {
        let done = Command::new(env!("CARGO_BIN_EXE_palimpsest"))
            .args(arguments)
            .arg("--screenshot")
            .arg(file)
            .env("DISPLAY", &self.display)
            .env_remove("WAYLAND_DISPLAY")
            .env("LIBGL_ALWAYS_SOFTWARE", "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{arguments:?}: {said}");
        image::open(file)
            .unwrap_or_else(|e| panic!("{e}: {said}"))
            .into_rgba8()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.server.kill().ok();
        self.server.wait().ok();
    }
}

/// Distinct colours, and the share of the most common one.
fn look(picture: &image::RgbaImage) -> (usize, f64) {
    let mut counts = std::collections::BTreeMap::new();
    for pixel in picture.pixels() {
        *counts.entry(pixel.0).or_insert(0u32) += 1;
    }
    let most = counts.values().copied().max().unwrap_or(0);
    let all = picture.width() * picture.height();
    (counts.len(), f64::from(most) / f64::from(all))
}

#[test]
fn every_panel_opens_on_a_real_screen_in_both_themes() {
    let Some(screen) = Screen::start() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let run: PathBuf = scripted(folder.path(), |experiment| experiment.learner.steps = 4);
    let run = run.to_str().unwrap();
    let mut grounds = Vec::new();
    for theme in ["light", "dark"] {
        for panel in ["watch", "tokens", "memory", "curves", "lesson", "what-if"] {
            let file = folder.path().join(format!("{panel}-{theme}.png"));
            let arguments = [
                "watch", run, "--panel", panel, "--theme", theme, "--size", "1200x800",
            ];
            let picture = screen.picture(&arguments, &file);
            assert_eq!((picture.width(), picture.height()), (1200, 800), "{panel}");
            let (colours, most) = look(&picture);
            assert!(
                colours > 40 && most < 0.97,
                "{panel} {theme}: {colours} colours, {most:.3}"
            );
            if panel == "watch" {
                let corner = picture.get_pixel(600, 790).0;
                grounds.push(u32::from(corner[0]) + u32::from(corner[1]) + u32::from(corner[2]));
            }
        }
    }
    assert!(
        grounds[0] > 500 && grounds[1] < 200,
        "light and dark: {grounds:?}"
    );
}

/// A picture at a quarter of its size: every pixel the mean of sixteen, so that the last bits of a
/// rasteriser do not count.
fn quarter(picture: &image::RgbaImage) -> image::RgbaImage {
    let mean = |x: u32, y: u32, channel: usize| {
        let pixels = (0..16).map(|at| picture.get_pixel(4 * x + at % 4, 4 * y + at / 4).0[channel]);
        (pixels.map(u32::from).sum::<u32>() / 16) as u8
    };
    image::RgbaImage::from_fn(picture.width() / 4, picture.height() / 4, |x, y| {
        image::Rgba([mean(x, y, 0), mean(x, y, 1), mean(x, y, 2), 255])
    })
}

#[test]
fn the_first_lesson_looks_as_it_did_in_both_themes() {
    let Some(screen) = Screen::start() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    for theme in ["light", "dark"] {
        let file = folder.path().join("now.png");
        let arguments = [
            "lesson",
            "two-notes",
            "--theme",
            theme,
            "--size",
            "1000x700",
        ];
        let now = quarter(&screen.picture(&arguments, &file));
        let kept = Path::new("tests/gui/snapshots").join(format!("lesson-{theme}.png"));
        if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
            std::fs::create_dir_all("tests/gui/snapshots").unwrap();
            now.save_with_format(&kept, image::ImageFormat::Png)
                .unwrap();
        }
        let then = image::open(&kept)
            .unwrap_or_else(|e| panic!("{kept:?}: {e}"))
            .into_rgba8();
        assert_eq!(now.dimensions(), then.dimensions(), "{theme}");
        let far = |(a, b): &(&image::Rgba<u8>, &image::Rgba<u8>)| {
            a.0.iter().zip(b.0).any(|(a, b)| a.abs_diff(b) > 24)
        };
        let apart = now.pixels().zip(then.pixels()).filter(far).count();
        let share = apart as f64 / f64::from(now.width() * now.height());
        // Look at the new picture, then UPDATE_SNAPSHOTS=1 keeps it.
        assert!(
            share < 0.01,
            "{theme}: {:.1} % of the picture changed",
            share * 100.0
        );
    }
}

#[test]
fn lessons_open_by_name_and_small_windows_are_drawn() {
    let Some(screen) = Screen::start() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("lesson.png");
    let picture = screen.picture(&["lesson", "late", "--theme", "dark"], &file);
    assert!(look(&picture).0 > 40);
    let run = sample(folder.path(), 3);
    let small = [
        "watch",
        run.to_str().unwrap(),
        "--size",
        "900x600",
        "--panel",
        "tokens",
    ];
    let picture = screen.picture(&small, &folder.path().join("small.png"));
    assert_eq!((picture.width(), picture.height()), (900, 600));
}

#[test]
fn without_a_display_the_program_says_what_it_needs() {
    let folder = tempfile::tempdir().unwrap();
    let run = sample(folder.path(), 1);
    let done = Command::new(env!("CARGO_BIN_EXE_palimpsest"))
        .arg("watch")
        .arg(&run)
        .env_remove("DISPLAY")
        .env_remove("WAYLAND_DISPLAY")
        .env_remove("WAYLAND_SOCKET")
        .output()
        .unwrap();
    assert!(!done.status.success());
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(said.contains("a window needs a display"), "{said}");
}
