//! Who is in the run, as this member keeps it for later and tells it to others: its ticket, its contacts; and, while nobody
//! has let it in, whom it waits for.

use std::sync::Arc;
use std::time::Duration;

use starling_engine::return_engine::{LeaveRecord, WaitKind, WaitStatus};
use starling_topology::{Contact, PeerId, View};
use tokio::time::Instant;

use super::{EventLoop, LINGER, LookBack};
use crate::credentials::identity::to_libp2p;
use crate::credentials::ticket::Ticket;
use crate::member::guide::Guide;
use crate::member::shared_steps::CarrierInput;
use crate::observe::report::{Observer, Report, WaitReason};
use crate::store::contacts_file::{Contacts, ContactsFile};
use crate::store::record_file::RecordFile;

/// Whoever was said to go on is asked for so long before the user hears of it.
const PATIENCE: Duration = Duration::from_secs(10);
/// The time between two words on waiting doubles up to this one.
const MAX_PAUSE: Duration = Duration::from_secs(600);
/// For so many times the longest standstill a quarantine lasts at most.
const LONGEST_QUARANTINE: u32 = 64;

/// What this member keeps of the run for when its process is gone.
pub(crate) struct Books {
    pub(crate) contacts: Contacts,
    pub(crate) file: ContactsFile,
    pub(crate) record: RecordFile,
    pub(crate) guide: Arc<Guide>,
    /// What asks how the run began, if this member came later.
    pub(crate) looking_back: Option<LookBack>,
    /// How it finished before, if it was started again and goes on with nothing: in a view of its own, whose branch is nobody's.
    pub(crate) finished: Option<LeaveRecord>,
    /// Whether something new in `contacts` is not on its way to the disk.
    pub(crate) is_unwritten: bool,
}

/// What this member says to those outside, and whom it waits for while it is there itself.
pub(crate) struct JoinWait {
    ticket: Ticket,
    /// `None` once it has been let in, or if it needs nobody.
    waiting: Option<PendingJoin>,
    /// Whether it came as one that asks to be let in, and never was.
    is_outside: bool,
    /// Whether it was told that members have it wait, and it has not been let in since.
    is_told_quarantine: bool,
}

struct PendingJoin {
    awaited: WaitStatus,
    since: Instant,
    /// When that is told next.
    next: Duration,
}

impl JoinWait {
    pub(crate) fn new(ticket: Ticket, awaited: Option<WaitStatus>) -> Self {
        let is_outside = awaited.is_some();
        let next = |awaited: &WaitStatus| if awaited.why == WaitKind::Live { PATIENCE } else { Duration::ZERO };
        let waiting = awaited.map(|awaited| PendingJoin { next: next(&awaited), awaited, since: Instant::now() });
        Self { ticket, waiting, is_outside, is_told_quarantine: false }
    }

    /// Whether this member has ever been in a view of this life, or needed nobody to be.
    pub(super) fn took_part(&self) -> bool {
        !self.is_outside
    }

    /// It is in.
    pub(super) fn enter(&mut self) {
        (self.waiting, self.is_outside, self.is_told_quarantine) = (None, false, false);
    }

    /// A member lets this one in again only after so many milliseconds. What to tell of that: once until it is in.
    pub(super) fn note_quarantine(&mut self, by: PeerId, for_ms: u64, max_stall: Duration) -> Option<Report> {
        if std::mem::replace(&mut self.is_told_quarantine, true) {
            return None;
        }
        // None lasts longer, whatever it says.
        let seconds = Duration::from_millis(for_ms).min(max_stall * LONGEST_QUARANTINE).as_secs().max(1);
        let message = format!(
            "peer {} lets this machine in again in {seconds} s at the earliest, since it was lost or left again and again of late, or did what no correct \
             member does; it goes on asking by itself",
            to_libp2p(by)
        );
        Some(Report::Warning { message })
    }

