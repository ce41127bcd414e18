//! Writes of claims, as the server has them by then.

use super::*;
use crate::devices::objects::DeviceId;
use crate::devices::writes::ClaimWriter;
use crate::devices::{Deallocation, DeviceReservation, HeldClaim, SpecialReservation};
use kube::client::Body;
use machinery_client::Client;
use machinery_meta::Revision;
use machinery_runtime::{Runtime, Simulation};
use std::sync::Mutex;

/// A claim at version 2, and what is asked of it: a write of another version is a conflict.
#[derive(Clone, Default)]
struct Server {
    claim: Value,
    asked: Arc<Mutex<Vec<(String, Value)>>>,
}

impl Server {
    fn with(status: &Value) -> Self {
        let metadata = json!({"namespace": "ns", "name": "x", "uid": "u", "resourceVersion": "2"});
        Self {
            claim: json!({"metadata": metadata, "status": status}),
            ..Self::default()
        }
    }

    fn answer(&self, method: &str, body: Value) -> (u16, Value) {
        let is_read = body.is_null();
        let version = body["metadata"]["resourceVersion"].clone();
        self.asked.lock().unwrap().push((method.to_owned(), body.clone()));
        match version.as_str() {
            _ if is_read || method == "POST" => (200, self.claim.clone()),
            None | Some("2") => (200, body),
            _ => {
                let status =
                    json!({"kind": "Status", "status": "Failure", "code": 409, "reason": "Conflict"});
                (409, status)
            }
        }
    }

    /// Lets a writer act on the claim. Returns its answer, and the writes.
    fn run<F: Future<Output: Send> + Send + 'static>(
        &self,
        act: impl FnOnce(Client, Runtime) -> F + Send + 'static,
    ) -> (F::Output, Vec<(String, Value)>) {
        let simulation = Simulation::new(1);
        let runtime = simulation.runtime();
        let server = self.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let server = server.clone();
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect_bytes().await.unwrap();
                let body = serde_json::from_slice(&body).unwrap_or_default();
                let (code, answer) = server.answer(head.method.as_str(), body);
                let answer = Body::from(answer.to_string().into_bytes());
                Ok::<_, std::io::Error>(http::Response::builder().status(code).body(answer).unwrap())
            }
        });
        let made = simulation.run(async move {
            let client = Client::in_process(service, runtime.clone());
            act(client, runtime).await
        });
        let mut asked = std::mem::take(&mut *self.asked.lock().unwrap());
        asked.retain(|(method, _)| method != "GET");
        (made, asked)
    }

    /// Reserves the claim for a pod whose attempt saw the device in it.
    fn reserved(&self) -> (Result<(), String>, Vec<(String, Value)>) {
        self.run(async |client, runtime| {
            let mut own = DeviceReservation {
                claim: ObjectKey::new("ns", "x"),
                uid: "u".into(),
                allocation: None,
                has: vec![DeviceId {
                    driver: "d".into(),
                    pool: "p".into(),
                    device: "dev".into(),
                }],
                written: None,
                special: None,
            };
            let pod = make_pod("p", json!({}));
            ClaimWriter::new(&client, &runtime).reserve(&pod, &mut own).await
        })
    }
}

fn allocation(device: &str) -> Value {
    let result = json!({"request": "r", "driver": "d", "pool": "p", "device": device});
    json!({"devices": {"results": [result]}})
}

#[test]
fn claim_gives_its_devices_back_in_the_version_that_was_looked_at() {
    let deallocated = |revision: u64| {
        let server = Server::with(&json!({"allocation": allocation("dev")}));
        let own = Deallocation {
            claim: ObjectKey::new("ns", "x"),
            uid: "u".into(),
            revision: Revision(revision),
            deletes: false,
        };
        let (written, asked) = server
            .run(async move |client, runtime| ClaimWriter::new(&client, &runtime).deallocate(&own).await);
        assert_eq!(asked.len(), 1);
        assert_eq!(asked[0].1["status"]["allocation"], Value::Null);
        written.map_err(|error| error.is_conflict())
    };
    assert_eq!(deallocated(2), Ok(()));
    assert_eq!(deallocated(1), Err(true), "it may have been reserved since");
}

