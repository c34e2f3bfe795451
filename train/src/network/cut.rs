//! Backward in blocks: gradients of the last layers are there, and can leave, before those of the first are computed.
//!
//! What is in front of a border is computed from the gradient of what goes through it. The bits are those of an uncut backward.

use std::fmt;

use burn::tensor::{Gradients, Tensor};

/// Goes on with backward from a border.
type Behind = Box<dyn FnOnce(&mut Gradients) -> Gradients>;

/// Cuts a forward pass where backward is to pause.
pub struct Cut<'a> {
    /// For each border that is passed, how many parameters lie before it, if backward pauses there.
    borders: &'a [Option<usize>],
    next: usize,
    passed: Vec<(usize, Behind)>,
}

impl<'a> Cut<'a> {
    pub(crate) fn new(borders: &'a [Option<usize>]) -> Self {
        Self { borders, next: 0, passed: Vec::new() }
    }

    /// Whose forward pass is not cut.
    pub(crate) fn nowhere() -> Self {
        Self::new(&[])
    }

    /// The next border: all that was computed so far, and is used from here on, is `features`.
    #[must_use]
    pub fn here<const D: usize>(&mut self, features: Tensor<D>) -> Tensor<D> {
        let border = self.borders.get(self.next).copied().flatten();
        self.next += 1;
        let Some(border) = border else { return features };
        let input = features.clone().detach().require_grad();
        let cut = input.clone();
        let behind = move |gradients: &mut Gradients| match cut.grad_remove(gradients) {
            // A constant: as a tensor with autodiff it would have a way of its own to keep what backward needs.
            Some(gradient) => (features * gradient).sum().backward(),
            // The loss does not depend on it.
            None => features.mul_scalar(0.0).sum().backward(),
        };
        self.passed.push((border, Box::new(behind)));
        input
    }

    /// From the first to the last: how many parameters lie before each border, and how backward goes on from there.
    pub(crate) fn passed(self) -> Vec<(usize, Behind)> {
        self.passed
    }
}

impl fmt::Debug for Cut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cut").field("borders", &self.borders).field("next", &self.next).finish_non_exhaustive()
    }
}

/// Those of `borders` at which backward pauses, so that each block but the first has `least` parameters or more, of so many in
/// all.
pub(crate) fn choose(borders: &[usize], parameters: usize, least: usize) -> Vec<Option<usize>> {
    let mut end = parameters;
    let mut chosen: Vec<_> = borders
        .iter()
        .rev()
        .map(|border| {
            // Of what is before the first one, nothing need be trained.
            let is_far = *border > 0 && end.saturating_sub(*border) >= least;
            is_far.then(|| {
                end = *border;
                *border
            })
        })
        .collect();
    chosen.reverse();
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_have_enough_parameters_but_for_the_first() {
        assert_eq!(choose(&[10, 20, 30], 40, 1), [Some(10), Some(20), Some(30)]);
        assert_eq!(choose(&[10, 20, 30], 40, 11), [None, Some(20), None]);
        assert_eq!(choose(&[10, 20, 30], 40, 31), [None, None, None]);
        assert_eq!(choose(&[1, 39], 40, 2), [Some(1), None]);
        assert_eq!(choose(&[], 40, 1), []);
        assert_eq!(choose(&[0, 0, 20], 40, 1), [None, None, Some(20)]);
    }
}
