//! Trains a model on one machine, without any peers: what a member of a run does, less the averaging.
//!
//! `cargo run --release -p starling-train --example alone -- [DATA] [MODEL]`, for example `-- flowers.csv mlp:32`.

use std::error::Error;

use starling_run::{Gradient, Learner, RunSpec, StateReplica};
use starling_topology::PeerId;
use starling_topology::ledger::UNMEASURED;
use starling_train::{ClassifierReplica, DataOptions, Dataset, DeviceSpec};

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
    let manifest = starling_train::found(&spec, &dataset)?;
    let mut trainer = ClassifierReplica::new(&manifest, dataset, DeviceSpec::Auto)?;
    println!("run {} on {}, {} parameters", manifest.run_id(), trainer.device(), trainer.training().parameters().len());

    // With more members, each would contribute its gradient to one sum, and all would apply the result.
    let (me, mut gradient) = (PeerId([0; 32]), Gradient::new(trainer.training().parameters().len()));
    trainer.begin(&[me]);
    while trainer.step() < manifest.steps {
        gradient.clear();
        trainer.compute(me, &gradient, &mut |_| {})?;
        let report = trainer.apply(&trainer.training().reduce_alone(&gradient, me, UNMEASURED))?;
        if report.step.is_multiple_of(100) {
            let held_out = trainer.evaluate()?;
            println!(
                "step {}, epoch {}: loss {:.4}, held-out accuracy {:.3}",
                report.step,
                report.epoch,
                report.loss,
                held_out.measure("accuracy").unwrap_or_default()
            );
        }
    }
    println!("state {}", trainer.digest());
    Ok(())
}
