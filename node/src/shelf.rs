//! What a peer hands out of its checkpoints, to whoever was admitted: members and keepers alike.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use starling_topology::{Digest, Proof, View, ViewId};
use starling_train::{CheckpointError, CheckpointStore, Manifest};

use crate::pace::Pace;

/// Views that are told to those who ask whose signatures count: the present one, and those before it.
const MAX_VIEWS: usize = 8;

/// The checkpoints on this peer's disk, and what others need to know to trust them.
#[derive(Debug)]
pub(crate) struct Shelf {
    manifest: Vec<u8>,
    /// For reading alone.
    store: CheckpointStore,
    views: Mutex<VecDeque<View>>,
    /// Whether this peer is in a view, whose members hold a newer state than any checkpoint.
    is_live: AtomicBool,
    pub(crate) pace: Arc<Pace>,
}

impl Shelf {
    pub(crate) fn new(manifest: &Manifest, store: CheckpointStore, pace: Arc<Pace>) -> Arc<Self> {
        let (views, is_live) = (Mutex::default(), AtomicBool::new(false));
        Arc::new(Self { manifest: manifest.encode(), store, views, is_live, pace })
    }

    /// What the run is: its manifest's canonical bytes.
    pub(crate) fn manifest(&self) -> &[u8] {
        &self.manifest
    }

    /// This peer goes on in a view.
    pub(crate) fn enter(&self, view: &View) {
        self.learn(view);
        self.is_live.store(true, Ordering::Release);
    }

    /// This peer is in no view any more.
    pub(crate) fn leave(&self) {
        self.is_live.store(false, Ordering::Release);
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

    pub(crate) fn view(&self, id: ViewId) -> Option<View> {
        self.lock().iter().find(|view| view.id() == id).cloned()
    }

    /// Who has signed the newest stable checkpoint.
    pub(crate) async fn newest(self: &Arc<Self>) -> io::Result<Option<Proof>> {
        self.read(CheckpointStore::newest_proof).await
    }

    /// The manifest of the checkpoint with this name: its file's bytes. `None` if it is not here.
    pub(crate) async fn checkpoint(self: &Arc<Self>, name: Digest) -> io::Result<Option<Vec<u8>>> {
        self.read(move |store| Ok(store.manifest(name)?.map(|manifest| manifest.encode()))).await
    }

    /// A chunk of any of the checkpoints. `None` if it is not here, or damaged.
    pub(crate) async fn chunk(self: &Arc<Self>, name: Digest) -> io::Result<Option<Vec<u8>>> {
        self.read(move |store| Ok(store.read_chunk(name).ok())).await
    }

    /// Reads outside of the async threads.
    async fn read<T: Send + 'static>(
        self: &Arc<Self>,
        read: impl FnOnce(&CheckpointStore) -> Result<T, CheckpointError> + Send + 'static,
    ) -> io::Result<T> {
        let shelf = self.clone();
        let read = tokio::task::spawn_blocking(move || read(&shelf.store)).await;
        read.map_err(io::Error::other)?.map_err(io::Error::other)
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<View>> {
        self.views.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
