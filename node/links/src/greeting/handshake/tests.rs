//! Who gets through a handshake, and who does not.

use rustls::client::ResolvesClientCert;
use rustls::sign::CertifiedKey;

use super::*;
use crate::fixture::{key, link_params, sockets};

type Ends = (Result<Connection, ConnectionError>, Result<Connection, ConnectionError>);

/// Both ends, each with its own idea of what the connection is for.
async fn shake(dialer: (&Keypair, LinkParams), listener: (&Keypair, LinkParams)) -> Ends {
    let (ours, theirs) = sockets().await;
    let config = listener_config(listener.0).expect("a certificate");
    tokio::join!(async { connect(ours, dialer.0, dialer.1).await?.choose(true).await }, async {
        accept(theirs, config, listener.1).await?.chosen().await
    })
}

#[tokio::test]
async fn neighbours_agree_on_a_secret_of_their_own() {
    let ((ours, our_peer), (theirs, their_peer)) = (key(), key());
    let mut secrets = Vec::new();
    for view in [ViewId([2; 32]), ViewId([3; 32])] {
        let link_params = |peer| LinkParams { view, ..link_params(peer) };
        let (dialed, accepted) = shake((&ours, link_params(their_peer)), (&theirs, link_params(our_peer))).await;
        let (dialed, accepted) = (dialed.expect("through"), accepted.expect("through"));
        assert_eq!(dialed.secret, accepted.secret);
        secrets.push(dialed.secret);
    }
    assert_ne!(secrets[0], secrets[1]);
    assert!(!secrets.contains(&Secret::default()));
}

#[tokio::test]
async fn another_listener_than_the_neighbour_is_refused() {
    let ((ours, our_peer), (stranger, _), (_, neighbour)) = (key(), key(), key());
    let (dialed, accepted) = shake((&ours, link_params(neighbour)), (&stranger, link_params(our_peer))).await;
    assert!(matches!(dialed, Err(ConnectionError::Tls(_))), "{dialed:?}");
    assert!(accepted.is_err());
}

#[tokio::test]
async fn another_dialer_than_the_neighbour_is_refused() {
    let ((stranger, _), (theirs, their_peer), (_, neighbour)) = (key(), key(), key());
    let (dialed, accepted) = shake((&stranger, link_params(their_peer)), (&theirs, link_params(neighbour))).await;
    assert!(matches!(accepted, Err(ConnectionError::OtherPeer)), "{accepted:?}");
    assert!(dialed.is_err());
}

#[tokio::test]
async fn another_view_is_refused() {
    let ((ours, our_peer), (theirs, their_peer)) = (key(), key());
    let older = LinkParams { view: ViewId([1; 32]), ..link_params(their_peer) };
    let (dialed, accepted) = shake((&ours, older), (&theirs, link_params(our_peer))).await;
    assert!(matches!(accepted, Err(ConnectionError::OtherView)), "{accepted:?}");
    assert!(dialed.is_err());
}

#[tokio::test]
async fn another_run_shares_no_secret() {
    let ((ours, our_peer), (theirs, their_peer)) = (key(), key());
    let other = LinkParams { run: RunId([9; 32]), ..link_params(their_peer) };
    let (dialed, accepted) = shake((&ours, other), (&theirs, link_params(our_peer))).await;
    assert_ne!(dialed.expect("one view").secret, accepted.expect("one view").secret);
}

#[derive(Debug)]
struct NoCertificate;

