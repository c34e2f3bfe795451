//! Keepers: peers that store checkpoints and take part in nothing.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value;
use starling_tests::{Impostor, Peer, PeerOptions, checkpoints, eventually, newest_stable, starling};
use tempfile::TempDir;

/// Steps that take a few milliseconds each, and more of them than any test waits for.
const FLAGS: &str =
    "--model mlp:256,256 --batch-size 256 --steps 1000000 --checkpoint-every 20 --max-stall-ms 8000 --min-peers 2";
/// What a joiner does not have from the run.
const OWN: &str = "--checkpoint-every 20";

fn fresh() -> Arc<TempDir> {
    Arc::new(TempDir::new().expect("a temp dir"))
}

fn keep(dir: &Arc<TempDir>, ticket: &str) -> Peer {
    Peer::keep_in(dir.clone(), ticket, &PeerOptions::default())
}

fn is_stable(event: &Value) -> bool {
    event["event"] == "stable"
}

/// Signed by all three members, so that each of them has it.
fn is_complete(event: &Value) -> bool {
    is_stable(event) && event["signers"] == 3
}

fn step(value: &Value) -> u64 {
    value["step"].as_u64().expect("a step")
}

/// Three members, stepping.
fn three() -> ([Peer; 3], String) {
    let founder = Peer::run(&PeerOptions::flags(FLAGS));
    let ticket = founder.ticket();
    let [second, third] = [(); 2].map(|()| Peer::join(&ticket, &PeerOptions::flags(OWN)));
    founder.wait_for_votes(3);
    ([founder, second, third], ticket)
}

/// Kills all at once; their directories.
fn kill(peers: [Peer; 3]) -> [Arc<TempDir>; 3] {
    peers.iter().for_each(|peer| peer.signal("KILL"));
    peers.map(|peer| {
        let dir = peer.dir();
        drop(peer.finish());
        dir
    })
}

fn wipe_checkpoints(dir: &TempDir) {
    std::fs::remove_dir_all(dir.path().join("state").join("checkpoints")).expect("there");
}

#[test]
fn a_keeper_holds_what_members_sign_and_changes_no_view() {
    let (members, ticket) = three();
    let dir = fresh();
    let keeper = keep(&dir, &ticket);
    let first = keeper.wait_for("a stable checkpoint", is_stable);
    let later = keeper.wait_for("a later one", |event| is_complete(event) && step(event) > step(&first));
    let same = members[0].wait_for("the same one", |event| is_stable(event) && event["step"] == later["step"]);
    assert_eq!(same["digest"], later["digest"]);
    keeper.signal("TERM");
    let outcome = keeper.finish();
    let summary = outcome.summary().clone();
    assert_eq!(summary["outcome"], "left");
    assert!(step_of_summary(&summary) >= step(&later), "{summary}");
    let (verdicts, code) = checkpoints(&dir, "verify");
    assert_eq!(code, Some(0), "{verdicts:?}");
    let newest = newest_stable(&dir);
    assert_eq!((newest["step"].as_u64(), &newest["digest"]), (summary["steps"].as_u64(), &summary["digest"]));
    assert!(newest["signers"].as_array().is_some_and(|signers| signers.len() >= 2), "{newest}");

    // It was there and is gone, and no member has noticed more than how it is called.
    let reached = members[0].wait_for("progress", |event| {
        event["event"] == "progress" && event["step"].as_u64() > summary["steps"].as_u64()
    });
    assert_eq!(reached["generation"], members[0].wait_for_votes(3)["generation"], "{reached}");
    let name = outcome.events[0].1["peer"].as_str().expect("a peer").to_owned();
    for member in members {
        member.signal("KILL");
        let events = member.finish().events;
        let told = events.iter().find(|(_, event)| event["event"] != "named" && event.to_string().contains(&name));
        assert!(told.is_none(), "{told:?}");
    }
}

fn step_of_summary(summary: &Value) -> u64 {
    summary["steps"].as_u64().expect("a step")
}

