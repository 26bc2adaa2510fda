//! Capabilities: what the device can hold and do.
//!
//! *Owns*: the list and its order in the capability registers. Values with their reasons are in
//! docs/device-spec.md; tests try each at its limit and one beyond.

macro_rules! caps {
    ($($(#[doc = $doc:literal])* $field:ident,)*) => {
        /// Limits of a device; one 64-bit register each, in this order.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct Caps { $($(#[doc = $doc])* pub $field: u64,)* }

        impl Caps {
            /// How many capability registers there are.
            pub const COUNT: usize = [$(stringify!($field),)*].len();

            /// As the registers show them.
            #[must_use]
            pub fn to_words(&self) -> [u64; Self::COUNT] { [$(self.$field,)*] }

            /// The inverse of [`Caps::to_words`].
            #[must_use]
            pub fn from_words(words: &[u64; Self::COUNT]) -> Self {
                let [$($field,)*] = *words;
                Self { $($field,)* }
            }

            /// Names in register order.
            pub const NAMES: [&'static str; Self::COUNT] = [$(stringify!($field),)*];
        }
    };
}

caps! {
    /// Most JFCs at a time.
    max_jfc,
    /// Most JFSs at a time.
    max_jfs,
    /// Most JFRs at a time.
    max_jfr,
    /// Most jetties at a time.
    max_jetty,
    /// Most jetty groups at a time.
    max_jetty_grp,
    /// Members of a group.
    max_jetty_in_grp,
    /// Most event queues (JFCEs) at a time.
    max_eq,
    /// Segments, also token ids.
    max_seg,
    /// Entries of a JFC.
    max_jfc_depth,
    /// Requests of a JFS.
    max_jfs_depth,
    /// Requests of a JFR.
    max_jfr_depth,
    /// Inline bytes of a send request.
    max_inline,
    /// SGEs of a send request.
    max_jfs_sge,
    /// Remote SGEs of a send request.
    max_jfs_rsge,
    /// SGEs of a receive request.
    max_jfr_sge,
    /// Bytes of a SEND.
    max_msg_size,
    /// Bytes of a READ.
    max_read_size,
    /// Bytes of a WRITE.
    max_write_size,
    /// Bytes of an atomic operand.
    max_atomic_size,
    /// Bytes of an unreliable (UM) message.
    max_um_size,
    /// Most bytes of a packet's payload (path MTU).
    mtu_max,
    /// Peers (nodes) at one time.
    max_peer,
    /// EIDs of the device.
    max_eid,
    /// Interrupt vectors, vector 0 for asynchronous events.
    vectors,
    /// Page sizes as a bit mask.
    page_size_cap,
    /// Feature bits, see [`Features`].
    features,
    /// First well-known queue id.
    reserved_id_min,
    /// Last well-known queue id.
    reserved_id_max,
    /// Block sizes of the knitting pool as a bit mask.
    knit_block_sizes,
    /// Blocks of the knitting pool.
    knit_blocks_max,
}

bitflags::bitflags! {
    /// Feature bits of [`Caps::features`].
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Features: u64 {
        /// Direct WQE: one-block entries through the jetty page.
        const DWQE = 1 << 0;
        /// Receive payload of up to 12 bytes in the CQE.
        const JFC_INLINE = 1 << 1;
        /// Imported segments can be mapped for load and store.
        const LOAD_STORE = 1 << 2;
        /// Retransmits only the packets that are missing.
        const SELECTIVE_RETRANS = 1 << 3;
        /// Groups of jetties can be made and named as targets.
        const JETTY_GRP = 1 << 4;
        /// Suspend on error instead of the error state.
        const ERROR_SUSPEND = 1 << 5;
        /// Queues can complete requests in another order than they were posted in.
        const OUTORDER_COMP = 1 << 6;
        /// Segments need not be pinned.
        const NON_PIN = 1 << 7;
    }
}
