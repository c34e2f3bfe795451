//! The newest stable checkpoint, from whoever holds it, before this machine takes part.
//!
//! Killed members come back with what is on their own disks. If others hold something newer that a quorum has signed, keepers
//! above all, it is fetched first; from then on things go as if it had been there. A peer that is in a view answers so, and
//! nothing is fetched then: the members bring the state up to date.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use starling_engine::search::{Input, Output, SearchConfig, SearchReply};
use starling_run::{CheckpointStore, CheckpointSummary, Manifest};
use starling_topology::{Contact, PeerId, Proof, Root, Time};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::access::Credentials;
use crate::error::NodeError;
use crate::member::guide::Guide;
use crate::start::client::dialer::CheckpointDialer;
use crate::transfer::checkpoint::{self, CheckpointRequest};
use crate::transfer::questions::{self, Newest};

/// Whom to ask for a newer checkpoint of which run.
pub(crate) struct Search<'a> {
    pub(crate) manifest: &'a Manifest,
    pub(crate) credentials: &'a Credentials,
    pub(crate) contacts: Vec<Contact>,
    pub(crate) store: &'a CheckpointStore,
    /// What is known of the run's views.
    pub(crate) guide: Arc<Guide>,
    /// Which checkpoints count.
    pub(crate) terms: SearchConfig,
}

/// What asking came to.
#[derive(Debug, Default)]
pub(crate) struct SearchOutcome {
    /// The checkpoint that was fetched; `None` if nobody who answered holds a newer one.
    pub(crate) fetched: Option<CheckpointSummary>,
    /// What those who were asked said, or why they did not, in the order in which that became known.
    pub(crate) answers: Vec<(PeerId, Result<SearchReply, String>)>,
    /// Why others did not answer, and why what they hold could not be had.
    pub(crate) failures: Vec<PeerFailure>,
}

/// What went wrong while asking.
#[derive(Debug)]
pub(crate) struct PeerFailure {
    pub(crate) reason: String,
    /// Whether there was a checkpoint that could not be had.
    pub(crate) is_loss: bool,
}

/// Asks all at once, and fetches the newest stable checkpoint that they hold if it is newer than the newest one here. What is
/// asked and fetched, the engine's [`Search`](starling_engine::Search) says.
pub(crate) async fn catch_up(search: Search<'_>) -> Result<SearchOutcome, NodeError> {
    let mut found = SearchOutcome::default();
    let Search { manifest, credentials, contacts, store, guide, terms } = search;
    if contacts.is_empty() {
        return Ok(found);
    }
    let mut dialer = CheckpointDialer::start(manifest.run_id(), credentials, &contacts)?;
    let (run, steps, stall) = (manifest.run_id(), manifest.steps, stall(manifest));
    let open = dialer.opener(stall / 2);
    let peers: Vec<PeerId> = contacts.iter().map(|contact| contact.peer).collect();
    let root = terms.root;
    let mut machine = starling_engine::Search::new(terms, &peers, Time::ZERO);
    let began = Instant::now();
    let now = || Time::ZERO + began.elapsed();
    let (mut reached, mut wanted) = (BTreeSet::new(), BTreeSet::new());
    let (mut asked, mut all_told) = (JoinSet::new(), false);
    let (mut missed, mut is_verified) = (String::new(), false);
    let deadline = sleep(stall);
    tokio::pin!(deadline);
    'search: loop {
        while let Some(output) = machine.poll() {
            match output {
                Output::Ask(peer) => _ = wanted.insert(peer),
                Output::SetTimer(at) => deadline.as_mut().reset(began + (at - Time::ZERO)),
                Output::Look => {
                    let own = newest_stable(store, root).await?;
                    machine.handle(now(), Input::Holds(own.map(|own| own.step)));
                }
                Output::Fetch { proof, from } => {
                    if !std::mem::replace(&mut is_verified, true) {
                        found.look_for_damage(store).await?;
                    }
                    if !missed.is_empty() {
                        tracing::info!(reason = missed, step = proof.head.step, "going on with another checkpoint");
                    }
                    let outcome = match fetch(&dialer, manifest, &proof, from, store).await {
                        Ok(info) => {
                            found.fetched = Some(info);
                            Input::Fetched
                        }
                        Err(reason) => {
                            missed =
                                format!("the stable checkpoint after step {} can't be had: {reason}", proof.head.step);
                            Input::Missed
                        }
                    };
                    machine.handle(now(), outcome);
                }
                Output::Lost { .. } => {
                    found.failures.push(PeerFailure { reason: std::mem::take(&mut missed), is_loss: true });
                }
                Output::Done => break 'search,
            }
        }
        for peer in wanted.extract_if(.., |peer| reached.contains(peer)) {
            let (opening, anchors) = (open(peer), guide.anchors());
            asked.spawn(async move {
                let answer = async {
                    let mut stream = opening.await?;
                    let newest = questions::newest(&mut stream, run, steps, stall).await?;
                    questions::proven(&mut stream, newest, anchors, stall).await
                };
                (peer, answer.await)
            });
        }
        let input = tokio::select! {
            () = &mut deadline => Input::Expired,
            next = dialer.next(), if !all_told => match next {
                Some((peer, Ok(()))) => {
                    reached.insert(peer);
                    continue;
                }
                Some((peer, Err(reason))) => {
                    found.failure(peer, &reason);
                    Input::Unanswered(peer)
                }
                None => {
                    all_told = true;
                    continue;
                }
            },
            Some(answer) = asked.join_next() => match answer {
                Ok((from, Ok((Newest { live, looks_out, proofs }, walks)))) => {
                    walks.iter().for_each(|view_search| guide.take(view_search.legs().cloned()));
                    Input::Answered { from, live, looks_out, proofs }
                }
                Ok((peer, Err(error))) => {
                    found.failure(peer, &error.to_string());
                    Input::Unanswered(peer)
                }
                Err(error) => {
                    tracing::error!(%error, "a question to a peer failed");
                    continue;
                }
            },
        };
        if matches!(input, Input::Expired) {
            // Not again before the machine asks for it.
            deadline.as_mut().reset(Instant::now() + stall);
        }
        let heard = machine.answers().len();
        machine.handle(now(), input);
        let answers = machine.answers().iter().skip(heard);
        found.answers.extend(answers.map(|(peer, answer)| (*peer, Ok(*answer))));
    }
    for contact in contacts {
        if found.answers.iter().all(|(peer, _)| *peer != contact.peer) {
            found.failure(contact.peer, "no answer in time");
        }
    }
    Ok(found)
}

