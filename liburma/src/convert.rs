//! Between C values and urma-core's values: configurations, attributes, ids, completions, options of queues.
//!
//! Takes whatever numbers a C program wrote, and gives values in range or a [`Code`]. Must not look anything up, or
//! keep anything. The tables of options are facts of UMDK release 26.06.
#![expect(unsafe_code, reason = "structs of integers and pointers have no constructors in C")]

use core::mem::{MaybeUninit, offset_of};

use OptPlace::{Cfg, Device, DeviceId, Id};
use urma_core::{
    Completion, CrOpcode, DeviceAttr, DeviceCaps, DeviceFeatures, Eid, JettyId, JettyState, JfcCfg,
    JfcFlags, JfrCfg, JfsCfg, ModeSet, OrderType, PortAttr, PostReason, RemoteJetty, SendFlags,
    TargetKind, Token, TokenPolicy, TpType, TransportMode, WrFlags, ops::CompletingQueue,
};

use crate::{
    abi::{self, *},
    call::{Answer, Code, refuse},
};

/// The bits that the device knows lie where C has them; others are hints.
#[inline]
pub(crate) fn flags(from: urma_jfs_wr_flag_t) -> WrFlags {
    WrFlags::from_bits_truncate(from.value)
}

/// What a refused request of a send queue answers with.
#[cold]
pub(crate) fn refusal(reason: PostReason) -> Code {
    match reason {
        PostReason::Full => Code::full(),
        PostReason::Invalid(_) | PostReason::Mode => refuse!(EINVAL, "{reason}"),
        PostReason::Device => refuse!(ENODEV, "{reason}"),
    }
}

#[inline(always)]
pub(crate) fn record(from: &Completion) -> urma_cr_t {
    let is_plain = from.status.is_success() && from.opcode == CrOpcode::Send;
    let plain = (0, 0, urma_cr_u { imm_data: from.imm });
    let (status, opcode, u) = if is_plain { plain } else { rare(from) };
    urma_cr_t {
        status,
        user_ctx: from.user_ctx,
        opcode,
        flag: urma_cr_flag_t { value: from.flags.bits() },
        completion_len: from.len,
        local_id: from.local_id,
        remote_id: jetty_id_out(from.remote),
        u,
        tpn: from.tpn,
        user_data: usize::try_from(from.queue_ctx).unwrap_or(0),
    }
}

/// The record of a successful send request.
#[inline(always)]
pub(crate) fn record_of_sent(from: &CompletingQueue, user_ctx: u64, len: u32) -> urma_cr_t {
    urma_cr_t {
        status: 0,
        user_ctx,
        opcode: 0,
        flag: urma_cr_flag_t { value: from.flags.bits() },
        completion_len: len,
        local_id: from.local_id,
        remote_id: jetty_id_out(JettyId::default()),
        u: urma_cr_u { imm_data: 0 },
        tpn: 0,
        user_data: usize::try_from(from.queue_ctx).unwrap_or(0),
    }
}

/// Status, opcode and the data of that opcode, of a completion that is not a plain success.
#[inline(never)]
fn rare(from: &Completion) -> (u32, u32, urma_cr_u) {
    (u32::from(from.status.code()), u32::from(from.opcode.code()), immediate(from))
}

fn immediate(from: &Completion) -> urma_cr_u {
    if from.opcode != CrOpcode::SendInvalidate {
        return urma_cr_u { imm_data: from.imm };
    }
    match from.invalidated() {
        Some((id, token)) => urma_cr_u {
            invalid_token: urma_cr_token_t {
                token_id: id.value(),
                token_value: urma_token_t { token: token.value() },
            },
        },
        None => urma_cr_u { imm_data: 0 },
    }
}

