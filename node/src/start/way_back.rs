//! Coming back to a run: what is on this machine's disk of it, whom that names, and what they say. What follows from it, the
//! engine's [`ReturnEngine`] decides.

use std::collections::BTreeSet;
use std::path::Path;

use starling_engine::return_engine::{
    Decision, DiskSummary, Input, Output, ReturnConfig, ReturnOptions, SavedState, WaitKind,
};
use starling_engine::{ReturnEngine, search};
use starling_run::{CheckpointStore, Manifest, RecoveryResult};
use starling_topology::message::MAX_ADDRESSES;
use starling_topology::{Contact, MarkStatus, PeerId, Root, RunId, Time};
use tokio::time::{Instant, sleep_until};

use crate::access::Credentials;
use crate::credentials::identity::to_libp2p;
use crate::error::NodeError;
use crate::member::guide::Guide;
use crate::observe::report::{Observer, Report, ReturnKind};
use crate::start::catch_up::{self, Search, SearchOutcome, catch_up};
use crate::start::node::blocking;
use crate::start::prepare::Start;
use crate::store::contacts_file::{Contacts, ContactsFile, Damaged, MAX_KNOWN};
use crate::store::mark_file;
use crate::store::record_file::{Loaded, RecordFile, SavedMembership};

/// Places where this machine may have been last that are looked at: those that it knows itself, and some that others tell of.
const MAX_PLACES: usize = 24;

/// What a machine has of a run besides checkpoints.
#[derive(Debug)]
pub(crate) struct Memory {
    me: PeerId,
    pub(crate) record: RecordFile,
    pub(crate) kept: Option<SavedMembership>,
    pub(crate) file: ContactsFile,
    pub(crate) contacts: Contacts,
    /// What it had saved to sign it.
    pub(crate) noted: MarkStatus,
    /// The step with which the run has ended early, if its own checkpoints say so.
    pub(crate) ended: Option<u64>,
    /// What is wrong with that.
    unmarked: Option<String>,
    damaged: Option<Damaged>,
    /// What is wrong with the record.
    vote: Option<String>,
}

/// How this machine comes back, and with what.
pub(crate) struct Decided {
    pub(crate) outcome: Decision,
    /// What others had to go on from.
    pub(crate) found: SearchOutcome,
    /// What its own checkpoints had, if it was looked at.
    pub(crate) loaded: Option<RecoveryResult>,
}

