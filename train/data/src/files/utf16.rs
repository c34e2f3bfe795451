//! Text of two bytes for each character, as spreadsheets save it, as the UTF-8 that is read here.

use std::io::{self, Read};

/// The marks that such text begins with: the one of the order of its bytes, the lower first or the higher.
const LITTLE: [u8; 2] = [0xff, 0xfe];
const BIG: [u8; 2] = [0xfe, 0xff];
/// How much is decoded at once.
const BLOCK: usize = 16 << 10;

/// Whether bytes that begin so are such text.
pub(crate) fn is_marked(start: &[u8]) -> bool {
    start.starts_with(&LITTLE) || start.starts_with(&BIG)
}

/// UTF-8 of such text, from its mark on, which is left out.
pub(super) struct Utf16<R> {
    text: R,
    is_big: Option<bool>,
    /// Bytes that are not decoded: half a unit, or the first of two units.
    left: Vec<u8>,
    decoded: Vec<u8>,
    /// How much of `decoded` was given.
    given: usize,
}

impl<R> Utf16<R> {
    pub(super) fn new(text: R) -> Self {
        Self { text, is_big: None, left: Vec::new(), decoded: Vec::new(), given: 0 }
    }
}

impl<R: Read> Utf16<R> {
    /// Decodes some more; false at the end.
    fn more(&mut self) -> io::Result<bool> {
        (self.decoded, self.given) = (std::mem::take(&mut self.decoded), 0);
        self.decoded.clear();
        let before = self.left.len();
        self.left.resize(before + BLOCK, 0);
        let read = self.text.read(&mut self.left[before..]);
        self.left.truncate(before + *read.as_ref().unwrap_or(&0));
        let read = read?;
        let is_end = read == 0;
        let is_big = match self.is_big {
            Some(is_big) => is_big,
            None if self.left.len() < 2 && !is_end => return Ok(true),
            None => {
                let is_big = self.left.starts_with(&BIG);
                self.left.drain(..self.left.len().min(2));
                *self.is_big.insert(is_big)
            }
        };
        let (pairs, odd) = self.left.as_chunks::<2>();
        let units = pairs.iter().map(|pair| if is_big { u16::from_be_bytes(*pair) } else { u16::from_le_bytes(*pair) });
        let mut units: Vec<u16> = units.collect();
        let mut rest = odd.to_vec();
        // The first of two waits for the second.
        if !is_end && units.last().is_some_and(|unit| (0xd800..0xdc00).contains(unit)) {
            units.pop();
            rest = [&pairs[units.len()][..], odd].concat();
        }
        let bad = || io::Error::other("it is UTF-16 text, but not whole, or damaged; save it as UTF-8");
        for character in char::decode_utf16(units) {
            let character = character.map_err(|_| bad())?;
            self.decoded.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        }
        if is_end && !rest.is_empty() {
            return Err(bad());
        }
        self.left = rest;
        Ok(!is_end)
    }
}

impl<R: Read> Read for Utf16<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.given == self.decoded.len() {
            let is_more = self.more()?;
            if !is_more && self.decoded.is_empty() {
                return Ok(0);
            }
        }
        let read = (&self.decoded[self.given..]).read(into)?;
        self.given += read;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives one byte at a time.
    struct Drop<'b>(&'b [u8]);

    impl Read for Drop<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let most = into.len().min(1);
            self.0.read(&mut into[..most])
        }
    }

    fn encoded(text: &str, is_big: bool) -> Vec<u8> {
        let units = "\u{feff}".encode_utf16().chain(text.encode_utf16());
        units.flat_map(|unit| if is_big { unit.to_be_bytes() } else { unit.to_le_bytes() }).collect()
    }

    #[test]
    fn text_of_either_order_is_decoded_however_it_is_read() {
        for text in ["", "a,b\r\n1,2\n", "größer;\u{1f600};\u{4e2d}\n", &"x\u{1f600}".repeat(20_000)] {
            for is_big in [false, true] {
                let bytes = encoded(text, is_big);
                assert!(is_marked(&bytes));
                for whole in [true, false] {
                    let mut decoded = String::new();
                    let read = match whole {
                        true => Utf16::new(&*bytes).read_to_string(&mut decoded),
                        false => Utf16::new(Drop(&bytes)).read_to_string(&mut decoded),
                    };
                    read.expect("text");
                    assert!(decoded == text, "{is_big} {whole}");
                }
            }
        }
    }

    #[test]
    fn what_is_cut_off_or_no_text_is_an_error() {
        let bytes = encoded("ab\u{1f600}", false);
        for bad in [&bytes[..bytes.len() - 1], &bytes[..bytes.len() - 2], &[&LITTLE[..], &[0, 0xdc, 65, 0]].concat()] {
            let error = Utf16::new(bad).read_to_string(&mut String::new()).expect_err("no text").to_string();
            assert!(error.contains("save it as UTF-8"), "{error}");
        }
    }
}
