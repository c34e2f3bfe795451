//! Hands the result of a step from a member that has committed it to one that has not.
//!
//! The asker names the step (u64, big-endian). The answer is the result's bytes, or none if it is not at hand.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::{AsyncReadExt, AsyncWriteExt};
use libp2p::{Stream, StreamProtocol};
use libp2p_stream::Control;
use starling_run::ResultRecord;
use starling_topology::PeerId;
use starling_topology::message::MAX_MEMBERS;
use tokio::time::timeout;

use crate::exchange::Exchange;
use crate::identity::to_libp2p;
use crate::{bulk, streams};

/// Answers one member.
pub(crate) async fn serve(mut stream: Stream, exchange: Arc<Exchange>, stall: Duration) {
    let answer = async {
        let mut step = [0; 8];
        timeout(stall, stream.read_exact(&mut step)).await??;
        let record = exchange.record().filter(|record| record.step == u64::from_be_bytes(step));
        let bytes = record.map(|record| record.encode()).unwrap_or_default();
        bulk::write(&mut stream, &bytes, stall).await?;
        stream.close().await
    };
    if let Err(error) = io::Result::<()>::from(answer.await) {
        tracing::debug!(%error, "a result did not get through");
    }
}

/// What is asked for.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    pub(crate) step: u64,
    /// How many parameters the result is for.
    pub(crate) parameters: usize,
    /// Members that hold it.
    pub(crate) holders: Vec<PeerId>,
    pub(crate) stall: Duration,
}

/// Fetches a result from the first holder that hands it out.
///
/// # Errors
/// What the last holder did instead.
pub(crate) async fn fetch(
    mut control: Control,
    protocol: StreamProtocol,
    wanted: Wanted,
) -> Result<ResultRecord, String> {
    let mut reason = "nobody holds it".to_owned();
    for holder in &wanted.holders {
        match ask(&mut control, &protocol, *holder, &wanted).await {
            Ok(record) => return Ok(record),
            Err(error) => reason = format!("{}: {error}", to_libp2p(*holder)),
        }
        tracing::info!(step = wanted.step, reason, "a result did not come");
    }
    Err(reason)
}

/// No result for so many parameters is longer, in bytes: the largest view's, with room for its head.
fn longest(parameters: usize) -> usize {
    64 + (size_of::<PeerId>() + size_of::<f32>()) * MAX_MEMBERS + size_of::<f32>() * (parameters + 1)
}

async fn ask(
    control: &mut Control,
    protocol: &StreamProtocol,
    holder: PeerId,
    wanted: &Wanted,
) -> io::Result<ResultRecord> {
    let stall = wanted.stall;
    let mut stream = streams::open(control, to_libp2p(holder), protocol, stall).await?;
    stream.write_all(&wanted.step.to_be_bytes()).await?;
    stream.flush().await?;
    let bytes = bulk::read(&mut stream, longest(wanted.parameters), stall).await?;
    if bytes.is_empty() {
        return Err(io::Error::other("it does not hold the result"));
    }
    let record = ResultRecord::decode(&bytes, wanted.parameters).map_err(io::Error::other)?;
    if record.step == wanted.step { Ok(record) } else { Err(io::Error::other("it sent another step's result")) }
}
