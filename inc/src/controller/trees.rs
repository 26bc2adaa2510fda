//! Communicators: from the call of the first rank to the last one's destroy, in one tree after the other.

use std::collections::{BTreeMap, BTreeSet};

use super::communicator::{
    CommunicatorState, PlacedChild, PlacedSwitch, SwitchHome, TreePhase, new_communicator,
};
use super::members::tree_of_members;
use super::plan::{SeenContradiction, contradiction_text, ranks_text};
use super::{
    COMMUNICATORS_MAX, CallAnswer, CallError, CallId, Controller, ControllerAction, GroupId,
    MemberState, MemberTicket,
};
use crate::control::{
    CommunicatorId, CurrentOperation, EdgeEnds, HostCommand, HostReport, ResumePlan, SwitchCommand,
    SwitchReport, TreeLife, TreePart, TreeStart,
};
use crate::edge::{EdgeAttributes, EdgeEnd};
use crate::slots::{IncTime, To};
use crate::switch::memory_of;
use crate::topology::{PhysicalMap, ShapeError, TreeShape, TreeSupply, ranks};
use crate::wire::{AbortReason, Rank, Seq};

/// Number of the first chunk of a communicator.
const FIRST_CHUNK: Seq = Seq(0);
/// A link over which an edge died is tried again after this time: what was slow may be well again.
const CUT_NS: IncTime = 2_000_000_000;
/// Calls of one rank to destroy one communicator that wait for the other ranks at one time.
const DESTROYS_MAX: usize = 8;

/// Why a communicator gets no tree: a label for metrics, and a text.
#[derive(Debug)]
struct NoTree(&'static str, String);

/// What a communicator's tree may be made of.
struct CommunicatorSupply<'a> {
    controller: &'a Controller,
    communicator: &'a CommunicatorState,
    excluded: BTreeSet<usize>,
}

impl TreeSupply for CommunicatorSupply<'_> {
    fn free(&self, node: usize) -> Option<u64> {
        let name = &self.controller.map.nodes[node].name;
        let switch = self.controller.switches.get(name)?;
        let may = switch.session.is_some()
            && !self.excluded.contains(&node)
            && !self.communicator.refused.contains(name);
        let used: u64 = switch.reserved.values().sum();
        may.then(|| switch.capacity.memory.saturating_sub(used))
    }

    fn has_link(&self, link: usize) -> bool {
        let map = &self.controller.map;
        let [a, b] = map.links[link].ends.map(|end| map.nodes[end].name.clone());
        !self.communicator.cut.contains_key(&link_name(a, b))
    }
}

impl Controller {
    pub(super) fn create(
        &mut self,
        now: IncTime,
        call: CallId,
        ticket: MemberTicket,
        (attributes, end): (EdgeAttributes, EdgeEnd),
        wait_ns: IncTime,
    ) -> Result<(), CallError> {
        let member = self.member(ticket)?;
        attributes.check().map_err(|error| CallError::NotCreated(error.to_string()))?;
        if member.session.is_none() {
            return Err(CallError::NotCreated("the member has no session".to_owned()));
        }
        let ordinal = member.created;
        member.created += 1;
        let (group, rank) = (ticket.group, ticket.rank);
        let of_group = self.communicators.values().filter(|other| other.group == group);
        if of_group.clone().count() >= COMMUNICATORS_MAX {
            let what = "communicators of the group";
            return Err(CallError::TooMany { what, count: COMMUNICATORS_MAX });
        }
        let known = of_group.clone().find(|other| other.ordinal == ordinal).map(|other| other.id);
        let id = known.unwrap_or_else(|| {
            let id = CommunicatorId(self.communicator_next);
            self.communicator_next += 1;
            let phase = TreePhase::Gathering(now.saturating_add(wait_ns));
            self.communicators.insert(id, new_communicator(id, group, ordinal, attributes, phase));
            id
        });
        let Some(of) = self.communicators.get_mut(&id) else { return Ok(()) };
        if let TreePhase::Over(why) = &of.phase {
            return Err(CallError::NotCreated(why.clone()));
        }
        of.creators.insert(rank, call);
        of.ends.insert(rank, end);
        // Its number in the group is taken.
        self.is_changed = true;
        if of.attributes != attributes {
            let others: Vec<_> = of.creators.keys().copied().filter(|r| *r != rank).collect();
            let why = format!(
                "rank {} asked for {attributes:?}, {} for {:?}",
                rank.0,
                ranks_text(&others),
                of.attributes
            );
            self.fail_gathering(id, &why);
            return Ok(());
        }
        let world_size = self.groups.get(&group).map_or(0, |group| usize::from(group.world_size));
        if of.ends.len() == world_size {
            of.phase = TreePhase::Installing(now.saturating_add(self.cfg.install_ns));
            for call in std::mem::take(&mut of.creators).into_values() {
                let answer = Ok(CallAnswer::Created(id));
                self.actions.push_back(ControllerAction::Answer(call, answer));
            }
            self.start_tree(now, id, None);
        }
        Ok(())
    }

