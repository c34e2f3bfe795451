//! The thread that moves gradients.
//!
//! A ring's task does nothing but copy, add, encrypt and wait for two sockets, for milliseconds at a time. On a thread
//! of its own it holds up nobody, stays on one core with its caches, and may look for the next bytes a few times before
//! it goes to sleep: waking it up costs more than a segment does.

use std::future::Future;
use std::io;
use std::sync::Arc;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A runtime of one thread. The thread ends with the last clone of this.
#[derive(Debug, Clone)]
pub struct DataThread {
    handle: Handle,
    /// Dropping it stops the thread.
    _running: Arc<oneshot::Sender<()>>,
}

impl DataThread {
    /// Starts the thread.
    ///
    /// # Errors
    /// If the system has none left.
    pub fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (running, stopped) = oneshot::channel();
        // Only ever dropped, which is an error at this end.
        // What is logged there is of whoever starts it.
        let span = tracing::Span::current();
        let work = move || span.in_scope(|| _ = runtime.block_on(stopped).is_err());
        std::thread::Builder::new().name("data".into()).spawn(work)?;
        Ok(Self { handle, _running: Arc::new(running) })
    }

    /// Runs a task there.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
        self.handle.spawn(task)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn tasks_run_on_one_thread_that_ends_with_its_last_user() {
        let thread = DataThread::start().expect("a thread");
        let (names, mut told) = tokio::sync::mpsc::channel(2);
        for _ in 0..2 {
            let names = names.clone();
            thread.spawn(async move { _ = names.send(std::thread::current().name().map(str::to_owned)).await });
        }
        for _ in 0..2 {
            assert_eq!(told.recv().await.flatten().as_deref(), Some("data"));
        }
        // A task that never ends is dropped with the thread.
        thread.spawn(async move {
            let _names = names;
            std::future::pending().await
        });
        drop(thread);
        assert_eq!(told.recv().await, None);
    }
}
