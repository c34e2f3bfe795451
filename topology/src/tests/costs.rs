//! Links are measured, told, agreed in the next view, and the view is changed when another plan is much better.

use std::time::Duration;

use super::changes::formed;
use super::cluster::{Cluster, RUN, me, peer};
use crate::plan::{Bucket, Link, PlanPolicy};
use crate::{
    Body, Config, Envelope, Event, Input, Membership, Output, PeerId, Progress, Reason, Ring, Time, Violation,
};

const BUCKET: Bucket = Bucket { bytes: 64 << 20, segment_bytes: 128 << 10 };
const FAR: Link = Link { delay_us: 5_000, bytes_per_second: 12_500_000 };

fn near(percent: u64) -> Link {
    Link { delay_us: 500, bytes_per_second: 125_000_000 * percent / 100 }
}

/// Even and odd names at one site each.
fn two_sites(from: PeerId, to: PeerId) -> Link {
    if from.0[0] % 2 == to.0[0] % 2 { near(100) } else { FAR }
}

/// Each of `names` measures its links to all that run.
fn measure(cluster: &mut Cluster, names: &[u8], link: impl Fn(PeerId, PeerId) -> Link) {
    let all = cluster.running();
    for from in names.iter().copied().map(peer) {
        let links = all.iter().copied().filter(|to| *to != from).map(|to| (to, link(from, to))).collect();
        cluster.input(from, Input::Measured { links });
    }
}

fn replans(cluster: &Cluster, name: u8) -> usize {
    let is_replan = |event: &&Event| match event {
        Event::Changed { reasons, .. } => reasons.contains(&Reason::Replanned),
        _ => false,
    };
    cluster.peers[&peer(name)].events.iter().filter(is_replan).count()
}

/// A run of `names` whose view has stood for long.
fn settled(seed: u64, names: &[u8]) -> Cluster {
    let mut cluster = formed(seed, 1_000_000, names);
    cluster.run_for(Duration::from_secs(30));
    cluster
}

fn crossings(cluster: &Cluster, of: u8) -> usize {
    let view = cluster.peers[&peer(of)].machine.view().expect("a member");
    let ring = Ring::plan(view);
    let ranks = ring.world_size().ranks();
    ranks.filter(|rank| ring.peer(*rank).0[0] % 2 != ring.next(*rank).0[0] % 2).count()
}

const NAMES: [u8; 6] = [1, 2, 3, 4, 5, 6];

#[test]
fn a_view_is_replanned_once_when_its_links_are_known() {
    for seed in 0..20 {
        let mut cluster = settled(seed, &NAMES);
        assert_eq!(crossings(&cluster, 1), 6);
        measure(&mut cluster, &NAMES[..5], two_sites);
        cluster.run_for(Duration::from_secs(5));
        assert_eq!(replans(&cluster, 1), 1, "the links of one member are known from the others: seed {seed}");
        measure(&mut cluster, &NAMES, two_sites);
        cluster.run_for(Duration::from_secs(600));
        for name in NAMES {
            assert_eq!((replans(&cluster, name), crossings(&cluster, name)), (1, 2), "seed {seed}, {name}");
            let lost = |event: &Event| matches!(event, Event::Suspected { .. } | Event::Evicted { .. });
            assert!(!cluster.has_event(peer(name), lost), "seed {seed}");
        }
    }
}

#[test]
fn a_view_is_not_replanned_for_little_or_for_what_is_half_known() {
    let mut cluster = settled(1, &NAMES);
    measure(&mut cluster, &NAMES[..4], two_sites);
    cluster.run_for(Duration::from_secs(300));
    assert_eq!(replans(&cluster, 1), 0, "of the link between the last two nobody knows");
    measure(&mut cluster, &NAMES, two_sites);
    cluster.run_for(Duration::from_secs(5));
    assert_eq!(replans(&cluster, 1), 1);
    for percent in [95, 80, 110, 90, 105] {
        measure(&mut cluster, &NAMES, |from, to| {
            let link = two_sites(from, to);
            Link { bytes_per_second: link.bytes_per_second * percent / 100, ..link }
        });
        cluster.run_for(Duration::from_secs(200));
    }
    assert_eq!(replans(&cluster, 1), 1, "all links alike change no plan");
}

