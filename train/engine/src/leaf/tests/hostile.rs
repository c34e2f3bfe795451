//! Whatever comes to either machine, in whatever order: nothing panics, nothing grows, and a contribution is whole with each sample once.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use starling_topology::ledger::Ledger;
use starling_topology::{
    CarrierBody, Contact, DeclineReason, DetachReason, Digest, Generation, LeafBody, LeafProgress, Lineage, PeerId,
    SplitMix64Generator, Time, View,
};

use super::{ELEMENTS, Of, RUN, STALL, peer};
use crate::leaf::MAX_LEAVES;
use crate::leaf::carrier::{self, CarrierConfig};
use crate::leaf::leaf_engine::{self, LeafConfig};
use crate::leaf::violation::LeafViolation;
use crate::steps::StepEngine;
use crate::{CarrierEngine, LeafEngine};

struct Chance(SplitMix64Generator);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        u64::from(self.0.below(u32::try_from(bound).expect("small")))
    }

    fn leaf(&mut self) -> PeerId {
        peer(10 + self.below(12) as u8)
    }

    fn range(&mut self) -> Vec<Range<u32>> {
        let start = self.below(12) as u32;
        super::one(start..start + 1 + self.below(4) as u32)
    }

    fn lineage(&mut self, right: Lineage) -> Lineage {
        if self.below(4) == 0 { Lineage { branch: 77, ..right } } else { right }
    }

    /// Some of its bytes are others now and then.
    fn spoil(&mut self, mut bytes: Vec<u8>) -> Vec<u8> {
        if self.below(8) == 0 && !bytes.is_empty() {
            let at = self.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1 << self.below(8);
        }
        if self.below(40) == 0 {
            bytes.truncate(self.below(bytes.len() as u64 + 1) as usize);
        }
        bytes
    }

    fn leaf_body(&mut self, step: u64, number: u64, right: Lineage) -> LeafBody {
        match self.below(8) {
            0 | 1 => {
                let progress = LeafProgress { step: step - self.below(2).min(step), lineage: self.lineage(right) };
                LeafBody::Attach { run: RUN, progress: (self.below(3) > 0).then_some(progress) }
            }
            2 | 3 => {
                let (ranges, number) = (self.range(), number.saturating_sub(self.below(4)));
                let weight = u64::from(ranges[0].end - ranges[0].start);
                LeafBody::Gradient { number, step: step + self.below(2), weight, ranges, elements: 2 + self.below(2) }
            }
            4 => LeafBody::Declines { number: number.saturating_sub(self.below(4)), reason: DeclineReason::Unable },
            5 => LeafBody::Applied { start: self.below(3), step: step + self.below(3) - 1, digest: None },
            6 => LeafBody::Alive,
            _ => LeafBody::Detach,
        }
    }
}

fn view() -> View {
    View::found(RUN, peer(1)).succeed([1, 2].map(peer))
}

