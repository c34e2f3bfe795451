use super::*;
use crate::state::snapshot::{CHUNK_BYTES, hash};

/// A table of a little more than three chunks, two of which are equal: blanks around a number mean nothing.
fn table() -> Vec<u8> {
    let mut text = "width,height,class\n1.5,2,a\n2.5,1,b\n3.5,0,a\n".to_owned();
    text += &" ".repeat(3 * CHUNK_BYTES + CHUNK_BYTES / 2 - text.len());
    text += "4.5,7,b\n";
    text.into_bytes()
}

fn shared(bytes: &[u8]) -> (tempfile::TempDir, SharedDataset) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("Kleiner Tisch.txt");
    std::fs::write(&path, bytes).expect("written");
    let shared = SharedDataset::open(TABLE, &[path]).expect("readable").expect("files");
    (folder, shared)
}

fn manifest(bytes: u64, chunks: &[u8]) -> DataManifest {
    let chunks = chunks.iter().map(|name| Digest([*name; 32])).collect();
    DataManifest { files: vec![SharedFile { name: "table.csv".to_owned(), bytes, chunks }] }
}

/// What the only file of a table is called.
const TABLE: &[&str] = &["table.csv"];

fn refused(manifest: &DataManifest, names: &[&str]) -> String {
    DataManifest::decode(&manifest.encode(), names).expect_err("not a manifest").to_string()
}

#[test]
fn a_table_comes_over_in_chunks() {
    let (folder, shared) = shared(&table());
    let manifest = DataManifest::decode(&shared.manifest().encode(), TABLE).expect("its own bytes");
    assert_eq!((manifest.files[0].name.as_str(), manifest.bytes()), ("table.csv", table().len() as u64));
    let to = folder.path().join("deep/here");
    let mut download = Download::open(&to, manifest, table().len() as u64).expect("made");
    assert_eq!((download.missing().len(), download.bytes_here()), (3, 0), "four chunks, two of them equal");
    let mut here = 0;
    for chunk in download.missing().into_iter().rev() {
        let bytes = shared.chunk(chunk).expect("read").expect("there");
        here += download.insert(&bytes).expect("taken");
        assert_eq!(download.insert(&bytes).expect("known"), 0);
        assert_eq!(download.bytes_here(), here);
    }
    assert_eq!((download.missing(), here), (Vec::new(), table().len() as u64));
    assert_eq!(std::fs::read(to.join("table.csv")).expect("read"), table());
    assert!(SharedDataset::open(&[], &[]).expect("built in").is_none());
}

#[test]
fn what_is_here_and_right_is_not_asked_for_again() {
    let (folder, shared) = shared(&table());
    let to = folder.path().join("here");
    let open = || Download::open(&to, shared.manifest().clone(), u64::MAX).expect("opened");
    let all = open().missing();
    let mut download = open();
    download.insert(&shared.chunk(all[2]).expect("read").expect("there")).expect("taken");
    drop(download);
    assert_eq!(open().missing(), all[..2], "after a restart");
    let mut download = open();
    for chunk in download.missing() {
        download.insert(&shared.chunk(chunk).expect("read").expect("there")).expect("taken");
    }
    assert_eq!(open().missing(), []);
    // A bit that was flipped, and an end that is missing, are fetched again, and nothing else.
    let path = to.join("table.csv");
    let mut bytes = std::fs::read(&path).expect("read");
    bytes[5] ^= 1;
    bytes.pop();
    std::fs::write(&path, &bytes).expect("written");
    assert_eq!(open().missing(), [all[0], all[2]]);
    // What another manifest left behind is cut.
    std::fs::write(&path, [&table()[..], b"more"].concat()).expect("written");
    assert_eq!(open().missing(), []);
    assert_eq!(std::fs::read(&path).expect("read"), table());
}

#[test]
fn a_chunk_that_is_not_of_the_files_is_refused() {
    let (folder, shared) = shared(b"1,2\n3,4\n");
    let mut download = Download::open(&folder.path().join("here"), shared.manifest().clone(), 8).expect("made");
    let error = download.insert(b"1,2\n3,5\n").expect_err("another").to_string();
    assert!(error.contains(&hash(b"1,2\n3,5\n").to_string()), "{error}");
    assert_eq!(download.missing().len(), 1);
    // A file that has changed since it was cut is not handed out.
    std::fs::write(folder.path().join("Kleiner Tisch.txt"), b"1,2\n3,5\n").expect("written");
    assert!(shared.chunk(download.missing()[0]).expect("read").is_none());
    assert!(shared.chunk(Digest([0; 32])).expect("not looked for").is_none());
}

