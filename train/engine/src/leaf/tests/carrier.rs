//! The carrier's side.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use starling_topology::{
    AttachRefusalReason, CarrierBody, Contact, DeclineReason, DetachReason, Digest, LeafBody, LeafProgress, Lineage,
    PeerId, RunId, Time, View,
};

use super::{ELEMENTS, Of, RUN, STALL, one, peer};
use crate::CarrierEngine;
use crate::leaf::carrier::{CarrierConfig, CarrierEvent, Input, Output};
use crate::leaf::violation::LeafViolation;
use crate::leaf::{MAX_BEHIND, MAX_LEAVES};
use crate::steps::StepEngine;

const MEMBERS: [u8; 2] = [1, 2];

/// A member, 1, whose leaves are 10 and those after it; what it has put together, position by position; and what it has said.
struct Member {
    now: Time,
    engine: CarrierEngine<Vec<f32>, Of>,
    steps: StepEngine<Of, u64>,
    view: View,
    said: Vec<(PeerId, CarrierBody)>,
    closed: Vec<PeerId>,
    faults: Vec<(PeerId, LeafViolation)>,
    events: Vec<CarrierEvent>,
    /// What the learner has yet to compute.
    computing: Option<(u64, Vec<Range<u32>>)>,
    computed: BTreeMap<u64, Vec<Range<u32>>>,
    gathered: Vec<u32>,
    whole: Vec<u64>,
    over: Vec<u64>,
    lent: Option<u64>,
    timer: Option<Time>,
}

impl Member {
    /// After `step`.
    fn at(step: u64) -> Self {
        let view = View::found(RUN, peer(1)).succeed(MEMBERS.map(peer));
        let lineage = if step == 0 { Lineage::NONE } else { Lineage::of(&view) };
        let mut steps = StepEngine::new(step, lineage, 1_000);
        steps.open(&view, false);
        let config =
            CarrierConfig { me: peer(1), run: RUN, max_stall: STALL, elements: ELEMENTS, most: 8.0, places: 99 };
        let mut member = Self {
            now: Time::ZERO,
            engine: CarrierEngine::new(config),
            steps,
            view,
            said: Vec::new(),
            closed: Vec::new(),
            faults: Vec::new(),
            events: Vec::new(),
            computing: None,
            computed: BTreeMap::new(),
            gathered: Vec::new(),
            whole: Vec::new(),
            over: Vec::new(),
            lent: None,
            timer: None,
        };
        member.look();
        member
    }

    fn look(&mut self) {
        self.engine.look(self.now, &self.steps, Some(self.view.generation));
        self.drain();
    }

    fn handle(&mut self, input: Input<Vec<f32>>) {
        self.engine.handle(self.now, input);
        self.drain();
    }

    fn hears(&mut self, from: u8, body: LeafBody) {
        let gradient = matches!(body, LeafBody::Gradient { .. }).then(|| vec![1.0; 3]);
        match self.engine.admits(peer(from), &body) {
            Ok(_) => self.handle(Input::Received { from: peer(from), body, gradient }),
            Err(violation) => self.handle(Input::Faulted { from: peer(from), violation }),
        }
    }

    fn drain(&mut self) {
        while let Some(output) = self.engine.poll() {
            match output {
                Output::Send { to, body, result } => {
                    assert_eq!(matches!(body, CarrierBody::Result { .. }), result.is_some());
                    self.said.push((to, body));
                }
                Output::Close(leaf) => self.closed.push(leaf),
                Output::Clear => self.gathered.clear(),
                Output::Compute { number, ranges, .. } => {
                    assert_eq!(self.computing.replace((number, ranges)), None, "one at a time");
                }
                Output::Drop(number) => {
                    self.computing.take_if(|(computing, _)| *computing == number);
                    self.computed.remove(&number);
                }
                Output::Count(number) => {
                    let ranges = self.computed.remove(&number).expect("it was computed");
                    self.gathered.extend(ranges.into_iter().flatten());
                }
                Output::Add { ranges, weight, gradient, .. } => {
                    assert_eq!(
                        (gradient.len() as u64, weight),
                        (ELEMENTS, ranges.iter().flat_map(Clone::clone).count() as u64)
                    );
                    self.gathered.extend(ranges.into_iter().flatten());
                }
                Output::Whole(step) => self.whole.push(step),
                Output::Over(step) => self.over.push(step),
                Output::Lend(step) => self.lent = Some(step),
                Output::Release => self.lent = None,
                Output::SetTimer(at) => self.timer = Some(at),
                Output::Fault { leaf, violation } => self.faults.push((leaf, violation)),
                Output::Event(event) => self.events.push(event),
            }
        }
    }

