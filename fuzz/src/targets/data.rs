//! Tables and images that a user, or members who share theirs, say are data.

use starling_data::{Dataset, fuzzed};

use crate::target::Target;

const KIB: usize = 1024;
/// The most that a file may have, unpacked.
const MOST: usize = 256 * KIB;

pub(super) const CSV: Target = Target {
    name: "csv",
    seeds: || {
        let rows = |separator: &str, head: &str| {
            let row = |at: u32| [&at.to_string(), "-1.5e3", ["cat", "dog"][at as usize % 2]].join(separator) + "\n";
            (head.replace(',', separator) + &(0..12).map(row).collect::<String>()).into_bytes()
        };
        let separated = [",", "\t", ";", "|", " "].map(|separator| rows(separator, "x,y,kind\n"));
        let text = rows(",", "");
        let objects =
            b"{\"x\": 1, \"y\": -1.5e3, \"kind\": \"cat\"}\n{\"kind\": \"dog\", \"y\": null, \"x\": 2}\n".repeat(3);
        separated.into_iter().chain([packed(&text), text, objects]).collect()
    },
    take: |bytes| fuzzed::csv(bytes, MOST as u64).is_some_and(|dataset| is_sound(&dataset)),
    longest: 64 * KIB,
    per_byte: 256,
    // What a small file may unpack to.
    besides: 96 * MOST,
};

/// How many bytes of images, two bytes, then these, and labels.
pub(super) const IDX: Target = Target {
    name: "idx",
    seeds: || {
        let number = |number: u32| number.to_be_bytes();
        let images = [&[0, 0, 8, 3][..], &number(10), &number(2), &number(3), &[7; 60]].concat();
        let labels = [&[0, 0, 8, 1][..], &number(10), &[0, 1, 2, 0, 1, 2, 0, 1, 2, 0]].concat();
        let both = |images: &[u8], labels: &[u8]| [&(images.len() as u16).to_le_bytes()[..], images, labels].concat();
        vec![both(&images, &labels), both(&packed(&images), &labels)]
    },
    take: |bytes| {
        let Some((length, rest)) = bytes.split_first_chunk() else { return false };
        let (images, labels) = rest.split_at(usize::from(u16::from_le_bytes(*length)).min(rest.len()));
        fuzzed::idx(images, labels, MOST as u64).is_some_and(|dataset| is_sound(&dataset))
    },
    longest: 64 * KIB,
    per_byte: 256,
    besides: 96 * MOST,
};

pub(super) const IMAGES: Target = Target {
    name: "images",
    seeds: || {
        let numbers = |numbers: &[u32]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>();
        let [shape, labels] = [numbers(&[3, 2, 2, 4, 2]), numbers(&[0, 1, 1, 0])];
        let pack = [b"STARLIMG", &*shape, b"\x03\x00cat\x03\x00dog", &labels, &[7; 48]].concat();
        vec![packed(&pack), pack]
    },
    take: |bytes| fuzzed::images(bytes, MOST as u64).is_some_and(|dataset| is_sound(&dataset)),
    longest: 64 * KIB,
    per_byte: 256,
    besides: 96 * MOST,
};

/// What a text that was prepared says of itself, and the header of its tokens.
pub(super) const TOKENS: Target = Target {
    name: "tokens",
    seeds: || {
        let header =
            [&b"STARLTOK\x01\x00\x02\x00"[..], &300_u32.to_le_bytes(), &1000_u64.to_le_bytes(), &[0; 8], &[7; 32]];
        let told = br#"{"format":"starling-tokens-1","tokenizer":"00","vocabulary":300,"end":256,"documents":1,"bytes":9,"spelled_bytes":9,
            "tokens":1000,"shards":[{"tokens":1000,"blake3":"07"}]}"#;
        vec![header.concat(), told.to_vec()]
    },
    take: fuzzed::tokens,
    longest: 8 * KIB,
    per_byte: 256,
    besides: 64 * KIB,
};

