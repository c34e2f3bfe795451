//! Processes that end with whoever started them.

use std::ops::{Deref, DerefMut};
use std::process::Child;

/// A process that is killed when this is dropped.
#[derive(Debug)]
pub struct OwnedChild(Child);

impl From<Child> for OwnedChild {
    fn from(child: Child) -> Self {
        Self(child)
    }
}

impl Deref for OwnedChild {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for OwnedChild {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for OwnedChild {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
