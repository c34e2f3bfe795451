//! Programs that train in their own way: the example, in processes of its own.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use starling_tests::{OwnedChild, binary, starling};
use tempfile::TempDir;

/// How long any one thing may take. Generous: the machine is shared, and nothing is measured here.
const PATIENCE: Duration = Duration::from_secs(90);
/// Lines that wait to be looked at; one example prints fewer.
const MAX_LINES: usize = 1024;

struct Example {
    child: OwnedChild,
    lines: Receiver<String>,
}

impl Example {
    fn start(args: &[&str]) -> Self {
        let program = binary().with_file_name("examples").join(format!("all_reduce{}", std::env::consts::EXE_SUFFIX));
        let mut command = Command::new(&program);
        command
            .args(args)
            .env("STARLING_NETWORK_LISTEN", "/ip4/127.0.0.1/tcp/0")
            .stdout(Stdio::piped())
            .stdin(Stdio::null());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("can't start {}: {error}", program.display()));
        let stdout = BufReader::new(child.stdout.take().expect("it is piped"));
        let (heard, lines) = sync_channel(MAX_LINES);
        std::thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| heard.send(line)));
        Self { child: child.into(), lines }
    }

    /// The rest of the first line that begins so.
    fn wait_for(&self, start: &str) -> String {
        loop {
            let line = self.lines.recv_timeout(PATIENCE);
            let line = line.unwrap_or_else(|error| panic!("no line begins with `{start}`: {error}"));
            if let Some(rest) = line.strip_prefix(start) {
                return rest.to_owned();
            }
        }
    }
}

fn path(dir: &TempDir, name: &str) -> String {
    dir.path().join(name).display().to_string()
}

#[test]
fn they_go_on_with_one_mean_when_one_of_them_is_killed() {
    let dir = TempDir::new().expect("a temp dir");
    let founder = Example::start(&["found", &path(&dir, "first")]);
    let ticket = founder.wait_for("ticket: ");
    let second = Example::start(&["join", &path(&dir, "second"), &ticket]);
    let mut third = Example::start(&["join", &path(&dir, "third"), &ticket]);
    while !third.wait_for("round ").contains("the mean of 3,") {}
    third.child.kill().expect("killed");
    let refused = trainer(dir.path(), &ticket);
    assert!(refused.contains("trains no model") && refused.contains("Swarm::join"), "{refused}");
    while !founder.wait_for("round ").contains("the mean of 2,") {}
    assert_eq!(founder.wait_for("found "), second.wait_for("found "), "both hold the same bits");
}

/// What `starling join` says.
fn trainer(dir: &Path, ticket: &str) -> String {
    let output = starling(dir).args(["join", ticket, "--device", "cpu"]).output().expect("starling starts");
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned()
}
