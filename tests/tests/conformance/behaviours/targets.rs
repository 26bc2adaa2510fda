//! Targets: import, bind, advise, modes, orders.

use urma_core::{
    CrStatus, Eid, JettyCfg, JettyRecv, JettyState, JfrCfg, JfsCfg, LocalSge, OrderType,
    PostReason, SegmentAccess, SendOp, SendWr, Status, StatusKind, TpType, TransportMode, WrFlags,
};
use urma_tests::world::{
    End, Host, Kit, Link, NO_MAPPING, Outcome, Plan, Setup, World, check, fail, pattern, plain_jfc,
    refused, same,
};

super::behaviours! {
    Good rc rc_post_without_target: "A bound RC jetty needs no target in its requests.";
    Good rc rc_unbound_may_be_bound_again: "After unbind an RC jetty can be bound to another.";
    Good rc rc_stays_bound_after_unimport: "A binding outlives the import of its target.";
    Good reliable posted_requests_outlive_unimport: "Requests posted before their target is unimported go on, those of a suspended jetty too.";
    Good rm advise_and_unadvise: "An RM jetty and a JFS take advice about an RM target.";
    Good rm one_jetty_many_targets: "An RM jetty sends to several targets without mixing them.";
    Good rm import_twice: "A target may be imported twice and is reached through both.";
    Bad reliable unknown_jetty: "A SEND to a queue id that is not in use ends in an error.";
    Bad reliable deleted_target: "A SEND to a deleted jetty ends in an error.";
    Bad rc rc_unbound_post_is_refused: "Posting on an RC jetty that is not bound is refused.";
    Bad rc rc_bind_twice_is_refused: "Binding a bound RC jetty is refused as existing.";
    Bad rc rc_unbind_of_unbound_is_refused: "Unbinding a jetty that is not bound is refused.";
    Bad rc rc_other_target_is_refused: "A bound RC jetty refuses requests to another target.";
    Bad rm bind_needs_rc: "Binding an RM jetty, or to an RM target, is refused as not permitted.";
    Bad rc bind_needs_equal_order: "Binding two RC jetties of different order types is refused as not permitted.";
    Bad rc rc_needs_a_jetty: "A JFS in the mode RC is refused, a JFR serves jetties only: nothing else can be bound.";
    Bad rc advise_needs_rm: "Advising an RC jetty is refused.";
    Bad any mode_of_target_must_fit: "A request to a target of another transport mode is refused by post.";
    Bad rm order_type_must_fit: "Queues and imports of an order type that does not fit the mode are refused.";
    Bad any path_type_must_fit: "Imports of a path type that does not fit the mode are refused.";
    Bad rm zero_eid_is_refused: "Importing from the EID zero, and a queue id of zero, is refused.";
    Bad rm_two_nodes no_node_at_the_eid: "Importing from an EID that no node has ends within the retry bound.";
    Bad rm_two_nodes segment_of_another_node_is_refused: "A request whose segment lies on another node than its target is refused by post.";
}

fn rc_post_without_target(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    let bytes = pattern(1, 64);
    w.a.mem().put(0, &bytes)?;
    w.b.mem().poison(4096, 64)?;
    let (jetty, kit) = w.a.parts();
    let src = [kit.sge(0, 64)];
    let wr = kit.wr(SendOp::Write { src: &src, dst: kit.at(4096) }, 1);
    jetty.post_send(&[SendWr { target: None, ..wr }])?;
    w.a.sent_ok(1)?;
    w.b.mem().placed(4096, &bytes)
}

