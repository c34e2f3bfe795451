use super::*;
use crate::id::{PeerId, RunId};
use crate::ledger::split_mix::SplitMix64Generator;
use crate::view::lineage::Lineage;
use crate::vote::certificate::{Certificate, Signer, acceptance};
use crate::vote::proposal::{Ballot, Proposal, ResumePlan};

const RUN: RunId = RunId([1; 32]);
const FOUNDER: PeerId = PeerId([0xf0; 32]);

/// Signs for whoever is asked for: quick, and told apart.
#[derive(Debug)]
struct Keys(PeerId);

fn signature(signer: PeerId, statement: &[u8]) -> [u8; 64] {
    let mut signature = [0; 64];
    blake3::Hasher::new_keyed(&signer.0).update(statement).finalize_xof().fill(&mut signature);
    signature
}

impl Signer for Keys {
    fn sign(&self, statement: &[u8]) -> [u8; 64] {
        signature(self.0, statement)
    }

    fn is_signed(&self, signer: PeerId, statement: &[u8], told: &[u8; 64]) -> bool {
        signature(signer, statement) == *told
    }
}

const NOTARY: Keys = Keys(FOUNDER);

fn peer(name: u16) -> PeerId {
    let mut bytes = [0; 32];
    bytes[..2].copy_from_slice(&name.to_be_bytes());
    PeerId(bytes)
}

fn first(members: &[u16], branch: u64) -> View {
    let alone = View::found(RUN, peer(members[0])).on_branch(branch);
    let mut view = alone.succeed(members.iter().copied().map(peer));
    (view.generation, view.parent) = (alone.generation, None);
    view
}

fn founded(view: &View) -> ViewProof {
    ViewProof::Founded(view.clone(), signature(FOUNDER, &beginning(RUN, view.id())).into())
}

/// The view of these members after `parent`, accepted by `signers`.
fn next(parent: &View, members: &[u16], signers: &[u16]) -> SuccessionProof {
    let resume =
        ResumePlan { step: 0, lineage: Lineage::NONE, holders: Vec::new(), donors: Vec::new(), syncing: Vec::new() };
    let view = parent.succeed(members.iter().copied().map(peer));
    let (reasons, joiners) = (Vec::new(), Vec::new());
    let proposal = Proposal { view, resume, reasons, joiners, promised: 1, of: 1 };
    let ballot = Ballot { attempt: 1, proposer: peer(signers[0]) };
    let statement = acceptance(parent.id(), ballot, &proposal);
    let mut seals: Vec<_> =
        signers.iter().map(|name| (peer(*name), signature(peer(*name), &statement).into())).collect();
    seals.sort_by_key(|(peer, _)| *peer);
    SuccessionProof::to(&proposal, Certificate { ballot, seals })
}

fn knows_nothing() -> AnchorSet {
    AnchorSet::of(RUN, Some(FOUNDER), &ViewHistory::default())
}

fn knows(history: &ViewHistory) -> AnchorSet {
    AnchorSet::of(RUN, Some(FOUNDER), history)
}

fn history(legs: impl IntoIterator<Item = ViewProof>) -> ViewHistory {
    let mut history = ViewHistory::default();
    history.take(legs);
    history
}

/// Walks from `anchors` to `to` by what `history` answers: the search, and how many bytes and signatures that took.
fn walked(anchors: AnchorSet, to: ViewId, history: &ViewHistory) -> (ViewSearch, usize, usize) {
    let mut view_search = ViewSearch::new(anchors, to);
    let (mut bytes, mut signatures, mut way) = (0, 0, ViewSearchStatus::Ask);
    while way == ViewSearchStatus::Ask {
        let page = history.answer(&view_search.question());
        bytes += postcard::to_allocvec(&page).expect("encodes").len();
        assert!(page.iter().map(ViewProof::bytes).sum::<usize>() <= PAGE_BYTES || page.len() == 1);
        let seals = |leg: &ViewProof| match leg {
            ViewProof::Next(link) | ViewProof::Over(_, link) => link.certificate().seals.len(),
            ViewProof::Founded(..) => 1,
            ViewProof::Apart(_) | ViewProof::Back(_) => 0,
        };
        signatures += page.iter().map(seals).sum::<usize>();
        way = view_search.hear(&NOTARY, page);
    }
    (view_search, bytes, signatures)
}

