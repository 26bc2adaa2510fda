//! The other end of the machine's network cable: asks the driver in the machine, and checks what it answers.
//!
//! *Owns*: a socket, each datagram of which is an Ethernet frame. *Takes*: time, in steps. *Gives*: results. *Must
//! not*: share code with the driver: this side computes its own checksums.

use std::{
    collections::BTreeMap,
    io,
    os::unix::net::UnixDatagram,
    time::{Duration, Instant},
};

use crate::vfio::WirePaths;

/// Ethernet address of the machine's card.
const GUEST_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
/// Ethernet address of this side.
const HOST_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const GUEST_IP: [u8; 4] = [10, 0, 0, 2];
const HOST_IP: [u8; 4] = [10, 0, 0, 1];
/// Bytes in the pings, in turn: none, odd, usual, and as many as a frame takes.
const PAYLOADS: [usize; 5] = [0, 1, 56, 999, 1472];
/// Pings in all: the rings of the driver, of 64 entries each, are passed three times.
const PINGS: u16 = 200;
/// Pings without an answer at any time.
const WINDOW: usize = 16;
/// Time after which a question is asked again: the driver may not have started, or a frame was lost.
const AGAIN: Duration = Duration::from_millis(500);
/// Type of the frame that says that all is done (for local experiments).
const DONE: [u8; 2] = [0x88, 0xB5];

/// This end of the cable.
#[derive(Debug)]
pub struct WireEnd {
    socket: UnixDatagram,
    paths: WirePaths,
    has_arp: bool,
    wrong: Vec<String>,
    next: u16,
    /// Pings without an answer, with the time of the question.
    open: BTreeMap<u16, Instant>,
    answered: usize,
    asked: Option<Instant>,
}

impl WireEnd {
    /// Opens this end. The machine opens the other one.
    ///
    /// # Errors
    /// The socket cannot be made.
    pub fn open(paths: &WirePaths) -> io::Result<Self> {
        let socket = UnixDatagram::bind(&paths.host)?;
        socket.set_nonblocking(true)?;
        let (open, wrong) = (BTreeMap::new(), Vec::new());
        let paths = paths.clone();
        Ok(Self { socket, paths, has_arp: false, wrong, next: 0, open, answered: 0, asked: None })
    }

    /// Takes what came and asks what is to be asked. To be called every few milliseconds.
    pub fn step(&mut self, now: Instant) {
        let mut frame = [0; 2048];
        // As many as can be open, so that the call ends.
        for _ in 0..2 * WINDOW {
            let Ok(len) = self.socket.recv(&mut frame) else { break };
            self.on_frame(frame.get(..len).unwrap_or_default());
        }
        let is_late = |asked: Instant| now.duration_since(asked) > AGAIN;
        if !self.has_arp {
            if self.asked.is_none_or(is_late) {
                self.asked = Some(now);
                self.send(&arp_request());
            }
            return;
        }
        let late = self.open.iter().filter(|(_, asked)| is_late(**asked));
        let late = late.map(|(number, _)| *number).collect::<Vec<_>>();
        for number in late {
            self.ask(number, now);
        }
        while self.next < PINGS && self.open.len() < WINDOW {
            self.ask(self.next, now);
            self.next += 1;
        }
        if self.is_done() {
            self.send(&[&GUEST_MAC[..], &HOST_MAC, &DONE, &[0; 46]].concat());
        }
    }

    /// Returns the checks of this side: name, and what failed.
    pub fn results(&self) -> [(String, Result<(), String>); 2] {
        let arp = if self.has_arp { Ok(()) } else { Err("no answer came".to_owned()) };
        let pings = match self.wrong.first() {
            Some(wrong) => Err(wrong.clone()),
            None if self.is_done() => Ok(()),
            None => Err(format!("{} of {PINGS} pings were answered", self.answered)),
        };
        let name = |what| format!("e1000e: {what}, seen from outside");
        [(name("ARP is answered"), arp), (name("pings are answered byte for byte"), pings)]
    }

    fn is_done(&self) -> bool {
        self.answered == usize::from(PINGS)
    }

    fn send(&self, frame: &[u8]) {
        // Before the machine opened its end, and when its queue is full, it is lost and sent again.
        let _ = self.socket.send_to(frame, &self.paths.guest);
    }

    fn ask(&mut self, number: u16, now: Instant) {
        self.send(&echo(8, number, (HOST_MAC, HOST_IP), (GUEST_MAC, GUEST_IP)));
        self.open.insert(number, now);
    }

    fn on_frame(&mut self, frame: &[u8]) {
        match frame.get(12..14) {
            Some([8, 6]) if is_padded(frame, &arp_reply()) => self.has_arp = true,
            Some([8, 0]) => self.on_packet(frame),
            _ => self.wrong.push(format!("an unexpected frame came: {:02x?}", frame.get(..42))),
        }
    }

    fn on_packet(&mut self, frame: &[u8]) {
        let number = frame.get(40..42).map_or(u16::MAX, |at| u16::from_be_bytes([at[0], at[1]]));
        let wanted = echo(0, number, (GUEST_MAC, GUEST_IP), (HOST_MAC, HOST_IP));
        if !is_padded(frame, &wanted) {
            self.wrong
                .push(format!("the answer to ping {number} differs: {:02x?}", frame.get(..64)));
        } else if self.open.remove(&number).is_some() {
            self.answered += 1;
        }
    }
}

