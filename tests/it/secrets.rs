//! What other users of a machine may see of a run: nothing that lets them in, and no file.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use starling_tests::{OwnedChild, Peer, PeerOptions, starling};
use tempfile::TempDir;

const LISTEN: [&str; 6] = ["--device", "cpu", "--listen", "/ip4/127.0.0.1/tcp/0", "--data-dir", "state"];

/// So long is what tickets begin with.
const TAG: usize = "starling1".len();

/// A joiner that says where it listens, and what it said until then.
fn listening(command: &mut Command) -> (OwnedChild, BufReader<std::process::ChildStdout>, String) {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starling starts");
    let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
    let mut said = String::new();
    while !said.contains("\"listening\"") {
        assert!(stdout.read_line(&mut said).expect("text") > 0, "it ended: {said}");
    }
    (child.into(), stdout, said)
}

/// All that lies in a folder, itself first.
fn everything(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("read").path());
    let inside = entries.flat_map(|path| if path.is_dir() { everything(&path) } else { vec![path] });
    std::iter::once(folder.to_owned()).chain(inside).collect()
}

fn is_open(path: &Path) -> bool {
    std::fs::metadata(path).expect("it is there").permissions().mode() & 0o077 != 0
}

#[test]
fn no_argument_file_report_or_log_tells_a_secret() {
    let founder = Peer::run(&PeerOptions::flags("--min-peers 2 --steps 200 --checkpoint-every 20"));
    let (ticket, dir) = (founder.ticket(), TempDir::new().expect("a temp dir"));
    // A directory that was made beforehand, as shells make them.
    let state = dir.path().join("state");
    std::fs::create_dir(&state).expect("made");
    std::fs::set_permissions(&state, std::fs::Permissions::from_mode(0o755)).expect("set");
    let keys = dir.path().join("keys");
    let mut command = starling(dir.path());
    command.args(["join", &ticket, "--json", "-vvv", "--export", "model.safetensors"]).args(LISTEN);
    let (mut joiner, mut stdout, mut said) = listening(command.env("SSLKEYLOGFILE", &keys));
    let arguments = std::fs::read(format!("/proc/{}/cmdline", joiner.id())).expect("it runs");
    let arguments = String::from_utf8_lossy(&arguments).replace('\0', " ");
    assert!(arguments.contains("join - --json") && !arguments.contains(&ticket), "{arguments}");
    let listed = Command::new("ps").args(["-eo", "args"]).output();
    // Where there is a `ps`, it shows no more than the system does.
    assert!(listed.is_err() || !String::from_utf8_lossy(&listed.expect("it ran").stdout).contains(&ticket));
    let read_errors = {
        let mut stderr = joiner.stderr.take().expect("piped");
        std::thread::spawn(move || {
            let mut text = String::new();
            stderr.read_to_string(&mut text).map(|_| text)
        })
    };
    stdout.read_to_string(&mut said).expect("text");
    let errors = read_errors.join().expect("read").expect("text");
    assert!(joiner.wait().expect("it ends").success(), "{errors}");
    founder.finish().summary();
    assert!(said.contains("\"finished\"") && errors.contains("DEBUG"), "{said}{errors}");
    for text in [said, errors] {
        assert!(!text.contains(&ticket[..TAG]), "a ticket in {text}");
    }
    assert!(!keys.exists(), "TLS wrote its keys down");
    let open: Vec<PathBuf> = everything(&state).into_iter().filter(|path| is_open(path)).collect();
    assert!(open.is_empty(), "others may read {open:?}");
    let files = everything(&state).len();
    assert!(files > 8, "keys, records and checkpoints were looked at, not {files} things");
    // What the user asked for is the user's to share.
    assert!(is_open(&dir.path().join("model.safetensors")));
}

#[test]
fn a_ticket_comes_by_a_file_or_a_variable() {
    let founder = Peer::run(&PeerOptions::flags("--min-peers 3 --steps 20"));
    let ticket = founder.ticket();
    let dirs = [(); 2].map(|()| TempDir::new().expect("a temp dir"));
    std::fs::write(dirs[0].path().join("ticket"), format!("{ticket}\n")).expect("written");
    let mut by_file = starling(dirs[0].path());
    by_file.args(["join", "--ticket-file", "ticket", "--json"]).args(LISTEN);
    let mut by_variable = starling(dirs[1].path());
    by_variable.args(["join", "--json"]).args(LISTEN).env("STARLING_TICKET", ticket);
    let joiners = [&mut by_file, &mut by_variable].map(listening);
    for (mut joiner, mut stdout, mut said) in joiners {
        stdout.read_to_string(&mut said).expect("text");
        assert!(joiner.wait().expect("it ends").success(), "{said}");
    }
    founder.finish().summary();
    let output = starling(dirs[0].path()).args(["join"]).args(LISTEN).output().expect("starling starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("standard input"), "{said}");
}

#[test]
fn a_status_tells_the_ticket_to_whoever_asks_for_it() {
    let founder = Peer::run(&PeerOptions::flags("--min-peers 2"));
    let (ticket, dir) = (founder.ticket(), founder.dir());
    let said = |args: &[&str]| {
        let output = starling(dir.path()).args(args).args(["--data-dir", "state"]).output().expect("starling starts");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    while !said(&["invite"]).contains(&ticket) {
        assert!(Instant::now() < deadline, "no invitation");
    }
    assert!(!said(&["status", "--json"]).contains(&ticket));
    assert!(said(&["status", "--json", "--show-ticket"]).contains(&ticket));
    assert!(said(&["invite", "--json"]).contains(&ticket));
}
