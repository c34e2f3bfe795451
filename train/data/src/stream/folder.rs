//! Images in folders, or one alone, for a trained model.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::vec;

use starling_run::data::ImageSize;

use super::{Block, Blocks, InputSpec, LabelPolicy};
use crate::error::DataError;
use crate::images::decode::{self, Form};
use crate::images::listed;
use crate::images::listing::Listing;

/// Images that are decoded one after another.
pub(super) struct Folder {
    path: PathBuf,
    form: Form,
    images: vec::IntoIter<Listing>,
    /// One for each class; none if nobody asks for labels.
    classes: Vec<String>,
    /// The bytes of one that is no file in a folder.
    alone: Option<Vec<u8>>,
    /// How many have been read.
    read: u64,
}

impl Folder {
    /// All images of a folder; if their labels are wanted, as in training.
    pub(super) fn open(path: &Path, inputs: &InputSpec, labels: LabelPolicy) -> Result<Self, DataError> {
        let form = form(path, inputs)?;
        let listed = listed(path, labels == LabelPolicy::Wanted)?;
        let (images, classes) = (listed.images.into_iter(), listed.classes);
        Ok(Self { path: path.to_owned(), form, images, classes, alone: None, read: 0 })
    }

    /// The image that these bytes are.
    pub(super) fn of_one(bytes: impl Read, path: &Path, inputs: &InputSpec) -> Result<Self, DataError> {
        let form = form(path, inputs)?;
        let alone = Some(decode::taken(bytes, path)?);
        let path_alone = path.file_name().map_or_else(|| path.to_owned(), PathBuf::from);
        let images = vec![Listing { path: path_alone, class: None, part: None }].into_iter();
        Ok(Self { path: path.to_owned(), form, images, classes: Vec::new(), alone, read: 0 })
    }
}

impl Blocks for Folder {
    fn next(&mut self, most: usize) -> Result<Block, DataError> {
        let mut block = Block::default();
        for image in self.images.by_ref().take(most) {
            let (bytes, file) = match self.alone.take() {
                Some(bytes) => (bytes, self.path.clone()),
                None => (image.bytes(&self.path)?, image.told(&self.path)),
            };
            let path = image.shown(&self.path);
            block.values.extend(decode::decode(&bytes, &file, self.form)?.into_iter().map(f64::from));
            block.labels.extend(image.class.and_then(|class| self.classes.get(class as usize)).cloned());
            self.read += 1;
            block.rows.push(self.read);
            block.files.push(path);
        }
        Ok(block)
    }

    fn has_labels(&self) -> bool {
        !self.classes.is_empty()
    }

    fn are_files(&self) -> bool {
        true
    }
}

/// What a model takes, if it takes images.
fn form(path: &Path, inputs: &InputSpec) -> Result<Form, DataError> {
    let [channels, height, width] = inputs.shape;
    if [1, 3].contains(&channels) && height.max(width) <= ImageSize::MAX_SIDE && inputs.label.is_empty() {
        return Ok(Form { channels, size: ImageSize { height, width } });
    }
    let reason = "it holds images, but the model takes a table's rows (`starling model show`)".to_owned();
    Err(DataError::File { path: path.to_owned(), reason })
}
