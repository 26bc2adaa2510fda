//! Packets of any sizes to any destinations, sent by few system calls.
//!
//! *Owns*: references to packets. *Takes*: packets, one after the other. *Gives*: the result of each. *Must not*:
//! change their order; wait.
//!
//! `sendmmsg` stops at a packet that the system refuses. It is left out, and the next call starts after it.

use std::{
    io::{self, IoSlice},
    net::UdpSocket,
};

use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags, sendmmsg};

use super::{results::SendResults, runs::PacketRun, single};

/// Packets that the next call sends, at most [`BATCH_MAX`].
#[derive(Debug)]
pub(super) struct PacketBatch<'a> {
    packets: [(&'a [u8], &'a PacketRun); BATCH_MAX],
    len: usize,
}

impl<'a> PacketBatch<'a> {
    /// Creates an empty batch; `any` is a run of those that will come.
    pub(super) fn new(any: &'a PacketRun) -> Self {
        Self { packets: [(&[], any); BATCH_MAX], len: 0 }
    }

    /// Adds a packet of a run, and sends if there is no room for another one.
    pub(super) fn push(
        &mut self,
        socket: &UdpSocket,
        packet: (&'a [u8], &'a PacketRun),
        results: &mut SendResults,
    ) {
        self.packets[self.len] = packet;
        self.len += 1;
        if self.len == BATCH_MAX {
            self.send(socket, results);
        }
    }

    /// Sends all packets that were added.
    pub(super) fn send(&mut self, socket: &UdpSocket, results: &mut SendResults) {
        let mut waiting = &self.packets[..std::mem::take(&mut self.len)];
        while let Some((bytes, run)) = waiting.first() {
            let sent = match waiting.len() {
                1 => single::send(socket, bytes, run.to).map(|()| 1),
                _ => send_many(socket, waiting),
            };
            results.note(run.to, 1, sent.as_ref().copied());
            waiting = waiting.get(sent.unwrap_or(1).max(1)..).unwrap_or_default();
        }
    }
}

/// Sends packets up to the first one that the system refuses; returns their number, or its error if that is the
/// first.
fn send_many(socket: &UdpSocket, packets: &[(&[u8], &PacketRun)]) -> io::Result<usize> {
    let Some(first) = packets.first() else { return Ok(0) };
    let packet = |at| packets.get(at).unwrap_or(first);
    let parts: [_; BATCH_MAX] = std::array::from_fn(|at| [IoSlice::new(packet(at).0)]);
    let mut nothing: [_; BATCH_MAX] = std::array::from_fn(|_| SendAncillaryBuffer::default());
    let mut next = 0..;
    let mut messages = nothing.each_mut().map(|nothing| {
        let at = next.next().unwrap_or(0);
        MMsgHdr::new_with_addr(&packet(at).1.name, &parts[at], nothing)
    });
    Ok(sendmmsg(socket, &mut messages[..packets.len().min(BATCH_MAX)], SendFlags::empty())?)
}

/// Most packets of one call, the same number as for receiving. The kernel takes 2 us and more for each packet, so the
/// cost of a call is not measurable at this size.
const BATCH_MAX: usize = 32;
