//! JFR: receive queues, alone or shared by jetties.
//!
//! *Gives*: what a receive queue is made from, its attributes.

use std::sync::Arc;

use urma_core::Jfr;

use crate::{
    abi::*,
    call::{Answer, refuse},
    convert::{self, Opt},
    udma::{
        family::{self, Family, Members},
        jfc::with_jfc,
        kind::{self, Ctx, JfrOwn},
    },
};

impl Family for kind::Jfr {
    type Core = Jfr;
    type More = ();
    type Cfg = urma_jfr_cfg_t;
    type Attr = urma_jfr_attr_t;
    const OPTIONS: &'static [&'static [Opt]] = &[convert::JFR];
    const MEMBERS: Members<urma_jfr_t, urma_jfr_cfg_t> =
        family::members!(urma_jfr_t, jfr_id, jfr_cfg, urma_jfr_opt, urma_jfr_id);

    fn wanted_id(cfg: &Self::Cfg) -> u32 {
        cfg.id
    }

    fn make(own: &Arc<Ctx>, cfg: &Self::Cfg) -> Answer<(Jfr, ())> {
        let made = with_jfc(cfg.jfc, |jfc| Ok(own.core.create_jfr(&convert::jfr(cfg)?, jfc)?))?;
        Ok((made, ()))
    }

    fn modify(own: &mut JfrOwn, attr: &urma_jfr_attr_t) -> Answer {
        if attr.mask & (JFR_RX_THRESHOLD | JFR_STATE) == 0 {
            return Err(refuse!(
                EINVAL,
                "attr->mask is {:#x}; JFR_RX_THRESHOLD (1) and JFR_STATE (2) are bits of it",
                attr.mask
            ));
        }
        if attr.mask & JFR_RX_THRESHOLD != 0 {
            own.core.set_rx_threshold(attr.rx_threshold)?;
        }
        if attr.mask & JFR_STATE != 0 {
            own.core.modify(convert::jfr_state(attr.state)?)?;
        }
        Ok(())
    }

    fn query(own: &JfrOwn) -> Answer<urma_jfr_attr_t> {
        let status = own.core.query()?;
        let (rx_threshold, state) = (status.rx_threshold, convert::jfr_state_out(status.state));
        Ok(urma_jfr_attr_t { mask: 0, rx_threshold, state })
    }
}
