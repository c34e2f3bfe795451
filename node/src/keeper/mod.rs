//! A peer that stores checkpoints and takes part in nothing else: no device, no data, no place in any view.
//!
//! It is admitted like any peer and speaks gossip, identify, ping, `welcome`, `access` and `state`; it has no control stream, so the
//! membership machines of the members never hear of it. What it fetches, and when a checkpoint is stable, a
//! [`Follower`] decides.

mod background_tasks;
mod keeper_loop;
mod told;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use starling_engine::search;
use starling_run::{CheckpointFolder, CheckpointStore, Manifest, PreprocessingSpec};
use starling_topology::{Contact, Digest, Follower, Proof, RunId};
use tokio_util::sync::CancellationToken;

use crate::access::{Access, Credentials};
use crate::credentials::identity::{Identity, from_libp2p, to_libp2p};
use crate::credentials::secret;
use crate::credentials::ticket::Ticket;
use crate::error::NodeError;
use crate::member::guide::Guide;
use crate::member::snapshots::Snapshots;
use crate::net::listen::Places;
use crate::net::network::{MAX_NOTICES, Network, Part};
use crate::net::rate_limiter::RateLimiter;
use crate::observe::report::{Observer, Outcome, Report, Summary};
use crate::observe::reporter::{self, Lived};
use crate::settings::Settings;
use crate::start::catch_up::{self, Search, SearchOutcome, catch_up};
use crate::start::client::dialer::CheckpointDialer;
use crate::start::node::{CHECKPOINTS, blocking};
use crate::start::welcome::Terms;
use crate::store::contacts_file::{Contacts, ContactsFile, Damaged};
use crate::store::manifest_file;
use crate::store::preprocessing_file::PreprocessingFile;
use crate::transfer::checkpoint_provider::CheckpointProvider;
use crate::transfer::providers::{serve_chunks, serve_welcome};
use crate::transfer::{ChunkProviders, SharedFiles, questions};
use keeper_loop::{KeeperLoop, Parts};

/// How long those who know the run may take to say what it is.
const ASK_LIMIT: Duration = Duration::from_secs(15);

/// Follows a run and keeps its checkpoints until `stop` is cancelled. The summary names the newest stable one.
///
/// # Errors
/// Any [`NodeError`]; each is one clear line.
pub async fn keep(
    settings: Settings,
    ticket: Ticket,
    observer: Arc<dyn Observer>,
    stop: CancellationToken,
) -> Result<Summary, NodeError> {
    let prepare = |observer, _| prepare(&settings, &ticket, observer);
    reporter::shown(observer, &stop, prepare, |keeper_loop: KeeperLoop, _| async {
        keeper_loop.run(stop.clone()).await.map(|summary| Lived::Ended(Box::new(summary)))
    })
    .await
}

/// What fetching a checkpoint by a ticket came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchReport {
    /// The run.
    pub run: RunId,
    /// The newest stable checkpoint's step.
    pub step: u64,
    /// The digest of its state.
    pub digest: Digest,
    /// Whether it came just now; else it was here already.
    pub is_new: bool,
}

/// Fetches the newest stable checkpoint that the ticket's peer, and whoever else is known of the run in the data
/// directory, holds; with what it takes to go on from it, or to export it.
///
/// # Errors
/// Any [`NodeError`]; each is one clear line.
pub async fn fetch(settings: &Settings, ticket: &Ticket) -> Result<FetchReport, NodeError> {
    let contacts = all(&known(settings, ticket, None, &Silent));
    let credentials = credentials(settings, ticket)?;
    let manifest = manifest(settings, (ticket.run, &credentials), &contacts).await?;
    let run = ticket.run;
    let store = open_store(settings, run).await?;
    let terms = search::SearchConfig {
        root: None,
        even_if_live: true,
        from_forks: true,
        beyond: None,
        last_step: manifest.steps,
        max_stall: catch_up::stall(&manifest),
    };
    let guide = Guide::open(&settings.data_dir, run, manifest.founder);
    let search = Search { manifest: &manifest, credentials: &credentials, contacts, store: &store, guide, terms };
    let SearchOutcome { fetched, answers, failures, .. } = catch_up(search).await?;
    if let Some(info) = fetched {
        note_donors(settings, ticket)?;
        return Ok(FetchReport { run, step: info.step, digest: info.digest, is_new: true });
    }
    let own = blocking(move || Ok(store.newest_stable(None)?)).await?;
    let trouble = failures.into_iter().map(|failure| failure.reason).collect::<Vec<_>>().join("; ");
    match own {
        Some(info) if answers.iter().any(|(_, answer)| answer.is_ok()) => {
            Ok(FetchReport { run, step: info.step, digest: info.digest, is_new: false })
        }
        Some(_) | None => {
            let reason = if trouble.is_empty() { "it holds no stable checkpoint".to_owned() } else { trouble };
            Err(NodeError::NothingStable { peer: ticket.names().join(", "), reason })
        }
    }
}

