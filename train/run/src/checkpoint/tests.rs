use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use starling_topology::{Generation, Ledger, Lineage, PeerId, Root, View};
use tempfile::TempDir;

use super::*;
use crate::state::snapshot::Splitter;

pub(super) fn ledger(step: u64) -> Ledger {
    let mut ledger = Ledger::new(1, 40, 8);
    ledger.assign(&[PeerId([1; 32])]);
    (1..=step).for_each(|step| drop(ledger.commit(step, &[PeerId([1; 32])], &[9])));
    ledger
}

fn state(step: u64) -> ReplicatedState {
    ReplicatedState {
        run: RunId([1; 32]),
        step,
        lineage: Lineage::NONE,
        parameters: Arc::new((0..1000).map(|at| at as f32 + step as f32).collect()),
        frozen: <_>::default(),
        moments: vec![vec![step as f32; 1000].into()],
        scalars: vec![0.5],
        ledger: ledger(step),
    }
}

fn store(keep: usize) -> (TempDir, CheckpointStore) {
    let directory = tempfile::tempdir().expect("a directory");
    let store = CheckpointStore::open(directory.path().join("checkpoints"), keep).expect("a store");
    (directory, store)
}

fn steps(store: &CheckpointStore) -> Vec<u64> {
    store.list().expect("a list").iter().map(|info| info.step).collect()
}

fn chunk_files(store: &CheckpointStore) -> Vec<PathBuf> {
    names(&store.chunks()).expect("names").into_iter().map(|name| store.chunks().join(name)).collect()
}

#[test]
fn what_is_written_and_read_back_counts_though_something_older_stays() {
    let (_directory, store) = store(1);
    let first = store.save(state(5)).expect("saved");
    // What is there in the place of its signatures is no file, and can't be removed as one.
    let signatures = signatures_path(&first.path);
    fs::create_dir_all(signatures.join("something")).expect("made");
    let (second, untidy) = store.save_and_tidy(state(6)).expect("it is written");
    assert!(untidy.is_some(), "and the user hears what is left");
    assert_eq!(second.step, 6);
    assert_eq!(store.load(Some(6)).expect("loaded"), state(6));
    fs::remove_dir_all(signatures).expect("removed");
    store.save(state(7)).expect("saved");
    assert_eq!(steps(&store), [7]);
}

#[test]
fn what_is_saved_is_loaded() {
    let (_directory, store) = store(3);
    let info = store.save(state(5)).expect("saved");
    assert_eq!((info.step, info.digest, info.bytes), (5, state(5).digest(), state(5).encoded_len() as u64));
    assert_eq!(info.values, state(5).values());
    assert_eq!(info.path.file_name().expect("a name").to_string_lossy(), format!("step-000000000005-{}.json", info.id));
    assert_eq!(store.load(None).expect("loaded"), state(5));
    assert_eq!(store.load(Some(5)).expect("loaded"), state(5));
    assert_eq!(store.list().expect("a list"), [info]);
    assert_eq!(store.run().expect("read"), Some(state(5).run));
}

#[test]
fn a_state_of_several_chunks_is_put_together() {
    let (_directory, store) = store(2);
    let large = ReplicatedState {
        parameters: vec![1.5; 1_300_000].into(),
        frozen: <_>::default(),
        moments: vec![vec![0.0; 1_300_000].into(); 2],
        ..state(1)
    };
    store.save(large.clone()).expect("saved");
    assert!(chunk_files(&store).len() > 1);
    assert!(chunk_files(&store).iter().all(|path| fs::metadata(path).expect("there").len() <= CHUNK_BYTES as u64));
    assert_eq!(store.load(None).expect("loaded"), large);
}

#[test]
fn the_last_ones_are_kept_and_chunks_nobody_needs_are_removed() {
    let (_directory, store) = store(2);
    for step in [1, 2, 3, 10] {
        store.save(state(step)).expect("saved");
    }
    assert_eq!(steps(&store), [3, 10]);
    assert_eq!(chunk_files(&store).len(), 2);
    assert_eq!(store.load(Some(3)).expect("kept"), state(3));
    let message = store.load(Some(1)).expect_err("removed").to_string();
    assert!(message.contains("no checkpoint of step 1; it has steps 3, 10"), "{message}");
}

#[test]
fn the_one_just_saved_is_never_removed() {
    let (_directory, store) = store(1);
    store.save(state(10)).expect("saved");
    store.save(state(4)).expect("a run that went back");
    assert_eq!(store.load(Some(4)).expect("kept"), state(4));
}

#[test]
fn a_step_saved_again_replaces_the_first() {
    let (_directory, store) = store(3);
    store.save(state(4)).expect("saved");
    let other = ReplicatedState { scalars: vec![0.25], ..state(4) };
    store.save(other.clone()).expect("saved");
    assert_eq!(steps(&store), [4]);
    assert_eq!(store.load(Some(4)).expect("loaded"), other);
}

#[test]
fn a_flipped_bit_anywhere_is_refused_with_file_and_both_hashes() {
    let (_directory, store) = store(3);
    let info = store.save(state(1)).expect("saved");
    let mut files = chunk_files(&store);
    files.push(info.path);
    for file in files {
        let intact = fs::read(&file).expect("read");
        for at in [0, intact.len() / 2, intact.len() - 1] {
            let mut bytes = intact.clone();
            bytes[at] ^= 0x10;
            fs::write(&file, &bytes).expect("written");
            let message = store.load(None).expect_err("damaged").to_string();
            let found = blake3::hash(&bytes).to_string();
            let expected = blake3::hash(&intact).to_string();
            for part in [file.to_string_lossy().as_ref(), &found, &expected, "is damaged"] {
                assert!(message.contains(part), "byte {at}: {message}");
            }
        }
        for len in [0, intact.len() / 2] {
            fs::write(&file, &intact[..len]).expect("written");
            assert!(matches!(store.load(None), Err(CheckpointError::Damaged { .. })), "cut at {len}");
        }
        fs::write(&file, &intact).expect("written");
    }
    assert_eq!(store.load(None).expect("intact again"), state(1));
}

