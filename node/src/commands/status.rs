//! `starling status`: how the run on this machine is doing.

use std::path::Path;
use std::time::Duration;

use serde_json::json;

use super::{CommandError, Context, EXIT_DONE, print};
use crate::cli::StatusFlags;
use crate::output::format;
use crate::report::MeasuredLink;
use crate::status::Status;

/// How often `--watch` looks.
const WATCH_INTERVAL: Duration = Duration::from_millis(500);

pub(super) async fn status(context: &Context, flags: &StatusFlags) -> Result<u8, CommandError> {
    let dir = context.load(&flags.data_dir.values())?.data_dir()?;
    let mut status = read(&dir)?;
    show(context, &status)?;
    while flags.watch && status.is_running() != Some(false) {
        tokio::time::sleep(WATCH_INTERVAL).await;
        let next = read(&dir)?;
        if next != status || next.is_running() == Some(false) {
            show(context, &next)?;
        }
        status = next;
    }
    Ok(EXIT_DONE)
}

fn read(dir: &Path) -> Result<Status, CommandError> {
    Status::read(dir)?.ok_or_else(|| CommandError::NoStatus(dir.to_owned()))
}

fn show(context: &Context, status: &Status) -> Result<(), CommandError> {
    let value = || {
        let mut value = json!(status);
        value["running"] = json!(status.is_running());
        value
    };
    print(context.global.json, value, || describe(status))
}

fn describe(status: &Status) -> String {
    let life = match status.is_running() {
        Some(true) => format!("running, process {}", status.process.pid),
        Some(false) if status.phase.is_last() => "ended".to_owned(),
        Some(false) => format!("killed, process {} is gone", status.process.pid),
        None => format!("process {}, this system does not tell whether it runs", status.process.pid),
    };
    let unknown = || "not yet known".to_owned();
    let mut text = format!("{}: {life}\n", status.phase);
    let mut line = |name: &str, value: String| text.push_str(&format!("  {name:<9} {value}\n"));
    if let Some(error) = &status.error {
        line("error", error.clone());
    }
    line("peer", status.peer.clone());
    line("run", status.run.clone());
    line("step", format!("{} of {}", status.step, status.steps));
    line("stable", status.stable_step.map_or_else(unknown, |step| format!("checkpoint after step {step}")));
    line("loss", status.loss.map_or_else(unknown, |loss| format!("{loss:.4}")));
    line("accuracy", status.accuracy.map_or_else(unknown, format::percent));
    line("speed", format::rate(status.samples_per_s));
    match status.generation {
        0 => line("members", "no view yet".to_owned()),
        generation => line(
            "members",
            format!("{} in generation {generation}, rank {} is here", status.members.len(), status.rank),
        ),
    }
    if !status.change.is_empty() {
        line("change", status.change.clone());
    }
    if let Some(links) = &status.links {
        line("links", links.to_string());
        line("plan", links.reason.clone());
        if links.is_open() {
            line("WARNING", "gradients are NOT ENCRYPTED: whoever is on the way reads and changes them".to_owned());
        }
    }
    for (peer, MeasuredLink { rtt_ms, mbit }) in &status.measured {
        line("measured", format!("{mbit:.0} Mbit/s and {rtt_ms:.1} ms there and back to {}", format::peer(peer)));
    }
    for address in &status.addresses {
        line("address", address.clone());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Transport;
    use crate::report::Links;
    use crate::status::{Phase, Process};

    #[test]
    fn it_says_whether_the_node_lives() {
        let mut status = Status { process: Process::this(), phase: Phase::Stepping, steps: 600, ..Status::default() };
        let lives = describe(&status);
        if cfg!(target_os = "linux") {
            assert!(lives.starts_with(&format!("stepping: running, process {}", std::process::id())), "{lives}");
            status.process.started = Some(1);
            assert!(describe(&status).contains("killed"), "{}", describe(&status));
        }
        assert!(!describe(&status).contains("NOT ENCRYPTED"));
        let links = |kind| [("peer".to_owned(), kind)].into();
        let (from, to) = (links(Transport::Direct), links(Transport::Plaintext));
        status.links = Some(Links { plan: "ring".to_owned(), reason: "as the run asks".to_owned(), from, to });
        assert!(describe(&status).contains("ring over 2 links, 1 direct and 1 plaintext"), "{}", describe(&status));
        assert!(describe(&status).contains("NOT ENCRYPTED"), "{}", describe(&status));
        status.measured = [("peer".to_owned(), MeasuredLink { rtt_ms: 40.25, mbit: 93.0 })].into();
        assert!(describe(&status).contains("93 Mbit/s and 40.2 ms there and back"), "{}", describe(&status));
        status.phase = Phase::Failed;
        status.error = Some("peer x is lost".to_owned());
        let failed = describe(&status);
        assert!(failed.starts_with("failed: ended") && failed.contains("peer x is lost"), "{failed}");
        assert!(failed.contains("0 of 600") && failed.contains("no view yet"), "{failed}");
    }
}
