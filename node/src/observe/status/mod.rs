//! How the run on this machine is doing, in a file: what `starling status` and `starling invite` read.
//!
//! The file is `status.json` in the data directory. It holds the ticket, so only its owner may read it.

mod file;
mod member;
mod phase_progress;
mod process;

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use starling_topology::Quorum;

pub use file::StatusFile;
pub use member::Member;
pub use phase_progress::{PhaseProgress, UnitKind};
pub use process::Process;

use crate::error::NodeError;
use crate::observe::figures;
use crate::observe::report::{
    LeafPaceReport, Limit, LinkCost, LinkSummary, MeasuredLink, MemberPaceReport, Outcome, Report,
};
use crate::store::private_file;

const FILE: &str = "status.json";
/// Names that are kept.
const MAX_NAMES: usize = 4096;

/// Peers that misbehaved that are kept.
const MAX_MISBEHAVED: usize = 16;

/// What the file says.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// The process that wrote it.
    #[serde(flatten)]
    pub process: Process,
    /// When the node began, in UTC.
    pub began: String,
    /// Its peer id.
    pub peer: String,
    /// What peers are called, by peer id: those that told a name.
    pub names: BTreeMap<String, String>,
    /// The run's id, hex.
    pub run: String,
    /// What another machine passes to `starling join`; empty until others can reach this one.
    pub ticket: String,
    /// Where others can reach it.
    pub addresses: Vec<String>,
    /// The view's version; 0 before the first view.
    pub generation: u64,
    /// The view's members, in ring order.
    pub members: Vec<String>,
    /// Those of them that have no vote yet: they don't decide the next view.
    #[serde(default)]
    pub newcomers: Vec<String>,
    /// Our place among them.
    pub rank: u32,
    /// Which of them decide the next view.
    pub quorum: Quorum,
    /// Why the view came.
    pub change: String,
    /// How segments travel; `None` before the view's links are there.
    pub links: Option<LinkSummary>,
    /// By member of the view, what this one has measured of the link to it.
    pub measured: BTreeMap<String, MeasuredLink>,
    /// By sender, the link that is busiest of those over which the plan has it send.
    pub busiest: BTreeMap<String, LinkCost>,
    /// What each member did in the last second or so of steps.
    pub paces: Vec<MemberPaceReport>,
    /// The member through which this machine takes part; `None` if it is one itself, or is carried by none.
    pub carrier: Option<String>,
    /// What leaves have brought to this member; of a leaf, what it has brought itself.
    pub leaves: Vec<LeafPaceReport>,
    /// What makes the steps as slow as they are; `None` if nothing stands out.
    pub limit: Option<Limit>,
    /// The last committed step.
    pub step: u64,
    /// The run's last step.
    pub steps: u64,
    /// How many steps of the run were skipped.
    pub skipped: u64,
    /// Which was the last one, as far as this peer saw it, and why.
    pub skip: String,
    /// In how many steps another member changed what others were told of this one.
    pub rewritten: u64,
    /// By peer, what it did last that no correct peer does: of the first of them.
    pub misbehaved: BTreeMap<String, String>,
    /// The last checkpoint here that a quorum has signed; `None` before the first.
    pub stable_step: Option<u64>,
    /// Mean loss over the last global batch; `None` before the first step.
    pub loss: Option<f32>,
    /// Samples of the global batch per second.
    pub samples_per_s: f64,
    /// Share of the time spent waiting for the others, 0 to 1.
    pub waiting_share: f64,
    /// Share of the time in which nothing was done here but to load samples, 0 to 1.
    #[serde(default)]
    pub data_wait_share: f64,
    /// Seconds until the last step, if all goes on as it does; `None` while no steps run.
    pub eta_s: Option<f64>,
    /// What the task measured on held-out samples last, by name, no number where it came to none. Of a classifier: `accuracy`, the share classified right.
    #[serde(default, deserialize_with = "figures::read_all")]
    pub measures: BTreeMap<String, f64>,
    /// What the node is at.
    pub phase: Phase,
    /// How far that has come; `None` where nothing is counted, as while steps run.
    pub phase_progress: Option<PhaseProgress>,
    /// Why it failed.
    pub error: Option<String>,
    /// When this was written, milliseconds since 1970.
    pub updated_unix_ms: u64,
}

/// What a node is at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// The data set is being downloaded.
    Downloading,
    /// Steps wait for members or for a place in the ring.
    #[default]
    Waiting,
    /// The state is being downloaded; the others' steps run.
    Syncing,
    /// Steps run.
    Stepping,
    /// The last model is being evaluated on held-out samples; no step follows.
    Evaluating,
    /// Too few members answer.
    Paused,
    /// It stores checkpoints and takes part in nothing.
    Keeping,
    /// All members committed the last step.
    Finished,
    /// It left in order.
    Left,
    /// It ended with an error.
    Failed,
}

