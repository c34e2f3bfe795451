//! Who has taken the founder's place, as the run's members say: for a key that is lost, or in the wrong hands.
//!
//! A *line* is the keys that came after the founder's, in order, the whole line each time, as with lists of revocations. A
//! member *consents* to a line by its signature. A line counts for a member once a quorum of the members of its own view has
//! consented, whoever told it; from then on it consents itself. So whoever comes later, and was in no view with those who
//! decided, finds a quorum in its own view too, and nobody who has left the run counts anywhere.
//!
//! Of two lines the longer counts, and of two of one length, to each of which a quorum consented, the one with the lower hash,
//! everywhere.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use starling_topology::{PeerId, Quorum, RunId, View};

use crate::credentials::identity::{Identity, from_libp2p, has_signed};
use crate::credentials::invitation::{DenialReason, Invitation, PresentedInvitation};
use crate::credentials::revocations::RevocationUpdate;
use crate::error::NodeError;
use crate::store::private_file;

/// What a signature says first, so that no other message of ours can be taken for it.
const PURPOSE: &[u8] = b"starling appoints a founder 1";
/// The most keys that may follow a founder's.
pub(crate) const MAX_KEYS: usize = 16;
/// The most consents that are remembered, and to how many lines of one peer.
const MAX_CONSENTS: usize = 1024;
const MAX_OF_ONE: usize = MAX_OWN + 1;
/// To how many lines that don't count a user may consent. There is room for the one that does.
pub(crate) const MAX_OWN: usize = 3;
/// The most consents that are told, in encoded bytes, about.
pub(crate) const MAX_TOLD_BYTES: usize = 64 * 1024;
/// The longest file, in bytes.
const MAX_FILE_BYTES: u64 = 512 * 1024;

/// The keys that came after the founder's, in order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub(crate) struct Line(Vec<PeerId>);

impl Line {
    pub(crate) fn keys(&self) -> &[PeerId] {
        &self.0
    }

    /// How many appointments there have been.
    pub(crate) fn number(&self) -> usize {
        self.0.len()
    }

    /// This line with one more key.
    pub(crate) fn followed_by(&self, key: PeerId) -> Self {
        Self(self.0.iter().copied().chain([key]).collect())
    }

    /// Whether there may be such a line: nobody comes back to the place.
    pub(crate) fn is_sound(&self, founder: PeerId) -> bool {
        // Its length first: it may come from anywhere.
        (1..=MAX_KEYS).contains(&self.0.len())
            && self.0.iter().chain([&founder]).collect::<BTreeSet<_>>().len() == self.0.len() + 1
    }

    /// Whether it counts, and not the other, wherever a quorum consents to both.
    pub(crate) fn precedes(&self, other: &Self) -> bool {
        let rank = |line: &Self| (line.0.len(), Reverse(*blake3::hash(&line.content()).as_bytes()));
        rank(self) > rank(other)
    }

    /// `identity`'s consent.
    pub(crate) fn sign(&self, run: RunId, identity: &Identity) -> Vec<u8> {
        identity.sign(&self.statement(run)).to_vec()
    }

    /// Whether this is `peer`'s consent.
    pub(crate) fn is_signed(&self, run: RunId, peer: PeerId, signature: &[u8]) -> bool {
        let signature = <&[u8; 64]>::try_from(signature);
        signature.is_ok_and(|signature| has_signed(peer, &self.statement(run), signature))
    }

    fn content(&self) -> Vec<u8> {
        self.0.iter().flat_map(|key| key.0).collect()
    }

    fn statement(&self, run: RunId) -> Vec<u8> {
        [PURPOSE, &run.0, &self.content()].concat()
    }
}

/// The founder's place in a run: who has it, and who had it.
#[derive(Debug, Clone)]
pub(crate) struct Office {
    pub(crate) run: RunId,
    pub(crate) founder: PeerId,
    pub(crate) line: Line,
}

impl Office {
    /// As a data directory has it.
    pub(crate) fn load(data_dir: &Path, run: RunId, founder: PeerId) -> Self {
        Self { run, founder, line: Appointments::load(data_dir, run).line }
    }

    /// Whose signature says who may come, and who has to go.
    pub(crate) fn holder(&self) -> PeerId {
        self.line.keys().last().copied().unwrap_or(self.founder)
    }

    /// Who has or had the place, with their numbers, the newest first.
    fn holders(&self) -> impl Iterator<Item = (usize, PeerId)> {
        std::iter::once(&self.founder)
            .chain(self.line.keys())
            .copied()
            .enumerate()
            .collect::<Vec<_>>()
            .into_iter()
            .rev()
    }

