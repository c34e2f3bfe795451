//! Gives a target one input after the other.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::allocation::measure;
use crate::mutation::Mutator;
use crate::target::Target;

/// What was tried.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// How many inputs.
    pub inputs: u64,
    /// How many of them were taken for what they should be.
    pub taken: u64,
    /// The most memory that one took beyond [`Target::besides`], per byte.
    pub most_per_byte: usize,
}

/// An input that a target can't stand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The target.
    pub target: &'static str,
    /// What happened.
    pub seen: String,
    /// The input.
    pub input: Vec<u8>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { target, seen, input } = self;
        write!(f, "{target}: {seen}, from {} bytes: ", input.len())?;
        input.iter().take(200).try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Gives `target` all its valid encodings, and then inputs that follow from `seed`, while `goes_on` says
/// so of how many there were.
///
/// # Errors
/// The first input at which the target panics or takes too much memory.
pub fn fuzz(target: &Target, seed: u64, mut goes_on: impl FnMut(u64) -> bool) -> Result<Tally, Box<Failure>> {
    let seeds = (target.seeds)();
    let mut tally = Tally::default();
    for valid in &seeds {
        if !give(target, valid, &mut tally)? {
            let seen = "a valid encoding is refused".to_owned();
            return Err(Box::new(Failure { target: target.name, seen, input: valid.clone() }));
        }
    }
    let mut mutator = Mutator::new(seed, target.longest);
    while goes_on(tally.inputs) {
        let input = mutator.next(&seeds);
        give(target, &input, &mut tally)?;
    }
    Ok(tally)
}

/// Gives `target` one input, and says whether it was taken.
///
/// # Errors
/// If the target panics or takes too much memory.
pub fn give(target: &Target, input: &[u8], tally: &mut Tally) -> Result<bool, Box<Failure>> {
    let fails = |seen: String| Box::new(Failure { target: target.name, seen, input: input.to_vec() });
    let (result, memory) = measure(|| catch_unwind(AssertUnwindSafe(|| (target.take)(input))));
    let is_taken = result.map_err(|panic| {
        let said = panic.downcast_ref::<String>().cloned();
        let said = said.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
        fails(format!("panicked: {}", said.unwrap_or_default()))
    })?;
    if memory > target.limit(input.len()) {
        return Err(fails(format!("took {memory} bytes of memory, at most {} are allowed", target.limit(input.len()))));
    }
    tally.inputs += 1;
    tally.taken += u64::from(is_taken);
    tally.most_per_byte = tally.most_per_byte.max(memory.saturating_sub(target.besides).div_ceil(input.len().max(1)));
    Ok(is_taken)
}
