//! A small network of its own: hosts in network namespaces around a router, where links can be cut and slowed down.
//!
//! ```text
//!  host 0 (10.77.0.1) --veth-- router --veth-- host 1 (10.77.1.1)
//!                                 |
//!                                veth
//!                                 |
//!                          host 2 (10.77.2.1)
//! ```
//!
//! In a wide network each host has another address of IPv4, 10.77.x.2, and one of IPv6, fd77:x::1.
//!
//! A cut is a rule of the router that drops what one host sends to another, silently, as a broken network does. It is
//! one-way; two of them are a partition. A [home](Lan::home) is a host behind a router of its own, which lets nothing in. Each namespace is held by a process that waits for the end of its standard
//! input, so all of them vanish with the process that made them, however it ends.

use anyhow::{Context, Result, ensure};

use crate::networks::namespace::{Namespace, WHAT_THEY_NEED};

/// As many as there are subnets of the form 10.77.x.0/24.
const MAX_HOSTS: usize = 250;
/// Bytes that a slowed link lets through at once.
const BURST_KIB: u32 = 128;
/// How long a slowed link keeps bytes that it can't send yet, before it drops some.
const BUFFER_MS: u32 = 50;

/// What a home's router does: it hides what is inside, and lets in what that has asked for.
const HOME: &str = "table ip home {\\n\
    chain out { type nat hook postrouting priority 100; oifname eth0 masquerade; }\\n\
    chain through { type filter hook forward priority 0; policy drop; \
    ct state established,related accept; iifname inside accept; ct status dnat accept; }\\n\
    chain in { type nat hook prerouting priority -100; }\\n}\\n";

/// Hosts around a router.
#[derive(Debug)]
pub struct Lan {
    router: Namespace,
    hosts: Vec<Namespace>,
    /// Behind some of them.
    homes: Vec<Namespace>,
    is_wide: bool,
}

/// Where a process can run.
#[derive(Debug, Clone)]
pub struct Host {
    /// Its address.
    pub address: String,
    /// What to put before a command to run it there.
    pub prefix: Vec<String>,
}

/// Of the longest frame on Ethernet, the share that TCP carries: 1,448 of 1,514 bytes. All else is headers, which count:
/// the kernel's token buckets know what each frame will have.
pub(crate) const PAYLOAD: f64 = 1448.0 / 1514.0;

impl Lan {
    /// A network of `hosts`, which all reach each other.
    ///
    /// # Errors
    /// If it can't be made here, saying why.
    pub fn new(hosts: usize) -> Result<Self> {
        ensure!((1..=MAX_HOSTS).contains(&hosts), "a network has 1 to {MAX_HOSTS} hosts, not {hosts}");
        Self::make(hosts).context(WHAT_THEY_NEED)
    }

    /// The same, where each host has two addresses of IPv4 and one of IPv6.
    ///
    /// # Errors
    /// If it can't be made here, saying why.
    pub fn wide(hosts: usize) -> Result<Self> {
        let mut lan = Self::new(hosts)?;
        lan.widen().context(WHAT_THEY_NEED)?;
        lan.is_wide = true;
        Ok(lan)
    }

    fn widen(&self) -> Result<()> {
        self.router.sh("echo 1 > /proc/sys/net/ipv6/conf/all/forwarding")?;
        for (number, host) in self.hosts.iter().enumerate() {
            self.router.ip6(&format!("addr add fd77:{number}::254/64 dev port{number} nodad\n"))?;
            host.ip(&format!("addr add 10.77.{number}.2/24 dev eth0\n"))?;
            host.ip6(&format!(
                "addr add fd77:{number}::1/64 dev eth0 nodad\nroute add default via fd77:{number}::254\n"
            ))?;
        }
        Ok(())
    }

    fn make(count: usize) -> Result<Self> {
        let router = Namespace::first()?;
        router.sh("echo 1 > /proc/sys/net/ipv4/ip_forward && ip link set lo up")?;
        let mut hosts = Vec::new();
        for number in 0..count {
            hosts.push(Self::connect(&router, number)?);
        }
        Ok(Self { router, hosts, homes: Vec::new(), is_wide: false })
    }

    /// A host at the router's port of this number.
    fn connect(router: &Namespace, number: usize) -> Result<Namespace> {
        let host = router.another()?;
        router.ip(&format!(
            "link add port{number} type veth peer name eth0 netns {}\n\
             addr add 10.77.{number}.254/24 dev port{number}\n\
             link set port{number} up\n",
            host.id()
        ))?;
        host.ip(&format!(
            "link set lo up\naddr add 10.77.{number}.1/24 dev eth0\nlink set eth0 up\n\
             route add default via 10.77.{number}.254\n"
        ))?;
        Ok(host)
    }

    /// A host, by its number from 0.
    pub fn host(&self, number: usize) -> Host {
        Host { address: format!("10.77.{number}.1"), prefix: self.hosts[number].prefix() }
    }

