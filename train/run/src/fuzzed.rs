//! Decoders of what lies on a disk, for whoever gives them hostile bytes. Nothing else sees them: the feature `fuzz` does.

use starling_topology::{Digest, Generation, Head, PeerId, RunId, View, ViewId};

use crate::audit::line::{decode_header, decode_place, decode_record, encode_header, encode_record, is_header};
use crate::audit::{AuditHeader, AuditRecord, AuditView};
use crate::checkpoint::SignedHead;
use crate::checkpoint::signed_head::{decode, encode};

const RUN: RunId = RunId([7; 32]);

/// Files of who vouches for a checkpoint.
pub fn signatures() -> Vec<Vec<u8>> {
    let peers = [1, 2, 3].map(|name| PeerId([name; 32]));
    let view = View::found(RUN, peers[0]).succeed(peers);
    let head = Head { run: RUN, step: 9, view: view.id(), digest: Digest([3; 32]), manifest: Digest([4; 32]) };
    let signed = |count: usize, stable| {
        let signatures = peers[..count].iter().map(|peer| (*peer, [peer.0[0]; 64])).collect();
        encode(&SignedHead { head, view: view.clone(), signatures, stable })
    };
    vec![signed(0, false), signed(1, false), signed(3, true)]
}

/// Whether bytes are such a file.
///
/// # Panics
/// If what was read is written as something else.
pub fn is_signatures(bytes: &[u8]) -> bool {
    let Some(signed) = decode(bytes) else { return false };
    assert_eq!(decode(&encode(&signed)).as_ref(), Some(&signed), "it reads as something else");
    true
}

/// Lines of audit files.
pub fn audit_lines() -> Vec<Vec<u8>> {
    let view = AuditView { generation: Generation(3), view: ViewId([5; 32]), parent: Some(ViewId([6; 32])) };
    let header = |adopted, view| {
        encode_header(&AuditHeader {
            run: RUN,
            samples: 50,
            batch_size: 7,
            micro_batch: 0,
            seed: 42,
            first_step: 1,
            adopted,
            view,
        })
    };
    let record = |digest, is_last| AuditRecord {
        step: 9,
        generation: Generation(3),
        view: ViewId([5; 32]),
        epoch: 1,
        contributions: vec![(PeerId([1; 32]), vec![0..3, 5..7]), (PeerId([2; 32]), Vec::new())],
        dropped: std::iter::once(8..10).collect(),
        digest,
        is_last,
    };
    let records = [record(None, false), record(Some(Digest([3; 32])), true)];
    [header(false, None), header(true, Some(view))].into_iter().chain(records.iter().map(encode_record)).collect()
}

/// Whether bytes are such a line.
///
/// # Panics
/// If what was read is written as something else.
pub fn is_audit_line(bytes: &[u8]) -> bool {
    if is_header(bytes) {
        let Ok(header) = decode_header(bytes) else { return false };
        assert_eq!(decode_header(&encode_header(&header)), Ok(header), "it reads as something else");
        return true;
    }
    let (place, Ok(record)) = (decode_place(bytes), decode_record(bytes)) else { return false };
    assert!(place.is_some_and(|(step, _)| step == record.step), "its place is another one");
    assert_eq!(decode_record(&encode_record(&record)), Ok(record), "it reads as something else");
    true
}
