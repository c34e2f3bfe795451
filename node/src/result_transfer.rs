//! Hands the result of a step from a member that has committed it to one that has not.
//!
//! The asker names the step (u64, big-endian). The answer is the result's bytes, or none if it is not at hand.

use std::future::Future;
use std::io;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use futures::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use starling_collective::Limits;
use starling_engine::Members;
use starling_run::ResultRecord;
use starling_topology::message::MAX_MEMBERS;
use starling_topology::{Lineage, PeerId};
use tokio::time::timeout;

use crate::bulk;
use crate::identity::{from_libp2p, to_libp2p};
use crate::member_list::MemberList;

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

/// What is asked for, and what the asker knows of it by itself: one holder's word is enough for nobody.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    pub(crate) step: u64,
    /// Of the view that reduced it.
    pub(crate) lineage: Lineage,
    /// Of the asker's state, which it is applied to.
    pub(crate) after: Lineage,
    /// The members of the view that reduced it.
    pub(crate) members: Members,
    /// How many parameters the result is for.
    pub(crate) parameters: usize,
    /// What the members' contributions can come to.
    pub(crate) limits: Limits,
    /// What their sum was divided by.
    pub(crate) divisor: f32,
    /// Members that hold it.
    pub(crate) holders: Vec<PeerId>,
    pub(crate) stall: Duration,
}

impl Wanted {
    /// # Errors
    /// Why no view can have reduced this for the asker.
    fn check(&self, record: &ResultRecord) -> io::Result<()> {
        let is_within = self.limits.admit_mean(&record.mean, self.divisor);
        let checks = [
            (record.step == self.step, "it sent another step's result"),
            (record.lineage == self.lineage, "it sent the result of another view"),
            (record.after == self.after, "its result is to be applied to another state"),
            (record.members[..] == self.members[..], "its result is of other members than the view's"),
            (is_within, "its result has larger numbers than the run takes"),
        ];
        match checks.into_iter().find(|(is_right, _)| !is_right) {
            Some((_, wrong)) => Err(io::Error::new(io::ErrorKind::InvalidData, wrong)),
            None => Ok(()),
        }
    }
}

/// Fetches a result from the first holder that hands out one that can be right. `open` connects to a holder.
///
/// # Errors
/// What the last holder did instead.
pub(crate) async fn fetch<S, Open>(open: impl Fn(PeerId) -> Open, wanted: Wanted) -> Result<ResultRecord, String>
where
    S: AsyncRead + AsyncWrite + Unpin,
    Open: Future<Output = io::Result<S>>,
{
    let mut reason = "nobody holds it".to_owned();
    for holder in &wanted.holders {
        let error = match ask(open(*holder), &wanted).await {
            Ok(record) => return Ok(record),
            Err(error) => error,
        };
        reason = format!("{}: {error}", to_libp2p(*holder));
        if error.kind() == io::ErrorKind::InvalidData {
            tracing::warn!(step = wanted.step, reason, "a result was refused");
        } else {
            tracing::info!(step = wanted.step, reason, "a result did not come");
        }
    }
    Err(reason)
}

/// No result for so many parameters is longer, in bytes: the largest view's, with room for its head.
fn longest(parameters: usize) -> usize {
    64 + (size_of::<PeerId>() + size_of::<f32>()) * MAX_MEMBERS + size_of::<f32>() * (parameters + 1)
}

async fn ask<S>(opening: impl Future<Output = io::Result<S>>, wanted: &Wanted) -> io::Result<ResultRecord>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let stall = wanted.stall;
    let mut stream = opening.await?;
    stream.write_all(&wanted.step.to_be_bytes()).await?;
    stream.flush().await?;
    let bytes = bulk::read(&mut stream, longest(wanted.parameters), stall).await?;
    if bytes.is_empty() {
        return Err(io::Error::other("it does not hold the result"));
    }
    let record = ResultRecord::decode(&bytes, wanted.parameters)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    wanted.check(&record)?;
    Ok(record)
}

#[cfg(test)]
mod tests {
    use starling_collective::Codec;
    use starling_topology::ViewId;
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

    /// Holders, each with what it sends whoever asks; `None` of one that can't be reached.
    async fn fetched(records: &[Option<&ResultRecord>], wanted: Wanted) -> Result<ResultRecord, String> {
        let holders = (0..records.len() as u8).map(|name| PeerId([name; 32])).collect();
        let open = |holder: PeerId| {
            let bytes = records[usize::from(holder.0[0])].map(ResultRecord::encode);
            async move {
                let bytes = bytes.ok_or(io::ErrorKind::ConnectionRefused)?;
                let (ours, theirs) = tokio::io::duplex(4096);
                tokio::spawn(async move {
                    let mut theirs = theirs.compat();
                    theirs.read_exact(&mut [0; 8]).await.expect("a step");
                    bulk::write(&mut theirs, &bytes, STALL).await.expect("read");
                });
                io::Result::Ok(ours.compat())
            }
        };
        fetch(open, Wanted { holders, ..wanted }).await
    }

    #[tokio::test]
    async fn a_made_up_result_is_refused_and_another_holder_asked() {
        let lineage = |view: u8| Lineage { view: ViewId([view; 32]), ..Lineage::NONE };
        let members = [1, 2].map(|name| PeerId([name; 32]));
        let right = ResultRecord {
            step: 3,
            lineage: lineage(7),
            after: lineage(6),
            members: members.to_vec(),
            mean: vec![0.5, -3.0, 1.0, 2.0, 2.0],
        };
        let wanted = Wanted {
            step: 3,
            lineage: lineage(7),
            after: lineage(6),
            members: members.into(),
            parameters: 2,
            limits: Limits::new(8.0, Codec::F32, 2),
            divisor: 4.0,
            holders: Vec::new(),
            stall: STALL,
        };
        let made_up = [
            ResultRecord { step: 4, ..right.clone() },
            ResultRecord { lineage: lineage(8), ..right.clone() },
            ResultRecord { after: lineage(8), ..right.clone() },
            ResultRecord { members: vec![members[0], PeerId([9; 32])], ..right.clone() },
            ResultRecord { members: vec![members[0]], mean: right.mean[..4].to_vec(), ..right.clone() },
            ResultRecord { mean: vec![0.5, -30.0, 1.0, 2.0, 2.0], ..right.clone() },
            ResultRecord { mean: vec![f32::NAN; 5], ..right.clone() },
        ];
        for record in &made_up {
            let found = fetched(&[None, Some(record), Some(&right)], wanted.clone()).await;
            assert_eq!(found, Ok(right.clone()), "after {record:?}");
            fetched(&[Some(record)], wanted.clone()).await.expect_err("nobody else has it");
        }
    }
}
