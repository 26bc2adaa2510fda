//! The rules for objects, checked when they are made.
//!
//! *Owns*: limits, combinations of mode and order. *Takes*: configurations and the limits of the
//! device. *Gives*: a status with its reason. *Must not*: change anything.

use std::{fmt, sync::Arc};

use crate::{
    DeviceAttr, DeviceFeatures, JfcCfg, JfcFlags, JfrCfg, JfsCfg, OrderType, SendFlags, Status,
    TransportMode,
};

/// Queue ids have 20 bits.
pub(crate) const QUEUE_ID_MAX: u32 = (1 << 20) - 1;
/// Priorities, `URMA_MAX_PRIORITY` (UMDK release 26.06).
const PRIORITY_MAX: u8 = 15;
/// Retries when the receiver is not ready: 3 bits.
const RNR_RETRY_MAX: u8 = 7;
/// Codes of timers: 5 bits.
const TIMER_MAX: u8 = 31;

/// The status with its reason.
#[cold]
pub(crate) fn refuse(status: Status, why: fmt::Arguments<'_>) -> Status {
    let status = status.why(why);
    tracing::debug!(target: "urma", "refused: {status}");
    status
}

/// `Err(Invalid)` with the reason, unless `holds`.
pub(crate) fn ensure(holds: bool, why: fmt::Arguments<'_>) -> Result<(), Status> {
    if holds { Ok(()) } else { Err(refuse(Status::Invalid, why)) }
}

/// `Err(status)` unless the caller's is the only handle of `shared`.
pub(crate) fn unused<T>(shared: &Arc<T>, status: Status, why: &str) -> Result<(), Status> {
    let users = Arc::strong_count(shared) - 1;
    if users == 0 { Ok(()) } else { Err(refuse(status, format_args!("{users} {why}"))) }
}

fn within<T: PartialOrd + fmt::Display>(
    name: &str,
    value: T,
    min: T,
    max: T,
) -> Result<(), Status> {
    let holds = (&min..=&max).contains(&&value);
    ensure(holds, format_args!("{name} is {value}, allowed are {min} to {max}"))
}

fn feature(attr: &DeviceAttr, wanted: DeviceFeatures) -> Result<(), Status> {
    if attr.caps.features.contains(wanted) {
        return Ok(());
    }
    Err(refuse(Status::Unsupported, format_args!("the device lacks {wanted:?}")))
}

/// The order type to use: fills in the default and refuses what does not fit the mode.
pub(crate) fn order(mode: TransportMode, order: OrderType) -> Result<OrderType, Status> {
    use OrderType as O;
    use TransportMode as M;
    match (mode, order) {
        (M::Rm, O::Default | O::Oi) => Ok(O::Oi),
        (M::Rc, O::Default | O::Ol) => Ok(O::Ol),
        (M::Um, O::Default | O::No) => Ok(O::No),
        (M::Rc, O::Ot | O::No) => Ok(order),
        _ => Err(refuse(Status::Invalid, format_args!("order {order:?} does not fit {mode:?}"))),
    }
}

pub(crate) fn mode(attr: &DeviceAttr, mode: TransportMode) -> Result<(), Status> {
    if attr.caps.modes.has(mode) {
        return Ok(());
    }
    Err(refuse(Status::Unsupported, format_args!("the device does not have mode {mode:?}")))
}

pub(crate) fn id(id: u32) -> Result<(), Status> {
    within("queue id", id, 0, QUEUE_ID_MAX)
}

pub(crate) fn jfc(attr: &DeviceAttr, cfg: &JfcCfg) -> Result<(), Status> {
    within("jfc depth", cfg.depth, 1, attr.caps.max_jfc_depth)?;
    within("ceqn", cfg.ceqn, 0, attr.caps.ceq_cnt.max(1) - 1)?;
    if cfg.flags.contains(JfcFlags::INLINE) {
        feature(attr, DeviceFeatures::JFC_INLINE)?;
    }
    Ok(())
}

/// `max_depth` is that of the kind of queue.
pub(crate) fn send(attr: &DeviceAttr, cfg: &JfsCfg) -> Result<(), Status> {
    let caps = &attr.caps;
    mode(attr, cfg.mode)?;
    order(cfg.mode, cfg.order)?;
    within("jfs depth", cfg.depth, 1, caps.max_jfs_depth)?;
    within("max_sge", u32::from(cfg.max_sge), 0, caps.max_jfs_sge)?;
    within("max_rsge", u32::from(cfg.max_rsge), 0, caps.max_jfs_rsge)?;
    within("max_inline", cfg.max_inline, 0, caps.max_jfs_inline)?;
    within("priority", cfg.priority, 0, PRIORITY_MAX)?;
    within("rnr_retry", cfg.rnr_retry, 0, RNR_RETRY_MAX)?;
    within("err_timeout", cfg.err_timeout, 0, TIMER_MAX)?;
    if cfg.flags.contains(SendFlags::ERROR_SUSPEND) {
        feature(attr, DeviceFeatures::ERROR_SUSPEND)?;
    }
    if cfg.flags.contains(SendFlags::OUTORDER_COMP) {
        feature(attr, DeviceFeatures::OUTORDER_COMP)?;
    }
    Ok(())
}

pub(crate) fn recv(attr: &DeviceAttr, cfg: &JfrCfg) -> Result<(), Status> {
    let caps = &attr.caps;
    id(cfg.id)?;
    mode(attr, cfg.mode)?;
    order(cfg.mode, cfg.order)?;
    within("jfr depth", cfg.depth, 1, caps.max_jfr_depth)?;
    within("max_sge", u32::from(cfg.max_sge), 0, caps.max_jfr_sge)?;
    within("min_rnr_timer", cfg.min_rnr_timer, 0, TIMER_MAX)?;
    cfg.policy.token().map(|_| ())
}

pub(crate) fn group(attr: &DeviceAttr, wanted: u32) -> Result<(), Status> {
    feature(attr, DeviceFeatures::JETTY_GRP)?;
    id(wanted)
}

pub(crate) fn mapping(attr: &DeviceAttr) -> Result<(), Status> {
    feature(attr, DeviceFeatures::LOAD_STORE)
}

pub(crate) fn non_pin(attr: &DeviceAttr) -> Result<(), Status> {
    feature(attr, DeviceFeatures::NON_PIN)
}

pub(crate) fn compact_path(attr: &DeviceAttr) -> Result<(), Status> {
    feature(attr, DeviceFeatures::CTP)
}
