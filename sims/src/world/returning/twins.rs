//! Two machines with one name: a copy of a peer's disk, or of its key, is started on a second machine.
//!
//! Connections are between machines, as ever; what a peer says goes to a name. Each of the others sends it to the one of the two
//! to which it has a connection, and where it has one to both, to the one that it took up before, until it hears the other and the network
//! changes its mind. What answers a question goes to who asked it; the segments of a view come from and go to the one of which it
//! has a link for that view.

use std::collections::{BTreeMap, BTreeSet};

use starling_engine::TwinSearch;
use starling_engine::return_engine::twin::{Input, MAX_ASKED, Output, Process};
use starling_topology::{Ballot, Contact, Event, PeerId, Record, Time, ViewId};

use crate::hardware::machine::host::Host;
use crate::hardware::network::Seat;
use crate::hardware::network::rng::Rng;
use crate::peer::{Effect, Peer};
use crate::scenario::Plan;
use crate::steps::message::{Lane, Message};
use crate::sweep::canary::Sabotage;
use crate::sweep::fault::{Copied, Kind};
use crate::verdict::invariants::TwinTold;
use crate::verdict::report::picture::What;
use crate::world::{SimEvent, World};

/// The network changes its mind once in so many messages.
const CHANGES: u64 = 8;
/// How fast second machines may compute, in samples.
const SPEEDS: (u64, u64) = (50, 1_000);

/// How a process looks for its twin, and where.
#[derive(Debug)]
pub struct Looking {
    search: TwinSearch,
    /// Where its peer was last heard of when it started.
    places: Vec<Seat>,
    /// How often it has looked, and how many places have yet to answer.
    looks: u32,
    silent: usize,
}

/// Finding a twin.
#[derive(Debug)]
pub enum Dialed {
    /// Somebody dials that machine, for so many times.
    At(Seat, u32),
    /// What its own identity answered there that time, if it did.
    Answers(Option<Input>, u32),
    /// The time that was asked for is there.
    Expires,
}

/// Who has a second machine with its name, and what gets to which of the two. The first one's place stands for both.
#[derive(Debug)]
pub(in crate::world) struct Twins {
    rng: Rng,
    second: BTreeMap<Seat, Seat>,
    /// To which machine others send what they say to a name.
    taken: BTreeMap<(Seat, Seat), Seat>,
    /// With which machine others have a link, and in which view.
    links: BTreeMap<(Seat, Seat), (ViewId, Seat)>,
    /// Which machine asked others a question of that number.
    asked: BTreeMap<(Seat, Seat, u64), Seat>,
    /// In which views which machine has given a vote.
    voted: BTreeMap<(Seat, ViewId), Seat>,
    /// Which view was on the disk when it was copied, and what had been promised there.
    copied: BTreeMap<Seat, (ViewId, Option<Ballot>)>,
    /// Who has voted twice.
    twice: Option<PeerId>,
}

impl Twins {
    /// Those that a plan has.
    pub(in crate::world) fn of(plan: &Plan, rng: Rng) -> Self {
        let mut second = BTreeMap::new();
        for fault in &plan.faults {
            if let Kind::Twin(seat, _) = fault.kind {
                let next = plan.peers + plan.keepers + second.len();
                second.entry(seat).or_insert(next);
            }
        }
        Self {
            rng,
            second,
            taken: BTreeMap::new(),
            links: BTreeMap::new(),
            asked: BTreeMap::new(),
            voted: BTreeMap::new(),
            copied: BTreeMap::new(),
            twice: None,
        }
    }

    pub(in crate::world) fn len(&self) -> usize {
        self.second.len()
    }

    /// Who has voted twice.
    pub(in crate::world) fn voted_twice(&self) -> Option<PeerId> {
        self.twice
    }

    /// Adds the second machines, behind all others.
    pub(in crate::world) fn add_hosts(&self, hosts: &mut Vec<Host>) {
        let mut rng = self.rng.clone();
        let mut all: Vec<(Seat, Seat)> = self.second.iter().map(|(first, second)| (*second, *first)).collect();
        all.sort_unstable();
        for (_, first) in all {
            let contact: Contact = hosts[first].contact.clone();
            let speed = u32::try_from(rng.between(SPEEDS.0, SPEEDS.1)).unwrap_or(1);
            hosts.push(Host::new(contact, rng.micros(0, 3_600_000_000), speed));
        }
    }
}

