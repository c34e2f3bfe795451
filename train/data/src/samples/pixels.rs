//! Samples of bytes that stay in their files: images that are larger than memory.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use crate::error::DataError;
use crate::files::opened::OpenedFile;
use crate::samples::raw::{MAX_VALUES, Values};

/// Where such samples are read from.
pub(crate) trait PixelSource: fmt::Debug + Send + Sync {
    /// Appends the values of these samples, one sample after another.
    ///
    /// # Errors
    /// If they can't be read, or have changed.
    ///
    /// # Panics
    /// If there is no such sample.
    fn read(&self, numbers: &[u32], values: &mut Vec<u8>) -> Result<(), DataError>;
}

/// How many bytes are read at once where all are.
const BLOCK_BYTES: usize = 4 << 20;

/// A source with how many samples it has, and how many values one of them.
#[derive(Debug, Clone)]
pub(crate) struct Pixels {
    pub(crate) source: Arc<dyn PixelSource>,
    pub(crate) count: u32,
    pub(crate) features: usize,
}

impl Pixels {
    /// All values in the order of the samples, some samples at a time.
    ///
    /// # Errors
    /// Those of [`PixelSource::read`].
    pub(crate) fn each<E: From<DataError>>(&self, mut take: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        let most = u32::try_from(BLOCK_BYTES / self.features.max(1)).unwrap_or(u32::MAX).max(1);
        let (mut first, mut values) = (0, Vec::new());
        while first < self.count {
            let end = first.saturating_add(most).min(self.count);
            values.clear();
            self.source.read(&(first..end).collect::<Vec<_>>(), &mut values)?;
            take(&values)?;
            first = end;
        }
        Ok(())
    }

    /// What becomes of them: they are held if there is room for all as numbers of four bytes.
    ///
    /// # Errors
    /// Those of [`PixelSource::read`].
    pub(crate) fn into_values(self, held_bytes: u64) -> Result<Values, DataError> {
        let values = self.features as u64 * u64::from(self.count);
        if values.saturating_mul(4) > held_bytes || values > MAX_VALUES {
            return Ok(Values::Pixels(self));
        }
        let mut held = Vec::with_capacity(self.features * self.count as usize);
        self.each(|bytes| {
            held.extend_from_slice(bytes);
            Ok::<_, DataError>(())
        })?;
        Ok(Values::Bytes(held))
    }
}

/// Samples of one size that lie behind each other in a file.
#[derive(Debug)]
pub(crate) struct PixelFile {
    file: OpenedFile,
    /// Where the first one is.
    place: u64,
    features: usize,
}

impl PixelFile {
    /// `count` samples from this place on, up to the end of the file.
    ///
    /// # Errors
    /// If it does not end there: how its end compares with that of the samples.
    pub(crate) fn open(file: OpenedFile, place: u64, count: u32, features: usize) -> Result<Pixels, Ordering> {
        let end = u64::from(count).checked_mul(features as u64).and_then(|bytes| bytes.checked_add(place));
        match end.map_or(Ordering::Less, |end| file.bytes().cmp(&end)) {
            Ordering::Equal => Ok(Pixels { source: Arc::new(Self { file, place, features }), count, features }),
            other => Err(other),
        }
    }
}

impl PixelSource for PixelFile {
    fn read(&self, numbers: &[u32], values: &mut Vec<u8>) -> Result<(), DataError> {
        let mut left = numbers;
        while let [first, rest @ ..] = left {
            // Those that lie behind each other are read at once.
            let more =
                rest.iter().zip(u64::from(*first) + 1..).take_while(|(number, next)| u64::from(**number) == *next);
            let many = 1 + more.count();
            let start = values.len();
            values.resize(start + many * self.features, 0);
            self.file.read_at(&mut values[start..], self.place + u64::from(*first) * self.features as u64)?;
            left = &left[many..];
        }
        Ok(())
    }
}
