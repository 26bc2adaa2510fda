//! The life of a node: open, conflict, close; what it leaves behind; what a closed one answers.
#![forbid(unsafe_code)]

#[cfg(test)]
mod tests {
    use std::{
        net::{IpAddr, UdpSocket},
        sync::Arc,
        time::Duration,
    };

    use ubcore_sim::{
        CongestionChoice,
        host::{
            claim::ClaimError,
            eid_ip,
            peer::PathChoice,
            scheduler::poll::{Poll, ReadyList},
        },
        node::{DRIVER, Node, NodeCfg, NodeError},
    };
    use udma_abi::{
        BackingError, DeviceBacking, DmaAccess,
        backing::{DEVICE_ID, VENDOR_ID},
        counters::Counter,
    };
    use urma_mem::{Pages, Region};
    use urma_packet::ROCE_PORT;

    fn open() -> Arc<Node> {
        Node::open(NodeCfg::default()).unwrap()
    }

    #[test]
    fn a_node_says_who_it_is() {
        let node = open();
        let info = node.info();
        assert_eq!((info.driver_name.as_str(), info.vendor_id), (DRIVER, VENDOR_ID));
        assert_eq!((info.name, info.device_id), (NodeCfg::default().name, DEVICE_ID));
        let cfg = NodeCfg { name: "eighth".to_owned(), ..NodeCfg::default() };
        assert_eq!(Node::open(cfg).unwrap().info().name, "eighth");
        let IpAddr::V4(ip) = eid_ip(node.eid()) else { panic!("not IPv4-mapped") };
        assert_eq!(ip.octets()[0], 127);
        assert_eq!(node.packets_refused(), None);
        assert!(node.now() > 0);
        node.progress();
    }

    #[test]
    fn a_node_knows_the_users_of_its_host() {
        let node = open();
        assert_eq!(node.packets_refused(), None);
        let owners = (node.device().cfg().loopback_owners)();
        let own = rustix::process::geteuid().as_raw();
        assert!(owners.contains(&(node.eid(), own)), "{owners:?}");
    }

    #[test]
    fn an_eid_is_held_by_one_node_and_free_after_it() {
        let first = open();
        let again = NodeCfg { eid: Some(first.eid()), ..NodeCfg::default() };
        match Node::open(again.clone()) {
            Err(NodeError::Claim(error @ ClaimError::Taken { .. })) => {
                let text = error.to_string();
                assert!(text.contains(&std::process::id().to_string()), "{text}");
                assert!(text.contains("ubcored"), "{text}");
            }
            other => panic!("{other:?}"),
        }
        let registers = first.registers();
        drop(first);
        // A driver that still holds the registers does not hold the EID, nor the port.
        let second = Node::open(again).unwrap();
        assert_eq!(second.packets_refused(), None);
        assert_eq!(registers.read(0), u64::MAX);
    }

    #[test]
    fn a_taken_port_leaves_a_node_that_says_who_is_in_the_way() {
        let eid = open().eid();
        let _squatter = UdpSocket::bind((eid_ip(eid), ROCE_PORT)).unwrap();
        let node = Node::open(NodeCfg { eid: Some(eid), ..NodeCfg::default() }).unwrap();
        let reason = node.packets_refused().unwrap();
        assert!(reason.contains(&std::process::id().to_string()), "{reason}");
        assert!(reason.contains("4791"), "{reason}");
    }

    #[test]
    fn a_node_without_packets_binds_no_port() {
        let path = PathChoice::SameHost;
        let node = Node::open(NodeCfg { path, ..NodeCfg::default() }).unwrap();
        assert!(node.packets_refused().is_some());
        assert!(UdpSocket::bind((eid_ip(node.eid()), ROCE_PORT)).is_ok());
    }

    #[test]
    fn vectors_have_descriptors_up_to_the_last() {
        let node = open();
        assert!(node.interrupt(0).is_ok() && node.interrupt(63).is_ok());
        assert!(matches!(node.interrupt(64), Err(BackingError::Vector(64))));
    }

    #[test]
    fn the_window_of_the_settings_is_that_of_the_device() {
        let of = |window_packets, path| {
            let congestion = CongestionChoice::None;
            let cfg = NodeCfg { window_packets, path, congestion, ..NodeCfg::default() };
            let node = Node::open(cfg).unwrap();
            let cfg = node.device().cfg();
            (cfg.window_packets, cfg.path_packets)
        };
        assert_eq!(of(Some(40), PathChoice::Auto), (40, 40));
        // Where no socket bounds it.
        let usual = of(None, PathChoice::SameHost);
        assert_eq!(usual, (8 * usual.1, usual.1), "eight times what is on the path");
        let kept = of(None, PathChoice::Auto);
        assert!(kept.0 <= usual.0 && kept.1 <= usual.1 && kept.1 <= kept.0, "{kept:?}");
    }

