//! Quotas, refusals, and what reduces where no switch has room.
//!
//! Groups: who joins, with which proof, and who may not.

use super::*;

#[test]
fn a_tenant_has_its_quota_in_each_switch_and_gets_it_back() {
    let one = memory_of(&EdgeAttributes::DEFAULT, 2);
    let cfg = ControllerCfg { quotas: BTreeMap::from([(7, one)]), ..ControllerCfg::new() };
    let mut world = World::ready(cfg);
    let first = world.running();
    assert_eq!(world.reserved(), 3 * one);
    let second = world.created();
    let why = world.state(second).without.clone().unwrap();
    let wanted =
        format!("tenant 7 uses {one} of its {one} bytes in switch left, {one} more are needed");
    assert_eq!(why, wanted);
    assert_eq!(world.controller.counts().fallbacks[&(7, "quota")], 1);
    // All ranks destroy the first one: its memory is free, and the next one has a tree.
    for rank in 0..4 {
        assert_eq!(world.reserved(), 3 * one);
        world.call(ControllerCall::DestroyCommunicator(world.tickets[&rank], first));
    }
    assert_eq!(world.reserved(), 0);
    let third = world.created();
    assert_eq!(world.tree(third).len(), 3);
}

#[test]
fn what_a_switch_has_not_is_not_given_away() {
    let mut world = World::ready(ControllerCfg::new());
    let one = memory_of(&EdgeAttributes::DEFAULT, 2);
    let most = (8 << 20) / one;
    for _ in 0..most {
        let id = world.created();
        assert_eq!(world.tree(id).len(), 3);
    }
    let id = world.created();
    let why = world.state(id).without.clone().unwrap();
    assert!(why.contains("bytes of slots free") && why.contains("switch left"), "{why}");
    // The two switches above the leaves share what there is.
    let parts: Vec<_> = world.controller.switches().map(|switch| switch.parts).collect();
    let most = u32::try_from(most).unwrap();
    assert_eq!((parts[0].abs_diff(parts[1]) <= 1, parts[2], parts[3]), (true, most, most));
}

#[test]
fn a_refusal_leads_to_another_tree_or_to_none() {
    let mut world = World::ready(ControllerCfg::new());
    let id = world.created();
    let full = InstallError::Memory { needed: 9, free: 1 };
    world.switch_got("a");
    world.report(world.switches["a"], SwitchReport::Refused(life(id, 1), full.clone()));
    assert_eq!(world.tree(id), ["b", "left", "right"]);
    assert_eq!(world.install_all().len(), 3 + 2);
    assert!(world.starts(0)[0].1.parent.is_some());
    let id = world.created();
    world.report(world.switches["left"], SwitchReport::Refused(life(id, 1), full));
    let [(_, start)] = &world.starts(0)[..] else { panic!() };
    let why = "switch left refused its part: 9 bytes of slots are needed, 1 are free";
    assert_eq!((start.parent, start.without.as_deref()), (None, Some(why)));
    // A part with other edges than those that were asked for.
    let id = world.created();
    let wrong = SwitchReport::Installed(life(id, 1), ends(1, true));
    world.report(world.switches["right"], wrong);
    let [(_, start)] = &world.starts(0)[..] else { panic!() };
    assert!(start.without.as_ref().unwrap().contains("other edges"), "{start:?}");
}

#[test]
fn a_switch_that_never_installs_is_not_waited_for() {
    let mut world = World::ready(ControllerCfg::new());
    let id = world.created();
    world.switch_got("right");
    world.install_all();
    world.pass(2000 * MS);
    let [(of, start)] = &world.starts(3)[..] else { panic!() };
    let why = "switch right did not install its part in time";
    assert_eq!((*of, start.parent), (life(id, 1), None));
    assert_eq!(start.without.as_deref(), Some(why));
    assert_eq!((world.reserved(), world.state(id).phase.clone()), (0, TreePhase::Ready));
}

