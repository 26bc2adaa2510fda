//! Slots in one thread, and the model of their races.

use super::*;

#[cfg(not(loom))]
mod plain {
    use super::*;
    use crate::region::Pages;

    fn both() -> (Arc<DoorbellSlots>, RungSlots, Region) {
        let geometry = SlotGeometry::DEVICE;
        let memory = Region::shared(geometry.len_bytes(), Pages::Base).unwrap();
        let slots = Arc::new(DoorbellSlots::new(memory.clone(), geometry).unwrap());
        (slots, RungSlots::new(memory.clone(), geometry).unwrap(), memory)
    }

    fn taken(rung: &mut RungSlots) -> Vec<RungSlot> {
        let mut all = Vec::new();
        assert_eq!(rung.take(|slot| all.push(slot)), all.len());
        all
    }

    #[test]
    fn each_slot_gives_its_newest_value_once() {
        let (slots, mut rung, _) = both();
        assert!(taken(&mut rung).is_empty());
        let all: Vec<_> = std::iter::from_fn(|| slots.take()).collect();
        assert_eq!(all.len(), 1024);
        for (value, slot) in (0..).zip(&all) {
            slot.ring(7, || panic!("awake"));
            slot.ring(value, || panic!("awake"));
        }
        let values: Vec<u64> = taken(&mut rung).iter().map(|slot| slot.value).collect();
        assert_eq!(values, (0..1024).collect::<Vec<_>>());
        assert!(taken(&mut rung).is_empty());
    }

    #[test]
    fn a_detail_outlives_later_values_and_comes_once() {
        let (slots, mut rung, _) = both();
        let slot = slots.take().unwrap();
        slot.ring_counted(5, 9, || ());
        slot.ring(8, || ());
        assert_eq!(taken(&mut rung), [RungSlot { slot: 0, value: 8, count: 1, detail: Some(9) }]);
        slot.ring(9, || ());
        assert_eq!(taken(&mut rung), [RungSlot { slot: 0, value: 9, count: 1, detail: None }]);
        // As many as a small number would wrap at.
        (0..256).for_each(|_| slot.ring_counted(9, 9, || ()));
        assert_eq!(taken(&mut rung), [RungSlot { slot: 0, value: 9, count: 257, detail: Some(9) }]);
        drop(slot);
        let next = slots.take().unwrap();
        next.ring_counted(1, 2, || ());
        assert_eq!(taken(&mut rung)[0].detail, Some(2), "the count goes on");
    }

    #[test]
    fn a_sleeper_is_woken_and_does_not_sleep_on_a_doorbell() {
        let (slots, mut rung, _) = both();
        let slot = slots.take().unwrap();
        slot.ring(1, || panic!("awake"));
        assert_eq!(rung.announce_sleep(), SleepResult::Stay);
        assert_eq!(taken(&mut rung).len(), 1);
        assert_eq!(rung.announce_sleep(), SleepResult::Sleep);
        let mut wakes = 0;
        slot.ring(2, || wakes += 1);
        rung.announce_awake();
        slot.ring(3, || wakes += 1);
        assert_eq!((wakes, taken(&mut rung)[0].value), (1, 3));
        rung.show_status(5);
        assert_eq!(slots.status(), 5);
    }

    #[test]
    fn any_content_of_the_memory_is_a_bounded_number_of_values() {
        let (_, mut rung, memory) = both();
        memory.write(0, &vec![0xff; memory.len()]).unwrap();
        assert_eq!(taken(&mut rung).len(), 1024);
        assert!(taken(&mut rung).is_empty());
        let short = Region::private(SlotGeometry::DEVICE.len_bytes() - 8).unwrap();
        assert!(RungSlots::new(short.clone(), SlotGeometry::DEVICE).is_err());
        assert!(DoorbellSlots::new(short, SlotGeometry::DEVICE).is_err());
    }
}

#[cfg(loom)]
mod model {
    use super::*;
    use crate::sync::{AtomicBool, Ordering};
    use crate::words::model::{Fault, ModelWords};

    const GEOMETRY: SlotGeometry =
        SlotGeometry { slots: 2, sleep: 0, status: 8, rung: 16, first: 24, stride: 16 };

    /// A mistake of the model itself.
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Planted {
        None,
        /// The bit is set before the value is stored.
        BitFirst,
        /// The device reads the values before it clears the bits.
        ClearedLate,
        /// The device sleeps without a second look.
        NoSecondLook,
        /// A request for an event is part of the value.
        EventInValue,
    }

    type Slots = (Arc<DoorbellSlots<ModelWords>>, RungSlots<ModelWords>, ModelWords);

    fn both(fault: Fault) -> Slots {
        let words = ModelWords::new(GEOMETRY.len_bytes() / 8, fault);
        let slots = Arc::new(DoorbellSlots::new(words.clone(), GEOMETRY).unwrap());
        (slots, RungSlots::new(words.clone(), GEOMETRY).unwrap(), words)
    }

