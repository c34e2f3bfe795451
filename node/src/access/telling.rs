//! How those who may be here tell each other who may: over streams between peers that are connected, and to nobody else, since the
//! newest secret goes with it.

use std::time::Duration;

use libp2p::{PeerId, StreamProtocol};
use libp2p_stream::Control;
use serde::{Deserialize, Serialize};
use starling_topology::PeerId as Name;
use tokio::time::Instant;

use super::pass::Edition;
use super::{Access, State};
use crate::access::roster::{Entry, MAX_TOLD};
use crate::credentials::appointment::Consents;
use crate::credentials::identity::from_libp2p;
use crate::credentials::invitation::{PresentedInvitation, now_s};
use crate::credentials::revocations::RevocationUpdate;
use crate::net::frame;
use crate::net::streams;

/// The longest update, in bytes.
const MAX_UPDATE: usize = 512 * 1024;
/// How long it may take to say it, and to read it.
const LIMIT: Duration = Duration::from_secs(10);
/// How long a stream for it may take: some tries. Who only visits takes none.
const OPEN_LIMIT: Duration = Duration::from_secs(4);
/// So often in a row it may fail before a peer is told no more until there is something new.
const MAX_FAILED: u32 = 16;
/// What nobody has been told up to.
pub(super) const NEVER: u64 = u64::MAX;
/// The pause before a peer is told more: what is new meanwhile goes together. Who is revoked is to be known soon.
const PAUSE: Duration = Duration::from_millis(100);

/// What peers tell each other of who may be here.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Update {
    pub(crate) renewal: Option<RevocationUpdate>,
    /// Whom the teller has seen in views, and by what each came.
    pub(crate) members: Vec<(Name, PresentedInvitation)>,
    /// Who has consented to whom for the founder's place, and how often somebody took it.
    pub(crate) consents: Consents,
    pub(crate) number: u32,
}

/// Takes in what others tell.
pub(crate) fn serve(control: Control, protocol: StreamProtocol, access: Access) {
    streams::serve(control, protocol, move |peer, mut stream| {
        let access = access.clone();
        async move {
            match tokio::time::timeout(LIMIT, frame::read(&mut stream, MAX_UPDATE)).await {
                Ok(Ok(bytes)) => _ = access.learn(peer, &bytes),
                Ok(Err(error)) => tracing::debug!(%peer, %error, "a peer did not say who may be here"),
                Err(_) => tracing::debug!(%peer, "a peer did not say in time who may be here"),
            }
        }
    });
}

/// Tells a peer what it does not know, if it may, in a task that ends within seconds of the last news. There is one for each peer.
pub(crate) fn tell(mut control: Control, protocol: StreamProtocol, access: &Access, peer: PeerId) {
    let Some(name) = from_libp2p(&peer) else { return };
    let Some(mut update) = access.next_update(name, true) else { return };
    let access = access.clone();
    tokio::spawn(async move {
        let mut failed = 0;
        loop {
            let told = async {
                let mut stream = streams::open(&mut control, peer, &protocol, OPEN_LIMIT).await?;
                frame::write(&mut stream, &update).await
            };
            let told = tokio::time::timeout(LIMIT, told).await;
            if matches!(told, Ok(Ok(()))) {
                failed = 0;
            } else {
                failed += 1;
                tracing::debug!(%peer, failed, "a peer was not told who may be here");
                // It is told once more, as long as it is there and does not always fail.
                if failed <= MAX_FAILED {
                    access.forget_told(name);
                }
            }
            tokio::time::sleep(PAUSE * (1 << failed.min(6))).await;
            match access.next_update(name, false) {
                Some(next) => update = next,
                None => return,
            }
        }
    });
}

impl Access {
    /// What a peer is to be told now: all that we know, if it knows less and may know it. It counts as told from then on.
    /// `begins`: whether somebody has to begin with it; nobody has if somebody is at it already.
    pub(super) fn next_update(&self, peer: Name, begins: bool) -> Option<Vec<u8>> {
        let mut state = self.lock();
        let (list, seen) = (state.edition(), state.news_mark());
        let may_have = state.may_have_secret(peer);
        let shown = state.shown.get_mut(&peer)?;
        if begins && shown.is_being_told {
            return None;
        }
        let theirs = &mut shown.pass;
        let is_older = theirs.list.epoch < list.epoch || theirs.list.epoch == list.epoch && theirs.list != list;
        // Visitors take nothing in.
        let is_behind = theirs.speaks_for.is_none() && (is_older || shown.told != seen);
        shown.is_being_told = is_behind && may_have;
        if !shown.is_being_told {
            return None;
        }
        (theirs.list, shown.told) = (list, seen);
        Some(state.update())
    }

    /// What was to be told to a peer did not get there.
    fn forget_told(&self, peer: Name) {
        if let Some(shown) = self.lock().shown.get_mut(&peer) {
            shown.told = NEVER;
        }
    }