    /// A communicator for which not all ranks called is not made.
    fn fail_gathering(&mut self, id: CommunicatorId, why: &str) {
        let Some(of) = self.communicators.get_mut(&id) else { return };
        of.phase = TreePhase::Over(why.to_owned());
        of.destroy_at = None;
        for call in std::mem::take(&mut of.creators).into_values() {
            let answer = Err(CallError::NotCreated(why.to_owned()));
            self.actions.push_back(ControllerAction::Answer(call, answer));
        }
        // A rank may have guessed its number.
        for call in of.destroyed.values_mut().flat_map(std::mem::take) {
            self.actions.push_back(ControllerAction::Answer(call, Ok(CallAnswer::Done)));
        }
    }

    pub(super) fn creator_lost(&mut self, _now: IncTime, call: CallId) {
        let gone = self.communicators.values_mut().find_map(|of| {
            let (&rank, _) = of.creators.iter().find(|(_, creator)| **creator == call)?;
            of.creators.remove(&rank);
            Some((of.id, rank))
        });
        if let Some((id, rank)) = gone {
            self.fail_gathering(id, &format!("rank {} gave up", rank.0));
        }
        for of in self.communicators.values_mut() {
            for waiting in of.destroyed.values_mut() {
                waiting.retain(|waiting| *waiting != call);
            }
        }
    }

    pub(super) fn destroy(
        &mut self,
        now: IncTime,
        call: CallId,
        ticket: MemberTicket,
        id: CommunicatorId,
    ) -> Result<Option<CallAnswer>, CallError> {
        match self.member(ticket) {
            Ok(_) => {}
            // Nothing is left of it.
            Err(CallError::Over { .. }) => return Ok(Some(CallAnswer::Done)),
            Err(error) => return Err(error),
        }
        let destroy_at = now.saturating_add(self.cfg.destroy_ns);
        let of = self.communicators.get_mut(&id).filter(|of| of.group == ticket.group);
        let Some(of) = of else { return Ok(Some(CallAnswer::Done)) };
        let is_over = matches!(of.phase, TreePhase::Over(_));
        let calls = of.destroyed.entry(ticket.rank).or_default();
        if !is_over {
            // A rank that calls again waits with both calls: an early answer would let it go while others need it.
            let count = calls.len();
            if count >= DESTROYS_MAX {
                return Err(CallError::TooMany { what: "calls of a rank to destroy this", count });
            }
            calls.push(call);
            of.destroy_at.get_or_insert(destroy_at);
        }
        self.close_if_destroyed(id);
        Ok(is_over.then_some(CallAnswer::Done))
    }

    /// A rank leaves its group: it has destroyed all of the group's communicators.
    pub(super) fn rank_destroys_all(&mut self, now: IncTime, group: GroupId, rank: Rank) {
        let destroy_at = now.saturating_add(self.cfg.destroy_ns);
        for id in self.of_group(group) {
            let Some(of) = self.communicators.get_mut(&id) else { continue };
            match of.phase {
                TreePhase::Gathering(_) => {
                    self.fail_gathering(id, &format!("rank {} destroyed the group", rank.0));
                    continue;
                }
                TreePhase::Over(_) => {}
                TreePhase::Installing(_)
                | TreePhase::Ready
                | TreePhase::Draining { .. }
                | TreePhase::Aborting { .. } => {
                    of.destroy_at.get_or_insert(destroy_at);
                }
            }
            of.destroyed.entry(rank).or_default();
            self.close_if_destroyed(id);
        }
    }

    fn close_if_destroyed(&mut self, id: CommunicatorId) {
        let Some(of) = self.communicators.get(&id) else { return };
        let world_size =
            self.groups.get(&of.group).map_or(0, |group| usize::from(group.world_size));
        if of.destroyed.len() >= world_size {
            self.close(id);
        }
    }

    /// Nothing of a communicator remains.
    pub(super) fn close(&mut self, id: CommunicatorId) {
        self.release_tree(id, &BTreeSet::new());
        let Some(of) = self.communicators.remove(&id) else { return };
        for switch in self.switches.values_mut() {
            switch.counts.remove(&id);
        }
        // Ranks that guessed the number may have destroyed it while others waited for it to be made.
        for call in of.creators.into_values() {
            let answer = Err(CallError::NotCreated("all ranks destroyed it".to_owned()));
            self.actions.push_back(ControllerAction::Answer(call, answer));
        }
        for call in of.destroyed.into_values().flatten() {
            self.actions.push_back(ControllerAction::Answer(call, Ok(CallAnswer::Done)));
        }
        self.is_changed = true;
    }

