//! A run as a picture: time from left to right, one lane per peer.
//!
//! ```text
//!   peer 0  ████████▓▓▓▓▓▓▓▓▓▓▓▓▒▒▒▒▒▒▒▒▒▒      a colour per generation; the line of steps on top
//!   peer 1  ████████x        o▓▓▒▒▒▒▒▒▒▒▒▒      x it dies, o it starts again
//! ```
//!
//! Seconds of waiting lie between milliseconds of work, so the axis is not even: each gap is drawn as long as the
//! logarithm of what it lasts.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use starling_topology::Time;

use crate::hardware::network::Seat;

/// Something to show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// When it happened.
    pub at: Time,
    /// To whom.
    pub seat: Seat,
    /// What.
    pub what: What,
}

/// What happened to a peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// Its process started.
    Starts,
    /// It went on in a view of this generation.
    Enters(u64),
    /// It committed this step.
    Commits(u64),
    /// It loaded the state from others.
    Loads,
    /// It was left out.
    Evicted,
    /// Its process died.
    Dies,
    /// Its process came to its end.
    Ends,
    /// Something was done to it.
    Fault(String),
}

const WIDTH: f64 = 1_600.0;
const LEFT: f64 = 70.0;
const LANE: f64 = 46.0;
const TOP: f64 = 40.0;

/// The picture, as SVG.
pub fn draw(title: &str, peers: usize, marks: &[Mark]) -> String {
    let axis = Axis::new(marks);
    let height = TOP + LANE * peers as f64 + 30.0;
    let mut svg = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{:.0}\" height=\"{height:.0}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"8\" y=\"18\" font-size=\"13\">{}</text>",
        LEFT + WIDTH + 20.0,
        escape(title)
    );
    for seat in 0..peers {
        let y = TOP + LANE * seat as f64;
        let _ = writeln!(svg, "<text x=\"8\" y=\"{:.1}\">peer {seat}</text>", y + 22.0);
        lane(&mut svg, y, &axis, marks.iter().filter(|mark| mark.seat == seat));
    }
    axis.scale(&mut svg, height - 10.0);
    svg.push_str("</svg>\n");
    svg
}

fn lane<'a>(svg: &mut String, y: f64, axis: &Axis, marks: impl Iterator<Item = &'a Mark>) {
    let mut shown: Option<(f64, u64)> = None;
    let mut last = LEFT;
    let bar = |svg: &mut String, from: f64, to: f64, generation: u64| {
        let hue = (generation * 67) % 360;
        let width = (to - from).max(0.5);
        let _ = writeln!(
            svg,
            "<rect x=\"{from:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"16\" fill=\"hsl({hue},60%,75%)\">\
             <title>generation {generation}</title></rect>",
            y + 10.0
        );
    };
    let mut signs = String::new();
    for mark in marks {
        let x = axis.place(mark.at);
        last = x;
        let (sign, text, colour) = match &mark.what {
            What::Enters(generation) => {
                if let Some((from, before)) = shown.replace((x, *generation)) {
                    bar(svg, from, x, before);
                }
                continue;
            }
            What::Commits(step) => {
                let _ = writeln!(
                    signs,
                    "<path d=\"M{x:.1},{:.1}v6\" stroke=\"#446\"><title>step {step}, {:?}</title></path>",
                    y + 15.0,
                    mark.at - Time::ZERO
                );
                continue;
            }
            What::Dies | What::Ends | What::Evicted => {
                if let Some((from, before)) = shown.take() {
                    bar(svg, from, x, before);
                }
                match &mark.what {
                    What::Dies => ("✕", "dies".to_owned(), "#c00"),
                    What::Evicted => ("◇", "left out".to_owned(), "#c60"),
                    _ => ("■", "ends".to_owned(), "#060"),
                }
            }
            What::Starts => ("●", "starts".to_owned(), "#06c"),
            What::Loads => ("▼", "loads the state".to_owned(), "#06c"),
            What::Fault(text) => ("⚡", text.clone(), "#c00"),
        };
        let above = if matches!(mark.what, What::Fault(_)) { 8.0 } else { 23.0 };
        let _ = writeln!(
            signs,
            "<text x=\"{:.1}\" y=\"{:.1}\" fill=\"{colour}\">{sign}<title>{}, {:?}</title></text>",
            x - 4.0,
            y + above,
            escape(&text),
            mark.at - Time::ZERO
        );
    }
    if let Some((from, generation)) = shown {
        bar(svg, from, last, generation);
    }
    svg.push_str(&signs);
}

/// Where each instant lies.
#[derive(Debug)]
struct Axis {
    places: BTreeMap<Time, f64>,
    length: f64,
}

impl Axis {
    fn new(marks: &[Mark]) -> Self {
        let mut places = BTreeMap::new();
        let mut at = 0.0;
        let mut before = Time::ZERO;
        let times: std::collections::BTreeSet<Time> = marks.iter().map(|mark| mark.at).collect();
        for time in times {
            let micros = (time - before).as_micros() as f64;
            at += 1.0 + (1.0 + micros / 1_000.0).log2();
            places.insert(time, at);
            before = time;
        }
        Self { places, length: at.max(1.0) }
    }

    fn place(&self, at: Time) -> f64 {
        LEFT + WIDTH * self.places.range(..=at).next_back().map_or(0.0, |(_, place)| place / self.length)
    }

    fn scale(&self, svg: &mut String, y: f64) {
        let mut next = 0.0;
        for (time, place) in &self.places {
            let x = LEFT + WIDTH * place / self.length;
            if x >= next {
                let seconds = (*time - Time::ZERO).as_secs_f64();
                let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" fill=\"#666\">{seconds:.2} s</text>");
                next = x + 120.0;
            }
        }
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_has_a_lane_per_peer_and_shows_what_happened() {
        let at = |millis: u64| Time::from_nanos(millis * 1_000_000);
        let mark = |millis, seat, what| Mark { at: at(millis), seat, what };
        let marks = [
            mark(0, 0, What::Starts),
            mark(1, 0, What::Enters(1)),
            mark(9_000, 0, What::Commits(4)),
            mark(9_001, 1, What::Fault("peer 1 <dies>".into())),
            mark(9_001, 1, What::Dies),
        ];
        let svg = draw("seed 1", 2, &marks);
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
        for shown in ["peer 0", "peer 1 &lt;dies&gt;", "generation 1", "step 4"] {
            assert!(svg.contains(shown), "{shown}");
        }
    }
}
