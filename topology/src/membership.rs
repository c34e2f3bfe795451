//! The machine that forms a run's views.

use std::collections::{BTreeMap, VecDeque};

use crate::config::Config;
use crate::error::Violation;
use crate::id::{PeerId, RunId};
use crate::interface::{CatchUp, Event, Input, Output, Resumption, Timer};
use crate::message::{Contact, MAX_MEMBERS};
use crate::proposal::Progress;
use crate::record::Record;
use crate::time::Time;
use crate::view::View;

/// One peer's part in a run.
#[derive(Debug)]
pub struct Membership {
    config: Config,
    view: Option<View>,
    contacts: BTreeMap<PeerId, Contact>,
    syncing: bool,
    ended: bool,
    outputs: VecDeque<Output>,
}

impl Membership {
    /// The founder of a run. Its steps are held: at step 0 or at a checkpoint's.
    pub fn found(config: Config, run: RunId, me: Contact, progress: Progress, now: Time) -> Self {
        let view = View::found(run, me.peer);
        let mut founder = Self::new(config, me, Some(view.clone()), now);
        let catch_up = CatchUp::Current;
        let resumption = Resumption { view, step: progress.step, catch_up, syncing: Vec::new() };
        founder.outputs.push_back(Output::Resume(resumption));
        founder
    }

    /// A peer that wants to be a member and knows some. Its steps are held, at step 0.
    pub fn join(config: Config, _run: RunId, me: Contact, members: Vec<Contact>, now: Time) -> Self {
        let mut joiner = Self::new(config, me, None, now);
        joiner.contacts.extend(members.into_iter().map(|contact| (contact.peer, contact)));
        joiner
    }

    /// A member whose process is gone and that starts again from its record. Its steps are held, at a checkpoint's.
    pub fn recover(
        config: Config,
        _run: RunId,
        me: Contact,
        record: Record,
        contacts: Vec<Contact>,
        _progress: Progress,
        now: Time,
    ) -> Self {
        let mut member = Self::new(config, me, Some(record.view), now);
        member.contacts.extend(contacts.into_iter().map(|contact| (contact.peer, contact)));
        member
    }

    fn new(mut config: Config, me: Contact, view: Option<View>, now: Time) -> Self {
        config.max_members = config.max_members.min(MAX_MEMBERS);
        let at = now + config.heartbeat_interval();
        let outputs = VecDeque::from([Output::SetTimer { timer: Timer::Heartbeat, at }]);
        Self { config, view, contacts: BTreeMap::from([(me.peer, me)]), syncing: false, ended: false, outputs }
    }

    /// The current view; `None` before the first.
    pub fn view(&self) -> Option<&View> {
        self.view.as_ref()
    }

    /// Whether this member is still downloading the replicated state.
    pub fn is_syncing(&self) -> bool {
        self.syncing
    }

    /// How to reach the members that we know of.
    pub fn contacts(&self) -> impl Iterator<Item = &Contact> {
        self.contacts.values()
    }

    /// Whether the machine has come to its end.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// What to do next; drain to `None` after every [`Self::handle`].
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Takes in what happened.
    ///
    /// # Errors
    /// A [`Violation`] if a peer sent what no correct peer sends. The machine is unchanged then; the driver decides
    /// whether to drop the peer.
    pub fn handle(&mut self, now: Time, input: Input) -> Result<(), Violation> {
        match input {
            Input::Leave => {
                self.ended = true;
                self.outputs.push_back(Output::Event(Event::Left));
            }
            Input::Expired(_) => {
                let at = now + self.config.heartbeat_interval();
                self.outputs.push_back(Output::SetTimer { timer: Timer::Heartbeat, at });
            }
            Input::Synced => self.syncing = false,
            Input::Received { .. }
            | Input::Suspected { .. }
            | Input::Held(_)
            | Input::Finished { .. }
            | Input::Digest { .. }
            | Input::Unable => {}
        }
        Ok(())
    }
}
