//! Token policies of segments and queues.

use urma_core::{
    CrStatus, JfrCfg, RemoteAddr, SegmentAccess, SegmentCfg, SendOp, Status, Token, TokenPolicy,
};
use urma_tests::world::{
    Host, Memory, NO_MAPPING, Outcome, Plan, Setup, World, check, pattern, plain_jfc, refused, same,
};

super::behaviours! {
    Good reliable right_token_opens: "With the right token every operation on a guarded segment works.";
    Good any right_jetty_token_opens: "With the right token messages reach a guarded jetty.";
    Good reliable token_zero_is_a_token: "The token 0 guards like any other.";
    Bad reliable wrong_token_is_refused: "With a wrong token every operation ends as access refused and nothing changes.";
    Bad reliable missing_token_is_refused: "Without a token a guarded segment is not reached.";
    Bad reliable wrong_jetty_token_is_refused: "With a wrong token a SEND to a guarded jetty ends in an error and consumes no receive.";
    Bad reliable write_imm_shows_the_jetty_token: "With a wrong jetty token a WRITE_IMM with the right segment token ends as access refused, places nothing and consumes no receive, also after earlier ones were accepted.";
    Bad reliable notify_shows_both_tokens: "A WRITE_NOTIFY whose second segment is shown a wrong token ends as access refused and nothing changes.";
    Bad rm signed_policy_is_unsupported: "The policy SIGNED is refused as unsupported, for segments, queues and imports.";
    Bad rm encrypted_policy_is_unsupported: "The policy ALL_ENCRYPTED is refused as unsupported, for segments, queues and imports.";
    Bad rm_shared_memory mapping_with_wrong_token_is_refused: "Mapping a guarded segment with a wrong token is refused.";
}

const ANY: SegmentAccess = SegmentAccess::REMOTE_ALL;

fn guarded(value: u32) -> impl Fn(&mut Plan) {
    move |plan| plan.policy = TokenPolicy::PlainText(Token::new(value))
}

fn right_token_opens(setup: Setup) -> Outcome {
    let mut w = World::with(setup, guarded(0xdead_beef))?;
    let bytes = pattern(1, 9000);
    w.a.mem().put(0, &bytes)?;
    w.b.mem().poison(4096, bytes.len())?;
    let ctx = w.a.write(0, 4096, bytes.len())?;
    w.a.sent_ok(ctx)?;
    w.b.mem().placed(4096, &bytes)?;
    w.a.mem().poison(65536, bytes.len())?;
    let ctx = w.a.read(4096, 65536, bytes.len())?;
    w.a.sent_ok(ctx)?;
    w.a.mem().placed(65536, &bytes)?;
    let ctx =
        w.a.post(|kit| SendOp::FetchAdd { result: kit.sge(0, 8), target: kit.at(0), value: 5 })?;
    w.a.sent_ok(ctx)?;
    same("the word", w.b.mem().word(0)?, 5)?;
    let recv = w.b.recv(0, 8)?;
    let ctx = w.a.fresh_ctx();
    let (jetty, kit) = w.a.parts();
    let src = [kit.sge(0, 64)];
    jetty.post_send(&[kit.wr(SendOp::WriteImm { src: &src, dst: kit.at(64), imm: 1 }, ctx)])?;
    w.a.sent_ok(ctx)?;
    w.b.received_ok(recv)?;
    w.a.mem().put(0, &bytes)?;
    for number in 0..2 {
        w.b.mem().poison(4096, 64)?;
        let ctx = w.a.fresh_ctx();
        let (jetty, kit) = w.a.parts();
        let (src, dst, notify) = ([kit.sge(0, 64)], kit.at(4096), kit.at(128));
        let op = match number {
            0 => SendOp::WriteNotify { src: &src, dst, notify, data: 5 },
            _ => SendOp::WriteAtomic { src: &src, dst, notify, add: 2 },
        };
        jetty.post_send(&[kit.wr(op, ctx)])?;
        w.a.sent_ok(ctx)?;
        w.b.mem().placed(4096, &bytes[..64])?;
        same("the second word", w.b.mem().word(128)?, [5, 7][number])?;
    }
    Ok(())
}

fn right_jetty_token_opens(setup: Setup) -> Outcome {
    let token = TokenPolicy::PlainText(Token::new(77));
    let mut w = World::with(setup, |plan| plan.recv.policy = token)?;
    super::messages::one_send(&mut w, 1, 100)
}

