//! What a new run begins with, if that is not its initial parameters: the state of an earlier one.
//!
//! Such a run is another one: its manifest names the digest of the state, which is taken over whole, with its step, its
//! optimizer and its ledger. So model, data, batch size and seed are those of the run before; how long it trains, how fast it
//! learns, how its members reduce, how often they save, and whether they compute in f32 or bf16 may differ; so may when they evaluate
//! together, as long as nothing goes by that.

use std::path::Path;

use starling_run::{CheckpointFolder, CheckpointStore, Manifest, ReplicatedState};

use crate::credentials::founder::FounderKey;
use crate::error::NodeError;
use crate::settings::{FoundOptions, ResumePolicy, Settings};
use crate::start::node::CHECKPOINTS;
use crate::start::welcome;
use crate::store::manifest_file::{self, Known};

/// Fields of a manifest in which a run may differ from the one that it begins with.
const MAY_DIFFER: [&str; 18] = [
    "steps",
    // Of no use any more.
    "initial",
    "given",
    "from",
    "founder",
    "optimizer",
    "groups",
    "schedule",
    "clip",
    "clip_by",
    "codec",
    "plan",
    "balance",
    "layout",
    "max_stall_ms",
    "quorum",
    "checkpoint_every",
    "precision",
];

/// Which run the founder's settings name, and the state that it begins with, if it is new and begins with one: by `--from`,
/// or because a complete run of this directory is to go on to a later last step. The same command again names the same
/// run. A run that is new has the founder's key of this directory; one that is known from elsewhere, its own.
pub(crate) fn find(
    settings: &Settings,
    founding: &FoundOptions,
    ours: Manifest,
) -> Result<(Manifest, Option<ReplicatedState>), NodeError> {
    let known = Known::load(&settings.data_dir)?;
    let is_ours = |known: &&Manifest| Manifest { from: None, founder: None, ..(*known).clone() } == ours;
    if let Some(known) = known.manifests.iter().find(is_ours).filter(|_| founding.from.is_none()) {
        return Ok((known.clone(), None));
    }
    let ours = Manifest { founder: Some(FounderKey::load_or_create(&settings.data_dir)?.public()), ..ours };
    if let Some(path) = &founding.from {
        let (theirs, state) = read(path)?;
        let manifest = begin(ours, &theirs, &state, path)?;
        return Ok((manifest, Some(state)));
    }
    known.admit(&settings.data_dir, ours.run_id())?;
    if founding.resume == ResumePolicy::Newest {
        let folder = CheckpointFolder::new(settings.data_dir.join(CHECKPOINTS));
        for theirs in known.manifests {
            let is_shorter = theirs.steps < ours.steps
                && Manifest { steps: ours.steps, from: None, founder: ours.founder, ..told_as(&ours, theirs.clone()) }
                    == ours;
            if !is_shorter {
                continue;
            }
            let store = folder.open(theirs.run_id(), settings.checkpoint_keep)?;
            if store.steps()?.last().is_some_and(|step| *step >= theirs.steps) {
                let state = store.load(None)?;
                let manifest = begin(ours, &theirs, &state, &settings.data_dir)?;
                return Ok((manifest, Some(state)));
            }
        }
    }
    Ok((ours, None))
}

/// The manifest of a run that begins with `state`, if it can.
fn begin(ours: Manifest, theirs: &Manifest, state: &ReplicatedState, from: &Path) -> Result<Manifest, NodeError> {
    // What one optimizer keeps means nothing to another: its settings may differ, but not which one it is.
    let may_differ =
        |field: &str| field != "optimizer" && MAY_DIFFER.iter().any(|name| field.split('.').next() == Some(name));
    let mut differences = ours.differences(&told_as(&ours, theirs.clone()));
    // What is counted of the held-out loss goes on by the same terms.
    let goes_on = ours.schedule.decay.evaluations() == theirs.schedule.decay.evaluations();
    // A state has a scale for losses if its run scales them.
    let is_scaled = ours.precision.is_scaled() == theirs.precision.is_scaled();
    let is_kept = |field: &str| (!goes_on && field.starts_with("schedule")) || (!is_scaled && field == "precision");
    differences.retain(|it| !may_differ(&it.field) || is_kept(&it.field));
    let from = from.to_owned();
    if !differences.is_empty() {
        return Err(NodeError::OtherOrigin { from, differences: welcome::describe(&differences) });
    }
    // It would take no step: its count goes on from there.
    if state.is_last(&Manifest { steps: u64::MAX >> 1, ..theirs.clone() }) {
        return Err(NodeError::EndedEarly { dir: from, step: state.step });
    }
    if ours.steps <= state.step {
        return Err(NodeError::NothingLeft { from, step: state.step, steps: ours.steps });
    }
    Ok(Manifest { from: Some(state.digest()), ..ours })
}

