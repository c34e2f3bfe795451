//! Files that come one by one, from members that share the run's, others, or parts of both.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

use futures::future::BoxFuture;
use starling_run::data::{ArrivalOrder, SampleSchedule, TOKENS};
use starling_run::{
    CheckpointStore, DataDescription, DataOptions, Error, Kind, Learner, Program, RunSpec, SharedDataset,
};
use starling_topology::{Digest, ShufflePolicy};
use tempfile::TempDir;
use tokio_util::compat::{Compat, TokioAsyncReadCompatExt};

use super::*;
use crate::member::snapshots::Snapshots;
use crate::net::rate_limiter::RateLimiter;
use crate::settings::Settings;
use crate::transfer::checkpoint_provider::CheckpointProvider;
use crate::transfer::{ChunkProviders, SharedFiles, serve};

type Stream = Compat<tokio::io::DuplexStream>;

const KIND: Kind = Kind { name: TOKENS, files: &["tokens.json", "tokenizer.json", "tokens-*.bin"], holds_out: false };
/// Files of tokens, and how many bytes each has: a whole chunk, and a part of one.
const SHARDS: usize = 4;
const SHARD: usize = (1 << 20) + 1000;
const LIMIT: u64 = 64 << 20;

/// The content of a file of tokens.
fn shard(at: usize) -> Vec<u8> {
    (0..SHARD).map(|byte| (byte / 1000 + at * 31) as u8).collect()
}

/// What says of all files: the hash of each, one a line.
fn told() -> Vec<u8> {
    (0..SHARDS).map(|at| format!("{}\n", blake3::hash(&shard(at)).to_hex())).collect::<String>().into_bytes()
}

/// A text whose files of tokens are as long as [`SHARD`].
#[derive(Debug)]
struct Tracker {
    folder: PathBuf,
    hashes: Vec<String>,
    here: Mutex<BTreeSet<usize>>,
}

impl ArrivalTracker for Tracker {
    fn files(&self) -> usize {
        NAMED.len() + self.hashes.len()
    }

    fn is_here(&self, file: usize) -> bool {
        file < NAMED.len() || self.here.lock().expect("no panic").contains(&file)
    }

    fn take_in(&self, file: usize) -> Result<(), String> {
        let name = KIND.file(file).expect("a file");
        let bytes = fs::read(self.folder.join(&name)).map_err(|error| format!("cannot read `{name}`: {error}"))?;
        if *blake3::hash(&bytes).to_hex() != *self.hashes[file - NAMED.len()] {
            return Err(format!("`{name}` is another one"));
        }
        self.here.lock().expect("no panic").insert(file);
        Ok(())
    }

    fn bytes(&self, file: usize) -> Option<u64> {
        (file >= NAMED.len()).then_some(SHARD as u64)
    }

    /// As they are numbered; it begins with the first file of tokens.
    fn order(&self, _: SampleSchedule, _: RunPosition) -> Option<ArrivalOrder> {
        Some(ArrivalOrder { files: (0..self.files()).collect(), to_begin: 3 })
    }
}

struct Text;

impl Program for Text {
    fn check(&self, _: &Manifest) -> Result<(), Error> {
        Ok(())
    }

    fn kind(&self, _: &str) -> Option<Kind> {
        Some(KIND)
    }

    fn files(&self, source: &str) -> Result<(Kind, Vec<PathBuf>), Error> {
        Ok((KIND, vec![source.into()]))
    }

    fn read(&self, options: &DataOptions) -> Result<Box<dyn Workload>, Error> {
        let folder = PathBuf::from(&options.source);
        let read = |name| fs::read(folder.join(name)).map_err(|error| Error::Program(error.into()));
        let (told, _tokenizer) = (read("tokens.json")?, read("tokenizer.json")?);
        let hashes = String::from_utf8_lossy(&told).lines().map(ToOwned::to_owned).collect();
        Ok(Box::new(Opened { told, tracker: Arc::new(Tracker { folder, hashes, here: Mutex::default() }) }))
    }
}

struct Opened {
    told: Vec<u8>,
    tracker: Arc<Tracker>,
}

impl Workload for Opened {
    fn description(&self) -> DataDescription {
        let fingerprint = Digest(*blake3::hash(&self.told).as_bytes());
        DataDescription { kind: TOKENS.to_owned(), samples: 100, fingerprint, ..DataDescription::none() }
    }

