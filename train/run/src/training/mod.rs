//! What one member of a run that trains holds, and what it makes of a step's result: on the CPU, the same bits on all members.
//!
//! A [`gradient`] is brought as a [`contribution`] in a [`buffer`]; the [`optimizer`] updates the state, in part beforehand by a [`staged_update`].
//! Programs without a model have an [`buffer_learner`] and its [`call`]s in the same place.

pub mod best;
pub mod buffer;
pub mod buffer_learner;
pub mod call;
pub mod contribution;
pub mod gradient;
pub mod held_out;
pub(crate) mod loss_scale;
pub mod optimizer;
mod scalar;
pub mod staged_update;
mod update;

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use starling_topology::ledger::GAVE_UP;
use starling_topology::{Digest, Ledger, Lineage, PeerId, RunId};

use crate::error::Error;
use crate::manifest::schema::{LeafKind, Schema};
use crate::manifest::{Manifest, ManifestError};
use crate::state::initial;
use crate::state::record::ResultRecord;
use crate::state::{ReplicatedState, StateView, model_of};
use crate::training::best::{Best, JudgedReport, Terms};
use crate::training::gradient::Gradient;
use crate::training::held_out::{HeldOutReport, UnevaluatedReport};
use crate::training::loss_scale::LossScale;
use crate::training::optimizer::{GroupLayout, OptimizerState};
use crate::training::staged_update::{StagedUpdate, UpdateWorkspace};

/// What one step came to: the same on all members.
#[derive(Debug, Clone, PartialEq)]
pub struct StepReport {
    /// The step, counted from 1.
    pub step: u64,
    /// The mean loss over the samples that were contributed, before the update; 0 if there were [none](Self::samples), which is no figure to show.
    pub loss: f32,
    /// How many samples were contributed.
    pub samples: u64,
    /// The pass over the data that the step belongs to: 0 for the first.
    pub epoch: u64,
    /// Who contributed which positions of the epoch's order, both ascending.
    pub contributions: Vec<(PeerId, Vec<Range<u32>>)>,
    /// How many samples were assigned to peers that did not contribute, and come first in the next step.
    pub returned: u32,
    /// What each member of the view that reduced the step told of its speed, in their order; see
    /// [`contribution::samples_per_s`].
    pub speeds: Vec<u32>,
    /// Why the update was dropped, as a sentence; `None` if it was not, or there was nothing to update with.
    pub skipped: Option<String>,
    /// Who gave its share up, and how many samples that were.
    pub given_up: Vec<(PeerId, u32)>,
    /// Positions of the epoch's order that nobody computes again in this epoch: their share was given up twice.
    pub dropped: Vec<Range<u32>>,
    /// What the state before it came to on held-out samples, if members evaluated that and all have told their parts.
    pub evaluated: Option<HeldOutReport>,
    /// That they were to, and not all have.
    pub unevaluated: Option<UnevaluatedReport>,
    /// What becomes of the held-out loss of that, if something goes by it.
    pub judged: Option<JudgedReport>,
    /// What losses are multiplied by from the next step on, if a gradient overflowed: its samples come again.
    pub rescaled: Option<f32>,
}

/// One member's copy of the run's replicated state, and the update that leads from one step to the next.
#[derive(Debug)]
pub struct TrainingState {
    manifest: Manifest,
    run: RunId,
    schema: Schema,
    ledger: Ledger,
    step: u64,
    /// The view in which it was committed.
    lineage: Lineage,
    /// Those that change: what is trained, then what runs along. Copies of the state share them until the next update.
    parameters: Arc<Vec<f32>>,
    /// Those that don't.
    frozen: Arc<Vec<f32>>,
    optimizer: OptimizerState,
    /// What losses are multiplied by, in a run that computes in f16.
    loss_scale: Option<LossScale>,
    /// What is known of the held-out loss, where something goes by it.
    best: Option<Best>,
    /// What comes of the pending step, as far as that is reduced.
    staged_update: Option<StagedUpdate>,
    /// Room for one.
    update_buffers: UpdateWorkspace,
}

