//! Members that others told a keeper of, and that it has yet to meet. Their word makes it look for those, for a while, and no more: they
//! are kept on no disk and told to nobody before they are there themselves.

use std::collections::BTreeMap;

use starling_topology::{Contact, PeerId};

/// Of those that one peer told of, so many are looked for.
const MAX_OF_ONE: usize = 16;
/// Of all.
const MAX_TOLD: usize = 64;
/// Addresses of each.
const MAX_PLACES: usize = 4;
/// How often each is dialed. Who told of it is believed no more after that.
const MAX_TRIES: u32 = 40;

/// Who is told of, and by whom: each teller's word counts for itself, so that who says first where somebody is, and lies, keeps nobody
/// from being found. See the module.
#[derive(Debug, Default)]
pub(super) struct Told(BTreeMap<(PeerId, PeerId), Missing>);

#[derive(Debug)]
struct Missing {
    contact: Contact,
    tries: u32,
}

impl Told {
    /// `by` has told of a member that is not known. True if that is news.
    pub(super) fn hear(&mut self, by: PeerId, mut contact: Contact) -> bool {
        let of_one = self.0.keys().filter(|(_, teller)| *teller == by).count();
        let key = (contact.peer, by);
        if self.0.contains_key(&key) || of_one >= MAX_OF_ONE {
            return false;
        }
        if self.0.len() >= MAX_TOLD {
            // One that was looked for in vain makes room.
            let Some(spent) = self.0.iter().find(|(_, it)| it.tries >= MAX_TRIES).map(|(key, _)| *key) else {
                return false;
            };
            self.0.remove(&spent);
        }
        contact.addresses.truncate(MAX_PLACES);
        self.0.insert(key, Missing { contact, tries: 0 }).is_none()
    }

    /// This peer is there. True if it was told of.
    pub(super) fn meet(&mut self, peer: PeerId) -> bool {
        let before = self.0.len();
        self.0.retain(|(of, _), _| *of != peer);
        self.0.len() < before
    }

    /// So many that are to be dialed now, those that were least often.
    pub(super) fn next(&mut self, count: usize) -> Vec<Contact> {
        let mut missing: Vec<&mut Missing> = self.0.values_mut().filter(|missing| missing.tries < MAX_TRIES).collect();
        missing.sort_by_key(|missing| missing.tries);
        let next = missing.into_iter().take(count);
        next.map(|missing| {
            missing.tries += 1;
            missing.contact.clone()
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(name: u8) -> PeerId {
        PeerId([name; 32])
    }

    fn contact(name: u8) -> Contact {
        Contact { peer: peer(name), addresses: vec![String::new(); 8] }
    }

    #[test]
    fn one_has_a_keeper_look_for_a_few_and_for_a_while() {
        let mut told = Told::default();
        (1..=64).for_each(|name| _ = told.hear(peer(200), contact(name)));
        assert_eq!(told.0.len(), MAX_OF_ONE);
        assert!(told.hear(peer(201), contact(70)));
        let last = told.next(MAX_OF_ONE + 1).pop().expect("all are dialed");
        assert_eq!((last.peer, last.addresses.len()), (peer(70), MAX_PLACES));
        assert!(told.meet(peer(70)) && !told.meet(peer(70)), "once");
        let dialed: usize = std::iter::from_fn(|| Some(told.next(8).len()).filter(|count| *count > 0)).sum();
        assert_eq!(dialed, MAX_OF_ONE * (MAX_TRIES as usize - 1));
        (1..=64).for_each(|name| _ = told.hear(peer(200), contact(name)));
        assert!(told.next(8).is_empty(), "it is not believed anew");
    }

    #[test]
    fn who_lies_first_about_where_one_is_keeps_nobody_from_finding_it() {
        let mut told = Told::default();
        let lie = Contact { peer: peer(1), addresses: vec!["/ip4/192.0.2.1/tcp/1".to_owned()] };
        let truth = Contact { addresses: vec!["/ip4/192.0.2.2/tcp/2".to_owned()], ..lie.clone() };
        assert!(told.hear(peer(200), lie.clone()) && told.hear(peer(201), truth.clone()));
        assert!(!told.hear(peer(200), truth.clone()), "each says it once");
        let dialed = told.next(8);
        assert!(dialed.contains(&lie) && dialed.contains(&truth), "{dialed:?}");
        assert!(told.meet(peer(1)) && told.0.is_empty());
    }

    #[test]
    fn who_was_looked_for_in_vain_makes_room() {
        let mut told = Told::default();
        for by in 0..4 {
            (0..16).for_each(|at| _ = told.hear(peer(200 + by), contact(by * 16 + at)));
        }
        assert!(!told.hear(peer(210), contact(100)));
        assert_eq!(told.0.len(), MAX_TOLD);
        while !told.next(8).is_empty() {}
        assert!(told.hear(peer(210), contact(100)));
        assert!(told.meet(peer(100)));
    }
}
