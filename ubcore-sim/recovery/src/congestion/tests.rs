//! Known answers of both algorithms: what they say of one long sequence of feedback.
//!
//! A changed number here is a changed algorithm: it is to be meant, and goes into the changelog.

use super::{CongestionControl, Cubic, Delay, PathNews};

/// Numbers that look random, the same in every run.
struct Draw(u64);

impl Draw {
    const fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }
}

/// Windows and intervals after every 25th of 1000 calls: round trips of 10 ms and a queue that grows with the window, some
/// without a sample; from call 150 on times of little to send, losses, timeouts, a clock that goes back once.
fn answers(control: &mut dyn CongestionControl) -> Vec<(u64, u64)> {
    let (mut draw, mut now, mut answers) = (Draw(0x9E37_79B9_7F4A_7C15), 1_000_000_000, Vec::new());
    for call in 1..=1000_u64 {
        now += 500_000 + draw.below(1_000_000);
        if call == 600 {
            now -= 50_000_000;
        }
        let window = control.window();
        let queue = (window * 20_000).min(30_000_000);
        let is_calm = call < 150;
        let is_full = is_calm || !(300..340).contains(&call) && draw.below(16) != 0;
        let flight_max = if is_full { window } else { window / 3 };
        let lost =
            if !is_calm && draw.below(40) == 0 { 1 + draw.below(flight_max / 4 + 1) } else { 0 };
        let news = PathNews {
            now,
            acked: flight_max / 10 + draw.below(3),
            lost,
            rtt: (draw.below(8) != 0).then(|| 10_000_000 + queue + draw.below(300_000)),
            flight_max,
            is_round_over: call % 10 == 0,
        };
        if lost > 0 && draw.below(2) == 0 {
            control.on_loss(now);
        }
        if !is_calm && draw.below(250) == 0 {
            control.on_timeout(now);
        }
        control.on_news(&news);
        if call % 25 == 0 {
            answers.push((control.window(), control.interval_ps()));
        }
    }
    answers
}

#[test]
fn cubic_gives_known_answers() {
    assert_eq!(
        answers(&mut Cubic::new()),
        [
            (170, 34_446_123),
            (1656, 9_164_844),
            (3074, 6_451_273),
            (4455, 7_494_781),
            (4457, 7_509_344),
            (4460, 7_510_418),
            (4462, 7_502_740),
            (3126, 10_698_454),
            (3138, 10_662_229),
            (3145, 10_633_346),
            (3151, 10_622_882),
            (3157, 10_587_281),
            (3157, 10_588_334),
            (3160, 10_594_035),
            (3166, 10_564_088),
            (2223, 15_032_700),
            (2227, 15_023_924),
            (1180, 10_889_796),
            (1564, 20_896_009),
            (1567, 21_308_646),
            (1569, 21_294_716),
            (1572, 21_261_999),
            (1574, 21_235_115),
            (1103, 25_414_110),
            (1104, 24_364_588),
            (774, 28_972_572),
            (544, 33_546_009),
            (545, 32_186_312),
            (546, 32_163_212),
            (383, 40_225_650),
            (384, 38_755_129),
            (386, 38_531_010),
            (271, 49_837_324),
            (272, 47_718_331),
            (273, 47_477_226),
            (275, 47_430_668),
            (276, 47_201_170),
            (277, 47_020_035),
            (278, 46_854_957),
            (280, 46_841_565)
        ]
    );
}

#[test]
fn delay_gives_known_answers() {
    assert_eq!(
        answers(&mut Delay::new()),
        [
            (68, 120_462_323),
            (73, 125_082_189),
            (76, 121_374_545),
            (80, 115_274_651),
            (83, 113_030_199),
            (85, 109_333_364),
            (86, 108_490_495),
            (87, 107_717_497),
            (88, 106_211_938),
            (89, 105_924_242),
            (89, 105_151_489),
            (90, 104_342_274),
            (90, 104_801_833),
            (90, 104_382_455),
            (91, 103_623_588),
            (91, 103_237_958),
            (92, 103_865_340),
            (92, 102_996_821),
            (92, 102_487_188),
            (92, 102_312_541),
            (92, 102_408_344),
            (92, 101_947_136),
            (93, 102_010_913),
            (93, 103_344_171),
            (93, 101_965_517),
            (93, 102_862_732),
            (93, 101_735_368),
            (93, 101_578_097),
            (93, 101_566_063),
            (93, 102_156_287),
            (93, 102_423_815),
            (93, 102_685_748),
            (93, 101_501_280),
            (93, 101_548_943),
            (4, 86_557_398),
            (83, 112_291_186),
            (83, 111_584_020),
            (84, 110_633_034),
            (84, 110_058_688),
            (85, 109_556_870)
        ]
    );
}

/// Windows and intervals after every 48th of 960 rounds: a queue that others fill for 40 rounds and cut at once, the last third
/// of them without cuts; a loss every 40 rounds.
#[test]
fn delay_gives_known_answers_beside_a_saw() {
    let (mut draw, mut delay, mut now) = (Draw(0x9E37_79B9_7F4A_7C15), Delay::new(), 1_000_000_000);
    let mut found = Vec::new();
    for round in 0..960_u64 {
        let place = if round < 640 { round % 40 } else { 20 };
        let is_lost = round % 40 == 39;
        let rtt = 10_000_000 + 4_000_000 + place * 100_000 + draw.below(40_000);
        if is_lost {
            delay.on_loss(now);
        }
        let window = delay.window();
        for part in 1..=4 {
            now += rtt / 4;
            let is_first = round == 0 && part == 1;
            delay.on_news(&PathNews {
                now,
                acked: window / 4,
                lost: u64::from(is_lost && part == 4),
                rtt: Some(if is_first { 10_000_000 } else { rtt }),
                flight_max: window,
                is_round_over: part == 4,
            });
        }
        if round % 48 == 47 {
            found.push((delay.window(), delay.interval_ps()));
        }
    }
    assert_eq!(
        found,
        [
            (11, 1_060_910_702),
            (9, 1_258_611_008),
            (9, 1_375_075_653),
            (43, 312_419_471),
            (82, 171_681_940),
            (166, 70_453_434),
            (213, 57_633_051),
            (221, 58_354_869),
            (205, 66_147_024),
            (172, 82_276_960),
            (238, 49_007_444),
            (258, 47_582_380),
            (249, 51_888_337),
            (154, 82_660_173),
            (134, 95_387_820),
            (123, 103_808_161),
            (117, 108_948_436),
            (593, 21_602_745),
            (2561, 5_004_157),
            (7846, 1_632_963)
        ]
    );
}
