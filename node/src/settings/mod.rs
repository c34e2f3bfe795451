//! What a node is told by its user: the checked form of the configuration.

pub mod keys;
pub(crate) mod length;
pub(crate) mod sections;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use libp2p::Multiaddr;
use starling_engine::leaf::MAX_LEAVES;
use starling_engine::leaf::reach_search::RolePolicy;
use starling_links::TransportPolicy;
use starling_run::data::{HELD_BYTES, ImageSize};
use starling_run::{Delimiter, RenameSpec, RunSpec, Workload};
use starling_topology::PeerId;

use crate::credentials::invitation::InvitationKey;
use crate::credentials::name::Name;
use crate::credentials::ticket::Ticket;
use crate::settings::keys::{Key, KeyTarget, Value};
pub use crate::settings::length::RunLimit;

/// Settings of this machine alone; what all members share is the run's manifest.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where identity, secret, status and checkpoints live.
    pub data_dir: PathBuf,
    /// Where the samples are: `digits` or a path. `None`: digits for a founder; for a joiner whatever the run trains on,
    /// from its members if they share it.
    pub data: Option<String>,
    /// CSV: the label column.
    pub label: Option<String>,
    /// CSV: whether there is a header; `None` detects it.
    pub header: Option<bool>,
    /// CSV: what separates cells; `None` detects it.
    pub delimiter: Option<Delimiter>,
    /// CSV: the columns that are left out.
    pub ignored: Vec<String>,
    /// CSV: the columns that hold categories, whatever they look like.
    pub categories: Vec<String>,
    /// CSV: the column that says how much each row counts.
    pub weights: Option<String>,
    /// CSV: the column by which rows are held out.
    pub split_by: Option<String>,
    /// CSV: a file of the rows that are held out.
    pub held_out_file: Option<PathBuf>,
    /// A text: how many bytes of it a model sees at once; `None`: 128, or what the run says.
    pub context: Option<u32>,
    /// Images in folders: the size that all are brought to; `None`: the one that all have, or what the run says.
    pub image_size: Option<ImageSize>,
    /// Whether joiners may have the files of the data set.
    pub share_data: bool,
    /// The most bytes of a data set that are taken from members.
    pub data_limit: u64,
    /// The most bytes that the values of a table take, eight each, if it is held in memory; rows of a larger one are read from its file
    /// when they are asked for.
    pub data_held: u64,
    /// Where to listen. Nowhere in particular: on a free port over TCP, on all addresses of this machine, of
    /// IPv4 and IPv6, as far as it has them.
    pub listen: Vec<Multiaddr>,
    /// Addresses to announce besides those we listen on (a forwarded port, say).
    pub announce: Vec<Multiaddr>,
    /// Whether to look for peers on the local network by multicast.
    pub mdns: bool,
    /// What people call this machine; `None` is its host's name in a private run, and nothing in a public one.
    pub name: Option<Name>,
    /// How gradients travel between two members.
    pub data_plane: TransportPolicy,
    /// The most members that a view may have.
    pub max_peers: usize,
    /// What a joiner takes part as.
    pub role: RolePolicy,
    /// How many leaves may take part through this machine, 8 at most.
    pub leaves: usize,
    /// Peers that may come without an invitation; in a public run, if there are any, nobody else may come without one.
    pub allow: Vec<PeerId>,
    /// When a side without a quorum goes on as a fork; `None` is never.
    pub fork_after: Option<Duration>,
    /// Whether to measure the links to other members, so that reductions can be planned by what they cost.
    pub probe_links: bool,
    /// Bytes of state and data handed out to joiners per second; 0 sets no limit.
    pub state_rate: u64,
    /// How many checkpoints to keep.
    pub checkpoint_keep: usize,
    /// Memory for an update that begins while its step is being reduced; a model that needs more begins after it.
    pub update_ahead_bytes: u64,
    /// Which share of the time it computes.
    pub duty: f64,
    /// How many buckets are reduced at a time.
    pub buckets_in_flight: u32,
    /// Write the trained model here at the end: to a folder if it ends with a slash or is one already, else to a safetensors file.
    pub export: Option<PathBuf>,
    /// Write who contributed which samples here.
    pub audit: Option<PathBuf>,
}

impl Settings {
    /// The name that this machine tells the other members of a run. Strangers are not told its host's.
    pub(crate) fn own_name(&self, is_private: bool) -> Option<Name> {
        self.name.clone().or_else(|| is_private.then(Name::of_host)?)
    }

