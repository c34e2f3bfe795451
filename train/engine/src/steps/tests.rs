//! What is committed, and when; and what the learner is told then.

use starling_topology::{PeerId, RunId};

use super::*;

/// The result of a step, and nothing in it: of a view, after a state of that lineage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Of(u64, Lineage, Lineage);

impl StepResult for Of {
    fn step(&self) -> u64 {
        self.0
    }

    fn lineage(&self) -> Lineage {
        self.1
    }

    fn after(&self) -> Lineage {
        self.2
    }

    fn bytes(&self) -> usize {
        1 << 24
    }

    fn is_from_all(&self) -> bool {
        true
    }
}

fn peer(name: u8) -> PeerId {
    PeerId([name; 32])
}

fn view(members: &[u8]) -> View {
    View::found(RunId([1; 32]), peer(1)).succeed(members.iter().map(|name| peer(*name)))
}

/// The lineage of what no view of a test has made.
const ELSEWHERE: ViewId = ViewId([8; 32]);

fn lineage(view: ViewId) -> Lineage {
    Lineage { view, ..Lineage::NONE }
}

fn progress(step: u64, view: ViewId, has_result: bool) -> Progress {
    Progress { step, lineage: lineage(view), has_state: true, has_result }
}

/// A member whose learner does all that it is told at once, and whose reducer does nothing by itself.
struct Member {
    steps: StepEngine<Of, u64>,
    cursor: LearnerPosition,
    applied: Vec<u64>,
    reduced_in: Option<u64>,
    snapshots: Vec<u64>,
    /// The steps that it contributed to, and in which active view.
    contributed: Vec<(u64, u64)>,
    begun: Vec<usize>,
    loaded_ahead: usize,
    finished: usize,
}

impl Member {
    fn new() -> Self {
        Self {
            steps: StepEngine::new(0, Lineage::NONE, 9),
            cursor: LearnerPosition::default(),
            applied: Vec::new(),
            reduced_in: None,
            snapshots: Vec::new(),
            contributed: Vec::new(),
            begun: Vec::new(),
            loaded_ahead: 0,
            finished: 0,
        }
    }

    /// In a view of two, with its contribution to step 1.
    fn of_two() -> (Self, ViewId) {
        let (mut member, view) = (Self::new(), view(&[1, 2]));
        member.steps.open(&view, false);
        member.work();
        assert_eq!(member.contributed, [(1, 1)]);
        (member, view.id())
    }

    fn work(&mut self) {
        while let Some(task) = self.steps.next(&mut self.cursor) {
            match task {
                Task::Stop { .. } => return,
                Task::Load(step) => assert_eq!(step, self.cursor.step),
                Task::Synced => {}
                Task::Begin { members } => self.begun.push(members.len()),
                Task::Snapshot => self.snapshots.push(self.cursor.step),
                Task::Apply { result, reduced_in } => {
                    assert_eq!(result.step(), self.cursor.step);
                    assert!(self.applied.last().is_none_or(|last| last + 1 == result.step()), "in order");
                    self.reduced_in = reduced_in;
                    self.applied.push(result.step());
                }
                Task::Finished => self.finished += 1,
                Task::Compute => self.cursor.prepared = true,
                Task::Contribute(active) => {
                    let step = self.cursor.step + 1;
                    assert!(self.steps.submit(active.number, step));
                    assert!(!self.steps.submit(active.number, step), "once in each view");
                    self.contributed.push((step, active.number));
                }
                Task::LoadAhead { .. } => self.loaded_ahead += 1,
            }
        }
    }

    fn complete(&mut self, view: ViewId, step: u64) {
        assert!(self.steps.admits(view, step).is_some());
        self.steps.complete(view, self.result(step, view), true);
        self.work();
    }

    /// A result that fits the state that is here.
    fn result(&self, step: u64, view: ViewId) -> Of {
        Of(step, lineage(view), self.steps.progress().lineage)
    }

