//! Event queues, completion queues and groups.
//!
//! *Owns*: their creation and destruction. *Takes*: commands. *Gives*: numbers.
//! *Must not*: destroy what others use.

use std::collections::BTreeSet;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use udma_abi::{CmdStatus, DmaAccess, cmd::NONE, cqe::CQE_LEN, eqe::EQE_LEN};
use urma_mem::Blocks;
use urma_mem::sync::Ordering;

use super::answer::{CmdAnswer, CmdOutcome};
use super::state::{Around, Commands};
use crate::context::{event::EventQueue, function::QuotaKind, jfc::DeviceJfc, tables::Tables};
use crate::limits;
use crate::nic::LookedUp;

impl Commands {
    pub(super) fn create_eq(
        &mut self,
        at: &Around<'_>,
        base: u64,
        depth_log2: u8,
        vector: u16,
    ) -> CmdOutcome {
        let (tables, function) = (&at.core.tables, &at.function);
        if vector == 0 || vector >= limits::VECTORS || depth_log2 > limits::EQ_DEPTH_LOG2 {
            return Err(CmdStatus::Invalid);
        }
        let depth = 1u64 << depth_log2;
        let ring = tables.window(function, (base, depth * EQE_LEN as u64), DmaAccess::Both);
        let ring = ring.filter(|_| base.is_multiple_of(8)).ok_or(CmdStatus::Invalid)?;
        function.charge(QuotaKind::Jfcs, 1)?;
        let eqn = self.objects.eqs.take_lowest(function.id);
        let slot = eqn.and_then(|eqn| tables.eqs.get_or_make(eqn, ArcSwapOption::empty));
        let (Some(eqn), Some(slot)) = (eqn, slot) else {
            function.release(QuotaKind::Jfcs, 1);
            return Err(CmdStatus::NoRoom);
        };
        let interrupt = Arc::clone(&function.interrupt);
        slot.store(Some(Arc::new(EventQueue::new(ring, depth, (function.id, vector), interrupt))));
        Ok(CmdAnswer::ok(&[u64::from(eqn)]))
    }

    pub(super) fn destroy_eq(&mut self, at: &Around<'_>, eqn: u32) -> CmdOutcome {
        let eq = find_eq(at, eqn)?;
        if eq.users.load(Ordering::SeqCst) != 0 {
            return Err(CmdStatus::InUse);
        }
        self.forget_eq(&at.core.tables, eqn);
        at.function.release(QuotaKind::Jfcs, 1);
        Ok(CmdAnswer::ok(&[]))
    }

    pub(super) fn forget_eq(&mut self, tables: &Tables, eqn: u32) {
        if let Some(slot) = tables.eqs.get(eqn) {
            slot.store(None);
        }
        self.objects.eqs.give_back(eqn);
    }

    pub(super) fn create_jfc(
        &mut self,
        at: &Around<'_>,
        (base, depth_log2): (u64, u8),
        inline: bool,
        eqn: u32,
    ) -> CmdOutcome {
        let (tables, function) = (&at.core.tables, &at.function);
        let eq = if eqn == NONE { None } else { Some(find_eq(at, eqn)?) };
        if depth_log2 > limits::JFC_DEPTH_LOG2 || !base.is_multiple_of(64) {
            return Err(CmdStatus::Invalid);
        }
        let depth = 1u64 << depth_log2;
        let window = tables.window(function, (base, depth * CQE_LEN as u64), DmaAccess::Both);
        let window = window.ok_or(CmdStatus::Invalid)?;
        let ring = Blocks::new(window, u32::from(depth_log2)).map_err(|_| CmdStatus::Invalid)?;
        function.charge(QuotaKind::Jfcs, 1)?;
        let make = |jfcn| tables.jfcs.get_or_make(jfcn, || Arc::new(DeviceJfc::new(jfcn)));
        let jfc = self.objects.jfcs.take(function.id).and_then(make);
        let Some(jfc) = jfc else {
            function.release(QuotaKind::Jfcs, 1);
            return Err(CmdStatus::NoRoom);
        };
        jfc.open((function.id, function.doorbells()), ring, inline, eq);
        Ok(CmdAnswer::ok(&[u64::from(jfc.id)]))
    }

