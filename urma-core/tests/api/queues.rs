//! Creating queues: limits, modes and orders, shared JFRs, tokens, binding, import.
//!
//! Drains and waits against the recorder: what they poll, arm and acknowledge.

use std::time::Duration;

use urma_core::{
    Completion, Completions, Context, DeviceFeatures, Eid, Jetty, JettyCfg, JettyId, JettyRecv,
    JettyState, Jfc, JfcCfg, JfrCfg, JfsCfg, ModeSet, OrderType, RemoteJetty, SendFlags,
    SharedRecv, Status, TargetJetty, TargetKind, Token, TokenPolicy, TpType,
    TransportMode::{self, Rc, Rm, Um},
};

use crate::recorder::{PEER, Recorder};

fn open() -> (Recorder, Context, Jfc) {
    let recorder = Recorder::new();
    let context = recorder.open();
    let jfc = context.create_jfc(&JfcCfg::new(8), None).unwrap();
    (recorder, context, jfc)
}

fn remote(mode: TransportMode) -> RemoteJetty {
    RemoteJetty {
        id: JettyId { eid: PEER, uasid: 7, id: 77 },
        kind: TargetKind::Jetty,
        mode,
        order: OrderType::Default,
        policy: TokenPolicy::None,
        tp: TpType::of(mode),
    }
}

fn jetty(context: &Context, jfc: &Jfc, send: JfsCfg) -> Jetty {
    let recv = JfrCfg { order: send.order, ..JfrCfg::new(send.mode, 4) };
    let cfg = JettyCfg::new(send, jfc, JettyRecv::Own { cfg: recv, jfc });
    context.create_jetty(&cfg).unwrap()
}

#[test]
fn each_limit_of_a_send_queue_holds() {
    let (_, context, jfc) = open();
    let base = JfsCfg::new(Rm, 4);
    let cases: [(&str, JfsCfg, JfsCfg); 7] = [
        ("depth", JfsCfg { depth: 64, ..base }, JfsCfg { depth: 65, ..base }),
        ("sge", JfsCfg { max_sge: 4, ..base }, JfsCfg { max_sge: 5, ..base }),
        ("rsge", JfsCfg { max_rsge: 2, ..base }, JfsCfg { max_rsge: 3, ..base }),
        ("inline", JfsCfg { max_inline: 128, ..base }, JfsCfg { max_inline: 129, ..base }),
        ("priority", JfsCfg { priority: 15, ..base }, JfsCfg { priority: 16, ..base }),
        ("rnr_retry", JfsCfg { rnr_retry: 7, ..base }, JfsCfg { rnr_retry: 8, ..base }),
        ("err_timeout", JfsCfg { err_timeout: 31, ..base }, JfsCfg { err_timeout: 32, ..base }),
    ];
    for (name, good, bad) in cases {
        assert!(context.create_jfs(&good, &jfc).is_ok(), "{name}");
        assert_eq!(context.create_jfs(&bad, &jfc).err(), Some(Status::Invalid), "{name}");
    }
    let empty = JfsCfg { depth: 0, ..base };
    assert_eq!(context.create_jfs(&empty, &jfc).err(), Some(Status::Invalid));
}

#[test]
fn each_limit_of_a_receive_queue_holds() {
    let (_, context, jfc) = open();
    let base = JfrCfg::new(Rm, 4);
    let id_max = (1 << 20) - 1;
    let cases: [(&str, JfrCfg, JfrCfg); 4] = [
        ("depth", JfrCfg { depth: 32, ..base }, JfrCfg { depth: 33, ..base }),
        ("sge", JfrCfg { max_sge: 3, ..base }, JfrCfg { max_sge: 4, ..base }),
        ("timer", JfrCfg { min_rnr_timer: 31, ..base }, JfrCfg { min_rnr_timer: 32, ..base }),
        ("id", JfrCfg { id: id_max, ..base }, JfrCfg { id: id_max + 1, ..base }),
    ];
    for (name, good, bad) in cases {
        assert!(context.create_jfr(&good, &jfc).is_ok(), "{name}");
        assert_eq!(context.create_jfr(&bad, &jfc).err(), Some(Status::Invalid), "{name}");
    }
    let jfr = context.create_jfr(&JfrCfg { id: 5, ..base }, &jfc).unwrap();
    assert_eq!(jfr.id().id, 5);
}