#[test]
fn damage_is_found_by_verify_and_passed_over_by_name() {
    let (_directory, store) = store(5);
    let first = store.save(state(1)).expect("saved");
    let before = chunk_files(&store);
    let second = store.save(state(2)).expect("saved");
    let chunk = chunk_files(&store).into_iter().find(|path| !before.contains(path)).expect("a new chunk");
    fs::write(&chunk, b"short").expect("written");
    let verdicts = store.verify().expect("read");
    assert_eq!(verdicts.len(), 2);
    assert_eq!(verdicts[0].result.as_ref().ok(), Some(&first));
    assert_eq!((verdicts[1].step, &verdicts[1].path), (2, &second.path));
    let message = verdicts[1].result.as_ref().expect_err("damaged").to_string();
    assert!(message.contains(&*chunk.to_string_lossy()), "{message}");
    assert_eq!(store.last_intact().expect("read"), Some(1));
    assert_eq!(store.steps().expect("read"), [1, 2]);
    // A missing chunk is named, too.
    fs::remove_file(&chunk).expect("removed");
    let message = store.load(Some(2)).expect_err("missing").to_string();
    assert!(message.contains("cannot read") && message.contains(&*chunk.to_string_lossy()), "{message}");
    // Saving the same state again repairs it.
    store.save(state(2)).expect("saved");
    assert!(store.verify().expect("read").iter().all(|verdict| verdict.result.is_ok()));
}

#[test]
fn a_damaged_manifest_does_not_keep_a_run_from_saving_and_is_left_for_inspection() {
    let (_directory, store) = store(1);
    let first = store.save(state(1)).expect("saved");
    fs::write(&first.path, b"{}").expect("written");
    assert!(matches!(store.list(), Err(CheckpointError::Damaged { .. })));
    assert_eq!((store.last_intact().expect("read"), store.run().expect("read")), (None, None));
    let second = store.save(state(2)).expect("saved");
    assert!(first.path.exists() && second.path.exists());
    assert_eq!(store.load(None).expect("intact"), state(2));
}

#[test]
fn a_manifest_with_the_right_hash_but_wrong_content_is_refused() {
    let (_directory, store) = store(3);
    let info = store.save(state(1)).expect("saved");
    let text = fs::read_to_string(&info.path).expect("read");
    let refused = |step: u64, text: &str| {
        let path = store.directory.join(format!("step-{step:012}-{}.json", blake3::hash(text.as_bytes())));
        fs::write(&path, text).expect("written");
        let message = store.load(Some(step)).expect_err("refused").to_string();
        fs::remove_file(path).expect("removed");
        message
    };
    for (from, to, reason) in [
        ("\"step\": 1", "\"step\": 8", "state is of run"),
        ("\"step\": 1", "\"step\": 9", "it is of step 9, but its name says 8"),
        ("starling-checkpoint-4", "starling-checkpoint-1", "its format is \"starling-checkpoint-1\""),
        ("\"bytes\": ", "\"bytes\": 9999999", "do not make 1 chunks"),
        ("\"run\"", "\"runs\"", "unknown field `runs`"),
        ("01010101", "0101010g", "is not a blake3 hash"),
    ] {
        assert!(text.contains(from), "{text}");
        let message = refused(8, &text.replacen(from, to, 1));
        assert!(message.contains(reason), "{message}");
    }
    let digest = state(1).digest().to_string();
    fs::remove_file(info.path).expect("removed");
    let other = refused(1, &text.replacen(&digest, &"ab".repeat(32), 1));
    assert!(other.contains(&digest) && other.contains(&"ab".repeat(32)), "{other}");
}

#[test]
fn leftovers_of_interrupted_writes_are_swept_and_other_files_are_not() {
    let (_directory, store) = store(3);
    let info = store.save(state(1)).expect("saved");
    let chunk = chunk_files(&store).pop().expect("a chunk");
    let beside = |path: &Path, suffix: &str| {
        path.with_file_name(format!(".{}.{suffix}", path.file_name().expect("a name").to_string_lossy()))
    };
    let leftovers = [beside(&info.path, "aB3dEf"), beside(&chunk, "000000")];
    let others = [store.directory.join(".gitignore"), store.directory.join("notes.txt"), beside(&chunk, "toolong")];
    for path in leftovers.iter().chain(&others) {
        fs::write(path, b"half").expect("written");
    }
    let store = CheckpointStore::open(store.directory, 3).expect("opened again");
    assert!(leftovers.iter().all(|path| !path.exists()));
    assert!(others.iter().all(|path| path.exists()));
    assert_eq!(store.load(None).expect("untouched"), state(1));
}

#[test]
fn an_interrupted_save_leaves_the_checkpoints_before_it() {
    let (_directory, store) = store(1);
    store.save(state(1)).expect("saved");
    // What a crash between the chunks and the manifest leaves: chunks that nobody needs.
    let orphan = store.chunks().join(blake3::hash(b"orphan").to_string());
    fs::write(&orphan, b"orphan").expect("written");
    let store = CheckpointStore::open(store.directory, 1).expect("opened again");
    assert_eq!(store.load(None).expect("intact"), state(1));
    store.save(state(2)).expect("saved");
    assert!(!orphan.exists());
    // A save that cannot write changes nothing.
    fs::remove_dir_all(store.chunks()).expect("removed");
    fs::write(store.chunks(), b"a file in the way").expect("written");
    let message = store.save(state(3)).expect_err("no place for chunks").to_string();
    assert!(message.contains("cannot write") && message.contains("chunks"), "{message}");
    assert_eq!(steps(&store), [2]);
}

