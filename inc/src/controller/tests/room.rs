//! Quotas, refusals, and what reduces where no switch has room.

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
