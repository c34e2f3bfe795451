//! What will happen, in order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use starling_topology::Time;

/// Events by time. Those of one instant come out in the order in which they went in, so a run has one order only.
#[derive(Debug)]
pub struct Queue<T> {
    /// When, the how manieth, and where it lies: events are large, and a heap moves what is in it again and again.
    heap: BinaryHeap<Reverse<(Time, u64, usize)>>,
    events: Vec<Option<T>>,
    /// Places in `events` that nothing lies at.
    free: Vec<usize>,
    sequence: u64,
}

impl<T> Queue<T> {
    /// A queue with nothing in it.
    pub fn new() -> Self {
        Self { heap: BinaryHeap::new(), events: Vec::new(), free: Vec::new(), sequence: 0 }
    }

    /// `event` will happen at `at`.
    pub fn push(&mut self, at: Time, event: T) {
        self.sequence += 1;
        let place = self.free.pop().unwrap_or_else(|| {
            self.events.push(None);
            self.events.len() - 1
        });
        self.events[place] = Some(event);
        self.heap.push(Reverse((at, self.sequence, place)));
    }

    /// What happens next, and when.
    pub fn pop(&mut self) -> Option<(Time, T)> {
        let Reverse((at, _, place)) = self.heap.pop()?;
        self.free.push(place);
        Some((at, self.events[place].take()?))
    }
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_then_by_arrival() {
        let mut queue = Queue::new();
        for (nanos, name) in [(5, 'a'), (3, 'b'), (5, 'c'), (0, 'd'), (3, 'e')] {
            queue.push(Time::from_nanos(nanos), name);
        }
        let order: String = std::iter::from_fn(|| queue.pop()).map(|(_, name)| name).collect();
        assert_eq!(order, "dbeac");
    }
}
