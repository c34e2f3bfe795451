//! How good a model is on samples it was not trained on.

use burn::module::Module;
use burn::tensor::{Device, ExecutionError};
use serde::{Deserialize, Serialize};

use crate::data::Samples;
use crate::network::Network;
use crate::trainer::batch;

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

/// Evaluates `network` on all `samples`, in their order. Computed from the logits in f64 on the CPU.
pub(crate) fn evaluate(network: &Network, samples: &Samples, device: &Device) -> Result<Evaluation, ExecutionError> {
    let network = network.valid();
    let indices: Vec<u32> = (0..samples.len() as u32).collect();
    let (mut loss, mut hits) = (0.0, 0_u64);
    for indices in indices.chunks(BATCH) {
        let (rows, _) = batch(samples, indices, device);
        let logits = network.forward(rows).try_into_data()?;
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
