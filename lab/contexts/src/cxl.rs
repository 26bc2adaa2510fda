//! L2: pages of contexts in CXL memory.
//!
//! *Owns*: which page a group of neighbours has, and the order of their use. *Takes*: records. *Gives*: places.
//! *Must not*: give up a page that a migration reads.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    handle::{ContextHandle, ContextKind},
    page::{ContextRecord, slots_of},
    to_u32, to_usize,
};

#[derive(Debug)]
struct CxlPage {
    group: (ContextKind, u32),
    records: Vec<Option<ContextRecord>>,
    used: u32,
    /// Migrations that read or write it.
    holds: u32,
    /// When it was used last.
    tick: u64,
}

/// All pages. A place is `page << bits of a slot | slot`; neighbours by index share a page.
#[derive(Debug)]
pub(crate) struct CxlPages {
    slot_bits: u32,
    capacity: usize,
    pages: Vec<Option<CxlPage>>,
    free: Vec<u32>,
    groups: BTreeMap<(ContextKind, u32), u32>,
    order: BTreeSet<(u64, u32)>,
    tick: u64,
}

impl CxlPages {
    pub(crate) fn new(bytes: u64, page_bytes: u32) -> Self {
        Self {
            slot_bits: slots_of(page_bytes).ilog2(),
            capacity: to_usize(bytes / u64::from(page_bytes)),
            pages: Vec::new(),
            free: Vec::new(),
            groups: BTreeMap::new(),
            order: BTreeSet::new(),
            tick: 0,
        }
    }

    /// Whether there is L2 at all.
    pub(crate) const fn is_on(&self) -> bool {
        self.capacity != 0
    }

    /// Whether a record of the handle could be put without giving up a page.
    pub(crate) fn has_room(&self, handle: ContextHandle) -> bool {
        self.groups.contains_key(&self.group(handle)) || self.taken() < self.capacity
    }

    /// Pages in use, and how many there may be.
    pub(crate) fn usage(&self) -> (usize, usize) {
        (self.taken(), self.capacity)
    }

    /// Puts a record into its group's page. `None`: there is no free page.
    pub(crate) fn put(&mut self, record: ContextRecord) -> Option<u32> {
        let handle = record.token.handle();
        let group = self.group(handle);
        let page = match self.groups.get(&group) {
            Some(page) => *page,
            None => self.open(group)?,
        };
        let slot = handle.index() & ((1 << self.slot_bits) - 1);
        let held = self.pages[page as usize].as_mut()?;
        let place = &mut held.records[slot as usize];
        held.used += u32::from(place.is_none());
        *place = Some(record);
        self.touch(page << self.slot_bits);
        Some(page << self.slot_bits | slot)
    }

    pub(crate) fn record(&self, place: u32) -> Option<&ContextRecord> {
        let (page, slot) = self.split(place);
        self.pages.get(page)?.as_ref()?.records.get(slot)?.as_ref()
    }

    pub(crate) fn record_mut(&mut self, place: u32) -> Option<&mut ContextRecord> {
        let (page, slot) = self.split(place);
        self.pages.get_mut(page)?.as_mut()?.records.get_mut(slot)?.as_mut()
    }

    /// Takes a record out; an empty page is free again.
    pub(crate) fn remove(&mut self, place: u32) {
        let (at, slot) = self.split(place);
        let Some(page) = self.pages.get_mut(at).and_then(Option::as_mut) else { return };
        page.used -= u32::from(page.records[slot].take().is_some());
        if page.used == 0 && page.holds == 0 {
            self.close(to_u32(at));
        }
    }

    /// The page was used.
    pub(crate) fn touch(&mut self, place: u32) {
        let (at, _) = self.split(place);
        self.tick += 1;
        let Some(page) = self.pages.get_mut(at).and_then(Option::as_mut) else { return };
        self.order.remove(&(page.tick, to_u32(at)));
        page.tick = self.tick;
        self.order.insert((page.tick, to_u32(at)));
    }

    /// A migration reads or writes the page from now on.
    pub(crate) fn hold(&mut self, place: u32) {
        let (at, _) = self.split(place);
        if let Some(page) = self.pages.get_mut(at).and_then(Option::as_mut) {
            page.holds += 1;
        }
    }

    /// A migration that held the page ended.
    pub(crate) fn release(&mut self, place: u32) {
        let (at, _) = self.split(place);
        let Some(page) = self.pages.get_mut(at).and_then(Option::as_mut) else { return };
        page.holds -= 1;
        if page.used == 0 && page.holds == 0 {
            self.close(to_u32(at));
        }
    }

    /// The least recently used page that no migration uses, emptied: its records with their places.
    pub(crate) fn give_up(&mut self) -> Option<Vec<(u32, ContextRecord)>> {
        let is_free =
            |at: u32| self.pages[at as usize].as_ref().is_some_and(|page| page.holds == 0);
        let at = self.order.iter().map(|(_, at)| *at).find(|at| is_free(*at))?;
        let page = self.close(at)?;
        let first = at << self.slot_bits;
        let place =
            |(slot, record): (usize, Option<ContextRecord>)| Some((first | to_u32(slot), record?));
        Some(page.records.into_iter().enumerate().filter_map(place).collect())
    }

    /// Number of the page of a place.
    pub(crate) const fn page(&self, place: u32) -> u32 {
        place >> self.slot_bits
    }

