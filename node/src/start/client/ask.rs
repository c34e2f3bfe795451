//! How a joiner asks members what the run is, before it prepares to take part: all that it knows at once, and those that
//! a keeper names.

use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use libp2p::multiaddr::Protocol;
use libp2p::swarm::dial_opts::{DialOpts, PeerCondition};
use libp2p::swarm::{DialError, SwarmEvent};
use libp2p::{Multiaddr, PeerId, mdns};
use starling_run::Manifest;
use starling_topology::{Contact, RunId};
use tokio::time::Instant;

use crate::access::{Access, Credentials};
use crate::credentials::identity::{Identity, from_libp2p, to_libp2p};
use crate::error::NodeError;
use crate::net::behaviour::WELCOME;
use crate::net::network::is_quic;
use crate::net::streams;
use crate::observe::report::{Observer, Report};
use crate::settings::{JoinOptions, Target};
use crate::start::client::{self, ClientBehaviourEvent};
use crate::start::welcome::{self, Welcome};

/// How long the member that we join through may take to answer.
const ASK_LIMIT: Duration = Duration::from_secs(15);

/// How long a member that is there and crowded is asked again.
const RETRY_LIMIT: Duration = Duration::from_secs(10);
/// How long to wait before it is.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// Members that keepers name at a time and that are asked, and peers that are asked in all.
const MAX_NAMED: usize = 8;
const MAX_ASKED: usize = 32;

/// A member that we may join through.
#[derive(Clone)]
pub(crate) struct Member {
    pub(crate) peer: PeerId,
    pub(crate) addresses: Vec<Multiaddr>,
    pub(crate) run: Option<RunId>,
    pub(crate) credentials: Credentials,
}

impl Member {
    /// Those that the user names.
    pub(crate) fn all_of(joining: &JoinOptions) -> Result<Vec<Self>, NodeError> {
        match &joining.target {
            Target::Ticket(ticket) => {
                let secret = ticket.secret.or(joining.secret);
                let invitation = ticket.invitation.clone().or_else(|| joining.invitation.clone());
                let credentials = Credentials { secret, invitation, bearer: None };
                Ok(ticket.peers.iter().map(|contact| Self::at(contact, Some(ticket.run), &credentials)).collect())
            }
            Target::Address(address) => {
                let Some(Protocol::P2p(peer)) = address.iter().last() else {
                    return Err(NodeError::NoPeer(address.to_string()));
                };
                let invitation = joining.invitation.clone();
                let credentials = Credentials { secret: joining.secret, invitation, bearer: None };
                Ok(vec![Self { peer, addresses: vec![address.clone()], run: None, credentials }])
            }
        }
    }

    pub(crate) fn at(contact: &Contact, run: Option<RunId>, credentials: &Credentials) -> Self {
        let addresses = contact.addresses.iter().filter_map(|address| address.parse().ok()).collect();
        Self { peer: to_libp2p(contact.peer), addresses, run, credentials: credentials.clone() }
    }

    /// Where it can be reached; `None` if it can be no member.
    pub(crate) fn contact(&self) -> Option<Contact> {
        let peer = from_libp2p(&self.peer)?;
        Some(Contact { peer, addresses: self.addresses.iter().map(ToString::to_string).collect() })
    }
}

/// Asks all of these at once what the run is, and those that a keeper among them names. The first member that answers counts.
pub(crate) async fn ask_any(
    identity: &Identity,
    members: &[Member],
    multicast: bool,
    observer: &dyn Observer,
) -> Result<(Member, Welcome), NodeError> {
    let mut asked: Vec<Member> = members.iter().filter(|member| member.peer != identity.peer_id()).cloned().collect();
    if asked.is_empty() {
        return Err(NodeError::OwnTicket);
    }
    let tell = |members: &[Member]| {
        observer.report(&Report::Connecting { peers: members.iter().map(|member| member.peer.to_string()).collect() });
    };
    let connect = |member: Member| async move { (ask(identity, &member, multicast, None).await, member) };
    tell(&asked);
    let mut answers: FuturesUnordered<_> = asked.iter().cloned().map(connect).collect();
    let (mut keepers, mut errors) = (Vec::new(), Vec::new());
    while let Some((answer, member)) = answers.next().await {
        match answer {
            Ok(welcome) if welcome.keeps => {
                let told = asked.len();
                for contact in welcome.members.into_iter().take(MAX_NAMED) {
                    let other = Member::at(&contact, member.run, &member.credentials);
                    let is_new = other.peer != identity.peer_id() && asked.iter().all(|known| known.peer != other.peer);
                    if is_new && asked.len() < MAX_ASKED {
                        asked.push(other.clone());
                        answers.push(connect(other));
                    }
                }
                if asked.len() > told {
                    tell(&asked[told..]);
                }
                keepers.push(member);
            }
            Ok(welcome) => return Ok((member, welcome)),
            Err(error) => errors.push(error),
        }
    }
    if let Some(keeper) = keepers.first() {
        let others = asked.iter().filter(|member| keepers.iter().all(|keeper| keeper.peer != member.peer));
        let members = others.map(|member| member.peer.to_string()).collect();
        return Err(NodeError::OnlyKeepers { keeper: keeper.peer.to_string(), members });
    }
    Err(joined(errors))
}

