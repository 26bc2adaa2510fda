//! Models of a NIC's insides for the software device: its context cache and its packet engine.
//!
//! *Owns*: which models a device has, and their settings. *Takes*: what the device says, by its trait [`NicModel`].
//! *Gives*: times, counters. *Must not*: decide a right, an order or a byte: the device does.
#![doc = ""]
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]

mod contexts;
mod engine_cfg;
mod packet_engine;

use std::{io, sync::Arc};

use ubcore_sim::nic::{LookedUp, Lookup, LookupSink, ModelMode, NicModel, NicObject, NicScope};
use ubcore_sim::node::{ConfigError, Setting};
use ubcore_sim::sim::ModelSource;
use ubcore_sim::{Node, NodeCfg, NodeError};
use udma_abi::Nanos;

use contexts::ContextModel;
pub use engine_cfg::{PacketEngineCfg, PacketEngineCfgError};
use packet_engine::PacketEngine;

/// Opens a node with the models that its settings name.
///
/// # Errors
/// Those of [`Node::open`]; a setting of a model that is not possible.
pub fn open(mut cfg: NodeCfg) -> Result<Arc<Node>, NodeError> {
    let model = model_of(&std::mem::take(&mut cfg.models), cfg.mtu)?;
    Node::open_with(cfg, model)
}

/// The models that these settings of a node name, for packets of at most `mtu` bytes; `None`: none.
///
/// # Errors
/// A value that is not possible, or not on real clocks.
pub fn model_of(settings: &[Setting], mtu: u32) -> Result<Option<Arc<dyn NicModel>>, ConfigError> {
    let cfg = NicCfg::of(settings)?;
    cfg.model(mtu).map_err(|PacketEngineCfgError { part, wanted }| {
        match settings.iter().find(|setting| setting.variable == ENGINE_CFG) {
            Some(setting) => setting.refuse(part, wanted),
            None => ConfigError { name: ENGINE_CFG, value: part, wanted: wanted.into(), at: None },
        }
    })
}

/// Which models a device has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NicCfg {
    /// The context cache. With it no request takes the express lane.
    pub contexts: ModelMode,
    /// The packet engine, for messages in packets.
    pub packet_engine: ModelMode,
    /// Which engine that is.
    pub engine: PacketEngineCfg,
}

impl NicCfg {
    /// What the settings of a node name.
    ///
    /// # Errors
    /// [`ConfigError`] naming the setting.
    pub fn of(settings: &[Setting]) -> Result<Self, ConfigError> {
        let mut cfg = Self::default();
        for setting in settings {
            match setting.variable {
                CONTEXT_CACHE => cfg.contexts = mode_of(setting, CONTEXTS_WANTED)?,
                PACKET_ENGINE => cfg.packet_engine = mode_of(setting, ENGINE_WANTED)?,
                ENGINE_CFG => {
                    let wrong =
                        |PacketEngineCfgError { part, wanted }| setting.refuse(part, wanted);
                    cfg.engine = setting.value.parse().map_err(wrong)?;
                }
                _ => return Err(setting.refuse(setting.value.clone(), "a setting of a model")),
            }
        }
        Ok(cfg)
    }

    /// New models for packets of at most `mtu` bytes; `None`: all are off.
    ///
    /// # Errors
    /// A packet engine that is not possible.
    pub fn model(&self, mtu: u32) -> Result<Option<Arc<dyn NicModel>>, PacketEngineCfgError> {
        let contexts = ContextModel::new(self.contexts);
        let engine = PacketEngine::new(self.packet_engine, &self.engine, mtu)?;
        let is_any = contexts.is_some() || engine.is_some();
        Ok(is_any.then(|| Arc::new(Models { contexts, engine }) as Arc<dyn NicModel>))
    }
}

impl ModelSource for NicCfg {
    fn model(&self, mtu: u32) -> io::Result<Option<Arc<dyn NicModel>>> {
        Self::model(self, mtu).map_err(io::Error::other)
    }
}

/// The models of a device.
#[derive(Debug)]
struct Models {
    contexts: Option<ContextModel>,
    engine: Option<PacketEngine>,
}

impl NicModel for Models {
    fn scope(&self) -> NicScope {
        NicScope {
            contexts: self.contexts.as_ref().map_or(ModelMode::Off, ContextModel::mode),
            messages: self.engine.as_ref().map_or(ModelMode::Off, PacketEngine::mode),
            prefetched: self.contexts.as_ref().map_or(0, ContextModel::prefetched),
        }
    }

