//! Peers that are lost again and again wait before they are let in again; so do those that misbehave, and those against whom others
//! object. And whoever lets in some that never were there is not believed about those whom nobody else has heard.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::config::Config;
use crate::id::PeerId;
use crate::membership::Membership;
use crate::membership::running::allowance::Allowance;
use crate::membership::seat::Seat;
use crate::time::Time;
use crate::view::View;

/// How many peers are remembered.
const MAX_REMEMBERED: usize = 256;
/// How many losses within the window lead to quarantine.
const LOSSES: usize = 3;
/// A quarantine is at most the first one times two to this power.
const MAX_DOUBLINGS: u32 = 6;
/// After the first objection it is this part of the first quarantine: it may be about something else.
const FIRST_WAIT: u32 = 8;

/// Who was lost when.
#[derive(Debug)]
pub(in crate::membership) struct Quarantine {
    peers: BTreeMap<PeerId, Past>,
    /// Who has let in some that never were there.
    made_up: Allowance,
}

impl Default for Quarantine {
    fn default() -> Self {
        Self { peers: BTreeMap::new(), made_up: Allowance::strict() }
    }
}

#[derive(Debug, Default)]
struct Past {
    losses: Vec<Time>,
    times: u32,
    objections: u32,
    /// When it was last told to wait, and until when it does.
    since: Time,
    until: Time,
}

impl Quarantine {
    /// `peer` is lost.
    pub(in crate::membership) fn lose(&mut self, now: Time, peer: PeerId, config: &Config) {
        let past = self.past(peer);
        past.losses.retain(|loss| now - *loss < config.quarantine_window());
        past.losses.push(now);
        if past.losses.len() >= LOSSES {
            self.convict(now, peer, config);
        }
    }

    /// `peer` is lost too often, or was put out for what we and others saw it do.
    pub(in crate::membership) fn convict(&mut self, now: Time, peer: PeerId, config: &Config) {
        let past = self.past(peer);
        past.losses = vec![now];
        past.waits(now, config.quarantine() * (1 << past.times.min(MAX_DOUBLINGS)));
        past.times = past.times.saturating_add(1);
    }

    /// Another member does not accept what we proposed, which lets `peer` in. The two may differ for good, and meanwhile nobody
    /// takes a step: so it waits, twice as long each time, and the others go on without it.
    pub(in crate::membership) fn put_off(&mut self, now: Time, peer: PeerId, config: &Config) {
        let past = self.past(peer);
        let wait = config.quarantine() / FIRST_WAIT * (1 << past.objections.min(MAX_DOUBLINGS + FIRST_WAIT.ilog2()));
        past.waits(now, wait);
        past.objections = past.objections.saturating_add(1);
    }

    fn past(&mut self, peer: PeerId) -> &mut Past {
        if self.peers.len() >= MAX_REMEMBERED && !self.peers.contains_key(&peer) {
            let oldest = self.peers.iter().min_by_key(|(_, past)| past.losses.last().copied()).map(|(peer, _)| *peer);
            oldest.and_then(|peer| self.peers.remove(&peer));
        }
        self.peers.entry(peer).or_default()
    }

    /// For how much longer `peer` may not join, if it waits for so long at most.
    pub(in crate::membership) fn remaining(&self, now: Time, peer: PeerId, most: Duration) -> Option<Duration> {
        let past = self.peers.get(&peer)?;
        Some(past.until.min(past.since + most) - now).filter(|remaining| !remaining.is_zero())
    }
}

impl Membership {
    /// Whom the decree of the view `old` let in, and nobody has heard here before they were lost, its proposer may have made up.
    pub(in crate::membership) fn note_made_up(&mut self, now: Time, old: &Seat, next: &View) {
        let mut let_in = old.origin.iter().flat_map(|origin| &origin.joiners).map(|joiner| joiner.contact.peer);
        let is_missed = |peer: PeerId| peer != self.me.peer && !next.contains(peer) && !old.heard.contains(&peer);
        let by = old.certificate.as_ref().map(|certificate| certificate.ballot.proposer);
        let by = by.filter(|by| *by != self.me.peer && next.parent == Some(old.id) && let_in.any(is_missed));
        self.quarantine.made_up.keep(|peer| next.contains(peer) || old.view.contains(peer));
        by.into_iter().for_each(|by| _ = self.quarantine.made_up.take(now, by, self.config.call_limit()));
    }

