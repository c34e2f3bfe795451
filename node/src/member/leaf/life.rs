//! A leaf's life in a run: its network, its trainer, its loop, its summary.

use std::sync::Arc;

use starling_engine::leaf::leaf_engine::LeafConfig;
use starling_engine::leaf::reach_search::{PeerRole, RolePolicy};
use starling_engine::{LeafEngine, SnapshotStatus};
use starling_run::Learner;
use starling_topology::Time;
use tokio_util::sync::CancellationToken;

use super::leaf_loop::{LeafEnd, LeafLoop, LeafLoopConfig};
use super::role::RoleHistory;
use super::wire::ResultShape;
use crate::access::Access;
use crate::error::NodeError;
use crate::learner::trainer::{self, LearnerOptions, LearnerParts};
use crate::member::shared_steps::{Following, SharedSteps, Side, Steps};
use crate::member::snapshots::Snapshots;
use crate::net::listen::Places;
use crate::net::network::{Network, Part};
use crate::net::rate_limiter::RateLimiter;
use crate::observe::report::{Observer, Outcome, Report, Summary};
use crate::observe::reporter::Lived;
use crate::settings::Settings;
use crate::start::node::{self, DISK_STALLS};
use crate::start::prepare::{self, Ready, Start};
use crate::start::way_back::Memory;
use crate::store::checkpoint_writer::CheckpointWriter;

/// Takes part through the first of the members that it knows which carries it, until the run is complete or `stop` is cancelled.
///
/// # Errors
/// Any [`NodeError`]; each is one clear line.
pub(crate) async fn take_part(
    settings: &Settings,
    ready: Ready,
    learner: Box<dyn Learner>,
    (observer, history): (Arc<dyn Observer>, &RoleHistory),
    stop: CancellationToken,
) -> Result<Lived, NodeError> {
    let Ready { identity, manifest, store, credentials, membership, start, memory, .. } = ready;
    let contacts = if let Start::Join { contacts, .. } = start { contacts } else { Vec::new() };
    let (run, me, max_stall) = (manifest.run_id(), prepare::own_name(&identity), membership.max_stall);
    let parties = (run, manifest.founder);
    let access = Access::open(identity.peer_id(), parties, &credentials, &settings.allow, &settings.data_dir)?;
    let mut network = Network::new(&identity, access.signing(&identity), settings, (run, Part::Member), max_stall)?;
    contacts.iter().for_each(|contact| network.learn(contact));
    let role_changes = (settings.role == RolePolicy::Auto).then(|| history.changes());
    if role_changes.is_some() {
        // For those that it asks to dial it.
        network.listen(&Places::new(&settings.listen)).await?;
    }
    let elements = manifest.reduced().elements() as u64;
    let config = LeafConfig { me, run, max_stall, elements, role_changes };
    let engine = LeafEngine::new(Time::ZERO, config, contacts, None);
    let side = Side::Leaf(Box::new(Following::new(engine)));
    let shared_steps = SharedSteps::new(Steps::without_state(manifest.steps), manifest.batch_size, side);
    let results = ResultShape {
        reduced: manifest.reduced(),
        most: manifest.most(),
        codec: manifest.codec,
        batch_size: manifest.batch_size,
    };
    let max_state_bytes = manifest.max_state_bytes();
    let shape = node::shape(&manifest, Some(learner.ledger().samples()));
    let config = LeafLoopConfig { run, max_stall, max_state_bytes, shape, results };
    let Memory { record, file, .. } = memory;
    let patience = (max_stall * DISK_STALLS, max_state_bytes);
    let (checkpoint_writer, _saved) = CheckpointWriter::start(store, (file, record.marks), observer.clone(), patience)?;
    let learner_options = LearnerOptions {
        // What it holds, its carrier holds; of its own it has nothing to come back with. What this machine saved as a member, and has signed, stays.
        checkpoint_every: 0,
        keeps_state: false,
        // Its carrier would wait.
        duty: settings.duty,
        update_ahead_bytes: 0,
        export: settings.export.clone(),
        audit: settings.audit.clone(),
    };
    let snapshots = Snapshots::new(RateLimiter::new(settings.state_rate));
    let (steps, shown) = (shared_steps.clone(), observer.clone());
    let parts = LearnerParts { me, shared_steps: steps, snapshots, observer: shown, stop: stop.clone() };
    let (feed, thread) = trainer::start(learner, learner_options, checkpoint_writer, parts)?;
    let leaf_loop = LeafLoop::new(network, shared_steps.clone(), feed, observer.clone(), config);
    let (end, work_clock) = leaf_loop.run(stop).await;
    let totals = node::finished(thread, &work_clock, max_stall).await?;
    history.learn(shared_steps.carriers());
    let becomes_member = |why: &str| {
        history.change(PeerRole::Member);
        observer.report(&Report::Becomes { role: PeerRole::Member.to_string(), why: why.to_owned() });
        Lived::ComesBack { persists: true }
    };
    let outcome = match end {
        LeafEnd::Complete(digest) => {
            if let Some(own) = totals.digest.filter(|own| *own != digest) {
                let message = format!(
                    "this leaf ends with another state than its carrier (digest {own}, the carrier's {digest}): one of the two machines computes wrongly; its export is not the run's model"
                );
                observer.report(&Report::Warning { message });
            }
            Outcome::Complete
        }
        LeafEnd::Left => Outcome::Left,
        LeafEnd::Reached => return Ok(becomes_member("members can dial this machine by now")),
        // Others may wait for a member; one that was one fetches what it lacks of the end.
        LeafEnd::Failed(error) => match error {
            NodeError::NoCarrier { .. } if role_changes > Some(0) => return Ok(becomes_member("no member carries it")),
            NodeError::FinishedWithoutLeaf if role_changes > Some(0) => {
                return Ok(becomes_member("the run has finished without this leaf"));
            }
            error => return Err(error),
        },
    };
    // Those that took the last step, if it came here by itself.
    let members = match shared_steps.result_of(totals.step) {
        SnapshotStatus::Here(record) => u32::try_from(record.members.len()).unwrap_or(u32::MAX),
        SnapshotStatus::Later | SnapshotStatus::Nothing => 0,
    };
    let of = (identity.peer_id().to_string(), run.to_string());
    let summary = Summary { world_size: members, ..totals.sum_up(of, outcome, totals.brought) };
    observer.report(&Report::Finished(summary.clone()));
    totals.trouble.map_or(Ok(Lived::Ended(Box::new(summary))), Err)
}
