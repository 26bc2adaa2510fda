//! Each rule of the protocol, broken once; and what a peer may do with descriptors and time.

use std::{
    io,
    mem::MaybeUninit,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    process::Command,
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use rustix::{
    cmsg_space,
    event::{EventfdFlags, eventfd},
    net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg},
    process::{Resource, Rlimit, setrlimit},
};
use udma_abi::{BackingError, DeviceBacking, DmaAccess, slots::SLOT_LEN};
use urma_mem::{
    Pages, Region,
    sync::{AtomicU64, Ordering},
};

use super::{Doubler, agreed, ask, nic, served};
use crate::{
    device::{AccessWidth, PciError, PciWindow},
    user::{
        MapQuota, UserWindow,
        link::{self, UserError, UserLink},
        refuse, serve, stream,
        wire::{
            self, IrqAction, RegionAccess, RegionInfo, SetIrqs, UserBody, UserDmaMap, UserHeader,
            command,
        },
    },
};

const INVAL: Option<u32> = Some(22);
const FAULT: Option<u32> = Some(14);
const MFILE: Option<u32> = Some(24);

fn memory() -> Region {
    Region::shared(8192, Pages::Base).unwrap()
}

fn map_at(socket: &UnixStream, address: u64, fds: &[BorrowedFd<'_>]) -> Option<u32> {
    let map = UserDmaMap { is_writable: true, offset: 0, address, size: 8192 };
    ask(socket, command::DMA_MAP, &map.encode(), fds).0
}

fn unmap(socket: &UnixStream, flags: u32, range: [u64; 2]) -> Option<u32> {
    let body = UserBody::default().words(&[24, flags]).longs(&range).0;
    ask(socket, command::DMA_UNMAP, &body, &[]).0
}

/// What the function says when it is to double the word at a device address.
fn double(socket: &UnixStream, address: u64) -> Option<u32> {
    let access = RegionAccess { offset: 0, region: 0, count: 8 };
    ask(socket, command::REGION_WRITE, &access.encode(&address.to_le_bytes()), &[]).0
}

#[test]
fn the_flag_for_all_unmaps_all() {
    let (socket, server) = agreed();
    let memory = memory();
    let fd = [memory.fd().unwrap().0];
    for address in [0x1000, 0x8000] {
        assert_eq!(map_at(&socket, address, &fd), None);
        assert_eq!(double(&socket, address), None);
    }
    // Another flag, a range beside the flag for all, no range: nothing is unmapped.
    for (flags, range) in [(1, [0, 0]), (3, [0, 0]), (2, [0x1000, 0]), (2, [0, 8192]), (0, [0, 0])]
    {
        assert_eq!(unmap(&socket, flags, range), INVAL, "{flags} {range:?}");
        assert_eq!(double(&socket, 0x8000), None);
    }
    assert_eq!(unmap(&socket, 2, [0, 0]), None);
    for address in [0x1000, 0x8000] {
        assert_eq!(double(&socket, address), FAULT);
        assert_eq!(map_at(&socket, address, &fd), None, "the addresses are free");
    }
    drop(socket);
    assert_eq!(server.join().unwrap(), 0);
}

#[test]
fn vectors_are_set_as_the_kernels_vfio_does() {
    let (none, booleans, eventfds) = (1, 2, 4);
    let (mask, unmask, trigger) = (8, 16, 32);
    let action =
        |flags, (start, count), fds| SetIrqs { flags, index: 2, start, count }.action(4, fds);
    assert_eq!(action(none | trigger, (0, 0), 0), Ok(IrqAction::DisableAll));
    for flags in [eventfds | trigger, booleans | trigger, none | mask, none | unmask] {
        assert!(action(flags, (0, 0), 0).unwrap_err().contains("count of 0"), "{flags}");
    }
    assert_eq!(action(eventfds | trigger, (1, 3), 3), Ok(IrqAction::SetEventfds(1..4)));
    assert_eq!(action(eventfds | trigger, (1, 3), 0), Ok(IrqAction::SetEventfds(1..4)));
    for fds in [1, 2, 4] {
        assert!(action(eventfds | trigger, (1, 3), fds).unwrap_err().contains("each vector"));
    }
    for flags in [none | trigger, booleans | trigger, eventfds | mask, none | unmask] {
        assert_eq!(action(flags, (0, 1), 0), Ok(IrqAction::Other), "{flags}");
    }
    for flags in [
        0,
        trigger,
        eventfds,
        none | eventfds | trigger,
        none | mask | trigger,
        1 << 6 | none | trigger,
    ] {
        assert!(action(flags, (0, 1), 0).unwrap_err().contains("one kind of data"), "{flags}");
    }
    for vectors in [(4, 0), (4, 1), (3, 2), (u32::MAX, 2), (0, u32::MAX)] {
        assert!(action(none | trigger, vectors, 0).unwrap_err().contains("vectors exist"));
    }
}

#[test]
fn a_refused_change_of_vectors_changes_none() {
    let (socket, server) = agreed();
    let memory = memory();
    assert_eq!(map_at(&socket, 0x1000, &[memory.fd().unwrap().0]), None);
    let fd = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).unwrap();
    let set = |flags, count, fds: &[BorrowedFd<'_>]| {
        let set = SetIrqs { flags, index: 2, start: 0, count };
        ask(&socket, command::SET_IRQS, &set.encode(), fds).0
    };
    let is_raised = || {
        assert_eq!(double(&socket, 0x1000), None);
        rustix::io::read(&fd, &mut [0; 8]).is_ok()
    };
    assert_eq!(set(4 | 32, 1, &[fd.as_fd()]), None);
    assert!(is_raised());
    // No disable, one descriptor for two vectors, two for one, no eventfd.
    assert_eq!(set(4 | 32, 0, &[]), INVAL);
    assert_eq!(set(1 | 8, 0, &[]), INVAL);
    assert_eq!(set(4 | 32, 2, &[fd.as_fd()]), INVAL);
    assert_eq!(set(4 | 32, 1, &[fd.as_fd(), fd.as_fd()]), INVAL);
    assert_eq!(set(4 | 32, 1, &[memory.fd().unwrap().0]), INVAL);
    assert!(is_raised());
    assert_eq!(set(1 | 32, 0, &[]), None);
    assert!(!is_raised());
    drop(socket);
    server.join().unwrap();
}

