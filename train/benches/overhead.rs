//! What a step costs with one member, against a bare Burn loop: the same module, batches and optimizer, updated by Burn's own AdamW. One is a model of
//! the command line, one a program's own transformer. Rounds of both alternate, so that a busy machine slows both; medians are compared.
//!
//! `cargo bench -p starling-train --bench overhead`, with `-- --json` for one JSON line per model, and `-- --device gpu` for a GPU.

use std::cell::Cell;
use std::time::{Duration, Instant};

use burn::module::Module;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::transformer::{TransformerEncoder, TransformerEncoderConfig, TransformerEncoderInput};
use burn::nn::{Embedding, EmbeddingConfig, Linear, LinearConfig};
use burn::optim::{AdamWConfig, GradientsParams};
use burn::tensor::{Bool, Device, Int, Tensor, TensorData};
use starling_run::training::contribution;
use starling_run::{Gradient, Learner, OptimizerSpec, Program, RunSpec};
use starling_topology::ledger::UNMEASURED;
use starling_topology::{PeerId, SampleOrder, ShufflePolicy, SplitMix64Generator};
use starling_train::{
    ClassifierReplica, DataOptions, Dataset, DeviceSpec, LayerSpec, Network, SampleSummary, Task, TaskProgram,
    fingerprint,
};

const LEARNING_RATE: f32 = 1e-3;
const SEED: u64 = 42;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let json = arguments.iter().any(|argument| argument == "--json");
    let device = arguments.iter().position(|argument| argument == "--device").and_then(|at| arguments.get(at + 1));
    let device = device.map_or(DeviceSpec::Cpu, |device| device.parse().expect("a device"));
    let directory = tempfile::tempdir().expect("a temporary directory");
    let images = images(directory.path());
    for (name, data, model, batch, rounds, steps) in [
        ("mlp 784-512-512-10", images, "mlp:512,512", 128, 21, 8),
        ("digits mlp 64-64-10", "digits".to_owned(), "mlp:64", 64, 41, 100),
    ] {
        let case = Case { name, batch, rounds, steps };
        let (mut member, mut bare) = classifier(&data, model, batch, device);
        report(&case, &mut *member, &mut *bare, json);
    }
    let case = Case { name: "transformer 2x64 of a program's own", batch: 32, rounds: 21, steps: 4 };
    let (mut member, mut bare) = transformer(case.batch, device);
    report(&case, &mut *member, &mut *bare, json);
}

struct Case {
    name: &'static str,
    batch: u32,
    rounds: usize,
    steps: usize,
}

fn report(case: &Case, learner: &mut dyn Learner, bare: &mut dyn FnMut(), json: bool) {
    let me = PeerId([1; 32]);
    learner.begin(&[me]);
    let mut gradient = Gradient::new(learner.manifest().reduced());
    let computing = Cell::new(Duration::ZERO);
    let mut member = || {
        let start = Instant::now();
        gradient.clear();
        let weight = learner.compute(me, &gradient, &mut |_| {}).expect("computed");
        computing.set(computing.get() + start.elapsed());
        let step = learner.ledger().step();
        let record = contribution::alone(step, gradient.values(), weight, case.batch, me, UNMEASURED);
        learner.apply(&record).expect("applied");
    };
    let (mut ours, mut theirs, mut compute) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=case.rounds {
        computing.set(Duration::ZERO);
        let (first, second) = (time(case.steps, bare), time(case.steps, &mut member));
        // The first round fills caches and pools.
        if round > 0 {
            theirs.push(first);
            ours.push(second);
            compute.push(computing.get().as_secs_f64() * 1e3 / case.steps as f64);
        }
    }
    let (ours, theirs, compute) = (median(&mut ours), median(&mut theirs), median(&mut compute));
    let (ratio, batch) = (ours / theirs, case.batch);
    if json {
        println!(
            r#"{{"model":"{}","batch":{batch},"bare_ms":{theirs:.4},"trainer_ms":{ours:.4},"compute_ms":{compute:.4},"ratio":{ratio:.4}}}"#,
            case.name
        );
    } else {
        println!(
            "{}: bare Burn {theirs:.3} ms a step, trainer {ours:.3} ms a step ({compute:.3} until its gradient is there), ratio {ratio:.3}",
            case.name
        );
    }
}

