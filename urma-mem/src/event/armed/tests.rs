//! Arms and completions in one thread, and the model of their races.

use super::*;
use crate::{
    event::{
        EventLook, EventReader,
        tests::{Ring, View},
    },
    sync::Arc,
};

/// A completion queue whose events go to a ring. Its entries are numbers, from 1.
#[derive(Debug)]
struct Queue {
    indices: ArmedIndices,
    newest: AtomicU64,
    ring: Arc<Ring>,
}

impl Queue {
    fn new(ring: &Arc<Ring>) -> Self {
        let (indices, newest) = (ArmedIndices::default(), AtomicU64::new(0));
        // Models: loom keeps the one order of all for stores only, and an initial value is none.
        indices.reset();
        assert_eq!(ring.writer.on_consumed(0), Some(false));
        Self { indices, newest, ring: Arc::clone(ring) }
    }

    fn write(&self, at: u64) {
        self.ring.store(at, EVENT);
        self.ring.writer.on_stored(at, || self.ring.raise());
    }

    fn raise(&self) {
        self.indices.raise(&self.ring.writer, |at| self.write(at));
    }

    /// A completion, as the device makes it.
    fn complete(&self, solicited: bool, look: impl FnOnce() -> Option<ShownArm>) {
        let at = self.indices.take_index(solicited);
        self.newest.fetch_max(at + 1, Ordering::AcqRel);
        if !self.indices.is_unarmed() && self.indices.is_event_due((at, solicited), look) {
            self.raise();
        }
    }

    /// The program arms by a register.
    #[cfg(not(loom))]
    fn arm(&self, kind: ArmKind, sn: u8) {
        if self.indices.arm(kind, sn) {
            self.raise();
        }
    }
}

/// A program that takes what its descriptor says. Number of events.
fn take_all(view: &mut View, reader: &mut EventReader) -> u64 {
    let mut taken = 0;
    while view.ring.is_readable() {
        assert_eq!(reader.next(view), EventLook::Taken(EVENT), "readable without an event");
        taken += 1;
        let index = u32::try_from(view.at).unwrap();
        assert!(view.ring.writer.on_consumed(index).is_some());
    }
    taken
}

#[cfg(not(loom))]
mod plain {
    use super::*;

    fn queue(depth: u64) -> (Queue, View, EventReader) {
        let ring = Ring::new(depth);
        (Queue::new(&ring), View { ring, at: 0 }, EventReader::default())
    }

    #[test]
    fn an_arm_is_worth_one_event_whichever_comes_first() {
        let (queue, mut view, mut reader) = queue(4);
        queue.complete(false, || None);
        assert!(!view.ring.is_readable(), "not armed");
        queue.arm(ArmKind::Any, 0);
        assert_eq!(take_all(&mut view, &mut reader), 1);
        queue.complete(false, || None);
        assert!(!view.ring.is_readable(), "the arm had its event");
        queue.indices.consume(2);
        queue.arm(ArmKind::Any, 1);
        assert!(!view.ring.is_readable(), "nothing waits");
        (0..2).for_each(|_| queue.complete(false, || None));
        assert_eq!(take_all(&mut view, &mut reader), 1);
    }

    #[test]
    fn unsolicited_entries_do_not_fire_a_solicited_arm() {
        let (queue, mut view, mut reader) = queue(4);
        queue.complete(false, || None);
        queue.arm(ArmKind::Solicited, 0);
        queue.complete(false, || None);
        assert!(!view.ring.is_readable());
        queue.complete(true, || None);
        assert_eq!(take_all(&mut view, &mut reader), 1);
        queue.arm(ArmKind::Solicited, 1);
        assert_eq!(take_all(&mut view, &mut reader), 1, "a solicited entry waits");
    }

    #[test]
    fn an_arm_of_a_slot_is_taken_once() {
        let (queue, mut view, mut reader) = queue(4);
        let shown = |count| ShownArm { count, kind: ArmKind::Any, ci: 0 };
        queue.indices.expect_slot(6);
        queue.complete(false, || Some(shown(6)));
        assert!(!view.ring.is_readable(), "an older arm");
        queue.complete(false, || Some(shown(7)));
        assert_eq!(take_all(&mut view, &mut reader), 1);
        assert!(!queue.indices.arm_shown(shown(7)), "the completion has taken it");
        assert!(queue.indices.arm_shown(shown(8)), "two entries wait");
        assert!(!queue.indices.arm_shown(shown(7)), "older");
    }

