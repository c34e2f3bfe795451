//! Hostile members and ticket holders over real connections: whatever one of them says, the others go on, none ends, none grows,
//! and who it was is told.

use std::time::{Duration, Instant};

use libp2p::identity::Keypair;
use serde_json::Value;
use starling_tests::{Liar, Peer, PeerOptions, starling};
use starling_topology::message::{MAX_ENVELOPE_BYTES, RefusalReason};
use starling_topology::vote::certificate::acceptance;
use starling_topology::{
    Ballot, Body, BranchPosition, Certificate, Digest, Generation, Head, JoinRequest, JustifiedProposal, Lineage,
    LostState, PeerId, Progress, Promise, Proposal, Reason, ResumePlan, RunId, SignedPromise, Signer, SuccessionProof,
    View, ViewId,
};

/// Slow enough for who speaks of steps to come.
const FLAGS: &str =
    "--model mlp:512 --batch-size 256 --steps 100000000 --checkpoint-every 0 --min-peers 2 --max-stall 3s";
/// As in these flags; and how late progress is told.
const STALL: Duration = Duration::from_secs(3);
const TOLD: Duration = Duration::from_secs(2);
/// What hostile peers may make a process grow by, in bytes.
const MEMORY: u64 = 32 << 20;
/// The run's last step.
const LAST: u64 = 100_000_000;
/// Steps that are taken after what was said.
const MORE: u64 = 20;
/// How often what needs the right moment is said.
const ROUNDS: usize = 500;

/// Three that keep to the rules.
struct Honest {
    peers: [Peer; 3],
    ticket: String,
    before: [u64; 3],
}

impl Honest {
    fn begin() -> Self {
        let founder = Peer::run(&PeerOptions::flags(FLAGS));
        let ticket = founder.ticket();
        let others = [(); 2].map(|()| Peer::join(&ticket, &PeerOptions::flags("--checkpoint-every 0")));
        let [second, third] = others;
        let peers = [founder, second, third];
        for peer in &peers {
            peer.wait_for_votes(3);
            peer.wait_for_step(MORE);
        }
        let before = peers.each_ref().map(|peer| peer.memory()[0]);
        Self { peers, ticket, before }
    }

    /// All go on, whatever was said until now.
    fn go_on(&self, what: &str) {
        let reached = self.peers.each_ref().map(Peer::reached);
        for (peer, reached) in self.peers.iter().zip(reached) {
            peer.wait_for_step(reached + MORE);
            let told = peer.told();
            let put_out = told.iter().find(|event| event["event"] == "evicted");
            assert!(put_out.is_none(), "{what}: {} was put out: {put_out:?}", peer.id());
        }
    }

    /// All go on when they have heard all that was said: what is no message comes last, and they say so, or have put out whoever
    /// said it before that.
    async fn go_on_after(&self, what: &str, liar: &mut Liar) {
        self.go_on(what);
        liar.send(b"?").await;
        self.all_name(&liar.name(), "");
        self.go_on(what);
    }

    /// A member joins them, and says what no member says.
    fn hear_member(&self, what: &str, says: impl AsyncFn(&mut Liar, &Self)) -> String {
        let began = Instant::now();
        let member = Peer::join(&self.ticket, &PeerOptions::flags("--checkpoint-every 0"));
        let name = member.id();
        for peer in self.peers.iter().chain([&member]) {
            peer.wait_for("a view with it", |event| {
                event["event"] == "view" && event["members"].to_string().contains(&name)
            });
        }
        member.wait_for("the state", |event| event["event"] == "synced");
        // What is said of a view that is over by then counts for nothing.
        member.wait_for_votes(4);
        self.peers.iter().for_each(|peer| _ = peer.wait_for_votes(4));
        runtime().block_on(async {
            let mut liar = Liar::beside(&member, &self.ticket, &self.peers).await;
            assert!(liar.view().contains(liar.me()));
            says(&mut liar, self).await;
            self.go_on_after(what, &mut liar).await;
        });
        eprintln!("{what}: {:?}", began.elapsed());
        member.signal("KILL");
        drop(member.finish());
        name
    }