fn token_zero_is_a_token(setup: Setup) -> Outcome {
    let mut w = World::with(setup, guarded(0))?;
    let ctx = w.a.write(0, 0, 8)?;
    w.a.sent_ok(ctx)?;
    shown(&mut w, TokenPolicy::PlainText(Token::new(1)), |w, at| {
        let (jetty, kit) = w.a.parts();
        let src = [kit.sge(0, 64)];
        Ok(jetty.post_send(&[kit.wr(SendOp::Write { src: &src, dst: at }, 1)])?)
    })
}

/// Does `post` at B's memory as imported with `policy`; it is due to be refused and to leave the
/// bytes alone.
fn shown(
    w: &mut World,
    policy: TokenPolicy,
    post: impl FnOnce(&mut World, RemoteAddr<'_>) -> Outcome,
) -> Outcome {
    let mut remote = w.b.half.seg.remote();
    remote.policy = policy;
    let import = w.a.half.ctx.import_segment(&remote, ANY, NO_MAPPING)?;
    w.b.mem().poison(4096, 64)?;
    w.a.mem().poison(8192, 64)?;
    post(w, RemoteAddr { segment: &import, addr: import.va() + 4096 })?;
    w.a.sent_as(CrStatus::RemAccessAbort)?;
    w.b.mem().untouched(4096, 64)?;
    w.a.mem().untouched(8192, 64)
}

fn each_operation(setup: Setup, policy: TokenPolicy) -> Outcome {
    let (host_a, host_b) = Host::pair(setup)?;
    let mut plan = Plan::new(setup.mode);
    guarded(0x1234_5678)(&mut plan);
    for number in 0..6 {
        let mut w = World::between(setup, &plan, &host_a, &host_b)?;
        w.b.recv(0, 8)?;
        shown(&mut w, policy, |w, at| {
            let (jetty, kit) = w.a.parts();
            let (src, dst) = ([kit.sge(0, 64)], [kit.sge(8192, 64)]);
            let op = match number {
                0 => SendOp::Write { src: &src, dst: at },
                1 => SendOp::Read { dst: &dst, src: at },
                2 => SendOp::WriteImm { src: &src, dst: at, imm: 1 },
                3 => SendOp::WriteNotify { src: &src, dst: at, notify: at, data: 1 },
                4 => SendOp::WriteAtomic { src: &src, dst: at, notify: at, add: 1 },
                _ => SendOp::FetchAdd { result: kit.sge(8192, 8), target: at, value: 1 },
            };
            Ok(jetty.post_send(&[kit.wr(op, 1)])?)
        })
        .map_err(|f| f.during(format!("operation {number}")))?;
        w.b.nothing_received()?;
    }
    Ok(())
}

fn wrong_token_is_refused(setup: Setup) -> Outcome {
    // One bit, at either end.
    each_operation(setup, TokenPolicy::PlainText(Token::new(0x1234_5679)))?;
    each_operation(setup, TokenPolicy::PlainText(Token::new(0x9234_5678)))
}

fn missing_token_is_refused(setup: Setup) -> Outcome {
    each_operation(setup, TokenPolicy::None)
}

/// Imports B's jetty anew, to be shown another token.
fn aim_with(w: &mut World, setup: Setup, token: u32) -> Outcome {
    let mut name = w.b.half.jetty.remote();
    name.policy = TokenPolicy::PlainText(Token::new(token));
    if setup.mode == urma_core::TransportMode::Rc {
        w.a.half.jetty.unbind()?;
        let target = w.a.half.ctx.import_jetty(&name)?;
        w.a.half.jetty.bind(&target)?;
        w.a.target = target;
    } else {
        w.a.target = w.a.half.ctx.import_jetty(&name)?;
    }
    Ok(())
}

fn write_imm_shows_the_jetty_token(setup: Setup) -> Outcome {
    for taken_before in [0, 2] {
        let token = TokenPolicy::PlainText(Token::new(77));
        let mut w = World::with(setup, |plan| plan.recv.policy = token)?;
        w.a.mem().put(0, &pattern(1, 3000))?;
        for _ in 0..taken_before {
            let recv = w.b.recv(0, 8)?;
            write_imm(&mut w, 8192)?;
            w.a.sent()?;
            w.b.received_ok(recv)?;
        }
        aim_with(&mut w, setup, 78)?;
        w.b.recv(0, 8)?;
        w.b.mem().poison(65536, 3000)?;
        write_imm(&mut w, 65536)?;
        w.a.sent_as(CrStatus::RemAccessAbort)?;
        w.b.nothing_received()?;
        w.b.mem().untouched(65536, 3000)?;
        w.b.receives_left(setup, 1)?;
    }
    Ok(())
}

/// 3000 bytes with an immediate, under tokens as they were imported.
fn write_imm(w: &mut World, at: usize) -> Outcome {
    let ctx = w.a.fresh_ctx();
    let (jetty, kit) = w.a.parts();
    let src = [kit.sge(0, 3000)];
    let op = SendOp::WriteImm { src: &src, dst: kit.at(at), imm: 1 };
    Ok(jetty.post_send(&[kit.wr(op, ctx)])?)
}

fn notify_shows_both_tokens(setup: Setup) -> Outcome {
    let mut w = World::with(setup, guarded(0x1234_5678))?;
    w.b.mem().poison(65536, 64)?;
    shown(&mut w, TokenPolicy::PlainText(Token::new(0x1234_5679)), |w, wrong| {
        let (jetty, kit) = w.a.parts();
        let src = [kit.sge(0, 64)];
        let op = SendOp::WriteNotify { src: &src, dst: kit.at(65536), notify: wrong, data: 1 };
        Ok(jetty.post_send(&[kit.wr(op, 1)])?)
    })?;
    w.b.mem().untouched(65536, 64)
}

fn wrong_jetty_token_is_refused(setup: Setup) -> Outcome {
    let token = TokenPolicy::PlainText(Token::new(77));
    let mut w = World::with(setup, |plan| plan.recv.policy = token)?;
    aim_with(&mut w, setup, 78)?;
    w.b.mem().poison(0, 64)?;
    w.b.recv(0, 64)?;
    w.a.send(0, 64)?;
    let done = w.a.sent()?;
    check(
        matches!(done.status, CrStatus::RemAccessAbort | CrStatus::RemUnsupportedReq),
        format!("{:?}", done.status),
    )?;
    w.b.nothing_received()?;
    w.b.mem().untouched(0, 64)?;
    w.b.receives_left(setup, 1)
}

fn unsupported(setup: Setup, policy: TokenPolicy) -> Outcome {
    let w = World::new(setup)?;
    let (a, b) = (&w.a.half, &w.b.half);
    let mem = Memory::new(4096)?;
    let cfg = SegmentCfg { policy, ..SegmentCfg::new(ANY) };
    refused("a segment", b.ctx.register(mem.region(), &cfg, None), Status::Unsupported)?;
    let jfc = plain_jfc(&b.ctx, 8)?;
    let cfg = JfrCfg { policy, ..JfrCfg::new(setup.mode, 4) };
    refused("a JFR", b.ctx.create_jfr(&cfg, &jfc), Status::Unsupported)?;
    let mut remote = b.seg.remote();
    remote.policy = policy;
    let import = a.ctx.import_segment(&remote, ANY, NO_MAPPING);
    refused("a segment's import", import, Status::Unsupported)?;
    let mut remote = b.jetty.remote();
    remote.policy = policy;
    refused("a jetty's import", a.ctx.import_jetty(&remote), Status::Unsupported)
}

fn signed_policy_is_unsupported(setup: Setup) -> Outcome {
    unsupported(setup, TokenPolicy::Signed(Token::new(1)))
}

fn encrypted_policy_is_unsupported(setup: Setup) -> Outcome {
    unsupported(setup, TokenPolicy::AllEncrypted(Token::new(1)))
}

fn mapping_with_wrong_token_is_refused(setup: Setup) -> Outcome {
    let w = World::with(setup, guarded(0x1234_5678))?;
    let mut remote = w.b.half.seg.remote();
    let map = urma_core::Mapping::LoadStore;
    w.a.half.ctx.import_segment(&remote, ANY, map)?.unimport();
    remote.policy = TokenPolicy::PlainText(Token::new(0x1234_5679));
    refused("a mapping", w.a.half.ctx.import_segment(&remote, ANY, map), Status::NoPermission)
}
