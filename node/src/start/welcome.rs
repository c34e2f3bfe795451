//! How a joiner learns what a run trains.

use std::io;
use std::time::Duration;

use futures::{AsyncRead, AsyncWrite};
use libp2p::PeerId;
use serde::{Deserialize, Serialize};
use starling_run::Manifest;
use starling_topology::Contact;
use starling_topology::message::MAX_MEMBERS;
use tokio::sync::mpsc;

use crate::credentials::identity::to_libp2p;
use crate::net::frame;

/// A manifest is a few hundred bytes; this leaves room and stops a flood.
const MAX_BYTES: usize = 128 * 1024;
/// Members that are told of, and keepers.
const MAX_TOLD: usize = 16;
/// How long one exchange may take.
const DEADLINE: Duration = Duration::from_secs(10);

/// What a joiner asks.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    /// The joiner's own manifest, if it has one that differs: the member then names what differs, to its user too.
    pub(crate) manifest: Option<Vec<u8>>,
}

/// What a member answers.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Reply {
    /// Its manifest's canonical bytes.
    pub(crate) manifest: Vec<u8>,
    pub(crate) min_members: u32,
    /// What it makes of the run's first samples, as of `Learner::probe`: a number of a stranger's, any bits.
    pub(crate) probe: Option<f32>,
    /// Whether it stores checkpoints and lets nobody in.
    pub(crate) keeps: bool,
    /// Members that it knows.
    pub(crate) members: Vec<Contact>,
    /// Keepers that it knows.
    pub(crate) keepers: Vec<Contact>,
}

/// What a member hands out: what the run is.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Terms {
    pub(crate) manifest: Manifest,
    /// Members needed to take steps. Not part of the run's identity: whoever resumes it may need fewer.
    pub(crate) min_members: usize,
    /// What it makes of the run's first samples, as of `Learner::probe`.
    pub(crate) probe: Option<f32>,
}

/// What a peer says to whoever wants to join.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Welcome {
    pub(crate) terms: Terms,
    /// Whether it is a keeper: to join, ask one of the members.
    pub(crate) keeps: bool,
    /// Members that it knows, itself among them if it is one.
    pub(crate) members: Vec<Contact>,
    /// Keepers that it knows: they announce themselves too rarely for whoever is gone again soon, and has to ask them then.
    pub(crate) keepers: Vec<Contact>,
}

/// A joiner whose manifest differs from ours.
#[derive(Debug)]
pub(crate) struct Mismatch {
    pub(crate) peer: PeerId,
    pub(crate) differences: String,
}

/// Asks a peer what the run is, showing it our manifest if that differs from what we heard before.
pub(crate) async fn ask(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    ours: Option<&Manifest>,
) -> io::Result<Welcome> {
    let exchange = async {
        let request = Request { manifest: ours.map(Manifest::encode) };
        frame::write(&mut stream, &frame::encode(&request)).await?;
        let reply: Reply = frame::decode(&frame::read(&mut stream, MAX_BYTES).await?)?;
        let manifest = Manifest::decode(&reply.manifest);
        let manifest = manifest.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        let min_members = (reply.min_members as usize).clamp(1, MAX_MEMBERS);
        let [members, keepers] = [reply.members, reply.keepers]
            .map(|told| told.into_iter().filter(Contact::is_bounded).take(MAX_TOLD).collect());
        Ok(Welcome { terms: Terms { manifest, min_members, probe: reply.probe }, keeps: reply.keeps, members, keepers })
    };
    tokio::time::timeout(DEADLINE, exchange).await?
}

/// Answers one joiner with what this peer says.
pub(crate) async fn answer(
    peer: PeerId,
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    welcome: Welcome,
    mismatches: &mpsc::Sender<Mismatch>,
) -> io::Result<()> {
    let exchange = async {
        let Welcome { terms, keeps, mut members, mut keepers } = welcome;
        // Where it was last heard of itself comes first: if its key was copied, the other one is there.
        members.sort_by_key(|contact| to_libp2p(contact.peer) != peer);
        [&mut members, &mut keepers].into_iter().for_each(|told| told.truncate(MAX_TOLD));
        let request: Request = frame::decode(&frame::read(&mut stream, MAX_BYTES).await?)?;
        let theirs = request.manifest.map(|bytes| Manifest::decode(&bytes));
        if let Some(Ok(theirs)) = theirs {
            let differences = describe(&terms.manifest.differences(&theirs));
            // The queue is for the log: a flood of strangers' manifests must not fill memory.
            let _ = mismatches.try_send(Mismatch { peer, differences });
        }
        let min_members = u32::try_from(terms.min_members).unwrap_or(u32::MAX);
        let (manifest, probe) = (terms.manifest.encode(), terms.probe);
        let reply = Reply { manifest, min_members, probe, keeps, members, keepers };
        frame::write(&mut stream, &frame::encode(&reply)).await
    };
    tokio::time::timeout(DEADLINE, exchange).await?
}

/// Differences as one line.
pub(crate) fn describe(differences: &[starling_run::Difference]) -> String {
    differences.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}
