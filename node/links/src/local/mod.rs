//! Moving segments between two processes on one machine, through memory that both have mapped.
//!
//! ```text
//!   | counters, token | slot 0 | slot 1 | ... |        a slot: | header, length | payload | , each from a page on
//!
//!   sender: fills slot `sent % SLOTS`, then sent += 1        receiver: empties slot `taken % SLOTS`, then taken += 1
//! ```
//!
//! Each end writes its own counter and only reads the other's, whose value it checks. Whoever finds nothing to do says
//! so in the memory ([`wakeup`]) and waits for a byte on the socket that the handshake was made over; that socket also
//! tells, by its end, that the other process is gone.
//!
//! An end looks at the other's counter only where it waits. So what it has said, that it is busy above all, holds until
//! its owner waits again: the other end may free a slot at any instant, and an answer that changes by itself between two
//! questions has cost a ring its only wake-up.

// Values lie in shared memory as they are, so the processor's order of bytes must be the wire's.
#[cfg_attr(not(all(target_os = "linux", target_endian = "little")), path = "no_memory.rs")]
pub(crate) mod memory;
mod wakeup;

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use starling_collective::SegmentHeader;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use crate::direct::record::{Buffer, Secret};
use crate::error::ConnectionError;
use crate::greeting::handshake::{Connection, Protection};
use crate::local::memory::Mapping;
use crate::{LinkConfig, TrafficMetrics};

/// Segments that wait in the memory of a link.
const SLOTS: u64 = 8;
const PAGE_BYTES: usize = 4096;
/// Each counter has a cache line, or two, of its own.
const SENT: usize = 0;
const TAKEN: usize = 128;
/// Nonzero while that end waits for a byte.
const RECEIVER_WAITS: usize = 256;
const SENDER_WAITS: usize = 384;
const TOKEN: usize = 512;
const TOKEN_BYTES: usize = 32;
/// Behind a slot's header.
const LENGTH: usize = SegmentHeader::BYTES;

/// How much memory a link takes whose longest payload has `payload_bytes`.
pub(super) fn memory_bytes(payload_bytes: usize) -> usize {
    PAGE_BYTES + SLOTS as usize * slot_bytes(payload_bytes)
}

fn slot_bytes(payload_bytes: usize) -> usize {
    PAGE_BYTES + payload_bytes.next_multiple_of(PAGE_BYTES)
}

fn token(secret: &Secret) -> [u8; TOKEN_BYTES] {
    blake3::derive_key("starling 2026 data plane local memory", secret)
}

/// Marks memory as that of the handshake that ended in `secret`.
pub(super) fn mark(memory: &mut Mapping, secret: &Secret) {
    memory.write(TOKEN, &token(secret));
}

/// Whether [`mark`] has marked this memory with the same secret.
pub(super) fn is_marked(memory: &Mapping, secret: &Secret) -> bool {
    let mut theirs = [0; TOKEN_BYTES];
    memory.read(TOKEN, &mut theirs);
    theirs == token(secret)
}

/// What both ends have.
#[derive(Debug)]
struct End {
    memory: Mapping,
    /// Its bytes mean: look again. Its end means that the other process is gone.
    bell: TcpStream,
    longest_payload: usize,
    /// Where the other end counts.
    theirs: usize,
    /// What it said there when it was last looked at: no less than before, and no more than can be.
    seen: u64,
    traffic: Arc<TrafficMetrics>,
}

impl End {
    fn new(connection: Connection, theirs: usize, config: &LinkConfig) -> Result<Self, Connection> {
        let (longest_payload, traffic) = (config.longest_payload, config.traffic.clone());
        match connection {
            Connection { stream: bell, protection: Protection::Local(memory), .. } => {
                Ok(Self { memory, bell, longest_payload, theirs, seen: 0, traffic })
            }
            other => Err(other),
        }
    }

    fn slot(&self, number: u64) -> usize {
        let index = usize::try_from(number % SLOTS).expect("invariant: there are few slots");
        PAGE_BYTES + index * slot_bytes(self.longest_payload)
    }

