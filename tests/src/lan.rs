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
//! A cut is a rule of the router that drops what one host sends to another, silently, as a broken network does. It is
//! one-way; two of them are a partition. Each namespace is held by a process that waits for the end of its standard
//! input, so all of them vanish with the process that made them, however it ends.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

/// As many as there are subnets of the form 10.77.x.0/24.
const MAX_HOSTS: usize = 250;
/// Bytes that a slowed link lets through at once.
const BURST_KIB: u32 = 128;
/// How long a slowed link keeps bytes that it can't send yet, before it drops some.
const BUFFER_MS: u32 = 50;

/// Hosts around a router.
#[derive(Debug)]
pub struct Lan {
    router: Namespace,
    hosts: Vec<Namespace>,
}

/// Where a process can run.
#[derive(Debug, Clone)]
pub struct Host {
    /// Its address.
    pub address: String,
    /// What to put before a command to run it there.
    pub prefix: Vec<String>,
}

impl Lan {
    /// A network of `hosts`, which all reach each other.
    ///
    /// # Errors
    /// If it can't be made here, saying why.
    pub fn new(hosts: usize) -> Result<Self> {
        ensure!((1..=MAX_HOSTS).contains(&hosts), "a network has 1 to {MAX_HOSTS} hosts, not {hosts}");
        let reason =
            "can't make network namespaces (they need Linux, util-linux, iproute2, and root or user namespaces)";
        Self::make(hosts).context(reason)
    }

    fn make(count: usize) -> Result<Self> {
        let router = Namespace::first()?;
        router.sh("echo 1 > /proc/sys/net/ipv4/ip_forward && ip link set lo up")?;
        let mut hosts = Vec::new();
        for number in 0..count {
            let host = router.another()?;
            router.ip(&format!(
                "link add port{number} type veth peer name eth0 netns {}\n\
                 addr add 10.77.{number}.254/24 dev port{number}\n\
                 link set port{number} up\n",
                host.holder.id()
            ))?;
            host.ip(&format!(
                "link set lo up\naddr add 10.77.{number}.1/24 dev eth0\nlink set eth0 up\n\
                 route add default via 10.77.{number}.254\n"
            ))?;
            hosts.push(host);
        }
        Ok(Self { router, hosts })
    }

    /// A host, by its number from 0.
    pub fn host(&self, number: usize) -> Host {
        Host { address: format!("10.77.{number}.1"), prefix: self.hosts[number].prefix() }
    }

    /// Drops what the hosts `from` send to the hosts `to`, until it is [healed](Self::heal).
    ///
    /// # Errors
    /// If the router can't be told.
    pub fn cut(&self, from: &[usize], to: &[usize]) -> Result<()> {
        self.router.ip(&rules("add", from, to))
    }

    /// Cuts both ways between two groups of hosts.
    ///
    /// # Errors
    /// If the router can't be told.
    pub fn split(&self, one: &[usize], other: &[usize]) -> Result<()> {
        self.router.ip(&(rules("add", one, other) + &rules("add", other, one)))
    }

    /// Takes back what [`cut`](Self::cut) did.
    ///
    /// # Errors
    /// If the router can't be told.
    pub fn mend(&self, from: &[usize], to: &[usize]) -> Result<()> {
        self.router.ip(&rules("del", from, to))
    }

    /// Takes back what [`split`](Self::split) did.
    ///
    /// # Errors
    /// If the router can't be told.
    pub fn heal(&self, one: &[usize], other: &[usize]) -> Result<()> {
        self.router.ip(&(rules("del", one, other) + &rules("del", other, one)))
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

/// Lines for `ip -batch`.
fn rules(verb: &str, from: &[usize], to: &[usize]) -> String {
    let pairs = from.iter().flat_map(|from| to.iter().map(move |to| (from, to)));
    let rule = |(from, to)| format!("rule {verb} priority 100 from 10.77.{from}.1 to 10.77.{to}.1 blackhole\n");
    pairs.map(rule).collect()
}

/// One network namespace.
#[derive(Debug)]
struct Namespace {
    holder: Child,
    /// Whether it belongs to a user namespace of its own, as it must for those who aren't root.
    has_user: bool,
}

impl Namespace {
    fn first() -> Result<Self> {
        let is_root = fs::metadata("/proc/self")?.uid() == 0;
        let user: &[&str] = if is_root { &[] } else { &["--user", "--map-root-user"] };
        let mut command = Command::new("unshare");
        command.args(user).args(["--net", "cat"]);
        Self::hold(command, !is_root)
    }

    /// Another one, of the same user.
    fn another(&self) -> Result<Self> {
        let mut command = if self.has_user {
            let mut command = Command::new("nsenter");
            command.args(["--target", &self.holder.id().to_string(), "--user", "--preserve-credentials", "unshare"]);
            command
        } else {
            Command::new("unshare")
        };
        command.args(["--net", "cat"]);
        Self::hold(command, self.has_user)
    }

    fn hold(mut command: Command, has_user: bool) -> Result<Self> {
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let holder = spawned.with_context(|| format!("can't start {command:?}"))?;
        let mut namespace = Self { holder, has_user };
        namespace.wait()?;
        Ok(namespace)
    }

    /// Waits until the holder has its namespace: `cat` answers only then.
    fn wait(&mut self) -> Result<()> {
        let (question, mut answer) = (*b"here", [0; 4]);
        // A holder that was not allowed to has ended: then there is no answer, and its reason is on stderr.
        let asked = self.holder.stdin.as_mut().context("piped")?.write_all(&question);
        let answered = self.holder.stdout.as_mut().context("piped")?.read_exact(&mut answer);
        if asked.is_err() || answered.is_err() {
            let mut reason = String::new();
            self.holder.stderr.as_mut().context("piped")?.read_to_string(&mut reason)?;
            bail!("{}", reason.trim());
        }
        Ok(())
    }

    fn prefix(&self) -> Vec<String> {
        let id = self.holder.id().to_string();
        let user: &[&str] = if self.has_user { &["--user", "--preserve-credentials"] } else { &[] };
        let words = ["nsenter", "--target", &id].into_iter().chain(user.iter().copied()).chain(["--net", "--"]);
        words.map(str::to_owned).collect()
    }

    fn command(&self, program: &str) -> Command {
        let prefix = self.prefix();
        let mut command = Command::new(&prefix[0]);
        command.args(&prefix[1..]).arg(program).stdin(Stdio::null());
        command
    }

    fn sh(&self, script: &str) -> Result<()> {
        let output = self.command("sh").args(["-c", script]).output()?;
        if !output.status.success() {
            bail!("`{script}`: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(())
    }

    fn ip(&self, lines: &str) -> Result<()> {
        let mut command = self.command("ip");
        command.args(["-batch", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().context("can't start ip (iproute2)")?;
        child.stdin.take().context("piped")?.write_all(lines.as_bytes())?;
        let output = child.wait_with_output()?;
        if !output.status.success() {
            bail!("`ip {}`: {}", lines.trim(), String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(())
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}
