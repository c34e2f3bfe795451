//! Who lacks the data of its samples is done without, and never for good: what it gives back comes next, for those who have data; it gets none of the next
//! batch, then of the next two, and so on up to 64, until it has contributed; whoever else is ready has a share of each batch; and after each
//! 64 steps in a row in which nobody computed anything those who took them stop.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use starling_topology::ledger::{GAVE_UP, STARVED, SYNCING};
use starling_topology::{Digest, PeerId};

use crate::steps::state::{ResultRecord, State};
use crate::verdict::invariants::Broken;
use crate::verdict::report::oracle;

const NAME: &str = "starved_shares";
/// A member rests for so many batches at most.
const MOST: u32 = 64;
/// After so many steps in a row without samples those who took them stop.
const ROW: u32 = 64;

/// A member that was starved, and has not contributed since.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rest {
    /// How many shares it gave back.
    times: u32,
    /// Of how many batches it gets none yet.
    left: u32,
}

/// What is so after a step.
#[derive(Debug, Clone, Default)]
struct Standing {
    rests: BTreeMap<PeerId, Rest>,
    /// So many steps in a row had no samples, as somebody was starved.
    row: u32,
}

/// Remembers who rests after which state, and who has to stop.
#[derive(Debug, Default)]
pub struct StarvedShares {
    after: BTreeMap<Digest, Standing>,
    /// The states after which those stop who took the step.
    ends: BTreeSet<Digest>,
    /// The last state that each process came to by a step.
    came_to: BTreeMap<PeerId, Digest>,
    shares: u64,
}

impl StarvedShares {
    /// A process of `peer` begins, or has loaded a state: it took none of the steps before.
    pub fn begins_anew(&mut self, peer: PeerId) {
        self.came_to.remove(&peer);
    }

    /// Whether those who took the step to this state have to stop, as there are no samples for them.
    pub fn ends_with(&self, digest: Digest) -> bool {
        self.ends.contains(&digest)
    }

    /// How many shares were given back.
    pub fn given_back(&self) -> u64 {
        self.shares
    }

    /// `peer` committed `record` on top of `before` and came to `after`.
    ///
    /// # Errors
    /// If somebody has a share that rests, or none that does not; if a starved member's share is not dealt again; or if `peer` was to stop.
    pub fn committed(
        &mut self,
        peer: PeerId,
        before: &State,
        record: &ResultRecord,
        after: &State,
    ) -> Result<(), Broken> {
        let came_to = self.came_to.insert(peer, after.digest);
        if came_to == Some(before.digest) && self.ends.contains(&before.digest) {
            return Err(Broken::new(NAME, format!("{peer:?} goes on after {ROW} steps without samples")));
        }
        if self.after.contains_key(&after.digest) {
            return Ok(());
        }
        let standing = self.follow(before, record);
        let held = check(&standing, before, record, after);
        if standing.row > 0 && standing.row.is_multiple_of(ROW) && standing.row > self.row_after(before) {
            self.ends.insert(after.digest);
        }
        self.after.insert(after.digest, standing);
        held
    }

    fn row_after(&self, state: &State) -> u32 {
        self.after.get(&state.digest).map_or(0, |standing| standing.row)
    }

    fn follow(&mut self, before: &State, record: &ResultRecord) -> Standing {
        let known = self.after.get(&before.digest).cloned().unwrap_or_default();
        let contributions = oracle::contributions(before, record);
        let has_contributed = |peer: &PeerId| contributions.iter().any(|(by, _)| by == peer);
        let (mut rests, mut is_starved) = (BTreeMap::new(), false);
        for (peer, speed) in record.members.iter().zip(record.speeds()) {
            let rest = known.rests.get(peer).copied();
            if *speed == STARVED && before.ledger.share_len(*peer) > 0 {
                (is_starved, self.shares) = (true, self.shares + 1);
                let times = rest.map_or(1, |rest| rest.times + 1);
                let left = 2u32.saturating_pow(times - 1).min(MOST);
                rests.insert(*peer, Rest { times, left });
            } else if let Some(rest) = rest.filter(|_| !has_contributed(peer)) {
                rests.insert(*peer, Rest { left: rest.left.saturating_sub(1), ..rest });
            }
        }
        let row = if contributions.is_empty() { known.row + u32::from(is_starved) } else { 0 };
        Standing { rests, row }
    }
}

