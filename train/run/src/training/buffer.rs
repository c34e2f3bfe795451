//! How the buffer of an operation is laid out: what is trained, a tail that no codec may change, a slot for each member.

use std::ops::Range;

/// What each member of a run brings to an operation, besides its slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReducedSize {
    /// How many numbers are trained, or a program's own.
    pub trained: usize,
    /// How many means follow that are no gradients: the loss; by how much each parameter that runs along changes; where samples do not
    /// count alike, what one counts; where members evaluate together, what they come to on held-out samples.
    pub figures: usize,
}

impl ReducedSize {
    /// How many numbers a member brings.
    pub const fn elements(self) -> usize {
        self.trained + self.figures
    }

    /// The buffer of a view of so many members.
    pub const fn buffer(self, members: usize) -> BufferLayout {
        BufferLayout { reduced: self, members }
    }
}

impl From<usize> for ReducedSize {
    /// So many numbers, and the loss.
    fn from(trained: usize) -> Self {
        Self { trained, figures: 1 }
    }
}

/// Where what lies in a buffer that the members of a view reduce.
///
/// ```text
///   | trained: gradients, or a program's numbers | figures: the loss, perhaps more  | slots: one per member, in their order |
///                                                |<--------------- exact: no codec of gradients ------------------------->|
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BufferLayout {
    reduced: ReducedSize,
    members: usize,
}

impl BufferLayout {
    /// That of a view of so many members, over `trained` numbers and a loss.
    pub const fn new(trained: usize, members: usize) -> Self {
        ReducedSize { trained, figures: 1 }.buffer(members)
    }

    /// How many numbers it has in all.
    pub const fn elements(self) -> usize {
        self.reduced.elements() + self.members
    }

    /// How many at the end are written as they are, whatever the codec: figures and slots are no gradients.
    pub const fn exact(self) -> usize {
        self.reduced.figures + self.members
    }

    /// How many of those travel apart from what members bring: where a codec loses something, or where members say in their slots what is
    /// done with that. All members must come to the same.
    pub const fn apart(self, is_lossy: bool, chooses: bool) -> usize {
        if is_lossy || chooses { self.exact() } else { 0 }
    }

    /// What members say of themselves.
    pub const fn slots(self) -> Range<usize> {
        self.reduced.elements()..self.elements()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_parts_are_all_of_it() {
        for (trained, members) in [(0, 1), (3, 2), (1000, 64)] {
            for reduced in [ReducedSize::from(trained), ReducedSize { trained, figures: 9 }] {
                let layout = reduced.buffer(members);
                assert_eq!((layout.slots().len(), layout.slots().end), (members, layout.elements()));
                assert_eq!(layout.elements() - layout.exact(), trained);
                assert_eq!(layout.slots().start, reduced.elements());
            }
            assert_eq!(BufferLayout::new(trained, members), ReducedSize::from(trained).buffer(members));
        }
    }
}
