//! Counters of the device, in the order in which `QUERY_COUNTERS` writes them.
//!
//! *Owns*: the list. Every line of a benchmark proves its path by these.

macro_rules! counters {
    ($($(#[doc = $doc:literal])* $variant:ident = $name:literal,)*) => {
        /// One counter; its discriminant is its index in the answer.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
        #[repr(u16)]
        pub enum Counter { $($(#[doc = $doc])* $variant,)* }

        impl Counter {
            /// All counters in answer order.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The name in reports and JSON.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

counters! {
    /// Requests carried by the direct path.
    DirectRequests = "direct_requests",
    /// Payload bytes carried by the direct path.
    DirectBytes = "direct_bytes",
    /// Requests carried by the same-host ring.
    RingRequests = "ring_requests",
    /// Payload bytes carried by the same-host ring.
    RingBytes = "ring_bytes",
    /// Requests carried in packets.
    PacketRequests = "packet_requests",
    /// Payload bytes carried in packets.
    PacketBytes = "packet_bytes",
    /// Packets sent, retransmissions included.
    TxPackets = "tx_packets",
    /// Packets received and accepted.
    RxPackets = "rx_packets",
    /// Packets that were retransmitted.
    Retransmits = "retransmits",
    /// Packets accepted out of order.
    RxOutOfOrder = "rx_out_of_order",
    /// Packets dropped because they were received before.
    RxDuplicate = "rx_duplicate",
    /// Packets dropped: malformed or truncated.
    DropMalformed = "drop_malformed",
    /// Packets dropped: wrong ICRC.
    DropIcrc = "drop_icrc",
    /// Packets dropped: no such TP, or not from its peer.
    DropUnknownTp = "drop_unknown_tp",
    /// Packets dropped: handshake packets that show nothing which only the peer has, packets from
    /// another UDP port than 4791, echoes of probes that were not sent, and answers to such packets for which there was no room.
    DropUnproven = "drop_unproven",
    /// Packets dropped: outside the window.
    DropWindow = "drop_window",
    /// Packets dropped: unreliable message without a receiver.
    DropUm = "drop_um",
    /// Receiver-not-ready answers that this node sent.
    RnrSent = "rnr_sent",
    /// Receiver-not-ready answers that this node received.
    RnrReceived = "rnr_received",
    /// Requests refused here: access, token or bounds.
    AccessDenied = "access_denied",
    /// Driver errors: register access outside the map or of a wrong size.
    BadRegisterAccess = "bad_register_access",
    /// Driver errors: doorbell for no queue, or an index out of range.
    BadDoorbell = "bad_doorbell",
    /// Driver errors: malformed queue entry.
    BadSqe = "bad_sqe",
    /// DMA outside what is mapped.
    DmaFault = "dma_fault",
    /// Peers cut off because they lied in shared memory.
    PeerLied = "peer_lied",
    /// Peers that died or hung up.
    PeerDied = "peer_died",
    /// Segments revoked because copies did not drain in time.
    HardRevoked = "hard_revoked",
    /// Completions written to completion rings.
    Completions = "completions",
    /// Events written to event rings.
    Events = "events",
    /// Times the background thread took over.
    BackgroundRuns = "background_runs",
    /// Wake-ups sent to sleeping peers.
    Wakeups = "wakeups",
    /// Send queues stopped for want of a completion slot.
    CqFullStops = "cq_full_stops",
    /// Requests carried by the kernel: reads of a peer's process.
    KernelRequests = "kernel_requests",
    /// Payload bytes read through the kernel.
    KernelBytes = "kernel_bytes",
    /// CONNECTs without proof, answered and forgotten.
    Challenges = "challenges",
    /// Times that this process was out of descriptors or memory while it met peers.
    OutOfResources = "out_of_resources",
    /// Asynchronous events dropped, the oldest first: the driver left thousands of them waiting.
    AsyncDropped = "async_dropped",
    /// TPs replaced because the path became too narrow for their packets.
    PathNarrowed = "path_narrowed",
    /// TPs that moved to another port, here or at the peer, since theirs carried nothing.
    PortFailed = "port_failed",
    /// TPs that moved back to the preferred port.
    PortReturned = "port_returned",
    /// Packets dropped: sent again or late, and in no list of losses of a knitting TP.
    DropUnmatched = "drop_unmatched",
    /// Loss reports dropped: of what was never sent, or on a TP without reports.
    BadReport = "bad_report",
    /// Tail marks dropped: beyond the window, or on a TP without reports.
    BadTail = "bad_tail",
    /// Packets dropped: they answer a loss report on a TP without reports.
    BadRepeat = "bad_repeat",
    /// Repair packets dropped: of packets outside the window, or on a TP without reports.
    BadRepair = "bad_repair",
    /// Repair packets sent behind what was sent last.
    RepairsSent = "repairs_sent",
    /// Packets that never came and were made from repair packets.
    PacketsRepaired = "packets_repaired",
    /// Rests of the background thread, of a tick or longer, in which work of a peer waited without a wake-up.
    FoundLate = "found_late",
    /// Messages that broke off before they were complete, and whose receive another one gets.
    MessagesBroken = "messages_broken",
    /// Number of times that two jetties of this host which answer each other's messages entered ping-pong mode.
    PingPongs = "ping-pongs",
    /// Blocks of the knitting pool that TPs took for losses.
    KnitTaken = "knit_blocks_taken",
    /// Blocks that they gave back: what is between the two is in use.
    KnitGiven = "knit_blocks_given",
    /// Blocks that the driver added to the pool.
    KnitGrown = "knit_blocks_grown",
    /// Blocks that the driver took out of it.
    KnitShrunk = "knit_blocks_shrunk",
    /// Blocks that the device read from the pool.
    KnitReads = "knit_reads",
    /// Blocks that it wrote to the pool.
    KnitWrites = "knit_writes",
    /// Repeated packets whose loss record was at hand, or read in advance.
    KnitHits = "knit_hits",
    /// Repeated packets that waited for a read of it.
    KnitMisses = "knit_misses",
}

/// A counter of a model, which the device names: an entry of the answer to `QUERY_MODEL_COUNTERS`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ModelCounter {
    /// Its name: 1 to 56 bytes.
    pub name: String,
    /// Its value when the device answered.
    pub value: u64,
}

/// Bytes of an entry.
pub const MODEL_COUNTER_LEN: usize = 8 * MODEL_COUNTER_WORDS;
/// Words of an entry: those of the name, padded with zeros, then the value.
pub const MODEL_COUNTER_WORDS: usize = 8;
/// Most bytes of a name.
const NAME_LEN: usize = 8 * (MODEL_COUNTER_WORDS - 1);

impl ModelCounter {
    /// The words of a counter. `None`: the name is empty or too long.
    #[must_use]
    pub fn encode(name: &str, value: u64) -> Option<[u64; MODEL_COUNTER_WORDS]> {
        if !(1..=NAME_LEN).contains(&name.len()) {
            return None;
        }
        let mut words = [value; MODEL_COUNTER_WORDS];
        let mut bytes = [0; NAME_LEN];
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        Some(words)
    }

    /// Reads an entry. `None`: its name is no text of ASCII letters, digits and signs.
    #[must_use]
    pub fn decode(words: &[u64; MODEL_COUNTER_WORDS]) -> Option<Self> {
        let (value, name) = words.split_last()?;
        let bytes: Vec<u8> = name.iter().flat_map(|word| word.to_le_bytes()).collect();
        let len = bytes.iter().position(|byte| *byte == 0).unwrap_or(NAME_LEN);
        let (name, padding) = bytes.split_at(len);
        let is_text = !name.is_empty() && name.iter().all(u8::is_ascii_graphic);
        let is_entry = is_text && padding.iter().all(|byte| *byte == 0);
        let name = std::str::from_utf8(name).ok().filter(|_| is_entry)?;
        Some(Self { name: name.to_owned(), value: *value })
    }
}
