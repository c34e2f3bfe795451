//! IDX images for a trained model.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::{Block, Blocks, InputSpec, LabelPolicy};
use crate::error::DataError;
use crate::idx::{self, IMAGES, LABELS, wrong};

/// A file of images that is being read, and its labels.
pub(super) struct Images {
    path: PathBuf,
    pixels: Box<dyn Read>,
    labels: Option<(PathBuf, Box<dyn Read>)>,
    features: usize,
    count: u64,
    /// How many images have been read.
    read: u64,
    is_held_out: bool,
}

impl Images {
    pub(super) fn open(
        mut pixels: Box<dyn Read>,
        path: &Path,
        inputs: &InputSpec,
        labels: LabelPolicy,
        is_held_out: bool,
    ) -> Result<Self, DataError> {
        let sizes = idx::dimensions(path, &mut pixels, IMAGES)?;
        let (count, found) = (u64::from(sizes[0]), [1, sizes[1], sizes[2]]);
        if found != inputs.shape {
            let [channels, height, width] = inputs.shape;
            let expected = match channels {
                1 => format!("{height}x{width}, as the model takes them"),
                _ => format!("{channels}x{height}x{width}, as the model takes them"),
            };
            return Err(wrong(path, "image size", expected, format!("{}x{}", sizes[1], sizes[2])));
        }
        let labels = (labels == LabelPolicy::Wanted).then(|| open_labels(path, count)).transpose()?;
        let path = path.to_owned();
        Ok(Self { path, pixels, labels, features: inputs.features, count, read: 0, is_held_out })
    }

    /// Nothing may follow what the header says.
    fn check_end(&mut self) -> Result<(), DataError> {
        let labels = self.labels.iter_mut().map(|(path, labels)| (&*path, labels));
        for (path, file) in [(&self.path, &mut self.pixels)].into_iter().chain(labels) {
            let mut byte = Vec::new();
            let end = file.by_ref().take(1).read_to_end(&mut byte);
            end.map_err(|source| DataError::Unreadable { path: path.clone(), source })?;
            if !byte.is_empty() {
                let expected = format!("{} samples as the header says", self.count);
                return Err(wrong(path, "the data", expected, "longer".to_owned()));
            }
        }
        Ok(())
    }
}

impl Blocks for Images {
    fn next(&mut self, most: usize) -> Result<Block, DataError> {
        let left = self.count - self.read;
        let count = usize::try_from(left).unwrap_or(usize::MAX).min(most);
        if count == 0 {
            self.check_end()?;
            return Ok(Block::default());
        }
        let cut_off = |path: &Path, source: io::Error, all: u64| match source.kind() {
            io::ErrorKind::UnexpectedEof => {
                let expected = format!("{all} samples as the header says");
                wrong(path, "the data", expected, "cut off".to_owned())
            }
            _ => DataError::Unreadable { path: path.to_owned(), source },
        };
        let mut pixels = vec![0; count * self.features];
        self.pixels.read_exact(&mut pixels).map_err(|error| cut_off(&self.path, error, self.count))?;
        let mut labels = vec![0; if self.labels.is_some() { count } else { 0 }];
        if let Some((path, file)) = &mut self.labels {
            file.read_exact(&mut labels).map_err(|error| cut_off(path, error, self.count))?;
        }
        let first = self.read + 1;
        self.read += count as u64;
        Ok(Block {
            values: pixels.into_iter().map(f64::from).collect(),
            labels: labels.iter().map(u8::to_string).collect(),
            rows: (first..first + count as u64).collect(),
            files: Vec::new(),
            notes: Vec::new(),
            held_out: self.is_held_out,
        })
    }

    fn has_labels(&self) -> bool {
        self.labels.is_some()
    }
}

/// The labels beside a file of `count` images.
fn open_labels(images: &Path, count: u64) -> Result<(PathBuf, Box<dyn Read>), DataError> {
    let path = idx::labels_of(images)?;
    let mut labels = idx::open(&path)?;
    let found = idx::dimensions(&path, &mut labels, LABELS)?[0];
    if u64::from(found) != count {
        let expected = format!("{count}, as many as images in `{}`", images.display());
        return Err(wrong(&path, "number of labels", expected, found.to_string()));
    }
    Ok((path, labels))
}
