//! When a position of the send ring may be used again: every interleaving of the device's two stores
//! for a request (completion, record) with polls and posts.
//!
//! The send ring against a queue: whatever is posted and polled in whatever order, completions
//! come in posting order with their own contexts, and "full" is answered exactly at the depth.

use std::collections::VecDeque;

use Kind::{Failing, Signalled, Silent};
use proptest::prelude::*;
use udma_abi::Cqe;
use urma_core::{Completion, PostReason, RecvWr, SendWr, WrFlags};

use super::{Bench, jfr_cfg, nop, signalled};

/// Steps of a run after its first post.
const STEPS: u32 = 7;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// A signalled request that succeeds.
    Signalled,
    /// Unsignalled, succeeds: no completion.
    Silent,
    /// Unsignalled, fails: a completion all the same.
    Failing,
}

/// The kinds of the requests of a run, again and again.
const MIXES: [&[Kind]; 5] =
    [&[Signalled], &[Silent, Signalled], &[Failing, Signalled], &[Failing], &[Silent, Failing]];

/// One run on a queue of `depth`, which begins with a post; `steps` in base 3: the device makes one
/// store, the program polls once, or posts once.
///
/// # Errors
/// What of the contract was broken.
fn run(depth: usize, mix: &[Kind], steps: u32, record_first: bool) -> Result<(), String> {
    let bench = Bench::new();
    let stores = Some(0);
    bench.toy.script(|s| {
        (s.stores, s.record_first, s.solicited_fails) = (stores, record_first, true);
    });
    let mut jfc = bench.jfc(16);
    let mut jfs = bench.jfs(jfc.id, depth as u32);
    let send = jfs.send.as_mut().unwrap();
    let mut posted = 0;
    // Posted requests whose end the program cannot derive from completions, in order.
    let mut open: VecDeque<u64> = VecDeque::new();
    let mut expected: VecDeque<u64> = VecDeque::new();
    let mut take = |open: &mut VecDeque<u64>, expected: &mut VecDeque<u64>| {
        let mut out = [Completion::default()];
        if jfc.queue.poll(&mut out).map_err(|error| format!("poll: {error}"))? == 0 {
            return Ok(false);
        }
        let ctx = out[0].user_ctx;
        if expected.pop_front() != Some(ctx) {
            return Err(format!("completion of request {ctx} out of place"));
        }
        open.retain(|at| *at > ctx);
        Ok(true)
    };
    let mut steps = 3 * steps + 2;
    for _ in 0..=STEPS {
        match steps % 3 {
            0 => {
                bench.toy.script(|s| s.stores = Some(1));
                bench.device_work();
                bench.toy.script(|s| s.stores = stores);
            }
            1 => _ = take(&mut open, &mut expected)?,
            _ => {
                let kind = mix[posted as usize % mix.len()];
                match send.post_send(&[request(kind, posted)]) {
                    Ok(()) => {
                        open.push_back(posted);
                        if kind != Silent {
                            expected.push_back(posted);
                        }
                        posted += 1;
                        if expected.len() > depth {
                            return Err("more completions to come than the depth".to_owned());
                        }
                    }
                    Err(error) if error.reason != PostReason::Full => {
                        return Err(format!("post: {error}"));
                    }
                    Err(_) if open.len() < depth => {
                        return Err(format!("full with {} of {depth} outstanding", open.len()));
                    }
                    Err(_) => {}
                }
            }
        }
        steps /= 3;
    }
    bench.toy.script(|s| s.stores = None);
    while take(&mut open, &mut expected)? {}
    if expected.is_empty() { Ok(()) } else { Err(format!("no completion of {expected:?}")) }
}

fn request(kind: Kind, ctx: u64) -> SendWr<'static> {
    match kind {
        Signalled => signalled(ctx),
        Silent => nop(ctx, WrFlags::empty()),
        Failing => nop(ctx, WrFlags::SOLICITED),
    }
}

/// What is broken first in all runs.
fn broken(record_first: bool) -> Option<(usize, &'static [Kind], u32, String)> {
    let runs = (1..3).flat_map(|depth| MIXES.map(|mix| (depth, mix)));
    runs.flat_map(|(depth, mix)| (0..3u32.pow(STEPS)).map(move |steps| (depth, mix, steps)))
        .find_map(|(depth, mix, steps)| {
            let error = run(depth, mix, steps, record_first).err()?;
            Some((depth, mix, steps, error))
        })
}

/// After `n` completions `n` more requests fit, however far the record lags behind the completions,
/// and no position is used again while a completion of it is to come.
#[test]
fn as_many_requests_fit_as_completions_were_polled() {
    assert_eq!(broken(false), None);
}

/// The contract orders the two stores for a reason: the other order loses or mixes up completions.
#[test]
fn a_record_before_its_completion_breaks_the_ring() {
    let (.., broken) = broken(true).expect("a run that shows it");
    assert!(broken.contains("completion"), "{broken}");
}