#[test]
fn another_runs_directory_is_refused_by_name() {
    let (_directory, store) = store(3);
    store.save(state(1)).expect("saved");
    let other = ReplicatedState { run: RunId([2; 32]), ..state(1) };
    let message = store.save(other.clone()).expect_err("another run").to_string();
    assert!(message.contains(&"01".repeat(32)) && message.contains(&"02".repeat(32)), "{message}");
    assert_eq!(store.load(None).expect("untouched"), state(1));
}

#[test]
fn an_empty_store_says_so() {
    let (_directory, store) = store(3);
    let message = store.load(None).expect_err("nothing there").to_string();
    assert!(message.contains("has no checkpoint; it has none at all"), "{message}");
    assert_eq!((store.last_intact().expect("read"), store.run().expect("read")), (None, None));
    assert!(store.list().expect("a list").is_empty());
}

/// The members with these names.
fn view(members: &[u8]) -> View {
    let first = View::found(RunId([1; 32]), PeerId([members[0]; 32]));
    first.succeed(members.iter().map(|name| PeerId([*name; 32])))
}

/// The view whose members sign in most of these tests: two of three are a quorum.
fn members() -> View {
    view(&[1, 2, 3])
}

fn head(info: &CheckpointSummary) -> Head {
    Head { run: info.run, step: info.step, view: members().id(), digest: info.digest, manifest: info.id }
}

/// What a peer signs in these tests: its name, then the message's hash.
fn signature(name: u8, head: &Head) -> Signature {
    let mut signature = [name; 64];
    signature[32..].copy_from_slice(&hash(&head.encode()).0);
    (PeerId([name; 32]), signature)
}

fn verify(peer: PeerId, message: &[u8], signature: &[u8; 64]) -> bool {
    signature[..32] == peer.0 && signature[32..] == hash(message).0
}

/// Saves a step and has it signed by a quorum.
fn save_stable(store: &CheckpointStore, step: u64) -> CheckpointSummary {
    let info = store.save(state(step)).expect("saved");
    let head = head(&info);
    let signed = store.sign(&head, &members(), &[signature(1, &head), signature(2, &head)], verify).expect("signed");
    assert!(signed.stable);
    info
}

#[test]
fn a_quorum_of_verified_signatures_makes_a_checkpoint_stable() {
    let (_directory, store) = store(3);
    let info = store.save(state(5)).expect("saved");
    let head = head(&info);
    assert_eq!((store.signed(&info), store.newest_stable(None).expect("read")), (None, None));
    let (forged, members) = ((PeerId([3; 32]), signature(4, &head).1), members());
    let given = [signature(2, &head), signature(11, &head), forged];
    let signed = store.sign(&head, &members, &given, verify).expect("one");
    assert_eq!((signed.signatures.as_slice(), signed.stable), (&[signature(2, &head)][..], false));
    assert_eq!(store.newest_stable(None).expect("read"), None);
    // The same member twice is one.
    assert!(!store.sign(&head, &members, &[signature(2, &head)], verify).expect("again").stable);
    assert_eq!(store.newest_proofs().expect("read"), []);
    let signed = store.sign(&head, &members, &[signature(1, &head)], verify).expect("two");
    assert_eq!(
        (store.newest_proofs().expect("read"), signed.proof().is_some()),
        (Vec::from_iter(signed.proof()), true)
    );
    assert_eq!((signed.signatures.as_slice(), signed.stable), (&[signature(1, &head), signature(2, &head)][..], true));
    let store = CheckpointStore::open(store.directory, 3).expect("opened again");
    assert_eq!(
        (store.signed(&info), store.newest_stable(None).expect("read")),
        (Some(signed.clone()), Some(info.clone()))
    );
    // A head of another view does not take the place of one that is stable.
    let alone = view(&[1]);
    let other = Head { view: alone.id(), ..head };
    assert_eq!(store.sign(&other, &alone, &[signature(1, &other)], verify).expect("kept"), signed);
    assert_eq!(store.steps().expect("read"), [5]);
    assert_eq!(store.list().expect("read").len(), 1);
}

#[test]
fn a_head_of_another_view_begins_anew() {
    let (_directory, store) = store(3);
    let info = store.save(state(5)).expect("saved");
    let next = view(&[1, 2, 3, 4]);
    let (first, second) = (head(&info), Head { view: next.id(), ..head(&info) });
    store.sign(&first, &members(), &[signature(1, &first)], verify).expect("one");
    let signed = store.sign(&second, &next, &[signature(2, &second)], verify).expect("one of another");
    assert_eq!(signed, SignedHead { head: second, view: next, signatures: vec![signature(2, &second)], stable: false });
}

#[test]
fn only_what_is_here_can_be_signed() {
    let (_directory, store) = store(3);
    let info = store.save(state(5)).expect("saved");
    let other = Head { manifest: Digest([9; 32]), ..head(&info) };
    assert!(matches!(
        store.sign(&other, &members(), &[], verify),
        Err(CheckpointError::NotFound { step: Some(5), .. })
    ));
    for other in [
        Head { step: 6, ..head(&info) },
        Head { run: RunId([9; 32]), ..head(&info) },
        Head { digest: Digest([9; 32]), ..head(&info) },
    ] {
        let message = store.sign(&other, &members(), &[signature(1, &other)], verify).expect_err("another").to_string();
        assert!(message.contains("the signed head is of run"), "{message}");
    }
    let message = store.sign(&head(&info), &view(&[1]), &[], verify).expect_err("another view").to_string();
    assert!(message.contains("the signed head is of view"), "{message}");
    assert_eq!(store.signed(&info), None);
}

