//! The state of a controller, as lists and metrics show it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use inc::control::PartCounts;
use inc::controller::{
    CommunicatorState, Controller, GroupPhase, SwitchHome, SwitchState, TreePhase,
};
use inc::port::EdgeTotals;
use inc::slots::{Child, ChunkTimes};

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
                .map(|(id, counts)| proto::CommunicatorCounts {
                    communicator: id.0,
                    counts: Some(counts.into()),
                    slots_in_use: counts.slots_in_use,
                })
                .collect(),
            strays: Some(switch.strays.into()),
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
#[expect(clippy::too_many_lines, reason = "one row of each metric")]
pub(crate) fn metrics(controller: &Controller) -> String {
    let mut text = String::new();
    let mut family = |name: &str, kind: &str, rows: Vec<(String, u64)>| {
        let _ = writeln!(text, "# TYPE {name} {kind}");
        for (labels, value) in rows {
            let _ = writeln!(text, "{name}{{{labels}}} {value}");
        }
    };
    let counts = controller.counts();
    let by_reason = |tenant: u32, reason: &str| format!("tenant=\"{tenant}\",reason=\"{reason}\"");
    let aborts = counts.aborts.iter();
    let aborts = aborts.map(|((tenant, reason), &count)| (by_reason(*tenant, reason), count));
    family("inc_aborts_total", "counter", aborts.collect());
    let fallbacks = counts.fallbacks.iter();
    let fallbacks = fallbacks.map(|((tenant, reason), &count)| (by_reason(*tenant, reason), count));
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
    let parts = || {
        let of = switches.iter().flat_map(|of| of.counts.iter().map(move |counts| (of, counts)));
        of.filter_map(|(of, (id, counts))| {
            let communicator = all.iter().find(|all| all.id == *id)?;
            Some((format!("{},{}", labels(communicator), switch(of)), counts))
        })
    };
    for (name, value) in COUNTERS {
        family(name, "counter", parts().map(|(labels, of)| (labels, value(of))).collect());
    }
    let mut drops: Vec<_> = parts()
        .flat_map(|(labels, of)| {
            let reasons = EdgeTotals::REASONS.into_iter().zip(of.edges.drops);
            reasons
                .chain([("epoch", of.slots.other_epochs)])
                .map(move |(reason, count)| (format!("{labels},reason=\"{reason}\""), count))
        })
        .collect();
    // Of no communicator: what no edge is known for.
    drops.extend(switches.iter().flat_map(|of| {
        let reasons = EdgeTotals::REASONS.into_iter().zip(of.strays.refused);
        reasons
            .chain([("qpn", of.strays.unknown_qpns)])
            .map(|(reason, count)| (format!("{},reason=\"{reason}\"", switch(of)), count))
    }));
    family("inc_drops_total", "counter", drops);
    let in_use = parts().map(|(labels, of)| (labels, of.slots_in_use));
    family("inc_slots_in_use", "gauge", in_use.collect());
    let _ = writeln!(text, "# TYPE inc_chunk_seconds histogram");
    for (labels, of) in parts() {
        write_chunk_times(&mut text, &labels, &of.slots.chunks);
    }
    text
}

/// A counter of a communicator at a switch.
type PartCounter = (&'static str, fn(&PartCounts) -> u64);
const COUNTERS: [PartCounter; 8] = [
    ("inc_contributions_total", |of| of.slots.contributions),
    ("inc_duplicates_total", |of| of.slots.duplicates),
    ("inc_stale_total", |of| of.slots.stale),
    ("inc_violations_total", |of| of.slots.violations),
    ("inc_repeats_total", |of| of.slots.repeats),
    ("inc_switch_aborts_total", |of| of.slots.aborts),
    ("inc_bytes_total", |of| of.slots.bytes),
    ("inc_naks_total", |of| of.edges.naks),
];

/// A histogram: each row has what the rows before have, too.
fn write_chunk_times(text: &mut String, labels: &str, of: &ChunkTimes) {
    let mut sum = 0_u64;
    let bounds = ChunkTimes::BOUNDS_NS.into_iter().map(seconds).chain(["+Inf".to_owned()]);
    for (bound, count) in bounds.zip(of.counts) {
        sum = sum.saturating_add(count);
        let _ = writeln!(text, "inc_chunk_seconds_bucket{{{labels},le=\"{bound}\"}} {sum}");
    }
    let _ = writeln!(text, "inc_chunk_seconds_sum{{{labels}}} {}", seconds(of.sum_ns));
    let _ = writeln!(text, "inc_chunk_seconds_count{{{labels}}} {sum}");
}

/// Nanoseconds as seconds, exactly.
fn seconds(ns: u64) -> String {
    format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
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
