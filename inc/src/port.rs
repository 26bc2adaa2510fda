//! The edges of a switch or host behind one address: datagrams in, messages out, and back.
//!
//! - owns: a table of edges by QPN, which of them have packets to send, their timers.
//! - takes: datagrams, the time, messages to send. gives: messages, datagrams, dead edges.
//! - must not: know what a message means.
//!
//! QPNs begin at a random number, go up, and are not used again for a minute: a late packet of a closed edge meets no other one.
//! A packet is taken from the address of the edge's other end alone.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;

use urma_packet::roce::RocePacket;
use urma_packet::{IcrcFlow, PacketError, Psn, Tpn};

use crate::edge::{Edge, EdgeCfg, EdgeCfgError, EdgeCounts, EdgeEnd, Framing, WriteWindow};
use crate::slots::IncTime;
use crate::wire::{IncHeader, Seq};

/// A closed edge's QPN is free again after this time.
const QPN_REST: IncTime = 60_000_000_000;
/// Edges of one port at most: far fewer than QPNs, so that one is always free.
const EDGES_MAX: usize = 1 << 20;
/// Numbers in a row that other users of an address may have.
const CLAIMS_MAX: usize = 4096;
/// QPNs 0 and 1 are special on every RoCE node.
pub(crate) const QPN_MIN: u32 = 2;
pub(crate) const QPN_END: u32 = 1 << 24;
/// Bytes of one edge in a row: as many as one call of the system sends by segmentation offload.
const BURST: usize = 65_507;
/// Segmentation numbers the packets of a run in the Identification, which a socket does not show.
const ID_MAX: u16 = 63;

/// Numbers that no other station can guess, from the system's generator; in a simulation from its seed.
pub type RandomSource = Box<dyn FnMut() -> u64 + Send>;

/// The QPNs of an address that has other users as well.
pub trait QpnShare: Send + Sync + std::fmt::Debug {
    /// Takes a number: packets for it go to this port from now on. `false`: another user has it.
    fn claim(&self, qpn: Tpn) -> bool;
    /// Gives a number back.
    fn release(&self, qpn: Tpn);
}

/// An edge of a port, until it is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EdgeId(usize);

/// Why a datagram was not taken, and counts of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PortCounts {
    /// Refused before their edge was known, or by an edge, by the reasons of [`PacketError::REASONS`].
    pub refused: [u64; PacketError::REASONS.len()],
    /// The QPN is no edge's.
    pub unknown_qpns: u64,
    /// From another address than that of the edge's other end.
    pub wrong_sources: u64,
    /// Packets that came again.
    pub duplicates: u64,
    /// Gaps that were reported.
    pub naks: u64,
    /// Packets that were sent again.
    pub repeats: u64,
}

/// Datagrams that were refused before they were known to be an edge's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StrayCounts {
    /// By the reasons of [`PacketError::REASONS`].
    pub refused: [u64; PacketError::REASONS.len()],
    /// The QPN is no edge's.
    pub unknown_qpns: u64,
}

/// What happened on some edges of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EdgeTotals {
    /// Gaps that were reported.
    pub naks: u64,
    /// What was not taken, by [`EdgeTotals::REASONS`].
    pub drops: [u64; Self::REASONS.len()],
}

impl EdgeTotals {
    /// Why a packet or message is not taken: the reasons of [`PacketError::REASONS`]; a gap in a message of an unreliable
    /// edge; another source than the edge's other end.
    pub const REASONS: [&str; PacketError::REASONS.len() + 2] = {
        let mut reasons = ["gap"; PacketError::REASONS.len() + 2];
        let mut at = 0;
        while at < PacketError::REASONS.len() {
            reasons[at] = PacketError::REASONS[at];
            at += 1;
        }
        reasons[at + 1] = "source";
        reasons
    };

    /// Adds what happened on others.
    pub fn add(&mut self, more: &Self) {
        self.naks = self.naks.saturating_add(more.naks);
        for (sum, more) in self.drops.iter_mut().zip(more.drops) {
            *sum = sum.saturating_add(more);
        }
    }

    fn of(edge: &EdgeCounts, wrong_sources: u64) -> Self {
        let mut drops = [0; Self::REASONS.len()];
        let others = [edge.dropped, wrong_sources];
        for (drop, count) in drops.iter_mut().zip(edge.refused.into_iter().chain(others)) {
            *drop = count;
        }
        Self { naks: edge.naks, drops }
    }
}

