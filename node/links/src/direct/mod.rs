//! Moving segments over a direct connection: one record each, sealed and opened where it lies.
//!
//! Both ends are driven by the reducer's own task, without threads or queues between: a segment is opened, reduced and
//! sent on by one core, while it is in that core's cache. Waiting for a socket can be cancelled at any point and begun
//! again; what is half done stays in the buffer.

pub(crate) mod cipher;
pub(crate) mod parallel;
pub(crate) mod record;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use starling_collective::SegmentHeader;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use crate::direct::record::{Buffer, Keys, LENGTH_BYTES};
use crate::error::ConnectionError;
use crate::greeting::handshake::{Connection, Protection};
use crate::{LinkConfig, TrafficMetrics};

/// Segments that are passed on and wait for the socket. While there is room for one, none is copied.
const MAX_PASSED_ON: usize = 4;

/// The sending end of one connection.
#[derive(Debug)]
pub struct Sender {
    stream: TcpStream,
    keys: Keys,
    buffer: Buffer,
    /// The payload of the record that is on its way.
    payload_bytes: usize,
    /// How much of that record is sent; `None` if none is on its way.
    sent: Option<usize>,
    /// Opened records that are to be sent after it, with their payloads' lengths.
    passed_on: VecDeque<(Buffer, usize)>,
    /// For the receiver, in exchange for those.
    spare: Vec<Buffer>,
    /// How long the socket may take nothing.
    limit: Duration,
    /// Since when it has.
    stuck: Option<Instant>,
    /// When the record was begun that is on its way, or was last.
    begun: Instant,
    took: Duration,
    traffic: Arc<TrafficMetrics>,
}

impl Sender {
    /// Over the socket of `connection`.
    ///
    /// # Panics
    /// If it is local: such a link has ends of its own.
    pub fn new(connection: Connection, config: &LinkConfig) -> Self {
        let LinkConfig { longest_payload, limits, traffic } = config;
        let (stream, keys) = open(connection);
        // A far end that vanished without a word acknowledges nothing. The system notices, once it is told to.
        #[cfg(target_os = "linux")]
        if let Err(error) = socket2::SockRef::from(&stream).set_tcp_user_timeout(Some(limits.send)) {
            tracing::debug!(%error, "a direct connection has the system's time limit");
        }
        Self {
            stream,
            keys,
            buffer: Buffer::new(*longest_payload),
            payload_bytes: 0,
            sent: None,
            passed_on: VecDeque::new(),
            spare: (0..MAX_PASSED_ON).map(|_| Buffer::new(*longest_payload)).collect(),
            limit: limits.send,
            stuck: None,
            begun: Instant::now(),
            took: Duration::ZERO,
            traffic: traffic.clone(),
        }
    }

    /// Whether a record is on its way.
    pub fn is_busy(&self) -> bool {
        self.sent.is_some()
    }

    /// How long the socket took for the last record that was sent.
    pub(crate) fn took(&self) -> Duration {
        self.took
    }

    /// Makes a segment the record that [`Self::flush`] sends. `write` is given room for its payload.
    ///
    /// # Panics
    /// If one is on its way already.
    pub fn load(&mut self, header: &SegmentHeader, payload_bytes: usize, write: impl FnOnce(&mut [u8])) {
        assert!(!self.is_busy(), "one record is sent at a time");
        let record = self.buffer.record(payload_bytes);
        let (head, payload) = Buffer::parts(payload_bytes);
        record[head].copy_from_slice(&header.to_bytes());
        write(&mut record[payload]);
        self.begin(payload_bytes);
    }

    /// Whether [`Self::pass_on`] has room.
    pub(crate) fn can_pass_on(&self) -> bool {
        !self.spare.is_empty()
    }

    /// Sends the payload that the receiver got last, or what its owner has made of it, as the segment that `header` names,
    /// before anything that is loaded later. Nothing is copied: the receiver gets a spare buffer for this one.
    ///
    /// # Panics
    /// If there is no room.
    pub(crate) fn pass_on(&mut self, header: &SegmentHeader, receiver: &mut Receiver) {
        let spare = self.spare.pop().expect("invariant: only as many are passed on as there is room for");
        let payload_bytes = receiver.payload_bytes;
        let (head, _) = Buffer::parts(payload_bytes);
        receiver.buffer.record(payload_bytes)[head].copy_from_slice(&header.to_bytes());
        self.passed_on.push_back((std::mem::replace(&mut receiver.buffer, spare), payload_bytes));
        if !self.is_busy() {
            self.advance();
        }
    }

