//! An `AF_XDP` socket at one end of a cable between two network namespaces, an ordinary UDP socket at the other.
#![forbid(unsafe_code)]

use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::AsFd;
use std::time::Duration;

use nix::ifaddrs::getifaddrs;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use urma_net::{Host, Lab, LabPlan};
use urma_packet::frame::{UdpDatagram, emit};
use urma_xdp::XdpSocket;

const PORT: u16 = 4791;
/// Frames of two and three chunks of a page.
const MTU: u32 = 9000;
const FRAME_MAX: usize = 9014;
/// Longer than any wait of a machine that works.
const HANG: Duration = Duration::from_secs(20);

struct Cable {
    lab: Lab,
    own: SocketAddrV4,
    other: SocketAddrV4,
    macs: [[u8; 6]; 2],
    xdp: XdpSocket,
    /// At the other end.
    udp: UdpSocket,
}

impl Cable {
    fn or_skip() -> Option<Self> {
        let lab = Lab::or_skip(LabPlan::cable(MTU))?;
        let (own, other) = (at(lab.host(0)), at(lab.host(1)));
        let ends = [lab.host(0).run(|| station(own)), lab.host(1).run(|| station(other))];
        let macs = ends.map(|(_, mac)| mac);
        let xdp = lab.host(0).run(|| XdpSocket::open(ends[0].0, own)).expect("a socket");
        let udp = lab.host(1).run(|| UdpSocket::bind(other)).expect("a socket");
        udp.set_read_timeout(Some(HANG)).expect("a limit");
        Some(Self { lab, own, other, macs, xdp, udp })
    }

    /// The payload of the next frame.
    fn receive(&mut self) -> Vec<u8> {
        let mut frame = [0; FRAME_MAX];
        let len = self.within(HANG, &mut frame);
        let len = len.unwrap_or_else(|| panic!("no frame came: {:?}", self.xdp.counts()));
        let datagram = UdpDatagram::parse(&frame[..len]).expect("a datagram");
        assert_eq!(datagram.dest, SocketAddr::from(self.own));
        datagram.payload.to_vec()
    }

    /// The next frame's length, when one comes within a time.
    fn within(&mut self, time: Duration, frame: &mut [u8]) -> Option<usize> {
        if let Some(len) = self.xdp.receive(frame) {
            return Some(len);
        }
        let (socket, time) = (self.xdp.socket(), Timespec::try_from(time).expect("a time"));
        let mut fds = [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN)];
        poll(&mut fds, Some(&time)).expect("it waits");
        self.xdp.receive(frame)
    }

    /// Sends a datagram; whether there was room for it.
    fn send(&mut self, payload: &[u8]) -> bool {
        let mut frame = [0; FRAME_MAX];
        let macs = [self.macs[1], self.macs[0]];
        let len =
            emit(macs, self.own.into(), self.other.into(), payload, &mut frame).expect("a frame");
        self.xdp.send(&frame[..len])
    }
}

fn at(host: &Host) -> SocketAddrV4 {
    let IpAddr::V4(ip) = host.address() else { panic!("IPv4") };
    SocketAddrV4::new(ip, PORT)
}

/// Number and MAC address of the interface that has an address.
fn station(address: SocketAddrV4) -> (u32, [u8; 6]) {
    let all: Vec<_> = getifaddrs().expect("interfaces").collect();
    let has = |ip: Ipv4Addr| {
        let found = all.iter().find(|one| {
            one.address.as_ref().and_then(|a| a.as_sockaddr_in()).is_some_and(|a| a.ip() == ip)
        });
        found.expect("an interface").interface_name.clone()
    };
    let name = has(*address.ip());
    let links = all.iter().filter(|one| one.interface_name == name);
    let mut links = links.filter_map(|one| one.address.as_ref()?.as_link_addr().copied());
    let link = links.next().expect("an Ethernet");
    (u32::try_from(link.ifindex()).expect("a number"), link.addr().expect("a MAC address"))
}

/// A payload that differs from others at each place.
fn payload(len: usize, seed: usize) -> Vec<u8> {
    let byte = |at: usize| u8::try_from((at * 7 + seed * 13 + at / 251) % 251).expect("a byte");
    (0..len).map(byte).collect()
}

/// Lengths around those at which a frame takes one more chunk.
const LENGTHS: [usize; 8] = [1, 60, 4053, 4054, 4055, 8150, 8151, 8972];

/// As a switch that is started again.
#[test]
fn a_queue_can_be_had_again_when_its_socket_has_gone() {
    let Some(Cable { lab, own, xdp, .. }) = Cable::or_skip() else { return };
    drop(xdp);
    for round in 0..20 {
        let again = lab.host(0).run(|| XdpSocket::open(station(own).0, own).map(drop));
        assert!(again.is_ok(), "round {round}: {again:?}");
    }
}

#[test]
fn frames_of_all_lengths_go_both_ways() {
    let Some(mut cable) = Cable::or_skip() else { return };
    for (seed, len) in LENGTHS.into_iter().enumerate() {
        let sent = payload(len, seed);
        cable.udp.send_to(&sent, cable.own).expect("sent");
        assert!(cable.receive() == sent, "{len} bytes arrive otherwise");
        assert!(cable.send(&sent));
        cable.xdp.flush();
        let mut buffer = [0; FRAME_MAX];
        let (len_found, from) = cable.udp.recv_from(&mut buffer).expect("a datagram");
        assert_eq!(from, SocketAddr::from(cable.own));
        assert!(buffer[..len_found] == sent, "{len} bytes leave otherwise");
    }
    assert_eq!(cable.xdp.counts(), urma_xdp::XdpCounts::default());
}

