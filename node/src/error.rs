//! Why a node could not do what it was asked.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use starling_run::CheckpointError;
use starling_topology::RefusalReason;
use thiserror::Error;

use crate::access::admission::AdmissionError;
use crate::credentials::ticket::TicketError;

/// Everything that can end a node early. Each message says what, where, why, and what to do.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum NodeError {
    /// A file of the data directory can't be used.
    #[error("can't {verb} {}: {source}", path.display())]
    File {
        /// `read` or `write`.
        verb: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The data directory is another node's.
    #[error(
        "the data directory {} is in use{by}; stop that node, or choose another --data-dir for this one", dir.display()
    )]
    InUse {
        /// The data directory.
        dir: PathBuf,
        /// ` by process N`, if known.
        by: String,
    },
    /// Another process is this machine.
    #[error(
        "another process runs as {peer}, the identity of this data directory, perhaps on the machine that it was copied from; two members can't share one: stop that process, or move {} away and `starling join` as a new member", key.display()
    )]
    Twin {
        /// The identity.
        peer: String,
        /// The file that holds it.
        key: PathBuf,
    },
    /// The identity file holds no Ed25519 key.
    #[error("{} holds no Ed25519 key; move it away and a new identity is made", .0.display())]
    Identity(PathBuf),
    /// The founder's key file holds no Ed25519 key.
    #[error("{} holds no Ed25519 key; put the founder's key back there", .0.display())]
    FounderKey(PathBuf),
    /// The founder has put this machine out.
    #[error("the run's founder has revoked this machine's key: it is no member any more and can't come back with it")]
    Revoked,
    /// A keeper's invitation makes no member.
    #[error(
        "the ticket is a keeper's: `starling keep` takes it; to train, ask the run's founder for a member's (`starling invite`)"
    )]
    KeepersTicket,
    /// The network can't be set up.
    #[error("can't set up the network: {0}")]
    Network(io::Error),
    /// An address to listen on can't be used.
    #[error("can't listen on {address}: {reason}")]
    Listen {
        /// The address.
        address: String,
        /// Why, and what to do.
        reason: String,
    },
    /// An address to join by names no peer.
    #[error("the address {0} does not end in /p2p/<peer id>; copy it from what `starling run` printed")]
    NoPeer(String),
    /// A ticket can't be used.
    #[error(transparent)]
    Ticket(#[from] TicketError),
    /// The peer to join through can't be reached.
    #[error(
        "can't reach {peer}: {reason}; is it running, and can this machine reach its addresses? Any other member prints a fresh ticket with `starling invite`"
    )]
    Unreachable {
        /// The peer.
        peer: String,
        /// Why.
        reason: String,
    },
    /// A ticket leads back to this machine and to nobody else.
    #[error(
        "the ticket names only this machine itself; use that of another member (`starling invite` prints one there)"
    )]
    OwnTicket,
    /// A keeper answers, and none of the members that it knows.
    #[error(
        "{keeper} is a keeper: it stores this run's checkpoints and lets nobody in; {}; use a member's ticket (`starling invite` prints one there), or start one of them again",
        silent(members)
    )]
    OnlyKeepers {
        /// The keeper.
        keeper: String,
        /// Members that it knows, none of which answers.
        members: Vec<String>,
    },
    /// One update after the other was dropped.
    #[error(
        "after step {step} the run has stopped: {in_row} updates in a row were dropped, since the state would not have stayed finite. The last finite state is saved: found a new run from it (`starling run --from`) with a lower learning rate, or without the samples that are far off; to try these batches again, start this one again"
    )]
    Unstable {
        /// The step.
        step: u64,
        /// How many.
        in_row: u32,
    },
    /// The data of the samples that come next was nowhere.
    #[error(
        "after step {step} the run has stopped: in the last {in_row} steps nothing was learned, since no member that took part had the data of the samples that come next. {}",
        if *is_last {
            "It was the last step: the state is saved, and a new run can begin with it (`starling run --from`)"
        } else {
            "The state is saved: start a member that has all of the data (--data), then the others again, and they go on from there"
        }
    )]
    Starved {
        /// The step.
        step: u64,
        /// How many steps had no samples.
        in_row: u32,
        /// Whether the run has no more steps.
        is_last: bool,
    },
    /// Nobody else is in the view, and the data of the samples that come next does not come.
    #[error(
        "step {step}: the data of the samples that come next is not here, and for {} minutes there was no other member to compute them or to have it from; the state is saved: start a member that has all of the data (--data), then this one again", waited.as_secs() / 60
    )]
    StarvedAlone {
        /// The step.
        step: u64,
        /// For how long.
        waited: Duration,
    },
    /// Others were members, and nobody knows what became of them.
    #[error(
        "others trained this run{}, and none of them answers, so this machine can't know whether they go on; start one of them, or `starling join <ticket of another member>`, or pass --alone to go on alone, as a fork",
        named(members)
    )]
    NobodyAnswers {
        /// Those that are known.
        members: Vec<String>,
    },
    /// The last member has not saved what it should have before the others were gone.
    #[error(
        "this machine went on alone from step {resumed} when others were gone{}, and holds no checkpoint later than step {step}: they may hold one that all had signed. Start them again with --resume, and then this machine, which gets it from them; or pass --alone to go on from step {step}, as a fork",
        named(members)
    )]
    Behind {
        /// The newest that it holds.
        step: u64,
        /// What its view went on from.
        resumed: u64,
        /// Who is gone.
        members: Vec<String>,
    },
    /// A step is named to go on from although the run is others' too.
    #[error(
        "--resume={step} would begin another branch of a run that others train too{}; leave the step out to go on with them, or, while none of them trains, pass --alone as well to go on alone, as a fork",
        named(members)
    )]
    OthersBranch {
        /// The step.
        step: u64,
        /// Those that are known.
        members: Vec<String>,
    },
    /// A private run's secret is gone from the data directory of one of its members.
    #[error(
        "{} has a place in this private run, but its secret is gone; copy secret-* from another member's data directory, or `starling join` with a ticket of one", .dir.display()
    )]
    LostSecret {
        /// The data directory.
        dir: PathBuf,
    },
    /// What a run is, as kept in the data directory of one of its members, is damaged, and these settings are not that run's.
    #[error(
        "{} is damaged: it can't be told whether these settings name its run, or a new one; `starling join` with a ticket of one of its members goes back to it, and without the file a new run begins", .path.display()
    )]
    DamagedManifest {
        /// The file.
        path: PathBuf,
    },
    /// A path names no checkpoint to begin a run with.
    #[error(
        "there is no checkpoint to begin with at {}; name a data directory, or a step-*.json file in its checkpoints folder", .0.display()
    )]
    NoOrigin(PathBuf),
    /// No run has been here.
    #[error("there is no checkpoint in {}; name the data directory of a member that has trained", .0.display())]
    NoCheckpoint(PathBuf),
    /// A run can't begin with a state of another kind.
    #[error(
        "a run with these settings can't begin with the state in {}: {differences}; these must be as they were when it was trained", from.display()
    )]
    OtherOrigin {
        /// Where the state is.
        from: PathBuf,
        /// Each field with both values.
        differences: String,
    },
    /// A run would begin at or after its end.
    #[error("the state in {} is after step {step}, and the run's last step is {steps}; pass a larger --steps", from.display())]
    NothingLeft {
        /// Where the state is.
        from: PathBuf,
        /// Its step.
        step: u64,
        /// The run's last step.
        steps: u64,
    },
    /// The run has ended before its last step.
    #[error(
        "the run in {} is complete: it ended after step {step}, because its held-out loss no longer fell. `starling checkpoint export` writes \
         its best model, with which `--init` begins another run; that needs other settings or another --data-dir", dir.display()
    )]
    EndedEarly {
        /// The data directory.
        dir: PathBuf,
        /// The step after which it ended.
        step: u64,
    },
    /// The run has had its last step.
    #[error(
        "the run in {} is complete: step {step} was its last. `starling run --resume --steps {}` with its other settings trains on from there as a new run, and `starling checkpoint export` writes the model; another run needs other settings or another --data-dir", dir.display(), step.saturating_mul(2)
    )]
    Complete {
        /// The data directory.
        dir: PathBuf,
        /// The last step.
        step: u64,
    },
    /// One of two peers did not admit the other.
    #[error("{}: {error}", refusal(peer, error))]
    NotAdmitted {
        /// The peer.
        peer: String,
        /// Why.
        error: AdmissionError,
    },
    /// Our manifest and the run's differ.
    #[error(
        "{peer} trains another run; {differences}; change what differs, or join without it (the manifest comes from the swarm)"
    )]
    Manifest {
        /// The member that we asked.
        peer: String,
        /// Each field with both values.
        differences: String,
    },
    /// A member's program makes something else of the run's data.
    #[error("{peer} says what does not fit: {reason}")]
    Probe {
        /// The member that we asked.
        peer: String,
        /// What differs, and what to do.
        reason: starling_run::Error,
    },
    /// The configuration asks to resume another run than those that the data directory holds.
    #[error("the checkpoints in {} are of another run; {differences}; use the settings they were made with, leave out --resume to start afresh, or pass --from {} to begin a new run with the newest of them", dir.display(), dir.display())]
    OtherCheckpoint {
        /// The data directory.
        dir: PathBuf,
        /// Each field with both values; the other run is the one that was saved last.
        differences: String,
    },
    /// The checkpoint to go on from is damaged, an earlier one is not.
    #[error("{error}; the last intact one is step {intact}: pass --resume={intact}")]
    DamagedCheckpoint {
        /// What is damaged.
        error: CheckpointError,
        /// The step of the last one that is not.
        intact: u64,
    },
    /// A run that has checkpoints would be started afresh.
    #[error("{} holds a checkpoint of this run after step {step}; pass --resume to go on from it, or choose another --data-dir", dir.display())]
    CheckpointThere {
        /// The data directory.
        dir: PathBuf,
        /// The newest checkpoint's step.
        step: u64,
    },
    /// The ticket is of another run than the member it names.
    #[error("{peer} trains run {theirs}, the ticket is of run {ours}; ask for a new ticket (`starling invite`)")]
    OtherRun {
        /// The member.
        peer: String,
        /// The ticket's run.
        ours: String,
        /// The member's.
        theirs: String,
    },
    /// A run can't begin with two things.
    #[error(
        "a run begins with the values in `{}` or with the state in `{}`, not with both; leave out --init or --from", init.display(),
        from.display()
    )]
    TwoBeginnings {
        /// The file with values.
        init: PathBuf,
        /// The checkpoint.
        from: PathBuf,
    },
    /// The values that the run begins with can't be had.
    #[error(
        "the run begins with values that its founder has given, and no member that could be asked hands them out ({reason}); start one of \
         its members, or join through another one"
    )]
    NoInitial {
        /// What was tried.
        reason: String,
    },
    /// This machine has no data for the run, and nobody shares any.
    #[error(
        "this machine has no data for the run ({kind}, {samples} samples), and no member that could be asked shares it ({reason}); pass --data PATH if this machine has it, or start a member with --share-data"
    )]
    NotShared {
        /// The kind of data.
        kind: String,
        /// How many samples it has.
        samples: u64,
        /// What one of the members answered.
        reason: String,
    },
    /// This machine's user says how a table is read, and the run's data is none.
    #[error("{0}")]
    NoTable(String),
    /// The run's data set is larger than what this machine takes.
    #[error(
        "the run's data set has {bytes} bytes, and this machine takes at most {} MiB from members; pass --data-limit {} to take it, or --data PATH if this machine has it", limit >> 20, bytes.div_ceil(1 << 20)
    )]
    DataTooLarge {
        /// How large it is.
        bytes: u64,
        /// How large it may be, in bytes.
        limit: u64,
    },
    /// The run's data set did not come.
    #[error(
        "the run's data set can't be downloaded: {reason}; join again to go on where this stopped, or pass --data PATH if this machine has it"
    )]
    NoData {
        /// Why.
        reason: String,
    },
    /// A member refused us.
    #[error("{peer} refused: {refusal}")]
    Refused {
        /// The member.
        peer: String,
        /// Why.
        refusal: RefusalReason,
    },
    /// Nobody who is left holds the replicated state.
    #[error(
        "nobody who is left holds the run's state; to go on all the same, start one machine with --alone: it goes on from the newest intact checkpoint that it has, be it of before, or else, once no damaged one is left in its directory, from the beginning, as a fork, and the others join it"
    )]
    NoState,
    /// None of the members that a leaf knows carries it.
    #[error("{}", no_carrier(members, answer.as_deref()))]
    NoCarrier {
        /// Those that it asked.
        members: Vec<String>,
        /// What one of them said last; `None` if nobody has answered.
        answer: Option<String>,
    },
    /// A leaf has no state of its own.
    #[error(
        "the run has finished, and this leaf holds none of its states; `starling fetch` gets the last one from a keeper, or start a member of the run again"
    )]
    FinishedWithoutLeaf,
    /// A program's own buffers have no shares.
    #[error("a run of a program's own buffers has no leaves: each of its machines is a member; leave --role out")]
    NoLeaves,
    /// A vote that is not stored must not be given.
    #[error(
        "this member can't store its vote in {} and leaves its seat, after {limit:?} of trying: {reason}; the others go on without it; give the disk room or mend it, and start it again", path.display()
    )]
    NotStored {
        /// The file.
        path: PathBuf,
        /// How long it tried.
        limit: Duration,
        /// Why not.
        reason: String,
    },
    /// There is no checkpoint to fetch.
    #[error(
        "no stable checkpoint of the run could be fetched: {peer} and who else is known: {reason}; ask a member or keeper that holds one"
    )]
    NothingStable {
        /// The ticket's peer.
        peer: String,
        /// Why.
        reason: String,
    },
    /// A member holds another state than we do.
    #[error(
        "peer {peer} holds another state than this one after step {step} (digest {theirs}, ours {ours}); one of the two machines computes wrongly: check its memory and its starling release"
    )]
    Diverged {
        /// The member.
        peer: String,
        /// After which step.
        step: u64,
        /// Our digest.
        ours: String,
        /// Its digest.
        theirs: String,
    },
    /// The device does not get warm.
    #[error(
        "the device {device} has not computed anything within {} minutes; update its driver, or use another one, such as `--device cpu`", limit.as_secs() / 60
    )]
    Cold {
        /// The device.
        device: String,
        /// How long it may take.
        limit: Duration,
    },
    /// This machine's own step takes too long.
    #[error(
        "this machine has been at step {step} for over {limit:?}, so the others can't go on: its device or disk hangs, or is too slow for this run; raise --max-stall where the run is founded"
    )]
    Stalled {
        /// The step.
        step: u64,
        /// How long it may take.
        limit: Duration,
    },
    /// The last state is not on disk.
    #[error(
        "the state after step {step} is not saved: the disk of {} has not answered for {limit:?}; other members have saved theirs, and `starling checkpoint fetch` brings it here once that disk works again", place.display()
    )]
    Unsaved {
        /// The step.
        step: u64,
        /// The folder.
        place: PathBuf,
        /// How long the disk may take.
        limit: Duration,
    },
    /// The disk did not take the last state.
    #[error(
        "the state after step {step}, the run's last, is not saved: {source}; this machine keeps its place in the run: once its disk takes files again, the same command goes on with the others that come back, and `starling checkpoint fetch` brings that state from one that has it"
    )]
    NotKept {
        /// The step.
        step: u64,
        /// Why.
        source: CheckpointError,
    },
    /// This process is to end, and its trainer does not.
    #[error(
        "stopped without saving the last state: this machine's device or disk has not answered for {limit:?}; the others go on, and the same command brings it back once that works again"
    )]
    Hangs {
        /// How long it may take.
        limit: Duration,
    },
    /// We wanted to leave, and too few others answered to decide that.
    #[error("left after step {step} without a decision of the others, who will take this peer for lost; {}", match saved { Some(true) => "the state is saved", Some(false) => "the state could not be saved", None => "it held no state of its own to save" })]
    LeftAlone {
        /// The last step committed here.
        step: u64,
        /// Whether it is on disk, if there was anything to save.
        saved: Option<bool>,
    },
    /// A thread can't be started.
    #[error("can't start a thread: {0}")]
    Thread(io::Error),
    /// What the run holds can't be used.
    #[error(transparent)]
    Run(#[from] starling_run::Error),
    /// The audit file can't be written.
    #[error(transparent)]
    Audit(#[from] starling_run::audit::AuditError),
    /// What computes panicked.
    #[error("what computes panicked at step {step}: {reason}; this member leaves, and the others go on without it")]
    Panicked {
        /// The step.
        step: u64,
        /// What the panic says.
        reason: String,
    },
    /// A program panicked before it took part in anything.
    #[error("the program panicked while its run was prepared: {reason}; nobody else knows of this member yet")]
    Unprepared {
        /// What the panic says.
        reason: String,
    },
    /// What computes does not do what it should.
    #[error(
        "step {step}: the learner brought a gradient of {weight} samples, of whose {parameters} numbers the first {missing} are missing, and its share has {samples}; this is a bug of the program that computes, and the others go on without this member"
    )]
    WrongLength {
        /// The step.
        step: u64,
        /// How many numbers are missing.
        missing: usize,
        /// Of how many.
        parameters: usize,
        /// Of how many samples it says the gradient is.
        weight: u64,
        /// How many it had to compute.
        samples: u64,
    },
    /// One of our threads ended without a word.
    #[error("the {0} stopped unexpectedly; this is a bug in starling")]
    Stopped(&'static str),
}

