//! The client against a scripted socket, and answers read field by field.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use serde_json::{Value, json};

use super::http::{Http, Patience};
use super::reply::{Ask, End};
use super::{RemoteError, ScoreWay, openai, sglang};
use crate::experiment::ServerSettings;
use crate::tools::{Runtime, start_runtime};

/// Answers connections one after the other with these raw bytes; gives its address.
fn socket(answers: Vec<String>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for answer in answers {
            let (mut stream, _) = listener.accept().unwrap();
            let mut head = [0; 4096];
            let _read = stream.read(&mut head).unwrap();
            stream.write_all(answer.as_bytes()).ok();
        }
    });
    url
}

fn http(status: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
}

fn settings(url: String) -> ServerSettings {
    ServerSettings {
        url,
        tries: 3,
        retry_seconds: 0.001,
        ..ServerSettings::default()
    }
}

fn runtime() -> Runtime {
    start_runtime("test", 1).unwrap()
}

fn post(settings: &ServerSettings) -> Result<Value, RemoteError> {
    let client = Http::new(settings).unwrap();
    runtime().block_on(client.post("/x", &json!({}), "a test", Patience::Work))
}

#[test]
fn a_connection_that_breaks_off_and_busy_servers_are_tried_again() {
    let broken = "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"a\"".to_owned();
    for trouble in [
        broken,
        http("200 OK", "{\"a\": [1, 2"),
        http("500 Internal Server Error", "oh"),
        http("429 Too Many Requests", ""),
        http("503 Service Unavailable", ""),
        String::new(),
    ] {
        let url = socket(vec![
            trouble.clone(),
            trouble.clone(),
            http("200 OK", "{\"a\": 1}"),
        ]);
        let said = post(&settings(url)).unwrap_or_else(|error| panic!("{trouble}: {error}"));
        assert_eq!(said, json!({"a": 1}));
    }
}

#[test]
fn tries_come_to_an_end_and_say_what_the_last_one_was() {
    let url = socket(vec![http("502 Bad Gateway", "no worker"); 3]);
    let error = post(&settings(url)).unwrap_err();
    assert!(
        matches!(&error, RemoteError::Failing { status: 502, tries: 3, said, .. } if said == "no worker"),
        "{error}"
    );
    // Nobody listens where somebody has just stopped.
    let url = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}", listener.local_addr().unwrap())
    };
    let error = post(&settings(url)).unwrap_err();
    assert!(
        matches!(error, RemoteError::Unreachable { tries: 3, .. }),
        "{error}"
    );
    assert!(
        error.to_string().contains("engine.generator.url"),
        "{error}"
    );
}

#[test]
fn a_refusal_and_nonsense_are_not_tried_again() {
    let url = socket(vec![
        http("400 Bad Request", "no such field"),
        http("200 OK", "{}"),
    ]);
    let error = post(&settings(url)).unwrap_err();
    assert!(
        matches!(error, RemoteError::Refused { status: 400, .. }),
        "{error}"
    );
    assert!(error.to_string().contains("no such field"), "{error}");
    let url = socket(vec![http("200 OK", "<html>"), http("200 OK", "{}")]);
    let error = post(&settings(url)).unwrap_err();
    assert!(matches!(error, RemoteError::NotJson { .. }), "{error}");
    let url = socket(vec![
        http("200 OK", "{\"logprob\": NaN}"),
        http("200 OK", "{}"),
    ]);
    let error = post(&settings(url)).unwrap_err();
    assert!(matches!(error, RemoteError::NotJson { .. }), "{error}");
}

#[test]
fn an_answer_without_end_and_a_slow_one_are_given_up() {
    let endless = format!("HTTP/1.1 200 OK\r\n\r\n{}", " ".repeat((64 << 20) + 1));
    let error = post(&settings(socket(vec![endless]))).unwrap_err();
    assert!(matches!(error, RemoteError::TooLong { .. }), "{error}");
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let slow = ServerSettings {
        timeout_seconds: 0.05,
        ..settings(format!("http://{}", silent.local_addr().unwrap()))
    };
    let error = post(&slow).unwrap_err();
    assert!(matches!(error, RemoteError::TimedOut { .. }), "{error}");
    assert!(error.to_string().contains("timeout_seconds"), "{error}");
}

#[test]
fn a_v1_at_the_end_of_an_address_is_left_off() {
    for url in [
        "http://h:1",
        "http://h:1/",
        "http://h:1/v1",
        "http://h:1/v1/",
    ] {
        assert_eq!(
            Http::new(&settings(url.into())).unwrap().url(),
            "http://h:1"
        );
    }
}

fn ask<'a>(stop: &'a [String]) -> Ask<'a> {
    Ask {
        what: "a test",
        context: &[5, 6, 7],
        max_new_tokens: 4,
        temperature: 0.5,
        seed: 9,
        stop,
    }
}

