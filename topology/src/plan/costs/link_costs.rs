//! What the links between members cost: measured by them, agreed in the view.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::id::{Rank, WorldSize};
use crate::message::MAX_MEMBERS;
use crate::view::MAX_COSTED;

/// The time that stands for "never", in nanoseconds: some 36 years. Far from the end of the numbers, so that sums of a few
/// still compare.
pub const NEVER_NS: u64 = 1 << 60;

/// No view has costs of more links than these: [`MAX_COSTED`] and one, squared, so that a view of one more says what is wrong.
const MOST_LISTED: usize = (MAX_COSTED + 1) * (MAX_COSTED + 1);

const MAX_DELAY_US: u32 = 60_000_000;
const MAX_BYTES_PER_SECOND: u64 = 1 << 40;

/// The part of a rate or delay by which it must change to be noticed.
const NOTICED: u64 = 10;
/// Delays that differ by less are one: within a room they never measure alike.
const MOMENT_US: u64 = 100;

/// One direction between two members.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Link {
    /// One way, in microseconds.
    pub delay_us: u32,
    /// Zero if nothing gets through.
    pub bytes_per_second: u64,
}

impl Link {
    /// No link at all; also what stands between a member and itself.
    pub const NONE: Self = Self { delay_us: 0, bytes_per_second: 0 };

    /// A link as it was measured, within what links can be. `delay` is that of one way.
    pub fn measured(delay: Duration, bytes_per_second: u64) -> Self {
        let delay_us = u32::try_from(delay.as_micros()).unwrap_or(MAX_DELAY_US).min(MAX_DELAY_US);
        Self { delay_us, bytes_per_second: bytes_per_second.clamp(1, MAX_BYTES_PER_SECOND) }
    }

    /// Whether a link can be like this.
    pub(crate) fn is_possible(self) -> bool {
        self.delay_us <= MAX_DELAY_US && self.bytes_per_second <= MAX_BYTES_PER_SECOND
    }

    /// Whether another plan may follow from this than from `other`: a tenth of the rate, or of the delay if that is more
    /// than a moment.
    pub(crate) fn differs_from(self, other: Self) -> bool {
        let (rate, delay) = (self.bytes_per_second, u64::from(self.delay_us));
        let (other_rate, other_delay) = (other.bytes_per_second, u64::from(other.delay_us));
        rate.abs_diff(other_rate) > other_rate / NOTICED
            || delay.abs_diff(other_delay) > (other_delay / NOTICED).max(MOMENT_US)
    }

    /// Whether anything gets through.
    pub fn is_up(self) -> bool {
        self.bytes_per_second > 0
    }

    /// How long `bytes` take to pass, the delay excluded; [`NEVER_NS`] where there is no link.
    pub fn transfer_ns(self, bytes: u64) -> u64 {
        if !self.is_up() {
            return NEVER_NS;
        }
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_second);
        u64::try_from(nanos).unwrap_or(NEVER_NS).min(NEVER_NS)
    }

    /// How long the first byte takes; [`NEVER_NS`] where there is no link.
    pub fn delay_ns(self) -> u64 {
        if self.is_up() { u64::from(self.delay_us) * 1_000 } else { NEVER_NS }
    }
}

/// Costs that can't be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum CostError {
    /// Not one link for each ordered pair of members.
    #[error("sent {0} link costs, which is no square of 1 to {MAX_MEMBERS} members")]
    NotSquare(usize),
    /// A number that no link has.
    #[error("sent a link from rank {from} to rank {to} with {} us and {} bytes per second, beyond what links can be", .link.delay_us, .link.bytes_per_second)]
    OutOfRange {
        /// Its sender.
        from: u32,
        /// Its receiver.
        to: u32,
        /// The link.
        link: Link,
    },
    /// A cost between a member and itself, or a delay where nothing gets through: two forms of one thing.
    #[error("sent a link from rank {from} to rank {to} that is none, but not written as none")]
    NotCanonical {
        /// Its sender.
        from: u32,
        /// Its receiver.
        to: u32,
    },
}

/// The link between each ordered pair of ranks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Listed", into = "Vec<Link>")]
pub struct CostTable {
    size: u32,
    /// By sender, then by receiver.
    links: Vec<Link>,
}

impl CostTable {
    /// Costs from one list of links: by sender, then by receiver.
    ///
    /// # Errors
    /// [`CostError`] if they can't be: costs come from other peers.
    pub fn new(links: Vec<Link>) -> Result<Self, CostError> {
        let side = links.len().isqrt();
        if side * side != links.len() || !(1..=MAX_MEMBERS).contains(&side) {
            return Err(CostError::NotSquare(links.len()));
        }
        let size = u32::try_from(side).expect("invariant: members are bounded");
        let pairs = (0..size).flat_map(|from| (0..size).map(move |to| (from, to)));
        for ((from, to), link) in pairs.zip(&links) {
            if !link.is_possible() {
                return Err(CostError::OutOfRange { from, to, link: *link });
            }
            if (from == to || !link.is_up()) && *link != Link::NONE {
                return Err(CostError::NotCanonical { from, to });
            }
        }
        Ok(Self { size, links })
    }

    /// The costs that `link` tells of each ordered pair of different ranks.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn from_fn(world: WorldSize, link: impl Fn(Rank, Rank) -> Link) -> Result<Self, CostError> {
        let row = |from| world.ranks().map(move |to| (from, to));
        let pairs = world.ranks().flat_map(row);
        Self::new(pairs.map(|(from, to)| if from == to { Link::NONE } else { link(from, to) }).collect())
    }

    /// How many ranks there are.
    pub fn world_size(&self) -> WorldSize {
        WorldSize::new(self.size)
    }

    /// The link from one rank to another; none from a rank to itself.
    pub fn link(&self, from: Rank, to: Rank) -> Link {
        self.links[(from.0 * self.size + to.0) as usize]
    }

    /// Whether there is any link.
    pub(crate) fn has_links(&self) -> bool {
        self.links.iter().any(|link| link.is_up())
    }

    /// The same links after rank `order[i]` has become rank `i`.
    ///
    /// # Panics
    /// If `order` does not have each rank once.
    pub fn reordered(&self, order: &[Rank]) -> Self {
        let mut sorted = order.to_vec();
        sorted.sort_unstable();
        assert!(sorted.iter().copied().eq(self.world_size().ranks()), "an order has each rank once");
        let links = order.iter().flat_map(|from| order.iter().map(|to| self.link(*from, *to))).collect();
        Self { size: self.size, links }
    }
}

/// As they come from others.
#[derive(Deserialize)]
#[serde(transparent)]
struct Listed(#[serde(deserialize_with = "crate::message::bounded::list::<_, _, MOST_LISTED>")] Vec<Link>);

impl TryFrom<Listed> for CostTable {
    type Error = CostError;

    fn try_from(listed: Listed) -> Result<Self, CostError> {
        Self::new(listed.0)
    }
}

impl TryFrom<Vec<Link>> for CostTable {
    type Error = CostError;

    fn try_from(links: Vec<Link>) -> Result<Self, CostError> {
        Self::new(links)
    }
}

impl From<CostTable> for Vec<Link> {
    fn from(costs: CostTable) -> Self {
        costs.links
    }
}
