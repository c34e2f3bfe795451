//! Those who hold a ticket and are in no view: what they send takes bounded memory and time.

use std::time::Duration;

use futures::{AsyncReadExt, AsyncWriteExt};
use starling_tests::{Peer, PeerOptions, TicketHolder};

/// What a hostile peer may make a process grow by, in bytes.
const MEMORY: u64 = 32 << 20;
/// The longest message, in bytes.
const LONGEST: u32 = 2 << 20;
const PATIENCE: Duration = Duration::from_secs(90);

#[test]
fn half_messages_of_many_take_little_memory() {
    let founder = Peer::run(&PeerOptions::flags("--min-peers 2 --steps 50 --max-stall 5s"));
    let ticket = founder.ticket();
    let [before, _] = founder.memory();
    let runtime = tokio::runtime::Runtime::new().expect("threads");
    let holders = runtime.block_on(async {
        let mut holders = Vec::new();
        let mut streams = tokio::task::JoinSet::new();
        // Each may have 2 MiB on the way to a message: as many as keep a margin for what else the process takes meanwhile.
        for _ in 0..12 {
            let mut holder = TicketHolder::admitted(&ticket).await;
            for _ in 0..4 {
                let mut stream = holder.open("control").await;
                streams.spawn(async move {
                    let message = [&LONGEST.to_be_bytes()[..], &vec![0; LONGEST as usize - 1]].concat();
                    // All but its last byte; then it is put out, however far it has come.
                    let _ = stream.write_all(&message).await;
                    let _ = stream.flush().await;
                    let _ = stream.read(&mut [0]).await;
                });
            }
            holders.push(holder);
        }
        let all_are_put_out = async { while streams.join_next().await.is_some() {} };
        tokio::time::timeout(PATIENCE, all_are_put_out).await.expect("no message may stay half for ever");
        holders
    });
    let [_, most] = founder.memory();
    assert!(most < before + MEMORY, "half messages take {} KiB", (most - before) >> 10);
    let joiner = Peer::join(&ticket, &PeerOptions::flags(""));
    assert_eq!(joiner.finish().summary()["digest"], founder.finish().summary()["digest"]);
    drop(holders);
}
