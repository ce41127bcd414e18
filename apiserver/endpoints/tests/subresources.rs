//! Evictions, bindings, scales and applies: upstream's steps and words, and bodies that name something else than the
//! address.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

mod common;

use common::{Answer, Api};
use http::Method;
use machinery_runtime::{Runtime, Simulation};
use serde_json::{Value, json};
use std::future::{Future, poll_fn};
use std::task::Poll;

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";
const NAMESPACE: &str = "/api/v1/namespaces/a";
const BUDGETS: &str = "/apis/policy/v1/namespaces/a/poddisruptionbudgets";
const ELSEWHERE: &str =
    "the namespace of the provided object does not match the namespace sent on the request";

impl Api {
    async fn send(&self, method: Method, path: &str, content: &str, body: Value, code: u16) -> Value {
        let answer = self.ask(method, path, (content, JSON), body.to_string()).await;
        answer
            .json(code)
            .unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    async fn post(&self, path: &str, body: Value, code: u16) -> Value {
        self.send(Method::POST, path, JSON, body, code).await
    }

    async fn read(&self, path: &str) -> Value {
        self.ask(Method::GET, path, (JSON, JSON), "")
            .await
            .json(200)
            .unwrap()
    }

    /// A pod on a node, running, ready or not.
    async fn pod(&self, name: &str, ready: bool) -> Value {
        let pod = json!({"apiVersion":"v1","kind":"Pod","metadata":{"name":name,"labels":{"app":"x"}},
            "spec":{"nodeName":"n","containers":[{"name":"c","image":"i"}]}});
        self.post(&format!("{NAMESPACE}/pods"), pod, 201).await;
        let ready = if ready { "True" } else { "False" };
        let status = json!({"status":{"phase":"Running","conditions":[{"type":"Ready","status":ready}]}});
        self.send(
            Method::PATCH,
            &format!("{NAMESPACE}/pods/{name}/status"),
            MERGE,
            status,
            200,
        )
        .await
    }

    async fn budget(&self, name: &str, spec: Value, status: Value) {
        let mut whole = json!({"selector":{"matchLabels":{"app":"x"}},"minAvailable":1});
        whole
            .as_object_mut()
            .unwrap()
            .extend(spec.as_object().unwrap().clone());
        let object = json!({"apiVersion":"policy/v1","kind":"PodDisruptionBudget","metadata":{"name":name},"spec":whole});
        self.post(BUDGETS, object, 201).await;
        self.set_budget(name, status).await;
    }

    async fn set_budget(&self, name: &str, status: Value) {
        let mut all = json!({"observedGeneration":1,"disruptionsAllowed":0,"currentHealthy":1,"desiredHealthy":1,"expectedPods":1});
        all.as_object_mut()
            .unwrap()
            .extend(status.as_object().unwrap().clone());
        let path = format!("{BUDGETS}/{name}/status");
        self.send(Method::PATCH, &path, MERGE, json!({"status":all}), 200)
            .await;
    }

    async fn evict(&self, pod: &str, query: &str, options: Value, code: u16) -> Value {
        let eviction = json!({"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":pod},"deleteOptions":options});
        self.post(&format!("{NAMESPACE}/pods/{pod}/eviction{query}"), eviction, code)
            .await
    }
}

fn condition<'a>(pod: &'a Value, kind: &str) -> Option<&'a Value> {
    pod["status"]["conditions"]
        .as_array()?
        .iter()
        .find(|own| own["type"] == kind)
}

#[tokio::test]
async fn eviction_marks_its_pod() {
    let api = Api::new(Runtime::real()).await;
    api.pod("p", true).await;
    let done = api.evict("p", "", Value::Null, 201).await;
    assert_eq!(
        (&done["kind"], &done["status"]),
        (&json!("Status"), &json!("Success"))
    );
    let pod = api.read(&format!("{NAMESPACE}/pods/p")).await;
    assert!(pod["metadata"]["deletionTimestamp"].is_string());
    let mark = condition(&pod, "DisruptionTarget").unwrap();
    assert_eq!(
        (&mark["status"], &mark["reason"], &mark["message"]),
        (
            &json!("True"),
            &json!("EvictionByEvictionAPI"),
            &json!("Eviction API: evicting")
        )
    );
    assert!(mark["lastTransitionTime"].is_string() && mark["lastProbeTime"].is_null());
}