/// What is wrong with all that were asked, as one error: a refusal says more than silence.
fn joined(mut errors: Vec<NodeError>) -> NodeError {
    if let Some(at) = errors.iter().position(|error| !matches!(error, NodeError::Unreachable { .. })) {
        return errors.swap_remove(at);
    }
    let (mut peers, mut reasons) = (Vec::new(), Vec::new());
    for error in errors {
        if let NodeError::Unreachable { peer, reason } = error {
            peers.push(peer);
            reasons.push(reason);
        }
    }
    NodeError::Unreachable { peer: peers.join(", "), reason: reasons.join("; ") }
}

/// Asks a peer what the run is, over a connection made for that alone; again if it is lost before it is admitted: others may
/// ask at the same time, more than are let near.
pub(crate) async fn ask(
    identity: &Identity,
    member: &Member,
    multicast: bool,
    ours: Option<&Manifest>,
) -> Result<Welcome, NodeError> {
    let began = Instant::now();
    loop {
        match ask_once(identity, member, multicast, ours).await {
            Err(NodeError::NotAdmitted { error, .. }) if error.is_passing() && began.elapsed() < RETRY_LIMIT => {
                tracing::info!(peer = %member.peer, %error, "asking again");
                tokio::time::sleep(RETRY_PAUSE).await;
            }
            outcome => return outcome,
        }
    }
}

async fn ask_once(
    identity: &Identity,
    member: &Member,
    multicast: bool,
    ours: Option<&Manifest>,
) -> Result<Welcome, NodeError> {
    let peer = member.peer;
    let unreachable = |reason: String| NodeError::Unreachable { peer: peer.to_string(), reason };
    let access = Access::visiting(identity.peer_id(), member.run, &member.credentials);
    let (mut swarm, mut turned) = client::swarm(identity, access, multicast)?;
    let mut control = swarm.behaviour().streams.new_control();

    let mut addresses = member.addresses.clone();
    addresses.sort_by_key(is_quic);
    let dialed = swarm.dial(DialOpts::peer_id(peer).addresses(addresses).build());
    let mut failed = dialed.err().map(|error| unreachable(reason(&error)));
    let exchange = async {
        let stream = streams::open(&mut control, peer, &WELCOME, ASK_LIMIT).await?;
        welcome::ask(stream, ours).await
    };
    tokio::pin!(exchange);
    let deadline = tokio::time::sleep(ASK_LIMIT);
    tokio::pin!(deadline);
    let mut connected = false;
    loop {
        // With multicast the member may yet be found at another address.
        if let Some(error) = failed.take_if(|_| !multicast) {
            return Err(error);
        }
        tokio::select! {
            welcome = &mut exchange, if connected => {
                return welcome.map_err(|error| unreachable(format!("it did not hand out its manifest ({error})")));
            }
            event = swarm.select_next_some() => match event {
                SwarmEvent::ConnectionEstablished { .. } => connected = true,
                SwarmEvent::OutgoingConnectionError { error, .. } if !connected => {
                    // A handshake that failed says more than the dial that failed with it.
                    let refusals = std::iter::from_fn(|| turned.try_recv().ok());
                    if let Some(turned) = refusals.min_by_key(|turned| turned.error.is_passing()) {
                        return Err(NodeError::NotAdmitted { peer: peer.to_string(), error: turned.error });
                    }
                    failed = Some(unreachable(reason(&error)));
                }
                SwarmEvent::Behaviour(ClientBehaviourEvent::Mdns(mdns::Event::Discovered(found))) if !connected => {
                    let addresses: Vec<_> =
                        found.into_iter().filter(|(found, _)| *found == peer).map(|(_, address)| address).collect();
                    // Also while the first dial hangs: it may be to where the member was yesterday.
                    let options = DialOpts::peer_id(peer).condition(PeerCondition::Disconnected);
                    if !addresses.is_empty()
                        && let Err(error) = swarm.dial(options.addresses(addresses).build())
                    {
                        tracing::debug!(%peer, %error, "not dialed");
                    }
                }
                _ => {}
            },
            () = &mut deadline => {
                let silent = || unreachable(format!("no answer within {} s", ASK_LIMIT.as_secs()));
                return Err(failed.unwrap_or_else(silent));
            }
        }
    }
}

/// A dial error as one line, without libp2p's nesting.
pub(crate) fn reason(error: &DialError) -> String {
    match error {
        DialError::Transport(attempts) => attempts
            .iter()
            .map(|(address, error)| {
                let mut cause: &dyn std::error::Error = error;
                while let Some(source) = cause.source() {
                    cause = source;
                }
                format!("{address}: {cause}")
            })
            .collect::<Vec<_>>()
            .join("; "),
        other => other.to_string(),
    }
}
