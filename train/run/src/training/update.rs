//! How a step's result becomes the next state.

use std::borrow::Cow;
use std::sync::Arc;

use starling_collective::codec::kernel;
use starling_topology::PeerId;
use starling_topology::ledger::{GAVE_UP, STARVED, SYNCING, UNMEASURED};

use super::{StepReport, TrainingState};
use crate::error::Error;
use crate::manifest::Manifest;
use crate::manifest::balance::BalancePolicy;
use crate::manifest::schema::{Entry, LeafKind};
use crate::state::record::ResultRecord;
use crate::training::best::{Best, JudgedReport};
use crate::training::contribution;
use crate::training::held_out::{self, HeldOutReport, UnevaluatedReport};
use crate::training::optimizer::{ClipKind, StepError, StepFactors};
use crate::training::staged_update::StagedUpdate;

/// Where samples of a batch count less in the mean, they count nothing: what is divided by it would be lost in rounding.
const LEAST_COUNT: f32 = 1.0 / (1 << 20) as f32;

impl TrainingState {
    /// How many bytes [`Self::stage`] takes beside the state; `None` if it does nothing, because no part of an update can begin
    /// before the whole gradient is there.
    pub fn stage_bytes(&self) -> Option<u64> {
        StepFactors::ahead(&self.manifest, self.step + 1, 1.0, 0)?;
        Some(4 * self.parameters.len() as u64 * (1 + self.optimizer.moments().len() as u64))
    }

    /// As [`Learner::stage`](crate::Learner::stage).
    pub fn stage(&mut self, members: &[PeerId], start: usize, part: &[f32]) {
        let is_finite = kernel::first_non_finite(part).is_none();
        if start == self.trained() {
            self.forget_staged();
            let reduced = self.manifest.reduced();
            if is_finite && self.ledger.is_assigned() && part.len() == reduced.buffer(members.len()).exact() {
                let (figures, slots) = part.split_at(reduced.figures);
                let (_, weight, scale) = self.weigh(members, figures, slots);
                let factors = StepFactors::ahead(&self.manifest, self.step + 1, scale, self.falls())
                    .filter(|_| weight > 0 && scale.is_finite());
                let sizes = [self.trained(), self.parameters.len()];
                let (optimizer, update_buffers) = (&self.optimizer, &mut self.update_buffers);
                self.staged_update =
                    factors.map(|factors| StagedUpdate::new(sizes, optimizer, factors, std::mem::take(update_buffers)));
            }
        } else if let Some(staged_update) = &mut self.staged_update
            && is_finite
            && staged_update.from() == start + part.len()
        {
            staged_update.prepend(&self.parameters, &self.optimizer, part);
        }
    }

    /// Where what is drafted begins; `None` if nothing is.
    pub fn staged_from(&self) -> Option<usize> {
        self.staged_update.as_ref().map(StagedUpdate::from)
    }

    /// As [`Learner::forget_staged`](crate::Learner::forget_staged).
    pub fn forget_staged(&mut self) {
        if let Some(staged_update) = self.staged_update.take() {
            self.update_buffers = staged_update.forget();
        }
    }

    /// Applies the committed step, as [`Learner::apply_staged`](crate::Learner::apply_staged). The parameters have changed if
    /// [samples were contributed](StepReport::samples) and the update was not [skipped](StepReport::skipped).
    ///
    /// # Errors
    /// If the record is of another step, of another length, or of no view; the state is then as before.
    pub fn apply_staged(&mut self, record: &ResultRecord) -> Result<StepReport, Error> {
        let staged_update = self.staged_update.take();
        let step = self.step + 1;
        if record.step != step {
            return Err(Error::OtherStep { expected: step, found: record.step });
        }
        let reduced = self.manifest.reduced();
        record.check(reduced)?;
        // The first step is assigned to those who reduce it, and whoever fetches its result may not be one of them.
        self.begin(&record.members);
        let (gradients, rest) = record.mean.split_at(reduced.trained);
        let (figures, slots) = rest.split_at(reduced.figures);
        let running = &figures[1..=self.manifest.running()];
        let (speeds, weight, scale) = self.weigh(&record.members, figures, slots);
        let who_gave_up = record.members.iter().zip(&speeds).filter(|(_, speed)| **speed == GAVE_UP);
        let given_up: Vec<_> = who_gave_up.map(|(member, _)| (*member, self.ledger.share_len(*member))).collect();
        let is_starved = speeds.contains(&STARVED);
        // Who gives up or is starved brings zeros. Another sum shows that somebody is said to have done so who has not.
        let is_denied = weight == 0 && record.mean[..reduced.elements()].iter().any(|number| *number != 0.0);
        // A rate that falls for it does so from the next step on: this one may have begun.
        let falls = self.falls();
        let (evaluated, unevaluated) = match self.evaluation(&record.members, &speeds, figures, weight) {
            None => (None, None),
            Some(Ok(report)) => (Some(report), None),
            Some(Err(report)) => (None, Some(report)),
        };
        let judged = evaluated.as_ref().and_then(|report| self.judge(report.loss));
        let is_rescaled = self
            .loss_scale
            .as_mut()
            .is_some_and(|scale| scale.follow(given_up.iter().any(|(_, samples)| *samples > 0)));
        // None of the rows that were dealt counts, as rare ones may: there is nothing to learn, and nothing wrong.
        let counts_nothing = given_up.is_empty() && self.counted(figures, weight) == Some(0.0);
        let skipped = match weight {
            _ if counts_nothing => None,
            0 if given_up.is_empty() && !(is_starved && is_denied) => None,
            0 if is_denied => {
                Some("all who computed a share of it are said to have given up or lacked data, and have not".to_owned())
            }
            // Nobody is to blame: with half the scale, the same samples come again.
            0 if is_rescaled => None,
            weight if weight > 0 && !scale.is_finite() => {
                Some("the samples that were contributed count nothing".to_owned())
            }
            0 => Some("whoever computed a share of it came to numbers that no contribution may have".to_owned()),
            _ => self.update(staged_update, gradients, running, scale, falls).err().map(|unfit| self.unfit(unfit)),
        };
        // Nobody rests for what it has not said.
        let speeds = retried(speeds, is_rescaled, is_denied);
        let ledger = &mut self.ledger;
        let committed = match skipped {
            Some(_) if !is_denied => ledger.skip(step, &record.members, &speeds),
            _ => ledger.commit(step, &record.members, &speeds),
        };
        (self.step, self.lineage) = (step, record.lineage);
        // It moves nothing, so it need not be held back.
        Ok(StepReport {
            step,
            loss: self.mean_loss(figures[0], weight, scale),
            samples: weight,
            epoch: committed.epoch,
            contributions: committed.contributions,
            returned: committed.returned,
            speeds: self.told(slots),
            skipped,
            given_up,
            dropped: committed.dropped,
            evaluated,
            unevaluated,
            judged,
            rescaled: is_rescaled.then(|| self.loss_scale()),
        })
    }

