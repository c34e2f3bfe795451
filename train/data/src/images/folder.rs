//! What lies in a folder of images: which files are taken, in which order, and which are not.
//!
//! ```text
//!   images/
//!     cat/    a folder is a class                  in the order of the names' bytes
//!       1.png, 2.JPG, 3.jpeg                       are taken, in the same order
//!       .DS_Store, notes.txt                       are skipped and counted
//! ```
//!
//! Links count as what they lead to. There is nothing deeper, so that none leads in circles.

use std::fs;
use std::path::{Path, PathBuf};

use starling_run::data::shorten;
use starling_run::manifest::MAX_CLASSES;

use super::listing::Listing;
use crate::error::DataError;

/// How the names of images end, in whatever case.
const ENDINGS: [&str; 3] = ["png", "jpg", "jpeg"];
/// The longest name of a class, in bytes.
pub(super) const MAX_NAME: usize = 255;

/// The images of a folder.
#[derive(Debug, Default)]
pub(crate) struct Listed {
    /// What the classes are called, in their order. None where nobody asks for them.
    pub(crate) classes: Vec<String>,
    /// In their order.
    pub(crate) images: Vec<Listing>,
    pub(crate) skipped: Skipped,
}

/// What is no image by its name.
#[derive(Debug, Default)]
pub(crate) struct Skipped {
    hidden: u64,
    /// In an archive: what stands for a file that is elsewhere.
    links: u64,
    others: u64,
    /// The first of these.
    first: Option<PathBuf>,
}

impl Skipped {
    /// Counts one whose name begins with a dot.
    pub(super) fn hidden(&mut self) {
        self.hidden += 1;
    }

    /// Counts one that is a link and no file.
    pub(super) fn link(&mut self) {
        self.links += 1;
    }

    /// Counts one that is called like something else.
    pub(super) fn other(&mut self, path: PathBuf) {
        self.others += 1;
        self.first.get_or_insert(path);
    }

    /// What to say of it, if there is any.
    pub(crate) fn told(&self, folder: &Path) -> Option<String> {
        let such_as = self.first.as_ref().map(|first| format!(", such as `{}`", first.display())).unwrap_or_default();
        let links = match self.links {
            0 => String::new(),
            1 => "; 1 link, which is no file".to_owned(),
            links => format!("; {links} links, which are no files"),
        };
        let packed =
            if links.is_empty() { "" } else { ": pack what they lead to (`tar --dereference --hard-dereference`)" };
        (self.hidden + self.others + self.links > 0).then(|| {
            format!(
                "`{}`: skipped {} that are no .png, .jpg or .jpeg by their names{such_as}, and {} hidden{links}{packed}",
                folder.display(),
                files(self.others),
                files(self.hidden)
            )
        })
    }
}

/// What one folder holds, each sorted.
#[derive(Default)]
struct Entries {
    folders: Vec<PathBuf>,
    images: Vec<PathBuf>,
}

/// The images to train on, or to compare with what they are: each in the folder of its class.
///
/// # Errors
/// If there are no classes, or, in training, one alone, or a class has no images; and if what lies in the folder leaves open what was meant.
pub(crate) fn classes(folder: &Path, is_training: bool) -> Result<Listed, DataError> {
    let mut listed = Listed::default();
    let top = entries(folder, &mut listed.skipped)?;
    if let Some(image) = top.images.first() {
        let reason =
            "it lies in no folder, but each class has a folder of its own, whose name is the class's: put it there";
        return Err(fault(image, reason.to_owned()));
    }
    if top.folders.is_empty() {
        return Err(fault(folder, "it has no folders, but each class has one, whose name is the class's".to_owned()));
    }
    if let ([alone], true) = (&*top.folders, is_training) {
        let reason = format!("it has one class, `{}`, but training needs at least two: a folder for each", told(alone));
        return Err(fault(folder, reason));
    }
    if top.folders.len() > MAX_CLASSES as usize {
        let found = top.folders.len();
        return Err(fault(folder, format!("it has {found} folders, but at most {MAX_CLASSES} classes are possible")));
    }
    for (class, path) in (0..).zip(&top.folders) {
        listed.classes.push(name(path)?);
        let images = inner(path, &mut listed.skipped)?;
        if images.is_empty() {
            let endings = "no image in it (.png, .jpg, .jpeg)";
            return Err(fault(path, format!("the folder of a class has {endings}; put some there, or remove it")));
        }
        listed.images.extend(images.into_iter().map(|image| listing(folder, &image, Some(class))));
    }
    Ok(listed)
}

