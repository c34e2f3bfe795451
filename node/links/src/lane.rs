//! A way to a listener, for tests: knows the messages of a handshake by their lengths, and holds them or ends before them.

use std::io;
use std::net::{IpAddr, SocketAddr};

use futures::future::pending;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

use crate::greeting::handshake::HELLO_BYTES;

/// Of a TLS record.
const HEADER_BYTES: usize = 5;
const APPLICATION_DATA: u8 = 23;
/// What TLS 1.3 adds to what it seals: the kind of content, and the tag.
const SEALED_BYTES: usize = 17;
const PLACE_BYTES: usize = 8;

/// The messages of a handshake after that of TLS, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Message {
    /// The dialer's: what the connection is for.
    Hello,
    Ready,
    /// The dialer's: this attempt it is.
    Choice,
    Answer,
}

pub(crate) const MESSAGES: [Message; 4] = [Message::Hello, Message::Ready, Message::Choice, Message::Answer];

/// What becomes of a connection that takes this way.
#[derive(Debug, Clone)]
pub(crate) enum Fate {
    /// All goes through.
    Open,
    /// It is taken, and nothing is heard of it.
    Silent,
    /// It is reset at once.
    Resets,
    /// It ends in place of this message.
    EndsBefore(Message),
    /// It ends with this message.
    EndsAfter(Message),
    /// These messages wait until their tokens are cancelled, and so does all that comes behind them.
    Holds(Vec<(Message, CancellationToken)>),
}

/// A way to a listener that is open while this exists.
#[derive(Debug)]
pub(crate) struct Lane {
    /// Where it begins.
    pub(crate) address: SocketAddr,
    seen: watch::Receiver<Seen>,
    task: AbortHandle,
}

/// The last message that has come so far, and the last one that has gone through.
#[derive(Debug, Default, Clone, Copy)]
struct Seen {
    come: Option<Message>,
    gone: Option<Message>,
}

impl Lane {
    /// From a port of `ip` to the listener at `to`. The first connection has the first fate, and so on; the last one is for all
    /// that follow.
    pub(crate) async fn open(ip: IpAddr, to: SocketAddr, fates: Vec<Fate>) -> Self {
        let listener = TcpListener::bind((ip, 0)).await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let (tell, seen) = watch::channel(Seen::default());
        let work = async move {
            let mut carried = tokio::task::JoinSet::new();
            let mut fates = fates.into_iter().peekable();
            while let Ok((near, _)) = listener.accept().await {
                let fate = fates.peek().cloned().expect("a fate");
                if fates.len() > 1 {
                    fates.next();
                }
                let tell = tell.clone();
                carried.spawn(async move { carry(near, to, fate, &tell).await });
            }
        };
        Self { address, seen, task: tokio::spawn(work).abort_handle() }
    }

    /// Waits until this message has come to the way's middle, where it may be held.
    pub(crate) async fn come(&self, message: Message) {
        self.seen.clone().wait_for(|seen| seen.come >= Some(message)).await.expect("the lane is open");
    }

    /// Waits until this message has gone through.
    pub(crate) async fn gone(&self, message: Message) {
        self.seen.clone().wait_for(|seen| seen.gone >= Some(message)).await.expect("the lane is open");
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn carry(near: TcpStream, to: SocketAddr, fate: Fate, tell: &watch::Sender<Seen>) -> io::Result<()> {
    match fate {
        Fate::Resets => return near.set_zero_linger(),
        Fate::Silent => return pending().await,
        Fate::Open | Fate::EndsBefore(_) | Fate::EndsAfter(_) | Fate::Holds(_) => {}
    }
    let (mut from_dialer, mut to_dialer) = near.into_split();
    let (mut from_listener, mut to_listener) = TcpStream::connect(to).await?.into_split();
    // If it fails in one direction, it ends in both.
    let there = pass(&mut from_dialer, &mut to_listener, [Message::Hello, Message::Choice], &fate, tell);
    let back = pass(&mut from_listener, &mut to_dialer, [Message::Ready, Message::Answer], &fate, tell);
    tokio::try_join!(there, back).map(drop)
}

/// Passes on TLS records up to the last of these messages, and whatever comes then.
async fn pass(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    messages: [Message; 2],
    fate: &Fate,
    tell: &watch::Sender<Seen>,
) -> io::Result<()> {
    let ended = || io::Error::from(io::ErrorKind::ConnectionAborted);
    for message in messages {
        let bytes = match message {
            Message::Hello => HELLO_BYTES,
            Message::Choice => PLACE_BYTES,
            Message::Ready | Message::Answer => 1,
        };
        loop {
            let mut record = vec![0; HEADER_BYTES];
            from.read_exact(&mut record).await?;
            let length = usize::from(u16::from_be_bytes([record[3], record[4]]));
            record.resize(HEADER_BYTES + length, 0);
            from.read_exact(&mut record[HEADER_BYTES..]).await?;
            let is_message = record[0] == APPLICATION_DATA && length == bytes + SEALED_BYTES;
            if is_message {
                tell.send_modify(|seen| seen.come = seen.come.max(Some(message)));
                match fate {
                    Fate::EndsBefore(last) if *last == message => return Err(ended()),
                    Fate::Holds(held) => {
                        for (_, until) in held.iter().filter(|(held, _)| *held == message) {
                            until.cancelled().await;
                        }
                    }
                    Fate::Open | Fate::Silent | Fate::Resets | Fate::EndsBefore(_) | Fate::EndsAfter(_) => {}
                }
            }
            to.write_all(&record).await?;
            if is_message {
                tell.send_modify(|seen| seen.gone = seen.gone.max(Some(message)));
                if matches!(fate, Fate::EndsAfter(last) if *last == message) {
                    return Err(ended());
                }
                break;
            }
        }
    }
    copy(from, to).await?;
    to.shutdown().await
}
