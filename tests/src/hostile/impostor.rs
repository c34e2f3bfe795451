//! A ticket holder that pretends to keep checkpoints of branches which it has made up, with the files of a real one.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use futures::{AsyncReadExt as _, AsyncWriteExt as _, StreamExt as _};
use libp2p::Stream;
use libp2p::identity::Keypair;
use serde_json::Value;
use starling_topology::history::{ViewProof, ViewSearchRequest};
use starling_topology::{Digest, Head, PeerId, RunId, View, ViewId};

use crate::hostile::gossip;
use crate::hostile::ticket_holder::GOSSIP;
use crate::{TicketHolder, eventually};

/// The questions of the `state` protocol that it answers, as they begin.
const CHUNK: u8 = 1;
const NEWEST: u8 = 3;
const CHECKPOINT: u8 = 4;
const VIEW: u8 = 5;
const CHAIN: u8 = 10;

/// What it has said, and what it was asked for.
#[derive(Debug)]
struct Story {
    views: Vec<View>,
    heads: Vec<Head>,
    key: Keypair,
    me: PeerId,
    /// Where the files of the real one are.
    files: PathBuf,
    manifest: Vec<u8>,
    walked: Mutex<BTreeSet<ViewId>>,
    fetched: Mutex<usize>,
}

/// See the module.
#[derive(Debug)]
pub struct Impostor {
    story: Arc<Story>,
    _holder: TicketHolder,
    _gossip: Stream,
    task: tokio::task::JoinHandle<()>,
}

impl Impostor {
    /// At the first peer that the ticket names: with so many branches, in each of which it alone has signed this checkpoint of the folder
    /// `held`, as `starling checkpoint ls` tells it.
    pub async fn at(ticket: &str, branches: u64, held: &Path, checkpoint: &Value) -> Self {
        let key = Keypair::generate_ed25519();
        let me = PeerId(key.public().try_into_ed25519().expect("an Ed25519 key").to_bytes());
        let (mut holder, mut streams) = TicketHolder::serving(&key, ticket, "state").await;
        let run = RunId(holder.run());
        let text = |field: &str| checkpoint[field].as_str().expect("a text").to_owned();
        let (digest, name) = (Digest(bytes(&text("digest"))), Digest(bytes(&text("id"))));
        let step = checkpoint["step"].as_u64().expect("a step");
        let views: Vec<View> = (1..=branches).map(|branch| View::found(run, me).on_branch(branch)).collect();
        let head = |view: &View| Head { run, step, view: view.id(), digest, manifest: name };
        let heads: Vec<Head> = views.iter().map(head).collect();
        let files = held.join("checkpoints");
        let manifest = std::fs::read(find(&files, &format!("{}.json", text("id")))).expect("its file");
        let (walked, fetched) = (Mutex::default(), Mutex::default());
        let story = Arc::new(Story { views, heads, key, me, files, manifest, walked, fetched });
        let told = story.clone();
        let task = tokio::spawn(async move {
            while let Some((_, stream)) = streams.next().await {
                let story = told.clone();
                // Who goes away is answered no more.
                tokio::spawn(async move { drop(story.serve(stream).await) });
            }
        });
        let first = holder.peers()[0];
        let mut gossip = holder.open_foreign(first, GOSSIP).await;
        for (number, head) in story.heads.iter().enumerate() {
            let signed = [&head.encode()[..], &story.sign(head)].concat();
            let frame = gossip::frame(&story.key, &format!("/starling/{run}/heads/1"), &signed, number as u64);
            gossip.write_all(&frame).await.expect("it is read");
        }
        gossip.flush().await.expect("it is read");
        Self { story, _holder: holder, _gossip: gossip, task }
    }

    /// Waits until somebody wanted to be led to each of its branches.
    pub fn wait_until_asked(&self) {
        let is_asked = || self.story.walked.lock().expect("not poisoned").len() >= self.story.views.len();
        eventually("question what leads to each branch", || is_asked().then_some(()));
    }

    /// How often something of a checkpoint was fetched from it.
    pub fn fetched(&self) -> usize {
        *self.story.fetched.lock().expect("not poisoned")
    }
}

impl Drop for Impostor {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Story {
    fn sign(&self, head: &Head) -> Vec<u8> {
        self.key.sign(&head.encode()).expect("an Ed25519 key")
    }

    async fn serve(&self, mut stream: Stream) -> std::io::Result<()> {
        stream.write_all(&[0x2a]).await?;
        stream.flush().await?;
        loop {
            let mut length = [0; 4];
            stream.read_exact(&mut length).await?;
            let mut question = vec![0; u32::from_be_bytes(length) as usize];
            stream.read_exact(&mut question).await?;
            let answer = self.answer(&question);
            let length = u32::try_from(answer.len()).expect("short").to_be_bytes();
            stream.write_all(&[&length[..], &answer].concat()).await?;
            stream.flush().await?;
        }
    }

    fn answer(&self, question: &[u8]) -> Vec<u8> {
        let encoded = |kind: u8, content: Vec<u8>| [&[kind][..], &content].concat();
        let of_bytes = |kind: u8, bytes: &[u8]| encoded(kind, postcard::to_allocvec(bytes).expect("it encodes"));
        let (kind, rest) = question.split_first().expect("a question");
        let id = |from: usize| rest.get(from..from + 32).and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
        match *kind {
            NEWEST => {
                let evidence: Vec<_> = std::iter::zip(&self.views, &self.heads)
                    .map(|(view, head)| (head.encode().to_vec(), view.encode(), vec![(self.me, self.sign(head))]))
                    .collect();
                encoded(5, postcard::to_allocvec(&(false, false, evidence)).expect("it encodes"))
            }
            CHECKPOINT => {
                *self.fetched.lock().expect("not poisoned") += 1;
                of_bytes(2, &self.manifest)
            }
            CHUNK => {
                let name: String = id(32).expect("a name").iter().map(|byte| format!("{byte:02x}")).collect();
                std::fs::read(self.files_of_chunks(&name)).map_or_else(|_| vec![0], |chunk| of_bytes(3, &chunk))
            }
            VIEW => {
                let wanted = id(0).map(ViewId);
                let view = self.views.iter().find(|view| Some(view.id()) == wanted);
                view.map_or_else(|| vec![0], |view| of_bytes(6, &view.encode()))
            }
            CHAIN => {
                let ViewSearchRequest { to, .. } = postcard::from_bytes(rest).expect("a question");
                let legs: Vec<ViewProof> =
                    self.views.iter().filter(|view| view.id() == to).cloned().map(ViewProof::Apart).collect();
                if !legs.is_empty() {
                    self.walked.lock().expect("not poisoned").insert(to);
                }
                encoded(10, postcard::to_allocvec(&legs).expect("they encode"))
            }
            _ => vec![0],
        }
    }

    fn files_of_chunks(&self, name: &str) -> PathBuf {
        find(&self.files, name)
    }
}

/// The file in this folder, or in one in it, whose name ends so.
fn find(folder: &Path, end: &str) -> PathBuf {
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("it is there").map(|entry| entry.expect("it is ours").path()) {
            if entry.is_dir() {
                folders.push(entry);
            } else if entry.to_string_lossy().ends_with(end) {
                return entry;
            }
        }
    }
    PathBuf::from(end)
}

/// What these hexadecimal digits stand for.
fn bytes(digits: &str) -> [u8; 32] {
    std::array::from_fn(|at| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).expect("hexadecimal digits"))
}
