//! Machines that leave or are killed and come back by whatever command: one run, one view, and a fork only by a word.

use std::collections::BTreeSet;
use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value;
use starling_tests::{Outcome, Peer, PeerOptions, audit, eventually, newest_stable};
use tempfile::TempDir;

const RUN: &str = "--model mlp:8 --steps 100000000 --max-stall-ms 4000 --checkpoint-every 500";
const OWN: &str = "--checkpoint-every 500";
/// Environment variable: which of the founder's 216 sequences are gone through, as in `0..216` [default: 0..3].
const SEQUENCES: &str = "STARLING_TEST_SEQUENCES";

fn fresh() -> Arc<TempDir> {
    Arc::new(TempDir::new().expect("a temp dir"))
}

fn is_event(kind: &str) -> impl Fn(&Value) -> bool {
    move |event| event["event"] == kind
}

fn run_in(dir: &Arc<TempDir>, flags: &str) -> Peer {
    Peer::run_in(dir.clone(), &PeerOptions::flags(&format!("{RUN} {flags}")))
}

fn join_in(dir: &Arc<TempDir>, ticket: &str) -> Peer {
    Peer::join_in(dir.clone(), ticket, &PeerOptions::flags(OWN))
}

/// A founder and two others that train with it, and the founder's ticket, from when it was alone.
fn three() -> ([Arc<TempDir>; 3], [Peer; 3], String) {
    let dirs = [fresh(), fresh(), fresh()];
    let founder = run_in(&dirs[0], "");
    let ticket = founder.ticket();
    let [first, second] = [join_in(&dirs[1], &ticket), join_in(&dirs[2], &ticket)];
    let peers = [founder, first, second];
    for peer in &peers {
        peer.wait_for_votes(3);
    }
    for peer in &peers[1..] {
        peer.wait_for("the state", is_event("synced"));
    }
    (dirs, peers, ticket)
}

/// Ends a peer with a signal.
fn end(peer: Peer, signal: &str) -> Outcome {
    peer.signal(signal);
    peer.finish()
}

fn way(peer: &Peer) -> Value {
    peer.wait_for("its way back", is_event("returning"))
}

fn views(outcome: &Outcome) -> impl Iterator<Item = &Value> {
    outcome.events.iter().map(|(_, event)| event).filter(|event| event["event"] == "view")
}

/// The file of a data directory whose name begins so.
fn file(dir: &TempDir, prefix: &str) -> PathBuf {
    let entries = fs::read_dir(dir.path().join("state")).expect("a data directory");
    let names = entries.map(|entry| entry.expect("read").path());
    let is_wanted = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix));
    names.into_iter().find(is_wanted).unwrap_or_else(|| panic!("no {prefix} in {}", dir.path().display()))
}

/// Whether the list of contacts on this disk has all of them.
fn has_written(dir: &TempDir, names: &[String]) -> bool {
    let bytes = fs::read(file(dir, "contacts-")).expect("read");
    let key = |name: &String| name.parse::<libp2p::PeerId>().expect("a peer id").to_bytes();
    // The name is the key, with what kind of key it is before it.
    names.iter().map(key).all(|key| bytes.windows(32).any(|part| key.ends_with(part)))
}

#[test]
fn a_founder_comes_back_by_any_command_to_those_who_train() {
    let wanted = std::env::var(SEQUENCES).unwrap_or_else(|_| "0..3".to_owned());
    let (from, to) = wanted.split_once("..").expect("as in 0..216");
    let [from, to] = [from, to].map(|number| number.parse::<usize>().expect("a number"));
    (from..to).for_each(go_through);
}

