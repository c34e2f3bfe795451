//! What the names of tokens spell.

use serde_json::Value;

/// What stands for a blank in the vocabularies of SentencePiece.
const BLANK: char = '\u{2581}';

/// How the names of a vocabulary's tokens become bytes of text: what its decoder says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spelling {
    /// A letter for each byte, as GPT-2 has them.
    Letters,
    /// Letters themselves; a blank may have a sign of its own, and a byte be written as `<0x0a>`.
    Pieces,
    /// Words with blanks between them; what begins so goes on with the one before.
    Words,
}

impl Spelling {
    /// That of a `tokenizer.json`.
    pub(super) fn of(file: &Value) -> Self {
        let mut kinds = Vec::new();
        named(&file["decoder"], &mut kinds);
        if kinds.is_empty() {
            named(&file["pre_tokenizer"], &mut kinds);
        }
        match kinds {
            kinds if kinds.contains(&"ByteLevel") => Self::Letters,
            kinds if kinds.contains(&"WordPiece") => Self::Words,
            _ => Self::Pieces,
        }
    }

    /// The bytes of a token of this name.
    pub(super) fn bytes(self, name: &str) -> Vec<u8> {
        match self {
            Self::Letters => {
                let mut bytes = Vec::with_capacity(name.len());
                for letter in name.chars() {
                    match letter_byte(letter) {
                        Some(byte) => bytes.push(byte),
                        None => bytes.extend(letter.encode_utf8(&mut [0; 4]).bytes()),
                    }
                }
                bytes
            }
            Self::Pieces => match escaped(name) {
                Some(byte) => vec![byte],
                None => name.replace(BLANK, " ").into_bytes(),
            },
            Self::Words => match name.strip_prefix("##") {
                Some(rest) => rest.as_bytes().to_vec(),
                None => [b" ", name.as_bytes()].concat(),
            },
        }
    }
}

/// The kinds of what a part of the file consists of.
fn named<'v>(part: &'v Value, kinds: &mut Vec<&'v str>) {
    kinds.extend(part["type"].as_str());
    for list in ["decoders", "pretokenizers"] {
        part[list].as_array().into_iter().flatten().for_each(|part| kinds.extend(part["type"].as_str()));
    }
}

/// The byte that is written as `<0x0a>`.
fn escaped(name: &str) -> Option<u8> {
    let digits = name.strip_prefix("<0x")?.strip_suffix('>').filter(|digits| digits.len() == 2)?;
    u8::from_str_radix(digits, 16).ok()
}

/// Whether the letter of a byte is that of its number in Latin-1.
fn is_own(byte: u8) -> bool {
    matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff)
}

/// The letter that GPT-2 has for a byte: its own if that can be seen, else one of those from 256 on.
pub(super) fn byte_letter(byte: u8) -> char {
    let hidden = (0..byte).filter(|before| !is_own(*before)).count() as u32;
    let letter = if is_own(byte) { u32::from(byte) } else { 256 + hidden };
    char::from_u32(letter).expect("invariant: below the surrogates")
}

/// The bytes that letters stand for; `None` if one of them stands for none.
pub(super) fn letters(name: &str) -> Option<Vec<u8>> {
    name.chars().map(letter_byte).collect()
}

/// The byte that a letter stands for.
fn letter_byte(letter: char) -> Option<u8> {
    let number = u32::from(letter);
    match u8::try_from(number) {
        Ok(byte) => is_own(byte).then_some(byte),
        Err(_) => (0..=u8::MAX).filter(|byte| !is_own(*byte)).nth(number.checked_sub(256)? as usize),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_byte_has_a_letter_and_is_found_by_it() {
        for byte in 0..=u8::MAX {
            assert_eq!(letter_byte(byte_letter(byte)), Some(byte));
        }
        assert_eq!([b' ', b'\n', b'a', 0xad].map(byte_letter), ['Ġ', 'Ċ', 'a', 'Ń']);
        assert_eq!((letter_byte('→'), letter_byte(' ')), (None, None));
    }

    #[test]
    fn names_are_spelled_as_their_decoder_says() {
        let letters = Spelling::of(&json!({ "decoder": { "type": "ByteLevel" } }));
        assert_eq!((letters, letters.bytes("ĠcafÃ©")), (Spelling::Letters, " café".as_bytes().to_vec()));
        assert_eq!(letters.bytes("→"), "→".as_bytes());
        let nested = json!({ "decoder": null, "pre_tokenizer": { "type": "Sequence", "pretokenizers": [{ "type": "Split" }, { "type": "ByteLevel" }] } });
        assert_eq!(Spelling::of(&nested), Spelling::Letters);
        let pieces =
            Spelling::of(&json!({ "decoder": { "type": "Sequence", "decoders": [{ "type": "ByteFallback" }] } }));
        let spelled = ["▁the", "<0x0A>", "<0xZZ>", "<0x0"].map(|name| pieces.bytes(name));
        assert_eq!(spelled, [b" the".to_vec(), b"\n".to_vec(), b"<0xZZ>".to_vec(), b"<0x0".to_vec()]);
        let words = Spelling::of(&json!({ "decoder": { "type": "WordPiece" } }));
        assert_eq!(["run", "##ning"].map(|name| words.bytes(name)), [b" run".to_vec(), b"ning".to_vec()]);
    }
}
