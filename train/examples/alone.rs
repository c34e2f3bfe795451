//! Trains a model on one machine, without any peers: what a member of a run does, less the averaging.
//!
//! `cargo run --release -p starling-train --example alone -- [DATA] [MODEL]`, for example `-- flowers.csv mlp:32`.

use std::error::Error;

use starling_topology::{Rank, WorldSize};
use starling_train::{DataOptions, Dataset, DeviceChoice, Manifest, RunSpec, Trainer};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut options = DataOptions::default();
    let mut spec = RunSpec { steps: 400, ..RunSpec::default() };
    if let Some(source) = arguments.next() {
        options.source = source;
    }
    if let Some(model) = arguments.next() {
        spec.model = model.parse()?;
    }

    let dataset = Dataset::load(&options)?;
    let data = dataset.description();
    println!("{}: {} samples of {} features, {} classes", data.kind, data.samples, data.features, data.classes);
    let manifest = Manifest::found(&spec, &dataset)?;
    let mut trainer = Trainer::new(&manifest, dataset, DeviceChoice::Auto)?;
    println!("run {} on {}, {} parameters", manifest.run_id(), trainer.device_name(), trainer.parameters());

    // With more members, the buffer would be averaged between `compute` and `apply`.
    let (alone, mut buffer) = (WorldSize::new(1), Vec::new());
    while trainer.step() < trainer.steps() {
        trainer.compute(alone, Rank(0), &mut buffer)?;
        let report = trainer.apply(&buffer)?;
        if report.step.is_multiple_of(100) {
            let held_out = trainer.evaluate()?;
            println!(
                "step {}, epoch {}: loss {:.4}, held-out accuracy {:.3}",
                report.step, report.epoch, report.loss, held_out.accuracy
            );
        }
    }
    println!("state {}", trainer.digest());
    Ok(())
}
