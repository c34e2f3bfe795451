//! Who owes what all wait for.
//!
//! Everybody is alive, and an operation does not end: what one member has to send does not come, because a link has lost it or
//! because it withholds it. All others wait too, each for somebody who has to wait itself. Only the first missing thing has no
//! such excuse: all that comes of an operation has a place in it, and rests on what comes before that place alone.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::id::PeerId;
use crate::message::MAX_MEMBERS;
use crate::vote::promise::Promise;

/// What a member waits for that has all of its own contribution to an operation brought, and sees nothing move.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct StallReport {
    /// The operation's step.
    pub step: u64,
    /// The first place in it of which something is missing. What is sent there rests on places before it alone.
    pub place: u64,
    /// From whom, sorted; nobody if that is not known.
    #[serde(deserialize_with = "crate::message::bounded::list::<_, _, MAX_MEMBERS>")]
    pub from: Vec<PeerId>,
}

impl StallReport {
    /// Of whoever waits for it does not know what.
    pub fn nothing(step: u64) -> Self {
        Self { step, place: u64::MAX, from: Vec::new() }
    }

    fn at(&self) -> (u64, u64) {
        (self.step, self.place)
    }
}

/// The pairs of members that do not get to each other what one owes the other, by what those of `promises` say who wait: the
/// one who owes it misses nothing that comes before, so it could send it. Who says nothing of the kind may still work on it; who
/// misses something from nobody that is there could send too.
pub(crate) fn owed(promises: &BTreeMap<PeerId, Promise>) -> impl Iterator<Item = (PeerId, PeerId)> + '_ {
    let missing = |peer: &PeerId| promises.get(peer).and_then(|promise| promise.missing.as_ref());
    let place = move |peer: &PeerId| {
        let missing = missing(peer)?;
        let is_owed = missing.from.iter().any(|from| from != peer && promises.contains_key(from));
        Some(if is_owed { missing.at() } else { (missing.step, u64::MAX) })
    };
    promises.keys().filter_map(move |to| Some((*to, missing(to)?, place(to)?))).flat_map(move |(to, missing, at)| {
        let could = move |from: &&PeerId| **from != to && place(from).is_some_and(|before| before > at);
        missing.from.iter().filter(could).map(move |from| (to, *from))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::lineage::Lineage;
    use crate::vote::proposal::Progress;

    fn peer(name: u8) -> PeerId {
        PeerId([name; 32])
    }

    /// Who says what: the first place of which something is missing, and from whom.
    type Said = (u8, Option<(u64, &'static [u8])>);

    fn pairs(said: &[Said]) -> Vec<(PeerId, PeerId)> {
        let progress = Progress { step: 4, lineage: Lineage::default(), has_state: true, has_result: false };
        let promise = |missing: Option<(u64, &'static [u8])>| Promise {
            missing: missing.map(|(place, from)| StallReport {
                step: 5,
                place,
                from: from.iter().map(|name| peer(*name)).collect(),
            }),
            ..Promise::at(progress)
        };
        let promises = said.iter().map(|(name, missing)| (peer(*name), promise(*missing))).collect();
        owed(&promises).collect()
    }

    #[test]
    fn only_who_misses_nothing_before_it_owes_what_does_not_come() {
        // Round a ring, 1 sends 2 nothing. All wait for whoever is before them; only 1 could go on.
        let ring: [Said; 4] = [(1, Some((4, &[4]))), (2, Some((1, &[1]))), (3, Some((2, &[2]))), (4, Some((3, &[3])))];
        assert_eq!(pairs(&ring), [(peer(2), peer(1))]);
        let mut computing = ring;
        computing[0].1 = None;
        assert_eq!(pairs(&computing), [], "it may still work on what it is to send");
        let mut lying = ring;
        lying[0].1 = Some((0, &[4]));
        assert_eq!(pairs(&lying), [(peer(1), peer(4))], "who says that it got nothing itself has no link to the other");
        for nobody in [&[][..], &[1], &[9]] as [&'static [u8]; 3] {
            lying[0].1 = Some((0, nobody));
            assert_eq!(pairs(&lying), [(peer(2), peer(1))], "{nobody:?} owes it nothing");
        }
    }
}
