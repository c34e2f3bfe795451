//! What is ready before a peer shows itself: data, manifest, learner, checkpoints, secret.

mod begin;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use starling_engine::leaf::reach_search::PeerRole;
use starling_engine::return_engine::{Decision, ReturnOptions, WaitStatus};
use starling_run::program::export;
use starling_run::{
    AuditWriter, CheckpointError, CheckpointFolder, CheckpointStore, DataOptions, InitialOrigin, Learner, Manifest,
    PreprocessingSpec, Program, RecoveryResult, RenameSpec, ReplicatedState, RunSpec, Workload, check_probe,
};
use starling_topology::plan::Bucket;
use starling_topology::{Config as MembershipConfig, Contact, Generation, Lineage, PeerId, RunId, ViewId};

use self::begin::Beginning;
use crate::access::{self, Credentials};
use crate::credentials::founder::FounderKey;
use crate::credentials::identity::{Identity, from_libp2p};
use crate::credentials::invitation::Role;
use crate::credentials::secret;
use crate::error::NodeError;
use crate::member::leaf::role::{self, RoleHistory};
use crate::member::twin::TwinWatch;
use crate::net::listen;
use crate::observe::report::{Observer, Report};
use crate::settings::{FoundOptions, JoinOptions, ResumePolicy, Settings};
use crate::start::catch_up::SearchOutcome;
use crate::start::client::ask::{Member, ask, ask_any};
use crate::start::dataset::arriving::ArrivingData;
use crate::start::dataset::{self, Samples};
use crate::start::initial;
use crate::start::node::{CHECKPOINTS, blocking, layout_config};
use crate::start::origin;
use crate::start::way_back::{Decided, Memory, SearchContext};
use crate::start::welcome::{self, Terms, Welcome};
use crate::store::manifest_file;
use crate::store::preprocessing_file::PreprocessingFile;
use crate::store::record_file::{RecordFile, SavedMembership};
use crate::transfer::SharedFiles;

/// A peer that is ready to train.
pub(crate) struct Prepared {
    pub(crate) ready: Ready,
    /// A leaf takes part through one of the members that it would ask to be let in.
    pub(crate) role: PeerRole,
    pub(crate) learner: Box<dyn Learner>,
    /// Checkpoints that it could not go on from.
    pub(crate) damaged: Vec<CheckpointError>,
    /// What others had to go on from.
    pub(crate) searched: SearchOutcome,
}

/// A peer that is ready to take part: who it is, in which run, and with what.
pub(crate) struct Ready {
    pub(crate) identity: Identity,
    pub(crate) manifest: Manifest,
    /// As of [`Learner::probe`].
    pub(crate) probe: Option<f32>,
    /// The files that it hands out.
    pub(crate) shared: SharedFiles,
    pub(crate) store: CheckpointStore,
    /// What it is admitted by.
    pub(crate) credentials: Credentials,
    pub(crate) membership: MembershipConfig,
    /// How it takes part.
    pub(crate) start: Start,
    /// What it has of the run from before, and where that is kept.
    pub(crate) memory: Memory,
    /// Whether another process is this machine.
    pub(crate) twins: TwinWatch,
    /// What is to come of its data while it trains.
    pub(crate) rest: Option<ArrivingData>,
}

/// How a peer takes part.
#[derive(Debug)]
pub(crate) enum Start {
    /// As the first member.
    Found,
    /// By asking these members, of whom it waits for some.
    Join { contacts: Vec<Contact>, awaited: WaitStatus },
    /// As the member that it was before its process was gone.
    Recover {
        /// Its place in the run.
        kept: Box<SavedMembership>,
        /// False if it has no intact checkpoint that counts: it was still to load the state, or what it had is damaged.
        has_state: bool,
        /// Whether it may begin with the state before the first step where nobody holds any.
        can_begin: bool,
    },
    /// Alone, as a fork.
    Fork {
        /// The view that it was in last.
        parent: Option<(Generation, ViewId)>,
    },
}

