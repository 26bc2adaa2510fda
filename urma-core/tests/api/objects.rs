//! context, JFCE, JFC, groups: which may live how long.

use std::{sync::Arc, time::Duration};

use urma_core::{
    Arm, AsyncKind, Completion, CompletionFlags, CrOpcode, Device, DeviceFeatures, GroupCfg,
    HintPolicy, JettyCfg, JettyRecv, JfcCfg, JfcFlags, JfrCfg, JfsCfg, Status, Token, TokenId,
    TokenPolicy, TransportMode,
};

use crate::recorder::{NODE, PEER, Recorder};

#[test]
fn a_device_opens_the_eids_that_it_has() {
    let device = Device::new(Arc::new(Recorder::new()));
    assert_eq!((device.id().name.as_str(), device.eids().unwrap()), ("rec0", vec![NODE, PEER]));
    assert_eq!(device.open(2).err(), Some(Status::Invalid));
    assert_eq!(device.open(0).unwrap().eid(), NODE);
}

#[test]
fn a_context_with_live_objects_stays() {
    let recorder = Recorder::new();
    let context = recorder.open();
    assert_eq!((context.eid(), context.uasid(), context.live_objects()), (NODE, 7, 0));
    let jfc = context.create_jfc(&JfcCfg::new(8), None).unwrap();
    let refused = context.delete().unwrap_err();
    assert_eq!(refused.status, Status::Again);
    let context = *refused.object;
    jfc.delete().unwrap();
    context.delete().unwrap();
}

#[test]
fn async_events_come_by_the_context() {
    let context = Recorder::new().open();
    let event = context.next_async(Some(Duration::ZERO)).unwrap().unwrap();
    assert_eq!((event.kind, event.id), (AsyncKind::JfrLimit, 9));
    assert_eq!(context.counters().unwrap(), [("posted".into(), 0)]);
    context.dup_async_fd().unwrap();
}

#[test]
fn a_jfc_has_its_limits() {
    let context = Recorder::new().open();
    for (depth, expected) in [(0, false), (1, true), (100, true), (101, false)] {
        let result = context.create_jfc(&JfcCfg::new(depth), None);
        assert_eq!(result.is_ok(), expected, "depth {depth}");
    }
    let vector = |ceqn| JfcCfg { ceqn, ..JfcCfg::new(1) };
    assert!(context.create_jfc(&vector(1), None).is_ok());
    assert_eq!(context.create_jfc(&vector(2), None).err(), Some(Status::Invalid));
}

#[test]
fn inline_completions_need_the_feature() {
    let cfg = JfcCfg { flags: JfcFlags::INLINE, ..JfcCfg::new(1) };
    assert!(Recorder::new().open().create_jfc(&cfg, None).is_ok());
    let plain = Recorder::with_caps(|caps| caps.features -= DeviceFeatures::JFC_INLINE);
    assert_eq!(plain.open().create_jfc(&cfg, None).err(), Some(Status::Unsupported));
}

#[test]
fn polling_gives_what_completed() {
    let recorder = Recorder::new();
    let mut jfc = recorder.open().create_jfc(&JfcCfg::new(8), None).unwrap();
    let done = |user_ctx| Completion { user_ctx, ..Completion::default() };
    recorder.book().completions = vec![done(1), done(2), done(3)];
    let mut out = [Completion::default(); 2];
    assert_eq!(jfc.poll(&mut out), Ok(2));
    assert_eq!((out[0].user_ctx, out[1].user_ctx), (1, 2));
    assert_eq!(jfc.poll_one().unwrap().unwrap().user_ctx, 3);
    assert_eq!(jfc.poll_one(), Ok(None));
    recorder.fail("poll", Status::NoDevice);
    assert_eq!(jfc.poll(&mut out), Err(Status::NoDevice));
}

#[test]
fn a_completion_tells_what_came() {
    let mut come = Completion { imm: 0x1234_5678_0000_0a00, ..Completion::default() };
    come.opcode = CrOpcode::SendInvalidate;
    assert_eq!((come.invalidated(), come.immediate()), (None, None), "of a send");
    come.flags = CompletionFlags::RECV;
    let (id, token) = come.invalidated().unwrap();
    assert_eq!((id, token), (TokenId::new(0xa00), Token::new(0x1234_5678)));
    come.opcode = CrOpcode::WriteImm;
    assert_eq!((come.immediate(), come.invalidated()), (Some(come.imm), None));
    come.payload = urma_core::InlinePayload::new(*b"hello world!", 5);
    assert_eq!(come.payload.bytes(), b"hello");
    assert_eq!(urma_core::InlinePayload::new([1; 12], 99).bytes().len(), 12);
}

#[test]
fn events_need_a_jfce_and_are_acknowledged() {
    let recorder = Recorder::new();
    let context = recorder.open();
    let jfce = context.create_jfce().unwrap();
    let mut deaf = context.create_jfc(&JfcCfg::new(8), None).unwrap();
    assert_eq!(deaf.arm(Arm::Any), Err(Status::Invalid));
    assert_eq!(deaf.ack_events(1), Err(Status::Invalid));
    let mut jfc = context.create_jfc(&JfcCfg::new(8), Some(&jfce)).unwrap();
    jfc.arm(Arm::SolicitedOnly).unwrap();
    jfc.moderate(4, 10).unwrap();
    recorder.book().events = vec![jfc.id(), jfc.id()];
    let mut out = [0; 4];
    assert_eq!(jfce.wait(&mut out, None), Ok(2));
    assert_eq!(jfce.wait(&mut out, Some(Duration::ZERO)), Ok(0));
    assert_eq!(jfc.ack_events(3), Err(Status::Invalid));
    jfc.ack_events(1).unwrap();
    let refused = jfc.delete().unwrap_err();
    assert_eq!(refused.status, Status::Again, "one event is open");
    let jfc = *refused.object;
    jfc.ack_events(1).unwrap();
    assert_eq!(jfce.delete(), Err(Status::Fail), "the JFC uses it");
    jfc.delete().unwrap();
    jfce.delete().unwrap();
    assert_eq!(recorder.calls("delete_jfce"), 1);
}

