//! Parts of a result that is not committed yet, on their way to the trainer thread, which begins its update with them.

use std::collections::VecDeque;

use starling_engine::MemberSet;

/// Parts that wait for the trainer thread. If it is busy, the others stay where they are.
const MAX_WAITING: usize = 2;

/// The numbers of a result from one position on. An operation's parts come from its end.
#[derive(Debug)]
pub(crate) struct Part {
    /// The number of the active view in which they were reduced, and its members.
    pub(crate) view: u64,
    pub(crate) members: MemberSet,
    pub(crate) start: usize,
    pub(crate) numbers: Vec<f32>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Parts {
    /// Whether the trainer thread has use for them.
    is_wanted: bool,
    waiting: VecDeque<Part>,
    /// Memory of parts that were used.
    spare: Vec<Vec<f32>>,
}

/// What becomes of a part that is offered.
pub(super) enum PartOffer {
    /// Nobody wants it.
    Declined,
    /// There is no room yet.
    Later,
    /// It is to be copied to this memory, and pushed.
    Welcome(Vec<f32>),
}

impl Parts {
    pub(super) fn want(&mut self) {
        self.is_wanted = true;
    }

    pub(super) fn offer(&mut self) -> PartOffer {
        if !self.is_wanted {
            PartOffer::Declined
        } else if self.waiting.len() == MAX_WAITING {
            PartOffer::Later
        } else {
            PartOffer::Welcome(self.spare.pop().unwrap_or_default())
        }
    }

    pub(super) fn push(&mut self, part: Part) {
        self.waiting.push_back(part);
    }

    pub(super) fn pop(&mut self) -> Option<Part> {
        self.waiting.pop_front()
    }

    /// Takes back a part's memory.
    pub(super) fn recycle(&mut self, memory: Vec<f32>) {
        // One is being copied while others wait.
        if self.spare.len() <= MAX_WAITING {
            self.spare.push(memory);
        }
    }

    /// The operation is at its end.
    pub(super) fn clear(&mut self) {
        while let Some(part) = self.pop() {
            self.recycle(part.numbers);
        }
    }
}
