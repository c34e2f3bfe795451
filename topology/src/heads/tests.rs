use proptest::prelude::*;

use super::*;

const RUN: RunId = RunId([1; 32]);

fn peer(name: u8) -> PeerId {
    PeerId([name; 32])
}

fn view(members: &[u8]) -> View {
    View::found(RUN, peer(members[0])).succeed(members.iter().copied().map(peer))
}

/// What a peer signs in these tests: its name, then the step and the digest.
fn signature(name: u8, head: &Head) -> [u8; 64] {
    let mut signature = [name; 64];
    signature[32] = head.digest.0[0];
    signature[33..41].copy_from_slice(&head.step.to_le_bytes());
    signature
}

/// The head of the state `state` after `step` of `view`.
fn head(view: &View, step: u64, state: u8) -> Head {
    Head { run: RUN, step, view: view.id(), digest: Digest([state; 32]), manifest: Digest([!state; 32]) }
}

/// A machine whose driver signs at once.
struct Member {
    name: u8,
    heads: HeadTracker,
}

impl Member {
    fn new(name: u8, view: &View) -> Self {
        let mut member = Self { name, heads: HeadTracker::new(RUN, peer(name)) };
        assert_eq!(member.enter(view), []);
        member
    }

    /// What comes of an input, without the requests to sign, which are fulfilled.
    fn handle(&mut self, input: Input) -> Result<Vec<Output>, Violation> {
        self.heads.handle(input)?;
        let mut outputs = Vec::new();
        while let Some(output) = self.heads.poll() {
            match output {
                Output::Sign(head) => {
                    let signature = signature(self.name, &head);
                    self.heads.handle(Input::Signed { head, signature }).expect("our own");
                }
                other => outputs.push(other),
            }
        }
        Ok(outputs)
    }

    fn enter(&mut self, view: &View) -> Vec<Output> {
        self.enter_from(view, Root::default())
    }

    fn enter_from(&mut self, view: &View, root: Root) -> Vec<Output> {
        self.handle(Input::View(Some((view.clone(), root)))).expect("no peer's fault")
    }

    fn save(&mut self, step: u64, state: u8) -> Vec<Output> {
        let (digest, manifest) = (Digest([state; 32]), Digest([!state; 32]));
        self.handle(Input::Saved { step, lineage: Lineage::NONE, digest, manifest }).expect("no peer's fault")
    }

    fn receive(&mut self, from: u8, head: Head) -> Vec<Output> {
        self.handle(received(from, head)).expect("a correct head")
    }

    fn repeat(&mut self) -> usize {
        self.handle(Input::Repeat).expect("no peer's fault").len()
    }
}

fn received(from: u8, head: Head) -> Input {
    Input::Received { from: peer(from), head, signature: signature(from, &head) }
}

fn announce(name: u8, head: Head) -> Output {
    Output::Announce { head, signature: signature(name, &head) }
}

fn stable(names: &[u8], view: &View, head: Head) -> Output {
    Output::Stable(proof(names, view, head))
}

/// Who has signed a head of `view`.
fn proof(names: &[u8], view: &View, head: Head) -> Proof {
    let signatures = names.iter().map(|name| (peer(*name), signature(*name, &head))).collect();
    Proof { head, view: view.clone(), signatures }
}

#[test]
fn a_member_alone_is_its_own_quorum() {
    let view = View::found(RUN, peer(1));
    let head = head(&view, 10, 5);
    assert_eq!(Member::new(1, &view).save(10, 5), [announce(1, head), stable(&[1], &view, head)]);
}

#[test]
fn a_quorum_makes_a_head_stable_and_the_last_signature_completes_it() {
    let view = view(&[1, 2, 3]);
    let head = head(&view, 10, 5);
    let mut member = Member::new(2, &view);
    assert_eq!(member.save(10, 5), [announce(2, head)]);
    assert_eq!(member.receive(3, head), [stable(&[2, 3], &view, head)]);
    assert_eq!(member.receive(3, head), [], "the same once more");
    assert_eq!(member.receive(1, head), [stable(&[1, 2, 3], &view, head)]);
    assert_eq!(member.save(10, 5), [], "saved once more");
}

