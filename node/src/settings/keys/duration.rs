//! Durations as people write them.

use std::time::Duration;

/// The longest that is taken: a year.
const MAX: Duration = Duration::from_secs(366 * 24 * 3600);

/// Reads what [`parse`] does; `never` is `None`.
///
/// # Errors
/// What could be written instead.
pub(super) fn parse_or_never(text: &str) -> Result<Option<Duration>, String> {
    if text.trim() == "never" { Ok(None) } else { parse(text).map(Some) }
}

/// Reads `500ms`, `90s`, `2m`, `1h` or `1d`.
///
/// # Errors
/// What could be written instead.
pub(super) fn parse(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let refused = || format!("`{text}` is no duration; write one such as 90s, 2m or 1h, or never");
    let (number, unit) = text.split_at(text.find(|letter: char| !letter.is_ascii_digit()).ok_or_else(refused)?);
    let number: u64 = number.parse().map_err(|_| refused())?;
    let milliseconds = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(refused()),
    };
    match number.checked_mul(milliseconds).map(Duration::from_millis) {
        Some(duration) if !duration.is_zero() && duration <= MAX => Ok(duration),
        Some(_) | None => Err(format!("`{text}` is not between 1ms and 366d; write `never` for no limit")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        for (text, milliseconds) in
            [("500ms", 500), ("90s", 90_000), ("2m", 120_000), (" 1h ", 3_600_000), ("366d", 31_622_400_000)]
        {
            assert_eq!(parse_or_never(text), Ok(Some(Duration::from_millis(milliseconds))), "{text}");
        }
        assert_eq!(parse_or_never("never"), Ok(None));
        for text in ["", "2", "m", "-1s", "2 m", "1.5s", "2w", "0s", "367d", "99999999999999999999s"] {
            let reason = parse_or_never(text).expect_err(text);
            assert!(reason.contains("never"), "{reason}");
        }
    }
}
