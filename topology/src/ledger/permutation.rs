//! A seeded permutation that is computed where it is asked for, so that one of any size takes no memory.

use crate::ledger::split_mix::SplitMix64Generator;

/// Enough that nothing of the order before shows in sets of 2^31; each costs about a nanosecond for each number asked for.
const ROUNDS: usize = 64;

/// This is the swap-or-not shuffle (Hoang, Morris, Rogaway: "An Enciphering Scheme Based on a Card Shuffle", CRYPTO 2012): a round pairs each number with
/// another one, and swaps a pair or not by one bit that both compute from the larger of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Permutation {
    len: u32,
    rounds: [Round; ROUNDS],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Round {
    /// What the two numbers of a pair add up to, modulo how many there are.
    sum: u32,
    /// What the bits of this round are drawn by.
    key: u32,
}

impl Permutation {
    /// One of the numbers below `len`.
    pub(super) fn draw(generator: &mut SplitMix64Generator, len: u32) -> Self {
        let rounds = std::array::from_fn(|_| Round {
            sum: generator.below(len.max(1)),
            key: (generator.next_u64() >> 32) as u32,
        });
        Self { len, rounds }
    }

    /// Moves each of these numbers, which are below its length, to where it goes.
    pub(super) fn apply(&self, numbers: &mut [u32]) {
        // All of them round by round, which lets the compiler take several at once.
        for round in &self.rounds {
            for number in &mut *numbers {
                *number = round.moved(*number, self.len);
            }
        }
    }

    /// Which number goes to this one.
    pub(super) fn source(&self, number: u32) -> u32 {
        // Each round undoes itself.
        self.rounds.iter().rev().fold(number, |number, round| round.moved(number, self.len))
    }
}

impl Round {
    /// Where `number`, one below `len`, is after this round.
    fn moved(self, number: u32, len: u32) -> u32 {
        let difference = self.sum.wrapping_sub(number);
        let other = if number > self.sum { difference.wrapping_add(len) } else { difference };
        if bit(number.max(other) ^ self.key) { other } else { number }
    }
}

/// One bit of all bits of `number` (the mixing of Wellons' `lowbias32`, public domain, whose top bit its last shift leaves as it is).
fn bit(number: u32) -> bool {
    let mut mixed = number ^ (number >> 16);
    mixed = mixed.wrapping_mul(0x7feb_352d);
    mixed = (mixed ^ (mixed >> 15)).wrapping_mul(0x846c_a68b);
    mixed >> 31 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_went_somewhere_is_found_from_there() {
        for len in [1, 2, 3, 100, 4097] {
            let permutation = Permutation::draw(&mut SplitMix64Generator::new(7), len);
            let mut moved: Vec<u32> = (0..len).collect();
            permutation.apply(&mut moved);
            assert!(moved.iter().zip(0..).all(|(to, from)| permutation.source(*to) == from));
        }
    }
}
