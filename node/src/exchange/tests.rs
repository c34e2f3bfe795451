//! What the exchange commits, and when.

use starling_topology::RunId;

use super::*;

const RUN: RunId = RunId([1; 32]);

fn peer(name: u8) -> PeerId {
    PeerId([name; 32])
}

fn view(members: &[u8]) -> View {
    View::found(RUN, peer(1)).succeed(members.iter().map(|name| peer(*name)))
}

fn record(step: u64) -> ResultRecord {
    ResultRecord { step, members: vec![peer(1)], mean: vec![step as f32, 0.0, 1.0] }
}

fn progress(step: u64, has_result: bool) -> Progress {
    Progress { step, has_state: true, has_result }
}

fn completion(mean: Vec<f32>, dropped: Option<Dropped>) -> Completion {
    Completion { mean, is_finite: true, dropped }
}

/// A trainer thread that takes whatever it is told at once, until it has nothing to do without others.
struct Thread {
    exchange: Arc<Exchange>,
    at: At,
    applied: Vec<u64>,
    snapshots: Vec<u64>,
    loaded: usize,
    /// Turns, and where parts that came in them begin.
    drafted: Vec<(u64, usize)>,
    /// Where the newest result was reduced.
    reduced_in: Option<u64>,
    finished: usize,
}

impl Thread {
    fn new(exchange: &Arc<Exchange>) -> Self {
        Self {
            exchange: exchange.clone(),
            at: At::default(),
            applied: Vec::new(),
            snapshots: Vec::new(),
            loaded: 0,
            drafted: Vec::new(),
            reduced_in: None,
            finished: 0,
        }
    }

    fn work(&mut self) {
        loop {
            let next = self.exchange.lock().next(&mut self.at);
            match next {
                None => return,
                Some(Next::Begin { .. }) => {}
                Some(Next::Compute) => self.at.prepared = true,
                Some(Next::Contribute(turn)) => {
                    self.exchange.submit(&turn, self.at.step + 1, Brought::Whole(vec![1.0; 5]), None)
                }
                Some(Next::Apply { record, reduced_in }) => {
                    self.reduced_in = reduced_in;
                    assert_eq!(record.step, self.at.step + 1, "in order");
                    self.applied.push(record.step);
                    self.at = At { step: record.step, ..At::default() };
                }
                Some(Next::Snapshot) => self.snapshots.push(self.at.step),
                Some(Next::Load(state)) => self.at = At { step: state.step, ..At::default() },
                Some(Next::LoadAhead { .. }) => self.loaded += 1,
                Some(Next::Draft(part)) => self.drafted.push((part.turn, part.start)),
                Some(Next::Finished) => self.finished += 1,
                Some(Next::Synced) => self.at.prepared = false,
                Some(Next::Stop { .. }) => return,
            }
        }
    }
}

fn state(step: u64) -> Box<ReplicatedState> {
    let ledger = starling_topology::Ledger::new(1, 10, 5);
    let (parameters, moments, scalars) = (vec![1.0].into(), Vec::new(), Vec::new());
    Box::new(ReplicatedState { run: RUN, step, parameters, moments, scalars, ledger })
}

/// An exchange in a view of two with its ring's queue, and its trainer thread, which has contributed to step 1.
fn pair() -> (Arc<Exchange>, Thread, tokio::sync::mpsc::Receiver<Operation>, ViewId) {
    let exchange = Exchange::new(0, 9, 5);
    let (operations, queue) = tokio::sync::mpsc::channel(1);
    let view = view(&[1, 2]);
    exchange.open(&view, Some(operations), false);
    let mut thread = Thread::new(&exchange);
    thread.work();
    (exchange, thread, queue, view.id())
}

#[test]
fn one_alone_takes_all_steps_by_itself() {
    let exchange = Exchange::new(0, 9, 5);
    exchange.open(&view(&[1]), None, false);
    let mut thread = Thread::new(&exchange);
    thread.work();
    assert_eq!(thread.applied, (1..=9).collect::<Vec<_>>());
    assert_eq!(exchange.progress(), progress(9, true));
    let record = exchange.record().expect("the last one");
    assert_eq!((record.step, record.mean[0]), (9, 0.2));
    thread.work();
    assert_eq!((thread.finished, thread.loaded), (1, 0), "it never waits for others");
    exchange.open(&view(&[1, 2]), None, false);
    thread.work();
    assert_eq!(thread.finished, 2, "told again in the next view");
}

