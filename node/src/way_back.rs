//! Coming back to a run: what is on this machine's disk of it, whom that names, what they say, and how this machine takes
//! part then. What follows from it, [`starling_topology::way_back()`] decides.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use starling_engine::{search, unheard};
use starling_run::{CheckpointError, CheckpointStore, Manifest};
use starling_topology::{self as topology, Contact, Past, PeerId, RunId, Way};
use tokio::time::{Instant, sleep};

use crate::access::Credentials;
use crate::catch_up::{self, Found, Search, catch_up};
use crate::contacts_file::{Contacts, ContactsFile, Damaged, MAX_KNOWN};
use crate::error::NodeError;
use crate::identity::to_libp2p;
use crate::prepare::Start;
use crate::record_file::{Kept, Loaded, RecordFile};
use crate::report::{Observer, Report, WayBack};

/// From one time that nobody could be asked to the next.
const PAUSE: Duration = Duration::from_secs(1);

/// What a machine has of a run besides checkpoints.
#[derive(Debug)]
pub(crate) struct Memory {
    me: PeerId,
    pub(crate) record: RecordFile,
    pub(crate) kept: Option<Kept>,
    pub(crate) file: ContactsFile,
    pub(crate) contacts: Contacts,
    damaged: Option<Damaged>,
    /// What is wrong with the record.
    vote: Option<String>,
}

/// Whom a peer waits for that asks to be let in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Awaited {
    pub(crate) peers: Vec<PeerId>,
    /// Whether they stayed when this peer left.
    pub(crate) stayed: bool,
    /// Whether one of them said that it goes on.
    pub(crate) live: bool,
}

impl Memory {
    /// Reads it.
    pub(crate) fn load(data_dir: &Path, run: RunId, me: PeerId) -> Self {
        let (record, file) = (RecordFile::new(data_dir, run, me), ContactsFile::new(data_dir, run));
        let (contacts, damaged) = match file.load() {
            Ok(contacts) => (contacts.unwrap_or_default(), None),
            Err(damaged) => (Contacts::default(), Some(damaged)),
        };
        let Loaded { kept, damage: vote } = record.load();
        Self { me, kept, record, file, contacts, damaged, vote }
    }

    /// Nothing, about a run that is new here.
    pub(crate) fn none(data_dir: &Path, run: RunId, me: PeerId) -> Self {
        let (record, file) = (RecordFile::new(data_dir, run, me), ContactsFile::new(data_dir, run));
        Self { me, kept: None, record, file, contacts: Contacts::default(), damaged: None, vote: None }
    }

    /// Tells what can't be read.
    pub(crate) fn warn(&self, observer: &dyn Observer) {
        for message in self.damaged.iter().map(|Damaged(reason)| reason).chain(&self.vote) {
            observer.report(&Report::Warning { message: message.clone() });
        }
    }

    /// Whether there was a record that is lost.
    fn has_lost_its_vote(&self) -> bool {
        self.kept.is_none() && self.vote.is_some()
    }

    /// Whether this machine takes part in the run for the first time, as far as it knows.
    pub(crate) fn is_new(&self) -> bool {
        let is_damaged = self.damaged.is_some() || self.vote.is_some();
        self.kept.is_none() && !is_damaged && self.contacts == Contacts::default()
    }

    /// Whether it neither has a place in the run nor has given one up to others.
    pub(crate) fn is_settled(&self) -> bool {
        self.kept.is_none() && !self.has_lost_its_vote() && self.contacts.left.is_none()
    }

    /// Members needed to take steps, if that is known.
    pub(crate) fn min_members(&self) -> Option<usize> {
        let told = self.contacts.min_members as usize;
        let kept = self.kept.as_ref().map(|kept| kept.min_members);
        kept.or_else(|| (told > 0).then_some(told))
    }

    /// Takes in where a member is now, as the user says.
    pub(crate) fn learn(&mut self, contact: &Contact) {
        if contact.peer != self.me {
            self.contacts.name_member(contact.clone());
            if let Some(kept) = &mut self.kept {
                kept.contacts.retain(|known| known.peer != contact.peer);
                kept.contacts.push(contact.clone());
            }
        }
    }

