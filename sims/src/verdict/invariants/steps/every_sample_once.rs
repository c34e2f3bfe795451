//! Promise P4, no lost and no repeated sample: along the chain of commits that leads to the final state, each epoch visits
//! each sample exactly once, and the last one, if it is not over, none twice; in whole micro-batches, of a run that has such.

use std::collections::BTreeMap;
use std::ops::Range;

use starling_topology::{Digest, PeerId};

use crate::steps::state::{ResultRecord, State};
use crate::verdict::invariants::Broken;
use crate::verdict::report::oracle;

const NAME: &str = "every_sample_once";

/// Remembers what each commit contributed, and which one it followed.
#[derive(Debug, Default)]
pub struct EverySampleOnce {
    commits: BTreeMap<Digest, Link>,
}

#[derive(Debug, Clone)]
struct Link {
    before: Digest,
    step: u64,
    epoch: u64,
    positions: Vec<Range<u32>>,
    /// As of the ledger.
    micro_batch: u32,
}

impl EverySampleOnce {
    /// The commit of `record` led from one state to the next.
    pub fn committed(&mut self, before: &State, record: &ResultRecord, after: &State) {
        let link = || {
            let contributions = oracle::contributions(before, record);
            let positions = contributions.into_iter().flat_map(|(_, ranges)| ranges).collect();
            let (epoch, micro_batch) = (before.ledger.epoch(), before.ledger.micro_batch());
            Link { before: before.digest, step: after.step, epoch, positions, micro_batch }
        };
        self.commits.entry(after.digest).or_insert_with(link);
    }

    /// The run of `peer` ended after `step` with `digest`, over `samples` samples.
    ///
    /// # Errors
    /// If a step is missing in the chain, or a sample was visited twice or not at all.
    pub fn ended(&self, peer: PeerId, digest: Digest, step: u64, samples: u32) -> Result<(), Broken> {
        let mut chain = Vec::new();
        let mut at = digest;
        for expected in (1..=step).rev() {
            let link = self.commits.get(&at).filter(|link| link.step == expected);
            let link = link.ok_or_else(|| Broken::new(NAME, format!("{peer:?} ended without step {expected}")))?;
            chain.push(link);
            at = link.before;
        }
        let mut epoch = 0;
        let mut visited = vec![false; samples as usize];
        for link in chain.into_iter().rev() {
            if link.epoch != epoch {
                if link.epoch != epoch + 1 || visited.contains(&false) {
                    let missing = visited.iter().filter(|visited| !**visited).count();
                    let seen = format!("epoch {epoch} ended before step {} with {missing} samples lost", link.step);
                    return Err(Broken::new(NAME, seen));
                }
                epoch = link.epoch;
                visited.fill(false);
            }
            let is_border = |at: &u32| *at == samples || at.is_multiple_of(link.micro_batch.max(1));
            if let Some(cut) =
                link.positions.iter().flat_map(|range| [range.start, range.end]).find(|at| !is_border(at))
            {
                return Err(Broken::new(NAME, format!("step {} cuts a micro-batch at position {cut}", link.step)));
            }
            for position in link.positions.iter().flat_map(|range| range.clone()) {
                match visited.get_mut(position as usize) {
                    Some(visited) if !*visited => *visited = true,
                    Some(_) | None => {
                        let seen = format!("step {} visits position {position} of epoch {epoch} again", link.step);
                        return Err(Broken::new(NAME, seen));
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Commits that visit these positions in these epochs, of four samples.
    fn check(commits: &[(u64, Range<u32>)]) -> Result<(), Broken> {
        check_in(1, commits)
    }

    /// The same, in micro-batches of so many.
    fn check_in(micro_batch: u32, commits: &[(u64, Range<u32>)]) -> Result<(), Broken> {
        let mut invariant = EverySampleOnce::default();
        for (step, (epoch, range)) in (1..).zip(commits) {
            let link = Link {
                before: Digest([step - 1; 32]),
                step: u64::from(step),
                epoch: *epoch,
                positions: vec![range.clone()],
                micro_batch,
            };
            invariant.commits.insert(Digest([step; 32]), link);
        }
        let last = u8::try_from(commits.len()).expect("there are few");
        invariant.ended(PeerId([1; 32]), Digest([last; 32]), u64::from(last), 4)
    }

    #[test]
    fn each_epoch_visits_each_sample_once() {
        assert_eq!(check(&[(0, 0..2), (0, 2..4), (1, 0..3)]), Ok(()));
    }

    #[test]
    fn lost_and_repeated_samples_are_noticed() {
        assert!(check(&[(0, 0..2), (0, 1..3)]).is_err(), "repeated");
        assert!(check(&[(0, 0..2), (0, 2..3), (1, 0..2)]).is_err(), "lost");
        assert!(check(&[(0, 0..4), (2, 0..2)]).is_err(), "an epoch is missing");
        assert!(check(&[(0, 0..9)]).is_err(), "there is no such sample");
    }

    #[test]
    fn a_micro_batch_that_is_cut_is_noticed() {
        assert_eq!(check_in(3, &[(0, 0..3), (0, 3..4), (1, 0..3)]), Ok(()), "the last one is short");
        assert!(check_in(3, &[(0, 0..2), (0, 2..4)]).is_err());
        assert!(check_in(2, &[(0, 0..2), (0, 2..3)]).is_err());
    }

    #[test]
    fn a_missing_step_is_noticed() {
        assert!(EverySampleOnce::default().ended(PeerId([1; 32]), Digest([3; 32]), 1, 4).is_err());
    }
}