impl World {
    // --- how one starts ------------------------------------------------------------------------------------------

    /// A copy of what this machine has is started on another one, if it is a member.
    pub(in crate::world) fn start_twin(&mut self, first: Seat, copied: Copied) {
        let Some(second) = self.twins.second.get(&first).copied() else { return };
        let host = &self.hosts[first];
        let is_member = |host: &Host| host.is_in_the_run() && host.disk.has_record();
        let may_start = !self.hosts[second].is_up() && !self.hosts[second].started;
        // With the key alone it comes through somebody who is there, or not at all.
        let mut others = self.hosts.iter().filter(|other| other.name() != host.name() && other.peer.is_some());
        let is_led = copied == Copied::Disk || others.any(is_member);
        if !is_member(host) || !may_start || !is_led {
            return;
        }
        if copied == Copied::Disk {
            let said = host.disk.newest_record().map(|record| (record.view.id(), record.promised));
            self.twins.copied.extend(said.map(|said| (first, said)));
            let disk = host.disk.clone();
            self.hosts[second].disk.set_back(disk);
            self.hosts[second].has_stored = true;
        }
        self.hosts[second].places.insert(first);
        if self.twins.rng.one_in(2) {
            let stale = self.twins.rng.between(0, self.plan.peers as u64 - 1);
            self.hosts[second].places.insert(usize::try_from(stale).unwrap_or(first));
        }
        self.tell(|_| format!("{second} starts as {first}"));
        self.start(second);
    }

    /// A process looks whether another one is it, if it knows of a place where that may be.
    pub(in crate::world) fn looks_for_twin(&mut self, seat: Seat) -> bool {
        let (max_stall, is_one_of_two) = (self.config.max_stall, self.is_one_of_two(seat));
        let host = &mut self.hosts[seat];
        if host.places.is_empty() && !is_one_of_two {
            return false;
        }
        let mut search = TwinSearch::new(host.places.len(), max_stall, host.clock(self.now));
        if let Some(Sabotage::Machine(flaw)) = self.sabotage {
            search.plant(flaw);
        }
        let places = host.places.iter().copied().collect();
        (host.looking, host.off) = (Some(Box::new(Looking { search, places, looks: 0, silent: 0 })), false);
        self.drive_look(seat);
        true
    }

    /// Something has happened to a process, or a time has come that it asked for: without a quorum it looks again.
    pub(in crate::world) fn look_again(&mut self, seat: Seat) {
        let host = &mut self.hosts[seat];
        let now = host.clock(self.now);
        let (Some(looking), Some(peer)) = (&mut host.looking, &host.peer) else { return };
        looking.search.note(now, peer.has_quorum());
        self.drive_look(seat);
    }

    /// Where a few others that it knows say that it is, once it takes part.
    fn told_places(&self, seat: Seat) -> Vec<Seat> {
        let Some(peer) = &self.hosts[seat].peer else { return Vec::new() };
        let first = self.seats.get(&self.hosts[seat].name()).copied().unwrap_or(seat);
        let others = peer.knows().filter_map(|other| self.at(seat, other)).take(MAX_ASKED);
        let others = others.filter(|other| self.hosts[*other].peer.is_some() && !self.is_cut_off(seat, *other));
        let told = others.filter_map(|other| self.twins.taken.get(&(other, first)).copied());
        let known = self.hosts[seat].looking.iter().flat_map(|looking| &looking.places).copied();
        let known: BTreeSet<Seat> = known.chain([seat]).collect();
        told.collect::<BTreeSet<Seat>>().difference(&known).copied().collect()
    }

    fn drive_look(&mut self, seat: Seat) {
        let incarnation = self.hosts[seat].incarnation;
        while let Some(output) = self.hosts[seat].looking.as_mut().and_then(|looking| looking.search.poll()) {
            match output {
                Output::Dial => {
                    let told = self.told_places(seat);
                    let Some(looking) = &mut self.hosts[seat].looking else { return };
                    looking.places.extend(told);
                    (looking.looks, looking.silent) = (looking.looks + 1, looking.places.len());
                    let looks = looking.looks;
                    for place in looking.places.clone() {
                        let at = self.now + self.network.delay(seat, place);
                        self.queue.push(at, SimEvent::Twins(seat, incarnation, Dialed::At(place, looks)));
                    }
                }
                Output::SetTimer(at) => {
                    let when = self.hosts[seat].world_time(at).max(self.now);
                    self.queue.push(when, SimEvent::Twins(seat, incarnation, Dialed::Expires));
                }
                Output::GoOn => return self.begin(seat),
                Output::Refuse => return self.refuse_twin(seat),
            }
        }
    }