#[test]
fn members_reduce_where_no_switch_can_be_had_until_one_comes() {
    let mut world = World::new(ControllerCfg::new());
    world.fallback = true;
    world.join_all();
    let id = world.created();
    // In the order of `a(left(0 2) right(1 3))`.
    assert_eq!(world.tree(id), ["rank 1", "rank 2", "rank 3"]);
    assert_eq!(world.controller.counts().fallbacks[&(7, "topology")], 1);
    // A member installs for itself alone: what another one says is not taken.
    let wrong = HostReport::Switch(SwitchReport::Installed(life(id, 1), ends(2, false)));
    world.host_report(0, wrong);
    assert_eq!(world.install_in_members(), [1, 2, 3]);
    let why = "no switch that is in service joins rank 0 (host h0) with the other ranks";
    let [(of, start)] = &world.starts(0)[..] else { panic!() };
    assert_eq!(
        (*of, start.parent, start.without.as_deref()),
        (life(id, 1), Some(end(200)), Some(why))
    );
    let got = world.host_got(1);
    let [HostCommand::Switch(SwitchCommand::Start(_, Seq(0), ends)), HostCommand::Start(..)] =
        &got[..]
    else {
        panic!("{got:?}")
    };
    assert_eq!((&ends.children[..], ends.parent), (&[end(300), end(300)][..], None));
    // An edge between programs that died is tried again, in another epoch.
    world.host_report(3, HostReport::Switch(SwitchReport::EdgeDead(life(id, 1), To::Child(1))));
    assert_eq!(world.state(id).epoch, TreeEpoch(2));
    assert_eq!(world.install_in_members(), [1, 2, 3]);
    for rank in 0..4 {
        world.chunks(rank, life(id, 2), 0);
    }
    assert_eq!(world.state(id).phase, TreePhase::Ready);
    // It went over to the members once, however many trees of theirs it had.
    assert_eq!(world.controller.counts().fallbacks, BTreeMap::from([((7, "topology"), 1)]));
    // Switches come: theirs is the next tree, and nothing stays in the programs.
    for name in NAMES {
        world.switch(name, 1, &[]).unwrap();
    }
    world.pass(100 * MS);
    assert_eq!(world.tree(id).len(), 3);
    assert!(world.tree(id).contains(&"left".to_owned()));
    for rank in 1..4 {
        let removed = HostCommand::Switch(SwitchCommand::Remove(id));
        assert!(world.host_got(rank).contains(&removed), "{rank}");
    }
    world.install_all();
    for rank in 0..4 {
        world.chunks(rank, life(id, 3), 0);
    }
    assert_eq!(world.state(id).without, None);
    // And go: members go on with the same sums.
    world.said.clear();
    world.controller.on_session_end(world.now, world.switches.remove("left").unwrap());
    assert_eq!(world.install_in_members(), [1, 2, 3]);
    for rank in 0..4 {
        world.chunks(rank, life(id, 4), 0);
    }
    let why = world.starts(3)[0].1.without.clone().unwrap();
    assert!(why.starts_with("no switch that is in service joins"), "{why}");
    assert_eq!(world.reserved(), 0);
    assert_eq!(world.controller.counts().fallbacks, BTreeMap::from([((7, "topology"), 2)]));
}

#[test]
fn a_tree_of_switches_that_comes_late_gives_way_to_the_members() {
    let mut world = World::ready(ControllerCfg::new());
    world.fallback = true;
    let id = world.created();
    world.switch_got("right");
    world.install_all();
    world.pass(2000 * MS);
    assert_eq!(world.tree(id), ["rank 1", "rank 2", "rank 3"]);
    assert_eq!((world.reserved(), world.controller.counts().fallbacks[&(7, "deadline")]), (0, 1));
    // A program that has no room: operations wait, and both reasons are said.
    let full = InstallError::Memory { needed: 9, free: 1 };
    world.host_report(2, HostReport::Switch(SwitchReport::Refused(life(id, 1), full)));
    let [(_, start)] = &world.starts(3)[..] else { panic!() };
    let why = "switch right did not install its part in time; \
               switch rank 2 refused its part: 9 bytes of slots are needed, 1 are free";
    assert_eq!((start.parent, start.without.as_deref()), (None, Some(why)));
    // The next thing that changes in the topology is a reason to try again.
    world.switch("a", 2, &[]).unwrap();
    world.pass(100 * MS);
    assert_eq!(world.state(id).epoch, TreeEpoch(2));
}

#[test]
fn a_group_is_made_when_all_its_ranks_came() {
    let mut world = World::new(ControllerCfg::new());
    let first = world.call(ControllerCall::Join(request(1, 2)));
    assert_eq!(world.answer(first), None);
    let second = world.call(ControllerCall::Join(request(0, 2)));
    for (call, rank) in [(first, 1), (second, 0)] {
        let Some(Ok(CallAnswer::Joined(ticket))) = world.answer(call) else { panic!() };
        assert_eq!((ticket.rank, ticket.key), (Rank(rank), 100 + u64::from(rank)));
    }
}

