//! What one machine has to say to another. What each of them does is tested with itself.

use std::time::Duration;

use starling_topology::{CatchUpAction, Config, Contact, Lineage, LocalIdentity, RunId, Signer};

use super::*;

const ME: PeerId = PeerId([1; 32]);
const OTHER: PeerId = PeerId([2; 32]);
const STALL: Duration = Duration::from_secs(10);
const DIGEST: Digest = Digest([7; 32]);

#[derive(Debug)]
struct Anybody;

impl Signer for Anybody {
    fn sign(&self, _statement: &[u8]) -> [u8; 64] {
        [0; 64]
    }

    fn is_signed(&self, _signer: PeerId, _statement: &[u8], _signature: &[u8; 64]) -> bool {
        true
    }
}

#[derive(Debug, Clone)]
struct Of(u64);

impl StepResult for Of {
    fn step(&self) -> u64 {
        self.0
    }

    fn lineage(&self) -> Lineage {
        Lineage::NONE
    }

    fn after(&self) -> Lineage {
        Lineage::NONE
    }

    fn bytes(&self) -> usize {
        0
    }

    fn is_from_all(&self) -> bool {
        true
    }
}

fn at(seconds: u64) -> Time {
    Time::ZERO + Duration::from_secs(seconds)
}

/// A founder, with a driver that does what it asks at once.
struct Alone {
    member: Member,
    steps: StepEngine<Of, u64>,
    snapshots: SnapshotStore<u64>,
    /// What it told, but for messages and timers.
    told: Vec<Output>,
}

impl Alone {
    /// At the last step of a run that saves each step.
    fn at_the_end() -> Self {
        Self::after_four_steps(4, 1)
    }

    /// After step 4 of a run that saves each `checkpoint_every` steps.
    fn after_four_steps(last_step: u64, checkpoint_every: u64) -> Self {
        let config = Config { max_stall: STALL, last_step, checkpoint_every, incarnation: 1, ..Config::default() };
        let me = LocalIdentity { contact: Contact { peer: ME, addresses: Vec::new() }, notary: Box::new(Anybody) };
        let progress = Progress { step: 4, lineage: Lineage::NONE, has_state: true, has_result: false };
        let membership = Membership::found(config, RunId([9; 32]), me, progress, at(0));
        let (steps, snapshots) = (StepEngine::new(4, Lineage::NONE, last_step), SnapshotStore::default());
        let mut alone = Self { member: Member::new(membership, None), steps, snapshots, told: Vec::new() };
        alone.obey(at(0));
        alone
    }

    fn obey(&mut self, now: Time) {
        while let Some(output) = self.member.poll(now) {
            match output {
                Output::Send { .. } | Output::SetTimer { .. } | Output::Learn(_) => {}
                Output::Persist(_) => self.member.handle(now, Input::Persisted).expect("our own"),
                Output::Hold(hold) => drop(self.member.hold(&mut self.steps, hold, true)),
                Output::Resume(resumption) => {
                    let action = self.member.enter(&mut self.steps, &mut self.snapshots, &resumption);
                    assert_eq!((action, resumption.catch_up), (Action::GoOn, CatchUpAction::Current));
                }
                Output::Sign(head) => self.member.signed(head, [3; 64]),
                other => self.told.push(other),
            }
        }
    }

    /// The learner has come to the last step.
    fn finish(&mut self, now: Time, is_saved: bool) {
        self.steps.finish(4, DIGEST, is_saved);
        while let Some(notice) = self.steps.take_notice() {
            self.member.notice(&mut self.steps, notice);
        }
        self.obey(now);
    }

    fn lineage(&self) -> Lineage {
        self.steps.progress().lineage
    }

    fn has_ended(&mut self) -> bool {
        let ends = |output: &Output| matches!(output, Output::End(Event::Complete { step: 4, digest: DIGEST }));
        std::mem::take(&mut self.told).iter().any(ends)
    }
}

#[test]
fn a_member_that_has_finished_ends_once_its_last_state_is_stable() {
    let mut alone = Alone::at_the_end();
    alone.finish(at(1), true);
    alone.member.settle(at(1), &[]);
    alone.obey(at(1));
    assert!(alone.member.has_completed() && !alone.has_ended(), "nobody has signed it");
    let lineage = alone.lineage();
    alone.member.saved(4, lineage, DIGEST, Digest([8; 32]));
    alone.obey(at(2));
    assert!(alone.told.iter().any(|told| matches!(told, Output::Stable(proof) if proof.head.step == 4)));
    alone.member.settle(at(2), &[]);
    alone.obey(at(2));
    assert!(alone.has_ended());
}

#[test]
fn a_state_that_no_disk_took_is_waited_for_by_nobody() {
    let mut alone = Alone::at_the_end();
    alone.finish(at(1), false);
    assert!(alone.has_ended());
}

#[test]
fn who_stays_for_others_or_is_alone_ends_when_its_user_wishes() {
    let mut alone = Alone::at_the_end();
    alone.finish(at(1), true);
    alone.member.ask_to_leave(at(1));
    alone.obey(at(1));
    assert!(alone.has_ended() && !alone.member.has_completed());

    let mut alone = Alone::at_the_end();
    alone.member.ask_to_leave(at(0));
    assert_eq!(alone.member.leaves_at(), Some(at(10)));
    alone.obey(at(0));
    let ends = |told: &Output| matches!(told, Output::End(Event::Left { stayed }) if stayed.is_empty());
    assert!(alone.told.iter().any(ends), "it need ask nobody");
}

#[test]
fn what_is_stable_counts_for_the_branch_that_it_is_of() {
    let mut alone = Alone::at_the_end();
    let lineage = alone.lineage();
    alone.member.saved(4, lineage, DIGEST, Digest([8; 32]));
    alone.obey(at(1));
    alone.member.leave(&mut alone.steps);
    alone.member.saved(4, lineage, DIGEST, Digest([8; 32]));
    alone.told.clear();
    alone.obey(at(1));
    assert!(alone.told.is_empty(), "in no view it signs nothing");
}

/// Which is not known before, so that it may be none that is due.
#[test]
fn the_state_with_which_a_run_ends_early_is_signed() {
    let mut alone = Alone::after_four_steps(100, 10);
    let lineage = alone.lineage();
    let is_signed = |alone: &mut Alone| {
        alone.obey(at(1));
        alone.told.iter().any(|told| matches!(told, Output::Stable(proof) if proof.head.step == 4))
    };
    alone.member.saved(4, lineage, DIGEST, Digest([8; 32]));
    assert!(!is_signed(&mut alone), "not due");
    alone.member.saved_end(4, lineage, DIGEST, Digest([8; 32]));
    assert!(is_signed(&mut alone));
}

#[test]
fn a_neighbour_whose_link_fails_is_suspected_when_the_driver_looks() {
    let mut alone = Alone::at_the_end();
    let view = alone.member.view().expect("its own").id();
    alone.member.link_failed(at(1), OTHER, view);
    let seen = StepStatus { work: None, has_others: true, view: Some(view), is_held: true, operation: None, moved: 0 };
    alone.member.look(at(3), seen);
    assert!(alone.member.inputs.is_empty(), "the next view is on its way");
    alone.member.look(at(3), StepStatus { is_held: false, ..seen });
    assert!(matches!(alone.member.inputs.pop_front(), Some(Input::Suspected { peer: OTHER, .. })));
}
