//! All are gone and come back; a disk is full.

use std::sync::Arc;
use std::time::Duration;

use starling_tests::chaos::Restart;
use starling_tests::{Peer, PeerOptions};

#[test]
fn all_killed_and_one_disk_lost_they_go_on_from_the_newest_checkpoint() {
    let restart = Restart {
        peers: 4,
        more_steps: 150,
        checkpoint_every: 100,
        max_stall: Duration::from_secs(2),
        seed: 6,
        run: "--model mlp:32 --steps 100000000".to_owned(),
        logs: None,
    };
    let verdict = restart.run().expect("it can be carried out");
    assert_eq!(verdict.broken(), &[] as &[String], "{}", verdict.to_json());
    assert!(verdict.get("resumed_at_step").as_u64().is_some_and(|step| step > 0), "{}", verdict.to_json());
}

#[test]
fn a_full_disk_costs_checkpoints_and_nothing_else() {
    let flags = "--model mlp:256 --batch-size 16 --steps 100000000 --checkpoint-every 10";
    let founder = Peer::run(&PeerOptions::flags(flags));
    // A file system of its own that has room for an identity, but for no checkpoint. It goes with the process.
    let mount = "mount -t tmpfs -o size=64k none \"$0\" && exec \"$@\"";
    let dir = Arc::new(tempfile::TempDir::new().expect("a temp dir"));
    let is_root = std::fs::metadata("/proc/self").map(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
    let user: &[&str] = if is_root.expect("/proc is there") { &[] } else { &["--map-root-user"] };
    let words = [&["unshare", "--mount"], user, &["sh", "-c", mount]].concat();
    let mut prefix: Vec<String> = words.into_iter().map(str::to_owned).collect();
    prefix.push(dir.path().to_str().expect("test paths are text").to_owned());
    let options = PeerOptions { prefix, ..PeerOptions::flags("--checkpoint-every 10") };
    let joiner = Peer::join_in(dir, &founder.ticket(), &options);
    let warned = joiner.wait_for("a warning of the full disk", |event| {
        event["event"] == "warning"
            && event["message"].as_str().is_some_and(|message| message.contains("No space left"))
    });
    let message = warned["message"].as_str().unwrap_or_default();
    assert!(message.contains("no checkpoint"), "{message}");
    // It goes on, and so does the other.
    let step = joiner.wait_for("progress", |event| event["event"] == "progress")["step"].as_u64().unwrap_or_default();
    joiner.wait_for_step(step + 50);
    founder.wait_for_step(step + 50);
    joiner.signal("TERM");
    let error = joiner.finish().error().to_owned();
    assert!(error.contains("No space left"), "{error}");
    founder.signal("TERM");
    assert_eq!(founder.finish().summary()["outcome"], "left");
}
