//! The process that has a UDP port, for the message that the port is in use.
//!
//! *Owns*: the look through /proc. *Takes*: an address. *Gives*: a process id, for an error message
//! only. *Must not*: be used for a decision.

use std::{
    fs,
    net::{IpAddr, SocketAddr},
};

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

/// As the kernel prints it: words of the address in this machine's byte order.
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

/// Processes looked at; beyond it the owner stays unnamed.
const PIDS_MAX: usize = 10_000;

#[cfg(test)]
mod tests {
    use std::{net::UdpSocket, thread};

    use super::*;

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
