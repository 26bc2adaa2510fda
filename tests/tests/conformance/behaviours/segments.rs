//! Segments: registration, access, bounds, revocation, mapping.

use urma_core::{
    CrStatus, ImportedSegment, LocalSge, Mapping, RemoteAddr, RemoteSegment, Segment,
    SegmentAccess, SegmentCfg, SendOp, Status, Token,
};
use urma_mem::WordAtomic;
use urma_tests::world::{
    Host, Memory, NO_MAPPING, Outcome, Plan, Setup, World, check, pattern, refused, same, until,
};

super::behaviours! {
    Good reliable registration_keeps_content: "Registering and unregistering leave the bytes as they were.";
    Good reliable owner_and_peer_see_each_other: "After registration the owner's stores are read by the peer and the peer's writes by the owner.";
    Good reliable overlapping_segments_work: "Segments that overlap carry requests, also when one of them is gone.";
    Good reliable unaligned_segment_works: "A segment may begin and end anywhere in a page.";
    Good reliable user_iova_addresses: "With a user IOVA requests address the segment from there.";
    Good reliable local_only_memory_is_a_source: "LOCAL_ONLY memory is a source and destination of its own node's requests.";
    Good reliable cacheable_segment_works: "A cacheable segment carries requests.";
    Good reliable non_pin_segment_works: "A segment that the device need not pin carries requests.";
    Good rm register_many: "Hundreds of segments live at the same time and are all reached.";
    Good rm_shared_memory mapping_sees_both_ways: "Through a mapped import loads see the owner's stores and stores and atomics reach the owner.";
    Bad rm_shared_memory mapping_of_a_readable_segment_takes_no_stores: "A mapped import of a segment that grants READ alone shows its bytes and takes no stores.";
    Bad rm_shared_memory mapping_left_after_unregister_reaches_no_memory: "Stores through a mapping that is left after its owner unregistered reach no memory, and do not fault.";
    Bad rm_shared_memory mapping_outlives_its_peer: "A mapping stays readable after its peer closed, until it is unimported.";
    Bad rm_packets mapping_over_packets_is_unsupported: "A mapped import over packets is refused as unsupported.";
    Bad rm access_mask_rules: "Registering with access that breaks the rules is refused.";
    Bad rm impossible_iova_is_refused: "A user IOVA of 0 or one that wraps is refused.";
    Bad rm local_only_is_not_imported: "Importing for LOCAL_ONLY access is refused.";
    Bad reliable write_without_grant: "A WRITE to memory that was granted for reading only ends as access refused; nothing changes.";
    Bad reliable read_without_grant: "A READ of LOCAL_ONLY memory ends as access refused; nothing arrives.";
    Bad reliable atomic_without_grant: "An atomic on memory granted for writing only ends as access refused; nothing changes.";
    Bad reliable notify_without_grant: "A WRITE_NOTIFY whose notify address is not granted ends as access refused.";
    Bad reliable one_byte_beyond_the_end: "A request that reaches one byte beyond its segment is refused on every operation.";
    Bad reliable one_byte_before_the_start: "A request that begins one byte before its segment is refused on every operation.";
    Bad rm range_that_wraps_is_refused: "A remote range that wraps, that is empty or that begins at 0 is refused by import.";
    Bad any local_range_outside_is_refused: "A local SGE that leaves its segment by one byte at either end is refused by post.";
    Bad reliable unregistered_segment_is_closed: "Requests on an unregistered segment end as access refused; nothing is placed.";
    Bad reliable reused_token_id_is_not_the_old_segment: "A peer's import of an old segment does not reach the new one under the same token id: at another address, or behind another token.";
    Bad reliable unregister_under_traffic: "After unregister returned no byte is placed, and the remaining requests end with errors.";
}

const ANY: SegmentAccess = SegmentAccess::REMOTE_ALL;

/// Memory of B with a registration of its own, as A imports it.
struct Spare {
    mem: Memory,
    seg: Segment,
    imported: ImportedSegment,
}

impl Spare {
    fn new(w: &World, len: usize, access: SegmentAccess) -> Outcome<Self> {
        Self::with(w, len, &SegmentCfg::new(access), |_| {})
    }

