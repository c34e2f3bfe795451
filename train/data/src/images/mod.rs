//! Images as files, in a folder for each class; and the one file that is made of them for joiners.
//!
//! ```text
//!   images/cat/1.png     class `cat`       decoded, cropped to one shape,      images.pack: names of the classes,
//!          cat/2.jpg                   ->  scaled to one size: bytes,      ->  labels, bytes of all pixels
//!          dog/1.png     class `dog`       channel after channel
//! ```
//!
//! What members compare, and get from each other, are the bytes of the pixels: a JPEG file may be decoded by its own rules elsewhere.

mod archive;
pub(crate) mod decode;
mod decoded;
mod folder;
pub(crate) mod listing;
mod pack;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use starling_run::Kind;
use starling_run::data::{IMAGES, ImageSize};
use starling_run::manifest::MAX_FEATURES;

use crate::DataOptions;
use crate::error::DataError;
use crate::idx;
use crate::samples::pixels::Pixels;
use crate::samples::raw::{Raw, Scaling, Values};
use crate::source::Source;
use decode::Form;
use decoded::DecodedImages;
use folder::Listed;

#[cfg(feature = "fuzz")]
pub(crate) use archive::classes as archived;
#[cfg(feature = "fuzz")]
pub(crate) use pack::parse;
pub(crate) use pack::{Header, MAGIC, Parser};

/// Images by their classes.
const KIND: Kind = Kind { name: IMAGES, files: &["images.pack"], holds_out: false };

/// The reader of a folder with a folder of images for each class, of tar archives, or of the file that was made of these.
#[derive(Debug)]
pub(crate) struct Images;

impl Source for Images {
    fn kinds(&self) -> &'static [Kind] {
        &[KIND]
    }

    fn without_columns(&self, source: &str) -> Result<Option<&'static str>, DataError> {
        let path = Path::new(source);
        if archive::is_one(path)? {
            return Ok(archive::all(path).is_ok().then_some("it holds images, in tar archives"));
        }
        match path.is_dir() {
            // Folders in it may hold anything.
            true => Ok(folder::all(path).is_ok().then_some("it holds images, in a folder for each class")),
            false => Ok(Some("it holds images, as a run has written them for others")),
        }
    }

    fn knows(&self, source: &str) -> Result<bool, DataError> {
        let path = Path::new(source);
        Ok(are_listed(path)? || !path.is_dir() && pack::is_one(path)?)
    }

    /// What others get of a folder has to be made first.
    fn files(&self, source: &str) -> Result<(Kind, Vec<PathBuf>), DataError> {
        let path = PathBuf::from(source);
        Ok((KIND, if are_listed(&path)? { Vec::new() } else { vec![path] }))
    }

    fn shared(&self, options: &DataOptions, folder: &Path) -> Result<(Kind, Vec<PathBuf>), DataError> {
        if !are_listed(Path::new(&options.source))? {
            return self.files(&options.source);
        }
        let path = folder.join(KIND.files[0]);
        pack::write(&self.read(options)?, &path)?;
        Ok((KIND, vec![path]))
    }

    fn read(&self, options: &DataOptions) -> Result<Raw, DataError> {
        let path = Path::new(&options.source);
        match are_listed(path)? {
            true => read(path, options),
            false => pack::read(path, options),
        }
    }
}

/// Whether `path` is a folder of images, or archives.
pub(crate) fn are_listed(path: &Path) -> Result<bool, DataError> {
    if archive::is_one(path)? {
        return Ok(true);
    }
    Ok(path.is_dir() && !idx::is_folder(path)? && folder::may_hold_images(path)?)
}

/// The images of a folder or of archives for a trained model: each with its class, or all to predict.
pub(crate) fn listed(path: &Path, with_classes: bool) -> Result<Listed, DataError> {
    match (archive::is_one(path)?, with_classes) {
        (true, true) => archive::classes(path, false),
        (true, false) => archive::all(path),
        (false, true) => folder::classes(path, false),
        (false, false) => folder::all(path),
    }
}

/// Reads all images as `options` say; those of a set that is larger than memory, when they are asked for.
fn read(path: &Path, options: &DataOptions) -> Result<Raw, DataError> {
    let listed = if archive::is_one(path)? { archive::classes(path, true)? } else { folder::classes(path, true)? };
    let form = form(path, &listed, options)?;
    let fault = |reason| DataError::File { path: path.to_owned(), reason };
    let features = usize::try_from(form.features()).ok().filter(|features| *features <= MAX_FEATURES as usize);
    let Some(features) = features else {
        let (size, channels) = (form.size, form.channels);
        let reason = format!(
            "images of {channels}x{size} have more than {MAX_FEATURES} values; make them smaller with --image-size"
        );
        return Err(fault(reason));
    };
    let count = u32::try_from(listed.images.len()).map_err(|_| fault("it has too many images".to_owned()))?;
    let labels = listed.images.iter().map(|image| image.class.unwrap_or_default()).collect();
    let doubts = listed.skipped.told(path).into_iter().collect();
    let pixels = Pixels { source: Arc::new(DecodedImages::new(path, listed.images, form)?), count, features };
    let values = pixels.into_values(options.held_bytes)?;
    Ok(raw(path, form, values, labels, listed.classes, doubts))
}

/// The data that these pixels are.
fn raw(
    origin: &Path,
    form: Form,
    values: Values,
    labels: Vec<u32>,
    class_names: Vec<String>,
    doubts: Vec<String>,
) -> Raw {
    let Form { channels, size } = form;
    Raw {
        kind: KIND,
        origin: origin.display().to_string(),
        shape: [channels, size.height, size.width],
        values,
        labels,
        class_names,
        feature_names: Vec::new(),
        scaling: Scaling::Divide(255.0),
        columns: None,
        coded: Vec::new(),
        weights: None,
        held_out_rows: None,
        held_out: None,
        doubts,
        class_doubts: Vec::new(),
    }
}

/// What all images become: what `options` say, else what the files are.
fn form(path: &Path, listed: &Listed, options: &DataOptions) -> Result<Form, DataError> {
    if let (Some(size), Some(channels)) = (options.image_size, options.channels) {
        return Ok(Form { size, channels });
    }
    let (mut first, mut are_grey) = (None::<(ImageSize, PathBuf)>, true);
    for image in &listed.images {
        let file = image.told(path);
        let look = decode::look(&image.bytes(path)?, &file)?;
        are_grey &= look.is_grey;
        let (size, of) = first.get_or_insert_with(|| (look.size, file.clone()));
        if options.image_size.is_none() && look.size != *size {
            let reason = format!(
                "it has {} pixels, but `{}`, the first image, has {size}; pass --image-size {size}, or another size, to crop all images \
                 around their middle and scale them to it",
                look.size,
                of.display(),
            );
            return Err(DataError::File { path: file, reason });
        }
    }
    let found = first.map(|(size, _)| size);
    if let Some(size) =
        found.filter(|size| options.image_size.is_none() && size.height.max(size.width) > ImageSize::MAX_SIDE)
    {
        let reason =
            format!("its images have {size} pixels, too many to train on; make them smaller with --image-size 224");
        return Err(DataError::File { path: path.to_owned(), reason });
    }
    let size = options.image_size.or(found).expect("invariant: a listed folder has images");
    Ok(Form { size, channels: options.channels.unwrap_or(if are_grey { 1 } else { 3 }) })
}

#[cfg(test)]
mod tests;
