//! Requests made ahead: what is measured is posting them, not making them.
//!
//! *Owns*: the operation of each place of each lane. *Takes*: layout and objects. *Gives*: requests
//! to copy from. *Must not*: post.

use urma::{LocalSge, RecvWr, RemoteAddr, SendOp, SendWr, TargetJetty, WrFlags};

use crate::{
    cli::AtomicKind,
    layout::{LaneWord, Layout},
    plan::{Test, TestMode, Verb},
    session::SessionObjects,
};

/// Lengths fit: the sizes of a test are `u32`.
#[expect(clippy::cast_possible_truncation, reason = "sizes of a test are u32")]
const fn length(size: u64) -> u32 {
    size as u32
}

/// The local piece of every place of every lane, lane after lane.
pub(crate) fn pieces<'a>(
    objects: &'a SessionObjects,
    test: &Test,
    layout: &Layout,
) -> Vec<LocalSge<'a>> {
    let is_fetched = matches!(test.command.verb(), Verb::Read | Verb::Atomic);
    let mut pieces = Vec::new();
    for lane in 0..objects.targets.len() {
        for place in 0..layout.places {
            let offset =
                if is_fetched { layout.sink(lane, place) } else { layout.source(lane, place) };
            let segment = objects.segment(lane);
            let len = layout.size / u64::from(test.sges);
            for part in 0..u64::from(test.sges) {
                let addr = segment.va() + offset + part * len;
                pieces.push(LocalSge { segment, addr, len: length(len) });
            }
        }
    }
    pieces
}

/// The request of every place of every lane, lane after lane.
pub(crate) fn requests<'a>(
    objects: &'a SessionObjects,
    test: &Test,
    layout: &Layout,
    pieces: &'a [LocalSge<'a>],
) -> Vec<SendWr<'a>> {
    let places = usize::try_from(layout.places).unwrap_or(1).max(1);
    let sges = usize::try_from(test.sges).unwrap_or(1).max(1);
    let at = |index: usize| (index / places, (index % places) as u64);
    let parts = pieces.chunks(sges).enumerate();
    parts.map(|(index, piece)| request(objects, test, layout, at(index), piece)).collect()
}

/// The request of one place of one lane.
pub(crate) fn request<'a>(
    objects: &'a SessionObjects,
    test: &Test,
    layout: &Layout,
    (lane, place): (usize, u64),
    piece: &'a [LocalSge<'a>],
) -> SendWr<'a> {
    let is_inline = layout.size <= u64::from(test.inline);
    let flags = if is_inline { WrFlags::INLINE } else { WrFlags::empty() };
    let op = operation(objects, test, layout, (lane, place), piece);
    SendWr { op, flags, target: target(objects, test, lane), target_hint: 0, user_ctx: 0 }
}

/// The target of a lane's requests; an RC queue is bound to its own.
fn target<'a>(objects: &'a SessionObjects, test: &Test, lane: usize) -> Option<&'a TargetJetty> {
    if test.mode == TestMode::Rc { None } else { objects.targets.get(lane) }
}

/// The local word of every lane from which it reports its receives to the peer.
pub(crate) fn credit_pieces<'a>(
    objects: &'a SessionObjects,
    test: &Test,
    layout: &Layout,
) -> Vec<LocalSge<'a>> {
    let piece = |lane| {
        let segment = objects.segment(lane);
        LocalSge { segment, addr: segment.va() + layout.word(lane, LaneWord::CreditOut), len: 8 }
    };
    let lanes = if test.credit.is_some() { objects.targets.len() } else { 0 };
    (0..lanes).map(piece).collect()
}

/// Tells the peer of a lane's receives; makes no completion.
pub(crate) fn credit<'a>(
    objects: &'a SessionObjects,
    test: &Test,
    layout: &Layout,
    (lane, piece): (usize, &'a [LocalSge<'a>]),
) -> SendWr<'a> {
    let segment = objects.remote(lane);
    let dst = RemoteAddr { segment, addr: segment.va() + layout.word(lane, LaneWord::CreditIn) };
    let (op, target) = (SendOp::Write { src: piece, dst }, target(objects, test, lane));
    SendWr { op, flags: WrFlags::empty(), target, target_hint: 0, user_ctx: 0 }
}

fn operation<'a>(
    objects: &'a SessionObjects,
    test: &Test,
    layout: &Layout,
    (lane, place): (usize, u64),
    piece: &'a [LocalSge<'a>],
) -> SendOp<'a> {
    let segment = objects.remote(lane);
    let imm = lane as u64;
    let source = RemoteAddr { segment, addr: segment.va() + layout.source(lane, place) };
    let sink = RemoteAddr { segment, addr: segment.va() + layout.sink(lane, place) };
    match (test.command.verb(), piece.first()) {
        (Verb::Read, _) => SendOp::Read { dst: piece, src: source },
        (Verb::Write, _) if test.imm => SendOp::WriteImm { src: piece, dst: sink, imm },
        (Verb::Write, _) if test.notify => {
            let notify = segment.va() + layout.word(lane, LaneWord::Notify);
            let notify = RemoteAddr { segment, addr: notify };
            SendOp::WriteNotify { src: piece, dst: sink, notify, data: place + 1 }
        }
        (Verb::Write, _) => SendOp::Write { src: piece, dst: sink },
        (Verb::Atomic, Some(result)) => {
            // A lane works on one word, so that the answers of a verified run count up.
            let target = RemoteAddr { segment, addr: segment.va() + layout.source(lane, 0) };
            match test.atomic {
                // Compares with what it stores: every one of them succeeds.
                AtomicKind::Cas => SendOp::Cas { result: *result, target, compare: 0, swap: 0 },
                AtomicKind::Faa => SendOp::FetchAdd { result: *result, target, value: 1 },
            }
        }
        (Verb::Send, _) if test.imm => SendOp::SendImm { src: piece, imm },
        (Verb::Send | Verb::Atomic, _) => SendOp::Send { src: piece },
    }
}

/// The local piece of every receive.
pub(crate) fn receive_pieces<'a>(
    objects: &'a SessionObjects,
    test: &Test,
    layout: &Layout,
) -> Vec<LocalSge<'a>> {
    if !test.has_receives() {
        return Vec::new();
    }
    let segment = objects.segment(0);
    let piece = |receive| LocalSge {
        segment,
        addr: segment.va() + layout.receive(receive),
        len: length(layout.size),
    };
    (0..u64::from(test.jfr_depth) * u64::from(test.jfrs())).map(piece).collect()
}

/// The receive that uses piece number `index`.
pub(crate) fn receive<'a>(pieces: &'a [LocalSge<'a>], index: usize) -> RecvWr<'a> {
    RecvWr { dst: pieces.get(index..=index).unwrap_or(&[]), user_ctx: index as u64 }
}