fn rc_unbound_may_be_bound_again(setup: Setup) -> Outcome {
    let (host_a, host_b) = Host::pair(setup)?;
    let plan = Plan::new(setup.mode);
    let mut w = World::between(setup, &plan, &host_a, &host_b)?;
    let mut other = World::between(setup, &plan, &host_a, &host_b)?;
    super::messages::one_send(&mut w, 1, 64)?;
    super::messages::one_send(&mut other, 2, 64)?;
    for round in 0..3 {
        // Both connections change their far end.
        for end in [&mut w.a, &mut w.b, &mut other.a, &mut other.b] {
            end.half.jetty.unbind()?;
        }
        std::mem::swap(&mut w.b, &mut other.b);
        for pair in [&mut w, &mut other] {
            pair.a.target = pair.a.half.ctx.import_jetty(&pair.b.half.jetty.remote())?;
            pair.b.target = pair.b.half.ctx.import_jetty(&pair.a.half.jetty.remote())?;
            pair.a.half.jetty.bind(&pair.a.target)?;
            pair.b.half.jetty.bind(&pair.b.target)?;
        }
        let spare = other.b.recv(0, 64)?;
        super::messages::one_send(&mut w, round + 3, 64)?;
        other.b.nothing_received()?;
        // Without a target in the request, too.
        let recv = w.b.recv(0, 64)?;
        let (jetty, kit) = w.a.parts();
        let src = [kit.sge(0, 64)];
        let wr = kit.wr(SendOp::Send { src: &src }, 7);
        jetty.post_send(&[SendWr { target: None, ..wr }])?;
        w.a.sent_ok(7)?;
        w.b.received_ok(recv)?;
        let ctx = other.a.send(0, 64)?;
        other.b.received_ok(spare)?;
        other.a.sent_ok(ctx)?;
    }
    Ok(())
}

fn rc_stays_bound_after_unimport(setup: Setup) -> Outcome {
    let World { a, mut b, .. } = World::new(setup)?;
    let End { target, remote, mut half, .. } = a;
    // The only import of the target.
    target.unimport();
    drop(remote);
    let bytes = pattern(1, 64);
    half.mem.put(0, &bytes)?;
    for round in 0..3 {
        b.mem().poison(4096, 64)?;
        let recv = b.recv(4096, 64)?;
        let src = [LocalSge { segment: &half.seg, addr: half.seg.va(), len: 64 }];
        let wr = SendWr::new(SendOp::Send { src: &src }, &b.target, round);
        half.jetty.post_send(&[SendWr { target: None, ..wr }])?;
        b.received_ok(recv)?;
        let done = urma_tests::world::next(&mut half.jfc, "completion")?;
        same("completion", (done.status, done.user_ctx), (CrStatus::Success, round))?;
        b.mem().placed(4096, &bytes)?;
    }
    Ok(())
}

fn posted_requests_outlive_unimport(setup: Setup) -> Outcome {
    let World { a, b, .. } = World::new(setup)?;
    let (name, memory) = (b.half.jetty.remote(), b.half.seg.remote());
    let End { mut target, mut remote, mut half, .. } = a;
    for round in 0..3u8 {
        half.jetty.modify(JettyState::Suspended)?;
        let bytes = pattern(u64::from(round), 64);
        half.mem.put(0, &bytes)?;
        b.mem().poison(4096, 64)?;
        b.mem().poison(8192, 64)?;
        let kit = Kit { seg: &half.seg, remote: &remote, target: &target };
        let src = [kit.sge(0, 64)];
        for user_ctx in 1..=2 {
            let op = SendOp::Write { src: &src, dst: kit.at(4096 * user_ctx) };
            half.jetty.post_send(&[kit.wr(op, user_ctx as u64)])?;
        }
        // The last users of the path to the node.
        target.unimport();
        drop(remote);
        half.jetty.modify(JettyState::Ready)?;
        for user_ctx in 1..=2 {
            let done = loop {
                let done = urma_tests::world::next(&mut half.jfc, "completion")?;
                if done.status != CrStatus::WrSuspendDone {
                    break done;
                }
            };
            same("completion", (done.status, done.user_ctx), (CrStatus::Success, user_ctx))?;
        }
        b.mem().placed(4096, &bytes)?;
        b.mem().placed(8192, &bytes)?;
        target = half.ctx.import_jetty(&name)?;
        remote = half.ctx.import_segment(&memory, SegmentAccess::REMOTE_ALL, NO_MAPPING)?;
    }
    Ok(())
}

