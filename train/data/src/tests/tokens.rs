//! Texts that are prepared: what is written, what is read of it, and what is refused.

use std::fs;

use super::*;
use crate::text::prepare::prepare_by;
use crate::tokens::{PrepareOptions, PrepareProgress, TokenizerPolicy, TokensSummary};

const STORY: &str =
    "The cat sat on the mat. Die Katze saß auf der Matte.\n\tThe rat, the hat & the bat: 1, 2, 3, 4321!\n\n";

/// A folder with these texts, and what is prepared of them in `out`.
pub(super) struct Prepared {
    pub(super) directory: TempDir,
    pub(super) options: PrepareOptions,
}

impl Prepared {
    pub(super) fn new(tokenizer: &str, texts: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let write = |(at, text): (usize, &&str)| {
            let path = directory.path().join(format!("{at}.txt"));
            fs::write(&path, text).expect("written");
            path
        };
        let documents = texts.iter().enumerate().map(write).collect();
        let (tokenizer, out) = (tokenizer.parse().expect("a tokenizer"), directory.path().join("out"));
        Self { options: PrepareOptions { documents, tokenizer, end: None, out }, directory }
    }

    pub(super) fn make(&self) -> Result<TokensSummary, DataError> {
        prepare_by(&self.options, 2, &mut |_| {})
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.options.out.join(name)
    }

    pub(super) fn load(&self, context: u32) -> Result<Dataset, DataError> {
        let options = options(&self.options.out);
        Dataset::load(&DataOptions { text: true, context: Some(context), ..options })
    }

    /// What can't be prepared, with nothing left behind.
    fn refused(&self) -> String {
        let before = fs::read_dir(self.directory.path()).expect("there").count();
        let message = self.make().expect_err("bad").to_string();
        assert_eq!(fs::read_dir(self.directory.path()).expect("there").count(), before, "{message}");
        message
    }
}

pub(super) fn story() -> String {
    (0..60).map(|at| format!("{STORY}{at} é→{}", at * at)).collect()
}

/// All files of a folder.
fn contents(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let files = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("a file"));
    let mut files: Vec<_> = files
        .map(|entry| (entry.file_name().into_string().expect("a name"), fs::read(entry.path()).expect("read")))
        .collect();
    files.sort();
    files
}

#[test]
fn the_same_text_gives_the_same_bytes_whoever_prepares_it() {
    let story = story();
    let texts = [&*story, "And another one.\n", &story[..story.len() / 2]];
    for tokenizer in ["bpe:400", "bytes", "bpe:5000"] {
        let all: Vec<_> = [1, 2, 3, 7]
            .map(|threads| {
                let prepared = Prepared::new(tokenizer, &texts);
                prepare_by(&prepared.options, threads, &mut |_| {}).expect("prepared");
                contents(&prepared.options.out)
            })
            .into();
        assert!(all[0].len() > 3, "several files of tokens");
        assert!(all.iter().all(|files| *files == all[0]), "{tokenizer}");
    }
}

/// It is learned from a part of what is long: whether that is packed says nothing of it.
#[test]
fn a_packed_text_has_the_vocabulary_that_it_has_unpacked() {
    let mut generator = SplitMix64Generator::new(5);
    let mut word = || format!("{} ", ["rose", "violet", "daisy", "tulip", "orchid"][generator.below(5) as usize]);
    let text: String = (0..40_000).map(|_| word()).collect();
    assert!(text.len() > 3 << 16 && gzip(text.as_bytes()).len() < 1 << 16, "longer than what is learned from");
    let prepared = Prepared::new("bpe:280", &[&*text]);
    let plain = prepared.make().expect("prepared");
    fs::write(&prepared.options.documents[0], gzip(text.as_bytes())).expect("written");
    fs::remove_dir_all(&prepared.options.out).expect("removed");
    assert_eq!(prepared.make().expect("prepared"), plain);
}

