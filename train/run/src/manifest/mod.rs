//! What all members of a run share: the model by its [`spec`] and [`schema`], the [`schedule`] of the learning rate, how a batch is divided
//! ([`balance`], [`micro_batch`]) and computed ([`precision`]), when members evaluate ([`evaluation`]), what of the model stays as it is ([`freeze`]); and for programs'
//! buffers their [`call_header`].

pub mod balance;
pub mod call_header;
pub mod evaluation;
pub mod freeze;
pub mod hint;
pub mod micro_batch;
pub mod precision;
pub mod schedule;
pub mod schema;
pub mod spec;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use starling_collective::Codec;
pub use starling_topology::ledger::MAX_BATCH_SIZE;
use starling_topology::ledger::STARVED;
use starling_topology::plan::PlanPolicy;
use starling_topology::{Digest, PeerId, Quorum, RunId, ShufflePolicy};
use thiserror::Error;

use crate::data::{DataDescription, TOKENS};
use crate::error::Error;
use crate::manifest::balance::BalancePolicy;
use crate::manifest::evaluation::{EvaluationSpec, check_schedule};
use crate::manifest::precision::Precision;
use crate::manifest::schedule::Schedule;
use crate::manifest::schema::{Entry, LeafKind, Schema};
use crate::manifest::spec::{
    ConstantSpec, LayoutSpec, LeafSpec, MAX_CONSTANTS, ModelSpec, RunSpec, check_constants, check_leaves,
};
use crate::state::max_encoded_len;
use crate::training::best::{Best, Terms};
use crate::training::buffer::ReducedSize;
use crate::training::loss_scale::LossScale;
use crate::training::optimizer::{ClipKind, GroupSpec, OptimizerSpec};

/// The version of everything members say to each other. Members of one run have the same one.
pub const WIRE_VERSION: u32 = 32;
/// The longest encoded manifest, in bytes.
pub const MAX_MANIFEST_BYTES: usize = 64 * 1024;
/// The most parameters a model may have: 4 GiB of them.
pub const MAX_PARAMETERS: u64 = 1 << 30;
/// The most of them that run along: they travel with each step as they are, whatever the codec.
pub const MAX_RUNNING: u64 = 1 << 20;
/// The most features a sample may have.
pub const MAX_FEATURES: u32 = 1 << 24;
/// The most classes a label may have.
pub const MAX_CLASSES: u32 = 1 << 16;
/// The largest number that a member may bring, times its weight: sums of the contributions of as many as a view may have, each
/// rounded on its way, are finite.
pub const MAX_CONTRIBUTION: f32 = 1e30;
/// The norms that gradients may be clipped to.
pub const CLIP: RangeInclusive<f64> = 1e-6..=1e6;
/// How long a run may be allowed to stand still because of one member, in milliseconds.
pub const MAX_STALL_MS: RangeInclusive<u64> = 500..=3_600_000;

/// What a manifest says of its model: each follows from those before it.
pub const FROM_MODEL: [&str; 7] = ["model", "leaves", "constants", "parameters", "running", "frozen", "schema"];

/// What a manifest has as a hash alone.
const DIGESTS: [&str; 5] = ["data.fingerprint", "data.preprocessing", "schema", "initial", "from"];

/// One run: what its members must agree on before they can train together. Its hash is the run's name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// [`WIRE_VERSION`] of the founder.
    pub wire_version: u32,
    /// The model.
    pub model: ModelSpec,
    /// How many parameters it has, or numbers a buffer. What holds a state needs no more of the model; who trains it checks this.
    pub parameters: u64,
    /// How many of these forward passes change, such as the running mean of a batch normalization.
    pub running: u64,
    /// How many of these nothing changes.
    pub frozen: u64,
    /// What the parameters are, in their order; none if they are too many to be listed.
    pub leaves: Vec<LeafSpec>,
    /// What it has besides of whole numbers and truths, in order, as far as that has a place here.
    #[serde(deserialize_with = "starling_topology::message::bounded::list::<_, _, MAX_CONSTANTS>")]
    pub constants: Vec<ConstantSpec>,
    /// The data, as each member must find it on its own disk.
    pub data: DataDescription,
    /// The optimizer.
    pub optimizer: OptimizerSpec,
    /// Whose learning rate and weight decay are others: of the groups that a parameter is in, the last one counts.
    pub groups: Vec<GroupSpec>,
    /// How the learning rate goes with the steps.
    pub schedule: Schedule,
    /// The largest Euclidean norm of a step's mean gradient: a longer one is scaled to it. `None`: whatever it is.
    pub clip: Option<f32>,
    /// Whether that is the norm of all of it, or of each tensor, or the size of each number.
    pub clip_by: ClipKind,
    /// When members evaluate together, and when the run ends by that before its last step; `None`: nobody evaluates before the end.
    pub evaluation: Option<EvaluationSpec>,
    /// Paths of parameters, or of modules, that are frozen though the model would train them: sorted, each once.
    pub freeze: Vec<String>,
    /// Samples per step, over all members.
    pub batch_size: u32,
    /// How many of them are computed together, from one seed; 0: a member's whole share, whatever that is.
    pub micro_batch: u32,
    /// In what numbers devices go forward and backward.
    pub precision: Precision,
    /// How far the samples of an epoch are shuffled.
    pub shuffle: ShufflePolicy,
    /// Whether samples count as much as the task says, which members tell, or all alike.
    pub weighted: bool,
    /// How a batch is divided among members.
    pub balance: BalancePolicy,
    /// How many steps the run takes.
    pub steps: u64,
    /// Seed of the initial parameters, the sample order and the held-out split.
    pub seed: u64,
    /// How gradients are cut.
    pub layout: LayoutSpec,
    /// How gradients are written on the wire. Members that encode differently could not read each other.
    pub codec: Codec,
    /// How reductions are scheduled. Each view takes the same plan on all of its members.
    pub plan: PlanPolicy,
    /// The largest magnitude of a number that a member brings: of its mean gradient, or its own buffer's. Who receives what can't
    /// have come of such numbers refuses it, and its sender.
    pub bound: f32,
    /// The longest that the run may stand still because of one member, in milliseconds. Deadlines derive from it, so a
    /// member with another one would take the others for lost, or be taken for lost by them.
    pub max_stall_ms: u64,
    /// All members save their state each so many steps; 0: only at the end. What was due before a view began may be stable, so
    /// each has to know when that was.
    pub checkpoint_every: u64,
    /// Fingerprint of the parameters' paths, shapes and types, in visit order.
    pub schema: Digest,
    /// Digest of the initial parameters.
    pub initial: Digest,
    /// Whether its founder has given these, so that others get them from members: they are not those that are drawn from the seed.
    pub given: bool,
    /// Digest of the replicated state that the run begins with, which is another run's; `None` if it begins with the initial
    /// parameters at step 0.
    pub from: Option<Digest>,
    /// The founder's public key (Ed25519), which is no peer's: it invites and revokes. It tells runs apart that are equal in all
    /// else. `None`: whoever holds the secret is invited, and nobody can be revoked.
    pub founder: Option<PeerId>,
    /// Which members of a view decide the next one.
    pub quorum: Quorum,
}

