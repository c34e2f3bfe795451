//! Where a trained model is to be written.

use std::path::Path;

use atomic_write_file::AtomicWriteFile;

use crate::error::Error;

/// Checks that a model could be written to `path`, so that nobody learns it only after a long run. Leaves nothing there.
///
/// # Errors
/// If `path` is a directory, or nothing can be written to its directory.
pub fn check_place(path: &Path) -> Result<(), Error> {
    let fail = |reason: String| Err(Error::Export { path: path.to_owned(), reason });
    if path.is_dir() {
        return fail("it is a directory; name a file in it".to_owned());
    }
    match AtomicWriteFile::open(path).and_then(AtomicWriteFile::discard) {
        Ok(()) => Ok(()),
        Err(source) => fail(format!("{source}; its directory must be there, and you must be allowed to write in it")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_checked_and_left_as_it_was() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("model.safetensors");
        check_place(&path).expect("a good place");
        assert_eq!(std::fs::read_dir(directory.path()).expect("read").count(), 0);
        std::fs::write(&path, b"an older model").expect("written");
        check_place(&path).expect("it may be written over");
        assert_eq!(std::fs::read(&path).expect("read"), b"an older model");
        let missing = directory.path().join("missing").join("model.safetensors");
        for (path, reason) in [(missing.as_path(), "its directory must be there"), (directory.path(), "name a file")] {
            let message = check_place(path).expect_err("no place").to_string();
            assert!(message.contains("cannot write the model to") && message.contains(reason), "{message}");
        }
    }
}
