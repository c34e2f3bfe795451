//! What two neighbours in a plan agree on, over their libp2p stream, before the first segment.
//!
//! ```text
//!   opener (sends segments)                        acceptor (receives them)
//!      | -- view, wish: direct, plain, universal -->  |
//!      | <------------------ addresses, if direct --  |   possibly none
//!      |    ... connects, within a limit ...          |
//!      | -- outcome: direct or universal ---------->  |   only after addresses
//! ```
//!
//! The opener decides, because only it knows whether it got through; both ends then use what it said.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use futures::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use starling_topology::{PeerId, ViewId};

use crate::data::handshake::Connection;
use crate::data::listener::{self, Listener, MAX_ADDRESSES};
use crate::data::{DataPlane, Door};

/// How long a direct connection may take before the libp2p stream is used.
const DIRECT_LIMIT: Duration = Duration::from_secs(1);
const UNIVERSAL: u8 = 0;
const DIRECT: u8 = 1;
/// A direct connection without encryption. Only ever a wish: its outcome is direct.
const PLAINTEXT: u8 = 2;
/// An IPv6 address (IPv4 in its mapped form), then the port, big-endian.
const ADDRESS_BYTES: usize = 18;

/// Reads the first part of a greeting: the view that the stream belongs to.
pub(crate) async fn read_view(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<ViewId> {
    let mut view = [0; 32];
    stream.read_exact(&mut view).await?;
    Ok(ViewId(view))
}

/// The opener's part. `None` means that segments go over `stream`. With [`DataPlane::Direct`], all of `limit` is for
/// the connection.
///
/// # Errors
/// If the stream fails, or the link must be direct and can't be.
pub(super) async fn open(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    door: &Door,
    receiver: PeerId,
    view: ViewId,
    limit: Duration,
) -> io::Result<Option<Connection>> {
    let wish = wish(door.mode);
    stream.write_all(&view.0).await?;
    stream.write_all(&[wish]).await?;
    stream.flush().await?;
    if wish == UNIVERSAL {
        return Ok(None);
    }
    let addresses = read_addresses(stream).await?;
    let limit = if door.mode.insists() { limit } else { DIRECT_LIMIT.min(limit) };
    let dialed = listener::dial(&addresses, &door.keypair, door.purpose(view, receiver), limit).await;
    stream.write_all(&[if dialed.is_ok() { DIRECT } else { UNIVERSAL }]).await?;
    stream.flush().await?;
    match dialed {
        Ok(connection) => {
            // The stream has said all that it was opened for.
            stream.close().await?;
            Ok(Some(connection))
        }
        Err(error) if door.mode.insists() => Err(io::Error::other(error)),
        Err(error) => {
            tracing::info!(%error, "a link goes over a libp2p stream");
            Ok(None)
        }
    }
}

/// The acceptor's part, once the view is read. `None` means that segments come over `stream`.
///
/// # Errors
/// If the stream fails or brings no greeting, or the link must be direct and is not.
pub(super) async fn answer(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    door: &Door,
    sender: PeerId,
    view: ViewId,
) -> io::Result<Option<Connection>> {
    let theirs = read_wish(stream).await?;
    if (theirs == PLAINTEXT) != (door.mode == DataPlane::Plaintext) {
        let sealed = "only one of the two members sends without encryption: set network.data to the same on both";
        return Err(io::Error::other(sealed));
    }
    let connection = if theirs == UNIVERSAL { None } else { meet(stream, door, sender, view).await? };
    if connection.is_none() && door.mode.insists() {
        return Err(io::Error::other("it has no direct connection to this member"));
    }
    Ok(connection)
}

/// Tells where to connect to, and waits for the outcome.
async fn meet(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    door: &Door,
    sender: PeerId,
    view: ViewId,
) -> io::Result<Option<Connection>> {
    let ips: &[IpAddr] = if door.mode == DataPlane::Universal { &[] } else { &door.ips };
    let listener = Listener::bind(ips).await;
    stream.write_all(&encode(&listener.addresses())).await?;
    stream.flush().await?;
    let purpose = door.purpose(view, sender);
    // The two are read side by side: the opener says "direct" only after its connection was taken here.
    let mut accepted = std::pin::pin!(listener.accept(&door.keypair, purpose));
    let mut taken = None;
    let outcome = {
        let mut outcome = std::pin::pin!(read_choice(stream));
        tokio::select! {
            outcome = &mut outcome => outcome?,
            result = &mut accepted => {
                taken = Some(result);
                outcome.await?
            }
        }
    };
    if outcome == UNIVERSAL {
        // A connection may have got through just too late.
        return Ok(None);
    }
    let taken = match taken {
        Some(taken) => taken,
        None => accepted.await,
    };
    taken.map(Some).map_err(io::Error::other)
}

fn wish(mode: DataPlane) -> u8 {
    match mode {
        DataPlane::Universal => UNIVERSAL,
        DataPlane::Auto | DataPlane::Direct | DataPlane::Local => DIRECT,
        DataPlane::Plaintext => PLAINTEXT,
    }
}

async fn read_wish(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<u8> {
    let mut wish = [0];
    stream.read_exact(&mut wish).await?;
    match wish[0] {
        wish @ (UNIVERSAL | DIRECT | PLAINTEXT) => Ok(wish),
        other => Err(io::Error::other(format!("{other} names no transport"))),
    }
}

async fn read_choice(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<u8> {
    let mut choice = [0];
    stream.read_exact(&mut choice).await?;
    match choice[0] {
        choice @ (UNIVERSAL | DIRECT) => Ok(choice),
        other => Err(io::Error::other(format!("{other} names no transport"))),
    }
}

fn encode(addresses: &[SocketAddr]) -> Vec<u8> {
    let count = addresses.len().min(MAX_ADDRESSES);
    let mut bytes = vec![u8::try_from(count).expect("invariant: there are few addresses")];
    for address in &addresses[..count] {
        let ip = match address.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        bytes.extend(ip.octets());
        bytes.extend(address.port().to_be_bytes());
    }
    bytes
}

async fn read_addresses(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<SocketAddr>> {
    let mut count = [0];
    stream.read_exact(&mut count).await?;
    let count = usize::from(count[0]);
    if count > MAX_ADDRESSES {
        return Err(io::Error::other(format!("{count} addresses where at most {MAX_ADDRESSES} are allowed")));
    }
    let mut bytes = [0; MAX_ADDRESSES * ADDRESS_BYTES];
    let bytes = &mut bytes[..count * ADDRESS_BYTES];
    stream.read_exact(bytes).await?;
    let (addresses, _) = bytes.as_chunks::<ADDRESS_BYTES>();
    let decode = |bytes: &[u8; ADDRESS_BYTES]| {
        let octets: [u8; 16] = std::array::from_fn(|index| bytes[index]);
        let port = u16::from_be_bytes([bytes[16], bytes[17]]);
        SocketAddr::new(Ipv6Addr::from(octets).to_canonical(), port)
    };
    Ok(addresses.iter().map(decode).collect())
}

#[cfg(test)]
mod tests;
