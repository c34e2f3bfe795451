//! A member's samples of a step, micro-batch by micro-batch, and when they are loaded.
//!
//! ```text
//!   trainer:   compute micro-batch 3 of step 7 | compute 4 ...        takes what is there, and waits, or reads itself, where it is not
//!   threads:   read 4, 5 of step 7, then 1, 2, ... of step 8 ...      as far ahead as bytes go, in the order in which they come
//! ```
//!
//! What comes after the pending step is what comes if its members commit it. If it comes otherwise, some was loaded in vain: what a micro-batch is
//! follows from its positions, whoever loads it, and when.

mod queue;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use starling_topology::ledger::UNMEASURED;
use starling_topology::{Ledger, PeerId};

use crate::task::DrawSeed;
use queue::{BatchQueue, Wanted};

/// More threads than these hardly make a file faster.
const MAX_THREADS: usize = 4;
/// So many steps ahead there is work for each thread, and for another one.
const MAX_STEPS_AHEAD: usize = 2 * MAX_THREADS;

/// How far ahead of their turn micro-batches are loaded beside what is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AheadLimit {
    /// How many bytes of them there may be, unless a single one has more.
    pub(crate) bytes: u64,
    /// How many a sample has.
    pub(crate) of_sample: u64,
}

impl AheadLimit {
    /// A single one.
    const ONE: Self = Self { bytes: 0, of_sample: 1 };
}

/// What makes samples of their numbers a batch.
type ReadBatch<B, E> = dyn Fn(&[u32], DrawSeed) -> Result<B, E> + Send + Sync;

/// Loads a member's micro-batches: beside what is computed, or else the first one of the next step before its turn if there is time.
pub(crate) struct Loader<B, E> {
    read: Arc<ReadBatch<B, E>>,
    limit: AheadLimit,
    /// Whether threads of its own load what comes.
    is_beside: bool,
    queue: Arc<BatchQueue<B>>,
    threads: Vec<JoinHandle<()>>,
    /// Whoever reduced the last step.
    members: Vec<PeerId>,
    /// How many steps the run takes: nothing comes behind the last one.
    steps: u64,
    /// Whether the last that was expected is a part of a share: then others compute of the next one, too, and nobody knows what.
    is_in_parts: bool,
}

impl<B: Send + 'static, E: 'static> Loader<B, E> {
    /// One that makes batches of a run of so many steps by `read`: beside what is computed if that has a limit.
    pub(crate) fn new(
        read: impl Fn(&[u32], DrawSeed) -> Result<B, E> + Send + Sync + 'static,
        beside: Option<AheadLimit>,
        steps: u64,
    ) -> Self {
        let limit = beside.unwrap_or(AheadLimit::ONE);
        let queue = Arc::new(BatchQueue::new(limit));
        let (threads, members) = (Vec::new(), Vec::new());
        let (read, is_beside) = (Arc::new(read), beside.is_some());
        Self { read, limit, is_beside, queue, threads, members, steps, is_in_parts: false }
    }

    /// Says that these micro-batches of the ledger's pending step come next, and behind them those of `me` of the steps after it, if it is said who that is.
    pub(crate) fn expect(&mut self, ledger: &Ledger, micro_batches: &[Vec<Range<u32>>], me: Option<PeerId>) {
        if !self.is_beside {
            return;
        }
        self.is_in_parts = me.is_none();
        let ledger = Arc::new(ledger.clone());
        let pending = micro_batches.iter().map(|positions| Wanted::new(ledger.clone(), positions.clone()));
        let mut wanted: Vec<Wanted> = pending.collect();
        if let Some(me) = me.filter(|_| ledger.is_assigned() && !self.members.is_empty()) {
            self.add_next(&mut wanted, ledger, me);
        }
        self.queue.expect(wanted);
        self.begin_threads();
    }

    /// What lies at these positions, a micro-batch of the ledger's pending step.
    ///
    /// # Errors
    /// Those of `read`.
    pub(crate) fn load(&self, ledger: &Ledger, micro_batch: &[Range<u32>]) -> Result<B, E> {
        match self.queue.take(ledger.epoch(), micro_batch) {
            Some(batch) => Ok(batch),
            // What could not be read before its turn says why in it.
            None => (self.read)(&ledger.indices(micro_batch), draw(ledger, micro_batch)),
        }
    }

    /// Loads what will be micro-batches of `me` of the steps after the pending one if `members` commit that, and nobody's speed
    /// says that shares should change: without threads, or if shares are computed in parts, the first one.
    pub(crate) fn load_ahead(&mut self, ledger: &Ledger, members: &[PeerId], me: PeerId) {
        self.members = members.to_vec();
        let mut wanted = Vec::new();
        self.add_next(&mut wanted, Arc::new(ledger.clone()), me);
        if !self.is_beside || self.is_in_parts {
            wanted.truncate(1);
        }
        self.queue.expect(wanted);
        if self.is_beside {
            return self.begin_threads();
        }
        if let Some(first) = self.queue.try_begin() {
            first.read(&*self.read);
        }
    }

