//! The files of the data set: any that a donor shares, because what they read as is checked in the end.

use std::future::{Future, ready};
use std::io;
use std::path::Path;
use std::time::Duration;

use futures::{AsyncRead, AsyncWrite};
use starling_run::sharing::MAX_DATA_MANIFEST_BYTES;
use starling_run::{DataManifest, Download};
use starling_topology::message::{MAX_ADDRESS_BYTES, MAX_ADDRESSES};
use starling_topology::{Contact, Digest, PeerId};

use super::chunks::{self, Donor, MAX_DONORS, Question, Whole};
use super::{Reply, Request};

/// Members that a member tells of. Each of these is asked for the data set.
pub(super) const MAX_TOLD: usize = 64;
/// The longest list of members, in bytes.
const MAX_TOLD_BYTES: usize = MAX_TOLD * (size_of::<PeerId>() + 8 + MAX_ADDRESSES * (MAX_ADDRESS_BYTES + 8));
/// How long a member may take to say what it has.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// How long a donor may take to hand out a chunk. A slow one serves many joiners, one after the other.
const CHUNK_LIMIT: Duration = Duration::from_secs(30);

/// Asks a member who else is in the view.
pub(crate) async fn members(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<Vec<Contact>> {
    let reply = chunks::ask(&mut stream, &Request::Members, MAX_TOLD_BYTES, ANSWER_LIMIT).await?;
    let Reply::Members(contacts) = reply else {
        return Err(io::Error::other("it did not say who is in its view"));
    };
    Ok(contacts.into_iter().filter(Contact::is_bounded).take(MAX_TOLD).collect())
}

/// Files that some donors have alike.
pub(crate) struct Offer<S> {
    pub(crate) manifest: DataManifest,
    donors: Vec<Donor<S>>,
}

/// Asks `members` for files that are a data set of `kind`. What most of them have comes first. Without any, why one of the
/// members has none.
pub(crate) async fn offers<S, Open>(
    open: &impl Fn(PeerId) -> Open,
    members: &[PeerId],
    kind: &str,
) -> Result<Vec<Offer<S>>, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    Open: Future<Output = io::Result<S>> + Send + 'static,
{
    let (request, longest) = (Request::DataManifest, MAX_DATA_MANIFEST_BYTES);
    let question = Question { request, longest, stall: ANSWER_LIMIT, patience: Duration::ZERO, grace: None };
    let kind = kind.to_owned();
    let read = move |bytes: &[u8]| DataManifest::decode(bytes, &kind).map_err(io::Error::other);
    let answers = chunks::manifests(open, members, question, read).await;
    if answers.manifests.is_empty() {
        return Err(answers.reason);
    }
    let offer = |(manifest, mut donors): (_, Vec<_>)| {
        donors.truncate(MAX_DONORS);
        Offer { manifest, donors }
    };
    Ok(answers.manifests.into_iter().map(offer).collect())
}

/// Fetches what `folder` does not hold yet of an offer. `progress` is told how many bytes are here, and of how many.
///
/// # Errors
/// Why it can't be had.
pub(crate) async fn fetch<S, Open>(
    open: &impl Fn(PeerId) -> Open,
    offer: Offer<S>,
    folder: &Path,
    max_bytes: u64,
    mut progress: impl FnMut(u64, u64),
) -> Result<(), String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    Open: Future<Output = io::Result<S>> + Send + 'static,
{
    let Offer { manifest, donors } = offer;
    let (id, of, folder) = (manifest.id(), manifest.bytes(), folder.to_owned());
    // What is here already is read, and may be much.
    let opened = tokio::task::spawn_blocking(move || Download::open(&folder, manifest, max_bytes)).await;
    let mut download = opened.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
    let mut here = download.bytes_here();
    progress(here, of);
    let counted = |more| {
        here += more;
        progress(here, of);
    };
    chunks::fetch(open, donors, id, &mut download, CHUNK_LIMIT, counted).await
}

impl Whole for Download {
    fn missing(&self) -> Vec<Digest> {
        self.missing()
    }

    /// Writes at once: whoever downloads has nothing else to do yet.
    fn insert(&mut self, chunk: Vec<u8>) -> impl Future<Output = Result<u64, String>> + Send {
        ready(self.insert(&chunk).map_err(|error| error.to_string()))
    }
}

#[cfg(test)]
mod tests;
