//! Entering a view: what a member fetches before it takes steps, or while others do.

use std::collections::BTreeSet;

use starling_topology::{
    CatchUpAction, Generation, HoldPosition, Lineage, MemberResumePlan, PeerId, Progress, Reason, View,
};

use crate::{SnapshotStore, StepEngine, StepResult};

/// What the driver does when its member has entered a view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Nothing: steps run, from the state that this member has.
    GoOn,
    /// Steps run, from the initial state, which is the same everywhere: say [`starling_topology::Input::Synced`].
    GoOnFromInitial,
    /// Fetch a result from these by a [`ResultDownload`](crate::ResultDownload), for [`EntryState::fetched`]. Steps wait for it.
    FetchResult {
        /// What to hand it over with.
        number: u64,
        /// The step that it is of.
        step: u64,
        /// Its lineage: of the view that reduced it.
        lineage: Lineage,
        /// Who has it, or will.
        from: Vec<PeerId>,
    },
    /// Nothing: the result is on its way already. Steps wait for it.
    Wait,
    /// Fetch a state by a [`Download`](crate::Download), for [`EntryState::arrived`]. Steps run meanwhile: this member contributes nothing to them
    /// ([`StepEngine::take_part`]).
    FetchState {
        /// What to hand it over with.
        number: u64,
        /// The generation of the view that needs it.
        generation: Generation,
        /// The step that it is after.
        step: u64,
        /// Its lineage.
        lineage: Lineage,
        /// Who has it, or will.
        from: Vec<PeerId>,
    },
    /// None of those who were asked for the result gave it, for this reason: say [`starling_topology::Input::Withheld`].
    Withheld(String),
    /// This member can't go on in this view, for this reason: say [`starling_topology::Input::Unable`].
    Unable(String),
}

/// Where a member stands on its way into a view.
#[derive(Debug)]
pub struct EntryState {
    me: PeerId,
    /// The members that were downloading the state when the newest view was resumed.
    syncing: BTreeSet<PeerId>,
    /// A result on its way: the steps of this view begin when it is here.
    fetch: Option<Fetch>,
    /// Whether the state is to be kept for joiners that this view, or one before that this member stood still in, took in.
    owes_snapshot: bool,
    /// The number of the newest fetch of a result. An older one's outcome may still be on its way.
    fetches: u64,
    /// The number of the state on its way.
    download: Option<u64>,
}

#[derive(Debug)]
struct Fetch {
    number: u64,
    step: u64,
    lineage: Lineage,
    from: Vec<PeerId>,
    view: View,
    /// Whether the steps are held: what comes now would move this member past where it says that it stands, and is put aside.
    is_held: bool,
}

impl EntryState {
    /// Of a member that is in no view.
    pub fn new(me: PeerId) -> Self {
        Self { me, syncing: BTreeSet::new(), fetch: None, owes_snapshot: false, fetches: 0, download: None }
    }

    /// Holds the steps, as [`StepEngine::hold`].
    pub fn hold<R: StepResult, S>(
        &mut self,
        steps: &mut StepEngine<R, S>,
        hold: HoldPosition,
        is_whole: bool,
    ) -> Option<Progress> {
        self.fetch.iter_mut().for_each(|fetch| fetch.is_held = true);
        steps.hold(hold, is_whole)
    }