/// All members zero or NULL.
#[must_use]
pub fn zeroed<T: Zero>() -> T {
    // SAFETY: the trait says that zero bytes are a value of `T`.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

/// A C struct whose bytes may all be zero.
///
/// # Safety
/// It consists of integers, raw pointers and optional function pointers.
pub unsafe trait Zero {}

macro_rules! zero {
    ($($name:ident),* $(,)?) => {$(
        // SAFETY: integers, raw pointers, and pthread objects whose initial value is zero.
        unsafe impl Zero for abi::$name {}
    )*};
}

zero! {
    urma_async_event_t, urma_context_t, urma_cr_t, urma_device_attr_t, urma_device_t,
    urma_jetty_cfg_t, urma_jetty_grp_cfg_t, urma_jetty_grp_t, urma_jetty_t, urma_jfc_cfg_t, urma_jfc_t, urma_jfce_t,
    urma_jfr_cfg_t, urma_jfr_t, urma_jfr_wr_t, urma_jfs_cfg_t, urma_jfs_t, urma_jfs_wr_t,
    urma_net_addr_info_t, urma_net_addr_t, urma_notifier_t, urma_notify_t, urma_ops_t,
    urma_port_attr_t, urma_provider_ops_t, urma_rjetty_t, urma_rjfr_t, urma_seg_cfg_t, urma_seg_t,
    urma_sge_t, urma_sysfs_dev_t, urma_target_jetty_t, urma_target_seg_t, urma_token_id_t,
    urma_active_tp_cfg_t, urma_tp_attr_t, urma_tp_attr_value_t, urma_tp_info_t,
}

/// Ports that the C struct has room for.
const PORTS_MAX: usize = 8;

pub(crate) fn device(from: &DeviceAttr) -> urma_device_attr_t {
    let mut to: urma_device_attr_t = zeroed();
    to.guid.raw = from.guid.0;
    to.dev_cap = caps(&from.caps, to.dev_cap);
    let ports = from.ports.iter().take(PORTS_MAX);
    for (place, from) in to.port_attr.iter_mut().zip(ports) {
        *place = port(from);
    }
    to.port_cnt = u8::try_from(from.ports.len().min(PORTS_MAX)).unwrap_or(0);
    to.reserved_jetty_id_min = from.reserved_id_min;
    to.reserved_jetty_id_max = from.reserved_id_max;
    to
}

fn port(from: &PortAttr) -> urma_port_attr_t {
    urma_port_attr_t {
        max_mtu: from.max_mtu as u32,
        state: from.state as u32,
        active_width: from.width.into(),
        active_speed: from.speed.into(),
        active_mtu: from.active_mtu as u32,
    }
}

/// Copies members that both sides call alike.
macro_rules! members {
    ($to:ident from $from:ident: $($name:ident)*) => {
        $($to.$name = $from.$name;)*
    };
}

fn caps(from: &DeviceCaps, mut to: urma_device_cap_t) -> urma_device_cap_t {
    to.feature.value = from.features.bits();
    to.feature.set_ctp_en(1);
    to.feature.set_muti_seg_per_token_id(1);
    // The payload of a small message arrives in its buffer, as the C interface has it.
    to.feature.set_jfc_inline(u32::from(from.features.contains(DeviceFeatures::JFC_INLINE)));
    members! { to from from:
        max_jfc max_jfs max_jfr max_jetty max_jetty_grp max_jfc_depth max_jfs_depth max_jfr_depth
        max_jfs_sge max_jfr_sge max_msg_size max_read_size max_write_size ceq_cnt max_eid_cnt
        page_size_cap
    }
    to.max_jetty_in_jetty_grp = from.max_jetty_in_grp;
    to.max_jfs_inline_len = from.max_jfs_inline;
    // A request of this device has one remote range, which its first remote piece names, as in
    // UDMA's driver (UMDK release 26.06). Programs give as many remote pieces as local ones.
    to.max_jfs_rsge = from.max_jfs_sge;
    to.max_cas_size = from.max_atomic_size;
    to.max_swap_size = from.max_atomic_size;
    to.max_fetch_and_add_size = from.max_atomic_size;
    to.max_fetch_and_sub_size = from.max_atomic_size;
    to.max_fetch_and_and_size = from.max_atomic_size;
    to.max_fetch_and_or_size = from.max_atomic_size;
    to.max_fetch_and_xor_size = from.max_atomic_size;
    to.atomic_feat.value = from.atomics.bits();
    to.trans_mode = from.modes.bits();
    to.congestion_ctrl_alg = u16::try_from(URMA_CC_NONE).unwrap_or(0);
    to.max_tp_in_tpg = 1;
    to.max_netaddr_cnt = from.max_eid_cnt;
    transport(from.modes, to)
}

/// Which orders and kinds of transport path go with which mode.
fn transport(modes: ModeSet, mut to: urma_device_cap_t) -> urma_device_cap_t {
    let mut reliable = urma_tp_type_cap_t::default();
    reliable.set_rtp(1);
    reliable.set_ctp(1);
    if modes.contains(ModeSet::RM) {
        to.rm_order_cap.set_oi(1);
        to.rm_tp_cap = reliable;
    }
    if modes.contains(ModeSet::RC) {
        let mut orders = urma_order_type_cap_t::default();
        orders.set_ot(1);
        orders.set_ol(1);
        orders.set_no(1);
        to.rc_order_cap = orders;
        to.rc_tp_cap = reliable;
    }
    if modes.contains(ModeSet::UM) {
        to.um_tp_cap.set_utp(1);
    }
    // One kind of path for each priority, as the hardware has it: programs look for a priority whose
    // set of kinds *equals* the wanted one. 6 is CTP and 0 and 15 are RTP where programs take them as
    // given. Nothing here depends on it: every priority goes over every path.
    for (priority, info) in to.priority_info.iter_mut().enumerate() {
        info.SL = u32::try_from(priority).unwrap_or(0);
        match priority {
            6..=9 => info.tp_type.set_ctp(1),
            10..=11 => info.tp_type.set_utp(1),
            _ => info.tp_type.set_rtp(1),
        }
    }
    to
}

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

/// Payload in the completion is an optimisation that C programs do not see: it arrives in the
/// receive buffer all the same, so the flag asks for nothing.
pub(crate) fn jfc(from: &urma_jfc_cfg_t) -> JfcCfg {
    JfcCfg { depth: from.depth, flags: JfcFlags::empty(), ceqn: from.ceqn, user_ctx: from.user_ctx }
}

/// # Errors
/// EINVAL: no such mode or order type.
pub(crate) fn jfs(from: &urma_jfs_cfg_t) -> Answer<JfsCfg> {
    let mut flags = SendFlags::empty();
    flags.set(SendFlags::ERROR_SUSPEND, from.flag.error_suspend() != 0);
    flags.set(SendFlags::OUTORDER_COMP, from.flag.outorder_comp() != 0);
    Ok(JfsCfg {
        mode: mode(from.trans_mode)?,
        order: order(from.flag.order_type())?,
        depth: from.depth,
        max_sge: from.max_sge,
        // Of a list of remote pieces the device uses the first; see `attr`.
        max_rsge: from.max_rsge.min(1),
        max_inline: from.max_inline_data,
        priority: from.priority,
        rnr_retry: from.rnr_retry,
        err_timeout: from.err_timeout,
        flags,
        user_ctx: from.user_ctx,
    })
}

/// The order type of a JFR. One that does not fit its mode is for the jetty to refuse, so it stands for the default
/// here: a JFR alone receives in the order of the queues that send.
fn fitting(mode: TransportMode, wanted: u32) -> OrderType {
    use OrderType as O;
    use TransportMode as M;
    match (mode, order(wanted)) {
        (M::Rm, Ok(order @ O::Oi))
        | (M::Rc, Ok(order @ (O::Ot | O::Ol | O::No)))
        | (M::Um, Ok(order @ O::No)) => order,
        _ => O::Default,
    }
}

/// # Errors
/// EINVAL: no such mode or token policy.
pub(crate) fn jfr(from: &urma_jfr_cfg_t) -> Answer<JfrCfg> {
    let mode = mode(from.trans_mode)?;
    Ok(JfrCfg {
        id: from.id,
        mode,
        order: fitting(mode, from.flag.order_type()),
        depth: from.depth,
        max_sge: from.max_sge,
        min_rnr_timer: from.min_rnr_timer,
        policy: policy(from.flag.token_policy(), from.token_value)?,
        user_ctx: from.user_ctx,
    })
}

/// An option of a queue: number, length and where its value lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opt {
    number: u64,
    /// Bytes of its value.
    pub(crate) len: u32,
    pub(crate) place: OptPlace,
}

