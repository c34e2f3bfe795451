//! A decoder-only transformer in the shape of Llama (Touvron et al.: "LLaMA: Open and Efficient Foundation Language Models", 2023): tokens in,
//! logits of the next ones out.
//!
//! ```text
//!   tokens -> embedding -> L x { x + attention(norm(x));  x + feed forward(norm(x)) } -> norm -> linear -> logits
//! ```
//!
//! Norms are RMSNorm (Zhang and Sennrich, 2019), positions are rotations of queries and keys (RoPE; Su et al., 2021) and the feed-forward
//! layers have gates (SwiGLU; Shazeer, 2020). No layer has a bias, and the output has weights of its own, unless it is tied to the embeddings: they are few for
//! 256 tokens, and their gradient is there first. Queries, keys, values and gates have matrices of their own, as Llama's: one for all of them is no faster.
//! Several heads of queries may share one of keys and values (Ainslie et al.: "GQA", 2023).

use std::ops::Range;

use burn::module::Module;
use burn::nn::{Embedding, EmbeddingConfig, Linear, LinearConfig, RmsNorm, RmsNormConfig};
use burn::tensor::activation::{silu, softmax};
use burn::tensor::{Device, Int, Tensor, TensorData};

use crate::network::numbers::{in_f32, like, normalize};
use crate::network::rotation::{Rotation, Tables};

/// What is added to the logit of a position that a token must not see; in f16 that is minus infinity, which comes to no share either.
const UNSEEN: f32 = -1e30;
/// Widths of feed-forward layers are multiples of this, as kernels like them.
const MULTIPLE: usize = 32;
/// Tokens, pairs of positions that attend to each other, and logits per forward pass of an evaluation: they bound the memory that it needs.
const TOKENS_AT_ONCE: usize = 1 << 13;
const PAIRS_AT_ONCE: usize = 1 << 24;
const LOGITS_AT_ONCE: usize = 1 << 25;

/// How large a transformer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// How many blocks there are.
    pub layers: usize,
    /// How many numbers a position has between them.
    pub width: usize,
    /// How many heads each attention has.
    pub heads: usize,
    /// How many of keys and values it has, each for as many of those heads, one after another.
    pub key_heads: usize,
    /// How many tokens there are.
    pub tokens: usize,
    /// How many positions it sees at once.
    pub context: usize,
    /// Whether the embeddings are the weights of the output, too (Press and Wolf: "Using the Output Embedding to Improve Language Models", 2017).
    pub tied_output: bool,
}

impl Size {
    /// How many sequences are evaluated together.
    pub(crate) fn measured_at_once(self) -> u32 {
        measured_at_once(self.heads, self.context, self.tokens)
    }
}

fn measured_at_once(heads: usize, context: usize, tokens: usize) -> u32 {
    let pairs = heads.saturating_mul(context).saturating_mul(context).max(1);
    let logits = context.saturating_mul(tokens).max(1);
    let most = (TOKENS_AT_ONCE / context.max(1)).min(PAIRS_AT_ONCE / pairs).min(LOGITS_AT_ONCE / logits);
    u32::try_from(most).unwrap_or(u32::MAX).max(1)
}

/// Logits of the token that follows each position.
///
/// Parameters are visited in the order of the fields, so the order of the fields is part of the protocol.
#[derive(Module, Debug)]
pub struct TransformerNetwork {
    embedding: Embedding,
    layers: Vec<Block>,
    norm: RmsNorm,
    /// None if it is tied to the embeddings.
    output: Option<Linear>,
    #[module(skip)]
    rotation: Rotation,
}

/// One layer.
#[derive(Module, Debug)]
struct Block {
    attention_norm: RmsNorm,
    attention: Attention,
    feed_norm: RmsNorm,
    feed: FeedForward,
}

/// Each position looks at itself and at those before it.
#[derive(Module, Debug)]
struct Attention {
    queries: Linear,
    keys: Linear,
    values: Linear,
    output: Linear,
}

/// Each position by itself.
#[derive(Module, Debug)]
struct FeedForward {
    gates: Linear,
    /// What goes through the gates.
    inputs: Linear,
    output: Linear,
}

