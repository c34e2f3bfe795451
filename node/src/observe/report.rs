//! What a running node tells whoever watches it: a terminal, a program reading `--json`, the status file.

mod json;
mod leaf;
mod limit;
mod observer_set;
mod summary;
mod way_back;

use std::collections::BTreeMap;
use std::fmt;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use starling_links::Transport;
use starling_run::{DataSummary, HeldOutReport, JudgedReport, UnevaluatedReport};
use starling_topology::Quorum;
use starling_topology::plan::Link;

use crate::credentials::identity::to_libp2p;
use crate::observe::figures;

pub use json::{JsonObserver, line as json_line, timed};
pub use leaf::LeafPaceReport;
pub use limit::{Limit, LinkCost, MemberPaceReport};
pub use observer_set::ObserverSet;
pub use summary::{ACCURACY, Outcome, Summary};
pub use way_back::{ReturnKind, WaitReason};

/// How many members are named whose parts of an evaluation are missing.
const MAX_MISSING: usize = 16;

/// The links over which segments travel in a view.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkSummary {
    /// How reductions are scheduled: `ring`, `tree`, `mesh`, `hierarchical` and its sites, or `star` and its hubs, by rank.
    pub plan: String,
    /// Why they are scheduled so.
    #[serde(default)]
    pub reason: String,
    /// By member, how segments come from it.
    pub from: BTreeMap<String, Transport>,
    /// By member, how segments go to it.
    pub to: BTreeMap<String, Transport>,
}

impl LinkSummary {
    /// Whether somebody on the way could read what travels over one of them.
    pub fn is_open(&self) -> bool {
        self.transports().any(|transport| transport == Transport::Plaintext)
    }

    fn transports(&self) -> impl Iterator<Item = Transport> + '_ {
        self.from.values().chain(self.to.values()).copied()
    }
}

impl fmt::Display for LinkSummary {
    /// As in `ring over 2 links, direct` or `mesh over 6 links, 4 direct and 2 universal`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut counts = BTreeMap::<String, usize>::new();
        self.transports().for_each(|transport| *counts.entry(transport.to_string()).or_default() += 1);
        let kinds: Vec<String> = match counts.len() {
            1 => counts.into_keys().collect(),
            _ => counts.into_iter().map(|(kind, count)| format!("{count} {kind}")).collect(),
        };
        write!(f, "{} over {} links, {}", self.plan, self.transports().count(), kinds.join(" and "))
    }
}

/// What this member has measured of its link to another.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct MeasuredLink {
    /// There and back, in milliseconds.
    pub rtt_ms: f64,
    /// What gets there, in millions of bits per second.
    pub mbit: f64,
}

impl From<Link> for MeasuredLink {
    fn from(link: Link) -> Self {
        Self {
            rtt_ms: f64::from(link.delay_us) * 2.0 / 1e3,
            mbit: (link.bytes_per_second as f64 * 8.0 / 1e4).round() / 100.0,
        }
    }
}

/// What those who answer lack, and others may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MissingState {
    /// The run's state: none of them holds any.
    State,
    /// The state after this step: they had saved it and have lost it.
    Step(u64),
    /// Nobody knows: the note of what they had saved is lost too.
    Unknown,
}

