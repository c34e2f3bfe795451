//! Where a trained model is to be written: a file, or a folder that comes about as a whole.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write as _};
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
/// How many names are tried for what lies beside it until it is whole.
const MAX_NAMES: u32 = 16;
/// What is said there of an export that is being written, and of one that is being replaced.
const NEW: &str = "new";
const OLD: &str = "old";

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
        return Folder::at(path)?.beside(NEW, |folder| fs::create_dir(folder)).map(drop);
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
    let new = folder.beside(NEW, |folder| fs::create_dir(folder))?;
    for (name, bytes) in files {
        write_atomically(&new.path.join(name), bytes).or_else(|error| fail(path, error.to_string()))?;
    }
    let moved = |result: io::Result<()>| result.or_else(|error| fail(path, error.to_string()));
    if !folder.place.exists() {
        moved(fs::rename(&new.path, &folder.place))?;
    } else {
        let old = folder.beside(OLD, |old| fs::rename(&folder.place, old))?;
        if let Err(error) = fs::rename(&new.path, &folder.place) {
            // As it was; what is moved back is not removed.
            let _ = fs::rename(&old.path, &folder.place);
            return fail(path, error.to_string());
        }
    }
    sync_names(&folder.place);
    Ok(())
}

/// Writes a file in its place: whole, or not at all. One that was there before is replaced, and its mode stays.
///
/// # Errors
/// If a device, a pipe or a folder is there, or nothing can be written. What was there is there then.
pub fn write_file(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let place = file_place(path)?;
    let part = beside(path, &place, NEW, |part| fs::File::options().write(true).create_new(true).open(part).map(drop))?;
    let write = || {
        let mut file = fs::File::options().write(true).open(&part.path)?;
        if let Ok(there) = fs::metadata(&place) {
            file.set_permissions(there.permissions())?;
        }
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&part.path, &place)
    };
    write().or_else(|error| fail(path, error.to_string()))?;
    sync_names(&place);
    Ok(())
}

/// What is under way of an export to `path`, or was when a process was ended: beside it, by the numbers of the processes that began it.
/// Nothing if the folder can't be read.
pub fn parts(path: &Path) -> Vec<(u32, PathBuf)> {
    let place = place_of(path);
    let (Some(name), parent) = (place.file_name(), parent(&place)) else { return Vec::new() };
    let start = format!(".{}.", name.display());
    let part = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        let (what, number) = name.strip_prefix(&start)?.split_once('-')?;
        let (process, _) = number.split_once('-').filter(|_| [NEW, OLD].contains(&what))?;
        Some((process.parse().ok()?, entry.path()))
    };
    let mut found: Vec<_> = fs::read_dir(parent).into_iter().flatten().flatten().filter_map(part).collect();
    found.sort();
    found
}

/// Removes a [part](parts), or puts it back where it was the export before, and no other has taken its place.
///
/// # Errors
/// What the system says.
pub fn remove_part(path: &Path, part: &Path) -> io::Result<()> {
    let place = place_of(path);
    let old = format!(".{OLD}-");
    let is_old = part.file_name().is_some_and(|name| name.to_string_lossy().contains(&old));
    if is_old && !place.exists() {
        return fs::rename(part, place);
    }
    if part.is_dir() { fs::remove_dir_all(part) } else { fs::remove_file(part) }
}

/// Where an export to `path` comes to lie: what a link leads to.
fn place_of(path: &Path) -> PathBuf {
    // With its last slash, a file is nothing to the system.
    let plain: PathBuf = path.components().collect();
    plain.canonicalize().unwrap_or(plain)
}

fn parent(place: &Path) -> &Path {
    place.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."))
}

/// That the names are on disk, too, is wished for where the system can say so.
fn sync_names(place: &Path) {
    let _ = fs::File::open(parent(place)).and_then(|parent| parent.sync_all());
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

    fn beside(&self, what: &str, make: impl Fn(&Path) -> io::Result<()>) -> Result<Temporary, Error> {
        beside(&self.path, &self.place, what, make)
    }
}

/// What `make` makes of a name beside `place` that nothing has; `path` is what its user wrote.
fn beside(path: &Path, place: &Path, what: &str, make: impl Fn(&Path) -> io::Result<()>) -> Result<Temporary, Error> {
    let (Some(name), Some(parent)) = (place.file_name(), place.parent()) else {
        return fail(path, "it can't be replaced as a whole; name a new folder in it".to_owned());
    };
    let mut number = 0;
    loop {
        let own = parent.join(format!(".{}.{what}-{}-{number}", name.display(), std::process::id()));
        let made = if own.exists() { Err(io::ErrorKind::AlreadyExists.into()) } else { make(&own) };
        match made {
            Ok(()) => return Ok(Temporary { path: own }),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < MAX_NAMES => number += 1,
            Err(source) => {
                let reason = "its directory must be there, and you must be allowed to write in it";
                return fail(path, format!("{source}; {reason}"));
            }
        }
    }
}

/// A file or folder that is removed when nobody needs it any more, if it is there still.
struct Temporary {
    path: PathBuf,
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = if self.path.is_dir() { fs::remove_dir_all(&self.path) } else { fs::remove_file(&self.path) };
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
    fn a_file_is_written_whole_and_what_was_left_of_another_is_known() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("model.onnx");
        for text in [b"first", b"other"] {
            write_file(&path, text).expect("written");
            assert_eq!(
                (names(directory.path()), fs::read(&path).expect("read")),
                (vec!["model.onnx".to_owned()], text.to_vec())
            );
        }
        // As a process leaves them that is killed.
        for name in [
            ".model.onnx.new-17-0",
            ".model.onnx.old-18-1",
            ".model.onnx.mine-1-0",
            ".model.onnx.new-x-0",
            ".other.new-17-0",
        ] {
            fs::write(directory.path().join(name), "left").expect("written");
        }
        let found = parts(&path);
        assert_eq!(found.iter().map(|(process, _)| *process).collect::<Vec<_>>(), [17, 18]);
        fs::remove_file(&path).expect("removed");
        for (_, part) in found {
            remove_part(&path, &part).expect("removed");
        }
        assert_eq!(fs::read(&path).expect("put back"), b"left", "what was there before");
        assert_eq!(parts(&path), []);
        assert_eq!(names(directory.path()).len(), 4, "what is not ours stays");
        assert_eq!(parts(&directory.path().join("missing/model.onnx")), []);
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