/// Prepares whoever names a run by its settings: founds it, or comes back to it.
pub(crate) async fn founder(
    settings: &Settings,
    founding: &FoundOptions,
    program: Arc<dyn Program>,
    observer: Arc<dyn Observer>,
) -> Result<Prepared, NodeError> {
    check_places(settings)?;
    let identity = Identity::load_or_create(&settings.data_dir)?;
    let (described, shared) = {
        let (settings, founding) = (settings.clone(), founding.clone());
        blocking(move || {
            let described = describe(&settings, &founding, program.as_ref())?;
            let data = (dataset::source(&settings), &described.manifest);
            let data = dataset::share(&settings, program.as_ref(), data)?;
            let initial = initial::share(&settings.data_dir, &described.manifest)?;
            Ok((described, SharedFiles { data, initial }))
        })
        .await?
    };
    let Described { manifest, given, workload, store, begun_from } = described;
    let mut founding = founding.clone();
    if let Some((run, step)) = begun_from {
        observer.report(&Report::BegunFrom { run: run.to_string(), step });
        // What it begins with is its first checkpoint.
        founding.resume = ResumePolicy::Newest;
    }
    let founding = &founding;
    let me = own_name(&identity);
    let mut memory = Memory::load(&settings.data_dir, manifest.run_id(), me);
    memory.warn(&*observer);
    let was_here = !memory.is_new();
    let kept = secret::load(&settings.data_dir, manifest.run_id())?;
    let kept = if founding.public { Credentials::default() } else { kept };
    let credentials = Credentials { bearer: Some(identity.clone()), ..kept };
    let twins = TwinWatch::start((me, &manifest, &credentials), memory.places([]), &settings.data_dir).await?;
    let named = if let ResumePolicy::Step(step) = founding.resume { Some(step) } else { None };
    let choice = ReturnOptions { joins: false, alone: founding.alone, goes_back: named.is_some() };
    let asking = SearchContext { manifest: &manifest, credentials: &credentials, store: &store, observer: &*observer };
    let Decided { outcome, found: searched, loaded } = memory.come_back(was_here, choice, asking).await?;
    match (&outcome, named) {
        (Decision::Over, _) if founding.resume == ResumePolicy::Fresh => {
            return Err(complete(settings, &manifest, loaded.as_ref()));
        }
        (Decision::OthersBranch, Some(step)) => return Err(NodeError::OthersBranch { step, members: memory.names() }),
        _ => {}
    }
    let (learner, store, memory, start, damaged) = {
        let (settings, resume, manifest) = (settings.clone(), founding.resume, manifest.clone());
        blocking(move || {
            let mut memory = memory;
            let mut learner = open(workload, &manifest, given)?;
            let beginning = Beginning { settings: &settings, resume, manifest: &manifest, store: &store };
            let (start, damaged) = begin::begin(outcome, &beginning, loaded, learner.as_mut(), &mut memory)?;
            Ok((learner, store, memory, start, damaged))
        })
        .await?
    };
    manifest_file::store(&settings.data_dir, &manifest)?;
    let credentials = match founding.public {
        true => Credentials {
            invitation: secret::own_invitation(&settings.data_dir, &manifest, None)?,
            ..Credentials::default()
        },
        // Without it nobody would let this machine in, and it would let in nobody of the run's.
        false if was_here && secret::load(&settings.data_dir, manifest.run_id())?.secret.is_none() => {
            return Err(NodeError::LostSecret { dir: settings.data_dir.clone() });
        }
        false => secret::own(&settings.data_dir, &manifest)?,
    };
    let credentials = Credentials { bearer: Some(identity.clone()), ..credentials };
    let key = FounderKey::file(&settings.data_dir);
    if !was_here && FounderKey::load(&key)?.is_some_and(|key| Some(key.public()) == manifest.founder) {
        observer.report(&Report::Founder { key: key.display().to_string() });
    }
    let membership = membership(settings, &manifest, founding.min_peers);
    let probe = learner.probe();
    let rest = None;
    let ready = Ready { identity, manifest, probe, shared, store, credentials, membership, start, memory, twins, rest };
    Ok(Prepared { ready, role: PeerRole::Member, learner, damaged, searched })
}