/// Where the value of an option is.
///
/// Rings and doorbells of a software device are its own, so options that name them have no place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OptPlace {
    /// In the configuration, at this offset.
    Cfg(usize),
    /// The number of the queue, which a program may choose at this offset of the configuration.
    Id(usize),
    /// The number of the queue, which the device chooses.
    DeviceId,
    /// In the device, which does not show it.
    Device,
}

/// Options of a queue: those in its configuration (`number: bytes, member;`), and the rings, doorbells and
/// states that the device keeps to itself.
macro_rules! options {
    ($cfg:ty, $base:expr, $($number:ident: $len:literal, $member:ident;)*
        => $id:ident = $id_place:expr; device $($own:ident: $own_len:literal),*) => {[
        $(Opt { number: $number, len: $len, place: Cfg($base + offset_of!($cfg, $member)) },)*
        Opt { number: $id, len: 4, place: $id_place },
        $(Opt { number: $own, len: $own_len, place: Device }),*
    ]};
}

/// The option of a table with this number.
pub(crate) fn find(table: &[Opt], number: u64) -> Option<Opt> {
    table.iter().find(|opt| opt.number == number).copied()
}

pub(crate) const JFC: &[Opt] = &options! { urma_jfc_cfg_t, 0,
    URMA_JFC_DEPTH: 4, depth;
    URMA_JFC_CEQN: 4, ceqn;
    URMA_JFC_FLAG: 4, flag;
    URMA_JFC_BIND_JFCE: 8, jfce;
    URMA_JFC_USER_CTX: 8, user_ctx;
    => URMA_JFC_ID = DeviceId;
    device URMA_JFC_CQE_BASE_ADDR: 8, URMA_JFC_DB_ADDR: 8, URMA_JFC_DB_STATUS: 1, URMA_JFC_PI: 2,
        URMA_JFC_PI_TYPE: 2, URMA_JFC_CI: 2
};