/// Waits until a member would find a keeper again after it was killed; `keeper` goes on meanwhile.
fn wait_until_known(members: &[Peer; 3], keeper: &Peer) {
    let mut last = step(&keeper.wait_for("a stable checkpoint", is_stable));
    let address = keeper.address();
    let address = address.split("/p2p/").next().expect("an address").as_bytes();
    let is_known = |member: &Peer| {
        let paths = std::fs::read_dir(member.data_dir()).expect("there").map(|entry| entry.expect("read").path());
        let is_list =
            |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("contacts-"));
        // Addresses stand in it as they are.
        let names_keeper = |path: PathBuf| {
            let bytes = std::fs::read(path).unwrap_or_default();
            bytes.windows(address.len()).any(|part| part == address)
        };
        paths.into_iter().filter(is_list).any(names_keeper)
    };
    while !members.iter().all(is_known) {
        last = step(&keeper.wait_for("a later one", |event| is_stable(event) && step(event) > last));
    }
}

#[test]
fn all_killed_and_all_checkpoints_lost_they_go_on_from_what_a_keeper_has() {
    let (members, ticket) = three();
    let keeper = keep(&fresh(), &ticket);
    wait_until_known(&members, &keeper);
    let last = keeper.wait_for("a stable checkpoint", is_stable);
    let dirs = kill(members);
    dirs.iter().for_each(|dir| wipe_checkpoints(dir));
    let [first, second, third] = dirs;

    let first = Peer::run_in(first, &PeerOptions::flags(FLAGS));
    let second = Peer::join_in(second, &ticket, &PeerOptions::flags(OWN));
    let fetched = [&first, &second].map(|peer| peer.wait_for("what others had", |event| event["event"] == "fetched"));
    // Nobody was there to make a later one, so both found the newest.
    assert_eq!((&fetched[0]["step"], &fetched[0]["digest"]), (&fetched[1]["step"], &fetched[1]["digest"]));
    let newest = keeper.wait_for("that one", |event| is_stable(event) && event["step"] == fetched[0]["step"]);
    assert_eq!(newest["digest"], fetched[0]["digest"]);
    assert!(step(&newest) >= step(&last), "{newest}, after {last}");
    for peer in [&first, &second] {
        assert_eq!(step(&peer.wait_for("its start", |event| event["event"] == "started")), step(&newest));
    }
    // They may have saved a later one that the keeper has not got any more: whether it is lost the third knows.
    let third = Peer::join_in(third, &ticket, &PeerOptions::flags(OWN));
    for peer in [&first, &second] {
        let view = peer.wait_for("a view", |event| event["event"] == "view");
        assert_eq!((step(&view), &view["forked"]), (step(&newest), &false.into()));
    }
    third.wait_for("a view", |event| event["event"] == "view");
    // The keeper has found them again.
    let later = keeper.wait_for("a later one", |event| is_complete(event) && step(event) > step(&newest));
    let same = first.wait_for("the same one", |event| is_stable(event) && event["step"] == later["step"]);
    assert_eq!(same["digest"], later["digest"]);
}

#[test]
fn a_machine_with_an_empty_disk_begins_from_a_keeper_alone() {
    let (members, ticket) = three();
    let dir = fresh();
    let keeper = keep(&dir, &ticket);
    keeper.wait_for("a stable checkpoint", is_stable);
    kill(members);
    keeper.signal("INT");
    let kept = keeper.finish().summary().clone();
    // Started again, it needs nobody to know what it holds.
    let keeper = keep(&dir, &ticket);
    let state = fresh();
    let fetch = |ticket: &str, dir: &TempDir| {
        let mut command = starling(dir.path());
        command.args(["checkpoint", "fetch", ticket, "--json", "--data-dir"]).arg(dir.path().join("state"));
        command.output().expect("it runs")
    };
    let output = fetch(&keeper.ticket(), &state);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let fetched: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&fetched["step"], &fetched["digest"]), (&kept["steps"], &kept["digest"]));
    assert_eq!(fetched["new"], true);
    let (verdicts, code) = checkpoints(&state, "verify");
    assert_eq!((code, verdicts.len(), &verdicts[0]["stable"]), (Some(0), 1, &true.into()), "{verdicts:?}");
    let again: Value = serde_json::from_slice(&fetch(&keeper.ticket(), &state).stdout).expect("JSON");
    assert_eq!((&again["step"], &again["new"]), (&fetched["step"], &false.into()));
    // Whoever has fetched from the keeper knows it; who has nothing but a dead member's ticket knows nobody.
    assert!(fetch(&ticket, &state).status.success());
    let nobody = fetch(&ticket, &fresh());
    assert_eq!(nobody.status.code(), Some(1), "the founder is dead");
    assert!(String::from_utf8_lossy(&nobody.stderr).contains("can't reach"), "{nobody:?}");

    let flags = FLAGS.replace("--min-peers 2", "--min-peers 1");
    let first = Peer::run_in(state, &PeerOptions::flags(&format!("{flags} --resume")));
    let start = first.wait_for("its start", |event| event["event"] == "started");
    assert_eq!((&start["step"], &start["run"]), (&fetched["step"], &fetched["run"]));
    first.wait_for_step(step(&start) + 1);
}