/// What the ticket admits by, or what was kept of an earlier one.
fn credentials(settings: &Settings, ticket: &Ticket) -> Result<Credentials, NodeError> {
    let kept = secret::load(&settings.data_dir, ticket.run)?;
    let bearer = Identity::file(&settings.data_dir).exists().then(|| Identity::load_or_create(&settings.data_dir));
    Ok(Credentials {
        secret: ticket.secret.or(kept.secret),
        invitation: ticket.invitation.clone().or(kept.invitation),
        bearer: bearer.transpose()?,
    })
}

async fn prepare(settings: &Settings, ticket: &Ticket, observer: Arc<dyn Observer>) -> Result<KeeperLoop, NodeError> {
    let identity = Identity::load_or_create(&settings.data_dir)?;
    let known = known(settings, ticket, Some(&identity), &*observer);
    let credentials = credentials(settings, ticket)?;
    let manifest = manifest(settings, (ticket.run, &credentials), &all(&known)).await?;
    let run = ticket.run;
    let store = open_store(settings, run).await?;
    let (held, stable, damaged) = {
        let store = store.clone();
        blocking(move || whole(&store)).await?
    };
    if let Some(name) = settings.own_name(credentials.secret.is_some()) {
        observer.report(&Report::Named { peer: identity.peer_id().to_string(), name: name.to_string() });
    }
    observer.report(&Report::Keeping {
        peer: identity.peer_id().to_string(),
        run: run.to_string(),
        steps: manifest.steps,
        stable_step: stable.iter().map(|proof| proof.head.step).max(),
        private: credentials.secret.is_some(),
    });
    for message in damaged {
        observer.report(&Report::Warning { message });
    }
    let pace = RateLimiter::new(settings.state_rate);
    let checkpoint_provider = CheckpointProvider::new(rand::random(), &manifest, store.clone(), pace.clone());
    // It takes no part, and lacks nothing that it would need for that.
    checkpoint_provider.tell(false, false);
    checkpoint_provider.look_in(PreprocessingFile::new(&settings.data_dir, &manifest));
    stable.iter().for_each(|proof| checkpoint_provider.learn(&proof.view));
    let guide = Guide::open(&settings.data_dir, run, manifest.founder);
    checkpoint_provider.lead_by(guide.clone());
    let stall = Duration::from_millis(manifest.max_stall_ms);
    let parties = (run, manifest.founder);
    let access = Access::open(identity.peer_id(), parties, &credentials, &settings.allow, &settings.data_dir)?
        .keeping(ticket.peers.iter().map(|contact| contact.peer), manifest.quorum);
    let mut network = Network::new(&identity, access.clone(), settings, (run, Part::Keeper), stall)?;
    // It has no states for joiners.
    let chunk_providers =
        ChunkProviders::new(Snapshots::new(pace), checkpoint_provider.clone(), SharedFiles::default());
    serve_chunks(&network, chunk_providers.clone(), stall);
    let (mismatches_in, mismatches) = tokio::sync::mpsc::channel(MAX_NOTICES);
    let terms = Terms { manifest: manifest.clone(), min_members: 1, probe: None };
    serve_welcome(&network, terms, chunk_providers.clone(), Part::Keeper, mismatches_in);
    network.listen(&Places::new(&settings.listen)).await?;
    let keepers = std::iter::once(network.contact()).chain(known.keepers().iter().cloned());
    chunk_providers.know(known.members().iter().cloned(), keepers);
    let own = Ticket::new([network.contact()].into_iter().chain(known.members().iter().cloned()), run, access.secret());
    let own = own.with_invitation(access.open_invitation());
    observer.report(&Report::Listening {
        addresses: network.addresses().iter().map(|address| format!("{address}/p2p/{}", identity.peer_id())).collect(),
        ticket: own.to_string(),
    });
    for contact in all(&known) {
        network.learn(&contact);
        network.connect(to_libp2p(contact.peer));
    }
    let follower = Follower::new(run, manifest.steps, guide.anchors(), held, &stable);
    let summary = Summary {
        peer: identity.peer_id().to_string(),
        run: run.to_string(),
        outcome: Outcome::Left,
        ..Summary::before_the_start()
    };
    let file = ContactsFile::new(&settings.data_dir, run);
    let parts = Parts {
        network,
        follower,
        guide,
        checkpoint_provider,
        chunk_providers,
        mismatches,
        store,
        known,
        file,
        ticket: own,
        observer,
        summary,
    };
    Ok(KeeperLoop::new(parts, &manifest))
}

/// Nobody looks.
struct Silent;

impl Observer for Silent {
    fn report(&self, _: &Report) {}
}

/// Who is known from before, and who the ticket names.
fn known(settings: &Settings, ticket: &Ticket, me: Option<&Identity>, observer: &dyn Observer) -> Contacts {
    let mut known = match ContactsFile::new(&settings.data_dir, ticket.run).load() {
        Ok(known) => known.unwrap_or_default(),
        Err(Damaged(message)) => {
            observer.report(&Report::Warning { message });
            Contacts::default()
        }
    };
    let me = me.and_then(|me| from_libp2p(&me.peer_id()));
    for contact in ticket.peers.iter().filter(|contact| Some(contact.peer) != me) {
        if known.keepers().iter().any(|keeper| keeper.peer == contact.peer) {
            known.learn_keeper(contact.clone(), |_| false);
        } else {
            known.name_member(contact.clone());
        }
    }
    known
}

