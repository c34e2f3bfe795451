//! The newest stable checkpoint, from whoever holds it, before this machine takes part.
//!
//! Killed members come back with what is on their own disks. If others hold something newer that a quorum has signed, keepers
//! above all, it is fetched first; from then on things go as if it had been there. A peer that is in a view answers so, and
//! nothing is fetched then: the members bring the state up to date.

use std::collections::BTreeMap;
use std::time::Duration;

use starling_engine::download::MAX_DONORS;
use starling_run::{CheckpointInfo, CheckpointStore, Manifest};
use starling_topology::{Contact, Digest, PeerId, Proof, Root};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::access::Credentials;
use crate::error::NodeError;
use crate::inquiry::Inquiry;
use crate::transfer::checkpoint::{self, Lacking};
use crate::transfer::questions::{self, Newest};

/// How often a newer checkpoint is gone after because the one that was told of is gone.
const MAX_FOLLOWED: usize = 8;
/// Once one is in a view, how long the others may take to say so too.
const COMPANY_PAUSE: Duration = Duration::from_millis(500);

/// Whom to ask for a newer checkpoint of which run.
pub(crate) struct Search<'a> {
    pub(crate) manifest: &'a Manifest,
    pub(crate) credentials: &'a Credentials,
    pub(crate) contacts: Vec<Contact>,
    pub(crate) store: &'a CheckpointStore,
    /// Which checkpoints count, if that is known; else all that were not put aside.
    pub(crate) root: Option<&'a Root>,
    /// Whether to fetch one although members are in a view.
    pub(crate) even_if_live: bool,
    /// Whether to take a fork's checkpoint. Whoever comes back from a view that is none would make the fork's steps the
    /// run's, while the fork itself, if it lives, gives them up.
    pub(crate) from_forks: bool,
}

/// What asking came to.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// The checkpoint that was fetched; `None` if nobody who answered holds a newer one.
    pub(crate) fetched: Option<CheckpointInfo>,
    /// What those who were asked said, or why they did not, in the order in which that became known.
    pub(crate) answers: Vec<(PeerId, Result<Answer, String>)>,
    /// Why others did not answer, and why what they hold could not be had.
    pub(crate) troubles: Vec<Trouble>,
}

/// What a peer said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Answer {
    /// Whether it is in a view.
    pub(crate) live: bool,
    /// The step of its newest stable checkpoint.
    pub(crate) stable_step: Option<u64>,
    /// Whether that was made in a fork.
    pub(crate) forked: bool,
}

/// What went wrong while asking.
#[derive(Debug)]
pub(crate) struct Trouble {
    pub(crate) reason: String,
    /// Whether there was a checkpoint that could not be had.
    pub(crate) is_loss: bool,
}

/// What those who answered hold, by the checkpoint's name.
type Offers = BTreeMap<Digest, (Proof, Vec<PeerId>)>;

/// Asks all at once, and fetches the newest stable checkpoint that they hold if it is newer than the newest one here.
pub(crate) async fn catch_up(search: Search<'_>) -> Result<Found, NodeError> {
    let mut found = Found::default();
    let Search { manifest, credentials, contacts, store, root, even_if_live, from_forks } = search;
    if contacts.is_empty() {
        return Ok(found);
    }
    let mut inquiry = Inquiry::start(manifest.run_id(), credentials, &contacts)?;
    let Some(offers) = ask(&mut inquiry, manifest, even_if_live, &mut found).await else { return Ok(found) };
    for contact in contacts {
        if found.answers.iter().all(|(peer, _)| *peer != contact.peer) {
            found.trouble(contact.peer, "no answer in time");
        }
    }
    let own = {
        let (store, root) = (store.clone(), root.copied());
        tokio::task::spawn_blocking(move || store.newest_stable(root.as_ref()))
            .await
            .map_err(|_| NodeError::Stopped("search"))??
    };
    let mut offers: Vec<(Proof, Vec<PeerId>)> = offers.into_values().collect();
    offers.retain(|(proof, _)| is_of_our_branch(proof, root, from_forks));
    offers.retain(|(proof, _)| own.as_ref().is_none_or(|own| proof.head.step > own.step));
    offers.sort_by_key(|(proof, _)| std::cmp::Reverse(proof.head.step));
    if !offers.is_empty() {
        // What comes may take the place of what is damaged: the user is to know that a disk fails.
        let store = store.clone();
        let verdicts = tokio::task::spawn_blocking(move || store.verify()).await;
        for error in verdicts.map_err(|_| NodeError::Stopped("search"))??.into_iter().filter_map(|it| it.result.err()) {
            let reason = format!("a checkpoint was passed over: {error}");
            found.troubles.push(Trouble { reason, is_loss: true });
        }
    }
    for (proof, donors) in offers {
        let is_ours = |proof: &Proof| is_of_our_branch(proof, root, from_forks);
        match follow(&inquiry, manifest, (proof, donors), store, is_ours).await {
            Ok(info) => {
                found.fetched = Some(info);
                break;
            }
            Err(reason) => found.troubles.push(Trouble { reason, is_loss: true }),
        }
    }
    Ok(found)
}