    fn ring(slot: &DoorbellSlot<ModelWords>, value: u64, planted: Planted, woken: &AtomicBool) {
        let wake = || woken.store(true, Ordering::Release);
        if planted == Planted::BitFirst {
            slot.publish(wake);
            slot.value.store_release(value).unwrap();
        } else {
            slot.ring(value, wake);
        }
    }

    /// A look of the device; what it saw of slot 0 goes to `newest`.
    fn look(rung: &mut RungSlots<ModelWords>, planted: Planted, newest: &mut [u64; 2]) {
        if planted != Planted::ClearedLate {
            rung.take(|slot| newest[slot.slot] = slot.value);
            return;
        }
        let bits = rung.rung[0].load_acquire();
        for slot in 0..2 {
            if bits & 1 << slot != 0 {
                newest[slot] = rung.read(slot).unwrap().value;
            }
        }
        rung.rung[0].swap_fence(0).unwrap();
    }

    /// A writer rings one slot twice, another one a second slot; the device looks, then goes to sleep. At the end it either saw the newest values, or looks again.
    fn no_doorbell_is_lost(fault: Fault, planted: Planted) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(move || {
            let (slots, mut rung, _) = both(fault);
            let woken = Arc::new(AtomicBool::new(false));
            let (first, second) = (slots.take().unwrap(), slots.take().unwrap());
            let (wake, other_wake) = (Arc::clone(&woken), Arc::clone(&woken));
            let writer = loom::thread::spawn(move || {
                ring(&first, 1, planted, &wake);
                ring(&first, 2, planted, &wake);
            });
            let other = loom::thread::spawn(move || ring(&second, 3, planted, &other_wake));
            let mut newest = [0; 2];
            look(&mut rung, planted, &mut newest);
            let sleeps = match planted {
                Planted::NoSecondLook => {
                    let _ = rung.sleep.announce_sleep(|| false);
                    true
                }
                _ => rung.announce_sleep() == SleepResult::Sleep,
            };
            writer.join().unwrap();
            other.join().unwrap();
            if !sleeps || woken.load(Ordering::Acquire) {
                look(&mut rung, Planted::None, &mut newest);
            }
            assert_eq!(newest, [2, 3], "a doorbell is lost");
        });
    }

    /// A reader of completions consumes, asks for an event, and consumes two more.
    fn no_request_for_an_event_is_lost(fault: Fault, planted: Planted) {
        loom::model(move || {
            let (slots, mut rung, _) = both(fault);
            let slot = slots.take().unwrap();
            let writer = loom::thread::spawn(move || {
                slot.ring(3, || ());
                if planted == Planted::EventInValue {
                    slot.ring(5 | 1 << 63, || ());
                } else {
                    slot.ring_counted(5, 1, || ());
                }
                slot.ring(7, || ());
            });
            let (mut events, mut value) = (0, 0);
            let mut see = |slot: RungSlot| {
                let is_asked = slot.detail.is_some() || slot.value >> 63 == 1;
                let next = slot.value & !(1 << 63);
                assert!(!is_asked || next >= 5, "an event is asked for before its value");
                assert!(next >= value, "an older value");
                (events, value) = (events + u32::from(is_asked), next);
            };
            rung.take(&mut see);
            writer.join().unwrap();
            rung.take(&mut see);
            assert_eq!((events, value), (1, 7), "a request for an event is lost");
        });
    }

    #[test]
    fn loom_no_doorbell_is_lost() {
        no_doorbell_is_lost(Fault::None, Planted::None);
        no_request_for_an_event_is_lost(Fault::None, Planted::None);
    }

    #[test]
    #[should_panic(expected = "a doorbell is lost")]
    fn loom_catches_a_bit_before_the_value() {
        no_doorbell_is_lost(Fault::None, Planted::BitFirst);
    }

    #[test]
    #[should_panic(expected = "a doorbell is lost")]
    fn loom_catches_bits_cleared_after_the_values_are_read() {
        no_doorbell_is_lost(Fault::None, Planted::ClearedLate);
    }

    #[test]
    #[should_panic(expected = "a doorbell is lost")]
    fn loom_catches_a_sleeper_without_a_second_look() {
        no_doorbell_is_lost(Fault::None, Planted::NoSecondLook);
    }

    #[test]
    #[should_panic(expected = "a doorbell is lost")]
    fn loom_catches_bits_that_order_nothing() {
        no_doorbell_is_lost(Fault::SwapNotFenced, Planted::None);
    }

    #[test]
    #[should_panic(expected = "a doorbell is lost")]
    fn loom_catches_a_sleeper_without_a_fence() {
        no_doorbell_is_lost(Fault::FenceMissing, Planted::None);
    }

    #[test]
    #[should_panic(expected = "before its value")]
    fn loom_catches_a_count_that_is_not_released() {
        no_request_for_an_event_is_lost(Fault::StoreNotReleased, Planted::None);
    }

    #[test]
    #[should_panic(expected = "for an event is lost")]
    fn loom_catches_a_request_for_an_event_in_the_value() {
        no_request_for_an_event_is_lost(Fault::None, Planted::EventInValue);
    }
}
