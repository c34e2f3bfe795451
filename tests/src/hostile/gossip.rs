//! What one says by gossip in the names of many: gossipsub's messages, made by hand.
//!
//! ```text
//!   frame    length, varint | RPC
//!   RPC      2: message
//!   message  1: author's id | 2: data | 3: number, u64, big-endian | 4: topic | 5: the author's signature of these
//! ```

use libp2p::identity::Keypair;

/// What a signature says first.
const PURPOSE: &[u8] = b"libp2p-pubsub:";

/// The frame in which `author` says `data` to those who follow `topic`.
pub(crate) fn frame(author: &Keypair, topic: &str, data: &[u8], number: u64) -> Vec<u8> {
    let author_id = author.public().to_peer_id().to_bytes();
    let number = number.to_be_bytes();
    let fields = [(1, &author_id[..]), (2, data), (3, &number), (4, topic.as_bytes())];
    let mut message = Vec::new();
    fields.into_iter().for_each(|(tag, content)| push(&mut message, tag, content));
    let signature = author.sign(&[PURPOSE, &message].concat()).expect("an Ed25519 key");
    push(&mut message, 5, &signature);
    let mut rpc = Vec::new();
    push(&mut rpc, 2, &message);
    let mut frame = Vec::new();
    varint(&mut frame, rpc.len());
    frame.extend_from_slice(&rpc);
    frame
}

/// A field of Protocol Buffers whose length is told.
fn push(to: &mut Vec<u8>, tag: u8, content: &[u8]) {
    to.push(tag << 3 | 2);
    varint(to, content.len());
    to.extend_from_slice(content);
}

fn varint(to: &mut Vec<u8>, mut value: usize) {
    while value >= 0x80 {
        to.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}
