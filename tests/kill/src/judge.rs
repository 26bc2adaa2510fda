//! The judge: reads a journal and names everything that must not be.
//!
//! *Owns*: the rules. *Takes*: records. *Gives*: a [`Judgement`]. *Must not*: depend on the device;
//! a journal of any implementation can be judged.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::journal::{Kind, RECV_BIT, Record};
use crate::plan::{Mode, Op};

/// Number of the completion status that a segment gives which is gone.
const REM_ACCESS_ABORT: u8 = 8;

/// What is demanded of a journal.
#[derive(Clone, Copy, Debug, Default)]
pub struct Demand {
    /// Its writer was killed: requests may be open, and the end may be missing.
    pub dead: bool,
    /// Its peer lived when it ended: the two may still be connected.
    pub peer_lives: bool,
    /// From this round on every send succeeds (its peer stays alive).
    pub clean_from: Option<u32>,
}

/// One thing that must not be.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "rule", rename_all = "snake_case")]
#[expect(missing_docs, reason = "id and round are those of the journal")]
pub enum Violation {
    /// Posted, and no completion came.
    NoCompletion { id: u64, round: u32 },
    /// More than one completion.
    Completed { id: u64, round: u32, times: u32 },
    /// The device wrote another number of completions than the polls gave.
    Counted { round: u32, written: u64, polled: u64 },
    /// A completion of something that was never posted, or whose post was refused.
    NeverPosted { id: u64, round: u32 },
    /// One id was posted twice: the worker is wrong.
    PostedTwice { id: u64, round: u32 },
    /// A READ, an atomic or a message brought other bytes than it should.
    WrongBytes { id: u64, round: u32 },
    /// The peer's writes left words that no write of its could have left.
    WrongMemory { round: u32, words: u64 },
    /// A message came a second time or after a later one; in a clean round also: one is missing.
    MessageOrder { round: u32, expected: u64, came: u64 },
    /// The sender got its success and the message never came.
    MessageLost { round: u32, number: u64 },
    /// A message came that was never posted.
    MessageInvented { round: u32, number: u64 },
    /// More descriptors open than before the peer came.
    Descriptors { round: u32, before: u64, after: u64 },
    /// More shared memory mapped than before the peer came.
    Mappings { before: u64, after: u64 },
    /// A request that the target must refuse succeeded.
    NotRefused { id: u64, round: u32 },
    /// A send failed although its peer was alive.
    Failed { id: u64, round: u32, status: u8 },
    /// The peer could not be imported although it was alive.
    NoPeer { round: u32 },
    /// A round has no end: the worker hung or died.
    NoEnd { round: u32 },
}

/// Judgement on a journal: counts, and the rules that were broken.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Judgement {
    /// Requests posted, receives among them.
    pub posted: u64,
    /// Number of completions of requests.
    pub completed: u64,
    /// Number of completions with success.
    pub succeeded: u64,
    /// Messages that came in.
    pub messages: u64,
    /// What must not be.
    pub violations: Vec<Violation>,
}

#[derive(Default)]
struct Request {
    round: u32,
    posted: u32,
    refused: bool,
    completed: u32,
}

/// Judges a journal; with that of its peer, also what both record about messages in a round.
#[must_use]
pub fn judge(records: &[Record], demand: Demand, peer: Option<(&[Record], u32)>) -> Judgement {
    let mut judgement = Judgement::default();
    if let Some((peer, round)) = peer {
        compare_messages(records, peer, round, &mut judgement);
    }
    let mut requests = BTreeMap::<u64, Request>::new();
    let mut rounds = BTreeMap::<u32, Round>::new();
    let began = records.iter().find(|record| record.kind == Kind::Began);
    let rested = records.iter().rfind(|record| record.kind == Kind::Rested);
    if let (Some(began), Some(rested)) = (began, rested) {
        compare_rest(began, rested, &mut judgement);
    }
    for record in records {
        let round = rounds.entry(record.round).or_default();
        round.take(record, demand, &mut judgement);
        let entry = requests.entry(record.id);
        match record.kind {
            Kind::Posting => {
                let request = entry.or_default();
                request.posted += 1;
                request.round = record.round;
            }
            Kind::Refused => entry.or_default().refused = true,
            Kind::Completed => {
                let request = entry.or_default();
                request.completed += 1;
                request.round = record.round;
            }
            _ => {}
        }
    }
    for (id, request) in requests {
        judge_request(id, &request, demand, &mut judgement);
    }
    for (number, round) in rounds {
        // Round 0 holds what belongs to none.
        if !round.ended && number != 0 && !demand.dead {
            judgement.violations.push(Violation::NoEnd { round: number });
        }
    }
    judgement
}

