// A share is a list of ranges, often of one.
#![allow(clippy::single_range_in_vec_init)]

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::assignment::{cut, sizes};
use super::*;

fn peer(name: u8) -> PeerId {
    PeerId([name; 32])
}

fn peers(names: impl IntoIterator<Item = u8>) -> Vec<PeerId> {
    names.into_iter().map(peer).collect()
}

fn begun(samples: u32, batch_size: u32, members: u8) -> Ledger {
    let mut ledger = Ledger::new(42, samples, batch_size);
    ledger.assign(&peers(0..members));
    ledger
}

/// The pending shares of the first peers, in samples.
fn lens(ledger: &Ledger, members: u8) -> Vec<u32> {
    (0..members).map(|name| ledger.share_len(peer(name))).collect()
}

/// Commits `steps` steps of the same members at the same speeds.
fn settle(ledger: &mut Ledger, speeds: &[u32], steps: usize) {
    let members = peers(0..speeds.len() as u8);
    for _ in 0..steps {
        ledger.commit(ledger.step(), &members, speeds);
    }
}

#[test]
fn the_first_assignment_is_equal_and_made_once() {
    let mut ledger = Ledger::new(42, 100, 11);
    assert!(!ledger.is_assigned());
    assert_eq!((ledger.step(), ledger.share_of(peer(0))), (0, &[][..]));
    ledger.assign(&peers(0..3));
    assert_eq!((ledger.step(), ledger.epoch(), lens(&ledger, 3)), (1, 0, vec![4, 4, 3]));
    assert_eq!(ledger.shares(), [(peer(0), vec![0..4]), (peer(1), vec![4..8]), (peer(2), vec![8..11])]);
    let before = ledger.clone();
    ledger.assign(&peers(0..2));
    assert_eq!(ledger, before);
}

#[test]
fn the_batch_of_whoever_is_lost_comes_first_in_the_next_step() {
    let mut ledger = begun(100, 12, 3);
    assert_eq!(ledger.total(&peers([0, 2]), &[1, 1]), 8);
    let committed = ledger.commit(1, &peers([0, 2]), &[1, 1]);
    assert_eq!(
        committed,
        CommitResult {
            step: 1,
            epoch: 0,
            contributions: vec![(peer(0), vec![0..4]), (peer(2), vec![8..12])],
            returned: 4,
            dropped: vec![],
        }
    );
    assert_eq!(committed.samples(), 8);
    assert_eq!(ledger.shares(), [(peer(0), vec![4..8, 12..14]), (peer(2), vec![14..20])]);
    // A peer of the new view that had no share contributes nothing and is ready for the next step.
    let committed = ledger.commit(2, &peers([0, 2, 7]), &[1, 1, 1]);
    assert_eq!((committed.samples(), committed.returned, ledger.share_len(peer(7))), (12, 0, 4));
}

#[test]
fn nobody_who_was_assigned_samples_reduces_and_nothing_is_lost() {
    let mut ledger = begun(10, 4, 2);
    let committed = ledger.commit(1, &peers([8, 9]), &[0, 1]);
    assert_eq!((committed.contributions, committed.returned), (vec![], 4));
    assert_eq!(ledger.shares(), [(peer(9), vec![0..4])]);
}

#[test]
fn an_epoch_ends_only_when_nothing_of_it_is_returned() {
    let mut ledger = begun(10, 4, 2);
    let both = peers([0, 1]);
    ledger.commit(1, &both, &[1, 1]);
    ledger.commit(2, &both, &[1, 1]);
    assert_eq!((ledger.epoch(), lens(&ledger, 2)), (0, vec![1, 1]));
    ledger.commit(3, &peers([1]), &[1]);
    assert_eq!((ledger.epoch(), ledger.share_of(peer(1))), (0, &[8..9][..]));
    ledger.commit(4, &peers([1]), &[1]);
    assert_eq!((ledger.epoch(), ledger.share_of(peer(1))), (1, &[0..4][..]));
}

#[test]
fn syncing_members_get_nothing_unless_all_are() {
    let mut ledger = begun(100, 12, 2);
    ledger.commit(1, &peers(0..3), &[1, 1, SYNCING]);
    assert_eq!(lens(&ledger, 3), [6, 6, 0]);
    ledger.commit(2, &peers(0..3), &[1, 1, 1]);
    assert_eq!(lens(&ledger, 3), [4, 4, 4]);
    ledger.commit(3, &peers(0..3), &[SYNCING; 3]);
    assert_eq!(lens(&ledger, 3), [4, 4, 4]);
}