#[test]
fn files_have_the_names_of_their_kind_and_no_others() {
    let named = |names: &[&str]| {
        let file = |name: &&str| SharedFile { name: (*name).to_owned(), bytes: 0, chunks: Vec::new() };
        DataManifest { files: names.iter().map(file).collect() }
    };
    DataManifest::decode(&named(&["table.csv"]).encode(), TABLE).expect("that is its name");
    for names in [
        &[][..],
        &[""],
        &["."],
        &["../table.csv"],
        &["/etc/passwd"],
        &["..\\table.csv"],
        &["C:table.csv"],
        &["table.csv\0"],
        &["table.csv/"],
        &["TABLE.CSV"],
        &["table.csv", "table.csv"],
        &["table.csv", "more.csv"],
        &["train-images-idx3-ubyte", "train-labels-idx1-ubyte"],
    ] {
        let error = refused(&named(names), TABLE);
        assert!(error.contains("that such a data set has: table.csv"), "{names:?}: {error}");
    }
    refused(&named(&vec!["table.csv"; 20_000]), TABLE);
    refused(&named(&["table.csv"]), &[]);
    refused(&named(&[]), &[]);
    refused(&named(&["labels", "images"]), &["images", "labels"]);
}

#[test]
fn numbered_files_are_as_many_as_there_are() {
    const NAMES: &[&str] = &["told.json", "part-*.bin"];
    let named = |names: &[String]| {
        let file = |name: &String| SharedFile { name: name.clone(), bytes: 0, chunks: Vec::new() };
        DataManifest { files: names.iter().map(file).collect() }
    };
    let parts = |count| ["told.json".to_owned()].into_iter().chain((0..count).map(|at| numbered(NAMES[1], at)));
    for count in [1, 2, 1000] {
        let names: Vec<String> = parts(count).collect();
        assert_eq!(names[count], format!("part-{:05}.bin", count - 1));
        DataManifest::decode(&named(&names).encode(), NAMES).expect("these are its names");
    }
    for names in [
        &["told.json"][..],
        &["part-00000.bin"],
        &["told.json", "part-00001.bin"],
        &["told.json", "part-00000.bin", "part-00000.bin"],
        &["told.json", "part-00000.bin", "part-00002.bin"],
        &["told.json", "part-*.bin"],
        &["told.json", "part-../00.bin"],
        &["part-00000.bin", "told.json"],
    ] {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        refused(&named(&names), NAMES);
    }
    refused(&named(&parts(1026).collect::<Vec<_>>()), NAMES);
}

#[test]
fn lengths_and_chunks_must_agree() {
    const MIB: u64 = CHUNK_BYTES as u64;
    DataManifest::decode(&manifest(2 * MIB + 1, &[1, 1, 2]).encode(), TABLE).expect("two chunks and a byte");
    for (bytes, chunks) in [(2 * MIB + 1, &[1, 2][..]), (2 * MIB, &[1, 2, 3]), (0, &[1]), (1, &[]), (u64::MAX, &[1])] {
        let error = refused(&manifest(bytes, chunks), TABLE);
        assert!(error.contains("bytes"), "{bytes} in {chunks:?}: {error}");
    }
    let error = refused(&manifest(MIB + 1, &[1, 1]), TABLE);
    assert!(error.contains("two lengths"), "{error}");
    let both = DataManifest {
        files: [("train-images-idx3-ubyte", u64::MAX), ("train-labels-idx1-ubyte", u64::MAX)]
            .map(|(name, bytes)| SharedFile { name: name.to_owned(), bytes, chunks: Vec::new() })
            .to_vec(),
    };
    assert!(
        refused(&both, &["train-images-idx3-ubyte", "train-labels-idx1-ubyte"]).contains("more than"),
        "no overflow"
    );
    let folder = tempfile::tempdir().expect("a folder");
    let error = Download::open(folder.path(), manifest(2 * MIB, &[1, 2]), 2 * MIB - 1).expect_err("too long");
    assert!(error.to_string().contains("2097152 bytes, but may have 2097151"), "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).expect("there").count(), 0, "refused before a file is made");
}

#[test]
fn hostile_bytes_are_refused_and_never_panic() {
    let valid = manifest(CHUNK_BYTES as u64 + 1, &[1, 2]).encode();
    for length in 0..valid.len() {
        DataManifest::decode(&valid[..length], TABLE).expect_err("cut");
    }
    DataManifest::decode(&[&valid[..], &[0]].concat(), TABLE).expect_err("more behind it");
    DataManifest::decode(&vec![0; MAX_DATA_MANIFEST_BYTES + 1], TABLE).expect_err("too long");
    // A number of files that nobody has room for reserves nothing.
    DataManifest::decode(&[0xff, 0xff, 0xff, 0xff, 0xff, 0x1f], TABLE).expect_err("2^40 files");
    let mut generator = starling_topology::SplitMix64Generator::new(5);
    for _ in 0..20_000 {
        let mut bytes = valid.clone();
        for _ in 0..=generator.below(4) {
            let at = generator.below(bytes.len() as u32) as usize;
            bytes[at] = generator.next_u64() as u8;
        }
        if let Ok(manifest) = DataManifest::decode(&bytes, TABLE) {
            assert_eq!((manifest.encode(), manifest.files.len()), (bytes, 1));
        }
    }
}