#[test]
fn order_types_fit_their_modes() {
    use OrderType::{Default, No, Oi, Ol, Ot};
    let (recorder, context, jfc) = open();
    let table = [
        (Rm, [Some(Oi), None, Some(Oi), None, None]),
        (Rc, [Some(Ol), Some(Ot), None, Some(Ol), Some(No)]),
        (Um, [Some(No), None, None, None, Some(No)]),
    ];
    for (mode, row) in table {
        for (order, expected) in [Default, Ot, Oi, Ol, No].into_iter().zip(row) {
            let send = JfsCfg { order, ..JfsCfg::new(mode, 4) };
            let made = context.create_jfs(&send, &jfc).ok().map(|jfs| jfs.order());
            assert_eq!(made, expected, "{mode:?} {order:?}");
            let recv = JfrCfg { order, ..JfrCfg::new(mode, 4) };
            let made = context.create_jfr(&recv, &jfc).ok().map(|jfr| jfr.order());
            assert_eq!(made, expected, "{mode:?} {order:?}");
            if let Some(order) = expected {
                assert_eq!(recorder.book().last_queue.unwrap().order, order);
            }
        }
    }
}

#[test]
fn modes_and_flags_need_their_features() {
    let poor = Recorder::with_caps(|caps| {
        caps.modes = ModeSet::RM;
        caps.features -= DeviceFeatures::ERROR_SUSPEND | DeviceFeatures::OUTORDER_COMP;
    });
    let context = poor.open();
    let jfc = context.create_jfc(&JfcCfg::new(8), None).unwrap();
    let unsupported = Some(Status::Unsupported);
    assert_eq!(context.create_jfs(&JfsCfg::new(Rc, 4), &jfc).err(), unsupported);
    assert_eq!(context.create_jfr(&JfrCfg::new(Um, 4), &jfc).err(), unsupported);
    assert_eq!(context.import_jetty(&remote(Rc)).err(), unsupported);
    let (_, rich, rich_jfc) = open();
    for flags in [SendFlags::ERROR_SUSPEND, SendFlags::OUTORDER_COMP] {
        let cfg = JfsCfg { flags, ..JfsCfg::new(Rm, 4) };
        assert_eq!(context.create_jfs(&cfg, &jfc).err(), unsupported);
        assert!(rich.create_jfs(&cfg, &rich_jfc).is_ok());
    }
}

#[test]
fn objects_of_two_contexts_do_not_mix() {
    let (_, context, _) = open();
    let (_, _other, jfc) = open();
    let invalid = Some(Status::Invalid);
    assert_eq!(context.create_jfs(&JfsCfg::new(Rm, 4), &jfc).err(), invalid);
    assert_eq!(context.create_jfr(&JfrCfg::new(Rm, 4), &jfc).err(), invalid);
}