    /// The number of the key that has signed a list, if one of them has.
    pub(crate) fn writer(&self, renewal: &RevocationUpdate) -> Option<usize> {
        self.holders().find(|(_, key)| renewal.is_of(*key, self.run)).map(|(number, _)| number)
    }

    /// The number of the key that has signed an invitation, if one of them has.
    pub(crate) fn inviter(&self, invitation: &Invitation) -> Option<usize> {
        self.holders().find(|(_, key)| invitation.is_of((*key, self.run))).map(|(number, _)| number)
    }

    /// The number of the key that has signed what `peer` shows.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn check(&self, presented: &PresentedInvitation, peer: PeerId) -> Result<usize, DenialReason> {
        for (number, key) in self.holders() {
            match presented.check((key, self.run), peer) {
                Err(DenialReason::Forged) => {}
                other => return other.map(|()| number),
            }
        }
        Err(DenialReason::Forged)
    }

    /// How many revocations there have been by whoever has the place now.
    pub(crate) fn epoch(&self, renewal: Option<&RevocationUpdate>) -> u64 {
        let own = renewal.filter(|renewal| self.writer(renewal) == Some(self.line.number()));
        own.map_or(0, |renewal| renewal.list.epoch)
    }

    /// Whether a revocation has ended an invitation, whoever shows it. A list ends those of the keys before its own, also
    /// those that name a peer: whoever has stolen such a key can still make them.
    pub(crate) fn has_ended(&self, invitation: &Invitation, renewal: Option<&RevocationUpdate>) -> bool {
        let Some(inviter) = self.inviter(invitation) else { return true };
        let Some(renewal) = renewal else { return false };
        let writer = self.writer(renewal).unwrap_or_default();
        let is_outdated = invitation.terms.whom.is_none() && invitation.terms.epoch < renewal.list.epoch;
        inviter < writer || (inviter == writer && is_outdated)
    }
}

/// Who decides who has the founder's place.
#[derive(Debug, Clone)]
pub(crate) struct Electors {
    pub(crate) members: BTreeSet<PeerId>,
    pub(crate) rule: Quorum,
    pub(crate) casting: Option<PeerId>,
}

impl Electors {
    /// Those of a view that vote. Of a fork nobody: a part of the run does not decide for all of it.
    pub(crate) fn of(view: &View) -> Option<Self> {
        let members = view.voters().collect();
        (!view.forked).then(|| Self { members, rule: view.quorum, casting: Some(view.casting()) })
    }

    fn agree(&self, signers: &BTreeMap<PeerId, Vec<u8>>) -> bool {
        let present = signers.keys().filter(|peer| self.members.contains(peer)).count();
        let casting = self.casting.is_some_and(|peer| signers.contains_key(&peer));
        self.rule.is_met(present, self.members.len(), casting)
    }
}

/// Who has consented to which line. Its signatures are right, unless it was just read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Consents(BTreeMap<Line, BTreeMap<PeerId, Vec<u8>>>);

impl Consents {
    pub(crate) fn has(&self, line: &Line, peer: &PeerId) -> bool {
        self.0.get(line).is_some_and(|signers| signers.contains_key(peer))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Line, &PeerId, &Vec<u8>)> {
        self.0.iter().flat_map(|(line, signers)| signers.iter().map(move |(peer, seal)| (line, peer, seal)))
    }

    /// Whether one more of this peer is remembered. Those who decide nothing make room.
    pub(crate) fn has_room(&mut self, peer: &PeerId, electors: Option<&Electors>) -> bool {
        let of_one = self.0.values().filter(|signers| signers.contains_key(peer)).count();
        if let Some(electors) = electors.filter(|_| self.iter().count() >= MAX_CONSENTS) {
            self.0.values_mut().for_each(|signers| signers.retain(|peer, _| electors.members.contains(peer)));
        }
        of_one < MAX_OF_ONE && self.iter().count() < MAX_CONSENTS
    }

    pub(crate) fn insert(&mut self, line: &Line, peer: PeerId, signature: Vec<u8>) {
        self.0.entry(line.clone()).or_default().insert(peer, signature);
    }

    /// Forgets lines that can't count any more where `held` does.
    pub(crate) fn retain(&mut self, held: &Line) {
        self.0.retain(|line, signers| !signers.is_empty() && (line == held || line.precedes(held)));
    }

    /// The line that counts instead of `held`, if a quorum has consented to one.
    pub(crate) fn winner(&self, electors: &Electors, held: &Line) -> Option<Line> {
        let counts =
            |(line, signers): &(&Line, &BTreeMap<PeerId, Vec<u8>>)| line.precedes(held) && electors.agree(signers);
        let agreed = self.0.iter().filter(counts).map(|(line, _)| line);
        agreed.reduce(|best, line| if line.precedes(best) { line } else { best }).cloned()
    }

