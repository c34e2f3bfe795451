//! Burn's datasets as a task's samples.

use std::error::Error;
use std::fmt;
use std::io;
use std::marker::PhantomData;

use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::Dataset;
use burn::tensor::Device;
use serde::Serialize;
use starling_topology::Digest;
use starling_train::SampleSummary;

/// The items of Burn's datasets, and what makes batches of them, for a [`Task`](crate::Task) to take its samples from: those to train on are numbered from 0, and
/// those held out behind them.
///
/// ```no_run
/// use starling::burn::data::dataloader::batcher::Batcher;
/// use starling::burn::data::dataset::InMemDataset;
/// use starling::burn::module::Module;
/// use starling::burn::nn::{Linear, LinearConfig};
/// use starling::burn::tensor::{Device, Tensor, TensorData};
/// use starling::{BurnDataset, DrawSeed, SampleSummary, Task, burn};
///
/// #[derive(Module, Debug)]
/// struct Line {
///     layer: Linear,
/// }
///
/// /// Yours: any `Dataset` of Burn's, and the `Batcher` that goes with its items.
/// type Point = [f32; 2];
/// struct PointBatcher;
///
/// impl Batcher<Point, [Tensor<2>; 2]> for PointBatcher {
///     fn batch(&self, points: Vec<Point>, device: &Device) -> [Tensor<2>; 2] {
///         [0, 1].map(|axis| {
///             let values: Vec<f32> = points.iter().map(|point| point[axis]).collect();
///             Tensor::from_data(TensorData::new(values, [points.len(), 1]), device)
///         })
///     }
/// }
///
/// /// What makes a task of them.
/// struct Points(BurnDataset<Point, [Tensor<2>; 2]>);
///
/// impl Task for Points {
///     type Module = Line;
///     type Batch = [Tensor<2>; 2];
///
///     fn name(&self) -> &str {
///         "line"
///     }
///
///     fn data(&self) -> SampleSummary {
///         self.0.summary()
///     }
///
///     fn batch(&self, samples: &[u32], device: &Device) -> Self::Batch {
///         self.0.batch(samples, device)
///     }
///
///     /// So that an item of training that can't be had is an error, and no panic.
///     fn read_batch(&self, samples: &[u32], _: &DrawSeed, device: &Device) -> std::io::Result<Self::Batch> {
///         self.0.read(samples, device)
///     }
///
///     fn module(&self, device: &Device) -> Line {
///         Line { layer: LinearConfig::new(1, 1).init(device) }
///     }
///
///     fn loss(&self, line: &Line, [x, y]: Self::Batch) -> Tensor<1> {
///         (line.layer.forward(x) - y).square().mean()
///     }
/// }
///
/// # fn main() -> std::io::Result<()> {
/// let training = InMemDataset::new(vec![[0.0, 1.0], [1.0, 3.0], [2.0, 5.0]]);
/// let held_out = InMemDataset::new(vec![[3.0, 7.0]]);
/// let task = Points(BurnDataset::new(training, Some(Box::new(held_out)), PointBatcher)?);
/// # Ok(())
/// # }
/// ```
///
/// Items come in the order in which a run deals them, so that a dataset is not to be shuffled, gives the same item for a number each time, and keeps its
/// length: of one that has grown or shrunk since, nothing is read. Its loader is the run: Burn's `DataLoader` is not asked.
pub struct BurnDataset<I, O> {
    training: Box<dyn Items<I>>,
    held_out: Option<Box<dyn Items<I>>>,
    batcher: Box<dyn Batcher<I, O>>,
    /// How many items there were at first, to train on and held out: the latter are numbered behind the former, whatever becomes of either.
    counts: [u32; 2],
    fingerprint: Digest,
}

impl<I, O> BurnDataset<I, O> {
    /// Of these datasets, in which all items are read once for the [fingerprint](SampleSummary::fingerprint): how many there are, and blake3 of each as `postcard` writes
    /// it. What such an item holds has to be written alike on all machines: no hash maps, and no numbers that are computed otherwise on another platform.
    ///
    /// # Errors
    /// If an item can't be had or written, or there are more than a run can have.
    pub fn new<D, E, B>(training: D, held_out: Option<Box<dyn Dataset<I, E>>>, batcher: B) -> io::Result<Self>
    where
        I: Serialize + 'static,
        D: Dataset<I, E> + 'static,
        E: Error + Send + Sync + 'static,
        B: Batcher<I, O> + 'static,
    {
        let mut samples = Self::known_by(Digest([0; 32]), training, held_out, batcher)?;
        let mut hasher = blake3::Hasher::new();
        let mut first = 0;
        let parts = [Some(&samples.training), samples.held_out.as_ref()];
        // No dataset held out is the same data as one without items.
        for (items, count) in parts.into_iter().zip(samples.counts) {
            hasher.update(&u64::from(count).to_le_bytes());
            let (Some(items), count) = (items, count as usize) else { continue };
            for place in 0..count {
                for item in taken(&**items, vec![place], (first, count))? {
                    let written = postcard::to_stdvec(&item).map_err(|error| {
                        let sample = first + place;
                        io::Error::other(format!(
                            "sample {sample} can't be written for the fingerprint: {error}; give one by `BurnDataset::known_by`"
                        ))
                    })?;
                    hasher.update(&(written.len() as u64).to_le_bytes()).update(&written);
                }
            }
            first += count;
        }
        samples.fingerprint = Digest(*hasher.finalize().as_bytes());
        Ok(samples)
    }

