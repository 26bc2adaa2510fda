//! `--enable_write_dirty`: somebody writes to the source memory meanwhile.
//!
//! *Owns*: one thread, which ends when this is dropped. *Takes*: places. *Must not*: touch the last
//! byte of a place: write_lat waits for it.

use std::{sync::Arc, thread::JoinHandle, time::Duration};

use urma_mem::{
    Region,
    sync::{AtomicBool, Ordering},
};

use crate::{clock::pause, layout::Layout};

/// Longest sleep between two looks at whether to end.
const NAP: Duration = Duration::from_millis(20);

/// A thread that writes.
#[derive(Debug)]
pub(crate) struct Dirty {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Dirty {
    /// Writes to the sources of `lanes` lanes every `period_ms`.
    pub(crate) fn start(region: &Region, layout: Layout, lanes: usize, period_ms: u32) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (flag, region) = (Arc::clone(&stop), region.clone());
        let period = Duration::from_millis(u64::from(period_ms));
        let thread = std::thread::Builder::new().name("dirty".to_owned()).spawn(move || {
            let mut round: u8 = 0;
            while !flag.load(Ordering::Relaxed) {
                round = round.wrapping_add(37);
                write(&region, &layout, lanes, round);
                let mut left = period;
                while !left.is_zero() && !flag.load(Ordering::Relaxed) {
                    pause(left.min(NAP));
                    left = left.saturating_sub(NAP);
                }
            }
        });
        // Without a thread nothing is dirty: the measurement is the same, the wish is not met.
        Self { stop, thread: thread.ok() }
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
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