/// Bytes that are not a manifest this version can run.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ManifestError {
    /// Too long.
    #[error(
        "a manifest of {len} bytes is longer than the {MAX_MANIFEST_BYTES} bytes allowed; name fewer or shorter groups of parameters, paths that are frozen, \
         columns, and leaves of the module"
    )]
    TooLong {
        /// Its length in bytes.
        len: usize,
    },
    /// Made for another version of the protocol.
    #[error(
        "the run speaks wire version {theirs}, this program speaks {WIRE_VERSION}; use the same release on all machines"
    )]
    WireVersion {
        /// The version in the manifest.
        theirs: u32,
    },
    /// Not a manifest, or not in its one canonical form.
    #[error("the bytes are not a manifest: {reason}")]
    Undecodable {
        /// What is wrong.
        reason: String,
    },
    /// A value outside of what is possible.
    #[error("manifest field `{field}` is not usable: {reason}")]
    Invalid {
        /// The field, for example `model`.
        field: &'static str,
        /// What is wrong with it.
        reason: String,
    },
}

impl Manifest {
    /// How many parameters the model has, or numbers a buffer of a run without one.
    ///
    /// # Panics
    /// If they are more than memory has addresses for, which [`Self::check`] excludes.
    pub fn parameters(&self) -> usize {
        self.parameters.try_into().expect("invariant: a manifest's sizes are checked")
    }

    /// How many of these are frozen.
    ///
    /// # Panics
    /// As [`Self::parameters`].
    pub fn frozen(&self) -> usize {
        self.frozen.try_into().expect("invariant: a manifest's sizes are checked")
    }

    /// How many of them run along.
    ///
    /// # Panics
    /// As [`Self::parameters`].
    pub fn running(&self) -> usize {
        self.running.try_into().expect("invariant: a manifest's sizes are checked")
    }

    /// How many of them change from step to step: those that are trained and those that run along.
    ///
    /// # Panics
    /// As [`Self::parameters`].
    pub fn changing(&self) -> usize {
        self.parameters() - self.frozen()
    }

    /// How many of them are trained: so many numbers has a gradient.
    ///
    /// # Panics
    /// As [`Self::parameters`].
    pub fn trained(&self) -> usize {
        self.changing() - self.running()
    }

    /// Whether this run can be entered with a part of its data: each sample has its place in a file that is known by its hash, and which samples
    /// come next is known.
    pub fn can_arrive(&self) -> bool {
        // Who evaluates a part of the held-out samples as it trains needs all of these, which lie everywhere.
        self.data.kind == TOKENS && self.shuffle != ShufflePolicy::Full && self.evaluation.is_none()
    }

    /// The largest magnitude of a number of a contribution, which is a mean times samples. What tells of a member's speed goes
    /// with it in any case.
    pub fn most(&self) -> f32 {
        (self.bound * self.batch_size as f32).max(STARVED as f32)
    }

    /// How long the canonical bytes of a state of this run may be.
    pub fn max_state_bytes(&self) -> u64 {
        max_encoded_len([self.changing(), self.frozen()], self.moments(), self.scalars())
    }

    /// How many vectors a state has besides the parameters: the optimizer's, and with early stopping the best model.
    pub fn moments(&self) -> usize {
        self.optimizer.moments() + usize::from(Terms::of(self).is_some_and(Terms::keeps_model))
    }

    /// How many scalars a state has: the optimizer's, where losses are scaled that of the scale, and where something goes by the held-out loss
    /// what is known of that.
    pub fn scalars(&self) -> usize {
        let scale = if self.precision.is_scaled() { LossScale::SCALARS } else { 0 };
        self.optimizer.scalars() + scale + Terms::of(self).map_or(0, |_| Best::SCALARS)
    }

    /// What each member brings to a step, besides its slot.
    pub fn reduced(&self) -> ReducedSize {
        let others = usize::from(self.weighted) + self.held_out_figures();
        ReducedSize { trained: self.trained(), figures: 1 + self.running() + others }
    }

