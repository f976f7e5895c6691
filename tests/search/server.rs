//! `palimpsest serve` as the clients of Search-R1 and ASearcher see it.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use palimpsest::retrieval::{Hit, Library, RetrievalError, Retriever, ServeLimits};
use palimpsest::tools::Runtime;
use serde_json::{Value, json};

use super::world::{ROWS, Served, library, ours, post, runtime};

/// TLS needs a provider, also where no TLS is used.
fn provider() {
    rustls::crypto::ring::default_provider()
        .install_default()
        .ok();
}

fn world() -> (tempfile::TempDir, Runtime, Served) {
    provider();
    let folder = tempfile::tempdir().unwrap();
    let runtime = runtime();
    let served = ours(&runtime, library(folder.path()), ServeLimits::default());
    (folder, runtime, served)
}

fn row(number: usize) -> Value {
    serde_json::from_str(ROWS[number]).unwrap()
}

#[test]
fn retrieve_gives_whole_rows_in_the_shape_that_was_asked_for() {
    let (_folder, runtime, served) = world();
    let ask = |body: Value| post(&runtime, served.address, "/retrieve", &body.to_string());
    let (status, answer) =
        ask(json!({"queries": ["mayor of Ulm"], "topk": 1, "return_scores": true}));
    assert_eq!(status, 200);
    assert_eq!(answer["result"][0][0]["document"], row(0));
    assert!(answer["result"][0][0]["score"].as_f64().unwrap() > 0.0);
    // Without scores, also with exactly two queries, where Search-R1's server mixes rows up.
    for queries in [
        vec!["tea"],
        vec!["tea", "Rome"],
        vec!["tea", "Rome", "minster"],
    ] {
        let (status, answer) = ask(json!({"queries": queries, "topk": 1, "return_scores": false}));
        assert_eq!(status, 200);
        let lists = answer["result"].as_array().unwrap();
        assert_eq!(lists.len(), queries.len());
        assert_eq!(lists[0], json!([row(3)]));
        if queries.len() > 1 {
            assert_eq!(lists[1], json!([row(1)]));
        }
    }
    // No number, null and 0 are the server's own; scores are off by default.
    for topk in [json!({}), json!({"topk": null}), json!({"topk": 0})] {
        let mut body = json!({"queries": ["Ulm Rome tea city drink town"]});
        body.as_object_mut()
            .unwrap()
            .extend(topk.as_object().unwrap().clone());
        let (_, answer) = ask(body);
        assert_eq!(answer["result"][0].as_array().unwrap().len(), 3, "{topk}");
        assert!(answer["result"][0][0]["contents"].is_string());
    }
    let (_, none) = ask(json!({"queries": ["zzz"], "return_scores": true}));
    assert_eq!(none, json!({"result": [[]]}));
    let (_, nothing) = ask(json!({"queries": []}));
    assert_eq!(nothing, json!({"result": []}));
}

#[test]
fn access_gives_pages_and_null_and_knows_both_spellings() {
    let (_folder, runtime, served) = world();
    let body = json!({"urls": ["http://w/index.php?title=Ulm", "http://nowhere", "http://w/Rome"]});
    let (status, answer) = post(&runtime, served.address, "/access", &body.to_string());
    assert_eq!(status, 200);
    let pages = answer["result"].as_array().unwrap();
    assert_eq!(
        pages[0]["contents"],
        "\"Ulm\"\nUlm is a city in Germany. Its mayor is Ann Lee.\n\"Ulm\"\nThe minster of Ulm is high."
    );
    assert_eq!(pages[0]["url"], "http://w/index.php/Ulm");
    assert_eq!(pages[1], Value::Null);
    assert_eq!(pages[2], row(1));
}

