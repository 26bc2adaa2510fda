//! Faults that tests plant to show that a check can fail.
//!
//! *Owns*: the names, and the question whether one is planted. *Takes*: `DeviceCfg::fault` under the
//! feature `planted-faults`. *Gives*: `false`, always, in every other build. *Must not*: cost an
//! instruction in production.

/// A mistake that the device makes on purpose.
#[cfg(any(test, feature = "planted-faults"))]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlantedFault {
    /// Tokens of segments are not compared.
    TokenNotChecked,
    /// Ranges may end one byte beyond a segment.
    BoundOffByOne,
    /// Every seventh completion is written twice.
    CompletionDoubled,
    /// Every seventh completion is not written.
    CompletionDropped,
    /// Two neighbouring requests of a send queue are executed in the wrong order.
    OrderSwapped,
    /// The last bytes of a message are stored first.
    LastByteEarly,
    /// A request is acknowledged before its bytes are placed.
    AckBeforePlacement,
    /// Time in which the node's process was stopped counts for its timers.
    StoppedTimeCounts,
    /// A sender need not show that it is the peer: packets from any port of its address count, and
    /// CONNECT needs no cookie.
    SenderUnproven,
    /// A probe of the path MTU counts as one that passed, without its echo.
    ProbeBelieved,
    /// A path MTU never gets smaller.
    MtuNeverShrinks,
    /// A request that comes again behind others is executed again.
    ServedAgain,
    /// An unregistered segment can still be reached.
    SegmentStays,
    /// Requests that fail end as done.
    ErrorsHidden,
    /// Requests with a fence do not wait for the reads before them.
    FenceIgnored,
    /// Unsignalled requests make a completion as well.
    UnsignalledReported,
    /// A message whose target had no receive is not sent again.
    NotReadyForgotten,
    /// What a node's former life asked for counts as served for the next one, too.
    SequencesKept,
    /// The receive of a message that breaks off is not given back.
    ReceiveKept,
    /// Packets are taken whatever their ICRC is.
    IcrcUnchecked,
    /// An atomic answers with a wrong value.
    WrongValueAnswered,
    /// The completion of a receive says one byte less.
    LengthShort,
    /// What was lost is not sent again.
    LossIgnored,
    /// A receiver says of every packet before its last one that it has it.
    HolesDenied,
    /// The blocks of a TP that ends stay taken.
    BlocksKept,
    /// The last byte of a packet that repair packets bring is wrong.
    RepairsWrong,
}

/// Which fault is planted, if any.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Faults {
    #[cfg(any(test, feature = "planted-faults"))]
    planted: Option<PlantedFault>,
}

#[cfg(any(test, feature = "planted-faults"))]
impl Faults {
    pub(crate) const fn new(planted: Option<PlantedFault>) -> Self {
        Self { planted }
    }

    fn is(self, fault: PlantedFault) -> bool {
        self.planted == Some(fault)
    }

    pub(crate) const fn is_planted(self) -> bool {
        self.planted.is_some()
    }
}

#[cfg(not(any(test, feature = "planted-faults")))]
impl Faults {
    #[inline(always)]
    pub(crate) const fn is_planted(self) -> bool {
        false
    }
}

macro_rules! questions {
    ($($(#[doc = $doc:literal])* $name:ident = $fault:ident;)*) => {
        #[cfg(any(test, feature = "planted-faults"))]
        impl PlantedFault {
            /// Every one of them.
            pub const ALL: &[Self] = &[$(Self::$fault),*];
        }

        #[cfg(any(test, feature = "planted-faults"))]
        impl Faults {
            $($(#[doc = $doc])* pub(crate) fn $name(self) -> bool { self.is(PlantedFault::$fault) })*
        }

        #[cfg(not(any(test, feature = "planted-faults")))]
        impl Faults {
            $($(#[doc = $doc])* #[inline(always)] pub(crate) const fn $name(self) -> bool { false })*
        }
    };
}

questions! {
    /// Tokens are not compared.
    token_not_checked = TokenNotChecked;
    /// Bounds are one byte too wide.
    bound_off_by_one = BoundOffByOne;
    /// Completions are doubled now and then.
    completion_doubled = CompletionDoubled;
    /// Completions are dropped now and then.
    completion_dropped = CompletionDropped;
    /// Neighbouring requests change places.
    order_swapped = OrderSwapped;
    /// The end of a message is stored first.
    last_byte_early = LastByteEarly;
    /// Requests are acknowledged before they are placed.
    ack_before_placement = AckBeforePlacement;
    /// Timers run while the process is stopped.
    stopped_time_counts = StoppedTimeCounts;
    /// Handshakes accept a CONNECT without proof of its sender's address.
    sender_unproven = SenderUnproven;
    /// Probes count as passed when they are sent.
    probe_believed = ProbeBelieved;
    /// Path MTUs never get smaller.
    mtu_never_shrinks = MtuNeverShrinks;
    /// Duplicates of requests count as new ones.
    served_again = ServedAgain;
    /// Unregistering a segment does nothing.
    segment_stays = SegmentStays;
    /// Errors end as successes.
    errors_hidden = ErrorsHidden;
    /// A fence waits for no earlier request.
    fence_ignored = FenceIgnored;
    /// Every request makes a completion.
    unsignalled_reported = UnsignalledReported;
    /// "Receiver not ready" ends the tries without ending the request.
    not_ready_forgotten = NotReadyForgotten;
    /// Sequences outlive the node that counted them.
    sequences_kept = SequencesKept;
    /// Receives of broken messages are lost.
    receive_kept = ReceiveKept;
    /// Damaged packets count as intact ones.
    icrc_unchecked = IcrcUnchecked;
    /// Atomics bring a wrong value.
    wrong_value_answered = WrongValueAnswered;
    /// Receive completions report fewer bytes.
    length_short = LengthShort;
    /// Senders do not repeat what was lost.
    loss_ignored = LossIgnored;
    /// Receivers do not name what they lack.
    holes_denied = HolesDenied;
    /// The pool loses blocks.
    blocks_kept = BlocksKept;
    /// Repaired packets have a wrong byte.
    repairs_wrong = RepairsWrong;
}

impl Faults {
    /// Bytes by which every range check is too generous.
    #[inline]
    pub(crate) fn bound_slack(self) -> u64 {
        u64::from(self.bound_off_by_one())
    }
}