    /// Gives back what a tree has reserved; switches that are not in the next tree remove their parts.
    fn release_tree(&mut self, id: CommunicatorId, next: &BTreeSet<SwitchHome>) {
        let Some(of) = self.communicators.get_mut(&id) else { return };
        let Some(tree) = of.tree.take() else { return };
        let group = of.group;
        let tenant = self.groups.get(&group).map_or(0, |group| group.tenant);
        for placed in tree {
            if let SwitchHome::Node(name) = &placed.home
                && let Some(switch) = self.switches.get_mut(name)
            {
                let reserved = switch.reserved.entry(tenant).or_default();
                *reserved = reserved.saturating_sub(placed.memory);
                switch.parts = switch.parts.saturating_sub(1);
                if *reserved == 0 {
                    switch.reserved.remove(&tenant);
                }
            }
            if !next.contains(&placed.home) {
                self.send_part(group, &placed.home, SwitchCommand::Remove(id));
            }
        }
    }

    /// Computes a tree for a new epoch, reserves memory and installs it. Where no tree of switches can be had, or it was
    /// found before why there is none, members reduce in their own programs.
    fn start_tree(&mut self, now: IncTime, id: CommunicatorId, found: Option<NoTree>) {
        self.is_changed = true;
        // What the last tree has reserved is free for the next one.
        let before = self.communicators.get(&id).and_then(|of| of.tree.clone());
        let before: BTreeSet<_> = before.into_iter().flatten().map(|at| at.home).collect();
        self.release_tree(id, &before);
        let placed = found.map_or_else(|| self.place(id), Err);
        let Some(of) = self.communicators.get(&id) else { return };
        let (had_none, tenant) = (of.without.is_some(), self.tenant_of(of.group));
        let (tree, without) = match placed {
            Ok(tree) => (Some(tree), None),
            Err(NoTree(label, text)) => {
                if !had_none {
                    *self.counts.fallbacks.entry((tenant, label)).or_default() += 1;
                }
                (self.place_in_members(id), Some(text))
            }
        };
        let Some(of) = self.communicators.get_mut(&id) else { return };
        (of.tree, of.without) = (tree.clone(), without);
        let (group, life, attributes) = (of.group, of.life(), of.attributes);
        let mut homes = BTreeSet::new();
        for placed in tree.into_iter().flatten() {
            if let SwitchHome::Node(name) = &placed.home
                && let Some(switch) = self.switches.get_mut(name)
            {
                *switch.reserved.entry(tenant).or_default() += placed.memory;
                switch.parts += 1;
            }
            let children = placed.children.into_iter();
            let part = TreePart {
                attributes,
                tenant,
                children: children.map(|child| (child.child, child.address)).collect(),
                parent: placed.parent.map(|(_, address)| address),
            };
            self.send_part(group, &placed.home, SwitchCommand::Install(life, part));
            homes.insert(placed.home);
        }
        for home in before.difference(&homes) {
            self.send_part(group, home, SwitchCommand::Remove(id));
        }
        self.advance(now, id);
    }

    /// A tree of the members' own programs; `None`: the communicator wants none.
    fn place_in_members(&self, id: CommunicatorId) -> Option<Vec<PlacedSwitch>> {
        let of = self.communicators.get(&id).filter(|of| of.attributes.fallback)?;
        let members = &self.groups.get(&of.group)?.members;
        let host = |(&rank, member): (_, &MemberState)| (rank, self.map.host_at(member.address));
        let hosts: Vec<_> = members.iter().map(host).collect();
        tree_of_members(&self.map, &hosts, &of.ends, &of.attributes)
    }

    /// A tree in which each switch has room for its part.
    fn place(&self, id: CommunicatorId) -> Result<Vec<PlacedSwitch>, NoTree> {
        let none = |text: String| NoTree("topology", text);
        let Some(of) = self.communicators.get(&id) else {
            return Err(none("the communicator is over".to_owned()));
        };
        let Some(group) = self.groups.get(&of.group) else {
            return Err(none("its group is over".to_owned()));
        };
        let mut members = Vec::new();
        for (&rank, member) in &group.members {
            let address = member.address;
            let host = self.map.host_at(address).ok_or(ShapeError::UnknownHost { rank, address });
            members.push((rank, host.map_err(|error| none(error.to_string()))?));
        }
        let mut supply =
            CommunicatorSupply { controller: self, communicator: of, excluded: BTreeSet::new() };
        let mut full: Option<NoTree> = None;
        loop {
            let shape = match self.map.tree(&members, &supply) {
                Ok(shape) => shape,
                Err(error) => return Err(full.unwrap_or_else(|| none(error.to_string()))),
            };
            let over = shape.switches.iter().find_map(|switch| {
                let needed = memory_of(&of.attributes, switch.children.len());
                Some((switch.node, self.lacks(switch.node, group.tenant, needed)?))
            });
            let Some((node, why)) = over else {
                return Ok(placed(&self.map, &shape, &of.attributes));
            };
            supply.excluded.insert(node);
            // The last one is the one that no tree goes around.
            full = Some(NoTree("quota", why));
        }
    }

