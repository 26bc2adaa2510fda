//! Register access: one dispatch by offset.
//!
//! *Owns*: the register map. *Takes*: reads and writes of any offset. *Gives*: values; doorbells passed on. *Must
//! not*: panic on any offset or value.

use std::sync::Arc;

use udma_abi::{
    Nanos,
    caps::Caps,
    counters::Counter,
    doorbell::{self, JfcDoorbell},
    regs::{self, control, status},
    slots::SlotDoorbell,
    sqe::BLOCK_WORDS,
};
use urma_mem::{doorbells::RungSlot, sync::Ordering};

use super::SoftwareDevice;
use crate::context::function::DeviceFunction;
use crate::context::jfc::shown_arm;
use crate::context::jfc::{DeviceJfc, Rung};
use crate::engine::queue::DeviceSendQueue;
use crate::limits;

const CAPS_END: u64 = regs::CAPS + 8 * Caps::COUNT as u64;

impl SoftwareDevice {
    /// Reads a register of a function. Outside of the map: all ones, and counted.
    #[must_use]
    pub fn read(&self, function: &DeviceFunction, offset: u64) -> u64 {
        let setup = function.setup();
        match offset {
            regs::ID => regs::MAGIC,
            regs::VERSION_REG => u64::from(regs::VERSION),
            regs::STATUS => u64::from(function.status.load(Ordering::SeqCst)),
            regs::CONTROL => u64::from(setup.control),
            regs::CMD_BASE => setup.cmd_base,
            regs::RSP_BASE => setup.rsp_base,
            regs::CMD_DEPTH => u64::from(setup.cmd_depth),
            regs::AEQ_BASE => setup.aeq_base,
            regs::AEQ_DEPTH => u64::from(setup.aeq_depth),
            regs::CAPS..CAPS_END if offset.is_multiple_of(8) => {
                let index = usize::try_from((offset - regs::CAPS) / 8).unwrap_or(0);
                limits::caps(self.cfg()).to_words().get(index).copied().unwrap_or(0)
            }
            _ => {
                self.count(Counter::BadRegisterAccess);
                u64::MAX
            }
        }
    }

    /// Writes a 32-bit register of a function; a doorbell steps its queue in the calling thread.
    #[inline]
    pub fn write32(
        &self,
        now: impl FnOnce() -> Nanos,
        function: &Arc<DeviceFunction>,
        (offset, value): (u64, u32),
    ) {
        if (regs::JETTY_PAGES..regs::BAR_LEN).contains(&offset) {
            let (id, at) = page_of(offset);
            if at == doorbell::SQ_PI {
                self.ring_send(now, function, (id, value));
            } else {
                self.count(Counter::BadRegisterAccess);
            }
            return;
        }
        self.write_setup32(now(), function, (offset, value));
    }

    /// Writes a 64-bit register of a function; doorbells of this width step their queue.
    #[inline]
    pub fn write64(
        &self,
        now: impl FnOnce() -> Nanos,
        function: &DeviceFunction,
        (offset, value): (u64, u64),
    ) {
        match offset {
            regs::JFC_DB => self.ring_jfc(now, function, JfcDoorbell::decode(value)),
            regs::EQ_CI => self.ring_eq(function, value),
            regs::CMD_BASE => function.change_setup(|s| s.cmd_base = value),
            regs::RSP_BASE => function.change_setup(|s| s.rsp_base = value),
            regs::AEQ_BASE => function.change_setup(|s| s.aeq_base = value),
            _ => self.count(Counter::BadRegisterAccess),
        }
    }

    /// Takes a doorbell from a slot of a function's doorbell memory: the indices and arms of a JFC, or a producer
    /// index. The queue is put on the list with those of other functions, so a doorbell buys no step of its own.
    #[inline]
    pub fn ring_slot(
        &self,
        now: impl FnOnce() -> Nanos,
        function: &DeviceFunction,
        rung: RungSlot,
    ) {
        match SlotDoorbell::decode(rung.value) {
            Some(SlotDoorbell::Queue { id, pi }) => {
                if let Some(queue) = self.queue_of(function, id) {
                    queue.pi.store(pi, Ordering::Release);
                    self.core.make_runnable(queue);
                }
            }
            Some(SlotDoorbell::Jfc { jfcn, ci }) => {
                if let Some(jfc) = self.jfc_of(function, jfcn) {
                    let (arm, is_new) = (rung.detail.unwrap_or(0), rung.detail.is_some());
                    let shown = shown_arm(rung.count, arm, ci);
                    let rang = jfc.on_slot(rung.slot, shown, is_new);
                    self.after_jfc(now, jfc, (rang, is_new));
                }
            }
            None => {}
        }
    }

    /// Takes a direct entry: 64 bytes that a function's driver wrote at once. It is in the ring as well, in case it
    /// cannot start now.
    ///
    /// Reads the clock only for the shared part. Returns whether anything may be left to do: `false` if all that was
    /// posted is done, or nothing was posted.
    #[inline]
    pub fn write_block(
        &self,
        now: impl FnOnce() -> Nanos,
        function: &DeviceFunction,
        (offset, words): (u64, &[u64; BLOCK_WORDS]),
    ) -> bool {
        let (id, at) = page_of(offset);
        let inside = (regs::JETTY_PAGES..regs::BAR_LEN).contains(&offset);
        if !inside || at != doorbell::DWQE {
            self.count(Counter::BadRegisterAccess);
            return false;
        }
        let Some(queue) = self.queue_of(function, id) else { return false };
        self.post_direct(now, queue, words)
    }

