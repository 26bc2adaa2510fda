//! One process of the pair: its node, and the objects of a round.
//!
//! *Owns*: the composition of node, driver and API. *Takes*: the environment (`URMA_EID`,
//! `URMA_PATH`, ...). *Gives*: queues and memory. *Must not*: post.

use std::{error::Error, net::IpAddr, time::Duration};

use ubcore_sim::node::NodeCfg;
use udma_abi::counters::Counter;
use urma_core::{
    Context, Eid, ImportedSegment, Jetty, JettyCfg, JettyId, JettyRecv, Jfc, JfcCfg, JfrCfg,
    JfsCfg, Mapping, OrderType, RemoteJetty, RemoteSegment, Segment, SegmentAccess, SegmentCfg,
    Status, StatusKind, TargetJetty, TargetKind, Token, TokenId, TokenIdLease, TokenPolicy, TpType,
    TransportMode, Ubva,
};
use urma_mem::Region;

use crate::{
    channel::Endpoint,
    memory::Memory,
    pause::{Bound, rest},
    plan::{MESSAGE_MAX, Mode, SLOT_COUNT},
};

/// What a worker fails with.
pub type Outcome<T> = Result<T, Box<dyn Error>>;

/// Open node with the objects that a round uses.
#[derive(Debug)]
pub struct Side {
    context: Context,
}

/// Guards the segments: any number will do.
const TOKEN: Token = Token::new(0x6b69_6c6c);
/// Requests that the send queue holds.
const SEND_DEPTH: u32 = 64;
/// Receives that the receive queue holds.
const RECV_DEPTH: u32 = 256;
/// Completions that a JFC holds.
const JFC_DEPTH: u32 = 1024;
/// Code of the IB RNR timer table: 40.96 ms, so that a peer that gets no core for a while is
/// waited for.
const RNR_TIMER: u8 = 24;
/// Bytes of the segment that comes and goes.
const CHURN_LEN: usize = SLOT_COUNT * MESSAGE_MAX;
/// What its memory holds while it is not registered.
const POISON: u8 = 0xa5;

impl Side {
    /// Opens a node with the configuration `cfg`.
    ///
    /// # Errors
    /// Why it could not be opened.
    pub fn open(cfg: NodeCfg) -> Outcome<Self> {
        Ok(Self { context: urma::open_node(cfg)?.context })
    }

    /// Its EID, as an address.
    #[must_use]
    pub fn eid(&self) -> String {
        self.context.eid().to_ip().to_string()
    }

    /// Completions that the device counted.
    ///
    /// # Errors
    /// The device failed.
    pub fn completions(&self) -> Result<u64, Status> {
        let counters = self.context.counters()?;
        let found = counters.iter().find(|(name, _)| *name == Counter::Completions.name());
        Ok(found.map_or(0, |(_, count)| *count))
    }

    /// Makes the objects of a round.
    ///
    /// # Errors
    /// What the API refused.
    pub fn objects(&self, mode: Mode, err_timeout: u8) -> Outcome<Objects> {
        let ctx = &self.context;
        let memory = Memory::new()?;
        let cfg = SegmentCfg::new(SegmentAccess::REMOTE_ALL).with_token(TOKEN);
        let segment = ctx.register(memory.region(), &cfg, None)?;
        let send_jfc = ctx.create_jfc(&JfcCfg::new(JFC_DEPTH), None)?;
        let recv_jfc = ctx.create_jfc(&JfcCfg::new(JFC_DEPTH), None)?;
        let mode = transport(mode);
        // The token keeps out what a stranger sends without any TP.
        let policy = TokenPolicy::PlainText(TOKEN);
        let recv = JfrCfg { min_rnr_timer: RNR_TIMER, policy, ..JfrCfg::new(mode, RECV_DEPTH) };
        let recv = JettyRecv::Own { cfg: recv, jfc: &recv_jfc };
        let send = JfsCfg { err_timeout, ..JfsCfg::new(mode, SEND_DEPTH) };
        let jetty = ctx.create_jetty(&JettyCfg::new(send, &send_jfc, recv))?;
        let churn = Churn {
            region: Region::private(CHURN_LEN)?,
            lease: ctx.alloc_token_id()?,
            segment: None,
            was_poisoned: false,
        };
        Ok(Objects { jetty, send_jfc, recv_jfc, segment, churn, memory })
    }

    /// Imports a peer's jetty and memory; tries again while the peer may still be coming up.
    ///
    /// # Errors
    /// What the API refused, or that the peer is not there.
    pub fn import(&self, peer: &Endpoint, mode: Mode, limit: Duration) -> Outcome<Peer> {
        let eid = Eid::from(peer.eid.parse::<IpAddr>()?);
        let bound = Bound::after(limit);
        loop {
            match self.try_import(eid, peer, transport(mode)) {
                Ok(peer) => return Ok(peer),
                Err(status)
                    if matches!(status.kind(), StatusKind::TimedOut | StatusKind::Unreachable)
                        && !bound.is_over() =>
                {
                    rest(Duration::from_millis(5));
                }
                Err(status) => return Err(status.into()),
            }
        }
    }

