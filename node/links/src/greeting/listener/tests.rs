//! One peer gets in; strangers neither do nor keep it out.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::fixture::{LIMIT, LOOPBACK, accept, key, link_params, name_of};
use crate::lane::{Fate, Lane, MESSAGES};

#[tokio::test]
async fn strangers_are_dropped_and_the_neighbour_gets_in() {
    let ((ours, our_peer), (theirs, their_peer), (stranger, _)) = (key(), key(), key());
    let listener = Listener::bind(&[LOOPBACK]).await;
    let addresses = listener.addresses();
    let (address, expected) = (addresses[0], link_params(our_peer));
    let accepting = accept(&listener, &theirs, expected);
    let visits = async {
        // The silent ones hold all places, and one more finds none. Each sees its connection end, at the deadline or
        // at once.
        let mut silent = Vec::new();
        for _ in 0..=MAX_PENDING {
            silent.push(TcpStream::connect(address).await.expect("connected"));
        }
        for stream in &mut silent {
            assert_eq!(stream.read(&mut [0]).await.expect("closed in order"), 0);
        }
        let mut rude = TcpStream::connect(address).await.expect("connected");
        rude.write_all(b"GET / HTTP/1.1\r\n\r\n").await.expect("written");
        let mut alert = Vec::new();
        // A reset says no as well as an alert does.
        let _ = rude.read_to_end(&mut alert).await;
        assert!(alert.len() < 64, "{alert:?}");
        dial(&addresses, &stranger, link_params(their_peer), LIMIT).await.expect_err("a stranger");
        dial(&addresses, &ours, link_params(their_peer), LIMIT).await
    };
    let (accepted, dialed) = tokio::join!(accepting, visits);
    assert_eq!(accepted.expect("in").secret, dialed.expect("in").0.secret);
}

#[tokio::test]
async fn one_address_that_answers_is_enough() {
    let ((ours, our_peer), (theirs, their_peer)) = (key(), key());
    let (listener, closed) = (Listener::bind(&[LOOPBACK]).await, Listener::bind(&[LOOPBACK]).await);
    let addresses = [closed.addresses(), listener.addresses()].concat();
    drop(closed);
    let (accepted, dialed) = tokio::join!(
        accept(&listener, &theirs, link_params(our_peer)),
        dial(&addresses, &ours, link_params(their_peer), LIMIT)
    );
    assert_eq!(accepted.expect("in").secret, dialed.expect("in").0.secret);
}

#[tokio::test]
async fn further_connections_have_names_and_secrets_of_their_own() {
    let ((ours, our_peer), (theirs, their_peer), (stranger, _)) = (key(), key(), key());
    let listener = Listener::bind(&[LOOPBACK]).await;
    let addresses = listener.addresses();
    let mut acceptor = listener.acceptor(&theirs, link_params(our_peer)).expect("it has sockets");
    let accepting = async {
        let mut accepted = Vec::new();
        for _ in 0..MAX_PARALLEL {
            accepted.push(name_of(&acceptor.next().await));
        }
        accepted
    };
    let dialing = async {
        let (first, _) = dial(&addresses, &ours, link_params(their_peer), LIMIT).await.expect("in");
        let none = dial_beside((&first, true), &stranger, link_params(their_peer), 3, LIMIT).await;
        assert!(none.is_empty(), "a stranger");
        // More than there can be.
        let beside = dial_beside((&first, true), &ours, link_params(their_peer), u8::MAX, LIMIT).await;
        std::iter::once(&first).chain(&beside).map(name_of).collect()
    };
    let (mut accepted, mut dialed): (Vec<_>, Vec<_>) = tokio::join!(accepting, dialing);
    accepted.sort_unstable_by_key(|(_, attempt, _)| *attempt);
    dialed.sort_unstable_by_key(|(_, attempt, _)| *attempt);
    assert_eq!(accepted, dialed);
    assert_eq!(distinct(&dialed, |(_, attempt, _)| *attempt), MAX_PARALLEL);
    assert_eq!(distinct(&dialed, |(_, _, secret)| *secret), MAX_PARALLEL);
}