#[test]
fn tokens_spell_the_texts_one_behind_the_other() {
    let story = story();
    let texts = ["First.\n", &*story, "\u{fffd} <|endoftext|> is no mark here\r\n"];
    for (tokenizer, vocabulary) in [("bytes", 257), ("bpe:257", 257), ("bpe:300", 300)] {
        let prepared = Prepared::new(tokenizer, &texts);
        let mut told = Vec::new();
        let summary = prepare_by(&prepared.options, 2, &mut |progress| told.push(progress)).expect("prepared");
        let bytes = texts.iter().map(|text| text.len() as u64).sum::<u64>();
        assert_eq!((summary.vocabulary, summary.end, summary.documents), (vocabulary, 256, 3));
        assert_eq!((summary.bytes, summary.spelled_bytes, summary.doubt()), (bytes, bytes, None));
        assert_eq!(told.last(), Some(&PrepareProgress::Encoding(bytes, summary.tokens - 1)));
        assert_eq!(crate::tokens::check(&prepared.options.out, &mut |_, _| {}).expect("as it should be"), summary);
        let dataset = prepared.load(16).expect("a text");
        let samples = dataset.training();
        assert_eq!(samples.len() as u64, (summary.tokens - 1) / 16);
        let numbers: Vec<u32> = (0..samples.len() as u32).collect();
        let windows = samples.windows(&numbers).expect("read");
        // Each window without the token behind it, which begins the next one.
        let tokens: Vec<u32> = windows.chunks_exact(17).flat_map(|window| &window[..16]).copied().collect();
        assert_eq!(windows[16], tokens[16]);
        let tokenizer = dataset.tokenizer().expect("of tokens");
        let documents: Vec<Vec<u8>> = tokens
            .split(|token| *token == 256)
            .map(|document| document.iter().flat_map(|token| tokenizer.spelled(*token)).copied().collect())
            .collect();
        assert_eq!(documents[..2], [texts[0].as_bytes().to_vec(), texts[1].as_bytes().to_vec()]);
        assert!(texts[2].as_bytes().starts_with(&documents[2]) && documents.len() == 3);
        let again = tokenizer.encode(texts[1]).expect("tokens");
        assert_eq!(again[..], tokens[tokenizer.encode(texts[0]).expect("tokens").len() + 1..][..again.len()]);
        assert!(vocabulary == 257 || again.len() < texts[1].len());
    }
}

#[test]
fn a_prepared_text_is_described_by_its_tokens_and_its_tokenizer() {
    let (first, second) = (Prepared::new("bpe:300", &[&story()]), Prepared::new("bpe:301", &[&story()]));
    let summary = first.make().expect("prepared");
    second.make().expect("prepared");
    let dataset = first.load(8).expect("a text");
    let description = dataset.description();
    assert_eq!((&*description.kind, description.shape, description.classes), ("tokens", [1, 1, 8], 300));
    assert!(description.is_text() && description.check() == Ok(()));
    let preprocessing = dataset.preprocessing();
    assert_eq!(PreprocessingSpec::decode(&preprocessing.encode(), &description).as_ref(), Ok(preprocessing));
    assert_eq!(preprocessing.tokenizer().map(|tokenizer| tokenizer.digest()), Some(summary.tokenizer));
    let line = dataset.summary().to_string();
    assert!(line.contains("windows of 8 tokens (300 different ones)"), "{line}");
    let other = second.load(8).expect("a text");
    assert_ne!(other.description().fingerprint, description.fingerprint);
    assert_ne!(first.load(9).expect("a text").description().fingerprint, description.fingerprint);
    let told = other.preprocessing().told(preprocessing);
    assert!(told.len() == 1 && told[0].contains("the tokenizer (`tokenizer.json`) has"), "{told:?}");
    // Only a language model takes it, and none of a table's flags.
    let message = Dataset::load(&options(&first.options.out)).expect_err("no model of texts").to_string();
    assert!(message.contains("--model gpt"), "{message}");
    let labelled = DataOptions { text: true, label: Some(written("a")), ..options(&first.options.out) };
    assert!(Dataset::load(&labelled).expect_err("no columns").to_string().contains("--label"));
    for (context, part) in [(1, "can't see 1 tokens"), (4000, "two windows of 4000")] {
        let message = first.load(context).expect_err("too little").to_string();
        assert!(message.contains(part) && message.contains("out"), "{message}");
    }
}

