//! A member at work: [`event_loop`] hands what happens ([`event`]) to the engine's `Member` and does what that asks, [`shared_steps`] holds the
//! steps of the engine between the event loop, the trainer thread and the reducer, [`snapshots`] the states that joiners load from here.
//! [`prober`] has links measured by [`probe`]. [`guide`] keeps which views there were and leads others by them, [`member_list`] who was in a
//! view, and [`twin`] looks for another process that is this machine. [`leaf`] is both sides of who takes part through a member.

pub(crate) mod event;
pub(crate) mod event_loop;
pub(crate) mod guide;
pub(crate) mod leaf;
pub(crate) mod member_list;
pub(crate) mod probe;
pub(crate) mod prober;
pub(crate) mod shared_steps;
pub(crate) mod snapshots;
pub(crate) mod twin;