    #[test]
    fn a_closed_node_answers_as_a_device_that_was_pulled_out() {
        let node = open();
        let (registers, dma) = (node.registers(), node.dma());
        let region = Region::shared(4096, Pages::Base).unwrap();
        let (first, _) = dma.ranges()[0];
        let iova = first.next_multiple_of(4096) + 4096;
        dma.map(iova, &region, DmaAccess::Both).unwrap();
        assert_ne!(registers.read(0), u64::MAX);
        drop(node);
        assert_eq!(registers.read(0), u64::MAX);
        assert!(registers.queue_doorbell(0).is_none() && registers.jfc_index(0).is_none());
        assert!(registers.map(0, 4096).is_none());
        registers.write32(0, 1);
        registers.write64(0, 1);
        registers.write_block(0, &[1; 8]);
        registers.prepare(0, 4096);
        for refused in [dma.unmap(iova), dma.map(iova + 4096, &region, DmaAccess::Both)] {
            let error = refused.unwrap_err();
            assert_eq!(error.to_string(), "the device is gone: it was closed");
        }
    }

    #[test]
    fn nonsense_is_refused_before_anything_is_claimed() {
        let cfg = NodeCfg { mtu: 1500, ..NodeCfg::default() };
        assert!(matches!(Node::open(cfg), Err(NodeError::Config(_))));
    }

    fn idle(wait: Duration) {
        Poll::new().unwrap().wait(&mut ReadyList::default(), Some(wait)).unwrap();
    }

    #[test]
    fn an_idle_node_sleeps_and_a_polled_one_is_left_to_its_poller() {
        let node = open();
        let runs = || node.device().counter(Counter::BackgroundRuns);
        // A thread that spins makes thousands. A busy machine stretches the time, not the rate.
        let few_during = |what: &str, work: &dyn Fn()| {
            let (before, start) = (runs(), node.now());
            work();
            let (made, ms) = (runs() - before, (node.now() - start) / 1_000_000);
            assert!(made < 20 + ms, "{made} runs while {what} for {ms} ms");
        };
        let rest = || idle(Duration::from_millis(200));
        idle(Duration::from_millis(20));
        few_during("idle", &rest);
        few_during("polled", &|| {
            let end = node.now() + 100_000_000;
            while node.now() < end {
                node.progress();
            }
        });
        idle(Duration::from_millis(20));
        few_during("idle after polls", &rest);
    }

    #[test]
    fn forged_and_malformed_datagrams_are_dropped_and_counted() {
        let node = open();
        let to = (eid_ip(node.eid()), ROCE_PORT);
        // From the port of nodes, and from another one.
        let strangers = [("127.99.0.1", ROCE_PORT), ("127.99.0.1", 0)];
        let strangers = strangers.map(|address| UdpSocket::bind(address).unwrap());
        let sent = [0, 1, 11, 15, 16, 17, 64, 1500, 9000];
        for (at, len) in sent.into_iter().enumerate() {
            strangers[at % 2].send_to(&vec![0xc3; len], to).unwrap();
        }
        let drops = || {
            let reasons = [
                Counter::DropMalformed,
                Counter::DropIcrc,
                Counter::DropUnknownTp,
                Counter::DropUnproven,
                Counter::DropWindow,
                Counter::DropUm,
            ];
            reasons.map(|reason| node.device().counter(reason)).iter().sum::<u64>()
        };
        let end = node.now() + 20_000_000_000;
        while drops() < sent.len() as u64 && node.now() < end {
            idle(Duration::from_millis(1));
        }
        assert_eq!(drops(), sent.len() as u64);
        assert_eq!(node.device().counter(Counter::RxPackets), 0);
    }

    #[test]
    fn many_opens_leave_no_descriptor_mapping_or_thread() {
        let count = |what: &str| std::fs::read_dir(format!("/proc/self/{what}")).unwrap().count();
        let shared = || {
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
            maps.lines().filter(|line| line.contains("memfd:urma")).count()
        };
        let mut seen = Vec::new();
        for _ in 0..100 {
            let nodes: Vec<_> = (0..4).map(|_| open()).collect();
            drop(nodes);
            seen.push([count("fd"), count("task"), shared()]);
        }
        // Other tests of this process open nodes, too; a leak would grow with the rounds.
        for what in 0..3 {
            let column = |range: &[[usize; 3]]| -> (usize, usize) {
                let values = range.iter().map(|round| round[what]);
                (values.clone().min().unwrap_or(0), values.max().unwrap_or(0))
            };
            let ((_, first_max), (last_min, _)) = (column(&seen[..50]), column(&seen[50..]));
            assert!(last_min <= first_max, "column {what}: {seen:?}");
        }
    }
}
