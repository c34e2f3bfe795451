//! A machine: a disk that stays, and a process that comes and goes.

use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use starling_engine::return_engine::ReturnOptions;
use starling_engine::{ReturnEngine, Search};
use starling_topology::{Contact, Event, Follower, Lineage, PeerId, Record, Root, Time, View, ViewHistory};

use crate::hardware::machine::disk::{Disk, Name};
use crate::hardware::network::Seat;
use crate::hardware::network::rng::Rng;
use crate::hostile::Liar;
use crate::peer::Peer;
use crate::peer::leaf::Leaf;
use crate::steps::state::State;
use crate::sweep::coverage::{Phase, SEEKS};
use crate::sweep::fault::{Crash, FileSet, Queue};
use crate::verdict::invariants::Broken;
use crate::world::{Looking, SimEvent};

/// A clock's drift is told in this part of its rate.
pub const RATE: i64 = 10_000;

/// So many copies of a disk are kept: a few records and checkpoints back.
const MAX_COPIES: usize = 8;

/// One machine of a world.
#[derive(Debug)]
pub struct Host {
    /// Its peer's name and addresses: the key survives the process.
    pub contact: Contact,
    /// The process, if one runs.
    pub peer: Option<Peer>,
    /// The process of a leaf, if that runs here.
    pub leaf: Option<Box<Leaf>>,
    /// What its process does before it takes part, while it does that.
    pub return_engine: Option<Box<ReturnEngine>>,
    /// Whom it asks then.
    pub seeking: Option<Box<Search>>,
    /// Whether that has brought a checkpoint.
    pub has_fetched: bool,
    /// When it was started, by its clock.
    pub begun: Time,
    /// Whether its process asks to be let in although a record lies on its disk: by its user's word it has given that seat up.
    pub is_outside: bool,
    /// What its user says when it is started next, if that is known.
    pub choice: Option<ReturnOptions>,
    /// Whether its user has a ticket then that names somebody who is there.
    pub guided: bool,
    /// How its process looks whether another one is it, if it knows a place where that may be.
    pub looking: Option<Box<Looking>>,
    /// The other machines where its peer was last heard of, as its disk says.
    pub places: BTreeSet<Seat>,
    /// The other machine with its name, if both have taken part.
    pub twin: Option<Seat>,
    /// The checkpoints that it has fetched so.
    pub fetched: BTreeSet<Name>,
    /// The keepers that its process knows.
    pub keepers: BTreeSet<PeerId>,
    /// When it tells others that it is one, next, if it is a keeper.
    pub announces: Time,
    /// What it follows, if it is a keeper whose process runs.
    pub keeper: Option<Box<Follower>>,
    /// Which views the run has had, as far as its disk says.
    pub history: ViewHistory,
    /// Whether it has the founder's key.
    pub has_key: bool,
    /// Counts its processes.
    pub incarnation: u32,
    /// What it has on disk.
    pub disk: Disk,
    /// Copies of it as it was, the newest last, if one of them is to be put back.
    pub copies: Option<VecDeque<Disk>>,
    /// Whether it is one of them: it does not know all that its peer has said.
    pub set_back: bool,
    /// Whether its process has told its user so.
    pub told: bool,
    /// Whether it has come back since it was told that the run has finished.
    pub refused: bool,
    /// Whether it was started again since it was alone beside those who go on.
    pub reunited: bool,
    /// The alarms that its process waits for, by its clock.
    pub alarms: BTreeSet<Time>,
    /// Which queues of its process take nothing.
    pub full: BTreeSet<Queue>,
    /// Whether the next segment that it sends is lost.
    pub swallows: bool,
    /// Which checkpoints are of the branch that its peer is on, as far as the one knows that writes them.
    pub root: Root,
    /// When the disk is done with what is to be saved.
    pub saves_until: Time,
    /// How far its clock was ahead of the world's when that began.
    pub ahead: Duration,
    /// How much faster its clock runs, in [`RATE`]th.
    pub drift: i64,
    /// What waits for a stopped process.
    pub stopped: Option<Vec<SimEvent>>,
    /// The record that is on its way to its disk.
    pub storing: Option<Rc<Record>>,
    /// When the disk was last done with one that took it long.
    pub late_until: Time,
    /// What waits for a disk that hangs.
    pub stalled: Vec<SimEvent>,
    /// Whether its disk has lost something, or has written what it was not told.
    pub damaged: bool,
    /// Whether the machine itself is off.
    pub off: bool,
    /// How many times slower it computes.
    pub slower: u32,
    /// Until when it computes what it began while it was slow.
    pub computes_until: Time,
    /// How many samples it computes in a unit of time.
    pub speed: u32,
    /// The files of the data that are still on their way to it.
    pub lacking: FileSet,
    /// How it dies with its next record.
    pub doomed: Option<Crash>,
    /// Whether it has ever been started.
    pub started: bool,
    /// Whether a record of it was ever stored: before that, nobody has heard anything that would bind it.
    pub has_stored: bool,
    /// When its last process died.
    pub died: Time,
    /// Whether its user told it to leave.
    pub leaving: bool,
    /// How the run ended for it.
    pub ended: Option<Event>,
    /// When its process has completed the run: it may stay for others.
    pub completed: Option<Time>,
    /// Since when it has written the state after the last step.
    pub has_last: Option<Time>,
    /// Who was started again to bring it the end that it waits for.
    pub brought: Option<Seat>,
    /// Whether its last process ended by itself, and its user starts it again.
    pub gave_up: bool,
    /// How often it was started again because nobody had the state.
    pub stranded: u32,
    /// Whether it ended for what a hostile peer said when the others had completed the run, and were gone.
    pub left_to_liars: bool,
    /// What it says besides, if its peer is hostile.
    pub liar: Option<Box<Liar>>,
}

