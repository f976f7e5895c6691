//! What every HTTP client of the project has in common: how it connects, how it tells what a server
//! said, and which of its waits count as time that is taken. How often it tries and what it makes of an answer is its own affair.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use reqwest::{Client, ClientBuilder};

/// Time to open a connection.
const CONNECT: Duration = Duration::from_secs(10);

/// Time that a piece of work waits for our own sake: so far, and since when it waits now.
#[derive(Default)]
struct Held(Mutex<(Duration, Option<Instant>)>);

impl Held {
    fn time(&self) -> Duration {
        let (before, since) = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        before + since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    fn wait(&self, waits: bool) {
        let time = self.time();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = (time, waits.then(Instant::now));
    }
}

tokio::task_local! {
    static HELD: Arc<Held>;
}

/// What `work` comes to, or none if it takes longer than `limit`; what it waits in [`untimed`] does not
/// count.
pub(crate) async fn within<T>(limit: Duration, work: impl Future<Output = T>) -> Option<T> {
    let (began, held) = (Instant::now(), Arc::<Held>::default());
    let mut work = std::pin::pin!(HELD.scope(Arc::clone(&held), work));
    loop {
        let left = (limit + held.time()).saturating_sub(began.elapsed());
        if left.is_zero() {
            return None;
        }
        tokio::select! {
            biased;
            done = &mut work => return Some(done),
            () = tokio::time::sleep(left) => {}
        }
    }
}

/// Waits without it being counted by [`within`]. One at a time within a piece of work.
pub(crate) async fn untimed<T>(what: impl Future<Output = T>) -> T {
    let held = HELD.try_with(Arc::clone).ok();
    if let Some(held) = &held {
        held.wait(true);
    }
    let done = what.await;
    if let Some(held) = &held {
        held.wait(false);
    }
    done
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_of_our_own_do_not_count_and_others_do() {
        let runtime = crate::tools::start_runtime("test", 1).unwrap();
        let second = Duration::from_secs(1);
        let limit = second / 2;
        let own = within(limit, async {
            untimed(tokio::time::sleep(second)).await;
            untimed(async { 7 }).await
        });
        assert_eq!(runtime.block_on(own), Some(7));
        let others = within(limit, async {
            untimed(tokio::time::sleep(Duration::from_millis(1))).await;
            tokio::time::sleep(second * 3600).await;
        });
        assert_eq!(runtime.block_on(others), None);
        assert_eq!(
            runtime.block_on(untimed(async { 1 })),
            1,
            "where nothing is timed"
        );
    }
}
