//! The end of a run: all have committed the last step, or are lost.

use crate::error::Violation;
use crate::id::{Digest, PeerId};
use crate::membership::Membership;
use crate::membership::flaw::FlawKind;
use crate::membership::interface::{Event, Timer};
use crate::message::{Body, Evidence, RefusalReason};
use crate::time::Time;

/// After how many longest stalls nobody waits any more for a member that is there and doesn't come to the end.
const LAST_STALLS: u32 = 4;

/// A member has come to the end.
#[derive(Debug, Clone, Copy)]
pub(in crate::membership) struct Finish {
    /// The last step.
    pub(in crate::membership) step: u64,
    /// Of the state after it.
    pub(in crate::membership) digest: Digest,
    at: Time,
    /// It has heard everybody finish, and waits for goodbyes.
    pub(in crate::membership) is_parting: bool,
}

impl Membership {
    /// Whether it has heard everybody finish, and waits for goodbyes.
    pub(in crate::membership) fn is_parting(&self) -> bool {
        self.finished.is_some_and(|finish| finish.is_parting)
    }

    /// Somebody is to get the last state, after all.
    pub(in crate::membership) fn part_later(&mut self) {
        self.finished.iter_mut().for_each(|finish| finish.is_parting = false);
    }

    pub(in crate::membership) fn finish(&mut self, now: Time, step: u64, digest: Digest) {
        // While a state is on its way, it can only be one that was replaced that had come to the end.
        if self.finished.is_some() || self.is_outside() || !self.synced {
            return;
        }
        self.reached = self.reached.max(step);
        self.confirm(step);
        self.finished = Some(Finish { step, digest, at: now, is_parting: false });
        let peer = self.me.peer;
        self.tell_members(&Body::Finished { peer, step, digest });
        self.pass_goodbyes_on(None);
        let (late, strangers): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.joiners).into_iter().partition(|(peer, _)| self.was_with_us(*peer));
        self.joiners = late.into_iter().collect();
        for (peer, _) in strangers {
            self.send(peer, Body::Refuse(RefusalReason::RunFinished));
        }
        self.judge_finished(now);
    }

    /// Notes who has finished, and tells those that can't hear it. Others are believed only of those that we can't hear, and
    /// of nobody else do they say so.
    pub(in crate::membership) fn receive_finished(
        &mut self,
        now: Time,
        from: PeerId,
        (peer, step, digest): (PeerId, u64, Digest),
    ) -> Result<(), Violation> {
        let (me, believes) = (self.me.peer, self.is_flawed(FlawKind::BelievesFinished));
        let is_parting = self.is_parting();
        let Some(seat) = &mut self.seat else { return Ok(()) };
        if peer != from && !seat.view.is_severed(me, peer) && !believes {
            return Err(Violation::NotToldByItself(peer));
        }
        // Of whom we can't hear, that it is done is believed, and not with which state.
        let said = (peer == from || believes).then_some(digest);
        let is_known = seat.finished.get(&peer).is_some_and(|(_, before)| before.is_some() || said.is_none());
        if peer == from && is_known && is_parting {
            seat.unheard.insert(from); // It says so to those alone of whom it has not heard that they have.
        }
        if peer == me || !seat.view.contains(peer) || is_known {
            return Ok(());
        }
        seat.finished.insert(peer, (step, said));
        let deaf: Vec<PeerId> = seat.severed_from(peer).filter(|other| *other != me).collect();
        for other in deaf {
            self.send(other, Body::Finished { peer, step, digest });
        }
        self.judge_finished(now);
        self.wait_no_more();
        Ok(())
    }

    /// Those who have said goodbye have finished, and who has not heard them say that is told of it once we have finished ourselves: of
    /// `peer`, or of all who said so in the view before and say it no more.
    pub(in crate::membership) fn pass_goodbyes_on(&mut self, peer: Option<PeerId>) {
        let (me, Some(Finish { step, digest, .. })) = (self.me.peer, self.finished) else { return };
        let Some(seat) = &self.seat else { return };
        let is_untold = |gone: &&PeerId| peer.is_none_or(|peer| peer == **gone) && !seat.finished.contains_key(*gone);
        let pairs = seat.gone.iter().filter(is_untold).flat_map(|gone| {
            let deaf = seat.severed_from(*gone).filter(|other| *other != me && !seat.view.is_severed(me, *other));
            deaf.map(|other| (*gone, other))
        });
        for (peer, other) in pairs.collect::<Vec<_>>() {
            self.send(other, Body::Finished { peer, step, digest });
        }
    }

    /// Whether this peer has a seat in our view, or had one of late and has not left it: then it has done its part of the run, and
    /// gets the last state.
    fn was_with_us(&self, peer: PeerId) -> bool {
        let Some(seat) = self.seat.as_ref().filter(|_| !self.is_flawed(FlawKind::RefusesTheLate)) else { return false };
        seat.view.contains(peer) || self.put_out.contains_key(&peer)
    }

    /// Whether there is time yet to wait for somebody who was with us; always before we have finished.
    pub(in crate::membership) fn has_time(&self, now: Time) -> bool {
        self.finished.is_none_or(|finish| now - finish.at < self.config.max_stall)
    }

    /// Whether this peer, which asks to be let in, comes too late: we have finished, and can know it. Who is about to go itself
    /// leaves it to the others, as long as there is time, to let in one that was with us.
    pub(in crate::membership) fn is_too_late(&self, now: Time, peer: PeerId) -> bool {
        let is_over = self.finished.is_some() && self.seat.as_ref().is_some_and(|seat| seat.paused.is_none());
        is_over && (!self.was_with_us(peer) || (self.is_parting() && !self.has_time(now)))
    }

    /// Whether somebody may still come, who was with us and is cut off or outside: it asks to be let in, or has yet to. Whose
    /// process is gone, or who broke the rules, is not waited for.
    fn awaits_somebody(&self, now: Time) -> bool {
        let Some(seat) = self.seat.as_ref().filter(|_| self.has_time(now)) else { return false };
        let is_new = |at: Time| now - at < self.config.max_stall;
        !self.is_flawed(FlawKind::RefusesTheLate)
            && (!self.joiners.is_empty()
                || seat.suspects.values().any(Evidence::may_pass)
                || self.put_out.values().any(|(at, may_come)| *may_come && is_new(*at)))
    }

    /// Tells those that have not answered with the same: they may have missed it.
    pub(in crate::membership) fn finish_again(&mut self) {
        let me = self.me.peer;
        let (Some(Finish { step, digest, .. }), Some(seat)) = (self.finished, &self.seat) else { return };
        let others = seat.others(me).into_iter();
        let unanswered: Vec<PeerId> =
            others.filter(|peer| !seat.finished.contains_key(peer) && !seat.gone.contains(peer)).collect();
        for peer in unanswered {
            self.send(peer, Body::Finished { peer: me, step, digest });
        }
    }

    /// Ends the run if all that are left have finished. Those that have not stay members, and get the last result from us.
    pub(in crate::membership) fn complete_if_done(&mut self, now: Time) {
        let me = self.me.peer;
        let (Some(finish), Some(seat), None) = (self.finished, &self.seat, &self.join_attempt) else { return };
        let others = || seat.view.members().iter().filter(|peer| **peer != me);
        // Looked at for each goodbye: whether there can be enough of them yet comes first.
        let most = seat.gone.len() + seat.suspects.len() + seat.view.severed().len();
        let apart = |peer: &PeerId| seat.view.is_severed(me, *peer);
        let is_quiet = |peer: &PeerId| seat.gone.contains(peer) || !seat.trusts(*peer) || apart(peer);
        let quiet = most + 1 >= seat.view.members().len() && others().all(is_quiet);
        if finish.is_parting && !quiet {
            return; // Who waits for goodbyes has nothing to do until the last one is there.
        }
        let most = most + seat.finished.len();
        // Those apart from us are told of by others, if anybody is left.
        let overdue = !self.has_time(now);
        let is_over = now - finish.at >= self.config.max_stall * LAST_STALLS;
        let is_late = |peer: &PeerId| is_over || overdue && seat.syncing.contains(peer);
        let is_done = |peer: &PeerId| seat.finished.contains_key(peer) || is_quiet(peer) || is_late(peer);
        // Who has no time left looks at each of them.
        if (!overdue && most + 1 < seat.view.members().len()) || !others().all(is_done) {
            return;
        }
        // A minority that misses the rest may have slept while the others went on, and reduced the last step anew.
        let agreed = seat.finished.keys().chain(&seat.gone).copied().chain([me]).collect();
        if !seat.view.has_quorum(&agreed) || (!finish.is_parting && self.awaits_somebody(now)) {
            return;
        }
        self.finished = Some(Finish { is_parting: true, ..finish });
        if !finish.is_parting {
            self.tell_members(&Body::Goodbye);
            self.set_timer(Timer::Goodbye, now + self.config.goodbye_limit());
        }
        if quiet {
            self.part();
        }
    }

    /// The time for goodbyes is over; as long as there is time otherwise, not for those who have not heard that we have finished, and
    /// say so: without us they may be no quorum, and then they would never know that the run is complete.
    pub(in crate::membership) fn part_from_those_who_know(&mut self, now: Time) {
        let Some(seat) = &mut self.seat else { return };
        let unheard = std::mem::take(&mut seat.unheard);
        if self.finished.is_some_and(|finish| finish.is_parting)
            && unheard.iter().any(|peer| !seat.gone.contains(peer) && seat.trusts(*peer))
            && self.has_time(now)
        {
            self.set_timer(Timer::Goodbye, now + self.config.goodbye_limit());
        } else {
            self.part();
        }
    }

    /// Waits for no more goodbyes.
    pub(in crate::membership) fn part(&mut self) {
        if let Some(Finish { step, digest, is_parting: true, .. }) = self.finished {
            for peer in std::mem::take(&mut self.joiners).into_keys() {
                self.send(peer, Body::Refuse(RefusalReason::RunFinished));
            }
            self.end(Event::Complete { step, digest });
        }
    }
}