/// Who could not be reached when the others finished must not go on by itself: what they ended with is what the run came to.
#[test]
fn who_is_away_when_the_others_finish_takes_their_last_state_from_a_keeper() {
    let flags = "--model mlp:64 --batch-size 256 --steps 12000 --checkpoint-every 1000 --max-stall 2s --fork-after 20s --min-peers 2";
    let away = Peer::run(&PeerOptions::flags(flags));
    let ticket = away.ticket();
    let others = [(); 2].map(|()| Peer::join(&ticket, &PeerOptions::flags("--fork-after 20s")));
    away.wait_for_votes(3);
    let keeper = keep(&fresh(), &ticket);
    let id = keeper.id();
    // It keeps in its list of contacts where the keeper is.
    let lists = |dir: &TempDir| {
        let output = starling(dir.path()).args(["members", "--json", "--data-dir", "state"]).output();
        String::from_utf8_lossy(&output.expect("starling starts").stdout).contains(&id).then_some(())
    };
    eventually("the keeper in its list", || lists(&away.dir()));
    away.signal("STOP");
    // On a slow machine, many steps take longer than one deadline.
    for step in [4_000, 8_000] {
        others[0].wait_for_step(step);
    }
    let [first, second] = others.map(|peer| peer.finish().summary().clone());
    away.signal("CONT");
    let outcome = away.finish();
    let forks = |(_, event): &(_, Value)| event["event"] == "view" && event["forked"] == true;
    assert!(!outcome.events.iter().any(forks), "{}", outcome.stderr);
    for other in [&first, outcome.summary()] {
        assert_eq!((&other["outcome"], &other["digest"]), (&"complete".into(), &second["digest"]), "{other}");
        assert_eq!(other["values"], second["values"]);
    }
    keeper.signal("INT");
    drop(keeper.finish());
}

/// A hostile peer is there first, and the members as if they were not.
#[test]
fn four_made_up_branches_that_a_keeper_hears_of_first_take_no_place() {
    let founder = Peer::run(&PeerOptions::flags(FLAGS));
    let (ticket, dir) = (founder.ticket(), fresh());
    // It knows what the run is, and nothing else: one member takes no steps.
    let keeper = keep(&dir, &ticket);
    keeper.wait_for("its start", |event| event["event"] == "keeping");
    keeper.signal("TERM");
    keeper.finish();
    let second = Peer::join(&ticket, &PeerOptions::flags(OWN));
    founder.wait_for("a stable checkpoint", |event| is_stable(event) && event["signers"] == 2);
    [&founder, &second].into_iter().for_each(|member| member.signal("STOP"));
    let keeper = keep(&dir, &ticket);
    let runtime = tokio::runtime::Runtime::new().expect("threads");
    let checkpoint = newest_stable(&founder.dir());
    let (ticket, files) = (keeper.ticket(), founder.data_dir());
    let impostor = runtime.block_on(Impostor::at(&ticket, 4, &files, &checkpoint));
    impostor.wait_until_asked();
    assert_eq!(impostor.fetched(), 0);
    [&founder, &second].into_iter().for_each(|member| member.signal("CONT"));
    let kept = keeper.wait_for("the run's own", is_stable);
    assert_eq!(kept["signers"], 2, "{kept}");
    let later = keeper.wait_for("a later one", |event| is_stable(event) && step(event) > step(&kept));
    assert!(step(&later) > step(&checkpoint), "{later}");
    keeper.signal("TERM");
    keeper.finish();
    let (list, _) = checkpoints(&dir, "ls");
    let is_theirs = |signer: &Value| [&founder, &second].iter().any(|member| *signer == *member.id());
    let signers = |checkpoint: &Value| checkpoint["signers"].as_array().cloned().unwrap_or_default();
    assert!(list.iter().flat_map(signers).all(|signer| is_theirs(&signer)), "{list:?}");
}
