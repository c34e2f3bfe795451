use std::fs;
use std::io::Cursor;
use std::path::Path;

use image::codecs::png::PngEncoder;
use image::{DynamicImage, ExtendedColorType, GrayImage, ImageEncoder, ImageFormat, RgbImage};
use starling_run::{Download, SharedDataset};
use starling_topology::SplitMix64Generator;
use tempfile::TempDir;

use super::*;
use crate::stream::{InputSpec, LabelPolicy, Reader, RowSpec};
use crate::{Dataset, files, shared_files};

/// A colour image of this height and width, of one colour.
fn plain(height: u32, width: u32, colour: [u8; 3]) -> DynamicImage {
    RgbImage::from_pixel(width, height, image::Rgb(colour)).into()
}

/// A grey one that is different everywhere.
fn ramp(height: u32, width: u32) -> DynamicImage {
    GrayImage::from_fn(width, height, |x, y| image::Luma([(16 * y + x) as u8])).into()
}

fn written(image: &DynamicImage, format: ImageFormat) -> Vec<u8> {
    let mut bytes = Cursor::new(Vec::new());
    image.write_to(&mut bytes, format).expect("in memory");
    bytes.into_inner()
}

fn png(image: &DynamicImage) -> Vec<u8> {
    written(image, ImageFormat::Png)
}

/// A folder with these files.
fn folder(files: &[(&str, &[u8])]) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, bytes) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().expect("in a folder")).expect("made");
        fs::write(path, bytes).expect("written");
    }
    folder
}

fn options(source: &Path) -> DataOptions {
    DataOptions { source: source.display().to_string(), held_out: 0.0, ..DataOptions::default() }
}

fn load(folder: &Path, size: Option<&str>) -> Result<Dataset, DataError> {
    let image_size = size.map(|size| size.parse().expect("a size"));
    Dataset::load(&DataOptions { image_size, ..options(folder) })
}

fn refused(files: &[(&str, &[u8])], size: Option<&str>) -> String {
    let folder = folder(files);
    load(folder.path(), size).expect_err("not such images").to_string()
}

/// What a model takes that learned images of this shape.
fn inputs(shape: [u32; 3]) -> InputSpec {
    InputSpec {
        features: shape.iter().product::<u32>() as usize,
        shape,
        is_text: false,
        tokenizer: None,
        names: Vec::new(),
        columns: Vec::new(),
        label: Vec::new(),
        label_name: Vec::new(),
        header: None,
        delimiter: None,
        rows: RowSpec::default(),
        separated_by: None,
    }
}

#[test]
fn folders_are_classes_and_their_files_samples() {
    let [red, blue] = [[255, 0, 0], [0, 0, 255]].map(|colour| png(&plain(2, 3, colour)));
    let folder = folder(&[
        ("dog/b.PNG", &blue),
        ("dog/a.jpeg", &written(&plain(2, 3, [0, 0, 0]), ImageFormat::Jpeg)),
        ("cat/1.png", &red),
        ("cat/notes.txt", b"none"),
        ("cat/.hidden.png", b"none"),
        ("README.md", b"none"),
        (".git/config", b"none"),
    ]);
    let dataset = load(folder.path(), None).expect("images");
    let description = dataset.description();
    assert_eq!((&*description.kind, description.samples, description.shape), ("images", 3, [3, 2, 3]));
    assert_eq!(
        (dataset.class_names(), dataset.training().labels()),
        (&["cat", "dog"].map(String::from)[..], &[0, 1, 1][..])
    );
    // Channel after channel, each divided by 255.
    let (one, none) = ([1.0; 6], [0.0; 6]);
    assert_eq!(dataset.training().row(0), [one, none, none].concat());
    assert_eq!(dataset.training().row(1), [none, none, none].concat(), "`a.jpeg` comes first");
    assert_eq!(dataset.training().row(2), [none, none, one].concat());
    let warnings = dataset.warnings(1, true).join("\n");
    assert!(warnings.contains("skipped 2 files") && warnings.contains("README.md"), "{warnings}");
    assert!(warnings.contains("and 2 files hidden"), "{warnings}");
    assert!(dataset.summary().to_string().contains("3 images of 3x2x3 (2 classes: cat 1, dog 2)"));
}

