//! Who may be here: what a peer shows when it connects, and what this machine makes of it.
//!
//! The run's secret keeps strangers out. Beyond that it is a peer's key that counts: it has been a member, or the user of this
//! machine allows it, or it shows an invitation that the run's founder has signed; and the founder has not revoked it.
//! Whoever is in no view yet can't tell who is in it, and takes those for members that its ticket leads to.
//!
//! [`admission`] is the handshake, [`pending`] the few places before it, [`roster`] who was a member. `clerk` signs and checks for the
//! membership machine; `telling` spreads what the founder has signed, `appointing` and `renewing` take it in.

pub(crate) mod admission;
mod appointing;
mod clerk;
mod disk;
mod file_watcher;
mod joining;
mod pass;
pub(crate) mod pending;
mod renewing;
pub(crate) mod roster;
mod telling;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use starling_topology::{JoinRequest, PeerId, Quorum, RunId};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::access::roster::{MAX_ENTRIES, Roster};
use crate::credentials::appointment::{Appointments, Consents, Electors, Office};
use crate::credentials::identity::{Identity, from_libp2p};
use crate::credentials::invitation::{DenialReason, InvitationKey, PresentedInvitation, now_s};
use crate::credentials::revocations::RevocationUpdate;
use crate::credentials::secret::Secret;
use crate::error::NodeError;
use crate::net::allowance::Allowance;
pub(crate) use clerk::Clerk;
#[cfg(test)]
pub(crate) use disk::store_roster;
pub(crate) use disk::{better, roster};
pub(crate) use file_watcher::FileWatcher;
pub(crate) use joining::Doubt;
pub(crate) use pass::{MAX_PASS, Pass};
#[cfg(feature = "fuzz")]
pub(crate) use telling::Update;
pub(crate) use telling::{serve, tell};

/// Peers whose passes are remembered.
const MAX_SHOWN: usize = 4096;
/// Who is not connected any more is forgotten after so long: it may be connecting again.
const SHOWN_LIMIT: Duration = Duration::from_secs(60);
/// Of how many members one peer may tell at once, and how many more with each second.
const TOLD: (u64, u64) = (2 * MAX_ENTRIES as u64, 8);
/// Peers of which is remembered that they did not take our secret.
const MAX_REFUSALS: usize = 256;

/// What a machine is admitted by.
#[derive(Clone, Default)]
pub(crate) struct Credentials {
    /// The run's; `None` for a public one.
    pub(crate) secret: Option<[u8; 32]>,
    /// The founder's word that its bearer may come.
    pub(crate) invitation: Option<InvitationKey>,
    /// Who comes, where connections are made under another key.
    pub(crate) bearer: Option<Identity>,
}

impl fmt::Debug for Credentials {
    /// Leaves the secret out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { secret, invitation, bearer } = self;
        let (is_private, bearer) = (secret.is_some(), bearer.as_ref().map(Identity::peer_id));
        f.debug_struct("Credentials")
            .field("is_private", &is_private)
            .field("invitation", invitation)
            .field("bearer", &bearer)
            .finish()
    }
}

/// Who may be here, for all tasks of a process. Clones share it.
#[derive(Clone)]
pub(crate) struct Access(Arc<Shared>);

impl fmt::Debug for Access {
    /// Leaves out what it knows: secrets are in it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Access(..)")
    }
}

struct Shared {
    state: Mutex<State>,
    /// Told when there is something new to act on.
    news: Notify,
    /// Held while files are written, so that what is newest comes last.
    writing: Mutex<()>,
    /// How much news is not written yet.
    unkept: AtomicU64,
}

