//! A leaf beside its steps: what its machine asks of its loop, and what the trainer thread computes for its carrier.

use std::collections::VecDeque;
use std::sync::Arc;

use starling_engine::LeafEngine;
use starling_engine::leaf::leaf_engine::{Input, LeafEvent, LeafTask, Output};
use starling_engine::leaf::violation::LeafViolation;
use starling_run::ResultRecord;
use starling_topology::{CarrierBody, Contact, Generation, LeafBody, Ledger, Lineage, PeerId, Time};

use super::{SharedSteps, Side, Steps};

/// What a leaf's machine is told.
pub(crate) type LeafInput = Input<Arc<ResultRecord>>;

/// What the loop of a leaf does.
#[derive(Debug)]
pub(crate) enum LeafAction {
    /// Send this to a member, and these numbers behind it.
    Send { to: PeerId, body: LeafBody, numbers: Vec<f32> },
    /// Say this to a peer that wants to be this leaf's leaf, and close its stream.
    Refuse { to: PeerId, body: CarrierBody },
    /// Close the stream to this member once all is sent.
    Close(PeerId),
    /// Download this state, and hand it over as this `number`.
    Load { from: PeerId, number: u64, generation: Generation, step: u64, lineage: Lineage },
    /// What is being downloaded is not wanted any more.
    StopLoading,
    /// Say [`Input::Expired`] then.
    SetTimer(Time),
    /// Ask this member to dial back.
    AskReach(PeerId),
    /// Be a leaf no more.
    Join,
    /// A member did what no correct carrier does.
    Fault { carrier: PeerId, violation: LeafViolation },
    /// For who watches.
    Event(LeafEvent),
    /// It is over.
    End(LeafEvent),
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Following {
    engine: LeafEngine<Arc<ResultRecord>>,
    asked: VecDeque<LeafAction>,
}

impl Following {
    pub(crate) fn new(engine: LeafEngine<Arc<ResultRecord>>) -> Self {
        Self { engine, asked: VecDeque::new() }
    }

    /// Hands on what the machine asks from the beginning.
    pub(super) fn begin(&mut self, steps: &mut Steps) {
        self.sort(steps, Vec::new());
    }

    /// Hands on what the machine asks; `numbers` are those of a gradient that it sends.
    fn sort(&mut self, steps: &mut Steps, mut numbers: Vec<f32>) {
        while let Some(output) = self.engine.poll() {
            self.asked.push_back(match output {
                Output::Send { to, body } => {
                    let is_gradient = matches!(body, LeafBody::Gradient { .. });
                    let numbers = if is_gradient { std::mem::take(&mut numbers) } else { Vec::new() };
                    LeafAction::Send { to, body, numbers }
                }
                Output::Refuse { to, body } => LeafAction::Refuse { to, body },
                Output::Close(peer) => LeafAction::Close(peer),
                Output::Load { from, generation, step, lineage } => {
                    let number = steps.sync(step, lineage);
                    LeafAction::Load { from, number, generation, step, lineage }
                }
                Output::StopLoading => LeafAction::StopLoading,
                Output::Deliver(result) => {
                    let step = result.step;
                    if steps.deliver(result).is_err() {
                        // The machine delivers what follows alone, so this is a mistake of ours: it is told nothing of, and asks elsewhere.
                        tracing::error!(step, "a result does not follow what this leaf holds");
                    }
                    continue;
                }
                // The thread asks each time that something has happened; what it computes in vain it ends, and nobody sends it.
                Output::Work | Output::Drop(_) => continue,
                Output::SetTimer(at) => LeafAction::SetTimer(at),
                Output::AskReach(peer) => LeafAction::AskReach(peer),
                Output::Join => LeafAction::Join,
                Output::Fault { carrier, violation } => LeafAction::Fault { carrier, violation },
                Output::Event(event) => LeafAction::Event(event),
                Output::End(event) => LeafAction::End(event),
            });
        }
    }

    /// What the trainer thread computes next for the carrier, by the ledger of the state that it holds.
    pub(super) fn next_task(&mut self, now: Time, steps: &mut Steps, ledger: &Ledger) -> Option<LeafTask> {
        if !steps.progress().has_state {
            return None;
        }
        let task = self.engine.next_task(now, ledger);
        self.sort(steps, Vec::new());
        task
    }

    pub(super) fn has_news(&self) -> bool {
        !self.asked.is_empty()
    }
}

impl SharedSteps {
    /// Tells a leaf's machine what happened; nothing of a member.
    pub(crate) fn follow(&self, input: LeafInput) {
        self.follow_with(input, Vec::new());
    }

    /// The trainer thread is through with a leaf's task: these are the numbers of its gradient, if there is one.
    pub(crate) fn bring(&self, number: u64, numbers: Option<Vec<f32>>) {
        let is_whole = numbers.is_some();
        self.follow_with(Input::Computed { number, is_whole }, numbers.unwrap_or_default());
    }

    fn follow_with(&self, input: LeafInput, numbers: Vec<f32>) {
        let now = self.now();
        let mut inner = self.lock();
        let inner = &mut *inner;
        if let Side::Leaf(following) = &mut inner.side {
            following.engine.handle(now, input);
            following.sort(&mut inner.steps, numbers);
            self.tell(inner);
        }
    }

    /// Where members are, as far as a leaf knows.
    pub(crate) fn carriers(&self) -> Vec<Contact> {
        match &self.lock().side {
            Side::Leaf(following) => following.engine.contacts().cloned().collect(),
            Side::Carrier(_) | Side::Nothing => Vec::new(),
        }
    }

    /// What a leaf's machine asks; waits for it. Can be cancelled.
    pub(crate) async fn asked_by_leaf(&self) -> LeafAction {
        loop {
            if let Side::Leaf(following) = &mut self.lock().side
                && let Some(asked) = following.asked.pop_front()
            {
                return asked;
            }
            self.said.notified().await;
        }
    }
}