/// A datagram to be sent: its bytes are the first `len` of the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortDatagram {
    /// Address of this end.
    pub source: SocketAddr,
    /// Address of the other end.
    pub dest: SocketAddr,
    /// UDP payload in bytes, ICRC included.
    pub len: usize,
}

struct PortEdge<O> {
    owner: O,
    here: EdgeEnd,
    /// `None`: the other end is not known yet.
    open: Option<OpenEdge>,
    is_ready: bool,
    is_timed: bool,
    is_dead: bool,
    /// Datagrams from another address than that of the other end.
    wrong_sources: u64,
    /// Datagrams whose ICRC or form is wrong, though they name this edge.
    refused: [u64; PacketError::REASONS.len()],
}

struct OpenEdge {
    edge: Edge,
    there: SocketAddr,
    /// The largest Identification that IPv4 packets of the other end may have, which a socket does not show.
    id_max: u16,
    out: IcrcFlow,
    back: IcrcFlow,
}

/// The edges of a switch or host; each has an owner of type `O`.
pub struct EdgePort<O> {
    random: RandomSource,
    edges: Vec<Option<PortEdge<O>>>,
    /// Unused places of `edges`.
    free: Vec<usize>,
    /// `None`: of a closed edge that rests.
    by_qpn: HashMap<u32, Option<usize>>,
    qpns: Range<u32>,
    next_qpn: u32,
    /// Who else has numbers of them; `None`: only this port.
    share: Option<Arc<dyn QpnShare>>,
    /// QPNs of closed edges, and when they were closed.
    resting: VecDeque<(u32, IncTime)>,
    ready: VecDeque<usize>,
    /// Bytes that the first ready edge has sent in a row, and those that its next packet may have.
    burst: (usize, usize),
    /// At most one entry an edge; the time may have moved on since.
    timers: BinaryHeap<Reverse<(IncTime, usize)>>,
    dead: VecDeque<usize>,
    /// Of edges that are closed.
    closed: PortCounts,
    strays: StrayCounts,
}

impl<O: Copy> EdgePort<O> {
    /// A port without edges, whose QPNs are these: more than a few millions.
    #[must_use]
    pub fn new(mut random: RandomSource, qpns: Range<u32>) -> Self {
        let next_qpn = qpns.start + low(random()) % (qpns.end - qpns.start);
        Self {
            random,
            edges: Vec::new(),
            free: Vec::new(),
            by_qpn: HashMap::new(),
            qpns,
            next_qpn,
            share: None,
            resting: VecDeque::new(),
            ready: VecDeque::new(),
            burst: (0, 0),
            timers: BinaryHeap::new(),
            dead: VecDeque::new(),
            closed: PortCounts::default(),
            strays: StrayCounts::default(),
        }
    }

    /// Others have QPNs of this address, too. To be called before there are edges.
    pub fn share_qpns(&mut self, with: Arc<dyn QpnShare>) {
        self.share = Some(with);
    }

    /// A new edge whose other end is not known yet, reached at `address`; `None`: there are too many.
    pub fn reserve(&mut self, now: IncTime, owner: O, address: SocketAddr) -> Option<EdgeId> {
        let is_rested = |(_, at): &mut (u32, IncTime)| now.saturating_sub(*at) >= QPN_REST;
        while let Some((qpn, _)) = self.resting.pop_front_if(is_rested) {
            self.by_qpn.remove(&qpn);
        }
        if self.by_qpn.len() >= EDGES_MAX {
            return None;
        }
        let qpn = (0..CLAIMS_MAX).find_map(|_| {
            while self.by_qpn.contains_key(&self.next_qpn) {
                self.next_qpn = self.qpn_after(self.next_qpn);
            }
            let qpn = self.next_qpn;
            self.next_qpn = self.qpn_after(qpn);
            let is_free = |share: &Arc<dyn QpnShare>| share.claim(Tpn::from_low_bits(qpn));
            self.share.as_ref().is_none_or(is_free).then_some(qpn)
        })?;
        let here = EdgeEnd {
            address,
            qpn: Tpn::from_low_bits(qpn),
            first_psn: Psn::new(low((self.random)())),
            window: WriteWindow { base: (self.random)() >> 17 << 12, key: low((self.random)()) },
        };
        let edge = PortEdge {
            owner,
            here,
            open: None,
            is_ready: false,
            is_timed: false,
            is_dead: false,
            wrong_sources: 0,
            refused: [0; PacketError::REASONS.len()],
        };
        let at = self.free.pop().unwrap_or_else(|| {
            self.edges.push(None);
            self.edges.len() - 1
        });
        self.edges[at] = Some(edge);
        self.by_qpn.insert(qpn, Some(at));
        Some(EdgeId(at))
    }

