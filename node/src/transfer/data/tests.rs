//! Donors of files that work, die and lie.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::BoxFuture;
use starling_run::SharedDataset;
use tokio_util::compat::{Compat, TokioAsyncReadCompatExt};

use super::super::tests::empty_provider;
use super::super::{ChunkProviders, MAX_REQUEST_BYTES, SharedFiles, serve};
use super::*;
use crate::member::snapshots::Snapshots;
use crate::net::frame::{self, decode, encode};
use crate::net::rate_limiter::RateLimiter;

const STALL: Duration = Duration::from_secs(30);
const MIB: usize = 1 << 20;
/// Of the files in these tests, in chunks.
const CHUNKS: usize = 6;

type Stream = Compat<tokio::io::DuplexStream>;

fn peer(name: u8) -> PeerId {
    PeerId([name; 32])
}

/// A file of six chunks.
fn content(seed: u8) -> Vec<u8> {
    (0..CHUNKS * MIB - 5).map(|at| (at / MIB) as u8 ^ seed).collect()
}

/// Members, by the first byte of their names, with what they hand out.
#[derive(Clone, Default)]
struct Swarm {
    chunk_providers: BTreeMap<u8, Arc<ChunkProviders>>,
    /// Chunks that a member hands out before it dies.
    dying: BTreeMap<u8, Arc<AtomicUsize>>,
}

impl Swarm {
    fn with(mut self, name: u8, data: Option<Arc<SharedDataset>>) -> Self {
        self.chunk_providers.insert(
            name,
            ChunkProviders::new(
                Snapshots::new(RateLimiter::new(0)),
                empty_provider(),
                SharedFiles { data, initial: None },
            ),
        );
        self
    }

    fn dying_after(mut self, name: u8, chunks: usize) -> Self {
        self.dying.insert(name, Arc::new(AtomicUsize::new(chunks)));
        self
    }

    fn open(&self) -> impl Fn(PeerId) -> BoxFuture<'static, io::Result<Stream>> + '_ {
        |peer| {
            let Some(chunk_providers) = self.chunk_providers.get(&peer.0[0]).cloned() else {
                return Box::pin(std::future::ready(Err(io::ErrorKind::ConnectionRefused.into())));
            };
            let left = self.dying.get(&peer.0[0]).cloned();
            let (ours, theirs) = tokio::io::duplex(64 * 1024);
            match left {
                None => drop(tokio::spawn(async move { serve(theirs.compat(), chunk_providers, STALL).await })),
                Some(left) => drop(tokio::spawn(die(theirs.compat(), chunk_providers, left))),
            }
            Box::pin(std::future::ready(Ok(ours.compat())))
        }
    }
}

/// Passes questions on, until so many chunks were asked for.
async fn die(mut theirs: Stream, chunk_providers: Arc<ChunkProviders>, left: Arc<AtomicUsize>) {
    let (ours, behind) = tokio::io::duplex(64 * 1024);
    tokio::spawn(async move { serve(behind.compat(), chunk_providers, STALL).await });
    let mut ours = ours.compat();
    while let Ok(question) = frame::read(&mut theirs, MAX_REQUEST_BYTES).await {
        let is_chunk = matches!(decode(&question).expect("a request"), Request::Chunk { .. });
        if is_chunk && left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_err() {
            return;
        }
        frame::write(&mut ours, &question).await.expect("it serves");
        let answer = frame::read(&mut ours, 2 * MIB).await.expect("it answers");
        frame::write(&mut theirs, &answer).await.expect("read");
    }
}

struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn share(&self, name: &str, bytes: &[u8]) -> Arc<SharedDataset> {
        let path = self.0.path().join(name);
        std::fs::write(&path, bytes).expect("written");
        Arc::new(SharedDataset::open(&["table.csv"], &[path]).expect("readable").expect("files"))
    }

    fn downloaded(&self) -> Vec<u8> {
        std::fs::read(self.0.path().join("here/table.csv")).expect("downloaded")
    }

    /// Fetches what is shared, whatever it is; all progress that was told.
    async fn fetch(&self, swarm: &Swarm, members: &[u8], max_bytes: u64) -> Result<Vec<(u64, u64)>, String> {
        let members: Vec<PeerId> = members.iter().map(|name| peer(*name)).collect();
        let mut told = Vec::new();
        let wanted = DataRequest {
            files: FileSet::DataSet,
            names: &["table.csv"],
            folder: &self.0.path().join("here"),
            only: None,
            known: None,
            max_bytes,
        };
        let progress = |here, of| told.push((here, of));
        let fetched = fetch(&swarm.open(), &members, wanted, progress, async || Ok(())).await;
        fetched.map(|()| told).map_err(|failure| failure.reason)
    }
}

