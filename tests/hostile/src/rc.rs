//! A connection of the standard opcodes in front of a hostile peer.
//!
//! *Owns*: the promises of an endpoint. *Takes*: steps: packets of any kind near the numbers in use, raw bytes, posts,
//! time. *Gives*: a panic when a promise is broken. *Must not*: use more than the public face of `urma-rc`.
//!
//! Each request and receive is completed exactly once. A packet changes only bytes that its key lets it change, and a
//! message only those of its receive. What is sent is well formed, for the peer, and bounded by what arrived
//! and was posted. An endpoint that failed sends no request.

use std::{
    collections::BTreeSet,
    net::{Ipv4Addr, SocketAddr},
};

use urma_packet::{
    Bth, Congestion, IcrcFlow, Psn, Tpn,
    roce::{
        Aeth, AtomicAckEth, AtomicEth, Feth, Headers, Ieth, ImmDt, PacketLayout, PayloadRule, Reth,
        RoceExt, RoceHeader, RocePacket, Syndrome,
    },
};
use urma_rc::{
    RcAccess, RcAtomic, RcCfg, RcEndpoint, RcMemory, RcOperation, RcReceive, RcRemote, RcRequest,
    RcSource, RcStatus,
};

use crate::Bytes;

/// Virtual address of the memory's first byte.
const BASE: u64 = 0x7f00_0000_0000;
/// Keys: of the first part, which allows everything, and of the second one, which may be read.
const OPEN: u32 = 0x1234;
const READ_ONLY: u32 = 0x5678;
/// Bytes of the parts: open, read-only, receives, payload and results of requests, and what nothing may change.
const PART: usize = 1 << 13;
const RECEIVES: usize = 2 * PART;
const LOCAL: usize = 3 * PART;
const GUARD: usize = 4 * PART;
/// Receives in turn use places of so many bytes.
const RECEIVE_LEN: u32 = 512;
/// Most packets that one packet, post or step of time brings: a READ of a part in the shortest packets and its
/// retries.
const SENT_MAX: usize = 4 * PART / 256 + 64;
const RECEIVE_SLOTS: usize = 16;
/// Longest request in bytes.
const LONGEST: u32 = 1 << 13;
const FIRST_SENT: u32 = 0x00ff_fffc;
const FIRST_EXPECTED: u32 = 2;

/// Whether the memory looks at rights; one that does not shows that the promise can be broken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rights {
    /// A region that may be read is not written.
    Checked,
    /// Every key allows everything.
    Ignored,
}

/// Memory of the endpoint's owner.
struct Ram {
    bytes: Vec<u8>,
    rights: Rights,
    is_open: bool,
}

impl Ram {
    fn range(&self, place: u64, len: usize) -> std::ops::Range<usize> {
        let at = usize::try_from(place).expect("a place that was given out");
        assert!(at + len <= GUARD, "{len} bytes at {at}: beyond what was given out");
        at..at + len
    }
}

impl RcMemory for Ram {
    fn resolve(&self, rkey: u32, va: u64, len: u32, access: RcAccess) -> Option<u64> {
        let (part, is_whole) = match rkey {
            OPEN if self.is_open => (0, true),
            READ_ONLY => (PART as u64, false),
            _ => return None,
        };
        let at = va.checked_sub(BASE)?;
        let is_inside = at.checked_add(len.into())? <= PART as u64;
        let is_right = is_whole || access == RcAccess::Read || self.rights == Rights::Ignored;
        (is_inside && is_right).then_some(part + at)
    }

    fn load(&self, place: u64, into: &mut [u8]) -> bool {
        into.copy_from_slice(&self.bytes[self.range(place, into.len())]);
        true
    }

    fn store(&mut self, place: u64, bytes: &[u8]) -> bool {
        let range = self.range(place, bytes.len());
        self.bytes[range].copy_from_slice(bytes);
        true
    }

    fn update(&mut self, place: u64, atomic: RcAtomic) -> Option<u64> {
        let range = self.range(place, 8);
        let old = u64::from_le_bytes(self.bytes[range.clone()].try_into().ok()?);
        self.bytes[range].copy_from_slice(&atomic.apply(old).to_le_bytes());
        Some(old)
    }

    fn invalidate(&mut self, rkey: u32) -> bool {
        rkey == OPEN && std::mem::replace(&mut self.is_open, false)
    }
}

/// The fuzz target: an endpoint and any packets.
pub fn rc(data: &[u8]) {
    rc_with(data, Rights::Checked);
}

