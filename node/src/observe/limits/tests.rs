//! What is said to slow steps down, and when.

use starling_topology::SplitMix64Generator;

use super::*;

fn pace(peer: &str, samples_per_s: f64, computing_share: f64) -> MemberPaceReport {
    MemberPaceReport {
        peer: peer.to_owned(),
        samples: 100,
        samples_per_s: Some(samples_per_s),
        computing_share,
        syncing: false,
        starved: false,
    }
}

/// A second of 100 steps.
fn members(paces: &[(f64, f64)]) -> Report {
    let members = ["a", "b", "c", "d"].iter().zip(paces).map(|(peer, (speed, share))| pace(peer, *speed, *share));
    Report::Members { seconds: 1.0, steps: 100, members: members.collect() }
}

fn view(names: &[&str]) -> Report {
    Report::View {
        generation: 1,
        view: String::new(),
        rank: 0,
        members: names.iter().map(|name| (*name).to_owned()).collect(),
        newcomers: Vec::new(),
        step: 0,
        reason: String::new(),
        promised: 0,
        of: 0,
        took_ms: 0,
        forked: false,
    }
}

/// Links whose bytes take so many milliseconds of each step.
fn costs(step_ms: &[u64], codec: &str) -> Report {
    let link = |(from, step_ms): (usize, &u64)| LinkCost {
        from: ["a", "b", "c"][from].to_owned(),
        to: ["b", "c", "a"][from].to_owned(),
        bytes: step_ms * 500,
        agreed: Some(MeasuredLink { rtt_ms: 1.0, mbit: 4.0 }),
    };
    Report::Costs { links: step_ms.iter().enumerate().map(link).collect(), codec: codec.to_owned() }
}

fn hear_all(limits: &mut Limits, reports: &[Report]) -> Vec<Report> {
    reports.iter().filter_map(|report| limits.hear(report)).collect()
}

fn assert_slow(told: &[Report], peer: &str, speed: f64) {
    let [Report::Limit { limit: Some(Limit::Member { peer: named, speed: at }) }] = told else { panic!("{told:?}") };
    assert!(named == peer && (at - speed).abs() < 1e-9, "{told:?}");
}

const NOBODY: Report = Report::Limit { limit: None };

#[test]
fn a_slow_member_is_named_after_three_seconds_and_until_it_is_not() {
    let mut limits = Limits::default();
    let (fair, bad) =
        (members(&[(100.0, 0.3), (110.0, 0.3), (90.0, 0.3)]), members(&[(100.0, 0.3), (20.0, 0.9), (110.0, 0.3)]));
    assert_eq!(hear_all(&mut limits, &vec![fair.clone(); 10]), []);
    assert_eq!(hear_all(&mut limits, &[bad.clone(), bad.clone(), fair.clone(), bad.clone(), bad.clone()]), []);
    assert_slow(&hear_all(&mut limits, std::slice::from_ref(&bad)), "b", 20.0 / 105.0);
    assert_eq!(hear_all(&mut limits, &vec![bad.clone(); 10]), [], "once");
    let mixed: Vec<Report> = (0..20).map(|at| if at % 5 == 0 { bad.clone() } else { fair.clone() }).collect();
    assert_eq!(hear_all(&mut limits, &mixed), [], "it is still there now and then");
    assert_eq!(hear_all(&mut limits, &vec![fair; 10]), [NOBODY]);
}

#[test]
fn a_machine_that_stands_still_now_and_then_is_slow_all_together() {
    // The same standstills hit more or less of its computing in each second.
    let seconds = [(55.0, 0.2), (10.0, 0.9), (58.0, 0.2)].map(|slow| members(&[(100.0, 0.1), slow, (100.0, 0.1)]));
    assert_slow(&hear_all(&mut Limits::default(), &seconds), "b", (55.0 * 0.2 + 10.0 * 0.9 + 58.0 * 0.2) / 1.3 / 100.0);
}

#[test]
fn who_is_gone_slows_nobody_down() {
    let mut limits = Limits::default();
    let bad = members(&[(100.0, 0.3), (20.0, 0.9), (110.0, 0.3)]);
    assert_eq!(hear_all(&mut limits, &vec![bad.clone(); 3]).len(), 1);
    assert_eq!(hear_all(&mut limits, &[view(&["a", "b"])]), [], "it is there");
    assert_eq!(hear_all(&mut limits, &[view(&["a", "c"])]), [NOBODY]);
    assert_eq!(hear_all(&mut limits, &[bad.clone(), bad.clone(), view(&["a", "b", "c"]), bad.clone(), bad]), []);
}

