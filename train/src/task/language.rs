//! The task of the command line's language models: which token comes next. Where no vocabulary was made, tokens are bytes.

use std::io;
use std::sync::Arc;

use burn::nn::loss::CrossEntropyLossConfig;
use burn::tensor::activation::log_softmax;
use burn::tensor::{Device, ExecutionError, Int, Tensor, TensorData};
use starling_data::{DataError, Dataset, Tokenizer};
use starling_run::ModelOptions;

use crate::network::cut::Cut;
use crate::network::dropout::Dropout;
use crate::network::transformer::{Size, TransformerNetwork};
use crate::task::{DrawSeed, MeasureError, SampleSummary, Task, evaluation};

/// A [`TransformerNetwork`] that learns the windows of a text by cross-entropy.
#[derive(Debug)]
pub struct LanguageTask {
    size: Size,
    options: ModelOptions,
    dataset: Arc<Dataset>,
}

/// Windows on a device.
#[derive(Debug, Clone)]
pub struct WindowBatch {
    /// `[windows, context]`.
    tokens: Tensor<2, Int>,
    /// `[windows * context]`: what follows each.
    next: Tensor<1, Int>,
    /// What is random about it, in training.
    draw: Option<DrawSeed>,
}

impl WindowBatch {
    /// Of windows of `context` tokens, each with the token behind it.
    fn new(windows: &[u32], context: usize, device: &Device) -> Self {
        let count = windows.len() / (context + 1);
        let each = |of: fn(&[u32]) -> &[u32]| -> Vec<i64> {
            windows.chunks_exact(context + 1).flat_map(of).copied().map(i64::from).collect()
        };
        let tokens = TensorData::new(each(|window| &window[..window.len() - 1]), [count, context]);
        let next = TensorData::new(each(|window| &window[1..]), [count * context]);
        Self { tokens: Tensor::from_data(tokens, device), next: Tensor::from_data(next, device), draw: None }
    }
}

impl LanguageTask {
    /// By a transformer of this size, whose context is that of the data.
    ///
    /// # Errors
    /// If the data is no text, as a sentence.
    pub fn new(size: Size, options: ModelOptions, dataset: Arc<Dataset>) -> Result<Self, String> {
        let description = dataset.description();
        if !description.is_text() {
            return Err(format!(
                "gpt learns a text, but the data is none (its kind is `{}`); name a file of text, or what `starling data prepare` has made of such, by \
                 --data, or take a model for such data: \
                 mlp, for example",
                description.kind
            ));
        }
        Ok(Self { size, options, dataset })
    }
}

impl LanguageTask {
    /// The windows of these numbers, each with the token behind it.
    fn windows(&self, samples: &[u32]) -> Result<Vec<u32>, DataError> {
        let (data, places) = self.dataset.numbered(samples);
        data.windows(&places)
    }
}

impl Task for LanguageTask {
    type Module = TransformerNetwork;
    type Batch = WindowBatch;

    fn name(&self) -> &str {
        "gpt"
    }

    fn data(&self) -> SampleSummary {
        (&*self.dataset).into()
    }

    fn module(&self, device: &Device) -> TransformerNetwork {
        TransformerNetwork::new(self.size, device)
    }

    /// # Panics
    /// If the text can't be read: [`Self::read_batch`] says it.
    fn batch(&self, samples: &[u32], device: &Device) -> WindowBatch {
        let windows = self.windows(samples).unwrap_or_else(|error| panic!("{error}"));
        WindowBatch::new(&windows, self.size.context, device)
    }

    fn training_batch(&self, samples: &[u32], draw: &DrawSeed, device: &Device) -> WindowBatch {
        WindowBatch { draw: Some(*draw), ..self.batch(samples, device) }
    }

    fn read_batch(&self, samples: &[u32], draw: &DrawSeed, device: &Device) -> io::Result<WindowBatch> {
        let windows = self.windows(samples).map_err(io::Error::other)?;
        Ok(WindowBatch { draw: Some(*draw), ..WindowBatch::new(&windows, self.size.context, device) })
    }

    fn are_here(&self, samples: &[u32]) -> bool {
        self.dataset.are_here(samples)
    }

    fn is_whole(&self) -> bool {
        self.dataset.is_whole()
    }

    fn loads_beside(&self) -> Option<u64> {
        // Each token is there twice, as a number of twice as many bytes.
        self.dataset.training().bytes_read().map(|bytes| 4 * bytes)
    }

    fn loss(&self, transformer: &TransformerNetwork, batch: WindowBatch) -> Tensor<1> {
        self.loss_in_blocks(transformer, batch, &mut Cut::nowhere())
    }

    fn borders(&self, transformer: &TransformerNetwork) -> Vec<usize> {
        transformer.borders()
    }

    fn loss_in_blocks(&self, transformer: &TransformerNetwork, batch: WindowBatch, cut: &mut Cut<'_>) -> Tensor<1> {
        let WindowBatch { tokens, next, draw } = batch;
        let drop = Dropout::between_layers(self.options.dropout, draw.as_ref());
        let logits = transformer.forward_through(tokens, drop, |features| cut.here(features));
        CrossEntropyLossConfig::new().init(&logits.device()).forward(logits, next)
    }