    /// Another member hands out the result of the next step.
    fn deliver(&mut self, step: u64) {
        self.steps.deliver(self.result(step, ELSEWHERE)).expect("the next one");
    }
}

#[test]
fn a_step_is_committed_when_its_operation_completes_and_only_while_the_gate_admits_it() {
    let (mut member, view) = Member::of_two();
    assert_eq!(member.steps.progress(), progress(0, ViewId::NONE, false));
    assert!(member.steps.admits(ViewId([9; 32]), 1).is_none(), "another view's");
    assert!(member.steps.admits(view, 2).is_none(), "another step's");
    assert_eq!(member.steps.complete(view, member.result(1, view), true), None);
    assert_eq!(
        (member.steps.progress(), member.applied.len()),
        (progress(1, view, true), 0),
        "before the learner applies it"
    );
    member.work();
    assert_eq!((&member.applied[..], member.reduced_in, member.loaded_ahead), (&[1][..], Some(1), 2));
    assert_eq!(member.contributed, [(1, 1), (2, 1)]);
    assert!(member.steps.under_way(view, 2).is_some());
    assert_eq!(member.steps.hold(HoldPosition::Now, true), Some(progress(1, view, true)));
    assert!(member.steps.under_way(view, 2).is_none(), "parts of it are of no use any more");
    assert!(member.steps.admits(view, 2).is_none(), "the promise says that step 1 was the last");
}

#[test]
fn a_boundary_waits_for_a_contribution_that_is_whole() {
    let (mut member, view) = Member::of_two();
    assert_eq!(member.steps.hold(HoldPosition::Boundary, true), None, "all others may have it");
    member.complete(view, 1);
    assert_eq!(member.steps.take_notice(), Some(StepEvent::Held(progress(1, view, true))));
    assert_eq!(member.contributed.len(), 1, "the next step waits for the next view");
    assert_eq!(member.steps.hold(HoldPosition::Boundary, true), Some(progress(1, view, true)), "nothing is under way");
    assert_eq!(member.steps.hold(HoldPosition::After(1), true), Some(progress(1, view, true)));
    let (mut member, _) = Member::of_two();
    assert_eq!(
        member.steps.hold(HoldPosition::Boundary, false),
        Some(progress(0, ViewId::NONE, false)),
        "the next view can have it"
    );
}

#[test]
fn a_newer_hold_replaces_an_older_one() {
    let (mut member, view) = Member::of_two();
    assert_eq!(member.steps.hold(HoldPosition::After(1), true), None);
    assert_eq!(member.steps.hold(HoldPosition::Now, true), Some(progress(0, ViewId::NONE, false)));
    assert!(member.steps.admits(view, 1).is_none() && !member.steps.has_notice());
    let (mut member, view) = Member::of_two();
    assert_eq!(member.steps.hold(HoldPosition::After(1), true), None);
    member.complete(view, 1);
    assert_eq!(member.steps.hold(HoldPosition::After(2), true), None);
    assert!(!member.steps.has_notice(), "an answer to an older hold would be taken for one to this");
}

#[test]
fn a_gradient_outlives_its_view() {
    let (mut member, _) = Member::of_two();
    member.steps.hold(HoldPosition::Now, true);
    member.deliver(1);
    member.steps.open(&view(&[1, 3]), true);
    member.work();
    assert_eq!((&member.applied[..], &member.snapshots[..]), (&[1][..], &[1][..]), "applied, then a snapshot");
    // The same step again, in another view, from the same gradient.
    member.steps.hold(HoldPosition::Now, true);
    member.steps.open(&view(&[1, 4]), false);
    assert!(member.cursor.prepared);
    member.work();
    assert_eq!(member.contributed, [(1, 1), (2, 2), (2, 3)]);
}

