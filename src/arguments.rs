//! What can be said on the command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use palimpsest::experiment::DeviceSetting;

/// Train long-horizon agents to write good notes, and see why each note was rewarded.
#[derive(Parser, Debug)]
#[command(
    version,
    about,
    args_conflicts_with_subcommands = true,
    arg_required_else_help = true
)]
pub struct Arguments {
    /// What to do instead of training.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Training.
    #[command(flatten)]
    pub train: Train,
}

/// Commands beside training.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Write report.html and summary.json of a run anew
    Report {
        /// The run folder
        run: PathBuf,
    },
    /// Run arms x seeds of one base experiment, and tell what came out as a table
    Study {
        /// Study file (RON)
        file: PathBuf,
        /// Processes at a time; by default as many as there are cores
        #[arg(long, value_name = "N")]
        jobs: Option<std::num::NonZeroUsize>,
        /// Folder of its runs and results; by default runs/NAME
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
        /// Override one setting of every arm, as in `--set learner.steps=4`; may be repeated
        #[arg(long = "set", value_name = "K=V")]
        set: Vec<String>,
    },
    /// Log-probs of token ids under a model, as JSON lines: reads {"id", "input_ids"}, prints {"id",
    /// "logprobs"}, computed in f32 on the CPU
    Score {
        /// Hugging Face folder with config.json and safetensors
        #[arg(long, value_name = "DIR")]
        model: PathBuf,
        /// File of lines to score; - for standard input
        #[arg(long, value_name = "FILE")]
        ids: PathBuf,
        /// Where to compute: cpu, auto, cuda or cuda:N
        #[arg(long, value_name = "DEVICE", default_value = "cpu", value_parser = device)]
        device: DeviceSetting,
    },
    /// Let a model write, as JSON lines: reads {"id", "input_ids" | "prompt" | "messages",
    /// "max_new_tokens", "temperature", "stop", "seed", "ignore_eos"} from standard input, prints
    /// {"id", "ids", "text", "logprobs", "finish_reason"}
    Generate {
        /// Hugging Face folder with config.json, safetensors and tokenizer.json
        #[arg(long, value_name = "DIR")]
        model: PathBuf,
        /// Where to compute: cpu, auto, cuda or cuda:N
        #[arg(long, value_name = "DEVICE", default_value = "cpu", value_parser = device)]
        device: DeviceSetting,
    },
    /// Measure a policy on questions, and write table, transcripts and manifest; or run a measured one
    /// again from its transcripts, without model, corpus and network
    Eval(Eval),
    /// Offer a corpus over HTTP as Search-R1's and ASearcher's servers do: POST /retrieve, POST /access,
    /// GET /health. Prints its address
    Serve(Serve),
    /// Watch runs in a window: one that goes on, finished ones, several to compare
    #[cfg(feature = "gui")]
    Watch {
        /// Run folders
        #[arg(required = true, value_name = "RUN")]
        runs: Vec<PathBuf>,
        #[command(flatten)]
        window: WindowArguments,
    },
    /// Learn credit assignment by moving it, on recorded rollouts or on a finished run
    #[cfg(feature = "gui")]
    Lesson {
        /// Name of a lesson, or a run folder; the first lesson if none is named
        name: Option<String>,
        #[command(flatten)]
        window: WindowArguments,
    },
    /// Find the passages of questions in a corpus, and say how many of the supporting ones are there
    Retrieve(Retrieve),
    /// Say what was found on this machine, what is wanted, and how to mend it
    Doctor,
}

/// How the window opens.
#[cfg(feature = "gui")]
#[derive(Args, Debug)]
pub struct WindowArguments {
    /// Panel that is shown first: watch, tokens, memory, curves, lesson or what-if
    #[arg(long, value_name = "NAME")]
    pub panel: Option<String>,
    /// Rollout that is selected: STEP, or STEP/GROUP/ROLLOUT; steps count from 1, the rest from 0
    #[arg(long, value_name = "PLACE")]
    pub at: Option<String>,
    /// Size of the window in points
    #[arg(long, value_name = "WxH")]
    pub size: Option<String>,
    /// light, dark, or system
    #[arg(long, value_name = "NAME", default_value = "system")]
    pub theme: String,
    /// Save a picture of the window as PNG, and close it
    #[arg(long, value_name = "FILE")]
    pub screenshot: Option<PathBuf>,
}

/// A device as the command line names it.
fn device(name: &str) -> Result<DeviceSetting, String> {
    match (name, name.strip_prefix("cuda:").map(str::parse)) {
        ("auto", _) => Ok(DeviceSetting::Auto),
        ("cpu", _) => Ok(DeviceSetting::Cpu),
        ("cuda", _) => Ok(DeviceSetting::Cuda(0)),
        (_, Some(Ok(number))) => Ok(DeviceSetting::Cuda(number)),
        _ => Err("must be cpu, auto, cuda or cuda:N".to_owned()),
    }
}

