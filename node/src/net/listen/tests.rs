use std::net::{TcpListener, UdpSocket};

use super::*;

fn addresses(texts: &[&str]) -> Vec<Multiaddr> {
    texts.iter().map(|text| text.parse().expect("a multiaddr")).collect()
}

fn texts(addresses: &[Multiaddr]) -> Vec<String> {
    addresses.iter().map(ToString::to_string).collect()
}

#[test]
fn a_peer_that_may_listen_anywhere_listens_where_it_did() {
    let wanted = addresses(&[
        "/ip4/0.0.0.0/tcp/0",
        "/ip6/::/tcp/0",
        "/ip4/0.0.0.0/udp/0/quic-v1",
        "/ip6/::/udp/0/quic-v1",
        "/ip4/127.0.0.1/tcp/7",
    ]);
    let before = ["/ip4/127.0.0.1/udp/5/quic-v1", "nonsense", "/ip6/::1/tcp/6", "/ip4/127.0.0.1/tcp/4"];
    let filled = Places::new(&wanted).with_ports_of(&before.map(str::to_owned));
    let expected = [
        "/ip4/0.0.0.0/tcp/4",
        "/ip6/::/tcp/6",
        "/ip4/0.0.0.0/udp/5/quic-v1",
        "/ip6/::/udp/0/quic-v1",
        "/ip4/127.0.0.1/tcp/7",
    ];
    assert_eq!(texts(&filled.addresses), expected);
    assert_eq!(Places::new(&wanted).with_ports_of(&[]).addresses, wanted);
}

#[test]
fn only_sockets_are_listened_on() {
    for good in EVERYWHERE {
        socket(&addresses(&[good])[0]).expect("good");
    }
    for bad in [
        "/dns4/localhost/tcp/0",
        "/ip4/127.0.0.1",
        "/tcp/80/http",
        "/ip4/127.0.0.1/udp/1",
        "/ip4/127.0.0.1/tcp/1/ws",
        "/ip4/127.0.0.1/udp/1/quic",
    ] {
        let reason = socket(&addresses(&[bad])[0]).expect_err("bad");
        assert!(reason.contains(bad) && reason.contains("/ip4/<address>/tcp/<port>"), "{reason}");
    }
}

#[test]
fn a_taken_port_is_refused_with_who_has_it() {
    let (tcp, udp) = (TcpListener::bind("127.0.0.1:0").expect("a port"), UdpSocket::bind("127.0.0.1:0").expect("one"));
    let tcp_port = tcp.local_addr().expect("its address").port();
    let udp_port = udp.local_addr().expect("its address").port();
    for (text, port) in [
        (format!("/ip4/127.0.0.1/tcp/{tcp_port}"), tcp_port),
        (format!("/ip4/0.0.0.0/tcp/{tcp_port}"), tcp_port),
        (format!("/ip4/127.0.0.1/udp/{udp_port}/quic-v1"), udp_port),
    ] {
        let error = check(&addresses(&[&text])).expect_err("taken").to_string();
        assert!(error.contains(&text) && error.contains(&format!("port {port} is in use by ")), "{error}");
    }
    check(&addresses(&["/ip4/127.0.0.1/tcp/0"])).expect("any port");
}

#[test]
fn a_listener_that_shares_its_port_is_found_too() {
    let shared = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    #[cfg(unix)]
    shared.set_reuse_port(true).expect("a shared port");
    shared.set_reuse_address(true).expect("a port to come back to");
    shared.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).expect("a port");
    shared.listen(1).expect("it listens");
    let port = shared.local_addr().expect("its address").as_socket().expect("of IP").port();
    check(&addresses(&[&format!("/ip4/127.0.0.1/tcp/{port}")])).expect_err("taken");
    drop(shared);
    check(&addresses(&[&format!("/ip4/127.0.0.1/tcp/{port}")])).expect("free again");
}

#[test]
fn an_address_of_another_machine_is_named() {
    let error = check(&addresses(&["/ip4/192.0.2.7/tcp/0"])).expect_err("not ours").to_string();
    assert!(error.contains("192.0.2.7 is no address of this machine") && !error.contains("port"), "{error}");
}

#[test]
fn others_are_told_what_is_worth_most_first() {
    let mut told = addresses(&[
        "/ip4/127.0.0.1/tcp/1",
        "/ip6/fe80::1/tcp/2",
        "/ip4/10.0.0.1/udp/3/quic-v1",
        "/ip4/169.254.3.3/tcp/1",
        "/ip6/2001:db8::1/tcp/2",
        "/ip6/::1/tcp/2",
        "/ip4/10.0.0.1/tcp/1",
    ]);
    most_useful_first(&mut told);
    let expected = [
        "/ip4/10.0.0.1/tcp/1",
        "/ip6/2001:db8::1/tcp/2",
        "/ip4/10.0.0.1/udp/3/quic-v1",
        "/ip4/169.254.3.3/tcp/1",
        "/ip4/127.0.0.1/tcp/1",
        "/ip6/::1/tcp/2",
    ];
    assert_eq!(texts(&told), expected);
}
