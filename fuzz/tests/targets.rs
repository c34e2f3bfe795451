//! Each target stands a fixed number of inputs.

use starling_fuzz::runner::give;
use starling_fuzz::{Tally, corpus, fuzz, targets};

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
    leaves: "leaf", 20_000;
    carriers: "carrier", 20_000;
    views: "view", 20_000;
    records: "record", 20_000;
    slots: "slot", 10_000;
    heads: "head", 10_000;
    ledgers: "ledger", 20_000;
    marks: "mark", 10_000;
    annals: "annals", 2_000;
    walks: "walk", 2_000;
    states: "state", 20_000;
    results: "result", 20_000;
    snapshot_manifests: "snapshot-manifest", 10_000;
    manifests: "manifest", 20_000;
    data_manifests: "data-manifest", 20_000;
    preprocessings: "preprocessing", 10_000;
    signatures: "signatures", 5_000;
    audit_lines: "audit-line", 10_000;
    tables: "csv", 2_000;
    images: "idx", 2_000;
    decoded_images: "images", 2_000;
    tokens: "tokens", 10_000;
    archives: "archive", 1_000;
    columns: "parquet", 300;
    tokenizers: "tokenizer", 100;
    segments: "segments", 5_000;
    messages: "messages", 1_000;
    errands: "engine", 20_000;
    requests: "request", 10_000;
    replies: "reply", 5_000;
    welcome_requests: "welcome-request", 5_000;
    welcome_replies: "welcome-reply", 5_000;
    invitations: "presented", 2_000;
    secrets: "secret", 5_000;
    tickets: "ticket", 2_000;
    updates: "update", 5_000;
    denials: "denial", 5_000;
    passes: "pass", 5_000;
    handshakes: "handshake", 5_000;
    announcements: "announcement", 10_000;
    renewals: "renewal", 5_000;
    rosters: "roster", 5_000;
    appointments: "appointments", 5_000;
    contacts: "contacts", 10_000;
    record_files: "record-file", 2_000;
    mark_files: "mark-file", 5_000;
}

#[test]
fn what_was_found_stays_mended_and_what_was_reached_is_reached() {
    for target in targets::ALL {
        let kept = corpus::read(target.name);
        let kept =
            kept.unwrap_or_else(|error| panic!("{}: nothing is kept ({error}): run it with --keep", target.name));
        let mut tally = Tally::default();
        for (path, input) in &kept {
            if let Err(failure) = give(target, input, &mut tally) {
                panic!("{}: {failure}", path.display());
            }
        }
        assert!(
            tally.taken > 0,
            "{}: of {} inputs that are kept none is taken: run it with --keep",
            target.name,
            kept.len()
        );
    }
}
