//! Another process with this machine's identity: somebody has copied the data directory, or its key. As members, each would
//! be taken for the other, come back after a crash. What is to be done about it, [`starling_engine::TwinSearch`] decides.

use std::path::Path;

use starling_engine::TwinSearch;
use starling_engine::twin::{Input, Output};
use starling_topology::{Contact, PeerId, RunId, Time};
use tokio::time::{Instant, sleep_until};

use crate::access::Credentials;
use crate::error::NodeError;
use crate::identity::{Identity, to_libp2p};
use crate::inquiry::Inquiry;

/// Dials the places where this machine's identity was last heard of, under another one. Nobody else can prove to be `me`, and
/// this process listens nowhere yet.
///
/// # Errors
/// [`NodeError::Twin`], if somebody answers.
pub(crate) async fn refuse(
    me: PeerId,
    (run, credentials): (RunId, &Credentials),
    places: Vec<String>,
    data_dir: &Path,
) -> Result<(), NodeError> {
    let began = Instant::now();
    let mut search = TwinSearch::new(places.len(), Time::ZERO);
    let (mut places, mut inquiry, mut deadline) = (Some(places), None, began);
    loop {
        while let Some(output) = search.poll() {
            match output {
                Output::Dial => {
                    let addresses = places.take().unwrap_or_default();
                    inquiry = Some(Inquiry::start(run, credentials, &[Contact { peer: me, addresses }])?);
                }
                Output::SetTimer(at) => deadline = began + (at - Time::ZERO),
                Output::GoOn => return Ok(()),
                Output::Refuse => return Err(error(me, data_dir)),
            }
        }
        let Some(inquiry) = &mut inquiry else { return Ok(()) };
        let input = tokio::select! {
            () = sleep_until(deadline) => Input::Expired,
            outcome = inquiry.next() => match outcome {
                Some((_, Ok(()))) => Input::Answered,
                Some((_, Err(_))) | None => Input::Unanswered,
            },
        };
        search.handle(Time::ZERO + began.elapsed(), input);
    }
}

/// Another process is this machine.
pub(crate) fn error(me: PeerId, data_dir: &Path) -> NodeError {
    NodeError::Twin { peer: to_libp2p(me).to_string(), key: Identity::file(data_dir) }
}
