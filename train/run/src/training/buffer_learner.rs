//! A run without a model: members bring buffers of their own, and take their mean, or what else they call.
//!
//! It takes the same steps as a run that trains, so it heals, joins and catches up in the same way. What all members hold
//! alike, and a joiner downloads, is what the newest step has left all of them with: a mean, or what was gathered or broadcast. A
//! step's buffer is laid out as a trainer's
//! ([`crate::training::contribution`]) with a weight of 1: all members divide the same sum by the same number of contributors.

use std::sync::Arc;

use starling_collective::codec::kernel;
use starling_topology::ledger::{SYNCING, UNMEASURED};
use starling_topology::{Ledger, Lineage, PeerId, RunId};

use crate::error::Error;
use crate::manifest::Manifest;
use crate::manifest::call_header::CallHeader;
use crate::manifest::spec::ModelSpec;
use crate::program::learner::StateReplica;
use crate::state::ReplicatedState;
use crate::state::record::{RecordError, ResultRecord};
use crate::training::call::CallDecision;
use crate::training::contribution;

/// One member's part in a run of [`ModelSpec::Raw`].
#[derive(Debug)]
pub struct BufferLearner {
    manifest: Manifest,
    run: RunId,
    ledger: Ledger,
    step: u64,
    /// The view in which it was committed.
    lineage: Lineage,
    /// Of the newest step that left all with something: the sum, or what stands for itself. What follows the elements does not
    /// count.
    newest: Arc<ResultRecord>,
    /// How many buffers it is the sum of; 1 if it is none.
    count: f32,
    elements: usize,
}

/// What a step came to: the same on all members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BufferStepReport {
    /// The step, counted from 1.
    pub step: u64,
    /// Who brought a buffer, sorted.
    pub contributors: Vec<PeerId>,
    /// What they called, and what their buffers meant.
    pub tags: Vec<CallHeader>,
    /// What was done.
    pub agreed: CallDecision,
}

impl BufferStepReport {
    /// A contributor whose call is not one that this tag belongs to, and what it was.
    pub fn other_than(&self, tag: CallHeader) -> Option<(PeerId, CallHeader)> {
        let mut told = self.contributors.iter().copied().zip(self.tags.iter().copied());
        told.find(|(_, theirs)| !theirs.belongs_to(tag))
    }
}

impl BufferLearner {
    /// A member's part before the first step.
    ///
    /// # Errors
    /// If the manifest is not usable, or is that of a run that trains a model.
    pub fn new(manifest: &Manifest) -> Result<Self, Error> {
        manifest.check()?;
        if manifest.model != ModelSpec::Raw {
            return Err(Error::HasModel { model: manifest.model.to_string() });
        }
        let elements = manifest.parameters();
        Ok(Self {
            run: manifest.run_id(),
            ledger: Ledger::new(manifest.seed, 2, manifest.batch_size),
            manifest: manifest.clone(),
            step: 0,
            lineage: Lineage::NONE,
            newest: Arc::new(nothing(0, Lineage::NONE, vec![0.0; elements])),
            count: 1.0,
            elements,
        })
    }

    /// The run's manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// How many numbers a buffer has.
    pub fn elements(&self) -> usize {
        self.elements
    }

    /// What the newest step left all members with, `[elements]`; zeros before the first one.
    pub fn newest(&self) -> Vec<f32> {
        self.newest.mean[..self.elements].iter().map(|sum| sum / self.count).collect()
    }

    /// What this member puts into an operation of the view with `members` behind its buffer: what it calls, `[1 + members]`.
    pub fn slots(members: &[PeerId], me: PeerId, tag: CallHeader) -> Vec<f32> {
        std::iter::once(0.0).chain(contribution::slots(members, me, tag.slot())).collect()
    }

