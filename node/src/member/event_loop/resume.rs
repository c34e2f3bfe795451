//! Going on in a new view: its reducer, and whatever this member has to fetch first.

use std::sync::Arc;
use std::time::Duration;

use libp2p::StreamProtocol;
use starling_collective::SumLimit;
use starling_engine::Action;
use starling_run::training::contribution;
use starling_run::{ReplicatedState, ResultRecord};
use starling_topology::plan::{Bucket, PlanDecision, loads};
use starling_topology::view::MAX_COSTED;
use starling_topology::{Generation, HoldPosition, Lineage, MemberResumePlan, PeerId, Ring, View};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::{EventLoop, LoopConfig};
use crate::credentials::identity::to_libp2p;
use crate::learner::trainer;
use crate::member::event::NetworkEvent;
use crate::net::streams;
use crate::observe::report::{LinkCost, MeasuredLink, Report};
use crate::reducer::{self, ReducerConfig, ReducerHandle};
use crate::start::client::dialer::Opening;
use crate::transfer::result_transfer::{self, ResultRequest};
use crate::transfer::{questions, state};

/// How often the progress of a download is told.
const REPORT_INTERVAL: Duration = Duration::from_millis(250);

/// A result or a state on its way. Dropping it gives it up.
pub(super) type Fetch = AbortOnDropHandle<()>;

impl EventLoop {
    pub(super) fn hold(&mut self, hold: HoldPosition) {
        let member = &mut self.member;
        self.shared_steps.hold(|steps, is_whole| member.hold(steps, hold, is_whole));
    }

    pub(super) fn resume(&mut self, resumption: &MemberResumePlan) {
        let MemberResumePlan { view, step, .. } = resumption;
        // Links to those who are gone end here, once they have said everything.
        for gone in self.members.iter().filter(|member| !view.contains(**member)) {
            self.links.remove(gone);
        }
        for new in view.members().iter().filter(|member| !self.members.contains(member)) {
            // The network may have been broken when we began to reach for it.
            self.network.abandon_dial(to_libp2p(*new), self.config.max_stall / 8);
            if let Some(link) = self.links.get(new) {
                link.wait(self.config.max_stall / 2);
            }
        }
        if let Some(root) = self.member.membership().root() {
            self.writer_handle.root_in(root);
        }
        (self.members, self.is_forked) = (view.members().to_vec(), view.forked);
        self.tell_members();
        self.note_members(view);
        self.reducer = None;
        self.reducer = self.start_reducer(resumption);
        self.keep_connected(view);
        self.look_at_links();
        self.shown = Some((view.clone(), *step));
        if view.parent.is_none() {
            // Nothing more will be known of a founder's first view, and steps may come at once.
            self.show_view();
        }
        self.chunk_providers.checkpoints.enter(view);
        self.fetch_data();
        self.look_back();

        let operations = self.reducer.as_ref().map(|reducer| reducer.operations.clone());
        let (snapshots, member) = (&self.snapshots, &mut self.member);
        // Whoever holds both locks has taken that of the steps first.
        let action = self
            .shared_steps
            .enter(operations, |steps| snapshots.act(|snapshots| member.enter(steps, snapshots, resumption)));
        if action != Action::Wait {
            self.result = None;
        }
        self.follow(action);
    }

    /// Does what is left to this loop of the member's way into its view.
    fn follow(&mut self, action: Action) {
        match action {
            Action::GoOn | Action::GoOnFromInitial | Action::Wait => {}
            Action::FetchResult { number, step, lineage, from } => {
                self.result = Some(self.fetch_result(number, (step, lineage), from));
            }
            Action::FetchState { number, generation, step, lineage, from } => {
                self.state = Some(self.fetch_state(number, generation, (step, lineage), from));
            }
            Action::Withheld(reason) => {
                let message =
                    format!("the result of a step can't be had ({reason}); asking for a view that does without it");
                self.observer.report(&Report::Warning { message });
            }
            Action::Unable(reason) => self.leave_view(&reason),
        }
    }

    /// The result of a step that we lacked is here, or nobody handed it out.
    pub(super) fn on_result(&mut self, number: u64, result: Result<ResultRecord, String>) {
        let member = &mut self.member;
        let action = self.shared_steps.act(|steps| member.fetched(steps, number, result.map(Arc::new)));
        action.into_iter().for_each(|action| self.follow(action));
    }

