//! A segment that its owner takes back while others read and write it, and lends again under another token.
//!
//! *Owns*: when that happens, and that nothing changes it meanwhile. *Takes*: the run. *Gives*: the fate of requests
//! for it. *Must not*: judge completions.

use urma_core::{Context, RemoteSegment, Segment, SegmentAccess, SegmentCfg, Status, Token};
use urma_mem::Region;

use super::book::Fate;
use super::node::SMALL_LEN;
use super::run::{FILL, Run};

/// Longest time that it is not lent, in ns.
const BACK_NS: u64 = 5_000_000;
const LENT_VA: u64 = 0x5000_0000_0000;

/// Memory that others may use while there is a segment of it.
#[derive(Debug)]
pub(super) struct Lent {
    region: Region,
    segment: Option<Segment>,
    token: u32,
    /// When it is lent again.
    back_at: u64,
}

impl Lent {
    /// Lends `SMALL_LEN` bytes; each next life of the segment has a token one higher than `token`.
    pub(super) fn new(context: &Context, token: u32) -> Result<Self, Status> {
        let region = Region::private(SMALL_LEN).map_err(|_| Status::NoMemory)?;
        let mut lent = Self { region, segment: None, token, back_at: 0 };
        lent.lend(context)?;
        Ok(lent)
    }

    fn lend(&mut self, context: &Context) -> Result<(), Status> {
        self.token += 1;
        let cfg = SegmentCfg::new(SegmentAccess::REMOTE_ALL).with_token(Token::new(self.token));
        let cfg = SegmentCfg { user_iova: Some(LENT_VA), ..cfg };
        self.segment = Some(context.register(&self.region, &cfg, None)?);
        Ok(())
    }

    /// What others import, while it is lent.
    pub(super) fn remote(&self) -> Option<RemoteSegment> {
        self.segment.as_ref().map(Segment::remote)
    }

    /// How a request ends that is posted now.
    pub(super) const fn fate(&self) -> Fate {
        if self.segment.is_some() { Fate::Success } else { Fate::Refused }
    }
}

impl Run<'_> {
    /// Takes back what `node` lent, or lends it again, when it is time.
    pub(super) fn lend(&mut self, node: usize) -> Result<(), String> {
        let now = self.fabric.now();
        let say = |status: Status| format!("what node {node} lent: {status}");
        let Some(program) = self.program(node) else { return Ok(()) };
        let lent = &mut program.view.lent;
        if lent.segment.is_some() {
            return if self.rng.chance_ppm(self.plan.take_back_ppm) {
                self.take_back(node)
            } else {
                Ok(())
            };
        }
        if now < lent.back_at {
            return Ok(());
        }
        lent.lend(&program.context).map_err(say)?;
        self.fabric.note(format_args!("lent {node}"));
        for other in (0..self.nodes.len()).filter(|&other| other != node) {
            self.meet_lent(other, node).map_err(say)?;
        }
        Ok(())
    }

    /// `me` imports what `other` lends now.
    fn meet_lent(&mut self, me: usize, other: usize) -> Result<(), Status> {
        let lent =
            self.nodes[other].program.as_ref().and_then(|program| program.view.lent.remote());
        let (Some(lent), Some(program)) = (lent, self.program(me)) else { return Ok(()) };
        program.import_lent(other, &lent)
    }

    /// Once the segment is unregistered no peer changes its memory, whatever is under way.
    fn take_back(&mut self, node: usize) -> Result<(), String> {
        self.fabric.note(format_args!("take back {node}"));
        for other in &mut self.nodes {
            other.sides.iter_mut().for_each(|side| side.requests.doubt_lent(node));
        }
        let back_at = self.fabric.now() + self.rng.below(BACK_NS);
        let Some(program) = self.program(node) else { return Ok(()) };
        let lent = &mut program.view.lent;
        lent.back_at = back_at;
        if let Some(segment) = lent.segment.take() {
            let ended = segment.unregister();
            ended.map_err(|refused| format!("node {node}, taking back: {}", refused.status))?;
        }
        lent.region.write(0, &[FILL; SMALL_LEN]).map_err(|error| error.to_string())
    }

    /// What is not lent holds what its owner wrote there.
    pub(super) fn check_lent(&self) -> Result<(), String> {
        for (number, node) in self.nodes.iter().enumerate() {
            let Some(lent) = node.program.as_ref().map(|program| &program.view.lent) else {
                continue;
            };
            if lent.segment.is_some() {
                continue;
            }
            let mut found = [0; SMALL_LEN];
            lent.region.read(0, &mut found).map_err(|error| error.to_string())?;
            if found.iter().any(|&byte| byte != FILL) {
                return Err(format!("node {number}: memory changed that it had taken back"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::idle::{accepts, refuses};
    use super::*;

    #[test]
    fn a_change_of_what_was_taken_back_is_refused() {
        refuses(&[("a byte", "memory changed that it had taken back", |run| {
            run.take_back(1)?;
            let lent = &run.program(1).expect("it lives").view.lent;
            lent.region.write(SMALL_LEN - 1, &[1]).expect("inside");
            run.check_lent()
        })]);
        accepts(&[
            ("one that is lent", |run| {
                let lent = &run.program(1).expect("it lives").view.lent;
                lent.region.write(SMALL_LEN - 1, &[1]).expect("inside");
                run.check_lent()
            }),
            ("one that is lent again", |run| {
                run.take_back(1)?;
                let lent = &mut run.program(1).expect("it lives").view.lent;
                assert_eq!((lent.fate(), lent.remote().is_some()), (Fate::Refused, false));
                lent.back_at = 1;
                run.lend(1)?;
                let lent = &run.program(1).expect("it lives").view.lent;
                assert_eq!(lent.fate(), Fate::Success);
                run.check_lent()
            }),
        ]);
    }
}
