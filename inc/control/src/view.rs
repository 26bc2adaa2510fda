//! The state of a controller, as lists and metrics show it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use inc::controller::{
    CommunicatorState, Controller, GroupPhase, SwitchHome, SwitchState, TreePhase,
};
use inc::slots::{Child, SwitchCounts};

use crate::proto;

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
        name: match &switch.home {
            SwitchHome::Node(name) => name.clone(),
            SwitchHome::Member(rank) => format!("program of rank {}", rank.0),
        },
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

/// The state of a controller in the format of Prometheus.
pub(crate) fn metrics(controller: &Controller) -> String {
    let mut text = String::new();
    let mut family = |name: &str, kind: &str, rows: Vec<(String, u64)>| {
        let _ = writeln!(text, "# TYPE {name} {kind}");
        for (labels, value) in rows {
            let _ = writeln!(text, "{name}{{{labels}}} {value}");
        }
    };
    let counts = controller.counts();
    let by_reason = |(reason, count): (&str, &u64)| (format!("reason=\"{reason}\""), *count);
    let aborts = counts.aborts.iter().map(|(reason, count)| by_reason((reason, count)));
    family("inc_aborts_total", "counter", aborts.collect());
    let fallbacks = counts.fallbacks.iter().map(|(reason, count)| by_reason((reason, count)));
    family("inc_fallbacks_total", "counter", fallbacks.collect());
    family("inc_drains_total", "counter", vec![(String::new(), counts.drains)]);
    family("inc_refused_joins_total", "counter", vec![(String::new(), counts.refused_joins)]);
    family("inc_silences_total", "counter", vec![(String::new(), counts.silences)]);
    let mut groups = BTreeMap::<&str, u64>::new();
    for group in controller.groups() {
        *groups.entry(group_phase(&group.phase)).or_default() += 1;
    }
    let by_phase = |(phase, count): (&str, u64)| (format!("phase=\"{phase}\""), count);
    family("inc_groups", "gauge", groups.into_iter().map(by_phase).collect());
    let labels = |of: &CommunicatorState| {
        let group = controller.groups().find(|group| group.id == of.group);
        let tenant = group.map_or(0, |group| group.tenant);
        format!("tenant=\"{tenant}\",communicator=\"{}\"", of.id.0)
    };
    let all: Vec<_> = controller.communicators().collect();
    let epochs = all.iter().map(|of| (labels(of), u64::from(of.epoch.0)));
    family("inc_epoch", "gauge", epochs.collect());
    let is_of_switches = |of: &CommunicatorState| of.tree.is_some() && of.without.is_none();
    let trees = all.iter().map(|of| (labels(of), u64::from(is_of_switches(of))));
    family("inc_has_tree", "gauge", trees.collect());
    let switch = |of: &SwitchState| format!("switch=\"{}\"", escaped(&of.name));
    let switches: Vec<_> = controller.switches().collect();
    let memory = switches.iter().map(|of| (switch(of), of.capacity.memory));
    family("inc_switch_memory_bytes", "gauge", memory.collect());
    let reserved = switches.iter().map(|of| (switch(of), of.reserved.values().sum()));
    family("inc_switch_reserved_bytes", "gauge", reserved.collect());
    let present = switches.iter().map(|of| (switch(of), u64::from(of.session.is_some())));
    family("inc_switch_session", "gauge", present.collect());
    type Counter = (&'static str, fn(&SwitchCounts) -> u64);
    const COUNTERS: [Counter; 7] = [
        ("inc_contributions_total", |of| of.contributions),
        ("inc_duplicates_total", |of| of.duplicates),
        ("inc_stale_total", |of| of.stale),
        ("inc_violations_total", |of| of.violations),
        ("inc_other_epochs_total", |of| of.other_epochs),
        ("inc_repeats_total", |of| of.repeats),
        ("inc_switch_aborts_total", |of| of.aborts),
    ];
    let rows = |value: &dyn Fn(&(SwitchCounts, u64)) -> u64| {
        let of = switches.iter().flat_map(|of| of.counts.iter().map(move |counts| (of, counts)));
        let rows = of.filter_map(|(of, (id, counts))| {
            let communicator = all.iter().find(|all| all.id == *id)?;
            Some((format!("{},{}", labels(communicator), switch(of)), value(counts)))
        });
        rows.collect::<Vec<_>>()
    };
    for (name, value) in COUNTERS {
        family(name, "counter", rows(&|(counts, _)| value(counts)));
    }
    family("inc_slots_in_use", "gauge", rows(&|(_, in_use)| *in_use));
    text
}

fn group_phase(phase: &GroupPhase) -> &'static str {
    match phase {
        GroupPhase::Creating(_) => "creating",
        GroupPhase::Ready => "ready",
        GroupPhase::Over(_) => "over",
    }
}

/// A value of a label.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