#[test]
fn signatures_that_cannot_be_read_are_none() {
    let (_directory, store) = store(3);
    let info = save_stable(&store, 5);
    let path = signatures_path(&info.path);
    let intact = fs::read_to_string(&path).expect("read");
    for damaged in [
        String::new(),
        intact.replace("starling-signatures-5", "starling-signatures-9"),
        intact.replace("5354524c48443031", "5354524c48443032"),
        intact.replace("\"stable\"", "\"firm\""),
        intact.replace(&"02".repeat(32), &"01".repeat(32)),
        intact.replace(&members().id().to_string(), &"05".repeat(32)),
        intact.replace(&"02".repeat(32), &"02".repeat(31)),
        intact.replace(&info.id.to_string(), &"ab".repeat(32)),
        " ".repeat(1 << 20),
    ] {
        assert_ne!(damaged, intact);
        fs::write(&path, damaged).expect("written");
        assert_eq!((store.signed(&info), store.newest_stable(None).expect("read")), (None, None));
    }
    let head = head(&info);
    let signatures = [signature(1, &head), signature(2, &head)];
    let signed = store.sign(&head, &members(), &signatures, verify).expect("signed anew");
    assert!(signed.stable);
    // Whoever says without a quorum that it is stable is not believed.
    let lonely = SignedHead { signatures: vec![signature(1, &head)], ..signed };
    let fake = signed_head::encode(&lonely);
    fs::write(&path, fake).expect("written");
    assert_eq!(store.signed(&info), None);
}

#[test]
fn the_last_stable_checkpoint_is_kept_until_a_later_one_is_stable() {
    let (_directory, store) = store(2);
    for step in [1, 2] {
        save_stable(&store, step);
    }
    for step in [3, 4, 5, 6] {
        store.save(state(step)).expect("saved");
    }
    assert_eq!(steps(&store), [2, 5, 6]);
    assert_eq!(store.newest_stable(None).expect("read").map(|info| info.step), Some(2));
    save_stable(&store, 7);
    assert_eq!(steps(&store), [2, 6, 7]);
    store.save(state(8)).expect("saved");
    assert_eq!(steps(&store), [7, 8]);
    // No file of those that are gone is left: two manifests, one of signatures, the folder of chunks.
    assert_eq!(names(&store.directory).expect("read").len(), 4);
    assert_eq!(chunk_files(&store).len(), 2);
}

#[test]
fn a_damaged_stable_checkpoint_takes_no_other_ones_place() {
    let (_directory, store) = store(1);
    save_stable(&store, 1);
    let before = chunk_files(&store);
    let later = save_stable(&store, 2);
    // Saving step 2 kept step 1, which was the last stable one then.
    assert_eq!(steps(&store), [1, 2]);
    let chunk = chunk_files(&store).into_iter().find(|path| !before.contains(path)).expect("a new chunk");
    fs::write(chunk, b"damaged").expect("written");
    store.save(state(3)).expect("saved");
    assert_eq!(steps(&store), [1, 2, 3]);
    assert_eq!(store.newest_stable(None).expect("read").map(|info| info.step), Some(1));
    assert!(store.signed(&later).expect("signed").stable);
    store.save(state(2)).expect("repaired");
    assert_eq!(store.newest_stable(None).expect("read").map(|info| info.step), Some(2));
}

#[test]
fn a_stable_checkpoint_is_not_replaced_by_another_of_its_step() {
    let (_directory, store) = store(3);
    let stable = save_stable(&store, 4);
    let other = ReplicatedState { scalars: vec![0.25], ..state(4) };
    store.save(other.clone()).expect("saved");
    assert_eq!(store.newest_stable(None).expect("read"), Some(stable));
}

/// That of the states which views of this generation commit in these tests.
fn lineage(generation: u64) -> Lineage {
    Lineage { generation: Generation(generation), ..Lineage::NONE }
}

fn state_of(generation: u64, step: u64) -> ReplicatedState {
    ReplicatedState { lineage: lineage(generation), ..state(step) }
}

/// Of a member that went on after `step`, of the first states of these tests, in a view of this generation.
fn root(step: u64, generation: u64) -> Root {
    Root { step, generation: Generation(generation), ..Root::default() }
}

/// The member goes on in another view, and its process is gone.
fn goes_on(store: CheckpointStore, root: Root) -> CheckpointStore {
    store.root_in(root);
    store.put_aside().expect("listed");
    CheckpointStore { root: Arc::default(), ..store }
}

#[test]
fn what_was_put_aside_is_passed_over_and_goes_with_the_next_save() {
    let (_directory, store) = store(5);
    let store = goes_on(store, root(0, 1));
    assert_eq!(names(&store.directory).expect("read"), ["chunks"], "nothing to put aside");
    for step in [4, 9] {
        store.save(state(step)).expect("saved");
    }
    let store = goes_on(store, root(0, 1));
    assert_eq!((store.newest_stable(None).expect("read"), store.last_intact().expect("read")), (None, None));
    assert_eq!((store.steps().expect("read"), steps(&store)), (vec![], vec![4, 9]));
    assert!(matches!(store.load(None), Err(CheckpointError::NotFound { .. })));
    assert_eq!(store.load(Some(4)).expect("asked for by step"), state(4));
    // A save that fails leaves them where they are.
    let other_run = ReplicatedState { run: RunId([2; 32]), ..state(5) };
    store.save(other_run.clone()).expect_err("another run");
    assert_eq!(steps(&store), [4, 9]);
    // The branch that went on is at a lower step.
    store.save(state(7)).expect("saved");
    assert_eq!((steps(&store), store.load(None).expect("loaded")), (vec![7], state(7)));
    assert_eq!(names(&store.directory).expect("read").len(), 2, "one manifest and the folder of chunks");
    assert_eq!(chunk_files(&store).len(), 1);
    // A state that both branches had is none of an abandoned branch.
    let store = goes_on(store, root(0, 1));
    store.save(state(7)).expect("saved");
    assert_eq!((store.last_intact().expect("read"), steps(&store)), (Some(7), vec![7]));
}

