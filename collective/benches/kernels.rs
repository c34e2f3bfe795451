//! How near the kernels are to the memory: ratios against a copy of the same values, measured in the same run.
//!
//! `cargo bench -p starling-collective` prints one line per kernel. Only ratios are worth comparing: the copy's own rate is
//! that of the machine, and of whatever else runs on it. Above 1 means faster than copying the `f32` values, as a kernel
//! can be that reads or writes fewer bytes.

use std::hint::black_box;

use starling_collective::Codec;
use starling_collective::codec::kernel;

/// Repetitions, of which the fastest counts: whatever else runs on the machine only adds to the others.
const REPETITIONS: usize = 40;

fn main() {
    for (elements, place) in [(1 << 15, "128 KiB, in the cache"), (1 << 24, "64 MiB, in memory")] {
        let from: Vec<f32> = (0..elements).map(|index| (index % 1_009) as f32 / 7.0 - 72.0).collect();
        let mut into = vec![1.0f32; elements];
        let copy = seconds(elements, || black_box(&mut into).copy_from_slice(black_box(&from)));
        let rate = size_of_val(from.as_slice()) as f64 / copy / 1e9;
        println!("{place}: a copy reads {rate:.1} GB/s; other kernels' f32 rate in proportion:");
        report("divide", copy, seconds(elements, || kernel::divide(black_box(&mut into), 1.0)));
        report("scale", copy, seconds(elements, || kernel::scale(black_box(&mut into), black_box(&from), 3.0)));
        for codec in Codec::ALL {
            let mut payload = vec![0; codec.payload_bytes(elements)];
            let name = |what: &str| format!("{what} {codec}");
            let time = seconds(elements, || codec.encode(black_box(&from), black_box(&mut payload)));
            report(&name("encode"), copy, time);
            let time = seconds(elements, || {
                codec.accumulate(black_box(&mut into), black_box(&payload)).expect("our own form");
            });
            report(&name("accumulate"), copy, time);
            let time = seconds(elements, || {
                codec.store(black_box(&mut into), black_box(&payload)).expect("our own form");
            });
            report(&name("store"), copy, time);
            if codec.is_lossy() {
                report(&name("round"), copy, seconds(elements, || codec.round(black_box(&mut into))));
            }
        }
    }
}

fn report(name: &str, copy: f64, time: f64) {
    println!("  {name:<16} {:.2}", copy / time);
}

/// The least time of one run; short runs are repeated until about 8 MiB have passed.
#[expect(clippy::disallowed_types, clippy::disallowed_methods, reason = "a benchmark is about real time")]
fn seconds(elements: usize, mut run: impl FnMut()) -> f64 {
    let inner = ((1 << 21) / elements).max(1);
    run();
    let times = (0..REPETITIONS).map(|_| {
        let start = std::time::Instant::now();
        (0..inner).for_each(|_| run());
        start.elapsed().as_secs_f64() / inner as f64
    });
    times.fold(f64::INFINITY, f64::min)
}
