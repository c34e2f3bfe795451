//! Asks how the run began, for a member that came later: it may have to lead others from there.

use rand::seq::SliceRandom as _;
use starling_topology::PeerId;
use tokio_util::task::AbortOnDropHandle;

use super::EventLoop;
use crate::transfer::questions;

/// A question on its way.
pub(crate) type LookBack = AbortOnDropHandle<()>;

impl EventLoop {
    /// Asks others, unless it is known already, or asked.
    pub(super) fn look_back(&mut self) {
        let guide = self.books.guide.clone();
        let is_asked = self.books.looking_back.as_ref().is_some_and(|task| !task.is_finished());
        let Some(to) = guide.gap().filter(|_| !is_asked) else { return };
        let keepers = self.books.contacts.keepers().iter().map(|keeper| keeper.peer);
        let members = self.members.iter().copied().filter(|member| *member != self.me);
        let mut others: Vec<PeerId> = members.chain(keepers).collect();
        // Not all are asked, and those who know may be few: others the next time.
        others.shuffle(&mut rand::rng());
        let (open, stall) =
            (self.opener(&self.network.protocols.state, self.config.max_stall / 2), self.config.max_stall);
        self.books.looking_back = Some(LookBack::new(tokio::spawn(async move {
            if let Some(view_search) = questions::way(open, &guide.walk_anew(to), &others, stall).await {
                guide.take_before(view_search.legs().cloned().collect());
                // It is asked again if this fails.
                let _ = tokio::task::spawn_blocking(move || guide.keep()).await;
            }
        })));
    }
}
