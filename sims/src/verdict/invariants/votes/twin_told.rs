//! Two processes with one identity do not put each other out for ever, and their user hears of it; nobody else is told that
//! another process is it.

use std::collections::BTreeMap;

use starling_topology::{PeerId, ViewId};

use crate::hardware::network::Seat;
use crate::verdict::invariants::Broken;

const NAME: &str = "twin_told";
/// So often do two take the seat from each other at most: both may come back to it once without having been let in as itself, and what
/// shows it to one may go to the other, again and again.
const MAX_TURNS: u32 = 7;
/// After so many turns one of them has been shown the other, for sure.
const KNOWN: u32 = 3;

/// Remembers who has two processes.
#[derive(Debug, Default)]
pub struct TwinTold {
    pairs: BTreeMap<PeerId, Pair>,
}

#[derive(Debug, Default)]
struct Pair {
    /// Which of them was let in last while the other one ran, and to which view.
    last: Option<(Seat, ViewId)>,
    /// How often it was not the one before.
    turns: u32,
    told: bool,
}

impl TwinTold {
    /// A second process of `peer` starts.
    pub fn starts(&mut self, peer: PeerId) {
        self.pairs.entry(peer).or_default();
    }

    /// The process of `peer` on that machine enters `view` while the other one runs; `follows` says which views led there. What
    /// they do on two branches is nothing that they could hear of from each other.
    ///
    /// # Errors
    /// If the two have taken the seat from each other for too long.
    pub fn entered(
        &mut self,
        peer: PeerId,
        seat: Seat,
        view: ViewId,
        follows: impl Fn(ViewId) -> bool,
    ) -> Result<(), Broken> {
        let Some(pair) = self.pairs.get_mut(&peer) else { return Ok(()) };
        let before = pair.last.replace((seat, view));
        let is_a_turn = before.is_some_and(|(other, before)| other != seat && before != view && follows(before));
        pair.turns += u32::from(is_a_turn);
        if pair.turns <= MAX_TURNS {
            return Ok(());
        }
        Err(Broken::new(NAME, format!("two processes of {peer:?} have put each other out {} times", pair.turns)))
    }

    /// The user of `peer` is told that another process is it; `for_sure`, or that its disk may have been set back instead.
    ///
    /// # Errors
    /// If there never was another one.
    pub fn told(&mut self, peer: PeerId, for_sure: bool) -> Result<(), Broken> {
        match self.pairs.get_mut(&peer) {
            Some(pair) => pair.told |= for_sure,
            None if for_sure => return Err(Broken::new(NAME, format!("{peer:?} is told of a twin that it never had"))),
            None => {}
        }
        Ok(())
    }

    /// A process of `peer` starts although another one has answered it.
    pub fn overlooked(peer: PeerId) -> Broken {
        Broken::new(NAME, format!("another process has answered as {peer:?}, and a second one takes part"))
    }

    /// The run is over.
    ///
    /// # Errors
    /// If both processes of a peer took its seat by turns, and its user has not heard of it.
    pub fn ended(&self) -> Result<(), Broken> {
        match self.pairs.iter().find(|(_, pair)| pair.turns >= KNOWN && !pair.told) {
            Some((peer, _)) => {
                Err(Broken::new(NAME, format!("two processes took part as {peer:?}, and nobody says so")))
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_that_take_part_by_turns_are_told_of() {
        let peer = PeerId([1; 32]);
        let mut invariant = TwinTold::default();
        let enter = |invariant: &mut TwinTold, seat, view, follows: bool| {
            invariant.entered(peer, seat, ViewId([view; 32]), |_| follows)
        };
        assert_eq!(enter(&mut invariant, 1, 1, true), Ok(()), "it is the only one");
        assert!(invariant.told(peer, true).is_err() && invariant.told(peer, false).is_ok());
        invariant.starts(peer);
        let turns = |invariant: &mut TwinTold, views: std::ops::Range<u8>, follows| {
            views.clone().all(|view| enter(invariant, usize::from(view % 2), view, follows).is_ok())
        };
        assert!(turns(&mut invariant, 1..99, false), "they went on beside each other");
        assert_eq!((turns(&mut invariant, 99..101, true), invariant.ended()), (true, Ok(())));
        assert!(turns(&mut invariant, 101..102, true) && invariant.ended().is_err());
        assert_eq!((invariant.told(peer, true), invariant.ended()), (Ok(()), Ok(())));
        assert!(!turns(&mut invariant, 102..120, true));
    }
}
