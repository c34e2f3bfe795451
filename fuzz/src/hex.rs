//! Bytes as hexadecimal digits.

/// Two digits for each byte.
pub fn encode(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of these digits; `None` if they are none. Blanks and line breaks don't count.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let digits = text.chars().filter(|letter| !letter.is_whitespace()).map(|letter| letter.to_digit(16));
    let digits = digits.collect::<Option<Vec<u32>>>()?;
    digits.len().is_multiple_of(2).then(|| digits.chunks_exact(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(decode(&encode(&bytes)), Some(bytes));
        assert_eq!(decode("0a 0B\n"), Some(vec![10, 11]));
        assert_eq!((decode("0"), decode("0g"), decode("")), (None, None, Some(Vec::new())));
    }
}
