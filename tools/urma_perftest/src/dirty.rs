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