struct State {
    run: Option<RunId>,
    /// The founder's place; `None` if the run has no founder's key.
    office: Option<Office>,
    /// Who decides who has it, and who has consented to whom.
    electors: Option<Electors>,
    consents: Consents,
    /// Since when the present key has it, if that came about here; and with what this member consents.
    appointed: Option<Instant>,
    signer: Option<Identity>,
    /// Newest first; none of a public run.
    secrets: Vec<[u8; 32]>,
    /// By what we come, and what we show of it.
    grant: Option<InvitationKey>,
    pass: Pass,
    /// Whom this machine's user lets in.
    allowed: BTreeSet<PeerId>,
    renewal: Option<RevocationUpdate>,
    /// The number of the key that has signed that.
    writer: usize,
    roster: Roster,
    /// Whether we store checkpoints, and are never in a view; and who may vouch for itself then, as our user names it.
    keeps: bool,
    named: BTreeSet<PeerId>,
    /// Of the present view.
    view: BTreeSet<PeerId>,
    /// What those showed who are connected, or were a moment ago.
    shown: BTreeMap<PeerId, Shown>,
    /// Who did not take how many of our secrets.
    refusals: BTreeMap<libp2p::PeerId, usize>,
    /// Who asks to be let in by which invitation for one, and since when.
    claims: BTreeMap<PeerId, (PeerId, Instant)>,
    /// Which passes of joiners were found to be right, and the number of the key that invited.
    proven: BTreeMap<[u8; 32], usize>,
    /// Where all that is kept.
    data_dir: Option<PathBuf>,
    /// Whether what is there of secret and invitation is what we come by, or better.
    is_kept: bool,
    /// What the user has to hear, and about which list that was.
    warning: Option<String>,
    warned: Option<[u8; 32]>,
}

/// By what a peer may be here, once its signatures were looked at, and the number of the key that invited it; or what is wrong
/// with that.
type Card = Result<Option<(PresentedInvitation, usize)>, DenialReason>;

/// What a peer showed that is connected.
#[derive(Debug)]
struct Shown {
    /// The list that it has is the one that it said, or was told since.
    pass: Pass,
    card: Card,
    /// What both sides proved to know.
    secret: Secret,
    /// What tells apart of whom it was told.
    told: u64,
    is_being_told: bool,
    /// Of how many members it may tell us.
    allowance: Allowance,
    /// When it connected last.
    at: Instant,
}

impl Access {
    /// That of a machine that only visits: it judges nobody.
    pub(crate) fn visiting(me: libp2p::PeerId, run: Option<RunId>, credentials: &Credentials) -> Self {
        let pass = Pass::of(me, run, credentials);
        let state = State {
            run,
            office: None,
            electors: None,
            consents: Consents::default(),
            appointed: None,
            signer: None,
            secrets: credentials.secret.into_iter().collect(),
            grant: credentials.invitation.clone(),
            pass,
            allowed: BTreeSet::new(),
            renewal: None,
            writer: 0,
            roster: Roster::default(),
            keeps: false,
            named: BTreeSet::new(),
            view: BTreeSet::new(),
            shown: BTreeMap::new(),
            refusals: BTreeMap::new(),
            claims: BTreeMap::new(),
            proven: BTreeMap::new(),
            data_dir: None,
            is_kept: false,
            warning: None,
            warned: None,
        };
        let (news, unkept) = (Notify::new(), AtomicU64::new(0));
        Self(Arc::new(Shared { state: Mutex::new(state), news, writing: Mutex::new(()), unkept }))
    }

    /// That of a member or keeper, with what its data directory has of it.
    pub(crate) fn open(
        me: libp2p::PeerId,
        (run, founder): (RunId, Option<PeerId>),
        credentials: &Credentials,
        allowed: &[PeerId],
        data_dir: &Path,
    ) -> Result<Self, NodeError> {
        let access = Self::visiting(me, Some(run), credentials);
        {
            let mut state = access.lock();
            let Appointments { line, consents } = Appointments::load(data_dir, run);
            (state.office, state.consents) = (founder.map(|founder| Office { run, founder, line }), consents);
            state.data_dir = Some(data_dir.to_owned());
            state.allowed = allowed.iter().copied().collect();
            state.roster = roster(data_dir, run)?;
        }
        if let Some(renewal) = RevocationUpdate::load(data_dir, run)? {
            let is_newer = |secret: &[u8; 32]| !renewal.list.covers(secret);
            let newer = credentials.secret.filter(is_newer);
            access.adopt_kept(renewal);
            // A ticket may be newer than what was kept.
            let mut state = access.lock();
            if let Some(at) = state.secrets.iter().position(|secret| Some(*secret) == newer) {
                state.secrets[..=at].rotate_right(1);
            }
        }
        Ok(access)
    }

