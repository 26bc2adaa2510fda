//! L3: descriptors in host memory, and the mailbox by which the chip asks for them.
//!
//! *Owns*: the host's tables, requests in the mailbox. *Takes*: requests. *Gives*: pages with the contexts asked for.
//! *Must not*: trust the offset of a request.

use std::collections::VecDeque;

use crate::{
    handle::{ContextHandle, ContextKind, ContextValueError},
    page::{ContextRecord, encode},
    to_u32, to_usize,
};

/// What the chip asks the host for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ExpandRequest {
    /// Which fetch waits for the answer.
    pub(crate) ticket: u32,
    pub(crate) handle: ContextHandle,
    /// Offset of the descriptors in the host's table of this kind, in bytes.
    pub(crate) offset: u64,
    /// Length of the descriptors in bytes.
    pub(crate) len: u64,
}

impl ExpandRequest {
    /// Asks for the descriptor of one context.
    pub(crate) fn one(ticket: u32, handle: ContextHandle) -> Self {
        let len = u64::from(handle.kind().descriptor_len());
        Self { ticket, handle, offset: u64::from(handle.index()) * len, len }
    }
}

/// The host's answer: a page with the live contexts of the range.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ExpandAnswer {
    pub(crate) ticket: u32,
    pub(crate) image: Vec<u8>,
}

/// Tables of descriptors, one a kind.
#[derive(Debug, Default)]
pub(crate) struct HostTables {
    tables: [Vec<Option<ContextRecord>>; ContextKind::ALL.len()],
}

impl HostTables {
    pub(crate) fn put(&mut self, record: ContextRecord) {
        let handle = record.token.handle();
        let table = &mut self.tables[handle.kind() as usize];
        let at = handle.index() as usize;
        if table.len() <= at {
            table.resize(at + 1, None);
        }
        table[at] = Some(record);
    }

    pub(crate) fn remove(&mut self, handle: ContextHandle) {
        if let Some(place) = self.place(handle) {
            *place = None;
        }
    }

    pub(crate) fn record(&self, handle: ContextHandle) -> Option<&ContextRecord> {
        self.tables[handle.kind() as usize].get(handle.index() as usize)?.as_ref()
    }

    pub(crate) fn record_mut(&mut self, handle: ContextHandle) -> Option<&mut ContextRecord> {
        self.place(handle)?.as_mut()
    }

    /// Answers a request of the chip.
    ///
    /// # Errors
    /// Offset or length are no descriptors of the host's own table.
    pub(crate) fn answer(
        &self,
        request: &ExpandRequest,
    ) -> Result<ExpandAnswer, ContextValueError> {
        let kind = request.handle.kind();
        let (table, len) = (&self.tables[kind as usize], u64::from(kind.descriptor_len()));
        let size = table.len() as u64 * len;
        if !request.offset.is_multiple_of(len) || request.offset >= size {
            let rule = format!(
                "a multiple of {len} below {size}, the size of the table of a {}",
                kind.name()
            );
            return Err(ContextValueError::new("mailbox offset", request.offset, rule));
        }
        let rest = size - request.offset;
        if request.len == 0 || !request.len.is_multiple_of(len) || request.len > rest {
            let rule = format!("a multiple of {len} from {len} to {rest}, the rest of the table");
            return Err(ContextValueError::new("mailbox length", request.len, rule));
        }
        // Both are below the length of a table in memory.
        let (first, count) = (to_usize(request.offset / len), to_usize(request.len / len));
        let records = &table[first..first + count];
        Ok(ExpandAnswer { ticket: request.ticket, image: encode(to_u32(first), records) })
    }

    fn place(&mut self, handle: ContextHandle) -> Option<&mut Option<ContextRecord>> {
        self.tables[handle.kind() as usize].get_mut(handle.index() as usize)
    }
}

/// Background requests of the chip to the host; urgent ones pass, all but one of eight.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    background: VecDeque<ContextHandle>,
    /// Urgent requests since the last background one.
    urgent_in_row: u32,
}

impl Mailbox {
    /// Adds a background request. `false`: there is no place.
    pub(crate) fn push(&mut self, handle: ContextHandle, urgent: usize) -> bool {
        let has_place = self.background.len() + urgent < MAILBOX_PLACES;
        if has_place {
            self.background.push_back(handle);
        }
        has_place
    }

    /// An urgent request is about to be served: the background one that goes first, if it is its turn.
    pub(crate) fn before_urgent(&mut self) -> Option<ContextHandle> {
        self.urgent_in_row += 1;
        if self.urgent_in_row < BACKGROUND_OF {
            return None;
        }
        self.pop()
    }

    /// The next background request.
    pub(crate) fn pop(&mut self) -> Option<ContextHandle> {
        self.urgent_in_row = 0;
        self.background.pop_front()
    }

    pub(crate) fn depth(&self) -> usize {
        self.background.len()
    }
}

/// Requests that the mailbox holds.
pub(crate) const MAILBOX_PLACES: usize = 256;
/// One of so many services is a background request, if there is one.
const BACKGROUND_OF: u32 = 8;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::page::decode;
    use crate::token::{ContextToken, TokenBody};

    #[test]
    fn the_host_checks_offset_and_length_itself() {
        let mut host = HostTables::default();
        for index in 0..4 {
            let token = ContextToken::new(index, 1, &TokenBody::Page { address: 9 }).unwrap();
            host.put(ContextRecord { token, small: index.into() });
        }
        let handle = ContextHandle::new(ContextKind::Page, 1).unwrap();
        let ask = |offset, len| host.answer(&ExpandRequest { ticket: 1, handle, offset, len });
        let good = ask(8, 16).unwrap();
        assert_eq!(decode(&good.image, 64).unwrap().1.iter().flatten().count(), 2);
        let text = |offset, len| ask(offset, len).unwrap_err().to_string();
        assert_eq!(
            text(32, 8),
            "mailbox offset is 32: a multiple of 8 below 32, the size of the table of a page"
        );
        assert!(text(4, 8).contains("mailbox offset is 4"));
        assert!(text(u64::MAX - 7, 8).contains("mailbox offset"));
        assert_eq!(
            text(24, 16),
            "mailbox length is 16: a multiple of 8 from 8 to 8, the rest of the table"
        );
        assert!(text(0, 0).contains("mailbox length is 0"));
        assert!(text(0, u64::MAX).contains("mailbox length"));
    }

    #[test]
    fn one_of_eight_services_is_a_background_request() {
        let mut mailbox = Mailbox::default();
        let handle = |index| ContextHandle::new(ContextKind::Page, index).unwrap();
        (0..3).for_each(|index| assert!(mailbox.push(handle(index), 0)));
        let served: Vec<bool> = (0..24).map(|_| mailbox.before_urgent().is_some()).collect();
        let at: Vec<usize> = (0..24).filter(|at| served[*at]).collect();
        assert_eq!(at, [7, 15, 23]);
        (0..to_u32(MAILBOX_PLACES)).for_each(|index| assert!(mailbox.push(handle(index), 0)));
        assert!(!mailbox.push(handle(0), 0), "the mailbox is full");
    }

    #[test]
    fn urgent_and_background_requests_share_the_places_of_the_mailbox() {
        for (urgent, wanted) in [(0, 256), (1, 255), (255, 1), (256, 0), (300, 0)] {
            let mut mailbox = Mailbox::default();
            let handle = ContextHandle::new(ContextKind::Page, 1).unwrap();
            let taken = (0..300).filter(|_| mailbox.push(handle, urgent)).count();
            assert_eq!((taken, mailbox.depth()), (wanted, wanted), "{urgent}");
        }
    }
}