#[test]
fn images_are_brought_to_one_size_around_their_middle() {
    let files = [("a/1.png", png(&ramp(4, 4))), ("b/1.png", png(&ramp(4, 8)))];
    let files = files.each_ref().map(|(name, bytes)| (*name, &**bytes));
    let error = refused(&files, None);
    assert!(error.contains("b/1.png") && error.contains("it has 4x8 pixels, but"), "{error}");
    assert!(error.contains("a/1.png") && error.contains("--image-size 4x4"), "{error}");
    let folder = folder(&files);
    let dataset = load(folder.path(), Some("4")).expect("one size");
    let at = |row: usize| -> Vec<f32> { dataset.training().row(row).iter().map(|value| value * 255.0).collect() };
    let expected = |left: u32| (0..16).map(|at| (16 * (at / 4) + left + at % 4) as f32).collect::<Vec<_>>();
    assert_eq!(at(0), expected(0));
    assert_eq!(at(1), expected(2), "two columns are cut off on either side");
    let dataset = load(folder.path(), Some("2x4")).expect("scaled");
    assert_eq!(dataset.description().shape, [1, 2, 4]);
    // Nothing is cut off of what has that shape: two rows become one, as their weights say.
    assert!(dataset.training().row(1).is_sorted());
    // A line becomes any size, and any image a line.
    let thin = [("a/1.png", png(&ramp(1, 9))), ("b/1.png", png(&ramp(9, 1)))];
    let folder = self::folder(&thin.each_ref().map(|(name, bytes)| (*name, &**bytes)));
    for size in ["64", "1x64", "64x1"] {
        load(folder.path(), Some(size)).expect("scaled");
    }
}

#[test]
fn what_a_file_holds_becomes_grey_or_colour_of_eight_bits() {
    let encode = |bytes: &[u8], colour| {
        let mut png = Vec::new();
        PngEncoder::new(&mut png).write_image(bytes, 1, 1, colour).expect("in memory");
        png
    };
    // Numbers of 16 bits are written as this machine has them.
    let deep = |values: &[u16]| values.iter().flat_map(|value| value.to_ne_bytes()).collect::<Vec<u8>>();
    let grey = [
        (encode(&[200], ExtendedColorType::L8), 200.0),
        (encode(&[200, 0], ExtendedColorType::La8), 200.0),
        (encode(&deep(&[0xc8c8]), ExtendedColorType::L16), 200.0),
    ];
    let colours = [
        (encode(&[1, 2, 3], ExtendedColorType::Rgb8), [1.0, 2.0, 3.0]),
        (encode(&[1, 2, 3, 0], ExtendedColorType::Rgba8), [1.0, 2.0, 3.0]),
        (encode(&deep(&[257, 514, 771, 0]), ExtendedColorType::Rgba16), [1.0, 2.0, 3.0]),
    ];
    let pixels = |dataset: &Dataset| -> Vec<f32> { dataset.training().row(0).iter().map(|it| it * 255.0).collect() };
    for (bytes, value) in &grey {
        let all_grey = folder(&[("a/1.png", bytes), ("b/1.png", &grey[0].0)]);
        assert_eq!(pixels(&load(all_grey.path(), None).expect("grey")), [*value]);
        let mixed = folder(&[("a/1.png", bytes), ("b/1.png", &colours[0].0)]);
        assert_eq!(pixels(&load(mixed.path(), None).expect("colours")), [*value; 3]);
    }
    for (bytes, values) in &colours {
        let folder = folder(&[("a/1.png", bytes), ("b/1.png", &grey[0].0)]);
        assert_eq!(pixels(&load(folder.path(), None).expect("colours")), values);
        // As who joins a run of grey images reads them.
        let options = DataOptions { image_size: "1".parse().ok(), channels: Some(1), ..options(folder.path()) };
        let grey = Dataset::load(&options).expect("grey");
        assert_eq!((grey.description().shape, pixels(&grey)), ([1, 1, 1], vec![2.0]), "its luminance");
    }
}

