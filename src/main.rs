//! The program: reads arguments, chooses the mode, builds the app, gives an exit code.
//!
//! Exit codes: 0 done, 1 the run or command failed, 2 a bad experiment file or bad arguments, 130
//! stopped by the user.

mod arguments;
mod commands;
mod model_lines;
#[cfg(feature = "gui")]
mod window;

use std::io::IsTerminal as _;
use std::process::ExitCode;

use clap::Parser as _;

use arguments::{Arguments, Command};

fn main() -> ExitCode {
    commands::settle_openmp();
    let arguments = Arguments::parse();
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "info".into()),
        )
        .with_target(false)
        .without_time()
        .init();
    let outcome = match arguments.command {
        Some(Command::Report { run }) => commands::report(&run),
        Some(Command::Study {
            file,
            jobs,
            out,
            set,
        }) => commands::study(&file, jobs, out, &set),
        Some(Command::Score { model, ids, device }) => model_lines::score(&model, &ids, device),
        Some(Command::Generate { model, device }) => model_lines::generate(&model, device),
        Some(Command::Eval(arguments)) => commands::eval(&arguments),
        Some(Command::Serve(arguments)) => commands::serve(&arguments),
        Some(Command::Retrieve(arguments)) => commands::retrieve(&arguments),
        #[cfg(feature = "gui")]
        Some(Command::Watch { runs, window }) => window::watch(runs, &window),
        #[cfg(feature = "gui")]
        Some(Command::Lesson { name, window }) => window::lesson(name, &window),
        Some(Command::Doctor) => commands::doctor(),
        #[cfg(feature = "gui")]
        None if arguments.train.gui && !arguments.train.check => {
            window::train_and_watch(arguments.train)
        }
        None => commands::train(&arguments.train, commands::Beside::default()),
    };
    outcome.unwrap_or_else(|error| {
        tracing::error!("{}", with_causes(&error));
        ExitCode::from(1)
    })
}

/// An error with its causes; a cause that the text before it tells already is not told again.
fn with_causes(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain() {
        let said = cause.to_string();
        if text.is_empty() {
            text = said;
        } else if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_told_once() {
        let missing = || std::io::Error::other("no such file");
        let error = palimpsest::retrieval::RetrievalError::reading("c.jsonl".as_ref(), missing());
        let told = with_causes(&anyhow::Error::from(error));
        assert_eq!(told, "cannot read \"c.jsonl\": no such file");
        let error = anyhow::Error::from(missing()).context("the corpus is not there");
        assert_eq!(with_causes(&error), "the corpus is not there: no such file");
    }
}
