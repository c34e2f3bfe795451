//! Where a ticket comes from. It holds a private run's secret, and all users of a machine can see the arguments of its
//! processes.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Read, Write};
use std::path::PathBuf;

use clap::Args;
use starling_node::credentials::ticket;

use super::{BenchVerb, CheckpointVerb, Cli, Verb};
use crate::config::ConfigError;

/// Environment variable: the ticket, where none is given otherwise.
const TICKET_VARIABLE: &str = "STARLING_TICKET";
/// Says that the ticket comes by standard input.
const STDIN: &str = "-";
/// More than a ticket or an address takes, in bytes.
const MAX_BYTES: u64 = 64 * 1024;

/// A ticket, or how to get at it.
#[derive(Debug, Clone, Default, Args)]
pub struct TicketFlags {
    /// With - the ticket is read from standard input, which keeps it out of the list of processes; to join, a member's address
    /// ending in /p2p/PEER will do; or the ticket itself, which `starling run` or `starling invite` printed [default: --ticket-file,
    /// else the variable STARLING_TICKET]
    #[arg(value_name = "-|MULTIADDR|TICKET")]
    pub ticket: Option<String>,
    /// File with the ticket [default: none]
    #[arg(long, value_name = "FILE", conflicts_with = "ticket")]
    pub ticket_file: Option<PathBuf>,
}

impl TicketFlags {
    /// What they lead to, as text.
    ///
    /// # Errors
    /// [`ConfigError::NoTicket`] if there is none, [`ConfigError::Read`] if it can't be read.
    pub fn read(&self) -> Result<String, ConfigError> {
        match (&self.ticket, &self.ticket_file) {
            (Some(text), _) => read_argument(text),
            (None, Some(path)) => {
                let failed = |source| ConfigError::Read { path: path.clone(), source };
                first_line(File::open(path).map_err(failed)?).map_err(failed)
            }
            (None, None) => match std::env::var(TICKET_VARIABLE) {
                Ok(text) => Ok(text),
                Err(std::env::VarError::NotUnicode(_)) => Err(ConfigError::NotText(TICKET_VARIABLE.to_owned())),
                Err(std::env::VarError::NotPresent) => Err(ConfigError::NoTicket),
            },
        }
    }
}

/// The ticket that an argument stands for.
///
/// # Errors
/// [`ConfigError::Read`] if it can't be read.
pub fn read_argument(text: &str) -> Result<String, ConfigError> {
    if text != STDIN {
        return Ok(text.to_owned());
    }
    if io::stdin().is_terminal() {
        // Nobody who sees this has stopped reading.
        let _ = write!(io::stderr(), "ticket: ");
    }
    first_line(io::stdin().lock()).map_err(|source| ConfigError::Read { path: PathBuf::from("standard input"), source })
}

fn first_line(from: impl Read) -> io::Result<String> {
    let mut line = String::new();
    BufReader::new(from.take(MAX_BYTES)).read_line(&mut line)?;
    Ok(line)
}

impl Cli {
    /// The argument that is a ticket, if one is.
    fn ticket_argument(&self) -> Option<&str> {
        let given = match &self.verb {
            Verb::Join(flags) => flags.ticket.ticket.as_deref(),
            Verb::Keep(flags) => flags.ticket.ticket.as_deref(),
            Verb::Checkpoint(CheckpointVerb::Fetch(flags)) => flags.ticket.ticket.as_deref(),
            Verb::Bench(BenchVerb::Swarm(flags)) => flags.join.as_deref(),
            _ => None,
        };
        given.filter(|text| ticket::looks_like_one(text))
    }
}

/// If a ticket is among the arguments of this process, starts the process anew, as the same one, with the ticket in a pipe as
/// its standard input. Returns only if there is none or that is not possible, with what to warn of.
pub fn hide_ticket(cli: &Cli, arguments: &[OsString]) -> Option<String> {
    let ticket = cli.ticket_argument()?;
    let hidden = hidden(arguments, ticket);
    #[cfg(unix)]
    let reason = {
        let _ = writeln!(
            io::stderr(),
            "warning: until now other users of this machine could see the ticket; `-` in its place reads it from standard input"
        );
        start_anew(&hidden, ticket).map_or_else(|error| error.to_string(), |never| match never {})
    };
    #[cfg(not(unix))]
    let reason = {
        drop(hidden);
        "this system can't hide arguments"
    };
    Some(format!("other users of this machine can see the ticket among the arguments of this process ({reason})"))
}

/// The arguments with `-` in the ticket's place.
fn hidden(arguments: &[OsString], ticket: &str) -> Vec<OsString> {
    let mut is_found = false;
    let hide = |argument: &OsString| {
        if is_found || !argument.to_str().is_some_and(|text| text.ends_with(ticket)) {
            return argument.clone();
        }
        is_found = true;
        let before = argument.len() - ticket.len();
        let mut kept = OsString::from(argument.to_str().and_then(|text| text.get(..before)).unwrap_or_default());
        kept.push(OsStr::new(STDIN));
        kept
    };
    arguments.iter().map(hide).collect()
}

#[cfg(unix)]
fn start_anew(arguments: &[OsString], ticket: &str) -> io::Result<std::convert::Infallible> {
    use std::os::unix::process::CommandExt as _;

    // A ticket is shorter than what a pipe holds; whoever reads it is this process.
    let (read_end, mut write_end) = io::pipe()?;
    write_end.write_all(ticket.as_bytes())?;
    drop(write_end);
    let (name, rest) = arguments.split_first().ok_or_else(|| io::Error::other("it has no arguments"))?;
    let mut command = std::process::Command::new(std::env::current_exe()?);
    Err(command.arg0(name).args(rest).stdin(read_end).exec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn a_ticket_is_hidden_wherever_it_stands() {
        assert_eq!(hidden(&words("starling join T2x --name a"), "T2x"), words("starling join - --name a"));
        assert_eq!(hidden(&words("starling bench swarm --join=T2x"), "T2x"), words("starling bench swarm --join=-"));
    }

    #[test]
    fn only_a_ticket_is_hidden() {
        let argument = |text: &str| {
            let cli = crate::cli::parse(words(text)).expect("it parses");
            cli.ticket_argument().map(str::to_owned)
        };
        let ticket = format!("starling3{}", "z".repeat(80));
        assert_eq!(argument(&format!("starling join {ticket}")).as_deref(), Some(ticket.as_str()));
        assert_eq!(argument(&format!("starling keep {ticket}")).as_deref(), Some(ticket.as_str()));
        assert_eq!(argument(&format!("starling checkpoint fetch {ticket}")).as_deref(), Some(ticket.as_str()));
        assert_eq!(argument(&format!("starling bench swarm --join {ticket}")).as_deref(), Some(ticket.as_str()));
        for text in ["starling join -", "starling join /ip4/192.0.2.1/tcp/1/p2p/x", "starling join", "starling status"]
        {
            assert_eq!(argument(text), None, "{text}");
        }
    }

    #[test]
    fn a_file_holds_a_ticket_on_its_first_line() {
        let dir = tempfile::tempdir().expect("a temp dir");
        let path = dir.path().join("ticket");
        std::fs::write(&path, "starling3abc\nmore\n").expect("written");
        let flags = TicketFlags { ticket: None, ticket_file: Some(path.clone()) };
        assert_eq!(flags.read().expect("read").trim(), "starling3abc");
        std::fs::remove_file(&path).expect("removed");
        assert!(flags.read().expect_err("gone").to_string().contains("ticket"));
    }
}
