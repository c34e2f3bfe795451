//! The values that a run begins with, on every machine the same.

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{Device, GradientCheckpointingStrategy, Tensor};
use starling_run::manifest::schema::Entry;
use starling_run::{LeafKind, Schema};

use crate::device::DeviceSpec;
use crate::error::Error;
use crate::network::schema;
use crate::panics::caught;
use crate::task::Task;
use crate::task::draw::{DrawSeed, beside_others, by_itself};

/// The values of the parameters of `schema` in a run of this seed, `[parameters]`: those that [`Task::initial`] gives, or that the module's own initializers draw,
/// and of what the module does not train itself, its own, if these are the same each time it is built. `leaves` are those of the module, as it has them.
pub(crate) fn values<T: Task>(task: &T, leaves: &[Entry], schema: &Schema, seed: u64) -> Result<Vec<f32>, Error> {
    // On the CPU, whatever computes: no two devices need round alike.
    let device = DeviceSpec::Cpu.open()?.device.autodiff();
    let mut parameters = match task.draws_itself() {
        false => by_itself(|| caught(task.name(), "initial", || task.initial(schema, seed)))?,
        true => {
            let built = |kept: fn(LeafKind) -> bool| {
                caught(task.name(), "module", || Read::of(&task.module(&device), leaves, kept))
            };
            let own = DrawSeed::new(seed, 0, 0).alone("initial", &device, || built(|_| true))?;
            let mut parameters = vec![0.0; schema.parameters()];
            own.iter().for_each(|own| own.put_into(&mut parameters, schema));
            parameters
        }
    };
    let (found, expected) = (parameters.len(), schema.parameters());
    if found != expected {
        let reason = format!("it has {expected} parameters, but `initial` gives {found}");
        return Err(Error::Module { task: task.name().to_owned(), reason });
    }
    if leaves.iter().all(|leaf| leaf.kind == LeafKind::Trained) {
        return Ok(parameters);
    }
    let is_own = |kind| kind != LeafKind::Trained;
    let read = || caught(task.name(), "module", || Read::of(&task.module(&device), leaves, is_own));
    // Nobody else sets or draws between the two: what is drawn differs then, and what a seed is set for does not.
    let (read, again) = by_itself(|| Ok::<_, Error>((read()?, read()?)))?;
    let constant = read.into_iter().zip(again).filter(|(own, again)| own.values == again.values);
    constant.for_each(|(own, _)| own.put_into(&mut parameters, schema));
    Ok(parameters)
}

/// A module as a task has built it, on a device with autodiff; if that was a clone of another one, they share no longer what forward passes change.
/// With checkpointing it is as it was: Burn keeps a module that has constants to one way of it.
pub(crate) fn separate<M: Module>(module: M, leaves: &[Entry], device: &Device) -> M {
    let keeps_running = leaves.iter().any(|leaf| leaf.kind == LeafKind::Running);
    let checkpoints = matches!(device.gradient_checkpointing_strategy(), Some(GradientCheckpointingStrategy::Balanced));
    if keeps_running && !checkpoints { beside_others(|| module.valid().train()) } else { module }
}

/// `module`, each leaf of which has the shape that `leaves` say: what Burn keeps the other way round until it is drawn, is drawn. What differs even so stays.
pub(crate) fn settled<M: Module>(module: M, leaves: &[Entry]) -> M {
    let shape = |entry: &Entry| entry.shape.clone();
    match schema::of_module(&module).entries().iter().map(shape).eq(leaves.iter().map(shape)) {
        true => module,
        false => beside_others(|| module.map(&mut Draw)),
    }
}

struct Draw;

impl ModuleMapper for Draw {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let _ = param.val();
        param
    }
}

/// A leaf as its module has it.
struct Own {
    path: String,
    values: Vec<f32>,
}

impl Own {
    fn put_into(&self, parameters: &mut [f32], schema: &Schema) {
        let mut start = 0;
        let place = schema.entries().iter().find(|entry| {
            start += entry.elements();
            entry.path == self.path
        });
        let elements = place.expect("invariant: a schema is of the module's leaves").elements();
        parameters[start - elements..start].copy_from_slice(&self.values);
    }
}

/// The values of leaves of some kinds.
struct Read<'a> {
    leaves: std::slice::Iter<'a, Entry>,
    is_read: fn(LeafKind) -> bool,
    found: Vec<Own>,
}

impl Read<'_> {
    fn of<M: Module>(module: &M, leaves: &[Entry], is_read: fn(LeafKind) -> bool) -> Vec<Own> {
        let mut read = Read { leaves: leaves.iter(), is_read, found: Vec::new() };
        module.visit(&mut read);
        read.found
    }
}

impl ModuleVisitor for Read<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if let Some(leaf) = self.leaves.next().filter(|leaf| (self.is_read)(leaf.kind)) {
            let data = param.val().into_data();
            // Another type than f32 is no value of ours.
            let values = data.as_slice::<f32>().map(<[f32]>::to_vec).unwrap_or_default();
            if values.len() == leaf.elements() {
                self.found.push(Own { path: leaf.path.clone(), values });
            }
        }
    }
}
