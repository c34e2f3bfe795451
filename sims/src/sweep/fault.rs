//! What can go wrong, as plain data: a run's faults are all known before it begins, so that they can be left out one by
//! one until only those are there that matter.

use std::fmt;
use std::time::Duration;

use crate::hardware::network::Seat;
use crate::steps::message::Lane;
use crate::sweep::coverage::Phase;

/// Something that happens to a run from outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// When.
    pub when: When,
    /// What.
    pub kind: Kind,
}

/// When a fault happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// So long after the first member has committed that step; step 0 is the start.
    After {
        /// The step.
        step: u64,
        /// The time after it.
        delay: Duration,
    },
    /// Before so many messages have been delivered.
    Delivery(u64),
    /// As soon as a member is in a phase.
    Phase(Seat, Phase),
}

/// What happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A new peer asks to join.
    Join(Seat),
    /// The user of a peer wants it to leave in order.
    Leave(Seat),
    /// The user of a peer that has left starts it again.
    Return(Seat),
    /// A process dies, and starts again after a while.
    Crash(Seat, Crash),
    /// A process stops, and goes on after a while; its connections stay open.
    Pause(Seat, Duration),
    /// A machine computes so many times slower for a while.
    Slow(Seat, u32, Duration),
    /// A disk has no room for a while.
    DiskFull(Seat, Duration),
    /// A disk takes nothing for a while: it says so.
    DiskReadOnly(Seat, Duration),
    /// A disk does not answer for a while.
    DiskHangs(Seat, Duration),
    /// A connection breaks. A new one may be opened at once.
    Break(Seat, Seat, Lane),
    /// Nothing gets from one machine to another for a while; the other direction is open.
    Cut(Seat, Seat, Duration),
    /// Nothing gets from these machines to the others or back for a while.
    Partition(Vec<Seat>, Duration),
    /// Nothing gets to or from one machine for a while.
    Clog(Seat, Duration),
    /// The next segment that a machine sends is lost, and nothing else: its connection stays open, as if what forwards it had
    /// forgotten it.
    Swallow(Seat),
    /// A machine's clock leaps ahead, as after it has slept.
    Jump(Seat, Duration),
    /// A queue of a process takes nothing for a while.
    Full(Seat, Queue, Duration),
    /// Somebody copies what a machine has on disk to another one, and starts it there: two processes have one identity.
    Twin(Seat, Copied),
    /// The router of a leaf's machine lets others in from now on: it may be a member itself.
    Opens(Seat),
    /// A machine lacks these files of the data for a while: they are on their way to it.
    Lacks(Seat, FileSet, Duration),
}

/// So many files the data of a run has, each as many samples as the others.
pub const FILES: u32 = 8;
/// Some of them, as bits.
pub type FileSet = u8;

/// What is copied to another machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Copied {
    /// All that is on the disk.
    Disk,
    /// The key alone.
    Key,
}

/// A bounded queue of a process that drops what it has no room for. Where the others are full, their senders wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Queue {
    /// Membership messages to each of the others: one that finds no room is lost, and its connection is closed.
    Control,
    /// What is to be written: a checkpoint that finds no room is left out, and so are signatures. The last state waits.
    Saver,
}

/// How a process dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Crash {
    /// How long it stays down.
    pub down: Duration,
    /// Whether its machine is gone with it, so that no kernel says farewell.
    pub power: bool,
    /// What becomes of its disk.
    pub fate: DiskFate,
    /// Whether it dies just before (`Some(false)`) or just after (`Some(true)`) the next record it writes.
    pub at_record: Option<bool>,
}

impl Crash {
    /// What it is called.
    pub fn name(&self) -> &'static str {
        match self {
            Self { fate: DiskFate::Wiped | DiskFate::Flipped | DiskFate::Torn, .. } => "loses its disk",
            Self { fate: DiskFate::CheckpointsLost | DiskFate::SavedLost | DiskFate::MarkLost, .. } => "loses its disk",
            Self { fate: DiskFate::SeatLost | DiskFate::ListLost, .. } => "loses its disk",
            Self { fate: DiskFate::SetBack, .. } => "disk comes back old",
            Self { at_record: Some(false), .. } => "dies before a record",
            Self { at_record: Some(true), .. } => "dies after a record",
            Self { power: true, .. } => "loses its power",
            Self { power: false, .. } => "dies",
        }
    }
}

