//! A PNG or JPEG file to pixels of one shape.
//!
//! Transparency is dropped, 16 bits become 8, a palette its colours, and a photograph is turned as its camera says. A grey image that is
//! read with colours has three equal channels, one with colours that is read as grey its luminance.

use std::fs::File;
use std::io::{Cursor, Read};
use std::path::Path;

use image::imageops::{self, FilterType};
use image::metadata::Orientation;
use image::{DynamicImage, ImageBuffer, ImageDecoder, ImageError, ImageFormat, ImageReader, Limits, Pixel};
use starling_run::data::ImageSize;

use crate::error::DataError;

/// The longest file. What is decoded is another matter.
const MAX_FILE_BYTES: u64 = 256 << 20;
/// The longest side of an image, so that scaling it takes no more than as much again as decoding it.
const MAX_SIDE: u32 = 16_384;
/// The most pixels: a small file may claim many.
const MAX_PIXELS: u64 = 1 << 26;
/// The most bytes that decoding may take, but for what comes out.
const MAX_DECODER_BYTES: u64 = 512 << 20;

/// What images are brought to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Form {
    /// 1 for grey, 3 for red, green and blue.
    pub(crate) channels: u32,
    pub(crate) size: ImageSize,
}

impl Form {
    /// How many values an image has.
    pub(crate) fn features(self) -> u64 {
        u64::from(self.size.height) * u64::from(self.size.width) * u64::from(self.channels)
    }
}

/// What a file's beginning says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Look {
    /// As it is seen: turned, if it has to be.
    pub(crate) size: ImageSize,
    pub(crate) is_grey: bool,
}

/// The bytes of a file.
pub(crate) fn bytes(path: &Path) -> Result<Vec<u8>, DataError> {
    let file = File::open(path).map_err(|source| DataError::Unreadable { path: path.to_owned(), source })?;
    taken(file, path)
}

/// The same of what is given.
pub(crate) fn taken(file: impl Read, path: &Path) -> Result<Vec<u8>, DataError> {
    let mut bytes = Vec::new();
    let read = file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(|source| DataError::Unreadable { path: path.to_owned(), source })?;
    check_length(bytes.len() as u64, path)?;
    Ok(bytes)
}

/// Checks that an image may have so many bytes, before memory is taken for them.
pub(super) fn check_length(bytes: u64, path: &Path) -> Result<(), DataError> {
    if bytes <= MAX_FILE_BYTES {
        return Ok(());
    }
    let reason = format!("it has more than {} MiB, too much for one image", MAX_FILE_BYTES >> 20);
    Err(DataError::File { path: path.to_owned(), reason })
}

/// Whether a file that begins so is an image.
pub(crate) fn is_image(start: &[u8]) -> bool {
    format(start).is_some()
}

/// What the image in `bytes` is, without decoding it. `path` is for messages.
///
/// # Errors
/// If it is none, or too large.
pub(crate) fn look(bytes: &[u8], path: &Path) -> Result<Look, DataError> {
    let mut decoder = open(bytes).map_err(|reason| fault(path, reason))?;
    let (width, height) = decoder.dimensions();
    let is_turned = is_on_its_side(orientation(&mut decoder));
    let (height, width) = if is_turned { (width, height) } else { (height, width) };
    Ok(Look { size: ImageSize { height, width }, is_grey: !decoder.color_type().has_color() })
}

/// The pixels of the image in `bytes`: channel after channel, from its first row to its last. What does not fit the shape of `form` is
/// cut off on both sides, and the rest is scaled. `path` is for messages.
///
/// # Errors
/// If it is none, is damaged or cut off, or too large.
pub(crate) fn decode(bytes: &[u8], path: &Path, form: Form) -> Result<Vec<u8>, DataError> {
    let decoded = || {
        let mut decoder = open(bytes)?;
        let turned = orientation(&mut decoder);
        let mut image = DynamicImage::from_decoder(decoder).map_err(told)?;
        image.apply_orientation(turned);
        Ok(image)
    };
    let image = decoded().map_err(|reason| fault(path, reason))?;
    Ok(match form.channels {
        1 => planes(&fitted(image.into_luma8(), form.size)),
        _ => planes(&fitted(image.into_rgb8(), form.size)),
    })
}

fn format(start: &[u8]) -> Option<ImageFormat> {
    image::guess_format(start).ok().filter(|format| matches!(format, ImageFormat::Png | ImageFormat::Jpeg))
}