    /// Why a switch has no room for a part; `None`: it has.
    fn lacks(&self, node: usize, tenant: u32, needed: u64) -> Option<String> {
        let name = &self.map.nodes[node].name;
        let switch = self.switches.get(name)?;
        let used: u64 = switch.reserved.values().sum();
        let (memory, most) = (switch.capacity.memory, switch.capacity.communicators);
        if used.saturating_add(needed) > memory {
            return Some(format!(
                "switch {name} has {} of {memory} bytes of slots free, {needed} are needed",
                memory.saturating_sub(used)
            ));
        }
        if switch.parts >= most {
            return Some(format!("switch {name} has {most} communicators, as many as it may have"));
        }
        let quota = self.cfg.quotas.get(&tenant).copied().or(self.cfg.quota)?;
        let used = switch.reserved.get(&tenant).copied().unwrap_or(0);
        (used.saturating_add(needed) > quota).then(|| {
            format!(
                "tenant {tenant} uses {used} of its {quota} bytes in switch {name}, \
                 {needed} more are needed"
            )
        })
    }

    /// Starts the epoch if all parts are installed and all reports are there.
    fn advance(&mut self, now: IncTime, id: CommunicatorId) {
        let Some(of) = self.communicators.get(&id) else { return };
        if !of.is_installed() {
            return;
        }
        let plan = match &of.phase {
            TreePhase::Installing(_) => Ok(ResumePlan { first: FIRST_CHUNK, owners: Vec::new() }),
            TreePhase::Draining { reports, .. } if reports.len() == of.ends.len() => {
                let reports: Vec<_> =
                    reports.iter().map(|(&rank, report)| (rank, report.clone())).collect();
                ResumePlan::of(of.attributes.window, &reports)
            }
            TreePhase::Draining { .. }
            | TreePhase::Gathering(_)
            | TreePhase::Ready
            | TreePhase::Aborting { .. }
            | TreePhase::Over(_) => return,
        };
        match plan {
            Ok(plan) => self.start(id, &plan),
            Err(error) => self.abort_now(now, id, AbortReason::Protocol, &error.to_string()),
        }
    }

    fn start(&mut self, id: CommunicatorId, plan: &ResumePlan) {
        self.is_changed = true;
        let Some(of) = self.communicators.get_mut(&id) else { return };
        of.phase = TreePhase::Ready;
        let (of, life) = (of.clone(), of.life());
        for (at, switch) in of.tree.iter().flatten().enumerate() {
            let ends = of.tree.as_ref().and_then(|tree| of.other_ends(tree, at));
            if let Some(ends) = ends {
                let start = SwitchCommand::Start(life, plan.first, ends);
                self.send_part(of.group, &switch.home, start);
            }
        }
        for &rank in of.ends.keys() {
            let parent = of.leaf(rank).and_then(|(at, child)| {
                of.tree.as_ref()?[at].ends.as_ref()?.children.get(child).copied()
            });
            let start = TreeStart { parent, without: of.without.clone(), plan: plan.clone() };
            self.send_host(of.group, rank, HostCommand::Start(life, start));
        }
    }

    /// The epoch is over: hosts report, and another tree is installed.
    fn drain(&mut self, now: IncTime, id: CommunicatorId) {
        let (drain_ns, install_ns) = (self.cfg.drain_ns, self.cfg.install_ns);
        let Some(of) = self.communicators.get_mut(&id) else { return };
        let install_by = now.saturating_add(install_ns);
        let group = of.group;
        match &mut of.phase {
            // Hosts do not know the communicator's first tree yet.
            TreePhase::Installing(_) => {
                of.epoch = of.epoch.next();
                return self.start_tree(now, id, None);
            }
            TreePhase::Ready => {
                let deadline = now.saturating_add(drain_ns);
                let reports = BTreeMap::new();
                of.phase = TreePhase::Draining { deadline, install_by, reports };
            }
            TreePhase::Draining { reports, install_by: by, .. } => {
                reports.clear();
                *by = install_by;
            }
            TreePhase::Gathering(_) | TreePhase::Aborting { .. } | TreePhase::Over(_) => return,
        }
        of.epoch = of.epoch.next();
        self.counts.drains += 1;
        let (life, ranks): (_, Vec<_>) = (of.life(), of.ends.keys().copied().collect());
        for rank in ranks {
            self.send_host(group, rank, HostCommand::Prepare(life));
        }
        self.start_tree(now, id, None);
    }

