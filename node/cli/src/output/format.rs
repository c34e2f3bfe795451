//! Numbers and names as people read them.

use starling_node::credentials::name::is_unseen;
use starling_node::observe::report::ACCURACY;
use starling_run::data::steps_per_epoch;

/// So many numbers of a list are shown.
const MAX_LISTED: usize = 12;

/// The end of a peer id, which is where two of them differ.
const PEER_CHARS: usize = 6;
/// The beginning of a digest, enough to tell two apart.
const DIGEST_CHARS: usize = 12;

/// `…9XkQzf`: the last characters of a peer id.
pub fn peer(id: &str) -> String {
    let skip = id.chars().count().saturating_sub(PEER_CHARS);
    format!("…{}", id.chars().skip(skip).collect::<String>())
}

/// The text without what moves a terminal's cursor, turns the writing round or can't be seen: it may be another's words.
pub fn visible(text: &str) -> String {
    text.chars().map(|char| if is_unseen(char) { '\u{fffd}' } else { char }).collect()
}

/// The first characters of a digest.
pub fn digest(hex: &str) -> String {
    hex.chars().take(DIGEST_CHARS).collect()
}

/// `12.3 MiB`.
pub fn bytes(count: u64) -> String {
    let mut value = count as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if value < 1024.0 {
            return if unit == "B" { format!("{count} B") } else { format!("{value:.1} {unit}") };
        }
        value /= 1024.0;
    }
    format!("{value:.1} TiB")
}

/// `12 345 samples/s`.
pub fn rate(samples_per_s: f64) -> String {
    format!("{} samples/s", thousands(samples_per_s.max(0.0).round() as u64))
}

/// How much of the time was spent on nothing but loading samples, behind other figures; nothing, if it is hardly any.
pub fn data_wait(share: f64) -> String {
    if share < 0.001 { String::new() } else { format!(", loading data {}", percent(share)) }
}

/// `96.9 %` of a share from 0 to 1.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// What a task measures: a share as such, and all else as it is.
pub fn mean(name: &str, mean: f64) -> String {
    if name == ACCURACY { percent(mean) } else { loss(mean) }
}

/// The same with its name before it.
pub fn measure((name, value): (&String, &f64)) -> String {
    format!("{name} {}", mean(name, *value))
}

/// `0.1234`, and never a zero below zero.
pub fn loss(loss: f64) -> String {
    let text = format!("{loss:.4}");
    if text == "-0.0000" { text[1..].to_owned() } else { text }
}

/// `26.1 epochs`, of so many steps over samples in batches.
pub fn epochs(steps: u64, samples: u64, batch_size: u32) -> String {
    let epochs = steps as f64 / steps_per_epoch(samples, batch_size) as f64;
    match epochs {
        1.0 => "1 epoch".to_owned(),
        few if few < 1.0 => format!("{few:.2} epochs"),
        whole if whole.fract() == 0.0 => format!("{whole} epochs"),
        epochs => format!("{epochs:.1} epochs"),
    }
}

/// `45 s`, `12 min`, `3 h 20 min` or `2 d 4 h`.
pub fn duration(seconds: f64) -> String {
    let seconds = seconds.clamp(0.0, 1e12).round() as u64;
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, minutes) => format!("{minutes} min"),
        (0, hours, minutes) => format!("{hours} h {} min", minutes % 60),
        (days, hours, _) => format!("{days} d {} h", hours % 24),
    }
}

/// `1 234 567`.
pub fn thousands(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// The first of `count` numbers, as in `3, 4, ...`.
pub fn list(numbers: &[u32], count: usize) -> String {
    let named: Vec<String> = numbers.iter().take(MAX_LISTED).map(u32::to_string).collect();
    let more = if count > named.len() { ", ..." } else { "" };
    named.join(", ") + more
}

/// `1 peer`, `2 peers`.
pub fn peers(count: usize) -> String {
    if count == 1 { "1 peer".to_owned() } else { format!("{count} peers") }
}

/// `1 member`, `2 members`.
pub fn members(count: usize) -> String {
    if count == 1 { "1 member".to_owned() } else { format!("{count} members") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(thousands(0), "0");
        assert_eq!(thousands(999), "999");
        assert_eq!(thousands(1_000), "1 000");
        assert_eq!(thousands(1_234_567), "1 234 567");
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(3 << 40), "3.0 TiB");
        assert_eq!(percent(0.969), "96.9 %");
        assert_eq!(rate(f64::NAN), "0 samples/s");
        assert_eq!(rate(1234.4), "1 234 samples/s");
        assert_eq!((loss(-0.000_01), loss(-0.5), loss(0.123_45)), ("0.0000".into(), "-0.5000".into(), "0.1235".into()));
        for (seconds, text) in
            [(0.4, "0 s"), (59.0, "59 s"), (60.0, "1 min"), (12_000.0, "3 h 20 min"), (187_200.0, "2 d 4 h")]
        {
            assert_eq!(duration(seconds), text);
        }
        assert_eq!(duration(f64::NAN), "0 s");
        for (steps, samples, text) in [
            (600, 1438, "26.1 epochs"),
            (69, 1438, "3 epochs"),
            (2, 65, "1 epoch"),
            (600, 1 << 20, "0.04 epochs"),
            (5, 0, "5 epochs"),
        ] {
            assert_eq!(epochs(steps, samples, 64), text);
        }
    }

    #[test]
    fn names_are_cut_at_characters() {
        assert_eq!(peer("12D3KooWabcdef"), "…abcdef");
        assert_eq!(peer("ab"), "…ab");
        assert_eq!(peer(""), "…");
        assert_eq!(digest("ééééééééééééééé"), "é".repeat(12));
    }
}
