//! The leaf's side.

use std::ops::Range;
use std::time::Duration;

use starling_topology::ledger::Ledger;
use starling_topology::{
    AttachRefusalReason, CarrierBody, Contact, DeclineReason, Digest, Generation, LeafBody, LeafProgress, Lineage,
    PeerId, Time, ViewId,
};

use super::{ELEMENTS, Of, RUN, STALL, one, peer};
use crate::LeafEngine;
use crate::leaf::carrier_search::MAX_ROUNDS;
use crate::leaf::leaf_engine::{Input, LeafConfig, LeafEvent, LossReason, Output};
use crate::leaf::violation::LeafViolation;

const ME: u8 = 10;
const OF_VIEW: Lineage = Lineage { branch: 3, generation: Generation(2), view: ViewId([5; 32]) };

struct Leaf {
    now: Time,
    engine: LeafEngine<Of>,
    said: Vec<(PeerId, LeafBody)>,
    delivered: Vec<u64>,
    loads: Vec<u64>,
    stopped_loading: usize,
    dropped: Vec<u64>,
    faults: Vec<(PeerId, LeafViolation)>,
    events: Vec<LeafEvent>,
    end: Option<LeafEvent>,
    joins: bool,
    /// Whom it has asked to dial back.
    dialers: Vec<PeerId>,
    /// What they find.
    reached: bool,
    timer: Option<Time>,
}

impl Leaf {
    fn new(members: &[u8], holds: Option<LeafProgress>) -> Self {
        Self::with_role(members, holds, Some(0))
    }

    fn with_role(members: &[u8], holds: Option<LeafProgress>, role_changes: Option<u32>) -> Self {
        let contacts =
            members.iter().map(|peer| Contact { peer: PeerId([*peer; 32]), addresses: Vec::new() }).collect();
        let config = LeafConfig { me: peer(ME), run: RUN, max_stall: STALL, elements: ELEMENTS, role_changes };
        let mut leaf = Self {
            now: Time::ZERO,
            engine: LeafEngine::new(Time::ZERO, config, contacts, holds),
            said: Vec::new(),
            delivered: Vec::new(),
            loads: Vec::new(),
            stopped_loading: 0,
            dropped: Vec::new(),
            faults: Vec::new(),
            events: Vec::new(),
            end: None,
            joins: false,
            dialers: Vec::new(),
            reached: false,
            timer: None,
        };
        leaf.drain();
        leaf
    }

    /// One that 1 carries, and that holds the state after step 4.
    fn following() -> Self {
        let mut leaf = Self::new(&[1], Some(holds(4)));
        leaf.attached(1);
        leaf.hears(1, start(1, 4, false));
        leaf.said.clear();
        leaf
    }

    fn drain(&mut self) {
        while let Some(output) = self.engine.poll() {
            match output {
                Output::Send { to, body } => self.said.push((to, body)),
                Output::Refuse { body, .. } => {
                    assert_eq!(body, CarrierBody::Refused(AttachRefusalReason::NoMember));
                }
                Output::Close(_) | Output::Work => {}
                Output::Load { step, .. } => self.loads.push(step),
                Output::StopLoading => self.stopped_loading += 1,
                Output::Deliver(result) => self.delivered.push(result.step),
                Output::Drop(number) => self.dropped.push(number),
                Output::SetTimer(at) => self.timer = Some(at),
                Output::AskReach(peer) => {
                    self.dialers.push(peer);
                    self.engine.handle(self.now, Input::Reach { peer, reached: self.reached });
                }
                Output::Join => self.joins = true,
                Output::Fault { carrier, violation } => self.faults.push((carrier, violation)),
                Output::Event(event) => self.events.push(event),
                Output::End(event) => self.end = Some(event),
            }
        }
    }

    fn handle(&mut self, input: Input<Of>) {
        self.engine.handle(self.now, input);
        self.drain();
    }

    fn hears(&mut self, from: u8, body: CarrierBody) {
        self.handle(Input::Received { from: peer(from), body, result: None });
    }

    fn attached(&mut self, by: u8) {
        self.hears(by, CarrierBody::Attached { contacts: Vec::new() });
    }

    fn result(&mut self, from: u8, step: u64, after: Lineage) {
        let result = Some(Of { step, lineage: OF_VIEW, after });
        self.handle(Input::Received { from: peer(from), body: CarrierBody::Result { step, bytes: 0 }, result });
    }

