//! What a program's buffer means: a number that travels with it, so that two different buffers are never averaged.

use std::fmt;

use starling_topology::ledger::{MAX_SPEED, UNMEASURED};

/// How many tags travel as they are. Of larger ones, a fingerprint does.
const EXACT: u32 = MAX_SPEED / 2;

/// The tag of a buffer, as it travels in its member's slot: an exact integer, and never that of a member without a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tag(u32);

impl Tag {
    /// That of a buffer that means `tag`. Two different ones are the same tag once in two million, if one is large.
    pub fn new(tag: u64) -> Self {
        let small = u32::try_from(tag).ok().filter(|tag| *tag < EXACT);
        Self(UNMEASURED + small.unwrap_or_else(|| EXACT + fingerprint(tag)))
    }

    /// That of a slot which is not of a member without a buffer.
    pub(crate) fn of_slot(slot: u32) -> Self {
        Self(slot)
    }

    pub(crate) fn slot(self) -> u32 {
        self.0
    }
}

/// Below [`EXACT`] by one, so that it has a slot.
fn fingerprint(tag: u64) -> u32 {
    let hash = blake3::hash(&tag.to_le_bytes());
    let (word, _) = hash.as_bytes().split_first_chunk().expect("invariant: a hash has 32 bytes");
    u32::from_le_bytes(*word) % (EXACT - 1)
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0 - UNMEASURED).checked_sub(EXACT) {
            None => write!(f, "tag {}", self.0 - UNMEASURED),
            Some(fingerprint) => write!(f, "a tag of at least {EXACT} with fingerprint {fingerprint:06x}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_differ_and_fit_a_slot() {
        let tags = [0, 1, 77, u64::from(EXACT) - 1, u64::from(EXACT), 1 << 40, u64::MAX].map(Tag::new);
        for (at, tag) in tags.iter().enumerate() {
            assert!((UNMEASURED..=MAX_SPEED).contains(&tag.slot()), "{tag}");
            assert!(tags[..at].iter().all(|other| other != tag), "{tag}");
            assert_eq!(Tag::of_slot(tag.slot()), *tag);
        }
        assert_eq!(tags[2].to_string(), "tag 77");
        assert!(tags[5].to_string().starts_with("a tag of at least 2097152 with fingerprint "), "{}", tags[5]);
    }
}
