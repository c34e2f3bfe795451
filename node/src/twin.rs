//! Another process with this machine's identity: somebody has copied the data directory, or its key. As members, each would
//! be taken for the other, come back after a crash. What is to be done about it, [`starling_engine::TwinSearch`] decides.

use std::path::Path;

use futures::FutureExt;
use starling_engine::TwinSearch;
use starling_engine::twin::{Input, LIMIT, Output};
use starling_run::Manifest;
use starling_topology::{Contact, PeerId, Time};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use crate::access::Credentials;
use crate::catch_up::stall;
use crate::error::NodeError;
use crate::identity::{Identity, to_libp2p};
use crate::inquiry::Inquiry;
use crate::transfer::questions;

/// Looks for another process that is this machine.
#[derive(Debug)]
pub(crate) struct TwinWatch {
    machine: TwinSearch,
    /// Where this machine's identity was last heard of when it started.
    places: Vec<String>,
    dialing: Option<JoinHandle<Result<Input, NodeError>>>,
}

/// This process, as it asks.
#[derive(Debug)]
pub(crate) struct Asking {
    pub(crate) me: PeerId,
    pub(crate) manifest: Manifest,
    pub(crate) credentials: Credentials,
    /// Where it listens.
    pub(crate) listens: Vec<String>,
    /// Which of the processes of this identity it is.
    pub(crate) incarnation: u64,
}

impl Drop for TwinWatch {
    fn drop(&mut self) {
        self.dialing.iter().for_each(JoinHandle::abort);
    }
}

impl TwinWatch {
    /// Looks at these places, where this process does not listen yet.
    ///
    /// # Errors
    /// [`NodeError::Twin`], if somebody answers.
    pub(crate) async fn start(
        (me, manifest, credentials): (PeerId, &Manifest, &Credentials),
        places: Vec<String>,
        data_dir: &Path,
    ) -> Result<Self, NodeError> {
        let machine = TwinSearch::new(places.len(), stall(manifest), Time::ZERO);
        let mut watch = Self { machine, places, dialing: None };
        let (began, mut inquiry) = (Instant::now(), None);
        let mut deadline = began;
        loop {
            while let Some(output) = watch.machine.poll() {
                match output {
                    Output::Dial => {
                        let addresses = watch.places.clone();
                        let contact = Contact { peer: me, addresses };
                        inquiry = Some(Inquiry::start(manifest.run_id(), credentials, &[contact])?);
                    }
                    Output::SetTimer(at) => deadline = began + (at - Time::ZERO),
                    Output::GoOn => return Ok(watch),
                    Output::Refuse => return Err(error(me, data_dir)),
                }
            }
            let Some(inquiry) = &mut inquiry else { return Ok(watch) };
            let input = tokio::select! {
                () = sleep_until(deadline) => Input::Expired,
                outcome = inquiry.next() => match outcome {
                    // Nobody else can prove to be this machine.
                    Some((_, Ok(()))) => Input::Answered,
                    Some((_, Err(_))) | None => Input::Unanswered,
                },
            };
            watch.machine.handle(Time::ZERO + began.elapsed(), input);
        }
    }

    /// There is nowhere to look.
    pub(crate) fn nowhere() -> Self {
        Self { machine: TwinSearch::new(0, LIMIT, Time::ZERO), places: Vec::new(), dialing: None }
    }

    /// Looks again, if it is time to: without a quorum or a seat. Whether there is another process of this machine.
    pub(crate) fn look(&mut self, now: Time, takes_part: bool, asking: impl FnOnce() -> Asking) -> bool {
        self.machine.note(now, takes_part);
        let dialed = self.dialing.take_if(|dialing| dialing.is_finished()).and_then(FutureExt::now_or_never);
        let input = match dialed {
            None => Input::Expired,
            Some(Ok(Ok(input))) => input,
            Some(outcome) => {
                tracing::warn!(?outcome, "this machine can't look for another process with its identity");
                Input::Unanswered
            }
        };
        self.machine.handle(now, input);
        let mut asking = Some(asking);
        while let Some(output) = self.machine.poll() {
            match output {
                Output::Dial => {
                    let asking = asking.take().map(|asking| asking());
                    self.dialing = asking.map(|asking| tokio::spawn(dial(asking, self.places.clone())));
                }
                // It is looked at each time that all else is.
                Output::SetTimer(_) | Output::GoOn => {}
                Output::Refuse => return true,
            }
        }
        false
    }
}

/// Dials this machine at these places, and asks who answers which process it is: this one may be there itself, behind an address that
/// it does not know to be its own.
async fn dial(asking: Asking, mut places: Vec<String>) -> Result<Input, NodeError> {
    let Asking { me, manifest, credentials, listens, incarnation } = asking;
    places.retain(|place| !listens.contains(place));
    if places.is_empty() {
        return Ok(Input::Unanswered);
    }
    let mut inquiry = Inquiry::start(manifest.run_id(), &credentials, &[Contact { peer: me, addresses: places }])?;
    let Some((_, Ok(()))) = inquiry.next().await else { return Ok(Input::Unanswered) };
    let opening = inquiry.opener(LIMIT)(me);
    let told = async { questions::newest(&mut opening.await?, manifest.run_id(), manifest.steps, LIMIT).await };
    Ok(match told.await {
        Ok(newest) if newest.incarnation != incarnation => Input::Answered,
        Ok(_) | Err(_) => Input::Unanswered,
    })
}

/// Another process is this machine.
pub(crate) fn error(me: PeerId, data_dir: &Path) -> NodeError {
    NodeError::Twin { peer: to_libp2p(me).to_string(), key: Identity::file(data_dir) }
}
