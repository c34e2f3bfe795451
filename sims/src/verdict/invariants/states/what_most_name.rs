//! A state is loaded only if no other one is named by most of the donors that answer: one that is mistaken, or lies, and answers
//! first misleads nobody.

use std::collections::BTreeMap;

use starling_topology::PeerId;

use crate::steps::message::Snapshot;
use crate::verdict::invariants::Broken;

const NAME: &str = "what_most_name";

/// What donors named in one download.
#[derive(Debug, Default)]
pub struct WhatMostName {
    named: BTreeMap<PeerId, Snapshot>,
    tried: u32,
}

impl WhatMostName {
    /// A donor named this.
    pub fn names(&mut self, donor: PeerId, snapshot: Snapshot) {
        self.named.insert(donor, snapshot);
    }

    /// All of this has come. If it is not what is wanted after all, another one may be tried.
    ///
    /// # Errors
    /// If most donors named another state.
    pub fn loaded(&mut self, of: Snapshot) -> Result<(), Broken> {
        self.tried += 1;
        let votes = |one: &Snapshot| self.named.values().filter(|other| *other == one).count();
        let most = self.named.values().find(|one| 2 * votes(one) > self.named.len());
        match most.filter(|most| self.tried == 1 && **most != of) {
            Some(most) => Err(Broken::new(NAME, format!("{of:?} was loaded, and most donors named {most:?}"))),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use starling_topology::{Digest, Lineage};

    use super::*;

    #[test]
    fn what_a_minority_names_is_loaded_only_if_there_is_no_majority() {
        let named = |digest: u8| Snapshot { step: 3, lineage: Lineage::NONE, digest: Digest([digest; 32]), chunks: 2 };
        let loads = |digest: u8, digests: &[u8]| {
            let mut most = WhatMostName::default();
            digests.iter().zip(0..).for_each(|(digest, peer)| most.names(PeerId([peer; 32]), named(*digest)));
            most.loaded(named(digest))
        };
        assert!(loads(1, &[2, 1, 1]).is_ok() && loads(2, &[2, 1]).is_ok());
        assert_eq!(loads(2, &[2, 1, 1]).expect_err("two against one").invariant, NAME);
    }
}