fn leads(anchors: AnchorSet, to: &View, history: &ViewHistory) -> bool {
    walked(anchors, to.id(), history).0.is_there()
}

/// A run of `views` views of eight members, of which one is replaced in eight of a hundred views: one member in a hundred each time.
/// A quorum accepts each.
fn long_run(views: usize) -> (ViewHistory, Vec<View>) {
    let mut members: Vec<u16> = (1..=8).collect();
    let begun = first(&members, 7);
    let (mut kept, mut all, mut random) = (history([founded(&begun)]), vec![begun], SplitMix64Generator::new(5));
    let mut fresh = 8;
    for _ in 1..views {
        let signers = {
            let mut drawn = members.clone();
            (0..3).for_each(|_| _ = drawn.remove(random.below(drawn.len() as u32) as usize));
            drawn
        };
        if random.below(100) < 8 {
            fresh += 1;
            let at = random.below(8) as usize;
            members[at] = fresh;
        }
        let link = next(all.last().expect("there is one"), &members, &signers);
        all.push(link.view.clone());
        kept.take([ViewProof::Next(link)]);
    }
    (kept, all)
}

#[test]
fn ten_thousand_views_are_shown_in_less_than_a_mebibyte() {
    let (kept, all) = long_run(10_000);
    let (view_search, bytes, signatures) = walked(knows_nothing(), all.last().expect("the last").id(), &kept);
    assert!(view_search.is_there());
    assert!(bytes <= 1024 * 1024, "{bytes} bytes");
    // 50 us each.
    assert!(signatures <= 20_000 && kept.bytes() <= MAX_BYTES, "{signatures} signatures, {} bytes", kept.bytes());
    println!(
        "{bytes} bytes, {signatures} signatures, {} legs; {} bytes kept",
        view_search.legs().count(),
        kept.bytes()
    );
    // Whoever knows a later one has less to read, also where it is one over which the others are led.
    for known in [100, 2_000, 5_000, 9_990] {
        let anchors = knows(&history([founded(&all[0])]));
        let mut there = anchors;
        there.admit(&all[known], BranchOrigin::Proven);
        let (view_search, fewer, _) = walked(there, all.last().expect("the last").id(), &kept);
        assert!(view_search.is_there() && fewer <= bytes + PAGE_BYTES, "from view {known}: {fewer} bytes");
    }
    let read = ViewHistory::decode(&kept.encode()).expect("its own bytes");
    assert_eq!((read.encode(), read.bytes()), (kept.encode(), kept.bytes()));
}

#[test]
fn whoever_knows_the_founders_key_alone_is_led_to_any_view() {
    let begun = first(&[1], 7);
    let second = next(&begun, &[1, 2], &[1]);
    let third = next(&second.view, &[2, 3], &[1, 2]);
    let kept = history([founded(&begun), ViewProof::Next(second.clone()), ViewProof::Next(third.clone())]);
    for view in [&begun, &second.view, &third.view] {
        assert!(leads(knows_nothing(), view, &kept));
    }
    let other = AnchorSet::of(RUN, Some(peer(9)), &ViewHistory::default());
    assert!(!leads(other, &third.view, &kept), "it is another's run");
    let elsewhere = AnchorSet::of(RunId([2; 32]), Some(FOUNDER), &ViewHistory::default());
    assert!(!leads(elsewhere, &third.view, &kept));
    // What nobody has signed, or too few.
    let forged = next(&second.view, &[2, 9], &[2]);
    let made_up = history([founded(&begun), ViewProof::Next(second.clone()), ViewProof::Next(forged.clone())]);
    assert!(!leads(knows_nothing(), &forged.view, &made_up));
    let unsigned = history([ViewProof::Founded(begun.clone(), [0; 64].into()), ViewProof::Next(second.clone())]);
    assert!(!leads(knows_nothing(), &second.view, &unsigned));
    let alone = first(&[9], 8);
    assert!(!leads(knows_nothing(), &alone, &history([ViewProof::Apart(alone.clone())])), "who is that?");
    // Where no key says what the run is, the first branch is.
    let any = AnchorSet::of(RUN, None, &ViewHistory::default());
    assert!(leads(any, &alone, &history([ViewProof::Apart(alone.clone())])));
}

