//! Bits of a member's record that are not as they were written.

use std::fs;
use std::sync::Arc;

use serde_json::Value;
use starling_tests::{Peer, PeerOptions};
use tempfile::TempDir;

const FLAGS: &str = "--model mlp:8 --steps 100000000 --max-stall-ms 4000 --checkpoint-every 500";
/// How many bits are flipped, each in a start of its own.
const FLIPS: usize = 200;
/// Where the length of what is stored lies in a slot, and how many bytes come before that.
const LENGTH_AT: usize = 84;
const HEADER: usize = 120;

/// All positions are put to the loader in `record_file.rs`. Here the program starts with what is left: of two copies one counts, and
/// where none is whole there is no vote.
#[test]
fn no_flipped_bit_gives_a_member_another_vote() {
    let dir = Arc::new(TempDir::new().expect("a temp dir"));
    let start = || Peer::run_in(dir.clone(), &PeerOptions::flags(FLAGS));
    let is_view = |event: &Value| event["event"] == "view";
    let member = start();
    let first = member.wait_for("a view", is_view)["generation"].as_u64();
    member.wait_for("a checkpoint", |event| event["event"] == "stable");
    member.signal("KILL");
    drop(member.finish());
    let entries = fs::read_dir(dir.path().join("state")).expect("a data directory");
    let mut files = entries.map(|entry| entry.expect("read").path());
    let is_record = |name: &str| name.starts_with("view-");
    let file = files.find(|path| path.file_name().is_some_and(|name| is_record(&name.to_string_lossy())));
    let file = file.expect("a member has a record");
    let whole = fs::read(&file).expect("read");
    let length = whole[LENGTH_AT..].first_chunk().map(|bytes| u32::from_le_bytes(*bytes)).expect("four bytes");
    let (half, used) = (whole.len() / 2, HEADER + length as usize);
    assert!(used < half && whole[..used] == whole[half..half + used], "two copies, each with a header");
    for flip in 0..FLIPS {
        // Every other time in one copy, by turns; else in both.
        let (bit, both) = (flip * used * 8 / FLIPS, flip % 2 == 0);
        let places = if both { vec![0, half] } else { vec![if flip % 4 == 1 { 0 } else { half }] };
        let mut bytes = whole.clone();
        places.iter().for_each(|place| bytes[place + bit / 8] ^= 1 << (bit % 8));
        fs::write(&file, &bytes).expect("written");
        let member = start();
        if !both {
            let view = member.wait_for("its view", is_view);
            let follows = view["generation"].as_u64() == first.map(|first| first + 1);
            assert!(follows && view["forked"] == false, "bit {bit}: {view}");
            member.signal("KILL");
        }
        let outcome = member.finish();
        let name = file.file_name().expect("a name").to_string_lossy();
        let is_told = |event: &Value| {
            event["event"] == "warning" && event["message"].as_str().is_some_and(|message| message.contains(&*name))
        };
        assert!(outcome.events.iter().any(|(_, event)| is_told(event)), "bit {bit}: {:?}", outcome.events);
        if both {
            assert!(!outcome.events.iter().any(|(_, event)| is_view(event)), "bit {bit}: {:?}", outcome.events);
            assert!(outcome.error().contains("--alone"), "bit {bit}: {}", outcome.stderr);
            assert_eq!(fs::read(&file).expect("read"), bytes, "bit {bit}: it is left as it was");
        }
    }
}
