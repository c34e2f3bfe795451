//! One file of tokens: a header, and the tokens one after another.
//!
//! ```text
//!   offset   bytes
//!   0        8       `STARLTOK`
//!   8        2       version: 1
//!   10       2       bytes of a token: 2, or 4 where the vocabulary has more than 65,536
//!   12       4       tokens of the vocabulary
//!   16       8       tokens in this file
//!   24       8       0
//!   32       32      blake3 of the tokens' bytes
//!   64       ...     the tokens                                  all numbers little-endian
//! ```

use starling_topology::Digest;

/// How it begins.
const MAGIC: [u8; 8] = *b"STARLTOK";
const VERSION: u16 = 1;
/// How long the header is.
pub(crate) const HEADER_BYTES: usize = 64;
/// The longest such file; in tests, short enough for several.
pub(crate) const MAX_SHARD_BYTES: u64 = if cfg!(test) { HEADER_BYTES as u64 + 2000 } else { 64 << 20 };

/// What a file of tokens says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ShardHeader {
    /// Tokens of the vocabulary: each one in the file is below.
    pub(crate) vocabulary: u32,
    /// Tokens in the file.
    pub(crate) tokens: u64,
    /// blake3 of their bytes.
    pub(crate) digest: Digest,
}

/// How many bytes a token of such a vocabulary takes.
pub(crate) fn width(vocabulary: u32) -> usize {
    if vocabulary <= 1 << 16 { 2 } else { 4 }
}

/// How many tokens a file holds at most.
pub(crate) fn most_tokens(vocabulary: u32) -> u64 {
    (MAX_SHARD_BYTES - HEADER_BYTES as u64) / width(vocabulary) as u64
}

impl ShardHeader {
    pub(crate) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let width = width(self.vocabulary) as u16;
        let parts: [&[u8]; 6] = [
            &MAGIC,
            &VERSION.to_le_bytes(),
            &width.to_le_bytes(),
            &self.vocabulary.to_le_bytes(),
            &self.tokens.to_le_bytes(),
            &[0; 8],
        ];
        let mut at = 0;
        for part in parts.into_iter().chain([&self.digest.0[..]]) {
            bytes[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        bytes
    }

    /// Reads a header, which may be a stranger's.
    ///
    /// # Errors
    /// What is wrong, as a sentence.
    pub(crate) fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, String> {
        let (magic, rest) = bytes.split_first_chunk::<8>().expect("invariant: a header is longer");
        if *magic != MAGIC {
            return Err("it is no file of tokens: it does not begin as one".to_owned());
        }
        let number = |at: usize, of: usize| {
            rest[at..at + of].iter().rev().fold(0_u64, |number, byte| (number << 8) | u64::from(*byte))
        };
        let (version, width_said, vocabulary, tokens, nothing) =
            (number(0, 2), number(2, 2), number(4, 4) as u32, number(8, 8), number(16, 8));
        if version != u64::from(VERSION) {
            return Err(format!("its version is {version}, but this release of Starling reads {VERSION}"));
        }
        if width_said != width(vocabulary) as u64 || nothing != 0 {
            return Err(format!("its header is damaged: {width_said} bytes a token of a vocabulary of {vocabulary}"));
        }
        if tokens > most_tokens(vocabulary) {
            return Err(format!("it says that it has {tokens} tokens, but {} are possible", most_tokens(vocabulary)));
        }
        let digest = rest[24..].try_into().map(Digest).expect("invariant: 32 bytes are left");
        Ok(Self { vocabulary, tokens, digest })
    }

    /// How long the file has to be.
    pub(crate) fn file_bytes(&self) -> u64 {
        // No overflow: the tokens are bounded.
        HEADER_BYTES as u64 + self.tokens * width(self.vocabulary) as u64
    }
}

/// Adds the tokens that these bytes are to `tokens`: whole ones of this width.
pub(crate) fn decode_tokens(bytes: &[u8], width: usize, tokens: &mut Vec<u32>) {
    match width {
        2 => tokens.extend(bytes.as_chunks::<2>().0.iter().map(|token| u32::from(u16::from_le_bytes(*token)))),
        _ => tokens.extend(bytes.as_chunks::<4>().0.iter().map(|token| u32::from_le_bytes(*token))),
    }
}

/// Adds the bytes of tokens of this width to `bytes`.
pub(crate) fn encode_tokens(tokens: &[u32], width: usize, bytes: &mut Vec<u8>) {
    for token in tokens {
        bytes.extend_from_slice(&token.to_le_bytes()[..width]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_as_they_are_written_and_nothing_else_is() {
        for (vocabulary, of_one) in [(257, 2), (1 << 16, 2), ((1 << 16) + 1, 4)] {
            let header = ShardHeader { vocabulary, tokens: 500, digest: Digest([7; 32]) };
            let bytes = header.encode();
            assert_eq!(ShardHeader::decode(&bytes), Ok(header));
            assert_eq!((width(vocabulary), header.file_bytes()), (of_one, 64 + 500 * of_one as u64));
            // Each byte before the hash counts.
            for at in 0..32 {
                let mut damaged = bytes;
                damaged[at] ^= 0x80;
                let read = ShardHeader::decode(&damaged);
                assert!(read != Ok(header), "byte {at}");
            }
        }
        let most = ShardHeader { vocabulary: 300, tokens: u64::MAX, digest: Digest([0; 32]) };
        assert!(ShardHeader::decode(&most.encode()).is_err_and(|reason| reason.contains("1000 are possible")));
    }

    #[test]
    fn tokens_are_whole_numbers_of_two_or_four_bytes() {
        let tokens = [0, 1, 255, 256, 65_535];
        for width in [2, 4] {
            let (mut bytes, mut read) = (Vec::new(), Vec::new());
            encode_tokens(&tokens, width, &mut bytes);
            decode_tokens(&bytes, width, &mut read);
            assert_eq!((bytes.len(), &read[..]), (5 * width, &tokens[..]));
        }
    }
}