/// When all peers are gone, what was opened and mapped for them is gone too.
fn compare_rest(began: &Record, rested: &Record, judgement: &mut Judgement) {
    if rested.a > began.a {
        let (round, before, after) = (rested.round, began.a, rested.a);
        judgement.violations.push(Violation::Descriptors { round, before, after });
    }
    if rested.b > began.b {
        judgement.violations.push(Violation::Mappings { before: began.b, after: rested.b });
    }
}

/// What was posted and reported as done came, and nothing else came.
fn compare_messages(records: &[Record], peer: &[Record], round: u32, judgement: &mut Judgement) {
    let is_um = |record: &Record| {
        record.kind == Kind::Began && record.round == round && record.op == Mode::Um as u8
    };
    let may_lose = records.iter().any(is_um);
    let in_round = |record: &&Record| record.round == round;
    let came = |record: &&Record| {
        record.kind == Kind::Completed && record.id & RECV_BIT != 0 && record.status == 0
    };
    let came: BTreeSet<u64> =
        records.iter().filter(in_round).filter(came).map(|record| record.a).collect();
    let is_message = |record: &&Record| {
        record.kind == Kind::Posting && Op::from_code(record.op).is_some_and(Op::is_message)
    };
    let posted: BTreeMap<u64, u64> = peer
        .iter()
        .filter(in_round)
        .filter(is_message)
        .map(|record| (record.id, record.b))
        .collect();
    for record in peer.iter().filter(in_round) {
        let number = posted.get(&record.id).copied();
        let Some(number) = number.filter(|number| !came.contains(number)) else { continue };
        if !may_lose && record.kind == Kind::Completed && record.status == 0 {
            judgement.violations.push(Violation::MessageLost { round, number });
        }
    }
    let posted: BTreeSet<u64> = posted.into_values().collect();
    let invented = came.difference(&posted).copied();
    judgement
        .violations
        .extend(invented.map(|number| Violation::MessageInvented { round, number }));
}

fn judge_request(id: u64, request: &Request, demand: Demand, judgement: &mut Judgement) {
    let round = request.round;
    let accepted = request.posted > 0 && !request.refused;
    judgement.posted += u64::from(accepted);
    if request.posted > 1 {
        judgement.violations.push(Violation::PostedTwice { id, round });
    }
    if request.completed > 0 && !accepted {
        judgement.violations.push(Violation::NeverPosted { id, round });
    }
    if request.completed > 1 {
        let times = request.completed;
        judgement.violations.push(Violation::Completed { id, round, times });
    }
    if accepted && request.completed == 0 && !demand.dead {
        judgement.violations.push(Violation::NoCompletion { id, round });
    }
}

/// What is kept per round.
#[derive(Default)]
struct Round {
    descriptors: u64,
    polled: u64,
    message: u64,
    ended: bool,
    /// Messages may be lost: UM.
    may_lose: bool,
}

impl Round {
    fn take(&mut self, record: &Record, demand: Demand, judgement: &mut Judgement) {
        let (round, id) = (record.round, record.id);
        let clean = demand.clean_from.is_some_and(|from| round >= from);
        match record.kind {
            Kind::Began => {
                self.descriptors = record.a;
                self.may_lose = record.op == Mode::Um as u8;
            }
            Kind::Completed => {
                judgement.completed += 1;
                self.polled += 1;
                self.completed(record, clean, judgement);
            }
            Kind::Memory if record.b > 0 => {
                judgement.violations.push(Violation::WrongMemory { round, words: record.b });
            }
            Kind::Marker => self.polled += 1,
            Kind::Counted if record.a != self.polled => {
                let (written, polled) = (record.a, self.polled);
                judgement.violations.push(Violation::Counted { round, written, polled });
            }
            Kind::NoPeer if clean => judgement.violations.push(Violation::NoPeer { round }),
            Kind::Refused if clean => {
                judgement.violations.push(Violation::Failed { id, round, status: u8::MAX });
            }
            Kind::Ended => {
                self.ended = true;
                let (before, after) = (self.descriptors, record.a);
                if after > before && !clean && !demand.peer_lives {
                    judgement.violations.push(Violation::Descriptors { round, before, after });
                }
            }
            _ => {}
        }
    }

