//! The promises of the slab, alone and with several threads.

use std::sync::Arc;

use urma_mem::sync::{AtomicBool, AtomicUsize, Ordering};

use super::*;

/// Kinds of these tests only; each test that counts slots has its own.
macro_rules! kinds {
    ($($name:ident = $code:literal, queue: $queue:literal, own: $own:ty, $access:ident;)*) => {$(
        struct $name;
        // SAFETY: the public part is plain words.
        unsafe impl Kind for $name {
            const CODE: u8 = $code;
            const IS_QUEUE: bool = $queue;
            type Public = [u64; 4];
            type Own = $own;
        }
        impl $access for $name {}
    )*};
}

kinds! {
    Queue = 20, queue: true, own: Vec<u64>, Exclusive;
    Other = 21, queue: false, own: Counted, Exclusive;
    Memory = 22, queue: false, own: Counted, Named;
    Fifo = 23, queue: false, own: usize, Exclusive;
    Racing = 24, queue: false, own: Counted, Exclusive;
    Shared = 25, queue: false, own: Boxed, Named;
    Poster = 26, queue: true, own: u64, Exclusive;
    Last = 27, queue: false, own: Counted, Named;
    Placed = 28, queue: true, own: u64, Exclusive;
    Leased = 29, queue: true, own: u64, Exclusive;
    Entered = 30, queue: true, own: u64, Exclusive;
}

/// Says when it is dropped.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Memory that a late reader would find freed, and spoilt before.
struct Boxed(Box<[u64; 8]>);

impl Drop for Boxed {
    fn drop(&mut self) {
        *self.0 = [u64::MAX; 8];
    }
}

fn make<K: Kind<Public = [u64; 4]>>(own: K::Own) -> Slot<K> {
    make_of(Owner::new(7), own)
}

fn make_of<K: Kind<Public = [u64; 4]>>(owner: Owner, own: K::Own) -> Slot<K> {
    Fresh::<K>::take().expect("memory").publish(owner, [1, 2, 3, 4], own)
}

fn live<K: Kind>(public: *const K::Public) -> Option<Slot<K>> {
    let live = find_live::<K>(public);
    assert_eq!(matches!(find::<K>(public), PointerKind::Live), live.is_some());
    live
}

fn delete<K: Kind>(slot: Slot<K>) -> Option<K::Own> {
    let (own, emptied) = slot.retire()?.take();
    drop(emptied);
    Some(own)
}

#[test]
fn an_object_is_found_by_its_public_address_alone() {
    let slot = make::<Queue>(vec![9]);
    let public = slot.public();
    assert!(live::<Queue>(public).is_some_and(|found| found.is(slot)));
    assert!(live::<Fifo>(public.cast()).is_none(), "wrong kind");
    for off in [1, 8, 32, 64, 4096, 65536] {
        assert!(live::<Queue>(public.wrapping_byte_add(off)).is_none(), "{off} bytes on");
        assert!(live::<Queue>(public.wrapping_byte_sub(off)).is_none(), "{off} bytes before");
    }
    assert_eq!(slot.lock().expect("live")[0], 9);
    assert_eq!(delete(slot), Some(vec![9]));
}

#[test]
fn numbers_that_were_never_objects_are_refused() {
    let local = [0_u64; 8];
    let here: *const [u64; 4] = local.as_ptr().cast();
    assert!(matches!(find::<Queue>(here), PointerKind::Foreign));
    assert!(matches!(find::<Queue>(here.wrapping_byte_add(1)), PointerKind::Invalid));
    assert!(matches!(find::<Queue>(core::ptr::null()), PointerKind::Invalid));
    for addr in [8_usize, 64, 4096, usize::MAX & !7, 1 << 47] {
        let ptr = core::ptr::without_provenance(addr);
        assert!(live::<Queue>(ptr).is_none(), "{addr:#x}");
    }
}

#[test]
fn a_deleted_object_is_not_found_and_not_deleted_twice() {
    let drops = Arc::new(AtomicUsize::new(0));
    let slot = make::<Other>(Counted(Arc::clone(&drops)));
    let public = slot.public();
    drop(delete(slot));
    assert_eq!(drops.load(Ordering::Relaxed), 1);
    assert!(live::<Other>(public).is_none());
    assert!(slot.retire().is_none(), "double delete");
    assert!(slot.lock().is_none(), "use after delete");
}

#[test]
fn a_stale_slot_is_not_its_successor() {
    let first = make::<Other>(Counted(Arc::default()));
    drop(delete(first));
    // Until its slot is used again.
    let mut second = make::<Other>(Counted(Arc::default()));
    for _ in 0..10_000 {
        if second.public() == first.public() {
            break;
        }
        drop(delete(second));
        second = make::<Other>(Counted(Arc::default()));
    }
    assert_eq!(second.public(), first.public(), "slots are used again");
    assert!(!second.is(first));
    assert!(first.lock().is_none() && first.retire().is_none());
    assert!(live::<Other>(first.public()).is_some_and(|found| found.is(second)));
    drop(delete(second));
}