/// Ends the founder three times, by Ctrl-C or kill -9, and brings it back each time, by one of three commands.
fn go_through(number: usize) {
    let (dirs, [mut founder, first, second], ticket) = three();
    let run = founder.wait_for("its start", is_event("started"))["run"].clone();
    let mut seen = BTreeSet::new();
    // A step that has no divisor in common with 216: all of them, in an order that mixes them.
    let mut choices = (number * 125 + 77) % 216;
    for _ in 0..3 {
        let (choice, rest) = (choices % 6, choices / 6);
        choices = rest;
        let outcome = end(founder, ["INT", "KILL"][choice % 2]);
        for view in views(&outcome) {
            assert_eq!(view["forked"], false, "{view}");
        }
        founder = match choice / 2 {
            0 => run_in(&dirs[0], ""),
            1 => run_in(&dirs[0], "--resume"),
            _ => join_in(&dirs[0], &ticket),
        };
        // Where the machine is too busy for an answer in time, it takes its seat or waits, and finds the others all the same.
        let way = way(&founder)["way"].clone();
        assert!(["join", "seat", "wait"].contains(&way.as_str().expect("text")), "sequence {number}: {way}");
        let view = founder.wait_for_votes(3);
        assert_eq!(view["forked"], false, "{view}");
        assert_eq!(founder.wait_for("its start", is_event("started"))["run"], run);
        // The others are in that view too, and it is a new one.
        let id = view["view"].as_str().expect("an id").to_owned();
        for other in [&first, &second] {
            other.wait_for("the same view", |event| event["event"] == "view" && event["view"] == id.as_str());
        }
        assert!(seen.insert(id));
        let step = founder.wait_for("progress", is_event("progress"))["step"].as_u64().expect("a step");
        first.wait_for_step(step);
    }
    for peer in [founder, first, second] {
        let outcome = end(peer, "KILL");
        assert!(views(&outcome).all(|view| view["forked"] == false));
        let has_no_reason = |view: &&Value| view["reason"] == "" && view["generation"] != 1;
        assert_eq!(views(&outcome).find(has_no_reason), None);
    }
}

/// Its place in the run is lost, as on a disk that was full, and its last word was no farewell.
#[test]
fn a_founder_whose_record_is_lost_resumes_among_those_who_train() {
    let (dirs, [founder, first, second], _) = three();
    let names = [first.id(), second.id()];
    eventually("both on disk", || has_written(&dirs[0], &names).then_some(()));
    let run = founder.wait_for("its start", is_event("started"))["run"].clone();
    let before = founder.wait_for_votes(3)["generation"].as_u64();
    end(founder, "KILL");
    fs::remove_file(file(&dirs[0], "view-")).expect("removed");
    let founder = run_in(&dirs[0], "--resume");
    assert_eq!(way(&founder)["way"], "join");
    assert_eq!(founder.wait_for("its start", is_event("started"))["run"], run);
    let view = founder.wait_for_votes(3);
    assert!(view["forked"] == false && view["generation"].as_u64() > before, "{view}");
    for other in [&first, &second] {
        other.wait_for("the same view", |event| event["event"] == "view" && event["view"] == view["view"]);
        other.wait_for_step(view["step"].as_u64().expect("a step") + 1);
    }
    let outcome = end(founder, "KILL");
    assert!(views(&outcome).all(|view| view["members"].as_array().is_some_and(|all| all.len() == 3)), "never alone");
}

/// Those that keep neither a key nor a vote: without them it knows less, and the others hold the state.
#[test]
fn a_damaged_side_file_never_stops_a_start() {
    let (dirs, [founder, first, second], _) = three();
    second.wait_for("a stable checkpoint", is_event("stable"));
    end(second, "KILL");
    let run = fs::read_dir(dirs[2].path().join("state/checkpoints")).expect("checkpoints").next().expect("a run");
    let abandoned = run.expect("read").path().join("abandoned.json");
    let beside = ["contacts-", "annals-", "roster-", "preprocessing-", "status"].map(|name| file(&dirs[2], name));
    for damaged in beside.into_iter().chain([abandoned]) {
        fs::write(damaged, "").expect("written");
    }
    let second = join_in(&dirs[2], &first.ticket());
    let view = second.wait_for_votes(3);
    assert_eq!(view["forked"], false, "{view}");
    second.wait_for_step(view["step"].as_u64().expect("a step") + 1);
    end(second, "KILL");
    for peer in [founder, first] {
        assert!(views(&end(peer, "KILL")).all(|view| view["forked"] == false));
    }
}

