//! What this machine could do, by what each byte of a link costs it at least.

use std::thread;

use serde::Serialize;
use starling::Transport;
use starling_node::reducer::bench::WireCost;

/// What this machine could do for one plan.
#[derive(Debug, Clone, Serialize)]
pub struct Bound {
    /// The least time that one round can take: all members' work, spread over the cores without a gap.
    pub seconds: f64,
    /// How many cores can share the work: a member sends on one and receives on another.
    pub cores: u32,
    /// The least processor time of all members.
    pub cpu_s: f64,
    /// What it is made of.
    pub reason: String,
}

impl Bound {
    /// For `peers` members, each of which sends and receives `wire_bytes`.
    pub(super) fn new(floor: &WireCost, transport: Transport, peers: u32, wire_bytes: f64) -> Self {
        let mut parts = vec![("copying and adding", floor.copy + floor.add)];
        match transport {
            Transport::Direct | Transport::Universal => {
                parts.extend([("sockets", floor.socket), ("the cipher", floor.cipher)]);
            }
            Transport::Plaintext => parts.push(("sockets", floor.socket)),
            // Into the memory and out of it again.
            Transport::Local => parts.push(("shared memory", floor.copy)),
        }
        let each: f64 = parts.iter().map(|(_, seconds)| seconds).sum();
        let cpu_s = each * wire_bytes * f64::from(peers);
        let available = thread::available_parallelism().map_or(1, usize::from);
        let cores = u32::try_from(available).unwrap_or(u32::MAX).min(2 * peers);
        let share = |(name, seconds): &(&str, f64)| format!("{name} {:.0} %", seconds / each * 100.0);
        let reason = parts.iter().map(share).collect::<Vec<_>>().join(", ");
        Self { seconds: cpu_s / f64::from(cores), cores, cpu_s, reason }
    }
}
