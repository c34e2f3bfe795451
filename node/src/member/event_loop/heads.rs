//! Which checkpoints are stable: our heads go out, those of others come in.

use starling_engine::Member;
use starling_run::CheckpointSummary;
use starling_topology::{Digest, Head, PeerId};

use super::EventLoop;
use crate::credentials::identity::{has_signed, to_libp2p};
use crate::observe::report::Report;

/// A head on the wire: its canonical bytes, then the signature of these.
const MESSAGE_BYTES: usize = Head::BYTES + 64;

impl EventLoop {
    /// A checkpoint of ours is on disk, verified.
    pub(super) fn on_saved(&mut self, info: &CheckpointSummary) {
        self.look_back();
        let is_end = self.shared_steps.act(|steps| steps.last_step()) == info.step;
        let save = if is_end { Member::saved_end } else { Member::saved };
        save(&mut self.member, info.step, info.lineage, info.digest, info.id);
    }

    /// A peer gossiped a head.
    pub(super) fn on_head(&mut self, from: PeerId, bytes: &[u8]) {
        match read(from, bytes) {
            Some((head, signature)) => {
                if let Err(violation) = self.member.heard(from, head, signature) {
                    self.report_fault(from, &violation.to_string());
                }
            }
            None => self.report_fault(from, "gossiped bytes that are not a head with its signature"),
        }
    }

    /// Keys cost nothing: who made up an author is not found by its name.
    fn report_fault(&mut self, author: PeerId, violation: &str) {
        if self.network.is_answerable(author) {
            self.misbehaved(author, violation);
        }
    }

    pub(super) fn sign(&mut self, head: Head) {
        let signature = self.identity.sign(&head.encode());
        self.member.signed(head, signature);
    }

    pub(super) fn announce(&mut self, head: &Head, signature: &[u8; 64]) {
        self.network.announce_head([&head.encode()[..], signature].concat());
    }

    /// A peer has saved another state than we have.
    pub(super) fn on_difference(&self, peer: PeerId, step: u64, [ours, theirs]: [Digest; 2]) {
        let name = to_libp2p(peer);
        let message = format!(
            "peer {name} saved another state after step {step}: its digest is {theirs}, ours is {ours}; \
             the checkpoint counts as stable only where most members agree"
        );
        self.observer.report(&Report::Warning { message });
    }
}

/// The head of a message, if it is one that `from` has signed.
pub(crate) fn read(from: PeerId, bytes: &[u8]) -> Option<(Head, [u8; 64])> {
    let bytes: &[u8; MESSAGE_BYTES] = bytes.try_into().ok()?;
    let (head, signature) = bytes.split_last_chunk::<64>()?;
    has_signed(from, head, signature).then_some((Head::decode(head)?, *signature))
}

#[cfg(test)]
mod tests {
    use starling_topology::{Digest, RunId, ViewId};

    use super::*;
    use crate::credentials::identity::{Identity, from_libp2p};

    #[test]
    fn only_the_signer_can_tell_a_head() {
        let (identity, other) = (Identity::generate(), Identity::generate());
        let [peer, stranger] = [&identity, &other].map(|one| from_libp2p(&one.peer_id()).expect("an Ed25519 key"));
        let names = (Digest([3; 32]), Digest([4; 32]));
        let head = Head { run: RunId([1; 32]), step: 7, view: ViewId([2; 32]), digest: names.0, manifest: names.1 };
        let signature = identity.sign(&head.encode());
        let message = [&head.encode()[..], &signature].concat();
        assert_eq!(read(peer, &message), Some((head, signature)));
        assert_eq!(read(stranger, &message), None);
        for at in 0..message.len() {
            let mut wrong = message.clone();
            wrong[at] ^= 1;
            assert_eq!(read(peer, &wrong), None, "byte {at}");
        }
        assert_eq!(read(peer, &message[1..]), None);
        assert_eq!(read(peer, &[&message[..], &[0]].concat()), None);
        // Signed, but not a head.
        let nonsense = [0; Head::BYTES];
        assert_eq!(read(peer, &[&nonsense[..], &identity.sign(&nonsense)].concat()), None);
    }
}
