//! Who may be here: what a peer shows when it connects, and what this machine makes of it.
//!
//! The run's secret keeps strangers out. Beyond that it is a peer's key that counts: it has been a member, or the user of this
//! machine allows it, or it shows an invitation that the run's founder has signed; and the founder has not revoked it.
//! Whoever is in no view yet can't tell who is in it, and takes those for members that its ticket leads to.

mod pass;
mod telling;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use starling_topology::{PeerId, RunId};
use tokio::sync::Notify;

use crate::error::NodeError;
use crate::identity::{Identity, from_libp2p};
use crate::invitation::{Denial, Invitation, Role, Terms, now_s};
use crate::private_file;
use crate::revocations::{Renewal, Revocations};
use crate::roster::{Entry, MAX_ENTRIES, Roster};
use crate::secret::{self, Secret};
pub(crate) use pass::MAX_PASS;
use pass::Pass;
pub(crate) use telling::{serve, tell};
pub(crate) use watch::Watch;

/// Secrets of earlier epochs that still let members in.
const MAX_SECRETS: usize = 8;
/// Peers whose passes are remembered.
const MAX_SHOWN: usize = 4096;
/// The longest roster on disk, in bytes.
const MAX_ROSTER_BYTES: u64 = 1 << 20;
/// The longest update, in bytes.
pub(crate) const MAX_UPDATE: usize = 512 * 1024;
/// Who asks to be let in by an invitation for one is waited for so long before another may come by it.
const CLAIM_LIMIT: Duration = Duration::from_secs(20);

/// What a machine is admitted by.
#[derive(Debug, Clone, Default)]
pub(crate) struct Credentials {
    /// The run's; `None` for a public one.
    pub(crate) secret: Option<[u8; 32]>,
    /// The founder's word that its bearer may come.
    pub(crate) invitation: Option<Invitation>,
    /// Who comes, where connections are made under another key.
    pub(crate) bearer: Option<Identity>,
}

/// Who may be here, for all tasks of a process. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Access(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Told when there is something new to act on.
    news: Notify,
    /// Held while files are written, so that what is newest comes last.
    writing: Mutex<()>,
}

#[derive(Debug)]
struct State {
    run: Option<RunId>,
    founder: Option<PeerId>,
    /// Newest first; none of a public run.
    secrets: Vec<[u8; 32]>,
    /// What we show.
    pass: Pass,
    /// Whom this machine's user lets in.
    allowed: BTreeSet<PeerId>,
    renewal: Option<Renewal>,
    roster: Roster,
    /// Whether we store checkpoints, and are never in a view.
    keeps: bool,
    /// Of the present view.
    view: BTreeSet<PeerId>,
    /// What those showed who are connected, or were.
    shown: BTreeMap<PeerId, Pass>,
    /// Who asks to be let in by which invitation for one, and since when.
    claims: BTreeMap<[u8; 16], (PeerId, Instant)>,
    /// Where all that is kept.
    data_dir: Option<PathBuf>,
}

/// What members tell each other of who may be here.
#[derive(Debug, Serialize, Deserialize)]
struct Update {
    renewal: Option<Renewal>,
    members: Vec<(PeerId, Entry)>,
}

/// Why a peer is not let into the view now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Doubt {
    /// It never is.
    Denied(Denial),
    /// Another may have come by its invitation: these members have to show theirs first, or the other has to give up.
    NotYet,
}

