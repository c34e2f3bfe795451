use proptest::prelude::*;

use super::*;
use crate::history::ViewHistory;

const RUN: RunId = RunId([1; 32]);
const STEPS: u64 = 1000;

fn peer(name: u8) -> PeerId {
    PeerId([name; 32])
}

fn view(members: &[u8]) -> View {
    View::found(RUN, peer(members[0])).succeed(members.iter().copied().map(peer))
}

/// The head of the state `state` after `step` of `view`.
fn head(view: &View, step: u64, state: u8) -> Head {
    Head { run: RUN, step, view: view.id(), digest: Digest([state; 32]), manifest: name(step, state) }
}

/// The name of a checkpoint.
fn name(step: u64, state: u8) -> Digest {
    let mut name = [!state; 32];
    name[..8].copy_from_slice(&step.to_le_bytes());
    Digest(name)
}

fn proof(names: &[u8], view: &View, head: Head) -> Proof {
    Proof { head, view: view.clone(), signatures: names.iter().map(|name| (peer(*name), [*name; 64])).collect() }
}

fn follower() -> Follower {
    Follower::new(RUN, STEPS, AnchorSet::of(RUN, None, &ViewHistory::default()), BTreeMap::new(), &[])
}

fn handle(follower: &mut Follower, input: Input) -> Result<Vec<Output>, Violation> {
    follower.handle(input)?;
    Ok(std::iter::from_fn(|| follower.poll()).collect())
}

fn tell(follower: &mut Follower, input: Input) -> Vec<Output> {
    handle(follower, input).expect("no peer's fault")
}

fn received(from: u8, head: Head) -> Input {
    Input::Received { from: peer(from), head, signature: [from; 64] }
}

fn holds(checkpoints: &[(u64, u8)]) -> Input {
    Input::Holds(checkpoints.iter().map(|(step, state)| (name(*step, *state), *step)).collect())
}

/// This view is one of the run's; the follower was led there.
fn lead(follower: &mut Follower, view: &View, descent: BranchOrigin) -> Vec<Output> {
    follower.anchors.admit(view, descent);
    let view_search = Some(Box::new(ViewSearch::new(follower.anchors().clone(), view.id())));
    tell(follower, Input::Walked { id: view.id(), view_search })
}

fn fetch(head: Head, from: &[u8]) -> Output {
    Output::Fetch { head, from: from.iter().copied().map(peer).collect() }
}

fn ask(view: &View, from: &[u8]) -> Output {
    Output::Ask { view: view.id(), from: from.iter().copied().map(peer).collect() }
}

#[test]
fn a_newer_head_is_fetched_and_stable_with_a_quorum_of_its_view() {
    let (mut follower, view) = (follower(), view(&[1, 2, 3]));
    let first = head(&view, 10, 5);
    assert_eq!(tell(&mut follower, received(1, first)), [ask(&view, &[1])]);
    assert_eq!(tell(&mut follower, received(1, first)), [], "the same once more");
    assert_eq!(tell(&mut follower, received(9, first)), [], "whose view is it?");
    assert_eq!(lead(&mut follower, &view, BranchOrigin::Proven), [fetch(first, &[1])]);
    assert_eq!(tell(&mut follower, holds(&[(10, 5)])), [], "one of three");
    assert_eq!(tell(&mut follower, received(3, first)), [Output::Stable(proof(&[1, 3], &view, first))]);
    assert_eq!(tell(&mut follower, received(2, first)), [Output::Stable(proof(&[1, 2, 3], &view, first))]);
    assert_eq!(follower.stable_step(), Some(10));
    let older = head(&view, 9, 4);
    assert_eq!(tell(&mut follower, received(1, older)), [], "older than what is stable");
}

#[test]
fn one_at_a_time_and_the_newest_next() {
    let (mut follower, view) = (follower(), view(&[1, 2, 3]));
    tell(&mut follower, received(1, head(&view, 10, 5)));
    lead(&mut follower, &view, BranchOrigin::Proven);
    for step in [20, 40, 30] {
        assert_eq!(tell(&mut follower, received(1, head(&view, step, 5))), []);
    }
    assert_eq!(tell(&mut follower, holds(&[(10, 5)])), [fetch(head(&view, 40, 5), &[1])]);
    assert_eq!(tell(&mut follower, holds(&[(10, 5), (40, 5)])), [], "the others are older");
}