    /// What others are told: the consents of those who decide, and those first to which most have consented.
    pub(crate) fn tellable(&self, electors: Option<&Electors>) -> Self {
        let decides = |peer: &PeerId| electors.is_none_or(|electors| electors.members.contains(peer));
        let mut lines: Vec<_> = self.0.iter().collect();
        lines.sort_by_key(|(_, signers)| Reverse(signers.len()));
        let (mut told, mut room) = (Self::default(), MAX_TOLD_BYTES);
        for (line, signers) in lines {
            for (peer, signature) in signers.iter().filter(|(peer, _)| decides(peer)) {
                let bytes = 128 + if told.0.contains_key(line) { 0 } else { 8 + 32 * line.number() };
                let Some(left) = room.checked_sub(bytes) else { return told };
                room = left;
                told.insert(line, *peer, signature.clone());
            }
        }
        told
    }

    /// What tells apart what others are told; 0 for nothing.
    pub(crate) fn mark(&self) -> u64 {
        let names = self.iter().map(|(line, peer, _)| {
            let hash = blake3::hash(&[&line.content()[..], &peer.0].concat());
            u64::from_le_bytes(*hash.as_bytes().first_chunk().expect("invariant: a hash has 32 bytes"))
        });
        names.fold(0, |all, mark| all ^ mark)
    }
}

/// What is kept of it in a data directory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Appointments {
    pub(crate) line: Line,
    pub(crate) consents: Consents,
}

impl Appointments {
    /// What is kept of `run`. What can't be read, others tell again.
    pub(crate) fn load(data_dir: &Path, run: RunId) -> Self {
        read(&path(data_dir, run, "appointments")).unwrap_or_default()
    }

    pub(crate) fn store(&self, data_dir: &Path, run: RunId) -> Result<(), NodeError> {
        let bytes = postcard::to_allocvec(self).expect("invariant: appointments always encode");
        private_file::write(&path(data_dir, run, "appointments"), &bytes)
    }
}

/// What this machine's user has consented to last, as `starling appoint` leaves it in the data directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Consent {
    pub(crate) line: Line,
    signature: Vec<u8>,
}

impl Consent {
    pub(crate) fn sign(line: Line, run: RunId, identity: &Identity) -> Self {
        Self { signature: line.sign(run, identity), line }
    }

    /// The signature, if it is this peer's.
    pub(crate) fn signature(&self, run: RunId, peer: PeerId) -> Option<Vec<u8>> {
        self.line.is_signed(run, peer, &self.signature).then(|| self.signature.clone())
    }

    pub(crate) fn path(data_dir: &Path, run: RunId) -> PathBuf {
        path(data_dir, run, "consent")
    }

    pub(crate) fn load(data_dir: &Path, run: RunId) -> Option<Self> {
        read(&Self::path(data_dir, run))
    }

    pub(crate) fn store(&self, data_dir: &Path, run: RunId) -> Result<(), NodeError> {
        let bytes = postcard::to_allocvec(self).expect("invariant: a consent always encodes");
        private_file::write(&Self::path(data_dir, run), &bytes)
    }
}

fn path(data_dir: &Path, run: RunId, what: &str) -> PathBuf {
    data_dir.join(format!("{what}-{}", &run.to_string()[..16]))
}

fn read<T: for<'a> Deserialize<'a>>(path: &Path) -> Option<T> {
    let read = private_file::read_up_to(path, MAX_FILE_BYTES).map(|bytes| bytes.map(|it| postcard::from_bytes(&it)));
    match read {
        Ok(None) => None,
        Ok(Some(Ok(it))) => Some(it),
        Ok(Some(Err(error))) => {
            tracing::warn!(path = %path.display(), %error, "what members said of the founder's place can't be read");
            None
        }
        Err(error) => {
            tracing::warn!(%error, "what members said of the founder's place can't be read");
            None
        }
    }
}

/// Our name for whoever an identity is.
pub(crate) fn name(identity: &Identity) -> PeerId {
    from_libp2p(&identity.peer_id()).expect("invariant: ours is an Ed25519 key")
}

#[cfg(test)]
mod tests {
    use starling_topology::Generation;

    use super::*;

    const RUN: RunId = RunId([3; 32]);

    fn key(name: u8) -> PeerId {
        PeerId([name; 32])
    }

    fn line(names: &[u8]) -> Line {
        Line(names.iter().copied().map(key).collect())
    }