/// What becomes of the disk of a peer that dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskFate {
    /// All that was synced is there.
    Kept,
    /// Nothing is left.
    Wiped,
    /// One bit is wrong.
    Flipped,
    /// The newest checkpoint is cut short.
    Torn,
    /// All checkpoints are gone, and nothing else.
    CheckpointsLost,
    /// What it had saved can't be read any more, and the checkpoints are there.
    MarkLost,
    /// All checkpoints are gone, and what it had saved can't be read either.
    SavedLost,
    /// It is as it was at an earlier moment: somebody has put a copy back.
    SetBack,
    /// The record can't be read, neither slot of it.
    SeatLost,
    /// The list of those whom it knows can't be read.
    ListLost,
}

impl Kind {
    /// What all kinds that are counted are called. Joins and returns are not, nor is data on its way: there is no member yet.
    pub const NAMES: [&'static str; 21] = [
        "leaves",
        "dies",
        "loses its power",
        "dies before a record",
        "dies after a record",
        "loses its disk",
        "pauses",
        "is slow",
        "disk full",
        "disk read-only",
        "disk hangs",
        "connection breaks",
        "cut off one way",
        "partition",
        "clogged",
        "segment lost",
        "disk comes back old",
        "clock jumps",
        "control queue full",
        "saver queue full",
        "twin starts",
    ];

