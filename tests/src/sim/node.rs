//! One program of the simulation: its jetties, its memory, its peers.
//!
//! *Owns*: the API objects of one node, its slots of local memory. *Takes*: the fabric. *Gives*:
//! objects that requests name. *Must not*: judge.
#![expect(clippy::cast_possible_truncation, reason = "slots and their lengths are small constants")]

use std::sync::Arc;

use ubcore_sim::sim::Fabric;
use udma_provider::device_on;
use urma_core::{
    Context, ImportedSegment, Jetty, JettyCfg, JettyRecv, Jfc, JfcCfg, Jfce, JfrCfg, JfsCfg,
    LocalSge, Mapping, PostReason, RecvWr, RemoteAddr, RemoteJetty, RemoteSegment, Segment,
    SegmentAccess, SegmentCfg, Status, TargetJetty, Token, TokenPolicy, TransportMode,
};
use urma_mem::Region;

use super::area::AREA_LEN;
use super::lent::Lent;

/// Bytes of a slot of local memory: one request's source or destination, or one receive.
pub(super) const SLOT_LEN: usize = 16 << 10;
/// Slots for requests; then as many for receives.
pub(super) const SLOTS: usize = 32;

/// What the jetties of a program are for. The number is the index of the jetty.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Lane {
    /// RM: works all the time.
    Main = 0,
    /// RC: bound to the one of the neighbour.
    Paired = 1,
    /// RM: is suspended, reset, flushed and deleted; no peer sends to it.
    Restless = 2,
    Datagrams = 3,
}

impl Lane {
    pub(super) const ALL: [Self; 4] = [Self::Main, Self::Paired, Self::Restless, Self::Datagrams];
    /// Those that have an area at each target: all but the last one.
    pub(super) const WITH_AREA: usize = 3;

    const fn mode(self) -> TransportMode {
        match self {
            Self::Main | Self::Restless => TransportMode::Rm,
            Self::Paired => TransportMode::Rc,
            Self::Datagrams => TransportMode::Um,
        }
    }

    /// The lane whose jetty has this number or context.
    pub(super) fn of(number: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|lane| u64::from(lane.id()) == number)
    }

    /// Chosen number of its jetty: the same in each of its lives.
    pub(super) const fn id(self) -> u32 {
        100 + self as u32
    }

    /// Its jetty that takes what this one sends.
    pub(super) const fn receiver(self) -> Self {
        match self {
            Self::Restless => Self::Main,
            other => other,
        }
    }

    pub(super) fn receives(self) -> std::ops::Range<usize> {
        match self {
            Self::Main => 0..16,
            Self::Paired => 16..24,
            Self::Datagrams => 24..SLOTS,
            Self::Restless => 0..0,
        }
    }
}

/// The one that node `number` of `nodes` is paired with.
pub(super) fn partner(number: usize, nodes: usize) -> Option<usize> {
    Some(number ^ 1).filter(|&other| other < nodes)
}

/// What a node needs to reach a peer.
#[derive(Debug)]
pub(super) struct Peer {
    /// Its jetties; those without senders as well.
    pub(super) targets: Vec<TargetJetty>,
    pub(super) segment: ImportedSegment,
    /// Its areas under a wrong token.
    pub(super) wrong_token: ImportedSegment,
    /// Its areas as if they were longer.
    pub(super) too_long: ImportedSegment,
    /// What it grants for reading only.
    pub(super) vault: ImportedSegment,
    /// What is to be invalidated.
    pub(super) victim: ImportedSegment,
    /// What it takes back now and then.
    pub(super) lent: Option<ImportedSegment>,
}

/// What others need to reach a program.
#[derive(Clone, Debug)]
pub(super) struct Face {
    jetties: Vec<RemoteJetty>,
    area: RemoteSegment,
    vault: RemoteSegment,
    victims: Vec<RemoteSegment>,
    lent: Option<RemoteSegment>,
}

#[derive(Debug)]
pub(super) struct Program {
    pub(super) jetties: Vec<Jetty>,
    /// Completions of requests, and of receives.
    pub(super) jfcs: [Jfc; 2],
    pub(super) jfce: Jfce,
    pub(super) view: View,
    err_timeout: u8,
    /// The open device; last, so that all its objects go first.
    pub(super) context: Context,
}

/// Memory and peers: what requests name while a jetty posts them.
#[derive(Debug)]
pub(super) struct View {
    /// The others; `None` at its own place.
    pub(super) peers: Vec<Option<Peer>>,
    area_seg: Segment,
    local_seg: Segment,
    vault_seg: Segment,
    victim_segs: Vec<Segment>,
    pub(super) lent: Lent,
    /// Areas of all initiators.
    pub(super) area: Region,
    pub(super) local: Region,
    /// Only read, never written.
    pub(super) vault: Region,
}

