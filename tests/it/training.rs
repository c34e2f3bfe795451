//! Members of one run end with the same bits, whatever the data, the device, and how often it was interrupted.

use std::path::Path;
use std::process::Stdio;

use serde_json::Value;
use starling_tests::{Machine, Outcome, Peer, PeerOptions, audit, data};
use tempfile::TempDir;

/// Founds a run of three with `flags` on `data`, joins it twice by ticket, and compares.
fn three_peers_agree(flags: &str, data: Option<&Path>) {
    let with_data = |options: PeerOptions| match data {
        Some(path) => options.with("--data", path),
        None => options,
    };
    let founder = Peer::run(&with_data(PeerOptions::networked(&format!("--min-peers 3 {flags}"))));
    let ticket = founder.ticket();
    let joiners = [(); 2].map(|()| Peer::join(&ticket, &with_data(PeerOptions::networked(""))));
    // A joiner that fails says why; a founder would only wait for it.
    let outcomes: Vec<Outcome> = joiners.into_iter().chain([founder]).map(Peer::finish).collect();
    let first = outcomes[0].summary();
    assert_eq!(first["outcome"], "complete");
    assert!(first["bytes_sent"].as_u64().is_some_and(|bytes| bytes > 0), "{first}");
    for outcome in &outcomes[1..] {
        for field in ["digest", "steps", "loss", "measures", "world_size"] {
            assert_eq!(outcome.summary()[field], first[field], "{field}");
        }
    }
}

#[test]
fn csv() {
    three_peers_agree("--steps 60 --model mlp:16", Some(&data::breast_cancer()));
}

#[test]
fn idx() {
    let folder = TempDir::new().expect("a temp dir");
    data::write_idx(folder.path());
    three_peers_agree("--steps 60 --model cnn:4 --optimizer momentum", Some(folder.path()));
}

/// What is dropped, and how images are changed, does not depend on who computes it.
#[test]
fn dropout_and_augmentation_on_three_machines_as_on_one() {
    let loss = |outcome: &Outcome| outcome.summary()["held_out_loss"].as_f64().expect("a loss");
    for (flags, random) in [
        (
            "--steps 60 --model mlp:32 --optimizer sgd --learning-rate 0.2 --batch-size 48 --micro-batch 8",
            "--dropout 0.2",
        ),
        (
            "--steps 140 --model cnn:8,16 --optimizer momentum --learning-rate 0.1 --batch-size 48 --micro-batch 8",
            "--dropout 0.2 --augment flip,crop",
        ),
        // All at once.
        (
            "--steps 60 --model cnn:8,16 --optimizer momentum --learning-rate 0.05 --batch-size 48 --micro-batch 16 \
             --schedule cosine --warm-up 10 --clip 1.0 --ema 0.9",
            "--batch-norm true --dropout 0.1 --augment flip,crop",
        ),
    ] {
        let alone = |flags: &str| loss(&Peer::run(&PeerOptions::networked(flags)).finish());
        let (plain, all) = (alone(flags), format!("{flags} {random}"));
        let expected = alone(&all);
        assert!((expected - plain).abs() > 1e-2, "it makes a difference: {expected} and {plain}");
        let founder = Peer::run(&PeerOptions::networked(&format!("--min-peers 3 {all}")));
        let ticket = founder.ticket();
        // One insists on what the run has.
        let joiners = [random, ""].map(|flags| Peer::join(&ticket, &PeerOptions::networked(flags)));
        let outcomes: Vec<Outcome> = joiners.into_iter().chain([founder]).map(Peer::finish).collect();
        for outcome in &outcomes {
            assert_eq!(outcome.summary()["world_size"], 3);
            assert_eq!(outcome.summary()["digest"], outcomes[0].summary()["digest"]);
            assert!((loss(outcome) - expected).abs() < 1e-4, "{} and {expected}", loss(outcome));
        }
    }
}