    fn work(&mut self, number: u64, step: u64, ranges: &[Range<u32>]) {
        self.hears(1, CarrierBody::Work { number, step, epoch: 0, ranges: ranges.to_vec() });
    }

    fn wait(&mut self, for_this: Duration) {
        let until = self.now + for_this;
        while let Some(at) = self.timer.filter(|at| *at <= until) {
            self.timer = None;
            self.now = self.now.max(at);
            self.handle(Input::Expired);
        }
        self.now = until;
    }

    /// Whom it has asked to carry it.
    fn asked(&self) -> Vec<PeerId> {
        self.said.iter().filter(|(_, body)| matches!(body, LeafBody::Attach { .. })).map(|(to, _)| *to).collect()
    }

    fn lost(&self) -> Option<LossReason> {
        self.events.iter().rev().find_map(|event| match event {
            LeafEvent::Lost { reason, .. } => Some(*reason),
            _ => None,
        })
    }
}

fn holds(step: u64) -> LeafProgress {
    LeafProgress { step, lineage: OF_VIEW }
}

fn start(number: u64, step: u64, loads: bool) -> CarrierBody {
    CarrierBody::Start { number, step, lineage: OF_VIEW, generation: Generation(2), loads }
}

/// The ledger of members 1 and 2, before step 5: 1 has 0 to 8, 2 the rest.
fn ledger_at(step: u64, micro_batch: u32) -> Ledger {
    let members = [peer(1), peer(2)];
    let mut ledger = Ledger::new(1, 1_000, 16).with_micro_batch(micro_batch);
    ledger.assign(&members);
    (1..step).for_each(|step| _ = ledger.commit(step, &members, &[1, 1]));
    ledger
}

#[test]
fn a_leaf_loads_the_state_then_applies_one_result_after_the_other() {
    let mut leaf = Leaf::new(&[1], None);
    assert!(matches!(leaf.said[..], [(to, LeafBody::Attach { progress: None, .. })] if to == peer(1)));
    leaf.attached(1);
    leaf.hears(1, start(1, 4, true));
    leaf.result(1, 5, OF_VIEW);
    leaf.result(1, 6, OF_VIEW);
    assert_eq!((&leaf.loads[..], &leaf.delivered[..]), (&[4][..], &[][..]), "results wait for the state");
    leaf.handle(Input::Loaded { digest: None });
    assert_eq!(leaf.delivered, [5]);
    assert!(leaf.said.iter().any(|(_, body)| matches!(body, LeafBody::Applied { start: 1, step: 4, .. })));
    leaf.handle(Input::Applied { step: 5, digest: Some(Digest([5; 32])) });
    leaf.handle(Input::Applied { step: 6, digest: None });
    assert_eq!(leaf.delivered, [5, 6]);
    assert!(matches!(leaf.said.last(), Some((_, LeafBody::Applied { step: 6, .. }))));
}

#[test]
fn work_is_computed_once_its_state_is_here_and_answered_once() {
    let mut leaf = Leaf::following();
    let ledger = ledger_at(5, 0);
    let share = ledger.share_of(peer(1)).to_vec();
    leaf.work(7, 5, &share);
    assert_eq!(leaf.engine.next_task(leaf.now, &ledger_at(4, 0)), None, "what comes before it is not applied");
    let task = leaf.engine.next_task(leaf.now, &ledger).expect("it is the carrier's share");
    assert_eq!((task.number, &task.ranges), (7, &share));
    assert_eq!(leaf.engine.next_task(leaf.now, &ledger), None, "once");
    leaf.handle(Input::Computed { number: 6, is_whole: true });
    assert_eq!(leaf.said, []);
    leaf.handle(Input::Computed { number: 7, is_whole: true });
    let weight = share.iter().map(|range| u64::from(range.end - range.start)).sum::<u64>();
    assert!(
        matches!(&leaf.said[..], [(_, LeafBody::Gradient { number: 7, step: 5, weight: of, elements: ELEMENTS, .. })] if *of == weight)
    );
    leaf.handle(Input::Computed { number: 7, is_whole: true });
    assert_eq!(leaf.said.len(), 1, "once");
}