#[test]
fn folders_that_leave_open_what_is_meant_are_refused_by_name() {
    let grey = png(&ramp(2, 2));
    let grey = &*grey;
    for (files, parts) in [
        (&[("a/1.png", grey), ("1.png", grey), ("b/1.png", grey)][..], ["/1.png", "lies in no folder"]),
        (&[("a/1.png", grey)], ["one class, `a`", "a folder for each"]),
        (&[("a/1.png", grey), ("b/notes.txt", b"")], ["/b`", "no image in it"]),
        (&[("train/a/1.png", grey), ("train/b/1.png", grey), ("val/a/1.png", grey)], ["train`", "--data"]),
        (&[("a/1.png", grey), ("b\u{1b}/1.png", grey)], ["signs that can't be shown", "rename"]),
        (&[("a/1.png", grey), ("b/1.png", b"GIF89a, and more")], ["b/1.png", "neither a PNG nor a JPEG"]),
        (&[("a/1.png", grey), ("b/1.jpg", b"")], ["b/1.jpg", "neither a PNG nor a JPEG"]),
        (&[("a/1.png", grey), ("b/1.png", &grey[..20])], ["b/1.png", "can't be decoded"]),
        (&[("a/1.png", grey), ("b/1.png", &grey[..50])], ["b/1.png", "can't be decoded"]),
    ] {
        let error = refused(files, None);
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    }
    let one = folder(&[("1.png", grey)]);
    let error = Dataset::load(&options(&one.path().join("1.png"))).expect_err("one image").to_string();
    assert!(error.contains("images/CLASS/NAME.png"), "{error}");
}

/// Other systems have no such names, or links.
#[cfg(unix)]
#[test]
fn links_count_as_what_they_lead_to_and_names_need_not_be_text() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;

    let grey = png(&ramp(2, 2));
    let elsewhere = folder(&[("b/1.png", &grey), ("2.png", &grey)]);
    let folder = folder(&[("a/1.png", &grey)]);
    let path = |name: &str| folder.path().join(name);
    symlink(elsewhere.path().join("b"), path("b")).expect("linked");
    symlink(elsewhere.path().join("2.png"), path("a/2.png")).expect("linked");
    let name = OsStr::from_bytes(b"\xff.png");
    let dataset = match fs::write(path("a").join(name), &grey) {
        Ok(()) => load(folder.path(), None).map(|dataset| (dataset, 4)),
        // Some file systems have no such names.
        Err(_) => load(folder.path(), None).map(|dataset| (dataset, 3)),
    };
    let (dataset, samples) = dataset.expect("images");
    assert_eq!(dataset.description().samples, samples);
    symlink(path("nowhere"), path("a/3.png")).expect("linked");
    let error = load(folder.path(), None).expect_err("leads nowhere").to_string();
    assert!(error.contains("a/3.png"), "{error}");
    fs::remove_file(path("a/3.png")).expect("removed");
    fs::create_dir(path("a/pipe.png")).expect("made");
    let error = load(folder.path(), None).expect_err("a folder").to_string();
    assert!(error.contains("pipe.png"), "{error}");
    fs::remove_dir(path("a/pipe.png")).expect("removed");
    if fs::create_dir(path("").join(name)).is_ok() {
        let error = load(folder.path(), None).expect_err("no text").to_string();
        assert!(error.contains("no UTF-8 text"), "{error}");
    }
}

#[test]
fn a_small_file_that_claims_to_be_huge_takes_no_memory() {
    let small = png(&ramp(2, 2));
    // The sides are in the first chunk, which has a checksum of its own.
    let huge = |width: u32, height: u32| {
        let mut bytes = small.clone();
        bytes[16..20].copy_from_slice(&width.to_be_bytes());
        bytes[20..24].copy_from_slice(&height.to_be_bytes());
        let sum = crc(&bytes[12..29]);
        bytes[29..33].copy_from_slice(&sum.to_be_bytes());
        bytes
    };
    for (width, height) in [(u32::MAX >> 1, 1), (16_384, 16_384), (8_192, 8_193), (1, 16_385)] {
        let error = refused(&[("a/1.png", &small), ("b/1.png", &huge(width, height))], Some("2"));
        assert!(error.contains("b/1.png") && error.contains("too large"), "{width}x{height}: {error}");
    }
    // With room for it, it is only cut off.
    let error = refused(&[("a/1.png", &small), ("b/1.png", &huge(16_384, 4_096))], Some("2"));
    assert!(error.contains("can't be decoded"), "{error}");
    let colour = png(&plain(2, 2, [1, 2, 3]));
    let error = refused(&[("a/1.png", &colour), ("b/1.png", &colour)], Some("4096x4096"));
    assert!(error.contains("more than 16777216 values") && error.contains("--image-size"), "{error}");
}

