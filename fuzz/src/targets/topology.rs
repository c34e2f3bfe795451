//! Messages, views, and what members keep.

use starling_topology::{Digest, Envelope, Head, Ledger, Record, Slot, View, ViewId};

use crate::seeds::{RUN, peer, recorded};
use crate::target::Target;

const KIB: usize = 1024;
/// What a proposal's reasons may take, a byte each at least, while their list grows; of two proposals.
const LISTS: usize = 640 * KIB;

pub(super) const ENVELOPE: Target = Target {
    name: "envelope",
    seeds: || {
        let (log, _) = recorded();
        // A few of each kind and length.
        let mut all: Vec<(_, Vec<u8>)> = Vec::new();
        for delivered in log {
            let bytes = delivered.envelope.encode();
            let kind = (std::mem::discriminant(&delivered.envelope.body), bytes.len().ilog2());
            if all.len() < 200 && !all.iter().any(|(known, _)| *known == kind) {
                all.push((kind, bytes));
            }
        }
        all.into_iter().map(|(_, bytes)| bytes).collect()
    },
    take: |bytes| {
        let Ok(envelope) = Envelope::decode(bytes) else { return false };
        assert_eq!(Envelope::decode(&envelope.encode()).as_ref(), Ok(&envelope), "it reads as something else");
        true
    },
    longest: 256 * KIB,
    per_byte: 32,
    besides: LISTS,
};

pub(super) const VIEW: Target = Target {
    name: "view",
    seeds: || recorded().1.iter().map(|record| record.view.encode()).take(64).collect(),
    take: |bytes| {
        let Ok(view) = View::decode(bytes) else { return false };
        assert_eq!(View::decode(&view.encode()).as_ref(), Ok(&view), "it reads as something else");
        true
    },
    longest: 64 * KIB,
    per_byte: 16,
    besides: 64 * KIB,
};

pub(super) const RECORD: Target = Target {
    name: "record",
    seeds: || recorded().1.iter().map(Record::encode).take(64).collect(),
    take: |bytes| {
        let Ok(record) = Record::decode(bytes) else { return false };
        assert_eq!(Record::decode(&record.encode()).as_ref(), Ok(&record), "it reads as something else");
        true
    },
    longest: 256 * KIB,
    per_byte: 32,
    besides: LISTS,
};

pub(super) const SLOT: Target = Target {
    name: "slot",
    seeds: || {
        let slot = |record: &Record| Slot { run: RUN, peer: peer(1), version: 3, payload: record.encode() }.encode();
        recorded().1.iter().map(slot).take(16).collect()
    },
    take: |bytes| Slot::decode(bytes).is_some_and(|slot| bytes.starts_with(&slot.encode())),
    longest: 64 * KIB,
    per_byte: 3,
    besides: KIB,
};

pub(super) const HEAD: Target = Target {
    name: "head",
    seeds: || {
        let (view, digest, manifest) = (ViewId([2; 32]), Digest([3; 32]), Digest([4; 32]));
        vec![Head { run: RUN, step: 9, view, digest, manifest }.encode().to_vec()]
    },
    take: |bytes| Head::decode(bytes).is_some_and(|head| head.encode()[..] == *bytes),
    longest: KIB,
    per_byte: 1,
    besides: KIB,
};

pub(super) const LEDGER: Target = Target {
    name: "ledger",
    seeds: || ledgers().iter().map(Ledger::encode).collect(),
    take: |bytes| {
        let Ok(ledger) = Ledger::decode(bytes) else { return false };
        assert_eq!(ledger.encode(), bytes, "it is not canonical");
        true
    },
    longest: 64 * KIB,
    per_byte: 16,
    besides: 16 * KIB,
};

/// Ledgers at several steps, some with samples that were returned.
pub(super) fn ledgers() -> Vec<Ledger> {
    let mut ledger = Ledger::new(42, 50, 7);
    let mut all = vec![ledger.clone()];
    let members = [peer(1), peer(2), peer(3)];
    ledger.assign(&members);
    for step in 1..=20 {
        let present = if step % 5 == 0 { &members[..2] } else { &members[..] };
        let _committed = ledger.commit(step, present, &[20, 50, 30][..present.len()]);
        all.push(ledger.clone());
    }
    all
}