impl std::fmt::Display for Phase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Downloading => "downloading",
            Self::Waiting => "waiting",
            Self::Syncing => "syncing",
            Self::Stepping => "stepping",
            Self::Evaluating => "evaluating",
            Self::Paused => "paused",
            Self::Keeping => "keeping",
            Self::Finished => "finished",
            Self::Left => "left",
            Self::Failed => "failed",
        })
    }
}

impl Phase {
    /// Whether a node ends in it.
    pub fn is_last(self) -> bool {
        match self {
            Self::Downloading
            | Self::Waiting
            | Self::Syncing
            | Self::Stepping
            | Self::Evaluating
            | Self::Paused
            | Self::Keeping => false,
            Self::Finished | Self::Left | Self::Failed => true,
        }
    }
}

impl Status {
    /// Takes in a report. True if it is worth writing down at once.
    pub fn update(&mut self, report: &Report) -> bool {
        match report {
            Report::Started { peer, run, steps, step, quorum, .. } => {
                self.quorum = *quorum;
                self.peer.clone_from(peer);
                self.run.clone_from(run);
                (self.steps, self.step) = (*steps, *step);
                self.enter(Phase::Waiting, None);
                true
            }
            Report::Listening { addresses, ticket } => {
                self.addresses.clone_from(addresses);
                self.ticket.clone_from(ticket);
                true
            }
            Report::Invitation { ticket } => {
                self.ticket.clone_from(ticket);
                true
            }
            Report::View { generation, rank, members, newcomers, step, reason, .. } => {
                (self.generation, self.rank, self.step) = (*generation, *rank, *step);
                self.members.clone_from(members);
                self.newcomers.clone_from(newcomers);
                self.change.clone_from(reason);
                self.measured.retain(|peer, _| members.contains(peer));
                self.busiest.clear();
                self.paces.clear();
                // This view's links come with a report of their own.
                (self.links, self.phase_progress) = (None, None);
                true
            }
            Report::Linked(links) => {
                self.links = Some(links.clone());
                true
            }
            Report::Measured { links } => {
                self.measured.extend(links.iter().map(|(peer, link)| (peer.clone(), *link)));
                false
            }
            Report::Named { peer, name } => {
                if self.names.len() < MAX_NAMES {
                    self.names.insert(peer.clone(), name.clone());
                }
                false
            }
            Report::Costs { links, .. } => {
                let cost = |link: &LinkCost| link.agreed.map_or(0.0, |agreed| link.bytes as f64 / agreed.mbit);
                for link in links {
                    let busiest = self.busiest.entry(link.from.clone()).or_insert_with(|| link.clone());
                    if cost(link) > cost(busiest) {
                        *busiest = link.clone();
                    }
                }
                false
            }
            Report::Members { members, .. } => {
                self.paces.clone_from(members);
                false
            }
            Report::Attached { leaf, carrier } if *leaf == self.peer => {
                self.carrier = Some(carrier.clone());
                true
            }
            Report::Detached { leaf, .. } if *leaf == self.peer => {
                self.carrier = None;
                self.enter(Phase::Waiting, None);
                true
            }
            Report::Attached { .. } | Report::Detached { .. } => true,
            Report::Leaves { leaves } => {
                self.leaves.clone_from(leaves);
                false
            }
            Report::Limit { limit } => {
                self.limit.clone_from(limit);
                true
            }
            Report::Skipped { step, reason, total, .. } => {
                self.skipped = *total;
                self.skip = format!("step {step}: {reason}");
                true
            }
            Report::Rewritten { total, .. } => {
                self.rewritten = *total;
                true
            }
            Report::Progress {
                step,
                steps,
                loss,
                samples_per_s,
                waiting_share,
                data_wait_share,
                eta_s,
                skipped,
                ..
            } => {
                (self.skipped, self.data_wait_share) = (*skipped, *data_wait_share);
                let is_first = self.phase != Phase::Stepping;
                (self.waiting_share, self.eta_s) = (*waiting_share, Some(*eta_s));
                (self.step, self.steps, self.samples_per_s) = (*step, *steps, *samples_per_s);
                (self.loss, self.phase, self.phase_progress) = (Some(*loss), Phase::Stepping, None);
                is_first
            }
            Report::Misbehaved { peer, what } => {
                if self.misbehaved.len() < MAX_MISBEHAVED || self.misbehaved.contains_key(peer) {
                    self.misbehaved.insert(peer.clone(), what.clone());
                }
                true
            }
            Report::Stable { step, .. } => {
                self.stable_step = Some(*step);
                false
            }
            Report::Keeping { peer, run, steps, stable_step, .. } => {
                self.peer.clone_from(peer);
                self.run.clone_from(run);
                (self.steps, self.step) = (*steps, stable_step.unwrap_or(0));
                (self.stable_step, self.phase, self.phase_progress) = (*stable_step, Phase::Keeping, None);
                true
            }
            Report::Saved { step, .. } if self.phase == Phase::Keeping => {
                self.step = *step;
                false
            }
            Report::Evaluated { measures, .. } => {
                self.measures.clone_from(measures);
                false
            }
            Report::Finished(summary) => {
                self.phase = match summary.outcome {
                    Outcome::Complete => Phase::Finished,
                    Outcome::Left => Phase::Left,
                };
                (self.step, self.loss) = (summary.steps, summary.loss.or(self.loss));
                // A keeper, and who was stopped before the start, has no figures.
                if summary.stepping_s > 0.0 {
                    (self.samples_per_s, self.waiting_share) = (summary.samples_per_s, summary.waiting_share);
                    self.data_wait_share = summary.data_wait_share;
                    self.measures.clone_from(&summary.measures);
                }
                (self.eta_s, self.limit, self.phase_progress) = (None, None, None);
                true
            }
            Report::Stopped => self.enter(Phase::Left, None),
            Report::Downloading { bytes, of } => {
                self.enter(Phase::Downloading, Some(PhaseProgress::bytes(*bytes, *of)))
            }
            Report::Paused { present, needed, .. } => {
                self.enter(Phase::Paused, Some(PhaseProgress::members(*present, *needed)))
            }
            Report::Syncing { bytes, of, .. } => self.enter(Phase::Syncing, Some(PhaseProgress::bytes(*bytes, *of))),
            Report::Evaluating { samples, of, .. } => {
                self.enter(Phase::Evaluating, Some(PhaseProgress::samples(*samples, *of)))
            }
            Report::Waiting { present, needed } => {
                self.enter(Phase::Waiting, Some(PhaseProgress::members(*present, *needed)))
            }
            Report::Evicted { .. } | Report::Synced { .. } => self.enter(Phase::Waiting, None),
            Report::WarmingUp { .. }
            | Report::Arriving { .. }
            | Report::Becomes { .. }
            | Report::Data(_)
            | Report::Suspected { .. }
            | Report::SetBack { .. }
            | Report::GaveUp { .. }
            | Report::Dropped { .. }
            | Report::Joining { .. }
            | Report::JoinerLost { .. }
            | Report::Turned { .. }
            | Report::Saved { .. }
            | Report::Fetching { .. }
            | Report::Fetched { .. }
            | Report::Connecting { .. }
            | Report::Asking { .. }
            | Report::Answered { .. }
            | Report::Returning { .. }
            | Report::BegunFrom { .. }
            | Report::Founder { .. }
            | Report::Awaiting { .. }
            | Report::Unevaluated { .. }
            | Report::Judged { .. }
            | Report::Rescaled { .. }
            | Report::Warning { .. } => false,
        }
    }