    /// That of a keeper: it is in no view, and judges by what members tell it, those first whom its user `named`. By the run's
    /// `rule` they say who has the founder's place.
    pub(crate) fn keeping(self, named: impl IntoIterator<Item = PeerId>, rule: Quorum) -> Self {
        let mut state = self.lock();
        (state.keeps, state.named) = (true, named.into_iter().collect());
        Self::counts_named(&mut state, rule);
        drop(state);
        self
    }

    /// Proofs of any of these are taken, the first one is given.
    pub(crate) fn secrets(&self) -> Vec<Secret> {
        let state = self.lock();
        let secrets: Vec<Secret> = state.secrets.iter().map(|secret| Secret::new(Some(*secret))).collect();
        if secrets.is_empty() { vec![Secret::new(None)] } else { secrets }
    }

    /// What we prove to this peer that we know: the newest, or if it did not take that, an earlier one. It may have been away.
    pub(crate) fn secret_for(&self, peer: &libp2p::PeerId) -> Secret {
        let secrets = self.secrets();
        let refused = self.lock().refusals.get(peer).copied().unwrap_or_default();
        secrets[refused % secrets.len()]
    }

    /// It did not take it.
    pub(crate) fn was_refused_by(&self, peer: libp2p::PeerId) {
        let mut state = self.lock();
        if state.refusals.len() >= MAX_REFUSALS && !state.refusals.contains_key(&peer) {
            state.refusals.clear();
        }
        *state.refusals.entry(peer).or_default() += 1;
    }

    /// Whether those who know no secret are kept out.
    pub(crate) fn is_private(&self) -> bool {
        self.lock().is_private()
    }

    /// The run's secret now; `None` for a public run.
    pub(crate) fn secret(&self) -> Option<[u8; 32]> {
        self.lock().secrets.first().copied()
    }

    /// What we show to whoever we connect with.
    pub(crate) fn pass(&self) -> Vec<u8> {
        let state = self.lock();
        Pass { list: state.edition(), ..state.pass.clone() }.encode()
    }

    /// Whether a peer that knows this `secret` and shows this may be connected. If not, why, and what proves it.
    pub(crate) fn judge(
        &self,
        peer: libp2p::PeerId,
        secret: Secret,
        pass: &[u8],
    ) -> Result<(), (DenialReason, Vec<u8>)> {
        let pass = Pass::decode(pass).unwrap_or_default();
        let (run, office, is_open) = {
            let state = self.lock();
            (state.run, state.office.clone(), state.is_open())
        };
        // Not under the lock: signatures take time.
        let Some(who) = pass.who(peer, run) else {
            return is_open.then_some(()).ok_or((DenialReason::NotInvited, Vec::new()));
        };
        let card = match (&pass.presented, &office) {
            (Some(presented), Some(office)) => {
                office.check(presented, who).map(|number| Some((presented.clone(), number)))
            }
            (Some(_) | None, _) => Ok(None),
        };
        let mut state = self.lock();
        if let Some(renewal) = state.renewal.as_ref().filter(|renewal| renewal.list.names(&who)) {
            let proof = postcard::to_allocvec(&renewal.list).expect("invariant: a list always encodes");
            return Err((DenialReason::Revoked, proof));
        }
        state.verdict(who, &card).map_err(|denial| (denial, Vec::new()))?;
        if state.view.contains(&who) {
            state.enter(who, Some(card.clone().unwrap_or_default().map(|(presented, _)| presented)));
        }
        if let Some(peer) = from_libp2p(&peer) {
            state.note_shown(peer, pass, card, secret);
            if !state.is_kept && state.is_taken() {
                self.0.news.notify_one();
            }
        }
        Ok(())
    }

    /// Forgets what those showed who are gone.
    pub(crate) fn forget_gone(&self, is_connected: impl Fn(PeerId) -> bool) {
        self.lock().shown.retain(|peer, shown| shown.at.elapsed() < SHOWN_LIMIT || is_connected(*peer));
    }

    /// Whether a peer that is connected may stay so.
    pub(crate) fn may_stay(&self, peer: PeerId) -> bool {
        let state = self.lock();
        let shown = state.shown.get(&peer);
        let who = shown.and_then(|shown| shown.pass.speaks_for).map_or(peer, |(sender, _)| sender);
        !state.is_revoked(&who) && state.verdict(who, shown.map_or(&Ok(None), |shown| &shown.card)).is_ok()
    }

