//! Requests that need the peer: from a send queue's mail to its end, and the other node's side.
//!
//! *Owns*: peers, carriers, requests under way, receive queues. *Takes*: mail, pieces, time.
//! *Gives*: ends, pieces, receive completions. *Must not*: touch a send queue but by its mail.
//!
//! Everything here runs under the device's one `Serial<Shared>`; `dev` gives tables, ports, counters
//! and `dev.wake_send(now, id)`, which lets a send queue take its ends.

use std::collections::BTreeMap;
use std::sync::Arc;

use udma_abi::{
    CmdStatus, Nanos, RawEid,
    cmd::{Mode, Path, QueueState},
};
use urma_mem::Region;

use crate::context::jfc::JfcPort;
use crate::context::link::{DirectParts, Link, Reach};
use crate::device::{Device, DeviceCfg};
use crate::engine::mail::Mail;
use crate::ports::{Deadline, HostRequest, NodeAddr, SameHostParts, Transmit};

/// The sending side of a queue.
#[derive(Clone, Debug)]
#[expect(dead_code, reason = "the requester reads them")]
pub(crate) struct SendSide {
    pub(crate) id: u32,
    pub(crate) is_jetty: bool,
    pub(crate) mode: Mode,
    pub(crate) mail: Arc<Mail>,
    pub(crate) rnr_retry: u8,
    /// Code: 4.096 us << n.
    pub(crate) err_timeout: u8,
}

/// The receiving side of a queue with a ring of its own (JFR, or jetty).
#[derive(Clone, Debug)]
#[expect(dead_code, reason = "the responder reads them")]
pub(crate) struct RecvSide {
    pub(crate) id: u32,
    pub(crate) is_jetty: bool,
    pub(crate) mode: Mode,
    pub(crate) cookie: u64,
    pub(crate) ring: Region,
    pub(crate) depth_log2: u8,
    pub(crate) max_sge: u8,
    pub(crate) record: Region,
    pub(crate) port: JfcPort,
    /// Code of the IB RNR timer table.
    pub(crate) min_rnr_timer: u8,
    pub(crate) token: Option<u32>,
}

/// The receiving side of a jetty that takes its receives from a shared JFR.
#[derive(Clone, Debug)]
#[expect(dead_code, reason = "the responder reads them")]
pub(crate) struct SharedSide {
    pub(crate) id: u32,
    pub(crate) mode: Mode,
    pub(crate) cookie: u64,
    pub(crate) jfr: u32,
    /// Its own JFC; `None`: that of the JFR.
    pub(crate) port: Option<JfcPort>,
    pub(crate) token: Option<u32>,
}

/// How a connection stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Connecting {
    /// Ask again after the next step.
    Pending,
    /// A way; it counts one more user.
    Ready {
        /// Its number.
        tpn: u32,
        /// What carries it.
        path: Path,
    },
    /// None.
    Failed(CmdStatus),
}

/// All of it.
#[derive(Debug)]
pub(crate) struct Exchange {
    own: RawEid,
    next_tpn: u32,
    /// What is known of each node.
    nodes: BTreeMap<RawEid, Node>,
    /// Users of each way.
    ways: BTreeMap<u32, u32>,
}

#[derive(Debug, Default)]
struct Node {
    asked: bool,
    refused: Option<CmdStatus>,
    parts: Option<SameHostParts>,
    /// Ways by reliability.
    tpn: [Option<u32>; 2],
}

impl Exchange {
    pub(crate) fn new(cfg: &DeviceCfg) -> Self {
        Self { own: cfg.eid, next_tpn: 1, nodes: BTreeMap::new(), ways: BTreeMap::new() }
    }

    // Queues.

    pub(crate) fn add_send(&mut self, _side: SendSide) {}

    /// The queue is gone: forget its requests without an end.
    pub(crate) fn remove_send(&mut self, _id: u32) {}

    pub(crate) fn add_recv(&mut self, _side: RecvSide) {}

    pub(crate) fn add_shared(&mut self, _side: SharedSide) {}

    /// Either kind of receiving side is gone; its receives were flushed before.
    pub(crate) fn remove_recv(&mut self, _id: u32) {}

    /// The receiving side changes state: ERROR flushes posted receives (also those posted later).
    pub(crate) fn set_recv_state(&mut self, _dev: &Device, _id: u32, _state: QueueState) {}

    /// No posted receive waits for its completion any more (flush of an ERROR state done).
    pub(crate) fn is_recv_flushed(&self, _id: u32) -> bool {
        true
    }

    pub(crate) fn recv_state(&self, _id: u32) -> Option<QueueState> {
        None
    }

    /// Forgets everything.
    pub(crate) fn reset(&mut self, _dev: &Device) {}

    /// `false`: no such receive ring.
    pub(crate) fn set_threshold(&mut self, _id: u32, _threshold: u32) -> bool {
        false
    }

