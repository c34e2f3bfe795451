//! The record layer against the raw speed of its cipher, in one run: `cargo bench -p starling-links --bench records`.
//!
//! Prints processor time per gigabyte for sealing and opening together, by either library and by records, which take the
//! faster one; the ratio is what records cost on top of it.

use std::time::Instant;

use aws_lc_rs::aead as aws_lc;
use ring::aead as ring;
use starling_links::bench::cipher;

const MOVED: usize = 256 << 20;
const ROUNDS: usize = 11;

/// Seconds per byte of ring alone, in place.
fn by_ring(bytes: usize) -> f64 {
    let key = ring::UnboundKey::new(&ring::AES_128_GCM, &[1; 16]).expect("a key of 16 bytes");
    let key = ring::LessSafeKey::new(key);
    per_byte(bytes, |nonce, data| {
        let nonce = || ring::Nonce::assume_unique_for_key(nonce);
        key.seal_in_place_append_tag(nonce(), ring::Aad::empty(), data).expect("sealed");
        key.open_in_place(nonce(), ring::Aad::empty(), data).expect("opened");
        data.truncate(bytes);
    })
}

/// The same of aws-lc.
fn by_aws_lc(bytes: usize) -> f64 {
    let key = aws_lc::UnboundKey::new(&aws_lc::AES_128_GCM, &[1; 16]).expect("a key of 16 bytes");
    let key = aws_lc::LessSafeKey::new(key);
    per_byte(bytes, |nonce, data| {
        let nonce = || aws_lc::Nonce::assume_unique_for_key(nonce);
        key.seal_in_place_append_tag(nonce(), aws_lc::Aad::empty(), data).expect("sealed");
        key.open_in_place(nonce(), aws_lc::Aad::empty(), data).expect("opened");
        data.truncate(bytes);
    })
}

fn per_byte(bytes: usize, mut seal_and_open: impl FnMut([u8; 12], &mut Vec<u8>)) -> f64 {
    let mut data = vec![0; bytes];
    let rounds = MOVED / bytes;
    let began = Instant::now();
    for round in 0..rounds {
        let mut nonce = [0; 12];
        nonce[..8].copy_from_slice(&(round as u64).to_le_bytes());
        seal_and_open(nonce, &mut data);
    }
    began.elapsed().as_secs_f64() / (rounds * bytes) as f64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    println!("{:>10}  {:>9}  {:>11}  {:>12}  ratio", "record KiB", "ring s/GB", "aws-lc s/GB", "records s/GB");
    for kib in [16, 64, 128, 256] {
        let bytes = kib << 10;
        // Taken in turns, so that what else the machine does hits all.
        let turns: Vec<[f64; 3]> = (0..ROUNDS).map(|_| [by_ring(bytes), by_aws_lc(bytes), cipher(bytes)]).collect();
        let [ring, aws_lc, records] =
            [0, 1, 2].map(|which| median(turns.iter().map(|turn| turn[which]).collect()) * 1e9);
        let ratio = records / ring.min(aws_lc);
        println!("{kib:>10}  {ring:>9.3}  {aws_lc:>11.3}  {records:>12.3}  {ratio:.2}");
    }
}