#[test]
fn a_step_can_be_contributed_to_while_it_is_computed() {
    let mut member = Member::new();
    assert!(member.steps.contribute_early(&mut member.cursor).is_none(), "no view yet");
    member.steps.open(&view(&[1, 2]), false);
    let cursor = &mut member.cursor;
    assert!(member.steps.contribute_early(cursor).is_none(), "nothing is assigned to this view's members yet");
    assert!(matches!(member.steps.next(cursor), Some(Task::Begin { .. })));
    let active = member.steps.contribute_early(cursor).expect("the first step");
    assert!(member.steps.submit(active.number, 1));
    assert!(member.steps.contribute_early(cursor).is_none(), "once in each view");
    assert!(!member.steps.may_work_ahead(cursor), "it computes");
    cursor.prepared = true;
    assert!(matches!(member.steps.next(cursor), Some(Task::LoadAhead { .. })));
    assert_eq!((member.steps.next(cursor), member.steps.may_work_ahead(cursor)), (None, true));
    member.steps.hold(HoldPosition::Boundary, false);
    member.steps.open(&view(&[1, 2, 3]), false);
    assert!(matches!(member.steps.next(cursor), Some(Task::Begin { .. })));
    assert!(matches!(member.steps.next(cursor), Some(Task::Contribute(_))), "the gradient is at hand");
    let mut alone = Member::new();
    alone.steps.open(&view(&[1]), false);
    alone.steps.next(&mut alone.cursor);
    assert!(alone.steps.contribute_early(&mut alone.cursor).is_none(), "there is nobody to send to");
}

#[test]
fn only_the_next_result_is_taken() {
    let (mut member, _) = Member::of_two();
    let (first, second) = (member.result(1, ELSEWHERE), member.result(2, ELSEWHERE));
    assert_eq!(member.steps.deliver(second), Err(second));
    let stranger = Of(1, lineage(ELSEWHERE), lineage(ELSEWHERE));
    assert_eq!(member.steps.deliver(stranger), Err(stranger), "it is to be applied to another state");
    assert_eq!(member.steps.deliver(first), Ok(None));
    assert_eq!(member.steps.deliver(first), Err(first));
    assert_eq!(member.steps.progress(), progress(1, ELSEWHERE, true));
}

#[test]
fn who_downloads_the_state_keeps_up_without_it() {
    let (mut member, view) = (Member::new(), view(&[1, 2]));
    let number = member.steps.sync(4, lineage(ELSEWHERE));
    member.steps.open(&view, true);
    assert!(!member.steps.progress().has_state);
    for step in 5..=7 {
        member.work();
        let SyncDecision::Contribute(active, due) = member.steps.take_part(number) else {
            panic!("a step to take part in")
        };
        assert!(due == step && member.steps.submit(active.number, due));
        assert_eq!(member.steps.take_part(number), SyncDecision::Wait, "once");
        member.complete(view.id(), step);
    }
    assert_eq!((member.applied.len(), member.snapshots.len()), (0, 0));
    assert!(!member.steps.arrive(number + 1, 9), "another sync's state");
    assert!(member.steps.arrive(number, 4));
    member.work();
    assert_eq!((&member.applied[..], member.steps.progress()), (&[5, 6, 7][..], progress(7, view.id(), true)));
    assert_eq!(member.steps.take_part(number), SyncDecision::Over);
    assert_eq!(member.contributed, [(8, 1)], "its own");
}

#[test]
fn a_newer_sync_replaces_an_older_one_and_what_it_kept() {
    let mut member = Member::new();
    let first = member.steps.sync(4, lineage(ELSEWHERE));
    member.deliver(5);
    let second = member.steps.sync(8, lineage(ELSEWHERE));
    assert_eq!(member.steps.take_part(first), SyncDecision::Over);
    assert!(!member.steps.arrive(first, 4) && member.steps.arrive(second, 8));
    member.work();
    assert_eq!((member.cursor.step, member.applied.len()), (8, 0));
}

#[test]
fn results_that_wait_for_a_state_are_bounded() {
    let mut member = Member::new();
    member.steps.sync(0, lineage(ELSEWHERE));
    for step in 1..=64 {
        member.deliver(step);
        assert!(!member.steps.has_notice(), "so many are kept in any case: {step}");
    }
    member.deliver(65);
    assert_eq!(member.steps.take_notice(), Some(StepEvent::TooFarBehind));
}

