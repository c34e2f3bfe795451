//! Images that are decoded when they are asked for.

use std::path::{Path, PathBuf};

use super::decode::{self, Form};
use super::listing::Listing;
use crate::error::DataError;
use crate::files::in_order::in_order;
use crate::files::opened::{Stamp, changed};
use crate::samples::pixels::PixelSource;

/// How many are decoded by one thread behind each other.
const PART: usize = 2;

/// The images of a folder or of archives, as a model takes them.
#[derive(Debug)]
pub(super) struct DecodedImages {
    source: PathBuf,
    form: Form,
    images: Vec<Listing>,
    /// What the files were when they were listed; those of archives have that of their archive.
    stamps: Vec<Option<Stamp>>,
}

impl DecodedImages {
    /// These, which were listed in `source`, brought to this form.
    ///
    /// # Errors
    /// If one is not there any more.
    pub(super) fn new(source: &Path, images: Vec<Listing>, form: Form) -> Result<Self, DataError> {
        let stamp = |image: &Listing| image.part.is_none().then(|| Stamp::at(&image.told(source))).transpose();
        let stamps = images.iter().map(stamp).collect::<Result<_, _>>()?;
        Ok(Self { source: source.to_owned(), form, images, stamps })
    }

    fn decoded(&self, number: u32) -> Result<Vec<u8>, DataError> {
        let (image, stamp) = (&self.images[number as usize], self.stamps[number as usize]);
        let (bytes, path) = (image.bytes(&self.source)?, image.told(&self.source));
        // Behind the read: what has changed before it is seen.
        match stamp {
            Some(stamp) if Stamp::at(&path)? != stamp => {
                Err(changed(&path, "its length or its time of change is another one"))
            }
            _ => decode::decode(&bytes, &path, self.form),
        }
    }
}

impl PixelSource for DecodedImages {
    fn read(&self, numbers: &[u32], values: &mut Vec<u8>) -> Result<(), DataError> {
        let decode = |part: &[u32]| part.iter().map(|number| self.decoded(*number)).collect::<Result<Vec<_>, _>>();
        in_order(numbers.chunks(PART).map(Ok), decode, |images| {
            images??.iter().for_each(|image| values.extend_from_slice(image));
            Ok(())
        })
    }
}
