//! How a process starts, and how it is ended: ports, addresses, devices, signals.

use std::net::UdpSocket;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use starling_tests::{Feed, Peer, PeerOptions, Word, audit, binary, free_port, starling};
use tempfile::TempDir;

/// More steps than any test waits for.
const LONG: &str = "--model mlp:32 --steps 100000000 --checkpoint-every 0";
/// What makes the computations of a device take longer, as a device that compiles does.
const DELAYS: &str = "STARLING_TEST_DEVICE_DELAYS_MS";

fn listening_on(listen: &str, flags: &str) -> PeerOptions {
    PeerOptions { listen: Some(listen.into()), ..PeerOptions::flags(flags) }
}

/// The same, where the device's computations take so many milliseconds longer.
fn delayed(delays: &str, flags: &str) -> PeerOptions {
    PeerOptions { prefix: vec!["env".to_owned(), format!("{DELAYS}={delays}")], ..PeerOptions::flags(flags) }
}

/// The port in an address, which comes behind its protocol.
fn port(address: &str) -> &str {
    let mut parts = address.split('/').skip_while(|part| !["tcp", "udp"].contains(part));
    parts.nth(1).expect("a port")
}

fn is_empty(dir: &Path) -> bool {
    std::fs::read_dir(dir).expect("a folder").next().is_none()
}

#[test]
fn a_second_process_on_a_port_is_refused_and_told_who_has_it() {
    for (listen, again) in [
        ("/ip4/127.0.0.1/tcp/0", ["/ip4/127.0.0.1/tcp/PORT", "/ip4/0.0.0.0/tcp/PORT"]),
        ("/ip4/127.0.0.1/udp/0/quic-v1", ["/ip4/127.0.0.1/udp/PORT/quic-v1", "/ip4/0.0.0.0/udp/PORT/quic-v1"]),
    ] {
        let first = Peer::run(&listening_on(listen, "--min-peers 2"));
        let address = first.address();
        for again in again {
            let wanted = again.replace("PORT", port(&address));
            let second = Peer::run(&listening_on(&wanted, "--min-peers 2"));
            let dir = second.dir();
            let outcome = second.finish();
            let holder = format!("port {} is in use by another starling (process {})", port(&address), first.pid());
            assert!(outcome.error().contains(&wanted) && outcome.error().contains(&holder), "{}", outcome.error());
            assert_eq!(outcome.events.len(), 1, "nothing was announced: {:?}", outcome.events);
            assert!(is_empty(dir.path()), "nothing was made");
        }
    }
}

#[test]
fn of_several_that_start_on_one_port_at_once_one_gets_it() {
    let free = free_port().expect("a port");
    let (feed, deadline) = (Feed::default(), Instant::now() + Duration::from_secs(90));
    let start = |slot: usize| {
        let options = listening_on(&format!("/ip4/127.0.0.1/tcp/{free}"), "--min-peers 2");
        Peer::run(&PeerOptions { ear: Some(feed.ear(slot, 0)), ..options })
    };
    let peers: Vec<Peer> = (0..4).map(start).collect();
    let (mut listening, mut ended) = (0, 0);
    while listening + ended < peers.len() {
        match feed.next(deadline).expect("each listens or ends").word {
            Word::Said(event) => listening += usize::from(event["event"] == "listening"),
            Word::Ended => ended += 1,
        }
    }
    assert_eq!((listening, ended), (1, 3));
}

#[test]
fn addresses_that_are_none_are_errors_of_use_before_anything_is_made() {
    let udp = UdpSocket::bind("127.0.0.1:0").expect("a port").local_addr().expect("its address").port();
    for (listen, code, reason) in [
        ("/dns4/localhost/tcp/0".to_owned(), 2, "nothing to listen on"),
        ("/ip4/127.0.0.1".to_owned(), 2, "nothing to listen on"),
        ("/tcp/80/http".to_owned(), 2, "nothing to listen on"),
        (format!("/ip4/127.0.0.1/udp/{udp}"), 2, "nothing to listen on"),
        ("/ip4/192.0.2.7/tcp/0".to_owned(), 1, "192.0.2.7 is no address of this machine"),
    ] {
        let dir = TempDir::new().expect("a temp dir");
        let args = ["run", "--json", "--device", "cpu", "--data-dir", "state", "--listen", &listen];
        let output = starling(dir.path()).args(args).output().expect("starling starts");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{listen}: {stderr}");
        assert!(stderr.contains(reason) && stderr.contains(&listen), "{stderr}");
        // The error is the only event, too.
        let event: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
        assert_eq!(event["event"], "failed", "{event}");
        assert!(stderr.contains(event["error"].as_str().expect("text")), "{stderr}");
        assert!(is_empty(dir.path()), "{listen}");
    }
}

/// What `starling run` says in a network namespace with loopback alone, and its exit code.
fn run_without_ipv6(dir: &Path, flags: &[&str]) -> (Vec<Value>, String, Option<i32>) {
    let setup = "echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6 && ip link set lo up && exec \"$0\" \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--net", "--mount-proc", "--fork", "--pid", "sh", "-c", setup]).arg(binary());
    command.args(["run", "--json", "--device", "cpu", "--data-dir", "state", "--steps", "3"]).args(flags);
    let output = command.current_dir(dir).env("XDG_DATA_HOME", dir).output().expect("unshare (util-linux) is there");
    let lines = output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let events = lines.map(|line| serde_json::from_slice(line).expect("JSON")).collect();
    (events, String::from_utf8_lossy(&output.stderr).into_owned(), output.status.code())
}