    fn with(
        w: &World,
        len: usize,
        cfg: &SegmentCfg,
        lie: impl FnOnce(&mut RemoteSegment),
    ) -> Outcome<Self> {
        let mem = Memory::new(len)?;
        let seg = w.b.half.ctx.register(mem.region(), cfg, None)?;
        let mut remote = seg.remote();
        lie(&mut remote);
        let imported = w.a.half.ctx.import_segment(&remote, ANY, NO_MAPPING)?;
        Ok(Self { mem, seg, imported })
    }

    fn at(&self, offset: usize) -> RemoteAddr<'_> {
        RemoteAddr { segment: &self.imported, addr: self.imported.va() + offset as u64 }
    }
}

/// WRITE of A's first `len` bytes to a place; its status.
fn write_to(w: &mut World, dst: RemoteAddr<'_>, len: usize) -> Outcome<CrStatus> {
    let ctx = w.a.fresh_ctx();
    let (jetty, kit) = w.a.parts();
    let src = [kit.sge(0, len)];
    jetty.post_send(&[kit.wr(SendOp::Write { src: &src, dst }, ctx)])?;
    let done = w.a.sent()?;
    same("user context", done.user_ctx, ctx)?;
    Ok(done.status)
}

fn registration_keeps_content(setup: Setup) -> Outcome {
    let w = World::new(setup)?;
    let mem = Memory::new(5 * 4096)?;
    let bytes = pattern(3, 5 * 4096);
    mem.put(0, &bytes)?;
    for _ in 0..5 {
        let seg = w.b.half.ctx.register(mem.region(), &SegmentCfg::new(ANY), None)?;
        check(mem.take(0, bytes.len())? == bytes, "registering changed the bytes")?;
        seg.unregister()?;
        check(mem.take(0, bytes.len())? == bytes, "unregistering changed the bytes")?;
    }
    Ok(())
}

fn owner_and_peer_see_each_other(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    for value in 1..100_u64 {
        w.b.mem().set_word(8192, value)?;
        let ctx = w.a.read(8192, 0, 8)?;
        w.a.sent_ok(ctx)?;
        same("read", w.a.mem().word(0)?, value)?;
        w.a.mem().set_word(0, value + 1000)?;
        let ctx = w.a.write(0, 8192, 8)?;
        w.a.sent_ok(ctx)?;
        same("written", w.b.mem().word(8192)?, value + 1000)?;
    }
    Ok(())
}

fn overlapping_segments_work(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    // Pages 4 to 8 of B's memory once more, and 6 to 10.
    let mut imports = Vec::new();
    let mut segments = Vec::new();
    for first in [4_usize, 6] {
        let window = w.b.mem().region().sub(first * 4096, 4 * 4096)?;
        let seg = w.b.half.ctx.register(&window, &SegmentCfg::new(ANY), None)?;
        imports.push(w.a.half.ctx.import_segment(&seg.remote(), ANY, NO_MAPPING)?);
        segments.push(Some(seg));
    }
    let bytes = pattern(1, 2 * 4096);
    w.a.mem().put(0, &bytes)?;
    for round in 0..3 {
        for (import, seg) in imports.iter().zip(&segments) {
            if seg.is_none() {
                continue;
            }
            let at = usize::try_from(import.va() - w.b.half.seg.va()).unwrap_or(0);
            w.b.mem().poison(at, bytes.len())?;
            let dst = RemoteAddr { segment: import, addr: import.va() };
            same("status", write_to(&mut w, dst, bytes.len())?, CrStatus::Success)?;
            w.b.mem().placed(at, &bytes).map_err(|f| f.during(round))?;
        }
        w.b.mem().poison(6 * 4096, bytes.len())?;
        let ctx = w.a.write(0, 6 * 4096, bytes.len())?;
        w.a.sent_ok(ctx)?;
        w.b.mem().placed(6 * 4096, &bytes).map_err(|f| f.during(round))?;
        if let Some(seg) = segments.get_mut(round).and_then(Option::take) {
            seg.unregister()?;
        }
    }
    Ok(())
}