#[test]
fn a_stable_one_comes_before_a_newer_one() {
    let (mut follower, view) = (follower(), view(&[1, 2, 3]));
    tell(&mut follower, received(1, head(&view, 10, 5)));
    lead(&mut follower, &view, BranchOrigin::Proven);
    // Nobody but one member says that the run is there.
    tell(&mut follower, received(1, head(&view, 900, 6)));
    for signer in [2, 3] {
        tell(&mut follower, received(signer, head(&view, 20, 7)));
    }
    let next = tell(&mut follower, Input::Failed(name(10, 5)));
    assert_eq!(next, [fetch(head(&view, 20, 7), &[2, 3])]);
    let outputs = tell(&mut follower, holds(&[(20, 7)]));
    assert_eq!(outputs, [Output::Stable(proof(&[2, 3], &view, head(&view, 20, 7))), fetch(head(&view, 900, 6), &[1])]);
    // What it fetched in vain, or for nothing, keeps it from no stable one.
    tell(&mut follower, holds(&[(20, 7), (900, 6)]));
    tell(&mut follower, received(2, head(&view, 30, 7)));
    let outputs = tell(&mut follower, received(3, head(&view, 30, 7)));
    assert_eq!(outputs, [fetch(head(&view, 30, 7), &[2, 3])]);
}

#[test]
fn what_a_few_alone_have_signed_is_not_fetched() {
    let (mut follower, view) = (follower(), view(&[1, 2, 3, 4, 5]).with_newcomers([5].map(peer)));
    lead(&mut follower, &view, BranchOrigin::Proven);
    let made_up = head(&view, 900, 6);
    assert_eq!(tell(&mut follower, received(1, made_up)), []);
    assert_eq!(tell(&mut follower, received(5, made_up)), [], "it has no vote, and may be anybody");
    let next = head(&view, 20, 7);
    assert_eq!(tell(&mut follower, received(2, next)), []);
    assert_eq!(tell(&mut follower, received(3, next)), [fetch(next, &[2, 3])], "one of these is honest");
}

#[test]
fn what_failed_is_tried_again_when_it_is_time() {
    let (mut follower, view) = (follower(), view(&[1, 2]));
    tell(&mut follower, received(1, head(&view, 10, 5)));
    assert_eq!(tell(&mut follower, Input::Walked { id: view.id(), view_search: None }), []);
    assert_eq!(tell(&mut follower, received(2, head(&view, 10, 5))), []);
    assert_eq!(tell(&mut follower, Input::Retry), [ask(&view, &[1, 2])]);
    let fetch = fetch(head(&view, 10, 5), &[1, 2]);
    assert_eq!(lead(&mut follower, &view, BranchOrigin::Proven), std::slice::from_ref(&fetch));
    assert_eq!(tell(&mut follower, Input::Failed(name(10, 5))), []);
    assert_eq!(tell(&mut follower, Input::Retry), [fetch]);
}

#[test]
fn a_proof_is_enough_to_fetch_and_to_trust_if_its_view_is_the_runs() {
    let (mut follower, view) = (follower(), view(&[1, 2, 3]));
    let head = head(&view, 10, 5);
    let shown = Input::Proven { from: peer(8), proof: proof(&[1, 2], &view, head) };
    assert_eq!(tell(&mut follower, shown.clone()), []);
    lead(&mut follower, &view, BranchOrigin::Proven);
    assert_eq!(tell(&mut follower, shown.clone()), [fetch(head, &[1, 2, 8])]);
    assert_eq!(tell(&mut follower, shown), []);
    assert_eq!(tell(&mut follower, holds(&[(10, 5)])), [Output::Stable(proof(&[1, 2], &view, head))]);
    // Started again, it knows.
    let (stable, anchors) = (proof(&[1, 2], &view, head), follower.anchors().clone());
    let mut again =
        Follower::new(RUN, STEPS, anchors, BTreeMap::from([(head.manifest, 10)]), std::slice::from_ref(&stable));
    assert_eq!(tell(&mut again, Input::Proven { from: peer(8), proof: stable }), []);
}

#[test]
fn a_stable_checkpoint_that_has_gone_is_fetched_again() {
    let (mut follower, view) = (follower(), view(&[1, 2, 3]));
    let shown = Input::Proven { from: peer(8), proof: proof(&[1, 2], &view, head(&view, 10, 5)) };
    lead(&mut follower, &view, BranchOrigin::Proven);
    tell(&mut follower, shown.clone());
    tell(&mut follower, holds(&[(10, 5)]));
    assert_eq!(tell(&mut follower, holds(&[])), [fetch(head(&view, 10, 5), &[1, 2, 8])]);
    assert_eq!(follower.stable_step(), None);
}

#[test]
fn a_checkpoint_that_has_gone_is_fetched_again_if_it_is_stable() {
    let (mut follower, view) = (follower(), view(&[1, 2, 3]));
    tell(&mut follower, received(1, head(&view, 10, 5)));
    lead(&mut follower, &view, BranchOrigin::Proven);
    tell(&mut follower, holds(&[(10, 5)]));
    tell(&mut follower, received(1, head(&view, 20, 5)));
    tell(&mut follower, holds(&[(20, 5)]));
    let outputs = tell(&mut follower, received(2, head(&view, 10, 5)));
    assert_eq!(outputs, [fetch(head(&view, 10, 5), &[1, 2])]);
}

