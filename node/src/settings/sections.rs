//! Bytes in tagged sections, so that what later releases add cuts nobody off: `tag u8 | length u16, little-endian | content`.

/// Appends a section.
///
/// # Panics
/// If the content is longer than a section can be.
pub(crate) fn push(bytes: &mut Vec<u8>, tag: u8, content: &[u8]) {
    let length = u16::try_from(content.len()).expect("invariant: what we write fits a section");
    bytes.push(tag);
    bytes.extend(length.to_le_bytes());
    bytes.extend(content);
}

/// A section's tag and content, and what follows it.
pub(crate) type Section<'a> = (u8, &'a [u8], &'a [u8]);

/// The next section: `None` at the end, an error where one is cut off.
pub(crate) fn next(bytes: &[u8]) -> Option<Result<Section<'_>, ()>> {
    let (tag, rest) = bytes.split_first()?;
    let section = rest.split_first_chunk().and_then(|(length, rest)| {
        let (content, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
        Some((*tag, content, rest))
    });
    Some(section.ok_or(()))
}
