//! Whom a machine knows of the run, as the node's list of contacts has it: kept apart from its seat, and for longer.

use std::collections::BTreeSet;

use starling_engine::return_engine::{LeaveRecord, MAX_KEEPERS, MAX_KNOWN};
use starling_topology::{Generation, PeerId, View, ViewId};

/// Whom it knows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Contacts {
    members: Vec<PeerId>,
    keepers: BTreeSet<PeerId>,
    /// The view that it was in last.
    pub view: Option<(Generation, ViewId)>,
    /// How it left.
    pub left: Option<LeaveRecord>,
}

impl Contacts {
    /// Those that were members when last seen, newest view first.
    pub fn members(&self) -> &[PeerId] {
        &self.members
    }

    /// Keepers that it has heard of.
    pub fn keepers(&self) -> &BTreeSet<PeerId> {
        &self.keepers
    }

    /// It knows these keepers, too.
    pub fn learn_keepers(&mut self, keepers: &BTreeSet<PeerId>) {
        self.keepers.extend(keepers.iter().take(MAX_KEEPERS.saturating_sub(self.keepers.len())));
    }

    /// `me` goes on in `view`.
    pub fn enter(&mut self, me: PeerId, view: &View) {
        let mut present: Vec<PeerId> = view.members().iter().copied().filter(|peer| *peer != me).collect();
        self.members.retain(|known| !present.contains(known));
        present.append(&mut self.members);
        self.members = present;
        self.members.truncate(MAX_KNOWN);
        self.view = Some((view.generation, view.id()));
        self.left = None;
    }
}

/// The file that they are in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "a disk has one")]
pub enum ContactsFile {
    /// There is none.
    #[default]
    Missing,
    /// It can't be read: others may be known.
    Damaged,
    /// It is whole.
    Whole(Contacts),
}

#[cfg(test)]
mod tests {
    use super::*;
    use starling_topology::{Root, RunId};

    #[test]
    fn those_who_are_there_come_first_and_the_list_is_bounded() {
        let peer = |name: u8| PeerId([name; 32]);
        let (me, mut contacts) = (peer(255), Contacts::default());
        let first = View::found(RunId([1; 32]), me);
        for name in 0..100 {
            contacts.enter(me, &first.succeed([me, peer(name)]));
        }
        contacts.left = Some(LeaveRecord { stayed: vec![peer(7)], root: Root::default(), forked: false });
        contacts.enter(me, &first.succeed([me, peer(50)]));
        assert_eq!((contacts.members()[..2].to_vec(), contacts.members().len()), (vec![peer(50), peer(99)], MAX_KNOWN));
        assert_eq!(contacts.left, None, "it is back");
    }
}