#[test]
fn what_no_correct_peer_says_is_refused_and_changes_nothing() {
    let (mut follower, view) = (follower(), view(&[1, 2, 3]));
    let first = head(&view, 10, 5);
    tell(&mut follower, received(1, first));
    let foreign = Head { run: RunId([9; 32]), ..first };
    assert_eq!(handle(&mut follower, received(2, foreign)), Err(Violation::OtherRun));
    let beyond = head(&view, STEPS + 1, 5);
    assert_eq!(handle(&mut follower, received(2, beyond)), Err(Violation::BeyondEnd { step: STEPS + 1 }));
    let second = head(&view, 10, 6);
    assert_eq!(handle(&mut follower, received(1, second)), Err(Violation::TwoHeads { step: 10 }));
    let alone = Input::Proven { from: peer(1), proof: proof(&[1], &view, first) };
    assert_eq!(handle(&mut follower, alone), Err(Violation::Unproven));
    // The way to another view.
    let other = self::view(&[1]);
    follower.anchors.admit(&other, BranchOrigin::Proven);
    let view_search = Some(Box::new(ViewSearch::new(follower.anchors().clone(), other.id())));
    assert_eq!(tell(&mut follower, Input::Walked { id: view.id(), view_search }), []);
    assert_eq!(tell(&mut follower, holds(&[(10, 5)])), []);
    assert_eq!(follower.stable_step(), None);
}

#[test]
fn another_digest_under_the_same_name_does_not_count() {
    let (mut follower, view) = (follower(), view(&[1, 2, 3]));
    let first = head(&view, 10, 5);
    let other = Head { digest: Digest([9; 32]), ..first };
    tell(&mut follower, received(1, other));
    lead(&mut follower, &view, BranchOrigin::Proven);
    tell(&mut follower, holds(&[(10, 5)]));
    assert_eq!(tell(&mut follower, received(2, first)), []);
    assert_eq!(tell(&mut follower, received(3, first)), [Output::Stable(proof(&[2, 3], &view, first))]);
}

proptest! {
    /// Whatever comes in whatever order: memory is bounded, and stable is only what is held and a quorum has signed.
    #[test]
    fn any_sequence_is_bounded_and_only_quorums_count(
        actions in prop::collection::vec((0..6_u8, 0..8_u8, 0..8_u64, 0..14_usize, 0..2_u8), 0..200),
    ) {
        let views: Vec<View> = (2..16).map(|last| view(&[0, 1, last])).collect();
        let mut follower = follower();
        let (mut held, mut fetching, mut asked) = (BTreeMap::new(), None, BTreeSet::new());
        for (kind, from, step, at, state) in actions {
            let view = &views[at];
            let input = match kind {
                0 | 1 => received(from, head(view, step, state)),
                2 => Input::Proven { from: peer(from), proof: proof(&[0, 1], view, head(view, step, state)) },
                3 if state == 0 => {
                    follower.anchors.admit(view, BranchOrigin::Proven);
                    let view_search = Some(Box::new(ViewSearch::new(follower.anchors().clone(), view.id())));
                    Input::Walked { id: view.id(), view_search }
                }
                3 => Input::Walked { id: view.id(), view_search: None },
                4 => Input::Retry,
                _ => match fetching.take() {
                    Some(head @ Head { manifest, .. }) if state == 0 => {
                        held.insert(manifest, head.step);
                        Input::Holds(held.clone())
                    }
                    Some(Head { manifest, .. }) => Input::Failed(manifest),
                    None => Input::Retry,
                },
            };
            if let Input::Walked { id, .. } = &input {
                asked.remove(id);
            }
            for output in handle(&mut follower, input).unwrap_or_default() {
                match output {
                    Output::Fetch { head, from } => {
                        prop_assert!(fetching.replace(head).is_none(), "two fetches");
                        prop_assert!(!from.is_empty() && !held.contains_key(&head.manifest));
                    }
                    Output::Ask { view, from } => {
                        prop_assert!(!from.is_empty() && asked.insert(view), "asked twice");
                    }
                    Output::Stable(proof) => {
                        prop_assert_eq!(proof.check(RUN, STEPS), Ok(()));
                        prop_assert!(held.contains_key(&proof.head.manifest));
                    }
                }
            }
            prop_assert!(follower.signed.len() <= 8 && follower.signed.values().all(|heads| heads.len() <= MAX_STEPS));
            prop_assert!(follower.views.len() <= MAX_VIEWS && asked.len() <= MAX_ASKED);
        }
    }
}