    fn training(&self) -> u64 {
        100
    }

    fn arrivals(&self) -> Option<Arc<dyn ArrivalTracker>> {
        Some(self.tracker.clone())
    }

    fn describe(&self, spec: &RunSpec) -> Result<Manifest, Error> {
        self.found(spec)
    }

    fn found(&self, spec: &RunSpec) -> Result<Manifest, Error> {
        Ok(Manifest::of(spec, self.description()))
    }

    fn open_with(self: Box<Self>, _: &Manifest, _: Option<Vec<f32>>) -> Result<Box<dyn Learner>, Error> {
        unreachable!("nothing is trained here")
    }
}

#[derive(Default)]
struct Told(Mutex<Vec<Report>>);

impl Observer for Told {
    fn report(&self, report: &Report) {
        self.0.lock().expect("no panic").push(report.clone());
    }
}

fn peer(name: u8) -> PeerId {
    PeerId([name; 32])
}

/// A run on such a text, and members that share something.
struct Fixture {
    dir: TempDir,
    manifest: Manifest,
    place: Place,
    sharers: BTreeMap<PeerId, Arc<ChunkProviders>>,
    told: Told,
    /// Whether members can be reached.
    is_up: AtomicBool,
}

impl Fixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temp dir");
        let tracker = Tracker { folder: dir.path().to_owned(), hashes: Vec::new(), here: Mutex::default() };
        let opened = Opened { told: told(), tracker: Arc::new(tracker) };
        let spec = RunSpec { shuffle: ShufflePolicy::BLOCKS, ..RunSpec::default() };
        let manifest = opened.found(&spec).expect("a run");
        assert!(manifest.can_arrive());
        let place = Place::new(&Settings::new(dir.path().join("state")), &manifest, Arc::new(Text), KIND);
        let is_up = AtomicBool::new(true);
        Self { dir, manifest, place, sharers: BTreeMap::new(), told: Told::default(), is_up }
    }

    /// One more member, which shares the text as `change` leaves it, by the number of each file. Where its files are.
    fn share(&mut self, name: u8, change: impl Fn(usize, &mut Vec<u8>)) -> Vec<PathBuf> {
        let folder = self.dir.path().join(name.to_string());
        fs::create_dir_all(&folder).expect("made");
        let whole = [told(), b"{}".to_vec()].into_iter().chain((0..SHARDS).map(shard));
        let write = |(file, mut bytes): (usize, Vec<u8>)| {
            change(file, &mut bytes);
            let path = folder.join(KIND.file(file).expect("a file"));
            fs::write(&path, bytes).expect("written");
            path
        };
        let paths: Vec<PathBuf> = whole.enumerate().map(write).collect();
        let data = SharedDataset::open(KIND.files, &paths).expect("readable").map(Arc::new);
        let (pace, store) = (RateLimiter::new(0), CheckpointStore::open(folder.join("kept"), 1).expect("a store"));
        let checkpoints = CheckpointProvider::new(1, &self.manifest, store, pace.clone());
        let shared = SharedFiles { data, initial: None };
        self.sharers.insert(peer(name), ChunkProviders::new(Snapshots::new(pace), checkpoints, shared));
        paths
    }

    fn open(&self) -> impl Fn(PeerId) -> BoxFuture<'static, io::Result<Stream>> + '_ {
        |peer| {
            if !self.is_up.load(Relaxed) {
                return Box::pin(std::future::ready(Err(io::ErrorKind::ConnectionRefused.into())));
            }
            let (ours, theirs) = tokio::io::duplex(64 * 1024);
            let providers = self.sharers[&peer].clone();
            tokio::spawn(async move { serve(theirs.compat(), providers, Duration::from_secs(30)).await });
            Box::pin(std::future::ready(Ok(ours.compat())))
        }
    }

    fn members(&self) -> Vec<PeerId> {
        self.sharers.keys().copied().collect()
    }

    async fn begin(&self) -> Result<Option<ArrivingData>, NodeError> {
        let begun = begin(&self.open(), &self.members(), &self.place, LIMIT, &self.told).await;
        begun.map(|(_, rest)| rest.map(|rest| ArrivingData { patience: Duration::from_millis(700), ..rest }))
    }

    async fn complete(&self, rest: &ArrivingData) -> Result<(), NodeError> {
        let position = || RunPosition::Behind(0..=0);
        rest.complete(&self.open(), || self.members(), position, &self.told).await
    }

    fn path(&self, file: usize) -> PathBuf {
        self.place.folder.join(KIND.file(file).expect("a file"))
    }

    fn check_whole(&self) {
        assert!((0..SHARDS).all(|at| fs::read(self.path(2 + at)).expect("here") == shard(at)));
        assert!(!self.place.is_arriving());
    }

    /// How many files were said to be here, each time, and of how many.
    fn counts(&self) -> Vec<(usize, usize)> {
        let told = self.told.0.lock().expect("no panic");
        let count = |report: &Report| match report {
            Report::Arriving { files, of, .. } => Some((*files, *of)),
            _ => None,
        };
        told.iter().filter_map(count).collect()
    }

    fn warnings(&self) -> Vec<String> {
        let told = self.told.0.lock().expect("no panic");
        let warning = |report: &Report| match report {
            Report::Warning { message } => Some(message.clone()),
            _ => None,
        };
        told.iter().filter_map(warning).collect()
    }
}

