//! Where a member's samples come from: its own disk, or, for a joiner that has none, other members.

pub(crate) mod arriving;

use std::collections::BTreeMap;
use std::fs;
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::{AsyncRead, AsyncWrite};
use libp2p::Multiaddr;
use starling_run::data::{DIGITS, RunPosition, TOKENS, TableColumn};
use starling_run::{DataOptions, Kind, Manifest, PreprocessingSpec, Program, SharedDataset, Workload};
use starling_topology::{Contact, PeerId};
use tokio::time::Instant;

use crate::access::Access;
use crate::credentials::identity::{Identity, from_libp2p, to_libp2p};
use crate::error::NodeError;
use crate::net::behaviour::Protocols;
use crate::observe::report::{Observer, Report};
use crate::settings::Settings;
use crate::start::client::Client;
use crate::start::client::ask::Member;
use crate::start::node::blocking;
use crate::transfer::data::{self, DataRequest, Failure, FileRequest, FileSet, KnownManifests};
use crate::transfer::questions;
use arriving::ArrivingData;

/// The folder of the data directory that holds downloaded data sets, in one folder for each.
const DATA: &str = "data";
/// How long a member may take to say what its data is.
const ASK_LIMIT: Duration = Duration::from_secs(10);
/// How often the progress of a download is told.
const REPORT_INTERVAL: Duration = Duration::from_millis(250);

/// Samples, and where they are.
pub(crate) struct Samples {
    pub(crate) workload: Box<dyn Workload>,
    /// Where they were read from.
    pub(crate) source: String,
    /// Members that we heard of on the way.
    pub(crate) told: Vec<Contact>,
    /// What is to come while it is trained on.
    pub(crate) rest: Option<ArrivingData>,
}

/// The data that this machine's user named; the digits if none.
pub(crate) fn source(settings: &Settings) -> &str {
    settings.data.as_deref().unwrap_or(DIGITS)
}

/// How the user wants [`source`] to be read.
pub fn options(settings: &Settings, held_out: f32, seed: u64) -> DataOptions {
    let columns = |names: &[String]| names.iter().cloned().map(TableColumn::Written).collect();
    DataOptions {
        source: source(settings).to_owned(),
        label: settings.label.clone().map(TableColumn::Written),
        header: settings.header,
        delimiter: settings.delimiter,
        ignored: columns(&settings.ignored),
        categories: columns(&settings.categories),
        weights: settings.weights.clone().map(TableColumn::Written),
        split_by: settings.split_by.clone().map(TableColumn::Written),
        held_out_file: settings.held_out_file.clone(),
        context: settings.context,
        image_size: settings.image_size,
        held_out,
        seed,
        held_bytes: settings.data_held,
        ..DataOptions::default()
    }
}

/// What to say of settings that say how a table of one's own is read, where there is none.
fn unheeded(settings: &Settings) -> Option<String> {
    let options = options(settings, 0.0, 0);
    let mut said = options.said_of_tables();
    said.extend(options.context.map(|_| "--context"));
    said.extend(options.image_size.map(|_| "--image-size"));
    (!said.is_empty()).then(|| {
        format!(
            "{}: of no effect, because this machine names no data of its own (--data) and takes the run's, which is read as its founder \
             said",
            said.join(", ")
        )
    })
}

/// What `source`, the run's data on this machine, consists of, if the user shares it and it has files, called as data of this kind is:
/// one file can be read in several ways. Reads all of it. What has to be made first for others is put where a joiner has its download.
pub(crate) fn share(
    settings: &Settings,
    program: &dyn Program,
    (source, manifest): (&str, &Manifest),
) -> Result<Option<Arc<SharedDataset>>, NodeError> {
    if !settings.share_data {
        return Ok(None);
    }
    // Without data of its own a machine has the run's, which is as the run says.
    let said = match settings.data {
        Some(_) => options(settings, 0.0, 0),
        None => DataOptions { held_bytes: settings.data_held, ..DataOptions::default() },
    };
    let options = DataOptions { source: source.to_owned(), ..said.for_run(manifest) };
    let place = settings.data_dir.join(DATA).join(manifest.data.fingerprint.to_string());
    let (found, files) = program.shared_files(&options, &place)?;
    let kind = program.kind(&manifest.data.kind).filter(|kind| kind.files.len() == files.len()).unwrap_or(found);
    let shared = SharedDataset::open(kind.files, &files).map_err(starling_run::Error::from)?;
    Ok(shared.map(Arc::new))
}

