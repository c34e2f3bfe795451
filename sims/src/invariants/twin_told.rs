//! Two processes with one identity do not put each other out for ever, and their user hears of it; nobody else is told that
//! another process is it.

use std::collections::BTreeMap;

use starling_topology::PeerId;

use super::Broken;
use crate::network::Seat;

const NAME: &str = "twin_told";
/// So often at most do the two take the seat from each other. Each may come back to it once without having been let in as itself, and
/// what shows that may go to the wrong one of them, a few times.
const MAX_TURNS: u32 = 16;

/// Remembers who has two processes.
#[derive(Debug, Default)]
pub struct TwinTold {
    pairs: BTreeMap<PeerId, Pair>,
}

#[derive(Debug, Default)]
struct Pair {
    /// Which of them entered a view last while the other one ran, and how often it was not the one before.
    last: Option<Seat>,
    turns: u32,
    told: bool,
}

impl TwinTold {
    /// A second process of `peer` starts.
    pub fn starts(&mut self, peer: PeerId) {
        self.pairs.entry(peer).or_default();
    }

    /// The process of `peer` on that machine enters a view while the other one runs.
    ///
    /// # Errors
    /// If the two have done so by turns for too long.
    pub fn entered(&mut self, peer: PeerId, seat: Seat) -> Result<(), Broken> {
        let Some(pair) = self.pairs.get_mut(&peer) else { return Ok(()) };
        let before = pair.last.replace(seat);
        pair.turns += u32::from(before.is_some_and(|before| before != seat));
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
            Some(pair) => pair.told = true,
            None if for_sure => return Err(Broken::new(NAME, format!("{peer:?} is told of a twin that it never had"))),
            None => {}
        }
        Ok(())
    }

    /// The run is over.
    ///
    /// # Errors
    /// If both processes of a peer took part beside each other, and its user has not heard of it.
    pub fn ended(&self) -> Result<(), Broken> {
        match self.pairs.iter().find(|(_, pair)| pair.turns > 0 && !pair.told) {
            Some((peer, _)) => Err(Broken::new(NAME, format!("two processes took part as {peer:?}, and nobody says so"))),
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
        assert_eq!(invariant.entered(peer, 1), Ok(()), "it is the only one");
        assert!(invariant.told(peer, true).is_err() && invariant.told(peer, false).is_ok());
        invariant.starts(peer);
        assert_eq!((invariant.entered(peer, 1), invariant.entered(peer, 1)), (Ok(()), Ok(())));
        assert_eq!(invariant.ended(), Ok(()), "the other one never took part");
        assert_eq!(invariant.entered(peer, 9), Ok(()));
        assert!(invariant.ended().is_err());
        assert_eq!((invariant.told(peer, true), invariant.ended()), (Ok(()), Ok(())));
        assert!((0..MAX_TURNS as usize).any(|turn| invariant.entered(peer, turn % 2).is_err()));
    }
}