#[tokio::test]
async fn eviction_of_old_clients_is_taken() {
    let api = Api::new(Runtime::real()).await;
    api.pod("p", true).await;
    let path = format!("{NAMESPACE}/pods/p/eviction");
    let eviction = |version: &str| json!({"apiVersion":version,"kind":"Eviction","metadata":{"name":"p"}});
    api.post(&path, eviction("policy/v1beta2"), 400).await;
    api.post(&path, eviction("policy/v1beta1"), 201).await;
    let pod = api.read(&format!("{NAMESPACE}/pods/p")).await;
    assert!(pod["metadata"]["deletionTimestamp"].is_string());
}

#[tokio::test]
async fn eviction_dry_run_asks_budgets_and_writes_nothing() {
    let api = Api::new(Runtime::real()).await;
    let before = api.pod("p", true).await;
    api.budget("b", json!({}), json!({"disruptionsAllowed":0})).await;
    for (query, options) in [
        ("?dryRun=All", json!({})),
        ("", json!({"dryRun":["All"]})),
        ("", json!({})),
    ] {
        let refused = api.evict("p", query, options, 429).await;
        assert_eq!(
            refused["message"],
            "Cannot evict pod as it would violate the pod's disruption budget."
        );
        assert_eq!(
            refused["details"]["causes"][0],
            json!({"reason":"DisruptionBudget","message":"The disruption budget b needs 1 healthy pods and has 1 currently"})
        );
    }
    api.set_budget("b", json!({"disruptionsAllowed":1})).await;
    let budget = api.read(&format!("{BUDGETS}/b")).await;
    api.evict("p", "?dryRun=All", json!({}), 201).await;
    assert_eq!(api.read(&format!("{NAMESPACE}/pods/p")).await, before);
    assert_eq!(api.read(&format!("{BUDGETS}/b")).await, budget);
    api.evict("p", "", json!({}), 201).await;
    let budget = api.read(&format!("{BUDGETS}/b")).await;
    assert_eq!(budget["status"]["disruptionsAllowed"], 0);
    assert!(budget["status"]["disruptedPods"]["p"].is_string());
    let condition = condition(&budget, "DisruptionAllowed").unwrap();
    assert_eq!(condition["reason"], "InsufficientPods");
    assert_eq!(condition["observedGeneration"], 1);
}

#[tokio::test]
async fn eviction_of_unhealthy_pods_follows_the_policy() {
    let api = Api::new(Runtime::real()).await;
    let healthy = json!({"currentHealthy":2,"desiredHealthy":2});
    let disrupted = json!({"currentHealthy":1,"desiredHealthy":2});
    for (at, (policy, status, ready, code)) in [
        ("IfHealthyBudget", &healthy, false, 201),
        ("IfHealthyBudget", &healthy, true, 429),
        ("IfHealthyBudget", &disrupted, false, 429),
        ("AlwaysAllow", &disrupted, false, 201),
        ("AlwaysAllow", &disrupted, true, 429),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("p{at}");
        api.pod(&name, ready).await;
        api.budget("b", json!({"unhealthyPodEvictionPolicy":policy}), status.clone())
            .await;
        api.evict(&name, "", json!({}), code).await;
        let budget = api.read(&format!("{BUDGETS}/b")).await;
        assert_eq!(budget["status"]["disruptedPods"], Value::Null, "{policy} {ready}");
        for path in [
            format!("{BUDGETS}/b"),
            format!("{NAMESPACE}/pods/{name}?gracePeriodSeconds=0"),
        ] {
            api.ask(Method::DELETE, &path, (JSON, JSON), "").await;
        }
    }
}

/// Polls a request a number of times, and returns its answer where it has ended by then.
async fn begin(request: &mut (impl Future<Output = Answer> + Unpin), polls: usize) -> Option<Answer> {
    let mut left = polls;
    poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        std::pin::Pin::new(&mut *request).poll(cx).map(Some)
    })
    .await
}

