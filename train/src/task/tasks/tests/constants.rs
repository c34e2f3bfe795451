//! Modules with leaves that are no numbers to train: whole numbers, truths, and numbers that are rounded to a few levels.

use burn::module::{Module, Param, ParamId, Quantizer};
use burn::nn::{Linear, LinearConfig};
use burn::tensor::quantization::{Calibration, QuantValue};
use burn::tensor::{Bool, Device, Int, Tensor, TensorData};
use starling_run::{ConstantKind, DataOptions, LeafKind, Learner, Manifest, Program, Workload};
use starling_topology::Digest;

use super::{ConstantSpec, TaskProgram, advance, check_constants, spec};
use crate::device::DeviceSpec;
use crate::network::schema;
use crate::task::{SampleSummary, Task, fingerprint};

/// A sum of those inputs that are picked.
#[derive(Module, Debug)]
struct Picking {
    picks: Param<Tensor<1, Int>>,
    counts: Vec<Param<Tensor<2, Bool>>>,
    linear: Linear,
}

#[derive(Clone)]
struct Picks {
    picks: Vec<i64>,
    counts: Vec<bool>,
    is_quantised: bool,
    /// After how many times that it was built what it picks is another each time.
    drawn_from: Option<i64>,
    built: std::sync::Arc<std::sync::atomic::AtomicI64>,
}

impl Picks {
    fn new(picks: &[i64], counts: &[bool]) -> Self {
        let (picks, counts, built) = (picks.to_vec(), counts.to_vec(), std::sync::Arc::default());
        Self { picks, counts, is_quantised: false, drawn_from: None, built }
    }

    fn workload(&self) -> Result<Box<dyn Workload>, starling_run::Error> {
        TaskProgram::new(self.clone(), DeviceSpec::Cpu).read(&DataOptions::default())
    }

    fn found(&self) -> (Manifest, Box<dyn Learner>) {
        let found = |workload: Box<dyn Workload>| {
            let manifest = workload.found(&spec())?;
            Ok::<_, starling_run::Error>((manifest.clone(), workload.open(&manifest)?))
        };
        self.workload().and_then(found).expect("a run")
    }
}

impl Task for Picks {
    type Module = Picking;
    type Batch = Tensor<2>;

    fn name(&self) -> &str {
        "picks"
    }

    fn data(&self) -> SampleSummary {
        SampleSummary { training: 64, held_out: 8, fingerprint: fingerprint(&[64.0]) }
    }

    fn module(&self, device: &Device) -> Picking {
        let built = self.built.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let mut picks = self.picks.clone();
        picks[0] += self.drawn_from.map_or(0, |from| (built - from).max(0));
        let counts = TensorData::new(self.counts.clone(), [1, self.counts.len()]);
        let linear = LinearConfig::new(picks.len(), 1).init(device);
        let scheme = device.settings().quantization.scheme.with_value(QuantValue::Q8S);
        Picking {
            picks: Param::initialized(ParamId::new(), Tensor::from_data(TensorData::from(&*picks), device)),
            counts: vec![Param::initialized(ParamId::new(), Tensor::from_data(counts, device))],
            linear: match self.is_quantised {
                true => linear.quantize_weights(&mut Quantizer::new(Calibration::MinMax, scheme)),
                false => linear,
            },
        }
    }

    fn batch(&self, samples: &[u32], device: &Device) -> Tensor<2> {
        let row = |sample: u32| (0..6).map(move |column| (sample * 7 % (column + 3)) as f32 / 8.0);
        let values: Vec<f32> = samples.iter().copied().flat_map(row).collect();
        Tensor::from_data(TensorData::new(values, [samples.len(), 6]), device)
    }

    fn loss(&self, module: &Picking, rows: Tensor<2>) -> Tensor<1> {
        let target = rows.clone().sum_dim(1);
        let picked = rows.select(1, module.picks.val());
        let counted = picked.clone() * module.counts[0].val().float().expand(picked.dims());
        (module.linear.forward(counted) - target).square().mean()
    }
}

#[test]
fn whole_numbers_and_truths_are_constants_that_take_no_part_in_training() {
    let (manifest, mut learner) = Picks::new(&[0, 2, 4], &[true, true, false]).found();
    assert_eq!((manifest.parameters(), manifest.frozen(), manifest.reduced().trained), (4, 0, 4));
    let told: Vec<_> =
        manifest.constants.iter().map(|constant| (&*constant.path, &*constant.shape, constant.kind)).collect();
    assert_eq!(told, [("picks", &[3][..], ConstantKind::Int), ("counts.0", &[1, 3], ConstantKind::Bool)]);
    // Of the values as they lie there, whatever a device makes of them.
    let bytes: Vec<u8> = [0_i64, 2, 4].iter().flat_map(|value| value.to_le_bytes()).collect();
    assert_eq!(manifest.constants[0].values.0, *blake3::hash(&bytes).as_bytes());
    assert_eq!(manifest.constants[1].values.0, *blake3::hash(&[1, 1, 0]).as_bytes());
    let before = learner.evaluate().expect("evaluated").loss;
    (0..100).for_each(|_| _ = advance(learner.as_mut(), manifest.reduced()));
    assert!(learner.evaluate().expect("evaluated").loss < before / 2.0, "it learns by what is picked");
    let state = learner.state();
    assert_eq!((state.parameters.len(), state.frozen.len()), (4, 0));
    assert!(state.moments.iter().all(|moment| moment.len() == 4));
    // An export has the float leaves; who reads it back builds the constants.
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("picks.safetensors");
    learner.export(&path).expect("exported");
    let bytes = std::fs::read(&path).expect("read");
    let mut names = safetensors::SafeTensors::deserialize(&bytes)
        .expect("tensors")
        .names()
        .into_iter()
        .map(str::to_owned)
        .collect::<Vec<_>>();
    names.sort_unstable();
    assert_eq!(names, ["linear.bias", "linear.weight"]);
    let own = TaskProgram::new(Picks::new(&[0, 2, 4], &[true, true, false]), DeviceSpec::Cpu);
    let (module, _) = own.module(&manifest, &state).expect("the run's");
    assert_eq!(module.picks.val().into_data().iter::<i64>().collect::<Vec<_>>(), [0, 2, 4]);
}

