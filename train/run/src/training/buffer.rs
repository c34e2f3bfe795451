//! How the buffer of an operation is laid out: what is trained, a tail that no codec may change, a slot for each member.

use std::ops::Range;

/// Where what lies in a buffer that the members of a view reduce.
///
/// ```text
///   | trained: gradients, or a program's numbers | 1: the loss | slots: one per member, in their order |
///                                                |<------------- exact: no codec of gradients ------->|
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BufferLayout {
    trained: usize,
    members: usize,
}

impl BufferLayout {
    /// How many numbers there are between what is trained and the slots.
    const BETWEEN: usize = 1;

    /// That of a view of so many members, over `trained` numbers.
    pub const fn new(trained: usize, members: usize) -> Self {
        Self { trained, members }
    }

    /// How many numbers it has in all.
    pub const fn elements(self) -> usize {
        self.trained + Self::BETWEEN + self.members
    }

    /// How many at the end are written as they are, whatever the codec: loss and slots are no gradients.
    pub const fn exact(self) -> usize {
        Self::BETWEEN + self.members
    }

    /// How many of those travel apart from what members bring: where a codec loses something, or where members say in their slots what is
    /// done with that. All members must come to the same.
    pub const fn apart(self, is_lossy: bool, chooses: bool) -> usize {
        if is_lossy || chooses { self.exact() } else { 0 }
    }

    /// What members say of themselves.
    pub const fn slots(self) -> Range<usize> {
        self.trained + Self::BETWEEN..self.elements()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_parts_are_all_of_it() {
        for (trained, members) in [(0, 1), (3, 2), (1000, 64)] {
            let layout = BufferLayout::new(trained, members);
            assert_eq!((layout.slots().len(), layout.slots().end), (members, layout.elements()));
            assert_eq!(layout.elements() - layout.exact(), trained);
        }
    }
}