#[test]
fn a_result_that_comes_first_ends_the_work() {
    let mut leaf = Leaf::following();
    let ledger = ledger_at(5, 0);
    let share = ledger.share_of(peer(1)).to_vec();
    leaf.work(7, 5, &share);
    leaf.engine.next_task(leaf.now, &ledger).expect("it computes");
    leaf.result(1, 5, OF_VIEW);
    let over = |number| LeafBody::Declines { number, reason: DeclineReason::Over };
    assert_eq!((&leaf.said[..], &leaf.dropped[..]), (&[(peer(1), over(7))][..], &[7][..]));
    leaf.handle(Input::Computed { number: 7, is_whole: true });
    assert_eq!(leaf.said.len(), 1);
    // Work of a step whose result is here already.
    leaf.work(8, 5, &share);
    assert_eq!(leaf.said[1].1, over(8));
    // Who can't compute it says so.
    leaf.handle(Input::Applied { step: 5, digest: None });
    let ledger = ledger_at(6, 0);
    leaf.work(9, 6, ledger.share_of(peer(1)));
    leaf.engine.next_task(leaf.now, &ledger).expect("it computes");
    leaf.handle(Input::Computed { number: 9, is_whole: false });
    assert_eq!(
        leaf.said.last().map(|(_, body)| body.clone()),
        Some(LeafBody::Declines { number: 9, reason: DeclineReason::Unable })
    );
}

#[test]
fn work_over_other_samples_than_the_carriers_share_is_refused() {
    let theirs = ledger_at(5, 4).share_of(peer(2)).to_vec();
    let ours = ledger_at(5, 4).share_of(peer(1)).to_vec();
    let start = ours[0].start;
    let cases = [
        (0, theirs),
        (0, one(start..start + 3)),
        (0, one(start + 1..start + 4)),
        (1, ours.clone()),
        (0, one(900..904)),
    ];
    for (epoch, ranges) in cases {
        let mut leaf = Leaf::following();
        leaf.hears(1, CarrierBody::Work { number: 7, step: 5, epoch, ranges: ranges.clone() });
        assert_eq!(leaf.engine.next_task(leaf.now, &ledger_at(5, 4)), None);
        leaf.drain();
        assert_eq!(leaf.faults, [(peer(1), LeafViolation::NotItsShare { step: 5 })], "{epoch}, {ranges:?}");
        assert_eq!(leaf.lost(), Some(LossReason::Faulty));
    }
    let mut leaf = Leaf::following();
    leaf.work(7, 5, &ours);
    assert!(leaf.engine.next_task(leaf.now, &ledger_at(5, 4)).is_some());
}

#[test]
fn what_no_correct_carrier_says_is_refused_and_the_next_is_asked() {
    let elsewhere = Lineage { branch: 9, ..OF_VIEW };
    type Wrong = fn(&mut Leaf);
    let cases: [(LeafViolation, Wrong); 8] = [
        (LeafViolation::TooMuchWork, |leaf| [7, 8].into_iter().for_each(|number| leaf.work(number, 5, &one(0..2)))),
        (LeafViolation::DoesNotFollow { step: 6 }, |leaf| leaf.result(1, 6, OF_VIEW)),
        (LeafViolation::DoesNotFollow { step: 4 }, |leaf| leaf.result(1, 4, OF_VIEW)),
        (LeafViolation::DoesNotFollow { step: 5 }, |leaf| leaf.result(1, 5, Lineage { branch: 9, ..OF_VIEW })),
        (LeafViolation::OutOfTurn, |leaf| leaf.hears(1, start(2, 5, false))),
        (LeafViolation::OutOfTurn, |leaf| leaf.hears(1, start(1, 4, true))),
        (LeafViolation::OutOfTurn, |leaf| leaf.attached(1)),
        (LeafViolation::Detached, |leaf| leaf.hears(1, CarrierBody::Result { step: 5, bytes: 0 })),
    ];
    assert_ne!(elsewhere, OF_VIEW);
    for (violation, wrong) in cases {
        let mut leaf = Leaf::following();
        wrong(&mut leaf);
        assert_eq!(leaf.faults, [(peer(1), violation)]);
        leaf.wait(STALL);
        assert!(!leaf.asked().is_empty(), "{violation}");
    }
    // Before it is told where to start, or carried at all.
    let mut leaf = Leaf::new(&[1], None);
    leaf.work(7, 5, &one(0..2));
    assert_eq!(leaf.faults, [(peer(1), LeafViolation::OutOfTurn)]);
    let mut leaf = Leaf::new(&[1], None);
    leaf.attached(1);
    leaf.work(7, 5, &one(0..2));
    assert_eq!(leaf.faults, [(peer(1), LeafViolation::OutOfTurn)]);
    // What others say means nothing.
    let mut leaf = Leaf::following();
    leaf.result(2, 9, OF_VIEW);
    leaf.hears(2, CarrierBody::Lost(starling_topology::DetachReason::Leaves));
    assert_eq!((leaf.engine.carrier(), leaf.faults.len()), (Some(peer(1)), 0));
}

