//! Events as a server receives them.

use super::*;
use http_body_util::{BodyExt, Full};
use k8s_openapi::api::core::v1::Event as CoreEvent;
use k8s_openapi::api::events::v1::Event as SeriesEvent;
use kube::client::Body;
use machinery_runtime::{Runtime, Simulation};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::time::Duration;

/// A request of a recorder.
#[derive(Debug, Clone, PartialEq)]
struct Sent {
    request: String,
    body: Value,
}

/// Requests that a recorder makes of what is recorded; the server answers each with the next of these codes, then with 201.
fn sent(reporter: Reporter, codes: &[u16], record: impl Fn(&EventRecorder) + Send + 'static) -> Vec<Sent> {
    let simulation = Simulation::new(1);
    let runtime = simulation.runtime();
    let sent: Arc<Mutex<Vec<Sent>>> = Arc::default();
    let (own, codes) = (Arc::clone(&sent), codes.to_vec());
    let mut codes = codes.into_iter();
    simulation.run(async move {
        let server = tower::service_fn(move |request: http::Request<Body>| {
            let (own, code) = (Arc::clone(&own), codes.next().unwrap_or(201));
            async move {
                let path = request.uri().path();
                let path = path
                    .rsplit_once('/')
                    .map_or(path, |(folder, _)| match path.ends_with("events") {
                        true => path,
                        false => folder,
                    });
                let request_line = format!("{} {path}", request.method());
                let bytes = request.into_body().collect().await.unwrap().to_bytes();
                let body = serde_json::from_slice(&bytes).unwrap();
                own.lock().push(Sent {
                    request: request_line,
                    body,
                });
                let answer = http::Response::builder().status(code);
                let bytes = match reason(code) {
                    Some(reason) => status(code, reason),
                    None => bytes,
                };
                Ok::<_, std::convert::Infallible>(answer.body(Full::new(bytes)).unwrap())
            }
        });
        let client = Client::in_process(server, runtime.clone());
        record(&EventRecorder::of(client, reporter));
        // Longer than all attempts of all events together.
        runtime.sleep(Duration::from_secs(60)).await;
    });
    let sent = sent.lock();
    sent.clone()
}

fn reason(code: u16) -> Option<&'static str> {
    match code {
        403 => Some("Forbidden"),
        404 => Some("NotFound"),
        409 => Some("AlreadyExists"),
        500 => Some("InternalError"),
        _ => None,
    }
}

fn status(code: u16, reason: &str) -> bytes::Bytes {
    let status =
        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason});
    status.to_string().into()
}

fn pod(version: &str) -> ObjectReference {
    ObjectReference {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        key: ObjectKey::new("ns", "web"),
        uid: "u".to_owned(),
        resource_version: version.to_owned(),
        field_path: String::new(),
    }
}

fn warning(version: &str, message: &str) -> NewEvent {
    NewEvent::new(EventType::Warning, pod(version), "Reason", message).action("Doing")
}

#[test]
fn core_events_name_source_and_object_and_raise_their_count() {
    let reporter = Reporter::new(EventForm::Core, "kubelet").instance("n1");
    let all = sent(reporter, &[], |recorder| {
        recorder.record(warning("7", "m"));
        // Another version of the object is the same event, another message is not.
        recorder.record(warning("8", "m"));
        recorder.record(warning("8", "other"));
    });
    let requests: Vec<&str> = all.iter().map(|own| own.request.as_str()).collect();
    let events = "/api/v1/namespaces/ns/events";
    assert_eq!(
        requests,
        [
            format!("POST {events}"),
            format!("PATCH {events}"),
            format!("POST {events}")
        ]
    );
    let event: CoreEvent = serde_json::from_value(all[0].body.clone()).unwrap();
    assert_eq!(event.involved_object.resource_version.as_deref(), Some("7"));
    assert_eq!(event.source.unwrap().host.as_deref(), Some("n1"));
    assert_eq!((event.type_.as_deref(), event.count), (Some("Warning"), Some(1)));
    assert_eq!(all[1].body["count"], 2);
    assert_eq!(all[2].body["message"], "other");
}

#[test]
fn series_events_are_written_at_powers_of_two() {
    let reporter = Reporter::new(EventForm::Series, "kube-proxy").instance("kube-proxy-n1");
    let all = sent(reporter, &[], |recorder| {
        // The message is not part of a series.
        (0..5).for_each(|at| recorder.record(warning("7", &at.to_string())));
        recorder.record(warning("8", "m"));
    });
    let events = "/apis/events.k8s.io/v1/namespaces/ns/events";
    let counts: Vec<_> = all
        .iter()
        .map(|own| (own.request.as_str(), own.body["series"]["count"].clone()))
        .collect();
    let (post, patch) = (format!("POST {events}"), format!("PATCH {events}"));
    let expected = [
        (post.as_str(), Value::Null),
        (patch.as_str(), json!(2)),
        (patch.as_str(), json!(4)),
        (post.as_str(), Value::Null),
    ];
    assert_eq!(counts, expected);
    let event: SeriesEvent = serde_json::from_value(all[0].body.clone()).unwrap();
    assert_eq!(event.reporting_controller.as_deref(), Some("kube-proxy"));
    assert_eq!(event.reporting_instance.as_deref(), Some("kube-proxy-n1"));
    assert_eq!(event.regarding.unwrap().name.as_deref(), Some("web"));
    assert_eq!(event.action.as_deref(), Some("Doing"));
}

