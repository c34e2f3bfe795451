//! Rules about sources. Needles are put together here, so that the rules don't find themselves.

/// The longest that a source file may be, in lines, its unit tests excluded.
const MAX_LINES: usize = 500;

/// Words that mark unfinished work.
const MARKERS: [&str; 6] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("X", "XX"),
    concat!("HA", "CK"),
    concat!("todo", "!"),
    concat!("unimplemented", "!"),
];

/// Where somebody's files would lie.
const MACHINE_PATHS: [&str; 4] =
    [concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/wo", "rk/"), concat!("/Us", "ers/")];

/// What a sans-io package does not even name.
const SANS_IO: &[&str] = &[
    concat!("std", "::net"),
    concat!("std", "::fs"),
    concat!("std", "::thread"),
    concat!("std", "::sync::mpsc"),
    concat!("System", "Time"),
    concat!(".aw", "ait"),
    concat!("async", " fn"),
];
/// What the trainer does not name: it may read files and look at devices, but it waits for nobody.
const SYNCHRONOUS: &[&str] = &[concat!("std", "::net"), concat!(".aw", "ait"), concat!("async", " fn")];

/// What a package must not contain.
pub(crate) fn absences(path: &str, text: &str) -> Vec<String> {
    let never = match path.split_once('/') {
        Some(("topology" | "collective", _)) => SANS_IO,
        // The simulator's binary looks at a watch and writes its report.
        Some(("sims", file)) if file != "src/main.rs" => SANS_IO,
        Some(("train", _)) => SYNCHRONOUS,
        _ => return Vec::new(),
    };
    find(text, |line| never.iter().find(|needle| line.contains(**needle)).map(|needle| format!("{needle} has no place here")))
}

/// Marks of unfinished work.
pub(crate) fn markers(text: &str) -> Vec<String> {
    find(text, |line| {
        MARKERS.iter().find(|marker| has_word(line, marker)).map(|marker| format!("{marker} marks unfinished work"))
    })
}

/// Absolute paths of one machine.
pub(crate) fn machine_paths(text: &str) -> Vec<String> {
    find(text, |line| {
        MACHINE_PATHS.iter().find(|place| line.contains(**place)).map(|place| format!("{place} is a place on one machine"))
    })
}

/// Tests that are skipped, that wait for one another, or that sleep instead of waiting for what they test.
pub(crate) fn idle_tests(path: &str, text: &str) -> Vec<String> {
    let attributes = [concat!("#[ig", "nore"), concat!("#[ser", "ial"), concat!("#[tokio::test(start", "_paused")];
    let skipped = find(text, |line| {
        let line = line.trim_start();
        attributes[..2].iter().find(|attribute| line.starts_with(**attribute)).map(|attribute| format!("{attribute}..] skips a test"))
    });
    let from = if is_test_file(path) { 0 } else { code_lines(text) };
    let sleep = concat!("sle", "ep(");
    let asleep = find(text, |line| line.contains(sleep).then(|| "a test waits for an event, not for time".to_owned()));
    let is_test_line = |problem: &String| problem.split(':').next().and_then(|line| line.parse::<usize>().ok()) > Some(from);
    skipped.into_iter().chain(asleep.into_iter().filter(is_test_line)).collect()
}

/// A file that asks to be two.
pub(crate) fn length(path: &str, text: &str) -> Vec<String> {
    let lines = code_lines(text);
    let is_long = !is_test_file(path) && lines > MAX_LINES;
    is_long.then(|| format!("{lines} lines without its tests, where {MAX_LINES} are the most")).into_iter().collect()
}

/// A crate that does not begin with what it is.
pub(crate) fn introduction(text: &str) -> Vec<String> {
    let words = text.lines().take_while(|line| line.starts_with("//!")).flat_map(|line| line.split_whitespace().skip(1)).count();
    if words >= 5 { Vec::new() } else { vec!["does not begin by saying what it is (//!)".to_owned()] }
}
