//! The form of a segment on a direct connection: one AES-128-GCM record, or the same without a cipher.
//!
//! ```text
//!   | length: 4 | header: 32 | payload         | tag: 16 |
//!   |           |<---------- sealed ---------->|         |    length = everything behind it; it is authenticated too
//!                            ^ a page starts here
//! ```
//!
//! A key seals one direction of one connection. Its nonce counts the records and is never sent, so a record that is
//! repeated, left out or moved can't be opened. Long before a counter could run out, both ends derive the next key
//! from the present one and forget the present one.
//!
//! Where both users have switched encryption off, the record is plain and its tag holds its number, which shows mistakes
//! and nothing more.

use std::ops::Range;

use starling_collective::SegmentHeader;

use crate::direct::cipher::{KEY_BYTES, Key, NONCE_BYTES, TAG_BYTES};
use crate::error::ConnectionError;

pub(crate) const LENGTH_BYTES: usize = 4;
/// What precedes the payload.
const PREFIX_BYTES: usize = LENGTH_BYTES + SegmentHeader::BYTES;
/// Copies into a payload that starts at a page are several times faster than into one that starts just behind it.
const PAGE_BYTES: usize = 4096;
/// Records under one key. AES-GCM allows 2^32; this is far from it, and seldom enough to cost nothing.
const RECORDS_PER_KEY: u64 = 1 << 24;

/// What both ends export from their TLS session: where a direction's keys come from.
pub(crate) type Secret = [u8; 32];

/// Room for one record, its payload at the start of a page. Allocated once and used for all records of a connection.
#[derive(Debug)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    /// Where the record starts.
    start: usize,
    longest_payload: usize,
}

impl Buffer {
    pub(crate) fn new(longest_payload: usize) -> Self {
        let bytes = vec![0; PREFIX_BYTES + PAGE_BYTES + longest_payload + TAG_BYTES + LENGTH_BYTES];
        // Bounded, because a platform may decline to tell; the payload is then just slower to copy.
        let start = bytes[PREFIX_BYTES..].as_ptr().align_offset(PAGE_BYTES).min(PAGE_BYTES);
        Self { bytes, start, longest_payload }
    }

    /// The whole record of a payload of `payload_bytes`.
    pub(crate) fn record(&mut self, payload_bytes: usize) -> &mut [u8] {
        let end = self.start + PREFIX_BYTES + payload_bytes + TAG_BYTES;
        &mut self.bytes[self.start..end]
    }

    /// Room for a record's length, the first thing that is read of it.
    pub(crate) fn length(&mut self) -> &mut [u8; LENGTH_BYTES] {
        self.bytes[self.start..].first_chunk_mut().expect("invariant: a buffer is longer than a length")
    }

    /// Room for the record of a payload of `payload_bytes`, and for the length of the one that follows.
    pub(crate) fn record_and_length(&mut self, payload_bytes: usize) -> &mut [u8] {
        let end = self.start + PREFIX_BYTES + payload_bytes + TAG_BYTES + LENGTH_BYTES;
        &mut self.bytes[self.start..end]
    }

    /// The header and payload of an opened record.
    pub(crate) fn plain(&mut self, payload_bytes: usize) -> (&[u8; SegmentHeader::BYTES], &mut [u8]) {
        let (header, rest) = self.bytes[self.start + LENGTH_BYTES..]
            .split_first_chunk_mut()
            .expect("invariant: a buffer is longer than a header");
        (header, &mut rest[..payload_bytes])
    }

    /// Where header and payload lie within a record.
    pub(crate) fn parts(payload_bytes: usize) -> (Range<usize>, Range<usize>) {
        (LENGTH_BYTES..PREFIX_BYTES, PREFIX_BYTES..PREFIX_BYTES + payload_bytes)
    }

    /// How long a payload is, by the length that its record declares.
    ///
    /// # Errors
    /// [`ConnectionError::Length`] if there is no room for a header, or more than the longest payload.
    pub(crate) fn declared_payload(&mut self) -> Result<usize, ConnectionError> {
        let longest = self.longest_payload;
        let length = u32::from_le_bytes(*self.length());
        (length as usize)
            .checked_sub(SegmentHeader::BYTES + TAG_BYTES)
            .filter(|payload| *payload <= longest)
            .ok_or(ConnectionError::Length { length: length.into(), longest })
    }
}

/// The keys of one direction, at either end.
pub(crate) struct Keys {
    secret: Secret,
    /// `None` leaves records plain.
    key: Option<Key>,
    /// Records under the present key: the next one's nonce.
    used: u64,
    records_per_key: u64,
}

impl std::fmt::Debug for Keys {
    /// Leaves the keys out.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keys").field("used", &self.used).finish_non_exhaustive()
    }
}

impl Keys {
    pub(crate) fn new(secret: Secret) -> Self {
        Self::with_records_per_key(secret, RECORDS_PER_KEY)
    }

    /// For records that anybody can read and forge.
    pub(crate) fn plain() -> Self {
        Self { secret: [0; 32], key: None, used: 0, records_per_key: u64::MAX }
    }

    fn with_records_per_key(secret: Secret, records_per_key: u64) -> Self {
        Self { secret, key: Some(key(&secret)), used: 0, records_per_key }
    }

    /// Seals a record in place: fills in its length and tag.
    pub(crate) fn seal(&mut self, record: &mut [u8]) {
        let (length, sealed) = record.split_at_mut(LENGTH_BYTES);
        let sealed_bytes = u32::try_from(sealed.len()).expect("invariant: segments are shorter than 2^32 bytes");
        length.copy_from_slice(&sealed_bytes.to_le_bytes());
        let (plain, tag) = sealed.split_at_mut(sealed.len() - TAG_BYTES);
        let nonce = self.next_nonce();
        let made = self.key.as_ref().map(|key| key.seal(nonce, sealed_bytes.to_le_bytes(), plain));
        tag.copy_from_slice(&made.unwrap_or_else(|| number(nonce)));
    }

    /// Opens a record in place.
    ///
    /// # Errors
    /// [`ConnectionError::Forged`] if it is not the next record that the other end sealed. The connection must end then.
    pub(crate) fn open(&mut self, record: &mut [u8]) -> Result<(), ConnectionError> {
        let nonce = self.next_nonce();
        let is_next = match (&self.key, record.split_first_chunk_mut()) {
            (Some(key), Some((length, sealed))) => key.opens(nonce, *length, sealed),
            (None, Some((_, sealed))) => sealed.ends_with(&number(nonce)),
            (_, None) => false,
        };
        if is_next { Ok(()) } else { Err(ConnectionError::Forged) }
    }

    fn next_nonce(&mut self) -> [u8; NONCE_BYTES] {
        if self.used == self.records_per_key {
            self.secret = blake3::derive_key("starling 2026 data plane next secret", &self.secret);
            self.key = Some(key(&self.secret));
            self.used = 0;
        }
        let mut nonce = [0; NONCE_BYTES];
        nonce[..8].copy_from_slice(&self.used.to_le_bytes());
        self.used += 1;
        nonce
    }
}

/// What a plain record has for a tag.
fn number(nonce: [u8; NONCE_BYTES]) -> [u8; TAG_BYTES] {
    let mut tag = [0; TAG_BYTES];
    tag[..NONCE_BYTES].copy_from_slice(&nonce);
    tag
}

fn key(secret: &Secret) -> Key {
    let bytes = blake3::derive_key("starling 2026 data plane record key", secret);
    Key::new(bytes.first_chunk::<KEY_BYTES>().expect("invariant: a derived key is longer"))
}

#[cfg(test)]
mod tests;
