//! Atomics: each operation in both sizes, and many at a time.

use urma_core::{CrStatus, LocalSge, RemoteAddr, SendOp};
use urma_mem::WordAtomic;
use urma_tests::world::{End, Outcome, Setup, World, same};

use super::writes::is_invalid;

super::behaviours! {
    Good reliable atomic_cas_hits: "CAS stores the new value when the old one is as compared, and returns the old one.";
    Good reliable atomic_cas_misses: "CAS leaves the word when it is not as compared, and returns it.";
    Good reliable atomic_swap: "SWAP stores the operand and returns the old value.";
    Good reliable atomic_fetch_add: "FADD adds, wrapping, and returns the old value.";
    Good reliable atomic_fetch_sub: "FSUB subtracts, wrapping, and returns the old value.";
    Good reliable atomic_fetch_and: "FAND combines by AND and returns the old value.";
    Good reliable atomic_fetch_or: "FOR combines by OR and returns the old value.";
    Good reliable atomic_fetch_xor: "FXOR combines by XOR and returns the old value.";
    Good reliable atomics_of_processor_and_peer_agree: "Atomics of the owner's processor and of a peer on one word lose no step.";
    Good reliable atomics_of_both_ends_agree: "Atomics of both ends on one word lose no step and return distinct values.";
    Good reliable atomics_in_flight_return_in_order: "A queue of FADDs returns the values in posting order.";
    Bad reliable atomic_misaligned_is_refused: "An atomic whose address is not aligned to its size is refused by post.";
    Bad reliable atomic_on_odd_memory: "An atomic at an aligned IOVA whose memory is not aligned is not supported by its target.";
    Bad reliable atomic_of_wrong_size_is_refused: "An atomic of other than 4 or 8 bytes is refused by post.";
}

const HIGH: u64 = 0xfedc_ba98_7654_3210;
const LOW: u64 = 0x7654_3210;
const OPERAND: u64 = 0x8fff_0f0f_8fff_0f0f;

/// Runs one operation in 4 and 8 bytes; `calc` gives the value after it.
fn each_size(
    setup: Setup,
    op: for<'x> fn(LocalSge<'x>, RemoteAddr<'x>, u64) -> SendOp<'x>,
    calc: fn(u64) -> u64,
) -> Outcome {
    let mut w = World::new(setup)?;
    for (len, mask) in [(4_usize, u64::from(u32::MAX)), (8, u64::MAX)] {
        w.b.mem().poison(4096, len)?;
        w.a.mem().poison(1024, len)?;
        let old = HIGH & mask;
        w.b.mem().put(4096, &old.to_le_bytes()[..len])?;
        let ctx = w.a.post(|kit| op(kit.sge(1024, len), kit.at(4096), mask))?;
        w.a.sent_ok(ctx)?;
        let wanted = calc(old) & mask;
        w.b.mem().placed(4096, &wanted.to_le_bytes()[..len]).map_err(|f| f.during(len))?;
        w.a.mem()
            .placed(1024, &old.to_le_bytes()[..len])
            .map_err(|f| f.during(format!("result of {len} bytes")))?;
    }
    Ok(())
}

fn atomic_cas_hits(setup: Setup) -> Outcome {
    each_size(
        setup,
        |result, target, mask| SendOp::Cas {
            result,
            target,
            compare: HIGH & mask,
            swap: OPERAND & mask,
        },
        |_| OPERAND,
    )
}

fn atomic_cas_misses(setup: Setup) -> Outcome {
    each_size(
        setup,
        |result, target, mask| SendOp::Cas {
            result,
            target,
            compare: (LOW ^ 1) & mask,
            swap: OPERAND & mask,
        },
        |old| old,
    )
}

fn atomic_swap(setup: Setup) -> Outcome {
    each_size(
        setup,
        |result, target, mask| SendOp::Swap { result, target, value: OPERAND & mask },
        |_| OPERAND,
    )
}

fn atomic_fetch_add(setup: Setup) -> Outcome {
    each_size(
        setup,
        |result, target, mask| SendOp::FetchAdd { result, target, value: OPERAND & mask },
        |old| old.wrapping_add(OPERAND),
    )
}

