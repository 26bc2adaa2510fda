//! Names: EIDs, queue ids, tokens, modes, orders.

use urma_core::{
    Eid, JettyId, JettyState, OrderType, RemoteJetty, TargetKind, Token, TokenPolicy, TpType,
    TransportMode,
};

use crate::{
    abi::*,
    call::{Answer, Code},
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

/// # Errors
/// EINVAL: no transport mode, or several.
pub(crate) fn mode(from: u32) -> Answer<TransportMode> {
    match from {
        1 => Ok(TransportMode::Rm),
        2 => Ok(TransportMode::Rc),
        4 => Ok(TransportMode::Um),
        _ => Err(Code::EINVAL),
    }
}

/// # Errors
/// EINVAL: above 4.
pub(crate) fn order(from: u32) -> Answer<OrderType> {
    match from {
        0 => Ok(OrderType::Default),
        1 => Ok(OrderType::Ot),
        2 => Ok(OrderType::Oi),
        3 => Ok(OrderType::Ol),
        4 => Ok(OrderType::No),
        _ => Err(Code::EINVAL),
    }
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
        _ => Err(Code::EINVAL),
    }
}

/// # Errors
/// EINVAL: above 3.
pub(crate) fn state(from: u32) -> Answer<JettyState> {
    match from {
        0 => Ok(JettyState::Reset),
        1 => Ok(JettyState::Ready),
        2 => Ok(JettyState::Suspended),
        3 => Ok(JettyState::Error),
        _ => Err(Code::EINVAL),
    }
}

/// A JFR has no suspended state, and so another number for the error state.
///
/// # Errors
/// EINVAL: above 2.
pub(crate) fn jfr_state(from: u32) -> Answer<JettyState> {
    match from {
        0 => Ok(JettyState::Reset),
        1 => Ok(JettyState::Ready),
        2 => Ok(JettyState::Error),
        _ => Err(Code::EINVAL),
    }
}

pub(crate) fn jfr_state_out(from: JettyState) -> u32 {
    match from {
        JettyState::Reset => 0,
        JettyState::Ready => 1,
        JettyState::Suspended | JettyState::Error => 2,
    }
}

/// What a C program knows of a remote queue.
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
    let kind = match from.kind {
        0 => TargetKind::Jfr,
        1 => TargetKind::Jetty,
        2 => TargetKind::Group,
        _ => return Err(Code::EINVAL),
    };
    let tp = match from.tp {
        // Both reliable kinds are the same path in software.
        0 | 1 => TpType::Rtp,
        2 => TpType::Utp,
        _ => return Err(Code::EINVAL),
    };
    let policy = policy(from.flag.token_policy(), from.token)?;
    let (mode, order) = (mode(from.mode)?, order(from.flag.order_type())?);
    Ok(RemoteJetty { id: jetty_id(from.id), kind, mode, order, policy, tp })
}