    /// One more host, behind a router of its own: what it dials gets out in that router's name, and what nobody in there has asked for does
    /// not get in.
    ///
    /// # Errors
    /// If it can't be made here, saying why.
    pub fn home(&mut self) -> Result<Host> {
        self.make_home().context(WHAT_THEY_NEED).context("a home takes nftables, too")
    }

    fn make_home(&mut self) -> Result<Host> {
        let number = self.hosts.len();
        let (router, host) = (Self::connect(&self.router, number)?, self.router.another()?);
        router.sh("echo 1 > /proc/sys/net/ipv4/ip_forward")?;
        router.ip(&format!(
            "link add inside type veth peer name eth0 netns {}\naddr add 192.168.7.1/24 dev inside\nlink set inside up\n",
            host.id()
        ))?;
        host.ip(
            "link set lo up\naddr add 192.168.7.2/24 dev eth0\nlink set eth0 up\nroute add default via 192.168.7.1\n",
        )?;
        router.sh(&format!("printf '{HOME}' | nft -f -"))?;
        self.hosts.push(router);
        let home = Host { address: "192.168.7.2".to_owned(), prefix: host.prefix() };
        self.homes.push(host);
        Ok(home)
    }

    /// Has the router of the newest [home](Self::home) forward a TCP port to it.
    ///
    /// # Errors
    /// If the router can't be told.
    pub fn forward(&self, port: u16) -> Result<()> {
        let router = self.hosts.last().context("there is no home")?;
        router.sh(&format!("nft add rule ip home in iifname eth0 tcp dport {port} dnat to 192.168.7.2"))
    }

    /// Drops what the hosts `from` send to the hosts `to`, until it is [healed](Self::heal).
    ///
    /// # Errors
    /// If the router can't be told.
    pub fn cut(&self, from: &[usize], to: &[usize]) -> Result<()> {
        self.rule("add", from, to)
    }

    /// Cuts both ways between two groups of hosts.
    ///
    /// # Errors
    /// If the router can't be told.
    pub fn split(&self, one: &[usize], other: &[usize]) -> Result<()> {
        self.rules("add", &[(one, other), (other, one)])
    }

    /// Takes back what [`cut`](Self::cut) did.
    ///
    /// # Errors
    /// If the router can't be told.
    pub fn mend(&self, from: &[usize], to: &[usize]) -> Result<()> {
        self.rule("del", from, to)
    }

    /// Takes back what [`split`](Self::split) did.
    ///
    /// # Errors
    /// If the router can't be told.
    pub fn heal(&self, one: &[usize], other: &[usize]) -> Result<()> {
        self.mend(one, other)?;
        self.mend(other, one)
    }

    fn rule(&self, verb: &str, from: &[usize], to: &[usize]) -> Result<()> {
        self.rules(verb, &[(from, to)])
    }

    /// All at once, as near as the router can: what gets through one way meanwhile may decide who goes on.
    fn rules(&self, verb: &str, ways: &[(&[usize], &[usize])]) -> Result<()> {
        let lines = |net: fn(usize) -> String| -> String {
            let of_way = |(from, to): &(&[usize], &[usize])| -> Vec<(String, String)> {
                from.iter().flat_map(|from| to.iter().map(move |to| (net(*from), net(*to)))).collect()
            };
            let pairs = ways.iter().flat_map(of_way);
            pairs.map(|(from, to)| format!("rule {verb} priority 100 from {from} to {to} blackhole\n")).collect()
        };
        self.router.ip(&lines(|host| format!("10.77.{host}.0/24")))?;
        if self.is_wide {
            self.router.ip6(&lines(|host| format!("fd77:{host}::/64")))?;
        }
        Ok(())
    }

    /// Limits what a host can send and receive, to `mbit` millions of bits per second each way.
    ///
    /// # Errors
    /// If the kernel can't.
    pub fn shape(&self, number: usize, mbit: u32) -> Result<()> {
        let shaper = |device: &str| {
            format!("tc qdisc replace dev {device} root tbf rate {mbit}mbit burst {BURST_KIB}kb latency {BUFFER_MS}ms")
        };
        self.router.sh(&shaper(&format!("port{number}")))?;
        self.hosts[number].sh(&shaper("eth0"))
    }

    /// Bytes that have come to a host so far, headers included.
    ///
    /// # Errors
    /// If the kernel does not tell.
    pub fn received(&self, number: usize) -> Result<u64> {
        let output = self.hosts[number].command("ip").args(["-s", "-json", "link", "show", "eth0"]).output()?;
        let links: serde_json::Value = serde_json::from_slice(&output.stdout).context("ip -s -json is not JSON")?;
        links[0]["stats64"]["rx"]["bytes"].as_u64().context("ip -s -json tells no bytes")
    }
}
