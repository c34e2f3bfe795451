//! Small data sets on disk, in the formats that users have.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use flate2::write::GzEncoder;

/// A real table: 569 rows, 30 numeric features, a header, the label last.
pub fn breast_cancer() -> PathBuf {
    crate::root().join("tests/data/breast_cancer.csv")
}

/// The same table as a file of `mib` MiB and a little more: blanks around a number mean nothing.
pub fn write_large_table(path: &Path, mib: usize) {
    let table = std::fs::read_to_string(breast_cancer()).expect("the table is there");
    let width = mib * (1 << 20) / (table.lines().count() - 1);
    let (header, rows) = table.split_once('\n').expect("a header");
    let padded: String = rows.lines().map(|row| format!("{}{row}\n", " ".repeat(width))).collect();
    std::fs::write(path, format!("{header}\n{padded}")).expect("written");
}

/// The embedded digits as rows of 64 pixels (0 to 16) and a class.
fn digits() -> Vec<Vec<u8>> {
    let file = std::fs::File::open(crate::root().join("train/data/digits.csv.gz")).expect("the digits are there");
    let mut text = String::new();
    GzDecoder::new(file).read_to_string(&mut text).expect("gzip text");
    text.lines().map(|line| line.split(',').map(|cell| cell.parse().expect("a small number")).collect()).collect()
}

/// Writes a table of `rows` digits, over and over the same ones.
///
/// # Errors
/// If the file can't be written.
pub fn write_digits(path: &Path, rows: usize) -> std::io::Result<()> {
    let line = |row: &Vec<u8>| row.iter().map(u8::to_string).collect::<Vec<_>>().join(",") + "\n";
    let text: String = digits().iter().map(line).collect::<Vec<_>>().into_iter().cycle().take(rows).collect();
    std::fs::write(path, text)
}

/// Writes the digits as the pair of IDX files that MNIST comes in, images compressed and labels plain.
pub fn write_idx(folder: &Path) {
    let rows = digits();
    let count = u32::try_from(rows.len()).expect("1,797 rows");
    let mut images = vec![0, 0, 8, 3];
    for number in [count, 8, 8] {
        images.extend(number.to_be_bytes());
    }
    let mut labels = vec![0, 0, 8, 1];
    labels.extend(count.to_be_bytes());
    for row in &rows {
        images.extend(row[..64].iter().map(|pixel| pixel * 15));
        labels.push(row[64]);
    }
    let file = std::fs::File::create(folder.join("train-images-idx3-ubyte.gz")).expect("created");
    let mut gzip = GzEncoder::new(file, flate2::Compression::fast());
    gzip.write_all(&images).expect("written");
    gzip.finish().expect("finished");
    std::fs::write(folder.join("train-labels-idx1-ubyte"), labels).expect("written");
}

/// Writes digits as images to `folder`, so many of each in a folder of its own: those of even numbers as PNG, the others as JPEG.
///
/// # Errors
/// If a file can't be written.
pub fn write_images(folder: &Path, of_each: usize) -> std::io::Result<()> {
    for class in 0..10_u8 {
        let folder = folder.join(format!("digit {class}"));
        std::fs::create_dir_all(&folder)?;
        for (at, row) in digits().iter().filter(|row| row[64] == class).take(of_each).enumerate() {
            let pixel = |x: u32, y: u32| image::Luma([row[(8 * y + x) as usize].saturating_mul(15)]);
            let path = folder.join(format!("{at}.{}", if at % 2 == 0 { "png" } else { "jpg" }));
            image::GrayImage::from_fn(8, 8, pixel).save(path).map_err(std::io::Error::other)?;
        }
    }
    Ok(())
}
