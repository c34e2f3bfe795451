//! All links of a reducer: to those whom its plan sends to, from those whom it hears.
//!
//! A plan may need one link or dozens. Waiting for the only one costs nothing more than that link does.

use std::collections::VecDeque;

use futures::future::pending;
use starling_collective::{OperationKey, SegmentHeader, SegmentId, Workspace};
use starling_topology::{PeerId, Rank};

use super::driver::Blame;
use super::link::{Incoming, Kind, Outgoing};
use crate::data::Transport;
use crate::event::LinkFailure;
use crate::first::first;

/// The links to others, in order of rank.
#[derive(Default)]
pub(super) struct Outward(Vec<Out>);

struct Out {
    rank: Rank,
    peer: PeerId,
    link: Outgoing,
    sends: Sends,
    /// Whether something was on its way or waited when that was last asked.
    is_blocked: bool,
}

impl Outward {
    /// Adds the link to `rank`, which comes after those that are there.
    pub(super) fn add(&mut self, rank: Rank, peer: PeerId, link: Outgoing) {
        self.0.push(Out { rank, peer, link, sends: Sends::default(), is_blocked: false });
    }

    pub(super) fn transports(&self) -> Vec<(PeerId, Transport)> {
        self.0.iter().map(|one| (one.peer, one.link.transport())).collect()
    }

    /// Queues a segment; those that `begins` here let others pass.
    pub(super) fn push(&mut self, to: Rank, segment: SegmentId, begins: bool) {
        let sends = &mut self.to(to).sends;
        if begins { sends.own.push_back(segment) } else { sends.onward.push_back(segment) }
    }

    /// Puts on their way what waits, as far as links are free. Says whether any of them has something left.
    pub(super) fn load(&mut self, key: OperationKey, workspace: &mut Workspace) -> bool {
        let mut blocked = false;
        for one in &mut self.0 {
            while one.link.has_room()
                && let Some(segment) = one.sends.pop()
            {
                one.link.load(&workspace.header(key, segment), workspace);
            }
            one.is_blocked = one.link.is_busy() || !one.sends.is_empty();
            blocked |= one.is_blocked;
        }
        blocked
    }

    /// Waits until a link that is blocked has sent what was on its way. Can be cancelled and called again. Without
    /// `may_sleep` the caller looks again by itself. Never, if no link is blocked.
    pub(super) async fn flush(&mut self, may_sleep: bool) -> Result<(), Blame> {
        let blocked = self.0.iter_mut().filter(|one| one.is_blocked);
        match first(blocked.map(|one| one.flush(may_sleep))).await {
            Some(flushed) => flushed,
            None => pending().await,
        }
    }

    /// Forgets what waits: the operation is over.
    pub(super) fn forget(&mut self) {
        self.0.iter_mut().for_each(|one| one.sends = Sends::default());
    }

    /// Whether a segment that came over a link of this kind can go on to `to` without a copy.
    pub(super) fn can_pass_on(&self, to: Rank, kind: Kind) -> bool {
        self.0[self.position(to)].link.can_pass_on(kind)
    }

    /// Sends what came last over `incoming` on to `to`, as the segment that `header` names.
    ///
    /// # Panics
    /// If [`Self::can_pass_on`] says no.
    pub(super) fn pass_on(&mut self, to: Rank, header: &SegmentHeader, incoming: &mut Incoming) {
        self.to(to).link.pass_on(header, incoming);
    }

    fn to(&mut self, rank: Rank) -> &mut Out {
        let position = self.position(rank);
        &mut self.0[position]
    }

    fn position(&self, rank: Rank) -> usize {
        let found = self.0.binary_search_by_key(&rank, |one| one.rank);
        found.expect("invariant: there is a link to each of the schedule's receivers")
    }
}

impl Out {
    async fn flush(&mut self, may_sleep: bool) -> Result<(), Blame> {
        self.link.flush(may_sleep).await.map_err(|reason| Blame::broken(self.peer, reason))
    }
}

/// Segments that wait until a link is free.
#[derive(Debug, Default)]
struct Sends {
    /// What came and goes on, and results. First, because others wait for it, and it may still be in the cache.
    onward: VecDeque<SegmentId>,
    /// This member's own contributions, which begin their way here.
    own: VecDeque<SegmentId>,
}

impl Sends {
    fn is_empty(&self) -> bool {
        self.onward.is_empty() && self.own.is_empty()
    }

    fn pop(&mut self) -> Option<SegmentId> {
        self.onward.pop_front().or_else(|| self.own.pop_front())
    }
}

/// The links from others, in order of rank.
#[derive(Default)]
pub(super) struct Inward {
    links: Vec<In>,
    /// Whose segments are awaited.
    step: u64,
    /// Which link is looked at first: the one after that which brought something last.
    turn: usize,
}

/// The link from one neighbour.
pub(super) struct In {
    pub(super) rank: Rank,
    pub(super) peer: PeerId,
    pub(super) link: Incoming,
    /// Segments that it has yet to bring in this operation. What comes after them belongs to the next one.
    due: u64,
}

impl Inward {
    /// Adds the link from `rank`, which comes after those that are there.
    pub(super) fn add(&mut self, rank: Rank, peer: PeerId, link: Incoming) {
        self.links.push(In { rank, peer, link, due: 0 });
    }

    pub(super) fn transports(&self) -> Vec<(PeerId, Transport)> {
        self.links.iter().map(|one| (one.peer, one.link.transport())).collect()
    }

    /// Begins the operation of `step`, in which so many segments come over each link.
    pub(super) fn expect(&mut self, step: u64, segments: &[u64]) {
        self.step = step;
        self.links.iter_mut().zip(segments).for_each(|(one, due)| one.due = *due);
    }

    /// Whether a segment of this operation has yet to come.
    pub(super) fn expects(&self) -> bool {
        self.links.iter().any(|one| one.due > 0)
    }

    /// Waits for a segment, and says over which link it came. Can be cancelled and called again, until it fails. Without
    /// `may_sleep` the caller looks again by itself. Never, if none is [expected](Self::expects).
    pub(super) async fn next(&mut self, may_sleep: bool) -> Result<usize, Blame> {
        let (turn, step) = (self.turn, self.step);
        let (before, after) = self.links.split_at_mut(turn);
        let links = (turn..).zip(after).chain((0..).zip(before)).filter(|(_, one)| one.due > 0);
        let Some(next) = first(links.map(|(position, one)| one.next(position, step, may_sleep))).await else {
            return pending().await;
        };
        let position = next?;
        self.links[position].due -= 1;
        self.turn = (position + 1) % self.links.len();
        Ok(position)
    }

    /// The link at a position.
    pub(super) fn from(&mut self, position: usize) -> &mut In {
        &mut self.links[position]
    }
}

impl In {
    async fn next(&mut self, position: usize, step: u64, may_sleep: bool) -> Result<usize, Blame> {
        let next = self.link.next(step, may_sleep).await;
        next.map(|()| position).map_err(|failure: LinkFailure| Blame(self.peer, failure))
    }
}
