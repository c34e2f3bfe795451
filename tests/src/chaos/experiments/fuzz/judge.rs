//! What the members' own words say of a run, heard from outside: whether they ever contradict each other.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// Hears all that the members of a run tell, in the order in which it is heard.
#[derive(Debug, Default)]
pub struct Judge {
    places: BTreeMap<usize, Place>,
    /// Stable steps, with the generation of the view in which each was first told, and its digest.
    stable: BTreeMap<u64, Stable>,
    /// The digest after a step of a view, and who told it.
    digests: BTreeMap<(String, u64), (String, BTreeSet<usize>)>,
    /// The unforked view of each generation.
    views: BTreeMap<u64, String>,
    /// Who votes in the newest of them.
    voters: BTreeSet<String>,
    /// Whether a disk was wiped, rolled back or damaged.
    is_damaged: bool,
    /// Committed stable steps that the run went back behind.
    pub lost: Vec<String>,
    /// Members with different states in one view, and runs that split.
    pub diverged: Vec<String>,
    /// What would have been an offence, had no disk been damaged.
    pub unjudged: Vec<String>,
}

#[derive(Debug)]
struct Stable {
    generation: u64,
    digest: String,
}

/// What is known of who has a place.
#[derive(Debug, Default)]
struct Place {
    peer: Option<String>,
    view: Option<View>,
    /// The last step that it committed in its view.
    step: Option<u64>,
    /// Whether its disk is what its processes left since it last entered a view.
    is_intact: bool,
    /// Whether its disk is older than what its processes have said, and it has not met others since whose disk is not.
    is_set_back: bool,
    /// The steps of which its undamaged disk has had a checkpoint.
    saved: BTreeSet<u64>,
    /// The highest step that was stable when its process was started.
    floor: Option<u64>,
}

#[derive(Debug, Clone)]
struct View {
    generation: u64,
    id: String,
    step: u64,
    members: BTreeSet<String>,
    /// Those of them that have a vote.
    voters: BTreeSet<String>,
    forked: bool,
}

impl Judge {
    /// A place gets a new process.
    pub fn start(&mut self, place: usize) {
        let floor = self.highest();
        let place = self.places.entry(place).or_default();
        (place.view, place.step, place.floor) = (None, None, floor);
    }

    /// A place's disk is not what its processes left.
    pub fn damage(&mut self, place: usize) {
        self.is_damaged = true;
        let place = self.places.entry(place).or_default();
        place.saved.clear();
        place.is_intact = false;
    }

    /// A place's disk is put back from an older copy. What it says is stable counts for nothing until it is back among others: it can't
    /// know what it has said since, and may have been alone then.
    pub fn set_back(&mut self, place: usize) {
        self.damage(place);
        self.places.entry(place).or_default().is_set_back = true;
    }

    /// Whether none of these knows what it has said.
    fn are_set_back(&self, members: &BTreeSet<String>) -> bool {
        let is_set_back =
            |peer: &String| self.places.values().any(|place| place.is_set_back && place.peer.as_ref() == Some(peer));
        members.iter().all(is_set_back)
    }

    /// Whether a majority of the newest view's voters has intact disks without this place: if not, the run may never go
    /// on when this one is damaged too.
    pub fn can_lose(&self, place: usize) -> bool {
        let others = self.places.iter().filter(|(other, known)| **other != place && known.is_intact);
        let voters = others.filter_map(|(_, known)| known.peer.as_ref()).filter(|peer| self.voters.contains(*peer));
        2 * voters.count() > self.voters.len()
    }

    /// Whether a disk was damaged.
    pub fn is_damaged(&self) -> bool {
        self.is_damaged
    }

    /// The highest step that was told to be stable.
    pub fn highest(&self) -> Option<u64> {
        self.stable.last_key_value().map(|(step, _)| *step)
    }

    /// The last step that anybody committed.
    pub fn step(&self) -> u64 {
        self.places.values().filter_map(|place| place.step).max().unwrap_or_default()
    }

    /// Takes in what the process of a place tells.
    pub fn hear(&mut self, place: usize, event: &Value) {
        let number = |field: &str| event[field].as_u64().unwrap_or_default();
        let text = |field: &str| event[field].as_str().unwrap_or_default().to_owned();
        let known = self.places.entry(place).or_default();
        match event["event"].as_str().unwrap_or_default() {
            "started" => known.peer = Some(text("peer")),
            "view" => {
                let peers = |field: &str| -> BTreeSet<String> {
                    let peers = event[field].as_array().into_iter().flatten();
                    peers.filter_map(Value::as_str).map(str::to_owned).collect()
                };
                let members = peers("members");
                let view = View {
                    generation: number("generation"),
                    id: text("view"),
                    step: number("step"),
                    voters: &members - &peers("newcomers"),
                    members,
                    forked: event["forked"] == true,
                };
                self.enter(place, view);
            }
            "progress" if known.view.as_ref().is_some_and(|view| view.generation == number("generation")) => {
                known.step = Some(number("step"));
            }
            "saved" => {
                known.saved.insert(number("step"));
                self.compare(place, number("step"), text("digest"));
            }
            "stable" => self.keep(place, number("step"), text("digest")),
            "finished" => self.compare(place, number("steps"), text("digest")),
            _ => {}
        }
    }

