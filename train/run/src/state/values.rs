//! What a training has come to, apart from how: two runs that learned alike are told by one hash.
//!
//! ```text
//!   blake3 of, for each vector:  its name, a zero byte | how many numbers: u64 | the numbers     all little-endian
//!   "parameters" (f32), "moment" for each of the optimizer's (f32), "frozen" (f32) if there are any, "scalars" (f64)
//! ```
//!
//! Run, step, lineage, ledger and speeds are not in it: who took part, and what the run was called, is not what it learned.

use std::io::{self, Read, Write};
use std::sync::Arc;

use starling_topology::Digest;

use crate::state::bytes::{read_numbers, write_numbers};

/// The hash while vectors come. The parameters are first, then the moments, then the scalars.
#[derive(Debug, Default)]
pub(crate) struct Values {
    hasher: blake3::Hasher,
    vectors: usize,
}

impl Values {
    /// The hash of all of them.
    pub(crate) fn of(parameters: &[f32], moments: &[Arc<Vec<f32>>], frozen: &[f32], scalars: &[f64]) -> Digest {
        let mut values = Self::default();
        for numbers in std::iter::once(parameters).chain(moments.iter().map(|moment| moment.as_slice())) {
            values.write(numbers, &mut io::sink()).expect("invariant: nothing is written");
        }
        values.write_frozen(frozen, &mut io::sink()).expect("invariant: nothing is written");
        values.finish(scalars)
    }

    /// Writes the next vector, and hashes it on the way.
    pub(crate) fn write(&mut self, numbers: &[f32], into: &mut impl Write) -> io::Result<()> {
        self.begin(numbers.len());
        write_numbers(numbers, &mut Both(&mut self.hasher, into))
    }

    /// The same of the frozen parameters, which come behind the moments.
    pub(crate) fn write_frozen(&mut self, numbers: &[f32], into: &mut impl Write) -> io::Result<()> {
        self.begin_frozen(numbers.len());
        write_numbers(numbers, &mut Both(&mut self.hasher, into))
    }

    /// Begins the frozen parameters, of which there may be none, as [`Self::begin`].
    pub(crate) fn begin_frozen(&mut self, count: usize) {
        if count > 0 {
            self.name("frozen", count);
        }
    }

    /// Begins a vector of `count` numbers, which [`Self::read`] reads in pieces.
    pub(crate) fn begin(&mut self, count: usize) {
        self.name(if self.vectors == 0 { "parameters" } else { "moment" }, count);
        self.vectors += 1;
    }

    /// Reads the next `count` numbers of the vector that was begun, and hashes them on the way.
    pub(crate) fn read(&mut self, count: usize, from: &mut impl Read) -> io::Result<Vec<f32>> {
        let hasher = &mut self.hasher;
        read_numbers(count, &mut Both(hasher, from))
    }

    /// The hash, once the scalars are there too.
    pub(crate) fn finish(mut self, scalars: &[f64]) -> Digest {
        self.name("scalars", scalars.len());
        for scalar in scalars {
            self.hasher.update(&scalar.to_le_bytes());
        }
        Digest(*self.hasher.finalize().as_bytes())
    }

    fn name(&mut self, name: &str, count: usize) {
        self.hasher.update(name.as_bytes()).update(&[0]).update(&(count as u64).to_le_bytes());
    }
}

/// What passes is hashed.
struct Both<'a, T>(&'a mut blake3::Hasher, &'a mut T);

impl<T: Write> Write for Both<'_, T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.1.write(bytes)?;
        self.0.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.1.flush()
    }
}

impl<T: Read> Read for Both<'_, T> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.1.read(into)?;
        self.0.update(&into[..read]);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_told_from_the_same_one_elsewhere() {
        let moment = |numbers: &[f32]| Arc::new(numbers.to_vec());
        let all = [
            Values::of(&[1.0, 2.0], &[], &[], &[]),
            Values::of(&[2.0, 1.0], &[], &[], &[]),
            Values::of(&[1.0], &[moment(&[2.0])], &[], &[]),
            Values::of(&[1.0], &[moment(&[]), moment(&[2.0])], &[], &[]),
            Values::of(&[1.0, 2.0], &[moment(&[])], &[], &[]),
            Values::of(&[1.0, 2.0], &[], &[], &[0.0]),
            Values::of(&[1.0, 2.0], &[], &[], &[-0.0]),
            Values::of(&[1.0], &[], &[2.0], &[]),
            Values::of(&[], &[], &[], &[]),
        ];
        let distinct: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(distinct.len(), all.len(), "{all:?}");
    }

    #[test]
    fn what_is_read_in_pieces_hashes_as_what_was_written() {
        let (parameters, moment, scalars) = ([1.0, -0.0, 3.5e-40], Arc::new(vec![0.5, 0.25, 7.0]), [0.9, 0.999]);
        let (mut bytes, mut written) = (Vec::new(), Values::default());
        written.write(&parameters, &mut bytes).expect("memory");
        written.write(&moment, &mut bytes).expect("memory");
        written.write_frozen(&[4.0], &mut bytes).expect("memory");
        let mut read = Values::default();
        let mut from = bytes.as_slice();
        for _ in 0..2 {
            read.begin(3);
            read.read(2, &mut from).expect("two numbers");
            read.read(1, &mut from).expect("one more");
        }
        read.begin_frozen(1);
        read.read(1, &mut from).expect("a frozen one");
        let whole = Values::of(&parameters, &[moment], &[4.0], &scalars);
        assert_eq!((written.finish(&scalars), read.finish(&scalars)), (whole, whole));
    }
}