/// Where these can be reached, as far as that is known.
pub(crate) fn contacts_of(peers: &[PeerId], known: &[&Contact]) -> Vec<Contact> {
    let contact =
        |peer: &PeerId| known.iter().find(|contact| contact.peer == *peer).map(|contact| Contact::clone(contact));
    peers.iter().filter_map(contact).collect()
}

/// The newest stable checkpoint here that counts.
async fn newest_stable(store: &CheckpointStore, root: Option<Root>) -> Result<Option<CheckpointSummary>, NodeError> {
    let store = store.clone();
    let newest = tokio::task::spawn_blocking(move || store.newest_stable(root.as_ref())).await;
    Ok(newest.map_err(|_| NodeError::Stopped("search"))??)
}

impl SearchOutcome {
    /// Those who have said what they hold, and what.
    pub(crate) fn said(&self) -> Vec<(PeerId, SearchReply)> {
        self.answers.iter().filter_map(|(peer, answer)| Some((*peer, *answer.as_ref().ok()?))).collect()
    }

    /// What is to come may take the place of what is damaged: the user is to know that a disk fails.
    async fn look_for_damage(&mut self, store: &CheckpointStore) -> Result<(), NodeError> {
        let store = store.clone();
        let verdicts = tokio::task::spawn_blocking(move || store.verify()).await;
        for error in verdicts.map_err(|_| NodeError::Stopped("search"))??.into_iter().filter_map(|it| it.result.err()) {
            let reason = format!("a checkpoint was passed over: {error}");
            self.failures.push(PeerFailure { reason, is_loss: true });
        }
        Ok(())
    }

    /// A peer did not say what it holds; only the first time it is news.
    fn failure(&mut self, peer: PeerId, reason: &str) {
        if self.answers.iter().any(|(known, _)| *known == peer) {
            return;
        }
        let name = crate::credentials::identity::to_libp2p(peer);
        tracing::info!(peer = %name, reason, "a peer did not say which checkpoints it holds");
        self.answers.push((peer, Err(reason.to_owned())));
        self.failures.push(PeerFailure { reason: format!("{name}: {reason}"), is_loss: false });
    }
}

async fn fetch(
    dialer: &CheckpointDialer,
    manifest: &Manifest,
    proof: &Proof,
    donors: Vec<PeerId>,
    store: &CheckpointStore,
) -> Result<CheckpointSummary, String> {
    let stall = stall(manifest);
    let lacking = CheckpointRequest { head: proof.head, max_bytes: manifest.max_state_bytes(), donors, stall };
    let progress = |bytes, of| tracing::info!(step = proof.head.step, bytes, of, "fetching a checkpoint");
    let snapshot = checkpoint::fetch(dialer.opener(stall / 2), lacking, store, progress).await?;
    let (store, proof) = (store.clone(), proof.clone());
    let completed = tokio::task::spawn_blocking(move || {
        let info = store.complete(&snapshot)?;
        // Each was verified when it came.
        store.sign(&proof.head, &proof.view, &proof.signatures, |_, _, _| true)?;
        Ok(info)
    });
    let completed: Result<_, starling_run::CheckpointError> = completed.await.map_err(|error| error.to_string())?;
    completed.map_err(|error| error.to_string())
}

pub(crate) fn stall(manifest: &Manifest) -> Duration {
    Duration::from_millis(manifest.max_stall_ms)
}
