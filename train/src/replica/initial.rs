//! The values that a run begins with, on every machine the same.

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Device, GradientCheckpointingStrategy, Tensor};
use starling_run::manifest::schema::Entry;
use starling_run::{LeafKind, Schema};

use crate::device::DeviceSpec;
use crate::error::Error;
use crate::panics::caught;
use crate::task::Task;
use crate::task::draw::{beside_others, by_itself};

/// The values of the parameters of `schema` in a run of this seed, `[parameters]`: those that [`Task::initial`] gives, and of what the module does
/// not train itself, its own, if these are the same each time it is built. `leaves` are those of the module, as it has them.
pub(crate) fn values<T: Task>(task: &T, leaves: &[Entry], schema: &Schema, seed: u64) -> Result<Vec<f32>, Error> {
    let mut parameters = by_itself(|| caught(task.name(), "initial", || task.initial(schema, seed)))?;
    let (found, expected) = (parameters.len(), schema.parameters());
    if found != expected {
        let reason = format!("it has {expected} parameters, but `initial` gives {found}");
        return Err(Error::Module { task: task.name().to_owned(), reason });
    }
    if leaves.iter().all(|leaf| leaf.kind == LeafKind::Trained) {
        return Ok(parameters);
    }
    // On the CPU, whatever computes: no two devices need round alike.
    let device = DeviceSpec::Cpu.open()?.device.autodiff();
    let read = || caught(task.name(), "module", || Untrained::of(&task.module(&device), leaves));
    // Nobody else sets or draws between the two: what is drawn differs then, and what a seed is set for does not.
    let (read, again) = by_itself(|| Ok::<_, Error>((read()?, read()?)))?;
    for (own, again) in read.into_iter().zip(again).filter(|(own, again)| own.values == again.values) {
        let mut start = 0;
        let place = schema.entries().iter().find(|entry| {
            start += entry.elements();
            entry.path == own.path
        });
        let elements = place.expect("invariant: a schema is of the module's leaves").elements();
        parameters[start - elements..start].copy_from_slice(&again.values);
    }
    Ok(parameters)
}

/// A module as a task has built it, on a device with autodiff; if that was a clone of another one, they share no longer what forward passes change.
/// With checkpointing it is as it was: Burn keeps a module that has constants to one way of it.
pub(crate) fn separate<M: Module>(module: M, leaves: &[Entry], device: &Device) -> M {
    let keeps_running = leaves.iter().any(|leaf| leaf.kind == LeafKind::Running);
    let checkpoints = matches!(device.gradient_checkpointing_strategy(), Some(GradientCheckpointingStrategy::Balanced));
    if keeps_running && !checkpoints { beside_others(|| module.valid().train()) } else { module }
}

/// A leaf that its module does not train.
struct Own {
    path: String,
    values: Vec<f32>,
}

struct Untrained<'a> {
    leaves: std::slice::Iter<'a, Entry>,
    found: Vec<Own>,
}

impl Untrained<'_> {
    fn of<M: Module>(module: &M, leaves: &[Entry]) -> Vec<Own> {
        let mut untrained = Untrained { leaves: leaves.iter(), found: Vec::new() };
        module.visit(&mut untrained);
        untrained.found
    }
}

impl ModuleVisitor for Untrained<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if let Some(leaf) = self.leaves.next().filter(|leaf| leaf.kind != LeafKind::Trained) {
            let data = param.val().into_data();
            // Another type than f32 is no value of ours.
            let values = data.as_slice::<f32>().map(<[f32]>::to_vec).unwrap_or_default();
            if values.len() == leaf.elements() {
                self.found.push(Own { path: leaf.path.clone(), values });
            }
        }
    }
}