/// Keys and values of the positions that were computed, layer by layer: of one sequence, whose next position needs no others.
#[derive(Debug, Clone, Default)]
pub struct Cache {
    /// `[1, heads of keys, positions, width of a head]` each.
    layers: Vec<(Tensor<4>, Tensor<4>)>,
    positions: usize,
}

impl Cache {
    /// How many positions it is of.
    pub fn positions(&self) -> usize {
        self.positions
    }
}

impl TransformerNetwork {
    /// Of this size on `device`. Its parameters are not yet drawn.
    pub fn new(size: Size, device: &Device) -> Self {
        let Size { layers, width, heads, key_heads, tokens, context, tied_output } = size;
        let of_keys = width / heads * key_heads;
        let linear = |inputs, outputs| LinearConfig::new(inputs, outputs).with_bias(false).init(device);
        let norm = || RmsNormConfig::new(width).init(device);
        let hidden = (width * 8 / 3).next_multiple_of(MULTIPLE);
        let block = |_| Block {
            attention_norm: norm(),
            attention: Attention {
                queries: linear(width, width),
                keys: linear(width, of_keys),
                values: linear(width, of_keys),
                output: linear(width, width),
            },
            feed_norm: norm(),
            feed: FeedForward {
                gates: linear(width, hidden),
                inputs: linear(width, hidden),
                output: linear(hidden, width),
            },
        };
        Self {
            embedding: EmbeddingConfig::new(tokens, width).init(device),
            layers: (0..layers).map(block).collect(),
            norm: norm(),
            output: (!tied_output).then(|| linear(width, tokens)),
            rotation: Rotation::new(context, [heads, key_heads], width / heads),
        }
    }

    /// Of tokens `[sequences, positions]`, the logits of what follows each: `[sequences * positions, tokens]`. What a layer adds goes through
    /// `drop`, as the embeddings do, and all that there is between two layers, and behind the last, through `border`.
    pub(crate) fn forward_through(
        &self,
        tokens: Tensor<2, Int>,
        mut drop: impl FnMut(Tensor<2>) -> Tensor<2>,
        mut border: impl FnMut(Tensor<2>) -> Tensor<2>,
    ) -> Tensor<2> {
        let [sequences, positions] = tokens.dims();
        let device = tokens.device();
        let (rotations, mask) = (self.tables(0..positions, &device), self.mask(positions, 0, &device));
        let mut features = drop(self.embed(tokens));
        for block in &self.layers {
            let normed = normalize(&block.attention_norm, features.clone());
            let [queries, keys, values] =
                block.attention.heads(&self.rotation, normed, [sequences, positions], &rotations);
            features = features + drop(block.attention.attend(queries, keys, values, Some(mask.clone())));
            features = features.clone() + drop(block.feed.forward(normalize(&block.feed_norm, features)));
            features = border(features);
        }
        self.logits(features)
    }

    /// The logits of what follows each of the tokens `[sequences, positions]`.
    pub fn forward(&self, tokens: Tensor<2, Int>) -> Tensor<2> {
        self.forward_through(tokens, |features| features, |features| features)
    }

    /// The logits of what follows the last of these tokens, `[1, positions]`, which come behind those of the cache: `[1, tokens]`. The cache
    /// has them then, too.
    ///
    /// # Panics
    /// If there are more positions than the context has.
    pub fn next(&self, tokens: Tensor<2, Int>, cache: &mut Cache) -> Tensor<2> {
        let [_, positions] = tokens.dims();
        let (device, before) = (tokens.device(), cache.positions);
        let rotations = self.tables(before..before + positions, &device);
        let mask = (positions > 1).then(|| self.mask(positions, before, &device));
        let mut features = self.embed(tokens);
        for (at, block) in self.layers.iter().enumerate() {
            let normed = normalize(&block.attention_norm, features.clone());
            let [queries, keys, values] = block.attention.heads(&self.rotation, normed, [1, positions], &rotations);
            let (keys, values) = match cache.layers.get_mut(at) {
                None => {
                    cache.layers.push((keys.clone(), values.clone()));
                    (keys, values)
                }
                Some(held) => {
                    held.0 = Tensor::cat(vec![held.0.clone(), keys], 2);
                    held.1 = Tensor::cat(vec![held.1.clone(), values], 2);
                    held.clone()
                }
            };
            features = features + block.attention.attend(queries, keys, values, mask.clone());
            features = features.clone() + block.feed.forward(normalize(&block.feed_norm, features));
        }
        cache.positions += positions;
        self.logits(features.narrow(0, positions - 1, 1))
    }