#[test]
fn a_jfc_in_use_stays() {
    let context = Recorder::new().open();
    let jfc = context.create_jfc(&JfcCfg::new(8), None).unwrap();
    let jfs = context.create_jfs(&JfsCfg::new(TransportMode::Rm, 4), &jfc).unwrap();
    let refused = jfc.delete().unwrap_err();
    assert_eq!(Status::from(refused), Status::Again);
    jfs.delete().unwrap();
}

#[test]
fn what_a_device_refuses_to_delete_stays() {
    let recorder = Recorder::new();
    let context = recorder.open();
    let jfc = context.create_jfc(&JfcCfg::new(8), None).unwrap();
    recorder.fail("delete_jfc", Status::NoDevice);
    let refused = jfc.delete().unwrap_err();
    assert_eq!(refused.status, Status::NoDevice);
    assert_eq!(refused.to_string(), Status::NoDevice.to_string());
    refused.object.delete().unwrap();
}

#[test]
fn a_group_outlives_its_members_and_is_bounded() {
    let recorder = Recorder::new();
    let context = recorder.open();
    let token = TokenPolicy::PlainText(Token::new(5));
    let cfg = GroupCfg { id: 0, policy: HintPolicy::HashHint, token };
    let group = context.create_group(&cfg).unwrap();
    assert_eq!(group.remote().policy, token);
    let jfc = context.create_jfc(&JfcCfg::new(8), None).unwrap();
    let send = JfsCfg::new(TransportMode::Rm, 4);
    let recv = JettyRecv::Own { cfg: JfrCfg::new(TransportMode::Rm, 4), jfc: &jfc };
    let cfg = JettyCfg { group: Some(&group), ..JettyCfg::new(send, &jfc, recv) };
    let members = [context.create_jetty(&cfg).unwrap(), context.create_jetty(&cfg).unwrap()];
    assert_eq!(recorder.book().last_queue.unwrap().group, Some(group.id().id));
    assert_eq!(context.create_jetty(&cfg).err(), Some(Status::NoMemory), "at most 2");
    let refused = group.delete().unwrap_err();
    assert_eq!(refused.status, Status::Again);
    drop(members);
    refused.object.delete().unwrap();
    assert_eq!(recorder.calls("delete_group"), 1);
}

#[test]
fn a_group_that_the_device_keeps_stays() {
    let recorder = Recorder::new();
    let context = recorder.open();
    let token = TokenPolicy::None;
    let cfg = GroupCfg { id: 0, policy: HintPolicy::RoundRobin, token };
    let group = context.create_group(&cfg).unwrap();
    recorder.fail("delete_group", Status::NoDevice);
    let refused = group.delete().unwrap_err();
    assert_eq!(refused.status, Status::NoDevice);
    drop(refused);
    assert_eq!(recorder.calls("delete_group"), 2, "dropping tries once more");
    context.delete().unwrap();
}

#[test]
fn a_dropped_jfc_leaves_no_open_events() {
    let recorder = Recorder::new();
    let context = recorder.open();
    let jfce = context.create_jfce().unwrap();
    let jfc = context.create_jfc(&JfcCfg::new(8), Some(&jfce)).unwrap();
    let id = jfc.id();
    recorder.book().events = vec![id];
    assert_eq!(jfce.wait(&mut [0], None), Ok(1));
    drop(jfc);
    recorder.book().next_id = id - 1;
    let next = context.create_jfc(&JfcCfg::new(8), Some(&jfce)).unwrap();
    assert_eq!(next.id(), id, "the number is given again");
    next.delete().unwrap();
}

#[test]
fn an_event_taken_after_its_jfc_was_deleted_is_not_the_next_one_s() {
    let recorder = Recorder::new();
    let context = recorder.open();
    let jfce = context.create_jfce().unwrap();
    let jfc = context.create_jfc(&JfcCfg::new(8), Some(&jfce)).unwrap();
    let id = jfc.id();
    jfc.delete().unwrap();
    recorder.book().events = vec![id];
    assert_eq!(jfce.wait(&mut [0], None), Ok(1));
    recorder.book().next_id = id - 1;
    let next = context.create_jfc(&JfcCfg::new(8), Some(&jfce)).unwrap();
    assert_eq!(next.id(), id, "the number is given again");
    next.delete().unwrap();
}

#[test]
fn groups_have_their_rules() {
    let plain = Recorder::with_caps(|caps| caps.features -= DeviceFeatures::JETTY_GRP).open();
    let none = TokenPolicy::None;
    let cfg = GroupCfg { id: 0, policy: HintPolicy::RoundRobin, token: none };
    assert_eq!(plain.create_group(&cfg).err(), Some(Status::Unsupported));
    let context = Recorder::new().open();
    let wide = GroupCfg { id: 1 << 20, ..cfg };
    assert_eq!(context.create_group(&wide).err(), Some(Status::Invalid));
    let signed = GroupCfg { token: TokenPolicy::Signed(Token::new(1)), ..cfg };
    assert_eq!(context.create_group(&signed).err(), Some(Status::Unsupported));
}