/// Prepares a joiner: asks members what the run is, gets the data that it needs, and checks that this machine can take
/// part in it. One that `comes_back` was there all the time, and completes the run if that is over.
pub(crate) async fn joiner(
    settings: &Settings,
    joining: &JoinOptions,
    program: Arc<dyn Program>,
    observer: Arc<dyn Observer>,
    (comes_back, history): (bool, &RoleHistory),
) -> Result<Prepared, NodeError> {
    if comes_back {
        listen::given_back(&settings.listen).await;
    }
    check_places(settings)?;
    let identity = Identity::load_or_create(&settings.data_dir)?;
    let me = own_name(&identity);
    let mut named = Member::all_of(joining)?;
    if let Some(Member { run, credentials, .. }) = named.first().cloned() {
        named.extend(history.members().iter().map(|contact| Member::at(contact, run, &credentials)));
    }
    let run = named.first().and_then(|member| member.run);
    let invitation = named.first().and_then(|member| member.credentials.invitation.as_ref());
    if invitation.is_some_and(|invitation| invitation.invitation.terms.role == Role::Keeper) {
        return Err(NodeError::KeepersTicket);
    }
    // A member that was here before knows the run, and those that it once joined through may be gone.
    let known = run.and_then(|run| remembered(&settings.data_dir, run, me));
    let (member, Terms { manifest, min_members, probe }, (told, keepers)) = match (known, named.first()) {
        (Some(terms), Some(first)) => (first.clone(), terms, Default::default()),
        _ => match ask_any(&identity, &named, settings.mdns, &*observer).await {
            Ok((member, Welcome { terms, members, keepers, .. })) => (member, terms, (members, keepers)),
            Err(error @ NodeError::Unreachable { .. }) => {
                let last = RecordFile::last_run(&settings.data_dir).filter(|_| run.is_none());
                let terms = last.and_then(|run| remembered(&settings.data_dir, run, me));
                match (terms, named.first()) {
                    (Some(terms), Some(first)) => (first.clone(), terms, Default::default()),
                    _ => return Err(error),
                }
            }
            Err(error) => return Err(error),
        },
    };
    program.check(&manifest)?;
    let run = manifest.run_id();
    if let Some(ours) = member.run.filter(|ours| *ours != run) {
        let (ours, theirs) = (ours.to_string(), run.to_string());
        return Err(NodeError::OtherRun { peer: member.peer.to_string(), ours, theirs });
    }
    let kept = secret::load(&settings.data_dir, run)?;
    let invitations = [member.credentials.invitation, kept.invitation];
    let credentials = Credentials {
        secret: member.credentials.secret.or(kept.secret),
        invitation: access::better(&settings.data_dir, (run, manifest.founder), me, invitations)?,
        bearer: Some(identity.clone()),
    };
    let member = Member { credentials: credentials.clone(), ..member };
    let Samples { workload, source, told: sharers, mut rest } =
        dataset::of_run(settings, program.clone(), &manifest, (&identity, &member), observer.clone()).await?;
    let ours = as_we_see_it(&manifest, joining, workload.as_ref())?;
    if ours != manifest {
        // The member is shown ours, so that its user learns what differs as well; if it is there.
        let shown = ask(&identity, &member, settings.mdns, Some(&ours)).await;
        let theirs = shown.map_or_else(|_| manifest.clone(), |welcome| welcome.terms.manifest);
        let mut differences = welcome::describe(&ours.differences(&theirs));
        let is_other = ours.data.fingerprint != theirs.data.fingerprint;
        if let Some(preprocessing) = workload.preprocessing().filter(|_| is_other).cloned() {
            // More than the numbers of rows and features and a hash.
            let theirs = dataset::preprocessing(settings, &theirs, (&identity, &member)).await;
            let told = match theirs.map(|theirs| preprocessing.told(&theirs)) {
                Some(told) if !told.is_empty() => format!(", where {}", told.join(", and ")),
                Some(_) if ours.data.is_table() && ours.data.samples == manifest.data.samples => {
                    ", although both have as many rows, and the same columns, classes and means: some cells or labels differ, or \
                     the order of rows"
                        .to_owned()
                }
                _ => String::new(),
            };
            differences = format!("this machine's data is not the run's{told}; {differences}");
        }
        return Err(NodeError::Manifest { peer: member.peer.to_string(), differences });
    }
    let named_by_run = names_of_run(settings, &manifest, workload.as_ref(), (&identity, &member), &*observer).await?;
    let given = initial::of_run(settings, &manifest, (&identity, &member), &*observer).await?;
    let mut memory = Memory::load(&settings.data_dir, run, me);
    memory.warn(&*observer);
    let was_here = !memory.is_new();
    let places = memory.places(told.iter().chain(&sharers));
    let twins = TwinWatch::start((me, &manifest, &credentials), places, &settings.data_dir).await?;
    // Of itself it knows more; of others, what the user says is newer than what was kept.
    for contact in named.iter().filter_map(Member::contact) {
        memory.learn(&contact);
    }
    for keeper in keepers {
        memory.contacts.learn_keeper(keeper, |_| false);
    }
    let store = {
        let settings = settings.clone();
        blocking(move || open_store(&settings, run)).await?
    };
    if !was_here {
        // The one that answered comes first; it may have gone during a download.
        let others = told.into_iter().chain(sharers).filter(|contact| contact.peer != me).collect::<Vec<_>>();
        others.into_iter().rev().chain(member.contact()).for_each(|contact| memory.learn(&contact));
    }
    let (members, before) = (memory.members(), (was_here, history));
    let role =
        role::role(settings, (&identity, &credentials), &manifest, (&members, min_members), before, &*observer).await?;
    if role == PeerRole::Leaf
        && let Some(rest) = rest.take()
    {
        // What its carrier deals it, it has to have.
        dataset::complete(settings, &manifest, &rest, (&identity, &member), &*observer).await?;
    }
    let shares = rest.is_none();
    if settings.share_data && !shares {
        let message =
            "this machine does not share the data before all of it is here and it is started again".to_owned();
        observer.report(&Report::Warning { message });
    }
    let Decided { outcome, found: searched, loaded } = match role {
        PeerRole::Member => {
            let choice = ReturnOptions { joins: true, alone: joining.alone, goes_back: false };
            let (manifest, credentials, store) = (&manifest, &credentials, &store);
            let asking = SearchContext { manifest, credentials, store, observer: &*observer };
            memory.come_back(was_here, choice, asking).await?
        }
        // It has no place of its own to come back to, and loads what its carrier holds.
        PeerRole::Leaf => {
            let members = memory.members().iter().map(|contact| contact.peer).collect();
            let outcome = Decision::Join { members, awaited: WaitStatus::default() };
            Decided { outcome, found: SearchOutcome::default(), loaded: None }
        }
    };
    if outcome == Decision::Over && !comes_back {
        return Err(complete(settings, &manifest, loaded.as_ref()));
    }
    let asked = member.peer.to_string();
    let (learner, shared, store, memory, start, damaged) = {
        let (settings, manifest) = (settings.clone(), manifest.clone());
        blocking(move || {
            let mut memory = memory;
            let shared = || dataset::share(&settings, program.as_ref(), (&source, &manifest));
            let data = if shares { shared()? } else { None };
            let shared = SharedFiles { data, initial: initial::share(&settings.data_dir, &manifest)? };
            let mut learner = open(workload, &manifest, given)?;
            check_probe(learner.probe(), probe).map_err(|reason| NodeError::Probe { peer: asked, reason })?;
            if let Some(preprocessing) = named_by_run {
                learner.take_names(preprocessing);
            }
            let resume = ResumePolicy::Newest;
            let beginning = Beginning { settings: &settings, resume, manifest: &manifest, store: &store };
            let (start, damaged) = begin::begin(outcome, &beginning, loaded, learner.as_mut(), &mut memory)?;
            Ok((learner, shared, store, memory, start, damaged))
        })
        .await?
    };
    manifest_file::store(&settings.data_dir, &manifest)?;
    // Kept, so that it can come back without the ticket.
    secret::store_first(&settings.data_dir, run, &credentials)?;
    let membership = membership(settings, &manifest, min_members);
    let probe = learner.probe();
    let ready = Ready { identity, manifest, probe, shared, store, credentials, membership, start, memory, twins, rest };
    Ok(Prepared { ready, role, learner, damaged, searched })
}

