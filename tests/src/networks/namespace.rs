//! A network namespace, held by a process.

use std::ffi::OsStr;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::processes::owned_child::OwnedChild;

/// Why there may be none.
pub(crate) const WHAT_THEY_NEED: &str =
    "can't make network namespaces (they need Linux, util-linux, iproute2, and root or user namespaces)";

/// A command that runs `program` where it may mount, and where what it mounts is seen by nobody else and goes with it;
/// none, if there is no such place here.
pub fn mounting(program: impl AsRef<OsStr>) -> Option<Command> {
    let enter = |program: &OsStr| {
        let mut command = Command::new("unshare");
        let is_root = fs::metadata("/proc/self").is_ok_and(|metadata| metadata.uid() == 0);
        command.args(if is_root { [].as_slice() } else { &["--user", "--map-root-user"] });
        command.args(["--mount", "--propagation", "private", "--"]).arg(program);
        command
    };
    let mut trial = enter(OsStr::new("mount"));
    trial.args(["-t", "tmpfs", "none"]).arg(std::env::temp_dir()).stdout(Stdio::null()).stderr(Stdio::null());
    trial.status().is_ok_and(|status| status.success()).then(|| enter(program.as_ref()))
}

/// One network namespace.
#[derive(Debug)]
pub(crate) struct Namespace {
    holder: OwnedChild,
    /// Whether it belongs to a user namespace of its own, as it must for those who aren't root.
    has_user: bool,
}

impl Namespace {
    /// The first one, of a user of its own where this one is not root.
    pub(crate) fn first() -> Result<Self> {
        let is_root = fs::metadata("/proc/self")?.uid() == 0;
        let user: &[&str] = if is_root { &[] } else { &["--user", "--map-root-user"] };
        let mut command = Command::new("unshare");
        command.args(user).args(["--net", "cat"]);
        Self::hold(command, !is_root)
    }

    /// Another one, of the same user.
    pub(crate) fn another(&self) -> Result<Self> {
        let mut command = if self.has_user {
            let mut command = Command::new("nsenter");
            command.args(["--target", &self.holder.id().to_string(), "--user", "--preserve-credentials", "unshare"]);
            command
        } else {
            Command::new("unshare")
        };
        command.args(["--net", "cat"]);
        Self::hold(command, self.has_user)
    }

    /// The process that holds it.
    pub(crate) fn id(&self) -> u32 {
        self.holder.id()
    }

    fn hold(mut command: Command, has_user: bool) -> Result<Self> {
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let holder = spawned.with_context(|| format!("can't start {command:?}"))?;
        let mut namespace = Self { holder: holder.into(), has_user };
        namespace.wait()?;
        Ok(namespace)
    }

    /// Waits until the holder has its namespace: `cat` answers only then.
    fn wait(&mut self) -> Result<()> {
        let (question, mut answer) = (*b"here", [0; 4]);
        // A holder that was not allowed to has ended: then there is no answer, and its reason is on stderr.
        let asked = self.holder.stdin.as_mut().context("piped")?.write_all(&question);
        let answered = self.holder.stdout.as_mut().context("piped")?.read_exact(&mut answer);
        if asked.is_err() || answered.is_err() {
            let mut reason = String::new();
            self.holder.stderr.as_mut().context("piped")?.read_to_string(&mut reason)?;
            bail!("{}", reason.trim());
        }
        Ok(())
    }

    /// What to put before a command to run it there.
    pub(crate) fn prefix(&self) -> Vec<String> {
        let id = self.holder.id().to_string();
        let user: &[&str] = if self.has_user { &["--user", "--preserve-credentials"] } else { &[] };
        let words = ["nsenter", "--target", &id].into_iter().chain(user.iter().copied()).chain(["--net", "--"]);
        words.map(str::to_owned).collect()
    }

    /// A command that runs there.
    pub(crate) fn command(&self, program: &str) -> Command {
        let prefix = self.prefix();
        let mut command = Command::new(&prefix[0]);
        command.args(&prefix[1..]).arg(program).stdin(Stdio::null());
        command
    }

    /// Runs a line of the shell there.
    pub(crate) fn sh(&self, script: &str) -> Result<()> {
        let output = self.command("sh").args(["-c", script]).output()?;
        if !output.status.success() {
            bail!("`{script}`: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(())
    }

    /// Runs lines of `ip` there.
    pub(crate) fn ip(&self, lines: &str) -> Result<()> {
        self.batch(&[], lines)
    }

    /// Runs lines of `ip -6` there.
    pub(crate) fn ip6(&self, lines: &str) -> Result<()> {
        self.batch(&["-6"], lines)
    }

    fn batch(&self, flags: &[&str], lines: &str) -> Result<()> {
        let mut command = self.command("ip");
        command.args(flags).args(["-batch", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().context("can't start ip (iproute2)")?;
        child.stdin.take().context("piped")?.write_all(lines.as_bytes())?;
        let output = child.wait_with_output()?;
        if !output.status.success() {
            bail!("`ip {}`: {}", lines.trim(), String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(())
    }
}