#[tokio::test]
async fn files_come_from_all_who_share_them() {
    let files = Files::new();
    let shared = files.share("a.csv", &content(0));
    let swarm = Swarm::default().with(1, Some(shared.clone())).with(2, None).with(3, Some(shared));
    let told = files.fetch(&swarm, &[1, 2, 3, 4], u64::MAX).await.expect("two share it");
    let all = content(0).len() as u64;
    assert_eq!((told.first(), told.last(), told.len()), (Some(&(0, all)), Some(&(all, all)), CHUNKS + 1));
    assert_eq!(files.downloaded(), content(0));
    // All is here: nobody is asked for a chunk.
    let swarm = swarm.dying_after(1, 0).dying_after(3, 0);
    assert_eq!(files.fetch(&swarm, &[1, 3], u64::MAX).await, Ok(vec![(all, all)]));
}

#[tokio::test]
async fn a_donor_that_dies_costs_no_chunk_that_is_here() {
    let files = Files::new();
    let shared = files.share("a.csv", &content(0));
    let swarm = Swarm::default().with(1, Some(shared.clone())).dying_after(1, 2);
    let reason = files.fetch(&swarm, &[1], u64::MAX).await.expect_err("nobody is left");
    assert!(reason.contains("no donor is left"), "{reason}");
    // After a restart, exactly the others are asked for.
    let swarm = Swarm::default().with(1, Some(shared.clone())).dying_after(1, 1).with(2, Some(shared.clone()));
    let swarm = swarm.dying_after(2, CHUNKS - 3);
    let told = files.fetch(&swarm, &[1, 2], u64::MAX).await.expect("they have the rest between them");
    assert_eq!(told.first(), Some(&(2 * MIB as u64, content(0).len() as u64)));
    assert!(told.is_sorted(), "{told:?}");
    assert_eq!(files.downloaded(), content(0));
}

#[tokio::test]
async fn what_most_members_have_is_offered_first() {
    let files = Files::new();
    let (ours, other) = (files.share("a.csv", &content(0)), files.share("b.csv", &content(1)));
    let swarm = Swarm::default().with(1, Some(other)).with(2, Some(ours.clone())).with(3, Some(ours.clone()));
    let members = [peer(1), peer(2), peer(3)];
    let (folder, mut tried) = (files.0.path().join("here"), Vec::new());
    let (set, names) = (FileSet::DataSet, &["table.csv"]);
    let wanted = DataRequest { files: set, names, folder: &folder, only: None, known: None, max_bytes: u64::MAX };
    let check = async || -> Result<(), String> {
        tried.push(files.downloaded());
        Err("it is not the run's".to_owned())
    };
    let failure = fetch(&swarm.open(), &members, wanted, |_, _| {}, check).await.expect_err("none is the run's");
    assert!(failure.is_shared && failure.reason.contains("not the run's"), "{failure:?}");
    assert_eq!(tried, [content(0), content(1)], "each, those first that most have");
    // Files of another kind than the run's are no offer.
    let wanted = DataRequest { names: &["images"], ..wanted };
    let failure = fetch(&swarm.open(), &members, wanted, |_, _| {}, async || Ok(())).await.expect_err("it is a table");
    assert!(!failure.is_shared && failure.reason.contains("such a data set has: images"), "{failure:?}");
}

#[tokio::test]
async fn who_does_not_share_hands_nothing_out() {
    let files = Files::new();
    let swarm = Swarm::default().with(1, None);
    let reason = files.fetch(&swarm, &[1], u64::MAX).await.expect_err("it shares nothing");
    assert!(reason.contains("does not have it"), "{reason}");
    // Not even a chunk whose name is known.
    let shared = files.share("a.csv", &content(0));
    let of = shared.id();
    let chunk = shared.manifest().files[0].chunks[0];
    let mut stream = swarm.open()(peer(1)).await.expect("open");
    let reply = chunks::ask(&mut stream, &Request::Chunk { of, chunk }, 2 * MIB, STALL).await.expect("answered");
    assert_eq!(reply, Reply::NotHere);
    let reason = files.fetch(&swarm, &[], u64::MAX).await.expect_err("nobody");
    assert!(reason.contains("no donor"), "{reason}");
}