    /// Time passes, and what is due happens.
    fn wait(&mut self, for_this: Duration) {
        let until = self.now + for_this;
        while let Some(at) = self.timer.filter(|at| *at <= until) {
            self.timer = None;
            self.now = self.now.max(at);
            self.handle(Input::Expired);
        }
        self.now = until;
    }

    /// What was said to a leaf since the last look.
    fn heard_by(&mut self, leaf: u8) -> Vec<CarrierBody> {
        let (theirs, rest) = std::mem::take(&mut self.said).into_iter().partition(|(to, _)| *to == peer(leaf));
        self.said = rest;
        let theirs: Vec<(PeerId, CarrierBody)> = theirs;
        theirs.into_iter().map(|(_, body)| body).filter(|body| *body != CarrierBody::Alive).collect()
    }

    fn work_of(&mut self, leaf: u8) -> Option<(u64, u64, Vec<Range<u32>>)> {
        self.heard_by(leaf).into_iter().find_map(|body| match body {
            CarrierBody::Work { number, step, ranges, .. } => Some((number, step, ranges)),
            _ => None,
        })
    }

    fn progress(&self) -> Option<LeafProgress> {
        let progress = self.steps.progress();
        Some(LeafProgress { step: progress.step, lineage: progress.lineage })
    }

    /// A leaf attaches that holds what the member does.
    fn attach(&mut self, leaf: u8) {
        let progress = self.progress();
        self.hears(leaf, LeafBody::Attach { run: RUN, progress });
    }

    fn computes(&mut self, step: u64, share: Range<u32>) {
        self.handle(Input::Computes { step, epoch: 0, share: vec![share], micro_batch: 0 });
    }

    /// The learner is through with what it is at.
    fn computed(&mut self) {
        let (number, ranges) = self.computing.take().expect("it computes something");
        self.computed.insert(number, ranges);
        self.handle(Input::Computed(number));
    }

    fn brings(&mut self, leaf: u8, (number, step, ranges): (u64, u64, Vec<Range<u32>>)) {
        let weight = ranges.iter().map(|range| u64::from(range.end - range.start)).sum();
        self.hears(leaf, LeafBody::Gradient { number, step, weight, ranges, elements: ELEMENTS });
    }

    fn commit(&mut self) {
        let progress = self.steps.progress();
        let step = progress.step + 1;
        let result = Of { step, lineage: Lineage::of(&self.view), after: progress.lineage };
        self.steps.deliver(result).expect("it is the next one");
        self.look();
    }

    #[track_caller]
    fn has_each_of(&mut self, share: Range<u32>, step: u64) {
        self.gathered.sort_unstable();
        assert_eq!((&self.gathered, self.whole.last()), (&share.collect::<Vec<_>>(), Some(&step)));
    }
}

