use super::*;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use machinery_runtime::Simulation;
use parking_lot::Mutex;
use serde_json::Value;
use std::time::Duration;
use tokio::sync::Notify;

/// A receiver that notes what it is sent, and when; it answers as it is set.
#[derive(Debug)]
struct Model {
    runtime: Runtime,
    seen: Mutex<Vec<(Duration, Value)>>,
    arrived: Notify,
    behaviour: Mutex<Behaviour>,
    changed: Notify,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Behaviour {
    Takes,
    Refuses,
    Hangs,
}

impl Receiver for Model {
    fn post(&self, events: Bytes) -> BoxFuture<'_, Result<(), String>> {
        async move {
            let list: Value = serde_json::from_slice(&events).unwrap();
            assert_eq!(list["kind"], "EventList");
            assert_eq!(list["apiVersion"], "audit.k8s.io/v1");
            let noted = (self.runtime.monotonic(), list["items"].clone());
            self.seen.lock().push(noted);
            self.arrived.notify_waiters();
            loop {
                let changed = self.changed.notified();
                let behaviour = *self.behaviour.lock();
                match behaviour {
                    Behaviour::Takes => return Ok(()),
                    Behaviour::Refuses => return Err("it refused".to_owned()),
                    Behaviour::Hangs => changed.await,
                }
            }
        }
        .boxed()
    }
}

impl Model {
    fn becomes(&self, behaviour: Behaviour) {
        *self.behaviour.lock() = behaviour;
        self.changed.notify_waiters();
    }

    /// The number of events in each list that came, with its time since the first.
    fn lists(&self) -> Vec<(u64, usize)> {
        let seen = self.seen.lock();
        let first = seen.first().map_or(Duration::ZERO, |(at, _)| *at);
        let list = |(at, items): &(Duration, Value)| {
            let millis = u64::try_from((*at - first).as_millis()).unwrap();
            (millis, items.as_array().unwrap().len())
        };
        seen.iter().map(list).collect()
    }

    fn events(&self) -> usize {
        self.lists().iter().map(|(_, events)| events).sum()
    }

    async fn until_events(&self, count: usize) {
        loop {
            let arrived = self.arrived.notified();
            if self.events() >= count {
                return;
            }
            arrived.await;
        }
    }
}

fn errors() -> IntCounterVec {
    IntCounterVec::new(prometheus::Opts::new("e", "e"), &["plugin"]).unwrap()
}

fn config() -> AuditWebhookConfig {
    AuditWebhookConfig::new("unread".into())
}

/// Runs a scenario with a webhook and its receiver, in simulated time.
fn scenario<F: Future<Output = ()> + Send + 'static>(
    config: AuditWebhookConfig,
    behaviour: Behaviour,
    scenario: impl FnOnce(AuditWebhook, Arc<Model>, Runtime) -> F + Send + 'static,
) {
    let simulation = Simulation::new(1);
    let runtime = simulation.runtime();
    simulation.run(async move {
        let model = Arc::new(Model {
            runtime: runtime.clone(),
            seen: Mutex::default(),
            arrived: Notify::new(),
            behaviour: Mutex::new(behaviour),
            changed: Notify::new(),
        });
        let receiver = Arc::clone(&model) as Arc<dyn Receiver>;
        let webhook = AuditWebhook::open(&config, receiver, &runtime, errors());
        scenario(webhook, model, runtime).await;
    });
}

fn line(bytes: usize) -> String {
    format!("{PREFIX}\"level\":\"{}\"}}\n", "x".repeat(bytes))
}

impl AuditWebhook {
    fn lost(&self, plugin: &str) -> u64 {
        self.errors.with_label_values(&[plugin]).get()
    }
}

fn batches_of(max_size: usize, throttle: Option<AuditThrottle>) -> AuditWebhookConfig {
    AuditWebhookConfig {
        batch: AuditBatchConfig {
            max_size,
            throttle,
            ..AuditBatchConfig::default()
        },
        ..config()
    }
}

