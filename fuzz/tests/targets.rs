//! Each target stands a fixed number of inputs.

use starling_fuzz::runner::give;
use starling_fuzz::{Tally, fuzz, targets};

#[track_caller]
fn stands(name: &str, inputs: u64) {
    let target = targets::ALL.iter().find(|target| target.name == name).expect("there is such a target");
    for seed in 0..2 {
        match fuzz(target, seed, |done| done < inputs) {
            Ok(tally) => assert!(tally.taken > 0, "seed {seed}: {tally:?}"),
            Err(failure) => panic!("seed {seed}: {failure}"),
        }
    }
}

macro_rules! targets {
    ($($test:ident: $name:literal, $inputs:literal;)*) => {
        $(#[test]
        fn $test() {
            stands($name, $inputs);
        })*

        #[test]
        fn every_target_has_its_test() {
            let tested: Vec<&str> = [$($name),*].to_vec();
            assert!(targets::ALL.iter().map(|target| target.name).eq(tested));
        }
    };
}

targets! {
    envelopes: "envelope", 20_000;
    views: "view", 20_000;
    records: "record", 20_000;
    slots: "slot", 10_000;
    heads: "head", 10_000;
    ledgers: "ledger", 20_000;
    states: "state", 20_000;
    results: "result", 20_000;
    snapshot_manifests: "snapshot-manifest", 10_000;
    manifests: "manifest", 20_000;
    data_manifests: "data-manifest", 20_000;
    segments: "segments", 5_000;
    messages: "messages", 1_000;
}

/// What was found before: `corpus/TARGET/*.hex`, in hexadecimal digits.
#[test]
fn what_was_found_stays_mended() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for target in targets::ALL {
        let Ok(files) = std::fs::read_dir(folder.join(target.name)) else { continue };
        for file in files {
            let path = file.expect("a file").path();
            let text = std::fs::read_to_string(&path).expect("readable");
            let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
            let digit = |digit: u8| (digit as char).to_digit(16).expect("a digit") as u8;
            let input: Vec<u8> = digits.chunks_exact(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect();
            let held = give(target, &input, &mut Tally::default());
            assert!(
                held.is_ok(),
                "{}: {}",
                path.display(),
                held.map_or_else(|failure| failure.to_string(), |_| String::new())
            );
        }
    }
}