/// The same over memory that may ignore rights.
pub fn rc_with(data: &[u8], rights: Rights) {
    let mut bytes = Bytes::new(data);
    let Some(choice) = bytes.byte() else { return };
    let mut side = Side::new(choice, rights);
    while let Some(step) = bytes.byte() {
        let Some(()) = side.step(step, &mut bytes) else { break };
        side.look();
    }
    side.end();
}

struct Side {
    rc: RcEndpoint,
    ram: Ram,
    flow: IcrcFlow,
    now: u64,
    /// Packets sent since the last step.
    next_request: u64,
    next_receive: u64,
    /// Requests and receives without a completion.
    requests: BTreeSet<u64>,
    receives: BTreeSet<u64>,
}

impl Side {
    fn new(choice: u8, rights: Rights) -> Self {
        let qpns = [Tpn::from_low_bits(0xb), Tpn::from_low_bits(0xa)];
        let psns = [Psn::new(FIRST_SENT), Psn::new(FIRST_EXPECTED)];
        let mut cfg = RcCfg::new(qpns, psns);
        cfg.path_mtu = 256 << (choice % 5);
        cfg.retry_count = choice >> 5;
        cfg.ack_timeout = 1000;
        (cfg.queue_depth, cfg.window, cfg.ack_interval) = (16, 32, 4);
        let mut ram = Ram { bytes: vec![0; GUARD + PART], rights, is_open: true };
        ram.bytes[PART..RECEIVES].fill(0x22);
        ram.bytes[GUARD..].fill(0xee);
        Self {
            rc: RcEndpoint::open(cfg).expect("in range"),
            ram,
            flow: flow(),
            now: 0,
            next_request: 0,
            next_receive: 0,
            requests: BTreeSet::new(),
            receives: BTreeSet::new(),
        }
    }

    fn step(&mut self, step: u8, bytes: &mut Bytes<'_>) -> Option<()> {
        match step % 8 {
            0..4 => self.packet(bytes),
            4 => {
                let raw = bytes.take(96).to_vec();
                if let Ok(packet) = RocePacket::parse(&raw) {
                    self.rc.on_packet(self.now, &packet, &mut self.ram);
                }
                Some(())
            }
            5 => self.post(bytes),
            6 => {
                let id = self.next_receive;
                let slot = usize::try_from(id).ok()? % RECEIVE_SLOTS;
                let place = RECEIVES as u64 + slot as u64 * u64::from(RECEIVE_LEN);
                let len = u32::from(bytes.short()?) % (RECEIVE_LEN + 1);
                if self.rc.post_receive(RcReceive { id, place, len }).is_ok() {
                    self.next_receive += 1;
                    self.receives.insert(id);
                }
                if step & 0x80 != 0
                    && let Some(back) = self.rc.withdraw_receive()
                {
                    assert!(self.receives.remove(&back.id), "a receive that was not posted");
                }
                Some(())
            }
            _ => {
                self.now += u64::from(bytes.short()?);
                Some(())
            }
        }
    }

    fn post(&mut self, bytes: &mut Bytes<'_>) -> Option<()> {
        let remote = RcRemote { va: BASE + u64::from(bytes.short()?), rkey: OPEN };
        let kind = bytes.byte()?;
        let operation = match kind % 7 {
            0 => RcOperation::Send,
            1 => RcOperation::SendImm(7),
            2 => RcOperation::SendInvalidate(9),
            3 => RcOperation::Write(remote),
            4 => RcOperation::WriteImm(remote, 8),
            5 => RcOperation::Read(remote),
            _ => RcOperation::Atomic(remote, RcAtomic::FetchAdd { add: 1 }),
        };
        let len = u32::from(bytes.short()?) % LONGEST;
        let id = self.next_request;
        let request = RcRequest {
            id,
            operation,
            place: LOCAL as u64,
            len,
            fence: kind & 0x40 != 0,
            solicited: kind & 0x80 != 0,
        };
        if self.rc.post(request).is_ok() {
            self.next_request += 1;
            self.requests.insert(id);
        }
        Some(())
    }

