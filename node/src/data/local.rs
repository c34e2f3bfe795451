//! Moving segments between two processes on one machine, through memory that both have mapped.
//!
//! ```text
//!   | counters, token | slot 0 | slot 1 | ... |        a slot: | header, length | payload | , each from a page on
//!
//!   sender: fills slot `sent % SLOTS`, then sent += 1        receiver: empties slot `taken % SLOTS`, then taken += 1
//! ```
//!
//! Each end writes its own counter and only reads the other's, whose value it checks. Whoever finds nothing to do says
//! so in the memory and waits for a byte on the socket that the handshake was made over; that socket also tells, by its
//! end, that the other process is gone.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use starling_collective::SegmentHeader;
use tokio::net::TcpStream;

use super::error::DataError;
use super::handshake::{Connection, Form};
use super::memory::Mapping;
use super::record::{Buffer, Secret};
use crate::reducer::Traffic;

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
    traffic: Arc<Traffic>,
}

impl End {
    fn new(connection: Connection, longest_payload: usize, traffic: &Arc<Traffic>) -> Result<Self, Connection> {
        match connection {
            Connection { stream: bell, form: Form::Local(memory), .. } => {
                Ok(Self { memory, bell, longest_payload, traffic: traffic.clone() })
            }
            other => Err(other),
        }
    }

    fn slot(&self, number: u64) -> usize {
        let index = usize::try_from(number % SLOTS).expect("invariant: there are few slots");
        PAGE_BYTES + index * slot_bytes(self.longest_payload)
    }

    fn counter(&self, position: usize) -> u64 {
        self.memory.counter(position).load(Ordering::Acquire)
    }

    /// Counts, and wakes the other end if it waits.
    fn publish(&self, position: usize, value: u64, waits: usize) -> io::Result<()> {
        self.memory.counter(position).store(value, Ordering::Release);
        // Ours before theirs here, theirs before ours in `wait`: one of the two sees what the other did.
        fence(Ordering::SeqCst);
        if self.memory.counter(waits).swap(0, Ordering::AcqRel) == 0 {
            return Ok(());
        }
        match self.bell.try_write(&[1]) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            // Full of bytes that the other end has yet to see: it will look.
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Waits for a byte, unless `is_ready` by now. Without `may_sleep` it does not ask for one, and never ends: whoever
    /// looks again by itself spares the other end the call.
    async fn wait(
        &self,
        waits: usize,
        may_sleep: bool,
        is_ready: impl Fn(&Self) -> Result<bool, DataError>,
    ) -> Result<(), DataError> {
        if !may_sleep {
            return std::future::pending().await;
        }
        self.memory.counter(waits).store(1, Ordering::Release);
        fence(Ordering::SeqCst);
        if is_ready(self)? {
            return Ok(());
        }
        self.bell.readable().await?;
        match self.bell.try_read(&mut [0; 64]) {
            Ok(0) => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error.into()),
            Ok(_) | Err(_) => Ok(()),
        }
    }
}

/// The sending end.
#[derive(Debug)]
pub(crate) struct Sender {
    end: End,
    sent: u64,
}

impl Sender {
    /// Over the memory of `connection`; gives it back if it has none.
    pub(crate) fn new(
        connection: Connection,
        longest_payload: usize,
        traffic: &Arc<Traffic>,
    ) -> Result<Self, Connection> {
        Ok(Self { end: End::new(connection, longest_payload, traffic)?, sent: 0 })
    }

    /// Whether all slots are full.
    pub(crate) fn is_busy(&self) -> bool {
        // A counter that makes no sense is an error in `flush`.
        !matches!(has_room(&self.end, self.sent), Ok(true))
    }

    /// Fills a slot. What fails is told by [`Self::flush`].
    ///
    /// # Panics
    /// If none is free.
    pub(crate) fn load(&mut self, header: &SegmentHeader, values: &[f32]) {
        let payload = self.end.slot(self.sent) + PAGE_BYTES;
        self.end.memory.write_values(payload, values);
        self.finish(&header.to_bytes(), size_of_val(values));
    }

