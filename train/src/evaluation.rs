//! How good a model is on samples it was not trained on.

use burn::module::Module;
use burn::tensor::{Device, ExecutionError};
use serde::{Deserialize, Serialize};

use crate::batch::Batch;
use crate::data::Samples;
use crate::network::Network;

/// Samples per forward pass: bounds the memory that an evaluation needs.
const BATCH: usize = 512;

/// Loss and accuracy over some samples.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// Mean cross-entropy, in nats. 0 without samples.
    pub loss: f64,
    /// Share of samples whose largest logit is their label's, the first of equal ones. 0 without samples.
    pub accuracy: f64,
    /// How many samples there were.
    pub samples: u64,
}

/// Evaluates `network` on all `samples`, in their order. Computed from the logits in f64 on the CPU. Each batch is told of when
/// it begins.
pub(crate) fn evaluate(
    network: &Network,
    samples: &Samples,
    device: &Device,
    begins: impl Fn(),
) -> Result<Evaluation, ExecutionError> {
    let network = network.valid();
    let indices: Vec<u32> = (0..samples.len() as u32).collect();
    let (mut loss, mut hits) = (0.0, 0_u64);
    for indices in indices.chunks(BATCH) {
        begins();
        let logits = network.forward(Batch::new(samples, indices, device).rows).try_into_data()?;
        let logits = logits.as_slice::<f32>().expect("invariant: every device computes in f32");
        let classes = logits.len() / indices.len();
        for (logits, index) in logits.chunks_exact(classes).zip(indices) {
            let label = samples.labels()[*index as usize] as usize;
            let largest =
                logits.iter().enumerate().fold(0, |best, (at, logit)| if *logit > logits[best] { at } else { best });
            let top = f64::from(logits[largest]);
            let sum: f64 = logits.iter().map(|logit| (f64::from(*logit) - top).exp()).sum();
            loss += sum.ln() + top - f64::from(logits[label]);
            hits += u64::from(largest == label);
        }
    }
    // Without samples there is nothing to divide by.
    let count = samples.len().max(1) as f64;
    Ok(Evaluation { loss: loss / count, accuracy: hits as f64 / count, samples: samples.len() as u64 })
}

/// Computes what an evaluation computes, on the first of its batches, and forgets it.
pub(crate) fn warm_up(network: &Network, samples: &Samples, device: &Device) -> Result<(), ExecutionError> {
    let indices: Vec<u32> = (0..samples.len().min(BATCH) as u32).collect();
    if !indices.is_empty() {
        network.valid().forward(Batch::new(samples, &indices, device).rows).try_into_data()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flatten::write_parameters;

    fn softmax(parameters: &[f32]) -> (Network, Device) {
        let device = Device::flex();
        let autodiff = device.clone().autodiff();
        let network = Network::new(&"softmax".parse().expect("a model"), [1, 1, 1], 3, &autodiff);
        (write_parameters(network, parameters, &autodiff), device)
    }

    #[test]
    fn loss_and_accuracy_are_those_of_the_logits() {
        // The logits of x are (x, 0, -x).
        let (network, device) = softmax(&[1.0, 0.0, -1.0, 0.0, 0.0, 0.0]);
        // For 2: class 0 wins. For -3: class 2 wins. For 0: all are equal, so the first is taken.
        let samples = Samples::new(1, vec![2.0, -3.0, 0.0, 0.0], vec![0, 1, 0, 2]);
        let evaluation = evaluate(&network, &samples, &device, || ()).expect("computed");
        let sum = |x: f64| x.exp() + 1.0 + (-x).exp();
        let expected = (sum(2.0).ln() - 2.0 + sum(3.0).ln() + 2.0 * 3.0_f64.ln()) / 4.0;
        assert!((evaluation.loss - expected).abs() < 1e-12, "{} instead of {expected}", evaluation.loss);
        assert_eq!((evaluation.accuracy, evaluation.samples), (0.5, 4));
    }

    #[test]
    fn large_logits_do_not_overflow_and_batches_add_up() {
        let (network, device) = softmax(&[1000.0, 0.0, -1000.0, 0.0, 0.0, 0.0]);
        let count = BATCH * 2 + 3;
        let labels = (0..count).map(|at| if at == count - 1 { 1 } else { 0 }).collect();
        let evaluation =
            evaluate(&network, &Samples::new(1, vec![1.0; count], labels), &device, || ()).expect("computed");
        let expected = 1000.0 / count as f64;
        assert!((evaluation.loss - expected).abs() < 1e-9, "{} instead of {expected}", evaluation.loss);
        assert!((evaluation.accuracy - (1.0 - 1.0 / count as f64)).abs() < 1e-12);
    }

    #[test]
    fn without_samples_there_is_nothing_to_say() {
        let (network, device) = softmax(&[0.0; 6]);
        let evaluation =
            evaluate(&network, &Samples::new(1, vec![], vec![]), &device, || ()).expect("nothing to compute");
        assert_eq!(evaluation, Evaluation { loss: 0.0, accuracy: 0.0, samples: 0 });
    }
}
