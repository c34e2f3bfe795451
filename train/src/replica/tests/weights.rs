//! Rows that count differently: what members come to together is the mean by what rows count, however they are dealt.

use std::fs;

use starling_data::TableColumn;

use super::churn::{Swarm, distance, peer};
use super::*;
use crate::task::Task;

/// Three classes that are told by two numbers; a quarter of the rows counts nothing, and others up to 5.
fn dataset(held_bytes: u64) -> Dataset {
    let row = |row: u32| {
        format!("{},{},{},{}\n", row * 37 % 211, row * row % 97, [0.0, 5.0, 0.5, 1.0][row as usize % 4], row % 3)
    };
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("table.csv");
    fs::write(&path, "x,y,counts,kind\n".to_owned() + &(0..600).map(row).collect::<String>()).expect("written");
    let weights = Some(TableColumn::Written("counts".to_owned()));
    let source = path.display().to_string();
    let options = DataOptions { source, weights, held_bytes, ..DataOptions::default() };
    Dataset::load(&options).expect("a table")
}

fn trainer(model: &str) -> ClassifierReplica {
    let dataset = dataset(1 << 20);
    let (model, optimizer) = (model.parse().expect("a model"), OptimizerSpec::sgd(0.05));
    let spec = RunSpec { model, optimizer, batch_size: 60, micro_batch: 6, steps: 400, ..RunSpec::default() };
    let manifest = found(&spec, &dataset).expect("a run");
    assert!(manifest.weighted);
    ClassifierReplica::new(&manifest, dataset, DeviceSpec::Cpu).expect("a trainer")
}

#[test]
fn members_take_the_steps_of_one_over_rows_that_count_differently() {
    for model in ["mlp:8", "softmax+class-weights=balanced"] {
        let mut alone = trainer(model);
        let mut swarm = Swarm::of(&[100, 200, 700], 60, &|| trainer(model));
        for step in 1..=30 {
            let (ours, theirs) = (advance(&mut alone, &mut Vec::new()), swarm.step());
            swarm.check_digests();
            let relative = distance(&alone.state().parameters, &swarm.members[&peer(1)].trainer.state().parameters);
            assert!(relative <= 1e-5, "{model}: relative difference {relative} after step {step}");
            assert!((theirs.loss / ours.loss - 1.0).abs() < 1e-4, "{} and {}", theirs.loss, ours.loss);
        }
    }
}

/// The loss of a batch is the mean by what rows count, and so is what is measured.
#[test]
fn a_loss_is_the_mean_by_what_rows_count() {
    let trainer = trainer("mlp:8");
    let (task, dataset) = (&trainer.task, dataset(1 << 20));
    let samples: Vec<u32> = (3..23).collect();
    let weights = dataset.weights(&samples).expect("they differ");
    let module = trainer.present();
    let loss =
        |samples: &[u32]| f64::from(task.loss(&module, task.batch(samples, &trainer.inner)).into_scalar::<f32>());
    let (mut sum, mut all) = (0.0, 0.0);
    for (sample, weight) in samples.iter().zip(&weights) {
        if *weight > 0.0 {
            // Of a single one, what it counts makes no difference.
            sum += f64::from(*weight) * loss(&[*sample]);
            all += f64::from(*weight);
        }
    }
    assert_eq!(task.weight(&samples), Some(all));
    assert!((loss(&samples) - sum / all).abs() < 1e-5, "{} instead of {}", loss(&samples), sum / all);
    let measured = task.measure(&module, &samples, &trainer.inner).expect("computed");
    assert!((measured[0].1 - sum).abs() < 1e-4, "{measured:?} instead of {sum}");
    assert!(measured[1].0 == "accuracy" && measured[1].1 <= all);
}
