//! Hands the result of a step from a member that has committed it to one that has not.
//!
//! The asker names the step (u64, big-endian). The answer is the result's bytes; none if it is not at hand, or [`LATER`] in place
//! of their length if it will be.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use futures::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use starling_collective::SumLimit;
use starling_engine::download::result_download::{Input, Output, ResultReply};
use starling_engine::{MemberSet, ResultDownload, SnapshotStatus};
use starling_run::{ReducedSize, ResultRecord};
use starling_topology::message::MAX_MEMBERS;
use starling_topology::{Lineage, PeerId, Time};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use crate::credentials::identity::{from_libp2p, to_libp2p};
use crate::member::member_list::MemberList;
use crate::net::frame;
use crate::transfer::bulk;

/// Stands for a result that the answerer has yet to get itself.
const LATER: u64 = u64::MAX;

/// What members ask for: the newest result. However many ask, its bytes are there once.
pub(crate) struct ResultProvider {
    of: Box<dyn Fn(u64) -> SnapshotStatus<Arc<ResultRecord>> + Send + Sync>,
    members: Arc<MemberList>,
    encoded: EncodedResult,
}

/// A result, and its bytes as long as they are on their way to somebody: however many they go to, they are there once.
pub(crate) struct EncodedResult(Mutex<(Weak<ResultRecord>, Weak<[u8]>)>);

impl Default for EncodedResult {
    fn default() -> Self {
        let nothing: Weak<[u8]> = Weak::<[u8; 0]>::new();
        Self(Mutex::new((Weak::new(), nothing)))
    }
}

