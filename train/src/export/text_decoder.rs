//! Bytes one after another, as text that can be shown while it comes about.

/// Makes text of bytes: whole characters, until a text comes that ends it.
#[derive(Debug, Clone, Default)]
pub struct TextDecoder {
    stops: Vec<Vec<u8>>,
    /// What was not handed out yet: part of a character, or what may become a text that ends it.
    held: Vec<u8>,
    has_ended: bool,
}

impl TextDecoder {
    /// Which any of these texts ends. Empty ones end nothing.
    pub fn new(stops: &[String]) -> Self {
        let stops = stops.iter().filter(|stop| !stop.is_empty()).map(|stop| stop.as_bytes().to_vec());
        Self { stops: stops.collect(), held: Vec::new(), has_ended: false }
    }

    /// What can be shown once this byte is there, too. Behind what ended it, nothing.
    pub fn push(&mut self, byte: u8) -> String {
        if self.has_ended {
            return String::new();
        }
        self.held.push(byte);
        if let Some(stop) = self.stops.iter().find(|stop| self.held.ends_with(stop)) {
            self.held.truncate(self.held.len() - stop.len());
            self.has_ended = true;
            return self.finish();
        }
        let may_begin = |stop: &Vec<u8>| (1..stop.len()).rev().find(|length| self.held.ends_with(&stop[..*length]));
        let kept = self.stops.iter().filter_map(may_begin).max().unwrap_or(0);
        let free = self.held.len() - kept;
        let whole = free - cut_off(&self.held[..free]);
        let shown: Vec<u8> = self.held.drain(..whole).collect();
        String::from_utf8_lossy(&shown).into_owned()
    }

    /// Whether one of the texts that end it has come.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// What is left, when no more comes.
    pub fn finish(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.held)).into_owned()
    }
}

/// How many bytes at the end are the beginning of a character whose rest is not there.
fn cut_off(bytes: &[u8]) -> usize {
    match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() => bytes.len() - error.valid_up_to(),
        // Of what is no character, the last bytes may still become one.
        Err(_) => (1..=3.min(bytes.len()))
            .find(|length| {
                let end = std::str::from_utf8(&bytes[bytes.len() - length..]);
                end.is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
            })
            .unwrap_or(0),
        Ok(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is shown after each byte, and at the end.
    fn shown(stops: &[&str], bytes: &[u8]) -> (Vec<String>, String, bool) {
        let stops: Vec<String> = stops.iter().map(|stop| (*stop).to_owned()).collect();
        let mut speech = TextDecoder::new(&stops);
        let parts = bytes.iter().map(|byte| speech.push(*byte)).collect();
        (parts, speech.finish(), speech.has_ended())
    }

    #[test]
    fn characters_are_shown_when_they_are_whole() {
        let (parts, rest, _) = shown(&[], "aé→b".as_bytes());
        assert_eq!((parts, rest), (["a", "", "é", "", "", "→", "b"].map(str::to_owned).to_vec(), String::new()));
        let (parts, rest, _) = shown(&[], b"\xffa\xe2\x82");
        assert_eq!((parts.concat(), rest), ("\u{fffd}a".to_owned(), "\u{fffd}".to_owned()));
        let (parts, _, _) = shown(&[], b"\xe2a\xffb\xc3\xa9");
        assert_eq!(parts.concat(), "\u{fffd}a\u{fffd}bé");
    }

    #[test]
    fn what_ends_it_is_not_shown_nor_what_follows() {
        let (parts, rest, ended) = shown(&["END", ""], b"an EN, the END and more");
        assert_eq!((parts.concat(), rest, ended), ("an EN, the ".to_owned(), String::new(), true));
        assert_eq!(shown(&["END"], b"an EN").0.concat(), "an ");
        let (parts, rest, ended) = shown(&["END"], b"an EN");
        assert_eq!((parts.concat() + &rest, ended), ("an EN".to_owned(), false));
        let (parts, ..) = shown(&["ab", "aac"], b"xaaac");
        assert_eq!(parts.concat(), "xa");
        assert_eq!(shown(&["é"], "caféx".as_bytes()).0.concat(), "caf");
    }
}
