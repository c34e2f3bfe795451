//! How a file lays tensors out, and what it calls them: the same for what is written and for what is read.

use std::borrow::Cow;
use std::fmt;

use starling_run::manifest::schema::Entry;

use super::llama;

/// How a file lays out what has two dimensions, and what it calls its tensors.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Layout {
    /// Linear weights are `[inputs, outputs]`; tensors are called by the leaves of their module, those of normalizations `gamma` and
    /// `beta`.
    #[default]
    Burn,
    /// Linear weights are `[outputs, inputs]`; those of normalizations are called `weight` and `bias`, all others as the leaves.
    Torch,
    /// The same, called as the parameters of a Llama in Hugging Face's `transformers`: of a `gpt` alone.
    Hf,
}

impl Layout {
    /// All that there are.
    const ALL: [Self; 3] = [Self::Burn, Self::Torch, Self::Hf];

    /// What it is called in metadata and flags.
    pub fn name(self) -> &'static str {
        match self {
            Self::Burn => "burn",
            Self::Torch => "torch",
            Self::Hf => "hf",
        }
    }

    /// The layout that is called so.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|layout| layout.name() == name)
    }

    /// What the parameter is called there; `None` if it has no place there.
    pub(in crate::export) fn tensor(self, entry: &Entry) -> Option<String> {
        match self {
            Self::Burn => Some(entry.path.clone()),
            Self::Torch => Some(torch(entry)),
            Self::Hf => llama::tensor(&entry.path),
        }
    }

    /// The shape that the parameter has there.
    pub(in crate::export) fn shape(self, entry: &Entry) -> Vec<usize> {
        let turned = || entry.shape.iter().rev().copied().collect();
        if self.is_turned(entry) { turned() } else { entry.shape.clone() }
    }

    /// The numbers of the parameter, `[elements]`, as they stand there.
    pub(super) fn laid_out<'a>(self, entry: &Entry, values: &'a [f32]) -> Cow<'a, [f32]> {
        match self.is_turned(entry) {
            true => Cow::Owned(transposed(values, entry.shape[0])),
            false => Cow::Borrowed(values),
        }
    }

    /// The numbers of the parameter, of numbers that stand there in its shape there.
    pub(super) fn taken(self, entry: &Entry, numbers: Vec<f32>) -> Vec<f32> {
        match self.is_turned(entry) {
            true => transposed(&numbers, entry.shape[1]),
            false => numbers,
        }
    }

    /// Whether it is transposed there: linear weights are, tables of embeddings are not.
    fn is_turned(self, entry: &Entry) -> bool {
        let is_table = entry.path.rsplit('.').nth(1).is_some_and(|name| name.contains("embedding"));
        self != Self::Burn && entry.shape.len() == 2 && !is_table
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What PyTorch calls a leaf of Burn.
fn torch(entry: &Entry) -> String {
    let last = |last| match last {
        "gamma" => Some("weight"),
        "beta" => Some("bias"),
        _ => None,
    };
    let parts = entry.path.rsplit_once('.').filter(|_| entry.shape.len() == 1);
    let renamed = parts.and_then(|(before, name)| Some(format!("{before}.{}", last(name)?)));
    renamed.unwrap_or_else(|| entry.path.clone())
}

/// The columns of a matrix of so many rows, one after the other.
pub(super) fn transposed(numbers: &[f32], rows: usize) -> Vec<f32> {
    let columns = numbers.len().checked_div(rows).unwrap_or_default();
    (0..columns).flat_map(|column| (0..rows).map(move |row| numbers[row * columns + column])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_laid_out_is_taken_as_it_was() {
        let values: Vec<f32> = (0..6).map(|at| at as f32).collect();
        let of = Entry::trained;
        for (entry, torch, turned) in [
            (of("hidden.0.weight", &[2, 3]), "hidden.0.weight", true),
            (of("embedding.weight", &[2, 3]), "embedding.weight", false),
            (of("norm.gamma", &[6]), "norm.weight", false),
            (of("norm.beta", &[6]), "norm.bias", false),
            (of("norm.running_mean", &[6]), "norm.running_mean", false),
            (of("convolutions.0.weight", &[1, 1, 2, 3]), "convolutions.0.weight", false),
        ] {
            assert_eq!(Layout::Torch.tensor(&entry).as_deref(), Some(torch));
            for layout in Layout::ALL {
                let laid_out = layout.laid_out(&entry, &values).into_owned();
                assert_eq!(laid_out != values, turned && layout != Layout::Burn, "{layout}: {}", entry.path);
                assert_eq!(layout.taken(&entry, laid_out), values, "{layout}: {}", entry.path);
            }
        }
        let entry = of("output.weight", &[2, 3]);
        assert_eq!(Layout::Torch.shape(&entry), [3, 2]);
        assert_eq!(*Layout::Torch.laid_out(&entry, &values), [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
    }
}
