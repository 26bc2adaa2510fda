//! Two devices, a queue between them, and a segment on each side.

use udma_abi::{Cqe, Sge, Sqe};

use super::{Bench, BenchJfc, BenchQueue, BenchSeg, pair};

/// Initiator `a` with a jetty, target `b` with a segment.
pub(super) struct Scene {
    pub(super) a: Bench,
    pub(super) b: Bench,
    pub(super) jfc: BenchJfc,
    pub(super) jetty: BenchQueue,
    pub(super) local: BenchSeg,
    pub(super) remote: BenchSeg,
    pub(super) tpn: u32,
}

pub(super) fn scene() -> Scene {
    scene_of(pair(), 4, 6)
}

pub(super) fn scene_of((mut a, mut b): (Bench, Bench), jetty_log2: u8, jfc_log2: u8) -> Scene {
    let jfc = a.jfc(jfc_log2);
    let jetty = a.jetty(jetty_log2, &jfc, |_| {});
    let local = a.seg(1 << 20);
    let remote = b.seg(1 << 20);
    let tpn = a.connect(b.eid());
    Scene { a, b, jfc, jetty, local, remote, tpn }
}

impl Scene {
    pub(super) fn complete(&mut self, sqe: Sqe, sges: &[Sge]) -> Cqe {
        self.a.post(&mut self.jetty, sqe, sges);
        for _ in 0..100 {
            if let Some(cqe) = self.a.poll(&mut self.jfc) {
                return cqe;
            }
            self.a.now += 1000;
            self.a.dev.step(self.a.now);
            self.b.dev.step(self.a.now);
        }
        panic!("no completion");
    }

    pub(super) fn fill(&self) -> Vec<u8> {
        let bytes: Vec<u8> = (0..self.local.mem.len()).map(pattern).collect();
        self.local.mem.write(0, &bytes).unwrap();
        bytes
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a pattern of bytes")]
fn pattern(i: usize) -> u8 {
    (i * 7 + i / 251) as u8
}