    /// Goes on without this tree: what is installed is removed. After a tree of switches, members reduce themselves; after
    /// theirs, operations wait.
    fn give_up_tree(&mut self, now: IncTime, id: CommunicatorId, why: NoTree) {
        let until = now.saturating_add(self.cfg.install_ns);
        let Some(of) = self.communicators.get_mut(&id) else { return };
        if let Some(without) = &mut of.without {
            *without = format!("{without}; {}", why.1);
            self.release_tree(id, &BTreeSet::new());
            return self.advance(now, id);
        }
        match &mut of.phase {
            TreePhase::Installing(by) | TreePhase::Draining { install_by: by, .. } => *by = until,
            TreePhase::Gathering(_)
            | TreePhase::Ready
            | TreePhase::Aborting { .. }
            | TreePhase::Over(_) => {}
        }
        self.start_tree(now, id, Some(why));
    }

    pub(super) fn switch_lost(&mut self, now: IncTime, name: &str) {
        let home = SwitchHome::Node(name.to_owned());
        let with = self.communicators.values().filter(|of| of.placed(&home).is_some());
        let with: Vec<_> = with.map(|of| of.id).collect();
        for id in with {
            self.drain(now, id);
        }
    }

    /// A switch is here: what it does not have is installed again, and what it should not have is removed.
    pub(super) fn switch_here(&mut self, now: IncTime, name: &str, lives: &[TreeLife]) {
        let home = SwitchHome::Node(name.to_owned());
        let mut lost = Vec::new();
        for of in self.communicators.values_mut() {
            of.refused.remove(name);
            let has = lives.contains(&of.life());
            if !has {
                of.cut.retain(|ends, _| !ends.iter().any(|end| end == name));
            }
            if let Some(tree) = &of.tree
                && let Some(placed) = tree.iter().find(|placed| placed.home == home)
                && !(has && placed.ends.is_some())
            {
                lost.push(of.id);
            }
        }
        for life in lives {
            let of = self.communicators.get(&life.communicator);
            if of.is_none_or(|of| of.placed(&home).is_none()) {
                self.send_switch(name, SwitchCommand::Remove(life.communicator));
            }
        }
        for id in lost {
            self.drain(now, id);
        }
        self.is_retry_due = true;
    }

    pub(super) fn host_here(&mut self, now: IncTime, ticket: MemberTicket, lives: &[TreeLife]) {
        let (group, rank) = (ticket.group, ticket.rank);
        for life in lives {
            let of = self.communicators.get(&life.communicator).filter(|of| of.group == group);
            let why = match of.map(|of| (&of.phase, of.life())) {
                None => "the controller does not know the communicator".to_owned(),
                Some((TreePhase::Over(why), _)) => why.clone(),
                Some((TreePhase::Ready, current)) => {
                    if current != *life {
                        self.drain(now, life.communicator);
                    }
                    continue;
                }
                Some((TreePhase::Draining { .. }, current)) => {
                    self.send_host(group, rank, HostCommand::Prepare(current));
                    continue;
                }
                Some(_) => continue,
            };
            let abort = HostCommand::Abort(life.communicator, AbortReason::ShutDown, why);
            self.send_host(group, rank, abort);
        }
    }

    pub(super) fn put_topology(&mut self, now: IncTime, map: PhysicalMap) {
        self.map = map;
        (self.is_changed, self.is_map_put) = (true, true);
        let is_known = |name: &String| self.map.node_named(name).is_some();
        let gone: Vec<_> = self.switches.keys().filter(|name| !is_known(name)).cloned().collect();
        for name in gone {
            if let Some(session) = self.switches.get_mut(&name).and_then(|of| of.session.take()) {
                self.end_session(session, "the topology does not have the switch any more");
            }
            self.switch_lost(now, &name);
        }
        self.is_retry_due = true;
    }

