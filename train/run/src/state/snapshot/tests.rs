use std::sync::Arc;

use proptest::prelude::*;
use starling_topology::{Ledger, Lineage, PeerId};

use super::*;

/// A state that fills one chunk to the last byte.
fn state() -> ReplicatedState {
    let mut ledger = Ledger::new(1, 40, 8);
    ledger.assign(&[PeerId([1; 32])]);
    ReplicatedState {
        run: RunId([7; 32]),
        step: 0,
        lineage: Lineage::NONE,
        parameters: Arc::new((0..262_087).map(|at| at as f32).collect()),
        frozen: <_>::default(),
        moments: vec![],
        scalars: vec![],
        ledger,
    }
}

/// A state of five chunks, two of which are equal.
fn large() -> ReplicatedState {
    let parameters = Arc::new((0..300_000).map(|at| at as f32).collect());
    ReplicatedState { moments: vec![vec![0.0; 300_000].into(); 3], parameters, ..state() }
}

fn assemble(snapshot: &StateSnapshot, max_bytes: u64) -> PartialSnapshot {
    let manifest = SnapshotManifest::decode(&snapshot.manifest().encode()).expect("canonical bytes");
    PartialSnapshot::new(manifest, max_bytes).expect("small enough")
}

#[test]
fn a_state_is_put_together_from_chunks_in_any_order() {
    for state in [state(), large()] {
        let snapshot = StateSnapshot::of(state.clone());
        assert_eq!((snapshot.manifest().digest, snapshot.id()), (state.digest(), snapshot.manifest().id()));
        let mut assembly = assemble(&snapshot, state.encoded_len() as u64);
        let mut missing = assembly.missing();
        // Equal chunks travel once.
        assert!(missing.len() <= snapshot.manifest().chunks.len());
        missing.reverse();
        for (at, chunk) in missing.iter().enumerate() {
            assert_eq!(assembly.missing().len(), missing.len() - at);
            let bytes = snapshot.chunk(*chunk).expect("it is the donor's").to_vec();
            assembly.insert(bytes.clone()).expect("asked for");
            assembly.insert(bytes).expect("twice changes nothing");
        }
        assert_eq!(assembly.finish().expect("complete"), state);
    }
    assert_eq!((state().encoded_len(), StateSnapshot::of(state()).manifest().chunks.len()), (CHUNK_BYTES, 1));
    let zeros = StateSnapshot::of(large());
    assert_eq!(zeros.manifest().chunks.len(), 5);
    assert!(assemble(&zeros, u64::MAX).missing().len() < zeros.manifest().chunks.len());
    assert_eq!(zeros.chunk(Digest([0; 32])), None);
}

#[test]
fn chunks_are_the_canonical_bytes_cut_every_mebibyte() {
    for state in [state(), large()] {
        let bytes = state.encode();
        let snapshot = StateSnapshot::of(state.clone());
        let chunks: Vec<&[u8]> = bytes.chunks(CHUNK_BYTES).collect();
        let found: Vec<&[u8]> =
            snapshot.manifest().chunks.iter().map(|chunk| snapshot.chunk(*chunk).expect("its own")).collect();
        assert_eq!(found, chunks);
        let manifest = snapshot.manifest();
        assert_eq!((manifest.bytes, manifest.digest), (bytes.len() as u64, state.digest()));
        assert_eq!((manifest.run, manifest.step), (state.run, state.step));
    }
}