#[test]
fn the_last_to_leave_goes_on_and_who_left_before_waits_for_it() {
    let (dirs, [founder, second, last], _) = three();
    let last_id = last.id();
    for peer in [founder, second] {
        assert_eq!(end(peer, "INT").summary()["outcome"], "left");
    }
    last.wait_for_view(1);
    let left_at = end(last, "INT").summary()["steps"].as_u64().expect("a step");
    // The founder left first: it waits, and says for whom.
    let founder = run_in(&dirs[0], "--resume");
    assert_eq!(way(&founder)["way"], "wait");
    let awaiting = founder.wait_for("whom it waits for", is_event("awaiting"));
    assert_eq!(awaiting["why"], "return");
    assert!(awaiting["peers"].as_array().expect("a list").contains(&last_id.as_str().into()), "{awaiting}");
    // Asked to stop, it has nothing to sum up.
    let outcome = end(founder, "INT");
    assert!(outcome.status.success(), "{}", outcome.stderr);
    assert_eq!(outcome.last.expect("a last line")["event"], "stopped");
    // It is still there when the last one comes back, which needs nobody.
    let founder = run_in(&dirs[0], "");
    founder.wait_for("whom it waits for", is_event("awaiting"));
    let last = join_in(&dirs[2], &founder.ticket());
    assert_eq!(way(&last)["way"], "alone");
    let view = last.wait_for("a view", is_event("view"));
    assert_eq!((view["step"].as_u64(), &view["forked"]), (Some(left_at), &false.into()), "{view}");
    assert_eq!(founder.wait_for_view(2)["forked"], false);
    let second = run_in(&dirs[1], "");
    assert_eq!(way(&second)["way"], "join");
    assert_eq!(second.wait_for_view(3)["forked"], false);
}

#[test]
fn the_last_one_that_has_lost_its_state_gets_it_from_who_left_and_goes_back_behind_it_only_by_a_word() {
    let (dirs, [founder, second, last], _) = three();
    let leaver = second.id();
    let ticket = last.ticket();
    second.wait_for("a stable checkpoint", is_event("stable"));
    for peer in [founder, second] {
        assert_eq!(end(peer, "INT").summary()["outcome"], "left");
    }
    last.wait_for_view(1);
    end(last, "KILL");
    let stable = newest_stable(&dirs[1])["step"].as_u64().expect("a step");
    // Its disk has lost what all had signed, and what it saved since.
    let run = fs::read_dir(dirs[2].path().join("state/checkpoints")).expect("checkpoints").next().expect("a run");
    for entry in fs::read_dir(run.expect("read").path()).expect("a directory") {
        let path = entry.expect("read").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        let step = name.strip_prefix("step-").and_then(|rest| rest.get(..12)?.parse::<u64>().ok());
        if step.is_some_and(|step| step >= stable) {
            fs::remove_file(path).expect("removed");
        }
    }
    let error = join_in(&dirs[2], &ticket).finish().error().to_owned();
    for part in [leaver.as_str(), "--alone", "--resume"] {
        assert!(error.contains(part), "{part} is missing in: {error}");
    }
    // Who left waits for it, and hands over what it holds.
    let second = run_in(&dirs[1], "--resume");
    second.wait_for("whom it waits for", is_event("awaiting"));
    let last = join_in(&dirs[2], &second.ticket());
    let view = last.wait_for("a view", is_event("view"));
    assert_eq!((view["step"].as_u64(), &view["forked"]), (Some(stable), &false.into()), "{view}");
    assert_eq!(second.wait_for_view(2)["forked"], false);
}

/// All were killed before the first checkpoint that is signed; one of them had saved what it loaded, and has lost that.
#[test]
fn members_that_hold_no_state_any_more_begin_again_once_all_have_said_so() {
    let dirs = [fresh(), fresh()];
    let flags = PeerOptions::flags("--model mlp:8 --steps 100000000 --max-stall-ms 4000 --checkpoint-every 0");
    let founder = Peer::run_in(dirs[0].clone(), &flags);
    let ticket = founder.ticket();
    founder.wait_for("a step", |event| event["event"] == "progress" && event["step"].as_u64() > Some(10));
    let joiner = Peer::join_in(dirs[1].clone(), &ticket, &PeerOptions::flags(""));
    founder.wait_for_votes(2);
    joiner.wait_for("the state", is_event("synced"));
    end(founder, "KILL");
    end(joiner, "KILL");
    fs::remove_dir_all(dirs[1].path().join("state/checkpoints")).expect("removed");
    let founder = Peer::run_in(dirs[0].clone(), &flags);
    let paused = founder.wait_for("a pause", is_event("paused"));
    assert_eq!(paused["missed"], "state", "{paused}");
    let joiner = Peer::join_in(dirs[1].clone(), &founder.ticket(), &PeerOptions::flags(""));
    let view = joiner.wait_for("a view", is_event("view"));
    assert_eq!((view["step"].as_u64(), &view["forked"]), (Some(0), &false.into()), "{view}");
    for peer in [&founder, &joiner] {
        peer.wait_for("a step", |event| event["event"] == "progress");
    }
    for peer in [founder, joiner] {
        assert_eq!(end(peer, "INT").summary()["forked"], false);
    }
}

