//! Images as files, in a folder for each class; and the one file that is made of them for joiners.
//!
//! ```text
//!   images/cat/1.png     class `cat`       decoded, cropped to one shape,      images.pack: names of the classes,
//!          cat/2.jpg                   ->  scaled to one size: bytes,      ->  labels, bytes of all pixels
//!          dog/1.png     class `dog`       channel after channel
//! ```
//!
//! What members compare, and get from each other, are the bytes of the pixels: a JPEG file may be decoded by its own rules elsewhere.

pub(crate) mod decode;
pub(crate) mod folder;
mod pack;

use std::path::{Path, PathBuf};

use starling_run::Kind;
use starling_run::data::{IMAGES, ImageSize};
use starling_run::manifest::MAX_FEATURES;

use crate::DataOptions;
use crate::error::DataError;
use crate::idx;
use crate::samples::raw::{MAX_VALUES, Raw, Scaling, Values};
use crate::source::Source;
use decode::Form;
use folder::Listed;

pub(crate) use pack::{MAGIC, parse};

/// Images by their classes.
const KIND: Kind = Kind { name: IMAGES, files: &["images.pack"], holds_out: false };

/// The reader of a folder with a folder of images for each class, or of the file that was made of one.
#[derive(Debug)]
pub(crate) struct Images;

impl Source for Images {
    fn kinds(&self) -> &'static [Kind] {
        &[KIND]
    }

    fn knows(&self, source: &str) -> Result<bool, DataError> {
        let path = Path::new(source);
        match path.is_dir() {
            true => Ok(!idx::is_folder(path)? && folder::may_hold_images(path)?),
            false => pack::is_one(path),
        }
    }

    /// What others get of a folder has to be made first.
    fn files(&self, source: &str) -> Result<(Kind, Vec<PathBuf>), DataError> {
        let path = PathBuf::from(source);
        Ok((KIND, if path.is_dir() { Vec::new() } else { vec![path] }))
    }

    fn shared(&self, options: &DataOptions, folder: &Path) -> Result<(Kind, Vec<PathBuf>), DataError> {
        if !Path::new(&options.source).is_dir() {
            return self.files(&options.source);
        }
        let path = folder.join(KIND.files[0]);
        pack::write(&self.read(options)?, &path)?;
        Ok((KIND, vec![path]))
    }

    fn read(&self, options: &DataOptions) -> Result<Raw, DataError> {
        let path = Path::new(&options.source);
        match path.is_dir() {
            true => read(path, options),
            false => pack::read(path, options.max_file_bytes),
        }
    }
}

/// Reads all images of a folder as `options` say.
fn read(path: &Path, options: &DataOptions) -> Result<Raw, DataError> {
    let listed = folder::classes(path)?;
    let form = form(path, &listed, options)?;
    let features = form.features();
    let count = listed.images.len() as u64;
    if features > MAX_FEATURES.into() || features.saturating_mul(count) > MAX_VALUES {
        let (size, channels) = (form.size, form.channels);
        return Err(DataError::File {
            path: path.to_owned(),
            reason: format!(
                "its {count} images of {channels}x{size} have more values than are possible ({MAX_FEATURES} of one, {MAX_VALUES} of all); \
                 make them smaller with --image-size"
            ),
        });
    }
    let (mut pixels, mut labels) = (Vec::new(), Vec::with_capacity(listed.images.len()));
    for image in &listed.images {
        let file = path.join(&image.path);
        pixels.extend(decode::decode(&decode::bytes(&file)?, &file, form)?);
        labels.push(image.class.unwrap_or_default());
    }
    let (class_names, doubts) = (listed.classes, listed.skipped.told(path).into_iter().collect());
    Ok(raw(path, form, pixels, labels, class_names, doubts))
}

/// The data that these pixels are.
fn raw(
    origin: &Path,
    form: Form,
    pixels: Vec<u8>,
    labels: Vec<u32>,
    class_names: Vec<String>,
    doubts: Vec<String>,
) -> Raw {
    let Form { channels, size } = form;
    Raw {
        kind: KIND,
        origin: origin.display().to_string(),
        shape: [channels, size.height, size.width],
        values: Values::Bytes(pixels),
        labels,
        class_names,
        feature_names: Vec::new(),
        scaling: Scaling::Divide(255.0),
        columns: None,
        coded: Vec::new(),
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
        let file = path.join(&image.path);
        let look = decode::look(&decode::bytes(&file)?, &file)?;
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