    /// Every record with its place.
    #[cfg(test)]
    pub(crate) fn records(&self) -> impl Iterator<Item = (u32, &ContextRecord)> {
        self.pages.iter().enumerate().flat_map(move |(at, page)| {
            let records = page.iter().flat_map(|page| page.records.iter().enumerate());
            records.filter_map(move |(slot, record)| {
                Some(((to_u32(at)) << self.slot_bits | to_u32(slot), record.as_ref()?))
            })
        })
    }

    fn group(&self, handle: ContextHandle) -> (ContextKind, u32) {
        (handle.kind(), handle.index() >> self.slot_bits)
    }

    fn taken(&self) -> usize {
        self.pages.len() - self.free.len()
    }

    fn open(&mut self, group: (ContextKind, u32)) -> Option<u32> {
        if self.taken() >= self.capacity {
            return None;
        }
        let at = self.free.pop().unwrap_or_else(|| to_u32(self.pages.len()));
        if at as usize == self.pages.len() {
            self.pages.push(None);
        }
        let records = vec![None; 1 << self.slot_bits];
        self.tick += 1;
        let page = CxlPage { group, records, used: 0, holds: 0, tick: self.tick };
        self.pages[at as usize] = Some(page);
        self.order.insert((self.tick, at));
        self.groups.insert(group, at);
        Some(at)
    }

    fn close(&mut self, at: u32) -> Option<CxlPage> {
        let page = self.pages[at as usize].take()?;
        self.order.remove(&(page.tick, at));
        self.groups.remove(&page.group);
        self.free.push(at);
        Some(page)
    }

    fn split(&self, place: u32) -> (usize, usize) {
        ((place >> self.slot_bits) as usize, (place & ((1 << self.slot_bits) - 1)) as usize)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::token::{ContextToken, TokenBody};

    #[test]
    fn a_page_is_free_again_when_it_is_empty_and_no_move_holds_it() {
        let mut pages = CxlPages::new(2 * 4096, 4096);
        let put = |pages: &mut CxlPages, index| {
            let token = ContextToken::new(index, 0, &TokenBody::Page { address: 1 });
            pages.put(ContextRecord { token: token.expect("it is narrow"), small: 0 })
        };
        // 64 contexts to a page.
        let first = put(&mut pages, 1).expect("a page");
        let second = put(&mut pages, 63).expect("the same page");
        assert_eq!((pages.page(first), pages.page(second), pages.usage()), (0, 0, (1, 2)));
        pages.hold(first);
        pages.remove(first);
        pages.remove(second);
        assert_eq!(pages.usage(), (1, 2), "a move reads it");
        assert!(pages.give_up().is_none(), "and it is not given up");
        pages.hold(first);
        pages.release(first);
        assert_eq!(pages.usage(), (1, 2), "another move reads it");
        pages.release(first);
        assert_eq!(pages.usage(), (0, 2));
        // In use, and held by no move.
        let third = put(&mut pages, 64).expect("a page");
        pages.hold(third);
        pages.release(third);
        assert_eq!(pages.usage(), (1, 2));
        assert_eq!(pages.give_up().map(|records| records.len()), Some(1));
        assert_eq!(pages.usage(), (0, 2));
    }

    #[test]
    fn a_context_that_is_put_again_keeps_its_place_and_counts_once() {
        let mut pages = CxlPages::new(2 * 4096, 4096);
        let mut put = |small| {
            let token = ContextToken::new(1, 0, &TokenBody::Page { address: 1 });
            let place = pages.put(ContextRecord { token: token.expect("it is narrow"), small });
            (place.expect("a page"), pages.usage())
        };
        let (place, usage) = put(5);
        assert_eq!((usage, put(6)), ((1, 2), (place, (1, 2))));
        assert_eq!(pages.record(place).map(|record| record.small), Some(6));
        pages.remove(place);
        assert_eq!(pages.usage(), (0, 2), "the page is free");
    }

    #[test]
    fn the_page_that_was_used_least_recently_is_given_up() {
        let mut pages = CxlPages::new(3 * 4096, 4096);
        let places: Vec<u32> = (0..3)
            .map(|page| {
                let token = ContextToken::new(64 * page + 7, 0, &TokenBody::Page { address: 1 });
                let token = token.expect("it is narrow");
                pages.put(ContextRecord { token, small: page.into() }).expect("a page")
            })
            .collect();
        pages.touch(places[0]);
        pages.hold(places[1]);
        let given = |pages: &mut CxlPages| {
            let records = pages.give_up()?;
            Some(records.iter().map(|(place, record)| (*place, record.small)).collect::<Vec<_>>())
        };
        assert_eq!(given(&mut pages), Some(vec![(places[2], 2)]), "the other one is held");
        pages.release(places[1]);
        assert_eq!(given(&mut pages), Some(vec![(places[1], 1)]));
        assert_eq!(given(&mut pages), Some(vec![(places[0], 0)]));
        assert_eq!((given(&mut pages), pages.usage()), (None, (0, 3)));
    }

    #[test]
    fn a_context_has_room_where_its_neighbours_are() {
        let mut pages = CxlPages::new(4096, 4096);
        let handle = |index| ContextHandle::new(ContextKind::Page, index).expect("small");
        assert!(pages.has_room(handle(1)) && pages.has_room(handle(64)));
        let token = ContextToken::new(1, 0, &TokenBody::Page { address: 1 });
        pages.put(ContextRecord { token: token.expect("it is narrow"), small: 0 });
        assert!(pages.has_room(handle(63)), "in the page of the first");
        assert!(!pages.has_room(handle(64)), "there is no other page");
    }
}