    /// Of what comes out of the last layer, `[positions, width]`, the logits `[positions, tokens]`.
    fn logits(&self, features: Tensor<2>) -> Tensor<2> {
        let features = normalize(&self.norm, features);
        in_f32(match &self.output {
            Some(output) => output.forward(features),
            None => features.matmul(self.embedding.weight.val().transpose()),
        })
    }

    /// How many positions it sees at once.
    pub fn context(&self) -> usize {
        self.rotation.context()
    }

    /// How many tokens there are.
    pub(crate) fn tokens(&self) -> usize {
        let [tokens, _] = self.embedding.weight.shape().dims();
        tokens
    }

    /// As [`Size::measured_at_once`].
    pub(crate) fn measured_at_once(&self) -> u32 {
        measured_at_once(self.rotation.heads()[0], self.context(), self.tokens())
    }

    /// How many parameters lie before each border; none if the output needs the embeddings, which lie before all of them.
    pub(crate) fn borders(&self) -> Vec<usize> {
        if self.output.is_none() {
            return Vec::new();
        }
        let mut before = self.embedding.num_params();
        let borders = self.layers.iter().map(|block| {
            before += block.num_params();
            before
        });
        borders.collect()
    }

    /// Rotations at these positions.
    fn tables(&self, positions: Range<usize>, device: &Device) -> Tables {
        let like = |tables: [Tensor<4>; 2]| tables.map(|table| like(table, &self.embedding.weight));
        let Tables { queries, keys } = self.rotation.tables(positions, device);
        Tables { queries: like(queries), keys: like(keys) }
    }

    fn mask(&self, positions: usize, before: usize, device: &Device) -> Tensor<4> {
        like(mask(positions, before, device), &self.embedding.weight)
    }

    /// `[sequences * positions, width]`.
    fn embed(&self, tokens: Tensor<2, Int>) -> Tensor<2> {
        // As a matrix: a linear layer's gradient is one product then, and not one for each sequence.
        self.embedding.forward(tokens).flatten(0, 1)
    }
}

impl Attention {
    /// Queries, keys and values of features `[sequences * positions, width]`: `[sequences, heads, positions, width of a head]` each, with the heads
    /// that there are of it.
    fn heads(
        &self,
        rotation: &Rotation,
        features: Tensor<2>,
        [sequences, positions]: [usize; 2],
        rotations: &Tables,
    ) -> [Tensor<4>; 3] {
        let by_heads = |linear: &Linear, heads: usize| -> Tensor<4> {
            linear.forward(features.clone()).reshape([sequences, positions, heads, rotation.width()])
        };
        let [heads, key_heads] = rotation.heads();
        let queries = rotation.turn(by_heads(&self.queries, heads), &rotations.queries);
        let keys = rotation.turn(by_heads(&self.keys, key_heads), &rotations.keys);
        [queries, keys, by_heads(&self.values, key_heads)].map(|heads| heads.swap_dims(1, 2))
    }

    /// What each query finds, `[sequences * positions, width]`.
    fn attend(&self, queries: Tensor<4>, keys: Tensor<4>, values: Tensor<4>, mask: Option<Tensor<4>>) -> Tensor<2> {
        let [sequences, heads, positions, width] = queries.dims();
        let [_, key_heads, seen, _] = keys.dims();
        // Heads that share keys stand below each other, so that no key is copied for each of them.
        let shared = |of_heads: Tensor<4>, last| match key_heads == heads {
            true => of_heads,
            false => of_heads.reshape([sequences, key_heads, heads / key_heads * positions, last]),
        };
        let apart = |shared: Tensor<4>, last| match key_heads == heads {
            true => shared,
            false => shared.reshape([sequences, heads, positions, last]),
        };
        let alike = apart(shared(queries, width).matmul(keys.swap_dims(2, 3)), seen);
        let alike = match mask {
            Some(mask) => alike + mask,
            None => alike,
        };
        let found = apart(shared(softmax(alike, 3), seen).matmul(values), width).swap_dims(1, 2);
        self.output.forward(found.reshape([sequences * positions, heads * width]))
    }
}