    pub(crate) fn receives_left(&self, _id: u32) -> Option<u32> {
        None
    }

    pub(crate) fn add_group(&mut self, _id: u32, _by_hint: bool, _token: Option<u32>) {}

    pub(crate) fn remove_group(&mut self, _id: u32) {}

    pub(crate) fn join(&mut self, _group: u32, _jetty: u32) {}

    pub(crate) fn leave(&mut self, _group: u32, _jetty: u32) {}

    // Ways.

    /// Called again for each step while pending.
    pub(crate) fn connect(
        &mut self,
        dev: &Device,
        _now: Nanos,
        eid: RawEid,
        unreliable: bool,
    ) -> Connecting {
        let own = eid == self.own;
        let node = self.nodes.entry(eid).or_default();
        if let Some(status) = node.refused.take() {
            node.asked = false;
            return Connecting::Failed(status);
        }
        let path = if own { Path::Local } else { Path::SameHost };
        if let Some(tpn) = node.tpn[usize::from(unreliable)] {
            *self.ways.entry(tpn).or_default() += 1;
            return Connecting::Ready { tpn, path };
        }
        let reach = match &node.parts {
            _ if own => Reach::Own,
            Some(parts) => Reach::Direct(DirectParts {
                node: parts.peer_node.clone(),
                arena: parts.peer_arena.clone(),
                half: parts.my_half.clone(),
            }),
            None => {
                if !node.asked {
                    node.asked = dev.ask_host(HostRequest::FindPeer { eid });
                }
                return Connecting::Pending;
            }
        };
        let tpn = self.next_tpn;
        self.next_tpn += 1;
        node.tpn[usize::from(unreliable)] = Some(tpn);
        self.ways.insert(tpn, 1);
        dev.links().insert(Arc::new(Link::new(tpn, eid, unreliable, reach)));
        Connecting::Ready { tpn, path }
    }

    /// One user less; the way closes (and its `Link` is removed) with the last one.
    pub(crate) fn disconnect(&mut self, dev: &Device, _now: Nanos, tpn: u32) -> CmdStatus {
        let Some(users) = self.ways.get_mut(&tpn) else { return CmdStatus::NotFound };
        *users -= 1;
        if *users == 0 {
            self.ways.remove(&tpn);
            dev.links().remove(tpn);
            for node in self.nodes.values_mut() {
                node.tpn = node.tpn.map(|t| t.filter(|t| *t != tpn));
            }
        }
        CmdStatus::Ok
    }

    pub(crate) fn on_same_host_peer(
        &mut self,
        _dev: &Device,
        _now: Nanos,
        eid: RawEid,
        parts: SameHostParts,
    ) {
        self.nodes.entry(eid).or_default().parts = Some(parts);
    }

    pub(crate) fn on_packet_peer(&mut self, _dev: &Device, _now: Nanos, _eid: RawEid) {}

    pub(crate) fn on_no_peer(&mut self, _dev: &Device, eid: RawEid, why: CmdStatus) {
        self.nodes.entry(eid).or_default().refused = Some(why);
    }

    pub(crate) fn on_peer_gone(&mut self, dev: &Device, _now: Nanos, eid: RawEid) {
        let Some(node) = self.nodes.remove(&eid) else { return };
        for link in node.tpn.into_iter().flatten().filter_map(|tpn| dev.links().find(tpn)) {
            link.end();
        }
    }

    /// The halves of all live same-host peers, for looking at their hazard slots.
    pub(crate) fn peer_halves(&self) -> impl Iterator<Item = &Region> {
        self.nodes.values().filter_map(|n| n.parts.as_ref()).map(|p| &p.peer_half)
    }

    // Progress.

    /// One bounded step: listed queues (`dev.next_listed()`), rings, TPs, timers. Whether anything
    /// was done.
    pub(crate) fn step(&mut self, _dev: &Device, _now: Nanos) -> bool {
        false
    }

    /// Work that a step would find now (the last look before sleep).
    pub(crate) fn has_work(&mut self) -> bool {
        false
    }

    pub(crate) fn poll_deadline(&self) -> Deadline {
        None
    }

    pub(crate) fn on_datagram(
        &mut self,
        _dev: &Device,
        _now: Nanos,
        _from: NodeAddr,
        _bytes: &[u8],
    ) {
    }

    pub(crate) fn poll_transmit(&mut self, _now: Nanos, _buf: &mut [u8]) -> Option<Transmit> {
        None
    }

    // The knitting pool.

    pub(crate) fn pool_grow(&mut self, _base: u64, _memory: Region, _block_log2: u8) -> CmdStatus {
        CmdStatus::Unsupported
    }

    pub(crate) fn pool_shrink(&mut self, _base: u64) -> CmdStatus {
        CmdStatus::Unsupported
    }

    /// Block bytes, blocks, free blocks, most ever used.
    pub(crate) fn pool_usage(&self) -> [u64; 4] {
        [0; 4]
    }
}