#[test]
fn the_slot_that_is_free_the_longest_is_used_first() {
    let per_chunk = cell::CHUNK_LEN / cell::stride::<Fifo>();
    let all: Vec<_> = (0..per_chunk).map(make::<Fifo>).collect();
    let order = [5, 3, 8, 0];
    for index in order {
        assert_eq!(delete(all[index]), Some(index));
    }
    for index in order {
        assert_eq!(make::<Fifo>(0).public(), all[index].public());
    }
}

#[test]
fn a_refused_delete_leaves_the_object_live() {
    let drops = Arc::new(AtomicUsize::new(0));
    let slot = make::<Other>(Counted(Arc::clone(&drops)));
    let dying = slot.retire().expect("first");
    assert!(live::<Other>(slot.public()).is_none() && slot.retire().is_none());
    let (own, emptied) = dying.take();
    emptied.refill(own);
    assert!(live::<Other>(slot.public()).is_some_and(|found| found.is(slot)));
    drop(slot.retire().expect("again"));
    assert!(slot.lock().is_some());
    assert_eq!(drops.load(Ordering::Relaxed), 0);
    drop(delete(slot));
}

#[test]
fn a_queue_names_objects_of_its_owner_only() {
    let (mine, other) = (Owner::new(100), Owner::new(101));
    let queue = make_of::<Queue>(mine, vec![]);
    let memory = make_of::<Memory>(mine, Counted(Arc::default()));
    let foreign = make_of::<Memory>(other, Counted(Arc::default()));
    let mut guard = queue.lock().expect("live");
    let (_, look) = guard.split();
    assert!(look.named::<Memory>(memory.public()).is_some());
    assert!(look.named::<Memory>(foreign.public()).is_none());
    assert!(look.named::<Memory>(queue.public()).is_none());
    assert!(look.named::<Memory>(core::ptr::null()).is_none());
    drop(guard);
    drop(delete(memory));
    let mut guard = queue.lock().expect("live");
    assert!(guard.split().1.named::<Memory>(memory.public()).is_none());
    drop(guard);
    drop((delete(queue), delete(foreign)));
}

#[test]
fn what_a_queue_found_last_is_found_again_while_it_is_that_object() {
    let (mine, other) = (Owner::new(102), Owner::new(103));
    let (queue, foreign) = (make_of::<Queue>(mine, vec![]), make_of::<Queue>(other, vec![]));
    let drops = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
    let [memory, beside] = drops.each_ref().map(|of| make_of::<Last>(mine, Counted(of.clone())));
    let mut last = LastNamed::NONE;
    let again = |queue: Slot<Queue>, last: &LastNamed<Last>, public: *const [u64; 4]| {
        let mut guard = queue.lock().expect("live");
        let found = guard.split().1.named_again::<Last>(public, last).map(|own| own.0.clone());
        found.is_some_and(|found| Arc::ptr_eq(&found, &drops[0]))
    };
    assert!(!again(queue, &last, memory.public()) && !again(queue, &last, core::ptr::null()));
    let mut guard = queue.lock().expect("live");
    assert!(guard.split().1.named_new(memory.public(), &mut last).is_some());
    drop(guard);
    assert!(again(queue, &last, memory.public()));
    assert!(!again(queue, &last, beside.public()), "another address");
    assert!(!again(foreign, &last, memory.public()), "another owner");
    // Until its slot is used again.
    drop(delete(memory));
    assert!(!again(queue, &last, memory.public()), "deleted");
    let mut next = make_of::<Last>(mine, Counted(drops[0].clone()));
    for _ in 0..10_000 {
        if next.public() == memory.public() {
            break;
        }
        drop(delete(next));
        next = make_of::<Last>(mine, Counted(drops[0].clone()));
    }
    assert_eq!(next.public(), memory.public(), "slots are used again");
    assert!(!again(queue, &last, next.public()), "another object in its place");
    drop((delete(queue), delete(foreign), delete(next), delete(beside)));
}

