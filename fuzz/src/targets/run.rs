//! States, results and manifests.

use starling_run::data::LabelScale;
use starling_run::data::columns::{Column, ColumnKind};
use starling_run::manifest::schema::Entry;
use starling_run::{
    ConstantKind, ConstantSpec, DataDescription, DataManifest, FeatureScale, LeafKind, Manifest, ModelSpec,
    PreprocessingSpec, ReplicatedState, ResultRecord, RunSpec, Schedule, Schema, SharedFile, SnapshotManifest,
    TokenizerSpec, fuzzed,
};
use starling_topology::{Digest, Ledger, Lineage};

use super::topology::ledgers;
use crate::seeds::{RUN, peer};
use crate::target::Target;

const KIB: usize = 1024;
/// Of the model whose results are read.
const PARAMETERS: usize = 5;

pub(super) const STATE: Target = Target {
    name: "state",
    seeds: || {
        let state = |ledger: Ledger| ReplicatedState {
            run: RUN,
            step: ledger.step().saturating_sub(1),
            lineage: Lineage::NONE,
            parameters: vec![1.0, -0.0, 3.5e-40].into(),
            frozen: vec![2.5].into(),
            moments: vec![vec![0.5, 0.25, 0.0].into(), vec![1.0, 2.0, 3.0].into()],
            scalars: vec![0.9, 0.999],
            ledger,
        };
        ledgers().into_iter().map(|ledger| state(ledger).encode()).collect()
    },
    take: |bytes| {
        let Ok(state) = ReplicatedState::decode(bytes) else { return false };
        assert_eq!(state.encode(), bytes, "it is not canonical");
        true
    },
    longest: 64 * KIB,
    per_byte: 16,
    besides: 320 * KIB,
};

pub(super) const RESULT: Target = Target {
    name: "result",
    seeds: || {
        let record = |members: u8| ResultRecord {
            step: 7,
            lineage: Lineage { branch: 3, ..Lineage::NONE },
            after: Lineage::NONE,
            members: (1..=members).map(peer).collect(),
            mean: (0..PARAMETERS + 1 + usize::from(members)).map(|at| at as f32).collect(),
        };
        (1..9).map(|members| record(members).encode()).collect()
    },
    take: |bytes| {
        let Ok(record) = ResultRecord::decode(bytes, PARAMETERS) else { return false };
        assert_eq!(record.encode(), bytes, "it is not canonical");
        true
    },
    longest: 64 * KIB,
    per_byte: 4,
    besides: 128 * KIB,
};

pub(super) const SNAPSHOT: Target = Target {
    name: "snapshot-manifest",
    seeds: || {
        let manifest = |chunks: u64| SnapshotManifest {
            run: RUN,
            step: 12,
            lineage: Lineage::NONE,
            digest: Digest([9; 32]),
            values: Digest([5; 32]),
            bytes: chunks * starling_run::state::snapshot::CHUNK_BYTES as u64,
            chunks: (0..chunks).map(|chunk| Digest([chunk as u8; 32])).collect(),
        };
        [0, 1, 3, 40].map(|chunks| manifest(chunks).encode()).to_vec()
    },
    take: |bytes| SnapshotManifest::decode(bytes).is_ok_and(|manifest| manifest.encode() == bytes),
    longest: 64 * KIB,
    per_byte: 32,
    besides: 16 * KIB,
};

pub(super) const MANIFEST: Target = Target {
    name: "manifest",
    seeds: || {
        let raw = Manifest::raw(100, &RunSpec::default()).map(|manifest| manifest.encode());
        let of = |path: &str, kind| Entry { kind, ..Entry::trained(path, &[3]) };
        let leaves = vec![
            of("norm.gamma", LeafKind::Trained),
            of("norm.running_mean", LeafKind::Running),
            of("stem", LeafKind::Frozen),
        ];
        let spec = RunSpec {
            model: ModelSpec::sized("own", &[]),
            micro_batch: 16,
            freeze: vec!["stem".to_owned()],
            groups: "*.gamma:rate=0.5:decay=0".parse().into_iter().collect(),
            ..RunSpec::default()
        };
        let data = DataDescription::of_program(100, Digest([4; 32]));
        let kinds = Manifest::of(&spec, data).with_schema(&Schema::new(leaves));
        let constant =
            |path: &str, kind| ConstantSpec { path: path.to_owned(), shape: vec![2, 3], kind, values: Digest([6; 32]) };
        let constants = vec![constant("mask", ConstantKind::Bool), constant("tables.0", ConstantKind::Int)];
        // With nothing that goes by it, and with both.
        let evaluating = [(0, "constant"), (3, "plateau:0.5,2")].map(|(early_stop, decay)| {
            let decay = decay.parse().unwrap_or_default();
            let schedule = Schedule { decay, ..Schedule::default() };
            let spec = RunSpec { evaluate_every: 20, early_stop, schedule, ..RunSpec::default() };
            let schema = Schema::new(vec![of("linear.weight", LeafKind::Trained)]).with_constants(constants.clone());
            let manifest = Manifest { model: kinds.model.clone(), ..Manifest::of(&spec, kinds.data.clone()) };
            manifest.with_schema(&schema).with_measures(9, &["accuracy", "top_5_accuracy"]).encode()
        });
        raw.into_iter().chain([kinds.encode()]).chain(evaluating).collect()
    },
    take: |bytes| Manifest::decode(bytes).is_ok_and(|manifest| manifest.encode() == bytes),
    longest: 64 * KIB,
    // A leaf takes 72 bytes, and room is made for as many as there are bytes.
    per_byte: 80,
    besides: 16 * KIB,
};