impl Host {
    /// What its process has committed in the view that it steps in counts on its disk.
    ///
    /// # Errors
    /// If it saves this in vain, as its root is beside it.
    pub fn keeps_its_own(&self, state: &State) -> Result<(), Broken> {
        let is_of = |view: &View| Lineage::of(view) == state.lineage;
        let is_ours = self.peer.as_ref().and_then(Peer::view).is_some_and(is_of);
        match is_ours && !self.root.admits(state.step, state.lineage) {
            true => Err(Broken::new("saves_what_it_commits", format!("step {} is not of its branch", state.step))),
            false => Ok(()),
        }
    }

    /// A machine that has never run.
    pub fn new(contact: Contact, ahead: Duration, speed: u32) -> Self {
        Self {
            contact,
            peer: None,
            leaf: None,
            return_engine: None,
            seeking: None,
            has_fetched: false,
            begun: Time::ZERO,
            is_outside: false,
            choice: None,
            guided: false,
            looking: None,
            places: BTreeSet::new(),
            twin: None,
            fetched: BTreeSet::new(),
            keepers: BTreeSet::new(),
            announces: Time::ZERO,
            keeper: None,
            history: ViewHistory::default(),
            has_key: false,
            incarnation: 0,
            disk: Disk::default(),
            copies: None,
            set_back: false,
            told: false,
            refused: false,
            reunited: false,
            alarms: BTreeSet::new(),
            full: BTreeSet::new(),
            swallows: false,
            root: Root::default(),
            saves_until: Time::ZERO,
            ahead,
            drift: 0,
            stopped: None,
            storing: None,
            late_until: Time::ZERO,
            stalled: Vec::new(),
            damaged: false,
            off: false,
            slower: 1,
            lacking: 0,
            computes_until: Time::ZERO,
            speed,
            doomed: None,
            started: false,
            has_stored: false,
            died: Time::ZERO,
            leaving: false,
            ended: None,
            completed: None,
            has_last: None,
            brought: None,
            gave_up: false,
            stranded: 0,
            left_to_liars: false,
            liar: None,
        }
    }

    /// One whose name, clock and speed `rng` determines, and its place in the world.
    pub fn draw(rng: &mut Rng, seat: Seat) -> Self {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&rng.bits().to_be_bytes());
        bytes[8..16].copy_from_slice(&seat.to_be_bytes());
        let contact = Contact { peer: PeerId(bytes), addresses: Vec::new() };
        let speed = u32::try_from(rng.between(50, 1_000)).unwrap_or(50);
        Self::new(contact, rng.micros(0, 3_600_000_000), speed)
    }

    /// Keeps a copy of its disk as it is now, if one is to be put back later.
    pub fn copy_disk(&mut self) {
        let Some(copies) = &mut self.copies else { return };
        copies.push_back(self.disk.clone());
        if copies.len() > MAX_COPIES {
            copies.pop_front();
        }
    }

    /// Whether a process runs.
    pub fn is_up(&self) -> bool {
        self.peer.is_some() || self.return_engine.is_some() || self.looking.is_some()
    }

    /// What its process does.
    pub fn phase(&self) -> Option<Phase> {
        let seeks = (self.return_engine.is_some() || self.looking.is_some()).then_some(SEEKS);
        self.peer.as_ref().map(Peer::phase).or(seeks)
    }

    /// Its peer's name.
    pub fn name(&self) -> PeerId {
        self.contact.peer
    }

    /// Whether what it does is judged. Nothing is promised of one that another is, too, but to the others.
    pub fn is_judged(&self) -> bool {
        !self.is_hostile() && self.twin.is_none()
    }

    /// Whether its peer is hostile: then nothing is promised of it.
    pub fn is_hostile(&self) -> bool {
        self.liar.is_some()
    }

    /// Whether it takes part in the run, or will again.
    pub fn is_in_the_run(&self) -> bool {
        self.started && self.ended.is_none()
    }

    /// What its clock says when the world's says `now`.
    pub fn clock(&self, now: Time) -> Time {
        Time::ZERO + self.ahead + scaled(now, RATE + self.drift, RATE)
    }

    /// When it is for the world when this clock says `at`, or a moment later.
    pub fn world_time(&self, at: Time) -> Time {
        let since = Time::ZERO + (at - (Time::ZERO + self.ahead));
        let later = Duration::from_nanos(u64::from(self.drift != 0));
        Time::ZERO + scaled(since, RATE, RATE + self.drift) + later * 2
    }
}

fn scaled(time: Time, by: i64, of: i64) -> Duration {
    let nanos = i128::from(time.as_nanos()) * i128::from(by) / i128::from(of);
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use starling_topology::PeerId;

    #[test]
    fn a_clock_that_drifts_is_never_read_too_early() {
        for drift in [-200, -7, 0, 1, 200] {
            let contact = Contact { peer: PeerId([1; 32]), addresses: Vec::new() };
            let host = Host { drift, ..Host::new(contact, Duration::from_secs(7), 1) };
            for nanos in (1..9_000_000_000).step_by(777_777_777) {
                let at = host.clock(Time::from_nanos(nanos)) + Duration::from_nanos(nanos % 1_000);
                let seen = host.clock(host.world_time(at));
                assert!(seen >= at && seen - at < Duration::from_nanos(9), "{drift}: {seen:?}, {at:?}");
            }
        }
    }
}
