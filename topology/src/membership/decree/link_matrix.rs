//! What the members of a view have measured of their links.

use std::collections::BTreeMap;

use crate::id::PeerId;
use crate::plan::Link;
use crate::view::{MAX_COSTED, View};

/// A row for each member that has measured something: its links to others. Of members only, so it has a bound.
#[derive(Debug, Default)]
pub(in crate::membership) struct LinkMatrix {
    links: BTreeMap<(PeerId, PeerId), Link>,
}

impl LinkMatrix {
    /// What the view itself says. All begin with that; whoever knows better of its own links says so.
    pub(in crate::membership) fn of(view: &View) -> Self {
        let mut links = BTreeMap::new();
        if view.costs().is_some() {
            let pairs = view.members().iter().flat_map(|from| view.members().iter().map(move |to| (*from, *to)));
            links.extend(pairs.filter_map(|(from, to)| Some(((from, to), view.measured(from, to)?))));
        }
        Self { links }
    }

    /// The row of `from` is this one now.
    pub(in crate::membership) fn take(&mut self, view: &View, from: PeerId, row: &[(PeerId, Link)]) {
        if view.members().len() > MAX_COSTED || !view.contains(from) {
            return;
        }
        self.links.retain(|(sender, _), _| *sender != from);
        let known = row.iter().filter(|(to, _)| *to != from && view.contains(*to));
        self.links.extend(known.map(|(to, link)| ((from, *to), *link)));
    }

    /// The row of `from`, sorted.
    pub(in crate::membership) fn row(&self, from: PeerId) -> Vec<(PeerId, Link)> {
        let row = self.links.iter().filter(|((sender, _), _)| *sender == from);
        row.map(|((_, to), link)| (*to, *link)).collect()
    }

    /// `view` with what is known now.
    pub(in crate::membership) fn put_into(&self, view: View) -> View {
        view.with_costs(|from, to| self.links.get(&(from, to)).copied())
    }

    /// Whether each pair that is not severed was measured by one of the two.
    pub(in crate::membership) fn cover(&self, view: &View) -> bool {
        let known = |a: PeerId, b: PeerId| self.links.contains_key(&(a, b)) || self.links.contains_key(&(b, a));
        let members = view.members();
        let pairs = (0..members.len()).flat_map(|a| (a + 1..members.len()).map(move |b| (members[a], members[b])));
        members.len() <= MAX_COSTED && pairs.into_iter().all(|(a, b)| view.is_severed(a, b) || known(a, b))
    }
}

/// Whether a plan may follow from one row that does not from the other.
pub(in crate::membership) fn differ(one: &[(PeerId, Link)], other: &[(PeerId, Link)]) -> bool {
    let same = |(one, other): (&(PeerId, Link), &(PeerId, Link))| one.0 == other.0 && !one.1.differs_from(other.1);
    one.len() != other.len() || !one.iter().zip(other).all(same)
}
