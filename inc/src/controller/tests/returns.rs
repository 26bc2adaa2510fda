//! Hosts that are late, lie or come back, other topologies, and other controllers.

use super::*;

#[test]
fn hosts_that_do_not_report_or_lie_end_the_communicator() {
    let mut world = World::ready(ControllerCfg::new());
    let id = world.running();
    world.controller.on_session_end(world.now, world.switches.remove("a").unwrap());
    world.install_all();
    for rank in [0, 2] {
        world.chunks(rank, life(id, 2), 0);
    }
    world.pass(5000 * MS);
    let TreePhase::Over(why) = &world.state(id).phase else { panic!() };
    assert_eq!(why, "ranks 1, 3 did not say in time what they have");
    let id = world.running();
    world.controller.on_session_end(world.now, world.switches.remove("b").unwrap());
    for rank in 0..4 {
        world.chunks(rank, life(id, 2), u32::from(rank) * 22);
    }
    let abort = world.host_got(0).pop().unwrap();
    let HostCommand::Abort(_, AbortReason::Protocol, why) = abort else { panic!("{abort:?}") };
    assert!(why.starts_with("rank 3 waits for chunk 66"), "{why}");
}

#[test]
fn a_report_of_which_no_plan_can_be_made_is_not_kept() {
    let mut world = World::ready(ControllerCfg::new());
    let id = world.running();
    world.controller.on_session_end(world.now, world.switches.remove("a").unwrap());
    let chunks = ChunkReport { oldest: Seq(0), has_result: vec![true; 1000] };
    world.host_report(1, HostReport::Chunks(life(id, 2), chunks, end(1)));
    let abort = world.host_got(0).pop().unwrap();
    let why = "rank 1 reports 1000 chunks, 128 were asked for".to_owned();
    assert_eq!(abort, HostCommand::Abort(id, AbortReason::Protocol, why));
}

#[test]
fn each_call_to_destroy_is_answered() {
    let mut world = World::ready(ControllerCfg::new());
    let id = world.running();
    let destroy = |world: &mut World, rank, id| {
        let ticket = world.tickets[&rank];
        world.call(ControllerCall::DestroyCommunicator(ticket, id))
    };
    let twice = [(); 2].map(|()| destroy(&mut world, 0, id));
    // An early answer would let the rank go while others need it.
    assert_eq!(twice.map(|call| world.answer(call)), [None, None]);
    let more: Vec<_> = (0..7).map(|_| destroy(&mut world, 0, id)).collect();
    assert!(more[..6].iter().all(|call| world.answer(*call).is_none()));
    let refused = world.answer(more[6]).unwrap().unwrap_err().to_string();
    assert!(refused.contains("8 calls of a rank to destroy this"), "{refused}");
    for rank in 1..4 {
        destroy(&mut world, rank, id);
    }
    assert_eq!(twice.map(|call| world.answer(call)), [const { Some(Ok(CallAnswer::Done)) }; 2]);
    // One that is not made yet, and never is.
    let call = world.create(0);
    let guess = destroy(&mut world, 1, CommunicatorId(id.0 + 1));
    assert_eq!(world.answer(guess), None);
    world.pass(11_000 * MS);
    assert!(world.answer(call).unwrap().is_err());
    assert_eq!(world.answer(guess), Some(Ok(CallAnswer::Done)));
    assert!(world.controller.poll_deadline().is_none_or(|at| at > world.now));
    // All ranks guess the number of one that a rank still waits for.
    let call = world.create(0);
    let guesses = [0, 1, 2, 3].map(|rank| destroy(&mut world, rank, CommunicatorId(id.0 + 2)));
    let error = world.answer(call).unwrap().unwrap_err().to_string();
    assert!(error.contains("all ranks destroyed it"), "{error}");
    assert_eq!(guesses.map(|call| world.answer(call)), [const { Some(Ok(CallAnswer::Done)) }; 4]);
}

#[test]
fn a_group_that_was_over_before_a_restart_is_dropped_if_no_member_comes_back() {
    let mut world = World::ready(ControllerCfg::new());
    world.controller.on_session_end(world.now, world.hosts[&0]);
    let mut next = World::new(ControllerCfg::new());
    next.controller.restore(next.now, world.controller.remains());
    next.pass(29_000 * MS);
    assert_eq!(next.controller.groups().count(), 1);
    next.pass(2_000 * MS);
    assert_eq!(next.controller.groups().count(), 0);
}

