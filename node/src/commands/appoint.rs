//! `starling appoint`: this member's consent to another key in the founder's place.

use libp2p::identity::ed25519;
use serde_json::json;

use super::{CommandError, Context, EXIT_DONE, print};
use crate::access;
use crate::appointment::{Appointments, Consent, MAX_KEYS, MAX_OWN, name};
use crate::cli::AppointFlags;
use crate::identity::{Identity, to_libp2p};
use crate::manifest_file;
use crate::record_file::RecordFile;

pub(super) fn appoint(context: &Context, flags: &AppointFlags) -> Result<u8, CommandError> {
    let dir = context.load(&flags.data_dir.values())?.data_dir()?;
    let run = RecordFile::last_run(&dir).ok_or_else(|| CommandError::NoMember(dir.clone()))?;
    let identity = Identity::load_or_create(&dir)?;
    let key = to_libp2p(flags.key).to_string();
    let refuse = |reason: String| Err(CommandError::NotAppointed { key: key.clone(), reason });
    let Some(founder) = manifest_file::load(&dir, run)?.founder else {
        return refuse("this run was founded without a founder's key".to_owned());
    };
    // A slip of the pen would leave the place to nobody.
    if ed25519::PublicKey::try_from_bytes(&flags.key.0).is_err() {
        return refuse("it is no key; copy what `starling id --key FILE` printed".to_owned());
    }
    if flags.key == name(&identity) || access::roster(&dir, run)?.get(&flags.key).is_some() {
        return refuse(
            "it is a member's id; the founder's key is one of its own: `starling id --key FILE` makes one".to_owned(),
        );
    }
    let Appointments { line, consents } = Appointments::load(&dir, run);
    if line.keys().last().unwrap_or(&founder) == &flags.key {
        let text = format!("{key} has the founder's place already\n");
        print(context.global.json, || json!({ "run": run.to_string(), "key": key, "new": false }), || text)?;
        return Ok(EXIT_DONE);
    }
    if line.number() >= MAX_KEYS {
        return refuse(format!("{MAX_KEYS} keys have had it, which is all that a run has room for"));
    }
    let line = line.followed_by(flags.key);
    if !line.is_sound(founder) {
        return refuse("it has had it before, and nobody comes back".to_owned());
    }
    let me = name(&identity);
    let own = consents.iter().filter(|(other, peer, _)| **peer == me && **other != line).count();
    if own >= MAX_OWN {
        return refuse(format!("this member has consented to {MAX_OWN} others"));
    }
    Consent::sign(line.clone(), run, &identity).store(&dir, run)?;
    print(
        context.global.json,
        || json!({ "run": run.to_string(), "key": key, "number": line.number(), "new": true }),
        || {
            format!(
                "this member consents to {key} in the founder's place: it counts once a quorum of the members has said the same\n"
            )
        },
    )?;
    Ok(EXIT_DONE)
}
