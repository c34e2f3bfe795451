//! AES-128-GCM, by whichever of two libraries is the faster one on this processor.
//!
//! Both are in the tree anyway, under TLS and QUIC. Where AVX-512 works on AES, aws-lc's way with it takes two thirds of the
//! time that ring takes, which stops at AVX2; elsewhere ring is up to twice as fast. `cargo bench --bench records`
//! prints both.

use aws_lc_rs::aead as aws_lc;
use ring::aead as ring;

pub(crate) const KEY_BYTES: usize = 16;
pub(crate) const NONCE_BYTES: usize = 12;
pub(crate) const TAG_BYTES: usize = 16;

/// A key that seals and opens what is authenticated together with four bytes that are not sealed.
pub(crate) enum Key {
    Ring(Box<ring::LessSafeKey>),
    AwsLc(aws_lc::LessSafeKey),
}

impl Key {
    pub(crate) fn new(bytes: &[u8; KEY_BYTES]) -> Self {
        if has_wide_aes() { Self::aws_lc(bytes) } else { Self::ring(bytes) }
    }

    fn ring(bytes: &[u8; KEY_BYTES]) -> Self {
        let key = ring::UnboundKey::new(&ring::AES_128_GCM, bytes);
        let key = key.expect("invariant: the key is as long as the cipher wants it");
        Self::Ring(Box::new(ring::LessSafeKey::new(key)))
    }

    fn aws_lc(bytes: &[u8; KEY_BYTES]) -> Self {
        let key = aws_lc::UnboundKey::new(&aws_lc::AES_128_GCM, bytes);
        Self::AwsLc(aws_lc::LessSafeKey::new(key.expect("invariant: the key is as long as the cipher wants it")))
    }

    /// Seals `plain` in place, under a nonce that this key has never had, and returns the tag.
    pub(crate) fn seal(&self, nonce: [u8; NONCE_BYTES], clear: [u8; 4], plain: &mut [u8]) -> [u8; TAG_BYTES] {
        const SHORT: &str = "invariant: a record is far shorter than the cipher's limit";
        let mut tag = [0; TAG_BYTES];
        match self {
            Self::Ring(key) => {
                let nonce = ring::Nonce::assume_unique_for_key(nonce);
                let made = key.seal_in_place_separate_tag(nonce, ring::Aad::from(clear), plain);
                tag.copy_from_slice(made.expect(SHORT).as_ref());
            }
            Self::AwsLc(key) => {
                let nonce = aws_lc::Nonce::assume_unique_for_key(nonce);
                let made = key.seal_in_place_separate_tag(nonce, aws_lc::Aad::from(clear), plain);
                tag.copy_from_slice(made.expect(SHORT).as_ref());
            }
        }
        tag
    }

    /// Opens `sealed`, its tag behind it, in place. False if it is not what was sealed under that nonce.
    #[must_use]
    pub(crate) fn opens(&self, nonce: [u8; NONCE_BYTES], clear: [u8; 4], sealed: &mut [u8]) -> bool {
        match self {
            Self::Ring(key) => {
                let nonce = ring::Nonce::assume_unique_for_key(nonce);
                key.open_in_place(nonce, ring::Aad::from(clear), sealed).is_ok()
            }
            Self::AwsLc(key) => {
                let nonce = aws_lc::Nonce::assume_unique_for_key(nonce);
                key.open_in_place(nonce, aws_lc::Aad::from(clear), sealed).is_ok()
            }
        }
    }
}

/// Whether vectors of 512 bits can work on AES and on its checksum: what aws-lc asks before it does.
fn has_wide_aes() -> bool {
    #[cfg(target_arch = "x86_64")]
    let has = is_x86_feature_detected!("vaes")
        && is_x86_feature_detected!("vpclmulqdq")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl");
    #[cfg(not(target_arch = "x86_64"))]
    let has = false;
    has
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Members whose processors differ talk to each other.
    #[test]
    fn what_one_library_seals_the_other_opens() {
        let (bytes, nonce, clear) = ([7; KEY_BYTES], [9; NONCE_BYTES], [1, 2, 3, 4]);
        let keys = [Key::ring(&bytes), Key::aws_lc(&bytes)];
        for length in [0, 1, 63, 4096, 131_072 + 5] {
            let plain: Vec<u8> = (0..length).map(|index| index as u8).collect();
            let sealed = keys.each_ref().map(|key| {
                let mut sealed = plain.clone();
                let tag = key.seal(nonce, clear, &mut sealed);
                sealed.extend(tag);
                sealed
            });
            assert_eq!(sealed[0], sealed[1]);
            for key in &keys {
                let mut opened = sealed[0].clone();
                assert!(key.opens(nonce, clear, &mut opened));
                assert_eq!(&opened[..length], plain);
                assert!(!key.opens(nonce, [1, 2, 3, 5], &mut sealed[0].clone()));
                assert!(!key.opens([8; NONCE_BYTES], clear, &mut sealed[0].clone()));
                let mut changed = sealed[0].clone();
                changed[length / 2] ^= 1;
                assert!(!key.opens(nonce, clear, &mut changed));
            }
        }
    }
}
