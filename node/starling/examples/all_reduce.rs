//! Training in one's own way over a swarm: local SGD (S. U. Stich, 2019), here of a linear model in plain Rust.
//!
//! Each process has data of its own, takes steps of its own, and now and then takes the mean of all members' parameters.
//!
//! ```sh
//! cargo run --release -p starling --no-default-features --example all_reduce -- found /tmp/first         # prints a ticket
//! cargo run --release -p starling --no-default-features --example all_reduce -- join /tmp/second TICKET  # in another terminal
//! ```
//!
//! Without default features it is built without Burn. Kill one with SIGKILL: the others go on. Start another: it goes on from the
//! newest mean. `STARLING_NETWORK_LISTEN` and the other variables of this machine's keys count as for the command line.

use std::error::Error;
use std::time::Duration;

use starling::{BufferSpec, Settings, Swarm, SwarmError};

/// What is to be found.
const TRUTH: [f32; 4] = [0.5, -2.0, 3.0, 1.0];
const ROUNDS: u64 = 60;
const LOCAL_STEPS: u32 = 20;
const LEARNING_RATE: f32 = 0.02;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut swarm = match args[..] {
        ["found", dir] => {
            let swarm = Swarm::found(
                &Settings::from_env(dir.into())?,
                &BufferSpec { min_peers: 2, ..BufferSpec::new(TRUTH.len()) },
            )?;
            println!("ticket: {}", swarm.ticket());
            swarm
        }
        ["join", dir, ticket] => Swarm::join(&Settings::from_env(dir.into())?, &ticket.parse()?)?,
        _ => return Err("usage: all_reduce found DIR, or all_reduce join DIR TICKET".into()),
    };

    let mut data = Data(u64::from(std::process::id()));
    // A joiner goes on from where the others are; before the first round these are zeros.
    let mut parameters = swarm.newest();
    while swarm.step() < ROUNDS {
        let loss = (0..LOCAL_STEPS).map(|_| descend(&mut parameters, &mut data)).sum::<f32>() / LOCAL_STEPS as f32;
        std::thread::sleep(Duration::from_millis(50)); // A real model takes its time.
        match swarm.all_reduce(&mut parameters) {
            Ok(mean) => println!("round {}: the mean of {}, loss here {loss:.5}", mean.step, mean.contributors),
            Err(SwarmError::Behind { step }) => {
                println!("the others went on without us up to round {step}");
                parameters = swarm.newest();
            }
            Err(error) => return Err(error.into()),
        }
    }
    let bits: Vec<String> = parameters.iter().map(|value| format!("{:08x}", value.to_bits())).collect();
    println!("found {parameters:.3?}, in bits {}", bits.join(" "));
    swarm.leave()?;
    Ok(())
}

/// One step of gradient descent on one sample. Returns its loss.
fn descend(parameters: &mut [f32], data: &mut Data) -> f32 {
    let x: Vec<f32> = TRUTH.iter().map(|_| data.next()).collect();
    let dot = |weights: &[f32]| weights.iter().zip(&x).map(|(weight, x)| weight * x).sum::<f32>();
    let error = dot(parameters) - (dot(&TRUTH) + 0.1 * data.next());
    parameters.iter_mut().zip(&x).for_each(|(weight, x)| *weight -= LEARNING_RATE * error * x);
    error * error
}

/// Numbers from -1 to 1, other ones in each process (G. Steele et al., SplitMix64, 2014).
struct Data(u64);

impl Data {
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 40) as f32 / (1 << 23) as f32 - 1.0
    }
}