    /// Who has said something in the `slots` of a result, and what. `members` are those of the view, sorted.
    pub fn told(members: &[PeerId], slots: &[f32]) -> Vec<(PeerId, CallHeader)> {
        // A run of buffers divides by 1.
        let words = contribution::speeds(slots, 1);
        let told = members.iter().zip(words).filter(|(_, word)| *word != SYNCING);
        told.map(|(member, word)| (*member, CallHeader::of_slot(word))).collect()
    }

    /// Takes in the result of the next step, which is known to be finite or not, and writes what all hold now to `values`, if there
    /// are some, all members hold the same, and these belong to what was called. Returns the result that it replaces, too, whose
    /// memory may be of use.
    ///
    /// # Errors
    /// If it is of another step, of another length, of no view, or has a number that is not finite. Nothing has changed
    /// then, but for `values`.
    ///
    /// # Panics
    /// If there is not one value for each element.
    pub fn apply(
        &mut self,
        record: &Arc<ResultRecord>,
        is_finite: bool,
        values: Option<(&mut [f32], CallHeader)>,
    ) -> Result<(BufferStepReport, Arc<ResultRecord>), Error> {
        let step = self.step + 1;
        if record.step != step {
            return Err(Error::OtherStep { expected: step, found: record.step });
        }
        record.check(self.elements())?;
        assert!(
            values.as_ref().is_none_or(|(values, _)| values.len() == self.elements),
            "a buffer has the run's length"
        );
        let told = Self::told(&record.members, record.slots());
        let agreed = CallDecision::of(&told);
        let (contributors, tags): (Vec<_>, Vec<_>) = told.into_iter().unzip();
        let averaged = BufferStepReport { step, contributors, tags, agreed };
        let count = match agreed {
            CallDecision::AllReduce => Some(averaged.contributors.len() as f32),
            CallDecision::AllGather | CallDecision::Broadcast(_) => Some(1.0),
            // If nobody brought anything there is no mean, only zeros.
            CallDecision::ReduceScatter | CallDecision::Nothing => None,
        };
        let values = values.filter(|(_, tag)| count.is_some() && averaged.other_than(*tag).is_none());
        let values = values.map(|(values, _)| values).unwrap_or_default();
        if !is_finite || !values.is_empty() {
            check_and_divide(&record.mean, count.unwrap_or(1.0), values)?;
        }
        // The first step is that of those who reduce it.
        self.begin(&record.members);
        let mut older = record.clone();
        if let Some(count) = count {
            std::mem::swap(&mut self.newest, &mut older);
            self.count = count;
        }
        // It has no samples, and what buffers mean is no speed.
        let words = contribution::speeds(record.slots(), 1);
        let speeds: Vec<u32> = words.into_iter().map(|word| word.min(UNMEASURED)).collect();
        self.ledger.commit(step, &record.members, &speeds);
        (self.step, self.lineage) = (step, record.lineage);
        Ok((averaged, older))
    }
}

impl StateReplica for BufferLearner {
    fn step(&self) -> u64 {
        self.step
    }

    fn lineage(&self) -> Lineage {
        self.lineage
    }

    /// What a program brings does not depend on who else does. Until the first step the ledger is the newest view's.
    fn begin(&mut self, members: &[PeerId]) -> bool {
        if self.step == 0 {
            let mut ledger = Ledger::new(self.ledger.seed(), self.ledger.samples(), self.ledger.batch_size());
            ledger.assign(members);
            self.ledger = ledger;
        }
        false
    }

    fn state(&self) -> ReplicatedState {
        ReplicatedState {
            run: self.run,
            step: self.step,
            lineage: self.lineage,
            parameters: Arc::new(self.newest()),
            frozen: <_>::default(),
            moments: Vec::new(),
            scalars: Vec::new(),
            ledger: self.ledger.clone(),
        }
    }

