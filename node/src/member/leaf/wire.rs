//! What travels between a leaf and its carrier: frames, and behind two kinds of them numbers or a record.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::{AsyncRead, AsyncWrite};
use starling_collective::{Codec, SumLimit};
use starling_engine::leaf::violation::LeafViolation;
use starling_run::{ReducedSize, ResultRecord};
use starling_topology::message::leaf::MAX_LEAF_BODY_BYTES;
use starling_topology::{CarrierBody, LeafBody, Violation};
use tokio::time::timeout;

use super::numbers::PartNumbers;
use crate::net::frame;
use crate::transfer::bulk;
use crate::transfer::result_transfer::longest;

/// Why nothing more is read of a peer.
#[derive(Debug)]
pub(crate) enum ReadEnd {
    /// The stream has ended, or broken, or nothing came in time.
    Closed(io::Error),
    /// What came is what no correct peer sends.
    Faulty(LeafViolation),
    /// Nobody wants it any more.
    Unwanted,
}

impl From<io::Error> for ReadEnd {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::InvalidData => Self::Faulty(LeafViolation::Message(Violation::Undecodable)),
            _ => Self::Closed(error),
        }
    }
}

impl From<Violation> for ReadEnd {
    fn from(violation: Violation) -> Self {
        Self::Faulty(LeafViolation::Message(violation))
    }
}

/// Reads what a leaf says next, and behind a gradient its numbers, if `admits` says how many bytes of them there may be: before memory
/// is taken for them. A message may begin at any time, and is then to end within `limit`, as are its numbers.
pub(crate) async fn read_leaf(
    stream: &mut (impl AsyncRead + Unpin),
    admits: impl Fn(&LeafBody) -> Result<Option<u64>, LeafViolation>,
    limit: Duration,
) -> Result<(LeafBody, Option<PartNumbers>), ReadEnd> {
    let body = LeafBody::decode(&frame_of(stream, limit).await?)?;
    let bytes = admits(&body).map_err(ReadEnd::Faulty)?.ok_or(ReadEnd::Unwanted)?;
    if !matches!(body, LeafBody::Gradient { .. }) {
        return Ok((body, None));
    }
    let most = usize::try_from(bytes).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
    let bytes = timeout(limit, frame::read_bytes(stream, bytes, most)).await.map_err(io::Error::from)??;
    let numbers = tokio::task::spawn_blocking(move || PartNumbers::of_bytes(&bytes)).await.map_err(io::Error::other)?;
    Ok((body, Some(numbers)))
}

/// Says something to a carrier; `numbers` are those of a gradient.
pub(crate) async fn write_leaf(
    stream: &mut (impl AsyncWrite + Unpin),
    body: &LeafBody,
    numbers: Vec<f32>,
    limit: Duration,
) -> io::Result<()> {
    timeout(limit, frame::write(stream, &body.encode())).await??;
    if numbers.is_empty() {
        return Ok(());
    }
    let bytes = move || numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>();
    let bytes = tokio::task::spawn_blocking(bytes).await.map_err(io::Error::other)?;
    bulk::write_pieces(stream, &bytes, limit).await
}

/// What results of a run are like.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ResultShape {
    pub(crate) reduced: ReducedSize,
    /// The largest number of a contribution.
    pub(crate) most: f32,
    pub(crate) codec: Codec,
    /// What the sum of contributions is divided by.
    pub(crate) batch_size: u32,
}

impl ResultShape {
    /// Reads a record that came from a carrier. Which view has reduced it a leaf can't know; that it can be one's, it can.
    fn read(self, step: u64, bytes: &[u8]) -> Option<ResultRecord> {
        let record = ResultRecord::decode(bytes, self.reduced).ok()?;
        let members = u32::try_from(record.members.len()).ok()?;
        let limits = SumLimit::new(self.most, self.codec, members);
        let is_right = record.step == step && limits.admit_mean(&record.mean, self.batch_size as f32);
        is_right.then_some(record)
    }
}

/// Reads what a carrier says next, and behind a result its record.
pub(crate) async fn read_carrier(
    stream: &mut (impl AsyncRead + Unpin),
    shape: ResultShape,
    limit: Duration,
) -> Result<(CarrierBody, Option<Arc<ResultRecord>>), ReadEnd> {
    let body = CarrierBody::decode(&frame_of(stream, limit).await?)?;
    let CarrierBody::Result { step, bytes } = body else { return Ok((body, None)) };
    let read = frame::read_bytes(stream, bytes, longest(shape.reduced));
    let bytes = timeout(limit, read).await.map_err(io::Error::from)??;
    let read = tokio::task::spawn_blocking(move || shape.read(step, &bytes)).await.map_err(io::Error::other)?;
    let record = read.ok_or(ReadEnd::Faulty(LeafViolation::DoesNotFollow { step }))?;
    Ok((body, Some(Arc::new(record))))
}

/// Says something to a leaf; `record` is that of a result, as bytes.
pub(crate) async fn write_carrier(
    stream: &mut (impl AsyncWrite + Unpin),
    mut body: CarrierBody,
    record: Option<Arc<[u8]>>,
    limit: Duration,
) -> io::Result<()> {
    if let (CarrierBody::Result { bytes, .. }, Some(record)) = (&mut body, &record) {
        *bytes = record.len() as u64;
    }
    timeout(limit, frame::write(stream, &body.encode())).await??;
    match record {
        Some(record) => bulk::write_pieces(stream, &record, limit).await,
        None => Ok(()),
    }
}