/// Addresses that requests name: the same in every run of a seed.
const AREA_VA: u64 = 0x1000_0000_0000;
const LOCAL_VA: u64 = 0x2000_0000_0000;
const VAULT_VA: u64 = 0x3000_0000_0000;
const VICTIM_VA: u64 = 0x4000_0000_0000;
/// Bytes of vault and victims: no request is longer.
pub(super) const SMALL_LEN: usize = SLOT_LEN;

impl Program {
    /// Opens node `number` of a fabric of `nodes` and makes its objects.
    ///
    /// # Errors
    /// What the API refused.
    pub(super) fn open(
        fabric: &Arc<Fabric>,
        number: usize,
        nodes: usize,
        err_timeout: u8,
    ) -> Result<Self, Status> {
        let context = device_on(fabric.backing(number)).open(0)?;
        let jfce = context.create_jfce()?;
        let jfcs = [
            context.create_jfc(&JfcCfg::new(64), Some(&jfce))?,
            context.create_jfc(&JfcCfg::new(64), Some(&jfce))?,
        ];
        let jetty = |lane: Lane| create(&context, &jfcs, lane, err_timeout);
        let jetties = Lane::ALL.into_iter().map(jetty).collect::<Result<_, _>>()?;
        let view = View::new(&context, number, nodes)?;
        Ok(Self { jetties, jfcs, jfce, view, err_timeout, context })
    }

    /// Replaces the jetty of `lane`; what is outstanding on the old one ends flushed.
    ///
    /// # Errors
    /// What the API refused.
    pub(super) fn renew(&mut self, lane: Lane) -> Result<(), Status> {
        let last = self.jetties.len() - 1;
        self.jetties.swap(lane as usize, last);
        let old = self.jetties.pop().ok_or(Status::Fail)?;
        old.delete().map_err(|refused| refused.status)?;
        self.jetties.push(create(&self.context, &self.jfcs, lane, self.err_timeout)?);
        self.jetties.swap(lane as usize, last);
        Ok(())
    }

    /// What the others need to reach it.
    pub(super) fn face(&self) -> Face {
        Face {
            jetties: self.jetties.iter().map(Jetty::remote).collect(),
            area: self.view.area_seg.remote(),
            vault: self.view.vault_seg.remote(),
            victims: self.view.victim_segs.iter().map(Segment::remote).collect(),
            lent: self.view.lent.remote(),
        }
    }

    /// Imports node `other`, which looks like `face`; `me` is its own number.
    ///
    /// # Errors
    /// What the API refused.
    pub(super) fn meet(&mut self, me: usize, other: usize, face: &Face) -> Result<(), Status> {
        let context = &self.context;
        let import = |segment: RemoteSegment| {
            context.import_segment(&segment, SegmentAccess::REMOTE_ALL, Mapping::None)
        };
        let target = |jetty| context.import_jetty(jetty);
        let wrong = TokenPolicy::PlainText(Token::new(0xbad));
        let peer = Peer {
            targets: face.jetties.iter().map(target).collect::<Result<_, _>>()?,
            segment: import(face.area)?,
            wrong_token: import(RemoteSegment { policy: wrong, ..face.area })?,
            too_long: import(RemoteSegment { len: face.area.len + 64, ..face.area })?,
            vault: import(face.vault)?,
            victim: import(face.victims[me])?,
            lent: face.lent.map(import).transpose()?,
        };
        self.view.peers[other] = Some(peer);
        Ok(())
    }

    /// Imports what node `other` lends again.
    ///
    /// # Errors
    /// What the API refused.
    pub(super) fn import_lent(&mut self, other: usize, lent: &RemoteSegment) -> Result<(), Status> {
        let Some(peer) = self.view.peers[other].as_mut() else { return Ok(()) };
        let access = SegmentAccess::REMOTE_ALL;
        peer.lent = Some(self.context.import_segment(lent, access, Mapping::None)?);
        Ok(())
    }

    /// Binds the paired jetty to that of `other`.
    ///
    /// # Errors
    /// What the API refused.
    pub(super) fn pair(&mut self, other: usize) -> Result<(), Status> {
        let peer = self.view.peers[other].as_ref().ok_or(Status::Fail)?;
        self.jetties[Lane::Paired as usize].bind(&peer.targets[Lane::Paired as usize])
    }

    /// Posts the receive of slot `slot` (counted from 0 among receive slots) of `lane`, filled with
    /// `fill`; false when the queue is full: an older receive may take longer than a newer one.
    ///
    /// # Errors
    /// The queue refused it.
    pub(super) fn post_receive(
        &mut self,
        lane: Lane,
        slot: usize,
        fill: u8,
    ) -> Result<bool, String> {
        let place = (SLOTS + slot) * SLOT_LEN;
        self.view.local.write(place, &[fill; SLOT_LEN]).map_err(|error| error.to_string())?;
        let Self { jetties, view, .. } = self;
        let dst = [view.sge(SLOTS + slot, 0, SLOT_LEN)];
        let wr = RecvWr { dst: &dst, user_ctx: slot as u64 };
        match jetties[lane as usize].post_recv(&[wr]).map_err(|error| error.reason) {
            Ok(()) => Ok(true),
            Err(PostReason::Full) => Ok(false),
            Err(reason) => Err(format!("a receive was refused: {reason}")),
        }
    }
}