/// One thing worth telling. As JSON, one object with its kind under `event`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Report {
    /// The node is set up; the network comes next.
    Started {
        /// Its libp2p peer id.
        peer: String,
        /// The run's id, hex.
        run: String,
        /// The manifest's model, as the user would write it.
        model: String,
        /// Trainable parameters.
        parameters: usize,
        /// Training samples.
        samples: u64,
        /// What computes.
        device: String,
        /// The run's last step.
        steps: u64,
        /// Samples per step.
        #[serde(default)]
        batch_size: u32,
        /// The last committed step: 0, or a checkpoint's.
        step: u64,
        /// Whether only holders of the ticket's secret are admitted.
        private: bool,
        /// Which members of a view decide.
        #[serde(default)]
        quorum: Quorum,
    },
    /// The device is taking its time over what it computes for the first time; only then others see this node.
    WarmingUp {
        /// What computes.
        device: String,
    },
    /// A peer told its name, or this one has one: 1 to 32 printable characters, for people alone.
    Named {
        /// Its peer id.
        peer: String,
        /// Its name.
        name: String,
    },
    /// The data set is being downloaded from members. At most a few per second; the last one has all bytes.
    Downloading {
        /// Bytes that are here.
        bytes: u64,
        /// Bytes that it has.
        of: u64,
    },
    /// This machine trains with a part of the data set; the rest comes from members meanwhile. Told when it begins so, and with each file; the
    /// last one has all.
    Arriving {
        /// Files that are here.
        files: usize,
        /// Files that it has.
        of: usize,
        /// Bytes that came from members since this process began.
        fetched_bytes: u64,
    },
    /// What was understood of the data set.
    Data(DataSummary),
    /// Peers are asked what the run is, before this one joins it.
    Connecting {
        /// Their peer ids.
        peers: Vec<String>,
    },
    /// Before this machine comes back to a run, those that it knows are asked whether they still train it, and what they
    /// hold.
    Asking {
        /// Their peer ids.
        peers: Vec<String>,
    },
    /// One of those who were asked.
    Answered {
        /// Its peer id.
        peer: String,
        /// Whether it is in a view, whose steps go on.
        live: bool,
        /// The newest checkpoint there that a quorum has signed; `None` if it has none.
        stable_step: Option<u64>,
        /// Why it did not answer; `None` if it did.
        trouble: Option<String>,
    },
    /// A new run begins with the state of another one.
    BegunFrom {
        /// The other run's id, hex.
        run: String,
        /// The state is the one after this step.
        step: u64,
    },
    /// How this machine comes back to a run that it took part in.
    Returning {
        /// How.
        way: ReturnKind,
        /// The peers that this is about, by their ids.
        peers: Vec<String>,
    },
    /// This peer is in no view, and waits for these. Told again while that lasts.
    Awaiting {
        /// Their peer ids.
        peers: Vec<String>,
        /// What for.
        why: WaitReason,
        /// For how long it has waited, in seconds.
        for_s: u64,
    },
    /// This machine has founded the run, and has the key that invites and revokes.
    Founder {
        /// Where it lies.
        key: String,
    },
    /// With which ticket others can join now: it names other members too.
    Invitation {
        /// With which another machine joins. Holds the run's secret.
        ticket: String,
    },
    /// Others can reach the node.
    Listening {
        /// Multiaddrs, each ending in `/p2p/<peer id>`.
        addresses: Vec<String>,
        /// With which another machine joins. Holds the run's secret, and is left out where that is not to be told.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        ticket: String,
    },
    /// Steps wait for more members.
    Waiting {
        /// Members and joiners so far.
        present: usize,
        /// How many it takes.
        needed: usize,
    },
    /// A peer asked to join.
    Joining {
        /// Its peer id.
        peer: String,
    },
    /// A joiner went away before it was a member.
    JoinerLost {
        /// Its peer id.
        peer: String,
    },
    /// A peer was turned away.
    Turned {
        /// Its peer id.
        peer: String,
        /// Why.
        reason: String,
    },
    /// A view was installed.
    View {
        /// Its version.
        generation: u64,
        /// Its id, hex.
        view: String,
        /// Our place in the ring.
        rank: u32,
        /// The members' peer ids, in ring order.
        members: Vec<String>,
        /// Those of them that have no vote yet.
        newcomers: Vec<String>,
        /// The last committed step.
        step: u64,
        /// Why it came; empty for a founder's first.
        reason: String,
        /// How many members of the view before it agreed to it.
        promised: usize,
        /// How many members that view had.
        of: usize,
        /// Milliseconds from the first sign that it would be needed to its installation, as this peer saw it.
        took_ms: u64,
        /// Whether it, or a view before it, was installed without a quorum.
        forked: bool,
    },
    /// A member may be lost.
    Suspected {
        /// Its peer id.
        peer: String,
        /// Why.
        evidence: String,
        /// Who saw it; `None` if this peer did.
        seen_by: Option<String>,
        /// The last committed step.
        #[serde(default)]
        step: u64,
    },
    /// Too few members answer, or they have lost what others may hold: steps stand still until more do.
    Paused {
        /// How many answer.
        present: usize,
        /// How many it takes.
        needed: usize,
        /// What they lack, if they would be enough: it is waited for whoever may hold it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        missed: Option<MissingState>,
    },
    /// The other members go on without this peer, which joins again by itself.
    Evicted {
        /// Who told; this peer itself if it could not catch up.
        by: String,
    },
    /// Another member has shown what this one signed, and what its vote record does not know: the data directory is an older copy,
    /// or another process uses this machine's key.
    SetBack {
        /// Who has shown it.
        by: String,
    },
    /// The state is being downloaded. At most a few per second.
    Syncing {
        /// The state after this step.
        step: u64,
        /// Bytes that are here.
        bytes: u64,
        /// Bytes that it has.
        of: u64,
    },
    /// The state is here and up to date: this peer is a full member.
    Synced {
        /// The last committed step.
        step: u64,
    },
    /// All links of the current view are there.
    Linked(LinkSummary),
    /// Links to other members were measured, or are within this machine.
    Measured {
        /// By member.
        links: BTreeMap<String, MeasuredLink>,
    },
    /// The links that the view's plan sends over, and what they cost. With each view of 2 to 32 members.
    Costs {
        /// By sender and receiver.
        links: Vec<LinkCost>,
        /// How values are written on the wire.
        codec: String,
    },
    /// What each member of the view did. About once a second while steps run.
    Members {
        /// The time in which steps ran, in seconds.
        seconds: f64,
        /// How many steps ran in it.
        steps: u64,
        /// By peer id.
        members: Vec<MemberPaceReport>,
    },
    /// A leaf takes part through a member from now on; this peer is one of the two.
    Attached {
        /// The leaf's peer id.
        leaf: String,
        /// The member's.
        carrier: String,
    },
    /// It does no more.
    Detached {
        /// The leaf's peer id.
        leaf: String,
        /// The member's.
        carrier: String,
        /// Why.
        reason: String,
    },
    /// This machine goes on as something else than before.
    Becomes {
        /// `member` or `leaf`.
        role: String,
        /// Why.
        why: String,
    },
    /// What this member's leaves have brought, or what this leaf has. About once a second while they bring something.
    Leaves {
        /// By peer id.
        leaves: Vec<LeafPaceReport>,
    },
    /// What makes the steps as slow as they are has become clear, or is no longer so.
    Limit {
        /// What it is; `None` if nothing stands out.
        limit: Option<Limit>,
    },
    /// Steps were committed. At most a few per second, and the first of each view.
    Progress {
        /// The last committed step.
        step: u64,
        /// The version of the view that it was committed in.
        generation: u64,
        /// The run's last step.
        steps: u64,
        /// Passes over the data that have begun.
        epoch: u64,
        /// Mean loss over the last step's global batch.
        loss: f32,
        /// Samples of the global batch per second, over the last ten seconds in which steps ran.
        samples_per_s: f64,
        /// Share of those seconds spent waiting for the others, 0 to 1.
        waiting_share: f64,
        /// Share of those seconds in which nothing was done here but to load samples, 0 to 1.
        #[serde(default)]
        data_wait_share: f64,
        /// How many members took the step.
        #[serde(default)]
        members: usize,
        /// Seconds until the last step, if all goes on as in those ten seconds.
        #[serde(default)]
        eta_s: f64,
        /// How many steps of the run were skipped so far.
        #[serde(default)]
        skipped: u64,
    },
    /// All members dropped the update of a step, whose samples count as done: a number of the next state would not have been
    /// finite.
    Skipped {
        /// The step.
        step: u64,
        /// Which number.
        reason: String,
        /// How many steps in a row that makes. After the eighth the run stops.
        in_row: u32,
        /// How many steps of the run were skipped so far.
        total: u64,
    },
    /// A member came to numbers that no contribution may have: it brought zeros, and its samples come again, elsewhere. At
    /// most once a second.
    GaveUp {
        /// In this step.
        step: u64,
        /// Its peer id.
        peer: String,
        /// How many samples it was to compute.
        samples: u32,
    },
    /// In a step, others were told of this member what it had not said: one of the members between changed it. At most once a
    /// second.
    Rewritten {
        /// The step.
        step: u64,
        /// What this member said of itself.
        said: String,
        /// What others were told.
        told: String,
        /// In how many steps that was so far.
        total: u64,
    },
    /// Samples that were given up twice are left out for the rest of the epoch. At most once a second.
    Dropped {
        /// After this step.
        step: u64,
        /// Of this pass over the data, counted from 0.
        epoch: u64,
        /// How many samples.
        count: u32,
        /// The first of them, by their places among the training samples.
        samples: Vec<u32>,
    },
    /// A gradient overflowed in f16: the loss is multiplied by less, and the samples come again.
    Rescaled {
        /// After this step.
        step: u64,
        /// What the loss is multiplied by from now on.
        scale: f32,
    },
    /// The last model is being evaluated on held-out samples, by this machine alone. When that begins, and every few seconds.
    Evaluating {
        /// After this step.
        step: u64,
        /// How many samples are evaluated.
        samples: u64,
        /// Of how many.
        of: u64,
    },
    /// The model was evaluated on held-out samples: by all members together, who come to the same figures, and at the end by this one alone.
    Evaluated {
        /// After this step.
        step: u64,
        /// Mean loss; no number where somebody came to none.
        #[serde(deserialize_with = "figures::read")]
        loss: f64,
        /// What else the task measures, by name, as means over the samples, no number where somebody came to none. Of a classifier: `accuracy`, the
        /// share of samples classified right, 0 to 1.
        #[serde(deserialize_with = "figures::read_all")]
        measures: BTreeMap<String, f64>,
    },
    /// Members were to evaluate the model together, and not all have told their parts: there are no figures of this step.
    Unevaluated {
        /// After this step.
        step: u64,
        /// Whose parts are missing, by peer id, at most 16 of them; none if nobody had one.
        peers: Vec<String>,
        /// How many these are.
        count: usize,
    },
    /// Where something goes by it, members agreed on what the model comes to on held-out samples.
    Judged {
        /// After this step.
        step: u64,
        /// Mean loss, of all members' evaluations; no number where somebody came to none.
        #[serde(deserialize_with = "figures::read")]
        loss: f64,
        /// The best model so far is the one after this step.
        best_step: u64,
        /// Its loss; no number if none came to one.
        #[serde(deserialize_with = "figures::read")]
        best_loss: f64,
        /// How many evaluations in a row were no better than the best.
        without: u32,
        /// How often the learning rate has fallen for that, in a run whose schedule goes by it.
        falls: u32,
        /// Whether the run ends by that, with the step after it.
        is_over: bool,
    },
    /// A checkpoint is on disk.
    Saved {
        /// After this step.
        step: u64,
        /// Digest of the replicated state, hex.
        digest: String,
    },
    /// A quorum of the view has signed a checkpoint that is on this peer's disk: the run can always go on from it. Comes
    /// again when the others have signed too.
    Stable {
        /// After this step.
        step: u64,
        /// Digest of the replicated state, hex.
        digest: String,
        /// How many members have signed.
        signers: usize,
    },
    /// A keeper is set up: it stores checkpoints and takes part in nothing. The network comes next.
    Keeping {
        /// Its libp2p peer id.
        peer: String,
        /// The run's id, hex.
        run: String,
        /// The run's last step.
        steps: u64,
        /// The newest checkpoint here that a quorum has signed; `None` if there is none.
        stable_step: Option<u64>,
        /// Whether only holders of the ticket's secret are admitted.
        private: bool,
    },
    /// A checkpoint is being downloaded. At most a few per second.
    Fetching {
        /// The state after this step.
        step: u64,
        /// Bytes that are here.
        bytes: u64,
        /// Bytes that it has.
        of: u64,
    },
    /// Another peer held a newer stable checkpoint than this one: it is on disk here now, and this peer goes on from it.
    Fetched {
        /// After this step.
        step: u64,
        /// Digest of the replicated state, hex.
        digest: String,
    },
    /// A peer did what no correct peer does: a member is left out for it. 16 at once at most, then one each second.
    Misbehaved {
        /// Its peer id.
        peer: String,
        /// What it did.
        what: String,
    },
    /// Something is off, but the run goes on.
    Warning {
        /// What, and what to do.
        message: String,
    },
    /// The run is over for this peer.
    Finished(Summary),
    /// This process was asked to stop before it took part in a run: there is nothing to sum up.
    Stopped,
}

