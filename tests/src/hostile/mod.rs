//! Peers that keep to no rule: strangers, ticket holders, members, keepers, leaves.

pub(crate) mod datagrams;
pub(crate) mod gossip;
pub(crate) mod impostor;
pub(crate) mod initials;
pub(crate) mod leaf_liar;
pub(crate) mod liar;
pub(crate) mod strangers;
pub(crate) mod ticket_holder;
