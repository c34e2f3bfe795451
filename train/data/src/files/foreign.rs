//! Files that are no text, told by their first bytes.

/// The byte order mark of UTF-8, which some programs put before a text.
pub(crate) const MARK: &[u8] = b"\xef\xbb\xbf";
/// What is to be done about text of two bytes each without its mark: with it, it is decoded before anybody looks.
const UTF16: &str = "it is UTF-16 text without its mark; save it as UTF-8";

/// What a file that begins with `start` is, with what to do about it; `None` if it may be a text.
pub(crate) fn no_text(start: &[u8]) -> Option<String> {
    if let Some(kind) = kind(start) {
        return Some(format!("it is {kind}, and no text; save what it says as plain text"));
    }
    is_utf16(start).then(|| UTF16.to_owned())
}

/// What a file that begins with `start` is, with what to do about it; `None` if it may be a table.
pub(crate) fn told(start: &[u8]) -> Option<String> {
    if let Some(kind) = kind(start) {
        if kind.ends_with(IMAGE) {
            let advice = "name the folder whose folders are the classes: images/CLASS/NAME.png";
            return Some(format!("it is {kind} alone; to train on images, {advice}"));
        }
        return Some(format!("it is {kind}, but tables are read as text; save it as CSV"));
    }
    if is_utf16(start) {
        return Some(UTF16.to_owned());
    }
    let text = start.strip_prefix(MARK).unwrap_or(start);
    if let [b's', b'e', b'p', b'=', separator, b'\r' | b'\n', ..] = text {
        let separator = separator.escape_ascii();
        return Some(format!(
            "its first line is `sep={separator}`, by which a spreadsheet is told what separates cells, and no row: remove that line"
        ));
    }
    let text = text.trim_ascii_start();
    let is_json = text.strip_prefix(b"[").is_some_and(|rest| begins(rest, b"[{\"]-0123456789"));
    is_json.then(|| "it is JSON, but a table has a row per line; save it as CSV, or as an object per line".to_owned())
}

/// How the kinds of images are called.
const IMAGE: &str = " image";
const MAGIC: [(&[u8], &str); 12] = [
    (b"PAR1", "a Parquet file"),
    (b"ARROW1", "an Arrow file"),
    (b"\x89PNG", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"\x93NUMPY", "a NumPy array"),
    (b"PK\x03\x04", "a ZIP archive (as NPZ and XLSX files are)"),
    (b"\x89HDF", "an HDF5 file"),
    (b"BZh", "a bzip2 file"),
    (b"\xfd7zXZ", "an xz file"),
    (b"\x28\xb5\x2f\xfd", "a Zstandard file"),
    (b"SQLite format 3", "an SQLite database"),
    (b"%PDF", "a PDF document"),
];

/// The kind of file that begins so, if its first bytes tell it.
fn kind(start: &[u8]) -> Option<&'static str> {
    MAGIC.iter().find(|(magic, _)| start.starts_with(magic)).map(|(_, kind)| *kind)
}

/// Whether this is text of two bytes each without its mark: with a zero in every second byte, as Latin letters have.
fn is_utf16(start: &[u8]) -> bool {
    let (pairs, _) = start[..start.len().min(64)].as_chunks::<2>();
    let zeros = |at: usize| pairs.iter().filter(|pair| pair[at] == 0).count();
    let [first, second] = [zeros(0), zeros(1)];
    pairs.len() >= 2 && (first * 2 > pairs.len() || second * 2 > pairs.len()) && first.min(second) == 0
}

/// Whether text begins, behind blanks, with one of these characters.
fn begins(text: &[u8], with: &[u8]) -> bool {
    text.trim_ascii_start().first().is_some_and(|byte| with.contains(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn utf16(text: &str, to_bytes: fn(u16) -> [u8; 2]) -> Vec<u8> {
        text.encode_utf16().flat_map(to_bytes).collect()
    }

    #[test]
    fn each_kind_is_named() {
        for (magic, kind) in MAGIC {
            let bytes = [magic, b"\x01\x02, and more"].concat();
            let advice = if kind.ends_with(IMAGE) { "images/CLASS/NAME.png" } else { "CSV" };
            assert!(told(&bytes).is_some_and(|told| told.contains(advice)), "{kind}");
            assert!(no_text(&bytes).is_some_and(|told| told.contains(kind)), "{kind}");
        }
        for text in ["[[1, 2], [3, 4]]", "\n [ {\"a\": [1, 2]} ]", "\u{feff}[{\"a\":1}]\n"] {
            assert!(told(text.as_bytes()).is_some_and(|told| told.contains("JSON")), "{text}");
        }
    }

    /// It has other columns than the rows, or gives them names that are none.
    #[test]
    fn a_line_for_spreadsheets_is_named() {
        for text in ["sep=;\na;b\n1;x\n", "\u{feff}sep=,\r\na,b\r\n", "sep=\t\r\na\tb\r\n"] {
            assert!(told(text.as_bytes()).is_some_and(|told| told.contains("remove that line")), "{text}");
        }
        assert_eq!(told(b"sep=a,b\n1,2\n"), None);
    }

    #[test]
    fn text_of_two_bytes_without_its_mark_is_named() {
        for text in ["a,b\n1,x\n", "größe,b\n1,x\n"] {
            for to_bytes in [u16::to_le_bytes, u16::to_be_bytes] {
                let told = told(&utf16(text, to_bytes));
                assert!(told.as_ref().is_some_and(|told| told.contains("UTF-16")), "{text}: {told:?}");
            }
        }
    }

    #[test]
    fn tables_are_not_taken_for_anything_else() {
        for text in [
            "a,b\n1,x\n",
            "",
            "1",
            "{a},b\n1,x\n",
            "\"a\"\"b\",c\n",
            "PARIS,b\n1,x\n",
            "[a],b\n1,x\n",
            "größe,b\n",
            "\0",
            "\0\0\0\0",
        ] {
            assert_eq!(told(text.as_bytes()), None, "{text}");
        }
    }
}