fn unaligned_segment_works(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    let mem = Memory::new(8 * 4096)?;
    for (first, len) in [(1, 100), (4000, 200), (4095, 8194), (77, 20_000)] {
        let window = mem.region().sub(first, len)?;
        let seg = w.b.half.ctx.register(&window, &SegmentCfg::new(ANY), None)?;
        let import = w.a.half.ctx.import_segment(&seg.remote(), ANY, NO_MAPPING)?;
        let bytes = pattern(len as u64, len);
        w.a.mem().put(0, &bytes)?;
        mem.poison(first, len)?;
        let dst = RemoteAddr { segment: &import, addr: import.va() };
        same("status", write_to(&mut w, dst, len)?, CrStatus::Success)?;
        mem.placed(first, &bytes)?;
        seg.unregister()?;
        mem.placed(first, &bytes).map_err(|f| f.during("after unregister"))?;
    }
    Ok(())
}

fn user_iova_addresses(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    for iova in [0x1000, 0x7777_0000_1001, u64::MAX - 100_000] {
        let cfg = SegmentCfg { user_iova: Some(iova), ..SegmentCfg::new(ANY) };
        let spare = Spare::with(&w, 16384, &cfg, |_| {})?;
        same("va", spare.imported.va(), iova)?;
        let bytes = pattern(iova, 5000);
        w.a.mem().put(0, &bytes)?;
        spare.mem.poison(3000, 5000)?;
        same("status", write_to(&mut w, spare.at(3000), 5000)?, CrStatus::Success)?;
        spare.mem.placed(3000, &bytes)?;
        // As a local piece too: A's own memory under an IOVA.
        let mine = Memory::new(8192)?;
        mine.put(100, &bytes[..64])?;
        let seg = w.a.half.ctx.register(mine.region(), &cfg, None)?;
        spare.mem.poison(0, 64)?;
        let (jetty, kit) = w.a.parts();
        let src = [LocalSge { segment: &seg, addr: iova + 100, len: 64 }];
        jetty.post_send(&[kit.wr(SendOp::Write { src: &src, dst: spare.at(0) }, 9)])?;
        w.a.sent_ok(9)?;
        spare.mem.placed(0, &bytes[..64])?;
    }
    Ok(())
}

fn local_only_memory_is_a_source(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    let mine = Memory::new(8192)?;
    let bytes = pattern(1, 1000);
    mine.put(0, &bytes)?;
    let cfg = SegmentCfg::new(SegmentAccess::LOCAL_ONLY);
    let seg = w.a.half.ctx.register(mine.region(), &cfg, None)?;
    w.b.mem().poison(0, 1000)?;
    mine.poison(4096, 1000)?;
    let (jetty, kit) = w.a.parts();
    let src = [LocalSge { segment: &seg, addr: seg.va(), len: 1000 }];
    let dst = [LocalSge { segment: &seg, addr: seg.va() + 4096, len: 1000 }];
    jetty.post_send(&[kit.wr(SendOp::Write { src: &src, dst: kit.at(0) }, 1)])?;
    w.a.sent_ok(1)?;
    let (jetty, kit) = w.a.parts();
    jetty.post_send(&[kit.wr(SendOp::Read { dst: &dst, src: kit.at(0) }, 2)])?;
    w.a.sent_ok(2)?;
    w.b.mem().placed(0, &bytes)?;
    mine.placed(4096, &bytes)
}

fn cacheable_segment_works(setup: Setup) -> Outcome {
    carries_a_write(setup, &SegmentCfg { cacheable: true, ..SegmentCfg::new(ANY) })
}

fn non_pin_segment_works(setup: Setup) -> Outcome {
    carries_a_write(setup, &SegmentCfg { non_pin: true, ..SegmentCfg::new(ANY) })
}

fn carries_a_write(setup: Setup, cfg: &SegmentCfg) -> Outcome {
    let mut w = World::new(setup)?;
    let spare = Spare::with(&w, 8192, cfg, |_| {})?;
    let bytes = pattern(1, 1000);
    w.a.mem().put(0, &bytes)?;
    spare.mem.poison(0, 1000)?;
    same("status", write_to(&mut w, spare.at(0), 1000)?, CrStatus::Success)?;
    spare.mem.placed(0, &bytes)
}

