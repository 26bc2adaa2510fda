//! The next piece of a request: its header, its bytes, and when it may be sent.
//!
//! Must not push a piece or change a request. The model of a NIC may delay a piece that goes by packets, never
//! change or refuse it. Headers are made of the entry alone, without reading payload.

use udma_abi::{CqeStatus, Nanos, NotifyKind, OpKind, Opcode, Sqe, cmd::Mode, sqe::SqeFlags};
use urma_packet::{
    AtomicOp, AtomicOperands, Initiator, Invalidate, MemoryAccess, Notify, OperandSize, OrderTag,
    RequestFlags, RequestHeader, RequestOp, TokenId, TokenValue, TransactionHeader, WriteImm,
    packetizer::Sideband,
};

use crate::{
    carrier::{Carrier, PeerCarrier, piece::Payload},
    context::{plugged::PluggedModel, tables::Tables},
    endpoint::{PeerTp, TpEndpoint},
    engine::{
        direct::{low32, segment_token},
        gather::{self, Local, Segments},
        names::{NamedBytes, Naming},
    },
    exchange::{
        initiator::{flow::Request, send_queues::Sender},
        pair,
    },
    nic::{LookedUp, Lookup},
    transport::PushError,
};

/// Shortest message, in bytes, that the receiver reads in place: a shorter one is copied through the ring in less
/// time than the receiver needs to look at its place.
const NAMED_MIN: u32 = 1 << 10;

/// Shortest message, in bytes, that the receiver reads through the kernel: the call takes as long as four copies of
/// this length.
const NAMED_TO_KERNEL_MIN: u32 = 8 << 10;

/// Least payload in bytes of a piece that becomes its own packet, and is gathered directly into it.
const PACKET_OF_ITS_OWN: usize = 1 << 10;

/// The next piece of a request.
#[derive(Debug)]
pub(crate) struct NextPiece {
    pub(crate) header: RequestHeader,
    pub(crate) payload: Payload,
    pub(crate) packet: Sideband,
}

impl NextPiece {
    pub(crate) fn of(request: &Request, size: usize) -> Self {
        let payload = if request.placed { Payload::Placed } else { Payload::Here };
        Self::new(request, payload, size)
    }

    pub(crate) fn naming(request: &Request, bytes: NamedBytes) -> Self {
        Self::new(request, Payload::Named(bytes), bytes.len as usize)
    }

    fn new(request: &Request, payload: Payload, size: usize) -> Self {
        let mut header = request.header;
        let carries = header.op.has_payload() && payload != Payload::Placed;
        let len = if carries { request.len } else { 0 };
        let packet = request.cut.next_packet((request.seq, len), size);
        header.flags.set(RequestFlags::FIRST, packet.first);
        header.flags.set(RequestFlags::LAST, packet.last);
        header.access.address = header.access.address.wrapping_add(u64::from(request.cut.done()));
        Self { header, payload, packet }
    }

    /// Room in bytes that it needs behind the header.
    pub(crate) fn room(&self) -> usize {
        if let Payload::Named(named) = self.payload { named.room() } else { self.len() }
    }

    /// Number of bytes behind the header.
    pub(crate) fn carried(&self) -> usize {
        if let Payload::Named(_) = self.payload { NamedBytes::ENCODED_LEN } else { self.len() }
    }

    /// Bytes of the message that go with it.
    pub(crate) const fn len(&self) -> usize {
        self.packet.len as usize
    }

    pub(crate) const fn is_first(&self) -> bool {
        self.packet.first
    }

    /// Whether a message with its own payload begins with this piece, for the first time.
    pub(crate) fn begins_payload(&self) -> bool {
        let again = self.header.flags.contains(RequestFlags::RETRY);
        self.is_first() && !again && self.header.op.has_payload() && self.payload != Payload::Placed
    }

    pub(crate) const fn is_last(&self) -> bool {
        self.packet.last
    }

    pub(crate) fn is_datagram(&self) -> bool {
        self.header.flags.contains(RequestFlags::DATAGRAM)
    }