#[test]
fn a_fork_that_is_further_keeps_nobody_from_the_runs_own() {
    let (mut follower, view) = (follower(), view(&[1, 2, 3]));
    let other_attempt = view.clone().on_branch(7);
    let mut fork = View::found(RUN, peer(4));
    fork.forked = true;
    lead(&mut follower, &view, BranchOrigin::Proven);
    lead(&mut follower, &other_attempt, BranchOrigin::Proven);
    lead(&mut follower, &fork, BranchOrigin::Apart);
    let end = head(&fork, STEPS, 9);
    assert_eq!(
        tell(&mut follower, Input::Proven { from: peer(4), proof: proof(&[4], &fork, end) }),
        [fetch(end, &[4])]
    );
    assert_eq!(tell(&mut follower, holds(&[(STEPS, 9)])), [Output::Stable(proof(&[4], &fork, end))]);
    // Behind that, and of another attempt.
    for (view, step, state) in [(&view, 10, 5), (&view, STEPS, 5), (&other_attempt, 20, 6)] {
        let head = head(view, step, state);
        let shown = proof(&[1, 2], view, head);
        assert_eq!(
            tell(&mut follower, Input::Proven { from: peer(1), proof: shown.clone() }),
            [fetch(head, &[1, 2])],
            "{step} of {state}"
        );
        let held = [(STEPS, 9), (10, 5), (STEPS, 5), (20, 6)];
        let at = held.iter().position(|one| *one == (step, state)).expect("one of them");
        assert_eq!(tell(&mut follower, holds(&held[..=at])), [Output::Stable(shown)]);
    }
}

/// What comes of a stable state of a branch that one peer says that it is in, if its view was led to.
fn is_kept(follower: &mut Follower, branch: u64, descent: Option<BranchOrigin>, held: &mut Vec<(u64, u8)>) -> bool {
    let view = View::found(RUN, peer(4)).on_branch(branch);
    descent.map(|descent| lead(follower, &view, descent));
    let state = branch as u8;
    let head = head(&view, 30, state);
    tell(follower, received(4, head));
    tell(follower, Input::Proven { from: peer(4), proof: proof(&[4], &view, head) });
    if follower.fetching.is_none() {
        return false;
    }
    held.push((30, state));
    tell(follower, holds(held)) == [Output::Stable(proof(&[4], &view, head))]
}

#[test]
fn branches_that_somebody_begins_or_makes_up_keep_nobody_from_the_founders() {
    let (mut follower, mut held) = (follower(), Vec::new());
    let is_kept = &mut |branch, descent| is_kept(&mut follower, branch, descent, &mut held);
    assert!((10..20).all(|branch| !is_kept(branch, None)), "made up");
    assert_eq!((30..50).filter(|branch| is_kept(*branch, Some(BranchOrigin::Apart))).count(), MAX_APART);
    assert_eq!((50..60).filter(|branch| is_kept(*branch, Some(BranchOrigin::Proven))).count(), MAX_PROVEN);
}

#[test]
fn made_up_heads_push_out_none_of_members_and_each_other_soon() {
    let (mut follower, view) = (follower(), view(&[1, 2, 3]));
    lead(&mut follower, &view, BranchOrigin::Proven);
    tell(&mut follower, received(1, head(&view, 10, 5)));
    for number in 0..4_u16 * MAX_STRANGERS as u16 {
        let mut name = [7; 32];
        name[..2].copy_from_slice(&number.to_le_bytes());
        let (from, made_up) = (PeerId(name), View::found(RUN, PeerId(name)));
        let head = head(&made_up, STEPS, 8);
        let outputs = tell(&mut follower, Input::Received { from, head, signature: [8; 64] });
        assert!(outputs.iter().all(|output| matches!(output, Output::Ask { .. })), "nothing is fetched: {outputs:?}");
        if number.is_multiple_of(5) {
            tell(&mut follower, Input::Walked { id: made_up.id(), view_search: None });
        }
    }
    assert!(follower.signed.len() <= MAX_STRANGERS + 3 && follower.asked.len() <= MAX_ASKED);
    // What a member says of a view that is new is asked before all that strangers say.
    let next = view.succeed([1, 2].map(peer));
    for asked in follower.asked.clone() {
        tell(&mut follower, Input::Walked { id: asked, view_search: None });
    }
    let outputs = tell(&mut follower, received(1, head(&next, 20, 5)));
    let other = follower.asked.iter().copied().find(|asked| *asked != next.id()).expect("others are asked too");
    tell(&mut follower, Input::Walked { id: other, view_search: None });
    assert!(follower.asked.contains(&next.id()), "{outputs:?}");
    assert!(follower.signed.contains_key(&peer(1)));
}
