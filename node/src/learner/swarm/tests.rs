//! Members in one process, over real sockets.

use std::path::Path;
use std::thread;

use super::*;

const ELEMENTS: usize = 1000;

fn settings(dir: &Path, name: &str) -> Settings {
    let listen = vec!["/ip4/127.0.0.1/tcp/0".parse().expect("a multiaddr")];
    Settings { listen, ..Settings::new(dir.join(name)) }
}

fn founded(dir: &Path, buffers: &BufferSpec) -> Swarm {
    Swarm::found(&settings(dir, "founder"), buffers).expect("founded")
}

fn joined(dir: &Path, name: &str, ticket: &Ticket) -> Swarm {
    Swarm::join(&settings(dir, name), ticket).expect("joined")
}

/// All bring `value(member)` at once, every other one without copies; what it came to for each, which is the same mean.
fn reduce(members: &mut [Swarm], value: impl Fn(usize) -> f32 + Sync) -> (Vec<ReduceReport>, f32) {
    let value = &value;
    let reduced: Vec<(ReduceReport, Vec<f32>)> = thread::scope(|scope| {
        let all = members.iter_mut().enumerate().map(|(index, swarm)| {
            scope.spawn(move || {
                let mut values = Arc::new(vec![value(index); ELEMENTS]);
                if index % 2 == 1 {
                    let reduced = swarm.all_reduce_shared(&values).expect("reduced");
                    assert!(values.iter().all(|one| *one == value(index)), "they are as they were");
                    let count = reduced.mean().contributors as f32;
                    return (reduced.mean(), reduced.sums().iter().map(|sum| sum / count).collect());
                }
                let values = Arc::make_mut(&mut values);
                let mean = swarm.all_reduce(values).expect("reduced");
                (mean, values.clone())
            })
        });
        let all: Vec<_> = all.collect();
        all.into_iter().map(|one| one.join().expect("no panic")).collect()
    });
    let first = reduced[0].1[0];
    assert!(reduced.iter().all(|(_, values)| values.iter().all(|value| value.to_bits() == first.to_bits())));
    (reduced.iter().map(|(mean, _)| *mean).collect(), first)
}

#[test]
fn members_take_the_mean_and_go_on_without_one_that_dies() {
    let dir = tempfile::tempdir().expect("a temp dir");
    let mut members = vec![founded(dir.path(), &BufferSpec::new(ELEMENTS))];
    let ticket = members[0].ticket().clone();
    members.push(joined(dir.path(), "second", &ticket));
    members.push(joined(dir.path(), "third", &ticket));
    for round in 1..=3 {
        let (means, mean) = reduce(&mut members, |index| (index * round) as f32);
        assert_eq!(means, [ReduceReport { step: round as u64, contributors: 3, is_included: true }; 3]);
        assert_eq!(mean, round as f32);
    }
    drop(members.remove(1));
    let (means, mean) = reduce(&mut members, |index| 1.0 + index as f32);
    assert_eq!(means, [ReduceReport { step: 4, contributors: 2, is_included: true }; 2]);
    assert_eq!(mean, 1.5);
    members.remove(0).leave().expect("left in order");
    let (means, mean) = reduce(&mut members, |_| 7.0);
    assert_eq!((means[0].step, means[0].contributors, mean), (5, 1, 7.0));
    assert_eq!(members[0].newest(), [7.0; ELEMENTS]);
}

#[test]
fn a_joiner_goes_on_from_the_newest_mean_while_the_others_compute() {
    let dir = tempfile::tempdir().expect("a temp dir");
    let lossy = BufferSpec { codec: Codec::Int8, ..BufferSpec::new(ELEMENTS) };
    let mut members = vec![founded(dir.path(), &lossy)];
    for round in 1..=5 {
        reduce(&mut members, |_| round as f32);
    }
    // Nobody calls `all_reduce` meanwhile.
    let joiner = joined(dir.path(), "second", &members[0].ticket().clone());
    assert_eq!((joiner.step(), joiner.newest()), (5, members[0].newest()));
    members.push(joiner);
    // It may have promised zeros for the step that was under way when it came.
    let (means, _) = reduce(&mut members, |index| index as f32);
    assert_eq!(means.iter().map(|mean| mean.step).collect::<Vec<_>>(), [6, 6]);
    let (means, _) = reduce(&mut members, |index| index as f32);
    assert_eq!(means, [ReduceReport { step: 7, contributors: 2, is_included: true }; 2]);
    members.into_iter().for_each(|member| member.leave().expect("left in order"));
}

