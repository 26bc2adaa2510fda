//! The model: `RUSTFLAGS="--cfg loom" cargo test -p urma-mem --release loom_`.

use super::*;
use crate::sync::Arc;

/// A ring of numbers with its counter, as an eventfd in semaphore mode.
#[derive(Debug)]
pub(super) struct Ring {
    pub(super) writer: EventWriter,
    words: Box<[AtomicU64]>,
    pub(super) counts: AtomicU64,
}

impl Ring {
    pub(super) fn new(depth: u64) -> Arc<Self> {
        Arc::new(Self {
            writer: EventWriter::new(depth),
            words: (0..depth).map(|_| AtomicU64::new(0)).collect(),
            counts: AtomicU64::new(0),
        })
    }

    fn word(&self, at: u64) -> &AtomicU64 {
        &self.words[usize::try_from(at % self.writer.depth).unwrap()]
    }

    pub(super) fn raise(&self) {
        self.counts.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn store(&self, at: u64, number: u64) {
        let word = number << 1 | u64::from(self.writer.owner(at));
        self.word(at).store(word, Ordering::Release);
    }

    /// Writes an event as a device does.
    #[cfg(not(loom))]
    fn push(&self, number: u64) -> bool {
        let Some(at) = self.writer.claim() else { return false };
        self.store(at, number);
        self.writer.on_stored(at, || self.raise());
        true
    }

    pub(super) fn is_readable(&self) -> bool {
        self.counts.load(Ordering::SeqCst) != 0
    }
}

/// What the reader sees of the ring.
pub(super) struct View {
    pub(super) ring: Arc<Ring>,
    pub(super) at: u64,
}

impl EventSource for View {
    type Event = u64;

    fn take_count(&mut self) -> bool {
        let less = |count: u64| count.checked_sub(1);
        self.ring.counts.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok()
    }

    fn give_count(&mut self) {
        self.ring.raise();
    }

    fn take_entry(&mut self) -> Option<u64> {
        let word = self.ring.word(self.at).load(Ordering::Acquire);
        let is_there = (word & 1 == 1) == self.ring.writer.owner(self.at) && word != 0;
        is_there.then(|| {
            self.at += 1;
            word >> 1
        })
    }

    fn has_entry(&self) -> bool {
        let word = self.ring.word(self.at).load(Ordering::Acquire);
        (word & 1 == 1) == self.ring.writer.owner(self.at) && word != 0
    }
}

#[cfg(not(loom))]
mod plain {
    use super::*;

    fn view(depth: u64) -> (Arc<Ring>, View, EventReader) {
        let ring = Ring::new(depth);
        (Arc::clone(&ring), View { ring, at: 0 }, EventReader::default())
    }

    #[test]
    fn each_entry_has_one_count_through_many_passes() {
        for depth in [2, 4, 128] {
            let (ring, mut view, mut reader) = view(depth);
            for number in 1..1000 {
                assert!(ring.push(number) && ring.is_readable());
                assert_eq!(reader.next(&mut view), EventLook::Taken(number));
                assert!(!ring.is_readable());
                assert_eq!(reader.next(&mut view), EventLook::Nothing);
                let index = u32::try_from(view.at).unwrap();
                assert_eq!(ring.writer.on_consumed(index), Some(false));
            }
        }
    }

    #[test]
    fn the_later_of_two_entries_is_counted_with_the_earlier_one() {
        let (ring, mut view, mut reader) = view(4);
        let (first, second) = (ring.writer.claim().unwrap(), ring.writer.claim().unwrap());
        ring.store(second, 8);
        ring.writer.on_stored(second, || ring.raise());
        assert!(!ring.is_readable(), "the reader would find no entry");
        ring.store(first, 7);
        ring.writer.on_stored(first, || ring.raise());
        assert_eq!(reader.next(&mut view), EventLook::Taken(7));
        assert!(ring.is_readable());
        assert_eq!(reader.next(&mut view), EventLook::Taken(8));
    }

    #[test]
    fn a_count_that_comes_first_stays_until_its_entry_is_there() {
        let (ring, mut view, mut reader) = view(4);
        ring.raise();
        for _ in 0..3 {
            assert_eq!(reader.next(&mut view), EventLook::Nothing);
            assert!(ring.is_readable(), "a program that sleeps would not see the entry");
        }
        let at = ring.writer.claim().unwrap();
        ring.store(at, 7);
        assert_eq!(reader.next(&mut view), EventLook::Taken(7));
        assert!(!ring.is_readable());
    }

    #[test]
    fn a_count_without_an_entry_does_not_stay_for_ever() {
        let (ring, mut view, mut reader) = view(4);
        ring.raise();
        let looks = (0..=VAIN_MAX).map(|_| reader.next(&mut view));
        assert_eq!(looks.last(), Some(EventLook::CountDropped));
        assert!(!ring.is_readable());
    }