    pub(in crate::world) fn look_on(&mut self, seat: Seat, incarnation: u32, dialed: Dialed) {
        let host = &self.hosts[seat];
        if host.incarnation != incarnation || host.looking.is_none() {
            return;
        }
        let input = match dialed {
            Dialed::At(place, looks) => {
                let there = &self.hosts[place];
                if !there.off && there.stopped.is_none() && !self.is_cut_off(seat, place) {
                    // Others may have its address by now.
                    let is_it = there.name() == self.hosts[seat].name() && place != seat;
                    let takes_part = there.peer.as_ref().filter(|_| is_it).map(Peer::goes_on);
                    let answer = takes_part.map(|takes_part| match self.hosts[seat].peer {
                        None => Input::Found,
                        Some(_) => Input::Answered {
                            ours: self.incarnation_of(seat),
                            theirs: Process { takes_part, incarnation: self.incarnation_of(place) },
                        },
                    });
                    let slow = self.twins.rng.one_in(4).then(|| self.twins.rng.spread(100_000, 3_000_000));
                    let at = self.now + self.network.delay(place, seat) + slow.unwrap_or_default();
                    self.queue.push(at, SimEvent::Twins(seat, incarnation, Dialed::Answers(answer, looks)));
                }
                return;
            }
            Dialed::Answers(answer, looks) => {
                let Some(looking) = self.hosts[seat].looking.as_mut().filter(|looking| looking.looks == looks) else {
                    return;
                };
                looking.silent -= 1;
                match answer {
                    Some(answered) => answered,
                    None if looking.silent == 0 => Input::Unanswered,
                    None => return,
                }
            }
            Dialed::Expires => Input::Expired,
        };
        let host = &mut self.hosts[seat];
        let now = host.clock(self.now);
        let is_awaited = host.looking.as_ref().is_some_and(|looking| looking.search.is_looking());
        host.looking.iter_mut().for_each(|looking| looking.search.handle(now, input));
        self.drive_look(seat);
        self.look_again(seat);
        let is_refused = self.hosts[seat].looking.is_none();
        if input == Input::Found && !is_refused && is_awaited {
            let name = self.hosts[seat].name();
            self.breaks(Err(TwinTold::overlooked(name)));
        }
    }

    /// A process must not take part, and its user hears why.
    fn refuse_twin(&mut self, seat: Seat) {
        let name = self.hosts[seat].name();
        self.tell(|_| format!("{seat} is refused: its twin runs"));
        self.mark(seat, What::Ends);
        self.close_process(seat, false);
        self.invariants.twin_told.starts(name);
        let held = self.invariants.twin_told.told(name, true);
        self.breaks(held);
        if self.both_have_ended(seat) {
            return self.start_again(seat); // Each has found the other one at one time: its user is told to, and why.
        }
        let host = &mut self.hosts[seat];
        self.running -= usize::from(host.started);
        host.ended = Some(Event::Twin { by: name });
    }

    /// A process is about to take part. If it is the second one of its name, nothing is promised of either any more.
    pub(in crate::world) fn note_twin(&mut self, seat: Seat) {
        let Some((first, second)) = self.twins.second.iter().find(|(_, second)| **second == seat) else { return };
        let (first, second, name) = (*first, *second, self.hosts[seat].name());
        (self.hosts[first].twin, self.hosts[second].twin) = (Some(second), Some(first));
        self.invariants.twin_told.starts(name);
    }

    /// Whether another process of that name takes part, or will again.
    pub(in crate::world) fn has_twin_there(&self, seat: Seat) -> bool {
        self.hosts[seat].twin.is_some_and(|twin| self.hosts[twin].is_in_the_run())
    }

    /// What tells the process of this machine apart from others of its name: when it was started, by its clock.
    pub(in crate::world) fn incarnation_of(&self, seat: Seat) -> u64 {
        let since = self.hosts[seat].begun - Time::ZERO;
        let micros = u64::try_from(since.as_micros()).expect("invariant: runs take hours");
        micros << 1 | u64::from(seat >= self.plan.peers)
    }

