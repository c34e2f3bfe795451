//! Another process with this machine's identity: somebody has copied the data directory, or its key. As members, each would
//! be taken for the other, come back after a crash, and both would be put out again and again.

use std::path::Path;
use std::time::Duration;

use starling_topology::{Contact, PeerId, RunId};

use crate::access::Credentials;
use crate::error::NodeError;
use crate::identity::{Identity, to_libp2p};
use crate::inquiry::Inquiry;

/// How long it may take to answer. On the network of the machine that was copied it does at once; elsewhere, a copy of it can't
/// be found out anyway.
const LIMIT: Duration = Duration::from_secs(1);

/// Dials the places where this machine's identity was last heard of, under another one. Nobody else can prove to be `me`, and
/// this process listens nowhere yet.
///
/// # Errors
/// [`NodeError::Twin`], if somebody answers.
pub(crate) async fn refuse(
    me: PeerId,
    (run, credentials): (RunId, &Credentials),
    places: Vec<String>,
    data_dir: &Path,
) -> Result<(), NodeError> {
    if places.is_empty() {
        return Ok(());
    }
    let mut inquiry = Inquiry::start(run, credentials, &[Contact { peer: me, addresses: places }])?;
    match tokio::time::timeout(LIMIT, inquiry.next()).await {
        Ok(Some((peer, Ok(())))) => {
            Err(NodeError::Twin { peer: to_libp2p(peer).to_string(), key: Identity::file(data_dir) })
        }
        Ok(Some((_, Err(_))) | None) | Err(_) => Ok(()),
    }
}