    /// A view that a place enters.
    fn enter(&mut self, place: usize, view: View) {
        let is_set_back = self.are_set_back(&view.members);
        let known = self.places.entry(place).or_default();
        (known.view, known.step, known.is_intact) = (Some(view.clone()), None, true);
        known.is_set_back = is_set_back;
        let floor = known.floor;
        let View { generation, id, step, members, voters, forked } = view;
        if forked {
            self.diverged.push(format!("{place} goes on as a fork in generation {generation}, which nobody allowed"));
            return;
        }
        if self.views.last_key_value().is_none_or(|(newest, _)| *newest < generation) {
            self.voters = voters;
        }
        let first = self.views.entry(generation).or_insert_with(|| id.clone());
        if *first != id {
            let text = format!("two views of generation {generation}, neither of them a fork: {first} and {id}");
            let list = if self.is_damaged { &mut self.unjudged } else { &mut self.diverged };
            if !list.contains(&text) {
                list.push(text);
            }
        }
        // Views of earlier generations may be told late, by whoever stood still meanwhile. But who began after a step
        // was stable has nothing to do with what was before.
        let before = self.stable.iter().filter(|(_, stable)| stable.generation < generation).map(|(step, _)| *step);
        let floor = before.max().max(floor);
        let Some(floor) = floor.filter(|floor| step < *floor) else { return };
        let text = format!("{place} enters generation {generation} at step {step}, but step {floor} was stable");
        let holds = |place: &Place| {
            place.saved.contains(&floor) && place.peer.as_ref().is_some_and(|peer| members.contains(peer))
        };
        if self.is_damaged && !self.places.values().any(holds) {
            self.unjudged.push(text);
            // What was lost is lost for all who come later.
            self.stable.split_off(&(step + 1));
            self.places.values_mut().for_each(|place| place.floor = place.floor.map(|floor| floor.min(step)));
            return;
        }
        self.lost.push(text);
    }

    /// A digest that a place tells of a step. It is of its present view only if that had not begun after the step.
    fn compare(&mut self, place: usize, step: u64, digest: String) {
        let Some(view) = self.places.get(&place).and_then(|place| place.view.as_ref()) else { return };
        if step < view.step {
            return;
        }
        let entry = self.digests.entry((view.id.clone(), step));
        let (first, tellers) = entry.or_insert_with(|| (digest.clone(), BTreeSet::new()));
        if *first != digest {
            let generation = view.generation;
            self.diverged.push(format!(
                "after step {step} of generation {generation}, {place} holds {digest}, but {tellers:?} hold {first}"
            ));
            return;
        }
        tellers.insert(place);
    }

    /// A step that a place tells to be stable.
    fn keep(&mut self, place: usize, step: u64, digest: String) {
        let Some(view) = self.places.get(&place).and_then(|place| place.view.as_ref()) else { return };
        if view.forked || self.are_set_back(&view.members) {
            return;
        }
        let generation = view.generation;
        let first = self.stable.entry(step).or_insert_with(|| Stable { generation, digest: digest.clone() });
        if first.digest != digest {
            let text = format!("step {step} is stable with {} first, then at {place} with {digest}", first.digest);
            let list = if self.is_damaged { &mut self.unjudged } else { &mut self.lost };
            list.push(text);
            *first = Stable { generation, digest };
        }
    }

    /// Whether these places, and nobody else, share a view in which each committed a step, and have a checkpoint of one
    /// step after `from` that is stable; if not, what they lack.
    ///
    /// # Errors
    /// What they lack.
    pub fn settled(&self, places: &[usize], from: u64) -> Result<u64, String> {
        self.together(places)?;
        let known = |place: &usize| self.places.get(place);
        let view = places.first().and_then(known).and_then(|place| place.view.as_ref()).ok_or("nobody is there")?;
        let late = places.iter().find(|place| known(place).is_some_and(|place| place.step.is_none()));
        if let Some(late) = late {
            return Err(format!("{late} commits no step"));
        }
        let all: BTreeSet<usize> = places.iter().copied().collect();
        let is_common = |step: &&u64| {
            let told = self.digests.get(&(view.id.clone(), **step));
            told.is_some_and(|(digest, tellers)| tellers.is_superset(&all) && self.stable[*step].digest == *digest)
        };
        let steps = self.stable.range(from.max(view.step) + 1..).map(|(step, _)| step);
        steps.into_iter().find(is_common).copied().ok_or_else(|| "no stable checkpoint that all have".to_owned())
    }

    /// Whether these places, and nobody else, share a view.
    ///
    /// # Errors
    /// What view each has.
    pub fn together(&self, places: &[usize]) -> Result<(), String> {
        let view = |place: &usize| self.places.get(place).and_then(|place| place.view.as_ref());
        let views: Vec<Option<&View>> = places.iter().map(view).collect();
        let first = views.first().copied().flatten();
        let is_shared = |view: &Option<&View>| {
            view.zip(first).is_some_and(|(view, first)| view.id == first.id && view.members.len() == places.len())
        };
        if views.iter().all(is_shared) {
            return Ok(());
        }
        let describe = |(place, view): (&usize, &Option<&View>)| match view {
            Some(view) => format!("{place} in generation {} of {}", view.generation, view.members.len()),
            None => format!("{place} without a view"),
        };
        Err(places.iter().zip(&views).map(describe).collect::<Vec<_>>().join(", "))
    }
}
