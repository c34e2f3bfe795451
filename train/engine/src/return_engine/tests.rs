use starling_topology::{Lineage, MarkStatus, Proposal, Reason, ResumePlan, Root, RunId, View};

use super::*;

const STALL: Duration = Duration::from_secs(4);
const TERMS: ReturnConfig = ReturnConfig { last_step: 100, stride: 5, max_stall: STALL };
const JOINS: ReturnOptions = ReturnOptions { joins: true, alone: false, goes_back: false };
const ALONE: ReturnOptions = ReturnOptions { joins: false, alone: true, goes_back: false };
const BACK: ReturnOptions = ReturnOptions { joins: false, alone: false, goes_back: true };
const LAST: DiskSummary = DiskSummary { loadable: Some(100), can_begin: true, stable: Some(100), ended: None };

fn peer(name: u8) -> PeerId {
    PeerId([name; 32])
}

const ME: PeerId = PeerId([1; 32]);

/// The seat of a view that `left` have left after step 17, and that `others` are in.
fn seat(others: &[u8], left: &[u8]) -> Record {
    let view = View::found(RunId([7; 32]), ME).succeed(others.iter().map(|name| peer(*name)).chain([ME]));
    let resume =
        ResumePlan { step: 17, lineage: Lineage::NONE, holders: Vec::new(), donors: Vec::new(), syncing: Vec::new() };
    let reasons = left.iter().map(|name| Reason::Left(peer(*name))).collect();
    let origin = Some(Proposal { view: view.clone(), resume, reasons, joiners: Vec::new(), promised: 1, of: 1 });
    Record::of(view, origin)
}

fn past(seat: Option<Record>, members: &[u8]) -> SavedState {
    SavedState {
        noted: MarkStatus::Nothing,
        me: ME,
        was_here: true,
        seat,
        has_lost_its_seat: false,
        has_lost_its_contacts: false,
        members: members.iter().map(|name| peer(*name)).collect(),
        keepers: vec![peer(9)],
        left: None,
    }
}

fn left(stayed: &[u8]) -> Option<LeaveRecord> {
    Some(LeaveRecord { stayed: stayed.iter().map(|name| peer(*name)).collect(), root: Root::default(), forked: false })
}

fn holds(step: u64) -> DiskSummary {
    DiskSummary { loadable: Some(step), can_begin: true, ..DiskSummary::default() }
}

fn answer(name: u8, live: bool) -> (PeerId, SearchReply) {
    (peer(name), SearchReply { live, looks_out: !live, stable_step: None, forked: false, ours: None })
}

fn at(millis: u64) -> Time {
    Time::ZERO + Duration::from_millis(millis)
}

/// One that a driver executes: these answer each time, and the disk holds this.
struct Driven {
    machine: ReturnEngine,
    now: Time,
    searches: u32,
    looks: u32,
}

impl Driven {
    fn new(past: SavedState, choice: ReturnOptions) -> Self {
        Self { machine: ReturnEngine::new(past, choice, TERMS, Time::ZERO), now: Time::ZERO, searches: 0, looks: 0 }
    }

    fn run(&mut self, answers: impl Fn(u32) -> Vec<(PeerId, SearchReply)>, holdings: DiskSummary) -> Decision {
        loop {
            let input = match self.machine.poll().expect("it is not over") {
                Output::Search { .. } => {
                    self.searches += 1;
                    Input::Searched { answers: answers(self.searches), fetched: false }
                }
                Output::Look { .. } => {
                    self.looks += 1;
                    Input::Holds(holdings)
                }
                Output::SetTimer(at) => {
                    self.now = at;
                    Input::Expired
                }
                Output::Done(outcome) => {
                    assert!(self.machine.poll().is_none());
                    return outcome;
                }
            };
            self.machine.handle(self.now, input);
        }
    }
}

fn outcome(
    past: SavedState,
    choice: ReturnOptions,
    answers: &[(PeerId, SearchReply)],
    holdings: DiskSummary,
) -> Decision {
    Driven::new(past, choice).run(|_| answers.to_vec(), holdings)
}

fn joins(members: &[u8], awaited: &[u8], why: WaitKind) -> Decision {
    let peers = |names: &[u8]| names.iter().map(|name| peer(*name)).collect();
    Decision::Join { members: peers(members), awaited: WaitStatus { peers: peers(awaited), why } }
}

