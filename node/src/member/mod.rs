//! A member at work: [`event_loop`] hands what happens to the membership machine and does what that asks, [`exchange`] holds the steps of
//! the engine between the event loop, the trainer thread and the reducer.

pub(crate) mod event;
pub(crate) mod event_loop;
pub(crate) mod exchange;
pub(crate) mod guide;
pub(crate) mod member_list;
pub(crate) mod probe;
pub(crate) mod prober;
pub(crate) mod snapshots;
pub(crate) mod twin;
