//! This side: an endpoint, its memory, and the cable to the guest.
//!
//! *Owns*: the socket that carries Ethernet frames, faults of the cable. *Gives*: packets of the endpoint
//! to the guest and back. *Must not*: touch what the endpoint decides.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    time::Instant,
};

use urma_packet::{
    IcrcFlow, ROCE_PORT,
    frame::{self, FRONT_MAX, UdpDatagram},
    roce::RocePacket,
};
use urma_rc::{RcAccess, RcAtomic, RcCfg, RcCfgError, RcCompletion, RcEndpoint, RcMemory};

use crate::now;

const HERE: (Ipv4Addr, [u8; 6]) = (Ipv4Addr::new(10, 0, 0, 1), [2, 0, 0, 0, 0, 1]);
const THERE: (Ipv4Addr, [u8; 6]) = (Ipv4Addr::new(10, 0, 0, 2), [2, 0, 0, 0, 0, 2]);
/// Key of this side's memory, and its first address.
const RKEY: u32 = 0x4711;
const BASE: u64 = 0x1_0000;

/// Memory of this side.
#[derive(Debug)]
pub struct Place {
    /// Its bytes, at [`Place::va`].
    pub bytes: Vec<u8>,
}

impl Place {
    /// Address and key for the guest's requests.
    #[must_use]
    pub const fn va(&self) -> (u64, u32) {
        (BASE, RKEY)
    }

    fn range(&self, place: u64, len: usize) -> Option<std::ops::Range<usize>> {
        let start = usize::try_from(place).ok()?;
        let end = start.checked_add(len).filter(|end| *end <= self.bytes.len())?;
        Some(start..end)
    }
}

impl RcMemory for Place {
    fn resolve(&self, rkey: u32, va: u64, len: u32, _: RcAccess) -> Option<u64> {
        let place = va.checked_sub(BASE).filter(|_| rkey == RKEY)?;
        self.range(place, usize::try_from(len).ok()?).map(|_| place)
    }

    fn load(&self, place: u64, into: &mut [u8]) -> bool {
        self.range(place, into.len()).is_some_and(|range| {
            into.copy_from_slice(&self.bytes[range]);
            true
        })
    }

    fn store(&mut self, place: u64, bytes: &[u8]) -> bool {
        self.range(place, bytes.len()).is_some_and(|range| {
            self.bytes[range].copy_from_slice(bytes);
            true
        })
    }

    fn update(&mut self, place: u64, atomic: RcAtomic) -> Option<u64> {
        let range = self.range(place, 8)?;
        let old = u64::from_le_bytes(self.bytes[range.clone()].try_into().ok()?);
        self.bytes[range].copy_from_slice(&atomic.apply(old).to_le_bytes());
        Some(old)
    }

    fn invalidate(&mut self, _: u32) -> bool {
        false
    }
}

/// The cable between both, and what it does to frames.
#[derive(Debug)]
pub struct Cable {
    socket: UdpSocket,
    /// Port of the guest's end.
    pub there: u16,
    /// Of 100 packets, those that are lost, in each direction.
    pub loss: u64,
    /// Numbers that decide what is lost.
    dice: u64,
    /// Packets that were lost.
    pub lost: u64,
}

impl Cable {
    /// Opens this side's end, and picks a port for the guest's end.
    ///
    /// # Errors
    /// Those of the sockets.
    pub fn new() -> io::Result<Self> {
        let bind = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0));
        let socket = bind()?;
        socket.set_nonblocking(true)?;
        let there = bind()?.local_addr()?.port();
        Ok(Self { socket, there, loss: 0, dice: 1, lost: 0 })
    }

    /// Port of this side's end.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn here(&self) -> io::Result<u16> {
        Ok(self.socket.local_addr()?.port())
    }

    fn is_lost(&mut self) -> bool {
        self.dice = self.dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let is_lost = (self.dice >> 33) % 100 < self.loss;
        self.lost += u64::from(is_lost);
        is_lost
    }

    fn send(&mut self, packet: &[u8]) -> io::Result<()> {
        if self.is_lost() {
            return Ok(());
        }
        let mut bytes = vec![0; packet.len() + FRONT_MAX];
        let end = |ip: Ipv4Addr| SocketAddr::from((ip, ROCE_PORT));
        let len = frame::emit([THERE.1, HERE.1], end(HERE.0), end(THERE.0), packet, &mut bytes)
            .map_err(io::Error::other)?;
        self.socket.send_to(&bytes[..len], (Ipv4Addr::LOCALHOST, self.there)).map(|_| ())
    }
}

/// This side of a connection.
#[derive(Debug)]
pub struct Bench {
    /// The endpoint under test.
    pub rc: RcEndpoint,
    /// Its memory, 64 KiB.
    pub memory: Place,
    /// The cable to the guest.
    pub cable: Cable,
    /// Packets that were no RoCEv2 for this side, or had a wrong ICRC.
    pub refused: u64,
    started: Instant,
}

impl Bench {
    /// Opens an endpoint at this end of the cable.
    ///
    /// # Errors
    /// [`RcCfgError`].
    pub fn new(cfg: RcCfg, cable: Cable) -> Result<Self, RcCfgError> {
        let memory = Place { bytes: vec![0; 65_536] };
        let rc = RcEndpoint::open(cfg)?;
        Ok(Self { rc, memory, cable, refused: 0, started: now() })
    }

    /// Brings everything that waits to the endpoint, and sends what it has.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn exchange(&mut self) -> io::Result<()> {
        let mut frame = [0; 2048];
        loop {
            match self.cable.socket.recv(&mut frame) {
                Ok(len) => self.take(&frame[..len]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // The guest is not there yet.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => break,
                Err(error) => return Err(error),
            }
            self.transmit()?;
        }
        self.transmit()
    }

    fn elapsed(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn take(&mut self, frame: &[u8]) {
        // Neighbour discovery of the guest's IPv6 is none of it.
        let Ok(datagram) = UdpDatagram::parse(frame) else { return };
        if datagram.dest.port() != ROCE_PORT || self.cable.is_lost() {
            return;
        }
        let now = self.elapsed();
        match RocePacket::open(datagram.payload, &datagram.flow) {
            Ok(packet) => self.rc.on_packet(now, &packet, &mut self.memory),
            Err(_) => self.refused += 1,
        }
    }

    fn transmit(&mut self) -> io::Result<()> {
        let end = |ip: Ipv4Addr| SocketAddr::from((ip, ROCE_PORT));
        let flow = IcrcFlow::new(end(HERE.0), end(THERE.0));
        let mut buf = vec![0; self.rc.packet_max()];
        let now = self.elapsed();
        while let Some(len) = self.rc.poll_transmit(now, &mut self.memory, &flow, &mut buf) {
            self.cable.send(&buf[..len])?;
        }
        Ok(())
    }

    /// The next completion, within 10 s.
    ///
    /// # Errors
    /// None came, or the socket failed.
    pub fn completion(&mut self) -> io::Result<RcCompletion> {
        let start = now();
        while start.elapsed().as_secs() < 10 {
            self.exchange()?;
            if let Some(done) = self.rc.poll_completion() {
                return Ok(done);
            }
            std::thread::yield_now();
        }
        Err(io::Error::other(format!("no completion within 10 s: {:?}", self.rc.counts())))
    }
}