impl EncodedResult {
    pub(crate) fn bytes(&self, record: &Arc<ResultRecord>) -> Arc<[u8]> {
        // A lock poisoned by a panic elsewhere still guards a sound pair.
        let mut encoded = self.0.lock().unwrap_or_else(PoisonError::into_inner);
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

impl ResultProvider {
    /// Hands out what `of` says is the result of a step.
    pub(crate) fn new(
        of: impl Fn(u64) -> SnapshotStatus<Arc<ResultRecord>> + Send + Sync + 'static,
        members: Arc<MemberList>,
    ) -> Arc<Self> {
        Arc::new(Self { of: Box::new(of), members, encoded: EncodedResult::default() })
    }

    /// Answers one peer. Who is no member was not cut off just before, and needs none; as far as is known here: our view may come yet.
    pub(crate) async fn serve(
        self: Arc<Self>,
        peer: libp2p::PeerId,
        mut stream: impl AsyncRead + AsyncWrite + Unpin,
        stall: Duration,
    ) {
        let is_member = from_libp2p(&peer).is_some_and(|peer| self.members.has(&peer));
        let answer = async {
            let mut step = [0; 8];
            timeout(stall, stream.read_exact(&mut step)).await??;
            let found = if is_member { (self.of)(u64::from_be_bytes(step)) } else { SnapshotStatus::Later };
            match found {
                SnapshotStatus::Here(record) => bulk::write(&mut stream, &self.encoded.bytes(&record), stall).await?,
                SnapshotStatus::Later => timeout(stall, stream.write_all(&LATER.to_be_bytes())).await??,
                SnapshotStatus::Nothing => bulk::write(&mut stream, &[], stall).await?,
            }
            stream.close().await
        };
        if let Err(error) = io::Result::<()>::from(answer.await) {
            tracing::debug!(%error, "a result did not get through");
        }
    }
}

/// What is asked for, and what the asker knows of it by itself: one holder's word is enough for nobody.
#[derive(Debug, Clone)]
pub(crate) struct ResultRequest {
    pub(crate) step: u64,
    /// Of the view that reduced it.
    pub(crate) lineage: Lineage,
    /// Of the asker's state, which it is applied to.
    pub(crate) after: Lineage,
    /// The members of the view that reduced it.
    pub(crate) members: MemberSet,
    /// What each of them brought.
    pub(crate) reduced: ReducedSize,
    /// What the members' contributions can come to.
    pub(crate) limits: SumLimit,
    /// What their sum was divided by.
    pub(crate) divisor: f32,
    /// Members that hold it.
    pub(crate) holders: Vec<PeerId>,
    pub(crate) max_stall: Duration,
}

impl ResultRequest {
    /// # Errors
    /// Why no view can have reduced this for the asker.
    fn check(&self, record: &ResultRecord) -> Result<(), String> {
        let is_within = self.limits.admit_mean(&record.mean, self.divisor);
        let checks = [
            (record.step == self.step, "it sent another step's result"),
            (record.lineage == self.lineage, "it sent the result of another view"),
            (record.after == self.after, "its result is to be applied to another state"),
            (record.members[..] == self.members[..], "its result is of other members than the view's"),
            (is_within, "its result has larger numbers than the run takes"),
        ];
        match checks.into_iter().find(|(is_right, _)| !is_right) {
            Some((_, wrong)) => Err(wrong.to_owned()),
            None => Ok(()),
        }
    }
}

/// Fetches a result from the first holder that hands out one that can be right. `open` connects to a holder.
///
/// # Errors
/// What the last holder did instead.
pub(crate) async fn fetch<S, Open>(open: impl Fn(PeerId) -> Open, wanted: ResultRequest) -> Result<ResultRecord, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    Open: Future<Output = io::Result<S>> + Send + 'static,
{
    let began = Instant::now();
    let now = || Time::ZERO + began.elapsed();
    let mut machine = ResultDownload::new(now(), wanted.max_stall, &wanted.holders);
    let wanted = Arc::new(wanted);
    let (begun_in, mut begun) = mpsc::channel(1);
    let (mut asked, mut under_way) = (JoinSet::new(), BTreeMap::new());
    let (mut came, mut timer) = (None, began);
    loop {
        while let Some(output) = machine.poll() {
            match output {
                Output::Ask { number, holder } => {
                    let (opening, wanted, begun) = (open(holder), wanted.clone(), begun_in.clone());
                    let answer = async move {
                        let begins = async |bytes: u64| {
                            // Nobody listens any more once another holder has answered.
                            let _ = begun.send((number, bytes)).await;
                        };
                        (number, ask(opening, &wanted, begins).await)
                    };
                    under_way.insert(number, asked.spawn(answer));
                }
                Output::GiveUp(number) => {
                    if let Some(task) = under_way.remove(&number) {
                        task.abort();
                    }
                }
                Output::SetTimer(at) => timer = began + (at - Time::ZERO),
                Output::Fault { holder, reason, is_wrong: true } => {
                    tracing::warn!(step = wanted.step, holder = %to_libp2p(holder), reason, "a result was refused");
                }
                Output::Fault { holder, reason, is_wrong: false } => {
                    tracing::info!(step = wanted.step, holder = %to_libp2p(holder), reason, "a result did not come");
                }
                Output::End(outcome) => {
                    return outcome.and_then(|_| came.ok_or_else(|| "nothing came".to_owned()));
                }
            }
        }
        let input = tokio::select! {
            biased;
            Some((number, bytes)) = begun.recv() => Input::Begun { number, bytes },
            Some(joined) = asked.join_next() => {
                let Ok((number, answer)) = joined else { continue };
                let answer = match answer {
                    Ok(record) => {
                        came = Some(record);
                        ResultReply::Here
                    }
                    Err(answer) => answer,
                };
                Input::Answered { number, answer }
            }
            () = sleep_until(timer) => Input::Expired,
        };
        machine.handle(now(), input);
    }
}

/// No result of members that bring so much is longer, in bytes: the largest view's, with room for its head.
pub(crate) fn longest(reduced: ReducedSize) -> usize {
    let numbers = reduced.buffer(MAX_MEMBERS).elements();
    64 + size_of::<PeerId>() * MAX_MEMBERS + size_of::<f32>() * numbers
}

/// Asks a holder; `begins` is told how long its answer will be.
async fn ask<S>(
    opening: impl Future<Output = io::Result<S>>,
    wanted: &ResultRequest,
    begins: impl AsyncFnOnce(u64),
) -> Result<ResultRecord, ResultReply>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let failed = |error: io::Error| {
        let is_wrong = error.kind() == io::ErrorKind::InvalidData;
        if is_wrong { ResultReply::Wrong(error.to_string()) } else { ResultReply::Failed(error.to_string()) }
    };
    let asked = async {
        let mut stream = opening.await?;
        stream.write_all(&wanted.step.to_be_bytes()).await?;
        stream.flush().await?;
        let length = bulk::announced(&mut stream).await?;
        io::Result::Ok((stream, length))
    };
    let (mut stream, length) = asked.await.map_err(failed)?;
    match length {
        0 => return Err(ResultReply::NotHere),
        LATER => return Err(ResultReply::Later),
        _ => {}
    }
    let longest = longest(wanted.reduced);
    begins(length.min(longest as u64)).await;
    let bytes = frame::read_bytes(&mut stream, length, longest).await.map_err(failed)?;
    let record = ResultRecord::decode(&bytes, wanted.reduced).map_err(|error| ResultReply::Wrong(error.to_string()))?;
    wanted.check(&record).map_err(ResultReply::Wrong)?;
    Ok(record)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;
    use std::sync::atomic::Ordering::Relaxed;

    use starling_collective::Codec;
    use starling_topology::ViewId;
    use tokio_util::compat::TokioAsyncReadCompatExt;

    use super::*;
    use crate::credentials::identity::Identity;

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
        let of = move |step: u64| match step {
            3 => SnapshotStatus::Here(newest.clone()),
            4 => SnapshotStatus::Later,
            _ => SnapshotStatus::Nothing,
        };
        let results = ResultProvider::new(of, members);
        let (nothing, later) = ([0; 8].to_vec(), LATER.to_be_bytes().to_vec());
        let encoded = record.encode();
        let whole = [&(encoded.len() as u64).to_be_bytes()[..], &encoded].concat();
        for (peer, step, expected) in
            [(member, 3_u64, whole), (member, 4, later.clone()), (member, 5, nothing), (other, 3, later)]
        {
            let (ours, theirs) = tokio::io::duplex(4096);
            let (mut ours, served) = (ours.compat(), results.clone().serve(peer, theirs.compat(), STALL));
            let asked = async {
                ours.write_all(&step.to_be_bytes()).await.ok();
                let mut bytes = Vec::new();
                ours.read_to_end(&mut bytes).await.ok();
                bytes
            };
            let (bytes, ()) = futures::join!(asked, served);
            assert_eq!(bytes, expected);
        }
        let (first, second) = (results.encoded.bytes(&record), results.encoded.bytes(&record));
        assert!(Arc::ptr_eq(&first, &second), "however many ask, it is there once");
        let kept = Arc::downgrade(&first);
        drop((first, second));
        assert!(kept.upgrade().is_none(), "and nobody asks any more");
    }

