//! Two neighbours that reach each other in several ways: whatever arrives in which order, and whichever way ends when, both
//! ends have the same connections, or both have none.

use std::net::Ipv4Addr;

use tokio::io::{DuplexStream, copy};
use tokio::net::TcpListener;
use tokio_util::compat::TokioAsyncReadCompatExt;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::TransportPolicy::{Auto, Direct, Local, Plaintext};
use crate::fixture::{LIMIT, LOOPBACK, VIEW, endpoint, name_of};
use crate::lane::{Fate, Lane, MESSAGES, Message};

type End = io::Result<Vec<Connection>>;

/// Three of this machine's addresses, of both families if it has both.
async fn addresses() -> [IpAddr; 3] {
    let mut all = [LOOPBACK, Ipv4Addr::new(127, 0, 0, 2).into(), Ipv6Addr::LOCALHOST.into()];
    for ip in &mut all {
        if TcpListener::bind((*ip, 0)).await.is_err() {
            *ip = LOOPBACK;
        }
    }
    all
}

/// Greets over ways with these fates. The opener's outcome is passed on once `meanwhile` is over, too.
async fn greet(mode: TransportPolicy, fates: Vec<Fate>, meanwhile: impl AsyncFnOnce(&[Lane])) -> (End, End) {
    let ((ours, our_peer), (theirs, their_peer)) = (endpoint(mode, &[]), endpoint(mode, &[LOOPBACK]));
    let (near, opener) = tokio::io::duplex(256);
    let (acceptor, far) = tokio::io::duplex(256);
    let open = async move {
        let mut near = near.compat();
        open(&mut near, &ours, their_peer, VIEW, ConnectionCount::ONE, LIMIT).await
    };
    let answer = async move {
        let mut far = far.compat();
        assert_eq!(read_view(&mut far).await.expect("a view"), VIEW);
        answer(&mut far, &theirs, our_peer, VIEW).await
    };
    let (opened, answered, ()) = tokio::join!(open, answer, between(opener, acceptor, fates, meanwhile));
    (opened, answered)
}

/// Passes on what opener and acceptor say to each other, with other addresses.
async fn between(opener: DuplexStream, acceptor: DuplexStream, fates: Vec<Fate>, meanwhile: impl AsyncFnOnce(&[Lane])) {
    let (mut opener, mut acceptor) = (opener.compat(), acceptor.compat());
    let mut greeting = [0; 33];
    opener.read_exact(&mut greeting).await.expect("a greeting");
    acceptor.write_all(&greeting).await.expect("passed on");
    let told = read_addresses(&mut acceptor).await.expect("addresses");
    let mut lanes = Vec::new();
    for (fate, ip) in fates.into_iter().zip(addresses().await) {
        lanes.push(Lane::open(ip, told[0], vec![fate]).await);
    }
    let addresses: Vec<SocketAddr> = lanes.iter().map(|lane| lane.address).collect();
    opener.write_all(&encode(&addresses)).await.expect("passed on");
    let mut count = [0];
    let (heard, ()) = tokio::join!(opener.read_exact(&mut count), meanwhile(&lanes));
    heard.expect("an outcome");
    acceptor.write_all(&count).await.expect("passed on");
    // The rest of it, up to its end. The acceptor may have heard enough before.
    let _ = copy(&mut opener.into_inner(), &mut acceptor.into_inner()).await;
}

/// How the connections that both ends have travel.
fn agreed((opened, answered): (End, End), case: &str) -> Vec<Transport> {
    let [opened, answered] = [opened, answered].map(|end| end.unwrap_or_else(|error| panic!("{case}: {error}")));
    let names = opened.iter().map(name_of).collect::<Vec<_>>();
    assert_eq!(names, answered.iter().map(name_of).collect::<Vec<_>>(), "{case}");
    names.into_iter().map(|(transport, _, _)| transport).collect()
}

fn gate() -> CancellationToken {
    CancellationToken::new()
}

#[tokio::test]
async fn all_ways_are_open() {
    for round in 0..4 {
        for ways in 1..=3 {
            for mode in [Auto, Direct, Plaintext] {
                let case = format!("round {round}, {mode:?} over {ways} ways");
                let ends = greet(mode, vec![Fate::Open; ways], async |_| {}).await;
                assert_eq!(agreed(ends, &case).len(), 1, "{case}");
            }
        }
    }
}

/// The first way is chosen, and the second one while the first has no answer yet.
#[tokio::test]
async fn the_acceptor_takes_another_one_last() {
    for mode in [Auto, Direct, Plaintext] {
        let [answer, ready, choice] = [(); 3].map(|()| gate());
        let first = Fate::Holds(vec![(Message::Answer, answer.clone())]);
        let second = Fate::Holds(vec![(Message::Ready, ready.clone()), (Message::Choice, choice.clone())]);
        let ends = greet(mode, vec![first, second], async |lanes| {
            lanes[0].come(Message::Choice).await;
            ready.cancel();
            lanes[1].come(Message::Choice).await;
            answer.cancel();
            lanes[0].gone(Message::Answer).await;
            choice.cancel();
            lanes[1].come(Message::Answer).await;
        });
        assert_eq!(agreed(ends.await, &format!("{mode:?}")).len(), 1);
    }
}

