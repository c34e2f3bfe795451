//! A UDP port, and who comes there.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use futures::future::BoxFuture;
use futures::{FutureExt as _, Stream, ready};
use if_watch::IfEvent;
use if_watch::tokio::IfWatcher;
use libp2p::core::multiaddr::Protocol;
use libp2p::core::transport::{ListenerId, TransportEvent};
use libp2p::core::{Multiaddr, Transport};
use quinn::{Endpoint, Incoming};
use socket2::{Domain, Socket, Type};

use super::Quic;
use super::port::Port;
use super::settings::Settings;
use crate::access::admission::{Admission, AdmissionError};

/// First datagrams that are looked at in one go.
const BURST: usize = 64;

type Event = TransportEvent<<Quic as Transport>::ListenerUpgrade, AdmissionError>;

/// One listener of the transport.
pub(super) struct Listener {
    id: ListenerId,
    port: Port,
    at: SocketAddr,
    accept: BoxFuture<'static, Option<Incoming>>,
    /// Of all addresses of this machine, those that come and go. `None` if we listen on one.
    watcher: Option<IfWatcher>,
    /// What is told next.
    event: Option<Event>,
    is_closed: bool,
    waker: Option<Waker>,
}

impl Listener {
    pub(super) fn new(id: ListenerId, at: SocketAddr, settings: &Settings, admission: Admission) -> io::Result<Self> {
        let port = Port::new(settings.endpoint(bind(at)?, true)?, admission);
        let at = port.endpoint().local_addr()?;
        let (watcher, event) = match at.ip().is_unspecified() {
            true => (Some(IfWatcher::new()?), None),
            false => (None, Some(TransportEvent::NewAddress { listener_id: id, listen_addr: address(at.ip(), at) })),
        };
        let accept = accept(port.endpoint());
        Ok(Self { id, port, at, accept, watcher, event, is_closed: false, waker: None })
    }

    pub(super) fn id(&self) -> ListenerId {
        self.id
    }

    pub(super) fn port(&self) -> &Port {
        &self.port
    }

    /// Whether it listens on all addresses of this machine.
    pub(super) fn is_on_all(&self) -> bool {
        self.at.ip().is_unspecified()
    }

    /// Whether something that is sent from here gets there.
    pub(super) fn reaches(&self, to: SocketAddr) -> bool {
        let (ours, theirs) = (self.at.ip(), to.ip());
        !self.is_closed
            && ours.is_ipv6() == theirs.is_ipv6()
            && (ours.is_unspecified() || ours.is_loopback() == theirs.is_loopback())
    }

    /// Takes nobody any more.
    pub(super) fn close(&mut self, reason: Result<(), AdmissionError>) {
        if !self.is_closed {
            self.is_closed = true;
            self.port.endpoint().close(0_u32.into(), &[]);
            self.event = Some(TransportEvent::ListenerClosed { listener_id: self.id, reason });
            self.waker.take().into_iter().for_each(Waker::wake);
        }
    }

    /// What becomes of a first datagram. Nothing is kept of one whose sender is not where it says.
    fn receive(&self, incoming: Incoming) -> Option<Event> {
        if !incoming.remote_address_validated() {
            // It has no token yet, so that it can be asked for one.
            let _asked = incoming.retry();
            return None;
        }
        let from = incoming.remote_address();
        let pending = &self.port.admission.pending;
        let has_room = self.port.has_room(pending.expects(from.ip()));
        let Some(mut place) = has_room.then(|| pending.enter_quic(from.ip())).flatten() else {
            incoming.refuse();
            return None;
        };
        // Here, not once somebody looks at it: it has to count before the next one is.
        let connecting = incoming.accept().ok()?;
        let port = self.port.clone();
        let upgrade = async move {
            tokio::select! {
                admitted = port.admit(false, async { Ok(connecting.await?) }) => admitted,
                () = place.lost() => Err(AdmissionError::Crowded),
            }
        };
        Some(TransportEvent::Incoming {
            listener_id: self.id,
            upgrade: upgrade.boxed(),
            local_addr: address(self.at.ip(), self.at),
            send_back_addr: address(from.ip(), from),
        })
    }

    /// An address of this machine came or went.
    fn poll_addresses(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        let Some(watcher) = &mut self.watcher else { return Poll::Pending };
        loop {
            let event = ready!(watcher.poll_if_event(cx));
            let (listener_id, same) = (self.id, |ip: IpAddr| ip.is_ipv6() == self.at.is_ipv6());
            match event {
                Ok(IfEvent::Up(net)) if same(net.addr()) => {
                    let listen_addr = address(net.addr(), self.at);
                    return Poll::Ready(TransportEvent::NewAddress { listener_id, listen_addr });
                }
                Ok(IfEvent::Down(net)) if same(net.addr()) => {
                    let listen_addr = address(net.addr(), self.at);
                    return Poll::Ready(TransportEvent::AddressExpired { listener_id, listen_addr });
                }
                Ok(_) => {}
                Err(error) => return Poll::Ready(TransportEvent::ListenerError { listener_id, error: error.into() }),
            }
        }
    }
}

impl Stream for Listener {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        let this = &mut *self;
        if let Some(event) = this.event.take() {
            return Poll::Ready(Some(event));
        }
        if this.is_closed {
            return Poll::Ready(None);
        }
        if let Poll::Ready(event) = this.poll_addresses(cx) {
            return Poll::Ready(Some(event));
        }
        for _ in 0..BURST {
            let Poll::Ready(incoming) = this.accept.poll_unpin(cx) else {
                this.waker = Some(cx.waker().clone());
                return Poll::Pending;
            };
            let Some(incoming) = incoming else {
                this.close(Err(AdmissionError::Broken("its UDP socket failed".to_owned())));
                return Poll::Ready(this.event.take());
            };
            this.accept = accept(this.port.endpoint());
            if let Some(event) = this.receive(incoming) {
                return Poll::Ready(Some(event));
            }
        }
        // Others of this thread want to get on, too.
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

fn accept(endpoint: &Endpoint) -> BoxFuture<'static, Option<Incoming>> {
    let endpoint = endpoint.clone();
    async move { endpoint.accept().await }.boxed()
}

/// A socket for one family of addresses, so that there can be one for the other on the same port.
fn bind(at: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(at), Type::DGRAM, Some(socket2::Protocol::UDP))?;
    if at.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&at.into())?;
    Ok(socket.into())
}

fn address(ip: IpAddr, port: SocketAddr) -> Multiaddr {
    Multiaddr::empty().with(ip.into()).with(Protocol::Udp(port.port())).with(Protocol::QuicV1)
}
