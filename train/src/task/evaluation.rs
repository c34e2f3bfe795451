//! How good a model is on some samples, by what it puts out for them.

use std::io;

use burn::tensor::Device;

use crate::network::Network;
use crate::task::MeasureError;
use crate::task::classification::Batch;
use starling_data::SampleSet;
use starling_run::LossKind;
use starling_run::data::LabelScale;

/// Samples per forward pass, if they are rows: bounds the memory that it needs.
pub(crate) const AT_ONCE: u32 = 512;
/// A measure whose sums are of logarithms: it is the exponential of their mean.
pub(crate) const PERPLEXITY: &str = "perplexity";
/// A measure that is the quotient of two sums, where the other one is there.
pub(crate) const BITS_PER_BYTE: &str = "bits_per_byte";
/// A measure whose sums are of squares: it is the root of their mean.
const ROOT_MEAN_SQUARE: &str = "rmse";
/// How many of the largest logits are looked at besides the largest one, where there are more classes.
const TOP: usize = 5;
/// By what it is divided.
pub(crate) const BYTES_PER_TOKEN: &str = "bytes_per_token";

/// [`classified`] of the samples at these places.
pub(crate) fn measure(
    network: &Network,
    samples: &SampleSet,
    places: &[u32],
    weights: Option<Vec<f32>>,
    device: &Device,
) -> Result<Vec<(&'static str, f64)>, MeasureError> {
    let (rows, labels) = samples.read(places).map_err(io::Error::other)?;
    let logits = network.forward(Batch::new(rows, &labels, device).rows).try_into_data()?;
    let logits = logits.as_slice::<f32>().expect("invariant: every device computes in f32");
    Ok(classified(logits, labels.iter().copied(), &counts(weights, labels.len())))
}

/// What each of so many samples counts: 1, if that is not said.
pub(crate) fn counts(weights: Option<Vec<f32>>, samples: usize) -> Vec<f64> {
    weights.map_or_else(|| vec![1.0; samples], |weights| weights.into_iter().map(f64::from).collect())
}

/// Sums over samples with these logits and labels, each as much as it counts: cross-entropy, in nats, as `loss`; how many have their label's logit as
/// the [`largest`], as `accuracy`; and, of more than five classes, as one of the five largest, as `top_5_accuracy`. Computed in f64 on the CPU.
pub(crate) fn classified(
    logits: &[f32],
    labels: impl ExactSizeIterator<Item = u32>,
    counts: &[f64],
) -> Vec<(&'static str, f64)> {
    let classes = logits.len() / labels.len();
    let (mut loss, mut hits, mut near_hits) = (0.0, 0.0, 0.0);
    let counted = |is_hit: bool, counts: f64| if is_hit { counts } else { 0.0 };
    for ((logits, label), counts) in logits.chunks_exact(classes).zip(labels).zip(counts.iter().copied()) {
        let (label, largest) = (label as usize, largest(logits));
        let (top, sum) = exponentials(logits, largest);
        loss += (sum.ln() + top - f64::from(logits[label])) * counts;
        hits += counted(largest == label, counts);
        // Of equal ones the first ones are larger.
        let (before, behind) = logits.split_at(label);
        let larger = before.iter().filter(|logit| **logit >= logits[label]).count();
        let larger = larger + behind.iter().filter(|logit| **logit > logits[label]).count();
        // What is no number is larger than nothing, and hits nothing.
        near_hits += counted(larger < TOP && !logits[label].is_nan(), counts);
    }
    let mut sums = vec![("loss", loss), ("accuracy", hits)];
    sums.extend((classes > TOP).then_some(("top_5_accuracy", near_hits)));
    sums
}

/// What [`classified`] sums besides the loss, of so many classes.
pub(crate) fn of_classes(classes: usize) -> Vec<&'static str> {
    ["accuracy"].into_iter().chain((classes > TOP).then_some("top_5_accuracy")).collect()
}

/// What [`estimated`] sums besides the loss, of so many columns.
pub(crate) fn of_numbers(columns: usize) -> Vec<&'static str> {
    if columns == 1 { vec!["absolute_error", ROOT_MEAN_SQUARE, "r2"] } else { vec!["r2"] }
}

/// What [`marked`] sums besides the loss.
pub(crate) const OF_MARKS: [&str; 2] = ["accuracy", "exact_match"];