    /// What the environment sets, such as `STARLING_NETWORK_NAME`, over the defaults; in this data directory. The variables are
    /// those of the [keys] that set this machine alone, by the command line's names; those of other keys are for whoever
    /// founds a run or starts a node.
    ///
    /// # Errors
    /// A sentence that names the variable: its value is none that its key can have, or it begins as ours do and is none.
    pub fn from_env(data_dir: PathBuf) -> Result<Self, String> {
        let mut names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        if let Some(name) = names.find(|name| !keys::is_variable(name)) {
            return Err(format!("there is no variable `{name}`; docs/configuration.md lists those that there are"));
        }
        Self::from_variables(data_dir, |name| std::env::var_os(name))
    }

    fn from_variables(data_dir: PathBuf, variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, String> {
        let mut settings = Self::new(data_dir);
        for key in keys::keys() {
            let name = key.variable();
            let (KeyTarget::Machine(set), Some(text)) = (key.sets, variable(&name)) else { continue };
            let value = text.to_str().and_then(|text| key.read(text));
            let value = value.ok_or_else(|| format!("{name} is {text:?}, but must be {}", key.kind.allowed()))?;
            set(&mut settings, &value).map_err(|reason| format!("{name}: {reason}"))?;
        }
        Ok(settings)
    }

    /// What the command line sets by default, in this data directory.
    pub fn new(data_dir: PathBuf) -> Self {
        Self {
            data_dir,
            data: None,
            label: None,
            header: None,
            delimiter: None,
            ignored: Vec::new(),
            categories: Vec::new(),
            weights: None,
            split_by: None,
            held_out_file: None,
            context: None,
            image_size: None,
            share_data: false,
            data_limit: 1 << 30,
            data_held: HELD_BYTES,
            listen: Vec::new(),
            announce: Vec::new(),
            mdns: false,
            name: None,
            data_plane: TransportPolicy::Auto,
            max_peers: 64,
            role: RolePolicy::Member,
            leaves: MAX_LEAVES,
            allow: Vec::new(),
            fork_after: Some(Duration::from_secs(120)),
            probe_links: true,
            state_rate: 64 << 20,
            checkpoint_keep: 3,
            update_ahead_bytes: 0,
            duty: 1.0,
            buckets_in_flight: 4,
            export: None,
            audit: None,
        }
    }
}

/// Founding a run.
#[derive(Debug, Clone)]
pub struct FoundOptions {
    /// What is trained and how.
    pub run: RunSpec,
    /// How long it is.
    pub length: RunLimit,
    /// Members needed to take steps; in a fork, one is enough.
    pub min_peers: usize,
    /// Whether anyone who knows an address may join, without a secret.
    pub public: bool,
    /// Go on from a checkpoint in the data directory.
    pub resume: ResumePolicy,
    /// Go on alone, as a fork, if others trained the run and none of them answers.
    pub alone: bool,
    /// Begin a new run with this checkpoint, or with the newest one of this data directory.
    pub from: Option<PathBuf>,
    /// Begin a new run with the values in this file: a safetensors file, or one of another kind that the program reads; or with those of the
    /// model in this checkpoint or data directory.
    pub init: Option<PathBuf>,
    /// What the model calls the tensors there.
    pub init_names: Vec<RenameSpec>,
}

impl FoundOptions {
    /// A private run that takes steps from its first member on, and begins anew.
    pub fn new(run: RunSpec) -> Self {
        let length = RunLimit::default();
        let (resume, from, init) = (ResumePolicy::Fresh, None, None);
        Self { run, length, min_peers: 1, public: false, resume, alone: false, from, init, init_names: Vec::new() }
    }

    /// What a run of `workload` trains and how, with its last step.
    pub(crate) fn spec(&self, workload: &dyn Workload) -> RunSpec {
        RunSpec { steps: self.length.steps(&self.run, workload), ..self.run.clone() }
    }

    /// Checks that a run of `workload` can be founded so, as far as that shows before its initial values are drawn.
    ///
    /// # Errors
    /// As [`Workload::found`].
    pub fn check(&self, workload: &dyn Workload) -> Result<(), starling_run::Error> {
        Ok(workload.describe(&self.spec(workload))?.check()?)
    }
}

/// Which checkpoint to go on from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResumePolicy {
    /// None: the data directory must not hold one of this run.
    Fresh,
    /// The newest; or step 0 if there is none.
    Newest,
    /// The one after this step.
    Step(u64),
}

/// Joining a run.
#[derive(Clone)]
pub struct JoinOptions {
    /// Whom to join through.
    pub target: Target,
    /// The run's secret, where the target does not hold it.
    pub secret: Option<[u8; 32]>,
    /// An invitation, where the target does not hold one.
    pub invitation: Option<InvitationKey>,
    /// What the user insists on; a run that differs is refused, naming the field.
    pub expected: ExpectedSettings,
    /// Go on alone, as a fork, if this machine took part before and none of the others answers.
    pub alone: bool,
}