/// Names and places alone: what images are is their decoders' concern.
pub(super) const ARCHIVE: Target = Target {
    name: "archive",
    seeds: || {
        let two = [("cat/1.png", "1"), ("dog/2.jpg", "22")];
        let by_folder = [two[0], two[1], ("cat/.hidden", ""), ("readme", "text")];
        let by_class = [("1.png", "1"), ("1.cls", "7"), ("2.jpeg", "2"), ("2.cls", "8")];
        vec![archive(&two, b'0'), archive(&by_folder, b'0'), archive(&by_class, b'0'), archive(&by_class, 0)]
    },
    take: fuzzed::archive,
    longest: 16 * KIB,
    per_byte: 256,
    // Readers of files, and names that are read in pieces of this size.
    besides: 2048 * KIB,
};

/// A page of a column says itself what it unpacks to, which is [2 GiB at most](https://parquet.apache.org/docs/file-format/data-pages/), and three columns have one
/// each at a time.
pub(super) const PARQUET: Target = Target {
    name: "parquet",
    seeds: || vec![fuzzed::parquet_file(false), fuzzed::parquet_file(true)],
    take: |bytes| {
        let [held, placed] = [true, false].map(|is_held| fuzzed::parquet(bytes, is_held));
        if let (Some(held), Some(placed)) = (&held, &placed) {
            assert_eq!(held.description(), placed.description(), "it depends on where its rows are");
        }
        held.is_some_and(|dataset| is_sound(&dataset))
    },
    longest: 16 * KIB,
    per_byte: 256,
    besides: 8 << 30,
};

/// For the crate that reads it.
pub(super) const TOKENIZER: Target = Target {
    name: "tokenizer",
    seeds: || {
        let words = br#"{"version":"1.0","truncation":null,"padding":null,"added_tokens":[],"normalizer":null,
            "pre_tokenizer":{"type":"Whitespace"},"post_processor":null,"decoder":null,
            "model":{"type":"WordLevel","vocab":{"a":0,"of":1,"?":255},"unk_token":"?"}}"#;
        vec![fuzzed::tokenizer_file(), words.to_vec()]
    },
    take: fuzzed::tokenizer,
    longest: 64 * KIB,
    per_byte: 1024,
    // Regular expressions that are compiled, and caches of words.
    besides: 64 << 20,
};

/// A tar archive of these files, of this kind.
fn archive(files: &[(&str, &str)], kind: u8) -> Vec<u8> {
    let mut all = Vec::new();
    for (name, text) in files {
        let mut header = [0; 512];
        header[..name.len()].copy_from_slice(name.as_bytes());
        header[100..107].copy_from_slice(b"0000644");
        header[124..135].copy_from_slice(format!("{:011o}", text.len()).as_bytes());
        header[148..156].fill(b' ');
        header[156] = kind;
        header[257..265].copy_from_slice(b"ustar\x0000");
        let sum: u32 = header.iter().copied().map(u32::from).sum();
        header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        all.extend(header);
        all.extend(text.bytes());
        all.resize(all.len().next_multiple_of(512), 0);
    }
    all.resize(all.len() + 1024, 0);
    all
}

fn is_sound(dataset: &Dataset) -> bool {
    let samples = (dataset.training().len() + dataset.held_out().len()) as u64;
    assert_eq!(dataset.description().check(), Ok(()), "its description is none");
    assert_eq!(dataset.description().samples, samples, "some samples are lost");
    let _told = dataset.warnings(64, true);
    true
}

/// As a gzip file that packs nothing: one stored block.
fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut table = [0u32; 256];
    for (at, entry) in (0..).zip(&mut table) {
        *entry = (0..8).fold(at, |word: u32, _| if word & 1 == 1 { word >> 1 ^ 0xedb8_8320 } else { word >> 1 });
    }
    let sum = !bytes.iter().fold(!0, |sum: u32, byte| table[usize::from(sum as u8 ^ byte)] ^ sum >> 8);
    let length = bytes.len() as u16;
    let head = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255, 1];
    let (length, inverse) = (length.to_le_bytes(), (!length).to_le_bytes());
    [&head[..], &length, &inverse, bytes, &sum.to_le_bytes(), &(bytes.len() as u32).to_le_bytes()].concat()
}
