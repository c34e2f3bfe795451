//! Micro-batches that are wanted, in the order in which their turns come, and what has been read of them.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use starling_topology::Ledger;

use super::{AheadLimit, ReadBatch, draw};

/// A micro-batch that will be asked for.
pub(super) struct Wanted {
    /// Of whose pending step it is.
    ledger: Arc<Ledger>,
    positions: Vec<Range<u32>>,
}

impl Wanted {
    pub(super) fn new(ledger: Arc<Ledger>, positions: Vec<Range<u32>>) -> Self {
        Self { ledger, positions }
    }

    /// How many samples it has.
    pub(super) fn samples(&self) -> u64 {
        self.positions.iter().map(|range| u64::from(range.end - range.start)).sum()
    }

    fn is(&self, epoch: u64, positions: &[Range<u32>]) -> bool {
        self.ledger.epoch() == epoch && self.positions == positions
    }

    fn read<B, E>(&self, read: &ReadBatch<B, E>) -> Result<B, E> {
        read(&self.ledger.indices(&self.positions), draw(&self.ledger, &self.positions))
    }
}

struct Slot<B> {
    wanted: Arc<Wanted>,
    progress: Progress<B>,
}

enum Progress<B> {
    Waiting,
    Begun,
    Read(B),
}

struct State<B> {
    slots: VecDeque<Slot<B>>,
    is_closed: bool,
}

/// Such micro-batches. There is never more read than the limit says, but for what was begun before it came otherwise.
pub(super) struct BatchQueue<B> {
    limit: AheadLimit,
    state: Mutex<State<B>>,
    changed: Condvar,
}

