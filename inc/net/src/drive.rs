//! The loop around a station: datagrams in, datagrams out, timers, sleep.
//!
//! A station that has something to do is looked at again and again, with `sched_yield` between two looks that find
//! nothing; after a millisecond of nothing it sleeps until a datagram, a [`Waker`] or a timer ends the sleep.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use chacha20::ChaCha20Rng;
use chacha20::rand_core::{Rng, SeedableRng};
use inc::host::Host;
use inc::port::{PortDatagram, QpnShare, RandomSource};
use inc::slots::IncTime;
use inc::switch::Switch;
use rustix::event::{PollFd, PollFlags, epoll, poll};
use rustix::time::Timespec;

use crate::clock;
use crate::raw::{RawAccess, RawPort};
use crate::shared::{SharedLink, SharedPort};
use crate::udp::{UdpCounts, UdpPort};
pub use crate::waker::Waker;

/// A station that finds nothing for this long sleeps.
const IDLE: Duration = Duration::from_millis(1);
/// Sleep is no longer, whatever a station says.
const SLEEP_MAX: Duration = Duration::from_secs(1);
/// Receiving calls in a row before the station sends.
const RECEIVES: usize = 4;

/// A switch or a host, as a driver sees it.
pub trait Station {
    /// A datagram for the station.
    fn on_datagram(&mut self, now: IncTime, source: SocketAddr, bytes: &[u8]);
    /// The next datagram that it sends, written to `buf`.
    fn poll_transmit(&mut self, now: IncTime, buf: &mut [u8]) -> Option<PortDatagram>;
    /// When it is to be called at the latest.
    fn poll_deadline(&self) -> Option<IncTime>;
    /// That time has come.
    fn on_time(&mut self, now: IncTime);
    /// Others have QPNs of its address, too. Called before anything else.
    fn share_qpns(&mut self, with: Arc<dyn QpnShare>);
}

macro_rules! station {
    ($($station:ty),*) => {$(
        impl Station for $station {
            fn on_datagram(&mut self, now: IncTime, source: SocketAddr, bytes: &[u8]) {
                <$station>::on_datagram(self, now, source, bytes);
            }
            fn poll_transmit(&mut self, now: IncTime, buf: &mut [u8]) -> Option<PortDatagram> {
                <$station>::poll_transmit(self, now, buf)
            }
            fn poll_deadline(&self) -> Option<IncTime> {
                <$station>::poll_deadline(self)
            }
            fn on_time(&mut self, now: IncTime) {
                <$station>::on_time(self, now);
            }
            fn share_qpns(&mut self, with: Arc<dyn QpnShare>) {
                <$station>::share_qpns(self, &with);
            }
        }
    )*};
}
station!(Switch, Host);

/// How a station's datagrams go to the link.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum LinkAccess {
    /// By a UDP socket of the operating system.
    #[default]
    Udp,
    /// As Ethernet frames past UDP and IP, see [`RawPort`].
    Raw(RawAccess),
    /// By a UDP port that this process has for other things as well; the station has its address.
    Shared(SharedPort),
}

#[derive(Debug)]
enum StationPort {
    Udp(UdpPort),
    Raw(RawPort),
    Shared(SharedLink),
}

/// What a driver waits for.
#[derive(Debug)]
enum StationSocket {
    Udp(Arc<UdpSocket>),
    Raw(Arc<OwnedFd>),
}

impl StationPort {
    fn bind(address: SocketAddr, access: LinkAccess, waker: &Waker) -> io::Result<Self> {
        Ok(match access {
            LinkAccess::Udp => Self::Udp(UdpPort::bind(address)?),
            LinkAccess::Raw(access) => Self::Raw(RawPort::bind(address, access)?),
            LinkAccess::Shared(port) => Self::Shared(SharedLink::new(port, waker.clone())),
        })
    }

    fn address(&self) -> SocketAddr {
        match self {
            Self::Udp(port) => port.address(),
            Self::Raw(port) => port.address(),
            Self::Shared(port) => port.address(),
        }
    }

    /// `None`: its owner waits for what comes, and wakes who sleeps.
    fn socket(&self) -> Option<StationSocket> {
        match self {
            Self::Udp(port) => Some(StationSocket::Udp(port.socket())),
            Self::Raw(port) => Some(StationSocket::Raw(port.socket())),
            Self::Shared(_) => None,
        }
    }

    fn counts(&self) -> UdpCounts {
        match self {
            Self::Udp(port) => port.counts(),
            Self::Raw(port) => port.counts(),
            Self::Shared(port) => port.counts(),
        }
    }

    fn receive(&mut self, take: impl FnMut(SocketAddr, &[u8])) -> bool {
        match self {
            Self::Udp(port) => port.receive(take),
            Self::Raw(port) => port.receive(take),
            Self::Shared(port) => port.receive(take),
        }
    }