#[test]
fn whose_constants_are_others_is_refused_by_what_differs() {
    let (manifest, _) = Picks::new(&[0, 2, 4], &[true, true, false]).found();
    for (other, reason) in [
        (
            Picks::new(&[0, 2, 5], &[true, true, false]),
            "constants.picks is [3], int, with other values, the run has [3], int",
        ),
        (
            Picks::new(&[0, 2, 4], &[true; 3]),
            "constants.counts.0 is [1,3], bool, with other values, the run has [1,3], bool",
        ),
        (Picks::new(&[0, 2], &[true; 2]), "leaves.linear.weight is [2,1], the run has [3,1]"),
        (Picks::new(&[0, 2, 4], &[true]), "constants.counts.0 is [1,1], bool, the run has [1,3], bool"),
    ] {
        let error = other.workload().expect("read").open(&manifest).expect_err("refused").to_string();
        assert!(error.contains("the model of this program is not the run's") && error.contains(reason), "{error}");
    }
}

/// Hashed in pieces, of which the last is not full.
#[test]
fn a_long_constant_is_known_by_all_of_its_values() {
    let values: Vec<i64> = (0..20_000).map(|at| at * at - 7).collect();
    let device = Device::flex();
    let of = |values: &[i64]| {
        let picks = Param::initialized(ParamId::new(), Tensor::from_data(TensorData::from(values), &device));
        schema::constants(&Picking { picks, counts: Vec::new(), linear: LinearConfig::new(1, 1).init(&device) })
    };
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    assert_eq!(of(&values)[0].values.0, *blake3::hash(&bytes).as_bytes());
    for at in [0, 8_191, 8_192, 19_999] {
        let mut other = values.clone();
        other[at] += 1;
        assert_ne!(of(&other)[0].values, of(&values)[0].values, "the value at {at}");
    }
}

#[test]
fn constants_that_two_visits_find_unlike_are_refused_by_the_first_of_them() {
    let constant = |path: &str, shape: &[u32], kind, values| ConstantSpec {
        path: path.to_owned(),
        shape: shape.to_vec(),
        kind,
        values: Digest([values; 32]),
    };
    let mask = constant("mask", &[3], ConstantKind::Bool, 1);
    let table = constant("table", &[2, 2], ConstantKind::Int, 2);
    let both = [mask.clone(), table.clone()];
    assert_eq!([check_constants(&[], &[]), check_constants(&both, &both)], [Ok(()), Ok(())]);
    for (again, place) in [
        (vec![mask.clone(), constant("table", &[2, 2], ConstantKind::Int, 3)], ", from `table` on;"),
        (vec![mask.clone(), constant("table", &[4], ConstantKind::Int, 2)], ", from `table` on;"),
        (vec![constant("mask", &[3], ConstantKind::Int, 1), table.clone()], ", from `mask` on;"),
        (vec![table.clone(), mask.clone()], ", from `mask` on;"),
        // One that is not there has no path.
        (vec![mask.clone()], "is something else; such leaves"),
        (vec![mask, table.clone(), table], "is something else; such leaves"),
    ] {
        let error = check_constants(&both, &again).expect_err("unlike");
        assert!(error.contains(place) && error.contains("build them from the task's settings alone"), "{error}");
    }
}

/// A program builds its module again when it opens the run.
#[test]
fn a_constant_that_changes_after_the_run_was_founded_is_refused() {
    let (manifest, _) = Picks::new(&[0, 2, 4], &[true; 3]).found();
    let late = Picks { drawn_from: Some(1), ..Picks::new(&[0, 2, 4], &[true; 3]) };
    let workload = late.workload().expect("alike, twice");
    let error = workload.open(&manifest).expect_err("another by then").to_string();
    assert!(error.contains("built once more, it has other whole numbers or truths"), "{error}");
}

#[test]
fn what_can_be_no_constant_is_refused_by_its_path() {
    for (flawed, reason) in [
        (Picks { drawn_from: Some(0), ..Picks::new(&[0, 2], &[true]) }, "is something else, from `picks` on"),
        (
            Picks { is_quantised: true, ..Picks::new(&[0, 2], &[true]) },
            "its leaf `linear.weight` is quantised; dequantise it",
        ),
    ] {
        let error = flawed.workload().err().expect("refused").to_string();
        assert!(error.contains("the task `picks`") && error.contains(reason), "{error}");
    }
    let kinds = Picks::new(&[0, 2], &[true]).found().0.leaves;
    assert!(kinds.iter().all(|leaf| leaf.kind == LeafKind::Trained));
}