/// Chunks and places come back: many times as many frames as there are of either.
#[test]
fn rings_go_round() {
    let Some(mut cable) = Cable::or_skip() else { return };
    // As many as the other end's buffer takes.
    const BATCH: usize = 16;
    for round in 0..400 {
        for index in 0..BATCH {
            cable.udp.send_to(&payload(5000, round + index), cable.own).expect("sent");
        }
        for index in 0..BATCH {
            assert!(cable.receive() == payload(5000, round + index), "{round}, {index}");
        }
        for index in 0..BATCH {
            assert!(cable.send(&payload(5000, round * index)), "{round}, {index}");
        }
        cable.xdp.flush();
        let mut buffer = [0; FRAME_MAX];
        for index in 0..BATCH {
            let len = cable.udp.recv(&mut buffer).expect("a datagram");
            assert!(buffer[..len] == payload(5000, round * index), "{round}, {index}");
        }
    }
}

/// More than the rings hold, without a look between: what was taken arrives or is counted, and nothing comes twice.
#[test]
fn what_has_no_room_is_counted() {
    let Some(mut cable) = Cable::or_skip() else { return };
    for number in 0..3000_u32 {
        let datagram = [&number.to_be_bytes()[..], &[0; 60]].concat();
        cable.udp.send_to(&datagram, cable.own).expect("sent");
    }
    let (mut frame, mut numbers) = ([0; FRAME_MAX], Vec::new());
    while let Some(len) = cable.within(Duration::from_millis(300), &mut frame) {
        let datagram = UdpDatagram::parse(&frame[..len]).expect("a datagram");
        numbers.push(u32::from_be_bytes(datagram.payload[..4].try_into().expect("a number")));
    }
    assert!(numbers.is_sorted_by(|a, b| a < b), "in order, each once");
    let lost = 3000 - u64::try_from(numbers.len()).unwrap();
    // The cable's own queue may lose some, too.
    assert!((1..=lost).contains(&cable.xdp.counts().dropped), "{lost}: {:?}", cable.xdp.counts());
    // A short buffer loses a frame, says so, and goes on with the next.
    cable.udp.send_to(&[1; 2000], cable.own).expect("sent");
    cable.udp.send_to(&[2; 20], cable.own).expect("sent");
    let first = cable.within(HANG, &mut frame[..100]);
    let len = first.or_else(|| cable.within(HANG, &mut frame[..100])).expect("the short one");
    assert_eq!(UdpDatagram::parse(&frame[..len]).expect("a datagram").payload, [2; 20]);
    assert_eq!(cable.xdp.counts().too_long, 1);
}

#[test]
fn all_other_traffic_is_the_kernels() {
    let Some(mut cable) = Cable::or_skip() else { return };
    let (host, name) = (cable.lab.host(0), "10.99.0.1");
    let (interface, _) = host.run(|| station(cable.own));
    let links = host.run(|| getifaddrs().unwrap().collect::<Vec<_>>());
    let link = links.iter().find(|one| {
        let link = one.address.as_ref().and_then(|a| a.as_link_addr());
        link.is_some_and(|link| u32::try_from(link.ifindex()) == Ok(interface))
    });
    host.ip(&[&format!("address add {name}/24 dev {}", link.unwrap().interface_name)]);
    let sockets = [
        SocketAddrV4::new(*cable.own.ip(), PORT + 1),
        SocketAddrV4::new(name.parse().unwrap(), PORT),
        // What arrives whole goes to the other socket; fragments are put together by the kernel.
        SocketAddrV4::new(*cable.own.ip(), PORT),
    ];
    cable.lab.host(1).ip(&[&format!("route add 10.99.0.0/24 via {}", cable.own.ip())]);
    let lens = [100, 100, 20_000];
    for (to, len) in sockets.into_iter().zip(lens) {
        let socket = host.run(|| UdpSocket::bind(to)).expect("a socket");
        socket.set_read_timeout(Some(HANG)).expect("a limit");
        cable.udp.send_to(&payload(len, 3), to).expect("sent");
        let mut buffer = vec![0; len + 1];
        assert_eq!(socket.recv(&mut buffer).expect("a datagram"), len, "{to}");
    }
    assert_eq!(cable.xdp.receive(&mut [0; FRAME_MAX]), None, "a frame of others");
    cable.udp.send_to(&[9; 9], cable.own).expect("sent");
    assert_eq!(cable.receive(), [9; 9]);
}

#[test]
fn what_cannot_be_had_is_named() {
    let Some(cable) = Cable::or_skip() else { return };
    let host = cable.lab.host(0);
    let open = |interface| {
        let refused = host.run(|| XdpSocket::open(interface, cable.own)).expect_err("refused");
        refused.to_string()
    };
    let (interface, _) = host.run(|| station(cable.own));
    assert!(open(interface).contains("has a program or socket of this kind"));
    host.ip(&[
        "link set lo up",
        "link add two numrxqueues 2 numtxqueues 2 type veth peer name far",
        "address add 10.98.0.1/24 dev two",
        "link set two up",
    ]);
    let (queues, _) = host.run(|| station(SocketAddrV4::new([10, 98, 0, 1].into(), PORT)));
    assert!(open(queues).contains("more than one queue"), "{}", open(queues));
    // The loopback interface runs no such program.
    let lo = open(1);
    assert!(lo.contains("driver does not run such programs"), "{lo}");
    assert!(open(9999).contains("AF_XDP"), "{}", open(9999));
    // The first goes on.
    let (mut cable, sent) = (cable, [5; 50]);
    cable.udp.send_to(&sent, cable.own).expect("sent");
    assert_eq!(cable.receive(), sent);
}
