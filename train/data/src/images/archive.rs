//! Images in tar archives: which files are taken, in which order, and of which class they are.
//!
//! ```text
//!   photos.tar, or a folder of such        by the folder that an image is in      by a file beside it (WebDataset)
//!     00000.tar                              cat/1.png     class `cat`              000123.jpg
//!     00001.tar                              dog/2.jpg     class `dog`              000123.cls     class `7`, its text
//! ```
//!
//! Nothing is unpacked: where each image lies is kept, and it is read from there.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use starling_run::data::shorten;
use starling_run::manifest::MAX_CLASSES;
use tar::Archive;

use super::folder::{Listed, is_image_name, is_name};
use super::listing::{ArchivePart, Listing};
use crate::error::DataError;
use crate::files::opened::{KnownFile, OpenedFile};
use crate::samples::labels;

/// How the name of an archive ends.
const ENDING: &str = "tar";
/// How the name of a file ends that has the class of the image beside it, and how long it is at most.
const CLASS_ENDING: &str = "cls";
const MAX_CLASS_BYTES: u64 = 1 << 10;
/// Of what archives are made: members begin with one, and so does, of zeros, what marks the end.
const BLOCK_BYTES: u64 = 512;
/// How many images are listed at most.
const MAX_IMAGES: usize = 1 << 28;

/// Whether `path` is an archive, by its name, or a folder of nothing else.
///
/// # Errors
/// If the folder can't be read, or it is an archive that is packed.
pub(crate) fn is_one(path: &Path) -> Result<bool, DataError> {
    if !path.is_dir() {
        let is_packed =
            has_ending(path, "tgz") || has_ending(path, "gz") && has_ending(&path.with_extension(""), ENDING);
        if is_packed {
            let reason =
                "it is an archive that is packed, and images are read where they lie: unpack it (`gunzip --keep`)";
            return Err(fault(path, reason.to_owned()));
        }
        return Ok(has_ending(path, ENDING));
    }
    Ok(!shards(path)?.is_empty())
}

/// The images to train on, or to compare with what they are: each with its class.
///
/// # Errors
/// If an archive is damaged, an image has no class, or, in training, there are too few or too many classes.
pub(crate) fn classes(path: &Path, is_training: bool) -> Result<Listed, DataError> {
    let Contents { mut listed, labels } = contents(path)?;
    let is_labelled = labels.iter().any(Option::is_some);
    let named = listed.images.iter().zip(labels).map(|(image, label)| {
        let class = if is_labelled { label } else { folder_name(&image.path) };
        class.filter(|name| is_name(name)).ok_or_else(|| {
            let reason = match is_labelled {
                true => "no .cls file beside it has its class, as others have; add it",
                false => "it lies in no folder that could be its class, and no .cls file with its class is beside it",
            };
            fault(&image.told(path), reason.to_owned())
        })
    });
    let named: Vec<String> = named.collect::<Result<_, _>>()?;
    let classified = match is_labelled {
        // What they are called is compared with what a model knows.
        _ if !is_training => Ok(labels::index(&named)),
        // As those of IDX files are, and those of folders.
        true => labels::classify(&named),
        false => labels::classify_names(&named),
    };
    let (classes, names) = classified.map_err(|reason| fault(path, reason))?;
    if names.len() > MAX_CLASSES as usize {
        let found = names.len();
        return Err(fault(path, format!("it has {found} classes, but at most {MAX_CLASSES} are possible")));
    }
    for (image, class) in listed.images.iter_mut().zip(classes) {
        image.class = Some(class);
    }
    listed.classes = names;
    Ok(listed)
}

/// The images to predict: all.
///
/// # Errors
/// If an archive is damaged, or there are none.
pub(crate) fn all(path: &Path) -> Result<Listed, DataError> {
    Ok(contents(path)?.listed)
}

/// What archives hold.
#[derive(Default)]
struct Contents {
    listed: Listed,
    /// Of each image, the class that a file beside it says.
    labels: Vec<Option<String>>,
}

fn contents(path: &Path) -> Result<Contents, DataError> {
    let archives = if path.is_dir() { shards(path)? } else { vec![path.to_owned()] };
    let mut contents = Contents::default();
    for archive in &archives {
        contents.add(archive)?;
    }
    if contents.listed.images.is_empty() {
        return Err(fault(path, "it has no image in it (.png, .jpg, .jpeg)".to_owned()));
    }
    Ok(contents)
}

