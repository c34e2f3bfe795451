//! This member's consent to another key in the founder's place.

use std::path::Path;

use libp2p::identity::ed25519;
use starling_topology::{PeerId, RunId};

use super::DataDirError;
use crate::access;
use crate::credentials::appointment::{Appointments, Consent, MAX_KEYS, MAX_OWN, name};
use crate::credentials::identity::{Identity, to_libp2p};
use crate::store::manifest_file;
use crate::store::record_file::RecordFile;

/// What a consent came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AppointmentReport {
    /// Of this run.
    pub run: RunId,
    /// How many keys will have followed the founder's; `None` if this one has the place already.
    pub number: Option<usize>,
}

/// Writes down that the member in `data_dir` consents to `key` in the founder's place, where a running node looks.
///
/// # Errors
/// If no member has its data there, or the key can't have the place.
pub fn appoint(data_dir: &Path, key: PeerId) -> Result<AppointmentReport, DataDirError> {
    let run = RecordFile::last_run(data_dir).ok_or_else(|| DataDirError::NoMember(data_dir.to_owned()))?;
    let identity = Identity::load_or_create(data_dir)?;
    let refuse = |reason: String| Err(DataDirError::NotAppointed { key: to_libp2p(key).to_string(), reason });
    let Some(founder) = manifest_file::load(data_dir, run)?.founder else {
        return refuse("this run was founded without a founder's key".to_owned());
    };
    // A slip of the pen would leave the place to nobody.
    if ed25519::PublicKey::try_from_bytes(&key.0).is_err() {
        return refuse("it is no key; copy what `starling id --key FILE` printed".to_owned());
    }
    if key == name(&identity) || access::roster(data_dir, run)?.get(&key).is_some() {
        return refuse(
            "it is a member's id; the founder's key is one of its own: `starling id --key FILE` makes one".to_owned(),
        );
    }
    let Appointments { line, consents } = Appointments::load(data_dir, run);
    if line.keys().last().unwrap_or(&founder) == &key {
        return Ok(AppointmentReport { run, number: None });
    }
    if line.number() >= MAX_KEYS {
        return refuse(format!("{MAX_KEYS} keys have had it, which is all that a run has room for"));
    }
    let line = line.followed_by(key);
    if !line.is_sound(founder) {
        return refuse("it has had it before, and nobody comes back".to_owned());
    }
    let me = name(&identity);
    let own = consents.iter().filter(|(other, peer, _)| **peer == me && **other != line).count();
    if own >= MAX_OWN {
        return refuse(format!("this member has consented to {MAX_OWN} others"));
    }
    Consent::sign(line.clone(), run, &identity).store(data_dir, run)?;
    Ok(AppointmentReport { run, number: Some(line.number()) })
}
