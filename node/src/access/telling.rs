//! How those who may be here tell each other who may: over streams between peers that are connected, and to nobody else, since the
//! newest secret goes with it.

use std::time::Duration;

use libp2p::{PeerId, StreamProtocol};
use libp2p_stream::Control;

use super::{Access, MAX_UPDATE};
use crate::{frame, streams};

/// How long it may take to say it, and to read it.
const LIMIT: Duration = Duration::from_secs(10);
/// How long a stream for it may take. Who only visits takes none.
const OPEN_LIMIT: Duration = Duration::from_millis(500);

/// Takes in what others tell.
pub(crate) fn serve(control: Control, protocol: StreamProtocol, access: Access) {
    streams::serve(control, protocol, move |peer, mut stream| {
        let access = access.clone();
        async move {
            match tokio::time::timeout(LIMIT, frame::read(&mut stream, MAX_UPDATE)).await {
                Ok(Ok(bytes)) => _ = access.learn(peer, &bytes),
                Ok(Err(error)) => tracing::debug!(%peer, %error, "a peer did not say who may be here"),
                Err(_) => tracing::debug!(%peer, "a peer did not say in time who may be here"),
            }
        }
    });
}

/// Tells a peer all that we know, in a task that ends within seconds.
pub(crate) fn tell(mut control: Control, protocol: StreamProtocol, access: &Access, peer: PeerId) {
    let update = access.update();
    tokio::spawn(async move {
        let told = async {
            let mut stream = streams::open(&mut control, peer, &protocol, OPEN_LIMIT).await?;
            frame::write(&mut stream, &update).await
        };
        if let Ok(Err(error)) = tokio::time::timeout(LIMIT, told).await {
            tracing::debug!(%peer, %error, "a peer was not told who may be here");
        }
    });
}
