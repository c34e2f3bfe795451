//! What was done to the data of a run before training, kept in the data directory, so that its checkpoints can be exported
//! where the data is not.

use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};

use starling_run::data::MAX_PREPROCESSING_BYTES;
use starling_run::{DataDescription, Manifest, PreprocessingSpec};

use crate::error::NodeError;
use crate::store::private_file;

/// Where the preprocessing of one run is kept.
#[derive(Debug, Clone)]
pub struct PreprocessingFile {
    path: PathBuf,
    description: DataDescription,
}

impl PreprocessingFile {
    /// That of `manifest`'s run, in `data_dir`.
    pub fn new(data_dir: &Path, manifest: &Manifest) -> Self {
        let name = format!("preprocessing-{}", &manifest.run_id().to_string()[..16]);
        Self { path: data_dir.join(name), description: manifest.data.clone() }
    }

    /// Keeps `preprocessing`, if it is what the run's manifest names, and not too long to be handed out. A machine whose own
    /// table has other column names, and that nobody told the run's, has another one.
    ///
    /// # Errors
    /// [`NodeError::File`] if it can't be written.
    pub(crate) fn store(&self, preprocessing: &PreprocessingSpec) -> Result<(), NodeError> {
        let bytes = preprocessing.encode();
        if PreprocessingSpec::decode(&bytes, &self.description).is_err() {
            return Ok(());
        }
        private_file::write(&self.path, &bytes)
    }

    /// What is kept; `None` if nothing is.
    ///
    /// # Errors
    /// [`NodeError::File`] if it can't be read, or is not what the run's manifest names.
    pub fn load(&self) -> Result<Option<PreprocessingSpec>, NodeError> {
        let Some(bytes) = private_file::read_up_to(&self.path, MAX_PREPROCESSING_BYTES as u64)? else {
            return Ok(None);
        };
        let preprocessing = PreprocessingSpec::decode(&bytes, &self.description);
        let failed = |reason| NodeError::file("read", &self.path, Error::new(ErrorKind::InvalidData, reason));
        preprocessing.map(Some).map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use starling_run::FeatureScale;
    use starling_topology::Digest;

    use super::*;
    use crate::store::manifest_file::tests::digits;

    #[test]
    fn what_the_run_names_is_kept_and_nothing_else() {
        let classes = (0..10).map(|class: u32| class.to_string()).collect();
        let (features, columns) = (Vec::new(), Vec::new());
        let ours = PreprocessingSpec {
            scales: FeatureScale::Divide(16.0),
            classes,
            features,
            label: Vec::new(),
            columns,
            labels: Vec::new(),
        };
        let mut manifest = digits();
        manifest.data.preprocessing = ours.digest();
        let dir = tempfile::tempdir().expect("a temp dir");
        let file = PreprocessingFile::new(dir.path(), &manifest);
        assert_eq!(file.load().expect("nothing there"), None);
        let other = PreprocessingSpec { label: vec!["kind".to_owned()], ..ours.clone() };
        file.store(&other).expect("left out");
        assert_eq!(file.load().expect("nothing there"), None);
        file.store(&ours).expect("stored");
        assert_eq!(file.load().expect("read").as_ref(), Some(&ours));
        let data = DataDescription { preprocessing: Digest([1; 32]), ..manifest.data.clone() };
        let elsewhere = PreprocessingFile { description: data, ..file };
        let error = elsewhere.load().expect_err("another run's").to_string();
        assert!(error.contains("preprocessing-") && error.contains("blake3"), "{error}");
    }
}
