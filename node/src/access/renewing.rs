//! The founder's lists of who has to go: which of them counts here, and which secret since.

use starling_topology::PeerId;
use tokio::time::Instant;

use super::{Access, State};
use crate::credentials::appointment::Office;
use crate::credentials::identity::{from_libp2p, to_libp2p};
use crate::credentials::invitation::{Invitation, InvitationKey, now_s};
use crate::credentials::revocations::{MAX_SECRETS, RevocationSet, RevocationUpdate};
use crate::net::frame;

/// What it costs a peer of its allowance to have a list looked at: one costs more than a member.
const LIST_COST: u64 = 64;

impl Access {
    /// Takes over a list of the founder's that is newer than ours, or of two of one number the one that counts. False if it is
    /// neither.
    pub(crate) fn adopt(&self, renewal: RevocationUpdate) -> bool {
        let office = self.lock().office_for(&renewal.list);
        // Not under the lock: a long list that is nobody's takes time.
        let writer = office.map(|office| (office.line.number(), office.writer(&renewal)));
        // Whoever had the place before revokes nobody any more.
        writer.is_some_and(|(number, writer)| writer == Some(number) && self.take_over(renewal, number))
    }

    /// The same of what is on our own disk: it was taken over before.
    pub(super) fn adopt_kept(&self, renewal: RevocationUpdate) -> bool {
        let office = self.lock().office_for(&renewal.list);
        let writer = office.and_then(|office| office.writer(&renewal));
        writer.is_some_and(|writer| self.take_over(renewal, writer))
    }

    /// Whether a list on disk has to make way for the one that we go by.
    pub(super) fn is_older(&self, there: &RevocationUpdate, ours: &RevocationUpdate) -> bool {
        let (office, writer) = {
            let state = self.lock();
            (state.office.clone(), state.writer)
        };
        // Not under the lock: signatures take time.
        let theirs = office.and_then(|office| office.writer(there));
        theirs.is_none_or(|theirs| theirs < writer || (theirs == writer && ours.list.precedes(&there.list)))
    }

    /// The same of what a peer tells. Each list has to be looked at, and it may have so many looked at as it may tell of members.
    pub(super) fn adopt_from(&self, from: PeerId, renewal: RevocationUpdate) -> bool {
        let may = {
            let mut state = self.lock();
            let is_news = state.office_for(&renewal.list).is_some();
            let shown = state.shown.get_mut(&from).filter(|_| is_news);
            shown.is_some_and(|shown| shown.allowance.take(LIST_COST, Instant::now()))
        };
        may && self.adopt(renewal)
    }

    /// The founder has signed it.
    fn take_over(&self, mut renewal: RevocationUpdate, writer: usize) -> bool {
        let mut state = self.lock();
        let (counts, is_twin) = state.standing(&renewal.list, writer);
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
        (state.renewal, state.writer) = (Some(renewal), writer);
        self.0.news.notify_one();
        true
    }

    /// The invitation that this machine may hand on.
    pub(crate) fn open_invitation(&self) -> Option<InvitationKey> {
        let (grant, office, renewal) = {
            let state = self.lock();
            (state.grant.clone(), state.office.clone(), state.renewal.clone())
        };
        // Not under the lock: signatures take time.
        let holds = |it: &Invitation| office.is_none_or(|office| !office.has_ended(it, renewal.as_ref()));
        grant.filter(|it| it.invitation.is_open() && !it.invitation.is_over(now_s()) && holds(&it.invitation))
    }

    /// What the user has to hear of the founder's lists.
    pub(crate) fn take_warning(&self) -> Option<String> {
        self.lock().warning.take()
    }

    /// Whether what came with a denial proves that the founder has revoked this machine.
    pub(crate) fn is_put_out(&self, me: libp2p::PeerId, proof: &[u8]) -> bool {
        let state = self.lock();
        let (Some(office), Some(me)) = (state.office.clone(), from_libp2p(&me)) else { return false };
        let writer = state.writer;
        let ours = state.renewal.as_ref().map(|renewal| renewal.list.clone());
        drop(state);
        let list = frame::decode::<RevocationSet>(proof);
        // An older one than ours, or one that has lost to it, proves nothing.
        let number = office.line.number();
        let counts = |list: &RevocationSet| match &ours {
            Some(ours) if writer == number => !ours.precedes(list),
            Some(_) | None => true,
        };
        let is_ours = |list: &RevocationSet| ours.as_ref().is_some_and(|ours| ours.mark() == list.mark());
        list.is_ok_and(|list| {
            list.names(&me) && (is_ours(&list) || counts(&list) && list.is_of(office.holder(), office.run))
        })
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
    /// `writer`: the number of the key that has signed it. A later key's counts, whatever the ones before have signed.
    fn standing(&self, list: &RevocationSet, writer: usize) -> (bool, bool) {
        let ours = self.renewal.as_ref().map(|ours| &ours.list);
        let is_same = writer == self.writer;
        let is_twin = is_same && ours.is_some_and(|ours| ours.epoch == list.epoch && ours.mark() != list.mark());
        let precedes = |ours| if is_same { list.precedes(ours) } else { writer > self.writer };
        (list.epoch > 0 && ours.is_none_or(precedes), is_twin)
    }

    /// Who would have had to sign a list, if it can be news.
    fn office_for(&self, list: &RevocationSet) -> Option<Office> {
        let is_held = self.renewal.as_ref().is_some_and(|ours| ours.list.mark() == list.mark());
        let (counts, is_twin) = self.standing(list, self.number());
        self.office.clone().filter(|_| !is_held && (counts || is_twin))
    }

    /// The founder has signed two lists of one number.
    fn warn_of_two(&mut self, other: &RevocationSet, other_counts: bool) {
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