/// It was lent: to fill it again takes no copy.
#[test]
fn a_shared_buffer_is_its_callers_again() {
    let dir = tempfile::tempdir().expect("a temp dir");
    let first = founded(dir.path(), &BufferSpec { min_peers: 2, ..BufferSpec::new(ELEMENTS) });
    let second = joined(dir.path(), "second", &first.ticket().clone());
    thread::scope(|scope| {
        for mut swarm in [first, second] {
            scope.spawn(move || {
                let mut values = Arc::new(vec![0.0; ELEMENTS]);
                for round in 1..=5 {
                    Arc::get_mut(&mut values).expect("nobody else holds it").fill(round as f32);
                    swarm.all_reduce_shared(&values).expect("reduced");
                }
                swarm.leave().expect("left in order");
            });
        }
    });
}

#[test]
fn members_that_are_out_of_step_are_told_and_average_nothing() {
    let dir = tempfile::tempdir().expect("a temp dir");
    let mut first = founded(dir.path(), &BufferSpec::new(ELEMENTS));
    let mut second = joined(dir.path(), "second", &first.ticket().clone());
    let together = |first: &mut Swarm, second: &mut Swarm, tags: [u64; 2]| {
        thread::scope(|scope| {
            let other = scope.spawn(|| {
                let values = Arc::new(vec![3.0; ELEMENTS]);
                second.all_reduce_shared_tagged(tags[1], &values).map(|reduced| reduced.mean())
            });
            let mut values = vec![1.0; ELEMENTS];
            let outcome = first.all_reduce_tagged(tags[0], &mut values);
            (outcome, other.join().expect("no panic"), values[0])
        })
    };
    // Both are members before they are out of step.
    while !together(&mut first, &mut second, [4, 4]).0.is_ok_and(|mean| mean.contributors == 2) {}
    let (ours, theirs, value) = together(&mut first, &mut second, [4, 1 << 60]);
    for (error, me, other) in [(ours, "has tag 4, that of", "a tag of at least"), (theirs, "that of", "has tag 4,")] {
        let error = error.expect_err("out of step").to_string();
        assert!(error.contains(me) && error.contains(other) && error.contains("nothing was averaged"), "{error}");
    }
    assert_eq!(value, 1.0, "as it was");
    let (ours, theirs, value) = together(&mut first, &mut second, [5, 5]);
    assert_eq!((ours.expect("reduced").contributors, theirs.expect("reduced").contributors, value), (2, 2, 2.0));
}

#[test]
fn what_can_not_be_reduced_is_refused_and_stays_as_it_is() {
    let dir = tempfile::tempdir().expect("a temp dir");
    let mut swarm = founded(dir.path(), &BufferSpec::new(ELEMENTS));
    let mut short = vec![1.0; 3];
    let error = swarm.all_reduce(&mut short).expect_err("refused").to_string();
    assert_eq!(error, "the run reduces buffers of 1000 numbers, this one has 3");
    let mut values = vec![1.0; ELEMENTS];
    values[17] = f32::NAN;
    let error = swarm.all_reduce(&mut values).expect_err("refused").to_string();
    assert_eq!(error, "number 17 of the buffer is NaN; the run takes finite numbers up to 1e30");
    assert!(values[17].is_nan() && values[18] == 1.0);
    let error = swarm.all_reduce(&mut vec![-f32::MAX; ELEMENTS]).expect_err("refused").to_string();
    assert!(error.contains("number 0 of the buffer is -3402823"), "{error}");
    for (values, what) in [(values.clone(), "number 17 of the buffer is NaN"), (vec![], "this one has 0")] {
        let error = swarm.all_reduce_shared(&Arc::new(values)).expect_err("refused").to_string();
        assert!(error.contains(what), "{error}");
    }
    let twice = Swarm::found(&settings(dir.path(), "founder"), &BufferSpec::new(1)).expect_err("refused").to_string();
    assert!(twice.contains("in use"), "{twice}");
    assert!(Swarm::found(&settings(dir.path(), "third"), &BufferSpec::new(0)).is_err());
    values[17] = 1.0;
    assert_eq!(swarm.all_reduce(&mut values).expect("reduced").step, 1);
}