#[test]
fn the_others_are_put_aside_when_a_run_goes_on_from_an_earlier_one() {
    let (_directory, store) = store(5);
    save_stable(&store, 4);
    for step in [6, 8] {
        store.save(state(step)).expect("saved");
    }
    let store = goes_on(store, root(4, 1));
    assert_eq!((store.steps().expect("read"), steps(&store)), (vec![4], vec![4, 6, 8]));
    store.save(state_of(1, 5)).expect("saved");
    assert_eq!(steps(&store), [4, 5]);
}

#[test]
fn a_stable_checkpoint_stays_unless_it_led_to_what_goes_on() {
    for led in [false, true] {
        let (_directory, store) = store(5);
        save_stable(&store, 3);
        save_stable(&store, 4);
        // A joiner that was here before, and loads what the others have come to: from there, or after they had lost it.
        let root = Root { lineage: lineage(if led { 0 } else { 1 }), ..root(9, 2) };
        let store = goes_on(store, root);
        store.root_in(root);
        let next = store.save(state_of(2, 10)).expect("saved");
        assert_eq!((steps(&store), store.steps().expect("read")), (vec![4, 10], vec![10]));
        let head = head(&next);
        store.sign(&head, &members(), &[signature(1, &head), signature(2, &head)], verify).expect("signed");
        store.save(state_of(2, 11)).expect("saved");
        assert_eq!(steps(&store), if led { vec![10, 11] } else { vec![4, 10, 11] });
    }
}

#[test]
fn what_counts_is_known_without_the_list() {
    let (_directory, store) = store(3);
    // Of an attempt before this one.
    for step in [13, 14] {
        store.save(state(step)).expect("saved");
    }
    save_stable(&store, 15);
    let [reads, writes] = [store.clone(), store];
    // The disk is full, or has yet to come to that.
    let in_the_way = writes.directory.join(ABANDONED);
    fs::create_dir_all(&in_the_way).expect("made");
    assert!(writes.root_in(root(0, 2)) && !writes.root_in(root(0, 2)));
    writes.put_aside().expect_err("no list");
    fs::remove_dir(&in_the_way).expect("removed");
    assert_eq!(reads.newest_proofs().expect("read"), [], "it is offered to nobody");
    assert!(reads.steps().expect("read").is_empty());
    let of_its_branch = |step: u64| {
        let info = writes.save(state_of(2, step)).expect("saved");
        let head = head(&info);
        writes.sign(&head, &members(), &[signature(1, &head), signature(2, &head)], verify).expect("signed");
    };
    of_its_branch(1);
    writes.save(state_of(2, 2)).expect("saved");
    assert_eq!(steps(&writes), [1, 2, 15]);
    (3..=5).for_each(|step| drop(writes.save(state_of(2, step)).expect("saved")));
    assert_eq!(steps(&writes), [1, 3, 4, 5, 15], "nothing of another branch supersedes the stable one");
    assert_eq!(reads.newest_proofs().expect("read").iter().map(|proof| proof.head.step).collect::<Vec<_>>(), [1]);
    let killed = CheckpointStore::reading(&writes.directory);
    assert_eq!(killed.steps().expect("read"), [1, 3, 4, 5], "it is listed by now");
    let error = writes.save(state(6)).expect_err("of the branch that was left");
    assert!(matches!(error, CheckpointError::OtherBranch { step: 6, .. }), "{error}");
}

#[test]
fn a_stable_checkpoint_outlives_its_branch() {
    let (_directory, store) = store(1);
    save_stable(&store, 6);
    let stable = save_stable(&store, 8);
    store.save(state(9)).expect("saved");
    let of_next = |step: u64| state_of(2, step);
    for step in 5..=12 {
        store.root_in(root(4, 2));
        let lost = if step == 5 { vec![8] } else { Vec::new() };
        assert_eq!(store.put_aside().expect("listed"), lost, "that is news once");
        store.save(of_next(step)).expect("saved");
        let expected = if step == 8 { vec![8, 8] } else { BTreeSet::from([8, step]).into_iter().collect() };
        assert_eq!(steps(&store), expected, "the newest stable one beside that of the branch that goes on");
        assert_eq!(store.load(None).expect("the newest"), of_next(step));
    }
    assert!(store.is_put_aside(stable.id).expect("read"));
    let whatever = store.recover_whatever().expect("read").found.map(|(_, state)| state.step);
    assert_eq!(whatever, Some(8), "stable, of whatever branch");
    assert_eq!(store.newest_stable(None).expect("read"), None, "it is offered to nobody");
    let root = root(4, 2);
    assert_eq!(store.recover(Some(&root)).expect("read").found.map(|(_, state)| state.step), Some(12));
    // Left for a third branch, and caught up with: what goes on has it behind it, but does not descend from it.
    let third = Root { generation: Generation(3), step: 20, ..root };
    let store = goes_on(store, third);
    assert!(store.verify().expect("read").iter().any(|verdict| verdict.step == 8));
}

#[test]
fn what_led_to_the_state_that_goes_on_is_not_told_to_be_lost() {
    let (_directory, store) = store(3);
    let stable = save_stable(&store, 8);
    // The run was over after step 9, and its member stays for another one in a view of its own.
    store.root_in(Root { branch: 3, lineage: stable.lineage, ..root(9, 2) });
    assert!(store.put_aside().expect("listed").is_empty());
    assert!(store.is_put_aside(stable.id).expect("read"), "it stays all the same");
}

/// Flips a bit in the chunk that only this checkpoint has.
fn damage(store: &CheckpointStore, info: &CheckpointSummary) {
    let manifest = store.manifest(info.id).expect("read").expect("there");
    let path = store.chunk_path(manifest.chunks[0]);
    let mut bytes = fs::read(&path).expect("read");
    bytes[100] ^= 1;
    fs::write(path, bytes).expect("written");
}

