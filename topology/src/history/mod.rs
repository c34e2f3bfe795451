//! Which views a run has had, kept to lead others from a view that they know to one that they are told of.
//!
//! ```text
//!   founder's key           {A}  -->  {A, B}  -->  {A, B, C}  -->  {B, C, D}  -->  {B, C, D, E}
//!        '-- has signed it --'|                        |                               ^
//!                             |          whoever knows this one is led over the next,  |
//!                             |          as a quorum of it has accepted the last one: -'
//!                             '- whoever knows but the founder's key begins here
//! ```
//!
//! Each peer has some views that it takes for the run's: its [`AnchorSet`]. A [`ViewSearch`] leads from these to a view that somebody has
//! named, by [legs](ViewProof) that it is told and checks, so a signature counts for the run only if its view does. Those who were members
//! once could decide another view after theirs, so the founder's key is where to begin only for those who know nothing later.
//!
//! A history grows with each view. What it holds is bounded: of old views those stay over which the others are led.

mod anchors;
mod view_proof;
mod view_search;

use serde::{Deserialize, Serialize};

pub use anchors::{AnchorSet, BranchOrigin, MAX_APART, MAX_PROVEN};
pub use view_proof::{MAX_LEG_BYTES, ViewProof, beginning};
pub use view_search::{MAX_PAGES, ViewSearch, ViewSearchStatus};

use crate::error::Violation;
use crate::heads::follower::{BranchKey, branch};
use crate::id::{PeerId, ViewId};
use crate::view::View;
use crate::vote::certificate::SuccessionProof;
use crate::vote::record::Record;

/// What one answer holds, in encoded bytes, or a single leg.
pub const PAGE_BYTES: usize = 64 * 1024;
/// The longest answer, in encoded bytes.
pub const MAX_PAGE_BYTES: usize = PAGE_BYTES + MAX_LEG_BYTES;
/// The most legs that one answer holds.
pub const MAX_PAGE_LEGS: usize = 1024;
/// The most views that one question begins from.
pub const MAX_KNOWN: usize = 8;
/// What a history holds, in encoded bytes. Where there is more, the earlier half is thinned.
pub const MAX_BYTES: usize = 4 * 1024 * 1024;
/// One is led over views where what there is to tell takes more than this, in encoded bytes. Else each is told: whoever is led there can
/// lead on those who know one in between.
const MAX_WHOLE: usize = 512 * 1024;
/// Over so many views one is led at once at most: so far ahead is looked.
const MAX_REACH: usize = 256;
/// How far back one is led from a later view.
const MAX_BACK: usize = 64;

/// Lead from one of the views called `known` to the one called `to`, or if none is known, from a branch's beginning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ViewSearchRequest {
    /// What the one knows that asks: at most [`MAX_KNOWN`].
    #[serde(deserialize_with = "crate::message::bounded::list::<_, _, MAX_KNOWN>")]
    pub known: Vec<ViewId>,
    /// Where it wants to be led.
    pub to: ViewId,
}

/// A leg with what is computed of it once.
#[derive(Debug, Clone)]
struct Entry {
    id: ViewId,
    leg: ViewProof,
    bytes: usize,
}

impl Entry {
    fn of(leg: ViewProof) -> Self {
        Self { id: leg.view().id(), bytes: leg.bytes(), leg }
    }
}

/// The views of a run as far as they are known here, each after those that lead to it. See the module's picture.
#[derive(Debug, Clone, Default)]
pub struct ViewHistory {
    entries: Vec<Entry>,
    bytes: usize,
}

impl ViewHistory {
    /// Takes in what a member's record says of its view, and of those before. True if that is news.
    pub fn note(&mut self, record: &Record) -> bool {
        if self.contains(record.view.id()) {
            return false;
        }
        let own = || Some(SuccessionProof::to(record.origin.as_ref()?, record.certificate.clone()?));
        let legs: Vec<ViewProof> = match own().filter(|own| own.view == record.view) {
            Some(own) => record.chain.iter().cloned().chain([own]).map(ViewProof::Next).collect(),
            None => vec![ViewProof::Apart(record.view.clone())],
        };
        // Of what a joiner was told so it has checked the last one alone.
        let new = legs.into_iter().filter(|leg| !self.contains(leg.view().id())).collect::<Vec<_>>();
        self.take(new);
        true
    }

    /// Takes in legs that were checked, each after those that lead to it. One that is there stays, but for a certificate that was told
    /// only, and for a beginning that the founder's key had not signed yet.
    pub fn take(&mut self, legs: impl IntoIterator<Item = ViewProof>) {
        for leg in legs {
            let entry = Entry::of(leg);
            match self.place(entry.id).map(|at| &mut self.entries[at]) {
                Some(known) => {
                    let is_better = matches!(
                        (&known.leg, &entry.leg),
                        (ViewProof::Next(_), ViewProof::Next(_)) | (ViewProof::Apart(_), ViewProof::Founded(..))
                    );
                    if is_better {
                        self.bytes = self.bytes - known.bytes + entry.bytes;
                        *known = entry;
                    }
                }
                None => {
                    self.bytes += entry.bytes;
                    self.entries.push(entry);
                }
            }
        }
        self.fit();
    }