#[test]
fn a_share_of_a_member_that_came_back_without_the_state_is_returned() {
    let mut ledger = begun(100, 12, 3);
    let speeds = [1, SYNCING, 1];
    assert_eq!(ledger.total(&peers(0..3), &speeds), 8);
    let committed = ledger.commit(1, &peers(0..3), &speeds);
    assert_eq!((committed.samples(), committed.returned), (8, 4));
    assert_eq!(ledger.share_of(peer(0)), [4..8, 12..14]);
}

#[test]
fn shares_follow_speeds_that_stay_apart() {
    let mut ledger = begun(100_000, 80, 3);
    settle(&mut ledger, &[100, 200, 100], 12);
    assert_eq!(lens(&ledger, 3), [20, 40, 20]);
    // A newcomer that measured nothing is taken for average, then for what it is.
    ledger.commit(13, &peers(0..4), &[100, 200, 100, UNMEASURED]);
    let newcomer = ledger.share_len(peer(3));
    assert!((18..=22).contains(&newcomer), "{newcomer}");
    settle(&mut ledger, &[100, 200, 100, 400], 20);
    assert_eq!(lens(&ledger, 4), [10, 20, 10, 40]);
    // Back to equal ones.
    settle(&mut ledger, &[100, 100, 100, 100], 30);
    assert_eq!(lens(&ledger, 4), [20; 4]);
}

#[test]
fn small_differences_and_single_slow_steps_change_nothing() {
    let mut ledger = begun(100_000, 64, 2);
    for speeds in [[100, 149], [149, 100], [100, 100], [100, 140], [60, 100], [100, 100]] {
        settle(&mut ledger, &speeds, 1);
        assert_eq!(lens(&ledger, 2), [32, 32], "{speeds:?}");
    }
    let mut ledger = begun(100_000, 64, 2);
    settle(&mut ledger, &[100, 300], 1);
    assert_eq!(lens(&ledger, 2), [16, 48]);
    for speeds in [[100, 250], [100, 330], [110, 300], [90, 300], [UNMEASURED, UNMEASURED]] {
        settle(&mut ledger, &speeds, 3);
        assert_eq!(lens(&ledger, 2), [16, 48], "{speeds:?}");
    }
}

#[test]
fn who_claims_to_be_fast_gets_four_equal_shares_at_most() {
    const BATCH: u32 = 10_000;
    let is_bounded = |ledger: &Ledger, members: u8| {
        let most = 4 * BATCH / u32::from(members) + 1;
        assert!(lens(ledger, 60).iter().all(|len| *len <= most), "{members}: {:?}", lens(ledger, 60));
    };
    for members in [2, 3, 4, 5, 8, 16, 60] {
        for liars in 1..=members / 2 {
            let mut ledger = begun(1_000_000, BATCH, members);
            let speed = |member| if member < liars { MAX_SPEED - u32::from(member) } else { 100 + u32::from(member) };
            let speeds: Vec<u32> = (0..members).map(speed).collect();
            settle(&mut ledger, &speeds, 3);
            is_bounded(&ledger, members);
            // As members go, those who stay keep within what is left.
            for left in (1..members).rev().take(8) {
                let stay: Vec<u8> = (0..left).collect();
                ledger.commit(ledger.step(), &peers(stay), &vec![UNMEASURED; left.into()]);
                is_bounded(&ledger, left);
            }
        }
    }
    // Within the bound, shares are in proportion.
    let mut ledger = begun(1_000_000, 190, 16);
    let speeds: Vec<u32> = (0..16).map(|member| if member == 0 { 400 } else { 100 }).collect();
    settle(&mut ledger, &speeds, 1);
    assert_eq!(lens(&ledger, 16), [&[40][..], &[10; 15]].concat());
}

#[test]
fn a_loss_keeps_the_proportions_of_the_survivors() {
    let mut ledger = begun(100_000, 60, 3);
    settle(&mut ledger, &[100, 200, 300], 20);
    assert_eq!(lens(&ledger, 3), [10, 20, 30]);
    ledger.commit(ledger.step(), &peers([0, 2]), &[100, 300]);
    assert_eq!((ledger.share_len(peer(0)), ledger.share_len(peer(2))), (15, 45));
}

#[test]
fn everybody_gets_a_sample_if_there_are_enough() {
    assert_eq!(sizes(64, &[1, 1, 1000]), [1, 1, 62]);
    assert_eq!(sizes(3, &[1, 1000, 1]), [1, 1, 1]);
    assert_eq!(sizes(2, &[1, 1000, 1]), [0, 2, 0]);
    assert_eq!(sizes(0, &[5, 5]), [0, 0]);
    assert_eq!(sizes(7, &[1, 1, 1]), [3, 2, 2]);
    assert_eq!(sizes(MAX_BATCH_SIZE, &[MAX_SPEED; MAX_SHARES]), [1024; MAX_SHARES]);
}