    /// Takes in what a peer told: of the founder's list, what the founder has signed; of members, what a member says of those
    /// whom the founder has invited and who say so themselves. True if it was news.
    pub(super) fn learn(&self, from: PeerId, bytes: &[u8]) -> bool {
        let update = frame::decode::<Update>(bytes);
        let Ok(Update { renewal: told, members, consents, number }) = update else { return false };
        let Some(from) = from_libp2p(&from) else { return false };
        let mut is_news = self.hear(from, members);
        // After those, or we would turn away members of whom we have not heard yet; before an appointment, from which on no more lists
        // of the key before are taken; and behind it, if it comes with the next one's.
        let adopt = || told.clone().is_some_and(|renewal| self.adopt_from(from, renewal));
        let mut is_renewed = adopt();
        let before = self.lock().number();
        is_news |= self.hear_consents(from, &consents);
        if self.lock().number() > before {
            is_renewed |= adopt();
        }
        self.note_number(from, number as usize);
        if is_news {
            self.0.news.notify_one();
        }
        is_news || is_renewed
    }

    fn hear(&self, from: Name, members: Vec<(Name, PresentedInvitation)>) -> bool {
        let (office, unknown) = {
            let mut state = self.lock();
            let Some(office) = state.office.clone() else { return false };
            // Who knows nobody believes whoever may have the secret; a keeper, besides, whom its user names.
            let is_first = state.roster.is_empty() && (state.epoch() == 0 || state.may_have_secret(from));
            let may_begin = is_first || state.named.contains(&from);
            let is_member = match state.view.is_empty() {
                true => may_begin || state.roster.get(&from).is_some(),
                false => state.view.contains(&from),
            };
            let members = members.into_iter().take(if is_member { MAX_TOLD } else { 0 });
            // Nobody else vouches for itself.
            let members = members.filter(|(peer, _)| *peer != from || may_begin);
            let has_told = |told_by: &[Name]| told_by.is_empty() || told_by.contains(&from);
            let is_known = |entry: &Entry| entry.presented.is_some() && has_told(&entry.told_by);
            let is_news = |(peer, _): &(Name, PresentedInvitation)| {
                !state.is_revoked(peer) && !state.roster.get(peer).is_some_and(is_known)
            };
            let unknown: Vec<_> = members.filter(is_news).collect();
            // Signatures take time, of which everybody has some.
            let now = Instant::now();
            let Some(shown) = state.shown.get_mut(&from) else { return false };
            let paid: Vec<_> = unknown.into_iter().take_while(|_| shown.allowance.take(1, now)).collect();
            (office, paid)
        };
        // Not under the lock. What is wrong was paid for, and who passes it on may not know better: the rest counts.
        let is_sound = |(peer, presented): &(Name, PresentedInvitation)| {
            presented.invitation.is_for(*peer).is_ok() && office.check(presented, *peer).is_ok()
        };
        let sound: Vec<_> = unknown.into_iter().filter(is_sound).collect();
        let mut state = self.lock();
        let mut is_news = false;
        for (peer, presented) in sound {
            let terms = presented.invitation.terms;
            let user = terms.once.then(|| state.roster.user(&presented.invitation.key)).flatten();
            if user.is_none_or(|user| user == peer) && !state.is_revoked(&peer) && !state.is_revoked(&from) {
                is_news |= state.roster.hear(from, peer, presented, now_s());
            }
        }
        is_news
    }
}

impl State {
    pub(super) fn edition(&self) -> Edition {
        let list = self.renewal.as_ref().map(|renewal| &renewal.list);
        list.map(|list| Edition { epoch: list.epoch, mark: list.mark() }).unwrap_or_default()
    }

    /// What tells apart what others may be told of besides the founder's list.
    fn news_mark(&self) -> u64 {
        let consents = self.consents.tellable(self.electors.as_ref()).mark();
        // A list of a later key may have a lower number.
        self.roster.mark() ^ consents ^ (self.writer as u64).rotate_left(48)
    }

    /// All that we know, for a peer that may be here.
    pub(super) fn update(&self) -> Vec<u8> {
        let update = Update {
            renewal: self.renewal.clone(),
            members: self.roster.tellable(),
            consents: self.consents.tellable(self.electors.as_ref()),
            number: self.number() as u32,
        };
        postcard::to_allocvec(&update).expect("invariant: an update always encodes")
    }
}

#[cfg(test)]
mod tests {
    use starling_topology::RunId;

    use super::*;
    use crate::credentials::appointment::MAX_TOLD_BYTES;
    use crate::credentials::founder::FounderKey;
    use crate::credentials::invitation::{InvitationKey, InvitationSpec};
    use crate::credentials::revocations::{MAX_REVOKED, MAX_SECRETS};

    #[test]
    fn the_longest_update_fits() {
        let (key, run) = (FounderKey::generate(), RunId([3; 32]));
        let whom = Some(Name([255; 32]));
        let (expires, voters) = (Some(u64::MAX), Some(u16::MAX));
        let terms = InvitationSpec { expires, whom, once: true, voters, epoch: u64::MAX, ..InvitationSpec::default() };
        let shown = InvitationKey::sign(&key, run, terms).present(Name([255; 32]));
        let members = vec![(Name([255; 32]), shown); MAX_TOLD];
        let renewal = RevocationUpdate::after(None, &key, run, Name([1; 32]), Some([9; 32]));
        let update = Update { renewal: Some(renewal), members, consents: Consents::default(), number: u32::MAX };
        let bytes = postcard::to_allocvec(&update).expect("encoded").len();
        assert!(bytes + 32 * MAX_REVOKED + 64 * MAX_SECRETS + MAX_TOLD_BYTES + 16 < MAX_UPDATE, "{bytes}");
    }
}
