//! What the kernel knows of a process.

use std::fs;

use anyhow::{Context, Result};

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