#[tokio::test]
async fn the_rest_comes_after_what_it_takes_to_begin() {
    let mut fixture = Fixture::new();
    fixture.share(1, |_, _| {});
    let rest = fixture.begin().await.expect("begun").expect("files are missing");
    let here = |at: usize| fixture.path(2 + at).exists();
    assert_eq!((0..SHARDS).map(here).collect::<Vec<_>>(), [true, false, false, false]);
    assert!(fixture.place.is_arriving());
    fixture.complete(&rest).await.expect("all of it is shared");
    fixture.check_whole();
    assert_eq!(fixture.counts(), [(3, 6), (4, 6), (5, 6), (6, 6)]);
    // All is here: the next time, nobody is asked.
    fixture.sharers.clear();
    assert!(fixture.begin().await.expect("it is here").is_none());
    assert!(!fixture.place.is_arriving());
}

/// Three share other files, one the run's: theirs comes first, again and again, where nobody remembers it.
#[tokio::test]
async fn who_shares_what_is_not_the_runs_keeps_nobody_without_data() {
    let mut fixture = Fixture::new();
    (1..=3).for_each(|name| drop(fixture.share(name, |file, bytes| bytes[0] ^= u8::from(file >= 2))));
    fixture.share(4, |_, _| {});
    // Files of another text, and of other lengths, cost nothing at all.
    fixture.share(5, |file, bytes| bytes.truncate(if file == 4 { 1 } else { bytes.len() }));
    fixture.share(6, |file, bytes| bytes.extend(if file >= 2 { vec![7; SHARD] } else { Vec::new() }));
    let rest = fixture.begin().await.expect("one is honest").expect("files are missing");
    fixture.complete(&rest).await.expect("one is honest");
    fixture.check_whole();
    let (fetched, all) = (rest.fetched.load(Relaxed), (SHARDS * SHARD) as u64);
    assert!(fetched <= all + SHARD as u64, "{fetched} bytes for {all}: a lie costs a file, once");
    assert!(rest.trusted_bytes() <= all, "and of what was wrong, nothing counts");
}

#[tokio::test]
async fn what_lies_there_is_not_changed_for_a_file_of_another_length_and_who_gets_nothing_else_leaves() {
    let mut fixture = Fixture::new();
    fixture.share(1, |_, _| {});
    let rest = fixture.begin().await.expect("begun").expect("files are missing");
    // A part of the next file is here.
    let part = shard(1)[..1 << 20].to_vec();
    fs::write(fixture.path(3), &part).expect("written");
    fixture.sharers.clear();
    fixture.share(2, |file, bytes| bytes.truncate(if file >= 2 { 1 } else { bytes.len() }));
    let NodeError::NoData { reason } = fixture.complete(&rest).await.expect_err("nobody has it") else {
        panic!("another error")
    };
    assert!(reason.contains("not to be the run's") || reason.contains("has 1 bytes"), "{reason}");
    assert_eq!(fs::read(fixture.path(3)).expect("read"), part, "as it was");
    assert!(fixture.place.is_arriving() && (0..SHARDS).skip(2).all(|at| !fixture.path(2 + at).exists()));
    // The right one may come later, and goes on from there.
    fixture.share(3, |_, _| {});
    let before = rest.fetched.load(Relaxed);
    fixture.complete(&rest).await.expect("one has it");
    fixture.check_whole();
    assert_eq!(rest.fetched.load(Relaxed) - before, ((SHARDS - 1) * SHARD - part.len()) as u64);
}

