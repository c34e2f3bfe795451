//! What is worth knowing of the steps, the most important first.

use starling::Report;

use super::format;

/// For a line. Nothing of a report that is not about steps.
pub fn figures(report: &Report) -> Vec<String> {
    let Report::Progress { step, steps, loss, samples_per_s, waiting_share, members, eta_s, .. } = report else {
        return Vec::new();
    };
    let loss = format::loss(f64::from(*loss));
    let mut figures = vec![format!("step {step}/{steps}"), format!("loss {loss}"), format::rate(*samples_per_s)];
    if step < steps {
        figures.push(format!("{} left", format::duration(*eta_s)));
    }
    figures.push(format::members(*members));
    // Who is alone waits for nobody.
    if *members > 1 {
        figures.push(format!("waiting {}", format::percent(*waiting_share)));
    }
    figures
}

/// The same for a bar, which has less room.
pub fn short_figures(report: &Report) -> Vec<String> {
    let Report::Progress { step, steps, loss, samples_per_s, waiting_share, members, .. } = report else {
        return Vec::new();
    };
    let mut figures = figures(report);
    figures[0] = format!("{step}/{steps}");
    figures[1] = format!("loss {loss:.3}");
    figures[2] = format!("{}/s", format::thousands(samples_per_s.max(0.0).round() as u64));
    if *members > 1
        && let Some(waiting) = figures.last_mut()
    {
        *waiting = format!("waits {:.0} %", waiting_share * 100.0);
    }
    figures
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Gauge;

    #[test]
    fn a_bar_has_all_figures_in_eighty_columns() {
        let report = Report::Progress {
            step: 12_345,
            generation: 2,
            steps: 30_000,
            epoch: 7,
            loss: 0.123_4,
            samples_per_s: 99_960.0,
            waiting_share: 0.8,
            data_wait_share: 0.0,
            members: 3,
            eta_s: 300.0,
            skipped: 0,
        };
        let bar = Gauge::new(true).render(80, "", (12_345, 30_000), &short_figures(&report));
        for part in ["##", "12345/30000", "99 960/s", "5 min left", "3 members", "waits 80 %"] {
            assert!(bar.contains(part), "{part} is missing from {bar}");
        }
        assert!(
            figures(&Report::Synced { step: 1 }).is_empty() && short_figures(&Report::Synced { step: 1 }).is_empty()
        );
    }
}
