//! A simulated disk: it loses what was not synced, tears it, flips bits, and fills up.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use starling_topology::heads::retention::ForkStatus;
use starling_topology::vote::slot;
use starling_topology::{Digest, Head, Lineage, Mark, MarkStatus, PeerId, Proof, Record, Root, Slot};

use crate::hardware::machine::contacts::{Contacts, ContactsFile};
use crate::hardware::network::rng::Rng;
use crate::steps::state::State;

/// The folder of one peer. A file appears under its name only once it is synced (temporary file, fsync, rename, fsync
/// of the folder); what dies before that is swept away at the next start. The agreement record has two slots in one file,
/// which are written one after the other.
#[derive(Debug, Clone, Default)]
pub struct Disk {
    /// The agreement record's file: it has its full size from the first record on.
    slots: Option<[Recorded; 2]>,
    contacts: ContactsFile,
    /// What it had saved to sign it. It has two slots as well: they are lost together, or not at all.
    mark: MarkFile,
    checkpoints: BTreeMap<Name, Saved>,
    /// Those of branches that were left, and stay all the same.
    kept: BTreeSet<Name>,
    full: bool,
    read_only: bool,
    hangs: bool,
}

/// The file of what a member had saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum MarkFile {
    /// There is none, as on a disk that never had a record.
    #[default]
    Missing,
    /// Neither slot can be read.
    Damaged,
    Whole(MarkStatus),
}

/// What a checkpoint is of: a state, by its step and its lineage.
pub type Name = (u64, Lineage);

/// One slot of the agreement record's file. It is written much more often than it is looked at, so its bytes are made when
/// somebody does.
#[derive(Debug, Clone)]
enum Recorded {
    Written(u64, Rc<Record>),
    /// What became of its bytes.
    Damaged(Vec<u8>),
}

/// Nobody ever puts one peer's disk into another's machine.
const OWNER: PeerId = PeerId([0; 32]);

impl Recorded {
    fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Written(version, record) => {
                Slot { run: record.view.run, peer: OWNER, version: *version, payload: record.encode() }.encode()
            }
            Self::Damaged(bytes) => bytes.clone(),
        }
    }

    fn read(&self) -> Option<(u64, Rc<Record>)> {
        match self {
            Self::Written(version, record) => Some((*version, Rc::clone(record))),
            Self::Damaged(bytes) => {
                let slot = Slot::decode(bytes)?;
                Some((slot.version, Rc::new(Record::decode(&slot.payload).ok()?)))
            }
        }
    }
}

/// A checkpoint file.
#[derive(Debug, Clone)]
pub struct Saved {
    bytes: Vec<u8>,
    /// Whether it reads back well, once somebody has looked.
    good: OnceCell<bool>,
    /// Who vouches for it, if that is a quorum, and whether those were in a fork.
    signed: Option<(ForkStatus, BTreeSet<PeerId>)>,
    /// What shows that to others.
    proof: Option<Rc<Proof>>,
}

impl Saved {
    /// A file with these bytes.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self { bytes, good: OnceCell::new(), signed: None, proof: None }
    }

    /// The same, signed by a quorum.
    pub fn signed_by(self, signers: BTreeSet<PeerId>, forked: ForkStatus) -> Self {
        Self { signed: Some((forked, signers)), ..self }
    }

    /// Whether a quorum vouches for it.
    pub fn stable(&self) -> Option<ForkStatus> {
        self.signed.as_ref().map(|(forked, _)| *forked)
    }

    /// The same, with what shows that it is stable.
    pub fn proven_by(self, proof: &Proof) -> Self {
        let signers = proof.signatures.iter().map(|(peer, _)| *peer).collect();
        Self { proof: Some(Rc::new(proof.clone())), ..self.signed_by(signers, ForkStatus(proof.view.forked)) }
    }

    /// What shows that it is stable.
    pub fn proof(&self) -> Option<&Rc<Proof>> {
        self.proof.as_ref()
    }

    /// Its name for those who sign it.
    pub fn manifest(&self) -> Digest {
        Digest(*blake3::hash(&self.bytes).as_bytes())
    }

    /// What is in it.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// What is in it, to be changed.
    pub fn bytes_mut(&mut self) -> &mut Vec<u8> {
        self.good = OnceCell::new();
        &mut self.bytes
    }

    /// Whether it reads back well.
    pub fn is_good(&self) -> bool {
        *self.good.get_or_init(|| State::decode(&self.bytes, true).is_some())
    }
}

/// The disk has no room, or takes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused;

impl Disk {
    /// Whether there is room.
    pub fn set_full(&mut self, full: bool) {
        self.full = full;
    }

    /// Whether it takes anything.
    pub fn set_read_only(&mut self, read_only: bool) {
        self.read_only = read_only;
    }