#[tokio::test]
async fn what_can_not_be_had_keeps_nothing_else_waiting() {
    let mut fixture = Fixture::new();
    let paths = fixture.share(1, |_, _| {});
    let rest = fixture.begin().await.expect("begun").expect("files are missing");
    // Who shares it has lost the file that comes next.
    fs::write(&paths[3], b"lost").expect("written");
    fixture.complete(&rest).await.expect_err("one can't be had");
    let here: Vec<bool> = (2..2 + SHARDS).map(|file| rest.arrivals.is_here(file)).collect();
    assert_eq!(here, [true, false, true, true]);
    fs::write(&paths[3], shard(1)).expect("written");
    fixture.complete(&rest).await.expect("it is back");
    fixture.check_whole();
}

/// Until somebody else is there, nobody is to blame that nothing comes.
#[tokio::test]
async fn who_is_alone_waits_for_members() {
    let mut fixture = Fixture::new();
    fixture.share(1, |_, _| {});
    let rest = fixture.begin().await.expect("begun").expect("files are missing");
    let rest = ArrivingData { patience: FIRST_RETRY / 2, ..rest };
    let looks = Cell::new(0);
    let members = || {
        looks.set(looks.get() + 1);
        if looks.get() < 3 { Vec::new() } else { fixture.members() }
    };
    let position = || RunPosition::Behind(0..=0);
    // The first times nobody is there: that alone would have ended it.
    let completed = rest.complete(&fixture.open(), members, position, &fixture.told).await;
    completed.expect("somebody comes");
    fixture.check_whole();
    // And where somebody is there who does not answer, it ends.
    let other = Fixture::new();
    let rest = {
        let mut other = other;
        other.share(1, |_, _| {});
        let rest = other.begin().await.expect("begun").expect("files are missing");
        other.is_up.store(false, Relaxed);
        other.complete(&rest).await.expect_err("nobody answers")
    };
    assert!(matches!(rest, NodeError::NoData { .. }), "{rest}");
}

#[tokio::test]
async fn a_run_that_needs_all_goes_on_from_what_has_arrived() {
    let mut fixture = Fixture::new();
    fixture.share(1, |_, _| {});
    fixture.begin().await.expect("begun").expect("files are missing");
    // What was downloaded before that is older.
    fs::create_dir_all(&fixture.place.part).expect("made");
    fs::write(fixture.place.part.join("old"), b"old").expect("written");
    for has_mark in [true, false] {
        fixture.place.stop_arriving().await.expect("moved");
        assert!(!fixture.place.is_arriving() && !fixture.place.folder.exists(), "{has_mark}");
        let part = fixture.place.part.join(KIND.file(2).expect("a file"));
        assert!(fs::read(part).expect("kept") == shard(0) && !fixture.place.part.join("old").exists());
    }
    // And back again.
    let rest = fixture.begin().await.expect("begun").expect("files are missing");
    assert_eq!((rest.arrivals.here(), fixture.place.part.exists()), (3, false));
    assert_eq!(rest.fetched.load(Relaxed), 0, "nothing of it was fetched again");
    // Where nothing came, nothing is left.
    let empty = Fixture::new();
    assert!(matches!(empty.begin().await.err(), Some(NodeError::NotShared { .. })));
    assert!(!empty.place.is_arriving() && !empty.place.folder.exists());
}

#[tokio::test]
async fn a_mark_that_stays_is_no_reason_to_end() {
    let mut fixture = Fixture::new();
    fixture.share(1, |_, _| {});
    let rest = fixture.begin().await.expect("begun").expect("files are missing");
    fs::remove_file(fixture.place.mark()).expect("removed");
    fs::create_dir(fixture.place.mark()).expect("made");
    fixture.complete(&rest).await.expect("all is here");
    let warnings = fixture.warnings();
    assert!(warnings.len() == 1 && warnings[0].contains("all of the data is here"), "{warnings:?}");
    fs::remove_dir(fixture.place.mark()).expect("removed");
    fixture.check_whole();
}