fn distinct<T, K: Ord>(all: &[T], key: impl Fn(&T) -> K) -> usize {
    all.iter().map(key).collect::<std::collections::BTreeSet<_>>().len()
}

#[tokio::test]
async fn a_further_connection_that_ends_on_the_way_is_one_less() {
    for message in MESSAGES {
        let ((ours, our_peer), (theirs, their_peer)) = (key(), key());
        let listener = Listener::bind(&[LOOPBACK]).await;
        let fates = vec![Fate::Open, Fate::EndsBefore(message), Fate::Open, Fate::Resets, Fate::Open];
        let lane = Lane::open(LOOPBACK, listener.addresses()[0], fates).await;
        let mut acceptor = listener.acceptor(&theirs, link_params(our_peer)).expect("it has sockets");
        let dialing = async {
            let (first, _) = dial(&[lane.address], &ours, link_params(their_peer), LIMIT).await.expect("in");
            let beside = dial_beside((&first, true), &ours, link_params(their_peer), 5, LIMIT).await;
            std::iter::once(&first).chain(&beside).map(name_of).collect::<Vec<_>>()
        };
        let mut accepted = Vec::new();
        let dialed = {
            let mut dialing = std::pin::pin!(dialing);
            loop {
                tokio::select! {
                    dialed = &mut dialing => break dialed,
                    connection = acceptor.next() => accepted.push(name_of(&connection)),
                }
            }
        };
        assert_eq!(dialed.len(), 3, "before {message:?}");
        while !dialed.iter().all(|name| accepted.contains(name)) {
            accepted.push(name_of(&acceptor.next().await));
        }
    }
}

#[tokio::test]
async fn the_neighbour_may_try_as_often_as_it_needs_to_and_no_more() {
    let ((ours, our_peer), (theirs, their_peer)) = (key(), key());
    let listener = Listener::bind(&[LOOPBACK]).await;
    let addresses = listener.addresses();
    let mut acceptor = listener.acceptor(&theirs, link_params(our_peer)).expect("it has sockets");
    let dialing = async {
        let mut kept = Vec::new();
        for _ in 0..MAX_ATTEMPTS {
            kept.push(connect(addresses[0], &ours, link_params(their_peer), true).await.expect("ready").0);
        }
        let (more, _) = connect(addresses[0], &ours, link_params(their_peer), true).await.expect("ready");
        more.choose(true).await.expect_err("one too many");
        // Whoever comes too often does not spoil what was ready before.
        kept.pop().expect("many").choose(true).await.expect("taken")
    };
    let (accepted, dialed) = tokio::join!(acceptor.next(), dialing);
    assert_eq!(name_of(&accepted), name_of(&dialed));
}

#[tokio::test]
async fn without_an_address_there_is_no_connection() {
    let (ours, peer) = key();
    let nowhere = Listener::bind(&[IpAddr::from([192, 0, 2, 1])]).await;
    assert!(nowhere.addresses().is_empty(), "an address that is not ours");
    assert!(matches!(accept(&nowhere, &ours, link_params(peer)).await, Err(ConnectionError::Unreachable)));
    assert!(matches!(dial(&[], &ours, link_params(peer), LIMIT).await, Err(ConnectionError::Unreachable)));
}

#[tokio::test]
async fn a_listener_that_says_nothing_is_given_up() {
    let (ours, peer) = key();
    let silent = TcpListener::bind((LOOPBACK, 0)).await.expect("a free port");
    let addresses = [silent.local_addr().expect("bound")];
    let dialed = dial(&addresses, &ours, link_params(peer), Duration::from_millis(20)).await;
    assert!(matches!(dialed, Err(ConnectionError::Late)), "{dialed:?}");
}
