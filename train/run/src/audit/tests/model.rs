//! Files of modelled runs: members are killed, all at once too, come back or never, join, leave, and go on as forks.

use std::collections::BTreeMap;

use proptest::prelude::*;
use starling_topology::Ledger;

use super::*;
use crate::audit::line::{decode_header, decode_record, is_header};

const CHECKPOINT_EVERY: u64 = 4;

/// What happens next, with a number that the model makes a choice of.
type Happening = (u8, u16);

/// What a member knows: the state after a step.
#[derive(Clone)]
struct Held {
    ledger: Ledger,
    step: u64,
    digest: Digest,
}

/// Those who go on together.
#[derive(Clone)]
struct Group {
    view: AuditView,
    members: Vec<u8>,
    held: Held,
}

struct Member {
    writer: Option<AuditWriter>,
    unconfirmed: Option<AuditRecord>,
    begun: bool,
    saved: Option<Held>,
}

struct Model {
    folder: Folder,
    main: Group,
    /// The side without a quorum. In the end it joins the others.
    fork: Option<Group>,
    members: BTreeMap<u8, Member>,
    away: Vec<u8>,
    views: u32,
    /// The last step that was ever taken: nobody may be left who took it.
    last_step: u64,
    /// Whether lines are lost with their writer.
    loses: bool,
}

impl Model {
    fn new(loses: bool) -> Self {
        let held = Held { ledger: Ledger::new(3, SAMPLES, BATCH), step: 0, digest: Digest([0; 32]) };
        let main = Group { view: AuditView::NONE, members: vec![1, 2, 3], held };
        let mut model = Self {
            folder: Folder::new(),
            main,
            fork: None,
            members: BTreeMap::new(),
            away: Vec::new(),
            views: 0,
            last_step: 0,
            loses,
        };
        (1..=3).for_each(|name| model.open(name));
        model.change(|_| {});
        model
    }

    fn path(&self, name: u8) -> PathBuf {
        self.folder.path(&format!("{name}"))
    }

    fn open(&mut self, name: u8) {
        let writer = AuditWriter::open(self.path(name), header(1)).expect("opened");
        let saved = self.members.remove(&name).and_then(|member| member.saved);
        self.members.insert(name, Member { writer: Some(writer), unconfirmed: None, begun: false, saved });
    }

    /// A new view of the main group.
    fn change(&mut self, change: impl FnOnce(&mut Vec<u8>)) {
        change(&mut self.main.members);
        let group = self.main.clone();
        self.main = self.succeed(group);
    }

    fn succeed(&mut self, mut group: Group) -> Group {
        self.views += 1;
        group.members.sort_unstable();
        let id = *blake3::hash(&self.views.to_le_bytes()).as_bytes();
        let AuditView { generation, view, .. } = group.view;
        let parent = Some(view).filter(|view| *view != ViewId::NONE);
        group.view = AuditView { generation: generation.next(), view: ViewId(id), parent };
        let peers: Vec<_> = group.members.iter().map(|name| peer(*name)).collect();
        if !group.held.ledger.is_assigned() {
            group.held.ledger.assign(&peers);
        }
        for name in &group.members {
            self.members.get_mut(name).expect("a member").confirm(); // All of a new view go on from it.
        }
        group
    }

    /// One step of a group.
    fn step(&mut self, group: &mut Group, choice: u16) {
        let peers: Vec<_> = group.members.iter().map(|name| peer(*name)).collect();
        let speeds: Vec<_> = group.members.iter().map(|name| 2 + u32::from(choice ^ u16::from(*name)) % 9).collect();
        let held = &mut group.held;
        held.step += 1;
        self.last_step = self.last_step.max(held.step);
        let committed = held.ledger.commit(held.step, &peers, &speeds);
        let told = format!("{:?} {:?} {:?}", held.digest, group.view, committed.contributions);
        held.digest = Digest(*blake3::hash(told.as_bytes()).as_bytes());
        for name in &group.members {
            let member = self.members.get_mut(name).expect("a member");
            member.confirm();
            if !std::mem::replace(&mut member.begun, true) {
                member.writer().restart(held.step, Some(group.view)).expect("written");
            }
            member.unconfirmed = Some(AuditRecord {
                step: held.step,
                generation: group.view.generation,
                view: group.view.view,
                epoch: committed.epoch,
                contributions: committed.contributions.clone(),
                digest: Some(held.digest),
                dropped: Vec::new(),
                is_last: false,
            });
            if held.step.is_multiple_of(CHECKPOINT_EVERY) {
                member.confirm();
                member.writer().flush().expect("written");
                member.saved = Some(held.clone());
            }
        }
    }