    /// Goes on in a view, as far as it goes by itself.
    pub fn enter<R: StepResult, S, T: Clone>(
        &mut self,
        steps: &mut StepEngine<R, S>,
        snapshots: &mut SnapshotStore<T>,
        resumption: &MemberResumePlan,
    ) -> Action {
        let MemberResumePlan { view, step, lineage, catch_up, syncing } = resumption;
        let stands = steps.progress();
        let syncing: BTreeSet<PeerId> = syncing.iter().copied().collect();
        let is_new = syncing.difference(&self.syncing).next().is_some();
        let is_owed = std::mem::take(&mut self.owes_snapshot) && !syncing.is_empty();
        let snapshot = (is_new || is_owed) && !syncing.contains(&self.me);
        if snapshot {
            snapshots.expect(*step);
        } else if syncing.is_empty() {
            snapshots.clear();
        }
        snapshots.enter(view.generation);
        self.syncing = syncing;
        let (fetch, aside) = (self.fetch.take(), steps.take_aside());
        match catch_up {
            // It was given up while this view was on its way, and nobody has heard of that.
            CatchUpAction::Current if steps.lacks_state() && self.download.is_none() => {
                Action::Unable("the state can't be had any more".to_owned())
            }
            CatchUpAction::Current if (stands.step, stands.lineage) == (*step, *lineage) => {
                let begins = *step == 0 && steps.is_initial() && !stands.has_state;
                if begins {
                    steps.draw_initial();
                }
                steps.open(view, snapshot);
                if begins { Action::GoOnFromInitial } else { Action::GoOn }
            }
            CatchUpAction::Current => Action::Unable("this peer does not stand where the view goes on".to_owned()),
            // View upon view may come before it is here: what was fetched for an older one is what this one needs.
            CatchUpAction::Result { .. }
                if aside.is_some_and(|it| is_it(&it, *step, *lineage) && steps.deliver(it).is_ok()) =>
            {
                steps.open(view, snapshot);
                Action::GoOn
            }
            CatchUpAction::Result { from } => {
                let (step, lineage, from) = (*step, *lineage, from.clone());
                let is_same = |it: &Fetch| (it.step, it.lineage) == (step, lineage) && it.from == from;
                let under_way = fetch.filter(is_same).map(|fetch| fetch.number);
                self.fetches += u64::from(under_way.is_none());
                let number = under_way.unwrap_or(self.fetches);
                let (view, holders) = (view.clone(), from.clone());
                self.owes_snapshot = snapshot;
                self.fetch = Some(Fetch { number, step, lineage, from: holders, view, is_held: false });
                if under_way.is_some() { Action::Wait } else { Action::FetchResult { number, step, lineage, from } }
            }
            CatchUpAction::State { .. } if *step == 0 && steps.is_initial() => {
                steps.draw_initial();
                steps.open(view, snapshot);
                Action::GoOnFromInitial
            }
            CatchUpAction::State { from } => {
                let number = steps.sync(*step, *lineage);
                self.download = Some(number);
                steps.open(view, false);
                let (generation, step, lineage, from) = (view.generation, *step, *lineage, from.clone());
                Action::FetchState { number, generation, step, lineage, from }
            }
        }
    }

    /// The result that was fetched as `number` is here, or nobody handed it out. `None` if nobody waits for it now.
    pub fn fetched<R: StepResult, S>(
        &mut self,
        steps: &mut StepEngine<R, S>,
        number: u64,
        result: Result<R, String>,
    ) -> Option<Action> {
        let fetch = self.fetch.take_if(|fetch| fetch.number == number)?;
        if fetch.is_held {
            result.into_iter().for_each(|result| steps.put_aside(result));
            return None;
        }
        let delivered = result.and_then(|result| {
            let not_next = |result: R| format!("that of step {} is not the next one here", result.step());
            steps.deliver(result).map(drop).map_err(not_next)
        });
        Some(match delivered {
            Ok(()) => {
                steps.open(&fetch.view, std::mem::take(&mut self.owes_snapshot));
                Action::GoOn
            }
            Err(reason) => Action::Withheld(reason),
        })
    }

    /// The state that was fetched as `number` is here, or nobody handed it out. `None` if nobody waits for it any more.
    pub fn arrived<R: StepResult, S>(
        &mut self,
        steps: &mut StepEngine<R, S>,
        number: u64,
        state: Result<S, String>,
    ) -> Option<Action> {
        self.download.take_if(|download| *download == number)?;
        Some(match state {
            Ok(state) => {
                steps.arrive(number, state);
                Action::GoOn
            }
            Err(reason) => Action::Unable(format!("the state can't be had ({reason})")),
        })
    }

    /// This member is in no view any more.
    pub fn leave<R: StepResult, S>(&mut self, steps: &mut StepEngine<R, S>) {
        steps.close();
        (self.fetch, self.download, self.owes_snapshot) = (None, None, false);
        self.syncing.clear();
    }

    /// A view was installed, for these reasons. Whoever is gone needs the state anew if it comes back, also where the others
    /// waited and resumed no view without it.
    pub fn changed(&mut self, reasons: &[Reason]) {
        for reason in reasons {
            if let Reason::Lost { peer, .. } | Reason::Left(peer) | Reason::Restarted(peer) = reason {
                self.syncing.remove(peer);
            }
        }
    }

    /// Whether this member waits for a result.
    pub fn is_waiting(&self) -> bool {
        self.fetch.as_ref().is_some_and(|fetch| !fetch.is_held)
    }

    /// The number of the state on its way, if one is.
    pub fn download(&self) -> Option<u64> {
        self.download
    }
}

