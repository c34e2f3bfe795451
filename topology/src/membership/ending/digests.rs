//! Members that hold one state can prove it: each tells its digest to all others, and a quorum that agrees is right.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::id::{Digest, PeerId};
use crate::membership::Membership;
use crate::membership::ending::finishing::Finish;
use crate::membership::flaw::FlawKind;
use crate::membership::interface::Event;
use crate::message::{Body, Evidence};
use crate::time::Time;
use crate::view::View;

/// How many digests are kept, of ours and of each other member's.
const KEPT: usize = 4;

/// The last digests that are known.
#[derive(Debug, Default)]
pub(in crate::membership) struct Digests {
    ours: BTreeMap<u64, Digest>,
    theirs: BTreeMap<PeerId, VecDeque<(u64, Digest)>>,
}

/// Whose state counts where states differ.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// A quorum holds what we hold; these do not.
    Others(Vec<(PeerId, Digest)>),
    /// A quorum, of which this is one, holds this and we do not.
    Ours(PeerId, Digest),
    /// There is no such quorum, and can't be, though all have told who are still there. This is one that differs.
    Nobody(PeerId, Digest),
}

impl Digests {
    /// Forgets what was told of steps that are reduced again.
    pub(in crate::membership) fn keep_to(&mut self, step: u64) {
        self.ours.retain(|at, _| *at <= step);
        self.theirs.values_mut().for_each(|told| told.retain(|(at, _)| *at <= step));
    }

    /// Forgets all: our state is replaced.
    pub(in crate::membership) fn clear(&mut self) {
        *self = Self::default();
    }

    fn hear(&mut self, from: PeerId, step: u64, digest: Digest) {
        let told = self.theirs.entry(from).or_default();
        if told.iter().all(|(at, _)| *at != step) {
            told.push_back((step, digest));
        }
        if told.len() > KEPT {
            told.pop_front();
        }
    }

    fn after(&self, step: u64) -> BTreeMap<PeerId, Digest> {
        let of = |told: &VecDeque<(u64, Digest)>| told.iter().find(|(at, _)| *at == step).map(|(_, digest)| *digest);
        self.theirs.iter().filter_map(|(peer, told)| Some((*peer, of(told)?))).collect()
    }
}

impl Membership {
    /// We have computed the digest of our state after `step`.
    pub(in crate::membership) fn compute_digest(&mut self, now: Time, step: u64, digest: Digest) {
        self.reached = self.reached.max(step);
        let (Some(seat), None, true) = (&self.seat, &self.join_attempt, self.synced) else { return };
        if step < seat.least() {
            return; // Of a state that was replaced meanwhile.
        }
        self.digests.ours.insert(step, digest);
        while self.digests.ours.len() > KEPT {
            self.digests.ours.pop_first();
        }
        let members: BTreeSet<PeerId> = seat.view.members().iter().copied().collect();
        self.digests.theirs.retain(|peer, _| members.contains(peer));
        self.tell_members(&Body::Digest { step, digest });
        self.judge(now, step);
    }

    pub(in crate::membership) fn receive_digest(&mut self, now: Time, from: PeerId, step: u64, digest: Digest) {
        self.digests.hear(from, step, digest);
        self.judge(now, step);
    }

    fn judge(&mut self, now: Time, step: u64) {
        let (Some(seat), Some(ours)) = (&self.seat, self.digests.ours.get(&step).copied()) else { return };
        let theirs = self.digests.after(step);
        if let Some((peer, theirs)) = theirs.iter().find(|(_, theirs)| **theirs != ours)
            && self.is_flawed(FlawKind::EndsForDigest)
        {
            return self.end(Event::Diverged { peer: *peer, step, ours, theirs: *theirs });
        }
        let complete = seat
            .view
            .members()
            .iter()
            .all(|peer| *peer == self.me.peer || theirs.contains_key(peer) || !seat.trusts(*peer));
        if let Some(verdict) = verdict(&seat.view, self.me.peer, ours, &theirs, complete) {
            self.obey(now, step, ours, verdict);
        }
    }

    /// Looks whether those who have committed the last step hold what we hold.
    pub(in crate::membership) fn judge_finished(&mut self, now: Time) {
        let (Some(Finish { step, digest: ours, .. }), Some(seat)) = (self.finished, &self.seat) else { return };
        let theirs: BTreeMap<PeerId, Digest> = seat
            .finished
            .iter()
            .filter(|(_, (at, _))| *at == step)
            .filter_map(|(peer, (_, digest))| Some((*peer, (*digest)?)))
            .collect();
        let has_finished = |peer: &PeerId| seat.finished.get(peer).is_some_and(|(at, _)| *at == step);
        let is_done = |peer: &PeerId| has_finished(peer) || seat.gone.contains(peer) || !seat.trusts(*peer);
        let complete = seat.view.members().iter().all(|peer| *peer == self.me.peer || is_done(peer));
        if let Some(verdict) = verdict(&seat.view, self.me.peer, ours, &theirs, complete) {
            self.obey(now, step, ours, verdict);
        }
    }