fn crc(bytes: &[u8]) -> u32 {
    let step = |sum: u32, _| if sum & 1 == 1 { sum >> 1 ^ 0xedb8_8320 } else { sum >> 1 };
    !bytes.iter().fold(!0_u32, |sum, byte| (0..8).fold(sum ^ u32::from(*byte), step))
}

#[test]
fn a_photograph_is_turned_as_its_camera_says_and_one_that_is_cut_off_is_refused() {
    let photo = written(&ramp(8, 16), ImageFormat::Jpeg);
    let grey = png(&ramp(8, 16));
    for length in [photo.len() - 1, photo.len() / 2, 20] {
        let error = refused(&[("a/1.png", &grey), ("b/1.jpg", &photo[..length])], None);
        assert!(error.contains("b/1.jpg") && error.contains("cut off"), "{error}");
    }
    // Turned by a quarter: what is 8 high and 16 wide is 16 high.
    let exif = b"Exif\0\0MM\0\x2a\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0";
    let marker = [&[0xff, 0xe1][..], &(exif.len() as u16 + 2).to_be_bytes(), exif].concat();
    let turned = [&photo[..2], &marker, &photo[2..]].concat();
    let look = decode::look(&turned, Path::new("1.jpg")).expect("a photograph");
    assert_eq!((look.size.to_string(), look.is_grey), ("16x8".to_owned(), true));
    let form = Form { channels: 1, size: look.size };
    let pixels = decode::decode(&turned, Path::new("1.jpg"), form).expect("a photograph");
    // The last row is now the first column.
    assert!(pixels[0] > 100 && pixels[7] < 20, "{pixels:?}");
}

#[test]
fn what_joiners_get_reads_as_the_folder_does() {
    let files: Vec<(String, Vec<u8>)> = (0..6_u8)
        .map(|at| (format!("{}/{at}.png", ["10", "9"][usize::from(at % 2)]), png(&plain(2, 2, [at, 9, 200 - at]))))
        .collect();
    let files: Vec<(&str, &[u8])> = files.iter().map(|(name, bytes)| (&**name, &**bytes)).collect();
    let folder = folder(&files);
    let made = tempfile::tempdir().expect("a folder");
    let (kind, none) = super::super::files(&folder.path().display().to_string()).expect("readable");
    assert_eq!((kind.name, none.len()), ("images", 0));
    let (kind, paths) = shared_files(&options(folder.path()), &made.path().join("deep/here")).expect("made");
    let shared = SharedDataset::open(kind.files, &paths).expect("readable").expect("files");
    let to = made.path().join("there");
    let mut download = Download::open(&to, shared.manifest().clone(), 1 << 20).expect("made");
    for chunk in download.missing() {
        download.insert(&shared.chunk(chunk).expect("read").expect("there")).expect("taken");
    }
    let ours = load(folder.path(), None).expect("images");
    let source = kind.source_in(&to);
    let theirs = load(&source, None).expect("the same");
    assert_eq!(ours.description(), theirs.description());
    assert_eq!(ours.class_names(), ["10", "9"], "in the order of the folders' names");
    assert_eq!(theirs.training().read(&[0, 5]).expect("held"), ours.training().read(&[0, 5]).expect("held"));
    // What it holds is predicted and evaluated as the folder is.
    let inputs = inputs([3, 2, 2]);
    let read = |source: &Path| {
        let mut reader = Reader::open(&source.display().to_string(), &inputs, LabelPolicy::Wanted).expect("images");
        let mut all = (Vec::new(), Vec::new());
        while let Some(block) = reader.next_block(4).expect("good data") {
            all.0.extend(block.values);
            all.1.extend(block.labels);
        }
        all
    };
    assert_eq!(read(&source), read(folder.path()));
    let other = InputSpec { shape: [3, 4, 1], ..inputs.clone() };
    let error =
        Reader::open(&source.display().to_string(), &other, LabelPolicy::Unused).expect_err("others").to_string();
    assert!(error.contains("it has images of 3x2x2, but the model takes 3x4x1"), "{error}");
    // Who got it hands it on as it is.
    let (_, again) = shared_files(&options(&source), made.path()).expect("itself");
    assert_eq!((again, files_of(&source)), (vec![source.clone()], vec![source]));
}