#[test]
fn who_is_new_asks_nobody() {
    let new = |members: &[u8]| SavedState { was_here: false, ..past(None, members) };
    let mut founder = Driven::new(new(&[]), ReturnOptions::default());
    assert_eq!(founder.run(|_| Vec::new(), DiskSummary::default()), Decision::Found);
    let mut joiner = Driven::new(new(&[3, 2]), JOINS);
    assert_eq!(joiner.run(|_| Vec::new(), DiskSummary::default()), joins(&[3, 2], &[3], WaitKind::Live));
    assert_eq!((founder.searches, joiner.searches, joiner.looks), (0, 0, 0));
}

#[test]
fn all_that_are_known_are_asked_keepers_first() {
    let mut machine =
        ReturnEngine::new(past(Some(seat(&[2, 3], &[])), &[2, 3]), ReturnOptions::default(), TERMS, Time::ZERO);
    let Some(Output::Search { peers, terms }) = machine.poll() else { panic!("it asks") };
    assert_eq!(peers, [peer(9), peer(2), peer(3)]);
    assert_eq!((terms.root, terms.even_if_live, terms.from_forks), (Some(Root::default()), false, false));
}

#[test]
fn who_has_a_seat_takes_it_with_what_can_be_loaded() {
    let among = |holdings| outcome(past(Some(seat(&[2], &[])), &[2]), ReturnOptions::default(), &[], holdings);
    assert_eq!(among(holds(10)), Decision::Recover { has_state: true, can_begin: false });
    assert_eq!(
        among(DiskSummary::default()),
        Decision::Recover { has_state: false, can_begin: false },
        "the run had gone past the beginning"
    );
    let alone = past(Some(seat(&[], &[2])), &[2]);
    assert_eq!(outcome(alone, JOINS, &[answer(2, true)], holds(15)), joins(&[2], &[2], WaitKind::Live));
}

#[test]
fn who_may_be_behind_asks_for_as_long_as_a_stall_may_last() {
    let alone = || past(Some(seat(&[], &[2, 3])), &[2, 3]);
    let mut behind = Driven::new(alone(), ReturnOptions::default());
    assert_eq!(behind.run(|_| Vec::new(), holds(10)), Decision::Behind(vec![peer(2), peer(3)]));
    assert_eq!((behind.searches, behind.looks, behind.now), (5, 1, at(4_000)));
    // Each of the two is there once.
    let mut heard = Driven::new(alone(), ReturnOptions::default());
    let one_by_one = |times: u32| vec![answer(if times < 3 { 2 } else { 3 }, false)];
    assert_eq!(heard.run(one_by_one, holds(10)), Decision::Recover { has_state: true, can_begin: false });
    assert_eq!(heard.searches, 3);
    let mut first = Driven::new(alone(), ReturnOptions::default());
    assert_eq!(first.run(|_| Vec::new(), holds(15)), Decision::Recover { has_state: true, can_begin: false });
    assert_eq!(first.searches, 1, "nothing later is stable");
    assert_eq!(outcome(alone(), ALONE, &[], holds(10)), Decision::Fork);
    // Those who left before the rest was lost are back, and wait for this one.
    let others = |live| [answer(2, live), answer(3, live)];
    let alone = |choice, live| outcome(alone(), choice, &others(live), DiskSummary::default());
    let without = Decision::Recover { has_state: false, can_begin: false };
    assert_eq!((alone(ReturnOptions::default(), false), alone(ALONE, false)), (without.clone(), Decision::Fork));
    assert_eq!(alone(ALONE, true), without, "it is alone only where nobody goes on");
}

#[test]
fn what_is_fetched_meanwhile_counts() {
    let mut machine = ReturnEngine::new(past(Some(seat(&[], &[2])), &[2]), ReturnOptions::default(), TERMS, Time::ZERO);
    let mut next = |input: Option<Input>| {
        input.into_iter().for_each(|input| machine.handle(at(0), input));
        machine.poll().expect("it goes on")
    };
    assert!(matches!(next(None), Output::Search { .. }));
    let silent = Input::Searched { answers: Vec::new(), fetched: false };
    assert!(matches!(next(Some(silent)), Output::Look { .. }));
    assert!(matches!(next(Some(Input::Holds(holds(5)))), Output::SetTimer(_)));
    assert!(matches!(next(Some(Input::Expired)), Output::Search { .. }));
    let answers = vec![answer(9, false)];
    assert!(matches!(next(Some(Input::Searched { answers, fetched: true })), Output::Look { .. }));
    let Output::Done(outcome) = next(Some(Input::Holds(holds(15)))) else { panic!("it knows") };
    assert_eq!(outcome, Decision::Recover { has_state: true, can_begin: false }, "what a keeper held is enough");
}

