//! Named places at which a kill test ends the process.
//!
//! *Owns*: the names. *Takes*: `URMA_KILL_AT="<hook>:<n>"` under the feature `fault-hooks`: the
//! n-th pass (from 1) of that hook raises SIGKILL. *Gives*: nothing; without the feature a pass is
//! no code at all. *Must not*: be reachable in a build without the feature.

/// A place where dying is worth a test.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hook {
    /// A hazard slot is announced, nothing copied yet.
    SlotAnnounced,
    /// Some bytes of a direct copy are placed.
    MidCopy,
    /// A peer's entry was read; the look whether it changed meanwhile is due.
    EntryRead,
    /// The bytes of a copy moved; the last look at the generation is due.
    CopyUnchecked,
    /// A ring entry is written and not published.
    RingEntryHalf,
    /// A ring entry is published and the peer not woken.
    PublishedNotRung,
    /// The body of a CQE is written without its owner bit.
    CqeBodyNoOwner,
    /// A peer is being connected.
    DuringImport,
    /// A segment is being registered.
    DuringRegister,
    /// A segment is being unregistered.
    DuringUnregister,
}

/// Passes a hook: does nothing in builds without planted faults.
#[cfg(not(any(test, feature = "fault-hooks")))]
#[inline(always)]
pub const fn pass(_hook: Hook) {}

#[cfg(all(feature = "fault-hooks", not(test)))]
pub use armed::pass;

#[cfg(test)]
pub(crate) use stopped::{at, pass};

/// Unit tests run a function at a hook, in the thread that passes it.
#[cfg(test)]
mod stopped {
    use std::cell::RefCell;

    use super::Hook;

    type Stop = (Hook, Box<dyn FnOnce()>);

    std::thread_local! {
        static STOP: RefCell<Option<Stop>> = const { RefCell::new(None) };
    }

    /// Runs `f` at this thread's next pass of `hook`, once.
    pub(crate) fn at(hook: Hook, f: impl FnOnce() + 'static) {
        STOP.with(|stop| *stop.borrow_mut() = Some((hook, Box::new(f))));
    }

    pub(crate) fn pass(hook: Hook) {
        let due = STOP.with(|stop| stop.borrow_mut().take_if(|(wanted, _)| *wanted == hook));
        if let Some((_, f)) = due {
            f();
        }
    }
}

#[cfg(all(feature = "fault-hooks", not(test)))]
mod armed {
    use std::sync::OnceLock;

    use urma_mem::sync::{AtomicU64, Ordering};

    use super::Hook;

    struct HookPlan {
        name: String,
        at: u64,
        passed: AtomicU64,
    }

    static PLAN: OnceLock<Option<HookPlan>> = OnceLock::new();

    fn plan() -> Option<HookPlan> {
        let text = std::env::var("URMA_KILL_AT").ok()?;
        let (name, at) = text.split_once(':')?;
        let at = at.parse().ok()?;
        Some(HookPlan { name: name.to_owned(), at, passed: AtomicU64::new(0) })
    }

    /// Passes a hook: the n-th pass of the planned one ends the process at once.
    pub fn pass(hook: Hook) {
        let Some(plan) = PLAN.get_or_init(plan) else { return };
        if plan.name != format!("{hook:?}") {
            return;
        }
        if plan.passed.fetch_add(1, Ordering::Relaxed) + 1 == plan.at {
            let own = rustix::process::getpid();
            // A kill of oneself returns only if the signal was refused, which SIGKILL is not.
            let _ = rustix::process::kill_process(own, rustix::process::Signal::KILL);
        }
    }
}
