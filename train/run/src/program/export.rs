//! Where a trained model is to be written: a file, or a folder that comes about as a whole.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use atomic_write_file::AtomicWriteFile;

use crate::checkpoint::write_atomically;
use crate::error::Error;

/// The model in a folder, with all that a forward pass needs.
pub const MODEL: &str = "model.safetensors";
/// What it is, for programs.
pub const DESCRIPTION: &str = "model.json";
/// What it is, for people.
pub const CARD: &str = "README.md";
/// How it is used from Python.
pub const SCRIPT: &str = "predict.py";
/// What it is, for Hugging Face's tools.
pub const CONFIG: &str = "config.json";
/// How a text becomes its tokens, for the same, and how that is used.
pub const TOKENIZER: &str = "tokenizer.json";
/// See [`TOKENIZER`].
pub const TOKENIZER_CONFIG: &str = "tokenizer_config.json";
/// All that an exported folder may hold.
const FILES: [&str; 7] = [MODEL, DESCRIPTION, CARD, SCRIPT, CONFIG, TOKENIZER, TOKENIZER_CONFIG];
/// How many names are tried for a folder beside it.
const MAX_NAMES: u32 = 16;

/// Whether a model is to be written to a folder there: it ends with a slash, or is one already.
pub fn is_folder(path: &Path) -> bool {
    let is_separator = |byte: &u8| std::path::is_separator(char::from(*byte));
    path.as_os_str().as_encoded_bytes().last().is_some_and(is_separator) || path.is_dir()
}

/// The file that is written where a user names `path`: what a link leads to.
///
/// # Errors
/// If a device, a pipe or a folder is there: none is replaced by a file.
pub fn file_place(path: &Path) -> Result<PathBuf, Error> {
    let Ok(found) = fs::symlink_metadata(path) else { return Ok(path.to_owned()) };
    let place = if found.is_symlink() { path.canonicalize() } else { Ok(path.to_owned()) };
    let place = place.or_else(|error| fail(path, format!("{error}; it is a link that leads nowhere")))?;
    match fs::metadata(&place) {
        Ok(there) if !there.is_file() => {
            fail(path, "it is no file, and would be replaced by one; name a file".to_owned())
        }
        _ => Ok(place),
    }
}

/// Checks that a file's name does not promise what is not written there.
///
/// # Errors
/// If it is that of an ONNX file.
pub fn check_name(path: &Path) -> Result<(), Error> {
    if path.extension() != Some(OsStr::new("onnx")) || is_folder(path) {
        return Ok(());
    }
    let reason = "it would be a safetensors file; name it .safetensors, and `starling export MODEL --out FILE.onnx` makes ONNX of it";
    fail(path, reason.to_owned())
}

/// Checks that a model could be written to `path`, so that nobody learns it only after a long run. Leaves nothing there.
///
/// # Errors
/// If nothing can be written to its directory, its name is another kind of file's, or it is a folder that holds something else than an export.
pub fn check_place(path: &Path) -> Result<(), Error> {
    check_name(path)?;
    if is_folder(path) {
        return Folder::at(path)?.beside("new", |folder| fs::create_dir(folder)).map(drop);
    }
    match AtomicWriteFile::open(file_place(path)?).and_then(AtomicWriteFile::discard) {
        Ok(()) => Ok(()),
        Err(source) => {
            fail(path, format!("{source}; its directory must be there, and you must be allowed to write in it"))
        }
    }
}

/// Puts a folder with these files, by their names, in its place: whole, or not at all. An export that was there before is
/// replaced.
///
/// # Errors
/// If it can't be written, or holds something else than an export. What was there is there then.
pub fn write_folder(path: &Path, files: &[(&str, Vec<u8>)]) -> Result<(), Error> {
    let folder = Folder::at(path)?;
    let new = folder.beside("new", |folder| fs::create_dir(folder))?;
    for (name, bytes) in files {
        write_atomically(&new.path.join(name), bytes).or_else(|error| fail(path, error.to_string()))?;
    }
    let moved = |result: io::Result<()>| result.or_else(|error| fail(path, error.to_string()));
    if !folder.place.exists() {
        moved(fs::rename(&new.path, &folder.place))?;
    } else {
        let old = folder.beside("old", |old| fs::rename(&folder.place, old))?;
        if let Err(error) = fs::rename(&new.path, &folder.place) {
            // As it was; what is moved back is not removed.
            let _ = fs::rename(&old.path, &folder.place);
            return fail(path, error.to_string());
        }
    }
    // That the names are on disk, too, is wished for where the system can say so.
    let _ = folder.place.parent().map(|parent| fs::File::open(parent).and_then(|parent| parent.sync_all()));
    Ok(())
}

/// A folder that is to be written, or replaced.
struct Folder {
    /// As its user wrote it.
    path: PathBuf,
    place: PathBuf,
}

impl Folder {
    /// Looks at what is there.
    fn at(path: &Path) -> Result<Self, Error> {
        // With its last slash, a file is nothing to the system.
        let plain: PathBuf = path.components().collect();
        let is_there = plain.is_dir();
        if !is_there && plain.exists() {
            return fail(path, "it is a file; a path that ends with a slash stands for a folder".to_owned());
        }
        // A link stays, and what it leads to is replaced.
        let place = if is_there { plain.canonicalize() } else { Ok(plain) };
        let place = place.or_else(|error| fail(path, error.to_string()))?;
        if is_there {
            let names = fs::read_dir(&place).and_then(|entries| entries.map(|entry| Ok(entry?.file_name())).collect());
            let names: Vec<_> = names.or_else(|error: io::Error| fail(path, error.to_string()))?;
            let other = names.iter().find(|name| !FILES.iter().any(|own| *own == name.as_os_str()));
            let is_export = names.is_empty() || names.iter().any(|name| name == DESCRIPTION);
            if let Some(other) = other.or_else(|| names.first().filter(|_| !is_export)) {
                let other = other.display();
                return fail(
                    path,
                    format!(
                        "it holds `{other}`, which is no part of an export, and would be removed; name a new folder in it"
                    ),
                );
            }
            if std::env::current_dir().is_ok_and(|here| here.canonicalize().is_ok_and(|here| here == place)) {
                return fail(
                    path,
                    "it is where this command was started, and would be replaced; name a folder in it".to_owned(),
                );
            }
        }
        Ok(Self { path: path.to_owned(), place })
    }

