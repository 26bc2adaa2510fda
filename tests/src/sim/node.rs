//! One program of the simulation: its jetty, its memory, its peers.
//!
//! *Owns*: the API objects of one node, its slots of local memory, its posted receives. *Takes*:
//! the fabric. *Gives*: posting and polling in terms of the model. *Must not*: judge.
#![expect(clippy::cast_possible_truncation, reason = "slots and their lengths are small constants")]

use std::sync::Arc;

use ubcore_sim::sim::Fabric;
use udma_abi::DeviceBacking;
use udma_provider::UdmaProvider;
use urma_core::{
    Context, DeviceId, ImportedSegment, Jetty, JettyCfg, JettyRecv, Jfc, JfcCfg, JfrCfg, JfsCfg,
    LocalSge, Mapping, PostReason, RecvWr, Registry, RemoteAddr, Segment, SegmentAccess,
    SegmentCfg, Status, TargetJetty, Token, TransportMode,
};
use urma_mem::Region;

use super::model::AREA_LEN;

/// Bytes of a slot of local memory: one request's source or destination, or one receive.
pub(super) const SLOT_LEN: usize = 16 << 10;
/// Slots for requests; then as many for receives.
pub(super) const SLOTS: usize = 32;

/// What a node needs to reach a peer.
#[derive(Debug)]
pub(super) struct Peer {
    /// Its jetty.
    pub(super) target: TargetJetty,
    /// Its areas.
    pub(super) segment: ImportedSegment,
}

/// A node.
#[derive(Debug)]
pub(super) struct Program {
    /// Sends and receives.
    pub(super) jetty: Jetty,
    /// Completions of requests.
    pub(super) jfc: Jfc,
    /// Completions of receives.
    pub(super) recv_jfc: Jfc,
    /// What requests name.
    pub(super) view: View,
    /// The open device; last, so that all its objects go first.
    pub(super) context: Context,
}

/// Memory and peers: what requests name while the jetty posts them.
#[derive(Debug)]
pub(super) struct View {
    /// The others; `None` at its own place.
    pub(super) peers: Vec<Option<Peer>>,
    area_seg: Segment,
    local_seg: Segment,
    /// Areas of all initiators.
    pub(super) area: Region,
    /// Slots.
    pub(super) local: Region,
}

/// Addresses that requests name: the same in every run of a seed.
const AREA_VA: u64 = 0x1000_0000_0000;
const LOCAL_VA: u64 = 0x2000_0000_0000;

impl Program {
    /// Opens node `number` of a fabric of `nodes` and makes its objects.
    ///
    /// # Errors
    /// What the API refused.
    pub(super) fn open(fabric: &Arc<Fabric>, number: usize, nodes: usize) -> Result<Self, Status> {
        let backing: Arc<dyn DeviceBacking> = fabric.backing(number);
        let info = backing.info();
        let (vendor, device) = (info.vendor_id, info.device_id);
        let id = DeviceId { name: info.name, driver: info.driver_name, vendor, device };
        let mut registry = Registry::new();
        registry.add_provider(Arc::new(UdmaProvider::default()))?;
        let context = registry.add_device(&id, Box::new(backing))?.open(0)?;

        let mode = TransportMode::Rm;
        let jfc = context.create_jfc(&JfcCfg::new(64), None)?;
        let recv_jfc = context.create_jfc(&JfcCfg::new(64), None)?;
        // 5.12 ms, seven times: longer than any program here leaves its receives unposted.
        let recv = JfrCfg { min_rnr_timer: 18, ..JfrCfg::new(mode, SLOTS as u32) };
        let send = JfsCfg { max_sge: 2, ..JfsCfg::new(mode, SLOTS as u32) };
        let recv = JettyRecv::Own { cfg: recv, jfc: &recv_jfc };
        let jetty = context.create_jetty(&JettyCfg::new(send, &jfc, recv))?;

        let area = Region::private(nodes * AREA_LEN).map_err(|_| Status::NoMemory)?;
        let local = Region::private(2 * SLOTS * SLOT_LEN).map_err(|_| Status::NoMemory)?;
        let area_cfg = SegmentCfg::new(SegmentAccess::REMOTE_ALL);
        let area_cfg = SegmentCfg { user_iova: Some(AREA_VA), ..area_cfg };
        let token = Token::new(0x600d_0000 + number as u32);
        let area_seg = context.register(&area, &area_cfg.with_token(token), None)?;
        let local_cfg = SegmentCfg::new(SegmentAccess::LOCAL_ONLY);
        let local_cfg = SegmentCfg { user_iova: Some(LOCAL_VA), ..local_cfg };
        let local_seg = context.register(&local, &local_cfg, None)?;
        let view = View { peers: Vec::new(), area_seg, local_seg, area, local };
        Ok(Self { jetty, jfc, recv_jfc, view, context })
    }

    /// Imports every other program.
    ///
    /// # Errors
    /// What the API refused.
    pub(super) fn meet(programs: &mut [Self]) -> Result<(), Status> {
        for me in 0..programs.len() {
            for other in 0..programs.len() {
                let peer = if me == other {
                    None
                } else {
                    let (jetty, segment) =
                        (programs[other].jetty.remote(), programs[other].view.area_seg.remote());
                    let context = &programs[me].context;
                    let access = SegmentAccess::REMOTE_ALL;
                    let segment = context.import_segment(&segment, access, Mapping::None)?;
                    Some(Peer { target: context.import_jetty(&jetty)?, segment })
                };
                programs[me].view.peers.push(peer);
            }
        }
        Ok(())
    }

    /// Posts the receive of slot `slot` (counted from 0 among receive slots), filled with `fill`;
    /// false when the queue is full: an older receive may take longer than a newer one.
    ///
    /// # Errors
    /// The queue refused it.
    pub(super) fn post_receive(&mut self, slot: usize, fill: u8) -> Result<bool, String> {
        let place = (SLOTS + slot) * SLOT_LEN;
        self.view.local.write(place, &[fill; SLOT_LEN]).map_err(|error| error.to_string())?;
        let Self { jetty, view, .. } = self;
        let dst = [view.sge(SLOTS + slot, 0, SLOT_LEN)];
        let wr = RecvWr { dst: &dst, user_ctx: slot as u64 };
        match jetty.post_recv(&[wr]).map_err(|error| error.reason) {
            Ok(()) => Ok(true),
            Err(PostReason::Full) => Ok(false),
            Err(reason) => Err(format!("a receive was refused: {reason}")),
        }
    }
}

impl View {
    /// `len` bytes of slot `slot` from `offset` on, as a request names them.
    #[must_use]
    pub(super) fn sge(&self, slot: usize, offset: usize, len: usize) -> LocalSge<'_> {
        let addr = self.local_seg.va() + (slot * SLOT_LEN + offset) as u64;
        LocalSge { segment: &self.local_seg, addr, len: len as u32 }
    }

    /// `offset` of the area that initiator `me` owns at `peer`.
    #[must_use]
    pub(super) fn remote<'a>(peer: &'a Peer, me: usize, offset: usize) -> RemoteAddr<'a> {
        let addr = peer.segment.va() + (me * AREA_LEN + offset) as u64;
        RemoteAddr { segment: &peer.segment, addr }
    }
}