#[test]
fn what_was_not_announced_is_refused() {
    let snapshot = StateSnapshot::of(large());
    let len = snapshot.manifest().bytes;
    let announced = snapshot.manifest().clone();
    let too_long = PartialSnapshot::new(announced.clone(), len - 1).expect_err("too long");
    assert_eq!(too_long, SnapshotError::TooLong { found: len, limit: len - 1 });
    let mut assembly = assemble(&snapshot, len);
    assert_eq!(assembly.insert(vec![1, 2, 3]), Err(SnapshotError::UnknownChunk(hash(&[1, 2, 3]))));
    let missing = assembly.missing().len();
    assert_eq!(assembly.finish(), Err(SnapshotError::Incomplete { missing }));

    let complete = |manifest: SnapshotManifest| {
        let mut assembly = PartialSnapshot::new(manifest, u64::MAX).expect("within bounds");
        for chunk in assembly.missing() {
            assembly.insert(snapshot.chunk(chunk).expect("the donor's").to_vec())?;
        }
        assembly.finish()
    };
    // A chunk that is shorter or longer than its place.
    let mut short = announced.clone();
    short.chunks.swap(0, 4);
    assert!(matches!(complete(short), Err(SnapshotError::ChunkLength { .. })));
    // Chunks in another order, a digest of something else, a state of another step.
    let mut swapped = announced.clone();
    swapped.chunks.swap(0, 1);
    assert!(matches!(complete(swapped), Err(SnapshotError::Digest { .. })));
    let other = SnapshotManifest { step: 9, ..announced.clone() };
    assert_eq!(complete(other), Err(SnapshotError::OtherState { run: RunId([7; 32]), step: 0 }));
    let other = SnapshotManifest { values: Digest([9; 32]), ..announced.clone() };
    let found = large().values();
    assert_eq!(complete(other), Err(SnapshotError::Values { expected: Digest([9; 32]), found }));
    assert_eq!(complete(announced), Ok(large()));

    // Chunks that are what they say, of something that is no state.
    let chunks = vec![hash(b"no state")];
    let (run, digest, values) = (RunId([7; 32]), chunks[0], Digest([0; 32]));
    let manifest = SnapshotManifest { run, step: 0, lineage: Lineage::NONE, digest, values, bytes: 8, chunks };
    let mut assembly = PartialSnapshot::new(manifest, 8).expect("within bounds");
    assembly.insert(b"no state".to_vec()).expect("announced");
    assert_eq!(assembly.finish(), Err(SnapshotError::State(StateError::Magic)));
}

#[test]
fn manifests_that_lie_are_refused() {
    let manifest = StateSnapshot::of(state()).manifest().clone();
    let text = String::from_utf8(manifest.encode()).expect("JSON");
    let refused = |text: String| SnapshotManifest::decode(text.as_bytes()).expect_err("a lie").to_string();
    for (from, to, reason) in [
        ("starling-checkpoint-4", "\\u001b[2J", "its format is \"\\u{1b}[2J\""),
        ("\"bytes\": ", "\"bytes\": 9999999", "do not make"),
        ("\"run\"", "\"runs\"", "unknown field `runs`"),
        ("07070707", "0707070g", "is not a blake3 hash"),
        ("\"step\": 0", "\"step\":  0", "not in its canonical form"),
        ("\n}", "\n}\n", "not in its canonical form"),
    ] {
        assert!(text.contains(from), "{text}");
        let message = refused(text.replacen(from, to, 1));
        assert!(message.contains(reason), "{message}");
    }
    assert!(refused(" ".repeat(MAX_SNAPSHOT_MANIFEST_BYTES + 1)).contains("is longer than"));
    // The manifest of the largest state fits its bound.
    let chunks = vec![Digest([0xff; 32]); 36_900];
    let bytes = (chunks.len() * CHUNK_BYTES) as u64;
    let largest = SnapshotManifest { step: u64::MAX, bytes, chunks, ..manifest };
    assert_eq!(SnapshotManifest::decode(&largest.encode()), Ok(largest));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn hostile_manifests_never_panic_and_never_decode_to_other_bytes(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        keep in any::<bool>(), cut in any::<prop::sample::Index>(), noise in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let chunks = vec![Digest([3; 32]), Digest([4; 32])];
        let manifest = SnapshotManifest {
            run: RunId([1; 32]), step: 7, lineage: Lineage { branch: 6, ..Lineage::NONE }, digest: Digest([2; 32]), values: Digest([5; 32]),
            bytes: CHUNK_BYTES as u64 + 5, chunks,
        };
        let mut bytes = manifest.encode();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if !keep {
            bytes.truncate(cut.index(bytes.len()));
        }
        for bytes in [&bytes, &noise] {
            if let Ok(decoded) = SnapshotManifest::decode(bytes) {
                prop_assert_eq!(&decoded.encode(), bytes);
            }
        }
    }
}
