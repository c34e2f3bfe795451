//! A data set of which a part comes before this machine asks to join, and the rest while it trains.
//!
//! ```text
//!   data/FINGERPRINT.arriving     as long as files are missing
//!   data/FINGERPRINT/             each file in its place, whole or not: chunks are known by their hashes
//! ```
//!
//! A file is read from once all of it is here and is what `tokens.json` says, and nobody writes to it any more. Whatever is interrupted goes on
//! from what lies there.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::future::Future;
use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::{AsyncRead, AsyncWrite};
use starling_engine::download::MAX_DONORS;
use starling_run::data::{ArrivalTracker, MAX_PREPROCESSING_BYTES, RunPosition};
use starling_run::{Manifest, Workload};
use starling_topology::PeerId;
use tokio::time::{Instant, timeout};

use super::{ASK_LIMIT, Place, REPORT_INTERVAL};
use crate::error::NodeError;
use crate::observe::report::{Observer, Report};
use crate::start::node::blocking;
use crate::transfer::data::{self, Failure, FileCheck, FileRequest, KnownManifests};
use crate::transfer::questions;

/// What a text has besides its tokens: the first of its files, without which nothing is known of the others.
const NAMED: [usize; 2] = [0, 1];
/// The longest of these, in bytes.
const MAX_NAMED_BYTES: u64 = MAX_PREPROCESSING_BYTES as u64;
/// For how long nothing of the data may come while there are members to ask: those who have it may be started again.
const PATIENCE: Duration = Duration::from_secs(600);
/// When members are asked again, at first and in the end.
const FIRST_RETRY: Duration = Duration::from_millis(500);
const LAST_RETRY: Duration = Duration::from_secs(15);

/// A data set that is not all here.
#[derive(Clone)]
pub(crate) struct ArrivingData {
    place: Place,
    arrivals: Arc<dyn ArrivalTracker>,
    /// How many bytes all of it may have.
    limit: u64,
    /// How many came since this process began.
    fetched: Arc<AtomicU64>,
    /// Whom to believe what they say that the files are.
    known: Arc<Mutex<KnownManifests>>,
    /// After which of these steps the run stood when somebody said it.
    stands: Option<RangeInclusive<u64>>,
    /// As [`PATIENCE`].
    patience: Duration,
}

impl Place {
    /// What says that files of the folder are missing.
    fn mark(&self) -> PathBuf {
        self.folder.with_extension("arriving")
    }

    pub(super) fn is_arriving(&self) -> bool {
        self.mark().exists()
    }

    /// Has files arrive where they stay. What was downloaded before of such data is kept.
    async fn begin_arriving(&self) -> Result<(), NodeError> {
        let place = self.clone();
        blocking(move || {
            let failed = |source| NodeError::file("write", &place.folder, source);
            if let Some(parent) = place.folder.parent() {
                fs::create_dir_all(parent).map_err(failed)?;
            }
            // First: a folder without it is whole.
            File::create(place.mark()).and_then(|mark| mark.sync_all()).map_err(failed)?;
            match (place.folder.exists(), place.part.exists()) {
                (false, true) => fs::rename(&place.part, &place.folder).map_err(failed),
                (false, false) => fs::create_dir_all(&place.folder).map_err(failed),
                (true, _) => Ok(()),
            }
        })
        .await
    }

    /// What has arrived is a part of a download, for a run that needs all of it.
    pub(super) async fn stop_arriving(&self) -> Result<(), NodeError> {
        let place = self.clone();
        blocking(move || {
            let failed = |source| NodeError::file("write", &place.part, source);
            if place.folder.exists() {
                if place.part.exists() {
                    fs::remove_dir_all(&place.part).map_err(failed)?;
                }
                fs::rename(&place.folder, &place.part).map_err(failed)?;
            }
            remove(&place.mark()).map_err(failed)
        })
        .await
    }

    /// Nothing came: nothing is left.
    async fn forget_arriving(&self) {
        let place = self.clone();
        let forget = move || {
            // A folder with a file in it stays, and so does what says that more are missing.
            if fs::remove_dir(&place.folder).is_ok() {
                drop(remove(&place.mark()));
                place.folder.parent().into_iter().for_each(|parent| drop(fs::remove_dir(parent)));
            }
            Ok(())
        };
        drop(blocking(forget).await);
    }

    /// All is here. If the mark stays, all of it is only looked at once more the next time.
    async fn end_arriving(&self, observer: &dyn Observer) {
        let mark = self.mark();
        let removed = blocking(move || remove(&mark).map_err(|source| NodeError::file("remove", &mark, source))).await;
        if let Err(error) = removed {
            let message = format!("{error}; all of the data is here, but that says that files are missing");
            observer.report(&Report::Warning { message });
        }
    }
}