fn register_many(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    let mem = Memory::new(300 * 4096)?;
    let mut all = Vec::new();
    for index in 0..300 {
        let window = mem.region().sub(index * 4096, 4096)?;
        let seg = w.b.half.ctx.register(&window, &SegmentCfg::new(ANY), None)?;
        let import = w.a.half.ctx.import_segment(&seg.remote(), ANY, NO_MAPPING)?;
        all.push((seg, import));
    }
    for (index, (_, import)) in all.iter().enumerate() {
        w.a.mem().set_word(0, index as u64 + 1)?;
        let dst = RemoteAddr { segment: import, addr: import.va() + 8 };
        same("status", write_to(&mut w, dst, 8)?, CrStatus::Success)?;
        same("the word", mem.word(index * 4096 + 8)?, index as u64 + 1)?;
    }
    Ok(())
}

fn mapping_sees_both_ways(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    let remote = w.b.half.seg.remote();
    let import = w.a.half.ctx.import_segment(&remote, ANY, Mapping::LoadStore)?;
    let Some(window) = import.region() else {
        return urma_tests::world::fail("no region in a mapped import");
    };
    same("length", window.len(), w.b.mem().region().len())?;
    for value in 1..100_u64 {
        w.b.mem().set_word(8192, value)?;
        same("load", window.load_u64_acquire(8192)?, value)?;
        window.store_u64_release(8200, value * 3)?;
        same("store", w.b.mem().word(8200)?, value * 3)?;
        window.atomic_u64(8208, WordAtomic::Add(1))?;
        w.b.mem().region().atomic_u64(8208, WordAtomic::Add(1))?;
        same("atomics", w.b.mem().word(8208)?, value * 2)?;
    }
    w.a.mem().set_word(0, 0x1234)?;
    let ctx = w.a.write(0, 16384, 8)?;
    w.a.sent_ok(ctx)?;
    same("a request's bytes", window.load_u64_acquire(16384)?, 0x1234)
}

fn mapping_of_a_readable_segment_takes_no_stores(setup: Setup) -> Outcome {
    let w = World::new(setup)?;
    let mem = Memory::new(8192)?;
    let read = SegmentAccess::READ;
    let segment = w.b.half.ctx.register(mem.region(), &SegmentCfg::new(read), None)?;
    let import = w.a.half.ctx.import_segment(&segment.remote(), read, Mapping::LoadStore)?;
    let Some(window) = import.region() else {
        return urma_tests::world::fail("no region in a mapped import");
    };
    mem.set_word(4096, 9)?;
    same("load", window.load_u64_acquire(4096)?, 9)?;
    check(window.store_u64_release(4096, 1).is_err(), "a store was taken")?;
    check(window.atomic_u64(4096, WordAtomic::Add(1)).is_err(), "an atomic was taken")?;
    same("the owner's word", mem.word(4096)?, 9)
}

fn mapping_left_after_unregister_reaches_no_memory(setup: Setup) -> Outcome {
    let w = World::new(setup)?;
    let remote = w.b.half.seg.remote();
    let import = w.a.half.ctx.import_segment(&remote, ANY, Mapping::LoadStore)?;
    let Some(window) = import.region() else {
        return urma_tests::world::fail("no region in a mapped import");
    };
    window.store_u64_release(8192, 1)?;
    let mem = w.b.mem().clone();
    w.b.half.seg.unregister()?;
    same("what was stored before", mem.word(8192)?, 1)?;
    window.store_u64_release(8192, 2)?;
    window.atomic_u64(8200, WordAtomic::Add(1))?;
    same("what was stored late", (mem.word(8192)?, mem.word(8200)?), (1, 0))?;
    mem.set_word(8192, 3)?;
    check(window.load_u64_acquire(8192)? != 3, "the mapping still shows the owner's memory")?;
    // The same memory, registered again, is a new segment at another place.
    let cfg = SegmentCfg::new(ANY);
    let again = w.b.half.ctx.register(mem.region(), &cfg, None)?;
    window.store_u64_release(8192, 4)?;
    same("what was stored late", mem.word(8192)?, 3)?;
    Ok(again.unregister()?)
}

fn mapping_outlives_its_peer(setup: Setup) -> Outcome {
    let w = World::new(setup)?;
    let remote = w.b.half.seg.remote();
    let import = w.a.half.ctx.import_segment(&remote, ANY, Mapping::LoadStore)?;
    let Some(window) = import.region() else {
        return urma_tests::world::fail("no region in a mapped import");
    };
    window.store_u64_release(8192, 7)?;
    let World { a, b, .. } = w;
    drop(b);
    // The peer's pages went back with it; what is left belongs to no process.
    window.load_u64_acquire(8192)?;
    window.store_u64_release(8192, 8)?;
    same("own store", window.load_u64_acquire(8192)?, 8)?;
    import.unimport();
    drop(a);
    Ok(())
}

