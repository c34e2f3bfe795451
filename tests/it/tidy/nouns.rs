//! The nouns of types: the last words of the names of the libraries' public types. A newcomer has to know them all, so they are few,
//! and the list of words has them.

use std::collections::BTreeSet;

use super::sources::{code_lines, is_test_file};

/// The most that there may be: a new type is called by one that is there, or takes the place of another.
const MAX_NOUNS: usize = 150;

/// Where the sources of the libraries lie; all others are of programs.
const LIBRARIES: [&str; 9] = [
    "topology/src/",
    "collective/src/",
    "train/run/src/",
    "train/data/src/",
    "train/src/",
    "train/engine/src/",
    "node/links/src/",
    "node/src/",
    "node/starling/src/",
];

/// What declares a type.
const KINDS: [&str; 5] = ["struct ", "enum ", "trait ", "type ", "union "];

/// What the list stands under.
const HEADING: &str = "### Nouns";

/// Whether a file is a library's, and more than tests.
pub(crate) fn is_library(path: &str) -> bool {
    LIBRARIES.iter().any(|library| path.starts_with(library)) && path.ends_with(".rs") && !is_test_file(path)
}

/// The nouns of the public types that a source declares.
pub(crate) fn used(text: &str) -> impl Iterator<Item = &str> {
    text.lines().take(code_lines(text)).filter_map(noun)
}

/// What is wrong with the nouns in use, by the list of words: too many, or other ones than are listed.
pub(crate) fn wrong(used: &BTreeSet<&str>, words: &str) -> Vec<String> {
    let listed = listed(words);
    let many = (used.len() > MAX_NOUNS)
        .then(|| format!("public types have {} nouns, where {MAX_NOUNS} are the most", used.len()));
    let missing = used.difference(&listed).map(|noun| format!("has no noun {noun}, which a public type is called by"));
    let unused = listed.difference(used).map(|noun| format!("has a noun {noun}, which no public type is called by"));
    many.into_iter().chain(missing).chain(unused).collect()
}

/// What stands in backticks under the heading, but names of folders and files.
fn listed(words: &str) -> BTreeSet<&str> {
    let section = words.lines().skip_while(|line| *line != HEADING).skip(1).take_while(|line| !line.starts_with('#'));
    let quoted = section.flat_map(|line| line.split('`').skip(1).step_by(2));
    quoted.filter(|word| word.starts_with(char::is_uppercase)).collect()
}

/// The last word of the name of the public type that this line declares.
fn noun(line: &str) -> Option<&str> {
    let declared = line.trim_start().strip_prefix("pub ")?;
    let declared = declared.strip_prefix("unsafe ").unwrap_or(declared);
    let name = KINDS.iter().find_map(|kind| declared.strip_prefix(kind))?;
    let end = name.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(name.len());
    let name = &name[..end];
    name.rfind(char::is_uppercase).map(|at| &name[at..])
}

#[test]
fn a_noun_that_is_not_listed_is_found() {
    let text = "pub struct Head<T> {\n    pub enum SegmentId {\npub unsafe trait Mapped: Send {\npub(crate) struct Hidden;\npub type Crc32 = u32;\npub fn a() {}\n#[cfg(test)]\nmod tests {\n    pub struct Fake;\n}\n";
    let used: BTreeSet<&str> = used(text).collect();
    assert_eq!(used.iter().copied().collect::<Vec<_>>(), ["Crc32", "Head", "Id", "Mapped"]);
    let words = "`Before`\n### Nouns\n| `topology/` | `Head` (of a state), `Id`, `Crc32` |\n| `collective/` | `Mapped` |\n## More\n`Behind`\n";
    assert_eq!(wrong(&used, words), Vec::<String>::new());
    assert_eq!(wrong(&used, &words.replace("`Id`, ", "")).len(), 1);
    assert_eq!(wrong(&used, &words.replace("`Id`", "`Id`, `Seat`")).len(), 1);
}

#[test]
fn more_nouns_than_anybody_learns_are_found() {
    let names: Vec<String> = (0..=MAX_NOUNS).map(|number| format!("N{number}")).collect();
    let used: BTreeSet<&str> = names.iter().map(String::as_str).collect();
    let words: String = names.iter().map(|name| format!("`{name}`\n")).collect();
    assert_eq!(wrong(&used, &format!("### Nouns\n{words}")).len(), 1);
}

#[test]
fn only_sources_of_libraries_count() {
    assert!(is_library("node/src/net/network.rs") && is_library("train/run/src/lib.rs"));
    assert!(!is_library("node/cli/src/main.rs") && !is_library("sims/src/lib.rs"));
    assert!(!is_library("topology/src/tests/cluster.rs") && !is_library("train/src/task/tasks/tests.rs"));
}
