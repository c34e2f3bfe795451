//! One `starling` process.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::binary;
use crate::networks::machine::Machine;
use crate::processes::feed::{Ear, Word};
use crate::processes::owned_child::OwnedChild;

/// How long any one thing may take. Generous: the machine is shared, and nothing is measured here.
const PATIENCE: Duration = Duration::from_secs(90);
/// How many events a failed wait prints, besides steps.
const CHANGES_TOLD: usize = 24;
/// Environment variable: flags that every peer gets, such as `-vv`, to look into a failure.
const EXTRA_FLAGS: &str = "STARLING_TEST_FLAGS";

/// A `starling` command that sees no user's configuration and works in `dir`.
pub fn starling(dir: &Path) -> Command {
    starling_behind(&[], dir)
}

/// The same behind other words, such as those that enter a namespace.
pub(crate) fn starling_behind(prefix: &[String], dir: &Path) -> Command {
    behind(prefix, dir, &binary())
}

fn behind(prefix: &[String], dir: &Path, program: &Path) -> Command {
    let words: Vec<PathBuf> = prefix.iter().map(PathBuf::from).chain([program.to_owned()]).collect();
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("STARLING_") {
            command.env_remove(name);
        }
    }
    // One thread of computing for each process: several share the machine.
    command.current_dir(dir).env("RAYON_NUM_THREADS", "1").env("XDG_DATA_HOME", dir).stdin(Stdio::null());
    command
}

