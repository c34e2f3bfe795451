//! The decoders of what comes from others or lies on this machine's disk, for whoever gives them hostile bytes. Nothing else sees
//! them: the feature `fuzz` does.

use std::path::Path;

use futures::executor::block_on;
use libp2p::identity::{Keypair, ed25519};
use starling_run::{Manifest, RunSpec, WIRE_VERSION};
use starling_topology::history::{ViewProof, ViewSearch, ViewSearchRequest};
use starling_topology::{
    AnchorSet, Contact, Digest, Generation, Head, Lineage, Mark, MarkStatus, PeerId, Proof, Record, RunId, Slot, View,
    ViewHistory, ViewId,
};
use tokio::sync::mpsc;
use tokio_util::compat::TokioAsyncReadCompatExt as _;

use crate::access::admission::{Admission, AdmissionError, Role};
use crate::access::pending::Pending;
use crate::access::roster::Roster;
use crate::access::{Access, Credentials, Pass, Update};
use crate::credentials::appointment::{Appointments, Consent, Consents, Line};
use crate::credentials::identity::{from_libp2p, to_libp2p};
use crate::credentials::invitation::{DenialReason, InvitationKey, InvitationSpec, PresentedInvitation};
use crate::credentials::revocations::{RevocationSet, RevocationUpdate};
use crate::credentials::secret;
use crate::credentials::ticket::Ticket;
use crate::member::guide::Reader;
use crate::net::frame::{decode, encode};
use crate::net::network::Announcement;
use crate::start::welcome;
use crate::store::contacts_file::Contacts;
use crate::store::mark_file::MarkFile;
use crate::store::record_file::RecordFile;
use crate::transfer::{Evidence, Reply, Request};

/// The run that all of it is of.
const RUN: RunId = RunId([7; 32]);
/// Its last step.
const STEPS: u64 = 100;

/// One of them.
#[derive(Debug, Clone, Copy)]
pub struct Decoder {
    /// Its name.
    pub name: &'static str,
    /// Valid encodings, the same each time.
    pub valid: fn() -> Vec<Vec<u8>>,
    /// Whether bytes are one.
    ///
    /// # Panics
    /// If what was read encodes to something that reads as something else.
    pub take: fn(&[u8]) -> bool,
}

/// What a joiner or a keeper asks.
pub const REQUEST: Decoder = Decoder {
    name: "request",
    valid: || {
        let [known, to] = [ViewId([2; 32]), ViewId([3; 32])];
        let [of, chunk] = [Digest([4; 32]), Digest([5; 32])];
        let requests = [
            Request::Manifest { generation: Generation(3), step: 300 },
            Request::Chunk { of, chunk },
            Request::Run,
            Request::Newest,
            Request::Checkpoint(of),
            Request::View(to),
            Request::DataManifest,
            Request::Members,
            Request::Preprocessing,
            Request::Process,
            Request::Chain(ViewSearchRequest { known: vec![known, to], to }),
            Request::InitialManifest,
        ];
        requests.iter().map(encode).collect()
    },
    take: |bytes| {
        let Ok(request) = decode::<Request>(bytes) else { return false };
        assert_eq!(decode::<Request>(&encode(&request)).ok(), Some(request), "it reads as something else");
        true
    },
};

