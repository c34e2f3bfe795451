//! `starling eval`: how good a trained model is on samples whose labels are known.

use serde_json::{Map, json};
use starling::export::{EvaluationSet, InputSpec, LabelPolicy, ModelError, Reader};

use super::{CommandError, Context, EXIT_DONE, print};
use crate::cli::EvalFlags;
use crate::output::format;

pub(in super::super) fn eval(context: &Context, flags: &EvalFlags) -> Result<u8, CommandError> {
    let device = context.load(&flags.values())?.device()?;
    let model = flags.model.place().open(device)?;
    let inputs = InputSpec { separated_by: flags.delimiter, ..model.inputs()? };
    let mut reader = Reader::open(&flags.data, &inputs, LabelPolicy::Wanted).map_err(ModelError::from)?;
    let which = if flags.held_out { EvaluationSet::HeldOut } else { EvaluationSet::All };
    let evaluation = model.evaluate(&mut reader, which)?;
    let origin = &model.description().origin;
    print(
        context.global.json,
        || {
            let measures: Map<_, _> =
                evaluation.measures.iter().map(|(name, mean)| ((*name).to_owned(), json!(mean))).collect();
            json!({
                "model": model.name(),
                "run": origin.run,
                "step": origin.step,
                "samples": evaluation.samples,
                "held_out": flags.held_out,
                "loss": evaluation.loss,
                "measures": measures,
            })
        },
        || {
            let of = if flags.held_out { " held-out" } else { "" };
            let measures = evaluation.measures.iter().map(|(name, mean)| ((*name).to_owned(), *mean));
            let told = measures.filter(|(_, mean)| mean.is_finite());
            let told: String = told.map(|(name, mean)| format!(", {}", format::measure((&name, &mean)))).collect();
            let loss = match evaluation.loss.is_finite() {
                true => format!("loss {}", format::loss(evaluation.loss)),
                false => "no loss, because labels are too far from those that were trained on".to_owned(),
            };
            let samples = format::thousands(evaluation.samples);
            format!("{} after step {} on {samples}{of} samples: {loss}{told}\n", model.name(), origin.step)
        },
    )?;
    Ok(EXIT_DONE)
}