    /// Takes the state of the main group.
    fn adopt(&mut self, name: u8) {
        let (held, view) = (self.main.held.clone(), self.main.view);
        let member = self.members.get_mut(&name).expect("a member");
        (member.unconfirmed, member.begun, member.saved) = (None, true, Some(held.clone()));
        member.writer().adopt(held.step + 1, Some(view)).expect("written");
    }

    fn happen(&mut self, (what, choice): Happening) {
        let pick = |members: &[u8]| members[usize::from(choice) % members.len()];
        match what {
            // A member is killed.
            0 if self.main.members.len() > 1 => {
                let name = pick(&self.main.members);
                self.kill(name);
                self.change(|members| members.retain(|member| *member != name));
            }
            // All are, and some of them come back. The others may later, or never.
            1 if self.fork.is_none() => self.kill_all(choice),
            // One that is away comes back, or a new one comes.
            2 => {
                let newcomer = self.members.keys().max().expect("a member") + 1;
                let name = if self.away.is_empty() { newcomer } else { pick(&self.away) };
                if name < 9 {
                    self.away.retain(|other| *other != name);
                    self.open(name);
                    self.change(|members| members.push(name));
                    self.adopt(name);
                }
            }
            // One leaves in order.
            3 if self.main.members.len() > 1 => {
                let name = pick(&self.main.members);
                let member = self.members.get_mut(&name).expect("a member");
                member.unconfirmed.iter_mut().for_each(|record| record.is_last = true);
                member.confirm();
                member.writer = None;
                self.away.push(name);
                self.change(|members| members.retain(|member| *member != name));
            }
            // Some are cut off, and go on by themselves.
            4 if self.main.members.len() > 2 && self.fork.is_none() => {
                let name = pick(&self.main.members);
                let fork = Group { members: vec![name], ..self.main.clone() };
                self.fork = Some(self.succeed(fork));
                self.change(|members| members.retain(|member| *member != name));
            }
            5 => self.heal(),
            _ => {
                let mut main = self.main.clone();
                self.step(&mut main, choice);
                self.main = main;
                if let Some(mut fork) = self.fork.take() {
                    self.step(&mut fork, choice ^ 5);
                    self.fork = Some(fork);
                }
            }
        }
    }

    /// What is not handed to the system is lost, where the model loses anything.
    fn kill(&mut self, name: u8) {
        let mut writer = self.members.get_mut(&name).expect("a member").writer.take().expect("it lives");
        if !self.loses {
            writer.flush().expect("written");
        }
        let _lost = writer.file.into_parts();
        self.away.push(name);
    }

    fn kill_all(&mut self, choice: u16) {
        let names = self.main.members.clone();
        // A majority, among it one that has the newest checkpoint.
        let newest = |name: &u8| self.members[name].saved.as_ref().map(|held| held.step);
        let Some(found) = names.iter().max_by_key(|name| newest(name)).filter(|name| newest(name).is_some()) else {
            return;
        };
        let held = self.members[found].saved.clone().expect("a checkpoint");
        let (found, majority) = (*found, names.len() / 2 + 1);
        let mut back: Vec<_> = names.iter().copied().filter(|name| *name != found).collect();
        back.rotate_left(usize::from(choice) % names.len().max(2).saturating_sub(1).max(1));
        back.truncate((majority - 1 + usize::from(choice / 7) % 2).min(back.len()));
        back.push(found);
        names.iter().for_each(|name| self.kill(*name));
        self.away.retain(|name| !back.contains(name));
        back.iter().for_each(|name| self.open(*name));
        self.main.held = held.clone();
        self.change(|members| *members = back.clone());
        for name in back {
            if self.members[&name].saved.as_ref().is_none_or(|saved| saved.digest != held.digest) {
                self.adopt(name);
            }
        }
    }

