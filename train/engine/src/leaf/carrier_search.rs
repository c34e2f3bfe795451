//! Whom a leaf asks to carry it: members that it knows, one after the other, and again after a while, which grows.

use std::collections::VecDeque;
use std::time::Duration;

use starling_topology::{Contact, PeerId, Time};

/// So many members are remembered.
const MAX_KNOWN: usize = 64;
/// So many of them that are no members any more, as far as was told: they may come back, and whoever tells of members may be apart from them.
const MAX_FORMER: usize = 8;
/// After so many rounds in which nobody carried it, a leaf gives up.
pub const MAX_ROUNDS: u32 = 64;
/// The wait after a round doubles from a sixteenth of `max_stall`, up to all of it.
const DOUBLINGS: u32 = 4;

/// Members to ask, in the order in which they are.
#[derive(Debug)]
pub struct CarrierSearch {
    max_stall: Duration,
    /// By whom it was asked longest ago.
    known: VecDeque<Contact>,
    /// How many of them are left in this round.
    left: usize,
    /// Rounds in which nobody carried it.
    rounds: u32,
}

impl CarrierSearch {
    /// Asks these, `me` left out: each leaf in an order of its own, so that not all of them ask one member first.
    pub fn new(me: PeerId, max_stall: Duration, contacts: Vec<Contact>) -> Self {
        let mut known: Vec<Contact> = contacts.into_iter().filter(|contact| contact.peer != me).collect();
        known.sort_by_key(|contact| contact.peer);
        known.dedup_by_key(|contact| contact.peer);
        let first = known.len().checked_sub(1).map_or(0, |last| usize::from(me.0[31] ^ me.0[0]) % (last + 1));
        known.rotate_left(first);
        known.truncate(MAX_KNOWN);
        let left = known.len();
        Self { max_stall, known: known.into(), left, rounds: 0 }
    }

    /// `by` says that these are members by now, and so is it. Those that are known stay in their order, others are asked after them; of
    /// those that are not named some are kept.
    pub fn learn(&mut self, me: PeerId, by: PeerId, contacts: Vec<Contact>) {
        let named = |peer: PeerId| peer == by || contacts.iter().any(|contact| contact.peer == peer);
        let former = self.known.iter().filter(|contact| !named(contact.peer)).count();
        let mut beyond = former.saturating_sub(MAX_FORMER);
        self.known.retain(|contact| {
            let goes = !named(contact.peer) && beyond > 0;
            beyond -= usize::from(goes);
            !goes
        });
        let room = MAX_KNOWN.saturating_sub(contacts.len());
        while self.known.len() > room
            && let Some(at) = self.known.iter().position(|contact| !named(contact.peer))
        {
            self.known.remove(at);
        }
        for contact in contacts.into_iter().filter(|contact| contact.peer != me) {
            match self.known.iter().position(|known| known.peer == contact.peer) {
                Some(at) => self.known[at] = contact,
                None if self.known.len() < MAX_KNOWN => {
                    self.known.push_back(contact);
                    self.left += 1;
                }
                None => {}
            }
        }
        // Who carries it for a moment, again and again, is not asked without a wait.
        self.left = self.left.min(self.known.len());
    }

    /// Somebody carries it, and it goes on: the next search begins anew.
    pub fn succeed(&mut self) {
        (self.rounds, self.left) = (0, self.known.len());
    }

    /// In so many rounds nobody carried it, since somebody has.
    pub fn rounds(&self) -> u32 {
        self.rounds
    }

    /// The next one to ask; `Err` with the time to wait until then, or with `None` once all that was in vain.
    ///
    /// # Errors
    /// If nobody is asked now.
    pub fn next(&mut self, now: Time) -> Result<PeerId, Option<Time>> {
        if self.left > 0
            && let Some(contact) = self.known.pop_front()
        {
            self.left -= 1;
            let peer = contact.peer;
            self.known.push_back(contact);
            return Ok(peer);
        }
        self.rounds += 1;
        if self.rounds >= MAX_ROUNDS {
            return Err(None);
        }
        self.left = self.known.len();
        Err(Some(now + self.max_stall / 16 * (1 << (self.rounds - 1).min(DOUBLINGS))))
    }

    /// Where those are that it knows.
    pub fn contacts(&self) -> impl Iterator<Item = &Contact> {
        self.known.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contacts(peers: &[u8]) -> Vec<Contact> {
        peers.iter().map(|peer| Contact { peer: PeerId([*peer; 32]), addresses: Vec::new() }).collect()
    }

    const STALL: Duration = Duration::from_secs(16);

    #[test]
    fn each_is_asked_once_in_a_round_and_waits_grow_to_a_bound() {
        let me = PeerId([9; 32]);
        let mut search = CarrierSearch::new(me, STALL, contacts(&[3, 1, 9, 2, 1]));
        let (mut now, mut waits) = (Time::ZERO, Vec::new());
        loop {
            let mut round: Vec<PeerId> = (0..3).map(|_| search.next(now).expect("three are known")).collect();
            round.sort_unstable();
            assert_eq!(round, [1, 2, 3].map(|peer| PeerId([peer; 32])));
            match search.next(now) {
                Ok(peer) => panic!("{peer:?} is asked twice"),
                Err(None) => break,
                Err(Some(at)) => {
                    waits.push((at - now).as_secs());
                    now = at;
                }
            }
        }
        assert_eq!((&waits[..6], waits.len()), (&[1, 2, 4, 8, 16, 16][..], MAX_ROUNDS as usize - 1));
    }

    #[test]
    fn what_it_is_told_takes_the_place_of_what_it_knew_and_who_was_asked_comes_last() {
        let me = PeerId([9; 32]);
        let mut search = CarrierSearch::new(me, STALL, contacts(&[1, 2]));
        let first = search.next(Time::ZERO).expect("there are two");
        search.learn(me, first, contacts(&[1, 2, 9, 4]));
        assert_eq!(search.contacts().count(), 3);
        let other = search.next(Time::ZERO).expect("the other one");
        assert_ne!(other, first);
        assert_eq!(search.next(Time::ZERO), Ok(first), "there is one more to ask in this round");
        assert!(search.next(Time::ZERO).is_err(), "it is not begun anew");
        search.succeed();
        assert_eq!(search.next(Time::ZERO), Ok(PeerId([4; 32])));
        // Who is alone tells of nobody: the others are not forgotten.
        search.learn(me, first, Vec::new());
        assert_eq!(search.contacts().count(), 3);
        let some: Vec<u8> = (20..40).collect();
        search.learn(me, PeerId([20; 32]), contacts(&some));
        assert_eq!(search.contacts().count(), 23);
        search.learn(me, PeerId([50; 32]), contacts(&[50, 51]));
        assert_eq!(search.contacts().count(), MAX_FORMER + 2);
        let many: Vec<u8> = (100..240).collect();
        search.learn(me, PeerId([100; 32]), contacts(&many));
        assert_eq!(search.contacts().count(), MAX_KNOWN);
        assert!(search.contacts().all(|contact| contact.peer.0[0] >= 100), "members come first");
        assert!(CarrierSearch::new(me, STALL, contacts(&[9])).next(Time::ZERO).is_err());
    }
}
