//! Records open in order, unchanged, once; everything else is an error.

use std::collections::BTreeSet;

use super::*;

const LONGEST: usize = 256;
const SECRET: Secret = [7; 32];

fn sealed(keys: &mut Keys, payload: &[u8]) -> Vec<u8> {
    let mut buffer = Buffer::new(LONGEST);
    let record = buffer.record(payload.len());
    let (head, body) = Buffer::parts(payload.len());
    record[head].fill(9);
    record[body].copy_from_slice(payload);
    keys.seal(record);
    record.to_vec()
}

fn opened(keys: &mut Keys, record: &[u8]) -> Result<Vec<u8>, ConnectionError> {
    let mut buffer = Buffer::new(LONGEST);
    buffer.length().copy_from_slice(&record[..LENGTH_BYTES]);
    let payload_bytes = buffer.declared_payload()?;
    let room = buffer.record(payload_bytes);
    // As from a socket: what is missing never comes.
    let count = record.len().min(room.len());
    room[..count].copy_from_slice(&record[..count]);
    keys.open(room)?;
    let (header, payload) = buffer.plain(payload_bytes);
    assert_eq!(header, &[9; SegmentHeader::BYTES]);
    Ok(payload.to_vec())
}

#[test]
fn what_was_sealed_is_opened() {
    let (mut ours, mut theirs) = (Keys::new(SECRET), Keys::new(SECRET));
    for length in [0, 1, 4, 63, LONGEST] {
        let payload: Vec<u8> = (0..length).map(|index| index as u8).collect();
        let record = sealed(&mut ours, &payload);
        assert_eq!(record.len(), PREFIX_BYTES + length + TAG_BYTES);
        assert_eq!(opened(&mut theirs, &record).expect("opens"), payload);
    }
}

#[test]
fn a_change_of_any_byte_is_seen() {
    let record = sealed(&mut Keys::new(SECRET), &[1, 2, 3, 4]);
    for index in 0..record.len() {
        let mut changed = record.clone();
        changed[index] ^= 1;
        assert!(opened(&mut Keys::new(SECRET), &changed).is_err(), "byte {index}");
    }
    assert!(opened(&mut Keys::new(SECRET), &record[..record.len() - 1]).is_err(), "truncated");
    assert!(opened(&mut Keys::new([8; 32]), &record).is_err(), "another key");
    opened(&mut Keys::new(SECRET), &record).expect("unchanged, it opens");
}

#[test]
fn records_open_in_order_and_once() {
    let mut ours = Keys::new(SECRET);
    let [first, second] = [sealed(&mut ours, b"1"), sealed(&mut ours, b"2")];
    let mut theirs = Keys::new(SECRET);
    assert!(matches!(opened(&mut theirs, &second), Err(ConnectionError::Forged)), "moved");
    let mut theirs = Keys::new(SECRET);
    assert_eq!(opened(&mut theirs, &first).expect("opens"), b"1");
    assert!(matches!(opened(&mut theirs, &first), Err(ConnectionError::Forged)), "repeated");
    let mut theirs = Keys::new(SECRET);
    opened(&mut theirs, &first).expect("opens");
    assert_eq!(opened(&mut theirs, &second).expect("opens"), b"2");
}

#[test]
fn a_length_that_no_segment_has_is_refused_before_it_is_read() {
    let least = u32::try_from(SegmentHeader::BYTES + TAG_BYTES).expect("small");
    let longest = least + LONGEST as u32;
    let mut buffer = Buffer::new(LONGEST);
    for length in [0, 1, least - 1, longest + 1, u32::MAX] {
        buffer.length().copy_from_slice(&length.to_le_bytes());
        let refused = buffer.declared_payload();
        assert!(
            matches!(refused, Err(ConnectionError::Length { length: shown, .. }) if shown == u64::from(length)),
            "{length}"
        );
    }
    for (length, payload) in [(least, 0), (longest, LONGEST)] {
        buffer.length().copy_from_slice(&length.to_le_bytes());
        assert_eq!(buffer.declared_payload().expect("allowed"), payload);
    }
}

#[test]
fn keys_change_in_step_and_no_two_records_share_key_and_nonce() {
    let limit = 3;
    let mut ours = Keys::with_records_per_key(SECRET, limit);
    let mut theirs = Keys::with_records_per_key(SECRET, limit);
    let mut seen = BTreeSet::new();
    for record in 0..10 * limit {
        let sealed = sealed(&mut ours, b"same");
        assert_eq!(opened(&mut theirs, &sealed).expect("opens"), b"same", "record {record}");
        // The counter makes one stream per record: equal plaintexts under one (key, nonce) would look equal.
        assert!(seen.insert(sealed), "record {record} repeats a nonce under one key");
        assert_eq!(ours.used, record % limit + 1);
    }
    // An end that does not change keys is left behind.
    let mut stale = Keys::with_records_per_key(SECRET, u64::MAX);
    let mut fresh = Keys::with_records_per_key(SECRET, limit);
    for _ in 0..limit {
        opened(&mut stale, &sealed(&mut fresh, b"x")).expect("the first key");
    }
    assert!(opened(&mut stale, &sealed(&mut fresh, b"x")).is_err());
}

#[test]
fn payloads_start_at_a_page() {
    let mut buffer = Buffer::new(LONGEST);
    let (_, body) = Buffer::parts(LONGEST);
    let address = buffer.record(LONGEST)[body].as_ptr().addr();
    assert_eq!(address % PAGE_BYTES, 0);
}

#[test]
fn keys_are_not_shown() {
    let text = format!("{:?}", Keys::new(SECRET));
    assert_eq!(text, "Keys { used: 0, .. }");
}

#[test]
fn plain_records_are_counted_and_not_sealed() {
    let mut ours = Keys::plain();
    let [first, second] = [sealed(&mut ours, b"one1"), sealed(&mut ours, b"two2")];
    assert!(first.windows(4).any(|bytes| bytes == b"one1"), "anybody can read it");
    let mut theirs = Keys::plain();
    assert_eq!(opened(&mut theirs, &first).expect("the first"), b"one1");
    assert!(matches!(opened(&mut theirs, &first), Err(ConnectionError::Forged)), "repeated");
    assert!(matches!(opened(&mut Keys::plain(), &second), Err(ConnectionError::Forged)), "moved");
    assert!(opened(&mut Keys::new(SECRET), &first).is_err(), "a plain record is not taken for a sealed one");
}
