//! Whoever computes for a member: what the runtime drives, whatever is learned, and on whatever it is computed.
//!
//! ```text
//!   compute:  my share of the pending step -> a gradient, block by block; its loss                                 (local)
//!   ...       members sum their gradients and divide by the batch size                                          (not here)
//!   apply:    the result -> the next state                                                    (same bits on all)
//! ```

use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use starling_topology::{Ledger, Lineage, PeerId};
use thiserror::Error;

use crate::data::{DataSummary, PreprocessingSpec};
use crate::error::Error;
use crate::manifest::Manifest;
use crate::state::ReplicatedState;
use crate::state::record::ResultRecord;
use crate::training::StepReport;
use crate::training::gradient::Gradient;

/// What all members of a run hold alike after each step, in one member's hands.
pub trait StateReplica: Send {
    /// The last step applied; 0 before the first one.
    fn step(&self) -> u64;

    /// The view in which that step was committed.
    fn lineage(&self) -> Lineage;

    /// Prepares the first step for `members`, those of the view that is about to take it: all of them have to begin alike.
    /// Until that step is committed, each view begins anew; after it, nothing happens. Says whether what was computed before is
    /// of no use now, and a snapshot of step 0 neither.
    ///
    /// # Panics
    /// If `members` are not those of a view: sorted and distinct.
    fn begin(&mut self, members: &[PeerId]) -> bool;

    /// A copy of the replicated state.
    fn state(&self) -> ReplicatedState;

    /// The digest of the replicated state, as of [`ReplicatedState::digest`].
    fn digest(&self) -> starling_topology::Digest {
        self.state().digest()
    }

    /// The hash of the state's values, as of [`ReplicatedState::values`].
    fn values(&self) -> starling_topology::Digest {
        self.state().values()
    }

    /// Replaces the replicated state.
    ///
    /// # Errors
    /// If it is of another run, or does not fit this one. Nothing has changed then.
    fn load(&mut self, state: ReplicatedState) -> Result<(), Error>;
}

/// A member's part in a run that trains: gradients out, averaged gradients in.
pub trait Learner: StateReplica + fmt::Debug {
    /// The run's manifest.
    fn manifest(&self) -> &Manifest;

    /// The samples that are done, and who computes those of the next step.
    fn ledger(&self) -> &Ledger;

    /// What computes, for people.
    fn device(&self) -> &str;

    /// What is known of the data.
    fn notes(&self) -> &DataRecord;

    /// Takes the run's preprocessing instead of this machine's, whose copy has the same values under other names.
    fn take_names(&mut self, preprocessing: PreprocessingSpec);

    /// What it makes of the run's first samples with its initial parameters, for others to compare: the mean loss over [`PROBED`] of them, by a
    /// module that is not in training. `None` if it comes to no number, or to another each time. As it is, nothing is compared.
    fn probe(&self) -> Option<f32> {
        None
    }

    /// Whether gradients come about in several blocks, so that a reduction can begin before all is computed.
    fn has_blocks(&self) -> bool;

    /// Computes the share of `me` of the pending step into `gradient`, which is empty, and returns how many samples it has.
    /// Blocks, the last ones first, are there as soon as they are computed; `progressed` is told each time from which position
    /// on. An empty share gives zeros and weight 0. The state does not change: who was interrupted may compute again, or
    /// contribute what it has.
    ///
    /// Numbers that no contribution may have are not taken in: what is missing then is [given up](Gradient::give_up), and
    /// [`Self::take_beyond`] tells why.
    ///
    /// # Errors
    /// If nothing is assigned yet, or it can't be computed here.
    fn compute(&mut self, me: PeerId, gradient: &Gradient, progressed: &mut dyn FnMut(usize)) -> Result<u64, Error>;

    /// As [`Self::compute`], over a part of a share of the pending step, all of it at once: these positions of the epoch's order. In their places
    /// are the figures of held-out samples, if a gradient has those, of what falls to `me`, which may be nothing.
    ///
    /// # Errors
    /// As [`Self::compute`].
    fn compute_part(&mut self, me: PeerId, positions: &[Range<u32>], gradient: &Gradient) -> Result<u64, Error>;

