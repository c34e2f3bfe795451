//! A user's code that panics.

use std::panic::{AssertUnwindSafe, catch_unwind};

use starling_run::panics::said;

use crate::error::Error;

/// Runs `work`, which the task calls `what`; a panic in it is an error.
///
/// # Errors
/// [`Error::Panicked`].
pub(crate) fn caught<R>(task: &str, what: &'static str, work: impl FnOnce() -> R) -> Result<R, Error> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|payload| {
        let reason = said(&*payload).unwrap_or("without a word").to_owned();
        Error::Panicked { task: task.to_owned(), what, reason }
    })
}
