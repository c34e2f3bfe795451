//! What a member stays for although it could end: until the run's end is safe with others, as the engine's
//! [`Settling`](starling_engine::Settling) says, and for those who have yet to load a state that nobody else holds.

use std::collections::BTreeSet;
use std::time::Duration;

use starling_engine::settling::Output;
use starling_topology::{Digest, Event, PeerId, Time};
use tokio::task::JoinSet;

use super::{End, EventLoop};
use crate::credentials::identity::to_libp2p;
use crate::net::streams;
use crate::observe::report::Report;
use crate::transfer::questions;

/// See the module.
#[derive(Debug)]
pub(super) struct Settling {
    machine: starling_engine::Settling,
    /// How the run ended.
    event: Option<Event>,
    /// What keepers say that are asked, one question to each.
    questions: JoinSet<(PeerId, Vec<(u64, Digest)>)>,
    asked: BTreeSet<PeerId>,
}

impl Settling {
    pub(super) fn new(max_stall: Duration) -> Self {
        let machine = starling_engine::Settling::new(max_stall);
        Self { machine, event: None, questions: JoinSet::new(), asked: BTreeSet::new() }
    }

    /// The state after `step` is stable.
    pub(super) fn note_stable(&mut self, now: Time, step: u64) {
        self.machine.note_stable(now, step);
    }

    /// What was stable on the branch that is left says nothing of another one.
    pub(super) fn forget(&mut self) {
        self.machine.forget();
    }

    /// Whether the run is complete, and this process stays for others.
    pub(super) fn is_complete(&self) -> bool {
        self.machine.is_under_way()
    }
}

impl EventLoop {
    /// The run is complete.
    pub(super) fn complete(&mut self, event: Event, end: (u64, Digest)) {
        self.settling.event = Some(event);
        self.settling.machine.complete(self.now(), end, self.is_saved);
        // It takes no part any more: whoever comes back and asks must not wait for it.
        self.shelves.checkpoints.tell(false, false);
    }

    /// Does what there is left to do once the run is complete. `Some` if this process need not stay.
    pub(super) fn settled(&mut self) -> Option<End> {
        self.settling.event.as_ref()?;
        let now = self.now();
        while let Some(Ok((keeper, states))) = self.settling.questions.try_join_next() {
            self.settling.asked.remove(&keeper);
            self.settling.machine.holds(now, keeper, &states);
        }
        let keepers = self.books.contacts.keepers().iter().map(|contact| contact.peer);
        let is_there = |keeper: &PeerId| self.network.swarm.is_connected(&to_libp2p(*keeper));
        let there: Vec<PeerId> = keepers.filter(is_there).collect();
        self.settling.machine.look(now, &there);
        while let Some(output) = self.settling.machine.poll() {
            match output {
                // It is looked at each time that all else is.
                Output::SetTimer(_) => {}
                Output::Ask(keepers) => keepers.into_iter().for_each(|keeper| self.ask_keeper(keeper)),
                Output::Tell(keepers) => {
                    let names: Vec<String> = keepers.into_iter().map(|peer| to_libp2p(peer).to_string()).collect();
                    let message = format!(
                        "the run is complete; this machine stays a while, until {} has fetched the last state, so that it is not here \
                         alone. Ctrl-C ends it at once",
                        names.join(", ")
                    );
                    self.observer.report(&Report::Warning { message });
                }
                Output::End => return self.settling.event.take().map(End::Event),
            }
        }
        None
    }

    fn ask_keeper(&mut self, keeper: PeerId) {
        if !self.settling.asked.insert(keeper) {
            return;
        }
        let (mut control, protocol) = (self.network.control(), self.network.protocols.state.clone());
        let (run, steps, limit) = (self.config.run, self.config.last_step, self.config.max_stall);
        self.settling.questions.spawn(async move {
            let newest = async {
                let mut stream = streams::open(&mut control, to_libp2p(keeper), &protocol, limit).await?;
                questions::newest(&mut stream, run, steps, limit).await
            };
            let proofs = newest.await.map_or_else(|_| Vec::new(), |newest| newest.proofs);
            (keeper, proofs.iter().map(|proof| (proof.head.step, proof.head.digest)).collect())
        });
    }

    /// Our user wants to leave, and nobody has answered for long. `None` if others have yet to load the state that nobody else holds:
    /// the user hears of it, and may end this process all the same.
    pub(super) fn give_up(&mut self) -> Option<End> {
        if let Some(event) = self.settling.event.take() {
            return Some(End::Event(event));
        }
        if self.membership.departs() {
            return None; // It ends by itself.
        }
        let heirs: Vec<String> = self.membership.heirs().into_iter().map(|peer| to_libp2p(peer).to_string()).collect();
        if heirs.is_empty() || self.membership.has_ended() {
            return Some(End::LeftAlone);
        }
        let message = format!(
            "{} still loads the state, which nobody else holds: this machine leaves once that is done; Ctrl-C again ends it at once",
            heirs.join(", ")
        );
        self.observer.report(&Report::Warning { message });
        None
    }
}
