//! What is true of a machine between any two inputs. Tests and the simulator ask after each.

use crate::id::PeerId;
use crate::membership::Membership;
use crate::membership::outside::contacts::MAX_CONTACTS;
use crate::membership::running::receiving::MAX_EARLY;
use crate::membership::seat::Seat;

impl Membership {
    /// Whether what it keeps fits together.
    ///
    /// # Errors
    /// What does not, as a sentence: a bug in this crate.
    pub fn check(&self) -> Result<(), String> {
        let me = self.me.peer;
        let is_outside = self.join_attempt.is_some();
        match &self.seat {
            None if !is_outside && !self.ended => return Err("it has no place, asks for none, and goes on".to_owned()),
            Some(seat) => {
                if !is_outside && !seat.view.contains(me) {
                    return Err(format!("it has a place in view {}, which is not its own", seat.view.generation.0));
                }
                seat.check(me)?;
            }
            None => {}
        }
        if self.parting && self.finished.is_none() {
            return Err("it says goodbye before it has finished".to_owned());
        }
        if self.departing.is_some() && !self.leaving {
            return Err("they let it go, and it did not ask to leave".to_owned());
        }
        if self.joiners.contains_key(&me) || self.lost.contains_key(&me) {
            return Err("it treats itself as another".to_owned());
        }
        for (what, length, most) in
            [("contacts", self.contacts.len(), MAX_CONTACTS), ("early messages", self.early.len(), MAX_EARLY)]
        {
            if length > most {
                return Err(format!("it keeps {length} {what} of at most {most}"));
            }
        }
        Ok(())
    }
}

impl Seat {
    /// The same of a place in a view, which is that of `me`.
    fn check(&self, me: PeerId) -> Result<(), String> {
        let others = [
            ("suspects", self.suspects.keys().collect::<Vec<_>>()),
            ("accuses", self.accused.iter().collect()),
            ("takes for gone", self.gone.iter().collect()),
        ];
        for (what, peers) in others {
            if peers.contains(&&me) {
                return Err(format!("it {what} itself"));
            }
        }
        let members = [
            ("suspects", self.suspects.keys().collect::<Vec<_>>()),
            ("takes for leaving", self.leavers.iter().collect()),
            ("takes for syncing", self.syncing.iter().collect()),
            ("takes for finished", self.finished.keys().collect()),
            ("owes a vote to", self.due.keys().collect()),
            ("has a newcomer in", self.came_after.keys().collect()),
        ];
        for (what, peers) in members {
            if let Some(peer) = peers.into_iter().find(|peer| !self.view.contains(**peer)) {
                return Err(format!("it {what} {peer:?}, who is no member"));
            }
        }
        let acceptor = &self.acceptor;
        let accepted = acceptor.accepted.as_ref().map(|(ballot, _)| *ballot);
        let echoed = acceptor.echoed.map(|(ballot, _)| ballot);
        if accepted.max(echoed) > acceptor.promised {
            return Err("it has accepted or echoed beyond what it has promised".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::membership::decree::agreement::Acceptor;
    use crate::message::Evidence;
    use crate::tests::cluster::{RUN, me, peer};
    use crate::time::Time;
    use crate::vote::proposal::{Ballot, Progress};

    /// A founder that is no more what it should be.
    fn refused(break_it: impl FnOnce(&mut Membership)) -> String {
        let progress = Progress { has_state: true, ..Progress::default() };
        let mut machine = Membership::found(Config::default(), RUN, me(peer(1)), progress, Time::ZERO);
        assert_eq!(machine.check(), Ok(()));
        break_it(&mut machine);
        machine.check().expect_err("it is broken")
    }

    #[test]
    fn what_does_not_fit_together_is_named() {
        let seat = |machine: &mut Membership, break_it: fn(&mut Seat)| break_it(machine.seat.as_mut().expect("seated"));
        let broken: [(&str, String); 5] = [
            ("no place", refused(|machine| machine.seat = None)),
            ("before it has finished", refused(|machine| machine.parting = true)),
            (
                "suspects itself",
                refused(|machine| {
                    seat(machine, |seat| {
                        seat.suspects.insert(peer(1), Evidence::LinkFailed);
                    });
                }),
            ),
            (
                "who is no member",
                refused(|machine| {
                    seat(machine, |seat| {
                        seat.leavers.insert(peer(7));
                    });
                }),
            ),
            (
                "beyond what it has promised",
                refused(|machine| {
                    seat(machine, |seat| {
                        let echoed = Some((Ballot { attempt: 3, proposer: peer(1) }, [0; 32]));
                        seat.acceptor = Acceptor { promised: None, accepted: None, echoed };
                    });
                }),
            ),
        ];
        for (expected, told) in broken {
            assert!(told.contains(expected), "{told}");
        }
    }
}
