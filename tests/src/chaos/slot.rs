//! A place in a fleet, which one process after the other may have.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value;
use tempfile::TempDir;

use crate::Peer;

/// A place with its data directory, the process that has it now, and what that process last said of itself.
#[derive(Debug)]
pub struct Slot {
    /// Where its processes work.
    pub(super) dir: Arc<TempDir>,
    /// Where it listens, always the same.
    pub(super) listen: String,
    /// The process that has it.
    pub(super) peer: Option<Peer>,
    /// How many processes have had it before.
    pub(super) life: u32,
    /// Through whom it joined: a place, and its life.
    pub(super) through: Option<(usize, u32)>,
    /// Whether it has been sent SIGSTOP.
    pub(super) is_stopped: bool,
    /// What its process said.
    pub(super) said: Said,
    /// Where each of its processes tells who contributed which samples.
    pub(super) audits: Vec<PathBuf>,
}

/// What a process last said of itself.
#[derive(Debug, Default)]
pub struct Said {
    /// Its peer id.
    pub id: Option<String>,
    /// How to join through it.
    pub ticket: Option<String>,
    /// The generation of its view, and the ids of the members.
    pub view: Option<(u64, Vec<String>)>,
    /// How many views it has told of.
    pub views: u64,
    /// How the members of its view reduce, by the plan's name.
    pub plan: String,
    /// The last committed step that it told of.
    pub step: u64,
    /// The step from which it started or went on.
    pub started: Option<u64>,
    /// Whether it has taken a step of its own in its present membership: it holds the state.
    pub is_full: bool,
    /// Whether it stands still for want of a quorum.
    pub is_paused: bool,
    /// How often it has paused.
    pub pauses: u64,
    /// How often it found itself left out.
    pub evictions: u64,
    /// How often it has become a full member after a download.
    pub syncs: u64,
    /// Whether it installed a view without a quorum.
    pub has_forked: bool,
    /// Bytes of state that are here, and how many there are.
    pub synced_bytes: Option<(u64, u64)>,
    /// The most bytes of state that were here and then were not: a download that began anew.
    pub lost_bytes: u64,
    /// Its last words, if it ended well.
    pub finished: Option<Value>,
}

impl Said {
    /// Takes in an event.
    pub(super) fn take(&mut self, event: &Value) {
        let text = |field: &str| event[field].as_str().map(str::to_owned);
        let number = |field: &str| event[field].as_u64().unwrap_or_default();
        match event["event"].as_str().unwrap_or_default() {
            "started" => (self.id, self.started) = (text("peer"), Some(number("step"))),
            "listening" => self.ticket = text("ticket"),
            "view" => {
                let members = event["members"].as_array().into_iter().flatten();
                let members = members.filter_map(Value::as_str).map(str::to_owned).collect();
                self.view = Some((number("generation"), members));
                self.views += 1;
                self.has_forked |= event["forked"] == true;
                self.is_paused = false;
            }
            "progress" => {
                self.step = number("step");
                (self.is_full, self.is_paused) = (true, false);
            }
            "linked" => self.plan = text("plan").unwrap_or_default(),
            "paused" => {
                self.pauses += u64::from(!self.is_paused);
                self.is_paused = true;
            }
            "evicted" => {
                self.evictions += 1;
                (self.is_full, self.is_paused) = (false, false);
            }
            "syncing" => {
                let (had, _) = self.synced_bytes.unwrap_or_default();
                self.lost_bytes = self.lost_bytes.max(had.saturating_sub(number("bytes")));
                self.synced_bytes = Some((number("bytes"), number("of")));
            }
            "synced" => self.syncs += 1,
            "finished" => self.finished = Some(event.clone()),
            _ => {}
        }
    }
}

impl Slot {
    /// Whether a process has it and has not been stopped.
    pub fn is_awake(&self) -> bool {
        self.peer.is_some() && !self.is_stopped
    }

    /// What its process said.
    pub fn said(&self) -> &Said {
        &self.said
    }

    /// Its process's number.
    pub fn pid(&self) -> Option<u32> {
        self.peer.as_ref().map(Peer::pid)
    }
}