pub(super) const DATA: Target = Target {
    name: "data-manifest",
    seeds: || {
        let bytes = 3 * starling_run::state::snapshot::CHUNK_BYTES as u64;
        let chunks = [1, 2, 3].map(|chunk| Digest([chunk; 32])).to_vec();
        let file = SharedFile { name: "table.csv".to_owned(), bytes, chunks };
        vec![DataManifest { files: vec![file] }.encode()]
    },
    take: |bytes| DataManifest::decode(bytes, &["table.csv"]).is_ok_and(|manifest| manifest.encode() == bytes),
    longest: 64 * KIB,
    per_byte: 40,
    // Files may be as many as bytes, up to 1,026, and room for them doubles.
    besides: 96 * KIB,
};

/// Bytes that a run names, whatever they are.
pub(super) const PREPROCESSING: Target = Target {
    name: "preprocessing",
    seeds: || {
        let of = |scales, features: &[&str], columns| {
            let classes = ["a", "b"].map(ToOwned::to_owned).to_vec();
            let features = features.iter().map(|&name| name.to_owned()).collect();
            PreprocessingSpec {
                scales,
                classes,
                features,
                label: vec!["kind".to_owned()],
                columns,
                labels: vec![LabelScale { mean: 2.0, deviation: 0.5 }],
            }
            .encode()
        };
        let each = FeatureScale::Standardize { means: vec![1.0, f64::MAX], deviations: vec![0.0, -0.0] };
        let column = |name: &str, coding| Column { name: name.to_owned(), coding };
        let texts = ["", "red"].map(ToOwned::to_owned).to_vec();
        let columns = vec![column("id", ColumnKind::Ignored), column("color", ColumnKind::Category(texts))];
        let gaps = vec![column("", ColumnKind::Gaps)];
        let tokens = PreprocessingSpec {
            scales: FeatureScale::Tokenize(TokenizerSpec { json: "{}".to_owned(), end: 1 }),
            classes: Vec::new(),
            features: Vec::new(),
            label: Vec::new(),
            columns: Vec::new(),
            labels: Vec::new(),
        };
        vec![
            of(FeatureScale::Divide(16.0), &[], Vec::new()),
            of(each.clone(), &["x", "y"], Vec::new()),
            of(each.clone(), &["color = ", "color = red"], columns),
            of(each, &[], gaps),
            tokens.encode(),
        ]
    },
    take: |bytes| {
        let preprocessing = Digest(*blake3::hash(bytes).as_bytes());
        let description = DataDescription { features: 2, classes: 2, preprocessing, ..DataDescription::none() };
        let Ok(read) = PreprocessingSpec::decode(bytes, &description) else { return false };
        let again = read.encode();
        let description = DataDescription { preprocessing: read.digest(), ..description };
        let again = PreprocessingSpec::decode(&again, &description).map(|read| read.encode());
        assert_eq!(again.as_ref(), Ok(&read.encode()), "it reads as something else");
        true
    },
    longest: 64 * KIB,
    // A name without a letter is a byte.
    per_byte: 80,
    besides: 16 * KIB,
};

pub(super) const SIGNATURES: Target = Target {
    name: "signatures",
    seeds: fuzzed::signatures,
    take: fuzzed::is_signatures,
    longest: 64 * KIB,
    per_byte: 32,
    besides: 64 * KIB,
};

pub(super) const AUDIT_LINE: Target = Target {
    name: "audit-line",
    seeds: fuzzed::audit_lines,
    take: fuzzed::is_audit_line,
    longest: 64 * KIB,
    per_byte: 64,
    besides: 16 * KIB,
};
