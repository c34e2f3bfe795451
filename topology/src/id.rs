//! Names: peers, runs, views, and positions in a ring.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! name_of_32_bytes {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub struct $name(pub [u8; 32]);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }

        impl fmt::Debug for $name {
            /// The first four bytes: enough to tell two apart in a log.
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "("))?;
                self.0[..4].iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
                f.write_str(")")
            }
        }
    };
}

name_of_32_bytes! {
    /// A peer: the bytes of its Ed25519 public key. `starling-node` maps it to and from libp2p's own peer id.
    PeerId
}
name_of_32_bytes! {
    /// A run: blake3 of its manifest's canonical bytes.
    RunId
}
name_of_32_bytes! {
    /// A view: blake3 of its canonical bytes. Two peers that hold one `ViewId` hold the same view.
    ViewId
}
name_of_32_bytes! {
    /// blake3 of a replicated state.
    Digest
}

impl ViewId {
    /// No view yet.
    pub const NONE: Self = Self([0; 32]);
}

/// Version of the membership view. Grows by one with each installed view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Generation(pub u64);

impl Generation {
    /// The generation of a view with only its founder in it.
    pub const FIRST: Self = Self(1);

    /// The generation after this one. Saturates: a peer may claim any generation, and no correct run reaches the last.
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// The generation before this one, if there is one.
    pub(crate) fn before(self) -> Self {
        Self(self.0.saturating_sub(1))
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A 0-based ring position. Means something only inside one generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Rank(pub u32);

/// How many members a ring has: at least one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorldSize(u32);

impl WorldSize {
    /// A world of `size` members.
    ///
    /// # Panics
    /// If `size` is zero: a view always has a member.
    pub fn new(size: u32) -> Self {
        assert!(size > 0, "a ring has at least one member");
        Self(size)
    }

    /// The number of members.
    pub fn get(self) -> u32 {
        self.0
    }

    /// All ranks of this world, in order.
    pub fn ranks(self) -> impl ExactSizeIterator<Item = Rank> {
        (0..self.0).map(Rank)
    }

    /// The rank that `rank` sends to in a ring.
    pub fn next(self, rank: Rank) -> Rank {
        Rank((rank.0 + 1) % self.0)
    }

    /// The rank that `rank` receives from in a ring.
    pub fn previous(self, rank: Rank) -> Rank {
        Rank((rank.0 + self.0 - 1) % self.0)
    }
}