impl TrainingState {
    /// At step 0 of the run that `manifest` describes, of a model with these `parameters`, over so many training samples.
    ///
    /// # Errors
    /// If the schema or the initial parameters are not the run's.
    ///
    /// # Panics
    /// If the parameters are not as many as the schema says.
    pub fn new(manifest: &Manifest, schema: Schema, mut parameters: Vec<f32>, samples: u32) -> Result<Self, Error> {
        assert_eq!(parameters.len(), schema.parameters(), "a schema says how many parameters there are");
        if schema.fingerprint() != manifest.schema {
            return Err(Error::OtherSchema { ours: schema.fingerprint(), theirs: manifest.schema });
        }
        let digest = initial::digest(&parameters);
        if digest != manifest.initial {
            return Err(Error::OtherInitial { ours: digest, theirs: manifest.initial });
        }
        let groups = GroupLayout::new(&manifest.groups, &schema)
            .map_err(|reason| ManifestError::Invalid { field: "groups", reason })?;
        let frozen = parameters.split_off(schema.parameters() - schema.numbers_of(LeafKind::Frozen));
        Ok(Self {
            run: manifest.run_id(),
            ledger: Ledger::new(manifest.seed, samples, manifest.batch_size)
                .with_micro_batch(manifest.micro_batch)
                .with_shuffle(manifest.shuffle),
            optimizer: OptimizerState::new(manifest.optimizer, parameters.len()).with_groups(groups),
            loss_scale: manifest.precision.is_scaled().then(LossScale::new),
            best: Terms::of(manifest).map(|terms| Best::new(terms, parameters.len())),
            manifest: manifest.clone(),
            schema,
            step: 0,
            lineage: Lineage::NONE,
            parameters: Arc::new(parameters),
            frozen: Arc::new(frozen),
            staged_update: None,
            update_buffers: UpdateWorkspace::default(),
        })
    }

    /// The run's manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The run.
    pub fn run(&self) -> RunId {
        self.run
    }

    /// The parameters' names and shapes.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// The parameters after the last step that change: what is trained, then what runs along.
    pub fn parameters(&self) -> &[f32] {
        &self.parameters
    }

    /// The same, to be shared until the next update: one that finds others who have them copies them.
    pub fn shared_parameters(&self) -> &Arc<Vec<f32>> {
        &self.parameters
    }

    /// The frozen ones, to be shared for as long as the run has them.
    pub fn shared_frozen(&self) -> &Arc<Vec<f32>> {
        &self.frozen
    }

    /// How many of [those that change](Self::parameters) are trained.
    pub fn trained(&self) -> usize {
        self.schema.numbers_of(LeafKind::Trained)
    }

