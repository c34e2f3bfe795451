use starling_topology::{Head, RunId, View};

use super::*;

const RUN: RunId = RunId([1; 32]);
const LAST: u64 = 100;
const STALL: Duration = Duration::from_secs(10);

fn peer(name: u8) -> PeerId {
    PeerId([name; 32])
}

fn view() -> View {
    View::found(RUN, peer(1)).on_branch(7)
}

fn proof_of(step: u64, view: &View) -> Proof {
    let manifest = Digest([u8::try_from(step).expect("few steps"); 32]);
    let head = Head { run: RUN, step, view: view.id(), digest: Digest([2; 32]), manifest };
    Proof { head, view: view.clone(), signatures: Vec::new() }
}

fn proof(step: u64) -> Proof {
    proof_of(step, &view())
}

fn terms() -> SearchConfig {
    let root = Root { branch: 7, generation: view().generation, ..Root::default() };
    SearchConfig {
        root: Some(root),
        even_if_live: false,
        from_forks: false,
        beyond: None,
        last_step: LAST,
        max_stall: STALL,
    }
}

fn at(millis: u64) -> Time {
    Time::ZERO + Duration::from_millis(millis)
}

fn drain(search: &mut Search) -> Vec<Output> {
    let said = std::iter::from_fn(|| search.poll());
    said.filter(|output| !matches!(output, Output::SetTimer(_) | Output::Ask(_))).collect()
}

fn answers(search: &mut Search, name: u8, live: bool, proof: Option<Proof>) {
    search.handle(
        at(1),
        Input::Answered { from: peer(name), live, looks_out: !live, proofs: proof.into_iter().collect() },
    );
}

/// Asks these, and has nothing stable of its own above step `own`.
fn asked(terms: SearchConfig, all: &[(u8, bool, Option<Proof>)], own: Option<u64>) -> (Search, Vec<Output>) {
    let peers: Vec<PeerId> = all.iter().map(|(name, ..)| peer(*name)).collect();
    let mut search = Search::new(terms, &peers, Time::ZERO);
    for (name, live, proof) in all {
        answers(&mut search, *name, *live, proof.clone());
    }
    let said = drain(&mut search);
    if said == [Output::Look] {
        search.handle(at(2), Input::Holds(own));
        let said = drain(&mut search);
        return (search, said);
    }
    (search, said)
}

fn fetch(step: u64, from: &[u8]) -> Output {
    Output::Fetch { proof: proof(step), from: from.iter().map(|name| peer(*name)).collect() }
}

#[test]
fn the_newest_that_counts_is_fetched_from_all_who_hold_it() {
    let (mut other, mut fork) = (view(), view());
    (other.branch, fork.forked) = (8, true);
    let all = [
        (2, false, Some(proof(6))),
        (3, false, Some(proof(9))),
        (4, false, Some(proof(9))),
        (5, false, Some(proof_of(30, &other))),
        (6, false, Some(proof_of(20, &fork))),
    ];
    let (mut search, said) = asked(terms(), &all, Some(5));
    assert_eq!(said, [fetch(9, &[3, 4])]);
    search.handle(at(3), Input::Fetched);
    assert_eq!(drain(&mut search), [Output::Done]);
    search.handle(at(3), Input::Fetched);
    assert_eq!(drain(&mut search), [], "it is over once");
    assert_eq!(asked(terms(), &all, Some(9)).1, [Output::Done], "it has that itself");
    let forks = SearchConfig { from_forks: true, ..terms() };
    assert!(matches!(&asked(forks, &all, None).1[..], [Output::Fetch { proof, .. }] if proof.head.step == 20));
    let any = SearchConfig { root: None, ..terms() };
    assert!(matches!(&asked(any, &all, None).1[..], [Output::Fetch { proof, .. }] if proof.head.step == 30));
}

#[test]
fn where_somebody_is_in_a_view_nothing_is_fetched_and_the_others_have_a_moment_to_say_so() {
    let mut search = Search::new(terms(), &[2, 3, 4].map(peer), Time::ZERO);
    answers(&mut search, 2, true, Some(proof(9)));
    let timers: Vec<Output> = std::iter::from_fn(|| search.poll()).collect();
    assert_eq!(timers.last(), Some(&Output::SetTimer(at(1) + COMPANY_PAUSE)));
    search.handle(at(2), Input::Expired);
    assert!(drain(&mut search).is_empty(), "that was an earlier timer");
    answers(&mut search, 3, false, None);
    search.handle(at(1) + COMPANY_PAUSE, Input::Expired);
    assert_eq!(drain(&mut search), [Output::Done]);
    let told = search.answers().iter().map(|(name, answer)| (*name, answer.live));
    assert_eq!(told.collect::<Vec<_>>(), [(peer(2), true), (peer(3), false)]);
    let anyway = SearchConfig { even_if_live: true, ..terms() };
    assert_eq!(asked(anyway, &[(2, true, Some(proof(9)))], None).1, [fetch(9, &[2])]);
}

