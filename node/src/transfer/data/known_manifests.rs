//! What the downloads of a run's files have found out about those who share them, from one file to the next.

use std::collections::VecDeque;

use starling_engine::download::MAX_DONORS;
use starling_run::DataManifest;
use starling_topology::{Digest, PeerId, SplitMix64Generator};

/// So many manifests are remembered of which a file was wrong: as many as there are donors that are asked.
const MAX_WRONG: usize = 64;

/// See the module. A lie costs its listener a file at most, once.
#[derive(Debug, Default)]
pub(crate) struct KnownManifests {
    /// The one of which a file was the run's.
    right: Option<DataManifest>,
    /// Those of which a file was not, the oldest first.
    wrong: VecDeque<Digest>,
    /// Who has handed out chunks of the right one, the last one first.
    served: Vec<PeerId>,
    /// Bytes that came of it.
    bytes: u64,
}

impl KnownManifests {
    /// What is loaded as soon as somebody names it, whatever others do.
    pub(crate) fn right(&self) -> Option<&DataManifest> {
        self.right.as_ref()
    }

    pub(crate) fn is_right(&self, manifest: &DataManifest) -> bool {
        self.right.as_ref() == Some(manifest)
    }

    /// Whether nothing is loaded by it again.
    pub(crate) fn is_wrong(&self, manifest: Digest) -> bool {
        self.wrong.contains(&manifest)
    }

    /// A file that came by it is the run's, and these donors have handed out chunks of it.
    pub(crate) fn confirm(&mut self, manifest: DataManifest, donors: &[PeerId]) {
        self.right = Some(manifest);
        for donor in donors {
            self.served.retain(|known| known != donor);
            self.served.insert(0, *donor);
        }
        self.served.truncate(MAX_DONORS);
    }

    /// One that came by it is not, or can't be.
    pub(crate) fn refuse(&mut self, manifest: &DataManifest) {
        if self.is_right(manifest) {
            // It was right in another file.
            self.right = None;
            self.served.clear();
        }
        let name = manifest.id();
        if !self.is_wrong(name) {
            self.wrong.push_back(name);
            if self.wrong.len() > MAX_WRONG {
                self.wrong.pop_front();
            }
        }
    }

    /// So many bytes came of the right one.
    pub(crate) fn count(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    /// How many that were.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whom to ask of these, in this order: those that have served before, then the others in any order, as not all may be asked.
    pub(crate) fn order(&self, members: &[PeerId], seed: u64) -> Vec<PeerId> {
        let mut asked: Vec<PeerId> = self.served.iter().copied().filter(|donor| members.contains(donor)).collect();
        let mut others: Vec<PeerId> = members.iter().copied().filter(|member| !asked.contains(member)).collect();
        let mut generator = SplitMix64Generator::new(seed);
        while let Some(last) = others.len().checked_sub(1) {
            let at = generator.below(others.len() as u32) as usize;
            others.swap(at, last);
            asked.extend(others.pop());
        }
        asked
    }
}

#[cfg(test)]
mod tests {
    use starling_run::SharedFile;

    use super::*;

    fn manifest(bytes: u64) -> DataManifest {
        DataManifest { files: vec![SharedFile { name: "a".to_owned(), bytes, chunks: Vec::new() }] }
    }

    fn peer(name: u8) -> PeerId {
        PeerId([name; 32])
    }

    #[test]
    fn what_was_right_is_so_until_a_file_of_it_is_wrong() {
        let mut known = KnownManifests::default();
        assert!(known.right().is_none() && !known.is_wrong(manifest(1).id()));
        known.confirm(manifest(1), &[peer(7)]);
        known.refuse(&manifest(2));
        assert!(known.is_right(&manifest(1)) && known.is_wrong(manifest(2).id()));
        known.refuse(&manifest(1));
        assert!(known.right().is_none() && known.is_wrong(manifest(1).id()), "it was right in one file alone");
        assert_eq!(known.order(&[peer(7)], 0), [peer(7)]);
        // As many as there are: the oldest are forgotten.
        (10..10 + MAX_WRONG as u64).for_each(|bytes| known.refuse(&manifest(bytes)));
        assert!(!known.is_wrong(manifest(1).id()) && known.is_wrong(manifest(10).id()));
        known.refuse(&manifest(10));
        assert_eq!(known.wrong.len(), MAX_WRONG);
    }

    #[test]
    fn who_has_served_is_asked_first_and_all_others_are_asked_in_time() {
        let mut known = KnownManifests::default();
        known.confirm(manifest(1), &[peer(200), peer(3)]);
        known.confirm(manifest(1), &[peer(200), peer(90)]);
        let members: Vec<PeerId> = (0..100).chain([200]).map(peer).collect();
        let mut first_ones = std::collections::BTreeSet::new();
        for seed in 0..40 {
            let order = known.order(&members, seed);
            assert_eq!(order[..3], [90, 200, 3].map(peer));
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, members, "each once");
            first_ones.extend(order[..64].iter().copied());
        }
        assert_eq!(first_ones.len(), members.len(), "also those with the highest ids");
        // Who has gone is not asked.
        assert_eq!(known.order(&[peer(1), peer(200)], 1), [200, 1].map(peer));
    }
}
