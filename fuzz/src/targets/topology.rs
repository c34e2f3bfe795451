//! Messages, views, and what members keep.

use starling_topology::history::{MAX_PAGES, ViewProof, ViewSearch, ViewSearchRequest, ViewSearchStatus};
use starling_topology::{
    AnchorSet, AttachRefusalReason, CarrierBody, Contact, DeclineReason, DetachReason, Digest, Envelope, Generation,
    Head, LeafBody, LeafProgress, Ledger, Lineage, Mark, MarkStatus, Record, ShufflePolicy, Slot, View, ViewHistory,
    ViewId,
};

use crate::seeds::{RUN, Seal, peer, recorded};
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

pub(super) const LEAF: Target = Target {
    name: "leaf",
    seeds: || {
        let progress = Some(LeafProgress { step: 9, lineage: Lineage { branch: 5, ..Lineage::NONE } });
        let gradient = |ranges| LeafBody::Gradient { number: 300, step: 9, weight: 8, ranges, elements: 70_000 };
        let all = [
            LeafBody::Attach { run: RUN, progress },
            LeafBody::Attach { run: RUN, progress: None },
            gradient(vec![0..4, 8..12]),
            gradient((0..200).map(|at| 5 * at..5 * at + 3).collect()),
            LeafBody::Declines { number: 7, reason: DeclineReason::Unable },
            LeafBody::Applied { start: 2, step: 9, digest: Some(Digest([3; 32])) },
            LeafBody::Alive,
        ];
        all.iter().map(LeafBody::encode).collect()
    },
    take: |bytes| {
        let Ok(body) = LeafBody::decode(bytes) else { return false };
        assert_eq!(LeafBody::decode(&body.encode()).as_ref(), Ok(&body), "it reads as something else");
        true
    },
    longest: 64 * KIB,
    per_byte: 32,
    besides: 64 * KIB,
};

