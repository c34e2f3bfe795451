//! Members that share the run's data, other data, or too much of it.

use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use futures::future::BoxFuture;
use starling_run::{CheckpointStore, DataDescription, Delimiter, Error, Learner, RunSpec};
use starling_topology::Digest;
use tempfile::TempDir;
use tokio_util::compat::{Compat, TokioAsyncReadCompatExt};

use super::*;
use crate::access::Credentials;
use crate::member::snapshots::Snapshots;
use crate::net::rate_limiter::RateLimiter;
use crate::transfer::checkpoint_provider::CheckpointProvider;
use crate::transfer::{ChunkProviders, SharedFiles, serve};

const TABLE: &str = "a,b,y\n1,2,0\n2,1,1\n3,2,0\n4,1,1\n5,2,0\n";
const STALL: Duration = Duration::from_secs(30);

const TABLES: Kind = Kind { name: "csv", files: &["table.csv"], holds_out: false };

type Stream = Compat<tokio::io::DuplexStream>;

struct Nobody;

impl Observer for Nobody {
    fn report(&self, _: &Report) {}
}

/// Reads tables, compressed or not, with blanks or without.
struct Tables;

impl Program for Tables {
    fn check(&self, _: &Manifest) -> Result<(), Error> {
        Ok(())
    }

    fn kind(&self, _: &str) -> Option<Kind> {
        Some(TABLES)
    }

    fn files(&self, source: &str) -> Result<(Kind, Vec<PathBuf>), Error> {
        Ok((TABLES, vec![source.into()]))
    }

    fn read(&self, options: &DataOptions) -> Result<Box<dyn Workload>, Error> {
        let (max, mut text) = (options.max_file_bytes, Vec::new());
        let bytes = fs::read(&options.source).map_err(|error| Error::Program(error.into()))?;
        let packed = GzDecoder::new(&bytes[..]);
        let unpacked: Box<dyn Read> = if packed.header().is_some() { Box::new(packed) } else { Box::new(&bytes[..]) };
        unpacked.take(max.saturating_add(1)).read_to_end(&mut text).map_err(|error| Error::Program(error.into()))?;
        if text.len() as u64 > max {
            return Err(Error::Program(format!("it has more than {max} bytes, unpacked").into()));
        }
        text.retain(|byte| *byte != b' ');
        Ok(Box::new(Table::new(&text)))
    }
}

/// A table of two columns and a label, below their names.
struct Table(DataDescription);

impl Table {
    fn new(text: &[u8]) -> Self {
        Self(DataDescription {
            kind: TABLES.name.to_owned(),
            samples: text.iter().filter(|byte| **byte == b'\n').count() as u64 - 1,
            features: 2,
            shape: [1, 1, 2],
            label: vec![2],
            header: Some(true),
            delimiter: Some(Delimiter::Comma),
            fingerprint: Digest(*blake3::hash(text).as_bytes()),
            ..DataDescription::none()
        })
    }
}

impl Workload for Table {
    fn description(&self) -> DataDescription {
        self.0.clone()
    }

