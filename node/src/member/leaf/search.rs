//! A leaf's search for a carrier, as its user hears of it: for how long it has gone on, and whether anybody has answered.

use std::time::Duration;

use tokio::time::Instant;

/// The time between two words on it doubles up to this one.
const MAX_PAUSE: Duration = Duration::from_secs(600);

/// Since the leaf had a carrier last, or was started.
#[derive(Debug, Default)]
pub(super) struct CarrierSearch {
    since: Option<Instant>,
    /// When that is told next, after `since`.
    next: Duration,
    /// What a member said last that does not carry it.
    answer: Option<String>,
}

impl CarrierSearch {
    /// It asks a member `now`. What is to be told, if that is due: first after `patience`, then each time that the wait has doubled.
    pub(super) fn ask(&mut self, now: Instant, patience: Duration) -> Option<String> {
        let since = *self.since.get_or_insert(now);
        let waited = now.saturating_duration_since(since);
        if waited < self.next.max(patience) {
            return None;
        }
        self.next = (waited * 2).min(waited + MAX_PAUSE);
        let seconds = waited.as_secs();
        Some(match &self.answer {
            None => format!("no member has answered this leaf for {seconds} s; it goes on asking"),
            Some(answer) => format!("no member has carried this leaf for {seconds} s ({answer}); it goes on asking"),
        })
    }

    /// A member does not carry it.
    pub(super) fn note_refusal(&mut self, reason: String) {
        self.answer = Some(reason);
    }

    /// What a member said last that does not carry it; `None` if nobody has answered.
    pub(super) fn answer(&self) -> Option<String> {
        self.answer.clone()
    }

    /// It has a carrier.
    pub(super) fn end(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_is_told_each_time_that_it_has_lasted_twice_as_long() {
        let (began, patience) = (Instant::now(), Duration::from_secs(10));
        let mut search = CarrierSearch::default();
        let due = |search: &mut CarrierSearch, seconds: u64| {
            search.ask(began + Duration::from_secs(seconds), patience).is_some()
        };
        let told: Vec<u64> = (0..100).filter(|seconds| due(&mut search, *seconds)).collect();
        assert_eq!(told, [10, 20, 40, 80]);
        search.end();
        assert!(!due(&mut search, 200) && due(&mut search, 210));
    }

    #[test]
    fn it_tells_silence_from_refusals() {
        let (began, mut search) = (Instant::now(), CarrierSearch::default());
        let silent = search.ask(began, Duration::ZERO).expect("due");
        assert!(silent.contains("no member has answered"), "{silent}");
        search.note_refusal("it has its 8 leaves already".to_owned());
        let refused = search.ask(began, Duration::ZERO).expect("due");
        assert!(refused.contains("its 8 leaves already"), "{refused}");
    }
}
