//! Rings of pure machines, driven in every order that a network could deliver in.

mod bounds;
mod bytes;
mod cluster;
mod exact;
mod hostile;
mod properties;
mod refused;
mod slots;
mod violations;
mod withheld;
