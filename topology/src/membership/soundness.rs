//! What is true of a machine between any two inputs. Tests and the simulator ask after each.

use crate::id::PeerId;
use crate::membership::outside::contacts::MAX_CONTACTS;
use crate::membership::running::receiving::MAX_EARLY;
use crate::membership::seat::Seat;
use crate::membership::{Membership, Role};
use crate::view::View;

impl Membership {
    /// Whether what it keeps fits together.
    ///
    /// # Errors
    /// What does not, as a sentence: a bug in this crate.
    pub fn check(&self) -> Result<(), String> {
        let me = self.me.peer;
        if self.role() == Role::Gone && !self.ended {
            return Err("it has no place, asks for none, and goes on".to_owned());
        }
        if let Some(seat) = self.member_seat().filter(|seat| !seat.view.contains(me)) {
            return Err(format!("it has a place in view {}, which is not its own", seat.view.generation.0));
        }
        self.seat.as_ref().map_or(Ok(()), |seat| seat.check(me))?;
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
        is_other(me, "suspects", self.suspects.keys())?;
        is_other(me, "accuses", self.accused.iter())?;
        is_other(me, "takes for gone", self.gone.iter())?;
        are_members(&self.view, "suspects", self.suspects.keys())?;
        are_members(&self.view, "takes for leaving", self.leavers.iter())?;
        are_members(&self.view, "takes for syncing", self.syncing.iter())?;
        are_members(&self.view, "takes for finished", self.finished.keys())?;
        are_members(&self.view, "owes a vote to", self.due.keys())?;
        are_members(&self.view, "has as a newcomer", self.came_after.keys())?;
        let acceptor = &self.acceptor;
        let accepted = acceptor.accepted.as_ref().map(|(ballot, _)| *ballot);
        let echoed = acceptor.echoed.map(|(ballot, _)| ballot);
        if accepted.max(echoed) > acceptor.promised {
            return Err("it has accepted or echoed beyond what it has promised".to_owned());
        }
        Ok(())
    }
}

fn is_other<'a>(me: PeerId, what: &str, mut peers: impl Iterator<Item = &'a PeerId>) -> Result<(), String> {
    if peers.any(|peer| *peer == me) { Err(format!("it {what} itself")) } else { Ok(()) }
}

fn are_members<'a>(view: &View, what: &str, mut peers: impl Iterator<Item = &'a PeerId>) -> Result<(), String> {
    let stranger = peers.find(|peer| !view.contains(**peer));
    stranger.map_or(Ok(()), |peer| Err(format!("it {what} {peer:?}, who is no member")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::message::Evidence;
    use crate::tests::cluster::{RUN, contact, me, peer};
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
        let seat = |break_it: fn(&mut Seat)| refused(|machine| break_it(machine.seat.as_mut().expect("seated")));
        let contacts = || (0..=MAX_CONTACTS as u64).map(|at| (named(at), contact(named(at)))).collect();
        let broken: [(&str, String); 12] = [
            ("no place", refused(|machine| machine.seat = None)),
            ("is not its own", refused(|machine| machine.me = contact(peer(2)))),
            ("contacts of at most", refused(|machine| machine.contacts = contacts())),
            ("suspects itself", seat(|seat| seat.suspects.extend([(peer(1), Evidence::LinkFailed)]))),
            ("accuses itself", seat(|seat| seat.accused.extend([peer(1)]))),
            ("takes for gone itself", seat(|seat| seat.gone.extend([peer(1)]))),
            ("it suspects", seat(|seat| seat.suspects.extend([(peer(7), Evidence::LinkFailed)]))),
            ("for leaving", seat(|seat| seat.leavers.extend([peer(7)]))),
            ("for syncing", seat(|seat| seat.syncing.extend([peer(7)]))),
            ("for finished", seat(|seat| seat.finished.extend([(peer(7), (1, None))]))),
            ("as a newcomer", seat(|seat| seat.came_after.extend([(peer(7), 1)]))),
            ("beyond what it has promised", seat(|seat| seat.acceptor.echoed = Some((HIGH, [0; 32])))),
        ];
        for (expected, told) in broken {
            assert!(told.contains(expected), "{expected}: {told}");
        }
    }

    const HIGH: Ballot = Ballot { attempt: u64::MAX, proposer: PeerId([1; 32]) };

    fn named(at: u64) -> PeerId {
        let mut bytes = [9; 32];
        bytes[..8].copy_from_slice(&at.to_le_bytes());
        PeerId(bytes)
    }
}