    /// Evaluates, if members evaluate the present state together, the part of the held-out samples that falls to `me`, for [`Self::compute`] to tell, and
    /// returns what that will: as many figures as the [manifest](Manifest::held_out_figures) says, or none. It asks before each batch whether it `goes_on`: if
    /// not, what it returns is of no use, and nothing is told of it. Without this it is a part of computing. As it is, there is nothing to do.
    ///
    /// # Errors
    /// If it can't be computed here.
    fn judge_while(&mut self, me: PeerId, goes_on: &dyn Fn() -> bool) -> Result<Vec<f32>, Error> {
        let _ = (me, goes_on);
        Ok(Vec::new())
    }

    /// Whether samples that `me` computes in the pending step are not on this machine yet; if it computes none, whether some that come soon are not.
    /// As it is, all are there.
    fn is_starved(&self, me: PeerId) -> bool {
        let _ = me;
        false
    }

    /// Whether all samples are on this machine by now, those that are held out among them. As it is, they are.
    fn has_all_data(&self) -> bool {
        true
    }

    /// What was wrong with the gradient that was computed last; `None` if nothing was.
    fn take_beyond(&mut self) -> Option<ContributionError>;

    /// Loads the samples that `me` computes next, as far as that can be told, while `members` reduce the pending step. If it
    /// comes otherwise, they are loaded when they are needed.
    fn load_ahead(&mut self, members: &[PeerId], me: PeerId);

    /// For how long nothing was done but to load samples since this was asked last: while members reduce, loading costs nothing. As it is, no
    /// time at all.
    fn take_loading(&mut self) -> Duration {
        Duration::ZERO
    }

    /// How many bytes [`Self::stage`] takes beside the state; `None` if it does nothing, because no part of an update can begin
    /// before the whole gradient is there.
    fn stage_bytes(&self) -> Option<u64>;

    /// Begins the update, beside the state, with a part of the pending step's result, which `members` are still reducing: the
    /// numbers from `start` on. Parts come from the end; the first one is all that is behind the gradient, and begins anew.
    /// What does not go on from the part before it is left to [`Self::apply_staged`].
    fn stage(&mut self, members: &[PeerId], start: usize, part: &[f32]);

    /// What was drafted is not of the step's result: that comes from another operation.
    fn forget_staged(&mut self);

    /// Applies the committed step: updates the state with what a view reduced, and assigns the next step. Members that apply
    /// the same record hold the same bits afterwards, on any hardware. If nobody contributed a sample, only the ledger changes.
    ///
    /// So it is if a number of the next state would not be finite: the update is dropped on all members, who see the same, and
    /// [`StepReport::skipped`] tells why. The ledger counts such steps, unless the result shows that they come of a lie.
    ///
    /// # Errors
    /// If the record is of another step, of another length, or of no view; the state is then as before.
    fn apply(&mut self, record: &ResultRecord) -> Result<StepReport, Error> {
        self.forget_staged();
        self.apply_staged(record)
    }

    /// [`Self::apply`] of a record whose parts were [staged](Self::stage): only what was not is left to do. The bits are the
    /// same.
    ///
    /// # Errors
    /// As [`Self::apply`].
    fn apply_staged(&mut self, record: &ResultRecord) -> Result<StepReport, Error>;

    /// Whether the run has ended with the present state: after its last step, or before, as all members find from the same state.
    fn is_over(&self) -> bool {
        self.step() >= self.manifest().steps
    }

    /// Computes what a step computes with a share of `share` samples, and what an evaluation does, all in vain: no step of the
    /// run is then the device's first. The state does not change, nor do the bits of any result.
    ///
    /// # Errors
    /// If it can't be computed here.
    fn warm_up(&mut self, share: u32) -> Result<(), Error>;

    /// How good the present model is on the held-out samples.
    ///
    /// # Errors
    /// If it can't be computed here.
    fn evaluate(&mut self) -> Result<EvaluationReport, Error> {
        Ok(self.evaluate_while(&|_, _| true)?.expect("invariant: it goes on until all is evaluated"))
    }

    /// The same as long as `goes_on`, which is asked before each batch, and told how many samples are evaluated, of how many; `None` if it says no
    /// before all are.
    ///
    /// # Errors
    /// If it can't be computed here.
    fn evaluate_while(&mut self, goes_on: &dyn Fn(u64, u64) -> bool) -> Result<Option<EvaluationReport>, Error>;

    /// The step after which the exported model was the present one, if the run keeps its best and that is an earlier one.
    fn best_step(&self) -> Option<u64> {
        None
    }

