//! States, results and manifests.

use starling_run::{DataManifest, Manifest, ReplicatedState, ResultRecord, RunSpec, SharedFile, SnapshotManifest};
use starling_topology::{Digest, Lineage};

use super::topology::ledgers;
use crate::seeds::{RUN, peer};
use crate::target::Target;

const KIB: usize = 1024;
/// Of the model whose results are read.
const PARAMETERS: usize = 5;

pub(super) const STATE: Target = Target {
    name: "state",
    seeds: || {
        let state = |(step, ledger): (usize, _)| ReplicatedState {
            run: RUN,
            step: step as u64,
            lineage: Lineage::NONE,
            parameters: vec![1.0, -0.0, 3.5e-40].into(),
            moments: vec![vec![0.5, 0.25, 0.0].into(), vec![1.0, 2.0, 3.0].into()],
            scalars: vec![0.9, 0.999],
            ledger,
        };
        ledgers().into_iter().enumerate().map(|ledger| state(ledger).encode()).collect()
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
            bytes: chunks * starling_run::snapshot::CHUNK_BYTES as u64,
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
        raw.into_iter().collect()
    },
    take: |bytes| Manifest::decode(bytes).is_ok_and(|manifest| manifest.encode() == bytes),
    longest: 64 * KIB,
    // An empty leaf is two bytes.
    per_byte: 64,
    besides: 16 * KIB,
};

pub(super) const DATA: Target = Target {
    name: "data-manifest",
    seeds: || {
        let bytes = 3 * starling_run::snapshot::CHUNK_BYTES as u64;
        let chunks = [1, 2, 3].map(|chunk| Digest([chunk; 32])).to_vec();
        let file = SharedFile { name: "table.csv".to_owned(), bytes, chunks };
        vec![DataManifest { files: vec![file] }.encode()]
    },
    take: |bytes| DataManifest::decode(bytes, &["table.csv"]).is_ok_and(|manifest| manifest.encode() == bytes),
    longest: 64 * KIB,
    per_byte: 40,
    besides: 16 * KIB,
};