#[test]
fn a_member_recovers_from_the_last_checkpoint_that_is_intact() {
    let (_directory, store) = store(9);
    let nothing = store.recover(None).expect("read");
    assert!(nothing.found.is_none() && nothing.damaged.is_empty());
    let infos = [save_stable(&store, 1), save_stable(&store, 2)];
    let [third, fourth] = [3, 4].map(|step| store.save(state(step)).expect("saved"));
    let recovered = |damaged: usize| {
        let recovered = store.recover(None).expect("read");
        assert_eq!(recovered.damaged.len(), damaged, "{:?}", recovered.damaged);
        recovered.found.map(|(id, state)| (id, state.step))
    };
    assert_eq!(recovered(0), Some((fourth.id, 4)), "others may know that it is stable");
    damage(&store, &fourth);
    assert_eq!(recovered(1), Some((third.id, 3)));
    damage(&store, &third);
    let other = ReplicatedState { scalars: vec![0.25], ..state(2) };
    let other = store.save(other).expect("saved");
    assert_eq!(recovered(2), Some((infos[1].id, 2)), "of equal steps what a quorum has signed");
    damage(&store, &infos[1]);
    assert_eq!(recovered(3), Some((other.id, 2)));
    damage(&store, &other);
    assert_eq!(recovered(4), Some((infos[0].id, 1)));
    fs::write(&infos[0].path, "no manifest").expect("written");
    assert_eq!(recovered(5), None);
    store.save(state(5)).expect("saved");
    let by_record = |root: Root| store.recover(Some(&root)).expect("read").found.map(|(_, state)| state.step);
    assert_eq!((by_record(Root::default()), by_record(root(0, 1))), (Some(5), None), "of the record's branch alone");
}

#[test]
fn a_list_of_abandoned_checkpoints_that_cannot_be_read_lets_nothing_be_used() {
    let (_directory, store) = store(5);
    store.save(state(4)).expect("saved");
    let store = goes_on(store, root(0, 1));
    let path = store.directory.join(ABANDONED);
    let intact = fs::read_to_string(&path).expect("read");
    for damaged in
        ["", "{}", &intact.replace("starling-abandoned-2", "starling-abandoned-1"), &intact.replace('a', "A")]
    {
        assert_ne!(damaged, intact);
        fs::write(&path, damaged).expect("written");
        let message = store.load(None).expect_err("damaged").to_string();
        assert!(message.contains("abandoned.json") && message.contains("remove it only if"), "{message}");
        // Whoever has others to ask starts without a state, and is told why.
        let recovered = store.recover(None).expect("it can be looked at");
        assert!(recovered.found.is_none());
        assert!(recovered.damaged[0].to_string().contains("abandoned.json"), "{:?}", recovered.damaged);
        assert_eq!(store.last_intact().expect("it can be looked at"), None);
        assert!(store.steps().expect("it can be looked at").is_empty());
        assert!(store.newest_stable(None).expect("it can be looked at").is_none());
    }
    // What it gets from them is its own again.
    store.save(state(5)).expect("saved");
    assert_eq!(store.steps().expect("a list"), [5]);
    assert!(store.recover(None).expect("it can be looked at").found.is_some_and(|(_, found)| found.step == 5));
}

#[test]
fn signatures_without_their_checkpoint_are_swept() {
    let (_directory, store) = store(5);
    let info = save_stable(&store, 4);
    fs::remove_file(&info.path).expect("removed");
    let store = CheckpointStore::open(store.directory, 5).expect("opened again");
    assert!(!signatures_path(&info.path).exists());
    let info = save_stable(&store, 5);
    CheckpointStore::open(store.directory, 5).expect("opened again");
    assert!(signatures_path(&info.path).exists());
}

#[test]
fn checkpoints_are_handed_out_by_hash() {
    let (_directory, store) = store(3);
    let info = store.save(state(5)).expect("saved");
    let manifest = store.manifest(info.id).expect("read").expect("there");
    assert_eq!((manifest.id(), manifest.digest), (info.id, info.digest));
    let mut assembly = crate::state::snapshot::PartialSnapshot::new(manifest, info.bytes).expect("within bounds");
    for chunk in assembly.missing() {
        assembly.insert(store.read_chunk(chunk).expect("read")).expect("asked for");
    }
    assert_eq!(assembly.finish().expect("complete"), state(5));
    assert_eq!(store.manifest(Digest([1; 32])).expect("read"), None);
    assert!(matches!(store.read_chunk(Digest([1; 32])), Err(CheckpointError::Io { .. })));
    let chunk = chunk_files(&store).pop().expect("a chunk");
    fs::write(&chunk, b"damaged").expect("written");
    let name = parse_digest(&chunk.file_name().expect("a name").to_string_lossy()).expect("a hash");
    assert!(matches!(store.read_chunk(name), Err(CheckpointError::Damaged { .. })));
}

#[test]
fn a_checkpoint_comes_from_another_store_chunk_by_chunk() {
    let ((_theirs, donor), (_ours, store)) = (self::store(3), self::store(3));
    let mut state = state(7);
    (state.parameters, state.moments) = (Arc::new((0..600_000).map(|at| at as f32).collect()), vec![]);
    let info = donor.save(state.clone()).expect("saved");
    let manifest = donor.manifest(info.id).expect("read").expect("there");
    let missing = store.missing(&manifest);
    assert_eq!(missing, manifest.chunks);
    let chunk = |name: &Digest| donor.read_chunk(*name).expect("intact");
    store.insert(&manifest, &chunk(&missing[1])).expect("kept");
    // A process that was killed does not ask for it again, unless it is damaged.
    let store = CheckpointStore::open(store.directory, 3).expect("opened again");
    assert_eq!(store.missing(&manifest), [missing[0], missing[2]]);
    assert!(matches!(store.complete(&manifest), Err(CheckpointError::Io { .. })), "not all there");
    assert_eq!(store.steps().expect("read"), [] as [u64; 0]);
    fs::write(store.chunk_path(missing[1]), b"damaged").expect("written");
    assert_eq!(store.missing(&manifest), missing);
    for name in &missing {
        store.insert(&manifest, &chunk(name)).expect("kept");
    }
    let here = store.complete(&manifest).expect("complete");
    assert_eq!((here.id, here.digest, here.step), (info.id, info.digest, 7));
    assert!(store.verify().expect("read").iter().all(|verdict| verdict.result.is_ok()));
    assert_eq!(store.load(None).expect("loaded"), state);
}