#[test]
fn beside_members_that_cant_be_reached_it_takes_a_word_to_go_on_alone() {
    let (dirs, [founder, first, second], _) = three();
    let names = [first.id(), second.id()];
    eventually("both on disk", || has_written(&dirs[0], &names).then_some(()));
    // Killed, and without its place in the run: nothing says whether the others go on.
    end(founder, "KILL");
    fs::remove_file(file(&dirs[0], "view-")).expect("removed");
    end(first, "KILL");
    end(second, "KILL");
    for flags in ["", "--resume"] {
        let error = run_in(&dirs[0], flags).finish().error().to_owned();
        for part in [names[0].as_str(), names[1].as_str(), "--alone", "starling join"] {
            assert!(error.contains(part), "{part} is missing in: {error}");
        }
    }
    let error = run_in(&dirs[0], "--resume=500").finish().error().to_owned();
    assert!(error.contains("--alone"), "{error}");
    let founder = run_in(&dirs[0], "--alone");
    assert_eq!(way(&founder)["way"], "fork");
    let view = founder.wait_for("a view", is_event("view"));
    assert_eq!((&view["forked"], view["members"].as_array().map(Vec::len)), (&true.into(), Some(1)), "{view}");
    let generation = view["generation"].as_u64().expect("a number");
    assert!(generation > 1, "its view follows the one that it was in: {view}");
    founder.wait_for_step(view["step"].as_u64().expect("a step") + 1);
    // When they come back they and the fork become one.
    let [first, second] = [1, 2].map(|at| run_in(&dirs[at], ""));
    for peer in [&founder, &first, &second] {
        peer.wait_for_votes(3);
    }
}

#[test]
fn a_damaged_list_of_contacts_is_told_and_passes_for_none_never() {
    let (dirs, [founder, first, second], _) = three();
    end(founder, "INT");
    let list = file(&dirs[0], "contacts-");
    let name = list.file_name().expect("a name").to_string_lossy().into_owned();
    let mut bytes = fs::read(&list).expect("read");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&list, bytes).expect("written");
    let outcome = run_in(&dirs[0], "--resume").finish();
    assert!(outcome.error().contains("--alone"), "{}", outcome.stderr);
    let warned = |event: &Value| {
        event["event"] == "warning" && event["message"].as_str().is_some_and(|message| message.contains(&name))
    };
    assert!(outcome.events.iter().any(|(_, event)| warned(event)), "{:?}", outcome.events);
    // A ticket leads back, and the list is whole again.
    let ticket = second.wait_for("its ticket", is_event("listening"))["ticket"].as_str().expect("text").to_owned();
    let founder = join_in(&dirs[0], &ticket);
    founder.wait_for("the warning", warned);
    assert_eq!(founder.wait_for_view(3)["forked"], false);
    first.wait_for("it", |event| {
        event["event"] == "view" && event["members"].as_array().is_some_and(|all| all.len() == 3)
    });
    end(founder, "INT");
    let founder = run_in(&dirs[0], "");
    assert_eq!(way(&founder)["way"], "join");
    founder.wait_for_votes(3);
}