#[test]
fn a_share_is_put_together_from_its_parts_whoever_is_first() {
    for own_first in [true, false] {
        let mut member = Member::at(4);
        member.attach(10);
        member.attach(11);
        assert!(matches!(
            member.heard_by(10)[..],
            [CarrierBody::Attached { .. }, CarrierBody::Start { step: 4, loads: false, .. }]
        ));
        member.computes(5, 0..9);
        let works = [10, 11].map(|leaf| member.work_of(leaf).expect("it gets some"));
        assert!(works.iter().all(|(_, step, ranges)| *step == 5 && ranges.len() == 1), "{works:?}");
        assert!(member.engine.has_handed_on());
        if own_first {
            member.computed();
        }
        member.now = member.now + Duration::from_millis(100);
        for (leaf, work) in [10, 11].into_iter().zip(works) {
            member.brings(leaf, work);
        }
        if !own_first {
            assert_eq!(member.whole, Vec::<u64>::new());
            member.computed();
        }
        member.has_each_of(0..9, 5);
        assert_eq!((member.faults.len(), member.computing.clone()), (0, None));
        member.commit();
        assert!(matches!(member.heard_by(10)[..], [CarrierBody::Result { step: 5, .. }]));
        assert!(member.over.is_empty(), "it was whole");
    }
}

#[test]
fn what_is_late_is_computed_here_and_what_is_first_counts() {
    let mut member = Member::at(4);
    member.attach(10);
    member.computes(5, 0..8);
    let work = member.work_of(10).expect("some");
    member.now = member.now + Duration::from_secs(1);
    member.computed();
    assert_eq!(member.computing, None, "the leaf has as long as this member took");
    member.wait(Duration::from_millis(400));
    assert_eq!(member.computing, None);
    member.wait(Duration::from_millis(700));
    assert_eq!(member.computing.as_ref().map(|(_, ranges)| ranges.clone()), Some(work.2.clone()), "the backup begins");
    assert!(member.events.contains(&CarrierEvent::Backup { leaf: peer(10), step: 5 }));
    // The leaf is first all the same.
    let mut other = Member::at(4);
    std::mem::swap(&mut member, &mut other);
    other.brings(10, work.clone());
    assert_eq!(other.computing, None, "it is dropped");
    other.has_each_of(0..8, 5);
    // Or it is not.
    let mut member = Member::at(4);
    member.attach(10);
    member.computes(5, 0..8);
    let work = member.work_of(10).expect("some");
    member.now = member.now + Duration::from_secs(1);
    member.computed();
    member.wait(Duration::from_secs(2));
    member.computed();
    member.has_each_of(0..8, 5);
    member.brings(10, work.clone());
    member.has_each_of(0..8, 5);
    assert_eq!((member.faults.len(), member.events.last()), (0, Some(&CarrierEvent::Late { leaf: peer(10), step: 5 })));
    member.brings(10, work);
    assert!(matches!(member.faults[..], [(_, LeafViolation::Twice { .. })]), "{:?}", member.faults);
}

#[test]
fn a_leaf_that_dies_costs_no_sample_and_one_that_is_frozen_one_wait() {
    let mut member = Member::at(4);
    member.attach(10);
    member.attach(11);
    member.computes(5, 0..9);
    member.now = member.now + Duration::from_millis(300);
    member.handle(Input::Closed(peer(10)));
    member.computed();
    assert!(member.computing.is_some(), "what it owed is computed at once");
    member.computed();
    // 11 is frozen.
    member.wait(Duration::from_secs(1));
    member.computed();
    member.has_each_of(0..9, 5);
    member.commit();
    member.heard_by(11);
    member.computes(6, 0..9);
    assert_eq!(member.work_of(11), None, "it has not answered the first");
    member.computed();
    member.has_each_of(0..9, 6);
    member.wait(STALL);
    assert_eq!(member.engine.leaves().count(), 0, "and nothing was heard of it for long");
    assert!(member.heard_by(11).contains(&CarrierBody::Lost(DetachReason::Silent)));
}

#[test]
fn who_is_always_late_is_given_little() {
    let mut member = Member::at(4);
    member.attach(10);
    let mut given = Vec::new();
    for step in 5..300 {
        member.heard_by(10);
        member.computes(step, 0..8);
        let work = member.work_of(10);
        member.now = member.now + Duration::from_millis(10);
        member.computed();
        member.wait(Duration::from_millis(20));
        if let Some(work) = work {
            given.push(step);
            member.computed();
            member.brings(10, work);
        }
        member.has_each_of(0..8, step);
        member.commit();
        member.hears(10, LeafBody::Applied { start: 1, step, digest: None });
    }
    assert_eq!(given, [5, 8, 13, 22, 39, 72, 137, 202, 267]);
    assert_eq!(member.faults, []);
}