    /// The same where a fingerprint tells this data from other data: of files, for example, that are too large to be read once before the first step. No
    /// item is read.
    ///
    /// # Errors
    /// If there are more items than a run can have.
    pub fn known_by<D, E, B>(
        fingerprint: Digest,
        training: D,
        held_out: Option<Box<dyn Dataset<I, E>>>,
        batcher: B,
    ) -> io::Result<Self>
    where
        I: 'static,
        D: Dataset<I, E> + 'static,
        E: Error + Send + Sync + 'static,
        B: Batcher<I, O> + 'static,
    {
        let [trained_on, apart] = [training.len(), held_out.as_ref().map_or(0, |items| items.len())];
        let counts = u32::try_from(trained_on).ok().zip(u32::try_from(apart).ok());
        let counts = counts.filter(|(trained_on, apart)| trained_on.checked_add(*apart).is_some());
        let (trained_on, apart) = counts.ok_or_else(|| {
            io::Error::other(format!(
                "there are {trained_on} items to train on and {apart} held out, but {} are possible",
                u32::MAX
            ))
        })?;
        Ok(Self {
            training: Box::new(Erased(training, PhantomData)),
            held_out: held_out.map(|items| Box::new(Erased(items, PhantomData)) as Box<dyn Items<I>>),
            batcher: Box::new(batcher),
            counts: [trained_on, apart],
            fingerprint,
        })
    }

    /// What [`Task::data`](crate::Task::data) is to say: as many samples as there were items when this was made.
    pub fn summary(&self) -> SampleSummary {
        let [training, held_out] = self.counts;
        SampleSummary { training, held_out, fingerprint: self.fingerprint }
    }

    /// The batch of the samples of these numbers, in their order.
    ///
    /// # Panics
    /// If one can't be had: with what [`Self::read`] says.
    pub fn batch(&self, samples: &[u32], device: &Device) -> O {
        self.read(samples, device).unwrap_or_else(|error| panic!("{error}"))
    }

    /// The same for [`Task::read_batch`](crate::Task::read_batch).
    ///
    /// # Errors
    /// If a sample can't be had: because there is none of this number, or its dataset says so, has become longer or shorter, or gives another number of items
    /// than it is asked for.
    pub fn read(&self, samples: &[u32], device: &Device) -> io::Result<O> {
        Ok(self.batcher.batch(self.items(samples)?, device))
    }

    /// The items of these numbers, in their order.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn items(&self, samples: &[u32]) -> io::Result<Vec<I>> {
        let [trained_on, apart] = self.counts;
        let is_held_out = |sample: &u32| *sample >= trained_on;
        let mut items = Vec::with_capacity(samples.len());
        for part in samples.chunk_by(|a, b| is_held_out(a) == is_held_out(b)) {
            let (source, first, count) = match (&self.held_out, part.first().is_some_and(is_held_out)) {
                (Some(held_out), true) => (held_out, trained_on, apart),
                (None, true) => return Err(io::Error::other(format!("sample {} is held out, but none is", part[0]))),
                (_, false) => (&self.training, 0, trained_on),
            };
            let places = part.iter().map(|sample| (sample - first) as usize).collect();
            items.extend(taken(&**source, places, (first as usize, count as usize))?);
        }
        Ok(items)
    }
}

