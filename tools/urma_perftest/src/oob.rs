//! The exchange outside of URMA: lines of JSON over TCP.
//!
//! An empty line is a beat: its sender works and has nothing to say yet.
//!
//! *Owns*: the connection, the messages, their version and length check. *Takes*: what one side
//! says. *Gives*: what the other side said. *Must not*: wait without a bound, or believe a length.

use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use socket2::{Domain, Socket, Type};
use urma_tools::shown;

use crate::{
    clock::{RunningClock, WaitDeadline},
    plan::Test,
};

/// Version of the messages; both sides must have the same one.
pub(crate) const VERSION: u32 = 3;

/// Longest message in bytes, newline included; 1024 jetties fit.
const LINE_MAX: usize = 1 << 18;

/// How long a client tries to reach a server that is about to start.
const CONNECT_BOUND: Duration = Duration::from_secs(5);

/// How long an accepted or connected socket may take for one write.
const WRITE_BOUND: Duration = Duration::from_secs(10);

/// What the two sides say to each other, in this order.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) enum OobMessage {
    /// First message: version and parameters of the side that sends it.
    Hello {
        /// [`VERSION`] of the speaker.
        version: u32,
        /// Parameters of the test, which the server compares with its own.
        test: Box<Test>,
        /// Core that the other side shall pin itself to.
        peer_cpu: Option<usize>,
    },
    /// The device is open; this is how to reach it.
    Endpoint(Box<Endpoint>),
    /// Both sides wait for each other here; the number identifies the point.
    Meet(u64),
    /// What this side measured or counted in the size just run.
    Outcome(SizeOutcome),
    /// This side gives up, for this reason.
    Refused(String),
}

/// How to reach a node's objects. Tokens travel in clear: they guard a test's own memory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Endpoint {
    /// EID of the side's node, as text.
    pub(crate) eid: String,
    /// User address space id.
    pub(crate) uasid: u32,
    /// Numbers of the queues that requests go to, one per jetty.
    pub(crate) queues: Vec<u32>,
    /// Numbers of the queues that requests come from, one per jetty.
    pub(crate) sources: Vec<u32>,
    /// Token of the queues, if guarded.
    pub(crate) queue_token: Option<u32>,
    /// The buffer: once, or once per jetty.
    pub(crate) segments: Vec<OobSegment>,
}

/// Names a registered segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct OobSegment {
    /// First address as registered.
    pub(crate) va: u64,
    /// Length of the segment in bytes.
    pub(crate) len: u64,
    /// Token id of the segment.
    pub(crate) token_id: u32,
    /// Token of the segment; `None` if it is not guarded.
    pub(crate) token: Option<u32>,
}

/// What a side reports to the other after a size.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct SizeOutcome {
    /// Messages of its own that completed.
    pub(crate) messages: u64,
    /// Messages that it received.
    pub(crate) received: u64,
    /// Requests that failed, under `--enable_err_continue`.
    pub(crate) errors: u64,
    /// Nanoseconds that its own messages took.
    pub(crate) nanos: u64,
    /// Nanoseconds per message in the best stretch.
    pub(crate) best_ns: Option<f64>,
    /// Device counters that changed.
    pub(crate) counters: Vec<(String, u64)>,
}

/// Why the exchange failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OobError {
    /// The system said no.
    #[error("the exchange with the peer failed: {0}")]
    Io(#[from] io::Error),
    /// Nothing came in time.
    #[error("the peer said nothing for {0} s (waiting for {1})")]
    Silence(u64, &'static str),
    /// Its connection is open, and nothing came, not even a beat.
    #[error(
        "the peer at {peer} hangs: it is connected and sent nothing for {seconds} s (--wait-timeout)"
    )]
    Hangs {
        /// Its end of the connection.
        peer: SocketAddr,
        /// Bound of the wait, in seconds.
        seconds: u64,
    },
    /// The peer closed the connection.
    #[error("the peer closed the connection (waiting for {0})")]
    Gone(&'static str),
    /// It sent something else than is due, or nothing that can be read.
    #[error("the peer sent {0}")]
    Unexpected(String),
    /// It gave up, for this reason.
    #[error("the peer gave up: {0}")]
    Refused(String),
}

