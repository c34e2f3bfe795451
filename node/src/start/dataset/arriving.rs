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
use std::fs::{self, File};
use std::future::Future;
use std::io;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use futures::{AsyncRead, AsyncWrite};
use starling_engine::download::MAX_DONORS;
use starling_run::data::{ArrivalTracker, TOKENS};
use starling_run::{Manifest, Workload};
use starling_topology::{PeerId, ShufflePolicy};
use tokio::time::{Instant, timeout};

use super::{ASK_LIMIT, Place, REPORT_INTERVAL};
use crate::error::NodeError;
use crate::observe::report::{Observer, Report};
use crate::start::node::blocking;
use crate::transfer::data::{self, Failure, FileCheck};
use crate::transfer::questions;

/// What a text has besides its tokens: the first of its files, without which nothing is known of the others.
const NAMED: [usize; 2] = [0, 1];
/// For how long nothing at all may come: those who have the data may be started again.
const PATIENCE: Duration = Duration::from_secs(600);
/// When members are asked again, at first and in the end.
const FIRST_RETRY: Duration = Duration::from_millis(500);
const LAST_RETRY: Duration = Duration::from_secs(15);

/// Whether a run can be entered with a part of its data: each sample has its place in a file that is known by its hash, and which samples come next is known.
pub(super) fn can_arrive(manifest: &Manifest) -> bool {
    // Who evaluates a part of the held-out samples as it trains needs all of these, which lie everywhere.
    manifest.data.kind == TOKENS && manifest.shuffle != ShufflePolicy::Full && manifest.evaluation.is_none()
}

/// A data set that is not all here.
#[derive(Clone)]
pub(crate) struct ArrivingData {
    place: Place,
    arrivals: Arc<dyn ArrivalTracker>,
    /// How many bytes all of it may have.
    limit: u64,
    /// How many came since this process began.
    fetched: Arc<AtomicU64>,
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
            fs::remove_file(place.mark()).map_err(failed)
        })
        .await
    }

    /// Nothing came: nothing is left.
    async fn forget_arriving(&self) {
        let place = self.clone();
        let forget = move || {
            // A folder with a file in it stays, and so does what says that more are missing.
            if fs::remove_dir(&place.folder).is_ok() {
                drop(fs::remove_file(place.mark()));
                place.folder.parent().into_iter().for_each(|parent| drop(fs::remove_dir(parent)));
            }
            Ok(())
        };
        drop(blocking(forget).await);
    }

    /// All is here.
    async fn end_arriving(&self) -> Result<(), NodeError> {
        let mark = self.mark();
        blocking(move || fs::remove_file(&mark).map_err(|source| NodeError::file("write", &mark, source))).await
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
    let workload = match place.read_arriving(limit).await {
        Ok(workload) => workload,
        Err(_) => {
            let mut taken = None;
            let check = async || -> Result<(), String> {
                taken = Some(place.read_arriving(limit).await?);
                Ok(())
            };
            let wanted = place.wanted(&NAMED, limit);
            if let Err(failure) = data::fetch(open, members, wanted, |_, _| {}, check).await {
                place.forget_arriving().await;
                return Err(super::not_there(place, limit, failure));
            }
            taken.ok_or(NodeError::Stopped("download"))?
        }
    };
    let arrivals = workload.arrivals().ok_or(NodeError::Stopped("download"))?;
    let arriving = ArrivingData { place: place.clone(), arrivals, limit, fetched: Arc::default() };
    arriving.look().await?;
    let stands = stands_behind(open, members, &place.manifest).await;
    // Where nobody answers, there is nobody to have more from: whoever can compute nothing with what is here, computes nothing.
    let wanted = stands.and_then(|steps| arriving.arrivals.order((&place.manifest).into(), steps));
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
    if arriving.next(0).is_none() {
        place.end_arriving().await?;
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

    /// The missing file that a member asks for next that stands after `step`; `None` if none is missing.
    fn next(&self, step: u64) -> Option<usize> {
        let order = self.arrivals.order((&self.place.manifest).into(), step..=step);
        let files = order.map_or_else(|| (0..self.arrivals.files()).collect(), |order| order.files);
        files.into_iter().find(|file| !self.arrivals.is_here(*file))
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
        let only = [file];
        let check = TakeIn { arrivals: self.arrivals.clone(), file };
        data::fetch_for(open, members, self.place.wanted(&only, self.limit), told, check).await
    }

    /// Fetches all that is missing, from those who are `members` at a time, first what is needed next where this machine is after `step`. Tells of
    /// each file.
    ///
    /// # Errors
    /// Why the rest can't be had, if nothing came for long, whoever was asked.
    pub(crate) async fn complete<S, Open>(
        &self,
        open: &impl Fn(PeerId) -> Open,
        members: impl Fn() -> Vec<PeerId>,
        step: impl Fn() -> u64,
        observer: &dyn Observer,
    ) -> Result<(), NodeError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        Open: Future<Output = io::Result<S>> + Send + 'static,
    {
        let (mut came, mut retry) = (Instant::now(), FIRST_RETRY);
        loop {
            let (this, at, before) = (self.clone(), step(), self.fetched.load(Relaxed));
            let Some(file) = blocking(move || Ok(this.next(at))).await? else { return Ok(()) };
            let fetched = self.fetch(open, &members(), file, |_, _| {}).await;
            if fetched.is_ok() || self.fetched.load(Relaxed) > before {
                (came, retry) = (Instant::now(), FIRST_RETRY);
            }
            match fetched {
                Ok(()) => {
                    if self.arrivals.here() == self.arrivals.files() {
                        self.place.end_arriving().await?;
                    }
                    self.tell(observer);
                }
                Err(Failure { reason, .. }) if came.elapsed() >= PATIENCE => return Err(NodeError::NoData { reason }),
                Err(Failure { reason, .. }) => {
                    tracing::info!(file, reason, "a file of the data can't be had yet");
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
