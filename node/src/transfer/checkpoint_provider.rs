//! What a peer hands out of its checkpoints, to whoever was admitted: members and keepers alike.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use starling_run::{CheckpointError, CheckpointStore, Manifest};
use starling_topology::{Digest, Proof, View, ViewId};

use crate::member::guide::Guide;
use crate::net::rate_limiter::RateLimiter;
use crate::store::preprocessing_file::PreprocessingFile;

/// Views that are told to those who ask whose signatures count: the present one, and those before it.
const MAX_VIEWS: usize = 8;

/// How long, in stalls, a checkpoint stays for whoever was told of it or has just had a part of it: who asks waits half a stall
/// for other answers.
const PIN_STALLS: u32 = 2;
/// How often the newest stable checkpoint is looked for if it is gone before it is pinned.
const MAX_LOOKS: usize = 4;

/// The checkpoints on this peer's disk, and what others need to know to trust them.
#[derive(Debug)]
pub(crate) struct CheckpointProvider {
    /// Which of the processes of its identity this one is.
    incarnation: u64,
    manifest: Vec<u8>,
    /// For reading alone.
    store: CheckpointStore,
    views: Mutex<VecDeque<View>>,
    /// Whether this peer is in a view, whose members hold a newer state than any checkpoint.
    is_live: AtomicBool,
    /// Whether it is in none, and looks out for the state that it lacks, as far as it knows by now.
    looks_out: AtomicBool,
    pin_time: Duration,
    preprocessing: OnceLock<PreprocessingFile>,
    guide: OnceLock<Arc<Guide>>,
    pub(crate) pace: Arc<RateLimiter>,
}

impl CheckpointProvider {
    /// Of the process of its peer that this number tells apart.
    pub(crate) fn new(
        incarnation: u64,
        manifest: &Manifest,
        store: CheckpointStore,
        pace: Arc<RateLimiter>,
    ) -> Arc<Self> {
        let (views, is_live, looks_out) = (Mutex::default(), AtomicBool::new(false), AtomicBool::new(true));
        let pin_time = Duration::from_millis(manifest.max_stall_ms) * PIN_STALLS;
        Arc::new(Self {
            incarnation,
            manifest: manifest.encode(),
            store,
            views,
            is_live,
            looks_out,
            pin_time,
            preprocessing: OnceLock::new(),
            guide: OnceLock::new(),
            pace,
        })
    }

    pub(crate) fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// What the run is: its manifest's canonical bytes.
    pub(crate) fn manifest(&self) -> &[u8] {
        &self.manifest
    }

    /// What was done to the run's data is in this file, or will be.
    pub(crate) fn look_in(&self, file: PreprocessingFile) {
        // It is the same file each time.
        let _ = self.preprocessing.set(file);
    }

    /// What leads from one view to another is known there.
    pub(crate) fn lead_by(&self, guide: Arc<Guide>) {
        // It is the same one each time.
        let _ = self.guide.set(guide);
    }

    /// What leads from one view to another, if anything is known of that.
    pub(crate) fn guide(&self) -> Option<&Arc<Guide>> {
        self.guide.get()
    }

    /// What was done to the run's data: its canonical bytes. `None` if it is not here.
    pub(crate) async fn preprocessing(self: &Arc<Self>) -> io::Result<Option<Vec<u8>>> {
        let Some(file) = self.preprocessing.get().cloned() else { return Ok(None) };
        let loaded = tokio::task::spawn_blocking(move || file.load()).await.map_err(io::Error::other)?;
        Ok(loaded.map_err(io::Error::other)?.map(|preprocessing| preprocessing.encode()))
    }

    /// This peer goes on in a view.
    pub(crate) fn enter(&self, view: &View) {
        self.learn(view);
        self.is_live.store(true, Ordering::Release);
    }

    /// Whether this machine's view goes on, and whether it looks out for what it lacks.
    pub(crate) fn tell(&self, is_live: bool, looks_out: bool) {
        self.is_live.store(is_live, Ordering::Release);
        self.looks_out.store(looks_out, Ordering::Release);
    }

    /// Notes a view of the run.
    pub(crate) fn learn(&self, view: &View) {
        let mut views = self.lock();
        views.retain(|known| known != view);
        views.push_back(view.clone());
        while views.len() > MAX_VIEWS {
            views.pop_front();
        }
    }

    pub(crate) fn is_live(&self) -> bool {
        self.is_live.load(Ordering::Acquire)
    }

    pub(crate) fn looks_out(&self) -> bool {
        !self.is_live() && self.looks_out.load(Ordering::Acquire)
    }

    pub(crate) fn view(&self, id: ViewId) -> Option<View> {
        self.lock().iter().find(|view| view.id() == id).cloned()
    }

    /// Who has signed the newest stable checkpoints, which then stay for a while: whoever asks may want to fetch them.
    pub(crate) async fn newest(self: &Arc<Self>) -> io::Result<Vec<Proof>> {
        let time = self.pin_time;
        let newest = move |store: &CheckpointStore| {
            for _ in 0..MAX_LOOKS {
                let proofs = store.newest_proofs()?;
                let mut pinned = proofs.iter().map(|proof| store.pin(proof.head.manifest, time));
                if pinned.try_fold(true, |all, pinned| pinned.map(|pinned| all && pinned))? {
                    return Ok(proofs);
                }
            }
            Ok(Vec::new())
        };
        self.read(newest).await
    }

    /// The manifest of the checkpoint with this name: its file's bytes. `None` if it is not here. It stays for a while.
    pub(crate) async fn checkpoint(self: &Arc<Self>, name: Digest) -> io::Result<Option<Vec<u8>>> {
        let time = self.pin_time;
        let manifest = move |store: &CheckpointStore| {
            store.pin(name, time)?;
            Ok(store.manifest(name)?.map(|manifest| manifest.encode()))
        };
        self.read(manifest).await
    }

    /// A chunk of any of the checkpoints. `None` if it is not here, or damaged. The checkpoint `of`, which somebody is
    /// fetching, stays for a while.
    pub(crate) async fn chunk(self: &Arc<Self>, of: Digest, name: Digest) -> io::Result<Option<Vec<u8>>> {
        let time = self.pin_time;
        let chunk = move |store: &CheckpointStore| {
            // It may be of another one that is here.
            let _ = store.pin(of, time);
            Ok(store.read_chunk(name).ok())
        };
        self.read(chunk).await
    }

    /// Reads outside of the async threads.
    async fn read<T: Send + 'static>(
        self: &Arc<Self>,
        read: impl FnOnce(&CheckpointStore) -> Result<T, CheckpointError> + Send + 'static,
    ) -> io::Result<T> {
        let checkpoint_provider = self.clone();
        let read = tokio::task::spawn_blocking(move || read(&checkpoint_provider.store)).await;
        read.map_err(io::Error::other)?.map_err(io::Error::other)
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<View>> {
        self.views.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
