//! IDX files, the format of MNIST and its relatives.
//!
//! ```text
//!   images:  00 00 08 03 | count | height | width | one byte per pixel     numbers are 4 bytes, big-endian
//!   labels:  00 00 08 01 | count | one byte per label
//! ```

use std::cmp::Ordering;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use starling_run::Kind;
use starling_run::manifest::MAX_FEATURES;

use crate::DataOptions;
use crate::error::DataError;
use crate::files::opened::OpenedFile;
use crate::files::{Capped, HELD_OF_PACKED, bounded, check_length, unpacked};
use crate::samples::pixels::PixelFile;
use crate::samples::raw::{MAX_VALUES, Raw, RawSamples, Scaling, Values};
use crate::source::Source;

pub(super) const IMAGES: [u8; 4] = [0, 0, 8, 3];
pub(super) const LABELS: [u8; 4] = [0, 0, 8, 1];

/// What the files are called where they are copied to; the first two have the samples to train on.
const NAMES: [&str; 4] =
    ["train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"];
/// Images with their labels.
const IMAGES_ALONE: Kind = Kind { name: "idx", files: NAMES.first_chunk::<2>().expect("four"), holds_out: false };
/// Images with their labels, and others to hold out.
const WITH_HELD_OUT: Kind = Kind { name: "idx with held-out files", files: &NAMES, holds_out: true };

/// The reader of a directory with IDX files, or of an images file and the labels file whose name goes with it.
#[derive(Debug)]
pub(super) struct Idx;

impl Source for Idx {
    fn kinds(&self) -> &'static [Kind] {
        &[IMAGES_ALONE, WITH_HELD_OUT]
    }

    fn without_columns(&self, source: &str) -> Result<Option<&'static str>, DataError> {
        let path = Path::new(source);
        Ok((!path.is_dir() || is_folder(path)?).then_some("it holds images (IDX)"))
    }

    /// A gzipped file is looked into.
    fn knows(&self, source: &str) -> Result<bool, DataError> {
        let path = Path::new(source);
        if path.is_dir() {
            return Ok(true);
        }
        let mut start = Vec::new();
        // A gzip file that is damaged at its start is no IDX file; whoever reads it next says what is wrong.
        let _ = open(path)?.take(4).read_to_end(&mut start);
        Ok(start == IMAGES || start == LABELS)
    }

    fn files(&self, source: &str) -> Result<(Kind, Vec<PathBuf>), DataError> {
        let (images, held_out) = images(Path::new(source))?;
        let kind = if held_out.is_some() { WITH_HELD_OUT } else { IMAGES_ALONE };
        let mut files = Vec::new();
        for images in [Some(images), held_out].into_iter().flatten() {
            let labels = labels_of(&images)?;
            files.extend([images, labels]);
        }
        Ok((kind, files))
    }

    fn read(&self, options: &DataOptions) -> Result<Raw, DataError> {
        read(Path::new(&options.source), options)
    }
}

fn read(path: &Path, options: &DataOptions) -> Result<Raw, DataError> {
    let (images, held_out_images) = images(path)?;
    let training = Part::read(&images, options)?;
    let held_out = held_out_images.map(|images| Part::read(&images, options)).transpose()?;
    raw(path, &images, training, held_out)
}

/// Reads images and labels that lie in memory. For who gives them hostile bytes.
#[cfg(feature = "fuzz")]
pub(super) fn parse(images: &[u8], labels: &[u8], max: u64) -> Result<Raw, DataError> {
    let path = Path::new("images");
    let training =
        Part::of((path, unpacked(images, path)?), ("labels".into(), unpacked(labels, path)?), max, MAX_VALUES)?;
    raw(path, path, training, None)
}