/// A joiner's samples: those that its user named, or its program brings; else those of the run, which are built in, here from an
/// earlier time, or downloaded from members.
pub(crate) async fn of_run(
    settings: &Settings,
    program: Arc<dyn Program>,
    manifest: &Manifest,
    (identity, member): (&Identity, &Member),
    observer: Arc<dyn Observer>,
) -> Result<Samples, NodeError> {
    if settings.data.is_none() && !manifest.data.is_table() {
        let data = format!("the run's data is no table ({})", manifest.data.kind);
        let checked = options(settings, 0.0, 0).check_no_table(&data, "join a run on a table");
        checked.map_err(NodeError::NoTable)?;
    }
    let brings_its_own = program.files(DIGITS)?.0 == Kind::PROGRAM;
    let kind = program.kind(&manifest.data.kind).filter(|_| settings.data.is_none() && !brings_its_own);
    let Some(kind) = kind.filter(|kind| !kind.files.is_empty()) else {
        let source = kind.map_or_else(|| source(settings), |kind| kind.name).to_owned();
        let options = DataOptions { source: source.clone(), ..options(settings, 0.0, 0).for_run(manifest) };
        let workload = blocking(move || Ok(program.read(&options)?)).await?;
        return Ok(Samples { workload, source, told: Vec::new(), rest: None });
    };
    if let Some(message) = unheeded(settings) {
        observer.report(&Report::Warning { message });
    }
    let place = Place::new(settings, manifest, program, kind);
    let source = place.source(&place.folder);
    let can_arrive = manifest.can_arrive();
    if place.is_arriving() && !can_arrive {
        place.stop_arriving().await?;
    }
    if !place.is_arriving()
        && let Some(workload) = place.look(&*observer).await?
    {
        return Ok(Samples { workload, source, told: Vec::new(), rest: None });
    }
    let protocol = Protocols::new(manifest.run_id()).state;
    let access = Access::visiting(identity.peer_id(), Some(manifest.run_id()), &member.credentials);
    let client = Client::start(identity, access, settings.mdns, protocol)?;
    let members = Members::ask(&client, identity, member).await;
    let open = |peer: PeerId| client.open(to_libp2p(peer), members.addresses.get(&peer).cloned().unwrap_or_default());
    let (workload, rest) = match can_arrive {
        true => arriving::begin(&open, &members.asked, &place, settings.data_limit, &*observer).await?,
        false => (download(&open, &members.asked, &place, settings.data_limit, &*observer).await?, None),
    };
    Ok(Samples { workload, source, told: members.told, rest })
}

/// Fetches what is missing of a data set, before it is used.
pub(crate) async fn complete(
    settings: &Settings,
    manifest: &Manifest,
    rest: &ArrivingData,
    (identity, member): (&Identity, &Member),
    observer: &dyn Observer,
) -> Result<(), NodeError> {
    let access = Access::visiting(identity.peer_id(), Some(manifest.run_id()), &member.credentials);
    let client = Client::start(identity, access, settings.mdns, Protocols::new(manifest.run_id()).state)?;
    let members = Members::ask(&client, identity, member).await;
    let open = |peer: PeerId| client.open(to_libp2p(peer), members.addresses.get(&peer).cloned().unwrap_or_default());
    rest.complete(&open, || members.asked.clone(), || RunPosition::Behind(0..=0), observer).await
}

