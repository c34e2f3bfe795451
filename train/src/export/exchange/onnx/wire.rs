//! A message as protocol buffers encode it, field by field: nothing is copied, and no memory is taken, whatever a stranger's bytes say.

/// What a field holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field<'a> {
    /// A number of variable length.
    Number(u64),
    /// A message, a text, bytes, or several numbers; or one of fixed length.
    Bytes(&'a [u8]),
}

impl<'a> Field<'a> {
    pub(super) fn number(self) -> Option<u64> {
        if let Self::Number(number) = self { Some(number) } else { None }
    }

    pub(super) fn bytes(self) -> Option<&'a [u8]> {
        if let Self::Bytes(bytes) = self { Some(bytes) } else { None }
    }

    pub(super) fn text(self) -> Option<&'a str> {
        std::str::from_utf8(self.bytes()?).ok()
    }
}

/// The fields of a message, each with its tag, as they come; an error is the last of them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fields<'a>(&'a [u8]);

/// The bytes are no message, or the beginning of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NoMessage;

impl<'a> Fields<'a> {
    pub(super) fn of(message: &'a [u8]) -> Self {
        Self(message)
    }

    /// The first field with this tag that is as `read` takes it.
    ///
    /// # Errors
    /// If the bytes before it are no message.
    pub(super) fn first<T>(mut self, tag: u64, read: impl Fn(Field<'a>) -> Option<T>) -> Result<Option<T>, NoMessage> {
        self.find_map(|field| match field {
            Ok((found, field)) if found == tag => read(field).map(Ok),
            Ok(_) => None,
            Err(error) => Some(Err(error)),
        })
        .transpose()
    }

    fn read(&mut self) -> Option<(u64, Field<'a>)> {
        let key = number(&mut self.0)?;
        let field = match key & 7 {
            0 => Field::Number(number(&mut self.0)?),
            1 => Field::Bytes(self.0.split_off(..8)?),
            2 => {
                let length = usize::try_from(number(&mut self.0)?).ok()?;
                Field::Bytes(self.0.split_off(..length)?)
            }
            5 => Field::Bytes(self.0.split_off(..4)?),
            _ => return None,
        };
        Some((key >> 3, field))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, Field<'a>), NoMessage>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.read().ok_or(NoMessage);
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}

/// Takes a number of variable length off the beginning of `bytes`.
pub(super) fn number(bytes: &mut &[u8]) -> Option<u64> {
    prost::decode_length_delimiter(bytes).ok().map(|number| number as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_told_apart_and_what_is_cut_off_is_an_error() {
        // 1: 300, 2: "ab", 5: four bytes, 6: eight bytes, 4: -1.
        let mut bytes = vec![0x08, 0xac, 0x02, 0x12, 2, b'a', b'b', 0x2d, 1, 2, 3, 4, 0x31, 1, 2, 3, 4, 5, 6, 7, 8];
        bytes.extend([0x20, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]);
        let fields: Vec<_> = Fields::of(&bytes).collect();
        let expected = [
            (1, Field::Number(300)),
            (2, Field::Bytes(b"ab")),
            (5, Field::Bytes(&[1, 2, 3, 4])),
            (6, Field::Bytes(&[1, 2, 3, 4, 5, 6, 7, 8])),
            (4, Field::Number(u64::MAX)),
        ];
        assert_eq!(fields, expected.map(Ok));
        assert_eq!(Fields::of(&bytes).first(2, Field::text), Ok(Some("ab")));
        assert_eq!(Fields::of(&bytes).first(3, Field::text), Ok(None));
        let whole = [0, 3, 7, 12, 21, bytes.len()];
        for length in 0..bytes.len() {
            let is_cut = Fields::of(&bytes[..length]).any(|field| field.is_err());
            assert_eq!(is_cut, !whole.contains(&length), "cut at {length}");
        }
        // Groups, lengths beyond all that there is, numbers that never end.
        for bytes in [&[0x0b][..], &[0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f], &[0x08, 0xff]] {
            assert_eq!(Fields::of(bytes).collect::<Vec<_>>(), [Err(NoMessage)]);
        }
    }
}
