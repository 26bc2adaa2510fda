//! What a controller makes of reports: a text that says in what ranks contradict each other.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::control::CurrentOperation;
use crate::wire::{AbortReason, Collective, IncHeader, IncKind, Rank};

/// What a switch saw that contradicts: ranks below the child that differs, the first header, and its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenContradiction {
    /// The ranks below the child.
    pub ranks: Vec<Rank>,
    /// What the chunk began with.
    pub first: IncHeader,
    /// What the child sent.
    pub second: IncHeader,
}

/// Says which ranks called what, as far as it is known.
#[must_use]
pub(super) fn contradiction_text(
    world_size: u16,
    operations: &BTreeMap<Rank, Option<CurrentOperation>>,
    seen: Option<&SeenContradiction>,
) -> String {
    // All who do the same thing are named together, the largest party last.
    let mut parties: Vec<((u16, Collective, u64), Vec<Rank>)> = Vec::new();
    for (&rank, operation) in operations {
        let Some(of) = operation else { continue };
        let key = (of.op_id, of.collective, of.elements);
        match parties.iter_mut().find(|(known, _)| *known == key) {
            Some((_, ranks)) => ranks.push(rank),
            None => parties.push((key, vec![rank])),
        }
    }
    parties.sort_by_key(|(_, ranks)| ranks.len());
    let mut text = AbortReason::Contradiction.to_string();
    if parties.len() > 1 {
        for (at, ((op_id, collective, elements), ranks)) in parties.iter().enumerate() {
            let mark = if at == 0 { ": " } else { "; " };
            let called = described(*collective);
            let ranks = ranks_text(ranks);
            let _ = write!(text, "{mark}{ranks} called {called} of {elements} elements ");
            let _ = write!(text, "(operation {op_id})");
        }
    } else if let Some(seen) = seen {
        let side = |header: &IncHeader| match header.kind {
            IncKind::Contribution(of) | IncKind::Result(of) | IncKind::Release(of) => {
                let last = if header.is_last { ", its last" } else { "" };
                format!("{} with {} elements in the chunk{last}", described(of), header.count)
            }
            IncKind::Abort(_) => "an abort".to_owned(),
        };
        let ranks = ranks_text(&seen.ranks);
        let _ = write!(text, ": in chunk {} {ranks} sent {}", seen.first.seq, side(&seen.second));
        let _ = write!(text, "; others sent {}", side(&seen.first));
    }
    let silent: Vec<_> = (0..world_size).map(Rank).collect();
    let silent: Vec<_> = silent.into_iter().filter(|rank| !operations.contains_key(rank)).collect();
    if parties.len() > 1 && !silent.is_empty() {
        let _ = write!(text, "; {} did not report", ranks_text(&silent));
    }
    text
}

/// A collective in words.
#[must_use]
pub fn described(collective: Collective) -> String {
    let of = |reduction: crate::element::Reduction| {
        format!("{:?} of {:?}", reduction.operator(), reduction.element())
    };
    match collective {
        Collective::Allreduce(reduction) => format!("allreduce ({})", of(reduction)),
        Collective::Reduce(reduction, root) => {
            format!("reduce to rank {} ({})", root.0, of(reduction))
        }
        Collective::Broadcast(element, root) => {
            format!("broadcast from rank {} ({element:?})", root.0)
        }
        Collective::Barrier => "barrier".to_owned(),
    }
}