#[test]
fn a_shared_jfr_must_be_alike_and_outlives_its_jetties() {
    let (recorder, context, jfc) = open();
    let token = TokenPolicy::PlainText(Token::new(9));
    let jfr = context.create_jfr(&JfrCfg { policy: token, ..JfrCfg::new(Rc, 4) }, &jfc).unwrap();
    let with = |send| JettyCfg::new(send, &jfc, JettyRecv::Shared { jfr: &jfr, jfc: None });
    let jetty = context.create_jetty(&with(JfsCfg::new(Rc, 4))).unwrap();
    let queue = recorder.book().last_queue.unwrap();
    assert_eq!(queue.shared, Some(SharedRecv { jfr: jfr.id().id, jfc: jfc.id() }));
    assert_eq!((queue.token, queue.recv), (Some(Token::new(9)), None));
    assert_eq!(jetty.remote().policy, token);
    let other_mode = with(JfsCfg::new(Rm, 4));
    assert_eq!(context.create_jetty(&other_mode).err(), Some(Status::Invalid));
    let other_order = with(JfsCfg { order: OrderType::Ot, ..JfsCfg::new(Rc, 4) });
    assert_eq!(context.create_jetty(&other_order).err(), Some(Status::Invalid));
    let refused = jfr.delete().unwrap_err();
    assert_eq!(refused.status, Status::Again);
    jetty.delete().unwrap();
    refused.object.delete().unwrap();
}

#[test]
fn a_shared_jfr_takes_no_receives_of_a_jetty() {
    let (_, context, jfc) = open();
    let jfr = context.create_jfr(&JfrCfg::new(Rm, 4), &jfc).unwrap();
    let recv = JettyRecv::Shared { jfr: &jfr, jfc: None };
    let cfg = JettyCfg::new(JfsCfg::new(Rm, 4), &jfc, recv);
    let mut jetty = context.create_jetty(&cfg).unwrap();
    assert_eq!(jetty.post_recv(&[]).unwrap_err().index, 0);
    assert_eq!(jetty.set_rx_threshold(1), Err(Status::Invalid));
}

#[test]
fn a_jetty_has_one_id() {
    let (recorder, context, jfc) = open();
    let own = |id| JettyRecv::Own { cfg: JfrCfg { id, ..JfrCfg::new(Rm, 4) }, jfc: &jfc };
    let base = JettyCfg::new(JfsCfg::new(Rm, 4), &jfc, own(0));
    let made = context.create_jetty(&JettyCfg { id: 6, ..base }).unwrap();
    assert_eq!(made.id().id, 6);
    recorder.fail("create_queue", Status::Exists);
    assert_eq!(context.create_jetty(&base).err(), Some(Status::Exists));
    let two = JettyCfg { recv: own(6), ..base };
    assert_eq!(context.create_jetty(&two).err(), Some(Status::Invalid));
    let wide = JettyCfg { id: 1 << 20, ..base };
    assert_eq!(context.create_jetty(&wide).err(), Some(Status::Invalid));
}

#[test]
fn only_built_token_policies_are_taken() {
    let (recorder, context, jfc) = open();
    let with = |policy| JfrCfg { policy, ..JfrCfg::new(Rm, 4) };
    let token = Token::new(3);
    for policy in [TokenPolicy::Signed(token), TokenPolicy::AllEncrypted(token)] {
        let result = context.create_jfr(&with(policy), &jfc);
        assert_eq!(result.err(), Some(Status::Unsupported));
        let guarded = RemoteJetty { policy, ..remote(Rm) };
        assert_eq!(context.import_jetty(&guarded).err(), Some(Status::Unsupported));
    }
    context.create_jfr(&with(TokenPolicy::PlainText(token)), &jfc).unwrap();
    assert_eq!(recorder.book().last_queue.unwrap().token, Some(token));
    context.create_jfr(&with(TokenPolicy::None), &jfc).unwrap();
    assert_eq!(recorder.book().last_queue.unwrap().token, None);
}

#[test]
fn states_and_thresholds_reach_the_device() {
    let (recorder, context, jfc) = open();
    let mut jfr = context.create_jfr(&JfrCfg::new(Rm, 4), &jfc).unwrap();
    assert_eq!(jfr.modify(JettyState::Suspended), Err(Status::Invalid));
    jfr.modify(JettyState::Error).unwrap();
    jfr.set_rx_threshold(4).unwrap();
    assert_eq!(jfr.set_rx_threshold(5), Err(Status::Invalid));
    assert_eq!(jfr.query().unwrap().recv_pending, 1);
    assert_eq!(jfr.flush(&mut [Completion::default()]), Ok(5));
    let jetty = jetty(&context, &jfc, JfsCfg::new(Rm, 4));
    jetty.modify(JettyState::Suspended).unwrap();
    jetty.set_rx_threshold(1).unwrap();
    assert_eq!((recorder.calls("modify"), recorder.calls("threshold")), (2, 2));
}

