use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU32, Ordering};

use axum::Router;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Redirect};
use axum::routing::get;
use tokio::net::TcpListener;

use super::*;
use crate::tools::{Runtime, start_runtime};

/// A server on this machine, and how many requests it has seen.
fn server(runtime: &Runtime, routes: Router) -> (SocketAddr, Arc<AtomicU32>) {
    let seen = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&seen);
    let routes = routes.layer(axum::middleware::from_fn(
        move |request: axum::extract::Request, next: axum::middleware::Next| {
            count.fetch_add(1, Ordering::SeqCst);
            next.run(request)
        },
    ));
    let listener = runtime
        .block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))
        .unwrap();
    let address = listener.local_addr().unwrap();
    runtime.spawn(async move { axum::serve(listener, routes).await });
    (address, seen)
}

/// Takes one server of this machine for the public internet, under any name that ends in `.test`.
fn pages(public: SocketAddr) -> LivePages {
    LivePages {
        look_up: |host, port| {
            Box::pin(async move {
                let host = if host.ends_with(".test") {
                    "127.0.0.1".to_owned()
                } else {
                    host
                };
                Ok(tokio::net::lookup_host((host, port)).await?.collect())
            })
        },
        allowed: Arc::new(move |address| *address == public || is_public(address.ip())),
    }
}

#[test]
fn pages_are_read_by_name_and_over_redirects_as_text() {
    let runtime = start_runtime("test", 1).unwrap();
    let page = || async { axum::response::Html("<p>Ulm is a city.</p>") };
    let routes = Router::new()
        .route("/page", get(page))
        .route("/moved", get(|| async { Redirect::permanent("/page") }))
        .route("/circle", get(|| async { Redirect::temporary("/circle") }))
        .route(
            "/image",
            get(|| async { ([(CONTENT_TYPE, "image/png")], "x").into_response() }),
        );
    let (address, _) = server(&runtime, routes);
    let live = pages(address);
    let read = |path: &str| {
        let url = format!("http://wiki.test:{}{path}", address.port());
        runtime.block_on(live.read(&url))
    };
    assert_eq!(read("/page").unwrap(), "Ulm is a city.");
    assert_eq!(read("/moved").unwrap(), "Ulm is a city.");
    assert_eq!(read("/circle"), Err(LiveError::Redirects));
    assert_eq!(
        read("/none"),
        Err(LiveError::Status(StatusCode::NOT_FOUND.as_u16()))
    );
    assert_eq!(read("/image"), Err(LiveError::NoText("image/png".into())));
}

#[test]
fn nothing_of_this_machine_or_its_network_is_read_by_address_name_or_redirect() {
    let runtime = start_runtime("test", 1).unwrap();
    let (secret, seen) = server(
        &runtime,
        Router::new().route("/", get(|| async { "secret" })),
    );
    let port = secret.port();
    let to_secret = format!("http://127.0.0.1:{port}/");
    let by_name = format!("http://localhost:{port}/");
    let routes = Router::new()
        .route(
            "/by-address",
            get(|| async move { Redirect::temporary(&to_secret) }),
        )
        .route(
            "/by-name",
            get(|| async move { Redirect::temporary(&by_name) }),
        );
    let (public, _) = server(&runtime, routes);
    let live = pages(public);
    let base = format!("http://wiki.test:{}", public.port());
    for url in [
        format!("{base}/by-address"),
        format!("{base}/by-name"),
        format!("http://127.0.0.1:{port}/"),
        format!("http://2130706433:{port}/"),
        format!("http://0x7f.1:{port}/"),
        format!("http://[::1]:{port}/"),
        format!("http://[::ffff:127.0.0.1]:{port}/"),
        format!("http://localhost:{port}/"),
        format!("http://any.test:{port}/"),
        "http://169.254.169.254/latest/meta-data/".to_owned(),
        "http://10.0.0.1/".to_owned(),
    ] {
        let refused = runtime.block_on(live.read(&url));
        assert!(
            matches!(refused, Err(LiveError::Forbidden(_))),
            "{url}: {refused:?}"
        );
    }
    for url in [
        "file:///etc/passwd",
        "ftp://127.0.0.1/",
        "page",
        "http://user@127.0.0.1/",
        "http://:secret@127.0.0.1/",
    ] {
        let refused = runtime.block_on(live.read(url));
        assert!(
            matches!(refused, Err(LiveError::NoAddress(_))),
            "{url}: {refused:?}"
        );
    }
    assert_eq!(
        seen.load(Ordering::SeqCst),
        0,
        "a forbidden server was asked"
    );
}
