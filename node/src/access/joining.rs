//! Who asks to be let into the view, and whether that is heard.

use std::time::Duration;

use starling_topology::PeerId;
use tokio::time::Instant;

use super::Access;
use crate::credentials::invitation::{DenialReason, PresentedInvitation};

/// Who asks to be let in by an invitation for one is waited for so long before another may come by it.
const CLAIM_LIMIT: Duration = Duration::from_secs(20);

/// Why a peer is not let into the view now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Doubt {
    /// It never is.
    Denied(DenialReason),
    /// Another may have come by its invitation: these members have to show theirs first, or the other has to give up.
    NotYet,
    /// It asks by what it has not shown when it connected, as no correct peer does.
    NotShown,
}

impl Access {
    /// Whether a peer that asks by this `pass` may be let into the view.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn may_join(&self, peer: PeerId, pass: &[u8]) -> Result<(), Doubt> {
        let mut state = self.lock();
        if state.is_revoked(&peer) {
            return Err(Doubt::Denied(DenialReason::Revoked));
        }
        // What it has shown was looked at once. Signatures that come with each message would take all time there is.
        let has_shown = |pass: &[u8]| {
            let shown = state.shown.get(&peer).filter(|shown| shown.pass.speaks_for.is_none());
            shown.and_then(|shown| shown.pass.presented.as_ref()).map(PresentedInvitation::encode).as_deref()
                == Some(pass)
        };
        if !pass.is_empty() && !has_shown(pass) {
            return Err(Doubt::NotShown);
        }
        if state.is_open() {
            return Ok(());
        }
        let card = state.card(&peer).unwrap_or(Ok(None));
        if state.needs_invitation(&peer) {
            // Without one the others would not take it, were it here a hundred times before.
            let presented = card.as_ref().map_err(|denial| Doubt::Denied(*denial))?;
            let (presented, _) = presented.as_ref().ok_or(Doubt::Denied(DenialReason::NotInvited))?;
            presented.invitation.is_for(peer).map_err(Doubt::Denied)?;
        }
        if state.is_known(&peer) {
            return Ok(());
        }
        state.verdict(peer, &card).map_err(Doubt::Denied)?;
        let Some((PresentedInvitation { invitation, .. }, number)) = card.ok().flatten() else { return Ok(()) };
        if number == state.number() && state.is_being_heard() {
            return Err(Doubt::NotYet); // Who has not heard of that key takes whoever proposes this peer for a liar.
        }
        if !invitation.terms.once {
            return Ok(());
        }
        if state.silent().next().is_some() {
            return Err(Doubt::NotYet);
        }
        state.claims.retain(|_, (_, since)| since.elapsed() < CLAIM_LIMIT);
        match state.claims.get(&invitation.key) {
            Some((first, _)) if *first != peer => Err(Doubt::NotYet),
            Some(_) | None => {
                state.claims.insert(invitation.key, (peer, Instant::now()));
                Ok(())
            }
        }
    }

    /// Members that have not shown here how they came: until they have, nobody comes by an invitation for one.
    pub(crate) fn silent(&self) -> Vec<PeerId> {
        self.lock().silent().collect()
    }
}
