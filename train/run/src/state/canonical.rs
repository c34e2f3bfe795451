//! JSON of which equal values have equal texts: keys sorted, nothing but printable ASCII, no blanks between.

use serde_json::Value;

/// The canonical text of `value`.
pub fn canonical(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_unstable_by_key(|(key, _)| *key);
            let fields = fields.into_iter().map(|(key, value)| format!("{}:{}", quoted(key), canonical(value)));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(canonical).collect::<Vec<_>>().join(",")),
        Value::String(text) => quoted(text),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

/// Checks that `text` is canonical.
///
/// # Errors
/// What is wrong, as a sentence without a subject.
pub fn check_canonical(text: &str) -> Result<(), String> {
    let value: Value = serde_json::from_str(text).map_err(|_| "are no JSON".to_owned())?;
    if canonical(&value) == text { Ok(()) } else { Err("are not in their canonical form".to_owned()) }
}

fn quoted(text: &str) -> String {
    let plain = Value::from(text).to_string();
    let mut quoted = String::with_capacity(plain.len());
    for letter in plain.chars() {
        match letter {
            ' '..='~' => quoted.push(letter),
            other => other.encode_utf16(&mut [0; 2]).iter().for_each(|unit| quoted += &format!("\\u{unit:04x}")),
        }
    }
    quoted
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn equal_values_have_one_text_that_reads_as_they_do() {
        let value = json!({ "b": [1, 2.5, null, true], "a": { "z": "\u{1b}[2J \u{7f} \u{1f600} \"é\"", "y": -1 } });
        let text = canonical(&value);
        let expected = r#"{"a":{"y":-1,"z":"\u001b[2J \u007f \ud83d\ude00 \"\u00e9\""},"b":[1,2.5,null,true]}"#;
        assert_eq!(text, expected);
        assert_eq!(serde_json::from_str::<Value>(&text).expect("JSON"), value);
        assert_eq!(check_canonical(&text), Ok(()));
        for other in [r#"{"b":1,"a":2}"#, "[1, 2]", "\"\u{e9}\"", "1.50", "{", ""] {
            assert!(check_canonical(other).is_err(), "{other}");
        }
    }
}