    fn load(&mut self, state: ReplicatedState) -> Result<(), Error> {
        if state.run != self.run {
            return Err(Error::OtherRun { ours: self.run, theirs: state.run });
        }
        let shape = |numbers: usize, others: usize| format!("{numbers} numbers and {others} besides");
        let expected = shape(self.elements(), 0);
        let found = shape(state.parameters.len(), state.moments.len() + state.scalars.len() + state.frozen.len());
        if expected != found {
            return Err(Error::OtherShape { step: state.step, expected, found });
        }
        state.check_ledger()?;
        let ReplicatedState { step, lineage, parameters, ledger, .. } = state;
        let mean = Arc::unwrap_or_clone(parameters);
        self.newest = Arc::new(nothing(step, lineage, mean));
        (self.count, self.ledger, self.step, self.lineage) = (1.0, ledger, step, lineage);
        Ok(())
    }
}

/// What stands for the result of a step that was loaded, not reduced.
fn nothing(step: u64, lineage: Lineage, mean: Vec<f32>) -> ResultRecord {
    ResultRecord { step, lineage, after: Lineage::NONE, members: Vec::new(), mean }
}

/// Writes the quotients of the first sums to `values`, and checks all sums finite.
fn check_and_divide(sums: &[f32], count: f32, values: &mut [f32]) -> Result<(), RecordError> {
    let (divided, others) = sums.split_at(values.len());
    let bad = match kernel::quotients(values, divided, count) {
        Ok(()) => kernel::first_non_finite(others).map(|index| divided.len() + index),
        Err(bad) => Some(bad.index),
    };
    bad.map_or(Ok(()), |at| Err(RecordError::NotFinite { at: at as u64 }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::spec::RunSpec;
    use crate::training::call::CallKind;

    fn peers(names: &[u8]) -> Vec<PeerId> {
        names.iter().map(|name| PeerId([*name; 32])).collect()
    }

    fn buffer_learner(elements: u64) -> BufferLearner {
        BufferLearner::new(&Manifest::raw(elements, &RunSpec::default()).expect("a manifest")).expect("an averager")
    }

    /// What members with these buffers would reduce; one without is still syncing.
    fn reduced(step: u64, members: &[PeerId], buffers: &[Option<&[f32]>]) -> Arc<ResultRecord> {
        let mut sum = vec![0.0; 0];
        for (me, values) in members.iter().zip(buffers) {
            let Some(values) = values else { continue };
            let buffer = [*values, &BufferLearner::slots(members, *me, CallHeader::new(0))].concat();
            sum.resize(buffer.len(), 0.0);
            sum.iter_mut().zip(&buffer).for_each(|(sum, value): (&mut f32, _)| *sum += value);
        }
        Arc::new(ResultRecord {
            step,
            lineage: Lineage::NONE,
            after: Lineage::NONE,
            members: members.to_vec(),
            mean: sum,
        })
    }

    #[test]
    fn the_mean_is_that_of_those_who_contributed() {
        let members = peers(&[1, 2, 3]);
        let mut buffer_learner = buffer_learner(2);
        buffer_learner.begin(&members);
        let mut values = [0.0; 2];
        let all = reduced(1, &members, &[Some(&[1.0, 10.0]), Some(&[2.0, 20.0]), Some(&[6.0, 0.0])]);
        assert_eq!(
            buffer_learner.apply(&all, false, Some((&mut values, CallHeader::new(0)))).expect("applied").0,
            BufferStepReport {
                step: 1,
                contributors: members.clone(),
                tags: vec![CallHeader::new(0); 3],
                agreed: CallDecision::AllReduce
            }
        );
        assert_eq!((buffer_learner.newest(), values), (vec![3.0, 10.0], [3.0, 10.0]));
        let some = reduced(2, &members, &[Some(&[1.0, 1.0]), None, Some(&[2.0, 0.0])]);
        let (averaged, older) = buffer_learner.apply(&some, false, None).expect("applied");
        assert!(Arc::ptr_eq(&older, &all));
        assert_eq!((averaged.step, averaged.contributors), (2, peers(&[1, 3])));
        assert_eq!(buffer_learner.newest(), [1.5, 0.5]);
    }

    #[test]
    fn buffers_that_mean_different_things_are_not_averaged() {
        let members = peers(&[1, 2, 3]);
        let mut buffer_learner = buffer_learner(1);
        buffer_learner.begin(&members);
        let step = |step: u64, tags: [Option<u64>; 3]| {
            let mut sum = vec![0.0; 5];
            for (me, tag) in members.iter().zip(tags).filter_map(|(me, tag)| Some((me, tag?))) {
                let buffer = [vec![3.0], BufferLearner::slots(&members, *me, CallHeader::new(tag))].concat();
                sum.iter_mut().zip(&buffer).for_each(|(sum, value)| *sum += value);
            }
            let (lineage, after) = (Lineage::NONE, Lineage::NONE);
            Arc::new(ResultRecord { step, lineage, after, members: members.clone(), mean: sum })
        };
        let mut values = [7.0];
        let ours = CallHeader::new(5);
        for (at, tags) in [[Some(5), Some(6), Some(5)], [Some(5), None, Some(1 << 50)], [None, Some(6), Some(6)]]
            .into_iter()
            .enumerate()
        {
            let record = step(at as u64 + 1, tags);
            let (averaged, _) = buffer_learner.apply(&record, false, Some((&mut values, ours))).expect("applied");
            let (peer, theirs) = averaged.other_than(ours).expect("another");
            let place = members.iter().position(|member| *member == peer).expect("a member");
            assert_eq!(Some(theirs), tags[place].map(CallHeader::new));
            assert_eq!(values, [7.0], "as it was");
        }
        // Those who agree have their mean, though this member's call was for another.
        assert_eq!(buffer_learner.newest(), [3.0]);
        let (averaged, _) = buffer_learner
            .apply(&step(4, [Some(5), None, Some(5)]), false, Some((&mut values, ours)))
            .expect("applied");
        assert_eq!((averaged.other_than(ours), values), (None, [3.0]));
    }

    #[test]
    fn what_all_hold_is_what_was_called() {
        let members = peers(&[1, 2]);
        let mut buffer_learner = buffer_learner(2);
        buffer_learner.begin(&members);
        let step = |step: u64, calls: [CallKind; 2], whole: [f32; 2]| {
            let mut mean = whole.to_vec();
            mean.push(0.0);
            mean.extend(calls.map(|call| CallHeader::of(call, 3).slot() as f32));
            let (lineage, after) = (Lineage::NONE, Lineage::NONE);
            Arc::new(ResultRecord { step, lineage, after, members: members.clone(), mean })
        };
        let mut values = [7.0; 2];
        let record = step(1, [CallKind::Broadcast, CallKind::Receive], [1.0, -0.0]);
        let ours = CallHeader::of(CallKind::Receive, 3);
        let (averaged, _) = buffer_learner.apply(&record, false, Some((&mut values, ours))).expect("applied");
        assert_eq!((averaged.agreed, averaged.other_than(ours)), (CallDecision::Broadcast(members[0]), None));
        assert_eq!(
            [values, buffer_learner.newest().try_into().expect("two")].map(|two| two.map(f32::to_bits)),
            [[1.0f32, -0.0].map(f32::to_bits); 2]
        );
        let record = step(2, [CallKind::ReduceScatter; 2], [0.0; 2]);
        let (averaged, _) = buffer_learner.apply(&record, false, None).expect("applied");
        assert_eq!(
            (averaged.agreed, buffer_learner.newest()),
            (CallDecision::ReduceScatter, vec![1.0, 0.0]),
            "nobody has all of it"
        );
        let ours = CallHeader::of(CallKind::AllGather, 3);
        let record = step(3, [CallKind::AllGather, CallKind::Outdated], [0.0; 2]);
        let (averaged, _) = buffer_learner.apply(&record, false, Some((&mut values, ours))).expect("applied");
        assert_eq!((averaged.agreed, averaged.other_than(ours), values[0]), (CallDecision::Nothing, None, 1.0));
        let record = step(4, [CallKind::AllGather; 2], [5.0, 6.0]);
        buffer_learner.apply(&record, false, Some((&mut values, ours))).expect("applied");
        assert_eq!((values, buffer_learner.newest()), ([5.0, 6.0], vec![5.0, 6.0]));
    }

    #[test]
    fn a_joiner_goes_on_from_the_newest_mean() {
        let members = peers(&[1, 2]);
        let (mut old, mut new) = (buffer_learner(3), buffer_learner(3));
        old.begin(&members);
        for step in 1..=5 {
            old.apply(&reduced(step, &members, &[Some(&[step as f32; 3]), Some(&[0.0; 3])]), false, None)
                .expect("applied");
        }
        let bytes = old.state().encode();
        assert!(bytes.len() as u64 <= old.manifest().max_state_bytes());
        new.load(ReplicatedState::decode(&bytes).expect("a state")).expect("loaded");
        assert_eq!((new.step(), new.newest(), new.digest()), (5, old.newest(), old.digest()));
        let next = reduced(6, &peers(&[1, 2, 9]), &[Some(&[1.0; 3]), Some(&[2.0; 3]), Some(&[3.0; 3])]);
        assert_eq!(
            old.apply(&next, false, None).expect("applied").0,
            new.apply(&next, false, None).expect("applied").0
        );
        assert_eq!(new.digest(), old.digest());
    }

    #[test]
    fn what_does_not_fit_is_refused_and_changes_nothing() {
        let members = peers(&[1]);
        let mut buffer_learner = buffer_learner(2);
        buffer_learner.begin(&members);
        let before = buffer_learner.digest();
        let mut infinite = reduced(1, &members, &[Some(&[1.0, 2.0])]);
        Arc::make_mut(&mut infinite).mean[1] = f32::INFINITY;
        for (record, reason) in [
            (reduced(2, &members, &[Some(&[1.0, 2.0])]), "step 1 is the next one"),
            (reduced(1, &members, &[Some(&[1.0])]), "numbers was expected"),
            (infinite, "not finite"),
        ] {
            let error = buffer_learner.apply(&record, false, None).expect_err("refused").to_string();
            assert!(error.contains(reason), "{error}");
        }
        assert_eq!(buffer_learner.digest(), before);
        let mut values = [5.0, 6.0];
        let nothing = ResultRecord {
            step: 1,
            lineage: Lineage::NONE,
            after: Lineage::NONE,
            members: members.to_vec(),
            mean: vec![0.0; 3 + members.len()],
        };
        buffer_learner
            .apply(&Arc::new(nothing), false, Some((&mut values, CallHeader::new(0))))
            .expect("nobody brought anything");
        assert_eq!((values, buffer_learner.newest()), ([5.0, 6.0], vec![0.0; 2]), "which is no mean");
        let before = buffer_learner.digest();
        let other = self::buffer_learner(3).state();
        assert!(matches!(buffer_learner.load(other), Err(Error::OtherRun { .. })));
        let short = ReplicatedState { parameters: vec![0.0].into(), ..buffer_learner.state() };
        assert!(matches!(buffer_learner.load(short), Err(Error::OtherShape { .. })));
        assert_eq!(buffer_learner.digest(), before);
    }

    #[test]
    fn runs_with_and_without_a_model_are_told_apart() {
        let raw = Manifest::raw(7, &RunSpec::default()).expect("a manifest");
        assert_eq!(Manifest::decode(&raw.encode()).expect("canonical"), raw);
        assert!(Manifest::raw(0, &RunSpec::default()).is_err());
        let with_data = Manifest { model: ModelSpec::default(), ..raw };
        assert!(with_data.check().expect_err("refused").to_string().contains("`data` is not usable"));
    }
}
