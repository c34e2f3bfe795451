//! One who holds a ticket, and asks to be a leaf that it is not.

use std::time::Duration;

use futures::{AsyncReadExt as _, AsyncWriteExt as _};
use libp2p::Stream;
use libp2p::identity::Keypair;
use starling_topology::message::leaf::MAX_LEAF_BODY_BYTES;
use starling_topology::{CarrierBody, LeafBody, RunId};

use crate::TicketHolder;

/// How long it waits for an answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a carrier has given to compute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GivenWork {
    /// To name the answer with.
    pub number: u64,
    /// The step.
    pub step: u64,
    /// The samples, as positions.
    pub ranges: Vec<std::ops::Range<u32>>,
}

impl GivenWork {
    /// How many samples it has.
    pub fn samples(&self) -> u64 {
        self.ranges.iter().map(|range| u64::from(range.end - range.start)).sum()
    }

    /// The right answer but for its numbers, of which there are so many.
    pub fn answer(&self, elements: u64) -> LeafBody {
        let Self { number, step, .. } = *self;
        LeafBody::Gradient { number, step, weight: self.samples(), ranges: self.ranges.clone(), elements }
    }
}

/// One that says what it likes over the stream of a leaf.
#[derive(Debug)]
pub struct LeafLiar {
    holder: TicketHolder,
    key: Keypair,
    stream: Stream,
}

impl LeafLiar {
    /// A fresh one, with a stream to the first peer that the ticket names.
    pub async fn beside(ticket: &str) -> Self {
        let key = Keypair::generate_ed25519();
        let mut holder = TicketHolder::admitted_by_first(&key, ticket).await;
        let stream = holder.open("leaf").await;
        Self { holder, key, stream }
    }

    /// Its name, as processes tell it.
    pub fn name(&self) -> String {
        self.key.public().to_peer_id().to_string()
    }

    /// Asks anew, over a new stream.
    pub async fn open_again(&mut self) {
        self.stream = self.holder.open("leaf").await;
    }

    /// Asks to be a leaf.
    pub async fn attach(&mut self) {
        let run = RunId(self.holder.run());
        self.say(&LeafBody::Attach { run, progress: None }).await;
    }

    /// Says this.
    pub async fn say(&mut self, body: &LeafBody) {
        let bytes = body.encode();
        let length = u32::try_from(bytes.len()).expect("short").to_be_bytes();
        self.write(&[&length[..], &bytes].concat()).await;
    }

    /// Sends these bytes, as far as they are read.
    pub async fn write(&mut self, bytes: &[u8]) {
        let written = async {
            self.stream.write_all(bytes).await?;
            self.stream.flush().await
        };
        let _ = tokio::time::timeout(Duration::from_secs(5), written).await;
    }

    /// What the carrier says next; `None` once it has closed the stream.
    pub async fn hear(&mut self) -> Option<CarrierBody> {
        let heard = async {
            let mut length = [0; 4];
            self.stream.read_exact(&mut length).await.ok()?;
            let length = usize::try_from(u32::from_be_bytes(length)).expect("it fits");
            assert!(length <= MAX_LEAF_BODY_BYTES, "{length}");
            let mut bytes = vec![0; length];
            self.stream.read_exact(&mut bytes).await.ok()?;
            let body = CarrierBody::decode(&bytes).expect("a carrier says what it may");
            if let CarrierBody::Result { bytes, .. } = body {
                let mut record = vec![0; usize::try_from(bytes).expect("short")];
                self.stream.read_exact(&mut record).await.ok()?;
            }
            Some(body)
        };
        tokio::time::timeout(PATIENCE, heard).await.expect("a carrier says something, or closes")
    }

    /// Attaches, claims to hold the state that it is to load, and hears until it is given something to compute.
    pub async fn is_given(&mut self) -> GivenWork {
        self.attach().await;
        self.waits_for_work().await
    }

    /// The same once it is attached.
    pub async fn waits_for_work(&mut self) -> GivenWork {
        loop {
            match self.hear().await.expect("it is attached") {
                CarrierBody::Start { number, step, .. } => {
                    self.say(&LeafBody::Applied { start: number, step, digest: None }).await;
                }
                CarrierBody::Work { number, step, ranges, .. } => return GivenWork { number, step, ranges },
                _ => {}
            }
        }
    }

    /// Hears until the stream is closed.
    pub async fn is_let_go(&mut self) {
        while self.hear().await.is_some() {}
    }
}
