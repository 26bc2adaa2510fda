//! Code words: what of a packet of data the code of repair packets covers.
//!
//! - owns: which bytes of a packet that are. takes: packets or code words. gives: the other.
//! - must not: compute a code, depend on which packets were sent.

use zerocopy::IntoBytes;

use super::opcode::{PKEY, WIRE_VERSION};
use crate::{BTH_LEN, Bth, Congestion, ICRC_LEN, Psn, Tpn};

/// Bytes of a code word before the body of its packet.
pub const WORD_HEAD: usize = 4;

/// What the code covers of `packet`, an unsealed packet of data without REPETH: opcode, pad and length of the body, then
/// the body, which is all between BTH and ICRC. `None`: it is too short for a packet.
#[must_use]
pub fn code_word(packet: &[u8]) -> Option<([u8; WORD_HEAD], &[u8])> {
    let body = packet.get(BTH_LEN..packet.len().checked_sub(ICRC_LEN)?)?;
    let [high, low] = u16::try_from(body.len()).ok()?.to_be_bytes();
    Some(([*packet.first()?, packet.get(1)? >> 4 & 3, high, low], body))
}

/// The unsealed packet of data whose code word, followed by zeros, this is; `None`: no packet has such a one.
#[must_use]
pub fn packet_of_word(word: &[u8], dest: Tpn, psn: Psn) -> Option<Vec<u8>> {
    let (&[opcode, pad, high, low], rest) = word.split_first_chunk()?;
    let (body, zeros) = rest.split_at_checked(u16::from_be_bytes([high, low]).into())?;
    if pad > 3 || zeros.iter().any(|&byte| byte != 0) {
        return None;
    }
    let bth = Bth {
        opcode,
        solicited: false,
        mig_req: false,
        pad,
        version: WIRE_VERSION,
        pkey: PKEY,
        congestion: Congestion { forward: false, backward: false },
        dest,
        ack_req: false,
        repeated: false,
        psn,
    };
    let mut packet = Vec::with_capacity(BTH_LEN + body.len() + ICRC_LEN);
    packet.extend_from_slice(bth.to_wire().as_bytes());
    packet.extend_from_slice(body);
    packet.resize(BTH_LEN + body.len() + ICRC_LEN, 0);
    Some(packet)
}