#[test]
fn orders_differ_by_epoch_and_seed_and_never_change() {
    let order = |seed, epoch| SampleOrder::draw(seed, 20, epoch, ShufflePolicy::Full).indices(&[0..20]);
    assert_ne!(order(1, 0), order(1, 1));
    assert_ne!(order(1, 0), order(2, 0));
    let ledger = Ledger::new(1, 20, 4);
    assert_eq!(ledger.indices(&[17..20, 0..1]), [&order(1, 0)[17..], &order(1, 0)[..1]].concat());
    // Pinned: members on different versions of Starling must agree.
    assert_eq!(SampleOrder::draw(1, 10, 0, ShufflePolicy::Full).indices(&[0..10]), [0, 3, 1, 2, 6, 5, 7, 9, 8, 4]);
    let shuffle = ShufflePolicy::Blocks { rows: 3, blocks: 2 };
    assert_eq!(SampleOrder::draw(1, 10, 0, shuffle).indices(&[0..10]), [5, 0, 2, 3, 1, 4, 8, 7, 9, 6]);
}

#[test]
fn micro_batches_are_dealt_whole_whatever_the_speeds() {
    let mut ledger = Ledger::new(42, 50, 24).with_micro_batch(8);
    ledger.assign(&peers(0..3));
    assert_eq!(lens(&ledger, 3), [8; 3]);
    // Three micro-batches for two of which one is much faster: none gets half of one.
    ledger.commit(1, &peers([0, 2]), &[100, 250]);
    assert_eq!(ledger.shares(), [(peer(0), vec![8..16]), (peer(2), vec![24..40])]);
    // Of what is left, the last one is short.
    ledger.commit(2, &peers([0, 2]), &[100, 250]);
    assert_eq!(ledger.shares(), [(peer(0), vec![40..48]), (peer(2), vec![48..50])]);
    // It is returned and dealt as it is, and the epoch ends only after it.
    ledger.commit(3, &peers([0]), &[100]);
    assert_eq!((ledger.epoch(), ledger.shares()), (0, &[(peer(0), vec![48..50])][..]));
    ledger.commit(4, &peers([0]), &[100]);
    assert_eq!((ledger.epoch(), ledger.shares()), (1, &[(peer(0), vec![0..24])][..]));
    assert_eq!(ledger.micro_batches_of(peer(0)), [vec![0..8], vec![8..16], vec![16..24]]);
    assert_eq!(Ledger::decode(&ledger.encode()), Ok(ledger));
}

#[test]
fn more_members_than_micro_batches_leave_some_without() {
    let mut ledger = Ledger::new(42, 100, 16).with_micro_batch(8);
    ledger.assign(&peers(0..5));
    assert_eq!(lens(&ledger, 5), [8, 8, 0, 0, 0]);
    assert!(ledger.micro_batches_of(peer(4)).is_empty());
    // What is given up twice is a whole one.
    ledger.commit(1, &peers(0..2), &[GAVE_UP, 1]);
    let committed = ledger.commit(2, &peers(0..2), &[1, GAVE_UP]);
    assert_eq!((committed.dropped, committed.returned), (vec![0..8], 8));
}

#[test]
fn without_micro_batches_a_share_is_one() {
    let mut ledger = begun(100, 12, 3);
    ledger.commit(1, &peers([0, 2]), &[1, 1]);
    assert_eq!(ledger.micro_batches_of(peer(0)), [vec![4..8, 12..14]]);
    assert!(ledger.micro_batches_of(peer(1)).is_empty());
    let bytes = ledger.encode();
    ledger.micro_batch = 2;
    assert_eq!(ledger.encode(), [&bytes[..], &[2, 0, 0, 0]].concat(), "others have the bytes that they had");
}

