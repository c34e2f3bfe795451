//! The files of the data set, and the values that a run begins with: any that a donor shares, because what they read as is checked in the
//! end.

mod known_manifests;

use std::future::Future;
use std::io;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::{AsyncRead, AsyncWrite};
use starling_engine::download::DownloadConfig;
use starling_run::sharing::MAX_DATA_MANIFEST_BYTES;
use starling_run::{DataManifest, Download, SharingError};
use starling_topology::message::{MAX_ADDRESS_BYTES, MAX_ADDRESSES};
use starling_topology::{Contact, Digest, PeerId};

use super::chunks::{self, Whole};
use super::{Reply, Request};

pub(crate) use known_manifests::KnownManifests;

/// Members that a member tells of. Each of these is asked for the data set.
pub(super) const MAX_TOLD: usize = 64;
/// The longest list of members, in bytes.
const MAX_TOLD_BYTES: usize = MAX_TOLD * (size_of::<PeerId>() + 8 + MAX_ADDRESSES * (MAX_ADDRESS_BYTES + 8));
/// How long a member may take to say what it has.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// Asks a member who else is in the view.
pub(crate) async fn members(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<Vec<Contact>> {
    let reply = chunks::ask(&mut stream, &Request::Members, MAX_TOLD_BYTES, ANSWER_LIMIT).await?;
    let Reply::Members(contacts) = reply else {
        return Err(io::Error::other("it did not say who is in its view"));
    };
    Ok(contacts.into_iter().filter(Contact::is_bounded).take(MAX_TOLD).collect())
}

/// Which files are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileSet {
    /// Those of the data set.
    DataSet,
    /// The values that the run begins with.
    Initial,
}

/// What is asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DataRequest<'a> {
    pub(crate) files: FileSet,
    /// What the files of such data are called.
    pub(crate) names: &'a [&'a str],
    /// Where it is put, and may be in part.
    pub(crate) folder: &'a Path,
    /// Which of them are; all if `None`.
    pub(crate) only: Option<&'a [FileRequest]>,
    /// What earlier downloads have found out, and this one does; `None` if nobody needs to know.
    pub(crate) known: Option<&'a Mutex<KnownManifests>>,
    /// How many bytes all of them may have.
    pub(crate) max_bytes: u64,
}

/// One of several files that is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileRequest {
    /// Its number in its kind's order.
    pub(crate) number: usize,
    /// How long it can be: whoever says something else has something else, and nothing is written for it.
    pub(crate) bytes: RangeInclusive<u64>,
}

impl DataRequest<'_> {
    fn known(&self) -> Option<MutexGuard<'_, KnownManifests>> {
        // A lock poisoned by a panic elsewhere still guards sound data.
        Some(self.known?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What of `manifest` is asked for.
    fn part(&self, manifest: &DataManifest) -> Result<DataManifest, String> {
        let Some(only) = self.only else { return Ok(manifest.clone()) };
        let found = manifest.bytes();
        if found > self.max_bytes {
            return Err(SharingError::TooLong { found, limit: self.max_bytes }.to_string());
        }
        let numbers: Vec<usize> = only.iter().map(|file| file.number).collect();
        let part = manifest.part(&numbers).ok_or("it has not as many files as the data")?;
        match part.files.iter().zip(only).find(|(file, asked)| !asked.bytes.contains(&file.bytes)) {
            None => Ok(part),
            Some((file, asked)) => {
                let (least, most) = (asked.bytes.start(), asked.bytes.end());
                let expected = if least == most { most.to_string() } else { format!("{least} to {most}") };
                Err(format!("its `{}` has {} bytes, but that of the run's data has {expected}", file.name, file.bytes))
            }
        }
    }
}

/// Why there is none.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) reason: String,
    /// Whether somebody had any.
    pub(crate) is_shared: bool,
    /// How many bytes the smallest has of what is too large.
    pub(crate) too_large: Option<u64>,
}

/// Fetches from `members` what `wanted.folder` does not hold yet of files that `check` takes for the run's data, those first that
/// most of them have. `progress` is told how many bytes are here of those that are asked for, and how many all files have.
///
/// # Errors
/// Why it can't be had.
pub(crate) async fn fetch<S, Open>(
    open: &impl Fn(PeerId) -> Open,
    members: &[PeerId],
    wanted: DataRequest<'_>,
    progress: impl FnMut(u64, u64),
    check: impl AsyncFnMut() -> Result<(), String>,
) -> Result<(), Failure>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    Open: Future<Output = io::Result<S>> + Send + 'static,
{
    fetch_for(open, members, wanted, progress, AsClosure(check)).await
}

/// Says whether files that have come are what they have to be.
pub(crate) trait FileCheck {
    /// # Errors
    /// Why they are not.
    async fn check(&mut self) -> Result<(), String>;
}

struct AsClosure<C>(C);

impl<C: AsyncFnMut() -> Result<(), String>> FileCheck for AsClosure<C> {
    async fn check(&mut self) -> Result<(), String> {
        (self.0)().await
    }
}

