//! A member of a benchmark, as the benchmark sees it: a child process that is asked and answers.

use std::io;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::error::BenchError;
use super::wire::{Answer, Ask};

/// What follows the verb on a member's command line.
const MEMBER: [&str; 2] = ["bench", "member"];

/// A running member. Dropping it ends it.
pub(super) struct Process {
    index: usize,
    /// Held so that it dies with this.
    _child: Child,
    stdin: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Process {
    /// Starts this binary once more. What it complains about goes to our own stderr.
    pub(super) fn start(index: usize) -> Result<Self, BenchError> {
        let spawn = || {
            let mut command = Command::new(std::env::current_exe()?);
            command.args(MEMBER).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
            let mut child = command.spawn()?;
            let missing = || io::Error::other("the child has no pipe");
            let stdin = child.stdin.take().ok_or_else(missing)?;
            let stdout = child.stdout.take().ok_or_else(missing)?;
            Ok(Self { index, _child: child, stdin, answers: BufReader::new(stdout).lines() })
        };
        spawn().map_err(BenchError::io("start a member"))
    }

    pub(super) async fn ask(&mut self, ask: &Ask) -> Result<(), BenchError> {
        let mut line = serde_json::to_vec(ask).expect("invariant: what is asked is plain data");
        line.push(b'\n');
        // A pipe that closes is the end of the member, whatever the system calls it.
        self.stdin.write_all(&line).await.map_err(|_| BenchError::Member(self.index))
    }

    /// Waits for the next answer.
    pub(super) async fn answer(&mut self, limit: Duration) -> Result<Answer, BenchError> {
        let line = tokio::time::timeout(limit, self.answers.next_line()).await;
        let line = line.map_err(|_| BenchError::Silent { member: self.index, seconds: limit.as_secs() })?;
        let line = line.ok().flatten().ok_or(BenchError::Member(self.index))?;
        serde_json::from_str(&line).map_err(|error| BenchError::Talk(error.to_string()))
    }
}