#[test]
fn event_is_created_anew_where_it_expired_or_its_name_is_taken() {
    let reporter = || Reporter::new(EventForm::Core, "c");
    let twice = |recorder: &EventRecorder| {
        recorder.record(warning("7", "m"));
        recorder.record(warning("7", "m"));
    };
    let all = sent(reporter(), &[201, 404], twice);
    let verbs: Vec<&str> = all
        .iter()
        .filter_map(|own| own.request.split(' ').next())
        .collect();
    assert_eq!(verbs, ["POST", "PATCH", "POST"]);
    let once = |recorder: &EventRecorder| recorder.record(warning("7", "m"));
    let all = sent(reporter(), &[409], once);
    assert_eq!(all.len(), 2);
    assert_ne!(all[0].body["metadata"]["name"], all[1].body["metadata"]["name"]);
    // A refusal is final, an error is not.
    assert_eq!(sent(reporter(), &[403], once).len(), 1);
    assert_eq!(sent(reporter(), &[500, 500, 500], once).len(), 3);
}

#[test]
fn events_of_one_object_and_their_messages_are_bounded() {
    let flood = |recorder: &EventRecorder| {
        (0..100).for_each(|at| recorder.record(warning("7", &format!("{at} {}", "ä".repeat(2_000)))));
    };
    let unbounded = Reporter::new(EventForm::Core, "c").unbounded_bursts();
    assert_eq!(sent(unbounded, &[], flood).len(), 100);
    let all = sent(Reporter::new(EventForm::Core, "c"), &[], flood);
    assert_eq!(all.len(), 25);
    let message = all[24].body["message"].as_str().unwrap().len();
    assert!(
        (MAX_MESSAGE_BYTES - 1..=MAX_MESSAGE_BYTES).contains(&message),
        "{message}"
    );
}

/// Real time, as a panic fails a simulation.
#[tokio::test]
async fn recorder_that_panics_loses_one_event_and_writes_the_next() {
    let scope = Runtime::real().child_scope();
    let runtime = scope.runtime().clone();
    let messages: Arc<Mutex<Vec<String>>> = Arc::default();
    let own = Arc::clone(&messages);
    let server = tower::service_fn(move |request: http::Request<Body>| {
        let own = Arc::clone(&own);
        async move {
            let bytes = request.into_body().collect().await.unwrap().to_bytes();
            let event: CoreEvent = serde_json::from_slice(&bytes).unwrap();
            let message = event.message.unwrap();
            assert_ne!(message, "worst", "as told");
            own.lock().push(message);
            Ok::<_, std::convert::Infallible>(http::Response::new(Full::new(bytes)))
        }
    });
    let client = Client::in_process(server, runtime.clone());
    let recorder = EventRecorder::of(client, Reporter::new(EventForm::Core, "c"));
    for message in ["before", "worst", "after"] {
        recorder.record(warning("7", message));
    }
    let until = async |number| {
        let written = async {
            while messages.lock().len() < number {
                runtime.sleep(Duration::from_millis(1)).await;
            }
        };
        // Only a recorder that has ended takes so long.
        runtime.timeout(Duration::from_secs(30), written).await.unwrap();
    };
    until(2).await;
    recorder.record(warning("7", "last"));
    until(3).await;
    assert_eq!(*messages.lock(), ["before", "after", "last"]);
    assert_eq!(runtime.components().panics(), [("event recorder", 1)]);
}

#[test]
fn dropped_events_are_counted_by_component_and_reason() {
    let simulation = Simulation::new(1);
    let runtime = simulation.runtime();
    simulation.run(async move {
        let codes = [201, 403].into_iter().chain(std::iter::repeat(500));
        let codes = Mutex::new(codes);
        let server = tower::service_fn(move |_: http::Request<Body>| {
            let code = codes.lock().next().unwrap();
            let bytes = reason(code).map_or_else(|| "{}".into(), |reason| status(code, reason));
            let answer = http::Response::builder().status(code);
            async move { Ok::<_, std::convert::Infallible>(answer.body(Full::new(bytes)).unwrap()) }
        });
        let client = Client::in_process(server, runtime.clone());
        let dropped = |reason: &str| {
            let counters = runtime.metrics().counters(&dropped::DROPPED);
            counters.of(&["c", reason]).get()
        };
        let recorder = EventRecorder::new(client.clone(), "c");
        for message in ["written", "refused", "lost"] {
            recorder.record(warning("7", message));
        }
        runtime.sleep(Duration::from_secs(60)).await;
        let seen = ["burst", "queue_full", "refused", "not_written"].map(dropped);
        assert_eq!(seen, [0, 0, 1, 1]);
        // 22 tokens are left of the object's burst.
        (0..30).for_each(|at| recorder.record(warning("7", &at.to_string())));
        let unbounded = EventRecorder::of(client, Reporter::new(EventForm::Core, "c").unbounded_bursts());
        (0..1_010).for_each(|at| unbounded.record(warning("7", &at.to_string())));
        assert_eq!((dropped("burst"), dropped("queue_full")), (8, 10));
    });
}
