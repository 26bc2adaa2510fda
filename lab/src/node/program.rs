//! The program of one node: a jetty, memory that peers reach, memory of its own requests.
//!
//! - owns: the API objects of a node's life. takes: the fabric. gives: posts, polls, bytes. must not: judge.

use std::sync::Arc;

use ubcore_sim::link::Rng;
use ubcore_sim::sim::Fabric;
use urma::{
    Completion, Context, ImportedSegment, Jetty, JettyCfg, JettyRecv, Jfc, JfcCfg, JfrCfg, JfsCfg,
    LocalSge, Mapping, PostReason, RecvWr, Region, RemoteAddr, RemoteJetty, RemoteSegment, Segment,
    SegmentAccess, SegmentCfg, SendOp, SendWr, Status, TargetJetty, Token, TokenPolicy,
    TransportMode, device_on,
};

use super::book::{PostedRequest, RequestKind};
use super::grid::{NodeCell, RECEIVES};

/// Bytes of the words that peers add to, one each.
const WORDS_LEN: usize = 128;
/// Addresses that requests name: the same in every run of a seed.
const AREA_VA: u64 = 0x1000_0000_0000;
const LOCAL_VA: u64 = 0x2000_0000_0000;
/// Time that a sender waits for a receive: code 18 is 5.12 ms.
const RNR_TIMER: u8 = 18;

/// Sizes of a run's memory.
#[derive(Clone, Copy, Debug)]
pub struct NodeSizes {
    nodes: usize,
    depth: usize,
    slot_len: usize,
}

/// What a node needs to reach a peer.
#[derive(Debug)]
struct NodePeer {
    jetty: TargetJetty,
    area: ImportedSegment,
}

/// What peers need to reach a node.
#[derive(Clone, Copy, Debug)]
pub struct NodeFace {
    jetty: RemoteJetty,
    area: RemoteSegment,
}

/// The program of one life of a node.
#[derive(Debug)]
pub struct NodeProgram {
    jetty: Jetty,
    /// Completions of its own requests.
    sends: Jfc,
    /// Completions of its receives.
    receives: Jfc,
    peers: Vec<Option<NodePeer>>,
    area_seg: Segment,
    local_seg: Segment,
    area: Region,
    local: Region,
    sizes: NodeSizes,
    /// The open device; last, so that all its objects go first.
    context: Context,
}

impl NodeSizes {
    /// Those of a cell.
    #[must_use]
    pub fn of(cell: &NodeCell) -> Self {
        let (nodes, depth) = (usize::from(cell.nodes), cell.depth as usize);
        Self { nodes, depth, slot_len: cell.slot_len() }
    }

    /// Where the slot of a peer's request lies in the area of a node.
    const fn slot(self, from: usize, slot: usize) -> usize {
        WORDS_LEN + self.slot_len * (1 + from * self.depth + slot)
    }

    const fn area_len(self) -> usize {
        self.slot(self.nodes, 0)
    }

    const fn local_len(self) -> usize {
        self.slot_len * (self.depth + RECEIVES)
    }
}

/// Bytes that node `node` offers to readers.
#[must_use]
pub fn offered(node: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Rng::new(0x0ffe_0000 + node as u64).fill(&mut bytes);
    bytes
}

/// Bytes that request `number` writes or sends: the number, then what follows from it.
#[must_use]
pub fn content(number: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Rng::new(number).fill(&mut bytes);
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes
}

impl NodeProgram {
    /// Opens node `number` and makes its objects.
    ///
    /// # Errors
    /// What the API refused.
    pub fn open(fabric: &Arc<Fabric>, number: usize, sizes: NodeSizes) -> Result<Self, Status> {
        let context = device_on(fabric.backing(number)).open(0)?;
        let depth = u32::try_from(sizes.depth).unwrap_or(1);
        let receives = u32::try_from(RECEIVES).unwrap_or(1);
        let sends_jfc = context.create_jfc(&JfcCfg::new(depth.max(16)), None)?;
        let receives_jfc = context.create_jfc(&JfcCfg::new(receives), None)?;
        let policy = TokenPolicy::PlainText(Token::new(0x600d_0042));
        let mode = TransportMode::Rm;
        let recv = JfrCfg { min_rnr_timer: RNR_TIMER, policy, ..JfrCfg::new(mode, receives) };
        let recv = JettyRecv::Own { cfg: recv, jfc: &receives_jfc };
        let cfg = JettyCfg::new(JfsCfg::new(mode, depth), &sends_jfc, recv);
        let jetty = context.create_jetty(&cfg)?;
        let region = |len| Region::private(len).map_err(|_| Status::NoMemory);
        let (area, local) = (region(sizes.area_len())?, region(sizes.local_len())?);
        let register = |region: &Region, access, va| {
            let cfg = SegmentCfg { user_iova: Some(va), ..SegmentCfg::new(access) };
            let token = Token::new(0x600d_0000 + u32::try_from(number).unwrap_or(0));
            context.register(region, &cfg.with_token(token), None)
        };
        let area_seg = register(&area, SegmentAccess::REMOTE_ALL, AREA_VA)?;
        let local_seg = register(&local, SegmentAccess::LOCAL_ONLY, LOCAL_VA)?;
        area.write(WORDS_LEN, &offered(number, sizes.slot_len)).map_err(|_| Status::Fail)?;
        Ok(Self {
            jetty,
            sends: sends_jfc,
            receives: receives_jfc,
            peers: (0..sizes.nodes).map(|_| None).collect(),
            area_seg,
            local_seg,
            area,
            local,
            sizes,
            context,
        })
    }