/// A frozen part is sent by nobody: what members send falls by its share.
#[test]
fn what_is_frozen_does_not_travel() {
    let sent = |flags: &str| {
        let flags = format!("--min-peers 2 --steps 60 --model mlp:256,16 --checkpoint-every 0 {flags}");
        let founder = Peer::run(&PeerOptions::networked(&flags));
        let joiner = Peer::join(&founder.ticket(), &PeerOptions::networked("--checkpoint-every 0"));
        let bytes = |peer: Peer| peer.finish().summary()["bytes_sent"].as_u64().expect("a number") as f64;
        bytes(joiner) + bytes(founder)
    };
    let (stem, all) = (64.0 * 256.0 + 256.0, 64.0 * 256.0 + 256.0 + 256.0 * 16.0 + 16.0 + 16.0 * 10.0 + 10.0);
    let share = sent("--freeze hidden.0") / sent("");
    assert!((share - (1.0 - stem / all)).abs() < 0.03, "{share} of {}", 1.0 - stem / all);
}

/// All end in the same step with the same model, long before the last one, and know it when they are started again.
#[test]
fn members_end_early_together_and_stay_ended() {
    let flags = "--steps 100000 --model mlp:16 --learning-rate 0.05 --early-stop 3 --evaluate-every 10";
    let founder = Peer::run(&PeerOptions::networked(&format!("--min-peers 3 {flags}")));
    let ticket = founder.ticket();
    let joiners = [(); 2].map(|()| Peer::join(&ticket, &PeerOptions::networked("")));
    let dir = founder.dir();
    let outcomes: Vec<Outcome> = joiners.into_iter().chain([founder]).map(Peer::finish).collect();
    let (first, steps) = (outcomes[0].summary(), outcomes[0].summary()["steps"].as_u64().expect("a number"));
    assert!(first["outcome"] == "complete" && steps < 5_000 && steps % 10 == 1, "{first}");
    for outcome in &outcomes {
        let judged: Vec<&Value> =
            outcome.events.iter().map(|(_, event)| event).filter(|event| event["event"] == "judged").collect();
        let last = judged.last().expect("it was judged");
        assert_eq!((&last["is_over"], &last["without"]), (&Value::Bool(true), &Value::from(3)));
        assert_eq!(last["step"].as_u64(), Some(steps - 1));
        // The model that is left is the best one.
        let (loss, best) = (outcome.summary()["held_out_loss"].as_f64(), last["best_loss"].as_f64());
        assert!(loss.zip(best).is_some_and(|(loss, best)| (loss / best - 1.0).abs() < 1e-4), "{loss:?}, {best:?}");
        assert_eq!(outcome.summary()["digest"], first["digest"]);
    }
    let again = Peer::run_in(dir, &PeerOptions::networked(&format!("--min-peers 3 {flags}")));
    let outcome = again.finish();
    let said = outcome.error();
    assert!(said.contains("is complete") && said.contains(&format!("ended after step {steps}")), "{said}");
}

/// Members hold the same bits however coarse the numbers are that their devices compute in.
#[test]
fn devices_compute_in_less_precise_numbers() {
    for precision in ["bf16", "f16"] {
        let model = "--steps 40 --model mlp:16 --batch-norm true --dropout 0.1 --micro-batch 16";
        let schedule = "--schedule cosine:0.5*plateau:0.5,2 --evaluate-every 5 --clip 1 --clip-by tensor";
        three_peers_agree(&format!("{model} {schedule} --precision {precision}"), None);
    }
}

#[test]
fn softmax_with_a_batch_smaller_than_the_ring() {
    three_peers_agree("--steps 20 --model softmax --batch-size 2 --optimizer sgd", None);
}

#[test]
fn adagrad() {
    three_peers_agree("--steps 40 --model mlp:16 --optimizer adagrad --epsilon 1e-6", None);
}

#[test]
fn rmsprop_with_the_root_of_the_steps_and_an_average() {
    let schedule = "--schedule inverse-root:20 --warm-up 5 --ema 0.9 --evaluate-every 20";
    three_peers_agree(&format!("--steps 40 --model mlp:16 --optimizer rmsprop {schedule}"), None);
}

#[test]
fn lion_on_a_cosine_after_a_warm_up() {
    let schedule = "--schedule cosine:0.1 --warm-up 10";
    three_peers_agree(&format!("--steps 40 --model mlp:16 --optimizer lion --beta2 0.98 {schedule}"), None);
}