impl<B> BatchQueue<B> {
    pub(super) fn new(limit: AheadLimit) -> Self {
        let state = Mutex::new(State { slots: VecDeque::new(), is_closed: false });
        Self { limit, state, changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State<B>> {
        // Nothing behind the lock can be left half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// These are wanted next, and no others: what was read of them stays.
    pub(super) fn expect(&self, wanted: Vec<Wanted>) {
        let mut state = self.lock();
        let mut before = std::mem::take(&mut state.slots);
        state.slots.extend(wanted.into_iter().map(|wanted| {
            // Mostly the first one.
            let known = before.iter().position(|slot| slot.wanted.is(wanted.ledger.epoch(), &wanted.positions));
            let known = known.and_then(|at| before.remove(at));
            known.unwrap_or_else(|| Slot { wanted: Arc::new(wanted), progress: Progress::Waiting })
        }));
        drop(state);
        self.changed.notify_all();
    }

    /// Takes the one at these positions out, once it is read if that has begun. `None` if it has not, or failed.
    pub(super) fn take(&self, epoch: u64, positions: &[Range<u32>]) -> Option<B> {
        let mut state = self.lock();
        loop {
            let at = state.slots.iter().position(|slot| slot.wanted.is(epoch, positions))?;
            if !matches!(state.slots[at].progress, Progress::Begun) {
                let slot = state.slots.remove(at);
                drop(state);
                // There is room for another one.
                self.changed.notify_all();
                return match slot?.progress {
                    Progress::Read(batch) => Some(batch),
                    Progress::Waiting | Progress::Begun => None,
                };
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits until there is one to read. `None` if nobody wants any more.
    pub(super) fn begin(&self) -> Option<Begun<'_, B>> {
        let mut state = self.lock();
        while !state.is_closed {
            if let Some(wanted) = state.begin(self.limit) {
                return Some(Begun { queue: self, wanted, batch: None });
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        None
    }

    /// The same without waiting.
    pub(super) fn try_begin(&self) -> Option<Begun<'_, B>> {
        let wanted = self.lock().begin(self.limit)?;
        Some(Begun { queue: self, wanted, batch: None })
    }

    /// Nobody wants any more.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }

    /// Keeps what came of one that was begun, if it is still wanted: what failed is read again in its turn, which says why it does.
    fn finish(&self, wanted: &Arc<Wanted>, batch: Option<B>) {
        let mut state = self.lock();
        if let Some(at) = state.slots.iter().position(|slot| Arc::ptr_eq(&slot.wanted, wanted)) {
            match batch {
                Some(batch) => state.slots[at].progress = Progress::Read(batch),
                None => drop(state.slots.remove(at)),
            }
        }
        drop(state);
        self.changed.notify_all();
    }
}

impl<B> State<B> {
    /// The first one that nobody has begun, if there is room for it.
    fn begin(&mut self, limit: AheadLimit) -> Option<Arc<Wanted>> {
        let bytes = |slot: &Slot<B>| slot.wanted.samples().saturating_mul(limit.of_sample);
        let waits = |slot: &Slot<B>| matches!(slot.progress, Progress::Waiting);
        let at = self.slots.iter().position(waits)?;
        // Also of those behind it, which were read for another order.
        let taken =
            self.slots.iter().filter(|slot| !waits(slot)).map(bytes).fold(bytes(&self.slots[at]), u64::saturating_add);
        (at == 0 || taken <= limit.bytes).then(|| {
            self.slots[at].progress = Progress::Begun;
            self.slots[at].wanted.clone()
        })
    }
}

/// One that is being read. However that ends, who waits for it goes on.
pub(super) struct Begun<'q, B> {
    queue: &'q BatchQueue<B>,
    wanted: Arc<Wanted>,
    batch: Option<B>,
}

impl<B> Begun<'_, B> {
    pub(super) fn read<E>(mut self, read: &ReadBatch<B, E>) {
        self.batch = self.wanted.read(read).ok();
    }
}

impl<B> Drop for Begun<'_, B> {
    fn drop(&mut self) {
        self.queue.finish(&self.wanted, self.batch.take());
    }
}

#[cfg(test)]
mod tests {
    use starling_topology::PeerId;

    use super::*;

    /// A queue that has room for two micro-batches and a half, and the four of a step.
    fn queue() -> (BatchQueue<u32>, Vec<Vec<Range<u32>>>, Arc<Ledger>) {
        let mut ledger = Ledger::new(7, 1797, 40).with_micro_batch(10);
        let me = PeerId([1; 32]);
        ledger.assign(&[me]);
        let (own, ledger) = (ledger.micro_batches_of(me), Arc::new(ledger));
        (BatchQueue::new(AheadLimit { bytes: 100, of_sample: 4 }), own, ledger)
    }

    fn wanted(ledger: &Arc<Ledger>, own: &[Vec<Range<u32>>]) -> Vec<Wanted> {
        own.iter().map(|positions| Wanted::new(ledger.clone(), positions.clone())).collect()
    }

    /// The first position of what is begun next.
    fn begin<'q>(queue: &'q BatchQueue<u32>) -> Option<(u32, Begun<'q, u32>)> {
        let begun = queue.try_begin()?;
        Some((begun.wanted.positions[0].start, begun))
    }

    #[test]
    fn no_more_is_begun_than_there_is_room_for() {
        let (queue, own, ledger) = queue();
        queue.expect(wanted(&ledger, &own));
        let (first, begun) = begin(&queue).expect("the first one");
        let (second, failing) = begin(&queue).expect("the second one");
        assert_eq!((first, second), (0, 10));
        assert!(begin(&queue).is_none(), "two take 80 of 100 bytes");
        begun.read(&|indices: &[u32], _| Ok::<_, ()>(indices[0]));
        assert!(begin(&queue).is_none(), "what was read takes room until it is taken");
        failing.read(&|_: &[u32], _| Err(()));
        let (third, begun) = begin(&queue).expect("what failed takes none");
        assert_eq!(third, 20);
        assert_eq!(queue.take(0, &own[1]), None, "it failed");
        assert_eq!(queue.take(0, &own[0]), Some(ledger.indices(&own[0])[0]));
        let (fourth, dropped) = begin(&queue).expect("the last one");
        assert_eq!(fourth, 30);
        drop((begun, dropped));
        assert_eq!((queue.take(0, &own[2]), queue.take(0, &own[3])), (None, None), "nothing came of them");
    }

    #[test]
    fn what_is_wanted_still_stays_and_what_is_not_is_forgotten() {
        let (queue, own, ledger) = queue();
        queue.expect(wanted(&ledger, &own));
        let (of_first, of_second) = (begin(&queue).expect("begun").1, begin(&queue).expect("begun").1);
        of_second.read(&|indices: &[u32], _| Ok::<_, ()>(indices[0]));
        queue.expect(wanted(&ledger, &own[1..]));
        of_first.read(&|indices: &[u32], _| Ok::<_, ()>(indices[0]));
        assert_eq!(queue.take(0, &own[0]), None, "it is not wanted any more");
        assert_eq!(queue.take(1, &own[1]), None, "of another epoch");
        assert_eq!(queue.take(0, &own[1]), Some(ledger.indices(&own[1])[0]));
        queue.close();
        assert!(queue.begin().is_none());
    }

    #[test]
    fn one_that_is_larger_than_the_limit_is_alone() {
        let (_, own, ledger) = queue();
        let queue = BatchQueue::<u32>::new(AheadLimit { bytes: 7, of_sample: 1 });
        queue.expect(wanted(&ledger, &own));
        let begun = begin(&queue);
        assert!(begun.is_some() && begin(&queue).is_none());
    }
}