#[test]
fn signatures_that_come_first_wait_for_our_own_checkpoint() {
    let view = view(&[1, 2, 3]);
    let head = head(&view, 10, 5);
    let mut member = Member::new(2, &view);
    assert_eq!(member.receive(1, head), []);
    assert_eq!(member.receive(3, head), []);
    assert_eq!(member.save(10, 5), [announce(2, head), stable(&[1, 2, 3], &view, head)]);
}

#[test]
fn others_states_are_told_and_do_not_count() {
    let view = view(&[1, 2, 3]);
    let mut member = Member::new(2, &view);
    let differs = |name| Output::Differs { peer: peer(name), step: 10, ours: Digest([5; 32]), theirs: Digest([6; 32]) };
    assert_eq!(member.receive(1, head(&view, 10, 6)), []);
    assert_eq!(member.save(10, 5), [announce(2, head(&view, 10, 5)), differs(1)]);
    assert_eq!(member.receive(3, head(&view, 10, 6)), [differs(3)]);
}

#[test]
fn who_signs_two_states_is_at_fault() {
    let (view, next) = (view(&[1, 2, 3]), view(&[1, 2]));
    let mut member = Member::new(2, &view);
    member.receive(1, head(&view, 10, 5));
    let violation = member.handle(received(1, head(&view, 10, 6)));
    assert_eq!(violation, Err(Violation::TwoHeads { step: 10 }));
    let foreign = Head { run: RunId([9; 32]), ..head(&view, 10, 5) };
    assert_eq!(member.handle(received(1, foreign)), Err(Violation::OtherRun));
    // In another view the step may have been another one.
    assert_eq!(member.receive(1, head(&next, 10, 6)), []);
    assert_eq!(member.save(10, 5), [announce(2, head(&view, 10, 5))], "neither state of member 1 counts");
}

#[test]
fn strangers_do_not_count() {
    let view = view(&[1, 2, 3]);
    let mut member = Member::new(2, &view);
    assert_eq!(member.receive(9, head(&view, 10, 5)), []);
    assert_eq!(member.save(10, 5), [announce(2, head(&view, 10, 5))]);
    assert_eq!(member.receive(9, head(&view, 10, 5)), []);
}

#[test]
fn what_is_not_stable_is_signed_again_in_the_next_view() {
    let (first, second) = (view(&[1, 2, 3]), view(&[1, 2]));
    let mut member = Member::new(2, &first);
    member.save(10, 5);
    assert_eq!(member.enter(&second), [announce(2, head(&second, 10, 5))]);
    assert_eq!(member.receive(1, head(&first, 10, 5)), [], "of the view before");
    let stable = stable(&[1, 2], &second, head(&second, 10, 5));
    assert_eq!(member.receive(1, head(&second, 10, 5)), [stable]);
    assert_eq!(member.enter(&first), [], "it is stable");
}

#[test]
fn what_the_next_view_does_not_go_on_from_is_not_signed_there() {
    let (first, second) = (view(&[1, 2, 3]), view(&[1, 2]));
    let goes_on_after = |step| Root::new(&second, step, Lineage::NONE);
    let mut member = Member::new(2, &first);
    member.save(10, 5);
    assert_eq!(member.enter_from(&second, goes_on_after(10)), [announce(2, head(&second, 10, 5))], "from that");
    assert_eq!(
        member.enter_from(&first, goes_on_after(7)),
        [],
        "it loads an earlier state, and step 10 will be another"
    );
    assert_eq!(member.receive(1, head(&first, 10, 6)), []);
    assert_eq!(member.repeat(), 0);
    assert_eq!(member.save(10, 6), [announce(2, head(&first, 10, 6)), stable(&[1, 2], &first, head(&first, 10, 6))]);
}