impl ResolvesClientCert for NoCertificate {
    fn resolve(&self, _: &[&[u8]], _: &[rustls::SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        None
    }

    fn has_certs(&self) -> bool {
        false
    }
}

#[tokio::test]
async fn a_dialer_without_a_certificate_is_refused() {
    let ((ours, our_peer), (theirs, their_peer)) = (key(), key());
    let mut config = tls::make_client_config(&ours, Some(to_libp2p(their_peer))).expect("a certificate");
    config.client_auth_cert_resolver = Arc::new(NoCertificate);
    let (dialed, accepted) = sockets().await;
    let (dialed, accepted) = tokio::join!(
        connect_with(dialed, config, link_params(their_peer)),
        accept(accepted, listener_config(&theirs).expect("a certificate"), link_params(our_peer))
    );
    assert!(matches!(accepted, Err(ConnectionError::Tls(_))), "{accepted:?}");
    assert!(dialed.is_err());
}

#[tokio::test]
async fn libp2p_itself_is_refused() {
    // A connection of the control plane that strays here proves the right peer, but means something else.
    let ((ours, our_peer), (theirs, their_peer)) = (key(), key());
    let config = tls::make_client_config(&ours, Some(to_libp2p(their_peer))).expect("a certificate");
    let (dialed, accepted) = sockets().await;
    let name = ServerName::IpAddress(dialed.peer_addr().expect("connected").ip().into());
    let tls = rustls::ClientConnection::new(Arc::new(config), name).expect("a session");
    let mut session = Session { stream: dialed, tls: tls.into() };
    let (shaken, accepted) = tokio::join!(
        session.shake(their_peer),
        accept(accepted, listener_config(&theirs).expect("a certificate"), link_params(our_peer))
    );
    assert!(accepted.is_err());
    assert!(shaken.is_err());
}

#[tokio::test]
async fn bytes_that_are_no_handshake_are_refused() {
    let (theirs, peer) = key();
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 5000], &[0x16, 3, 1, 0xff, 0xff], b""] {
        let (mut dialed, accepted) = sockets().await;
        dialed.write_all(garbage).await.expect("written");
        drop(dialed);
        let config = listener_config(&theirs).expect("a certificate");
        accept(accepted, config, link_params(peer)).await.expect_err("no handshake");
    }
}

fn is_local(connection: &Connection) -> bool {
    matches!(connection.protection, Protection::Local(_))
}

#[tokio::test]
async fn neighbours_on_one_machine_share_memory_if_both_may() {
    use TransportPolicy::{Auto, Direct, Local};
    for (dialer, listener, expected) in
        [(Auto, Auto, true), (Auto, Local, true), (Auto, Direct, false), (Direct, Auto, false)]
    {
        let ((ours, our_peer), (theirs, their_peer)) = (key(), key());
        let (dialed, accepted) = shake(
            (&ours, LinkParams { mode: dialer, ..link_params(their_peer) }),
            (&theirs, LinkParams { mode: listener, ..link_params(our_peer) }),
        )
        .await;
        let (dialed, accepted) = (dialed.expect("through"), accepted.expect("through"));
        let case = format!("{dialer:?} to {listener:?}");
        assert_eq!((is_local(&dialed), is_local(&accepted)), (expected, expected), "{case}");
    }
}

#[tokio::test]
async fn who_insists_on_memory_gets_nothing_else() {
    let ((ours, our_peer), (theirs, their_peer)) = (key(), key());
    let (dialed, accepted) = shake(
        (&ours, LinkParams { mode: TransportPolicy::Local, ..link_params(their_peer) }),
        (&theirs, LinkParams { mode: TransportPolicy::Direct, ..link_params(our_peer) }),
    )
    .await;
    assert!(matches!(dialed, Err(ConnectionError::NotLocal)), "{dialed:?}");
    assert_eq!(accepted.expect("no objection").transport(), Transport::Direct);
}

#[tokio::test]
async fn both_ends_must_want_no_encryption() {
    let ((ours, our_peer), (theirs, their_peer)) = (key(), key());
    let plain = |peer| LinkParams { mode: TransportPolicy::Plaintext, ..link_params(peer) };
    let (dialed, accepted) = shake((&ours, plain(their_peer)), (&theirs, plain(our_peer))).await;
    assert_eq!(dialed.expect("through").transport(), Transport::Plaintext);
    assert_eq!(accepted.expect("through").transport(), Transport::Plaintext);
    let (dialed, accepted) = shake((&ours, plain(their_peer)), (&theirs, link_params(our_peer))).await;
    assert!(dialed.is_err() && accepted.is_err(), "{dialed:?} {accepted:?}");
    let (dialed, accepted) = shake((&ours, link_params(their_peer)), (&theirs, plain(our_peer))).await;
    assert!(dialed.is_err() && accepted.is_err(), "{dialed:?} {accepted:?}");
}
