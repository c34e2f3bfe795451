//! `starling checkpoint ls`, `verify`, `export`: what is on disk, whether it is whole, and the model in it.

use std::path::PathBuf;

use serde_json::{Value, json};
use starling_node::credentials::identity::{has_signed, to_libp2p};
use starling_node::start::node::CHECKPOINTS;
use starling_run::{
    CheckpointError, CheckpointFolder, CheckpointStore, CheckpointSummary, SignedHead, VerificationReport,
};

use super::{CommandError, Context, EXIT_DONE, EXIT_FAILED, print};
use crate::cli::{ExportFlags, KeyFlags, LOOK};
use crate::output::format;
use crate::program::export_model;

/// The checkpoints of a data directory. They are only read, so a node may be at work there.
struct Opened {
    /// One for each run, the one written to last at the end.
    stores: Vec<CheckpointStore>,
}

impl Opened {
    fn of_all_runs<T>(
        &self,
        what: impl Fn(&CheckpointStore) -> Result<Vec<T>, CheckpointError>,
    ) -> Result<Vec<T>, CommandError> {
        let mut all = Vec::new();
        for store in &self.stores {
            all.extend(what(store)?);
        }
        Ok(all)
    }
}

pub(super) fn list(context: &Context, flags: &KeyFlags<LOOK>) -> Result<u8, CommandError> {
    let listed = |store: &CheckpointStore| store.list()?.into_iter().map(|info| Listed::of(store, info)).collect();
    let checkpoints: Vec<Listed> = open(context, flags)?.of_all_runs(listed)?;
    let value = || json!({ "checkpoints": checkpoints.iter().map(Listed::to_json).collect::<Vec<_>>() });
    let text = || checkpoints.iter().map(|listed| format!("{}\n", listed.describe())).collect();
    print(context.global.json, value, text)?;
    Ok(EXIT_DONE)
}

pub(super) fn verify(context: &Context, flags: &KeyFlags<LOOK>) -> Result<u8, CommandError> {
    let judged = |store: &CheckpointStore| {
        Ok(store.verify()?.into_iter().map(|verdict| Judged::of(store, verdict)).collect::<Vec<_>>())
    };
    let verdicts = open(context, flags)?.of_all_runs(judged)?;
    let damaged = verdicts.iter().filter(|verdict| verdict.result.is_err()).count();
    let value = || {
        let checkpoints: Vec<Value> = verdicts.iter().map(Judged::to_json).collect();
        json!({ "checkpoints": checkpoints, "damaged": damaged })
    };
    let text = || {
        let lines = verdicts.iter().map(|verdict| match &verdict.result {
            Ok(listed) => format!("whole    {}\n", listed.describe()),
            Err(error) => format!("damaged  step {}: {error}\n", verdict.step),
        });
        let lines: String = lines.collect();
        format!("{lines}{} whole, {damaged} damaged\n", verdicts.len() - damaged)
    };
    print(context.global.json, value, text)?;
    Ok(if damaged == 0 { EXIT_DONE } else { EXIT_FAILED })
}

pub(super) fn export(context: &Context, flags: &ExportFlags) -> Result<u8, CommandError> {
    let data_dir = context.load(flags.data_dir.values())?.data_dir()?;
    if !data_dir.join(CHECKPOINTS).is_dir() {
        return Err(CommandError::NoCheckpoint(data_dir));
    }
    let (run, step, has_preprocessing) = export_model(&data_dir, &flags.which, &flags.to)?;
    let value = || json!({ "file": flags.to, "step": step, "run": run, "preprocessing": has_preprocessing });
    let text = || {
        let told = format!("wrote the model after step {step} to {}\n", flags.to.display());
        let lacking =
            "without how its data is scaled and what its classes are called, which this machine does not know\n";
        if has_preprocessing { told } else { told + lacking }
    };
    print(context.global.json, value, text)?;
    Ok(EXIT_DONE)
}

fn open(context: &Context, flags: &KeyFlags<LOOK>) -> Result<Opened, CommandError> {
    let data_dir = context.load(flags.values())?.data_dir()?;
    let directory = data_dir.join(CHECKPOINTS);
    // Asking what is there must not make it.
    if !directory.is_dir() {
        return Err(CommandError::NoCheckpoint(data_dir));
    }
    let stores = CheckpointFolder::new(directory).stores()?;
    Ok(Opened { stores })
}

/// What verifying a checkpoint and the signatures beside it came to.
struct Judged {
    path: PathBuf,
    step: u64,
    result: Result<Listed, String>,
}

impl Judged {
    fn of(store: &CheckpointStore, verdict: VerificationReport) -> Self {
        let listed = verdict.result.and_then(|info| Listed::of(store, info));
        let result = listed.map_err(|error| error.to_string()).and_then(|listed| {
            let forged = listed.signed.iter().flat_map(|signed| {
                let message = signed.head.encode();
                signed.signatures.iter().find(move |(peer, signature)| !has_signed(*peer, &message, signature))
            });
            match forged.map(|(peer, _)| to_libp2p(*peer)).next() {
                None => Ok(listed),
                Some(peer) => {
                    let path = listed.info.path.display();
                    Err(format!("beside `{path}`, the signature of peer {peer} is not its own"))
                }
            }
        });
        Self { path: verdict.path, step: verdict.step, result }
    }

