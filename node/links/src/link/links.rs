//! All links of a reducer: to those whom its plan sends to, from those whom it hears.
//!
//! A plan may need one link or dozens. Waiting for the only one costs nothing more than that link does.

use futures::future::pending;
use starling_collective::{Execution, ForwardPolicy, SegmentHeader, Workspace};
use starling_topology::{PeerId, Rank};

use crate::error::LinkFailure;
use crate::greeting::first::first;
use crate::link::transport::Transport;
use crate::link::withheld::Withheld;
use crate::link::{IncomingLink, Kind, OutgoingLink};

/// Whose fault a failure is.
#[derive(Debug)]
pub struct BrokenLink(pub PeerId, pub LinkFailure);

impl BrokenLink {
    /// The link to or from `peer` is broken.
    pub fn broken(peer: PeerId, reason: impl ToString) -> Self {
        Self(peer, LinkFailure::Broken(reason.to_string()))
    }
}

/// The links to others: to the schedule's receivers, in their order.
#[derive(Debug, Default)]
pub struct OutgoingLinkSet {
    links: Vec<Out>,
    withheld: Withheld,
}

#[derive(Debug)]
struct Out {
    rank: Rank,
    peer: PeerId,
    link: OutgoingLink,
    /// Whether something was on its way or waited when that was last asked.
    is_blocked: bool,
}

impl OutgoingLinkSet {
    /// None yet. A test may say in the environment to whom they are to carry nothing.
    pub fn from_environment() -> Self {
        Self { withheld: Withheld::from_environment(), ..Self::default() }
    }

    /// Adds the link to `rank`, which comes after those that are there.
    pub fn add(&mut self, rank: Rank, peer: PeerId, link: OutgoingLink) {
        self.links.push(Out { rank, peer, link, is_blocked: false });
    }

    /// Who is at the other ends, and how it gets there.
    pub fn transports(&self) -> Vec<(PeerId, Transport)> {
        self.links.iter().map(|one| (one.peer, one.link.transport())).collect()
    }

    /// Puts on their way what waits, as far as links are free. Says whether any of them has something left.
    pub fn load(&mut self, execution: &mut Execution<Workspace>) -> bool {
        let mut blocked = false;
        let step = execution.key().step;
        for (position, one) in self.links.iter_mut().enumerate() {
            let is_withheld = self.withheld.is_for(one.peer, step);
            while one.link.has_room()
                && let Some(header) = execution.next_send(position)
            {
                if !is_withheld {
                    one.link.load(&header, execution.buffer_mut());
                }
            }
            one.is_blocked = one.link.is_busy() || execution.has_sends(position);
            blocked |= one.is_blocked;
        }
        blocked
    }

    /// Waits until a link that is blocked has sent what was on its way. Can be cancelled and called again. Without
    /// `may_sleep` the caller looks again by itself. Never, if no link is blocked.
    pub async fn flush(&mut self, may_sleep: bool) -> Result<(), BrokenLink> {
        let blocked = self.links.iter_mut().filter(|one| one.is_blocked);
        match first(blocked.map(|one| one.flush(may_sleep))).await {
            Some(flushed) => flushed,
            None => pending().await,
        }
    }

    /// Whether what came last of `step`, over a link of this kind, can go on without a copy.
    pub fn after(&self, step: u64, kind: Kind) -> LinkForwardPolicy<'_> {
        LinkForwardPolicy { outgoing_links: self, step, kind }
    }

    /// Sends what came last over `incoming` on to `to`, as the segment that `header` names.
    ///
    /// # Panics
    /// If [`Self::after`] says that it is not taken.
    pub fn pass_on(&mut self, to: Rank, header: &SegmentHeader, incoming: &mut IncomingLink) {
        let position = self.position(to);
        self.links[position].link.pass_on(header, incoming);
    }

    fn position(&self, rank: Rank) -> usize {
        let found = self.links.binary_search_by_key(&rank, |one| one.rank);
        found.expect("invariant: there is a link to each of the schedule's receivers")
    }
}

impl Out {
    async fn flush(&mut self, may_sleep: bool) -> Result<(), BrokenLink> {
        self.link.flush(may_sleep).await.map_err(|reason| BrokenLink::broken(self.peer, reason))
    }
}

/// What a segment that came last over a link of one kind meets.
#[derive(Debug)]
pub struct LinkForwardPolicy<'a> {
    outgoing_links: &'a OutgoingLinkSet,
    step: u64,
    kind: Kind,
}

impl ForwardPolicy for LinkForwardPolicy<'_> {
    fn takes(&self, to: Rank) -> bool {
        let Self { outgoing_links, step, kind } = self;
        let one = &outgoing_links.links[outgoing_links.position(to)];
        one.link.can_pass_on(*kind) && !outgoing_links.withheld.is_for(one.peer, *step)
    }

    fn gives_place(&self) -> bool {
        self.kind.gives_buffers()
    }
}

/// The links from others: from the schedule's senders, in their order.
#[derive(Debug, Default)]
pub struct IncomingLinkSet {
    links: Vec<NeighbourLink>,
    /// Which link is looked at first: the one after that which brought something last.
    turn: usize,
}

/// The link from one neighbour.
#[derive(Debug)]
pub struct NeighbourLink {
    /// Its place in the ring.
    pub rank: Rank,
    /// Who it is.
    pub peer: PeerId,
    /// What it sends.
    pub link: IncomingLink,
}

impl IncomingLinkSet {
    /// Adds the link from `rank`, which comes after those that are there.
    pub fn add(&mut self, rank: Rank, peer: PeerId, link: IncomingLink) {
        self.links.push(NeighbourLink { rank, peer, link });
    }

    /// Who is at the other ends, and how it gets there.
    pub fn transports(&self) -> Vec<(PeerId, Transport)> {
        self.links.iter().map(|one| (one.peer, one.link.transport())).collect()
    }

    /// Waits for a segment of the operation of `step` over those links that have some `due`, and says over which one it came.
    /// Can be cancelled and called again, until it fails. Without `may_sleep` the caller looks again by itself. Never, if
    /// none is due.
    pub async fn next(&mut self, step: u64, due: &[u64], may_sleep: bool) -> Result<usize, BrokenLink> {
        let turn = self.turn;
        let (before, after) = self.links.split_at_mut(turn);
        let links = (turn..).zip(after).chain((0..).zip(before)).filter(|(position, _)| due[*position] > 0);
        let Some(next) = first(links.map(|(position, one)| one.next(position, step, may_sleep))).await else {
            return pending().await;
        };
        let position = next?;
        self.turn = (position + 1) % self.links.len();
        Ok(position)
    }

    /// The link at a position.
    pub fn from(&mut self, position: usize) -> &mut NeighbourLink {
        &mut self.links[position]
    }
}

impl NeighbourLink {
    async fn next(&mut self, position: usize, step: u64, may_sleep: bool) -> Result<usize, BrokenLink> {
        let next = self.link.next(step, may_sleep).await;
        next.map(|()| position).map_err(|failure: LinkFailure| BrokenLink(self.peer, failure))
    }
}