#[test]
fn outside_of_all_views_nothing_runs() {
    let (mut member, view) = Member::of_two();
    member.steps.close();
    assert!(member.steps.admits(view, 1).is_none());
    member.work();
    assert!(member.applied.is_empty());
    assert_eq!(member.steps.hold(HoldPosition::Now, true), Some(progress(0, ViewId::NONE, false)));
}

#[test]
fn who_leaves_in_order_applies_what_is_committed_first() {
    let stopped = |evaluate: bool| {
        let (mut member, view) = Member::of_two();
        member.steps.complete(view, member.result(1, view), true);
        member.steps.stop(evaluate);
        member.work();
        assert_eq!(member.steps.next(&mut member.cursor), Some(Task::Stop { evaluate }));
        (member.applied, member.contributed.len())
    };
    assert_eq!(stopped(true), (vec![1], 1), "and takes no other step");
    assert_eq!(stopped(false), (vec![], 1), "what failed may fail again");
    // What came while the state was on its way is of no use without it.
    let (mut member, view) = Member::of_two();
    member.steps.sync(4, lineage(ELSEWHERE));
    member.steps.open(&self::view(&[1, 2]), false);
    member.cursor = LearnerPosition::after(4);
    member.steps.complete(view, member.result(5, view), true);
    member.steps.stop(true);
    assert_eq!(member.steps.next(&mut member.cursor), Some(Task::Stop { evaluate: true }));
}

#[test]
fn the_first_step_is_assigned_anew_until_it_is_committed() {
    let (mut member, _) = Member::of_two();
    member.steps.open(&view(&[1, 2, 3]), false);
    member.work();
    assert_eq!(member.begun, [2, 3]);
    member.steps.hold(HoldPosition::Now, true);
    member.deliver(1);
    member.steps.open(&view(&[1, 2]), false);
    member.work();
    assert_eq!(member.begun.len(), 2);
}

#[test]
fn the_end_is_told_once_in_each_view() {
    let mut member = Member::new();
    member.steps = StepEngine::new(9, lineage(ELSEWHERE), 9);
    member.cursor = LearnerPosition::after(9);
    member.steps.open(&view(&[1, 2]), false);
    member.work();
    assert_eq!(member.finished, 1);
    member.steps.open(&view(&[1, 2, 3]), false);
    member.work();
    assert_eq!((member.finished, member.contributed.len()), (2, 0));
}

#[test]
fn who_holds_no_state_says_so_until_one_is_there() {
    let mut steps = StepEngine::<Of, u64>::without_state(9);
    assert!(!steps.progress().has_state);
    assert_eq!(steps.hold(HoldPosition::Now, true), Some(Progress::default()));
    let number = steps.sync(3, lineage(ELSEWHERE));
    assert!(steps.arrive(number, 3) && !steps.progress().has_state, "it is not loaded yet");
    let mut cursor = LearnerPosition::default();
    assert_eq!(steps.next(&mut cursor), Some(Task::Load(3)));
    assert_eq!(steps.next(&mut cursor), Some(Task::Synced));
    assert!(steps.progress().has_state);
    steps.finish(3, Digest([3; 32]), true);
    assert_eq!(steps.take_notice(), Some(StepEvent::Synced), "before what is said of it");
    assert!(matches!(steps.take_notice(), Some(StepEvent::Finished { step: 3, is_saved: true, .. })));
    assert_eq!(steps.take_notice(), None);
}