/// Whether what is signed so counts: of another branch it would be of no use here.
fn is_of_our_branch(proof: &Proof, root: Option<&Root>, from_forks: bool) -> bool {
    (from_forks || !proof.view.forked) && root.is_none_or(|root| root.may_admit(proof.head.step, &proof.view))
}

/// Fetches a checkpoint; or, as often as the run has gone on so far meanwhile that nobody has it any more, the one that is the
/// newest by then of those that `is_ours` takes.
async fn follow(
    inquiry: &Inquiry,
    manifest: &Manifest,
    (mut proof, mut donors): (Proof, Vec<PeerId>),
    store: &CheckpointStore,
    is_ours: impl Fn(&Proof) -> bool,
) -> Result<CheckpointInfo, String> {
    let mut followed = 0;
    loop {
        let reason = match fetch(inquiry, manifest, &proof, donors.clone(), store).await {
            Ok(info) => return Ok(info),
            Err(reason) => format!("the stable checkpoint after step {} can't be had: {reason}", proof.head.step),
        };
        let is_newer = |next: &Proof| next.head.step > proof.head.step && is_ours(next);
        let newer = if followed < MAX_FOLLOWED { newer(inquiry, manifest, &donors, is_newer).await } else { None };
        let Some((donor, next)) = newer else { return Err(reason) };
        tracing::info!(reason, step = next.head.step, "going on with a newer checkpoint");
        followed += 1;
        // Others may hold it too by the time that they are asked.
        donors.retain(|other| *other != donor);
        donors.insert(0, donor);
        proof = next;
    }
}

/// Asks all donors at once for a stable checkpoint that `is_newer`. Who has one first, and which.
async fn newer(
    inquiry: &Inquiry,
    manifest: &Manifest,
    donors: &[PeerId],
    is_newer: impl Fn(&Proof) -> bool,
) -> Option<(PeerId, Proof)> {
    let (run, steps, stall) = (manifest.run_id(), manifest.steps, stall(manifest));
    let open = inquiry.opener(stall / 2);
    let mut asked = JoinSet::new();
    for donor in donors.iter().copied().take(MAX_DONORS) {
        let opening = open(donor);
        asked.spawn(async move {
            let answer = async { questions::newest(&mut opening.await?, run, steps, stall).await };
            Some((donor, answer.await.ok()?.proof?))
        });
    }
    let first = async {
        while let Some(answer) = asked.join_next().await {
            if let Ok(Some((donor, next))) = answer
                && is_newer(&next)
            {
                return Some((donor, next));
            }
        }
        None
    };
    timeout(stall / 2, first).await.ok().flatten()
}

