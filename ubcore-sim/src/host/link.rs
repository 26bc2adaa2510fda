//! The interface between a node and a link for datagrams.
//!
//! *Owns*: the interface. *Takes*: batches in both directions. *Gives*: limits. *Must not*: know what a datagram
//! means.
//!
//! Another kind of link (AF_XDP, a switch, a tunnel) is one file that implements [`DatagramLink`], as `udp.rs` does,
//! and one line in `port.rs`, which opens it.

use std::{fmt::Debug, net::SocketAddr, os::fd::BorrowedFd};

use udma_abi::Nanos;

use crate::ports::{Backlog, Deadline, NodeAddr, Route, Transmit};

/// Datagrams of one batch, each with its source.
pub type Arrivals<'a> = dyn Iterator<Item = (SocketAddr, &'a [u8])> + 'a;

/// Takes what arrived at a port: its number, whether more waits, the datagrams.
pub type OnBatch<'a> = dyn FnMut(u8, Backlog, &mut Arrivals<'_>) + 'a;

/// Sends and receives batches of datagrams; neither blocks.
pub trait DatagramLink: Send + Debug {
    /// Sends what `next` writes into the buffer that it gets, a bounded number of datagrams. Returns how many there
    /// were.
    fn send(&mut self, next: &mut dyn FnMut(&mut [u8]) -> Option<Transmit>) -> usize;

    /// Calls `on_batch` with received datagrams and the port where they arrived, a bounded number of times. Returns
    /// how many datagrams there were.
    fn receive(&mut self, on_batch: &mut OnBatch<'_>) -> usize;

    /// Protects the node from floods. `dropped`: packets that the device dropped so far; `tpns`: TPNs of its living
    /// TPs. Returns when to call again at the latest.
    fn shield(&mut self, now: Nanos, dropped: u64, tpns: &dyn Fn() -> Vec<u32>) -> Option<Nanos>;

    /// When [`DatagramLink::send`] has to be called at the latest, even if the node has nothing to send.
    fn poll_deadline(&self) -> Deadline {
        None
    }

    /// Number of packets with `mtu` bytes of payload that the link stores until they are received; more are lost.
    fn packets_kept(&self, mtu: u32) -> usize;

    /// Takes a destination to which the system refused a datagram as too long, once, with the most bytes that pass
    /// there, including the IP and UDP headers.
    fn poll_too_long(&mut self) -> Option<(NodeAddr, usize)>;

    /// Takes a route on which the system does not send, once: no route, or the interface is down.
    fn poll_cut(&mut self) -> Option<Route> {
        None
    }

    /// Counts of what it did so far.
    fn counts(&self) -> LinkCounts;

    /// Descriptor that is readable when datagrams wait.
    fn descriptor(&self) -> BorrowedFd<'_>;
}

/// Counts of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LinkCounts {
    /// Datagrams given to the system.
    pub sent: u64,
    /// Datagrams that the system refused (no room, too long, no route).
    pub send_dropped: u64,
    /// Datagrams that the system gave so far.
    pub received: u64,
    /// Number of send system calls.
    pub send_calls: u64,
}