    /// What the present state comes to on held-out samples, as was reduced with the step after it, or whose part of that is missing; `None` if it is not
    /// evaluated.
    fn evaluation(
        &self,
        members: &[PeerId],
        speeds: &[u32],
        figures: &[f32],
        weight: u64,
    ) -> Option<Result<HeldOutReport, UnevaluatedReport>> {
        let names = &self.manifest.evaluation.as_ref().filter(|_| self.is_judged())?.measures;
        let step = self.step;
        if weight == 0 || weight < self.ledger.pending().into() {
            let has_told = |peer: &PeerId| {
                let said = members.iter().position(|member| member == peer).and_then(|at| speeds.get(at));
                said.is_some_and(|word| !matches!(*word, SYNCING | GAVE_UP | STARVED))
            };
            let shares = self.ledger.shares().iter().filter(|(_, share)| !share.is_empty());
            let missing = shares.map(|(peer, _)| *peer).filter(|peer| !has_told(peer)).collect();
            return Some(Err(UnevaluatedReport { step, missing }));
        }
        let told = figures.get(figures.len() - self.manifest.held_out_figures()..)?;
        let range = held_out::MeasureLimit::of(&self.manifest);
        let means: Vec<f64> = told.iter().map(|figure| range.read(self.mean(*figure, weight))).collect();
        let (loss, measures) = means.split_first()?;
        let measures = names.iter().cloned().zip(measures.iter().copied()).collect();
        Some(Ok(HeldOutReport { step, loss: *loss, measures }))
    }

    /// Judges the present state by this held-out loss, if something goes by that.
    fn judge(&mut self, loss: f64) -> Option<JudgedReport> {
        // What was reduced are such numbers: nothing is rounded.
        let loss = loss as f32;
        let mut best = self.best.take();
        let model = || match self.model() {
            Cow::Borrowed(_) => self.parameters.clone(),
            Cow::Owned(average) => Arc::new(average),
        };
        let report = best.as_mut().map(|best| best.judge(self.step, loss, model));
        self.best = best;
        report
    }

    /// How often the learning rate has fallen because the held-out loss had not.
    fn falls(&self) -> u32 {
        self.best.as_ref().map_or(0, Best::falls)
    }

    /// The mean loss over what was contributed, as members weigh it.
    fn mean_loss(&self, figure: f32, weight: u64, scale: f32) -> f32 {
        match (self.manifest.weighted && weight > 0, scale.is_finite()) {
            (true, true) => Some(figure * scale).filter(|loss| loss.is_finite()).unwrap_or(f32::MAX),
            (true, false) => 0.0,
            (false, _) => self.mean(figure, weight),
        }
    }

    /// A figure over the samples that were contributed; 0 if none were.
    fn mean(&self, figure: f32, weight: u64) -> f32 {
        let mean = if weight == 0 { 0.0 } else { figure * self.manifest.batch_size as f32 / weight as f32 };
        if mean.is_finite() { mean } else { f32::MAX }
    }

