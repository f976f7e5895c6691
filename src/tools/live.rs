//! Pages of the live web, where an experiment allows them: never those of this machine or of its
//! network.
//!
//! A name is resolved once, all its addresses are checked, and the connection goes to those very
//! addresses, so that a name cannot mean something else a moment later. Redirects are followed by hand,
//! each checked in the same way.

mod addresses;
mod html;

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use reqwest::header::{CONTENT_TYPE, LOCATION};
use reqwest::{Response, Url};

use super::{NO_PAGE, Tool, ToolCall, ToolError, ToolFuture};
use crate::http::client_of;
use crate::trajectory::Action;
use addresses::is_public;
use html::text_of_html;

/// Most redirects of one page.
const REDIRECTS: usize = 5;
/// So much of a page is read, bytes.
const PAGE_BYTES: usize = 2 << 20;
/// What the requests say they are.
const AGENT: &str = concat!("palimpsest/", env!("CARGO_PKG_VERSION"));

/// The addresses of a name and a port.
type Looked = Pin<Box<dyn Future<Output = std::io::Result<Vec<SocketAddr>>> + Send>>;

/// Reads pages of the live web.
pub struct LivePages {
    look_up: fn(String, u16) -> Looked,
    allowed: Arc<dyn Fn(&SocketAddr) -> bool + Send + Sync>,
}

/// Why a page is not read. The texts go to the policy.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(super) enum LiveError {
    #[error("{0:?} is no address of a page; it must be http://.. or https://..")]
    NoAddress(String),
    #[error("{0:?} leads to a private, loopback or link-local address, which is never read")]
    Forbidden(String),
    #[error("more than {REDIRECTS} redirects")]
    Redirects,
    #[error("the page answered {0}")]
    Status(u16),
    #[error("the page is {0:?}, which is no text")]
    NoText(String),
    #[error("the page could not be reached ({0})")]
    Unreachable(String),
}

impl Default for LivePages {
    fn default() -> Self {
        Self {
            look_up: |host, port| {
                Box::pin(async move { Ok(tokio::net::lookup_host((host, port)).await?.collect()) })
            },
            allowed: Arc::new(|address| is_public(address.ip())),
        }
    }
}

impl LivePages {
    /// The text of a page.
    pub(super) async fn read(&self, address: &str) -> Result<String, LiveError> {
        let no_address = || LiveError::NoAddress(address.to_owned());
        let mut url = Url::parse(address.trim()).map_err(|_| no_address())?;
        for _ in 0..=REDIRECTS {
            let response = self.open(&url).await?;
            if !response.status().is_redirection() {
                return text_of(response).await;
            }
            let target = response.headers().get(LOCATION);
            let target = target.and_then(|target| target.to_str().ok());
            url = target
                .and_then(|target| url.join(target).ok())
                .ok_or(LiveError::Status(response.status().as_u16()))?;
        }
        Err(LiveError::Redirects)
    }

    /// One request, to addresses that were checked.
    async fn open(&self, url: &Url) -> Result<Response, LiveError> {
        let no_address = || LiveError::NoAddress(url.to_string());
        if !matches!(url.scheme(), "http" | "https")
            || !url.username().is_empty()
            || url.password().is_some()
        {
            return Err(no_address());
        }
        let host = url.host_str().ok_or_else(no_address)?;
        let port = url.port_or_known_default().ok_or_else(no_address)?;
        // The brackets of an IPv6 address belong to the URL.
        let bare = host
            .trim_start_matches('[')
            .trim_end_matches(']')
            .to_owned();
        let found = (self.look_up)(bare, port).await;
        let found = found.map_err(|error| LiveError::Unreachable(error.to_string()))?;
        if found.is_empty() {
            return Err(LiveError::Unreachable("the name has no address".to_owned()));
        }
        // One forbidden address among several is reason enough.
        if !found.iter().all(|address| (self.allowed)(address)) {
            return Err(LiveError::Forbidden(url.to_string()));
        }
        let builder = client_of(url.as_str())
            .user_agent(AGENT)
            .resolve_to_addrs(host, &found);
        let unreachable =
            |error: reqwest::Error| LiveError::Unreachable(error.without_url().to_string());
        let client = builder.build().map_err(unreachable)?;
        client.get(url.clone()).send().await.map_err(unreachable)
    }
}

/// The text of an answer, up to a limit.
async fn text_of(mut response: Response) -> Result<String, LiveError> {
    if !response.status().is_success() {
        return Err(LiveError::Status(response.status().as_u16()));
    }
    let kind = response
        .headers()
        .get(CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok())
        .unwrap_or("text/html")
        .to_ascii_lowercase();
    let readable = [
        "text/",
        "application/json",
        "application/xhtml",
        "application/xml",
    ];
    if !readable.iter().any(|start| kind.starts_with(start)) {
        return Err(LiveError::NoText(kind));
    }
    let mut bytes = Vec::new();
    while bytes.len() < PAGE_BYTES {
        match response.chunk().await {
            Ok(Some(chunk)) => bytes.extend_from_slice(&chunk),
            Ok(None) => break,
            Err(error) => return Err(LiveError::Unreachable(error.without_url().to_string())),
        }
    }
    bytes.truncate(PAGE_BYTES);
    // A long page is work, and the runtime's threads only wait.
    let read = tokio::task::spawn_blocking(move || {
        let text = String::from_utf8_lossy(&bytes);
        if kind.contains("html") {
            text_of_html(&text)
        } else {
            text.into_owned()
        }
    });
    read.await
        .map_err(|_| LiveError::Unreachable("it cannot be read".to_owned()))
}

/// `<access>`: what another tool has, else the live page.
pub struct LiveAccess {
    /// The pages of the corpus.
    pub inner: Arc<dyn Tool>,
    /// The live ones.
    pub pages: Arc<LivePages>,
}

impl Tool for LiveAccess {
    fn name(&self) -> &'static str {
        "access"
    }

    fn serves(&self, action: &Action) -> bool {
        self.inner.serves(action)
    }

    fn call(&self, call: ToolCall) -> ToolFuture {
        let Action::Access(url) = call.action.clone() else {
            return self.inner.call(call);
        };
        let (known, pages) = (self.inner.call(call), Arc::clone(&self.pages));
        Box::pin(async move {
            let known = known.await?;
            if known != NO_PAGE {
                return Ok(known);
            }
            pages.read(&url).await.map_err(|error| ToolError::Failed {
                name: "access".into(),
                problem: error.to_string(),
            })
        })
    }
}

#[cfg(test)]
mod tests;