    /// As [`Self::evaluate_while`], of the model that is exported.
    ///
    /// # Errors
    /// If it can't be computed here.
    fn evaluate_outcome_while(
        &mut self,
        goes_on: &dyn Fn(u64, u64) -> bool,
    ) -> Result<Option<EvaluationReport>, Error> {
        self.evaluate_while(goes_on)
    }

    /// Writes the model to a file that other programs read: the best one so far, if the run keeps that. It appears whole or not at all.
    ///
    /// # Errors
    /// If it can't be written.
    fn export(&self, path: &Path) -> Result<(), Error>;
}

/// How many samples are looked at before a run is entered, if it has as many: the first ones.
pub const PROBED: u32 = 8;
/// By how much two machines' losses over them may differ, as a share of the larger: devices and releases differ in the last bits.
const PROBE_TOLERANCE: f32 = 1e-3;

/// A smaller loss may be the difference of larger numbers: it is compared as one of this size.
const LEAST_PROBE: f32 = 0.1;

/// Compares what this machine makes of the run's first samples with what a member does, if both came to a number.
///
/// # Errors
/// If they differ by more than devices do: then an equal manifest hides another loss, other batches or other data.
pub fn check_probe(ours: Option<f32>, theirs: Option<f32>) -> Result<(), Error> {
    match (ours, theirs.filter(|theirs| theirs.is_finite())) {
        (Some(ours), Some(theirs))
            if (ours - theirs).abs() > PROBE_TOLERANCE * ours.abs().max(theirs.abs()).max(LEAST_PROBE) =>
        {
            Err(Error::OtherProbe { ours, theirs })
        }
        _ => Ok(()),
    }
}

/// What is known of a run's data on this machine, for people and for exports.
#[derive(Debug, Clone, Default)]
pub struct DataRecord {
    /// What was understood of it; `None` of data that a program brings.
    pub summary: Option<DataSummary>,
    /// What was done to its values, and what its numbers stand for.
    pub preprocessing: Option<PreprocessingSpec>,
    /// What its user should look at before it is trained on, as sentences.
    pub warnings: Vec<String>,
}

/// How good a model is on samples that it was not trained on.
#[derive(Debug, Clone, PartialEq)]
pub struct EvaluationReport {
    /// The mean loss. 0 without samples.
    pub loss: f64,
    /// What else was measured, by name, as means over the samples.
    pub measures: Vec<(&'static str, f64)>,
    /// How many samples there were.
    pub samples: u64,
}

impl EvaluationReport {
    /// The mean of what is measured under this name; `None` if nothing is.
    pub fn measure(&self, name: &str) -> Option<f64> {
        self.measures.iter().find(|(known, _)| *known == name).map(|(_, mean)| *mean)
    }
}

/// A gradient that was computed here, and can't be contributed.
#[derive(Debug, Clone, PartialEq, Error)]
#[error(
    "step {step}: the {what} over the {samples} samples that this member computed is {value}, where contributions have at \
     most {most}: {}; check the data for extreme values", outcome(*is_whole)
)]
pub struct ContributionError {
    /// The step.
    pub step: u64,
    /// `loss`, or `gradient of` a parameter.
    pub what: String,
    /// What it is, as a mean over the samples.
    pub value: f32,
    /// The largest that it may be.
    pub most: f32,
    /// How many samples they are.
    pub samples: u64,
    /// Whether nothing of it has been contributed.
    pub is_whole: bool,
}

fn outcome(is_whole: bool) -> &'static str {
    if is_whole {
        "it brings zeros, and the samples are given back"
    } else {
        "it brings zeros for this layer and those before it"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_loss_is_told_from_another_device() {
        let is_alike = |ours, theirs| check_probe(ours, theirs).is_ok();
        for (ours, theirs) in [(2.0, 2.0), (2.0, 2.0019), (0.0, 9e-5), (-1e30, -1.0005e30)] {
            assert!(is_alike(Some(ours), Some(theirs)) && is_alike(Some(theirs), Some(ours)), "{ours} and {theirs}");
        }
        for (ours, theirs) in [(2.0, 2.003), (0.0, 2e-4), (1.0, -1.0), (1e-3, f32::MAX)] {
            assert!(!is_alike(Some(ours), Some(theirs)) && !is_alike(Some(theirs), Some(ours)), "{ours} and {theirs}");
        }
        // A keeper says nothing, and a stranger what it likes.
        for theirs in [None, Some(f32::NAN), Some(f32::INFINITY)] {
            assert!(is_alike(Some(1.0), theirs) && is_alike(None, theirs));
        }
    }
}
