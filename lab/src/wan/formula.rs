//! What the literature's formulas give for a cell.
//!
//! - owns: the physical limit, expected goodput of baselines, the bound of completion times.
//! - takes: rate, round trip, loss, sizes. gives: numbers to stand beside results. must not: simulate.

/// A path as formulas see it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PathNumbers {
    /// Bits a second on the wire.
    pub rate_bps: f64,
    /// Round-trip time without queues, in s.
    pub rtt_s: f64,
    /// Part of the packets that is lost.
    pub loss: f64,
    /// Payload bytes of a packet.
    pub payload: f64,
    /// Bytes of a packet on the wire.
    pub wire: f64,
}

impl PathNumbers {
    /// Packets that fit on the path and back: the bandwidth-delay product.
    #[must_use]
    pub fn bdp_packets(&self) -> f64 {
        self.rtt_s * self.rate_bps / (8.0 * self.wire)
    }

    /// Most goodput of any repetition scheme, in bits a second.
    #[must_use]
    pub fn limit_bps(&self) -> f64 {
        self.rate_bps * self.payload / self.wire * (1.0 - self.loss)
    }

    /// Goodput over the limit of go-back-N with a window of at least the bandwidth-delay product: each loss wastes a
    /// round trip.
    #[must_use]
    pub fn go_back_n(&self) -> f64 {
        1.0 / (1.0 - self.loss + self.loss * (self.bdp_packets() + 1.0))
    }

    /// Goodput over the limit of selective repeat whose window is `bdps` bandwidth-delay products: the left edge
    /// waits for the packet that is lost most often.
    #[must_use]
    pub fn left_edge(&self, bdps: f64) -> f64 {
        let rounds = self.rounds(bdps * self.bdp_packets());
        (bdps / rounds / (1.0 - self.loss)).min(1.0)
    }

    /// Expected transmissions of the packet, of `packets`, that needs most.
    #[must_use]
    pub fn rounds(&self, packets: f64) -> f64 {
        let mut sum = 0.0;
        let mut power = 1.0_f64;
        for _ in 0..200 {
            let term = 1.0 - (packets * (-power).ln_1p()).exp();
            sum += if power >= 1.0 { 1.0 } else { term };
            power *= self.loss;
            if term < 1e-12 || power <= 0.0 {
                break;
            }
        }
        sum
    }

    /// Least time from the first packet to the acknowledgement of the last, in s.
    #[must_use]
    pub fn completion_bound_s(&self, size_bytes: f64) -> f64 {
        size_bytes * 8.0 / self.limit_bps() + self.rtt_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of the table of expected goodput: rate, RTT, loss, Gb/s of limit, go-back-N and one BDP.
    #[test]
    fn formulas_give_the_numbers_of_the_table() {
        let rows = [
            (100e9, 1e-3, 1e-3, 97.9, 24.5, 50.2),
            (100e9, 10e-3, 1e-2, 97.1, 0.323, 32.9),
            (100e9, 10e-3, 5e-2, 93.1, 0.062, 23.6),
            (400e9, 100e-3, 1e-3, 391.8, 0.327, 145.3),
        ];
        for (rate_bps, rtt_s, loss, limit, gbn, irn) in rows {
            let path = PathNumbers { rate_bps, rtt_s, loss, payload: 4096.0, wire: 4178.0 };
            let near = |a: f64, b: f64| (a / b - 1.0).abs() < 0.02;
            let unit = path.limit_bps() / 1e9;
            assert!(near(unit, limit), "limit {unit}");
            assert!(near(unit * path.go_back_n(), gbn), "gbn {}", unit * path.go_back_n());
            assert!(near(unit * path.left_edge(1.0), irn), "irn {}", unit * path.left_edge(1.0));
        }
    }

    #[test]
    fn bounds_are_those_counted_by_hand() {
        // 1 Gb/s, of 1,250 bytes 1,000 payload, a tenth lost: 720 Mb/s; 100 ms hold 10,000 packets.
        let path =
            PathNumbers { rate_bps: 1e9, rtt_s: 0.1, loss: 0.1, payload: 1000.0, wire: 1250.0 };
        let near =
            |found: f64, wanted: f64| assert!((found / wanted - 1.0).abs() < 1e-9, "{found}");
        near(path.bdp_packets(), 10_000.0);
        near(path.limit_bps(), 7.2e8);
        // 0.1 s to send, and a round trip.
        near(path.completion_bound_s(9e6), 0.2);
        // Each loss costs the 10,001 packets of a round trip: one of 1,001 goes through.
        near(path.go_back_n(), 1.0 / 1001.0);
        // One packet needs 1 / 0.9 transmissions; of two the worse one 2 / 0.9 - 1 / 0.99.
        near(path.rounds(1.0), 1.0 / 0.9);
        near(path.rounds(2.0), 2.0 / 0.9 - 1.0 / 0.99);
        near(path.left_edge(1e6), 1.0);
    }
}