#[test]
fn a_save_that_fails_leaves_no_chunks_behind() {
    let ((_theirs, donor), (_ours, store)) = (self::store(3), self::store(3));
    store.save(state(5)).expect("saved");
    let kept = chunk_files(&store);
    // On its way meanwhile; and what a save has left that was killed.
    let info = donor.save(state(9)).expect("saved");
    let coming = donor.manifest(info.id).expect("read").expect("there");
    for chunk in store.missing(&coming) {
        store.insert(&coming, &donor.read_chunk(chunk).expect("intact")).expect("kept");
    }
    let left_behind = store.chunk_path(hash(b"left behind"));
    fs::write(&left_behind, b"left behind").expect("written");
    // Of many chunks, the one that comes last can't be written.
    let large = ReplicatedState {
        parameters: Arc::new((0..1_300_000).map(|at| at as f32).collect()),
        frozen: <_>::default(),
        moments: vec![],
        ..state(6)
    };
    let chunks = crate::state::snapshot::StateSnapshot::of(large.clone()).manifest().chunks.clone();
    let last = store.chunk_path(*chunks.iter().max().expect("some"));
    fs::create_dir(&last).expect("made");
    store.save(large.clone()).expect_err("no room");
    assert!(kept.iter().all(|chunk| chunk.exists()) && !left_behind.exists());
    assert!(chunks.iter().all(|chunk| !store.chunk_path(*chunk).is_file()), "its own are gone");
    fs::remove_dir(&last).expect("removed");
    store.complete(&coming).expect("all there");
    store.save(large.clone()).expect("there is room");
    assert_eq!(store.load(None).expect("the newest"), state(9));
    assert_eq!(store.load(Some(6)).expect("whole"), large);
}

#[test]
fn foreign_bytes_become_no_checkpoint() {
    let ((_theirs, donor), (_ours, store)) = (self::store(3), self::store(3));
    let info = donor.save(state(7)).expect("saved");
    let manifest = donor.manifest(info.id).expect("read").expect("there");
    let chunk = donor.read_chunk(manifest.chunks[0]).expect("intact");
    let error = store.insert(&manifest, b"something else").expect_err("no chunk of it").to_string();
    assert!(error.contains("has no chunk"), "{error}");
    let shorter = SnapshotManifest { bytes: manifest.bytes - 1, ..manifest.clone() };
    let error = store.insert(&shorter, &chunk).expect_err("too long for its place").to_string();
    assert!(error.contains("at its place"), "{error}");
    store.insert(&manifest, &chunk).expect("kept");
    for wrong in [
        SnapshotManifest { digest: Digest([9; 32]), ..manifest.clone() },
        SnapshotManifest { values: Digest([9; 32]), ..manifest.clone() },
        SnapshotManifest { step: 8, ..manifest.clone() },
        SnapshotManifest { run: RunId([9; 32]), ..manifest.clone() },
    ] {
        store.complete(&wrong).expect_err("another state");
    }
    assert!(names(&store.directory).expect("read").iter().all(|name| !name.ends_with(".json")), "no manifest");
    store.complete(&manifest).expect("the right one");
    let other = SnapshotManifest { run: RunId([9; 32]), ..manifest };
    assert!(matches!(store.complete(&other), Err(CheckpointError::OtherRun { .. })));
}

#[test]
fn what_arrives_takes_the_place_of_older_ones_but_not_of_the_last_stable_one() {
    let ((_theirs, donor), (_ours, store)) = (self::store(9), self::store(2));
    let stable = save_stable(&store, 5);
    for step in 6..=9 {
        let info = donor.save(state(step)).expect("saved");
        let manifest = donor.manifest(info.id).expect("read").expect("there");
        for name in store.missing(&manifest) {
            store.insert(&manifest, &donor.read_chunk(name).expect("intact")).expect("kept");
        }
        store.complete(&manifest).expect("complete");
    }
    assert_eq!(steps(&store), [5, 8, 9]);
    let held = store.held().expect("read");
    assert_eq!((held.len(), held.get(&stable.id)), (3, Some(&5)));
    assert_eq!(
        store.newest_proofs().expect("read").iter().map(|proof| proof.head.manifest).collect::<Vec<_>>(),
        [stable.id]
    );
}

/// A thread that saves a state after the other, until it is told to stop, and keeps `keep` of them.
fn saving_in_a_hurry<T>(keep: usize, meanwhile: impl FnOnce(&CheckpointStore) -> T) -> T {
    let (_directory, store) = store(keep);
    store.save(state(0)).expect("saved");
    let (reader, is_over) = (CheckpointStore::reading(&store.directory), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for step in 1.. {
                if is_over.load(Ordering::Relaxed) {
                    return step;
                }
                store.save(state(step)).expect("saved");
            }
            unreachable!("steps end only with the reader")
        });
        // Also if an assertion fails: the scope waits for the thread.
        struct Over<'a>(&'a AtomicBool);
        impl Drop for Over<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let _over = Over(&is_over);
        meanwhile(&reader)
    })
}

#[test]
fn what_is_removed_while_it_is_read_was_never_there() {
    for keep in [1, 3] {
        saving_in_a_hurry(keep, |reader| {
            let mut seen = BTreeSet::new();
            while seen.len() < 40 {
                let verdicts = reader.verify().expect("read");
                assert!(verdicts.iter().all(|verdict| verdict.result.is_ok()), "{verdicts:?}");
                let listed = reader.list().expect("read");
                assert!(!listed.is_empty() && !verdicts.is_empty());
                let loaded = reader.load(None).expect("read");
                assert_eq!(loaded, state(loaded.step));
                assert_eq!(reader.run().expect("read"), Some(loaded.run));
                seen.insert(loaded.step);
                if let Err(error) = reader.load(Some(listed[0].step)) {
                    assert!(matches!(error, CheckpointError::NotFound { .. }), "{error}");
                }
            }
        });
    }
}

