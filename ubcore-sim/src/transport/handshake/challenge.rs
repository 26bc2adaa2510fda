//! Cookies: the proof that the sender of a CONNECT receives at its address.
//!
//! - owns: the key of this node.
//! - takes: CONNECTs, time, what this node holds of the pair.
//! - gives: the answer to a CONNECT without proof.
//! - must not: keep or change anything of a sender.

use siphasher::sip128::SipHasher24;
use subtle::{Choice, ConstantTimeEq};
use udma_abi::Nanos;
use urma_packet::HandshakeBody;
use urma_packet::{
    Body, Challenge, Cookie, PacketHeader, Psn, Purpose, RefuseBody, RefuseReason, Tpn,
    WIRE_VERSION,
};

use super::Handshake;
use crate::ports::NodeAddr;

/// A cookie is valid in the period in which it was made and in the next one, in nanoseconds. Both together are not
/// longer than a pair of nodes is kept after its TP ended: no copy of a CONNECT opens a second TP.
const PERIOD_NS: Nanos = 500_000_000;

/// Makes and checks cookies.
#[derive(Clone)]
pub(crate) struct Challenger {
    key: [u8; 16],
}

impl Challenger {
    /// Creates it with a random key that only this node has.
    pub(crate) const fn new(key: [u8; 16]) -> Self {
        Self { key }
    }

    /// Checks a CONNECT. `None`: `connect` belongs to the TP that `pair` holds, or proves that its sender receives at
    /// its address, the first of `ends`; [`Handshake::on_packet`] may take it. Otherwise the answer, from the second
    /// address to the first.
    pub(crate) fn screen(
        &self,
        now: Nanos,
        connect: &HandshakeBody,
        ends: [NodeAddr; 2],
        pair: Option<&Handshake>,
    ) -> Option<PacketHeader> {
        if pair.is_some_and(|pair| pair.holds(connect)) {
            return None;
        }
        let last = pair.map_or_else(|| Tpn::from_low_bits(0), Handshake::last_tpn);
        if connect.purpose == Purpose::Verify {
            return Some(refusal(connect, RefuseReason::NoTp, pair.map_or(0, Handshake::name)));
        }
        let shown = ShownConnect { connect, ends, last };
        let cookie = self.cookie(now / PERIOD_NS, &shown);
        if self.is_valid(now, &shown, &cookie) {
            return None;
        }
        let challenge = Body::Challenge(Challenge { nonce: connect.nonce, cookie });
        Some(PacketHeader::new(connect.source_tpn, Psn::new(0), challenge))
    }

    /// Whether the cookie of `connect` is the `current` one, or that of the previous period.
    fn is_valid(&self, now: Nanos, shown: &ShownConnect<'_>, current: &Cookie) -> bool {
        let before = (now / PERIOD_NS).checked_sub(1);
        let before = before.map(|period| self.cookie(period, shown));
        let periods = [Some(*current), before].into_iter().flatten();
        let equal = periods.map(|cookie| cookie.ct_eq(&shown.connect.cookie));
        equal.fold(Choice::from(0), |any, equal| any | equal).into()
    }

    fn cookie(&self, period: u64, shown: &ShownConnect<'_>) -> Cookie {
        let mut bytes = [0; 8 + 4 + 32 + HandshakeBody::LEN];
        bytes[..8].copy_from_slice(&period.to_be_bytes());
        bytes[8..12].copy_from_slice(&shown.last.value().to_be_bytes());
        bytes[12..28].copy_from_slice(&shown.ends[0].0);
        bytes[28..44].copy_from_slice(&shown.ends[1].0);
        let offer = HandshakeBody { cookie: Cookie::default(), ..*shown.connect };
        bytes[44..].copy_from_slice(&offer.to_bytes());
        SipHasher24::new_with_key(&self.key).hash(&bytes).as_bytes()
    }
}

/// Input of a cookie.
struct ShownConnect<'a> {
    connect: &'a HandshakeBody,
    /// Source and destination address of the CONNECT.
    ends: [NodeAddr; 2],
    /// TPN of the pair's TP, or of its last one.
    last: Tpn,
}

impl std::fmt::Debug for Challenger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Challenger").finish_non_exhaustive()
    }
}

/// The REFUSE for `connect`. `state` is this node's number for its state of the pair; 0: none.
pub(crate) fn refusal(connect: &HandshakeBody, reason: RefuseReason, state: u32) -> PacketHeader {
    let refusal = RefuseBody {
        reason,
        version_min: WIRE_VERSION,
        version_max: WIRE_VERSION,
        state,
        nonce: connect.nonce,
    };
    PacketHeader::new(connect.source_tpn, Psn::new(0), Body::Refuse(refusal))
}