    #[test]
    fn moderation_counts_from_the_arm_on() {
        let (queue, mut view, mut reader) = queue(4);
        queue.indices.moderate(3);
        queue.arm(ArmKind::Any, 0);
        assert!(!queue.indices.fire_if_any() && !queue.indices.is_waiting());
        (0..2).for_each(|_| queue.complete(false, || None));
        assert!(!view.ring.is_readable() && queue.indices.is_waiting());
        queue.complete(false, || None);
        assert_eq!(take_all(&mut view, &mut reader), 1);
        assert!(!queue.indices.fire_if_any(), "not armed");
        queue.indices.consume(3);
        queue.arm(ArmKind::Any, 1);
        queue.complete(false, || None);
        assert!(queue.indices.fire_if_any(), "after its period");
    }

    #[test]
    fn an_event_waits_for_room() {
        let (queue, mut view, mut reader) = queue(2);
        for _ in 0..2 {
            queue.write(view.ring.writer.claim().unwrap());
        }
        queue.arm(ArmKind::Any, 0);
        queue.complete(false, || None);
        assert_eq!(take_all(&mut view, &mut reader), 2);
        queue.indices.raise_pending(&view.ring.writer, |at| queue.write(at));
        queue.indices.raise_pending(&view.ring.writer, |at| queue.write(at));
        assert_eq!(take_all(&mut view, &mut reader), 1);
    }
}

#[cfg(loom)]
mod model {
    use super::*;
    use crate::{
        doorbells::{DoorbellSlots, RungSlots, SlotGeometry, SlotWords},
        sleep::SleepResult,
        sync::AtomicBool,
        words::model::{Fault, ModelWords},
    };

    /// A mistake of a device.
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Planted {
        None,
        /// A completion looks for an arm before it takes its index.
        ArmFirst,
        /// An arm does not look at what completed before.
        NoLookBack,
        /// An event that found no room waits; there is no second look for some.
        NoSecondAsk,
        /// The device does not look at its doorbell slots.
        SlotUnseen,
        /// A slot's arm is taken whether or not it was taken before.
        TakenTwice,
    }

    impl Queue {
        fn complete_with(&self, planted: Planted, look: impl FnOnce() -> Option<ShownArm>) {
            if planted != Planted::ArmFirst {
                return self.complete(false, look);
            }
            let at = self.indices.produced();
            let is_due = self.indices.is_event_due((at, false), look);
            self.indices.take_index(false);
            self.newest.fetch_max(at + 1, Ordering::AcqRel);
            if is_due {
                self.raise();
            }
        }

        fn raise_with(&self, planted: Planted) {
            if planted != Planted::NoSecondAsk {
                return self.raise();
            }
            self.indices.is_pending.swap(true, Ordering::SeqCst);
            if self.indices.is_pending.swap(false, Ordering::SeqCst) {
                match self.ring.writer.claim() {
                    Some(at) => self.write(at),
                    None => drop(self.indices.is_pending.swap(true, Ordering::SeqCst)),
                }
            }
        }
    }

    /// All interleavings with so few losses of the processor: all of them take minutes.
    fn explore(run: impl Fn() + Send + Sync + 'static) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(run);
    }

    fn sleeper(ring: &Arc<Ring>) -> (View, EventReader) {
        (View { ring: Arc::clone(ring), at: 0 }, EventReader::default())
    }

    /// `completions` threads complete one entry each; a program arms by a register, polls, and sleeps if it finds nothing.
    fn arm_by_register(completions: usize, planted: Planted) {
        explore(move || {
            let ring = Ring::new(2);
            let queue = Arc::new(Queue::new(&ring));
            let devices: Vec<_> = (0..completions)
                .map(|_| {
                    let queue = Arc::clone(&queue);
                    loom::thread::spawn(move || queue.complete_with(planted, || None))
                })
                .collect();
            if queue.indices.arm(ArmKind::Any, 0) && planted != Planted::NoLookBack {
                queue.raise();
            }
            let found = queue.newest.load(Ordering::Acquire) != 0;
            devices.into_iter().for_each(|device| device.join().unwrap());
            let (mut view, mut reader) = sleeper(&ring);
            let events = take_all(&mut view, &mut reader);
            assert!(found || events != 0, "a completion waits, and nothing wakes the program");
            assert!(events <= 1, "two events for one arm");
        });
    }

    const GEOMETRY: SlotGeometry =
        SlotGeometry { slots: 1, sleep: 0, status: 8, rung: 16, first: 24, stride: 16 };