    /// Looks at the other end's counter, which can't be above `most`. Whether it has gone on.
    fn look(&mut self, most: u64) -> Result<bool, ConnectionError> {
        let now = self.memory.counter(self.theirs).load(Ordering::Acquire);
        if !(self.seen..=most).contains(&now) {
            return Err(ConnectionError::Counter);
        }
        Ok(std::mem::replace(&mut self.seen, now) != now)
    }

    /// Counts, and wakes the other end if it waits.
    fn announce(&self, counter: usize, value: u64, waits: usize) {
        if !wakeup::announce(&self.memory, counter, value, waits) {
            return;
        }
        match self.bell.try_write(&[1]) {
            // The other process is gone. What it has left in the memory still counts, and the next wait ends with that.
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                tracing::debug!(%error, "can't wake the other end of a local link");
            }
            // Full of bytes that the other end has yet to see: it will look.
            Ok(_) | Err(_) => {}
        }
    }

    /// Waits until the other end's counter may have gone on. Can be cancelled and called again.
    async fn wait(&mut self, waits: usize, most: u64) -> Result<(), ConnectionError> {
        if !self.arm(waits, most)? {
            return Ok(());
        }
        let armed = Armed { memory: &self.memory, waits };
        self.bell.readable().await?;
        drop(armed);
        let ended = match self.bell.try_read(&mut [0; 64]) {
            Ok(0) => io::Error::from(io::ErrorKind::UnexpectedEof),
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => error,
            Ok(_) | Err(_) => {
                // Whoever rings without end keeps nobody else from the thread.
                tokio::task::coop::consume_budget().await;
                return Ok(());
            }
        };
        // What it did before its end still counts.
        if self.look(most)? { Ok(()) } else { Err(ended.into()) }
    }

    /// Says that this end waits; false if there is no need to.
    fn arm(&mut self, waits: usize, most: u64) -> Result<bool, ConnectionError> {
        wakeup::arm(&self.memory, waits);
        let has_news = self.look(most)?;
        if has_news {
            wakeup::disarm(&self.memory, waits);
        }
        Ok(!has_news)
    }
}

/// Takes back that an end waits, however its waiting ends: nobody need ring for it then.
struct Armed<'a> {
    memory: &'a Mapping,
    waits: usize,
}

impl Drop for Armed<'_> {
    fn drop(&mut self) {
        wakeup::disarm(self.memory, self.waits);
    }
}

/// The sending end.
#[derive(Debug)]
pub(crate) struct Sender {
    end: End,
    sent: u64,
    /// How long no slot may become free.
    limit: Duration,
    /// Since when none has, while this end waited for one.
    stuck: Option<Instant>,
}

impl Sender {
    /// Over the memory of `connection`; gives it back if it has none.
    pub(crate) fn new(connection: Connection, config: &LinkConfig) -> Result<Self, Connection> {
        let end = End::new(connection, TAKEN, config)?;
        Ok(Self { end, sent: 0, limit: config.limits.send, stuck: None })
    }

    /// Whether all slots were full when [`Self::flush`] last looked.
    pub(crate) fn is_busy(&self) -> bool {
        self.sent - self.end.seen == SLOTS
    }

    /// Fills a slot. What fails is told by [`Self::flush`].
    ///
    /// # Panics
    /// If none is free.
    pub(crate) fn load(&mut self, header: &SegmentHeader, values: &[f32]) {
        assert!(!self.is_busy(), "a slot is free");
        let payload = self.end.slot(self.sent) + PAGE_BYTES;
        self.end.memory.write_values(payload, values);
        self.finish(&header.to_bytes(), size_of_val(values));
    }

    /// Fills a slot with a segment in its payload form.
    ///
    /// # Panics
    /// If none is free.
    pub(crate) fn load_bytes(&mut self, header: &SegmentHeader, payload: &[u8]) {
        assert!(!self.is_busy(), "a slot is free");
        self.end.memory.write(self.end.slot(self.sent) + PAGE_BYTES, payload);
        self.finish(&header.to_bytes(), payload.len());
    }