    fn send(&mut self, next: impl FnMut(&mut [u8]) -> Option<PortDatagram>) -> bool {
        match self {
            Self::Udp(port) => port.send(next),
            Self::Raw(port) => port.send(next),
            Self::Shared(port) => port.send(next),
        }
    }
}

impl AsFd for StationSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Udp(socket) => socket.as_fd(),
            Self::Raw(socket) => socket.as_fd(),
        }
    }
}

/// A station, its socket and its clock.
#[derive(Debug)]
pub struct StationDriver<S> {
    /// What this one drives.
    pub station: S,
    port: StationPort,
    origin: Instant,
    waker: Waker,
    loss: LinkLoss,
}

/// Datagrams that are thrown away as if the station's link had lost them, in either direction: which ones depends on the seed
/// alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkLoss {
    /// Datagrams of a million that are lost.
    pub ppm: u32,
    /// What the choice begins with.
    pub seed: u64,
}

impl LinkLoss {
    /// Whether the next datagram is lost (SplitMix64).
    fn takes_next(&mut self) -> bool {
        if self.ppm == 0 {
            return false;
        }
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.seed;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) % 1_000_000 < self.ppm.into()
    }
}

impl<S: Station> StationDriver<S> {
    /// A driver of a station behind an address.
    ///
    /// # Errors
    /// Those of the system.
    pub fn new(mut station: S, address: SocketAddr, access: LinkAccess) -> io::Result<Self> {
        let waker = Waker::new()?;
        let port = StationPort::bind(address, access, &waker)?;
        if let StationPort::Shared(link) = &port {
            station.share_qpns(link.qpns());
        }
        Ok(Self { station, port, origin: clock(), waker, loss: LinkLoss::default() })
    }

    /// Loses datagrams, of those that arrive and of those that leave, from now on.
    pub fn set_loss(&mut self, loss: LinkLoss) {
        self.loss = loss;
    }

    /// Address and port of the station.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// What the socket did so far.
    #[must_use]
    pub fn counts(&self) -> UdpCounts {
        self.port.counts()
    }

    /// Ends sleeps of this driver.
    #[must_use]
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// The station's time in nanoseconds.
    #[must_use]
    pub fn now(&self) -> IncTime {
        u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// One look: what has arrived, what is due, what is to be sent. Whether there was anything.
    pub fn turn(&mut self) -> bool {
        let mut now = self.now();
        let (station, port, loss) = (&mut self.station, &mut self.port, &mut self.loss);
        let mut is_busy = false;
        for _ in 0..RECEIVES {
            let is_any = port.receive(|source, bytes| {
                if !loss.takes_next() {
                    station.on_datagram(now, source, bytes);
                }
            });
            if !is_any {
                break;
            }
            is_busy = true;
            now = u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        }
        if station.poll_deadline().is_some_and(|at| at <= now) {
            station.on_time(now);
            is_busy = true;
        }
        is_busy |= port.send(|buf| {
            loop {
                let datagram = station.poll_transmit(now, buf)?;
                if !loss.takes_next() {
                    return Some(datagram);
                }
            }
        });
        is_busy
    }

    /// What sleeps for this driver: each thread that does has one of its own.
    #[must_use]
    pub fn sleeper(&self) -> Sleeper {
        Sleeper { socket: self.port.socket(), wakes: wakes(&self.waker).ok(), idle_since: None }
    }

    /// Time until the station is to be called at the latest.
    #[must_use]
    pub fn time_left(&self) -> Duration {
        let left = self.station.poll_deadline().map(|at| at.saturating_sub(self.now()));
        left.map_or(SLEEP_MAX, |left| SLEEP_MAX.min(Duration::from_nanos(left)))
    }
}

/// The wakes of a driver, for one thread.
fn wakes(waker: &Waker) -> io::Result<OwnedFd> {
    let wakes = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let edge = epoll::EventFlags::IN | epoll::EventFlags::ET;
    epoll::add(&wakes, waker.as_fd(), epoll::EventData::new_u64(0), edge)?;
    Ok(wakes)
}

/// What a thread does between two looks of a driver that find nothing.
#[derive(Debug)]
pub struct Sleeper {
    socket: Option<StationSocket>,
    /// Edge triggered, so that each thread sees each wake: nothing takes one from another. `None`: the process has no
    /// descriptor left.
    wakes: Option<OwnedFd>,
    idle_since: Option<Instant>,
}

impl Sleeper {
    /// A look found something.
    pub fn on_busy(&mut self) {
        self.idle_since = None;
    }