fn mapping_over_packets_is_unsupported(setup: Setup) -> Outcome {
    let w = World::new(setup)?;
    let remote = w.b.half.seg.remote();
    let seen = w.a.half.ctx.import_segment(&remote, ANY, Mapping::LoadStore);
    refused("a mapping", seen, Status::Unsupported)
}

fn access_mask_rules(setup: Setup) -> Outcome {
    use SegmentAccess as A;
    let w = World::new(setup)?;
    let mem = Memory::new(4096)?;
    for bits in 0..16 {
        let access = A::from_bits_retain(bits);
        let good = [A::LOCAL_ONLY, A::READ, A::READ | A::WRITE, ANY].contains(&access);
        let seen = w.b.half.ctx.register(mem.region(), &SegmentCfg::new(access), None);
        if good {
            seen?.unregister()?;
        } else {
            refused(&format!("{access:?}"), seen, Status::Invalid)?;
        }
    }
    Ok(())
}

fn impossible_iova_is_refused(setup: Setup) -> Outcome {
    let w = World::new(setup)?;
    let mem = Memory::new(4096)?;
    for iova in [0, u64::MAX, u64::MAX - 4094] {
        let cfg = SegmentCfg { user_iova: Some(iova), ..SegmentCfg::new(ANY) };
        let seen = w.b.half.ctx.register(mem.region(), &cfg, None);
        refused(&format!("IOVA {iova:#x}"), seen, Status::Invalid)?;
    }
    Ok(())
}

fn local_only_is_not_imported(setup: Setup) -> Outcome {
    let w = World::new(setup)?;
    let remote = w.b.half.seg.remote();
    let seen = w.a.half.ctx.import_segment(&remote, SegmentAccess::LOCAL_ONLY, NO_MAPPING);
    refused("an import", seen, Status::Invalid)
}

fn write_without_grant(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    let spare = Spare::new(&w, 8192, SegmentAccess::READ)?;
    spare.mem.poison(512, 64)?;
    same("status", write_to(&mut w, spare.at(512), 64)?, CrStatus::RemAccessAbort)?;
    spare.mem.untouched(512, 64)
}

fn read_without_grant(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    let spare = Spare::new(&w, 8192, SegmentAccess::LOCAL_ONLY)?;
    w.a.mem().poison(512, 64)?;
    let (jetty, kit) = w.a.parts();
    let dst = [kit.sge(512, 64)];
    jetty.post_send(&[kit.wr(SendOp::Read { dst: &dst, src: spare.at(0) }, 1)])?;
    w.a.sent_as(CrStatus::RemAccessAbort)?;
    w.a.mem().untouched(512, 64)
}

fn atomic_without_grant(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    let spare = Spare::new(&w, 8192, SegmentAccess::READ | SegmentAccess::WRITE)?;
    spare.mem.poison(512, 8)?;
    w.a.mem().poison(1024, 8)?;
    let (jetty, kit) = w.a.parts();
    let op = SendOp::FetchAdd { result: kit.sge(1024, 8), target: spare.at(512), value: 1 };
    jetty.post_send(&[kit.wr(op, 1)])?;
    w.a.sent_as(CrStatus::RemAccessAbort)?;
    spare.mem.untouched(512, 8)?;
    w.a.mem().untouched(1024, 8)
}

fn notify_without_grant(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    let spare = Spare::new(&w, 8192, SegmentAccess::READ)?;
    spare.mem.poison(512, 8)?;
    w.b.mem().poison(512, 8)?;
    let (jetty, kit) = w.a.parts();
    let src = [kit.sge(0, 8)];
    let (dst, notify) = (kit.at(512), spare.at(512));
    let op = SendOp::WriteNotify { src: &src, dst, notify, data: 1 };
    jetty.post_send(&[kit.wr(op, 1)])?;
    w.a.sent_as(CrStatus::RemAccessAbort)?;
    spare.mem.untouched(512, 8)?;
    w.b.mem().untouched(512, 8)
}

