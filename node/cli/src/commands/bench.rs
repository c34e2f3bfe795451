//! `starling bench`: how fast this machine reduces, and what members take.

use std::time::Duration;

use serde_json::json;
use starling::Error as NodeError;
use starling::parts::Codec;
use starling::parts::PlanPolicy;
use starling_node::reducer::bench::ReductionSpec;

use super::{CommandError, Context, EXIT_DONE, print};
use crate::bench::{self, LivePlan, MemoryPlan, Plan};
use crate::cli::{AllReduceFlags, BenchVerb, LinkFlags, MemoryFlags, ReductionFlags, SwarmFlags, read_argument};
use crate::config::{Layers, parse_ticket};

pub(super) async fn bench(context: &Context, verb: &BenchVerb) -> Result<u8, CommandError> {
    // A benchmark is of the machine: of the user's configuration, only the flags here count.
    let mut layers = Layers::new();
    layers.flags(&context.global.values())?;
    context.start_logs(&layers.finish())?;
    match verb {
        BenchVerb::Allreduce(flags) => {
            let outcome = bench::all_reduce(&all_reduce_plan(flags), &context.console).await?;
            print(context.global.json, || json!(outcome), || outcome.describe())?;
        }
        BenchVerb::Topologies(flags) => {
            let bytes = size(flags.mib, flags.kib);
            let mut plan = plan(flags.peers, bytes, flags.rounds, &flags.reduction);
            plan.reduction.codec = flags.codec.into();
            let outcome = bench::topologies(&plan, &context.console).await?;
            print(context.global.json, || json!(outcome), || outcome.describe())?;
        }
        BenchVerb::Link(flags) => {
            let outcome = bench::link(&link_plan(flags), &context.console).await?;
            print(context.global.json, || json!(outcome), || outcome.describe())?;
        }
        BenchVerb::Swarm(flags) => {
            let (plan, console, json) = (live_plan(flags)?, context.console.clone(), context.global.json);
            let invite = move |ticket: String| {
                let text = || {
                    format!("on each of the other machines, `starling bench swarm --join -`, and paste:\n{ticket}\n")
                };
                print(json, || json!({ "ticket": ticket }), text)
            };
            // It waits in threads of its own for the others, which may take long.
            let measured = tokio::task::spawn_blocking(move || bench::live(&plan, &console, invite)).await;
            let outcome = measured.map_err(|_| NodeError::Stopped("benchmark"))??;
            print(context.global.json, || json!(outcome), || outcome.describe())?;
        }
        BenchVerb::Memory(flags) => {
            let MemoryFlags { model, peers, steps, flags } = flags.clone();
            let outcome = bench::memory(&MemoryPlan { model, peers, steps, flags }).await?;
            print(context.global.json, || json!(outcome), || outcome.describe())?;
        }
        BenchVerb::Member => bench::serve().await?,
    }
    Ok(EXIT_DONE)
}

/// In bytes.
fn size(mib: u32, kib: Option<u32>) -> usize {
    kib.map_or_else(|| (mib as usize) << 20, |kib| (kib as usize) << 10)
}

fn live_plan(flags: &SwarmFlags) -> Result<LivePlan, CommandError> {
    let bytes = size(flags.mib, flags.kib);
    let join = flags.join.as_deref().map(|text| parse_ticket(&read_argument(text)?)).transpose()?;
    Ok(LivePlan {
        join,
        peers: flags.peers,
        elements: bytes / size_of::<f32>(),
        codec: flags.codec.into(),
        plan: flags.plan.into(),
        rounds: flags.rounds,
        settle: Duration::from_secs(flags.settle.into()),
        data_plane: flags.transport.into(),
        listen: flags.listen.clone(),
        mbit: flags.mbit,
    })
}

fn all_reduce_plan(flags: &AllReduceFlags) -> Plan {
    let bytes = size(flags.mib, flags.kib);
    let mut plan = plan(flags.peers, bytes, flags.rounds, &flags.reduction);
    (plan.reduction.codec, plan.reduction.plan) = (flags.codec.into(), flags.plan.into());
    plan
}

/// Of two members, each sends all it has once: half of it in each phase.
fn link_plan(flags: &LinkFlags) -> Plan {
    plan(2, (flags.mib as usize) << 20, flags.rounds, &flags.reduction)
}

fn plan(peers: u32, bytes: usize, rounds: u32, flags: &ReductionFlags) -> Plan {
    let elements = |kib: u32| (kib as usize) << 10 >> 2;
    let reduction = ReductionSpec {
        secret: rand::random(),
        data_plane: flags.transport.into(),
        elements: bytes / size_of::<f32>(),
        codec: Codec::F32,
        plan: PlanPolicy::Ring,
        bucket_elements: elements(flags.bucket_kib),
        segment_elements: elements(flags.segment_kib),
        in_flight: flags.in_flight,
    };
    Plan { peers, reduction, rounds, seed: flags.seed }
}
