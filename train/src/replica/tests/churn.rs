//! Several members in one process, with an exact reduction between them: what holds through losses and joins.

use std::collections::BTreeMap;

use starling_run::{PartialSnapshot, StateSnapshot};

use super::{computed as computed_by, *};

pub(super) fn peer(name: u8) -> PeerId {
    PeerId([name; 32])
}

/// A member: its trainer, and how fast it claims to be. One that is syncing queues what it cannot apply yet.
pub(super) struct Member {
    pub(super) trainer: ClassifierReplica,
    speed: u32,
    gave_up: bool,
    queue: Option<Vec<ResultRecord>>,
}

pub(super) struct Swarm {
    pub(super) members: BTreeMap<PeerId, Member>,
    batch_size: u32,
}

impl Swarm {
    fn new(speeds: &[u32], optimizer: OptimizerSpec, batch_size: u32) -> Self {
        Self::of(speeds, batch_size, &|| trainer("mlp:32", optimizer, batch_size))
    }

    pub(super) fn of(speeds: &[u32], batch_size: u32, trainer: &dyn Fn() -> ClassifierReplica) -> Self {
        let member = |speed: &u32| Member { trainer: trainer(), speed: *speed, gave_up: false, queue: None };
        let mut members: BTreeMap<_, _> = (1..).map(peer).zip(speeds.iter().map(member)).collect();
        let names: Vec<PeerId> = members.keys().copied().collect();
        members.values_mut().for_each(|member| assert!(member.trainer.begin(&names)));
        Self { members, batch_size }
    }

    fn names(&self) -> Vec<PeerId> {
        self.members.keys().copied().collect()
    }

    /// Each member's gradient and weight for the pending step. Syncing ones have none.
    pub(super) fn compute(&mut self) -> BTreeMap<PeerId, (Vec<f32>, u64)> {
        let mut computed = BTreeMap::new();
        for (name, member) in self.members.iter_mut().filter(|(_, member)| member.queue.is_none()) {
            let gradient = computed_by(&mut member.trainer, *name).expect("computed");
            member.gave_up = gradient.has_given_up();
            computed.insert(*name, (gradient.values(), gradient.weight()));
        }
        computed
    }

    /// Reduces what `computed` has of the present members, as a ring of them would.
    pub(super) fn reduce(&self, computed: &BTreeMap<PeerId, (Vec<f32>, u64)>) -> ResultRecord {
        let (names, (gradient, _)) = (self.names(), computed.values().next().expect("somebody computes"));
        let step = self.members.values().map(|member| member.trainer.step() + 1).max().expect("somebody is there");
        let mut sum = vec![0.0; gradient.len() + names.len()];
        for (name, member) in &self.members {
            let Some((gradient, weight)) = computed.get(name) else { continue };
            let weighted = gradient.iter().map(|value| value * *weight as f32);
            let slots = contribution::slots(&names, *name, if member.gave_up { GAVE_UP } else { member.speed });
            sum.iter_mut().zip(weighted.chain(slots)).for_each(|(sum, value)| *sum += value);
        }
        sum.iter_mut().for_each(|sum| *sum /= self.batch_size as f32);
        ResultRecord { step, lineage: Lineage::NONE, after: Lineage::NONE, members: names, mean: sum }
    }

    /// All members commit the record, or queue it.
    pub(super) fn apply(&mut self, record: &ResultRecord) -> StepReport {
        let mut reports = Vec::new();
        for (number, member) in self.members.values_mut().enumerate() {
            match &mut member.queue {
                Some(queue) => queue.push(record.clone()),
                None => reports.push(apply_somehow(&mut member.trainer, record, number)),
            }
        }
        assert!(reports.iter().all(|report| *report == reports[0]), "members must tell the same story");
        reports.swap_remove(0)
    }

    pub(super) fn step(&mut self) -> StepReport {
        let computed = self.compute();
        let record = self.reduce(&computed);
        self.apply(&record)
    }

    pub(super) fn check_digests(&self) -> Digest {
        let digests: Vec<_> = self.members.values().map(|member| member.trainer.digest()).collect();
        assert!(digests.iter().all(|digest| *digest == digests[0]), "members must hold the same bits");
        digests[0]
    }
}