    /// What a holder sends whoever asks.
    #[derive(Clone)]
    enum Holder {
        Gives(Box<ResultRecord>),
        /// Such a length, and then a byte now and then.
        Trickles(u64),
        /// The result, after so many times that it had yet to get it.
        Later(Arc<AtomicU32>, Box<ResultRecord>),
        Unreachable,
    }

    async fn fetched(holders: &[Holder], wanted: ResultRequest) -> Result<ResultRecord, String> {
        let names = (0..holders.len() as u8).map(|name| PeerId([name; 32])).collect();
        let open = |holder: PeerId| {
            let holder = holders[usize::from(holder.0[0])].clone();
            async move {
                if matches!(holder, Holder::Unreachable) {
                    return Err(io::ErrorKind::ConnectionRefused.into());
                }
                let (ours, theirs) = tokio::io::duplex(4096);
                tokio::spawn(async move {
                    let mut theirs = theirs.compat();
                    theirs.read_exact(&mut [0; 8]).await.expect("a step");
                    match holder {
                        Holder::Gives(record) => {
                            bulk::write(&mut theirs, &record.encode(), STALL).await.ok();
                        }
                        Holder::Later(left, record) => {
                            let is_here = left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_err();
                            if is_here {
                                bulk::write(&mut theirs, &record.encode(), STALL).await.ok();
                            } else {
                                theirs.write_all(&LATER.to_be_bytes()).await.ok();
                            }
                        }
                        Holder::Trickles(length) => {
                            theirs.write_all(&length.to_be_bytes()).await.ok();
                            let mut pace = tokio::time::interval(Duration::from_millis(10));
                            while theirs.write_all(&[0]).await.is_ok() {
                                pace.tick().await;
                            }
                        }
                        Holder::Unreachable => {}
                    }
                });
                io::Result::Ok(ours.compat())
            }
        };
        fetch(open, ResultRequest { holders: names, ..wanted }).await
    }

