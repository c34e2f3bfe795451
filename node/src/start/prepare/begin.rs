//! What a peer goes on from: nothing, a checkpoint of its own, or what it had before its process was gone.

use starling_engine::return_engine::Decision;
use starling_run::{CheckpointError, CheckpointFolder, CheckpointStore, Learner, Manifest, RecoveryResult};

use super::Start;
use crate::error::NodeError;
use crate::settings::{ResumePolicy, Settings};
use crate::start::node::CHECKPOINTS;
use crate::start::way_back::Memory;
use crate::start::welcome;
use crate::store::manifest_file;

/// What a machine takes part with.
pub(super) struct Beginning<'a> {
    pub(super) settings: &'a Settings,
    /// What its user wants it to begin with.
    pub(super) resume: ResumePolicy,
    pub(super) manifest: &'a Manifest,
    pub(super) store: &'a CheckpointStore,
}

/// Loads what a machine goes on from that takes part so, and says what was passed over. `loaded` is what its own checkpoints had, if
/// it was looked at.
pub(super) fn begin(
    outcome: Decision,
    beginning: &Beginning<'_>,
    loaded: Option<RecoveryResult>,
    learner: &mut dyn Learner,
    memory: &mut Memory,
) -> Result<(Start, Vec<CheckpointError>), NodeError> {
    match outcome {
        Decision::Recover { has_state, can_begin } => {
            let kept = memory.kept.take().expect("invariant: nobody else recovers");
            let RecoveryResult { found, damaged } = loaded.expect("invariant: whoever has a seat looks first");
            if let Some((_, state)) = found {
                learner.load(state)?;
            }
            Ok((Start::Recover { kept: Box::new(kept), has_state, can_begin }, damaged))
        }
        Decision::Join { members, awaited } => {
            Ok((Start::Join { contacts: memory.contacts_of(&members), awaited }, Vec::new()))
        }
        Decision::Fork => fork(beginning, loaded, learner, memory),
        // What is named, or the last state, is loaded and the run is its own.
        Decision::Found | Decision::Over => {
            found(beginning, loaded, learner)?;
            // Not before: whoever names a state that is not here keeps its seat.
            if memory.kept.take().is_some() {
                memory.record.remove();
            }
            Ok((Start::Found, Vec::new()))
        }
        Decision::Unknown | Decision::Behind(_) | Decision::OthersBranch => Err(NodeError::Stopped("preparation")),
    }
}

/// Loads what a run that is this machine's alone goes on from, if anything.
fn found(
    beginning: &Beginning<'_>,
    loaded: Option<RecoveryResult>,
    learner: &mut dyn Learner,
) -> Result<(), NodeError> {
    let Beginning { settings, resume, manifest, store } = *beginning;
    let wanted = match (resume, store.steps()?.last()) {
        (ResumePolicy::Fresh, Some(step)) => {
            return Err(NodeError::CheckpointThere { dir: settings.data_dir.clone(), step: *step });
        }
        (ResumePolicy::Fresh, None) => None,
        (ResumePolicy::Newest, Some(step)) => Some(*step),
        (ResumePolicy::Newest, None) => {
            refuse_other_checkpoints(settings, manifest)?;
            None
        }
        (ResumePolicy::Step(step), Some(_)) => Some(step),
        (ResumePolicy::Step(step), None) => {
            refuse_other_checkpoints(settings, manifest)?;
            Some(step)
        }
    };
    if let Some(step) = wanted {
        let here = loaded.and_then(|loaded| loaded.found).map(|(_, state)| state).filter(|state| state.step == step);
        let state = here.map_or_else(|| store.load(Some(step)).map_err(|error| damaged(store, error)), Ok)?;
        learner.load(state)?;
    }
    Ok(())
}

/// Loads what a fork goes on from: the step that was named, or what a killed member would.
fn fork(
    beginning: &Beginning<'_>,
    loaded: Option<RecoveryResult>,
    learner: &mut dyn Learner,
    memory: &mut Memory,
) -> Result<(Start, Vec<CheckpointError>), NodeError> {
    let Beginning { resume, manifest, store, .. } = *beginning;
    let record = memory.kept.take().map(|kept| kept.record);
    let parent = record.as_ref().map(|record| (record.view.generation, record.view.id())).or(memory.contacts.view);
    if let ResumePolicy::Step(step) = resume {
        learner.load(store.load(Some(step)).map_err(|error| damaged(store, error))?)?;
        return Ok((Start::Fork { parent }, Vec::new()));
    }
    let recovered = match loaded {
        Some(loaded) => loaded,
        None => store.recover(record.as_ref().map(|record| &record.root))?,
    };
    // Its user wants it to go on, be it with what it had before.
    let RecoveryResult { found, mut damaged } =
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