/// The options of a send queue whose configuration begins at `base`.
const fn send(base: usize) -> [Opt; 18] {
    options! { urma_jfs_cfg_t, base,
        URMA_JFS_DEPTH: 4, depth;
        URMA_JFS_FLAG: 4, flag;
        URMA_JFS_TRANS_MODE: 4, trans_mode;
        URMA_JFS_PRIORITY: 1, priority;
        URMA_JFS_MAX_SGE: 1, max_sge;
        URMA_JFS_MAX_RSGE: 1, max_rsge;
        URMA_JFS_MAX_INLINE_DATA: 4, max_inline_data;
        URMA_JFS_RNR_RETRY: 1, rnr_retry;
        URMA_JFS_ERR_TIMEOUT: 1, err_timeout;
        URMA_JFS_BIND_JFC: 8, jfc;
        URMA_JFS_USER_CTX: 8, user_ctx;
        => URMA_JFS_ID = DeviceId;
        device URMA_JFS_SQE_BASE_ADDR: 8, URMA_JFS_DB_ADDR: 8, URMA_JFS_DB_STATUS: 1, URMA_JFS_PI: 2,
            URMA_JFS_PI_TYPE: 2, URMA_JFS_CI: 2
    }
}

pub(crate) const JFS: &[Opt] = &send(0);