    fn measure(
        &self,
        transformer: &TransformerNetwork,
        samples: &[u32],
        device: &Device,
    ) -> Result<Vec<(&'static str, f64)>, MeasureError> {
        let windows = self.windows(samples).map_err(io::Error::other)?;
        Ok(measure(transformer, &windows, self.dataset.tokenizer(), device)?)
    }

    fn measures(&self) -> Vec<&'static str> {
        let bytes = self.dataset.tokenizer().map(|_| evaluation::BYTES_PER_TOKEN);
        ["accuracy", evaluation::PERPLEXITY, evaluation::BITS_PER_BYTE].into_iter().chain(bytes).collect()
    }

    fn measured_at_once(&self) -> u32 {
        self.size.measured_at_once().min(evaluation::AT_ONCE)
    }
}

/// Sums over windows, each with the token behind it, of means over a window: cross-entropy in nats as `loss`, which share of the tokens was the
/// most probable one as `accuracy`, and cross-entropy in bits as `bits_per_byte`: for tokens that are no bytes, with how many bytes these spell as
/// `bytes_per_token`, by which it is divided once all is summed. What is summed as `perplexity` is a logarithm.
pub(crate) fn measure(
    transformer: &TransformerNetwork,
    windows: &[u32],
    tokenizer: Option<&Tokenizer>,
    device: &Device,
) -> Result<Vec<(&'static str, f64)>, ExecutionError> {
    let context = transformer.context();
    let WindowBatch { tokens, next, .. } = WindowBatch::new(windows, context, device);
    let known = log_softmax(transformer.forward(tokens), 1);
    let [count, _] = known.dims();
    let (largest, of_next) = (known.clone().max_dim(1), known.gather(1, next.reshape([count, 1])));
    let [largest, of_next] = [largest.try_into_data()?, of_next.try_into_data()?];
    let numbers = |data| -> &[f32] { TensorData::as_slice(data).expect("invariant: every device computes in f32") };
    let (largest, of_next) = (numbers(&largest), numbers(&of_next));
    let loss = of_next.iter().map(|known| -f64::from(*known)).sum::<f64>() / context as f64;
    let hits = largest.iter().zip(of_next).filter(|(largest, known)| largest == known).count() as f64 / context as f64;
    let bytes = tokenizer.map(|tokenizer| {
        let of_next = windows.chunks_exact(context + 1).flat_map(|window| &window[1..]);
        let bytes: usize = of_next.map(|token| tokenizer.spelled(*token).len()).sum();
        (evaluation::BYTES_PER_TOKEN, bytes as f64 / context as f64)
    });
    let measures = [
        ("loss", loss),
        ("accuracy", hits),
        (evaluation::PERPLEXITY, loss),
        (evaluation::BITS_PER_BYTE, loss / std::f64::consts::LN_2),
    ];
    Ok(measures.into_iter().chain(bytes).collect())
}

#[cfg(test)]
mod tests {
    use burn::module::Module;
    use starling_data::DataOptions;

    use super::*;
    use starling_run::{LeafKind, Precision};

    use crate::network::flatten::{LeafValues, numbers, read_gradients, write_leaves, write_parameters};
    use crate::network::schema;

    const SIZE: Size =
        Size { layers: 2, width: 16, heads: 2, key_heads: 2, tokens: 256, context: 8, tied_output: false };

    fn task(dropout: f64) -> (LanguageTask, TransformerNetwork) {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("text.txt");
        std::fs::write(&path, "the cat sat on the mat, and the rat on the hat. ".repeat(10)).expect("written");
        let source = path.display().to_string();
        let options = DataOptions { source, text: true, context: Some(8), ..DataOptions::default() };
        let dataset = Arc::new(Dataset::load(&options).expect("a text"));
        let options = ModelOptions { dropout, ..ModelOptions::default() };
        let task = LanguageTask::new(SIZE, options, dataset).expect("a text");
        let device = Device::flex().autodiff();
        let module = task.module(&device);
        let schema = schema::of_module(&module);
        let parameters = task.initial(&schema, 3);
        (task, write_parameters(module, &parameters, &device))
    }

    fn value(loss: Tensor<1>) -> f32 {
        loss.into_scalar()
    }

    #[test]
    fn what_is_measured_is_the_loss_in_other_words() {
        let (task, module) = task(0.0);
        let samples: Vec<u32> = (0..7).collect();
        let loss = f64::from(value(task.loss(&module, task.batch(&samples, &Device::flex().autodiff()))));
        let sums = task.measure(&module.valid(), &samples, &Device::flex()).expect("computed");
        assert!((sums[0].1 / 7.0 - loss).abs() < 1e-5, "{sums:?} of {loss}");
        assert!(loss > 4.0 && loss < 7.0, "{loss}: nothing is learned yet");
        let mut all = evaluation::Sums::default();
        all.add(sums);
        let evaluation = all.mean(7.0);
        let measure = |name| evaluation.measure(name).expect("measured");
        assert!((measure("perplexity") - evaluation.loss.exp()).abs() < 1e-9);
        assert!((measure("bits_per_byte") * 2.0_f64.ln() - evaluation.loss).abs() < 1e-9);
        assert!((0.0..=1.0).contains(&measure("accuracy")));
    }

