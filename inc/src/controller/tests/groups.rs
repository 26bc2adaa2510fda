//! Groups: who joins, with which proof, and who may not.

use super::*;

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