#[test]
fn a_client_begins_with_one_version() {
    let (socket, server) = served();
    let memory = memory();
    let fd = [memory.fd().unwrap().0];
    assert_eq!(map_at(&socket, 0x1000, &fd), INVAL, "before the version");
    let version = |data: &[u8]| {
        let body = [&[0, 0, 1, 0], data].concat();
        ask(&socket, command::VERSION, &body, &[]).0
    };
    let wrong: [&[u8]; 8] = [
        b"{}",
        b"{\0",
        b"[]\0",
        b"\0",
        b"\xff\0",
        b"{\"capabilities\":3}\0",
        b"{\"capabilities\":{\"max_msg_fds\":\"8\"}}\0",
        b"{\"capabilities\":{\"max_data_xfer_size\":-1}}\0",
    ];
    for data in wrong {
        assert_eq!(version(data), INVAL, "{}", String::from_utf8_lossy(data));
        assert_eq!(map_at(&socket, 0x1000, &fd), INVAL);
    }
    let deep = ["[".repeat(30_000), "]".repeat(30_000)].concat() + "\0";
    assert_eq!(version(deep.as_bytes()), INVAL);
    assert_eq!(ask(&socket, command::VERSION, &[0], &[]).0, INVAL);
    assert_eq!(ask(&socket, command::VERSION, &[1, 0, 0, 0], &[]).0, Some(95));
    // What QEMU sends, in short.
    let known =
        b"{\"capabilities\":{\"max_msg_fds\":8,\"migration\":{\"pgsize\":4096}},\"more\":[]}\0";
    assert_eq!(version(known), None);
    assert_eq!(version(b""), INVAL, "a second time");
    assert_eq!(map_at(&socket, 0x1000, &fd), None, "nothing of before was kept");
    drop(socket);
    assert_eq!(server.join().unwrap(), 0);
}

#[test]
fn argsz_counts_all_fields() {
    let (socket, server) = agreed();
    let memory = memory();
    let fd = [memory.fd().unwrap().0];
    let requests: [(u16, u32, UserBody); 6] = [
        (command::DMA_MAP, 32, UserBody::default().words(&[3]).longs(&[0, 0x1000, 8192])),
        (command::DMA_UNMAP, 24, UserBody::default().words(&[0]).longs(&[0x1000, 8192])),
        (command::GET_INFO, 16, UserBody::default().words(&[0, 0, 0])),
        (command::GET_REGION_INFO, 32, UserBody::default().words(&[0, 0, 0]).longs(&[0, 0])),
        (command::GET_IRQ_INFO, 16, UserBody::default().words(&[0, 2, 0])),
        (command::SET_IRQS, 20, UserBody::default().words(&[1 | 32, 2, 0, 0])),
    ];
    for (command, len, UserBody(rest)) in requests {
        let fds = if command == command::DMA_MAP { &fd[..] } else { &[] };
        let ask_with = |argsz: u32, rest: &[u8]| {
            ask(&socket, command, &[&argsz.to_le_bytes(), rest].concat(), fds).0
        };
        for argsz in [0, len - 1] {
            assert_eq!(ask_with(argsz, &rest), INVAL, "command {command}, argsz {argsz}");
        }
        assert_eq!(ask_with(len, &rest[..rest.len() - 1]), INVAL, "command {command}, cut");
        assert_eq!(ask_with(len, &rest), None, "command {command}");
    }
    // Memory that is neither readable nor writable, or something else.
    for flags in [0, 4, 7] {
        let body = UserBody::default().words(&[32, flags]).longs(&[0, 0x1000, 8192]).0;
        assert_eq!(ask(&socket, command::DMA_MAP, &body, &fd).0, INVAL, "{flags}");
    }
    drop(socket);
    assert_eq!(server.join().unwrap(), 0);
}

