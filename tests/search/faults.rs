//! Servers that are dead, slow, lying or endless.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Redirect};
use axum::routing::{any, post};
use palimpsest::retrieval::{Passage, RetrieverClient, ServedError};
use palimpsest::tools::Runtime;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::world::{client, listener, raw, runtime, settings, theirs};

fn ask(runtime: &Runtime, client: &RetrieverClient) -> Result<Vec<Vec<Passage>>, ServedError> {
    runtime.block_on(client.retrieve(&["q".to_owned()], 3))
}

/// Reads a request, or what of it comes first.
async fn request(stream: &mut tokio::net::TcpStream) -> usize {
    let mut asked = [0; 4096];
    stream.read(&mut asked).await.unwrap_or(0)
}

/// A server that answers so, and counts how often it was asked.
fn answering(
    runtime: &Runtime,
    status: StatusCode,
    body: &'static str,
) -> (std::net::SocketAddr, Arc<AtomicU32>) {
    let count = Arc::new(AtomicU32::new(0));
    let seen = Arc::clone(&count);
    let route = post(move || async move {
        seen.fetch_add(1, Ordering::SeqCst);
        (status, body)
    });
    (
        theirs(runtime, Router::new().route("/retrieve", route)),
        count,
    )
}

#[test]
fn a_dead_server_is_tried_again_and_then_given_up() {
    let runtime = runtime();
    let listener = listener(&runtime);
    let address = listener.local_addr().unwrap();
    drop(listener);
    let error = ask(&runtime, &client(address)).unwrap_err();
    assert!(
        matches!(error, ServedError::Unreachable { tries: 3, .. }),
        "{error}"
    );
    // The policy reads the text: no address of ours stands in it.
    assert!(
        !error.to_string().contains(&address.port().to_string()),
        "{error}"
    );
}

#[test]
fn a_failing_server_is_tried_again_and_a_refusing_one_is_not() {
    let runtime = runtime();
    for (status, tries) in [
        (StatusCode::INTERNAL_SERVER_ERROR, 3),
        (StatusCode::BAD_GATEWAY, 3),
        (StatusCode::SERVICE_UNAVAILABLE, 3),
        (StatusCode::GATEWAY_TIMEOUT, 3),
        (StatusCode::TOO_MANY_REQUESTS, 3),
        (StatusCode::NOT_FOUND, 1),
        (StatusCode::UNPROCESSABLE_ENTITY, 1),
    ] {
        let (address, count) = answering(&runtime, status, "no");
        let error = ask(&runtime, &client(address)).unwrap_err();
        let expected = ServedError::Status {
            status: status.as_u16(),
            tries,
            said: "no".into(),
        };
        assert_eq!(error, expected);
        assert_eq!(count.load(Ordering::SeqCst), tries, "{status}");
    }
}

#[test]
fn a_server_that_recovers_is_heard() {
    let runtime = runtime();
    let count = Arc::new(AtomicU32::new(0));
    let route = post(move || async move {
        if count.fetch_add(1, Ordering::SeqCst) < 2 {
            return StatusCode::SERVICE_UNAVAILABLE.into_response();
        }
        r#"{"result": [[{"contents": "\"T\"\nB"}]]}"#.into_response()
    });
    let address = theirs(&runtime, Router::new().route("/retrieve", route));
    assert_eq!(ask(&runtime, &client(address)).unwrap()[0][0].title(), "T");
}

#[test]
fn a_server_that_asks_for_a_wait_is_not_asked_before() {
    let runtime = runtime();
    let begun = Arc::new(std::sync::Mutex::new(Vec::new()));
    let times = Arc::clone(&begun);
    let route = post(move || async move {
        let mut times = times.lock().unwrap();
        times.push(std::time::Instant::now());
        if times.len() < 2 {
            return (StatusCode::SERVICE_UNAVAILABLE, [("retry-after", "1")]).into_response();
        }
        r#"{"result": [[]]}"#.into_response()
    });
    let address = theirs(&runtime, Router::new().route("/retrieve", route));
    assert_eq!(ask(&runtime, &client(address)), Ok(vec![vec![]]));
    let times = begun.lock().unwrap();
    assert!(times[1] - times[0] >= Duration::from_secs(1));
}