    /// Whether it answers at all.
    pub fn set_hanging(&mut self, hangs: bool) {
        self.hangs = hangs;
    }

    /// Whether what is written to it now waits.
    pub fn hangs(&self) -> bool {
        self.hangs
    }

    /// Whether an agreement record that is written now will be there.
    pub fn takes_votes(&self) -> bool {
        !(self.hangs || self.read_only || (self.full && self.slots.is_none()))
    }

    /// The newest agreement record that is whole, if there is one.
    pub fn record(&self) -> Option<Record> {
        self.newest_record().map(|record| (*record).clone())
    }

    /// The same, shared.
    pub fn newest_record(&self) -> Option<Rc<Record>> {
        let found = self.slots.as_ref()?.each_ref().map(Recorded::read);
        found.into_iter().flatten().max_by_key(|(version, _)| *version).map(|(_, record)| record)
    }

    /// Which checkpoints are of the branch that it is on, or left, if one of its files says that.
    pub fn root(&self) -> Option<Root> {
        let left = if let ContactsFile::Whole(contacts) = self.contacts() { contacts.left.as_ref() } else { None };
        self.newest_record().map(|record| record.root).or_else(|| left.map(|left| left.root))
    }

    /// Whether there is one.
    pub fn has_record(&self) -> bool {
        self.versions().iter().any(Option::is_some)
    }

    /// Whether there was one that can't be read any more.
    pub fn has_lost_its_record(&self) -> bool {
        self.slots.is_some() && !self.has_record()
    }

    /// Its member has given its seat up.
    pub fn remove_record(&mut self) {
        self.slots = None;
    }

    /// Both slots of the record become unreadable, if there are any.
    pub fn lose_record(&mut self) {
        self.slots.iter_mut().flatten().for_each(|slot| *slot = Recorded::Damaged(Vec::new()));
    }

    /// Whom it knows of the run.
    pub fn contacts(&self) -> &ContactsFile {
        &self.contacts
    }

    /// Writes them anew. What can't be read is replaced as a whole.
    ///
    /// # Errors
    /// [`Refused`] if it does not take it: the old ones are still there then.
    pub fn note_contacts(&mut self, change: impl FnOnce(&mut Contacts)) -> Result<(), Refused> {
        if self.full || self.read_only || self.hangs {
            return Err(Refused);
        }
        let mut contacts = match std::mem::take(&mut self.contacts) {
            ContactsFile::Whole(contacts) => contacts,
            ContactsFile::Missing | ContactsFile::Damaged => Contacts::default(),
        };
        change(&mut contacts);
        self.contacts = ContactsFile::Whole(contacts);
        Ok(())
    }

    /// They become unreadable, if there are any.
    pub fn lose_contacts(&mut self) {
        if self.contacts != ContactsFile::Missing {
            self.contacts = ContactsFile::Damaged;
        }
    }

    fn versions(&self) -> [Option<u64>; 2] {
        let version = |slot: &Recorded| slot.read().map(|(version, _)| version);
        self.slots.as_ref().map_or([None; 2], |slots| slots.each_ref().map(version))
    }

    /// Writes the agreement record to both slots, and syncs each.
    ///
    /// # Errors
    /// [`Refused`] if it does not take it. The old one is still there then.
    pub fn write_record(&mut self, record: Rc<Record>) -> Result<(), Refused> {
        if self.read_only || (self.full && self.slots.is_none()) {
            return Err(Refused);
        }
        if self.slots.is_none() && self.mark == MarkFile::Missing {
            self.mark = MarkFile::Whole(MarkStatus::Nothing); // First, so that there is no record without it.
        }
        let version = self.versions().into_iter().flatten().max().unwrap_or(0) + 1;
        self.slots = Some([Recorded::Written(version, Rc::clone(&record)), Recorded::Written(version, record)]);
        Ok(())
    }

    /// The power goes, or the process, while this record is being written: none of it is there, or some, or one copy. The
    /// first one of all is written aside.
    pub fn tear_record(&mut self, record: Rc<Record>, rng: &mut Rng) {
        let versions = self.versions();
        if self.read_only || self.hangs {
            return;
        }
        let Some(slots) = &mut self.slots else { return };
        let version = versions.into_iter().flatten().max().unwrap_or(0) + 1;
        let written = Recorded::Written(version, record);
        let [first, second] = slot::order(versions);
        match rng.between(0, 3) {
            0 => {}
            1 => slots[first] = torn(&slots[first], &written, rng),
            2 => slots[first] = written,
            _ => {
                slots[second] = torn(&slots[second], &written, rng);
                slots[first] = written;
            }
        }
    }

    /// What it had saved to sign it.
    pub fn noted(&self) -> MarkStatus {
        if let MarkFile::Whole(noted) = self.mark { noted } else { MarkStatus::Unknown }
    }