#[test]
fn what_was_to_be_said_of_one_download_is_not_said_of_the_next() {
    let synced = || {
        let mut member = Member::new();
        let number = member.steps.sync(3, lineage(ELSEWHERE));
        assert!(member.steps.arrive(number, 3));
        member.work();
        assert!(member.steps.has_notice());
        member
    };
    let mut again = synced();
    again.steps.sync(5, lineage(ELSEWHERE));
    assert_eq!(again.steps.take_notice(), None, "it holds nothing yet");
    // The learner was at it while the next one began.
    again.steps.finish(4, Digest([4; 32]), true);
    again.steps.compare(4, Digest([4; 32]));
    assert_eq!(again.steps.take_notice(), None, "of a state that is about to be replaced");
    let mut outside = synced();
    outside.steps.close();
    assert_eq!(outside.steps.take_notice(), None);
    let mut behind = Member::new();
    behind.steps.sync(0, lineage(ELSEWHERE));
    (1..=65).for_each(|step| behind.deliver(step));
    behind.steps.sync(65, lineage(ELSEWHERE));
    assert_eq!(behind.steps.take_notice(), None, "the next one has room");
}

#[test]
fn who_stands_just_before_a_step_says_that_it_will_have_the_result() {
    let (mut member, view) = Member::of_two();
    assert_eq!(
        [0, 1, 2].map(|step| member.steps.result_of(step)),
        [SnapshotStatus::Nothing, SnapshotStatus::Later, SnapshotStatus::Nothing]
    );
    let first = Of(1, lineage(view), Lineage::NONE);
    member.steps.deliver(first).expect("the next one");
    assert_eq!(
        [1, 2, 3].map(|step| member.steps.result_of(step)),
        [SnapshotStatus::Here(first), SnapshotStatus::Later, SnapshotStatus::Nothing]
    );
    member.steps.deliver(Of(2, lineage(view), lineage(view))).expect("the next one");
    assert_eq!(member.steps.result_of(1), SnapshotStatus::Nothing, "nobody is that far behind");
}

#[test]
fn what_is_over_in_one_state_goes_on_in_another() {
    let (mut member, view) = Member::of_two();
    member.complete(view, 1);
    member.steps.end_after(1);
    member.work();
    assert_eq!((member.finished, member.contributed.len()), (1, 2), "it had contributed to step 2 before");
    // The others go on from a step 1 of their own, in which nothing was skipped.
    let number = member.steps.sync(1, lineage(ELSEWHERE));
    member.steps.open(&self::view(&[1, 2]), false);
    assert!(matches!(member.steps.take_part(number), SyncDecision::Contribute(_, 2)));
    assert!(member.steps.arrive(number, 1));
    member.work();
    assert_eq!((member.finished, member.contributed.last()), (1, Some(&(2, 2))));
}

#[test]
fn a_run_that_has_ended_early_had_its_last_step() {
    let (mut member, view) = Member::of_two();
    let last = member.steps.last_step();
    member.complete(view, 1);
    member.steps.end_after(1);
    assert_eq!(member.steps.last_step(), last, "what too many skipped steps end goes on if all are started again");
    member.steps.conclude_after(1);
    member.work();
    assert_eq!((member.steps.last_step(), member.finished), (1, 1));
    // In the state that it loads, the run has not.
    member.steps.sync(1, lineage(ELSEWHERE));
    assert_eq!(member.steps.last_step(), last);
}

#[test]
fn a_state_for_leaves_is_handed_out_before_it_changes_beside_that_for_joiners() {
    let (mut member, view) = Member::of_two();
    assert!(!member.steps.lend(1), "no such step is committed yet");
    member.complete(view, 1);
    assert!(member.steps.lend(1));
    member.work();
    assert_eq!(member.snapshots, [1]);
    // The learner is still at the step before: it is that state that is wanted, once it gets there.
    member.steps.complete(view, member.result(2, view), true);
    assert!(!member.steps.lend(1) && member.steps.lend(2));
    member.work();
    assert_eq!(member.snapshots, [1, 2]);
    // A view that wants one for its joiners takes none away, and of one step there is one.
    assert!(member.steps.lend(2));
    member.steps.hold(HoldPosition::Now, true);
    member.steps.open(&self::view(&[1, 2, 3]), true);
    member.work();
    assert_eq!(member.snapshots, [1, 2, 2]);
    // Whose state is about to be replaced lends none.
    member.steps.sync(9, lineage(ELSEWHERE));
    assert!(!member.steps.lend(9));
}