    /// How many of these, the last ones, are of held-out samples.
    pub fn held_out_figures(&self) -> usize {
        self.evaluation.as_ref().map_or(0, EvaluationSpec::figures)
    }

    /// The manifest of a new run whose members bring buffers of their own, `elements` numbers each. Of `spec`, what says
    /// how they are reduced counts, and the seed, which tells such runs apart.
    ///
    /// # Errors
    /// If a value is out of range.
    pub fn raw(elements: u64, spec: &RunSpec) -> Result<Self, Error> {
        let manifest = Self {
            model: ModelSpec::Raw,
            parameters: elements,
            optimizer: OptimizerSpec::sgd(1.0),
            groups: Vec::new(),
            schedule: Schedule::default(),
            clip: None,
            clip_by: ClipKind::default(),
            evaluation: None,
            freeze: Vec::new(),
            batch_size: 1,
            micro_batch: 0,
            precision: Precision::default(),
            shuffle: ShufflePolicy::default(),
            weighted: false,
            balance: BalancePolicy::default(),
            steps: u64::MAX >> 1,
            checkpoint_every: 0,
            // Whatever programs bring that has a sum.
            bound: MAX_CONTRIBUTION,
            ..Self::of(spec, DataDescription::none())
        };
        manifest.check()?;
        Ok(manifest)
    }

    /// What a founder says, of a run over `data`. What follows from the model is left open: see [`Self::with_schema`], and the initial
    /// parameters.
    pub fn of(spec: &RunSpec, data: DataDescription) -> Self {
        Self {
            wire_version: WIRE_VERSION,
            model: spec.model.clone(),
            parameters: 0,
            running: 0,
            frozen: 0,
            leaves: Vec::new(),
            constants: Vec::new(),
            data,
            optimizer: spec.optimizer,
            groups: spec.groups.clone(),
            schedule: spec.schedule.clone(),
            clip: spec.clip,
            clip_by: spec.clip_by,
            evaluation: EvaluationSpec::of(spec),
            freeze: freeze::frozen(spec.freeze.iter().cloned()),
            batch_size: spec.batch_size,
            balance: spec.balance,
            steps: spec.steps,
            seed: spec.seed,
            layout: spec.layout,
            codec: spec.codec,
            plan: spec.plan,
            bound: spec.bound,
            max_stall_ms: spec.max_stall_ms,
            checkpoint_every: spec.checkpoint_every,
            schema: Digest([0; 32]),
            initial: Digest([0; 32]),
            given: false,
            from: None,
            founder: None,
            quorum: spec.quorum,
            micro_batch: spec.micro_batch,
            precision: spec.precision,
            shuffle: spec.shuffle,
            weighted: false,
        }
    }

    /// The manifest of a model with these parameters.
    #[must_use]
    pub fn with_schema(self, schema: &Schema) -> Self {
        let [running, frozen] = [LeafKind::Running, LeafKind::Frozen].map(|kind| schema.numbers_of(kind) as u64);
        let (parameters, leaves) = (schema.parameters() as u64, LeafSpec::list(schema));
        let constants = ConstantSpec::list(schema);
        Self { parameters, running, frozen, leaves, constants, schema: schema.fingerprint(), ..self }
    }

    /// The manifest of a task that holds out so many samples, and measures this of them besides the loss.
    #[must_use]
    pub fn with_measures(mut self, held_out: u32, measures: &[&str]) -> Self {
        if let Some(evaluation) = &mut self.evaluation {
            evaluation.held_out = held_out;
            evaluation.measures = measures.iter().map(|name| (*name).to_owned()).collect();
        }
        self
    }

    /// The same, with no other measures than `run` has, if the task measures all of those: what else it does, is not told before the end.
    #[must_use]
    pub fn in_measures_of(mut self, run: &Self) -> Self {
        if let (Some(ours), Some(theirs)) = (&mut self.evaluation, &run.evaluation)
            && theirs.measures.iter().all(|name| ours.measures.contains(name))
        {
            ours.measures.clone_from(&theirs.measures);
        }
        self
    }

    /// Whether something goes by the held-out loss that members agree on: when the run ends, or how its learning rate falls.
    pub fn is_judged(&self) -> bool {
        Terms::of(self).is_some()
    }

    /// The parameters as it lists them; one row of numbers if it lists none.
    pub fn listed(&self) -> Schema {
        if self.leaves.is_empty() {
            return Schema::new(vec![Entry::trained("values", &[self.parameters()])]);
        }
        LeafSpec::schema(&self.leaves)
    }

    /// What its founder said, but for the share of samples that is kept from training, which is in the data's description.
    pub fn spec(&self) -> RunSpec {
        RunSpec {
            model: self.model.clone(),
            optimizer: self.optimizer,
            groups: self.groups.clone(),
            schedule: self.schedule.clone(),
            clip: self.clip,
            clip_by: self.clip_by,
            evaluate_every: self.evaluation.as_ref().map_or(0, |evaluation| evaluation.every),
            early_stop: self.evaluation.as_ref().map_or(0, |evaluation| evaluation.patience),
            freeze: self.freeze.clone(),
            batch_size: self.batch_size,
            balance: self.balance,
            steps: self.steps,
            seed: self.seed,
            held_out: RunSpec::default().held_out,
            layout: self.layout,
            codec: self.codec,
            plan: self.plan,
            bound: self.bound,
            max_stall_ms: self.max_stall_ms,
            checkpoint_every: self.checkpoint_every,
            quorum: self.quorum,
            micro_batch: self.micro_batch,
            precision: self.precision,
            shuffle: self.shuffle,
        }
    }