pub(crate) const JFR: &[Opt] = &options! { urma_jfr_cfg_t, 0,
    URMA_JFR_DEPTH: 4, depth;
    URMA_JFR_FLAG: 4, flag;
    URMA_JFR_TRANS_MODE: 4, trans_mode;
    URMA_JFR_MAX_SGE: 1, max_sge;
    URMA_JFR_MIN_RNR_TIMER: 1, min_rnr_timer;
    URMA_JFR_BIND_JFC: 8, jfc;
    URMA_JFR_TOKEN_VALUE: 4, token_value;
    URMA_JFR_USER_CTX: 8, user_ctx;
    => URMA_JFR_ID = Id(offset_of!(urma_jfr_cfg_t, id));
    device URMA_JFR_RQE_BASE_ADDR: 8, URMA_JFR_DB_ADDR: 8, URMA_JFR_DB_STATUS: 1, URMA_JFR_PI: 2,
        URMA_JFR_PI_TYPE: 2, URMA_JFR_CI: 2
};

/// The options of a jetty; those of its send half count too.
pub(crate) const JETTY: &[&[Opt]] = &[
    &options! { urma_jetty_cfg_t, 0,
        URMA_JETTY_FLAG: 4, flag;
        URMA_JETTY_BIND_JFR: 8, u;
        URMA_JETTY_BIND_JTG: 8, jetty_grp;
        URMA_JETTY_USER_CTX: 8, user_ctx;
        => URMA_JETTY_ID = Id(offset_of!(urma_jetty_cfg_t, id));
        device
    },
    // The second pointer of the union.
    &[Opt {
        number: URMA_JETTY_BIND_RX_JFC,
        len: 8,
        place: Cfg(offset_of!(urma_jetty_cfg_t, u) + size_of::<*mut urma_jfr_t>()),
    }],
    &send(offset_of!(urma_jetty_cfg_t, jfs_cfg)),
];

#[cfg(test)]
mod tests {
    use urma_core::{Mtu, PortState};

    use super::*;

    #[test]
    fn a_port_has_its_values_under_their_names() {
        let from = PortAttr {
            max_mtu: Mtu::B4096,
            active_mtu: Mtu::B1024,
            state: PortState::Armed,
            width: 4,
            speed: 10,
        };
        let to = port(&from);
        assert_eq!((to.active_width, to.active_speed), (4, 10));
        assert_eq!((to.max_mtu, to.active_mtu), (Mtu::B4096 as u32, Mtu::B1024 as u32));
        assert_eq!(to.state, PortState::Armed as u32);
    }

    #[test]
    fn limits_have_their_values_under_their_names() {
        let from = DeviceCaps {
            max_jfc: 1,
            max_jfs: 2,
            max_jfr: 3,
            max_jetty: 4,
            max_jetty_grp: 5,
            max_jetty_in_grp: 6,
            max_jfc_depth: 7,
            max_jfs_depth: 8,
            max_jfr_depth: 9,
            max_jfs_inline: 10,
            max_jfs_sge: 11,
            max_jfr_sge: 12,
            max_msg_size: 13,
            max_read_size: 14,
            max_write_size: 15,
            max_atomic_size: 16,
            ceq_cnt: 17,
            max_eid_cnt: 18,
            ..DeviceCaps::default()
        };
        let empty: urma_device_attr_t = zeroed();
        let to = caps(&from, empty.dev_cap);
        let objects = [to.max_jfc, to.max_jfs, to.max_jfr, to.max_jetty, to.max_jetty_grp];
        assert_eq!(objects, [1, 2, 3, 4, 5]);
        assert_eq!(to.max_jetty_in_jetty_grp, 6);
        assert_eq!([to.max_jfc_depth, to.max_jfs_depth, to.max_jfr_depth], [7, 8, 9]);
        assert_eq!([to.max_jfs_inline_len, to.max_jfs_sge, to.max_jfr_sge], [10, 11, 12]);
        assert_eq!((to.max_msg_size, to.max_read_size, to.max_write_size), (13, 14, 15));
        assert_eq!((to.max_cas_size, to.max_fetch_and_add_size), (16, 16));
        assert_eq!((to.ceq_cnt, to.max_eid_cnt), (17, 18));
    }
}