impl From<CheckpointError> for NodeError {
    fn from(error: CheckpointError) -> Self {
        Self::Run(error.into())
    }
}

/// Whose refusal it was.
fn refusal(peer: &str, error: &AdmissionError) -> String {
    match error {
        AdmissionError::Refused | AdmissionError::Denied(_) | AdmissionError::PutOut => {
            format!("this machine was not admitted by {peer}")
        }
        AdmissionError::Unproven | AdmissionError::Uninvited(_) => format!("{peer} was not admitted by this machine"),
        AdmissionError::WireVersion { .. }
        | AdmissionError::Foreign
        | AdmissionError::Crowded
        | AdmissionError::Late
        | AdmissionError::Broken(_) => format!("no connection to {peer} came about"),
    }
}

/// Why a leaf gives up.
fn no_carrier(members: &[String], answer: Option<&str>) -> String {
    let members = members.join(", ");
    let how = "start it again with a fresh ticket of a member that";
    match answer {
        None => format!(
            "none of the members that this leaf knows answers, though it has asked for long ({members}); {how} is there"
        ),
        Some(answer) => format!(
            "no member carries this leaf, though it has asked for long ({members}): {answer}; a member takes `network.leaves` of them, 8 by default: {how} has room, as `starling invite` prints it there, or without --role leaf"
        ),
    }
}