/// Sums over samples, each as much as it counts, with these outputs, one for each column of labels, and these labels, which are scaled for training: the loss as `loss`, of what is scaled; how
/// far off the labels are as `absolute_error`, and the square of that as `rmse`; and as `r2` 1 less this square by the variance of those to
/// train on. Of several columns they are means over these, without distances, since each has a unit of its own. Computed in f64 on the CPU.
pub(crate) fn estimated(
    outputs: &[f32],
    labels: &[f64],
    scales: &[LabelScale],
    loss: LossKind,
    counts: &[f64],
) -> Vec<(&'static str, f64)> {
    let columns = scales.len() as f64;
    let (mut losses, mut distances, mut squares, mut explained) = (0.0, 0.0, 0.0, 0.0);
    let of_labels = outputs.iter().zip(labels).zip(scales.iter().cycle());
    let counts = counts.iter().flat_map(|counts| std::iter::repeat_n(*counts, scales.len()));
    for (((output, label), scale), counts) in of_labels.zip(counts) {
        let off = scale.scaled(*label) - f64::from(*output);
        let distance = off.abs();
        losses += counts
            * match loss {
                LossKind::Squared => off * off,
                LossKind::Absolute => distance,
                LossKind::Huber if distance <= 1.0 => off * off / 2.0,
                LossKind::Huber => distance - 0.5,
                LossKind::Quantile(share) => f64::max(share * off, (share - 1.0) * off),
            };
        distances += counts * (distance * scale.deviation);
        squares += counts * (distance * scale.deviation).powi(2);
        explained += counts * (1.0 - off * off);
    }
    match scales {
        [_] => vec![("loss", losses), ("absolute_error", distances), (ROOT_MEAN_SQUARE, squares), ("r2", explained)],
        _ => vec![("loss", losses / columns), ("r2", explained / columns)],
    }
}

/// Sums over samples, each as much as it counts, with these outputs, one for each of so many labels, and marks of 1 where a sample has it and 0 elsewhere: mean cross-entropy of a label, in nats, as `loss`, which
/// share of the labels is said as it is as `accuracy`, and of how many samples all are as `exact_match`. Computed in f64 on the CPU.
pub(crate) fn marked(outputs: &[f32], marks: &[f64], labels: usize, counts: &[f64]) -> Vec<(&'static str, f64)> {
    let (mut loss, mut hits, mut exact) = (0.0, 0.0, 0.0);
    for ((outputs, marks), counts) in outputs.chunks_exact(labels).zip(marks.chunks_exact(labels)).zip(counts) {
        let right = outputs.iter().zip(marks).filter(|(output, mark)| is_marked(**output) == (**mark > 0.5)).count();
        hits += counts * right as f64 / labels as f64;
        exact += counts * f64::from(u8::from(right == labels));
        let of_label = |(output, mark): (&f32, &f64)| {
            let output = f64::from(*output);
            output.max(0.0) - output * mark + (-output.abs()).exp().ln_1p()
        };
        loss += counts * outputs.iter().zip(marks).map(of_label).sum::<f64>() / labels as f64;
    }
    vec![("loss", loss), ("accuracy", hits), ("exact_match", exact)]
}

/// How probable it is that a sample has a label of which this is put out, in f64.
pub(crate) fn logistic(output: f32) -> f64 {
    1.0 / (1.0 + (-f64::from(output)).exp())
}

/// Whether this output says that a sample has the label.
pub(crate) fn is_marked(output: f32) -> bool {
    output > 0.0
}

/// The place of the largest logit, the first of equal ones: the class that is predicted.
pub(crate) fn largest(logits: &[f32]) -> usize {
    logits.iter().enumerate().fold(0, |best, (at, logit)| if *logit > logits[best] { at } else { best })
}

/// How probable each class is: the softmax of the logits, in f64.
pub(crate) fn probabilities(logits: &[f32]) -> Vec<f64> {
    let (top, sum) = exponentials(logits, largest(logits));
    logits.iter().map(|logit| (f64::from(*logit) - top).exp() / sum).collect()
}

/// The largest logit, and the sum of what all are to it, as exponentials.
fn exponentials(logits: &[f32], largest: usize) -> (f64, f64) {
    let top = f64::from(logits[largest]);
    (top, logits.iter().map(|logit| (f64::from(*logit) - top).exp()).sum())
}

/// Sums over samples, by name, batch after batch.
#[derive(Debug, Default)]
pub(crate) struct Sums(Vec<(&'static str, f64)>);

impl Sums {
    /// Adds those of a batch.
    pub(crate) fn add(&mut self, of_batch: Vec<(&'static str, f64)>) {
        for (name, sum) in of_batch {
            match self.0.iter_mut().find(|(known, _)| *known == name) {
                Some((_, total)) => *total += sum,
                None => self.0.push((name, sum)),
            }
        }
    }

    /// What is summed under this name; `None` if nothing is.
    pub(crate) fn sum(&self, name: &str) -> Option<f64> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, sum)| *sum)
    }

    /// The means over so many samples, or over what these count.
    pub(crate) fn mean(self, count: f64) -> starling_run::EvaluationReport {
        let samples = count as u64;
        // Without samples there is nothing to divide by.
        let count = if count > 0.0 { count } else { 1.0 };
        let bytes = self.sum(BYTES_PER_TOKEN);
        let mean = |name, sum: f64| match name {
            PERPLEXITY => (sum / count).exp(),
            ROOT_MEAN_SQUARE => (sum / count).sqrt(),
            // Of tokens that spell nothing there is no number.
            BITS_PER_BYTE => sum / bytes.unwrap_or(count),
            _ => sum / count,
        };
        let (losses, measures): (Vec<_>, Vec<_>) =
            self.0.into_iter().map(|(name, sum)| (name, mean(name, sum))).partition(|(name, _)| *name == "loss");
        let loss = losses.first().map_or(0.0, |(_, loss)| *loss);
        starling_run::EvaluationReport { loss, measures, samples }
    }
}