    /// What it is called.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Join(_) => "joins",
            Self::Leave(_) => "leaves",
            Self::Return(_) => "returns",
            Self::Crash(_, crash) => crash.name(),
            Self::Pause(..) => "pauses",
            Self::Slow(..) => "is slow",
            Self::DiskFull(..) => "disk full",
            Self::DiskReadOnly(..) => "disk read-only",
            Self::DiskHangs(..) => "disk hangs",
            Self::Break(..) => "connection breaks",
            Self::Cut(..) => "cut off one way",
            Self::Partition(..) => "partition",
            Self::Clog(..) => "clogged",
            Self::Swallow(_) => "segment lost",
            Self::Jump(..) => "clock jumps",
            Self::Full(_, Queue::Control, _) => "control queue full",
            Self::Full(_, Queue::Saver, _) => "saver queue full",
            Self::Twin(..) => "twin starts",
            Self::Opens(_) => "router opens",
            Self::Lacks(..) => "data on its way",
        }
    }

    /// All machines that it happens to.
    pub fn seats(&self) -> Vec<Seat> {
        match self {
            Self::Break(one, other, _) | Self::Cut(one, other, _) => vec![*one, *other],
            Self::Partition(side, _) => side.clone(),
            Self::Join(_)
            | Self::Leave(_)
            | Self::Return(_)
            | Self::Crash(..)
            | Self::Pause(..)
            | Self::Slow(..)
            | Self::DiskFull(..)
            | Self::DiskReadOnly(..)
            | Self::DiskHangs(..)
            | Self::Clog(..)
            | Self::Swallow(_)
            | Self::Jump(..)
            | Self::Twin(..)
            | Self::Opens(_)
            | Self::Lacks(..)
            | Self::Full(..) => self.seat().into_iter().collect(),
        }
    }

    /// How long it lasts.
    pub fn lasts(&self) -> Duration {
        match self {
            Self::Join(_)
            | Self::Leave(_)
            | Self::Return(_)
            | Self::Break(..)
            | Self::Swallow(_)
            | Self::Jump(..)
            | Self::Opens(_)
            | Self::Twin(..) => Duration::ZERO,
            Self::Crash(_, crash) => crash.down,
            Self::Pause(_, lasts)
            | Self::Slow(_, _, lasts)
            | Self::DiskFull(_, lasts)
            | Self::DiskReadOnly(_, lasts)
            | Self::DiskHangs(_, lasts)
            | Self::Cut(_, _, lasts)
            | Self::Partition(_, lasts)
            | Self::Full(_, _, lasts)
            | Self::Lacks(_, _, lasts)
            | Self::Clog(_, lasts) => *lasts,
        }
    }

    /// The machine that leaves, if one does.
    pub fn leaver(&self) -> Option<Seat> {
        if let Self::Leave(seat) = self { Some(*seat) } else { None }
    }

    /// The machine that it happens to, if it is one.
    pub fn seat(&self) -> Option<Seat> {
        match self {
            Self::Join(seat)
            | Self::Leave(seat)
            | Self::Return(seat)
            | Self::Crash(seat, _)
            | Self::Pause(seat, _)
            | Self::Slow(seat, ..)
            | Self::DiskFull(seat, _)
            | Self::DiskReadOnly(seat, _)
            | Self::DiskHangs(seat, _)
            | Self::Clog(seat, _)
            | Self::Jump(seat, _)
            | Self::Twin(seat, _)
            | Self::Opens(seat)
            | Self::Full(seat, ..)
            | Self::Lacks(seat, ..)
            | Self::Swallow(seat) => Some(*seat),
            Self::Break(..) | Self::Cut(..) | Self::Partition(..) => None,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.when {
            When::After { step, delay } => write!(f, "{delay:?} after step {step}: {}", self.kind),
            When::Delivery(count) => write!(f, "before delivery {count}: {}", self.kind),
            When::Phase(seat, phase) => write!(f, "when peer {seat} {phase}: {}", self.kind),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Join(seat) => write!(f, "peer {seat} joins"),
            Self::Leave(seat) => write!(f, "peer {seat} leaves"),
            Self::Return(seat) => write!(f, "peer {seat} is started again if it has left"),
            Self::Crash(seat, Crash { down, power, fate, at_record }) => {
                let what = if *power { "loses its power" } else { "dies" };
                let when = match at_record {
                    None => "",
                    Some(false) => " before its next record",
                    Some(true) => " after its next record",
                };
                write!(f, "peer {seat} {what}{when} for {down:?}, disk {fate:?}")
            }
            Self::Pause(seat, lasts) => write!(f, "peer {seat} pauses for {lasts:?}"),
            Self::Slow(seat, factor, lasts) => write!(f, "peer {seat} is {factor} times slower for {lasts:?}"),
            Self::DiskFull(seat, lasts) => write!(f, "the disk of peer {seat} is full for {lasts:?}"),
            Self::DiskReadOnly(seat, lasts) => write!(f, "the disk of peer {seat} is read-only for {lasts:?}"),
            Self::DiskHangs(seat, lasts) => write!(f, "the disk of peer {seat} hangs for {lasts:?}"),
            Self::Break(a, b, lane) => write!(f, "the {lane:?} connection of peers {a} and {b} breaks"),
            Self::Cut(from, to, lasts) => write!(f, "nothing gets from peer {from} to peer {to} for {lasts:?}"),
            Self::Partition(side, lasts) => write!(f, "peers {side:?} are cut off for {lasts:?}"),
            Self::Clog(seat, lasts) => write!(f, "peer {seat} is clogged for {lasts:?}"),
            Self::Swallow(seat) => write!(f, "the next segment that peer {seat} sends is lost"),
            Self::Jump(seat, by) => write!(f, "the clock of peer {seat} jumps ahead by {by:?}"),
            Self::Twin(seat, Copied::Disk) => write!(f, "the disk of peer {seat} is copied, and its twin starts"),
            Self::Twin(seat, Copied::Key) => write!(f, "the key of peer {seat} is copied, and its twin starts"),
            Self::Opens(seat) => write!(f, "the router of peer {seat} lets others in"),
            Self::Lacks(seat, files, lasts) => {
                write!(f, "files {files:08b} of the data are on their way to peer {seat} for {lasts:?}")
            }
            Self::Full(seat, queue, lasts) => write!(f, "the {queue:?} queue of peer {seat} is full for {lasts:?}"),
        }
    }
}
