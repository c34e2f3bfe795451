//! What all processes of an experiment say, in one place and in the order in which it was heard.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Instant;

use serde_json::Value;

/// Words that wait to be taken. A process that says more while nobody listens loses reports, not time.
const MAX_WAITING: usize = 4096;

/// The words of many processes.
#[derive(Debug)]
pub struct Feed {
    heard: Receiver<Heard>,
    mouth: SyncSender<Heard>,
}

/// Something that a process said.
#[derive(Debug)]
pub struct Heard {
    /// Whose place it has in the experiment.
    pub slot: usize,
    /// Which of the processes that had this place, counted from 0.
    pub life: u32,
    /// When it was read.
    pub at: Instant,
    /// What it said.
    pub word: Word,
}

/// One word of a process.
#[derive(Debug)]
pub enum Word {
    /// It printed an event.
    Said(Value),
    /// It closed its standard output: it has ended.
    Ended,
}

/// Where the reader of one process passes on what it hears.
#[derive(Debug, Clone)]
pub struct Ear {
    slot: usize,
    life: u32,
    mouth: SyncSender<Heard>,
}

impl Default for Feed {
    fn default() -> Self {
        let (mouth, heard) = sync_channel(MAX_WAITING);
        Self { heard, mouth }
    }
}

impl Feed {
    /// For the reader of the process that has a place for the `life`th time.
    pub fn ear(&self, slot: usize, life: u32) -> Ear {
        Ear { slot, life, mouth: self.mouth.clone() }
    }

    /// The next word, unless none comes until then.
    pub fn next(&self, until: Instant) -> Option<Heard> {
        let patience = until.saturating_duration_since(Instant::now());
        match self.heard.recv_timeout(patience) {
            Ok(heard) => Some(heard),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => unreachable!("the feed holds a sender itself"),
        }
    }
}

impl Ear {
    /// Passes on a word; drops it when the feed is gone.
    pub(crate) fn hear(&self, word: Word) {
        let _ = self.mouth.send(Heard { slot: self.slot, life: self.life, at: Instant::now(), word });
    }
}