#[test]
fn who_knows_a_later_view_begins_there() {
    let begun = first(&[1], 7);
    let second = next(&begun, &[1, 2, 3], &[1]);
    let third = next(&second.view, &[2, 3], &[2, 3]);
    let kept = history([founded(&begun), ViewProof::Next(second.clone()), ViewProof::Next(third.clone())]);
    // The first one has left, and decides something else where it decided alone.
    let mut other = next(&begun, &[1, 9], &[1]);
    other = next(&other.view, &[9], &[1, 9]);
    let before = next(&begun, &[1, 9], &[1]);
    let hostile = history([founded(&begun), ViewProof::Next(before), ViewProof::Next(other.clone())]);
    assert!(leads(knows_nothing(), &other.view, &hostile), "who knows nothing later can't tell");
    assert!(!leads(knows(&kept), &other.view, &hostile));
    // Nor is it led back and on from there.
    let mut view_search = ViewSearch::new(knows(&kept), other.view.id());
    let mut back = vec![ViewProof::Back(second.view.clone()), ViewProof::Back(begun.clone())];
    assert_eq!(view_search.hear(&NOTARY, back.clone()), ViewSearchStatus::Ask);
    back = match hostile.answer(&ViewSearchRequest { known: vec![begun.id()], to: other.view.id() }) {
        legs if legs.len() >= 2 || matches!(legs[..], [ViewProof::Over(..)]) => legs,
        legs => panic!("{legs:?}"),
    };
    assert_eq!(view_search.hear(&NOTARY, back), ViewSearchStatus::Lost);
}

#[test]
fn who_knows_a_later_view_is_led_back_to_one_that_came_before() {
    let begun = first(&[1, 2, 3], 7);
    let second = next(&begun, &[1, 2], &[1, 2]);
    let third = next(&second.view, &[1, 2, 4], &[1, 2]);
    let kept = history([founded(&begun), ViewProof::Next(second.clone()), ViewProof::Next(third.clone())]);
    let anchors = AnchorSet::of(RUN, Some(FOUNDER), &history([ViewProof::Next(third.clone())]));
    let (view_search, ..) = walked(anchors.clone(), begun.id(), &kept);
    assert_eq!(view_search.view(), Some(&begun));
    // What has led there leads others.
    let mut own = history([ViewProof::Next(third.clone())]);
    assert_eq!(own.gap(), Some(second.view.id()));
    own.take(view_search.legs().cloned());
    assert!(leads(anchors, &begun, &own));
    // A member that came later learns what was before.
    let (view_search, ..) = walked(knows_nothing(), second.view.id(), &kept);
    let mut own = history([ViewProof::Next(third.clone())]);
    own.take_before(view_search.legs().cloned().collect());
    assert!(own.gap().is_none() && leads(knows_nothing(), &third.view, &own));
}