fn advise_and_unadvise(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    w.a.half.jetty.advise(&w.a.target)?;
    let jfc = plain_jfc(&w.a.half.ctx, 8)?;
    let jfs = w.a.half.ctx.create_jfs(&JfsCfg::new(setup.mode, 4), &jfc)?;
    jfs.advise(&w.a.target)?;
    super::messages::one_send(&mut w, 1, 64)?;
    jfs.unadvise(&w.a.target)?;
    w.a.half.jetty.unadvise(&w.a.target)?;
    super::messages::one_send(&mut w, 1, 64)
}

fn one_jetty_many_targets(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    let mut jfc = plain_jfc(&w.b.half.ctx, 64)?;
    let mut jetties = Vec::new();
    for _ in 0..4 {
        let mut jetty = super::queues::small_jetty(&w, 0, &jfc)?;
        for _ in 0..4 {
            jetty.post_recv(&[urma_core::RecvWr { dst: &[], user_ctx: 0 }])?;
        }
        let target = w.a.half.ctx.import_jetty(&jetty.remote())?;
        jetties.push((jetty, target));
    }
    for _ in 0..4 {
        for (jetty, target) in &jetties {
            let (mine, _) = w.a.parts();
            mine.post_send(&[SendWr::new(SendOp::SendImm { src: &[], imm: 3 }, target, 1)])?;
            w.a.sent_ok(1)?;
            let done = urma_tests::world::next(&mut jfc, "receive completion")?;
            same("receive", (done.status, done.local_id), (CrStatus::Success, jetty.id().id))?;
        }
    }
    Ok(())
}

fn import_twice(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    let name = w.b.half.jetty.remote();
    let second = w.a.half.ctx.import_jetty(&name)?;
    super::messages::one_send(&mut w, 1, 64)?;
    let first = std::mem::replace(&mut w.a.target, second);
    super::messages::one_send(&mut w, 2, 64)?;
    first.unimport();
    super::messages::one_send(&mut w, 3, 64)
}

/// Points A's jetty at another queue of B.
fn point_at(w: &mut World, id: u32) -> Outcome {
    let mut name = w.b.half.jetty.remote();
    name.id.id = id;
    let target = w.a.half.ctx.import_jetty(&name)?;
    if w.setup.mode == TransportMode::Rc {
        w.a.half.jetty.unbind()?;
        w.a.half.jetty.bind(&target)?;
    }
    w.a.target = target;
    Ok(())
}

fn ends_in_remote_error(w: &mut World) -> Outcome {
    w.a.send(0, 8)?;
    let done = w.a.sent()?;
    check(
        matches!(done.status, CrStatus::RemUnsupportedReq | CrStatus::RemOperation),
        format!("the send ended in {:?}", done.status),
    )
}

fn unknown_jetty(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    point_at(&mut w, 999_999)?;
    ends_in_remote_error(&mut w)
}

fn deleted_target(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    let jfc = plain_jfc(&w.b.half.ctx, 8)?;
    let jetty = super::queues::small_jetty(&w, 0, &jfc)?;
    let id = jetty.id().id;
    point_at(&mut w, id)?;
    jetty.delete()?;
    ends_in_remote_error(&mut w)
}

fn rc_unbound_post_is_refused(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    w.a.half.jetty.unbind()?;
    let seen = w.a.try_send(WrFlags::COMPLETE, 0, 8).map(|_| ());
    super::writes::is_invalid("a send", seen)?;
    let (jetty, kit) = w.a.parts();
    let src = [kit.sge(0, 8)];
    let wr = SendWr { target: None, ..kit.wr(SendOp::Send { src: &src }, 1) };
    super::writes::is_invalid("a send without target", jetty.post_send(&[wr]))?;
    w.a.nothing_sent()
}

