//! Planted faults of loss recovery: a sender that repeats nothing, a receiver that denies what it lacks.
//!
//! - owns: decorators around the halves of a strategy. takes: the configuration. gives: a TP that checks must
//!   catch. must not: run without the feature `planted-faults`.

use udma_abi::Nanos;
use urma_recovery::{
    AckNews, Arrival, DataMark, KnittingPool, LossError, LossRecord, RecordTraits, Retransmission,
    SendLedger,
};

use super::tp::{Tp, TpCfg};
use crate::fault::Faults;

/// A TP with the faults that are planted.
#[cold]
pub(crate) fn tp(cfg: TpCfg, faults: Faults) -> Tp {
    let recovery = cfg.strategy.recovery(cfg.adamap);
    let mut record = recovery.record(cfg.local_tpn.value());
    if faults.holes_denied() {
        record = Box::new(Denying(record));
    }
    let sender: Box<dyn Retransmission> =
        if faults.loss_ignored() { Box::new(Deaf) } else { recovery.retransmission() };
    let mut tp = Tp::with_strategy(cfg, sender, record);
    tp.plant(faults);
    tp
}

/// A sender that repeats nothing.
#[derive(Debug)]
struct Deaf;

impl Retransmission for Deaf {
    fn on_ack(&mut self, _news: &AckNews, _ledger: &mut SendLedger) -> bool {
        false
    }

    fn on_timeout(&mut self, _ledger: &mut SendLedger) {}
}

/// Says that it has everything before the last packet that came.
#[derive(Debug)]
struct Denying(Box<dyn LossRecord>);

impl LossRecord for Denying {
    fn record(
        &mut self,
        pool: &mut KnittingPool,
        now: Nanos,
        seq: u64,
        mark: DataMark,
    ) -> Result<Arrival, LossError> {
        self.0.record(pool, now, seq, mark)
    }

    fn first_missing(&self) -> u64 {
        self.0.first_missing()
    }

    fn sack(&self, pool: &KnittingPool, words: &mut [u64]) -> Result<usize, LossError> {
        let count = self.0.sack(pool, words)?;
        let mut is_before_last = false;
        for word in words[..count].iter_mut().rev().filter(|word| **word != 0) {
            *word = if is_before_last { u64::MAX } else { u64::MAX >> word.leading_zeros() };
            is_before_last = true;
        }
        Ok(count)
    }

    fn traits(&self) -> RecordTraits {
        self.0.traits()
    }

    fn release(&mut self, pool: &mut KnittingPool) {
        self.0.release(pool);
    }
}