/// What to say to who starts a run again that is over.
fn complete(settings: &Settings, manifest: &Manifest, loaded: Option<&RecoveryResult>) -> NodeError {
    let (dir, last) = (settings.data_dir.clone(), manifest.steps);
    match loaded.and_then(|loaded| loaded.found.as_ref()).map(|(_, state)| state.step) {
        Some(step) if step < last => NodeError::EndedEarly { dir, step },
        _ => NodeError::Complete { dir, step: last },
    }
}

/// The run's preprocessing, where this machine's copy of the data calls the same values by other names: from the data directory,
/// else from a member.
async fn names_of_run(
    settings: &Settings,
    manifest: &Manifest,
    workload: &dyn Workload,
    asked: (&Identity, &Member),
    observer: &dyn Observer,
) -> Result<Option<PreprocessingSpec>, NodeError> {
    let Some(ours) = workload.preprocessing().filter(|ours| ours.digest() != manifest.data.preprocessing).cloned()
    else {
        return Ok(None);
    };
    // What is damaged is asked for anew.
    let kept = PreprocessingFile::new(&settings.data_dir, manifest).load().unwrap_or_default();
    let theirs = match kept {
        Some(kept) => Some(kept),
        None => dataset::preprocessing(settings, manifest, asked).await,
    };
    let is_there = theirs.is_some();
    // Scales follow from the values: others' word for them is not taken.
    let theirs = theirs.filter(|theirs| ours.differs_in_names_alone(theirs));
    let message = match &theirs {
        Some(theirs) => {
            let told = ours.told(theirs);
            let told = if told.is_empty() { String::new() } else { format!(" ({})", told.join("; ")) };
            format!("this machine's data has the run's values under other names{told}; an export has the run's")
        }
        None if is_there => {
            "the run's founder says other means, deviations or kinds of columns than this machine finds in the same \
                             values; an export from here has this machine's"
                .to_owned()
        }
        None => {
            "this machine's data has the run's values under other names, and the member that was asked did not say the \
                 run's; an export from here has this machine's. Export from another member, or join again"
                .to_owned()
        }
    };
    observer.report(&Report::Warning { message });
    Ok(theirs)
}