#[test]
fn a_step_is_committed_when_its_operation_completes_and_only_while_the_gate_admits_it() {
    let (exchange, mut thread, mut queue, view) = pair();
    let operation = queue.try_recv().expect("contributed");
    assert_eq!((operation.step, operation.divisor), (1, 5.0));
    assert_eq!(exchange.progress(), progress(0, false));
    assert!(!exchange.complete(ViewId([9; 32]), 1, completion(vec![0.0; 5], None)), "another view's");
    assert!(!exchange.complete(view, 2, completion(vec![0.0; 5], None)), "another step's");
    assert!(exchange.complete(view, 1, completion(operation.buffer, None)));
    assert_eq!(exchange.progress(), progress(1, true), "before the thread knows of it");
    thread.work();
    assert_eq!((&thread.applied[..], thread.loaded), (&[1][..], 2), "once while each step is reduced");
    let operation = queue.try_recv().expect("the next step");
    assert_eq!(exchange.hold(Hold::Now), Some(progress(1, true)));
    assert!(
        !exchange.complete(view, 2, completion(operation.buffer, None)),
        "the promise says that step 1 was the last"
    );
    assert_eq!(exchange.progress(), progress(1, true));
}

/// Parts are of the operation under way, wait only in small numbers, and are gone when it is.
#[test]
fn parts_of_a_result_come_before_it_is_committed() {
    let (exchange, mut thread, mut queue, view) = pair();
    let operation = queue.try_recv().expect("contributed");
    assert!(exchange.offer(view, 1, 4, &[1.0]), "nobody wants it");
    thread.work();
    assert_eq!(thread.drafted, []);
    exchange.want_parts();
    assert!(exchange.offer(ViewId([9; 32]), 1, 4, &[1.0]) && exchange.offer(view, 2, 4, &[1.0]), "of no use");
    assert_eq!([4, 3, 2].map(|start| exchange.offer(view, 1, start, &[1.0])), [true, true, false]);
    thread.work();
    assert_eq!(thread.drafted, [(1, 4), (1, 3)]);
    assert!(exchange.offer(view, 1, 2, &[1.0]));
    assert!(exchange.complete(view, 1, completion(operation.buffer, None)));
    thread.work();
    assert_eq!((thread.drafted.len(), thread.reduced_in), (2, Some(1)), "the result makes the rest superfluous");
    // The next step is interrupted, and comes from others.
    assert!(exchange.offer(view, 2, 4, &[1.0]));
    exchange.hold(Hold::Now);
    let (operations, _queue) = tokio::sync::mpsc::channel(1);
    exchange.open(&self::view(&[1, 2, 3]), Some(operations), false);
    assert!(exchange.deliver(record(2)));
    thread.work();
    assert_eq!((&thread.applied[1..], thread.drafted.len(), thread.reduced_in), (&[2][..], 2, None));
}

#[tokio::test]
async fn a_boundary_waits_for_the_operation_under_way() {
    let (exchange, mut thread, mut queue, view) = pair();
    let operation = queue.try_recv().expect("contributed");
    assert_eq!(exchange.hold(Hold::Boundary), None);
    assert!(exchange.complete(view, 1, completion(operation.buffer, None)));
    assert_eq!(exchange.noticed().await, Notice::Held(progress(1, true)));
    thread.work();
    assert!(queue.try_recv().is_err(), "the next step waits for the next view");
    assert_eq!(exchange.hold(Hold::Boundary), Some(progress(1, true)), "nothing is under way");
    assert_eq!(exchange.hold(Hold::After(1)), Some(progress(1, true)));
}

/// A contribution of five numbers that is being computed, and who computes it.
fn coming() -> (tokio::sync::watch::Sender<usize>, Brought) {
    let gradient = Arc::new(starling_run::Gradient::new(2));
    let (computing, ready) = tokio::sync::watch::channel(gradient.elements());
    (computing, Brought::Coming(Contribution::new(gradient, vec![0.0; 2], None, ready)))
}

