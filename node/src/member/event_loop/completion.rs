//! What a member stays for although it could end, as the engine's [`CompletionTracker`](starling_engine::CompletionTracker) and
//! [`LeaveAction`] say: the run's end is not safe with others yet, or some have yet to load a state that nobody else holds.

use std::collections::BTreeSet;

use starling_engine::LeaveAction;
use starling_topology::{Digest, PeerId};
use tokio::task::JoinSet;

use super::{End, EventLoop};
use crate::credentials::identity::to_libp2p;
use crate::net::streams;
use crate::observe::report::Report;
use crate::transfer::questions;

/// What keepers say that are asked, one question to each.
#[derive(Debug, Default)]
pub(super) struct Questions {
    answers: JoinSet<(PeerId, Vec<(u64, Digest)>)>,
    asked: BTreeSet<PeerId>,
}

impl EventLoop {
    /// Looks what there is left to do once the run is complete.
    pub(super) fn settle(&mut self) {
        if !self.member.has_completed() {
            return;
        }
        let now = self.now();
        while let Some(Ok((keeper, states))) = self.questions.answers.try_join_next() {
            self.questions.asked.remove(&keeper);
            self.member.keeper_holds(now, keeper, &states);
        }
        let keepers = self.books.contacts.keepers().iter().map(|contact| contact.peer);
        let is_there = |keeper: &PeerId| self.network.swarm.is_connected(&to_libp2p(*keeper));
        let there: Vec<PeerId> = keepers.filter(is_there).collect();
        self.member.settle(now, &there);
    }

    pub(super) fn tell_of_keepers(&self, keepers: Vec<PeerId>) {
        let message = format!(
            "the run is complete; this machine stays a while, until {} has fetched the last state, so that it is not here alone. \
             Ctrl-C ends it at once",
            names(keepers)
        );
        self.observer.report(&Report::Warning { message });
    }

    pub(super) fn ask_keeper(&mut self, keeper: PeerId) {
        if !self.questions.asked.insert(keeper) {
            return;
        }
        let (mut control, protocol) = (self.network.control(), self.network.protocols.state.clone());
        let (run, steps, limit) = (self.config.run, self.config.last_step, self.config.max_stall);
        self.questions.answers.spawn(async move {
            let newest = async {
                let mut stream = streams::open(&mut control, to_libp2p(keeper), &protocol, limit).await?;
                questions::newest(&mut stream, run, steps, limit).await
            };
            let proofs = newest.await.map_or_else(|_| Vec::new(), |newest| newest.proofs);
            (keeper, proofs.iter().map(|proof| (proof.head.step, proof.head.digest)).collect())
        });
    }

    /// Our user wants to leave, and nobody has answered for long. `None` if it stays on.
    pub(super) fn leave_in_vain(&mut self) -> Option<End> {
        let now = self.now();
        match self.member.leave_in_vain(now) {
            LeaveAction::Alone => return Some(End::LeftAlone),
            LeaveAction::AwaitsHeirs(heirs) => {
                let message = format!(
                    "{} still loads the state, which nobody else holds: this machine leaves once that is done; Ctrl-C again ends it \
                     at once",
                    names(heirs)
                );
                self.observer.report(&Report::Warning { message });
            }
            LeaveAction::Departs => {}
        }
        None
    }
}

fn names(peers: Vec<PeerId>) -> String {
    let names: Vec<String> = peers.into_iter().map(|peer| to_libp2p(peer).to_string()).collect();
    names.join(", ")
}
