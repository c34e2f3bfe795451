//! Hands the result of a step from a member that has committed it to one that has not.
//!
//! The asker names the step (u64, big-endian). The answer is the result's bytes, or none if it is not at hand.

use std::io;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use futures::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use libp2p::StreamProtocol;
use libp2p_stream::Control;
use starling_run::ResultRecord;
use starling_topology::PeerId;
use starling_topology::message::MAX_MEMBERS;
use tokio::time::timeout;

use crate::identity::{from_libp2p, to_libp2p};
use crate::member_list::MemberList;
use crate::{bulk, streams};

/// What members ask for: the newest result. However many ask, its bytes are there once.
pub(crate) struct Results {
    newest: Box<dyn Fn() -> Option<Arc<ResultRecord>> + Send + Sync>,
    members: Arc<MemberList>,
    /// A result, and its bytes as long as they are on their way to somebody.
    encoded: Mutex<(Weak<ResultRecord>, Weak<[u8]>)>,
}

impl Results {
    /// Hands out what `newest` says is the newest one.
    pub(crate) fn new(
        newest: impl Fn() -> Option<Arc<ResultRecord>> + Send + Sync + 'static,
        members: Arc<MemberList>,
    ) -> Arc<Self> {
        let nothing: Weak<[u8]> = Weak::<[u8; 0]>::new();
        Arc::new(Self { newest: Box::new(newest), members, encoded: Mutex::new((Weak::new(), nothing)) })
    }

    /// Answers one peer. Who is no member was not cut off just before, and needs none.
    pub(crate) async fn serve(
        self: Arc<Self>,
        peer: libp2p::PeerId,
        mut stream: impl AsyncRead + AsyncWrite + Unpin,
        stall: Duration,
    ) {
        if !from_libp2p(&peer).is_some_and(|peer| self.members.has(&peer)) {
            tracing::debug!(%peer, "a result is for members alone");
            return;
        }
        let answer = async {
            let mut step = [0; 8];
            timeout(stall, stream.read_exact(&mut step)).await??;
            let record = (self.newest)().filter(|record| record.step == u64::from_be_bytes(step));
            let bytes = record.map(|record| self.bytes(&record)).unwrap_or_default();
            bulk::write(&mut stream, &bytes, stall).await?;
            stream.close().await
        };
        if let Err(error) = io::Result::<()>::from(answer.await) {
            tracing::debug!(%error, "a result did not get through");
        }
    }

    fn bytes(&self, record: &Arc<ResultRecord>) -> Arc<[u8]> {
        // A lock poisoned by a panic elsewhere still guards a sound pair.
        let mut encoded = self.encoded.lock().unwrap_or_else(PoisonError::into_inner);
        if encoded.0.ptr_eq(&Arc::downgrade(record))
            && let Some(bytes) = encoded.1.upgrade()
        {
            return bytes;
        }
        let bytes: Arc<[u8]> = record.encode().into();
        *encoded = (Arc::downgrade(record), Arc::downgrade(&bytes));
        bytes
    }
}

/// What is asked for.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    pub(crate) step: u64,
    /// How many parameters the result is for.
    pub(crate) parameters: usize,
    /// Members that hold it.
    pub(crate) holders: Vec<PeerId>,
    pub(crate) stall: Duration,
}

/// Fetches a result from the first holder that hands it out.
///
/// # Errors
/// What the last holder did instead.
pub(crate) async fn fetch(
    mut control: Control,
    protocol: StreamProtocol,
    wanted: Wanted,
) -> Result<ResultRecord, String> {
    let mut reason = "nobody holds it".to_owned();
    for holder in &wanted.holders {
        match ask(&mut control, &protocol, *holder, &wanted).await {
            Ok(record) => return Ok(record),
            Err(error) => reason = format!("{}: {error}", to_libp2p(*holder)),
        }
        tracing::info!(step = wanted.step, reason, "a result did not come");
    }
    Err(reason)
}

/// No result for so many parameters is longer, in bytes: the largest view's, with room for its head.
fn longest(parameters: usize) -> usize {
    64 + (size_of::<PeerId>() + size_of::<f32>()) * MAX_MEMBERS + size_of::<f32>() * (parameters + 1)
}

async fn ask(
    control: &mut Control,
    protocol: &StreamProtocol,
    holder: PeerId,
    wanted: &Wanted,
) -> io::Result<ResultRecord> {
    let stall = wanted.stall;
    let mut stream = streams::open(control, to_libp2p(holder), protocol, stall).await?;
    stream.write_all(&wanted.step.to_be_bytes()).await?;
    stream.flush().await?;
    let bytes = bulk::read(&mut stream, longest(wanted.parameters), stall).await?;
    if bytes.is_empty() {
        return Err(io::Error::other("it does not hold the result"));
    }
    let record = ResultRecord::decode(&bytes, wanted.parameters).map_err(io::Error::other)?;
    if record.step == wanted.step { Ok(record) } else { Err(io::Error::other("it sent another step's result")) }
}

#[cfg(test)]
mod tests {
    use starling_topology::Lineage;
    use tokio_util::compat::TokioAsyncReadCompatExt;

    use super::*;
    use crate::identity::Identity;

    const STALL: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn a_result_is_for_members_and_is_encoded_once() {
        let [member, other] = [(); 2].map(|()| Identity::generate().peer_id());
        let known = from_libp2p(&member).expect("an Ed25519 key");
        let (lineage, mean) = (Lineage::NONE, vec![0.5; 5]);
        let record = Arc::new(ResultRecord { step: 3, lineage, after: lineage, members: vec![known], mean });
        let members = Arc::<MemberList>::default();
        members.enter(&[known]);
        let newest = record.clone();
        let results = Results::new(move || Some(newest.clone()), members);
        for (peer, expected) in [(member, record.encode()), (other, Vec::new())] {
            let (ours, theirs) = tokio::io::duplex(4096);
            let (mut ours, served) = (ours.compat(), results.clone().serve(peer, theirs.compat(), STALL));
            let asked = async {
                ours.write_all(&3u64.to_be_bytes()).await.ok();
                bulk::read(&mut ours, 4096, STALL).await.unwrap_or_default()
            };
            let (bytes, ()) = futures::join!(asked, served);
            assert_eq!(bytes, expected);
        }
        let (first, second) = (results.bytes(&record), results.bytes(&record));
        assert!(Arc::ptr_eq(&first, &second), "however many ask, it is there once");
        let kept = Arc::downgrade(&first);
        drop((first, second));
        assert!(kept.upgrade().is_none(), "and nobody asks any more");
    }
}