fn atomic_fetch_sub(setup: Setup) -> Outcome {
    each_size(
        setup,
        |result, target, mask| SendOp::FetchSub { result, target, value: OPERAND & mask },
        |old| old.wrapping_sub(OPERAND),
    )
}

fn atomic_fetch_and(setup: Setup) -> Outcome {
    each_size(
        setup,
        |result, target, mask| SendOp::FetchAnd { result, target, value: OPERAND & mask },
        |old| old & OPERAND,
    )
}

fn atomic_fetch_or(setup: Setup) -> Outcome {
    each_size(
        setup,
        |result, target, mask| SendOp::FetchOr { result, target, value: OPERAND & mask },
        |old| old | OPERAND,
    )
}

fn atomic_fetch_xor(setup: Setup) -> Outcome {
    each_size(
        setup,
        |result, target, mask| SendOp::FetchXor { result, target, value: OPERAND & mask },
        |old| old ^ OPERAND,
    )
}

/// One operation of each kind.
pub(super) fn all<'a>(result: LocalSge<'a>, target: RemoteAddr<'a>, value: u64) -> [SendOp<'a>; 7] {
    [
        SendOp::Cas { result, target, compare: 0, swap: value },
        SendOp::Swap { result, target, value },
        SendOp::FetchAdd { result, target, value },
        SendOp::FetchSub { result, target, value },
        SendOp::FetchAnd { result, target, value },
        SendOp::FetchOr { result, target, value },
        SendOp::FetchXor { result, target, value },
    ]
}

/// FADD of 1 at `at`, waited for; the old value.
fn add_one(end: &mut End, at: usize) -> Outcome<u64> {
    let ctx = end.post(|kit| SendOp::FetchAdd {
        result: kit.sge(1024, 8),
        target: kit.at(at),
        value: 1,
    })?;
    end.sent_ok(ctx)?;
    end.mem().word(1024)
}

fn atomics_of_processor_and_peer_agree(setup: Setup) -> Outcome {
    const STEPS: u64 = 2000;
    let mut w = World::new(setup)?;
    let b = w.b.mem().clone();
    let a = &mut w.a;
    std::thread::scope(|scope| {
        let local = scope.spawn(move || -> Outcome {
            for step in 0..STEPS {
                b.region().atomic_u64(4096, WordAtomic::Add(1 << 32))?;
                if step % 64 == 0 {
                    std::thread::yield_now();
                }
            }
            Ok(())
        });
        for _ in 0..STEPS {
            add_one(a, 4096)?;
        }
        local.join().map_err(|_| "the local adder panicked".to_owned())?
    })?;
    same("the word", w.b.mem().word(4096)?, STEPS << 32 | STEPS)
}

fn atomics_of_both_ends_agree(setup: Setup) -> Outcome {
    const STEPS: usize = 300;
    let mut w = World::new(setup)?;
    // The word lies in A's memory; B reaches it remotely, A through a second import of itself.
    let own = w.a.half.seg.remote();
    let own = w.a.half.ctx.import_segment(
        &own,
        urma_core::SegmentAccess::REMOTE_ALL,
        urma_tests::world::NO_MAPPING,
    )?;
    if setup.mode == urma_core::TransportMode::Rc {
        // RC reaches only the bound peer: the word is B's, and B's processor is the second side.
        drop(own);
        return one_sided_contention(&mut w, STEPS);
    }
    let name = w.a.half.jetty.remote();
    let own_target = w.a.half.ctx.import_jetty(&name)?;
    let (a, b) = (&mut w.a, &mut w.b);
    let mut values = std::thread::scope(|scope| {
        let other = scope.spawn(move || (0..STEPS).map(|_| add_one(b, 4096)).collect());
        let mine: Outcome<Vec<u64>> = (0..STEPS)
            .map(|_| {
                let target = RemoteAddr { segment: &own, addr: own.va() + 4096 };
                let ctx = a.fresh_ctx();
                let (jetty, kit) = a.parts();
                let op = SendOp::FetchAdd { result: kit.sge(1024, 8), target, value: 1 };
                jetty.post_send(&[urma_core::SendWr::new(op, &own_target, ctx)])?;
                a.sent_ok(ctx)?;
                a.mem().word(1024)
            })
            .collect();
        let theirs: Outcome<Vec<u64>> =
            other.join().map_err(|_| "the other end panicked".to_owned())?;
        Ok::<_, urma_tests::world::Failure>([mine?, theirs?].concat())
    })?;
    values.sort_unstable();
    same("the returned values", values, (0..2 * STEPS as u64).collect())
}