impl JoinOptions {
    /// By a ticket, whatever the run is.
    pub fn new(ticket: Ticket) -> Self {
        Self {
            target: Target::Ticket(ticket),
            secret: None,
            invitation: None,
            expected: ExpectedSettings::default(),
            alone: false,
        }
    }
}

impl fmt::Debug for JoinOptions {
    /// Leaves the secret out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { target, secret: _, invitation, expected, alone } = self;
        f.debug_struct("JoinOptions")
            .field("target", target)
            .field("invitation", invitation)
            .field("expected", expected)
            .field("alone", alone)
            .finish_non_exhaustive()
    }
}

/// Whom to join through.
#[derive(Debug, Clone)]
#[expect(clippy::large_enum_variant, reason = "a process has one")]
pub enum Target {
    /// One string with everything.
    Ticket(Ticket),
    /// An address that ends in `/p2p/<peer id>`.
    Address(Multiaddr),
}

/// Keys of the run that a joiner's user set explicitly, with their values.
#[derive(Debug, Clone, Default)]
pub struct ExpectedSettings(BTreeMap<&'static str, Value>);

impl ExpectedSettings {
    /// Insists on one: `insist("run.steps", "600")`. Of those that the founder of a run sets ([`keys`]), any will do.
    ///
    /// # Errors
    /// A sentence, if no founder sets such a key, or it can't be that.
    pub fn insist(&mut self, id: &str, text: &str) -> Result<(), String> {
        let no_such = || format!("no founder sets a key `{id}`");
        let key = Key::find(id).filter(|key| matches!(key.sets, KeyTarget::Run(_))).ok_or_else(no_such)?;
        let value = key.read(text).ok_or_else(|| format!("{id} must be {}", key.kind.allowed()))?;
        self.expect(key, value)
    }

    /// Insists on a value that was checked as `key`'s kind; nothing of a key that is not the run's.
    ///
    /// # Errors
    /// A sentence, if it can't be that.
    pub fn expect(&mut self, key: &'static Key, value: Value) -> Result<(), String> {
        if let KeyTarget::Run(set) = key.sets {
            set(&mut RunSpec::default(), &value)?;
            self.0.insert(key.id, value);
        }
        Ok(())
    }

    /// The run as it is expected, all else as it is.
    pub(crate) fn apply(&self, run: &mut RunSpec) {
        for key in keys::keys() {
            if let (KeyTarget::Run(set), Some(value)) = (key.sets, self.0.get(key.id)) {
                // What can't be beside what the run has differs from that in any case.
                let _refused = set(run, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_go_over_the_defaults_and_are_named_where_they_are_wrong() {
        let set = |name: &'static str, text: &'static str| {
            Settings::from_variables("d".into(), move |asked| (asked == name).then(|| text.into()))
        };
        assert_eq!(set("STARLING_NETWORK_STATE_RATE", "8").expect("good").state_rate, 8 << 20);
        assert_eq!(set("STARLING_DATA_SOURCE", "t.csv").expect("good").data.as_deref(), Some("t.csv"));
        // It is the founder's, not this machine's.
        assert_eq!(set("STARLING_RUN_STEPS", "many").expect("good").state_rate, 64 << 20);
        for (name, text, part) in [
            ("STARLING_NETWORK_STATE_RATE", "fast", "a whole number from 0"),
            ("STARLING_NETWORK_FORK_AFTER", "soon", "no duration"),
            ("STARLING_NETWORK_LISTEN", "", "at least one address"),
        ] {
            let error = set(name, text).expect_err(name);
            assert!(error.starts_with(name) && error.contains(part), "{error}");
        }
    }

    #[test]
    fn a_joiner_changes_of_a_run_what_it_insists_on() {
        let mut expected = ExpectedSettings::default();
        expected.insist("run.learning_rate", "0.5").expect("a key of the run");
        expected.insist("run.clip", "2").expect("a key of the run");
        let run = RunSpec::default();
        let mut ours = run.clone();
        expected.apply(&mut ours);
        assert_eq!(ours, RunSpec { optimizer: run.optimizer.with("learning_rate", 0.5), clip: Some(2.0), ..run });
        for (id, text, part) in [
            ("run.public", "true", "no founder sets"),
            ("run.stepz", "1", "no founder sets"),
            ("run.steps", "0", "must be a whole number from 1"),
            ("run.model", "mlp:x", "`x` is not a size"),
        ] {
            let error = expected.insist(id, text).expect_err(id);
            assert!(error.contains(part), "{error}");
        }
    }
}
