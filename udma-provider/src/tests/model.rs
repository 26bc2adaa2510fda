//! The send ring against a queue: whatever is posted and polled in whatever order, completions
//! come in posting order with their own contexts, and "full" is answered exactly at the depth.

use std::collections::VecDeque;

use proptest::prelude::*;
use urma_core::{Completion, PostReason, SendWr, WrFlags};

use super::{Bench, nop};

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
