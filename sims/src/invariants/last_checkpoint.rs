//! Part of promise P9: whoever has a good checkpoint still has one after it has tidied up, and what a quorum has signed goes only
//! where something stable comes from it. Of what a member had put aside and may not know to have led nowhere, the newest is enough.

use starling_topology::{PeerId, Root};

use super::Broken;
use crate::disk::{Disk, Name};

const NAME: &str = "last_checkpoint";

/// Looks at a disk before and after its peer has tidied up.
#[derive(Debug, Default)]
pub struct LastCheckpoint;

impl LastCheckpoint {
    /// How many checkpoints on `disk` read back well.
    pub fn good(disk: &Disk) -> usize {
        disk.checkpoints().values().filter(|saved| saved.is_good()).count()
    }

    /// The good ones that a quorum has signed.
    pub fn stable(disk: &Disk) -> Vec<Name> {
        let stable = disk.checkpoints().iter().filter(|(_, saved)| saved.stable().is_some() && saved.is_good());
        stable.map(|(name, _)| *name).collect()
    }

    /// `peer`, which goes by `root`, has tidied `disk` up, on which those of `before` were stable; `follows` says whether the
    /// first state came from the second one.
    ///
    /// # Errors
    /// If one is gone, and nothing that is stable came from it.
    pub fn keeps_stable(
        &self,
        peer: PeerId,
        (before, disk, root): (&[Name], &Disk, &Root),
        follows: impl Fn(Name, Name) -> bool,
    ) -> Result<(), Broken> {
        let now = Self::stable(disk);
        let is_newer = |other: Name, gone: Name| !root.admits(other.0, other.1) && other.0 > gone.0;
        let is_left = |gone: Name| now.iter().any(|other| follows(*other, gone) || is_newer(*other, gone));
        match before.iter().find(|name| !is_left(**name)) {
            Some((step, _)) => Err(Broken::new(
                NAME,
                format!("{peer:?} deleted step {step}, which is stable and led to nothing it has"),
            )),
            None => Ok(()),
        }
    }

    /// `peer` has tidied `disk` up, on which there were `before` good checkpoints.
    ///
    /// # Errors
    /// If there is none left.
    pub fn tidied(&self, peer: PeerId, before: usize, disk: &Disk) -> Result<(), Broken> {
        if before > 0 && Self::good(disk) == 0 {
            return Err(Broken::new(NAME, format!("{peer:?} deleted its last good checkpoint")));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Saved;
    use crate::state::State;
    use starling_topology::Lineage;
    use starling_topology::ledger::Ledger;
    use starling_topology::retention::Forked;

    #[test]
    fn a_last_one_that_is_deleted_is_noticed() {
        let mut disk = Disk::default();
        let bytes = State::initial(Ledger::new(1, 9, 3)).encode();
        disk.write_checkpoint((4, Lineage::NONE), Saved::new(bytes)).expect("there is room");
        disk.write_checkpoint((8, Lineage::NONE), Saved::new(vec![1, 2, 3])).expect("there is room");
        let before = LastCheckpoint::good(&disk);
        assert_eq!((before, LastCheckpoint.tidied(PeerId([1; 32]), before, &disk)), (1, Ok(())));
        disk.delete_checkpoint((4, Lineage::NONE));
        assert!(LastCheckpoint.tidied(PeerId([1; 32]), before, &disk).is_err());
    }

    #[test]
    fn a_stable_one_that_led_nowhere_and_is_deleted_is_noticed() {
        let (mut disk, me, none) = (Disk::default(), PeerId([1; 32]), Lineage::NONE);
        let bytes = State::initial(Ledger::new(1, 9, 3)).encode();
        let signed = || Saved::new(bytes.clone()).signed_by([me].into(), Forked(false));
        for step in [4, 8] {
            disk.write_checkpoint((step, none), signed()).expect("there is room");
        }
        let before = LastCheckpoint::stable(&disk);
        let tidied = |disk: &Disk, root: Root, follows: bool| {
            LastCheckpoint.keeps_stable(me, (&before, disk, &root), |one, other| one == other || follows)
        };
        let here = Root::default();
        assert_eq!(tidied(&disk, here, false), Ok(()));
        disk.delete_checkpoint((4, none));
        assert_eq!(tidied(&disk, here, true), Ok(()));
        assert!(tidied(&disk, here, false).is_err());
        let elsewhere = Root { step: 9, branch: 7, ..here };
        assert_eq!(tidied(&disk, elsewhere, false), Ok(()), "of those that were put aside the newest is there");
    }
}
