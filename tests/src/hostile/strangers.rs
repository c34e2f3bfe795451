//! Many who know where a process listens, and nothing else.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::AsyncWriteExt as _;
use libp2p::core::upgrade::OutboundConnectionUpgrade as _;
use libp2p::identity::Keypair;
use tokio::io::{AsyncReadExt, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream, UdpSocket};
use tokio::runtime::Runtime;
use tokio_util::compat::TokioAsyncReadCompatExt as _;

use crate::hostile::datagrams;
use crate::hostile::initials::initials;

/// Between two bytes of one who is slow, and before one who was put out comes again.
const PAUSE: Duration = Duration::from_millis(50);
/// Between two datagrams of one.
const DATAGRAM_PAUSE: Duration = Duration::from_secs(1);
/// What one who babbles says at most, in bytes.
const TIRADE: usize = 16 << 20;
/// How long all may take to be there.
const PATIENCE: Duration = Duration::from_secs(60);
/// How a TLS client begins, as a record of 512 bytes.
const HELLO: [u8; 11] = [0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc, 0x03, 0x03];

/// What they do.
#[derive(Debug, Clone, Copy)]
enum Manner {
    /// Connects and says nothing.
    Silent,
    /// Begins to encrypt, a byte at a time.
    Slow,
    /// Says much that means nothing.
    Babbling,
    /// Encrypts as a peer does, and then says much that means nothing.
    Encrypting,
}

const MANNERS: [Manner; 4] = [Manner::Silent, Manner::Slow, Manner::Babbling, Manner::Encrypting];

/// Strangers that come again and again until they are dropped.
#[derive(Debug)]
pub struct Strangers {
    runtime: Option<Runtime>,
    came: Arc<AtomicUsize>,
    count: usize,
}

/// Where the stranger of this number comes from, of these networks.
fn home(networks: &[[u8; 3]], number: usize) -> Ipv4Addr {
    let [a, b, c] = networks[number % networks.len()];
    // The first address is for those who belong here.
    Ipv4Addr::new(a, b, c, 2 + u8::try_from(number / networks.len() % 250).expect("invariant: less than 250"))
}

fn thread() -> Runtime {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    runtime.expect("a thread for them")
}

impl Strangers {
    /// So many over QUIC, in turn from each of these networks. All begin with a datagram of their own and babble after it.
    pub fn visit_quic(target: SocketAddr, networks: &[[u8; 3]], count: usize) -> Self {
        let (runtime, came) = (thread(), Arc::new(AtomicUsize::new(0)));
        for (number, initial) in runtime.block_on(initials(count)).into_iter().enumerate() {
            let (from, manner) = (home(networks, number), datagrams::MANNERS[number / networks.len() % MANNERS.len()]);
            let came = came.clone();
            runtime.spawn(async move {
                let (mut is_first, mut pause) = (true, tokio::time::interval(DATAGRAM_PAUSE));
                let socket = UdpSocket::bind((from, 0)).await.expect("a port");
                let stranger = datagrams::Stranger::new(from);
                loop {
                    pause.tick().await;
                    let sent = socket.send_to(&initial, target).await.and(socket.send_to(&[0xa5; 1200], target).await);
                    if sent.is_ok() && std::mem::take(&mut is_first) {
                        came.fetch_add(1, Ordering::Relaxed);
                    }
                    if !matches!(manner, datagrams::Manner::Deaf) {
                        // However it ends: it was put out.
                        let _ = stranger.act(manner, target).await;
                    }
                }
            });
        }
        Self { runtime: Some(runtime), came, count }
    }

    /// So many at once, in turn from each of these networks of 256 addresses of this machine.
    pub fn visit(target: SocketAddr, networks: &[[u8; 3]], count: usize) -> Self {
        let (runtime, came) = (thread(), Arc::new(AtomicUsize::new(0)));
        for number in 0..count {
            let (from, manner) = (home(networks, number), MANNERS[number / networks.len() % MANNERS.len()]);
            let came = came.clone();
            runtime.spawn(async move {
                let (mut is_first, mut pause) = (true, tokio::time::interval(PAUSE));
                loop {
                    pause.tick().await;
                    if let Ok(stream) = connect(from, target).await {
                        if std::mem::take(&mut is_first) {
                            came.fetch_add(1, Ordering::Relaxed);
                        }
                        // However it ends: it was put out.
                        let _ = act(manner, stream).await;
                    }
                }
            });
        }
        Self { runtime: Some(runtime), came, count }
    }

    /// Waits until each has been there.
    pub fn wait_until_all_came(&self) {
        let deadline = Instant::now() + PATIENCE;
        while self.came.load(Ordering::Relaxed) < self.count {
            assert!(
                Instant::now() < deadline,
                "only {} of {} strangers came",
                self.came.load(Ordering::Relaxed),
                self.count
            );
            std::thread::yield_now();
        }
    }
}

impl Drop for Strangers {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn connect(from: Ipv4Addr, target: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    // They live on one machine with those who belong here, and dial from ports of their own. No port is to be taken from these.
    socket.set_reuseaddr(true)?;
    socket.bind((from, 0).into())?;
    socket.connect(target).await
}

async fn act(manner: Manner, mut stream: TcpStream) -> std::io::Result<()> {
    match manner {
        Manner::Silent => {}
        Manner::Slow => {
            let mut pause = tokio::time::interval(PAUSE);
            for byte in HELLO.into_iter().chain([0; 500]) {
                pause.tick().await;
                stream.write_all(&[byte]).await?;
            }
        }
        Manner::Babbling => {
            stream.write_all(&HELLO).await?;
            let noise = vec![0xa5; 64 * 1024];
            for _ in 0..TIRADE / noise.len() {
                stream.write_all(&noise).await?;
            }
        }
        Manner::Encrypting => {
            let tls = libp2p::tls::Config::new(&Keypair::generate_ed25519()).map_err(std::io::Error::other)?;
            let (_, mut encrypted) = tls.upgrade_outbound(stream.compat(), "").await.map_err(std::io::Error::other)?;
            let noise = vec![0xa5; 64 * 1024];
            for _ in 0..TIRADE / noise.len() {
                encrypted.write_all(&noise).await?;
                encrypted.flush().await?;
            }
            return futures::AsyncReadExt::read(&mut encrypted, &mut [0]).await.map(|_| ());
        }
    }
    stream.read(&mut [0]).await.map(|_| ())
}
