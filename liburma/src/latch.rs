//! Latch: a short lock that a forked child can force open.
//!
//! *Owns*: one value of the process, such as a list of free slots. *Takes*: closures that only
//! change that value. *Gives*: exclusive access for their length. *Must not*: be held over a call
//! that waits, or over a call back into C.
#![expect(unsafe_code, reason = "interior mutability behind its own lock")]

use core::cell::UnsafeCell;
use std::sync::{Mutex, MutexGuard, PoisonError};

use urma_mem::sync::{AtomicU32, Ordering, spin_hint, yield_now};

/// A value under a short lock.
pub(crate) struct Latch<T> {
    held: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached by the holder only, and it may be sent between threads.
unsafe impl<T: Send> Sync for Latch<T> {}

impl<T> Latch<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self { held: AtomicU32::new(0), value: UnsafeCell::new(value) }
    }

    /// Calls `f` with the value. `f` must not use the same latch: that would wait for ever.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        let mut pause = Pause::new();
        while self.held.swap(1, Ordering::Acquire) != 0 {
            pause.wait();
        }
        let _open = Open(&self.held);
        // SAFETY: this thread set `held`, and no other thread reaches the value until `_open` is dropped.
        f(unsafe { &mut *self.value.get() })
    }

    /// Replaces holder and value, in a forked child, where the holder does not exist. The old value is not dropped.
    /// Only for a process with one thread.
    pub(crate) fn abandon(&self, value: T) {
        // SAFETY: one thread, and it is not inside `with`.
        unsafe { self.value.get().write(value) };
        self.held.store(0, Ordering::Release);
    }
}

/// Releases the latch, also when the closure panicked.
struct Open<'a>(&'a AtomicU32);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}

/// The value of a mutex, even after a panic of its holder.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Spins briefly, then yields to the holder, which may share the processor.
pub(crate) struct Pause {
    spins: u32,
}

impl Pause {
    const SPINS_MAX: u32 = 100;

    pub(crate) const fn new() -> Self {
        Self { spins: 0 }
    }

    pub(crate) fn wait(&mut self) {
        if self.spins < Self::SPINS_MAX {
            self.spins += 1;
            spin_hint();
        } else {
            yield_now();
        }
    }
}

/// A [`Pause`] with a limit: in a forked child the thread that is waited for does not exist.
pub(crate) struct BoundedPause {
    pause: Pause,
    left: u32,
}

impl BoundedPause {
    /// Several seconds, on a busy processor more.
    const WAITS_MAX: u32 = 10_000_000;

    pub(crate) const fn new() -> Self {
        Self { pause: Pause::new(), left: Self::WAITS_MAX }
    }

    /// Waits briefly; `false`: the limit is reached.
    pub(crate) fn wait(&mut self) -> bool {
        self.pause.wait();
        self.left = self.left.saturating_sub(1);
        self.left != 0
    }
}
