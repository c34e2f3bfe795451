//! The first thing that two peers say to each other: a mutual proof that both hold the run's secret, and what each has to show
//! beyond it.
//!
//! It runs inside the transport, on a connection that TLS 1.3 (TCP) or QUIC has authenticated already, *before* the connection
//! reaches the swarm; over TCP before there are streams, over QUIC on the first one. An unproven peer therefore has nobody to
//! talk to: no identify, no gossip, nothing of ours. libp2p's own pre-shared keys can't do this over QUIC.
//!
//! ```text
//!   dialer                                          listener
//!      | -- hello: wire version, nonce d ----------->  |
//!      | <---------- challenge: wire version, nonce l  |
//!      | -- proof: MAC("dialer", d, l, D, L), pass ->  |   D, L: the authenticated peer ids
//!      | <- verdict: MAC("listener", d, l, D, L), pass |
//! ```
//!
//! The proofs are keyed blake3. They cover both nonces, so one can't be replayed on another connection, and both peer
//! ids, so a peer in the middle, which has an id of its own on either side, can't pass them on. The role keeps a proof
//! from being reflected. The secret has 256 random bits: a proof gives nothing to guess it by. A pass says by what its bearer,
//! whose key the connection proves, may be here ([`crate::access`]): it is looked at once the proof has been.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use futures::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use libp2p::PeerId;
use libp2p::core::ConnectedPoint;
use thiserror::Error;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use crate::access::pending::{Pending, Place, ip_of};
use crate::access::{Access, MAX_PASS};
use crate::credentials::invitation::DenialReason;
use crate::credentials::secret::Secret;

/// How long it may take to be admitted, encryption included.
pub(crate) const DEADLINE: Duration = Duration::from_secs(5);
/// How long a refusal may take to reach the other side before the connection is dropped under it.
const FAREWELL: Duration = Duration::from_millis(500);
/// What both sides say first. Never changes, so that any two versions understand each other this far.
const MAGIC: [u8; 8] = *b"starling";

const ADMITTED: u8 = 1;
const REFUSED: u8 = 0;
const DENIED: u8 = 2;

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
    /// The other side holds the secret, and may not be here.
    #[error("{0}")]
    Uninvited(DenialReason),
    /// The other side says that we may not be there.
    #[error("{0}")]
    Denied(DenialReason),
    /// The other side has shown that the founder has put us out.
    #[error("the run's founder has revoked this machine's key")]
    PutOut,
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
    /// Others took its place before it had proven anything.
    #[error("too many others ask to be admitted at the same time")]
    Crowded,
    /// The handshake took too long.
    #[error("it did not finish the admission handshake within {} s", DEADLINE.as_secs())]
    Late,
    /// The connection broke.
    #[error("the connection broke during the admission handshake: {0}")]
    Broken(String),
}

impl AdmissionError {
    /// Whether it may go well the next time.
    pub(crate) fn is_passing(&self) -> bool {
        matches!(self, Self::Broken(_) | Self::Crowded | Self::Late)
    }
}

impl From<io::Error> for AdmissionError {
    fn from(error: io::Error) -> Self {
        Self::Broken(error.to_string())
    }
}

/// A connection that was not admitted.
#[derive(Debug)]
pub(crate) struct Turned {
    /// The authenticated peer at the other end, if it has got that far.
    pub(crate) peer: Option<PeerId>,
    /// Whether we had dialed it.
    pub(crate) dialed: bool,
    /// Why.
    pub(crate) error: AdmissionError,
}

impl Turned {
    /// Whom to tell of: not of whoever gives up, as who dials several addresses does with all connections but one.
    pub(crate) fn news(&self) -> Option<PeerId> {
        self.peer.filter(|_| !self.dialed && !matches!(self.error, AdmissionError::Broken(_)))
    }
}

/// Decides who is admitted.
#[derive(Debug, Clone)]
pub(crate) struct Admission {
    pub(crate) me: PeerId,
    pub(crate) access: Access,
    pub(crate) wire_version: u32,
    /// Where refusals are told. A full queue drops them: they are for logs.
    pub(crate) turned: mpsc::Sender<Turned>,
    /// Where connections wait that are not admitted yet.
    pub(crate) pending: Pending,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Role {
    Dialer,
    Listener,
}

impl Admission {
    /// Takes a place for a connection that comes in. One that we dial needs none.
    pub(crate) fn place(&self, point: &ConnectedPoint) -> Result<Option<Place>, AdmissionError> {
        let ConnectedPoint::Listener { send_back_addr, .. } = point else { return Ok(None) };
        let ip = ip_of(send_back_addr).unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        self.pending.enter(ip).map(Some).ok_or(AdmissionError::Crowded)
    }

    /// Runs the handshake on a stream that is encrypted and authenticated.
    pub(crate) async fn admit_stream(
        &self,
        deadline: Instant,
        peer: PeerId,
        dialed: bool,
        stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    ) -> Result<(), AdmissionError> {
        let role = if dialed { Role::Dialer } else { Role::Listener };
        let result = match timeout_at(deadline, self.exchange(role, peer, stream)).await {
            Ok(result) => result,
            Err(_) => Err(AdmissionError::Late),
        };
        if let Err(error) = &result {
            if !matches!(error, AdmissionError::Late | AdmissionError::Broken(_)) {
                let _ = tokio::time::timeout(FAREWELL, part(stream)).await;
            }
            self.tell(Some(peer), dialed, error);
        }
        result
    }

    /// Tells of a connection that was not admitted.
    pub(crate) fn tell(&self, peer: Option<PeerId>, dialed: bool, error: &AdmissionError) {
        let _ = self.turned.try_send(Turned { peer, dialed, error: error.clone() });
    }

