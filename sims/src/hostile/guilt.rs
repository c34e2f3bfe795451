//! Who is proven to have lied: two signatures of one peer that no correct peer gives both.

use std::collections::{BTreeMap, BTreeSet};

use starling_topology::{Ballot, Certificate, PeerId, Record, ViewId};

/// Which certificates have led from each view, and what hostile peers have said that bears on them.
#[derive(Debug, Default)]
pub struct Guilt {
    /// After each view: what was decided, and by whom.
    decided: BTreeMap<ViewId, BTreeMap<ViewId, Certificate>>,
    /// In each view and ballot: what was proposed there, which its proposer has signed.
    proposed: BTreeMap<(ViewId, Ballot), [u8; 32]>,
    /// Who has signed two such.
    proposed_two: Option<PeerId>,
    /// In each view: who has signed, when it promised a ballot, that it had accepted nothing since which one.
    promised: BTreeSet<(ViewId, PeerId, Ballot, Option<Ballot>)>,
}

impl Guilt {
    /// An honest peer has written down what was decided after the view before its own.
    pub fn wrote(&mut self, record: &Record) {
        if let (Some(parent), Some(certificate)) = (record.view.parent, &record.certificate) {
            let after = self.decided.entry(parent).or_default();
            after.entry(record.view.id()).or_insert_with(|| certificate.clone());
        }
        if let Some((ballot, justified)) = &record.accepted {
            for signed in &justified.promises {
                let accepted = signed.promise.accepted.map(|(ballot, _)| ballot);
                self.promised.insert((record.view.id(), signed.by, justified.ballot, accepted));
            }
            let hash = justified.hash();
            for ballot in [justified.ballot, *ballot] {
                let first = *self.proposed.entry((record.view.id(), ballot)).or_insert(hash);
                if first != hash {
                    self.proposed_two = Some(ballot.proposer);
                }
            }
        }
    }

    /// A peer that has signed in one ballot that it accepts this and that, or proposes this and that, after one and the same view:
    /// who, if there is one.
    pub fn proven(&self) -> Option<PeerId> {
        let accepted_two = || self.accepted_two();
        self.proposed_two.or_else(accepted_two).or_else(|| self.concealed())
    }

    /// Who has accepted what was decided, and signed in a later ballot that it had not.
    fn concealed(&self) -> Option<PeerId> {
        let conceals = |(view, by, ballot, accepted): &&(ViewId, PeerId, Ballot, Option<Ballot>)| {
            let certificates = self.decided.get(view).into_iter().flat_map(BTreeMap::values);
            let mut before = certificates.filter(|it| it.ballot < *ballot && Some(it.ballot) > *accepted);
            before.any(|certificate| certificate.seals.iter().any(|(signer, _)| signer == by))
        };
        self.promised.iter().find(conceals).map(|(_, by, ..)| *by)
    }

    fn accepted_two(&self) -> Option<PeerId> {
        self.decided.values().find_map(|after| {
            let mut seen: BTreeMap<(u64, PeerId, PeerId), ViewId> = BTreeMap::new();
            for (view, certificate) in after {
                let ballot = certificate.ballot;
                for (signer, _) in &certificate.seals {
                    let before = seen.insert((ballot.attempt, ballot.proposer, *signer), *view);
                    if before.is_some_and(|before| before != *view) {
                        return Some(*signer);
                    }
                }
            }
            None
        })
    }
}
