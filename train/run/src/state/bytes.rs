//! Reading and writing the crate's binary forms: little-endian, without padding.

use std::io::{self, Read, Write};

/// What is left of some bytes.
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// The next `count` bytes, if there are so many.
    pub(crate) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(count)?;
        self.bytes = rest;
        Some(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.bytes.split_first_chunk()?;
        self.bytes = rest;
        Some(*taken)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn numbers(&mut self, count: usize) -> Option<Vec<f32>> {
        let (words, _) = self.take(count.checked_mul(4)?)?.as_chunks();
        Some(words.iter().map(|word| f32::from_le_bytes(*word)).collect())
    }
}

/// Numbers that are read or written at a time: a call per number would cost more than the hash.
const BLOCK: usize = 4096;

/// Reads numbers from little-endian bytes. Reserves room for all of them.
pub(crate) fn read_numbers(count: usize, from: &mut impl Read) -> io::Result<Vec<f32>> {
    let mut bytes = [0_u8; 4 * BLOCK];
    let mut numbers = Vec::with_capacity(count);
    while numbers.len() < count {
        let block = &mut bytes[..4 * (count - numbers.len()).min(BLOCK)];
        from.read_exact(block)?;
        let (words, _) = block.as_chunks();
        numbers.extend(words.iter().map(|word| f32::from_le_bytes(*word)));
    }
    Ok(numbers)
}

/// Writes numbers as little-endian bytes.
pub fn write_numbers(numbers: &[f32], into: &mut impl Write) -> io::Result<()> {
    let mut bytes = [0_u8; 4 * BLOCK];
    for block in numbers.chunks(BLOCK) {
        for (bytes, number) in bytes.chunks_exact_mut(4).zip(block) {
            bytes.copy_from_slice(&number.to_le_bytes());
        }
        into.write_all(&bytes[..4 * block.len()])?;
    }
    Ok(())
}
