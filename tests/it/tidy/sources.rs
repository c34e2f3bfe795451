//! Rules about sources. Needles are put together from halves, so that the rules don't find themselves.

/// What marks unfinished work.
const MARKERS: [&str; 6] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("X", "XX"),
    concat!("HA", "CK"),
    concat!("to", "do!"),
    concat!("unimple", "mented!"),
];

/// Where the files of one machine would lie.
const MACHINE_PATHS: [&str; 4] =
    [concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/wo", "rk/"), concat!("/Us", "ers/")];

/// Attributes that keep a test from running, or from running beside others.
const SKIPS: [&str; 2] = [concat!("#[ig", "nore"), concat!("#[ser", "ial")];

/// What a sans-io package does not even name. Its `clippy.toml` forbids clocks and hash maps besides.
const SANS_IO: &[&str] = &[
    concat!("std:", ":net"),
    concat!("std:", ":fs"),
    concat!("std:", ":thread"),
    concat!("std:", ":env"),
    concat!(".aw", "ait"),
    concat!("async", " fn"),
];

/// What the trainer does not name: it reads files and drives devices, but it talks to nobody.
const NO_PEERS: &[&str] = &[concat!("std:", ":net"), concat!(".aw", "ait"), concat!("async", " fn")];

/// Who may say that a lint against unsafe code does not hold: caches and shared memory; the environment of a process that has just
/// begun; an allocator that counts.
const UNSAFE: [&str; 4] = [
    "collective/src/session/memory.rs",
    "node/links/src/local/memory.rs",
    "node/cli/src/main.rs",
    "fuzz/src/allocation.rs",
];

/// Unsafe code where there is none to be.
pub(crate) fn unsafe_code(path: &str, text: &str) -> Vec<String> {
    if UNSAFE.contains(&path) {
        return Vec::new();
    }
    let exceptions = [concat!("(unsafe_", "code,"), concat!("(unsafe_", "code)")];
    let is_one = |line: &str| exceptions.iter().any(|exception| line.contains(exception));
    find(text, |line| is_one(line).then(|| "unsafe code has no place here".to_owned()))
}

/// What a package must not contain.
pub(crate) fn absences(path: &str, text: &str) -> Vec<String> {
    let never = match path.split_once('/') {
        // The simulator's command line: seeds run on threads, and pictures go into files.
        Some(("sims", "src/cli/verbs.rs")) => &[],
        Some(("topology" | "collective" | "sims", _)) => SANS_IO,
        Some(("train", rest)) if rest.starts_with("engine/") => SANS_IO,
        Some(("train", _)) => NO_PEERS,
        _ => &[],
    };
    find(text, |line| {
        let needle = never.iter().find(|needle| names(line, needle))?;
        Some(format!("{needle} has no place in this package"))
    })
}

/// The public types that a source declares.
pub(crate) fn types(text: &str) -> Vec<String> {
    text.lines().filter(|line| line.starts_with("pub ")).filter_map(declared).map(str::to_owned).collect()
}

/// Types that are called as one of `machines`: what those do has no second home.
pub(crate) fn doubles(machines: &[String], text: &str) -> Vec<String> {
    find(text, |line| {
        let name = declared(line).filter(|name| machines.iter().any(|machine| machine == name))?;
        Some(format!("the engine has a type {name}"))
    })
}

/// The type that this line declares.
fn declared(line: &str) -> Option<&str> {
    let mut words = line.split(|of: char| !of.is_alphanumeric() && of != '_').filter(|word| !word.is_empty());
    let is_kind = |word: &str| ["struct", "enum", "trait"].contains(&word);
    let is_before = |word: &str| ["pub", "super", "crate"].contains(&word);
    words.find(|word| !is_before(word)).filter(|word| is_kind(word)).and_then(|_| words.next())
}

/// Marks of unfinished work.
pub(crate) fn markers(text: &str) -> Vec<String> {
    find(text, |line| {
        let marker = MARKERS.iter().find(|marker| has_word(line, marker))?;
        Some(format!("{marker} marks unfinished work"))
    })
}

/// Absolute paths of one machine.
pub(crate) fn machine_paths(text: &str) -> Vec<String> {
    find(text, |line| {
        let place = MACHINE_PATHS.iter().find(|place| line.contains(**place))?;
        Some(format!("{place} is a place on one machine"))
    })
}

/// Tests that don't always run, and tests that wait for time to pass instead of for what they test.
pub(crate) fn idle_tests(path: &str, text: &str) -> Vec<String> {
    let skipped = find(text, |line| {
        let skip = SKIPS.iter().find(|skip| line.trim_start().starts_with(**skip))?;
        Some(format!("{skip}] keeps a test from running"))
    });
    let code = if is_test_file(path) { 0 } else { code_lines(text) };
    let tests: String = text.lines().skip(code).map(|line| format!("{line}\n")).collect();
    let asleep = find(&tests, |line| is_nap(line).then(|| line.trim().to_owned()));
    let asleep = asleep.into_iter().map(|problem| format!("a test sleeps, {code} lines and {problem}"));
    skipped.into_iter().chain(asleep).collect()
}

/// What a crate's root exports, by the names that it has there and where it comes from.
pub(crate) fn exports(root: &str) -> Vec<String> {
    uses(root).filter(|(is_public, _)| *is_public).flat_map(|(_, path)| last_names(&path)).collect()
}

/// What a model takes that no user has: names of ours that are neither among `exports` nor its `own`.
pub(crate) fn not_exported(text: &str, exports: &[String], own: &[&str]) -> Vec<String> {
    let code: String = text.lines().take(code_lines(text)).map(|line| format!("{line}\n")).collect();
    let of_others = ["burn::", "std::", "serde_json::"];
    let ours = uses(&code).filter(|(_, path)| !of_others.iter().any(|other| path.starts_with(other)));
    let names = ours.flat_map(|(_, path)| last_names(&path)).collect::<Vec<_>>();
    let is_known = |name: &String| exports.contains(name) || own.contains(&name.as_str());
    names.into_iter().filter(|name| !is_known(name)).map(|name| format!("the crate starling has no {name}")).collect()
}

/// The paths of `use` declarations, and whether they are public.
fn uses(text: &str) -> impl Iterator<Item = (bool, String)> {
    let declarations = text.split(';').filter_map(|declaration| {
        let begins = declaration.lines().position(|line| line.trim_start().starts_with("use "));
        let exports = declaration.lines().position(|line| line.trim_start().starts_with("pub use "));
        let at = begins.or(exports)?;
        let path: String = declaration.lines().skip(at).map(str::trim).collect();
        Some((exports.is_some(), path.trim_start_matches("pub ").trim_start_matches("use ").to_owned()))
    });
    declarations.collect::<Vec<_>>().into_iter()
}

/// What a path ends with: one name, or several in braces; both names of what is renamed.
fn last_names(path: &str) -> Vec<String> {
    let listed = path.split_once('{').map_or_else(|| path.rsplit("::").next().unwrap_or_default(), |(_, list)| list);
    let names = listed.trim_end_matches('}').split(',').flat_map(|name| name.split(" as "));
    names.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect()
}

/// A crate that does not begin by saying what it is.
pub(crate) fn introduction(text: &str) -> Vec<String> {
    let lines = text.lines().map_while(|line| line.strip_prefix("//!"));
    let words = lines.flat_map(str::split_whitespace).count();
    if words >= 5 { Vec::new() } else { vec!["does not begin by saying what it is (//! ...)".to_owned()] }
}

/// What `problem` says of each line, behind the line's number.
pub(crate) fn find(text: &str, problem: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let numbered = (1..).zip(text.lines());
    numbered.filter_map(|(number, line): (u32, _)| problem(line).map(|text| format!("line {number}: {text}"))).collect()
}

/// Whether a line does nothing but wait for time to pass. A sleep beside something else, as its deadline, is none.
fn is_nap(line: &str) -> bool {
    line.contains(concat!("thread::sle", "ep("))
        || (line.contains(concat!("sle", "ep(")) && line.contains(concat!(".aw", "ait")))
}

/// Whether `needle` stands in `line`, and is not the beginning of another name.
fn names(line: &str, needle: &str) -> bool {
    let goes_on = |letter: char| letter.is_alphanumeric() || letter == '_';
    line.match_indices(needle).any(|(at, _)| !line[at + needle.len()..].starts_with(goes_on))
}

/// Whether `word` stands in `line` on its own.
fn has_word(line: &str, word: &str) -> bool {
    let is_part = |letter: Option<char>| letter.is_some_and(|letter| letter.is_alphanumeric() || letter == '_');
    line.match_indices(word).any(|(at, _)| {
        let (before, after) = (&line[..at], &line[at + word.len()..]);
        !is_part(before.chars().next_back()) && !is_part(after.chars().next())
    })
}

/// Whether the whole file is tests or benches.
pub(crate) fn is_test_file(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.split('/').any(|folder| folder == "tests" || folder == "benches")
}

/// How many lines come before a file's unit tests.
pub(crate) fn code_lines(text: &str) -> usize {
    let lines: Vec<&str> = text.lines().collect();
    let begin_tests =
        |pair: &[&str]| pair[0] == "#[cfg(test)]" && pair[1].starts_with("mod ") && pair[1].ends_with('{');
    lines.windows(2).position(begin_tests).unwrap_or(lines.len())
}

#[test]
fn io_in_a_sans_io_package_is_found() {
    let text = format!("fn a() {{}}\nuse {}::TcpStream;\n", SANS_IO[0]);
    assert_eq!(absences("topology/src/view/mod.rs", &text).len(), 1);
    assert_eq!(absences("train/engine/src/steps/mod.rs", &text).len(), 1);
    assert_eq!(absences("train/src/trainer.rs", &text).len(), 1);
    assert_eq!(absences("node/src/net/network.rs", &text), Vec::<String>::new());
    let text = format!("a(){};\nb{}ed;\n", concat!(".aw", "ait"), concat!(".aw", "ait"));
    assert_eq!(absences("topology/src/view/mod.rs", &text).len(), 1, "a field may be called so");
    let text = format!("{} serve() {{}}", concat!("async", " fn"));
    assert!(absences("sims/src/world/mod.rs", &text)[0].starts_with("line 1: "));
}

#[test]
fn unsafe_code_is_found() {
    let text = format!("#![allow(unsafe_{}, reason = \"it is fast\")]\n", "code");
    assert_eq!(unsafe_code("node/links/src/local/mod.rs", &text).len(), 1);
    assert_eq!(unsafe_code("node/links/src/local/memory.rs", &text), Vec::<String>::new());
}

#[test]
fn a_model_that_no_user_could_write_is_found() {
    let root = "mod a;\n#[cfg(feature = \"b\")]\npub use a::{\n    Task,\n    NodeError as Error,\n};\npub mod data {\n    pub use b::Dataset;\n}\nuse c::Hidden;\n";
    let exports = exports(root);
    assert_eq!(exports, ["Task", "NodeError", "Error", "Dataset"]);
    let model = "use burn::nn::Linear;\nuse std::fmt;\nuse crate::task::Task;\nuse b::{Dataset, Hidden};\nuse crate::network;\n#[cfg(test)]\nmod tests {\nuse c::D;\n}\n";
    assert_eq!(not_exported(model, &exports, &["network"]), ["the crate starling has no Hidden"]);
}

#[test]
fn a_second_machine_is_found() {
    let machines = types("pub struct Steps<R, S> {\nstruct Fetch {\npub enum Action {\n");
    assert_eq!(machines, ["Steps", "Action"]);
    let text = "use engine::Steps;\npub(super) struct Steps {\nstruct Fetch {\n    enum Actions {\n";
    assert_eq!(doubles(&machines, text).len(), 1);
}

#[test]
fn unfinished_work_is_found() {
    for marker in MARKERS {
        assert_eq!(markers(&format!("fine\n    // {marker} later")).len(), 1, "{marker}");
        assert_eq!(markers(&format!("// {marker}ERY is a word of its own")), Vec::<String>::new(), "{marker}");
    }
}

#[test]
fn a_place_on_one_machine_is_found() {
    for place in MACHINE_PATHS {
        assert_eq!(machine_paths(&format!("path = \"{place}me\"")).len(), 1, "{place}");
    }
    assert_eq!(machine_paths("~/.local/share and target/release"), Vec::<String>::new());
}

#[test]
fn a_test_that_is_skipped_or_sleeps_is_found() {
    for skip in SKIPS {
        assert_eq!(idle_tests("node/src/a.rs", &format!("    {skip} = \"slow\"]")).len(), 1, "{skip}");
    }
    let nap = format!("thread::{}PAUSE);\n", concat!("sle", "ep("));
    let code_only = format!("{nap}#[cfg(test)]\nmod tests {{\n}}\n");
    let test_too = format!("{nap}#[cfg(test)]\nmod tests {{\n{nap}}}\n");
    assert_eq!(idle_tests("node/src/a.rs", &code_only), Vec::<String>::new());
    assert_eq!(idle_tests("node/src/a.rs", &test_too).len(), 1);
    assert_eq!(idle_tests("node/src/a/tests.rs", &nap).len(), 1);
    assert_eq!(idle_tests("tests/it/a.rs", &nap).len(), 1);
    let nap = format!("tokio::time::{}PAUSE)", concat!("sle", "ep("));
    assert_eq!(idle_tests("tests/it/a.rs", &format!("{nap}{};", concat!(".aw", "ait"))).len(), 1);
    assert_eq!(idle_tests("tests/it/a.rs", &format!("let deadline = {nap};")), Vec::<String>::new());
}

#[test]
fn a_crate_without_a_word_is_found() {
    assert_eq!(introduction("//! What a run computes, and how.\nmod a;"), Vec::<String>::new());
    assert_eq!(introduction("mod a;").len(), 1);
    assert_eq!(introduction("//! stub\n").len(), 1);
}