pub(super) const CARRIER: Target = Target {
    name: "carrier",
    seeds: || {
        let contact = |name: u8| Contact { peer: peer(name), addresses: vec!["/ip4/192.0.2.7/tcp/4001".to_owned(); 3] };
        let contacts: Vec<Contact> = (1..20).map(contact).collect();
        let (lineage, generation) = (Lineage { branch: 5, ..Lineage::NONE }, Generation(4));
        let all = [
            CarrierBody::Attached { contacts: contacts.clone() },
            CarrierBody::Members { contacts },
            CarrierBody::Refused(AttachRefusalReason::Misbehaved { for_ms: 40_000 }),
            CarrierBody::Start { number: 2, step: 9, lineage, generation, loads: true },
            CarrierBody::Work {
                number: 300,
                step: 10,
                epoch: 1,
                ranges: (0..90).map(|at| 9 * at..9 * at + 4).collect(),
            },
            CarrierBody::Result { step: 9, bytes: 1 << 30 },
            CarrierBody::Differs { step: 9, digest: Digest([3; 32]) },
            CarrierBody::Lost(DetachReason::TooFarBehind),
            CarrierBody::Ended { step: 9, digest: Digest([3; 32]) },
        ];
        all.iter().map(CarrierBody::encode).collect()
    },
    take: |bytes| {
        let Ok(body) = CarrierBody::decode(bytes) else { return false };
        assert_eq!(CarrierBody::decode(&body.encode()).as_ref(), Ok(&body), "it reads as something else");
        true
    },
    longest: 64 * KIB,
    per_byte: 32,
    besides: 64 * KIB,
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

pub(super) const MARK: Target = Target {
    name: "mark",
    seeds: || {
        let saved = [0, 9, u64::MAX].map(|step| MarkStatus::Saved(Mark { step, lineage: Lineage::NONE }));
        saved.into_iter().chain([MarkStatus::Nothing]).filter_map(|noted| noted.encode()).collect()
    },
    take: |bytes| {
        let Some(noted) = MarkStatus::decode(bytes) else { return false };
        let again = noted.encode().and_then(|bytes| MarkStatus::decode(&bytes));
        assert_eq!(again, Some(noted), "it reads as something else");
        true
    },
    longest: KIB,
    per_byte: 1,
    besides: KIB,
};

/// What is decoded is asked, too, for the way to its last view.
pub(super) const ANNALS: Target = Target {
    name: "annals",
    seeds: || {
        let mut all = ViewHistory::default();
        let known = recorded().1.into_iter().filter(|record| all.note(record));
        let mut history: Vec<Vec<u8>> = Vec::new();
        let mut kept = ViewHistory::default();
        for record in known {
            kept.note(&record);
            history.push(kept.encode());
        }
        history
    },
    take: |bytes| {
        let Ok(history) = ViewHistory::decode(bytes) else { return false };
        let again = ViewHistory::decode(&history.encode()).map(|history| history.encode());
        assert_eq!(again, Ok(history.encode()), "it reads as something else");
        if let Some(to) = views(&history).pop() {
            let _page = history.answer(&ViewSearchRequest { known: Vec::new(), to });
        }
        let (_gap, _anchors) = (history.gap(), AnchorSet::of(RUN, None, &history));
        true
    },
    longest: 32 * KIB,
    per_byte: 64,
    besides: 2048 * KIB,
};

/// The views of a history, in their order.
fn views(history: &ViewHistory) -> Vec<ViewId> {
    let legs: Vec<ViewProof> = postcard::from_bytes(&history.encode()).expect("they are legs");
    legs.iter().map(|leg| leg.view().id()).collect()
}

/// Legs by which somebody leads, and how many come in one answer, to a view of which nothing is known but its name.
pub(super) const WALK: Target = Target {
    name: "walk",
    seeds: || {
        let mut history = ViewHistory::default();
        recorded().1.iter().for_each(|record| _ = history.note(record));
        let mut all = Vec::new();
        for to in views(&history).into_iter().rev().take(3) {
            let legs = postcard::to_allocvec(&history.answer(&ViewSearchRequest { known: Vec::new(), to }))
                .expect("they encode");
            all.extend([1, 3, 255].map(|page| [&[page][..], &to.0, &legs].concat()));
        }
        all
    },
    take: |bytes| {
        let Some((page, rest)) = bytes.split_first() else { return false };
        let Some((to, legs)) = rest.split_first_chunk() else { return false };
        let Ok(legs) = postcard::from_bytes::<Vec<ViewProof>>(legs) else { return false };
        let mut view_search = ViewSearch::new(AnchorSet::of(RUN, None, &ViewHistory::default()), ViewId(*to));
        let mut pages = 0;
        for page in legs.chunks(usize::from(*page).max(1)) {
            pages += 1;
            assert!(pages <= MAX_PAGES, "it asks without end");
            if view_search.hear(&Seal(peer(1)), page.to_vec()) != ViewSearchStatus::Ask {
                break;
            }
        }
        let mut anchors = AnchorSet::of(RUN, None, &ViewHistory::default());
        view_search.arrive(&mut anchors);
        assert_eq!(anchors.view(ViewId(*to)).is_some(), view_search.is_there(), "it takes what it was not led to");
        true
    },
    longest: 32 * KIB,
    per_byte: 64,
    besides: 2048 * KIB,
};

/// Ledgers at several steps, some with samples that were returned.
pub(super) fn ledgers() -> Vec<Ledger> {
    let blocks = ShufflePolicy::Blocks { rows: 8, blocks: 2 };
    [
        Ledger::new(42, 50, 7),
        Ledger::new(42, 50, 12).with_micro_batch(4),
        Ledger::new(42, 50, 12).with_micro_batch(4).with_shuffle(blocks),
    ]
    .into_iter()
    .flat_map(stages)
    .collect()
}

fn stages(mut ledger: Ledger) -> Vec<Ledger> {
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