#[test]
fn links_that_change_for_ever_change_the_view_less_and_less_often() {
    let mut cluster = settled(1, &NAMES);
    // The sites change sides every few seconds, so that each plan is bad soon.
    for turn in 0..600u32 {
        measure(&mut cluster, &NAMES, |from, to| {
            let side = |peer: PeerId| if turn % 2 == 0 { peer.0[0] % 2 } else { peer.0[0] / 4 };
            if side(from) == side(to) { near(100) } else { FAR }
        });
        cluster.run_for(Duration::from_secs(7));
    }
    // 70 minutes hold the intervals of 20 s, 40 s, ... up to 21 minutes.
    let count = replans(&cluster, 1);
    assert!((4..=9).contains(&count), "{count}");
}

#[test]
fn without_anything_that_is_reduced_nothing_is_replanned_but_a_change_takes_the_costs_along() {
    let mut cluster = Cluster::new(3, 1_000_000, 1);
    cluster.config.reduced = None;
    let names = [1, 2, 3, 4, 5];
    cluster.found(peer(1));
    for joiner in &names[1..] {
        cluster.join(peer(*joiner), &[peer(1)]);
    }
    cluster.run_until(|cluster| cluster.is_formed(&names.map(peer)));
    measure(&mut cluster, &names, two_sites);
    cluster.run_for(Duration::from_secs(100));
    assert_eq!(replans(&cluster, 1), 0);
    assert_eq!(cluster.peers[&peer(1)].machine.view().and_then(|view| view.costs()), None);
    cluster.kill(peer(5));
    cluster.join(peer(6), &[peer(2)]);
    cluster.run_until(|cluster| cluster.is_formed(&[1, 2, 3, 4, 6].map(peer)));
    let view = cluster.peers[&peer(6)].machine.view().expect("a member");
    assert_eq!(view.measured(peer(1), peer(3)), Some(near(100)));
    assert_eq!((view.measured(peer(1), peer(6)), view.measured(peer(4), peer(1))), (None, Some(FAR)));
}

/// Of two members, the one that hears the other.
#[test]
fn a_row_is_told_when_it_changes_and_no_more_than_once_a_beat() {
    let mut cluster = formed(1, 1_000_000, &[1, 2]);
    let view = cluster.peers[&peer(1)].machine.view().cloned().expect("a member");
    let told = |cluster: &mut Cluster, link: Link| {
        let machine = &mut cluster.at(peer(1)).machine;
        machine.handle(Time::ZERO, Input::Measured { links: vec![(peer(2), link), (peer(9), link)] }).expect("ours");
        assert!(machine.poll().is_none(), "not before the next beat");
        machine.handle(Time::ZERO, Input::Expired(crate::Timer::Heartbeat)).expect("ours");
        let sent = std::iter::from_fn(|| machine.poll());
        let rows = sent.filter_map(|output| match output {
            Output::Send { envelope: Envelope { body: Body::Measured { links }, .. }, .. } => Some(links),
            _ => None,
        });
        rows.collect::<Vec<_>>()
    };
    assert_eq!(told(&mut cluster, near(100)), [[(peer(2), near(100))]], "and nothing of strangers");
    assert!(told(&mut cluster, near(92)).is_empty(), "that is hardly another rate");
    assert!(told(&mut cluster, near(108)).is_empty());
    assert_eq!(told(&mut cluster, near(89)).len(), 1);
    assert!(told(&mut cluster, Link::NONE).is_empty() && told(&mut cluster, near(89)).is_empty());
    // A row that speaks of its sender is no row.
    let body = Body::Measured { links: vec![(peer(2), near(1))] };
    let envelope = Envelope { run: RUN, generation: view.generation, view: view.id(), body };
    let machine = &mut cluster.at(peer(1)).machine;
    let refused = machine.handle(Time::ZERO, Input::Received { from: peer(2), envelope });
    assert_eq!(refused, Err(Violation::MalformedLinks));
}

#[test]
fn a_founder_alone_never_replans() {
    let config = Config { reduced: Some((PlanPolicy::Auto, BUCKET)), ..Config::default() };
    let progress = Progress { has_state: true, ..Progress::default() };
    let mut machine = Membership::found(config, RUN, me(peer(1)), progress, Time::ZERO);
    for second in 0..100 {
        let now = Time::ZERO + Duration::from_secs(second);
        machine.handle(now, Input::Expired(crate::Timer::Heartbeat)).expect("ours");
    }
    assert_eq!(std::iter::from_fn(|| machine.poll()).filter(|output| matches!(output, Output::Hold(_))).count(), 0);
}
