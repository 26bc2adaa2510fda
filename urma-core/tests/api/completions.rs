//! Drains and waits against the recorder: what they poll, arm and acknowledge.

use std::time::Duration;

use urma_core::{Completion, Completions, Context, JfcCfg, JfsCfg, Status, TransportMode};

use crate::recorder::Recorder;

fn completion(user_ctx: u64) -> Completion {
    Completion { user_ctx, ..Completion::default() }
}

fn fill(recorder: &Recorder, contexts: std::ops::Range<u64>) {
    recorder.book().completions.extend(contexts.map(completion));
}

fn open(recorder: &Recorder, depth: u32) -> (Context, Completions) {
    let context = recorder.open();
    let completions = context.create_completions(&JfcCfg::new(depth)).unwrap();
    (context, completions)
}

#[test]
fn a_drain_gives_what_is_there_up_to_the_depth() {
    let recorder = Recorder::new();
    let (_context, mut completions) = open(&recorder, 40);
    assert_eq!(completions.drain().count(), 0);
    fill(&recorder, 0..50);
    let one_by_one: Vec<_> = completions.drain().map(|one| one.unwrap().user_ctx).collect();
    assert_eq!(one_by_one, (0..40).collect::<Vec<_>>());
    assert_eq!(completions.drain().count(), 10);
}

#[test]
fn a_drain_that_is_dropped_loses_nothing() {
    let recorder = Recorder::new();
    let (_context, mut completions) = open(&recorder, 8);
    fill(&recorder, 0..3);
    assert_eq!(completions.drain().next(), Some(Ok(completion(0))));
    assert_eq!(completions.drain().next(), Some(Ok(completion(1))));
    let mut drain = completions.drain();
    assert_eq!((drain.next(), drain.next()), (Some(Ok(completion(2))), None));
    // Ended is ended, for this drain.
    fill(&recorder, 3..4);
    assert_eq!(drain.next(), None);
    assert_eq!(completions.drain().next(), Some(Ok(completion(3))));
}

#[test]
fn a_whole_drain_polls_in_batches() {
    let recorder = Recorder::new();
    let (_context, mut completions) = open(&recorder, 40);
    fill(&recorder, 0..50);
    let mut came = Vec::new();
    completions.drain().for_each(|one| came.push(one.unwrap().user_ctx));
    assert_eq!(came, (0..40).collect::<Vec<_>>());
    assert_eq!(recorder.calls("poll"), 3);
}

#[test]
fn an_error_ends_a_drain() {
    let recorder = Recorder::new();
    let (_context, mut completions) = open(&recorder, 8);
    fill(&recorder, 0..3);
    recorder.fail("poll", Status::NoDevice);
    let mut drain = completions.drain();
    assert_eq!((drain.next(), drain.next()), (Some(Err(Status::NoDevice)), None));
    recorder.fail("poll", Status::NoDevice);
    let came = completions.drain().fold(Vec::new(), |mut came, one| {
        came.push(one);
        came
    });
    assert_eq!(came, [Err(Status::NoDevice)]);
    assert_eq!(completions.drain().count(), 3);
}

#[test]
fn a_wait_arms_only_when_nothing_is_there_and_only_once() {
    let recorder = Recorder::new();
    let (_context, mut completions) = open(&recorder, 8);
    fill(&recorder, 0..1);
    assert_eq!(completions.wait(None).unwrap(), Some(completion(0)));
    assert_eq!(recorder.calls("arm"), 0);
    for _ in 0..3 {
        assert_eq!(completions.wait(Some(Duration::ZERO)).unwrap(), None);
    }
    assert_eq!(recorder.calls("arm"), 1);
}

#[test]
fn a_wait_acknowledges_its_events_and_passes_over_stale_ones() {
    let recorder = Recorder::new();
    let (context, mut completions) = open(&recorder, 8);
    let id = completions.jfc().id();
    recorder.book().events = vec![id, id];
    assert_eq!(completions.wait(Some(Duration::ZERO)).unwrap(), None);
    assert_eq!(recorder.calls("arm"), 3);
    // A device that makes events of nothing keeps no thread forever.
    recorder.book().events = vec![id; 1000];
    assert_eq!(completions.wait(None).unwrap(), None);
    assert!(recorder.book().events.len() > 900);
    recorder.fail("arm", Status::NoDevice);
    assert_eq!(completions.wait(None), Err(Status::NoDevice));
    recorder.fail("poll", Status::NoDevice);
    assert_eq!(completions.wait(None), Err(Status::NoDevice));
    // All were acknowledged, so it can be deleted.
    completions.delete().unwrap();
    context.delete().unwrap();
}

#[test]
fn a_completion_that_is_announced_too_early_is_waited_for() {
    let recorder = Recorder::new();
    let (_context, mut completions) = open(&recorder, 8);
    let id = completions.jfc().id();
    recorder.book().events = vec![id; 8];
    fill(&recorder, 7..8);
    recorder.book().hidden_for = 30;
    assert_eq!(completions.wait(Some(Duration::from_secs(60))).unwrap(), Some(completion(7)));
    // A wait that ends without one has asked for the next event: its descriptor is waited on.
    recorder.book().events = vec![id; 8];
    let armed = recorder.calls("arm");
    assert_eq!(completions.wait(Some(Duration::ZERO)).unwrap(), None);
    assert_eq!((recorder.calls("arm"), recorder.book().events.len()), (armed + 9, 0));
}

#[test]
fn completions_with_a_queue_stay() {
    let recorder = Recorder::new();
    let (context, completions) = open(&recorder, 8);
    let cfg = JfsCfg::new(TransportMode::Rm, 8);
    let jfs = context.create_jfs(&cfg, completions.jfc()).unwrap();
    let refused = completions.delete().unwrap_err();
    assert_eq!((refused.status, recorder.calls("delete_jfc")), (Status::Again, 0));
    let mut completions = *refused.object;
    fill(&recorder, 0..1);
    assert_eq!(completions.wait(None).unwrap(), Some(completion(0)));
    jfs.delete().unwrap();
    completions.delete().unwrap();
    assert_eq!((recorder.calls("delete_jfc"), context.live_objects()), (1, 0));
}
