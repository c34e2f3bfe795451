//! What is in the repository.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// One text file.
#[derive(Debug)]
pub(crate) struct File {
    /// Its path from the top, with `/`.
    pub(crate) path: String,
    /// Its content.
    pub(crate) text: String,
}

/// All text files that are tracked or would be by `git add`, sorted.
pub(crate) fn files() -> &'static [File] {
    static FILES: OnceLock<Vec<File>> = OnceLock::new();
    FILES.get_or_init(|| {
        let paths = list(&["ls-files", "--cached", "--others", "--exclude-standard"]);
        // What is no text (a compressed data set) or has just been deleted is left out.
        let read = |path: String| fs::read_to_string(root().join(&path)).ok().map(|text| File { path, text });
        paths.into_iter().filter_map(read).collect()
    })
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("invariant: the package lies in the repository").to_owned()
}

/// Asks git; in a copy without git's own folder, everything is looked at.
fn list(arguments: &[&str]) -> Vec<String> {
    let output = Command::new("git").arg("-C").arg(root()).args(arguments).output();
    let mut paths = match output {
        Ok(output) if output.status.success() => {
            String::from_utf8_lossy(&output.stdout).lines().map(ToOwned::to_owned).collect()
        }
        Ok(_) | Err(_) => walk(&root()),
    };
    paths.sort_unstable();
    paths.dedup();
    assert!(paths.iter().any(|path| path == "Cargo.toml"), "the repository's files could not be listed");
    paths
}

fn walk(top: &Path) -> Vec<String> {
    let (mut paths, mut folders) = (Vec::new(), vec![top.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of the repository").flatten() {
            let path = entry.path();
            let name = path.strip_prefix(top).expect("invariant: it was found below the top").to_owned();
            if name == Path::new(".git") || name == Path::new("target") {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else {
                paths.push(name.to_string_lossy().replace('\\', "/"));
            }
        }
    }
    paths
}

#[test]
fn a_copy_without_git_lists_the_same_sources() {
    let walked = walk(&root());
    for file in files().iter().filter(|file| file.path.ends_with(".rs")) {
        assert!(walked.contains(&file.path), "{} was not found", file.path);
    }
}
