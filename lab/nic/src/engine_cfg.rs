//! Which packet engine is modelled.
//!
//! *Owns*: scheme, sizes and clock, their text. *Takes*: text, the path MTU. *Gives*: a checked configuration.
//! *Must not*: run a model.

use std::str::FromStr;

use urma_splice::{EngineConfig, EngineConfigError, EngineScheme};

/// Design, sizes and clock of the packet engine that is modelled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PacketEngineCfg {
    /// The design that is modelled.
    pub scheme: EngineScheme,
    /// Bytes of a beat: 32, 64, 128 or 256.
    pub beat_bytes: u32,
    /// Beats of data memory, 1 to 65536; with scheme `fifo` at least an MTU.
    pub data_beats: u32,
    /// Entries of the sideband FIFO, 1 to 65536.
    pub sideband_entries: u32,
    /// Cycles between two messages in a bank's control, 0 to 1024.
    pub handover: u32,
    /// Clock in MHz, 1 to 10000.
    pub mhz: u32,
}

impl Default for PacketEngineCfg {
    /// Scheme `fifo` with beats of 64 bytes, 8 KiB, 8 entries, and a clock of 250 MHz.
    fn default() -> Self {
        Self::of(&EngineConfig::new(EngineScheme::Fifo))
    }
}

/// Field, value and rule of a packet engine that is not possible.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{part}: want {wanted}")]
pub struct PacketEngineCfgError {
    /// Field and value, as `data_beats=63`.
    pub part: String,
    /// The rule that the value breaks.
    pub wanted: String,
}

impl PacketEngineCfg {
    const fn of(config: &EngineConfig) -> Self {
        Self {
            scheme: config.scheme,
            beat_bytes: config.beat_bytes,
            data_beats: config.data_beats,
            sideband_entries: config.sideband_entries,
            handover: config.handover,
            mhz: MHZ,
        }
    }

    /// The engine of the model for packets of at most `mtu` bytes.
    ///
    /// # Errors
    /// The field, its value and the rule that it breaks.
    pub fn engine(&self, mtu: u32) -> Result<EngineConfig, PacketEngineCfgError> {
        let wrong = |field: &str, value: u64, wanted: String| {
            Err(PacketEngineCfgError { part: format!("{field}={value}"), wanted })
        };
        if !(1..=MHZ_MAX).contains(&self.mhz) {
            return wrong("mhz", self.mhz.into(), format!("1 to {MHZ_MAX}"));
        }
        if !BEAT_BYTES.contains(&self.beat_bytes) {
            return wrong("beat_bytes", self.beat_bytes.into(), "32, 64, 128 or 256".to_owned());
        }
        let config = EngineConfig {
            beat_bytes: self.beat_bytes,
            data_beats: self.data_beats,
            sideband_entries: self.sideband_entries,
            handover: self.handover,
            // An MTU of 0 is below the least one, and refused.
            mtu_log2_max: u8::try_from(mtu.max(1).ilog2()).unwrap_or(u8::MAX),
            ..EngineConfig::new(self.scheme)
        };
        match config.check() {
            Ok(()) => Ok(config),
            Err(error) => Err(error.into()),
        }
    }
}

impl From<EngineConfigError> for PacketEngineCfgError {
    fn from(EngineConfigError { field, value, rule }: EngineConfigError) -> Self {
        Self { part: format!("{field}={value}"), wanted: rule }
    }
}

impl FromStr for PacketEngineCfg {
    type Err = PacketEngineCfgError;

    /// Reads `default`, or fields such as `scheme=pingpong,data_beats=2048`; the others have their default.
    fn from_str(text: &str) -> Result<Self, PacketEngineCfgError> {
        let mut cfg = Self::default();
        for part in text.split(',').map(str::trim).filter(|part| *part != "default") {
            let wrong = |wanted: &str| PacketEngineCfgError {
                part: part.to_owned(),
                wanted: wanted.to_owned(),
            };
            let (field, value) = part.split_once('=').ok_or_else(|| wrong(FIELDS))?;
            let place = match field {
                "scheme" => {
                    let scheme = EngineScheme::parse(value);
                    cfg.scheme = scheme.ok_or_else(|| wrong("fifo, pingpong or single"))?;
                    continue;
                }
                "beat_bytes" => &mut cfg.beat_bytes,
                "data_beats" => &mut cfg.data_beats,
                "sideband_entries" => &mut cfg.sideband_entries,
                "handover" => &mut cfg.handover,
                "mhz" => &mut cfg.mhz,
                _ => return Err(wrong(FIELDS)),
            };
            *place = value.parse().map_err(|_| wrong("a whole number below 2^32"))?;
        }
        Ok(cfg)
    }
}

const FIELDS: &str = "default, or field=value with commas, of the fields scheme, beat_bytes, data_beats, sideband_entries, \
                      handover and mhz";
/// Clock in MHz when nothing is said, a design value.
const MHZ: u32 = 250;
const MHZ_MAX: u32 = 10_000;
/// Widths of the hardware.
const BEAT_BYTES: [u32; 4] = [32, 64, 128, 256];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_is_read() {
        let text =
            "scheme=pingpong, beat_bytes=128,data_beats=1024,sideband_entries=4,handover=2,mhz=500";
        let cfg: PacketEngineCfg = text.parse().unwrap();
        let (beat_bytes, data_beats, sideband_entries, handover, mhz) = (128, 1024, 4, 2, 500);
        let scheme = EngineScheme::PingPong;
        let all =
            PacketEngineCfg { scheme, beat_bytes, data_beats, sideband_entries, handover, mhz };
        assert_eq!(cfg, all);
        assert_eq!("default".parse(), Ok(PacketEngineCfg::default()));
    }

    #[test]
    fn what_could_stop_or_is_no_engine_is_refused_with_its_rule() {
        for (text, mtu, words) in [
            (
                "data_beats=63",
                4096,
                "data_beats=63: want data_beats * beat_bytes >= 4096 bytes, the MTU",
            ),
            ("data_beats=127", 8192, "data_beats=127: want data_beats * beat_bytes >= 8192"),
            ("data_beats=0", 4096, "data_beats=0: want 1 to 65536"),
            ("sideband_entries=65537", 4096, "sideband_entries=65537: want 1 to 65536"),
            ("handover=2000", 4096, "handover=2000: want at most 1024"),
            ("beat_bytes=48", 4096, "beat_bytes=48: want 32, 64, 128 or 256"),
            ("beat_bytes=16", 4096, "beat_bytes=16: want 32, 64, 128 or 256"),
            ("mhz=0", 4096, "mhz=0: want 1 to 10000"),
            ("scheme=fifo2", 4096, "scheme=fifo2: want fifo, pingpong or single"),
            ("width=64", 4096, "width=64: want default, or field=value"),
            ("fifo", 4096, "fifo: want default, or field=value"),
            ("mhz=fast", 4096, "mhz=fast: want a whole number"),
            ("", 4096, ": want default, or field=value"),
        ] {
            let cfg = text.parse::<PacketEngineCfg>();
            let error = cfg.and_then(|cfg| cfg.engine(mtu)).unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
        assert!("data_beats=64".parse::<PacketEngineCfg>().unwrap().engine(4096).is_ok());
        // Banks hold whole messages, so their rule is another one.
        let banks = "scheme=single,data_beats=8".parse::<PacketEngineCfg>().unwrap();
        assert!(banks.engine(4096).is_ok());
    }
}