    /// Adds what comes in the steps after the ledger's, as far as there is room.
    fn add_next(&self, wanted: &mut Vec<Wanted>, ledger: Arc<Ledger>, me: PeerId) {
        let AheadLimit { bytes, of_sample } = self.limit;
        let bytes_of = |wanted: &Wanted| wanted.samples().saturating_mul(of_sample);
        let mut planned = wanted.iter().map(bytes_of).fold(0, u64::saturating_add);
        let mut next = ledger;
        for _ in 0..MAX_STEPS_AHEAD {
            if next.step() >= self.steps {
                return;
            }
            let mut after = Ledger::clone(&next);
            after.commit(next.step(), &self.members, &vec![UNMEASURED; self.members.len()]);
            next = Arc::new(after);
            let own = next.micro_batches_of(me).into_iter().map(|positions| Wanted::new(next.clone(), positions));
            let before = wanted.len();
            wanted.extend(own);
            planned = wanted[before..].iter().map(bytes_of).fold(planned, u64::saturating_add);
            if planned > bytes {
                return;
            }
        }
    }

    /// Begins the threads, unless they are there.
    fn begin_threads(&mut self) {
        if !self.threads.is_empty() {
            return;
        }
        let count = thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
        let begun = (0..count).map_while(|_| {
            let (queue, read) = (self.queue.clone(), self.read.clone());
            let work = move || {
                while let Some(next) = queue.begin() {
                    next.read(&*read);
                }
            };
            // Without a thread, all is read in its turn.
            thread::Builder::new().name("starling-loader".to_owned()).spawn(work).ok()
        });
        self.threads = begun.collect();
    }
}

impl<B, E> Drop for Loader<B, E> {
    /// Waits for what is being read.
    fn drop(&mut self) {
        self.queue.close();
        // One that panicked has told so.
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

impl<B, E> fmt::Debug for Loader<B, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loader")
            .field("limit", &self.limit)
            .field("threads", &self.threads.len())
            .finish_non_exhaustive()
    }
}

