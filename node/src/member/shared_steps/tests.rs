//! Contributions, results and their memory between the threads. What is committed when is tested with the steps themselves.

use starling_engine::{Action, EntryState};
use starling_topology::{CatchUpAction, HoldPosition, Lineage, MemberResumePlan, PeerId, Progress, RunId, View};
use tokio::sync::mpsc::{Receiver, channel};

use super::*;

const ME: PeerId = PeerId([1; 32]);

fn view(members: &[u8]) -> View {
    let run = RunId([1; 32]);
    View::found(run, ME).succeed(members.iter().map(|name| PeerId([*name; 32])))
}

fn completion(mean: Vec<f32>, dropped: Option<OperationResidual>) -> Completion {
    Completion { mean, is_finite: true, dropped, own: None }
}

/// A member's steps, and a trainer thread that does whatever it is told at once, until it has nothing to do without
/// others.
struct Thread {
    shared_steps: Arc<SharedSteps>,
    entry: EntryState,
    at: LearnerPosition,
    applied: Vec<u64>,
    /// Active views, and where parts that came in them begin.
    drafted: Vec<(u64, usize)>,
    /// Where the newest result was reduced.
    reduced_in: Option<u64>,
}

impl Thread {
    fn new() -> Self {
        let shared_steps = SharedSteps::new(Steps::new(0, Lineage::NONE, 9), 5, Side::Nothing);
        let (at, applied, drafted) = (LearnerPosition::default(), Vec::new(), Vec::new());
        Self { shared_steps, entry: EntryState::new(ME), at, applied, drafted, reduced_in: None }
    }

    fn enter(&mut self, view: &View) -> Receiver<Operation> {
        let (operations, queue) = channel(1);
        let operations = Some(operations).filter(|_| view.members().len() > 1);
        let Progress { step, lineage, .. } = self.shared_steps.progress();
        let catch_up = CatchUpAction::Current;
        let resumption = MemberResumePlan { view: view.clone(), step, lineage, catch_up, syncing: Vec::new() };
        let (entry, snapshots) = (&mut self.entry, &mut starling_engine::SnapshotStore::<()>::default());
        let action = self.shared_steps.enter(operations, |steps| entry.enter(steps, snapshots, &resumption));
        assert_eq!(action, Action::GoOn);
        self.work();
        queue
    }

    fn hold(&mut self, hold: HoldPosition) -> Option<Progress> {
        let entry = &mut self.entry;
        self.shared_steps.hold(|steps, is_whole| entry.hold(steps, hold, is_whole))
    }

    fn deliver(&self, step: u64) {
        let record = ResultRecord {
            step,
            lineage: Lineage::NONE,
            after: self.shared_steps.progress().lineage,
            members: vec![ME, PeerId([2; 32])],
            mean: vec![0.0; 5],
        };
        self.shared_steps.act(|steps| steps.deliver(Arc::new(record))).expect("the next one");
    }

    fn work(&mut self) {
        loop {
            let next = self.shared_steps.lock().next(&mut self.at, Time::ZERO, None);
            match next {
                None | Some(LearnerTask::Task(Task::Stop { .. }) | LearnerTask::Carried(_)) => return,
                Some(LearnerTask::WorkAhead(part)) => self.drafted.push((part.view, part.start)),
                Some(LearnerTask::Task(Task::Compute)) => self.at.prepared = true,
                Some(LearnerTask::Task(Task::Contribute(active))) => {
                    self.shared_steps.submit(&active, self.at.step + 1, Brought::Whole(vec![1.0; 5]), None);
                }
                Some(LearnerTask::Task(Task::Apply { result, reduced_in })) => {
                    self.reduced_in = reduced_in;
                    self.applied.push(result.step);
                }
                Some(LearnerTask::Task(_)) => {}
            }
        }
    }
}

/// A member in a view of two, with its ring's queue, that has contributed to step 1.
fn pair() -> (Thread, Receiver<Operation>, ViewId) {
    let (mut thread, view) = (Thread::new(), view(&[1, 2]));
    let queue = thread.enter(&view);
    (thread, queue, view.id())
}

#[test]
fn one_alone_takes_all_steps_by_itself() {
    let mut thread = Thread::new();
    drop(thread.enter(&view(&[1])));
    assert_eq!(thread.applied, (1..=9).collect::<Vec<_>>());
    let SnapshotStatus::Here(record) = thread.shared_steps.result_of(9) else { panic!("it is the last one") };
    assert_eq!((record.step, record.mean[0]), (9, 0.2), "divided by the batch size");
}

#[test]
fn an_operation_commits_its_step_unless_the_steps_are_held() {
    let (mut thread, mut queue, view) = pair();
    let operation = queue.try_recv().expect("contributed");
    assert_eq!((operation.step, operation.divisor), (1, 5.0));
    let shared_steps = thread.shared_steps.clone();
    let gate = shared_steps.gate();
    assert!(!shared_steps.complete(ViewId([9; 32]), 1, completion(vec![0.0; 5], None)), "another view's");
    assert!(shared_steps.complete(view, 1, completion(operation.buffer, None)));
    thread.work();
    let operation = queue.try_recv().expect("the next step");
    thread.hold(HoldPosition::Now).expect("at once");
    assert_eq!(gate.borrow().last, Some(1), "reducers see it");
    assert!(!shared_steps.complete(view, 2, completion(operation.buffer, None)));
    assert_eq!((shared_steps.progress().step, thread.applied), (1, vec![1]));
}