#[tokio::test]
async fn the_first_choice_arrives_after_the_second() {
    for mode in [Auto, Direct, Plaintext] {
        let [choice, ready] = [(); 2].map(|()| gate());
        let first = Fate::Holds(vec![(Message::Choice, choice.clone())]);
        let second = Fate::Holds(vec![(Message::Ready, ready.clone())]);
        let ends = greet(mode, vec![first, second], async |lanes| {
            lanes[0].come(Message::Choice).await;
            ready.cancel();
            lanes[1].gone(Message::Answer).await;
            choice.cancel();
            lanes[0].come(Message::Answer).await;
        });
        assert_eq!(agreed(ends.await, &format!("{mode:?}")).len(), 1);
    }
}

#[tokio::test]
async fn the_first_answer_arrives_after_the_second() {
    let [answer, ready] = [(); 2].map(|()| gate());
    let first = Fate::Holds(vec![(Message::Answer, answer.clone())]);
    let second = Fate::Holds(vec![(Message::Ready, ready.clone())]);
    let ends = greet(Direct, vec![first, second], async |lanes| {
        lanes[0].come(Message::Choice).await;
        ready.cancel();
        lanes[1].gone(Message::Answer).await;
        answer.cancel();
        lanes[0].gone(Message::Answer).await;
    });
    assert_eq!(agreed(ends.await, "late"), [Transport::Direct]);
}

/// The way that ends is the first one to get as far as that.
#[tokio::test]
async fn one_way_ends_at_each_point() {
    for message in MESSAGES {
        let never = Fate::Holds(vec![(message, gate())]);
        for fate in [Fate::EndsBefore(message), Fate::EndsAfter(message), never] {
            for others in 1..=2 {
                let case = format!("{fate:?}, {others} others");
                let ready = gate();
                let mut fates = vec![Fate::Holds(vec![(Message::Ready, ready.clone())]); others + 1];
                fates[0] = fate.clone();
                let ends = greet(Auto, fates, async |lanes| {
                    lanes[0].come(message).await;
                    ready.cancel();
                });
                assert_eq!(agreed(ends.await, &case).len(), 1, "{case}");
            }
        }
    }
}

#[tokio::test]
async fn the_only_way_ends_at_each_point() {
    for message in MESSAGES {
        for fate in [Fate::EndsBefore(message), Fate::EndsAfter(message)] {
            let case = format!("{fate:?}");
            // What ends after all was said is found out by whoever uses it.
            let is_made = matches!(fate, Fate::EndsAfter(Message::Answer));
            let ends = greet(Auto, vec![fate.clone()], async |_| {}).await;
            assert_eq!(agreed(ends, &case).len(), usize::from(is_made), "{case}");
            if !is_made {
                let (opened, answered) = greet(Direct, vec![fate], async |_| {}).await;
                assert!(opened.is_err() && answered.is_err(), "{case}");
            }
        }
    }
}

#[tokio::test]
async fn ways_that_say_nothing_or_reset_are_passed_over() {
    for mode in [Auto, Direct, Plaintext] {
        let ends = greet(mode, vec![Fate::Silent, Fate::Resets, Fate::Open], async |_| {}).await;
        assert_eq!(agreed(ends, &format!("{mode:?}")).len(), 1);
    }
    let ends = greet(Auto, vec![Fate::Silent, Fate::Resets], async |_| {}).await;
    assert!(agreed(ends, "none is left").is_empty());
}

#[tokio::test]
async fn a_slow_way_is_better_than_none() {
    let ready = gate();
    let slow = Fate::Holds(vec![(Message::Ready, ready.clone())]);
    let ends = greet(Direct, vec![Fate::Resets, slow], async |lanes| {
        lanes[1].come(Message::Ready).await;
        ready.cancel();
    });
    assert_eq!(agreed(ends.await, "slow"), [Transport::Direct]);
}

/// From its second address this machine's system connects to the first one's: two addresses, of which nobody knows that they
/// are one machine's.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn who_insists_on_memory_chooses_until_there_is_some() {
    let ready = gate();
    let other = Fate::Holds(vec![(Message::Ready, ready.clone())]);
    let ends = greet(Local, vec![other, Fate::Open], async |lanes| {
        lanes[1].come(Message::Choice).await;
        ready.cancel();
    });
    assert_eq!(agreed(ends.await, "memory"), [Transport::Local]);
}

#[tokio::test]
async fn a_stream_that_ends_before_the_outcome_leaves_nothing() {
    let ((ours, our_peer), (theirs, their_peer)) = (endpoint(Auto, &[]), endpoint(Auto, &[LOOPBACK]));
    let (near, far) = tokio::io::duplex(256);
    let open = async move {
        let mut near = near.compat();
        near.write_all(&[DIRECT]).await.expect("written");
        let addresses = read_addresses(&mut near).await.expect("told");
        let link_params = ours.link_params(VIEW, their_peer);
        listener::dial(&addresses, &ours.keypair, link_params, LIMIT).await.expect("dialed")
    };
    let mut far = far.compat();
    let ((_made, _), answered) = tokio::join!(open, answer(&mut far, &theirs, our_peer, VIEW));
    answered.expect_err("nobody said what came of it");
}