    fn finish(&mut self, header: &[u8; SegmentHeader::BYTES], payload_bytes: usize) {
        let slot = self.end.slot(self.sent);
        self.end.memory.write(slot, header);
        self.end.memory.write(slot + LENGTH, &(payload_bytes as u64).to_le_bytes());
        self.sent += 1;
        self.end.announce(SENT, self.sent, RECEIVER_WAITS);
        let bytes = SegmentHeader::BYTES + payload_bytes;
        self.end.traffic.sent.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Waits until a slot is free. Can be cancelled and called again. Without `may_sleep` it does not ask to be woken up,
    /// and only looks: whoever looks again by itself spares the other end the call.
    ///
    /// # Errors
    /// [`ConnectionError`] if the other process is gone, takes nothing for too long, or counts wrongly.
    pub(crate) async fn flush(&mut self, may_sleep: bool) -> Result<(), ConnectionError> {
        while self.is_busy() && !self.end.look(self.sent)? {
            let deadline = *self.stuck.get_or_insert_with(Instant::now) + self.limit;
            if !may_sleep {
                return std::future::pending().await;
            }
            let woken = timeout_at(deadline, self.end.wait(SENDER_WAITS, self.sent)).await;
            woken.map_err(|_| ConnectionError::Stuck { limit: self.limit })??;
        }
        self.stuck = None;
        Ok(())
    }
}

/// The receiving end.
#[derive(Debug)]
pub(crate) struct Receiver {
    end: End,
    taken: u64,
    /// What came last: a copy that nobody else can change.
    buffer: Buffer,
    payload_bytes: usize,
}

impl Receiver {
    /// Over the memory of `connection`; gives it back if it has none.
    pub(crate) fn new(connection: Connection, config: &LinkConfig) -> Result<Self, Connection> {
        let end = End::new(connection, SENT, config)?;
        Ok(Self { end, taken: 0, buffer: Buffer::new(config.longest_payload), payload_bytes: 0 })
    }

    /// Waits for a segment and takes it out of its slot. Can be cancelled and called again, until it fails. `may_sleep` is
    /// as for [`Sender::flush`]. Nothing may come for as long as it likes: the neighbour may wait for its own.
    ///
    /// # Errors
    /// [`ConnectionError`] if the other process is gone, or says what no correct one says.
    pub(crate) async fn next(&mut self, may_sleep: bool) -> Result<(), ConnectionError> {
        let taken = self.taken;
        while self.end.seen == taken && !self.end.look(taken + SLOTS)? {
            if !may_sleep {
                return std::future::pending().await;
            }
            self.end.wait(RECEIVER_WAITS, taken + SLOTS).await?;
        }
        let slot = self.end.slot(taken);
        let mut length = [0; 8];
        self.end.memory.read(slot + LENGTH, &mut length);
        let length = u64::from_le_bytes(length);
        let longest = self.end.longest_payload;
        let payload_bytes = usize::try_from(length).ok().filter(|length| *length <= longest);
        let payload_bytes = payload_bytes.ok_or(ConnectionError::Length { length, longest })?;
        let (head, payload) = Buffer::parts(payload_bytes);
        let record = self.buffer.record(payload_bytes);
        self.end.memory.read(slot, &mut record[head]);
        self.end.memory.read(slot + PAGE_BYTES, &mut record[payload]);
        (self.taken, self.payload_bytes) = (taken + 1, payload_bytes);
        self.end.announce(TAKEN, self.taken, SENDER_WAITS);
        let bytes = SegmentHeader::BYTES + payload_bytes;
        self.end.traffic.received.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(())
    }

    /// The header and payload that came last.
    pub(crate) fn segment(&mut self) -> (&[u8; SegmentHeader::BYTES], &mut [u8]) {
        self.buffer.plain(self.payload_bytes)
    }
}

#[cfg(test)]
mod tests;