/// The length of the difference, relative to the length of the first.
pub(super) fn distance(ours: &[f32], theirs: &[f32]) -> f64 {
    let square = |numbers: &mut dyn Iterator<Item = f64>| numbers.map(|number| number * number).sum::<f64>().sqrt();
    let difference = square(&mut ours.iter().zip(theirs).map(|(a, b)| f64::from(a - b)));
    difference / square(&mut ours.iter().map(|number| f64::from(*number)))
}

/// Some members begin the update before the step is committed: with parts of its result, or of an operation that came to
/// nothing.
fn apply_somehow(trainer: &mut ClassifierReplica, record: &ResultRecord, number: usize) -> StepReport {
    let parameters = trainer.training().parameters().len();
    let until = parameters * (record.step as usize % 3) / 2;
    let (gradients, behind) = record.mean.split_at(parameters);
    let mut draft = |gradients: &[f32]| {
        trainer.stage(&record.members, parameters, behind);
        let mut end = parameters;
        for part in gradients[until..].rchunks(1000) {
            end -= part.len();
            trainer.stage(&record.members, end, part);
        }
        assert!(trainer.training().staged_from().is_none_or(|from| from == until), "no part was left out");
    };
    match number % 3 {
        1 => {
            draft(gradients);
            trainer.apply_staged(record).expect("applied")
        }
        2 => {
            draft(&gradients.iter().map(|value| value + 1.0).collect::<Vec<_>>());
            trainer.apply(record).expect("applied")
        }
        _ => trainer.apply(record).expect("applied"),
    }
}

#[test]
fn four_members_take_the_same_steps_as_one() {
    for speeds in [[UNMEASURED; 4], [100, 200, 700, 250]] {
        let mut alone = trainer("mlp:32", OptimizerSpec::momentum(0.05), 62);
        let mut swarm = Swarm::new(&speeds, OptimizerSpec::momentum(0.05), 62);
        let mut buffer = Vec::new();
        for _ in 0..50 {
            let (ours, theirs) = (advance(&mut alone, &mut buffer), swarm.step());
            assert_eq!((theirs.samples, theirs.epoch, theirs.returned), (ours.samples, ours.epoch, 0));
            assert!((theirs.loss / ours.loss - 1.0).abs() < 1e-4, "{} and {}", theirs.loss, ours.loss);
        }
        swarm.check_digests();
        let member = &swarm.members[&peer(1)].trainer;
        let relative = distance(&alone.state().parameters, &member.state().parameters);
        assert!(relative <= 1e-5, "relative difference {relative} with speeds {speeds:?}");
        let shares: Vec<u32> = swarm.names().iter().map(|name| member.ledger().share_len(*name)).collect();
        let expected = if speeds[0] == UNMEASURED { [16, 16, 15, 15] } else { [5, 10, 35, 12] };
        assert_eq!(shares, expected);
    }
}

/// What the others contributed is in the sum all the same, so that the share of the one would count for everybody's.
#[test]
fn whoever_has_all_others_said_to_give_up_at_most_doubles_a_step() {
    const RATE: f32 = 0.1;
    let mut swarm = Swarm::new(&[UNMEASURED; 4], OptimizerSpec::sgd(RATE), 64);
    swarm.step();
    let computed = swarm.compute();
    let mut record = swarm.reduce(&computed);
    let (elements, before) = (record.mean.len(), swarm.members[&peer(1)].trainer.state().parameters);
    let honest = record.mean[before.len()];
    record.mean[elements - 3..].fill(contribution::slot(GAVE_UP) / 64.0);
    let report = swarm.apply(&record);
    assert_eq!((report.samples, report.given_up.len(), report.skipped), (16, 3, None));
    assert_eq!(report.loss, 4.0 * honest, "what is told of it is as they say");
    swarm.check_digests();
    let after = swarm.members[&peer(1)].trainer.state().parameters;
    for ((before, after), mean) in before.iter().zip(after.iter()).zip(&record.mean) {
        let moved = f64::from(before - after);
        let most = 2.0 * f64::from(RATE * mean);
        assert!((moved - most).abs() <= 1e-6, "{moved} instead of {most}");
    }
}

