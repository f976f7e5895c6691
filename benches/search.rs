//! What finding passages costs, and whether slow tools cost generation anything; one JSON object a case:
//!
//! `cargo bench --bench search -- CORPUS QUESTIONS [ENCODER]` (an encoder uses every core, all else one)
//!
//! - `lexical_index`: seconds to build, from a file that was read before;
//! - `lexical_queries`: queries a second on one thread, passages looked up and read;
//! - `dense_queries`, `hnsw_queries`: the same with an encoder's folder, its index built before it is timed, and the
//!   share of the exact ten that the graph finds;
//! - `slow_tools`: tokens a second of the shipped policy with no tool at work and with 120 calls that wait for a
//!   silent server, in turns; the medians, and their ratio.

#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use palimpsest::retrieval::{Corpus, LexicalIndex, Retriever};
use palimpsest::task::search::{SearchQuestion, read_questions};
use serde_json::json;

/// Rounds over all questions.
const ROUNDS: usize = 20;
const PASSAGES: usize = 10;

fn main() {
    let arguments: Vec<PathBuf> = std::env::args_os()
        .skip(1)
        .filter(|argument| argument != "--bench")
        .map(PathBuf::from)
        .collect();
    let [corpus, questions, rest @ ..] = arguments.as_slice() else {
        println!("usage: cargo bench --bench search -- CORPUS QUESTIONS [ENCODER]");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("corpus.jsonl");
    std::fs::copy(corpus, &copy).unwrap();
    let corpus = Corpus::open(&copy, &mut |_, _, _| {}).unwrap();
    let started = Instant::now();
    let lexical = LexicalIndex::open(&corpus, &mut |_, _, _| {}).unwrap();
    let seconds = started.elapsed().as_secs_f64();
    println!(
        "{}",
        json!({"case": "lexical_index", "passages": corpus.len(), "seconds": seconds})
    );
    let questions = read_questions(questions).unwrap();
    let texts: Vec<String> = questions.iter().map(SearchQuestion::text).collect();
    queries("lexical_queries", &corpus, &lexical, &texts, ROUNDS);
    #[cfg(feature = "torch")]
    torch::cases(&corpus, &texts, rest.first().map(PathBuf::as_path));
    #[cfg(not(feature = "torch"))]
    let _ = rest;
}

/// Asks every question by itself, and reads the passages that are found.
fn queries(
    case: &str,
    corpus: &Corpus,
    retriever: &dyn Retriever,
    texts: &[String],
    rounds: usize,
) {
    let started = Instant::now();
    let mut read = 0;
    for _ in 0..rounds {
        for text in texts {
            let found = retriever
                .search(std::slice::from_ref(text), PASSAGES)
                .unwrap();
            for hit in &found[0] {
                read += corpus.passage(hit.passage).unwrap().contents.len();
            }
        }
    }
    let (asked, seconds) = (rounds * texts.len(), started.elapsed().as_secs_f64());
    let rate = asked as f64 / seconds;
    println!(
        "{}",
        json!({"case": case, "queries": asked, "bytes": read, "queries_per_second": rate})
    );
}

#[cfg(feature = "torch")]
mod torch {
    use palimpsest::engine::{Engine, GenerateRequest, Sampling};
    use palimpsest::experiment::{DeviceSetting, EngineSettings, RetrieverSettings};
    use palimpsest::retrieval::RetrieverClient;
    use palimpsest::task::Task as _;
    use palimpsest::task::lookup::LookupTask;
    use palimpsest::tools::{ServedSearch, Tool, ToolCall, ToolLink};
    use palimpsest::torch::{DenseIndex, Encoder, NearIndex, TorchEngine};
    use palimpsest::trajectory::{Action, QuestionData, TrajectoryId};

    use super::*;

    const CALLS: u32 = 120;
    const TURNS: u32 = 64;
    const TOKENS: u32 = 96;
    const TIMES: usize = 5;
    /// Batches of turns in a round, so that one lasts for some seconds.
    const BATCHES: u32 = 6;

    pub(super) fn cases(corpus: &Corpus, texts: &[String], encoder: Option<&Path>) {
        let settings = EngineSettings {
            device: DeviceSetting::Cpu,
            threads: 1,
            ..EngineSettings::default()
        };
        if let Some(folder) = encoder {
            let all = EngineSettings {
                threads: 0,
                ..settings.clone()
            };
            let open = || Encoder::open(folder, &all).unwrap();
            let started = Instant::now();
            let exact = DenseIndex::open(corpus, open(), &mut |_, _, _| {}).unwrap();
            let seconds = started.elapsed().as_secs_f64();
            println!("{}", json!({"case": "dense_index", "seconds": seconds}));
            let started = Instant::now();
            let near = NearIndex::open(corpus, open(), &mut |_, _, _| {}).unwrap();
            let seconds = started.elapsed().as_secs_f64();
            println!("{}", json!({"case": "hnsw_index", "seconds": seconds}));
            queries("dense_queries", corpus, &exact, texts, 1);
            queries("hnsw_queries", corpus, &near, texts, 1);
            let (all, some) = (
                exact.search(texts, PASSAGES).unwrap(),
                near.search(texts, PASSAGES).unwrap(),
            );
            let found: usize = all
                .iter()
                .zip(&some)
                .map(|(all, some)| {
                    all.iter()
                        .filter(|a| some.iter().any(|b| a.passage == b.passage))
                        .count()
                })
                .sum();
            let recall = found as f64 / (texts.len() * PASSAGES) as f64;
            println!(
                "{}",
                json!({"case": "hnsw_recall", "recall@10_of_exact": recall})
            );
        }
        slow_tools(&settings);
    }

    /// Calls of a server that takes connections and says nothing.
    fn waiting(address: std::net::SocketAddr) -> ToolLink {
        let client = RetrieverClient::new(&RetrieverSettings {
            url: format!("http://{address}"),
            timeout_seconds: 3600.0,
            rate: 0,
            ..RetrieverSettings::default()
        });
        let tool: Arc<dyn Tool> = Arc::new(ServedSearch {
            client: Arc::new(client.unwrap()),
            passages: 3,
            shape: palimpsest::experiment::ResultShape::SearchR1,
        });
        let mut link = ToolLink::start(vec![tool], 3600.0, CALLS).unwrap();
        let question = Arc::new(QuestionData::default());
        for member in 0..CALLS {
            link.call(ToolCall {
                id: TrajectoryId {
                    member,
                    ..TrajectoryId::default()
                },
                turn: 0,
                action: Action::Search("q".into()),
                question: Arc::clone(&question),
            });
        }
        link
    }

    fn slow_tools(settings: &EngineSettings) {
        let task = LookupTask::shipped().unwrap();
        let tokenizer = Arc::clone(task.tokenizer());
        let context = tokenizer.encode("<q> capital of Peru</q>");
        let folder = Path::new("assets/lookup/policy");
        let mut engine = TorchEngine::from_folder(folder, tokenizer, settings).unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let batch = |engine: &mut TorchEngine| {
            let requests: Vec<GenerateRequest> = (0..TURNS)
                .map(|member| GenerateRequest {
                    id: TrajectoryId {
                        member,
                        ..TrajectoryId::default()
                    },
                    turn: 0,
                    context: context.clone(),
                    max_new_tokens: TOKENS,
                    sampling: Sampling::plain(1.0, 1),
                    stop: Arc::from(Vec::new()),
                    ignore_eos: true,
                })
                .collect();
            let turns = engine.generate(&requests).unwrap();
            let ids: Vec<TrajectoryId> = requests.iter().map(|request| request.id).collect();
            engine.release(&ids);
            turns.iter().map(|turn| turn.ids.len()).sum::<usize>()
        };
        let rate = |engine: &mut TorchEngine| {
            let started = Instant::now();
            let tokens: usize = (0..BATCHES).map(|_| batch(engine)).sum();
            tokens as f64 / started.elapsed().as_secs_f64()
        };
        rate(&mut engine);
        let (mut alone, mut beside) = (Vec::new(), Vec::new());
        for _ in 0..TIMES {
            alone.push(rate(&mut engine));
            let link = waiting(address);
            beside.push(rate(&mut engine));
            assert_eq!(link.outstanding(), CALLS as usize, "a call has ended");
        }
        let median = |values: &mut Vec<f64>| {
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        };
        let (alone, beside) = (median(&mut alone), median(&mut beside));
        println!(
            "{}",
            json!({"case": "slow_tools", "calls": CALLS, "tokens_per_second_alone": alone, "tokens_per_second_beside": beside, "ratio": beside / alone})
        );
    }
}
