//! The workspace's atomics: the standard ones, or loom's when a model checks the code.
//!
//! Owns: the choice between the two, and a cell both can watch.
//! Takes: `--cfg loom`.
//! Gives: `AtomicU8`, `AtomicU32`, `AtomicU64`, `AtomicUsize`, `AtomicBool`, `AtomicPtr`, `Ordering`, `fence`,
//! `Arc`, `spin_hint`. Must not: add behaviour of its own.

#[cfg(not(loom))]
#[expect(clippy::disallowed_types, reason = "this file is the one door to the raw atomics")]
mod imp {
    pub use std::sync::Arc;
    pub use std::sync::atomic::{Ordering, fence};

    // Aliases, not re-exports: the lint that bans the raw names looks through a re-export.
    /// Atomic boolean of the standard library; models use loom's.
    pub type AtomicBool = std::sync::atomic::AtomicBool;
    /// Atomic byte of the standard library; models use loom's.
    pub type AtomicU8 = std::sync::atomic::AtomicU8;
    /// Atomic 32-bit word of the standard library; models use loom's.
    pub type AtomicU32 = std::sync::atomic::AtomicU32;
    /// Atomic 64-bit word of the standard library; models use loom's.
    pub type AtomicU64 = std::sync::atomic::AtomicU64;
    /// Atomic word of the address size.
    pub type AtomicUsize = std::sync::atomic::AtomicUsize;
    /// Atomic address of the standard library; models use loom's.
    pub type AtomicPtr<T> = std::sync::atomic::AtomicPtr<T>;

    /// Spin hint of the processor; a bounded loop calls it between two checks.
    #[inline]
    pub fn spin_hint() {
        std::hint::spin_loop();
    }

    /// Lets another thread run; control plane only.
    #[inline]
    pub fn yield_now() {
        std::thread::yield_now();
    }
}

#[cfg(loom)]
mod imp {
    pub use loom::sync::Arc;
    pub use loom::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    };

    /// Marks in the model that this thread waits for another one.
    pub fn spin_hint() {
        loom::thread::yield_now();
    }

    /// Marks in the model that this thread waits for another one.
    pub fn yield_now() {
        loom::thread::yield_now();
    }
}

pub use imp::*;

/// A cell whose accesses loom watches; outside of a model it is a plain `UnsafeCell`.
#[derive(Debug)]
pub(crate) struct Watched<T>(
    #[cfg(not(loom))] core::cell::UnsafeCell<T>,
    #[cfg(loom)] loom::cell::UnsafeCell<T>,
);

impl<T> Watched<T> {
    #[cfg(not(loom))]
    pub(crate) const fn new(value: T) -> Self {
        Self(core::cell::UnsafeCell::new(value))
    }

    #[cfg(loom)]
    pub(crate) fn new(value: T) -> Self {
        Self(loom::cell::UnsafeCell::new(value))
    }

    /// Runs `f` on the address of the value. Making the call is safe; using the pointer is not.
    #[inline]
    pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        #[cfg(not(loom))]
        return f(self.0.get());
        #[cfg(loom)]
        return self.0.with_mut(f);
    }

    pub(crate) fn into_inner(self) -> T {
        self.0.into_inner()
    }
}
