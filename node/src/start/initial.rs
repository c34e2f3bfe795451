//! The values that a run begins with, where its founder has given them: each member has them on disk before it takes part, and hands them
//! out to those who join. So all can compute the state before the first step, as they can where values are drawn.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use starling_run::checkpoint::write_atomically;
use starling_run::state::bytes::write_numbers;
use starling_run::state::initial;
use starling_run::{Manifest, SharedDataset};
use starling_topology::PeerId;

use crate::access::Access;
use crate::credentials::identity::{Identity, to_libp2p};
use crate::error::NodeError;
use crate::net::behaviour::Protocols;
use crate::observe::report::{Observer, Report};
use crate::settings::Settings;
use crate::start::client::Client;
use crate::start::client::ask::Member;
use crate::start::dataset::{Members, downloading};
use crate::start::node::blocking;
use crate::transfer::data::{self, DataRequest, Failure, FileSet};

/// The folder of the data directory that holds them, in one folder for each.
const DATA: &str = "data";
/// What the file is called, here and on the wire.
const NAME: &str = "initial.f32";

/// Where a run's initial values are kept.
#[derive(Debug, Clone)]
struct Place {
    manifest: Manifest,
    folder: PathBuf,
    /// What is here of them, while they are being downloaded.
    part: PathBuf,
}

/// Keeps the values that a founder has given its run.
pub(crate) fn keep(data_dir: &Path, manifest: &Manifest, values: &[f32]) -> Result<(), NodeError> {
    let place = Place::new(data_dir, manifest);
    if place.read(&place.folder).is_ok() {
        return Ok(());
    }
    let mut bytes = Vec::with_capacity(4 * values.len());
    write_numbers(values, &mut bytes).expect("invariant: writing to memory does not fail");
    fs::create_dir_all(&place.folder).map_err(|error| NodeError::file("write", &place.folder, error))?;
    Ok(write_atomically(&place.folder.join(NAME), &bytes).map_err(starling_run::Error::from)?)
}

/// What joiners may ask for, if the run's values are given. They are here.
pub(crate) fn share(data_dir: &Path, manifest: &Manifest) -> Result<Option<Arc<SharedDataset>>, NodeError> {
    if !manifest.given {
        return Ok(None);
    }
    let file = Place::new(data_dir, manifest).folder.join(NAME);
    let shared = SharedDataset::open(&[NAME], &[file]).map_err(starling_run::Error::from)?;
    Ok(shared.map(Arc::new))
}

/// The values that were given, from the disk, or from members; `None` if the run's are drawn.
pub(crate) async fn of_run(
    settings: &Settings,
    manifest: &Manifest,
    (identity, member): (&Identity, &Member),
    observer: &dyn Observer,
) -> Result<Option<Vec<f32>>, NodeError> {
    if !manifest.given {
        return Ok(None);
    }
    let place = Place::new(&settings.data_dir, manifest);
    if let Some(values) = place.look(observer).await? {
        return Ok(Some(values));
    }
    let access = Access::visiting(identity.peer_id(), Some(manifest.run_id()), &member.credentials);
    let client = Client::start(identity, access, settings.mdns, Protocols::new(manifest.run_id()).state)?;
    let members = Members::ask(&client, identity, member).await;
    let open = |peer: PeerId| client.open(to_libp2p(peer), members.addresses.get(&peer).cloned().unwrap_or_default());
    let mut taken = None;
    let check = async || -> Result<(), String> {
        let here = place.clone();
        let values = tokio::task::spawn_blocking(move || here.take()).await.map_err(|error| error.to_string())??;
        taken = Some(values);
        Ok(())
    };
    let (files, names) = (FileSet::Initial, &[NAME]);
    let wanted = DataRequest { files, names, folder: &place.part, only: None, known: None, max_bytes: place.bytes() };
    match data::fetch(&open, &members.asked, wanted, downloading(observer), check).await {
        Ok(()) => taken.map(Some).ok_or(NodeError::Stopped("download")),
        Err(Failure { reason, .. }) => Err(NodeError::NoInitial { reason }),
    }
}

impl Place {
    fn new(data_dir: &Path, manifest: &Manifest) -> Self {
        let (dir, name) = (data_dir.join(DATA), manifest.initial.to_string());
        Self { manifest: manifest.clone(), folder: dir.join(&name), part: dir.join(format!("{name}.part")) }
    }

