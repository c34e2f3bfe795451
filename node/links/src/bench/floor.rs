//! What each byte of a link costs this machine at least, in processor time.
//!
//! A floor, not a promise: each part is measured alone, with its data where it is fastest, and nothing is counted for
//! waiting, scheduling or the machine.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread;

use starling_collective::Codec;

use super::clock::process_time;
use crate::direct::record::{Buffer, Keys};
use crate::greeting::listener::keep_steady;

/// How much each part moves while it is measured.
const PROBE_BYTES: usize = 256 << 20;
/// What stands for a gradient: more than any cache that one core has for itself.
const GRADIENT_BYTES: usize = 64 << 20;

/// Processor seconds per byte on the wire.
#[derive(Debug, Clone, Copy)]
pub struct WireCost {
    /// Into a record: from a gradient into a buffer that stays in the cache, encoded.
    pub copy: f64,
    /// Out of a record: decoding, and adding to a gradient.
    pub add: f64,
    /// Sealing and opening, together.
    pub cipher: f64,
    /// Through a connection over loopback: both ends, and the system between.
    pub socket: f64,
}

impl WireCost {
    /// Measures all parts with records of `segment_elements` elements in the form of `codec`.
    ///
    /// # Errors
    /// If there is no connection over loopback.
    pub fn measure(codec: Codec, segment_elements: usize) -> io::Result<Self> {
        let elements = segment_elements.min(GRADIENT_BYTES / size_of::<f32>());
        let segment_bytes = codec.payload_bytes(elements);
        let mut gradient = vec![1.0f32; GRADIENT_BYTES / size_of::<f32>()];
        let blocks = gradient.len() / elements;
        let block = |index: usize| index % blocks * elements..(index % blocks + 1) * elements;
        let mut buffer = Buffer::new(segment_bytes);
        let (_, payload) = Buffer::parts(segment_bytes);
        let record = buffer.record(segment_bytes);
        let copy = per_byte(segment_bytes, |index| {
            codec.encode(&gradient[block(index)], &mut record[payload.clone()]);
        });
        let add = per_byte(segment_bytes, |index| {
            let added = codec.accumulate(&mut gradient[block(index)], &record[payload.clone()]);
            added.expect("invariant: sums of a few hundred ones are finite");
        });
        Ok(Self { copy, add, cipher: cipher(segment_bytes), socket: socket(segment_bytes)? })
    }
}

/// Processor seconds per byte of `work`, which moves `bytes` at a time.
fn per_byte(bytes: usize, mut work: impl FnMut(usize)) -> f64 {
    let rounds = PROBE_BYTES / bytes;
    let used = process_time();
    (0..rounds).for_each(&mut work);
    (process_time() - used).as_secs_f64() / (rounds * bytes) as f64
}

/// Processor seconds per byte of the record layer: sealing and opening records of `payload_bytes`.
pub fn cipher(payload_bytes: usize) -> f64 {
    let (mut seal, mut open) = (Keys::new([1; 32]), Keys::new([1; 32]));
    let mut buffer = Buffer::new(payload_bytes);
    per_byte(payload_bytes, |_| {
        seal.seal(buffer.record(payload_bytes));
        open.open(buffer.record(payload_bytes)).expect("invariant: the record is what was just sealed");
    })
}

/// Processor seconds per byte of a plain connection: a thread that writes and one that reads.
fn socket(bytes: usize) -> io::Result<f64> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut sender = TcpStream::connect(listener.local_addr()?)?;
    let (mut receiver, _) = listener.accept()?;
    tune(&sender)?;
    let (mut out, mut into) = (Buffer::new(bytes), Buffer::new(bytes));
    let (_, payload) = Buffer::parts(bytes);
    let rounds = PROBE_BYTES / bytes;
    let used = process_time();
    thread::scope(|scope| {
        let (out, range) = (out.record(bytes), payload.clone());
        let writing = scope.spawn(move || (0..rounds).try_for_each(|_| sender.write_all(&out[range.clone()])));
        let into = into.record(bytes);
        let read = (0..rounds).try_for_each(|_| receiver.read_exact(&mut into[payload.clone()]));
        // Dropped, so that a writer whose reader failed does not wait for it.
        drop(receiver);
        let written = writing.join().map_err(|_| io::Error::other("the writing thread panicked"))?;
        read.and(written)
    })?;
    Ok((process_time() - used).as_secs_f64() / (rounds * bytes) as f64)
}

/// As a direct connection over loopback is tuned.
fn tune(sender: &TcpStream) -> io::Result<()> {
    sender.set_nodelay(true)?;
    keep_steady(socket2::SockRef::from(sender));
    Ok(())
}
