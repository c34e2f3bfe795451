//! What a peer goes on from: nothing, a checkpoint of its own, or what it had before its process was gone.

use std::collections::BTreeSet;

use starling_engine::{self as engine, Return};
use starling_run::{CheckpointError, CheckpointFolder, CheckpointStore, Learner, Manifest, Recovered};
use starling_topology::PeerId;

use super::Start;
use crate::error::NodeError;
use crate::manifest_file;
use crate::node::CHECKPOINTS;
use crate::record_file::Kept;
use crate::settings::{Resume, Settings};
use crate::way_back::{self, Memory};
use crate::welcome;

/// Loads what a run that is this machine's alone goes on from, if anything.
pub(super) fn found(
    settings: &Settings,
    resume: Resume,
    manifest: &Manifest,
    store: &CheckpointStore,
    learner: &mut dyn Learner,
) -> Result<(), NodeError> {
    let wanted = match (resume, store.steps()?.last()) {
        (Resume::Fresh, Some(step)) => {
            return Err(NodeError::CheckpointThere { dir: settings.data_dir.clone(), step: *step });
        }
        (Resume::Fresh, None) => None,
        (Resume::Newest, Some(step)) => Some(*step),
        (Resume::Newest, None) => {
            refuse_other_checkpoints(settings, manifest)?;
            None
        }
        (Resume::Step(step), Some(_)) => Some(step),
        (Resume::Step(step), None) => {
            refuse_other_checkpoints(settings, manifest)?;
            Some(step)
        }
    };
    if let Some(step) = wanted {
        learner.load(store.load(Some(step)).map_err(|error| damaged(store, error))?)?;
    }
    Ok(())
}

/// Loads what a fork goes on from: the step that was named, or what a killed member would.
pub(super) fn fork(
    store: &CheckpointStore,
    learner: &mut dyn Learner,
    resume: Resume,
    kept: Option<Kept>,
    memory: &Memory,
    manifest: &Manifest,
) -> Result<(Start, Vec<CheckpointError>), NodeError> {
    let record = kept.map(|kept| kept.record);
    let parent = record.as_ref().map(|record| (record.view.generation, record.view.id())).or(memory.contacts.view);
    if let Resume::Step(step) = resume {
        learner.load(store.load(Some(step)).map_err(|error| damaged(store, error))?)?;
        return Ok((Start::Fork { parent }, Vec::new()));
    }
    let recovered = match &record {
        Some(record) => store.recover(Some(&record.root))?,
        None => store.recover(None)?,
    };
    // Its user wants it to go on, be it with what it had before.
    let Recovered { found, mut damaged } =
        if recovered.found.is_some() { recovered } else { store.recover_whatever()? };
    match (found, damaged.pop()) {
        (Some((_, state)), last) => {
            learner.load(state)?;
            damaged.extend(last);
        }
        // Nobody else has the state where one goes on alone.
        (None, Some(error)) => return Err(error.into()),
        // The initial state can be computed, that of another run can't.
        (None, None) if manifest.from.is_some() => return Err(NodeError::NoState),
        (None, None) => {}
    }
    Ok((Start::Fork { parent }, damaged))
}

/// A member whose process is gone.
pub(super) struct Returning<'a> {
    pub(super) me: PeerId,
    pub(super) kept: Kept,
    /// Who has said what it holds, and handed over what is stable of it.
    pub(super) heard: &'a BTreeSet<PeerId>,
    /// Whether its user wants it to go on without the others.
    pub(super) alone: bool,
    /// How often it saves its state.
    pub(super) stride: u64,
}

/// Loads what a killed member goes on from: its newest checkpoint. If what it has is damaged, others may hold the state; if
/// those are gone, it goes on from an older one as a fork alone, and only by its user's word.
pub(super) fn recover(
    store: &CheckpointStore,
    learner: &mut dyn Learner,
    returning: Returning<'_>,
    memory: &Memory,
    manifest: &Manifest,
) -> Result<(Start, Vec<CheckpointError>), NodeError> {
    let Returning { me, kept, heard, alone, stride } = returning;
    let record = &kept.record;
    let Recovered { found, damaged } = store.recover(Some(&record.root))?;
    let step = found.as_ref().map(|(_, state)| state.step);
    // The initial state can be computed, that of another run can't.
    let can_begin = damaged.is_empty() && manifest.from.is_none();
    let has_state = match (engine::Returning { me, record, found: step, can_begin, stride, heard }).outcome() {
        Return::Behind(_) if alone => return fork(store, learner, Resume::Newest, Some(kept), memory, manifest),
        Return::Behind(ahead) => {
            let step = step.unwrap_or(0);
            let resumed = record.origin.as_ref().map_or(step, |origin| origin.resume.step);
            return Err(NodeError::Behind { step, resumed, members: ahead.into_iter().map(way_back::name).collect() });
        }
        Return::Seat { has_state } => has_state,
    };
    if let Some((_, state)) = found {
        learner.load(state)?;
    }
    Ok((Start::Recover { kept: Box::new(kept), has_state }, damaged))
}

/// Refuses to resume a run without checkpoints where other runs have some: most likely a setting was mistyped.
fn refuse_other_checkpoints(settings: &Settings, manifest: &Manifest) -> Result<(), NodeError> {
    let dir = settings.data_dir.clone();
    for store in CheckpointFolder::new(dir.join(CHECKPOINTS)).stores()?.iter().rev() {
        if let Some(run) = store.run()? {
            let differences = welcome::describe(&manifest.differences(&manifest_file::load(&dir, run)?));
            return Err(NodeError::OtherCheckpoint { dir, differences });
        }
    }
    Ok(())
}

/// What to say of a checkpoint that can't be loaded: with an earlier one that can, if there is one.
fn damaged(store: &CheckpointStore, error: CheckpointError) -> NodeError {
    match (store.last_intact(), &error) {
        (_, CheckpointError::NotFound { .. }) | (Err(_) | Ok(None), _) => error.into(),
        (Ok(Some(intact)), _) => NodeError::DamagedCheckpoint { error, intact },
    }
}