/// Checks that what is to be written during the run and at its end can be.
fn check_places(settings: &Settings) -> Result<(), NodeError> {
    if let Some(path) = &settings.export {
        export::check_place(path)?;
    }
    if let Some(path) = &settings.audit {
        AuditWriter::check_place(path)?;
    }
    Ok(())
}

/// What a run is that this machine takes part in, or did.
fn remembered(data_dir: &Path, run: RunId, me: PeerId) -> Option<Terms> {
    let min_members = Memory::load(data_dir, run, me).min_members()?;
    Some(Terms { manifest: manifest_file::load(data_dir, run).ok()?, min_members, probe: None })
}

pub(crate) fn own_name(identity: &Identity) -> PeerId {
    from_libp2p(&identity.peer_id()).expect("invariant: our own key is Ed25519")
}

pub(crate) fn membership(settings: &Settings, manifest: &Manifest, min_members: usize) -> MembershipConfig {
    let max_stall = Duration::from_millis(manifest.max_stall_ms);
    // Without the numbers that travel with a gradient, which are few: one for each member, and what runs along.
    let elements = manifest.trained();
    let bytes = |elements: usize| manifest.codec.payload_bytes(elements) as u64;
    let segment = layout_config(manifest.layout).segment_elements;
    let bucket = Bucket { bytes: bytes(elements), segment_bytes: bytes(segment) };
    MembershipConfig {
        reduced: Some((manifest.plan, bucket)),
        max_stall,
        min_members,
        last_step: manifest.steps,
        max_members: settings.max_peers,
        quorum: manifest.quorum,
        fork_after: settings.fork_after,
        checkpoint_every: manifest.checkpoint_every,
        incarnation: incarnation(SystemTime::now()),
    }
}

/// What tells this process from others with its key: one that is started later counts as later.
fn incarnation(now: SystemTime) -> u64 {
    let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    since.as_secs() << 32 | u64::from(rand::random::<u32>())
}