    pub(super) fn modify_jfc(
        &mut self,
        at: &Around<'_>,
        jfcn: u32,
        count: u16,
        period_us: u16,
    ) -> CmdOutcome {
        let jfc = find_jfc(at, jfcn)?;
        jfc.set_moderation(u32::from(count), u32::from(period_us));
        self.moderated.remove(&jfcn);
        if period_us != 0 {
            self.moderated.insert(jfcn, None);
        }
        at.core.tables.moderation.store(!self.moderated.is_empty(), Ordering::SeqCst);
        Ok(CmdAnswer::ok(&[]))
    }

    pub(super) fn destroy_jfc(&mut self, at: &Around<'_>, jfcn: u32) -> CmdOutcome {
        let jfc = find_jfc(at, jfcn)?;
        if jfc.users.load(Ordering::SeqCst) != 0 {
            return Err(CmdStatus::InUse);
        }
        self.forget_jfc(&at.core.tables, jfc);
        at.function.release(QuotaKind::Jfcs, 1);
        Ok(CmdAnswer::ok(&[]))
    }

    pub(super) fn forget_jfc(&mut self, tables: &Tables, jfc: &DeviceJfc) {
        jfc.close();
        tables.forget(LookedUp::Jfc(jfc.id));
        self.moderated.remove(&jfc.id);
        self.objects.jfcs.give_back(jfc.id);
    }

    pub(super) fn create_group(
        &mut self,
        at: &mut Around<'_>,
        id: u32,
        by_hint: bool,
        token: Option<u32>,
    ) -> CmdOutcome {
        if self.objects.groups.len() == limits::GROUPS {
            return Err(CmdStatus::NoRoom);
        }
        if id >= 1 << 20 {
            return Err(CmdStatus::Invalid);
        }
        at.function.charge(QuotaKind::Jetties, 1)?;
        let taken = self.objects.take_id(id, at.function.id);
        let id = taken.ok_or_else(|| {
            at.function.release(QuotaKind::Jetties, 1);
            CmdStatus::Exists
        })?;
        self.objects.groups.insert(id, BTreeSet::new());
        at.exchange.receives.add_group(id, by_hint, token);
        Ok(CmdAnswer::ok(&[u64::from(id)]))
    }

    pub(super) fn destroy_group(&mut self, at: &mut Around<'_>, id: u32) -> CmdOutcome {
        let members = self.objects.groups.get(&id).ok_or(CmdStatus::NotFound)?;
        self.check_id(at, id)?;
        if !members.is_empty() {
            return Err(CmdStatus::InUse);
        }
        at.function.release(QuotaKind::Jetties, 1);
        self.forget_group(at, id);
        Ok(CmdAnswer::ok(&[]))
    }

    /// Checks that a queue or group belongs to the caller's function.
    ///
    /// # Errors
    /// `NotFound`: it does not, as if it did not exist.
    pub(super) fn check_id(&self, at: &Around<'_>, id: u32) -> Result<(), CmdStatus> {
        if self.objects.ids.is_of(id, at.function.id) {
            return Ok(());
        }
        at.function.count_foreign();
        Err(CmdStatus::NotFound)
    }

    pub(super) fn forget_group(&mut self, at: &mut Around<'_>, id: u32) {
        self.objects.groups.remove(&id);
        self.objects.ids.give_back(id);
        at.exchange.receives.remove_group(id);
    }
}

/// The event queue of a number, if the caller's function owns it.
fn find_eq(at: &Around<'_>, eqn: u32) -> Result<Arc<EventQueue>, CmdStatus> {
    let eq = at.core.tables.eqs.get(eqn).and_then(ArcSwapOption::load_full);
    let eq = eq.ok_or(CmdStatus::NotFound)?;
    if eq.owner == at.function.id {
        return Ok(eq);
    }
    at.function.count_foreign();
    Err(CmdStatus::NotFound)
}

/// The living JFC of a number, if the caller's function owns it.
pub(super) fn find_jfc<'a>(at: &Around<'a>, jfcn: u32) -> Result<&'a Arc<DeviceJfc>, CmdStatus> {
    let jfc = at.core.tables.jfcs.get(jfcn).filter(|j| j.lives.is_on());
    let jfc = jfc.ok_or(CmdStatus::NotFound)?;
    if jfc.is_of(at.function.id) {
        return Ok(jfc);
    }
    at.function.count_foreign();
    Err(CmdStatus::NotFound)
}
