//! Burn's datasets and batchers as a task's samples: the same run, to the bit, as if the task had numbered them itself.

use std::error::Error;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use starling::burn::data::dataloader::batcher::Batcher;
use starling::burn::data::dataset::transform::{Mapper, MapperDataset};
use starling::burn::data::dataset::{Dataset, DatasetError, InMemDataset};
use starling::burn::module::Module;
use starling::burn::nn::{Linear, LinearConfig};
use starling::burn::tensor::{Device, Tensor, TensorData};
use starling::{
    BurnDataset, DeviceSpec, DrawSeed, FoundOptions, JoinOptions, OptimizerSpec, Outcome, Run, RunSpec, SampleSummary,
    Settings, Summary, Task, burn, fingerprint,
};

const TRAINING: u32 = 96;
const HELD_OUT: u32 = 24;

/// Two numbers, and what is to be learned of them.
type Row = [f32; 3];
type Rows = [Tensor<2>; 2];

fn row(sample: u32) -> Row {
    let [a, b] = [(sample * 37 % 101) as f32 / 101.0, (sample * 17 % 89) as f32 / 89.0];
    [a, b, 2.0 * a - b + 0.5]
}

fn batch(rows: &[Row], device: &Device) -> Rows {
    let tensor =
        |values: Vec<f32>, width: usize| Tensor::from_data(TensorData::new(values, [rows.len(), width]), device);
    [
        tensor(rows.iter().flat_map(|row| [row[0], row[1]]).collect(), 2),
        tensor(rows.iter().map(|row| row[2]).collect(), 1),
    ]
}

#[derive(Module, Debug)]
struct Line {
    layer: Linear,
}

/// Where the samples come from.
enum Source {
    /// From this file, by their numbers.
    Numbers,
    Datasets(BurnDataset<Row, Rows>),
}

struct Points(Source);

impl Task for Points {
    type Module = Line;
    type Batch = Rows;

    fn name(&self) -> &str {
        "points"
    }

    fn data(&self) -> SampleSummary {
        match &self.0 {
            Source::Numbers => {
                SampleSummary { training: TRAINING, held_out: HELD_OUT, fingerprint: fingerprint(&[1.0]) }
            }
            Source::Datasets(samples) => samples.summary(),
        }
    }

    fn module(&self, device: &Device) -> Line {
        Line { layer: LinearConfig::new(2, 1).init(device) }
    }

    fn batch(&self, samples: &[u32], device: &Device) -> Rows {
        match &self.0 {
            Source::Numbers => batch(&samples.iter().map(|sample| row(*sample)).collect::<Vec<_>>(), device),
            Source::Datasets(datasets) => datasets.batch(samples, device),
        }
    }

    fn read_batch(&self, samples: &[u32], _: &DrawSeed, device: &Device) -> std::io::Result<Rows> {
        match &self.0 {
            Source::Numbers => Ok(self.batch(samples, device)),
            Source::Datasets(datasets) => datasets.read(samples, device),
        }
    }

    fn loss(&self, line: &Line, [x, y]: Rows) -> Tensor<1> {
        (line.layer.forward(x) - y).square().mean()
    }
}

struct RowBatcher;

impl Batcher<Row, Rows> for RowBatcher {
    fn batch(&self, rows: Vec<Row>, device: &Device) -> Rows {
        batch(&rows, device)
    }
}

/// Rows of their numbers.
struct AsRow;

impl Mapper<u32, Row> for AsRow {
    fn map(&self, sample: &u32) -> Row {
        row(*sample)
    }
}

fn held(numbers: std::ops::Range<u32>) -> InMemDataset<Row> {
    InMemDataset::new(numbers.map(row).collect())
}

fn mapped(numbers: std::ops::Range<u32>) -> MapperDataset<InMemDataset<u32>, AsRow, u32> {
    MapperDataset::new(InMemDataset::new(numbers.collect()), AsRow)
}

const ALL: u32 = TRAINING + HELD_OUT;

/// The rows that are there, which are as the numbers say.
fn of_memory() -> Points {
    let apart = Box::new(held(TRAINING..ALL));
    let samples = BurnDataset::known_by(fingerprint(&[1.0]), held(0..TRAINING), Some(apart), RowBatcher);
    Points(Source::Datasets(samples.expect("few")))
}

/// The same, made of numbers when they are asked for.
fn of_mapper() -> Points {
    let apart = Box::new(mapped(TRAINING..ALL));
    let samples = BurnDataset::known_by(fingerprint(&[1.0]), mapped(0..TRAINING), Some(apart), RowBatcher);
    Points(Source::Datasets(samples.expect("few")))
}

fn spec() -> RunSpec {
    RunSpec {
        steps: 60,
        batch_size: 24,
        micro_batch: 4,
        evaluate_every: 20,
        optimizer: OptimizerSpec::sgd(0.1),
        ..RunSpec::default()
    }
}

