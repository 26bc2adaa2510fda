//! `--enable_write_dirty`: a thread writes to the source memory meanwhile.
//!
//! *Owns*: one thread, which ends when this is dropped. *Takes*: places. *Must not*: touch the last
//! byte of a place: write_lat waits for it.

use std::{
    sync::mpsc::{RecvTimeoutError, Sender, channel},
    thread::JoinHandle,
    time::Duration,
};

use urma::Region;

use crate::layout::Layout;

/// A thread that writes until its end of the channel is gone.
#[derive(Debug)]
pub(crate) struct Dirty {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Dirty {
    /// Writes to the sources of `lanes` lanes every `period_ms`.
    pub(crate) fn start(region: &Region, layout: Layout, lanes: usize, period_ms: u32) -> Self {
        let (stop, stopped) = channel();
        let region = region.clone();
        let period = Duration::from_millis(u64::from(period_ms));
        let thread = std::thread::Builder::new().name("dirty".to_owned()).spawn(move || {
            let mut round: u8 = 0;
            loop {
                round = round.wrapping_add(37);
                write(&region, &layout, lanes, round);
                if stopped.recv_timeout(period) != Err(RecvTimeoutError::Timeout) {
                    break;
                }
            }
        });
        // Without a thread nothing is dirty: the measurement is the same, the wish is not met.
        Self { stop: Some(stop), thread: thread.ok() }
    }
}

fn write(region: &Region, layout: &Layout, lanes: usize, value: u8) {
    let len = usize::try_from(layout.size.saturating_sub(1)).unwrap_or(0);
    let bytes = vec![value; len];
    for lane in 0..lanes {
        for place in 0..layout.places {
            let at = usize::try_from(layout.source(lane, place)).unwrap_or(usize::MAX);
            // The layout keeps places inside the buffer.
            let _ = region.write(at, &bytes);
        }
    }
}

impl Drop for Dirty {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::{cli::PerftestCli, plan::Plan};

    fn layout(line: &str) -> Layout {
        let words = std::iter::once("urma_perftest").chain(line.split_whitespace());
        let plan = Plan::of(&PerftestCli::try_parse_from(words).unwrap()).unwrap();
        Layout::of(&plan.test, plan.test.sizes[0]).unwrap()
    }

    /// The bytes of `region` that are not 0, each with its value.
    fn written(region: &Region) -> Vec<(usize, u8)> {
        let mut bytes = vec![0; region.len()];
        region.read(0, &mut bytes).unwrap();
        (0..).zip(bytes).filter(|(_, byte)| *byte != 0).collect()
    }

    #[test]
    fn all_sources_are_written_but_their_last_bytes() {
        for (line, lanes, places) in [
            ("write_bw -s 5 -J 2 --span 192", 2, 3),
            ("write_bw -s 100 -J 3 --span 512", 3, 4),
            ("write_bw -s 1", 1, 1),
        ] {
            let layout = layout(line);
            assert_eq!(layout.places, places, "{line}");
            let region = Region::private(usize::try_from(layout.buffer_len()).unwrap()).unwrap();
            write(&region, &layout, lanes, 9);
            let size = usize::try_from(layout.size).unwrap();
            let stride = size.next_multiple_of(64);
            let sources = (0..lanes * usize::try_from(places).unwrap()).map(|at| at * stride);
            let wanted = sources.flat_map(|at| (at..at + size - 1).map(|byte| (byte, 9)));
            assert_eq!(written(&region), wanted.collect::<Vec<_>>(), "{line}");
        }
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test waits for a thread")]
    fn the_thread_writes_again_and_again_until_it_is_dropped() {
        let layout = layout("write_bw -s 4");
        let region = Region::private(usize::try_from(layout.buffer_len()).unwrap()).unwrap();
        let dirty = Dirty::start(&region, layout, 1, 1);
        let mut seen = std::collections::BTreeSet::new();
        let bound = std::time::Instant::now() + Duration::from_secs(20);
        while seen.len() < 3 {
            assert!(std::time::Instant::now() < bound, "{seen:?}");
            seen.extend(written(&region).first().map(|(_, byte)| *byte));
            std::thread::sleep(Duration::from_micros(300));
        }
        drop(dirty);
        region.zero(0, region.len()).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        assert!(written(&region).is_empty(), "it has ended");
    }
}