fn files_of(source: &Path) -> Vec<PathBuf> {
    files(&source.display().to_string()).expect("readable").1
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut encoder, bytes).expect("in memory");
    encoder.finish().expect("in memory")
}

#[test]
fn damaged_packs_and_images_never_panic() {
    let grey = png(&ramp(3, 3));
    let photo = written(&ramp(8, 8), ImageFormat::Jpeg);
    let folder = folder(&[("a/1.png", &grey), ("b/1.png", &grey), ("b/2.png", &grey)]);
    let (_, paths) = shared_files(&options(folder.path()), folder.path()).expect("made");
    let pack = fs::read(&paths[0]).expect("read");
    // As joiners read it: in memory, where it is, and packed.
    let damaged = folder.path().join("images.pack");
    let path = &*damaged;
    let parse = |bytes: &[u8]| {
        fs::write(path, bytes).expect("written");
        let [held, placed] = [u64::MAX, 0].map(|held_bytes| {
            let dataset = Dataset::load(&DataOptions { held_bytes, max_file_bytes: 1 << 20, ..options(path) })?;
            let all: Vec<u32> = (0..dataset.training().len() as u32).collect();
            dataset.training().read(&all).map(|samples| (dataset.description(), samples))
        });
        let told = |read: &Result<_, DataError>| read.as_ref().map_err(ToString::to_string).err();
        assert_eq!(told(&held), told(&placed));
        assert_eq!(held.as_ref().ok(), placed.as_ref().ok());
        let packed = self::gzip(bytes);
        fs::write(path, &packed).expect("written");
        assert_eq!(Dataset::load(&options(path)).is_ok(), held.is_ok());
        held
    };
    parse(&pack[..]).expect("as it was written");
    for length in MAGIC.len()..pack.len() {
        parse(&pack[..length]).expect_err("cut off");
    }
    parse(&[&pack[..], &[0]].concat()).expect_err("something follows");
    let mut generator = SplitMix64Generator::new(29);
    let (mut read, form) = (0, Form { channels: 3, size: ImageSize { height: 4, width: 4 } });
    for round in 0..3_000 {
        let valid = [&pack, &grey, &photo][round % 3];
        let mut bytes = valid.clone();
        for _ in 0..=generator.below(3) {
            let at = generator.below(bytes.len() as u32) as usize;
            bytes[at] = generator.next_u64() as u8;
        }
        bytes.truncate(generator.below(bytes.len() as u32 * 3) as usize);
        read += usize::from(match round % 3 {
            // What is damaged at its beginning is no pack.
            0 if !bytes.starts_with(MAGIC) => false,
            0 => parse(&bytes).is_ok(),
            _ => decode::look(&bytes, path).is_ok() & decode::decode(&bytes, path, form).is_ok(),
        });
    }
    assert!(read > 0, "some damage is harmless");
}