    fn try_import(&self, eid: Eid, peer: &Endpoint, mode: TransportMode) -> Result<Peer, Status> {
        let target = RemoteJetty {
            id: JettyId { eid, uasid: peer.uasid, id: peer.jetty },
            kind: TargetKind::Jetty,
            mode,
            order: OrderType::Default,
            policy: TokenPolicy::PlainText(Token::new(peer.token)),
            tp: TpType::of(mode),
        };
        let memory = RemoteSegment {
            ubva: Ubva { eid, uasid: peer.uasid, va: peer.va },
            len: peer.len,
            token_id: TokenId::new(peer.token_id),
            policy: TokenPolicy::PlainText(Token::new(peer.token)),
            access: SegmentAccess::REMOTE_ALL,
        };
        let churn = RemoteSegment {
            ubva: Ubva { eid, uasid: peer.uasid, va: peer.churn_va },
            len: peer.churn_len,
            token_id: TokenId::new(peer.churn_id),
            ..memory
        };
        let other = Token::new(peer.token ^ 1);
        let strange = RemoteSegment { policy: TokenPolicy::PlainText(other), ..memory };
        let longer = RemoteSegment { len: peer.len + 8, ..memory };
        let target = self.context.import_jetty(&target)?;
        let import =
            |remote| self.context.import_segment(remote, SegmentAccess::REMOTE_ALL, Mapping::None);
        let (segment, churn) = (import(&memory)?, import(&churn)?);
        let (strange, longer) = (import(&strange)?, import(&longer)?);
        Ok(Peer { target, segment, churn, strange, longer })
    }
}

/// The objects of a round, dropped in this order.
#[derive(Debug)]
pub struct Objects {
    /// Jetty that all requests of the round go through.
    pub jetty: Jetty,
    /// JFC of the send completions.
    pub send_jfc: Jfc,
    /// JFC of the receive completions.
    pub recv_jfc: Jfc,
    /// Registration of `memory`, with all remote rights.
    pub segment: Segment,
    /// A segment that comes and goes.
    pub churn: Churn,
    /// Memory of requests, receives and the peer's writes.
    pub memory: Memory,
}

impl Objects {
    /// How a peer reaches them.
    #[must_use]
    pub fn endpoint(&self) -> Endpoint {
        let id = self.jetty.id();
        Endpoint {
            eid: id.eid.to_ip().to_string(),
            uasid: id.uasid,
            jetty: id.id,
            va: self.segment.va(),
            len: self.segment.len(),
            token_id: self.segment.token_id().value(),
            token: TOKEN.value(),
            churn_va: self.churn.region.addr() as u64,
            churn_len: CHURN_LEN as u64,
            churn_id: self.churn.lease.id().value(),
        }
    }
}

/// A peer's jetty and memory.
#[derive(Debug)]
pub struct Peer {
    /// The peer's jetty, imported.
    pub target: TargetJetty,
    /// The peer's memory, imported.
    pub segment: ImportedSegment,
    /// Its memory that comes and goes.
    pub churn: ImportedSegment,
    /// Its memory, with a wrong token.
    pub strange: ImportedSegment,
    /// Its memory, said to be longer than it is.
    pub longer: ImportedSegment,
}

fn transport(mode: Mode) -> TransportMode {
    match mode {
        Mode::Rm => TransportMode::Rm,
        Mode::Rc => TransportMode::Rc,
        Mode::Um => TransportMode::Um,
    }
}

/// Memory that is registered and unregistered again and again.
#[derive(Debug)]
pub struct Churn {
    segment: Option<Segment>,
    lease: TokenIdLease,
    region: Region,
    was_poisoned: bool,
}

impl Churn {
    /// Registers it, or unregisters it when it is registered. Bytes that were placed while it was
    /// not registered.
    ///
    /// # Errors
    /// What the API refused; the segment is as it was.
    pub fn step(&mut self, side: &Side) -> Outcome<u64> {
        match self.segment.take() {
            None => {
                let wrong = self.placed_late();
                let cfg = SegmentCfg::new(SegmentAccess::REMOTE_ALL).with_token(TOKEN);
                let lease = Some(&self.lease);
                self.segment = Some(side.context.register(&self.region, &cfg, lease)?);
                Ok(wrong)
            }
            Some(segment) => {
                if let Err(refused) = segment.unregister() {
                    let status = refused.status;
                    self.segment = Some(*refused.object);
                    return Err(status.into());
                }
                self.region.write(0, &[POISON; CHURN_LEN])?;
                self.was_poisoned = true;
                Ok(0)
            }
        }
    }

    fn placed_late(&mut self) -> u64 {
        if !std::mem::take(&mut self.was_poisoned) {
            return 0;
        }
        let mut bytes = vec![0; CHURN_LEN];
        self.region.read(0, &mut bytes).expect("all of it");
        bytes.iter().filter(|byte| **byte != POISON).count() as u64
    }
}