#[test]
fn of_two_the_slower_one_is_named_and_one_alone_never_is() {
    let mut limits = Limits::default();
    assert_slow(&hear_all(&mut limits, &vec![members(&[(10.0, 0.9), (40.0, 0.2)]); 3]), "a", 0.25);
    assert_eq!(hear_all(&mut Limits::default(), &vec![members(&[(10.0, 0.9)]); 10]), []);
    assert_eq!(hear_all(&mut Limits::default(), &vec![members(&[]); 10]), []);
}

#[test]
fn a_small_share_that_takes_long_for_each_sample_holds_nobody_up() {
    // Most of the time goes into what each step costs, however few samples it has.
    let few = members(&[(1_000.0, 0.5), (150.0, 0.2), (1_000.0, 0.5)]);
    assert_eq!(hear_all(&mut Limits::default(), &vec![few; 10]), []);
    let idle = members(&[(1_000.0, 0.01), (150.0, 0.05), (1_000.0, 0.01)]);
    assert_eq!(hear_all(&mut Limits::default(), &vec![idle; 10]), [], "the steps wait for something else");
}

#[test]
fn fair_members_on_a_noisy_machine_are_never_named() {
    for seed in 0..20 {
        let (mut random, mut limits) = (SplitMix64Generator::new(seed), Limits::default());
        for look in 0..1_000 {
            // Speeds between 0.7 and 1.3 of what is fair, and one second in forty something else takes a core away.
            let mut speeds = [0.0; 3].map(|_: f64| 700.0 + f64::from(random.below(600)));
            if random.below(40) == 0 {
                speeds[random.below(3) as usize] *= 0.3;
            }
            let told = limits.hear(&members(&speeds.map(|speed| (speed, 300.0 / speed))));
            assert_eq!(told, None, "seed {seed}, look {look}");
        }
    }
}

#[test]
fn a_slow_member_is_named_on_a_noisy_machine_within_five_seconds() {
    let mut late = 0;
    for seed in 0..1_000 {
        let (mut random, mut limits) = (SplitMix64Generator::new(seed), Limits::default());
        let mut speed = |fair: u32| f64::from(fair * 6 / 10 + random.below(fair * 8 / 10));
        let named = (1..=5).find(|_| {
            let paces = [speed(1000), speed(200), speed(1000)].map(|speed| (speed, 150.0 / speed));
            matches!(limits.hear(&members(&paces)), Some(Report::Limit { limit: Some(Limit::Member { peer, .. }) }) if peer == "b")
        });
        late += usize::from(named.is_none());
    }
    assert!(late <= 20, "{late} of 1000 were not named in time");
}

#[test]
fn a_link_is_the_limit_if_its_bytes_take_most_of_the_step() {
    let mut limits = Limits::default();
    let fair = members(&[(100.0, 0.1), (110.0, 0.1), (90.0, 0.1)]);
    limits.hear(&costs(&[1, 4, 2], "f32"));
    assert_eq!(hear_all(&mut limits, &vec![fair.clone(); 5]), [], "four of ten milliseconds");
    limits.hear(&costs(&[1, 8, 2], "bf16"));
    let told = hear_all(&mut limits, &vec![fair.clone(); 5]);
    let [Report::Limit { limit: Some(Limit::Link { from, to, share, codec, codec_share }) }] = told.as_slice() else {
        panic!("{told:?}")
    };
    assert_eq!((from.as_str(), to.as_str(), codec.as_deref()), ("b", "c", Some("int8")));
    assert!((share - 0.8).abs() < 1e-9 && (0.5..0.52).contains(codec_share), "{share} {codec_share}");
    limits.hear(&costs(&[1, 4, 2], "bf16"));
    assert_eq!(hear_all(&mut limits, &vec![fair.clone(); 10]), [], "not clearly over");
    limits.hear(&costs(&[1, 2, 2], "bf16"));
    assert_eq!(hear_all(&mut limits, &vec![fair.clone(); 10]), [NOBODY]);
    limits.hear(&costs(&[1, 8, 2], "int8"));
    let told = hear_all(&mut limits, &vec![fair; 3]);
    assert!(matches!(&told[..], [Report::Limit { limit: Some(Limit::Link { codec: None, .. }) }]), "{told:?}");
    // What this peer has measured since is newer.
    let mut limits = Limits { me: "b".to_owned(), ..Limits::default() };
    limits.hear(&costs(&[1, 8, 2], "f32"));
    limits.hear(&Report::Measured { links: [("c".to_owned(), MeasuredLink { rtt_ms: 1.0, mbit: 400.0 })].into() });
    assert_eq!(hear_all(&mut limits, &vec![members(&[(100.0, 0.1); 3]); 10]), []);
}
