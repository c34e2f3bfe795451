//! A text that goes on: token after token, each drawn from what the model says of the next one. Where no vocabulary was made, tokens are bytes.

use burn::tensor::{Int, Tensor, TensorData};
use starling_topology::SplitMix64Generator;

use super::{Model, ModelError};
use crate::network::transformer::Cache;

/// What begins a text of which nothing is said: as behind a line. Where there is a token that ends documents, it is that one.
const BEGINNING: u32 = b'\n' as u32;

/// How the next token is drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SamplingOptions {
    /// What logits are divided by: below 1, what is probable becomes more so. 0: the most probable token, whatever the seed.
    pub temperature: f64,
    /// So many of the most probable tokens are drawn from; `None`: all.
    pub top_k: Option<usize>,
    /// The fewest of the most probable tokens are drawn from that have this probability together (Holtzman et al.: "The Curious Case of
    /// Neural Text Degeneration", 2020). 1: all.
    pub top_p: f64,
    /// With an equal seed, what is drawn is equal.
    pub seed: u64,
}

impl Default for SamplingOptions {
    fn default() -> Self {
        Self { temperature: 0.8, top_k: None, top_p: 1.0, seed: 42 }
    }
}

/// The tokens that a model goes on with, as they are drawn; they don't end.
///
/// What the model sees begins with the prompt's last tokens. When it sees as many as it can, it goes on with the later half of them.
#[derive(Debug)]
pub struct TextGenerator<'m> {
    model: &'m Model,
    sampling: SamplingOptions,
    generator: SplitMix64Generator,
    /// What the model sees.
    seen: Vec<u32>,
    /// What was computed of it; `None`: everything is computed anew for each token.
    cache: Option<Cache>,
    context: usize,
    prompt: usize,
}

impl Model {
    /// Goes on with a text. Of one that is longer than the model's context, it sees the end. An empty one is as the end of a line.
    ///
    /// # Errors
    /// If it has learned no text, or can't make tokens of the prompt.
    pub fn generate(&self, prompt: &[u8], sampling: SamplingOptions) -> Result<TextGenerator<'_>, ModelError> {
        let context = self.transformer()?.0.context();
        let mut seen: Vec<u32> = match self.tokenizer() {
            None => prompt.iter().map(|byte| u32::from(*byte)).collect(),
            Some(tokenizer) => {
                let encoded = tokenizer.encode(&String::from_utf8_lossy(prompt));
                encoded.map_err(|reason| ModelError::Prompt { model: self.name(), reason })?
            }
        };
        let prompt = seen.len();
        if seen.is_empty() {
            seen.push(self.tokenizer().map_or(BEGINNING, |tokenizer| tokenizer.spec().end));
        }
        seen.drain(..seen.len().saturating_sub(context));
        let generator = SplitMix64Generator::for_purpose("starling generation", sampling.seed, 0);
        Ok(TextGenerator { model: self, sampling, generator, seen, cache: Some(Cache::default()), context, prompt })
    }
}

impl TextGenerator<'_> {
    /// The same, computed anew for each token: slower, and for comparisons alone.
    #[must_use]
    pub fn without_cache(self) -> Self {
        Self { cache: None, ..self }
    }

    /// How many tokens the model sees at most.
    pub fn context(&self) -> usize {
        self.context
    }

    /// How many tokens the prompt has.
    pub fn prompt(&self) -> usize {
        self.prompt
    }

    /// Whether a token is the one that ends a document.
    pub fn is_end(&self, token: u32) -> bool {
        self.model.tokenizer().is_some_and(|tokenizer| tokenizer.spec().end == token)
    }

    /// The bytes that a token stands for, which may be part of a character; none of one that marks something.
    pub fn spelled(&self, token: u32) -> Vec<u8> {
        match self.model.tokenizer() {
            Some(tokenizer) => tokenizer.spelled(token).to_vec(),
            None => u8::try_from(token).into_iter().collect(),
        }
    }

    /// The next token.
    ///
    /// # Errors
    /// If the device fails, or what comes out is not finite.
    pub fn draw(&mut self) -> Result<u32, ModelError> {
        let logits = self.logits();
        if logits.is_err() {
            self.forget();
        }
        let logits = logits?;
        if logits.iter().any(|logit| !logit.is_finite()) {
            self.forget();
            return Err(ModelError::NoNumber { model: self.model.name() });
        }
        let token = chosen(&logits, &self.sampling, &mut self.generator);
        self.seen.push(token);
        Ok(token)
    }

    /// What is cached is of tokens that were not followed by one.
    fn forget(&mut self) {
        self.cache = self.cache.as_ref().map(|_| Cache::default());
    }

    /// Of the token that follows what is seen, one for each that it may be.
    fn logits(&mut self) -> Result<Vec<f32>, ModelError> {
        if self.seen.len() > self.context {
            self.seen.drain(..self.seen.len() - self.context.div_ceil(2));
            self.forget();
        }
        let (transformer, device) = self.model.transformer()?;
        let mut anew = Cache::default();
        let cache = self.cache.as_mut().unwrap_or(&mut anew);
        let new = &self.seen[cache.positions()..];
        let tokens: Vec<i64> = new.iter().copied().map(i64::from).collect();
        let tokens: Tensor<2, Int> = Tensor::from_data(TensorData::new(tokens, [1, new.len()]), device);
        let logits = transformer.next(tokens, cache).try_into_data().map_err(|source| self.model.failed(source))?;
        Ok(logits.as_slice::<f32>().expect("invariant: every device computes in f32").to_vec())
    }
}