/// A run that differs from `ours` in no evaluation, if nothing goes by it in either: then it is in no state.
fn told_as(ours: &Manifest, theirs: Manifest) -> Manifest {
    match ours.is_judged() || theirs.is_judged() {
        true => theirs,
        false => Manifest { evaluation: ours.evaluation.clone(), ..theirs },
    }
}

/// Whether a path names a checkpoint or a data directory, by what lies there: not whether that can be read.
pub(crate) fn is_saved(path: &Path) -> bool {
    let is_named = || {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with("step-") && name.ends_with(".json"))
    };
    if path.is_dir() { path.join(CHECKPOINTS).is_dir() } else { is_named() }
}

/// Reads the checkpoint that a path names: its manifest file, or the newest one of a data directory, of the run that was
/// saved last.
pub(crate) fn read(path: &Path) -> Result<(Manifest, ReplicatedState), NodeError> {
    let none = || NodeError::NoOrigin(path.to_owned());
    let (data_dir, step) = if path.is_dir() {
        (path.to_owned(), None)
    } else {
        let name = path.file_name().and_then(|name| name.to_str()).ok_or_else(none)?;
        let step = name.strip_prefix("step-").and_then(|rest| rest.split('-').next()).ok_or_else(none)?;
        let data_dir = path.ancestors().nth(3).map(Path::to_owned).ok_or_else(none)?;
        (data_dir, Some(step.parse::<u64>().map_err(|_| none())?))
    };
    // A node may be writing there: nothing is touched.
    let store = match step {
        Some(_) => CheckpointStore::reading(path.parent().ok_or_else(none)?),
        None => CheckpointFolder::new(data_dir.join(CHECKPOINTS)).stores()?.pop().ok_or_else(none)?,
    };
    let state = store.load(step)?;
    Ok((manifest_file::load(&data_dir, state.run)?, state))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use starling_run::RunSpec;
    use starling_run::manifest::schedule::Schedule;
    use starling_topology::ledger::UNMEASURED;
    use starling_topology::{Ledger, Lineage, PeerId};

    use super::*;
    use crate::store::manifest_file::tests::digits;

    #[test]
    fn a_directory_of_before_the_founders_key_and_one_without_it_go_on() {
        let ours = digits();
        let run = |resume| FoundOptions { resume, ..FoundOptions::new(RunSpec::default()) };
        let key = |dir: &Path| FounderKey::file(dir);
        // Of before: its run has no founder, and gets none.
        let dir = tempfile::tempdir().expect("a temp dir");
        manifest_file::store(dir.path(), &ours).expect("stored");
        let settings = Settings::new(dir.path().to_owned());
        for resume in [ResumePolicy::Fresh, ResumePolicy::Newest] {
            let (found, _) = find(&settings, &run(resume), ours.clone()).expect("found");
            assert_eq!((found.founder, found.run_id()), (None, ours.run_id()));
        }
        assert!(!key(dir.path()).exists());
        // A new one has its own; the file may be elsewhere later.
        let dir = tempfile::tempdir().expect("a temp dir");
        let settings = Settings::new(dir.path().to_owned());
        let (new, _) = find(&settings, &run(ResumePolicy::Fresh), ours.clone()).expect("found");
        assert!(new.founder.is_some() && key(dir.path()).exists());
        manifest_file::store(dir.path(), &new).expect("stored");
        std::fs::remove_file(key(dir.path())).expect("moved");
        let (again, _) = find(&settings, &run(ResumePolicy::Newest), ours).expect("found");
        assert!(again == new && !key(dir.path()).exists());
    }

    #[test]
    fn the_same_settings_founded_twice_are_two_runs_unless_the_founders_key_is_kept() {
        let founding = FoundOptions::new(RunSpec::default());
        let founded = |dir: &Path| find(&Settings::new(dir.to_owned()), &founding, digits()).expect("founded").0;
        let [first, second] = [(); 2].map(|()| tempfile::tempdir().expect("a temp dir"));
        let run = founded(first.path()).run_id();
        assert_eq!(founded(first.path()).run_id(), run, "the same command again is the same run");
        assert_ne!(founded(second.path()).run_id(), run, "a machine that was wiped has another key");
        std::fs::copy(FounderKey::file(first.path()), FounderKey::file(second.path())).expect("copied");
        assert_eq!(founded(second.path()).run_id(), run);
    }

    /// The last state of a run.
    fn last(of: &Manifest) -> ReplicatedState {
        ReplicatedState {
            run: of.run_id(),
            step: of.steps,
            lineage: Lineage::NONE,
            parameters: Arc::new(vec![0.5; of.parameters()]),
            frozen: Arc::default(),
            moments: Vec::new(),
            scalars: Vec::new(),
            ledger: Ledger::new(of.seed, 1_597, of.batch_size),
        }
    }

    /// A run whose members evaluate so.
    fn evaluating(steps: u64, evaluate_every: u64, early_stop: u32, schedule: &str) -> Manifest {
        let schedule = Schedule { decay: schedule.parse().expect("one"), ..Schedule::default() };
        let spec = RunSpec { steps, evaluate_every, early_stop, schedule, ..RunSpec::default() };
        let digits = digits();
        let evaluation = Manifest::of(&spec, digits.data.clone()).with_measures(200, &["accuracy"]).evaluation;
        Manifest { steps, evaluation, schedule: spec.schedule, ..digits }
    }

    #[test]
    fn when_members_evaluate_may_differ_as_long_as_nothing_goes_by_it() {
        let plateau = "plateau:0.5,2";
        for (before, after, refused) in [
            (evaluating(30, 10, 0, "constant"), evaluating(60, 7, 0, "constant"), None),
            (evaluating(30, 0, 0, "constant"), evaluating(60, 7, 0, "constant"), None),
            (evaluating(30, 10, 0, "constant"), evaluating(60, 0, 0, "constant"), None),
            (evaluating(30, 10, 3, "constant"), evaluating(60, 10, 3, "constant"), None),
            (evaluating(30, 10, 3, "constant"), evaluating(60, 7, 3, "constant"), Some("evaluation.every")),
            (evaluating(30, 10, 3, "constant"), evaluating(60, 10, 0, "constant"), Some("evaluation.patience")),
            (evaluating(30, 10, 0, "constant"), evaluating(60, 10, 3, "constant"), Some("evaluation.patience")),
            (evaluating(30, 10, 0, plateau), evaluating(60, 7, 0, plateau), Some("evaluation.every")),
        ] {
            let mut state = last(&before);
            let alone = [PeerId([1; 32])];
            state.ledger.assign(&alone);
            (1..=before.steps).for_each(|step| drop(state.ledger.commit(step, &alone, &[UNMEASURED])));
            let begun = begin(after.clone(), &before, &state, Path::new("."));
            match (begun, refused) {
                (Ok(begun), None) => assert_eq!(begun, Manifest { from: Some(state.digest()), ..after.clone() }),
                (Err(error), Some(field)) => assert!(error.to_string().contains(field), "{error}"),
                (begun, _) => panic!("{begun:?}, where {refused:?} is to be told"),
            }
            // The same command with a later last step goes on, too.
            let dir = tempfile::tempdir().expect("a temp dir");
            manifest_file::store(dir.path(), &before).expect("stored");
            let settings = Settings::new(dir.path().to_owned());
            let store = CheckpointFolder::new(dir.path().join(CHECKPOINTS)).open(before.run_id(), 1).expect("a store");
            store.save(state.clone()).expect("saved");
            let founding = FoundOptions { resume: ResumePolicy::Newest, ..FoundOptions::new(RunSpec::default()) };
            let found = find(&settings, &founding, after);
            let goes_on = found.is_ok_and(|(manifest, begun)| {
                manifest.from == Some(state.digest()) && begun.is_some_and(|begun| begun.step == 30)
            });
            assert_eq!(goes_on, refused.is_none(), "{refused:?}");
        }
    }

    #[test]
    fn a_flipped_bit_in_a_manifest_founds_no_other_run() {
        let ours = digits();
        let founding = FoundOptions { resume: ResumePolicy::Newest, ..FoundOptions::new(RunSpec::default()) };
        let dir = tempfile::tempdir().expect("a temp dir");
        let settings = Settings::new(dir.path().to_owned());
        let (founded, _) = find(&settings, &founding, ours.clone()).expect("founded");
        manifest_file::store(dir.path(), &founded).expect("stored");
        let file = std::fs::read_dir(dir.path()).expect("its files");
        let mut files = file.map(|entry| entry.expect("a file").path());
        let file = files.find(|file| file.to_string_lossy().contains("manifest-")).expect("the manifest");
        let bytes = std::fs::read(&file).expect("read");
        let key = FounderKey::file(dir.path());
        let held = std::fs::read(&key).expect("read");
        // The first byte says of which release it is, and those of other releases are left alone.
        for at in 1..bytes.len() {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1 << (at % 8);
            std::fs::write(&file, bytes).expect("written");
            // Who holds the key finds the run by its settings.
            let (again, _) = find(&settings, &founding, ours.clone()).expect("found");
            assert_eq!(again.run_id(), founded.run_id(), "byte {at}");
            // Elsewhere nothing tells whether these are its settings.
            std::fs::remove_file(&key).expect("removed");
            let error = find(&settings, &founding, ours.clone()).expect_err("damaged");
            assert!(matches!(&error, NodeError::DamagedManifest { path } if *path == file), "byte {at}: {error}");
            std::fs::write(&key, &held).expect("written");
        }
    }
}