    /// Fills a slot with a segment in its payload form.
    ///
    /// # Panics
    /// If none is free.
    pub(crate) fn load_bytes(&mut self, header: &[u8; SegmentHeader::BYTES], payload: &[u8]) {
        self.end.memory.write(self.end.slot(self.sent) + PAGE_BYTES, payload);
        self.finish(header, payload.len());
    }

    fn finish(&mut self, header: &[u8; SegmentHeader::BYTES], payload_bytes: usize) {
        assert!(!self.is_busy(), "a slot is free");
        let slot = self.end.slot(self.sent);
        self.end.memory.write(slot, header);
        self.end.memory.write(slot + LENGTH, &(payload_bytes as u64).to_le_bytes());
        self.sent += 1;
        if let Err(error) = self.end.publish(SENT, self.sent, RECEIVER_WAITS) {
            // The other process is gone; the next wait ends with that.
            tracing::debug!(%error, "can't wake the other end of a local link");
        }
        let bytes = SegmentHeader::BYTES + payload_bytes;
        self.end.traffic.sent.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Waits until a slot is free. Can be cancelled and called again. Without `may_sleep` the caller looks again by itself.
    ///
    /// # Errors
    /// [`DataError`] if the other process is gone, or counts wrongly.
    pub(crate) async fn flush(&mut self, may_sleep: bool) -> Result<(), DataError> {
        let sent = self.sent;
        while !has_room(&self.end, sent)? {
            self.end.wait(SENDER_WAITS, may_sleep, |end| has_room(end, sent)).await?;
        }
        Ok(())
    }
}

fn has_room(end: &End, sent: u64) -> Result<bool, DataError> {
    let waiting = sent.checked_sub(end.counter(TAKEN)).filter(|waiting| *waiting <= SLOTS);
    waiting.map(|waiting| waiting < SLOTS).ok_or(DataError::Counter)
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
    pub(crate) fn new(
        connection: Connection,
        longest_payload: usize,
        traffic: &Arc<Traffic>,
    ) -> Result<Self, Connection> {
        let end = End::new(connection, longest_payload, traffic)?;
        Ok(Self { end, taken: 0, buffer: Buffer::new(longest_payload), payload_bytes: 0 })
    }

    /// Waits for a segment and takes it out of its slot. Can be cancelled and called again, until it fails. Without
    /// `may_sleep` the caller looks again by itself.
    ///
    /// # Errors
    /// [`DataError`] if the other process is gone, or says what no correct one says.
    pub(crate) async fn next(&mut self, may_sleep: bool) -> Result<(), DataError> {
        let taken = self.taken;
        while !has_more(&self.end, taken)? {
            self.end.wait(RECEIVER_WAITS, may_sleep, |end| has_more(end, taken)).await?;
        }
        let slot = self.end.slot(taken);
        let mut length = [0; 8];
        self.end.memory.read(slot + LENGTH, &mut length);
        let length = u64::from_le_bytes(length);
        let longest = self.end.longest_payload;
        let payload_bytes = usize::try_from(length).ok().filter(|length| *length <= longest);
        let payload_bytes = payload_bytes.ok_or(DataError::Length { length, longest })?;
        let (head, payload) = Buffer::parts(payload_bytes);
        let record = self.buffer.record(payload_bytes);
        self.end.memory.read(slot, &mut record[head]);
        self.end.memory.read(slot + PAGE_BYTES, &mut record[payload]);
        (self.taken, self.payload_bytes) = (taken + 1, payload_bytes);
        self.end.publish(TAKEN, self.taken, SENDER_WAITS)?;
        let bytes = SegmentHeader::BYTES + payload_bytes;
        self.end.traffic.received.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(())
    }

    /// The header and payload that came last.
    pub(crate) fn segment(&mut self) -> (&[u8; SegmentHeader::BYTES], &mut [u8]) {
        self.buffer.plain(self.payload_bytes)
    }
}

fn has_more(end: &End, taken: u64) -> Result<bool, DataError> {
    let waiting = end.counter(SENT).checked_sub(taken).filter(|waiting| *waiting <= SLOTS);
    waiting.map(|waiting| waiting > 0).ok_or(DataError::Counter)
}

#[cfg(test)]
mod tests;