#[test]
fn a_step_can_be_contributed_to_while_it_is_computed() {
    let exchange = Exchange::new(0, 9, 5);
    let (operations, mut queue) = tokio::sync::mpsc::channel(1);
    let mut at = At::default();
    assert!(exchange.opening(&mut at).is_none(), "no view yet");
    exchange.open(&view(&[1, 2]), Some(operations), false);
    assert!(exchange.opening(&mut at).is_none(), "nothing is assigned to this view's members yet");
    assert!(matches!(exchange.lock().next(&mut at), Some(Next::Begin { .. })));
    let turn = exchange.opening(&mut at).expect("the first step");
    let (computing, contribution) = coming();
    exchange.submit(&turn, 1, contribution, None);
    assert!(queue.try_recv().expect("contributed").contribution.is_some());
    assert!(exchange.opening(&mut at).is_none(), "once in each turn");
    at.prepared = true;
    assert!(matches!(exchange.lock().next(&mut at), Some(Next::LoadAhead { .. })));
    assert!(exchange.lock().next(&mut at).is_none(), "it waits for the result");
    // As long as the gradient is computed, a change of view waits for nothing; the next view's operation can have it.
    assert_eq!(exchange.hold(Hold::Boundary), Some(progress(0, false)));
    let (operations, mut queue) = tokio::sync::mpsc::channel(1);
    exchange.open(&view(&[1, 2, 3]), Some(operations), false);
    assert!(matches!(exchange.lock().next(&mut at), Some(Next::Begin { .. })));
    let Some(Next::Contribute(turn)) = exchange.lock().next(&mut at) else { panic!("the gradient is at hand") };
    let (_, contribution) = coming();
    exchange.submit(&turn, 1, contribution, None);
    assert!(queue.try_recv().is_ok());
    drop(computing);
}

#[test]
fn a_boundary_waits_for_a_contribution_that_is_whole() {
    let (exchange, _, _queue, _) = pair();
    let operations = tokio::sync::mpsc::channel(1);
    exchange.open(&view(&[1, 2]), Some(operations.0), false);
    let mut at = At { begun: 2, ..At::default() };
    let turn = exchange.opening(&mut at).expect("a new turn");
    let (computing, contribution) = coming();
    exchange.submit(&turn, 1, contribution, None);
    computing.send_replace(0);
    assert_eq!(exchange.hold(Hold::Boundary), None, "all others may have it");
}

#[test]
fn in_a_view_of_one_there_is_nobody_to_send_to() {
    let exchange = Exchange::new(0, 9, 5);
    exchange.open(&view(&[1]), None, false);
    assert!(exchange.opening(&mut At { begun: 1, ..At::default() }).is_none());
}

#[test]
fn a_newer_hold_replaces_an_older_one() {
    let (exchange, _thread, mut queue, view) = pair();
    let operation = queue.try_recv().expect("contributed");
    assert_eq!(exchange.hold(Hold::After(1)), None);
    assert_eq!(exchange.hold(Hold::Now), Some(progress(0, false)));
    assert!(!exchange.complete(view, 1, completion(operation.buffer, None)));
    assert_eq!(exchange.lock().notice, None);
}

#[test]
fn a_gradient_outlives_its_view() {
    let (exchange, mut thread, mut queue, _) = pair();
    drop(queue.try_recv().expect("contributed"));
    exchange.hold(Hold::Now);
    let (operations, mut queue) = tokio::sync::mpsc::channel(1);
    exchange.deliver(record(1));
    exchange.open(&view(&[1, 3]), Some(operations), true);
    thread.work();
    assert_eq!((thread.applied.as_slice(), thread.snapshots.as_slice()), (&[1][..], &[1][..]), "then a snapshot");
    assert_eq!(queue.try_recv().expect("contributed").step, 2);
    // The same step again, in another view, from the same gradient.
    exchange.hold(Hold::Now);
    let (operations, mut queue) = tokio::sync::mpsc::channel(1);
    exchange.open(&view(&[1, 4]), Some(operations), false);
    assert!(thread.at.prepared);
    thread.work();
    assert_eq!(queue.try_recv().expect("contributed again").step, 2);
}

#[test]
fn only_the_next_result_is_taken() {
    let (exchange, ..) = pair();
    assert!(!exchange.deliver(record(2)));
    assert!(exchange.deliver(record(1)));
    assert!(!exchange.deliver(record(1)));
    assert_eq!(exchange.progress(), progress(1, true));
}

