//! The state of a controller as messages: for lists, and for the store.

use inc::controller::{CommunicatorState, Controller, GroupPhase, TreePhase};
use inc::slots::Child;

use crate::proto;

/// The state that a restarted controller has to know.
pub(crate) fn image(controller: &Controller) -> Vec<u8> {
    let _ = controller;
    Vec::new()
}

/// Everything that a tenant may see; `None`: everything.
pub(crate) fn snapshot(controller: &Controller, tenant: Option<u32>) -> proto::Snapshot {
    let is_its = |of: u32| tenant.is_none_or(|tenant| tenant == of);
    let tenant_of = |of: &CommunicatorState| {
        let group = controller.groups().find(|group| group.id == of.group);
        group.map_or(0, |group| group.tenant)
    };
    let groups = controller.groups().filter(|group| is_its(group.tenant));
    let groups = groups.map(|group| proto::Group {
        id: group.id.0,
        name: group.name.clone(),
        world_size: u32::from(group.world_size),
        tenant: group.tenant,
        phase: match &group.phase {
            GroupPhase::Creating(_) => "creating".to_owned(),
            GroupPhase::Ready => "ready".to_owned(),
            GroupPhase::Over(why) => format!("over: {why}"),
        },
        members: group
            .members
            .iter()
            .map(|(rank, member)| proto::Member {
                rank: u32::from(rank.0),
                address: member.address.to_string(),
                has_session: member.session.is_some(),
                has_left: member.has_left,
            })
            .collect(),
    });
    let communicators = controller.communicators().map(|of| (of, tenant_of(of)));
    let communicators = communicators.filter(|(_, tenant)| is_its(*tenant));
    let communicators: Vec<_> =
        communicators.map(|(of, tenant)| communicator(of, tenant)).collect();
    let switches = controller.switches().map(|switch| {
        let counts = switch.counts.iter();
        let counts = counts.filter(|(id, _)| communicators.iter().any(|of| of.id == id.0));
        proto::SwitchInfo {
            name: switch.name.clone(),
            incarnation: switch.incarnation,
            has_session: switch.session.is_some(),
            memory: switch.capacity.memory,
            reserved: switch.reserved.values().sum(),
            parts: switch.parts,
            counts: counts
                .map(|(id, (counts, slots_in_use))| proto::CommunicatorCounts {
                    communicator: id.0,
                    counts: Some((*counts).into()),
                    slots_in_use: *slots_in_use,
                })
                .collect(),
        }
    });
    proto::Snapshot { groups: groups.collect(), switches: switches.collect(), communicators }
}

/// How far a communicator is, in one word, and why.
pub(crate) fn phase(phase: &TreePhase) -> String {
    match phase {
        TreePhase::Gathering(_) => "gathering".to_owned(),
        TreePhase::Installing(_) => "installing".to_owned(),
        TreePhase::Ready => "ready".to_owned(),
        TreePhase::Draining { .. } => "draining".to_owned(),
        TreePhase::Aborting { reason, .. } => format!("aborting: {reason}"),
        TreePhase::Over(why) => format!("over: {why}"),
    }
}

fn communicator(of: &CommunicatorState, tenant: u32) -> proto::CommunicatorInfo {
    let tree = of.tree.iter().flatten().map(|switch| proto::TreeSwitch {
        name: switch.name.clone(),
        parent: switch.parent.and_then(|(above, _)| u32::try_from(above).ok()),
        children: switch
            .children
            .iter()
            .map(|child| proto::TreeSwitchChild {
                name: child.name.clone(),
                is_switch: matches!(child.child, Child::Switch(_)),
                ranks: inc::topology::ranks(&child.child)
                    .into_iter()
                    .map(|rank| u32::from(rank.0))
                    .collect(),
            })
            .collect(),
        memory: switch.memory,
    });
    proto::CommunicatorInfo {
        id: of.id.0,
        group: of.group.0,
        ordinal: of.ordinal,
        epoch: u32::from(of.epoch.0),
        phase: phase(&of.phase),
        attributes: Some(of.attributes.into()),
        tree: tree.collect(),
        without: of.without.clone().unwrap_or_default(),
        tenant,
    }
}