#[test]
fn imports_have_their_rules() {
    let (_, context, _) = open();
    let invalid = Some(Status::Invalid);
    let um_reliable = RemoteJetty { tp: TpType::Rtp, ..remote(Um) };
    assert_eq!(context.import_jetty(&um_reliable).err(), invalid);
    for mode in [Rm, Rc] {
        let unreliable = RemoteJetty { tp: TpType::Utp, ..remote(mode) };
        assert_eq!(context.import_jetty(&unreliable).err(), invalid);
        assert!(context.import_jetty(&remote(mode)).is_ok());
    }
    assert!(context.import_jetty(&remote(Um)).is_ok());
    let compact = RemoteJetty { tp: TpType::Ctp, ..remote(Rm) };
    assert_eq!(context.import_jetty(&compact).err(), Some(Status::Unsupported));
    let with_id = |id| RemoteJetty { id, ..remote(Rm) };
    let base = remote(Rm).id;
    for id in [
        JettyId { id: 0, ..base },
        JettyId { id: 1 << 20, ..base },
        JettyId { eid: Eid::default(), ..base },
    ] {
        assert_eq!(context.import_jetty(&with_id(id)).err(), invalid);
    }
    let order = RemoteJetty { order: OrderType::Ol, ..remote(Rm) };
    assert_eq!(context.import_jetty(&order).err(), invalid);
}

#[test]
fn the_way_goes_with_its_last_user() {
    let (recorder, context, jfc) = open();
    let mut jetty = jetty(&context, &jfc, JfsCfg::new(Rc, 4));
    let target = context.import_jetty(&remote(Rc)).unwrap();
    jetty.bind(&target).unwrap();
    target.unimport();
    assert_eq!(recorder.calls("disconnect"), 0, "the binding needs it");
    jetty.unbind().unwrap();
    assert_eq!(recorder.calls("disconnect"), 1);
    recorder.fail("connect", Status::Unreachable);
    assert_eq!(context.import_jetty(&remote(Rc)).err(), Some(Status::Unreachable));
    assert_eq!(recorder.calls("disconnect"), 1);
}

#[test]
fn binding_needs_rc_and_one_order_on_both_sides() {
    let (recorder, context, jfc) = open();
    let import = |remote: RemoteJetty| -> TargetJetty { context.import_jetty(&remote).unwrap() };
    let mut rm = jetty(&context, &jfc, JfsCfg::new(Rm, 4));
    let mut rc = jetty(&context, &jfc, JfsCfg::new(Rc, 4));
    assert_eq!(rm.bind(&import(remote(Rc))), Err(Status::NoPermission));
    assert_eq!(rm.bind(&import(remote(Rm))), Err(Status::NoPermission));
    assert_eq!(rc.bind(&import(remote(Rm))), Err(Status::NoPermission));
    let target_order = RemoteJetty { order: OrderType::Ot, ..remote(Rc) };
    assert_eq!(rc.bind(&import(target_order)), Err(Status::NoPermission));
    let jfr = RemoteJetty { kind: TargetKind::Jfr, ..remote(Rc) };
    assert_eq!(rc.bind(&import(jfr)), Err(Status::Invalid));
    assert_eq!(rc.unbind(), Err(Status::Invalid));
    assert_eq!(recorder.calls("bind"), 0);
    recorder.fail("bind", Status::TimedOut);
    assert_eq!(rc.bind(&import(remote(Rc))), Err(Status::TimedOut));
    assert!(rc.bound().is_none(), "a failed bind leaves nothing");
    rc.bind(&import(remote(Rc))).unwrap();
    assert_eq!(rc.bind(&import(remote(Rc))), Err(Status::Exists));
    assert_eq!(rc.bound().unwrap().id.id, 77);
    rc.unbind().unwrap();
}