    /// True if the phase is news.
    fn enter(&mut self, phase: Phase, progress: Option<PhaseProgress>) -> bool {
        (self.eta_s, self.phase_progress) = (None, progress);
        std::mem::replace(&mut self.phase, phase) != phase
    }

    /// What the file in `data_dir` says; `None` if there is none.
    ///
    /// # Errors
    /// [`NodeError::File`] if it can't be read or holds something else.
    pub fn read(data_dir: &Path) -> Result<Option<Self>, NodeError> {
        let path = data_dir.join(FILE);
        let Some(bytes) = private_file::read(&path)? else { return Ok(None) };
        let status = serde_json::from_slice(&bytes).map_err(|error| NodeError::file("read", &path, error.into()))?;
        Ok(Some(status))
    }

    /// Writes the file in `data_dir`, whole or not at all, with mode 0600.
    ///
    /// # Errors
    /// [`NodeError::File`].
    pub fn write(&self, data_dir: &Path) -> Result<(), NodeError> {
        let bytes = serde_json::to_vec_pretty(self).expect("invariant: a status is plain data");
        private_file::write(&data_dir.join(FILE), &bytes)
    }

    /// Whether the node that wrote this still runs; `None` if this system does not tell.
    pub fn is_running(&self) -> Option<bool> {
        if self.phase.is_last() { Some(false) } else { self.process.is_alive() }
    }
}

#[cfg(test)]
mod tests;
