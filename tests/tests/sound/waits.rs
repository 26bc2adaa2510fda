//! Waiting on the real event channel.

use std::{thread, time::Duration};

use crate::{LIMIT, ends, pause, receive, send, target};

#[test]
fn a_wait_sleeps_until_a_message_comes() {
    let (mut here, mut there) = ends();
    let to_there = target(&here, &there);
    for user_ctx in 0..3 {
        receive(&mut there, user_ctx);
    }
    let sleeper = thread::spawn(move || {
        let mut waits = || there.completions.wait(LIMIT).unwrap().unwrap().user_ctx;
        [waits(), waits(), waits()]
    });
    for user_ctx in 0..3 {
        pause(&mut here);
        send(&mut here, &to_there, 8, user_ctx);
        assert!(here.completions.wait(LIMIT).unwrap().unwrap().status.is_success());
    }
    assert_eq!(sleeper.join().unwrap(), [0, 1, 2]);
}

#[test]
fn a_wait_ends_with_its_timeout() {
    let (mut here, _there) = ends();
    for timeout in [Duration::ZERO, Duration::from_millis(3)] {
        assert_eq!(here.completions.wait(Some(timeout)).unwrap(), None);
    }
}

#[test]
fn an_event_of_what_was_polled_meanwhile_ends_no_wait() {
    let (mut here, mut there) = ends();
    let to_there = target(&here, &there);
    for round in 0..20 {
        receive(&mut there, round);
        // Armed, and then polled: the event that follows has no new completion.
        assert_eq!(there.completions.wait(Some(Duration::ZERO)).unwrap(), None);
        send(&mut here, &to_there, 8, round);
        let polled = (0..100_000_000).find_map(|_| there.completions.drain().next());
        assert_eq!(polled.unwrap().unwrap().user_ctx, round);

        receive(&mut there, 100 + round);
        send(&mut here, &to_there, 8, round);
        assert_eq!(there.completions.wait(LIMIT).unwrap().unwrap().user_ctx, 100 + round);
        here.completions.drain().for_each(|sent| assert!(sent.unwrap().status.is_success()));
    }
}
