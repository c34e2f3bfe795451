//! QUIC v1 (RFC 9000) over quinn, as libp2p speaks it, with what libp2p's own transport has no hook for: nothing is kept for a
//! datagram whose sender's address is not verified, and until a connection is admitted it has one stream and a small window.
//!
//! A first datagram is answered with a Retry (RFC 9000, section 8.1.2), which costs us no memory; whoever comes back with its
//! token is where it says it is, and takes one of the places that TCP connections take, too. Then TLS, with libp2p's
//! certificates, and the admission handshake on the first stream. All of it has one deadline.

mod listener;
mod muxer;
mod port;
mod settings;

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use futures::future::BoxFuture;
use futures::stream::SelectAll;
use futures::{FutureExt as _, StreamExt as _};
use libp2p::PeerId;
use libp2p::core::multiaddr::Protocol;
use libp2p::core::muxing::StreamMuxerBox;
use libp2p::core::transport::{DialOpts, ListenerId, PortUse, TransportError, TransportEvent};
use libp2p::core::{Endpoint, Multiaddr, Transport};

use crate::access::admission::{Admission, AdmissionError};
use crate::credentials::identity::Identity;
use listener::Listener;
use port::Port;
use settings::Settings;

type Admitted = Result<(PeerId, StreamMuxerBox), AdmissionError>;

/// The transport. A connection that comes out of it is encrypted, authenticated and admitted.
pub(super) struct Quic {
    settings: Settings,
    admission: Admission,
    listeners: SelectAll<Listener>,
    /// Where we dial from in each family of addresses (is it IPv6?) in which we don't listen.
    dialers: BTreeMap<bool, Port>,
    /// Whoever polls, to hear of a new listener.
    waker: Option<Waker>,
}

impl Quic {
    pub(super) fn new(identity: &Identity, admission: Admission) -> io::Result<Self> {
        let settings = Settings::new(identity)?;
        let (listeners, dialers) = (SelectAll::new(), BTreeMap::new());
        Ok(Self { settings, admission, listeners, dialers, waker: None })
    }

    /// Where to dial an address from: if it may be, a port that we listen on, so that the other side sees one address of ours.
    fn port(&mut self, to: SocketAddr, port_use: PortUse) -> io::Result<Port> {
        if port_use == PortUse::Reuse {
            let reaching = self.listeners.iter().filter(|listener| listener.reaches(to));
            // One on all addresses has the right one for each way.
            let listener = reaching.max_by_key(|listener| listener.is_on_all()).map(Listener::port);
            if let Some(port) = listener.or_else(|| self.dialers.get(&to.is_ipv6())) {
                return Ok(port.clone());
            }
        }
        let any: IpAddr = match to.is_ipv6() {
            true => Ipv6Addr::UNSPECIFIED.into(),
            false => Ipv4Addr::UNSPECIFIED.into(),
        };
        let endpoint = self.settings.endpoint(UdpSocket::bind((any, 0))?, false)?;
        let port = Port::new(endpoint, self.admission.clone());
        if port_use == PortUse::Reuse {
            self.dialers.insert(to.is_ipv6(), port.clone());
        }
        Ok(port)
    }
}

impl Transport for Quic {
    type Output = (PeerId, StreamMuxerBox);
    type Error = AdmissionError;
    type ListenerUpgrade = BoxFuture<'static, Admitted>;
    type Dial = BoxFuture<'static, Admitted>;

    fn listen_on(&mut self, id: ListenerId, address: Multiaddr) -> Result<(), TransportError<Self::Error>> {
        let at = socket_address(&address).ok_or(TransportError::MultiaddrNotSupported(address))?;
        let listener = Listener::new(id, at, &self.settings, self.admission.clone());
        self.listeners.push(listener.map_err(|error| TransportError::Other(error.into()))?);
        // From now on we dial from there.
        self.dialers.remove(&at.is_ipv6());
        self.waker.take().into_iter().for_each(Waker::wake);
        Ok(())
    }

    fn remove_listener(&mut self, id: ListenerId) -> bool {
        let listener = self.listeners.iter_mut().find(|listener| listener.id() == id);
        listener.map(|listener| listener.close(Ok(()))).is_some()
    }

    fn dial(&mut self, address: Multiaddr, options: DialOpts) -> Result<Self::Dial, TransportError<Self::Error>> {
        let to = socket_address(&address).filter(|to| to.port() != 0 && !to.ip().is_unspecified());
        // No holes are punched here.
        let to = to.filter(|_| options.role == Endpoint::Dialer);
        let to = to.ok_or(TransportError::MultiaddrNotSupported(address))?;
        let other = |error: io::Error| TransportError::Other(error.into());
        let port = self.port(to, options.port_use).map_err(other)?;
        let connecting = port.connect(self.settings.client(), to).map_err(|error| {
            // If it is the port that has failed, the next one is another.
            self.dialers.remove(&to.is_ipv6());
            other(error)
        })?;
        Ok(async move { port.admit(true, async { Ok(connecting.await?) }).await }.boxed())
    }

    fn poll(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<TransportEvent<Self::ListenerUpgrade, Self::Error>> {
        if let Poll::Ready(Some(event)) = self.listeners.poll_next_unpin(cx) {
            return Poll::Ready(event);
        }
        self.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

/// The UDP port that `/ip4/A/udp/P/quic-v1`, or the same with `/ip6`, is about. A peer's id may follow.
fn socket_address(address: &Multiaddr) -> Option<SocketAddr> {
    let mut parts = address.iter();
    let ip = match parts.next()? {
        Protocol::Ip4(ip) => ip.into(),
        Protocol::Ip6(ip) => ip.into(),
        _ => return None,
    };
    let (Protocol::Udp(port), Protocol::QuicV1) = (parts.next()?, parts.next()?) else { return None };
    parts.all(|part| matches!(part, Protocol::P2p(_))).then_some(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_libp2p_writes_them() {
        let read = |text: &str| socket_address(&text.parse().expect("a multiaddr"));
        let peer = PeerId::random();
        assert_eq!(read("/ip4/192.0.2.1/udp/7/quic-v1"), Some(([192, 0, 2, 1], 7).into()));
        assert_eq!(read(&format!("/ip6/::1/udp/7/quic-v1/p2p/{peer}")), Some((Ipv6Addr::LOCALHOST, 7).into()));
        for other in ["/ip4/192.0.2.1/tcp/7", "/ip4/192.0.2.1/udp/7/quic", "/ip4/192.0.2.1/udp/7/quic-v1/p2p-circuit"] {
            assert_eq!(read(other), None, "{other}");
        }
    }
}
