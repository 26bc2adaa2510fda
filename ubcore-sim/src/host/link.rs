//! What a node exchanges datagrams over: the one interface between a node and a kind of link.
//!
//! *Owns*: the interface. *Takes*: batches in both directions. *Gives*:
//! limits. *Must not*: know what a datagram means.
//!
//! Another kind of link (AF_XDP, a switch, a tunnel) is one file that implements [`DatagramLink`], as
//! `udp.rs` does, and one line in `port.rs`, which opens it.

use std::{fmt::Debug, net::SocketAddr, os::fd::BorrowedFd};

use udma_abi::Nanos;

use crate::ports::{Backlog, Deadline, NodeAddr, Route, Transmit};

/// Datagrams of one batch, each with its source.
pub type Arrivals<'a> = dyn Iterator<Item = (SocketAddr, &'a [u8])> + 'a;

/// Takes what came to a port: its number, whether more waits, the datagrams.
pub type OnBatch<'a> = dyn FnMut(u8, Backlog, &mut Arrivals<'_>) + 'a;

/// Sends and receives batches of datagrams; neither waits.
pub trait DatagramLink: Send + Debug {
    /// Sends what `next` writes into the buffer that it is lent, a bounded number of datagrams. Returns
    /// how many there were.
    fn send(&mut self, next: &mut dyn FnMut(&mut [u8]) -> Option<Transmit>) -> usize;

    /// Calls `on_batch` with what was received and the port that it came to, a bounded number of times.
    /// Returns how many datagrams there were.
    fn receive(&mut self, on_batch: &mut OnBatch<'_>) -> usize;

    /// Keeps floods from the node. `dropped`: packets that the device dropped so far; `tpns`: TPNs of its
    /// living TPs. Returns when to call again at the latest.
    fn shield(&mut self, now: Nanos, dropped: u64, tpns: &dyn Fn() -> Vec<u32>) -> Option<Nanos>;

    /// When [`DatagramLink::send`] is to be called at the latest, though the node has nothing to send.
    fn poll_deadline(&self) -> Deadline {
        None
    }

    /// Packets with `mtu` bytes of payload that the link keeps until they are received; more are lost.
    fn packets_kept(&self, mtu: u32) -> usize;

    /// A destination to which the system did not take a datagram for its length, once, with the most bytes
    /// that it lets pass there, the headers of IP and UDP included.
    fn poll_too_long(&mut self) -> Option<(NodeAddr, usize)>;

    /// A route on which the system does not send, once: no route, or the interface is down.
    fn poll_cut(&mut self) -> Option<Route> {
        None
    }

    /// What it did so far.
    fn counts(&self) -> LinkCounts;

    /// Readable when datagrams wait.
    fn descriptor(&self) -> BorrowedFd<'_>;
}

/// What a link did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LinkCounts {
    /// Datagrams given to the system.
    pub sent: u64,
    /// Datagrams that the system did not take (no room, too long, no route).
    pub send_dropped: u64,
    /// Number of datagrams received in this batch.
    pub received: u64,
    /// System calls that sent.
    pub send_calls: u64,
}