/// Whoever watches a node. Called from several threads; must not block for long.
pub trait Observer: Send + Sync {
    /// Takes one report.
    fn report(&self, report: &Report);

    /// Takes one report of something that happened at this time. Who shows times takes this one.
    fn report_at(&self, at: SystemTime, report: &Report) {
        let _ = at;
        self.report(report);
    }
}

impl From<HeldOutReport> for Report {
    fn from(evaluated: HeldOutReport) -> Self {
        let HeldOutReport { step, loss, measures } = evaluated;
        Self::Evaluated { step, loss, measures: measures.into_iter().collect() }
    }
}

impl From<UnevaluatedReport> for Report {
    fn from(unevaluated: UnevaluatedReport) -> Self {
        let UnevaluatedReport { step, missing } = unevaluated;
        let peers = missing.iter().take(MAX_MISSING).map(|peer| to_libp2p(*peer).to_string()).collect();
        Self::Unevaluated { step, peers, count: missing.len() }
    }
}

impl From<JudgedReport> for Report {
    fn from(judged: JudgedReport) -> Self {
        let JudgedReport { step, loss, best_step, best_loss, without, falls, is_over } = judged;
        Self::Judged { step, loss: loss.into(), best_step, best_loss: best_loss.into(), without, falls, is_over }
    }
}