    /// Passes the piece to the carrier; `bytes` is a buffer for its payload.
    pub(crate) fn push(
        &self,
        line: &mut PeerCarrier,
        (request, sender): (&Request, &mut Sender),
        tables: &Tables,
        (endpoint, bytes): (&mut TpEndpoint, &mut Vec<u8>),
    ) -> Result<(), NotPushed> {
        let header = TransactionHeader::Request(self.header);
        if let Some(Carrier::Packets(peer)) = &line.carrier
            && self.fills_packet()
        {
            let tp = endpoint.tp_mut(*peer).ok_or(NotPushed::NoRoom)?;
            return self.push_to(tp, (request, sender), tables);
        }
        self.read(request, sender, tables, bytes)?;
        let carried = &bytes[..self.carried()];
        if let Some(Carrier::Packets(peer)) = &line.carrier
            && self.is_datagram()
        {
            let uasid = tables.uasid_of(sender.side.owner);
            return Ok(endpoint.push_datagram(*peer, uasid, (&self.header, carried))?);
        }
        let is_pushed = line.push(endpoint, &header, self.payload, carried);
        is_pushed.then_some(()).ok_or(NotPushed::NoRoom)
    }

    /// Passes a piece that becomes its own packet to the TP.
    pub(crate) fn push_to(
        &self,
        tp: &mut PeerTp,
        (request, sender): (&Request, &mut Sender),
        tables: &Tables,
    ) -> Result<(), NotPushed> {
        let header = TransactionHeader::Request(self.header);
        let fill = |room: &mut [u8]| Ok(self.gather(request, sender, tables, room)?);
        tp.push_packet(&header, self.len(), fill)
    }

    /// Whether it becomes its own packet: others could not join it.
    pub(crate) fn fills_packet(&self) -> bool {
        self.len() >= PACKET_OF_ITS_OWN && !self.is_datagram() && self.payload == Payload::Here
    }

    /// Gathers the piece's payload into `room`, which has the same length.
    fn gather(
        &self,
        request: &Request,
        sender: &mut Sender,
        tables: &Tables,
        room: &mut [u8],
    ) -> Result<(), CqeStatus> {
        let mut segments = Segments { cache: &mut sender.cache, table: &tables.segments };
        let at = u64::from(request.cut.done());
        gather::read_out(&request.local, &request.words, &mut segments, at, room)
    }

    /// Gathers the piece's payload to the front of `bytes`.
    fn read(
        &self,
        request: &Request,
        sender: &mut Sender,
        tables: &Tables,
        bytes: &mut Vec<u8>,
    ) -> Result<(), CqeStatus> {
        if self.is_datagram() && !self.is_last() {
            // The engine knows the MTU of this node; that of the path may be smaller.
            return Err(CqeStatus::LocLen);
        }
        if bytes.len() < self.carried() {
            bytes.resize(self.carried(), 0);
        }
        if let Payload::Named(named) = &self.payload {
            bytes[..NamedBytes::ENCODED_LEN].copy_from_slice(&named.encode());
            return Ok(());
        }
        self.gather(request, sender, tables, &mut bytes[..self.len()])
    }
}

/// Why a piece was not pushed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NotPushed {
    NoRoom,
    /// Its headers contradict each other.
    Dead,
    /// Its bytes cannot be read.
    Unread(CqeStatus),
}

impl From<PushError> for NotPushed {
    fn from(error: PushError) -> Self {
        match error {
            // The endpoint reports a TP that gave up.
            PushError::WindowFull | PushError::Failed(_) => Self::NoRoom,
            PushError::Header(_) => Self::Dead,
        }
    }
}

impl From<CqeStatus> for NotPushed {
    fn from(status: CqeStatus) -> Self {
        Self::Unread(status)
    }
}

