//! Whether members can dial this machine: before it takes part, and while it is a leaf, it listens, and asks a few of them to.

use std::collections::BTreeSet;
use std::future::Future;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, StreamExt};
use starling_engine::ReachSearch;
use starling_engine::leaf::reach_search::{Input, Output, ReachStatus, answer_limit};
use starling_run::Manifest;
use starling_topology::{Contact, PeerId, RunId, Time};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use crate::access::{Access, Credentials};
use crate::credentials::identity::{Identity, from_libp2p, to_libp2p};
use crate::error::NodeError;
use crate::net::frame;
use crate::net::listen::{self, Places};
use crate::net::network::{Network, Part};
use crate::net::streams;
use crate::settings::Settings;
use crate::start::client::dialer::CheckpointDialer;

/// Where a peer is to be dialed: no contact is longer.
const MAX_CONTACT_BYTES: usize = 4096;
/// A member dials so many at a time.
const MAX_DIALING: usize = 4;
const REACHED: u8 = 1;
const NOT_REACHED: u8 = 0;

/// What a member dials peers with that ask it to.
pub(crate) struct ReachProvider {
    run: RunId,
    credentials: Credentials,
    room: Semaphore,
    /// Who is being dialed.
    dialed: Mutex<BTreeSet<PeerId>>,
    limit: Duration,
}

impl ReachProvider {
    /// Gives each dial half of the time that whoever asks for it waits.
    pub(crate) fn new(run: RunId, credentials: Credentials, max_stall: Duration) -> Arc<Self> {
        let (room, dialed) = (Semaphore::new(MAX_DIALING), Mutex::default());
        Arc::new(Self { run, credentials, room, dialed, limit: answer_limit(max_stall) / 2 })
    }

    /// Dials one peer that asks for it, where it says that it is, and says what came of that.
    pub(crate) async fn serve(&self, peer: PeerId, mut stream: impl AsyncRead + AsyncWrite + Unpin) {
        let answer = async {
            let contact: Contact = frame::decode(&frame::read(&mut stream, MAX_CONTACT_BYTES).await?)?;
            // Nobody has others dialed.
            if contact.peer != peer || !contact.is_bounded() {
                return Err(io::ErrorKind::InvalidData.into());
            }
            // Who has no time for it says nothing: that it can't be dialed would make a leaf of it. Nobody takes the time of two.
            let _one = Dialed::note(self, peer).ok_or(io::ErrorKind::WouldBlock)?;
            let waited = timeout(self.limit, self.room.acquire()).await;
            let _room = waited.map_err(io::Error::from)?.map_err(io::Error::other)?;
            let is_reached = timeout(self.limit, self.dial(&contact)).await.unwrap_or(false);
            stream.write_all(&[if is_reached { REACHED } else { NOT_REACHED }]).await?;
            stream.close().await
        };
        if let Err(error) =
            timeout(self.limit * 3, answer).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
        {
            tracing::debug!(?peer, %error, "a peer was not told whether it can be dialed");
        }
    }

    async fn dial(&self, contact: &Contact) -> bool {
        let contact = &beyond_this_machine(contact);
        let Ok(mut dialer) = CheckpointDialer::start(self.run, &self.credentials, std::slice::from_ref(contact)) else {
            return false;
        };
        matches!(dialer.next().await, Some((_, Ok(()))))
    }
}

/// Where a peer is but for its loopback addresses, which are others' here: this machine's own, if it listens at the same port. One that is
/// nowhere else may be on this machine.
fn beyond_this_machine(contact: &Contact) -> Contact {
    let ip = |address: &String| listen::ip(&address.parse().ok()?);
    let is_loopback = |address: &&String| ip(address).is_some_and(|ip| ip.is_loopback());
    let others: Vec<String> = contact.addresses.iter().filter(|address| !is_loopback(address)).cloned().collect();
    let addresses = if others.is_empty() { contact.addresses.clone() } else { others };
    Contact { peer: contact.peer, addresses }
}

/// That a peer is being dialed, as long as this is there.
struct Dialed<'a>(&'a ReachProvider, PeerId);

impl<'a> Dialed<'a> {
    /// `None` if it is already.
    fn note(provider: &'a ReachProvider, peer: PeerId) -> Option<Self> {
        let is_new = provider.dialed.lock().unwrap_or_else(PoisonError::into_inner).insert(peer);
        is_new.then(|| Self(provider, peer))
    }
}

impl Drop for Dialed<'_> {
    fn drop(&mut self) {
        self.0.dialed.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.1);
    }
}

/// Whether some of these members can dial this machine. It listens while it asks, and no longer.
///
/// # Errors
/// If it can't listen.
pub(super) async fn reach(
    settings: &Settings,
    (identity, credentials): (&Identity, &Credentials),
    manifest: &Manifest,
    members: &[Contact],
) -> Result<ReachStatus, NodeError> {
    let (run, stall) = (manifest.run_id(), Duration::from_millis(manifest.max_stall_ms));
    let parties = (run, manifest.founder);
    let access = Access::open(identity.peer_id(), parties, credentials, &settings.allow, &settings.data_dir)?;
    let mut network = Network::new(identity, access.signing(identity), settings, (run, Part::Member), stall)?;
    network.listen(&Places::new(&settings.listen)).await?;
    let found = found(&mut network, members, stall).await;
    // Whoever takes part listens there.
    drop(network);
    listen::given_back(&settings.listen).await;
    Ok(found)
}

