//! All are gone and come back; a disk is full.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use starling_tests::chaos::Restart;
use starling_tests::{Feed, Peer, PeerOptions, Word, eventually, newest_stable};

const ENDLESS: &str = "--model mlp:32 --steps 100000000 --checkpoint-every 0";

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

/// Options of a peer whose folder is a file system of its own, of this size. It goes with the process.
fn on_a_disk_of(dir: &tempfile::TempDir, size: &str, flags: &str) -> PeerOptions {
    let mount = format!("mount -t tmpfs -o size={size} none \"$0\" && exec \"$@\"");
    let is_root = std::fs::metadata("/proc/self").map(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
    let user: &[&str] = if is_root.expect("/proc is there") { &[] } else { &["--map-root-user"] };
    let words = [&["unshare", "--mount"], user, &["sh", "-c", &mount]].concat();
    let mut prefix: Vec<String> = words.into_iter().map(str::to_owned).collect();
    prefix.push(dir.path().to_str().expect("test paths are text").to_owned());
    PeerOptions { prefix, ..PeerOptions::flags(flags) }
}

/// The record of `peer`'s vote, by a path that leads there from here.
fn vote_of(peer: &Peer) -> PathBuf {
    let there = PathBuf::from(format!("/proc/{}/root", peer.pid()));
    let dir = there.join(peer.data_dir().strip_prefix("/").expect("an absolute path"));
    let files = std::fs::read_dir(&dir).expect("a data directory").map(|entry| entry.expect("readable").path());
    let is_vote = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("view-"));
    files.into_iter().find(is_vote).expect("a member has a record")
}

#[test]
fn a_full_disk_refuses_no_vote() {
    let founder = Peer::run(&PeerOptions::flags(ENDLESS));
    let dir = Arc::new(tempfile::TempDir::new().expect("a temp dir"));
    let member = Peer::join_in(dir.clone(), &founder.ticket(), &on_a_disk_of(&dir, "1m", "--checkpoint-every 0"));
    member.wait_for_view(2);
    let vote = vote_of(&member);
    let before = std::fs::read(&vote).expect("it can be read");
    let mut filler = std::fs::File::create(vote.with_file_name("filler")).expect("there is room");
    let full = std::iter::from_fn(|| Some(filler.write_all(&[0; 4096]))).find_map(Result::err);
    assert_eq!(full.map(|error| error.kind()), Some(std::io::ErrorKind::StorageFull));
    // The next view takes the votes of both.
    let third = Peer::join(&founder.ticket(), &PeerOptions::default());
    for peer in [&founder, &member, &third] {
        peer.wait_for_votes(3);
    }
    let after = std::fs::read(&vote).expect("it can be read");
    assert!(after != before && after.len() == before.len(), "it was written again where it was");
    let step = third.wait_for_step(1);
    founder.wait_for_step(step + 50);
}

#[test]
fn who_can_t_store_its_vote_ends_and_says_why() {
    let founder = Peer::run(&PeerOptions::flags(&format!("{ENDLESS} --max-stall-ms 4000")));
    let [member, third] = [(); 2].map(|()| Peer::join(&founder.ticket(), &PeerOptions::default()));
    for peer in [&founder, &member, &third] {
        peer.wait_for_votes(3);
    }
    // Something lies in its place that can't be written.
    let vote = vote_of(&member);
    std::fs::remove_file(&vote).expect("it can be removed");
    std::fs::create_dir_all(vote.join("in the way")).expect("it can be made");
    let fourth = Peer::join(&founder.ticket(), &PeerOptions::default());
    let warned = member.wait_for("a warning that nothing is stored", |event| event["event"] == "warning");
    let message = warned["message"].as_str().unwrap_or_default();
    assert!(message.contains("says nothing until its vote is stored"), "{message}");
    let error = member.finish().error().to_owned();
    let name = vote.file_name().expect("a name").to_string_lossy().into_owned();
    assert!(error.contains("can't store its vote in ") && error.contains(&name), "{error}");
    // The others go on, and nobody has to wait for the one that is gone. Of the three that could, two have promised.
    let view = fourth.wait_for_view(3);
    let same = founder.wait_for("the view that lets the fourth in", |event| {
        event["event"] == "view" && event["view"] == view["view"]
    });
    assert!(same["promised"].as_u64() <= Some(2), "its vote was not stored, and counts: {same}");
    let step = fourth.wait_for_step(1);
    for peer in [&founder, &third, &fourth] {
        peer.wait_for_step(step + 50);
    }
}