#[test]
fn a_ticket_leads_to_whoever_of_its_members_lives() {
    let (_, [founder, first, second], old) = three();
    let is_whole = |event: &Value| event["event"] == "invitation";
    let names = |peer: &Peer| {
        // The newest one names all three, in whatever order they joined.
        peer.wait_for_votes(3);
        peer.wait_for("a ticket", is_whole)["ticket"].as_str().expect("text").to_owned()
    };
    let ticket = names(&second);
    end(second, "KILL");
    let late = Peer::join(&ticket, &PeerOptions::flags(OWN));
    late.wait_for_view(3);
    end(founder, "KILL");
    // The founder's first ticket named it alone.
    let error = Peer::join(&old, &PeerOptions::flags(OWN)).finish().error().to_owned();
    for part in ["can't reach", "any other member", "starling invite"] {
        assert!(error.to_lowercase().contains(part), "{part} is missing in: {error}");
    }
    first.wait_for_view(2);
}

#[test]
fn a_keepers_ticket_leads_to_members() {
    let (_, [founder, first, second], ticket) = three();
    let keeper = Peer::keep_in(fresh(), &ticket, &PeerOptions::flags(""));
    let kept = keeper.ticket();
    keeper.wait_for("a stable checkpoint", is_event("stable"));
    let late = Peer::join(&kept, &PeerOptions::flags(OWN));
    late.wait_for_view(4);
    for peer in [founder, first, second, late] {
        end(peer, "KILL");
    }
    let error = Peer::join(&kept, &PeerOptions::flags(OWN)).finish().error().to_owned();
    for part in [keeper.id().as_str(), "is a keeper", "starling invite"] {
        assert!(error.contains(part), "{part} is missing in: {error}");
    }
}

#[test]
fn a_joiner_that_is_stopped_before_it_is_in_sums_nothing_up() {
    // It takes connections and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = silent.local_addr().expect("its address").port();
    let address = format!("/ip4/127.0.0.1/tcp/{port}/p2p/12D3KooWNa6BUbxt7LNZ8gDvVcVDAPjkk5oSJbsDrZWDCq3VTiTx");
    let joiner = Peer::join(&address, &PeerOptions::default());
    let connecting = joiner.wait_for("what it does", is_event("connecting"));
    assert_eq!(connecting["peers"][0], "12D3KooWNa6BUbxt7LNZ8gDvVcVDAPjkk5oSJbsDrZWDCq3VTiTx");
    let outcome = end(joiner, "INT");
    assert!(outcome.status.success(), "{}", outcome.stderr);
    let last = outcome.last.expect("a last line");
    assert_eq!(last["event"], "stopped");
    assert!(last.get("measures").is_none() && last.get("digest").is_none(), "{last}");
}

#[test]
fn a_complete_run_goes_on_as_a_new_one() {
    let dir = fresh();
    let flags = |steps: u64, more: &str| PeerOptions::flags(&format!("--model mlp:8 --steps {steps} {more}"));
    let old = Peer::run_in(dir.clone(), &flags(30, "--resume")).finish().summary().clone();
    let audits = [dir.path().join("a"), dir.path().join("b")];
    let more = flags(90, "--resume --min-peers 2").with("--audit", &audits[0]);
    let founder = Peer::run_in(dir.clone(), &more);
    let begun = founder.wait_for("what it begins with", is_event("begun_from"));
    assert_eq!((&begun["run"], begun["step"].as_u64()), (&old["run"], Some(30)));
    let started = founder.wait_for("its start", is_event("started"));
    assert_eq!((started["step"].as_u64(), started["run"] != old["run"]), (Some(30), true), "{started}");
    let joiner = Peer::join(&founder.ticket(), &PeerOptions::default().with("--audit", &audits[1]));
    let [first, second] = [founder, joiner].map(|peer| peer.finish().summary().clone());
    assert_eq!((&first["digest"], &first["outcome"]), (&second["digest"], &"complete".into()));
    let report = audit(audits);
    assert_eq!((report["first_step"].as_u64(), report["steps"].as_u64()), (Some(31), Some(60)), "{report}");
    // By the same settings it is found again; by `--from`, the first one can be begun with elsewhere.
    let error = Peer::run_in(dir.clone(), &flags(90, "")).finish().error().to_owned();
    assert!(error.contains("complete"), "{error}");
    let elsewhere = Peer::run(&flags(120, "").with("--from", dir.path().join("state")));
    assert_eq!(elsewhere.wait_for("its start", is_event("started"))["step"], 90);
    elsewhere.finish().summary();
    let other = Peer::run(&flags(120, "--batch-size 16").with("--from", dir.path().join("state")));
    assert!(other.finish().error().contains("batch_size"));
}