    /// Updates the state as far as that was not drafted; nothing changes if it would not be finite. What runs along changes by the mean of what
    /// members came to: whatever does not change here and there is the same to the bit.
    fn update(
        &mut self,
        staged_update: Option<StagedUpdate>,
        gradients: &[f32],
        changes: &[f32],
        scale: f32,
        falls: u32,
    ) -> Result<(), StepError> {
        let trained = gradients.len();
        let before = &self.parameters[trained..];
        let running: Vec<f32> = before.iter().zip(changes).map(|(number, change)| number + change * scale).collect();
        if let Some(at) = kernel::first_non_finite(&running) {
            self.update_buffers = staged_update.map(StagedUpdate::forget).unwrap_or_default();
            return Err(StepError { what: "running value", at: trained + at });
        }
        self.update_trained(staged_update, gradients, scale, falls)?;
        if !running.is_empty() {
            Arc::make_mut(&mut self.parameters)[trained..].copy_from_slice(&running);
        }
        Ok(())
    }

    fn update_trained(
        &mut self,
        staged_update: Option<StagedUpdate>,
        gradients: &[f32],
        scale: f32,
        falls: u32,
    ) -> Result<(), StepError> {
        let apart = self.clipped_apart(gradients, scale);
        let (gradients, scale) = apart.as_deref().map_or((gradients, scale), |clipped| (clipped, 1.0));
        let factors = StepFactors::of(&self.manifest, self.step + 1, gradients, scale, falls);
        if let Some(mut staged_update) = staged_update {
            assert_eq!(staged_update.factors(), factors, "invariant: only the record's own parts are drafted");
            staged_update.prepend(&self.parameters, &self.optimizer, &gradients[..staged_update.from()]);
            let is_finite = staged_update.is_finite();
            self.update_buffers = match is_finite {
                true => staged_update.commit(&mut self.parameters, &mut self.optimizer),
                false => staged_update.forget(),
            };
            if is_finite {
                return Ok(());
            }
        }
        // What was drafted in vain comes to the same here, and to what it was.
        self.optimizer.step(&mut Arc::make_mut(&mut self.parameters)[..gradients.len()], gradients, factors)
    }

    /// The mean gradient where its tensors or its numbers are clipped by themselves; `None` where they are not.
    fn clipped_apart(&self, gradients: &[f32], scale: f32) -> Option<Vec<f32>> {
        let Manifest { clip, clip_by, .. } = &self.manifest;
        let most = clip.filter(|_| *clip_by != ClipKind::Norm)?;
        let trained = self.schema.entries().iter().filter(|entry| entry.kind == LeafKind::Trained);
        Some(clip_by.apart(gradients, scale, most, trained.map(Entry::elements)))
    }

    fn unfit(&self, StepError { what, at }: StepError) -> String {
        format!("the {what} of `{}` would not be finite", self.schema.path_at(at))
    }

    /// What slots say: the speeds, how many samples were contributed to the pending step, and what makes of the result their
    /// mean, as the ring divided by a full batch; 1 if it was one. See [`contribution::scale`]. Where samples do not count alike, the figures have
    /// what all that were contributed count, over the same batch; infinite if that is nothing.
    fn weigh(&self, members: &[PeerId], figures: &[f32], slots: &[f32]) -> (Vec<u32>, u64, f32) {
        let speeds = self.speeds(slots);
        let weight = self.ledger.total(members, &speeds);
        let scale = match self.counted(figures, weight) {
            Some(counted) if counted >= LEAST_COUNT => 1.0 / counted,
            Some(_) => f32::INFINITY,
            None => contribution::scale(self.manifest.batch_size, weight, self.ledger.pending()),
        };
        (speeds, weight, scale)
    }

    /// What the samples that were contributed count, over a batch, where they do not count alike.
    fn counted(&self, figures: &[f32], weight: u64) -> Option<f32> {
        figures.get(1 + self.manifest.running()).copied().filter(|_| self.manifest.weighted && weight > 0)
    }

    /// What members say. Where nobody lacks data, nobody is taken for one who does.
    fn told(&self, slots: &[f32]) -> Vec<u32> {
        let mut speeds = contribution::speeds(slots, self.manifest.batch_size);
        if !self.manifest.can_arrive() {
            speeds.iter_mut().for_each(|speed| *speed = (*speed).min(GAVE_UP));
        }
        speeds
    }

    /// The speeds that the ledger is told: with equal shares, only who is ready.
    fn speeds(&self, slots: &[f32]) -> Vec<u32> {
        let speeds = self.told(slots);
        match self.manifest.balance {
            BalancePolicy::Speed => speeds,
            BalancePolicy::Equal => speeds.into_iter().map(equal).collect(),
        }
    }
}

/// Who gave up where the scale is to blame brought zeros, as who is not ready does, whose samples come again however often that is. So did who is
/// said to be starved, if that `is_denied`.
fn retried(speeds: Vec<u32>, is_rescaled: bool, is_denied: bool) -> Vec<u32> {
    let is_taken_back = |speed| (is_rescaled && speed == GAVE_UP) || (is_denied && speed == STARVED);
    speeds.into_iter().map(|speed| if is_taken_back(speed) { SYNCING } else { speed }).collect()
}

/// What matters of a speed where shares are equal.
fn equal(speed: u32) -> u32 {
    if matches!(speed, SYNCING | GAVE_UP | STARVED) { speed } else { UNMEASURED }
}