    /// Takes in what leads to the first view that is known here, so as to lead others there too.
    pub fn take_before(&mut self, legs: Vec<ViewProof>) {
        let later = std::mem::take(self);
        self.take(legs);
        self.take(later.entries.into_iter().map(|entry| entry.leg));
    }

    /// The view that something here follows although nothing here leads to it, if there is one.
    pub fn gap(&self) -> Option<ViewId> {
        let newest = self.entries.len().checked_sub(1)?;
        let first = *self.way(newest, |_| false).last()?;
        match &self.entries[first].leg {
            ViewProof::Founded(..) | ViewProof::Apart(_) => None,
            leg => leg.view().parent,
        }
    }

    /// What leads to the view that is asked for, one page of it. Nothing if that is not known here.
    pub fn answer(&self, question: &ViewSearchRequest) -> Vec<ViewProof> {
        let ViewSearchRequest { known, to } = question;
        let Some(last) = self.place(*to) else { return Vec::new() };
        let mut way = self.way(last, |id| known.contains(&id));
        way.reverse();
        let is_known = |at: &usize| known.contains(&self.entries[*at].id);
        if way.first().is_some_and(is_known) {
            return self.page(Some(way[0]), &way[1..]);
        }
        if let Some(back) = self.back(last, known) {
            return back;
        }
        // Who knows another branch is led from where this one begins, who knows nothing from the first beginning of all.
        let roots = way.iter().rposition(|at| self.entries[*at].leg.is_root() && !known.is_empty());
        self.page(None, &way[roots.unwrap_or(0)..])
    }

    /// Of each branch the newest view, and what it goes back to. Where its beginning is not known here, this peer was there itself.
    fn ends(&self) -> Vec<(View, BranchOrigin)> {
        let mut ends: Vec<(View, BranchOrigin)> = Vec::new();
        for entry in &self.entries {
            let view = entry.leg.view();
            let descent = if self.is_apart(branch(view)) { BranchOrigin::Apart } else { BranchOrigin::Proven };
            match ends.iter_mut().find(|(known, _)| branch(known) == branch(view)) {
                Some(known) if known.0.generation < view.generation => *known = (view.clone(), descent),
                Some(_) => {}
                None => ends.push((view.clone(), descent)),
            }
        }
        ends
    }

    /// Whether somebody has begun this branch alone.
    fn is_apart(&self, of: BranchKey) -> bool {
        let is_root = |entry: &&Entry| entry.leg.is_root() && branch(entry.leg.view()) == of;
        self.entries.iter().find(is_root).is_some_and(|root| matches!(root.leg, ViewProof::Apart(_)))
    }

    /// How many bytes they take when they are encoded, about.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The canonical bytes (postcard).
    pub fn encode(&self) -> Vec<u8> {
        let legs: Vec<&ViewProof> = self.entries.iter().map(|entry| &entry.leg).collect();
        postcard::to_allocvec(&legs).expect("invariant: legs always encode")
    }

    /// Reads bytes that came from a file.
    ///
    /// # Errors
    /// A [`Violation`] if they are no legs, or exceed a bound.
    pub fn decode(bytes: &[u8]) -> Result<Self, Violation> {
        let (legs, rest) = postcard::take_from_bytes::<Vec<ViewProof>>(bytes).map_err(|_| Violation::Undecodable)?;
        if !rest.is_empty() || bytes.len() > MAX_BYTES + MAX_LEG_BYTES {
            return Err(Violation::Undecodable);
        }
        legs.iter().try_for_each(ViewProof::validate)?;
        let mut history = Self::default();
        history.take(legs);
        Ok(history)
    }

    /// Whether a view is known here.
    pub fn contains(&self, id: ViewId) -> bool {
        self.place(id).is_some()
    }

    fn place(&self, id: ViewId) -> Option<usize> {
        self.entries.iter().rposition(|entry| entry.id == id)
    }

    /// The entry that leads to this one.
    fn before(&self, at: usize) -> Option<usize> {
        let earlier = &self.entries[..at];
        match &self.entries[at].leg {
            ViewProof::Founded(..) => None,
            ViewProof::Apart(view) => {
                let last = |knows: fn(&View, PeerId) -> bool| {
                    earlier.iter().rposition(|entry| view.voters().all(|voter| knows(entry.leg.view(), voter)))
                };
                last(View::votes).or_else(|| last(View::contains))
            }
            ViewProof::Next(link) => earlier.iter().rposition(|entry| Some(entry.id) == link.view.parent),
            ViewProof::Over(parent, link) => {
                earlier.iter().rposition(|entry| view_proof::is_over(entry.leg.view(), parent, link))
            }
            ViewProof::Back(view) => {
                let id = view.id();
                earlier.iter().rposition(|entry| entry.leg.view().parent == Some(id))
            }
        }
    }

