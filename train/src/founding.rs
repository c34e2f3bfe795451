//! What the founder of a run works out: the manifest over its own data.

use starling_run::{Manifest, RunSpec, initial};

use crate::error::Error;
use crate::schema;
use starling_data::Dataset;

/// The manifest of a new run over `dataset`.
///
/// # Errors
/// If a value is out of range, the model cannot work on the data, or `dataset` was split with another seed or
/// another held-out share than `spec` says.
pub fn found(spec: &RunSpec, dataset: &Dataset) -> Result<Manifest, Error> {
    dataset.check_split(spec.held_out, spec.seed)?;
    let mut manifest = Manifest::of(spec, dataset.description());
    // Before the model is built: its size must be known to be sane.
    manifest.check().map_err(starling_run::Error::from)?;
    let schema = schema::of(&manifest.model, manifest.data.shape, manifest.data.classes);
    manifest.schema = schema.fingerprint();
    manifest.initial = initial::digest(&initial::draw(&schema, manifest.seed));
    Ok(manifest)
}

#[cfg(test)]
mod tests {

    use starling_run::ModelSpec;

    use super::*;
    use starling_data::DataOptions;

    #[test]
    fn a_founders_choice_must_fit_its_data() {
        let dataset = Dataset::load(&DataOptions::default()).expect("the embedded digits");
        let manifest = found(&RunSpec::default(), &dataset).expect("the defaults make a run");
        assert_eq!(Manifest::decode(&manifest.encode()), Ok(manifest));
        let refused = |change: fn(&mut RunSpec)| {
            let mut spec = RunSpec::default();
            change(&mut spec);
            found(&spec, &dataset).expect_err("not a run").to_string()
        };
        for (change, reason) in [
            // Of a model of this size, nothing may be built.
            (
                (|spec| spec.model = ModelSpec::Mlp { hidden: vec![65_536; 3] }) as fn(&mut RunSpec),
                "`model` is not usable",
            ),
            (|spec| spec.seed = 1, "the data was split with held_out 200/1000 and seed 42"),
            (|spec| spec.held_out = 0.5, "but the run says 500/1000"),
        ] {
            let message = refused(change);
            assert!(message.contains(reason), "{message}");
        }
    }
}