/// As [`fetch`]; of one that is no closure, tasks can be made.
///
/// # Errors
/// Why it can't be had.
pub(crate) async fn fetch_for<S, Open>(
    open: &impl Fn(PeerId) -> Open,
    members: &[PeerId],
    wanted: DataRequest<'_>,
    progress: impl FnMut(u64, u64),
    check: impl FileCheck,
) -> Result<(), Failure>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    Open: Future<Output = io::Result<S>> + Send + 'static,
{
    let (here, is_shared, too_large) = (0, false, None);
    let asked = wanted.known().map(|known| known.order(members, rand::random()));
    let (manifest, served) = (None, Vec::new());
    let mut arriving =
        Arriving { wanted, manifest, served, download: None, here, of: 0, is_shared, too_large, progress, check };
    let members = asked.as_deref().unwrap_or(members);
    let fetched = chunks::fetch(open, members, DownloadConfig::of_data(), &mut arriving).await;
    let Arriving { is_shared, too_large, .. } = arriving;
    fetched.map_err(|reason| Failure { reason, is_shared, too_large })
}

/// Files on their way to the disk.
struct Arriving<'a, Progress, Check> {
    wanted: DataRequest<'a>,
    /// What is being loaded, and who has handed out chunks of it.
    manifest: Option<DataManifest>,
    served: Vec<PeerId>,
    download: Option<Download>,
    here: u64,
    of: u64,
    is_shared: bool,
    too_large: Option<u64>,
    progress: Progress,
    check: Check,
}

impl<Progress, Check> Whole for Arriving<'_, Progress, Check>
where
    Progress: FnMut(u64, u64),
    Check: FileCheck,
{
    type Manifest = DataManifest;

    fn question(&self) -> (Request, usize) {
        let request = match self.wanted.files {
            FileSet::DataSet => Request::DataManifest,
            FileSet::Initial => Request::InitialManifest,
        };
        (request, MAX_DATA_MANIFEST_BYTES)
    }

    fn read(&self, bytes: &[u8]) -> Result<DataManifest, String> {
        let manifest = DataManifest::decode(bytes, self.wanted.names).map_err(|error| error.to_string())?;
        match self.wanted.known().is_some_and(|known| known.is_wrong(manifest.id())) {
            true => Err("it has files again that were found not to be the run's".to_owned()),
            false => Ok(manifest),
        }
    }

    fn preferred(&self) -> Option<DataManifest> {
        self.wanted.known()?.right().cloned()
    }

    fn served(&mut self, donor: PeerId) {
        if !self.served.contains(&donor) {
            self.served.push(donor);
        }
    }

    fn id(manifest: &DataManifest) -> Digest {
        manifest.id()
    }

    async fn begin(&mut self, manifest: DataManifest) -> Result<Vec<Digest>, String> {
        let DataRequest { folder, max_bytes, .. } = self.wanted;
        self.served.clear();
        (self.of, self.is_shared) = (manifest.bytes(), true);
        if self.of > max_bytes {
            self.too_large = Some(self.too_large.map_or(self.of, |smallest| smallest.min(self.of)));
        }
        let part = match self.wanted.part(&manifest) {
            Ok(part) => part,
            Err(reason) => {
                self.wanted.known().into_iter().for_each(|mut known| known.refuse(&manifest));
                return Err(reason);
            }
        };
        self.manifest = Some(manifest);
        let folder = folder.to_owned();
        // What is here already is read, and may be much.
        let opened = tokio::task::spawn_blocking(move || Download::open(&folder, part, max_bytes)).await;
        let opened = opened.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
        self.here = opened.bytes_here();
        (self.progress)(self.here, self.of);
        Ok(self.download.insert(opened).missing())
    }

    /// Where it may be a member that downloads, nothing else may wait for the disk.
    async fn insert(&mut self, chunk: Vec<u8>) -> Result<(), String> {
        let Some(mut download) = self.download.take() else { return Ok(()) };
        let inserted = tokio::task::spawn_blocking(move || {
            let inserted = download.insert(&chunk);
            (download, inserted)
        });
        let (download, inserted) = inserted.await.map_err(|error| error.to_string())?;
        self.download = Some(download);
        let inserted = inserted.map_err(|error| error.to_string())?;
        self.here += inserted;
        if let (Some(mut known), Some(manifest)) = (self.wanted.known(), &self.manifest)
            && known.is_right(manifest)
        {
            known.count(inserted);
        }
        (self.progress)(self.here, self.of);
        Ok(())
    }

    async fn finish(&mut self) -> Result<(), String> {
        let checked = self.check.check().await;
        if let (Some(mut known), Some(manifest)) = (self.wanted.known(), self.manifest.take()) {
            match &checked {
                Ok(()) => known.confirm(manifest, &self.served),
                Err(_) => known.refuse(&manifest),
            }
        }
        checked.inspect_err(|reason| tracing::warn!(reason, "a data set that members share can't be had"))
    }
}

#[cfg(test)]
mod tests;