/// What a donor answers, and what an asker makes of that at once.
pub const REPLY: Decoder = Decoder {
    name: "reply",
    valid: || {
        let view = view();
        let evidence = vec![Evidence::of(&proof())];
        let legs = [
            ViewProof::Apart(view.clone()),
            ViewProof::Founded(view.clone(), [1; 64].into()),
            ViewProof::Back(view.clone()),
        ];
        let replies = [
            Reply::NotHere,
            Reply::Later,
            Reply::Manifest(vec![1; 40]),
            Reply::Chunk(vec![2; 40]),
            Reply::Run(manifest().encode()),
            Reply::Newest { live: true, looks_out: false, evidence },
            Reply::View(view.encode()),
            Reply::Members(contacts()),
            Reply::Preprocessing(vec![3; 40]),
            Reply::Process(u64::MAX, true),
            Reply::Chain(legs.to_vec()),
        ];
        replies.iter().map(encode).collect()
    },
    take: |bytes| {
        let Ok(reply) = decode::<Reply>(bytes) else { return false };
        assert_eq!(decode::<Reply>(&encode(&reply)).as_ref().ok(), Some(&reply), "it reads as something else");
        match reply {
            Reply::Newest { evidence, .. } => {
                let _proven = evidence.into_iter().map(|evidence| evidence.check(RUN, STEPS)).collect::<Vec<_>>();
            }
            Reply::Chain(legs) => {
                let known = AnchorSet::of(RUN, None, &ViewHistory::default());
                let _way = ViewSearch::new(known, view().id()).hear(&Reader, legs);
            }
            _ => {}
        }
        true
    },
};

/// What a joiner asks before it is one.
pub const WELCOME_REQUEST: Decoder = Decoder {
    name: "welcome-request",
    valid: || {
        let request = |manifest| encode(&welcome::Request { manifest });
        vec![request(None), request(Some(manifest().encode()))]
    },
    take: |bytes| {
        let Ok(request) = decode::<welcome::Request>(bytes) else { return false };
        assert_eq!(encode(&request), encode(&decode::<welcome::Request>(&encode(&request)).expect("it was read")));
        request.manifest.is_none_or(|bytes| Manifest::decode(&bytes).is_ok())
    },
};

/// What it is told.
pub const WELCOME_REPLY: Decoder = Decoder {
    name: "welcome-reply",
    valid: || {
        let (manifest, members, keepers) = (manifest().encode(), contacts(), contacts());
        vec![encode(&welcome::Reply { manifest, min_members: 2, probe: Some(2.5), keeps: false, members, keepers })]
    },
    take: |bytes| {
        let Ok(reply) = decode::<welcome::Reply>(bytes) else { return false };
        assert_eq!(encode(&reply), encode(&decode::<welcome::Reply>(&encode(&reply)).expect("it was read")));
        Manifest::decode(&reply.manifest).is_ok()
    },
};

/// An invitation as a peer shows it.
pub const PRESENTED: Decoder = Decoder {
    name: "presented",
    valid: || terms().into_iter().map(|terms| grant(terms).present(peer(2)).encode()).collect(),
    take: |bytes| {
        let Some(presented) = PresentedInvitation::decode(bytes) else { return false };
        assert_eq!(
            PresentedInvitation::decode(&presented.encode()).as_ref(),
            Some(&presented),
            "it reads as something else"
        );
        let _checked = presented.check((peer(1), RUN), peer(2));
        true
    },
};

/// A secret with the invitation behind it, as files and tickets have it.
pub const SECRET: Decoder = Decoder {
    name: "secret",
    valid: || {
        let invited = terms().into_iter().map(|terms| [&[9; 32][..], &grant(terms).encode()].concat());
        [vec![9; 32]].into_iter().chain(invited).collect()
    },
    take: |bytes| {
        let Some((key, grant)) = secret::parse(bytes) else { return false };
        let again = [&key[..], &grant.as_ref().map(InvitationKey::encode).unwrap_or_default()].concat();
        assert_eq!(secret::parse(&again), Some((key, grant)), "it reads as something else");
        true
    },
};

/// A ticket: its text, or what it is the text of.
pub const TICKET: Decoder = Decoder {
    name: "ticket",
    valid: || {
        let tickets = [None, Some([9; 32])].map(|secret| {
            let invitation = secret.map(|_| grant(InvitationSpec::default()));
            Ticket::new(contacts(), RUN, secret).with_invitation(invitation).to_string()
        });
        let contents = tickets.iter().map(|text| crate::credentials::ticket::content(text).expect("a ticket"));
        contents.chain(tickets.iter().map(|text| text.clone().into_bytes())).collect()
    },
    take: |bytes| {
        let text = match std::str::from_utf8(bytes) {
            Ok(text) if text.starts_with("starling") => text.to_owned(),
            _ => crate::credentials::ticket::text(bytes),
        };
        let Ok(ticket) = text.parse::<Ticket>() else { return false };
        let again = ticket.to_string().parse::<Ticket>();
        assert_eq!(again.ok().as_ref(), Some(&ticket), "it reads as something else");
        true
    },
};