#[test]
fn a_run_that_is_over_is_not_gone_on_with() {
    let silent: &[(PeerId, SearchReply)] = &[];
    let keeper = &[answer(9, false)][..];
    for answers in [silent, keeper] {
        let seated = past(Some(seat(&[2], &[])), &[2]);
        assert_eq!(outcome(seated.clone(), ReturnOptions::default(), answers, LAST), Decision::Over);
        assert_eq!(outcome(seated, ALONE, answers, LAST), Decision::Over);
        assert_eq!(outcome(past(None, &[2]), ReturnOptions::default(), answers, LAST), Decision::Over);
        assert_eq!(outcome(past(None, &[2]), JOINS, answers, LAST), Decision::Over);
    }
    let seated = || past(Some(seat(&[2], &[])), &[2]);
    // One that has finished may still be there; one that has not lacks what this machine holds.
    let there = |stable_step| {
        (peer(2), SearchReply { live: false, looks_out: true, stable_step, forked: false, ours: stable_step })
    };
    assert_eq!(outcome(seated(), ReturnOptions::default(), &[there(Some(100))], LAST), Decision::Over);
    assert_eq!(
        outcome(seated(), ReturnOptions::default(), &[there(Some(95))], LAST),
        Decision::Recover { has_state: true, can_begin: false }
    );
    // A run that has ended early ends with the state that this machine holds, and whoever holds less lacks that.
    let early = DiskSummary { loadable: Some(57), stable: Some(57), ended: Some(57), ..LAST };
    assert_eq!(outcome(seated(), ReturnOptions::default(), silent, early), Decision::Over);
    assert_eq!(outcome(seated(), ReturnOptions::default(), &[there(Some(57))], early), Decision::Over);
    assert_eq!(
        outcome(seated(), ReturnOptions::default(), &[there(Some(50))], early),
        Decision::Recover { has_state: true, can_begin: false }
    );
    let unsigned = DiskSummary { stable: Some(95), ..LAST };
    assert_eq!(
        outcome(seated(), ReturnOptions::default(), silent, unsigned),
        Decision::Recover { has_state: true, can_begin: false }
    );
    // The file is there, and what is in it is not.
    let torn = DiskSummary { loadable: Some(95), can_begin: false, stable: Some(95), ended: None };
    assert_eq!(
        outcome(seated(), ReturnOptions::default(), silent, torn),
        Decision::Recover { has_state: true, can_begin: false }
    );
    assert_eq!(outcome(past(None, &[2]), ReturnOptions::default(), silent, torn), Decision::Unknown);
    assert_eq!(
        outcome(seated(), ReturnOptions::default(), &[answer(2, true)], LAST),
        Decision::Recover { has_state: true, can_begin: false }
    );
    // Who left, and has yet to hear of the end, fetches it from this machine.
    let waits = outcome(past(None, &[2]), ReturnOptions::default(), &[there(Some(95))], LAST);
    assert_eq!(waits, joins(&[2], &[2], WaitKind::Lacking));
    let of_another_view =
        outcome(past(Some(seat(&[3], &[2])), &[2]), ReturnOptions::default(), &[there(Some(95))], LAST);
    assert_eq!(of_another_view, joins(&[2], &[2], WaitKind::Lacking));
    // Its seat is nothing that those could wait for: it stays until none lacks the end.
    let Decision::Join { awaited, .. } = of_another_view else { panic!("it does not stay") };
    let stays = AbsenceReason::Waits { root: Root::default(), forked: false };
    assert_eq!(awaited.apart(&seat(&[3], &[2])), Some(stays));
    // One that has never been let in fetches nothing, and is not waited for.
    let new = [(peer(2), SearchReply { looks_out: false, ..there(None).1 })];
    assert_eq!(outcome(past(None, &[2]), ReturnOptions::default(), &new, LAST), Decision::Over);
    assert_eq!(outcome(past(Some(seat(&[3], &[2])), &[2]), ReturnOptions::default(), &new, LAST), Decision::Over);
    // Nobody can fetch what no quorum has signed; and whoever goes on beside it, or says so, wants nothing of it.
    assert_eq!(outcome(past(None, &[2]), ReturnOptions::default(), &[there(Some(95))], unsigned), Decision::Over);
    for choice in [ReturnOptions::default(), ALONE, ReturnOptions { alone: true, ..JOINS }] {
        assert_eq!(outcome(past(None, &[2]), choice, &[answer(2, true)], LAST), Decision::Over, "{choice:?}");
    }
    // What it holds may be an earlier attempt's.
    let seatless = SavedState { has_lost_its_seat: true, ..past(None, &[2]) };
    assert_eq!(outcome(seatless, ReturnOptions::default(), &[], LAST), Decision::Unknown);
    // By the ticket it comes to those who begin anew.
    assert_eq!(outcome(past(None, &[2]), JOINS, &[answer(2, true)], LAST), joins(&[2], &[2], WaitKind::Live));
    let left = || SavedState { left: left(&[2]), ..past(None, &[2]) };
    assert_eq!(outcome(left(), ReturnOptions::default(), silent, LAST), Decision::Over);
    assert_eq!(
        outcome(left(), ReturnOptions::default(), silent, unsigned),
        joins(&[2], &[2], WaitKind::Stayed),
        "none has signed it"
    );
}

