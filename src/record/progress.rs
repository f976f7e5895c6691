//! How far a stage is: a bar with the time left on a terminal, plain lines elsewhere.

use std::io::{IsTerminal as _, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// How often a plain line is written when standard error is no terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlainLines {
    /// One a step.
    Each,
    /// At most one every ten seconds, and the last.
    Sparse,
}

/// The shortest time between two sparse lines.
const SPARSE: Duration = Duration::from_secs(10);

/// Tells the user on standard error how far a stage is.
pub struct Progress {
    shown: Shown,
}

enum Shown {
    Bar(ProgressBar),
    Lines(Lines),
}

impl Progress {
    /// Begins a stage of `total` steps, of which `done` were done before (after a resume).
    #[must_use]
    pub fn new(label: &str, total: u64, done: u64, plain: PlainLines) -> Self {
        let shown = if std::io::stderr().is_terminal() {
            Shown::Bar(bar(label, total, done))
        } else {
            let sink = Box::new(std::io::stderr());
            Shown::Lines(Lines::new(label, total, done, plain, sink))
        };
        Self { shown }
    }

    /// `done` steps are done now; `message` holds the numbers that matter, e.g. `reward 0.42`.
    pub fn advance(&mut self, done: u64, message: &str) {
        match &mut self.shown {
            Shown::Bar(bar) => {
                bar.set_position(done);
                bar.set_message(message.to_owned());
            }
            Shown::Lines(lines) => lines.advance(done, message, Instant::now()),
        }
    }

    /// Tells something that should stay on the screen.
    pub fn note(&mut self, text: &str) {
        match &mut self.shown {
            Shown::Bar(bar) => bar.println(text),
            Shown::Lines(lines) => lines.say(text),
        }
    }

    /// Ends a stage that took no time: nothing of it stays on the screen.
    pub fn forget(self) {
        if let Shown::Bar(bar) = self.shown {
            bar.finish_and_clear();
        }
    }

    /// Ends the stage; the last state stays on the screen.
    pub fn finish(self) {
        if let Shown::Bar(bar) = self.shown {
            bar.abandon();
        }
    }
}

fn bar(label: &str, total: u64, done: u64) -> ProgressBar {
    let bar = ProgressBar::new(total).with_position(done);
    let template = "{prefix} {bar:24} {pos}/{len}  {elapsed} gone, {eta} left  {wide_msg}";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.set_prefix(label.to_owned());
    bar.reset_eta();
    bar.enable_steady_tick(Duration::from_secs(1));
    bar
}

/// Plain lines: `train 3/10  reward 0.42  (about 15 s left)`.
struct Lines {
    label: String,
    total: u64,
    first: u64,
    began: Instant,
    last: Option<Instant>,
    plain: PlainLines,
    sink: Box<dyn Write + Send>,
}

impl Lines {
    fn new(
        label: &str,
        total: u64,
        done: u64,
        plain: PlainLines,
        sink: Box<dyn Write + Send>,
    ) -> Self {
        Self {
            label: label.to_owned(),
            total,
            first: done,
            began: Instant::now(),
            last: None,
            plain,
            sink,
        }
    }

    fn advance(&mut self, done: u64, message: &str, now: Instant) {
        let waited = self.last.is_none_or(|last| now - last >= SPARSE);
        if self.plain == PlainLines::Sparse && !waited && done < self.total {
            return;
        }
        self.last = Some(now);
        let left = match (self.total.saturating_sub(done), done - self.first.min(done)) {
            (0, _) => format!("  ({} in all)", span(now - self.began)),
            (_, 0) => String::new(),
            (left, new) => {
                let a_step = (now - self.began).as_secs_f64() / new as f64;
                let left = Duration::from_secs_f64(a_step * left as f64);
                format!("  (about {} left)", span(left))
            }
        };
        let line = format!("{} {done}/{}  {message}{left}", self.label, self.total);
        self.say(line.trim_end());
    }

    fn say(&mut self, text: &str) {
        // Nobody is left to be told when standard error is closed.
        writeln!(self.sink, "{text}").ok();
    }
}

/// A length of time in the two units that matter.
pub(crate) fn span(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match seconds.round() as u64 {
        0..10 => format!("{seconds:.1} s"),
        s @ 10..60 => format!("{s} s"),
        s @ 60..3600 => format!("{} min {:02} s", s / 60, s % 60),
        s => format!("{} h {:02} min", s / 3600, s / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn told(plain: PlainLines, done_before: u64, done: &[u64]) -> String {
        let sink = Sink::default();
        let mut lines = Lines::new("train", 4, done_before, plain, Box::new(sink.clone()));
        let began = lines.began;
        for &done in done {
            let gone = Duration::from_secs(2 * (done - done_before));
            lines.advance(done, "reward 0.42", began + gone);
        }
        String::from_utf8(sink.0.lock().unwrap().clone()).unwrap()
    }

    #[test]
    fn a_plain_line_tells_the_step_the_numbers_and_the_time_left() {
        assert_eq!(
            told(PlainLines::Each, 2, &[3, 4]),
            "train 3/4  reward 0.42  (about 2.0 s left)\ntrain 4/4  reward 0.42  (4.0 s in all)\n"
        );
    }

    #[test]
    fn sparse_lines_leave_steps_out_but_never_the_last() {
        assert_eq!(
            told(PlainLines::Sparse, 0, &[1, 2, 3, 4]).lines().count(),
            2
        );
    }

    #[test]
    fn times_are_told_in_two_units() {
        assert_eq!(span(Duration::from_millis(1500)), "1.5 s");
        assert_eq!(span(Duration::from_secs(75)), "1 min 15 s");
        assert_eq!(span(Duration::from_secs(7320)), "2 h 02 min");
    }
}
