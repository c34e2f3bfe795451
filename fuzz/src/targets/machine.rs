//! Messages that come for the membership machine, one after the other.

use std::time::Duration;

use starling_topology::{Envelope, Input, Time};

use crate::seeds::{Driven, peer, recorded};
use crate::target::Target;

/// The most that one message may bring about.
const MOST_OUTPUTS: usize = 600;

/// From whom, how many times 10 ms after the one before, how many bytes, and the message.
pub(super) const MESSAGES: Target = Target {
    name: "messages",
    seeds: || [1, 2, 3, 4].into_iter().flat_map(heard).collect(),
    take,
    longest: 32 * 1024,
    per_byte: 64,
    besides: 1 << 20,
};

/// What one peer heard in the recorded run, in parts that are not too long; each begins with who hears it.
fn heard(name: u8) -> Vec<Vec<u8>> {
    let (mut all, mut part, mut last) = (Vec::new(), vec![name], Time::ZERO);
    for delivered in recorded().0.into_iter().filter(|delivered| delivered.to == name) {
        let ticks = ((delivered.at - last).as_millis() / 10).min(255) as u8;
        let bytes = delivered.envelope.encode();
        last = delivered.at;
        part.extend([delivered.from, ticks]);
        part.extend((bytes.len() as u16).to_le_bytes());
        part.extend(bytes);
        if part.len() > 8 * 1024 {
            all.push(std::mem::replace(&mut part, vec![name]));
        }
    }
    all.truncate(6);
    all
}

fn take(bytes: &[u8]) -> bool {
    let Some((name, mut rest)) = bytes.split_first() else { return false };
    let mut now = Time::ZERO;
    let mut driven = if name % 4 == 1 { Driven::found(1) } else { Driven::join(2 + name % 3, now) };
    driven.obey(now);
    while let Some(([from, ticks, low, high], after)) = rest.split_first_chunk() {
        let length = usize::from(u16::from_le_bytes([*low, *high])).min(after.len());
        let (message, after) = after.split_at(length);
        rest = after;
        now = now + Duration::from_millis(10) * u32::from(*ticks);
        let before = driven.outputs;
        driven.pass(now);
        if let Ok(envelope) = Envelope::decode(message) {
            // Whatever it thinks of it.
            let _refused = driven.handle(now, Input::Received { from: peer(from % 8), envelope });
        }
        driven.says.clear();
        driven.records.clear();
        assert!(driven.outputs - before <= MOST_OUTPUTS, "one message has brought about {}", driven.outputs - before);
    }
    true
}
