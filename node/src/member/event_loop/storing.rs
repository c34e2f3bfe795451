//! A record on its way to the disk. The loop goes on meanwhile: a disk that hangs must not keep it from anything else.

use tokio::task::JoinHandle;

use crate::error::NodeError;

/// At most one record is on its way.
#[derive(Debug, Default)]
pub(super) struct Storing {
    task: Option<JoinHandle<Result<(), NodeError>>>,
    /// Why the newest try failed, if it did.
    failed: Option<String>,
}

impl Storing {
    pub(super) fn begin(&mut self, store: impl FnOnce() -> Result<(), NodeError> + Send + 'static) {
        self.task = Some(tokio::task::spawn_blocking(store));
    }

    /// What came of it; never, if none is on its way. Can be cancelled.
    pub(super) async fn ended(&mut self) -> Result<(), String> {
        let Some(task) = &mut self.task else { return std::future::pending().await };
        let outcome = task.await;
        self.task = None;
        match outcome {
            Ok(Ok(())) => {
                self.failed = None;
                Ok(())
            }
            Ok(Err(error)) => Err(error.to_string()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Waits for it, if one is on its way.
    pub(super) async fn ended_if_begun(&mut self) {
        if self.task.is_some() {
            let _outcome = self.ended().await;
        }
    }

    /// It failed; `Some` if the one before had not.
    pub(super) fn fail(&mut self, reason: String) -> Option<&str> {
        let is_first = self.failed.is_none();
        let reason = self.failed.insert(reason);
        is_first.then_some(reason)
    }

    /// Why nothing is stored.
    pub(super) fn reason(&self) -> String {
        self.failed.clone().unwrap_or_else(|| "the disk does not answer".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_store_that_fails_or_panics_is_told_once_until_one_succeeds() {
        let mut storing = Storing::default();
        assert_eq!(storing.reason(), "the disk does not answer");
        storing.begin(|| Err(NodeError::NoState));
        let reason = storing.ended().await.expect_err("it failed");
        assert_eq!(storing.fail(reason.clone()), Some(reason.as_str()));
        storing.begin(|| panic!("as a bug would"));
        let panicked = storing.ended().await.expect_err("a panic stores nothing");
        assert_eq!(storing.fail(panicked.clone()), None);
        assert_eq!(storing.reason(), panicked);
        storing.begin(|| Ok(()));
        assert_eq!(storing.ended().await, Ok(()));
        assert_eq!(storing.fail("again".to_owned()), Some("again"));
    }
}
