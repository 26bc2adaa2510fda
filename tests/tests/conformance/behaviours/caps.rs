//! Limits of the device: each at the limit and one beyond.

use urma_core::{
    CrStatus, DeviceCaps, JettyCfg, JettyRecv, JfcCfg, JfrCfg, JfsCfg, SegmentAccess, SegmentCfg,
    SendOp, Status,
};
use urma_tests::world::{
    Host, Memory, NO_MAPPING, Outcome, Plan, Setup, World, check, fail, pattern, plain_jfc,
    refused, same,
};

super::behaviours! {
    Good rm depths_at_the_limit: "JFC, JFS and JFR are created with the largest depth that the device states.";
    Good rm sges_at_the_limit: "Requests carry as many SGEs as the device states, on both sides.";
    Good rm inline_at_the_limit: "Requests carry as many inline bytes as the device states.";
    Good rm read_sges_at_the_limit: "A READ scatters to as many SGEs as its queue holds.";
    Good rm a_queue_of_one: "A JFC, JFS and JFR of depth 1 work.";
    Bad rm depths_beyond_the_limit: "A depth of 0 or of one more than the device states is refused.";
    Bad rm sges_beyond_the_limit: "A queue for one SGE more than the device states is refused.";
    Bad rm inline_beyond_the_limit: "A queue for one inline byte more than the device states is refused.";
    Bad rm timers_beyond_the_limit: "Priority above 15, RNR retries above 7 and timer codes above 31 are refused.";
    Bad rm event_vectors_beyond_the_limit: "A JFC on an event vector that the device does not have is refused.";
    Bad rm jfces_beyond_the_limit: "JFCEs are created up to the limit; one more is refused and a freed one can be had again.";
    Bad rm jfcs_beyond_the_limit: "JFCs are created up to the limit; one more is refused and a freed one can be had again.";
    Bad rm jfss_beyond_the_limit: "JFSs are created up to the limit; one more is refused and a freed one can be had again.";
    Bad rm jfrs_beyond_the_limit: "JFRs are created up to the limit; one more is refused and a freed one can be had again.";
    Bad rm jetties_beyond_the_limit: "Jetties are created up to the limit; one more is refused and a freed one can be had again.";
    Bad rm groups_beyond_the_limit: "Jetty groups are created up to the limit; one more is refused and a freed one can be had again.";
    Bad rm segments_beyond_the_limit: "Token ids are given up to the limit; one more is refused and a freed one can be had again.";
    Bad rm sizes_beyond_the_limit: "A message, WRITE or READ of one byte more than the device states is refused by post.";
}

fn caps(w: &World) -> DeviceCaps {
    w.a.half.ctx.attr().caps
}

fn depths_at_the_limit(setup: Setup) -> Outcome {
    let host = Host::open(setup)?;
    let caps = host.ctx.attr().caps;
    let jfc = plain_jfc(&host.ctx, caps.max_jfc_depth)?;
    host.ctx.create_jfs(&JfsCfg::new(setup.mode, caps.max_jfs_depth), &jfc)?.delete()?;
    host.ctx.create_jfr(&JfrCfg::new(setup.mode, caps.max_jfr_depth), &jfc)?.delete()?;
    Ok(jfc.delete()?)
}

fn byte(value: u32) -> u8 {
    u8::try_from(value).unwrap_or(u8::MAX)
}

/// Two ends for as many SGEs as the device states.
fn many_sges(setup: Setup) -> Outcome<World> {
    let host = Host::open(setup)?;
    let caps = host.ctx.attr().caps;
    check(caps.max_jfs_sge >= 2 && caps.max_jfr_sge >= 2, format!("{caps:?}"))?;
    World::with(setup, |plan: &mut Plan| {
        plan.send.max_sge = byte(caps.max_jfs_sge);
        plan.recv.max_sge = byte(caps.max_jfr_sge);
        plan.send.depth = 16;
        plan.recv.depth = 16;
    })
}

