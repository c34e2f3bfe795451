//! What is ready before a peer shows itself: data, manifest, trainer, checkpoints, secret.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use starling_topology::plan::Bucket;
use starling_topology::{Config as MembershipConfig, Contact, Digest, PeerId, RunId};
use starling_train::{
    AuditWriter, CheckpointError, CheckpointFolder, CheckpointStore, Dataset, Manifest, ModelSpec, Recovered,
    SharedData, Trainer, WIRE_VERSION, check_export_place,
};

use crate::ask::{Member, ask};
use crate::catch_up::{Found, Search, catch_up};
use crate::dataset::{self, Samples};
use crate::error::NodeError;
use crate::identity::{Identity, from_libp2p};
use crate::known_file::KnownFile;
use crate::manifest_file;
use crate::node::{CHECKPOINTS, blocking, layout_config};
use crate::record_file::{Kept, RecordFile};
use crate::report::Observer;
use crate::secret;
use crate::settings::{Founding, Joining, Resume, Settings};
use crate::welcome::{self, Terms};

/// A peer that is ready to train.
pub(crate) struct Prepared {
    pub(crate) ready: Ready,
    pub(crate) trainer: Trainer,
    /// Checkpoints that it could not go on from.
    pub(crate) damaged: Vec<CheckpointError>,
    /// What others had to go on from.
    pub(crate) searched: Found,
}

/// A peer that is ready to take part: who it is, in which run, and with what.
pub(crate) struct Ready {
    pub(crate) identity: Identity,
    pub(crate) manifest: Manifest,
    /// The files of its data set, if its user shares them.
    pub(crate) shared: Option<Arc<SharedData>>,
    pub(crate) store: CheckpointStore,
    /// The run's secret; `None` for a public run.
    pub(crate) secret: Option<[u8; 32]>,
    pub(crate) membership: MembershipConfig,
    /// How it takes part.
    pub(crate) start: Start,
    /// Where its place in the run is kept.
    pub(crate) record: RecordFile,
}

/// How a peer takes part.
#[derive(Debug)]
pub(crate) enum Start {
    /// As the first member.
    Found,
    /// By asking these members.
    Join(Vec<Contact>),
    /// As the member that it was before its process was gone.
    Recover {
        /// Its place in the run.
        kept: Box<Kept>,
        /// The checkpoint that it loaded.
        checkpoint: Option<Digest>,
        /// False if there are checkpoints, but none that is intact.
        has_state: bool,
    },
}

impl Start {
    /// The checkpoint that a killed member came back with.
    pub(crate) fn checkpoint(&self) -> Option<Digest> {
        if let Self::Recover { checkpoint, .. } = self { *checkpoint } else { None }
    }
}

/// Prepares the founder of a run: names it, and loads a checkpoint if it goes on from one.
pub(crate) async fn founder(settings: &Settings, founding: &Founding) -> Result<Prepared, NodeError> {
    check_places(settings)?;
    let identity = Identity::load_or_create(&settings.data_dir)?;
    let (manifest, dataset, shared, store) = {
        let (settings, founding) = (settings.clone(), founding.clone());
        blocking(move || {
            let shared = dataset::share(&settings, dataset::source(&settings))?;
            let (manifest, dataset, store) = describe(&settings, &founding)?;
            Ok((manifest, dataset, shared, store))
        })
        .await?
    };
    let record = RecordFile::new(&settings.data_dir, manifest.run_id());
    let kept = match founding.resume {
        Resume::Step(_) => {
            // Whoever names a step wants to begin there, whatever the others do.
            record.remove();
            None
        }
        Resume::Fresh | Resume::Newest => record.load(),
    };
    let searched = if kept.is_some() || founding.resume == Resume::Newest {
        let secret = if founding.public { None } else { secret::load(&settings.data_dir, manifest.run_id())? };
        search(settings, &identity, &manifest, secret, kept.as_ref(), &store).await?
    } else {
        Found::default()
    };
    let (trainer, store, start, damaged) = {
        let (settings, founding, manifest) = (settings.clone(), founding.clone(), manifest.clone());
        blocking(move || found(&settings, &founding, &manifest, dataset, store, kept)).await?
    };
    manifest_file::store(&settings.data_dir, &manifest)?;
    let secret = if founding.public { None } else { Some(own_secret(&settings.data_dir, manifest.run_id())?) };
    let membership = membership(settings, &manifest, founding.min_peers);
    let ready = Ready { identity, manifest, shared, store, secret, membership, start, record };
    Ok(Prepared { ready, trainer, damaged, searched })
}

