//! The shield: a socket filter by which the kernel drops packets of a flood before they take room in the socket's
//! queue.
//!
//! Must not drop a packet of a living TP, or a handshake.

use socket2::{SockFilter, SockRef};
use udma_abi::Nanos;
use urma_packet::{BTH_LEN, ICRC_LEN, ROCE_PORT, TpOpcode};

/// Packets dropped within [`PERIOD_NS`] that count as a flood.
const FLOOD_MIN: u64 = 256;
const PERIOD_NS: Nanos = 10_000_000;
/// How long the filter stays, in nanoseconds. Then [`FLOOD_MIN`] more packets bring it back.
const STAY_NS: Nanos = 1_000_000_000;
/// One of this many packets that the filter drops passes.
const SAMPLE: u32 = 32;

/// The filter of one socket.
///
/// Receiving and dropping a packet costs more than a microsecond, and packets of peers wait behind it. So when many
/// were dropped in a short time, the kernel drops such packets for a while: those from another port than that of
/// nodes, those that are too short, and those of unknown TPs. One of [`SAMPLE`] passes, so that they are counted, and
/// a peer is notified that its TP is unknown. Without a flood there is no filter: everything is received, answered
/// and counted.
#[derive(Debug, Default)]
pub(super) struct Shield {
    /// Packets dropped when the period began, and when that was.
    dropped: u64,
    since: Nanos,
    up: Option<ActiveFilter>,
}

/// A filter is on the socket.
#[derive(Debug)]
struct ActiveFilter {
    until: Nanos,
    /// TPNs whose packets pass.
    tpns: Vec<u32>,
}

impl Shield {
    /// Updates the filter. `dropped`: packets dropped so far. `tpns` are those of this node, in any fixed order.
    pub(super) fn update(
        &mut self,
        socket: SockRef<'_>,
        now: Nanos,
        dropped: u64,
        tpns: impl FnOnce() -> Vec<u32>,
    ) {
        match &mut self.up {
            Some(up) if now >= up.until => {
                // Cannot fail: the socket has a filter.
                let _ = socket.detach_filter();
                self.up = None;
                (self.dropped, self.since) = (dropped, now);
            }
            Some(up) => {
                let tpns = tpns();
                if tpns != up.tpns {
                    // The current filter would drop the packets of a new TP.
                    if socket.attach_filter(&program(&tpns)).is_err() {
                        let _ = socket.detach_filter();
                    }
                    up.tpns = tpns;
                }
            }
            None if now.saturating_sub(self.since) >= PERIOD_NS => {
                (self.dropped, self.since) = (dropped, now);
            }
            None if dropped.saturating_sub(self.dropped) >= FLOOD_MIN => {
                let tpns = tpns();
                // Without the filter the flood costs more time, and changes nothing else.
                if socket.attach_filter(&program(&tpns)).is_ok() {
                    tracing::debug!(dropped, "a flood of packets: the kernel drops most of them");
                    self.up = Some(ActiveFilter { until: now.saturating_add(STAY_NS), tpns });
                }
                (self.dropped, self.since) = (dropped, now);
            }
            None => {}
        }
    }

    /// When [`Shield::update`] has to be called at the latest.
    pub(super) fn deadline(&self) -> Option<Nanos> {
        self.up.as_ref().map(|up| up.until)
    }
}

/// The filter program, which the kernel runs on a UDP datagram from its header on.
fn program(tpns: &[u32]) -> Vec<SockFilter> {
    let op = |code, k| SockFilter::new(code, 0, 0, k);
    // The next instructions are skipped if the comparison holds, or the next one if it does not.
    let skip = |count, code, k| SockFilter::new(code, count, 0, k);
    let unless = |code, k| SockFilter::new(code, 0, 1, k);
    let of_tps = [
        TpOpcode::DataReq,
        TpOpcode::DataResp,
        TpOpcode::Ack,
        TpOpcode::Nak,
        TpOpcode::DataPack,
        TpOpcode::Losses,
        TpOpcode::Tail,
        TpOpcode::Repair,
    ];
    let of_tps = of_tps.map(|opcode| u32::from(opcode.code()));
    let live = tpns.iter().flat_map(|&tpn| [unless(EQUAL, tpn), op(RETURN, ALL)]);
    let live: Vec<_> = live.collect();
    // Distance from the instruction at `at` to the sample, which follows all others.
    let head = 10 + of_tps.len();
    let to_sample = |at| op(JUMP, u32::try_from(head + live.len() - at - 1).unwrap_or(u32::MAX));
    let mut program = vec![
        op(LOAD_HALF, SOURCE_PORT),
        skip(1, EQUAL, ROCE_PORT.into()),
        to_sample(2),
        op(LOAD_LEN, 0),
        skip(1, AT_LEAST, LEN_MIN),
        to_sample(5),
        op(LOAD_BYTE, OPCODE),
    ];
    let after = (1..=8).rev().zip(of_tps);
    program.extend(after.map(|(count, opcode)| skip(count, EQUAL, opcode)));
    program.extend([op(RETURN, ALL), op(LOAD_WORD, DEST_QP), op(AND, 0x00ff_ffff)]);
    program.extend(live);
    program.extend([op(LOAD_WORD, RANDOM), op(AND, SAMPLE - 1), unless(EQUAL, 0)]);
    program.extend([op(RETURN, ALL), op(RETURN, 0)]);
    program
}

/// Length of the UDP header in bytes; a filter sees the packet from it on.
const UDP_LEN: u32 = 8;
const SOURCE_PORT: u32 = 0;
const OPCODE: u32 = UDP_LEN;
/// The word whose low 24 bits are DestQP.
const DEST_QP: u32 = UDP_LEN + 4;
const LEN_MIN: u32 = UDP_LEN + 16;
const _: () = assert!(BTH_LEN + ICRC_LEN == 16);

// Instructions (Linux: linux/filter.h).
const LOAD_LEN: u16 = 0x80;
const LOAD_WORD: u16 = 0x20;
const LOAD_HALF: u16 = 0x28;
const LOAD_BYTE: u16 = 0x30;
const AND: u16 = 0x54;
const JUMP: u16 = 0x05;
const EQUAL: u16 = 0x15;
const AT_LEAST: u16 = 0x35;
const RETURN: u16 = 0x06;
/// "Address" of a random word (Linux: SKF_AD_OFF + SKF_AD_RANDOM).
const RANDOM: u32 = 0xffff_f000 + 56;
/// The whole packet passes.
const ALL: u32 = u32::MAX;
