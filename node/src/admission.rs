//! The first thing that two peers say to each other: a mutual proof that both hold the run's secret.
//!
//! It runs inside the transport, on the first substream of a connection that TLS 1.3 (TCP) or QUIC has authenticated
//! already, *before* the connection reaches the swarm. An unproven peer therefore has nobody to talk to: no identify,
//! no Kademlia, no gossip, nothing of ours. libp2p's own pre-shared keys can't do this over QUIC.
//!
//! ```text
//!   dialer                                          listener
//!      | -- hello: wire version, nonce d ----------->  |
//!      | <---------- challenge: wire version, nonce l  |
//!      | -- proof: MAC("dialer", d, l, D, L) ------->  |   D, L: the authenticated peer ids
//!      | <-- verdict: MAC("listener", d, l, D, L) ---  |
//! ```
//!
//! The proofs are keyed blake3. They cover both nonces, so one can't be replayed on another connection, and both peer
//! ids, so a peer in the middle, which has an id of its own on either side, can't pass them on. The role keeps a proof
//! from being reflected. The secret has 256 random bits: a proof gives nothing to guess it by.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::{AsyncReadExt, AsyncWriteExt};
use libp2p::PeerId;
use libp2p::core::ConnectedPoint;
use libp2p::core::muxing::{StreamMuxerBox, StreamMuxerExt, SubstreamBox};
use thiserror::Error;
use tokio::sync::mpsc;

use crate::secret::Secret;

/// How long the whole handshake may take.
const DEADLINE: Duration = Duration::from_secs(5);
/// How long a refusal may take to reach the other side before the connection is dropped under it.
const FAREWELL: Duration = Duration::from_millis(500);
/// What both sides say first. Never changes, so that any two versions understand each other this far.
const MAGIC: [u8; 8] = *b"starling";

const ADMITTED: u8 = 1;
const REFUSED: u8 = 0;

/// Why a connection was not admitted.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AdmissionError {
    /// The other side does not know the run's secret.
    #[error("it could not prove that it holds the run's secret")]
    Unproven,
    /// The other side says that we don't know the run's secret.
    #[error(
        "it does not accept our proof of the run's secret: the run is private and the ticket or secret is not its own; use the ticket that `starling invite` prints there"
    )]
    Refused,
    /// The two speak different protocols.
    #[error("wire version: ours {ours}, theirs {theirs}; use the same release of starling on both machines")]
    WireVersion {
        /// Our version.
        ours: u32,
        /// The other side's.
        theirs: u32,
    },
    /// The other side is no Starling peer.
    #[error("it does not speak starling's admission handshake")]
    Foreign,
    /// The handshake took too long.
    #[error("it did not finish the admission handshake within {} s", DEADLINE.as_secs())]
    Late,
    /// The connection broke.
    #[error("the connection broke during the admission handshake: {0}")]
    Broken(String),
}

impl From<io::Error> for AdmissionError {
    fn from(error: io::Error) -> Self {
        Self::Broken(error.to_string())
    }
}

/// A connection that was not admitted.
#[derive(Debug)]
pub(crate) struct Turned {
    /// The authenticated peer at the other end.
    pub(crate) peer: PeerId,
    /// Whether we had dialed it.
    pub(crate) dialed: bool,
    /// Why.
    pub(crate) error: AdmissionError,
}

impl Turned {
    /// Whether it is worth telling: who dials several addresses drops all connections but one.
    pub(crate) fn is_news(&self) -> bool {
        !self.dialed && !matches!(self.error, AdmissionError::Broken(_))
    }
}

/// Decides who is admitted.
#[derive(Debug, Clone)]
pub(crate) struct Admission {
    pub(crate) me: PeerId,
    pub(crate) secret: Secret,
    pub(crate) wire_version: u32,
    /// Where refusals are told. A full queue drops them: they are for logs.
    pub(crate) turned: mpsc::Sender<Turned>,
}

#[derive(Debug, Clone, Copy)]
enum Role {
    Dialer,
    Listener,
}

impl Admission {
    /// Runs the handshake on a fresh connection and hands the connection on if both sides have proven themselves.
    pub(crate) async fn admit(
        self,
        peer: PeerId,
        mut muxer: StreamMuxerBox,
        point: ConnectedPoint,
    ) -> Result<(PeerId, StreamMuxerBox), AdmissionError> {
        let role = if point.is_dialer() { Role::Dialer } else { Role::Listener };
        let result = match tokio::time::timeout(DEADLINE, self.shake(role, peer, &mut muxer)).await {
            Ok(result) => result,
            Err(_) => Err(AdmissionError::Late),
        };
        match result {
            Ok(()) => Ok((peer, muxer)),
            Err(error) => {
                // Closing in order lets a refusal arrive; a peer that does not take it is dropped all the same.
                let _ = tokio::time::timeout(FAREWELL, muxer.close()).await;
                let dialed = point.is_dialer();
                let _ = self.turned.try_send(Turned { peer, dialed, error: error.clone() });
                Err(error)
            }
        }
    }