    /// The run's name: blake3 of the canonical bytes.
    pub fn run_id(&self) -> RunId {
        RunId(*blake3::hash(&self.encode()).as_bytes())
    }

    /// The canonical bytes.
    pub fn encode(&self) -> Vec<u8> {
        postcard::to_allocvec(self).expect("invariant: a manifest has no type that cannot be encoded")
    }

    /// Reads a manifest from its canonical bytes.
    ///
    /// # Errors
    /// If the bytes are too long, of another wire version, not canonical, followed by more bytes, or hold values that
    /// no run can have.
    pub fn decode(bytes: &[u8]) -> Result<Self, ManifestError> {
        if bytes.len() > MAX_MANIFEST_BYTES {
            return Err(ManifestError::TooLong { len: bytes.len() });
        }
        let undecodable = |reason: String| ManifestError::Undecodable { reason };
        // The version comes first and alone: what follows it belongs to it.
        let (wire_version, _) =
            postcard::take_from_bytes::<u32>(bytes).map_err(|error| undecodable(error.to_string()))?;
        if wire_version != WIRE_VERSION {
            return Err(ManifestError::WireVersion { theirs: wire_version });
        }
        let (manifest, rest) =
            postcard::take_from_bytes::<Self>(bytes).map_err(|error| undecodable(error.to_string()))?;
        if !rest.is_empty() {
            return Err(undecodable(format!("{} bytes follow it", rest.len())));
        }
        manifest.check()?;
        if manifest.encode() != bytes {
            return Err(undecodable("it is not in its canonical form".to_owned()));
        }
        Ok(manifest)
    }

    /// Checks that every value is one a run can have.
    ///
    /// # Errors
    /// The first field that is not, and why.
    pub fn check(&self) -> Result<(), ManifestError> {
        let invalid = |field: &'static str, reason: String| Err(ManifestError::Invalid { field, reason });
        if self.wire_version != WIRE_VERSION {
            return Err(ManifestError::WireVersion { theirs: self.wire_version });
        }
        if let Err(reason) = self.data.check() {
            return invalid("data", reason);
        }
        if let Err(reason) = self.model.check() {
            return invalid("model", reason);
        }
        if !(1..=MAX_PARAMETERS).contains(&self.parameters) {
            let found = self.parameters;
            return invalid("model", format!("it has {found} parameters, but 1 to {MAX_PARAMETERS} are possible"));
        }
        let trained = self.parameters.checked_sub(self.frozen).and_then(|changing| changing.checked_sub(self.running));
        let Some(trained) = trained.filter(|trained| *trained > 0 && self.running <= MAX_RUNNING) else {
            let Self { parameters, running, frozen, .. } = self;
            return invalid(
                "model",
                format!(
                    "of its {parameters} parameters {running} run along, of {MAX_RUNNING} that may, and {frozen} are frozen, which leaves too \
                     few to be trained, or too many that run along"
                ),
            );
        };
        if let Err(reason) = check_leaves(&self.leaves, [trained, self.running, self.frozen]) {
            return invalid("model", reason);
        }
        if let Err(reason) = check_constants(&self.constants) {
            return invalid("constants", reason);
        }
        if self.model == ModelSpec::Raw && !self.constants.is_empty() {
            return invalid("constants", "buffers have none".to_owned());
        }
        if let Err(reason) = freeze::check(&self.freeze) {
            return invalid("freeze", reason);
        }
        if self.model == ModelSpec::Raw && (trained < self.parameters || !self.freeze.is_empty()) {
            return invalid("freeze", "buffers have nothing that could be frozen or run along".to_owned());
        }
        if self.given && self.model == ModelSpec::Raw {
            return invalid("given", "a run of buffers begins with what its programs bring".to_owned());
        }
        if !self.data.is_for(&self.model) {
            let reason = "a model trains on files, the digits or what its program brings, as that is described, and buffers on none";
            return invalid("data", reason.to_owned());
        }
        if let Err(reason) = self.optimizer.check() {
            return invalid("optimizer", reason);
        }
        if let Err(reason) = GroupSpec::check(&self.groups) {
            return invalid("groups", reason);
        }
        if let Err(reason) = self.schedule.check() {
            return invalid("schedule", reason);
        }
        if let Some(clip) = self.clip
            && !(*CLIP.start() as f32..=*CLIP.end() as f32).contains(&clip)
        {
            let (least, most) = (CLIP.start(), CLIP.end());
            return invalid("clip", format!("it is {clip}, but norms of {least:e} to {most:e} are possible"));
        }
        if self.clip.is_none() && self.clip_by != ClipKind::Norm {
            return invalid("clip_by", "nothing is clipped".to_owned());
        }
        if let Some(Err(reason)) = self.evaluation.as_ref().map(|evaluation| evaluation.check(&self.model, &self.data))
        {
            return invalid("evaluation", reason);
        }
        if let Err(reason) = check_schedule(self.evaluation.as_ref(), &self.schedule) {
            return invalid("schedule", reason);
        }
        if self.model == ModelSpec::Raw && self.weighted {
            return invalid("weighted", "buffers have no samples".to_owned());
        }
        if self.model == ModelSpec::Raw && self.precision != Precision::F32 {
            return invalid("precision", "buffers are f32".to_owned());
        }
        if let Err(reason) = self.shuffle.check() {
            return invalid("shuffle", reason);
        }
        if self.model == ModelSpec::Raw && self.shuffle != ShufflePolicy::Full {
            return invalid("shuffle", "buffers have no samples".to_owned());
        }
        if !(1..=MAX_BATCH_SIZE).contains(&self.batch_size) {
            return invalid("batch_size", format!("it is {}, but 1 to {MAX_BATCH_SIZE} are possible", self.batch_size));
        }
        if let Err(reason) = micro_batch::check(self.micro_batch, self.batch_size, &self.model) {
            return invalid("micro_batch", reason);
        }
        if self.running > 0 && self.micro_batch == 0 {
            let reason = "it is 0, but the model keeps running values, which follow from the samples that are computed together: take \
                          micro-batches, which are the same whoever computes them";
            return invalid("micro_batch", micro_batch::with_example(reason, self.batch_size));
        }
        if !(1..=u64::MAX >> 1).contains(&self.steps) {
            return invalid("steps", format!("they are {}, but 1 to 2^63 - 1 are possible", self.steps));
        }
        if let Err(reason) = self.layout.check() {
            return invalid("layout", reason);
        }
        let most = f64::from(MAX_CONTRIBUTION) / f64::from(self.batch_size);
        if !(f64::from(f32::MIN_POSITIVE)..=most).contains(&self.bound.into()) {
            return invalid(
                "bound",
                format!("it is {:e}, but numbers above 0 up to {most:e} are possible", self.bound),
            );
        }
        if !MAX_STALL_MS.contains(&self.max_stall_ms) {
            let (min, max) = (MAX_STALL_MS.start(), MAX_STALL_MS.end());
            return invalid("max_stall_ms", format!("it is {}, but {min} to {max} are possible", self.max_stall_ms));
        }
        // Each list has a bound, and all of them together more than whoever reads it takes.
        match self.encode().len() {
            len if len > MAX_MANIFEST_BYTES => Err(ManifestError::TooLong { len }),
            _ => Ok(()),
        }
    }