    /// What `make` makes of a name beside it that nothing has.
    fn beside(&self, what: &str, make: impl Fn(&Path) -> io::Result<()>) -> Result<Temporary, Error> {
        let names = (self.place.file_name(), self.place.parent());
        let (Some(name), Some(parent)) = names else {
            return fail(&self.path, "it can't be replaced as a whole; name a new folder in it".to_owned());
        };
        let mut number = 0;
        loop {
            let own = format!(".{}.{what}-{}-{number}", name.display(), std::process::id());
            let path = parent.join(own);
            let made = if path.exists() { Err(io::ErrorKind::AlreadyExists.into()) } else { make(&path) };
            match made {
                Ok(()) => return Ok(Temporary { path }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < MAX_NAMES => number += 1,
                Err(source) => {
                    let reason = "its directory must be there, and you must be allowed to write in it";
                    return fail(&self.path, format!("{source}; {reason}"));
                }
            }
        }
    }
}

/// A folder that is removed when nobody needs it any more, if it is there still.
struct Temporary {
    path: PathBuf,
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn fail<T>(path: &Path, reason: String) -> Result<T, Error> {
    Err(Error::Export { path: path.to_owned(), reason })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_checked_and_left_as_it_was() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("model.safetensors");
        check_place(&path).expect("a good place");
        assert_eq!(fs::read_dir(directory.path()).expect("read").count(), 0);
        fs::write(&path, b"an older model").expect("written");
        check_place(&path).expect("it may be written over");
        assert_eq!(fs::read(&path).expect("read"), b"an older model");
        let missing = directory.path().join("missing").join("model.safetensors");
        for (path, reason) in [
            (missing.clone(), "its directory must be there"),
            (missing.join(""), "its directory must be there"),
            (path.join(""), "it is a file"),
            (directory.path().join("model.onnx"), "name it .safetensors"),
            (directory.path().to_owned(), "`model.safetensors`, which is no part of an export"),
            ("/".into(), "no part of an export"),
        ] {
            let message = check_place(&path).expect_err("no place").to_string();
            assert!(message.contains("cannot write the model to") && message.contains(reason), "{message}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn what_a_link_leads_to_is_written_and_what_is_no_file_is_left_alone() {
        let directory = tempfile::tempdir().expect("a directory");
        let [file, link, lost] = ["model", "link", "lost"].map(|name| directory.path().join(name));
        fs::write(&file, b"an older model").expect("written");
        std::os::unix::fs::symlink(&file, &link).expect("a link");
        std::os::unix::fs::symlink(directory.path().join("nowhere"), &lost).expect("a link");
        let place = file_place(&link).expect("a file");
        assert_eq!(place, file.canonicalize().expect("it is there"));
        for (path, reason) in
            [(&lost, "leads nowhere"), (&directory.path().to_owned(), "no file"), (&"/dev/null".into(), "no file")]
        {
            let message = file_place(path).expect_err("no file").to_string();
            assert!(message.contains(reason), "{message}");
        }
    }

    fn names(directory: &Path) -> Vec<String> {
        let names = fs::read_dir(directory).expect("read").map(|entry| entry.expect("read").file_name());
        let mut names: Vec<String> = names.map(|name| name.display().to_string()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_folder_is_written_whole_and_only_an_export_is_replaced() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("out").join("");
        let files = |text: &str| FILES.map(|name| (name, format!("{name}: {text}").into_bytes()));
        check_place(&path).expect("a good place");
        assert_eq!(names(directory.path()), [""; 0]);
        for text in ["first", "second"] {
            write_folder(&path, &files(text)).expect("written");
            assert_eq!((names(directory.path()), names(&path).len()), (vec!["out".to_owned()], FILES.len()));
            assert_eq!(fs::read(path.join(CARD)).expect("read"), format!("{CARD}: {text}").into_bytes());
            assert!(is_folder(&directory.path().join("out")), "it is there, with and without a slash");
            check_place(&path).expect("it may be replaced");
        }
        // What fails half way leaves what was there, and nothing else.
        let bad = [files("third")[0].clone(), ("missing/model.json", Vec::new())];
        write_folder(&path, &bad).expect_err("no such folder");
        assert_eq!(fs::read(path.join(MODEL)).expect("read"), format!("{MODEL}: second").into_bytes());
        assert_eq!(names(directory.path()), ["out"]);
        fs::write(path.join("notes.txt"), "mine").expect("written");
        for result in [check_place(&path), write_folder(&path, &files("fourth"))] {
            let message = result.expect_err("not an export").to_string();
            assert!(message.contains("`notes.txt`") && message.contains("name a new folder"), "{message}");
        }
        assert_eq!(names(&path).len(), FILES.len() + 1);
        let empty = directory.path().join("empty");
        fs::create_dir(&empty).expect("made");
        write_folder(&empty, &files("fifth")).expect("an empty folder is taken");
        assert_eq!(names(&empty).len(), FILES.len());
    }
}
