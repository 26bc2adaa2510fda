//! Client and server against each other, and each against a hostile one.

#![expect(clippy::disallowed_methods, reason = "tests of bounds in real time")]

use std::{
    os::unix::net::UnixStream,
    sync::Arc,
    thread::JoinHandle,
    time::{Duration, Instant},
};

use proptest::prelude::*;
use rustix::io::Errno;
use udma_abi::{
    BackingError, DeviceBacking, DmaAccess,
    backing::{DEVICE_ID, VENDOR_ID},
    slots::SLOT_LEN,
};
use urma_mem::{Pages, Region};

mod rules;

use super::{
    link::{UserError, UserLink},
    stream,
    wire::{RegionAccess, RegionInfo, UserBody, UserHeader, command},
    *,
};
use crate::PciNic;

/// A function of one register: what is written there is the device address of a word, which it doubles.
#[derive(Default)]
struct Doubler {
    maps: Vec<(u64, Region)>,
    vector: Option<OwnedFd>,
    config: Option<ServedConfig>,
    memory: Option<Region>,
}

impl Doubler {
    fn config(&mut self) -> &mut ServedConfig {
        let identity = ServedIdentity { vendor: VENDOR_ID, device: DEVICE_ID, vectors: 1 };
        self.config.get_or_insert_with(|| ServedConfig::new(identity, &[], 4))
    }
}

impl ServedFunction for Doubler {
    fn shape(&self, index: u32) -> ServedShape {
        match index {
            0 => ServedShape { len: 64, is_writable: true },
            2 => ServedShape { len: SLOT_LEN as u64, is_writable: true },
            7 => ServedShape { len: 256, is_writable: true },
            _ => ServedShape::default(),
        }
    }

    fn memory(&self, index: u32) -> Option<Region> {
        self.memory.clone().filter(|_| index == 2)
    }

    fn vectors(&self, index: u32) -> u32 {
        u32::from(index == 2)
    }

    fn read(&mut self, index: u32, offset: u64, bytes: &mut [u8]) -> Result<(), Errno> {
        if index == 7 {
            self.config().read(offset, bytes);
        }
        Ok(())
    }

    fn write(&mut self, index: u32, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
        if index == 7 {
            self.config().write(offset, bytes);
            return Ok(());
        }
        let Ok(bytes) = bytes.try_into() else { return Err(Errno::INVAL) };
        let address = u64::from_le_bytes(bytes);
        if offset != 0 {
            return Err(Errno::INVAL);
        }
        let (first, region) =
            self.maps.iter().rfind(|(first, _)| *first <= address).ok_or(Errno::FAULT)?;
        let at = usize::try_from(address - first).map_err(|_| Errno::FAULT)?;
        let word = region.load_u64(at).map_err(|_| Errno::FAULT)?;
        region.store_u64(at, word.wrapping_mul(2)).map_err(|_| Errno::FAULT)?;
        if let Some(fd) = &self.vector {
            rustix::io::write(fd, &1_u64.to_le_bytes())?;
        }
        Ok(())
    }

    fn map(&mut self, address: u64, memory: Option<(Region, DmaAccess)>) -> Result<(), Errno> {
        self.maps.retain(|(first, _)| *first != address);
        self.maps.extend(memory.map(|(region, _)| (address, region)));
        Ok(())
    }

    fn set_vector(&mut self, _: u32, _: u32, fd: Option<OwnedFd>) -> Result<(), Errno> {
        self.vector = fd;
        Ok(())
    }

    fn reset(&mut self) -> Result<(), Errno> {
        Ok(())
    }
}

/// A client's socket, and the server, which ends with the number of maps that are left.
fn served() -> (UnixStream, JoinHandle<usize>) {
    let (client, server) = UnixStream::pair().unwrap();
    let thread = std::thread::spawn(move || {
        let memory = Region::shared(SLOT_LEN, Pages::Base).unwrap();
        let mut function = Doubler { memory: Some(memory), ..Doubler::default() };
        let _ = serve(&server, &mut function, MapQuota { maps: 4, bytes: 1 << 20 });
        function.maps.len()
    });
    (client, thread)
}

