//! A leaf's stream to a member: one task that opens it, writes and reads.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::{AsyncReadExt, AsyncWriteExt};
use libp2p::StreamProtocol;
use libp2p_stream::Control;
use starling_run::ResultRecord;
use starling_topology::{CarrierBody, LeafBody, PeerId};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::wire::{self, ReadEnd, ResultShape};
use crate::credentials::identity::to_libp2p;
use crate::net::streams;

/// Messages that wait for the carrier. Its machine answers each, so that they are few.
const MAX_WAITING: usize = 256;

/// What happened on a link.
#[derive(Debug)]
pub(super) struct LinkEvent {
    pub(super) peer: PeerId,
    /// Of the link.
    pub(super) number: u64,
    pub(super) what: Result<(CarrierBody, Option<Arc<ResultRecord>>), ReadEnd>,
}

/// A stream, or one on its way.
#[derive(Debug)]
pub(super) struct CarrierLink {
    /// Tells it from an earlier one to the same member.
    pub(super) number: u64,
    queue: mpsc::Sender<(LeafBody, Vec<f32>)>,
    task: JoinHandle<()>,
}

impl CarrierLink {
    /// Opens the stream; messages wait until it is there. Opening may take a quarter of `stall`, and each message all of it.
    pub(super) fn open(
        mut control: Control,
        protocol: StreamProtocol,
        (peer, number): (PeerId, u64),
        (shape, stall): (ResultShape, Duration),
        events: mpsc::Sender<LinkEvent>,
    ) -> Self {
        let (queue, mut waiting) = mpsc::channel::<(LeafBody, Vec<f32>)>(MAX_WAITING);
        let task = tokio::spawn(async move {
            let tell = |what| events.send(LinkEvent { peer, number, what });
            let opened = streams::open(&mut control, to_libp2p(peer), &protocol, stall / 4).await;
            let (mut reader, mut writer) = match opened {
                Ok(stream) => stream.split(),
                Err(error) => {
                    let _ = tell(Err(ReadEnd::Closed(error))).await;
                    return;
                }
            };
            let writes = async {
                while let Some((body, numbers)) = waiting.recv().await {
                    wire::write_leaf(&mut writer, &body, numbers, stall).await?;
                }
                let closed: io::Result<()> = timeout(stall, writer.close()).await?;
                closed
            };
            let reads = async {
                loop {
                    let read = wire::read_carrier(&mut reader, shape, stall).await;
                    let is_over = read.is_err();
                    if tell(read).await.is_err() || is_over {
                        return;
                    }
                }
            };
            tokio::select! {
                // All is said: what comes is of no use any more.
                written = writes => {
                    if let Err(error) = written {
                        let _ = tell(Err(ReadEnd::Closed(error))).await;
                    }
                }
                () = reads => {}
            }
        });
        Self { number, queue, task }
    }

    /// Queues a message; false if nothing more gets there.
    pub(super) fn send(&self, body: LeafBody, numbers: Vec<f32>) -> bool {
        self.queue.try_send((body, numbers)).is_ok()
    }

    /// Closes the stream once all is written.
    pub(super) fn close(self) -> JoinHandle<()> {
        self.task
    }
}