/// Trains four peers with `flags` and an audit; all end with one digest, no sample is lost, and the plan is `plan`. Returns
/// the accuracy.
fn four_peers(flags: &str, plan: &str) -> f64 {
    let folder = TempDir::new().expect("a temp dir");
    let options = |index: usize| PeerOptions::networked("").with("--audit", folder.path().join(index.to_string()));
    let mut founding = options(0).with("--min-peers", "4").with("--steps", "300").with("--balance", "equal");
    founding.flags.extend(flags.split_whitespace().map(str::to_owned));
    let founder = Peer::run(&founding);
    let ticket = founder.ticket();
    let joiners = (1..4).map(|index| Peer::join(&ticket, &options(index)));
    let peers: Vec<Peer> = joiners.collect::<Vec<_>>().into_iter().chain([founder]).collect();
    for peer in &peers {
        peer.wait_for_view(4);
        peer.wait_for(&format!("a {plan}"), |event| event["event"] == "linked" && event["plan"] == plan);
    }
    let outcomes: Vec<Outcome> = peers.into_iter().map(Peer::finish).collect();
    let first = outcomes[0].summary();
    for outcome in &outcomes {
        assert_eq!(outcome.summary()["digest"], first["digest"], "{flags}");
        assert_eq!(outcome.summary()["world_size"], 4);
    }
    audit((0..4).map(|index| folder.path().join(index.to_string())));
    first["measures"]["accuracy"].as_f64().expect("measured")
}

#[test]
fn codecs_that_lose_something_lose_no_accuracy_to_speak_of() {
    let exact = four_peers("--codec f32", "ring");
    assert!(exact > 0.9, "{exact}");
    for codec in ["bf16", "f16", "int8"] {
        let accuracy = four_peers(&format!("--codec {codec}"), "ring");
        assert!(accuracy > exact - 0.03, "{codec}: {accuracy}, where f32 has {exact}");
    }
}

#[test]
fn every_plan_trains() {
    for (flags, plan) in [("--plan tree", "tree"), ("--plan mesh --codec int8", "mesh"), ("--plan auto", "mesh")] {
        assert!(four_peers(flags, plan) > 0.9, "{flags}");
    }
}

/// The model has buckets enough for one to be reduced before all are.
#[test]
fn who_begins_its_updates_early_comes_to_the_same() {
    let founder = Peer::run(&PeerOptions::networked("--min-peers 3 --steps 15 --model mlp:1200,1200 --codec bf16"));
    let ticket = founder.ticket();
    let early = [(); 2].map(|()| Peer::join(&ticket, &PeerOptions::networked("--update-ahead 64")));
    let outcomes: Vec<Outcome> = early.into_iter().chain([founder]).map(Peer::finish).collect();
    let digests: Vec<_> = outcomes.iter().map(|outcome| outcome.summary()["digest"].clone()).collect();
    assert!(digests.iter().all(|digest| *digest == digests[0]), "{digests:?}");
}

/// With clipping, nobody can begin early, whoever asks for it.
#[test]
fn a_clipped_gradient_is_waited_for() {
    let clip = "--min-peers 3 --steps 15 --model mlp:1200,1200 --optimizer adam --clip 0.05";
    let founder = Peer::run(&PeerOptions::networked(clip));
    let ticket = founder.ticket();
    let early = [(); 2].map(|()| Peer::join(&ticket, &PeerOptions::networked("--update-ahead 256 --clip 0.05")));
    let outcomes: Vec<Outcome> = early.into_iter().chain([founder]).map(Peer::finish).collect();
    let digests: Vec<_> = outcomes.iter().map(|outcome| outcome.summary()["digest"].clone()).collect();
    assert!(digests.iter().all(|digest| *digest == digests[0]), "{digests:?}");
}

