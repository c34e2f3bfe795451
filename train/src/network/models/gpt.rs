//! Language models: a [`TransformerNetwork`] that learns a text.

use std::sync::Arc;

use burn::tensor::{Device, Tensor};
use starling_data::Dataset;
use starling_run::data::{CONTEXT, MAX_TOKENS};
use starling_run::{ModelOptions, ModelSpec};

use super::{AnyTask, Chosen, Model, choose, no_blocks};
use crate::network::forward::{AnyModule, OutputKind, RowModule};
use crate::network::transformer::{Size, TransformerNetwork};
use crate::task::language::LanguageTask;

/// The most layers.
const MAX_LAYERS: u32 = 128;
/// The widest layer.
const MAX_WIDTH: u32 = 16_384;
/// A head is no narrower.
const LEAST_HEAD: u32 = 8;
/// How many pairs of positions attend to each other at once in a layer, at most: each takes 4 bytes, several times.
const MAX_PAIRS: u64 = 1 << 28;
/// How wide heads are where nobody says how many there are: of wide layers, and of narrow ones.
const HEAD_WIDTHS: [u32; 2] = [64, 32];
/// From this width on, a layer is wide.
const WIDE: u32 = 256;
/// How many logits a batch has at most: each takes 4 bytes, several times.
const MAX_LOGITS: u64 = 1 << 29;
/// A vocabulary has no fewer tokens: the bytes.
const LEAST_TOKENS: u32 = 256;

/// A transformer by its layers, their width, its heads, and how many of these have keys of their own.
#[derive(Debug)]
pub(super) struct Gpt;

impl Gpt {
    /// How large it is, with these sizes on this data.
    fn size(sizes: &[u32], options: &ModelOptions, context: u32, tokens: u32) -> Size {
        let [layers, width, heads] = [0, 1, 2].map(|at| sizes.get(at).copied().unwrap_or(1) as usize);
        let key_heads = sizes.get(3).map_or(heads, |key_heads| *key_heads as usize);
        let (tokens, context, tied_output) = (tokens as usize, context as usize, options.tied_output);
        Size { layers, width, heads, key_heads, tokens, context, tied_output }
    }
}

/// How large the language model is that is named, with a context and vocabulary of so many tokens; `None` of all other models.
pub(crate) fn size_of(spec: &ModelSpec, context: u32, tokens: u32) -> Option<Size> {
    let Chosen { model, sizes, options } = choose(spec).ok()?;
    (model.learns() == OutputKind::Text).then(|| Gpt::size(&sizes, &options, context, tokens))
}

/// How many heads a layer of this width has where nobody says.
fn usual_heads(width: u32) -> u32 {
    let widths = if width >= WIDE { &HEAD_WIDTHS[..] } else { &HEAD_WIDTHS[1..] };
    let fitting = widths.iter().find(|of_head| width.is_multiple_of(**of_head));
    fitting.map_or(1, |of_head| width / of_head)
}

impl RowModule for TransformerNetwork {
    fn outputs(&self, rows: Tensor<2>) -> Tensor<2> {
        self.forward(rows.int())
    }

    fn text(&self) -> Option<&TransformerNetwork> {
        Some(self)
    }
}

