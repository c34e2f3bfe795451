//! The switch of a [`Wan`](crate::Wan): hands frames from host to host, late, at a limited rate, and not all of them.
//!
//! ```text
//!   host --tap--> [rate, tail drop, loss] --delay--> [rate, tail drop] --tap--> host
//! ```
//!
//! If there are two sites, of the even and of the odd ports, what goes from one to the other passes one more stage, each way.
//! A frame's times are computed, not waited for one after the other: each stage knows until when it is busy.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tun_rs::{DeviceBuilder, Layer, SyncDevice};

use crate::chaos::Rng;
use crate::networks::wan::FarLink;

/// The longest frame: Ethernet's.
const MAX_FRAME: usize = 1_518;
/// How long a link keeps frames that it can't send yet, before it drops the next one.
const BUFFER: Duration = Duration::from_millis(60);
/// To wait for less takes longer than that.
const SHORT: Duration = Duration::from_micros(60);
/// When to look at a device again that could not be read.
const AGAIN: Duration = Duration::from_millis(1);

/// Makes `ports` TAP devices, `port0` and so on, says "ready" on stdout, and switches until the process is killed.
///
/// # Errors
/// If a device can't be made.
pub fn serve(ports: usize, link: FarLink, seed: u64) -> Result<()> {
    let device = |number| {
        let made =
            DeviceBuilder::new().name(format!("port{number}")).layer(Layer::L2).inherit_enable_state().build_sync();
        made.with_context(|| format!("can't make port{number}"))
    };
    let devices = (0..ports).map(device).collect::<Result<Vec<SyncDevice>>>()?;
    let ports: Arc<Vec<Port>> = Arc::new(
        devices.into_iter().map(|device| Port { device, queue: Mutex::default(), grew: Condvar::new() }).collect(),
    );
    // From the even ports to the odd ones, and back.
    let joint = link.joint_mbit.map(|mbit| [mbit; 2].map(Sender::new).map(Mutex::new));
    let joint: Arc<Vec<Mutex<Sender>>> = Arc::new(joint.into_iter().flatten().collect());
    println!("ready");
    let mut threads = Vec::new();
    for number in 0..ports.len() {
        let (all, joint, rng) = (ports.clone(), joint.clone(), Rng::new(seed.wrapping_add(number as u64)));
        threads.push(thread::spawn(move || take_in(&all, &joint, number, link, rng)));
        let all = ports.clone();
        threads.push(thread::spawn(move || hand_out(&all[number], link)));
    }
    for thread in threads {
        // Neither ends before the process does, unless its device fails.
        let _ = thread.join();
    }
    Ok(())
}

/// One host's end.
struct Port {
    device: SyncDevice,
    queue: Mutex<BinaryHeap<Reverse<Frame>>>,
    grew: Condvar,
}

impl Port {
    /// Lets time pass, whatever comes meanwhile.
    fn wait_until(&self, at: Instant) {
        let mut queue = locked(&self.queue);
        loop {
            let wait = at.saturating_duration_since(Instant::now());
            if wait <= SHORT {
                return;
            }
            queue = self.grew.wait_timeout(queue, wait).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// On its way to a host. Ordered by when it comes, then by its bytes, which does not matter.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Frame {
    at: Instant,
    bytes: Vec<u8>,
}

/// A stage that sends one frame after the other.
struct Sender {
    busy_until: Instant,
    rate: f64,
}

impl Sender {
    fn new(mbit: u32) -> Self {
        Self { busy_until: Instant::now(), rate: f64::from(mbit) * 1e6 / 8.0 }
    }

    /// When a frame that comes at `at` has left; `None` if there is no room for it.
    fn send(&mut self, at: Instant, bytes: usize) -> Option<Instant> {
        let begins = self.busy_until.max(at);
        if begins - at > BUFFER {
            return None;
        }
        self.busy_until = begins + Duration::from_secs_f64(bytes as f64 / self.rate);
        Some(self.busy_until)
    }
}

fn take_in(ports: &[Port], joint: &[Mutex<Sender>], number: usize, link: FarLink, mut rng: Rng) {
    let mut sender = Sender::new(link.mbit);
    let mut buffer = [0; 2 * MAX_FRAME];
    let per_million = (link.loss * 1e6) as usize;
    // A port that is moved to its host's namespace is down for a moment.
    loop {
        let Ok(length) = ports[number].device.recv(&mut buffer) else {
            ports[number].wait_until(Instant::now() + AGAIN);
            continue;
        };
        let frame = &buffer[..length];
        let Some(left) = sender.send(Instant::now(), length) else { continue };
        if length < 14 || rng.below(1_000_000) < per_million {
            continue;
        }
        // The last byte of a host's address is its number from 1; the lowest bit of the first byte means many.
        let to = usize::from(frame[5]).wrapping_sub(1);
        let is_for = |port: usize| if frame[0] & 1 == 1 { port != number } else { port == to };
        for port in (0..ports.len()).filter(|port| is_for(*port)) {
            let left = match joint.get(number % 2).filter(|_| number % 2 != port % 2) {
                Some(joint) => locked(joint).send(left, length),
                None => Some(left),
            };
            let Some(left) = left else { continue };
            let frame = Frame { at: left + link.delay, bytes: frame.to_vec() };
            locked(&ports[port].queue).push(Reverse(frame));
            ports[port].grew.notify_all();
        }
    }
}

fn hand_out(port: &Port, link: FarLink) {
    let mut sender = Sender::new(link.mbit);
    loop {
        let Frame { at, bytes } = next(port);
        let Some(left) = sender.send(at, bytes.len()) else { continue };
        port.wait_until(left);
        // A host that is gone takes nothing.
        let _ = port.device.send(&bytes);
    }
}

/// The next frame that is due; waits for it.
fn next(port: &Port) -> Frame {
    let mut queue = locked(&port.queue);
    loop {
        let wait = queue.peek().map(|Reverse(frame)| frame.at.saturating_duration_since(Instant::now()));
        queue = match wait {
            None => port.grew.wait(queue).unwrap_or_else(PoisonError::into_inner),
            Some(wait) if wait > SHORT => port.grew.wait_timeout(queue, wait).unwrap_or_else(PoisonError::into_inner).0,
            Some(_) => match queue.pop() {
                Some(Reverse(frame)) => return frame,
                None => queue,
            },
        };
    }
}

fn locked<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