/// One frame. How long the other side may be silent its machine says.
async fn frame_of(stream: &mut (impl AsyncRead + Unpin), limit: Duration) -> io::Result<Vec<u8>> {
    frame::read_within(stream, MAX_LEAF_BODY_BYTES, limit, (MAX_LEAF_BODY_BYTES, None)).await
}

#[cfg(test)]
mod tests {
    use starling_topology::{Digest, Lineage, PeerId};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(30);

    fn shape() -> ResultShape {
        ResultShape { reduced: 2.into(), most: 8.0, codec: Codec::F32, batch_size: 4 }
    }

    fn gradient(elements: u64) -> LeafBody {
        let ranges = std::iter::once(0..2).collect();
        LeafBody::Gradient { number: 1, step: 7, weight: 2, ranges, elements }
    }

    fn record(mean: Vec<f32>) -> ResultRecord {
        let (lineage, members) = (Lineage::NONE, [1, 2].map(|name| PeerId([name; 32])).to_vec());
        ResultRecord { step: 7, lineage, after: lineage, members, mean }
    }

    #[tokio::test]
    async fn a_gradient_survives_the_trip_and_takes_no_memory_unless_it_is_admitted() {
        let mut wire = Vec::new();
        write_leaf(&mut wire, &gradient(3), vec![1.0, -2.0, 0.5], LIMIT).await.expect("a Vec takes all");
        write_leaf(&mut wire, &LeafBody::Alive, Vec::new(), LIMIT).await.expect("a Vec takes all");
        let mut stream = wire.as_slice();
        let (body, numbers) = read_leaf(&mut stream, |_| Ok(Some(12)), LIMIT).await.expect("whole");
        assert_eq!((body, numbers), (gradient(3), Some(PartNumbers::new(vec![1.0, -2.0, 0.5]))));
        let next = read_leaf(&mut stream, |_| Ok(Some(0)), LIMIT).await.expect("whole");
        assert_eq!(next, (LeafBody::Alive, None));
        let closed = read_leaf(&mut stream, |_| Ok(Some(0)), LIMIT).await;
        assert!(matches!(closed, Err(ReadEnd::Closed(_))), "{closed:?}");
        let refused = read_leaf(&mut wire.as_slice(), |_| Err(LeafViolation::NotGiven { number: 1 }), LIMIT).await;
        assert!(matches!(refused, Err(ReadEnd::Faulty(LeafViolation::NotGiven { number: 1 }))), "{refused:?}");
        let unwanted = read_leaf(&mut wire.as_slice(), |_| Ok(None), LIMIT).await;
        assert!(matches!(unwanted, Err(ReadEnd::Unwanted)), "{unwanted:?}");
        let cut = read_leaf(&mut &wire[..wire.len() - 9], |_| Ok(Some(12)), LIMIT).await;
        assert!(matches!(cut, Err(ReadEnd::Closed(_))), "{cut:?}");
    }

    #[tokio::test]
    async fn bytes_that_are_no_message_are_the_senders_fault() {
        let garbage = [&u32::MAX.to_be_bytes()[..], &[7; 64]].concat();
        let no_message = [&4_u32.to_be_bytes()[..], &[0xff; 4]].concat();
        for bytes in [garbage, no_message] {
            let read = read_leaf(&mut bytes.as_slice(), |_| Ok(Some(0)), LIMIT).await;
            assert!(matches!(read, Err(ReadEnd::Faulty(LeafViolation::Message(_)))), "{read:?}");
            let read = read_carrier(&mut bytes.as_slice(), shape(), LIMIT).await;
            assert!(matches!(read, Err(ReadEnd::Faulty(LeafViolation::Message(_)))), "{read:?}");
        }
    }

    #[tokio::test]
    async fn a_result_survives_the_trip_and_one_that_no_view_can_have_reduced_is_refused() {
        let result = || CarrierBody::Result { step: 7, bytes: 0 };
        let right = record(vec![0.5, -3.0, 1.0, 2.0, 2.0]);
        let mut wire = Vec::new();
        write_carrier(&mut wire, result(), Some(right.encode().into()), LIMIT).await.expect("a Vec takes all");
        let ended = CarrierBody::Ended { step: 7, digest: Digest([1; 32]) };
        write_carrier(&mut wire, ended.clone(), None, LIMIT).await.expect("a Vec takes all");
        let mut stream = wire.as_slice();
        let (body, came) = read_carrier(&mut stream, shape(), LIMIT).await.expect("whole");
        assert!(matches!(body, CarrierBody::Result { step: 7, bytes } if bytes == right.encode().len() as u64));
        assert_eq!(came.as_deref(), Some(&right));
        assert_eq!(read_carrier(&mut stream, shape(), LIMIT).await.expect("whole"), (ended, None));
        let long = record(vec![0.0; 99]);
        let (large, not_finite) = (record(vec![30.0, 0.0, 1.0, 2.0, 2.0]), record(vec![f32::NAN; 5]));
        let other = ResultRecord { step: 8, ..right };
        for wrong in [large, not_finite, other, long] {
            let mut wire = Vec::new();
            write_carrier(&mut wire, result(), Some(wrong.encode().into()), LIMIT).await.expect("a Vec takes all");
            let read = read_carrier(&mut wire.as_slice(), shape(), LIMIT).await;
            assert!(matches!(read, Err(ReadEnd::Faulty(_))), "{wrong:?}: {read:?}");
        }
        let endless = CarrierBody::Result { step: 7, bytes: u64::MAX }.encode();
        let mut wire = Vec::new();
        frame::write(&mut wire, &endless).await.expect("a Vec takes all");
        let read = read_carrier(&mut wire.as_slice(), shape(), LIMIT).await;
        assert!(matches!(read, Err(ReadEnd::Faulty(_))), "before memory is taken: {read:?}");
    }
}