fn spec(batch_size: u32) -> RunSpec {
    RunSpec { optimizer: OptimizerSpec::adam_w(LEARNING_RATE), batch_size, seed: SEED, ..RunSpec::default() }
}

/// A member that trains a model of the command line, and the same by a loop.
fn classifier(data: &str, model: &str, batch: u32, device: DeviceSpec) -> (Box<dyn Learner>, Box<dyn FnMut()>) {
    let options = DataOptions { source: data.to_owned(), ..DataOptions::default() };
    let dataset = Dataset::load(&options).expect("the data loads");
    let spec = RunSpec { model: model.parse().expect("a model"), ..spec(batch) };
    let manifest = starling_train::found(&spec, &dataset).expect("a run");
    let member = ClassifierReplica::new(&manifest, dataset.clone(), device).expect("a trainer");
    let inner = device.open().expect("opened before").device;
    let layers = LayerSpec { hidden: manifest.model.sizes().expect("an mlp"), ..LayerSpec::default() };
    let network = Network::new(&layers, manifest.data.shape, manifest.data.classes, &inner.clone().autodiff());
    let loss = CrossEntropyLossConfig::new().init(&inner);
    let samples = u32::try_from(dataset.training().len()).expect("few samples");
    let bare = bare_loop(network, samples, batch, move |network: &Network, indices| {
        let training = dataset.training();
        let (rows, labels) = training.read(indices).expect("in memory");
        let rows = TensorData::new(rows, [indices.len(), training.features()]);
        let labels: Vec<i64> = labels.into_iter().map(i64::from).collect();
        let targets: Tensor<1, Int> = Tensor::from_data(TensorData::new(labels, [indices.len()]), &inner);
        loss.forward(network.forward(Tensor::from_data(rows, &inner)), targets)
    });
    (Box::new(member), bare)
}

/// Random tokens.
struct Tokens(Vec<u8>);

/// As users of Burn build one.
#[derive(Module, Debug)]
struct Transformer {
    embedding: Embedding,
    encoder: TransformerEncoder,
    output: Linear,
}

impl Tokens {
    const WINDOW: usize = 33;
    const KINDS: usize = 64;
}

impl Task for Tokens {
    type Module = Transformer;
    /// Tokens, and those that come next.
    type Batch = [Tensor<2, Int>; 2];

    fn name(&self) -> &str {
        "tokens"
    }

    fn data(&self) -> SampleSummary {
        let training = u32::try_from(self.0.len() / Self::WINDOW).expect("few");
        SampleSummary { training, held_out: 0, fingerprint: fingerprint(&[0.0]) }
    }

    fn module(&self, device: &Device) -> Transformer {
        Transformer {
            embedding: EmbeddingConfig::new(Self::KINDS, 64).init(device),
            encoder: TransformerEncoderConfig::new(64, 256, 4, 2).with_dropout(0.0).with_norm_first(true).init(device),
            output: LinearConfig::new(64, Self::KINDS).init(device),
        }
    }

    fn batch(&self, samples: &[u32], device: &Device) -> Self::Batch {
        [0, 1].map(|first| {
            let window = |sample: &u32| {
                let window = &self.0[*sample as usize * Self::WINDOW..][..Self::WINDOW];
                window[first..first + Self::WINDOW - 1].iter().map(|token| i64::from(*token))
            };
            let tokens: Vec<i64> = samples.iter().flat_map(window).collect();
            Tensor::from_data(TensorData::new(tokens, [samples.len(), Self::WINDOW - 1]), device)
        })
    }