#[cfg(test)]
mod tests {
    use burn::module::Module;

    use super::*;
    use crate::network::LayerSpec;
    use crate::network::flatten::write_parameters;

    fn softmax(parameters: &[f32]) -> (Network, Device) {
        let device = Device::flex();
        let autodiff = device.clone().autodiff();
        let network = Network::new(&LayerSpec::default(), [1, 1, 1], 3, &autodiff);
        (write_parameters(network, parameters, &autodiff), device)
    }

    /// Of all samples.
    fn measured(network: &Network, device: &Device, samples: &SampleSet) -> [f64; 2] {
        let places: Vec<u32> = (0..samples.len() as u32).collect();
        let sums = measure(&network.valid(), samples, &places, None, device).expect("computed");
        assert_eq!(sums.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["loss", "accuracy"]);
        [sums[0].1, sums[1].1]
    }

    #[test]
    fn loss_and_accuracy_are_those_of_the_logits() {
        // The logits of x are (x, 0, -x).
        let (network, device) = softmax(&[1.0, 0.0, -1.0, 0.0, 0.0, 0.0]);
        // For 2: class 0 wins. For -3: class 2 wins. For 0: all are equal, so the first is taken.
        let [loss, hits] = measured(&network, &device, &SampleSet::new(1, vec![2.0, -3.0, 0.0, 0.0], vec![0, 1, 0, 2]));
        let sum = |x: f64| x.exp() + 1.0 + (-x).exp();
        let expected = sum(2.0).ln() - 2.0 + sum(3.0).ln() + 2.0 * 3.0_f64.ln();
        assert!((loss - expected).abs() < 1e-12, "{loss} instead of {expected}");
        assert_eq!(hits, 2.0);
    }

    #[test]
    fn a_hit_near_by_is_one_of_the_five_largest_and_errors_are_in_the_units_of_labels() {
        let rows = [[6.0, 5.0, 4.0, 3.0, 2.0, 1.0, 0.0], [0.0; 7]].concat();
        let near = |labels: [u32; 2]| classified(&rows, labels.into_iter(), &[1.0; 2])[2];
        assert_eq!(near([4, 4]), ("top_5_accuracy", 2.0));
        assert_eq!(near([5, 5]), ("top_5_accuracy", 0.0), "of equal ones the first five");
        assert_eq!(classified(&rows[..5], [1].into_iter(), &[1.0]).len(), 2, "five of five are always hit");
        let scale = LabelScale { mean: 10.0, deviation: 2.0 };
        let mut sums = Sums::default();
        sums.add(estimated(&[0.0, 0.0], &[13.0, 6.0], &[scale], LossKind::Squared, &[1.0; 2]));
        let evaluation = sums.mean(2.0);
        let measure = |name| evaluation.measure(name).expect("measured");
        assert!((measure("rmse") - 12.5_f64.sqrt()).abs() < 1e-12 && measure("absolute_error") == 3.5);
    }

    /// Of windows whose tokens are of unlike lengths, it is not the mean of what it is for each.
    #[test]
    fn bits_are_divided_by_all_bytes_together() {
        let mut sums = Sums::default();
        for (bits, bytes) in [(3.0, 1.0), (5.0, 4.0)] {
            sums.add(vec![("loss", bits * 2.0_f64.ln()), (BITS_PER_BYTE, bits), (BYTES_PER_TOKEN, bytes)]);
        }
        let evaluation = sums.mean(2.0);
        let measure = |name| evaluation.measure(name).expect("measured");
        assert_eq!((measure(BITS_PER_BYTE), measure(BYTES_PER_TOKEN)), (8.0 / 5.0, 2.5));
    }

    #[test]
    fn large_logits_do_not_overflow() {
        let (network, device) = softmax(&[1000.0, 0.0, -1000.0, 0.0, 0.0, 0.0]);
        let labels = (0..7).map(|at| if at == 6 { 1 } else { 0 }).collect();
        let [loss, hits] = measured(&network, &device, &SampleSet::new(1, vec![1.0; 7], labels));
        assert!((loss - 1000.0).abs() < 1e-9, "{loss}");
        assert_eq!(hits, 6.0);
    }
}