/// Evicts an unhealthy pod that becomes ready after so many steps of the eviction. Returns whether the pod was
/// ready first, and whether the eviction had ended before.
async fn evict_while_it_becomes_ready(api: &Api, steps: usize) -> (bool, bool) {
    let name = format!("p{steps}");
    api.pod(&name, false).await;
    let path = format!("{NAMESPACE}/pods/{name}");
    let (url, body) = (
        format!("{path}/eviction"),
        json!({"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":name}}).to_string(),
    );
    let mut evicting = Box::pin(api.ask(Method::POST, &url, (JSON, JSON), body));
    let early = begin(&mut evicting, steps).await;
    let has_ended = early.is_some();
    let ready = json!({"status":{"conditions":[{"type":"Ready","status":"True"}]}});
    let pod = api
        .send(Method::PATCH, &format!("{path}/status"), MERGE, ready, 200)
        .await;
    let code = match early {
        Some(answer) => answer.code,
        None => evicting.await.code,
    };
    let was_first = pod["metadata"]["deletionTimestamp"].is_null();
    assert_eq!(code, if was_first { 429 } else { 201 }, "after {steps} steps");
    let stays = api.read(&path).await["metadata"]["deletionTimestamp"].is_null();
    assert_eq!(stays, was_first, "after {steps} steps");
    (was_first, has_ended)
}

#[test]
fn eviction_spares_an_unhealthy_pod_that_became_ready_meanwhile() {
    let simulation = Simulation::new(1);
    let runtime = simulation.runtime();
    simulation.run(async move {
        let api = Api::on_disk(runtime).await;
        let healthy = json!({"currentHealthy":2,"desiredHealthy":2});
        let policy = json!({"unhealthyPodEvictionPolicy":"IfHealthyBudget"});
        api.budget("b", policy, healthy).await;
        let mut spared = 0;
        for steps in 0.. {
            let (was_first, has_ended) = evict_while_it_becomes_ready(&api, steps).await;
            spared += usize::from(was_first);
            if has_ended {
                break;
            }
        }
        assert!(spared > 1, "before the eviction began, and within it");
    });
}

/// Writers that are many enough that an eviction loses every attempt.
const WRITERS: usize = 32;