/// The same after the version.
fn agreed() -> (UnixStream, JoinHandle<usize>) {
    let (socket, server) = served();
    let (errno, reply) = ask(&socket, command::VERSION, b"\0\0\0\0{}\0", &[]);
    // QEMU says version 0.0, and takes no newer one.
    assert_eq!((errno, &reply[..4]), (None, &[0; 4][..]));
    (socket, server)
}

#[test]
fn vectors_that_do_not_exist_are_refused_by_their_numbers() {
    use crate::device::{InterruptKind, PciDevice as _, PciError};
    let (socket, server) = served();
    let link = UserLink::over(socket, Duration::from_secs(5)).unwrap();
    let device = UserDevice::over(link, "toy").unwrap();
    let vectors = device.interrupts(InterruptKind::MsiX).unwrap();
    assert_eq!(vectors.count(), 1);
    for (len, wanted) in [(0, Some((0, 0, 1))), (1, None), (2, Some((0, 1, 1)))] {
        let refused = match vectors.enable(&vec![None; len]) {
            Err(PciError::Vectors { first, last, count }) => Some((first, last, count)),
            Ok(()) => None,
            Err(error) => panic!("{error}"),
        };
        assert_eq!(refused, wanted, "{len} vectors");
    }
    drop((vectors, device));
    server.join().unwrap();
}