    /// The state that we lacked is here, or nobody handed it out.
    pub(super) fn on_state(&mut self, number: u64, state: Result<Box<ReplicatedState>, String>) {
        let member = &mut self.member;
        let action = self.shared_steps.act(|steps| member.arrived(steps, number, state));
        action.into_iter().for_each(|action| self.follow(action));
    }

    /// We can't go on in this view, and join anew.
    pub(super) fn leave_view(&mut self, reason: &str) {
        self.observer.report(&Report::Warning { message: format!("{reason}; joining again") });
        self.drop_view();
    }

    /// Nothing of the view that we were in goes on.
    pub(super) fn drop_view(&mut self) {
        self.reducer = None;
        (self.result, self.state) = (None, None);
        self.members.clear();
        self.look_at_links();
        self.chunk_providers.checkpoints.tell(false, true);
    }

    fn start_reducer(&mut self, resumption: &MemberResumePlan) -> Option<ReducerHandle> {
        let MemberResumePlan { view, syncing, .. } = resumption;
        let members = view.members().len();
        if members < 2 {
            return None;
        }
        let layout = self.config.reduced.buffer(members);
        let exact = layout.apart(self.config.codec.is_lossy(), self.config.chooses);
        let config = ReducerConfig {
            elements: layout.elements(),
            planned: self.config.reduced.trained,
            exact,
            chooses: self.config.chooses,
            words: view
                .members()
                .iter()
                .map(|member| contribution::words(member, syncing, self.config.can_arrive))
                .collect(),
            layout: self.config.layout,
            codec: self.config.codec,
            plan: self.config.plan,
            most: self.config.most,
            in_flight: self.config.in_flight,
            open_limit: self.config.max_stall / 2,
            limits: starling_links::LinkLimit::new(self.config.max_stall),
            protocol: self.network.protocols.segments.clone(),
            endpoint: self.incoming.endpoint.clone(),
            traffic: self.traffic.clone(),
        };
        let (shared_steps, events) = (self.shared_steps.clone(), self.incoming.events_in.clone());
        let mut handle = reducer::start(view, self.me, config, shared_steps, self.network.control(), events);
        for receiver in &handle.receivers {
            self.network.connect(to_libp2p(*receiver));
        }
        for (peer, early, stream) in std::mem::take(&mut self.early) {
            if early == handle.view {
                handle.connect(peer, stream);
            }
        }
        Some(handle)
    }

    /// Each member is connected to each other one, so that a death is seen by all at once. Of two, the lower dials.
    fn keep_connected(&mut self, view: &View) {
        let me = self.me;
        for member in view.members().iter().filter(|member| **member > me && !view.is_severed(me, **member)) {
            self.network.connect(to_libp2p(*member));
        }
    }

    /// Tells the user of the view that was resumed, if one was: once all is known of it.
    pub(super) fn show_view(&mut self) {
        let Some((view, step)) = self.shown.take() else { return };
        let ring = Ring::plan(&view);
        let rank = ring.rank_of(self.me).expect("invariant: the machine resumes only in its own views");
        let world = ring.world_size();
        self.world_size = world.get();
        let change = self.change.take().unwrap_or_default();
        self.observer.report(&Report::View {
            generation: view.generation.0,
            view: view.id().to_string(),
            rank: rank.0,
            members: world.ranks().map(|rank| to_libp2p(ring.peer(rank)).to_string()).collect(),
            newcomers: view.newcomers().iter().map(|peer| to_libp2p(*peer).to_string()).collect(),
            step,
            reason: change.reason,
            promised: change.promised,
            of: change.of,
            took_ms: change.took_ms,
            forked: view.forked,
        });
        // A mesh among many has more links than anybody reads, and nobody measures them.
        if (2..=MAX_COSTED).contains(&view.members().len()) {
            self.observer.report(&self.costs(&view, &ring));
        }
    }