fn one_sided_contention(w: &mut World, steps: usize) -> Outcome {
    let b = w.b.mem().clone();
    let a = &mut w.a;
    let mut values = std::thread::scope(|scope| {
        let other = scope.spawn(move || -> Outcome<Vec<u64>> {
            (0..steps).map(|_| Ok(b.region().atomic_u64(4096, WordAtomic::Add(1))?)).collect()
        });
        let mine: Outcome<Vec<u64>> = (0..steps).map(|_| add_one(a, 4096)).collect();
        let theirs = other.join().map_err(|_| "the other side panicked".to_owned())?;
        Ok::<_, urma_tests::world::Failure>([mine?, theirs?].concat())
    })?;
    values.sort_unstable();
    same("the returned values", values, (0..2 * steps as u64).collect())
}

fn atomics_in_flight_return_in_order(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    for round in 0..4_u64 {
        let mut order = Vec::new();
        for index in 0..32_usize {
            order.push(w.a.post(|kit| SendOp::FetchAdd {
                result: kit.sge(index * 8, 8),
                target: kit.at(4096),
                value: 1,
            })?);
        }
        for ctx in order {
            w.a.sent_ok(ctx)?;
        }
        for index in 0..32_usize {
            let seen = w.a.mem().word(index * 8)?;
            same("the returned value", seen, round * 32 + index as u64)?;
        }
    }
    Ok(())
}

fn atomic_misaligned_is_refused(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    for (len, result, target) in [(8, 0, 4), (8, 4, 0), (8, 0, 1), (4, 0, 2), (4, 2, 0)] {
        let (jetty, kit) = w.a.parts();
        let (result, target) = (kit.sge(result, len), kit.at(target));
        for (number, op) in all(result, target, 1).into_iter().enumerate() {
            is_invalid("a misaligned atomic", jetty.post_send(&[kit.wr(op, 1)]))
                .map_err(|f| f.during(number))?;
        }
    }
    w.a.nothing_sent()?;
    same("the word", w.b.mem().word(0)?, 0)
}

fn atomic_on_odd_memory(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    let mem = urma_tests::world::Memory::new(8192)?;
    let window = mem.region().sub(100, 4000)?;
    let access = urma_core::SegmentAccess::REMOTE_ALL;
    let cfg =
        urma_core::SegmentCfg { user_iova: Some(0x10_0000), ..urma_core::SegmentCfg::new(access) };
    let seg = w.b.half.ctx.register(&window, &cfg, None)?;
    let none = urma_tests::world::NO_MAPPING;
    let import = w.a.half.ctx.import_segment(&seg.remote(), access, none)?;
    mem.poison(100 + 512, 8)?;
    let (jetty, kit) = w.a.parts();
    let target = RemoteAddr { segment: &import, addr: import.va() + 512 };
    let op = SendOp::FetchAdd { result: kit.sge(0, 8), target, value: 1 };
    jetty.post_send(&[kit.wr(op, 1)])?;
    w.a.sent_as(CrStatus::RemUnsupportedReq)?;
    mem.untouched(100 + 512, 8)
}

fn atomic_of_wrong_size_is_refused(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    for len in [1, 2, 3, 5, 16, 64] {
        let (jetty, kit) = w.a.parts();
        for (number, op) in all(kit.sge(0, len), kit.at(0), 1).into_iter().enumerate() {
            is_invalid("an atomic of a wrong size", jetty.post_send(&[kit.wr(op, 1)]))
                .map_err(|f| f.during(number))?;
        }
    }
    let done = add_one(&mut w.a, 0)?;
    same("the value after the refusals", done, 0)?;
    let ctx = w.a.read(0, 0, 8)?;
    same("status", w.a.sent_ok(ctx)?.status, CrStatus::Success)
}