#[test]
fn where_ipv6_is_off_a_node_listens_on_the_rest_without_a_word() {
    let dir = TempDir::new().expect("a temp dir");
    let (events, stderr, code) = run_without_ipv6(dir.path(), &[]);
    assert_eq!((code, stderr.as_str()), (Some(0), ""), "{events:?}");
    assert!(events.iter().all(|event| event["event"] != "warning"), "{events:?}");
    let listening = events.iter().find(|event| event["event"] == "listening").expect("it listens");
    let addresses = listening["addresses"].as_array().expect("a list");
    assert_eq!(addresses.len(), 1, "TCP over IPv4: {listening}");
    // What is asked for must be there.
    let wanted = ["--listen", "/ip4/127.0.0.1/tcp/0", "--listen", "/ip6/::1/tcp/0", "--seed", "2"];
    let (events, stderr, code) = run_without_ipv6(dir.path(), &wanted);
    assert_eq!(code, Some(1), "{events:?}");
    assert!(stderr.contains("/ip6/::1/tcp/0: ::1 is no address of this machine"), "{stderr}");
}

#[test]
fn a_terminal_that_goes_away_lets_the_node_leave_in_order_unless_it_is_to_outlive_it() {
    // Whoever runs this test may ignore it.
    let heeding = ["env", "--default-signal=HUP"].map(str::to_owned).to_vec();
    let peer = Peer::run(&PeerOptions { prefix: heeding, ..PeerOptions::flags(LONG) });
    peer.wait_for_step(1);
    peer.signal("HUP");
    assert_eq!(peer.finish().summary()["outcome"], "left");
    let peer = Peer::run(&PeerOptions { prefix: vec!["nohup".to_owned()], ..PeerOptions::flags(LONG) });
    let reached = peer.wait_for_step(1);
    peer.signal("HUP");
    peer.wait_for_step(reached + 1000);
    peer.signal("TERM");
    assert_eq!(peer.finish().summary()["outcome"], "left");
}

#[test]
fn a_device_that_is_slow_at_first_keeps_nobody_waiting() {
    let first = Peer::run(&PeerOptions::flags(&format!("{LONG} --max-stall-ms 2000")));
    first.wait_for_step(1);
    let slow = Peer::join(&first.ticket(), &delayed("6000", ""));
    slow.wait_for("words about it", |event| event["event"] == "warming_up");
    slow.wait_for("the state", |event| event["event"] == "synced");
    first.signal("TERM");
    let outcome = first.finish();
    let lost = |event: &Value| event["event"] == "suspected" || event["event"] == "joiner_lost";
    let views = outcome.events.iter().filter(|(_, event)| event["event"] == "view").count();
    assert!(!outcome.events.iter().any(|(_, event)| lost(event)), "{:?}", outcome.events);
    assert_eq!((views, &outcome.summary()["outcome"]), (2, &"left".into()), "alone, and with the joiner");
    slow.signal("TERM");
    slow.finish().summary();
}

#[test]
fn a_member_alone_may_be_as_slow_as_it_likes() {
    // Its second computation is the first of a step; the longest stall is over long before.
    let outcome = Peer::run(&delayed("0,4000", "--model mlp:8 --steps 20 --max-stall-ms 1000")).finish();
    assert_eq!(outcome.summary()["outcome"], "complete");
    let warnings = outcome.events.iter().filter(|(_, event)| event["event"] == "warning");
    let warnings: Vec<&str> = warnings.filter_map(|(_, event)| event["message"].as_str()).collect();
    assert!(matches!(warnings[..], [one] if one.contains("at step 1") && one.contains("--max-stall,")), "{warnings:?}");
    // Its view is told before its first step, and it waits for nobody.
    let told: Vec<_> = outcome.events.iter().map(|(_, event)| event["event"].as_str().unwrap_or_default()).collect();
    let first = |kind: &str| told.iter().position(|told| *told == kind);
    assert!(first("view") < first("progress") && first("view").is_some(), "{told:?}");
    assert_eq!(outcome.summary()["waiting_share"], 0.0);
}

#[test]
fn the_audit_of_whoever_left_ends_with_its_last_step() {
    let first = Peer::run(&PeerOptions::flags(LONG).with("--audit", "audit.jsonl"));
    let second = Peer::join(&first.ticket(), &PeerOptions::flags("").with("--audit", "audit.jsonl"));
    second.wait_for("the state", |event| event["event"] == "synced");
    let dirs = [first.dir(), second.dir()];
    for leaver in [second, first] {
        let (dir, first_to_leave) = (leaver.dir(), Arc::ptr_eq(&leaver.dir(), &dirs[1]));
        leaver.signal("TERM");
        let outcome = leaver.finish();
        let file = dir.path().join("audit.jsonl");
        let report = audit([file.clone()]);
        let last = report["last_step"].as_u64().expect("a number");
        assert_eq!(Some(last), outcome.summary()["steps"].as_u64(), "{report}");
        let text = std::fs::read_to_string(file).expect("read");
        assert_eq!(text.matches("first_step").count(), 1, "one header, first leaver: {first_to_leave}");
        assert!(!text.contains(&u64::MAX.to_string()));
    }
    audit(dirs.iter().map(|dir| dir.path().join("audit.jsonl")));
}

#[test]
fn two_exports_of_a_checkpoint_are_one_file() {
    let peer = Peer::run(&PeerOptions::flags("--steps 20 --model mlp:8").with("--export", "run.safetensors"));
    let dir = peer.dir();
    peer.finish().summary();
    let read = |name: &str| std::fs::read(dir.path().join(name)).expect("written");
    for name in ["a.safetensors", "b.safetensors", "c.safetensors"] {
        let args = ["checkpoint", "export", "--data-dir", "state", "--to", name];
        let output = starling(dir.path()).args(args).output().expect("starling starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(read(name) == read("run.safetensors"), "{name} differs");
    }
}