    // --- what gets where -----------------------------------------------------------------------------------------

    /// Both machines of a name, or the only one.
    pub(in crate::world) fn all_of(&self, name: PeerId) -> impl Iterator<Item = Seat> + use<> {
        let first = self.seats.get(&name).copied();
        let second = first.and_then(|first| self.hosts[first].twin);
        first.into_iter().chain(second)
    }

    /// Where somebody gets who looks for a name: of two, to the one that can be reached.
    pub(in crate::world) fn at(&self, from: Seat, name: PeerId) -> Option<Seat> {
        let is_there = |seat: &Seat| {
            let host = &self.hosts[*seat];
            let runs = (host.peer.is_some() && host.stopped.is_none()) || host.keeper.is_some();
            runs && !self.is_cut_off(from, *seat)
        };
        self.all_of(name).find(is_there).or_else(|| self.seats.get(&name).copied())
    }

    /// To which machine `from` sends a message for this name. Nobody sends anything to itself.
    pub(in crate::world) fn reach(&mut self, from: Seat, name: PeerId, message: &Message) -> Option<Seat> {
        let first = self.seats.get(&name).copied()?;
        let Some(second) = self.hosts[first].twin else { return Some(first) };
        if from == first || from == second {
            return None;
        }
        if let Message::Answered(question, _) = message
            && let Some(asked) = self.twins.asked.remove(&(from, first, *question))
        {
            return Some(asked);
        }
        let link = self.twins.links.get(&(from, first)).copied();
        if let (Message::Segment(segment), Some((view, linked))) = (message, link)
            && segment.view == view
        {
            return Some(linked);
        }
        let chosen = self.choose(from, (first, second), message.lane());
        if let Message::Segment(segment) = message {
            self.twins.links.insert((from, first), (segment.view, chosen));
        }
        Some(chosen)
    }

    fn choose(&mut self, from: Seat, (first, second): (Seat, Seat), lane: Lane) -> Seat {
        let is_open = |seat: Seat| {
            self.network.open(from, seat, lane).or_else(|| self.network.open(from, seat, Lane::Control)).is_some()
        };
        let taken = self.twins.taken.get(&(from, first)).copied();
        let there = |seat: &Seat| self.hosts[*seat].peer.is_some() && !self.is_cut_off(from, *seat);
        let open =
            taken.filter(|seat| is_open(*seat)).or_else(|| [first, second].into_iter().find(|seat| is_open(*seat)));
        let dialed: Vec<Seat> = [first, second].into_iter().filter(there).collect();
        let chosen = open.or_else(|| self.twins.rng.pick(&dialed)).or(taken).unwrap_or(first);
        self.twins.taken.insert((from, first), chosen);
        chosen
    }

    /// Whether `to` takes what this machine says under its name: segments of a view come from one of two alone.
    pub(in crate::world) fn hears_this_one(&mut self, from: Seat, to: Seat, message: &Message) -> bool {
        let Some(twin) = self.hosts[from].twin else { return true };
        let first = from.min(twin);
        if from == to || twin == to {
            return false;
        }
        match message {
            Message::Asked(question, _) => _ = self.twins.asked.insert((to, first, *question), from),
            Message::Segment(segment) => {
                let (view, linked) = *self.twins.links.entry((to, first)).or_insert((segment.view, from));
                if view == segment.view && linked != from {
                    return false;
                }
                self.twins.links.insert((to, first), (segment.view, from));
            }
            Message::Control(_) | Message::Answered(..) | Message::OfLeaf(..) | Message::OfCarrier(..) => {}
        }
        let taken = self.twins.taken.get(&(to, first)).copied();
        let is_gone = taken.is_none_or(|taken| self.network.open(to, taken, Lane::Control).is_none());
        if is_gone || self.twins.rng.one_in(CHANGES) {
            self.twins.taken.insert((to, first), from);
        }
        true
    }

    /// Whether a connection to the other machine of that name takes the place of one that has closed.
    pub(in crate::world) fn has_another(&self, at: Seat, other: Seat, lane: Lane) -> bool {
        let Some(twin) = self.hosts[other].twin else { return false };
        match lane {
            Lane::Control => self.network.open(at, twin, lane).is_some(),
            Lane::Ring => self.twins.links.get(&(at, other.min(twin))).is_some_and(|(_, linked)| *linked == twin),
            Lane::State | Lane::Leaf => false,
        }
    }

