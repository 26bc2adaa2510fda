//! All interleavings of a small model: four handles, two slots, migrations in two steps, accesses, a destroy.

use super::*;

/// One step of the model.
#[derive(Clone, Copy, Debug)]
enum Step {
    Access(u32),
    Read(u32),
    Demote(u32),
    Promote(u32),
    /// The next thing that is due ends.
    End,
    Destroy,
    Strong,
}

const STEPS: &[Step] = &[
    Step::Access(0),
    Step::Access(1),
    Step::Access(2),
    Step::Access(3),
    Step::Read(0),
    Step::Demote(0),
    Step::Promote(0),
    Step::Demote(1),
    Step::End,
    Step::Destroy,
    Step::Strong,
];

fn small_model(in_flight: MeetMigration) -> Run {
    let cfg = CacheCfg {
        l1_entries: 2,
        l2_bytes: 4096,
        banks: 1,
        sample: 1,
        in_flight,
        adapt: false,
        fill: FillRule::Demand,
        ..small_cfg(1)
    };
    let mut run = Run::new(cfg, None);
    (1..5).for_each(|index| {
        run.create(ContextKind::Page, index);
    });
    run
}

fn handle(at: u32) -> ContextHandle {
    ContextHandle::new(ContextKind::Page, at + 1).unwrap()
}

fn act(run: &mut Run, step: Step) -> Result<(), String> {
    let now = run.cache.now;
    let migrate = |cache: &mut ContextCache, at, from, to| {
        if let Some(word) = cache.directory.read(handle(at)).filter(|word| word.place() == from) {
            cache.migrate(handle(at), word, to);
        }
    };
    match step {
        Step::Access(at) => run.access(handle(at), SmallOp::Add(1 << (8 * at)), now).map(|_| ()),
        Step::Read(at) => run.access(handle(at), SmallOp::Read, now).map(|_| ()),
        Step::Demote(at) => {
            run.step(|cache| migrate(cache, at, ContextPlace::L1, ContextPlace::L2))
        }
        Step::Promote(at) => {
            run.step(|cache| migrate(cache, at, ContextPlace::L2, ContextPlace::L1))
        }
        Step::End => match run.cache.flights.due_at() {
            Some(at) => run.step(|cache| cache.advance(at.max(cache.now))),
            None => Ok(()),
        },
        Step::Destroy => run.destroy(handle(0)),
        Step::Strong => run.step(|cache| {
            let _ = cache.write_strong((handle(0), 0), &page(77), now);
        }),
    }
}

/// Every sequence of `depth` steps behind a prefix.
fn explore(in_flight: MeetMigration, prefix: &[Step], depth: u32) -> usize {
    let count = STEPS.len().pow(depth);
    for number in 0..count {
        let mut run = small_model(in_flight);
        let mut rest = number;
        let digits = (0..depth).map(|_| {
            let step = STEPS[rest % STEPS.len()];
            rest /= STEPS.len();
            step
        });
        let steps: Vec<Step> = prefix.iter().copied().chain(digits).collect();
        for &step in &steps {
            act(&mut run, step).unwrap_or_else(|error| panic!("{steps:?}: {error}"));
        }
        run.advance(1_000_000).unwrap_or_else(|error| panic!("{steps:?}: {error}"));
    }
    count
}

#[test]
fn all_interleavings_of_a_small_model_keep_every_invariant() {
    use Step::{Access, End};
    let full = [Access(0), Access(1), End, End];
    let mixed = [Access(0), Access(1), End, End, Access(2), End, Step::Demote(0)];
    for in_flight in [MeetMigration::Wait, MeetMigration::Optimistic] {
        assert_eq!(explore(in_flight, &full, 4), 14_641);
        explore(in_flight, &mixed, 3);
    }
}

/// `cargo test --release -p urma-contexts -- --ignored`: each with six steps.
#[test]
#[ignore = "long: the bounded slice is all_interleavings_of_a_small_model_keep_every_invariant"]
fn longer_interleavings_keep_every_invariant() {
    use Step::{Access, End};
    explore(MeetMigration::Wait, &[Access(0), Access(1), End, End], 6);
    explore(MeetMigration::Optimistic, &[Access(0), Access(1), End, End], 6);
}
