//! Those who know an address and no secret: they keep nobody out, and take next to no memory and few lines.

use std::time::Duration;

use starling_tests::chaos::Siege;

/// What many of them may make a process grow by, in bytes.
const MEMORY: u64 = 16 << 20;

fn stand(quic: usize) {
    let siege = Siege { strangers: 500, quic, lasts: Duration::ZERO, patience: None, memory: MEMORY, seed: 1 };
    let verdict = siege.run().expect("a siege");
    assert_eq!(verdict.broken(), &[] as &[String], "{}", verdict.to_json());
    eprintln!("{}", verdict.to_json());
}

#[test]
fn five_hundred_keep_neither_a_joiner_nor_a_member_out() {
    stand(0);
}

/// Over QUIC they may keep others out; over TCP they don't, and all together take no more memory.
#[test]
fn five_hundred_over_quic_keep_nobody_out_over_tcp() {
    stand(500);
}