/// What `starling audit` says of these files, which must be in order.
pub fn audit(files: impl IntoIterator<Item = PathBuf>) -> Value {
    let mut command = starling(Path::new("."));
    let output = command.args(["audit", "--json"]).args(files).output().expect("starling starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// What `starling checkpoint <verb>` says of a directory, and its exit code.
pub fn checkpoints(dir: &TempDir, verb: &str) -> (Vec<Value>, Option<i32>) {
    let mut command = starling(dir.path());
    command.args(["checkpoint", verb, "--json", "--data-dir"]).arg(dir.path().join("state"));
    let output = command.output().expect("it runs");
    let said: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    (said["checkpoints"].as_array().expect("a list").clone(), output.status.code())
}

/// The newest checkpoint that a directory has as stable.
pub fn newest_stable(dir: &TempDir) -> Value {
    let (list, _) = checkpoints(dir, "ls");
    list.into_iter().rfind(|checkpoint| checkpoint["stable"] == true).expect("a stable checkpoint")
}

/// The newest checkpoint that a directory has of the branch that goes on.
pub fn newest(dir: &TempDir) -> Value {
    let (list, _) = checkpoints(dir, "ls");
    list.into_iter().rfind(|checkpoint| checkpoint["put_aside"] == false).expect("a checkpoint")
}

/// What to put before a command, so that whatever happens to this process, the command's ends with it; `before` comes
/// between the two.
pub(crate) fn tied(before: impl IntoIterator<Item = String>) -> Vec<String> {
    ["setpriv", "--pdeathsig", "KILL"].map(str::to_owned).into_iter().chain(before).collect()
}

/// A standard input that brings this text and ends.
pub fn told(text: &str) -> Stdio {
    let (stdin, mut end) = std::io::pipe().expect("a pipe");
    end.write_all(text.as_bytes()).expect("a pipe holds more than a ticket");
    stdin.into()
}

/// How a peer is started.
#[derive(Debug, Clone)]
pub struct PeerOptions {
    /// Flags besides the fixture's own.
    pub flags: Vec<String>,
    /// Where to listen; where a node does by default, if it is not said. That is for [machines](crate::Machine) of their own.
    pub listen: Option<String>,
    /// What computes.
    pub device: &'static str,
    /// What to put before the command, to run it elsewhere or otherwise.
    pub prefix: Vec<String>,
    /// Who hears every event at once.
    pub ear: Option<Ear>,
}

impl Default for PeerOptions {
    fn default() -> Self {
        let listen = Some("/ip4/127.0.0.1/tcp/0".to_owned());
        Self { flags: Vec::new(), listen, device: "cpu", prefix: Vec::new(), ear: None }
    }
}

impl PeerOptions {
    /// The defaults with `flags`, separated by blanks.
    pub fn flags(flags: &str) -> Self {
        Self { flags: flags.split_whitespace().map(str::to_owned).collect(), ..Self::default() }
    }

    /// The same on the test's [own machine](Machine::own), which has several addresses, and where a peer listens by default.
    #[must_use]
    pub fn networked(flags: &str) -> Self {
        Machine::own().options(flags)
    }

    /// The same with one more flag and its value, which may hold blanks.
    #[must_use]
    pub fn with(mut self, flag: &str, value: impl AsRef<std::ffi::OsStr>) -> Self {
        self.flags.push(flag.to_owned());
        self.flags.push(value.as_ref().to_str().expect("test paths are text").to_owned());
        self
    }
}

/// What a process left behind.
#[derive(Debug)]
pub struct Outcome {
    /// Its exit status.
    pub status: ExitStatus,
    /// Its last event, if it printed any.
    pub last: Option<Value>,
    /// All its events, and how long after its start they were heard.
    pub events: Vec<(Duration, Value)>,
    /// All that it wrote to stderr.
    pub stderr: String,
}

impl Outcome {
    /// The last event, which must be the summary of a process that ended well.
    pub fn summary(&self) -> &Value {
        assert!(self.status.success(), "ended with {}: {}", self.status, self.stderr);
        let last = self.last.as_ref().expect("a last line");
        assert_eq!(last["event"], "finished", "{last}");
        last
    }

    /// The one line with which a process that failed must end, without a panic.
    pub fn error(&self) -> &str {
        assert!(!self.status.success(), "should have failed: {:?}", self.last);
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
        let errors: Vec<&str> = self.stderr.lines().filter(|line| line.starts_with("error: ")).collect();
        assert_eq!(errors.len(), 1, "one clear line, not: {}", self.stderr);
        errors[0]
    }
}

#[derive(Debug, Default)]
struct Output {
    events: Vec<(Duration, Value)>,
    ended: bool,
}

impl Output {
    /// What somebody who reads a failed test wants to see first: the last changes, and where it is.
    fn told(&self) -> String {
        let rare = |event: &&(Duration, Value)| event.1["event"] != "progress";
        let mut changes: Vec<_> = self.events.iter().filter(rare).rev().take(CHANGES_TOLD).collect();
        changes.reverse();
        let last = self.events.last();
        let lines = changes.into_iter().chain(last).map(|(at, event)| format!("{:.3} s: {event}", at.as_secs_f64()));
        lines.collect::<Vec<_>>().join("\n")
    }
}

/// A running `starling` process that prints JSON.
#[derive(Debug)]
pub struct Peer {
    child: OwnedChild,
    output: Arc<(Mutex<Output>, Condvar)>,
    readers: Vec<JoinHandle<()>>,
    stderr: Arc<Mutex<String>>,
    dir: Arc<TempDir>,
}

impl Peer {
    /// Starts `starling run` in a fresh directory.
    pub fn run(options: &PeerOptions) -> Self {
        Self::run_in(Arc::new(TempDir::new().expect("a temp dir")), options)
    }

    /// Starts `starling run` in a directory that an earlier peer may have used.
    pub fn run_in(dir: Arc<TempDir>, options: &PeerOptions) -> Self {
        Self::start(dir, &["run"], None, options)
    }

    /// Starts `starling join` with a ticket or an address.
    pub fn join(target: &str, options: &PeerOptions) -> Self {
        Self::join_in(Arc::new(TempDir::new().expect("a temp dir")), target, options)
    }

    /// Starts `starling join` in a directory that an earlier peer may have used.
    pub fn join_in(dir: Arc<TempDir>, target: &str, options: &PeerOptions) -> Self {
        // An address is no secret.
        let (argument, ticket) = if target.starts_with('/') { (target, None) } else { ("-", Some(target)) };
        Self::start(dir, &["join", argument], ticket, options)
    }

    /// Starts `starling keep` with a ticket, in a directory that an earlier one may have used.
    pub fn keep_in(dir: Arc<TempDir>, ticket: &str, options: &PeerOptions) -> Self {
        Self::start(dir, &["keep", "-"], Some(ticket), options)
    }

    /// Starts the example `own_model` in a directory that an earlier one may have used: to found a run of so many steps, or to join
    /// one by its ticket.
    pub fn own_model_in(dir: Arc<TempDir>, what: &str) -> Self {
        Self::program_in(dir, &crate::built("examples/own_model"), what)
    }

    /// Starts a program of a user, which takes a directory, and what it is to do there.
    pub fn program_in(dir: Arc<TempDir>, program: &Path, what: &str) -> Self {
        let mut command = behind(&[], dir.path(), program);
        command.arg(dir.path().join("state")).arg(what);
        Self::spawn(dir, command, None)
    }

    fn start(dir: Arc<TempDir>, verb: &[&str], ticket: Option<&str>, options: &PeerOptions) -> Self {
        let mut command = starling_behind(&options.prefix, dir.path());
        command.args(verb).args(["--json", "--show-ticket"]);
        if let Some(ticket) = ticket {
            command.stdin(told(ticket));
        }
        if let Some(listen) = &options.listen {
            command.args(["--listen", listen]);
        }
        if verb[0] != "keep" {
            command.args(["--device", options.device]);
        }
        command.arg("--data-dir").arg(dir.path().join("state")).args(&options.flags);
        command.args(std::env::var(EXTRA_FLAGS).unwrap_or_default().split_whitespace());
        Self::spawn(dir, command, options.ear.clone())
    }

    fn spawn(dir: Arc<TempDir>, mut command: Command, ear: Option<Ear>) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        let output = Arc::new((Mutex::new(Output::default()), Condvar::new()));
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        let (events, began) = (output.clone(), Instant::now());
        let read_events = std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let event: Value =
                    serde_json::from_str(&line).unwrap_or_else(|error| panic!("not JSON ({error}): {line}"));
                if let Some(ear) = &ear {
                    ear.hear(Word::Said(event.clone()));
                }
                lock(&events.0).events.push((began.elapsed(), event));
                events.1.notify_all();
            }
            lock(&events.0).ended = true;
            events.1.notify_all();
            if let Some(ear) = &ear {
                ear.hear(Word::Ended);
            }
        });
        let stderr = Arc::new(Mutex::new(String::new()));
        let (pipe, text) = (BufReader::new(child.stderr.take().expect("piped")), stderr.clone());
        let read_stderr = std::thread::spawn(move || {
            // A pipe that breaks ends the text; what came until then counts.
            for line in pipe.split(b'\n').map_while(Result::ok) {
                lock(&text).push_str(&(String::from_utf8_lossy(&line) + "\n"));
            }
        });
        Self { child: child.into(), output, readers: vec![read_events, read_stderr], stderr, dir }
    }

    /// The directory that the process works in. Kept until the last fixture that uses it is dropped.
    pub fn dir(&self) -> Arc<TempDir> {
        self.dir.clone()
    }

    /// The process's data directory.
    pub fn data_dir(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    /// The process's number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether the process has come to its end: nobody has waited for it yet, so it is a zombie (proc(5), stat).
    pub fn has_ended(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).expect("it is our child");
        stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z'))
    }

    /// What it holds in memory now, and what it has held at most since this was last asked, in bytes.
    pub fn memory(&self) -> [u64; 2] {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("it runs");
        // From here on the most counts anew (proc(5), clear_refs).
        std::fs::write(format!("/proc/{}/clear_refs", self.pid()), "5").expect("it is ours");
        ["VmRSS:", "VmHWM:"].map(|name| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("the system tells");
            line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
        })
    }

    /// Where it listens with this protocol, `tcp` or `udp`.
    pub fn place(&self, protocol: &str) -> SocketAddr {
        let event = self.wait_for("an address", |event| event["event"] == "listening");
        let addresses = event["addresses"].as_array().expect("a list").iter().filter_map(Value::as_str);
        let places = addresses.filter_map(|address| {
            let mut parts = address.split('/').skip(2);
            let (ip, kind, port) = (parts.next()?, parts.next()?, parts.next()?);
            (kind == protocol).then(|| format!("{ip}:{port}").parse().expect("an address and a port"))
        });
        places.into_iter().next().expect("it listens so")
    }

    /// What it wrote to stderr so far.
    pub fn stderr(&self) -> String {
        lock(&self.stderr).clone()
    }

    /// Waits for the first event that `wanted` accepts, counting those that came before.
    pub fn wait_for(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + PATIENCE;
        let mut output = lock(&self.output.0);
        loop {
            if let Some(event) = output.events.iter().map(|(_, event)| event).find(|event| wanted(event)) {
                return event.clone();
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let why = if output.ended { "ended without" } else { "had in time no" };
            assert!(
                !output.ended && !left.is_zero(),
                "{why} {what}; its last events:\n{}\nstderr: {}",
                output.told(),
                lock(&self.stderr)
            );
            output = self.output.1.wait_timeout(output, left).expect("no reader panicked").0;
        }
    }

    /// The ticket that the process printed.
    pub fn ticket(&self) -> String {
        let event = self.wait_for("a ticket", |event| event["event"] == "listening");
        event["ticket"].as_str().expect("a string").to_owned()
    }

    /// The first address that the process printed.
    pub fn address(&self) -> String {
        let event = self.wait_for("an address", |event| event["event"] == "listening");
        event["addresses"][0].as_str().expect("a string").to_owned()
    }

    /// The process's peer id.
    pub fn id(&self) -> String {
        let event = self.wait_for("its start", |event| event["event"] == "started" || event["event"] == "keeping");
        event["peer"].as_str().expect("a string").to_owned()
    }

    /// All that it has told so far.
    pub fn told(&self) -> Vec<Value> {
        lock(&self.output.0).events.iter().map(|(_, event)| event.clone()).collect()
    }

    /// The newest step that it has told of.
    pub fn reached(&self) -> u64 {
        let output = lock(&self.output.0);
        output
            .events
            .iter()
            .rev()
            .find_map(|(_, event)| (event["event"] == "progress").then(|| event["step"].as_u64())?)
            .unwrap_or(0)
    }

    /// Waits until the process steps in a view of `members`.
    pub fn wait_for_view(&self, members: usize) -> Value {
        self.wait_for(&format!("a view of {members}"), |event| {
            event["event"] == "view" && event["members"].as_array().is_some_and(|list| list.len() == members)
        })
    }

    /// Waits for a view of so many members, all of which have a vote: from then on a minority of them may be lost.
    pub fn wait_for_votes(&self, members: usize) -> Value {
        self.wait_for(&format!("a view of {members} that all vote"), |event| {
            let count = |field: &str| event[field].as_array().map(Vec::len);
            event["event"] == "view" && count("members") == Some(members) && count("newcomers") == Some(0)
        })
    }

    /// Waits until the process has committed `step`, and returns the first one from there on of which it told.
    pub fn wait_for_step(&self, step: u64) -> u64 {
        let event = self.wait_for(&format!("step {step}"), |event| {
            event["event"] == "progress" && event["step"].as_u64().is_some_and(|reached| reached >= step)
        });
        event["step"].as_u64().expect("it has reached a step")
    }

    /// Sends a signal by its name, as `kill` knows it.
    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status();
        assert!(status.expect("kill runs").success(), "could not send {name}");
    }

    /// Waits for the end of the process.
    pub fn finish(mut self) -> Outcome {
        let deadline = Instant::now() + PATIENCE;
        let mut output = lock(&self.output.0);
        while !output.ended {
            let left = deadline.saturating_duration_since(Instant::now());
            let (last, stderr) = (output.events.last(), lock(&self.stderr));
            assert!(!left.is_zero(), "still running after {PATIENCE:?}; last event {last:?}; stderr: {stderr}");
            drop(stderr);
            output = self.output.1.wait_timeout(output, left).expect("no reader panicked").0;
        }
        let events = std::mem::take(&mut output.events);
        let last = events.last().map(|(_, event)| event.clone());
        drop(output);
        let status = self.child.wait().expect("the child is ours");
        for reader in self.readers {
            reader.join().expect("no reader panicked");
        }
        let stderr = lock(&self.stderr).clone();
        Outcome { status, last, events, stderr }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