    fn obey(&mut self, now: Time, step: u64, ours: Digest, verdict: Verdict) {
        match verdict {
            Verdict::Others(others) => {
                for (peer, theirs) in others {
                    let is_known =
                        |seat: &crate::membership::seat::Seat| seat.suspects.get(&peer) == Some(&Evidence::Misbehaved);
                    if !self.seat.as_ref().is_some_and(is_known) {
                        self.tell(Event::Differs { peer, step, ours, theirs });
                        self.suspect(now, peer, Evidence::Misbehaved);
                    }
                }
            }
            Verdict::Ours(peer, theirs) => {
                self.tell(Event::Outvoted { peer, step, ours, theirs });
                self.finished = None;
                self.give_up(now);
            }
            Verdict::Nobody(peer, theirs) => self.end(Event::Diverged { peer, step, ours, theirs }),
        }
    }
}

/// Whose state counts, if any differs and that can be told. `complete`: nobody's digest is still to come.
fn verdict(
    view: &View,
    me: PeerId,
    ours: Digest,
    theirs: &BTreeMap<PeerId, Digest>,
    complete: bool,
) -> Option<Verdict> {
    let holders = |digest: Digest| -> BTreeSet<PeerId> {
        let own = (digest == ours).then_some(me);
        theirs.iter().filter(|(_, theirs)| **theirs == digest).map(|(peer, _)| *peer).chain(own).collect()
    };
    // Who left before it told us may have held what we hold.
    let may_hold = || {
        let untold = view.members().iter().copied().filter(|peer| *peer != me && !theirs.contains_key(peer));
        holders(ours).into_iter().chain(untold).collect()
    };
    let others: Vec<(PeerId, Digest)> =
        theirs.iter().filter(|(_, theirs)| **theirs != ours).map(|(peer, theirs)| (*peer, *theirs)).collect();
    let first = *others.first()?;
    if view.has_quorum(&holders(ours)) {
        return Some(Verdict::Others(others));
    }
    let right = others.iter().find(|(_, theirs)| view.has_quorum(&holders(*theirs)));
    match right {
        Some((peer, theirs)) => Some(Verdict::Ours(*peer, *theirs)),
        None if complete && !view.has_quorum(&may_hold()) => Some(Verdict::Nobody(first.0, first.1)),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::RunId;

    #[test]
    fn a_quorum_that_agrees_is_right() {
        let peer = |name| PeerId([name; 32]);
        let digest = |name| Digest([name; 32]);
        let view = |members: u8| View::found(RunId([7; 32]), peer(1)).succeed((1..=members).map(peer));
        let told = |told: &[(u8, u8)]| told.iter().map(|(of, name)| (peer(*of), digest(*name))).collect();
        let judge = |members, me, theirs: &[(u8, u8)], complete| {
            verdict(&view(members), peer(me), digest(0), &told(theirs), complete)
        };
        assert_eq!(judge(3, 1, &[(2, 0), (3, 0)], true), None);
        assert_eq!(judge(3, 1, &[(3, 9)], false), None, "it is one against one of three");
        assert_eq!(judge(3, 1, &[(2, 0), (3, 9)], true), Some(Verdict::Others(vec![(peer(3), digest(9))])));
        assert_eq!(judge(3, 1, &[(2, 9), (3, 9)], true), Some(Verdict::Ours(peer(2), digest(9))));
        assert_eq!(judge(3, 1, &[(2, 8), (3, 9)], true), Some(Verdict::Nobody(peer(2), digest(8))));
        assert_eq!(judge(5, 1, &[(2, 0), (3, 9)], true), None, "the two others have left");
        assert_eq!(judge(5, 1, &[(2, 8), (3, 9), (4, 7)], true), Some(Verdict::Nobody(peer(2), digest(8))));
        // Of two, the one with the casting vote.
        assert_eq!(judge(2, 1, &[(2, 9)], true), Some(Verdict::Others(vec![(peer(2), digest(9))])));
        assert_eq!(judge(2, 2, &[(1, 9)], true), Some(Verdict::Ours(peer(1), digest(9))));
    }
}
