//! Owners of UDP ports: the process, for the message that the port is in use; the users of loopback addresses.
//!
//! *Owns*: the search through /proc. *Takes*: an address. *Gives*: a process id, for an error message only; user ids,
//! by which places are shared. *Must not*: decide which process a packet is from.

use std::{
    fs,
    net::{IpAddr, SocketAddr},
};

use udma_abi::RawEid;
use urma_packet::ROCE_PORT;

use crate::host::ip_eid;

/// The process with a UDP socket on `address` (or on its port for all addresses), if this process
/// may see it.
pub(crate) fn udp_owner(address: SocketAddr) -> Option<u32> {
    let inode = inode(address)?;
    let link = format!("socket:[{inode}]");
    let pids = fs::read_dir("/proc")
        .ok()?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    pids.take(PIDS_MAX).find(|pid| has_link(*pid, &link))
}

/// Whether a process has a UDP socket on `address`.
pub(crate) fn is_bound(address: SocketAddr) -> bool {
    inode(address).is_some()
}

fn inode(address: SocketAddr) -> Option<u64> {
    ["/proc/thread-self/net/udp", "/proc/thread-self/net/udp6"]
        .into_iter()
        .filter_map(|table| fs::read_to_string(table).ok())
        .find_map(|table| inode_of(&table, address))
}

/// The loopback addresses at which processes of this network namespace receive packets of nodes, each with the user
/// whose process it is, as the kernel shows it here.
#[must_use]
pub fn loopback_owners() -> Vec<(RawEid, u32)> {
    let tables = ["/proc/thread-self/net/udp", "/proc/thread-self/net/udp6"];
    let texts = tables.into_iter().filter_map(|table| fs::read_to_string(table).ok());
    let owner = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (ip, port) = fields.get(1)?.split_once(':')?;
        let ip = address(ip).filter(|ip| ip.is_loopback())?;
        let is_ours = u16::from_str_radix(port, 16).ok()? == ROCE_PORT;
        Some((ip_eid(ip), fields.get(7)?.parse().ok()?)).filter(|_| is_ours)
    };
    texts.flat_map(|text| text.lines().filter_map(owner).collect::<Vec<_>>()).collect()
}

/// The address that [`hex`] printed.
#[expect(clippy::host_endian_bytes, reason = "the kernel prints words as they lie in memory")]
fn address(hex: &str) -> Option<IpAddr> {
    let word = |at: usize| u32::from_str_radix(hex.get(at..at + 8)?, 16).ok();
    let words: Option<Vec<[u8; 4]>> =
        (0..hex.len() / 8).map(|at| Some(word(8 * at)?.to_ne_bytes())).collect();
    match words?.concat() {
        octets if octets.len() == 4 => Some(<[u8; 4]>::try_from(octets).ok()?.into()),
        octets => Some(IpAddr::from(<[u8; 16]>::try_from(octets).ok()?).to_canonical()),
    }
}

fn has_link(pid: u32, link: &str) -> bool {
    let Ok(fds) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    fds.flatten().any(|fd| fs::read_link(fd.path()).is_ok_and(|to| to.as_os_str() == link))
}

/// The inode in the line of /proc/net/udp whose local address is `address` or unspecified.
fn inode_of(table: &str, address: SocketAddr) -> Option<u64> {
    let own = hex(address.ip());
    table.lines().skip(1).find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (ip, port) = fields.get(1)?.split_once(':')?;
        let port = u16::from_str_radix(port, 16).ok()?;
        let is_any = ip.bytes().all(|digit| digit == b'0');
        (port == address.port() && (ip == own || is_any)).then_some(())?;
        fields.get(9)?.parse().ok()
    })
}

/// The address in the kernel's notation: words in this machine's byte order.
#[expect(clippy::host_endian_bytes, reason = "the kernel prints words as they lie in memory")]
fn hex(ip: IpAddr) -> String {
    let octets = match ip {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    };
    octets
        .chunks_exact(4)
        .map(|word| format!("{:08X}", u32::from_ne_bytes([word[0], word[1], word[2], word[3]])))
        .collect()
}

/// Processes that are searched; beyond it the owner stays unnamed.
const PIDS_MAX: usize = 10_000;

#[cfg(test)]
mod tests {
    use std::{net::UdpSocket, thread};

    use super::*;

    #[test]
    fn a_loopback_address_has_the_user_of_its_process() {
        let own = rustix::process::geteuid().as_raw();
        let sockets: Vec<_> = ["127.83.1.1", "127.83.1.2"]
            .into_iter()
            .filter_map(|ip| UdpSocket::bind((ip, ROCE_PORT)).ok())
            .collect();
        let owners = loopback_owners();
        for socket in &sockets {
            let eid = ip_eid(socket.local_addr().unwrap().ip());
            assert!(owners.contains(&(eid, own)), "{eid:?}: {owners:?}");
        }
        assert!(!sockets.is_empty());
        for ip in ["127.0.0.1", "10.1.2.3", "::1", "fe80::1:2"] {
            let ip: IpAddr = ip.parse().unwrap();
            assert_eq!(address(&hex(ip)), Some(ip));
        }
        assert_eq!(address("0100007"), None);
    }

    #[test]
    fn the_line_of_a_table_is_that_of_the_address_and_the_port() {
        let line = |ip: &str, port: u16, inode: &str| {
            let ip = if ip == "*" { "00000000".to_owned() } else { hex(ip.parse().unwrap()) };
            format!(
                "  12: {ip}:{port:04X} 00000000:0000 07 00000000:00000000 00:00000000 00000000  1000  0 {inode} 2 0 0\n"
            )
        };
        let head = "   sl  local_address rem_address   st\n";
        let table = [
            head,
            &line("127.1.1.1", 4791, "101"),
            &line("127.1.1.2", 4791, "102"),
            &line("127.1.1.2", 4792, "103"),
            &line("*", 4793, "104"),
            &line("127.1.1.3", 4793, "105"),
            &line("127.1.1.4", 4794, "x"),
            "broken\n",
        ];
        let inode = |address: &str| inode_of(&table.concat(), address.parse().unwrap());
        for (address, wanted) in [
            ("127.1.1.1:4791", Some(101)),
            ("127.1.1.2:4791", Some(102)),
            ("127.1.1.2:4792", Some(103)),
            // What is bound to any address has the port of each.
            ("127.1.1.3:4793", Some(104)),
            ("127.1.1.1:4792", None),
            ("127.1.1.3:4791", None),
            ("127.1.1.4:4794", None),
            ("0.0.0.0:4793", Some(104)),
        ] {
            assert_eq!(inode(address), wanted, "{address}");
        }
        assert_eq!(
            inode_of(&line("127.1.1.1", 4791, "1"), "127.1.1.1:4791".parse().unwrap()),
            None,
            "a head"
        );
    }

    #[test]
    fn finds_this_process() {
        for any in ["127.9.8.7:0", "[::1]:0"] {
            let Ok(socket) = UdpSocket::bind(any) else { continue };
            let address = socket.local_addr().unwrap();
            assert_eq!(udp_owner(address), Some(std::process::id()), "{address}");
            drop(socket);
            // A process that another test starts has a copy of the socket until it runs its program.
            let is_free = |_| {
                thread::yield_now();
                udp_owner(address).is_none()
            };
            assert!((0..10_000).any(is_free), "{address}");
        }
    }
}