    pub(super) fn switch_report(&mut self, now: IncTime, home: &SwitchHome, report: SwitchReport) {
        match report {
            SwitchReport::Installed(life, ends) => self.installed(now, home, life, ends),
            SwitchReport::Refused(life, error) => {
                let why = format!("switch {home} refused its part: {error}");
                self.refused(now, home, life, NoTree("refused", why));
            }
            SwitchReport::EdgeDead(life, to) => {
                let of = self.current(life);
                let tree = of.as_ref().and_then(|of| of.tree.as_ref());
                let place = of.as_ref().and_then(|of| of.placed(home));
                let Some((tree, at)) = tree.zip(place) else { return };
                let other = match to {
                    To::Child(child) => tree[at].children.get(child).map(|of| of.name.clone()),
                    To::Parent => tree[at].parent.map(|(above, _)| tree[above].home.to_string()),
                };
                if let Some(other) = other {
                    self.edge_dead(now, life, link_name(home.to_string(), other));
                }
            }
            // A switch speaks for those trees alone that it has a part of.
            SwitchReport::Aborted(life, reason) => {
                if self.current(life).is_some_and(|of| of.placed(home).is_some()) {
                    self.aborted(now, life, reason, None, None);
                }
            }
            SwitchReport::Contradiction(life, seen) => {
                let of = self.current(life);
                let tree = of.as_ref().and_then(|of| of.tree.as_ref());
                let place = of.as_ref().and_then(|of| of.placed(home));
                let Some((tree, at)) = tree.zip(place) else { return };
                let child = tree[at].children.get(seen.child).map(|of| ranks(&of.child));
                let seen = SeenContradiction {
                    ranks: child.unwrap_or_default(),
                    first: seen.first,
                    second: seen.second,
                };
                self.aborted(now, life, AbortReason::Contradiction, Some(seen), None);
            }
            SwitchReport::Counts(id, counts) => {
                if self.communicators.contains_key(&id)
                    && let SwitchHome::Node(name) = home
                    && let Some(switch) = self.switches.get_mut(name)
                {
                    switch.counts.insert(id, *counts);
                }
            }
            SwitchReport::Strays(strays) => {
                if let SwitchHome::Node(name) = home
                    && let Some(switch) = self.switches.get_mut(name)
                {
                    switch.strays = strays;
                }
            }
        }
    }

    pub(super) fn host_report(
        &mut self,
        now: IncTime,
        group: GroupId,
        rank: Rank,
        report: HostReport,
    ) {
        let life = match &report {
            HostReport::Chunks(life, ..)
            | HostReport::EdgeDead(life)
            | HostReport::Aborted(life, ..) => *life,
            HostReport::Switch(report) => {
                let of = report.communicator().and_then(|of| self.communicators.get(&of));
                let Some(of) = of.filter(|of| of.group == group) else { return };
                of.life()
            }
        };
        if self.current(life).is_none_or(|of| of.group != group) {
            return;
        }
        match report {
            HostReport::Chunks(_, chunks, end) => {
                let Some(of) = self.communicators.get_mut(&life.communicator) else { return };
                if let TreePhase::Draining { reports, .. } = &mut of.phase {
                    // What no plan can be made of is not kept: it may be long.
                    if let Err(error) = chunks.check(of.attributes.window, rank) {
                        let (id, why) = (life.communicator, error.to_string());
                        return self.abort_now(now, id, AbortReason::Protocol, &why);
                    }
                    reports.insert(rank, chunks);
                    of.ends.insert(rank, end);
                    self.advance(now, life.communicator);
                }
            }
            HostReport::EdgeDead(_) => {
                let of = self.current(life);
                let leaf = of.as_ref().and_then(|of| {
                    let (at, child) = of.leaf(rank)?;
                    let switch = &of.tree.as_ref()?[at];
                    Some(link_name(switch.home.to_string(), switch.children[child].name.clone()))
                });
                if let Some(link) = leaf {
                    self.edge_dead(now, life, link);
                }
            }
            HostReport::Aborted(_, reason, operation) => {
                self.aborted(now, life, reason, None, Some((rank, operation)));
            }
            HostReport::Switch(report) => {
                self.switch_report(now, &SwitchHome::Member(rank), report);
            }
        }
    }

    /// A communicator in this life; reports about other lives come too late.
    fn current(&self, life: TreeLife) -> Option<&CommunicatorState> {
        self.communicators.get(&life.communicator).filter(|of| of.epoch == life.epoch)
    }

    fn installed(&mut self, now: IncTime, home: &SwitchHome, life: TreeLife, ends: EdgeEnds) {
        let Some(place) = self.current(life).and_then(|of| of.placed(home)) else { return };
        let of = self.communicators.get_mut(&life.communicator);
        let Some(placed) = of.and_then(|of| of.tree.as_mut()?.get_mut(place)) else { return };
        let fits = ends.children.len() == placed.children.len()
            && ends.parent.is_some() == placed.parent.is_some();
        if !fits {
            let why = format!("switch {home} has other edges than its part of the tree");
            return self.refused(now, home, life, NoTree("refused", why));
        }
        // The ends that are in use stay as they are.
        if placed.ends.is_none() {
            placed.ends = Some(ends);
            self.advance(now, life.communicator);
        }
    }

