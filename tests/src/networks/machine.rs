//! Machines with several addresses: each a network namespace of its own, alone or joined by several networks.
//!
//! ```text
//!   alone: lo, net0 (10.79.0.1, 10.79.1.1, fd79::1)        joined:  machine 0 --net0-- machine 1
//!                                                                            --net1--
//! ```
//!
//! On such a machine a node listens where it does by default: everywhere.

use std::cell::OnceCell;
use std::path::Path;
use std::process::Command;
use std::rc::Rc;

use anyhow::{Context, Result};

use crate::networks::namespace::{Namespace, WHAT_THEY_NEED};
use crate::processes::peer::{PeerOptions, starling_behind};

/// A machine with a loopback interface and others.
#[derive(Debug)]
pub struct Machine(Namespace);

/// The addresses of both machines in a network that they share, with the length of its prefix.
pub type Shared<'a> = [&'a str; 2];

thread_local! {
    /// Of the test that this thread runs.
    static OWN: OnceCell<Rc<Machine>> = const { OnceCell::new() };
}

impl Machine {
    /// One with these addresses, each with the length of its prefix, besides `lo`.
    ///
    /// # Errors
    /// If it can't be made here, saying why.
    pub fn new(addresses: &[&str]) -> Result<Self> {
        let make = || {
            let namespace = Namespace::first()?;
            // Its other end only has to be there, and up.
            namespace.ip("link set lo up\nlink add net0 type veth peer name far0\nlink set far0 up\n")?;
            addresses.iter().try_for_each(|address| take(&namespace, address, "net0"))?;
            Ok::<_, anyhow::Error>(Self(namespace))
        };
        make().context(WHAT_THEY_NEED)
    }

    /// Two that share these networks.
    ///
    /// # Errors
    /// If they can't be made here, saying why.
    pub fn pair(networks: &[Shared<'_>]) -> Result<[Self; 2]> {
        let make = || {
            let first = Namespace::first()?;
            let second = first.another()?;
            [&first, &second].into_iter().try_for_each(|machine| machine.ip("link set lo up\n"))?;
            for (number, addresses) in networks.iter().enumerate() {
                first.ip(&format!("link add net{number} type veth peer name net{number} netns {}\n", second.id()))?;
                for (machine, address) in [&first, &second].into_iter().zip(addresses) {
                    take(machine, address, &format!("net{number}"))?;
                }
            }
            Ok::<_, anyhow::Error>([Self(first), Self(second)])
        };
        make().context(WHAT_THEY_NEED)
    }

    /// The one that all peers of the test in this thread share that ask for it: with `lo` and two addresses.
    ///
    /// # Panics
    /// If it can't be made here, saying why.
    pub fn own() -> Rc<Self> {
        OWN.with(|own| {
            own.get_or_init(|| Rc::new(Self::new(&["10.79.0.1/24", "10.79.1.1/24"]).expect("a machine"))).clone()
        })
    }

    /// Options of a peer that runs here and listens by default, with `flags`, separated by blanks.
    pub fn options(&self, flags: &str) -> PeerOptions {
        PeerOptions { prefix: self.0.prefix(), listen: None, ..PeerOptions::flags(flags) }
    }

    /// A `starling` command that runs here, sees no user's configuration and works in `dir`.
    pub fn starling(&self, dir: &Path) -> Command {
        starling_behind(&self.0.prefix(), dir)
    }
}

/// Gives a device an address, at once: nobody else can have it.
fn take(machine: &Namespace, address: &str, device: &str) -> Result<()> {
    let unasked = if address.contains(':') { " nodad" } else { "" };
    machine.ip(&format!("addr add {address} dev {device}{unasked}\nlink set {device} up\n"))
}