fn sges_at_the_limit(setup: Setup) -> Outcome {
    let mut w = many_sges(setup)?;
    let (out, into) = (caps(&w).max_jfs_sge as usize, caps(&w).max_jfr_sge as usize);
    let bytes = pattern(1, out * 30);
    w.a.mem().put(0, &bytes)?;
    for round in 0..40 {
        w.b.mem().poison(4096, bytes.len())?;
        let (jetty, kit) = w.b.parts();
        let piece = bytes.len().div_ceil(into);
        let dst: Vec<_> = (0..into).map(|i| kit.sge(4096 + i * piece, piece)).collect();
        jetty.post_recv(&[urma_core::RecvWr { dst: &dst, user_ctx: round }])?;
        let (jetty, kit) = w.a.parts();
        let src: Vec<_> = (0..out).map(|i| kit.sge(i * 30, 30)).collect();
        jetty.post_send(&[kit.wr(SendOp::Send { src: &src }, round)])?;
        w.b.received_ok(round)?;
        w.a.sent_ok(round)?;
        w.b.mem().placed(4096, &bytes)?;
        w.b.mem().poison(8192, bytes.len())?;
        let (jetty, kit) = w.a.parts();
        jetty.post_send(&[
            kit.wr(SendOp::Write { src: &src_of(&kit, out), dst: kit.at(8192) }, 7)
        ])?;
        w.a.sent_ok(7)?;
        w.b.mem().placed(8192, &bytes)?;
    }
    Ok(())
}

fn src_of<'a>(kit: &urma_tests::world::Kit<'a>, count: usize) -> Vec<urma_core::LocalSge<'a>> {
    (0..count).map(|i| kit.sge(i * 30, 30)).collect()
}

fn read_sges_at_the_limit(setup: Setup) -> Outcome {
    // READ has fewer SGEs in hardware (6); what the queue was created for is due here.
    let mut w = World::with(setup, |plan| plan.send.max_sge = 6)?;
    let bytes = pattern(1, 6 * 100);
    w.b.mem().put(0, &bytes)?;
    w.a.mem().poison(4096, bytes.len())?;
    let (jetty, kit) = w.a.parts();
    let dst: Vec<_> = (0..6).map(|i| kit.sge(4096 + i * 100, 100)).collect();
    jetty.post_send(&[kit.wr(SendOp::Read { dst: &dst, src: kit.at(0) }, 1)])?;
    w.a.sent_ok(1)?;
    w.a.mem().placed(4096, &bytes)
}

fn inline_at_the_limit(setup: Setup) -> Outcome {
    let host = Host::open(setup)?;
    let max = host.ctx.attr().caps.max_jfs_inline;
    check(max >= 16, format!("max_jfs_inline is {max}"))?;
    let mut w = World::with(setup, |plan| plan.send.max_inline = max)?;
    let len = max as usize;
    for round in 0..40 {
        let bytes = pattern(round, len);
        w.a.mem().put(0, &bytes)?;
        w.b.mem().poison(4096, len)?;
        let flags = urma_core::WrFlags::COMPLETE | urma_core::WrFlags::INLINE;
        let recv = w.b.recv(4096, len)?;
        let ctx = w.a.try_send(flags, 0, len)?;
        w.a.sent_ok(ctx)?;
        w.b.received_ok(recv)?;
        w.b.mem().placed(4096, &bytes)?;
    }
    Ok(())
}

fn a_queue_of_one(setup: Setup) -> Outcome {
    let mut w = World::with(setup, |plan| {
        (plan.send.depth, plan.recv.depth) = (1, 1);
        (plan.jfc_depth, plan.recv_jfc_depth) = (1, 1);
    })?;
    for round in 0..50 {
        super::messages::one_send(&mut w, round, 100)?;
        let ctx = w.a.write(0, 0, 8)?;
        w.a.sent_ok(ctx)?;
    }
    Ok(())
}

fn depths_beyond_the_limit(setup: Setup) -> Outcome {
    let w = World::new(setup)?;
    let (ctx, caps) = (&w.a.half.ctx, caps(&w));
    let jfc = plain_jfc(ctx, 8)?;
    for depth in [0, caps.max_jfc_depth + 1, u32::MAX] {
        let seen = ctx.create_jfc(&JfcCfg::new(depth), None);
        refused(&format!("a JFC of {depth}"), seen, Status::Invalid)?;
    }
    for depth in [0, caps.max_jfs_depth + 1, u32::MAX] {
        let seen = ctx.create_jfs(&JfsCfg::new(setup.mode, depth), &jfc);
        refused(&format!("a JFS of {depth}"), seen, Status::Invalid)?;
    }
    for depth in [0, caps.max_jfr_depth + 1, u32::MAX] {
        let seen = ctx.create_jfr(&JfrCfg::new(setup.mode, depth), &jfc);
        refused(&format!("a JFR of {depth}"), seen, Status::Invalid)?;
    }
    Ok(())
}

