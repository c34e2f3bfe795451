//! What a member of a run without a model does in a step, and what that comes to.

use starling_topology::PeerId;

use crate::manifest::call_header::CallHeader;

/// What a member calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallKind {
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
pub enum CallDecision {
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

impl CallKind {
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

impl CallDecision {
    /// What those do who have said something, `told`: a pure function, so that all who know the same do the same.
    pub fn of(told: &[(PeerId, CallHeader)]) -> Self {
        let Some((_, first)) = told.first() else { return Self::Nothing };
        if !told.iter().all(|(_, tag)| tag.belongs_to(*first)) {
            return Self::Nothing;
        }
        let calls = || told.iter().filter_map(|(peer, tag)| Some((*peer, tag.call()?)));
        match first.call().map(CallKind::family) {
            Some(CallKind::AllReduce) => Self::AllReduce,
            Some(CallKind::ReduceScatter) => Self::ReduceScatter,
            Some(CallKind::AllGather) if calls().all(|(_, call)| call == CallKind::AllGather) => Self::AllGather,
            Some(CallKind::Broadcast) => {
                let mut roots = calls().filter(|(_, call)| *call == CallKind::Broadcast);
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
        let agreed = |calls: &[(CallKind, u64)]| {
            let told = (1..).zip(calls).map(|(name, (call, tag))| (PeerId([name; 32]), CallHeader::of(*call, *tag)));
            CallDecision::of(&told.collect::<Vec<_>>())
        };
        use CallKind::{AllGather, AllReduce, Broadcast, Outdated, Receive, ReduceScatter};
        for (calls, expected) in [
            (&[][..], CallDecision::Nothing),
            (&[(AllReduce, 3), (AllReduce, 3)], CallDecision::AllReduce),
            (&[(AllReduce, 3), (AllReduce, 4)], CallDecision::Nothing),
            (&[(AllReduce, 3), (ReduceScatter, 3)], CallDecision::Nothing),
            (&[(ReduceScatter, 0), (ReduceScatter, 0)], CallDecision::ReduceScatter),
            (&[(AllGather, 0), (AllGather, 0)], CallDecision::AllGather),
            (&[(AllGather, 0), (Outdated, 0)], CallDecision::Nothing),
            (&[(Receive, 9), (Broadcast, 9), (Receive, 9)], CallDecision::Broadcast(PeerId([2; 32]))),
            (&[(Receive, 9), (Broadcast, 8)], CallDecision::Nothing),
            (&[(Receive, 9), (Receive, 9)], CallDecision::Nothing),
            (&[(Broadcast, 9), (Broadcast, 9)], CallDecision::Nothing),
        ] {
            assert_eq!(agreed(calls), expected, "{calls:?}");
        }
        let strange = [(PeerId([1; 32]), CallHeader::of_slot(1 << 22))];
        assert_eq!(CallDecision::of(&strange), CallDecision::Nothing, "of a call that there is none of");
    }
}
