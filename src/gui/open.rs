//! Opens the window: for watching, for a lesson, beside a run, or for a picture.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use eframe::egui::{
    ColorImage, Context, ScreenshotCallback, ThemePreference, Ui, ViewportBuilder, ViewportCommand,
    vec2,
};

use super::{Command, GuiError, Live, Tab, Window, export};
use crate::trajectory::TrajectoryId;

/// Frames before a picture is taken: layouts and textures have settled by then.
const FRAMES: u32 = 8;
/// A picture that has not come by then never will.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the window opens with.
#[derive(Default)]
pub struct Open {
    /// Run folders; the first is shown.
    pub runs: Vec<PathBuf>,
    /// The panel that is shown first; the one that fits, if none is named.
    pub tab: Option<Tab>,
    /// A lesson that is shown: its name, or empty for the first.
    pub lesson: Option<String>,
    /// A rollout that is selected once the record holds it.
    pub at: Option<TrajectoryId>,
    /// Light, dark, or as the system has it.
    pub theme: ThemePreference,
    /// Size of the window, points.
    pub size: Option<(f32, f32)>,
    /// A picture to take, after which the window closes.
    pub picture: Option<Picture>,
    /// The run that this process trains.
    pub live: Option<Live>,
}

/// A picture of the window.
#[derive(Clone, Debug)]
pub struct Picture {
    /// Where it goes, as PNG.
    pub path: PathBuf,
}

/// Opens the window and waits until it is closed.
///
/// # Errors
/// No window could be opened, a file inside the program is wrong, or the picture was not taken: also
/// that of a folder that is no run, which a window would show as what it is.
pub fn open(with: Open) -> Result<(), GuiError> {
    if with.picture.is_some() {
        for run in &with.runs {
            crate::record::Follower::new(run).poll()?;
        }
    }
    let (width, height) = with.size.unwrap_or((1400.0, 900.0));
    let mut viewport = ViewportBuilder::default()
        .with_title("palimpsest")
        .with_app_id("palimpsest")
        .with_inner_size(vec2(width, height))
        .with_min_inner_size(vec2(480.0, 360.0));
    if with.picture.is_some() {
        viewport = viewport.with_decorations(false);
    }
    let options = eframe::NativeOptions {
        viewport,
        renderer: eframe::Renderer::Glow,
        // Nothing here needs it, and software rendering pays for it.
        multisampling: 0,
        ..eframe::NativeOptions::default()
    };
    let taken: Taken = Arc::default();
    let (picture, result) = (with.picture.clone(), Arc::clone(&taken));
    let run = eframe::run_native(
        "palimpsest",
        options,
        Box::new(move |creation| {
            let window = prepare(&creation.egui_ctx, with)?;
            Ok(match picture {
                Some(picture) => Box::new(Photographer::new(window, picture, result)),
                None => Box::new(window) as Box<dyn eframe::App>,
            })
        }),
    );
    run.map_err(|error| GuiError::NoWindow {
        why: error.to_string(),
    })?;
    let outcome = taken.lock().unwrap_or_else(PoisonError::into_inner).take();
    outcome.unwrap_or(Ok(()))
}

/// A window with its runs open.
fn prepare(context: &Context, with: Open) -> Result<Window, GuiError> {
    let mut window = Window::new(context, with.theme)?;
    for run in &with.runs {
        window.world.open(run);
    }
    window.world.current = 0;
    window.world.wanted = with.at;
    if let Some(live) = with.live {
        let waker = context.clone();
        live.controls.listen(move || waker.request_repaint());
        window.world.live = Some(live);
    }
    if let Some(name) = with.lesson {
        window.world.lesson = Some(name);
        window.world.tab = Tab::Lesson;
    }
    if let Some(tab) = with.tab {
        window.world.tab = tab;
        if tab == Tab::Lesson && window.world.lesson.is_none() {
            window.world.lesson = Some(String::new());
        }
    }
    Ok(window)
}

/// What became of a picture.
type Taken = Arc<Mutex<Option<Result<(), GuiError>>>>;

/// A window that takes a picture of itself and closes.
struct Photographer {
    window: Window,
    picture: Picture,
    taken: Taken,
    began: Instant,
    frames: u32,
    asked: bool,
    image: Arc<Mutex<Option<Arc<ColorImage>>>>,
}

impl Photographer {
    fn new(window: Window, picture: Picture, taken: Taken) -> Self {
        Self {
            window,
            picture,
            taken,
            began: Instant::now(),
            frames: 0,
            asked: false,
            image: Arc::default(),
        }
    }

    fn finish(&self, context: &Context, outcome: Result<(), GuiError>) {
        *self.taken.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
        context.send_viewport_cmd(ViewportCommand::Close);
    }
}

impl eframe::App for Photographer {
    fn logic(&mut self, context: &Context, _frame: &mut eframe::Frame) {
        for run in &mut self.window.world.runs {
            run.settle(PATIENCE);
        }
        self.window.take_news(context);
        // Messages come and go; a picture shows what stays.
        self.window.world.toasts.clear();
    }

    fn ui(&mut self, ui: &mut Ui, _frame: &mut eframe::Frame) {
        self.window.show(ui);
        let context = ui.ctx().clone();
        self.frames += 1;
        context.request_repaint();
        if self.frames == 2 && self.window.world.tab == Tab::Tokens {
            // A pinned token shows what the details are for.
            self.window.world.todo.push(Command::NextExtreme);
        }
        if self.frames == 2 && self.window.world.tab == Tab::Lesson {
            self.window.panels.lesson.walk(true);
        }
        if self.frames == 4 {
            self.window.panels.lesson.reveal();
        }
        if self.frames >= FRAMES && !self.asked {
            self.asked = true;
            let image = Arc::clone(&self.image);
            context.send_viewport_cmd(ViewportCommand::Screenshot(ScreenshotCallback::new(
                move |taken| *image.lock().unwrap_or_else(PoisonError::into_inner) = Some(taken),
            )));
        }
        let image = self
            .image
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(image) = image {
            self.finish(&context, export::write_png(&self.picture.path, &image));
        } else if self.began.elapsed() > PATIENCE {
            let why = "the window drew nothing in a minute".to_owned();
            let path = self.picture.path.clone();
            self.finish(&context, Err(GuiError::NoPicture { path, why }));
        }
    }
}
