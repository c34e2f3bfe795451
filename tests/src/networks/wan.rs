//! Hosts that are far from each other: in network namespaces around a switch in user space, which takes its time, since not
//! every kernel has queues that do.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::built;
use crate::networks::lan::Host;
use crate::networks::namespace::{Namespace, WHAT_THEY_NEED};
use crate::processes::owned_child::OwnedChild;

/// As many as there are addresses of the form 10.78.0.x.
const MAX_HOSTS: usize = 250;

/// What the link of each host to the switch does.
#[derive(Debug, Clone, Copy)]
pub struct FarLink {
    /// Millions of bits per second each way, headers included.
    pub mbit: u32,
    /// From one host to another, one way.
    pub delay: Duration,
    /// The share of frames that are lost on the way.
    pub loss: f64,
    /// If the hosts with even and odd numbers are at two sites: millions of bits per second of what joins these, each way.
    pub joint_mbit: Option<u32>,
}

/// Hosts around a switch.
#[derive(Debug)]
pub struct Wan {
    /// Ends before the namespaces that its ports are in.
    _switch: OwnedChild,
    hosts: Vec<Namespace>,
    _center: Namespace,
}

impl Wan {
    /// A network of `hosts`, which all reach each other.
    ///
    /// # Errors
    /// If it can't be made here, saying why.
    pub fn new(hosts: usize, link: FarLink, seed: u64) -> Result<Self> {
        ensure!((1..=MAX_HOSTS).contains(&hosts), "a network has 1 to {MAX_HOSTS} hosts, not {hosts}");
        let center = Namespace::first().context(WHAT_THEY_NEED)?;
        let mut command = center.command("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(built("chaos")).args(["switch", "--ports", &hosts.to_string()]);
        command.args(["--mbit", &link.mbit.to_string(), "--delay-us", &link.delay.as_micros().to_string()]);
        command.args(["--loss", &link.loss.to_string(), "--seed", &seed.to_string()]);
        if let Some(mbit) = link.joint_mbit {
            command.args(["--joint-mbit", &mbit.to_string()]);
        }
        let mut switch = command.stdout(Stdio::piped()).spawn().context("can't start the switch")?;
        let mut answer = String::new();
        let stdout = switch.stdout.take().context("it is piped")?;
        let mut wan = Self { hosts: Vec::new(), _switch: switch.into(), _center: center };
        BufReader::new(stdout).read_line(&mut answer)?;
        ensure!(answer.trim() == "ready", "the switch did not start: it needs /dev/net/tun");
        for number in 0..hosts {
            let host = wan._center.another()?;
            wan._center.ip(&format!("link set port{number} netns {}\n", host.id()))?;
            let at = number + 1;
            host.ip(&format!(
                "link set lo up\nlink set port{number} name eth0\nlink set eth0 address 02:00:00:00:00:{at:02x}\n\
                 addr add 10.78.0.{at}/24 dev eth0\nlink set eth0 up\n"
            ))?;
            wan.hosts.push(host);
        }
        Ok(wan)
    }

    /// A host, by its number from 0.
    pub fn host(&self, number: usize) -> Host {
        Host { address: format!("10.78.0.{}", number + 1), prefix: self.hosts[number].prefix() }
    }
}