/// Where the exchange goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OobAddress<'a> {
    /// The server, on the client.
    pub(crate) address: Option<&'a str>,
    /// TCP port of the server.
    pub(crate) port: u16,
    /// Local address to bind, as the command line gives it.
    pub(crate) bind: Option<&'a str>,
    /// Whether only IPv6 addresses are used.
    pub(crate) ipv6: bool,
}

impl OobAddress<'_> {
    /// A listening socket for clients: of both families, unless the command line says otherwise.
    pub(crate) fn listen(&self) -> io::Result<TcpListener> {
        let ipv6 = SocketAddr::from((Ipv6Addr::UNSPECIFIED, self.port));
        match self.bind {
            Some(bind) => TcpListener::bind((bind, self.port)),
            None if self.ipv6 => TcpListener::bind(ipv6),
            // A system without IPv6 has the second one only.
            None => TcpListener::bind([ipv6, (Ipv4Addr::UNSPECIFIED, self.port).into()].as_slice()),
        }
    }
}

/// Connects to `address`, from the local address `bind` if one is given.
fn connect_from(bind: Option<&str>, address: &SocketAddr) -> io::Result<TcpStream> {
    let Some(bind) = bind else { return TcpStream::connect_timeout(address, CONNECT_BOUND) };
    let local = (bind, 0).to_socket_addrs()?.find(|local| local.is_ipv6() == address.is_ipv6());
    let local = local.ok_or_else(|| io::Error::from(io::ErrorKind::AddrNotAvailable))?;
    let socket = Socket::new(Domain::for_address(*address), Type::STREAM, None)?;
    socket.bind(&local.into())?;
    socket.connect_timeout(&(*address).into(), CONNECT_BOUND)?;
    Ok(socket.into())
}

/// A connection to the other side.
#[derive(Debug)]
pub(crate) struct Oob {
    stream: TcpStream,
    pending: Vec<u8>,
    clock: RunningClock,
    silence: Duration,
    /// Until when the other side may send nothing at all.
    quiet: WaitDeadline,
}

impl Oob {
    /// Waits for a client on `port`, at most `bound`.
    pub(crate) fn accept(listener: &TcpListener, bound: Duration) -> Result<Self, OobError> {
        let clock = RunningClock::start();
        let deadline = WaitDeadline::after(&clock, bound);
        listener.set_nonblocking(true)?;
        loop {
            match listener.accept() {
                Ok((stream, _)) => return Self::over(stream, clock, bound),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
            if deadline.is_over(&clock) {
                return Err(OobError::Silence(bound.as_secs(), "a client"));
            }
            crate::clock::pause(Duration::from_millis(2));
        }
    }

    /// Connects to a server, trying again while it refuses, at most 5 s.
    pub(crate) fn connect(at: &OobAddress<'_>, silence: Duration) -> Result<Self, OobError> {
        let clock = RunningClock::start();
        let deadline = WaitDeadline::after(&clock, CONNECT_BOUND);
        let server = at.address.unwrap_or("127.0.0.1");
        let mut addresses = (server, at.port).to_socket_addrs()?;
        let address = addresses.find(|address| !at.ipv6 || address.is_ipv6());
        let address = address.ok_or_else(|| io::Error::from(io::ErrorKind::AddrNotAvailable))?;
        loop {
            match connect_from(at.bind, &address) {
                Ok(stream) => return Self::over(stream, clock, silence),
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    if deadline.is_over(&clock) {
                        return Err(error.into());
                    }
                }
                Err(error) => return Err(error.into()),
            }
            crate::clock::pause(Duration::from_millis(20));
        }
    }

