//! The bodies of the fuzz targets with bounded random bytes, and a mistake that each must catch.
#![forbid(unsafe_code)]

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use proptest::prelude::*;
    use urma_hostile::{
        Bytes,
        device::device,
        inc::{inc as inc_switch, inc_yaml},
        inc_session::inc_session,
        rc::{Rights, rc, rc_with},
        shared_ring::{Put, Reader, Taken, Writer, reader, shared_ring, writer},
    };
    use urma_mem::Region;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_bytes_break_the_shared_ring(data in proptest::collection::vec(any::<u8>(), 0..512)) {
            shared_ring(&data);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_driver_breaks_the_device(data in proptest::collection::vec(any::<u8>(), 0..1500)) {
            device(&data);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_peer_breaks_a_connection_of_the_standard_opcodes(
            data in proptest::collection::vec(any::<u8>(), 0..1500)
        ) {
            rc(&data);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_child_or_parent_breaks_a_switch(
            data in proptest::collection::vec(any::<u8>(), 0..1500)
        ) {
            inc_switch(&data);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_session_breaks_a_controller(data in proptest::collection::vec(any::<u8>(), 0..600)) {
            inc_session(&data);
        }
    }

    const MAP: &str = "nodes:\n  - {name: s1, kind: switch, address: 127.0.1.1}\n  - {name: h0, kind: host, \
        address: 127.0.2.1}\n  - {name: h1, kind: host, address: 127.0.2.2}\nlinks:\n  - ends: [s1, h0]\n  \
        - ends: [s1, h1]\n";
    const TREE: &str = r#"switches:
  - id: 0
    root: true
    connections:
      - {up: false, host_id: 0, my_ip: "10.0.0.1", my_qp: 100, peer_ip: "10.0.1.1", peer_qp: 200}
      - {up: false, my_ip: "10.0.0.1", my_qp: 101, peer_ip: "10.0.0.2", peer_qp: 110}
  - id: 1
    root: false
    connections:
      - {up: true, my_ip: "10.0.0.2", my_qp: 110, peer_ip: "10.0.0.1", peer_qp: 101, my_psn: 5}
      - {up: false, host_id: 1, my_ip: "10.0.0.2", my_qp: 111, peer_ip: "10.0.1.2", peer_qp: 201}
"#;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_text_is_a_topology_or_is_refused(
            tree in any::<bool>(),
            edits in proptest::collection::vec((any::<u16>(), 0_u8..128, 0_usize..4), 0..6)
        ) {
            let mut text = if tree { TREE } else { MAP }.as_bytes().to_vec();
            for (at, byte, len) in edits {
                let at = usize::from(at) % text.len();
                let end = text.len().min(at + len);
                text.splice(at..end, [byte]);
            }
            inc_yaml(&text);
        }
    }

    #[test]
    fn the_texts_that_are_edited_are_topologies() {
        assert!(inc::document::read_map(MAP).is_ok());
        assert!(inc::tree_document::read_topology(TREE).is_ok());
    }

    /// The same bytes, which no memory that looks at rights lets pass.
    #[test]
    fn memory_that_ignores_rights_is_noticed() {
        // A WRITE of one byte with the key of the region that may be read, as the first packet.
        let write = [0, 0, 0x0a, 0x00, 8, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 1];
        rc(&write);
        let ignored = || rc_with(&write, Rights::Ignored);
        assert!(catch_unwind(AssertUnwindSafe(ignored)).is_err());
    }

    const CAPACITY: usize = 256;

    /// Believes every word of the other side.
    struct Trusting {
        own: Region,
        peer: Region,
        position: u64,
    }

    impl Trusting {
        fn at(&self) -> usize {
            usize::try_from(self.position).unwrap_or(0) % CAPACITY
        }

        const fn size(len: usize) -> u64 {
            (8 + len as u64).next_multiple_of(64)
        }
    }

    impl Reader for Trusting {
        fn take(&mut self) -> Taken {
            let header = self.peer.load_u64(self.at() & !7).unwrap();
            if header == 0 {
                return Taken::Nothing;
            }
            let len = usize::try_from(header & 0xffff).unwrap();
            let mut bytes = vec![0; len];
            let _ = self.peer.read(self.at() + 8, &mut bytes);
            self.position += Self::size(len);
            self.own.store_u64(0, self.position).unwrap();
            Taken::Entry(u32::try_from(header >> 32).unwrap(), bytes)
        }
    }

    impl Writer for Trusting {
        fn put(&mut self, kind: u32, bytes: &[u8]) -> Put {
            let head = self.peer.load_u64(0).unwrap();
            let size = Self::size(bytes.len());
            let to_end = CAPACITY as u64 - self.position % CAPACITY as u64;
            let skip = if size <= to_end { 0 } else { to_end };
            let end = self.position + skip + size + 64;
            if end.saturating_sub(head) > CAPACITY as u64 || bytes.len() > CAPACITY / 2 {
                return Put::NoRoom;
            }
            if skip != 0 {
                let marker = u64::from(u32::MAX) << 32 | (skip - 8);
                self.own.store_u64(self.at(), marker).unwrap();
            }
            self.position += skip;
            self.own.store_u64(self.at(), u64::from(kind) << 32 | bytes.len() as u64).unwrap();
            self.own.write(self.at() + 8, bytes).unwrap();
            self.position += size;
            self.own.store_u64(self.at(), 0).unwrap();
            Put::Done
        }
    }

    fn trusting(own: Region, peer: Region) -> Trusting {
        Trusting { own, peer, position: 0 }
    }

    /// Whether bounded random bytes find what is wrong.
    fn is_caught(body: impl Fn(&[u8])) -> bool {
        let mut state = 1_u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33).to_le_bytes()[0]
        };
        (0..500).any(|_| {
            let data: Vec<u8> = (0..400).map(|_| random()).collect();
            catch_unwind(AssertUnwindSafe(|| body(&data))).is_err()
        })
    }

    #[test]
    fn a_trusting_reader_is_caught() {
        assert!(!is_caught(shared_ring), "the real ends keep their promises");
        assert!(is_caught(|data| reader(Bytes::new(data), CAPACITY, trusting)));
    }

    #[cfg(feature = "planted-faults")]
    #[test]
    fn a_planted_lack_of_token_checks_is_caught() {
        use ubcore_sim::fault::PlantedFault;
        use urma_hostile::device::device_with;
        assert!(!is_caught(device), "nothing is planted yet");
        // A bound that is too wide stays unseen here: on a node's own memory the window of the
        // segment refuses the byte as well. Conformance sees it between two nodes.
        let fault = Some(PlantedFault::TokenNotChecked);
        let faulty = |data: &[u8]| device_with(data, |cfg| cfg.fault = fault);
        assert!(is_caught(faulty), "a token that is not checked went unseen");
    }

    #[test]
    fn a_trusting_writer_is_caught() {
        assert!(is_caught(|data| writer(Bytes::new(data), CAPACITY, trusting)));
    }
}