#[test]
fn a_full_disk_costs_checkpoints_and_nothing_else() {
    let flags = "--model mlp:256 --batch-size 16 --steps 100000000 --checkpoint-every 10";
    let founder = Peer::run(&PeerOptions::flags(flags));
    // One that has room for an identity and a vote, but for no checkpoint.
    let dir = Arc::new(tempfile::TempDir::new().expect("a temp dir"));
    let options = on_a_disk_of(&dir, "96k", "--checkpoint-every 10");
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

/// Downloads of the state take some ten seconds.
const OWN: &str = "--checkpoint-every 4 --state-rate 1";

#[test]
fn newcomers_that_were_killed_before_they_had_the_state_outvote_nobody_who_has_it() {
    let flags = format!("--model mlp:1536,1024 --batch-size 8 --steps 1000000 --max-stall-ms 10000 {OWN}");
    let founder = Peer::run(&PeerOptions::flags(&flags));
    let ticket = founder.ticket();
    let second = Peer::join(&ticket, &PeerOptions::flags(OWN));
    for peer in [&founder, &second] {
        peer.wait_for("a stable checkpoint", |event| event["event"] == "stable" && event["signers"] == 2);
    }
    // All come into the next view at once: it waits for the second's promise.
    second.signal("STOP");
    let newcomers = [(); 3].map(|()| Peer::join(&ticket, &PeerOptions::flags(OWN)));
    for newcomer in &newcomers {
        let id = newcomer.id();
        founder.wait_for("it to ask", |event| event["event"] == "joining" && event["peer"] == id.as_str());
    }
    second.signal("CONT");
    for newcomer in &newcomers {
        newcomer.wait_for_view(5);
    }
    let peers: Vec<Peer> = [founder, second].into_iter().chain(newcomers).collect();
    let dirs: Vec<_> = peers.iter().map(Peer::dir).collect();
    peers.iter().for_each(|peer| peer.signal("KILL"));
    peers.into_iter().for_each(|peer| drop(peer.finish()));
    let step = |checkpoint: &Value| checkpoint["step"].as_u64().expect("a step");
    // One may have been killed before it had the others' signatures.
    let held: Vec<u64> = dirs[..2].iter().map(|dir| step(&newest_stable(dir))).collect();
    let stable = held.iter().copied().max().expect("there are two");

    // They are most of the members of the view that they were in, have no vote there, and wait as long as members wait.
    let feed = Feed::default();
    let joins = |slot: usize| {
        let options = PeerOptions { ear: Some(feed.ear(slot, 0)), ..PeerOptions::flags(OWN) };
        Peer::join_in(dirs[slot].clone(), &ticket, &options)
    };
    let newcomers = [2, 3, 4].map(joins);
    let until = Instant::now() + Duration::from_secs(60);
    let is_settled = |event: &Value| event["event"] == "paused" || event["event"] == "view";
    while let Some(heard) = feed.next(until) {
        if matches!(&heard.word, Word::Said(event) if is_settled(event)) {
            break;
        }
    }
    let founder = Peer::run_in(dirs[0].clone(), &PeerOptions::flags(&flags));
    let peers = [founder, joins(1)].into_iter().chain(newcomers);
    let peers: Vec<Peer> = peers.inspect(|peer| _ = peer.wait_for_votes(5)).collect();
    peers.iter().for_each(|peer| peer.signal("KILL"));
    for peer in peers {
        let outcome = peer.finish();
        let views = outcome.events.iter().map(|(_, event)| event).filter(|event| event["event"] == "view");
        for view in views {
            assert!(step(view) >= stable && view["forked"] == false, "stable is {stable}: {view}");
        }
    }
    let holds: Vec<u64> = dirs[..2].iter().map(|dir| step(&newest_stable(dir))).collect();
    assert!(holds.iter().zip(&held).all(|(now, then)| now >= then), "stable were {held:?}, now are {holds:?}");
}

/// Who came last has no vote yet. These have: they lost their checkpoints, not their votes, and are killed again while they load the
/// state.
#[test]
fn voters_that_were_killed_before_they_had_the_state_again_outvote_nobody_who_has_it() {
    let flags =
        format!("--model mlp:1536,1024 --batch-size 8 --steps 1000000 --max-stall-ms 10000 --min-peers 5 {OWN}");
    let dirs = [(); 5].map(|()| Arc::new(tempfile::TempDir::new().expect("a temp dir")));
    let founder = Peer::run_in(dirs[0].clone(), &PeerOptions::flags(&flags));
    let ticket = founder.ticket();
    let joins = |slot: usize| Peer::join_in(dirs[slot].clone(), &ticket, &PeerOptions::flags(OWN));
    let kill = |peers: Vec<Peer>| -> Vec<_> {
        peers.iter().for_each(|peer| peer.signal("KILL"));
        peers.into_iter().map(Peer::finish).collect()
    };
    let peers: Vec<Peer> = std::iter::once(founder).chain((1..5).map(joins)).collect();
    for peer in &peers {
        peer.wait_for_votes(5);
        peer.wait_for("a stable checkpoint", |event| {
            event["event"] == "stable" && event["signers"].as_u64() >= Some(3)
        });
    }
    drop(kill(peers));
    let step = |value: &Value| value["step"].as_u64().expect("a step");
    let held = [0, 1].map(|slot: usize| step(&newest_stable(&dirs[slot])));
    let stable = held[0].max(held[1]);
    for dir in &dirs[2..] {
        std::fs::remove_dir_all(dir.path().join("state/checkpoints")).expect("lost");
    }
    let founder = || Peer::run_in(dirs[0].clone(), &PeerOptions::flags(&flags));
    let peers: Vec<Peer> = std::iter::once(founder()).chain((1..5).map(joins)).collect();
    for peer in &peers {
        assert!(step(&peer.wait_for_votes(5)) >= stable, "all came back");
    }
    for outcome in kill(peers).iter().skip(2) {
        assert!(!outcome.events.iter().any(|(_, event)| event["event"] == "synced"), "it was to be killed before");
    }

    // Three of five decide, and none of them has a state.
    let first: Vec<Peer> = (2..5).map(joins).collect();
    let is_settled = |event: &Value| event["event"] == "paused" || event["event"] == "view";
    eventually("no state, or one", || first.iter().any(|peer| peer.told().iter().any(is_settled)).then_some(()));
    let peers: Vec<Peer> = [founder(), joins(1)].into_iter().chain(first).collect();
    peers.iter().for_each(|peer| _ = peer.wait_for_votes(5));
    for outcome in kill(peers) {
        for (_, view) in outcome.events.iter().filter(|(_, event)| event["event"] == "view") {
            assert!(step(view) >= stable && view["forked"] == false, "stable is {stable}: {view}");
            assert_ne!(view["reason"], "", "{view}");
        }
    }
    let holds = [0, 1].map(|slot: usize| step(&newest_stable(&dirs[slot])));
    assert!(holds.iter().zip(&held).all(|(now, then)| now >= then), "stable were {held:?}, now are {holds:?}");
}
