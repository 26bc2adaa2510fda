//! Repair packets of a knitting TP: built from the send window, and used to rebuild lost packets.
//!
//! - owns: the mapping between marks in sequences and packets. takes: repair packets of the peer, which may lie.
//! - gives: those of this side. must not: decide how many there are, or which packets they cover.

use std::borrow::Cow;

use udma_abi::Nanos;
use urma_mem::gf256::add_scaled;
use urma_packet::{
    Body, DATA_OVERHEAD, Packet, PacketHeader, Psn, REPAIR_GROUP_MAX, REPAIR_NUMBERS, RepairBody,
    WINDOW_MAX, WORD_HEAD, code_word,
};
use urma_recovery::{GROUP_PACKETS, GROUP_REPAIRS, RepairMark};

use super::{ALWAYS_PASSES, Received, Tp, TpError, psn_of};
use crate::transport::code::factor;
use crate::transport::receive::Content;
use crate::transport::repair::{Contradiction, RepairStore};

const _: () = assert!(
    GROUP_PACKETS == REPAIR_GROUP_MAX as u64 && GROUP_REPAIRS == REPAIR_NUMBERS,
    "a group of the sender is one on the wire"
);

/// What a packet has beside payload, but for what a packet of pieces has.
const LONGEST_MORE: usize = DATA_OVERHEAD - urma_packet::BTH_LEN - urma_packet::ICRC_LEN;

impl Tp {
    /// Writes the next repair packet, if one is due.
    pub(super) fn emit_repair(&mut self, now: Nanos, buf: &mut [u8]) -> Option<usize> {
        while let Some(mark) = self.tx.poll_repair(now) {
            if let Some(len) = self.code_packet(&mark, buf) {
                self.repairs_sent += 1;
                return Some(len);
            }
        }
        None
    }

    /// The code over all packets of the group that the peer may lack; `None`: it has all of them, or the path may be too
    /// narrow for one.
    fn code_packet(&self, mark: &RepairMark, buf: &mut [u8]) -> Option<usize> {
        let begin = mark.start.max(self.tx.ledger().una());
        let words = || {
            let members = mark.members(begin);
            members.filter_map(|(member, seq)| {
                code_word(self.packets.packet(seq)).map(|word| (member, word))
            })
        };
        let longest = words().map(|(_, (head, body))| head.len() + body.len()).max()?;
        let distance = |seq: u64| u16::try_from(seq - mark.start).ok();
        let body = RepairBody {
            last: distance(mark.end - 1)?,
            begin: distance(begin)?,
            groups: u16::try_from(mark.groups).ok()?,
            group: u16::try_from(mark.group).ok()?,
            number: mark.number,
        };
        let psn = psn_of(self.cfg.tx_psn, mark.start);
        let header = PacketHeader::new(self.cfg.peer_tpn, psn, Body::Repair(body));
        if header.packet_len(longest) > ALWAYS_PASSES.max(self.longest + LONGEST_MORE) {
            return None;
        }
        let frame = header.emit_headers(longest, buf).ok()?;
        let sum = &mut buf[frame.payload];
        sum.fill(0);
        let (head_sum, body_sum) = sum.split_at_mut(WORD_HEAD);
        for (member, (head, body)) in words() {
            let part = factor(mark.number, member);
            add_scaled(head_sum, &head, part);
            add_scaled(body_sum, body, part);
        }
        Some(frame.total)
    }

    /// Processes a repair packet of the peer; `psn` is that of the first packet of its range.
    pub(super) fn on_repair(&mut self, psn: Psn, body: &RepairBody, word: &[u8]) -> Received {
        let edge = self.rx.edge();
        let ahead = i64::from(psn.distance_from(psn_of(self.cfg.rx_psn, edge)));
        let end = ahead + i64::from(body.last) + 1;
        let begin = ahead + i64::from(body.begin);
        let is_near = -i64::from(WINDOW_MAX) <= ahead && end <= self.cfg.window_packets.into();
        let start = edge.checked_add_signed(ahead).filter(|_| is_near && begin <= 0);
        let Some(start) = start.filter(|_| self.is_knitting()) else { return Received::BadRepair };
        let mark = RepairMark {
            start,
            end: start + u64::from(body.last) + 1,
            groups: body.groups.into(),
            group: body.group.into(),
            number: body.number,
        };
        let window = self.cfg.window_packets;
        // The first repair packets come too early: the packets that they cover were not stored.
        let store = self.repairs.get_or_insert_with(|| Box::new(RepairStore::new(edge, window)));
        store.on_repair(edge);
        if end > 0 && store.take(&mark, start + u64::from(body.begin), word) {
            self.rx.receiver().on_repair(&mark);
        }
        Received::Acknowledged
    }

    /// Stores an accepted packet while the peer sends repair packets.
    pub(super) fn keep_for_code(&mut self, seq: u64, packet: &Packet<'_>) {
        let Some(store) = &mut self.repairs else { return };
        let edge = self.rx.edge();
        if store.is_over(edge) {
            self.repairs = None;
            return;
        }
        let Packet { header, payload } = packet;
        // As in its first transmission.
        let header = PacketHeader::new(header.dest, header.psn, header.body);
        store.keep((edge, seq), |bytes| {
            bytes.resize(header.packet_len(payload.len()), 0);
            if let Ok(frame) = header.emit_headers(payload.len(), bytes) {
                bytes[frame.payload].copy_from_slice(payload);
            }
        });
    }

    /// Accepts the packets that the record rebuilt from repair packets; `edge` was the first missing one before.
    pub(super) fn take_repaired(&mut self, edge: u64) -> Result<(), TpError> {
        let mut missing = Vec::new();
        while let Some(run) = self.rx.receiver().poll_repaired() {
            missing.extend(run.start..run.end());
        }
        if missing.is_empty() {
            return Ok(());
        }
        missing.sort_unstable();
        let store = self.repairs.as_mut().ok_or(TpError::BadRepair)?;
        let rx_psn = self.cfg.rx_psn;
        let place = (self.cfg.local_tpn, |seq| psn_of(rx_psn, seq));
        let repaired = store.repair((edge, &missing), place);
        for (seq, bytes) in repaired.map_err(|Contradiction| TpError::BadRepair)? {
            let packet = Packet::parse(&bytes).map_err(|_| TpError::BadRepair)?;
            let content = Content::of(&packet.header.body).ok_or(TpError::BadRepair)?;
            let mut payload = Cow::Borrowed(packet.payload);
            if self.faults.repairs_wrong()
                && let Some(last) = payload.to_mut().last_mut()
            {
                *last ^= 1;
            }
            self.rx.put(edge, seq, content, &payload).map_err(|_| TpError::PoolCorrupt)?;
            self.repaired += 1;
        }
        self.rx.release(edge..self.rx.edge()).map_err(|_| TpError::PoolCorrupt)
    }
}