#[test]
fn who_reads_changes_nothing() {
    let (_directory, store) = store(3);
    store.save(state(1)).expect("saved");
    fs::write(store.directory.join(format!(".{}.AbCd12", "a".repeat(64))), b"half").expect("written");
    fs::write(store.directory.join("step-000000000009-left.signed.json"), b"{}").expect("written");
    let files = || {
        let mut files = [names(&store.directory), names(&store.chunks())].map(|names| names.expect("read")).concat();
        files.sort();
        files
    };
    let before = files();
    let reader = CheckpointStore::reading(&store.directory);
    assert_eq!(reader.load(None).expect("read"), state(1));
    assert_eq!((reader.verify().expect("read").len(), steps(&reader)), (1, vec![1]));
    assert_eq!(files(), before);
    let nowhere = store.directory.join("nowhere");
    assert!(CheckpointStore::reading(&nowhere).list().is_err() && !nowhere.exists());
}

#[test]
fn a_checkpoint_that_loses_a_chunk_is_damaged_and_not_gone() {
    let (_directory, store) = store(3);
    store.save(state(1)).expect("saved");
    fs::remove_file(&chunk_files(&store)[0]).expect("removed");
    let reader = CheckpointStore::reading(&store.directory);
    let verdicts = reader.verify().expect("read");
    assert!(verdicts.len() == 1 && verdicts[0].result.is_err());
    assert!(matches!(reader.load(None), Err(CheckpointError::Io { .. })));
}

#[test]
fn a_pinned_checkpoint_stays_until_its_time_is_over() {
    let (long, none) = (Duration::from_secs(3600), Duration::ZERO);
    let (_directory, store) = store(1);
    let first = store.save(state(1)).expect("saved");
    let clone = store.clone();
    assert!(clone.pin(first.id, long).expect("read"));
    assert!(!clone.pin(Digest([7; 32]), long).expect("read"));
    (2..=4).for_each(|step| drop(store.save(state(step)).expect("saved")));
    assert_eq!(steps(&store), [1, 4]);
    assert_eq!(store.load(Some(1)).expect("whole"), state(1));
    // Two at most, those pinned last.
    for step in 4..=6 {
        let info = store.save(state(step)).expect("saved");
        assert!(store.pin(info.id, long).expect("read"));
    }
    store.save(state(7)).expect("saved");
    assert_eq!(steps(&store), [5, 6, 7]);
    for info in store.list().expect("a list") {
        assert!(store.pin(info.id, none).expect("read"));
    }
    store.save(state(8)).expect("saved");
    assert_eq!(steps(&store), [8]);
    // A state that takes the place of a pinned one of its step does.
    let replaced = store.list().expect("a list").remove(0);
    assert!(store.pin(replaced.id, long).expect("read"));
    let other = ReplicatedState { parameters: vec![2.0; 1000].into(), ..state(8) };
    store.save(other.clone()).expect("saved");
    assert_eq!(store.load(Some(8)).expect("whole"), other);
    assert_eq!(steps(&store), [8]);
}

/// Writes what an earlier release would have: a state with a number that is not finite.
fn planted(store: &CheckpointStore, step: u64) -> CheckpointSummary {
    let mut state = state(step);
    Arc::make_mut(&mut state.moments[0])[802] = f32::INFINITY;
    let mut splitter = Splitter::new(|name: Digest, chunk: &[u8]| fs::write(store.chunk_path(name), chunk));
    let values = state.write_out(&mut splitter).expect("written");
    let manifest = splitter.finish(RunId([1; 32]), step, Lineage::NONE, values).expect("written");
    let path = store.directory.join(format!("step-{step:012}-{}.json", manifest.id()));
    fs::write(&path, manifest.encode()).expect("written");
    store.read_manifest(&path, step, manifest.id()).expect("intact").0
}

#[test]
fn a_state_that_can_not_be_read_back_is_not_saved() {
    let (_directory, store) = store(1);
    store.save(state(4)).expect("saved");
    let changes: [fn(&mut ReplicatedState); 4] = [
        |state| Arc::make_mut(&mut state.parameters)[7] = f32::NAN,
        |state| Arc::make_mut(&mut state.moments[0])[802] = f32::INFINITY,
        |state| state.scalars[0] = f64::NAN,
        |state| state.ledger = ledger(9),
    ];
    for change in changes {
        let mut state = state(5);
        change(&mut state);
        let message = store.save(state).expect_err("none that could be read").to_string();
        assert!(message.contains("the state after step 5 would be no checkpoint: "), "{message}");
        assert_eq!((steps(&store), store.last_intact().expect("read")), (vec![4], Some(4)), "nothing has changed");
    }
}

#[test]
fn a_stable_checkpoint_that_is_no_state_supersedes_none_and_is_handed_to_nobody() {
    let (_directory, store) = store(1);
    let whole = save_stable(&store, 4);
    let info = planted(&store, 6);
    let head = head(&info);
    store.sign(&head, &members(), &[signature(1, &head), signature(2, &head)], verify).expect("signed");
    assert_eq!(store.newest_stable(None).expect("read"), Some(whole.clone()));
    assert_eq!(
        store.newest_proofs().expect("read").iter().map(|proof| proof.head.manifest).collect::<Vec<_>>(),
        [whole.id]
    );
    // One that was not signed is saved after it: what is stable and whole stays.
    store.save(state(8)).expect("saved");
    assert_eq!(store.newest_stable(None).expect("read"), Some(whole));
    assert!(steps(&store).contains(&4));
}