    /// This end of an edge.
    #[must_use]
    pub fn end(&self, id: EdgeId) -> Option<EdgeEnd> {
        Some(self.edges.get(id.0)?.as_ref()?.here)
    }

    /// The other end of an edge is known: packets may come and go. `cfg.here` is that of [`EdgePort::end`].
    ///
    /// # Errors
    /// [`EdgeCfgError`].
    pub fn open(&mut self, id: EdgeId, cfg: EdgeCfg) -> Result<(), EdgeCfgError> {
        let edge = Edge::new(cfg)?;
        let Some(Some(place)) = self.edges.get_mut(id.0) else { return Ok(()) };
        let (here, there) = (place.here.address, cfg.there.address);
        let (out, back) = (IcrcFlow::new(here, there), IcrcFlow::new(there, here));
        let id_max = match cfg.attributes.framing {
            Framing::Inc => ID_MAX,
            // The other end may be a verbs program, and Linux rxe and NICs give their packets any.
            Framing::Plain(_) => u16::MAX,
        };
        place.open = Some(OpenEdge { edge, there, id_max, out, back });
        Ok(())
    }

    /// Forgets an edge. Its QPN rests.
    pub fn close(&mut self, now: IncTime, id: EdgeId) {
        let Some(edge) = self.edges.get_mut(id.0).and_then(Option::take) else { return };
        let qpn = edge.here.qpn.value();
        if let Some(share) = &self.share {
            share.release(edge.here.qpn);
        }
        self.by_qpn.insert(qpn, None);
        self.resting.push_back((qpn, now));
        self.closed.add(&edge.counts(), edge.wrong_sources);
        self.ready.retain(|at| *at != id.0);
        self.timers.retain(|Reverse((_, at))| *at != id.0);
        self.dead.retain(|at| *at != id.0);
        self.free.push(id.0);
    }

