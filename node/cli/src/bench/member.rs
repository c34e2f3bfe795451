//! A member of a benchmark: a process that does what is asked.

use std::io;
use std::time::Instant;

use starling_node::reducer::bench::{Member, process_time};
use tokio::sync::mpsc;

use super::error::BenchError;
use super::values;
use super::wire::{Answer, Ask, Checked, Reduced};
use crate::output;

/// Does what the benchmark on stdin asks, until it ends or goes away.
///
/// # Errors
/// [`BenchError`] if the network fails, or a neighbour does.
pub async fn serve() -> Result<(), BenchError> {
    let mut talk = Talk::start();
    let Some(Ask::Setup(setup)) = talk.next().await? else { return Ok(()) };
    let mut member = Member::start(setup.reduction.clone()).await?;
    talk.answer(&Answer::Listening(member.place().clone()))?;
    let Some(Ask::Link(places)) = talk.next().await? else { return Ok(()) };
    let mut linked = member.link(&places).await?;
    talk.answer(&Answer::Linked { plan: linked.plan().to_owned(), transport: linked.transport() })?;
    let (mut round, mut buffer) = (0, vec![0.0; setup.reduction.elements]);
    while let Some(ask) = talk.next().await? {
        match ask {
            Ask::Prepare(next) => {
                round = next;
                values::draw(&mut buffer, setup.seed, round, setup.index);
                talk.answer(&Answer::Prepared)?;
            }
            Ask::Reduce => {
                let (began, used) = (Instant::now(), process_time());
                buffer = linked.reduce(round, buffer).await?;
                let (seconds, used) = (began.elapsed().as_secs_f64(), process_time() - used);
                talk.answer(&Answer::Reduced(Reduced { seconds, cpu_seconds: used.as_secs_f64() }))?;
            }
            Ask::Check { sums } => {
                let wrong = sums.then(|| values::first_wrong(&buffer, &setup, round)).flatten();
                talk.answer(&Answer::Checked(Checked { digest: values::digest(&buffer), wrong }))?;
            }
            Ask::End => break,
            Ask::Setup(_) | Ask::Link(_) => return Err(BenchError::Talk("asked for the same twice".to_owned())),
        }
    }
    Ok(())
}

/// The benchmark's end of stdin and stdout.
struct Talk {
    lines: mpsc::Receiver<io::Result<String>>,
}

impl Talk {
    /// Reads on a thread of its own, which ends with stdin or with the process.
    fn start() -> Self {
        let (sender, lines) = mpsc::channel(1);
        std::thread::spawn(move || io::stdin().lines().try_for_each(|line| sender.blocking_send(line)));
        Self { lines }
    }

    /// `None` once the benchmark is gone.
    async fn next(&mut self) -> Result<Option<Ask>, BenchError> {
        let Some(line) = self.lines.recv().await else { return Ok(None) };
        let line = line.map_err(BenchError::io("read from stdin"))?;
        serde_json::from_str(&line).map(Some).map_err(|error| BenchError::Talk(error.to_string()))
    }

    fn answer(&self, answer: &Answer) -> Result<(), BenchError> {
        let line = serde_json::to_string(answer).expect("invariant: an answer is plain data");
        output::print(&format!("{line}\n")).map_err(BenchError::io("write to stdout"))
    }
}
