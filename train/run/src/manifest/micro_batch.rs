//! How many samples are computed together: the unit of what is exact.

use crate::manifest::spec::ModelSpec;

/// The largest number of samples, up to `most`, that makes whole micro-batches of a batch.
pub fn fitting(batch_size: u32, most: u32) -> u32 {
    (1..=most.min(batch_size)).rev().find(|size| batch_size.is_multiple_of(*size)).unwrap_or(1)
}

/// A sentence that says to take micro-batches, with some that batches of `batch_size` samples can have.
pub fn with_example(sentence: &str, batch_size: u32) -> String {
    let fitting = fitting(batch_size, batch_size.div_ceil(4));
    format!("{sentence}; --micro-batch {fitting}, for example, divides the batch of {batch_size}")
}

/// Checks a run's micro-batch; 0 is none. The numbers may be a stranger's.
///
/// # Errors
/// What is wrong and what to do, as a sentence.
pub(crate) fn check(micro_batch: u32, batch_size: u32, model: &ModelSpec) -> Result<(), String> {
    if micro_batch > 0 && *model == ModelSpec::Raw {
        return Err(format!("it is {micro_batch}, but buffers have no samples that could be computed together"));
    }
    if micro_batch > batch_size {
        return Err(format!(
            "it is {micro_batch}, more than the {batch_size} samples of a batch; take at most that many, or a larger batch"
        ));
    }
    if micro_batch == 0 || batch_size.is_multiple_of(micro_batch) {
        return Ok(());
    }
    let (fitting, larger) = (fitting(batch_size, micro_batch), batch_size.next_multiple_of(micro_batch));
    Err(format!(
        "a batch of {batch_size} samples is no multiple of {micro_batch}, and micro-batches are dealt whole; take micro-batches of \
         {fitting}, or batches of {larger}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(micro_batch: u32, batch_size: u32) -> Result<(), String> {
        super::check(micro_batch, batch_size, &ModelSpec::default())
    }

    #[test]
    fn what_does_not_fit_is_refused_with_what_would() {
        for (micro_batch, batch_size) in [(0, 1), (1, 1), (16, 64), (64, 64), (1, 1 << 20), (1 << 20, 1 << 20)] {
            assert_eq!(check(micro_batch, batch_size), Ok(()));
        }
        let error = check(24, 64).expect_err("no multiple");
        assert!(error.contains("take micro-batches of 16, or batches of 72"), "{error}");
        assert!(check(u32::MAX, 1 << 20).expect_err("too many").contains("more than the 1048576 samples"));
        // A prime one.
        assert!(check(1_048_572, 1_048_573).expect_err("no multiple").contains("micro-batches of 1, or"));
        assert!(super::check(1, 1, &ModelSpec::Raw).expect_err("no samples").contains("buffers have no samples"));
        assert_eq!([fitting(64, 100), fitting(60, 16), fitting(1, 16)], [64, 15, 1]);
    }
}
