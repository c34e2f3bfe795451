//! The end of what a process wrote.

use std::collections::VecDeque;

/// Keeps the last bytes that it is given, within a bound.
#[derive(Debug)]
pub(super) struct Tail {
    bytes: VecDeque<u8>,
    limit: usize,
}

impl Tail {
    /// Keeps the last `limit` bytes.
    pub(super) fn new(limit: usize) -> Self {
        Self { bytes: VecDeque::new(), limit }
    }

    /// Adds bytes; the oldest make room.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        let bytes = &bytes[bytes.len().saturating_sub(self.limit)..];
        let excess = (self.bytes.len() + bytes.len()).saturating_sub(self.limit);
        self.bytes.drain(..excess);
        self.bytes.extend(bytes);
    }

    /// The last `count` lines that are not empty, oldest first.
    pub(super) fn lines(&self, count: usize) -> Vec<String> {
        let bytes: Vec<u8> = self.bytes.iter().copied().collect();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        lines[lines.len().saturating_sub(count)..].iter().map(|line| (*line).to_owned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_keeps_the_last_bytes_and_no_more() {
        let mut tail = Tail::new(8);
        tail.push(b"one\ntwo\n");
        assert_eq!(tail.lines(5), ["one", "two"]);
        tail.push(b"3\n\n");
        assert_eq!(tail.lines(5), ["two", "3"]);
        assert_eq!(tail.lines(1), ["3"]);
        tail.push(b"a very long line\nend");
        assert_eq!((tail.bytes.len(), tail.lines(1)), (8, vec!["end".to_owned()]));
        tail.push(&[0xff, b'\n', b'x']);
        assert_eq!(tail.lines(1), ["x"]);
    }
}