impl Model for Gpt {
    fn name(&self) -> &'static str {
        "gpt"
    }

    fn usual(&self) -> &'static [u32] {
        &[4, 128, 4]
    }

    fn whole(&self, mut sizes: Vec<u32>) -> Vec<u32> {
        if let [_, width] = sizes[..] {
            sizes.push(usual_heads(width));
        }
        // Whose keys are shared by none is called as ever.
        if let [_, _, heads, key_heads] = sizes[..]
            && heads == key_heads
        {
            sizes.pop();
        }
        sizes
    }

    fn check(&self, sizes: &[u32]) -> Result<(), String> {
        let (&[layers, width, heads] | &[layers, width, heads, _]) = sizes else {
            return Err(
                "gpt has layers and their width, as gpt:4x128, or also how many heads each has, as gpt:4x128x4, and how many of keys \
                 and values these share, as gpt:4x128x4x2"
                    .to_owned(),
            );
        };
        if !(1..=MAX_LAYERS).contains(&layers) {
            return Err(format!("it has {layers} layers, but 1 to {MAX_LAYERS} are possible"));
        }
        if !(LEAST_HEAD..=MAX_WIDTH).contains(&width) {
            return Err(format!("its layers are {width} wide, but {LEAST_HEAD} to {MAX_WIDTH} are possible"));
        }
        // Each two numbers of a head are turned together.
        if heads == 0
            || width / heads < LEAST_HEAD
            || !width.is_multiple_of(heads)
            || !(width / heads).is_multiple_of(2)
        {
            return Err(format!(
                "it has {heads} heads, but they have to share its width of {width}, an even part of {LEAST_HEAD} or more each; \
                 take a width that is a multiple of 64"
            ));
        }
        match sizes.get(3) {
            Some(key_heads) if *key_heads == 0 || !heads.is_multiple_of(*key_heads) => Err(format!(
                "its {heads} heads share {key_heads} of keys and values, but the same number has to share each; take a divisor of {heads}"
            )),
            _ => Ok(()),
        }
    }

    fn check_options(&self, options: &ModelOptions) -> Result<(), String> {
        match options {
            ModelOptions { augment, .. } if !augment.is_empty() => {
                Err("gpt takes no images; leave --augment out, or take cnn".to_owned())
            }
            ModelOptions { batch_norm: true, .. } => {
                Err("gpt has no layers to normalize; leave --batch-norm out, or take mlp, regression or cnn".to_owned())
            }
            ModelOptions { residual: true, .. } => Err(no_blocks("gpt")),
            ModelOptions { loss: Some(_), .. } => {
                Err("gpt learns tokens, by cross-entropy; leave --loss out, or take regression".to_owned())
            }
            ModelOptions { .. } => Ok(()),
        }
    }

    fn check_batch(&self, sizes: &[u32], [_, _, context]: [u32; 3], tokens: u32, samples: u32) -> Result<(), String> {
        let heads = Self::size(sizes, &ModelOptions::default(), context, tokens).heads as u64;
        let context = u64::from(context);
        let logits = context.saturating_mul(tokens.into()).max(1);
        if logits.saturating_mul(samples.into()) > MAX_LOGITS {
            let instead = match MAX_LOGITS / logits {
                0 => "take a shorter --context, or a smaller vocabulary".to_owned(),
                most => format!("take --micro-batch {most} or less, a shorter --context, or a smaller vocabulary"),
            };
            return Err(format!(
                "the logits of {samples} samples at once, of {context} positions with {tokens} tokens each, would take more than {} GiB; \
                 {instead}",
                MAX_LOGITS >> 28
            ));
        }
        let of_one = heads.saturating_mul(context).saturating_mul(context).max(1);
        if of_one.saturating_mul(samples.into()) <= MAX_PAIRS {
            return Ok(());
        }
        let most = MAX_PAIRS / of_one;
        let instead = match most {
            0 => "take a shorter --context, or fewer heads".to_owned(),
            most => format!("take --micro-batch {most} or less, a shorter --context, or fewer heads"),
        };
        Err(format!(
            "{samples} samples at once, of {context} tokens each that attend to each other {heads} times, would take more than {} GiB for each \
             layer; {instead}",
            MAX_PAIRS >> 28
        ))
    }

    fn task(&self, sizes: &[u32], options: &ModelOptions, dataset: &Arc<Dataset>) -> Result<Box<dyn AnyTask>, String> {
        let description = dataset.description();
        let size = Self::size(sizes, options, description.features, description.classes);
        Ok(Box::new(LanguageTask::new(size, options.clone(), dataset.clone())?))
    }

    fn learns(&self) -> OutputKind {
        OutputKind::Text
    }

    fn computes(
        &self,
        sizes: &[u32],
        options: &ModelOptions,
        shape: [u32; 3],
        classes: u32,
    ) -> Result<Box<dyn AnyModule>, String> {
        let [1, 1, context] = shape else { return Err("its samples are no windows of a text".to_owned()) };
        if !CONTEXT.contains(&context) || !(LEAST_TOKENS..=MAX_TOKENS).contains(&classes) {
            return Err(format!("it sees {context} of {classes} tokens, which is no text"));
        }
        Ok(Box::new(TransformerNetwork::new(Self::size(sizes, options, context, classes), &Device::flex())))
    }
}