#[test]
fn a_shuffle_by_blocks_is_in_the_bytes_and_full_ones_have_those_that_they_had() {
    let shuffle = ShufflePolicy::Blocks { rows: 5, blocks: 2 };
    for micro_batch in [0, 4] {
        let mut plain = Ledger::new(42, 50, 12).with_micro_batch(micro_batch);
        let mut ledger = plain.clone().with_shuffle(shuffle);
        plain.assign(&peers(0..2));
        ledger.assign(&peers(0..2));
        assert_eq!(ledger.shares(), plain.shares(), "what is dealt does not depend on it");
        assert_ne!(ledger.indices(&[0..12]), plain.indices(&[0..12]));
        assert!(ledger.indices(&[0..10]).iter().map(|index| index / 5).collect::<BTreeSet<_>>().len() == 2);
        let bytes = ledger.encode();
        assert_eq!(bytes.len(), ledger.encoded_len());
        assert_eq!(Ledger::decode(&bytes), Ok(ledger));
        let refused = |bytes: &[u8]| Ledger::decode(bytes).expect_err("refused").reason;
        assert_eq!(refused(&bytes[..bytes.len() - 4]), "more bytes follow it");
        assert_eq!(refused(&[&bytes[..bytes.len() - 8], &[0; 8]].concat()), "no run shuffles by its blocks");
        assert_eq!(refused(&[&bytes[..], &[0]].concat()), "more bytes follow it");
    }
}

#[test]
#[should_panic(expected = "a batch of 12 has whole micro-batches")]
fn a_batch_is_of_whole_micro_batches() {
    let _ = Ledger::new(1, 50, 12).with_micro_batch(5);
}

#[test]
#[should_panic(expected = "step 2 is not the pending one, 1")]
fn a_step_commits_once() {
    begun(10, 4, 1).commit(2, &peers([0]), &[1]);
}

#[test]
fn what_one_gives_up_others_try_once() {
    let mut ledger = begun(100, 12, 3);
    let members = peers(0..3);
    assert_eq!(ledger.total(&members, &[1, GAVE_UP, 1]), 8);
    let committed = ledger.commit(1, &members, &[1, GAVE_UP, 1]);
    assert_eq!((committed.returned, &committed.dropped[..]), (4, &[][..]));
    assert_eq!(lens(&ledger, 3), [6, 0, 6], "who gave it up rests");
    assert_eq!(ledger.share_of(peer(0)), [4..8, 12..14]);
    assert_eq!(Ledger::decode(&ledger.encode()), Ok(ledger.clone()), "what is doubtful goes with the state");
    // It explodes there, too: only what was given up before is dropped.
    let committed = ledger.commit(2, &members, &[GAVE_UP, 1, 1]);
    assert_eq!((committed.returned, &committed.dropped[..]), (2, &[4..8][..]));
    assert_eq!(lens(&ledger, 3), [0, 6, 6], "and the one that rested is back");
    assert_eq!(ledger.share_of(peer(1)), [12..14, 20..24]);
    let committed = ledger.commit(3, &members, &[1, 1, 1]);
    assert_eq!((committed.returned, committed.dropped.len(), committed.samples()), (0, 0, 12));
    // Whoever is lost takes nothing of the doubt along.
    ledger.commit(4, &members, &[GAVE_UP, 1, 1]);
    let before = ledger.doubtful.clone();
    ledger.commit(5, &peers([2]), &[SYNCING]);
    assert_eq!((ledger.doubtful.clone(), before.is_empty()), (before, false));
}

#[test]
fn whoever_is_starved_gives_its_share_back_as_often_as_it_takes() {
    let mut ledger = begun(100, 12, 3);
    let members = peers(0..3);
    assert_eq!(ledger.total(&members, &[1, STARVED, 1]), 8);
    for step in 1..=3 {
        // Now one, now another.
        let speeds = if step % 2 == 1 { [1, STARVED, 1] } else { [STARVED, 1, 1] };
        let committed = ledger.commit(step, &members, &speeds);
        assert!(committed.returned > 0 && committed.dropped.is_empty(), "{committed:?}");
        assert!(ledger.doubtful.is_empty(), "nothing is wrong with its samples");
        let starved = if step % 2 == 1 { 1 } else { 0 };
        assert_eq!((ledger.share_len(peer(starved)), ledger.pending()), (0, 12), "others compute them");
    }
    // It rests for one step more than the first time.
    ledger.commit(4, &members, &[1, 1, 1]);
    assert_eq!(lens(&ledger, 3), [6, 0, 6]);
    ledger.commit(5, &members, &[1, 1, 1]);
    assert_eq!(lens(&ledger, 3), [4; 3], "and once it is ready, it has its part");
    // If nobody has the data, the samples go round, and none is lost.
    let mut all = begun(20, 12, 2);
    for step in 1..=3 {
        let committed = all.commit(step, &peers(0..2), &[STARVED; 2]);
        assert_eq!((committed.returned, committed.samples()), (12, 0));
    }
    assert_eq!(all.starved(), 3);
    assert_eq!(Ledger::decode(&all.encode()), Ok(all.clone()), "who rests, and for how long, goes with the state");
    // Who has the data now rests still, but nobody else is ready.
    assert_eq!(all.commit(4, &peers(0..2), &[1, STARVED]).samples(), 6);
    assert_eq!((all.starved(), lens(&all, 2)), (0, vec![12, 0]));
    assert_eq!(all.commit(5, &peers(0..2), &[1; 2]).samples(), 12);
}

