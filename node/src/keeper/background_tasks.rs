//! What a keeper does beside its loop: questions to peers, downloads, writes.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use libp2p::StreamProtocol;
use libp2p_stream::Control;
use starling_run::{CheckpointError, CheckpointStore};
use starling_topology::history::ViewSearch;
use starling_topology::{AnchorSet, Contact, Digest, Head, PeerId, Proof, RunId, ViewId};
use tokio::time::Instant;

use crate::credentials::identity::to_libp2p;
use crate::error::NodeError;
use crate::net::streams;
use crate::observe::report::{Observer, Report};
use crate::start::client::dialer::Opening;
use crate::transfer::checkpoint::{self, CheckpointRequest, FetchError};
use crate::transfer::checkpoint_provider::CheckpointProvider;
use crate::transfer::data;
use crate::transfer::questions::{self, Newest};

/// How often the progress of a download is told.
const REPORT_INTERVAL: Duration = Duration::from_millis(250);

/// For so many times the longest standstill one peer may take to say what it holds, and to lead there.
const ANSWER_STALLS: u32 = 12;

/// How a task ended.
pub(super) enum Done {
    /// A peer said what it holds that it leads to, or why not, the ways there, and who is in its view.
    Newest { peer: PeerId, newest: io::Result<(Newest, Vec<ViewSearch>)>, members: Vec<Contact> },
    /// Somebody led to a view, or nobody did.
    Walked { id: ViewId, view_search: Option<Box<ViewSearch>> },
    /// A checkpoint is on disk, with these beside it, or can't be had.
    Fetched { head: Head, outcome: Result<BTreeMap<Digest, u64>, FetchError> },
    /// A checkpoint came whole, but can't be kept.
    Broken { head: Head, message: String },
    /// Signatures are beside their checkpoint, so many; `None` if newer ones have taken its place.
    Signed(Result<Option<(Head, usize)>, String>),
    /// The list of known peers, or that of the run's views, is on disk.
    Noted(Result<(), NodeError>),
}

/// What the tasks need.
pub(super) struct TaskContext {
    pub(super) control: Control,
    pub(super) protocol: StreamProtocol,
    pub(super) run: RunId,
    pub(super) steps: u64,
    pub(super) max_bytes: u64,
    pub(super) stall: Duration,
    pub(super) checkpoint_provider: Arc<CheckpointProvider>,
    /// For chunks, which nobody else touches while they come.
    pub(super) store: CheckpointStore,
    /// For what removes files: one at a time.
    pub(super) writing: Arc<Mutex<CheckpointStore>>,
    /// What was fetched last. What has arrived of it stays until another is fetched.
    pub(super) fetched: Mutex<Option<Digest>>,
    pub(super) observer: Arc<dyn Observer>,
}

impl TaskContext {
    pub(super) fn lock(store: &Mutex<CheckpointStore>) -> MutexGuard<'_, CheckpointStore> {
        // The store's files are sound after each step, so after a panic too.
        store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn opener(&self) -> impl Fn(PeerId) -> Opening + use<> {
        let (control, protocol, limit) = (self.control.clone(), self.protocol.clone(), self.stall / 2);
        move |peer| {
            let (mut control, protocol) = (control.clone(), protocol.clone());
            Box::pin(async move { streams::open(&mut control, to_libp2p(peer), &protocol, limit).await })
        }
    }

    pub(super) fn newest(&self, peer: PeerId, anchors: AnchorSet) -> impl Future<Output = Done> + Send + use<> {
        let (open, run, steps, stall) = (self.opener(), self.run, self.steps, self.stall);
        async move {
            let answer = async {
                let mut stream = open(peer).await?;
                let newest = questions::newest(&mut stream, run, steps, stall).await?;
                let newest = questions::proven(&mut stream, newest, anchors, stall).await?;
                // Who does not say has said enough.
                Ok((newest, data::members(stream).await.unwrap_or_default()))
            };
            let answer = tokio::time::timeout(stall * ANSWER_STALLS, answer).await;
            let answer = answer.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
            let (newest, members) =
                answer.map_or_else(|error| (Err(error), Vec::new()), |(newest, members)| (Ok(newest), members));
            Done::Newest { peer, newest, members }
        }
    }

    pub(super) fn view_search(
        &self,
        view_search: ViewSearch,
        from: Vec<PeerId>,
    ) -> impl Future<Output = Done> + Send + use<> {
        let (open, stall) = (self.opener(), self.stall);
        async move {
            Done::Walked {
                id: view_search.to(),
                view_search: questions::way(open, &view_search, &from, stall).await.map(Box::new),
            }
        }
    }

    pub(super) fn fetch(&self, head: Head, donors: Vec<PeerId>) -> impl Future<Output = Done> + Send + use<> {
        let (open, store, writing) = (self.opener(), self.store.clone(), self.writing.clone());
        let lacking = CheckpointRequest { head, max_bytes: self.max_bytes, donors, stall: self.stall };
        let observer = self.observer.clone();
        let before = self.fetched.lock().unwrap_or_else(PoisonError::into_inner).replace(head.manifest);
        let is_other = before.is_some_and(|before| before != head.manifest);
        async move {
            if is_other {
                let writing = writing.clone();
                // It frees less if that fails.
                let _ = tokio::task::spawn_blocking(move || Self::lock(&writing).give_up_arriving()).await;
            }
            let mut told: Option<Instant> = None;
            let progress = |bytes, of| {
                if told.is_none_or(|told| told.elapsed() >= REPORT_INTERVAL) {
                    told = Some(Instant::now());
                    observer.report(&Report::Fetching { step: head.step, bytes, of });
                }
            };
            let manifest = match checkpoint::fetch(open, lacking, &store, progress).await {
                Ok(manifest) => manifest,
                Err(reason) => return Done::Fetched { head, outcome: Err(reason) },
            };
            let completed = tokio::task::spawn_blocking(move || {
                let store = Self::lock(&writing);
                store.complete(&manifest)?;
                store.held()
            });
            match completed.await {
                Ok(Ok(held)) => Done::Fetched { head, outcome: Ok(held) },
                Ok(Err(error)) => Done::Broken { head, message: error.to_string() },
                Err(error) => Done::Broken { head, message: error.to_string() },
            }
        }
    }

    pub(super) fn sign(&self, proof: Proof) -> impl Future<Output = Done> + Send + use<> {
        let writing = self.writing.clone();
        async move {
            let signed = tokio::task::spawn_blocking(move || {
                // Each was verified when it came.
                let signed = Self::lock(&writing).sign(&proof.head, &proof.view, &proof.signatures, |_, _, _| true);
                match signed {
                    Ok(signed) => Ok(Some((signed.head, signed.signatures.len()))),
                    Err(CheckpointError::NotFound { .. }) => Ok(None),
                    Err(error) => Err(error.to_string()),
                }
            });
            Done::Signed(signed.await.unwrap_or_else(|error| Err(error.to_string())))
        }
    }
}
