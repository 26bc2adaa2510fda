//! context, JFCE, JFC, groups: which may live how long.
//!
//! Token ids, registering, importing, mapping.

use std::{sync::Arc, time::Duration};

use urma_core::{
    Arm, AsyncKind, Completion, CompletionFlags, Context, CrOpcode, Device, DeviceFeatures,
    GroupCfg, HintPolicy, JettyCfg, JettyRecv, JfcCfg, JfcFlags, JfrCfg, JfsCfg, Mapping,
    RemoteSegment, SegmentAccess, SegmentCfg, Status, Token, TokenId, TokenPolicy, TransportMode,
    Ubva,
};
use urma_mem::Region;

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

fn open() -> (Recorder, Context) {
    let recorder = Recorder::new();
    let context = recorder.open();
    (recorder, context)
}

fn remote() -> RemoteSegment {
    RemoteSegment {
        ubva: Ubva { eid: PEER, uasid: 7, va: 0x1000 },
        len: 4096,
        token_id: TokenId::new(0x500),
        policy: TokenPolicy::None,
        access: SegmentAccess::REMOTE_ALL,
    }
}

#[test]
fn access_rules_hold_for_every_mask() {
    let (_, context) = open();
    let region = Region::private(64).unwrap();
    for bits in 0..=u8::MAX {
        let expected = matches!(bits, 1 | 2 | 6 | 14);
        let access = SegmentAccess::from_bits_retain(bits);
        let result = context.register(&region, &SegmentCfg::new(access), None);
        assert_eq!(result.is_ok(), expected, "mask {bits:#x}");
        let imported = context.import_segment(&remote(), access, Mapping::None);
        assert_eq!(imported.is_ok(), expected && bits != 1, "mask {bits:#x}");
    }
}

#[test]
fn a_segment_has_a_token_id_of_its_own_when_none_is_given() {
    let (recorder, context) = open();
    let region = Region::private(64).unwrap();
    let cfg = SegmentCfg::new(SegmentAccess::READ).with_token(Token::new(8));
    let segment = context.register(&region, &cfg, None).unwrap();
    assert_eq!((segment.va(), segment.len()), (region.addr() as u64, 64));
    let remote = segment.remote();
    assert_eq!((remote.ubva.eid, remote.ubva.uasid, remote.ubva.va), (NODE, 7, segment.va()));
    assert_eq!((remote.policy, remote.token_id), (cfg.policy, segment.token_id()));
    segment.unregister().unwrap();
    assert_eq!((recorder.calls("unregister"), recorder.calls("free_token_id")), (1, 1));
}

#[test]
fn a_token_id_serves_one_segment_at_a_time() {
    let (recorder, context) = open();
    let region = Region::private(64).unwrap();
    let cfg = SegmentCfg::new(SegmentAccess::LOCAL_ONLY);
    let lease = context.alloc_token_id().unwrap();
    let segment = context.register(&region, &cfg, Some(&lease)).unwrap();
    assert_eq!(segment.token_id(), lease.id());
    let second = context.register(&region, &cfg, Some(&lease));
    assert_eq!(second.err(), Some(Status::Exists));
    let refused = lease.free().unwrap_err();
    assert_eq!(refused.status, Status::Invalid);
    let lease = *refused.object;
    segment.unregister().unwrap();
    assert_eq!(recorder.calls("free_token_id"), 0, "the caller holds it");
    let again = context.register(&region, &cfg, Some(&lease)).unwrap();
    drop(again);
    lease.free().unwrap();
    assert_eq!((recorder.calls("unregister"), recorder.calls("free_token_id")), (2, 1));
}

#[test]
fn a_token_id_that_the_device_keeps_stays() {
    let (recorder, context) = open();
    let lease = context.alloc_token_id().unwrap();
    recorder.fail("free_token_id", Status::NoDevice);
    let refused = lease.free().unwrap_err();
    assert_eq!(refused.status, Status::NoDevice);
    refused.object.free().unwrap();
    assert_eq!(recorder.calls("free_token_id"), 2);
}

#[test]
fn a_token_id_of_another_context_is_refused() {
    let (_, context) = open();
    let (_, other) = open();
    let lease = other.alloc_token_id().unwrap();
    let cfg = SegmentCfg::new(SegmentAccess::READ);
    let result = context.register(&Region::private(64).unwrap(), &cfg, Some(&lease));
    assert_eq!(result.err(), Some(Status::Invalid));
}