/// By its address, and under its lock; nothing while no place is usual.
#[test]
fn a_place_has_what_is_live_there() {
    let value = |of: &Slot<Placed>| place::<Placed>(of.public())?.try_lock().map(|own| *own);
    let (one, two) = (make::<Placed>(1), make::<Placed>(2));
    assert_eq!((value(&one), value(&two)), (None, None), "none is usual");
    one.make_usual(|| false);
    assert_eq!(value(&one), None, "calls look at more");
    one.make_usual(|| true);
    two.make_usual(|| true);
    assert_eq!((value(&one), value(&two)), (Some(1), Some(2)));
    for public in [one.public(), two.public()] {
        for off in [1, 8, 32, 64, 65536] {
            assert!(place::<Placed>(public.wrapping_byte_add(off)).is_none(), "{off} bytes on");
        }
        assert!(place::<Queue>(public).is_none(), "wrong kind");
    }
    assert!(place::<Placed>(core::ptr::null()).is_none());
    let held = one.lock().expect("live");
    assert_eq!(value(&one), None, "held");
    drop(held);
    assert_eq!(value(&one), Some(1), "and not for ever");
    // Found, and deleted before it is locked.
    let found = [&one, &two].map(|of| place::<Placed>(of.public()).expect("usual"));
    let dying = two.retire().expect("live");
    assert_eq!(value(&two), None, "dying");
    drop(dying);
    assert_eq!(value(&two), Some(2), "its end was refused");
    assert_eq!((delete(one), delete(two)), (Some(1), Some(2)));
    assert!(found.into_iter().all(|place| place.try_lock().is_none()));
    let three = make::<Placed>(3);
    assert_eq!(value(&three), None, "the usual one ended");
    three.make_usual(|| true);
    assert_eq!(value(&three), Some(3));
    forget_usual();
    assert_eq!(value(&three), None);
    assert_eq!(delete(three), Some(3));
}

/// The place at `public`. Another test makes places unusual meanwhile.
fn place_at<K: Kind>(public: *const K::Public, usual: Slot<K>) -> SlotPlace<K> {
    loop {
        usual.make_usual(|| true);
        if let Some(place) = place(public) {
            return place;
        }
    }
}

/// What this thread finds in a place by its lease.
fn by_lease<K: Exclusive<Own = u64>>(place: SlotPlace<K>) -> Option<u64> {
    place.begin()?.work(None, |own| Some(*own))
}

/// Locks the object in `slot` until this thread gets a lease of it, if it gets one; how often. `None`: there is none.
fn lease(slot: Slot<Leased>) -> Option<u32> {
    let place = place_at(slot.public(), slot);
    for visits in 1..100_000 {
        drop(slot.lock().expect("live"));
        if by_lease(place).is_some() {
            return Some(visits);
        }
    }
    urma_skip::skip("the kernel has no membarrier for a process");
    None
}

#[test]
fn a_thread_that_uses_an_object_enters_it_by_a_lease_until_another_one_does() {
    let one = make_of::<Leased>(Owner::new(105), 1);
    let enter = || by_lease(place_at(one.public(), one));
    let lock = || one.lock().map(|own| *own);
    assert_eq!(enter(), None, "it was not used");
    let Some(first) = lease(one) else { return };
    assert!(first >= 100, "{first} visits");
    let held = place_at(one.public(), one).begin().expect("leased");
    assert_eq!(held.work(Some(0), |_| enter()), None, "a visit within a visit");
    assert_eq!(enter(), Some(1), "and not for ever");
    assert_eq!(held_elsewhere(one), (None, Some(1)));
    assert_eq!((enter(), lock()), (None, Some(1)), "the lease was taken");
    let second = lease(one).expect("as before");
    assert!(second >= 2 * first - 2, "each turn of two threads would be a system call: {second}");
    // Two threads in turn.
    assert_eq!(held_elsewhere(one), (None, Some(1)));
    for _ in 0..2 * second {
        assert_eq!(held_elsewhere(one).1, lock());
        assert_eq!(enter(), None);
    }
    assert_eq!(delete(one), Some(1));
}

/// What another thread finds by a lease, and by the lock.
fn held_elsewhere(of: Slot<Leased>) -> (Option<u64>, Option<u64>) {
    let look = move || (by_lease(place_at(of.public(), of)), of.lock().map(|own| *own));
    std::thread::scope(|scope| scope.spawn(look).join().expect("no panic"))
}

/// A thread that enters by a lease asks for nothing: so there is none without a live object.
#[test]
fn a_lease_ends_before_its_object() {
    let one = make_of::<Entered>(Owner::new(106), 1);
    let found = place_at(one.public(), one);
    let visit = || drop(one.lock());
    (0..1_000).for_each(|_| visit());
    if by_lease(found).is_none() {
        return urma_skip::skip("the kernel has no membarrier for a process");
    }
    let dying = one.retire().expect("live");
    assert!(by_lease(found).is_none(), "it is being deleted");
    (0..1_000).for_each(|_| visit());
    assert!(by_lease(found).is_none(), "a lock of what is being deleted grants none");
    drop(dying);
    (0..1_000).for_each(|_| visit());
    assert!(by_lease(found).is_some(), "its end was refused");
    assert_eq!(delete(one), Some(1));
    (0..1_000).for_each(|_| visit());
    assert!(by_lease(found).is_none(), "it was deleted");
    let two = make_of::<Entered>(Owner::new(106), 2);
    let is_there = || place_at(one.public(), two).try_lock().is_some();
    assert!((0..1_000).all(|_| !is_there()) && by_lease(found).is_none());
    assert_eq!(delete(two), Some(2));
}