/// Error number and body of the reply to a request.
fn ask(
    socket: &UnixStream,
    command: u16,
    body: &[u8],
    fds: &[BorrowedFd<'_>],
) -> (Option<u32>, Vec<u8>) {
    let bound = Duration::from_secs(5);
    let header = UserHeader::request(7, command, body.len(), true);
    stream::send(socket, header, body, (fds, bound)).unwrap();
    let reply = stream::receive(socket, bound, bound).unwrap();
    assert!(reply.header.is_reply());
    assert_eq!((reply.header.id, reply.header.command), (7, command));
    (reply.header.errno(), reply.body)
}

fn nic(socket: UnixStream) -> PciNic {
    let link = UserLink::over(socket, Duration::from_secs(5)).unwrap();
    PciNic::new(Arc::new(UserDevice::over(link, "toy").unwrap())).unwrap()
}

#[test]
fn a_word_is_doubled_in_memory_of_the_client() {
    let (socket, server) = served();
    let device = nic(socket);
    let vector = device.interrupt(0).unwrap();
    assert!(matches!(device.interrupt(1), Err(BackingError::Vector(1))));
    assert!(device.doorbell_slots().is_some());
    for region in [Region::shared(8192, Pages::Base).unwrap(), Region::private(8192).unwrap()] {
        region.store_u64(8, 21).unwrap();
        device.dma().map(0x1000, &region, DmaAccess::Both).unwrap();
        assert!(device.dma().map(0x2000, &region, DmaAccess::Both).is_err());
        device.registers().write64(0, 0x1008);
        // A read waits for the posted write.
        assert_eq!(device.registers().read(8), 0);
        assert_eq!(region.load_u64(8), Ok(42));
        let mut count = [0; 8];
        assert_eq!(rustix::io::read(&vector, &mut count), Ok(8));
        device.dma().unmap(0x1000).unwrap();
        device.registers().write64(0, 0x1008);
        assert_eq!(device.registers().read(8), 0);
        assert_eq!(region.load_u64(8), Ok(42));
    }
    let region = Region::private(8192).unwrap();
    let part = region.sub(16, 4096).unwrap();
    assert!(matches!(
        device.dma().map(0x1000, &part, DmaAccess::Both),
        Err(BackingError::Unreachable(_))
    ));
    device.reset().unwrap();
    drop(device);
    assert_eq!(server.join().unwrap(), 0);
}

#[test]
fn refusals_are_errors_and_the_connection_goes_on() {
    let (socket, server) = served();
    let link = UserLink::over(socket, Duration::from_secs(5)).unwrap();
    let bad = RegionAccess { offset: 60, region: 0, count: 8 };
    let refused = link.request(command::REGION_READ, &bad.encode(&[]), &[], 0);
    assert!(matches!(refused, Err(UserError::Refused { errno: 22, .. })), "{refused:?}");
    assert!(matches!(link.request(99, &[], &[], 0), Err(UserError::Refused { errno: 95, .. })));
    // A client with room for the head only learns how much there is to say, and gets no file.
    for (argsz, reply) in [(32, (64, 32, 0)), (64, (64, 32, 1))] {
        let question = UserBody::default().words(&[argsz, 0, 2, 0]).longs(&[0, 0]).0;
        let info = link.request(command::GET_REGION_INFO, &question, &[], 32).unwrap();
        let cap = u32::from_le_bytes(info.body[12..16].try_into().unwrap());
        assert_eq!((info.body[0], cap, info.fds.len()), reply);
        assert_eq!(RegionInfo::decode(&info.body).unwrap().is_mapped, argsz == 64);
    }
    // What QEMU sends: memory without a descriptor, which no access reaches; an unmap of it, and of everything; a vector
    // without a descriptor.
    let map = wire::UserDmaMap { is_writable: false, offset: 0, address: 0, size: 4096 };
    link.request(command::DMA_MAP, &map.encode(), &[], 0).unwrap();
    let again = link.request(command::DMA_MAP, &map.encode(), &[], 0);
    assert!(matches!(again, Err(UserError::Refused { errno: 17, .. })), "{again:?}");
    link.request(command::DMA_UNMAP, &wire::encode_unmap(0, 4096), &[], 0).unwrap();
    let all = wire::encode_unmap(0x1000, u64::MAX);
    link.request(command::DMA_UNMAP, &all, &[], 0).unwrap();
    let set = SetIrqs { flags: 4 | 32, index: 2, start: 0, count: 1 };
    link.request(command::SET_IRQS, &set.encode(), &[], 0).unwrap();
    link.close();
    server.join().unwrap();
}

/// What a server may reply instead of what was asked for.
fn against(reply: impl FnOnce(UserHeader, &UnixStream) + Send + 'static) -> UserError {
    let (client, server) = UnixStream::pair().unwrap();
    let thread = std::thread::spawn(move || {
        let bound = Duration::from_secs(5);
        let message = stream::receive(&server, bound, bound).unwrap();
        reply(message.header, &server);
        // Silence: the socket stays open until the client gives up.
        let _ = stream::receive(&server, bound, bound);
    });
    let begun = Instant::now();
    let error = UserLink::over(client, Duration::from_millis(200)).unwrap_err();
    assert!(begun.elapsed() < Duration::from_secs(4));
    thread.join().unwrap();
    error
}

#[test]
fn a_message_has_16_to_65536_bytes() {
    let of = |size: u32| {
        let mut bytes = UserHeader::request(1, 2, 0, true).encode();
        bytes[4..8].copy_from_slice(&size.to_le_bytes());
        UserHeader::decode(&bytes).body_len()
    };
    assert_eq!([0, 15, 16, 17].map(of), [None, None, Some(0), Some(1)]);
    assert_eq!(
        [65_535, 65_536, 65_537, u32::MAX].map(of),
        [Some(65_519), Some(65_520), None, None]
    );
    // The longest one passes a socket whole; a longer one breaks the framing.
    let (near, far) = UnixStream::pair().unwrap();
    let bound = Duration::from_secs(20);
    let sender = std::thread::spawn(move || {
        for len in [65_520, 65_521] {
            let header = UserHeader::request(1, 2, len, true);
            let _ = stream::send(&near, header, &vec![7; len], (&[], bound));
        }
    });
    let message = stream::receive(&far, bound, bound).unwrap();
    assert_eq!((message.body.len(), message.body[65_519], message.is_cut), (65_520, 7, false));
    let error = stream::receive(&far, bound, bound).unwrap_err();
    assert_eq!(error.to_string(), "a message has 16 to 65536 bytes");
    drop(far);
    sender.join().unwrap();
}

#[test]
fn a_hostile_server_is_an_error_in_bounded_time() {
    let send = |socket: &UnixStream, header: UserHeader, body: &[u8]| {
        stream::send(socket, header, body, (&[], Duration::from_secs(1))).unwrap();
    };
    assert!(matches!(against(|_, _| {}), UserError::Gone(_)));
    let wrong = against(move |h, s| send(s, UserHeader { id: h.id ^ 1, ..h.reply(4) }, &[0; 4]));
    assert!(matches!(wrong, UserError::Protocol { .. }), "{wrong}");
    let wrong = against(move |h, s| send(s, UserHeader { command: 9, ..h.reply(4) }, &[0; 4]));
    assert!(matches!(wrong, UserError::Protocol { .. }), "{wrong}");
    let short = against(move |h, s| send(s, h.reply(2), &[0; 2]));
    assert!(matches!(short, UserError::Protocol { .. }), "{short}");
    let cut = against(move |h, s| send(s, h.reply(100), &[0; 4]));
    assert!(matches!(cut, UserError::Gone(_)), "{cut}");
    let huge = against(move |h, s| send(s, UserHeader { size: u32::MAX, ..h.reply(0) }, &[]));
    assert!(matches!(huge, UserError::Gone(_)), "{huge}");
    let other = against(move |h, s| send(s, h.reply(4), &[9, 0, 0, 0]));
    assert!(matches!(other, UserError::Protocol { .. }), "{other}");
    let unread = against(move |h, s| send(s, h.reply(7), b"\0\0\x01\0{\"\0"));
    assert!(unread.to_string().contains("JSON"), "{unread}");
}

#[test]
fn a_server_that_ends_wakes_waiters_and_fails_accesses_at_once() {
    let (client, server) = UnixStream::pair().unwrap();
    let copy = server.try_clone().unwrap();
    let thread = std::thread::spawn(move || {
        let _ = serve(&server, &mut Doubler::default(), MapQuota::default());
    });
    let device = nic(client);
    assert!(device.doorbell_slots().is_none());
    let vector = device.interrupt(0).unwrap();
    copy.shutdown(std::net::Shutdown::Both).unwrap();
    thread.join().unwrap();
    let begun = Instant::now();
    let flags = PollFlags::IN;
    let mut wait = [PollFd::new(&vector, flags)];
    let bound = rustix::event::Timespec { tv_sec: 5, tv_nsec: 0 };
    assert_eq!(poll(&mut wait, Some(&bound)), Ok(1));
    assert_eq!(device.registers().read(0), u64::MAX);
    assert!(matches!(device.reset(), Err(BackingError::Gone(_))));
    assert!(begun.elapsed() < Duration::from_secs(1));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn headers_keep_every_bit(bytes in any::<[u8; 16]>()) {
        let header = UserHeader::decode(&bytes);
        prop_assert_eq!(header.encode(), bytes);
        let len = header.body_len();
        prop_assert!(len.is_none_or(|len| len + 16 == header.size as usize && len < wire::MESSAGE_MAX));
    }

    #[test]
    fn a_server_answers_every_sequence_and_ends(
        messages in prop::collection::vec((0_u16..16, prop::collection::vec(any::<u8>(), 0..48), 0_u8..3), 1..8)
    ) {
        let (socket, server) = agreed();
        let bound = Duration::from_secs(5);
        for (id, (command, body, fds)) in (0..).zip(&messages) {
            let memory = Region::shared(8192, Pages::Base).unwrap();
            let (fd, _) = memory.fd().unwrap();
            let fds = vec![fd; usize::from(*fds)];
            // Small indices and lengths reach further than random ones.
            let small = UserBody::default().words(&[32, 39, u32::try_from(body.len() % 10).unwrap(), 1]).bytes(body).0;
            let body = if body.len() % 2 == 0 { body } else { &small };
            let header = UserHeader::request(id, *command, body.len(), true);
            stream::send(&socket, header, body, (&fds, bound)).unwrap();
            let reply = stream::receive(&socket, bound, bound).unwrap();
            prop_assert!(reply.header.is_reply());
            prop_assert_eq!((reply.header.id, reply.header.command), (id, *command));
        }
        drop(socket);
        prop_assert_eq!(server.join().unwrap(), 0);
    }
}