    /// All fields in which `theirs` is not equal to this manifest, by name, in a fixed order.
    pub fn differences(&self, theirs: &Self) -> Vec<Difference> {
        let value = |manifest: &Self| {
            serde_json::to_value(manifest).expect("invariant: a manifest has no type that cannot be JSON")
        };
        let mut differences = Vec::new();
        compare(String::new(), &value(self), &value(theirs), &mut differences);
        // What follows from another model, or from other leaves, says no more than these.
        let differs = |name| differences.iter().any(|difference| difference.field.split('.').next() == Some(name));
        let follows =
            FROM_MODEL.iter().position(|field| differs(field)).map_or(&[][..], |first| &FROM_MODEL[first + 1..]);
        differences.retain(|difference| !follows.iter().any(|field| difference.field.split('.').next() == Some(field)));
        // A hash says no more than that there is something else.
        differences.sort_by_key(|difference| DIGESTS.contains(&&*difference.field));
        differences
    }
}

/// A field in which two manifests differ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The field's path, for example `schedule.warm_up`.
    pub field: String,
    /// Our value.
    pub ours: String,
    /// Their value.
    pub theirs: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ours {}, theirs {}", self.field, self.ours, self.theirs)
    }
}

/// Walks two values side by side and notes the leaves that differ.
fn compare(field: String, ours: &Value, theirs: &Value, into: &mut Vec<Difference>) {
    if ours == theirs {
        return;
    }
    let (ours, theirs) = match (ours, theirs) {
        (Value::Object(a), Value::Object(b)) if a.keys().eq(b.keys()) => {
            // An enum is an object with its variant as only key; the variant is not a field that a user knows.
            let variant = !field.is_empty() && a.len() == 1 && a.values().all(Value::is_object);
            for ((key, a), b) in a.iter().zip(b.values()) {
                let path = match (variant, field.is_empty()) {
                    (true, _) => field.clone(),
                    (false, true) => key.clone(),
                    (false, false) => format!("{field}.{key}"),
                };
                compare(path, a, b, into);
            }
            return;
        }
        (Value::Array(a), Value::Array(b)) if !a.is_empty() && !b.is_empty() && a.iter().chain(b).all(is_leaf) => {
            return compare_leaves(&field, a, b, into);
        }
        // No leaves are listed if they are too many; of constants, those that are.
        (Value::Array(a), Value::Array(b)) if field == "constants" => return compare_leaves(&field, a, b, into),
        other => other,
    };
    into.push(Difference { field, ours: show(ours), theirs: show(theirs) });
}

/// Whether it is a parameter of a task's module.
fn is_leaf(value: &Value) -> bool {
    value["path"].is_string() && value["shape"].is_array()
}

/// Names the parameters in which two modules differ, by their paths.
fn compare_leaves(field: &str, ours: &[Value], theirs: &[Value], into: &mut Vec<Difference>) {
    // Of a constant, behind its shape, what its values are.
    let listed = |leaves: &[Value]| -> BTreeMap<String, (String, Value)> {
        let described = |leaf: &Value| {
            let kind = leaf["kind"].as_str().filter(|kind| *kind != "trained").map(|kind| format!(", {kind}"));
            (format!("[{}]{}", show(&leaf["shape"]), kind.unwrap_or_default()), leaf["values"].clone())
        };
        leaves.iter().map(|leaf| (show(&leaf["path"]), described(leaf))).collect()
    };
    let (a, b) = (listed(ours), listed(theirs));
    if a == b {
        let (ours, theirs) = ("in their order".to_owned(), "in another order".to_owned());
        return into.push(Difference { field: field.to_owned(), ours, theirs });
    }
    let paths: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    for path in paths.into_iter().filter(|path| a.get(*path) != b.get(*path)) {
        let [ours, mut theirs] =
            [&a, &b].map(|leaves| leaves.get(path).map_or("none", |(shape, _)| shape.as_str()).to_owned());
        if ours == theirs {
            theirs.push_str(", with other values");
        }
        into.push(Difference { field: format!("{field}.{path}"), ours, theirs });
    }
}