    /// What the others need to reach it.
    #[must_use]
    pub fn face(&self) -> NodeFace {
        NodeFace { jetty: self.jetty.remote(), area: self.area_seg.remote() }
    }

    /// Imports node `other`, which looks like `face`.
    ///
    /// # Errors
    /// What the API refused.
    pub fn meet(&mut self, other: usize, face: &NodeFace) -> Result<(), Status> {
        let access = SegmentAccess::REMOTE_ALL;
        let area = self.context.import_segment(&face.area, access, Mapping::None)?;
        let jetty = self.context.import_jetty(&face.jetty)?;
        self.peers[other] = Some(NodePeer { jetty, area });
        Ok(())
    }

    /// Gives up what was imported of node `other`.
    pub fn part(&mut self, other: usize) {
        self.peers[other] = None;
    }

    /// Whether node `other` is imported.
    #[must_use]
    pub fn knows(&self, other: usize) -> bool {
        self.peers[other].is_some()
    }

    /// Posts a request; false when there is no room.
    ///
    /// # Errors
    /// The queue refused it.
    pub fn post(&mut self, request: &PostedRequest) -> Result<bool, String> {
        let PostedRequest { number, slot, len, .. } = *request;
        let Some(peer) = self.peers[request.to.node].as_ref() else { return Ok(false) };
        let at = |offset: usize| RemoteAddr {
            segment: &peer.area,
            addr: peer.area.va() + offset as u64,
        };
        if matches!(request.kind, RequestKind::Write | RequestKind::Send) {
            let place = slot * self.sizes.slot_len;
            let written = self.local.write(place, &content(number, len));
            written.map_err(|error| error.to_string())?;
        }
        let piece = [sge(&self.local_seg, (slot, len), self.sizes)];
        let op = match request.kind {
            RequestKind::Write => {
                let dst = at(self.sizes.slot(request.from.node, slot));
                SendOp::Write { src: &piece, dst }
            }
            RequestKind::Read => SendOp::Read { dst: &piece, src: at(WORDS_LEN + request.offset) },
            RequestKind::Send => SendOp::Send { src: &piece },
            RequestKind::Add => {
                let result = sge(&self.local_seg, (slot, 8), self.sizes);
                SendOp::FetchAdd { result, target: at(request.from.node * 8), value: 1 }
            }
        };
        let wr = SendWr::new(op, &peer.jetty, number);
        match self.jetty.post_send(&[wr]).map_err(|error| error.reason) {
            Ok(()) => Ok(true),
            Err(PostReason::Full) => Ok(false),
            Err(reason) => Err(format!("request {number} was refused: {reason}")),
        }
    }

    /// Posts receive `slot`; false when there is no room: an older receive may take longer than a newer one.
    ///
    /// # Errors
    /// The queue refused it.
    pub fn post_receive(&mut self, slot: usize) -> Result<bool, String> {
        let piece = (self.sizes.depth + slot, self.sizes.slot_len);
        let dst = [sge(&self.local_seg, piece, self.sizes)];
        let wr = RecvWr { dst: &dst, user_ctx: slot as u64 };
        match self.jetty.post_recv(&[wr]).map_err(|error| error.reason) {
            Ok(()) => Ok(true),
            Err(PostReason::Full) => Ok(false),
            Err(reason) => Err(format!("receive {slot} was refused: {reason}")),
        }
    }

    /// The next completions of requests, or of receives.
    ///
    /// # Errors
    /// The device failed.
    pub fn poll(&mut self, of_sends: bool, out: &mut [Completion]) -> Result<usize, String> {
        let jfc = if of_sends { &mut self.sends } else { &mut self.receives };
        jfc.poll(out).map_err(|status| status.to_string())
    }

    /// Bytes of a slot of a request (`Ok`) or of a receive (`Err`).
    #[must_use]
    pub fn local(&self, slot: Result<usize, usize>, len: usize) -> Vec<u8> {
        let slot = slot.unwrap_or_else(|receive| self.sizes.depth + receive);
        bytes(&self.local, slot * self.sizes.slot_len, len)
    }

    /// What a request of a peer wrote.
    #[must_use]
    pub fn written(&self, from: usize, slot: usize, len: usize) -> Vec<u8> {
        bytes(&self.area, self.sizes.slot(from, slot), len)
    }

    /// The word that node `from` adds to.
    #[must_use]
    pub fn sum(&self, from: usize) -> u64 {
        let word = bytes(&self.area, from * 8, 8);
        word.as_chunks().0.first().map_or(0, |word| u64::from_le_bytes(*word))
    }
}

/// The first bytes of a slot, as a request names them.
fn sge(segment: &Segment, (slot, len): (usize, usize), sizes: NodeSizes) -> LocalSge<'_> {
    let addr = segment.va() + (slot * sizes.slot_len) as u64;
    LocalSge { segment, addr, len: u32::try_from(len).unwrap_or(u32::MAX) }
}

/// Bytes of memory; none if they lie outside.
fn bytes(region: &Region, at: usize, len: usize) -> Vec<u8> {
    let mut found = vec![0; len];
    region.read(at, &mut found).map_or_else(|_| Vec::new(), |()| found)
}