    #[test]
    fn a_full_ring_refuses_and_says_when_to_try_again() {
        let (ring, ..) = view(4);
        assert!((1..=4).all(|number| ring.push(number)));
        assert!(!ring.push(5));
        assert_eq!(ring.writer.on_consumed(5), None, "more than was produced");
        assert_eq!(ring.writer.on_consumed(1), Some(true));
        assert!(ring.push(5) && !ring.push(6));
    }

    #[test]
    fn merged_counts_leave_the_descriptor_readable_while_entries_are_left() {
        let (ring, mut view, mut reader) = view(4);
        assert!(ring.push(1) && ring.push(2));
        ring.counts.store(1, Ordering::SeqCst);
        assert_eq!(reader.next_of_merged(&mut view), EventLook::Taken(1));
        assert!(ring.is_readable());
        assert_eq!(reader.next_of_merged(&mut view), EventLook::Taken(2));
        assert!(!ring.is_readable());
    }
}

#[cfg(loom)]
mod model {
    use super::*;

    /// How a device or driver goes wrong.
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Fault {
        None,
        /// The device raises a count for each entry at once, in whatever order they are stored.
        Unordered,
        /// The driver drops a count whose entry is not there.
        CountLost,
    }

    /// In which order a device stores an entry and counts it.
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Order {
        EntryFirst,
        CountFirst,
    }

    /// A program that takes events as long as its descriptor is readable, and sleeps otherwise.
    fn take_readable(view: &mut View, reader: &mut EventReader, fault: Fault) -> u64 {
        let mut taken = 0;
        // As many looks as there are counts: a count that stays is looked at again later.
        for _ in 0..2 {
            if !view.ring.is_readable() {
                break;
            }
            let look = match fault {
                Fault::CountLost if !view.has_entry() => {
                    view.take_count();
                    EventLook::Nothing
                }
                _ => reader.next(view),
            };
            taken += u64::from(matches!(look, EventLook::Taken(_)));
        }
        taken
    }

    /// All interleavings with so few losses of the processor: all of them take minutes.
    fn explore(run: impl Fn() + Send + Sync + 'static) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(run);
    }

    /// Two threads write an event each; the program takes what it sees meanwhile, and sleeps then.
    fn two_writers(order: Order, fault: Fault) {
        explore(move || {
            let ring = Ring::new(2);
            let writers = [1, 2].map(|number| {
                let ring = Arc::clone(&ring);
                loom::thread::spawn(move || {
                    let at = ring.writer.claim().unwrap();
                    match (order, fault) {
                        (Order::CountFirst, _) => {
                            ring.raise();
                            ring.store(at, number);
                        }
                        (_, Fault::Unordered) => {
                            ring.store(at, number);
                            ring.raise();
                        }
                        _ => {
                            ring.store(at, number);
                            ring.writer.on_stored(at, || ring.raise());
                        }
                    }
                })
            });
            let mut view = View { ring: Arc::clone(&ring), at: 0 };
            let mut reader = EventReader::default();
            let mut taken = take_readable(&mut view, &mut reader, fault);
            for writer in writers {
                writer.join().unwrap();
            }
            taken += take_readable(&mut view, &mut reader, fault);
            assert_eq!(taken, 2, "an event waits, and the program sleeps on the descriptor");
            assert!(!ring.is_readable(), "readable without an event");
        });
    }

    #[test]
    fn loom_no_event_is_lost_when_entries_come_first() {
        two_writers(Order::EntryFirst, Fault::None);
    }

    #[test]
    fn loom_no_event_is_lost_when_counts_come_first() {
        two_writers(Order::CountFirst, Fault::None);
    }

    #[test]
    #[should_panic(expected = "an event waits")]
    fn loom_catches_a_count_that_is_dropped() {
        two_writers(Order::CountFirst, Fault::CountLost);
    }

    /// Whether a count ever comes before the entry that the reader looks at.
    fn counts_come_behind(fault: Fault) {
        explore(move || {
            let ring = Ring::new(2);
            let writers = [1, 2].map(|number| {
                let ring = Arc::clone(&ring);
                loom::thread::spawn(move || {
                    let at = ring.writer.claim().unwrap();
                    ring.store(at, number);
                    match fault {
                        Fault::Unordered => ring.raise(),
                        _ => ring.writer.on_stored(at, || ring.raise()),
                    }
                })
            });
            let mut view = View { ring: Arc::clone(&ring), at: 0 };
            if view.take_count() {
                assert!(view.take_entry().is_some(), "a count before its entry");
            }
            for writer in writers {
                writer.join().unwrap();
            }
            assert_eq!(ring.counts.load(Ordering::SeqCst) + view.at, 2, "one count an entry");
        });
    }

    #[test]
    fn loom_counts_come_behind_their_entries() {
        counts_come_behind(Fault::None);
    }

    #[test]
    #[should_panic(expected = "a count before its entry")]
    fn loom_catches_counts_in_another_order() {
        counts_come_behind(Fault::Unordered);
    }
}
