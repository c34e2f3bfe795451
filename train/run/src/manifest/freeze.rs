//! Which parameters of a model are not trained, though its module would train them. What its forward passes change is none of these: a
//! normalization that is frozen leaves it as it is.

use crate::manifest::schema::{Entry, LeafKind};

/// The most paths that a run may name.
const MAX_PATHS: usize = 64;
/// The longest of them, in bytes.
const MAX_PATH: usize = 256;
/// How many paths an error repeats.
const MAX_NAMED: usize = 8;

/// Those paths as a manifest has them: sorted, and each once.
pub fn frozen(paths: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut paths: Vec<String> = paths.into_iter().collect();
    paths.sort_unstable();
    paths.dedup();
    paths
}

/// Whether `path` is one of `paths`, is in a module that is, or ends as one of them that begins with `*.`.
pub fn is_under(paths: &[String], path: &str) -> bool {
    let is_in = |rest: &str| rest.is_empty() || rest.starts_with('.');
    paths.iter().any(|prefix| match prefix.strip_prefix("*.") {
        Some(last) => path.rsplit('.').next() == Some(last),
        None => path.strip_prefix(prefix.as_str()).is_some_and(is_in),
    })
}

/// The parameters with those frozen that are under one of `paths`.
///
/// # Errors
/// If a path is of none, or nothing is left to be trained: why and what to do, as a sentence.
pub fn freeze(mut entries: Vec<Entry>, paths: &[String]) -> Result<Vec<Entry>, String> {
    let is_trained = |entry: &&Entry| entry.kind == LeafKind::Trained;
    for path in paths {
        if !entries.iter().filter(is_trained).any(|entry| is_under(std::slice::from_ref(path), &entry.path)) {
            let named: Vec<&str> =
                entries.iter().filter(is_trained).take(MAX_NAMED).map(|entry| entry.path.as_str()).collect();
            let more = if entries.iter().filter(is_trained).count() > MAX_NAMED { ", ..." } else { "" };
            return Err(format!(
                "the model trains no parameter `{path}`, and none in it; it has {}{more}",
                named.join(", ")
            ));
        }
    }
    for entry in entries.iter_mut().filter(|entry| entry.kind == LeafKind::Trained && is_under(paths, &entry.path)) {
        entry.kind = LeafKind::Frozen;
    }
    match entries.iter().any(|entry| entry.kind == LeafKind::Trained) {
        true => Ok(entries),
        false => Err("nothing of the model would be trained; freeze less of it".to_owned()),
    }
}

/// Checks what a manifest says, which may be a stranger's.
///
/// # Errors
/// What is wrong, as a sentence.
pub(crate) fn check(paths: &[String]) -> Result<(), String> {
    if paths.len() > MAX_PATHS {
        return Err(format!("there are {}, but {MAX_PATHS} are possible", paths.len()));
    }
    paths.iter().try_for_each(|path| check_path(path))?;
    let is_sorted = paths.windows(2).all(|pair| pair[0] < pair[1]);
    if is_sorted { Ok(()) } else { Err("its paths are not sorted, or one is there twice".to_owned()) }
}

/// Checks one path, which may be a stranger's.
///
/// # Errors
/// That it is none, as a sentence.
pub(crate) fn check_path(path: &str) -> Result<(), String> {
    let is_sane = (1..=MAX_PATH).contains(&path.len()) && path.bytes().all(|byte| byte.is_ascii_graphic());
    if is_sane {
        return Ok(());
    }
    Err(format!("paths of 1 to {MAX_PATH} printable ASCII letters without blanks are possible, and this one is none"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(paths: &[&str]) -> Vec<String> {
        frozen(paths.iter().map(|path| (*path).to_owned()))
    }

    #[test]
    fn a_path_is_a_parameter_or_the_module_that_it_is_in() {
        let entries =
            ["layers.1.weight", "layers.10.weight", "norm.mean", "output"].map(|path| Entry::trained(path, &[1]));
        let kinds = |under: &[&str]| {
            let frozen = freeze(entries.to_vec(), &paths(under)).expect("possible");
            frozen.iter().map(|entry| entry.kind == LeafKind::Frozen).collect::<Vec<_>>()
        };
        assert_eq!(kinds(&["layers.1"]), [true, false, false, false]);
        assert_eq!(kinds(&["layers", "output"]), [true, true, false, true]);
        assert_eq!(kinds(&["layers.10.weight"]), [false, true, false, false]);
        assert_eq!(kinds(&["*.weight"]), [true, true, false, false]);
        assert_eq!(kinds(&[]), [false; 4]);
        let refused = |under: &[&str]| freeze(entries.to_vec(), &paths(under)).expect_err("impossible");
        assert!(refused(&["layer"]).contains("trains no parameter `layer`, and none in it; it has layers.1.weight, "));
        assert!(refused(&["layers", "norm", "output"]).contains("nothing of the model would be trained"));
    }

    #[test]
    fn what_a_stranger_may_not_say_is_refused() {
        assert_eq!(check(&paths(&["b", "a", "a"])), Ok(()));
        for bad in [vec!["\u{1b}[2J"], vec![""], vec!["b", "a"], vec!["a", "a"], vec!["a b"]] {
            let bad: Vec<String> = bad.into_iter().map(str::to_owned).collect();
            let reason = check(&bad).expect_err("refused");
            assert!(!reason.contains('\u{1b}'), "{reason}");
        }
        assert!(check(&vec!["a".to_owned(); 65]).is_err());
    }
}