/// Names the next bytes of a request, if they are long and the receiver can read them in place. A request that is
/// sent again carries its bytes, and one whose bytes are placed has none.
pub(crate) fn name(
    request: &Request,
    segments: Segments<'_>,
    Naming { epoch, len_max, taken }: Naming,
) -> Option<NamedBytes> {
    let never = RequestFlags::DATAGRAM | RequestFlags::RETRY;
    let op = &request.header.op;
    let is_taken = op.is_send() || (op.has_payload() && !request.placed && taken.has_writes());
    let is_long = is_taken && request.len >= NAMED_MIN;
    if !is_long || request.header.flags.intersects(never) {
        return None;
    }
    let Local::Sges { num: 1, .. } = request.local else { return None };
    let sge = gather::list(request.local.pieces(&request.words)).next()?;
    let segment = segments.cache.find(segments.table, sge.token_id)?;
    let done = request.cut.done();
    let (va, len) = (sge.va.wrapping_add(u64::from(done)), request.len - done);
    let by_kernel = taken.has_process() && request.len >= NAMED_TO_KERNEL_MIN;
    segment.offset_of(sge.va, u64::from(sge.len)).filter(|_| segment.has_extents || by_kernel)?;
    let len = len.min(u32::try_from(len_max).unwrap_or(u32::MAX));
    Some(NamedBytes { token_id: sge.token_id, len, va, life: segment.life, epoch })
}

/// Queue, piece and request.
type PieceOf<'a> = (u32, &'a NextPiece, &'a Request);

/// When the piece may be sent, in virtual time; 0: now. The model takes its message at the first piece.
#[inline(always)]
pub(crate) fn ready_at(tables: &Tables, carrier: &Carrier, of: PieceOf<'_>, now: Nanos) -> Nanos {
    match (&tables.nic, carrier) {
        (Some(nic), Carrier::Packets(_)) if nic.is_paced() => cut_at(nic, of, now),
        _ => 0,
    }
}

#[cold]
fn cut_at(nic: &PluggedModel, (queue, piece, request): PieceOf<'_>, now: Nanos) -> Nanos {
    let key = (queue, request.seq);
    if piece.begins_payload() && !nic.knows(key) {
        nic.on_message((now, key), request.local.sizes(&request.words));
    }
    nic.packet_ready_at(key, u64::from(request.cut.done()) + u64::from(piece.packet.len))
}

/// Notes that the piece was given to the carrier.
#[inline(always)]
pub(crate) fn on_pushed(tables: &Tables, line: &PeerCarrier, of: PieceOf<'_>, now: Nanos) {
    if let Some(nic) = &tables.nic {
        note_pushed(nic, line, of, now);
    }
}

#[cold]
fn note_pushed(nic: &PluggedModel, line: &PeerCarrier, of: PieceOf<'_>, now: Nanos) {
    let (queue, piece, request) = of;
    if nic.has_messages() && line.is_packets() {
        let key = (queue, request.seq);
        if nic.is_paced() {
            if piece.is_last() {
                nic.end_message(key);
            }
        } else if piece.begins_payload() {
            nic.on_message((now, key), request.local.sizes(&request.words));
        }
    }
    // Queue and TP stay on the chip from the first to the last piece of a message with several.
    if nic.has_contexts() && piece.is_first() != piece.is_last() {
        let tp = Sqe::decode(&request.words).map(|sqe| LookedUp::Tp(sqe.tpn));
        let lookup = if piece.is_first() { Lookup::Pin } else { Lookup::Unpin };
        nic.on_lookup(lookup, std::iter::once(LookedUp::Queue(queue)).chain(tp));
    }
}