#[test]
fn batch_goes_when_it_is_full_or_has_waited() {
    scenario(
        batches_of(3, None),
        Behaviour::Takes,
        async |webhook, model, runtime| {
            for _ in 0..7 {
                assert!(webhook.write(&line(1), "anna").done().await, "no request waits");
            }
            model.until_events(6).await;
            assert_eq!(model.lists(), [(0, 3), (0, 3)]);
            runtime.sleep(Duration::from_secs(20)).await;
            webhook.write(&line(1), "anna");
            model.until_events(8).await;
            assert_eq!(
                model.lists()[2],
                (30_000, 2),
                "thirty seconds after its first event"
            );
            assert_eq!(model.seen.lock()[0].1[0], serde_json::json!({"level": "x"}));
            assert_eq!(webhook.lost(BUFFER) + webhook.lost(PLUGIN), 0);
        },
    );
}

#[test]
fn batches_go_at_the_rate_of_the_throttle() {
    let throttle = AuditThrottle { qps: 2.0, burst: 2 };
    scenario(
        batches_of(1, Some(throttle)),
        Behaviour::Takes,
        async |webhook, model, _| {
            for _ in 0..5 {
                webhook.write(&line(1), "anna");
            }
            model.until_events(5).await;
            assert_eq!(model.lists(), [(0, 1), (0, 1), (500, 1), (1_000, 1), (1_500, 1)]);
        },
    );
}

#[test]
fn batch_has_no_more_bytes_than_its_bound() {
    let truncate = AuditTruncateConfig {
        max_event_size: 50,
        max_batch_size: 100,
    };
    let config = AuditWebhookConfig {
        truncate: Some(truncate),
        ..config()
    };
    scenario(config, Behaviour::Takes, async |webhook, model, _| {
        // 12 bytes are around the text.
        for bytes in [38, 38, 38, 200, 38] {
            webhook.write(&line(bytes), "anna");
        }
        webhook.flush().await;
        let sizes: Vec<usize> = model.lists().iter().map(|(_, events)| *events).collect();
        assert_eq!(sizes, [2, 1, 1, 1], "one that is larger goes alone");
    });
}

/// Four pauses, each half as long again as the one before, and up to a fifth longer.
#[test]
fn failed_call_is_made_again_five_times_in_all() {
    scenario(
        batches_of(2, None),
        Behaviour::Refuses,
        async |webhook, model, runtime| {
            webhook.write(&line(1), "anna");
            webhook.write(&line(1), "anna");
            runtime.sleep(Duration::from_secs(300)).await;
            let times: Vec<u64> = model.lists().iter().map(|(at, _)| *at).collect();
            assert_eq!(times.len(), 5);
            let pauses = times.windows(2).map(|pair| pair[1] - pair[0]);
            for (pause, least) in pauses.zip([10_000, 15_000, 22_500, 33_750]) {
                assert!((least..=least * 6 / 5).contains(&pause), "{times:?}");
            }
            assert_eq!((webhook.lost(PLUGIN), webhook.unsent()), (2, 0));
            model.becomes(Behaviour::Takes);
            webhook.write(&line(1), "anna");
            webhook.flush().await;
            assert_eq!((model.events(), webhook.lost(PLUGIN)), (11, 2));
        },
    );
}

#[test]
fn receiver_that_hangs_keeps_no_request_waiting_and_bounds_hold() {
    scenario(
        batches_of(1, None),
        Behaviour::Hangs,
        async |webhook, model, runtime| {
            let buffer = webhook.buffer_size;
            for user in 0..buffer + 1_000 {
                webhook.wait_for_capacity().await;
                assert!(webhook.write(&line(1), &user.to_string()).done().await);
                // The sender has its turn.
                runtime.sleep(Duration::from_millis(1)).await;
            }
            assert_eq!(model.events(), MAX_UNDER_WAY);
            // One more is in the batch that waits for a place.
            assert_eq!(webhook.unsent(), buffer + MAX_UNDER_WAY + 1);
            assert_eq!(webhook.lost(BUFFER), 1_000 - (MAX_UNDER_WAY as u64 + 1));
            model.becomes(Behaviour::Takes);
            webhook.flush().await;
            assert_eq!(
                model.events(),
                buffer + MAX_UNDER_WAY + 1,
                "and nothing is lost of it"
            );
        },
    );
}