/// Trains three peers with `flags` each and compares the transports of their links, previous and next, and digests.
fn links_are(flags: [&str; 3], expected: [[&str; 2]; 3]) {
    let options = flags.map(|flags| PeerOptions::networked(&format!("--data-plane {flags}")));
    let founder = Peer::run(&options[0].clone().with("--min-peers", "3").with("--steps", "40"));
    let ticket = founder.ticket();
    let peers = [founder, Peer::join(&ticket, &options[1]), Peer::join(&ticket, &options[2])];
    let mut digests = Vec::new();
    for (peer, expected) in peers.into_iter().zip(expected) {
        peer.wait_for_view(3);
        // The ring of a smaller view may have linked before; the last one is that of three.
        let are = |links: &Value, expected: &str| {
            links.as_object().is_some_and(|links| links.values().all(|transport| transport == expected))
        };
        let wanted = |event: &Value| {
            event["event"] == "linked" && are(&event["from"], expected[0]) && are(&event["to"], expected[1])
        };
        peer.wait_for(&format!("links {expected:?}"), wanted);
        digests.push(peer.finish().summary()["digest"].clone());
    }
    assert!(digests.iter().all(|digest| *digest == digests[0]), "{digests:?}");
}

#[cfg(target_os = "linux")]
#[test]
fn links_are_memory_within_a_machine() {
    links_are(["auto"; 3], [["local"; 2]; 3]);
}

#[test]
fn links_are_direct_where_all_insist_on_it() {
    links_are(["direct"; 3], [["direct"; 2]; 3]);
}

#[test]
fn links_are_universal_where_all_ask_for_it() {
    links_are(["universal"; 3], [["universal"; 2]; 3]);
}

#[test]
fn over_quic_alone() {
    let listen = "/ip4/127.0.0.1/udp/0/quic-v1";
    let quic = |flags: &str| PeerOptions { listen: Some(listen.into()), ..PeerOptions::flags(flags) };
    let founder = Peer::run(&quic("--min-peers 3 --steps 40"));
    let ticket = founder.ticket();
    assert!(founder.address().contains("quic-v1"));
    let joiners = [(); 2].map(|()| Peer::join(&ticket, &quic("")));
    let digests = joiners.map(|joiner| joiner.finish().summary()["digest"].clone());
    let digest = founder.finish().summary()["digest"].clone();
    assert_eq!(digests, [digest.clone(), digest]);
}

#[test]
fn a_public_run_is_joined_by_address_alone() {
    let founder = Peer::run(&PeerOptions::flags("--min-peers 2 --steps 30 --public"));
    let joiner = Peer::join(&founder.address(), &PeerOptions::default());
    let digest = joiner.finish().summary()["digest"].clone();
    assert_eq!(founder.finish().summary()["digest"], digest);
}

/// The `f32` values of an exported model, in the file's order of names.
fn exported(path: &Path) -> Vec<f32> {
    let bytes = std::fs::read(path).expect("exported");
    let tensors = safetensors::SafeTensors::deserialize(&bytes).expect("a safetensors file");
    let mut named = tensors.tensors();
    named.sort_by(|(a, _), (b, _)| a.cmp(b));
    let values = named.iter().flat_map(|(_, tensor)| tensor.data().as_chunks::<4>().0.to_vec());
    values.map(f32::from_le_bytes).collect()
}

#[test]
fn four_peers_take_the_steps_of_one() {
    let folder = TempDir::new().expect("a temp dir");
    let (one, four) = (folder.path().join("one.safetensors"), folder.path().join("four.safetensors"));
    let flags = "--steps 50 --batch-size 64 --model mlp:32 --optimizer momentum";
    let alone = Peer::run(&PeerOptions::flags(flags).with("--export", &one));
    alone.finish().summary();

    let founder = Peer::run(&PeerOptions::flags(&format!("--min-peers 4 {flags}")).with("--export", &four));
    let ticket = founder.ticket();
    let joiners = [(); 3].map(|()| Peer::join(&ticket, &PeerOptions::default()));
    for peer in joiners.into_iter().chain([founder]) {
        assert_eq!(peer.finish().summary()["world_size"], 4);
    }

    let (one, four) = (exported(&one), exported(&four));
    assert_eq!(one.len(), four.len());
    let difference: f64 = one.iter().zip(&four).map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>().sqrt();
    let length: f64 = one.iter().map(|a| f64::from(*a).powi(2)).sum::<f64>().sqrt();
    assert!(difference > 0.0, "four peers sum in another order; equal bits mean that they did not take part");
    assert!(difference <= 1e-5 * length, "relative difference {:e}", difference / length);
}

