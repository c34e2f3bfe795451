//! How well a classifier tells the classes of some samples.

use burn::tensor::{Device, ExecutionError};

use crate::network::Network;
use crate::task::classification::Batch;
use starling_data::Samples;

/// Sums over the samples at these places: cross-entropy, in nats, as `loss`, and how many have their label's logit as the
/// largest, the first of equal ones, as `accuracy`. Computed from the logits in f64 on the CPU.
pub(crate) fn measure(
    network: &Network,
    samples: &Samples,
    places: &[u32],
    device: &Device,
) -> Result<Vec<(&'static str, f64)>, ExecutionError> {
    let logits = network.forward(Batch::new(samples, places, device).rows).try_into_data()?;
    let logits = logits.as_slice::<f32>().expect("invariant: every device computes in f32");
    let classes = logits.len() / places.len();
    let (mut loss, mut hits) = (0.0, 0_u32);
    for (logits, place) in logits.chunks_exact(classes).zip(places) {
        let label = samples.labels()[*place as usize] as usize;
        let largest =
            logits.iter().enumerate().fold(0, |best, (at, logit)| if *logit > logits[best] { at } else { best });
        let top = f64::from(logits[largest]);
        let sum: f64 = logits.iter().map(|logit| (f64::from(*logit) - top).exp()).sum();
        loss += sum.ln() + top - f64::from(logits[label]);
        hits += u32::from(largest == label);
    }
    Ok(vec![("loss", loss), ("accuracy", f64::from(hits))])
}

#[cfg(test)]
mod tests {
    use burn::module::Module;

    use super::*;
    use crate::network::Layers;
    use crate::network::flatten::write_parameters;

    fn softmax(parameters: &[f32]) -> (Network, Device) {
        let device = Device::flex();
        let autodiff = device.clone().autodiff();
        let network = Network::new(&Layers::default(), [1, 1, 1], 3, &autodiff);
        (write_parameters(network, parameters, &autodiff), device)
    }

    /// Of all samples.
    fn measured(network: &Network, device: &Device, samples: &Samples) -> [f64; 2] {
        let places: Vec<u32> = (0..samples.len() as u32).collect();
        let sums = measure(&network.valid(), samples, &places, device).expect("computed");
        assert_eq!(sums.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["loss", "accuracy"]);
        [sums[0].1, sums[1].1]
    }

    #[test]
    fn loss_and_accuracy_are_those_of_the_logits() {
        // The logits of x are (x, 0, -x).
        let (network, device) = softmax(&[1.0, 0.0, -1.0, 0.0, 0.0, 0.0]);
        // For 2: class 0 wins. For -3: class 2 wins. For 0: all are equal, so the first is taken.
        let [loss, hits] = measured(&network, &device, &Samples::new(1, vec![2.0, -3.0, 0.0, 0.0], vec![0, 1, 0, 2]));
        let sum = |x: f64| x.exp() + 1.0 + (-x).exp();
        let expected = sum(2.0).ln() - 2.0 + sum(3.0).ln() + 2.0 * 3.0_f64.ln();
        assert!((loss - expected).abs() < 1e-12, "{loss} instead of {expected}");
        assert_eq!(hits, 2.0);
    }

    #[test]
    fn large_logits_do_not_overflow() {
        let (network, device) = softmax(&[1000.0, 0.0, -1000.0, 0.0, 0.0, 0.0]);
        let labels = (0..7).map(|at| if at == 6 { 1 } else { 0 }).collect();
        let [loss, hits] = measured(&network, &device, &Samples::new(1, vec![1.0; 7], labels));
        assert!((loss - 1000.0).abs() < 1e-9, "{loss}");
        assert_eq!(hits, 6.0);
    }
}
