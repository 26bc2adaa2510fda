//! Priorities of send queues that share a path.

use udma_abi::{
    CqeStatus, Opcode, Sqe,
    sqe::{SqeFlags, SqeTargetKind},
};

use super::{Bench, BenchQueue, pair};

/// Messages of each queue.
const MESSAGES: usize = 60;
const LEN: u32 = 64 << 10;

/// Two queues of these priorities send to one peer: how many messages of the first one are done
/// when the second, which starts later, has done all.
fn done_when_the_second_is(priorities: [u8; 2]) -> usize {
    let (mut a, mut b) = pair();
    let (b_jfc, local, remote) = (b.jfc(8), a.seg(LEN as usize), b.seg(LEN as usize));
    let tpn = a.connect(b.eid());
    let mut ends = priorities.map(|priority| {
        let jfc = a.jfc(8);
        let from = a.jetty(6, &jfc, |args| {
            if let Some(sq) = &mut args.sq {
                sq.priority = priority;
            }
        });
        let mut to = b.jetty(6, &b_jfc, |_| {});
        (0..MESSAGES).for_each(|_| b.post_recv(&mut to, &[remote.sge(0, LEN)]));
        (jfc, from, to)
    });
    let send = |a: &Bench, from: &mut BenchQueue, to: &BenchQueue| {
        let sqe = Sqe {
            flags: SqeFlags::COMPLETE,
            tpn,
            target_kind: SqeTargetKind::Jetty,
            target_id: to.id,
            ..Sqe::new(Opcode::Send)
        };
        a.post(from, sqe, &[local.sge(0, LEN)]);
    };
    for (_, from, to) in &mut ends {
        (0..MESSAGES).for_each(|_| send(&a, from, to));
    }
    let mut done = [0; 2];
    for _ in 0..10_000 {
        a.now += 1000;
        a.dev.step(a.now);
        b.dev.step(a.now);
        for (done, (jfc, ..)) in done.iter_mut().zip(&mut ends) {
            while let Some(cqe) = a.poll(jfc) {
                assert_eq!(cqe.status, CqeStatus::Success);
                *done += 1;
            }
        }
        if done[1] == MESSAGES {
            return done[0];
        }
    }
    panic!("{done:?}");
}

#[test]
fn an_urgent_queue_overtakes_and_starves_none() {
    let equal = done_when_the_second_is([3, 3]);
    let late = done_when_the_second_is([15, 0]);
    let overtaken = done_when_the_second_is([0, 15]);
    assert_eq!(late, MESSAGES, "the urgent one is done first");
    assert!(equal > MESSAGES * 3 / 4, "equals share: {equal}");
    // What was sent before the urgent queue began, and one piece of eight since.
    assert!((MESSAGES / 8..MESSAGES * 2 / 3).contains(&overtaken), "{overtaken}");
}