/// The token that is drawn. Of equally probable ones, those of lower numbers come first.
fn chosen(logits: &[f32], sampling: &SamplingOptions, generator: &mut SplitMix64Generator) -> u32 {
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]).then(a.cmp(b)));
    let number = |token: usize| u32::try_from(token).expect("invariant: vocabularies are bounded");
    if sampling.temperature <= 0.0 {
        return number(order[0]);
    }
    order.truncate(sampling.top_k.unwrap_or(order.len()).max(1));
    let largest = f64::from(logits[order[0]]);
    let weight = |token: &usize| ((f64::from(logits[*token]) - largest) / sampling.temperature).exp();
    let mut weights: Vec<f64> = order.iter().map(weight).collect();
    let wanted = sampling.top_p * weights.iter().sum::<f64>();
    let mut sum = 0.0;
    let enough = weights.iter().position(|weight| {
        sum += weight;
        sum >= wanted
    });
    weights.truncate(enough.map_or(weights.len(), |last| last + 1));
    // 53 bits are all that a number below 1 has.
    let mut left = (generator.next_u64() >> 11) as f64 / (1_u64 << 53) as f64 * weights.iter().sum::<f64>();
    let drawn = weights.iter().position(|weight| {
        left -= weight;
        left < 0.0
    });
    // What is left by rounding is the last one's.
    number(order[drawn.unwrap_or(weights.len() - 1)])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(logits: &[f32], sampling: SamplingOptions) -> Vec<usize> {
        let mut generator = SplitMix64Generator::new(sampling.seed);
        let mut counts = vec![0; logits.len()];
        (0..1000).for_each(|_| counts[chosen(logits, &sampling, &mut generator) as usize] += 1);
        counts
    }

    #[test]
    fn bytes_are_drawn_as_probable_as_they_are() {
        // Of probabilities 1/8, 1/2, 1/8, 1/4.
        let logits = [0.0, 4.0_f32.ln(), 0.0, 2.0_f32.ln()];
        let plain = SamplingOptions { temperature: 1.0, ..SamplingOptions::default() };
        let near = |counts: Vec<usize>, shares: [f64; 4]| {
            let is_near = |(count, share): (&usize, f64)| (*count as f64 / 1000.0 - share).abs() < 0.05;
            assert!(counts.iter().zip(shares).all(is_near), "{counts:?} of {shares:?}");
        };
        near(drawn(&logits, plain), [0.125, 0.5, 0.125, 0.25]);
        assert_eq!(drawn(&logits, plain), drawn(&logits, plain));
        assert_ne!(drawn(&logits, plain), drawn(&logits, SamplingOptions { seed: 1, ..plain }));
        // The square of each.
        near(
            drawn(&logits, SamplingOptions { temperature: 0.5, ..plain }),
            [1.0 / 22.0, 16.0 / 22.0, 1.0 / 22.0, 4.0 / 22.0],
        );
        assert_eq!(drawn(&logits, SamplingOptions { temperature: 0.0, ..plain }), [0, 1000, 0, 0]);
        near(drawn(&logits, SamplingOptions { top_k: Some(2), ..plain }), [0.0, 2.0 / 3.0, 0.0, 1.0 / 3.0]);
        // The first of the two that are equal.
        near(drawn(&logits, SamplingOptions { top_k: Some(3), ..plain }), [1.0 / 7.0, 4.0 / 7.0, 0.0, 2.0 / 7.0]);
        near(drawn(&logits, SamplingOptions { top_p: 0.7, ..plain }), [0.0, 2.0 / 3.0, 0.0, 1.0 / 3.0]);
        assert_eq!(drawn(&logits, SamplingOptions { top_p: 0.0001, ..plain }), [0, 1000, 0, 0]);
    }
}