/// Whether `frame` is `wanted`, with padding to the least length of a frame.
fn is_padded(frame: &[u8], wanted: &[u8]) -> bool {
    let rest = frame.strip_prefix(wanted);
    rest.is_some_and(|rest| {
        rest.is_empty() || frame.len() == 60 && rest.iter().all(|byte| *byte == 0)
    })
}

fn arp_request() -> Vec<u8> {
    let head = [&[0xFF; 6][..], &HOST_MAC, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1]].concat();
    [&head, &HOST_MAC[..], &HOST_IP, &[0; 6], &GUEST_IP, &[0; 18]].concat()
}

fn arp_reply() -> Vec<u8> {
    let head = [&HOST_MAC[..], &GUEST_MAC, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 2]].concat();
    [&head, &GUEST_MAC[..], &GUEST_IP, &HOST_MAC, &HOST_IP].concat()
}

/// A ping or its answer (`kind` 8 or 0), whose bytes follow from its number.
fn echo(kind: u8, number: u16, from: ([u8; 6], [u8; 4]), to: ([u8; 6], [u8; 4])) -> Vec<u8> {
    let len = PAYLOADS[usize::from(number) % PAYLOADS.len()];
    let [high, low] = number.to_be_bytes();
    let mut message = vec![kind, 0, 0, 0, 0x55, 0xAA, high, low];
    message.extend((0..len).map(|i| i.to_le_bytes()[0].wrapping_mul(31) ^ low));
    set_sum(&mut message, 2);
    let total = u16::try_from(20 + message.len()).unwrap_or(u16::MAX).to_be_bytes();
    let mut header = vec![0x45, 0, total[0], total[1], high, low, 0x40, 0, 64, 1, 0, 0];
    header.extend([from.1, to.1].concat());
    set_sum(&mut header, 10);
    [&to.0[..], &from.0, &[8, 0], &header, &message].concat()
}

/// Stores the checksum of `bytes` at `at`, which is even: RFC 1071, a carry at a time.
fn set_sum(bytes: &mut [u8], at: usize) {
    let mut sum = 0_u16;
    for pair in bytes.chunks(2) {
        let word = u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]);
        let (next, is_carried) = sum.overflowing_add(word);
        sum = next + u16::from(is_carried);
    }
    bytes[at..at + 2].copy_from_slice(&(!sum).to_be_bytes());
}

#[cfg(test)]
mod tests {
    use urma_e1000e::answer::answer;

    use super::*;

    /// The results of a wire whose other end answers as the driver's host does, changed by `change`.
    fn against(change: impl Fn(Vec<u8>) -> Option<Vec<u8>>) -> [Result<(), String>; 2] {
        let folder = std::env::temp_dir().join(format!("urma-wire-{}", std::process::id()));
        let folder = folder.join(std::thread::current().name().unwrap().replace(':', "-"));
        std::fs::create_dir_all(&folder).unwrap();
        let paths = WirePaths::in_folder(&folder);
        let mut wire = WireEnd::open(&paths).unwrap();
        let guest = UnixDatagram::bind(&paths.guest).unwrap();
        guest.set_nonblocking(true).unwrap();
        let mut frame = [0; 2048];
        let mut now = now();
        for _ in 0..1000 {
            wire.step(now);
            now += Duration::from_millis(20);
            while let Ok(len) = guest.recv(&mut frame) {
                let reply = answer(GUEST_MAC, GUEST_IP, &frame[..len]);
                if let Some(reply) = reply.and_then(|(_, reply)| change(reply)) {
                    guest.send_to(&reply, &paths.host).unwrap();
                }
            }
        }
        std::fs::remove_dir_all(&folder).unwrap();
        wire.results().map(|(_, result)| result)
    }

    #[expect(clippy::disallowed_methods, reason = "a start for times that this test makes")]
    fn now() -> Instant {
        Instant::now()
    }

    #[test]
    fn a_host_that_answers_is_found_to_answer() {
        assert_eq!(against(Some), [Ok(()), Ok(())]);
        let padded = |mut reply: Vec<u8>| {
            reply.resize(reply.len().max(60), 0);
            Some(reply)
        };
        assert_eq!(against(padded), [Ok(()), Ok(())]);
    }

    #[test]
    fn planted_faults_of_the_other_end_are_found() {
        assert!(against(|_| None)[0].is_err(), "silence");
        let flip = |at: usize| {
            move |mut reply: Vec<u8>| {
                if let Some(byte) = reply.get_mut(at) {
                    *byte ^= 1;
                }
                Some(reply)
            }
        };
        assert!(against(flip(30))[0].is_err(), "another address in ARP");
        for at in [16, 24, 36, 45, 1000] {
            let [_, pings] = against(|reply| {
                if reply.len() > at && reply[12..14] == [8, 0] {
                    flip(at)(reply)
                } else {
                    Some(reply)
                }
            });
            assert!(pings.is_err(), "byte {at} of a ping");
        }
        let only_short = |reply: Vec<u8>| (reply.len() < 1000).then_some(reply);
        assert!(against(only_short)[1].is_err(), "long frames are lost");
    }
}