    /// Whether `by` lets in those alone whom others have heard: it has let in some that never were there, again and of late.
    pub(in crate::membership) fn doubts_joiners_of(&self, now: Time, by: PeerId) -> bool {
        self.quarantine.made_up.is_spent(now, by, self.config.call_limit())
    }
}

impl Past {
    fn waits(&mut self, now: Time, wait: Duration) {
        (self.since, self.until) = (now, self.until.max(now + wait));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn three_losses_in_a_short_time_lead_to_a_quarantine_that_doubles() {
        let config = Config::default();
        let peer = PeerId([1; 32]);
        let mut quarantine = Quarantine::default();
        for second in [0, 10] {
            quarantine.lose(at(second), peer, &config);
            assert_eq!(quarantine.remaining(at(second), peer, Duration::MAX), None);
        }
        quarantine.lose(at(20), peer, &config);
        assert_eq!(quarantine.remaining(at(20), peer, Duration::MAX), Some(Duration::from_secs(10)));
        assert_eq!(quarantine.remaining(at(30), peer, Duration::MAX), None);
        for second in [31, 32] {
            quarantine.lose(at(second), peer, &config);
        }
        assert_eq!(quarantine.remaining(at(32), peer, Duration::MAX), Some(Duration::from_secs(20)));
        assert_eq!(quarantine.remaining(at(32), peer, config.quarantine()), Some(Duration::from_secs(10)));
        assert_eq!(quarantine.remaining(at(42), peer, config.quarantine()), None);
        assert_eq!(quarantine.remaining(at(32), PeerId([2; 32]), Duration::MAX), None);
    }

    #[test]
    fn who_misbehaves_waits_at_once_and_twice_as_long_each_time() {
        let (config, peer) = (Config::default(), PeerId([1; 32]));
        let mut quarantine = Quarantine::default();
        for (second, wait) in [(0, 10), (1_000, 20), (2_000, 40)] {
            quarantine.convict(at(second), peer, &config);
            assert_eq!(quarantine.remaining(at(second), peer, Duration::MAX), Some(Duration::from_secs(wait)));
        }
    }

    #[test]
    fn who_is_objected_to_waits_twice_as_long_each_time() {
        let (config, peer) = (Config::default(), PeerId([1; 32]));
        let mut quarantine = Quarantine::default();
        let mut waits = (0..12).map(|round| {
            let now = at(round * 10_000);
            quarantine.put_off(now, peer, &config);
            quarantine.remaining(now, peer, Duration::MAX).expect("it waits")
        });
        let first = waits.next().expect("the first");
        assert_eq!(first, config.quarantine() / FIRST_WAIT);
        assert_eq!(waits.next(), Some(first * 2));
        assert_eq!(waits.last(), Some(config.quarantine() * (1 << MAX_DOUBLINGS)));
    }

    #[test]
    fn losses_long_ago_do_not_count_and_memory_is_bounded() {
        let config = Config::default();
        let mut quarantine = Quarantine::default();
        for second in [0, 100, 200, 300] {
            quarantine.lose(at(second), PeerId([1; 32]), &config);
        }
        assert_eq!(quarantine.remaining(at(300), PeerId([1; 32]), Duration::MAX), None);
        for name in 0..1_000u32 {
            let mut bytes = [0; 32];
            bytes[..4].copy_from_slice(&name.to_be_bytes());
            quarantine.lose(at(300), PeerId(bytes), &config);
        }
        assert_eq!(quarantine.peers.len(), MAX_REMEMBERED);
    }
}