#[test]
fn only_rm_is_advised() {
    let (_, context, jfc) = open();
    let rm = jetty(&context, &jfc, JfsCfg::new(Rm, 4));
    let rc = jetty(&context, &jfc, JfsCfg::new(Rc, 4));
    let jfs = context.create_jfs(&JfsCfg::new(Rm, 4), &jfc).unwrap();
    let (to_rm, to_rc) =
        (context.import_jetty(&remote(Rm)).unwrap(), context.import_jetty(&remote(Rc)).unwrap());
    rm.advise(&to_rm).unwrap();
    rm.unadvise(&to_rm).unwrap();
    jfs.advise(&to_rm).unwrap();
    assert_eq!(rm.advise(&to_rc), Err(Status::Invalid));
    assert_eq!(rc.advise(&to_rm), Err(Status::Invalid));
    assert_eq!(jfs.advise(&to_rc), Err(Status::Invalid));
    let (_, other, _other_jfc) = open();
    assert_eq!(rm.advise(&other.import_jetty(&remote(Rm)).unwrap()), Err(Status::Invalid));
}

#[test]
fn remote_says_what_a_peer_needs() {
    let (_, context, jfc) = open();
    let um = context.create_jfr(&JfrCfg::new(Um, 4), &jfc).unwrap();
    let remote = um.remote();
    assert_eq!((remote.id, remote.kind, remote.tp), (um.id(), TargetKind::Jfr, TpType::Utp));
    assert_eq!(remote.order, OrderType::No);
    let target = context.import_jetty(&remote).unwrap();
    assert_eq!(target.target().id, um.id());
}

fn completion(user_ctx: u64) -> Completion {
    Completion { user_ctx, ..Completion::default() }
}

fn fill(recorder: &Recorder, contexts: std::ops::Range<u64>) {
    recorder.book().completions.extend(contexts.map(completion));
}

fn open_recorder(recorder: &Recorder, depth: u32) -> (Context, Completions) {
    let context = recorder.open();
    let completions = context.create_completions(&JfcCfg::new(depth)).unwrap();
    (context, completions)
}

#[test]
fn a_drain_gives_what_is_there_up_to_the_depth() {
    let recorder = Recorder::new();
    let (_context, mut completions) = open_recorder(&recorder, 40);
    assert_eq!(completions.drain().count(), 0);
    fill(&recorder, 0..50);
    let one_by_one: Vec<_> = completions.drain().map(|one| one.unwrap().user_ctx).collect();
    assert_eq!(one_by_one, (0..40).collect::<Vec<_>>());
    assert_eq!(completions.drain().count(), 10);
}

#[test]
fn a_drain_that_is_dropped_loses_nothing() {
    let recorder = Recorder::new();
    let (_context, mut completions) = open_recorder(&recorder, 8);
    fill(&recorder, 0..3);
    assert_eq!(completions.drain().next(), Some(Ok(completion(0))));
    assert_eq!(completions.drain().next(), Some(Ok(completion(1))));
    let mut drain = completions.drain();
    assert_eq!((drain.next(), drain.next()), (Some(Ok(completion(2))), None));
    // Ended is ended, for this drain.
    fill(&recorder, 3..4);
    assert_eq!(drain.next(), None);
    assert_eq!(completions.drain().next(), Some(Ok(completion(3))));
}

#[test]
fn a_whole_drain_polls_in_batches() {
    let recorder = Recorder::new();
    let (_context, mut completions) = open_recorder(&recorder, 40);
    fill(&recorder, 0..50);
    let mut came = Vec::new();
    completions.drain().for_each(|one| came.push(one.unwrap().user_ctx));
    assert_eq!(came, (0..40).collect::<Vec<_>>());
    assert_eq!(recorder.calls("poll"), 3);
}