#[test]
fn who_left_waits_for_those_who_stayed() {
    let left = || SavedState { left: left(&[3]), ..past(None, &[2, 3]) };
    let way = |choice, answers: &[_]| outcome(left(), choice, answers, holds(10));
    assert_eq!(way(ReturnOptions::default(), &[]), joins(&[2, 3], &[3], WaitKind::Stayed));
    assert_eq!(way(JOINS, &[answer(3, true)]), joins(&[3, 2], &[3], WaitKind::Live));
    assert_eq!(way(ALONE, &[answer(3, true)]), joins(&[3, 2], &[3], WaitKind::Live));
    assert_eq!(way(ALONE, &[answer(2, false)]), Decision::Fork);
}

#[test]
fn who_has_lost_its_seat_or_whom_it_knows_does_not_begin_anew() {
    let seatless = SavedState { has_lost_its_seat: true, ..past(None, &[2]) };
    assert_eq!(outcome(seatless.clone(), ReturnOptions::default(), &[], holds(10)), Decision::Unknown);
    assert_eq!(outcome(seatless.clone(), JOINS, &[answer(2, false)], holds(10)), joins(&[2], &[2], WaitKind::Known));
    assert_eq!(outcome(seatless, ALONE, &[], holds(10)), Decision::Fork);
    let listless = SavedState { has_lost_its_contacts: true, ..past(None, &[]) };
    assert_eq!(outcome(listless.clone(), ReturnOptions::default(), &[], DiskSummary::default()), Decision::Unknown);
    assert_eq!(outcome(listless, ALONE, &[], DiskSummary::default()), Decision::Fork);
}

#[test]
fn a_step_that_is_named_takes_a_word_where_others_were_there() {
    let both = ReturnOptions { alone: true, ..BACK };
    let way = |past, choice, answers: &[_]| outcome(past, choice, answers, holds(10));
    assert_eq!(way(past(None, &[]), BACK, &[]), Decision::Found);
    assert_eq!(way(past(Some(seat(&[], &[])), &[]), BACK, &[]), Decision::Found);
    assert_eq!(way(past(Some(seat(&[], &[2])), &[2]), BACK, &[]), Decision::OthersBranch);
    assert_eq!(way(past(Some(seat(&[], &[2])), &[2]), both, &[]), Decision::Fork);
    assert_eq!(way(past(Some(seat(&[2], &[])), &[2]), both, &[answer(2, true)]), Decision::OthersBranch);
    assert_eq!(way(past(None, &[2]), both, &[answer(2, true)]), Decision::OthersBranch);
    assert_eq!(outcome(past(Some(seat(&[2], &[])), &[2]), BACK, &[], LAST), Decision::OthersBranch);
}