    /// The way to an entry, the last one first, from the first that is `known`, or as far back as it goes.
    fn way(&self, last: usize, known: impl Fn(ViewId) -> bool) -> Vec<usize> {
        let mut way = vec![last];
        let mut at = last;
        while !known(self.entries[at].id) {
            let Some(before) = self.before(at) else { break };
            way.push(before);
            at = before;
        }
        way
    }

    /// What leads back to an entry from a view that is known and came after it.
    fn back(&self, to: usize, known: &[ViewId]) -> Option<Vec<ViewProof>> {
        let later = self.entries[to + 1..].iter().filter(|entry| known.contains(&entry.id)).map(|entry| &entry.leg);
        later.into_iter().find_map(|from| {
            let (mut legs, mut last) = (Vec::new(), from.view());
            while last.id() != self.entries[to].id {
                let before = self.entries[self.place(last.parent?)?].leg.view();
                legs.push(ViewProof::Back(before.clone()));
                last = before;
                (legs.len() <= MAX_BACK).then_some(())?;
            }
            Some(legs)
        })
    }

    /// As much of a way as one answer holds, on from what is known already.
    fn page(&self, known: Option<usize>, way: &[usize]) -> Vec<ViewProof> {
        let (mut page, mut bytes, mut last, mut at) = (Vec::new(), 0, known, 0);
        let mut left: usize = way.iter().map(|at| self.entries[*at].bytes).sum();
        while at < way.len() {
            let (next, leg) = match left > MAX_WHOLE {
                true => self.farthest(last, &way[at..]),
                false => (0, self.entries[way[at]].leg.clone()),
            };
            left -= way[at..=at + next].iter().map(|at| self.entries[*at].bytes).sum::<usize>();
            bytes += leg.bytes();
            if !page.is_empty() && (bytes > PAGE_BYTES || page.len() >= MAX_PAGE_LEGS) {
                break;
            }
            (last, at) = (Some(way[at + next]), at + next + 1);
            page.push(leg);
        }
        page
    }

    /// The leg that leads farthest along a way from where one is, and to which place of it.
    fn farthest(&self, from: Option<usize>, way: &[usize]) -> (usize, ViewProof) {
        let leg = |at: usize| &self.entries[way[at]].leg;
        let over = |at: usize| {
            let last = self.entries[from?].leg.view();
            let (parent, link) = match leg(at) {
                ViewProof::Next(link) => (self.entries[way[at.checked_sub(1)?]].leg.view(), link),
                ViewProof::Over(parent, link) => (parent, link),
                ViewProof::Founded(..) | ViewProof::Apart(_) | ViewProof::Back(_) => return None,
            };
            view_proof::is_over(last, parent, link).then(|| (at, ViewProof::Over(parent.clone(), link.clone())))
        };
        (1..way.len().min(MAX_REACH)).rev().find_map(over).unwrap_or_else(|| (0, leg(0).clone()))
    }

    /// Has them take no more than they may: the earlier half is thinned, and if that is not enough, it goes.
    fn fit(&mut self) {
        if self.bytes <= MAX_BYTES {
            return;
        }
        let later = self.entries.split_off(self.entries.len() / 2);
        let earlier = std::mem::replace(&mut self.entries, later);
        let kept = Self { entries: earlier, bytes: 0 }.thinned();
        self.entries.splice(..0, kept);
        let count = |entries: &[Entry]| entries.iter().map(|entry| entry.bytes).sum();
        self.bytes = count(&self.entries);
        if self.bytes > MAX_BYTES / 4 * 3 {
            let later = self.entries.split_off(self.entries.len() / 4);
            let goes_on = |root: &Entry| later.iter().any(|entry| branch(entry.leg.view()) == branch(root.leg.view()));
            self.entries.retain(|entry| entry.leg.is_root() && goes_on(entry));
            self.entries.extend(later);
            self.bytes = count(&self.entries);
        }
    }

    /// Of each branch, the entries over which one is led from its first to its last one.
    fn thinned(&self) -> Vec<Entry> {
        let place = |at: usize| branch(self.entries[at].leg.view());
        let mut branches: Vec<BranchKey> = Vec::new();
        for of in (0..self.entries.len()).map(place) {
            if !branches.contains(&of) {
                branches.push(of);
            }
        }
        let mut kept = Vec::new();
        for of in branches {
            let Some(last) = (0..self.entries.len()).rposition(|at| place(at) == of) else { continue };
            let mut way = self.way(last, |_| false);
            way.retain(|at| place(*at) == of);
            way.reverse();
            let (mut from, mut at) = (None, 0);
            while at < way.len() {
                let (next, leg) = self.farthest(from, &way[at..]);
                (from, at) = (Some(way[at + next]), at + next + 1);
                kept.push(Entry::of(leg));
            }
        }
        kept
    }
}

#[cfg(test)]
mod tests;
