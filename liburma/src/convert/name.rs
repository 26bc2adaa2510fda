//! Names: EIDs, queue ids, tokens, modes, orders.

use urma_core::{
    Eid, JettyId, JettyState, OrderType, RemoteJetty, TargetKind, Token, TokenPolicy, TpType,
    TransportMode,
};

use crate::{
    abi::*,
    call::{Answer, refuse},
};

pub(crate) fn eid(from: urma_eid_t) -> Eid {
    Eid::from_bytes(from.raw())
}

pub(crate) fn eid_out(from: Eid) -> urma_eid_t {
    urma_eid_t::from_raw(from.bytes())
}

pub(crate) fn jetty_id(from: urma_jetty_id_t) -> JettyId {
    JettyId { eid: eid(from.eid), uasid: from.uasid, id: from.id }
}

pub(crate) fn jetty_id_out(from: JettyId) -> urma_jetty_id_t {
    urma_jetty_id_t { eid: eid_out(from.eid), uasid: from.uasid, id: from.id }
}

/// Values of urma-core by the numbers that C has for them; any other number is EINVAL.
macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident: $ty:ident { $($number:literal => $value:ident),* })*) => {$(
        $(#[$doc])*
        pub(crate) fn $name(from: u32) -> Answer<$ty> {
            match from {
                $($number => Ok($ty::$value),)*
                other => Err(refuse!(EINVAL, "{} is {other}, which is none of its numbers", stringify!($name))),
            }
        }
    )*};
}

numbers! {
    /// A transport mode: one bit.
    mode: TransportMode { 1 => Rm, 2 => Rc, 4 => Um }
    /// An order type, `URMA_DEF_ORDER` and so on.
    order: OrderType { 0 => Default, 1 => Ot, 2 => Oi, 3 => Ol, 4 => No }
    /// The state of a JFS or jetty.
    state: JettyState { 0 => Reset, 1 => Ready, 2 => Suspended, 3 => Error }
    /// The state of a JFR, which is never suspended: so the error state has another number.
    jfr_state: JettyState { 0 => Reset, 1 => Ready, 2 => Error }
    /// The kind of a remote queue.
    target_kind: TargetKind { 0 => Jfr, 1 => Jetty, 2 => Group }
    /// The kind of a transport path; both reliable kinds are the same path in software.
    tp_type: TpType { 0 => Rtp, 1 => Rtp, 2 => Utp }
}

/// `token` is what goes with every policy but NONE.
///
/// # Errors
/// EINVAL: no such policy.
pub(crate) fn policy(from: u32, token: urma_token_t) -> Answer<TokenPolicy> {
    let token = Token::new(token.token);
    match from {
        0 => Ok(TokenPolicy::None),
        1 => Ok(TokenPolicy::PlainText(token)),
        2 => Ok(TokenPolicy::Signed(token)),
        3 => Ok(TokenPolicy::AllEncrypted(token)),
        other => Err(refuse!(
            EINVAL,
            "flag.token_policy is {other}; policies are 0 (NONE), 1 (PLAIN_TEXT), 2 and 3"
        )),
    }
}

pub(crate) fn jfr_state_out(from: JettyState) -> u32 {
    match from {
        JettyState::Reset => 0,
        JettyState::Ready => 1,
        JettyState::Suspended | JettyState::Error => 2,
    }
}

/// Description of a remote queue, as a C program gives it.
pub(crate) struct Remote {
    pub(crate) id: urma_jetty_id_t,
    pub(crate) kind: u32,
    pub(crate) mode: u32,
    pub(crate) flag: urma_import_jetty_flag_t,
    pub(crate) tp: u32,
    pub(crate) token: urma_token_t,
}

/// # Errors
/// EINVAL: a number out of its range.
pub(crate) fn remote(from: &Remote) -> Answer<RemoteJetty> {
    let (kind, tp) = (target_kind(from.kind)?, tp_type(from.tp)?);
    let policy = policy(from.flag.token_policy(), from.token)?;
    let (mode, order) = (mode(from.mode)?, order(from.flag.order_type())?);
    Ok(RemoteJetty { id: jetty_id(from.id), kind, mode, order, policy, tp })
}
