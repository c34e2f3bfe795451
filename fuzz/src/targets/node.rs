//! What members, keepers and joiners say to each other besides membership, and what a node keeps on its disk.

use starling_node::net::fuzzed::{self, Decoder};

use crate::target::Target;

const KIB: usize = 1024;

/// The longest input in KiB, and how much memory it may take: for each byte, and in KiB besides.
const fn of(decoder: &Decoder, longest: usize, per_byte: usize, besides: usize) -> Target {
    let Decoder { name, valid, take } = *decoder;
    Target { name, seeds: valid, take, longest: longest * KIB, per_byte, besides: besides * KIB }
}

pub(super) const REQUEST: Target = of(&fuzzed::REQUEST, 1, 16, 8);
pub(super) const REPLY: Target = of(&fuzzed::REPLY, 64, 64, 2048);
pub(super) const WELCOME_REQUEST: Target = of(&fuzzed::WELCOME_REQUEST, 64, 64, 64);
pub(super) const WELCOME_REPLY: Target = of(&fuzzed::WELCOME_REPLY, 64, 64, 1024);
pub(super) const PRESENTED: Target = of(&fuzzed::PRESENTED, 1, 4, 4);
pub(super) const SECRET: Target = of(&fuzzed::SECRET, 1, 4, 4);
pub(super) const TICKET: Target = of(&fuzzed::TICKET, 2, 128, 64);
pub(super) const UPDATE: Target = of(&fuzzed::UPDATE, 64, 64, 4096);
pub(super) const DENIAL: Target = of(&fuzzed::DENIAL, 64, 64, 2048);
pub(super) const PASS: Target = of(&fuzzed::PASS, 1, 8, 4);
pub(super) const HANDSHAKE: Target = of(&fuzzed::HANDSHAKE, 64, 64, 2048);
pub(super) const ANNOUNCEMENT: Target = of(&fuzzed::ANNOUNCEMENT, 8, 64, 64);
pub(super) const RENEWAL: Target = of(&fuzzed::RENEWAL, 64, 64, 4096);
pub(super) const ROSTER: Target = of(&fuzzed::ROSTER, 64, 64, 64);
pub(super) const APPOINTMENTS: Target = of(&fuzzed::APPOINTMENTS, 64, 64, 64);
pub(super) const CONTACTS: Target = of(&fuzzed::CONTACTS, 64, 64, 2048);
pub(super) const RECORD_FILE: Target = of(&fuzzed::RECORD_FILE, 64, 32, 1024);
pub(super) const MARK_FILE: Target = of(&fuzzed::MARK_FILE, 16, 1, 4);
