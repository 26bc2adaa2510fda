//! The ICRC of a packet whose IPv4 Identification changes.
//!
//! *Owns*: the differences by length. *Takes*: a packet sealed for one Identification. *Gives*: the
//! same packet sealed for another. *Must not*: judge whether the ICRC was right; read the packet.
//!
//! A CRC is linear: what changes when a header field changes from 0 to `id` depends on `id` and the
//! packet's length only, and the difference of an `id` is the sum (xor) of those of its bits. So a
//! packet is renumbered by one xor instead of a second pass over its bytes.

use std::net::{Ipv4Addr, SocketAddr};

use crate::bth::BTH_LEN;
use crate::icrc::{ICRC_LEN, IcrcFlow};

/// Differences for the lengths that were used last.
#[derive(Debug, Default)]
pub struct Renumber {
    lens: [Differences; LENS],
    next: usize,
}

#[derive(Clone, Debug, Default)]
struct Differences {
    len: usize,
    /// For the Identification that has only bit `i`.
    bits: [u32; BITS],
}

impl Renumber {
    /// Largest Identification that can be renumbered.
    pub const ID_MAX: usize = (1 << BITS) - 1;

    /// Changes the ICRC of an IPv4 packet from Identification 0 to `id`, or back. Identifications
    /// beyond [`Renumber::ID_MAX`] and packets too short for an ICRC stay as they are.
    pub fn apply(&mut self, packet: &mut [u8], id: usize) {
        if id == 0 || id > Self::ID_MAX || packet.len() < LEN_MIN {
            return;
        }
        let differences = self.of_len(packet.len());
        let change = (0..BITS)
            .filter(|bit| id >> bit & 1 == 1)
            .fold(0, |sum, bit| sum ^ differences.bits[bit]);
        if let Some(icrc) = packet.last_chunk_mut::<ICRC_LEN>() {
            *icrc = (u32::from_le_bytes(*icrc) ^ change).to_le_bytes();
        }
    }

    /// The kernel gives the packets of a run, of `size` bytes each but the last, the Identifications 0, 1, 2, ...
    pub fn number(&mut self, run: &mut [u8], size: usize) {
        for (id, packet) in run.chunks_mut(size).enumerate() {
            self.apply(packet, id);
        }
    }

    fn of_len(&mut self, len: usize) -> &Differences {
        let known = self.lens.iter().position(|d| d.len == len);
        let at = known.unwrap_or_else(|| {
            let at = self.next;
            self.next = (at + 1) % LENS;
            self.lens[at] = Differences::new(len);
            at
        });
        &self.lens[at]
    }
}

impl Differences {
    fn new(len: usize) -> Self {
        // Any addresses and any bytes do.
        let any = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
        let flow = IcrcFlow::new(any, any);
        let mut packet = vec![0; len];
        let mut icrc = |id| {
            let sealed = flow.with_ip_id(id).seal(&mut packet);
            let bytes = packet.last_chunk::<ICRC_LEN>().copied().unwrap_or_default();
            sealed.map_or(0, |()| u32::from_le_bytes(bytes))
        };
        let zero = icrc(0);
        Self { len, bits: std::array::from_fn(|bit| icrc(1 << bit) ^ zero) }
    }
}

/// Lengths remembered: full packets and last packets of two peers.
const LENS: usize = 4;
/// Bits of the Identifications of a run.
const BITS: usize = 7;
/// Shortest packet in bytes: BTH and ICRC.
const LEN_MIN: usize = BTH_LEN + ICRC_LEN;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn one_xor_is_as_good_as_sealing_again(
            bytes in proptest::collection::vec(any::<u8>(), LEN_MIN..2000),
            ip in any::<[u8; 4]>(),
            ids in proptest::collection::vec(0..=Renumber::ID_MAX, 1..8),
        ) {
            let flow = IcrcFlow::new((ip, 4791).into(), ([127, 0, 0, 1], 4791).into());
            let mut renumber = Renumber::default();
            for id in ids {
                let mut packet = bytes.clone();
                flow.seal(&mut packet).unwrap();
                renumber.apply(&mut packet, id);
                let numbered = flow.with_ip_id(u16::try_from(id).unwrap());
                prop_assert!(numbered.verify(&packet).is_ok());
                prop_assert_eq!(flow.verify(&packet).is_ok(), id == 0);
                renumber.apply(&mut packet, id);
                prop_assert!(flow.verify(&packet).is_ok());
            }
        }

        #[test]
        fn any_length_is_answered(len in 0_usize..LEN_MIN, id in 0_usize..300) {
            let mut packet = vec![1; len];
            Renumber::default().apply(&mut packet, id);
            prop_assert_eq!(packet, vec![1; len]);
        }
    }
}