impl Access {
    /// That of a machine that only visits: it judges nobody.
    pub(crate) fn visiting(me: libp2p::PeerId, run: Option<RunId>, credentials: &Credentials) -> Self {
        let pass = Pass::of(me, run, credentials);
        let state = State {
            run,
            founder: None,
            secrets: credentials.secret.into_iter().collect(),
            pass,
            allowed: BTreeSet::new(),
            renewal: None,
            roster: Roster::default(),
            keeps: false,
            view: BTreeSet::new(),
            shown: BTreeMap::new(),
            claims: BTreeMap::new(),
            data_dir: None,
        };
        Self(Arc::new(Shared { state: Mutex::new(state), news: Notify::new(), writing: Mutex::new(()) }))
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
            (state.founder, state.data_dir) = (founder, Some(data_dir.to_owned()));
            state.allowed = allowed.iter().copied().collect();
            state.roster = roster(data_dir, run)?;
        }
        if let Some(renewal) = Renewal::load(data_dir, run)? {
            access.adopt(renewal);
        }
        Ok(access)
    }

    /// That of a keeper: it is in no view, and judges by what members tell it.
    pub(crate) fn keeping(self) -> Self {
        self.lock().keeps = true;
        self
    }

    /// Proofs of any of these are taken, the first one is given.
    pub(crate) fn secrets(&self) -> Vec<Secret> {
        let state = self.lock();
        let secrets: Vec<Secret> = state.secrets.iter().map(|secret| Secret::new(Some(*secret))).collect();
        if secrets.is_empty() { vec![Secret::new(None)] } else { secrets }
    }

    /// Whether those who know no secret are kept out.
    pub(crate) fn is_private(&self) -> bool {
        self.lock().is_private()
    }

    /// The run's secret now; `None` for a public run.
    pub(crate) fn secret(&self) -> Option<[u8; 32]> {
        self.lock().secrets.first().copied()
    }

    /// The invitation that this machine may tell others.
    pub(crate) fn open_invitation(&self) -> Option<Invitation> {
        let state = self.lock();
        let epoch = state.epoch();
        state.pass.invitation.clone().filter(|it| it.is_open() && it.terms.epoch == epoch && !it.is_over(now_s()))
    }

    /// What we show to whoever we connect with.
    pub(crate) fn pass(&self) -> Vec<u8> {
        let state = self.lock();
        Pass { epoch: state.epoch(), known: state.roster.len() as u64, ..state.pass.clone() }.encode()
    }

    /// Whether a peer that shows this may be connected. If not, why, and what proves it.
    pub(crate) fn judge(&self, peer: libp2p::PeerId, pass: &[u8]) -> Result<(), (Denial, Vec<u8>)> {
        let mut state = self.lock();
        let pass = Pass::decode(pass).unwrap_or_default();
        let Some(who) = pass.who(peer, state.run) else {
            return state.is_open().then_some(()).ok_or((Denial::NotInvited, Vec::new()));
        };
        if let Some(renewal) = state.renewal.as_ref().filter(|renewal| renewal.list.names(&who)) {
            let proof = postcard::to_allocvec(&renewal.list).expect("invariant: a list always encodes");
            return Err((Denial::Revoked, proof));
        }
        state.verdict(who, pass.invitation.as_ref()).map_err(|denial| (denial, Vec::new()))?;
        if state.view.contains(&who) {
            state.enter(who, Some(pass.invitation.clone()));
        }
        if let Some(peer) = from_libp2p(&peer) {
            if state.shown.len() >= MAX_SHOWN && !state.shown.contains_key(&peer) {
                state.shown.pop_first();
            }
            state.shown.insert(peer, pass);
        }
        Ok(())
    }

    /// Whether what came with a denial proves that the founder has revoked this machine.
    pub(crate) fn is_put_out(&self, me: libp2p::PeerId, proof: &[u8]) -> bool {
        let state = self.lock();
        let (Some(founder), Some(run), Some(me)) = (state.founder, state.run, from_libp2p(&me)) else { return false };
        let list = postcard::from_bytes::<Revocations>(proof);
        list.is_ok_and(|list| list.names(&me) && list.is_of(founder, run))
    }

    /// Whether a peer that is connected may stay so.
    pub(crate) fn may_stay(&self, peer: PeerId) -> bool {
        let state = self.lock();
        let pass = state.shown.get(&peer);
        let who = pass.and_then(|pass| pass.speaks_for).map_or(peer, |(sender, _)| sender);
        !state.is_revoked(&who) && state.verdict(who, pass.and_then(|pass| pass.invitation.as_ref())).is_ok()
    }

    /// Whether a peer that asks may be let into the view.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn may_join(&self, peer: PeerId) -> Result<(), Doubt> {
        let mut state = self.lock();
        if state.is_revoked(&peer) {
            return Err(Doubt::Denied(Denial::Revoked));
        }
        if state.is_open() || state.is_known(&peer) {
            return Ok(());
        }
        let invitation = state.shown.get(&peer).and_then(|pass| pass.invitation.clone());
        state.verdict(peer, invitation.as_ref()).map_err(Doubt::Denied)?;
        let Some(terms) = invitation.map(|invitation| invitation.terms) else { return Ok(()) };
        if terms.role == Role::Keeper {
            return Err(Doubt::Denied(Denial::KeepersOnly));
        }
        let Some(once) = terms.once else { return Ok(()) };
        if state.silent().next().is_some() {
            return Err(Doubt::NotYet);
        }
        state.claims.retain(|_, (_, since)| since.elapsed() < CLAIM_LIMIT);
        match state.claims.get(&once) {
            Some((first, _)) if *first != peer => Err(Doubt::NotYet),
            Some(_) | None => {
                state.claims.insert(once, (peer, Instant::now()));
                Ok(())
            }
        }
    }

    /// Members that have not shown here how they came: until they have, nobody comes by an invitation for one.
    pub(crate) fn silent(&self) -> Vec<PeerId> {
        self.lock().silent().collect()
    }

    /// These are the members now. Who asked to be let in by an invitation for one is to be asked anew: it is returned.
    pub(crate) fn enter(&self, view: &[PeerId]) -> Vec<PeerId> {
        let mut state = self.lock();
        state.view = view.iter().copied().collect();
        for member in view {
            let shown = state.shown.get(member).map(|pass| pass.invitation.clone());
            let own = (Some(*member) == state.pass.me).then(|| state.pass.invitation.clone());
            state.enter(*member, own.or(shown));
        }
        std::mem::take(&mut state.claims)
            .into_values()
            .map(|(peer, _)| peer)
            .filter(|peer| !view.contains(peer))
            .collect()
    }

    /// Whether we know what this peer does not. It counts as told from then on.
    pub(crate) fn is_behind(&self, peer: PeerId) -> bool {
        let mut state = self.lock();
        let ours = (state.epoch(), state.roster.len() as u64);
        let Some(pass) = state.shown.get_mut(&peer) else { return false };
        // Visitors take nothing in.
        let is_behind = pass.speaks_for.is_none() && (pass.epoch < ours.0 || pass.known < ours.1);
        (pass.epoch, pass.known) = (pass.epoch.max(ours.0), pass.known.max(ours.1));
        is_behind
    }

    /// All that we know, for a peer that may be here.
    pub(crate) fn update(&self) -> Vec<u8> {
        let state = self.lock();
        let members = state.roster.entries().filter(|(_, entry)| entry.invitation.is_some());
        let members = members.map(|(peer, entry)| (*peer, entry.clone())).collect();
        let update = Update { renewal: state.renewal.clone(), members };
        postcard::to_allocvec(&update).expect("invariant: an update always encodes")
    }

    /// Takes in what a peer told: of the founder's list, what the founder has signed; of members, what a member says of those
    /// whom the founder has invited. True if it was news.
    pub(crate) fn learn(&self, from: libp2p::PeerId, bytes: &[u8]) -> bool {
        let Ok(Update { renewal, members }) = postcard::from_bytes::<Update>(bytes) else { return false };
        let is_renewed = renewal.is_some_and(|renewal| self.adopt(renewal));
        let (parties, unknown) = {
            let state = self.lock();
            let (Some(founder), Some(run), Some(from)) = (state.founder, state.run, from_libp2p(&from)) else {
                return is_renewed;
            };
            let is_member = match state.view.is_empty() {
                true => state.roster.is_empty() || state.roster.get(&from).is_some(),
                false => state.view.contains(&from),
            };
            let members = members.into_iter().take(if is_member { MAX_ENTRIES } else { 0 });
            let is_new = |(peer, _): &(PeerId, Entry)| {
                state.roster.get(peer).is_none_or(|entry| entry.invitation.is_none()) && !state.is_revoked(peer)
            };
            let unknown = members.filter(is_new).filter_map(|(peer, entry)| Some((peer, entry.invitation?)));
            ((founder, run), unknown.collect::<Vec<_>>())
        };
        // Not under the lock, and no further than the first that is wrong: signatures take time.
        let is_sound = |(peer, invitation): &(PeerId, Invitation)| {
            let Terms { whom, role, .. } = invitation.terms;
            whom.is_none_or(|whom| whom == *peer) && role == Role::Member && invitation.is_of(parties.0, parties.1)
        };
        let sound: Vec<_> = unknown.into_iter().take_while(is_sound).collect();
        let mut state = self.lock();
        let mut is_news = is_renewed;
        for (peer, invitation) in sound {
            let user = invitation.terms.once.and_then(|once| state.roster.user(&once));
            if user.is_none_or(|user| user == peer) && !state.is_revoked(&peer) {
                is_news |= state.enter(peer, Some(Some(invitation)));
            }
        }
        if is_news {
            self.0.news.notify_one();
        }
        is_news
    }

    /// Takes over a list of the founder's that is newer than ours. False if it is not.
    pub(crate) fn adopt(&self, renewal: Renewal) -> bool {
        let mut state = self.lock();
        let (Some(founder), Some(run)) = (state.founder, state.run) else { return false };
        if renewal.list.epoch <= state.epoch() || !renewal.is_of(founder, run) {
            return false;
        }
        if let Some(secret) = renewal.secret.filter(|_| state.is_private()) {
            state.secrets.retain(|known| *known != secret);
            state.secrets.insert(0, secret);
            state.secrets.truncate(MAX_SECRETS);
        }
        renewal.list.peers.iter().for_each(|peer| state.roster.strike(peer));
        state.renewal = Some(renewal);
        self.0.news.notify_one();
        true
    }

    /// Ends when there is something new to act on.
    pub(crate) async fn news(&self) {
        self.0.news.notified().await;
    }

    /// Whether the founder has revoked this peer.
    pub(crate) fn is_revoked(&self, peer: &PeerId) -> bool {
        self.lock().is_revoked(peer)
    }

    /// Who has to go.
    pub(crate) fn revoked(&self) -> Vec<PeerId> {
        self.lock().renewal.as_ref().map(|renewal| renewal.list.peers.clone()).unwrap_or_default()
    }

    /// Writes down who has been a member, who has to go, and the secret since.
    pub(crate) fn store(&self) -> Result<(), NodeError> {
        let _writing = self.0.writing.lock().unwrap_or_else(PoisonError::into_inner);
        // A disk that hangs keeps nobody waiting who wants to know who may be here.
        let (data_dir, run, roster, renewal, credentials) = {
            let state = self.lock();
            let (Some(data_dir), Some(run)) = (state.data_dir.clone(), state.run) else { return Ok(()) };
            let secret = state.secrets.first().copied();
            let credentials = Credentials { secret, invitation: state.pass.invitation.clone(), bearer: None };
            (data_dir, run, state.roster.clone(), state.renewal.clone(), credentials)
        };
        store_roster(&data_dir, run, &roster)?;
        let Some(renewal) = renewal else { return Ok(()) };
        // The founder may just have written a newer one.
        let there = Renewal::load(&data_dir, run).ok().flatten();
        if there.is_none_or(|there| there.list.epoch < renewal.list.epoch) {
            renewal.store(&data_dir, run)?;
        }
        secret::store(&data_dir, run, &credentials)
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
        self.allowed.is_empty() && (self.founder.is_none() || !self.is_private())
    }

    fn is_revoked(&self, peer: &PeerId) -> bool {
        self.renewal.as_ref().is_some_and(|renewal| renewal.list.names(peer))
    }

    fn is_known(&self, peer: &PeerId) -> bool {
        self.view.contains(peer) || self.allowed.contains(peer) || self.roster.get(peer).is_some()
    }

    /// Whether a peer with this invitation may be connected, if it is not revoked.
    fn verdict(&self, peer: PeerId, invitation: Option<&Invitation>) -> Result<(), Denial> {
        // Who is in no view can't tell who is in one.
        let is_new = self.view.is_empty() && self.allowed.is_empty() && (!self.keeps || self.roster.is_empty());
        if self.is_open() || is_new || self.is_known(&peer) {
            return Ok(());
        }
        let (Some(founder), Some(run)) = (self.founder, self.run) else { return Err(Denial::NotInvited) };
        let invitation = invitation.ok_or(Denial::NotInvited)?;
        invitation.admits((founder, run), peer, now_s(), self.epoch())?;
        match invitation.terms.once.and_then(|once| self.roster.user(&once)) {
            Some(user) if user != peer => Err(Denial::Used),
            Some(_) | None => Ok(()),
        }
    }

    fn enter(&mut self, peer: PeerId, shown: Option<Option<Invitation>>) -> bool {
        let view = &self.view;
        self.roster.enter(peer, shown, now_s(), |other| view.contains(other))
    }

    fn silent(&self) -> impl Iterator<Item = PeerId> {
        let has_shown = |peer: &&PeerId| self.roster.get(peer).is_some_and(|entry| entry.has_shown);
        self.view.iter().filter(move |peer| !has_shown(peer)).copied()
    }
}

/// Who has been a member of `run`, as `data_dir` has it.
pub(crate) fn roster(data_dir: &Path, run: RunId) -> Result<Roster, NodeError> {
    let Some(bytes) = private_file::read_up_to(&path(data_dir, run), MAX_ROSTER_BYTES)? else {
        return Ok(Roster::default());
    };
    // Whoever is not in it shows its invitation again.
    Ok(postcard::from_bytes(&bytes).unwrap_or_else(|error| {
        tracing::warn!(%error, "who has been a member can't be read");
        Roster::default()
    }))
}

pub(crate) fn store_roster(data_dir: &Path, run: RunId, roster: &Roster) -> Result<(), NodeError> {
    let bytes = postcard::to_allocvec(roster).expect("invariant: a roster always encodes");
    private_file::write(&path(data_dir, run), &bytes)
}

fn path(data_dir: &Path, run: RunId) -> PathBuf {
    data_dir.join(format!("roster-{}", &run.to_string()[..16]))
}

#[cfg(test)]
mod tests;