/// ` (12D3.., 12D3..)`, if there are any.
fn named(members: &[String]) -> String {
    if members.is_empty() { String::new() } else { format!(" ({})", listed(members)) }
}

fn silent(members: &[String]) -> String {
    match members.len() {
        0 => "it knows no member".to_owned(),
        1 => format!("the member that it knows, {}, does not answer", members[0]),
        _ => format!("none of the members that it knows answers ({})", listed(members)),
    }
}

fn listed(members: &[String]) -> String {
    const MAX_NAMED: usize = 4;
    let more = members.len().saturating_sub(MAX_NAMED);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    format!("{}{more}", members[..members.len().min(MAX_NAMED)].join(", "))
}

impl NodeError {
    /// Of a panic in a program's own code, before its member is in a view.
    pub fn unprepared(payload: &(dyn std::any::Any + Send)) -> Self {
        Self::Unprepared { reason: starling_run::panics::said(payload).unwrap_or("it does not say why").to_owned() }
    }

    /// Whether it may be over by itself after a while: others can't be reached.
    pub(crate) fn may_pass(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::OnlyKeepers { .. } | Self::NobodyAnswers { .. })
    }

    pub(crate) fn file(verb: &'static str, path: &Path, source: io::Error) -> Self {
        Self::File { verb, path: path.to_owned(), source }
    }
}
