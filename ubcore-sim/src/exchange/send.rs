//! The initiator's side: from the mail of send queues to pieces, in turn among all sequences.
//!
//! *Owns*: send queues as the exchange knows them, deadlines. *Takes*: mail. *Gives*: pieces, ends.
//! *Must not*: push a piece before the carrier has room for it; end a request twice.

use std::collections::BTreeMap;

use udma_abi::{CqeStatus, Nanos, Sqe, counters::Counter};
use urma_packet::{RequestFlags, RequestHeader, TransactionHeader};

use super::carrier::{Carrier, Payload};
use super::flow::{Flow, Request};
use super::pair::Pair;
use super::peer::Peer;
use super::ways::Numbers;
use super::{SendSide, Work, pair, request};
use crate::context::segment::SegmentCache;
use crate::engine::base::Base;
use crate::engine::gather::{self, Local, Segments};
use crate::engine::mail::{Ended, Handed};

/// Attempts under way to one peer.
pub(super) const UNDER_WAY_MAX: usize = 2048;
/// Shortest time without an answer that ends a request, as the UDMA hardware has it for error timeouts
/// of 0 to 7. Programs ask for 3 and mean "soon"; 33 us would end requests whose peer merely waits
/// for a processor.
const TIMEOUT_MIN_NS: Nanos = 128_000_000;

/// A send queue.
#[derive(Debug)]
pub(super) struct Sender {
    pub(super) side: SendSide,
    pub(super) cache: SegmentCache,
}

impl Sender {
    pub(super) fn timeout_ns(&self) -> Nanos {
        (4096u64 << self.side.err_timeout.min(31)).max(TIMEOUT_MIN_NS)
    }
}

/// All send queues, and those that have ends to take.
#[derive(Debug, Default)]
pub(super) struct Senders {
    by_id: BTreeMap<u32, Sender>,
    pub(super) wake: Vec<u32>,
}

impl Senders {
    pub(super) fn add(&mut self, side: SendSide) {
        self.by_id.insert(side.id, Sender { side, cache: SegmentCache::default() });
    }

    pub(super) fn remove(&mut self, id: u32) {
        self.by_id.remove(&id);
    }

    /// Numbers of all send queues.
    pub(super) fn ids(&self) -> impl Iterator<Item = u32> + '_ {
        self.by_id.keys().copied()
    }

    pub(super) fn get_mut(&mut self, id: u32) -> Option<&mut Sender> {
        self.by_id.get_mut(&id)
    }

    /// What a queue handed over next.
    pub(super) fn next_handed(&self, id: u32) -> Option<Handed> {
        let handed = &self.by_id.get(&id)?.side.mail.handed;
        // The look is cheaper than to find nothing by taking.
        if handed.is_empty() { None } else { handed.pop() }
    }

    pub(super) fn forget_dead(&mut self) {
        for sender in self.by_id.values_mut() {
            sender.cache.drop_dead();
        }
    }

    /// The end of a request.
    pub(super) fn end(&mut self, queue: u32, seq: u32, status: CqeStatus, bytes: u32) {
        let Some(sender) = self.by_id.get(&queue) else { return };
        // There is room for an end of each request that the mail can hand over.
        let _ = sender.side.mail.ended.push(Ended { seq, status, bytes });
        if self.wake.last() != Some(&queue) {
            self.wake.push(queue);
        }
    }

    /// The request of an entry that was handed over, and whose sequence it belongs to.
    pub(super) fn request(
        &mut self,
        id: u32,
        sqe: &Sqe,
        handed: &Handed,
    ) -> Option<(Pair, Request)> {
        let side = &self.by_id.get(&id)?.side;
        let initiator = pair::initiator(id, side.is_jetty);
        let header = request::header(sqe, initiator, side.mode, handed.len)?;
        let mut request = Request::new(handed.seq, handed.words, header, Local::of(sqe));
        request.placed = handed.placed;
        Some((Pair::of_request(&header), request))
    }
}

/// What became of a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Turn {
    /// A piece went; the flow may have more.
    Pushed,
    /// The carrier takes nothing now.
    Full,
    /// The flow has nothing to push now.
    Idle,
}

