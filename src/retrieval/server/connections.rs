//! Connections of a server: so many at a time, and none that says nothing for long.

use std::future::Future as _;
use std::io::{Error, ErrorKind, Result};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep};

/// A pause after the system could not accept a connection: it may have run out of files.
const PAUSE: Duration = Duration::from_millis(100);
/// A connection may be silent for as long as a request takes, and so much longer.
const SPARE: Duration = Duration::from_secs(5);

/// A listener that takes a connection only while there is room.
pub(super) struct Connections {
    listener: TcpListener,
    room: Arc<Semaphore>,
    silence: Duration,
}

impl Connections {
    /// Room for `most` connections. One is dropped when it neither says nor takes anything for
    /// longer than a request (`patience`) and a bit.
    pub(super) fn new(listener: TcpListener, most: usize, patience: Duration) -> Self {
        Self {
            listener,
            room: Arc::new(Semaphore::new(most.max(1))),
            silence: patience + SPARE,
        }
    }
}

impl Listener for Connections {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        let place = Arc::clone(&self.room).acquire_owned().await.ok();
        loop {
            match self.listener.accept().await {
                Ok((stream, from)) => {
                    let connection = Connection {
                        stream,
                        silence: self.silence,
                        alarm: Box::pin(tokio::time::sleep(self.silence)),
                        _place: place,
                    };
                    return (connection, from);
                }
                Err(error) => {
                    tracing::warn!("a connection could not be accepted: {error}");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    fn local_addr(&self) -> Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that ends when nothing moves.
pub(super) struct Connection {
    stream: TcpStream,
    silence: Duration,
    alarm: Pin<Box<Sleep>>,
    _place: Option<OwnedSemaphorePermit>,
}

impl Connection {
    /// What came of reading or writing, or the end if nothing has come for too long.
    fn watched<T>(&mut self, cx: &mut Context<'_>, polled: Poll<Result<T>>) -> Poll<Result<T>> {
        if polled.is_ready() {
            self.alarm.as_mut().reset(Instant::now() + self.silence);
            return polled;
        }
        self.alarm
            .as_mut()
            .poll(cx)
            .map(|()| Err(Error::from(ErrorKind::TimedOut)))
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        self.watched(cx, polled)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.watched(cx, polled)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