/// Commits steps in which each of these is starved whenever it has a share, until the epoch is over; how many that takes.
fn steps_to_the_end(ledger: &mut Ledger, members: u8, starved: &[u8]) -> usize {
    let (epoch, members) = (ledger.epoch(), peers(0..members));
    for step in 0..1000 {
        if ledger.epoch() > epoch {
            return step;
        }
        let word = |peer: &PeerId| match starved.contains(&peer.0[0]) && ledger.share_len(*peer) > 0 {
            true => STARVED,
            false => UNMEASURED,
        };
        let speeds: Vec<u32> = members.iter().map(word).collect();
        ledger.commit(ledger.step(), &members, &speeds);
    }
    panic!("the epoch does not end: {ledger:?}");
}

#[test]
fn members_that_are_starved_by_turns_hold_no_epoch_up() {
    // The last samples of an epoch go to those first that have the lowest ids: they alone hand them to and fro.
    for samples in [1, 2, 5, 13, 50] {
        for starved in [&[0, 1][..], &[1, 2], &[0, 1, 2, 3]] {
            let mut ledger = begun(samples, 12, 5);
            for epoch in 0..6 {
                let steps = steps_to_the_end(&mut ledger, 5, starved);
                let bound = samples as usize + 2 * starved.len() * resting::MAX_TIMES as usize;
                assert!(steps <= bound, "{steps} steps for epoch {epoch} of {samples} samples without {starved:?}");
                assert_eq!(Ledger::decode(&ledger.encode()), Ok(ledger.clone()));
            }
        }
    }
}

#[test]
fn who_contributes_again_rests_for_one_step_the_next_time() {
    let (mut ledger, members) = (begun(1000, 12, 3), peers(0..3));
    let mut rests = Vec::new();
    let mut give_back = |ledger: &mut Ledger| {
        while ledger.share_len(peer(1)) == 0 {
            ledger.commit(ledger.step(), &members, &[1; 3]);
        }
        ledger.commit(ledger.step(), &members, &[1, STARVED, 1]);
        let mut rest = 0;
        while ledger.share_len(peer(1)) == 0 {
            ledger.commit(ledger.step(), &members, &[1; 3]);
            rest += 1;
        }
        rests.push(rest);
    };
    (0..9).for_each(|_| give_back(&mut ledger));
    ledger.commit(ledger.step(), &members, &[1; 3]);
    give_back(&mut ledger);
    assert_eq!(rests, [1, 2, 4, 8, 16, 32, 64, 64, 64, 1]);
    // Whoever is gone has nothing to rest from when it comes back.
    ledger.commit(ledger.step(), &peers([0, 2]), &[1; 2]);
    assert!(ledger.resting.is_empty());
}

#[test]
fn steps_without_samples_are_counted_where_data_is_missing() {
    let (mut ledger, members) = (begun(1000, 12, 3), peers(0..3));
    let starved = |ledger: &mut Ledger, speeds: &[u32; 3]| {
        ledger.commit(ledger.step(), &members, speeds);
        ledger.starved()
    };
    assert_eq!(starved(&mut ledger, &[STARVED; 3]), 1);
    assert_eq!(starved(&mut ledger, &[STARVED, SYNCING, STARVED]), 2, "who has no state has computed nothing either");
    assert_eq!(starved(&mut ledger, &[GAVE_UP, SYNCING, GAVE_UP]), 2, "that has another reason");
    assert_eq!(Ledger::decode(&ledger.encode()), Ok(ledger.clone()));
    assert_eq!(starved(&mut ledger, &[STARVED, 1, STARVED]), 0, "something was learned");
}

#[test]
fn what_comes_next_is_known_before_it_is_handed_out() {
    let mut ledger = begun(20, 6, 1);
    for step in 1..=9 {
        let ahead = ledger.ahead(6);
        let (epoch, expected) = (ledger.epoch(), ahead.clone());
        ledger.commit(step, &peers([0]), &[1]);
        let next = ledger.indices(ledger.share_of(peer(0)));
        let whole = next.len().min(expected.len());
        assert_eq!(next[..], expected[..whole], "step {step} of epoch {epoch}");
    }
    assert!(ledger.epoch() > 1);
    assert_eq!(ledger.ahead(u32::MAX).len(), 20);
}