/// Has whoever goes on from what was fetched ask first those who had it. They may be keepers, so that nobody waits for them.
fn note_donors(settings: &Settings, ticket: &Ticket) -> Result<(), NodeError> {
    let file = ContactsFile::new(&settings.data_dir, ticket.run);
    // What can't be read says by being there that others are known.
    let Ok(known) = file.load() else { return Ok(()) };
    let mut known = known.unwrap_or_default();
    let is_member = |known: &Contacts, contact: &Contact| known.members().iter().any(|it| it.peer == contact.peer);
    for contact in &ticket.peers {
        if !is_member(&known, contact) {
            // It was there just now, which nobody knows of the others.
            known.learn_keeper(contact.clone(), |_| true);
        }
    }
    file.store(&known)
}

/// Members, then keepers.
fn all(known: &Contacts) -> Vec<Contact> {
    known.members().iter().chain(known.keepers()).cloned().collect()
}

/// What the run is: from the data directory, or from whoever answers first. Kept there, with the secret, and with what was
/// done to the run's data, if it can be had.
async fn manifest(
    settings: &Settings,
    (run, credentials): (RunId, &Credentials),
    contacts: &[Contact],
) -> Result<Manifest, NodeError> {
    let dir: &Path = &settings.data_dir;
    let known = manifest_file::load(dir, run).ok();
    let is_complete = |manifest: &Manifest| {
        let file = PreprocessingFile::new(dir, manifest);
        manifest.data.is_of_program() || file.load().is_ok_and(|kept| kept.is_some())
    };
    let manifest = match known {
        Some(manifest) if is_complete(&manifest) => manifest,
        known => {
            let (manifest, preprocessing) = match (ask(run, credentials, contacts).await, known) {
                (Ok(answer), _) => answer,
                // Checkpoints are worth keeping without it.
                (Err(_), Some(manifest)) => (manifest, None),
                (Err(error), None) => return Err(error),
            };
            manifest_file::store(dir, &manifest)?;
            let file = PreprocessingFile::new(dir, &manifest);
            preprocessing.map_or(Ok(()), |preprocessing| file.store(&preprocessing))?;
            manifest
        }
    };
    secret::store_first(dir, run, credentials)?;
    Ok(manifest)
}

async fn ask(
    run: RunId,
    credentials: &Credentials,
    contacts: &[Contact],
) -> Result<(Manifest, Option<PreprocessingSpec>), NodeError> {
    let mut dialer = CheckpointDialer::start(run, credentials, contacts)?;
    let open = dialer.opener(ASK_LIMIT);
    let mut reasons = Vec::new();
    let asking = async {
        while let Some((peer, connected)) = dialer.next().await {
            let answer = match connected {
                Ok(()) => async { questions::run(&mut open(peer).await?, run, ASK_LIMIT).await }
                    .await
                    .map_err(|error| error.to_string()),
                Err(reason) => Err(reason),
            };
            match answer {
                Ok(manifest) => {
                    let asking = async { questions::preprocessing(&mut open(peer).await?, &manifest, ASK_LIMIT).await };
                    let preprocessing = asking.await.unwrap_or_else(|error| {
                        tracing::info!(peer = %to_libp2p(peer), %error, "a peer did not say what was done to the data");
                        None
                    });
                    return Some((manifest, preprocessing));
                }
                Err(reason) => reasons.push(reason),
            }
        }
        None
    };
    let answered = tokio::time::timeout(ASK_LIMIT, asking).await;
    let silent = || format!("no answer within {} s", ASK_LIMIT.as_secs());
    answered.ok().flatten().ok_or_else(|| NodeError::Unreachable {
        peer: contacts.iter().map(|contact| to_libp2p(contact.peer).to_string()).collect::<Vec<_>>().join(", "),
        reason: if reasons.is_empty() { silent() } else { reasons.join("; ") },
    })
}

async fn open_store(settings: &Settings, run: RunId) -> Result<CheckpointStore, NodeError> {
    let (folder, keep) = (settings.data_dir.join(CHECKPOINTS), settings.checkpoint_keep);
    blocking(move || Ok(CheckpointFolder::new(folder).open(run, keep)?)).await
}

/// What is whole in a directory, by name, with steps; the proof of the newest stable one; what is wrong with the rest.
type Whole = (BTreeMap<Digest, u64>, Vec<Proof>, Vec<String>);

/// The checkpoints that are whole, the newest stable one of them, and what is wrong with the others. Those are fetched
/// again where others still have them.
fn whole(store: &CheckpointStore) -> Result<Whole, NodeError> {
    let (mut held, mut stable, mut damaged) = (BTreeMap::new(), Vec::new(), Vec::new());
    for verdict in store.verify()? {
        match verdict.result {
            Ok(info) => {
                held.insert(info.id, info.step);
                stable.extend(store.signed(&info).and_then(|signed| signed.proof()));
            }
            Err(error) => damaged.push(format!("a checkpoint was passed over: {error}")),
        }
    }
    Ok((held, stable, damaged))
}