/// Trains with these flags, alone or with joiners, and returns the model.
fn trained(flags: &str, table: &Path, joiners: usize) -> Vec<f32> {
    let folder = TempDir::new().expect("a temp dir");
    let model = folder.path().join("model.safetensors");
    let data = |options: PeerOptions| options.with("--data", table);
    let founding = PeerOptions::flags(&format!("--min-peers {} {flags}", joiners + 1));
    let founder = Peer::run(&data(founding).with("--export", &model));
    let ticket = founder.ticket();
    let joiners: Vec<Peer> = (0..joiners).map(|_| Peer::join(&ticket, &data(PeerOptions::default()))).collect();
    for peer in joiners {
        assert!(peer.finish().summary()["bytes_sent"].as_u64() > Some(0));
    }
    founder.finish().summary();
    exported(&model)
}

/// Rows that count differently, some of them nothing, are weighed by what they count wherever they are computed.
#[test]
fn three_peers_weigh_rows_as_one_does() {
    let folder = TempDir::new().expect("a temp dir");
    let table = |name: &str, counts: fn(u32) -> f64| {
        let row = |at: u32| {
            let [a, b, c] = [7, 11, 13].map(|by| f64::from(at * by % 29) / 29.0);
            format!("{a:.4},{b:.4},{c:.4},{},{}\n", counts(at), if a + b > 2.0 * c { "over" } else { "under" })
        };
        let path = folder.path().join(name);
        std::fs::write(&path, "a,b,c,counts,side\n".to_owned() + &(0..300).map(row).collect::<String>())
            .expect("written");
        path
    };
    let uneven = table("uneven.csv", |at| [0.0, 0.25, 1.0, 9.5, 3.0][(at * 17 % 5) as usize]);
    let flags = "--weights counts --label side --steps 60 --model mlp:8 --optimizer sgd --learning-rate 0.2 --batch-size 48 --micro-batch 8";
    let one = trained(flags, &uneven, 0);
    let three = trained(flags, &uneven, 2);
    let length = |numbers: &mut dyn Iterator<Item = f64>| numbers.map(|number| number.powi(2)).sum::<f64>().sqrt();
    let off = |others: &[f32]| {
        let differences = &mut one.iter().zip(others).map(|(a, b)| f64::from(a - b));
        length(differences) / length(&mut one.iter().map(|number| f64::from(*number)))
    };
    assert!(off(&three) > 0.0 && off(&three) <= 1e-5, "relative difference {:e}", off(&three));
    let alike = trained(flags, &table("alike.csv", |_| 1.0), 0);
    assert!(off(&alike) > 1e-2, "what rows count makes a difference: {:e}", off(&alike));
}

#[test]
fn a_gpu_and_cpus_hold_the_same_bits() {
    let cpu = PeerOptions::flags("--min-peers 3 --steps 20 --model mlp:16 --max-stall-ms 60000");
    let founder = Peer::run(&cpu);
    let ticket = founder.ticket();
    // A software Vulkan driver compiles its shaders first; the others wait for it.
    let gpu = Peer::join(&ticket, &PeerOptions { device: "gpu", ..PeerOptions::default() });
    let other = Peer::join(&ticket, &PeerOptions::default());
    let started = gpu.wait_for("its start", |event| event["event"] == "started");
    assert!(!started["device"].as_str().expect("a name").contains("flex"), "{started}");
    let outcomes = [gpu, other, founder].map(Peer::finish);
    for outcome in &outcomes {
        assert_eq!(outcome.summary()["digest"], outcomes[0].summary()["digest"]);
        assert_eq!(outcome.summary()["steps"], 20);
    }
}

