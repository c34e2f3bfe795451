//! How a joiner learns what a run trains.

use std::io;
use std::time::Duration;

use futures::{AsyncRead, AsyncWrite};
use libp2p::PeerId;
use serde::{Deserialize, Serialize};
use starling_train::Manifest;
use tokio::sync::mpsc;

use crate::frame;

/// A manifest is a few hundred bytes; this leaves room and stops a flood.
const MAX_BYTES: usize = 128 * 1024;
/// How long one exchange may take.
const DEADLINE: Duration = Duration::from_secs(10);

/// What a joiner asks.
#[derive(Debug, Serialize, Deserialize)]
struct Request {
    /// The joiner's own manifest, if it has one that differs: the member then names what differs, to its user too.
    manifest: Option<Vec<u8>>,
}

/// What a member answers: its manifest's canonical bytes.
#[derive(Debug, Serialize, Deserialize)]
struct Reply {
    manifest: Vec<u8>,
}

/// A joiner whose manifest differs from ours.
#[derive(Debug)]
pub(crate) struct Mismatch {
    pub(crate) peer: PeerId,
    pub(crate) differences: String,
}

/// Asks a member for its manifest, showing it ours if that differs from what we heard before.
pub(crate) async fn ask(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    ours: Option<&Manifest>,
) -> io::Result<Manifest> {
    let exchange = async {
        let request = Request { manifest: ours.map(Manifest::encode) };
        frame::write(&mut stream, &encode(&request)).await?;
        let reply: Reply = decode(&frame::read(&mut stream, MAX_BYTES).await?)?;
        Manifest::decode(&reply.manifest).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    };
    tokio::time::timeout(DEADLINE, exchange).await?
}

/// Answers one joiner.
pub(crate) async fn answer(
    peer: PeerId,
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    manifest: &Manifest,
    mismatches: &mpsc::Sender<Mismatch>,
) -> io::Result<()> {
    let exchange = async {
        let request: Request = decode(&frame::read(&mut stream, MAX_BYTES).await?)?;
        let theirs = request.manifest.map(|bytes| Manifest::decode(&bytes));
        if let Some(Ok(theirs)) = theirs {
            let differences = describe(&manifest.differences(&theirs));
            // The queue is for the log: a flood of strangers' manifests must not fill memory.
            let _ = mismatches.try_send(Mismatch { peer, differences });
        }
        frame::write(&mut stream, &encode(&Reply { manifest: manifest.encode() })).await
    };
    tokio::time::timeout(DEADLINE, exchange).await?
}

/// Differences as one line.
pub(crate) fn describe(differences: &[starling_train::Difference]) -> String {
    differences.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

fn encode(message: &impl Serialize) -> Vec<u8> {
    postcard::to_allocvec(message).expect("invariant: these messages always encode")
}

fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> io::Result<T> {
    let invalid = |message: String| io::Error::new(io::ErrorKind::InvalidData, message);
    let (message, rest) = postcard::take_from_bytes(bytes).map_err(|error| invalid(error.to_string()))?;
    if rest.is_empty() { Ok(message) } else { Err(invalid("bytes after the message".into())) }
}
