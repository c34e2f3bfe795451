//! Inputs that are kept: `corpus/TARGET/*.hex`, in hexadecimal digits. What was found, and of each target a few that it has taken
//! although they are no valid encodings as they were made.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use crate::mutation::Mutator;
use crate::runner::{Failure, give};
use crate::target::Target;
use crate::{Tally, hex};

/// How many of those that were taken are kept of each target, and the longest one, in bytes.
const REACHED: usize = 3;
const LONGEST: usize = 6_000;
/// How many inputs are tried for them.
const TRIES: usize = 20_000;

/// Where those of a target are.
pub fn folder(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target)
}

/// What is kept of a target, by the file.
///
/// # Errors
/// If it can't be read, as when nothing was ever kept.
pub fn read(target: &str) -> io::Result<Vec<(PathBuf, Vec<u8>)>> {
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder(target))?.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
    paths.sort();
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path)?;
        let bytes = hex::decode(&text).ok_or_else(|| io::Error::other(format!("{} is no hex", path.display())))?;
        Ok((path, bytes))
    };
    paths.into_iter().map(read).collect()
}

/// Keeps an input that was found.
///
/// # Errors
/// If it can't be written.
pub fn keep_found(failure: &Failure) -> io::Result<PathBuf> {
    let name = blake3::hash(&failure.input).to_hex();
    write(failure.target, &format!("found-{}", &name[..8]), &failure.input)
}

/// Keeps a few inputs that the target takes, in the place of those that were kept before.
///
/// # Errors
/// If they can't be written.
pub fn keep_reached(target: &Target, seed: u64) -> io::Result<usize> {
    let seeds = (target.seeds)();
    let (mut mutator, mut lengths, mut kept) = (Mutator::new(seed, target.longest), BTreeSet::new(), 0);
    for _ in 0..TRIES {
        let input = mutator.next(&seeds);
        let is_new = input.len() <= LONGEST && !input.is_empty() && !seeds.contains(&input);
        let is_taken = || give(target, &input, &mut Tally::default()).is_ok_and(|is_taken| is_taken);
        if is_new && !lengths.contains(&input.len()) && is_taken() {
            lengths.insert(input.len());
            kept += 1;
            write(target.name, &format!("reached-{kept}"), &input)?;
        }
        if kept == REACHED {
            break;
        }
    }
    Ok(kept)
}

fn write(target: &str, name: &str, input: &[u8]) -> io::Result<PathBuf> {
    std::fs::create_dir_all(folder(target))?;
    let path = folder(target).join(format!("{name}.hex"));
    std::fs::write(&path, hex::encode(input) + "\n")?;
    Ok(path)
}