/// One run of a carrier among leaves that say anything. How many contributions were whole, and how many leaves were let go for what they did.
fn carry(seed: u64) -> (usize, usize) {
    let mut chance = Chance(SplitMix64Generator::new(seed));
    let view = view();
    let lineage = Lineage::of(&view);
    let mut steps: StepEngine<Of, u64> = StepEngine::new(4, lineage, 1_000);
    steps.open(&view, false);
    let config = CarrierConfig { me: peer(1), run: RUN, max_stall: STALL, elements: ELEMENTS, most: 8.0, places: 8 };
    let mut engine: CarrierEngine<Vec<f32>, Of> = CarrierEngine::new(config);
    let (mut now, mut number, mut wholes, mut faults) = (Time::ZERO, 0, 0, 0);
    let mut computing: Option<(u64, Vec<Range<u32>>)> = None;
    let (mut gathered, mut share) = (Vec::<u32>::new(), 0..0);
    let mut works: BTreeMap<PeerId, (u64, u64, Vec<Range<u32>>)> = BTreeMap::new();
    for _ in 0..200 {
        now = now + Duration::from_millis(chance.below(400));
        let step = steps.progress().step;
        match chance.below(12) {
            0..=4 => {
                let from = chance.leaf();
                let body = chance.leaf_body(step, number, lineage);
                let input = match LeafBody::decode(&chance.spoil(body.encode())) {
                    Ok(body) => match engine.admits(from, &body) {
                        Ok(_) => {
                            let numbers = vec![1.0, f32::from(chance.below(20) as u8), 0.0];
                            let gradient = matches!(body, LeafBody::Gradient { .. }).then_some(numbers);
                            carrier::Input::Received { from, body, gradient }
                        }
                        Err(violation) => carrier::Input::Faulted { from, violation },
                    },
                    Err(violation) => carrier::Input::Faulted { from, violation: LeafViolation::Message(violation) },
                };
                engine.handle(now, input);
            }
            5 | 6 => {
                if let Some((from, (number, step, ranges))) = works.pop_first() {
                    let weight = ranges.iter().map(|range| u64::from(range.end - range.start)).sum();
                    let body = LeafBody::Gradient { number, step, weight, ranges, elements: ELEMENTS };
                    if engine.admits(from, &body).is_ok() {
                        let gradient = Some(vec![1.0; 3]);
                        engine.handle(now, carrier::Input::Received { from, body, gradient });
                    }
                }
            }
            7 => engine.handle(now, carrier::Input::Closed(chance.leaf())),
            8 => {
                share = 0..1 + chance.below(3) as u32 * 6;
                let share = super::one(share.clone());
                engine.handle(now, carrier::Input::Computes { step: step + 1, epoch: 0, share, micro_batch: 0 });
            }
            9 => {
                if let Some((number, _)) = &computing {
                    engine.handle(now, carrier::Input::Computed(*number));
                }
            }
            10 => {
                let progress = steps.progress();
                let result = Of { step: step + 1, lineage, after: progress.lineage };
                steps.deliver(result).expect("it is the next one");
                engine.look(now, &steps, (chance.below(9) > 0).then_some(view.generation));
            }
            _ => engine.handle(now, carrier::Input::Expired),
        }
        engine.look(now, &steps, Some(view.generation));
        while let Some(output) = engine.poll() {
            match output {
                carrier::Output::Send { to, body: CarrierBody::Work { number: given, step, ranges, .. }, .. } => {
                    number = number.max(given);
                    works.insert(to, (given, step, ranges));
                }
                carrier::Output::Clear => gathered.clear(),
                carrier::Output::Compute { number, ranges, .. } => {
                    assert!(computing.replace((number, ranges)).is_none(), "seed {seed}: one at a time");
                }
                carrier::Output::Drop(number) => _ = computing.take_if(|(computing, _)| *computing == number),
                carrier::Output::Count(number) => {
                    let (_, ranges) = computing.take_if(|(it, _)| *it == number).expect("it was computed");
                    gathered.extend(ranges.into_iter().flatten());
                }
                carrier::Output::Add { ranges, .. } => gathered.extend(ranges.into_iter().flatten()),
                carrier::Output::Whole(_) => {
                    gathered.sort_unstable();
                    assert_eq!(gathered, share.clone().collect::<Vec<_>>(), "seed {seed}");
                    wholes += 1;
                }
                carrier::Output::Fault { .. } => faults += 1,
                carrier::Output::SetTimer(at) => assert!(at >= now, "seed {seed}: a time that is over"),
                carrier::Output::Send { .. }
                | carrier::Output::Close(_)
                | carrier::Output::Over(_)
                | carrier::Output::Lend(_)
                | carrier::Output::Release
                | carrier::Output::Event(_) => {}
            }
        }
        assert!(engine.leaves().count() <= MAX_LEAVES);
    }
    (wholes, faults)
}

#[test]
fn whatever_leaves_say_a_contribution_has_each_sample_once() {
    let (wholes, faults) = (0..1_500).map(carry).fold((0, 0), |sum, it| (sum.0 + it.0, sum.1 + it.1));
    assert!(wholes > 3_000 && faults > 5_000, "{wholes} contributions, {faults} faults");
}