    fn to_json(&self) -> Value {
        match &self.result {
            Ok(listed) => {
                let mut value = listed.to_json();
                value["whole"] = json!(true);
                value
            }
            Err(error) => json!({ "step": self.step, "path": self.path, "whole": false, "error": error }),
        }
    }
}

/// A checkpoint, who vouches for it, and whether its branch was left.
#[derive(Debug)]
struct Listed {
    info: CheckpointSummary,
    signed: Option<SignedHead>,
    aside: bool,
}

impl Listed {
    fn of(store: &CheckpointStore, info: CheckpointSummary) -> Result<Self, CheckpointError> {
        Ok(Self { signed: store.signed(&info), aside: store.is_put_aside(info.id)?, info })
    }

    fn is_stable(&self) -> bool {
        self.signed.as_ref().is_some_and(|signed| signed.stable)
    }

    fn describe(&self) -> String {
        let info = &self.info;
        let (run, values) = (info.run.to_string(), info.values.to_string());
        let signers = self.signed.as_ref().map_or(0, |signed| signed.signatures.len());
        let stable = if self.is_stable() { "stable" } else { "-" };
        let aside = if self.aside { "  put aside" } else { "" };
        format!(
            "step {:>8}  digest {}  values {}  {:>10}  {stable:>6}  signed by {signers}  run {}{aside}",
            info.step,
            info.digest,
            format::digest(&values),
            format::bytes(info.bytes),
            format::digest(&run)
        )
    }

    fn to_json(&self) -> Value {
        let info = &self.info;
        let signers = self.signed.iter().flat_map(|signed| &signed.signatures);
        json!({
            "step": info.step,
            "lineage": info.lineage.to_string(),
            "digest": info.digest.to_string(),
            "values": info.values.to_string(),
            "run": info.run.to_string(),
            "id": info.id.to_string(),
            "path": info.path,
            "bytes": info.bytes,
            "stable": self.is_stable(),
            "put_aside": self.aside,
            "signers": signers.map(|(peer, _)| to_libp2p(*peer).to_string()).collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use starling_run::ReplicatedState;
    use starling_topology::{Head, Ledger, PeerId, RunId, View};

    use super::*;

    /// A ledger that has seen so many steps.
    fn ledger_after(steps: u64) -> Ledger {
        let (mut ledger, peer) = (Ledger::new(1, 10, 5), PeerId([1; 32]));
        ledger.assign(&[peer]);
        for step in 1..=steps {
            ledger.commit(step, &[peer], &[1]);
        }
        ledger
    }

    #[test]
    fn a_forged_signature_is_named() {
        let data_dir = tempfile::tempdir().expect("a temp dir");
        let state = ReplicatedState {
            run: RunId([1; 32]),
            step: 5,
            lineage: starling_topology::Lineage::NONE,
            parameters: vec![1.0].into(),
            frozen: <_>::default(),
            moments: vec![],
            scalars: vec![],
            ledger: ledger_after(5),
        };
        let store = CheckpointFolder::new(data_dir.path()).open(state.run, 3).expect("a store");
        let info = store.save(state).expect("saved");
        let identities = [(); 2].map(|()| starling_node::credentials::identity::Identity::generate());
        let [signer, forger] = &identities;
        let peer = |identity: &starling_node::credentials::identity::Identity| {
            starling_node::credentials::identity::from_libp2p(&identity.peer_id()).expect("an Ed25519 key")
        };
        // Its own quorum, with whoever comes.
        let view = View::found(info.run, peer(signer)).succeed([signer, forger].map(peer));
        let head = Head { run: info.run, step: 5, view: view.id(), digest: info.digest, manifest: info.id };
        let judge = || {
            let verdict = store.verify().expect("read").pop().expect("one");
            Judged::of(&store, verdict)
        };
        assert_eq!(judge().to_json()["stable"], false);
        let own = (peer(signer), signer.sign(&head.encode()));
        store.sign(&head, &view, &[own], |_, _, _| true).expect("signed");
        let value = judge().to_json();
        assert_eq!((&value["stable"], &value["whole"]), (&json!(true), &json!(true)));
        assert_eq!(value["signers"], json!([signer.peer_id().to_string()]));
        let listed = judge().result.expect("whole");
        assert!(listed.describe().contains("stable  signed by 1"));

        let forged = (peer(forger), signer.sign(&head.encode()));
        store.sign(&head, &view, &[forged], |_, _, _| true).expect("not looked at");
        let error = judge().result.expect_err("forged");
        assert!(error.contains(&forger.peer_id().to_string()) && error.contains("is not its own"), "{error}");
    }
}