/// Counted when it begins, so that a queue which takes its lock later than that sees it.
#[test]
fn each_end_changes_what_queues_have_seen() {
    let mine = Owner::new(104);
    let (queue, memory) =
        (make_of::<Queue>(mine, vec![]), make_of::<Last>(mine, Counted(Arc::default())));
    let mut guard = queue.lock().expect("live");
    let before = guard.split().1.seen_ends();
    drop(guard);
    let dying = memory.retire().expect("live");
    let mut guard = queue.lock().expect("live");
    assert_ne!(guard.split().1.seen_ends(), before);
    drop(guard);
    drop(dying.take());
    drop(delete(queue));
}

#[test]
fn several_locks_are_taken_once_each() {
    let (a, b) = (make::<Queue>(vec![1]), make::<Other>(Counted(Arc::default())));
    let held = Held::take([Some(a.into()), Some(b.into()), Some(a.into()), None]).expect("live");
    assert_eq!(held.own(a).map(Vec::len), Some(1));
    assert!(held.own(b).is_some());
    let c = make::<Queue>(vec![]);
    assert!(held.own(c).is_none());
    drop(held);
    assert!(a.lock().is_some() && b.lock().is_some());
    drop(delete(b));
    assert!(Held::take([Some(a.into()), Some(b.into())]).is_none());
    assert!(a.lock().is_some(), "nothing stays locked");
    drop((delete(a), delete(c)));
}

#[test]
fn of_two_deleters_one_wins() {
    const ROUNDS: usize = 2_000;
    let drops = Arc::new(AtomicUsize::new(0));
    for _ in 0..ROUNDS {
        let slot = make::<Racing>(Counted(Arc::clone(&drops)));
        let public = slot.public().expose_provenance();
        let racer = std::thread::spawn(move || {
            let public = core::ptr::with_exposed_provenance(public);
            live::<Racing>(public).and_then(delete).is_some()
        });
        let won = delete(slot).is_some();
        let lost = racer.join().expect("no panic");
        assert!(won ^ lost);
    }
    assert_eq!(drops.load(Ordering::Relaxed), ROUNDS);
}

/// A post holds its queue's lock, in each other round by a lease, and has found what it names; the deleter comes meanwhile.
#[test]
fn what_a_post_names_outlives_the_post() {
    let owner = Owner::new(200);
    let queue = make_of::<Poster>(owner, 0);
    for round in 0..20 {
        let visits = if round % 2 == 0 { 0 } else { 10_000 };
        (0..visits).for_each(|_| drop(queue.lock()));
        let memory = make_of::<Shared>(owner, Boxed(Box::new([round; 8])));
        let mut guard = queue.lock().expect("live");
        let own = guard.split().1.named::<Shared>(memory.public()).expect("live");
        let deleted = Arc::new(AtomicBool::new(false));
        let deleter = {
            let deleted = Arc::clone(&deleted);
            std::thread::spawn(move || {
                let own = delete(memory).expect("one deleter");
                deleted.store(true, Ordering::SeqCst);
                drop(own);
            })
        };
        while memory.is_live() {
            std::thread::yield_now();
        }
        for _ in 0..200 {
            assert!(!deleted.load(Ordering::SeqCst), "deleted under a post");
            assert_eq!(*own.0, [round; 8]);
            std::thread::yield_now();
        }
        drop(guard);
        deleter.join().expect("no panic");
    }
    delete(queue).expect("live");
}

/// Posts, looks and deletes as they come, of several threads.
#[test]
fn threads_that_post_and_delete_see_whole_objects() {
    let owner = Owner::new(201);
    let queue = make_of::<Poster>(owner, 0);
    let place = AtomicUsize::new(0);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let public = core::ptr::with_exposed_provenance(place.load(Ordering::Relaxed));
                let mut guard = queue.lock().expect("live");
                let (seen, look) = guard.split();
                if let Some(own) = look.named::<Shared>(public) {
                    assert_eq!(*own.0, [own.0[0]; 8]);
                    assert_ne!(own.0[0], u64::MAX);
                    *seen += 1;
                }
            }
        });
        for round in 0..20_000 {
            let slot = make_of::<Shared>(owner, Boxed(Box::new([round; 8])));
            place.store(slot.public().expose_provenance(), Ordering::Relaxed);
            assert_eq!(delete(slot).expect("one deleter").0[7], round);
        }
        stop.store(true, Ordering::Relaxed);
    });
    delete(queue).expect("live");
}
