//! Polls under an idle snapshot skip the device, and find all that there is to find without it.

use nix::{
    sched::{CpuSet, sched_getaffinity, sched_setaffinity},
    unistd::Pid,
};
use udma_abi::{Cqe, GiveWay, ReceivedMessage};
use urma_core::{
    Arm, Completion, CrStatus, RecvWr, Status,
    ops::{CompletingQueue, DoneLook, JfcParts},
};
use urma_mem::sync::{AtomicBool, Ordering};

use super::{Bench, contexts, jfc_cfg, jfr_cfg, poll_all, signalled};
use crate::jfc::contention::times_taken;

/// A JFC whose polls found nothing: from now on they skip the device.
fn quiet(bench: &Bench) -> JfcParts {
    bench.toy.script(|script| script.has_idle = true);
    let jfce = bench.context.create_jfce().unwrap();
    let mut jfc = bench.context.create_jfc(&jfc_cfg(64), Some(&jfce)).unwrap();
    assert!(poll_all(&mut jfc).is_empty());
    let steps = bench.toy.state().steps;
    for _ in 0..100 {
        assert!(poll_all(&mut jfc).is_empty());
    }
    assert_eq!(bench.toy.state().steps, steps, "polls in a idle");
    jfc
}

#[test]
fn what_the_device_writes_is_found_at_once() {
    let bench = Bench::new();
    let mut jfc = quiet(&bench);
    let mut jfs = bench.jfs(jfc.id, 8);
    assert!(poll_all(&mut jfc).is_empty());
    let steps = bench.toy.state().steps;
    jfs.send.as_mut().unwrap().post_send(&[signalled(1)]).unwrap();
    let mut one = [Completion::default(); 1];
    assert_eq!(jfc.queue.poll(&mut one), Ok(1));
    assert_eq!((one[0].user_ctx, bench.toy.state().steps), (1, steps));
}

#[test]
fn the_first_empty_poll_after_a_completion_takes_a_step() {
    let bench = Bench::new();
    let mut jfc = quiet(&bench);
    let mut jfs = bench.jfs(jfc.id, 8);
    assert!(poll_all(&mut jfc).is_empty());
    let steps = bench.toy.state().steps;
    jfs.send.as_mut().unwrap().post_send(&[signalled(1)]).unwrap();
    assert_eq!(contexts(&poll_all(&mut jfc)), [1]);
    assert_eq!(bench.toy.state().steps, steps + 1, "where the consumer index may be behind");
}

/// Another thread may have taken completions off the ring for a flush; they wait in the driver.
#[test]
fn completions_that_were_read_for_a_flush_are_found() {
    let bench = Bench::new();
    let mut jfc = quiet(&bench);
    let mut jfs = bench.jfs(jfc.id, 8);
    assert!(poll_all(&mut jfc).is_empty());
    jfs.send.as_mut().unwrap().post_send(&[signalled(1)]).unwrap();
    let mut flushed = [Completion::default(); 4];
    assert_eq!(jfs.control.flush(&mut flushed), Ok(0), "it succeeded");
    assert_eq!(contexts(&poll_all(&mut jfc)), [1]);
}

#[test]
fn a_device_that_failed_is_seen() {
    let bench = Bench::new();
    let mut jfc = quiet(&bench);
    let mut jfs = bench.jfs(jfc.id, 8);
    bench.toy.script(|script| script.hold = true);
    jfs.send.as_mut().unwrap().post_send(&[signalled(1)]).unwrap();
    assert!(poll_all(&mut jfc).is_empty());
    bench.device.reset().unwrap();
    let mut one = [Completion::default(); 1];
    assert_eq!(jfc.queue.poll(&mut one), Ok(1));
    assert_eq!(one[0].status, CrStatus::WrFlush);
    assert_eq!(jfc.queue.poll(&mut one), Err(Status::NoDevice));
}

/// Polls count on while idle: now and then one steps the device, and checks whether it still answers.
#[test]
fn an_idle_snapshot_without_end_is_looked_at_now_and_then() {
    let bench = Bench::new();
    let mut jfc = quiet(&bench);
    let steps = bench.toy.state().steps;
    let mut one = [Completion::default(); 1];
    for _ in 0..crate::jfc::POLLS_PER_STATUS {
        assert_eq!(jfc.queue.poll(&mut one), Ok(0));
    }
    assert_eq!(bench.toy.state().steps, steps + 1);
}

