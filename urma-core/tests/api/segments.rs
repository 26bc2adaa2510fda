//! Token ids, registering, importing, mapping.

use urma_core::{
    Context, DeviceFeatures, Mapping, RemoteSegment, SegmentAccess, SegmentCfg, Status, Token,
    TokenId, TokenPolicy, Ubva,
};
use urma_mem::Region;

use crate::recorder::{NODE, PEER, Recorder};

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
