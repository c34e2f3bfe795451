//! What a panic said.

use std::any::Any;

/// The text of a panic that was caught; `None` if it has none.
pub fn said(payload: &(dyn Any + Send)) -> Option<&str> {
    payload.downcast_ref::<String>().map(String::as_str).or_else(|| payload.downcast_ref().copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_with_words_is_quoted() {
        let number = 7;
        let caught = [
            std::panic::catch_unwind(|| panic!("plain")),
            std::panic::catch_unwind(|| panic!("with {number}")),
            std::panic::catch_unwind(|| std::panic::panic_any(number)),
        ];
        let said = caught.each_ref().map(|caught| said(caught.as_ref().expect_err("it panics").as_ref()));
        assert_eq!(said, [Some("plain"), Some("with 7"), None]);
    }
}