#[tokio::test]
async fn a_liar_is_left_alone_and_the_others_serve_on() {
    let files = Files::new();
    let shared = files.share("a.csv", &content(0));
    let manifest = shared.manifest().clone();
    let swarm = Swarm::default().with(1, Some(shared));
    let liar = |answer: Vec<u8>| {
        let manifest = manifest.clone();
        move |mut stream: Stream| async move {
            while let Ok(bytes) = frame::read(&mut stream, MAX_REQUEST_BYTES).await {
                let reply = match decode(&bytes).expect("a request") {
                    Request::DataManifest => Reply::Manifest(manifest.encode()),
                    Request::Chunk { .. } => Reply::Chunk(answer.clone()),
                    Request::Manifest { .. }
                    | Request::Run
                    | Request::Newest
                    | Request::Checkpoint(_)
                    | Request::View(_)
                    | Request::Members
                    | Request::Preprocessing
                    | Request::Process
                    | Request::Chain(_)
                    | Request::InitialManifest => Reply::NotHere,
                };
                if frame::write(&mut stream, &encode(&reply)).await.is_err() {
                    return;
                }
            }
        }
    };
    for answer in [Vec::new(), vec![9; MIB], vec![0; 2 * MIB]] {
        let folder = tempfile::tempdir().expect("a folder");
        let honest = swarm.open();
        let open = |donor: PeerId| -> BoxFuture<'static, io::Result<Stream>> {
            if donor == peer(1) {
                return honest(donor);
            }
            let (ours, theirs) = tokio::io::duplex(64 * 1024);
            tokio::spawn(liar(answer.clone())(theirs.compat()));
            Box::pin(std::future::ready(Ok(ours.compat())))
        };
        let wanted = DataRequest {
            files: FileSet::DataSet,
            names: &["table.csv"],
            folder: folder.path(),
            only: None,
            known: None,
            max_bytes: u64::MAX,
        };
        let members = [peer(2), peer(1), peer(3)];
        fetch(&open, &members, wanted, |_, _| {}, async || Ok(())).await.expect("one is honest");
        assert_eq!(std::fs::read(folder.path().join("table.csv")).expect("here"), content(0));
    }
}

#[tokio::test]
async fn more_than_the_limit_is_not_taken() {
    let files = Files::new();
    let swarm = Swarm::default().with(1, Some(files.share("a.csv", &content(0))));
    let reason = files.fetch(&swarm, &[1], content(0).len() as u64 - 1).await.expect_err("too long");
    assert!(reason.contains("6291451 bytes, but may have 6291450"), "{reason}");
}

#[tokio::test]
async fn members_tell_of_each_other_within_bounds() {
    let chunk_providers =
        ChunkProviders::new(Snapshots::new(RateLimiter::new(0)), empty_provider(), SharedFiles::default());
    let contact = |name: usize| Contact {
        peer: PeerId([name as u8; 32]),
        addresses: vec!["/".repeat(MAX_ADDRESS_BYTES); MAX_ADDRESSES],
    };
    chunk_providers.know((0..MAX_TOLD + 1).map(contact), std::iter::empty());
    let swarm = Swarm { chunk_providers: [(1, chunk_providers)].into(), dying: BTreeMap::new() };
    let told = members(swarm.open()(peer(1)).await.expect("open")).await.expect("it tells");
    assert_eq!(told, (0..MAX_TOLD).map(contact).collect::<Vec<_>>());
}

#[tokio::test]
async fn files_that_are_asked_for_alone_are_fetched_and_others_are_left_as_they_are() {
    let files = Files::new();
    let paths: Vec<_> = (0..3).map(|at| files.0.path().join(format!("{at}.bin"))).collect();
    (0..3).for_each(|at| std::fs::write(&paths[usize::from(at)], content(at)).expect("written"));
    let names = ["part-*.bin"];
    let shared = Arc::new(SharedDataset::open(&names, &paths).expect("readable").expect("files"));
    let whole = shared.manifest().bytes();
    let swarm = Swarm::default().with(1, Some(shared));
    let folder = files.0.path().join("here");
    std::fs::create_dir(&folder).expect("made");
    // Nobody writes to what is not asked for, whatever it holds.
    std::fs::write(folder.join("part-00000.bin"), b"other").expect("written");
    let wanted = |only, max_bytes| DataRequest {
        files: FileSet::DataSet,
        names: &names,
        folder: &folder,
        only,
        known: None,
        max_bytes,
    };
    let [second, fourth] = [1, 3].map(|number| [FileRequest { number, bytes: 0..=u64::MAX }]);
    let mut told = Vec::new();
    let progress = |here, of| told.push((here, of));
    let fetched = fetch(&swarm.open(), &[peer(1)], wanted(Some(&second), u64::MAX), progress, async || Ok(())).await;
    fetched.expect("it has it");
    let one = content(1).len() as u64;
    assert_eq!((told.first(), told.last(), told.len()), (Some(&(0, whole)), Some(&(one, whole)), CHUNKS + 1));
    let read = |name| std::fs::read(folder.join(name)).ok();
    assert_eq!(read("part-00001.bin"), Some(content(1)));
    assert_eq!((read("part-00000.bin"), read("part-00002.bin")), (Some(b"other".to_vec()), None));
    // What is too large as a whole is too large, and nobody has a file that the data does not have.
    for (only, max_bytes, part) in [(&second, whole - 1, "may have"), (&fourth, whole, "not as many files")] {
        let asked = wanted(Some(only), max_bytes);
        let failure = fetch(&swarm.open(), &[peer(1)], asked, |_, _| {}, async || Ok(())).await.expect_err("refused");
        assert!(failure.is_shared && failure.reason.contains(part), "{failure:?}");
        assert_eq!(failure.too_large, (max_bytes < whole).then_some(whole));
    }
}
