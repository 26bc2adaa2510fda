//! Acknowledgements of messages that packets bring: they wait for the program's next post or poll.

use udma_abi::{CqeStatus, Opcode, Sqe, cmd::Access};
use urma_packet::{Body, Packet};

use super::world::{self, Kind, World};
use crate::exchange::ack_delay::HELD_NS;
use crate::ports::LinkVisitor;
use crate::transport::TRANSMIT_MAX;

const ALL: Access = Access::READ.union(Access::WRITE).union(Access::ATOMIC);
const MS: u64 = 1_000_000;

/// A pair whose node 1 has a segment; node 0 wrote to it.
fn world() -> World {
    let mut w = World::new(Kind::Packets);
    let _here = w.segment(0, 1, 64, ALL);
    let _there = w.segment(1, 2, 64, ALL);
    w.run_for(MS);
    let write = w.to_memory(Opcode::Write, 2, 0);
    let seq = w.send(0, &write, &[(1, 0, 8)]);
    assert_eq!(w.end_of(0, seq), Some((CqeStatus::Success, 8)));
    w
}

/// Node 0 writes; its packet arrives at node 1 in a pass of `by`. Number of responses that node 1 sends in that pass.
fn write(w: &mut World, by: LinkVisitor) -> usize {
    let write = w.to_memory(Opcode::Write, 2, 0);
    request(w, &write, by)
}

/// Node 0 sends any request; otherwise the same as [`write()`].
fn request(w: &mut World, entry: &Sqe, by: LinkVisitor) -> usize {
    w.hand(0, entry, &[(1, 0, 8)]);
    w.stop(1);
    // What leaves node 0 is lost: its packet is delivered here.
    let (now, from) = (w.now, w.eid(0));
    let [a, b] = &mut w.nodes;
    a.exchange.take_mail_of(&a.core, now, world::SENDER);
    world::step_exchange(&mut a.exchange, &a.core, now);
    let mut buf = vec![0; TRANSMIT_MAX];
    while let Some(sent) = a.exchange.endpoint.poll_transmit(now, &mut buf) {
        b.on_datagram(now, from, &buf[..sent.len]);
    }
    b.exchange.on_packets(by);
    w.go_on(1);
    responses(w)
}

/// Number of responses that node 1 sends after a step at this time.
fn responses(w: &mut World) -> usize {
    let now = w.now;
    let b = &mut w.nodes[1];
    world::step_exchange(&mut b.exchange, &b.core, now);
    let mut buf = vec![0; TRANSMIT_MAX];
    let sent = std::iter::from_fn(|| {
        let sent = b.exchange.endpoint.poll_transmit(now, &mut buf)?;
        Some(matches!(
            Packet::parse(&buf[..sent.len]).expect("a packet").header.body,
            Body::Response(_)
        ))
    });
    sent.filter(|is_response| *is_response).count()
}

/// The program took messages of node 0 before, and posted a request to it after `ns`.
fn posts(w: &mut World, ns: u64) {
    let from = w.eid(0);
    for _ in 0..64 {
        let habit = &mut w.nodes[1].exchange.peers.get_mut(&from).expect("a peer").habit;
        habit.on_taken(w.now);
        w.now += ns;
        habit.on_posted(w.now);
    }
}

#[test]
fn the_acknowledgement_waits_for_a_program_that_posts_soon() {
    let mut w = world();
    assert_eq!(write(&mut w, LinkVisitor::Poll), 1, "nothing is known of the program yet");
    posts(&mut w, 1000);
    assert_eq!(write(&mut w, LinkVisitor::Poll), 0);
    w.now += HELD_NS - 1;
    assert_eq!(responses(&mut w), 0, "another completion queue is polled");
    w.now += 1;
    assert_eq!(responses(&mut w), 1);
}

#[test]
fn a_value_does_not_wait() {
    let mut w = world();
    posts(&mut w, 1000);
    let add = w.to_memory(Opcode::FetchAdd, 2, 0);
    assert_eq!(request(&mut w, &add, LinkVisitor::Poll), 1);
}

#[test]
fn it_goes_at_once_when_another_thread_took_the_message() {
    let mut w = world();
    posts(&mut w, 1000);
    assert_eq!(write(&mut w, LinkVisitor::Thread), 1);
}

#[test]
fn it_goes_at_once_when_the_program_was_late() {
    let mut w = world();
    posts(&mut w, 1000);
    posts(&mut w, HELD_NS);
    assert_eq!(write(&mut w, LinkVisitor::Poll), 1);
}
