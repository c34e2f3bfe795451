//! What can't work is refused: one clear line, an exit code other than 0, no panic.

use std::net::TcpListener;
use std::path::{Path, PathBuf};

use starling_tests::{Peer, PeerOptions, data, free_port, starling};
use tempfile::TempDir;

/// Runs `starling` with `args` and returns its one error line.
fn refused(dir: &Path, args: &[&str]) -> String {
    let output = starling(dir).args(args).output().expect("starling starts");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{args:?} should have failed");
    assert!(!stderr.contains("panicked"), "{stderr}");
    let errors: Vec<&str> = stderr.lines().filter(|line| line.starts_with("error: ")).collect();
    assert_eq!(errors.len(), 1, "one clear line, not: {stderr}");
    errors[0].to_owned()
}

/// Runs `starling run` on `content` as a CSV file and returns the error, which must name the file.
fn refused_csv(content: &str) -> String {
    let dir = TempDir::new().expect("a temp dir");
    std::fs::write(dir.path().join("table.csv"), content).expect("written");
    let error = refused(dir.path(), &["run", "--data", "table.csv", "--data-dir", "state", "--device", "cpu"]);
    assert!(error.contains("table.csv"), "{error}");
    error
}

fn assert_names(error: &str, parts: &[&str]) {
    for part in parts {
        assert!(error.contains(part), "`{part}` is missing in: {error}");
    }
}

#[test]
fn a_stranger_without_the_secret() {
    for listen in ["/ip4/127.0.0.1/tcp/0", "/ip4/127.0.0.1/udp/0/quic-v1"] {
        let founder = Peer::run(&PeerOptions { listen: Some(listen.into()), ..PeerOptions::flags("--min-peers 2") });
        let stranger =
            Peer::join(&founder.address(), &PeerOptions { listen: Some(listen.into()), ..PeerOptions::default() });
        let name = stranger.dir();
        let outcome = stranger.finish();
        assert_names(outcome.error(), &["secret", "starling invite"]);
        let turned = founder.wait_for("the refusal", |event| event["event"] == "turned");
        assert_names(turned["reason"].as_str().expect("text"), &["could not prove", "secret"]);
        drop(name);
    }
}

#[test]
fn a_peer_that_wants_another_model_seed_or_batch() {
    let founder = Peer::run(&PeerOptions::flags("--min-peers 2 --seed 1 --model mlp:16 --batch-size 32"));
    let ticket = founder.ticket();
    for (flags, field, ours, theirs) in [
        ("--model mlp:17", "model", "mlp:17", "mlp:16"),
        ("--seed 2", "seed", "2", "1"),
        ("--batch-size 8", "batch_size", "8", "32"),
        ("--max-stall-ms 20000", "max_stall_ms", "20000", "10000"),
        ("--codec int8", "codec", "int8", "f32"),
        ("--optimizer lion", "optimizer", "lion(", "adamw("),
        ("--schedule cosine:0.1", "schedule.decay", "cosine:0.1", "constant"),
        ("--precision bf16", "precision", "bf16", "f32"),
        ("--warm-up 5", "schedule.warm_up", "5", "0"),
        ("--clip 1", "clip", "1", "none"),
        ("--plan mesh", "plan", "mesh", "ring"),
    ] {
        let error = Peer::join(&ticket, &PeerOptions::flags(flags)).finish().error().to_owned();
        assert_names(&error, &[field, &format!("ours {ours}"), &format!("theirs {theirs}")]);
        // The member says it too, from its own side.
        founder.wait_for("the refusal", |event| {
            let reason = event["reason"].as_str().unwrap_or_default();
            event["event"] == "turned"
                && reason.contains(field)
                && reason.contains(&format!("ours {theirs}"))
                && reason.contains(&format!("theirs {ours}"))
        });
    }
}

