//! What a member calls with a program's buffer, and what that buffer means: a number that travels with it, so that two different
//! buffers are never averaged.

use std::fmt;

use starling_topology::ledger::{MAX_SPEED, UNMEASURED};

use crate::training::call::CallKind;

/// How many words each call has.
const EACH: u32 = MAX_SPEED / 8;
/// How many tags travel as they are. Of larger ones, a fingerprint does.
const EXACT: u32 = EACH / 2;

/// The call and the tag of a buffer, as they travel in its member's slot: an exact integer, and never that of a member without a
/// buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallHeader(u32);

impl CallHeader {
    /// That of a buffer that means `tag` and is to be averaged.
    pub fn new(tag: u64) -> Self {
        Self::of(CallKind::AllReduce, tag)
    }

    /// That of a buffer that means `tag`, with what is called. Two different tags are the same once in 250 thousand times, if one
    /// is large.
    pub fn of(call: CallKind, tag: u64) -> Self {
        let small = u32::try_from(tag).ok().filter(|tag| *tag < EXACT);
        let number = small.unwrap_or_else(|| EXACT + fingerprint(tag));
        let at = CallKind::ALL.iter().position(|known| *known == call).expect("invariant: the list has all calls");
        Self(UNMEASURED + at as u32 * EACH + number)
    }

    /// What its member calls; `None` if this program knows no such call.
    pub fn call(self) -> Option<CallKind> {
        CallKind::ALL.get((self.told() / EACH) as usize).copied()
    }

    /// Whether both can be told in the same step.
    pub(crate) fn belongs_to(self, other: Self) -> bool {
        let family = |tag: Self| Some((tag.call()?.family(), tag.told() % EACH));
        family(self).is_some() && family(self) == family(other)
    }

    /// That of a slot which is not of a member without a buffer.
    pub(crate) fn of_slot(slot: u32) -> Self {
        Self(slot)
    }

    pub(crate) fn slot(self) -> u32 {
        self.0
    }

    fn told(self) -> u32 {
        self.0.saturating_sub(UNMEASURED)
    }
}

/// Below [`EXACT`].
fn fingerprint(tag: u64) -> u32 {
    let hash = blake3::hash(&tag.to_le_bytes());
    let (word, _) = hash.as_bytes().split_first_chunk().expect("invariant: a hash has 32 bytes");
    u32::from_le_bytes(*word) % EXACT
}

impl fmt::Display for CallHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.told() % EACH;
        match number.checked_sub(EXACT) {
            None => write!(f, "tag {number}")?,
            Some(fingerprint) => write!(f, "a tag of at least {EXACT} with fingerprint {fingerprint:05x}")?,
        }
        match self.call() {
            Some(CallKind::AllReduce) => Ok(()),
            Some(call) => write!(f, " for {}", call.name()),
            None => f.write_str(" for what this program does not know"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_differ_and_fit_a_slot() {
        let numbers = [0, 1, 77, u64::from(EXACT) - 1, u64::from(EXACT), 1 << 40, u64::MAX];
        let tags: Vec<CallHeader> =
            CallKind::ALL.iter().flat_map(|call| numbers.iter().map(|number| CallHeader::of(*call, *number))).collect();
        for (at, tag) in tags.iter().enumerate() {
            assert!((UNMEASURED..=MAX_SPEED).contains(&tag.slot()), "{tag}");
            assert!(tags[..at].iter().all(|other| other != tag), "{tag}");
            assert_eq!((CallHeader::of_slot(tag.slot()), tag.call()), (*tag, Some(CallKind::ALL[at / numbers.len()])));
        }
        assert_eq!(tags[2].to_string(), "tag 77");
        assert_eq!(CallHeader::of(CallKind::Receive, 7).to_string(), "tag 7 for broadcast");
        assert!(tags[5].to_string().starts_with("a tag of at least 262144 with fingerprint "), "{}", tags[5]);
    }
}
