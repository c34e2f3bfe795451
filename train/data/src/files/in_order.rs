//! Work on the parts of a file, on all cores; what comes of it is taken in the order of the parts.

use std::sync::mpsc::sync_channel;
use std::thread;

use crate::error::DataError;

/// More cores than these wait for whoever reads and takes.
const MAX_THREADS: usize = 8;
/// Parts that wait for each thread, and results of it that wait to be taken: so much memory, and no core is idle.
const WAITING: usize = 2;

/// Does `work` on each part and hands what comes of it to `take`, in their order, as it does the first error of `parts`, behind which no
/// more are asked for.
///
/// # Errors
/// The first one of `take`.
pub(crate) fn in_order<P: Send, R: Send>(
    mut parts: impl Iterator<Item = Result<P, DataError>>,
    work: impl Fn(P) -> R + Sync,
    mut take: impl FnMut(Result<R, DataError>) -> Result<(), DataError>,
) -> Result<(), DataError> {
    let begun: Vec<_> = parts.by_ref().take(2).collect();
    let threads = thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
    let is_short = begun.len() < 2;
    let mut parts = begun.into_iter().chain(parts);
    if is_short || threads == 1 {
        for part in parts {
            let is_last = part.is_err();
            take(part.map(&work))?;
            if is_last {
                break;
            }
        }
        return Ok(());
    }
    thread::scope(|scope| {
        let work = &work;
        let workers = (0..threads).map(|_| {
            let (give, given) = sync_channel::<P>(WAITING);
            let (done, results) = sync_channel::<R>(WAITING);
            scope.spawn(move || {
                // Nobody listens any more once there was an error.
                while let Ok(part) = given.recv() {
                    if done.send(work(part)).is_err() {
                        break;
                    }
                }
            });
            (give, results)
        });
        let workers: Vec<_> = workers.collect();
        let (mut given, mut taken, mut end) = (0, 0, None);
        loop {
            while end.is_none() && given - taken < WAITING * threads {
                match parts.next() {
                    Some(Ok(part)) => {
                        // It only fails if the thread has panicked, which shows below.
                        let _ = workers[given % threads].0.send(part);
                        given += 1;
                    }
                    other => end = Some(other.and_then(Result::err)),
                }
            }
            if taken == given {
                return end.flatten().map_or(Ok(()), |error| take(Err(error)));
            }
            // The scope ends with the panic of a thread.
            let Ok(result) = workers[taken % threads].1.recv() else { return Ok(()) };
            taken += 1;
            take(Ok(result))?;
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fail(reason: &str) -> DataError {
        DataError::File { path: "parts".into(), reason: reason.to_owned() }
    }

    #[test]
    fn results_come_in_the_order_of_the_parts_up_to_the_first_error() {
        for count in [0, 1, 2, 3, 7, 100] {
            let mut taken = Vec::new();
            let parts = (0..count).map(Ok).chain([Err(fail("behind them")), Ok(7)]);
            let work = |part: u32| {
                // Those with even numbers take longer.
                (0..(1 - part % 2) * 10_000).fold(part, |sum, _| std::hint::black_box(sum))
            };
            let end = in_order(parts, work, |result| {
                taken.push(result?);
                Ok(())
            });
            assert!(end.is_err_and(|error| error.to_string().contains("behind them")));
            assert_eq!(taken, (0..count).collect::<Vec<_>>());
        }
    }

    #[test]
    fn nothing_is_taken_behind_an_error_of_who_takes() {
        let mut taken = 0;
        let end = in_order(
            (0..1000).map(Ok),
            |part: u32| part,
            |_| {
                taken += 1;
                if taken == 5 { Err(fail("enough")) } else { Ok(()) }
            },
        );
        assert!(end.is_err());
        assert_eq!(taken, 5);
    }
}