#[test]
fn who_attaches_anew_is_as_late_as_before() {
    let mut member = Member::at(4);
    member.attach(10);
    member.computes(5, 0..8);
    assert!(member.work_of(10).is_some());
    member.now = member.now + Duration::from_millis(10);
    member.computed();
    // It goes with what it owes, and comes again, as often as it may.
    member.handle(Input::Closed(peer(10)));
    member.computed();
    let mut given = Vec::new();
    for step in 5..40 {
        member.has_each_of(0..8, step);
        member.commit();
        member.wait(STALL / 16);
        member.hears(10, LeafBody::Attach { run: RUN, progress: member.progress() });
        member.computes(step + 1, 0..8);
        let is_given = member.work_of(10).is_some();
        given.extend(is_given.then_some(step + 1));
        member.computed();
        member.handle(Input::Closed(peer(10)));
        if is_given {
            member.computed();
        }
    }
    assert_eq!(given, [8, 13, 22, 39]);
}

/// Should the leaf fail, the whole share is its carrier's.
#[test]
fn nobody_claims_a_share_that_it_can_not_compute_alone() {
    let speed = |own: u32| {
        let mut member = Member::at(4);
        member.attach(10);
        member.computes(5, 0..8);
        let work = member.work_of(10).expect("some");
        member.now = member.now + Duration::from_millis(1);
        member.brings(10, work);
        member.engine.speed(own)
    };
    // Eight samples in eight seconds, half of the longest stall, and in four, and in sixteen.
    let leaf = 4 * 1000 * 8;
    assert_eq!(speed(8), 8, "its leaf is fast, but all of a larger share would be too much for it");
    assert_eq!(speed(16), 16 * 2, "the share may become twice as large");
    assert_eq!(speed(4), 4);
    assert_eq!(speed(800), (800 + leaf).min(800 * 100));
}

#[test]
fn what_is_computed_is_kept_until_the_step_is_applied_and_another_share_begins_anew() {
    let mut member = Member::at(4);
    member.attach(10);
    member.computes(5, 0..8);
    let work = member.work_of(10).expect("some");
    member.now = member.now + Duration::from_secs(1);
    member.computed();
    // A view change: the same share is asked for again.
    member.computes(5, 0..8);
    assert_eq!((member.computing.clone(), member.work_of(10)), (None, None), "nothing is computed twice");
    member.brings(10, work);
    member.has_each_of(0..8, 5);
    member.computes(5, 0..8);
    assert_eq!(member.whole, [5, 5], "it is told again");
    member.has_each_of(0..8, 5);
    // What is void is computed again, the same share too.
    member.handle(Input::Void);
    member.computes(5, 0..8);
    assert_eq!((member.gathered.len(), member.computing.is_some()), (0, true));
    let work = member.work_of(10).expect("again");
    member.brings(10, work);
    member.computed();
    member.has_each_of(0..8, 5);
    // Another share drops what is there.
    member.computes(5, 20..28);
    assert_eq!(member.gathered, Vec::<u32>::new());
    let work = member.work_of(10).expect("a part of the new share");
    member.brings(10, work);
    member.computed();
    member.has_each_of(20..28, 5);
    // One that is still owed when the share changes counts for nothing.
    member.commit();
    member.heard_by(10);
    member.computes(6, 0..8);
    let old = member.work_of(10).expect("some");
    member.now = member.now + Duration::from_secs(1);
    member.computed();
    member.computes(6, 30..38);
    member.brings(10, old);
    member.computed();
    member.has_each_of(30..38, 6);
    assert_eq!(member.faults, []);
}

#[test]
fn a_result_from_others_ends_what_is_under_way() {
    let mut member = Member::at(4);
    member.attach(10);
    member.computes(5, 0..8);
    let work = member.work_of(10).expect("some");
    member.commit();
    assert_eq!((&member.over[..], member.computing.clone()), (&[5][..], None));
    member.brings(10, work);
    assert_eq!((member.gathered.len(), member.faults.len()), (0, 0), "late, and no fault");
}

