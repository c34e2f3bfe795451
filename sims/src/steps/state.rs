//! The replicated state, modelled exactly: every commit is chained into its digest.

use std::collections::VecDeque;
use std::rc::Rc;

use starling_engine::StepResult;
use starling_topology::ledger::{CommitResult, Ledger, STARVED, SYNCING, UNMEASURED};
use starling_topology::{Digest, Lineage, PeerId};

use crate::steps::contribution::{Cell, Contributions};
use crate::sweep::canary::Sabotage;

/// What all members hold after a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    /// The last committed step.
    pub step: u64,
    /// The view in which it was committed; not a part of the digest, which is that of what was computed.
    pub lineage: Lineage,
    /// blake3 over all that was committed, in order.
    pub digest: Digest,
    /// Who computes which samples.
    pub ledger: Ledger,
}

/// The averaged result of one step: what the members of its view have after the reduction, and who they were.
#[derive(Debug, Clone, PartialEq)]
pub struct ResultRecord {
    /// The step.
    pub step: u64,
    /// That of the state after it: of the view that reduced it.
    pub lineage: Lineage,
    /// That of the state that it is applied to.
    pub after: Lineage,
    /// The members whose ring reduced it, sorted.
    pub members: Vec<PeerId>,
    /// Who is in the buffer after the reduction.
    pub cells: Vec<(Cell, Contributions)>,
    /// The buffer's numbers.
    pub mean: Vec<f32>,
}

/// What the last commits came to. All members of a view apply equal results to equal states: that is computed once for
/// all of them.
#[derive(Debug, Default)]
pub struct Commits {
    recent: VecDeque<Applied>,
}

#[derive(Debug)]
struct Applied {
    before: Rc<State>,
    record: Rc<ResultRecord>,
    after: Rc<State>,
}

/// How many commits are remembered: members of one view are a step apart at most, and there may be several views.
const REMEMBERED: usize = 4;

impl Commits {
    /// A result, or the equal one that is there already.
    pub fn share(&self, record: ResultRecord) -> Rc<ResultRecord> {
        let known = self.recent.iter().find(|applied| *applied.record == record);
        known.map_or_else(|| Rc::new(record), |applied| Rc::clone(&applied.record))
    }

    /// As [`State::apply`].
    pub fn apply(&mut self, before: &Rc<State>, record: &Rc<ResultRecord>, sabotage: Option<Sabotage>) -> Rc<State> {
        let equal = |applied: &&Applied| same(&applied.before, before) && same(&applied.record, record);
        if let Some(applied) = self.recent.iter().find(equal) {
            return Rc::clone(&applied.after);
        }
        let (before, record, after) = (Rc::clone(before), Rc::clone(record), before.apply(record, sabotage));
        self.recent.push_front(Applied { before, record, after: Rc::clone(&after) });
        self.recent.truncate(REMEMBERED);
        after
    }
}

fn same<T: PartialEq>(one: &Rc<T>, other: &Rc<T>) -> bool {
    Rc::ptr_eq(one, other) || one == other
}

impl StepResult for ResultRecord {
    fn step(&self) -> u64 {
        self.step
    }

    fn lineage(&self) -> Lineage {
        self.lineage
    }

    fn after(&self) -> Lineage {
        self.after
    }

    fn bytes(&self) -> usize {
        self.cells.len() * size_of::<(Cell, Contributions)>() + self.mean.len() * size_of::<f32>()
    }

    fn is_from_all(&self) -> bool {
        self.speeds().iter().all(|speed| *speed > SYNCING)
    }
}

impl ResultRecord {
    /// The members' speeds in this step, aligned with them.
    pub fn speeds(&self) -> &[u32] {
        self.cells.first().map_or(&[], |(_, contributions)| &contributions.speeds)
    }
}

impl State {
    /// The state before the first step, which every peer can draw from the run's seed.
    pub fn initial(ledger: Ledger) -> Self {
        Self { step: 0, lineage: Lineage::NONE, digest: Digest(*blake3::hash(&ledger.encode()).as_bytes()), ledger }
    }

    /// The state before the first step with the first assignment made.
    pub fn assigned(mut ledger: Ledger, members: &[PeerId]) -> Self {
        ledger.assign(members);
        Self::initial(ledger)
    }

    /// The state after the step of `record`. Planted faults take the samples of those who are lost, or starved, for done, or deal to nobody who has
    /// none.
    ///
    /// # Panics
    /// If the record is not of the next step: the caller has checked that.
    pub fn apply(&self, record: &ResultRecord, sabotage: Option<Sabotage>) -> Rc<Self> {
        assert_eq!(record.step, self.step + 1, "results are applied in order");
        let mut ledger = self.ledger.clone();
        let committed = match sabotage {
            Some(Sabotage::DropsReturned) => commit_without_return(&mut ledger, record),
            Some(Sabotage::DropsStarved) => {
                let said = |speed: &u32| if *speed == STARVED { UNMEASURED } else { *speed };
                let speeds: Vec<u32> = record.speeds().iter().map(said).collect();
                ledger.commit(record.step, &record.members, &speeds)
            }
            Some(Sabotage::ForgetsStarved) => {
                let (members, speeds) = (record.members.iter(), record.speeds());
                let has_none = |peer: &PeerId| self.step > 0 && ledger.share_len(*peer) == 0;
                let said = |(peer, speed): (&PeerId, &u32)| if has_none(peer) { SYNCING } else { *speed };
                let speeds: Vec<u32> = members.zip(speeds).map(said).collect();
                ledger.commit(record.step, &record.members, &speeds)
            }
            _ => ledger.commit(record.step, &record.members, record.speeds()),
        };
        let digest = chain(self.digest, &committed, record);
        Rc::new(Self { step: record.step, lineage: record.lineage, digest, ledger })
    }