fn raw(path: &Path, images: &Path, training: Part, held_out: Option<Part>) -> Result<Raw, DataError> {
    let [height, width] = training.size;
    if let Some(part) = held_out.as_ref().filter(|part| part.size != training.size) {
        return Err(DataError::Idx {
            path: part.path.clone(),
            field: "image size",
            expected: format!("{height}x{width} as in `{}`", images.display()),
            found: format!("{}x{}", part.size[0], part.size[1]),
        });
    }
    let mut are_there = [false; 256];
    let every = training.labels.iter().chain(held_out.iter().flat_map(|part| &part.labels));
    every.for_each(|label| are_there[usize::from(*label)] = true);
    let there: Vec<u8> = (0..=u8::MAX).filter(|label| are_there[usize::from(*label)]).collect();
    if let [alone] = &*there {
        let count = training.labels.len() + held_out.as_ref().map_or(0, |part| part.labels.len());
        let reason = format!("all {count} labels are `{alone}`; training needs at least two classes");
        return Err(DataError::File { path: path.to_owned(), reason });
    }
    let class_names = there.iter().map(u8::to_string).collect();
    let classes = |labels: &[u8]| -> Vec<u32> {
        let class = |label: &u8| there.partition_point(|other| other < label) as u32;
        labels.iter().map(class).collect()
    };
    let held_out_labels = held_out.as_ref().map(|part| classes(&part.labels)).unwrap_or_default();
    let all = classes(&training.labels);
    Ok(Raw {
        kind: if held_out.is_some() { WITH_HELD_OUT } else { IMAGES_ALONE },
        origin: path.display().to_string(),
        shape: [1, height, width],
        values: training.pixels,
        labels: all,
        class_names,
        feature_names: Vec::new(),
        scaling: Scaling::Divide(255.0),
        columns: None,
        coded: Vec::new(),
        weights: None,
        held_out_rows: None,
        held_out: held_out.map(|part| RawSamples { values: part.pixels, labels: held_out_labels }),
        doubts: Vec::new(),
        class_doubts: Vec::new(),
    })
}

/// The images file to train on, and the one held out, if there is one.
pub(super) fn images(path: &Path) -> Result<(PathBuf, Option<PathBuf>), DataError> {
    if path.is_dir() { find(path) } else { Ok((path.to_owned(), None)) }
}

/// Images with their labels.
struct Part {
    path: PathBuf,
    size: [u32; 2],
    pixels: Values,
    labels: Vec<u8>,
}

impl Part {
    /// What is larger than memory stays in its file, unless it is packed.
    fn read(images: &Path, options: &DataOptions) -> Result<Self, DataError> {
        let (labels, max) = (labels_of(images)?, options.max_file_bytes);
        let file = OpenedFile::open(images)?;
        if file.is_gzipped()? {
            let held = HELD_OF_PACKED.saturating_mul(options.held_bytes) / 4;
            let file = bounded(file.reader(0), images, max)?;
            return Self::of((images, file), (labels.clone(), open(&labels)?), max, held);
        }
        check_length(&file, max)?;
        let dimensions = dimensions(images, &mut file.reader(0), IMAGES)?;
        let (place, bytes) = (header_bytes(IMAGES), file.bytes());
        let features = u64::from(dimensions[1]) * u64::from(dimensions[2]);
        let possible = usize::try_from(features).ok().filter(|features| *features <= MAX_FEATURES as usize);
        let claimed = features.checked_mul(dimensions[0].into()).zip(possible);
        let Some((claimed, features)) = claimed else {
            return Err(too_large(images, &dimensions));
        };
        let pixels = PixelFile::open(file, place, dimensions[0], features).map_err(|order| match order {
            Ordering::Less => misfit(images, claimed, format!("cut off after {}", bytes - place)),
            _ => misfit(images, claimed, "longer".to_owned()),
        })?;
        Self::with_labels(
            (images, dimensions, pixels.into_values(options.held_bytes)?),
            (labels.clone(), open(&labels)?),
            max,
        )
    }