/// What those who answer within half of a stall hold; `None` if one of them is in a view and that matters.
async fn ask(inquiry: &mut Inquiry, manifest: &Manifest, even_if_live: bool, found: &mut Found) -> Option<Offers> {
    let (run, steps, stall) = (manifest.run_id(), manifest.steps, stall(manifest));
    let open = inquiry.opener(stall / 2);
    let mut offers = Offers::new();
    let mut asked = JoinSet::new();
    let deadline = sleep(stall / 2);
    tokio::pin!(deadline);
    let (mut all_told, mut is_live) = (false, false);
    while !all_told || !asked.is_empty() {
        tokio::select! {
            () = &mut deadline => break,
            next = inquiry.next(), if !all_told => match next {
                Some((peer, Ok(()))) => {
                    let opening = open(peer);
                    asked.spawn(async move {
                        let answer = async { questions::newest(&mut opening.await?, run, steps, stall).await };
                        (peer, answer.await)
                    });
                }
                Some((peer, Err(reason))) => found.trouble(peer, &reason),
                None => all_told = true,
            },
            Some(answer) = asked.join_next() => match answer {
                Ok((peer, Ok(Newest { live, proof }))) => {
                    let stable_step = proof.as_ref().map(|proof| proof.head.step);
                    let forked = proof.as_ref().is_some_and(|proof| proof.view.forked);
                    found.answers.push((peer, Ok(Answer { live, stable_step, forked })));
                    if live && !std::mem::replace(&mut is_live, true) {
                        // The others of its view answer as fast.
                        let sooner = deadline.deadline().min(Instant::now() + COMPANY_PAUSE);
                        deadline.as_mut().reset(sooner);
                    }
                    if let Some(proof) = proof {
                        offers.entry(proof.head.manifest).or_insert((proof, Vec::new())).1.push(peer);
                    }
                }
                Ok((peer, Err(error))) => found.trouble(peer, &error.to_string()),
                Err(error) => tracing::error!(%error, "a question to a peer failed"),
            },
        }
    }
    (even_if_live || !is_live).then_some(offers)
}

impl Found {
    fn trouble(&mut self, peer: PeerId, reason: &str) {
        let name = crate::identity::to_libp2p(peer);
        tracing::info!(peer = %name, reason, "a peer did not say which checkpoints it holds");
        self.answers.push((peer, Err(reason.to_owned())));
        self.troubles.push(Trouble { reason: format!("{name}: {reason}"), is_loss: false });
    }
}

async fn fetch(
    inquiry: &Inquiry,
    manifest: &Manifest,
    proof: &Proof,
    donors: Vec<PeerId>,
    store: &CheckpointStore,
) -> Result<CheckpointInfo, String> {
    let stall = stall(manifest);
    let lacking = Lacking { head: proof.head, max_bytes: manifest.max_state_bytes(), donors, stall };
    let progress = |bytes, of| tracing::info!(step = proof.head.step, bytes, of, "fetching a checkpoint");
    let snapshot = checkpoint::fetch(inquiry.opener(stall / 2), lacking, store, progress).await?;
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

fn stall(manifest: &Manifest) -> Duration {
    Duration::from_millis(manifest.max_stall_ms)
}

#[cfg(test)]
mod tests {
    use starling_topology::{Head, RunId, View};

    use super::*;

    #[test]
    fn only_what_is_signed_of_our_branch_counts() {
        let run = RunId([1; 32]);
        let view = View::found(run, PeerId([1; 32]));
        let proof = |step: u64, view: &View| {
            let head = Head { run, step, view: view.id(), digest: Digest([2; 32]), manifest: Digest([3; 32]) };
            Proof { head, view: view.clone(), signatures: Vec::new() }
        };
        let root = Root { step: 5, branch: view.branch, generation: view.generation, ..Root::default() };
        let counts = |step: u64, view: &View| is_of_our_branch(&proof(step, view), Some(&root), false);
        assert!(counts(6, &view) && !counts(4, &view));
        let (mut other, mut fork) = (view.clone(), view.clone());
        (other.branch, fork.forked) = (view.branch + 1, true);
        assert!(!counts(6, &other) && is_of_our_branch(&proof(6, &other), None, false));
        assert!(!counts(6, &fork) && is_of_our_branch(&proof(6, &fork), Some(&root), true));
    }
}