#[test]
fn a_trained_model_takes_images_of_any_size_with_their_names() {
    let [small, large] = [(2, 2), (6, 9)].map(|(height, width)| png(&ramp(height, width)));
    let folder = folder(&[("b/2.png", &large), ("b/1.png", &small), ("a/3.png", &small), ("a/notes", b"")]);
    let source = folder.path().display().to_string();
    let read = |source: &str, labels| {
        let mut reader = Reader::open(source, &inputs([1, 2, 2]), labels)?;
        let (mut names, mut classes, mut values) = (Vec::new(), Vec::new(), Vec::new());
        while let Some(block) = reader.next_block(2)? {
            names.extend(block.files.iter().map(|file| file.display().to_string()));
            classes.extend(block.labels);
            values.extend(block.values);
        }
        assert!(reader.are_files());
        Ok::<_, DataError>((names.join(" "), classes.join(" "), values))
    };
    let (names, classes, values) = read(&source, LabelPolicy::Wanted).expect("images");
    assert_eq!((&*names, &*classes, values.len()), ("a/3.png b/1.png b/2.png", "a b b", 12));
    assert_eq!(values[..4], [0.0, 1.0, 16.0, 17.0], "as they are written");
    fs::write(folder.path().join("0.png"), &large).expect("written");
    let (names, classes, _) = read(&source, LabelPolicy::Unused).expect("images");
    assert_eq!((&*names, &*classes), ("0.png a/3.png b/1.png b/2.png", ""));
    let error = read(&source, LabelPolicy::Wanted).expect_err("no class").to_string();
    assert!(error.contains("0.png") && error.contains("lies in no folder"), "{error}");
    let alone = folder.path().join("b/1.png").display().to_string();
    let (names, _, values) = read(&alone, LabelPolicy::Unused).expect("one image");
    assert_eq!((&*names, values), ("1.png", vec![0.0, 1.0, 16.0, 17.0]));
    let of_table = InputSpec { label: vec![4], ..inputs([1, 1, 4]) };
    let error = Reader::open(&source, &of_table, LabelPolicy::Unused).expect_err("a table's").to_string();
    assert!(error.contains("a table's rows"), "{error}");
}

/// The same data, held and read when it is asked for.
fn check_placed(source: &Path) {
    let [held, placed] = [u64::MAX, 0].map(|held_bytes| {
        Dataset::load(&DataOptions { held_bytes, held_out: 0.3, ..options(source) }).expect("images")
    });
    assert!(held.training().are_held() && !placed.training().are_held(), "{}", source.display());
    assert_eq!(held.description(), placed.description());
    assert_eq!((held.preprocessing(), held.summary()), (placed.preprocessing(), placed.summary()));
    let classes = held.class_names().len();
    let mut generator = SplitMix64Generator::new(3);
    for (ours, theirs) in [(held.training(), placed.training()), (held.held_out(), placed.held_out())] {
        let count = u32::try_from(ours.len()).expect("few");
        assert_eq!(ours.class_counts(classes), theirs.class_counts(classes));
        let any: Vec<u32> = (0..3 * count).map(|_| generator.below(count)).collect();
        for order in [(0..count).collect(), any, Vec::new()] {
            assert_eq!(ours.read(&order).expect("held"), theirs.read(&order).expect("read"));
        }
    }
}

/// Forty images in two classes.
fn many() -> Vec<(String, Vec<u8>)> {
    let name = |at: u8| format!("{}/{at:02}.png", ["cat", "dog"][usize::from(at % 2)]);
    (0..40_u8).map(|at| (name(at), png(&plain(2, 3, [at, 9, 200 - at])))).collect()
}

/// An archive of these files.
fn tar(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    for (name, bytes) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, name, *bytes).expect("in memory");
    }
    archive.into_inner().expect("in memory")
}

#[test]
fn images_that_stay_in_their_files_are_the_same_data() {
    let files = many();
    let files: Vec<(&str, &[u8])> = files.iter().map(|(name, bytes)| (&**name, &**bytes)).collect();
    let images = folder(&files);
    check_placed(images.path());
    // What is made for others is the same, whether all are held or not, and is read from its file.
    let packed = [u64::MAX, 0].map(|held_bytes| {
        let made = tempfile::tempdir().expect("a folder");
        let (_, paths) =
            shared_files(&DataOptions { held_bytes, ..options(images.path()) }, made.path()).expect("made");
        (fs::read(&paths[0]).expect("read"), made, paths)
    });
    assert_eq!(packed[0].0, packed[1].0);
    check_placed(&packed[0].2[0]);
    let archives =
        folder(&[("all.tar", &tar(&files)), ("parts/0.tar", &tar(&files[..9])), ("parts/1.TAR", &tar(&files[9..]))]);
    let [all, parts] = ["all.tar", "parts"].map(|name| archives.path().join(name));
    check_placed(&all);
    check_placed(&parts);
    // One behind the other is both.
    let joined = archives.path().join("joined.tar");
    fs::write(&joined, [tar(&files[..9]), tar(&files[9..])].concat()).expect("written");
    check_placed(&joined);
    // Joiners get the same of an archive.
    let made = tempfile::tempdir().expect("a folder");
    let (_, paths) = shared_files(&options(&parts), made.path()).expect("made");
    check_placed(&paths[0]);
    let load = |source: &Path| load(source, None).expect("images");
    assert_eq!(load(&all).description(), load(&parts).description());
    assert_eq!(load(&all).description(), load(&joined).description());
    assert_eq!(load(&paths[0]).description(), load(&parts).description());
    // Which of them has an image, its name says where there are several.
    let source = parts.display().to_string();
    let mut reader = Reader::open(&source, &inputs([3, 2, 3]), LabelPolicy::Wanted).expect("images");
    let block = reader.next_block(1).expect("decoded").expect("some");
    assert_eq!((block.files, block.labels), (vec![PathBuf::from("0.tar/cat/00.png")], vec!["cat".to_owned()]));
    // In an archive they lie in its order: the same as those of the folder if that is by class.
    let mut sorted = files.clone();
    sorted.sort_by_key(|(name, _)| *name);
    fs::write(&all, tar(&sorted)).expect("written");
    assert_eq!(load(&all).description(), load(images.path()).description());
}

