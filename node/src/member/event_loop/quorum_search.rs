//! Looks out for a run that has gone on without this member, as the engine's [`QuorumSearch`](starling_engine::QuorumSearch) says.

use std::path::Path;
use std::sync::Arc;

use starling_engine::member::quorum_search::SearchResult;
use starling_engine::search::{SearchConfig, sought};
use starling_run::{CheckpointStore, Manifest};
use starling_topology::{Contact, PeerId, Time};
use tokio::task::{JoinHandle, spawn_blocking};

use super::{End, EventLoop};
use crate::access::Credentials;
use crate::error::NodeError;
use crate::member::guide::Guide;
use crate::member::twin::{self, TwinQuery, TwinWatch};
use crate::observe::report::Report;
use crate::start::catch_up::{Search, SearchOutcome, catch_up, contacts_of};

/// What the newest checkpoint is asked for with, and where it goes.
#[derive(Debug, Clone)]
pub(crate) struct Quest {
    pub(crate) manifest: Manifest,
    pub(crate) credentials: Credentials,
    pub(crate) store: CheckpointStore,
    pub(crate) guide: Arc<Guide>,
    /// The step with which the run has ended early, if this machine's checkpoints said so as it began.
    pub(crate) ended: Option<u64>,
}

/// What was found, with the step of the newest stable checkpoint here that counts, if it can be read.
type Outcome = (SearchOutcome, Option<u64>);

/// See the module.
#[derive(Debug)]
pub(super) struct QuorumSearch {
    quest: Quest,
    twins: TwinWatch,
    search: Option<JoinHandle<Result<Outcome, NodeError>>>,
}

impl QuorumSearch {
    pub(super) fn new(quest: Quest, twins: TwinWatch) -> Self {
        Self { quest, twins, search: None }
    }

    pub(super) fn give_up(&mut self) {
        self.search.take().iter().for_each(JoinHandle::abort);
    }
}

impl Drop for QuorumSearch {
    fn drop(&mut self) {
        self.give_up();
    }
}

impl EventLoop {
    /// Looks whether it is time to ask, and what that came to. `Some` if this process has a twin.
    pub(super) async fn look_out(&mut self, now: Time, step: u64) -> Option<End> {
        if let Some(end) = self.look_for_twin(now) {
            return Some(end);
        }
        self.chunk_providers.checkpoints.tell(self.member.goes_on(), self.member.apart().is_some());
        let last_step = self.shared_steps.act(|steps| steps.last_step());
        let last_step = self.quorum_search.quest.ended.map_or(last_step, |ended| ended.min(last_step));
        self.member.look_out(now, step, last_step);
        if let Some(search) = self.quorum_search.search.take_if(|search| search.is_finished()) {
            let found = search.await.unwrap_or(Err(NodeError::Stopped("search")));
            let (found, stable) = found.unwrap_or_else(|error| {
                tracing::warn!(%error, "others can't be asked whether the run has gone on");
                Default::default()
            });
            let (answers, fetched) = (found.said(), found.fetched);
            let keepers: Vec<PeerId> = self.books.contacts.keepers().iter().map(|keeper| keeper.peer).collect();
            if let Some(info) = &fetched {
                let message = format!(
                    "the run has gone on to step {} while this machine took no part: it comes back with that state",
                    info.step
                );
                self.observer.report(&Report::Warning { message });
            }
            let came_to = SearchResult { fetched: fetched.is_some(), stable, answers: &answers, keepers: &keepers };
            self.member.searched(now, came_to);
        }
        None
    }

    /// Looks for another process that is this machine, if that may be why this one takes no part.
    fn look_for_twin(&mut self, now: Time) -> Option<End> {
        let takes_part = self.member.takes_part();
        let asking = || TwinQuery {
            me: self.me,
            run: self.config.run,
            credentials: Credentials {
                secret: self.network.access.secret(),
                ..self.quorum_search.quest.credentials.clone()
            },
            incarnation: Some(self.chunk_providers.checkpoints.incarnation()),
            others: self.member.membership().contacts().filter(|contact| contact.peer != self.me).cloned().collect(),
            limit: self.config.max_stall / 2,
        };
        let is_there = self.quorum_search.twins.look(now, takes_part, asking);
        is_there.then(|| End::Failed(twin::error(self.me, self.data_dir())))
    }

    /// Where this machine keeps what it has of runs.
    pub(super) fn data_dir(&self) -> &Path {
        self.books.record.path().parent().unwrap_or_else(|| Path::new(""))
    }

    pub(super) fn search(&mut self, terms: SearchConfig) {
        let (members, keepers) = (self.books.contacts.members(), self.books.contacts.keepers());
        let known: Vec<&Contact> = keepers.iter().chain(self.member.membership().contacts()).chain(members).collect();
        let name = |contact: &Contact| contact.peer;
        let peers = sought(self.me, keepers.iter().map(name), known.iter().copied().map(name));
        let contacts = contacts_of(&peers, &known);
        let quest = self.quorum_search.quest.clone();
        let secret = self.network.access.secret();
        self.quorum_search.search = Some(tokio::spawn(async move {
            let Quest { manifest, credentials, store, guide, .. } = quest;
            let credentials = Credentials { secret, ..credentials };
            let counts = terms.clone();
            let search =
                Search { manifest: &manifest, credentials: &credentials, contacts, store: &store, guide, terms };
            let found = catch_up(search).await?;
            // What was fetched counts, whether this can be read or not.
            let proofs = spawn_blocking(move || store.newest_proofs()).await.ok().and_then(Result::ok);
            let own = proofs.into_iter().flatten().filter(|proof| counts.counts(proof));
            Ok((found, own.map(|proof| proof.head.step).max()))
        }));
    }
}
