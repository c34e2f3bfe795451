//! A connection and its streams, as libp2p wants them.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use futures::{AsyncRead, AsyncWrite, FutureExt as _, ready};
use libp2p::core::muxing::{StreamMuxer, StreamMuxerEvent};
use quinn::{Connection, ConnectionError, RecvStream, SendStream};

use super::port::IsOurs;

type Opening = BoxFuture<'static, Result<(SendStream, RecvStream), ConnectionError>>;

/// A connection that is admitted.
pub(super) struct Muxer {
    connection: Connection,
    inbound: Option<Opening>,
    outbound: Option<Opening>,
    closing: Option<BoxFuture<'static, ConnectionError>>,
    _is_ours: IsOurs,
}

impl Muxer {
    pub(super) fn new(connection: Connection, is_ours: IsOurs) -> Self {
        Self { connection, inbound: None, outbound: None, closing: None, _is_ours: is_ours }
    }
}

impl StreamMuxer for Muxer {
    type Substream = Stream;
    type Error = io::Error;

    fn poll_inbound(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<Stream>> {
        let connection = self.connection.clone();
        let inbound = self.inbound.get_or_insert_with(|| async move { connection.accept_bi().await }.boxed());
        let opened = ready!(inbound.poll_unpin(cx));
        self.inbound = None;
        Poll::Ready(Ok(Stream::from(opened?)))
    }

    fn poll_outbound(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<Stream>> {
        let connection = self.connection.clone();
        let outbound = self.outbound.get_or_insert_with(|| async move { connection.open_bi().await }.boxed());
        let opened = ready!(outbound.poll_unpin(cx));
        self.outbound = None;
        Poll::Ready(Ok(Stream::from(opened?)))
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let connection = self.connection.clone();
        let closing = self.closing.get_or_insert_with(|| {
            connection.close(0_u32.into(), &[]);
            async move { connection.closed().await }.boxed()
        });
        match ready!(closing.poll_unpin(cx)) {
            ConnectionError::LocallyClosed => Poll::Ready(Ok(())),
            error => Poll::Ready(Err(error.into())),
        }
    }

    /// The connection makes progress in a task of quinn's, and an address never changes: migration is off.
    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<StreamMuxerEvent>> {
        Poll::Pending
    }
}

/// Both directions of a stream as one.
#[derive(Debug)]
pub(super) struct Stream {
    send: SendStream,
    receive: RecvStream,
    /// How closing it went. libp2p may close it again.
    closed: Option<Result<(), io::ErrorKind>>,
}

impl From<(SendStream, RecvStream)> for Stream {
    fn from((send, receive): (SendStream, RecvStream)) -> Self {
        Self { send, receive, closed: None }
    }
}

impl AsyncRead for Stream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        AsyncRead::poll_read(Pin::new(&mut self.receive), cx, buffer)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        AsyncWrite::poll_write(Pin::new(&mut self.send), cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        AsyncWrite::poll_flush(Pin::new(&mut self.send), cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(closed) = self.closed {
            return Poll::Ready(closed.map_err(io::Error::from));
        }
        let closed = ready!(AsyncWrite::poll_close(Pin::new(&mut self.send), cx));
        self.closed = Some(closed.as_ref().copied().map_err(io::Error::kind));
        Poll::Ready(closed)
    }
}