    fn over(stream: TcpStream, clock: RunningClock, silence: Duration) -> Result<Self, OobError> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(false)?;
        stream.set_write_timeout(Some(WRITE_BOUND))?;
        let quiet = WaitDeadline::after(&clock, silence);
        Ok(Self { stream, pending: Vec::new(), clock, silence, quiet })
    }

    /// Sends one message to the peer, as a line of JSON.
    pub(crate) fn say(&mut self, message: &OobMessage) -> Result<(), OobError> {
        let mut line = serde_json::to_vec(message).map_err(io::Error::from)?;
        line.push(b'\n');
        if line.len() > LINE_MAX {
            return Err(OobError::Unexpected(format!("a message of {} bytes", line.len())));
        }
        self.stream.write_all(&line).map_err(OobError::from)
    }

    /// Sends a beat. Never waits: to a side that does not read, none goes out.
    pub(crate) fn beat(&mut self) -> Result<(), OobError> {
        self.stream.set_nonblocking(true)?;
        // One byte: it goes out whole or not at all.
        let sent = self.stream.write(b"\n");
        self.stream.set_nonblocking(false)?;
        match sent {
            Ok(_) => Ok(()),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(()),
                _ => Err(error.into()),
            },
        }
    }

    /// Counts the other side's silence from now on.
    pub(crate) fn expect_beats(&mut self) {
        self.quiet = WaitDeadline::after(&self.clock, self.silence);
    }

    /// Fails when the other side sent nothing, not even a beat, for too long. Counts what was read,
    /// reads nothing.
    pub(crate) fn check_beats(&self) -> Result<(), OobError> {
        if !self.quiet.is_over(&self.clock) {
            return Ok(());
        }
        let peer = self.stream.peer_addr()?;
        // A socket of both families has IPv4 addresses in IPv6 form.
        let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
        Err(OobError::Hangs { peer, seconds: self.silence.as_secs() })
    }

    /// Whether a message is there. Never waits.
    pub(crate) fn has_word(&mut self) -> Result<bool, OobError> {
        self.stream.set_nonblocking(true)?;
        let got = self.fill("the end of the test");
        self.stream.set_nonblocking(false)?;
        got?;
        Ok(self.pending.contains(&b'\n'))
    }

    /// Fails when the other side has given up or is gone. Never waits.
    pub(crate) fn check(&mut self) -> Result<(), OobError> {
        if !self.has_word()? {
            return Ok(());
        }
        let end = self.pending.iter().position(|byte| *byte == b'\n').unwrap_or(0);
        match serde_json::from_slice(&self.pending[..end]) {
            Ok(OobMessage::Refused(why)) => Err(OobError::Refused(shown(&why))),
            _ => Ok(()),
        }
    }

    /// The reason for which the other side gave up, if it sends one within `bound`. Messages before
    /// that are dropped.
    pub(crate) fn reason(&mut self, bound: Duration) -> Option<String> {
        let deadline = WaitDeadline::after(&self.clock, bound);
        self.stream.set_read_timeout(Some(bound)).ok()?;
        loop {
            match self.take_line() {
                Err(OobError::Refused(why)) => return Some(why),
                Ok(Some(_)) => continue,
                Ok(None) => {}
                Err(_) => return None,
            }
            if deadline.is_over(&self.clock) || self.fill("its reason").is_err() {
                return None;
            }
        }
    }

    /// Whether a message is there; waits for one for at most `bound`.
    pub(crate) fn await_word(&mut self, bound: Duration) -> Result<bool, OobError> {
        if !self.pending.contains(&b'\n') {
            self.stream.set_read_timeout(Some(bound))?;
            self.fill("the end of the test")?;
        }
        Ok(self.pending.contains(&b'\n'))
    }

    /// The next message; waits for it. `due` names it in errors.
    pub(crate) fn receive(&mut self, due: &'static str) -> Result<OobMessage, OobError> {
        let deadline = WaitDeadline::after(&self.clock, self.silence);
        self.stream.set_read_timeout(Some(Duration::from_millis(200)))?;
        loop {
            if let Some(message) = self.take_line()? {
                return Ok(message);
            }
            self.fill(due)?;
            if deadline.is_over(&self.clock) && !self.pending.contains(&b'\n') {
                return Err(OobError::Silence(self.silence.as_secs(), due));
            }
        }
    }

    /// Meets the other side at `point`: returns when both have said so.
    pub(crate) fn meet(&mut self, point: u64) -> Result<(), OobError> {
        self.say(&OobMessage::Meet(point))?;
        self.await_meet(point)
    }

    /// The other half of [`Oob::meet`], for the side that has sent its half already.
    pub(crate) fn await_meet(&mut self, point: u64) -> Result<(), OobError> {
        match self.receive("a meeting point")? {
            OobMessage::Meet(theirs) if theirs == point => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// Reads what is there, or waits for the socket's read timeout. Beats are
    /// counted and dropped.
    fn fill(&mut self, due: &'static str) -> Result<(), OobError> {
        let mut chunk = [0; 4096];
        match self.stream.read(&mut chunk) {
            Ok(0) => Err(OobError::Gone(due)),
            Ok(count) => {
                self.expect_beats();
                for byte in &chunk[..count] {
                    let is_at_start = self.pending.last().is_none_or(|last| *last == b'\n');
                    if !(is_at_start && *byte == b'\n') {
                        self.pending.push(*byte);
                    }
                }
                Ok(())
            }
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock
                | io::ErrorKind::TimedOut
                | io::ErrorKind::Interrupted => Ok(()),
                _ => Err(error.into()),
            },
        }
    }

    /// Takes a whole line out of what was read.
    fn take_line(&mut self) -> Result<Option<OobMessage>, OobError> {
        let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') else {
            if self.pending.len() > LINE_MAX {
                return Err(OobError::Unexpected(format!("more than {LINE_MAX} bytes at once")));
            }
            return Ok(None);
        };
        let line: Vec<u8> = self.pending.drain(..=end).collect();
        match serde_json::from_slice(&line) {
            Ok(OobMessage::Refused(why)) => Err(OobError::Refused(shown(&why))),
            Ok(message) => Ok(Some(message)),
            Err(error) => {
                let why = shown(&error.to_string());
                Err(OobError::Unexpected(format!("no message of this program: {why}")))
            }
        }
    }
}