    /// That can't be read any more, if there is any.
    pub fn lose_mark(&mut self) {
        if self.mark != MarkFile::Missing {
            self.mark = MarkFile::Damaged;
        }
    }

    /// Notes that, synced.
    ///
    /// # Errors
    /// [`Refused`] if it does not take it. The old one is still there then.
    pub fn write_mark(&mut self, mark: Mark) -> Result<(), Refused> {
        if self.read_only || (self.full && self.mark == MarkFile::Missing) {
            return Err(Refused);
        }
        self.mark = MarkFile::Whole(MarkStatus::Saved(mark));
        Ok(())
    }

    /// The folder of checkpoints is gone, and nothing else.
    pub fn lose_checkpoints(&mut self) {
        self.checkpoints.clear();
        self.kept.clear();
    }

    /// The checkpoints by what they are of.
    pub fn checkpoints(&self) -> &BTreeMap<Name, Saved> {
        &self.checkpoints
    }

    /// Those that stay although they are of branches that were left.
    pub fn kept(&self) -> &BTreeSet<Name> {
        &self.kept
    }

    /// The good ones of this step.
    fn good(&self, step: u64) -> impl Iterator<Item = State> {
        let of_step = self.checkpoints.iter().filter(move |((at, _), _)| *at == step);
        of_step.filter_map(|(_, saved)| State::decode(saved.bytes(), true))
    }

    /// Whether there is a good checkpoint of this state, of whatever branch.
    pub fn holds(&self, step: u64, digest: Digest) -> bool {
        self.good(step).any(|state| state.digest == digest)
    }

    /// Whether there is a good checkpoint of this step to go on from.
    pub fn has_usable(&self, step: u64) -> bool {
        let root = self.record().map(|record| record.root);
        root.is_some_and(|root| self.good(step).any(|state| root.admits(state.step, state.lineage)))
    }

    /// Adds a checkpoint, synced. Who has signed it before has signed it now.
    ///
    /// # Errors
    /// [`Refused`] if it does not take it.
    pub fn write_checkpoint(&mut self, name: Name, file: Saved) -> Result<(), Refused> {
        if self.full || self.read_only {
            return Err(Refused);
        }
        let before = self.checkpoints.remove(&name);
        let (signed, proof) = before.map(|before| (before.signed, before.proof)).unwrap_or_default();
        self.checkpoints.insert(name, Saved { signed: file.signed.or(signed), proof: file.proof.or(proof), ..file });
        Ok(())
    }

    /// The good file that is signed so, without the signatures.
    pub fn file_of(&self, head: &Head) -> Option<(Name, Saved)> {
        let of_step = self.checkpoints.iter().filter(|((step, _), _)| *step == head.step);
        let mut good = of_step.filter(|(_, saved)| saved.manifest() == head.manifest && saved.is_good());
        good.next().map(|(name, saved)| (*name, Saved::new(saved.bytes.clone())))
    }

    /// Deletes a checkpoint.
    pub fn delete_checkpoint(&mut self, name: Name) {
        self.checkpoints.remove(&name);
        self.kept.remove(&name);
    }

    /// Has these stay.
    pub fn keep(&mut self, names: BTreeSet<Name>) {
        self.kept = names;
    }

    /// Writes beside a checkpoint that a quorum vouches for it, if it is still there and there is room.
    pub fn sign(&mut self, proof: &Proof) {
        if self.full || self.read_only || self.hangs {
            return;
        }
        let head = &proof.head;
        let mut of_step = self.checkpoints.iter_mut().filter(|((at, _), _)| *at == head.step).map(|(_, saved)| saved);
        if let Some(saved) = of_step.find(|saved| saved.manifest() == head.manifest) {
            *saved = saved.clone().proven_by(proof);
        }
    }

    /// It is as `before`, and takes as much as now.
    pub fn set_back(&mut self, before: Self) {
        let Self { full, read_only, hangs, .. } = *self;
        *self = Self { full, read_only, hangs, ..before };
    }

    /// Nothing is left.
    pub fn wipe(&mut self) {
        let (full, read_only, hangs) = (self.full, self.read_only, self.hangs);
        *self = Self { full, read_only, hangs, ..Self::default() };
    }

    /// Flips one bit of one file; says which one, if there is any.
    pub fn flip(&mut self, rng: &mut Rng) -> Option<String> {
        let names: Vec<Name> = self.checkpoints.keys().copied().collect();
        if let Some(slots) = &mut self.slots
            && (names.is_empty() || rng.one_in(3))
        {
            let at = usize::from(rng.one_in(2));
            let mut bytes = slots[at].bytes();
            flip_one(&mut bytes, rng)?;
            slots[at] = Recorded::Damaged(bytes);
            return Some("the record".to_owned());
        }
        let name = rng.pick(&names)?;
        flip_one(self.checkpoints.get_mut(&name)?.bytes_mut(), rng)?;
        Some(format!("the checkpoint of step {}", name.0))
    }