#[test]
fn that_all_gave_up_is_believed_only_if_they_brought_nothing() {
    let mut swarm = Swarm::new(&[UNMEASURED; 3], OptimizerSpec::adam_w(1e-2), 64);
    swarm.step();
    let mut skips = Vec::new();
    for is_lie in [true, false, false, true] {
        let before = swarm.members[&peer(1)].trainer.state().parameters;
        let mut computed = swarm.compute();
        if !is_lie {
            computed.values_mut().for_each(|(gradient, _)| gradient.fill(0.0));
        }
        let mut record = swarm.reduce(&computed);
        let elements = record.mean.len();
        record.mean[elements - 3..].fill(contribution::slot(GAVE_UP) / 64.0);
        let report = swarm.apply(&record);
        let reason = report.skipped.expect("nobody contributed");
        assert_eq!((report.samples, reason.contains("and have not")), (0, is_lie), "{reason}");
        let trainer = &swarm.members[&peer(1)].trainer;
        assert_eq!(trainer.state().parameters, before);
        skips.push(trainer.ledger().skips().in_row);
    }
    assert_eq!(skips, [0, 1, 2, 0]);
    swarm.check_digests();
}

#[test]
fn equal_balance_does_not_follow_speeds() {
    let (mut manifest, dataset) = run("mlp:4", OptimizerSpec::sgd(0.1), 60);
    manifest.balance = BalancePolicy::Equal;
    let mut trainer = ClassifierReplica::new(&manifest, dataset, DeviceSpec::Cpu).expect("a trainer");
    let members = [peer(1), peer(2), peer(3)];
    trainer.begin(&members);
    for step in 1..10 {
        let mut mean = vec![0.0; buffer_len(&trainer, 3)];
        mean[trainer.training().parameters().len() + 1] = 900.0 / 60.0;
        mean[trainer.training().parameters().len() + 2] = 2.0 / 60.0;
        trainer
            .apply(&ResultRecord {
                step,
                lineage: Lineage::NONE,
                after: Lineage::NONE,
                members: members.to_vec(),
                mean,
            })
            .expect("applied");
        let shares = members.map(|member| trainer.ledger().share_len(member));
        assert_eq!(shares, [30, 30, 0], "the third is syncing");
    }
}

#[test]
fn churn_leaves_no_trace_in_the_bits_and_no_sample_behind() {
    let mut swarm = Swarm::new(&[100, 180, 300], OptimizerSpec::adam_w(1e-2), 64);
    let mut visits: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
    let mut note = |report: &StepReport| {
        let visits = visits.entry(report.epoch).or_insert_with(|| vec![0; 1438]);
        let ranges = report.contributions.iter().flat_map(|(_, ranges)| ranges.iter().cloned());
        ranges.flatten().for_each(|position| visits[position as usize] += 1);
    };
    for _ in 0..4 {
        note(&swarm.step());
    }

    // A member is lost in mid-step. The others reduce again what they computed: nothing is computed twice.
    let computed = swarm.compute();
    let lost = swarm.members.remove(&peer(3)).expect("there");
    let weight = computed[&peer(3)].1;
    let record = swarm.reduce(&computed);
    let report = swarm.apply(&record);
    assert_eq!((u64::from(report.returned), report.samples), (weight, 64 - weight));
    assert!(report.contributions.iter().all(|(name, _)| *name != peer(3)));
    note(&report);

    // It comes back in a view of its own making: syncing, with the others at work, from chunks of a snapshot.
    let snapshot = StateSnapshot::of(swarm.members[&peer(1)].trainer.state());
    swarm.members.insert(peer(3), Member { queue: Some(Vec::new()), ..lost });
    for _ in 0..3 {
        let report = swarm.step();
        assert_eq!(report.returned, 0);
        note(&report);
    }
    let back = swarm.members.get_mut(&peer(3)).expect("there");
    let mut assembly = PartialSnapshot::new(snapshot.manifest().clone(), back.trainer.manifest().max_state_bytes())
        .expect("small enough");
    for chunk in assembly.missing() {
        assembly.insert(snapshot.chunk(chunk).expect("the donor's").to_vec()).expect("asked for");
    }
    back.trainer.load(assembly.finish().expect("complete")).expect("loaded");
    for record in back.queue.take().expect("it was syncing") {
        let record = ResultRecord::decode(&record.encode(), back.trainer.training().parameters().len())
            .expect("canonical bytes");
        back.trainer.apply(&record).expect("kept in order");
    }
    swarm.check_digests();
    let report = swarm.step();
    assert_eq!(report.contributions.len(), 2, "its samples come with the next assignment");
    note(&report);
    assert!(swarm.members[&peer(1)].trainer.ledger().share_len(peer(3)) > 0);

    // One commits, then dies; another had not heard, and gets the result from the one that holds it.
    let computed = swarm.compute();
    let record = swarm.reduce(&computed);
    note(&swarm.members.get_mut(&peer(2)).expect("there").trainer.apply(&record).expect("applied"));
    swarm.members.remove(&peer(1));
    let fetched = ResultRecord::decode(&record.encode(), swarm.members[&peer(3)].trainer.training().parameters().len())
        .expect("fetched");
    assert_eq!(fetched.digest(), record.digest());
    swarm.members.get_mut(&peer(3)).expect("there").trainer.apply(&fetched).expect("applied");
    swarm.check_digests();

    // To the end of the second epoch, each sample was contributed once.
    while swarm.members[&peer(2)].trainer.ledger().epoch() < 2 {
        note(&swarm.step());
        swarm.check_digests();
    }
    assert_eq!(visits.len(), 2);
    assert!(visits.values().flatten().all(|visits| *visits == 1));
}