#[test]
fn reservation_is_of_the_devices_that_were_seen() {
    let (reserved, asked) = Server::with(&json!({"allocation": allocation("dev")})).reserved();
    assert_eq!(reserved, Ok(()));
    let own = &asked[0].1["status"]["reservedFor"][0];
    assert_eq!((asked.len(), &own["name"]), (1, &json!("p")));
    // The claim controller took them back, or it has others by now.
    let refused = |status: Value, what: &str| {
        let (reserved, asked) = Server::with(&status).reserved();
        let expected = format!("claim ns/x got {what} elsewhere in the meantime");
        assert_eq!((reserved, asked.len()), (Err(expected), 0));
    };
    refused(json!({}), "deallocated");
    refused(json!({"allocation": allocation("other")}), "allocated");
}

#[test]
fn claim_of_extended_resources_is_made_for_the_pod_and_then_written() {
    let (made, asked) = Server::with(&json!({})).run(async |client, runtime| {
        let mut own = DeviceReservation {
            claim: ObjectKey::new("ns", "<extended-resources>/p"),
            uid: "assumed".into(),
            allocation: Some(allocation("dev")),
            has: Vec::new(),
            written: None,
            special: Some(SpecialReservation {
                spec: json!({"devices": {"requests": []}}),
                mappings: json!([]),
                made: None,
            }),
        };
        let pod = make_pod("p", json!({}));
        let written = ClaimWriter::new(&client, &runtime).reserve(&pod, &mut own).await;
        written.map(|()| own.held())
    });
    let held = HeldClaim {
        claim: ObjectKey::new("ns", "x"),
        uid: "u".into(),
        is_special: true,
    };
    assert_eq!(made, Ok(Some(held)));
    let methods: Vec<&str> = asked.iter().map(|(method, _)| &**method).collect();
    assert_eq!(methods, ["POST", "PUT", "PUT"]);
    let metadata = &asked[0].1["metadata"];
    assert_eq!(metadata["generateName"], "p-extended-resources-");
    assert_eq!(
        metadata["annotations"],
        json!({"resource.kubernetes.io/extended-resource-claim": "true"})
    );
    let owner = &metadata["ownerReferences"][0];
    assert_eq!((&owner["uid"], &owner["controller"]), (&json!("p"), &json!(true)));
    assert_eq!(asked[0].1["spec"], json!({"devices": {"requests": []}}));
    assert_eq!(
        asked[2].1["status"]["allocation"]["devices"],
        allocation("dev")["devices"]
    );
}

#[test]
fn pod_that_is_not_bound_gives_back_the_claim_that_it_had() {
    let given_back = |uid: &str, is_special: bool| {
        let mut server = Server::with(&json!({}));
        server.claim["metadata"]["finalizers"] = json!(["other", "resource.kubernetes.io/delete-protection"]);
        let held = HeldClaim {
            claim: ObjectKey::new("ns", "x"),
            uid: uid.into(),
            is_special,
        };
        let ((), asked) = server.run(async move |client, runtime| {
            let pod = make_pod("p", json!({}));
            ClaimWriter::new(&client, &runtime).unreserve(&pod, &held).await;
        });
        asked
    };
    let asked = given_back("u", false);
    let patch =
        json!({"metadata": {"uid": "u"}, "status": {"reservedFor": [{"$patch": "delete", "uid": "p"}]}});
    assert_eq!(asked, [("PATCH".to_owned(), patch)]);
    // One that was made for extended resources goes, with the finalizer that keeps it.
    let asked = given_back("u", true);
    assert_eq!(asked[0].1["metadata"]["finalizers"], json!(["other"]));
    assert_eq!(
        (&*asked[1].0, &asked[1].1["preconditions"]["uid"]),
        ("DELETE", &json!("u"))
    );
    assert_eq!(given_back("of another", true), []);
}