#[test]
fn one_is_led_over_views_if_a_quorum_of_what_is_known_has_accepted_the_last() {
    let begun = first(&[1, 2, 3], 7);
    let second = next(&begun, &[1, 2, 4], &[1, 2]);
    let third = next(&second.view, &[1, 2, 5], &[1, 2]);
    let fourth = next(&third.view, &[2, 5, 6], &[2, 5]);
    let kept =
        history([founded(&begun)].into_iter().chain([&second, &third, &fourth].map(|it| ViewProof::Next(it.clone()))));
    let thin = ViewHistory { entries: kept.thinned(), bytes: 0 };
    let (view_search, ..) = walked(knows_nothing(), fourth.view.id(), &thin);
    assert!(matches!(
        view_search.legs().collect::<Vec<_>>()[..],
        [ViewProof::Founded(..), ViewProof::Over(..), ViewProof::Next(_)]
    ));
    // Two of three accept what follows a larger view: no quorum of that has.
    let larger = begun.succeed([1, 2, 3, 4, 5, 6, 7].map(peer));
    let few = next(&larger, &[1, 2], &[1, 2]);
    let mut view_search = ViewSearch::new(knows(&history([founded(&begun)])), few.view.id());
    view_search.hear(&NOTARY, vec![ViewProof::Over(larger, few)]);
    assert!(!view_search.is_there());
}

#[test]
fn branches_begun_alone_are_of_those_who_were_members_and_take_nobody_elses_place() {
    let begun = first(&[1, 2, 3], 7);
    let kept = history([founded(&begun)]);
    let fork = |name: u16, branch: u64| {
        let fork = View::fork(RUN, peer(name), Some((begun.generation, begun.id()))).on_branch(branch);
        (fork.clone(), history([founded(&begun), ViewProof::Apart(fork)]))
    };
    let (own, told) = fork(2, 11);
    let (view_search, ..) = walked(knows(&kept), own.id(), &told);
    let mut anchors = knows(&kept);
    view_search.arrive(&mut anchors);
    assert_eq!(anchors.descent(branch(&own)), Some(BranchOrigin::Apart));
    assert!(leads(knows_nothing(), &own, &told), "also for whoever knows the founder's key alone");
    let (strangers, told) = fork(9, 12);
    assert!(!leads(knows(&kept), &strangers, &told));
    // Who was a member begins one after the other.
    for branch in 20..40 {
        let (own, told) = fork(2, branch);
        walked(anchors.clone(), own.id(), &told).0.arrive(&mut anchors);
    }
    let next_attempt = first(&[5], 50);
    walked(anchors.clone(), next_attempt.id(), &history([founded(&next_attempt)])).0.arrive(&mut anchors);
    let of = |descent: BranchOrigin| anchors.newest.values().filter(|(_, known)| *known == descent).count();
    assert_eq!((of(BranchOrigin::Proven), of(BranchOrigin::Apart)), (2, MAX_APART));
    // It says that its own is one of the founder's, and came first.
    let stolen = View::found(RUN, peer(2)).on_branch(60);
    walked(anchors.clone(), stolen.id(), &history([founded(&begun), ViewProof::Apart(stolen.clone())]))
        .0
        .arrive(&mut anchors);
    let rightful = first(&[6], 60);
    walked(anchors.clone(), rightful.id(), &history([founded(&rightful)])).0.arrive(&mut anchors);
    assert_eq!(anchors.descent(branch(&rightful)), Some(BranchOrigin::Proven));
    assert!(anchors.view(stolen.id()).is_none());
}

#[test]
fn whoever_knows_a_view_that_was_thinned_away_is_led_over_it() {
    let (kept, all) = long_run(6_000);
    let gone = all.iter().position(|view| !kept.contains(view.id())).expect("the earlier ones are thinned");
    let last = all.last().expect("the last");
    let mut anchors = knows_nothing();
    anchors.admit(&all[gone + 3], BranchOrigin::Proven);
    assert!(leads(anchors, last, &kept), "from view {}", gone + 3);
}

