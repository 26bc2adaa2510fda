//! A controller that goes on where another one ended.
//!
//! Switches and hosts that have sessions again say which trees they have. What still stands stays as it is; what was in
//! change begins one more epoch. What has no session after the grace period is lost.

use super::{CommunicatorState, Controller, GroupPhase, GroupState, SwitchCapacity, SwitchState};
use crate::port::StrayCounts;
use crate::slots::IncTime;

use super::communicator::{SwitchHome, TreePhase};
use std::collections::BTreeMap;

/// What is left of another controller.
#[derive(Debug, Clone, Default)]
pub struct ControllerRemains {
    /// The numbers that the next group and communicator get.
    pub next_numbers: (u64, u64),
    /// All groups that were complete.
    pub groups: Vec<GroupState>,
    /// All communicators of these groups.
    pub communicators: Vec<CommunicatorState>,
}

impl Controller {
    /// Goes on with what is left of another controller. To be called before anything else.
    pub fn restore(&mut self, now: IncTime, remains: ControllerRemains) {
        (self.group_next, self.communicator_next) = remains.next_numbers;
        let until = now.saturating_add(self.cfg.grace_ns);
        self.restored_until = Some(now.saturating_add(self.cfg.switch_grace_ns));
        for mut group in remains.groups {
            for member in group.members.values_mut() {
                (member.call, member.session, member.absent_until) = (None, None, until);
            }
            self.groups.insert(group.id, group);
        }
        for mut of in remains.communicators {
            let tenant = self.groups.get(&of.group).map_or(0, |group| group.tenant);
            of.phase = match of.phase {
                TreePhase::Ready => TreePhase::Ready,
                TreePhase::Over(why) => TreePhase::Over(why),
                // Its callers have an error, and it keeps its place among the communicators of the group.
                TreePhase::Gathering(_) => {
                    TreePhase::Over("the controller was started again".to_owned())
                }
                TreePhase::Installing(_)
                | TreePhase::Draining { .. }
                | TreePhase::Aborting { .. } => {
                    of.tree = None;
                    of.epoch = of.epoch.next();
                    of.without = Some("the controller was started again".to_owned());
                    let reports = BTreeMap::new();
                    TreePhase::Draining { deadline: until, install_by: until, reports }
                }
            };
            of.destroy_at = (!of.destroyed.is_empty()).then_some(until);
            for placed in of.tree.iter().flatten() {
                let SwitchHome::Node(name) = &placed.home else { continue };
                let capacity = SwitchCapacity { memory: 0, communicators: 0 };
                let switch = self.switches.entry(name.clone());
                let switch = switch.or_insert_with(|| SwitchState {
                    name: name.clone(),
                    incarnation: 0,
                    capacity,
                    session: None,
                    reserved: BTreeMap::new(),
                    parts: 0,
                    counts: BTreeMap::new(),
                    strays: StrayCounts::default(),
                });
                *switch.reserved.entry(tenant).or_default() += placed.memory;
                switch.parts += 1;
            }
            self.communicators.insert(of.id, of);
        }
        (self.is_changed, self.is_retry_due) = (true, true);
    }

    /// What another controller would need to go on.
    #[must_use]
    pub fn remains(&self) -> ControllerRemains {
        let is_complete = |group: &&GroupState| !matches!(group.phase, GroupPhase::Creating(_));
        ControllerRemains {
            next_numbers: (self.group_next, self.communicator_next),
            groups: self.groups.values().filter(is_complete).cloned().collect(),
            communicators: self.communicators.values().cloned().collect(),
        }
    }

    /// Switches that did not come back after a restart are lost.
    pub(super) fn restored_on_time(&mut self, now: IncTime) {
        if self.restored_until.is_none_or(|until| now < until) {
            return;
        }
        self.restored_until = None;
        let absent = self.switches.values().filter(|switch| switch.session.is_none());
        let absent: Vec<_> = absent.map(|switch| switch.name.clone()).collect();
        for name in absent {
            self.switch_lost(now, &name);
        }
    }
}
