//! Rules about documents.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path};

use super::repository::File;

/// The headings of a decision, in order.
const DECISION: [&str; 4] = ["## Status", "## Context", "## Decision", "## Consequences"];

/// Relative links that lead to no file, or to no heading of it.
pub(crate) fn dead_links(path: &str, text: &str, files: &[File]) -> Vec<String> {
    let folder = Path::new(path).parent().unwrap_or_else(|| Path::new(""));
    let is_outside = |link: &String| ["https://", "http://", "mailto:"].iter().any(|scheme| link.starts_with(scheme));
    let dead = |link: &String| {
        let (file, anchor) = link.split_once('#').map_or((link.as_str(), None), |(file, anchor)| (file, Some(anchor)));
        let target = if file.is_empty() { Some(path.to_owned()) } else { normal(&folder.join(file)) };
        let Some(target) = target else { return Some(format!("the link to {link} leaves the repository")) };
        let found = files.iter().find(|file| file.path == target);
        let is_folder =
            files.iter().any(|file| file.path.strip_prefix(&target).is_some_and(|rest| rest.starts_with('/')));
        match (found, anchor) {
            (None, _) if !is_folder => Some(format!("the link to {link} leads to no file")),
            (Some(file), Some(anchor)) if !anchors(&file.text).contains(anchor) => {
                Some(format!("the link to {link} leads to no heading of {target}"))
            }
            (None, Some(_)) => Some(format!("the link to {link} asks for a heading of a folder")),
            (None | Some(_), _) => None,
        }
    };
    links(text).into_iter().filter(|link| !is_outside(link)).filter_map(|link| dead(&link)).collect()
}

/// A text that is longer than `lines`.
pub(crate) fn at_most(lines: usize, text: &str) -> Vec<String> {
    let found = text.lines().count();
    if found <= lines { Vec::new() } else { vec![format!("{found} lines, where {lines} are the most")] }
}

/// A decision that is not named and laid out like the others.
pub(crate) fn decision(path: &str, text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let name = path.rsplit('/').next().unwrap_or_default();
    let number = name.split('-').next().unwrap_or_default();
    let is_number = number.len() == 4 && number.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number || !text.starts_with(&format!("# {number}: ")) {
        wrong.push("is not called NNNN-what.md with `# NNNN: What` as its first line".to_owned());
    }
    let headings: Vec<&str> = text.lines().filter(|line| line.starts_with("## ")).collect();
    if headings != DECISION {
        wrong.push(format!("has the headings {headings:?} instead of {DECISION:?}"));
    }
    wrong
}

/// Documents that the index has no link to.
pub(crate) fn unlisted(index: &str, documents: &[&str]) -> Vec<String> {
    let listed = links(index);
    let is_listed = |document: &&&str| listed.iter().any(|link| link == **document);
    documents
        .iter()
        .filter(|document| !is_listed(document))
        .map(|document| format!("does not link to {document}"))
        .collect()
}

/// A path without `.` and `..`; `None` if it leaves the repository.
fn normal(path: &Path) -> Option<String> {
    let mut parts: Vec<String> = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(part) => parts.push(part.to_string_lossy().into_owned()),
            Component::ParentDir => {
                parts.pop()?;
            }
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    Some(parts.join("/"))
}

/// The lines of a document that are not in a code block.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut in_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        !in_code && !is_fence
    })
}

/// The targets of all `[text](target)`, code left out.
fn links(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in prose(text) {
        // Every second piece stands between backticks; a link's own text may.
        let without_code: String = line.split('`').step_by(2).collect();
        let targets = without_code.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
        found.extend(targets.map(|(target, _)| target.to_owned()));
    }
    found
}

/// The anchors of a document's headings, as GitHub makes them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    let mut anchors = BTreeSet::new();
    for line in prose(text) {
        let heading = line.trim_start_matches('#');
        if heading.len() == line.len() || !heading.starts_with(' ') {
            continue;
        }
        let is_kept = |letter: &char| letter.is_alphanumeric() || [' ', '-', '_'].contains(letter);
        let slug: String = heading.trim().to_lowercase().chars().filter(is_kept).collect();
        let slug = slug.replace(' ', "-");
        let earlier = seen.entry(slug.clone()).or_default();
        anchors.insert(if *earlier == 0 { slug } else { format!("{slug}-{earlier}") });
        *earlier += 1;
    }
    anchors
}

#[test]
fn a_dead_link_is_found() {
    let file = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() };
    let files =
        [file("README.md", "# A\n## Own data: `x`\n## A\n```\n# not a heading\n```\n"), file("docs/cli.md", "# B\n")];
    let wrong = |text: &str| dead_links("docs/cli.md", text, &files).len();
    assert_eq!(wrong("[a](../README.md) [b](cli.md) [c](https://example.org/x) [`d`](../docs/)"), 0);
    assert_eq!(wrong("[a](../README.md#own-data-x) [b](../README.md#a-1) [c](#b)"), 0);
    assert_eq!(wrong("`[a](gone.md)`\n```\n[a](gone.md)\n```\n"), 0);
    assert_eq!(wrong("[a](gone.md) and [`b`](../gone/)"), 2);
    assert_eq!(wrong("[a](../README.md#not-a-heading) [b](#gone) [c](../docs/#b)"), 3);
    assert_eq!(wrong("[a](../../outside.md)"), 1);
}

#[test]
fn a_long_document_is_found() {
    assert_eq!(at_most(2, "a\nb\n"), Vec::<String>::new());
    assert_eq!(at_most(2, "a\nb\nc\n").len(), 1);
}

#[test]
fn a_decision_of_another_form_is_found() {
    let good = format!("# 0007: Why\n\n{}\n", DECISION.join("\n\n"));
    assert_eq!(decision("docs/adr/0007-why.md", &good), Vec::<String>::new());
    assert_eq!(decision("docs/adr/0008-why.md", &good).len(), 1);
    assert_eq!(decision("docs/adr/why.md", &good).len(), 1);
    assert_eq!(decision("docs/adr/0007-why.md", &good.replace("## Context", "## Story")).len(), 1);
}

#[test]
fn a_document_that_is_not_listed_is_found() {
    assert_eq!(unlisted("[a](cli.md)", &["cli.md", "adr/0001-a.md"]), ["does not link to adr/0001-a.md"]);
}
