//! Members in one process, over real sockets.

use std::path::Path;
use std::thread;

use super::*;

const ELEMENTS: usize = 1000;

fn settings(dir: &Path, name: &str) -> Settings {
    let listen = vec!["/ip4/127.0.0.1/tcp/0".parse().expect("a multiaddr")];
    Settings { listen, ..Settings::new(dir.join(name)) }
}

fn founded(dir: &Path, buffers: &Buffers) -> Swarm {
    Swarm::found(&settings(dir, "founder"), buffers).expect("founded")
}

fn joined(dir: &Path, name: &str, ticket: &Ticket) -> Swarm {
    Swarm::join(&settings(dir, name), ticket).expect("joined")
}

/// All bring `value(member)` at once, every other one without copies; what it came to for each, which is the same mean.
fn reduce(members: &mut [Swarm], value: impl Fn(usize) -> f32 + Sync) -> (Vec<Mean>, f32) {
    let value = &value;
    let reduced: Vec<(Mean, Vec<f32>)> = thread::scope(|scope| {
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
    let mut members = vec![founded(dir.path(), &Buffers::new(ELEMENTS))];
    let ticket = members[0].ticket().clone();
    members.push(joined(dir.path(), "second", &ticket));
    members.push(joined(dir.path(), "third", &ticket));
    for round in 1..=3 {
        let (means, mean) = reduce(&mut members, |index| (index * round) as f32);
        assert_eq!(means, [Mean { step: round as u64, contributors: 3, is_included: true }; 3]);
        assert_eq!(mean, round as f32);
    }
    drop(members.remove(1));
    let (means, mean) = reduce(&mut members, |index| 1.0 + index as f32);
    assert_eq!(means, [Mean { step: 4, contributors: 2, is_included: true }; 2]);
    assert_eq!(mean, 1.5);
    members.remove(0).leave().expect("left in order");
    let (means, mean) = reduce(&mut members, |_| 7.0);
    assert_eq!((means[0].step, means[0].contributors, mean), (5, 1, 7.0));
    assert_eq!(members[0].newest(), [7.0; ELEMENTS]);
}

#[test]
fn a_joiner_goes_on_from_the_newest_mean_while_the_others_compute() {
    let dir = tempfile::tempdir().expect("a temp dir");
    let lossy = Buffers { codec: Codec::Int8, ..Buffers::new(ELEMENTS) };
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
    assert_eq!(means, [Mean { step: 7, contributors: 2, is_included: true }; 2]);
    members.into_iter().for_each(|member| member.leave().expect("left in order"));
}

/// It was lent: to fill it again takes no copy.
#[test]
fn a_shared_buffer_is_its_callers_again() {
    let dir = tempfile::tempdir().expect("a temp dir");
    let first = founded(dir.path(), &Buffers { min_peers: 2, ..Buffers::new(ELEMENTS) });
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
    let mut first = founded(dir.path(), &Buffers::new(ELEMENTS));
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
    let mut swarm = founded(dir.path(), &Buffers::new(ELEMENTS));
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
    let twice = Swarm::found(&settings(dir.path(), "founder"), &Buffers::new(1)).expect_err("refused").to_string();
    assert!(twice.contains("in use"), "{twice}");
    assert!(Swarm::found(&settings(dir.path(), "third"), &Buffers::new(0)).is_err());
    values[17] = 1.0;
    assert_eq!(swarm.all_reduce(&mut values).expect("reduced").step, 1);
}