/// A device that has no such numbers is refused when it is opened, and the run goes on without it. Of one that has them, there is nothing to see.
#[test]
fn a_device_that_does_not_compute_in_such_numbers_is_refused_with_what_to_do() {
    let gpu = |flags: &str| PeerOptions { device: "gpu", ..PeerOptions::flags(flags) };
    for precision in ["bf16", "f16"] {
        let flags = format!("--model mlp:16 --max-stall-ms 60000 --precision {precision}");
        let own = Peer::run(&gpu(&format!("{flags} --steps 5"))).finish();
        if own.status.success() {
            continue;
        }
        let founder = Peer::run(&PeerOptions::flags(&format!("{flags} --steps 100000000")));
        let joiner = Peer::join(&founder.ticket(), &gpu("")).finish();
        for outcome in [own, joiner] {
            let said = outcome.error();
            assert!(said.contains(&format!("the run computes in {precision}, which `gpu` (")), "{said}");
            assert!(said.contains("take another device, or found a run with `--precision f32`"), "{said}");
        }
        founder.wait_for_step(founder.reached() + 20);
        let views = founder.told().iter().filter(|event| event["event"] == "view").count();
        assert_eq!(views, 1, "it never was a member");
        founder.signal("INT");
        founder.finish().summary();
    }
}

#[test]
fn a_killed_run_resumes_with_the_bits_of_an_unbroken_one() {
    let flags = "--steps 9000 --model mlp:128 --checkpoint-every 10";
    // The states' digests differ: they cover who computed what, and how fast.
    let folder = TempDir::new().expect("a temp dir");
    let [whole, broken] = ["whole", "broken"].map(|name| folder.path().join(format!("{name}.safetensors")));
    Peer::run(&PeerOptions::flags(flags).with("--export", &whole)).finish().summary();
    let resumed_flags = format!("{flags} --resume");
    // Where the kill falls is the scheduler's choice: between, before or in the middle of writing a checkpoint.
    let mut dir = None;
    for kill_after in [1, 500, 1500] {
        let options = PeerOptions::flags(&resumed_flags);
        let peer = match dir.take() {
            None => Peer::run(&options),
            Some(dir) => Peer::run_in(dir, &options),
        };
        peer.wait_for_step(kill_after);
        dir = Some(peer.dir());
        peer.signal("KILL");
        assert!(!peer.finish().status.success(), "killed too late to prove anything");
    }
    let options = PeerOptions::flags(&resumed_flags).with("--export", &broken);
    let resumed = Peer::run_in(dir.expect("the loop ran"), &options);
    let started = resumed.wait_for("its start", |event| event["event"] == "started");
    assert!(started["step"].as_u64().is_some_and(|step| step > 0), "resumed from nothing: {started}");
    resumed.finish().summary();
    let bits = |path: &Path| exported(path).into_iter().map(f32::to_bits).collect::<Vec<_>>();
    assert!(bits(&broken) == bits(&whole), "the parameters differ");
}

#[test]
fn the_demo_survives_a_kill_and_takes_one_in() {
    let folder = TempDir::new().expect("a temp dir");
    // Its peers listen where they do by default, on a machine that has more than one address.
    let mut command = Machine::own().starling(folder.path());
    let output = command.args(["demo", "--json"]).stderr(Stdio::piped()).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("text");
    let last: Value = serde_json::from_str(text.lines().last().expect("a last line")).expect("JSON");
    assert_eq!((&last["peers"], &last["killed"], &last["joined"]), (&4.into(), &1.into(), &1.into()), "{last}");
    assert_eq!((&last["samples_lost"], &last["samples_repeated"]), (&0.into(), &0.into()), "{last}");
    for figure in ["rering_ms", "recovery_ms", "join_ms"] {
        assert!(last[figure].is_u64(), "{figure}: {last}");
    }
    assert_eq!(last["digests_equal"], true);
    assert!(last["accuracy"].as_f64().is_some_and(|accuracy| accuracy >= 0.95), "{last}");
    assert!(last["steps"].as_u64().is_some_and(|steps| steps > 0), "{last}");
    assert!(last["samples_per_s"].as_f64().is_some_and(|rate| rate > 0.0), "{last}");
    let digests = last["digests"].as_array().expect("a list");
    assert_eq!(digests.len(), 4);
    assert!(digests.iter().all(|digest| *digest == digests[0]), "{last}");
}