#[test]
fn whoever_loses_its_carrier_asks_the_next_with_what_it_holds() {
    let mut leaf = Leaf::new(&[1, 2, 3], Some(holds(4)));
    let first = leaf.asked()[0];
    leaf.attached(first.0[0]);
    leaf.hears(first.0[0], start(1, 4, false));
    leaf.result(first.0[0], 5, OF_VIEW);
    leaf.handle(Input::Closed(first));
    let asked = leaf.asked();
    assert!(asked.len() == 2 && asked[1] != first, "at once, and another one");
    // What is on its way to the learner is what it holds.
    assert!(matches!(
        leaf.said.last(),
        Some((_, LeafBody::Attach { progress: Some(LeafProgress { step: 5, .. }), .. }))
    ));
    leaf.attached(asked[1].0[0]);
    leaf.hears(asked[1].0[0], start(1, 5, false));
    leaf.result(asked[1].0[0], 6, OF_VIEW);
    assert_eq!(leaf.delivered, [5], "the one before is not applied yet");
    let applied = |leaf: &Leaf| leaf.said.iter().filter(|(_, body)| matches!(body, LeafBody::Applied { .. })).count();
    leaf.handle(Input::Applied { step: 5, digest: None });
    assert_eq!((&leaf.delivered[..], applied(&leaf)), (&[5, 6][..], 0), "where it started is no news");
    leaf.handle(Input::Applied { step: 6, digest: None });
    assert_eq!(applied(&leaf), 1);
}

#[test]
fn who_is_silent_or_stands_still_is_left_in_bounded_time() {
    let mut leaf = Leaf::new(&[1, 2], None);
    let first = leaf.asked()[0];
    leaf.wait(STALL / 4);
    assert!(leaf.asked().len() == 2 && leaf.asked()[1] != first, "one that does not answer");
    let mut leaf = Leaf::following();
    leaf.wait(STALL - Duration::from_millis(1));
    assert_eq!(leaf.lost(), None);
    assert!(leaf.said.iter().filter(|(_, body)| *body == LeafBody::Alive).count() >= 3);
    leaf.wait(Duration::from_millis(1));
    assert_eq!(leaf.lost(), Some(LossReason::Silent));
    let mut leaf = Leaf::following();
    for _ in 0..12 {
        leaf.wait(STALL / 4);
        leaf.hears(1, CarrierBody::Alive);
    }
    assert_eq!(leaf.lost(), Some(LossReason::NoStep));
    // A state that comes slowly, but comes.
    let mut leaf = Leaf::new(&[1], None);
    leaf.attached(1);
    leaf.hears(1, start(1, 4, true));
    for _ in 0..20 {
        leaf.wait(STALL / 4);
        leaf.hears(1, CarrierBody::Alive);
        leaf.handle(Input::Downloads);
    }
    assert_eq!((leaf.lost(), leaf.stopped_loading), (None, 0));
    leaf.handle(Input::NotLoaded);
    assert_eq!(leaf.lost(), Some(LossReason::NoState));
}

#[test]
fn a_state_that_was_on_its_way_is_not_held() {
    let mut leaf = Leaf::new(&[1, 2], Some(holds(4)));
    let first = leaf.asked()[0].0[0];
    leaf.attached(first);
    leaf.hears(first, start(1, 9, true));
    leaf.handle(Input::Closed(peer(first)));
    assert_eq!(leaf.stopped_loading, 1);
    assert!(matches!(leaf.said.last(), Some((_, LeafBody::Attach { progress: None, .. }))));
    leaf.handle(Input::Loaded { digest: None });
    assert!(matches!(leaf.said.last(), Some((_, LeafBody::Attach { .. }))), "one that came too late is nothing");
}

