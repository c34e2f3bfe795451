//! What a member serves, and the queues that it is served into.

use std::sync::Arc;
use std::time::Duration;

use starling_links::{Endpoint, TransportPolicy, greeting};
use tokio::sync::mpsc;

use crate::access::Access;
use crate::credentials::identity::{Identity, from_libp2p};
use crate::error::NodeError;
use crate::member::event::NetworkEvent;
use crate::member::probe::Sink;
use crate::member::shared_steps::SharedSteps;
use crate::net::behaviour::WELCOME;
use crate::net::control;
use crate::net::control::Reception;
use crate::net::listen::Places;
use crate::net::network::{MAX_NOTICES, Network, Part};
use crate::net::streams;
use crate::settings::Settings;
use crate::start::welcome::{self, Mismatch, Terms, Welcome};
use crate::transfer::result_transfer::ResultProvider;
use crate::transfer::{self, ChunkProviders, Known};

/// Events that wait for the event loop. Its tasks wait when it is full: backpressure down to the sockets.
const MAX_EVENTS: usize = 256;

/// What other members may ask for.
#[derive(Clone)]
pub(crate) struct Providers {
    pub(crate) shared_steps: Arc<SharedSteps>,
    pub(crate) chunk_providers: Arc<ChunkProviders>,
    pub(crate) terms: Terms,
}

/// What comes in from a member's streams.
pub(crate) struct IncomingStreams {
    pub(crate) events: mpsc::Receiver<NetworkEvent>,
    pub(crate) events_in: mpsc::Sender<NetworkEvent>,
    pub(crate) mismatches: mpsc::Receiver<Mismatch>,
    pub(crate) endpoint: Arc<Endpoint>,
}

/// Builds a member's swarm, serves its protocols, and listens.
pub(crate) async fn start(
    identity: &Identity,
    access: Access,
    settings: &Settings,
    (providers, places): (Providers, &Places),
) -> Result<(Network, IncomingStreams), NodeError> {
    let Providers { shared_steps, chunk_providers, terms } = providers;
    let run = terms.manifest.run_id();
    let stall = Duration::from_millis(terms.manifest.max_stall_ms);
    let segment_bytes = terms.manifest.layout.segment_bytes as usize;
    let operation_bytes = terms.manifest.codec.payload_bytes(terms.manifest.trained());
    let mut network = Network::new(identity, access, settings, (run, Part::Member), stall)?;
    let (mismatches_in, mismatches) = mpsc::channel(MAX_NOTICES);
    let (events_in, events) = mpsc::channel(MAX_EVENTS);
    let protocols = &network.protocols;
    {
        let (events, reception) = (events_in.clone(), Reception::new(network.members.clone(), stall));
        streams::serve(network.control(), protocols.control.clone(), move |peer, stream| {
            control::read(peer, stream, events.clone(), reception.clone())
        });
        let events = events_in.clone();
        streams::serve(network.control(), protocols.segments.clone(), move |peer, mut stream| {
            let events = events.clone();
            async move {
                let Some(peer) = from_libp2p(&peer) else { return };
                if let Ok(Ok(view)) = tokio::time::timeout(stall, greeting::read_view(&mut stream)).await {
                    let _ = events.send(NetworkEvent::SegmentsOpened { peer, view, stream }).await;
                }
            }
        });
        let results = ResultProvider::new(move |step| shared_steps.result_of(step), network.members.clone());
        streams::serve(network.control(), protocols.result.clone(), move |peer, stream| {
            results.clone().serve(peer, stream, stall)
        });
        let sink = Arc::new(Sink::new());
        streams::serve(network.control(), protocols.probe.clone(), move |peer, stream| {
            let sink = sink.clone();
            async move { sink.serve(peer, stream).await }
        });
        serve_chunks(&network, chunk_providers.clone(), stall);
        serve_welcome(&network, terms, chunk_providers, Part::Member, mismatches_in);
    }
    network.listen(places).await?;
    let endpoint = Endpoint::new(
        identity.keypair(),
        run,
        settings.data_plane,
        segment_bytes,
        operation_bytes,
        &network.listened(),
    );
    let endpoint = endpoint.map_err(NodeError::Thread)?;
    if settings.data_plane == TransportPolicy::Plaintext {
        tracing::warn!(
            "gradients are NOT ENCRYPTED (network.data is plaintext): whoever is on the way can read and change them"
        );
    }
    Ok((network, IncomingStreams { events, events_in, mismatches, endpoint: Arc::new(endpoint) }))
}

/// Tells joiners what the run is, and who is in it.
pub(crate) fn serve_welcome(
    network: &Network,
    terms: Terms,
    chunk_providers: Arc<ChunkProviders>,
    part: Part,
    mismatches: mpsc::Sender<Mismatch>,
) {
    streams::serve(network.control(), WELCOME, move |peer, stream| {
        let Known { members, keepers } = chunk_providers.known();
        let welcome = Welcome { terms: terms.clone(), keeps: part == Part::Keeper, members, keepers };
        let mismatches = mismatches.clone();
        async move {
            if let Err(error) = welcome::answer(peer, stream, welcome, &mismatches).await {
                tracing::debug!(%peer, %error, "a welcome failed");
            }
        }
    });
}

/// Serves what travels in chunks, as members and keepers do.
pub(crate) fn serve_chunks(network: &Network, chunk_providers: Arc<ChunkProviders>, stall: Duration) {
    let access = network.access.clone();
    streams::serve(network.control(), network.protocols.state.clone(), move |peer, stream| {
        let (chunk_providers, may) =
            (chunk_providers.clone(), from_libp2p(&peer).is_some_and(|peer| access.may_fetch(peer)));
        async move {
            if !may {
                return tracing::info!(%peer, "nothing is served to a peer whose invitation does not hold");
            }
            if let Err(error) = transfer::serve(stream, chunk_providers, stall).await {
                tracing::info!(%peer, %error, "a peer stopped asking for a state, a checkpoint or data");
            }
        }
    });
}