/// A value as a user would write it.
fn show(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        // All fractions in a manifest are f32; as f64 they would show digits that nobody wrote.
        Value::Number(number) if number.is_f64() => {
            number.as_f64().map_or_else(|| number.to_string(), |number| (number as f32).to_string())
        }
        Value::Array(items) if items.len() == 32 && items.iter().all(Value::is_u64) => {
            let bytes: Vec<u8> = items.iter().filter_map(Value::as_u64).map(|byte| byte as u8).collect();
            hex::encode(bytes)
        }
        Value::Array(items) if items.is_empty() => "none".to_owned(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(show).collect();
            items.join(",")
        }
        Value::Object(fields) => {
            let fields: Vec<String> = fields
                .iter()
                .filter(|(_, value)| !value.is_null())
                .map(|(key, value)| match value {
                    Value::Object(_) => format!("{key}({})", show(value)),
                    _ => format!("{key}={}", show(value)),
                })
                .collect();
            fields.join(" ")
        }
        Value::Null => "none".to_owned(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use starling_topology::SplitMix64Generator;

    use super::*;
    use crate::data::digits;
    use crate::manifest::schedule::DecayKind;
    use crate::manifest::spec::ConstantKind;

    fn manifest() -> Manifest {
        Manifest::of(&RunSpec::default(), digits()).with_schema(&schema(64))
    }

    fn schema(outputs: usize) -> Schema {
        Schema::new(vec![Entry::trained("output.weight", &[64, outputs]), Entry::trained("output.bias", &[outputs])])
    }

    #[test]
    fn a_manifest_survives_its_bytes_and_names_its_run() {
        let manifest = manifest();
        let bytes = manifest.encode();
        assert!(bytes.len() < 1024, "{} bytes", bytes.len());
        assert_eq!(Manifest::decode(&bytes), Ok(manifest.clone()));
        assert_eq!(manifest.run_id(), RunId(*blake3::hash(&bytes).as_bytes()));
        for other in [
            Manifest { seed: 43, ..manifest.clone() },
            Manifest { max_stall_ms: 9_999, ..manifest.clone() },
            Manifest { founder: Some(PeerId([7; 32])), ..manifest.clone() },
            Manifest { quorum: Quorum::TwoThirds, ..manifest.clone() },
            Manifest { clip: Some(1.0), ..manifest.clone() },
            Manifest { clip: Some(1.0), clip_by: ClipKind::Value, ..manifest.clone() },
            Manifest::of(&RunSpec { evaluate_every: 50, ..RunSpec::default() }, digits()).with_schema(&schema(64)),
            Manifest::of(&RunSpec { early_stop: 3, ..RunSpec::default() }, digits()).with_schema(&schema(64)),
            Manifest { micro_batch: 16, ..manifest.clone() },
            Manifest { precision: Precision::F16, ..manifest.clone() },
            Manifest { shuffle: ShufflePolicy::BLOCKS, ..manifest.clone() },
            Manifest { weighted: true, ..manifest.clone() },
            Manifest { given: true, ..manifest.clone() },
        ] {
            assert_ne!(other.run_id(), manifest.run_id());
        }
    }

    #[test]
    fn what_a_founder_chooses_is_checked() {
        let refused = |change: fn(&mut RunSpec)| {
            let mut spec = RunSpec::default();
            change(&mut spec);
            Manifest::of(&spec, digits()).with_schema(&schema(64)).check().expect_err("not a run").to_string()
        };
        for (change, reason) in [
            ((|spec| spec.batch_size = 0) as fn(&mut RunSpec), "`batch_size` is not usable: it is 0"),
            (|spec| spec.batch_size = u32::MAX, "`batch_size` is not usable"),
            (
                |spec| spec.micro_batch = 128,
                "`micro_batch` is not usable: it is 128, more than the 64 samples of a batch",
            ),
            (|spec| spec.micro_batch = 24, "a batch of 64 samples is no multiple of 24"),
            (
                |spec| spec.shuffle = ShufflePolicy::Blocks { rows: 0, blocks: 1 },
                "`shuffle` is not usable: it is blocks:0x1, but a block has 1 to",
            ),
            (|spec| spec.steps = 0, "`steps` is not usable"),
            (|spec| spec.bound = 0.0, "`bound` is not usable: it is 0e0"),
            (|spec| spec.bound = f32::NAN, "`bound` is not usable"),
            (|spec| spec.bound = 1e29, "numbers above 0 up to 1.56"),
            (|spec| spec.max_stall_ms = 499, "`max_stall_ms` is not usable: it is 499, but 500 to 3600000"),
            (|spec| spec.max_stall_ms = 3_600_001, "`max_stall_ms` is not usable"),
            (|spec| spec.model = ModelSpec::sized("\u{1b}[2J", &[]), "`model` is not usable: a name has 1 to 64 "),
            (|spec| spec.optimizer = OptimizerSpec::sgd(-1.0), "`optimizer` is not usable: learning_rate is -1"),
            (|spec| spec.schedule.warm_up = u64::MAX, "`schedule` is not usable: its warm-up is 18446744073709551615"),
            (|spec| spec.clip = Some(0.0), "`clip` is not usable: it is 0, but norms of 1e-6 to 1e6"),
            (|spec| spec.clip = Some(f32::NAN), "`clip` is not usable: it is NaN"),
            (
                |spec| spec.schedule.decay = DecayKind::Step { gamma: 2.0, each: 1 }.into(),
                "`schedule` is not usable: it multiplies by 2, but",
            ),
        ] {
            let message = refused(change);
            assert!(message.contains(reason), "{message}");
        }
    }

    #[test]
    fn constants_differ_by_path_shape_or_values() {
        let constant = |path: &str, shape: &[u32], values: u8| ConstantSpec {
            path: path.to_owned(),
            shape: shape.to_vec(),
            kind: ConstantKind::Int,
            values: Digest([values; 32]),
        };
        let with = |constants: &[ConstantSpec]| manifest().with_schema(&schema(64).with_constants(constants.to_vec()));
        let ours = with(&[constant("mask", &[3], 1)]);
        assert_eq!(Manifest::decode(&ours.encode()), Ok(ours.clone()));
        let lines = |theirs: &Manifest| ours.differences(theirs).iter().map(Difference::to_string).collect::<Vec<_>>();
        for (theirs, line) in [
            (with(&[constant("mask", &[3], 2)]), "constants.mask: ours [3], int, theirs [3], int, with other values"),
            (with(&[constant("mask", &[4], 2)]), "constants.mask: ours [3], int, theirs [4], int"),
            (with(&[]), "constants.mask: ours [3], int, theirs none"),
            (
                with(&[constant("mask", &[3], 1), constant("table", &[2, 2], 1)]),
                "constants.table: ours none, theirs [2,2], int",
            ),
        ] {
            assert_eq!(lines(&theirs), [line]);
        }
        let kind = ConstantKind::Bool;
        let truths = with(&[ConstantSpec { kind, ..constant("mask", &[3], 1) }]);
        assert_eq!(lines(&truths), ["constants.mask: ours [3], int, theirs [3], bool"]);
        // What has none is what it was.
        assert_eq!(with(&[]).schema, manifest().schema);
    }

    /// Nobody could read what a founder makes of it.
    #[test]
    fn a_manifest_that_no_reader_takes_is_refused_where_it_is_made() {
        let long = |at: usize| format!("{at:03}{}", "x".repeat(250));
        let leaves = (0..140).map(|at| Entry::trained(&long(at), &[1])).collect();
        let freeze: Vec<String> = (0..64).map(long).collect();
        let spec = RunSpec { freeze: freeze.clone(), ..RunSpec::default() };
        let listed = Manifest::of(&spec, digits()).with_schema(&Schema::new(leaves));
        assert_eq!(listed.check(), Ok(()), "{} bytes", listed.encode().len());
        let groups: Vec<GroupSpec> =
            freeze.iter().map(|path| format!("{path}:rate=0.5").parse().expect("a group")).collect();
        let more = Manifest { groups, ..listed };
        let len = more.encode().len();
        assert_eq!(
            (more.check(), len > MAX_MANIFEST_BYTES),
            (Err(ManifestError::TooLong { len }), true),
            "{len} bytes"
        );
    }

    #[test]
    fn hostile_bytes_are_refused_and_never_panic() {
        let valid = manifest().encode();
        assert_eq!(Manifest::decode(&[1; MAX_MANIFEST_BYTES + 1]), Err(ManifestError::TooLong { len: 65_537 }));
        assert!(matches!(Manifest::decode(&[]), Err(ManifestError::Undecodable { .. })));
        let trailing = [&valid[..], &[0]].concat();
        let message = Manifest::decode(&trailing).expect_err("trailing").to_string();
        assert!(message.contains("1 bytes follow it"), "{message}");
        let mut later = valid.clone();
        later[0] = u8::try_from(WIRE_VERSION).expect("small") + 1;
        let message = Manifest::decode(&later).expect_err("later").to_string();
        let told = format!("speaks wire version {}, this program speaks {WIRE_VERSION}", WIRE_VERSION + 1);
        assert!(message.contains(&told), "{message}");
        // The version as a varint of two bytes: the same value, but not the canonical bytes.
        let longer = [&[valid[0] | 0x80, 0x00], &valid[1..]].concat();
        let message = Manifest::decode(&longer).expect_err("not canonical").to_string();
        assert!(message.contains("canonical"), "{message}");
        for len in 0..valid.len() {
            assert!(Manifest::decode(&valid[..len]).is_err(), "cut at {len}");
        }
        let mut generator = SplitMix64Generator::new(3);
        for _ in 0..50_000 {
            let mut bytes = valid.clone();
            for _ in 0..=generator.below(4) {
                let at = generator.below(bytes.len() as u32) as usize;
                bytes[at] = generator.next_u64() as u8;
            }
            if let Ok(manifest) = Manifest::decode(&bytes) {
                assert_eq!(manifest.encode(), bytes);
            }
        }
    }

    #[test]
    fn sizes_of_a_model_that_no_state_can_have_are_refused() {
        for (parameters, leaves, reason) in [
            (0, Vec::new(), "it has 0 parameters"),
            (MAX_PARAMETERS + 1, Vec::new(), "but 1 to 1073741824 are possible"),
            (3, manifest().leaves, "do not have the 3 parameters"),
        ] {
            let other = Manifest { parameters, leaves, ..manifest() };
            let message = Manifest::decode(&other.encode()).expect_err("impossible").to_string();
            assert!(message.starts_with("manifest field `model`") && message.contains(reason), "{message}");
        }
        assert_eq!(manifest().listed(), schema(64));
        assert_eq!(Manifest { leaves: Vec::new(), ..manifest() }.listed().parameters(), 64 * 65);
    }

    #[test]
    fn a_kind_from_another_machine_is_not_printed() {
        let mut manifest = manifest();
        manifest.data.kind = "\u{1b}[2Jdigits".to_owned();
        let message = Manifest::decode(&manifest.encode()).expect_err("no kind").to_string();
        assert!(message.contains("a kind has 1 to 64 lower-case letters") && !message.contains('\u{1b}'), "{message}");
    }

    #[test]
    fn an_optimizer_that_this_program_lacks_is_refused_as_such() {
        let valid = manifest().encode();
        let name = valid.windows(5).position(|bytes| bytes == b"adamw").expect("the default");
        let mut other = valid.clone();
        other[name..name + 5].copy_from_slice(b"\x1b[2Jw");
        let message = Manifest::decode(&other).expect_err("no optimizer").to_string();
        assert!(message.contains("`optimizer` is not usable: it is none of sgd, ") && !message.contains('\u{1b}'));
        let mut other = valid;
        let rate = other.windows(5).position(|bytes| bytes == b"0.001").expect("the default");
        other[rate] = b'x';
        let message = Manifest::decode(&other).expect_err("no settings").to_string();
        assert!(message.contains("its settings are not those of adamw"), "{message}");
    }

    #[test]
    fn a_length_in_the_bytes_reserves_nothing() {
        // A name that claims 2^40 bytes.
        let mut bytes = vec![WIRE_VERSION as u8, 1];
        bytes.extend([0xff, 0xff, 0xff, 0xff, 0xff, 0x1f]);
        assert!(matches!(Manifest::decode(&bytes), Err(ManifestError::Undecodable { .. })));
    }

    #[test]
    fn differences_name_fields_as_a_user_writes_them() {
        let ours = manifest();
        let lines = |change: fn(&mut Manifest)| {
            let mut theirs = ours.clone();
            change(&mut theirs);
            ours.differences(&theirs).iter().map(Difference::to_string).collect::<Vec<_>>()
        };
        assert_eq!(lines(|_| {}), Vec::<String>::new());
        assert_eq!(lines(|manifest| manifest.batch_size = 32), ["batch_size: ours 64, theirs 32"]);
        assert_eq!(lines(|manifest| manifest.micro_batch = 16), ["micro_batch: ours 0, theirs 16"]);
        let theirs = ["shuffle: ours full, theirs blocks:8192x16"];
        assert_eq!(lines(|manifest| manifest.shuffle = ShufflePolicy::BLOCKS), theirs);
        assert_eq!(lines(|manifest| manifest.balance = BalancePolicy::Equal), ["balance: ours speed, theirs equal"]);
        assert_eq!(lines(|manifest| manifest.codec = Codec::Int8), ["codec: ours f32, theirs int8"]);
        assert_eq!(lines(|manifest| manifest.plan = PlanPolicy::Mesh), ["plan: ours ring, theirs mesh"]);
        assert_eq!(lines(|manifest| manifest.max_stall_ms = 500), ["max_stall_ms: ours 10000, theirs 500"]);
        let theirs = "quorum: ours majority, theirs two-thirds";
        assert_eq!(lines(|manifest| manifest.quorum = Quorum::TwoThirds), [theirs]);
        assert_eq!(
            lines(|manifest| manifest.model = ModelSpec::sized("mlp", &[128, 32])),
            ["model: ours mlp:64, theirs mlp:128,32"]
        );
        // Settings stay in their canonical form, which a terminal can show; what follows from them is not told too.
        let theirs = "model: ours mlp:64, theirs sine(settings={\"a\":\"\\u001b\"})";
        let other = |manifest: &mut Manifest| {
            manifest.model = ModelSpec::named("sine", &serde_json::json!({ "a": "\u{1b}" }));
            *manifest = manifest.clone().with_schema(&schema(3));
        };
        assert_eq!(lines(other), [theirs]);
        let leaves = ["leaves.output.bias: ours [64], theirs [3]", "leaves.output.weight: ours [64,64], theirs [64,3]"];
        assert_eq!(lines(|manifest| *manifest = manifest.clone().with_schema(&schema(3))), leaves);
        assert_eq!(
            lines(|manifest| manifest.optimizer = OptimizerSpec::adam_w(0.1)),
            ["optimizer.learning_rate: ours 0.001, theirs 0.1"]
        );
        assert_eq!(lines(|manifest| manifest.clip = Some(0.5)), ["clip: ours none, theirs 0.5"]);
        assert_eq!(lines(|manifest| manifest.schedule.warm_up = 5), ["schedule.warm_up: ours 0, theirs 5"]);
        assert_eq!(
            lines(|manifest| manifest.schedule.decay = DecayKind::Cosine { to: 0.1, within: None }.into()),
            ["schedule.decay: ours constant, theirs cosine:0.1"]
        );
        let theirs = "sgd(learning_rate=0.1 weight_decay=0)";
        let ours_too = "adamw(beta1=0.9 beta2=0.999 epsilon=0.00000001 learning_rate=0.001 weight_decay=0.01)";
        assert_eq!(
            lines(|manifest| manifest.optimizer = OptimizerSpec::sgd(0.1)),
            [format!("optimizer: ours {ours_too}, theirs {theirs}")]
        );
        let hashes_last = lines(|manifest| {
            (manifest.data.fingerprint, manifest.data.samples, manifest.seed) = (Digest([1; 32]), 5, 7);
        });
        assert!(hashes_last[2].starts_with("data.fingerprint: ours "), "{hashes_last:?}");
        let both = lines(|manifest| {
            manifest.data.samples = 5;
            manifest.initial = Digest([0xab; 32]);
        });
        assert_eq!(both.len(), 2);
        assert_eq!(both[0], "data.samples: ours 1797, theirs 5");
        assert!(both[1].starts_with("initial: ours ") && both[1].ends_with(&"ab".repeat(32)), "{}", both[1]);
    }
}