/// Every operation at `offset` of a segment of 4 pages that A believes to be larger; each is due
/// to end as access refused. New jetties each, because an RC one is in the error state then.
fn out_of_bounds(setup: Setup, offset: isize, len: usize) -> Outcome {
    let (host_a, host_b) = Host::pair(setup)?;
    for number in 0..5 {
        let mut w = World::between(setup, &Plan::new(setup.mode), &host_a, &host_b)?;
        let mem = Memory::new(16 * 4096)?;
        let window = mem.region().sub(4 * 4096, 4 * 4096)?;
        let seg = w.b.half.ctx.register(&window, &SegmentCfg::new(ANY), None)?;
        let mut remote = seg.remote();
        remote.ubva.va -= 4096;
        remote.len += 2 * 4096;
        let import = w.a.half.ctx.import_segment(&remote, ANY, NO_MAPPING)?;
        let addr = seg.va().wrapping_add_signed(offset as i64);
        let at = RemoteAddr { segment: &import, addr };
        mem.poison(3 * 4096, 6 * 4096)?;
        w.a.mem().poison(65536, len)?;
        w.b.recv(0, 8)?;
        let (jetty, kit) = w.a.parts();
        let (src, dst) = ([kit.sge(0, len)], [kit.sge(65536, len)]);
        let op = match number {
            0 => SendOp::Write { src: &src, dst: at },
            1 => SendOp::Read { dst: &dst, src: at },
            2 => SendOp::WriteImm { src: &src, dst: at, imm: 1 },
            3 => SendOp::WriteNotify { src: &src, dst: at, notify: kit.at(0), data: 1 },
            _ => SendOp::WriteAtomic { src: &src, dst: at, notify: kit.at(0), add: 1 },
        };
        jetty.post_send(&[kit.wr(op, 1)])?;
        let step = format!("operation {number} of {len} bytes at {offset}");
        w.a.sent_as(CrStatus::RemAccessAbort).map_err(|f| f.during(&step))?;
        mem.untouched(3 * 4096, 6 * 4096).map_err(|f| f.during(&step))?;
        w.a.mem().untouched(65536, len).map_err(|f| f.during(&step))?;
        same("the notify word", w.b.mem().word(0)?, 0).map_err(|f| f.during(&step))?;
        if number == 2 {
            w.b.nothing_received().map_err(|f| f.during(&step))?;
        }
    }
    Ok(())
}

fn one_byte_beyond_the_end(setup: Setup) -> Outcome {
    out_of_bounds(setup, 4 * 4096 - 7, 8)?;
    out_of_bounds(setup, 1, 4 * 4096)
}

fn one_byte_before_the_start(setup: Setup) -> Outcome {
    out_of_bounds(setup, -1, 8)?;
    out_of_bounds(setup, -1, 4 * 4096)
}

fn range_that_wraps_is_refused(setup: Setup) -> Outcome {
    let w = World::new(setup)?;
    for (va, len) in [(u64::MAX - 10, 100), (0, 10), (4096, 0), (2, u64::MAX)] {
        let mut remote = w.b.half.seg.remote();
        remote.ubva.va = va;
        remote.len = len;
        let seen = w.a.half.ctx.import_segment(&remote, ANY, NO_MAPPING);
        refused(&format!("{len} bytes at {va:#x}"), seen, Status::Invalid)?;
    }
    Ok(())
}

fn local_range_outside_is_refused(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    let (va, len) = (w.a.half.seg.va(), w.a.half.seg.len());
    for (addr, len) in [(va - 1, 8), (va + len - 7, 8), (va, 256 << 10 | 1), (u64::MAX - 3, 8)] {
        let (jetty, kit) = w.a.parts();
        let src = [LocalSge { segment: kit.seg, addr, len }];
        let seen = jetty.post_send(&[kit.wr(SendOp::Send { src: &src }, 1)]);
        super::writes::is_invalid("a send", seen)?;
        let seen = jetty.post_recv(&[urma_core::RecvWr { dst: &src, user_ctx: 1 }]);
        super::writes::is_invalid("a receive", seen)?;
    }
    w.a.nothing_sent()
}