/// What a founder's run is, over which data, and where its checkpoints are.
struct Described {
    manifest: Manifest,
    /// The initial values, if they are given.
    given: Option<Vec<f32>>,
    workload: Box<dyn Workload>,
    store: CheckpointStore,
    /// If it is a new run that begins with the state of another: of which, and after which step.
    begun_from: Option<(RunId, u64)>,
}

fn describe(settings: &Settings, founding: &FoundOptions, program: &dyn Program) -> Result<Described, NodeError> {
    let options = dataset::options(settings, founding.run.held_out, founding.run.seed);
    let options = DataOptions { text: program.learns_text(&founding.run.model), ..options };
    let workload = program.read(&options)?;
    let spec = founding.spec(workload.as_ref());
    let mut manifest = workload.found(&spec)?;
    let given = match (&founding.init, &founding.from) {
        (Some(init), Some(from)) => return Err(NodeError::TwoBeginnings { init: init.clone(), from: from.clone() }),
        (Some(init), None) => Some(read_initial(workload.as_ref(), &spec, init, &founding.init_names)?),
        (None, _) => workload.own_initial(&spec)?,
    };
    if let Some(values) = &given {
        (manifest.initial, manifest.given) = (starling_run::state::initial::digest(values), true);
    }
    let (manifest, state) = origin::find(settings, founding, manifest)?;
    let run = manifest.run_id();
    let store = open_store(settings, run)?;
    if let Some(values) = &given {
        initial::keep(&settings.data_dir, &manifest, values)?;
    }
    let mut begun_from = None;
    if let Some(state) = state
        && store.steps()?.is_empty()
    {
        begun_from = Some((state.run, state.step));
        // On disk first: nobody could compute it.
        store.save(ReplicatedState { run, lineage: Lineage::NONE, ..state })?;
    }
    Ok(Described { manifest, given, workload, store, begun_from })
}

/// The values in a file, or those of the model in a checkpoint.
fn read_initial(
    workload: &dyn Workload,
    spec: &RunSpec,
    path: &Path,
    names: &[RenameSpec],
) -> Result<Vec<f32>, NodeError> {
    let saved = origin::is_saved(path).then(|| origin::read(path)).transpose()?;
    let state = saved.as_ref().map(|(manifest, state)| (manifest, state));
    Ok(workload.read_initial(spec, &InitialOrigin { path, state, names })?)
}

/// Opens the learner, and checks that what it holds is as long as the run's states are: all that follows relies on it.
fn open(
    workload: Box<dyn Workload>,
    manifest: &Manifest,
    given: Option<Vec<f32>>,
) -> Result<Box<dyn Learner>, NodeError> {
    let learner = workload.open_with(manifest, given)?;
    let state = learner.state();
    let moments = state.moments.iter().map(|moment| moment.len()).collect();
    let found = ([state.parameters.len(), state.frozen.len()], moments, state.scalars.len());
    let elements = manifest.changing();
    let expected = ([elements, manifest.frozen()], vec![elements; manifest.moments()], manifest.scalars());
    if found != expected {
        let lengths = |([parameters, frozen], moments, scalars): ([usize; 2], Vec<usize>, usize)| {
            format!("{parameters} parameters and {frozen} frozen ones, moments of {moments:?} and {scalars} scalars")
        };
        let (expected, found) = (lengths(expected), lengths(found));
        return Err(starling_run::Error::OtherShape { step: state.step, expected, found }.into());
    }
    Ok(learner)
}

/// The checkpoints of one run. Those of other runs lie beside them.
pub(crate) fn open_store(settings: &Settings, run: RunId) -> Result<CheckpointStore, NodeError> {
    Ok(CheckpointFolder::new(settings.data_dir.join(CHECKPOINTS)).open(run, settings.checkpoint_keep)?)
}

/// The manifest with what this machine knows for itself in place: its data, its release, what its user insists on.
fn as_we_see_it(manifest: &Manifest, joining: &JoinOptions, workload: &dyn Workload) -> Result<Manifest, NodeError> {
    let mut spec = manifest.spec();
    joining.expected.apply(&mut spec);
    let ours = workload.describe(&spec)?;
    let data = ours.data.clone().in_form_of(&manifest.data);
    let Manifest { initial, given, from, founder, .. } = *manifest;
    Ok(Manifest { data, initial, given, from, founder, ..ours })
}
