//! A small corpus, servers on free ports, and a client that asks them.

use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use axum::Router;
use palimpsest::experiment::RetrieverSettings;
use palimpsest::retrieval::{Corpus, LexicalIndex, Library, RetrieverClient, ServeLimits, serve};
use palimpsest::tools::{Runtime, start_runtime};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

pub const ROWS: [&str; 4] = [
    r#"{"id": "0", "contents": "\"Ulm\"\nUlm is a city in Germany. Its mayor is Ann Lee.", "url": "http://w/index.php/Ulm", "source": "hand"}"#,
    r#"{"id": "1", "contents": "\"Rome\"\nRome is a town in Italy.", "url": "http://w/Rome"}"#,
    r#"{"id": "2", "contents": "\"Ulm\"\nThe minster of Ulm is high.", "url": "http://w/index.php/Ulm"}"#,
    r#"{"id": "3", "contents": "\"Tea\"\nTea is a drink from China."}"#,
];

pub fn library(folder: &Path) -> Library {
    let path = folder.join("c.jsonl");
    std::fs::write(&path, ROWS.join("\n")).unwrap();
    let corpus = Arc::new(Corpus::open(&path, &mut |_, _, _| {}).unwrap());
    let retriever = Arc::new(LexicalIndex::open(&corpus, &mut |_, _, _| {}).unwrap());
    Library { corpus, retriever }
}

pub fn runtime() -> Runtime {
    start_runtime("test", 2).unwrap()
}

/// Our own server, and what stops it.
pub struct Served {
    pub address: SocketAddr,
    pub stop: Option<oneshot::Sender<()>>,
    pub ended: tokio::task::JoinHandle<std::io::Result<()>>,
}

pub fn ours(runtime: &Runtime, library: Library, limits: ServeLimits) -> Served {
    let listener = listener(runtime);
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let ended = runtime.spawn(serve(listener, library, limits, async {
        stopped.await.ok();
    }));
    Served {
        address,
        stop: Some(stop),
        ended,
    }
}

/// A server with these routes.
pub fn theirs(runtime: &Runtime, routes: Router) -> SocketAddr {
    let listener = listener(runtime);
    let address = listener.local_addr().unwrap();
    runtime.spawn(async move { axum::serve(listener, routes).await });
    address
}

/// A server that answers every connection with these bytes, however many, and closes it.
pub fn raw<F>(
    runtime: &Runtime,
    answer: impl Fn(tokio::net::TcpStream) -> F + Send + 'static,
) -> SocketAddr
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = listener(runtime);
    let address = listener.local_addr().unwrap();
    runtime.spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(stream));
        }
    });
    address
}

pub fn listener(runtime: &Runtime) -> TcpListener {
    runtime
        .block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))
        .unwrap()
}

/// Impatient settings, so that tests end soon.
pub fn settings(address: SocketAddr) -> RetrieverSettings {
    RetrieverSettings {
        url: format!("http://{address}"),
        tries: 3,
        retry_seconds: 0.01,
        timeout_seconds: 20.0,
        ..RetrieverSettings::default()
    }
}

pub fn client(address: SocketAddr) -> RetrieverClient {
    RetrieverClient::new(&settings(address)).unwrap()
}

/// A plain request, as any program would send it: status, headers and body.
pub fn post(runtime: &Runtime, address: SocketAddr, path: &str, body: &str) -> (u16, Value) {
    let plain = reqwest::Client::builder()
        .no_proxy()
        .tls_certs_only(std::iter::empty())
        .build()
        .unwrap();
    let url = format!("http://{address}{path}");
    runtime.block_on(async {
        let sent = plain
            .post(url)
            .header("content-type", "application/json")
            .body(body.to_owned())
            .send();
        let response = sent.await.unwrap();
        let status = response.status().as_u16();
        let text = response.text().await.unwrap();
        (
            status,
            serde_json::from_str(&text).unwrap_or(Value::String(text)),
        )
    })
}
