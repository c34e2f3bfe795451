//! Telling whether a process still lives.

use serde::{Deserialize, Serialize};

/// A process, told apart from later ones that got its number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// When it started, in the system's own unit; `None` where that is not known.
    pub started: Option<u64>,
}

impl Process {
    /// This process.
    pub fn this() -> Self {
        let pid = std::process::id();
        Self { pid, started: stat(pid).ok().and_then(|stat| stat.started) }
    }

    /// Whether it runs; `None` if this system does not tell.
    pub fn is_alive(self) -> Option<bool> {
        match stat(self.pid) {
            Ok(stat) if stat.is_dead => Some(false),
            Ok(stat) => Some(self.started.is_none() || self.started == stat.started),
            Err(is_gone) => is_gone.then_some(false),
        }
    }
}

/// What `/proc/<pid>/stat` says.
struct Stat {
    /// It has ended, and only waits for its parent to notice.
    is_dead: bool,
    started: Option<u64>,
}

/// Or else whether there is surely no such process.
#[cfg(target_os = "linux")]
fn stat(pid: u32) -> Result<Stat, bool> {
    let text = match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(text) => text,
        // Without /proc itself, a missing file says nothing.
        Err(_) => return Err(std::path::Path::new("/proc/self/stat").exists()),
    };
    // proc(5): the second field is the name in parentheses, which may hold anything; the third is the state, the 22nd
    // the start time.
    let (_, fields) = text.rsplit_once(')').ok_or(false)?;
    let mut fields = fields.split_whitespace();
    let is_dead = fields.next().is_some_and(|state| state == "Z" || state == "X");
    Ok(Stat { is_dead, started: fields.nth(18).and_then(|field| field.parse().ok()) })
}

#[cfg(not(target_os = "linux"))]
fn stat(_pid: u32) -> Result<Stat, bool> {
    Err(false)
}