    /// What to tell of the wait now.
    pub(super) fn wait(&mut self) -> Option<Report> {
        let waiting = self.waiting.as_mut()?;
        let waited = waiting.since.elapsed();
        if waited < waiting.next {
            return None;
        }
        waiting.next = (waited * 2).clamp(PATIENCE, waited + MAX_PAUSE);
        let WaitStatus { peers, why } = &waiting.awaited;
        let why = match why {
            WaitKind::Live | WaitKind::Known => WaitReason::Admission,
            WaitKind::Stayed => WaitReason::Return,
            WaitKind::Lacking => WaitReason::Download,
        };
        let peers = peers.iter().map(|peer| to_libp2p(*peer).to_string()).collect();
        Some(Report::Awaiting { peers, why, for_s: waited.as_secs() })
    }
}

impl EventLoop {
    /// Has joiners that ask learn where the members and the keepers are, and keeps it for when this process is gone.
    pub(super) fn tell_members(&mut self) {
        let members = self.member.membership().contacts().filter(|contact| self.members.contains(&contact.peer));
        let members: Vec<Contact> = members.cloned().collect();
        let revoked = self.network.access.revoked();
        let is_known = |contact: &&Contact| revoked.binary_search(&contact.peer).is_err();
        let keepers = self.books.contacts.keepers();
        self.chunk_providers.know(members.iter().filter(is_known).cloned(), keepers.iter().filter(is_known).cloned());
        self.network.expect(&self.members);
        let access = &self.network.access;
        let may_be_named = |contact: &Contact| contact.peer != self.me && !access.is_revoked(&contact.peer);
        let others: Vec<Contact> = members.into_iter().filter(may_be_named).collect();
        self.shared_steps.carry(CarrierInput::Knows(others.clone()));
        let ticket =
            Ticket::new([self.network.contact()].into_iter().chain(others), self.join_wait.ticket.run, access.secret())
                .with_invitation(access.open_invitation());
        if ticket != self.join_wait.ticket {
            self.observer.report(&Report::Invitation { ticket: ticket.to_string() });
            self.join_wait.ticket = ticket;
        }
    }

    /// Notes who is in the view, for when this process is gone.
    pub(super) fn note_members(&mut self, view: &View) {
        let members =
            self.member.membership().contacts().filter(|contact| view.contains(contact.peer)).cloned().collect();
        let listened = self.network.swarm.listeners().map(ToString::to_string).collect();
        if self.books.contacts.enter(self.me, view, members, listened) {
            self.note_contacts();
        }
    }

    /// Writes down whom it knows, or tries so again soon if the disk is busy. Who was never in a view keeps no list: that would say
    /// that it was.
    pub(super) fn note_contacts(&mut self) {
        let was_in = self.books.contacts.view.is_some();
        self.books.is_unwritten = was_in && !self.writer_handle.note(self.books.contacts.clone());
    }

    /// This member has left, and others stayed; or nobody did, as the run is complete.
    pub(super) fn depart(&self, stayed: Vec<PeerId>) -> Option<Departure> {
        let Books { contacts, file, record, finished, .. } = &self.books;
        let left = LeaveRecord { stayed, root: self.member.membership().root()?, forked: self.is_forked };
        let mut contacts = contacts.clone();
        contacts.leave(finished.clone().filter(|_| left.stayed.is_empty()).unwrap_or(left));
        Some(Departure { contacts, file: file.clone(), record: record.clone() })
    }
}

/// What is to be written down of a member that has left or finished, once its state is on disk: what counts for it when it comes
/// back, and whom it waits for. Only then its place is given up.
pub(crate) struct Departure {
    contacts: Contacts,
    file: ContactsFile,
    record: RecordFile,
}

impl Departure {
    /// Writes it down. Who can't, as its disk hangs, has its seat still, comes back as one that was killed, and finds out: also that the run
    /// is complete.
    pub(crate) async fn note(self, observer: &dyn Observer) {
        let Self { contacts, file, record } = self;
        let stored = tokio::task::spawn_blocking(move || file.store(&contacts).map(|()| record.remove()));
        let message = match tokio::time::timeout(LINGER, stored).await {
            Ok(Ok(Ok(()))) | Err(_) => return,
            Ok(Ok(Err(error))) => error.to_string(),
            Ok(Err(error)) => error.to_string(),
        };
        observer
            .report(&Report::Warning { message: format!("how this machine left the run can't be kept: {message}") });
    }
}