/// The index of a ring of 64 entries may be four behind, except where a program may poll no more.
#[test]
fn a_shallow_ring_shows_its_whole_room_before_a_doorbell() {
    let bench = Bench::new();
    let mut jfc = bench.jfc(64);
    let mut jfs = bench.jfs(jfc.id, 8);
    let send = jfs.send.as_mut().unwrap();
    let mut one = [Completion::default(); 1];
    let doorbells = || bench.toy.state().jfc_doorbells;
    for round in 0..3 {
        send.post_send(&[signalled(round)]).unwrap();
        let before = doorbells();
        assert_eq!(jfc.queue.poll(&mut one), Ok(1));
        assert_eq!(doorbells(), before, "a poll that took one of 64");
        send.post_send(&[signalled(round), signalled(round)]).unwrap();
        assert_eq!(doorbells(), before + 1, "the post");
        assert_eq!(jfc.queue.poll(&mut one), Ok(1));
        assert_eq!(jfc.queue.poll(&mut one), Ok(1));
        assert_eq!(jfc.queue.poll(&mut one), Ok(0));
        assert_eq!(doorbells(), before + 2, "the empty poll");
    }
}

/// A peer whose message finds no entry sends it again later.
#[test]
fn a_shallow_ring_shows_its_room_after_each_receive() {
    let bench = Bench::new();
    let mut jfc = bench.jfc(64);
    let mut jfr = bench.context.create_queue(&jfr_cfg(jfc.id, 4)).unwrap();
    let mut one = [Completion::default(); 1];
    for user_ctx in 0..3 {
        jfr.recv.as_mut().unwrap().post_recv(&[RecvWr { dst: &[], user_ctx }]).unwrap();
        let cqe = Cqe {
            recv: true,
            local_id: jfr.id,
            entry_idx: user_ctx as u16,
            user_data: bench.toy.cookie(jfr.id),
            ..Cqe::default()
        };
        bench.toy.complete(jfc.id, cqe);
        let before = bench.toy.state().jfc_doorbells;
        assert_eq!(jfc.queue.poll(&mut one), Ok(1));
        assert_eq!(bench.toy.state().jfc_doorbells, before + 1);
    }
}

#[derive(Clone, Debug)]
enum Op {
    /// Post requests, signalled or not.
    Post(Vec<bool>),
    /// Let the device work or not.
    Hold(bool),
    /// Poll with this much room.
    Poll(usize),
}

fn any_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => prop::collection::vec(prop::bool::weighted(0.7), 1..5).prop_map(Op::Post),
        1 => any::<bool>().prop_map(Op::Hold),
        3 => (1usize..6).prop_map(Op::Poll),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn send_ring_behaves_like_a_queue(depth in 1u32..9, ops in prop::collection::vec(any_op(), 1..120)) {
        let bench = Bench::new();
        let mut jfc = bench.jfc(64);
        let mut jfs = bench.jfs(jfc.id, depth);
        let send = jfs.send.as_mut().unwrap();
        let mut expected: VecDeque<u64> = VecDeque::new();
        // Requests from the oldest whose fate the caller does not know, signalled or not.
        let mut unknown: VecDeque<(u64, bool)> = VecDeque::new();
        let mut next = 1u64;
        for op in ops {
            match op {
                Op::Post(signals) => {
                    let flag = |on| if on { WrFlags::COMPLETE } else { WrFlags::empty() };
                    let wrs: Vec<SendWr<'_>> =
                        signals.iter().zip(next..).map(|(on, ctx)| nop(ctx, flag(*on))).collect();
                    let taken = match send.post_send(&wrs) {
                        Ok(()) => wrs.len(),
                        Err(error) => {
                            prop_assert_eq!(error.reason, PostReason::Full);
                            // Never full while fewer than `depth` are unknown to the caller.
                            prop_assert!(unknown.len() + error.index >= depth as usize);
                            error.index
                        }
                    };
                    for (on, ctx) in signals.iter().zip(next..).take(taken) {
                        unknown.push_back((ctx, *on));
                        if *on { expected.push_back(ctx); }
                    }
                    next += wrs.len() as u64;
                    // Signalled ones that were not polled never exceed the depth.
                    prop_assert!(expected.len() <= depth as usize);
                }
                Op::Hold(on) => bench.toy.script(|s| s.hold = on),
                Op::Poll(room) => {
                    let mut out = vec![Completion::default(); room];
                    let found = jfc.queue.poll(&mut out).unwrap();
                    for completion in &out[..found] {
                        prop_assert_eq!(Some(completion.user_ctx), expected.pop_front());
                        while unknown.front().is_some_and(|(ctx, _)| *ctx <= completion.user_ctx) {
                            unknown.pop_front();
                        }
                    }
                }
            }
        }
        bench.toy.script(|s| s.hold = false);
        let rest: Vec<u64> = super::poll_all(&mut jfc).iter().map(|c| c.user_ctx).collect();
        prop_assert_eq!(rest, Vec::from(expected));
        drop(jfs);
    }
}