    fn bytes(&self) -> u64 {
        4 * self.manifest.parameters() as u64
    }

    /// What is here from an earlier time. What was damaged since is moved to where a download goes on from it.
    async fn look(&self, observer: &dyn Observer) -> Result<Option<Vec<f32>>, NodeError> {
        if !self.folder.exists() {
            return Ok(None);
        }
        let place = self.clone();
        let looked = blocking(move || {
            let read = place.read(&place.folder);
            if read.is_err() {
                let failed = |source| NodeError::file("write", &place.part, source);
                if place.part.exists() {
                    fs::remove_dir_all(&place.part).map_err(failed)?;
                }
                fs::rename(&place.folder, &place.part).map_err(failed)?;
            }
            Ok(read)
        });
        match looked.await? {
            Ok(values) => Ok(Some(values)),
            Err(reason) => {
                observer.report(&Report::Warning { message: format!("{reason}; what is damaged is downloaded again") });
                Ok(None)
            }
        }
    }

    /// What has been downloaded, in its place.
    fn take(&self) -> Result<Vec<f32>, String> {
        let values = self.read(&self.part)?;
        fs::rename(&self.part, &self.folder)
            .map_err(|error| format!("cannot rename `{}`: {error}", self.part.display()))?;
        Ok(values)
    }

    /// The file in `folder`, if it is the run's.
    fn read(&self, folder: &Path) -> Result<Vec<f32>, String> {
        let path = folder.join(NAME);
        let failed = |error: std::io::Error| format!("cannot read `{}`: {error}", path.display());
        let file = fs::File::open(&path).map_err(failed)?;
        let mut bytes = Vec::new();
        file.take(self.bytes() + 1).read_to_end(&mut bytes).map_err(failed)?;
        let (numbers, rest) = bytes.as_chunks::<4>();
        let values: Vec<f32> = numbers.iter().map(|number| f32::from_le_bytes(*number)).collect();
        let is_whole = bytes.len() as u64 == self.bytes() && rest.is_empty();
        if is_whole && initial::digest(&values) == self.manifest.initial {
            return Ok(values);
        }
        Err(format!("`{}` does not hold the values that the run begins with", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use starling_topology::Digest;

    use super::*;
    use crate::store::manifest_file::tests::digits;

    struct Silent;

    impl Observer for Silent {
        fn report(&self, _: &Report) {}
    }

    fn manifest(values: &[f32]) -> Manifest {
        Manifest { given: true, parameters: values.len() as u64, initial: initial::digest(values), ..digits() }
    }

    #[tokio::test]
    async fn what_is_kept_is_read_back_and_what_is_damaged_is_not() {
        let values = [1.0, -0.0, 3.5e-40];
        let (dir, manifest) = (tempfile::tempdir().expect("a temp dir"), manifest(&values));
        let place = Place::new(dir.path(), &manifest);
        assert_eq!(place.look(&Silent).await.expect("looked"), None);
        keep(dir.path(), &manifest, &values).expect("kept");
        keep(dir.path(), &manifest, &values).expect("it is there");
        let read = place.look(&Silent).await.expect("looked").expect("there");
        let read: [f32; 3] = read.try_into().expect("as many");
        assert_eq!(read.map(f32::to_bits), values.map(f32::to_bits));
        let shared = share(dir.path(), &manifest).expect("readable").expect("given");
        assert_eq!(shared.manifest().bytes(), 12);
        assert!(share(dir.path(), &Manifest { given: false, ..manifest.clone() }).expect("drawn").is_none());
        let other = Place { manifest: Manifest { initial: Digest([1; 32]), ..manifest.clone() }, ..place.clone() };
        assert!(other.read(&other.folder).expect_err("another run's").contains("does not hold the values"));
        for damaged in [&[0; 12][..], &[0; 11], &[0; 4096], &[]] {
            keep(dir.path(), &manifest, &values).expect("kept");
            fs::write(place.folder.join(NAME), damaged).expect("written");
            assert_eq!(place.look(&Silent).await.expect("looked"), None);
            assert!(place.part.join(NAME).exists() && !place.folder.exists(), "a download goes on from it");
        }
    }
}
