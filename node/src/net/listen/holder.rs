//! Who has a port.

use std::fmt;
use std::net::SocketAddr;

use super::Kind;

/// The process that has a port, as far as this one may know.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    /// This one.
    Ourselves,
    /// Another one of the same program.
    Starling(u32),
    /// Of another program.
    Other {
        /// Its number.
        process: u32,
        /// What it is called.
        name: String,
    },
    /// Of another user, or on a system that does not tell.
    Unknown,
}

impl Holder {
    /// Who has the port of `address`, on that address or on all.
    pub(crate) fn of(kind: Kind, address: SocketAddr) -> Self {
        find(kind, address).unwrap_or(Self::Unknown)
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ourselves => f.write_str("this process itself"),
            Self::Starling(process) => write!(f, "another starling (process {process})"),
            Self::Other { process, name } => write!(f, "`{name}` (process {process})"),
            Self::Unknown => f.write_str("another process"),
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn find(_: Kind, _: SocketAddr) -> Option<Holder> {
    None
}

/// Looks the socket's number up in the system's table, and then who has it open. Of other users' processes one can't know.
#[cfg(target_os = "linux")]
fn find(kind: Kind, address: SocketAddr) -> Option<Holder> {
    let file = match (kind, address.is_ipv4()) {
        (Kind::Tcp, true) => "tcp",
        (Kind::Tcp, false) => "tcp6",
        (Kind::Quic, true) => "udp",
        (Kind::Quic, false) => "udp6",
    };
    let table = std::fs::read_to_string(format!("/proc/self/net/{file}")).ok()?;
    let socket = table.lines().find_map(|line| socket_of(line, kind, address))?;
    let process = std::fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
        let process: u32 = entry.file_name().to_str()?.parse().ok()?;
        let mut open = std::fs::read_dir(entry.path().join("fd")).ok()?.flatten();
        let is_open = open.any(|file| std::fs::read_link(file.path()).is_ok_and(|target| target == *socket));
        is_open.then_some(process)
    })?;
    if process == std::process::id() {
        return Some(Holder::Ourselves);
    }
    let name = |process: &str| std::fs::read_to_string(format!("/proc/{process}/comm"));
    let theirs = name(&process.to_string()).ok()?;
    if name("self").is_ok_and(|ours| ours == theirs) {
        return Some(Holder::Starling(process));
    }
    Some(Holder::Other { process, name: theirs.trim_end().to_owned() })
}

/// Of a line of the system's table the link by which a process has that socket open, if it is one that listens there.
#[cfg(target_os = "linux")]
fn socket_of(line: &str, kind: Kind, address: SocketAddr) -> Option<std::path::PathBuf> {
    /// proc(5): a TCP socket that listens; a UDP socket that is bound and not connected.
    const STATES: [&str; 2] = ["0A", "07"];
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (ip, port) = fields.get(1)?.rsplit_once(':')?;
    let is_there = u16::from_str_radix(port, 16).ok()? == address.port()
        && *fields.get(3)? == STATES[usize::from(kind == Kind::Quic)];
    let is_any = |ip: &str| ip.bytes().all(|digit| digit == b'0');
    let meets = address.ip().is_unspecified() || is_any(ip) || ip == hex_of(address);
    (is_there && meets).then(|| format!("socket:[{}]", fields.get(9).copied().unwrap_or_default()).into())
}

/// An address as the table has it: words of 32 bits, each as this machine reads it.
#[cfg(target_os = "linux")]
fn hex_of(address: SocketAddr) -> String {
    let bytes = match address.ip() {
        std::net::IpAddr::V4(ip) => ip.octets().to_vec(),
        std::net::IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    bytes.as_chunks::<4>().0.iter().map(|word| format!("{:08X}", u32::from_ne_bytes(*word))).collect()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::net::{TcpListener, UdpSocket};

    use super::*;

    #[test]
    fn a_port_of_this_process_is_found_under_each_address_that_meets_it() {
        let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = taken.local_addr().expect("its address");
        assert_eq!(Holder::of(Kind::Tcp, address), Holder::Ourselves);
        let any = SocketAddr::from(([0, 0, 0, 0], address.port()));
        assert_eq!(Holder::of(Kind::Tcp, any), Holder::Ourselves);
        let beside = SocketAddr::from(([127, 0, 0, 2], address.port()));
        assert_eq!(Holder::of(Kind::Tcp, beside), Holder::Unknown);
        let taken = UdpSocket::bind("127.0.0.1:0").expect("a port");
        assert_eq!(Holder::of(Kind::Quic, taken.local_addr().expect("its address")), Holder::Ourselves);
    }
}