    /// Other members, those who were there last first.
    pub(crate) fn members(&self) -> Vec<Contact> {
        let mut seen = BTreeSet::from([self.me]);
        let kept = self.kept.iter().flat_map(|kept| &kept.contacts);
        let all = kept.chain(self.contacts.members());
        all.filter(|contact| seen.insert(contact.peer)).take(MAX_KNOWN).cloned().collect()
    }

    /// Where this machine was when it last took part, as far as it knows, and as others have `told`.
    pub(crate) fn places<'a>(&'a self, told: impl IntoIterator<Item = &'a Contact>) -> Vec<String> {
        let told = told.into_iter().filter(|contact| contact.peer == self.me).flat_map(|contact| &contact.addresses);
        let known = self.kept.iter().flat_map(|kept| &kept.listened).chain(&self.contacts.listened);
        let all: BTreeSet<&String> = told.chain(known).collect();
        all.into_iter().cloned().collect()
    }

    /// Where this machine listened when it last took part.
    pub(crate) fn listened(&self, start: &Start) -> Vec<String> {
        if let Start::Recover { kept, .. } = start { kept.listened.clone() } else { self.contacts.listened.clone() }
    }

    fn past(&self, joins: bool) -> Past<'_> {
        Past {
            me: self.me,
            record: self.kept.as_ref().map(|kept| &kept.record),
            left: self.contacts.left.is_some(),
            had_company: self.damaged.is_some() || self.has_lost_its_vote() || !self.members().is_empty(),
            joins,
        }
    }

    /// Asks all that this machine knows of the run who goes on and what they hold, and brings what is newer than its own
    /// checkpoints if nobody goes on. Whoever may hold what this machine should have saved, one state each `stride` steps, is asked
    /// for as long as a stall may last: after a power cut all come back at once, and none knows who is first.
    pub(crate) async fn ask(
        &self,
        manifest: &Manifest,
        credentials: &Credentials,
        store: &CheckpointStore,
        (stride, observer): (u64, &dyn Observer),
    ) -> Result<Found, NodeError> {
        let until = Instant::now() + catch_up::stall(manifest);
        loop {
            let found = self.ask_once(manifest, credentials, store, observer).await?;
            let step = store.steps()?.last().copied().unwrap_or(0);
            let heard = found.heard();
            let is_unheard = |kept: &Kept| !unheard(self.me, &kept.record, (step, stride), &heard).is_empty();
            if !self.kept.as_ref().is_some_and(is_unheard) || Instant::now() + PAUSE > until {
                return Ok(found);
            }
            sleep(PAUSE).await;
        }
    }

    async fn ask_once(
        &self,
        manifest: &Manifest,
        credentials: &Credentials,
        store: &CheckpointStore,
        observer: &dyn Observer,
    ) -> Result<Found, NodeError> {
        let (members, keepers) = (self.members(), self.contacts.keepers());
        let known: Vec<&Contact> = keepers.iter().chain(&members).collect();
        let names = |contacts: &[Contact]| contacts.iter().map(|contact| contact.peer).collect::<Vec<_>>().into_iter();
        let sought = search::sought(self.me, names(keepers), names(&members));
        let contact = |peer: PeerId| known.iter().find(|contact| contact.peer == peer);
        let contacts: Vec<Contact> = sought.into_iter().filter_map(contact).copied().cloned().collect();
        if contacts.is_empty() {
            return Ok(Found::default());
        }
        observer.report(&Report::Asking { peers: contacts.iter().map(|contact| name(contact.peer)).collect() });
        let from_forks = self.kept.as_ref().is_some_and(|kept| kept.record.view.forked);
        let root = self.kept.as_ref().map(|kept| &kept.record.root);
        root.into_iter().for_each(|root| _ = store.root_in(*root));
        let search = Search { manifest, credentials, contacts, store, root, even_if_live: false, from_forks };
        let mut found = catch_up(search).await?;
        for (peer, answer) in &found.answers {
            let (live, stable_step) = answer.as_ref().map_or((false, None), |answer| (answer.live, answer.stable_step));
            let (peer, trouble) = (name(*peer), answer.as_ref().err().cloned());
            observer.report(&Report::Answered { peer, live, stable_step, trouble });
        }
        // That somebody who is gone does not answer was told already, and is no wonder.
        found.troubles.retain(|trouble| trouble.is_loss);
        Ok(found)
    }

    /// How to come back, from what those who were asked said.
    ///
    /// # Errors
    /// [`NodeError::NobodyAnswers`], if only the user can know.
    pub(crate) fn way(&self, found: &Found, joins: bool, alone: bool) -> Result<Way, NodeError> {
        topology::way_back(self.past(joins), self.company(found), alone)
            .ok_or_else(|| NodeError::NobodyAnswers { members: self.names() })
    }

    /// Whether the run is over although this machine has a seat still: it was killed before it heard that the others had finished
    /// too. Nobody answers, and a quorum has signed the state after the last step.
    pub(crate) fn is_over(&self, found: &Found, store: &CheckpointStore, steps: u64) -> Result<bool, CheckpointError> {
        let Some(kept) = self.kept.as_ref().filter(|_| found.heard().is_empty()) else { return Ok(false) };
        if store.steps()?.last().is_none_or(|step| *step < steps) {
            return Ok(false);
        }
        Ok(store.newest_stable(Some(&kept.record.root))?.is_some_and(|stable| stable.step >= steps))
    }

    fn company(&self, found: &Found) -> topology::Company {
        let answers = found.answers.iter().filter_map(|(peer, answer)| Some((*peer, *answer.as_ref().ok()?)));
        search::company(answers, |peer| self.contacts.keepers().iter().any(|keeper| keeper.peer == peer))
    }

    /// The names of other members.
    pub(crate) fn names(&self) -> Vec<String> {
        self.members().iter().map(|contact| name(contact.peer)).collect()
    }

    /// Tells how this machine comes back.
    pub(crate) fn tell(&self, way: Way, found: &Found, observer: &dyn Observer) {
        let live: Vec<String> = found.live().map(name).collect();
        let others = |record: &topology::Record| -> Vec<String> {
            record.view.members().iter().filter(|peer| **peer != self.me).map(|peer| name(*peer)).collect()
        };
        let (way, peers) = match (way, &self.kept) {
            (Way::Found, _) => return,
            (Way::Join | Way::Recover, _) if !live.is_empty() => (WayBack::Join, live),
            (Way::Recover, Some(kept)) => match others(&kept.record) {
                others if others.is_empty() => (WayBack::Alone, others),
                others => (WayBack::Seat, others),
            },
            (Way::Recover, None) => return,
            (Way::Join, _) if self.contacts.left.is_none() => (WayBack::Ask, self.names()),
            (Way::Join, _) => (WayBack::Wait, self.awaited(found).peers.into_iter().map(name).collect()),
            (Way::Fork, _) => (WayBack::Fork, self.names()),
        };
        observer.report(&Report::Returning { way, peers });
    }

    /// Whom this machine waits for, if it asks to be let in: those who go on; else those who stayed when it left; else all.
    pub(crate) fn awaited(&self, found: &Found) -> Awaited {
        let live: Vec<PeerId> = found.live().collect();
        match &self.contacts.left {
            _ if !live.is_empty() => Awaited { peers: live, stayed: false, live: true },
            Some(left) => Awaited { peers: left.stayed.clone(), stayed: true, live: false },
            None => {
                let peers = self.members().iter().map(|contact| contact.peer).collect();
                Awaited { peers, stayed: false, live: false }
            }
        }
    }

    /// Whom to ask to be let in: those who said that they go on come first.
    pub(crate) fn doors(&self, found: &Found) -> Vec<Contact> {
        let live: BTreeSet<PeerId> = found.live().collect();
        let mut members = self.members();
        members.sort_by_key(|contact| !live.contains(&contact.peer));
        members
    }
}

impl Found {
    /// Those who have said what they hold.
    pub(crate) fn heard(&self) -> BTreeSet<PeerId> {
        self.answers.iter().filter(|(_, answer)| answer.is_ok()).map(|(peer, _)| *peer).collect()
    }

    /// Those who go on.
    pub(crate) fn live(&self) -> impl Iterator<Item = PeerId> + '_ {
        let is_live =
            |answer: &Result<crate::catch_up::Answer, String>| answer.as_ref().is_ok_and(|answer| answer.live);
        self.answers.iter().filter(move |(_, answer)| is_live(answer)).map(|(peer, _)| *peer)
    }
}

pub(crate) fn name(peer: PeerId) -> String {
    to_libp2p(peer).to_string()
}
