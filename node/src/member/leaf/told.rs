//! What a member tells its user of its leaves.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use starling_engine::leaf::carrier::CarrierEvent;
use starling_engine::leaf::violation::LeafViolation;
use starling_topology::{CarrierBody, DetachReason, PeerId};

use crate::credentials::identity::to_libp2p;
use crate::net::allowance::Allowance;
use crate::net::network::telling;
use crate::observe::report::{LeafPaceReport, Observer, Report};

/// What leaves have brought is told so often.
const INTERVAL: Duration = Duration::from_secs(1);
/// Of so many peers that came and went it is remembered what they brought.
const MAX_REMEMBERED: usize = 64;

/// What is told of leaves, and when.
pub(super) struct LeavesTold {
    me: String,
    observer: Arc<dyn Observer>,
    paces: BTreeMap<PeerId, LeafPaceReport>,
    told: Instant,
    /// Misdeeds that may be told.
    accusable: Allowance,
}

impl LeavesTold {
    pub(super) fn new(me: PeerId, observer: Arc<dyn Observer>) -> Self {
        let (paces, accusable) = (BTreeMap::new(), telling::allowance());
        Self { me: name(me), observer, paces, told: Instant::now(), accusable }
    }

    /// This is being said to a peer.
    pub(super) fn say(&mut self, to: PeerId, body: &CarrierBody) {
        match body {
            CarrierBody::Refused(reason) => {
                self.observer.report(&Report::Turned { peer: name(to), reason: format!("as a leaf: {reason}") });
            }
            CarrierBody::Differs { step, digest } => {
                let message = format!(
                    "the leaf {} holds another state than this member after step {step} (digest {digest} here); it loads the state anew",
                    name(to)
                );
                self.observer.report(&Report::Warning { message });
            }
            CarrierBody::Attached { .. }
            | CarrierBody::Members { .. }
            | CarrierBody::Start { .. }
            | CarrierBody::Work { .. }
            | CarrierBody::Result { .. }
            | CarrierBody::Alive
            | CarrierBody::Lost(_)
            | CarrierBody::Ended { .. } => {}
        }
    }

    /// A peer did what no correct leaf does.
    pub(super) fn fault(&mut self, leaf: PeerId, violation: &LeafViolation) {
        tracing::warn!(?leaf, %violation, "a leaf misbehaved");
        if self.accusable.take(1, tokio::time::Instant::now()) {
            let what = format!("{violation}; as a leaf it is let go, and this member computes its part");
            self.observer.report(&Report::Misbehaved { peer: name(leaf), what });
        }
    }

    pub(super) fn event(&mut self, event: CarrierEvent) {
        match event {
            CarrierEvent::Attached(leaf) => {
                self.make_room();
                self.pace(leaf).is_attached = true;
                let (leaf, carrier) = (name(leaf), self.me.clone());
                self.observer.report(&Report::Attached { leaf, carrier });
                self.tell();
            }
            CarrierEvent::Lost { leaf, reason } => {
                self.pace(leaf).is_attached = false;
                let reason = reason.map_or_else(|| "it is gone".to_owned(), lost);
                let (leaf, carrier) = (name(leaf), self.me.clone());
                self.observer.report(&Report::Detached { leaf, carrier, reason });
                self.tell();
            }
            CarrierEvent::Brought { leaf, samples, .. } => {
                let pace = self.pace(leaf);
                (pace.parts, pace.samples) = (pace.parts + 1, pace.samples + samples);
                self.tell_now_and_then();
            }
            CarrierEvent::Backup { leaf, .. } => {
                self.pace(leaf).late += 1;
                self.tell_now_and_then();
            }
            CarrierEvent::Late { leaf, step } => tracing::debug!(?leaf, step, "a part came too late"),
        }
    }

    fn pace(&mut self, leaf: PeerId) -> &mut LeafPaceReport {
        self.paces.entry(leaf).or_insert_with(|| LeafPaceReport { peer: name(leaf), ..LeafPaceReport::default() })
    }

    fn make_room(&mut self) {
        if self.paces.len() >= MAX_REMEMBERED {
            let gone = self.paces.iter().find(|(_, pace)| !pace.is_attached).map(|(leaf, _)| *leaf);
            gone.into_iter().for_each(|leaf| _ = self.paces.remove(&leaf));
        }
    }

    fn tell_now_and_then(&mut self) {
        if self.told.elapsed() >= INTERVAL {
            self.tell();
        }
    }

    fn tell(&mut self) {
        self.told = Instant::now();
        self.observer.report(&Report::Leaves { leaves: self.paces.values().cloned().collect() });
    }
}

/// Why a carrier lets a leaf go, as it says of itself.
fn lost(reason: DetachReason) -> String {
    match reason {
        DetachReason::NotReady => "this member can't hand anything on any more",
        DetachReason::Leaves => "this member leaves",
        DetachReason::Silent => "nothing was heard of it for too long",
        DetachReason::IsMember => "it is a member by now",
        DetachReason::TooFarBehind => "it is too far behind",
    }
    .to_owned()
}

pub(super) fn name(peer: PeerId) -> String {
    to_libp2p(peer).to_string()
}