#[tokio::test]
async fn a_boundary_waits_for_a_contribution_that_is_whole() {
    let (mut thread, mut queue, view) = pair();
    let operation = queue.try_recv().expect("contributed");
    let shared_steps = thread.shared_steps.clone();
    assert_eq!(thread.hold(HoldPosition::Boundary), None);
    assert!(shared_steps.complete(view, 1, completion(operation.buffer, None)));
    assert_eq!(shared_steps.noticed().await, StepEvent::Held(shared_steps.progress()));
    thread.work();
    drop(thread.enter(&self::view(&[1, 2, 3])));
    // Of the next step, nothing is computed yet.
    let mut at = LearnerPosition::after(1);
    let active = shared_steps.contribute_early(&mut at).expect("a step");
    let gradient = Arc::new(starling_run::Gradient::new(2));
    let (computing, ready) = watch::channel(gradient.elements());
    shared_steps.act(|steps| steps.open(&self::view(&[1, 2, 4]), false));
    let active = ActiveView { number: active.number + 1, ..active };
    let coming = Brought::Coming(Contribution::new(gradient, vec![0.0; 2], None, ready));
    shared_steps.submit(&active, 2, coming, None);
    assert_eq!(thread.hold(HoldPosition::Boundary), Some(shared_steps.progress()), "others wait for it");
    drop(computing);
}

/// Parts are of the operation under way, wait only in small numbers, and are gone when it is.
#[test]
fn parts_of_a_result_come_before_it_is_committed() {
    let (mut thread, mut queue, view) = pair();
    let operation = queue.try_recv().expect("contributed");
    let shared_steps = thread.shared_steps.clone();
    assert!(shared_steps.offer(view, 1, 4, &[1.0]), "nobody wants it");
    thread.work();
    assert_eq!(thread.drafted, []);
    shared_steps.want_parts();
    assert!(shared_steps.offer(ViewId([9; 32]), 1, 4, &[1.0]) && shared_steps.offer(view, 2, 4, &[1.0]), "of no use");
    assert_eq!([4, 3, 2].map(|start| shared_steps.offer(view, 1, start, &[1.0])), [true, true, false]);
    thread.work();
    assert_eq!(thread.drafted, [(1, 4), (1, 3)]);
    assert!(shared_steps.offer(view, 1, 2, &[1.0]));
    assert!(shared_steps.complete(view, 1, completion(operation.buffer, None)));
    thread.work();
    assert_eq!((thread.drafted.len(), thread.reduced_in), (2, Some(1)), "the result makes the rest superfluous");
    // The next step is interrupted, and comes from others.
    assert!(shared_steps.offer(view, 2, 4, &[1.0]));
    thread.hold(HoldPosition::Now).expect("at once");
    thread.deliver(2);
    drop(thread.enter(&self::view(&[1, 2, 3])));
    assert_eq!((&thread.applied[1..], thread.drafted.len(), thread.reduced_in), (&[2][..], 2, None));
}

/// What a step dropped counts once that step is committed, by whomever, and is not what another try dropped.
#[test]
fn what_was_dropped_is_told_of_committed_steps_only() {
    let dropped = |elements| OperationResidual::new(elements, Vec::new());
    let (mut thread, mut queue, view_1) = pair();
    let shared_steps = thread.shared_steps.clone();
    let operation = queue.try_recv().expect("contributed");
    assert!(shared_steps.complete(view_1, 1, completion(operation.buffer, Some(dropped(1)))));
    assert_eq!(shared_steps.dropped(2), None, "not yet");
    assert_eq!(shared_steps.dropped(1), Some(dropped(1)));
    assert_eq!(shared_steps.dropped(1), None, "once");

    // Step 2 is interrupted here. Others completed it: then this member has dropped all that it ever would.
    thread.work();
    let operation = queue.try_recv().expect("contributed");
    thread.hold(HoldPosition::Now).expect("at once");
    shared_steps.interrupted(view_1, 2, operation.buffer, Some(dropped(2)));
    assert_eq!(shared_steps.dropped(2), None, "it is not committed");
    thread.deliver(2);
    assert_eq!(shared_steps.dropped(2), Some(dropped(2)));

    // Step 3 is reduced again in another view, and what the first try dropped comes too late.
    let view_2 = view(&[1, 2]).succeed([ME, PeerId([3; 32])]);
    let mut queue = thread.enter(&view_2);
    let operation = queue.try_recv().expect("contributed again");
    assert!(shared_steps.complete(view_2.id(), 3, completion(operation.buffer, Some(dropped(3)))));
    shared_steps.interrupted(view_1, 3, vec![0.0; 5], Some(dropped(4)));
    assert_eq!(shared_steps.dropped(3), Some(dropped(3)));
}