#[test]
fn failed_registrations_leave_nothing() {
    let (recorder, context) = open();
    let region = Region::private(64).unwrap();
    let cfg = SegmentCfg::new(SegmentAccess::READ);
    recorder.fail("register", Status::NoMemory);
    assert_eq!(context.register(&region, &cfg, None).err(), Some(Status::NoMemory));
    assert_eq!((recorder.calls("unregister"), recorder.calls("free_token_id")), (0, 1));
    let segment = context.register(&region, &cfg, None).unwrap();
    recorder.fail("unregister", Status::NoDevice);
    let refused = segment.unregister().unwrap_err();
    assert_eq!(refused.status, Status::NoDevice);
    drop(refused);
    context.delete().unwrap();
}

#[test]
fn an_iova_is_not_null_and_does_not_wrap() {
    let (_, context) = open();
    let region = Region::private(64).unwrap();
    let at = |iova| SegmentCfg { user_iova: Some(iova), ..SegmentCfg::new(SegmentAccess::READ) };
    assert_eq!(context.register(&region, &at(0), None).err(), Some(Status::Invalid));
    let wraps = u64::MAX - 62;
    assert_eq!(context.register(&region, &at(wraps), None).err(), Some(Status::Invalid));
    assert_eq!(context.register(&region, &at(1 << 40), None).unwrap().va(), 1 << 40);
}

#[test]
fn policies_and_flags_that_are_not_built_are_named() {
    let (_, context) = open();
    let region = Region::private(64).unwrap();
    let base = SegmentCfg::new(SegmentAccess::READ);
    for policy in [TokenPolicy::Signed(Token::new(1)), TokenPolicy::AllEncrypted(Token::new(1))] {
        let result = context.register(&region, &SegmentCfg { policy, ..base }, None);
        assert_eq!(result.err(), Some(Status::Unsupported));
        let guarded = RemoteSegment { policy, ..remote() };
        let result = context.import_segment(&guarded, SegmentAccess::READ, Mapping::None);
        assert_eq!(result.err(), Some(Status::Unsupported));
    }
    let non_pin = SegmentCfg { non_pin: true, ..base };
    assert!(context.register(&region, &non_pin, None).is_ok());
    let poor = Recorder::with_caps(|caps| caps.features -= DeviceFeatures::NON_PIN).open();
    assert_eq!(poor.register(&region, &non_pin, None).err(), Some(Status::Unsupported));
}

#[test]
fn an_import_is_a_sound_range() {
    let (recorder, context) = open();
    let at = |va, len| RemoteSegment { ubva: Ubva { va, ..remote().ubva }, len, ..remote() };
    for bad in [at(0, 8), at(8, 0), at(u64::MAX, 2)] {
        let result = context.import_segment(&bad, SegmentAccess::READ, Mapping::None);
        assert_eq!(result.err(), Some(Status::Invalid));
    }
    assert_eq!(recorder.calls("connect"), 0, "refused before anything was asked");
    let good = context.import_segment(&remote(), SegmentAccess::READ, Mapping::None).unwrap();
    assert_eq!((good.ubva(), good.len()), (remote().ubva, 4096));
    assert!(good.region().is_none());
    good.unimport();
    assert_eq!((recorder.calls("connect"), recorder.calls("disconnect")), (1, 1));
}

#[test]
fn a_mapping_is_given_or_named_as_missing() {
    let (recorder, context) = open();
    let all = SegmentAccess::REMOTE_ALL;
    let mapped = context.import_segment(&remote(), all, Mapping::LoadStore).unwrap();
    let region = mapped.region().unwrap();
    region.store_u64(8, 5).unwrap();
    assert_eq!((region.load_u64(8), region.len()), (Ok(5), 4096));
    recorder.fail("map", Status::NoPermission);
    let denied = context.import_segment(&remote(), all, Mapping::LoadStore);
    assert_eq!(denied.err(), Some(Status::NoPermission));
    assert_eq!(recorder.calls("disconnect"), 1, "a failed import closes its path");
    let poor = Recorder::with_caps(|caps| caps.features -= DeviceFeatures::LOAD_STORE).open();
    let result = poor.import_segment(&remote(), all, Mapping::LoadStore);
    assert_eq!(result.err(), Some(Status::Unsupported));
}