#[test]
fn large_events_of_a_receiver_that_hangs_are_bounded_in_bytes() {
    scenario(
        batches_of(1, None),
        Behaviour::Hangs,
        async |webhook, _, runtime| {
            let megabyte = line(1 << 20);
            for user in 0..40 {
                webhook.write(&megabyte, &user.to_string());
                runtime.sleep(Duration::from_millis(1)).await;
            }
            assert!(webhook.backlog.bytes() <= MAX_BUFFERED_BYTES);
            assert_eq!((webhook.unsent(), webhook.lost(BUFFER)), (31, 9));
        },
    );
}

#[test]
fn large_events_of_one_user_leave_room_for_those_of_others() {
    scenario(
        batches_of(1, None),
        Behaviour::Hangs,
        async |webhook, model, _| {
            let megabyte = line(1 << 20);
            for _ in 0..40 {
                webhook.write(&megabyte, "red");
            }
            let (kept, lost) = (webhook.unsent(), webhook.lost(BUFFER));
            assert_eq!((kept, lost), (16, 24), "half of the bytes");
            for _ in 0..1_000 {
                webhook.write(&line(1), "blue");
            }
            assert_eq!(webhook.lost(BUFFER), lost);
            model.becomes(Behaviour::Takes);
            webhook.flush().await;
            webhook.write(&megabyte, "red");
            assert_eq!(webhook.lost(BUFFER), lost, "what is sent takes no share");
        },
    );
}

#[test]
fn requests_wait_for_their_events_in_the_modes_that_block() {
    for (mode, goes_on) in [(AuditMode::Blocking, true), (AuditMode::BlockingStrict, false)] {
        let config = AuditWebhookConfig { mode, ..config() };
        scenario(config, Behaviour::Takes, async move |webhook, model, _| {
            let written: Vec<_> = (0..5).map(|_| webhook.write(&line(1), "anna")).collect();
            assert_eq!(model.events(), 0, "the sender had no turn");
            for written in written {
                assert!(written.lets_request_go_on().await);
            }
            assert_eq!(model.lists(), [(0, 5)], "what waits goes together");
            model.becomes(Behaviour::Refuses);
            assert!(!webhook.write(&line(1), "anna").done().await);
            assert_eq!(
                webhook.write(&line(1), "anna").lets_request_go_on().await,
                goes_on
            );
            assert_eq!(webhook.lost(PLUGIN), 2);
        });
    }
}

#[test]
fn server_that_stops_waits_for_no_pause() {
    scenario(
        batches_of(1, None),
        Behaviour::Refuses,
        async |webhook, model, runtime| {
            webhook.write(&line(1), "anna");
            model.until_events(1).await;
            let begun = runtime.monotonic();
            model.becomes(Behaviour::Takes);
            webhook.flush().await;
            assert_eq!(runtime.monotonic(), begun);
            assert_eq!((model.events(), webhook.lost(PLUGIN)), (2, 0));
        },
    );
}

#[test]
fn flags_that_make_no_sense_are_refused_in_upstreams_words() {
    let check = |edit: &dyn Fn(&mut AuditWebhookConfig), expected: &[&str]| {
        let mut config = config();
        edit(&mut config);
        assert_eq!(config.problems(), expected);
    };
    check(&|_| {}, &[]);
    check(
        &|own| own.batch.buffer_size = 0,
        &["invalid audit batch webhook buffer size 0, must be a positive number"],
    );
    check(
        &|own| own.batch.max_size = 0,
        &["invalid audit batch webhook max batch size 0, must be a positive number"],
    );
    check(
        &|own| own.batch.throttle = Some(AuditThrottle { qps: 0.0, burst: 1 }),
        &["invalid audit batch webhook throttle QPS 0, must be a positive number"],
    );
    check(
        &|own| own.batch.throttle = Some(AuditThrottle { qps: 1.0, burst: 0 }),
        &["invalid audit batch webhook throttle burst 0, must be a positive number"],
    );
    let bounds = |max_event_size, max_batch_size| {
        Some(AuditTruncateConfig {
            max_event_size,
            max_batch_size,
        })
    };
    check(
        &|own| {
            own.mode = AuditMode::Blocking;
            own.batch.max_size = 0;
            own.truncate = bounds(0, 1);
        },
        &["invalid audit truncate webhook max event size 0, must be a positive number"],
    );
    check(
        &|own| own.truncate = bounds(2, 1),
        &["invalid audit truncate webhook max batch size 1, must be greater than max event size (2)"],
    );
}
