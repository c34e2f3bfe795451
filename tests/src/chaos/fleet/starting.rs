//! How processes get their places.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use super::{FOUNDING_LIMIT, Fleet};
use crate::chaos::Rng;
use crate::chaos::slot::Said;
use crate::processes::peer::tied;
use crate::{Peer, PeerOptions};

/// Environment variable: by how many milliseconds computations take longer.
const DELAYS: &str = "STARLING_TEST_DEVICE_DELAYS_MS";

impl Fleet {
    /// Starts a process in a place: it joins through somebody who is there, or founds the run if nobody is.
    ///
    /// # Errors
    /// If somebody is there, but nobody tells a ticket.
    pub fn start(&mut self, slot: usize) -> Result<()> {
        if self.slots.iter().all(|slot| slot.peer.is_none()) {
            return self.found_with(slot, "");
        }
        let has_ticket = |fleet: &Self| fleet.tickets(slot).next().is_some();
        self.wait("a ticket", FOUNDING_LIMIT, has_ticket)?;
        let tickets: Vec<(usize, String)> =
            self.tickets(slot).map(|(other, ticket)| (other, ticket.to_owned())).collect();
        let mut rng = Rng::new(self.plan.seed ^ u64::from(self.slots[slot].life) ^ (slot as u64) << 32);
        let (other, ticket) = &tickets[rng.below(tickets.len())];
        self.join_with(slot, ticket);
        self.slots[slot].through = Some((*other, self.slots[*other].life));
        Ok(())
    }

    /// Starts `starling run` in a place, with more flags.
    ///
    /// # Errors
    /// If the flags can't be put together.
    pub fn found_with(&mut self, slot: usize, more: &str) -> Result<()> {
        let mut options = self.options(slot);
        let flags = self.plan.run.split_whitespace().chain(more.split_whitespace());
        options.flags.extend(flags.map(str::to_owned));
        self.slots[slot].peer = Some(Peer::run_in(self.slots[slot].dir.clone(), &options));
        Ok(())
    }

    /// Starts `starling join` in a place.
    pub fn join_with(&mut self, slot: usize, ticket: &str) {
        let options = self.options(slot);
        self.slots[slot].peer = Some(Peer::join_in(self.slots[slot].dir.clone(), ticket, &options));
    }

    /// Gives a place an empty data directory, as if its disk had been lost.
    ///
    /// # Errors
    /// If no directory can be made.
    pub fn wipe(&mut self, slot: usize) -> Result<()> {
        self.slots[slot].dir = new_dir()?;
        Ok(())
    }

    fn options(&mut self, number: usize) -> PeerOptions {
        let slot = &mut self.slots[number];
        slot.said = Said::default();
        (slot.is_stopped, slot.through) = (false, None);
        let (listen, life) = (slot.listen.clone(), slot.life);
        let prefix = self.before(self.lan.as_ref().map(|lan| lan.host(number).prefix).unwrap_or_default());
        let options = PeerOptions {
            listen: Some(listen),
            prefix,
            ear: Some(self.feed.ear(number, life)),
            ..PeerOptions::flags(&self.plan.machine)
        };
        let audit = self.audit_of(number);
        options.with("--audit", audit)
    }

    /// What to put before a command that this comes before.
    pub(super) fn before(&self, prefix: Vec<String>) -> Vec<String> {
        let longer = self.longer.map(|longer| ["env".to_owned(), format!("{DELAYS}={}+", longer.as_millis())]);
        tied(prefix.into_iter().chain(longer.into_iter().flatten()))
    }

    /// Where the next process of a place tells who contributed what: in a file of its own, unless the whole run goes on
    /// from a checkpoint. Then it is the file of the one before, and what that said of later steps is void.
    fn audit_of(&mut self, number: usize) -> PathBuf {
        let folder = self.plan.logs.as_deref().unwrap_or_else(|| self.folder.path());
        let slot = &mut self.slots[number];
        if let (true, Some(last)) = (self.is_going_back, slot.audits.last()) {
            return last.clone();
        }
        let file = folder.join(format!("audit-{number}-{}", slot.life));
        // Of an experiment that kept its logs in the same folder.
        let _ = std::fs::remove_file(&file);
        slot.audits.push(file.clone());
        file
    }

    fn tickets(&self, other_than: usize) -> impl Iterator<Item = (usize, &str)> {
        let others =
            self.slots.iter().enumerate().filter(move |(number, slot)| *number != other_than && slot.is_awake());
        others.filter_map(|(number, slot)| Some((number, slot.said.ticket.as_deref()?)))
    }
}

/// A fresh data directory.
pub(super) fn new_dir() -> Result<Arc<TempDir>> {
    let dir = TempDir::with_prefix("starling-chaos-").context("can't make a data directory")?;
    ensure!(dir.path().is_dir(), "{} is no directory", dir.path().display());
    Ok(Arc::new(dir))
}