    fn lineage(view: u8) -> Lineage {
        Lineage { view: ViewId([view; 32]), ..Lineage::NONE }
    }

    /// A result, and what is asked for to get it.
    fn right() -> (ResultRecord, ResultRequest) {
        let members = [1, 2].map(|name| PeerId([name; 32]));
        let right = ResultRecord {
            step: 3,
            lineage: lineage(7),
            after: lineage(6),
            members: members.to_vec(),
            mean: vec![0.5, -3.0, 1.0, 2.0, 2.0],
        };
        let wanted = ResultRequest {
            step: 3,
            lineage: lineage(7),
            after: lineage(6),
            members: members.into(),
            reduced: 2.into(),
            limits: SumLimit::new(8.0, Codec::F32, 2),
            divisor: 4.0,
            holders: Vec::new(),
            max_stall: STALL,
        };
        (right, wanted)
    }

    #[tokio::test]
    async fn a_result_that_is_given_byte_by_byte_comes_from_the_next_holder() {
        let (right, wanted) = right();
        let wanted = ResultRequest { max_stall: Duration::from_secs(2), ..wanted };
        let whole = right.encode().len() as u64;
        let gives = Holder::Gives(Box::new(right.clone()));
        let found = fetched(&[Holder::Trickles(whole), Holder::Trickles(whole), gives], wanted.clone()).await;
        assert_eq!(found, Ok(right));
        let reason = fetched(&[Holder::Trickles(whole)], wanted).await.expect_err("nobody else has it");
        assert!(reason.contains("in time"), "{reason}");
    }

    /// The only holder can't be reached from here, but from another member, which fetches the result as well.
    #[tokio::test]
    async fn who_is_to_get_it_too_is_asked_again() {
        let (right, wanted) = right();
        let later = |times| Holder::Later(Arc::new(AtomicU32::new(times)), Box::new(right.clone()));
        let found = fetched(&[Holder::Unreachable, later(3)], wanted.clone()).await;
        assert_eq!(found, Ok(right.clone()));
        let wanted = ResultRequest { max_stall: Duration::from_millis(500), ..wanted };
        fetched(&[Holder::Unreachable, later(u32::MAX)], wanted).await.expect_err("within a bound");
    }

    #[tokio::test]
    async fn a_made_up_result_is_refused_and_another_holder_asked() {
        let (right, wanted) = right();
        let members = [1, 2].map(|name| PeerId([name; 32]));
        let made_up = [
            ResultRecord { step: 4, ..right.clone() },
            ResultRecord { lineage: lineage(8), ..right.clone() },
            ResultRecord { after: lineage(8), ..right.clone() },
            ResultRecord { members: vec![members[0], PeerId([9; 32])], ..right.clone() },
            ResultRecord { members: vec![members[0]], mean: right.mean[..4].to_vec(), ..right.clone() },
            ResultRecord { mean: vec![0.5, -30.0, 1.0, 2.0, 2.0], ..right.clone() },
            ResultRecord { mean: vec![f32::NAN; 5], ..right.clone() },
        ];
        let gives = |record: &ResultRecord| Holder::Gives(Box::new(record.clone()));
        for record in &made_up {
            let found = fetched(&[Holder::Unreachable, gives(record), gives(&right)], wanted.clone()).await;
            assert_eq!(found, Ok(right.clone()), "after {record:?}");
            fetched(&[gives(record)], wanted.clone()).await.expect_err("nobody else has it");
        }
    }
}
