//! Answers to ARP and ping, for a host with one address.
//!
//! *Takes*: a frame. *Gives*: the frame that answers it. *Must not*: trust a length in it.

/// Kind of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AnswerKind {
    /// To an ARP request.
    Arp,
    /// To an ICMP echo request.
    Ping,
}

/// Returns the answer of the host with these addresses, if `frame` asks it something.
#[must_use]
pub fn answer(mac: [u8; 6], ip: [u8; 4], frame: &[u8]) -> Option<(AnswerKind, Vec<u8>)> {
    match frame.get(12..14)? {
        [0x08, 0x06] => arp(mac, ip, frame).map(|reply| (AnswerKind::Arp, reply)),
        [0x08, 0x00] if frame.get(..6)? == mac => {
            ping(mac, ip, frame).map(|reply| (AnswerKind::Ping, reply))
        }
        _ => None,
    }
}

fn arp(mac: [u8; 6], ip: [u8; 4], frame: &[u8]) -> Option<Vec<u8>> {
    // Ethernet, IPv4, lengths 6 and 4, request.
    let is_request = frame.get(14..22)? == [0, 1, 8, 0, 6, 4, 0, 1];
    let (sender, target) = (frame.get(22..32)?, frame.get(38..42)?);
    if !is_request || target != ip {
        return None;
    }
    let head = [sender.get(..6)?, &mac, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 2]].concat();
    Some([&head, &mac[..], &ip, sender].concat())
}

fn ping(mac: [u8; 6], ip: [u8; 4], frame: &[u8]) -> Option<Vec<u8>> {
    let packet = frame.get(14..)?;
    let total = usize::from(u16::from_be_bytes([*packet.get(2)?, *packet.get(3)?]));
    // No options, no fragments, ICMP, for this host. What is behind the packet is padding.
    let packet = packet.get(..total)?;
    let is_whole = packet.get(6)? & 0x3F == 0 && *packet.get(7)? == 0;
    if *packet.first()? != 0x45 || !is_whole || *packet.get(9)? != 1 || packet.get(16..20)? != ip {
        return None;
    }
    let echo = packet.get(20..)?;
    if sum(packet.get(..20)?) != 0 || sum(echo) != 0 || echo.get(..2)? != [8, 0] {
        return None;
    }
    let source = packet.get(12..16)?;
    let mut header = [packet.get(..8)?, &[64, 1, 0, 0], &ip, source].concat();
    let check = sum(&header).to_be_bytes();
    header.splice(10..12, check);
    let mut reply = [&[0, 0, 0, 0], echo.get(4..)?].concat();
    let check = sum(&reply).to_be_bytes();
    reply.splice(2..4, check);
    Some([frame.get(6..12)?, &mac, &[8, 0], &header, &reply].concat())
}

/// Checksum of the Internet protocols (RFC 1071); 0 over bytes that hold a right one.
#[must_use]
pub fn sum(bytes: &[u8]) -> u16 {
    let word = |pair: &[u8]| {
        let high = u64::from(pair.first().copied().unwrap_or(0)) << 8;
        high | u64::from(pair.get(1).copied().unwrap_or(0))
    };
    let mut total: u64 = bytes.chunks(2).map(word).sum();
    while total > 0xFFFF {
        total = (total & 0xFFFF) + (total >> 16);
    }
    !u16::try_from(total).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
    const IP: [u8; 4] = [10, 0, 0, 2];

    fn ping_request() -> Vec<u8> {
        let mut header = vec![0x45, 0, 0, 33, 0, 7, 0x40, 0, 64, 1, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        let check = sum(&header).to_be_bytes();
        header[10..12].copy_from_slice(&check);
        let mut echo = vec![8, 0, 0, 0, 1, 2, 3, 4, b'h', b'e', b'l', b'l', b'o'];
        let check = sum(&echo).to_be_bytes();
        echo[2..4].copy_from_slice(&check);
        let mut frame = [&MAC[..], &[2, 0, 0, 0, 0, 1, 8, 0], &header, &echo].concat();
        frame.resize(60, 0);
        frame
    }

    #[test]
    fn a_ping_is_answered_with_its_bytes() {
        let (kind, reply) = answer(MAC, IP, &ping_request()).unwrap();
        assert_eq!((kind, reply.len()), (AnswerKind::Ping, 14 + 33));
        assert_eq!((&reply[..6], &reply[6..12]), (&[2, 0, 0, 0, 0, 1][..], &MAC[..]));
        assert_eq!((sum(&reply[14..34]), sum(&reply[34..])), (0, 0));
        assert_eq!((reply[34], &reply[38..]), (0, &[1, 2, 3, 4, b'h', b'e', b'l', b'l', b'o'][..]));
    }

    #[test]
    fn every_damaged_or_cut_ping_is_dropped() {
        let whole = ping_request();
        for at in (0..6).chain(12..47) {
            let mut frame = whole.clone();
            frame[at] ^= 0x11;
            assert_eq!(answer(MAC, IP, &frame), None, "byte {at}");
        }
        for len in 0..47 {
            assert_eq!(answer(MAC, IP, &whole[..len]), None, "{len} bytes");
        }
    }

    #[test]
    fn an_arp_request_for_this_host_is_answered() {
        let head = [&[0xFF; 6][..], &[2, 0, 0, 0, 0, 1], &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1]].concat();
        let ask =
            |ip: [u8; 4]| [&head[..], &[2, 0, 0, 0, 0, 1], &[10, 0, 0, 1], &[0; 6], &ip].concat();
        let (kind, reply) = answer(MAC, IP, &ask(IP)).unwrap();
        assert_eq!((kind, reply.len(), &reply[20..22]), (AnswerKind::Arp, 42, &[0, 2][..]));
        assert_eq!((&reply[22..28], &reply[28..32]), (&MAC[..], &IP[..]));
        assert_eq!(answer(MAC, IP, &ask([10, 0, 0, 3])), None);
        assert_eq!(answer(MAC, IP, &reply), None, "an answer is not a request");
    }
}