/// Removes a file, if it is there.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Opens a data set with what is here of it, and fetches from `members` what a joiner needs to begin. Nothing of the rest if all is here then.
pub(super) async fn begin<S, Open>(
    open: &impl Fn(PeerId) -> Open,
    members: &[PeerId],
    place: &Place,
    limit: u64,
    observer: &dyn Observer,
) -> Result<(Box<dyn Workload>, Option<ArrivingData>), NodeError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    Open: Future<Output = io::Result<S>> + Send + 'static,
{
    place.begin_arriving().await?;
    let known: Arc<Mutex<KnownManifests>> = Arc::default();
    let workload = match place.read_arriving(limit).await {
        Ok(workload) => workload,
        Err(_) => {
            let mut taken = None;
            let check = async || -> Result<(), String> {
                taken = Some(place.read_arriving(limit).await?);
                Ok(())
            };
            let only = NAMED.map(|number| FileRequest { number, bytes: 1..=MAX_NAMED_BYTES });
            let wanted = place.wanted(&only, &known, limit);
            if let Err(failure) = data::fetch(open, members, wanted, |_, _| {}, check).await {
                place.forget_arriving().await;
                return Err(super::not_there(place, limit, failure));
            }
            taken.ok_or(NodeError::Stopped("download"))?
        }
    };
    let arrivals = workload.arrivals().ok_or(NodeError::Stopped("download"))?;
    let stands = stands_behind(open, members, &place.manifest).await;
    let (place, fetched) = (place.clone(), Arc::default());
    let arriving = ArrivingData { place, arrivals, limit, fetched, known, stands: stands.clone(), patience: PATIENCE };
    let place = &arriving.place;
    arriving.look().await?;
    // Where nobody answers, there is nobody to have more from: whoever can compute nothing with what is here, computes nothing.
    let stands = stands.map(RunPosition::Behind);
    let wanted = stands.and_then(|position| arriving.arrivals.order((&place.manifest).into(), position));
    let progress = Progress::new(&arriving, observer);
    if let Some(order) = wanted {
        for file in &order.files[..order.to_begin] {
            if !arriving.arrivals.is_here(*file) {
                let told = |bytes, of| progress.tell(bytes, of);
                let fetched = arriving.fetch(open, members, *file, told).await;
                fetched.map_err(|failure| super::not_there(place, limit, failure))?;
                progress.add(*file);
            }
        }
    }
    if arriving.missing(RunPosition::Behind(0..=0)).is_empty() {
        place.end_arriving(observer).await;
        return Ok((workload, None));
    }
    arriving.tell(observer);
    Ok((workload, Some(arriving)))
}

/// After which of these steps the run stands, as far as somebody says: one that says something else makes this machine fetch files in another
/// order, no more. `None` if nobody answers.
async fn stands_behind<S, Open>(
    open: &impl Fn(PeerId) -> Open,
    members: &[PeerId],
    manifest: &Manifest,
) -> Option<RangeInclusive<u64>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    Open: Future<Output = io::Result<S>> + Send + 'static,
{
    for peer in members.iter().take(MAX_DONORS) {
        let asked = async {
            let mut stream = open(*peer).await?;
            questions::newest(&mut stream, manifest.run_id(), manifest.steps, ASK_LIMIT).await
        };
        if let Ok(Ok(newest)) = timeout(ASK_LIMIT, asked).await {
            let saved = newest.proofs.iter().map(|proof| proof.head.step).max().unwrap_or(0);
            // A checkpoint is stable some steps after it is due.
            let ahead = manifest.checkpoint_every.saturating_mul(2);
            return Some(saved..=saved.saturating_add(ahead).min(manifest.steps));
        }
    }
    None
}

impl ArrivingData {
    /// Takes in what is whole.
    async fn look(&self) -> Result<(), NodeError> {
        let arrivals = self.arrivals.clone();
        blocking(move || {
            for file in (0..arrivals.files()).filter(|file| !arrivals.is_here(*file)) {
                if let Err(reason) = arrivals.take_in(file) {
                    tracing::debug!(file, reason, "a file of the data is not whole");
                }
            }
            Ok(())
        })
        .await
    }

    /// The missing files, in the order in which a member needs them where the run stands so.
    fn missing(&self, position: RunPosition) -> Vec<usize> {
        let position = match (position, &self.stands) {
            // The state may still be on its way here.
            (RunPosition::Behind(steps), Some(told)) => {
                RunPosition::Behind(*steps.start().max(told.start())..=*steps.end().max(told.end()))
            }
            (known, _) => known,
        };
        let order = self.arrivals.order((&self.place.manifest).into(), position);
        let files = order.map_or_else(|| (0..self.arrivals.files()).collect::<Vec<_>>(), |order| order.files);
        files.into_iter().filter(|file| !self.arrivals.is_here(*file)).collect()
    }