#[test]
fn what_can_not_be_computed_alike_by_whoever_computes_it() {
    let dir = TempDir::new().expect("a temp dir");
    for (flags, parts) in [
        (
            "--micro-batch 24",
            &["--micro-batch: run.micro_batch: ", "a batch of 64 samples is no multiple of 24", "16"][..],
        ),
        ("--micro-batch 128", &["run.micro_batch", "it is 128, more than the 64 samples of a batch"]),
        ("--dropout 0.1", &["run.micro_batch", "dropout needs micro-batches", "--micro-batch 16"]),
        ("--dropout 1 --micro-batch 8", &["--dropout: run.dropout", "a number from 0 to 0.95"]),
        (
            "--dropout 0.1 --micro-batch 8 --model softmax",
            &["run.model", "softmax has no layers to drop", "mlp or cnn"],
        ),
        ("--augment flip --micro-batch 8", &["run.model", "mlp takes no images as such", "cnn"]),
        ("--augment turn --model cnn", &["--augment: run.augment", "`turn` is no way to change images"]),
    ] {
        let always = ["run", "--data-dir", "state", "--device", "cpu"];
        let args: Vec<&str> = always.into_iter().chain(flags.split_whitespace()).collect();
        assert_names(&refused(dir.path(), &args), parts);
    }
    let founder = Peer::run(&PeerOptions::flags("--min-peers 2 --micro-batch 16 --dropout 0.25"));
    for (flags, parts) in [
        ("--micro-batch 8", ["micro_batch: ours 8, theirs 16"]),
        ("--micro-batch 0", ["it is 0, but dropout needs micro-batches"]),
        ("--dropout 0.5", ["model: ours mlp:64+dropout=0.5, theirs mlp:64+dropout=0.25"]),
        ("--model mlp:8", ["model: ours mlp:8+dropout=0.25, theirs mlp:64+dropout=0.25"]),
    ] {
        assert_names(Peer::join(&founder.ticket(), &PeerOptions::flags(flags)).finish().error(), &parts);
    }
}

#[test]
fn a_peer_with_other_data() {
    let founder = Peer::run(&PeerOptions::flags("--min-peers 2").with("--data", data::breast_cancer()));
    let error = Peer::join(&founder.ticket(), &PeerOptions::flags("--data digits")).finish().error().to_owned();
    assert_names(&error, &["data.kind", "ours digits", "theirs csv", "data.fingerprint"]);
}

#[test]
fn a_peer_with_another_copy_of_the_table() {
    let dir = TempDir::new().expect("a temp dir");
    let table = |name: &str, size: usize, first: &str| {
        let rows: String =
            (0..40).map(|at| format!("{}.5,{},{}\n", at % 7 + size, ["red", "blue"][at % 2], at % 2)).collect();
        let path = dir.path().join(name);
        std::fs::write(&path, format!("size,color,kind\n{first}\n{rows}")).expect("written");
        path
    };
    let founder = Peer::run(&PeerOptions::flags("--min-peers 2").with("--data", table("ours.csv", 0, "1.5,red,0")));
    for (size, first, told) in [
        (1, "1.5,red,0", "where `size` has the mean "),
        (0, "1.5,green,0", "where `color` has the category `green` here alone"),
        (0, "1.5,red,2", "where the label value `2` here alone"),
        (0, "1.5,red,1", "and the same columns, classes and means: some cells or labels differ"),
    ] {
        let options = PeerOptions::default().with("--data", table("theirs.csv", size, first));
        let error = Peer::join(&founder.ticket(), &options).finish().error().to_owned();
        assert_names(&error, &["this machine's data is not the run's, ", told, "data.fingerprint"]);
    }
}

#[test]
fn a_damaged_ticket() {
    let founder = Peer::run(&PeerOptions::flags("--min-peers 2"));
    let mut ticket = founder.ticket();
    ticket.pop();
    let dir = TempDir::new().expect("a temp dir");
    assert_names(&refused(dir.path(), &["join", &ticket]), &["ticket is damaged", "copy the whole line"]);
}

#[test]
fn an_address_where_nobody_listens() {
    let free = free_port().expect("a port");
    let address = format!("/ip4/127.0.0.1/tcp/{free}/p2p/12D3KooWNa6BUbxt7LNZ8gDvVcVDAPjkk5oSJbsDrZWDCq3VTiTx");
    let dir = TempDir::new().expect("a temp dir");
    let error = refused(dir.path(), &["join", &address, "--data-dir", "state"]);
    assert_names(&error, &["can't reach", "refused"]);
}

#[test]
fn bad_tables() {
    assert_names(&refused_csv("1,2,0\n3,4,1\n5,1\n"), &["row 3", "2", "3"]);
    assert_names(&refused_csv("a,b,y\n1,2,0\n3,x,1\n5,6,0\n"), &["row 3", "`b`", "x"]);
    assert_names(&refused_csv("1,2,0\n3,inf,1\n"), &["row 2", "column"]);
    assert_names(&refused_csv("1,2,0\n3,4,\n"), &["row 2", "column 2", "the label is empty"]);
    refused_csv("");
    let dir = TempDir::new().expect("a temp dir");
    let error = refused(dir.path(), &["run", "--data", "nowhere.csv", "--data-dir", "state"]);
    assert_names(&error, &["nowhere.csv"]);
    let error = refused(
        dir.path(),
        &["run", "--data-dir", "state", "--label", "bening", "--data", &{
            data::breast_cancer().to_str().expect("a text path").to_owned()
        }],
    );
    assert_names(&error, &["bening", "benign"]);
}