#[test]
fn what_all_give_up_ends() {
    let mut alone = begun(100, 12, 1);
    let returned = alone.commit(1, &peers([0]), &[GAVE_UP]).returned;
    let committed = alone.commit(2, &peers([0]), &[GAVE_UP]);
    assert_eq!((returned, committed.returned, committed.dropped), (12, 0, vec![0..12]));
    assert_eq!(alone.share_of(peer(0)), [12..24]);
}

#[test]
fn skips_are_counted_in_a_row_and_in_all() {
    let (mut ledger, members) = (begun(100, 12, 3), peers(0..3));
    let mut skips = Vec::new();
    for is_skipped in [true, true, false, true] {
        let step = ledger.step();
        let take = if is_skipped { Ledger::skip } else { Ledger::commit };
        assert_eq!(take(&mut ledger, step, &members, &[1; 3]).samples(), 12);
        skips.push((ledger.skips().total, ledger.skips().in_row));
    }
    assert_eq!(skips, [(1, 1), (2, 2), (2, 0), (3, 1)]);
    assert_eq!(Ledger::decode(&ledger.encode()), Ok(ledger));
}

type Change = fn(&mut Ledger);

#[test]
fn bytes_that_no_run_can_reach_are_refused() {
    let valid = {
        let mut ledger = begun(100, 12, 3);
        ledger.commit(1, &peers([0, 2]), &[1, 1]);
        ledger
    };
    let refused = |change: Change| {
        let mut ledger = valid.clone();
        change(&mut ledger);
        Ledger::decode(&ledger.encode()).expect_err("not reachable").reason
    };
    assert_eq!(Ledger::decode(&valid.encode()), Ok(valid.clone()));
    let changes: [(Change, &str); 25] = [
        (|ledger| ledger.samples = 0, "samples and batch size"),
        (|ledger| ledger.batch_size = MAX_BATCH_SIZE + 1, "samples and batch size"),
        (|ledger| ledger.batch_size = 0, "samples and batch size"),
        (|ledger| ledger.step = 0, "before the first step"),
        (|ledger| ledger.step = u64::MAX, "step and epoch"),
        (|ledger| ledger.epoch = ledger.step, "step and epoch"),
        (|ledger| ledger.cursor = 101, "not of its epoch"),
        (|ledger| ledger.shares.clear(), "not of its epoch"),
        (|ledger| ledger.batch_size = 11, "wrong size"),
        (|ledger| ledger.batch_size = 13, "wrong size"),
        (|ledger| ledger.cursor = 19, "not handed out"),
        (|ledger| ledger.shares[0].1.swap(0, 1), "do not ascend"),
        (|ledger| ledger.shares[1].1[0] = 0..6, "do not ascend"),
        (|ledger| ledger.shares[0].1 = vec![4..6, 6..10], "do not ascend"),
        (|ledger| ledger.shares[0].0 = peer(1), "but no pace"),
        (|ledger| ledger.shares.swap(0, 1), "sorted and distinct"),
        (|ledger| ledger.shares[0].1[0] = 8..8, "empty range"),
        (|ledger| ledger.doubtful = vec![0..1], "doubtful positions"),
        (|ledger| ledger.doubtful = vec![16..17, 4..5], "doubtful positions"),
        (|ledger| ledger.doubtful = vec![5..5], "empty range"),
        (|ledger| ledger.skips.total = 2, "skips so many"),
        (|ledger| ledger.skips = SkipSummary { total: 0, in_row: 1 }, "skips so many"),
        (|ledger| ledger.micro_batch = 5, "not of whole micro-batches"),
        (|ledger| ledger.micro_batch = 12, "cuts a micro-batch"),
        (|ledger| ledger.micro_batch = u32::MAX, "not of whole micro-batches"),
    ];
    for (change, reason) in changes {
        let found = refused(change);
        assert!(found.contains(reason), "{found} instead of {reason}");
    }
    for pace in [Throughput { smoothed: 0, planned: 0 }, Throughput { smoothed: MAX_SPEED + 1, planned: 1 }] {
        let mut ledger = valid.clone();
        ledger.paces.insert(peer(2), pace);
        assert_eq!(Ledger::decode(&ledger.encode()).expect_err("no speed").reason, "no member has such a speed");
    }
    let bytes = valid.encode();
    for len in 0..bytes.len() {
        assert_eq!(Ledger::decode(&bytes[..len]).expect_err("cut").reason, "they end too early", "cut at {len}");
    }
    assert_eq!(Ledger::decode(&[&bytes[..], &[0]].concat()).expect_err("long").reason, "more bytes follow it");
    let mut announced = bytes;
    announced[36..40].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(Ledger::decode(&announced).expect_err("a lie").reason.contains("announces more"));
    let fresh = Ledger::new(3, 5, 2);
    assert_eq!(Ledger::decode(&fresh.encode()), Ok(fresh));
}

