//! Bytes as tokens, as Hugging Face's `tokenizers` reads them: byte-level BPE that merges nothing.

use serde_json::{Map, Value, json};

use super::super::BYTES;
use super::super::read::Held;

/// What `tokenizer.json` says of a model whose tokens are bytes; `None` of others.
pub(super) fn of(held: &Held) -> Option<Value> {
    held.metadata.get("tokenizer").filter(|name| *name == BYTES)?;
    let by_bytes = json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false });
    let vocabulary: Map<String, Value> =
        letters().into_iter().zip(0..).map(|(letter, byte)| (letter.into(), Value::from(byte))).collect();
    Some(json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": [],
        "normalizer": null,
        "pre_tokenizer": by_bytes,
        "post_processor": null,
        "decoder": by_bytes,
        "model": {
            "type": "BPE",
            "dropout": null,
            "unk_token": null,
            "continuing_subword_prefix": null,
            "end_of_word_suffix": null,
            "fuse_unk": false,
            "byte_fallback": false,
            "vocab": vocabulary,
            "merges": [],
        },
    }))
}

/// What `tokenizer_config.json` says: how it is used.
pub(super) fn config(held: &Held) -> Value {
    json!({
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": held.description.features(),
        "clean_up_tokenization_spaces": false,
    })
}

/// The letter that stands for each byte, in order: what can be printed, and is no blank, stands for itself, and all others for the letters from
/// 256 on, as GPT-2 has it.
fn letters() -> [char; 256] {
    let mut next = 256;
    std::array::from_fn(|byte| {
        let letter = match byte {
            0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff => byte as u32,
            _ => {
                next += 1;
                next - 1
            }
        };
        char::from_u32(letter).expect("invariant: there are letters up to 511")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_has_a_letter_of_its_own() {
        let letters = letters();
        let apart: std::collections::BTreeSet<char> = letters.into_iter().collect();
        assert_eq!(apart.len(), 256);
        assert_eq!((letters[0], letters[b' ' as usize], letters[b'a' as usize]), ('Ā', 'Ġ', 'a'));
        assert_eq!((letters[b'\n' as usize], letters[0xad], letters[0xff]), ('Ċ', 'Ń', 'ÿ'));
    }
}
