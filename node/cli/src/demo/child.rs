//! One peer of a demo: a process, what it reports, what it complains about.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use starling::Report;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{self, ChildStderr, ChildStdout, Command};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::Plan;
use super::tail::Tail;

/// The longest line of JSON that is read, in bytes.
const MAX_LINE: u64 = 1 << 20;
/// How much of a child's stderr is kept, in bytes.
const KEPT_ERRORS: usize = 64 * 1024;
/// How long the rest of a dead child's stderr may take to arrive.
const REST_LIMIT: Duration = Duration::from_secs(2);

/// Large enough that a step takes a few milliseconds.
const MODEL: &str = "mlp:128,128";
const BATCH_SIZE: &str = "256";

/// Where peer `index` writes who contributed what.
pub(super) fn audit_file(root: &Path, index: usize) -> PathBuf {
    root.join(format!("peer-{index}")).join("audit.jsonl")
}

/// What a child does.
pub(super) enum Event {
    /// It reported.
    Report(Box<Report>),
    /// It closed its stdout, which it does when it ends.
    Ended,
}

/// A running peer. Dropping it kills it.
pub(super) struct Child {
    process: process::Child,
    errors: Arc<Mutex<Tail>>,
    error_reader: JoinHandle<()>,
}

impl Child {
    /// Starts peer `index`: the founder if there is no ticket. It works in its own folder under `root`, and nothing of
    /// this user's configuration reaches it.
    pub(super) fn start(
        index: usize,
        plan: &Plan,
        root: &Path,
        ticket: Option<&str>,
        events: mpsc::Sender<(usize, Event)>,
    ) -> io::Result<Self> {
        let dir = root.join(format!("peer-{index}"));
        std::fs::create_dir(&dir)?;
        let mut command = Command::new(std::env::current_exe()?);
        match ticket {
            None => command
                .args(["run", "--min-peers", &plan.min_peers().to_string()])
                .args(["--steps", &plan.steps.to_string()])
                .args(["--model", MODEL, "--batch-size", BATCH_SIZE])
                .args(["--max-peers", &(plan.peers + 1).to_string()]),
            Some(_) if plan.is_leaf(index) => command.args(["join", "-", "--role", "leaf"]),
            Some(_) => command.args(["join", "-"]),
        };
        command
            .args(["--json", "--show-ticket"])
            .args(["--name", &format!("peer {index}")])
            .args(["--device", &plan.device]);
        command.arg("--data-dir").arg(&dir).arg("--audit").arg(audit_file(root, index));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("STARLING_") {
                command.env_remove(name);
            }
        }
        // All peers share this machine's cores.
        command.env("RAYON_NUM_THREADS", "1").current_dir(&dir);
        // A ticket is shorter than what a pipe holds, so this does not wait.
        let (stdin, mut told) = io::pipe()?;
        told.write_all(ticket.unwrap_or_default().as_bytes())?;
        drop(told);
        command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        // Ctrl-C in the terminal is for the demo, which then ends its children by itself.
        #[cfg(unix)]
        command.process_group(0);
        let mut process = command.spawn()?;
        let missing = || io::Error::other("the child has no pipe");
        let stdout = process.stdout.take().ok_or_else(missing)?;
        let stderr = process.stderr.take().ok_or_else(missing)?;
        let errors = Arc::new(Mutex::new(Tail::new(KEPT_ERRORS)));
        tokio::spawn(read_reports(index, stdout, events));
        let error_reader = tokio::spawn(read_errors(stderr, Arc::clone(&errors)));
        Ok(Self { process, errors, error_reader })
    }

    /// Waits until it is over, and all it wrote is read.
    pub(super) async fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.process.wait().await?;
        // What it wrote last is on its way; if it does not come, the status still counts.
        let _ = tokio::time::timeout(REST_LIMIT, &mut self.error_reader).await;
        Ok(status)
    }

    /// Ends it at once, if it still runs, and waits until it is gone.
    pub(super) async fn kill(&mut self) {
        if let Err(error) = self.process.kill().await {
            tracing::warn!(%error, "can't kill a child");
        }
    }

    /// The last lines of its stderr.
    pub(super) fn last_errors(&self, count: usize) -> Vec<String> {
        // A lock poisoned by a panic elsewhere still guards sound data.
        self.errors.lock().unwrap_or_else(PoisonError::into_inner).lines(count)
    }
}

async fn read_reports(index: usize, stdout: ChildStdout, events: mpsc::Sender<(usize, Event)>) {
    let mut reader = BufReader::new(stdout);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = (&mut reader).take(MAX_LINE).read_until(b'\n', &mut line).await;
        let event = match read {
            Ok(0) | Err(_) => Event::Ended,
            Ok(_) => match serde_json::from_slice(&line) {
                Ok(report) => Event::Report(Box::new(report)),
                Err(error) => {
                    tracing::debug!(index, %error, "a line that is no report");
                    continue;
                }
            },
        };
        let is_last = matches!(event, Event::Ended);
        if events.send((index, event)).await.is_err() || is_last {
            return;
        }
    }
}

async fn read_errors(mut stderr: ChildStderr, errors: Arc<Mutex<Tail>>) {
    let mut buffer = vec![0; 8192];
    while let Ok(count @ 1..) = stderr.read(&mut buffer).await {
        errors.lock().unwrap_or_else(PoisonError::into_inner).push(&buffer[..count]);
    }
}