    /// One who is in no view says what such a one does not say.
    fn hear_ticket_holder(&self, what: &str, says: impl AsyncFn(&mut Liar, &Self)) -> String {
        let began = Instant::now();
        let name = runtime().block_on(async {
            let mut liar = Liar::outside(&self.ticket, &self.peers).await;
            says(&mut liar, self).await;
            self.go_on_after(what, &mut liar).await;
            liar.name()
        });
        eprintln!("{what}: {:?}", began.elapsed());
        name
    }

    /// All of them tell who it was, and what it did.
    fn all_name(&self, name: &str, what: &str) {
        for peer in &self.peers {
            peer.wait_for(&format!("who {what}"), |event| {
                let did = event["what"].as_str().unwrap_or_default();
                event["event"] == "misbehaved" && event["peer"] == name && did.contains(what)
            });
        }
    }

    /// The user of the first of them is told, too, of all of these.
    fn page_names(&self, names: &[String]) {
        let output = starling(self.peers[0].dir().path()).args(["status", "--json", "--data-dir", "state"]).output();
        let status: Value = serde_json::from_slice(&output.expect("starling starts").stdout).expect("JSON");
        for name in names {
            assert!(status["misbehaved"][name].is_string(), "{name}: {}", status["misbehaved"]);
        }
    }

    /// Whom the first of them knows as keepers.
    fn keepers(&self) -> Vec<String> {
        let output = starling(self.peers[0].dir().path()).args(["members", "--json", "--data-dir", "state"]).output();
        let list: Value = serde_json::from_slice(&output.expect("starling starts").stdout).expect("JSON");
        let keepers = list["members"].as_array().expect("a list").iter().filter(|row| row["role"] == "keeper");
        keepers.map(|row| row["peer"].as_str().expect("a name").to_owned()).collect()
    }

