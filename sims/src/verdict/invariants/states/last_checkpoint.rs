//! Part of promise P9: whoever has a good checkpoint still has one after it has tidied up.

use starling_topology::PeerId;

use crate::hardware::machine::disk::Disk;
use crate::hardware::network::Seat;
use crate::verdict::invariants::Broken;

const NAME: &str = "last_checkpoint";

/// Looks at a disk before and after its peer has tidied up.
#[derive(Debug, Default)]
pub struct LastCheckpoint;

impl LastCheckpoint {
    /// How many checkpoints on `disk` read back well.
    pub fn good(disk: &Disk) -> usize {
        disk.checkpoints().values().filter(|saved| saved.is_good()).count()
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

    /// A keeper had a good stable checkpoint of step `before`, and has one of step `after` now.
    ///
    /// # Errors
    /// If that is less.
    pub fn keeps_stable(keeper: Seat, before: Option<u64>, after: Option<u64>) -> Result<(), Broken> {
        if after < before {
            let seen = format!("keeper {keeper} has the stable checkpoint of {after:?} after that of {before:?}");
            return Err(Broken::new(NAME, seen));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::machine::disk::Saved;
    use crate::steps::state::State;
    use starling_topology::Lineage;
    use starling_topology::ledger::Ledger;

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
}
