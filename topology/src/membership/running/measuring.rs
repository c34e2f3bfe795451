//! What links cost: what we have measured goes to the other members, and, once it is worth it, into a new view.

use crate::error::Violation;
use crate::id::PeerId;
use crate::membership::decree::link_matrix::differ;
use crate::membership::flaw::FlawKind;
use crate::membership::seat::Seat;
use crate::membership::{Membership, Steps};
use crate::message::Body;
use crate::plan::{Link, is_worth_it};
use crate::time::Time;

/// A view is changed for a better plan after at most the first interval times two to this power.
const MAX_DOUBLINGS: u32 = 6;

/// The same of a view whose members reduce by a star: it may be much slower than a ring, and nobody who proposes can know whether
/// those who could not reach each other do again.
const MAX_STAR_DOUBLINGS: u32 = 3;

impl Membership {
    pub(in crate::membership) fn measure(&mut self, links: Vec<(PeerId, Link)>) {
        let me = self.me.peer;
        let (Some(seat), None) = (&mut self.seat, &self.join_attempt) else { return };
        let known = links.into_iter().filter(|(peer, _)| *peer != me && seat.view.contains(*peer));
        self.measured.extend(known.filter(|(_, link)| link.is_up() && link.is_possible()));
        self.note_measured();
    }

    /// Our own row is what we have measured, whatever the view says of it.
    pub(in crate::membership) fn note_measured(&mut self) {
        let Some(seat) = &mut self.seat else { return };
        self.measured.retain(|peer, _| seat.view.contains(*peer));
        let row: Vec<(PeerId, Link)> = self.measured.iter().map(|(peer, link)| (*peer, *link)).collect();
        seat.link_matrix.take(&seat.view, self.me.peer, &row);
        seat.unjudged = true;
    }

    /// Tells the others what has changed noticeably since they heard it, or since the view was made.
    pub(in crate::membership) fn tell_row(&mut self) {
        let me = self.me.peer;
        let Some(seat) = &mut self.seat else { return };
        let links = seat.link_matrix.row(me);
        if differ(&links, &seat.told_row) {
            seat.told_row.clone_from(&links);
            self.tell_members(&Body::Measured { links });
        }
    }

    /// What was told while a connection was gone is lost.
    pub(in crate::membership) fn tell_row_again(&mut self, to: PeerId) {
        let Some(links) = self.seat.as_ref().map(|seat| seat.told_row.clone()) else { return };
        if !links.is_empty() {
            self.send(to, Body::Measured { links });
        }
    }

    pub(in crate::membership) fn receive_row(&mut self, from: PeerId, row: &[(PeerId, Link)]) -> Result<(), Violation> {
        if row.iter().any(|(to, _)| *to == from) {
            return Err(Violation::MalformedLinks);
        }
        if let Some(seat) = &mut self.seat {
            seat.link_matrix.take(&seat.view, from, row);
            seat.unjudged = true;
        }
        Ok(())
    }

    /// Whoever proposes looks whether the members, as they are, would be much faster by what is known now. Never soon
    /// after a change of view, later and later the more often that was done in a row, and not while there is anything else
    /// to be changed.
    ///
    /// A star for want of a ring is tried anew, whatever is known: those who hear each other again say so in their promises. So are damped
    /// links, once none has failed for long.
    pub(in crate::membership) fn consider_replanning(&mut self, now: Time) {
        let me = self.me.peer;
        if self.finished.is_some() {
            return;
        }
        let busy = self.steps != Steps::Running
            || self.leaving.is_wanted()
            || !self.joiners.is_empty()
            || self.misses_somebody();
        let interval = self.config.replan_interval();
        let damps_for_ever = self.is_flawed(FlawKind::DampsForEver);
        let is_asked = |seat: &Seat| seat.unjudged || !seat.hubs.is_empty() || seat.view.is_unsteady();
        let Some(seat) = self.seat.as_mut().filter(|seat| is_asked(seat) && !busy) else { return };
        let idle = seat.decree.is_none() && seat.syncing.is_empty() && seat.leavers.is_empty() && !seat.waiting;
        let most = if seat.hubs.is_empty() { MAX_DOUBLINGS } else { MAX_STAR_DOUBLINGS };
        let is_unsteady = seat.view.is_unsteady();
        let due = match is_unsteady {
            true => seat.link_failures.is_quiet(&self.config, now) && !damps_for_ever,
            false => now - seat.entered >= interval * (1 << seat.replans.min(most)),
        };
        if !idle || !due || seat.proposer(me) != me || !seat.finished.is_empty() {
            return;
        }
        if is_unsteady || !seat.hubs.is_empty() {
            seat.outdated = true;
            return;
        }
        let Some((policy, bucket)) = self.config.reduced.filter(|_| seat.link_matrix.cover(&seat.view)) else { return };
        seat.unjudged = false;
        let next = seat.link_matrix.put_into(seat.view.clone());
        seat.outdated = is_worth_it(policy, bucket, &seat.view, &next);
    }
}
