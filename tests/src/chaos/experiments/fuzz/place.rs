//! A member's place in a round, which one process after the other may have.

use std::time::Instant;

use anyhow::Result;

use super::disk::Disk;
use crate::Peer;
use crate::networks::ports::free_port;

/// Where a process is, or was and may be again.
#[derive(Debug)]
pub(super) struct Place {
    /// Before its disk, which it keeps busy.
    pub(super) peer: Option<Peer>,
    pub(super) disk: Disk,
    pub(super) listen: String,
    pub(super) life: u32,
    /// The ticket that its first process joined by; none for the founder.
    pub(super) through: Option<String>,
    /// The last ticket that one of its processes printed.
    pub(super) ticket: Option<String>,
    /// Whether what is on its disk has taken part in the run.
    pub(super) was_member: bool,
    /// When to let its process go on.
    pub(super) goes_on_at: Option<Instant>,
    /// When to mend its disk.
    pub(super) mended_at: Option<Instant>,
    pub(super) now: Circumstances,
    pub(super) tries: u32,
    pub(super) retry_at: Option<Instant>,
}

impl Place {
    /// One that nobody has had yet.
    pub(super) fn new(disk: Disk, through: Option<String>) -> Result<Self> {
        Ok(Self {
            peer: None,
            disk,
            listen: format!("/ip4/127.0.0.1/tcp/{}", free_port()?),
            life: 0,
            through,
            ticket: None,
            was_member: false,
            goes_on_at: None,
            mended_at: None,
            now: Circumstances::default(),
            tries: 0,
            retry_at: None,
        })
    }

    /// Kills its process; whoever has the place is still to be buried.
    pub(super) fn send_kill(&mut self) {
        if let Some(peer) = &self.peer {
            peer.signal("KILL");
            self.now.killed = true;
            // A process that waits for its disk dies when the disk answers.
            self.disk.thaw();
        }
    }

    /// Tells its process to leave, once: a second signal would end it at once.
    pub(super) fn tell_to_leave(&mut self) {
        if let (Some(peer), false) = (&self.peer, self.now.leaves) {
            peer.signal("INT");
            self.now.leaves = true;
        }
    }

    /// Stops its process until then.
    pub(super) fn stop(&mut self, until: Instant) {
        if let Some(peer) = &self.peer {
            peer.signal("STOP");
            self.goes_on_at = Some(until);
        }
    }

    /// Lets its process go on, if it was stopped.
    pub(super) fn go_on(&mut self) {
        if let (Some(_), Some(peer)) = (self.goes_on_at.take(), &self.peer) {
            peer.signal("CONT");
        }
    }

    /// Keeps a copy of its disk, while its process stands still, if there is anything to come back with.
    pub(super) fn copy(&self) -> Result<()> {
        let (Some(peer), true) = (&self.peer, self.was_member) else { return Ok(()) };
        peer.signal("STOP");
        let copied = self.disk.copy();
        if self.goes_on_at.is_none() {
            peer.signal("CONT");
        }
        copied
    }

    /// Makes its disk as good as it was, if it was full, frozen or read-only.
    pub(super) fn mend(&mut self) -> Result<()> {
        if self.mended_at.take().is_some() { self.disk.mend() } else { Ok(()) }
    }
}

/// What may excuse the end of a process.
#[derive(Debug, Clone, Copy, Default)]
pub struct Circumstances {
    /// It was told to leave.
    pub leaves: bool,
    /// It has had a view.
    pub was_member: bool,
    /// Its disk was full, frozen or read-only meanwhile.
    pub bad_disk: bool,
    /// A file of its disk was damaged before.
    pub damaged: bool,
    /// It was sent SIGKILL.
    pub killed: bool,
}

impl Circumstances {
    /// Whether the end of a process is one that they explain, by its last words.
    pub fn explain(self, error: &str) -> bool {
        let says = |words: &[&str]| words.iter().any(|word| error.contains(word));
        // Nobody was there to let it in.
        let is_alone = ["can't reach", "admitted", "no connection to", "refused: ", "none of them answers"];
        let cant_store = [
            "can't store",
            "can't write",
            "can't read",
            "can't lock",
            "No space left",
            "Read-only",
            "is not saved",
            "has not answered",
        ];
        (!self.was_member && says(&is_alone))
            || (self.leaves && says(&["without a decision of the others"]))
            || (self.bad_disk && says(&cant_store))
            || (self.damaged && error.starts_with("error: "))
    }
}