#[test]
fn nobody_is_asked_for_ever() {
    for (role_changes, rounds) in
        [(None, MAX_ROUNDS), (Some(0), MAX_ROUNDS), (Some(1), 4), (Some(2), 8), (Some(99), MAX_ROUNDS)]
    {
        let mut leaf = Leaf::with_role(&[1, 2], None, role_changes);
        for _ in 0..(MAX_ROUNDS * 4) {
            if leaf.end.is_some() {
                break;
            }
            leaf.wait(STALL);
        }
        assert_eq!((leaf.end, leaf.asked().len()), (Some(LeafEvent::NoCarrier), 2 * rounds as usize));
    }
    // All that it knows say that the run is over.
    let mut leaf = Leaf::new(&[1], None);
    leaf.hears(1, CarrierBody::Refused(AttachRefusalReason::RunFinished));
    leaf.wait(STALL);
    assert_eq!(leaf.end, Some(LeafEvent::Finished));
    // One says so, and another one is only full.
    let mut leaf = Leaf::new(&[1, 2], None);
    for _ in 0..2 {
        let asked = leaf.asked().last().map_or(0, |peer| peer.0[0]);
        let reason =
            if asked == 1 { AttachRefusalReason::RunFinished } else { AttachRefusalReason::Full { places: 8 } };
        leaf.hears(asked, CarrierBody::Refused(reason));
    }
    leaf.wait(STALL / 2);
    assert_eq!(leaf.end, None);
}

#[test]
fn who_is_carried_for_a_moment_again_and_again_waits_between() {
    let mut leaf = Leaf::new(&[1, 2], None);
    for _ in 0..9 {
        let asked = leaf.asked().last().map_or(0, |peer| peer.0[0]);
        leaf.attached(asked);
        leaf.handle(Input::Closed(peer(asked)));
    }
    assert_eq!(leaf.asked().len(), 2);
}

#[test]
fn the_end_waits_for_the_last_state() {
    let mut leaf = Leaf::following();
    leaf.result(1, 5, OF_VIEW);
    let digest = Digest([7; 32]);
    leaf.hears(1, CarrierBody::Ended { step: 5, digest });
    assert_eq!(leaf.end, None);
    leaf.handle(Input::Applied { step: 5, digest: Some(digest) });
    assert_eq!(leaf.end, Some(LeafEvent::Complete { step: 5, digest }));
}

#[test]
fn a_carrier_that_goes_at_the_end_is_needed_no_more() {
    let digest = Digest([7; 32]);
    let ends = |last_is_here: bool, then: fn(&mut Leaf)| {
        let mut leaf = Leaf::following();
        leaf.result(1, 5, OF_VIEW);
        if last_is_here {
            leaf.result(1, 6, OF_VIEW);
        }
        leaf.hears(1, CarrierBody::Ended { step: 6, digest });
        then(&mut leaf);
        let is_with = leaf.engine.carrier();
        leaf.handle(Input::Applied { step: 5, digest: None });
        leaf.handle(Input::Applied { step: 6, digest: Some(digest) });
        (is_with, leaf.end)
    };
    for then in [(|leaf| leaf.handle(Input::Closed(peer(1)))) as fn(&mut Leaf), |leaf| leaf.wait(STALL * 4)] {
        assert_eq!(ends(true, then), (Some(peer(1)), Some(LeafEvent::Complete { step: 6, digest })));
        assert_eq!(ends(false, then).0, None, "what is missing, others have");
    }
}

#[test]
fn whose_reach_improves_asks_to_be_a_member_and_who_wants_to_be_its_leaf_is_refused() {
    let mut leaf = Leaf::following();
    leaf.handle(Input::Asked(peer(77)));
    assert_eq!(leaf.engine.carrier(), Some(peer(1)));
    leaf.handle(Input::Reach { peer: peer(1), reached: true });
    let steps = |leaf: &mut Leaf, steps: std::ops::RangeInclusive<u64>| {
        for step in steps {
            leaf.result(1, step, OF_VIEW);
            leaf.wait(STALL / 2);
        }
    };
    steps(&mut leaf, 5..=11);
    assert!(!leaf.joins && leaf.dialers.is_empty(), "nobody was asked");
    steps(&mut leaf, 12..=14);
    assert_eq!(leaf.dialers, [peer(1)], "its carrier is there");
    assert!(!leaf.joins && leaf.engine.carrier() == Some(peer(1)));
    leaf.reached = true;
    steps(&mut leaf, 15..=27);
    assert!(!leaf.joins, "it is asked later than the first time");
    steps(&mut leaf, 28..=34);
    assert_eq!(leaf.dialers, [peer(1); 2]);
    assert!(leaf.joins && leaf.said.contains(&(peer(1), LeafBody::Detach)));
    leaf.wait(STALL * 9);
    assert!(leaf.asked().is_empty() && leaf.engine.carrier().is_none(), "it is a leaf no more");
    let mut leaf = Leaf::following();
    leaf.handle(Input::Leaves);
    assert_eq!(leaf.end, Some(LeafEvent::Left));
}
