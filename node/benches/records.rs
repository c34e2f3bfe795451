//! The record layer against the raw speed of its cipher, in one run: `cargo bench -p starling-node --bench records`.
//!
//! Prints processor time per gigabyte for sealing and opening together; the ratio is what records cost on top.

use std::time::Instant;

use ring::aead::{AES_128_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use starling_node::bench::cipher;

const MOVED: usize = 256 << 20;
const ROUNDS: usize = 11;

/// Seconds per byte of the cipher alone, in place.
fn raw(bytes: usize) -> f64 {
    let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &[1; 16]).expect("a key of 16 bytes"));
    let mut data = vec![0; bytes];
    let rounds = MOVED / bytes;
    let began = Instant::now();
    for round in 0..rounds {
        let mut nonce = [0; NONCE_LEN];
        nonce[..8].copy_from_slice(&(round as u64).to_le_bytes());
        let nonce = || Nonce::assume_unique_for_key(nonce);
        let tag = key.seal_in_place_separate_tag(nonce(), Aad::empty(), &mut data).expect("sealed");
        key.open_in_place_separate_tag(nonce(), Aad::empty(), tag, &mut data, 0..).expect("opened");
    }
    began.elapsed().as_secs_f64() / (rounds * bytes) as f64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    println!("{:>10}  {:>12}  {:>12}  ratio", "record KiB", "cipher s/GB", "records s/GB");
    for kib in [16, 64, 128, 256] {
        let bytes = kib << 10;
        // Taken in turns, so that what else the machine does hits both.
        let pairs: Vec<(f64, f64)> = (0..ROUNDS).map(|_| (raw(bytes), cipher(bytes))).collect();
        let (raw, records): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
        let (raw, records) = (median(raw), median(records));
        println!("{kib:>10}  {:>12.3}  {:>12.3}  {:.2}", raw * 1e9, records * 1e9, records / raw);
    }
}