/// What a member says was done to the run's data before training; `None` if it does not say it, or not soon.
pub(crate) async fn preprocessing(
    settings: &Settings,
    manifest: &Manifest,
    (identity, member): (&Identity, &Member),
) -> Option<PreprocessingSpec> {
    let access = Access::visiting(identity.peer_id(), Some(manifest.run_id()), &member.credentials);
    let client = Client::start(identity, access, settings.mdns, Protocols::new(manifest.run_id()).state).ok()?;
    let asked = async {
        let mut stream = client.open(member.peer, member.addresses.clone().into()).await?;
        questions::preprocessing(&mut stream, manifest, ASK_LIMIT).await
    };
    match tokio::time::timeout(ASK_LIMIT, asked).await {
        Ok(Ok(preprocessing)) => preprocessing,
        Ok(Err(error)) => {
            tracing::info!(peer = %member.peer, %error, "a member did not say what was done to the data");
            None
        }
        Err(_) => None,
    }
}

/// Tells of a download, now and then and when it is whole.
pub(crate) fn downloading(observer: &dyn Observer) -> impl FnMut(u64, u64) {
    let mut told: Option<Instant> = None;
    move |bytes, of| {
        if bytes == of || told.is_none_or(|told| told.elapsed() >= REPORT_INTERVAL) {
            told = Some(Instant::now());
            observer.report(&Report::Downloading { bytes, of });
        }
    }
}

/// Downloads the data set of a run into its place, from those of `members` who share it.
async fn download<S, Open>(
    open: &impl Fn(PeerId) -> Open,
    members: &[PeerId],
    place: &Place,
    limit: u64,
    observer: &dyn Observer,
) -> Result<Box<dyn Workload>, NodeError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    Open: Future<Output = io::Result<S>> + Send + 'static,
{
    let mut taken = None;
    // Who names other files than most may only have them in another form, or it may lie.
    let check = async || -> Result<(), String> {
        let workload = place.read(&place.part, limit).await?;
        // What is read from its files all the time is read from where they stay.
        let stays = place.kind.name == TOKENS;
        let workload = Some(workload).filter(|_| !stays);
        fs::rename(&place.part, &place.folder)
            .map_err(|error| format!("cannot rename `{}`: {error}", place.part.display()))?;
        taken = match workload {
            Some(workload) => Some(workload),
            None => Some(place.read(&place.folder, limit).await?),
        };
        Ok(())
    };
    let (files, names) = (FileSet::DataSet, place.kind.files);
    let wanted = DataRequest { files, names, folder: &place.part, only: None, known: None, max_bytes: limit };
    let fetched = data::fetch(open, members, wanted, downloading(observer), check).await;
    fetched.map_err(|failure| not_there(place, limit, failure))?;
    taken.ok_or(NodeError::Stopped("download"))
}

/// Why the data set of a run can't be had.
fn not_there(place: &Place, limit: u64, Failure { reason, is_shared, too_large }: Failure) -> NodeError {
    match too_large {
        Some(bytes) => NodeError::DataTooLarge { bytes, limit },
        None if is_shared => NodeError::NoData { reason },
        None => {
            let description = &place.manifest.data;
            let (kind, samples) = (description.kind.clone(), description.samples);
            NodeError::NotShared { kind, samples, reason }
        }
    }
}

/// Whom to ask, and where they are.
pub(super) struct Members {
    /// The one that we join through first.
    pub(super) asked: Vec<PeerId>,
    pub(super) addresses: BTreeMap<PeerId, Arc<[Multiaddr]>>,
    told: Vec<Contact>,
}

impl Members {
    /// Asks the member that we join through for the others.
    pub(super) async fn ask(client: &Client, identity: &Identity, member: &Member) -> Self {
        let addresses: Arc<[Multiaddr]> = member.addresses.clone().into();
        let told = async { data::members(client.open(member.peer, addresses.clone()).await?).await };
        let told = told.await.unwrap_or_else(|error| {
            tracing::info!(peer = %member.peer, %error, "a member did not say who else is there");
            Vec::new()
        });
        let parsed = |contact: &Contact| {
            let addresses = contact.addresses.iter().filter_map(|address| address.parse().ok()).collect();
            (contact.peer, addresses)
        };
        let others = told.iter().filter(|contact| to_libp2p(contact.peer) != identity.peer_id());
        let mut known: BTreeMap<_, Arc<[Multiaddr]>> = others.map(parsed).collect();
        let first = from_libp2p(&member.peer);
        let others = known.keys().copied().filter(|peer| Some(*peer) != first);
        let asked = first.into_iter().chain(others).collect();
        // Where it says that it is may be another place than where we found it.
        known.extend(first.map(|first| (first, addresses)));
        Self { asked, addresses: known, told }
    }
}