fn unregistered_segment_is_closed(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    let Spare { mem, seg, imported } = Spare::new(&w, 8192, ANY)?;
    let dst = RemoteAddr { segment: &imported, addr: imported.va() };
    same("status before", write_to(&mut w, dst, 64)?, CrStatus::Success)?;
    seg.unregister()?;
    mem.poison(0, 64)?;
    same("status after", write_to(&mut w, dst, 64)?, CrStatus::RemAccessAbort)?;
    mem.untouched(0, 64)
}

fn reused_token_id_is_not_the_old_segment(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    let lease = w.b.half.ctx.alloc_token_id()?;
    let (old, new) = (Memory::new(8192)?, Memory::new(8192)?);
    let cfg = SegmentCfg::new(ANY);
    let seg = w.b.half.ctx.register(old.region(), &cfg, Some(&lease))?;
    let imported = w.a.half.ctx.import_segment(&seg.remote(), ANY, NO_MAPPING)?;
    let dst = RemoteAddr { segment: &imported, addr: imported.va() };
    same("status before", write_to(&mut w, dst, 64)?, CrStatus::Success)?;
    seg.unregister()?;
    let _new = w.b.half.ctx.register(new.region(), &cfg, Some(&lease))?;
    old.poison(0, 64)?;
    new.poison(0, 64)?;
    // The new segment lies elsewhere, so the old address is out of its bounds.
    same("status after", write_to(&mut w, dst, 64)?, CrStatus::RemAccessAbort)?;
    old.untouched(0, 64)?;
    new.untouched(0, 64)?;
    // At the same address only the token is another.
    let mut w = World::new(setup)?;
    let lease = w.b.half.ctx.alloc_token_id()?;
    let behind =
        |token| SegmentCfg { user_iova: Some(0x10_0000), ..cfg.with_token(Token::new(token)) };
    let seg = w.b.half.ctx.register(old.region(), &behind(0x1111_0000), Some(&lease))?;
    let imported = w.a.half.ctx.import_segment(&seg.remote(), ANY, NO_MAPPING)?;
    let dst = RemoteAddr { segment: &imported, addr: imported.va() };
    same("status before", write_to(&mut w, dst, 64)?, CrStatus::Success)?;
    seg.unregister()?;
    let _new = w.b.half.ctx.register(new.region(), &behind(0x2222_0000), Some(&lease))?;
    old.poison(0, 64)?;
    same("status after", write_to(&mut w, dst, 64)?, CrStatus::RemAccessAbort)?;
    old.untouched(0, 64)?;
    new.untouched(0, 64)
}

fn unregister_under_traffic(setup: Setup) -> Outcome {
    const LEN: usize = 128 << 10;
    for round in 0..3 {
        let mut w = World::new(setup)?;
        let Spare { mem, seg, imported } = Spare::new(&w, LEN, ANY)?;
        w.a.mem().put(0, &vec![0x11; LEN])?;
        let a = &mut w.a;
        std::thread::scope(|scope| -> Outcome {
            let poster = scope.spawn(move || post_until_refused(a, &imported, LEN));
            until("the first bytes", || Ok((mem.take(LEN - 1, 1)? == [0x11]).then_some(())))?;
            seg.unregister()?;
            mem.put(0, &vec![0xa5; LEN])?;
            poster.join().map_err(|_| "the poster panicked".to_owned())??;
            let bytes = mem.take(0, LEN)?;
            let late = bytes.iter().filter(|byte| **byte != 0xa5).count();
            same(&format!("bytes placed late in round {round}"), late, 0)
        })?;
    }
    Ok(())
}

/// Keeps writing until a request fails; it fails as access refused.
fn post_until_refused(
    a: &mut urma_tests::world::End,
    imported: &ImportedSegment,
    len: usize,
) -> Outcome {
    until("a refused request", || {
        let (jetty, kit) = a.parts();
        let src = [kit.sge(0, len)];
        let dst = RemoteAddr { segment: imported, addr: imported.va() };
        jetty.post_send(&[kit.wr(SendOp::Write { src: &src, dst }, 1)])?;
        let done = a.sent()?;
        match done.status {
            CrStatus::Success => Ok(None),
            CrStatus::RemAccessAbort => Ok(Some(())),
            other => urma_tests::world::fail(format!("a write ended in {other:?}")),
        }
    })
}