#[test]
fn an_access_lies_within_its_region() {
    let (socket, server) = agreed();
    let read = |region, offset, count| {
        let access = RegionAccess { offset, region, count };
        ask(&socket, command::REGION_READ, &access.encode(&[]), &[]).0
    };
    assert_eq!(read(0, 56, 8), None);
    let outside = [
        (0, 57, 8),
        (0, 64, 1),
        (0, u64::MAX, 2),
        (0, 0, 0),
        (1, 0, 1),
        (9, 0, 1),
        (u32::MAX, 0, 8),
        (2, 0, 4097),
    ];
    for (region, offset, count) in outside {
        assert_eq!(read(region, offset, count), INVAL, "{region} {offset} {count}");
    }
    let access = RegionAccess { offset: 0, region: 0, count: 8 };
    for data in [7, 9] {
        let body = access.encode(&vec![0; data]);
        assert_eq!(ask(&socket, command::REGION_WRITE, &body, &[]).0, INVAL, "{data} bytes for 8");
    }
    // The function takes any number of bytes in configuration space.
    let access = RegionAccess { offset: 4, region: 7, count: 2 };
    for (data, wanted) in [(0, INVAL), (1, INVAL), (2, None), (3, INVAL), (4, INVAL)] {
        let body = access.encode(&vec![0; data]);
        assert_eq!(ask(&socket, command::REGION_WRITE, &body, &[]).0, wanted, "{data} bytes for 2");
    }
    drop(socket);
    server.join().unwrap();
}