/// Prepares a joiner: asks a member what the run is, gets the data that it needs, and checks that this machine can take
/// part in it.
pub(crate) async fn joiner(
    settings: &Settings,
    joining: &Joining,
    observer: Arc<dyn Observer>,
) -> Result<Prepared, NodeError> {
    check_places(settings)?;
    let identity = Identity::load_or_create(&settings.data_dir)?;
    let member = Member::of(joining)?;
    // A member that was killed knows the run, and the one that it once joined through may be gone.
    let known = member.run.and_then(|run| remembered(&settings.data_dir, run));
    let Terms { manifest, min_members } = match known {
        Some(terms) => terms,
        None => match ask(&identity, &member, settings.mdns, None).await {
            Ok(terms) => terms,
            Err(error @ NodeError::Unreachable { .. }) => {
                let last = RecordFile::last_run(&settings.data_dir).filter(|_| member.run.is_none());
                last.and_then(|run| remembered(&settings.data_dir, run)).ok_or(error)?
            }
            Err(error) => return Err(error),
        },
    };
    if let ModelSpec::Raw { elements } = manifest.model {
        return Err(starling_train::Error::NoModel { elements }.into());
    }
    let run = manifest.run_id();
    if let Some(ours) = member.run.filter(|ours| *ours != run) {
        let (ours, theirs) = (ours.to_string(), run.to_string());
        return Err(NodeError::OtherRun { peer: member.peer.to_string(), ours, theirs });
    }
    let Samples { dataset, source, told } = dataset::of_run(settings, &manifest, &identity, &member, observer).await?;
    let ours = as_we_see_it(&manifest, joining, &dataset);
    if ours != manifest {
        // The member is shown ours, so that its user learns what differs as well.
        let theirs = ask(&identity, &member, settings.mdns, Some(&ours)).await?;
        let differences = welcome::describe(&ours.differences(&theirs.manifest));
        return Err(NodeError::Manifest { peer: member.peer.to_string(), differences });
    }
    let through = member.contact()?;
    let record = RecordFile::new(&settings.data_dir, run);
    let kept = record.load().map(|mut kept| {
        // Of itself it knows more; of another, what the user says is newer than what was kept.
        if through.peer != from_libp2p(&identity.peer_id()).unwrap_or(through.peer) {
            kept.contacts.retain(|contact| contact.peer != through.peer);
            kept.contacts.push(through.clone());
        }
        kept
    });
    let store = {
        let settings = settings.clone();
        blocking(move || open_store(&settings, run)).await?
    };
    let searched = match &kept {
        Some(kept) => search(settings, &identity, &manifest, member.secret, Some(kept), &store).await?,
        None => Found::default(),
    };
    let (trainer, shared, store, start, damaged) = {
        let (settings, manifest) = (settings.clone(), manifest.clone());
        blocking(move || {
            let shared = dataset::share(&settings, &source)?;
            let mut trainer = Trainer::new(&manifest, dataset, settings.device)?;
            let Some(kept) = kept else {
                // The member that we knew may have gone during a download.
                let others = told.into_iter().filter(|contact| contact.peer != through.peer);
                let contacts = [through.clone()].into_iter().chain(others).collect();
                return Ok((trainer, shared, store, Start::Join(contacts), Vec::new()));
            };
            let (start, damaged) = recover(&store, &mut trainer, kept)?;
            Ok((trainer, shared, store, start, damaged))
        })
        .await?
    };
    manifest_file::store(&settings.data_dir, &manifest)?;
    if let Some(secret) = &member.secret {
        // Kept, so that `starling invite` here can print a whole ticket.
        secret::store(&settings.data_dir, run, secret)?;
    }
    let membership = membership(settings, &manifest, min_members);
    let secret = member.secret;
    let ready = Ready { identity, manifest, shared, store, secret, membership, start, record };
    Ok(Prepared { ready, trainer, damaged, searched })
}

/// Checks that what is to be written during the run and at its end can be.
fn check_places(settings: &Settings) -> Result<(), NodeError> {
    if let Some(path) = &settings.export {
        check_export_place(path)?;
    }
    if let Some(path) = &settings.audit {
        AuditWriter::check_place(path)?;
    }
    Ok(())
}

/// Brings a newer stable checkpoint from whoever of those that this machine knows holds one: keepers, and other members.
async fn search(
    settings: &Settings,
    identity: &Identity,
    manifest: &Manifest,
    secret: Option<[u8; 32]>,
    kept: Option<&Kept>,
    store: &CheckpointStore,
) -> Result<Found, NodeError> {
    let keepers = KnownFile::new(&settings.data_dir, manifest.run_id()).load();
    let me = from_libp2p(&identity.peer_id());
    let mut contacts: BTreeMap<PeerId, Contact> = BTreeMap::new();
    for contact in kept.iter().flat_map(|kept| &kept.contacts).chain(&keepers) {
        contacts.insert(contact.peer, contact.clone());
    }
    contacts.retain(|peer, _| Some(*peer) != me);
    // Keepers first: there may be more members than are asked.
    let mut contacts: Vec<Contact> = contacts.into_values().collect();
    contacts.sort_by_key(|contact| !keepers.iter().any(|keeper| keeper.peer == contact.peer));
    let from_forks = kept.is_some_and(|kept| kept.record.view.forked);
    let search = Search { manifest, secret, contacts, store, even_if_live: false, from_forks };
    let mut found = catch_up(search).await?;
    // That somebody who was killed does not answer is what is expected.
    found.troubles.retain(|trouble| trouble.is_loss);
    Ok(found)
}