    fn end(self) {
        for (peer, before) in self.peers.iter().zip(self.before) {
            let [_, most] = peer.memory();
            eprintln!("{} KiB more", most.saturating_sub(before) >> 10);
            assert!(most < before + MEMORY, "{} KiB more", (most - before) >> 10);
            peer.signal("TERM");
        }
        for peer in self.peers {
            assert_eq!(peer.finish().summary()["outcome"], "left");
        }
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Runtime::new().expect("threads")
}

const STANDING: BranchPosition =
    BranchPosition { step: LAST, branch: 0, parent: None, forked: false, paused: false, recovering: false };

/// A view in which the liar alone, or with a victim, goes on from its own state.
fn proposal(view: View, donor: PeerId) -> Proposal {
    let resume =
        ResumePlan { step: LAST - 1, lineage: Lineage::NONE, holders: vec![], donors: vec![donor], syncing: vec![] };
    Proposal { view, resume, reasons: vec![Reason::StoodStill], joiners: vec![], promised: 1, of: 4 }
}

/// That the run has gone on without those who hear it, and is over.
async fn say_that_it_is_over(liar: &mut Liar, forked: bool) {
    let standing = BranchPosition { forked, ..STANDING };
    let outsider = Body::Outsider { branch_position: standing, contacts: vec![], chain: vec![] };
    for body in [outsider, Body::Hello(standing), Body::Refuse(RefusalReason::RunFinished)] {
        liar.say_of((Generation(1 << 31), ViewId([9; 32])), &body).await;
    }
}

#[test]
fn members_say_what_no_member_says() {
    let honest = Honest::begin();
    let mut named = Vec::new();
    honest.hear_member("that the run is over", async |liar, _| {
        say_that_it_is_over(liar, false).await;
        // A chain of its own making leads there.
        let next = proposal(liar.view().succeed([liar.me()]), liar.me());
        let ballot = Ballot { attempt: 5, proposer: liar.me() };
        let seal = liar.pen().sign(&acceptance(liar.view().id(), ballot, &next)).into();
        let seals = liar.view().members().iter().map(|peer| (*peer, seal)).collect();
        let chain = vec![SuccessionProof::to(&next, Certificate { ballot, seals })];
        let place = (next.view.generation, next.view.id());
        liar.say_of(place, &Body::Outsider { branch_position: STANDING, contacts: vec![], chain }).await;
    });
    let name = honest.hear_member("a view of its own", async |liar, _| {
        let (me, view, pen) = (liar.me(), liar.view().clone(), liar.pen().clone());
        let ballot = Ballot { attempt: 5, proposer: me };
        liar.say(&Body::Prepare { ballot, boundary: None, unreachable: vec![] }).await;
        for forged in [false, true] {
            liar.say_each(|victim| {
                let proposal = proposal(view.succeed([victim, me]), me);
                let seal = pen.sign(&acceptance(view.id(), ballot, &proposal)).into();
                let signers = view.members().iter().filter(|signer| forged || **signer == me);
                let certificate = Some(Certificate { ballot, seals: signers.map(|signer| (*signer, seal)).collect() });
                Body::Install { proposal, certificate, contacts: vec![], fork: None, chain: vec![] }
            })
            .await;
        }
    });
    honest.all_name(&name, "no quorum of the one before it has accepted");
    named.push(name);
    let name = honest.hear_member("the last ballot", async |liar, _| {
        let last = Ballot { attempt: u64::MAX, proposer: liar.me() };
        liar.say_each(|victim| Body::Nack { ballot: Ballot { attempt: 1, proposer: victim }, promised: last }).await;
        let sound = Ballot { attempt: 7, ..last };
        for (ballot, boundary) in [(sound, Some(u64::MAX)), (last, None), (last, Some(u64::MAX))] {
            liar.say(&Body::Prepare { ballot, boundary, unreachable: vec![] }).await;
        }
    });
    honest.all_name(&name, "so many views or ballots as nobody has counted");
    named.push(name);
    let name = honest.hear_member("another state", async |liar, honest| {
        // Of steps to come: the member itself says the truth of them.
        for _ in 0..ROUNDS {
            let next = honest.peers[0].reached() / 64 + 1;
            for step in (next..next + 3).map(|at| at * 64) {
                liar.say(&Body::Digest { step, digest: Digest([0xee; 32]) }).await;
            }
            let is_named = |event: &Value| event["what"].to_string().contains("holds another state");
            if honest.peers.iter().all(|peer| peer.told().iter().any(is_named)) {
                return;
            }
            honest.peers[0].wait_for_step(honest.peers[0].reached() + 1);
        }
    });
    honest.all_name(&name, "holds another state");
    named.push(name);
    let name = honest.hear_member("the end of others", async |liar, _| {
        let others = liar.others();
        for peer in others {
            liar.say(&Body::Finished { peer, step: LAST, digest: Digest([0xee; 32]) }).await;
        }
        liar.say(&Body::Goodbye).await;
    });
    honest.all_name(&name, "which says so itself");
    named.push(name);
    honest.hear_member("peers that are not there", async |liar, _| {
        for number in 0..60 {
            liar.say(&Body::Introduce(Liar::made_up(number))).await;
        }
    });
    let name = honest.hear_member("what nobody promised", async |liar, _| {
        let (me, view, pen) = (liar.me(), liar.view().clone(), liar.pen().clone());
        let ballot = Ballot { attempt: 3, proposer: me };
        let promise = |by: PeerId| {
            let progress = Progress { step: LAST - 1, lineage: Lineage::of(&view), has_state: true, has_result: false };
            let (unreachable, failed, accused, contributing) = (vec![], vec![], vec![], vec![]);
            let (missing, lost, accepted, leaving, recovering) = (None, LostState::Nothing, None, false, false);
            let promise = Promise {
                progress,
                unreachable,
                failed,
                accused,
                contributing,
                missing,
                leaving,
                recovering,
                lost,
                accepted,
            };
            SignedPromise::new(&pen, view.id(), ballot, by, promise)
        };
        let promises: Vec<_> = view.members().iter().map(|by| promise(*by)).collect();
        liar.say_each(|victim| {
            let next = proposal(view.succeed([victim, me]), me);
            let justified = JustifiedProposal::new(&pen, view.id(), ballot, next, promises.clone(), vec![]);
            let seal = justified.seal;
            Body::Propose { ballot, justified: Box::new(justified), promises: vec![], seal }
        })
        .await;
    });
    honest.all_name(&name, "does not follow from what the members have promised");
    named.push(name);
    honest.hear_member("half messages", async |liar, _| liar.begin(2).await);
    let name = honest.hear_member("a list without end", async |liar, _| {
        let next = proposal(liar.view().succeed([liar.me()]), liar.me());
        let install = Body::Install { proposal: next, certificate: None, contacts: vec![], fork: None, chain: vec![] };
        let place = (liar.view().generation, liar.view().id());
        let envelope =
            starling_topology::Envelope { run: liar.run(), generation: place.0, view: place.1, body: install };
        let mut long = envelope.encode();
        long.resize(MAX_ENVELOPE_BYTES, 1);
        liar.send(&long).await;
    });
    honest.all_name(&name, "not a membership message");
    named.push(name);
    honest.page_names(&named);
    honest.end();
}

fn announced(number: u16) -> (Keypair, Vec<u8>) {
    (Liar::key(number), Liar::announcement(Liar::made_up(number).contact))
}

/// A checkpoint after the last step, as somebody says who is nobody.
fn vouched(number: u16, run: RunId) -> (Keypair, Vec<u8>) {
    let (digest, manifest) = (Digest([3; 32]), Digest([4; 32]));
    let head = Head { run, step: LAST, view: ViewId([2; 32]), digest, manifest }.encode();
    let key = Liar::key(number);
    let signature = key.sign(&head).expect("an Ed25519 key");
    (key, [&head[..], &signature].concat())
}

#[test]
fn ticket_holders_say_what_only_members_may() {
    let honest = Honest::begin();
    honest.hear_ticket_holder("that the run is over", async |liar, _| {
        for forked in [false, true] {
            say_that_it_is_over(liar, forked).await;
        }
    });
    let name = honest.hear_ticket_holder("the last generation", async |liar, _| {
        let joiner = liar.joiner();
        for (generation, step) in [(u64::MAX, 0), (1 << 20, 0), (0, LAST + 1)] {
            let claim = JoinRequest { generation: Generation(generation), step, ..joiner.clone() };
            liar.say(&Body::Join(claim.signed(liar.run(), liar.pen()))).await;
        }
    });
    honest.all_name(&name, "so many views or ballots as nobody has counted");
    for number in 0..3 {
        honest.hear_ticket_holder(&format!("{number}: to be let in, and nothing after that"), async |liar, honest| {
            liar.say(&Body::Join(liar.joiner())).await;
            let name = liar.name();
            for peer in &honest.peers {
                peer.wait_for("a view with it", |event| {
                    event["event"] == "view" && event["members"].to_string().contains(&name)
                });
            }
            // All wait for it, until they give it up.
            let (began, from) = (Instant::now(), honest.peers[0].reached());
            honest.peers[0].wait_for_step(from + 1);
            assert!(began.elapsed() < STALL + TOLD, "they wait for {:?}", began.elapsed());
        });
    }
    honest.hear_ticket_holder("by gossip, in the names of many", async |liar, honest| {
        let run = liar.run();
        liar.gossip("contacts", (0..400).map(announced)).await;
        liar.gossip("heads", (400..500).map(|number| vouched(number, run))).await;
        // It is there itself, so that its own word counts, and comes last.
        liar.gossip("keepers", (500..600).map(announced).chain([liar.announced()])).await;
        let keepers = || honest.keepers();
        for _ in 0..ROUNDS {
            if !keepers().is_empty() {
                break;
            }
            honest.peers[0].wait_for_step(honest.peers[0].reached() + 1);
        }
        assert_eq!(keepers(), [liar.name()]);
    });
    honest.end();
}
