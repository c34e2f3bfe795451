//! How a run must end: everyone ends, and each with a reason.

use std::collections::{BTreeMap, BTreeSet};

use starling_topology::{Config, Event, PeerId, Refusal, Time};

use crate::invariants::Broken;
use crate::peer::Peer;
use crate::world::lost;

const NAME: &str = "endings";

/// The one crash of a run.
#[derive(Debug)]
pub struct Crash {
    /// Who.
    pub victim: PeerId,
    /// When.
    pub at: Time,
    /// Who was a member then.
    pub members: Vec<PeerId>,
    /// Whether nobody may have needed it any more: it had committed the last step, or was about to leave.
    pub dispensable: bool,
}

/// What is known when nothing happens any more.
#[derive(Debug)]
pub struct Endings<'a> {
    /// All peers that there were.
    pub peers: BTreeMap<PeerId, &'a Peer>,
    /// Those that were told to leave.
    pub leaving: &'a BTreeSet<PeerId>,
    /// When each ended.
    pub ended: &'a BTreeMap<PeerId, Time>,
    /// The crash, if there was one.
    pub crash: Option<&'a Crash>,
    /// The settings of all.
    pub config: &'a Config,
}

impl Endings<'_> {
    /// The peers that have not ended and did not crash.
    pub fn running(&self) -> Vec<PeerId> {
        let victim = self.crash.map(|crash| crash.victim);
        self.peers.keys().copied().filter(|name| !self.ended.contains_key(name) && victim != Some(*name)).collect()
    }

    /// What should have ended in another way.
    pub fn check(&self) -> Vec<Broken> {
        let mut broken = Vec::new();
        for (name, peer) in &self.peers {
            if let Some(event) = peer.end()
                && !self.is_right(*name, peer, event)
            {
                broken.push(Broken::new(NAME, format!("{name:?} ended with {event:?}")));
            }
            broken.extend(self.late(*name, peer));
        }
        broken.extend(self.disagreement());
        broken
    }

    fn is_right(&self, name: PeerId, peer: &Peer, event: Event) -> bool {
        match event {
            Event::Complete { .. } => {
                self.crash.is_none_or(|crash| crash.dispensable || !crash.members.contains(&name))
            }
            Event::Left => self.leaving.contains(&name),
            // One that never was a member asked a peer that had finished, or below, one that was about to go. Nobody
            // founds a run and leaves before its first step, and no link is so slow that a state takes too long.
            Event::Refused { refusal, .. } => !peer.is_member() && refusal == Refusal::RunFinished,
            Event::Lost { peer: named, .. } => {
                !peer.is_member()
                    || self.crash.is_some_and(|crash| {
                        // One that entered while the run was ending may have known, or be named, instead of the victim.
                        let entering = |peer| !crash.members.contains(&peer);
                        named == crash.victim || entering(name) || entering(named)
                    })
            }
            Event::Diverged { .. } | Event::Waiting { .. } | Event::Joining(_) => false,
            Event::JoinerLost(_) | Event::Stale { .. } => false,
        }
    }

    /// A crash ends the others within the longest stall.
    fn late(&self, name: PeerId, peer: &Peer) -> Option<Broken> {
        let crash = self.crash?;
        let ended = *self.ended.get(&name)?;
        let took = ended - crash.at;
        let by_loss = peer.end().and_then(lost).is_some();
        (by_loss && crash.members.contains(&name) && took > self.config.max_stall)
            .then(|| Broken::new(NAME, format!("{name:?} took {took:?} to notice the loss of {:?}", crash.victim)))
    }

    /// All that complete, complete the same step with the same state.
    fn disagreement(&self) -> Option<Broken> {
        let ends = self.peers.values().filter_map(|peer| peer.end());
        let complete: BTreeSet<_> = ends
            .filter_map(|event| if let Event::Complete { step, digest } = event { Some((step, digest)) } else { None })
            .collect();
        (complete.len() > 1).then(|| Broken::new(NAME, format!("the run was completed as {complete:?}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    use crate::peer::Effect;
    use crate::rng::Rng;
    use crate::workload::Workload;
    use starling_topology::{Contact, Membership, RunId};

    /// A founder that has trained `steps` steps alone, or has left at once.
    fn alone(name: u8, steps: Option<u64>) -> (PeerId, Peer) {
        let name = PeerId([name; 32]);
        let me = Contact { peer: name, addresses: Vec::new() };
        let machine = Membership::found(Config::default(), RunId([0; 32]), me, Time::ZERO);
        let workload = Workload::draw(&mut Rng::new(1), steps.unwrap_or(1));
        let mut peer = Peer::new(name, machine, workload, 0);
        if steps.is_none() {
            peer.leave(Time::ZERO);
        }
        peer.begin_held(Time::ZERO, true);
        loop {
            let wanted = peer.take_effects();
            let computes =
                wanted.iter().find_map(|effect| if let Effect::Compute(id) = effect { Some(*id) } else { None });
            let Some(id) = computes else { break };
            peer.computed(Time::ZERO, id);
        }
        assert!(peer.end().is_some());
        (name, peer)
    }

    fn check(peers: &[(PeerId, Peer)], leaving: &[PeerId], crash: Option<&Crash>, at: Time) -> Vec<Broken> {
        let ended = peers.iter().map(|(name, _)| (*name, at)).collect();
        let (leaving, config) = (leaving.iter().copied().collect(), Config::default());
        let peers = peers.iter().map(|(name, peer)| (*name, peer)).collect();
        Endings { peers, leaving: &leaving, ended: &ended, crash, config: &config }.check()
    }

    #[test]
    fn who_leaves_was_told_to() {
        let peers = [alone(1, None)];
        assert_eq!(check(&peers, &[peers[0].0], None, Time::ZERO), []);
        assert_eq!(check(&peers, &[], None, Time::ZERO).len(), 1);
    }

    #[test]
    fn all_complete_the_same() {
        assert_eq!(check(&[alone(1, Some(2))], &[], None, Time::ZERO), []);
        assert_eq!(check(&[alone(1, Some(2)), alone(2, Some(3))], &[], None, Time::ZERO).len(), 1);
    }

    #[test]
    fn nobody_completes_without_a_member_that_died() {
        let peers = [alone(1, Some(2))];
        let victim = PeerId([9; 32]);
        let crash = Crash { victim, at: Time::ZERO, members: vec![victim, peers[0].0], dispensable: false };
        let late = Time::ZERO + Duration::from_secs(60);
        assert_eq!(check(&peers, &[], Some(&crash), late).len(), 1);
        let crash = Crash { dispensable: true, ..crash };
        assert_eq!(check(&peers, &[], Some(&crash), late), []);
    }
}
