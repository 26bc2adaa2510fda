//! The end of a process that did not delete its contexts.
//!
//! *Owns*: the limit of time. *Takes*: the end of the process, after all handlers of the program. *Gives*: peers that
//! learn of it. *Must not*: end an object: threads of the program may use it until the process is gone.

use std::{
    sync::{Arc, Condvar, Mutex},
    thread,
    time::Duration,
};

use crate::{face::library, latch::lock};

/// Time that peers have to take their last responses.
const LINGER: Duration = Duration::from_millis(80);
/// The end of the process is put off by this at most: where a thread holds the node for ever, or has no processor. Peers that
/// learn nothing wait until the timeout of their jetties, which may be far longer.
const MOST: Duration = Duration::from_secs(1);

/// Tells peers on other hosts that the node of this process closes. A forked child has none of its own, and after
/// `urma_uninit` there is none.
pub(crate) fn leave() {
    let Some(node) = library::hardware().and_then(|hardware| hardware.node()) else { return };
    let done = Arc::new((Mutex::new(false), Condvar::new()));
    let ended = Arc::clone(&done);
    // In a thread of its own: whatever another thread holds, the process ends in time. The values that this thread
    // kept for itself are gone by now, too.
    let leaving = thread::Builder::new().name("urma-exit".to_owned()).spawn(move || {
        node.leave(LINGER);
        // Only the end of the process drops it: its device may be in use.
        core::mem::forget(node);
        *lock(&ended.0) = true;
        ended.1.notify_one();
    });
    if leaving.is_ok() {
        // Late or not, the process ends.
        drop(done.1.wait_timeout_while(lock(&done.0), MOST, |is_done| !*is_done));
    }
}