/// A corpus, and how its passages are found.
#[derive(Args, Debug)]
pub struct Finding {
    /// Corpus: JSON lines with "contents" (title, line break, text) and perhaps "url"
    #[arg(long, value_name = "FILE")]
    pub corpus: PathBuf,
    /// How passages are found
    #[arg(long, value_enum, default_value = "lexical")]
    pub mode: RetrieveMode,
    /// Folder of the encoder that dense and hybrid need (Hugging Face layout, BERT family); by default
    /// PALIMPSEST_ENCODER, else the one that `make encoder` has fetched
    #[arg(long, value_name = "DIR")]
    pub encoder: Option<PathBuf>,
    /// How dense and hybrid find the nearest vectors
    #[arg(long, value_enum, default_value = "exact")]
    pub index: DenseMode,
}

/// How the nearest vectors are found.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum DenseMode {
    /// By comparing all
    Exact,
    /// By a graph of near neighbours: for large corpora
    Hnsw,
}

/// Arguments of serving.
#[derive(Args, Debug)]
pub struct Serve {
    /// What is offered.
    #[command(flatten)]
    pub finding: Finding,
    /// Address to listen at; anything but a loopback address lets other machines in
    #[arg(long, value_name = "IP", default_value = "127.0.0.1")]
    pub host: std::net::IpAddr,
    /// Port; 0 takes a free one
    #[arg(long, value_name = "N", default_value = "8000")]
    pub port: u16,
    /// Passages a query where the request names no number
    #[arg(long, value_name = "N", default_value = "3")]
    pub topk: std::num::NonZeroUsize,
    /// Requests that are worked on at once; by default as many as there are cores
    #[arg(long, value_name = "N")]
    pub workers: Option<std::num::NonZeroUsize>,
    /// Requests under way, those that wait included; a further one is answered with 503
    #[arg(long, value_name = "N", default_value = "256")]
    pub queue: std::num::NonZeroUsize,
    /// Longest body of a request, KiB
    #[arg(long, value_name = "N", default_value = "1024")]
    pub body_kib: std::num::NonZeroUsize,
    /// Time of a request, seconds
    #[arg(long, value_name = "N", default_value = "30")]
    pub seconds: std::num::NonZeroU32,
    /// Write a file named Host{IP}_IP{PORT}.txt here, by which ASearcher's clients find their server
    #[arg(long, value_name = "DIR")]
    pub save_dir: Option<PathBuf>,
}

/// Arguments of measuring.
#[derive(Args, Debug)]
pub struct Eval {
    /// Experiment file (RON): its policy, task, limits and evaluation settings hold, nothing is trained
    #[arg(long, value_name = "FILE", required_unless_present = "replay")]
    pub experiment: Option<PathBuf>,
    /// Run the evaluation in this folder again from its transcripts, and compare
    #[arg(long, value_name = "RUN", conflicts_with = "experiment")]
    pub replay: Option<PathBuf>,
    /// Make the run folder exactly here instead of a numbered one under the folder of runs
    #[arg(long, value_name = "DIR")]
    pub run_dir: Option<PathBuf>,
    /// Override one setting, as in `--set evaluation.questions=20`; may be repeated
    #[arg(long = "set", value_name = "K=V")]
    pub set: Vec<String>,
}

/// Arguments of retrieving.
#[derive(Args, Debug)]
pub struct Retrieve {
    /// What is searched.
    #[command(flatten)]
    pub finding: Finding,
    /// Questions: JSON lines, or Parquet in verl's rows
    #[arg(long, value_name = "FILE")]
    pub questions: PathBuf,
    /// Passages a question
    #[arg(long, value_name = "N", default_value = "10")]
    pub topk: std::num::NonZeroUsize,
    /// Write a JSON line a question, and a last one with the recall
    #[arg(long)]
    pub json: bool,
}

/// How passages are found.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetrieveMode {
    /// By words (BM25)
    Lexical,
    /// By meaning (an encoder)
    Dense,
    /// By both, fused by rank
    Hybrid,
}

/// Arguments of training.
#[derive(Args, Debug)]
pub struct Train {
    /// Experiment file (RON) to run
    #[arg(long, value_name = "FILE", required_unless_present = "resume")]
    pub experiment: Option<PathBuf>,
    /// Make the run folder exactly here instead of a numbered one under the folder of runs
    #[arg(long, value_name = "DIR", conflicts_with = "resume")]
    pub run_dir: Option<PathBuf>,
    /// Go on with the run in this folder from its last checkpoint, with the experiment that it holds
    #[arg(long, value_name = "DIR")]
    pub resume: Option<PathBuf>,
    /// Override one setting, as in `--set learner.steps=40`; may be repeated
    #[arg(long = "set", value_name = "K=V")]
    pub set: Vec<String>,
    /// Open a window beside the run: watch it, pause it, step it
    #[cfg(feature = "gui")]
    #[arg(long)]
    pub gui: bool,
    /// Print the resolved experiment and its derived sizes, and run nothing
    #[arg(long)]
    pub check: bool,
}
