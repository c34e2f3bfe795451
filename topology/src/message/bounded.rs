//! Lists that come from others, taken in no further than they may be long: what one byte stands for may take a hundred.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};

/// Reads a list of up to `MOST`, and one more, so that whoever checks it can say what is wrong. For `deserialize_with`.
///
/// # Errors
/// If there are more, or one of them can't be read.
pub fn list<'de, D, T, const MOST: usize>(from: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    from.deserialize_seq(List::<T, MOST>(PhantomData))
}

struct List<T, const MOST: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for List<T, MOST> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {MOST}")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<T>, A::Error> {
        // Nothing is reserved on the word of the bytes.
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            if list.len() > MOST {
                return Err(A::Error::invalid_length(list.len(), &self));
            }
            list.push(item);
        }
        Ok(list)
    }
}
