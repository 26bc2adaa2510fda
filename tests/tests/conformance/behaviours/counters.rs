//! Counters: which path carried what, and what was refused.

use urma_core::{CrStatus, RemoteAddr, SegmentAccess, SendOp, Token, TokenPolicy};
use urma_tests::world::{Link, Moving, NO_MAPPING, Outcome, Setup, World, check, same};

super::behaviours! {
    Good reliable counters_name_the_path_of_writes: "The counters show that WRITEs used the path of the setup.";
    Good reliable counters_name_the_path_of_reads: "The counters show that READs used the path of the setup.";
    Good reliable counters_name_the_path_of_sends: "The counters show that SENDs used the path of the setup.";
    Good reliable counters_count_completions: "The counter of completions grows by one for each.";
    Bad reliable counters_count_refused_requests: "A request refused for its token, range or access is counted once by the device of its queue, and over packets once by the owner.";
}

/// Requests and bytes by path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Paths {
    direct: u64,
    kernel: u64,
    ring: u64,
    packets: u64,
}

fn paths(w: &World) -> Outcome<Paths> {
    Ok(Paths {
        direct: w.a.counter("direct_requests")?,
        kernel: w.a.counter("kernel_requests")?,
        ring: w.a.counter("ring_requests")?,
        packets: w.a.counter("packet_requests")?,
    })
}

fn since(w: &World, before: Paths) -> Outcome<Paths> {
    let now = paths(w)?;
    Ok(Paths {
        direct: now.direct - before.direct,
        kernel: now.kernel - before.kernel,
        ring: now.ring - before.ring,
        packets: now.packets - before.packets,
    })
}

fn counters_name_the_path_of_writes(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    let (before, bytes) = (paths(&w)?, w.a.counter("direct_bytes")?);
    for _ in 0..10 {
        let ctx = w.a.write(0, 4096, 100)?;
        w.a.sent_ok(ctx)?;
    }
    let seen = since(&w, before)?;
    let step = format!("{seen:?}");
    match (setup.link, setup.moving) {
        (Link::Own, _) => same("requests by packets", seen.packets, 0),
        (Link::Host, Moving::On | Moving::Files) => {
            same("requests", seen, Paths { direct: 10, kernel: 0, ring: 0, packets: 0 })?;
            same("direct bytes", w.a.counter("direct_bytes")? - bytes, 1000)
        }
        // Not shareable: a WRITE never goes through the kernel.
        (Link::Host, Moving::Off | Moving::Kernel) => {
            same("requests", seen, Paths { direct: 0, kernel: 0, ring: 10, packets: 0 })
        }
        (Link::Packets, _) => check(seen.packets == 10 && seen.direct + seen.ring == 0, step),
    }
}

fn counters_name_the_path_of_reads(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    let before = paths(&w)?;
    for _ in 0..10 {
        let ctx = w.a.read(0, 4096, 100)?;
        w.a.sent_ok(ctx)?;
    }
    let seen = since(&w, before)?;
    let step = format!("{seen:?}");
    let none = Paths { direct: 0, kernel: 0, ring: 0, packets: 0 };
    match (setup.link, setup.moving) {
        (Link::Own, _) => same("requests by packets", seen.packets, 0),
        (Link::Host, Moving::On | Moving::Files) => {
            same("requests", seen, Paths { direct: 10, ..none })
        }
        (Link::Host, Moving::Off) => same("requests", seen, Paths { ring: 10, ..none }),
        (Link::Host, Moving::Kernel) => same("requests", seen, Paths { kernel: 10, ..none }),
        (Link::Packets, _) => check(seen.packets == 10, step),
    }
}

fn counters_name_the_path_of_sends(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    let before = paths(&w)?;
    for _ in 0..10 {
        w.b.recv(0, 100)?;
        let ctx = w.a.send(0, 100)?;
        w.a.sent_ok(ctx)?;
        w.b.received_as(CrStatus::Success)?;
    }
    let seen = since(&w, before)?;
    let step = format!("{seen:?}");
    match setup.link {
        Link::Own => same("requests by packets", seen.packets, 0),
        Link::Host => check(seen.ring == 10 && seen.direct + seen.packets == 0, step),
        Link::Packets => check(seen.packets == 10 && seen.direct + seen.ring == 0, step),
    }
}

fn counters_count_completions(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    let before = w.a.counter("completions")?;
    for _ in 0..25 {
        let ctx = w.a.post(|_| SendOp::Nop)?;
        w.a.sent_ok(ctx)?;
    }
    same("completions", w.a.counter("completions")? - before, 25)
}

fn counters_count_refused_requests(setup: Setup) -> Outcome {
    for (reason, access) in [
        ("token", SegmentAccess::REMOTE_ALL),
        ("range", SegmentAccess::REMOTE_ALL),
        ("access", SegmentAccess::READ),
    ] {
        let mut w = World::with(setup, |plan| {
            plan.access = access;
            plan.policy = TokenPolicy::PlainText(Token::new(4));
        })?;
        let (at_a, at_b) = (w.a.counter("access_denied")?, w.b.counter("access_denied")?);
        let mut remote = w.b.half.seg.remote();
        let mut addr = remote.ubva.va;
        match reason {
            "token" => remote.policy = TokenPolicy::PlainText(Token::new(5)),
            "range" => {
                addr += remote.len;
                remote.len += 4096;
            }
            _ => {}
        }
        let import = w.a.half.ctx.import_segment(&remote, SegmentAccess::REMOTE_ALL, NO_MAPPING)?;
        let (jetty, kit) = w.a.parts();
        let src = [kit.sge(0, 8)];
        let dst = RemoteAddr { segment: &import, addr };
        jetty.post_send(&[kit.wr(SendOp::Write { src: &src, dst }, 1)])?;
        w.a.sent_as(CrStatus::RemAccessAbort).map_err(|f| f.during(reason))?;
        let a = w.a.counter("access_denied")? - at_a;
        let b = w.b.counter("access_denied")? - at_b;
        // On one host the initiator's device checks for the owner.
        let due = if setup.link == Link::Host { (1, 0) } else { (1, 1) };
        same(&format!("requests refused for their {reason} at A and B"), (a, b), due)?;
    }
    Ok(())
}