    #[test]
    fn of_two_lines_one_counts_everywhere_and_nobody_comes_back() {
        let [a, b] = [line(&[1]), line(&[2])];
        assert!(a.precedes(&b) != b.precedes(&a) && !a.precedes(&a));
        assert!(line(&[1, 2]).precedes(&a) && line(&[1, 2]).precedes(&b) && !a.precedes(&line(&[1, 2])));
        assert!(line(&[1, 2]).is_sound(key(9)) && !line(&[]).is_sound(key(9)));
        assert!(!line(&[1, 2, 1]).is_sound(key(9)) && !line(&[1, 9]).is_sound(key(9)));
        let longest: Vec<u8> = (0..=MAX_KEYS as u8).collect();
        assert!(line(&longest[1..]).is_sound(key(99)) && !line(&longest).is_sound(key(99)));
    }

    #[test]
    fn it_takes_a_quorum_of_an_unforked_view_by_its_rule() {
        let of = |names: &[u8]| names.iter().map(|name| (key(*name), Vec::new())).collect::<BTreeMap<_, _>>();
        let view = View::found(RUN, key(4)).succeed([1, 2, 3, 4].map(key));
        let electors = Electors::of(&view).expect("no fork");
        assert!(!electors.agree(&of(&[1])) && !electors.agree(&of(&[1, 2])) && electors.agree(&of(&[1, 2, 3])));
        assert!(electors.agree(&of(&[1, 4])), "half of them, with the casting vote");
        assert!(!electors.agree(&of(&[1, 2, 5, 6])), "others don't count");
        let strict = Electors::of(&view.clone().with_quorum(Quorum::TwoThirds)).expect("no fork");
        assert!(!strict.agree(&of(&[1, 4])) && strict.agree(&of(&[1, 2, 3])));
        let fork = View::fork(RUN, key(1), Some((Generation(2), view.id())));
        assert!(Electors::of(&fork).is_none(), "a part of the run does not decide");
    }

    #[test]
    fn a_signature_is_of_one_run_one_line_and_one_peer() {
        let [a, b] = [(); 2].map(|()| Identity::generate());
        let consent = Consent::sign(line(&[1]), RUN, &a);
        let signature = consent.signature(RUN, name(&a)).expect("its own");
        assert!(consent.signature(RUN, name(&b)).is_none() && consent.signature(RunId([4; 32]), name(&a)).is_none());
        assert!(
            !line(&[2]).is_signed(RUN, name(&a), &signature) && !line(&[1, 2]).is_signed(RUN, name(&a), &signature)
        );
        assert!(!line(&[1]).is_signed(RUN, name(&a), &signature[..63]));
    }

    #[test]
    fn memory_and_what_is_told_are_bounded() {
        let mut consents = Consents::default();
        for at in 0..2 * MAX_OF_ONE as u8 {
            if consents.has_room(&key(1), None) {
                consents.insert(&line(&[at]), key(1), vec![0; 64]);
            }
        }
        assert_eq!(consents.iter().count(), MAX_OF_ONE);
        let members: Vec<PeerId> =
            (0..2 * MAX_CONSENTS as u32).map(|at| PeerId(*blake3::hash(&at.to_le_bytes()).as_bytes())).collect();
        for member in &members {
            if consents.has_room(member, None) {
                consents.insert(&line(&[7; MAX_KEYS]), *member, vec![0; 64]);
            }
        }
        assert_eq!(consents.iter().count(), MAX_CONSENTS);
        let told = consents.tellable(None);
        let bytes = postcard::to_allocvec(&told).expect("encoded").len();
        assert!(bytes <= MAX_TOLD_BYTES && told.iter().count() > 256, "{bytes}");
        // Who decides finds room, whoever came before.
        let last = *members.last().expect("many");
        let electors = Electors { members: [last].into(), rule: Quorum::Majority, casting: None };
        assert!(!consents.has_room(&last, None) && consents.has_room(&last, Some(&electors)));
    }

    #[test]
    fn what_is_kept_is_read_again_and_what_is_damaged_is_nothing() {
        let dir = tempfile::tempdir().expect("a temp dir");
        assert_eq!(Appointments::load(dir.path(), RUN), Appointments::default());
        let mut kept = Appointments { line: line(&[1]), ..Appointments::default() };
        kept.consents.insert(&line(&[1, 2]), key(5), vec![7; 64]);
        kept.store(dir.path(), RUN).expect("stored");
        assert_eq!(Appointments::load(dir.path(), RUN), kept);
        for damaged in [&b""[..], b"\xff\xff\xff\xff\xff\xff", &[9; 40]] {
            std::fs::write(path(dir.path(), RUN, "appointments"), damaged).expect("written");
            std::fs::write(Consent::path(dir.path(), RUN), damaged).expect("written");
            assert_eq!(Appointments::load(dir.path(), RUN), Appointments::default());
            assert_eq!(Consent::load(dir.path(), RUN), None);
        }
    }
}