#[test]
fn who_does_not_answer_in_time_is_not_waited_for() {
    let mut search = Search::new(terms(), &[2, 3, 4].map(peer), Time::ZERO);
    answers(&mut search, 2, false, Some(proof(4)));
    search.handle(at(2), Input::Unanswered(peer(3)));
    search.handle(at(4_999), Input::Expired);
    assert!(drain(&mut search).is_empty());
    search.handle(at(5_000), Input::Expired);
    assert_eq!(drain(&mut search), [Output::Look]);
    answers(&mut search, 4, true, Some(proof(9)));
    search.handle(at(5_001), Input::Holds(None));
    assert_eq!(drain(&mut search), [fetch(4, &[2])], "what comes later counts no more");
    assert_eq!(drain(&mut Search::new(terms(), &[], Time::ZERO)), [Output::Done]);
}

#[test]
fn what_is_gone_is_followed_by_a_newer_one_and_then_by_older_ones() {
    let all = [(2, false, Some(proof(9))), (3, false, Some(proof(9))), (4, false, Some(proof(6)))];
    let (mut search, said) = asked(terms(), &all, None);
    assert_eq!(said, [fetch(9, &[2, 3])]);
    search.handle(at(3), Input::Missed);
    let said: Vec<Output> = std::iter::from_fn(|| search.poll()).collect();
    assert_eq!(said[..2], [Output::Ask(peer(2)), Output::Ask(peer(3))]);
    answers(&mut search, 2, false, Some(proof(9)));
    assert!(drain(&mut search).is_empty(), "it is no newer");
    answers(&mut search, 3, false, Some(proof(12)));
    assert_eq!(drain(&mut search), [fetch(12, &[3, 2])]);
    search.handle(at(4), Input::Missed);
    answers(&mut search, 2, false, None);
    search.handle(at(5), Input::Unanswered(peer(3)));
    assert_eq!(drain(&mut search), [Output::Lost { step: 12 }, fetch(6, &[4])]);
    search.handle(at(6), Input::Missed);
    search.handle(at(6) + STALL / 2, Input::Expired);
    assert_eq!(drain(&mut search), [Output::Lost { step: 6 }, Output::Done]);
}

#[test]
fn nobody_is_followed_without_end() {
    let (mut search, _) = asked(terms(), &[(2, false, Some(proof(1)))], None);
    let mut fetched = 1;
    for step in 2..40 {
        search.handle(at(step), Input::Missed);
        answers(&mut search, 2, false, Some(proof(step)));
        fetched += drain(&mut search).iter().filter(|output| matches!(output, Output::Fetch { .. })).count();
    }
    assert_eq!(fetched, MAX_FOLLOWED + 1);
}

#[test]
fn keepers_come_first_and_are_no_company() {
    let names = |all: &[u8]| all.iter().map(|name| peer(*name)).collect::<Vec<_>>();
    assert_eq!(sought(peer(1), names(&[3]).into_iter(), names(&[1, 2, 3]).into_iter()), names(&[3, 2]));
    let answer = |live, forked| SearchReply { live, looks_out: !live, stable_step: None, forked, ours: None };
    let of = |all: &[(u8, SearchReply)]| {
        presence(all.iter().map(|(name, answer)| (peer(*name), *answer)), |name| name == peer(3))
    };
    assert_eq!(of(&[]), PresenceStatus::Silent);
    assert_eq!(of(&[(3, answer(false, false))]), PresenceStatus::Silent);
    assert_eq!(of(&[(2, answer(false, true)), (3, answer(false, false))]), PresenceStatus::There);
    assert_eq!(of(&[(2, answer(true, true)), (3, answer(false, false))]), PresenceStatus::Forked);
    assert_eq!(of(&[(2, answer(true, true)), (3, answer(true, false))]), PresenceStatus::Live);
}