#[test]
fn a_rank_that_does_not_destroy_is_not_waited_for_without_bound() {
    let mut world = World::ready(ControllerCfg::new());
    let id = world.running();
    let calls = [0, 1]
        .map(|rank| world.call(ControllerCall::DestroyCommunicator(world.tickets[&rank], id)));
    world.pass(9000 * MS);
    assert_eq!(world.answer(calls[0]), None);
    world.pass(1000 * MS);
    for call in calls {
        assert_eq!(world.answer(call), Some(Ok(CallAnswer::Done)));
    }
    let abort = world.host_got(2).pop().unwrap();
    let why = "ranks 0, 1 destroyed the communicator, ranks 2, 3 did not".to_owned();
    assert_eq!(abort, HostCommand::Abort(id, AbortReason::ShutDown, why));
    for rank in [2, 3] {
        world.call(ControllerCall::DestroyCommunicator(world.tickets[&rank], id));
    }
    assert_eq!((world.controller.communicators().count(), world.reserved()), (0, 0));
}

#[test]
fn hosts_learn_what_they_missed_when_they_come_back() {
    let mut world = World::ready(ControllerCfg::new());
    let id = world.running();
    world.host(1, &[life(id, 1), life(CommunicatorId(55), 3)]).unwrap();
    let [HostCommand::Abort(CommunicatorId(55), AbortReason::ShutDown, _)] = &world.host_got(1)[..]
    else {
        panic!()
    };
    assert_eq!(world.state(id).epoch, TreeEpoch(1));
    world.controller.on_session_end(world.now, world.switches.remove("a").unwrap());
    world.host_got(1);
    world.host(1, &[life(id, 1)]).unwrap();
    assert_eq!(world.host_got(1), [HostCommand::Prepare(life(id, 2))]);
}

#[test]
fn another_topology_moves_trees_off_the_switches_that_left_it() {
    let mut world = World::ready(ControllerCfg::new());
    let id = world.running();
    let without: Vec<_> =
        MAP.lines().filter(|line| !line.contains("name: a,") && !line.contains("[a,")).collect();
    let map = read_map(&without.join("\n")).unwrap();
    let old = world.switches["a"];
    let request = TopologyRequest { map, text: String::new(), nonce: [0; 16], proof: Vec::new() };
    assert!(!world.controller.take_map_put());
    world.call(ControllerCall::PutTopology(request));
    assert!(world.controller.take_map_put());
    assert_eq!(world.tree(id), ["b", "left", "right"]);
    world.listen();
    let ended = |said: &ControllerAction| matches!(said, ControllerAction::EndSession(session, _) if *session == old);
    assert!(world.said.iter().any(ended));
    let gone = world.switch("a", 1, &[]).unwrap_err();
    assert_eq!(gone, CallError::UnknownSwitch("a".to_owned()));
}