    fn heal(&mut self) {
        let Some(fork) = self.fork.take() else { return };
        self.change(|members| members.extend(&fork.members));
        fork.members.iter().for_each(|name| self.adopt(*name));
    }

    /// The files, the last step, and which of their writers were there to the end.
    fn finish(mut self) -> (Folder, u64, Vec<(PathBuf, bool)>) {
        self.heal();
        for member in self.members.values_mut() {
            if member.writer.is_some() {
                member.confirm();
                member.writer = None;
            }
        }
        let ends = self.members.keys().map(|name| (self.path(*name), self.main.members.contains(name))).collect();
        (self.folder, self.last_step, ends)
    }
}

impl Member {
    fn writer(&mut self) -> &mut AuditWriter {
        self.writer.as_mut().expect("it lives")
    }

    fn confirm(&mut self) {
        if let Some(record) = self.unconfirmed.take() {
            self.writer().record(&record).expect("written");
        }
    }
}

/// A line that is neither taken back nor the last before its writer left: its number, and whether its writer went on from
/// it to the end.
fn standing_lines(path: &Path, is_there: bool) -> Vec<(usize, AuditRecord, bool)> {
    let text = fs::read_to_string(path).expect("read");
    let mut lines: Vec<(usize, AuditRecord, bool)> = Vec::new();
    for (at, line) in text.lines().map(str::as_bytes).enumerate() {
        if is_header(line) {
            let header = decode_header(line).expect("a header");
            lines.retain(|(_, record, _)| record.step < header.first_step);
            lines.iter_mut().for_each(|(_, _, went_on)| *went_on &= !header.adopted);
        } else {
            lines.push((at, decode_record(line).expect("a record"), is_there));
        }
    }
    lines.retain(|(_, record, _)| !record.is_last);
    lines
}

fn happenings() -> impl Strategy<Value = Vec<Happening>> {
    let what = prop_oneof![1 => Just(0_u8), 1 => Just(1), 1 => Just(2), 1 => Just(3), 1 => Just(4), 1 => Just(5), 12 => Just(6)];
    prop::collection::vec((what, any::<u16>()), 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn sound_runs_are_proven_and_a_change_of_one_line_is_found(
        happenings in happenings(), chosen in any::<prop::sample::Index>(), loses in any::<bool>(),
    ) {
        let mut model = Model::new(loses);
        model.happen((6, 0));
        happenings.into_iter().for_each(|happening| model.happen(happening));
        let (_folder, steps, ends) = model.finish();
        let paths: Vec<_> = ends.iter().map(|(path, _)| path).collect();
        let report = match check(&paths) {
            // Whoever alone was there was killed before it wrote. What is lost must not look like two states.
            Err(AuditError::Missing { .. } | AuditError::Empty) => return Ok(()),
            Err(AuditError::Samples { .. }) if loses => return Ok(()),
            outcome => outcome.map_err(|error| TestCaseError::fail(error.to_string()))?,
        };
        prop_assert!(report.first_step + report.steps <= steps + 1, "{report:?}");

        // Whoever went on to the end holds one state with all others who did; and in one view there is one anyway.
        let told: Vec<_> = ends.iter().map(|(path, is_there)| (path, standing_lines(path, *is_there))).collect();
        let mut provable = Vec::new();
        for (path, lines) in &told {
            for (at, record, went_on) in lines {
                let has_witness = |(other, lines): &(&PathBuf, Vec<(usize, AuditRecord, bool)>)| other != path
                    && lines.iter().any(|(_, theirs, too)| theirs.step == record.step
                        && ((*went_on && *too) || theirs.view == record.view));
                if told.iter().any(has_witness) {
                    provable.push((*path, *at, record.step));
                }
            }
        }
        if provable.is_empty() {
            return Ok(());
        }
        let (path, at, step) = provable[chosen.index(provable.len())];
        let text = fs::read_to_string(path).expect("read");
        let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
        let digest = lines[at].find("\"digest\":\"").expect("a digest") + 10;
        let flipped = if lines[at].as_bytes()[digest] == b'0' { "1" } else { "0" };
        lines[at].replace_range(digest..=digest, flipped);
        fs::write(path, lines.join("\n") + "\n").expect("written");
        let found = check(&paths);
        prop_assert!(matches!(found, Err(AuditError::Disagreement { step: named, .. }) if named == step), "{found:?}");
    }
}
