//! Trees that begin, that are replaced when something dies, and communicators that end.

use super::*;

#[test]
fn a_tree_is_started_when_all_switches_have_installed_it() {
    let mut world = World::ready(ControllerCfg::new());
    let id = world.created();
    assert_eq!(world.tree(id), ["a", "left", "right"]);
    let part = |commands: Vec<SwitchCommand>| match &commands[..] {
        [SwitchCommand::Install(of, part)] => {
            assert_eq!((*of, part.tenant), (life(id, 1), 7));
            part.clone()
        }
        other => panic!("{other:?}"),
    };
    let [a, left, right] = ["a", "left", "right"].map(|name| part(world.switch_got(name)));
    assert_eq!((a.children.len(), left.children.len(), a.parent), (2, 2, None));
    assert_eq!(right.parent, Some(SocketAddr::from(([10, 0, 0, 4], 4791))));
    assert!(world.switch_got("b").is_empty());
    for name in ["a", "left"] {
        let installed = SwitchReport::Installed(life(id, 1), ends(2, name != "a"));
        world.report(world.switches[name], installed);
    }
    assert!(world.starts(0).is_empty() && world.switch_got("a").is_empty());
    let installed = SwitchReport::Installed(life(id, 1), ends(2, true));
    world.report(world.switches["right"], installed);
    let SwitchCommand::Start(_, Seq(0), ends) = world.switch_got("a").remove(0) else { panic!() };
    assert_eq!((ends.children, ends.parent), (vec![end(300), end(300)], None));
    let SwitchCommand::Start(_, _, ends) = world.switch_got("right").remove(0) else { panic!() };
    assert_eq!((ends.children, ends.parent), (vec![end(2), end(4)], Some(end(201))));
    for (rank, qpn) in [(0, 200), (1, 200), (2, 201), (3, 201)] {
        let [(of, start)] = &world.starts(rank)[..] else { panic!("{rank}") };
        assert_eq!((*of, start.parent), (life(id, 1), Some(end(qpn))));
        assert_eq!(start.without, None);
        assert_eq!((start.plan.first, start.plan.owners.len()), (Seq(0), 0));
    }
}

#[test]
fn a_communicator_needs_all_ranks_and_one_set_of_attributes() {
    let mut world = World::ready(ControllerCfg::new());
    let calls = [0, 1, 3].map(|rank| world.create(rank));
    world.pass(1000 * MS);
    for call in calls {
        let error = world.answer(call).unwrap().unwrap_err().to_string();
        assert!(error.contains("rank 2 of communicator 0 of its group did not come"), "{error}");
    }
    // The one that comes too late is refused, and the next communicator is again one for all.
    let late = world.create(2);
    assert!(world.answer(late).unwrap().is_err());
    let first = world.create(0);
    let other = EdgeAttributes { window: 32, ..EdgeAttributes::DEFAULT };
    let ticket = world.tickets[&1];
    let call = ControllerCall::CreateCommunicator(ticket, other, end(2), 1000 * MS);
    let error = world.error(call);
    assert!(error.contains("rank 1 asked for"), "{error}");
    assert_eq!(world.answer(first).unwrap().unwrap_err().to_string(), error);
    // Attributes that no edge can have.
    let other = EdgeAttributes { packets: 9, ..EdgeAttributes::DEFAULT };
    let error = world.error(ControllerCall::CreateCommunicator(ticket, other, end(2), 1000 * MS));
    assert!(error.contains("1 to 8 packets, not 9"), "{error}");
    // A rank whose program ends while it waits.
    let mut world = World::ready(ControllerCfg::new());
    let (call, gone) = (world.create(2), world.create(0));
    world.controller.on_call_end(world.now, gone);
    let error = world.answer(call).unwrap().unwrap_err().to_string();
    assert!(error.contains("rank 0 gave up"), "{error}");
}

#[test]
fn a_group_that_is_destroyed_while_others_create_ends_their_calls() {
    let mut world = World::ready(ControllerCfg::new());
    let calls = [0, 1, 3].map(|rank| world.create(rank));
    let leave = world.call(ControllerCall::Leave(world.tickets[&2]));
    assert_eq!(world.answer(leave), Some(Ok(CallAnswer::Done)));
    for call in calls {
        let error = world.answer(call).unwrap().unwrap_err().to_string();
        assert!(error.contains("rank 2 destroyed the group"), "{error}");
    }
    // It left in order: the end of its session is not its death.
    world.controller.on_session_end(world.now, world.hosts[&2]);
    assert_eq!(world.controller.groups().next().unwrap().phase, GroupPhase::Ready);
    for rank in [0, 1, 3] {
        world.call(ControllerCall::Leave(world.tickets[&rank]));
    }
    assert_eq!(world.controller.groups().count() + world.controller.communicators().count(), 0);
}

