//! The `starling` binary: flags, then configuration, then a verb.

use std::error::Error;
use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use anyhow::Context;
use starling_cli::cli::{self, Cli};
use starling_cli::commands::{self, CommandError, EXIT_FAILED};
use starling_cli::output;
use starling_cli::telemetry;

/// Threads for the network. What computes has threads of its own.
const WORKER_THREADS: usize = 2;
/// How long background work may take after the verb is done.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(2);
/// How long the last line may take to be written: a terminal that does not read must not keep the process.
const LAST_LINE_LIMIT: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    quiet_libraries();
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let cli = match cli::parse(arguments.clone()) {
        Ok(cli) => cli,
        Err(error) => {
            // A closed pipe is no reason for another exit code.
            let _ = match cli::one_line(&error) {
                Some(line) => writeln!(io::stderr(), "error: {}", output::format::visible(&line)),
                None => error.print(),
            };
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(EXIT_FAILED));
        }
    };
    if let Some(warning) = cli::hide_ticket(&cli, &arguments) {
        let _ = writeln!(io::stderr(), "warning: {warning}");
    }
    // Only now: a process that is started anew would take this mask for the user's.
    starling_node::keep_to_owner();
    let json = cli.global.json;
    let outcome = run(cli);
    telemetry::flush();
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            let line = one_line(error.as_ref());
            output::within(LAST_LINE_LIMIT, move || {
                let _ = writeln!(io::stderr(), "error: {line}");
                if json {
                    let failed = format!("{{\"event\":\"failed\",\"error\":{}}}", serde_json::json!(line));
                    let _ = output::print(&format!("{}\n", output::json_line(SystemTime::now(), &failed)));
                }
            });
            ExitCode::from(error.downcast_ref().map_or(EXIT_FAILED, CommandError::exit_code))
        }
    }
}

fn run(cli: Cli) -> anyhow::Result<u8> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKER_THREADS)
        .enable_all()
        .build()
        .context("can't start the threads for the network")?;
    let outcome = runtime.block_on(commands::dispatch(cli));
    runtime.shutdown_timeout(SHUTDOWN_LIMIT);
    Ok(outcome?)
}

/// An error with its causes, without those that it quotes already.
fn one_line(error: &(dyn Error + 'static)) -> String {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !line.contains(&text) {
            line = format!("{line}: {text}");
        }
        cause = error.source();
    }
    // Some of it may be another's words: an address in a ticket, a cell of a table.
    output::format::visible(&line.replace('\n', " "))
}

/// Mesa writes lines that begin with `error:` to stderr when it is probed without a runtime directory, as on most
/// servers. Nothing of ours lives there. And TLS libraries write the keys of all connections where a variable says.
#[expect(unsafe_code, reason = "the environment is the only way to tell libraries this")]
fn quiet_libraries() {
    const VARIABLE: &str = "XDG_RUNTIME_DIR";
    let usable = std::env::var_os(VARIABLE).is_some_and(|dir| std::path::Path::new(&dir).is_dir());
    // SAFETY: the first thing that `main` does, so that no other thread can be reading the environment.
    unsafe {
        std::env::remove_var("SSLKEYLOGFILE");
        if cfg!(target_os = "linux") && !usable {
            std::env::set_var(VARIABLE, std::env::temp_dir());
        }
    }
}