/// Both ways to look, while idle and without one: a processor that was lost twice is given away, one of 64 times.
#[test]
fn a_poller_whose_processor_is_shared_gives_it_away() {
    let bench = Bench::new();
    let mut jfc = quiet(&bench);
    let spin = |jfc: &mut JfcParts, polls: u32| {
        bench.toy.state().ways.clear();
        for at in 0..polls {
            bench.toy.state().clock += 50;
            if at % 2 == 0
                || jfc.queue.take_done(&mut CompletingQueue::default()) != DoneLook::EMPTY
            {
                assert!(poll_all(jfc).is_empty());
            }
        }
        bench.toy.state().ways.clone()
    };
    assert_eq!(spin(&mut jfc, 1000), []);
    for way in [GiveWay::Yield, GiveWay::Wait] {
        lose_processor();
        bench.toy.state().clock += 3_000_000;
        assert_eq!(spin(&mut jfc, 640), [way; 10]);
    }
    // A thread that is about to sleep takes the processor from none.
    jfc.queue.arm(Arm::Any).unwrap();
    assert_eq!(spin(&mut jfc, 640), []);
}

/// Spins beside another thread on one processor until the kernel has given that to the other one.
fn lose_processor() {
    let one = |processor: &mut CpuSet| {
        let first = (0..CpuSet::count()).find(|cpu| processor.is_set(*cpu).unwrap_or(false));
        *processor = CpuSet::new();
        processor.set(first.expect("one that may be used")).unwrap();
    };
    let this = Pid::from_raw(0);
    let all = sched_getaffinity(this).unwrap();
    let mut processor = all;
    one(&mut processor);
    sched_setaffinity(this, &processor).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        let before = times_taken();
        while times_taken() == before {
            std::hint::spin_loop();
        }
        is_over.store(true, Ordering::Relaxed);
    });
    sched_setaffinity(this, &all).unwrap();
}

/// A look says that nothing is there as long as a poll would, and leaves all else to a poll.
#[test]
fn a_look_while_idle_finds_nothing_and_takes_no_step() {
    let bench = Bench::new();
    let mut jfc = bench.jfc(64);
    assert_eq!(
        jfc.queue.take_done(&mut CompletingQueue::default()),
        DoneLook::UNKNOWN,
        "no idle began"
    );
    let mut jfc = quiet(&bench);
    let mut jfs = bench.jfs(jfc.id, 8);
    assert!(poll_all(&mut jfc).is_empty());
    let steps = bench.toy.state().steps;
    let looks: Vec<_> = (0..crate::jfc::POLLS_PER_STATUS)
        .map(|_| {
            let is_empty = jfc.queue.take_done(&mut CompletingQueue::default()) == DoneLook::EMPTY;
            if !is_empty {
                assert!(poll_all(&mut jfc).is_empty());
            }
            is_empty
        })
        .collect();
    let unknown = looks.iter().filter(|is_empty| !**is_empty).count();
    assert_eq!(unknown, 1, "whether the device still answers is for a poll");
    assert!(bench.toy.state().steps > steps);
    bench.toy.peer.store_u64(0, 1).unwrap();
    assert_eq!(
        jfc.queue.take_done(&mut CompletingQueue::default()),
        DoneLook::UNKNOWN,
        "a peer wrote"
    );
    bench.toy.peer.store_u64(0, 0).unwrap();
    assert_eq!(jfc.queue.take_done(&mut CompletingQueue::default()), DoneLook::EMPTY);
    jfs.send.as_mut().unwrap().post_send(&[signalled(1)]).unwrap();
    assert_eq!(
        jfc.queue.take_done(&mut CompletingQueue::default()),
        DoneLook::UNKNOWN,
        "the ring has an entry"
    );
    assert_eq!(contexts(&poll_all(&mut jfc)), [1]);
}

/// Steps of the device after each of `count` polls that find a completion, from the first one on.
fn steps_of_finds(bench: &Bench, jfc: &mut JfcParts, (count, is_idle): (u64, bool)) -> Vec<u32> {
    let mut jfs = bench.jfs(jfc.id, 64);
    let mut one = [Completion::default(); 1];
    let mut idle = 0;
    let first = bench.toy.state().steps;
    let mut find = |context| {
        if is_idle {
            let before = bench.toy.state().steps;
            assert_eq!(jfc.queue.poll(&mut one), Ok(0));
            idle += bench.toy.state().steps - before;
        }
        jfs.send.as_mut().unwrap().post_send(&[signalled(context)]).unwrap();
        assert_eq!(jfc.queue.poll(&mut one), Ok(1));
        bench.toy.state().steps - first - idle
    };
    (0..count).map(&mut find).collect()
}