#[test]
fn a_lost_switch_is_replaced_and_the_hosts_resume_by_the_plan() {
    let mut world = World::ready(ControllerCfg::new());
    let id = world.running();
    world.controller.on_session_end(world.now, world.switches["a"]);
    world.switches.remove("a");
    for rank in 0..4 {
        assert_eq!(world.host_got(rank), [HostCommand::Prepare(life(id, 2))]);
    }
    assert_eq!(world.install_all(), ["b", "left", "right"]);
    // Reports about another epoch change nothing.
    for rank in 0..4 {
        world.chunks(rank, life(id, 1), 7);
    }
    assert!(world.starts(0).is_empty());
    for (rank, oldest) in [(0, 70), (1, 65), (2, 128)] {
        world.chunks(rank, life(id, 2), oldest);
    }
    let mut has_result = vec![false; 128];
    // Chunks 66 and 69 of 70 - 64 = 6 on.
    (has_result[60], has_result[63]) = (true, true);
    let report = ChunkReport { oldest: Seq(70), has_result };
    world.host_report(3, HostReport::Chunks(life(id, 2), report, end(53)));
    let owner = Some(Rank(3));
    for rank in 0..4 {
        let [(of, start)] = &world.starts(rank)[..] else { panic!("{rank}") };
        assert_eq!((*of, start.plan.first), (life(id, 2), Seq(65)));
        assert_eq!(start.plan.owners, [None, owner, None, None, owner]);
        assert!(start.parent.is_some());
    }
    // Switches get the hosts' new ends.
    let SwitchCommand::Start(of, Seq(65), ends) = world.switch_got("right").remove(0) else {
        panic!()
    };
    assert_eq!((of, ends.children), (life(id, 2), vec![end(51), end(53)]));
    assert_eq!(world.controller.counts().drains, 1);
}

#[test]
fn a_switch_that_is_lost_while_hosts_report_begins_one_more_epoch() {
    let mut world = World::ready(ControllerCfg::new());
    let id = world.running();
    world.controller.on_session_end(world.now, world.switches.remove("a").unwrap());
    for rank in 0..4 {
        world.chunks(rank, life(id, 2), 0);
    }
    let old_right = world.switches["right"];
    world.controller.on_session_end(world.now, world.switches.remove("b").unwrap());
    assert_eq!(world.state(id).epoch, TreeEpoch(3));
    // An installation of the epoch before does not count.
    world.report(old_right, SwitchReport::Installed(life(id, 2), ends(2, true)));
    for rank in 0..4 {
        world.chunks(rank, life(id, 2), 0);
        assert!(world.starts(rank).is_empty());
    }
    for rank in 0..4 {
        world.chunks(rank, life(id, 3), 0);
    }
    let why = "no switch that is in service joins rank 1 (host h1) with the other ranks";
    for rank in 0..4 {
        let [(of, start)] = &world.starts(rank)[..] else { panic!("{rank}") };
        assert_eq!((*of, start.parent), (life(id, 3), None));
        assert_eq!(start.without.as_deref(), Some(why));
    }
    // Leaves have removed their parts, and no memory is reserved.
    assert!(world.switch_got("left").contains(&SwitchCommand::Remove(id)));
    assert_eq!(world.reserved(), 0);
    // A switch that comes back brings a tree again.
    world.switch("b", 2, &[]).unwrap();
    world.pass(100 * MS);
    assert_eq!(world.host_got(2), [HostCommand::Prepare(life(id, 4))]);
    world.install_all();
    for rank in 0..4 {
        world.chunks(rank, life(id, 4), 0);
        assert!(rank < 3 || world.starts(rank)[0].1.parent.is_some());
    }
}