#[test]
fn a_truncated_idx_file() {
    let dir = TempDir::new().expect("a temp dir");
    data::write_idx(dir.path());
    let labels = dir.path().join("train-labels-idx1-ubyte");
    let bytes = std::fs::read(&labels).expect("written");
    std::fs::write(&labels, &bytes[..bytes.len() - 5]).expect("cut");
    let error = refused(dir.path(), &["run", "--data", ".", "--data-dir", "state"]);
    assert_names(&error, &["train-labels-idx1-ubyte", "1797"]);
}

/// The one thing in a folder.
fn only(folder: &Path) -> PathBuf {
    let mut entries = std::fs::read_dir(folder).expect("a folder");
    let first = entries.next().expect("something").expect("read").path();
    assert!(entries.next().is_none(), "{} holds several things", folder.display());
    first
}

#[test]
fn a_checkpoint_with_one_flipped_bit() {
    let peer = Peer::run(&PeerOptions::flags("--steps 20 --model mlp:8"));
    let (dir, state) = (peer.dir(), peer.data_dir());
    peer.finish().summary();
    let run = only(&state.join("checkpoints"));
    let chunk = only(&run.join("chunks"));
    let mut bytes = std::fs::read(&chunk).expect("read");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&chunk, bytes).expect("written");
    let name = chunk.file_name().expect("a name").to_string_lossy().into_owned();
    let flags = ["--data-dir", "state", "--device", "cpu"];
    for verb in [vec!["run", "--resume", "--steps", "20", "--model", "mlp:8"], vec!["checkpoint", "verify"]] {
        let flags = if verb[0] == "run" { &flags[..] } else { &flags[..2] };
        let output = starling(dir.path()).args(verb.iter().chain(flags)).output().expect("starling starts");
        let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{verb:?}: {said}");
        assert!(said.contains(&name[..16]), "{verb:?}: {said}");
    }
}

#[test]
fn a_damaged_newest_checkpoint_with_the_step_of_the_one_before() {
    let flags = "--steps 3000 --model mlp:128 --checkpoint-every 0";
    let peer = Peer::run(&PeerOptions::flags(flags));
    let (dir, state) = (peer.dir(), peer.data_dir());
    peer.wait_for_step(1);
    peer.signal("TERM");
    let left = peer.finish();
    assert_eq!(left.summary()["outcome"], "left");
    let resumed = PeerOptions::flags(&format!("{flags} --resume"));
    Peer::run_in(dir.clone(), &resumed).finish().summary();
    let run = only(&state.join("checkpoints"));
    let entries = std::fs::read_dir(run).expect("a folder").map(|entry| entry.expect("read").path());
    // Signatures may lie beside a manifest.
    let names = entries.filter(|path| path.extension().is_some_and(|end| end == "json"));
    let manifests = names.filter(|path| !path.to_string_lossy().ends_with(".signed.json"));
    let newest = manifests.max().expect("a checkpoint");
    std::fs::write(newest, "{}").expect("written");
    let intact = format!("pass --resume={}", left.summary()["steps"]);
    let error = Peer::run_in(dir, &resumed).finish().error().to_owned();
    assert_names(&error, &["step-000000003000", "is damaged", &intact]);
}

#[test]
fn a_busy_port() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("its address").port();
    let dir = TempDir::new().expect("a temp dir");
    let listen = format!("/ip4/127.0.0.1/tcp/{port}");
    let error = refused(dir.path(), &["run", "--listen", &listen, "--data-dir", "state", "--device", "cpu"]);
    assert_names(&error, &[&listen, &format!("port {port} is in use by"), "choose another port"]);
}

