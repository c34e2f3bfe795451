//! Reading and writing the crate's binary forms: little-endian, without padding.

use std::io::{self, Write};

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

/// Writes numbers as little-endian bytes, in blocks: a write per number would cost more than the hash.
pub(crate) fn write_numbers(numbers: &[f32], into: &mut impl Write) -> io::Result<()> {
    const BLOCK: usize = 4096;
    let mut bytes = [0_u8; 4 * BLOCK];
    for block in numbers.chunks(BLOCK) {
        for (bytes, number) in bytes.chunks_exact_mut(4).zip(block) {
            bytes.copy_from_slice(&number.to_le_bytes());
        }
        into.write_all(&bytes[..4 * block.len()])?;
    }
    Ok(())
}
