//! `starling bench` on every transport: it checks its own sums, so what is tested is that it ends well and says so.

use std::time::Duration;

use serde_json::Value;
use starling_tests::chaos::Wire;
use starling_tests::starling;
use tempfile::TempDir;

/// The object that a benchmark prints.
fn bench(args: &str) -> Value {
    let dir = TempDir::new().expect("a temp dir");
    let output = starling(dir.path()).args(["--json", "bench"]).args(args.split_whitespace()).output();
    let output = output.expect("starling starts");
    assert!(output.status.success(), "{args}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one object")
}

#[test]
fn every_transport_reduces_exactly() {
    let here = if cfg!(target_os = "linux") { "local" } else { "direct" };
    for (transport, shown, encrypted) in [
        ("auto", here, here != "local"),
        ("direct", "direct", true),
        ("plaintext", "plaintext", false),
        ("libp2p", "universal", true),
    ] {
        // Buckets and segments of odd sizes, several of each.
        let outcome = bench(&format!(
            "allreduce --peers 3 --kib 300 --bucket-kib 100 --segment-kib 7 --rounds 2 --transport {transport}"
        ));
        assert_eq!(outcome["transport"], shown, "{outcome}");
        assert_eq!(outcome["encrypted"], encrypted, "{outcome}");
        assert_eq!((&outcome["peers"], &outcome["bytes"]), (&3.into(), &(300 * 1024).into()), "{outcome}");
        for figure in ["median_s", "busbw_gbps", "cpu_s"] {
            assert!(outcome[figure].as_f64().is_some_and(|value| value > 0.0), "{figure}: {outcome}");
        }
        assert!(outcome["bound"]["seconds"].as_f64().is_some_and(|value| value > 0.0), "{outcome}");
    }
}

#[test]
fn every_codec_and_plan_reduces() {
    for (plan, taken) in [("ring", "ring"), ("tree", "tree"), ("mesh", "mesh"), ("auto", "mesh")] {
        for codec in ["f32", "bf16", "f16", "int8"] {
            let size = "--peers 4 --kib 300 --bucket-kib 100 --segment-kib 7 --rounds 2";
            let outcome = bench(&format!("allreduce {size} --plan {plan} --codec {codec}"));
            assert_eq!((&outcome["plan"], &outcome["codec"]), (&taken.into(), &codec.into()), "{outcome}");
            assert!(outcome["median_s"].as_f64().is_some_and(|value| value > 0.0), "{outcome}");
        }
    }
}

#[test]
fn members_on_several_machines_measure_together() {
    let wire = Wire {
        peers: 3,
        mbit: 200,
        rtt: Duration::ZERO,
        loss: 0.0,
        kib: 1024,
        rounds: 2,
        plan: "mesh".to_owned(),
        hubs: 0,
        // How near it comes is not for a test to say.
        reach: 0.0,
        int8: f64::MIN_POSITIVE,
        slow_mbit: None,
        sites: false,
        gain: 0.0,
        near: f64::INFINITY,
        settle: Duration::ZERO,
        seed: 1,
    };
    let verdict = wire.run().expect("carried out");
    assert!(verdict.broken().is_empty(), "{verdict:?}");
    for figure in ["bound_s", "f32_s", "int8_s"] {
        assert!(verdict.get(figure).as_f64().is_some_and(|value| value > 0.0), "{figure}: {verdict:?}");
    }
}

#[test]
fn a_link_has_a_latency_and_a_rate() {
    let outcome = bench("link --mib 1 --rounds 2");
    for figure in ["rtt_s", "gbps"] {
        assert!(outcome[figure].as_f64().is_some_and(|value| value > 0.0), "{figure}: {outcome}");
    }
}

#[test]
fn all_plans_reduce_the_same_buffers() {
    let outcome = bench("topologies --peers 4 --kib 64 --rounds 2");
    let plans = outcome["plans"].as_array().expect("a list");
    let told = |name: &str| -> Vec<u64> { plans.iter().map(|plan| plan[name].as_u64().expect("a number")).collect() };
    let names: Vec<&str> = plans.iter().filter_map(|plan| plan["plan"].as_str()).collect();
    assert_eq!(names, ["ring", "tree", "mesh", "star {0}"]);
    assert_eq!((plans[0]["ratio"].as_f64(), told("links")), (Some(1.0), vec![4, 10, 12, 6]), "{outcome}");
    // A ring's and a mesh's members send alike; a hub sends the whole to each of the others.
    assert_eq!([told("most_sent")[0], told("most_sent")[2], told("most_sent")[3]], [98_304, 98_304, 196_608]);
    assert!(told("all_sent").iter().all(|bytes| *bytes == 393_216), "{outcome}");
}

/// What `docs/bench.md` accounts for, and less than one number of four bytes per parameter beyond it: what a second copy of anything would take.
#[test]
fn a_member_takes_as_many_numbers_per_parameter_as_is_said() {
    for (flags, numbers) in [("", 6.0), ("--micro-batch 4", 6.0), ("--ema 0.999 --evaluate-every 2", 7.0)] {
        let model = "--model mlp:1500,1500,1500,1500,1500 --steps 4";
        let outcome = bench(&format!("memory {model} -- --batch-size 8 {flags}"));
        let taken = outcome["per_parameter"].as_f64().expect("a number") / 4.0;
        // Where others take the processor, one buffer may be there before another is gone: up to one more, and two were taken too many.
        assert!((numbers - 1.0..numbers + 1.75).contains(&taken), "{flags}: {taken} of {numbers}: {outcome}");
    }
}