/// Each thing that a leaf should not do: it is named, the leaf is let go and refused for a while, and the step goes on with each sample once.
#[test]
fn whatever_a_leaf_does_wrong_the_step_goes_on() {
    type Wrong = fn(u64, Vec<Range<u32>>) -> (LeafBody, Vec<f32>);
    let right = |number, ranges| LeafBody::Gradient { number, step: 5, weight: 4, ranges, elements: ELEMENTS };
    assert!(matches!(right(1, vec![]), LeafBody::Gradient { .. }));
    let cases: [(&str, Wrong); 14] = [
        ("Length", |number, ranges| {
            (LeafBody::Gradient { number, step: 5, weight: 4, ranges, elements: 4 }, vec![1.0; 4])
        }),
        ("Length", |number, ranges| {
            (LeafBody::Gradient { number, step: 5, weight: 4, ranges, elements: u64::MAX }, vec![1.0; 3])
        }),
        ("Length", |number, ranges| {
            (LeafBody::Gradient { number, step: 5, weight: 4, ranges, elements: 3 }, vec![1.0; 2])
        }),
        ("NotFinite", |number, ranges| {
            (LeafBody::Gradient { number, step: 5, weight: 4, ranges, elements: 3 }, vec![1.0, f32::NAN, 0.0])
        }),
        ("NotFinite", |number, ranges| {
            (LeafBody::Gradient { number, step: 5, weight: 4, ranges, elements: 3 }, vec![1.0, f32::INFINITY, 0.0])
        }),
        ("TooLarge", |number, ranges| {
            (LeafBody::Gradient { number, step: 5, weight: 4, ranges, elements: 3 }, vec![1.0, 2.0, -8.5])
        }),
        ("OtherStep", |number, ranges| {
            (LeafBody::Gradient { number, step: 6, weight: 4, ranges, elements: 3 }, vec![1.0; 3])
        }),
        ("OtherSamples", |number, _| {
            (LeafBody::Gradient { number, step: 5, weight: 4, ranges: one(0..4), elements: 3 }, vec![1.0; 3])
        }),
        ("OtherSamples", |number, ranges| {
            (LeafBody::Gradient { number, step: 5, weight: 1 << 40, ranges, elements: 3 }, vec![1.0; 3])
        }),
        ("NotGiven", |number, ranges| {
            (LeafBody::Gradient { number: number + 9, step: 5, weight: 4, ranges, elements: 3 }, vec![1.0; 3])
        }),
        ("NotGiven", |_, _| (LeafBody::Declines { number: 77, reason: DeclineReason::Over }, Vec::new())),
        ("Beyond", |_, _| (LeafBody::Applied { start: 1, step: 9, digest: None }, Vec::new())),
        ("Beyond", |_, _| (LeafBody::Applied { start: 1, step: 4, digest: None }, Vec::new())),
        ("OutOfTurn", |_, _| (LeafBody::Applied { start: 7, step: 5, digest: None }, Vec::new())),
    ];
    for (name, wrong) in cases {
        let mut member = Member::at(4);
        member.attach(10);
        member.attach(11);
        member.computes(5, 0..12);
        let (number, _, ranges) = member.work_of(10).expect("some");
        let good = member.work_of(11).expect("some");
        let (body, values) = wrong(number, ranges);
        let gradient = matches!(body, LeafBody::Gradient { .. }).then_some(values);
        member.handle(Input::Received { from: peer(10), body: body.clone(), gradient });
        assert!(
            matches!(&member.faults[..], [(leaf, violation)] if *leaf == peer(10) && format!("{violation:?}").starts_with(name)),
            "{name}: {:?}",
            member.faults
        );
        assert_eq!((&member.closed[..], member.engine.leaves().count()), (&[peer(10)][..], 1), "{name}");
        member.brings(11, good);
        member.computed();
        member.computed();
        member.has_each_of(0..12, 5);
        member.heard_by(10);
        member.attach(10);
        let refused = member.heard_by(10);
        assert!(
            matches!(refused[..], [CarrierBody::Refused(AttachRefusalReason::Misbehaved { for_ms: 1.. })]),
            "{name}: {refused:?}"
        );
        member.wait(STALL * 4);
        member.attach(10);
        assert!(matches!(member.heard_by(10)[0], CarrierBody::Attached { .. }), "{name}");
    }
}