#[test]
fn no_ledger_is_longer_than_the_longest() {
    let mut largest = Ledger::new(0, u32::MAX, MAX_BATCH_SIZE);
    let members: Vec<PeerId> = (0..MAX_SHARES as u32)
        .map(|name| {
            let mut bytes = [0; 32];
            bytes[..4].copy_from_slice(&name.to_be_bytes());
            PeerId(bytes)
        })
        .collect();
    largest.assign(&members);
    for (at, (_, ranges)) in (0..).zip(&mut largest.shares) {
        *ranges = (at * 1024..(at + 1) * 1024).map(|sample| 2 * sample..2 * sample + 1).collect();
    }
    largest.cursor = 2 * MAX_BATCH_SIZE;
    (largest.micro_batch, largest.shuffle) = (1, ShufflePolicy::BLOCKS);
    largest.doubtful = largest.shares.iter().flat_map(|(_, ranges)| ranges.clone()).collect();
    largest.resting = members.iter().map(|member| (*member, Rest::after(1))).collect();
    let bytes = largest.encode();
    assert_eq!((bytes.len(), largest.encoded_len()), (MAX_LEDGER_BYTES, MAX_LEDGER_BYTES));
    assert_eq!(Ledger::decode(&bytes), Ok(largest));
}

/// Some of ten peers, and what each measured.
fn views() -> impl Strategy<Value = Vec<Vec<(u8, u32)>>> {
    let speed = prop_oneof![Just(SYNCING), Just(UNMEASURED), Just(GAVE_UP), Just(STARVED), 2..=MAX_SPEED, 90..110_u32];
    let view = prop::collection::btree_map(0..10_u8, speed, 1..10).prop_map(|view| view.into_iter().collect());
    prop::collection::vec(view, 1..60)
}

/// Takes a ledger through all of `views` and gives back what was committed.
fn churn(ledger: &mut Ledger, views: &[Vec<(u8, u32)>]) -> Vec<CommitResult> {
    let mut committed = Vec::new();
    for view in views {
        let (names, speeds): (Vec<u8>, Vec<u32>) = view.iter().copied().unzip();
        committed.push(ledger.commit(ledger.step(), &peers(names), &speeds));
    }
    committed
}

