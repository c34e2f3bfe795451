//! How peers are called on a screen: the end of their id, and their name.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::format;

/// What an Ed25519 peer's id begins with, and how long it is.
const ID_START: &str = "12D3KooW";
const ID_CHARS: usize = 52;
/// What comes before an id that is there to be copied.
const ADDRESS: &str = "/p2p/";
/// Names that are kept.
const MAX_NAMES: usize = 4096;

/// The names of the peers that told theirs.
#[derive(Debug, Clone, Default)]
pub struct Names(BTreeMap<String, String>);

impl Names {
    /// Notes a peer's name, which was checked when it came.
    pub fn learn(&mut self, peer: &str, name: &str) {
        if self.0.len() < MAX_NAMES || self.0.contains_key(peer) {
            self.0.insert(peer.to_owned(), name.to_owned());
        }
    }

    /// `…9XkQzf (lab-2)`, or `…9XkQzf` of one that told no name. The whole id is only where it is to be copied.
    pub fn show(&self, peer: &str) -> String {
        match self.0.get(peer) {
            Some(name) => format!("{} ({name})", format::peer(peer)),
            None => format::peer(peer),
        }
    }

    /// A text with every peer's id as [`Self::show`] has it, but for those in addresses, and without what could move a
    /// terminal's cursor: some of it may be another's words.
    pub fn line(&self, text: &str) -> String {
        let mut shown = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find(ID_START) {
            let (before, found) = rest.split_at(at);
            let length = found.find(|char: char| !char.is_ascii_alphanumeric()).unwrap_or(found.len());
            let (id, after) = found.split_at(length);
            shown.push_str(before);
            if length == ID_CHARS && !before.ends_with(ADDRESS) {
                let _ = write!(shown, "{}", self.show(id));
            } else {
                shown.push_str(id);
            }
            rest = after;
        }
        shown.push_str(rest);
        format::visible(&shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_id_in_a_line_is_short_unless_it_is_to_be_copied() {
        let peer = starling_node::credentials::identity::Identity::generate().peer_id().to_string();
        let short = format::peer(&peer);
        let mut names = Names::default();
        assert_eq!(names.line(&format!("peer {peer} lost: gone")), format!("peer {short} lost: gone"));
        names.learn(&peer, "lab-2");
        assert_eq!(names.show(&peer), format!("{short} (lab-2)"));
        assert_eq!(names.line(&format!("{peer}; {peer}")), format!("{short} (lab-2); {short} (lab-2)"));
        for kept in [format!("on /ip4/192.0.2.1/tcp/1/p2p/{peer}"), format!("{peer}x"), "12D3KooWabc".to_owned()] {
            assert_eq!(names.line(&kept), kept);
        }
        assert_eq!(names.line("a\u{1b}[2Jb\nc"), "a\u{fffd}[2Jb\u{fffd}c");
    }
}