    async fn shake(&self, role: Role, peer: PeerId, muxer: &mut StreamMuxerBox) -> Result<(), AdmissionError> {
        let mut stream = poll_fn(|cx| {
            let opened = match role {
                Role::Dialer => muxer.poll_outbound_unpin(cx),
                Role::Listener => muxer.poll_inbound_unpin(cx),
            };
            if opened.is_pending() {
                poll_muxer(muxer, cx)?;
            }
            opened
        })
        .await?;
        let result = drive(muxer, self.exchange(role, peer, &mut stream)).await?;
        // The verdict must arrive before the connection goes: whoever refuses waits for the other side to have read it.
        let parting = async {
            stream.close().await?;
            match result {
                Ok(()) => Ok(0),
                Err(_) => stream.read(&mut [0]).await,
            }
        };
        let _ = tokio::time::timeout(FAREWELL, drive(muxer, parting)).await;
        result
    }

    async fn exchange(&self, role: Role, peer: PeerId, stream: &mut SubstreamBox) -> Result<(), AdmissionError> {
        let ours: [u8; 32] = rand::random();
        match role {
            Role::Dialer => {
                self.send_hello(stream, &ours).await?;
                let theirs = self.receive_hello(stream).await?;
                let proof = |role: &[u8]| self.proof(role, &ours, &theirs, self.me, peer);
                stream.write_all(proof(b"dialer").as_bytes()).await?;
                stream.flush().await?;
                let mut verdict = [0; 33];
                stream.read_exact(&mut verdict[..1]).await?;
                match verdict[0] {
                    ADMITTED => {}
                    REFUSED => return Err(AdmissionError::Refused),
                    _ => return Err(AdmissionError::Foreign),
                }
                stream.read_exact(&mut verdict[1..]).await?;
                verify(&verdict[1..], proof(b"listener"))
            }
            Role::Listener => {
                let theirs = self.receive_hello(stream).await;
                if matches!(theirs, Ok(_) | Err(AdmissionError::WireVersion { .. })) {
                    // A peer of another version learns which one we speak, and nothing else.
                    self.send_hello(stream, &ours).await?;
                }
                let theirs = theirs?;
                let proof = |role: &[u8]| self.proof(role, &theirs, &ours, peer, self.me);
                let mut received = [0; 32];
                stream.read_exact(&mut received).await?;
                let verified = verify(&received, proof(b"dialer"));
                if verified.is_ok() {
                    stream.write_all(&[ADMITTED]).await?;
                    stream.write_all(proof(b"listener").as_bytes()).await?;
                } else {
                    stream.write_all(&[REFUSED]).await?;
                }
                stream.flush().await?;
                verified
            }
        }
    }

    async fn send_hello(&self, stream: &mut SubstreamBox, nonce: &[u8; 32]) -> io::Result<()> {
        let mut hello = MAGIC.to_vec();
        hello.extend(self.wire_version.to_be_bytes());
        hello.extend(nonce);
        stream.write_all(&hello).await?;
        stream.flush().await
    }

    async fn receive_hello(&self, stream: &mut SubstreamBox) -> Result<[u8; 32], AdmissionError> {
        let mut magic = [0; MAGIC.len()];
        stream.read_exact(&mut magic).await?;
        if magic != MAGIC {
            return Err(AdmissionError::Foreign);
        }
        let mut version = [0; 4];
        stream.read_exact(&mut version).await?;
        let mut nonce = [0; 32];
        stream.read_exact(&mut nonce).await?;
        let (ours, theirs) = (self.wire_version, u32::from_be_bytes(version));
        if ours == theirs { Ok(nonce) } else { Err(AdmissionError::WireVersion { ours, theirs }) }
    }

    fn proof(&self, role: &[u8], d: &[u8], l: &[u8], dialer: PeerId, listener: PeerId) -> blake3::Hash {
        self.secret.authenticate(&[b"admission", role, d, l, &dialer.to_bytes(), &listener.to_bytes()])
    }
}

/// Compares in constant time: blake3's `Hash` promises that for its equality.
fn verify(received: &[u8], expected: blake3::Hash) -> Result<(), AdmissionError> {
    let received = <[u8; 32]>::try_from(received).map_err(|_| AdmissionError::Unproven)?;
    if blake3::Hash::from_bytes(received) == expected { Ok(()) } else { Err(AdmissionError::Unproven) }
}

/// Runs `exchange` while letting the connection make progress under it.
async fn drive<T>(muxer: &mut StreamMuxerBox, exchange: impl Future<Output = T>) -> io::Result<T> {
    let mut exchange = pin!(exchange);
    poll_fn(|cx| {
        if let Poll::Ready(result) = exchange.as_mut().poll(cx) {
            return Poll::Ready(Ok(result));
        }
        match poll_muxer(muxer, cx) {
            Ok(()) => Poll::Pending,
            // The connection may have brought the last bytes and its end together.
            Err(error) => match exchange.as_mut().poll(cx) {
                Poll::Ready(result) => Poll::Ready(Ok(result)),
                Poll::Pending => Poll::Ready(Err(error)),
            },
        }
    })
    .await
}

/// Lets the connection make progress. A change of address concerns the swarm, which learns it later.
fn poll_muxer(muxer: &mut StreamMuxerBox, cx: &mut Context<'_>) -> io::Result<()> {
    while let Poll::Ready(event) = muxer.poll_unpin(cx) {
        event?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