fn rc_bind_twice_is_refused(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    refused("a second bind", w.a.half.jetty.bind(&w.a.target), Status::Exists)?;
    super::messages::one_send(&mut w, 1, 64)
}

fn rc_unbind_of_unbound_is_refused(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    w.a.half.jetty.unbind()?;
    refused("a second unbind", w.a.half.jetty.unbind(), Status::Invalid)
}

fn rc_other_target_is_refused(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    let name = w.b.half.jetty.remote();
    let mut others = vec![name; 2];
    others[0].id.id += 1;
    // The same number at another node.
    others[1].id.eid = w.a.half.ctx.eid();
    others.truncate(if setup.link == Link::Own { 1 } else { 2 });
    for name in others {
        let other = w.a.half.ctx.import_jetty(&name)?;
        let (jetty, kit) = w.a.parts();
        let src = [kit.sge(0, 8)];
        let seen = jetty.post_send(&[SendWr::new(SendOp::Send { src: &src }, &other, 1)]);
        super::writes::is_invalid("a send to another target", seen)?;
    }
    w.a.nothing_sent()
}

fn bind_needs_rc(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    refused("a bind of RM", w.a.half.jetty.bind(&w.a.target), Status::NoPermission)?;
    let jfc = plain_jfc(&w.a.half.ctx, 8)?;
    let recv = JettyRecv::Own { cfg: JfrCfg::new(TransportMode::Rc, 4), jfc: &jfc };
    let cfg = JettyCfg::new(JfsCfg::new(TransportMode::Rc, 4), &jfc, recv);
    let mut jetty = w.a.half.ctx.create_jetty(&cfg)?;
    refused("a bind to RM", jetty.bind(&w.a.target), Status::NoPermission)
}

fn bind_needs_equal_order(setup: Setup) -> Outcome {
    let w = World::new(setup)?;
    let jfc = plain_jfc(&w.a.half.ctx, 8)?;
    let order = OrderType::No;
    let cfg = JfrCfg { order, ..JfrCfg::new(setup.mode, 4) };
    let recv = JettyRecv::Own { cfg, jfc: &jfc };
    let send = JfsCfg { order, ..JfsCfg::new(setup.mode, 4) };
    let mut jetty = w.a.half.ctx.create_jetty(&JettyCfg::new(send, &jfc, recv))?;
    refused("a bind", jetty.bind(&w.a.target), Status::NoPermission)
}

fn rc_needs_a_jetty(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    let jfc = plain_jfc(&w.a.half.ctx, 8)?;
    let jfs = w.a.half.ctx.create_jfs(&JfsCfg::new(setup.mode, 4), &jfc);
    refused("a JFS", jfs, Status::Invalid)?;
    let jfr = w.b.half.ctx.create_jfr(&JfrCfg::new(setup.mode, 4), &w.b.half.jfc)?;
    let target = w.a.half.ctx.import_jetty(&jfr.remote())?;
    w.a.half.jetty.unbind()?;
    refused("a bind to a JFR", w.a.half.jetty.bind(&target), Status::Invalid)
}

fn advise_needs_rm(setup: Setup) -> Outcome {
    let w = World::new(setup)?;
    refused("advice", w.a.half.jetty.advise(&w.a.target), Status::Invalid)?;
    refused("unadvice", w.a.half.jetty.unadvise(&w.a.target), Status::Invalid)
}

fn mode_of_target_must_fit(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    for mode in [TransportMode::Rm, TransportMode::Rc, TransportMode::Um] {
        if mode == setup.mode {
            continue;
        }
        let mut name = w.b.half.jetty.remote();
        (name.mode, name.order, name.tp) = (mode, OrderType::Default, TpType::of(mode));
        let target = w.a.half.ctx.import_jetty(&name)?;
        let (jetty, kit) = w.a.parts();
        let src = [kit.sge(0, 8)];
        let seen = jetty.post_send(&[SendWr::new(SendOp::Send { src: &src }, &target, 1)]);
        let reason = seen.map_err(|error| error.reason);
        same(&format!("answer for {mode:?}"), reason, Err(PostReason::Mode))?;
    }
    w.a.nothing_sent()
}