    /// Sends all that is on its way. Can be cancelled and called again.
    ///
    /// # Errors
    /// [`ConnectionError`] if the connection ended, or takes nothing for too long.
    pub async fn flush(&mut self) -> Result<(), ConnectionError> {
        while let Some(sent) = &mut self.sent {
            let record = self.buffer.record(self.payload_bytes);
            while *sent < record.len() {
                match self.stream.try_write(&record[*sent..]) {
                    Ok(count) => {
                        *sent += count;
                        self.stuck = None;
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        let deadline = *self.stuck.get_or_insert_with(Instant::now) + self.limit;
                        let writable = timeout_at(deadline, self.stream.writable()).await;
                        writable.map_err(|_| ConnectionError::Stuck { limit: self.limit })??;
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            let bytes = SegmentHeader::BYTES + self.payload_bytes;
            self.traffic.sent.fetch_add(bytes as u64, Ordering::Relaxed);
            (self.sent, self.took) = (None, self.begun.elapsed());
            self.advance();
        }
        Ok(())
    }

    /// Begins with the next record that was passed on, if there is one.
    fn advance(&mut self) {
        if let Some((buffer, payload_bytes)) = self.passed_on.pop_front() {
            self.spare.push(std::mem::replace(&mut self.buffer, buffer));
            self.begin(payload_bytes);
        }
    }

    fn begin(&mut self, payload_bytes: usize) {
        self.payload_bytes = payload_bytes;
        self.keys.seal(self.buffer.record(payload_bytes));
        (self.sent, self.begun) = (Some(0), Instant::now());
    }
}

/// The receiving end.
#[derive(Debug)]
pub(crate) struct Receiver {
    stream: TcpStream,
    keys: Keys,
    buffer: Buffer,
    /// How much of the record has come.
    filled: usize,
    /// What came with the one before it: the beginning of its length.
    ahead: Option<[u8; LENGTH_BYTES]>,
    /// The payload of the record that came last.
    payload_bytes: usize,
    /// How long a record may take.
    limit: Duration,
    /// When the present one began.
    begun: Option<Instant>,
    traffic: Arc<TrafficMetrics>,
}

impl Receiver {
    /// Over the socket of `connection`, whose form is not local.
    pub(crate) fn new(connection: Connection, config: &LinkConfig) -> Self {
        let (stream, keys) = open(connection);
        let (buffer, limit) = (Buffer::new(config.longest_payload), config.limits.record);
        let traffic = config.traffic.clone();
        Self { stream, keys, buffer, filled: 0, ahead: None, payload_bytes: 0, limit, begun: None, traffic }
    }

    /// Waits for a whole record and opens it. Can be cancelled and called again, until it fails.
    ///
    /// # Errors
    /// [`ConnectionError`] if the connection ended, brought what no correct peer sends, or brings it too slowly.
    pub(crate) async fn next(&mut self) -> Result<(), ConnectionError> {
        let Self { stream, buffer, filled, limit, begun, .. } = self;
        if let Some(ahead) = self.ahead.take() {
            *buffer.length() = ahead;
        }
        fill(stream, buffer.length(), LENGTH_BYTES, filled, begun, *limit).await?;
        let payload_bytes = buffer.declared_payload()?;
        // The next length is asked for too: to ask for it alone would cost a call to the system for each record.
        let record_bytes = buffer.record(payload_bytes).len();
        fill(stream, buffer.record_and_length(payload_bytes), record_bytes, filled, begun, *limit).await?;
        let (record, next) = buffer.record_and_length(payload_bytes).split_at_mut(record_bytes);
        self.ahead = next.first_chunk().copied();
        self.keys.open(record)?;
        (self.filled, self.begun, self.payload_bytes) = (self.filled - record_bytes, None, payload_bytes);
        let bytes = SegmentHeader::BYTES + payload_bytes;
        self.traffic.received.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(())
    }

    /// The header and payload that came last.
    pub(crate) fn segment(&mut self) -> (&[u8; SegmentHeader::BYTES], &mut [u8]) {
        self.buffer.plain(self.payload_bytes)
    }
}

/// Reads until `into` has `enough` bytes; `filled` counts, so that a cancelled call can be made again.
///
/// Nothing may come for as long as it likes: the neighbour may wait for its own. But what began, from `begun` on, must
/// be whole within `limit`.
async fn fill(
    stream: &TcpStream,
    into: &mut [u8],
    enough: usize,
    filled: &mut usize,
    begun: &mut Option<Instant>,
    limit: Duration,
) -> Result<(), ConnectionError> {
    while *filled < enough {
        match stream.try_read(&mut into[*filled..]) {
            Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            Ok(count) => *filled += count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && *filled == 0 => stream.readable().await?,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let deadline = *begun.get_or_insert_with(Instant::now) + limit;
                let readable = timeout_at(deadline, stream.readable()).await;
                readable.map_err(|_| ConnectionError::Slow { filled: *filled, limit })??;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn open(connection: Connection) -> (TcpStream, Keys) {
    let Connection { stream, secret, protection, .. } = connection;
    let keys = match protection {
        Protection::Sealed => Keys::new(secret),
        Protection::Plain => Keys::plain(),
        Protection::Local(_) => panic!("a local link has ends of its own"),
    };
    (stream, keys)
}

#[cfg(test)]
mod tests;