    /// What the view's plan sends over each link, and what the members agreed that it costs.
    fn costs(&self, view: &View, ring: &Ring) -> Report {
        let (codec, world) = (self.config.codec, ring.world_size());
        let bytes = |elements: usize| codec.payload_bytes(elements) as u64;
        let bucket = Bucket {
            bytes: bytes(self.config.reduced.trained),
            segment_bytes: bytes(self.config.layout.segment_elements),
        };
        let PlanDecision { plan, weights, .. } = self.config.plan.agree_over(ring, view, bucket);
        let loads = loads(&plan, world, &weights, bucket.bytes);
        let links = loads.into_iter().map(|((from, to), bytes)| {
            let (from, to) = (ring.peer(from), ring.peer(to));
            let agreed = view.measured(from, to).map(MeasuredLink::from);
            LinkCost { from: to_libp2p(from).to_string(), to: to_libp2p(to).to_string(), bytes, agreed }
        });
        Report::Costs { links: links.collect(), codec: codec.to_string() }
    }

    fn fetch_result(&self, number: u64, (step, lineage): (u64, Lineage), holders: Vec<PeerId>) -> Fetch {
        tracing::info!(step, "fetching the result of a step");
        let max_stall = self.config.max_stall;
        let stall = max_stall / 4;
        let LoopConfig { reduced, most, codec, batch_size, .. } = self.config;
        let (after, reduced_in) = self.shared_steps.act(|steps| {
            let reduced_in = steps.active().filter(|active| active.lineage == lineage);
            (steps.progress().lineage, reduced_in.map(|active| active.members.clone()))
        });
        let open_view = self.opener(&self.network.protocols.state, stall);
        let open = self.opener(&self.network.protocols.result, stall);
        let fetch = async move {
            let members = match reduced_in {
                Some(members) => members,
                // Whoever missed the view, or has begun anew, can't know; the view's name proves what is said of it.
                None => {
                    let view = questions::view(open_view, lineage.view, &holders, stall).await;
                    view.ok_or("nobody says who was in the view that reduced it")?.members().into()
                }
            };
            let (limits, divisor) = (SumLimit::new(most, codec, members.len() as u32), batch_size as f32);
            let wanted = ResultRequest { step, lineage, after, members, reduced, limits, divisor, holders, max_stall };
            result_transfer::fetch(open, wanted).await
        };
        let events = self.incoming.events_in.clone();
        Fetch::new(tokio::spawn(async move {
            let result = fetch.await;
            let _ = events.send(NetworkEvent::ResultFetched { number, result }).await;
        }))
    }

    /// Connects to members.
    pub(super) fn opener(&self, protocol: &StreamProtocol, limit: Duration) -> impl Fn(PeerId) -> Opening + use<> {
        let (control, protocol) = (self.network.control(), protocol.clone());
        move |peer| {
            let (mut control, protocol) = (control.clone(), protocol.clone());
            Box::pin(async move { streams::open(&mut control, to_libp2p(peer), &protocol, limit).await })
        }
    }

    fn fetch_state(
        &self,
        number: u64,
        generation: Generation,
        (step, lineage): (u64, Lineage),
        donors: Vec<PeerId>,
    ) -> Fetch {
        tracing::info!(step, donors = donors.len(), "fetching the state");
        let (shared_steps, reduced) = (self.shared_steps.clone(), self.config.reduced);
        let idle = move || trainer::contribute_nothing(&shared_steps, reduced, number);
        if let Err(error) = crate::start::host::thread("syncing", idle) {
            // The others would wait for its contributions until the state is here.
            let state = Err(format!("no thread to take part while it is on its way: {error}"));
            let events = self.incoming.events_in.clone();
            return Fetch::new(tokio::spawn(async move {
                let _ = events.send(NetworkEvent::StateFetched { number, state }).await;
            }));
        }
        let wanted = state::StateRequest {
            run: self.config.run,
            generation,
            step,
            lineage,
            max_bytes: self.config.max_state_bytes,
            donors,
            stall: self.config.max_stall,
            shape: self.config.shape,
        };
        let open = self.opener(&self.network.protocols.state, self.config.max_stall / 2);
        let (events, observer) = (self.incoming.events_in.clone(), Arc::clone(&self.observer));
        Fetch::new(tokio::spawn(async move {
            let mut told: Option<Instant> = None;
            let progress = |bytes, of| {
                if bytes == of || told.is_none_or(|told| told.elapsed() >= REPORT_INTERVAL) {
                    told = Some(Instant::now());
                    observer.report(&Report::Syncing { step, bytes, of });
                }
            };
            let state = state::fetch(open, wanted, progress).await;
            let _ = events.send(NetworkEvent::StateFetched { number, state }).await;
        }))
    }
}
