//! Those who know an address and no secret: they keep nobody out, and take next to no memory.

use std::net::SocketAddr;
use std::time::Instant;

use starling_tests::{Peer, PeerOptions, Strangers};

/// A joiner's own network, and four others.
const NETWORKS: [[u8; 3]; 5] = [[127, 0, 0], [127, 0, 1], [127, 0, 2], [127, 1, 0], [127, 2, 0]];
/// What many of them may make a process grow by, in bytes.
const MEMORY: u64 = 16 << 20;

/// What a process holds in memory now, and what it has held at most, in bytes.
pub(crate) fn memory(peer: &Peer) -> [u64; 2] {
    let told = told_memory(peer);
    // What it took before, to start, does not count from here on (proc(5), clear_refs).
    std::fs::write(format!("/proc/{}/clear_refs", peer.pid()), "5").expect("it is ours");
    told
}

fn told_memory(peer: &Peer) -> [u64; 2] {
    let status = std::fs::read_to_string(format!("/proc/{}/status", peer.pid())).expect("it runs");
    ["VmRSS:", "VmHWM:"].map(|name| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("the system tells");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
    })
}

/// Where a process listens on loopback.
fn place(peer: &Peer) -> SocketAddr {
    let address = peer.address();
    let mut parts = address.split('/').skip(2).step_by(2);
    let (ip, port) = (parts.next().expect("an address"), parts.next().expect("a port"));
    format!("{ip}:{port}").parse().expect("an address and a port")
}

#[test]
fn five_hundred_keep_neither_a_joiner_nor_a_member_out() {
    let founder = Peer::run(&PeerOptions::flags("--min-peers 2 --steps 100000 --checkpoint-every 0"));
    let ticket = founder.ticket();
    let [before, _] = memory(&founder);
    let strangers = Strangers::visit(place(&founder), &NETWORKS, 500);
    strangers.wait_until_all_came();
    let [_, most] = memory(&founder);
    eprintln!("500 strangers: {} KiB more", (most - before) >> 10);
    assert!(most < before + MEMORY, "500 strangers take {} KiB", (most - before) >> 10);
    let began = Instant::now();
    let joiner = Peer::join(&ticket, &PeerOptions::flags("--checkpoint-every 0"));
    founder.wait_for_view(2);
    eprintln!("beside them, one joins in {:?}", began.elapsed());
    joiner.wait_for_step(10);
    // One that was killed comes back to its place, as long as they are there.
    let dir = joiner.dir();
    joiner.signal("KILL");
    drop(joiner.finish());
    let back = Peer::join_in(dir, &ticket, &PeerOptions::flags("--checkpoint-every 0"));
    let reached = back.wait_for_step(1);
    back.wait_for_step(reached + 10);
    drop(strangers);
    for peer in [&back, &founder] {
        peer.signal("TERM");
    }
    for peer in [back, founder] {
        peer.finish();
    }
}
