//! What becomes of posted work when its objects go.

use std::{fs, os::unix::fs::MetadataExt, thread, time::Duration};

use urma_core::{
    CrStatus, Mapping, RecvWr, RemoteJetty, SegmentAccess, SegmentCfg, SendOp, SendWr,
};
use urma_examples::MEMORY_LEN;
use urma_mem::{Pages, Region};

use crate::{LIMIT, ends, receive, send, target};

#[test]
fn a_receive_whose_segment_went_places_nothing() {
    let (mut here, mut there) = ends();
    let to_there = target(&here, &there);
    receive(&mut there, 5);
    drop(there.segment);
    here.memory.write(0, b"too late").unwrap();
    send(&mut here, &to_there, 8, 1);

    let come = there.completions.wait(LIMIT).unwrap().unwrap();
    assert_eq!((come.user_ctx, come.status), (5, CrStatus::LocAccess));
    assert_eq!(there.memory.load_u64(0).unwrap(), 0);
    let sent = here.completions.wait(LIMIT).unwrap().unwrap();
    assert!(sent.user_ctx == 1 && !sent.status.is_success(), "{sent:?}");
}

#[test]
fn a_message_whose_segment_went_sends_what_was_read_before_or_nothing() {
    let (mut here, mut there) = ends();
    let to_there = target(&here, &there);
    here.memory.write(0, b"before it").unwrap();
    // Without a receive the message waits and is sent again.
    send(&mut here, &to_there, 9, 1);
    drop(here.segment);
    here.memory.write(0, b"after it!").unwrap();
    receive(&mut there, 5);

    let sent = here.completions.wait(LIMIT).unwrap().unwrap();
    let mut bytes = [0; 9];
    there.memory.read(0, &mut bytes).unwrap();
    match sent.status {
        CrStatus::Success => assert_eq!(&bytes, b"before it"),
        status => assert_eq!((status, bytes), (CrStatus::LocAccess, [0; 9])),
    }
}

#[test]
fn a_write_to_a_segment_that_went_is_refused() {
    let (mut here, there) = ends();
    let to_there = target(&here, &there);
    let (exported, all) = (there.segment.remote(), SegmentAccess::REMOTE_ALL);
    let remote = here.context.import_segment(&exported, all, Mapping::None).unwrap();
    there.segment.unregister().unwrap();

    here.memory.write(0, b"too late").unwrap();
    let src = [here.segment.sge(0, 8)];
    let op = SendOp::Write { src: &src, dst: remote.at(0) };
    here.jetty.post_send(&[SendWr::new(op, &to_there, 1)]).unwrap();
    let done = here.completions.wait(LIMIT).unwrap().unwrap();
    assert_eq!(done.status, CrStatus::RemAccessAbort);
    assert_eq!(there.memory.load_u64(0).unwrap(), 0);
}

/// How often this process maps the file with this inode number.
fn mappings(inode: u64) -> usize {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let inodes = maps.lines().filter_map(|line| line.split_whitespace().nth(4));
    inodes.filter(|field| *field == inode.to_string()).count()
}

#[test]
#[expect(clippy::disallowed_methods, reason = "an unmapping wakes no thread")]
fn memory_lives_as_long_as_its_segment_and_no_longer() {
    let (mut here, there) = ends();
    let to_there = target(&here, &there);
    let memory = Region::shared(MEMORY_LEN, Pages::Base).unwrap();
    let (fd, _) = memory.fd().unwrap();
    let file = fs::File::from(fd.try_clone_to_owned().unwrap());
    let inode = file.metadata().unwrap().ino();

    let segment =
        there.context.register(&memory, &SegmentCfg::new(SegmentAccess::REMOTE_ALL), None).unwrap();
    // The program forgets its memory; the segment keeps it for the peers.
    drop(memory);
    let (exported, all) = (segment.remote(), SegmentAccess::REMOTE_ALL);
    let remote = here.context.import_segment(&exported, all, Mapping::None).unwrap();
    here.memory.write(0, b"kept").unwrap();
    let src = [here.segment.sge(0, 4)];
    let op = SendOp::Write { src: &src, dst: remote.at(8) };
    here.jetty.post_send(&[SendWr::new(op, &to_there, 1)]).unwrap();
    assert!(here.completions.wait(LIMIT).unwrap().unwrap().status.is_success());
    let mut bytes = [0; 4];
    segment.region().read(8, &mut bytes).unwrap();
    assert_eq!(&bytes, b"kept");
    assert!(mappings(inode) > 0);

    // No other part holds it: neither driver nor device keeps a mapping of what was withdrawn. The peer's node looks once a
    // second whether segments of mapped files ended.
    drop(segment);
    let is_gone = (0..6000).any(|_| {
        thread::sleep(Duration::from_millis(10));
        mappings(inode) == 0
    });
    assert!(is_gone, "the file stays mapped");
}

#[test]
fn a_jetty_that_goes_gives_its_requests_back() {
    let (here, mut there) = ends();
    receive(&mut there, 5);
    receive(&mut there, 6);
    drop(there.jetty);
    for user_ctx in [5, 6] {
        let come = there.completions.wait(LIMIT).unwrap().unwrap();
        assert_eq!((come.user_ctx, come.status), (user_ctx, CrStatus::WrFlush));
    }
    drop(here);
}

#[test]
fn a_queue_works_on_without_its_jfc_and_context_handles() {
    let (mut here, mut there) = ends();
    let to_there = target(&here, &there);
    receive(&mut there, 5);
    drop((there.context, there.completions));
    here.memory.write(0, b"still on").unwrap();
    send(&mut here, &to_there, 8, 1);
    assert!(here.completions.wait(LIMIT).unwrap().unwrap().status.is_success());
    let mut bytes = [0; 8];
    there.memory.read(0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"still on");

    // More completions than the JFC holds: without a poll, and without a crash.
    for user_ctx in 0..100 {
        let dst = [there.segment.sge(0, 64)];
        if there.jetty.post_recv(&[RecvWr { dst: &dst, user_ctx }]).is_err() {
            break;
        }
    }
    drop(there.jetty);
}

#[test]
fn a_target_may_go_while_its_message_waits() {
    let (mut here, mut there) = ends();
    let to_there = target(&here, &there);
    send(&mut here, &to_there, 8, 1);
    drop(to_there);
    receive(&mut there, 5);
    assert_eq!(there.completions.wait(LIMIT).unwrap().unwrap().user_ctx, 5);
    assert!(here.completions.wait(LIMIT).unwrap().unwrap().status.is_success());
}

#[test]
fn a_peer_that_goes_ends_the_message_that_waits_for_it() {
    let (mut here, there) = ends();
    let peer: RemoteJetty = there.jetty.remote();
    let to_there = here.context.import_jetty(&peer).unwrap();
    send(&mut here, &to_there, 8, 1);
    drop(there);
    let sent = here.completions.wait(LIMIT).unwrap().unwrap();
    assert!(sent.user_ctx == 1 && !sent.status.is_success(), "{sent:?}");
}
