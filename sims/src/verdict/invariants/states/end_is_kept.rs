//! Part of promise P9: who completes a run leaves its last state with the keepers that are there.

use std::time::Duration;

use crate::hardware::network::Seat;
use crate::verdict::invariants::Broken;

const NAME: &str = "end_is_kept";
/// How long a keeper may take, in `max_stall`, before it is waited for no longer.
const STALLS: u32 = 5;

/// Looks at who ends.
#[derive(Debug, Default)]
pub struct EndIsKept;

impl EndIsKept {
    /// `seat` ends that had completed the run `waited` ago and could reach these keepers all the time, which do not hold the last state.
    ///
    /// # Errors
    /// If it could have stayed longer.
    pub fn ended(seat: Seat, waited: Duration, max_stall: Duration, lacking: &[Seat]) -> Result<(), Broken> {
        if lacking.is_empty() || waited >= max_stall * STALLS {
            return Ok(());
        }
        let seen =
            format!("{seat} ends {waited:?} after the run's end, and keepers {lacking:?} do not hold the last state");
        Err(Broken::new(NAME, seen))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_keeper_that_is_left_without_the_end_is_noticed() {
        let stall = Duration::from_secs(10);
        assert!(EndIsKept::ended(0, stall, stall, &[3]).is_err());
        assert_eq!(EndIsKept::ended(0, stall, stall, &[]), Ok(()));
        assert_eq!(EndIsKept::ended(0, stall * 6, stall, &[3]), Ok(()));
    }
}