    fn of(
        (images, pixels): (&Path, impl Read),
        labels: (PathBuf, impl Read),
        max: u64,
        held: u64,
    ) -> Result<Self, DataError> {
        let (dimensions, pixels) = read_file(images, pixels, IMAGES, max, held)?;
        Self::with_labels((images, dimensions, Values::Bytes(pixels)), labels, max)
    }

    fn with_labels(
        (images, dimensions, pixels): (&Path, Vec<u32>, Values),
        (labels_path, labels): (PathBuf, impl Read),
        max: u64,
    ) -> Result<Self, DataError> {
        let (label_count, labels) = read_file(&labels_path, labels, LABELS, max, MAX_VALUES)?;
        if dimensions[0] != label_count[0] {
            return Err(DataError::Idx {
                path: labels_path,
                field: "number of labels",
                expected: format!("{}, as many as images in `{}`", dimensions[0], images.display()),
                found: label_count[0].to_string(),
            });
        }
        Ok(Self { path: images.to_owned(), size: [dimensions[1], dimensions[2]], pixels, labels })
    }
}

/// Reads one IDX file of bytes with as many dimensions as `magic` ends with, and checks that it is exactly as long as its header says.
fn read_file(
    path: &Path,
    file: impl Read,
    magic: [u8; 4],
    max: u64,
    held: u64,
) -> Result<(Vec<u32>, Vec<u8>), DataError> {
    let mut file = Capped::new(file, max);
    let sizes = dimensions(path, &mut file, magic)?;
    // The header is a claim: nothing of its size is reserved, only what is there is read.
    let claimed = sizes.iter().try_fold(1_u64, |total, size| total.checked_mul(u64::from(*size)));
    let Some(claimed) = claimed.filter(|claimed| *claimed <= MAX_VALUES) else {
        return Err(too_large(path, &sizes));
    };
    if claimed > held {
        let reason = format!(
            "it has {} MiB, but of what is packed {} MiB at most are held: unpack it (`gunzip --keep`) and name that file, or hold more \
             (`--data-held`)",
            claimed >> 20,
            held >> 20
        );
        return Err(DataError::File { path: path.to_owned(), reason });
    }
    let mut bytes = Vec::new();
    let read = file.take(claimed + 1).read_to_end(&mut bytes);
    read.map_err(|source| DataError::Unreadable { path: path.to_owned(), source })?;
    let found = bytes.len() as u64;
    if found < claimed {
        return Err(misfit(path, claimed, format!("cut off after {found}")));
    }
    if found > claimed {
        return Err(misfit(path, claimed, "longer".to_owned()));
    }
    Ok((sizes, bytes))
}

/// A file claims more than can be.
fn too_large(path: &Path, sizes: &[u32]) -> DataError {
    wrong(path, "the size in the header", format!("at most {MAX_VALUES} bytes in memory"), format!("{sizes:?}"))
}

/// A file's data are not as long as its header says.
fn misfit(path: &Path, claimed: u64, found: String) -> DataError {
    wrong(path, "the data", format!("{claimed} bytes as the header says"), found)
}

/// How long the header of a file is that begins so.
fn header_bytes(magic: [u8; 4]) -> u64 {
    4 + 4 * u64::from(magic[3])
}

/// Reads the header of an IDX file of bytes: its sizes, as many as `magic` ends with, none of which is 0.
pub(super) fn dimensions(path: &Path, file: &mut impl Read, magic: [u8; 4]) -> Result<Vec<u32>, DataError> {
    let unreadable = |source| DataError::Unreadable { path: path.to_owned(), source };
    let wrong = |field, expected, found| wrong(path, field, expected, found);
    let header_len = header_bytes(magic) as usize;
    let mut header = Vec::new();
    file.by_ref().take(header_len as u64).read_to_end(&mut header).map_err(unreadable)?;
    if header.len() >= 4 && header[..4] != magic {
        return Err(wrong("the magic number", format!("{magic:02x?}"), format!("{:02x?}", &header[..4])));
    }
    if header.len() < header_len {
        return Err(wrong("the header", format!("{header_len} bytes"), format!("{} bytes", header.len())));
    }
    let sizes: Vec<u32> =
        header[4..].chunks_exact(4).map(|size| u32::from_be_bytes([size[0], size[1], size[2], size[3]])).collect();
    let names = ["count", "height", "width"];
    if let Some(at) = sizes.iter().position(|size| *size == 0) {
        return Err(wrong(names[at], "at least 1".to_owned(), "0".to_owned()));
    }
    Ok(sizes)
}

