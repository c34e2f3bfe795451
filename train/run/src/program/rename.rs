//! What tensors of a file are called in a model that calls them otherwise.

use std::str::FromStr;

use regex::Regex;

/// What takes the place of each match of a regular expression in the names of tensors, written as `OLD=NEW`; `$1` stands for its first group.
#[derive(Debug, Clone)]
pub struct RenameSpec {
    old: Regex,
    new: String,
}

impl RenameSpec {
    /// What a tensor called `name` is called, once all of these are done one after the other.
    pub fn rename(all: &[Self], name: &str) -> String {
        all.iter().fold(name.to_owned(), |name, one| one.old.replace_all(&name, one.new.as_str()).into_owned())
    }
}

impl FromStr for RenameSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.rsplit_once('=').filter(|(old, _)| !old.is_empty());
        let (old, new) = parts.ok_or("write OLD=NEW: a regular expression, and what takes its place")?;
        let old = Regex::new(old).map_err(|error| format!("`{old}` is no regular expression: {error}"))?;
        Ok(Self { old, new: new.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_changed_one_after_the_other() {
        let all = [r"^model\.=", r"layers\.(\d+)=hidden.$1", "hidden.9=output"].map(|text| text.parse().expect("one"));
        for (old, new) in
            [("model.layers.0.weight", "hidden.0.weight"), ("layers.9.bias", "output.bias"), ("a.model.b", "a.model.b")]
        {
            assert_eq!(RenameSpec::rename(&all, old), new);
        }
        assert_eq!(RenameSpec::rename(&["a=b=c".parse().expect("one")], "xa=bx"), "xcx", "the last one parts them");
        for bad in ["", "a", "=a", "(=a"] {
            assert!(bad.parse::<RenameSpec>().is_err(), "{bad}");
        }
    }
}
