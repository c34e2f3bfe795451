//! How large images are.

use std::fmt;
use std::str::FromStr;

/// How large images are, in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageSize {
    /// From top to bottom.
    pub height: u32,
    /// From left to right.
    pub width: u32,
}

impl ImageSize {
    /// The longest side that images are brought to.
    pub const MAX_SIDE: u32 = 4096;
}

impl fmt::Display for ImageSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.height, self.width)
    }
}

impl FromStr for ImageSize {
    type Err = String;

    /// Two numbers with an `x` between them, the height first, or one for both.
    fn from_str(text: &str) -> Result<Self, String> {
        let side = |text: &str| {
            let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse().ok().filter(|side| is_number && (1..=Self::MAX_SIDE).contains(side))
        };
        let (height, width) = text.split_once('x').unwrap_or((text, text));
        let size = side(height).zip(side(width)).map(|(height, width)| Self { height, width });
        size.ok_or_else(|| {
            let most = Self::MAX_SIDE;
            format!("must be HEIGHTxWIDTH in pixels, as 28x28, or one number for both, each from 1 to {most}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_read_as_it_is_written() {
        for (text, written) in [("28x32", "28x32"), ("64", "64x64"), ("1x4096", "1x4096")] {
            assert_eq!(text.parse::<ImageSize>().expect("a size").to_string(), written);
        }
        for text in ["", "x", "28x", "x28", "0", "28x0", "4097", "+28", "28X28", "28x28x3", "-1x2", "2 x 2"] {
            assert!(text.parse::<ImageSize>().is_err_and(|reason| reason.contains("28x28")), "{text}");
        }
    }
}
