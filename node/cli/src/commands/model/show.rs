//! `starling model show`: what is known of a trained model.

use serde_json::{Map, Value, json};
use starling::data::FeatureScale;
use starling::export::{DataOrigin, Description, NumberFormat};

use super::{CommandError, Context, EXIT_DONE, print};
use crate::cli::ModelFlags;
use crate::output::format;

/// Names that a line has room for.
const MAX_NAMED: usize = 12;

pub(in super::super) fn show(context: &Context, flags: &ModelFlags) -> Result<u8, CommandError> {
    let description = flags.place().describe()?;
    print(context.global.json, || to_json(&description), || table(&description))?;
    Ok(EXIT_DONE)
}

fn to_json(description: &Description) -> Value {
    let Description { model, shape, origin, trained_on, .. } = description;
    let tensors = description.parameters.iter().map(|entry| json!({ "name": entry.path, "shape": entry.shape }));
    let measures: Map<_, _> = origin.measures.iter().map(|(name, mean)| (name.clone(), json!(mean))).collect();
    let mut value = json!({
        "model": model.to_string(),
        "task": description.task(),
        "run": origin.run,
        "step": origin.step,
        "digest": origin.digest,
        "values": origin.values,
        "parameters": description.count(),
        "dtype": description.numbers.name(),
        "tensors": tensors.collect::<Vec<_>>(),
        "measures": measures,
    });
    if !description.is_of_program {
        value["shape"] = json!(shape);
        value["features"] = json!(description.features());
    }
    if let Some(on) = trained_on {
        value["classes"] = json!(classes(description, on));
        value["feature_names"] = json!(on.preprocessing.features);
        if !on.preprocessing.columns.is_empty() {
            value["columns"] = json!(on.preprocessing.columns);
        }
        value["data"] = json!({
            "kind": on.kind,
            "label_column": on.label.first(),
            "label_name": on.preprocessing.label.first(),
            "header": on.header,
            "delimiter": on.delimiter.map(|delimiter| delimiter.name()),
            "held_out": on.held_out.as_ref().map(Vec::len),
            "weights_column": on.rows.weights,
            "split_column": on.rows.split_by.map(|split| split.column),
        });
        if description.labels > 1 {
            value["data"]["label_columns"] = json!(on.label);
            value["data"]["label_names"] = json!(on.preprocessing.label);
        }
        if description.task() == "text" {
            value["context"] = json!(description.features());
            value["tokenizer"] = json!(description.tokenizer().map_or("bytes", |_| "tokenizer.json"));
            value["tokens"] = json!(description.tokens());
            value["end_token"] = json!(description.tokenizer().map(|tokenizer| tokenizer.end));
            return value;
        }
        value["preprocessing"] = match &on.preprocessing.scales {
            FeatureScale::Divide(divisor) => json!({ "scaling": "divide", "divisor": divisor }),
            FeatureScale::Tokenize(_) => json!(null),
            FeatureScale::Standardize { means, deviations } => {
                json!({ "scaling": "standardize", "means": means, "deviations": deviations })
            }
        };
    }
    value
}

/// Of a classifier, what its outputs stand for.
fn classes<'d>(description: &Description, on: &'d DataOrigin) -> Option<&'d [String]> {
    (description.task() == "classification").then_some(&on.preprocessing.classes)
}

fn table(description: &Description) -> String {
    let Description { model, shape, origin, trained_on, .. } = description;
    let mut lines = vec![("model", format!("{model} ({})", description.task()))];
    lines.push(("run", origin.run.clone()));
    lines.push(("step", origin.step.to_string()));
    lines.extend(origin.digest.iter().map(|digest| ("digest", digest.clone())));
    lines.extend(origin.values.iter().map(|values| ("values", values.clone())));
    let [channels, height, width] = shape;
    let image = if *channels == 1 { format!("{height}x{width}") } else { format!("{channels}x{height}x{width}") };
    match trained_on {
        None if description.is_of_program => {}
        None => {
            lines.push(("inputs", format!("{} features", description.features())));
            lines.push(("scaling", "not known to the machine that wrote it, so that it can't predict".to_owned()));
        }
        Some(on) => {
            let named = named(&on.preprocessing.features);
            let is_text = description.task() == "text";
            let inputs = match on.label.first() {
                None if is_text => match description.tokenizer() {
                    None => format!("text as bytes, {} at once", description.features()),
                    Some(tokenizer) => format!(
                        "text as tokens of {} different ones, {} at once, by the tokenizer {}",
                        format::thousands(description.tokens().into()),
                        description.features(),
                        tokenizer.digest()
                    ),
                },
                None => format!("images of {image}"),
                Some(_) if !on.preprocessing.columns.is_empty() => {
                    let columns = description.columns(MAX_NAMED).join(", ");
                    format!(
                        "{} features of {} columns: {columns}",
                        description.features(),
                        on.preprocessing.columns.len()
                    )
                }
                Some(_) if named.is_empty() => format!("{} columns, by their order", description.features()),
                Some(_) => format!("{} columns, by their names: {named}", description.features()),
            };
            lines.push(("inputs", inputs));
            if let Some(label) = on.label.first() {
                let name = on.preprocessing.label.first().map(|name| format!(" `{name}`")).unwrap_or_default();
                let delimiter = on.delimiter.map(|it| format!(", cells separated by {it}")).unwrap_or_default();
                let header = if on.header == Some(true) { "a header" } else { "no header" };
                lines.push(("table", format!("label column {label}{name}, {header}{delimiter}")));
            }
            if description.labels > 1 {
                lines.push(("labels", format!("{}: {}", description.labels, self::named(&description.label_names()))));
            }
            lines.extend(
                classes(description, on).map(|names| ("classes", format!("{}: {}", names.len(), self::named(names)))),
            );
            let scaling = (
                "scaling",
                match &on.preprocessing.scales {
                    FeatureScale::Divide(divisor) => format!("divided by {divisor}"),
                    FeatureScale::Tokenize(_) => "none".to_owned(),
                    FeatureScale::Standardize { .. } => "less each column's mean, divided by its deviation".to_owned(),
                },
            );
            lines.extend((!is_text).then_some(scaling));
            let column =
                |column: u32| description.inputs().map(|inputs| inputs.column_name(column)).unwrap_or_default();
            lines.extend(on.rows.weights.map(|weights| ("weights", format!("those of {}", column(weights)))));
            lines.extend(match (on.rows.split_by, &on.held_out) {
                (Some(split), _) => Some(("held out", format!("samples by {}", column(split.column)))),
                (None, rows) => {
                    rows.as_ref().map(|rows| ("held out", format!("{} samples", format::thousands(rows.len() as u64))))
                }
            });
        }
    }
    let parameters = |entry: &starling::parts::Entry| format!("{} {:?}", entry.path, entry.shape);
    let tensors: Vec<String> = description.parameters.iter().map(parameters).collect();
    let count = format::thousands(description.count() as u64);
    lines.push(("parameters", format!("{count}: {}", tensors.join(", "))));
    let numbers = description.numbers;
    lines.extend(
        (numbers != NumberFormat::F32).then(|| ("numbers", format!("{numbers}, rounded when it was exported"))),
    );
    lines.extend(origin.measures.iter().map(|(name, mean)| (name.as_str(), format::mean(name, *mean))));
    let width = lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    lines.iter().map(|(name, text)| format::visible(&format!("{name:width$}  {text}")) + "\n").collect()
}

/// Some names, the first of many.
fn named(names: &[String]) -> String {
    let shown =
        names.iter().take(MAX_NAMED).map(|name| starling_run::data::shorten(name)).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(MAX_NAMED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