    pub(crate) async fn exchange(
        &self,
        role: Role,
        peer: PeerId,
        stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    ) -> Result<(), AdmissionError> {
        let ours: [u8; 32] = rand::random();
        match role {
            Role::Dialer => {
                self.send_hello(stream, &ours).await?;
                let theirs = self.receive_hello(stream).await?;
                let secret = self.access.secret_for(&peer);
                let proof = |role: &[u8]| proof_of(secret, role, &ours, &theirs, self.me, peer);
                stream.write_all(proof(b"dialer").as_bytes()).await?;
                write_part(stream, &self.access.pass()).await?;
                stream.flush().await?;
                let mut verdict = [0; 1];
                stream.read_exact(&mut verdict).await?;
                match verdict[0] {
                    ADMITTED => {}
                    REFUSED => {
                        self.access.was_refused_by(peer);
                        return Err(AdmissionError::Refused);
                    }
                    DENIED => {
                        let said = read_part(stream, usize::from(u16::MAX)).await?;
                        let said =
                            postcard::take_from_bytes::<DenialReason>(&said).map_err(|_| AdmissionError::Foreign)?;
                        let is_proven = said.0 == DenialReason::Revoked && self.access.is_put_out(self.me, said.1);
                        return Err(if is_proven { AdmissionError::PutOut } else { AdmissionError::Denied(said.0) });
                    }
                    _ => return Err(AdmissionError::Foreign),
                }
                let mut mac = [0; 32];
                stream.read_exact(&mut mac).await?;
                let pass = read_part(stream, MAX_PASS).await?;
                verify(&mac, proof(b"listener"))?;
                self.access.judge(peer, secret, &pass).map_err(|(denial, _)| AdmissionError::Uninvited(denial))
            }
            Role::Listener => {
                let theirs = self.receive_hello(stream).await;
                if matches!(theirs, Ok(_) | Err(AdmissionError::WireVersion { .. })) {
                    // A peer of another version learns which one we speak, and nothing else.
                    self.send_hello(stream, &ours).await?;
                }
                let theirs = theirs?;
                let proof = |secret, role: &[u8]| proof_of(secret, role, &theirs, &ours, peer, self.me);
                let mut received = [0; 32];
                stream.read_exact(&mut received).await?;
                // Whatever comes of it: what is left unread would break the connection before the verdict is there.
                let pass = read_part(stream, MAX_PASS).await?;
                // A member that was away may know an earlier one.
                let known = self.access.secrets().into_iter();
                let mut fitting = known.filter(|secret| verify(&received, proof(*secret, b"dialer")).is_ok());
                let Some(secret) = fitting.next() else {
                    stream.write_all(&[REFUSED]).await?;
                    stream.flush().await?;
                    return Err(AdmissionError::Unproven);
                };
                let judged = self.access.judge(peer, secret, &pass);
                if let Err((denial, proof)) = &judged {
                    let mut said = postcard::to_allocvec(denial).expect("invariant: a denial always encodes");
                    said.extend(proof);
                    stream.write_all(&[DENIED]).await?;
                    write_part(stream, &said).await?;
                } else {
                    stream.write_all(&[ADMITTED]).await?;
                    stream.write_all(proof(secret, b"listener").as_bytes()).await?;
                    write_part(stream, &self.access.pass()).await?;
                }
                stream.flush().await?;
                judged.map_err(|(denial, _)| AdmissionError::Uninvited(denial))
            }
        }
    }

    async fn send_hello(&self, stream: &mut (impl AsyncWrite + Unpin), nonce: &[u8; 32]) -> io::Result<()> {
        let mut hello = MAGIC.to_vec();
        hello.extend(self.wire_version.to_be_bytes());
        hello.extend(nonce);
        stream.write_all(&hello).await?;
        stream.flush().await
    }

    async fn receive_hello(&self, stream: &mut (impl AsyncRead + Unpin)) -> Result<[u8; 32], AdmissionError> {
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
}

fn proof_of(secret: Secret, role: &[u8], d: &[u8], l: &[u8], dialer: PeerId, listener: PeerId) -> blake3::Hash {
    secret.authenticate(&[b"admission", role, d, l, &dialer.to_bytes(), &listener.to_bytes()])
}

/// Writes bytes behind their length (u16, little-endian).
async fn write_part(stream: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> io::Result<()> {
    let length = u16::try_from(bytes.len()).map_err(|_| io::Error::other("too long to be shown"))?;
    stream.write_all(&length.to_le_bytes()).await?;
    stream.write_all(bytes).await
}

async fn read_part(stream: &mut (impl AsyncRead + Unpin), max: usize) -> Result<Vec<u8>, AdmissionError> {
    let mut length = [0; 2];
    stream.read_exact(&mut length).await?;
    let length = usize::from(u16::from_le_bytes(length));
    if length > max {
        return Err(AdmissionError::Foreign);
    }
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).await?;
    Ok(bytes)
}

/// The verdict must arrive before the connection goes: whoever refuses waits for the other side to have read it.
async fn part(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> io::Result<()> {
    stream.close().await?;
    stream.read(&mut [0]).await.map(|_| ())
}

/// Ends when a connection has lost the place that it had.
pub(crate) async fn lost(place: &mut Option<Place>) {
    match place {
        Some(place) => place.lost().await,
        None => std::future::pending().await,
    }
}

/// Compares in constant time: blake3's `Hash` promises that for its equality.
fn verify(received: &[u8], expected: blake3::Hash) -> Result<(), AdmissionError> {
    let received = <[u8; 32]>::try_from(received).map_err(|_| AdmissionError::Unproven)?;
    if blake3::Hash::from_bytes(received) == expected { Ok(()) } else { Err(AdmissionError::Unproven) }
}

#[cfg(test)]
mod tests;