#[test]
fn a_class_may_be_beside_an_image_of_an_archive() {
    let [red, blue] = [[255, 0, 0], [0, 0, 255]].map(|colour| png(&plain(2, 2, colour)));
    let files: [(&str, &[u8]); 8] = [
        ("x/000.png", &red),
        ("x/000.cls", b"10\n"),
        ("x/000.json", b"{}"),
        ("x/001.cls", b"9"),
        ("x/001.png", &blue),
        ("x/._001.png", b"none"),
        ("x/002.small.png", &blue),
        ("x/002.cls", b"9"),
    ];
    let archives = folder(&[("a.tar", &tar(&files)), ("b.tar", &tar(&files[..5])), ("c.tar", &tar(&files[..7]))]);
    let load = |name: &str| load(&archives.path().join(name), None);
    let dataset = load("a.tar").expect("images");
    assert_eq!(dataset.class_names(), ["9", "10"], "in the order of numbers");
    assert_eq!(dataset.training().labels(), [1, 0, 0]);
    let warnings = dataset.warnings(1, true).join("\n");
    assert!(warnings.contains("skipped 1 file ") && warnings.contains("000.json"), "{warnings}");
    assert_eq!(load("b.tar").expect("images").description().samples, 2);
    let error = load("c.tar").expect_err("one has none").to_string();
    assert!(error.contains("c.tar/x/002.small.png") && error.contains("no .cls file beside it"), "{error}");
    // All are predicted, with what they are called.
    let mut reader =
        Reader::open(&archives.path().join("c.tar").display().to_string(), &inputs([3, 2, 2]), LabelPolicy::Unused)
            .expect("images");
    let block = reader.next_block(8).expect("decoded").expect("some");
    assert_eq!(block.files, ["x/000.png", "x/001.png", "x/002.small.png"].map(PathBuf::from));
}

/// What a model makes of one class can be measured, though nothing is learned from it.
#[test]
fn a_class_alone_is_read_for_a_trained_model() {
    let images = folder(&[("cat/1.png", &png(&plain(2, 2, [255, 0, 0])))]);
    let error = load(images.path(), None).expect_err("one class").to_string();
    assert!(error.contains("training needs at least two"), "{error}");
    let source = images.path().display().to_string();
    let mut reader = Reader::open(&source, &inputs([3, 2, 2]), LabelPolicy::Wanted).expect("images");
    assert_eq!(reader.next_block(8).expect("decoded").expect("one").labels, ["cat"]);
}

/// As `tar` writes a file that it has packed under another name.
#[test]
fn links_in_archives_are_told() {
    let [red, blue] = [[255, 0, 0], [0, 0, 255]].map(|colour| png(&plain(2, 2, colour)));
    let mut archive = tar::Builder::new(Vec::new());
    for (name, bytes) in [("a/1.png", &red), ("b/1.png", &blue)] {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        archive.append_data(&mut header, name, &**bytes).expect("in memory");
    }
    for (kind, name) in [(tar::EntryType::Link, "a/2.png"), (tar::EntryType::Symlink, "b/2.png")] {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(0);
        archive.append_link(&mut header, name, "a/1.png").expect("in memory");
    }
    let folder = folder(&[("images.tar", &archive.into_inner().expect("in memory"))]);
    let dataset = load(&folder.path().join("images.tar"), None).expect("images");
    let warnings = dataset.warnings(1, true).join("\n");
    assert_eq!(dataset.description().samples, 2);
    assert!(warnings.contains("2 links, which are no files") && warnings.contains("--hard-dereference"), "{warnings}");
}