/// What is random about a micro-batch of the ledger's pending step.
pub(super) fn draw(ledger: &Ledger, micro_batch: &[Range<u32>]) -> DrawSeed {
    let first = micro_batch.first().map_or(0, |range| range.start);
    DrawSeed::new(ledger.seed(), ledger.epoch(), first)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::sync::mpsc::sync_channel;

    use super::*;

    const SEED: u64 = 7;
    const SAMPLES: u32 = 1797;

    fn peers(names: &[u8]) -> Vec<PeerId> {
        names.iter().map(|name| PeerId([*name; 32])).collect()
    }

    /// Through several epochs, with members that come and go and one that turns out to be slow: what was loaded ahead is what
    /// would have been loaded otherwise, and whenever nothing has changed it was not in vain.
    #[test]
    fn what_is_loaded_ahead_is_what_is_needed() {
        for micro_batch in [0, 8] {
            for limit in
                [None, Some(AheadLimit { bytes: 0, of_sample: 1 }), Some(AheadLimit { bytes: 9, of_sample: 1 })]
            {
                check(Ledger::new(SEED, SAMPLES, 96).with_micro_batch(micro_batch), limit);
            }
            check(
                Ledger::new(SEED, SAMPLES, 96).with_micro_batch(micro_batch),
                Some(AheadLimit { bytes: 1 << 20, of_sample: 1 }),
            );
        }
    }

    /// Through a run of 40 steps.
    fn check(mut ledger: Ledger, limit: Option<AheadLimit>) {
        let me = peers(&[2])[0];
        let mut members = peers(&[1, 2, 3]);
        ledger.assign(&members);
        let reads = Arc::new(AtomicUsize::new(0));
        let counted = reads.clone();
        let read = |indices: &[u32], draw: DrawSeed| Ok::<_, ()>((indices.to_vec(), draw));
        let counting = move |indices: &[u32], draw: DrawSeed| {
            counted.fetch_add(1, SeqCst);
            read(indices, draw)
        };
        let mut loader = Loader::new(counting, limit, 40);
        let mut needed = 0;
        for step in 1..=40 {
            let own = ledger.micro_batches_of(me);
            loader.expect(&ledger, &own, Some(me));
            for part in &own {
                needed += 1;
                let expected = read(&ledger.indices(part), draw(&ledger, part));
                assert_eq!(loader.load(&ledger, part), expected, "step {step}");
            }
            loader.load_ahead(&ledger, &members, me);
            let speeds: Vec<u32> = match step {
                10 => {
                    members = peers(&[2, 3]);
                    vec![100, 100]
                }
                20 => {
                    members = peers(&[1, 2, 3]);
                    vec![100, 100, 20]
                }
                _ => vec![UNMEASURED; members.len()],
            };
            ledger.commit(step, &members, &speeds);
        }
        assert!(ledger.epoch() >= 2, "the order changes");
        drop(loader);
        let in_vain = reads.load(SeqCst) - needed;
        // In few steps it came otherwise. Threads may have read some of the eight steps behind each.
        let most = if limit.is_none() { 5 } else { 5 * MAX_STEPS_AHEAD * 12 };
        assert!(in_vain <= most && (limit.is_some() || in_vain > 1), "{in_vain} besides {needed}");
    }

    #[test]
    fn threads_read_before_anybody_asks() {
        let me = peers(&[1])[0];
        let mut ledger = Ledger::new(SEED, SAMPLES, 40).with_micro_batch(10);
        ledger.assign(&[me]);
        let (begun, begins) = sync_channel(100);
        let read = move |indices: &[u32], _: DrawSeed| begun.send((thread::current().id(), indices.to_vec()));
        let mut loader = Loader::new(read, Some(AheadLimit { bytes: 1 << 20, of_sample: 1 }), 100);
        // So that it is known who will reduce.
        loader.load_ahead(&ledger, &[me], me);
        let mut next = ledger.clone();
        next.commit(1, &[me], &[UNMEASURED]);
        // All four of each of eight steps.
        let mut read: Vec<_> = begins.iter().take(4 * MAX_STEPS_AHEAD).collect();
        assert!(read.iter().all(|(reader, _)| *reader != thread::current().id()));
        let first = next.indices(&next.micro_batches_of(me)[0]);
        read.retain(|(_, indices)| *indices == first);
        assert_eq!(read.len(), 1, "what comes next is among them, once");
    }

    #[test]
    fn nothing_is_read_behind_the_last_step_and_little_of_shares_in_parts() {
        let me = peers(&[1])[0];
        let mut ledger = Ledger::new(SEED, SAMPLES, 40).with_micro_batch(10);
        ledger.assign(&[me]);
        for (steps, is_in_parts, most) in [(1, false, 0), (3, false, 8), (100, true, 1)] {
            let reads = Arc::new(AtomicUsize::new(0));
            let counted = reads.clone();
            let read = move |_: &[u32], _: DrawSeed| {
                counted.fetch_add(1, SeqCst);
                Ok::<_, ()>(())
            };
            let mut loader = Loader::new(read, Some(AheadLimit { bytes: 1 << 20, of_sample: 1 }), steps);
            let own = ledger.micro_batches_of(me);
            if is_in_parts {
                loader.expect(&ledger, &own[..1], None);
                loader.load(&ledger, &own[0]).expect("read");
            }
            loader.load_ahead(&ledger, &[me], me);
            let of_part = usize::from(is_in_parts);
            let mut next = ledger.clone();
            for step in 1..=most / own.len() as u64 {
                next.commit(step, &[me], &[UNMEASURED]);
                let wanted = next.micro_batches_of(me);
                wanted.iter().for_each(|wanted| loader.load(&next, wanted).expect("read"));
            }
            drop(loader);
            assert!(reads.load(SeqCst) <= most as usize + of_part, "{steps}");
        }
    }

    #[test]
    fn errors_come_in_the_turn_of_what_they_are_of() {
        let me = peers(&[1])[0];
        let mut ledger = Ledger::new(SEED, SAMPLES, 40).with_micro_batch(10);
        ledger.assign(&[me]);
        let own = ledger.micro_batches_of(me);
        let bad = ledger.indices(&own[2])[3];
        let read = move |indices: &[u32], _: DrawSeed| match indices.contains(&bad) {
            true => Err(bad),
            false => Ok(indices.len()),
        };
        let mut loader = Loader::new(read, Some(AheadLimit { bytes: 1 << 20, of_sample: 1 }), 100);
        loader.expect(&ledger, &own, None);
        let loaded: Vec<_> = own.iter().map(|part| loader.load(&ledger, part)).collect();
        assert_eq!(loaded, [Ok(10), Ok(10), Err(bad), Ok(10)]);
    }

    #[test]
    fn a_reader_that_panics_leaves_nobody_waiting() {
        let me = peers(&[1])[0];
        let mut ledger = Ledger::new(SEED, SAMPLES, 40).with_micro_batch(10);
        ledger.assign(&[me]);
        let own = ledger.micro_batches_of(me);
        let trainer = thread::current().id();
        let read = move |indices: &[u32], _: DrawSeed| {
            assert!(thread::current().id() == trainer, "this panic belongs to a test");
            Ok::<_, ()>(indices.len())
        };
        let mut loader = Loader::new(read, Some(AheadLimit { bytes: 1 << 20, of_sample: 1 }), 100);
        loader.expect(&ledger, &own, None);
        assert!(own.iter().all(|part| loader.load(&ledger, part) == Ok(10)));
    }
}
