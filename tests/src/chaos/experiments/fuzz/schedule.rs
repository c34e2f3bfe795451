//! What is done to a run in a round, drawn from a seed before the round begins.

use std::fmt;
use std::time::Duration;

use crate::chaos::Rng;

/// The most members of a round, those that join later among them.
const MAX_PLACES: usize = 9;
/// How many members a run begins with: small runs have the rare cases.
const SIZES: [usize; 10] = [2, 2, 2, 3, 3, 3, 4, 4, 5, 6];
/// A model whose state takes some seconds to download at 1 MiB per second.
const HEAVY: &str = "mlp:512,512";

/// A round: the run, and what is done to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    /// The seed of all rounds.
    pub seed: u64,
    /// Which round of them it is.
    pub round: u64,
    /// How many members the run begins with.
    pub members: usize,
    /// The run's model.
    pub model: String,
    /// Steps between checkpoints.
    pub checkpoint_every: u64,
    /// The run's longest stall.
    pub max_stall: Duration,
    /// MiB of state that each member hands out per second, if that is limited.
    pub state_rate: Option<u32>,
    /// Whether all first members are there before anything happens.
    pub waits_for_all: bool,
    /// What is done, each after a pause.
    pub moves: Vec<(Duration, Move)>,
    /// Whether all leave at once in the end, or one after the other.
    pub leaves_at_once: bool,
}

/// One thing that is done. Places are numbered; the first is the founder's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Move {
    /// SIGKILL, to all of them at once.
    Kill(Vec<usize>),
    /// SIGSTOP, and SIGCONT after this time.
    Stop(usize, Duration),
    /// Ctrl-C.
    Leave(usize),
    /// A new process for a place that has none.
    Start {
        /// The place.
        place: usize,
        /// What became of its disk meanwhile.
        disk: Disk,
        /// The command.
        way: Way,
    },
    /// So many new joiners at once.
    Join(usize),
    /// A copy of its data directory is kept, from which it may be restored.
    Copy(usize),
    /// Its disk has no room left for this time.
    Fill(usize, Duration),
    /// Its disk can't be written for this time.
    ReadOnly(usize, Duration),
    /// Its disk does not answer for this time.
    Freeze(usize, Duration),
}

/// What became of a disk while nobody used it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Disk {
    /// Nothing.
    Kept,
    /// The data directory is empty.
    Wiped,
    /// It is as it was when it was last copied.
    Restored,
    /// One bit of one file is another, both by numbers beyond how many there are.
    Flipped {
        /// Which file.
        file: usize,
        /// Which of its bits.
        bit: usize,
    },
}

/// How a process is started again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Way {
    /// By the command that the place was first started with.
    Same,
    /// `run --resume`.
    Resume,
    /// `join` with the ticket that the process of this place once printed.
    Join(usize),
}

impl Schedule {
    /// The one of this seed and round.
    pub fn draw(seed: u64, round: u64) -> Self {
        let mut rng = Rng::new(seed ^ round.rotate_left(40));
        let members = SIZES[rng.below(SIZES.len())];
        let is_heavy = rng.below(4) == 0;
        let narrow = ["mlp:8", "mlp:16", "mlp:32", "mlp:64"][rng.below(4)];
        let every = if is_heavy { [20, 50][rng.below(2)] } else { [20, 50, 100, 200][rng.below(4)] };
        let mut schedule = Self {
            seed,
            round,
            members,
            model: if is_heavy { HEAVY } else { narrow }.to_owned(),
            checkpoint_every: every,
            max_stall: rng.between(Duration::from_secs(2), Duration::from_secs(4)),
            state_rate: (is_heavy || rng.below(4) == 0).then_some(1),
            waits_for_all: rng.below(4) > 0,
            moves: Vec::new(),
            leaves_at_once: rng.below(2) == 0,
        };
        let mut places = Places { up: vec![true; members], copied: vec![false; members] };
        let mut is_downloading = false;
        for _ in 0..3 + rng.below(10) {
            let pause = if is_downloading {
                rng.between(Duration::from_millis(100), Duration::from_secs(2))
            } else {
                pause(&mut rng)
            };
            let step = places.draw(&mut rng, is_downloading);
            is_downloading = matches!(step, Move::Join(_));
            places.apply(&step);
            schedule.moves.push((pause, step));
        }
        schedule
    }
}

/// Many are short: what matters most happens while something else has not ended yet.
fn pause(rng: &mut Rng) -> Duration {
    let [least, most] = [[0, 200], [200, 1500], [200, 1500], [1500, 4000]][rng.below(4)];
    rng.between(Duration::from_millis(least), Duration::from_millis(most))
}

/// What a schedule takes for granted of each place, whatever really becomes of its process.
struct Places {
    up: Vec<bool>,
    copied: Vec<bool>,
}

impl Places {
    fn those(&self, up: bool) -> Vec<usize> {
        (0..self.up.len()).filter(|place| self.up[*place] == up).collect()
    }