    #[test]
    fn less_precise_numbers_come_to_nearly_the_same() {
        let (task, module) = task(0.2);
        let device = Device::flex().autodiff();
        let schema = schema::of_module(&module);
        let parameters = task.initial(&schema, 3);
        let kinds: Vec<LeafKind> = schema.entries().iter().map(|entry| entry.kind).collect();
        let of = |precision| {
            let values = LeafValues::changing(&*parameters, parameters.len());
            let module = write_leaves(module.clone(), &kinds, values, precision, &device);
            let loss = task.loss(&module, task.training_batch(&[1, 2, 3], &DrawSeed::new(1, 0, 0), &device));
            let mut gradients = loss.backward();
            let read = read_gradients(&module, 0..schema.parameters(), &mut gradients, Vec::new()).expect("computed");
            let gradient: Vec<f32> = read.iter().flat_map(numbers).copied().collect();
            (value(loss.inner()), gradient)
        };
        let length = |numbers: &mut dyn Iterator<Item = f32>| numbers.map(|number| number * number).sum::<f32>().sqrt();
        let (loss, gradient) = of(Precision::F32);
        for precision in [Precision::Bf16, Precision::F16] {
            let (less, other) = of(precision);
            let off =
                length(&mut gradient.iter().zip(&other).map(|(a, b)| a - b)) / length(&mut gradient.iter().copied());
            assert!(less != loss && (less - loss).abs() < 0.02 * loss, "{precision}: {less} instead of {loss}");
            assert!(off > 0.0 && off < 0.05, "{precision}: its gradient is off by {off}");
        }
    }

    #[test]
    fn gradients_in_blocks_are_those_of_one_backward() {
        let (task, module) = task(0.0);
        let device = Device::flex().autodiff();
        let schema = schema::of_module(&module);
        let borders = task.borders(&module);
        assert_eq!(borders.len(), 2);
        let starts: Vec<usize> = {
            let mut at = 0;
            schema.entries().iter().map(|entry| (at, at += entry.elements()).0).collect()
        };
        assert!(borders.iter().all(|border| starts.contains(border)), "{borders:?} cut a parameter");
        let read = |gradients: &mut burn::tensor::Gradients, range| -> Vec<f32> {
            let read =
                crate::network::flatten::read_gradients(&module, range, gradients, Vec::new()).expect("computed");
            read.iter().flat_map(crate::network::flatten::numbers).copied().collect()
        };
        let batch = task.batch(&[1, 2, 3], &device);
        let whole = read(&mut task.loss(&module, batch.clone()).backward(), 0..schema.parameters());
        assert!(whole.iter().filter(|number| **number != 0.0).count() * 2 > whole.len(), "most take part");
        let chosen: Vec<Option<usize>> = borders.iter().copied().map(Some).collect();
        let mut cut = Cut::new(&chosen);
        let loss = task.loss_in_blocks(&module, batch, &mut cut);
        let mut gradients = loss.backward();
        let (mut end, mut parts) = (schema.parameters(), Vec::new());
        for (start, behind) in cut.passed().into_iter().rev() {
            parts.push(read(&mut gradients, start..end));
            gradients = behind(&mut gradients);
            end = start;
        }
        parts.push(read(&mut gradients, 0..end));
        parts.reverse();
        assert_eq!(parts.concat(), whole);
    }

    #[test]
    fn what_is_dropped_follows_from_the_draw() {
        let (task, module) = task(0.5);
        let device = Device::flex().autodiff();
        let loss =
            |first| value(task.loss(&module, task.training_batch(&[1, 2], &DrawSeed::new(1, 0, first), &device)));
        assert_eq!(loss(0).to_bits(), loss(0).to_bits());
        assert_ne!(loss(0).to_bits(), loss(2).to_bits());
    }

    #[test]
    fn no_position_sees_a_later_one() {
        let (_, module) = task(0.0);
        let logits = |text: &[u8]| -> Vec<f32> {
            let tokens: Vec<i64> = text.iter().copied().map(i64::from).collect();
            let tokens = Tensor::from_data(TensorData::new(tokens, [1, text.len()]), &Device::flex());
            module.valid().forward(tokens).into_data().try_to_vec().expect("f32")
        };
        let (one, other) = (logits(b"abcdefgh"), logits(b"abcdeXYZ"));
        assert_eq!(one[..5 * 256], other[..5 * 256]);
        assert!(one[5 * 256..].iter().zip(&other[5 * 256..]).all(|(a, b)| a != b));
        // Where it is counts, not only what came before.
        let swapped = (logits(b"abc"), logits(b"bac"));
        assert_ne!(swapped.0[512..], swapped.1[512..]);
    }
}