#[test]
fn nothing_is_signed_outside_of_a_view_and_nothing_of_before_after_it() {
    let view = view(&[1, 2, 3]);
    let mut member = Member::new(2, &view);
    member.save(10, 5);
    assert_eq!(member.handle(Input::View(None)), Ok(vec![]));
    assert_eq!(member.save(20, 7), []);
    assert_eq!(member.repeat(), 0);
    assert_eq!(member.enter(&view), [], "it was on its way when the view was left");
    assert_eq!(member.save(20, 8), [announce(2, head(&view, 20, 8))], "one state of the step");
}

#[test]
fn repeats_end_with_the_last_signature_or_after_a_few() {
    let view = view(&[1, 2, 3]);
    let mut member = Member::new(2, &view);
    member.save(10, 5);
    assert_eq!((0..10).map(|_| member.repeat()).sum::<usize>(), MAX_REPEATS as usize);
    member.save(20, 7);
    assert_eq!(member.repeat(), 1);
    member.receive(1, head(&view, 20, 7));
    assert_eq!(member.repeat(), 1, "the third has not signed");
    member.receive(3, head(&view, 20, 7));
    assert_eq!(member.repeat(), 0);
}

#[test]
fn only_the_last_steps_are_kept() {
    let view = view(&[1, 2, 3]);
    let mut member = Member::new(2, &view);
    for step in 1..=20 {
        member.save(step, 5);
        member.receive(1, head(&view, 100 + step, 5));
    }
    assert_eq!(member.heads.own.len(), MAX_STEPS);
    assert_eq!(member.heads.theirs[&peer(1)].len(), MAX_STEPS);
    member.receive(3, head(&view, 20, 5));
    assert_eq!(member.heads.own.keys().collect::<Vec<_>>(), [&20], "nobody goes back behind a stable one");
}

#[test]
fn who_was_not_in_a_view_completes_nothing_of_it() {
    let (before, view) = (view(&[1, 2]), view(&[0, 1, 2]));
    let mut member = Member::new(2, &before);
    member.save(5, 0);
    member.receive(1, head(&before, 5, 0));
    member.handle(Input::View(Some((view, Root::default())))).expect("a view");
    for from in [1, 0] {
        let outputs = member.handle(received(from, head(&before, 5, 0))).expect("it may be late");
        assert!(outputs.iter().all(|output| !matches!(output, Output::Stable(_))), "{outputs:?}");
    }
}

#[derive(Debug, Clone)]
enum Action {
    Enter(usize),
    Save(u64, u8),
    Receive(u8, u64, usize, u8),
    Repeat,
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        1 => (0..4_usize).prop_map(Action::Enter),
        4 => (0..8_u64, 0..2_u8).prop_map(|(step, state)| Action::Save(step, state)),
        8 => (0..6_u8, 0..8_u64, 0..3_usize, 0..2_u8)
            .prop_map(|(from, step, view, state)| Action::Receive(from, step, view, state)),
        1 => Just(Action::Repeat),
    ]
}