    fn refused(&mut self, now: IncTime, home: &SwitchHome, life: TreeLife, why: NoTree) {
        if self.current(life).is_none_or(|of| of.placed(home).is_none() || of.is_installed()) {
            return;
        }
        let Some(of) = self.communicators.get_mut(&life.communicator) else { return };
        let SwitchHome::Node(name) = home else {
            return self.give_up_tree(now, life.communicator, why);
        };
        of.refused.insert(name.clone());
        if matches!(of.phase, TreePhase::Installing(_)) && self.place(life.communicator).is_ok() {
            return self.drain(now, life.communicator);
        }
        self.give_up_tree(now, life.communicator, why);
    }

    fn edge_dead(&mut self, now: IncTime, life: TreeLife, link: [String; 2]) {
        let Some(of) = self.communicators.get_mut(&life.communicator) else { return };
        if of.phase == TreePhase::Ready {
            of.cut.insert(link, now.saturating_add(CUT_NS));
            self.drain(now, life.communicator);
        }
    }

    /// A switch or a host was aborted by another one; hosts report what they were doing.
    fn aborted(
        &mut self,
        now: IncTime,
        life: TreeLife,
        why: AbortReason,
        saw: Option<SeenContradiction>,
        did: Option<(Rank, Option<CurrentOperation>)>,
    ) {
        let until = now.saturating_add(self.cfg.abort_ns);
        if self.current(life).is_none() {
            return;
        }
        let Some(of) = self.communicators.get_mut(&life.communicator) else { return };
        if of.phase == TreePhase::Ready {
            let operations = BTreeMap::new();
            of.phase = TreePhase::Aborting { deadline: until, reason: why, operations, seen: None };
        }
        let world_size = of.ends.len();
        let TreePhase::Aborting { operations, seen, reason, .. } = &mut of.phase else { return };
        if saw.is_some() && seen.is_none() {
            (*seen, *reason) = (saw, why);
        }
        operations.extend(did);
        if operations.len() == world_size {
            self.finish_abort(now, life.communicator);
        }
    }

    fn finish_abort(&mut self, now: IncTime, id: CommunicatorId) {
        let Some(of) = self.communicators.get(&id) else { return };
        let TreePhase::Aborting { reason, operations, seen, .. } = &of.phase else { return };
        let reason = *reason;
        let world_size = u16::try_from(of.ends.len()).unwrap_or(u16::MAX);
        let text = if reason == AbortReason::Contradiction {
            contradiction_text(world_size, operations, seen.as_ref())
        } else {
            let idle = operations.iter().filter(|(_, did)| did.is_none());
            let idle: Vec<_> = idle.map(|(&rank, _)| rank).collect();
            if idle.is_empty() || idle.len() == operations.len() {
                reason.to_string()
            } else {
                format!("{reason}; {} had called no operation", ranks_text(&idle))
            }
        };
        self.abort_now(now, id, reason, &text);
    }

    /// Ends a communicator: all hosts and switches learn the reason, and nothing stays in the switches.
    pub(super) fn abort_now(
        &mut self,
        _now: IncTime,
        id: CommunicatorId,
        reason: AbortReason,
        why: &str,
    ) {
        let Some(of) = self.communicators.get_mut(&id) else { return };
        if matches!(of.phase, TreePhase::Gathering(_)) {
            return self.fail_gathering(id, why);
        }
        if matches!(of.phase, TreePhase::Over(_)) {
            return;
        }
        of.phase = TreePhase::Over(why.to_owned());
        of.destroy_at = None;
        let waiting: Vec<_> = of.destroyed.values_mut().flat_map(std::mem::take).collect();
        let (group, ranks): (_, Vec<_>) = (of.group, of.ends.keys().copied().collect());
        let homes: Vec<_> = of.tree.iter().flatten().map(|at| at.home.clone()).collect();
        for rank in ranks {
            self.send_host(group, rank, HostCommand::Abort(id, reason, why.to_owned()));
        }
        for home in homes {
            self.send_part(group, &home, SwitchCommand::Abort(id, reason));
        }
        for call in waiting {
            self.actions.push_back(ControllerAction::Answer(call, Ok(CallAnswer::Done)));
        }
        self.release_tree(id, &BTreeSet::new());
        let label = format!("{reason:?}").to_lowercase();
        let tenant = self.tenant_of(group);
        *self.counts.aborts.entry((tenant, label)).or_default() += 1;
        self.is_changed = true;
    }

