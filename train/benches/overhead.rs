//! What a step of a [`ClassifierReplica`] costs with one member, against a bare Burn loop: the same model, batches and optimizer,
//! updated by Burn's own AdamW. Rounds of both alternate, so that a busy machine slows both; medians are compared.
//!
//! `cargo bench -p starling-train --bench overhead`, with `-- --json` for one JSON line per model, and `-- --device gpu` for a GPU.

use std::cell::Cell;
use std::time::{Duration, Instant};

use burn::nn::loss::CrossEntropyLossConfig;
use burn::optim::{AdamWConfig, GradientsParams};
use burn::tensor::{Device, Int, Tensor, TensorData};
use starling_run::{Gradient, Learner, Manifest, OptimizerSpec, RunSpec, StateReplica};
use starling_topology::ledger::UNMEASURED;
use starling_topology::{PeerId, SampleOrder, SplitMix64Generator};
use starling_train::{ClassifierReplica, DataOptions, Dataset, DeviceSpec, LayerSpec, Network};

const BATCH: u32 = 64;
const LEARNING_RATE: f32 = 1e-3;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let json = arguments.iter().any(|argument| argument == "--json");
    let device = arguments.iter().position(|argument| argument == "--device").and_then(|at| arguments.get(at + 1));
    let device = device.map_or(DeviceSpec::Cpu, |device| device.parse().expect("a device"));
    let directory = tempfile::tempdir().expect("a temporary directory");
    let images = images(directory.path());
    let cases = [
        Case { name: "mlp 784-512-512-10", data: images, model: "mlp:512,512", rounds: 21, steps: 8 },
        Case { name: "digits mlp 64-64-10", data: "digits".to_owned(), model: "mlp:64", rounds: 41, steps: 100 },
    ];
    for case in cases {
        report(&case, device, json);
    }
}

struct Case {
    name: &'static str,
    data: String,
    model: &'static str,
    rounds: usize,
    steps: usize,
}

fn report(case: &Case, device: DeviceSpec, json: bool) {
    let options = DataOptions { source: case.data.clone(), ..DataOptions::default() };
    let dataset = Dataset::load(&options).expect("the data loads");
    let spec = RunSpec {
        model: case.model.parse().expect("a model"),
        optimizer: OptimizerSpec::adam_w(LEARNING_RATE),
        batch_size: BATCH,
        ..RunSpec::default()
    };
    let manifest = starling_train::found(&spec, &dataset).expect("a run");
    let mut trainer = ClassifierReplica::new(&manifest, dataset.clone(), device).expect("a trainer");
    let me = PeerId([1; 32]);
    trainer.begin(&[me]);
    let mut gradient = Gradient::new(trainer.training().parameters().len());
    let computing = Cell::new(Duration::ZERO);
    let mut member = || {
        let start = Instant::now();
        gradient.clear();
        trainer.compute(me, &gradient, &mut |_| {}).expect("computed");
        computing.set(computing.get() + start.elapsed());
        trainer.apply(&trainer.training().reduce_alone(&gradient, me, UNMEASURED)).expect("applied");
    };
    let mut bare = bare_loop(dataset, &manifest, device.open().expect("opened before").device);

    let (mut ours, mut theirs, mut compute) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=case.rounds {
        computing.set(Duration::ZERO);
        let (first, second) = (time(case.steps, &mut bare), time(case.steps, &mut member));
        // The first round fills caches and pools.
        if round > 0 {
            theirs.push(first);
            ours.push(second);
            compute.push(computing.get().as_secs_f64() * 1e3 / case.steps as f64);
        }
    }
    let (ours, theirs, compute) = (median(&mut ours), median(&mut theirs), median(&mut compute));
    let ratio = ours / theirs;
    if json {
        println!(
            r#"{{"model":"{}","batch":{BATCH},"bare_ms":{theirs:.4},"trainer_ms":{ours:.4},"compute_ms":{compute:.4},"ratio":{ratio:.4}}}"#,
            case.name
        );
    } else {
        println!(
            "{}: bare Burn {theirs:.3} ms a step, trainer {ours:.3} ms a step ({compute:.3} until its gradient is there), ratio {ratio:.3}",
            case.name
        );
    }
}

/// One step of a training loop as Burn's guide writes it: forward, backward, optimizer.
fn bare_loop(dataset: Dataset, manifest: &Manifest, inner: Device) -> impl FnMut() {
    let device = inner.clone().autodiff();
    let layers = LayerSpec { hidden: manifest.model.sizes().expect("an mlp"), ..LayerSpec::default() };
    let mut current = Some(Network::new(&layers, manifest.data.shape, manifest.data.classes, &device));
    let loss = CrossEntropyLossConfig::new().init(&device);
    let mut optimizer = AdamWConfig::new().with_epsilon(1e-8).with_weight_decay(0.01).init();
    let samples = u32::try_from(dataset.training().len()).expect("few samples");
    let (mut epoch, mut done) = (0, 0);
    let mut order = SampleOrder::draw(manifest.seed, samples, epoch);
    move || {
        if done == samples {
            (epoch, done) = (epoch + 1, 0);
            order = SampleOrder::draw(manifest.seed, samples, epoch);
        }
        let next = done..samples.min(done + BATCH);
        done = next.end;
        // Taken out, not cloned: with a second owner, the optimizer could not update in place.
        let network = current.take().expect("put back after each step");
        let indices = order.indices(std::slice::from_ref(&next));
        let training = dataset.training();
        let rows = TensorData::new(training.gather(&indices), [indices.len(), training.features()]);
        let labels: Vec<i64> = indices.iter().map(|index| i64::from(training.labels()[*index as usize])).collect();
        let targets: Tensor<1, Int> = Tensor::from_data(TensorData::new(labels, [indices.len()]), &inner);
        let mean = loss.forward(network.forward(Tensor::from_data(rows, &inner)), targets);
        let gradients = GradientsParams::from_grads(mean.backward(), &network);
        // A training loop shows its loss.
        assert!(mean.into_scalar::<f32>().is_finite());
        current = Some(optimizer.step(f64::from(LEARNING_RATE), network, gradients));
    }
}

/// Milliseconds per step.
fn time(steps: usize, step: &mut impl FnMut()) -> f64 {
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