    /// Cuts the newest checkpoint short, as a disk that lies about syncing does; says which one, if there is any.
    pub fn tear(&mut self, rng: &mut Rng) -> Option<u64> {
        let ((step, _), saved) = self.checkpoints.iter_mut().next_back()?;
        let length = u64::try_from(saved.bytes().len()).unwrap_or(0);
        saved.bytes_mut().truncate(usize::try_from(rng.between(0, length.saturating_sub(1))).unwrap_or(0));
        Some(*step)
    }
}

/// A slot that was being written over when that was cut off.
fn torn(before: &Recorded, written: &Recorded, rng: &mut Rng) -> Recorded {
    let (mut bytes, new) = (before.bytes(), written.bytes());
    let cut = usize::try_from(rng.between(0, new.len() as u64)).unwrap_or(0);
    bytes.resize(bytes.len().max(cut), 0);
    bytes[..cut].copy_from_slice(&new[..cut]);
    Recorded::Damaged(bytes)
}

fn flip_one(bytes: &mut [u8], rng: &mut Rng) -> Option<()> {
    let last = u64::try_from(bytes.len()).ok()?.checked_sub(1)?;
    let at = usize::try_from(rng.between(0, last)).ok()?;
    bytes[at] ^= 1 << rng.between(0, 7);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use starling_topology::ledger::Ledger;
    use starling_topology::{RunId, View};

    fn record(founder: u8) -> Rc<Record> {
        let view = View::found(RunId([1; 32]), PeerId([founder; 32]));
        Rc::new(Record::of(view, None))
    }

    fn found(disk: &Disk) -> Option<Rc<Record>> {
        disk.record().map(Rc::new)
    }

    #[test]
    fn a_full_disk_keeps_what_it_has_and_can_write_it_again() {
        let mut disk = Disk::default();
        disk.set_full(true);
        assert_eq!(disk.write_record(record(1)), Err(Refused));
        disk.set_full(false);
        assert_eq!(disk.write_record(record(1)), Ok(()));
        disk.set_full(true);
        assert_eq!(disk.write_record(record(2)), Ok(()), "it takes no room that it does not have");
        assert_eq!(disk.write_checkpoint((1, Lineage::NONE), Saved::new(vec![3])), Err(Refused));
        disk.set_read_only(true);
        assert_eq!(disk.write_record(record(3)), Err(Refused));
        assert_eq!((found(&disk), disk.checkpoints().len()), (Some(record(2)), 0));
    }

    #[test]
    fn one_whole_copy_is_a_record_and_none_is_none() {
        for seed in 0..50 {
            let mut disk = Disk::default();
            disk.write_record(record(1)).expect("there is room");
            let rng = &mut Rng::new(seed);
            assert!(disk.flip(rng).is_some());
            assert_eq!(found(&disk), Some(record(1)));
            while disk.has_record() {
                disk.flip(rng);
            }
            assert_eq!(found(&disk), None);
            disk.write_record(record(2)).expect("there is room");
            assert_eq!(found(&disk), Some(record(2)));
        }
    }

    #[test]
    fn a_record_that_was_being_written_is_the_one_before_or_itself() {
        let mut news = 0;
        for seed in 0..200 {
            let (mut disk, mut rng) = (Disk::default(), Rng::new(seed));
            disk.tear_record(record(1), &mut rng);
            assert_eq!(found(&disk), None);
            for name in 1..6 {
                disk.write_record(record(name)).expect("there is room");
                disk.tear_record(record(name + 1), &mut rng);
                let found = found(&disk).expect("one copy is whole");
                assert!(found == record(name) || found == record(name + 1), "seed {seed}");
                news += u32::from(found == record(name + 1));
            }
        }
        assert!((300..700).contains(&news), "{news}");
    }

    #[test]
    fn bits_flip_and_files_tear() {
        let mut disk = Disk::default();
        assert_eq!((disk.flip(&mut Rng::new(1)), disk.tear(&mut Rng::new(1))), (None, None));
        let whole = State::initial(Ledger::new(1, 9, 3)).encode();
        let name = (4, Lineage::NONE);
        disk.write_checkpoint(name, Saved::new(whole.clone())).expect("there is room");
        assert!(disk.checkpoints()[&name].is_good());
        assert!(disk.flip(&mut Rng::new(1)).is_some());
        assert!(!disk.checkpoints()[&name].is_good());
        assert_eq!(disk.tear(&mut Rng::new(1)), Some(4));
        assert!(disk.checkpoints()[&name].bytes().len() < whole.len());
        disk.wipe();
        assert!(disk.checkpoints().is_empty());
    }
}