/// Whether `result` is that of `step`, of this lineage.
fn is_it<R: StepResult>(result: &R, step: u64, lineage: Lineage) -> bool {
    (result.step(), result.lineage()) == (step, lineage)
}

#[cfg(test)]
mod tests {
    use starling_topology::{RunId, ViewId};

    use super::*;

    #[derive(Debug, Clone, PartialEq, Eq)]
    struct Of(u64);

    impl StepResult for Of {
        fn step(&self) -> u64 {
            self.0
        }

        fn lineage(&self) -> Lineage {
            LINEAGE
        }

        fn after(&self) -> Lineage {
            LINEAGE
        }

        fn bytes(&self) -> usize {
            0
        }

        fn is_from_all(&self) -> bool {
            true
        }
    }

    const ME: PeerId = PeerId([1; 32]);
    const OTHER: PeerId = PeerId([2; 32]);
    const LINEAGE: Lineage = Lineage { view: ViewId([8; 32]), ..Lineage::NONE };

    struct Member {
        steps: StepEngine<Of, u64>,
        entry: EntryState,
        snapshots: SnapshotStore<u64>,
        view: View,
    }

    impl Member {
        fn after(step: u64) -> Self {
            let view = View::found(RunId([1; 32]), ME).succeed([ME, OTHER]);
            let lineage = if step == 0 { Lineage::NONE } else { LINEAGE };
            let (steps, snapshots) = (StepEngine::new(step, lineage, 9), SnapshotStore::default());
            Self { steps, entry: EntryState::new(ME), snapshots, view }
        }

        fn enter(&mut self, step: u64, catch_up: CatchUpAction, syncing: &[PeerId]) -> Action {
            let lineage = if step == 0 { Lineage::NONE } else { LINEAGE };
            let (view, syncing) = (self.view.clone(), syncing.to_vec());
            let resumption = MemberResumePlan { view, step, lineage, catch_up, syncing };
            self.entry.enter(&mut self.steps, &mut self.snapshots, &resumption)
        }

        fn is_open(&self) -> bool {
            self.steps.gate().last.is_none()
        }
    }

    #[test]
    fn a_member_goes_on_only_from_where_it_stands() {
        let mut member = Member::after(3);
        assert_eq!((member.enter(3, CatchUpAction::Current, &[]), member.is_open()), (Action::GoOn, true));
        let mut member = Member::after(3);
        assert!(matches!(member.enter(4, CatchUpAction::Current, &[]), Action::Unable(_)) && !member.is_open());
        let mut member = Member::after(3);
        member.steps = StepEngine::new(3, Lineage { branch: 7, ..LINEAGE }, 9);
        assert!(
            matches!(member.enter(3, CatchUpAction::Current, &[]), Action::Unable(_)) && !member.is_open(),
            "another state"
        );
    }

    #[test]
    fn steps_wait_for_a_result_and_a_hold_puts_it_aside() {
        let mut member = Member::after(3);
        let asked = member.enter(4, CatchUpAction::Result { from: vec![OTHER] }, &[]);
        assert_eq!(asked, Action::FetchResult { number: 1, step: 4, lineage: LINEAGE, from: vec![OTHER] });
        assert!(!member.is_open() && member.entry.is_waiting());
        let Member { steps, entry, .. } = &mut member;
        assert_eq!(entry.fetched(steps, 2, Ok(Of(4))), None, "of another fetch");
        assert_eq!(entry.fetched(steps, 1, Ok(Of(4))), Some(Action::GoOn));
        assert!(member.is_open() && member.steps.progress().step == 4);

        let mut member = Member::after(3);
        member.enter(4, CatchUpAction::Result { from: vec![OTHER] }, &[]);
        let Member { steps, entry, .. } = &mut member;
        assert_eq!(entry.hold(steps, HoldPosition::Now, true).map(|held| held.step), Some(3));
        assert_eq!(entry.fetched(steps, 1, Ok(Of(4))), None, "it would move past where it says that it stands");
        assert_eq!(steps.progress().step, 3);
        assert_eq!(
            member.enter(4, CatchUpAction::Result { from: vec![OTHER] }, &[]),
            Action::GoOn,
            "it is here already"
        );
        assert!(member.is_open() && member.steps.progress().step == 4);

        let mut member = Member::after(3);
        member.enter(4, CatchUpAction::Result { from: vec![OTHER] }, &[]);
        member.entry.hold(&mut member.steps, HoldPosition::Now, true);
        assert_eq!(member.enter(4, CatchUpAction::Result { from: vec![OTHER] }, &[]), Action::Wait, "it is on its way");
        member.entry.hold(&mut member.steps, HoldPosition::Now, true);
        let others = CatchUpAction::Result { from: vec![ME, OTHER] };
        assert!(matches!(member.enter(4, others, &[]), Action::FetchResult { number: 2, .. }), "from others");
        let Member { steps, entry, .. } = &mut member;
        assert_eq!(entry.fetched(steps, 1, Ok(Of(4))), None);
        assert_eq!(entry.fetched(steps, 2, Ok(Of(4))), Some(Action::GoOn));

        let mut member = Member::after(3);
        member.enter(4, CatchUpAction::Result { from: vec![OTHER] }, &[]);
        let Member { steps, entry, .. } = &mut member;
        let withheld = entry.fetched(steps, 1, Ok(Of(5)));
        assert!(matches!(withheld, Some(Action::Withheld(_))), "not the next one");
        let held = entry.hold(steps, HoldPosition::Now, true);
        assert_eq!(held.map(|held| (held.step, held.has_state)), Some((3, true)), "it stays where it is");
        assert!(!member.is_open());
    }