    // --- what is judged ------------------------------------------------------------------------------------------

    /// Does what a process wants that another one is, too, as far as that is not judged.
    pub(in crate::world) fn execute_twin(&mut self, seat: Seat, effect: Effect) -> Option<Effect> {
        let name = self.hosts[seat].name();
        match effect {
            Effect::Entered(entry) => {
                let (view, step) = (&entry.resumption.view, entry.resumption.step);
                let (generation, catch_up) = (view.generation, &entry.resumption.catch_up);
                self.tell(|_| {
                    format!("{seat} enters {:?} of generation {generation} after step {step}, {catch_up:?}", entry.view)
                });
                self.forked |= view.forked;
                self.mark(seat, What::Enters(generation.0));
                self.views.insert(entry.view, entry.forks);
                if self.invariants.one_decision.entered(name, view, entry.view, entry.forks).is_err() {
                    self.split = Some(name);
                }
                let is_beside = self.hosts[seat].twin.is_some_and(|twin| self.hosts[twin].peer.is_some());
                if is_beside {
                    let chain = || std::iter::successors(view.parent, |view| self.parents.get(view).copied());
                    let follows = |before| chain().any(|view| view == before);
                    let held = self.invariants.twin_told.entered(name, seat, entry.view, follows);
                    self.breaks(held);
                }
                None
            }
            Effect::Committed(commit) => {
                self.note_unjudged_commit(seat, &commit);
                None
            }
            Effect::Loaded(_) => {
                self.invariants.progress.goes_on(self.now);
                None
            }
            Effect::Keeps(..) | Effect::Settled(..) | Effect::Broken(_) => None,
            other => Some(other),
        }
    }

    /// Whether the other process of this name has ended as well, for the same reason.
    pub(in crate::world) fn both_have_ended(&self, seat: Seat) -> bool {
        let other = self.hosts[seat].twin.map(|twin| &self.hosts[twin]);
        other.is_some_and(|other| matches!(other.ended, Some(Event::Twin { .. })))
    }

    /// A process whose disk may be set back, or that another one is, too, tells its user. Where it was set back to a time when it was
    /// alone, and it has gone on from there, the process before is another one of its name for all who know of that.
    pub(in crate::world) fn told_of_twin(&mut self, seat: Seat, for_sure: bool) {
        let host = &self.hosts[seat];
        let held = self.invariants.twin_told.told(host.name(), for_sure && !host.set_back);
        self.breaks(held);
    }

    /// Once both processes of a name have given a vote in one view, no rule about votes holds any more. Who gives one writes it down
    /// first.
    pub(in crate::world) fn note_vote(&mut self, seat: Seat, record: &Record) {
        // From when its disk is copied on, though the second one takes part later.
        let first = self.hosts[seat].twin.map_or(seat, |twin| seat.min(twin));
        if self.hosts[seat].twin.is_none() && !self.twins.copied.contains_key(&first) {
            return;
        }
        let (me, view) = (self.hosts[seat].name(), record.view.id());
        let (copied, promised) = self.twins.copied.get(&first).copied().unzip();
        let before = if copied == Some(view) { promised.flatten() } else { None };
        // Where it decides alone, the promise is not written down before what it decides.
        let signed = record.certificate.as_ref().is_some_and(|certificate| certificate.is_signed_by(me));
        let entered = record.view.parent.filter(|_| signed && copied != Some(view));
        for view in (record.promised > before).then_some(view).into_iter().chain(entered) {
            let voter = *self.twins.voted.entry((first, view)).or_insert(seat);
            if voter != seat {
                self.twins.twice = Some(me);
                self.forgotten = true;
            }
        }
    }

    /// Whether there is another machine of that name.
    pub(in crate::world) fn is_one_of_two(&self, seat: Seat) -> bool {
        self.twins.second.iter().any(|(first, second)| *first == seat || *second == seat)
    }

    /// Whether the other process of that name is a full member.
    pub(in crate::world) fn is_stood_in_for(&self, seat: Seat) -> bool {
        let twin = self.hosts[seat].twin.and_then(|twin| self.hosts[twin].peer.as_ref());
        twin.is_some_and(Peer::is_full)
    }
}
