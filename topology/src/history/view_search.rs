//! How a peer is led from what it knows to a view that somebody has named.

use super::{AnchorSet, BranchOrigin, MAX_BYTES, MAX_PAGE_LEGS, ViewProof, ViewSearchRequest};
use crate::heads::follower::{BranchKey, branch};
use crate::id::ViewId;
use crate::view::View;
use crate::vote::certificate::Signer;

/// Answers that are taken in, at most.
pub const MAX_PAGES: usize = 64;
/// Views that somebody has begun a branch with alone, at most: nobody has signed them.
const MAX_ALONE: usize = 16;

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ViewSearchStatus {
    /// Ask [`ViewSearch::question`] once more.
    Ask,
    /// The view is one of the run's.
    There,
    /// This answer leads nowhere.
    Lost,
}

/// The way to one view. Whoever is asked may answer what it likes: only legs that hold are taken.
#[derive(Debug, Clone)]
pub struct ViewSearch {
    anchors: AnchorSet,
    to: ViewId,
    last: Option<(View, BranchOrigin)>,
    legs: Vec<(ViewProof, BranchOrigin)>,
    bytes: usize,
    /// How far it was told the way, while nothing of that has led on from what is known.
    told: Option<ViewId>,
    pages: usize,
}

impl ViewSearch {
    /// From these views to the one called `to`.
    pub fn new(anchors: AnchorSet, to: ViewId) -> Self {
        Self { anchors, to, last: None, legs: Vec::new(), bytes: 0, told: None, pages: 0 }
    }

    /// The view that it leads to.
    pub fn to(&self) -> ViewId {
        self.to
    }

    /// What to ask.
    pub fn question(&self) -> ViewSearchRequest {
        let last = self.last.as_ref().map(|(view, _)| view.id()).or(self.told);
        ViewSearchRequest { known: last.into_iter().chain(self.anchors.names()).collect(), to: self.to }
    }

    /// Takes in an answer. Checks signatures, some 50 us each.
    pub fn hear(&mut self, notary: &dyn Signer, page: Vec<ViewProof>) -> ViewSearchStatus {
        self.pages += 1;
        let before = (self.legs.len(), self.told);
        for leg in page.into_iter().take(MAX_PAGE_LEGS) {
            if self.is_there() || self.last.as_ref().is_some_and(|(last, _)| last == leg.view()) {
                break;
            }
            // What was decided after an earlier view is another matter than what came before a later one.
            let is_turn =
                matches!(self.legs.last(), Some((ViewProof::Back(_), _))) && !matches!(leg, ViewProof::Back(_));
            let is_taken = matches!(leg, ViewProof::Apart(_)) && !self.may_begin(branch(leg.view()));
            match self.anchors.judge(notary, self.last.as_ref(), &leg).filter(|_| !is_turn && !is_taken) {
                Some(descent) => {
                    self.bytes += leg.bytes();
                    self.last = Some((leg.view().clone(), descent));
                    self.legs.push((leg, descent));
                }
                // Of what leads from an earlier view a later part may lead on from a known one.
                None if self.last.is_none() => self.told = Some(leg.view().id()),
                None => break,
            }
        }
        match self.is_there() {
            true => ViewSearchStatus::There,
            false if (self.legs.len(), self.told) == before => ViewSearchStatus::Lost,
            false if self.pages < MAX_PAGES && self.bytes < MAX_BYTES => ViewSearchStatus::Ask,
            false => ViewSearchStatus::Lost,
        }
    }

    /// Whether somebody may have begun this branch alone: not if the way has come over it as one of the founder's.
    fn may_begin(&self, place: BranchKey) -> bool {
        let alone = self.legs.iter().filter(|(leg, _)| matches!(leg, ViewProof::Apart(_))).count();
        let is_founders = |(leg, descent): &(ViewProof, BranchOrigin)| {
            *descent == BranchOrigin::Proven && branch(leg.view()) == place
        };
        alone < MAX_ALONE && !self.legs.iter().any(is_founders)
    }

    /// Whether the view is one of the run's, as far as is known.
    pub fn is_there(&self) -> bool {
        self.view().is_some()
    }

    /// The view, if it is one of the run's.
    pub fn view(&self) -> Option<&View> {
        let last = self.last.as_ref().map(|(view, _)| view).filter(|view| view.id() == self.to);
        last.or_else(|| self.anchors.view(self.to))
    }

    /// What has led so far.
    pub fn legs(&self) -> impl Iterator<Item = &ViewProof> {
        self.legs.iter().map(|(leg, _)| leg)
    }

    /// What `anchors` know besides, if this was the way to a view of the run.
    pub fn arrive(&self, anchors: &mut AnchorSet) {
        if self.is_there() {
            self.legs.iter().for_each(|(leg, descent)| anchors.admit(leg.view(), *descent));
        }
    }
}