/// The items at these places of a dataset of so many, the first of whose samples has this number.
fn taken<I>(source: &dyn Items<I>, places: Vec<usize>, (first, count): (usize, usize)) -> io::Result<Vec<I>> {
    let found = source.len();
    if found != count {
        // Which item a number stands for, and on which side it is, would be another thing by now.
        return Err(io::Error::other(format!(
            "the dataset of the samples from {first} on has {found} items by now, but had {count} at first: it must not change while it is used"
        )));
    }
    if let Some(place) = places.iter().find(|place| **place >= count) {
        let (sample, end) = (first + place, first + count);
        return Err(io::Error::other(format!("sample {sample} is not there: the dataset ends before sample {end}")));
    }
    let named = match &*places {
        [] => return Ok(Vec::new()),
        [place] => format!("sample {}", first + place),
        [place, others @ ..] => format!("sample {} or one of {} more", first + place, others.len()),
    };
    let asked = places.len();
    let items = source.get_many(places).map_err(|error| io::Error::other(format!("{named} can't be had: {error}")))?;
    match items.len() {
        given if given == asked => Ok(items),
        given => Err(io::Error::other(format!(
            "{named} can't be had: the dataset gives {given} items where {asked} are asked for"
        ))),
    }
}

/// A dataset, whatever its errors are.
trait Items<I>: Send + Sync {
    fn len(&self) -> usize;

    fn get_many(&self, places: Vec<usize>) -> Result<Vec<I>, Box<dyn Error + Send + Sync>>;
}

/// A dataset with errors of this type.
struct Erased<D, E>(D, PhantomData<fn() -> E>);

impl<I, D, E> Items<I> for Erased<D, E>
where
    D: Dataset<I, E>,
    E: Error + Send + Sync + 'static,
{
    fn len(&self) -> usize {
        self.0.len()
    }

    fn get_many(&self, places: Vec<usize>) -> Result<Vec<I>, Box<dyn Error + Send + Sync>> {
        Ok(self.0.get_many(places)?)
    }
}

impl<I, O> fmt::Debug for BurnDataset<I, O> {
    /// Counts only: the items may be anything.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BurnDataset").field("summary", &self.summary()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use burn::data::dataset::{DatasetError, InMemDataset};

    use super::*;

    /// The items themselves.
    struct Plain;

    impl Batcher<u32, Vec<u32>> for Plain {
        fn batch(&self, items: Vec<u32>, _: &Device) -> Vec<u32> {
            items
        }
    }

    /// Ten items, until something becomes of them.
    struct Failing {
        length: AtomicUsize,
        flaw: Flaw,
    }

    #[derive(Clone, Copy)]
    enum Flaw {
        None,
        /// The item at this place can't be read.
        Unreadable(usize),
        /// All are given but the last one that is asked for.
        TooFew,
    }

    impl Failing {
        fn new(flaw: Flaw) -> Self {
            Self { length: AtomicUsize::new(10), flaw }
        }
    }

    /// Of errors of its own.
    impl Dataset<u32, io::Error> for Failing {
        fn get(&self, index: usize) -> Result<u32, io::Error> {
            assert!(index < self.len(), "nobody asks beyond its end");
            match self.flaw {
                Flaw::Unreadable(place) if place == index => Err(io::Error::other("the disk is gone")),
                _ => Ok(100 + index as u32),
            }
        }

        fn get_many(&self, indexes: Vec<usize>) -> Result<Vec<u32>, io::Error> {
            let given = if matches!(self.flaw, Flaw::TooFew) { indexes.len() - 1 } else { indexes.len() };
            indexes.into_iter().take(given).map(|index| self.get(index)).collect()
        }

        fn len(&self) -> usize {
            self.length.load(Ordering::Relaxed)
        }
    }

    fn known(flaw: Flaw) -> BurnDataset<u32, Vec<u32>> {
        BurnDataset::known_by(Digest([7; 32]), Failing::new(flaw), None, Plain).expect("few")
    }

    fn of(training: &[u32], held_out: &[u32]) -> BurnDataset<u32, Vec<u32>> {
        let held_out = Box::new(InMemDataset::new(held_out.to_vec())) as Box<dyn Dataset<u32, DatasetError>>;
        BurnDataset::new(InMemDataset::new(training.to_vec()), Some(held_out), Plain).expect("few")
    }

    #[test]
    fn samples_are_the_items_by_their_numbers_and_those_held_out_come_behind() {
        let samples = of(&[10, 11, 12], &[20, 21]);
        let summary = samples.summary();
        assert_eq!((summary.training, summary.held_out), (3, 2));
        assert_eq!(samples.items(&[2, 0, 2]).expect("there"), [12, 10, 12]);
        assert_eq!(samples.items(&[4, 3]).expect("there"), [21, 20]);
        assert_eq!(samples.items(&[0, 4, 1, 3]).expect("there"), [10, 21, 11, 20]);
        assert_eq!(samples.read(&[1], &Device::default()).expect("there"), [11]);
        assert_eq!(samples.items(&[]).expect("none"), [0; 0]);
        let beyond = samples.items(&[5]).expect_err("there are 5").to_string();
        assert!(beyond.contains("sample 5 is not there: the dataset ends before sample 5"), "{beyond}");
        let alone = known(Flaw::None);
        assert_eq!((alone.summary().held_out, alone.summary().fingerprint), (0, Digest([7; 32])));
        assert!(alone.items(&[10]).expect_err("none is").to_string().contains("sample 10 is held out, but none is"));
    }