/// What peers tell each other of who may be here.
pub const UPDATE: Decoder = Decoder {
    name: "update",
    valid: || {
        let members: Vec<_> = terms().into_iter().map(|terms| (peer(2), grant(terms).present(peer(2)))).collect();
        let empty = Update { renewal: None, members: Vec::new(), consents: Consents::default(), number: 0 };
        vec![encode(&empty), encode(&Update { renewal: Some(renewal()), members, consents: consents(), number: 3 })]
    },
    take: |bytes| {
        let Ok(update) = decode::<Update>(bytes) else { return false };
        let again = encode(&update);
        assert_eq!(encode(&decode::<Update>(&again).expect("it was read")), again, "it reads as something else");
        let _checked = update.renewal.is_some_and(|renewal| renewal.is_of(peer(1), RUN));
        true
    },
};

/// Why a peer is turned away, and the list that proves it.
pub const DENIAL: Decoder = Decoder {
    name: "denial",
    valid: || {
        let revoked = [encode(&DenialReason::Revoked), encode(&renewal().list)].concat();
        vec![encode(&(DenialReason::Expired, [0_u8; 0])), revoked]
    },
    take: |bytes| {
        let Ok((denial, proof)) = postcard::take_from_bytes::<DenialReason>(bytes) else { return false };
        let list = decode::<RevocationSet>(proof);
        let _checked = list.as_ref().is_ok_and(|list| list.names(&peer(2)) && list.is_of(peer(1), RUN));
        denial != DenialReason::Revoked || list.is_ok()
    },
};

/// What a peer shows when it connects.
pub const PASS: Decoder = Decoder {
    name: "pass",
    valid: || {
        let shown = terms().into_iter().map(|terms| Some(grant(terms).present(peer(2)))).chain([None]);
        let pass = |presented| Pass { presented, speaks_for: Some((peer(3), [5; 64])), ..Pass::default() }.encode();
        shown.map(pass).chain([Pass::default().encode()]).collect()
    },
    take: |bytes| {
        let Some(pass) = Pass::decode(bytes) else { return false };
        assert_eq!(Pass::decode(&pass.encode()).as_ref(), Some(&pass), "it reads as something else");
        let _who = pass.who(to_libp2p(peer(2)), Some(RUN));
        true
    },
};

/// What the other end says in the admission handshake: a byte for our role in it, and then its bytes.
pub const HANDSHAKE: Decoder = Decoder {
    name: "handshake",
    valid: || {
        let hello = [&b"starling"[..], &WIRE_VERSION.to_be_bytes(), &[4; 32]].concat();
        let part = |bytes: &[u8]| [&(bytes.len() as u16).to_le_bytes()[..], bytes].concat();
        let pass = part(&Pass::default().encode());
        let denied = part(&[encode(&DenialReason::Revoked), encode(&renewal().list)].concat());
        vec![
            [&[0], &hello[..], &[1], &[6; 32], &pass].concat(),
            [&[0], &hello[..], &[0]].concat(),
            [&[0], &hello[..], &[2], &denied].concat(),
            [&[1], &hello[..], &[6; 32], &pass].concat(),
        ]
    },
    take: |bytes| {
        let Some((role, said)) = bytes.split_first() else { return false };
        let role = if role % 2 == 0 { Role::Dialer } else { Role::Listener };
        let (me, other) = (to_libp2p(peer(1)), to_libp2p(peer(2)));
        let credentials = Credentials { secret: Some([9; 32]), ..Credentials::default() };
        let access = Access::visiting(me, Some(RUN), &credentials);
        let (turned, _told) = mpsc::channel(1);
        let admission = Admission { me, access, wire_version: WIRE_VERSION, turned, pending: Pending::default() };
        let mut stream = tokio::io::join(said, tokio::io::sink()).compat();
        let said = block_on(admission.exchange(role, other, &mut stream));
        assert!(said.is_err(), "nobody proves to know a secret that it does not know");
        !matches!(said, Err(AdmissionError::Broken(_) | AdmissionError::Foreign | AdmissionError::WireVersion { .. }))
    },
};