    /// Edges that there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.edges.len() - self.free.len()
    }

    /// Whether there is no edge.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What happened so far, on all edges.
    #[must_use]
    pub fn counts(&self) -> PortCounts {
        let mut all = self.closed;
        for edge in self.edges.iter().flatten() {
            all.add(&edge.counts(), edge.wrong_sources);
        }
        for (sum, more) in all.refused.iter_mut().zip(self.strays.refused) {
            *sum += more;
        }
        all.unknown_qpns = self.strays.unknown_qpns;
        all
    }

    /// Whether a datagram is for one of the QPNs that this port may have.
    #[must_use]
    pub fn is_for(&self, bytes: &[u8]) -> bool {
        // Bytes 5 to 7 of the base transport header.
        bytes.get(5..8).is_some_and(|qpn| {
            let qpn = qpn.iter().fold(0, |qpn, byte| qpn << 8 | u32::from(*byte));
            self.qpns.contains(&qpn)
        })
    }

    /// What was refused before it was known to be an edge's.
    #[must_use]
    pub fn strays(&self) -> StrayCounts {
        self.strays
    }

    /// What happened on an edge so far.
    #[must_use]
    pub fn totals(&self, id: EdgeId) -> EdgeTotals {
        let edge = self.edges.get(id.0).and_then(Option::as_ref);
        edge.map_or_else(EdgeTotals::default, |edge| {
            EdgeTotals::of(&edge.counts(), edge.wrong_sources)
        })
    }

    /// A datagram for this port. The message that it completes, if it does: the owner of its edge, header and data.
    pub fn on_datagram(
        &mut self,
        now: IncTime,
        source: SocketAddr,
        bytes: &[u8],
        take: impl FnOnce(O, &IncHeader, &[u8]),
    ) -> Option<EdgeId> {
        // No edge is looked for before the packet has the form of one.
        let packet = match RocePacket::parse(bytes) {
            Ok(packet) => packet,
            Err(error) => {
                self.strays.refused[error.index()] += 1;
                return None;
            }
        };
        let at = self.by_qpn.get(&packet.header.bth.dest.value()).copied().flatten();
        let Some((at, place)) = at.and_then(|at| Some((at, self.edges[at].as_mut()?))) else {
            self.strays.unknown_qpns += 1;
            return None;
        };
        let Some(open) = &mut place.open else {
            self.strays.unknown_qpns += 1;
            return None;
        };
        if source.ip().to_canonical() != open.there.ip().to_canonical() {
            place.wrong_sources += 1;
            return None;
        }
        // A NIC's source port may be any.
        let other =
            (source.port() != open.there.port()).then(|| IcrcFlow::new(source, place.here.address));
        let flow = other.as_ref().unwrap_or(&open.back);
        let checked = flow.of_len(bytes.len()).and_then(|f| f.verify_id_up_to(bytes, open.id_max));
        if let Err(error) = checked {
            place.refused[error.index()] += 1;
            return None;
        }
        // The edge counts its refusals.
        if let Ok(Some((header, data))) = open.edge.on_packet(now, &packet) {
            take(place.owner, &header, data);
        }
        self.look_at(at);
        Some(EdgeId(at))
    }

    /// Queues a message on an edge; nothing happens on one that is closed or dead.
    ///
    /// # Errors
    /// [`PacketError::Length`]: it does not fit the packets of a message.
    pub fn send(&mut self, id: EdgeId, header: &IncHeader) -> Result<(), PacketError> {
        let place = self.edges.get_mut(id.0).and_then(Option::as_mut);
        let Some(open) = place.and_then(|place| place.open.as_mut()) else { return Ok(()) };
        open.edge.send(header)?;
        self.look_at(id.0);
        Ok(())
    }

    /// The data of all messages on an edge is gone: `header`, an abort, is sent instead.
    pub fn abort(&mut self, id: EdgeId, header: &IncHeader) {
        let place = self.edges.get_mut(id.0).and_then(Option::as_mut);
        if let Some(open) = place.and_then(|place| place.open.as_mut()) {
            open.edge.abort(header);
            self.look_at(id.0);
        }
    }

    /// The other end of an edge has shown that it has all messages up to chunk `seq`.
    pub fn on_proof(&mut self, now: IncTime, id: EdgeId, seq: Seq) {
        let place = self.edges.get_mut(id.0).and_then(Option::as_mut);
        if let Some(open) = place.and_then(|place| place.open.as_mut()) {
            open.edge.on_proof(now, seq);
        }
    }

    /// The next datagram, written to `buf`: at least 4096 bytes and the headers. `data` gives the data of a chunk that an
    /// owner sends.
    pub fn poll_transmit<'d>(
        &mut self,
        now: IncTime,
        buf: &mut [u8],
        data: impl Fn(O, Seq) -> &'d [u8],
    ) -> Option<PortDatagram> {
        while let Some(&at) = self.ready.front() {
            let place = self.edges[at].as_mut()?;
            let Some(open) = &mut place.open else { return None };
            let (sent, next) = self.burst;
            let is_over = sent + next > BURST;
            if !is_over && let Some(packet) = open.edge.poll_packet(now) {
                let inc = packet.inc.as_ref().map_or(&[][..], |inc| &inc[..]);
                let range = packet.data.clone();
                let all = if range.is_empty() { &[][..] } else { data(place.owner, packet.seq) };
                let Some(piece) = all.get(range) else {
                    open.edge.on_data_gone();
                    self.look_at(at);
                    continue;
                };
                let (source, dest) = (place.here.address, open.there);
                let Ok(frame) = packet.header.emit_headers(inc.len() + piece.len(), buf) else {
                    continue;
                };
                let (to_inc, to_data) = buf[frame.payload].split_at_mut(inc.len());
                to_inc.copy_from_slice(inc);
                to_data.copy_from_slice(piece);
                self.burst = (sent + frame.total, next.max(frame.total));
                if open.out.seal(&mut buf[..frame.total]).is_ok() {
                    return Some(PortDatagram { source, dest, len: frame.total });
                }
                continue;
            }
            // Its turn is over: to the end of the queue, or out of it.
            self.ready.pop_front();
            place.is_ready = is_over;
            if place.is_ready {
                self.ready.push_back(at);
            }
            self.burst = (0, 0);
            self.set_timer(at);
        }
        None
    }

    /// When [`EdgePort::on_time`] is due, at the soonest.
    #[must_use]
    pub fn poll_deadline(&self) -> Option<IncTime> {
        self.timers.peek().map(|Reverse((at, _))| *at)
    }

    /// The time has come that [`EdgePort::poll_deadline`] gave.
    pub fn on_time(&mut self, now: IncTime) {
        while let Some(Reverse((at, index))) = self.timers.peek().copied()
            && at <= now
        {
            self.timers.pop();
            let Some(Some(place)) = self.edges.get_mut(index) else { continue };
            place.is_timed = false;
            if let Some(open) = &mut place.open {
                open.edge.on_time(now);
            }
            self.look_at(index);
            self.set_timer(index);
        }
    }

    /// An edge that died, once.
    pub fn poll_dead(&mut self) -> Option<O> {
        let at = self.dead.pop_front()?;
        self.edges[at].as_ref().map(|place| place.owner)
    }

    const fn qpn_after(&self, qpn: u32) -> u32 {
        if qpn + 1 == self.qpns.end { self.qpns.start } else { qpn + 1 }
    }

    /// After something happened on an edge: it may have packets to send, or be dead.
    fn look_at(&mut self, at: usize) {
        let Some(Some(place)) = self.edges.get_mut(at) else { return };
        let Some(open) = &place.open else { return };
        if open.edge.is_dead() && !std::mem::replace(&mut place.is_dead, true) {
            self.dead.push_back(at);
        }
        if !std::mem::replace(&mut place.is_ready, true) {
            self.ready.push_back(at);
        }
    }

    /// Enters an edge's time, unless it has an entry: that one is looked at again when it is due.
    fn set_timer(&mut self, at: usize) {
        let Some(Some(place)) = self.edges.get_mut(at) else { return };
        let deadline = place.open.as_ref().and_then(|open| open.edge.poll_deadline());
        if let (Some(deadline), false) = (deadline, place.is_timed) {
            place.is_timed = true;
            self.timers.push(Reverse((deadline, at)));
        }
    }
}