/// What of a file is not as it should be.
pub(super) fn wrong(path: &Path, field: &'static str, expected: String, found: String) -> DataError {
    DataError::Idx { path: path.to_owned(), field, expected, found }
}

/// Opens a file and undoes gzip.
pub(super) fn open(path: &Path) -> Result<Box<dyn Read>, DataError> {
    let file = File::open(path).map_err(|source| DataError::Unreadable { path: path.to_owned(), source })?;
    unpacked(file, path)
}

/// The labels file of an images file: `images` becomes `labels` and `idx3` becomes `idx1`, gzipped or not.
pub(super) fn labels_of(images: &Path) -> Result<PathBuf, DataError> {
    let name = images.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let fail = |reason: String| DataError::File { path: images.to_owned(), reason };
    if !name.contains("images") {
        return Err(fail(
            "an IDX file of images has `images` in its name, as `train-images-idx3-ubyte`; name that file".to_owned(),
        ));
    }
    let labels = name.replace("images", "labels").replace("idx3", "idx1");
    let plain = labels.trim_end_matches(".gz").to_owned();
    let candidates = [labels.clone(), plain.clone(), format!("{plain}.gz")];
    candidates
        .iter()
        .map(|candidate| images.with_file_name(candidate))
        .find(|candidate| candidate.is_file())
        .ok_or_else(|| fail(format!("its labels file `{labels}` is not beside it")))
}

/// Whether a directory has files of images by their names.
pub(super) fn is_folder(directory: &Path) -> Result<bool, DataError> {
    Ok(!names(directory)?.is_empty())
}

/// The files of images in a directory.
fn names(directory: &Path) -> Result<Vec<String>, DataError> {
    let unreadable = |source| DataError::Unreadable { path: directory.to_owned(), source };
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).map_err(unreadable)? {
        let name = entry.map_err(unreadable)?.file_name().to_string_lossy().into_owned();
        if name.contains("images") && (name.contains("idx3") || name.contains("ubyte")) {
            names.push(name);
        }
    }
    Ok(names)
}

/// The images file to train on in a directory, and the one held out, if there is one.
fn find(directory: &Path) -> Result<(PathBuf, Option<PathBuf>), DataError> {
    let mut names = names(directory)?;
    names.sort();
    // Beside `x` and `x.gz`, the plain one counts.
    let plain = names.clone();
    names.retain(|name| !name.strip_suffix(".gz").is_some_and(|name| plain.iter().any(|plain| plain == name)));
    let (held_out, training): (Vec<String>, Vec<String>) =
        names.into_iter().partition(|name| name.starts_with("t10k") || name.contains("test"));
    let fail = |reason: String| DataError::File { path: directory.to_owned(), reason };
    let one = |mut found: Vec<String>, what: &str| match found.len() {
        0 | 1 => Ok(found.pop()),
        _ => Err(fail(format!("it has several files of {what} images: {}; name the one to use", found.join(", ")))),
    };
    let training = one(training, "training")?.ok_or_else(|| {
        fail(
            "it has no `train-images-idx3-ubyte` file, plain or with .gz, and no folders of images; of a table, name the file"
                .to_owned(),
        )
    })?;
    Ok((directory.join(training), one(held_out, "held-out")?.map(|name| directory.join(name))))
}
