//! Requests made ahead: what is measured is posting them, not making them.
//!
//! *Owns*: the operation of each place of each lane. *Takes*: layout and ground. *Gives*: requests
//! to copy from. *Must not*: post.

use urma_core::{LocalSge, RecvWr, RemoteAddr, SendOp, SendWr, WrFlags};

use crate::{
    cli::AtomicKind,
    layout::Layout,
    plan::{Mode, Test, Verb},
    session::Ground,
};

/// Lengths fit: the sizes of a test are `u32`.
#[expect(clippy::cast_possible_truncation, reason = "sizes of a test are u32")]
const fn length(size: u64) -> u32 {
    size as u32
}

/// The local piece of every place of every lane, lane after lane.
pub(crate) fn pieces<'a>(ground: &'a Ground, test: &Test, layout: &Layout) -> Vec<LocalSge<'a>> {
    let is_fetched = matches!(test.command.verb(), Verb::Read | Verb::Atomic);
    let mut pieces = Vec::new();
    for lane in 0..ground.targets.len() {
        for place in 0..layout.places {
            let offset =
                if is_fetched { layout.sink(lane, place) } else { layout.source(lane, place) };
            let addr = ground.segment.va() + offset;
            pieces.push(LocalSge { segment: &ground.segment, addr, len: length(layout.size) });
        }
    }
    pieces
}

/// The request of every place of every lane, lane after lane.
pub(crate) fn requests<'a>(
    ground: &'a Ground,
    test: &Test,
    layout: &Layout,
    pieces: &'a [LocalSge<'a>],
) -> Vec<SendWr<'a>> {
    let places = usize::try_from(layout.places).unwrap_or(1).max(1);
    let is_inline = layout.size <= u64::from(test.inline);
    let flags = if is_inline { WrFlags::INLINE } else { WrFlags::empty() };
    let mut requests = Vec::with_capacity(pieces.len());
    for (index, piece) in pieces.chunks(1).enumerate() {
        let (lane, place) = (index / places, (index % places) as u64);
        let target = ground.targets.get(lane);
        let op = operation(ground, test, layout, (lane, place), piece);
        // An RC queue knows its target.
        let target = if test.mode == Mode::Rc { None } else { target };
        requests.push(SendWr { op, flags, target, target_hint: 0, user_ctx: 0 });
    }
    requests
}

fn operation<'a>(
    ground: &'a Ground,
    test: &Test,
    layout: &Layout,
    (lane, place): (usize, u64),
    piece: &'a [LocalSge<'a>],
) -> SendOp<'a> {
    let segment = &ground.remote;
    let source = RemoteAddr { segment, addr: segment.va() + layout.source(lane, place) };
    let sink = RemoteAddr { segment, addr: segment.va() + layout.sink(lane, place) };
    match (test.command.verb(), piece.first()) {
        (Verb::Read, _) => SendOp::Read { dst: piece, src: source },
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
        (Verb::Send | Verb::Atomic, _) => SendOp::Send { src: piece },
    }
}

/// The local piece of every receive.
pub(crate) fn receive_pieces<'a>(
    ground: &'a Ground,
    test: &Test,
    layout: &Layout,
) -> Vec<LocalSge<'a>> {
    if test.command.verb() != Verb::Send {
        return Vec::new();
    }
    let queues = if test.share_jfr { 1 } else { u64::from(test.jettys) };
    let piece = |receive| LocalSge {
        segment: &ground.segment,
        addr: ground.segment.va() + layout.receive(receive),
        len: length(layout.size),
    };
    (0..u64::from(test.jfr_depth) * queues).map(piece).collect()
}

/// The receive that uses piece number `index`.
pub(crate) fn receive<'a>(pieces: &'a [LocalSge<'a>], index: usize) -> RecvWr<'a> {
    RecvWr { dst: pieces.get(index..=index).unwrap_or(&[]), user_ctx: index as u64 }
}
