//! What every HTTP client of the project has in common: how it connects, and how it tells what a server
//! said. How often it tries and what it makes of an answer is its own affair.

use std::time::Duration;

use reqwest::{Client, ClientBuilder};

/// Time to open a connection.
const CONNECT: Duration = Duration::from_secs(10);

/// A client of the server at `url`. Redirects are not followed: one could lead anywhere, also to what only
/// this machine may reach, and would carry a key along. Such servers stand near: a proxy meant for the
/// outside would only be in the way.
pub(crate) fn client_of(url: &str) -> ClientBuilder {
    // Someone may have chosen a provider already; any will do.
    rustls::crypto::ring::default_provider()
        .install_default()
        .ok();
    let builder = Client::builder()
        .connect_timeout(CONNECT)
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy();
    if url.starts_with("http://") {
        // No certificates are needed, so none need to be installed.
        return builder.tls_certs_only(std::iter::empty());
    }
    builder
}

/// At most `most` bytes of the beginning of an answer, for a message.
pub(crate) fn beginning(bytes: &[u8], most: usize) -> String {
    let head = bytes.get(..most).unwrap_or(bytes);
    String::from_utf8_lossy(head).trim().to_owned()
}

/// Whether JSON ends before it is whole.
pub(crate) fn breaks_off(bytes: &[u8]) -> bool {
    serde_json::from_slice::<serde::de::IgnoredAny>(bytes).is_err_and(|error| error.is_eof())
}

/// An error with its causes; reqwest says little in the first line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
