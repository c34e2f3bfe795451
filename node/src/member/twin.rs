//! Another process with this machine's identity: somebody has copied the data directory, or its key. As members, each would
//! be taken for the other, come back after a crash. What is to be done about it, [`starling_engine::TwinSearch`] decides.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::join_all;
use starling_engine::TwinSearch;
use starling_engine::return_engine::twin::{Input, MAX_ASKED, Output};
use starling_run::Manifest;
use starling_topology::message::MAX_ADDRESSES;
use starling_topology::{Contact, PeerId, RunId, Time};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};

use crate::access::Credentials;
use crate::credentials::identity::{Identity, to_libp2p};
use crate::error::NodeError;
use crate::start::catch_up::stall;
use crate::start::client::dialer::CheckpointDialer;
use crate::transfer::{data, questions};

/// Looks for another process that is this machine.
#[derive(Debug)]
pub(crate) struct TwinWatch {
    machine: TwinSearch,
    /// Where this machine's identity was last heard of when it started.
    places: Vec<String>,
    dialing: Option<JoinHandle<Input>>,
}

/// This process, as it asks.
#[derive(Debug, Clone)]
pub(crate) struct TwinQuery {
    pub(crate) me: PeerId,
    pub(crate) run: RunId,
    pub(crate) credentials: Credentials,
    /// Which of the processes of this identity it is, if it listens: then it may find itself, behind an address that it does not
    /// know to be its own.
    pub(crate) incarnation: Option<u64>,
    /// Others that may have heard of it.
    pub(crate) others: Vec<Contact>,
    /// How long it waits for an answer.
    pub(crate) limit: Duration,
}

impl Drop for TwinWatch {
    fn drop(&mut self) {
        self.dialing.iter().for_each(JoinHandle::abort);
    }
}

impl TwinWatch {
    /// Looks at these places, before this process listens anywhere.
    ///
    /// # Errors
    /// [`NodeError::Twin`], if somebody answers.
    pub(crate) async fn start(
        (me, manifest, credentials): (PeerId, &Manifest, &Credentials),
        places: Vec<String>,
        data_dir: &Path,
    ) -> Result<Self, NodeError> {
        let limit = stall(manifest);
        let mut watch = Self { machine: TwinSearch::new(places.len(), limit, Time::ZERO), places, dialing: None };
        let began = Instant::now();
        let asking = TwinQuery {
            me,
            run: manifest.run_id(),
            credentials: credentials.clone(),
            incarnation: None,
            others: Vec::new(),
            limit,
        };
        let mut deadline = began;
        loop {
            while let Some(output) = watch.machine.poll() {
                match output {
                    Output::Dial => watch.dial(asking.clone()),
                    Output::SetTimer(at) => deadline = began + (at - Time::ZERO),
                    Output::GoOn => return Ok(watch),
                    Output::Refuse => return Err(error(me, data_dir)),
                }
            }
            let dialing = async { watch.dialing.as_mut().expect("invariant: it dials, or goes on").await };
            let input = tokio::select! {
                () = sleep_until(deadline) => Input::Expired,
                outcome = dialing => {
                    watch.dialing = None;
                    outcome.unwrap_or(Input::Unanswered)
                }
            };
            watch.machine.handle(Time::ZERO + began.elapsed(), input);
        }
    }

    /// It was nowhere before.
    pub(crate) fn of_new(max_stall: Duration) -> Self {
        Self { machine: TwinSearch::new(0, max_stall, Time::ZERO), places: Vec::new(), dialing: None }
    }

    /// Looks again, if it is time to: without a quorum or a seat. Whether there is another process of this machine.
    pub(crate) fn look(&mut self, now: Time, takes_part: bool, asking: impl Fn() -> TwinQuery) -> bool {
        if takes_part {
            self.machine.note(now, true);
        }
        let dialed = self.dialing.take_if(|dialing| dialing.is_finished()).and_then(FutureExt::now_or_never);
        self.machine.handle(now, dialed.map_or(Input::Expired, |input| input.unwrap_or(Input::Unanswered)));
        self.machine.note(now, takes_part);
        while let Some(output) = self.machine.poll() {
            match output {
                Output::Dial => self.dial(asking()),
                // It is looked at each time that all else is.
                Output::SetTimer(_) | Output::GoOn => {}
                Output::Refuse => return true,
            }
        }
        false
    }

    /// In place of what is still being dialed.
    fn dial(&mut self, asking: TwinQuery) {
        self.dialing.iter().for_each(JoinHandle::abort);
        self.dialing = Some(tokio::spawn(dial(asking, self.places.clone())));
    }
}

/// Dials this machine at these places, each for itself: whoever answers first at one need not be whom another one has.
async fn dial(mut asking: TwinQuery, places: Vec<String>) -> Input {
    // Others than the last time, so that nobody alone says where it is.
    let first = rand::random::<u32>() as usize % asking.others.len().max(1);
    asking.others.rotate_left(first);
    let (asking, mut dialed) = (Arc::new(asking), JoinSet::<Option<Input>>::new());
    for other in asking.others.iter().take(MAX_ASKED).cloned() {
        let asking = asking.clone();
        dialed.spawn(async move { timeout(asking.limit, is_where_it_says(&asking, other)).await.unwrap_or(None) });
    }
    for place in places {
        let asking = asking.clone();
        dialed.spawn(async move { timeout(asking.limit, is_there(&asking, place)).await.unwrap_or(None) });
    }
    while let Some(answered) = dialed.join_next().await {
        if let Ok(Some(answered)) = answered {
            return answered;
        }
    }
    Input::Unanswered
}

/// What another process of this machine answers where somebody else says that it is.
async fn is_where_it_says(asking: &TwinQuery, other: Contact) -> Option<Input> {
    let peer = other.peer;
    let Ok(mut dialer) = CheckpointDialer::start(asking.run, &asking.credentials, &[other]) else { return None };
    let Some((_, Ok(()))) = dialer.next().await else { return None };
    let opening = dialer.opener(asking.limit)(peer);
    let told = async { data::members(opening.await?).await }.await.unwrap_or_default();
    let places = told.into_iter().filter(|contact| contact.peer == asking.me).flat_map(|contact| contact.addresses);
    let answers = places.take(MAX_ADDRESSES).map(|place| is_there(asking, place));
    join_all(answers).await.into_iter().flatten().next()
}

/// What another process of this machine answers at this place.
async fn is_there(asking: &TwinQuery, place: String) -> Option<Input> {
    let contact = Contact { peer: asking.me, addresses: vec![place] };
    let mut dialer = match CheckpointDialer::start(asking.run, &asking.credentials, &[contact]) {
        Ok(dialer) => dialer,
        Err(error) => {
            tracing::warn!(%error, "this machine can't look for another process with its identity");
            return None;
        }
    };
    // Nobody else can prove to be this machine.
    let Some((_, Ok(()))) = dialer.next().await else { return None };
    let Some(ours) = asking.incarnation else { return Some(Input::Found) };
    let opening = dialer.opener(asking.limit)(asking.me);
    let theirs = async { questions::process(&mut opening.await?, asking.limit).await };
    let theirs = theirs.await.ok().filter(|theirs| theirs.incarnation != ours)?;
    Some(Input::Answered { ours, theirs })
}

/// Another process is this machine.
pub(crate) fn error(me: PeerId, data_dir: &Path) -> NodeError {
    NodeError::Twin { peer: to_libp2p(me).to_string(), key: Identity::file(data_dir) }
}