impl<O> PortEdge<O> {
    /// What happened on the edge, with what did not come so far as to it.
    fn counts(&self) -> EdgeCounts {
        let mut counts = self.open.as_ref().map_or_else(EdgeCounts::default, |o| o.edge.counts());
        for (sum, more) in counts.refused.iter_mut().zip(self.refused) {
            *sum += more;
        }
        counts
    }
}

impl PortCounts {
    fn add(&mut self, edge: &EdgeCounts, wrong_sources: u64) {
        self.wrong_sources += wrong_sources;
        for (sum, more) in self.refused.iter_mut().zip(edge.refused) {
            *sum += more;
        }
        self.duplicates += edge.duplicates;
        self.naks += edge.naks;
        self.repeats += edge.repeats;
    }
}

impl<O> std::fmt::Debug for EdgePort<O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EdgePort")
            .field("edges", &(self.edges.len() - self.free.len()))
            .finish_non_exhaustive()
    }
}

/// The low 32 bits of a random number.
const fn low(random: u64) -> u32 {
    (random & 0xffff_ffff) as u32
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Mutex;

    use super::*;

    /// Others have all numbers but those that this one divides.
    #[derive(Debug)]
    struct Others(u32, Mutex<BTreeSet<u32>>);

    impl QpnShare for Others {
        fn claim(&self, qpn: Tpn) -> bool {
            qpn.value().is_multiple_of(self.0) && self.1.lock().unwrap().insert(qpn.value())
        }

        fn release(&self, qpn: Tpn) {
            assert!(self.1.lock().unwrap().remove(&qpn.value()));
        }
    }

    #[test]
    fn an_edge_has_a_number_that_no_other_user_of_the_address_has_until_it_is_closed() {
        let address = SocketAddr::from(([10, 0, 0, 1], 4791));
        let port = |divisor| {
            let others = Arc::new(Others(divisor, Mutex::default()));
            let mut port = EdgePort::new(Box::new(|| 100), QPN_MIN..QPN_END);
            port.share_qpns(Arc::<Others>::clone(&others));
            (port, others)
        };
        let (mut own, others) = port(7);
        let edges: Vec<_> = (0..50).map(|_| own.reserve(0, (), address).unwrap()).collect();
        let number = |port: &EdgePort<()>, edge| port.end(edge).unwrap().qpn.value();
        let numbers: BTreeSet<_> = edges.iter().map(|edge| number(&own, *edge)).collect();
        assert_eq!((numbers.len(), &numbers), (50, &*others.1.lock().unwrap()));
        assert!(numbers.iter().all(|number| number.is_multiple_of(7)));
        let closed = number(&own, edges[3]);
        own.close(0, edges[3]);
        assert!(!others.1.lock().unwrap().contains(&closed));
        assert_eq!(others.1.lock().unwrap().len(), 49);
        // All are taken.
        assert!(port(u32::MAX).0.reserve(0, (), address).is_none());
    }
}
