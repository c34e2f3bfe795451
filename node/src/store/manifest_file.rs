//! The manifest of a run, kept in the data directory, so that its checkpoints can be exported without the swarm.

use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};

use starling_run::{Manifest, ManifestError};
use starling_topology::RunId;

use crate::error::NodeError;
use crate::store::private_file;

const PREFIX: &str = "manifest-";

fn path(data_dir: &Path, run: RunId) -> PathBuf {
    data_dir.join(format!("{PREFIX}{}", &run.to_string()[..16]))
}

/// Keeps `manifest` in `data_dir`.
///
/// # Errors
/// [`NodeError::File`] if it can't be written.
pub fn store(data_dir: &Path, manifest: &Manifest) -> Result<(), NodeError> {
    private_file::write(&path(data_dir, manifest.run_id()), &manifest.encode())
}

/// The manifest of `run` that is kept in `data_dir`.
///
/// # Errors
/// [`NodeError::File`] if it is not there, can't be read, or is another run's.
pub fn load(data_dir: &Path, run: RunId) -> Result<Manifest, NodeError> {
    let path = path(data_dir, run);
    let failed = |kind, reason: String| NodeError::file("read", &path, Error::new(kind, reason));
    let bytes = private_file::read(&path)?
        .ok_or_else(|| failed(ErrorKind::NotFound, "the run's manifest is not there".to_owned()))?;
    let manifest = Manifest::decode(&bytes).map_err(|error| failed(ErrorKind::InvalidData, error.to_string()))?;
    if manifest.run_id() != run {
        let reason = format!("it is the manifest of run {}, not of {run}", manifest.run_id());
        return Err(failed(ErrorKind::InvalidData, reason));
    }
    Ok(manifest)
}

/// The manifests that a data directory holds.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// Those that this release can use, the one stored last first.
    pub(crate) manifests: Vec<Manifest>,
    /// Files that hold another manifest than the one that they are named after, or none.
    pub(crate) damaged: Vec<PathBuf>,
}

impl Known {
    /// What `data_dir` holds.
    ///
    /// # Errors
    /// [`NodeError::File`] if the directory or a file can't be read.
    pub(crate) fn load(data_dir: &Path) -> Result<Self, NodeError> {
        let failed = |source| NodeError::file("read", data_dir, source);
        let entries = match std::fs::read_dir(data_dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(failed(error)),
        };
        let (mut found, mut damaged) = (Vec::new(), Vec::new());
        for entry in entries {
            let entry = entry.map_err(failed)?;
            let file = entry.path();
            if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
                continue;
            }
            match Manifest::decode(&private_file::read(&file)?.unwrap_or_default()) {
                Ok(manifest) if path(data_dir, manifest.run_id()) == file => {
                    let modified = entry.metadata().and_then(|metadata| metadata.modified()).map_err(failed)?;
                    found.push((modified, manifest.run_id(), manifest));
                }
                // Of a run that this release can't take part in.
                Err(ManifestError::WireVersion { .. }) => {}
                Ok(_) | Err(_) => damaged.push(file),
            }
        }
        found.sort_by_key(|(modified, run, _)| std::cmp::Reverse((*modified, *run)));
        damaged.sort();
        Ok(Self { manifests: found.into_iter().map(|(_, _, manifest)| manifest).collect(), damaged })
    }

    /// Checks that no run hides behind a damaged file that `run` might be a mistake for.
    ///
    /// # Errors
    /// [`NodeError::DamagedManifest`] if there is a damaged file, but none of them is named after `run`, which would replace it.
    pub(crate) fn admit(&self, data_dir: &Path, run: RunId) -> Result<(), NodeError> {
        match self.damaged.first() {
            Some(file) if !self.damaged.contains(&path(data_dir, run)) => {
                Err(NodeError::DamagedManifest { path: file.clone() })
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use starling_run::data::DIGITS;
    use starling_run::{DataDescription, RunSpec};
    use starling_topology::Digest;

    use super::*;

    /// Of a run over data such as the built-in digits.
    pub(crate) fn digits() -> Manifest {
        let data = DataDescription {
            kind: DIGITS.to_owned(),
            samples: 1_797,
            features: 64,
            shape: [1, 8, 8],
            classes: 10,
            held_out: 200,
            fingerprint: Digest([3; 32]),
            ..DataDescription::none()
        };
        Manifest { parameters: 4_810, ..Manifest::of(&RunSpec::default(), data) }
    }

    #[test]
    fn a_manifest_is_found_by_its_run() {
        let manifest = digits();
        let dir = tempfile::tempdir().expect("a temp dir");
        store(dir.path(), &manifest).expect("stored");
        assert_eq!(load(dir.path(), manifest.run_id()).expect("loaded"), manifest);
        let other = RunId([7; 32]);
        let error = load(dir.path(), other).expect_err("not there").to_string();
        assert!(error.contains("manifest-0707"), "{error}");
        std::fs::rename(path(dir.path(), manifest.run_id()), path(dir.path(), other)).expect("renamed");
        let error = load(dir.path(), other).expect_err("another run's").to_string();
        assert!(error.contains(&manifest.run_id().to_string()), "{error}");
    }
}