#[test]
fn lies_are_told_apart_from_answers() {
    let runtime = runtime();
    for (body, said) in [
        ("<html>", "no JSON"),
        ("\u{0}\u{1}garbage", "no JSON"),
        ("[]", "no list \"result\""),
        (r#"{"result": 3}"#, "no list \"result\""),
        (r#"{"result": []}"#, "0 results for 1 queries"),
        (r#"{"result": [[], []]}"#, "2 results for 1 queries"),
        (r#"{"result": [null]}"#, "no list"),
        (r#"{"result": [[{"score": 1}]]}"#, "no text \"contents\""),
        (
            r#"{"result": [[{"document": {"contents": 5}, "score": 1}]]}"#,
            "no text \"contents\"",
        ),
    ] {
        let (address, count) = answering(&runtime, StatusCode::OK, body);
        let error = ask(&runtime, &client(address)).unwrap_err();
        assert!(matches!(error, ServedError::Nonsense(_)), "{body}: {error}");
        assert!(error.to_string().contains(said), "{body}: {error}");
        assert_eq!(
            count.load(Ordering::SeqCst),
            1,
            "a lie is not asked for again"
        );
    }
    // Cut off JSON may be whole the next time.
    let (address, count) = answering(&runtime, StatusCode::OK, r#"{"result": [["#);
    let error = ask(&runtime, &client(address)).unwrap_err();
    assert!(error.to_string().contains("breaks off"), "{error}");
    assert_eq!(count.load(Ordering::SeqCst), 3);
}

#[test]
fn an_answer_that_promises_more_than_it_sends_is_no_answer() {
    let runtime = runtime();
    let address = raw(&runtime, |mut stream| async move {
        request(&mut stream).await;
        let head = "HTTP/1.1 200 OK\r\ncontent-length: 5000\r\n\r\n{\"result\": [[";
        stream.write_all(head.as_bytes()).await.ok();
    });
    let error = ask(&runtime, &client(address)).unwrap_err();
    assert!(matches!(error, ServedError::Unreachable { .. }), "{error}");
}

#[test]
fn silence_and_a_slow_drip_end_with_the_time_of_a_try() {
    let runtime = runtime();
    let silent = raw(&runtime, |stream| async move {
        tokio::time::sleep(Duration::from_secs(3600)).await;
        drop(stream);
    });
    let dripping = raw(&runtime, |mut stream| async move {
        request(&mut stream).await;
        let head = "HTTP/1.1 200 OK\r\ncontent-length: 5000\r\n\r\n";
        stream.write_all(head.as_bytes()).await.ok();
        while stream.write_all(b" ").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    for address in [silent, dripping] {
        let mut impatient = settings(address);
        impatient.timeout_seconds = 0.1;
        impatient.tries = 2;
        let error = ask(&runtime, &RetrieverClient::new(&impatient).unwrap()).unwrap_err();
        assert!(
            error.to_string().contains("no whole answer within 0.1 s"),
            "{error}"
        );
    }
}

#[test]
fn a_hundred_megabytes_are_not_taken_in_whether_they_are_announced_or_not() {
    const PIECES: u32 = 1600;
    let runtime = runtime();
    for announced in [true, false] {
        let sent = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&sent);
        let address = raw(&runtime, move |mut stream| {
            let count = Arc::clone(&count);
            async move {
                request(&mut stream).await;
                let length = if announced {
                    format!("content-length: {}\r\n", PIECES * 65536)
                } else {
                    String::new()
                };
                let head = format!("HTTP/1.1 200 OK\r\n{length}connection: close\r\n\r\n");
                stream.write_all(head.as_bytes()).await.ok();
                for _ in 0..PIECES {
                    if stream.write_all(&[b' '; 65536]).await.is_err() {
                        return;
                    }
                    count.fetch_add(1, Ordering::SeqCst);
                }
            }
        });
        let error = ask(&runtime, &client(address)).unwrap_err();
        assert_eq!(error, ServedError::TooLong { limit: 8 << 20 });
        assert!(
            sent.load(Ordering::SeqCst) < PIECES,
            "it was read to its end"
        );
    }
}

#[test]
fn a_redirect_to_this_machine_is_not_followed() {
    let runtime = runtime();
    let asked = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&asked);
    let secret = theirs(
        &runtime,
        Router::new().fallback(any(move || async move {
            seen.store(true, Ordering::SeqCst);
            Body::from(r#"{"result": [[]]}"#)
        })),
    );
    for redirect in [Redirect::permanent, Redirect::temporary, Redirect::to] {
        let target = format!("http://127.0.0.1:{}/retrieve", secret.port());
        let route = post(move || async move { redirect(&target) });
        let address = theirs(&runtime, Router::new().route("/retrieve", route));
        let error = ask(&runtime, &client(address)).unwrap_err();
        assert!(
            error.to_string().contains("redirects are not followed"),
            "{error}"
        );
    }
    assert!(!asked.load(Ordering::SeqCst));
}

#[test]
fn a_dropped_request_drops_its_connection() {
    let runtime = runtime();
    let (told, hears) = std::sync::mpsc::channel();
    let address = raw(&runtime, move |mut stream| {
        let told = told.clone();
        async move {
            let mut asked = [0; 4096];
            // The request, then the end of the connection.
            while stream.read(&mut asked).await.is_ok_and(|count| count > 0) {
                told.send("asked").ok();
            }
            told.send("closed").ok();
        }
    });
    let client = Arc::new(client(address));
    let request = runtime.spawn({
        let client = Arc::clone(&client);
        async move { client.retrieve(&["q".to_owned()], 1).await }
    });
    let patience = Duration::from_secs(60);
    assert_eq!(hears.recv_timeout(patience), Ok("asked"));
    request.abort();
    while hears
        .recv_timeout(patience)
        .expect("the connection stayed open")
        != "closed"
    {}
}
