//! What leads from one view of the run to another: for others who ask, and for this machine, which believes nobody's view before it
//! was led there.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{io, path::Path};

use starling_topology::history::{ViewProof, ViewSearch, ViewSearchRequest};
use starling_topology::{AnchorSet, PeerId, Record, RunId, Signer, View, ViewHistory, ViewId, WireSignature};

use crate::credentials::founder::FounderKey;
use crate::credentials::identity::has_signed;
use crate::error::NodeError;
use crate::store::history_file::HistoryFile;

/// Looks at what others have signed, and signs nothing.
#[derive(Debug)]
pub(crate) struct Reader;

impl Signer for Reader {
    fn sign(&self, _: &[u8]) -> [u8; 64] {
        [0; 64]
    }

    fn is_signed(&self, signer: PeerId, statement: &[u8], signature: &[u8; 64]) -> bool {
        has_signed(signer, statement, signature)
    }
}

/// The history of a run, in memory and on disk.
#[derive(Debug)]
pub(crate) struct Guide {
    run: RunId,
    founder: Option<PeerId>,
    file: HistoryFile,
    history: Mutex<KnownViews>,
    /// One at a time writes.
    writing: Mutex<()>,
}

#[derive(Debug)]
struct KnownViews {
    /// Shared with those who answer out of it.
    history: Arc<ViewHistory>,
    is_unwritten: bool,
}

impl Guide {
    /// With what lies in this data directory of a run whose manifest names this founder's key.
    pub(crate) fn open(data_dir: &Path, run: RunId, founder: Option<PeerId>) -> Arc<Self> {
        let file = HistoryFile::new(data_dir, run);
        let history = Mutex::new(KnownViews { history: Arc::new(file.load()), is_unwritten: false });
        Arc::new(Self { run, founder, file, history, writing: Mutex::default() })
    }

    /// This machine begins a branch with this view. Others count it for the run's if the founder's key is in this directory: false if
    /// the run has one, it is elsewhere, and this is new.
    pub(crate) fn begin(&self, data_dir: &Path, view: &View) -> bool {
        let key = FounderKey::load(&FounderKey::file(data_dir));
        let key =
            key.inspect_err(|error| tracing::warn!(%error, "the founder's key signs no beginning")).ok().flatten();
        let Some(key) = key.filter(|key| Some(key.public()) == self.founder) else {
            return self.founder.is_none() || self.lock().history.contains(view.id());
        };
        let seal = key.sign(&starling_topology::history::beginning(self.run, view.id()));
        if let Ok(seal) = <[u8; 64]>::try_from(seal) {
            self.take([ViewProof::Founded(view.clone(), WireSignature::from(seal))]);
        }
        true
    }

    /// This member is in a view, or votes there.
    pub(crate) fn note(&self, record: &Record) {
        let mut kept = self.lock();
        if !kept.history.contains(record.view.id()) {
            kept.is_unwritten |= Arc::make_mut(&mut kept.history).note(record);
        }
    }

    /// It was led so.
    pub(crate) fn take(&self, legs: impl IntoIterator<Item = ViewProof>) {
        let mut kept = self.lock();
        Arc::make_mut(&mut kept.history).take(legs);
        kept.is_unwritten = true;
    }

    /// What came before what is known here.
    pub(crate) fn take_before(&self, legs: Vec<ViewProof>) {
        let mut kept = self.lock();
        Arc::make_mut(&mut kept.history).take_before(legs);
        kept.is_unwritten = true;
    }

    /// The view that something here follows although nothing here leads there.
    pub(crate) fn gap(&self) -> Option<ViewId> {
        self.lock().history.gap()
    }

    /// What this machine takes for the run's.
    pub(crate) fn anchors(&self) -> AnchorSet {
        AnchorSet::of(self.run, self.founder, &self.lock().history)
    }

    /// The way to a view for whoever knows nothing but whose run it is.
    pub(crate) fn walk_anew(&self, to: ViewId) -> ViewSearch {
        ViewSearch::new(AnchorSet::of(self.run, self.founder, &ViewHistory::default()), to)
    }

    /// What leads where somebody wants to be led.
    pub(crate) async fn answer(self: &Arc<Self>, question: ViewSearchRequest) -> io::Result<Vec<ViewProof>> {
        let history = self.lock().history.clone();
        let answer = tokio::task::spawn_blocking(move || history.answer(&question));
        answer.await.map_err(io::Error::other)
    }

    /// Keeps them on disk, if there is news. What can't be kept others can tell again.
    pub(crate) fn store(&self) -> Result<(), NodeError> {
        let _alone = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let history = {
            let mut kept = self.lock();
            if !std::mem::take(&mut kept.is_unwritten) {
                return Ok(());
            }
            kept.history.clone()
        };
        self.file.store(&history).inspect_err(|_| self.lock().is_unwritten = true)
    }

    /// The same; why it failed is for the log alone.
    pub(crate) fn keep(&self) {
        if let Err(error) = self.store() {
            tracing::warn!(%error, "which views the run has had is not kept");
        }
    }

    fn lock(&self) -> MutexGuard<'_, KnownViews> {
        // Each change is done at once.
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