    #[inline]
    fn ring_send(
        &self,
        now: impl FnOnce() -> Nanos,
        function: &DeviceFunction,
        (id, pi): (u32, u32),
    ) {
        if let Some(queue) = self.queue_of(function, id) {
            self.post(now, queue, pi);
        }
    }

    /// The living send queue of this number, if it belongs to the function; else counts a bad doorbell.
    #[inline]
    fn queue_of(&self, function: &DeviceFunction, id: u32) -> Option<&Arc<DeviceSendQueue>> {
        let queue = self.core.queues.get(id).filter(|queue| queue.sends.is_on());
        if let Some(queue) = queue
            && queue.is_of(function.id)
        {
            return Some(queue);
        }
        self.refuse_doorbell(function, queue.is_some());
        None
    }

    #[cold]
    fn refuse_doorbell(&self, function: &DeviceFunction, is_foreign: bool) {
        self.count(Counter::BadDoorbell);
        if is_foreign {
            function.count_foreign();
        }
    }

    #[inline]
    fn ring_jfc(&self, now: impl FnOnce() -> Nanos, function: &DeviceFunction, db: JfcDoorbell) {
        if let Some(jfc) = self.jfc_of(function, db.jfcn) {
            self.after_jfc(now, jfc, (jfc.on_doorbell(db), db.arm.is_some()));
        }
    }

    /// The living JFC of this number, if it belongs to the function; else counts a bad doorbell.
    #[inline]
    fn jfc_of(&self, function: &DeviceFunction, jfcn: u32) -> Option<&Arc<DeviceJfc>> {
        let found = self.core.tables.jfcs.get(jfcn).filter(|jfc| jfc.lives.is_on());
        let own = found.filter(|jfc| jfc.is_of(function.id));
        if own.is_none() {
            self.refuse_doorbell(function, found.is_some());
        }
        own
    }

    /// Does what a JFC doorbell, with or without an arm, left to do.
    #[inline]
    fn after_jfc(
        &self,
        now: impl FnOnce() -> Nanos,
        jfc: &DeviceJfc,
        (rung, is_armed): (Rung, bool),
    ) {
        let is_timed = is_armed && jfc.period_us().is_some();
        match rung {
            Rung::Quiet if !is_timed => return,
            Rung::Quiet | Rung::Restart => {}
            Rung::Bad => self.count(Counter::BadDoorbell),
        }
        let now = now();
        if rung == Rung::Restart {
            self.restart_stopped(now);
        }
        if is_timed {
            self.run_shared(now);
        }
    }

    fn ring_eq(&self, function: &DeviceFunction, value: u64) {
        let (eqn, ci) = (value >> 32, low32(value));
        let eqs = &self.core.tables.eqs;
        let found = u32::try_from(eqn).ok().and_then(|n| eqs.get(n)).and_then(|e| e.load_full());
        let is_foreign = found.is_some();
        let Some(eq) = found.filter(|eq| eq.owner == function.id) else {
            return self.refuse_doorbell(function, is_foreign);
        };
        match eq.on_consumed(ci) {
            None => self.count(Counter::BadDoorbell),
            Some(false) => {}
            Some(true) => {
                for jfc in self.core.tables.jfcs.iter().filter(|j| j.uses(&eq)) {
                    jfc.push_pending();
                }
            }
        }
    }

    #[cold]
    fn write_setup32(
        &self,
        now: Nanos,
        function: &Arc<DeviceFunction>,
        (offset, value): (u64, u32),
    ) {
        match offset {
            regs::CONTROL => self.write_control(now, function, value),
            regs::CMD_DEPTH => function.change_setup(|s| s.cmd_depth = value),
            regs::AEQ_DEPTH => function.change_setup(|s| s.aeq_depth = value),
            regs::CMD_PI => {
                function.command_pi.store(value, Ordering::SeqCst);
                self.run_shared(now);
            }
            regs::AEQ_CI => self.ring_aeq(function, value),
            _ => self.count(Counter::BadRegisterAccess),
        }
    }

    fn ring_aeq(&self, function: &DeviceFunction, ci: u32) {
        let Some(aeq) = function.aeq.load_full() else {
            return self.count(Counter::BadDoorbell);
        };
        match aeq.on_consumed(ci) {
            None => self.count(Counter::BadDoorbell),
            Some(_) => self.core.tables.push_async(function),
        }
    }

    fn write_control(&self, now: Nanos, function: &Arc<DeviceFunction>, value: u32) {
        if value & control::RESET != 0 {
            self.reset(now, function);
            return;
        }
        let mut ok = true;
        if value & control::ENABLE != 0 {
            ok = self.enable(function);
        } else {
            function.aeq.store(None);
        }
        function.change_setup(|s| s.control = value & control::ENABLE);
        let ready = if ok { status::READY } else { status::FATAL };
        function.status.store(ready, Ordering::SeqCst);
    }
}

#[inline]
fn page_of(offset: u64) -> (u32, u64) {
    let from = offset.wrapping_sub(regs::JETTY_PAGES);
    (low32(from / doorbell::PAGE_LEN), from % doorbell::PAGE_LEN)
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the low half is meant")]
const fn low32(word: u64) -> u32 {
    word as u32
}