/// Reads what is before the pixels, and checks that there is room for these.
fn open(bytes: &[u8]) -> Result<impl ImageDecoder + '_, String> {
    let format = format(bytes).ok_or("it is neither a PNG nor a JPEG image, whatever it is called")?;
    if format == ImageFormat::Jpeg && !has_end(bytes) {
        return Err("it is cut off: a JPEG image has a mark at its end".to_owned());
    }
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
    let mut limits = Limits::no_limits();
    (limits.max_image_width, limits.max_image_height) = (Some(MAX_SIDE), Some(MAX_SIDE));
    limits.max_alloc = Some(MAX_DECODER_BYTES);
    reader.limits(limits);
    let decoder = reader.into_decoder().map_err(told)?;
    let (width, height) = decoder.dimensions();
    let is_too_large = u64::from(width) * u64::from(height) > MAX_PIXELS || decoder.total_bytes() > MAX_DECODER_BYTES;
    match (width, height) {
        (0, _) | (_, 0) => Err("it has no pixels".to_owned()),
        _ if is_too_large => Err(too_large()),
        _ => Ok(decoder),
    }
}

/// Whether the data of a JPEG file's image have an end: the decoder fills in grey for whatever is missing. What stands before the data, such
/// as a preview, has ends of its own, and whatever comes behind the end, as phones add films, does not matter.
fn has_end(bytes: &[u8]) -> bool {
    let mut at = 2_usize;
    while let Some(&[0xff, mark, high, low]) = bytes.get(at..at.saturating_add(4)) {
        match mark {
            // Marks may be filled up.
            0xff => at += 1,
            0xd9 => return true,
            0xda => return bytes[at..].windows(2).any(|pair| pair == [0xff, 0xd9]),
            _ => at += 2 + usize::from(u16::from_be_bytes([high, low])),
        }
    }
    false
}

/// How a camera held it. Notes that can't be read turn nothing.
fn orientation(decoder: &mut impl ImageDecoder) -> Orientation {
    decoder.orientation().unwrap_or(Orientation::NoTransforms)
}

fn is_on_its_side(orientation: Orientation) -> bool {
    use Orientation::{FlipHorizontal, FlipVertical, NoTransforms, Rotate180};
    !matches!(orientation, NoTransforms | Rotate180 | FlipHorizontal | FlipVertical)
}

/// The middle of an image in the shape of `size`, scaled to it by sums and products alone, which are the same everywhere.
fn fitted<P: Pixel<Subpixel = u8> + 'static>(
    image: ImageBuffer<P, Vec<u8>>,
    size: ImageSize,
) -> ImageBuffer<P, Vec<u8>> {
    let (width, height) = image.dimensions();
    if (width, height) == (size.width, size.height) {
        return image;
    }
    let (inner_width, inner_height) = inner([width, height], [size.width, size.height]);
    let (left, top) = ((width - inner_width) / 2, (height - inner_height) / 2);
    let middle = imageops::crop_imm(&image, left, top, inner_width, inner_height).to_image();
    imageops::resize(&middle, size.width, size.height, FilterType::Triangle)
}

/// The largest rectangle in one of these sides that has the shape of `like`, to the nearest pixel.
fn inner([width, height]: [u32; 2], like: [u32; 2]) -> (u32, u32) {
    let [w, h, like_w, like_h] = [width, height, like[0], like[1]].map(u64::from);
    let nearest = |product: u64, by: u64, most: u32| ((product + by / 2) / by).clamp(1, most.into()) as u32;
    match w * like_h > h * like_w {
        true => (nearest(h * like_w, like_h, width), height),
        false => (width, nearest(w * like_h, like_w, height)),
    }
}

/// Channel after channel.
fn planes<P: Pixel<Subpixel = u8>>(image: &ImageBuffer<P, Vec<u8>>) -> Vec<u8> {
    let pixels = image.as_raw();
    let channels = usize::from(P::CHANNEL_COUNT);
    (0..channels).flat_map(|channel| pixels.iter().skip(channel).step_by(channels).copied()).collect()
}

fn told(error: ImageError) -> String {
    match error {
        ImageError::Limits(_) => too_large(),
        other => format!("it can't be decoded: {other}"),
    }
}

fn too_large() -> String {
    format!("it is too large: up to {MAX_SIDE} pixels a side and {MAX_PIXELS} in all are decoded; make it smaller")
}

fn fault(path: &Path, reason: String) -> DataError {
    DataError::File { path: path.to_owned(), reason }
}