    /// A look found nothing: lets others run, or, if there was nothing for a millisecond, sleeps until a datagram or a wake
    /// comes, for `left` at most.
    pub fn on_idle(&mut self, left: Duration) {
        let idle_since = *self.idle_since.get_or_insert_with(clock);
        if idle_since.elapsed() < IDLE {
            std::thread::yield_now();
            return;
        }
        let of = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
        let mut socket = self.socket.as_ref().map(|socket| of(socket.as_fd()));
        let Some(wakes) = &self.wakes else {
            let timeout = Timespec::try_from(left.min(IDLE)).ok();
            // Whatever ends it, the driver is looked at.
            let _ = poll(socket.as_mut_slice(), timeout.as_ref());
            return;
        };
        let timeout = Timespec::try_from(left).ok();
        let wake = || of(wakes.as_fd());
        let mut fds = [socket.unwrap_or_else(wake), wake()];
        let woken = poll(&mut fds, timeout.as_ref());
        if woken.is_ok() && !fds[1].revents().is_empty() {
            let mut seen = [epoll::Event {
                flags: epoll::EventFlags::empty(),
                data: epoll::EventData::new_u64(0),
            }];
            let _ = epoll::wait(wakes, &mut seen, Some(&Timespec::default()));
        }
    }
}

/// Numbers that cannot be guessed: a generator that the system's seeds.
///
/// # Errors
/// The system has no random numbers.
pub fn system_random() -> io::Result<RandomSource> {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(io::Error::other)?;
    let mut random = ChaCha20Rng::from_seed(seed);
    Ok(Box::new(move || random.next_u64()))
}

#[cfg(test)]
mod tests {
    use std::thread;

    use inc::switch::SwitchLimits;

    use super::*;

    /// Offers three datagrams, and counts those that it gets.
    struct Three {
        dest: SocketAddr,
        offered: usize,
        got: usize,
    }

    impl Station for Three {
        fn on_datagram(&mut self, _: IncTime, _: SocketAddr, _: &[u8]) {
            self.got += 1;
        }

        fn poll_transmit(&mut self, _: IncTime, buf: &mut [u8]) -> Option<PortDatagram> {
            (self.offered < 3).then(|| {
                self.offered += 1;
                buf[..8].fill(7);
                PortDatagram { source: self.dest, dest: self.dest, len: 8 }
            })
        }

        fn poll_deadline(&self) -> Option<IncTime> {
            None
        }

        fn on_time(&mut self, _: IncTime) {}

        fn share_qpns(&mut self, _: Arc<dyn QpnShare>) {}
    }

    #[test]
    fn a_lossy_link_loses_in_both_directions() {
        let local = SocketAddr::from(([127, 0, 0, 1], 0));
        let station = || Three { dest: local, offered: 0, got: 0 };
        for (sends, receives, expected) in [(0, 0, 3), (1_000_000, 0, 0), (0, 1_000_000, 0)] {
            let mut from = StationDriver::new(station(), local, LinkAccess::Udp).unwrap();
            let mut to = StationDriver::new(station(), local, LinkAccess::Udp).unwrap();
            (from.station.dest, to.station.offered) = (to.address(), 3);
            from.set_loss(LinkLoss { ppm: sends, seed: 1 });
            to.set_loss(LinkLoss { ppm: receives, seed: 1 });
            from.turn();
            assert_eq!(from.station.offered, 3, "it is asked until it has nothing");
            assert_eq!(from.counts().sent, if sends == 0 { 3 } else { 0 });
            let start = clock();
            while to.counts().received < from.counts().sent && start.elapsed() < 20_000 * IDLE {
                to.turn();
            }
            assert_eq!(to.station.got, expected);
        }
    }

    #[test]
    fn a_wake_ends_the_sleep_of_each_thread() {
        const LONG: Duration = Duration::from_secs(20);
        let switch = Switch::new(SwitchLimits { memory: 0, communicators: 0 }, Box::new(|| 1));
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let driver = StationDriver::new(switch, address, LinkAccess::Udp).unwrap();
        let (start, waker) = (clock(), driver.waker());
        for _ in 0..5 {
            let sleep = |mut sleeper: Sleeper| {
                // At first it lets others run for moments, and then it sleeps.
                let mut slept = Duration::ZERO;
                while slept < 3 * IDLE {
                    let start = clock();
                    sleeper.on_idle(LONG);
                    slept = start.elapsed();
                }
            };
            thread::scope(|scope| {
                for _ in 0..3 {
                    let sleeper = driver.sleeper();
                    scope.spawn(move || sleep(sleeper));
                }
                let start = clock();
                while start.elapsed() < 20 * IDLE {
                    thread::park_timeout(IDLE);
                }
                waker.wake();
            });
        }
        assert!(start.elapsed() < LONG, "one of them slept on");
    }
}