#[test]
fn wrong_and_oversized_requests_are_refused_in_fastapis_words() {
    let (_folder, runtime, served) = world();
    let ask = |path: &str, body: &str| post(&runtime, served.address, path, body);
    for body in [
        "",
        "[]",
        "{}",
        r#"{"queries": "one"}"#,
        r#"{"queries": [1]}"#,
        r#"{"queries": ["a"], "topk": -1}"#,
        r#"{"queries": ["a"], "topk": "three"}"#,
        r#"[["demon"], 3, true]"#,
    ] {
        let (status, answer) = ask("/retrieve", body);
        assert_eq!(status, 422, "{body}");
        assert!(answer["detail"][0]["msg"].is_string(), "{body}: {answer}");
    }
    assert_eq!(ask("/access", r#"{"queries": []}"#).0, 422);
    let not = |status: u16, detail: &str| (status, json!({"detail": detail}));
    assert_eq!(ask("/nothing", "{}"), not(404, "Not Found"));
    assert_eq!(ask("/health", "{}"), not(405, "Method Not Allowed"));
    // What pydantic takes for a number or a truth value.
    for (topk, scores) in [(json!("2"), json!("true")), (json!(2.0), json!(1))] {
        let body = json!({"queries": ["Ulm"], "topk": topk, "return_scores": scores});
        let (status, answer) = ask("/retrieve", &body.to_string());
        assert_eq!(status, 200, "{answer}");
        assert_eq!(answer["result"][0].as_array().unwrap().len(), 2);
        assert!(answer["result"][0][0]["score"].is_number(), "{answer}");
    }
    let many = json!({"queries": vec!["a"; 50_000], "topk": 4}).to_string();
    let (status, answer) = ask("/retrieve", &many);
    assert_eq!(status, 422);
    assert!(
        answer["detail"][0]["msg"]
            .as_str()
            .unwrap()
            .contains("ask in parts")
    );
}

#[test]
fn a_body_longer_than_the_limit_is_not_read() {
    provider();
    let folder = tempfile::tempdir().unwrap();
    let runtime = runtime();
    let limits = ServeLimits {
        body_bytes: 1024,
        ..ServeLimits::default()
    };
    let served = ours(&runtime, library(folder.path()), limits);
    let of = |length: usize| json!({"queries": ["x".repeat(length)]}).to_string();
    assert_eq!(
        post(&runtime, served.address, "/retrieve", &of(2000)).0,
        413
    );
    assert_eq!(post(&runtime, served.address, "/retrieve", &of(900)).0, 200);
}

#[test]
fn health_says_what_is_there() {
    let (_folder, runtime, served) = world();
    let url = format!("http://{}/health", served.address);
    let plain = reqwest::Client::builder().no_proxy().build().unwrap();
    let text =
        runtime.block_on(async { plain.get(url).send().await.unwrap().text().await.unwrap() });
    let health: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (&health["status"], &health["passages"]),
        (&json!("ok"), &json!(4))
    );
}

/// Finds nothing before it is let go.
#[derive(Default)]
struct Held {
    /// Whether it is let go, and how many searches have begun.
    state: Mutex<(bool, u32)>,
    changed: Condvar,
}

impl Held {
    fn release(&self) {
        self.state.lock().unwrap().0 = true;
        self.changed.notify_all();
    }

    fn wait_until_begun(&self, count: u32) {
        let begun = self.state.lock().unwrap();
        drop(
            self.changed
                .wait_while(begun, |state| state.1 < count)
                .unwrap(),
        );
    }
}

impl Retriever for Held {
    fn search(&self, queries: &[String], _: usize) -> Result<Vec<Vec<Hit>>, RetrievalError> {
        let mut state = self.state.lock().unwrap();
        state.1 += 1;
        self.changed.notify_all();
        drop(self.changed.wait_while(state, |state| !state.0).unwrap());
        Ok(vec![Vec::new(); queries.len()])
    }
}

fn held(limits: ServeLimits) -> (tempfile::TempDir, Runtime, Served, Arc<Held>) {
    provider();
    let folder = tempfile::tempdir().unwrap();
    let runtime = runtime();
    let held = Arc::new(Held::default());
    let library = Library {
        retriever: held.clone(),
        ..library(folder.path())
    };
    let served = ours(&runtime, library, limits);
    (folder, runtime, served, held)
}

const ONE: &str = r#"{"queries": ["a"]}"#;

#[test]
fn a_full_queue_says_so_at_once_and_a_slow_index_has_its_time() {
    let limits = ServeLimits {
        workers: 1,
        queue: 1,
        seconds: 3600.0,
        ..ServeLimits::default()
    };
    let (_folder, runtime, served, held) = held(limits);
    let address = served.address;
    std::thread::scope(|scope| {
        let first = scope.spawn(|| post(&self::runtime(), address, "/retrieve", ONE));
        held.wait_until_begun(1);
        let (status, answer) = post(&runtime, address, "/retrieve", ONE);
        assert_eq!(status, 503, "{answer}");
        held.release();
        assert_eq!(first.join().unwrap().0, 200);
    });
    let limits = ServeLimits {
        seconds: 0.05,
        ..ServeLimits::default()
    };
    let (_folder, runtime, served, held) = self::held(limits);
    assert_eq!(post(&runtime, served.address, "/retrieve", ONE).0, 504);
    held.release();
}

#[test]
fn a_stop_answers_what_is_under_way_and_takes_nothing_more() {
    let (_folder, runtime, mut served, held) = held(ServeLimits::default());
    let address = served.address;
    std::thread::scope(|scope| {
        let first = scope.spawn(|| post(&self::runtime(), address, "/retrieve", ONE));
        held.wait_until_begun(1);
        served.stop.take().unwrap().send(()).unwrap();
        // The listener closes soon after it has heard of the stop.
        let refused = runtime.block_on(async {
            loop {
                if tokio::net::TcpStream::connect(address).await.is_err() {
                    return true;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        assert!(refused);
        held.release();
        assert_eq!(first.join().unwrap().0, 200);
    });
    runtime.block_on(served.ended).unwrap().unwrap();
}

#[test]
#[cfg(unix)]
fn a_server_that_ends_takes_the_file_with_its_address_away() {
    use std::io::{BufRead as _, BufReader};
    use std::process::{Command, Stdio};
    provider();
    let folder = tempfile::tempdir().unwrap();
    let corpus = folder.path().join("c.jsonl");
    std::fs::write(&corpus, ROWS.join("\n")).unwrap();
    let places = folder.path().join("places");
    let mut child = Command::new(env!("CARGO_BIN_EXE_palimpsest"))
        .args(["serve", "--port", "0", "--corpus"])
        .arg(&corpus)
        .arg("--save-dir")
        .arg(&places)
        .env("OMP_WAIT_POLICY", "passive")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    out.read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("http://").unwrap();
    let name = format!("Host{}.txt", address.replace(':', "_IP"));
    let told = || std::fs::read_to_string(places.join(&name));
    // It is written just after the address is printed.
    while !told().is_ok_and(|text| text.trim() == address) {
        assert!(child.try_wait().unwrap().is_none(), "it ended early");
        std::thread::sleep(Duration::from_millis(10));
    }
    // A signal before it listens for one would end it at once: ask it something first.
    let health = reqwest::Client::builder().no_proxy().build().unwrap();
    let url = format!("http://{address}/health");
    runtime().block_on(async { health.get(url).send().await.unwrap() });
    let interrupt = ["-INT".to_owned(), child.id().to_string()];
    assert!(
        Command::new("kill")
            .args(interrupt)
            .status()
            .unwrap()
            .success()
    );
    assert!(child.wait().unwrap().success());
    assert!(told().is_err(), "the file is still there");
}