fn sges_beyond_the_limit(setup: Setup) -> Outcome {
    let w = World::new(setup)?;
    let (ctx, caps) = (&w.a.half.ctx, caps(&w));
    let jfc = plain_jfc(ctx, 8)?;
    let cfg = JfsCfg { max_sge: byte(caps.max_jfs_sge + 1), ..JfsCfg::new(setup.mode, 4) };
    refused("local SGEs", ctx.create_jfs(&cfg, &jfc), Status::Invalid)?;
    let cfg = JfsCfg { max_rsge: byte(caps.max_jfs_rsge + 1), ..JfsCfg::new(setup.mode, 4) };
    refused("remote SGEs", ctx.create_jfs(&cfg, &jfc), Status::Invalid)?;
    let cfg = JfrCfg { max_sge: byte(caps.max_jfr_sge + 1), ..JfrCfg::new(setup.mode, 4) };
    refused("receive SGEs", ctx.create_jfr(&cfg, &jfc), Status::Invalid)
}

fn inline_beyond_the_limit(setup: Setup) -> Outcome {
    let w = World::new(setup)?;
    let jfc = plain_jfc(&w.a.half.ctx, 8)?;
    let max_inline = caps(&w).max_jfs_inline + 1;
    let cfg = JfsCfg { max_inline, ..JfsCfg::new(setup.mode, 4) };
    refused("inline bytes", w.a.half.ctx.create_jfs(&cfg, &jfc), Status::Invalid)
}

fn timers_beyond_the_limit(setup: Setup) -> Outcome {
    let w = World::new(setup)?;
    let (ctx, base) = (&w.a.half.ctx, JfsCfg::new(setup.mode, 4));
    let jfc = plain_jfc(ctx, 8)?;
    let good = JfsCfg { priority: 15, rnr_retry: 7, err_timeout: 31, ..base };
    ctx.create_jfs(&good, &jfc)?.delete()?;
    for bad in [
        JfsCfg { priority: 16, ..base },
        JfsCfg { rnr_retry: 8, ..base },
        JfsCfg { err_timeout: 32, ..base },
    ] {
        refused(&format!("{bad:?}"), ctx.create_jfs(&bad, &jfc), Status::Invalid)?;
    }
    let base = JfrCfg::new(setup.mode, 4);
    ctx.create_jfr(&JfrCfg { min_rnr_timer: 31, ..base }, &jfc)?.delete()?;
    let bad = JfrCfg { min_rnr_timer: 32, ..base };
    refused("an RNR timer of 32", ctx.create_jfr(&bad, &jfc), Status::Invalid)
}

fn event_vectors_beyond_the_limit(setup: Setup) -> Outcome {
    let w = World::new(setup)?;
    let jfce = w.a.half.ctx.create_jfce()?;
    let ceqn = caps(&w).ceq_cnt.max(1);
    let cfg = JfcCfg { ceqn, ..JfcCfg::new(8) };
    refused("the vector", w.a.half.ctx.create_jfc(&cfg, Some(&jfce)), Status::Invalid)?;
    let cfg = JfcCfg { ceqn: ceqn - 1, ..JfcCfg::new(8) };
    w.a.half.ctx.create_jfc(&cfg, Some(&jfce))?;
    Ok(())
}

/// Makes objects until it is refused, gives one back, makes it again. Returns how many there were.
fn until_refused<T>(
    most: usize,
    mut make: impl FnMut() -> Result<T, Status>,
    back: impl FnOnce(T) -> Outcome,
) -> Outcome<usize> {
    let mut all = Vec::new();
    loop {
        match make() {
            Ok(one) => all.push(one),
            Err(status) if status == Status::NoMemory => break,
            Err(other) => return fail(format!("refused with {other:?}, NoMemory is due")),
        }
        if all.len() > most {
            return fail(format!("more than {most} were made"));
        }
    }
    let count = all.len();
    if let Some(one) = all.pop() {
        back(one)?;
        all.push(make()?);
        refused("one more", make(), Status::NoMemory)?;
    }
    Ok(count)
}

fn jfces_beyond_the_limit(setup: Setup) -> Outcome {
    let host = Host::open(setup)?;
    let max = host.ctx.attr().caps.ceq_cnt as usize;
    let count = until_refused(max, || host.ctx.create_jfce(), |jfce| Ok(jfce.delete()?))?;
    same("JFCEs", count, max)
}

fn jfcs_beyond_the_limit(setup: Setup) -> Outcome {
    let host = Host::open(setup)?;
    let max = host.ctx.attr().caps.max_jfc as usize;
    let count =
        until_refused(max, || host.ctx.create_jfc(&JfcCfg::new(1), None), |jfc| Ok(jfc.delete()?))?;
    same("JFCs", count, max)
}