    /// A packet of any opcode of the transport, near the numbers in use.
    fn packet(&mut self, bytes: &mut Bytes<'_>) -> Option<()> {
        let opcode = bytes.byte()? % 0x20;
        let (flags, psn) = (bytes.byte()?, u32::from(bytes.byte()?));
        let Ok(layout) = PacketLayout::of(opcode) else { return Some(()) };
        let len = match layout.payload {
            PayloadRule::None => 0,
            PayloadRule::PathMtu => self.rc.cfg().path_mtu << (usize::from(flags) >> 7),
            PayloadRule::Last | PayloadRule::Only => bytes.below(self.rc.cfg().path_mtu + 2)?,
            PayloadRule::Eight => 8,
            PayloadRule::Sixteen => 16,
        };
        let ext = extensions(&layout, len, flags, bytes)?;
        let first = if flags & 2 == 0 { FIRST_EXPECTED } else { FIRST_SENT };
        let bth = Bth {
            opcode,
            solicited: flags & 4 != 0,
            mig_req: flags & 8 != 0,
            pad: 0,
            version: 0,
            pkey: 0xffff,
            congestion: Congestion::default(),
            dest: Tpn::from_low_bits(if flags & 0x70 == 0x70 { 0xc } else { 0xb }),
            ack_req: flags & 1 != 0,
            repeated: false,
            psn: Psn::new(first.wrapping_add(psn).wrapping_sub(8) & 0x00ff_ffff),
        };
        let payload = vec![0x55; len];
        let packet = RocePacket { header: RoceHeader { bth, ext }, payload: &payload };
        self.rc.on_packet(self.now, &packet, &mut self.ram);
        Some(())
    }

    /// Polls everything, and checks it.
    fn look(&mut self) {
        let mut buf = vec![0; self.rc.packet_max()];
        let (mut sent, before) = (0, self.rc.counts().requests_sent);
        let had_failed = self.rc.failed().is_some();
        while let Some(len) = self.rc.poll_transmit(self.now, &mut self.ram, &self.flow, &mut buf) {
            let packet = RocePacket::open(&buf[..len], &self.flow).expect("well formed and sealed");
            assert_eq!(packet.header.bth.dest, Tpn::from_low_bits(0xa), "for another queue pair");
            sent += 1;
            assert!(sent <= SENT_MAX, "{sent} packets at once");
        }
        let is_silent = !had_failed || self.rc.counts().requests_sent == before;
        assert!(is_silent, "an endpoint that failed sends requests");
        while let Some(done) = self.rc.poll_completion() {
            let open = match done.source {
                RcSource::Request => &mut self.requests,
                RcSource::Receive | RcSource::ReceiveWrite => &mut self.receives,
            };
            assert!(open.remove(&done.id), "{done:?}: completed twice, or not posted");
            let is_message = done.source == RcSource::Receive && done.status == RcStatus::Success;
            assert!(!is_message || done.len <= RECEIVE_LEN, "longer than its receive");
        }
        let part = &self.ram.bytes[PART..RECEIVES];
        assert!(
            part.iter().all(|byte| *byte == 0x22),
            "a region that may only be read was written"
        );
        assert!(self.ram.bytes[GUARD..].iter().all(|byte| *byte == 0xee), "beyond all memory");
    }

    fn end(&mut self) {
        self.rc.close();
        self.look();
        let left = (&self.requests, &self.receives);
        assert!(left.0.is_empty() && left.1.is_empty(), "never completed: {left:?}");
    }
}

fn flow() -> IcrcFlow {
    let end = |last| SocketAddr::from((Ipv4Addr::new(10, 0, 0, last), 4791));
    IcrcFlow::new(end(2), end(1))
}

/// What an opcode's packet has behind its first header.
fn extensions(
    layout: &PacketLayout,
    len: usize,
    flags: u8,
    bytes: &mut Bytes<'_>,
) -> Option<RoceExt> {
    let word = bytes.word()?;
    let [low, high] = [word & 0xffff_ffff, word >> 32].map(|half| u32::try_from(half).unwrap_or(0));
    let va = BASE + u64::from(bytes.short()?) % (PART as u64 + 64);
    let rkey = [OPEN, READ_ONLY, OPEN, high][usize::from(bytes.byte()? % 4)];
    let fits = flags & 0x10 == 0 && len > 0;
    let dma_len = if fits { u32::try_from(len).ok()? } else { low % 20_000 };
    let syndrome = Syndrome::from_code(flags ^ 0x60).unwrap_or(Syndrome::PsnSequence);
    let has = |flag| layout.headers.contains(flag);
    let atomic = AtomicEth { va: va & !7, rkey, swap_or_add: word, compare: 0 };
    Some(RoceExt {
        reth: has(Headers::RETH).then_some(Reth { va, rkey, dma_len }),
        atomic: has(Headers::ATOMIC).then_some(atomic),
        aeth: has(Headers::AETH).then_some(Aeth { syndrome, msn: low & 0xff }),
        atomic_ack: has(Headers::ATOMIC_ACK).then_some(AtomicAckEth { original: word }),
        imm: has(Headers::IMM).then_some(ImmDt { value: low }),
        ieth: has(Headers::IETH).then_some(Ieth { rkey }),
        feth: has(Headers::FETH).then_some(Feth { placement: 1, selectivity: 0 }),
        ..RoceExt::default()
    })
}