/// Where the data set of a run is kept.
#[derive(Clone)]
struct Place {
    manifest: Manifest,
    /// Whose data it is.
    program: Arc<dyn Program>,
    kind: Kind,
    /// What may be held of a table.
    held_bytes: u64,
    /// All of it.
    folder: PathBuf,
    /// What is here of it, while it is being downloaded.
    part: PathBuf,
}

impl Place {
    fn new(settings: &Settings, manifest: &Manifest, program: Arc<dyn Program>, kind: Kind) -> Self {
        let name = manifest.data.fingerprint.to_string();
        let dir = settings.data_dir.join(DATA);
        Self {
            manifest: manifest.clone(),
            program,
            kind,
            held_bytes: settings.data_held,
            folder: dir.join(&name),
            part: dir.join(format!("{name}.part")),
        }
    }

    fn source(&self, folder: &Path) -> String {
        self.kind.source_in(folder).display().to_string()
    }

    /// What was downloaded at an earlier time. If it was damaged since, whatever is intact is kept for a download.
    async fn look(&self, observer: &dyn Observer) -> Result<Option<Box<dyn Workload>>, NodeError> {
        if !self.folder.exists() {
            return Ok(None);
        }
        let reason = match self.read(&self.folder, u64::MAX).await {
            Ok(workload) => return Ok(Some(workload)),
            Err(reason) => reason,
        };
        observer.report(&Report::Warning { message: format!("{reason}; what is damaged is downloaded again") });
        let place = self.clone();
        blocking(move || {
            let failed = |source| NodeError::file("write", &place.part, source);
            if place.part.exists() {
                fs::remove_dir_all(&place.part).map_err(failed)?;
            }
            fs::rename(&place.folder, &place.part).map_err(failed)
        })
        .await?;
        Ok(None)
    }

    /// What is asked for of these files, to be put where they stay.
    fn wanted<'a>(
        &'a self,
        only: &'a [FileRequest],
        known: &'a Mutex<KnownManifests>,
        max_bytes: u64,
    ) -> DataRequest<'a> {
        let (files, names) = (FileSet::DataSet, self.kind.files);
        DataRequest { files, names, folder: &self.folder, only: Some(only), known: Some(known), max_bytes }
    }

    /// Reads the files in `folder` as the run's members read theirs, and checks that they are the run's data.
    async fn read(&self, folder: &Path, max_file_bytes: u64) -> Result<Box<dyn Workload>, String> {
        self.read_as(folder, max_file_bytes, false).await
    }

    /// The same of what may be here in part, where it stays.
    async fn read_arriving(&self, max_file_bytes: u64) -> Result<Box<dyn Workload>, String> {
        self.read_as(&self.folder, max_file_bytes, true).await
    }

    async fn read_as(&self, folder: &Path, max_file_bytes: u64, arriving: bool) -> Result<Box<dyn Workload>, String> {
        let expects = Some(self.manifest.data.fingerprint);
        let (source, held_bytes) = (self.source(folder), self.held_bytes);
        let options = DataOptions { source, max_file_bytes, held_bytes, expects, arriving, ..DataOptions::default() };
        let options = options.for_run(&self.manifest);
        let program = self.program.clone();
        let read = blocking(move || Ok(program.read(&options)?)).await;
        let workload = read.map_err(|error| error.to_string())?;
        if workload.description().in_form_of(&self.manifest.data) == self.manifest.data {
            return Ok(workload);
        }
        Err(format!("`{}` does not hold the run's data", folder.display()))
    }
}

#[cfg(test)]
mod tests;
