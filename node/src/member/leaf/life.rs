//! A leaf's life in a run: its network, its trainer, its loop, its summary.

use std::sync::Arc;
use std::time::Duration;

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
use crate::learner::trainer::{self, LearnerOptions, LearnerParts, Totals};
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
        evaluate_every: 0,
        duty: settings.duty,
        update_ahead_bytes: 0,
        export: settings.export.clone(),
        audit: settings.audit.clone(),
    };
    let snapshots = Snapshots::new(RateLimiter::new(settings.state_rate));
    let parts = LearnerParts { me, shared_steps: shared_steps.clone(), snapshots, observer: observer.clone() };
    let (feed, thread) = trainer::start(learner, learner_options, checkpoint_writer, parts)?;
    let leaf_loop = LeafLoop::new(network, shared_steps.clone(), feed, observer.clone(), config);
    let (end, work_clock) = leaf_loop.run(stop).await;
    let totals = node::finished(thread, &work_clock, max_stall).await?;
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
        LeafEnd::Reached => {
            history.change(PeerRole::Member);
            let why = "members can dial this machine by now".to_owned();
            observer.report(&Report::Becomes { role: PeerRole::Member.to_string(), why });
            return Ok(Lived::ComesBack);
        }
        // It was a member, and has a seat that others may wait for, or fetches what it lacks of the end.
        LeafEnd::Failed(NodeError::NoCarrier { .. } | NodeError::FinishedWithoutLeaf) if role_changes > Some(0) => {
            history.change(PeerRole::Member);
            let why = "no member carries it".to_owned();
            observer.report(&Report::Becomes { role: PeerRole::Member.to_string(), why });
            return Ok(Lived::ComesBack);
        }
        LeafEnd::Failed(error) => return Err(error),
    };
    // Those that took the last step, if it came here by itself.
    let members = match shared_steps.result_of(totals.step) {
        SnapshotStatus::Here(record) => u32::try_from(record.members.len()).unwrap_or(u32::MAX),
        SnapshotStatus::Later | SnapshotStatus::Nothing => 0,
    };
    let summary =
        Summary { world_size: members, ..summary((identity.peer_id().to_string(), run.to_string()), outcome, &totals) };
    observer.report(&Report::Finished(summary.clone()));
    totals.trouble.map_or(Ok(Lived::Ended(Box::new(summary))), Err)
}

fn summary((peer, run): (String, String), outcome: Outcome, totals: &Totals) -> Summary {
    let per_stepping_s = |amount: f64| match totals.stepping {
        Duration::ZERO => 0.0,
        stepping => amount / stepping.as_secs_f64(),
    };
    let (held_out_loss, measures) =
        totals.evaluation.clone().map_or_else(Default::default, |(loss, all)| (Some(loss), all));
    Summary {
        peer,
        run,
        outcome,
        steps: totals.step,
        loss: totals.loss,
        held_out_loss,
        measures,
        digest: totals.digest.map(|digest| digest.to_string()).unwrap_or_default(),
        values: totals.values.map(|values| values.to_string()).unwrap_or_default(),
        samples_per_s: per_stepping_s(totals.brought as f64),
        waiting_share: per_stepping_s(totals.waiting.as_secs_f64()),
        data_wait_share: per_stepping_s(totals.loading.as_secs_f64()),
        stepping_s: totals.stepping.as_secs_f64(),
        ..Summary::before_the_start()
    }
}