/// Sends bytes with any number of descriptors.
fn send_with(socket: &UnixStream, bytes: &[u8], fds: &[BorrowedFd<'_>]) {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(16))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(fds)));
    let sent = sendmsg(socket, &[io::IoSlice::new(bytes)], &mut control, SendFlags::empty());
    assert_eq!(sent, Ok(bytes.len()));
}

fn errno_of_reply(socket: &UnixStream) -> Option<u32> {
    let bound = Duration::from_secs(5);
    stream::receive(socket, bound, bound).unwrap().header.errno()
}

#[test]
fn surplus_descriptors_are_refused_and_the_client_is_served_on() {
    let (socket, server) = agreed();
    let memory = memory();
    let fd = memory.fd().unwrap().0;
    assert_eq!(map_at(&socket, 0x1000, &[fd; 2]), INVAL);
    assert_eq!(ask(&socket, command::RESET, &[], &[fd]).0, INVAL);
    // More than find room: which ones are lost cannot be known.
    let map = UserDmaMap { is_writable: true, offset: 0, address: 0x1000, size: 8192 }.encode();
    let header = UserHeader::request(1, command::DMA_MAP, map.len(), true).encode();
    send_with(&socket, &[&header[..], &map].concat(), &[fd; 9]);
    assert_eq!(errno_of_reply(&socket), MFILE);
    assert_eq!(map_at(&socket, 0x1000, &[fd]), None);
    // The same in pieces, none of which has too many; all are closed, and not only at the end.
    let (reader, writer) = io::pipe().unwrap();
    let writers = [writer.as_fd(); 5];
    for byte in &header[..2] {
        send_with(&socket, &[*byte], &writers);
    }
    drop(writer);
    rustix::io::write(&socket, &[&header[2..], &map].concat()).unwrap();
    assert_eq!(errno_of_reply(&socket), MFILE);
    assert_eq!(io::Read::read(&mut { reader }, &mut [0; 1]).unwrap(), 0);
    assert_eq!(map_at(&socket, 0x8000, &[fd]), None);
    drop(socket);
    assert_eq!(server.join().unwrap(), 0);
}

/// Runs a test of this file, which is ignored, in a process of its own.
fn runs_alone(name: &str) {
    let exe = std::env::current_exe().unwrap();
    let name = format!("user::tests::rules::{name}");
    let mut command = Command::new(exe);
    let output = command.args(["--exact", &name, "--ignored"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

/// It changes the limit of its process.
#[test]
fn a_descriptor_without_room_is_a_refusal() {
    runs_alone("at_the_limit");
}

#[test]
#[ignore = "the process of another test"]
fn at_the_limit() {
    let limit = Rlimit { current: Some(64), maximum: Some(64) };
    setrlimit(Resource::Nofile, limit).unwrap();
    let (socket, server) = agreed();
    let memory = memory();
    let fd = [memory.fd().unwrap().0];
    let others: Vec<OwnedFd> =
        std::iter::from_fn(|| rustix::io::dup(memory.fd().unwrap().0).ok()).collect();
    assert_eq!(map_at(&socket, 0x1000, &fd), MFILE);
    drop(others);
    assert_eq!(map_at(&socket, 0x1000, &fd), None);
    drop(socket);
    assert_eq!(server.join().unwrap(), 0);
}

/// How a message ends whose sender has sent `first` bytes of it, and then sends the others one by one, a pause before each. Its body has
/// `len` bytes.
fn trickle((first, len): (usize, usize), pause: Duration, bound: Duration) -> io::Result<()> {
    let (client, server) = UnixStream::pair().unwrap();
    let header = UserHeader::request(1, command::VERSION, len, true).encode();
    let sender = std::thread::spawn(move || {
        rustix::io::write(&client, &header[..first]).unwrap();
        for byte in header[first..].iter().chain(&vec![0; len]) {
            std::thread::sleep(pause);
            if rustix::net::send(&client, &[*byte], SendFlags::NOSIGNAL).is_err() {
                // The other side closed.
                return;
            }
        }
    });
    let message = stream::receive(&server, Duration::from_secs(60), bound);
    drop(server);
    sender.join().unwrap();
    message.map(drop)
}

#[test]
fn a_message_that_trickles_in_has_a_bound_for_its_head_and_its_body() {
    let bound = Duration::from_millis(200);
    // 15 bytes of the head take two seconds, the body as long.
    for (first, len, pause) in [(1, 0, 150), (16, 400, 5)] {
        let error = trickle((first, len), Duration::from_millis(pause), bound).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut, "after {first} bytes");
    }
    trickle((1, 0), Duration::from_millis(1), Duration::from_secs(60)).unwrap();
}

#[test]
fn a_connection_that_is_not_served_reads_why_when_it_asks() {
    let (client, server) = UnixStream::pair().unwrap();
    let waits = refuse(&server, rustix::io::Errno::ACCESS).unwrap_err();
    assert_eq!(waits.kind(), io::ErrorKind::WouldBlock);
    let asks =
        std::thread::spawn(move || UserLink::over(client, Duration::from_secs(5)).unwrap_err());
    let bound = Instant::now() + Duration::from_secs(20);
    while let Err(error) = refuse(&server, rustix::io::Errno::ACCESS) {
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        assert!(Instant::now() < bound);
        std::thread::sleep(Duration::from_millis(1));
    }
    let refused = asks.join().unwrap();
    assert!(matches!(refused, UserError::Refused { errno: 13, .. }), "{refused}");
    for part in [&b"\0\0\0"[..], &UserHeader::request(1, 1, 0, true).reply(0).encode()] {
        let (client, server) = UnixStream::pair().unwrap();
        rustix::io::write(&client, part).unwrap();
        let error = refuse(&server, rustix::io::Errno::ACCESS).unwrap_err();
        assert_ne!(error.kind(), io::ErrorKind::WouldBlock);
    }
}

/// Opens a window of a server that answers as `reply` says after the version: the body for a request, and a file.
fn window_of(
    reply: impl Fn(u16, &[u8]) -> (Vec<u8>, Option<Region>) + Send + 'static,
) -> Result<Option<UserWindow>, UserError> {
    let (client, server) = UnixStream::pair().unwrap();
    std::thread::spawn(move || {
        let bound = Duration::from_secs(5);
        while let Ok(message) = stream::receive(&server, bound, bound) {
            let (body, file) = match message.header.command {
                command::VERSION => (vec![0, 0, 1, 0], None),
                other => reply(other, &message.body),
            };
            let fds: Vec<BorrowedFd<'_>> = file.iter().map(|file| file.fd().unwrap().0).collect();
            let header = message.header.reply(body.len());
            stream::send(&server, header, &body, (&fds, bound)).unwrap();
        }
    });
    let link = UserLink::over(client, Duration::from_secs(5)).unwrap();
    UserWindow::open(&Arc::new(link), 2, "toy")
}

/// The description of a region of `len` bytes with one area that may be mapped.
fn described(region: u32, len: u64, (offset, area): (u64, u64)) -> Vec<u8> {
    let body = UserBody::default().words(&[64, 1 | 2 | 4 | 8, region, 32]).longs(&[len, 0]);
    body.words(&[1 | 1 << 16, 0, 1, 0]).longs(&[offset, area]).0
}

#[test]
fn a_reply_about_another_register_is_no_value_of_this_one() {
    let wrong = |change: fn(RegionAccess) -> RegionAccess, len: usize| {
        let window = window_of(move |command, body| match command {
            command::GET_REGION_INFO => (described(2, 4096, (0, 0)), None),
            _ => {
                let (asked, _) = RegionAccess::decode(body).unwrap();
                (change(asked).encode(&vec![7; len]), None)
            }
        });
        window.unwrap().unwrap().read(8, AccessWidth::W64)
    };
    assert_eq!(wrong(|asked| asked, 8).unwrap(), 0x0707_0707_0707_0707);
    let broken = [
        wrong(|asked| RegionAccess { offset: 16, ..asked }, 8),
        wrong(|asked| RegionAccess { region: 1, ..asked }, 8),
        wrong(|asked| RegionAccess { count: 4, ..asked }, 8),
        wrong(|asked| asked, 4),
        wrong(|asked| asked, 16),
    ];
    for result in broken {
        assert!(
            matches!(&result, Err(PciError::Gone { why, .. }) if why.contains("asked for")),
            "{result:?}"
        );
    }
}

#[test]
fn a_window_is_mapped_whole_and_within_its_region_or_not_at_all() {
    const LEN: u64 = 8192;
    let open =
        |region, len, area| window_of(move |_, _| (described(region, len, area), Some(memory())));
    let is_mapped = |area| {
        let window = open(2, LEN, area).unwrap().unwrap();
        window.memory(0, 8).is_some()
    };
    assert!(is_mapped((0, LEN)));
    for area in [(0, LEN + 4096), (4096, LEN), (0, 4096), (u64::MAX, LEN), (0, u64::MAX)] {
        assert!(!is_mapped(area), "{area:?} of {LEN}");
        let info = RegionInfo::decode(&described(2, LEN, area)).unwrap();
        assert!(!info.is_mapped, "{area:?}");
    }
    // Flags, kind of the capability and number of its areas: each of them must say that the region may be mapped.
    for (at, byte, is_mapped) in [
        (4, 15, true),
        (4, 11, false),
        (32, 1, true),
        (32, 2, false),
        (40, 0, false),
        (40, 2, false),
    ] {
        let mut bytes = described(2, LEN, (0, LEN));
        bytes[at] = byte;
        let info = RegionInfo::decode(&bytes).unwrap();
        assert_eq!((info.is_mapped, info.is_writable), (is_mapped, true), "{at} {byte}");
    }
    let broken = |window: Result<Option<UserWindow>, UserError>| match window {
        Err(UserError::Protocol { rule, .. }) => rule,
        other => panic!("{other:?}"),
    };
    let huge = (1 << 30) + 4096;
    assert!(broken(open(2, huge, (0, huge))).contains("1 GiB"));
    assert!(broken(open(2, 16384, (0, 16384))).contains("sealed file of its length"));
    assert!(broken(open(1, LEN, (0, LEN))).contains("asked for"));
    assert_eq!(wire::FDS_MAX, 8);
}

#[test]
fn memory_of_another_length_than_its_region_is_not_offered() {
    for (len, wanted) in
        [(SLOT_LEN, true), (SLOT_LEN / 2, false), (2 * SLOT_LEN, false), (0, false)]
    {
        let (socket, server) = UnixStream::pair().unwrap();
        let memory = (len > 0).then(|| Region::shared(len, Pages::Base).unwrap());
        let thread = std::thread::spawn(move || {
            let mut function = Doubler { memory, ..Doubler::default() };
            let _ = serve(&server, &mut function, MapQuota::default());
        });
        let link = UserLink::over(socket, Duration::from_secs(5)).unwrap();
        let reply = link.request(command::GET_REGION_INFO, &RegionInfo::question(2), &[], 32);
        let reply = reply.unwrap();
        let info = RegionInfo::decode(&reply.body).unwrap();
        assert_eq!((info.len, info.is_mapped), (SLOT_LEN as u64, wanted), "{len}");
        assert_eq!(reply.fds.len(), usize::from(wanted), "{len}");
        link.close();
        thread.join().unwrap();
    }
}

/// The socket takes the message in many pieces.
#[test]
fn descriptors_go_with_the_first_piece_of_a_message_alone() {
    let (client, server) = UnixStream::pair().unwrap();
    rustix::net::sockopt::set_socket_send_buffer_size(&client, 4096).unwrap();
    let bound = Duration::from_secs(60);
    let sender = std::thread::spawn(move || {
        let memory = memory();
        let body = vec![7; 60_000];
        let header = UserHeader::request(1, command::REGION_WRITE, body.len(), false);
        stream::send(&client, header, &body, (&[memory.fd().unwrap().0], bound)).unwrap();
    });
    let message = stream::receive(&server, bound, bound).unwrap();
    sender.join().unwrap();
    assert_eq!((message.fds.len(), message.is_cut, message.body), (1, false, vec![7; 60_000]));
}

#[test]
fn more_descriptors_than_a_message_holds_are_refused_before_anything_is_sent() {
    let (client, server) = UnixStream::pair().unwrap();
    let memory = memory();
    let fd = memory.fd().unwrap().0;
    let header = UserHeader::request(1, command::REGION_WRITE, 1, false);
    let send = |count| {
        let fds = [fd; 16];
        stream::send(&client, header, &[5], (&fds[..count], Duration::from_secs(5)))
    };
    assert_eq!(send(16).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    send(8).unwrap();
    drop(client);
    let bound = Duration::from_secs(5);
    let message = stream::receive(&server, bound, bound).unwrap();
    assert_eq!((message.fds.len(), message.body, message.is_cut), (8, vec![5], false));
    let end = stream::receive(&server, bound, bound).unwrap_err();
    assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof);
}

#[test]
fn a_peer_that_does_not_read_is_waited_for_within_the_bound() {
    let (client, _server) = UnixStream::pair().unwrap();
    rustix::net::sockopt::set_socket_send_buffer_size(&client, 4096).unwrap();
    let header = UserHeader::request(1, command::REGION_WRITE, 60_000, false);
    let (begin, bound) = (Instant::now(), Duration::from_millis(30));
    let error = stream::send(&client, header, &vec![0; 60_000], (&[], bound)).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    assert!((bound..Duration::from_secs(20)).contains(&begin.elapsed()));
}

/// Counts warnings of its thread.
struct Warnings(Arc<AtomicU64>);

impl tracing::Subscriber for Warnings {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::WARN
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

/// Threads without a subscriber, as those of other tests, may turn the line off for the process.
#[test]
fn the_log_names_the_first_eight_refusals_of_a_client() {
    runs_alone("twelve_refusals");
}

#[test]
#[ignore = "the process of another test"]
fn twelve_refusals() {
    let (socket, server) = UnixStream::pair().unwrap();
    let warnings = Arc::<AtomicU64>::default();
    let subscriber = Warnings(Arc::clone(&warnings));
    let thread = std::thread::spawn(move || {
        tracing::subscriber::with_default(subscriber, || {
            let _ = serve(&server, &mut Doubler::default(), MapQuota::default());
        });
    });
    let mut said = Vec::new();
    for _ in 0..12 {
        assert_eq!(ask(&socket, command::RESET, &[], &[]).0, INVAL, "before the version");
        said.push(warnings.load(Ordering::Relaxed));
    }
    drop(socket);
    thread.join().unwrap();
    assert_eq!(said, [1, 2, 3, 4, 5, 6, 7, 8, 8, 8, 8, 8]);
}

#[test]
fn a_block_lies_within_its_window_at_a_multiple_of_its_words() {
    let (sent, seen) = mpsc::channel();
    let window = window_of(move |command, body| {
        sent.send((command, RegionAccess::decode(body).map(|(access, _)| access.offset))).unwrap();
        (described(2, 4096, (0, 0)), None)
    });
    let window = window.unwrap().unwrap();
    for offset in [1, 4, 63, 4040, 4096, u64::MAX - 7] {
        let refused = window.write_block(offset, &[5; 8]);
        assert!(
            matches!(refused, Err(PciError::Access { width: 64, len: 4096, .. })),
            "{offset} {refused:?}"
        );
    }
    window.write_block(4032, &[5; 8]).unwrap();
    let bound = Duration::from_secs(20);
    assert_eq!(seen.recv_timeout(bound).unwrap().0, command::GET_REGION_INFO);
    let first = seen.recv_timeout(bound).unwrap();
    assert_eq!(first, (command::REGION_WRITE, Some(4032)), "the others were not sent");
}

#[test]
fn memory_that_begins_within_a_page_of_its_file_is_not_sent() {
    let (socket, server) = served();
    let device = nic(socket);
    let region = Region::shared(16384, Pages::Base).unwrap();
    for (at, wanted) in [(16, false), (2048, false), (4096, true)] {
        let part = region.sub(at, 4096).unwrap();
        let mapped = device.dma().map(0x1000, &part, DmaAccess::Both);
        match &mapped {
            Ok(()) => assert!(wanted, "{at}"),
            Err(BackingError::Unreachable(why)) => {
                assert!(!wanted && why.contains("page of its file"), "{at} {why}");
            }
            Err(other) => panic!("{at}: the server was asked: {other}"),
        }
    }
    drop(device);
    assert_eq!(server.join().unwrap(), 0);
}

#[test]
fn a_client_that_hangs_up_ends_well_and_one_that_breaks_the_framing_does_not() {
    let whole = UserHeader::request(1, command::VERSION, 100, true).encode();
    let huge = UserHeader { size: u32::MAX, ..UserHeader::request(1, command::VERSION, 0, true) };
    let cases = [(&[][..], true), (&whole[..7], true), (&whole, true), (&huge.encode(), false)];
    for (bytes, ends_well) in cases {
        let (client, server) = UnixStream::pair().unwrap();
        rustix::io::write(&client, bytes).unwrap();
        drop(client);
        let ended = serve(&server, &mut Doubler::default(), MapQuota::default());
        assert_eq!(ended.is_ok(), ends_well, "{bytes:?} {ended:?}");
    }
}

/// Every reply of a server, byte by byte: what QEMU reads.
#[test]
fn replies_are_of_these_bytes() {
    let (socket, server) = served();
    let words =
        |words: &[u32]| -> Vec<u8> { words.iter().flat_map(|word| word.to_le_bytes()).collect() };
    let capabilities = b"{\"capabilities\":{\"max_msg_fds\":1,\"max_data_xfer_size\":4096}}\0";
    // A newer client gets the newest version of the server; `agreed` asks for an older one.
    let version = ask(&socket, command::VERSION, &[0, 0, 9, 0], &[]);
    assert_eq!(version, (None, [&[0, 0, 1, 0], &capabilities[..]].concat()));
    let info = ask(&socket, command::GET_INFO, &words(&[16, 0, 0, 0]), &[]);
    assert_eq!(info, (None, words(&[16, 3, 9, 5])));
    for (kind, wanted) in [
        (0, Some(0)),
        (1, Some(0)),
        (2, Some(1)),
        (3, Some(0)),
        (4, Some(0)),
        (5, None),
        (u32::MAX, None),
    ] {
        let (errno, body) = ask(&socket, command::GET_IRQ_INFO, &words(&[16, 7, kind, 9]), &[]);
        match wanted {
            Some(count) => assert_eq!((errno, body), (None, words(&[16, 1, kind, count]))),
            None => assert_eq!((errno, body), (INVAL, vec![]), "{kind}"),
        }
    }
    let length = u32::try_from(SLOT_LEN).unwrap();
    for (region, wanted) in [
        (0, Some(vec![32, 3, 0, 0, 64, 0, 0, 0])),
        (1, Some(vec![32, 0, 1, 0, 0, 0, 0, 0])),
        (2, Some(vec![64, 15, 2, 32, length, 0, 0, 0, 0x1_0001, 0, 1, 0, 0, 0, length, 0])),
        (7, Some(vec![32, 3, 7, 0, 256, 0, 0, 0])),
        (8, Some(vec![32, 0, 8, 0, 0, 0, 0, 0])),
        (9, None),
        (u32::MAX, None),
    ] {
        let question = words(&[64, 0, region, 0, 0, 0, 0, 0]);
        let (errno, body) = ask(&socket, command::GET_REGION_INFO, &question, &[]);
        match wanted {
            Some(wanted) => assert_eq!((errno, body), (None, words(&wanted)), "{region}"),
            None => assert_eq!((errno, body), (INVAL, vec![]), "{region}"),
        }
    }
    // Room for all but the last byte of the areas is room for the head.
    let (_, body) = ask(&socket, command::GET_REGION_INFO, &words(&[63, 0, 2, 0, 0, 0, 0, 0]), &[]);
    assert_eq!(body, words(&[64, 15, 2, 32, length, 0, 0, 0]));
    let memory = memory();
    assert_eq!(map_at(&socket, 0x1000, &[memory.fd().unwrap().0]), None);
    let unmap = wire::encode_unmap(0x1000, 8192);
    assert_eq!(unmap, words(&[24, 0, 0x1000, 0, 8192, 0]));
    assert_eq!(ask(&socket, command::DMA_UNMAP, &unmap, &[]), (None, unmap));
    let id = RegionAccess { offset: 0, region: 7, count: 4 }.encode(&[]);
    let ids = [8, 0xcc, 1, 0xa0];
    assert_eq!(ask(&socket, command::REGION_READ, &id, &[]), (None, [&id[..], &ids].concat()));
    let command = RegionAccess { offset: 4, region: 7, count: 2 }.encode(&[6, 0]);
    let written = ask(&socket, command::REGION_WRITE, &command, &[]);
    assert_eq!(written, (None, command[..16].to_vec()));
    assert_eq!(ask(&socket, command::RESET, &[], &[]), (None, vec![]));
    for number in [0, 6, 11, 12, 14, u16::MAX] {
        assert_eq!(ask(&socket, number, &[], &[]), (Some(95), vec![]), "command {number}");
    }
    drop(socket);
    assert_eq!(server.join().unwrap(), 0);
}

/// What a driver sends, byte by byte.
#[test]
fn requests_are_of_these_bytes() {
    let map = |is_writable| UserDmaMap { is_writable, offset: 3, address: 4, size: 5 };
    for (is_writable, flags) in [(false, 1), (true, 3)] {
        let bytes = map(is_writable).encode();
        let wanted = UserBody::default().words(&[32, flags]).longs(&[3, 4, 5]).0;
        assert_eq!(bytes, wanted);
        assert_eq!(UserDmaMap::decode(&bytes), Ok(map(is_writable)));
    }
    let writes_only = UserBody::default().words(&[32, 2]).longs(&[3, 4, 5]).0;
    assert_eq!(UserDmaMap::decode(&writes_only), Ok(map(true)));
    let set = SetIrqs { flags: 1, index: 2, start: 3, count: 4 };
    assert_eq!(set.encode(), UserBody::default().words(&[20, 1, 2, 3, 4]).0);
    assert_eq!(SetIrqs::decode(&set.encode()), Ok(set));
    let question = RegionInfo::question(5);
    assert_eq!(question, UserBody::default().words(&[64, 0, 5, 0]).longs(&[0, 0]).0);
    let request = UserHeader::request(0x201, 0x403, 5, true);
    assert_eq!(request.encode(), [1, 2, 3, 4, 21, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert!(request.wants_reply() && request.is_command() && !request.is_reply());
    let post = UserHeader::request(0x201, 0x403, 5, false);
    assert_eq!(post.encode(), [1, 2, 3, 4, 21, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0]);
    assert!(!post.wants_reply() && post.is_command() && !post.is_reply());
    let reply = request.reply(7);
    assert_eq!(reply.encode(), [1, 2, 3, 4, 23, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    assert!(reply.is_reply() && !reply.is_command());
    let refusal = request.refusal(0x0605);
    assert_eq!(refusal.encode(), [1, 2, 3, 4, 16, 0, 0, 0, 0x21, 0, 0, 0, 5, 6, 0, 0]);
    let errnos = [(0, 0), (0, 9), (0x20, 9), (0x20, 0)];
    let errnos = errnos.map(|(flags, error)| UserHeader { flags, error, ..reply }.errno());
    assert_eq!(errnos, [None, None, Some(9), Some(5)]);
}

#[test]
fn an_error_of_the_connection_is_one_of_the_device() {
    let errors = || {
        [
            UserError::Refused { command: 9, errno: 122 },
            UserError::Refused { command: 9, errno: 22 },
            UserError::Protocol { command: 9, rule: "a rule" },
            UserError::Gone("it ended".to_owned()),
            UserError::Os(io::Error::from_raw_os_error(24)),
        ]
    };
    let of_backing = errors().map(|error| match BackingError::from(error) {
        BackingError::Os(error) => format!("os {:?}", error.raw_os_error()),
        BackingError::Unreachable(why) => format!("unreachable: {why}"),
        BackingError::Gone(why) => format!("gone: {why}"),
        other => panic!("{other}"),
    });
    let refused = "the server refused command 9: Invalid argument (os error 22)";
    let broken = "the server's reply to command 9 breaks the protocol: a rule";
    let ended = "the server is gone: it ended";
    let wanted = [
        "os Some(122)",
        &format!("unreachable: {refused}"),
        &format!("gone: {broken}"),
        &format!("gone: {ended}"),
        "os Some(24)",
    ];
    assert_eq!(of_backing, wanted);
    let of_pci = errors().map(|error| link::refused("toy", "a try", error).to_string());
    let wanted = [
        "a try of toy failed: Disk quota exceeded (os error 122)",
        "a try of toy failed: Invalid argument (os error 22)",
        &format!("toy is gone: {broken}"),
        &format!("toy is gone: {ended}"),
        "a try of toy failed: Too many open files (os error 24)",
    ];
    assert_eq!(of_pci, wanted);
}

/// Each message has the next id, and only requests want a reply; after the end nothing is sent.
#[test]
fn messages_are_numbered_in_order() {
    let (client, server) = UnixStream::pair().unwrap();
    let bound = Duration::from_secs(20);
    let thread = std::thread::spawn(move || {
        let mut seen = Vec::new();
        while let Ok(message) = stream::receive(&server, bound, bound) {
            let header = message.header;
            seen.push((header.id, header.command, header.wants_reply(), message.body.len()));
            if header.wants_reply() {
                stream::send(&server, header.reply(4), &[0; 4], (&[], bound)).unwrap();
            }
        }
        seen
    });
    let link = UserLink::over(client, bound).unwrap();
    link.post(command::REGION_WRITE, &[1; 3]).unwrap();
    link.request(command::RESET, &[], &[], 4).unwrap();
    assert!(!link.is_closed());
    let short = link.request(command::GET_INFO, &[1], &[], 5);
    assert!(matches!(short, Err(UserError::Protocol { command: command::GET_INFO, .. })));
    assert!(link.is_closed());
    for sent in
        [link.post(command::RESET, &[]), link.request(command::RESET, &[], &[], 0).map(drop)]
    {
        assert_eq!(sent.unwrap_err().to_string(), "the server is gone: the connection was closed");
    }
    let version = 4 + b"{\"capabilities\":{\"max_msg_fds\":1}}\0".len();
    let wanted = [
        (1, command::VERSION, true, version),
        (2, command::REGION_WRITE, false, 3),
        (3, command::RESET, true, 0),
        (4, command::GET_INFO, true, 1),
    ];
    assert_eq!(thread.join().unwrap(), wanted);
}

#[test]
fn a_device_has_the_windows_vectors_and_addresses_of_its_server() {
    use crate::{
        device::{InterruptKind, PciDevice as _, WindowId},
        user::UserDevice,
    };
    let (socket, server) = served();
    let device = UserDevice::on(socket, "toy").unwrap();
    assert_eq!(
        (device.name().as_str(), device.is_gone(), device.merges_interrupts()),
        ("toy", false, false)
    );
    let bars = (0..=9).filter(|bar| device.window(WindowId::Bar(*bar)).is_ok());
    assert!(bars.eq([0, 2]));
    let len = |id| device.window(id).unwrap().len();
    assert_eq!(
        [WindowId::Bar(0), WindowId::Bar(2), WindowId::Config].map(len),
        [64, SLOT_LEN as u64, 256]
    );
    for kind in
        [InterruptKind::Intx, InterruptKind::Msi, InterruptKind::Error, InterruptKind::Request]
    {
        assert!(matches!(device.interrupts(kind), Err(PciError::NoInterrupt { .. })), "{kind:?}");
    }
    let vectors = device.interrupts(InterruptKind::MsiX).unwrap();
    let fd = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).unwrap();
    let beyond = vectors.enable_one(1, fd.as_fd());
    assert!(matches!(beyond, Err(PciError::Vectors { first: 1, last: 1, count: 1 })));
    let masked = vectors.set_masked(0, true).unwrap_err().to_string();
    assert_eq!(masked, "toy does not support masking of vectors");
    let dma = device.dma();
    assert_eq!(dma.ranges(), [(4096, (1 << 48) - 1)]);
    assert!(matches!(dma.unmap(0x1000), Err(BackingError::NotMapped(0x1000))));
    // A vector that is disabled is not raised when the server ends, an enabled one is.
    let disabled = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).unwrap();
    vectors.enable(&[Some(disabled.as_fd())]).unwrap();
    vectors.disable().unwrap();
    vectors.enable_one(0, fd.as_fd()).unwrap();
    device.reset().unwrap();
    drop(device);
    server.join().unwrap();
    let mut wait = [rustix::event::PollFd::new(&fd, rustix::event::PollFlags::IN)];
    let bound = rustix::event::Timespec { tv_sec: 20, tv_nsec: 0 };
    assert_eq!(rustix::event::poll(&mut wait, Some(&bound)), Ok(1));
    assert!(rustix::io::read(&disabled, &mut [0; 8]).is_err());
}

#[test]
fn doorbell_memory_may_be_left_alone() {
    for is_used in [true, false] {
        let (socket, server) = served();
        let mut device = nic(socket);
        if !is_used {
            device = device.without_doorbell_memory();
        }
        assert_eq!(device.doorbell_slots().is_some(), is_used);
        assert_eq!(device.status(), is_used.then_some(0));
        assert!(device.registers().map(0, 8).is_none(), "registers are no memory");
        drop(device);
        server.join().unwrap();
    }
}