impl FeedForward {
    fn forward(&self, features: Tensor<2>) -> Tensor<2> {
        let gates = silu(self.gates.forward(features.clone()));
        self.output.forward(gates * self.inputs.forward(features))
    }
}

/// What is added to how alike queries and keys are, `[1, 1, positions, before + positions]`: a position sees no later one.
fn mask(positions: usize, before: usize, device: &Device) -> Tensor<4> {
    let all = before + positions;
    let row = |position: usize| (0..all).map(move |seen| if seen > before + position { UNSEEN } else { 0.0 });
    let mask: Vec<f32> = (0..positions).flat_map(row).collect();
    Tensor::from_data(TensorData::new(mask, [1, 1, positions, all]), device)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::flatten::write_parameters;
    use crate::network::schema;
    use starling_run::state::initial;

    const SIZE: Size =
        Size { layers: 2, width: 24, heads: 3, key_heads: 3, tokens: 7, context: 12, tied_output: false };

    fn transformer() -> TransformerNetwork {
        of_size(SIZE)
    }

    fn of_size(size: Size) -> TransformerNetwork {
        let device = Device::flex().autodiff();
        let module = TransformerNetwork::new(size, &device);
        let parameters = initial::draw(&schema::of_module(&module), 5);
        write_parameters(module, &parameters, &device).valid()
    }

    fn tokens(tokens: &[i64]) -> Tensor<2, Int> {
        Tensor::from_data(TensorData::new(tokens.to_vec(), [1, tokens.len()]), &Device::flex())
    }

    fn numbers<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
        tensor.into_data().try_to_vec().expect("f32")
    }

    #[test]
    fn the_order_of_parameters_is_fixed() {
        let schema = schema::of_module(&transformer());
        let all: Vec<(&str, &[usize])> = schema.entries().iter().map(|entry| (&*entry.path, &*entry.shape)).collect();
        let of_layer: [(&str, &[usize]); 10] = [
            ("layers.0.attention_norm.gamma", &[24]),
            ("layers.0.attention.queries.weight", &[24, 24]),
            ("layers.0.attention.keys.weight", &[24, 24]),
            ("layers.0.attention.values.weight", &[24, 24]),
            ("layers.0.attention.output.weight", &[24, 24]),
            ("layers.0.feed_norm.gamma", &[24]),
            ("layers.0.feed.gates.weight", &[24, 64]),
            ("layers.0.feed.inputs.weight", &[24, 64]),
            ("layers.0.feed.output.weight", &[64, 24]),
            ("layers.1.attention_norm.gamma", &[24]),
        ];
        assert_eq!(all[0], ("embedding.weight", &[7, 24][..]));
        assert_eq!(all[1..11], of_layer);
        assert_eq!(all[19..], [("norm.gamma", &[24][..]), ("output.weight", &[24, 7][..])]);
    }

    #[test]
    fn what_was_computed_before_need_not_be_computed_again() {
        let text = [3, 1, 4, 1, 5, 0, 2, 6, 5, 3, 5, 6];
        for size in [SIZE, Size { heads: 6, key_heads: 2, tied_output: true, width: 48, ..SIZE }] {
            let transformer = of_size(size);
            let whole = numbers(transformer.forward(tokens(&text)));
            // In pieces of several tokens, and one by one.
            for pieces in [vec![5, 4, 3], vec![1; 12], vec![12], vec![3, 1, 1, 7]] {
                let (mut cache, mut at) = (Cache::default(), 0);
                for piece in pieces {
                    let logits = numbers(transformer.next(tokens(&text[at..at + piece]), &mut cache));
                    at += piece;
                    assert_eq!(cache.positions(), at);
                    let expected = &whole[(at - 1) * 7..at * 7];
                    let is_near = |(a, b): (&f32, &f32)| (a - b).abs() < 1e-5;
                    assert!(logits.iter().zip(expected).all(is_near), "{logits:?} instead of {expected:?}");
                }
            }
        }
    }

    /// The values of its parameters, by their paths, with their shapes.
    fn parameters(size: Size) -> Vec<(String, Vec<usize>, Vec<f32>)> {
        let schema = schema::of_module(&TransformerNetwork::new(size, &Device::flex().autodiff()));
        let mut rest = initial::draw(&schema, 5);
        let parameter = |entry: &starling_run::manifest::schema::Entry| {
            let others = rest.split_off(entry.elements());
            (entry.path.clone(), entry.shape.clone(), std::mem::replace(&mut rest, others))
        };
        schema.entries().iter().map(parameter).collect()
    }

    fn with_parameters(size: Size, parameters: &[(String, Vec<usize>, Vec<f32>)]) -> TransformerNetwork {
        let device = Device::flex().autodiff();
        let values: Vec<f32> = parameters.iter().flat_map(|(_, _, values)| values.clone()).collect();
        write_parameters(TransformerNetwork::new(size, &device), &values, &device).valid()
    }

    /// The logits of a text by two transformers.
    fn are_near(one: &TransformerNetwork, other: &TransformerNetwork) -> bool {
        let text = [3, 1, 4, 1, 5, 0, 2, 6, 5, 3, 5, 6];
        let [one, other] = [one, other].map(|transformer| numbers(transformer.forward(tokens(&text))));
        one.iter().zip(&other).all(|(a, b)| (a - b).abs() < 1e-5)
    }

    #[test]
    fn heads_that_share_keys_compute_what_heads_with_equal_keys_do() {
        let shared = Size { width: 48, heads: 6, key_heads: 2, ..SIZE };
        let whole = Size { key_heads: 6, ..shared };
        let mut parameters = parameters(shared);
        let few = with_parameters(shared, &parameters);
        assert_eq!(parameters[3].1, [48, 16]);
        for (path, shape, values) in &mut parameters {
            if path.ends_with("keys.weight") || path.ends_with("values.weight") {
                // Of each row, three times the first head, and three times the second.
                *values = values.chunks(8).flat_map(|head| head.repeat(3)).collect();
                shape[1] = 48;
            }
        }
        assert!(are_near(&few, &with_parameters(whole, &parameters)));
        // The second head of keys is for the fourth to sixth of queries.
        for (path, _, values) in &mut parameters {
            if path.ends_with("keys.weight") {
                *values = values.chunks(48).flat_map(|row| row.iter().rev().copied().collect::<Vec<_>>()).collect();
            }
        }
        assert!(!are_near(&few, &with_parameters(whole, &parameters)));
    }

    #[test]
    fn a_tied_output_is_the_embeddings_transposed() {
        let tied = Size { tied_output: true, ..SIZE };
        let mut parameters = parameters(tied);
        let one = with_parameters(tied, &parameters);
        assert_eq!((one.borders(), parameters.last().map(|it| &*it.0)), (Vec::new(), Some("norm.gamma")));
        let embedding = parameters[0].2.clone();
        let turned = (0..24).flat_map(|column| (0..7).map(move |row| row * 24 + column)).map(|at| embedding[at]);
        parameters.push(("output.weight".to_owned(), vec![24, 7], turned.collect()));
        assert!(are_near(&one, &with_parameters(SIZE, &parameters)));
    }

    #[test]
    fn how_alike_two_are_depends_on_how_far_they_are_apart() {
        let (rotation, device) = (Rotation::new(12, [1, 1], 4), Device::flex());
        let head = |numbers: [f32; 4]| Tensor::from_data(TensorData::new(numbers.to_vec(), [1, 1, 1, 4]), &device);
        let tables = |position| rotation.tables(position..position + 1, &device);
        let alike = |query: usize, key: usize| -> f32 {
            let query = rotation.turn(head([1.0, 2.0, -1.0, 0.5]), &tables(query).queries);
            let key = rotation.turn(head([0.5, -1.0, 2.0, 1.0]), &tables(key).keys);
            let pair = [query, key].map(numbers);
            pair[0].iter().zip(&pair[1]).map(|(a, b)| a * b).sum()
        };
        // Of two at one place, the product divided by the root of the width.
        assert!((alike(0, 0) + 3.0 / 2.0).abs() < 1e-6, "{}", alike(0, 0));
        assert!((alike(5, 2) - alike(11, 8)).abs() < 1e-5 && (alike(5, 2) - alike(5, 4)).abs() > 0.1);
    }
}