/// Where a peer says that it is.
pub const ANNOUNCEMENT: Decoder = Decoder {
    name: "announcement",
    valid: || contacts().into_iter().map(|contact| encode(&(contact, 300_u64))).collect(),
    take: |bytes| {
        let author = bytes.first_chunk().map_or(PeerId([0; 32]), |author| PeerId(*author));
        let Some(said) = Announcement::of(author, bytes) else { return false };
        let again = Announcement::of(author, &encode(&said)).expect("it was read");
        assert_eq!((&again.contact, again.counter), (&said.contact, said.counter), "it reads as something else");
        true
    },
};

/// The founder's list with its secrets, as it is kept.
pub const RENEWAL: Decoder = Decoder {
    name: "renewal",
    valid: || vec![encode(&renewal())],
    take: |bytes| {
        let Ok(renewal) = decode::<RevocationUpdate>(bytes) else { return false };
        assert_eq!(
            decode::<RevocationUpdate>(&encode(&renewal)).as_ref().ok(),
            Some(&renewal),
            "it reads as something else"
        );
        let _checked = renewal.is_of(peer(1), RUN);
        true
    },
};

/// Who has been a member, as it is kept.
pub const ROSTER: Decoder = Decoder {
    name: "roster",
    valid: || {
        let mut roster = Roster::default();
        for (name, terms) in (2..).zip(terms()) {
            roster.enter(peer(name), Some(Some(grant(terms).present(peer(name)))), 1_700_000_000, |_| true);
        }
        roster.enter(peer(9), None, 1_700_000_001, |_| true);
        vec![encode(&roster), encode(&Roster::default())]
    },
    take: |bytes| {
        let Ok(roster) = decode::<Roster>(bytes) else { return false };
        assert_eq!(decode::<Roster>(&encode(&roster)).as_ref().ok(), Some(&roster), "it reads as something else");
        let _told = (roster.tellable(), roster.mark());
        true
    },
};

/// Who has consented to whom for the founder's place, as it is kept: of all, and of this machine's user.
pub const APPOINTMENTS: Decoder = Decoder {
    name: "appointments",
    valid: || {
        let line = Line::default().followed_by(peer(4));
        vec![
            encode(&Appointments { line: line.clone(), consents: consents() }),
            encode(&Appointments::default()),
            encode(&(line, vec![1_u8; 64])),
        ]
    },
    take: |bytes| {
        let own = decode::<Consent>(bytes).inspect(|own| _ = own.signature(RUN, peer(2)));
        let Ok(all) = decode::<Appointments>(bytes) else { return own.is_ok() };
        assert_eq!(decode::<Appointments>(&encode(&all)).as_ref().ok(), Some(&all), "it reads as something else");
        let _told = (all.consents.tellable(None).mark(), all.line.is_sound(peer(1)));
        true
    },
};

/// Whom this machine knows, as it is kept.
pub const CONTACTS: Decoder = Decoder {
    name: "contacts",
    valid: || {
        let mut all = Contacts::default();
        all.enter(peer(1), &view(), contacts(), vec!["/ip4/127.0.0.1/tcp/4001".to_owned()]);
        vec![encode(&all), encode(&Contacts::default())]
    },
    take: |bytes| {
        let Some(contacts) = Contacts::decode(bytes) else { return false };
        assert_eq!(Contacts::decode(&encode(&contacts)).as_ref(), Some(&contacts), "it reads as something else");
        true
    },
};