fn order_type_must_fit(setup: Setup) -> Outcome {
    use OrderType as O;
    use TransportMode as M;
    let w = World::new(setup)?;
    let jfc = plain_jfc(&w.a.half.ctx, 8)?;
    for mode in [M::Rm, M::Rc, M::Um] {
        for order in [O::Default, O::Ot, O::Oi, O::Ol, O::No] {
            let fits = match mode {
                M::Rm => matches!(order, O::Default | O::Oi),
                M::Rc => order != O::Oi,
                M::Um => matches!(order, O::Default | O::No),
            };
            let step = format!("{mode:?} with {order:?}");
            let jfs = JfsCfg { order, ..JfsCfg::new(mode, 4) };
            let jfr = JfrCfg { order, ..JfrCfg::new(mode, 4) };
            let recv = JettyRecv::Own { cfg: jfr, jfc: &jfc };
            let jetty = w.a.half.ctx.create_jetty(&JettyCfg::new(jfs, &jfc, recv));
            let mut name = w.b.half.jetty.remote();
            (name.mode, name.order, name.tp) = (mode, order, TpType::of(mode));
            let target = w.a.half.ctx.import_jetty(&name);
            if fits {
                check(jetty.is_ok() && target.is_ok(), format!("{step} is refused"))?;
            } else {
                refused(&step, jetty, Status::Invalid)?;
                refused(&step, target, Status::Invalid)?;
            }
        }
    }
    Ok(())
}

fn path_type_must_fit(setup: Setup) -> Outcome {
    let w = World::new(setup)?;
    let mut name = w.b.half.jetty.remote();
    name.tp = match setup.mode {
        TransportMode::Um => TpType::Rtp,
        TransportMode::Rm | TransportMode::Rc => TpType::Utp,
    };
    refused("the other path type", w.a.half.ctx.import_jetty(&name), Status::Invalid)?;
    let has = w.a.half.ctx.attr().caps.features.contains(urma_core::DeviceFeatures::CTP);
    name.tp = TpType::Ctp;
    if has {
        return Ok(());
    }
    refused("a compact path", w.a.half.ctx.import_jetty(&name), Status::Unsupported)
}

fn zero_eid_is_refused(setup: Setup) -> Outcome {
    let w = World::new(setup)?;
    let mut name = w.b.half.jetty.remote();
    name.id.eid = Eid::default();
    refused("the EID zero", w.a.half.ctx.import_jetty(&name), Status::Invalid)?;
    let mut name = w.b.half.jetty.remote();
    name.id.id = 0;
    refused("queue 0", w.a.half.ctx.import_jetty(&name), Status::Invalid)
}

fn no_node_at_the_eid(setup: Setup) -> Outcome {
    let w = World::new(setup)?;
    let mut name = w.b.half.jetty.remote();
    // 127.0.0.0/16 is never picked by a node of its own accord.
    name.id.eid = "127.0.77.77".parse().map_err(|_| "an address".to_owned())?;
    match w.a.half.ctx.import_jetty(&name) {
        Err(status) if matches!(status.kind(), StatusKind::TimedOut | StatusKind::Unreachable) => {
            Ok(())
        }
        other => fail(format!("the import ended in {:?}", other.map(|_| ()))),
    }
}

fn segment_of_another_node_is_refused(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    let own = w.a.half.seg.remote();
    let access = SegmentAccess::REMOTE_ALL;
    let own = w.a.half.ctx.import_segment(&own, access, NO_MAPPING)?;
    let (jetty, kit) = w.a.parts();
    let src = [kit.sge(0, 8)];
    let dst = urma_core::RemoteAddr { segment: &own, addr: own.va() };
    let seen = jetty.post_send(&[kit.wr(SendOp::Write { src: &src, dst }, 1)]);
    super::writes::is_invalid("a write", seen)
}