#[test]
fn numbers_that_are_missing_or_too_many_are_refused_before_memory_is_taken() {
    let mut member = Member::at(4);
    member.attach(10);
    member.computes(5, 0..8);
    let (number, step, ranges) = member.work_of(10).expect("some");
    let body = |elements| LeafBody::Gradient { number, step, weight: 4, ranges: ranges.clone(), elements };
    assert_eq!(member.engine.admits(peer(10), &body(3)), Ok(Some(12)));
    assert!(matches!(member.engine.admits(peer(10), &body(1 << 62)), Err(LeafViolation::Length { .. })));
    assert_eq!(member.engine.admits(peer(77), &body(3)), Ok(None), "nothing is read of a peer that is no leaf");
    assert_eq!(member.engine.admits(peer(10), &LeafBody::Alive), Ok(Some(0)));
    member.handle(Input::Received { from: peer(10), body: body(3), gradient: None });
    assert_eq!(member.faults, [(peer(10), LeafViolation::Detached)]);
    member.attach(11);
    member.handle(Input::Received { from: peer(11), body: LeafBody::Alive, gradient: Some(vec![]) });
    assert_eq!(member.faults[1], (peer(11), LeafViolation::Detached));
}

#[test]
fn who_can_not_be_a_leaf_is_refused_by_name() {
    let refused = |member: &mut Member, from: u8, run: RunId| {
        member.hears(from, LeafBody::Attach { run, progress: None });
        let last = member.heard_by(from).pop();
        match last {
            Some(CarrierBody::Refused(reason)) => Some(reason),
            _ => None,
        }
    };
    let mut member = Member::at(4);
    assert_eq!(refused(&mut member, 2, RUN), Some(AttachRefusalReason::IsMember));
    assert_eq!(refused(&mut member, 1, RUN), Some(AttachRefusalReason::IsMember));
    assert_eq!(refused(&mut member, 9, RunId([7; 32])), Some(AttachRefusalReason::OtherRun));
    for leaf in 10..10 + MAX_LEAVES as u8 {
        assert_eq!(refused(&mut member, leaf, RUN), None);
    }
    assert_eq!(refused(&mut member, 50, RUN), Some(AttachRefusalReason::Full { places: 8 }));
    let mut new = Member::at(0);
    assert_eq!(refused(&mut new, 10, RUN), Some(AttachRefusalReason::NotReady));
    member.handle(Input::Ended { step: 4, digest: Digest([4; 32]) });
    assert_eq!(member.engine.leaves().count(), 0);
    assert_eq!(refused(&mut member, 60, RUN), Some(AttachRefusalReason::RunFinished));
    // Whoever becomes a member is no leaf any more.
    let mut member = Member::at(4);
    member.attach(10);
    member.view = member.view.succeed([1, 2, 10].map(peer));
    member.steps.hold(starling_topology::HoldPosition::Now, true);
    member.steps.open(&member.view, false);
    member.look();
    assert_eq!(member.engine.leaves().count(), 0);
}