#[test]
fn a_switch_that_starts_again_gets_its_part_again() {
    let mut world = World::ready(ControllerCfg::new());
    let id = world.running();
    // A new session of a switch that has its part changes nothing; without it, the epoch is over.
    world.switch("left", 1, &[life(id, 1)]).unwrap();
    assert_eq!(world.state(id).epoch, TreeEpoch(1));
    world.switch("left", 2, &[life(CommunicatorId(77), 1)]).unwrap();
    assert_eq!(world.state(id).epoch, TreeEpoch(2));
    let commands = world.switch_got("left");
    assert_eq!(commands[0], SwitchCommand::Remove(CommunicatorId(77)));
    assert!(matches!(commands[1], SwitchCommand::Install(..)), "{commands:?}");
    let refused = world.switch("nowhere", 1, &[]).unwrap_err().to_string();
    assert_eq!(refused, "the topology has no switch nowhere");
    assert!(world.switch("h0", 1, &[]).is_err());
}

#[test]
fn a_dead_member_ends_what_it_takes_part_in_and_is_named() {
    let mut world = World::ready(ControllerCfg::new());
    let id = world.running();
    let waiting = world.create(0);
    world.controller.on_session_end(world.now, world.hosts[&3]);
    let why = "rank 3 (10.0.1.3) is dead: its session ended".to_owned();
    for rank in 0..3 {
        let abort = HostCommand::Abort(id, AbortReason::MemberDead, why.clone());
        assert_eq!(world.host_got(rank), [abort]);
    }
    for name in ["a", "left", "right"] {
        let wanted = [SwitchCommand::Abort(id, AbortReason::MemberDead), SwitchCommand::Remove(id)];
        assert_eq!(world.switch_got(name), wanted);
    }
    assert_eq!(world.reserved(), 0);
    let error = world.answer(waiting).unwrap().unwrap_err().to_string();
    assert!(error.contains(&why), "{error}");
    let ticket = world.tickets[&0];
    let call =
        ControllerCall::CreateCommunicator(ticket, EdgeAttributes::DEFAULT, end(1), 1000 * MS);
    assert!(world.error(call).contains("group job is over: rank 3"));
    // The name is free for another group at once; the old one is forgotten with its last member.
    world.call(ControllerCall::Join(request(0, 1)));
    for rank in 0..3 {
        world.call(ControllerCall::Leave(world.tickets[&rank]));
    }
    assert_eq!(world.controller.groups().count(), 1);
    assert_eq!(world.controller.communicators().count(), 0);
}

#[test]
fn silence_ends_a_session_but_a_pause_of_the_controller_does_not() {
    let mut world = World::ready(ControllerCfg::new());
    let id = world.running();
    world.pass(100 * MS);
    // The controller stands still for a second: signs of life wait to be read.
    world.now += 1000 * MS;
    world.controller.on_time(world.now);
    assert_eq!(world.state(id).epoch, TreeEpoch(1));
    // One switch is silent.
    let silent = world.switches.remove("left").unwrap();
    world.pass(200 * MS);
    assert_eq!(world.state(id).epoch, TreeEpoch(1));
    world.pass(100 * MS);
    assert_eq!(world.state(id).epoch, TreeEpoch(2));
    world.listen();
    let ended = ControllerAction::EndSession(silent, "no sign of life for 300 ms".to_owned());
    assert!(world.said.contains(&ended));
    assert!(world.controller.poll_deadline().is_some());
}

#[test]
fn a_member_that_opens_no_session_is_dead_at_the_deadline() {
    let mut world = World::new(ControllerCfg { grace_ns: 500 * MS, ..ControllerCfg::new() });
    for rank in 0..2 {
        world.call(ControllerCall::Join(request(rank, 2)));
    }
    world.tickets.insert(0, MemberTicket { group: GroupId(1), rank: Rank(0), key: 100 });
    world.host(0, &[]).unwrap();
    world.pass(500 * MS);
    let group = world.controller.groups().next().unwrap();
    let why = "rank 1 (10.0.1.1) is dead: it opened no session".to_owned();
    assert_eq!(group.phase, GroupPhase::Over(why));
}

#[test]
fn the_next_tree_goes_around_a_dead_edge() {
    let mut world = World::ready(ControllerCfg::new());
    let id = world.running();
    let left = world.switches["left"];
    // Reports about another epoch, or an edge that is not there, change nothing.
    world.report(left, SwitchReport::EdgeDead(life(id, 0), To::Parent));
    world.report(left, SwitchReport::EdgeDead(life(id, 1), To::Child(9)));
    assert_eq!(world.state(id).epoch, TreeEpoch(1));
    world.report(left, SwitchReport::EdgeDead(life(id, 1), To::Parent));
    assert_eq!(world.tree(id), ["b", "left", "right"]);
    assert_eq!(world.switch_got("a"), [SwitchCommand::Remove(id)]);
    world.install_all();
    for rank in 0..4 {
        world.chunks(rank, life(id, 2), 0);
    }
    // The only edge of a host: there is no tree without it.
    world.host_report(1, HostReport::EdgeDead(life(id, 2)));
    assert!(world.tree(id).is_empty());
    assert!(world.state(id).without.as_ref().unwrap().contains("rank 1 (host h1)"));
    // It is tried again, as no switch has to come back for that.
    for rank in 0..4 {
        world.chunks(rank, life(id, 3), 0);
    }
    assert_eq!(world.state(id).phase, TreePhase::Ready);
    world.pass(1900 * MS);
    assert!(world.tree(id).is_empty());
    world.pass(200 * MS);
    assert_eq!(world.tree(id).len(), 3);
}

