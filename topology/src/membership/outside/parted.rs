//! Who was with us in a view and is not any more.
//!
//! Whoever goes on in a fork leaves it for the word of those alone. They are remembered for as long as this process runs: whom we look
//! for now is another matter, since whoever goes outside looks for nobody, and comes back to the fork if the others go outside after it.

use std::collections::BTreeMap;

use crate::id::{Generation, PeerId};
use crate::membership::Membership;
use crate::message::Contact;
use crate::time::Time;
use crate::view::View;

/// How many are remembered.
const MAX_PARTED: usize = 256;

/// Who they are, and the generation of the first view without each.
#[derive(Debug, Default)]
pub(in crate::membership) struct Parted(BTreeMap<PeerId, Generation>);

impl Parted {
    pub(in crate::membership) fn contains(&self, peer: PeerId) -> bool {
        self.0.contains_key(&peer)
    }

    /// All of them, those first who were with us last.
    fn latest(&self) -> impl Iterator<Item = PeerId> {
        let mut peers: Vec<(Generation, PeerId)> = self.0.iter().map(|(peer, since)| (*since, *peer)).collect();
        peers.sort_unstable();
        peers.into_iter().rev().map(|(_, peer)| peer)
    }

    /// `peer` is not in `view`, where we are. Who is longest gone makes room, but for nobody who was let into a fork: whoever sends many
    /// there has nobody forgotten who was with us before.
    fn add(&mut self, peer: PeerId, view: &View) {
        if self.0.len() >= MAX_PARTED && !self.contains(peer) {
            let oldest = self.0.iter().min_by_key(|(_, since)| **since).map(|(oldest, _)| *oldest);
            let Some(oldest) = oldest.filter(|_| !view.forked) else { return };
            self.0.remove(&oldest);
        }
        self.0.insert(peer, view.generation);
    }

    /// We have come to `view`, from the view `old` if there was one that counts. Whoever is there is with us again, but where that is
    /// somebody's word: then it has nobody forgotten.
    pub(in crate::membership) fn go_on(&mut self, old: Option<&View>, view: &View, by_word: bool) {
        self.0.retain(|peer, _| by_word || !view.contains(*peer));
        for peer in old.into_iter().flat_map(View::members).filter(|peer| !view.contains(**peer)) {
            self.add(*peer, view);
        }
    }
}

impl Membership {
    /// Whether `peer` was with us, or those who let us in say so of it, and is not. Not one that the founder has put out.
    pub(in crate::membership) fn has_parted(&self, peer: PeerId) -> bool {
        let is_here = self.seat.as_ref().is_some_and(|seat| seat.view.contains(peer));
        self.parted.contains(peer) && !is_here && !self.revoked.contains(&peer)
    }

    /// Those who let us in, or our record, tell of these, who are not in `view`.
    pub(in crate::membership) fn note_parted(&mut self, peers: impl IntoIterator<Item = PeerId>, view: &View) {
        let me = self.me.peer;
        for peer in peers.into_iter().filter(|peer| *peer != me && !view.contains(*peer)) {
            self.parted.add(peer, view);
        }
    }

    /// Those who were with us before a fork are looked for as long as it goes on: when the branches meet, one of them joins the other.
    pub(in crate::membership) fn look_for_parted(&mut self, now: Time) {
        if self.seat.as_ref().is_none_or(|seat| !seat.view.forked) {
            return;
        }
        let is_missed = |peer: &PeerId| self.has_parted(*peer) && !self.lost.contains_key(peer);
        let missed: Vec<PeerId> = self.parted.latest().filter(is_missed).collect();
        missed.into_iter().for_each(|peer| self.probe_later(now, peer));
    }

    /// It goes on alone in `view`, beside those whom `contacts` are of.
    pub(in crate::membership) fn part_from(&mut self, now: Time, contacts: Vec<Contact>, view: &View) {
        self.note_parted(contacts.iter().map(|contact| contact.peer), view);
        for contact in contacts {
            self.probe_later(now, contact.peer);
            self.learn(contact);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::RunId;

    fn peer(number: u16) -> PeerId {
        let mut id = [0; 32];
        id[..2].copy_from_slice(&number.to_be_bytes());
        PeerId(id)
    }

    #[test]
    fn whoever_sends_many_into_a_fork_has_nobody_forgotten_who_was_there_before() {
        let mut parted = Parted::default();
        let mut view = View::found(RunId([7; 32]), peer(1)).succeed([1, 2, 3].map(peer));
        let mut go_on = |parted: &mut Parted, members: &[u16], forked| {
            let mut next = view.succeed(members.iter().copied().map(peer));
            next.forked = forked;
            parted.go_on(Some(&view), &next, false);
            view = next;
        };
        go_on(&mut parted, &[1, 2], true);
        for stranger in 0..2 * u16::try_from(MAX_PARTED).expect("a small number") {
            go_on(&mut parted, &[1, 2, 100 + stranger], true);
            assert!(!parted.contains(peer(100 + stranger)), "it is there");
            go_on(&mut parted, &[1, 2], true);
        }
        assert!(parted.contains(peer(3)) && parted.0.len() == MAX_PARTED);
        go_on(&mut parted, &[1], false);
        assert!(parted.contains(peer(2)) && !parted.contains(peer(3)), "it is longest gone");
        let made_up = View::found(RunId([7; 32]), peer(1)).succeed([1, 2].map(peer));
        parted.go_on(None, &made_up, true);
        assert!(parted.contains(peer(2)), "nothing but a word says that it is back");
        go_on(&mut parted, &[1, 2], false);
        assert!(!parted.contains(peer(2)), "it came back");
    }
}
