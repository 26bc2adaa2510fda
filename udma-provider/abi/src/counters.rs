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
    /// Lookups of contexts in the model of the context cache (`URMA_CONTEXT_CACHE`).
    ContextAccesses = "context_accesses",
    /// Of those, found in L1.
    ContextL1Hits = "context_l1_hits",
    /// Of those, found in L2.
    ContextL2Hits = "context_l2_hits",
    /// Of those, found in host memory alone.
    ContextL3Hits = "context_l3_hits",
    /// Of those, found while they moved from one tier to another.
    ContextMigrationHits = "context_migration_hits",
    /// Contexts of the model put into L1.
    ContextInstalled = "context_installed",
    /// Contexts of the model that its replacement policy refused.
    ContextRefused = "context_refused",
    /// Victims of the model without a change.
    ContextEvictedClean = "context_evicted_clean",
    /// Victims of the model whose changes were written to a lower tier.
    ContextEvictedDirty = "context_evicted_dirty",
    /// Time of the model in ns: requests one after another, each until it had its contexts.
    ContextModelNs = "context_model_ns",
    /// Mean time of the model from a lookup until the context is in L1, in ns.
    ContextWaitMeanNs = "context_wait_mean_ns",
    /// Time of the model that 99 % of the lookups did not exceed, in ns.
    ContextWaitP99Ns = "context_wait_p99_ns",
    /// Lookups that the model had no number for.
    ContextUntracked = "context_untracked",
    /// Packet engine, a model: cycles.
    EngineCycles = "engine_cycles",
    /// Packet engine, a model: beats accepted.
    EngineBeatsIn = "engine_beats_in",
    /// Packet engine, a model: beats of packets.
    EngineBeatsOut = "engine_beats_out",
    /// Packet engine, a model: packets that ended.
    EnginePackets = "engine_packets",
    /// Packet engine, a model: payload bytes of them.
    EngineBytes = "engine_bytes",
    /// Packet engine, a model: cycles in which a beat waited for data memory.
    EngineStallData = "engine_stall_data",
    /// Packet engine, a model: cycles in which a beat waited for a sideband entry.
    EngineStallSideband = "engine_stall_sideband",
    /// Packet engine, a model: cycles of flush beats.
    EngineStallFlush = "engine_stall_flush",
    /// Packet engine, a model: cycles with neither a header nor a beat at the output.
    EngineIdleOut = "engine_idle_out",
    /// Packet engine, a model: most beats in its data memory.
    EngineOccupancyMax = "engine_occupancy_max",
    /// Packet engine, a model: messages that could not fit.
    EngineTooLong = "engine_too_long",
    /// Packet engine, a model: messages dropped for an input error.
    EngineInputErrors = "engine_input_errors",
    /// Packet engine, a model: beats that disagree with their header; stays 0.
    EngineMismatch = "engine_mismatch",
    /// Packet engine, a model: cycles in which a beat waited for an empty bank.
    EngineStallBank = "engine_stall_bank",
    /// Packet engine, a model: cycles in which a beat waited for the control of banks to change hands.
    EngineStallHandover = "engine_stall_handover",
    /// Packet engine, a model: beats in its data memory, summed over the cycles.
    EngineOccupancySum = "engine_occupancy_sum",
    /// Packet engine, a model: cycles from a packet's first byte to its header, summed over the packets.
    EngineHeaderLatency = "engine_header_latency",
    /// Packet engine, a model: cycles from a packet's first byte to its end, summed over the packets.
    EngineEndLatency = "engine_end_latency",
    /// Lookups of the model that were not found in L1.
    ContextL1Misses = "context_l1_misses",
    /// Lookups of queues in the model.
    ContextQueueAccesses = "context_queue_accesses",
    /// Of those, found in L1.
    ContextQueueL1Hits = "context_queue_l1_hits",
    /// Lookups of TPs in the model.
    ContextTpAccesses = "context_tp_accesses",
    /// Of those, found in L1.
    ContextTpL1Hits = "context_tp_l1_hits",
    /// Lookups of JFCs in the model.
    ContextJfcAccesses = "context_jfc_accesses",
    /// Of those, found in L1.
    ContextJfcL1Hits = "context_jfc_l1_hits",
    /// Lookups of segments in the model.
    ContextSegmentAccesses = "context_segment_accesses",
    /// Of those, found in L1.
    ContextSegmentL1Hits = "context_segment_l1_hits",
    /// Lookups of pages in the model.
    ContextPageAccesses = "context_page_accesses",
    /// Of those, found in L1.
    ContextPageL1Hits = "context_page_l1_hits",
    /// Lookups of the model that read L2 in a batch.
    ContextFallbacksBatch = "context_fallbacks_batch",
    /// Lookups of the model that asked the host.
    ContextFallbacksExpand = "context_fallbacks_expand",
    /// Contexts of the model that were read and not put into L1.
    ContextStaged = "context_staged",
    /// Migrations of the model that ended in L1.
    ContextMigrationsToL1 = "context_migrations_to_l1",
    /// Migrations of the model that ended in L2.
    ContextMigrationsToL2 = "context_migrations_to_l2",
    /// Migrations of the model that ended in host memory.
    ContextMigrationsToL3 = "context_migrations_to_l3",
    /// Prefetches of the model whose read began.
    ContextPrefetchesIssued = "context_prefetches_issued",
    /// Prefetches of the model whose context was looked up in L1 afterwards.
    ContextPrefetchesUseful = "context_prefetches_useful",
    /// Prefetches of the model that a lookup met before their end.
    ContextPrefetchesLate = "context_prefetches_late",
    /// Prefetches of the model that were dropped: its queue was full or its link busy.
    ContextPrefetchesDropped = "context_prefetches_dropped",
    /// Contexts of the model that were pinned while a message went.
    ContextPins = "context_pins",
    /// Most requests in the model's mailbox to the host.
    ContextMailboxDepthMax = "context_mailbox_depth_max",
    /// Time of the model that 99.9 % of the lookups did not exceed, in ns.
    ContextWaitP999Ns = "context_wait_p999_ns",
    /// Bytes of tokens of all lookups in the model.
    ContextAccessBytes = "context_access_bytes",
    /// Of those, found in L1.
    ContextL1Bytes = "context_l1_bytes",
}
