//! What a member of a run without a model does in a step, and what that comes to.

use starling_topology::PeerId;

use crate::manifest::tag::Tag;

/// What a member calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// All are to hold the mean of all buffers.
    AllReduce,
    /// Each is to hold its part of the mean of all buffers.
    ReduceScatter,
    /// All are to hold what each has of its part.
    AllGather,
    /// The same, by a member whose part is one among other members than those of today: it has nothing to bring.
    Outdated,
    /// All are to hold this member's buffer.
    Broadcast,
    /// All are to hold the buffer of another member.
    Receive,
}

/// What the members of a view do in a step, as all of them know once each has said what it calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Agreed {
    /// Nothing: they have called different operations, or one that can't be done.
    Nothing,
    /// Each buffer counts, and all hold their sum.
    AllReduce,
    /// Each buffer counts, and each member holds its part of their sum.
    ReduceScatter,
    /// Of each buffer its member's part counts, and all hold all of them.
    AllGather,
    /// All hold this member's buffer.
    Broadcast(PeerId),
}

impl Call {
    /// All of them, in the order in which they are numbered on the wire.
    pub(crate) const ALL: [Self; 6] =
        [Self::AllReduce, Self::ReduceScatter, Self::AllGather, Self::Outdated, Self::Broadcast, Self::Receive];

    /// The one by which all that belong together are known.
    pub(crate) fn family(self) -> Self {
        match self {
            Self::Outdated => Self::AllGather,
            Self::Receive => Self::Broadcast,
            Self::AllReduce | Self::ReduceScatter | Self::AllGather | Self::Broadcast => self,
        }
    }

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self.family() {
            Self::AllReduce => "all-reduce",
            Self::ReduceScatter => "reduce-scatter",
            Self::AllGather | Self::Outdated => "all-gather",
            Self::Broadcast | Self::Receive => "broadcast",
        }
    }
}

impl Agreed {
    /// What those do who have said something, `told`: a pure function, so that all who know the same do the same.
    pub fn of(told: &[(PeerId, Tag)]) -> Self {
        let Some((_, first)) = told.first() else { return Self::Nothing };
        if !told.iter().all(|(_, tag)| tag.belongs_to(*first)) {
            return Self::Nothing;
        }
        let calls = || told.iter().filter_map(|(peer, tag)| Some((*peer, tag.call()?)));
        match first.call().map(Call::family) {
            Some(Call::AllReduce) => Self::AllReduce,
            Some(Call::ReduceScatter) => Self::ReduceScatter,
            Some(Call::AllGather) if calls().all(|(_, call)| call == Call::AllGather) => Self::AllGather,
            Some(Call::Broadcast) => {
                let mut roots = calls().filter(|(_, call)| *call == Call::Broadcast);
                match (roots.next(), roots.next()) {
                    (Some((root, _)), None) => Self::Broadcast(root),
                    _ => Self::Nothing,
                }
            }
            _ => Self::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_do_what_all_of_them_call_or_nothing() {
        let agreed = |calls: &[(Call, u64)]| {
            let told = (1..).zip(calls).map(|(name, (call, tag))| (PeerId([name; 32]), Tag::of(*call, *tag)));
            Agreed::of(&told.collect::<Vec<_>>())
        };
        use Call::{AllGather, AllReduce, Broadcast, Outdated, Receive, ReduceScatter};
        for (calls, expected) in [
            (&[][..], Agreed::Nothing),
            (&[(AllReduce, 3), (AllReduce, 3)], Agreed::AllReduce),
            (&[(AllReduce, 3), (AllReduce, 4)], Agreed::Nothing),
            (&[(AllReduce, 3), (ReduceScatter, 3)], Agreed::Nothing),
            (&[(ReduceScatter, 0), (ReduceScatter, 0)], Agreed::ReduceScatter),
            (&[(AllGather, 0), (AllGather, 0)], Agreed::AllGather),
            (&[(AllGather, 0), (Outdated, 0)], Agreed::Nothing),
            (&[(Receive, 9), (Broadcast, 9), (Receive, 9)], Agreed::Broadcast(PeerId([2; 32]))),
            (&[(Receive, 9), (Broadcast, 8)], Agreed::Nothing),
            (&[(Receive, 9), (Receive, 9)], Agreed::Nothing),
            (&[(Broadcast, 9), (Broadcast, 9)], Agreed::Nothing),
        ] {
            assert_eq!(agreed(calls), expected, "{calls:?}");
        }
        let strange = [(PeerId([1; 32]), Tag::of_slot(1 << 22))];
        assert_eq!(Agreed::of(&strange), Agreed::Nothing, "of a call that there is none of");
    }
}
