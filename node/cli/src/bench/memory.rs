//! How much memory members take at most while they train.

use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde::Serialize;
use starling::Report;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::task::JoinSet;

use super::error::BenchError;
use crate::output::format;

/// A model with next to no parameters: what its members take is what any take.
const LEAST_MODEL: &str = "softmax";
/// How often the system is asked. What a process has taken at most it remembers, so that only its last moments are missed.
const LOOK: Duration = Duration::from_millis(10);
/// How long a member may say nothing.
const SILENCE_LIMIT: Duration = Duration::from_secs(600);

/// What is measured.
#[derive(Debug, Clone)]
pub struct MemoryPlan {
    /// The model that is trained.
    pub model: String,
    /// How many members train it.
    pub peers: u32,
    /// For how many steps.
    pub steps: u64,
    /// What else `starling run` is told.
    pub flags: Vec<String>,
}

/// What `starling bench memory` prints. Sizes are in bytes.
#[derive(Debug, Clone, Serialize)]
pub struct MemoryOutcome {
    /// The model.
    pub model: String,
    /// How many parameters it has.
    pub parameters: u64,
    /// How many members trained it.
    pub peers: u32,
    /// The most that a member has taken at a time, of those with the least model.
    pub base_bytes: u64,
    /// The same of those with this model.
    pub peak_bytes: u64,
    /// By how much that is more for each of the parameters.
    pub per_parameter: f64,
    /// Samples of all members a second.
    pub samples_per_s: f64,
}

/// Trains the model, and the least one, in processes of their own.
///
/// # Errors
/// [`BenchError`] if a member fails, or the system does not tell what it takes. No member is left behind.
pub async fn memory(plan: &MemoryPlan) -> Result<MemoryOutcome, BenchError> {
    let base = train(LEAST_MODEL, plan).await?;
    let trained = train(&plan.model, plan).await?;
    let more = trained.peak_bytes.saturating_sub(base.peak_bytes);
    Ok(MemoryOutcome {
        model: plan.model.clone(),
        parameters: trained.parameters,
        peers: plan.peers,
        base_bytes: base.peak_bytes,
        peak_bytes: trained.peak_bytes,
        per_parameter: more as f64 / trained.parameters.max(1) as f64,
        samples_per_s: trained.samples_per_s,
    })
}

impl MemoryOutcome {
    /// For people.
    pub fn describe(&self) -> String {
        format!(
            "{}, {} parameters, {}: {} at most, {} of them without a model: {:.2} bytes per parameter, {:.2} times its own four\n\
             {}\n",
            self.model,
            format::thousands(self.parameters),
            format::members(self.peers as usize),
            format::bytes(self.peak_bytes),
            format::bytes(self.base_bytes),
            self.per_parameter,
            self.per_parameter / 4.0,
            format::rate(self.samples_per_s),
        )
    }
}

/// What members have told, and taken.
#[derive(Debug, Default)]
struct Trained {
    parameters: u64,
    peak_bytes: u64,
    samples_per_s: f64,
}

async fn train(model: &str, plan: &MemoryPlan) -> Result<Trained, BenchError> {
    let dir = tempfile::tempdir().map_err(BenchError::io("make a folder for its members"))?;
    let mut founder = Member::start(0, dir.path(), &founding(model, plan), "").await?;
    let ticket = founder.ticket().await?;
    let mut members = JoinSet::new();
    members.spawn(founder.finish());
    for index in 1..plan.peers as usize {
        let member = Member::start(index, dir.path(), &["join".to_owned(), "-".to_owned()], &ticket).await?;
        members.spawn(member.finish());
    }
    let mut all = Trained::default();
    while let Some(ended) = members.join_next().await {
        let Trained { parameters, peak_bytes, samples_per_s } =
            ended.map_err(|_| BenchError::Talk("a thread that watched a member ended".to_owned()))??;
        all.parameters = parameters;
        all.peak_bytes = all.peak_bytes.max(peak_bytes);
        all.samples_per_s = all.samples_per_s.max(samples_per_s);
    }
    Ok(all)
}

