//! `starling eval`: how good a trained model is on samples whose labels are known.

use serde_json::{Map, json};
use starling::export::{DetailReport, EvaluationSet, InputSpec, LabelPolicy, ModelError, Reader, macro_f1};

use super::detail::Detail;
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
    let spinner = context.spinner("evaluating");
    let (evaluation, detail) = model.evaluate_in_detail(&mut reader, which)?;
    drop(spinner);
    let macro_f1 = match &detail {
        Some(DetailReport::Classes(table)) => macro_f1(table.classes()),
        Some(DetailReport::Labels(labels)) => macro_f1(labels),
        _ => None,
    };
    let (classes, labels) = (model.classes().unwrap_or_default(), model.labels().unwrap_or_default());
    let samples = evaluation.samples;
    let detail = detail.as_ref().map(|detail| Detail { classes, labels: &labels, samples, detail });
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
            detail.iter().for_each(|detail| detail.add_to(&mut told));
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
            let detail = detail.as_ref().map(Detail::text).unwrap_or_default();
            format!("{} after step {} on {samples}{of} samples: {loss}{told}\n{detail}", model.name(), origin.step)
        },
    )?;
    Ok(EXIT_DONE)
}
