//! Where messages lie in the buffer of a node.
//!
//! *Owns*: the arithmetic of places. *Takes*: the test. *Gives*: offsets within the one registered
//! region. *Must not*: touch memory.
//!
//! The region has two halves: sources (what is sent, what peers read) and sinks (what is written
//! or received, what READ fetches). Each half has one stretch per jetty ("lane"), a stretch has
//! one or more places, a place holds one message.

use crate::plan::{PlanRefusal, Test, Verb};

/// Places start at cache lines.
const LINE: u64 = 64;
/// The halves start at pages.
const PAGE: u64 = 4096;
/// Size of a huge page in bytes.
const HUGE_PAGE: u64 = 2 << 20;
/// Most places of a lane; a longer walk takes larger strides.
const PLACES_MAX: u64 = 1 << 16;
/// Poisoned bytes behind a message that is verified.
pub(crate) const GUARD: u64 = 64;
/// Most bytes of a node's buffer.
const BUFFER_MAX: u64 = 1 << 33;

/// Places for messages of one size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Layout {
    /// Bytes of a message.
    pub(crate) size: u64,
    /// Bytes from one place to the next.
    stride: u64,
    /// Places of a lane.
    pub(crate) places: u64,
    /// Number of places for receives of one lane.
    pub(crate) receives: u64,
    /// Bytes of half the buffer; the same for all sizes of a test.
    half: u64,
    /// Number of jetties, with places for each.
    lanes: u64,
    /// The buffer is a multiple of this.
    page: u64,
}

/// Words that a lane has beside its messages. Each has a cache line of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LaneWord {
    /// Place of this side's report of its receives to the peer.
    CreditOut,
    /// Place of the peer's report of its receives.
    CreditIn,
    /// What notifications of the peer's writes store.
    Notify,
}

/// Words of a lane.
const WORDS: u64 = 3;

impl Layout {
    /// The places for messages of `size` bytes.
    ///
    /// # Errors
    /// The buffer would be too large.
    pub(crate) fn of(test: &Test, size: u32) -> Result<Self, PlanRefusal> {
        let mut layout = Self::without_half(test, size);
        for size in &test.sizes {
            let other = Self::without_half(test, *size);
            layout.half = layout.half.max(other.needed(u64::from(test.jettys)));
        }
        if layout.buffer_len() > BUFFER_MAX {
            let why = "message size, jetties, depth or --span need a buffer of more than 8 GiB";
            return Err(PlanRefusal(why.to_owned()));
        }
        Ok(layout)
    }

    fn without_half(test: &Test, size: u32) -> Self {
        let size = u64::from(size);
        let guard = if test.verify { GUARD } else { 0 };
        let tight = (size + guard).next_multiple_of(LINE);
        let walk = if test.verify { tight * u64::from(test.jfs_depth) } else { test.span };
        let places = (walk / tight).clamp(1, PLACES_MAX);
        let stride = (walk / places / LINE * LINE).max(tight);
        let is_send = test.command.verb() == Verb::Send;
        let receives = match (is_send, test.verify) {
            (false, _) => 0,
            (true, false) => 1,
            (true, true) => u64::from(test.jfr_depth) * u64::from(test.jfrs()),
        };
        let page = if test.huge { HUGE_PAGE } else { PAGE };
        Self { size, stride, places, receives, half: 0, lanes: u64::from(test.jettys), page }
    }

    fn needed(&self, lanes: u64) -> u64 {
        let places = self.places.saturating_mul(lanes.max(1)).max(self.receives);
        places.saturating_mul(self.stride).next_multiple_of(PAGE)
    }

    /// Bytes of the whole buffer.
    pub(crate) fn buffer_len(&self) -> u64 {
        (self.half * 2 + self.lanes * WORDS * LINE).next_multiple_of(self.page)
    }

    /// Offset of a word of a lane.
    pub(crate) fn word(&self, lane: usize, word: LaneWord) -> u64 {
        self.half * 2 + (lane as u64 * WORDS + word as u64) * LINE
    }

    /// Offset of a source.
    pub(crate) fn source(&self, lane: usize, message: u64) -> u64 {
        (lane as u64 * self.places + message % self.places) * self.stride
    }

    /// Offset of a sink.
    pub(crate) fn sink(&self, lane: usize, message: u64) -> u64 {
        self.half + self.source(lane, message)
    }

    /// Offset of the place of receive number `receive`.
    pub(crate) fn receive(&self, receive: u64) -> u64 {
        let places = self.receives.max(1);
        self.half + receive % places * self.stride
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::{cli::PerftestCli, plan::Plan};

    fn layouts(line: &str) -> (Test, Vec<Layout>) {
        let words = std::iter::once("urma_perftest").chain(line.split_whitespace());
        let test = Plan::of(&PerftestCli::try_parse_from(words).unwrap()).unwrap().test;
        let layouts = test.sizes.iter().map(|size| Layout::of(&test, *size).unwrap()).collect();
        (test, layouts)
    }

    #[test]
    fn places_neither_overlap_nor_leave_the_buffer() {
        for line in [
            "write_bw -s 8",
            "write_bw -s 100 -J 3 --verify -T 7",
            "send_bw -a 10 -J 4 --verify -R 33",
            "read_bw -s 4096 --span 1000000 -J 2",
            "send_lat -s 65536",
        ] {
            let (test, layouts) = layouts(line);
            for layout in layouts {
                let mut places: Vec<u64> = (0..test.jettys as usize)
                    .flat_map(|lane| (0..layout.places).map(move |place| (lane, place)))
                    .map(|(lane, place)| layout.sink(lane, place))
                    .collect();
                assert!(places.iter().all(|at| at + layout.size <= layout.buffer_len()), "{line}");
                places.sort_unstable();
                let apart = layout.size + if test.verify { GUARD } else { 0 };
                assert!(places.windows(2).all(|pair| pair[1] - pair[0] >= apart), "{line}");
                let last = layout.receive(layout.receives.saturating_sub(1));
                assert!(last + layout.size <= layout.buffer_len(), "{line}");
                assert_eq!(layout.buffer_len() % PAGE, 0);
                let words = layout.word(test.jettys as usize - 1, LaneWord::Notify);
                assert!(words >= last + layout.size && words + 8 <= layout.buffer_len(), "{line}");
            }
        }
    }

    #[test]
    fn a_hot_test_uses_one_place() {
        let (_, layouts) = layouts("write_bw -s 65536");
        assert_eq!(layouts[0].places, 1);
        assert_eq!(layouts[0].sink(0, 9), layouts[0].sink(0, 0));
    }

    #[test]
    fn a_span_is_walked_through() {
        let (_, layouts) = layouts("write_bw -s 4096 --span 268435456");
        assert_eq!(layouts[0].places, 1 << 16);
        assert_eq!(layouts[0].source(0, 1), 4096);
    }

    #[test]
    fn a_huge_buffer_is_refused() {
        let words = ["urma_perftest", "write_bw", "-s", "2147483648", "-J", "4"];
        let test = Plan::of(&PerftestCli::try_parse_from(words).unwrap()).unwrap().test;
        assert!(Layout::of(&test, test.sizes[0]).is_err());
    }
}