/// The words behind `starling` of who founds the run.
fn founding(model: &str, plan: &MemoryPlan) -> Vec<String> {
    let own = ["run", "--model", model, "--min-peers", &plan.peers.to_string(), "--steps", &plan.steps.to_string()];
    own.map(str::to_owned).into_iter().chain(plan.flags.iter().cloned()).collect()
}

/// A process of this binary that trains. Dropping it ends it.
struct Member {
    index: usize,
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    told: Trained,
}

impl Member {
    /// Nothing of this user's configuration reaches it. What it complains about goes to our own stderr.
    async fn start(index: usize, root: &Path, words: &[String], ticket: &str) -> Result<Self, BenchError> {
        let dir = root.join(index.to_string());
        let spawn = || {
            std::fs::create_dir(&dir)?;
            let mut command = Command::new(std::env::current_exe()?);
            command.args(words).args(["--json", "--show-ticket"]).arg("--data-dir").arg(dir.join("state"));
            for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("STARLING_")) {
                command.env_remove(name);
            }
            let mut child =
                command.current_dir(&dir).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
            let missing = || io::Error::other("the child has no pipe");
            let stdin = child.stdin.take().ok_or_else(missing)?;
            let lines = BufReader::new(child.stdout.take().ok_or_else(missing)?).lines();
            Ok((stdin, Self { index, child, lines, told: Trained::default() }))
        };
        let (mut stdin, member) = spawn().map_err(BenchError::io("start a member"))?;
        stdin.write_all(ticket.as_bytes()).await.map_err(|_| BenchError::Member(index))?;
        Ok(member)
    }

    /// The ticket for others.
    async fn ticket(&mut self) -> Result<String, BenchError> {
        loop {
            match self.report().await? {
                Some(Report::Listening { ticket, .. }) => return Ok(ticket),
                Some(_) => {}
                None => return Err(BenchError::Member(self.index)),
            }
        }
    }

    /// Watches it until it has ended well.
    async fn finish(mut self) -> Result<Trained, BenchError> {
        while self.report().await?.is_some() {}
        let ended = self.child.wait().await.map_err(BenchError::io("wait for a member"))?;
        if ended.success() { Ok(self.told) } else { Err(BenchError::Member(self.index)) }
    }

    /// What it tells next; `None` at its end.
    async fn report(&mut self) -> Result<Option<Report>, BenchError> {
        let mut silence = Duration::ZERO;
        loop {
            match tokio::time::timeout(LOOK, self.lines.next_line()).await {
                Err(_) if silence > SILENCE_LIMIT => {
                    return Err(BenchError::Silent { member: self.index, seconds: SILENCE_LIMIT.as_secs() });
                }
                Err(_) => {
                    silence += LOOK;
                    self.look()?;
                }
                Ok(line) => {
                    let Some(line) = line.map_err(BenchError::io("read what a member says"))? else { return Ok(None) };
                    let report = self.read(&line)?;
                    match &report {
                        Report::Started { parameters, .. } => self.told.parameters = *parameters as u64,
                        Report::Finished(summary) => self.told.samples_per_s = summary.samples_per_s,
                        _ => {}
                    }
                    return Ok(Some(report));
                }
            }
        }
    }

    /// A line of what it tells. The last one of a member that fails is no report.
    fn read(&self, line: &str) -> Result<Report, BenchError> {
        let told: serde_json::Value =
            serde_json::from_str(line).map_err(|error| BenchError::Talk(error.to_string()))?;
        match told["error"].as_str().filter(|_| told["event"] == "failed") {
            Some(error) => Err(BenchError::Failed { member: self.index, error: error.to_owned() }),
            None => serde_json::from_value(told).map_err(|error| BenchError::Talk(error.to_string())),
        }
    }

    /// Takes down the most that it has taken so far.
    fn look(&mut self) -> Result<(), BenchError> {
        let Some(pid) = self.child.id() else { return Ok(()) };
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"));
        let status = status.map_err(BenchError::io("ask the system for a member's memory"))?;
        // A process that has ended has none.
        let kib = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.strip_suffix("kB")?.trim().parse().ok());
        self.told.peak_bytes = self.told.peak_bytes.max(kib.unwrap_or(0_u64) << 10);
        Ok(())
    }
}
