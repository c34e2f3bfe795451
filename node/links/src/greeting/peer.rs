//! What libp2p calls our peers, and we call its.

use libp2p::multihash::Multihash;
use starling_topology::PeerId;

/// A libp2p peer id of an Ed25519 key is an identity multihash (code 0) of the key's protobuf form: 4 bytes that name
/// the key type and length, then the 32 bytes of the key.
const PROTOBUF_PREFIX: [u8; 4] = [0x08, 0x01, 0x12, 0x20];

/// Our name for a libp2p peer; `None` if its key is not Ed25519.
pub fn from_libp2p(peer: &libp2p::PeerId) -> Option<PeerId> {
    let hash = peer.as_ref();
    let key = hash.digest().strip_prefix(&PROTOBUF_PREFIX)?;
    (hash.code() == 0).then_some(PeerId(key.try_into().ok()?))
}

/// libp2p's name for one of our peers.
pub fn to_libp2p(peer: PeerId) -> libp2p::PeerId {
    let mut digest = PROTOBUF_PREFIX.to_vec();
    digest.extend(peer.0);
    let hash = Multihash::wrap(0, &digest).expect("invariant: 36 bytes fit a multihash");
    libp2p::PeerId::from_multihash(hash).expect("invariant: an identity multihash of 36 bytes is a peer id")
}

#[cfg(test)]
mod tests {
    use libp2p::identity::Keypair;

    use super::*;

    #[test]
    fn names_translate_both_ways() {
        let peer = Keypair::generate_ed25519().public().to_peer_id();
        let ours = from_libp2p(&peer).expect("an Ed25519 key");
        assert_eq!(to_libp2p(ours), peer);
    }
}
