//! When a run in which nothing is learned any more stops.

use starling_topology::ledger::SkipSummary;

/// So many steps in a row may be skipped. After each such row the run stops: what does not go away by itself, somebody has to
/// change. All members count the same ones, and none that the result shows to come of a lie.
pub const MAX_SKIPS: u32 = 8;

/// Whether the run stops after a step that was skipped. Who starts it again has as many tries as before.
pub fn is_last_straw(skips: SkipSummary) -> bool {
    skips.in_row > 0 && skips.in_row.is_multiple_of(MAX_SKIPS)
}

/// So many steps in a row may have no samples because the data of them is on its way to whoever they were dealt to. After each such row the run stops:
/// what the schedule says of steps is used up, and data that nobody can share does not come by itself.
pub const MAX_STARVED: u32 = 64;

/// Whether the run stops after so many starved steps in a row. Who starts it again has as many tries as before.
pub fn is_out_of_data(in_row: u32) -> bool {
    in_row > 0 && in_row.is_multiple_of(MAX_STARVED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_stops_after_each_row() {
        let stops: Vec<u32> =
            (0..20).filter(|in_row| is_last_straw(SkipSummary { total: 50, in_row: *in_row })).collect();
        assert_eq!(stops, [MAX_SKIPS, 2 * MAX_SKIPS]);
        let stops: Vec<u32> = (0..150).filter(|in_row| is_out_of_data(*in_row)).collect();
        assert_eq!(stops, [MAX_STARVED, 2 * MAX_STARVED]);
    }
}