    fn training(&self) -> u64 {
        self.0.samples
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

fn peer(name: u8) -> PeerId {
    PeerId([name; 32])
}

struct Fixture {
    dir: TempDir,
    chunk_providers: BTreeMap<PeerId, Arc<ChunkProviders>>,
    manifest: Manifest,
    place: Place,
}

impl Fixture {
    /// A run on a small table, which nobody shares yet.
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temp dir");
        let manifest = Table::new(TABLE.as_bytes()).found(&RunSpec::default()).expect("a run");
        let place = Place::new(&Settings::new(dir.path().join("state")), &manifest, Arc::new(Tables), TABLES);
        Self { dir, chunk_providers: BTreeMap::new(), manifest, place }
    }

    /// One more member, which shares these bytes as its table.
    fn share(&mut self, name: u8, bytes: &[u8]) {
        let path = self.dir.path().join(format!("{name}.csv"));
        fs::write(&path, bytes).expect("written");
        let data = SharedDataset::open(TABLES.files, &[path]).expect("readable").map(Arc::new);
        let pace = RateLimiter::new(0);
        let store = CheckpointStore::open(self.dir.path().join(name.to_string()), 1).expect("a store");
        let checkpoint_provider = CheckpointProvider::new(1, &self.manifest, store, pace.clone());
        self.chunk_providers.insert(
            peer(name),
            ChunkProviders::new(Snapshots::new(pace), checkpoint_provider, SharedFiles { data, initial: None }),
        );
    }

    async fn download(&self, limit: u64) -> Result<Box<dyn Workload>, NodeError> {
        let open = |peer: PeerId| -> BoxFuture<'static, io::Result<Stream>> {
            let (ours, theirs) = tokio::io::duplex(64 * 1024);
            let chunk_providers = self.chunk_providers[&peer].clone();
            tokio::spawn(async move { serve(theirs.compat(), chunk_providers, STALL).await });
            Box::pin(std::future::ready(Ok(ours.compat())))
        };
        let members: Vec<PeerId> = self.chunk_providers.keys().copied().collect();
        download(&open, &members, &self.place, limit, &Nobody).await
    }
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).expect("in memory");
    encoder.finish().expect("in memory")
}

#[tokio::test]
async fn whoever_lies_about_the_whole_is_passed_over() {
    let mut fixture = Fixture::new();
    let other = TABLE.replace("3,2,0", "3,3,0");
    (1..=2).for_each(|name| fixture.share(name, other.as_bytes()));
    let error = fixture.download(1 << 20).await.err().expect("it is not the run's data").to_string();
    assert!(error.contains("does not hold the run's data") && error.contains("--data PATH"), "{error}");
    assert!(!fixture.place.folder.exists());
    // Two against one: theirs comes first.
    fixture.share(3, TABLE.as_bytes());
    let dataset = fixture.download(1 << 20).await.expect("one is honest");
    assert_eq!(dataset.description(), fixture.place.manifest.data);
    assert_eq!(fs::read(fixture.place.folder.join("table.csv")).expect("here"), TABLE.as_bytes());
    assert!(!fixture.place.part.exists());
    let found = fixture.place.look(&Nobody).await.expect("readable").expect("here");
    assert_eq!(found.description(), fixture.place.manifest.data);
}

#[tokio::test]
async fn the_same_samples_may_be_in_other_files() {
    let mut fixture = Fixture::new();
    fixture.share(1, &packed(TABLE.replace(',', " , ").as_bytes()));
    let dataset = fixture.download(1 << 20).await.expect("blanks and compression change nothing");
    assert_eq!(dataset.description(), fixture.place.manifest.data);
}

#[tokio::test]
async fn what_is_too_large_or_unpacks_to_too_much_is_not_taken() {
    let mut fixture = Fixture::new();
    let long = TABLE.replace("3,2,0", &format!("{}3,2,0", " ".repeat(1 << 20)));
    fixture.share(1, &packed(long.as_bytes()));
    let error = fixture.download(1 << 20).await.err().expect("a bomb").to_string();
    assert!(error.contains("unpacked"), "{error}");
    fixture.share(1, long.as_bytes());
    let error = fixture.download(1 << 20).await.err().expect("too large").to_string();
    assert!(error.contains("--data-limit 2"), "{error}");
    // Somebody else has it in a form that fits.
    fixture.share(2, TABLE.as_bytes());
    fixture.download(1 << 20).await.expect("that one is taken");
}

/// Reads no files.
struct Bringing;

impl Program for Bringing {
    fn check(&self, _: &Manifest) -> Result<(), Error> {
        Ok(())
    }

    fn kind(&self, name: &str) -> Option<Kind> {
        Tables.kind(name)
    }

    fn files(&self, _: &str) -> Result<(Kind, Vec<PathBuf>), Error> {
        Ok((Kind::PROGRAM, Vec::new()))
    }

    fn read(&self, _: &DataOptions) -> Result<Box<dyn Workload>, Error> {
        Ok(Box::new(Table::new(TABLE.as_bytes())))
    }
}