/// What a run is that this machine was a member of when its process was killed.
fn remembered(data_dir: &Path, run: RunId) -> Option<Terms> {
    let min_members = RecordFile::new(data_dir, run).load()?.min_members;
    Some(Terms { manifest: manifest_file::load(data_dir, run).ok()?, min_members })
}

pub(crate) fn membership(settings: &Settings, manifest: &Manifest, min_members: usize) -> MembershipConfig {
    let max_stall = Duration::from_millis(manifest.max_stall_ms);
    // Without the few numbers that travel with a gradient, which are as many as there are members.
    let elements = manifest.parameters();
    let bytes = |elements: usize| manifest.codec.payload_bytes(elements) as u64;
    let segment = layout_config(manifest.layout).segment_elements;
    let bucket = Bucket { bytes: bytes(elements), segment_bytes: bytes(segment) };
    MembershipConfig {
        reduced: Some((manifest.plan, bucket)),
        max_stall,
        min_members,
        max_members: settings.max_peers,
        fork_after: settings.fork_after,
        incarnation: rand::random(),
    }
}

/// What a founder's run is, over which data, and where its checkpoints are.
fn describe(settings: &Settings, founding: &Founding) -> Result<(Manifest, Dataset, CheckpointStore), NodeError> {
    let options = dataset::options(settings, founding.run.held_out, founding.run.seed);
    let dataset = Dataset::load(&options).map_err(starling_train::Error::from)?;
    let manifest = Manifest::found(&founding.run, &dataset)?;
    let store = open_store(settings, manifest.run_id())?;
    Ok((manifest, dataset, store))
}

/// What a founder is ready with.
type Founded = (Trainer, CheckpointStore, Start, Vec<CheckpointError>);

fn found(
    settings: &Settings,
    founding: &Founding,
    manifest: &Manifest,
    dataset: Dataset,
    store: CheckpointStore,
    kept: Option<Kept>,
) -> Result<Founded, NodeError> {
    if let Some(kept) = kept {
        let mut trainer = Trainer::new(manifest, dataset, settings.device)?;
        let (start, damaged) = recover(&store, &mut trainer, kept)?;
        return Ok((trainer, store, start, damaged));
    }
    let wanted = match (founding.resume, store.steps()?.last()) {
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
    let mut trainer = Trainer::new(manifest, dataset, settings.device)?;
    if let Some(step) = wanted {
        trainer.load(store.load(Some(step)).map_err(|error| damaged(&store, error))?)?;
    }
    Ok((trainer, store, Start::Found, Vec::new()))
}

/// Loads what a killed member goes on from: a stable checkpoint, if it has one. If what it has is damaged, others may hold
/// the state.
fn recover(
    store: &CheckpointStore,
    trainer: &mut Trainer,
    kept: Kept,
) -> Result<(Start, Vec<CheckpointError>), NodeError> {
    let Recovered { found, damaged } = store.recover()?;
    let has_state = found.is_some() || damaged.is_empty();
    let checkpoint = found.as_ref().map(|(id, _)| *id);
    if let Some((_, state)) = found {
        trainer.load(state)?;
    }
    Ok((Start::Recover { kept: Box::new(kept), checkpoint, has_state }, damaged))
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

/// The checkpoints of one run. Those of other runs lie beside them.
pub(crate) fn open_store(settings: &Settings, run: RunId) -> Result<CheckpointStore, NodeError> {
    Ok(CheckpointFolder::new(settings.data_dir.join(CHECKPOINTS)).open(run, settings.checkpoint_keep)?)
}

/// The secret of a run that we founded: from the data directory, or fresh.
pub(crate) fn own_secret(data_dir: &Path, run: RunId) -> Result<[u8; 32], NodeError> {
    if let Some(secret) = secret::load(data_dir, run)? {
        return Ok(secret);
    }
    let secret: [u8; 32] = rand::random();
    secret::store(data_dir, run, &secret)?;
    Ok(secret)
}

/// The manifest with what this machine knows for itself in place: its data, its release, what its user insists on.
fn as_we_see_it(manifest: &Manifest, joining: &Joining, dataset: &Dataset) -> Manifest {
    let mut ours = manifest.clone();
    let expected = &joining.expected;
    ours.wire_version = WIRE_VERSION;
    ours.data = dataset.description().in_form_of(&manifest.data);
    if let Some(model) = &expected.model {
        ours.model = model.clone();
    }
    if let Some(optimizer) = &expected.optimizer {
        ours.optimizer = *optimizer;
    }
    ours.batch_size = expected.batch_size.unwrap_or(ours.batch_size);
    ours.steps = expected.steps.unwrap_or(ours.steps);
    ours.seed = expected.seed.unwrap_or(ours.seed);
    ours.balance = expected.balance.unwrap_or(ours.balance);
    ours.codec = expected.codec.unwrap_or(ours.codec);
    ours.plan = expected.plan.unwrap_or(ours.plan);
    ours.max_stall_ms = expected.max_stall_ms.unwrap_or(ours.max_stall_ms);
    ours
}