    pub(super) fn communicators_on_time(&mut self, now: IncTime) {
        let due =
            self.communicators.values().filter(|of| of.deadline().is_some_and(|at| at <= now));
        let due: Vec<_> = due.map(|of| of.id).collect();
        for id in due {
            self.communicator_due(now, id);
        }
        for of in self.communicators.values_mut() {
            let count = of.cut.len();
            of.cut.retain(|_, until| *until > now);
            self.is_retry_due |= of.cut.len() < count;
        }
        if std::mem::take(&mut self.is_retry_due) {
            let all: Vec<_> = self.communicators.keys().copied().collect();
            for id in all {
                let Some(of) = self.communicators.get(&id).filter(|of| of.without.is_some()) else {
                    continue;
                };
                let may_fall_back = of.tree.is_none() && of.attributes.fallback;
                match of.phase {
                    TreePhase::Ready if may_fall_back || self.place(id).is_ok() => {
                        self.drain(now, id);
                    }
                    // It may get a tree when it has resumed.
                    TreePhase::Draining { .. } => self.is_retry_due = true,
                    TreePhase::Ready
                    | TreePhase::Gathering(_)
                    | TreePhase::Installing(_)
                    | TreePhase::Aborting { .. }
                    | TreePhase::Over(_) => {}
                }
            }
        }
    }

    fn communicator_due(&mut self, now: IncTime, id: CommunicatorId) {
        let Some(of) = self.communicators.get(&id) else { return };
        let world = (0..self.groups.get(&of.group).map_or(0, |group| group.world_size)).map(Rank);
        if of.destroy_at.is_some_and(|at| at <= now) {
            let (did, did_not): (Vec<_>, Vec<_>) =
                world.partition(|rank| of.destroyed.contains_key(rank));
            let why = format!(
                "{} destroyed the communicator, {} did not",
                ranks_text(&did),
                ranks_text(&did_not)
            );
            return self.abort_now(now, id, AbortReason::ShutDown, &why);
        }
        match &of.phase {
            TreePhase::Gathering(_) => {
                let missing: Vec<_> =
                    world.filter(|rank| !of.creators.contains_key(rank)).collect();
                let error = CallError::Missing {
                    missing: ranks_text(&missing),
                    what: format!("communicator {} of its group", of.ordinal),
                };
                self.fail_gathering(id, &error.to_string());
            }
            TreePhase::Draining { deadline, reports, .. } if *deadline <= now => {
                let missing: Vec<_> = world.filter(|rank| !reports.contains_key(rank)).collect();
                let members = self.groups.get(&of.group).map(|group| &group.members);
                let is_absent = |rank: &&Rank| {
                    let member = members.and_then(|members| members.get(*rank));
                    member.is_some_and(|member| member.session.is_none())
                };
                // After a restart of the controller one may be gone without the end of a session.
                if let Some(&rank) = missing.iter().find(is_absent) {
                    return self.member_lost(now, of.group, rank, "it opened no session");
                }
                let why = if missing.is_empty() {
                    "the next tree was not installed in time".to_owned()
                } else {
                    format!("{} did not say in time what they have", ranks_text(&missing))
                };
                self.abort_now(now, id, AbortReason::EdgeDead, &why);
            }
            TreePhase::Installing(_) | TreePhase::Draining { .. } => {
                let late = of.tree.iter().flatten().filter(|at| at.ends.is_none());
                let late: Vec<_> = late.map(|at| at.home.to_string()).collect();
                let why = format!("switch {} did not install its part in time", late.join(", "));
                self.give_up_tree(now, id, NoTree("deadline", why));
            }
            TreePhase::Aborting { .. } => self.finish_abort(now, id),
            TreePhase::Ready | TreePhase::Over(_) => {}
        }
    }
}

/// The names of a link's ends, in one order.
fn link_name(a: String, b: String) -> [String; 2] {
    if a <= b { [a, b] } else { [b, a] }
}

fn placed(map: &PhysicalMap, shape: &TreeShape, attributes: &EdgeAttributes) -> Vec<PlacedSwitch> {
    let below = |switch: usize, link: usize| {
        let node = shape.switches[switch].node;
        let other = map.links[link].ends.into_iter().find(|&end| end != node);
        other.map_or_else(String::new, |other| map.nodes[other].name.clone())
    };
    let switches = shape.switches.iter().enumerate().map(|(at, switch)| PlacedSwitch {
        home: SwitchHome::Node(map.nodes[switch.node].name.clone()),
        parent: switch.parent,
        children: switch
            .children
            .iter()
            .map(|child| PlacedChild {
                child: child.child.clone(),
                switch: child.switch,
                name: below(at, child.link),
                address: child.address,
            })
            .collect(),
        ends: None,
        memory: memory_of(attributes, switch.children.len()),
    });
    switches.collect()
}