    /// The parameters of the present model without the frozen ones: the moving average of what is trained, if one is kept.
    pub fn model(&self) -> Cow<'_, [f32]> {
        model_of(self.optimizer.average(), &self.parameters, self.trained())
    }

    /// The best model so far, without the frozen parameters, with the step after which it was that and its held-out loss; `None` if the run takes all
    /// steps, or nothing was evaluated yet.
    pub fn best(&self) -> Option<(&[f32], u64, f32)> {
        let best = self.best.as_ref()?;
        let (step, loss) = best.found()?;
        Some((best.values()?.as_slice(), step, loss))
    }

    /// The parameters of that, and the step, to be shared.
    pub fn shared_best(&self) -> Option<(&Arc<Vec<f32>>, u64)> {
        let best = self.best.as_ref()?;
        Some((best.values()?, best.found()?.0))
    }

    /// What the loss of the next step is multiplied by before backward, and its gradient divided by: a power of two.
    pub fn loss_scale(&self) -> f32 {
        self.loss_scale.map_or(1.0, LossScale::factor)
    }

    /// Whether members tell what the present state comes to on held-out samples with the gradient of the next step. Once the run has ended, they do not.
    pub fn is_judged(&self) -> bool {
        let is_due = self.manifest.evaluation.as_ref().is_some_and(|evaluation| evaluation.is_due(self.step));
        is_due && !self.best.as_ref().is_some_and(Best::is_over)
    }

    /// Which of `held_out` samples `me` evaluates of a state that is judged: as large a part of them as its share of the next step is of that; and by
    /// what the mean over that part is multiplied to be a mean over the share, so that what all tell comes to the mean over all. `None`: none of them.
    pub fn held_out_part(&self, me: PeerId, held_out: u32) -> Option<(Range<u32>, f64)> {
        let (share, pending) = (self.ledger.share_len(me), self.ledger.pending());
        if share == 0 || held_out == 0 {
            return None;
        }
        let others = self.ledger.shares().iter().take_while(|(peer, _)| *peer < me);
        let before: u32 = others.map(|(peer, _)| self.ledger.share_len(*peer)).sum();
        let cut = |at: u32| (u64::from(held_out) * u64::from(at) / u64::from(pending)) as u32;
        Some((cut(before)..cut(before + share), f64::from(pending) / f64::from(share)))
    }

    /// Whether the run has ended with the present state, be it before its last step.
    pub fn is_over(&self) -> bool {
        self.step >= self.manifest.steps || self.best.as_ref().is_some_and(Best::is_over)
    }

    /// The samples that are done, and who computes those of the next step.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The last step applied; 0 before the first one.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// The view in which that step was committed.
    pub fn lineage(&self) -> Lineage {
        self.lineage
    }

    /// As [`StateReplica::begin`](crate::StateReplica::begin): assigns the samples of step 1.
    ///
    /// # Panics
    /// If `members` are not those of a view: sorted and distinct.
    pub fn begin(&mut self, members: &[PeerId]) -> bool {
        if self.step > 0 {
            return false;
        }
        let mut ledger = Ledger::new(self.ledger.seed(), self.ledger.samples(), self.ledger.batch_size())
            .with_micro_batch(self.ledger.micro_batch())
            .with_shuffle(self.ledger.shuffle());
        ledger.assign(members);
        let has_changed = ledger != self.ledger;
        if has_changed {
            self.forget_staged();
        }
        self.ledger = ledger;
        has_changed
    }

    /// The result of a step that `me` takes alone in its view, from the gradient of its share: what a ring of one would reduce.
    pub fn reduce_alone(&self, gradient: &Gradient, me: PeerId, speed: u32) -> ResultRecord {
        let (values, weight) = (gradient.values(), gradient.weight());
        let speed = if gradient.has_given_up() { GAVE_UP } else { speed };
        contribution::alone(self.ledger.step(), values, weight, self.manifest.batch_size, me, speed)
    }

    /// A copy of the replicated state, which costs nothing yet: it shares its vectors with this one until the next update,
    /// which copies those that are still shared then.
    pub fn state(&self) -> ReplicatedState {
        ReplicatedState {
            run: self.run,
            step: self.step,
            lineage: self.lineage,
            parameters: self.parameters.clone(),
            frozen: self.frozen.clone(),
            moments: self.moments(),
            scalars: self.scalars(),
            ledger: self.ledger.clone(),
        }
    }

    /// The digest of the replicated state, as of [`ReplicatedState::digest`].
    pub fn digest(&self) -> Digest {
        StateView {
            run: self.run,
            step: self.step,
            parameters: &self.parameters,
            frozen: &self.frozen,
            moments: &self.moments(),
            scalars: &self.scalars(),
            ledger: &self.ledger,
        }
        .digest()
    }

    /// The optimizer's vectors, and the best model. They are shared.
    fn moments(&self) -> Vec<Arc<Vec<f32>>> {
        self.optimizer.moments().iter().chain(self.best.as_ref().and_then(Best::values)).cloned().collect()
    }

    /// The optimizer's scalars, and what else is known.
    fn scalars(&self) -> Vec<f64> {
        let of_scale = self.loss_scale.into_iter().flat_map(LossScale::scalars);
        let of_best = self.best.iter().flat_map(Best::scalars);
        self.optimizer.scalars().iter().copied().chain(of_scale).chain(of_best).collect()
    }

    /// Replaces the replicated state.
    ///
    /// # Errors
    /// If the state is of another run, has other lengths or another ledger than this run's, or a number that is not
    /// finite. Nothing has changed then.
    pub fn load(&mut self, state: ReplicatedState) -> Result<(), Error> {
        if state.run != self.run {
            return Err(Error::OtherRun { ours: self.run, theirs: state.run });
        }
        let lengths = |parameters: usize, moments: &[usize], scalars: usize| {
            format!("{parameters} parameters, moments of {moments:?} and {scalars} scalars")
        };
        let spec = self.manifest.optimizer;
        let expected = lengths(
            self.parameters.len(),
            &vec![self.parameters.len(); self.manifest.moments()],
            self.manifest.scalars(),
        );
        let moments: Vec<usize> = state.moments.iter().map(|moment| moment.len()).collect();
        let found = lengths(state.parameters.len(), &moments, state.scalars.len());
        if expected != found {
            return Err(Error::OtherShape { step: state.step, expected, found });
        }
        state.check_ledger()?;
        let order = |ledger: &Ledger| {
            let (seed, samples, batch_size) = (ledger.seed(), ledger.samples(), ledger.batch_size());
            let batches = format!("a ledger of {samples} samples with seed {seed} and batches of {batch_size}");
            let batches = match ledger.micro_batch() {
                0 => batches,
                micro_batch => format!("{batches} in micro-batches of {micro_batch}"),
            };
            format!("{batches}, shuffled {}", ledger.shuffle())
        };
        let (expected, found) = (order(&self.ledger), order(&state.ledger));
        if expected != found {
            return Err(Error::OtherShape { step: state.step, expected, found });
        }
        state.check_numbers()?;
        // A run that begins with another one's state has the frozen parameters of that.
        let is_given = self.manifest.from.is_some() && state.frozen.len() == self.frozen.len();
        if state.frozen != self.frozen && !is_given {
            return Err(Error::OtherFrozen { step: state.step });
        }
        let ReplicatedState { mut moments, mut scalars, .. } = state;
        let mut others = scalars.split_off(spec.scalars());
        let of_best = others.split_off(others.len() - self.best.as_ref().map_or(0, |_| Best::SCALARS));
        let loss_scale = match self.loss_scale {
            None => None,
            Some(_) => Some(LossScale::restore(&others).ok_or(Error::OtherScale { step: state.step })?),
        };
        let best = match Terms::of(&self.manifest) {
            None => None,
            Some(terms) => {
                let kept = if terms.keeps_model() { moments.pop() } else { None };
                let values = kept.unwrap_or_default();
                let has_been = |best: &Best| best.found().is_none_or(|(step, _)| step <= state.step);
                let best = Best::restore(terms, values, &of_best).filter(has_been);
                Some(best.ok_or(Error::OtherBest { step: state.step })?)
            }
        };
        // An update leaves what is behind them alone, or writes zeros: the two are the same to the bit if there are zeros.
        let is_still = |moment: &Arc<Vec<f32>>| moment[self.trained()..].iter().all(|number| number.to_bits() == 0);
        if !moments.iter().all(is_still) {
            let [expected, found] =
                ["zeros", "numbers"].map(|what| format!("moments with {what} where nothing is trained"));
            return Err(Error::OtherShape { step: state.step, expected, found });
        }
        self.forget_staged();
        let groups = self.optimizer.groups().clone();
        self.optimizer = OptimizerState::restore(spec, moments, scalars).with_groups(groups);
        (self.best, self.loss_scale) = (best, loss_scale);
        (self.parameters, self.frozen) = (state.parameters, state.frozen);
        (self.step, self.lineage) = (state.step, state.lineage);
        self.ledger = state.ledger;
        Ok(())
    }
}