    #[test]
    fn steps_run_while_the_state_is_on_its_way() {
        let mut member = Member::after(0);
        let asked = member.enter(7, CatchUpAction::State { from: vec![OTHER] }, &[ME]);
        let generation = member.view.generation;
        assert_eq!(asked, Action::FetchState { number: 1, generation, step: 7, lineage: LINEAGE, from: vec![OTHER] });
        assert!(member.is_open() && !member.steps.progress().has_state && member.snapshots.is_empty());
        let Member { steps, entry, .. } = &mut member;
        assert_eq!(entry.arrived(steps, 1, Ok(7)), Some(Action::GoOn));
        assert_eq!(entry.arrived(steps, 1, Ok(7)), None, "once");
        member.steps.hold(HoldPosition::Now, true);
        assert_eq!(member.enter(7, CatchUpAction::Current, &[ME]), Action::GoOn, "it has it");
    }

    #[test]
    fn who_has_given_up_the_state_does_not_go_on_as_if_it_came() {
        let mut member = Member::after(0);
        member.enter(7, CatchUpAction::State { from: vec![OTHER] }, &[ME]);
        member.steps.hold(HoldPosition::Now, true);
        assert_eq!(member.enter(7, CatchUpAction::Current, &[ME]), Action::GoOn, "it is still on its way");
        let Member { steps, entry, .. } = &mut member;
        assert!(matches!(entry.arrived(steps, 1, Err("gone".into())), Some(Action::Unable(_))));
        member.steps.hold(HoldPosition::Now, true);
        assert!(matches!(member.enter(7, CatchUpAction::Current, &[ME]), Action::Unable(_)));
    }

    #[test]
    fn the_initial_state_is_drawn_not_fetched() {
        let mut member = Member::after(0);
        member.steps = StepEngine::without_state(9);
        assert_eq!(member.enter(0, CatchUpAction::State { from: vec![OTHER] }, &[ME]), Action::GoOnFromInitial);
        assert!(member.steps.progress().has_state);

        let mut member = Member::after(0);
        member.steps = StepEngine::without_state(9);
        assert_eq!(member.enter(0, CatchUpAction::Current, &[]), Action::GoOnFromInitial, "nobody else holds any");
        assert!(member.steps.progress().has_state);
    }

    #[test]
    fn a_snapshot_is_kept_for_those_who_begin_to_sync() {
        let mut member = Member::after(3);
        member.enter(3, CatchUpAction::Current, &[OTHER]);
        assert_eq!(member.snapshots.len(), 1);
        member.steps.hold(HoldPosition::Now, true);
        member.enter(3, CatchUpAction::Current, &[OTHER]);
        assert_eq!(member.snapshots.len(), 1, "it is on its way to that one already");
        member.entry.changed(&[Reason::Left(OTHER)]);
        member.steps.hold(HoldPosition::Now, true);
        member.steps.deliver(Of(4)).expect("the next one");
        member.enter(4, CatchUpAction::Current, &[OTHER]);
        assert_eq!(member.snapshots.len(), 2, "it came back, and needs the state anew");
        member.steps.hold(HoldPosition::Now, true);
        member.enter(4, CatchUpAction::Current, &[]);
        assert!(member.snapshots.is_empty());
    }
}