/// Creates the header that all pieces of a request share; offset, FIRST and LAST are those of a one-piece message.
/// `None`: the entry asks nothing of a peer.
pub(crate) fn header(
    sqe: &Sqe,
    initiator: Initiator,
    mode: Mode,
    len: u32,
) -> Option<RequestHeader> {
    let op = operation(sqe, len)?;
    let token =
        if op.is_send() { sqe.token_en.then_some(sqe.token_value) } else { segment_token(sqe) };
    let access = if op.is_send() {
        MemoryAccess { address: 0, token_id: TokenId::default(), length: len }
    } else {
        MemoryAccess { address: sqe.remote_va, token_id: tid(sqe.seg_token_id), length: len }
    };
    Some(RequestHeader {
        flags: flags(sqe, mode),
        order: order(sqe.flags),
        tassn: 0,
        initiator,
        target: (sqe.target_id != 0 || op.is_two_sided()).then(|| pair::target(sqe)),
        token: token.map(TokenValue),
        access,
        op,
    })
}

fn operation(sqe: &Sqe, len: u32) -> Option<RequestOp> {
    let notify = || Notify {
        address: sqe.notify_va,
        token_id: tid(sqe.notify_token_id),
        token: TokenValue(sqe.seg_token_value),
        data: sqe.imm,
    };
    Some(match sqe.opcode.kind() {
        OpKind::Send => RequestOp::Send,
        OpKind::SendImm => RequestOp::SendImm(sqe.imm),
        OpKind::SendInvalidate => {
            let token = TokenValue(sqe.seg_token_value);
            RequestOp::SendInvalidate(Invalidate { token_id: tid(sqe.seg_token_id), token })
        }
        OpKind::Write => RequestOp::Write,
        OpKind::WriteImm => {
            let token = sqe.token_en.then_some(TokenValue(sqe.token_value));
            RequestOp::WriteImm(WriteImm { imm: sqe.imm, token })
        }
        OpKind::WriteNotify(NotifyKind::Store) => RequestOp::WriteNotify(notify()),
        OpKind::WriteNotify(NotifyKind::Add) => RequestOp::WriteAtomicAdd(notify()),
        OpKind::Read => RequestOp::Read,
        OpKind::FlushDma => RequestOp::FlushDma,
        OpKind::Atomic(_) => {
            let op = AtomicOp::from_code(sqe.opcode as u8).ok()?;
            RequestOp::Atomic(op, operands(sqe, op, len)?)
        }
        OpKind::Nop => return None,
    })
}

// An atomic has the same code in entries as on the wire.
const _: () = {
    let mut index = 0;
    while index < Opcode::ALL.len() {
        let opcode = Opcode::ALL[index];
        assert!(opcode.is_atomic() == AtomicOp::from_code(opcode as u8).is_ok());
        index += 1;
    }
};

fn operands(sqe: &Sqe, op: AtomicOp, len: u32) -> Option<AtomicOperands> {
    let (size, operand, compare) = match len {
        4 => (OperandSize::B4, u64::from(low32(sqe.operand)), u64::from(low32(sqe.compare))),
        8 => (OperandSize::B8, sqe.operand, sqe.compare),
        _ => return None,
    };
    let compare = if op == AtomicOp::CompareSwap { compare } else { 0 };
    Some(AtomicOperands { size, operand: u128::from(operand), compare: u128::from(compare) })
}

fn flags(sqe: &Sqe, mode: Mode) -> RequestFlags {
    let mut flags = RequestFlags::ONLY;
    flags.set(RequestFlags::SOLICITED, sqe.flags.contains(SqeFlags::SOLICITED));
    flags.set(RequestFlags::COMP_ORDER, sqe.flags.contains(SqeFlags::COMP_ORDER));
    flags.set(RequestFlags::FENCE, sqe.flags.contains(SqeFlags::FENCE));
    let datagram = RequestFlags::DATAGRAM | RequestFlags::NO_TAACK;
    flags.set(datagram, mode == Mode::Um);
    flags
}

fn order(flags: SqeFlags) -> OrderTag {
    if flags.contains(SqeFlags::ORDER_STRONG) {
        OrderTag::Strong
    } else if flags.contains(SqeFlags::ORDER_RELAXED) {
        OrderTag::Relaxed
    } else {
        OrderTag::None
    }
}

fn tid(token_id: u32) -> TokenId {
    TokenId::from_low_bits(token_id >> 8)
}