#[test]
fn another_controller_goes_on_where_one_ended() {
    let mut world = World::ready(ControllerCfg::new());
    let id = world.running();
    let after = |world: &World| {
        let mut next = World::new(ControllerCfg::new());
        next.controller.restore(next.now, world.controller.remains());
        next.tickets.clone_from(&world.tickets);
        next
    };
    let mut next = after(&world);
    assert_eq!(next.reserved(), world.reserved());
    for rank in 0..4 {
        next.host(rank, &[life(id, 1)]).unwrap();
        assert!(next.host_got(rank).is_empty());
    }
    for name in ["a", "left", "b"] {
        next.switch(name, 1, &[life(id, 1)]).unwrap();
    }
    // What is not there for the controller's tree has no place in the switch either.
    assert_eq!(next.switch_got("b"), [SwitchCommand::Remove(id)]);
    next.pass(4_900 * MS);
    assert_eq!((next.state(id).epoch, next.tree(id).len()), (TreeEpoch(1), 3));
    // A switch that does not come back in the grace period is lost.
    next.pass(200 * MS);
    assert_eq!(next.host_got(0), [HostCommand::Prepare(life(id, 2))]);
    // What was in change begins one more epoch, as nothing says how far it came.
    let mut third = after(&next);
    third.host(2, &[life(id, 1)]).unwrap();
    assert_eq!(third.host_got(2), [HostCommand::Prepare(life(id, 3))]);
    // A member that does not come back is dead.
    third.pass(30_000 * MS);
    let group = third.controller.groups().next().unwrap();
    assert!(matches!(&group.phase, GroupPhase::Over(why) if why.contains("opened no session")));
    // Numbers are not given again.
    let mut fourth = after(&next);
    for name in NAMES {
        fourth.switch(name, 2, &[]).unwrap();
    }
    for rank in 0..4 {
        fourth.host(rank, &[]).unwrap();
    }
    assert_eq!(fourth.created(), CommunicatorId(id.0 + 1));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Switches come and go at random while hosts work and report. Each life that starts has a plan that a model agrees
    /// with, epochs only grow, what is reserved is what the trees take, and in the end all is given back.
    #[test]
    fn communicators_survive_any_order_of_switches(
        moves in proptest::collection::vec((0_u8..8, 0_usize..4, any::<u8>()), 1..80),
    ) {
        let mut world = World::ready(ControllerCfg::new());
        let id = world.created();
        // For each rank: its epoch, the least chunk without an answer, and whether it owes a report.
        let mut oldest = [0_u32; 4];
        let mut owed: BTreeMap<u16, TreeLife> = BTreeMap::new();
        let mut reported: BTreeMap<u16, ChunkReport> = BTreeMap::new();
        let mut epoch = 0;
        let mut running = BTreeSet::new();
        for (what, which, n) in moves {
            match what {
                0 => if let Some(session) = world.switches.remove(NAMES[which]) {
                    world.controller.on_session_end(world.now, session);
                },
                1 if !world.switches.contains_key(NAMES[which]) => {
                    world.switch(NAMES[which], u64::from(n), &[]).unwrap();
                }
                2 | 3 => { world.install_all(); }
                4 | 5 => if let Some((&rank, &of)) = owed.iter().nth(which % owed.len().max(1)) {
                    owed.remove(&rank);
                    let base = oldest[usize::from(rank)];
                    let has_result = (0..128).map(|at| at < 64 && (n >> (at % 8)) & 1 == 1);
                    let report =
                        ChunkReport { oldest: Seq(base), has_result: has_result.collect() };
                    reported.insert(rank, report.clone());
                    world.host_report(rank, HostReport::Chunks(of, report, end(50)));
                },
                6 => if running.len() == 4 {
                    // A rank goes ahead, by at most a window.
                    let least = oldest.iter().min().unwrap();
                    oldest[which] = (oldest[which] + u32::from(n) % 8).min(least + 64);
                },
                _ => world.pass(100 * MS),
            }
            for rank in 0..4 {
                for command in world.host_got(rank) {
                    match command {
                        HostCommand::Prepare(of) => {
                            prop_assert!(of.epoch.0 > epoch || owed.values().any(|o| *o == of)
                                || reported.len() < 4);
                            epoch = epoch.max(of.epoch.0);
                            if rank == 0 {
                                reported.clear();
                            }
                            running.clear();
                            owed.insert(rank, of);
                        }
                        HostCommand::Start(of, start) => {
                            prop_assert!(of.epoch.0 >= epoch);
                            epoch = of.epoch.0;
                            running.insert(rank);
                            if reported.len() < 4 {
                                prop_assert_eq!(start.plan.owners.len(), 0);
                                continue;
                            }
                            let first = reported.values().map(|of| of.oldest.0).min().unwrap();
                            prop_assert_eq!(start.plan.first, Seq(first));
                            for at in 0..128 {
                                let has = |of: &ChunkReport| {
                                    let place = (first + at + 64).wrapping_sub(of.oldest.0);
                                    of.has_result.get(place as usize) == Some(&true)
                                };
                                let owner = reported.iter().find(|(_, of)| has(of));
                                let owner = owner.map(|(&rank, _)| Rank(rank));
                                let planned = start.plan.owners.get(at as usize);
                                prop_assert_eq!(planned.copied().flatten(), owner);
                            }
                        }
                        HostCommand::Abort(_, _, why) => {
                            prop_assert!(why.contains("did not say in time"), "{}", why);
                            return Ok(());
                        }
                        HostCommand::Switch(command) => prop_assert!(false, "{:?}", command),
                    }
                }
            }
            let of = world.state(id);
            let taken: u64 = of.tree.iter().flatten().map(|switch| switch.memory).sum();
            prop_assert_eq!(world.reserved(), taken);
        }
        for rank in 0..4 {
            world.call(ControllerCall::DestroyCommunicator(world.tickets[&rank], id));
        }
        prop_assert_eq!((world.reserved(), world.controller.communicators().count()), (0, 0));
    }
}