/// The images to predict: those of the folder, then those of the folders in it.
///
/// # Errors
/// If there are none.
pub(crate) fn all(folder: &Path) -> Result<Listed, DataError> {
    let mut listed = Listed::default();
    let top = entries(folder, &mut listed.skipped)?;
    let mut found = top.images;
    for path in &top.folders {
        found.extend(inner(path, &mut listed.skipped)?);
    }
    if found.is_empty() {
        let reason = "it has no image in it (.png, .jpg, .jpeg), nor have the folders in it";
        return Err(fault(folder, reason.to_owned()));
    }
    listed.images = found.into_iter().map(|image| listing(folder, &image, None)).collect();
    Ok(listed)
}

/// Whether images, or folders that may hold them, lie in a folder.
pub(crate) fn may_hold_images(folder: &Path) -> Result<bool, DataError> {
    let entries = entries(folder, &mut Skipped::default())?;
    Ok(!entries.folders.is_empty() || !entries.images.is_empty())
}

/// The images of a class's folder.
fn inner(folder: &Path, skipped: &mut Skipped) -> Result<Vec<PathBuf>, DataError> {
    let Entries { folders, images } = entries(folder, skipped)?;
    if let Some(deeper) = folders.first() {
        let reason = format!(
            "a folder lies in it, `{}`, but the folder of a class holds images alone; if its folders are the classes, name this one: \
             --data {}",
            told(deeper),
            folder.display()
        );
        return Err(fault(folder, reason));
    }
    Ok(images)
}

fn entries(folder: &Path, skipped: &mut Skipped) -> Result<Entries, DataError> {
    let unreadable = |path: &Path| {
        let path = path.to_owned();
        |source| DataError::Unreadable { path, source }
    };
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).map_err(unreadable(folder))? {
        paths.push(entry.map_err(unreadable(folder))?.path());
    }
    paths.sort();
    let mut entries = Entries::default();
    for path in paths {
        if path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b".")) {
            skipped.hidden();
            continue;
        }
        let is_image = is_image_name(&path);
        let metadata = match fs::metadata(&path) {
            Ok(metadata) => metadata,
            // A link that leads nowhere is nobody's image.
            Err(_) if !is_image => {
                skipped.other(path);
                continue;
            }
            Err(error) => return Err(unreadable(&path)(error)),
        };
        match (metadata.is_dir(), is_image) {
            (true, _) => entries.folders.push(path),
            (false, true) if metadata.is_file() => entries.images.push(path),
            (false, true) => return Err(fault(&path, "it is called like an image, but is no file".to_owned())),
            (false, false) => skipped.other(path),
        }
    }
    Ok(entries)
}

/// What the class of a folder is called.
fn name(folder: &Path) -> Result<String, DataError> {
    let name = folder.file_name().and_then(|name| name.to_str());
    name.filter(|name| is_name(name)).map(ToOwned::to_owned).ok_or_else(|| {
        let reason = "a class is called as its folder, but this name is no UTF-8 text, or has signs that can't be shown; rename it";
        fault(folder, reason.to_owned())
    })
}

/// Whether a class may be called so: it is shown on terminals.
pub(super) fn is_name(name: &str) -> bool {
    (1..=MAX_NAME).contains(&name.len()) && !name.chars().any(char::is_control)
}

/// The last part of a path, for messages.
fn told(path: &Path) -> String {
    shorten(&path.file_name().unwrap_or_default().to_string_lossy())
}

/// Whether a file is an image by its name.
pub(super) fn is_image_name(path: &Path) -> bool {
    path.extension().is_some_and(|of| ENDINGS.iter().any(|ending| of.eq_ignore_ascii_case(ending)))
}

fn listing(folder: &Path, path: &Path, class: Option<u32>) -> Listing {
    Listing { path: path.strip_prefix(folder).unwrap_or(path).to_owned(), class, part: None }
}

fn files(count: u64) -> String {
    format!("{count} {}", if count == 1 { "file" } else { "files" })
}

fn fault(path: &Path, reason: String) -> DataError {
    DataError::File { path: path.to_owned(), reason }
}
