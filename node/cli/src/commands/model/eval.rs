//! `starling eval`: how good a trained model is on samples whose labels are known.

use serde_json::{Map, json};
use starling::export::{EvaluationSet, InputSpec, LabelPolicy, ModelError, Reader};

use super::confusion::Confusion;
use super::{CommandError, Context, EXIT_DONE, print};
use crate::cli::EvalFlags;
use crate::output::format;

/// The mean F1 of the classes, among the measures.
const MACRO_F1: &str = "macro_f1";

pub(in super::super) fn eval(context: &Context, flags: &EvalFlags) -> Result<u8, CommandError> {
    let device = context.load(&flags.values())?.device()?;
    let model = flags.model.place().open(device)?;
    let inputs = InputSpec { separated_by: flags.delimiter, ..model.inputs()? };
    let mut reader = Reader::open(&flags.data, &inputs, LabelPolicy::Wanted).map_err(ModelError::from)?;
    let which = if flags.held_out { EvaluationSet::HeldOut } else { EvaluationSet::All };
    let (evaluation, confusion) = model.evaluate_classes(&mut reader, which)?;
    let macro_f1 = confusion.as_ref().and_then(|table| table.macro_f1());
    let confusion = model.classes().zip(confusion.as_ref()).map(|(names, table)| Confusion { names, table });
    let measures = || evaluation.measures.iter().copied().chain(macro_f1.map(|f1| (MACRO_F1, f1)));
    let origin = &model.description().origin;
    print(
        context.global.json,
        || {
            let measures: Map<_, _> = measures().map(|(name, mean)| (name.to_owned(), json!(mean))).collect();
            let mut told = json!({
                "model": model.name(),
                "run": origin.run,
                "step": origin.step,
                "samples": evaluation.samples,
                "held_out": flags.held_out,
                "loss": evaluation.loss,
                "measures": measures,
            });
            confusion.iter().for_each(|confusion| confusion.add_to(&mut told));
            told
        },
        || {
            let of = if flags.held_out { " held-out" } else { "" };
            let told = measures().map(|(name, mean)| (name.to_owned(), mean)).filter(|(_, mean)| mean.is_finite());
            let told: String = told.map(|(name, mean)| format!(", {}", format::measure((&name, &mean)))).collect();
            let loss = match evaluation.loss.is_finite() {
                true => format!("loss {}", format::loss(evaluation.loss)),
                false => "no loss, because labels are too far from those that were trained on".to_owned(),
            };
            let samples = format::thousands(evaluation.samples);
            let classes = confusion.as_ref().map(Confusion::text).unwrap_or_default();
            format!("{} after step {} on {samples}{of} samples: {loss}{told}\n{classes}", model.name(), origin.step)
        },
    )?;
    Ok(EXIT_DONE)
}
