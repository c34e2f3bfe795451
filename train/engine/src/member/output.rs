//! What a member asks of its driver.

use starling_topology::{
    Contact, Digest, Envelope, Event, Head, HoldPosition, MemberResumePlan, PeerId, Proof, Record, Time, Timer,
};

#[cfg(doc)]
use super::Member;
#[cfg(doc)]
use starling_topology::Input;

use crate::search::SearchConfig;

/// What to do next.
#[derive(Debug)]
pub enum Output {
    /// Send a message.
    Send {
        /// To whom.
        to: PeerId,
        /// The message.
        envelope: Envelope,
    },
    /// Remember how to reach a peer.
    Learn(Contact),
    /// Call back with [`Input::Expired`]. Replaces an earlier time for the same timer.
    SetTimer {
        /// What for.
        timer: Timer,
        /// When.
        at: Time,
    },
    /// Answer with [`Member::hold`].
    Hold(HoldPosition),
    /// Write this to disk, as [`starling_topology::Output::Persist`].
    Persist(Record),
    /// Keep what led to the view of this record, as [`starling_topology::Output::Keep`].
    Keep(Record),
    /// Make ready for this view, and go there with [`Member::enter`].
    Resume(MemberResumePlan),
    /// Tell the user. After [`Event::Evicted`], leave with [`Member::leave`].
    Event(Event),
    /// Sign this head, and answer with [`Member::signed`].
    Sign(Head),
    /// Tell all members that this one has signed a head.
    Announce {
        /// The head.
        head: Head,
        /// The signature of its canonical bytes.
        signature: [u8; 64],
    },
    /// A quorum has signed: write this beside the checkpoint. Comes again if the others have signed as well.
    Stable(Proof),
    /// A peer has signed another state than this member.
    Differs {
        /// The peer.
        peer: PeerId,
        /// The step.
        step: u64,
        /// The digest of this member's state.
        ours: Digest,
        /// That of the peer's.
        theirs: Digest,
    },
    /// Call back with [`Member::look_out`].
    LookOut(Time),
    /// Ask all that are known, by a [`Search`](crate::Search); then [`Member::searched`].
    Search(SearchConfig),
    /// That search is of no use any more.
    GiveUpSearch,
    /// The run has gone on: this process ends what it does, and comes back by a [`ReturnEngine`](crate::ReturnEngine).
    ComeBack,
    /// It was put out for its links again: this process ends what it does, and takes part as a leaf.
    NoPlace,
    /// Call back with [`Member::settle`].
    Settle(Time),
    /// Ask these keepers what they hold; then [`Member::keeper_holds`].
    AskKeepers(Vec<PeerId>),
    /// The run is complete here, and these keepers have not fetched the last state for long: the user hears what is waited for.
    AwaitsKeepers(Vec<PeerId>),
    /// Nothing is left to do: the process ends so.
    End(Event),
}
