//! Ports for processes that come back to them.

use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, bail};

/// Ports below those that the system hands out (32768 and up, where nobody has changed that).
const FIXED: Range<u16> = 15_000..32_000;

/// A free port of the loopback interface, for somebody who has it now and then, and needs it again each time.
///
/// The system gives none of these to who asks for any port, nor to connections that go out: what is free stays so while its
/// process is dead. Of two programs, each begins elsewhere.
///
/// # Errors
/// If there is none.
pub fn free_port() -> Result<u16> {
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