    fn on_created(&self, function: u32, object: NicObject<'_>) {
        if let Some(contexts) = &self.contexts {
            contexts.on_created(function, object);
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

/// The mode that a setting of a node on real clocks has.
fn mode_of(setting: &Setting, wanted: &'static str) -> Result<ModelMode, ConfigError> {
    match setting.value.as_str() {
        "off" => Ok(ModelMode::Off),
        "count" => Ok(ModelMode::Count),
        _ => Err(setting.refuse(setting.value.clone(), wanted)),
    }
}

const CONTEXT_CACHE: &str = "URMA_CONTEXT_CACHE";
const PACKET_ENGINE: &str = "URMA_PACKET_ENGINE";
const ENGINE_CFG: &str = "URMA_PACKET_ENGINE_CFG";
const CONTEXTS_WANTED: &str = "off or count (not time: this node runs on real clocks, on which the model's latencies cannot be kept)";
const ENGINE_WANTED: &str = "off or count (not time: this node sends by real sockets, at the time of the system and not of the model)";

#[cfg(test)]
mod tests {
    use super::*;

    /// A node with these settings of models.
    fn with(settings: &[(&str, &str)]) -> NodeCfg {
        let value = |name: &str| settings.iter().find(|(known, _)| *known == name);
        NodeCfg::default()
            .with_overrides(|name| value(name).map(|(_, value)| value.into()))
            .unwrap()
    }

    fn parsed(settings: &[(&str, &str)]) -> NicCfg {
        NicCfg::of(&with(settings).models).unwrap()
    }

    fn refused(settings: &[(&str, &str)], mtu: u32) -> String {
        model_of(&with(settings).models, mtu).unwrap_err().to_string()
    }

    #[test]
    fn settings_say_which_models_there_are() {
        assert_eq!(parsed(&[]), NicCfg::default());
        let (contexts, packet_engine) = (ModelMode::Count, ModelMode::Count);
        assert_eq!(parsed(&[(CONTEXT_CACHE, "count")]), NicCfg { contexts, ..NicCfg::default() });
        let engine = parsed(&[(PACKET_ENGINE, "count"), (ENGINE_CFG, "data_beats=256,mhz=500")]);
        assert_eq!((engine.packet_engine, engine.contexts), (packet_engine, ModelMode::Off));
        assert_eq!((engine.engine.data_beats, engine.engine.mhz), (256, 500));
        let all = parsed(&[(CONTEXT_CACHE, "count"), (PACKET_ENGINE, "count")]);
        assert_eq!(all, NicCfg { contexts, packet_engine, ..NicCfg::default() });
    }

    #[test]
    fn every_default_is_no_model() {
        let defaults = [(CONTEXT_CACHE, "off"), (PACKET_ENGINE, "off"), (ENGINE_CFG, "default")];
        assert_eq!(with(&defaults), NodeCfg::default());
        assert!(model_of(&[], 8192).unwrap().is_none());
        let unused = with(&[(ENGINE_CFG, "data_beats=256")]).models;
        assert!(model_of(&unused, 8192).unwrap().is_none(), "no model uses it");
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        for (name, value, words) in [
            (CONTEXT_CACHE, "on", "off or count"),
            (CONTEXT_CACHE, "time", "not time: this node runs on real clocks"),
            (PACKET_ENGINE, "1", "off or count"),
            (PACKET_ENGINE, "time", "not time: this node sends by real sockets"),
            (ENGINE_CFG, "data_beats=many", "data_beats=many"),
            (ENGINE_CFG, "depth=64", "depth=64"),
        ] {
            let error = refused(&[(name, value)], 8192);
            assert!(error.contains(name) && error.contains(words), "{error}");
        }
    }

    #[test]
    fn an_engine_that_could_stop_is_refused_with_the_rule() {
        let settings = [(PACKET_ENGINE, "count"), (ENGINE_CFG, "data_beats=127")];
        let error = refused(&settings, 8192);
        assert!(error.contains("data_beats=127") && error.contains(">= 8192 bytes"), "{error}");
        let error = open(NodeCfg { mtu: 8192, ..with(&settings) }).unwrap_err().to_string();
        assert!(error.contains("data_beats=127"), "{error}");
        let models = with(&settings).models;
        assert!(model_of(&models, 4096).unwrap().is_some());
        assert!(model_of(&models[1..], 8192).unwrap().is_none(), "it is off");
    }

    #[test]
    fn a_model_is_told_what_its_modes_ask_for() {
        let of = |contexts, packet_engine| {
            let cfg = NicCfg { contexts, packet_engine, ..NicCfg::default() };
            cfg.model(4096).unwrap().map(|model| model.scope())
        };
        use ModelMode::{Count, Off, Time};
        assert_eq!(of(Off, Off), None);
        let scope = |contexts, messages, prefetched| NicScope { contexts, messages, prefetched };
        assert_eq!(of(Count, Off), Some(scope(Count, Off, 0)));
        assert_eq!(of(Off, Time), Some(scope(Off, Time, 0)));
        assert_eq!(of(Time, Count), Some(scope(Time, Count, 27)));
    }
}