proptest! {
    #[test]
    fn any_churn_visits_or_drops_each_sample_exactly_once_in_each_epoch(
        samples in 1..200_u32, batch_size in 1..70_u32, views in views(),
    ) {
        let mut ledger = begun(samples, batch_size, 4);
        let committed = churn(&mut ledger, &views);
        let mut visits = vec![vec![0; samples as usize]; ledger.epoch() as usize + 1];
        for (step, commit) in (1..).zip(&committed) {
            prop_assert_eq!(commit.step, step);
            prop_assert!(commit.samples() + u64::from(commit.returned) <= u64::from(batch_size));
            let contributed = commit.contributions.iter().flat_map(|(_, ranges)| ranges);
            for position in contributed.chain(&commit.dropped).cloned().flatten() {
                visits[commit.epoch as usize][position as usize] += 1;
            }
        }
        let (last, complete) = visits.split_last().expect("at least one epoch");
        prop_assert!(complete.iter().flatten().all(|visits| *visits == 1));
        prop_assert!(last.iter().all(|visits| *visits <= 1));
        // Of the last epoch, what is pending is not done, and everything before the cursor is one or the other.
        let mut accounted = last.clone();
        for position in ledger.shares().iter().flat_map(|(_, ranges)| ranges.iter().cloned().flatten()) {
            accounted[position as usize] += 1;
        }
        let (handed_out, rest) = accounted.split_at(ledger.cursor as usize);
        prop_assert!(handed_out.iter().all(|visits| *visits == 1) && rest.iter().all(|visits| *visits == 0));
        let mut order = ledger.indices(&[0..samples]);
        order.sort_unstable();
        prop_assert_eq!(order, (0..samples).collect::<Vec<_>>());
    }

    #[test]
    fn equal_inputs_give_equal_ledgers_also_across_their_bytes(
        samples in 1..200_u32, batch_size in 1..70_u32, views in views(), at in 0..60_usize,
    ) {
        let (first, second) = views.split_at(at.min(views.len()));
        let (mut unbroken, mut restored) = (begun(samples, batch_size, 4), begun(samples, batch_size, 4));
        churn(&mut unbroken, first);
        churn(&mut restored, first);
        let bytes = restored.encode();
        prop_assert_eq!(bytes.len(), restored.encoded_len());
        let mut restored = Ledger::decode(&bytes).expect("canonical bytes");
        prop_assert_eq!(churn(&mut unbroken, second), churn(&mut restored, second));
        prop_assert_eq!(unbroken.encode(), restored.encode());
    }

    #[test]
    fn any_churn_deals_and_returns_whole_micro_batches_each_once(
        samples in 1..200_u32, micro_batch in 1..9_u32, of_batch in 1..9_u32, views in views(),
    ) {
        let mut ledger = Ledger::new(42, samples, micro_batch * of_batch).with_micro_batch(micro_batch);
        ledger.assign(&peers(0..4));
        let is_border = |at: u32| at == samples || at.is_multiple_of(micro_batch);
        let is_whole = |range: &Range<u32>| is_border(range.start) && is_border(range.end);
        let mut visits: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
        for view in &views {
            let dealt: Vec<_> = ledger.shares().iter().flat_map(|(_, ranges)| ranges.clone()).collect();
            prop_assert!(dealt.iter().all(is_whole), "{:?}", dealt);
            for (peer, _) in ledger.shares() {
                let cut = ledger.micro_batches_of(*peer);
                prop_assert!(cut.iter().all(|one| one.len() == 1 && one[0].start.is_multiple_of(micro_batch)));
                prop_assert!(cut.iter().all(|one| assignment::count(one) <= micro_batch && is_whole(&one[0])));
                prop_assert_eq!(assignment::merge(cut.into_iter().flatten()), ledger.share_of(*peer));
            }
            let epoch = visits.entry(ledger.epoch()).or_insert_with(|| vec![0; samples as usize]);
            let (names, speeds): (Vec<u8>, Vec<u32>) = view.iter().copied().unzip();
            let commit = ledger.commit(ledger.step(), &peers(names), &speeds);
            let contributed = commit.contributions.iter().flat_map(|(_, ranges)| ranges);
            for range in contributed.chain(&commit.dropped) {
                prop_assert!(is_whole(range), "{:?}", range);
                range.clone().for_each(|position| epoch[position as usize] += 1);
            }
            prop_assert_eq!(Ledger::decode(&ledger.encode()), Ok(ledger.clone()));
        }
        visits.remove(&ledger.epoch());
        prop_assert!(visits.values().flatten().all(|visits| *visits == 1));
    }

    #[test]
    fn sizes_are_in_proportion_and_add_up(
        total in 0..=MAX_BATCH_SIZE, weights in prop::collection::vec(1..=MAX_SPEED, 1..40),
    ) {
        let sizes = sizes(total, &weights);
        prop_assert_eq!(sizes.iter().sum::<u32>(), total);
        let sum: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
        let enough = total as usize >= weights.len();
        prop_assert!(!enough || sizes.iter().all(|size| *size > 0));
        let lifted = sizes.iter().filter(|size| **size == 1).count() as u64;
        for (size, weight) in sizes.iter().zip(&weights) {
            let exact = u64::from(total) * u64::from(*weight) / sum;
            let size = u64::from(*size);
            prop_assert!(size + lifted >= exact && size <= exact + 1, "{} of {} instead of {}", size, total, exact);
        }
    }

    #[test]
    fn a_cut_leaves_nothing_out(
        lens in prop::collection::vec((0..5_u32, 1..9_u32), 1..12), weights in prop::collection::vec(1..9_u32, 1..9),
    ) {
        let mut end = 0;
        let batch = assignment::merge(lens.into_iter().map(|(gap, len)| {
            end += gap + len;
            end - len..end
        }));
        let sizes = sizes(assignment::count(&batch), &weights);
        let cut = cut(batch.clone(), (0..).map(peer).zip(sizes.clone()));
        for (peer, ranges) in &cut {
            prop_assert_eq!(assignment::count(ranges), sizes[usize::from(peer.0[0])]);
        }
        prop_assert_eq!(assignment::merge(cut.into_iter().flat_map(|(_, ranges)| ranges)), batch);
    }

    #[test]
    fn hostile_bytes_never_panic_and_never_decode_to_other_bytes(
        views in views(), changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in any::<prop::sample::Index>(), keep in any::<bool>(), noise in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let mut ledger = begun(90, 16, 4);
        churn(&mut ledger, &views);
        let mut bytes = ledger.encode();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if !keep {
            bytes.truncate(cut.index(bytes.len()));
        }
        for bytes in [&bytes, &noise] {
            if let Ok(decoded) = Ledger::decode(bytes) {
                prop_assert_eq!(&decoded.encode(), bytes);
            }
        }
    }
}