#[test]
fn who_contradicts_the_others_is_named_with_both_sizes() {
    let mut world = World::ready(ControllerCfg::new());
    let id = world.running();
    let header = |count| IncHeader {
        kind: IncKind::Contribution(sum()),
        seq: Seq(0),
        epoch: TreeEpoch(1),
        op_id: 4,
        is_repeat: false,
        is_last: true,
        count,
    };
    let seen = ChunkConflict { child: 1, first: header(8), second: header(9) };
    world.report(world.switches["right"], SwitchReport::Contradiction(life(id, 1), seen));
    let did = |elements| CurrentOperation { op_id: 4, collective: sum(), elements };
    for (rank, elements) in [(0, 8), (1, 8), (2, 8), (3, 9)] {
        assert!(world.host_got(rank).is_empty());
        let report =
            HostReport::Aborted(life(id, 1), AbortReason::Contradiction, Some(did(elements)));
        world.host_report(rank, report);
    }
    let abort = world.host_got(0).remove(0);
    let HostCommand::Abort(_, AbortReason::Contradiction, why) = abort else { panic!() };
    let wanted = "rank 3 called allreduce (Sum of I32) of 9 elements (operation 4); \
         ranks 0, 1, 2 called allreduce (Sum of I32) of 8 elements (operation 4)";
    assert!(why.ends_with(wanted), "{why}");
    // Without reports of hosts, what the switch saw is said at the deadline.
    let id = world.running();
    let seen = ChunkConflict { child: 1, first: header(8), second: header(9) };
    world.report(world.switches["right"], SwitchReport::Contradiction(life(id, 1), seen));
    world.pass(300 * MS);
    let abort = world.host_got(2).pop().unwrap();
    let HostCommand::Abort(_, AbortReason::Contradiction, why) = abort else { panic!() };
    assert!(why.contains("in chunk 0 rank 3 sent allreduce"), "{why}");
    assert_eq!(
        world.controller.counts().aborts,
        BTreeMap::from([((7, "contradiction".to_owned()), 2)])
    );
}

#[test]
fn a_switch_ends_no_communicator_that_it_has_no_part_of() {
    let mut world = World::ready(ControllerCfg::new());
    let id = world.running();
    let tree = world.tree(id);
    let other = NAMES.into_iter().find(|name| tree.iter().all(|of| of != name)).unwrap();
    let other = world.switches[other];
    let header = IncHeader {
        kind: IncKind::Contribution(sum()),
        seq: Seq(0),
        epoch: TreeEpoch(1),
        op_id: 0,
        is_repeat: false,
        is_last: true,
        count: 1,
    };
    let seen = ChunkConflict { child: 0, first: header, second: IncHeader { count: 2, ..header } };
    world.report(other, SwitchReport::Aborted(life(id, 1), AbortReason::Protocol));
    assert_eq!(world.state(id).phase, TreePhase::Ready);
    world.report(other, SwitchReport::Contradiction(life(id, 1), seen));
    assert_eq!(world.state(id).phase, TreePhase::Ready);
}

#[test]
fn a_rank_that_called_nothing_is_named_when_the_others_time_out() {
    let mut world = World::ready(ControllerCfg::new());
    let id = world.running();
    let did = CurrentOperation { op_id: 0, collective: sum(), elements: 1 };
    for rank in 0..4 {
        let did = (rank != 2).then_some(did);
        world.host_report(rank, HostReport::Aborted(life(id, 1), AbortReason::EdgeDead, did));
    }
    let abort = world.host_got(0).pop().unwrap();
    let HostCommand::Abort(_, AbortReason::EdgeDead, why) = abort else { panic!() };
    assert!(why.ends_with("rank 2 had called no operation"), "{why}");
}