#[test]
fn an_unknown_key() {
    let dir = TempDir::new().expect("a temp dir");
    std::fs::write(dir.path().join("starling.toml"), "[run]\nlearning_rte = 0.1\n").expect("written");
    let error = refused(dir.path(), &["run", "--data-dir", "state"]);
    assert_names(&error, &["starling.toml", "learning_rte", "learning_rate"]);
    let output = starling(dir.path()).args(["config", "show"]).output().expect("starling starts");
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn an_unusable_device() {
    let dir = TempDir::new().expect("a temp dir");
    let error = refused(dir.path(), &["run", "--device", "gpu:99", "--data-dir", "state"]);
    assert_names(&error, &["gpu:99"]);
    let error = refused(dir.path(), &["run", "--device", "tpu", "--data-dir", "state"]);
    assert_names(&error, &["tpu", "auto"]);
}

#[test]
fn a_fresh_run_over_an_older_ones_checkpoints() {
    let peer = Peer::run(&PeerOptions::flags("--steps 20 --model mlp:8"));
    let dir = peer.dir();
    peer.finish().summary();
    let args = ["run", "--steps", "20", "--model", "mlp:8", "--data-dir", "state", "--device", "cpu"];
    assert_names(&refused(dir.path(), &args), &["--resume", "step 20"]);
    // Other settings make another run, whose checkpoints these are not.
    let args = ["run", "--resume", "--steps", "20", "--model", "mlp:9", "--data-dir", "state", "--device", "cpu"];
    assert_names(&refused(dir.path(), &args), &["another run", "model: ours mlp:9, theirs mlp:8"]);
    // Without --resume it is a run of its own, beside the other.
    let other = Peer::run_in(dir, &PeerOptions::flags("--steps 10 --model mlp:9"));
    let dir = other.dir();
    other.finish().summary();
    let list = starling(dir.path()).args(["checkpoint", "ls", "--data-dir", "state", "--json"]).output();
    let list: serde_json::Value = serde_json::from_slice(&list.expect("it starts").stdout).expect("JSON");
    let checkpoints = list["checkpoints"].as_array().expect("a list");
    let steps: Vec<_> = checkpoints.iter().map(|checkpoint| checkpoint["step"].as_u64()).collect();
    assert_eq!(steps, [Some(20), Some(10)], "{list}");
    let first = checkpoints[0]["run"].as_str().expect("text");
    let export = |args: &[&str], step: u64| {
        let command = ["checkpoint", "export", "--data-dir", "state", "--to", "model.safetensors", "--json"];
        let output = starling(dir.path()).args(command).args(args).output().expect("it starts");
        let said: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(said["step"].as_u64(), Some(step), "{said}");
    };
    export(&[], 10);
    export(&["--run", &first[..8]], 20);
}

#[test]
fn a_joiner_with_the_checkpoints_of_an_earlier_run() {
    let earlier = Peer::run(&PeerOptions::flags("--steps 20 --model mlp:8"));
    let dir = earlier.dir();
    earlier.finish().summary();
    let founder = Peer::run(&PeerOptions::flags("--min-peers 2 --steps 20 --model mlp:16"));
    let (ticket, listen) = (founder.ticket(), PeerOptions::default().listen.expect("on loopback"));
    let args = ["join", &ticket, "--data-dir", "state", "--device", "cpu", "--listen", &listen, "--json"];
    let joiner = starling(dir.path()).args(args).output().expect("starling starts");
    assert!(joiner.status.success(), "{}", String::from_utf8_lossy(&joiner.stderr));
    let last = joiner.stdout.trim_ascii().rsplit(|byte| *byte == b'\n').next().expect("a last line");
    let last: serde_json::Value = serde_json::from_slice(last).expect("JSON");
    assert_eq!(last["digest"], founder.finish().summary()["digest"]);
}

#[test]
fn a_place_where_no_model_can_be_written() {
    let dir = TempDir::new().expect("a temp dir");
    let run = ["run", "--export", "missing/model.safetensors", "--data-dir", "state", "--device", "cpu"];
    assert_names(&refused(dir.path(), &run), &["missing/model.safetensors", "its directory must be there"]);
    let run = ["run", "--audit", "missing/audit.jsonl", "--data-dir", "state", "--device", "cpu", "--json"];
    assert_names(&refused(dir.path(), &run), &["missing/audit.jsonl", "its directory is there"]);
    let output = starling(dir.path()).args(run).output().expect("starling starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.starts_with("{\"") && said.lines().count() == 1 && said.contains("failed"), "no ticket: {said}");
}

#[test]
fn a_model_that_does_not_fit_its_data_is_an_error_of_use() {
    let dir = TempDir::new().expect("a temp dir");
    let table = data::breast_cancer().to_str().expect("a text path").to_owned();
    for (model, data, reason) in
        [("mlp:65536,65536,65536", "digits", "8594980874 parameters"), ("cnn:8", table.as_str(), "images")]
    {
        let args = ["run", "--model", model, "--data", data, "--data-dir", "state", "--device", "cpu"];
        assert_names(&refused(dir.path(), &args), &["--model: run.model: ", reason]);
        let output = starling(dir.path()).args(args).output().expect("starling starts");
        assert_eq!(output.status.code(), Some(2));
    }
}

#[test]
fn an_init_that_fails_leaves_nothing() {
    let dir = TempDir::new().expect("a temp dir");
    std::fs::write(dir.path().join("file"), "in the way").expect("written");
    assert_names(&refused(dir.path(), &["init", "--data-dir", "file/state"]), &["file/state"]);
    assert!(!dir.path().join("starling.toml").exists());
}
