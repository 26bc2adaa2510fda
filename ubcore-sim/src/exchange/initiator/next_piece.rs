//! The next piece of a request, and its bytes.
//!
//! *Owns*: header and length of a piece. *Takes*: a request, the size of pieces. *Gives*: headers and bytes. *Must
//! not*: push; change the request.

use udma_abi::CqeStatus;
use urma_packet::{RequestFlags, RequestHeader, TransactionHeader};

use crate::carrier::{Carrier, PeerCarrier, piece::Payload};
use crate::context::tables::Tables;
use crate::endpoint::{PeerTp, TpEndpoint};
use crate::engine::gather::{self, Local, Segments};
use crate::engine::names::{NamedBytes, Naming};
use crate::exchange::initiator::flow::Request;
use crate::exchange::initiator::send_queues::Sender;
use crate::transport::PushError;

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
    pub(crate) len: usize,
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
        let left = if carries { (request.len - request.pushed) as usize } else { 0 };
        let len = left.min(size);
        header.flags.set(RequestFlags::FIRST, !request.begun);
        header.flags.set(RequestFlags::LAST, len == left);
        header.access.address = header.access.address.wrapping_add(u64::from(request.pushed));
        Self { header, payload, len }
    }

    /// Room in bytes that it needs behind the header.
    pub(crate) fn room(&self) -> usize {
        if let Payload::Named(named) = self.payload { named.room() } else { self.len }
    }

    /// Number of bytes behind the header.
    pub(crate) fn carried(&self) -> usize {
        if let Payload::Named(_) = self.payload { NamedBytes::ENCODED_LEN } else { self.len }
    }

    pub(crate) fn is_first(&self) -> bool {
        self.header.flags.contains(RequestFlags::FIRST)
    }

    /// Whether a message with its own payload begins with this piece, for the first time.
    pub(crate) fn begins_payload(&self) -> bool {
        let again = self.header.flags.contains(RequestFlags::RETRY);
        self.is_first() && !again && self.header.op.has_payload() && self.payload != Payload::Placed
    }

    pub(crate) fn is_last(&self) -> bool {
        self.header.flags.contains(RequestFlags::LAST)
    }

    pub(crate) fn len_u32(&self) -> u32 {
        // No piece is longer than its message.
        u32::try_from(self.len).unwrap_or(u32::MAX)
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
        tp.push_packet(&header, self.len, fill)
    }

    /// Whether it becomes its own packet: others could not join it.
    pub(crate) fn fills_packet(&self) -> bool {
        self.len >= PACKET_OF_ITS_OWN && !self.is_datagram() && self.payload == Payload::Here
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
        let at = u64::from(request.pushed);
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
        self.gather(request, sender, tables, &mut bytes[..self.len])
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
    let (va, len) = (sge.va.wrapping_add(u64::from(request.pushed)), request.len - request.pushed);
    let by_kernel = taken.has_process() && request.len >= NAMED_TO_KERNEL_MIN;
    segment.offset_of(sge.va, u64::from(sge.len)).filter(|_| segment.has_extents || by_kernel)?;
    let len = len.min(u32::try_from(len_max).unwrap_or(u32::MAX));
    Some(NamedBytes { token_id: sge.token_id, len, va, life: segment.life, epoch })
}
