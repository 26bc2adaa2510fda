//! Models of a NIC's insides for a device: its context cache and its packet engine, each if its mode is not off.
//!
//! *Owns*: which models there are. *Takes*: what the device says. *Gives*: times, counters. *Must not*: model anything.

mod contexts;
mod packet_engine;

use std::sync::Arc;

use udma_abi::Nanos;

use crate::cfg::DeviceCfg;
use crate::nic::{LookedUp, Lookup, LookupSink, ModelMode, NicModel, NicScope};
use contexts::ContextModel;
use packet_engine::PacketEngine;

/// The models of a device.
#[derive(Debug)]
pub(crate) struct Models {
    contexts: Option<ContextModel>,
    engine: Option<PacketEngine>,
}

/// The models that a device is configured with; `None`: none.
pub(crate) fn of(cfg: &DeviceCfg) -> Option<Arc<dyn NicModel>> {
    let contexts = ContextModel::new(cfg.contexts);
    let engine = PacketEngine::new(cfg.packet_engine, &cfg.engine, cfg.mtu);
    let is_any = contexts.is_some() || engine.is_some();
    is_any.then(|| Arc::new(Models { contexts, engine }) as Arc<dyn NicModel>)
}

impl NicModel for Models {
    fn scope(&self) -> NicScope {
        NicScope {
            contexts: self.contexts.as_ref().map_or(ModelMode::Off, ContextModel::mode),
            messages: self.engine.as_ref().map_or(ModelMode::Off, PacketEngine::mode),
            prefetched: self.contexts.as_ref().map_or(0, ContextModel::prefetched),
        }
    }

    fn on_lookup(&self, now: Nanos, lookup: Lookup, contexts: &[LookedUp]) -> Nanos {
        self.contexts.as_ref().map_or(0, |model| model.on_lookup(now, lookup, contexts))
    }

    fn on_message(&self, now: Nanos, pieces: &[(u64, u32)]) -> Vec<(u64, Nanos)> {
        self.engine.as_ref().map_or_else(Vec::new, |engine| engine.on_message(now, pieces))
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let contexts = self.contexts.iter().flat_map(ContextModel::counters);
        contexts.chain(self.engine.iter().flat_map(PacketEngine::counters)).collect()
    }

    fn record(&self, sink: Arc<dyn LookupSink>) -> bool {
        self.contexts.as_ref().map(|model| model.record(sink)).is_some()
    }
}
