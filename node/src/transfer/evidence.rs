//! A proof on its way.

use serde::{Deserialize, Serialize};
use starling_topology::message::MAX_MEMBERS;
use starling_topology::view::MAX_VIEW_BYTES;
use starling_topology::{Head, PeerId, Proof, RunId, View};

use crate::credentials::identity::has_signed;

/// The longest evidence, in bytes: 98 for each signature.
pub(super) const MAX_EVIDENCE_BYTES: usize = Head::BYTES + MAX_VIEW_BYTES + 98 * MAX_MEMBERS + 64;

/// A proof's parts, unchecked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Evidence {
    head: Vec<u8>,
    view: Vec<u8>,
    #[serde(deserialize_with = "starling_topology::message::bounded::list::<_, _, MAX_MEMBERS>")]
    signatures: Vec<(PeerId, Vec<u8>)>,
}

impl Evidence {
    pub(crate) fn of(proof: &Proof) -> Self {
        let signatures = proof.signatures.iter().map(|(peer, signature)| (*peer, signature.to_vec())).collect();
        Self { head: proof.head.encode().to_vec(), view: proof.view.encode(), signatures }
    }

    /// The proof, if it is one: of `run`, whose last step is `steps`, with signatures that are the signers' own.
    pub(crate) fn check(self, run: RunId, steps: u64) -> Result<Proof, String> {
        let head = Head::decode(&self.head).ok_or("it named a head that is none")?;
        let view = View::decode(&self.view).map_err(|violation| violation.to_string())?;
        let own = |(peer, signature): (PeerId, Vec<u8>)| Some((peer, <[u8; 64]>::try_from(signature).ok()?));
        let signatures = self.signatures.into_iter().map(own).collect::<Option<Vec<_>>>();
        let proof = Proof { head, view, signatures: signatures.ok_or("it sent signatures of another length")? };
        proof.check(run, steps).map_err(|violation| violation.to_string())?;
        let message = head.encode();
        let is_signed = proof.signatures.iter().all(|(peer, signature)| has_signed(*peer, &message, signature));
        if is_signed { Ok(proof) } else { Err("it sent a signature that is not the signer's own".to_owned()) }
    }
}

#[cfg(test)]
mod tests {
    use starling_topology::{Digest, ViewId};

    use super::*;
    use crate::credentials::identity::{Identity, from_libp2p};

    const RUN: RunId = RunId([1; 32]);

    #[test]
    fn only_what_its_members_have_signed_convinces() {
        let identities = [(); 3].map(|()| Identity::generate());
        let peers = identities.each_ref().map(|one| from_libp2p(&one.peer_id()).expect("an Ed25519 key"));
        let view = View::found(RUN, peers[0]).succeed(peers);
        let head = Head { run: RUN, step: 7, view: view.id(), digest: Digest([3; 32]), manifest: Digest([4; 32]) };
        let mut signatures: Vec<_> = [0, 1].map(|at| (peers[at], identities[at].sign(&head.encode()))).to_vec();
        signatures.sort();
        let proof = Proof { head, view, signatures };
        let evidence = Evidence::of(&proof);
        let refused = |evidence: Evidence| evidence.check(RUN, 7).expect_err("refused");
        assert_eq!(evidence.clone().check(RUN, 7), Ok(proof.clone()));
        assert!(evidence.clone().check(RunId([2; 32]), 7).expect_err("refused").contains("another run"));
        assert!(evidence.clone().check(RUN, 6).expect_err("refused").contains("never takes"));

        let mut forged = proof.clone();
        forged.signatures[0].1 = forged.signatures[1].1;
        assert!(refused(Evidence::of(&forged)).contains("not the signer's own"));
        let lonely = Proof { signatures: vec![proof.signatures[0]], ..proof.clone() };
        assert!(refused(Evidence::of(&lonely)).contains("not a quorum's"));
        let elsewhere = Proof { head: Head { view: ViewId([9; 32]), ..head }, ..proof };
        assert!(refused(Evidence::of(&elsewhere)).contains("not a quorum's"));
        for broken in [
            Evidence { head: vec![0; 9], ..evidence.clone() },
            Evidence { view: vec![0xff; 300], ..evidence.clone() },
            Evidence { signatures: vec![(peers[0], vec![0; 63])], ..evidence.clone() },
        ] {
            refused(broken);
        }
    }

    /// Each takes three bytes on its way, and many times that in memory.
    #[test]
    fn a_long_list_of_nothing_ends_where_no_peer_has_more() {
        use crate::net::frame::decode;
        use crate::transfer::Reply;

        let newest = |count: u8| [&[5, 1, 0, count][..], &[0; 3].repeat(usize::from(count))].concat();
        assert!(matches!(decode::<Reply>(&newest(8)), Ok(Reply::Newest { evidence, .. }) if evidence.len() == 8));
        assert!(decode::<Reply>(&newest(100)).is_err());
    }
}