#[test]
fn a_share_of_a_member_that_came_back_without_the_state_is_returned() {
    let mut swarm = Swarm::new(&[UNMEASURED; 2], OptimizerSpec::sgd(0.1), 10);
    let computed = swarm.compute();
    let own: BTreeMap<_, _> = computed.into_iter().filter(|(name, _)| *name == peer(1)).collect();
    // The second one restarted, and is in the ring with zeros while its old share is pending.
    let record = swarm.reduce(&own);
    swarm.members.get_mut(&peer(2)).expect("there").queue = Some(Vec::new());
    let report = swarm.apply(&record);
    assert_eq!((report.samples, report.returned), (5, 5));
    assert_eq!(swarm.members[&peer(1)].trainer.ledger().share_len(peer(1)), 10);
}

#[test]
fn a_step_without_any_samples_changes_the_ledger_alone() {
    // Of the first step, only those who reduce it have shares.
    let mut swarm = Swarm::new(&[UNMEASURED; 2], OptimizerSpec::adam_w(0.1), 16);
    swarm.step();
    let trainer = &mut swarm.members.get_mut(&peer(1)).expect("there").trainer;
    let before = trainer.state();
    let mut record = ResultRecord {
        step: 2,
        lineage: Lineage::NONE,
        after: Lineage::NONE,
        members: vec![peer(3)],
        mean: vec![0.0; buffer_len(trainer, 1)],
    };
    record.mean[trainer.training().parameters().len() + 1] = 5.0 / 16.0;
    let report = trainer.apply(&record).expect("applied");
    assert_eq!((report.samples, report.loss, report.returned, report.contributions.len()), (0, 0.0, 16, 0));
    let after = trainer.state();
    assert_eq!(
        (&after.parameters, &after.moments, &after.scalars),
        (&before.parameters, &before.moments, &before.scalars)
    );
    assert_eq!((after.step, after.ledger.share_len(peer(3))), (2, 16));
}

#[test]
fn a_restored_ledger_continues_where_it_stopped() {
    let mut swarm = Swarm::new(&[100, 300], OptimizerSpec::adam_w(1e-2), 64);
    (0..5).for_each(|_| drop(swarm.step()));
    let bytes = swarm.members[&peer(1)].trainer.state().encode();
    let mut restored = Swarm::new(&[100, 300], OptimizerSpec::adam_w(1e-2), 64);
    for member in restored.members.values_mut() {
        member.trainer.load(ReplicatedState::decode(&bytes).expect("canonical bytes")).expect("loaded");
    }
    for _ in 0..25 {
        assert_eq!(swarm.step(), restored.step());
    }
    assert_eq!(swarm.check_digests(), restored.check_digests());
}

#[test]
fn a_member_without_samples_contributes_nothing() {
    let mut trainer = trainer("mlp:4", OptimizerSpec::sgd(0.1), 2);
    trainer.begin(&[peer(1), peer(2), peer(3)]);
    let mut buffer = vec![7.0; 3];
    assert_eq!(compute(&mut trainer, peer(3), &mut buffer).expect("nothing to do"), 0);
    assert_eq!(buffer, vec![0.0; trainer.training().parameters().len() + 1]);
    assert_eq!(compute(&mut trainer, peer(9), &mut buffer).expect("not in the run"), 0);
}