/// The jetty of `lane`; its context is its number.
fn create(
    context: &Context,
    jfcs: &[Jfc; 2],
    lane: Lane,
    err_timeout: u8,
) -> Result<Jetty, Status> {
    let mode = lane.mode();
    let depth = lane.receives().len().max(1) as u32;
    // 5.12 ms, seven times: longer than any program here leaves its receives unposted.
    // The token keeps out what an attacker sends without any TP.
    let policy = TokenPolicy::PlainText(Token::new(0x600d_0042));
    let recv = JfrCfg { min_rnr_timer: 18, policy, ..JfrCfg::new(mode, depth) };
    let user_ctx = u64::from(lane.id());
    let send = JfsCfg { max_sge: 2, user_ctx, err_timeout, ..JfsCfg::new(mode, SLOTS as u32) };
    let recv = JettyRecv::Own { cfg: recv, jfc: &jfcs[1] };
    let cfg = JettyCfg { id: lane.id(), ..JettyCfg::new(send, &jfcs[0], recv) };
    context.create_jetty(&cfg)
}

impl View {
    fn new(context: &Context, number: usize, nodes: usize) -> Result<Self, Status> {
        let region = |len| Region::private(len).map_err(|_| Status::NoMemory);
        let area = region(nodes * Lane::WITH_AREA * AREA_LEN)?;
        let (local, vault) = (region(2 * SLOTS * SLOT_LEN)?, region(SMALL_LEN)?);
        let register = |region: &Region, access, va, token| {
            let cfg = SegmentCfg { user_iova: Some(va), ..SegmentCfg::new(access) };
            context.register(region, &cfg.with_token(Token::new(token)), None)
        };
        let all = SegmentAccess::REMOTE_ALL;
        let token = 0x600d_0000 + number as u32;
        let victim = |initiator: usize| {
            let va = VICTIM_VA + (initiator * SMALL_LEN) as u64;
            register(&region(SMALL_LEN)?, all, va, token + 0x100 + initiator as u32)
        };
        Ok(Self {
            peers: (0..nodes).map(|_| None).collect(),
            area_seg: register(&area, all, AREA_VA, token)?,
            local_seg: register(&local, SegmentAccess::LOCAL_ONLY, LOCAL_VA, token)?,
            vault_seg: register(&vault, SegmentAccess::READ, VAULT_VA, token)?,
            victim_segs: (0..nodes).map(victim).collect::<Result<_, _>>()?,
            lent: Lent::new(context, token + 0x1000)?,
            area,
            local,
            vault,
        })
    }

    /// `len` bytes of slot `slot` from `offset` on, as a request names them.
    #[must_use]
    pub(super) fn sge(&self, slot: usize, offset: usize, len: usize) -> LocalSge<'_> {
        let addr = self.local_seg.va() + (slot * SLOT_LEN + offset) as u64;
        LocalSge { segment: &self.local_seg, addr, len: len as u32 }
    }

    /// The first 8 bytes of slot `slot` as a number.
    ///
    /// # Errors
    /// The memory is gone.
    #[cfg(test)]
    pub(super) fn slot_word(&self, slot: usize) -> Result<u64, String> {
        let mut word = [0; 8];
        self.local.read(slot * SLOT_LEN, &mut word).map_err(|error| error.to_string())?;
        Ok(u64::from_le_bytes(word))
    }

    /// What the area of jetty `lane` of node `initiator` holds now.
    ///
    /// # Errors
    /// The memory is gone.
    pub(super) fn area(&self, initiator: usize, lane: Lane) -> Result<Vec<u8>, String> {
        let mut found = vec![0; AREA_LEN];
        let at = area_offset(initiator, lane);
        self.area.read(at, &mut found).map_err(|error| error.to_string())?;
        Ok(found)
    }
}

/// Offset of the area of jetty `lane` of node `initiator` at any target. A jetty
/// without one names that of its node's first jetty, and never uses it.
pub(super) const fn area_offset(initiator: usize, lane: Lane) -> usize {
    (initiator * Lane::WITH_AREA + lane as usize % Lane::WITH_AREA) * AREA_LEN
}

/// `offset` bytes behind the start of `segment`.
pub(super) fn at(segment: &ImportedSegment, offset: usize) -> RemoteAddr<'_> {
    RemoteAddr { segment, addr: segment.va() + offset as u64 }
}