#[test]
fn who_was_killed_when_all_had_finished_waits_for_nobody() {
    let flags = "--model mlp:8 --steps 2000 --checkpoint-every 500 --max-stall-ms 4000";
    // Members go when all have finished, also before a quorum has signed the last state.
    let (dir, last) = (0..8)
        .find_map(|_| {
            let dirs = [fresh(), fresh()];
            let founder = Peer::run_in(dirs[0].clone(), &PeerOptions::flags(&format!("{flags} --min-peers 2")));
            let joiner = join_in(&dirs[1], &founder.ticket());
            founder.wait_for_step(1);
            let seat = fs::read(file(&dirs[0], "view-")).expect("its seat");
            let outcomes = [founder, joiner].map(Peer::finish);
            assert!(outcomes.iter().all(|outcome| outcome.summary()["outcome"] == "complete"));
            // As if it had been killed before it put its seat away.
            let name = format!("view-{}", outcomes[0].summary()["run"].as_str().expect("a name"));
            fs::write(dirs[0].path().join("state").join(name), seat).expect("written");
            let last = newest_stable(&dirs[0])["step"].as_u64();
            (last == Some(2000)).then(|| (dirs[0].clone(), last))
        })
        .expect("a quorum signed the last state of none of the runs");
    assert_eq!(last, Some(2000));
    let error = Peer::run_in(dir.clone(), &PeerOptions::flags(flags)).finish().error().to_owned();
    assert!(error.contains("complete"), "{error}");
    let again = Peer::run_in(dir, &PeerOptions::flags(&format!("{flags} --resume"))).finish();
    assert_eq!((&again.summary()["outcome"], again.summary()["steps"].as_u64()), (&"complete".into(), Some(2000)));
}

#[test]
fn a_complete_run_says_so() {
    let flags = "--model mlp:8 --steps 20";
    let dir = fresh();
    let peer = Peer::run_in(dir.clone(), &PeerOptions::flags(flags));
    peer.finish().summary();
    let error = Peer::run_in(dir, &PeerOptions::flags(flags)).finish().error().to_owned();
    for part in ["complete", "step 20", "--resume --steps"] {
        assert!(error.contains(part), "{part} is missing in: {error}");
    }
}

/// Both wait for the other: one for those who stayed, to be let in; the other has nothing left to do.
#[test]
fn who_left_before_the_end_has_it_once_one_that_finished_is_started_again() {
    let flags = "--model mlp:64 --batch-size 256 --steps 12000 --checkpoint-every 1000 --max-stall 2s";
    let founder = Peer::run(&PeerOptions::flags(flags));
    let ticket = founder.ticket();
    let others = [(); 2].map(|()| Peer::join(&ticket, &PeerOptions::default()));
    founder.wait_for_votes(3);
    let (left, [first, second]) = (founder.dir(), others);
    assert_eq!(end(founder, "INT").summary()["outcome"], "left");
    let finished = [first.dir(), second.dir()];
    // On a slow machine, many steps take longer than one deadline.
    for step in [4_000, 8_000] {
        first.wait_for_step(step);
    }
    let [end, also] = [first, second].map(|peer| peer.finish().summary().clone());
    assert_eq!((&end["outcome"], &end["digest"]), (&"complete".into(), &also["digest"]));

    let waits = Peer::run_in(left, &PeerOptions::flags(flags));
    assert_eq!(waits.wait_for("whom it waits for", is_event("awaiting"))["why"], "return");
    let brings = Peer::join_in(finished[0].clone(), &waits.ticket(), &PeerOptions::default());
    assert_eq!(way(&brings)["way"], "serve");
    for peer in [waits, brings] {
        let outcome = peer.finish();
        let summary = outcome.summary();
        assert_eq!((&summary["outcome"], &summary["digest"]), (&"complete".into(), &end["digest"]), "{summary}");
        assert!(views(&outcome).all(|view| view["forked"] == false), "{}", outcome.stderr);
    }
    // Where nobody is there that lacks it, it has nothing to wait for.
    let error = Peer::join_in(finished[1].clone(), &ticket, &PeerOptions::default()).finish().error().to_owned();
    assert!(error.contains("complete"), "{error}");
}
