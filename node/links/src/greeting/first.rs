//! Waiting for several at once.

use std::future::Future;

use futures::future::select_all;

/// The result of the future that is ready first; `None` if there is none. Waiting for a single one costs nothing more than that
/// one does.
pub(crate) async fn first<F: Future>(mut all: impl Iterator<Item = F>) -> Option<F::Output> {
    let one = all.next()?;
    let Some(other) = all.next() else { return Some(one.await) };
    Some(select_all([one, other].into_iter().chain(all).map(Box::pin)).await.0)
}