fn settings(dir: &Path) -> Result<Settings, Box<dyn Error>> {
    Ok(Settings { listen: vec!["/ip4/127.0.0.1/tcp/0".parse()?], ..Settings::new(dir.to_owned()) })
}

/// Two members of one run to its end.
fn trained(founder: Points, joiner: Points) -> Result<[Summary; 2], Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let options = FoundOptions { min_peers: 2, ..FoundOptions::new(spec()) };
    let founder = Run::new(founder).on(DeviceSpec::Cpu).found(settings(&dir.path().join("first"))?, options)?;
    let ticket = founder.ticket().expect("it listens");
    let joiner =
        Run::new(joiner).on(DeviceSpec::Cpu).join(settings(&dir.path().join("second"))?, JoinOptions::new(ticket))?;
    Ok([founder.wait()?, joiner.wait()?])
}

/// Members of one run may have the same samples in different ways.
#[test]
fn members_that_take_items_of_datasets_learn_the_same_to_the_bit_as_by_numbers() -> Result<(), Box<dyn Error>> {
    let by_numbers = || Points(Source::Numbers);
    let [expected, _] = trained(by_numbers(), by_numbers())?;
    assert_eq!((expected.outcome, expected.steps, expected.world_size), (Outcome::Complete, 60, 2));
    let learned = expected.held_out_loss.expect("some are held out");
    assert!(learned < 0.05, "it learns: {learned}");
    for (founder, joiner) in [
        (of_memory(), of_memory()),
        (of_mapper(), of_mapper()),
        (by_numbers(), of_memory()),
        (of_memory(), of_mapper()),
    ] {
        for summary in trained(founder, joiner)? {
            assert_eq!((&summary.values, summary.held_out_loss), (&expected.values, expected.held_out_loss));
            assert_eq!((summary.world_size, summary.outcome), (2, Outcome::Complete));
        }
    }
    Ok(())
}

/// Whether the items are made or held; and nobody with other ones joins.
#[test]
fn the_items_tell_the_data_from_other_data() -> Result<(), Box<dyn Error>> {
    let read = |training: std::ops::Range<u32>| {
        let held_out = Some(Box::new(held(TRAINING..ALL)) as Box<dyn Dataset<Row, DatasetError>>);
        BurnDataset::new(held(training), held_out, RowBatcher)
    };
    let made = BurnDataset::new(mapped(0..TRAINING), Some(Box::new(mapped(TRAINING..ALL))), RowBatcher)?;
    assert_eq!(made.summary(), read(0..TRAINING)?.summary());
    let dir = tempfile::tempdir()?;
    let founder = Run::new(Points(Source::Datasets(made))).on(DeviceSpec::Cpu);
    let options = FoundOptions { min_peers: 2, ..FoundOptions::new(spec()) };
    let founder = founder.found(settings(&dir.path().join("first"))?, options)?;
    let other = Points(Source::Datasets(read(1..TRAINING + 1)?));
    let joining = JoinOptions::new(founder.ticket().expect("it listens"));
    let joiner = Run::new(other).on(DeviceSpec::Cpu).join(settings(&dir.path().join("second"))?, joining)?;
    let told = joiner.wait().expect_err("other data").to_string();
    assert!(told.contains("fingerprint"), "{told}");
    founder.leave();
    founder.wait()?;
    Ok(())
}

/// Rows of which the one at this place can be read so many times.
struct Fading {
    rows: InMemDataset<Row>,
    left: AtomicU32,
}

impl Dataset<Row> for Fading {
    fn get(&self, index: usize) -> Result<Row, DatasetError> {
        let left = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        match left {
            Ok(_) => self.rows.get(index),
            Err(_) => Err(DatasetError::new(std::io::Error::other("rows.db is locked"))),
        }
    }

    fn len(&self) -> usize {
        self.rows.len()
    }
}

#[test]
fn an_item_that_can_not_be_had_ends_its_member_with_what_the_dataset_says() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let fading = Fading { rows: held(0..TRAINING), left: AtomicU32::new(400) };
    let samples = BurnDataset::known_by(fingerprint(&[1.0]), fading, Some(Box::new(held(TRAINING..ALL))), RowBatcher)?;
    let member = Run::new(Points(Source::Datasets(samples))).on(DeviceSpec::Cpu);
    let member =
        member.found(settings(&dir.path().join("alone"))?, FoundOptions::new(RunSpec { steps: 1 << 30, ..spec() }))?;
    let told = member.wait().expect_err("it can't go on").to_string();
    assert!(told.contains("can't be read: sample ") && told.contains("can't be had: rows.db is locked"), "{told}");
    Ok(())
}