#[test]
fn a_prepared_text_is_shared_file_by_file() {
    let prepared = Prepared::new("bytes", &[&story()]);
    let summary = prepared.make().expect("prepared");
    assert!(summary.shards > 2);
    let source = prepared.options.out.display().to_string();
    let folder = prepared.directory.path().join("unused");
    let options = DataOptions { source: source.clone(), text: true, ..DataOptions::default() };
    let (kind, files) = crate::shared_files(&options, &folder).expect("files");
    assert_eq!((kind.name, files.len()), ("tokens", 2 + summary.shards));
    let shared = SharedDataset::open(kind.files, &files).expect("read").expect("files");
    let manifest = starling_run::DataManifest::decode(&shared.manifest().encode(), kind.files).expect("its own bytes");
    let copy = prepared.directory.path().join("copy");
    let mut download = Download::open(&copy, manifest, u64::MAX).expect("made");
    for chunk in download.missing() {
        download.insert(&shared.chunk(chunk).expect("read").expect("there")).expect("taken");
    }
    assert_eq!(contents(&copy), contents(&prepared.options.out));
    assert_eq!(kind.source_in(&copy), copy);
    // Who knows what it has to be opens no other.
    let own = prepared.load(8).expect("loaded").description().fingerprint;
    let load = |expects| {
        let copied = DataOptions { context: Some(8), text: true, expects: Some(expects), ..self::options(&copy) };
        Dataset::load(&copied).map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(load(own), Ok(()));
    assert!(
        load(starling_topology::Digest([1; 32]))
            .expect_err("another")
            .contains("another text, or has another tokenizer")
    );
}

#[test]
fn a_tokenizer_of_others_is_taken_as_it_is() {
    let own = Prepared::new("bpe:300", &[&story()]);
    own.make().expect("prepared");
    let json = fs::read_to_string(own.path("tokenizer.json")).expect("read");
    let renamed = json.replace("<|endoftext|>", "</s>");
    let taken = Prepared::new("bytes", &[&story(), "More of it."]);
    let write = |text: &[u8]| {
        let path = taken.directory.path().join("given.json");
        fs::write(&path, text).expect("written");
        let end = None;
        Prepared {
            directory: tempfile::tempdir().expect("a directory"),
            options: PrepareOptions { tokenizer: TokenizerPolicy::File(path), end, ..taken.options.clone() },
        }
    };
    // Blanks make no difference, and what would cut texts off is left out.
    let pretty = renamed.replace(
        "\"truncation\":null",
        "\"truncation\": {\"direction\": \"Right\", \"max_length\": 4, \"strategy\": \"LongestFirst\", \"stride\": 0} ",
    );
    assert_ne!(pretty, renamed);
    let given = write(pretty.as_bytes());
    let summary = given.make().expect("prepared");
    assert_eq!((summary.vocabulary, summary.end), (300, 256));
    assert_eq!(fs::read_to_string(given.path("tokenizer.json")).expect("read"), renamed);
    fs::remove_dir_all(&given.options.out).expect("removed");
    let named = PrepareOptions { end: Some("e".to_owned()), ..given.options.clone() };
    let end = prepare_by(&named, 1, &mut |_| {}).map(|summary| summary.end);
    assert!(end.as_ref().is_ok_and(|end| *end == 101), "{end:?}");
    fs::remove_dir_all(&given.options.out).expect("removed");
    // Small letters take as many bytes as those that they were.
    let small = renamed.replace("\"normalizer\":null", "\"normalizer\":{\"type\":\"Lowercase\"}");
    assert_ne!(small, renamed);
    let given = write(small.as_bytes());
    let summary = given.make().expect("prepared");
    assert_eq!(summary.bytes, summary.spelled_bytes);
    assert!(summary.doubt().is_some_and(|doubt| doubt.contains("or more of them others")), "{summary:?}");
    fs::remove_dir_all(&given.options.out).expect("removed");
    // A vocabulary that lacks letters: what it makes of the text is not all of it.
    let words: String = (0..300).map(|at| format!("\"w{at}\":{at},")).collect();
    let lossy = format!(
        "{{\"version\":\"1.0\",\"added_tokens\":[],\"normalizer\":null,\"pre_tokenizer\":{{\"type\":\"Whitespace\"}},\"post_processor\":null,\"decoder\":null,\
         \"model\":{{\"type\":\"WordLevel\",\"vocab\":{{{words}\"[UNK]\":300,\"</s>\":301}},\"unk_token\":\"[UNK]\"}}}}"
    );
    let given = write(lossy.as_bytes());
    let summary = given.make().expect("prepared");
    assert!(summary.doubt().is_some_and(|doubt| doubt.contains("does not keep the text")), "{summary:?}");
    fs::remove_dir_all(&given.options.out).expect("removed");
    for (text, part) in [
        (b"no JSON".to_vec(), "it is no `tokenizer.json`"),
        (b"{}".to_vec(), "it is no `tokenizer.json`"),
        (vec![b'['; 100_000], "it is no `tokenizer.json`"),
        (b"\xff\xfe{}".to_vec(), "it is no UTF-8"),
        (Vec::new(), "it is empty"),
        (json.replace("<|endoftext|>", "<|stop|>").into_bytes(), "--end-token NAME"),
        (
            lossy.replace(&words, "\"a\":0,").replace("300", "1").replace("301", "2").into_bytes(),
            "3 tokens, but 256 to",
        ),
        (lossy.replace("301", "1048577").into_bytes(), "1048578 tokens, but 256 to 1048576"),
        (json.replace("\"dropout\":null", "\"dropout\":0.5").into_bytes(), "at random (`dropout`)"),
    ] {
        let message = write(&text).refused();
        assert!(message.contains(part) && message.contains("given.json"), "{part}: {message}");
    }
    // One that is too long is not read: it takes no place on the disk either.
    let huge = taken.directory.path().join("given.json");
    fs::File::create(&huge).and_then(|file| file.set_len(1 << 30)).expect("a hole");
    assert!(Tokenizer::read(&huge, None).expect_err("too long").to_string().contains("more than 67108864 bytes"));
}

#[test]
fn what_is_no_text_and_what_cant_be_written_is_refused_with_nothing_left() {
    let cases: [(&[u8], &str); 3] =
        [(b"", "it is empty"), (b"caf\xe9\n", "line 1, byte 4 (0xe9) is no UTF-8"), (b"a\0b", "a zero byte")];
    for tokenizer in ["bpe:300", "bytes"] {
        for (bytes, part) in cases {
            let prepared = Prepared::new(tokenizer, &["A good one.", ""]);
            fs::write(&prepared.options.documents[1], bytes).expect("written");
            let message = prepared.refused();
            assert!(message.contains(part) && message.contains("1.txt"), "{message}");
        }
    }
    let prepared = Prepared::new("bytes", &["A text."]);
    fs::create_dir(&prepared.options.out).expect("made");
    assert!(prepared.refused().contains("it is there already; remove it"));
    let nowhere = PrepareOptions { out: prepared.directory.path().join("missing/out"), ..prepared.options.clone() };
    let message = prepare_by(&nowhere, 1, &mut |_| {}).expect_err("no folder").to_string();
    assert!(message.contains("cannot write") && message.contains("missing"), "{message}");
    let none = PrepareOptions { documents: Vec::new(), out: prepared.path("new"), ..prepared.options.clone() };
    assert!(prepare_by(&none, 1, &mut |_| {}).expect_err("nothing").to_string().contains("no text is named"));
    for (text, part) in [
        ("bpe:256", "257 to 1048576"),
        ("bpe:1048577", "257 to 1048576"),
        ("bpe:-1", "257 to 1048576"),
        ("bpe:many", "257 to 1048576"),
        ("bpe", "bpe:2048"),
        ("", "no tokenizer is named"),
    ] {
        let reason = text.parse::<TokenizerPolicy>().expect_err("no tokenizer");
        assert!(reason.contains(part), "{text}: {reason}");
    }
}

#[test]
fn files_that_were_changed_are_named() {
    type Change = fn(&mut Vec<u8>);
    let cases: [(&str, Change, &str); 11] = [
        ("tokens-00001.bin", |bytes| bytes.truncate(bytes.len() - 1), "it was cut off or changed"),
        ("tokens-00001.bin", |bytes| bytes.extend([0, 0]), "it was cut off or changed"),
        ("tokens-00000.bin", |bytes| bytes.truncate(10), "its header alone has 64"),
        ("tokens-00000.bin", |bytes| bytes[64] ^= 1, "the blake3 of its tokens is"),
        ("tokens-00000.bin", |bytes| bytes[65] = 0xff, "is 65"),
        ("tokens-00000.bin", |bytes| bytes[0] = b'X', "it is no file of tokens"),
        ("tokens-00000.bin", |bytes| bytes[8] = 9, "its version is 9"),
        ("tokens-00000.bin", |bytes| bytes[40] ^= 1, "but `tokens.json` says"),
        ("tokenizer.json", |bytes| bytes.push(b' '), "it was changed, or is of another text"),
        ("tokens.json", |bytes| bytes[0] = b'[', "it does not say what `starling data prepare` writes"),
        ("tokens.json", |bytes| bytes.truncate(20), "it does not say what"),
    ];
    let prepared = Prepared::new("bytes", &[&story()]);
    prepared.make().expect("prepared");
    prepared.load(16).expect("as it should be");
    for (name, change, part) in cases {
        let kept = fs::read(prepared.path(name)).expect("read");
        let mut bytes = kept.clone();
        change(&mut bytes);
        fs::write(prepared.path(name), bytes).expect("written");
        let message = prepared.load(16).expect_err("changed").to_string();
        assert!(message.contains(part) && message.contains(name), "{name}: {message}");
        fs::write(prepared.path(name), kept).expect("written");
    }
    prepared.load(16).expect("as it was");
    let told = fs::read_to_string(prepared.path("tokens.json")).expect("read");
    for (from, to, part) in [
        ("\"vocabulary\": 257", "\"vocabulary\": 200", "but 256 to 1048576"),
        ("\"vocabulary\": 257", "\"vocabulary\": 4294967295", "but 256 to 1048576"),
        ("\"end\": 256", "\"end\": 257", "the end token 257"),
        ("\"tokens\": 1000", "\"tokens\": 999", "have to have 1000"),
        ("starling-tokens-1", "starling-tokens-9", "its format is not"),
        ("\"documents\": 1", "\"documents\": 1, \"more\": 2", "unknown field"),
        ("\"documents\": 1", "\"documents\": -1", "it does not say"),
    ] {
        assert!(told.contains(from), "{from}");
        fs::write(prepared.path("tokens.json"), told.replacen(from, to, 1)).expect("written");
        let message = prepared.load(16).expect_err("changed").to_string();
        assert!(message.contains(part) && message.contains("tokens.json"), "{to}: {message}");
    }
    fs::write(prepared.path("tokens.json"), told).expect("written");
    fs::remove_file(prepared.path("tokens-00002.bin")).expect("removed");
    let message = prepared.load(16).expect_err("not there").to_string();
    assert!(message.contains("cannot read") && message.contains("tokens-00002.bin"), "{message}");
}

#[test]
fn a_file_that_changes_while_it_is_read_is_an_error() {
    let prepared = Prepared::new("bytes", &[&story()]);
    prepared.make().expect("prepared");
    let dataset = prepared.load(16).expect("a text");
    let all: Vec<u32> = (0..dataset.training().len() as u32).collect();
    dataset.training().windows(&all).expect("read");
    let path = prepared.path("tokens-00001.bin");
    let bytes = fs::read(&path).expect("read");
    fs::File::options().write(true).open(&path).and_then(|file| file.set_len(70)).expect("cut off");
    let message = dataset.training().windows(&all).expect_err("shorter").to_string();
    assert!(message.contains("tokens-00001.bin") && message.contains("it has become shorter"), "{message}");
    // As long as before, but written anew.
    fs::write(&path, bytes).expect("written");
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(60);
    fs::File::options().write(true).open(&path).and_then(|file| file.set_modified(later)).expect("touched");
    let message = dataset.training().windows(&all).expect_err("changed").to_string();
    assert!(
        message.contains("tokens-00001.bin") && message.contains("it was changed while it was in use"),
        "{message}"
    );
    // Others are as they were.
    dataset.training().windows(&[0, 1]).expect("read");
}