proptest! {
    #[test]
    fn heads_have_one_form(step in any::<u64>(), bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let head = Head { step, ..head(&view(&[1, 2]), 0, 3) };
        prop_assert_eq!(Head::decode(&head.encode()), Some(head));
        let behind_magic = [&head.encode()[..8], &bytes].concat();
        for bytes in [&bytes, &behind_magic] {
            let decoded = Head::decode(bytes);
            prop_assert_eq!(decoded.is_some(), bytes.len() == Head::BYTES && bytes[..8] == head.encode()[..8]);
            prop_assert!(decoded.is_none_or(|head| head.encode()[..] == bytes[..]));
        }
    }

    /// Whatever comes in whatever order: memory is bounded, and stable is only what a quorum has signed.
    #[test]
    fn any_sequence_is_bounded_and_only_quorums_count(actions in prop::collection::vec(action(), 0..200)) {
        let views = [view(&[0, 1, 2]), view(&[0, 1, 2, 3, 4]), view(&[1, 2])];
        let mut member = Member::new(2, &views[0]);
        for action in actions {
            let outputs = match action {
                Action::Enter(at) => {
                    member.handle(Input::View(views.get(at).map(|view| (view.clone(), Root::default()))))
                }
                Action::Save(step, state) => Ok(member.save(step, state)),
                Action::Receive(from, step, view, state) => member.handle(received(from, head(&views[view], step, state))),
                Action::Repeat => member.handle(Input::Repeat),
            };
            for output in outputs.unwrap_or_default() {
                if let Output::Stable(proof) = output {
                    prop_assert_eq!(proof.check(RUN, 7), Ok(()));
                    let Proof { head, signatures, .. } = proof;
                    prop_assert!(signatures.iter().all(|(peer, bytes)| *bytes == signature(peer.0[0], &head)));
                }
            }
            prop_assert!(member.heads.own.len() <= MAX_STEPS && member.heads.theirs.len() <= 4);
            prop_assert!(member.heads.theirs.values().all(|heads| heads.len() <= MAX_STEPS));
        }
    }

    /// Members that sign one state for a step each never make two states of it stable.
    #[test]
    fn a_step_has_one_stable_state_in_a_view(states in prop::collection::vec(0..3_u8, 1..9)) {
        let names: Vec<u8> = (0..u8::try_from(states.len()).expect("few")).collect();
        let view = view(&names);
        let mut stable = BTreeSet::new();
        for (name, state) in names.iter().zip(&states) {
            let mut member = Member::new(*name, &view);
            let mut outputs = member.save(10, *state);
            for (other, state) in names.iter().zip(&states).filter(|(other, _)| *other != name) {
                outputs.extend(member.receive(*other, head(&view, 10, *state)));
            }
            stable.extend(outputs.into_iter().filter_map(|output| match output {
                Output::Stable(proof) => Some(proof.head.digest),
                Output::Sign(_) | Output::Announce { .. } | Output::Differs { .. } => None,
            }));
        }
        prop_assert!(stable.len() <= 1);
        let quorum = |state: u8| {
            let signers = names.iter().zip(&states).filter(|(_, other)| **other == state);
            view.has_quorum(&signers.map(|(name, _)| peer(*name)).collect())
        };
        prop_assert_eq!(stable.len() == 1, (0..3).any(quorum));
    }
}

#[test]
fn a_proof_holds_for_one_run_one_view_and_a_quorum() {
    let view = view(&[1, 2, 3]);
    let head = head(&view, 10, 5);
    let sound = proof(&[1, 3], &view, head);
    assert_eq!(sound.check(RUN, 10), Ok(()));
    assert_eq!(sound.check(RunId([9; 32]), 10), Err(Violation::OtherRun));
    assert_eq!(sound.check(RUN, 9), Err(Violation::BeyondEnd { step: 10 }));
    let other = view.succeed([1, 3].map(peer));
    let unordered = Proof { signatures: sound.signatures.iter().rev().copied().collect(), ..sound.clone() };
    for wrong in [
        proof(&[1], &view, head),
        proof(&[1, 9], &view, head),
        proof(&[1, 1], &view, head),
        proof(&[], &view, head),
        proof(&[1, 3], &other, head),
        unordered,
    ] {
        assert_eq!(wrong.check(RUN, 10), Err(Violation::Unproven), "{wrong:?}");
    }
    let elsewhere = View::found(RunId([9; 32]), peer(1));
    let foreign = Head { view: elsewhere.id(), ..head };
    assert_eq!(proof(&[1], &elsewhere, foreign).check(RUN, 10), Err(Violation::Unproven));
}

#[test]
fn what_newcomers_have_signed_is_not_stable_for_that() {
    let view = view(&[1, 2, 3, 4, 5]).with_newcomers([3, 4, 5].map(peer));
    let head = head(&view, 10, 5);
    assert_eq!(proof(&[3, 4, 5], &view, head).check(RUN, 10), Err(Violation::Unproven));
    assert_eq!(proof(&[1], &view, head).check(RUN, 10), Ok(()), "the casting vote of two");
    assert_eq!(proof(&[1, 3, 5], &view, head).check(RUN, 10), Ok(()), "they have it, too");
    assert_eq!(proof(&[2, 3, 4, 5], &view, head).check(RUN, 10), Err(Violation::Unproven));
}
