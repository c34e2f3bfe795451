//! What the kernel knows of a process.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, bail};

/// Ports below those that the system hands out (32768 and up, where nobody has changed that).
const FIXED: Range<u16> = 15_000..32_000;

/// Resident memory of a process, in KiB.
///
/// # Errors
/// If it has gone.
pub(super) fn resident_kib(pid: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS in /proc/PID/status")?;
    line.split_whitespace().next().and_then(|number| number.parse().ok()).context("VmRSS is not a number")
}

/// Processor time that a process has used, in clock ticks (hundredths of a second on Linux).
///
/// # Errors
/// If it has gone.
pub(super) fn cpu_ticks(pid: u32) -> Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The second field is the program's name in parentheses, which may hold anything.
    let (_, fields) = stat.rsplit_once(')').context("no name in /proc/PID/stat")?;
    let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
    ticks.sum::<Result<u64, _>>().context("utime and stime in /proc/PID/stat")
}

/// A free port of the loopback interface, for somebody who has it now and then, and needs it again each time.
///
/// The system gives none of these to who asks for any port, nor to connections that go out: what is free stays so while its
/// process is dead. Of two programs, each begins elsewhere.
///
/// # Errors
/// If there is none.
pub(super) fn free_port() -> Result<u16> {
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    let (first, count) = (FIXED.start, u32::from(FIXED.end - FIXED.start));
    let begin = std::process::id().wrapping_mul(101);
    for _ in 0..count {
        let at = begin.wrapping_add(TAKEN.fetch_add(1, Ordering::Relaxed)) % count;
        let port = first + u16::try_from(at).context("within the range")?;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no port of {FIXED:?} is free")
}