    fn completed(&mut self, record: &Record, clean: bool, judgement: &mut Judgement) {
        let (round, id) = (record.round, record.id);
        if record.flags & Record::WRONG_BYTES != 0 {
            judgement.violations.push(Violation::WrongBytes { id, round });
        }
        let is_recv = id & RECV_BIT != 0;
        if record.status != 0 {
            let may_be_refused = record.op == Op::Churn as u8 || record.op == Op::Barred as u8;
            let expected = may_be_refused && record.status == REM_ACCESS_ABORT;
            if clean && !is_recv && !expected {
                let status = record.status;
                judgement.violations.push(Violation::Failed { id, round, status });
            }
            return;
        }
        judgement.succeeded += 1;
        if record.op == Op::Barred as u8 {
            judgement.violations.push(Violation::NotRefused { id, round });
        }
        if is_recv {
            judgement.messages += 1;
            let expected = self.message + 1;
            if record.a < expected || clean && !self.may_lose && record.a > expected {
                let came = record.a;
                judgement.violations.push(Violation::MessageOrder { round, expected, came });
            }
            self.message = record.a;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn post(id: u64) -> Record {
        Record::new(Kind::Posting, 1, id)
    }

    fn done(id: u64) -> Record {
        Record::new(Kind::Completed, 1, id)
    }

    fn with_frame(middle: &[Record]) -> Vec<Record> {
        let mut records = vec![Record { a: 10, ..Record::new(Kind::Began, 1, 0) }];
        records.extend_from_slice(middle);
        records.push(Record { a: 10, ..Record::new(Kind::Ended, 1, 0) });
        records
    }

    fn violations(middle: &[Record]) -> Vec<Violation> {
        judge(&with_frame(middle), Demand::default(), None).violations
    }

    #[test]
    fn one_completion_per_request_is_right() {
        let failed = Record { status: 9, ..done(1) };
        let judgement =
            judge(&with_frame(&[post(0), post(1), done(0), failed]), Demand::default(), None);
        assert_eq!(judgement.violations, []);
        assert_eq!((judgement.posted, judgement.completed, judgement.succeeded), (2, 2, 1));
    }

    #[test]
    fn each_violation_is_named() {
        let round = 1;
        assert_eq!(violations(&[post(3)]), [Violation::NoCompletion { id: 3, round }]);
        assert_eq!(
            violations(&[post(3), done(3), done(3)]),
            [Violation::Completed { id: 3, round, times: 2 }]
        );
        assert_eq!(violations(&[done(3)]), [Violation::NeverPosted { id: 3, round }]);
        let refused = Record::new(Kind::Refused, 1, 3);
        assert_eq!(violations(&[post(3), refused]), []);
        assert_eq!(
            violations(&[post(3), refused, done(3)]),
            [Violation::NeverPosted { id: 3, round }]
        );
        assert_eq!(
            violations(&[post(3), post(3), done(3)]),
            [Violation::PostedTwice { id: 3, round }]
        );
        let wrong = Record { flags: Record::WRONG_BYTES, ..done(3) };
        assert_eq!(violations(&[post(3), wrong]), [Violation::WrongBytes { id: 3, round }]);
        let counted = Record { a: 2, ..Record::new(Kind::Counted, 1, 0) };
        assert_eq!(
            violations(&[post(3), done(3), counted]),
            [Violation::Counted { round, written: 2, polled: 1 }]
        );
        let passed = Record { op: Op::Barred as u8, ..done(3) };
        assert_eq!(violations(&[post(3), passed]), [Violation::NotRefused { id: 3, round }]);
        let barred = Record { status: REM_ACCESS_ABORT, ..passed };
        assert_eq!(violations(&[post(3), barred]), []);
        let memory = Record { a: 100, b: 2, ..Record::new(Kind::Memory, 1, 0) };
        assert_eq!(violations(&[memory]), [Violation::WrongMemory { round, words: 2 }]);
    }

    #[test]
    fn messages_follow_each_other() {
        let came = |order: [u64; 3], demand: Demand| {
            let recv =
                |(n, a): (u64, u64)| [post(RECV_BIT | n), Record { a, ..done(RECV_BIT | n) }];
            let records: Vec<_> = (0..).zip(order).flat_map(recv).collect();
            judge(&with_frame(&records), demand, None).violations.len()
        };
        let clean = Demand { clean_from: Some(1), ..Demand::default() };
        assert_eq!(came([1, 2, 3], clean), 0);
        assert_eq!(came([1, 1, 2], clean), 1, "doubled");
        assert_eq!(came([1, 3, 4], clean), 1, "lost");
        assert!(came([1, 3, 2], clean) > 0, "out of order");
        let rough = Demand::default();
        assert_eq!(came([1, 3, 4], rough), 0, "the one between may have failed at its sender");
        assert!(came([1, 3, 2], rough) > 0 && came([1, 1, 2], rough) > 0);
    }

    #[test]
    fn messages_of_um_may_be_lost_and_nothing_else() {
        let recv = |(n, a): (u64, u64)| [post(RECV_BIT | n), Record { a, ..done(RECV_BIT | n) }];
        let clean = Demand { clean_from: Some(1), ..Demand::default() };
        let came = |order: [u64; 3]| {
            let middle: Vec<_> = (0..).zip(order).flat_map(recv).collect();
            let mut records = with_frame(&middle);
            records[0].op = Mode::Um as u8;
            judge(&records, clean, None).violations.len()
        };
        assert_eq!((came([1, 2, 3]), came([1, 3, 9])), (0, 0));
        assert!(came([1, 3, 2]) > 0 && came([1, 1, 2]) > 0);
    }

    #[test]
    fn ends_and_descriptors_are_demanded_of_the_living() {
        let mut records = with_frame(&[post(1)]);
        records.pop();
        let dead = Demand { dead: true, ..Demand::default() };
        assert_eq!(judge(&records, dead, None).violations, []);
        let named = judge(&records, Demand::default(), None).violations;
        let round = 1;
        assert_eq!(named, [Violation::NoCompletion { id: 1, round }, Violation::NoEnd { round }]);
        records.push(done(1));
        records.push(Record { a: 11, ..Record::new(Kind::Ended, 1, 0) });
        let named = judge(&records, Demand::default(), None).violations;
        assert_eq!(named, [Violation::Descriptors { round, before: 10, after: 11 }]);
        let connected = Demand { peer_lives: true, ..Demand::default() };
        assert_eq!(judge(&records, connected, None).violations, []);
    }

    #[test]
    fn completions_of_the_sender_are_compared_with_what_came() {
        let sent = |id: u64, number: u64, status: u8| {
            [Record { op: Op::Send as u8, b: number, ..post(id) }, Record { status, ..done(id) }]
        };
        let peer = [sent(0, 1, 0), sent(1, 2, 10), sent(2, 3, 0)].concat();
        let came = |numbers: &[u64]| {
            let recv =
                |(n, a): (u64, &u64)| [post(RECV_BIT | n), Record { a: *a, ..done(RECV_BIT | n) }];
            let records: Vec<_> = (0..).zip(numbers).flat_map(recv).collect();
            judge(&with_frame(&records), Demand::default(), Some((&peer, 1))).violations
        };
        let round = 1;
        assert_eq!(came(&[1, 3]), [], "the one between failed");
        assert_eq!(came(&[1, 2, 3]), [], "failed at the sender and came all the same");
        assert_eq!(came(&[1, 2]), [Violation::MessageLost { round, number: 3 }]);
        assert_eq!(came(&[1, 3, 4]), [Violation::MessageInvented { round, number: 4 }]);
    }

    #[test]
    fn descriptors_are_counted_again_when_all_peers_are_gone() {
        let mut records = with_frame(&[]);
        records.push(Record { a: 12, ..Record::new(Kind::Rested, 0, 0) });
        let named = judge(&records, Demand::default(), None).violations;
        assert_eq!(named, [Violation::Descriptors { round: 0, before: 10, after: 12 }]);
        let last = records.len() - 1;
        records[last] = Record { a: 10, b: 1, ..records[last] };
        let named = judge(&records, Demand::default(), None).violations;
        assert_eq!(named, [Violation::Mappings { before: 0, after: 1 }]);
    }

    #[test]
    fn a_clean_round_takes_every_post_and_finds_its_peer() {
        let clean = Demand { clean_from: Some(1), ..Demand::default() };
        let named = |middle: &[Record], demand| judge(&with_frame(middle), demand, None).violations;
        let refused = [post(3), Record::new(Kind::Refused, 1, 3)];
        let round = 1;
        assert_eq!(named(&refused, Demand::default()), []);
        assert_eq!(named(&refused, clean), [Violation::Failed { id: 3, round, status: u8::MAX }]);
        let lonely = [Record::new(Kind::NoPeer, 1, 0)];
        assert_eq!(named(&lonely, Demand::default()), []);
        assert_eq!(named(&lonely, clean), [Violation::NoPeer { round }]);
        // Before the round from which on all is clean, and in it.
        let later = Demand { clean_from: Some(2), ..Demand::default() };
        assert_eq!(named(&lonely, later), []);
    }

    #[test]
    fn only_the_target_may_refuse_and_only_what_it_must() {
        let clean = Demand { clean_from: Some(1), ..Demand::default() };
        let ended = |op: Op, status: u8| {
            let records = with_frame(&[post(1), Record { op: op as u8, status, ..done(1) }]);
            judge(&records, clean, None).violations.len()
        };
        for op in [Op::Churn, Op::Barred] {
            assert_eq!((ended(op, REM_ACCESS_ABORT), ended(op, 9)), (0, 1), "{op:?}");
        }
        assert_eq!(ended(Op::Write, REM_ACCESS_ABORT), 1);
        assert_eq!(ended(Op::Churn, 0), 0);
    }

    #[test]
    fn markers_count_as_completions_of_the_device() {
        let counted = Record { a: 2, ..Record::new(Kind::Counted, 1, 0) };
        let marker = Record::new(Kind::Marker, 1, 0);
        assert_eq!(violations(&[post(3), done(3), marker, counted]), []);
        let named = violations(&[post(3), done(3), marker, marker, counted]);
        assert_eq!(named, [Violation::Counted { round: 1, written: 2, polled: 3 }]);
    }

    #[test]
    fn each_round_is_judged_by_itself() {
        let in_round = |round: u32, a: u64| {
            let id = RECV_BIT | u64::from(round);
            let end = Record { a: 10, ..Record::new(Kind::Ended, round, 0) };
            let came = Record { a, ..Record::new(Kind::Completed, round, id) };
            let began = Record { a: 10, ..Record::new(Kind::Began, round, 0) };
            [began, Record::new(Kind::Posting, round, id), came, end]
        };
        let clean = Demand { clean_from: Some(1), ..Demand::default() };
        let both = [in_round(1, 1), in_round(2, 1)].concat();
        assert_eq!(judge(&both, clean, None).violations, []);
        let both = [in_round(1, 1), in_round(2, 2)].concat();
        let named = judge(&both, clean, None).violations;
        assert_eq!(named, [Violation::MessageOrder { round: 2, expected: 1, came: 2 }]);
        let mut endless = [in_round(1, 1), in_round(2, 1)].concat();
        endless.retain(|record| record.kind != Kind::Ended || record.round == 1);
        let named = judge(&endless, clean, None).violations;
        assert_eq!(named, [Violation::NoEnd { round: 2 }]);
    }

    #[test]
    fn only_um_may_lose_what_completed_as_sent() {
        let sent = [Record { op: Op::Send as u8, b: 1, ..post(0) }, done(0)];
        let none = |mode: Mode| {
            let mut records = with_frame(&[]);
            records[0].op = mode as u8;
            judge(&records, Demand::default(), Some((&sent, 1))).violations
        };
        let lost = [Violation::MessageLost { round: 1, number: 1 }];
        assert_eq!((none(Mode::Um), none(Mode::Rm)), (vec![], lost.to_vec()));
        assert_eq!(none(Mode::Rc), lost);
    }

    #[test]
    fn a_clean_round_has_no_failed_send() {
        let failed = Record { status: 9, ..done(1) };
        let flushed = Record { status: 11, ..done(RECV_BIT) };
        let records = with_frame(&[post(1), failed, post(RECV_BIT), flushed]);
        let clean = Demand { clean_from: Some(1), ..Demand::default() };
        let named = judge(&records, clean, None).violations;
        assert_eq!(named, [Violation::Failed { id: 1, round: 1, status: 9 }]);
    }
}
