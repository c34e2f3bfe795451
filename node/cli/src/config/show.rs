//! The configuration as text: what is in force, and a file to start from.

use serde_json::json;
use starling_node::settings::keys::{DefaultValue, Key, Kind, Value, keys};

use super::checked::Loaded;
use super::error::ConfigError;
use super::layers::{Origin, toml};

/// Where the comment behind a value begins, if the value leaves room.
const COMMENT_COLUMN: usize = 40;

/// What is in force, as TOML that says the same when it is read again. With `origins`, a comment behind each value
/// says where it came from. The derived deadlines follow as comments.
///
/// # Errors
/// [`ConfigError::NoDataDir`].
pub fn show_toml(loaded: &Loaded, origins: bool) -> Result<String, ConfigError> {
    let mut text = String::new();
    for key in keys() {
        head(&mut text, key);
        let (_, name) = key.parts();
        let (line, comment) = match value(loaded, key)? {
            Some(value) => (format!("{name} = {}", toml(&value)), loaded.origin(key.id).to_string()),
            None => (format!("# {name} ="), then(key).to_owned()),
        };
        if origins || line.starts_with('#') {
            text.push_str(&format!("{line:<COMMENT_COLUMN$} # {comment}\n"));
        } else {
            text.push_str(&format!("{line}\n"));
        }
    }
    text.push_str("\n# derived from network.max_stall_ms\n");
    for (name, duration) in loaded.deadlines()?.derived() {
        text.push_str(&format!("# {}: {} ms\n", name.replace('_', " "), duration.as_millis()));
    }
    Ok(text)
}

/// What is in force, as one JSON object: a value per key, or with `origins` `{"value", "origin"}` per key.
///
/// # Errors
/// [`ConfigError::NoDataDir`].
pub fn show_json(loaded: &Loaded, origins: bool) -> Result<serde_json::Value, ConfigError> {
    let mut sections = serde_json::Map::new();
    for key in keys() {
        let (section, name) = key.parts();
        let value = json!(value(loaded, key)?);
        let origin = loaded.origin(key.id).to_string();
        let shown = if origins { json!({ "value": value, "origin": origin }) } else { value };
        let table = sections.entry(section).or_insert_with(|| json!({}));
        table[name] = shown;
    }
    let derived: serde_json::Map<_, _> = loaded
        .deadlines()?
        .derived()
        .into_iter()
        .map(|(name, duration)| (format!("{name}_ms"), json!(duration.as_millis() as u64)))
        .collect();
    sections.insert("derived".to_owned(), derived.into());
    Ok(serde_json::Value::Object(sections))
}

/// A file to start from: every key with its meaning. What `loaded` sets is set, the rest is commented out at its
/// default.
pub fn commented_file(loaded: &Loaded) -> String {
    let mut text = "# Starling reads this file from the directory it is started in, or from --config FILE.\n\
                    # Flags go over STARLING_<SECTION>_<KEY> variables, these over this file, this over the defaults.\n\
                    # A #key shows its default; take the # away to change it.\n"
        .to_owned();
    for key in keys() {
        head(&mut text, key);
        let (_, name) = key.parts();
        let mark = if *loaded.origin(key.id) == Origin::Default { "#" } else { "" };
        text.push_str(&format!("# {}\n", key.about));
        // Words of a registry are not in the sentence.
        if let Kind::Choice(words) = key.kind
            && words.iter().any(|word| !key.about.contains(word))
        {
            text.push_str(&format!("# One of {}.\n", words.join(", ")));
        }
        match loaded.values().get(key.id).cloned().or_else(|| key.shown()) {
            Some(value) => text.push_str(&format!("{mark}{name} = {}\n", toml(&value))),
            None => text.push_str(&format!("#{name} =   # {}\n", then(key))),
        }
    }
    text
}

/// `[section]` before a section's first key.
fn head(text: &mut String, key: &Key) {
    let (section, _) = key.parts();
    let is_first = keys().find(|other| other.parts().0 == section).is_some_and(|first| first.id == key.id);
    if is_first {
        let gap = if text.is_empty() { "" } else { "\n" };
        text.push_str(&format!("{gap}[{section}]\n"));
    }
}

/// What is in force, the data directory resolved: that is the one people ask for.
fn value(loaded: &Loaded, key: &Key) -> Result<Option<Value>, ConfigError> {
    if key.id == "train.data_dir" {
        return Ok(Some(Value::Text(loaded.data_dir()?.display().to_string())));
    }
    Ok(loaded.values().get(key.id).cloned().or_else(|| key.shown()))
}

/// What happens where a key has no value.
fn then(key: &Key) -> &'static str {
    if let DefaultValue::None(words) = key.default { words } else { "" }
}
