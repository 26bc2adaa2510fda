//! Jetty group: one name for several jetties; the target's device picks one for each message.
//!
//! *Owns*: the handle, and the rule that a group outlives its members.

use std::sync::Arc;

use crate::{
    Context, JettyId, OrderType, Refused, RemoteJetty, Status, TargetKind, TokenPolicy, TpType,
    TransportMode,
    context::ContextShared,
    ops::HintPolicy,
    rules::{self, refuse},
};

/// What a group shall be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupCfg {
    /// The wanted id, 20 bits; 0 = any.
    pub id: u32,
    /// How a member is picked.
    pub policy: HintPolicy,
    /// What senders must show.
    pub token: TokenPolicy,
}

/// Several jetties under one name.
#[derive(Debug)]
pub struct JettyGroup {
    shared: Arc<GroupShared>,
}

/// What the members hold on to. The last holder takes the group down.
#[derive(Debug)]
pub(crate) struct GroupShared {
    id: JettyId,
    token: TokenPolicy,
    home: Arc<ContextShared>,
    is_live: bool,
}

impl Drop for GroupShared {
    fn drop(&mut self) {
        if !self.is_live {
            return;
        }
        if let Err(status) = self.home.ops.delete_group(self.id.id) {
            tracing::warn!(target: "urma", %status, id = self.id.id, "group not deleted");
        }
    }
}

impl Context {
    /// A jetty group; jetties join when they are created.
    ///
    /// # Errors
    /// `Unsupported`: the device has no groups, or the token policy is not built. `Exists`: the
    /// requested id is in use. `Invalid`: it has more than 20 bits.
    pub fn create_group(&self, cfg: &GroupCfg) -> Result<JettyGroup, Status> {
        let home = Arc::clone(self.shared());
        rules::group(&home.attr, cfg.id)?;
        let id = home.ops.create_group(cfg.id, cfg.policy, cfg.token.token()?)?;
        let id = JettyId { eid: home.eid, uasid: home.uasid, id };
        Ok(JettyGroup {
            shared: Arc::new(GroupShared { id, token: cfg.token, home, is_live: true }),
        })
    }
}

impl JettyGroup {
    /// Its name on the network.
    #[must_use]
    pub fn id(&self) -> JettyId {
        self.shared.id
    }

    /// How many jetties are members.
    #[must_use]
    pub fn members(&self) -> usize {
        Arc::strong_count(&self.shared) - 1
    }

    /// What a peer needs to send here, with the token. Groups are RM.
    #[must_use]
    pub fn remote(&self) -> RemoteJetty {
        RemoteJetty {
            id: self.shared.id,
            kind: TargetKind::Group,
            mode: TransportMode::Rm,
            order: OrderType::Oi,
            policy: self.shared.token,
            tp: TpType::Rtp,
        }
    }

    /// Deletes.
    ///
    /// # Errors
    /// `Again`: it has members. A status of the device; the group stays.
    pub fn delete(self) -> Result<(), Refused<Self>> {
        let mut shared = match Arc::try_unwrap(self.shared) {
            Ok(shared) => shared,
            Err(shared) => {
                let status = refuse(
                    Status::Again,
                    format_args!("the group has members; delete those jetties first"),
                );
                return Err(Refused::new(Self { shared }, status));
            }
        };
        match shared.home.ops.delete_group(shared.id.id) {
            Ok(()) => {
                shared.is_live = false;
                Ok(())
            }
            Err(status) => Err(Refused::new(Self { shared: Arc::new(shared) }, status)),
        }
    }

    pub(crate) fn ensure_room(&self) -> Result<(), Status> {
        let max = self.shared.home.attr.caps.max_jetty_in_grp;
        if usize::try_from(max).is_ok_and(|max| self.members() >= max) {
            return Err(refuse(
                Status::NoMemory,
                format_args!("the group has {max} members, as many as it can have"),
            ));
        }
        Ok(())
    }

    pub(crate) fn home(&self) -> &Arc<ContextShared> {
        &self.shared.home
    }

    pub(crate) fn shared(&self) -> &Arc<GroupShared> {
        &self.shared
    }
}