impl Peer {
    /// Takes a request into its sequence.
    pub(super) fn take_request(&mut self, work: &mut Work<'_>, pair: Pair, mut request: Request) {
        let sender = work.senders.get_mut(pair.queue());
        let (timeout, priority) =
            sender.map_or((TIMEOUT_MIN_NS, 0), |s| (s.timeout_ns(), s.side.priority));
        request.placed &= !matches!(self.carrier, Some(Carrier::Packets(_)));
        let flow = self.flows.entry(pair).or_insert_with(Flow::new);
        if flow.is_empty() {
            flow.wait_from(work.now, timeout);
            self.timer = self.timer.min(flow.doubt_at());
        }
        flow.push(request);
        flow.priority = priority;
        if !std::mem::replace(&mut flow.listed, true) {
            self.turn.push(pair, priority);
        }
    }

    /// Forgets the requests of a queue without an end.
    pub(super) fn purge(&mut self, queue: u32) {
        for (_, flow) in self.flows.iter_mut().filter(|(pair, _)| pair.queue() == queue) {
            flow.clear(|_| ());
        }
        self.recount();
    }

    /// Pushes pieces of requests, as [`super::turns`] says.
    pub(super) fn push_requests(&mut self, work: &mut Work<'_>, budget: &mut usize) -> bool {
        let mut busy = false;
        while *budget > 0
            && let Some(seat) = self.turn.pop()
        {
            match self.push_next(work, seat.pair) {
                Turn::Pushed => {
                    self.turn.push_again(seat);
                    *budget -= 1;
                    busy = true;
                }
                Turn::Full => {
                    self.turn.put_back(seat);
                    break;
                }
                Turn::Idle => {
                    if let Some(flow) = self.flows.get_mut(&seat.pair) {
                        flow.listed = false;
                    }
                }
            }
        }
        busy
    }

    fn push_next(&mut self, work: &mut Work<'_>, pair: Pair) -> Turn {
        if self.under_way >= UNDER_WAY_MAX {
            self.recount();
        }
        let now = work.now;
        let Self { flows, carrier, under_way, .. } = self;
        let (Some(flow), Some(carrier)) = (flows.get_mut(&pair), carrier) else {
            return Turn::Idle;
        };
        let Some(request) = flow.current(now) else { return Turn::Idle };
        if *under_way >= UNDER_WAY_MAX && !request.begun {
            return Turn::Full;
        }
        let piece = Piece::of(request, carrier.piece_max());
        if !piece.has_room(carrier) {
            return Turn::Full;
        }
        let Some(sender) = work.senders.get_mut(pair.queue()) else {
            flow.clear(|_| ());
            return Turn::Idle;
        };
        let timeout = sender.timeout_ns();
        if let Err(status) = piece.read(request, sender, work.base, work.bytes) {
            let seq = request.seq;
            flow.drop_current();
            work.senders.end(pair.queue(), seq, status, 0);
            return Turn::Pushed;
        }
        match piece.push(carrier, request, &work.bytes[..piece.len], work.numbers) {
            Ok(()) => {}
            Err(super::carrier::Broken::Full) => return Turn::Full,
            Err(super::carrier::Broken::Dead) => {
                self.lied = true;
                return Turn::Full;
            }
        }
        count(work.base, carrier, &piece, request);
        let (seq, len) = (request.seq, request.len);
        request.pushed += piece.len_u32();
        if piece.header.flags.contains(RequestFlags::DATAGRAM) {
            flow.drop_current();
            work.senders.end(pair.queue(), seq, CqeStatus::Success, len);
        } else {
            if piece.is_first() {
                flow.on_begun();
                *under_way += 1;
            }
            if piece.is_last() {
                flow.on_pushed();
            }
        }
        flow.wait_from(now, timeout);
        self.timer = self.timer.min(flow.doubt_at());
        Turn::Pushed
    }

    /// Looks at deadlines when one is due.
    pub(super) fn on_time(&mut self, work: &mut Work<'_>) {
        if work.now < self.timer {
            return;
        }
        let now = work.now;
        self.timer = Nanos::MAX;
        let (mut ended, mut doubted) = (false, None);
        for (pair, flow) in &mut self.flows {
            let deadline = flow.deadline(self.carrier.as_ref());
            if !flow.is_empty() && deadline <= now {
                let timeout = CqeStatus::AckTimeout;
                flow.clear(|request| work.senders.end(pair.queue(), request.seq, timeout, 0));
                ended = true;
            }
            if flow.is_empty() {
                continue;
            }
            if flow.doubt_at() <= now {
                doubted = doubted.max(Some(flow.since()));
            }
            self.timer = self.timer.min(flow.look_at(now, deadline));
            match flow.held_until() {
                Some(until) if now < until => self.timer = self.timer.min(until),
                Some(_) if !std::mem::replace(&mut flow.listed, true) => {
                    self.turn.push(*pair, flow.priority);
                }
                _ => {}
            }
        }
        if ended {
            self.recount();
        }
        if let (Some(since), Some(Carrier::Packets(packets))) = (doubted, &mut self.carrier) {
            packets.doubt(now, since, || work.numbers.random());
        }
    }
}