fn check(standing: &Standing, before: &State, record: &ResultRecord, after: &State) -> Result<(), Broken> {
    let step = after.step;
    let said = || record.members.iter().copied().zip(record.speeds().iter().copied());
    let ready: BTreeSet<PeerId> =
        said().filter(|(_, speed)| !matches!(*speed, SYNCING | GAVE_UP | STARVED)).map(|(peer, _)| peer).collect();
    let rests = |peer: &PeerId| standing.rests.get(peer).is_some_and(|rest| rest.left > 0);
    let fresh: BTreeSet<PeerId> = ready.iter().copied().filter(|peer| !rests(peer)).collect();
    let due = match (fresh.is_empty(), ready.is_empty()) {
        (false, _) => fresh,
        (true, false) => ready,
        (true, true) => record.members.iter().copied().collect(),
    };
    let have: BTreeSet<PeerId> = after.ledger.shares().iter().map(|(peer, _)| *peer).collect();
    if let Some(peer) = have.difference(&due).next() {
        return Err(Broken::new(NAME, format!("{peer:?} has a share after step {step}, and {due:?} are to compute")));
    }
    let units = after.ledger.micro_batch().max(1);
    if after.ledger.pending().div_ceil(units) as usize >= due.len()
        && let Some(peer) = due.difference(&have).next()
    {
        return Err(Broken::new(NAME, format!("{peer:?} is ready and has no share after step {step}")));
    }
    let starved = said().filter(|(_, speed)| *speed == STARVED).flat_map(|(peer, _)| before.ledger.share_of(peer));
    let pending: Vec<&Range<u32>> = after.ledger.shares().iter().flat_map(|(_, ranges)| ranges).collect();
    let is_dealt = |position: u32| pending.iter().any(|range| range.contains(&position));
    for range in starved {
        let is_there = before.ledger.epoch() == after.ledger.epoch() && range.clone().all(is_dealt);
        if !is_there {
            return Err(Broken::new(
                NAME,
                format!("positions {range:?} were given back in step {step}, and are not dealt"),
            ));
        }
    }
    if after.ledger.starved() != standing.row {
        let counted = after.ledger.starved();
        return Err(Broken::new(NAME, format!("{counted} steps without samples up to {step} are {}", standing.row)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use starling_topology::{Ledger, Lineage, Rank};

    use super::*;
    use crate::steps::contribution::{Cell, Contributions};
    use crate::sweep::canary::Sabotage;

    const PEERS: [PeerId; 3] = [PeerId([1; 32]), PeerId([2; 32]), PeerId([3; 32])];

    /// What is said of steps in which members say these, after a planted fault, if there is one.
    fn check_steps(steps: &[[u32; 3]], sabotage: Option<Sabotage>) -> Result<(), Broken> {
        let mut invariant = StarvedShares::default();
        let mut state = State::assigned(Ledger::new(1, 48, 12), &PEERS);
        for (step, speeds) in (1..).zip(steps) {
            let cell = Cell { bucket: 0, chunk: Rank(0), segment: 0 };
            let made = Contributions { counts: vec![1; 3], divided: 1, sum: step, speeds: speeds.to_vec() };
            let (lineage, after) = (Lineage { branch: 1, ..Lineage::NONE }, Lineage::NONE);
            let members = PEERS.to_vec();
            let record = ResultRecord { step, lineage, after, members, cells: vec![(cell, made)], mean: vec![0.0] };
            let after = State::clone(&state.apply(&record, sabotage));
            invariant.committed(PEERS[0], &state, &record, &after)?;
            state = after;
        }
        Ok(())
    }

    #[test]
    fn who_is_starved_rests_and_comes_back() {
        let steps = [[9, 9, 9], [9, STARVED, 9], [9, 9, 9], [9, STARVED, 9], [9, 9, STARVED], [9, 9, 9], [9, 9, 9]];
        assert_eq!(check_steps(&steps, None), Ok(()));
        assert_eq!(check_steps(&[[STARVED; 3]; 64], None), Ok(()));
    }

    #[test]
    fn what_is_dropped_and_who_is_forgotten_is_noticed() {
        let steps = [[9, 9, 9], [9, STARVED, 9], [9, 9, 9], [9, 9, 9], [9, 9, 9]];
        assert!(check_steps(&steps, Some(Sabotage::DropsStarved)).is_err());
        assert!(check_steps(&steps, Some(Sabotage::ForgetsStarved)).is_err());
    }

    #[test]
    fn who_goes_on_for_ever_without_samples_is_noticed() {
        let seen = check_steps(&[[STARVED; 3]; 65], None).expect_err("it goes on").seen;
        assert!(seen.contains("goes on after 64 steps"), "{seen}");
        let mut steps = [[STARVED; 3]; 66];
        steps[40] = [9, STARVED, STARVED];
        assert_eq!(check_steps(&steps, None), Ok(()), "one had samples");
    }
}
