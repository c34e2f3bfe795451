//! Numbers between layers that are dropped in training.

use burn::tensor::{Tensor, TensorData};
use starling_topology::SplitMix64Generator;

use crate::task::DrawSeed;

/// Draws the masks of one forward pass. They come from no device's generator, so that a CPU and a GPU drop the same numbers.
#[derive(Debug)]
pub(crate) struct Dropout {
    /// A number is kept where 32 random bits are below this.
    below: u64,
    /// What is kept is multiplied by this.
    scale: f32,
    generator: SplitMix64Generator,
}

impl Dropout {
    /// Of this share of all numbers; `None` if that is none.
    pub(crate) fn new(share: f64, draw: &DrawSeed) -> Option<Self> {
        let kept = 1.0 - share;
        // Of 2^32 words.
        let below = (kept * 4_294_967_296.0) as u64;
        (share > 0.0).then(|| Self { below, scale: (1.0 / kept) as f32, generator: draw.of_batch("dropout") })
    }

    /// What is done to the numbers between layers in a forward pass: they are dropped in training, of which `draw` is, and stay elsewhere.
    pub(crate) fn between_layers(share: f64, draw: Option<&DrawSeed>) -> impl FnMut(Tensor<2>) -> Tensor<2> {
        let mut dropout = draw.and_then(|draw| Self::new(share, draw));
        move |features| match &mut dropout {
            Some(dropout) => dropout.apply(features),
            None => features,
        }
    }

    /// `[samples, features]` without those that are dropped.
    pub(crate) fn apply(&mut self, features: Tensor<2>) -> Tensor<2> {
        let [samples, width] = features.dims();
        let mask: Vec<f32> = (0..samples * width).map(|_| self.factor()).collect();
        let mask = Tensor::<2>::from_data(TensorData::new(mask, [samples, width]), &features.device());
        let numbers = features.dtype();
        features * mask.cast(numbers)
    }

    fn factor(&mut self) -> f32 {
        if self.generator.next_u64() >> 32 < self.below { self.scale } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::*;

    fn dropped(share: f64, first: u32) -> Vec<f32> {
        let mut dropout = Dropout::new(share, &DrawSeed::new(3, 0, first)).expect("some are dropped");
        let ones = Tensor::<2>::ones([100, 100], &Device::flex());
        dropout.apply(ones).into_data().try_to_vec().expect("f32")
    }

    #[test]
    fn nothing_is_dropped_but_in_training() {
        let sum = |share: f64, draw: Option<DrawSeed>| {
            let ones = Tensor::<2>::ones([10, 10], &Device::flex());
            Dropout::between_layers(share, draw.as_ref())(ones).sum().into_scalar::<f32>()
        };
        assert_eq!((sum(0.5, None), sum(0.0, Some(DrawSeed::new(3, 0, 0)))), (100.0, 100.0));
        assert_ne!(sum(0.3, Some(DrawSeed::new(3, 0, 0))), 100.0);
    }

    #[test]
    fn as_many_are_dropped_as_is_said_and_the_mean_stays() {
        for share in [0.1, 0.5, 0.95] {
            let kept = dropped(share, 0);
            let zeros = kept.iter().filter(|number| **number == 0.0).count() as f64 / 10_000.0;
            assert!((zeros - share).abs() < 0.02, "{zeros} instead of {share}");
            assert!(kept.iter().all(|number| *number == 0.0 || *number == (1.0 / (1.0 - share)) as f32));
            assert_eq!(kept, dropped(share, 0));
            assert_ne!(kept, dropped(share, 1));
        }
        assert!(Dropout::new(0.0, &DrawSeed::new(3, 0, 0)).is_none());
    }
}