    #[test]
    fn the_fingerprint_is_of_all_items_in_their_order_on_their_sides() {
        let fingerprint = |training: &[u32], held_out: &[u32]| of(training, held_out).summary().fingerprint;
        let first = fingerprint(&[10, 11, 12], &[20, 21]);
        assert_eq!(fingerprint(&[10, 11, 12], &[20, 21]), first);
        for (training, held_out) in [
            (&[10, 12, 11][..], &[20, 21][..]),
            (&[10, 11, 12], &[20, 22]),
            (&[10, 11], &[12, 20, 21]),
            (&[10, 11, 12, 20, 21], &[]),
        ] {
            assert_ne!(fingerprint(training, held_out), first, "{training:?} {held_out:?}");
        }
        let alone =
            BurnDataset::new(InMemDataset::new(vec![10, 11]), None::<Box<dyn Dataset<u32, DatasetError>>>, Plain);
        assert_eq!(alone.expect("few").summary().fingerprint, fingerprint(&[10, 11], &[]), "no items are none");
    }

    #[test]
    fn what_can_not_be_had_is_told_by_its_sample() {
        for (flaw, parts) in [
            (Flaw::Unreadable(4), ["sample 3 or one of 1 more can't be had", "the disk is gone"]),
            (Flaw::TooFew, ["sample 3 or one of 1 more can't be had", "gives 1 items where 2 are asked for"]),
        ] {
            let told = known(flaw).read(&[3, 4], &Device::default()).expect_err("not there").to_string();
            assert!(parts.iter().all(|part| told.contains(part)), "{told}");
        }
        let all = BurnDataset::<u32, Vec<u32>>::new(Failing::new(Flaw::Unreadable(4)), None, Plain);
        let told = all.expect_err("it reads all").to_string();
        assert!(told.contains("sample 4 can't be had: the disk is gone"), "{told}");
    }

    /// Which of its items are those that are held out must not come to be another thing.
    #[test]
    fn a_dataset_that_grows_or_shrinks_is_refused_and_keeps_its_numbers() {
        let [training, apart] = [Flaw::None; 2].map(|flaw| std::sync::Arc::new(Failing::new(flaw)));
        let held_out = Box::new(apart.clone()) as Box<dyn Dataset<u32, io::Error>>;
        let samples = BurnDataset::known_by(Digest([7; 32]), training.clone(), Some(held_out), Plain).expect("few");
        assert_eq!(samples.items(&[9, 10]).expect("there"), [109, 100]);
        let told = |numbers: &[u32]| samples.items(numbers).expect_err("it has changed").to_string();
        for length in [12, 6] {
            training.length.store(length, Ordering::Relaxed);
            let summary = samples.summary();
            assert_eq!((summary.training, summary.held_out), (10, 10), "which members compare before they train");
            let part = format!("the dataset of the samples from 0 on has {length} items by now, but had 10 at first");
            assert!([&[5][..], &[9], &[10, 9]].into_iter().all(|numbers| told(numbers).contains(&part)), "{length}");
            assert_eq!(samples.items(&[19]).expect("there"), [109], "the other one has not changed");
        }
        training.length.store(10, Ordering::Relaxed);
        apart.length.store(11, Ordering::Relaxed);
        assert_eq!(samples.summary().held_out, 10);
        assert_eq!(samples.items(&[0]).expect("there"), [100]);
        assert!(told(&[10]).contains("the dataset of the samples from 10 on has 11 items by now, but had 10 at first"));
    }

    /// A dataset that is larger each time that it is asked how large it is.
    struct Growing(AtomicUsize);

    impl Dataset<u32, io::Error> for Growing {
        fn get(&self, index: usize) -> Result<u32, io::Error> {
            Ok(index as u32)
        }

        fn len(&self) -> usize {
            self.0.fetch_add(1, Ordering::Relaxed)
        }
    }

    #[test]
    fn one_that_grows_while_it_is_read_for_its_fingerprint_is_refused() {
        let all = BurnDataset::<u32, Vec<u32>>::new(Growing(AtomicUsize::new(10)), None, Plain);
        let told = all.expect_err("it grows").to_string();
        assert!(told.contains("has 11 items by now, but had 10 at first"), "{told}");
    }
}
