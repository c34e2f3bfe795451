//! Runs on tables that stay in their files.

use std::fs::{self, OpenOptions};
use std::path::Path;

use super::*;

/// Numbers with gaps, a column of texts, and three classes of which one is rare.
fn table() -> String {
    let row = |row: u32| {
        let size = if row.is_multiple_of(9) { String::new() } else { format!("{}.25", row * 37 % 211) };
        let kind = if row.is_multiple_of(13) { "rare" } else { ["one", "two"][row as usize % 2] };
        format!("{size},{},{},{kind}\n", ["red", "\"light, blue\""][row as usize % 3 % 2], row * 7 % 40)
    };
    "size,color,age,kind\n".to_owned() + &(0..5000).map(row).collect::<String>()
}

fn open(path: &Path, held_bytes: u64) -> ClassifierReplica {
    open_ahead(path, held_bytes, ComputeSpec::default().ahead_bytes)
}

fn open_ahead(path: &Path, held_bytes: u64, ahead_bytes: u64) -> ClassifierReplica {
    open_shuffled(path, held_bytes, ahead_bytes, ShufflePolicy::Full)
}

fn open_shuffled(path: &Path, held_bytes: u64, ahead_bytes: u64, shuffle: ShufflePolicy) -> ClassifierReplica {
    let options = DataOptions { source: path.display().to_string(), held_bytes, ..DataOptions::default() };
    let model = "mlp:8+class-weights=balanced".parse().expect("a model");
    let spec = RunSpec { model, micro_batch: 16, steps: 400, shuffle, ..RunSpec::default() };
    let dataset = Dataset::load(&options).expect("a table");
    assert_eq!(dataset.training().are_held(), held_bytes > 0);
    let compute = ComputeSpec { ahead_bytes, ..DeviceSpec::Cpu.into() };
    ClassifierReplica::new(&found(&spec, &dataset).expect("a run"), dataset, compute).expect("a trainer")
}

/// However far ahead samples are loaded beside what is computed, the model is the same, and parts of a share may be asked for between.
#[test]
fn what_is_loaded_beside_computing_makes_the_same_model_bit_by_bit() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("table.csv");
    fs::write(&path, table()).expect("written");
    let mut trainers = [0, 1, 10_000, 64 << 20].map(|ahead_bytes| open_ahead(&path, 0, ahead_bytes));
    for step in 0..120 {
        for trainer in &mut trainers {
            let _ = trainer.begin(&[ME]);
            if step % 7 == 3 {
                let positions = trainer.ledger().share_of(ME)[0].clone();
                let part = positions.start..positions.start + 16;
                trainer.compute_part(ME, &[part], &Gradient::new(trainer.manifest().reduced())).expect("computed");
            }
            advance(trainer, &mut Vec::new());
            trainer.load_ahead(&[ME], ME);
        }
    }
    let [first, rest @ ..] = &trainers;
    assert!(first.ledger().epoch() > 0, "all rows were read");
    assert!(rest.iter().all(|trainer| trainer.digest() == first.digest()));
}

#[test]
fn a_table_that_stays_in_its_file_makes_the_same_model_bit_by_bit() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("table.csv");
    fs::write(&path, table()).expect("written");
    let blocks = ShufflePolicy::Blocks { rows: 300, blocks: 3 };
    let digests = [ShufflePolicy::Full, blocks].map(|shuffle| {
        let trainers = [u64::MAX, 0].map(|held_bytes| open_shuffled(&path, held_bytes, 64 << 20, shuffle));
        same_bit_by_bit(trainers)
    });
    assert_ne!(digests[0], digests[1], "their rows come in another order");
}

/// Takes steps of both, and says what they come to.
fn same_bit_by_bit([mut held, mut placed]: [ClassifierReplica; 2]) -> Digest {
    assert_eq!(held.manifest(), placed.manifest());
    for _ in 0..150 {
        for trainer in [&mut held, &mut placed] {
            advance(trainer, &mut Vec::new());
            trainer.load_ahead(&[ME], ME);
        }
    }
    assert!(held.ledger().epoch() > 0, "all rows were read");
    assert_eq!(held.digest(), placed.digest());
    assert_eq!(held.evaluate().expect("evaluated"), placed.evaluate().expect("evaluated"));
    held.digest()
}

#[test]
fn a_member_whose_table_changes_says_so_and_which() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("table.csv");
    fs::write(&path, table()).expect("written");
    let mut trainer = open(&path, 0);
    advance(&mut trainer, &mut Vec::new());
    OpenOptions::new().write(true).open(&path).and_then(|file| file.set_len(5000)).expect("cut off");
    let _ = trainer.begin(&[ME]);
    let error = computed(&mut trainer, ME).expect_err("changed").to_string();
    for part in ["the samples of the step after 1 can't be read", "table.csv", "changed while it was in use"] {
        assert!(error.contains(part), "{error}");
    }
    let error = trainer.evaluate().expect_err("changed").to_string();
    assert!(error.contains("table.csv"), "{error}");
}
