//! The founder's lists of who has to go: which of them counts here, and which secret since.

use starling_topology::{PeerId, RunId};
use tokio::time::Instant;

use super::{Access, State};
use crate::identity::{from_libp2p, to_libp2p};
use crate::revocations::{MAX_SECRETS, Renewal, Revocations};

/// What it costs a peer of its allowance to have a list looked at: one costs more than a member.
const LIST_COST: u64 = 64;

impl Access {
    /// Takes over a list of the founder's that is newer than ours, or of two of one number the one that counts. False if it is
    /// neither.
    pub(crate) fn adopt(&self, renewal: Renewal) -> bool {
        let parties = self.lock().parties_of(&renewal.list);
        // Not under the lock: a long list that is nobody's takes time.
        parties.is_some_and(|(founder, run)| renewal.is_of(founder, run)) && self.take_over(renewal)
    }

    /// The same of what a peer tells. Each list has to be looked at, and it may have so many looked at as it may tell of members.
    pub(super) fn adopt_from(&self, from: PeerId, renewal: Renewal) -> bool {
        let may = {
            let mut state = self.lock();
            let is_news = state.parties_of(&renewal.list).is_some();
            let shown = state.shown.get_mut(&from).filter(|_| is_news);
            shown.is_some_and(|shown| shown.allowance.take(LIST_COST, Instant::now()))
        };
        may && self.adopt(renewal)
    }

    /// The founder has signed it.
    fn take_over(&self, mut renewal: Renewal) -> bool {
        let mut state = self.lock();
        let (counts, is_twin) = state.standing(&renewal.list);
        if is_twin {
            state.warn_of_two(&renewal.list, counts);
            self.0.news.notify_one();
        }
        if !counts {
            return false;
        }
        if state.is_private() {
            // Those of a list that has lost stay, so that whoever knows no other gets in and hears of this one.
            let mut secrets = std::mem::take(&mut renewal.secrets);
            secrets.retain(|secret| renewal.list.covers(secret));
            for known in std::mem::take(&mut state.secrets) {
                if !secrets.contains(&known) {
                    secrets.push(known);
                }
            }
            secrets.truncate(MAX_SECRETS);
            (state.secrets, renewal.secrets) = (secrets.clone(), secrets);
        }
        state.roster.strike(|peer| renewal.list.names(peer));
        state.renewal = Some(renewal);
        self.0.news.notify_one();
        true
    }

    /// What the user has to hear of the founder's lists.
    pub(crate) fn take_warning(&self) -> Option<String> {
        self.lock().warning.take()
    }

    /// Whether what came with a denial proves that the founder has revoked this machine.
    pub(crate) fn is_put_out(&self, me: libp2p::PeerId, proof: &[u8]) -> bool {
        let state = self.lock();
        let (Some(founder), Some(run), Some(me)) = (state.founder, state.run, from_libp2p(&me)) else { return false };
        let list = postcard::from_bytes::<Revocations>(proof);
        // An older one than ours, or one that has lost to it, proves nothing.
        let counts = |list: &Revocations| !state.renewal.as_ref().is_some_and(|ours| ours.list.precedes(list));
        list.is_ok_and(|list| list.names(&me) && counts(&list) && list.is_of(founder, run))
    }

    /// Whether the founder has revoked this peer.
    pub(crate) fn is_revoked(&self, peer: &PeerId) -> bool {
        self.lock().is_revoked(peer)
    }

    /// Who has to go.
    pub(crate) fn revoked(&self) -> Vec<PeerId> {
        self.lock().renewal.as_ref().map(|renewal| renewal.list.peers.clone()).unwrap_or_default()
    }
}

impl State {
    /// Whether a list would count here, and whether it is another one of the number of ours.
    fn standing(&self, list: &Revocations) -> (bool, bool) {
        let ours = self.renewal.as_ref().map(|ours| &ours.list);
        let is_twin = ours.is_some_and(|ours| ours.epoch == list.epoch && ours.mark() != list.mark());
        (list.epoch > 0 && ours.is_none_or(|ours| list.precedes(ours)), is_twin)
    }

    /// Who would have had to sign a list, and of which run, if it is news.
    fn parties_of(&self, list: &Revocations) -> Option<(PeerId, RunId)> {
        let (counts, is_twin) = self.standing(list);
        self.founder.zip(self.run).filter(|_| counts || is_twin)
    }

    /// The founder has signed two lists of one number.
    fn warn_of_two(&mut self, other: &Revocations, other_counts: bool) {
        let Some(ours) = self.renewal.as_ref().map(|ours| &ours.list) else { return };
        let (counts, lost) = if other_counts { (other, ours) } else { (ours, other) };
        if self.warned.replace(lost.mark()) == Some(lost.mark()) {
            return;
        }
        let missing: Vec<_> =
            lost.peers.iter().filter(|peer| !counts.names(peer)).map(|peer| to_libp2p(*peer).to_string()).collect();
        let again = match missing.is_empty() {
            true => "they name the same peers".to_owned(),
            false => format!("revoke again, which it does not name: {}", missing.join(", ")),
        };
        self.warning = Some(format!(
            "the founder's key has signed two lists of revocations with the number {}, so there are two copies of it in use; \
             one of the lists counts everywhere; {again}",
            counts.epoch
        ));
    }
}
