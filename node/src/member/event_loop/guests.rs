//! Who may be here, as the event loop sees to it: who is let into the view, who has been, who has to go.

use starling_topology::{Evidence, Input, PeerId, View};
use tokio::time::Instant;

use super::{End, EventLoop};
use crate::access::Doubt;
use crate::access::admission::{AdmissionError, Turned};
use crate::credentials::identity::to_libp2p;
use crate::error::NodeError;
use crate::observe::report::Report;

impl EventLoop {
    /// Whether a peer that asks to be let in is heard by the machine.
    pub(super) fn may_join(&mut self, peer: PeerId, pass: &[u8]) -> bool {
        match self.network.access.may_join(peer, pass) {
            Ok(()) => true,
            Err(Doubt::NotYet) => {
                // They show how they came once they are connected. It asks again.
                for member in self.network.access.silent() {
                    self.network.connect(to_libp2p(member));
                }
                false
            }
            Err(Doubt::NotShown) => {
                self.misbehaved(peer, "asked to be let in by an invitation that it did not show when it connected");
                false
            }
            Err(Doubt::Denied(denial)) => {
                let name = to_libp2p(peer);
                if let Some(report) = self.network.turned_away(Some(name), denial.to_string()) {
                    self.observer.report(&report);
                }
                // As it comes back, it is told.
                let _ = self.network.swarm.disconnect_peer_id(name);
                false
            }
        }
    }

    /// A view was installed: who is in it has been a member from now on, whatever its invitation says.
    pub(super) fn note_guests(&mut self, view: &View) {
        self.network.access.counts_by(view);
        for peer in self.network.access.enter(view.members(), self.member.membership().let_in()) {
            // Another may just have come by the same invitation. It asks again, and is looked at anew.
            self.suspect(peer, Evidence::Closed);
        }
        self.network.look_at_guests();
        self.network.access.keep();
    }

    /// The founder has put somebody out. `Some` if that is us.
    pub(super) fn on_news(&mut self) -> Option<End> {
        if let Some(message) = self.network.access.take_warning() {
            let observer = self.observer.clone();
            self.network.access.keep_before(move || observer.report(&Report::Warning { message }));
        }
        let revoked = self.network.access.revoked();
        if revoked.binary_search(&self.me).is_ok() {
            return Some(End::Failed(NodeError::Revoked));
        }
        self.handle(Input::Revoke(revoked.clone()));
        for peer in revoked {
            self.links.remove(&peer);
            self.network.forget(to_libp2p(peer));
        }
        self.network.look_at_guests();
        // Our ticket has the new secret from now on, and no invitation that has ended.
        self.tell_members();
        self.network.access.keep();
        None
    }

    /// A connection was not admitted. `Some` if that ends this process: the founder has put it out, or none of those that it knows
    /// lets it in.
    pub(super) fn on_turned(&mut self, turned: &Turned) -> Option<End> {
        let verb = if turned.dialed { "dialed" } else { "dialing" };
        tracing::debug!(peer = ?turned.peer, verb, error = %turned.error, "not admitted");
        if turned.error == AdmissionError::PutOut {
            return Some(End::Failed(NodeError::Revoked));
        }
        if let (AdmissionError::Denied(denial), Some(peer), false) =
            (&turned.error, turned.peer, self.join_wait.took_part())
        {
            let is_news = self.denials.note(peer, *denial, Instant::now());
            let end = self.denied();
            if is_news && end.is_none() {
                let message =
                    format!("{peer} does not let this machine in: {denial}; it asks the others that it knows");
                self.observer.report(&Report::Warning { message });
            }
            return end;
        }
        if let Some(report) = self.network.turned_away(turned.news(), turned.error.to_string()) {
            self.observer.report(&report);
        }
        None
    }

    /// Whether nobody lets this machine in, which has never been in: what one says, others may know better.
    pub(super) fn denied(&self) -> Option<End> {
        let is_alone = self.network.swarm.connected_peers().next().is_none();
        let may_end = is_alone && !self.join_wait.took_part();
        let error = may_end.then(|| self.denials.verdict(self.network.known(), Instant::now())).flatten();
        error.map(End::Failed)
    }
}
