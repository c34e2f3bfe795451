//! What is in the repository.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Everything that may lie at the top.
const TOP_LEVEL: [&str; 25] = [
    ".ci",
    ".github",
    ".gitignore",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "NOTICE",
    "README.md",
    "SECURITY.md",
    "clippy.toml",
    "collective",
    "deny.toml",
    "docs",
    "fuzz",
    "node",
    "rust-toolchain.toml",
    "rustfmt.toml",
    "sims",
    "tests",
    "topology",
    "train",
];

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

/// The paths of all tracked files, sorted.
pub(crate) fn tracked() -> Vec<String> {
    list(&["ls-files"])
}

/// The tracked files that lie where nothing of theirs belongs.
pub(crate) fn strays(paths: &[String]) -> Vec<String> {
    let is_stray = |path: &&String| !TOP_LEVEL.contains(&path.split('/').next().unwrap_or_default());
    paths.iter().filter(is_stray).map(|path| format!("{path}: the top level has no such entry")).collect()
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
fn a_stray_is_found() {
    let paths = ["Cargo.toml", "scripts/build.sh", "docs/README.md", "notes.txt"].map(ToOwned::to_owned);
    let wrong = strays(&paths);
    assert_eq!(wrong.len(), 2, "{wrong:?}");
    assert!(wrong[0].starts_with("scripts/build.sh") && wrong[1].starts_with("notes.txt"), "{wrong:?}");
}

#[test]
fn a_copy_without_git_lists_the_same_sources() {
    let walked = walk(&root());
    for file in files().iter().filter(|file| file.path.ends_with(".rs")) {
        assert!(walked.contains(&file.path), "{} was not found", file.path);
    }
}
