//! `starling invite`: a ticket of the run on this machine. `starling id`: who this machine is.

use serde_json::json;
use starling_node::credentials::founder::FounderKey;
use starling_node::credentials::identity::{Identity, to_libp2p};
use starling_node::credentials::invitation::InvitationSpec;
use starling_node::store::data_dir::{InvitationTicket, InviteOptions, invite as ticket_of};
use starling_node::store::private_dir;

use crate::cli::{IdFlags, InviteFlags};
use crate::commands::{CommandError, Context, EXIT_DONE, print};

pub(crate) fn invite(context: &Context, flags: &InviteFlags) -> Result<u8, CommandError> {
    let dir = context.load(flags.data_dir.values())?.data_dir()?;
    let wanted = InviteOptions {
        role: flags.role,
        expires: flags.expires,
        once: flags.once,
        whom: flags.whom,
        voters: flags.voters,
    };
    let InvitationTicket { ticket, terms, status } = ticket_of(&dir, flags.key.as_deref(), wanted)?;
    let text = ticket.to_string();
    print(
        context.global.json,
        || {
            let mut value = json!({ "ticket": text, "run": status.run, "addresses": status.addresses });
            if let Some(InvitationSpec { role, expires, once, whom, voters, .. }) = terms {
                value["role"] = json!(role);
                value["expires"] = json!(expires);
                value["once"] = json!(once);
                value["voters"] = json!(voters);
                value["for"] = json!(whom.map(|whom| to_libp2p(whom).to_string()));
            }
            value
        },
        || format!("{text}\n"),
    )?;
    Ok(EXIT_DONE)
}

pub(crate) fn id(context: &Context, flags: &IdFlags) -> Result<u8, CommandError> {
    let dir = context.load(flags.data_dir.values())?.data_dir()?;
    if let Some(path) = &flags.key {
        let key = to_libp2p(FounderKey::load_or_make(path)?.public()).to_string();
        print(context.global.json, || json!({ "key": key, "file": path }), || format!("{key}\n"))?;
        return Ok(EXIT_DONE);
    }
    private_dir::create(&dir)?;
    let peer = Identity::load_or_create(&dir)?.peer_id().to_string();
    print(context.global.json, || json!({ "peer": peer, "data_dir": dir }), || format!("{peer}\n"))?;
    Ok(EXIT_DONE)
}