impl Contents {
    fn add(&mut self, path: &Path) -> Result<(), DataError> {
        let damaged = |error: std::io::Error| {
            let packed = "a packed one has to be unpacked first (`gunzip --keep`)";
            fault(path, format!("it is no tar archive, or is damaged: {error}; {packed}"))
        };
        let opened = OpenedFile::open(path)?;
        let known = Arc::new(KnownFile::of(&opened));
        let (first, mut labels) = (self.listed.images.len(), BTreeMap::new());
        let mut archive = Archive::new(BufReader::new(opened.seekable()));
        // Another archive may lie behind the end of one: `cat a.tar b.tar`.
        archive.set_ignore_zeros(true);
        let mut end = None;
        for entry in archive.entries_with_seek().map_err(damaged)? {
            let mut entry = entry.map_err(damaged)?;
            let name = entry.path().map_err(damaged)?.into_owned();
            let (place, bytes) = (entry.raw_file_position(), entry.size());
            if place.checked_add(bytes).is_none_or(|end| end > opened.bytes()) {
                return Err(fault(path, format!("it is cut off within `{}`", shorten(&name.to_string_lossy()))));
            }
            end = Some((place + bytes).next_multiple_of(BLOCK_BYTES));
            if entry.header().entry_type().is_dir() {
                continue;
            }
            if name.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b".")) {
                self.listed.skipped.hidden();
                continue;
            }
            let [is_image, is_class] = [is_image_name(&name), has_ending(&name, CLASS_ENDING)];
            let kind = entry.header().entry_type();
            if (is_image || is_class) && (kind.is_hard_link() || kind.is_symlink()) {
                self.listed.skipped.link();
                continue;
            }
            if !kind.is_file() || !(is_image || is_class) {
                self.listed.skipped.other(name);
                continue;
            }
            if is_class {
                let mut text = String::new();
                let read = entry.by_ref().take(MAX_CLASS_BYTES).read_to_string(&mut text);
                let bad = |reason: &str| fault(&path.join(&name), reason.to_owned());
                read.map_err(|_| bad("its class is no text"))?;
                if !is_name(text.trim()) {
                    return Err(bad("the class in it is empty, too long, or has signs that can't be shown"));
                }
                let other = labels.insert(key(&name), text.trim().to_owned());
                if other.is_some_and(|other| other != text.trim()) {
                    return Err(bad(
                        "another class is said before, in a file of the same name; give each sample a name of its own",
                    ));
                }
                continue;
            }
            if self.listed.images.len() == MAX_IMAGES {
                return Err(fault(path, format!("more than {MAX_IMAGES} images are not possible")));
            }
            let part = ArchivePart { archive: known.clone(), place, bytes };
            self.listed.images.push(Listing { path: name, class: None, part: Some(part) });
        }
        if end.is_some_and(|end| opened.bytes() < end + BLOCK_BYTES) {
            let reason = "it is cut off, since the zeros are missing that mark its end: copy it anew, or pack it again";
            return Err(fault(path, reason.to_owned()));
        }
        self.labels.extend(self.listed.images[first..].iter().map(|image| labels.get(&key(&image.path)).cloned()));
        opened.check()
    }
}

/// What the folder of a file is called.
fn folder_name(path: &Path) -> Option<String> {
    path.parent().and_then(Path::file_name).and_then(|name| name.to_str()).map(ToOwned::to_owned)
}

/// What files of one sample have in common: what is before the first dot of their names.
fn key(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(name.split('.').next().unwrap_or_default())
}

/// The archives of a folder that has nothing else in it but hidden files, in the order of their names.
fn shards(folder: &Path) -> Result<Vec<PathBuf>, DataError> {
    let unreadable = |source| DataError::Unreadable { path: folder.to_owned(), source };
    let mut shards = Vec::new();
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b".")) {
            continue;
        }
        if path.is_dir() || !has_ending(&path, ENDING) {
            return Ok(Vec::new());
        }
        shards.push(path);
    }
    shards.sort();
    Ok(shards)
}

fn has_ending(path: &Path, ending: &str) -> bool {
    path.extension().is_some_and(|of| of.eq_ignore_ascii_case(ending))
}

fn fault(path: &Path, reason: String) -> DataError {
    DataError::File { path: path.to_owned(), reason }
}
