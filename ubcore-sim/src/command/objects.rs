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
use crate::context::{event::EventQueue, jfc::DeviceJfc, model::LookedUp, tables::Tables};
use crate::limits;

impl Commands {
    pub(super) fn create_eq(
        &mut self,
        tables: &Tables,
        base: u64,
        depth_log2: u8,
        vector: u16,
    ) -> CmdOutcome {
        if vector == 0 || vector >= limits::VECTORS || depth_log2 > limits::EQ_DEPTH_LOG2 {
            return Err(CmdStatus::Invalid);
        }
        let depth = 1u64 << depth_log2;
        let ring = tables.window(base, depth * EQE_LEN as u64, DmaAccess::Both);
        let ring = ring.filter(|_| base.is_multiple_of(8)).ok_or(CmdStatus::Invalid)?;
        let eqn = self.objects.eqs.take_lowest().ok_or(CmdStatus::NoRoom)?;
        let interrupt = Arc::clone(&tables.ports.interrupt);
        let eq = Arc::new(EventQueue::new(ring, depth, vector, interrupt));
        let slot = tables.eqs.get_or_make(eqn, ArcSwapOption::empty).ok_or(CmdStatus::NoRoom)?;
        slot.store(Some(eq));
        Ok(CmdAnswer::ok(&[u64::from(eqn)]))
    }

    pub(super) fn destroy_eq(&mut self, tables: &Tables, eqn: u32) -> CmdOutcome {
        let eq = find_eq(tables, eqn)?;
        if eq.users.load(Ordering::SeqCst) != 0 {
            return Err(CmdStatus::InUse);
        }
        if let Some(slot) = tables.eqs.get(eqn) {
            slot.store(None);
        }
        self.objects.eqs.give_back(eqn);
        Ok(CmdAnswer::ok(&[]))
    }

    pub(super) fn create_jfc(
        &mut self,
        tables: &Tables,
        (base, depth_log2): (u64, u8),
        inline: bool,
        eqn: u32,
    ) -> CmdOutcome {
        let eq = if eqn == NONE { None } else { Some(find_eq(tables, eqn)?) };
        if depth_log2 > limits::JFC_DEPTH_LOG2 || !base.is_multiple_of(64) {
            return Err(CmdStatus::Invalid);
        }
        let depth = 1u64 << depth_log2;
        let window = tables.window(base, depth * CQE_LEN as u64, DmaAccess::Both);
        let window = window.ok_or(CmdStatus::Invalid)?;
        let ring = Blocks::new(window, u32::from(depth_log2)).map_err(|_| CmdStatus::Invalid)?;
        let jfcn = self.objects.jfcs.take().ok_or(CmdStatus::NoRoom)?;
        let make = || Arc::new(DeviceJfc::new(jfcn));
        let jfc = tables.jfcs.get_or_make(jfcn, make).ok_or(CmdStatus::NoRoom)?;
        jfc.open(ring, inline, eq);
        Ok(CmdAnswer::ok(&[u64::from(jfcn)]))
    }

    pub(super) fn modify_jfc(
        &mut self,
        tables: &Tables,
        jfcn: u32,
        count: u16,
        period_us: u16,
    ) -> CmdOutcome {
        let jfc = find_jfc(tables, jfcn)?;
        jfc.set_moderation(u32::from(count), u32::from(period_us));
        self.moderated.remove(&jfcn);
        if period_us != 0 {
            self.moderated.insert(jfcn, None);
        }
        tables.moderation.store(!self.moderated.is_empty(), Ordering::SeqCst);
        Ok(CmdAnswer::ok(&[]))
    }

    pub(super) fn destroy_jfc(&mut self, tables: &Tables, jfcn: u32) -> CmdOutcome {
        let jfc = find_jfc(tables, jfcn)?;
        if jfc.users.load(Ordering::SeqCst) != 0 {
            return Err(CmdStatus::InUse);
        }
        jfc.close();
        tables.forget(LookedUp::Jfc(jfcn));
        self.moderated.remove(&jfcn);
        self.objects.jfcs.give_back(jfcn);
        Ok(CmdAnswer::ok(&[]))
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
        let id = self.objects.take_id(id).ok_or(CmdStatus::Exists)?;
        self.objects.groups.insert(id, BTreeSet::new());
        at.exchange.receives.add_group(id, by_hint, token);
        Ok(CmdAnswer::ok(&[u64::from(id)]))
    }

    pub(super) fn destroy_group(&mut self, at: &mut Around<'_>, id: u32) -> CmdOutcome {
        let members = self.objects.groups.get(&id).ok_or(CmdStatus::NotFound)?;
        if !members.is_empty() {
            return Err(CmdStatus::InUse);
        }
        self.objects.groups.remove(&id);
        self.objects.ids.give_back(id);
        at.exchange.receives.remove_group(id);
        Ok(CmdAnswer::ok(&[]))
    }
}

fn find_eq(tables: &Tables, eqn: u32) -> Result<Arc<EventQueue>, CmdStatus> {
    tables.eqs.get(eqn).and_then(ArcSwapOption::load_full).ok_or(CmdStatus::NotFound)
}

/// The living JFC of a number.
pub(super) fn find_jfc(tables: &Tables, jfcn: u32) -> Result<&Arc<DeviceJfc>, CmdStatus> {
    let jfc = tables.jfcs.get(jfcn).filter(|j| j.lives.is_on());
    jfc.ok_or(CmdStatus::NotFound)
}