/// What all members do at once, each in a thread of its own.
fn all<T: Send>(members: &mut [Swarm], act: impl Fn(usize, &mut Swarm) -> T + Sync) -> Vec<T> {
    let act = &act;
    thread::scope(|scope| {
        let all = members.iter_mut().enumerate().map(|(index, swarm)| scope.spawn(move || act(index, swarm)));
        all.collect::<Vec<_>>().into_iter().map(|one| one.join().expect("no panic")).collect()
    })
}

/// So many members that all have contributed.
fn together(dir: &Path, count: usize, buffers: &BufferSpec) -> Vec<Swarm> {
    let mut members = vec![founded(dir, buffers)];
    let ticket = members[0].ticket().clone();
    members.extend((1..count).map(|index| joined(dir, &format!("{index}"), &ticket)));
    while reduce(&mut members, |_| 1.0).0.iter().any(|mean| mean.contributors < count) {}
    members
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

#[test]
fn members_broadcast_scatter_and_gather_by_every_plan() {
    for (plan, codec) in [
        (PlanPolicy::Ring, Codec::F32),
        (PlanPolicy::Tree, Codec::F32),
        (PlanPolicy::Mesh, Codec::F32),
        (PlanPolicy::Ring, Codec::Bf16),
    ] {
        let dir = tempfile::tempdir().expect("a temp dir");
        let mut members = together(dir.path(), 3, &BufferSpec { plan, codec, ..BufferSpec::new(ELEMENTS) });
        // Not what a sum with zeros would leave.
        let brought = |element: usize| if element == 0 { -0.0 } else { element as f32 };
        for root in 0..3 {
            let received = all(&mut members, |index, swarm| {
                let mut values: Vec<f32> = (0..ELEMENTS).map(brought).collect();
                if index == root {
                    return (swarm.broadcast(7, &values).expect("sent"), swarm.newest());
                }
                values.fill(5.0);
                (swarm.receive(7, &mut values).expect("received"), values)
            });
            assert!(
                received.iter().all(|one| one.0 == received[0].0 && bits(&one.1) == bits(&received[0].1)),
                "{plan:?}"
            );
            if codec == Codec::F32 {
                assert_eq!(bits(&received[0].1), bits(&(0..ELEMENTS).map(brought).collect::<Vec<_>>()), "{plan:?}");
            }
        }
        let gathered = all(&mut members, |index, swarm| {
            let mut values: Vec<f32> = (0..ELEMENTS).map(|element| (element % 7 * index) as f32).collect();
            let part = swarm.reduce_scatter(8, &mut values).expect("scattered");
            assert_eq!(part.mean().contributors, 3);
            for range in part.ranges() {
                values[range.clone()].iter_mut().for_each(|value| *value += 1.0);
            }
            swarm.all_gather(9, &part, &mut values).expect("gathered");
            (part.ranges().to_vec(), values, swarm.newest())
        });
        let mut owned: Vec<usize> = gathered.iter().flat_map(|one| one.0.iter().cloned().flatten()).collect();
        owned.sort_unstable();
        assert!(owned.into_iter().eq(0..ELEMENTS), "{plan:?}: each element is one member's");
        let expected: Vec<f32> = (0..ELEMENTS).map(|element| (element % 7) as f32 + 1.0).collect();
        assert!(gathered.iter().all(|one| one.1 == expected && one.2 == expected), "{plan:?}");
    }
}

#[test]
fn members_that_call_different_operations_are_told_and_go_on() {
    let dir = tempfile::tempdir().expect("a temp dir");
    let mut members = together(dir.path(), 3, &BufferSpec::new(ELEMENTS));
    // Each with another one, an all-reduce among them and not.
    for calls in [[0, 1, 2], [1, 2, 3], [0, 0, 1], [3, 2, 2]] {
        let errors = all(&mut members, |index, swarm| {
            let mut values = vec![index as f32; ELEMENTS];
            let told = match calls[index] {
                0 => swarm.all_reduce_tagged(4, &mut values).map(|_| ()),
                1 => swarm.broadcast(4, &values).map(|_| ()),
                2 => swarm.reduce_scatter(4, &mut values).map(|_| ()),
                _ => swarm.receive(4, &mut values).map(|_| ()),
            };
            assert!(values.iter().all(|value| *value == index as f32), "as it was");
            told.expect_err("refused")
        });
        for (index, error) in errors.into_iter().enumerate() {
            let names = ["tag 4", "tag 4 for broadcast", "tag 4 for reduce-scatter", "tag 4 for broadcast"];
            let SwarmError::OtherTag { ours, theirs, peer, .. } = error else { panic!("{error}") };
            assert!(ours.to_string() == names[calls[index]] && theirs != ours && !peer.is_empty(), "{ours}, {theirs}");
        }
        let (means, mean) = reduce(&mut members, |index| index as f32);
        assert!(means.iter().all(|mean| mean.contributors == 3) && mean == 1.0);
    }
    // Nobody broadcasts, and then two do.
    let [nobody, two] = [3, 1].map(|sources| {
        all(&mut members, |index, swarm| match index < sources - 1 {
            true => swarm.receive(4, &mut [0.0; ELEMENTS]),
            false => swarm.broadcast(4, &[1.0; ELEMENTS]),
        })
    });
    assert!(nobody.iter().all(|one| one.is_ok()), "one does");
    let told = |error: &Result<BroadcastResult, SwarmError>| match error {
        Err(SwarmError::NotOneSource { sources, .. }) => sources.len(),
        other => panic!("{other:?}"),
    };
    assert!(two.iter().all(|one| told(one) == 3));
    assert!(all(&mut members, |_, swarm| swarm.receive(4, &mut [0.0; ELEMENTS])).iter().all(|one| told(one) == 0));
}

#[test]
fn a_step_of_any_operation_heals_and_parts_of_those_who_are_gone_are_reduced_again() {
    let dir = tempfile::tempdir().expect("a temp dir");
    let mut members = together(dir.path(), 3, &BufferSpec::new(ELEMENTS));
    let parts = all(&mut members, |index, swarm| {
        swarm.reduce_scatter(0, &mut vec![index as f32; ELEMENTS]).expect("scattered")
    });
    drop(members.pop());
    let refused = all(&mut members, |index, swarm| swarm.all_gather(0, &parts[index], &mut [2.0; ELEMENTS]));
    let step = members[0].step();
    for refused in refused {
        assert!(matches!(refused, Err(SwarmError::OtherMembers { step: of }) if of == step), "{refused:?}");
    }
    let gathered = all(&mut members, |index, swarm| {
        let mut values = vec![index as f32; ELEMENTS];
        let part = swarm.reduce_scatter(0, &mut values).expect("scattered");
        // In the same members, its part is good for as long as they are.
        swarm.all_gather(0, &part, &mut values).expect("gathered");
        swarm.all_gather(1, &part, &mut values).map(|mean| (mean.contributors, values)).expect("gathered")
    });
    assert!(gathered.iter().all(|(contributors, values)| *contributors == 2 && *values == [0.5; ELEMENTS]));
    // A joiner has what was broadcast while nobody knew of it.
    all(&mut members, |index, swarm| match index {
        0 => swarm.broadcast(1, &[9.0; ELEMENTS]),
        _ => swarm.receive(1, &mut [0.0; ELEMENTS]),
    });
    let joiner = joined(dir.path(), "late", &members[0].ticket().clone());
    assert_eq!(joiner.newest(), [9.0; ELEMENTS]);
    members.push(joiner);
    // It may bring nothing to the first steps, and has no part in them then.
    let contributors = loop {
        let parts = all(&mut members, |_, swarm| swarm.reduce_scatter(2, &mut [3.0; ELEMENTS]).expect("scattered"));
        let owned: usize = parts.iter().flat_map(|part| part.ranges()).map(|range| range.len()).sum();
        assert_eq!(owned, ELEMENTS);
        if parts[0].mean().contributors == 3 {
            break parts.len();
        }
    };
    assert_eq!(contributors, 3);
    while members.len() > 1 {
        members.pop().expect("some").leave().expect("left in order");
    }
    // Alone, all parts are its own.
    let alone = &mut members[0];
    let mut values = vec![4.0; ELEMENTS];
    let part = alone.reduce_scatter(3, &mut values).expect("scattered");
    assert_eq!((part.ranges(), part.mean().contributors), (std::slice::from_ref(&(0..ELEMENTS)), 1));
    alone.all_gather(3, &part, &mut values).expect("gathered");
    assert_eq!(values, [4.0; ELEMENTS]);
    assert_eq!(alone.broadcast(3, &values).expect("sent").step, alone.step());
    assert!(matches!(alone.receive(3, &mut values), Err(SwarmError::NotOneSource { .. })));
}