    /// How many bytes came by a manifest of which a file was the run's. By another one, anything may come.
    fn trusted_bytes(&self) -> u64 {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).bytes()
    }

    fn tell(&self, observer: &dyn Observer) {
        let (files, of, fetched_bytes) = (self.arrivals.here(), self.arrivals.files(), self.fetched.load(Relaxed));
        observer.report(&Report::Arriving { files, of, fetched_bytes });
    }

    /// Fetches one file, and takes it in.
    async fn fetch<S, Open>(
        &self,
        open: &impl Fn(PeerId) -> Open,
        members: &[PeerId],
        file: usize,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<(), Failure>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        Open: Future<Output = io::Result<S>> + Send + 'static,
    {
        // What is told first is here already.
        let mut before = None;
        let told = |bytes: u64, of| {
            self.fetched.fetch_add(before.map_or(0, |before| bytes.saturating_sub(before)), Relaxed);
            before = Some(bytes);
            progress(bytes, of);
        };
        // Of what had to be here before, nothing is missing.
        let bytes = self.arrivals.bytes(file).map_or(1..=MAX_NAMED_BYTES, |bytes| bytes..=bytes);
        let only = [FileRequest { number: file, bytes }];
        let check = TakeIn { arrivals: self.arrivals.clone(), file };
        data::fetch_for(open, members, self.place.wanted(&only, &self.known, self.limit), told, check).await
    }

    /// Fetches all that is missing, from those who are `members` at a time, first what is needed next where the run stands at this `position`. What
    /// can't be had keeps nothing else waiting. Tells of each file.
    ///
    /// # Errors
    /// Why the rest can't be had, if no file came for long, and nothing of one by a manifest that had been right, whoever was asked.
    pub(crate) async fn complete<S, Open>(
        &self,
        open: &impl Fn(PeerId) -> Open,
        members: impl Fn() -> Vec<PeerId>,
        position: impl Fn() -> RunPosition,
        observer: &dyn Observer,
    ) -> Result<(), NodeError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        Open: Future<Output = io::Result<S>> + Send + 'static,
    {
        let (mut came, mut retry, mut failed) = (Instant::now(), FIRST_RETRY, BTreeSet::new());
        loop {
            let (this, at, before) = (self.clone(), position(), self.trusted_bytes());
            let missing = blocking(move || Ok(this.missing(at))).await?;
            let Some(first) = missing.first() else { return Ok(()) };
            let file = *missing.iter().find(|file| !failed.contains(*file)).unwrap_or(first);
            let asked = members();
            let fetched = self.fetch(open, &asked, file, |_, _| {}).await;
            // Of what was never right, bytes say nothing.
            if fetched.is_ok() || self.trusted_bytes() > before {
                (came, retry) = (Instant::now(), FIRST_RETRY);
            }
            // Who is alone has nobody to have it from.
            if asked.is_empty() {
                came = Instant::now();
            }
            match fetched {
                Ok(()) => {
                    failed.clear();
                    if self.arrivals.here() == self.arrivals.files() {
                        self.place.end_arriving(observer).await;
                    }
                    self.tell(observer);
                }
                Err(Failure { reason, .. }) if came.elapsed() >= self.patience => {
                    return Err(NodeError::NoData { reason });
                }
                Err(Failure { reason, .. }) => {
                    tracing::info!(file, reason, "a file of the data can't be had yet");
                    failed.insert(file);
                    if failed.len() >= missing.len() {
                        failed.clear();
                    }
                    tokio::time::sleep(retry).await;
                    retry = (2 * retry).min(LAST_RETRY);
                }
            }
        }
    }
}

/// Takes a file in that has come. What one has handed out that is not the run's, another one may have.
struct TakeIn {
    arrivals: Arc<dyn ArrivalTracker>,
    file: usize,
}

impl FileCheck for TakeIn {
    async fn check(&mut self) -> Result<(), String> {
        let (arrivals, file) = (self.arrivals.clone(), self.file);
        let taken = tokio::task::spawn_blocking(move || arrivals.take_in(file)).await;
        let taken = taken.unwrap_or_else(|error| Err(error.to_string()));
        taken.map_err(|reason| format!("what members have handed out is not the run's data: {reason}"))
    }
}

/// How much is here of all, before the run is entered.
struct Progress<'a> {
    arriving: &'a ArrivingData,
    observer: &'a dyn Observer,
    /// Of the files that are whole.
    whole: Cell<u64>,
    told: Cell<Option<Instant>>,
}

impl<'a> Progress<'a> {
    fn new(arriving: &'a ArrivingData, observer: &'a dyn Observer) -> Self {
        let progress = Self { arriving, observer, whole: Cell::new(0), told: Cell::new(None) };
        let files = 0..arriving.arrivals.files();
        files.filter(|file| arriving.arrivals.is_here(*file)).for_each(|file| progress.add(file));
        progress
    }

    fn add(&self, file: usize) {
        let Place { kind, folder, .. } = &self.arriving.place;
        let found = kind.file(file).and_then(|name| fs::metadata(folder.join(name)).ok());
        self.whole.set(self.whole.get() + found.map_or(0, |found| found.len()));
    }

    fn tell(&self, bytes: u64, of: u64) {
        if self.told.get().is_none_or(|told| told.elapsed() >= REPORT_INTERVAL) {
            self.told.set(Some(Instant::now()));
            self.observer.report(&Report::Downloading { bytes: self.whole.get() + bytes, of });
        }
    }
}

#[cfg(test)]
mod tests;
