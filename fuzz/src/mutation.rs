//! Changes to bytes.

use starling_topology::SplitMix64Generator;

/// Numbers at which lengths and counts go wrong, as varints of postcard.
const VARINTS: [&[u8]; 7] = [
    &[0],
    &[1],
    &[0x7f],
    &[0xff, 0x01],
    &[0x80, 0x80, 0x80, 0x01],
    &[0xff, 0xff, 0xff, 0xff, 0x0f],
    &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
];
/// What most bytes that matter are.
const BYTES: [u8; 8] = [0, 1, 2, 0x7f, 0x80, 0xfe, 0xff, b'"'];

/// Makes inputs.
#[derive(Debug)]
pub struct Mutator {
    generator: SplitMix64Generator,
    longest: usize,
}

impl Mutator {
    /// All inputs follow from `seed`; they are not longer than `longest`.
    pub fn new(seed: u64, longest: usize) -> Self {
        Self { generator: SplitMix64Generator::for_purpose("fuzz", seed, 0), longest }
    }

    /// The next input: one of `seeds`, changed in a few places, or bytes that have nothing to do with them.
    pub fn next(&mut self, seeds: &[Vec<u8>]) -> Vec<u8> {
        if seeds.is_empty() || self.one_in(16) {
            let length = self.below(512.min(self.longest) + 1);
            return (0..length).map(|_| self.byte()).collect();
        }
        let mut bytes = seeds[self.below(seeds.len())].clone();
        for _ in 0..=self.below(4) {
            self.change(&mut bytes, seeds);
        }
        bytes.truncate(self.longest);
        bytes
    }

    fn change(&mut self, bytes: &mut Vec<u8>, seeds: &[Vec<u8>]) {
        let at = self.below(bytes.len() + 1);
        let end = at + self.below((bytes.len() - at).min(64) + 1);
        match self.below(10) {
            0 if at < bytes.len() => bytes[at] ^= 1 << self.below(8),
            1 if at < bytes.len() => bytes[at] = self.byte(),
            2 => bytes.truncate(at),
            3 => drop(bytes.drain(at..end)),
            4 => {
                let new: Vec<u8> = (0..=self.below(8)).map(|_| self.byte()).collect();
                drop(bytes.splice(at..at, new));
            }
            5 => {
                let number = VARINTS[self.below(VARINTS.len())];
                let removed = at + usize::from(at < bytes.len());
                drop(bytes.splice(at..removed, number.iter().copied()));
            }
            // The same again and again: lengths that are paid for with one byte each.
            6 if self.one_in(4) => {
                let part = if end > at { bytes[at..end].to_vec() } else { vec![0] };
                let times = 1 << self.below(13);
                let new: Vec<u8> = part.iter().copied().cycle().take(part.len() * times).collect();
                drop(bytes.splice(at..at, new));
            }
            // A length, and as much of what is paid for with one byte each.
            9 if self.one_in(4) => {
                let count = 1usize << self.below(self.longest.max(2).ilog2() as usize);
                let filling = self.below(8) as u8;
                let removed = at + usize::from(at < bytes.len());
                let bomb = varint(count).into_iter().chain(std::iter::repeat_n(filling, count));
                drop(bytes.splice(at..removed, bomb));
            }
            7 => {
                let other = &seeds[self.below(seeds.len())];
                let from = self.below(other.len() + 1);
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
            8 => {
                let value = self.generator.next_u64().to_le_bytes();
                bytes.iter_mut().skip(at).zip(value).for_each(|(byte, value)| *byte = value);
            }
            _ => {
                let part = bytes[at..end].to_vec();
                drop(bytes.splice(at..at, part));
            }
        }
    }

    fn byte(&mut self) -> u8 {
        if self.one_in(2) { BYTES[self.below(BYTES.len())] } else { self.generator.next_u64() as u8 }
    }

    fn one_in(&mut self, odds: usize) -> bool {
        self.below(odds) == 0
    }

    fn below(&mut self, bound: usize) -> usize {
        self.generator.below(u32::try_from(bound).unwrap_or(u32::MAX)) as usize
    }
}

/// A number as postcard writes it.
fn varint(mut number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number > 0x7f {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}
