//! The rest of a joiner's data, on its way while it trains.

use std::sync::Arc;

use starling_topology::PeerId;
use tokio::sync::watch;

use super::EventLoop;
use super::resume::Fetch;
use crate::error::NodeError;
use crate::member::event::NetworkEvent;
use crate::member::shared_steps::CarrierInput;
use crate::start::dataset::arriving::ArrivingData;

/// What is to come, and from when on it does.
#[derive(Default)]
pub(super) enum DataFetch {
    /// Nothing.
    #[default]
    Done,
    /// This machine is in no view yet.
    Waits(Box<ArrivingData>),
    /// From whoever is told here. Dropping it gives it up.
    Runs { members: watch::Sender<Vec<PeerId>>, _fetch: Fetch },
}

impl DataFetch {
    pub(super) fn new(rest: Option<ArrivingData>) -> Self {
        rest.map_or(Self::Done, |rest| Self::Waits(Box::new(rest)))
    }
}

impl EventLoop {
    /// Has what is missing come from the members of the view that was entered.
    pub(super) fn fetch_data(&mut self) {
        let others: Vec<PeerId> = self.members.iter().copied().filter(|member| *member != self.me).collect();
        match std::mem::take(&mut self.data) {
            DataFetch::Done => {}
            DataFetch::Runs { members, _fetch } => {
                members.send_replace(others);
                self.data = DataFetch::Runs { members, _fetch };
            }
            DataFetch::Waits(rest) => {
                let (members, asked) = watch::channel(others);
                let open = self.opener(&self.network.protocols.state, self.config.max_stall / 2);
                let (shared_steps, observer) = (self.shared_steps.clone(), Arc::clone(&self.observer));
                let events = self.incoming.events_in.clone();
                let fetch = async move {
                    let (members, position) = (|| asked.borrow().clone(), || shared_steps.run_position());
                    if let Err(error) = rest.complete(&open, members, position, &*observer).await {
                        let _ = events.send(NetworkEvent::DataMissing { error }).await;
                    }
                };
                self.data = DataFetch::Runs { members, _fetch: Fetch::new(tokio::spawn(fetch)) };
            }
        }
    }

    /// Without it, this machine would compute less and less, and hold up an end that all wait for.
    pub(super) fn on_data_missing(&mut self, error: NodeError) {
        self.failure = Some(error);
        let now = self.now();
        self.member.ask_to_leave(now);
        self.shared_steps.carry(CarrierInput::Leaves);
    }
}