#[test]
fn whoever_attaches_again_and_again_or_says_too_much_is_bounded() {
    let mut member = Member::at(4);
    member.attach(10);
    member.computes(5, 0..8);
    let work = member.work_of(10).expect("some");
    member.attach(10);
    assert_eq!(
        (member.engine.leaves().count(), member.faults.len()),
        (1, 0),
        "a new stream takes the place of the old one"
    );
    assert_eq!(member.engine.admits(peer(10), &LeafBody::Alive), Ok(Some(0)));
    member.brings(10, work);
    assert!(
        matches!(member.faults[..], [(_, LeafViolation::NotGiven { .. })]),
        "what the old one owed is not the new one's"
    );
    member.computed();
    member.computed();
    member.has_each_of(0..8, 5);
    let mut member = Member::at(4);
    (0..9).for_each(|_| member.attach(10));
    assert_eq!(member.faults, [(peer(10), LeafViolation::Floods)]);
    let mut member = Member::at(4);
    member.attach(10);
    (0..100).for_each(|_| member.hears(10, LeafBody::Alive));
    assert_eq!(member.faults, [(peer(10), LeafViolation::Floods)]);
    // Many of them are remembered no longer than there is room.
    for name in 20..=255 {
        member.hears(name, LeafBody::Attach { run: RunId([7; 32]), progress: None });
    }
    member.attach(10);
    let refused = member.heard_by(10);
    assert!(
        matches!(refused.last(), Some(CarrierBody::Refused(AttachRefusalReason::Misbehaved { .. }))),
        "{refused:?}"
    );
}

#[test]
fn who_answers_as_it_should_never_says_too_much() {
    let mut member = Member::at(4);
    member.attach(10);
    for step in 5..400 {
        member.computes(step, 0..8);
        let work = member.work_of(10).expect("some");
        member.brings(10, work);
        member.computed();
        member.has_each_of(0..8, step);
        member.commit();
        member.hears(10, LeafBody::Applied { start: 1, step, digest: None });
    }
    assert_eq!(member.faults, []);
}

#[test]
fn one_state_at_a_time_is_kept_for_leaves() {
    let mut member = Member::at(4);
    member.hears(10, LeafBody::Attach { run: RUN, progress: None });
    assert!(matches!(member.heard_by(10)[1], CarrierBody::Start { step: 4, loads: true, .. }));
    assert_eq!(member.lent, Some(4));
    member.commit();
    assert!(matches!(member.heard_by(10)[..], [CarrierBody::Result { step: 5, .. }]), "results come while it loads");
    // Of a state two steps ago, and of none: both wait.
    let progress = member.progress().map(|progress| LeafProgress { step: 3, ..progress });
    member.hears(11, LeafBody::Attach { run: RUN, progress });
    assert!(matches!(member.heard_by(11)[..], [CarrierBody::Attached { .. }]));
    // One step behind, the result is enough.
    let before = LeafProgress { step: 4, lineage: Lineage::of(&member.view) };
    member.hears(12, LeafBody::Attach { run: RUN, progress: Some(before) });
    assert!(matches!(
        member.heard_by(12)[1..],
        [CarrierBody::Start { step: 4, loads: false, .. }, CarrierBody::Result { step: 5, .. }]
    ));
    member.computes(6, 0..9);
    assert_eq!((member.work_of(10), member.work_of(11)), (None, None), "who does not hold the state gets no work");
    assert!(member.work_of(12).is_some());
    member.hears(10, LeafBody::Applied { start: 1, step: 4, digest: None });
    assert_eq!(member.lent, Some(5));
    assert!(matches!(member.heard_by(11)[..], [CarrierBody::Start { step: 5, loads: true, .. }]));
    member.handle(Input::Closed(peer(11)));
    assert_eq!(member.lent, None);
    // Who takes too long is let go.
    member.hears(13, LeafBody::Attach { run: RUN, progress: None });
    for _ in 0..9 {
        member.wait(STALL / 2);
        member.hears(13, LeafBody::Alive);
    }
    assert!(member.heard_by(13).contains(&CarrierBody::Lost(DetachReason::TooFarBehind)));
    assert_eq!(member.lent, None);
}

#[test]
fn who_applies_nothing_is_let_go() {
    let mut member = Member::at(4);
    member.attach(10);
    for _ in 0..MAX_BEHIND {
        member.commit();
        member.hears(10, LeafBody::Alive);
        assert_eq!(member.engine.leaves().count(), 1);
    }
    member.commit();
    assert!(member.heard_by(10).contains(&CarrierBody::Lost(DetachReason::TooFarBehind)));
    member.attach(10);
    assert!(matches!(member.heard_by(10).last(), Some(CarrierBody::Refused(AttachRefusalReason::Misbehaved { .. }))));
}