#[tokio::test]
async fn a_program_that_brings_the_runs_table_asks_nobody_for_it() {
    let fixture = Fixture::new();
    let settings = Settings::new(fixture.dir.path().join("state"));
    let identity = Identity::generate();
    let (peer, credentials) = (Identity::generate().peer_id(), Credentials::default());
    let nobody = Member { peer, addresses: Vec::new(), run: None, credentials };
    let observer = Arc::new(Nobody);
    let samples = of_run(&settings, Arc::new(Bringing), &fixture.manifest, (&identity, &nobody), observer).await;
    let samples = samples.expect("it is here");
    assert_eq!(samples.workload.description(), fixture.manifest.data);
}

#[test]
fn flags_for_a_table_of_ones_own_are_told_where_there_is_none() {
    let settings = Settings::new("state".into());
    assert_eq!(unheeded(&settings), None);
    let said = Settings { label: Some("kind".to_owned()), ignored: vec!["id".to_owned()], ..settings };
    let told = unheeded(&said).expect("two flags");
    assert!(told.starts_with("--label, --ignore: of no effect") && told.contains("(--data)"), "{told}");
}

#[tokio::test]
async fn flags_for_a_table_are_told_before_the_runs_is_taken() {
    struct Told(std::sync::Mutex<Vec<String>>);
    impl Observer for Told {
        fn report(&self, report: &Report) {
            if let Report::Warning { message } = report {
                self.0.lock().expect("one thread").push(message.clone());
            }
        }
    }

    let fixture = Fixture::new();
    fs::create_dir_all(&fixture.place.folder).expect("made");
    fs::write(fixture.place.folder.join("table.csv"), TABLE).expect("written");
    let identity = Identity::generate();
    let (peer, credentials) = (Identity::generate().peer_id(), Credentials::default());
    let nobody = Member { peer, addresses: Vec::new(), run: None, credentials };
    for (delimiter, expected) in [(None, 0), (Some(Delimiter::Tab), 1)] {
        let settings = Settings { delimiter, ..Settings::new(fixture.dir.path().join("state")) };
        let observer = Arc::new(Told(std::sync::Mutex::default()));
        let taken =
            of_run(&settings, Arc::new(Tables), &fixture.manifest, (&identity, &nobody), observer.clone()).await;
        assert_eq!(taken.expect("it is here").workload.description(), fixture.manifest.data);
        let told = observer.0.lock().expect("one thread");
        assert!(
            told.len() == expected && told.iter().all(|told| told.starts_with("--delimiter: of no effect")),
            "{told:?}"
        );
    }
}

/// Whoever has asked for weights must not train without.
#[tokio::test]
async fn flags_for_a_table_are_refused_where_the_runs_data_is_none() {
    let fixture = Fixture::new();
    let data = DataDescription {
        kind: DIGITS.to_owned(),
        label: Vec::new(),
        header: None,
        delimiter: None,
        ..fixture.manifest.data.clone()
    };
    let manifest = Manifest { data, ..fixture.manifest.clone() };
    let identity = Identity::generate();
    let (peer, credentials) = (Identity::generate().peer_id(), Credentials::default());
    let nobody = Member { peer, addresses: Vec::new(), run: None, credentials };
    let settings = Settings::new(fixture.dir.path().join("state"));
    for (settings, flags) in [
        (Settings { weights: Some("w".to_owned()), ..settings.clone() }, "but --weights says how a table is read"),
        (Settings { held_out_file: Some("others.csv".into()), ..settings.clone() }, "but --held-out-file says how"),
        (
            Settings { split_by: Some("s".to_owned()), header: Some(false), ..settings },
            "but --no-header and --split-by say how a table is read; leave them out",
        ),
    ] {
        let taken = of_run(&settings, Arc::new(Tables), &manifest, (&identity, &nobody), Arc::new(Nobody)).await;
        let told = taken.err().expect("refused").to_string();
        assert!(told.contains("the run's data is no table (digits)") && told.contains(flags), "{told}");
    }
}
