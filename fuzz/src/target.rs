//! What gets bytes.

/// One thing that takes bytes of others.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its name on the command line.
    pub name: &'static str,
    /// Valid encodings.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Takes the bytes in, and says whether they were what they should be.
    pub take: fn(&[u8]) -> bool,
    /// The longest input.
    pub longest: usize,
    /// How many bytes of memory each byte of input may take.
    pub per_byte: usize,
    /// And how many it may take besides, whatever the input.
    pub besides: usize,
}

impl Target {
    /// How much memory an input of so many bytes may take.
    pub fn limit(&self, length: usize) -> usize {
        self.per_byte * length + self.besides
    }
}
