//! The kinds of objects that live in slots.
//!
//! *Owns*: their numbers, and which public and private parts belong together. *Must not*: say
//! anything about what they do.
#![expect(unsafe_code, reason = "the public parts are C memory")]

use std::sync::Arc;

use crate::{
    abi,
    slab::{Exclusive, Kind, Named},
    udma::{
        context::Ctx, device::DeviceOwn, group::GroupOwn, jetty::JettyOwn, jfc::JfcOwn,
        jfce::JfceOwn, jfr::JfrOwn, jfs::JfsOwn, notifier::NotifierOwn, segment::SegmentOwn,
        target::TargetOwn, token::TokenOwn,
    },
};

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $public:ident, $own:ty, $access:ident
        $(, $queue:ident)?;)*) => {$(
        $(#[$doc])*
        pub(crate) struct $name;

        // SAFETY: the public part is a C struct of integers and pointers; it needs no drop.
        unsafe impl Kind for $name {
            const CODE: u8 = $code;
            $(const IS_QUEUE: bool = stringify!($queue).len() == 5;)?
            type Public = abi::$public;
            type Own = $own;
        }

        impl $access for $name {}
    )*};
}

kinds! {
    /// `urma_device_t`.
    Device = 1, urma_device_t, DeviceOwn, Exclusive;
    /// `urma_context_t`.
    Context = 2, urma_context_t, Arc<Ctx>, Exclusive;
    /// `urma_jfce_t`.
    Jfce = 3, urma_jfce_t, Arc<JfceOwn>, Exclusive;
    /// `urma_jfc_t`.
    Jfc = 4, urma_jfc_t, JfcOwn, Exclusive;
    /// `urma_jfs_t`.
    Jfs = 5, urma_jfs_t, JfsOwn, Exclusive, queue;
    /// `urma_jfr_t`.
    Jfr = 6, urma_jfr_t, JfrOwn, Exclusive, queue;
    /// `urma_jetty_t`.
    Jetty = 7, urma_jetty_t, JettyOwn, Exclusive, queue;
    /// `urma_jetty_grp_t`.
    Group = 8, urma_jetty_grp_t, Arc<GroupOwn>, Exclusive;
    /// `urma_target_jetty_t`, of a jetty, a JFR or a group.
    Target = 9, urma_target_jetty_t, TargetOwn, Named;
    /// `urma_target_seg_t`, registered or imported.
    Segment = 10, urma_target_seg_t, SegmentOwn, Named;
    /// `urma_token_id_t`.
    TokenId = 11, urma_token_id_t, TokenOwn, Exclusive;
    /// `urma_notifier_t`.
    Notifier = 12, urma_notifier_t, Arc<NotifierOwn>, Exclusive;
}
