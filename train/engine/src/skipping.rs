//! When a run that drops one update after the other stops.

use starling_topology::ledger::Skips;

/// So many steps in a row may be skipped. After each such row the run stops: what does not go away by itself, somebody has to
/// change.
pub const MAX_SKIPS: u32 = 8;

/// One member's verdict on rows of skipped steps.
///
/// All members count the same skips. But if a step is skipped because all who computed a share are said to have given up,
/// each of them who has not knows better, and does not stop for it: whoever can change what others say could end the run.
#[derive(Debug, Default)]
pub struct Skipping {
    /// The last step without contributions in which something was told of this member that it had not said.
    rewritten: Option<u64>,
}

impl Skipping {
    /// Nobody is said to have contributed to `step`, and of this member something was told that it had not said.
    pub fn note_rewritten(&mut self, step: u64) {
        self.rewritten = self.rewritten.max(Some(step));
    }

    /// Whether the run stops after `step`, which was skipped. Who starts it again has as many tries as before.
    pub fn is_last_straw(&self, step: u64, skips: Skips) -> bool {
        let is_row = skips.in_row > 0 && skips.in_row.is_multiple_of(MAX_SKIPS);
        let first = step.saturating_sub(u64::from(MAX_SKIPS) - 1);
        is_row && self.rewritten.is_none_or(|rewritten| rewritten < first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(in_row: u32) -> Skips {
        Skips { total: 50, in_row }
    }

    #[test]
    fn a_run_stops_after_each_row() {
        let skipping = Skipping::default();
        let stops: Vec<u32> = (0..20).filter(|in_row| skipping.is_last_straw(100, row(*in_row))).collect();
        assert_eq!(stops, [MAX_SKIPS, 2 * MAX_SKIPS]);
    }

    #[test]
    fn a_row_in_which_ones_word_was_changed_does_not_count() {
        let mut skipping = Skipping::default();
        for (rewritten, stops) in [(92, true), (93, false), (100, false), (3, false)] {
            skipping.note_rewritten(rewritten);
            assert_eq!(skipping.is_last_straw(100, row(MAX_SKIPS)), stops, "{rewritten}");
        }
        assert!(!skipping.is_last_straw(107, row(MAX_SKIPS)));
        assert!(skipping.is_last_straw(108, row(2 * MAX_SKIPS)), "the row after it does");
        assert!(!skipping.is_last_straw(2, row(3)));
    }
}