#[test]
fn who_downloads_the_state_keeps_up_without_it() {
    let exchange = Exchange::new(0, 9, 5);
    let number = exchange.sync(4);
    let (operations, mut queue) = tokio::sync::mpsc::channel(1);
    let view = view(&[1, 2]);
    exchange.open(&view, Some(operations), true);
    assert!(!exchange.progress().has_state);
    let mut thread = Thread::new(&exchange);
    for step in 5..=7 {
        thread.work();
        let (turn, pending) = exchange.next_without_state(number).expect("a step to take part in");
        assert_eq!(pending, step);
        exchange.submit(&turn, pending, Brought::Whole(vec![0.0; 5]), None);
        let operation = queue.try_recv().expect("handed to the ring");
        assert!(exchange.complete(view.id(), step, completion(operation.buffer, None)));
    }
    assert!(thread.applied.is_empty());
    exchange.arrive(number + 1, state(9));
    thread.work();
    assert!(thread.applied.is_empty(), "another sync's state");
    exchange.arrive(number, state(4));
    thread.work();
    assert_eq!(thread.applied, [5, 6, 7]);
    assert_eq!(exchange.progress(), progress(7, true));
    assert!(exchange.next_without_state(number).is_none());
    assert_eq!(queue.try_recv().expect("its own contribution").step, 8);
}

#[test]
fn a_newer_sync_replaces_an_older_one_and_what_it_kept() {
    let exchange = Exchange::new(0, 9, 5);
    let first = exchange.sync(4);
    exchange.deliver(record(5));
    let second = exchange.sync(8);
    assert!(exchange.next_without_state(first).is_none());
    exchange.arrive(first, state(4));
    exchange.arrive(second, state(8));
    let mut thread = Thread::new(&exchange);
    thread.work();
    assert_eq!((thread.at.step, thread.applied.len()), (8, 0));
}

#[test]
fn outside_of_all_views_nothing_runs() {
    let (exchange, mut thread, mut queue, view) = pair();
    let operation = queue.try_recv().expect("contributed");
    exchange.close();
    assert!(!exchange.complete(view, 1, completion(operation.buffer, None)));
    thread.work();
    assert!(thread.applied.is_empty());
    assert_eq!(exchange.hold(Hold::Now), Some(progress(0, false)));
}

#[test]
fn the_first_step_is_assigned_anew_until_it_is_committed() {
    let (exchange, mut thread, _queue, _) = pair();
    assert!(thread.at.prepared);
    let joined = view(&[1, 2, 3]);
    assert_eq!(joined.generation, Generation(2));
    exchange.open(&joined, None, false);
    let next = exchange.lock().next(&mut thread.at);
    assert!(matches!(next, Some(Next::Begin { members }) if members.len() == 3));
}

/// What a step dropped counts once that step is committed, by whomever, and is not what another try dropped.
#[test]
fn what_was_dropped_is_told_of_committed_steps_only() {
    let dropped = |elements| Dropped::new(elements, Vec::new());
    let (exchange, mut thread, mut queue, view_1) = pair();
    let operation = queue.try_recv().expect("contributed");
    assert!(exchange.complete(view_1, 1, completion(operation.buffer, Some(dropped(1)))));
    assert_eq!(exchange.dropped(2), None, "not yet");
    assert_eq!(exchange.dropped(1), Some(dropped(1)));
    assert_eq!(exchange.dropped(1), None, "once");

    // Step 2 is interrupted here. Others completed it: then this member has dropped all that it ever would.
    thread.work();
    let operation = queue.try_recv().expect("contributed");
    exchange.hold(Hold::Now);
    exchange.interrupted(view_1, 2, operation.buffer, Some(dropped(2)));
    assert_eq!(exchange.dropped(2), None, "it is not committed");
    assert!(exchange.deliver(ResultRecord { members: vec![peer(1), peer(2)], mean: vec![0.0; 5], ..record(2) }));
    assert_eq!(exchange.dropped(2), Some(dropped(2)));

    // Step 3 is reduced again in another view, and what the first try dropped comes too late.
    let (operations, mut queue_2) = tokio::sync::mpsc::channel(1);
    let view_2 = view(&[1, 2]).succeed([peer(1), peer(3)]);
    exchange.open(&view_2, Some(operations), false);
    thread.work();
    let operation = queue_2.try_recv().expect("contributed again");
    assert!(exchange.complete(view_2.id(), 3, completion(operation.buffer, Some(dropped(3)))));
    exchange.interrupted(view_1, 3, vec![0.0; 5], Some(dropped(4)));
    assert_eq!(exchange.dropped(3), Some(dropped(3)));
}