/// One run of a leaf among members that say anything. How many results it was given, and how many members it left for what they said.
fn be_carried(seed: u64) -> (usize, usize) {
    let mut chance = Chance(SplitMix64Generator::new(seed));
    let right = Lineage::of(&view());
    let contacts: Vec<Contact> =
        [1, 2, 3].iter().map(|name| Contact { peer: peer(*name), addresses: Vec::new() }).collect();
    let config = LeafConfig { me: peer(10), run: RUN, max_stall: STALL, elements: ELEMENTS, role_changes: None };
    let mut engine: LeafEngine<Of> = LeafEngine::new(Time::ZERO, config, contacts, None);
    let mut ledger = Ledger::new(1, 1_000, 8);
    ledger.assign(&[1, 2].map(peer));
    let (mut now, mut delivered, mut results, mut faults) = (Time::ZERO, None, 0, 0);
    let (mut asked, mut next, mut start) = (peer(1), 5, 0);
    for _ in 0..300 {
        now = now + Duration::from_millis(chance.below(300));
        let from = if chance.below(8) == 0 { peer(1 + chance.below(4) as u8) } else { asked };
        let is_attached = engine.carrier().is_some();
        // Mostly what may come, so that something goes on.
        let kind = match (is_attached, start) {
            (false, _) => chance.below(6),
            (true, 0) => 5 + chance.below(3),
            (true, _) if chance.below(30) == 0 => chance.below(20),
            (true, _) => 7 + chance.below(13),
        };
        let body = match kind {
            0..=4 => CarrierBody::Attached { contacts: Vec::new() },
            5 => CarrierBody::Lost(DetachReason::NotReady),
            6 => {
                start += 1;
                next = 5;
                let lineage = chance.lineage(right);
                let loads = chance.below(4) > 0;
                CarrierBody::Start { number: start, step: 4, lineage, generation: Generation(2), loads }
            }
            7 => CarrierBody::Work { number: chance.below(9), step: chance.below(9), epoch: 0, ranges: chance.range() },
            8..=16 => CarrierBody::Result { step: next, bytes: 0 },
            17 => CarrierBody::Differs { step: 4, digest: Digest([1; 32]) },
            18 => CarrierBody::Ended { step: 60 + chance.below(99), digest: Digest([1; 32]) },
            _ => CarrierBody::Alive,
        };
        let input = match CarrierBody::decode(&chance.spoil(body.encode())) {
            Ok(body) => {
                let lineage = chance.lineage(right);
                let result =
                    matches!(body, CarrierBody::Result { .. }).then_some(Of { step: next, lineage, after: right });
                next += u64::from(result.is_some());
                leaf_engine::Input::Received { from, body, result }
            }
            Err(violation) => leaf_engine::Input::Faulted { from, violation: LeafViolation::Message(violation) },
        };
        engine.handle(now, input);
        match chance.below(6) {
            0 => engine.handle(now, leaf_engine::Input::Loaded { digest: None }),
            1 => engine.handle(now, leaf_engine::Input::Closed(asked)),
            2 => engine
                .handle(now, leaf_engine::Input::Computed { number: chance.below(9), is_whole: chance.below(2) == 0 }),
            3 => engine.handle(now, leaf_engine::Input::Expired),
            _ => {}
        }
        if let Some(step) = delivered.take_if(|_| chance.below(2) == 0) {
            engine.handle(now, leaf_engine::Input::Applied { step, digest: None });
        }
        let _ = engine.next_task(now, &ledger);
        while let Some(output) = engine.poll() {
            match output {
                leaf_engine::Output::Send { to, body: LeafBody::Attach { .. } } => (asked, start) = (to, 0),
                leaf_engine::Output::Deliver(result) => {
                    results += 1;
                    assert_eq!(delivered.replace(result.step), None, "seed {seed}: one after the other");
                }
                leaf_engine::Output::Load { .. } => delivered = None,
                leaf_engine::Output::Fault { .. } => faults += 1,
                leaf_engine::Output::SetTimer(at) => assert!(at >= now, "seed {seed}: a time that is over"),
                _ => {}
            }
        }
    }
    (results, faults)
}

#[test]
fn whatever_members_say_a_leaf_gets_one_result_after_the_other() {
    let (results, faults) = (0..1_500).map(be_carried).fold((0, 0), |sum, it| (sum.0 + it.0, sum.1 + it.1));
    assert!(results > 1_000 && faults > 5_000, "{results} results, {faults} faults");
}