#[test]
fn eviction_that_others_of_its_budget_outrun_is_a_conflict() {
    let simulation = Simulation::new(1);
    let runtime = simulation.runtime();
    simulation.run(async move {
        let api = Api::on_disk(runtime).await;
        api.pod("p", true).await;
        api.budget("b", json!({}), json!({"disruptionsAllowed":1})).await;
        let status = format!("{BUDGETS}/b/status");
        let writer = async |own: usize| {
            for write in 0..8 {
                let body = json!({"status":{"expectedPods":8 * own + write + 2}}).to_string();
                api.ask(Method::PATCH, &status, (MERGE, JSON), body).await;
            }
        };
        let writes = (0..WRITERS).map(writer);
        let eviction =
            json!({"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"p"}}).to_string();
        let path = format!("{NAMESPACE}/pods/p/eviction");
        let evicting = api.ask(Method::POST, &path, (JSON, JSON), eviction);
        let (_, evicted) = futures::join!(futures::future::join_all(writes), evicting);
        let refused = evicted.json(409).unwrap();
        assert_eq!(refused["reason"], "Conflict");
        let pod = api.read(&format!("{NAMESPACE}/pods/p")).await;
        assert!(pod["metadata"]["deletionTimestamp"].is_null());
    });
}

#[tokio::test]
async fn eviction_dry_runs_of_request_and_content_match() {
    let api = Api::new(Runtime::real()).await;
    api.pod("p", true).await;
    let all = || json!({"dryRun":["All"]});
    api.evict("p", "?dryRun=All", all(), 201).await;
    let refused = api.evict("p", "?dryRun=All&dryRun=All", all(), 500).await;
    assert_eq!(
        refused["message"],
        "Non-matching dry-run options in request and content: [All All] and [All]"
    );
}

#[tokio::test]
async fn eviction_refusals_are_upstreams() {
    let api = Api::new(Runtime::real()).await;
    let pod = api.pod("p", true).await;
    let path = format!("{NAMESPACE}/pods/p/eviction");
    let named = |meta: Value| json!({"apiVersion":"policy/v1","kind":"Eviction","metadata":meta});
    let other = "name in URL does not match name in Eviction object";
    for (meta, message) in [
        (json!({"name":"q"}), other),
        (json!({}), other),
        (json!({"name":"p","namespace":"b"}), ELSEWHERE),
    ] {
        assert_eq!(api.post(&path, named(meta), 400).await["message"], message);
    }
    let unsafe_delete = json!({"ignoreStoreReadErrorWithClusterBreakingPotential":true});
    api.evict("p", "", unsafe_delete, 422).await;
    for (field, value) in [("uid", "x"), ("resourceVersion", "1")] {
        let refused = api
            .evict("p", "", json!({"preconditions":{field:value}}), 409)
            .await;
        assert_eq!(refused["reason"], "Conflict");
    }
    for (status, code, cause) in [
        (
            json!({"observedGeneration":0}),
            429,
            "The disruption budget b is still being processed by the server.",
        ),
        (
            json!({"disruptionsAllowed":-1}),
            403,
            "The disruption budget b does not allow evicting pods currently: pdb disruptions allowed is negative",
        ),
    ] {
        api.ask(Method::DELETE, &format!("{BUDGETS}/b"), (JSON, JSON), "")
            .await;
        api.budget("b", json!({}), json!({})).await;
        let answer = api
            .ask(
                Method::PATCH,
                &format!("{BUDGETS}/b/status"),
                (MERGE, JSON),
                json!({"status":status}).to_string(),
            )
            .await;
        // What the kind's validation does not let in cannot be met.
        if answer.code == 200 {
            let refused = api.evict("p", "", json!({}), code).await;
            assert_eq!(refused["details"]["causes"][0]["message"], cause);
        }
    }
    api.budget("c", json!({}), json!({})).await;
    let many = api.evict("p", "", json!({}), 500).await;
    assert_eq!(
        many["message"],
        "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
    );
    assert_eq!(
        api.read(&format!("{NAMESPACE}/pods/p")).await,
        pod,
        "nothing was marked"
    );
}

#[tokio::test]
async fn eviction_of_an_ended_pod_needs_no_budget() {
    let api = Api::new(Runtime::real()).await;
    api.pod("p", false).await;
    let ended = json!({"status":{"phase":"Failed"}});
    api.send(
        Method::PATCH,
        &format!("{NAMESPACE}/pods/p/status"),
        MERGE,
        ended,
        200,
    )
    .await;
    api.budget("b", json!({}), json!({"disruptionsAllowed":0})).await;
    api.evict("p", "", json!({}), 201).await;
}

#[tokio::test]
async fn binding_is_of_the_pod_of_its_address() {
    let api = Api::new(Runtime::real()).await;
    let pod = json!({"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}});
    let pod = api.post(&format!("{NAMESPACE}/pods"), pod, 201).await;
    let binding = |meta: Value| json!({"metadata":meta,"target":{"kind":"Node","name":"n"}});
    for path in [
        format!("{NAMESPACE}/pods/p/binding"),
        format!("{NAMESPACE}/bindings"),
    ] {
        let refused = api
            .post(&path, binding(json!({"name":"p","namespace":"b"})), 400)
            .await;
        assert_eq!(refused["message"], ELSEWHERE);
        for meta in [
            json!({"name":"p","uid":"x"}),
            json!({"name":"p","resourceVersion":"999"}),
        ] {
            let refused = api.post(&path, binding(meta), 409).await;
            let message = refused["message"].as_str().unwrap();
            assert!(message.contains("Precondition failed: "), "{message}");
        }
    }
    let path = format!("{NAMESPACE}/pods/p/binding");
    let nowhere = json!({"metadata":{"name":"p"},"target":{"kind":"Node","name":"a b"}});
    let refused = api.post(&path, nowhere, 500).await;
    let message = refused["message"].as_str().unwrap();
    assert!(
        message.contains("target.name: Invalid value: \"a b\""),
        "{message}"
    );
    let refused = api.post(&path, binding(json!({"name":"q"})), 400).await;
    assert_eq!(
        refused["message"],
        "name in URL does not match name in Binding object"
    );
    let exact =
        json!({"name":"p","uid":pod["metadata"]["uid"],"resourceVersion":pod["metadata"]["resourceVersion"]});
    api.post(&path, binding(exact), 201).await;
    assert_eq!(
        api.read(&format!("{NAMESPACE}/pods/p")).await["spec"]["nodeName"],
        "n"
    );
}

#[tokio::test]
async fn binding_replaces_the_condition_where_it_stands() {
    let api = Api::new(Runtime::real()).await;
    let pod = json!({"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}});
    api.post(&format!("{NAMESPACE}/pods"), pod, 201).await;
    let path = format!("{NAMESPACE}/pods/p");
    let conditions = json!({"status":{"conditions":[
        {"type":"PodScheduled","status":"False","reason":"Unschedulable","message":"no room","observedGeneration":1},
        {"type":"Other","status":"True"}]}});
    api.send(Method::PATCH, &format!("{path}/status"), MERGE, conditions, 200)
        .await;
    let binding = json!({"metadata":{"name":"p"},"target":{"kind":"Node","name":"n"}});
    api.post(&format!("{path}/binding"), binding, 201).await;
    let pod = api.read(&path).await;
    let mut first = pod["status"]["conditions"][0].clone();
    let since = first.as_object_mut().unwrap().remove("lastTransitionTime");
    assert!(since.is_some_and(|since| since.is_string()));
    assert_eq!(
        first,
        json!({"type":"PodScheduled","status":"True","lastProbeTime":null})
    );
    assert_eq!(pod["status"]["conditions"][1]["type"], "Other");
}

#[tokio::test]
async fn scale_is_of_the_object_of_its_address() {
    let api = Api::new(Runtime::real()).await;
    let labels = json!({"a":"b"});
    let deployment = json!({"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"},"spec":{"selector":{"matchLabels":labels},
        "template":{"metadata":{"labels":labels},"spec":{"containers":[{"name":"c","image":"i"}]}}}});
    api.post("/apis/apps/v1/namespaces/a/deployments", deployment, 201)
        .await;
    let path = "/apis/apps/v1/namespaces/a/deployments/d/scale";
    let scale = |meta: Value| json!({"apiVersion":"autoscaling/v1","kind":"Scale","metadata":meta,"spec":{"replicas":3}});
    for (meta, code, message) in [
        (json!({"name":"d","namespace":"b"}), 400, ELSEWHERE),
        (
            json!({"name":"e"}),
            400,
            "the name of the object (e) does not match the name on the URL (d)",
        ),
        (
            json!({}),
            400,
            "the name of the object (d based on URL) was undeterminable: name must be provided",
        ),
    ] {
        let refused = api.send(Method::PUT, path, JSON, scale(meta), code).await;
        assert_eq!(refused["message"], message);
    }
    let refused = api
        .send(Method::PUT, path, JSON, scale(json!({"name":"d","uid":"x"})), 409)
        .await;
    let message = refused["message"].as_str().unwrap();
    assert!(
        message.contains(r#"deployments.apps/scale "d""#)
            || message.contains("Precondition failed: UID in precondition: x"),
        "{message}"
    );
    for patch in [
        json!({"metadata":{"namespace":"b"}}),
        json!({"metadata":{"name":"e"}}),
    ] {
        api.send(Method::PATCH, path, MERGE, patch, 400).await;
    }
    assert_eq!(api.read(path).await["spec"]["replicas"], 1);
    let scaled = api
        .send(Method::PUT, path, JSON, scale(json!({"name":"d"})), 200)
        .await;
    assert_eq!(
        (&scaled["kind"], &scaled["spec"]["replicas"]),
        (&json!("Scale"), &json!(3))
    );
}

#[tokio::test]
async fn apply_without_a_name_is_of_the_object_of_its_address() {
    let api = Api::new(Runtime::real()).await;
    let path = format!("{NAMESPACE}/configmaps/m?fieldManager=f");
    let applied =
        |meta: Value| json!({"apiVersion":"v1","kind":"ConfigMap","metadata":meta,"data":{"k":"v"}});
    let missing = api
        .send(Method::PATCH, &path, APPLY, applied(json!({})), 400)
        .await;
    assert_eq!(
        missing["message"],
        "the name of the object (m based on URL) was undeterminable: name must be provided"
    );
    api.send(Method::PATCH, &path, APPLY, applied(json!({"name":"m"})), 201)
        .await;
    for meta in [
        json!({}),
        json!({"labels":{"a":"b"}}),
        json!({}),
        json!({"labels":{"a":"b"}}),
        json!({"name":"m"}),
    ] {
        let labels = meta["labels"].clone();
        let made = api.send(Method::PATCH, &path, APPLY, applied(meta), 200).await;
        assert_eq!(made["metadata"]["name"], "m");
        assert_eq!(made["metadata"]["namespace"], "a");
        assert_eq!(made["metadata"]["labels"], labels);
    }
    for (meta, message) in [
        (
            json!({"name":"n"}),
            "the name of the object (n) does not match the name on the URL (m)",
        ),
        (json!({"name":"m","namespace":"b"}), ELSEWHERE),
        (json!({"namespace":"b"}), ELSEWHERE),
    ] {
        let refused = api.send(Method::PATCH, &path, APPLY, applied(meta), 400).await;
        assert_eq!(refused["message"], message);
    }
}
