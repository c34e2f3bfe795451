//! A direct link over several connections at once. Far away, one alone is bound by its window, or slowed down by each packet
//! that is lost, long before the network is full.
//!
//! A segment takes whichever connection is free, so segments overtake each other. Schedules don't mind that within an
//! operation. A connection that is already at the next operation waits for it. And what the end of one overtakes still counts.

use std::time::Duration;

use starling_collective::SegmentHeader;
use tokio::time::{Instant, timeout_at};

use crate::LinkConfig;
use crate::direct::{Receiver, Sender};
use crate::error::ConnectionError;
use crate::greeting::first::first;
use crate::greeting::handshake::Connection;

/// How long others may still bring something after one connection has ended: as long as packets may be late that were sent
/// before.
const GRACE: Duration = Duration::from_secs(1);

/// How many times faster than it must be a record is to be sent. Where it is slower, so is the way, and not the connection: fewer
/// of them share it then, each of which has to carry a record in time.
const LEEWAY: u32 = 8;

/// The sending end: at least one connection.
#[derive(Debug)]
pub(crate) struct ParallelSender {
    senders: Vec<Sender>,
    /// How many of them are in use, the first ones.
    used: usize,
    /// Longer than this no record should take.
    slow: Duration,
}

impl ParallelSender {
    /// Over the sockets of `connections`, none of which is local.
    pub(crate) fn new(connections: Vec<Connection>, config: &LinkConfig) -> Self {
        let senders = connections.into_iter().map(|connection| Sender::new(connection, config)).collect();
        Self { senders, used: 1, slow: config.limits.record / LEEWAY }
    }

    /// Whether anything is on its way.
    pub(crate) fn is_busy(&self) -> bool {
        self.senders.iter().any(Sender::is_busy)
    }

    /// Whether a segment can be [loaded](Self::load).
    pub(crate) fn has_room(&self) -> bool {
        self.senders[..self.used].iter().any(|sender| !sender.is_busy())
    }

    /// As [`Sender::load`], over a connection that is free.
    ///
    /// # Panics
    /// If none is.
    pub(crate) fn load(&mut self, header: &SegmentHeader, payload_bytes: usize, write: impl FnOnce(&mut [u8])) {
        let free = self.senders[..self.used].iter_mut().find(|sender| !sender.is_busy());
        free.expect("invariant: only as much is loaded as there is room for").load(header, payload_bytes, write);
    }

    /// Whether [`Self::pass_on`] has room.
    pub(crate) fn can_pass_on(&self) -> bool {
        self.senders[..self.used].iter().any(Sender::can_pass_on)
    }

    /// As [`Sender::pass_on`], over a connection that is free if there is one.
    ///
    /// # Panics
    /// If there is no room.
    pub(crate) fn pass_on(&mut self, header: &SegmentHeader, receiver: &mut ParallelReceiver) {
        let roomy = self.senders[..self.used].iter_mut().filter(|sender| sender.can_pass_on());
        let best = roomy.min_by_key(|sender| sender.is_busy());
        best.expect("invariant: only as much is passed on as there is room for").pass_on(header, receiver.current());
    }

    /// Sends what is on its way, until one of the connections has no more of it. Can be cancelled and called again.
    ///
    /// # Errors
    /// As [`Sender::flush`].
    pub(crate) async fn flush(&mut self) -> Result<(), ConnectionError> {
        let busy = self.senders.iter_mut().filter(|sender| sender.is_busy());
        if let Some(took) = first(busy.map(async |sender| sender.flush().await.map(|()| sender.took()))).await {
            self.adapt(took?);
        }
        Ok(())
    }

    /// Uses one more connection, or fewer, after a record that took so long.
    fn adapt(&mut self, took: Duration) {
        if took > self.slow {
            self.used = (self.used / 2).max(1);
        } else if took < self.slow / 2 {
            self.used = (self.used + 1).min(self.senders.len());
        }
    }
}

/// Why nothing is awaited from a connection.
#[derive(Debug)]
enum Rest {
    Early,
    Ended(ConnectionError),
}

/// The receiving end: as many connections.
#[derive(Debug)]
pub(crate) struct ParallelReceiver {
    receivers: Vec<Receiver>,
    /// Those from which nothing is awaited: their last segment belongs to the next operation, or they have ended.
    resting: Vec<Option<Rest>>,
    /// Until when nothing has to end because one of them has.
    grace: Option<Instant>,
    /// Which one brought the last segment.
    current: usize,
}

impl ParallelReceiver {
    /// Over the sockets of `connections`, none of which is local.
    pub(crate) fn new(connections: Vec<Connection>, config: &LinkConfig) -> Self {
        let receiver = |connection| Receiver::new(connection, config);
        let receivers: Vec<Receiver> = connections.into_iter().map(receiver).collect();
        let resting = receivers.iter().map(|_| None).collect();
        Self { receivers, resting, grace: None, current: 0 }
    }

    /// Waits for a segment of the operation of `step`. Can be cancelled and called again, until it fails. If all connections
    /// bring segments of others, it is one of those.
    ///
    /// # Errors
    /// As [`Receiver::next`].
    pub(crate) async fn next(&mut self, step: u64) -> Result<(), ConnectionError> {
        if let [only] = &mut self.receivers[..] {
            return only.next().await;
        }
        for at in 0..self.receivers.len() {
            if matches!(self.resting[at], Some(Rest::Early)) && !self.is_early(at, step) {
                (self.resting[at], self.current) = (None, at);
                return Ok(());
            }
        }
        while let Some((at, brought)) = self.first().await {
            match brought {
                Ok(()) if self.is_early(at, step) => self.resting[at] = Some(Rest::Early),
                Ok(()) => {
                    self.current = at;
                    return Ok(());
                }
                Err(error) => {
                    self.grace.get_or_insert_with(|| Instant::now() + GRACE);
                    self.resting[at] = Some(Rest::Ended(error));
                }
            }
        }
        // Either one has ended, or all of them are ahead, and what came says whose mistake that is.
        for (at, rest) in self.resting.iter_mut().enumerate() {
            match rest.take() {
                Some(Rest::Ended(error)) => return Err(error),
                Some(Rest::Early) => self.current = at,
                None => {}
            }
        }
        Ok(())
    }

    /// Which connection that does not rest is the first to bring something, or to end. `None` if all rest, or if that takes too
    /// long after one of them has ended.
    async fn first(&mut self) -> Option<(usize, Result<(), ConnectionError>)> {
        let Self { receivers, resting, grace, current } = self;
        // The one that brought something last comes last, so that none is left waiting.
        let (before, after) = receivers.split_at_mut(*current + 1);
        let in_turn = (*current + 1..).zip(after).chain((0..).zip(before)).filter(|(at, _)| resting[*at].is_none());
        let brought = first(in_turn.map(|(at, receiver)| async move { (at, receiver.next().await) }));
        match grace {
            Some(until) => timeout_at(*until, brought).await.ok()?,
            None => brought.await,
        }
    }

    /// The header and payload that came last.
    pub(crate) fn segment(&mut self) -> (&[u8; SegmentHeader::BYTES], &mut [u8]) {
        self.current().segment()
    }

    fn current(&mut self) -> &mut Receiver {
        &mut self.receivers[self.current]
    }

    /// Whether the last segment of a connection belongs to a later step. Nonsense does not.
    fn is_early(&mut self, at: usize, step: u64) -> bool {
        let (header, _) = self.receivers[at].segment();
        SegmentHeader::from_bytes(header).is_ok_and(|header| header.operation.step > step)
    }
}

#[cfg(test)]
mod tests;
