//! Measures this member's links to others, one at a time and rarely: a few times soon after they were made, then every few
//! minutes.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::time::Duration;

use libp2p::StreamProtocol;
use libp2p_stream::Control;
use starling_topology::PeerId;
use starling_topology::plan::Link;
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until, timeout};

use crate::credentials::identity::to_libp2p;
use crate::member::event::NetworkEvent;
use crate::member::probe;
use crate::net::streams;

/// When a new link is measured. Those who enter a view together begin with the next one each, so that no two of them measure
/// the way to the same member.
const SOON: Duration = Duration::from_millis(300);
/// How long after it was measured a link is measured again, give or take a quarter: as long as it is new, and later.
const AGAIN: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(120)];
/// After a link that could not be measured, the first time. It doubles.
const RETRY: Duration = Duration::from_secs(1);
const MAX_DOUBLINGS: u32 = 7;
/// How long one measurement may take in all.
const LIMIT: Duration = Duration::from_secs(30);
/// What was measured before is measured again only after so many times what the last measurement of any link took: as long as it
/// is new, and later.
const REST: [u32; 2] = [10, 100];
/// The best of so many measurements counts: what was slower had something in its way, such as the run itself. A link is new
/// until it was measured so often.
const KEPT: usize = 3;

/// Measures links until it is dropped.
#[derive(Debug)]
pub(crate) struct Prober {
    others: watch::Sender<Vec<PeerId>>,
    task: AbortHandle,
}

impl Prober {
    /// A prober that measures nothing yet.
    pub(crate) fn start(control: Control, protocol: StreamProtocol, events: mpsc::Sender<NetworkEvent>) -> Self {
        let (others, watched) = watch::channel(Vec::new());
        let last = Last { end: Instant::now(), took: Duration::ZERO };
        let task = Task { control, protocol, events, known: BTreeMap::new(), last };
        Self { others, task: tokio::spawn(task.run(watched)).abort_handle() }
    }

    /// Measures the links to these from now on, the first one first.
    pub(crate) fn look_at(&self, others: Vec<PeerId>) {
        self.others.send_if_modified(|before| {
            let differs = *before != others;
            *before = others;
            differs
        });
    }
}

impl Drop for Prober {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Task {
    control: Control,
    protocol: StreamProtocol,
    events: mpsc::Sender<NetworkEvent>,
    known: BTreeMap<PeerId, Known>,
    last: Last,
}

/// The last measurement of any link.
#[derive(Debug, Clone, Copy)]
struct Last {
    end: Instant,
    took: Duration,
}

/// What is known of one link.
#[derive(Debug)]
struct Known {
    recent: VecDeque<Link>,
    failures: u32,
    due: Instant,
}

impl Known {
    /// When it is measured next, if the last measurement of any link was this one.
    fn at(&self, last: Last) -> Instant {
        if self.recent.is_empty() { self.due } else { self.due.max(last.end + last.took * self.of(REST)) }
    }

    /// What holds for a new link, or what holds later.
    fn of<T: Copy>(&self, [new, later]: [T; 2]) -> T {
        if self.recent.len() < KEPT { new } else { later }
    }

    fn take(&mut self, now: Instant, link: Link) {
        self.recent.push_back(link);
        if self.recent.len() > KEPT {
            self.recent.pop_front();
        }
        (self.failures, self.due) = (0, now + self.of(AGAIN).mul_f64(rand::random_range(0.75..1.25)));
    }

    fn fail(&mut self, now: Instant) {
        // Whoever measures at the same time as we do must not try again at the same time.
        let wait = RETRY * (1 << self.failures.min(MAX_DOUBLINGS));
        self.due = now + wait.mul_f64(rand::random_range(1.0..2.0));
        self.failures = self.failures.saturating_add(1);
    }

    fn best(&self) -> Option<Link> {
        let delay_us = self.recent.iter().map(|link| link.delay_us).min()?;
        let bytes_per_second = self.recent.iter().map(|link| link.bytes_per_second).max()?;
        Some(Link { delay_us, bytes_per_second })
    }
}

impl Task {
    async fn run(mut self, mut others: watch::Receiver<Vec<PeerId>>) {
        loop {
            self.look_at(&others.borrow_and_update());
            let next = self.known.iter().map(|(peer, known)| (known.at(self.last), *peer)).min();
            tokio::select! {
                changed = others.changed() => if changed.is_err() {
                    return;
                },
                // Due: no change of members interrupts it.
                peer = wait_for(next) => self.measure(peer).await,
            }
        }
    }

    fn look_at(&mut self, others: &[PeerId]) {
        self.known.retain(|peer, _| others.contains(peer));
        let mut due = Instant::now() + SOON;
        for peer in others {
            self.known.entry(*peer).or_insert_with(|| {
                due += SOON;
                Known { recent: VecDeque::new(), failures: 0, due }
            });
        }
    }

    async fn measure(&mut self, peer: PeerId) {
        let began = Instant::now();
        let measured = timeout(LIMIT, self.probe(peer)).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        let now = Instant::now();
        self.last = Last { end: now, took: now - began };
        let Some(known) = self.known.get_mut(&peer) else { return };
        match measured {
            Ok(link) => known.take(now, link),
            Err(error) => {
                tracing::debug!(peer = %to_libp2p(peer), %error, "a link was not measured");
                known.fail(now);
            }
        }
        if let (Some(link), 0) = (known.best(), known.failures) {
            let _ = self.events.send(NetworkEvent::Measured { links: vec![(peer, link)] }).await;
        }
    }

    async fn probe(&mut self, peer: PeerId) -> io::Result<Link> {
        let limit = probe::LIMIT / 2;
        let mut stream = streams::open(&mut self.control, to_libp2p(peer), &self.protocol, limit).await?;
        probe::measure(&mut stream).await
    }
}

async fn wait_for(next: Option<(Instant, PeerId)>) -> PeerId {
    match next {
        Some((at, peer)) => {
            sleep_until(at).await;
            peer
        }
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_best_of_the_last_few_counts_and_failures_wait_longer_and_longer() {
        let now = Instant::now();
        let mut known = Known { recent: VecDeque::new(), failures: 0, due: now };
        let last = Last { end: now, took: LIMIT };
        assert_eq!((known.best(), known.at(last)), (None, now), "what was never measured does not rest");
        for (place, (delay_us, bytes_per_second)) in [(9, 900), (7, 100), (8, 200), (5, 300)].into_iter().enumerate() {
            known.take(now, Link { delay_us, bytes_per_second });
            let kind = usize::from(place + 1 >= KEPT);
            assert!((now + AGAIN[kind] / 2..now + AGAIN[kind] * 2).contains(&known.due), "{place}");
            assert_eq!(known.at(last), now + LIMIT * REST[kind], "{place}");
        }
        assert_eq!(known.best(), Some(Link { delay_us: 5, bytes_per_second: 300 }), "the first is forgotten");
        let mut before = Duration::ZERO;
        for _ in 0..20 {
            known.fail(now);
            assert!(known.due - now >= before / 2 && known.due - now <= RETRY * (2 << MAX_DOUBLINGS));
            before = known.due - now;
        }
    }
}
