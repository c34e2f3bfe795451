//! The split of what stays in its files. A table is read once more for each figure that needs all others before it.

use std::sync::Arc;

use starling_run::FeatureScale;

use crate::error::DataError;
use crate::samples::SampleSet;
use crate::samples::numbers::SampleNumbers;
use crate::samples::pixels::Pixels;
use crate::samples::raw::{Raw, bits};
use crate::samples::split::{Split, draw_held_out};
use crate::samples::standards::{LabelStandards, Measured, Standards};
use crate::table::placed::RowTable;

/// Splits such a table; `raw` is what else was read of it.
///
/// # Errors
/// If it can't be read, or has changed.
pub(crate) fn split(table: Box<RowTable>, raw: &Raw, permille: u32, seed: u64) -> Result<Split, DataError> {
    let total = table.len();
    let drawn = || draw_held_out(total, permille, seed).into();
    let rows_apart: Arc<[u32]> = raw.held_out_rows.clone().unwrap_or_else(drawn);
    let held_out = rows_apart.clone();
    let measured = Measured::of(&raw.coded, table.width());
    let count = total - u32::try_from(held_out.len()).expect("invariant: fewer than all are held out");
    let mut known = vec![0; measured.gaps.len()];
    if !known.is_empty() {
        let mut is_held_out = walked(&held_out);
        table.each(|row, values, _| {
            if !is_held_out(row) {
                for (known, feature) in known.iter_mut().zip(&measured.gaps) {
                    *known += u32::from(!values[*feature].is_nan());
                }
            }
        })?;
    }
    let mut standards = Standards::new(&measured, count, &known);
    let mut of_labels = LabelStandards::new(&raw.class_names, raw.label_count(), count as usize);
    let mut hasher = raw.hasher(total.into());
    let (mut is_held_out, mut bytes) = (walked(&held_out), Vec::new());
    table.each(|row, values, class| {
        bytes.clear();
        bytes.extend(values.iter().flat_map(|value| bits(*value).to_le_bytes()));
        hasher.update(&bytes);
        if !is_held_out(row) {
            standards.show(|feature| values[feature]);
            of_labels.show(class);
        }
    })?;
    let classes = raw.class_names.len();
    let mut counts = [vec![0_u64; classes], vec![0_u64; classes]];
    let mut is_held_out = walked(&held_out);
    table.each(|row, values, class| {
        hasher.update(&class.to_le_bytes());
        let is_held_out = is_held_out(row);
        counts[usize::from(is_held_out)][class as usize] += 1;
        if !is_held_out {
            standards.show_again(|feature| values[feature]);
            of_labels.show_again(class);
        }
    })?;
    let fingerprint = raw.finish(hasher);
    let (scales, lost) = standards.scales();
    let label_scales = of_labels.scales();
    let [of_training, of_held_out] = counts;
    let rows = Arc::new(PlacedRows { source: PlacedSource::Table(table), scales: scales.clone() });
    let [others, listed] = [SampleNumbers::Others(total, held_out.clone()), SampleNumbers::Listed(held_out.clone())];
    let training = SampleSet::placed(rows.clone(), others, of_training);
    let held_out = SampleSet::placed(rows, listed, of_held_out);
    Ok(Split { training, held_out, scales, label_scales, lost, fingerprint, held_out_rows: rows_apart })
}

/// The samples of these numbers of such images.
pub(crate) fn of_images(
    pixels: &Pixels,
    labels: &Arc<[u32]>,
    scales: &FeatureScale,
    numbers: SampleNumbers,
    classes: usize,
) -> SampleSet {
    let mut counts = vec![0; classes];
    (0..numbers.len() as u32).for_each(|at| counts[labels[numbers.get(at) as usize] as usize] += 1);
    let source = PlacedSource::Images(pixels.clone(), labels.clone());
    let rows = Arc::new(PlacedRows { source, scales: scales.clone() });
    SampleSet::placed(rows, numbers, counts)
}

/// Such data, with how its values are scaled.
#[derive(Debug)]
pub(crate) struct PlacedRows {
    source: PlacedSource,
    scales: FeatureScale,
}

#[derive(Debug)]
enum PlacedSource {
    Table(Box<RowTable>),
    /// And of each its class.
    Images(Pixels, Arc<[u32]>),
}

impl PlacedRows {
    /// How many features a row has.
    pub(crate) fn width(&self) -> usize {
        match &self.source {
            PlacedSource::Table(table) => table.width(),
            PlacedSource::Images(pixels, _) => pixels.features,
        }
    }

    /// The features and the classes of these rows, one after another.
    ///
    /// # Errors
    /// If they can't be read, or have changed.
    pub(crate) fn read(&self, rows: &[u32]) -> Result<(Vec<f32>, Vec<u32>), DataError> {
        let width = self.width();
        let table = match &self.source {
            PlacedSource::Table(table) => table,
            PlacedSource::Images(pixels, labels) => {
                let mut bytes = Vec::with_capacity(rows.len() * width);
                pixels.source.read(rows, &mut bytes)?;
                let scaled = |(at, byte): (usize, &u8)| self.scales.scaled(at % width, f64::from(*byte));
                let classes = rows.iter().map(|row| labels[*row as usize]);
                return Ok((bytes.iter().enumerate().map(scaled).collect(), classes.collect()));
            }
        };
        let (mut values, mut classes) = (vec![0.0; rows.len() * width], vec![0; rows.len()]);
        table.read(rows, |place, row, class| {
            let into = &mut values[place * width..(place + 1) * width];
            for (column, (into, value)) in into.iter_mut().zip(row).enumerate() {
                *into = self.scales.scaled(column, *value);
            }
            classes[place] = class;
        })?;
        Ok((values, classes))
    }
}

/// Whether a row is one of these, asked of ascending rows.
fn walked(rows: &[u32]) -> impl FnMut(u32) -> bool + '_ {
    let mut left = rows;
    move |row| {
        let is_next = left.first() == Some(&row);
        left = if is_next { &left[1..] } else { left };
        is_next
    }
}