    /// As above, but the program arms in a slot, at which the device looks after its completion and when it is woken.
    fn arm_by_slot(is_known: bool, planted: Planted) {
        explore(move || {
            let ring = Ring::new(2);
            let queue = Arc::new(Queue::new(&ring));
            let words = ModelWords::new(GEOMETRY.len_bytes() / 8, Fault::None);
            let slots = std::sync::Arc::new(DoorbellSlots::new(words.clone(), GEOMETRY).unwrap());
            let slot = slots.take().unwrap();
            let rung = RungSlots::new(words.clone(), GEOMETRY).unwrap();
            if is_known {
                queue.indices.expect_slot(0);
            }
            let shown = |count, value: u64| ShownArm {
                count,
                kind: ArmKind::Any,
                ci: u32::try_from(value).unwrap(),
            };
            let woken = Arc::new(AtomicBool::new(false));
            let of_device = Arc::clone(&queue);
            let device = loom::thread::spawn(move || {
                let (queue, mut rung) = (of_device, rung);
                queue.complete_with(planted, || {
                    let words = SlotWords::read(&words, GEOMETRY, 0).filter(|_| is_known)?;
                    Some(shown(words.count, words.value))
                });
                let look = |rung: &mut RungSlots<ModelWords>| {
                    rung.take(|slot| {
                        let count = slot.count;
                        if !is_known {
                            queue.indices.expect_slot(count - 1);
                        }
                        if planted == Planted::TakenTwice {
                            queue.indices.expect_slot(count - 1);
                        }
                        if queue.indices.arm_shown(shown(count, slot.value))
                            && planted != Planted::SlotUnseen
                        {
                            queue.raise();
                        }
                    });
                };
                look(&mut rung);
                if rung.announce_sleep() == SleepResult::Stay {
                    look(&mut rung);
                    return (rung, false);
                }
                (rung, true)
            });
            slot.ring_counted(0, 0, || woken.store(true, Ordering::Release));
            let found = queue.newest.load(Ordering::Acquire) != 0;
            let (mut rung, sleeps) = device.join().unwrap();
            if sleeps && woken.load(Ordering::Acquire) {
                rung.take(|slot| {
                    if !is_known {
                        queue.indices.expect_slot(slot.count - 1);
                    }
                    if queue.indices.arm_shown(shown(slot.count, slot.value)) {
                        queue.raise();
                    }
                });
            }
            let (mut view, mut reader) = sleeper(&ring);
            let events = take_all(&mut view, &mut reader);
            assert!(found || events != 0, "a completion waits, and nothing wakes the program");
            assert!(events <= 1, "two events for one arm");
        });
    }

    /// The ring has one place, which another queue's event has, when the queue fires; the program takes that event meanwhile.
    fn a_full_ring(planted: Planted) {
        explore(move || {
            let ring = Ring::new(1);
            let queue = Arc::new(Queue::new(&ring));
            queue.write(ring.writer.claim().unwrap());
            let of_device = Arc::clone(&queue);
            let device = loom::thread::spawn(move || of_device.raise_with(planted));
            let (mut view, mut reader) = sleeper(&ring);
            assert_eq!(reader.next(&mut view), EventLook::Taken(EVENT));
            if ring.writer.on_consumed(1) == Some(true) {
                queue.indices.raise_pending(&ring.writer, |at| queue.write(at));
            }
            device.join().unwrap();
            assert_eq!(
                take_all(&mut view, &mut reader),
                1,
                "an event waits although there is room"
            );
        });
    }

    #[test]
    fn loom_an_arm_finds_a_completion_or_has_an_event() {
        arm_by_register(1, Planted::None);
        arm_by_register(2, Planted::None);
    }

    #[test]
    #[should_panic(expected = "nothing wakes the program")]
    fn loom_catches_a_look_for_an_arm_before_the_index() {
        arm_by_register(1, Planted::ArmFirst);
    }

    #[test]
    #[should_panic(expected = "nothing wakes the program")]
    fn loom_catches_an_arm_that_does_not_look_back() {
        arm_by_register(1, Planted::NoLookBack);
    }

    #[test]
    fn loom_an_arm_in_a_slot_finds_a_completion_or_has_an_event() {
        arm_by_slot(true, Planted::None);
        arm_by_slot(false, Planted::None);
    }

    #[test]
    #[should_panic(expected = "nothing wakes the program")]
    fn loom_catches_a_device_that_does_not_look_at_its_slots() {
        arm_by_slot(true, Planted::SlotUnseen);
    }

    #[test]
    #[should_panic(expected = "two events for one arm")]
    fn loom_catches_an_arm_that_is_taken_twice() {
        arm_by_slot(true, Planted::TakenTwice);
    }

    #[test]
    fn loom_an_event_without_room_is_written_when_there_is_some() {
        a_full_ring(Planted::None);
    }

    #[test]
    #[should_panic(expected = "although there is room")]
    fn loom_catches_an_event_that_asks_for_room_once() {
        a_full_ring(Planted::NoSecondAsk);
    }
}

const EVENT: u64 = 7;
