//! The exchange with good, silent, talkative and lying peers.

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
    assert!(matches!(oob.receive("it"), Ok(OobMessage::Outcome(SizeOutcome { messages: 7, .. }))));
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
    assert!(matches!(silent, OobError::Hangs { peer: at, seconds: 0 } if at == peer), "{silent}");
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
