//! What is sent between two ends, and that each byte of it arrives.

use std::net::IpAddr;

use ubcore_sim::{
    host::{ip_eid, peer::PathChoice},
    node::NodeCfg,
};
use urma_core::SendOp;
use urma_net::{Host as LabHost, Lab};
use urma_tests::world::{Host, Outcome, World, cfg, pattern, same};

pub(crate) use crate::ends::{SETUP, between, opened};

/// A node at the first address of a host.
pub(crate) fn node(host: &LabHost) -> Outcome<Host> {
    host.run(|| node_at(host.address()))
}

/// A node at an address of the calling thread's host.
pub(crate) fn node_at(address: IpAddr) -> Outcome<Host> {
    let eid = Some(ip_eid(address));
    Host::open_as(SETUP, NodeCfg { eid, path: PathChoice::Auto, ..cfg(SETUP) })
}

/// Ends on two hosts, with segments of `len` bytes.
pub(crate) fn world(lab: &Lab, len: usize) -> Outcome<World> {
    between(&node(lab.host(0))?, &node(lab.host(1))?, len)
}

/// A WRITE, a READ and a SEND of `len` bytes, each checked with the bytes around it. The ends need
/// segments of `2 * len` bytes and a page.
pub(crate) fn moved(w: &mut World, len: usize) -> Outcome {
    let (from, to) = (64, len + 512);
    let bytes = pattern(len as u64 + 1, len);
    w.a.mem().put(from, &bytes)?;
    w.b.mem().poison(to, len)?;
    let ctx = w.a.write(from, to, len)?;
    w.a.sent_ok(ctx)?;
    w.b.mem().placed(to, &bytes).map_err(|failure| failure.during(format!("WRITE of {len}")))?;
    w.a.mem().poison(to, len)?;
    let ctx = w.a.read(to, to, len)?;
    w.a.sent_ok(ctx)?;
    w.a.mem().placed(to, &bytes).map_err(|failure| failure.during(format!("READ of {len}")))?;
    w.b.mem().poison(to, len)?;
    let (received, sent) = (w.b.recv(to, len)?, w.a.send(from, len)?);
    w.a.sent_ok(sent)?;
    let message = w.b.received_ok(received)?;
    same("bytes of the message", message.len as usize, len)?;
    w.b.mem().placed(to, &bytes).map_err(|failure| failure.during(format!("SEND of {len}")))
}

/// Atomics on one word, each checked by its old and new value.
pub(crate) fn atomics(w: &mut World) -> Outcome {
    w.b.mem().put(4096, &5_u64.to_le_bytes())?;
    let ctx =
        w.a.post(|kit| SendOp::FetchAdd { result: kit.sge(0, 8), target: kit.at(4096), value: 7 })?;
    w.a.sent_ok(ctx)?;
    same("value before FADD", w.a.mem().word(0)?, 5)?;
    let ctx = w.a.post(|kit| SendOp::Cas {
        result: kit.sge(8, 8),
        target: kit.at(4096),
        compare: 12,
        swap: 99,
    })?;
    w.a.sent_ok(ctx)?;
    same("value before CAS", w.a.mem().word(8)?, 12)?;
    same("value after both", w.b.mem().word(4096)?, 99)
}