    /// The bytes of a checkpoint: this state, behind a checksum.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        body.extend_from_slice(&self.step.to_le_bytes());
        body.extend_from_slice(&self.lineage.to_bytes());
        body.extend_from_slice(&self.digest.0);
        body.extend_from_slice(&self.ledger.encode());
        let mut bytes = blake3::hash(&body).as_bytes().to_vec();
        bytes.append(&mut body);
        bytes
    }

    /// Reads a checkpoint; `None` if its checksum does not fit. `verify` is switched off only to see that it is missed.
    pub fn decode(bytes: &[u8], verify: bool) -> Option<Self> {
        let (checksum, body) = bytes.split_at_checked(32)?;
        if verify && blake3::hash(body).as_bytes() != checksum {
            return None;
        }
        let (step, rest) = body.split_first_chunk::<8>()?;
        let (lineage, rest) = rest.split_first_chunk()?;
        let (digest, ledger) = rest.split_first_chunk::<32>()?;
        let ledger = Ledger::decode(ledger).ok()?;
        let step = u64::from_le_bytes(*step);
        Some(Self { step, lineage: Lineage::from_bytes(*lineage), digest: Digest(*digest), ledger })
    }
}

/// Commits as if those who have a share had all contributed, and then tells the truth about who did.
fn commit_without_return(ledger: &mut Ledger, record: &ResultRecord) -> CommitResult {
    let speed_of = |peer: &PeerId| match record.members.binary_search(peer) {
        Ok(at) => record.speeds()[at],
        Err(_) => 1,
    };
    let sharers = ledger.shares().iter().map(|(peer, _)| *peer);
    let all: std::collections::BTreeSet<PeerId> = record.members.iter().copied().chain(sharers).collect();
    let all: Vec<PeerId> = all.into_iter().collect();
    let speeds: Vec<u32> = all.iter().map(|peer| speed_of(peer).max(1)).collect();
    let mut committed = ledger.commit(record.step, &all, &speeds);
    committed
        .contributions
        .retain(|(peer, _)| record.members.binary_search(peer).is_ok_and(|at| record.speeds()[at] > 0));
    committed
}

fn chain(before: Digest, committed: &CommitResult, record: &ResultRecord) -> Digest {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&before.0).update(&record.step.to_le_bytes()).update(&committed.epoch.to_le_bytes());
    for peer in &record.members {
        hasher.update(&peer.0);
    }
    for (peer, ranges) in &committed.contributions {
        hasher.update(&peer.0);
        for range in ranges {
            hasher.update(&range.start.to_le_bytes()).update(&range.end.to_le_bytes());
        }
    }
    for (cell, contributions) in &record.cells {
        let Contributions { counts, divided, sum, speeds } = contributions;
        for word in [cell.bucket, cell.chunk.0, cell.segment, *divided].iter().chain(counts).chain(speeds) {
            hasher.update(&word.to_le_bytes());
        }
        hasher.update(&sum.to_le_bytes());
    }
    for number in &record.mean {
        hasher.update(&number.to_le_bytes());
    }
    Digest(*hasher.finalize().as_bytes())
}

#[cfg(test)]
mod tests {
    use starling_topology::Rank;

    use super::*;

    #[test]
    fn a_checkpoint_reads_back_and_a_flipped_bit_is_noticed() {
        let state = State::assigned(Ledger::new(1, 50, 8), &[PeerId([1; 32]), PeerId([2; 32])]);
        let bytes = state.encode();
        assert_eq!(State::decode(&bytes, true), Some(state));
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 4;
            assert_eq!(State::decode(&flipped, true), None);
        }
        assert_eq!(State::decode(&bytes[..20], true), None);
    }

    #[test]
    fn a_commit_is_computed_once_for_all_who_do_the_same() {
        let members = [PeerId([1; 32]), PeerId([2; 32])];
        let before = Rc::new(State::assigned(Ledger::new(1, 50, 8), &members));
        let cell = Cell { bucket: 0, chunk: Rank(0), segment: 0 };
        let record = |sum| {
            let contributions = Contributions { counts: vec![1, 1], divided: 1, sum, speeds: vec![7, 9] };
            let (lineage, after) = (Lineage { branch: 1, ..Lineage::NONE }, Lineage::NONE);
            let members = members.to_vec();
            ResultRecord { step: 1, lineage, after, members, cells: vec![(cell, contributions)], mean: vec![1.5] }
        };
        let mut commits = Commits::default();
        let first = commits.share(record(3));
        let after = commits.apply(&before, &first, None);
        assert_eq!(after, before.apply(&first, None));
        let again = commits.share(record(3));
        assert!(Rc::ptr_eq(&first, &again));
        assert!(Rc::ptr_eq(&after, &commits.apply(&Rc::new(State::clone(&before)), &again, None)));
        // Another result, or another state before it, comes to something else.
        let other = commits.share(record(4));
        assert_ne!(commits.apply(&before, &other, None).digest, after.digest);
        let mut rotten = State::clone(&before);
        rotten.ledger = Ledger::new(2, 50, 8);
        rotten.ledger.assign(&members);
        let rotten = Rc::new(rotten);
        assert_eq!(commits.apply(&rotten, &first, None), rotten.apply(&first, None));
    }
}