#[test]
fn what_a_model_could_set_behind_our_back_is_said() {
    let stop = ["</search>".to_owned()];
    let body = sglang::generate_body(&ask(&stop), false);
    let sampling = &body["sampling_params"];
    assert_eq!(body["input_ids"], json!([5, 6, 7]));
    assert_eq!(sampling["stop"], json!(["</search>"]));
    assert_eq!(sampling["no_stop_trim"], json!(true));
    for body in [sampling, &openai::generate_body(&ask(&stop), "m")] {
        assert_eq!(body["temperature"], json!(0.5));
        assert_eq!(body["top_p"], json!(1.0));
        assert_eq!(body["top_k"], json!(-1));
        assert_eq!(body["min_p"], json!(0.0));
        assert_eq!(body["repetition_penalty"], json!(1.0));
        assert_eq!(body["skip_special_tokens"], json!(false));
    }
    // An unknown field refuses the request in SGLang.
    assert!(sampling.get("sampling_seed").is_none());
    let seeded = sglang::generate_body(&ask(&[]), true);
    assert_eq!(seeded["sampling_params"]["sampling_seed"], json!(9));
    assert!(seeded["sampling_params"].get("stop").is_none());
}

#[test]
fn ids_of_completions_are_found_in_each_of_their_places() {
    let read = |choice: Value| {
        let reply = json!({"choices": [choice], "usage": {"prompt_tokens": 3}});
        openai::read_generated(&ask(&[]), &reply)
    };
    let lists = json!({"tokens": ["token_id:8", "token_id:9"], "token_logprobs": [-1.0, -2.0]});
    for choice in [
        json!({"finish_reason": "stop", "token_ids": [8, 9], "logprobs": lists}),
        json!({"finish_reason": "stop", "logprobs": lists}),
        json!({"finish_reason": "stop", "logprobs": {"content": [
            {"id": 8, "logprob": -1.0}, {"id": 9, "logprob": -2.0}
        ]}}),
    ] {
        let answer = read(choice).unwrap();
        assert_eq!(answer.ids, Some(vec![8, 9]));
        assert_eq!(answer.logprobs, Some(vec![-1.0, -2.0]));
        assert_eq!(answer.end, End::Text);
    }
    let texts = json!({"tokens": ["a", "b"], "token_logprobs": [-1.0, -2.0]});
    let text = read(json!({"finish_reason": "length", "text": "ab", "logprobs": texts})).unwrap();
    assert_eq!((text.ids, text.end), (None, End::Length));
    let other =
        read(json!({"finish_reason": "stop", "token_ids": [8], "prompt_token_ids": [5, 6]}));
    assert!(
        other
            .unwrap_err()
            .to_string()
            .contains("not the ids that were sent")
    );
}

#[test]
fn minus_infinity_is_read_however_it_is_written_and_never_for_a_sampled_token() {
    let scored = |entry: Value| {
        let reply = json!({"meta_info": {"prompt_tokens": 3, "input_token_logprobs": [
            [null, 6, null], [entry, 7, null]
        ]}});
        sglang::read_scored("a test", &reply, &[5, 6, 7], 2)
    };
    for written in [
        json!(null),
        json!("-inf"),
        json!("-Infinity"),
        json!(-9999.0),
        json!(-3.4e38),
    ] {
        assert_eq!(scored(written).unwrap(), [-9999.0]);
    }
    assert_eq!(scored(json!(-0.25)).unwrap(), [-0.25]);
    assert_eq!(scored(json!(1e-9)).unwrap(), [0.0]);
    for bad in [
        json!("NaN"),
        json!(0.5),
        json!([1]),
        json!("inf"),
        json!(true),
    ] {
        assert!(scored(bad.clone()).is_err(), "{bad}");
    }
    let sampled = json!({"choices": [{"finish_reason": "stop", "token_ids": [8],
        "logprobs": {"token_logprobs": [null]}}]});
    let error = openai::read_generated(&ask(&[]), &sampled).unwrap_err();
    assert!(error.to_string().contains("that was sampled"), "{error}");
}

#[test]
fn scores_that_do_not_belong_to_the_ids_are_refused() {
    let ids = [5, 6, 7];
    let native = |entries: Value| {
        let reply = json!({"meta_info": {"input_token_logprobs": entries}});
        sglang::read_scored("a test", &reply, &ids, 2)
    };
    // Only the wanted one: the first of a list can be null, so nothing would be known of it.
    assert!(native(json!([[-0.5, 7, null]])).is_err());
    assert!(native(json!([[null, 5, null], [-0.5, 6, null]])).is_err());
    assert!(native(json!([[-0.5]])).is_err());
    let table = |entries: Value| {
        let reply = json!({"choices": [{"prompt_logprobs": entries}]});
        openai::read_scored("a test", &reply, &ids, 2, ScoreWay::PromptLogprobs)
    };
    let of = |id: &str| json!({id: {"logprob": -0.5}});
    assert_eq!(table(json!([null, of("6"), of("7")])).unwrap(), [-0.5]);
    for bad in [
        json!([null, of("6")]),
        json!([null, of("7"), of("6")]),
        json!([null, of("6"), null]),
        json!([null, of("6"), {"7": {}}]),
    ] {
        assert!(table(bad.clone()).is_err(), "{bad}");
    }
    let echo = |tokens: Value, values: Value| {
        let reply =
            json!({"choices": [{"logprobs": {"tokens": tokens, "token_logprobs": values}}]});
        openai::read_scored("a test", &reply, &ids, 2, ScoreWay::Echo)
    };
    let spelled = json!(["token_id:5", "token_id:6", "token_id:7", "token_id:1"]);
    let values = json!([null, -1.0, -0.5, -2.0]);
    assert_eq!(echo(spelled, values.clone()).unwrap(), [-0.5]);
    let shifted = json!(["token_id:6", "token_id:7", "token_id:1", "token_id:2"]);
    assert!(echo(shifted, values).is_err());
}
