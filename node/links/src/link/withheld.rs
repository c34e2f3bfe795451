//! To whom a member that a test has made hostile sends nothing, as if it did.

use std::str::FromStr;

use starling_topology::PeerId;

use crate::greeting::peer::from_libp2p;

/// For tests, in the environment: to whom this member sends no segments from a step on, as `step:peer`.
const WITHHELD: &str = "STARLING_TEST_WITHHELD";

/// Nobody, unless a test says so.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Withheld(Option<(u64, PeerId)>);

impl Withheld {
    pub(crate) fn from_environment() -> Self {
        std::env::var(WITHHELD).ok().and_then(|text| text.parse().ok()).unwrap_or_default()
    }

    /// Whether `peer` gets nothing of this step.
    pub(crate) fn is_for(&self, peer: PeerId, step: u64) -> bool {
        self.0.is_some_and(|(from, other)| peer == other && step >= from)
    }
}

impl FromStr for Withheld {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (step, peer) = text.split_once(':').ok_or(())?;
        let (step, peer) = (step.parse().map_err(drop)?, peer.parse().map_err(drop)?);
        Ok(Self(Some((step, from_libp2p(&peer).ok_or(())?))))
    }
}

#[cfg(test)]
mod tests {
    use libp2p::identity::Keypair;

    use super::*;

    #[test]
    fn it_is_one_peers_from_a_step_on() {
        let [peer, other] = [(); 2].map(|()| Keypair::generate_ed25519().public().to_peer_id());
        let withheld: Withheld = format!("7:{peer}").parse().expect("a step and a peer");
        let of = |peer, step| withheld.is_for(from_libp2p(&peer).expect("an Ed25519 key"), step);
        assert_eq!([of(peer, 6), of(peer, 7), of(other, 8)], [false, true, false]);
        assert_eq!("7".parse::<Withheld>(), Err(()));
        assert!(!Withheld::default().is_for(from_libp2p(&peer).expect("an Ed25519 key"), 7));
    }
}