/// The error for a message that is not due.
pub(crate) fn unexpected(message: &OobMessage) -> OobError {
    let name = match message {
        OobMessage::Hello { .. } => "a hello out of turn",
        OobMessage::Endpoint(_) => "an endpoint out of turn",
        OobMessage::Meet(_) => "another meeting point",
        OobMessage::Outcome(_) => "an outcome out of turn",
        OobMessage::Refused(_) => "a refusal",
    };
    OobError::Unexpected(name.to_owned())
}

#[cfg(test)]
mod tests {
    use std::thread;

    use socket2::SockRef;

    use super::*;

    /// For what must come, on a busy machine, too.
    const BOUND: Duration = Duration::from_secs(30);
    /// For what must not come.
    const SHORT: Duration = Duration::from_millis(300);

    fn pair() -> (Oob, TcpStream) {
        pair_within(BOUND)
    }

    fn pair_within(bound: Duration) -> (Oob, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let raw = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (Oob::accept(&listener, bound).unwrap(), raw)
    }

    #[test]
    fn a_message_arrives() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let other = thread::spawn(move || {
            let at = OobAddress { address: None, port, bind: Some("127.0.0.1"), ipv6: false };
            let mut oob = Oob::connect(&at, BOUND).unwrap();
            oob.say(&OobMessage::Outcome(SizeOutcome { messages: 7, ..SizeOutcome::default() }))
                .unwrap();
            oob.meet(3).unwrap();
        });
        let mut oob = Oob::accept(&listener, BOUND).unwrap();
        assert!(matches!(
            oob.receive("it"),
            Ok(OobMessage::Outcome(SizeOutcome { messages: 7, .. }))
        ));
        oob.meet(3).unwrap();
        other.join().unwrap();
    }

    #[test]
    fn silence_is_bounded() {
        let (mut oob, _raw) = pair_within(SHORT);
        assert!(matches!(oob.receive("it"), Err(OobError::Silence(_, "it"))));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(matches!(Oob::accept(&listener, SHORT), Err(OobError::Silence(..))));
    }

    #[test]
    fn beats_are_no_messages_and_renew_the_bound_of_silence() {
        let (mut oob, mut raw) = pair_within(SHORT);
        let peer = raw.local_addr().unwrap();
        for _ in 0..5 {
            crate::clock::pause(SHORT / 3);
            raw.write_all(b"\n").unwrap();
            assert!(!oob.await_word(BOUND).unwrap(), "a beat is no message");
            oob.check_beats().unwrap();
        }
        crate::clock::pause(SHORT);
        assert!(!oob.has_word().unwrap());
        let silent = oob.check_beats().unwrap_err();
        assert!(
            matches!(silent, OobError::Hangs { peer: at, seconds: 0 } if at == peer),
            "{silent}"
        );
        oob.expect_beats();
        oob.check_beats().unwrap();
        raw.write_all(b"\n\n{\"Meet\":3}\n\n\n{\"Meet\":4}\n\n").unwrap();
        oob.await_meet(3).unwrap();
        oob.await_meet(4).unwrap();
        assert!(!oob.has_word().unwrap());
    }

    #[test]
    fn beats_never_wait_for_a_side_that_does_not_read() {
        let (mut oob, mut raw) = pair();
        SockRef::from(&oob.stream).set_send_buffer_size(4096).unwrap();
        SockRef::from(&raw).set_recv_buffer_size(4096).unwrap();
        // More than the socket buffers hold.
        (0..50_000).try_for_each(|_| oob.beat()).unwrap();
        let reader = thread::spawn(move || {
            let mut read = Vec::new();
            raw.read_to_end(&mut read).map(|_| read).unwrap()
        });
        oob.say(&OobMessage::Meet(3)).unwrap();
        drop(oob);
        let read = reader.join().unwrap();
        assert!(read.len() < 50_000 && read.ends_with(b"\n{\"Meet\":3}\n"), "{} bytes", read.len());
    }

    #[test]
    fn a_peer_that_goes_is_noticed() {
        let (mut oob, raw) = pair();
        assert!(!oob.has_word().unwrap());
        drop(raw);
        assert!(matches!(oob.receive("it"), Err(OobError::Gone("it"))));
    }

    #[test]
    fn nonsense_and_endless_lines_are_refused() {
        let (mut oob, mut raw) = pair();
        raw.write_all(b"GET / HTTP/1.1\r\n").unwrap();
        assert!(matches!(oob.receive("it"), Err(OobError::Unexpected(_))));
        let (mut oob, mut raw) = pair();
        let writer = thread::spawn(move || while raw.write_all(&[b'x'; 4096]).is_ok() {});
        assert!(matches!(oob.receive("it"), Err(OobError::Unexpected(_))));
        drop(oob);
        writer.join().unwrap();
    }

    #[test]
    fn another_meeting_point_is_an_error() {
        let (mut oob, mut raw) = pair();
        raw.write_all(b"{\"Meet\":4}\n").unwrap();
        assert!(matches!(oob.meet(3), Err(OobError::Unexpected(_))));
    }

    #[test]
    fn a_refusal_carries_its_reason() {
        let (mut oob, mut raw) = pair();
        raw.write_all(b"{\"Refused\":\"no such mode\"}\n").unwrap();
        assert!(matches!(oob.receive("it"), Err(OobError::Refused(why)) if why == "no such mode"));
    }

    #[test]
    fn a_reason_is_text_whatever_the_peer_wrote() {
        let hostile = b"{\"Refused\":\"\\u001b]0;owned\\u0007\\u001b[2J\\n\"}\n";
        let shown = "the peer gave up: \\u001b]0;owned\\u0007\\u001b[2J\\u000a";
        let (mut oob, mut raw) = pair();
        raw.write_all(hostile).unwrap();
        assert_eq!(oob.receive("it").unwrap_err().to_string(), shown);
        let (mut oob, mut raw) = pair();
        raw.write_all(hostile).unwrap();
        let error = std::iter::repeat_with(|| oob.check()).find_map(Result::err).unwrap();
        assert_eq!(error.to_string(), shown);
        let (mut oob, mut raw) = pair();
        raw.write_all("{\"\u{9b}31m\":1}\n".as_bytes()).unwrap();
        assert!(!oob.receive("it").unwrap_err().to_string().contains('\u{9b}'));
    }

    #[test]
    fn a_server_listens_at_the_address_of_its_command_line_alone() {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let at = OobAddress { address: None, port, bind: Some("127.0.0.9"), ipv6: false };
        let listener = at.listen().unwrap();
        assert_eq!(listener.local_addr().unwrap(), SocketAddr::from(([127, 0, 0, 9], port)));
        assert!(TcpStream::connect(("127.0.0.9", port)).is_ok());
        assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
        // As UMDK's program does.
        drop(listener);
        let all = OobAddress { bind: None, ..at }.listen().unwrap();
        assert!(all.local_addr().unwrap().ip().is_unspecified());
    }

    #[test]
    fn a_reason_is_found_behind_other_messages_and_waited_for() {
        let (mut oob, mut raw) = pair();
        raw.write_all(b"{\"Meet\":4}\n{\"Refused\":\"a wr").unwrap();
        let writer = thread::spawn(move || {
            crate::clock::pause(SHORT / 10);
            raw.write_all(b"ong byte\"}\n").unwrap();
            raw
        });
        let bound = Duration::from_secs(30);
        assert_eq!(oob.reason(bound).as_deref(), Some("a wrong byte"));
        let raw = writer.join().unwrap();
        assert_eq!(oob.reason(SHORT / 10), None);
        drop(raw);
        assert_eq!(oob.reason(bound), None, "a peer that is gone gives none");
    }
}
