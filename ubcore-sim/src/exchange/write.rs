//! Writes for a peer: all kinds, piece by piece.
//!
//! *Owns*: what each kind does before, with and after its payload. *Takes*: pieces in order. *Gives*:
//! placed bytes. *Must not*: place a byte of a message whose target was not checked as a whole.

use urma_packet::ResponseStatus;

use super::context::ExchangeContext;
use super::memory::{self, NotPulled};
use super::message::{complete, receive_for};
use super::outcome::PieceOutcome;
use super::piece::{RequestFragment, RequestSource};
use super::serve::{Late, PartialMessage, Served};
use crate::carrier::piece::Payload;
use crate::engine::pull::Puller;

/// Steps by which the planted fault is late.
const LATE_STEPS: u32 = 32;

/// Planted fault: places what is late enough.
pub(super) fn place_late(served: &mut Served, work: &mut ExchangeContext<'_>) {
    let Some(late) = &mut served.late else { return };
    late.steps -= 1;
    if late.steps == 0
        && let Some(Late { header, bytes, .. }) = served.late.take()
        && let Ok(life) = memory::check_write(work, &header, header.access.address)
    {
        let (start, length) = (header.access.address, header.access.length);
        let message = PartialMessage { start, length, done: 0, life, receive: None };
        let part = RequestFragment { header: &header, payload: Payload::Here, bytes: &bytes };
        let _ = memory::place(work, &header, &message, &part);
    }
}

/// A piece of any write: all targets are checked at the first one, and again for each.
pub(super) fn write_piece(
    served: &mut Served,
    work: &mut ExchangeContext<'_>,
    (from, puller): (RequestSource, Option<&mut Puller>),
    part: &RequestFragment<'_>,
) -> PieceOutcome {
    let header = part.header;
    if part.is_first() {
        let start = header.access.address;
        let life = match memory::check_write(work, header, start) {
            Ok(life) => life,
            Err(status) => {
                give_back(served, work);
                return PieceOutcome::refused(status);
            }
        };
        let receive = if header.op.is_two_sided() {
            match receive_for(served, work, from, part) {
                Ok(taken) => Some(taken),
                Err(status) => return PieceOutcome::refused(status),
            }
        } else {
            give_back(served, work);
            None
        };
        let length = header.access.length;
        served.message = Some(PartialMessage { start, length, done: 0, life, receive });
    }
    let Some(message) = &mut served.message else {
        return PieceOutcome::refused(ResponseStatus::Length);
    };
    let placed = if !message.fits(header, part.len()) {
        Err(ResponseStatus::Length)
    } else if let Payload::Named(bytes) = &part.payload {
        let named = (bytes, part.is_last());
        match memory::place_named(work, (header, message), named, puller) {
            Ok(()) => Ok(()),
            Err(NotPulled::NoBytes) => return PieceOutcome::NoBytes,
            Err(NotPulled::Answer(status)) => Err(status),
        }
    } else if work.core.tables.faults.ack_before_placement() && part.is_first() && part.is_last() {
        served.late = Some(Late { header: *header, bytes: part.bytes.to_vec(), steps: LATE_STEPS });
        Ok(())
    } else if part.payload == Payload::Placed {
        memory::check_again(work, header, message).map(|_| ())
    } else {
        memory::place(work, header, message, part)
    };
    if let Err(status) = placed {
        give_back(served, work);
        return PieceOutcome::refused(status);
    }
    message.done += part.len();
    if !part.is_last() {
        return PieceOutcome::More;
    }
    let message = served.message.take();
    if let Err(status) = memory::notify(work, header) {
        return PieceOutcome::refused(status);
    }
    if let Some(taken) = message.and_then(|m| m.receive) {
        complete(work, taken, from, part);
    }
    PieceOutcome::ACK
}

/// Ends the unfinished message without effect on its receive.
fn give_back(served: &mut Served, work: &mut ExchangeContext<'_>) {
    if let Some(taken) = served.message.take().and_then(|m| m.receive) {
        work.receives.give_back(work.core, taken);
    }
}