#[test]
fn who_contradicts_the_group_is_refused_and_the_others_wait_on() {
    let mut world = World::new(ControllerCfg::new());
    let first = world.call(ControllerCall::Join(request(0, 3)));
    let join = |rank, size| ControllerCall::Join(request(rank, size));
    let error = world.error(join(1, 4));
    assert_eq!(error, "rank 1 says world size 4 of group job, rank 0 said 3");
    let error = world.error(join(3, 3));
    assert_eq!(error, "rank 3 of group job is out of range: the group has 3 ranks");
    let error = world.error(join(70000, 3));
    assert!(error.contains("out of range"), "{error}");
    assert_eq!(world.error(join(0, 3)), "rank 0 of group job has joined before, from 10.0.1.0");
    assert_eq!(world.error(join(0, 0)), "a group has 1 to 65535 ranks, not 0");
    let other_tenant = JoinRequest { tenant: 8, ..request(1, 3) };
    let error = world.error(ControllerCall::Join(other_tenant));
    assert_eq!(error, "rank 1 says tenant 8 of group job, rank 0 said 7");
    let other_version = JoinRequest { version: 9, ..request(1, 3) };
    let error = world.error(ControllerCall::Join(other_version));
    assert_eq!(error, "version 9 of the protocol, the controller has 1");
    assert_eq!(world.controller.counts().refused_joins, 7);
    // At the deadline those who never came are named, and the name is free again.
    assert_eq!(world.answer(first), None);
    world.pass(1000 * MS);
    let error = world.answer(first).unwrap().unwrap_err().to_string();
    assert_eq!(error, "ranks 1, 2 of group job did not come in time");
    assert_eq!(world.controller.groups().count(), 0);
}

#[test]
fn a_name_that_is_too_long_is_refused_before_its_proof_is_looked_at() {
    let secret = Some(GroupSecret::new("seaweed"));
    let mut world = World::new(ControllerCfg { secret, ..ControllerCfg::new() });
    let mut join = |name: &str| {
        let request = JoinRequest { name: name.to_owned(), ..request(0, 2) };
        world.error(ControllerCall::Join(request))
    };
    // Two bytes each.
    let error = join(&"\u{e9}".repeat(128));
    assert_eq!(error, "the name of a group has 255 bytes at most, not 256");
    let longest = "x".repeat(255);
    assert_eq!(join(&longest), format!("rank 0 may not join group {longest}: wrong proof"));
    assert_eq!(world.controller.groups().count(), 0);
}

#[test]
fn a_rank_that_gives_up_before_the_group_is_complete_may_come_again() {
    let mut world = World::new(ControllerCfg::new());
    let zero = world.call(ControllerCall::Join(request(0, 2)));
    let one = world.call(ControllerCall::Join(request(1, 3)));
    assert!(world.answer(one).unwrap().is_err());
    world.controller.on_call_end(world.now, zero);
    assert_eq!(world.controller.groups().count(), 0);
    let again = [0, 1].map(|rank| world.call(ControllerCall::Join(request(rank, 2))));
    assert!(again.into_iter().all(|call| world.answer(call).unwrap().is_ok()));
}

#[test]
fn who_joins_proves_that_it_knows_the_secret() {
    let secret = GroupSecret::new("seaweed");
    let cfg = ControllerCfg { secret: Some(secret.clone()), ..ControllerCfg::new() };
    let mut world = World::new(cfg);
    let nonce = [9; 16];
    let wrong = "rank 0 may not join group job: wrong proof";
    let proof = |secret: &GroupSecret, rank| JoinRequest {
        nonce,
        proof: secret.proof(nonce, "job", rank, address(rank)),
        ..request(rank, 1)
    };
    // Without a challenge, without a proof, by another secret, for another group, rank or address.
    let join = ControllerCall::Join;
    assert_eq!(world.error(join(proof(&secret, 0))), wrong);
    let right = proof(&secret, 0);
    for bad in [
        JoinRequest { nonce, ..request(0, 1) },
        proof(&GroupSecret::new("seaweee"), 0),
        JoinRequest { name: "job2".to_owned(), ..right.clone() },
        JoinRequest { rank: 1, ..right.clone() },
        JoinRequest { address: address(1), ..right.clone() },
    ] {
        world.call(ControllerCall::Challenge(nonce));
        assert!(world.error(join(bad)).ends_with("wrong proof"));
    }
    world.call(ControllerCall::Challenge(nonce));
    let joined = world.call(join(right.clone()));
    assert!(world.answer(joined).unwrap().is_ok());
    // A challenge is good for one join.
    assert_eq!(world.error(join(right)), wrong);
    assert!(!format!("{:?}", world.controller).contains("seaweed"));
}