fn jfss_beyond_the_limit(setup: Setup) -> Outcome {
    let host = Host::open(setup)?;
    let jfc = plain_jfc(&host.ctx, 8)?;
    let make = || host.ctx.create_jfs(&JfsCfg::new(setup.mode, 1), &jfc);
    let max = host.ctx.attr().caps.max_jfs as usize;
    same("JFSs", until_refused(max, make, |jfs| Ok(jfs.delete()?))?, max)
}

fn jfrs_beyond_the_limit(setup: Setup) -> Outcome {
    let host = Host::open(setup)?;
    let jfc = plain_jfc(&host.ctx, 8)?;
    let make = || host.ctx.create_jfr(&JfrCfg::new(setup.mode, 1), &jfc);
    let max = host.ctx.attr().caps.max_jfr as usize;
    same("JFRs", until_refused(max, make, |jfr| Ok(jfr.delete()?))?, max)
}

fn jetties_beyond_the_limit(setup: Setup) -> Outcome {
    let host = Host::open(setup)?;
    let jfc = plain_jfc(&host.ctx, 8)?;
    let jfr = host.ctx.create_jfr(&JfrCfg::new(setup.mode, 1), &jfc)?;
    let recv = || JettyRecv::Shared { jfr: &jfr, jfc: None };
    let make = || host.ctx.create_jetty(&JettyCfg::new(JfsCfg::new(setup.mode, 1), &jfc, recv()));
    let max = host.ctx.attr().caps.max_jetty as usize;
    same("jetties", until_refused(max, make, |jetty| Ok(jetty.delete()?))?, max)
}

fn groups_beyond_the_limit(setup: Setup) -> Outcome {
    let host = Host::open(setup)?;
    let cfg = urma_core::GroupCfg {
        id: 0,
        policy: urma_core::HintPolicy::RoundRobin,
        token: urma_core::TokenPolicy::None,
    };
    let make = || host.ctx.create_group(&cfg);
    let max = host.ctx.attr().caps.max_jetty_grp as usize;
    same("groups", until_refused(max, make, |group| Ok(group.delete()?))?, max)
}

fn segments_beyond_the_limit(setup: Setup) -> Outcome {
    let host = Host::open(setup)?;
    let max = host.ctx.attr().caps.max_seg as usize;
    let count = until_refused(max, || host.ctx.alloc_token_id(), |lease| Ok(lease.free()?))?;
    same("token ids", count, max)
}

fn sizes_beyond_the_limit(setup: Setup) -> Outcome {
    let mut w = World::with(setup, |plan| plan.send.max_sge = 2)?;
    let caps = caps(&w);
    // The memory need not exist as such a size: a remote range of 1 TiB at a low IOVA is only
    // checked, and the local side is one page many times over where the device allows.
    let sizes = [u64::from(caps.max_write_size), u64::from(caps.max_read_size), caps.max_msg_size];
    let largest = sizes.into_iter().max().unwrap_or(0);
    let Ok(len) = usize::try_from(largest + 4096) else { return Ok(()) };
    let mem = Memory::new(len)?;
    let cfg = SegmentCfg::new(SegmentAccess::LOCAL_ONLY);
    let seg = w.a.half.ctx.register(mem.region(), &cfg, None)?;
    let mut remote = w.b.half.seg.remote();
    remote.len = largest + 4096;
    let access = SegmentAccess::REMOTE_ALL;
    let import = w.a.half.ctx.import_segment(&remote, access, NO_MAPPING)?;
    let at = urma_core::RemoteAddr { segment: &import, addr: import.va() };
    for (number, size) in sizes.into_iter().enumerate() {
        let half = u32::try_from(size / 2 + 1).unwrap_or(u32::MAX);
        let rest = u32::try_from(size + 1 - u64::from(half)).unwrap_or(u32::MAX);
        let sge = |len| urma_core::LocalSge { segment: &seg, addr: seg.va(), len };
        let sges = [sge(half), sge(rest)];
        let (jetty, kit) = w.a.parts();
        let op = match number {
            0 => SendOp::Write { src: &sges, dst: at },
            1 => SendOp::Read { dst: &sges, src: at },
            _ => SendOp::Send { src: &sges },
        };
        super::writes::is_invalid("one byte more", jetty.post_send(&[kit.wr(op, 1)]))?;
    }
    let ctx = w.a.write(0, 0, 8)?;
    same("status", w.a.sent_ok(ctx)?.status, CrStatus::Success)?;
    let recv = JettyRecv::Own { cfg: JfrCfg::new(setup.mode, 4), jfc: &w.a.half.jfc };
    let cfg = JettyCfg::new(JfsCfg::new(setup.mode, 4), &w.a.half.jfc, recv);
    w.a.half.ctx.create_jetty(&cfg)?.delete()?;
    Ok(())
}
