//! Our client and the servers of the peers, and our own.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use axum::routing::post;
use axum::{Json, Router};
use palimpsest::experiment::ResultShape;
use palimpsest::retrieval::{Passage, RetrieverClient, ServeLimits};
use palimpsest::tools::{ServedSearch, ToolCall, ToolLink};
use palimpsest::trajectory::{Action, TrajectoryId};
use serde_json::{Value, json};

use super::world::{client, library, ours, runtime, settings, theirs};

#[test]
fn our_client_reads_our_server() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = runtime();
    let served = ours(&runtime, library(folder.path()), ServeLimits::default());
    // verl names the whole route, Search-R1 too.
    let mut named = settings(served.address);
    named.url += "/retrieve";
    for client in [
        client(served.address),
        RetrieverClient::new(&named).unwrap(),
    ] {
        let queries = ["tea".to_owned(), "mayor of Ulm".to_owned()];
        let found = runtime.block_on(client.retrieve(&queries, 1)).unwrap();
        assert_eq!((found[0][0].title(), found[0][0].url.as_str()), ("Tea", ""));
        assert_eq!(found[1][0].url, "http://w/index.php/Ulm");
        let urls = ["http://w/Rome".to_owned(), "http://nowhere".to_owned()];
        let pages = runtime.block_on(client.access(&urls)).unwrap();
        assert_eq!(
            pages[0].as_deref(),
            Some("\"Rome\"\nRome is a town in Italy.")
        );
        assert_eq!(pages[1], None);
    }
}

#[test]
fn our_client_reads_search_r1s_scored_rows_and_asearchers_bare_ones() {
    let runtime = runtime();
    let asked = Arc::new(Mutex::new(Vec::<Value>::new()));
    for answer in [
        json!({"result": [[{"document": {"id": "7", "contents": "\"T\"\nB"}, "score": 0.5}, {"document": {"contents": "\"U\"\nC"}, "score": 0.25}]]}),
        json!({"result": [[{"contents": "\"T\"\nB", "url": "u"}, {"contents": "\"U\"\nC", "url": "v"}, {"contents": "more than was asked for"}]]}),
    ] {
        let heard = Arc::clone(&asked);
        let route = post(move |Json(body): Json<Value>| async move {
            heard.lock().unwrap().push(body);
            Json(answer)
        });
        let address = theirs(&runtime, Router::new().route("/retrieve", route));
        let found = runtime
            .block_on(client(address).retrieve(&["q".to_owned()], 2))
            .unwrap();
        let titles: Vec<&str> = found[0].iter().map(Passage::title).collect();
        assert_eq!(titles, ["T", "U"]);
    }
    let body = json!({"queries": ["q"], "topk": 2, "return_scores": true});
    assert_eq!(*asked.lock().unwrap(), [body.clone(), body]);
}

#[test]
fn the_rate_holds_for_all_requests_together() {
    let runtime = runtime();
    let count = Arc::new(AtomicU32::new(0));
    let seen = Arc::clone(&count);
    let route = post(move || async move {
        seen.fetch_add(1, Ordering::SeqCst);
        Json(json!({"result": [[]]}))
    });
    let address = theirs(&runtime, Router::new().route("/retrieve", route));
    let mut slow = settings(address);
    slow.rate = 2;
    let client = Arc::new(RetrieverClient::new(&slow).unwrap());
    let asked: Vec<_> = (0..5)
        .map(|_| {
            let client = Arc::clone(&client);
            runtime.spawn(async move { client.retrieve(&["q".to_owned()], 1).await })
        })
        .collect();
    // Two at once, then one every half second: the fifth waits its turn and is answered all the same.
    for one in asked {
        assert_eq!(runtime.block_on(one).unwrap().unwrap(), [[]]);
    }
    assert_eq!(count.load(Ordering::SeqCst), 5);
}

#[test]
fn what_a_call_waits_for_our_own_rate_is_no_time_of_the_tool() {
    let runtime = runtime();
    let route = post(|| async { Json(json!({"result": [[{"contents": "\"T\"\nB"}]]})) });
    let address = theirs(&runtime, Router::new().route("/retrieve", route));
    let mut slow = settings(address);
    slow.rate = 2;
    let search = ServedSearch {
        client: Arc::new(RetrieverClient::new(&slow).unwrap()),
        passages: 1,
        shape: ResultShape::SearchR1,
    };
    // The last waits two seconds for its turn, twice as long as a call may take.
    let mut link = ToolLink::start(vec![Arc::new(search)], 1.0, 120).unwrap();
    for turn in 0..6 {
        link.call(ToolCall {
            id: TrajectoryId::default(),
            turn,
            action: Action::Search("q".into()),
            question: Arc::default(),
        });
    }
    link.wait_for_all().unwrap();
    for reply in link.take_replies() {
        assert_eq!(reply.result.as_deref(), Ok("Doc 1(Title: \"T\") B\n"));
    }
}