/// A program whose polls always find something lets the device work as well.
#[test]
fn polls_that_always_find_something_let_the_device_work_in_one_of_them() {
    let bench = Bench::new();
    let mut jfc = bench.jfc(64);
    let steps = steps_of_finds(&bench, &mut jfc, (32, false));
    let expected: Vec<u32> = (1..=32).map(|polls| polls / 16).collect();
    assert_eq!(steps, expected);
}

/// After an idle snapshot the program may answer the message that it got, and its answer carry an acknowledgement:
/// the device works before the next poll.
#[test]
fn polls_that_end_idle_let_the_device_work_before_the_next_one() {
    let bench = Bench::new();
    let mut jfc = quiet(&bench);
    let steps = steps_of_finds(&bench, &mut jfc, (33, true));
    assert_eq!(steps, [0; 33], "only polls before them take steps");
}

/// A completion that the device passes to a poll is in no ring: the poll has it, even if a step is due.
#[test]
fn what_is_given_to_a_poll_is_its_completion_whatever_is_due() {
    for takes in [true, false] {
        let bench = Bench::new();
        let mut jfc = quiet(&bench);
        let mut jfr = bench.context.create_queue(&jfr_cfg(jfc.id, 4)).unwrap();
        jfr.recv.as_mut().unwrap().post_recv(&[RecvWr { dst: &[], user_ctx: 7 }]).unwrap();
        assert!(poll_all(&mut jfc).is_empty());
        let cqe = Cqe {
            recv: true,
            local_id: jfr.id,
            user_data: bench.toy.cookie(jfr.id),
            byte_cnt: 5,
            ..Cqe::default()
        };
        let message = ReceivedMessage::decode(&cqe.encode(false));
        bench.toy.script(|script| (script.takes, script.gives) = (takes, Some(message)));
        bench.toy.peer.store_u64(0, 1).unwrap();
        let mut one = [Completion::default(); 1];
        assert_eq!(jfc.queue.poll(&mut one), Ok(1));
        assert_eq!((one[0].user_ctx, one[0].len, one[0].status), (7, 5, CrStatus::Success));
        let steps = bench.toy.state().steps;
        assert_eq!(jfc.queue.poll(&mut one), Ok(0));
        assert_eq!(bench.toy.state().steps, steps + 1, "the idle ended");
    }
}

/// The entry of a peer that ends an idle snapshot: the device takes it alone, or the poll steps the device.
#[test]
fn the_entry_of_a_peer_is_taken_without_a_step() {
    let bench = Bench::new();
    let mut jfc = quiet(&bench);
    let mut jfs = bench.jfs(jfc.id, 8);
    let mut post = |context| {
        bench.toy.script(|script| script.hold = true);
        jfs.send.as_mut().unwrap().post_send(&[signalled(context)]).unwrap();
        bench.toy.script(|script| script.hold = false);
        bench.toy.peer.store_u64(0, 1).unwrap();
    };
    let mut one = [Completion::default(); 1];
    bench.toy.script(|script| script.takes = true);
    assert_eq!(jfc.queue.poll(&mut one), Ok(0));
    let counts = || {
        let state = bench.toy.state();
        (state.taken, state.steps)
    };
    let (_, steps) = counts();
    post(1);
    assert_eq!(jfc.queue.poll(&mut one), Ok(1));
    assert_eq!((one[0].user_ctx, counts()), (1, (1, steps)));
    assert_eq!(jfc.queue.poll(&mut one), Ok(0));
    bench.toy.peer.store_u64(0, 1).unwrap();
    assert_eq!(jfc.queue.poll(&mut one), Ok(0), "the entry brought nothing here");
    assert_eq!(counts(), (2, steps + 1));
    bench.toy.script(|script| script.takes = false);
    assert_eq!(jfc.queue.poll(&mut one), Ok(0), "the idle ended");
    post(2);
    assert_eq!(jfc.queue.poll(&mut one), Ok(1));
    assert_eq!((one[0].user_ctx, counts()), (2, (2, steps + 3)));
}