    fn loss(&self, module: &Transformer, [tokens, next]: Self::Batch) -> Tensor<1> {
        let [sequences, positions] = tokens.dims();
        let device = tokens.device();
        let mask: Tensor<3, Bool> = burn::nn::attention::generate_autoregressive_mask(sequences, positions, &device);
        let input = TransformerEncoderInput::new(module.embedding.forward(tokens)).mask_attn(mask);
        let logits = module.output.forward(module.encoder.forward(input)).flatten::<2>(0, 1);
        CrossEntropyLossConfig::new().init(&device).forward(logits, next.flatten::<1>(0, 1))
    }
}

/// A member that trains a program's own transformer, and the same by a loop.
fn transformer(batch: u32, device: DeviceSpec) -> (Box<dyn Learner>, Box<dyn FnMut()>) {
    let tokens = || {
        let mut generator = SplitMix64Generator::new(2);
        Tokens((0..512 * Tokens::WINDOW).map(|_| (generator.next_u64() % Tokens::KINDS as u64) as u8).collect())
    };
    let workload = TaskProgram::new(tokens(), device).read(&DataOptions::default()).expect("samples");
    let manifest = workload.found(&spec(batch)).expect("a run");
    let member = workload.open(&manifest).expect("a trainer");
    let device = device.open().expect("opened before").device.autodiff();
    let task = tokens();
    let samples = task.data().training;
    let bare = bare_loop(task.module(&device), samples, batch, move |module: &Transformer, indices| {
        task.loss(module, task.batch(indices, &device))
    });
    (member, bare)
}

/// A training loop as Burn's guide writes it: forward, backward, optimizer. Each call takes a step.
fn bare_loop<M: Module + 'static>(
    module: M,
    samples: u32,
    batch: u32,
    loss: impl Fn(&M, &[u32]) -> Tensor<1> + 'static,
) -> Box<dyn FnMut()> {
    let mut current = Some(module);
    let mut optimizer = AdamWConfig::new().with_epsilon(1e-8).with_weight_decay(0.01).init();
    let (mut epoch, mut done) = (0, 0);
    let drawn = move |epoch| SampleOrder::draw(SEED, samples, epoch, ShufflePolicy::Full);
    let mut order = drawn(epoch);
    Box::new(move || {
        if done == samples {
            (epoch, done) = (epoch + 1, 0);
            order = drawn(epoch);
        }
        let next = done..samples.min(done + batch);
        done = next.end;
        // Taken out, not cloned: with a second owner, the optimizer could not update in place.
        let module = current.take().expect("put back after each step");
        let mean = loss(&module, &order.indices(std::slice::from_ref(&next)));
        let gradients = GradientsParams::from_grads(mean.backward(), &module);
        // A training loop shows its loss.
        assert!(mean.into_scalar::<f32>().is_finite());
        current = Some(optimizer.step(f64::from(LEARNING_RATE), module, gradients));
    })
}

/// Milliseconds per step.
fn time(steps: usize, step: &mut dyn FnMut()) -> f64 {
    let start = Instant::now();
    (0..steps).for_each(|_| step());
    let elapsed: Duration = start.elapsed();
    elapsed.as_secs_f64() * 1e3 / steps as f64
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// IDX files of 2,048 random images of 28x28 pixels: the shape of MNIST without its download.
fn images(directory: &std::path::Path) -> String {
    const COUNT: u32 = 2048;
    let mut generator = SplitMix64Generator::new(1);
    let header = |magic: u8, sizes: &[u32]| -> Vec<u8> {
        [0, 0, 8, magic].into_iter().chain(sizes.iter().flat_map(|size| size.to_be_bytes())).collect()
    };
    let mut images = header(3, &[COUNT, 28, 28]);
    images.extend((0..COUNT * 28 * 28).map(|_| generator.next_u64() as u8));
    let mut labels = header(1, &[COUNT]);
    labels.extend((0..COUNT).map(|at| (at % 10) as u8));
    let path = directory.join("train-images-idx3-ubyte");
    std::fs::write(&path, images).expect("written");
    std::fs::write(directory.join("train-labels-idx1-ubyte"), labels).expect("written");
    path.display().to_string()
}