    /// Whether a peer that is connected may have what the run has come to. Who is in no view lets others connect, since it can't
    /// tell who is a member, and serves those alone whom it has seen in one, or whose invitation holds.
    pub(crate) fn may_fetch(&self, peer: PeerId) -> bool {
        let state = self.lock();
        let shown = state.shown.get(&peer);
        let who = shown.and_then(|shown| shown.pass.speaks_for).map_or(peer, |(sender, _)| sender);
        let is_known = state.keeps && state.roster.get(&who).is_some() && !state.is_revoked(&who);
        is_known || state.is_entitled(who, shown.map(|shown| &shown.card))
    }

    /// These are the members now, of whom the decree let in `joiners`. Who asked to be let in by an invitation for one is to be
    /// asked anew: it is returned.
    pub(crate) fn enter(&self, view: &[PeerId], joiners: &[JoinRequest]) -> Vec<PeerId> {
        // Not under the lock: signatures take time, unless we have looked at them when that was proposed.
        let came = joiners.iter().filter_map(|joiner| Some((joiner.contact.peer, self.invited(joiner).ok()??.0)));
        let came: BTreeMap<PeerId, PresentedInvitation> = came.collect();
        let mut state = self.lock();
        let was_outside = std::mem::replace(&mut state.view, view.iter().copied().collect()).is_empty();
        state.attest(view, came);
        if was_outside {
            // Until now whoever it met could tell.
            let (view, seen) = (state.view.clone(), state.roster.seen());
            state.roster.distrust(|teller| !view.contains(teller) && !seen.contains(teller));
        }
        std::mem::take(&mut state.claims)
            .into_values()
            .map(|(peer, _)| peer)
            .filter(|peer| !view.contains(peer))
            .collect()
    }