#[test]
fn whatever_is_answered_ends_within_bounds() {
    let begun = first(&[1, 2, 3], 7);
    let mut view_search = ViewSearch::new(knows_nothing(), ViewId([9; 32]));
    let again = vec![founded(&begun); MAX_PAGE_LEGS + 1];
    let pages = std::iter::repeat_with(|| view_search.hear(&NOTARY, again.clone()))
        .take_while(|way| *way == ViewSearchStatus::Ask)
        .count();
    assert!(pages < MAX_PAGES);
    assert_eq!(ViewSearch::new(knows_nothing(), ViewId([9; 32])).hear(&NOTARY, Vec::new()), ViewSearchStatus::Lost);
}

#[test]
fn whom_somebody_lets_in_unsigned_begins_nothing_alone() {
    let begun = first(&[1, 2], 7);
    let anchors = knows(&history([founded(&begun)]));
    // Anybody can make up that 1 is alone, and has let 99 in: 1 signs nothing of it.
    let lets_in = first(&[1, 99], 8).with_newcomers([peer(99)]);
    let alone = first(&[99], 9);
    assert!(lets_in.contains(peer(99)) && !lets_in.votes(peer(99)));
    let mut view_search = ViewSearch::new(anchors, alone.id());
    assert_ne!(
        view_search.hear(&NOTARY, vec![ViewProof::Apart(lets_in.clone()), ViewProof::Apart(alone.clone())]),
        ViewSearchStatus::There
    );
    // Nor does that branch lead on beside what it was founded with, for whoever knows nothing.
    let beside = first(&[1], 7);
    let mut view_search = ViewSearch::new(knows_nothing(), beside.id());
    assert_ne!(
        view_search.hear(&NOTARY, vec![founded(&begun), ViewProof::Apart(beside.clone())]),
        ViewSearchStatus::There
    );
    // Who had a vote may go on alone.
    let (forks, own) = (first(&[1], 8), knows(&history([founded(&begun)])));
    assert_eq!(ViewSearch::new(own, forks.id()).hear(&NOTARY, vec![ViewProof::Apart(forks)]), ViewSearchStatus::There);
}

#[test]
fn a_certificate_that_was_checked_replaces_one_that_was_told() {
    let begun = first(&[1], 7);
    let (link, forged) = (next(&begun, &[1, 2], &[1]), next(&begun, &[1, 2], &[2]));
    let mut kept = history([founded(&begun), ViewProof::Next(forged)]);
    assert!(!leads(knows_nothing(), &link.view, &kept));
    kept.take([ViewProof::Next(link.clone())]);
    assert!(leads(knows_nothing(), &link.view, &kept));
    // The same of a beginning that was not signed yet.
    let mut kept = history([ViewProof::Apart(begun.clone())]);
    assert!(!leads(knows_nothing(), &begun, &kept));
    kept.take([founded(&begun)]);
    assert!(leads(knows_nothing(), &begun, &kept));
}

#[test]
fn whoever_was_led_somewhere_leads_those_there_who_know_a_view_on_the_way() {
    let begun = first(&[1], 7);
    let second = next(&begun, &[1, 2, 3], &[1]);
    let third = next(&second.view, &[1, 4], &[1, 2]);
    let kept = history([founded(&begun), ViewProof::Next(second.clone()), ViewProof::Next(third.clone())]);
    let (view_search, ..) = walked(knows_nothing(), third.view.id(), &kept);
    // One was a member of the second one, and died; those whom it finds were led to the third one meanwhile.
    let was_there = knows(&history([founded(&begun), ViewProof::Next(second)]));
    assert!(leads(was_there, &third.view, &history(view_search.legs().cloned())));
}

#[test]
fn one_that_goes_on_alone_is_shown_beside_where_it_was_and_not_where_it_was_not() {
    let begun = first(&[1, 2], 7);
    let (others, own) = (first(&[1], 8), first(&[2], 9));
    // It has heard of another's fork before it forks itself.
    let kept = history([founded(&begun), ViewProof::Apart(others), ViewProof::Apart(own.clone())]);
    assert!(leads(knows_nothing(), &own, &kept));
}