/// `rank 3`, or `ranks 0, 1, 2 and 5 more`.
#[must_use]
pub(super) fn ranks_text(ranks: &[Rank]) -> String {
    const NAMED: usize = 16;
    let names: Vec<_> = ranks.iter().take(NAMED).map(|rank| rank.0.to_string()).collect();
    let more = match ranks.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let noun = if ranks.len() == 1 { "rank" } else { "ranks" };
    format!("{noun} {}{more}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::control::{ChunkReport, PlanError, ResumePlan};
    use crate::edge::{EdgeAttributes, Framing};
    use crate::element::{ElementType, Operator, Reduction};
    use crate::switch::memory_of;
    use crate::wire::Seq;

    const WINDOW: u32 = 8;

    fn report(oldest: u32, results: &[u32]) -> ChunkReport {
        let start = oldest.wrapping_sub(WINDOW);
        let seqs = (0..2 * WINDOW).map(|n| start.wrapping_add(n));
        let has_result = seqs.map(|seq| results.contains(&seq)).collect();
        ChunkReport { oldest: Seq(oldest), has_result }
    }

    fn plan(reports: &[ChunkReport]) -> Result<ResumePlan, PlanError> {
        let reports: Vec<_> = (0..).map(Rank).zip(reports.iter().cloned()).collect();
        ResumePlan::of(WINDOW, &reports)
    }

    #[test]
    fn the_lowest_rank_that_has_a_result_broadcasts_it() {
        let last = u32::MAX;
        let reports =
            [report(1, &[last, 0]), report(last, &[0, 2]), report(0, &[last, last - 1, 2])];
        let plan = plan(&reports).unwrap();
        assert_eq!(plan.first, Seq(last));
        let owners = [Some(Rank(0)), Some(Rank(0)), None, Some(Rank(1))];
        assert_eq!(plan.owners, owners);
    }

    proptest! {
        /// Ranks run as the clock of the window lets them; then each chunk of the plan is checked by itself.
        #[test]
        fn the_plan_is_what_a_naive_model_says(
            start in prop_oneof![Just(u32::MAX - 20), any::<u32>()],
            moves in proptest::collection::vec((0_usize..4, any::<u8>()), 0..400),
        ) {
            // answers[rank]: chunks (from start) that the rank has an answer of; results: and the data.
            let mut answers = vec![std::collections::BTreeSet::<u32>::new(); 4];
            let mut results = answers.clone();
            let mut sent = [0_u32; 4];
            let oldest = |answers: &[std::collections::BTreeSet<u32>], rank: usize| {
                (0..).find(|chunk| !answers[rank].contains(chunk)).unwrap()
            };
            for (rank, what) in moves {
                if what % 2 == 0 {
                    if sent[rank] - oldest(&answers, rank) < WINDOW {
                        sent[rank] += 1;
                    }
                } else {
                    // An answer arrives, in any order, of a chunk to which all contributed.
                    let done = *sent.iter().min().unwrap();
                    let open: Vec<_> = (0..done).filter(|s| !answers[rank].contains(s)).collect();
                    if let Some(&chunk) = open.get(usize::from(what / 2) % open.len().max(1)) {
                        answers[rank].insert(chunk);
                        // Chunks of a reduce give data to one rank alone.
                        if chunk % 3 != 0 || rank == 2 {
                            results[rank].insert(chunk);
                        }
                    }
                }
            }
            let least = (0..4).map(|rank| oldest(&answers, rank)).min().unwrap();
            let reports: Vec<_> = (0..4).map(|rank| {
                let have: Vec<_> = results[rank].iter().map(|s| start.wrapping_add(*s)).collect();
                report(start.wrapping_add(oldest(&answers, rank)), &have)
            }).collect();
            let plan = plan(&reports).unwrap();
            prop_assert_eq!(plan.first, Seq(start.wrapping_add(least)));
            for n in 0..2 * WINDOW {
                let owner = (0..4_usize).find(|&rank| results[rank].contains(&(least + n)));
                let owner = owner.map(|rank| Rank(u16::try_from(rank).unwrap()));
                prop_assert_eq!(plan.owners.get(n as usize).copied().flatten(), owner, "{}", n);
            }
            prop_assert_ne!(plan.owners.last(), Some(&None));
        }
    }

    #[test]
    fn who_differs_is_named_with_both_sizes() {
        let sum = Reduction::new(Operator::Sum, ElementType::I32).unwrap();
        let of = |elements| {
            Some(CurrentOperation { op_id: 5, collective: Collective::Allreduce(sum), elements })
        };
        let operations = [(0, of(8)), (1, of(8)), (3, of(9))];
        let operations = operations.map(|(rank, of)| (Rank(rank), of)).into();
        let text = contradiction_text(4, &operations, None);
        let wanted = "rank 3 called allreduce (Sum of I32) of 9 elements (operation 5); \
             ranks 0, 1 called allreduce (Sum of I32) of 8 elements (operation 5); \
             rank 2 did not report";
        assert!(text.ends_with(wanted), "{text}");
    }

    #[test]
    fn memory_is_that_of_two_windows_and_of_floats_that_wait() {
        let of = |framing| EdgeAttributes { framing, ..EdgeAttributes::DEFAULT };
        assert_eq!(memory_of(&of(Framing::Inc), 8), 128 * (4096 + 64) + 64 * 8 * 4096);
        let plain = |element| Framing::Plain(Reduction::new(Operator::Sum, element).unwrap());
        assert_eq!(memory_of(&of(plain(ElementType::I32)), 8), 128 * (4096 + 64));
        assert_eq!(memory_of(&of(plain(ElementType::F32)), 8), memory_of(&of(Framing::Inc), 8));
    }
}