/// What it takes to ask others, and to tell of it.
pub(crate) struct SearchContext<'a> {
    pub(crate) manifest: &'a Manifest,
    pub(crate) credentials: &'a Credentials,
    pub(crate) store: &'a CheckpointStore,
    pub(crate) observer: &'a dyn Observer,
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
        let mark_file::Loaded { noted, damage } = record.marks.load();
        // Without a vote it has signed nothing that counts.
        let unmarked = damage.filter(|_| kept.is_some());
        Self { me, kept, record, file, contacts, noted, ended: None, unmarked, damaged, vote }
    }

    /// Nothing, about a run that is new here.
    pub(crate) fn none(data_dir: &Path, run: RunId, me: PeerId) -> Self {
        let (record, file) = (RecordFile::new(data_dir, run, me), ContactsFile::new(data_dir, run));
        let (contacts, noted) = (Contacts::default(), MarkStatus::Nothing);
        Self { me, kept: None, record, file, contacts, noted, ended: None, unmarked: None, damaged: None, vote: None }
    }

    /// Tells what can't be read.
    pub(crate) fn warn(&self, observer: &dyn Observer) {
        for message in self.damaged.iter().map(|Damaged(reason)| reason).chain(&self.vote).chain(&self.unmarked) {
            observer.report(&Report::Warning { message: message.clone() });
        }
    }

    /// Whether this machine takes part in the run for the first time, as far as it knows.
    pub(crate) fn is_new(&self) -> bool {
        let is_damaged = self.damaged.is_some() || self.vote.is_some();
        self.kept.is_none() && !is_damaged && self.contacts == Contacts::default()
    }

    /// Members needed to take steps, if that is known.
    pub(crate) fn min_members(&self) -> Option<usize> {
        let told = self.contacts.min_members as usize;
        let kept = self.kept.as_ref().map(|kept| kept.min_members);
        kept.or_else(|| (told > 0).then_some(told))
    }

    /// Takes in where a member is now, as the user says.
    pub(crate) fn learn(&mut self, contact: &Contact) {
        if contact.peer == self.me {
            return;
        }
        // A ticket may be older than what is known: who comes back by the same command still has the one by which it came first.
        let kept = self.kept.iter().flat_map(|kept| &kept.contacts).chain(self.contacts.members());
        let known = kept.filter(|known| known.peer == contact.peer).flat_map(|known| &known.addresses);
        let mut seen = BTreeSet::new();
        let (first, rest) = contact.addresses.split_at(contact.addresses.len().min(MAX_ADDRESSES / 2));
        let addresses = first.iter().chain(known).chain(rest).filter(|address| seen.insert(*address));
        let contact = Contact { peer: contact.peer, addresses: addresses.take(MAX_ADDRESSES).cloned().collect() };
        if let Some(kept) = &mut self.kept {
            kept.contacts.retain(|known| known.peer != contact.peer);
            kept.contacts.push(contact.clone());
        }
        self.contacts.name_member(contact);
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
        let mut seen = BTreeSet::new();
        known.chain(told).filter(|place| seen.insert(*place)).take(MAX_PLACES).cloned().collect()
    }

    /// Where this machine listened when it last took part.
    pub(crate) fn listened(&self, start: &Start) -> Vec<String> {
        if let Start::Recover { kept, .. } = start { kept.listened.clone() } else { self.contacts.listened.clone() }
    }

    /// `was_here` before its user named anybody.
    fn past(&self, was_here: bool) -> SavedState {
        let names = |contacts: &[Contact]| contacts.iter().map(|contact| contact.peer).collect();
        SavedState {
            me: self.me,
            was_here,
            seat: self.kept.as_ref().map(|kept| kept.record.clone()),
            noted: self.noted,
            has_lost_its_seat: self.kept.is_none() && self.vote.is_some(),
            has_lost_its_contacts: self.damaged.is_some(),
            members: names(&self.members()),
            keepers: names(self.contacts.keepers()),
            left: self.contacts.left.clone(),
        }
    }

    /// Finds out how this machine takes part, as [`ReturnEngine`] says, and tells it.
    ///
    /// # Errors
    /// Where only its user can know, too: it says what to pass.
    pub(crate) async fn come_back(
        &mut self,
        was_here: bool,
        choice: ReturnOptions,
        asking: SearchContext<'_>,
    ) -> Result<Decided, NodeError> {
        let SearchContext { manifest, store, observer, .. } = asking;
        let (max_stall, stride) = (catch_up::stall(manifest), manifest.checkpoint_every);
        let terms = ReturnConfig { last_step: manifest.steps, stride, max_stall };
        let mut machine = ReturnEngine::new(self.past(was_here), choice, terms, Time::ZERO);
        let (began, mut found, mut loaded) = (Instant::now(), SearchOutcome::default(), None);
        loop {
            let input = match machine.poll().expect("invariant: one output follows each input until it is done") {
                Output::Search { peers, terms } => {
                    let before = found.fetched;
                    found = self.ask(&peers, terms, &asking).await?;
                    let (answers, fetched) = (found.said(), found.fetched.is_some());
                    found.fetched = found.fetched.or(before);
                    Input::Searched { answers, fetched }
                }
                Output::Look { root } => {
                    let (holdings, recovered) = look(root, manifest, store).await?;
                    self.ended = holdings.ended;
                    loaded = Some(recovered);
                    Input::Holds(holdings)
                }
                Output::SetTimer(at) => {
                    sleep_until(began + (at - Time::ZERO)).await;
                    Input::Expired
                }
                Output::Done(Decision::Unknown) => return Err(NodeError::NobodyAnswers { members: self.names() }),
                Output::Done(Decision::Behind(ahead)) => return Err(self.behind(ahead, loaded.as_ref())),
                Output::Done(outcome) => {
                    if was_here {
                        self.tell(&outcome, machine.live().collect(), observer);
                    }
                    return Ok(Decided { outcome, found, loaded });
                }
            };
            machine.handle(Time::ZERO + began.elapsed(), input);
        }
    }

    /// Asks these who goes on and what they hold, and brings what is newer than its own checkpoints if nobody goes on.
    async fn ask(
        &self,
        peers: &[PeerId],
        terms: search::SearchConfig,
        asking: &SearchContext<'_>,
    ) -> Result<SearchOutcome, NodeError> {
        let SearchContext { manifest, credentials, store, observer } = *asking;
        let (members, keepers) = (self.members(), self.contacts.keepers());
        let contacts = catch_up::contacts_of(peers, &keepers.iter().chain(&members).collect::<Vec<_>>());
        if contacts.is_empty() {
            return Ok(SearchOutcome::default());
        }
        observer.report(&Report::Asking { peers: contacts.iter().map(|contact| name(contact.peer)).collect() });
        terms.root.into_iter().for_each(|root| _ = store.root_in(root));
        let dir = self.record.path().parent().unwrap_or_else(|| Path::new(""));
        let guide = Guide::open(dir, manifest.run_id(), manifest.founder);
        self.kept.iter().for_each(|kept| guide.note(&kept.record));
        let search = Search { manifest, credentials, contacts, store, guide: guide.clone(), terms };
        let mut found = catch_up(search).await?;
        blocking(move || {
            guide.keep();
            Ok(())
        })
        .await?;
        for (peer, answer) in &found.answers {
            let (live, stable_step) = answer.as_ref().map_or((false, None), |answer| (answer.live, answer.stable_step));
            let (peer, trouble) = (name(*peer), answer.as_ref().err().cloned());
            observer.report(&Report::Answered { peer, live, stable_step, trouble });
        }
        // That somebody who is gone does not answer was told already, and is no wonder.
        found.failures.retain(|trouble| trouble.is_loss);
        Ok(found)
    }

    fn behind(&self, ahead: Vec<PeerId>, loaded: Option<&RecoveryResult>) -> NodeError {
        let step = loaded.and_then(|loaded| loaded.found.as_ref()).map_or(0, |(_, state)| state.step);
        let origin = self.kept.as_ref().and_then(|kept| kept.record.origin.as_ref());
        let resumed = origin.map_or(step, |origin| origin.resume.step);
        NodeError::Behind { step, resumed, members: ahead.into_iter().map(name).collect() }
    }

    /// Where these can be reached.
    pub(crate) fn contacts_of(&self, peers: &[PeerId]) -> Vec<Contact> {
        let members = self.members();
        let contact = |peer: &PeerId| members.iter().find(|contact| contact.peer == *peer).cloned();
        peers.iter().filter_map(contact).collect()
    }

    /// The names of other members.
    pub(crate) fn names(&self) -> Vec<String> {
        self.members().iter().map(|contact| name(contact.peer)).collect()
    }

    /// Tells how this machine comes back, while these go on.
    fn tell(&self, outcome: &Decision, live: Vec<PeerId>, observer: &dyn Observer) {
        let names = |peers: &[PeerId]| -> Vec<String> { peers.iter().copied().map(name).collect() };
        let others = |kept: &SavedMembership| -> Vec<PeerId> {
            kept.record.view.members().iter().copied().filter(|peer| *peer != self.me).collect()
        };
        let (way, peers) = match (outcome, &self.kept) {
            (Decision::Join { .. } | Decision::Recover { .. }, _) if !live.is_empty() => {
                (ReturnKind::Join, names(&live))
            }
            (Decision::Recover { .. }, Some(kept)) => match others(kept) {
                others if others.is_empty() => (ReturnKind::Alone, Vec::new()),
                others => (ReturnKind::Seat, names(&others)),
            },
            (Decision::Join { awaited, .. }, _) if awaited.why == WaitKind::Lacking => {
                (ReturnKind::Serve, names(&awaited.peers))
            }
            (Decision::Join { awaited, .. }, _) if awaited.why == WaitKind::Stayed => {
                (ReturnKind::Wait, names(&awaited.peers))
            }
            (Decision::Join { .. }, _) => (ReturnKind::Ask, self.names()),
            (Decision::Fork, _) => (ReturnKind::Fork, self.names()),
            _ => return,
        };
        observer.report(&Report::Returning { way, peers });
    }
}

/// What can be loaded from this disk, and that.
async fn look(
    root: Option<Root>,
    manifest: &Manifest,
    store: &CheckpointStore,
) -> Result<(DiskSummary, RecoveryResult), NodeError> {
    let store = store.clone();
    // The initial state can be computed, that of another run can't.
    let (is_initial, manifest) = (manifest.from.is_none(), manifest.clone());
    blocking(move || {
        let recovered = store.recover(root.as_ref())?;
        let last = recovered.found.as_ref().filter(|(_, state)| state.is_last(&manifest));
        let loadable = recovered.found.as_ref().map(|(_, state)| state.step);
        let stable = match last {
            Some(_) => store.newest_stable(root.as_ref())?.map(|stable| stable.step),
            None => None,
        };
        let ended = last.map(|(_, state)| state.step);
        let can_begin = recovered.damaged.is_empty() && is_initial;
        Ok((DiskSummary { loadable, can_begin, stable, ended }, recovered))
    })
    .await
}

pub(crate) fn name(peer: PeerId) -> String {
    to_libp2p(peer).to_string()
}