/// This member's place in its view: a file, or what one of its slots holds.
pub const RECORD_FILE: Decoder = Decoder {
    name: "record-file",
    valid: || {
        let record = Record::of(view(), None);
        let listened = vec!["/ip4/127.0.0.1/tcp/4001"];
        let payload = encode(&(record.encode(), contacts(), 2_u32, listened));
        vec![slots(16 * 1024, &payload), payload]
    },
    take: |bytes| {
        let file = RecordFile::new(Path::new(""), RUN, peer(1));
        file.read(bytes).kept.or_else(|| file.kept(bytes)).is_some()
    },
};

/// What this member has saved to sign it: a file.
pub const MARK_FILE: Decoder = Decoder {
    name: "mark-file",
    valid: || {
        let saved = MarkStatus::Saved(Mark { step: 300, lineage: Lineage::NONE });
        [saved, MarkStatus::Nothing].into_iter().filter_map(|noted| Some(slots(4096, &noted.encode()?))).collect()
    },
    take: |bytes| MarkFile::new(Path::new(""), RUN, peer(1)).slots(bytes).iter().any(Option::is_some),
};

fn key(name: u8) -> ed25519::Keypair {
    let secret = ed25519::SecretKey::try_from_bytes(&mut [name; 32]);
    secret.expect("invariant: any 32 bytes are an Ed25519 key").into()
}

fn peer(name: u8) -> PeerId {
    from_libp2p(&Keypair::from(key(name)).public().to_peer_id()).expect("invariant: it is an Ed25519 key")
}

fn view() -> View {
    View::found(RUN, peer(1)).succeed([1, 2, 3].map(peer))
}

fn proof() -> Proof {
    let view = view();
    let head = Head { run: RUN, step: 7, view: view.id(), digest: Digest([3; 32]), manifest: Digest([4; 32]) };
    let sign = |name| (peer(name), key(name).sign(&head.encode()).try_into().expect("invariant: it has 64 bytes"));
    let mut signatures = [1, 2].map(sign).to_vec();
    signatures.sort();
    Proof { head, view, signatures }
}

fn manifest() -> Manifest {
    Manifest::raw(100, &RunSpec::default()).expect("invariant: such a run is possible")
}

fn contacts() -> Vec<Contact> {
    let addresses = || vec!["/ip4/192.0.2.1/tcp/4001".to_owned(), "/ip6/::1/udp/4001/quic-v1".to_owned()];
    [2, 3].map(|name| Contact { peer: peer(name), addresses: addresses() }).to_vec()
}

fn terms() -> [InvitationSpec; 2] {
    let whom = Some(PeerId([255; 32]));
    let expires = Some(u64::MAX);
    [
        InvitationSpec::default(),
        InvitationSpec { expires, whom, once: true, voters: Some(8), epoch: 3, ..InvitationSpec::default() },
    ]
}

/// With the same key each time, and with a signature of nobody's.
fn grant(terms: InvitationSpec) -> InvitationKey {
    let invitation = encode(&(terms, peer(5), vec![6_u8; 64]));
    InvitationKey::decode(&[&[5; 32][..], &invitation].concat()).expect("invariant: it is one")
}

fn renewal() -> RevocationUpdate {
    let hashes = [[8; 32], [9; 32]].map(|secret: [u8; 32]| *blake3::hash(&secret).as_bytes()).to_vec();
    let list = decode(&encode(&(3_u64, vec![PeerId([1; 32]), PeerId([2; 32])], hashes, vec![6_u8; 64])));
    RevocationUpdate { list: list.expect("invariant: it is one"), secrets: vec![[8; 32], [9; 32]] }
}

fn consents() -> Consents {
    let mut consents = Consents::default();
    let line = Line::default().followed_by(peer(4));
    [1, 2].into_iter().for_each(|name| consents.insert(&line, peer(name), vec![name; 64]));
    consents.insert(&line.followed_by(peer(5)), peer(3), vec![3; 64]);
    consents
}

/// A file of two slots of this size.
fn slots(size: usize, payload: &[u8]) -> Vec<u8> {
    let mut slot = Slot { run: RUN, peer: peer(1), version: 3, payload: payload.to_vec() }.encode();
    slot.resize(size, 0);
    slot.repeat(2)
}
