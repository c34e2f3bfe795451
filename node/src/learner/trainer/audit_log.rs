//! Who contributed which samples, in a file: what `starling audit` reads.

use std::path::Path;
use std::sync::Arc;

use starling_run::audit::{AuditError, AuditHeader, AuditRecord, AuditView, AuditWriter};
use starling_run::{Learner, StepReport};
use starling_topology::Digest;

use crate::error::NodeError;
use crate::observe::report::{Observer, Report};

/// Writes a step once a later one proves that all members have committed it.
pub(super) struct AuditLog {
    /// `None` if nobody asked for it, or the file can't be written any more.
    writer: Option<AuditWriter>,
    /// The newest step. A member that dies with the view may have been the only one to commit it.
    unconfirmed: Option<AuditRecord>,
    /// Whether the file says at which step this life of the process began.
    begun: bool,
    observer: Arc<dyn Observer>,
}

impl AuditLog {
    /// Writes to `path`, if there is one. Which step comes first is not known yet: what an earlier life of this process
    /// wrote stands until then.
    ///
    /// # Errors
    /// If the file can't be written: whoever asks for it wants to know at once.
    pub(super) fn open(
        path: Option<&Path>,
        learner: &dyn Learner,
        observer: Arc<dyn Observer>,
    ) -> Result<Self, NodeError> {
        let ledger = learner.ledger();
        let header = AuditHeader {
            run: learner.manifest().run_id(),
            samples: ledger.samples(),
            batch_size: ledger.batch_size(),
            micro_batch: ledger.micro_batch(),
            seed: ledger.seed(),
            // Of a member whose state comes from others, it is told when that is there.
            first_step: learner.step() + 1,
            adopted: false,
            view: None,
        };
        let writer = path.map(|path| AuditWriter::open(path, header)).transpose()?;
        Ok(Self { writer, unconfirmed: None, begun: false, observer })
    }

    /// Notes a step, which confirms the one before it. `view` is where this member is, and `digest` that of the state after the
    /// step, if it was computed.
    pub(super) fn note(&mut self, report: &StepReport, view: AuditView, digest: Option<Digest>) {
        self.confirm();
        if !std::mem::replace(&mut self.begun, true) {
            self.write(|writer| writer.restart(report.step, Some(view)));
        }
        self.unconfirmed = self.writer.is_some().then(|| AuditRecord {
            step: report.step,
            generation: view.generation,
            view: view.view,
            epoch: report.epoch,
            contributions: report.contributions.clone(),
            dropped: report.dropped.clone(),
            digest,
            is_last: false,
        });
    }

    /// The newest step is committed by all.
    pub(super) fn confirm(&mut self) {
        if let Some(record) = self.unconfirmed.take() {
            self.write(|writer| writer.record(&record));
        }
    }

    /// This member has left in order after the newest step: the others have most likely committed it, too.
    pub(super) fn leave(&mut self) {
        if let Some(record) = &mut self.unconfirmed {
            record.is_last = true;
        }
        self.confirm();
    }

    /// Another state came from others, in `view`: the next step is `first_step`.
    pub(super) fn adopt(&mut self, first_step: u64, view: Option<AuditView>) {
        (self.unconfirmed, self.begun) = (None, true);
        self.write(|writer| writer.adopt(first_step, view));
    }

    /// All go on from the newest step: be it that a new view has begun with it, or that it is on disk. Those who come later may
    /// know nothing of the steps before, so these must not be lost with this process.
    pub(super) fn settle(&mut self) {
        self.confirm();
        self.flush();
    }

    /// Writes what is left.
    pub(super) fn flush(&mut self) {
        self.write(AuditWriter::flush);
    }

    /// A full disk must not end the run: the user is told, once.
    fn write(&mut self, write: impl FnOnce(&mut AuditWriter) -> Result<(), AuditError>) {
        if let Some(writer) = &mut self.writer
            && let Err(error) = write(writer)
        {
            self.observer.report(&Report::Warning { message: format!("the audit ends here: {error}") });
            self.writer = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use starling_topology::{Generation, PeerId, RunId, ViewId};

    use super::*;

    struct Deaf;

    impl Observer for Deaf {
        fn report(&self, _report: &Report) {}
    }

    #[test]
    fn what_others_go_on_from_is_in_the_file_with_the_digests_that_were_computed() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("audit.jsonl");
        let run = RunId([1; 32]);
        let header = AuditHeader {
            run,
            samples: 40,
            batch_size: 8,
            micro_batch: 0,
            seed: 1,
            first_step: 1,
            adopted: false,
            view: None,
        };
        let writer = Some(AuditWriter::open(&path, header).expect("a file"));
        let mut audit_log = AuditLog { writer, unconfirmed: None, begun: false, observer: Arc::new(Deaf) };
        let view = AuditView { generation: Generation(1), view: ViewId([2; 32]), parent: None };
        let digest = Digest([3; 32]);
        for step in 1..=3 {
            let contributions = vec![(PeerId([1; 32]), std::iter::once(0..8).collect())];
            let report = StepReport {
                step,
                loss: 0.5,
                samples: 8,
                epoch: 0,
                contributions,
                returned: 0,
                speeds: vec![1],
                skipped: None,
                given_up: Vec::new(),
                evaluated: None,
                unevaluated: None,
                judged: None,
                rescaled: None,
                dropped: Vec::new(),
            };
            audit_log.note(&report, view, (step == 2).then_some(digest));
        }
        let lines = || -> Vec<String> {
            let text = std::fs::read_to_string(&path).expect("read");
            text.lines().filter(|line| line.contains("contributions")).map(str::to_owned).collect()
        };
        assert!(lines().is_empty(), "many go to the file together");
        audit_log.settle();
        let written = lines();
        assert_eq!(written.len(), 3, "{written:?}");
        let digests = written.iter().map(|line| line.contains(&digest.to_string()));
        assert_eq!(digests.collect::<Vec<_>>(), [false, true, false], "{written:?}");
    }
}