#[test]
fn an_error_ends_a_drain() {
    let recorder = Recorder::new();
    let (_context, mut completions) = open_recorder(&recorder, 8);
    fill(&recorder, 0..3);
    recorder.fail("poll", Status::NoDevice);
    let mut drain = completions.drain();
    assert_eq!((drain.next(), drain.next()), (Some(Err(Status::NoDevice)), None));
    recorder.fail("poll", Status::NoDevice);
    let came = completions.drain().fold(Vec::new(), |mut came, one| {
        came.push(one);
        came
    });
    assert_eq!(came, [Err(Status::NoDevice)]);
    assert_eq!(completions.drain().count(), 3);
}

#[test]
fn a_wait_arms_only_when_nothing_is_there_and_only_once() {
    let recorder = Recorder::new();
    let (_context, mut completions) = open_recorder(&recorder, 8);
    fill(&recorder, 0..1);
    assert_eq!(completions.wait(None).unwrap(), Some(completion(0)));
    assert_eq!(recorder.calls("arm"), 0);
    for _ in 0..3 {
        assert_eq!(completions.wait(Some(Duration::ZERO)).unwrap(), None);
    }
    assert_eq!(recorder.calls("arm"), 1);
}

#[test]
fn a_wait_acknowledges_its_events_and_passes_over_stale_ones() {
    let recorder = Recorder::new();
    let (context, mut completions) = open_recorder(&recorder, 8);
    let id = completions.jfc().id();
    recorder.book().events = vec![id, id];
    assert_eq!(completions.wait(Some(Duration::ZERO)).unwrap(), None);
    assert_eq!(recorder.calls("arm"), 3);
    // A device that makes events of nothing keeps no thread forever.
    recorder.book().events = vec![id; 1000];
    assert_eq!(completions.wait(None).unwrap(), None);
    assert!(recorder.book().events.len() > 900);
    recorder.fail("arm", Status::NoDevice);
    assert_eq!(completions.wait(None), Err(Status::NoDevice));
    recorder.fail("poll", Status::NoDevice);
    assert_eq!(completions.wait(None), Err(Status::NoDevice));
    // All were acknowledged, so it can be deleted.
    completions.delete().unwrap();
    context.delete().unwrap();
}

#[test]
fn a_completion_that_is_announced_too_early_is_waited_for() {
    let recorder = Recorder::new();
    let (_context, mut completions) = open_recorder(&recorder, 8);
    let id = completions.jfc().id();
    recorder.book().events = vec![id; 8];
    fill(&recorder, 7..8);
    recorder.book().hidden_for = 30;
    assert_eq!(completions.wait(Some(Duration::from_secs(60))).unwrap(), Some(completion(7)));
    // A wait that ends without one has asked for the next event: its descriptor is waited on.
    recorder.book().events = vec![id; 8];
    let armed = recorder.calls("arm");
    assert_eq!(completions.wait(Some(Duration::ZERO)).unwrap(), None);
    assert_eq!((recorder.calls("arm"), recorder.book().events.len()), (armed + 9, 0));
}

#[test]
fn completions_with_a_queue_stay() {
    let recorder = Recorder::new();
    let (context, completions) = open_recorder(&recorder, 8);
    let cfg = JfsCfg::new(Rm, 8);
    let jfs = context.create_jfs(&cfg, completions.jfc()).unwrap();
    let refused = completions.delete().unwrap_err();
    assert_eq!((refused.status, recorder.calls("delete_jfc")), (Status::Again, 0));
    let mut completions = *refused.object;
    fill(&recorder, 0..1);
    assert_eq!(completions.wait(None).unwrap(), Some(completion(0)));
    jfs.delete().unwrap();
    completions.delete().unwrap();
    assert_eq!((recorder.calls("delete_jfc"), context.live_objects()), (1, 0));
}