#[test]
fn digests_are_compared_and_who_differs_again_is_let_go() {
    let digest = |byte| Digest([byte; 32]);
    let mut member = Member::at(4);
    member.attach(10);
    for step in 5..=7 {
        member.commit();
        // Whoever is first.
        if step % 2 == 0 {
            member.handle(Input::Applied { step, digest: digest(step as u8) });
        }
        member.hears(10, LeafBody::Applied { start: 1, step, digest: Some(digest(step as u8)) });
        member.handle(Input::Applied { step, digest: digest(step as u8) });
    }
    assert_eq!(member.heard_by(10).iter().filter(|body| matches!(body, CarrierBody::Differs { .. })).count(), 0);
    member.commit();
    member.handle(Input::Applied { step: 8, digest: digest(8) });
    member.hears(10, LeafBody::Applied { start: 1, step: 8, digest: Some(digest(9)) });
    let said = member.heard_by(10);
    assert!(
        matches!(
            said[1..],
            [CarrierBody::Differs { step: 8, .. }, CarrierBody::Start { number: 2, step: 8, loads: true, .. }]
        ),
        "{said:?}"
    );
    // What it says of its first start means nothing any more.
    member.hears(10, LeafBody::Applied { start: 1, step: 8, digest: Some(digest(1)) });
    member.hears(10, LeafBody::Applied { start: 2, step: 8, digest: Some(digest(9)) });
    assert_eq!(member.faults, [(peer(10), LeafViolation::Differs { step: 8 })]);
}

#[test]
fn speeds_are_measured_and_told_together() {
    let mut member = Member::at(4);
    member.attach(10);
    assert_eq!(member.engine.speed(100), 100, "nothing is known yet");
    member.computes(5, 0..8);
    let (number, step, ranges) = member.work_of(10).expect("some");
    let given: u32 = ranges.iter().map(|range| range.end - range.start).sum();
    assert_eq!(given, 4, "half, as nobody was measured");
    member.now = member.now + Duration::from_millis(250);
    member.brings(10, (number, step, ranges));
    member.now = member.now + Duration::from_millis(750);
    member.computed();
    // Four samples in a quarter of a second, in eighths.
    assert_eq!(member.engine.speed(100), 100 + 4 * 4 * 8);
    assert_eq!(
        [0, 1, starling_topology::ledger::GAVE_UP].map(|own| member.engine.speed(own)),
        [0, 1, starling_topology::ledger::GAVE_UP]
    );
    member.commit();
    member.heard_by(10);
    member.computes(6, 0..10);
    let (.., ranges) = member.work_of(10).expect("some");
    assert_eq!(ranges, one(2..10), "it is four times as fast");
}

#[test]
fn a_member_that_can_not_hand_on_lets_its_leaves_go() {
    let mut member = Member::at(4);
    member.attach(10);
    member.handle(Input::Knows(vec![Contact { peer: peer(2), addresses: Vec::new() }]));
    assert!(matches!(member.heard_by(10).last(), Some(CarrierBody::Members { contacts }) if contacts.len() == 1));
    member.engine.look(member.now, &member.steps, None);
    member.drain();
    assert_eq!(member.heard_by(10), [CarrierBody::Lost(DetachReason::NotReady)]);
    member.look();
    member.attach(10);
    member.computes(5, 0..8);
    member.heard_by(10);
    member.handle(Input::Leaves);
    assert!(member.heard_by(10).contains(&CarrierBody::Lost(DetachReason::Leaves)));
    assert_eq!(member.engine.leaves().count(), 0);
    member.attach(10);
    assert_eq!(member.heard_by(10), [CarrierBody::Refused(AttachRefusalReason::NotReady)]);
    // What it computes for the others counts all the same, and when it is in no view for a while.
    member.look();
    member.engine.look(member.now, &member.steps, None);
    member.drain();
    member.look();
    member.computed();
    member.computed();
    member.has_each_of(0..8, 5);
    assert_eq!(member.over, Vec::<u64>::new());
}