    /// The next move; a kill or a stop, if a joiner is on its way.
    fn draw(&self, rng: &mut Rng, is_downloading: bool) -> Move {
        let (up, down) = (self.those(true), self.those(false));
        if up.is_empty() || (!is_downloading && !down.is_empty() && rng.below(100) < 45) {
            return self.start(down[rng.below(down.len())], rng);
        }
        let place = up[rng.below(up.len())];
        let room = MAX_PLACES - self.up.len();
        match rng.below(if is_downloading { 60 } else { 100 }) {
            24..34 if up.len() > 2 => {
                let others: Vec<usize> = up.iter().copied().filter(|other| *other != place).collect();
                let mut both = vec![place, others[rng.below(others.len())]];
                both.sort_unstable();
                Move::Kill(both)
            }
            34..46 => Move::Kill(up),
            46..60 => {
                let most = if rng.below(2) == 0 { 500 } else { 6000 };
                Move::Stop(place, rng.between(Duration::from_millis(50), Duration::from_millis(most)))
            }
            60..67 => Move::Leave(place),
            67..73 if room > 0 => Move::Join(1),
            73..80 if room > 2 => Move::Join(3),
            80..87 => Move::Copy(place),
            87..92 => Move::Fill(place, rng.between(Duration::from_millis(500), Duration::from_secs(6))),
            92..96 => Move::ReadOnly(place, rng.between(Duration::from_millis(500), Duration::from_secs(6))),
            // Some are as long as a member waits for its disk before it gives up.
            96..100 => Move::Freeze(place, rng.between(Duration::from_millis(500), Duration::from_secs(14))),
            _ => Move::Kill(vec![place]),
        }
    }

    fn start(&self, place: usize, rng: &mut Rng) -> Move {
        let disk = match rng.below(100) {
            60..72 => Disk::Wiped,
            72..86 if self.copied[place] => Disk::Restored,
            86..100 => Disk::Flipped { file: rng.below(1 << 16), bit: rng.below(1 << 30) },
            _ => Disk::Kept,
        };
        let way = match rng.below(10) {
            5 | 6 => Way::Resume,
            7..10 => {
                let others: Vec<usize> = (0..self.up.len()).filter(|other| *other != place).collect();
                Way::Join(others[rng.below(others.len())])
            }
            _ => Way::Same,
        };
        Move::Start { place, disk, way }
    }

    fn apply(&mut self, step: &Move) {
        match step {
            Move::Kill(killed) => killed.iter().for_each(|place| self.up[*place] = false),
            Move::Leave(place) => self.up[*place] = false,
            Move::Start { place, .. } => self.up[*place] = true,
            Move::Join(count) => {
                self.up.resize(self.up.len() + count, true);
                self.copied.resize(self.up.len(), false);
            }
            Move::Copy(place) => self.copied[*place] = true,
            Move::Stop(..) | Move::Fill(..) | Move::ReadOnly(..) | Move::Freeze(..) => {}
        }
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { members, model, checkpoint_every, .. } = self;
        write!(f, "{members} members train {model}, a checkpoint every {checkpoint_every} steps, ")?;
        write!(f, "longest stall {} ms", self.max_stall.as_millis())?;
        if let Some(rate) = self.state_rate {
            write!(f, ", state at {rate} MiB/s")?;
        }
        writeln!(f, "{}", if self.waits_for_all { "" } else { ", nobody waits until all are there" })?;
        for (pause, step) in &self.moves {
            writeln!(f, "  after {:.2} s: {step}", pause.as_secs_f64())?;
        }
        write!(f, "  then all is mended, and all leave {}", if self.leaves_at_once { "at once" } else { "in turn" })
    }
}

impl fmt::Display for Move {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kill(places) => {
                let places: Vec<String> = places.iter().map(usize::to_string).collect();
                write!(f, "kill {}", places.join(" and "))
            }
            Self::Stop(place, time) => write!(f, "stop {place} for {:.2} s", time.as_secs_f64()),
            Self::Leave(place) => write!(f, "Ctrl-C to {place}"),
            Self::Start { place, disk, way } => {
                write!(f, "start {place} ")?;
                match way {
                    Way::Same => write!(f, "by its command")?,
                    Way::Resume => write!(f, "by run --resume")?,
                    Way::Join(through) => write!(f, "by join with the ticket of {through}")?,
                }
                match disk {
                    Disk::Kept => Ok(()),
                    Disk::Wiped => write!(f, ", its disk wiped"),
                    Disk::Restored => write!(f, ", its disk restored from the copy"),
                    Disk::Flipped { file, bit } => write!(f, ", bit {bit} of file {file} flipped"),
                }
            }
            Self::Join(count) => write!(f, "{count} new join"),
            Self::Copy(place) => write!(f, "copy the disk of {place}"),
            Self::Fill(place, time) => write!(f, "the disk of {place} is full for {:.2} s", time.as_secs_f64()),
            Self::ReadOnly(place, time) => {
                write!(f, "the disk of {place} is read-only for {:.2} s", time.as_secs_f64())
            }
            Self::Freeze(place, time) => write!(f, "the disk of {place} is frozen for {:.2} s", time.as_secs_f64()),
        }
    }
}