#[test]
fn a_group_with_a_secret_of_its_own_takes_no_other() {
    let [all, own] = ["seaweed", "kelp"].map(GroupSecret::new);
    let cfg = ControllerCfg {
        secret: Some(all.clone()),
        group_secrets: BTreeMap::from([("job".to_owned(), own.clone())]),
        ..ControllerCfg::new()
    };
    let mut world = World::new(cfg);
    let nonce = [9; 16];
    let mut join = |secret: &GroupSecret, name: &str| {
        let proof = secret.proof(nonce, name, 0, address(0));
        world.call(ControllerCall::Challenge(nonce));
        let request = JoinRequest { name: name.to_owned(), nonce, proof, ..request(0, 1) };
        let call = world.call(ControllerCall::Join(request));
        world.answer(call).unwrap().map_err(|error| error.to_string())
    };
    let wrong = |name| Err(format!("rank 0 may not join group {name}: wrong proof"));
    assert_eq!(join(&all, "job"), wrong("job"));
    assert_eq!(join(&own, "other"), wrong("other"));
    assert!(join(&own, "job").is_ok());
    assert!(join(&all, "other").is_ok());
}

#[test]
fn who_puts_a_topology_proves_that_it_knows_the_secret() {
    let [ranks, admins] = ["seaweed", "kelp"].map(GroupSecret::new);
    let nonce = [9; 16];
    let text = MAP.replace("name: a,", "name: z,").replace("[a,", "[z,");
    let request = |secret: &GroupSecret, text: &str| TopologyRequest {
        map: read_map(text).unwrap(),
        text: text.to_owned(),
        nonce,
        proof: secret.topology_proof(nonce, text),
    };
    let put = |world: &mut World, request| {
        let call = world.call(ControllerCall::PutTopology(request));
        (world.answer(call).unwrap(), world.controller.map().node_named("z").is_some())
    };
    let wrong = (Err(CallError::TopologyProof), false);
    for (secret, own) in [(&admins, Some(admins.clone())), (&ranks, None)] {
        let cfg = ControllerCfg {
            secret: Some(ranks.clone()),
            topology_secret: own,
            ..ControllerCfg::new()
        };
        let mut world = World::new(cfg);
        let right = request(secret, &text);
        // Without a challenge, without a proof, of another text, by another secret, and by the proof of a rank.
        assert_eq!(put(&mut world, right.clone()), wrong);
        let other = if *secret.topology_proof(nonce, "") == *ranks.topology_proof(nonce, "") {
            &admins
        } else {
            &ranks
        };
        for bad in [
            TopologyRequest { proof: Vec::new(), ..right.clone() },
            TopologyRequest { proof: secret.topology_proof(nonce, MAP), ..right.clone() },
            request(other, &text),
            TopologyRequest { proof: secret.proof(nonce, "job", 0, address(0)), ..right.clone() },
        ] {
            world.call(ControllerCall::Challenge(nonce));
            assert_eq!(put(&mut world, bad), wrong);
            assert!(!world.controller.take_map_put());
        }
        world.call(ControllerCall::Challenge(nonce));
        assert_eq!(put(&mut world, right.clone()), (Ok(CallAnswer::Done), true));
        // A challenge is good for one topology.
        assert_eq!(put(&mut world, right).0, Err(CallError::TopologyProof));
    }
}

#[test]
fn calls_with_another_members_ticket_are_refused_alike() {
    let mut world = World::ready(ControllerCfg::new());
    let ticket = world.tickets[&0];
    for bad in [
        MemberTicket { key: 1, ..ticket },
        MemberTicket { rank: Rank(1), ..ticket },
        MemberTicket { group: GroupId(99), ..ticket },
    ] {
        assert_eq!(world.error(ControllerCall::Leave(bad)), "no such member of a group");
        let hello = HostHello { version: CONTROL_VERSION, ticket: bad, lives: Vec::new() };
        let refused = world.controller.on_host_session(world.now, SessionId(999), &hello);
        assert_eq!(refused, Err(CallError::UnknownMember));
    }
    let hello = HostHello { version: 2, ticket, lives: Vec::new() };
    let refused = world.controller.on_host_session(world.now, SessionId(999), &hello);
    assert_eq!(refused, Err(CallError::Version { theirs: 2 }));
}
