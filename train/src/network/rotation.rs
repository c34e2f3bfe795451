//! Positions as rotations of queries and keys: how alike two are depends on how far they are apart (RoPE; Su et al.: "RoFormer", 2021).
//!
//! The halves of a head are the two coordinates of each plane, as Llama's are in `transformers`. Burn's `RotaryEncoding` takes neighbours,
//! and a matrix product with two columns for it, which takes longer on a CPU than the attention itself.

use std::ops::Range;
use std::sync::Arc;

use burn::tensor::{Device, Tensor, TensorData};

/// By how much the slowest plane turns less than the fastest, in all: its base.
const BASE: f64 = 10_000.0;

/// How far each plane of a head has turned at each position.
#[derive(Debug, Clone)]
pub(crate) struct Rotation {
    /// Of queries, and of keys.
    heads: [usize; 2],
    width: usize,
    context: usize,
    /// `[context, width / 2]`: cosines, and sines.
    turned: Arc<[Vec<f32>; 2]>,
}

/// Cosines and sines at some positions, `[1, positions, heads, width / 2]` each.
#[derive(Debug, Clone)]
pub(crate) struct Tables {
    /// Scaled as attention wants its queries.
    pub(crate) queries: [Tensor<4>; 2],
    pub(crate) keys: [Tensor<4>; 2],
}

impl Rotation {
    /// For `context` positions, and so many heads of queries and of keys of this width, which is even.
    pub(crate) fn new(context: usize, heads: [usize; 2], width: usize) -> Self {
        let angle = |position: usize, plane: usize| position as f64 / BASE.powf((2 * plane) as f64 / width as f64);
        let all = |of: fn(f64) -> f64| {
            let row = |position| (0..width / 2).map(move |plane| of(angle(position, plane)) as f32);
            (0..context).flat_map(row).collect()
        };
        Self { heads, width, context, turned: Arc::new([all(f64::cos), all(f64::sin)]) }
    }

    /// Of queries, and of keys.
    pub(crate) fn heads(&self) -> [usize; 2] {
        self.heads
    }

    /// Of a head.
    pub(crate) fn width(&self) -> usize {
        self.width
    }

    pub(crate) fn context(&self) -> usize {
        self.context
    }

    /// At these positions.
    pub(crate) fn tables(&self, positions: Range<usize>, device: &Device) -> Tables {
        let half = self.width / 2;
        let scale = (1.0 / (self.width as f64).sqrt()) as f32;
        let count = positions.len();
        let table = |heads: usize| {
            [0, 1].map(|which| {
                let rows = self.turned[which][positions.start * half..positions.end * half].chunks_exact(half);
                let table: Vec<f32> = rows.flat_map(|row| row.repeat(heads)).collect();
                Tensor::<4>::from_data(TensorData::new(table, [1, count, heads, half]), device)
            })
        };
        let [heads, key_heads] = self.heads;
        let keys = table(key_heads);
        let queries = if heads == key_heads { keys.clone() } else { table(heads) };
        Tables { queries: queries.map(|table| table * scale), keys }
    }

    /// Queries or keys `[sequences, positions, heads, width]`, turned by these tables.
    pub(crate) fn turn(&self, heads: Tensor<4>, [cosines, sines]: &[Tensor<4>; 2]) -> Tensor<4> {
        let half = self.width / 2;
        let (first, second) = (heads.clone().narrow(3, 0, half), heads.narrow(3, half, half));
        let turned = [
            first.clone() * cosines.clone() - second.clone() * sines.clone(),
            second * cosines.clone() + first * sines.clone(),
        ];
        Tensor::cat(turned.to_vec(), 3)
    }
}