#[test]
fn damaged_archives_are_refused_by_name_and_never_panic() {
    let red = png(&plain(2, 2, [255, 0, 0]));
    let whole = tar(&[("a/1.png", &red), ("b/1.png", &red)]);
    let folder = folder(&[]);
    let path = folder.path().join("images.tar");
    let read = |bytes: &[u8]| {
        fs::write(&path, bytes).expect("written");
        load(&path, None)
    };
    read(&whole).expect("as it should be");
    for (bytes, part) in [
        (&b""[..], "no image in it"),
        (&whole[..512 + 40], "cut off within `a/1.png`"),
        (&whole[..512 + red.len() + 3], "the zeros are missing that mark its end"),
        // Behind a member, and behind both.
        (&whole[..512 + red.len().next_multiple_of(512)], "the zeros are missing that mark its end"),
        (&whole[..2 * (512 + red.len().next_multiple_of(512))], "the zeros are missing that mark its end"),
        (&b"a,b,c\n".repeat(200), "no tar archive, or is damaged"),
        (&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0].repeat(80), "gunzip"),
        (&tar(&[("1.png", &red), ("b/2.png", &red)]), "lies in no folder that could be its class"),
        (&tar(&[("b/1.png", &red), ("b/2.png", &red)]), "at least two classes"),
        (&tar(&[("b/1.png", &red), ("b/1.cls", &[0xff; 5])]), "its class is no text"),
        (&tar(&[("b/1.png", &red), ("b/1.cls", b" ")]), "b/1.cls"),
        (&tar(&[("b/1.png", &red), ("b/1.cls", b"0"), ("b/1.cls", b"1")]), "another class is said before"),
        (&tar(&[("a/1.json", &[b' '; 600]), ("b/1.png", &red)])[..900], "cut off within `a/1.json`"),
        (&tar(&[("b/1.png", b"none"), ("a/1.png", &red)]), "b/1.png"),
    ] {
        let error = read(bytes).expect_err(part).to_string();
        assert!(error.contains(part) && error.contains("images.tar"), "{part}: {error}");
    }
    let packed = folder.path().join("images.tar.gz");
    fs::write(&packed, gzip(&whole)).expect("written");
    let error = load(&packed, None).expect_err("packed").to_string();
    assert!(error.contains("images.tar.gz") && error.contains("gunzip"), "{error}");
    let mut generator = SplitMix64Generator::new(8);
    for _ in 0..2_000 {
        let mut bytes = whole.clone();
        for _ in 0..=generator.below(6) {
            let at = generator.below(bytes.len() as u32) as usize;
            bytes[at] = generator.next_u64() as u8;
        }
        bytes.truncate(bytes.len() - generator.below(3) as usize * 512);
        let _ = read(&bytes);
    }
}

#[test]
fn an_image_that_changes_while_it_is_in_use_is_an_error_that_names_it() {
    let files = many();
    let files: Vec<(&str, &[u8])> = files.iter().map(|(name, bytes)| (&**name, &**bytes)).collect();
    let images = folder(&files);
    let archive = images.path().with_extension("tar");
    fs::write(&archive, tar(&files)).expect("written");
    for (source, changed) in [(images.path(), images.path().join("cat/04.png")), (&archive, archive.clone())] {
        let dataset = Dataset::load(&DataOptions { held_bytes: 0, ..options(source) }).expect("images");
        dataset.training().read(&[2]).expect("as it was");
        let mut bytes = fs::read(&changed).expect("read");
        bytes.push(0);
        fs::write(&changed, bytes).expect("written");
        let error = dataset.training().read(&[0, 1, 2]).expect_err("changed").to_string();
        assert!(error.contains(&*changed.to_string_lossy()) && error.contains("changed while"), "{error}");
    }
    fs::remove_file(archive).expect("removed");
}