/// What these find.
async fn found(network: &mut Network, members: &[Contact], stall: Duration) -> ReachStatus {
    let names = members.iter().map(|contact| contact.peer);
    let mut search = ReachSearch::new(Time::ZERO, names, false, stall);
    let began = Instant::now();
    let (mut answers, mut timer) = (JoinSet::new(), began);
    loop {
        while let Some(output) = search.poll() {
            match output {
                Output::Ask(peer) => {
                    let known = members.iter().find(|contact| contact.peer == peer);
                    known.into_iter().for_each(|contact| network.learn(contact));
                    let asked = ask(network, peer, stall);
                    answers.spawn(async move { (peer, asked.await) });
                }
                Output::SetTimer(at) => timer = began + (at - Time::ZERO),
                Output::End(status) => return status,
            }
        }
        let input = tokio::select! {
            Some(answered) = answers.join_next() => match answered {
                Ok((peer, Ok(reached))) => Input::Answered { peer, reached },
                Ok((peer, Err(error))) => {
                    tracing::info!(?peer, %error, "it can't be asked to dial this machine");
                    Input::Unasked(peer)
                }
                Err(_) => continue,
            },
            () = sleep_until(timer) => Input::Expired,
            event = network.swarm.select_next_some() => {
                let _ = network.absorb(event);
                continue;
            }
        };
        search.handle(Time::ZERO + began.elapsed(), input);
    }
}

/// Asks a member, whose addresses the network knows, to dial this machine where that listens; whether it gets through. The network has to
/// be driven meanwhile.
pub(super) fn ask(
    network: &mut Network,
    peer: PeerId,
    max_stall: Duration,
) -> impl Future<Output = io::Result<bool>> + Send + use<> {
    let (own, limit) = (network.contact(), answer_limit(max_stall));
    network.connect(to_libp2p(peer));
    let (mut control, protocol) = (network.control(), network.protocols.reach.clone());
    async move {
        let mut stream = streams::open(&mut control, to_libp2p(peer), &protocol, limit).await?;
        let answered = async {
            frame::write(&mut stream, &frame::encode(&own)).await?;
            let mut answer = [NOT_REACHED];
            stream.read_exact(&mut answer).await?;
            Ok(answer == [REACHED])
        };
        timeout(limit, answered).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }
}

/// Serves whoever asks to be dialed.
pub(crate) fn serve(network: &Network, provider: &Arc<ReachProvider>) {
    let provider = provider.clone();
    streams::serve(network.control(), network.protocols.reach.clone(), move |peer, stream| {
        let provider = provider.clone();
        async move {
            if let Some(peer) = from_libp2p(&peer) {
                provider.serve(peer, stream).await;
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use tokio_util::compat::TokioAsyncReadCompatExt as _;

    use super::*;

    /// What a member answers a peer of this name that wants this dialed.
    async fn answer(asks: PeerId, contact: &Contact) -> Vec<u8> {
        let provider = ReachProvider::new(RunId([7; 32]), Credentials::default(), Duration::from_secs(8));
        let (ours, theirs) = tokio::io::duplex(4096);
        let (mut ours, served) = (ours.compat(), provider.serve(asks, theirs.compat()));
        let asked = async {
            frame::write(&mut ours, &frame::encode(contact)).await.expect("room");
            let mut bytes = Vec::new();
            ours.read_to_end(&mut bytes).await.expect("it ends");
            bytes
        };
        futures::join!(asked, served).0
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn who_is_not_there_is_not_reached_and_nobody_has_others_dialed() {
        let names = [1, 2].map(|_| from_libp2p(&Identity::generate().peer_id()).expect("an Ed25519 key"));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.set_nonblocking(true).expect("it can be");
        let address = format!("/ip4/127.0.0.1/tcp/{}", listener.local_addr().expect("bound").port());
        let contact = Contact { peer: names[1], addresses: vec![address] };
        assert_eq!(answer(names[0], &contact).await, [0_u8; 0]);
        assert!(listener.accept().is_err(), "nobody has dialed there");
        // It is another one that is there, who proves nothing.
        assert_eq!(answer(names[1], &contact).await, [NOT_REACHED]);
        assert!(listener.accept().is_ok());
        let nowhere = Contact { peer: names[0], addresses: Vec::new() };
        assert_eq!(answer(names[0], &nowhere).await, [NOT_REACHED]);
        let many = Contact { peer: names[0], addresses: vec!["/ip4/127.0.0.1/tcp/1".to_owned(); 99] };
        assert_eq!(answer(names[0], &many).await, [0_u8; 0]);
    }

    #[test]
    fn a_member_does_not_look_for_others_on_its_own_machine() {
        let at = |addresses: &[&str]| {
            let addresses = addresses.iter().map(|address| (*address).to_owned()).collect();
            beyond_this_machine(&Contact { peer: PeerId([1; 32]), addresses }).addresses
        };
        let (own, other) = ("/ip4/127.0.0.1/tcp/4001", "/ip4/10.0.0.2/tcp/4001");
        assert_eq!(at(&[own, other, "/ip6/::1/tcp/4001"]), [other]);
        assert_eq!(at(&[own]), [own], "it may be here");
    }
}