/// The next piece of a request.
#[derive(Debug)]
struct Piece {
    header: RequestHeader,
    payload: Payload,
    len: usize,
}

impl Piece {
    fn of(request: &Request, size: usize) -> Self {
        let mut header = request.header;
        let carries = header.op.has_payload() && !request.placed;
        let left = if carries { (request.len - request.pushed) as usize } else { 0 };
        let len = left.min(size);
        header.flags.set(RequestFlags::FIRST, !request.begun);
        header.flags.set(RequestFlags::LAST, len == left);
        header.access.address = header.access.address.wrapping_add(u64::from(request.pushed));
        let payload = if request.placed { Payload::Placed } else { Payload::Here };
        Self { header, payload, len }
    }

    fn is_first(&self) -> bool {
        self.header.flags.contains(RequestFlags::FIRST)
    }

    fn is_last(&self) -> bool {
        self.header.flags.contains(RequestFlags::LAST)
    }

    fn len_u32(&self) -> u32 {
        // No piece is longer than its message.
        u32::try_from(self.len).unwrap_or(u32::MAX)
    }

    fn is_datagram(&self) -> bool {
        self.header.flags.contains(RequestFlags::DATAGRAM)
    }

    fn has_room(&self, carrier: &mut Carrier) -> bool {
        match carrier {
            Carrier::Packets(packets) if self.is_datagram() => packets.has_datagram_room(),
            carrier => carrier.has_room(&TransactionHeader::Request(self.header), self.len),
        }
    }

    /// Gathers the piece's payload to the front of `bytes`.
    fn read(
        &self,
        request: &Request,
        sender: &mut Sender,
        base: &Base,
        bytes: &mut Vec<u8>,
    ) -> Result<(), CqeStatus> {
        if self.is_datagram() && !self.is_last() {
            // The engine knows the MTU of this node; that of the path may be smaller.
            return Err(CqeStatus::LocLen);
        }
        if bytes.len() < self.len {
            bytes.resize(self.len, 0);
        }
        let mut segments = Segments { cache: &mut sender.cache, table: &base.tables.segments };
        let at = u64::from(request.pushed);
        let room = &mut bytes[..self.len];
        gather::read_out(&request.local, &request.words, &mut segments, at, room)
    }

    fn push(
        &self,
        carrier: &mut Carrier,
        request: &Request,
        bytes: &[u8],
        numbers: &mut Numbers,
    ) -> Result<(), super::carrier::Broken> {
        debug_assert!(request.header.tassn == self.header.tassn, "one request, one number");
        match carrier {
            Carrier::Packets(packets) if self.is_datagram() => {
                let _ = packets.push_datagram(numbers.datagram(), &self.header, bytes);
                Ok(())
            }
            carrier => carrier.push(&TransactionHeader::Request(self.header), self.payload, bytes),
        }
    }
}

fn count(base: &Base, carrier: &Carrier, piece: &Piece, request: &Request) {
    let (requests, bytes) = match carrier {
        Carrier::Packets(_) => (Counter::PacketRequests, Counter::PacketBytes),
        Carrier::Ring(_) | Carrier::Loop(_) => (Counter::RingRequests, Counter::RingBytes),
    };
    let again = request.header.flags.contains(RequestFlags::RETRY);
    if piece.is_first() && !again {
        base.tables.counts.add_alone(requests, 1);
    }
    if !again {
        base.tables.counts.add_alone(bytes, piece.len as u64);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{engine::mail::Mail, exchange::Mode};

    fn timeout_ns(err_timeout: u8) -> Nanos {
        let side = SendSide {
            id: 1,
            is_jetty: true,
            mode: Mode::Rm,
            mail: Arc::new(Mail::new()),
            rnr_retry: 7,
            err_timeout,
            priority: 0,
        };
        Sender { side, cache: SegmentCache::default() }.timeout_ns()
    }

    #[test]
    fn a_small_error_timeout_outlasts_a_wait_for_a_processor() {
        assert_eq!((timeout_ns(0), timeout_ns(3)), (128_000_000, 128_000_000));
        assert_eq!(timeout_ns(17), 4096 << 17);
    }
}
