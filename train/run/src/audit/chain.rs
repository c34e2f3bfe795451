//! The views that led to the run's newest one: what members said of steps in them counts.
//!
//! A file shows which view followed which: its headers say so, and its writer went on from one into the other. So does the file of whoever came back from a checkpoint: what others said of later steps in the views
//! before is void, also if they never came back to take it back themselves.

use std::collections::{BTreeMap, BTreeSet};

use starling_topology::{Generation, ViewId};

use super::{AuditHeader, AuditRecord, AuditView};

/// A view, by its generation first.
pub(super) type ViewKey = (Generation, ViewId);

/// The lines up to a header that says that the state after them came from others, or to the file's end.
#[derive(Debug, Clone)]
pub(super) struct Passage {
    /// The first line behind it.
    pub(super) end: u64,
    /// The views through which the writer went on with what it says here, oldest first.
    pub(super) views: Vec<ViewKey>,
}

/// Reads the lines of one file after the other.
#[derive(Debug, Default)]
pub(super) struct ChainBuilder {
    /// The views before each view, from which somebody's state went on into it.
    before: BTreeMap<ViewKey, BTreeSet<ViewKey>>,
    /// The views from which somebody came to each view, with whatever state.
    whence: BTreeMap<ViewKey, BTreeSet<ViewKey>>,
    /// The first step that anybody tells of in each view.
    first_steps: BTreeMap<ViewKey, u64>,
    /// Where a file ends.
    ends: BTreeSet<ViewKey>,
    passages: Vec<Passage>,
    /// The views whose state the writer holds, each with the first step that it tells of in it.
    held: Vec<(ViewKey, u64)>,
    /// Where the writer was before the last header.
    left: Option<ViewKey>,
}

impl ChainBuilder {
    /// Takes a header that is the file's line number `line`.
    pub(super) fn header(&mut self, line: u64, header: &AuditHeader) {
        self.left = self.newest().or(self.left);
        while self.held.pop_if(|(_, first_step)| *first_step >= header.first_step).is_some() {}
        if header.adopted {
            self.close(line);
        }
        if let Some(AuditView { generation, view, parent }) = header.view {
            let view = (generation, view);
            let parent = parent.zip(generation.0.checked_sub(1)).map(|(parent, before)| (Generation(before), parent));
            self.before.entry(view).or_default().extend(parent);
            self.whence.entry(view).or_default().extend(parent);
            self.enter(header.first_step, view);
        }
    }

    /// Takes a record of `step`, told in `view`.
    pub(super) fn record(&mut self, step: u64, view: ViewKey) {
        let first_step = self.first_steps.entry(view).or_insert(step);
        *first_step = step.min(*first_step);
        self.enter(step, view);
    }

    /// The writer is in `view`, before `step`.
    fn enter(&mut self, step: u64, view: ViewKey) {
        let newest = self.newest();
        if newest == Some(view) {
            return;
        }
        if let Some(before) = newest {
            self.before.entry(view).or_default().insert(before);
        }
        for before in newest.into_iter().chain(self.left.take()).filter(|before| *before != view) {
            self.whence.entry(view).or_default().insert(before);
        }
        self.held.push((view, step));
    }

    /// Ends a file: its passages.
    pub(super) fn end(&mut self) -> Vec<Passage> {
        self.ends.extend(self.newest());
        self.close(u64::MAX);
        self.left = None;
        std::mem::take(&mut self.passages)
    }

    fn newest(&self) -> Option<ViewKey> {
        self.held.last().map(|(view, _)| *view)
    }

    fn close(&mut self, end: u64) {
        self.passages.push(Passage { end, views: self.held.drain(..).map(|(view, _)| view).collect() });
    }

    /// What all files together say.
    pub(super) fn build(self) -> Chain {
        // A branch that lost may have the higher generation, but then somebody has gone from it to the one that won.
        let is_left =
            |end: &ViewKey| self.ends.iter().any(|other| other != end && reach(*other, &self.whence).contains(end));
        let newest = self.ends.iter().filter(|end| !is_left(end)).max().or_else(|| self.ends.last());
        let views = newest.map(|newest| reach(*newest, &self.before)).unwrap_or_default();
        let left = newest.map(|newest| reach(*newest, &self.whence)).unwrap_or_default();
        let mut sure_before = BTreeMap::new();
        let mut floor = u64::MAX;
        for view in views.into_iter().rev() {
            sure_before.insert(view, floor);
            floor = floor.min(self.first_steps.get(&view).copied().unwrap_or(u64::MAX));
        }
        Chain { sure_before, left }
    }
}

/// All that can be reached from `start`, with it.
fn reach(start: ViewKey, ways: &BTreeMap<ViewKey, BTreeSet<ViewKey>>) -> BTreeSet<ViewKey> {
    let mut found = BTreeSet::from([start]);
    let mut open = vec![start];
    while let Some(view) = open.pop() {
        open.extend(ways.get(&view).into_iter().flatten().filter(|next| found.insert(**next)));
    }
    found
}

/// The views that led to the newest one, and it.
#[derive(Debug)]
pub(super) struct Chain {
    /// For each, the first step that a later one took anew, or for the first time.
    sure_before: BTreeMap<ViewKey, u64>,
    /// Whence somebody came to the newest one, maybe with another state than was held there.
    left: BTreeSet<ViewKey>,
}

impl Chain {
    /// What a record is worth that is told in `passage`, the last of its file or not.
    pub(super) fn standing(&self, record: &AuditRecord, passage: &Passage, is_last: bool) -> Standing {
        let told_in = (record.generation, record.view);
        let led_on = passage.views.iter().rev().find_map(|view| Some((view.0, *self.sure_before.get(view)?)));
        match led_on.filter(|(newest, _)| told_in.0 <= *newest) {
            Some((_, sure_before)) if record.step >= sure_before => Standing::Void,
            Some(_) if record.is_last => Standing::Unsure,
            Some(_) => Standing::Sure,
            // No file may tell of what came between.
            None if self.sure_before.keys().next().is_none_or(|oldest| told_in.0 < oldest.0) => Standing::Unsure,
            None if record.is_last || !is_last => Standing::Void,
            None if passage.views.last().into_iter().chain([&told_in]).any(|view| self.left.contains(view)) => {
                Standing::Void
            }
            None => Standing::Alone(passage.views.last().map_or(told_in.0, |view| view.0)),
        }
    }
}

/// What a record is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// The run went on from it.
    Sure,
    /// It may have.
    Unsure,
    /// The run has taken the step anew, or it is of a branch that lost.
    Void,
    /// Its writer held it to the end, in a branch that nobody is known to have left, up to a view of this generation.
    Alone(Generation),
}