    /// Ends when there is something new to act on.
    pub(crate) async fn news(&self) {
        self.0.news.notified().await;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A lock poisoned by a panic elsewhere still guards what is known.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn epoch(&self) -> u64 {
        self.renewal.as_ref().map_or(0, |renewal| renewal.list.epoch)
    }

    fn is_private(&self) -> bool {
        !self.secrets.is_empty()
    }

    /// Whether nobody is asked who it is: the run has no founder's key, or it is public and its user allows everybody.
    fn is_open(&self) -> bool {
        self.allowed.is_empty() && (self.office.is_none() || !self.is_private())
    }

    /// Whether it takes an invitation by the founder to become a member, or to have been one.
    fn needs_invitation(&self, peer: &PeerId) -> bool {
        self.office.is_some() && self.is_private() && !self.allowed.contains(peer)
    }

    fn is_revoked(&self, peer: &PeerId) -> bool {
        self.renewal.as_ref().is_some_and(|renewal| renewal.list.names(peer))
    }

    fn is_known(&self, peer: &PeerId) -> bool {
        self.view.contains(peer) || self.allowed.contains(peer) || self.roster.get(peer).is_some()
    }

    /// Whether a peer that shows this may be connected, if it is not revoked.
    fn verdict(&self, peer: PeerId, card: &Card) -> Result<(), DenialReason> {
        // Who is in no view can't tell who is in one.
        let is_new = self.view.is_empty() && self.allowed.is_empty() && (!self.keeps || self.roster.is_empty());
        if self.is_open() || is_new || self.is_known(&peer) { Ok(()) } else { self.invites(peer, card) }
    }

    /// Whether what a peer shows holds.
    fn invites(&self, peer: PeerId, card: &Card) -> Result<(), DenialReason> {
        let presented = card.as_ref().map_err(|denial| *denial)?;
        let (PresentedInvitation { invitation, .. }, number) = presented.as_ref().ok_or(DenialReason::NotInvited)?;
        if *number < self.writer {
            return Err(DenialReason::Outdated);
        }
        // What the keys before have revoked does not end what a later one signs.
        invitation.admits(peer, now_s(), if *number == self.writer { self.epoch() } else { 0 })?;
        match invitation.terms.once.then(|| self.roster.user(&invitation.key)).flatten() {
            Some(user) if user != peer => Err(DenialReason::Used),
            Some(_) | None => Ok(()),
        }
    }

    /// Whether a peer that is connected may know the run's newest secret. Who is in no view yet admits more than that.
    fn may_have_secret(&self, peer: PeerId) -> bool {
        self.is_entitled(peer, self.card(&peer).as_ref())
    }

    fn is_entitled(&self, peer: PeerId, card: Option<&Card>) -> bool {
        let is_member = match self.view.is_empty() {
            true => self.roster.has_seen(&peer) || self.allowed.contains(&peer),
            false => self.is_known(&peer),
        };
        let invited = || card.is_some_and(|card| self.invites(peer, card).is_ok());
        !self.is_revoked(&peer) && (self.is_open() || is_member || invited())
    }

    /// Whether a member, or to a keeper one who has been one, is connected by the secret that we come by: whoever made that up is
    /// none.
    fn is_taken(&self) -> bool {
        let newest = Secret::new(self.secrets.first().copied());
        let is_member = |peer: &PeerId| match self.keeps {
            true => self.roster.get(peer).is_some(),
            false => self.view.contains(peer),
        };
        let shown = &mut self.shown.iter().filter(|(_, shown)| shown.pass.speaks_for.is_none());
        shown.any(|(peer, shown)| shown.secret == newest && is_member(peer))
    }

    /// By what a peer may be here that speaks for itself.
    fn card(&self, peer: &PeerId) -> Option<Card> {
        self.shown.get(peer).filter(|shown| shown.pass.speaks_for.is_none()).map(|shown| shown.card.clone())
    }

    fn note_shown(&mut self, peer: PeerId, pass: Pass, card: Card, secret: Secret) {
        if self.shown.len() >= MAX_SHOWN && !self.shown.contains_key(&peer) {
            let (view, shown) = (&self.view, &self.shown);
            let oldest = shown.iter().filter(|(peer, _)| !view.contains(peer)).min_by_key(|(_, shown)| shown.at);
            let oldest = oldest.map(|(peer, _)| *peer);
            oldest.and_then(|peer| self.shown.remove(&peer));
        }
        let at = Instant::now();
        let before = self.shown.remove(&peer);
        // Who connects anew has no more to tell for that.
        let (is_being_told, allowance) = before.map_or_else(
            || (false, Allowance::new(TOLD.0, TOLD.1, at)),
            |before| (before.is_being_told, before.allowance),
        );
        self.shown.insert(peer, Shown { pass, card, secret, told: 0, is_being_told, allowance, at });
    }

    fn enter(&mut self, peer: PeerId, shown: Option<Option<PresentedInvitation>>) -> bool {
        let view = &self.view;
        self.roster.enter(peer, shown, now_s(), |other| view.contains(other))
    }

    /// Notes who is in the view, and by what each came: what the decree says counts, and not what it shows here besides.
    fn attest(&mut self, view: &[PeerId], mut came: BTreeMap<PeerId, PresentedInvitation>) {
        let office = self.office.clone();
        for member in view.iter().filter(|member| !self.is_revoked(member)).copied().collect::<Vec<_>>() {
            // Whom users let in by its key has shown that it needs nothing.
            let shown = self.card(&member).and_then(Result::ok).map(|card| card.map(|(presented, _)| presented));
            let is_me = Some(member) == self.pass.me && self.roster.get(&member).is_none_or(|it| !it.has_shown);
            // Others would not take it if it were wrong.
            let is_right =
                |it: &PresentedInvitation| office.as_ref().is_some_and(|office| office.check(it, member).is_ok());
            let own = is_me.then(|| self.pass.presented.clone().filter(is_right));
            let came = came.remove(&member);
            self.enter(member, own.or_else(|| came.clone().map(Some)).or(shown));
            if let Some(came) = came {
                self.roster.came_by(member, came);
            }
        }
    }

    fn silent(&self) -> impl Iterator<Item = PeerId> {
        let has_shown = |peer: &&PeerId| self.roster.get(peer).is_some_and(|entry| entry.has_shown);
        self.view.iter().filter(move |peer| !has_shown(peer)).copied()
    }
}

#[cfg(test)]
mod tests;
