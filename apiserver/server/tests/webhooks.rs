//! Admission webhooks, called over HTTPS by a real server.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

mod common;
mod tls_server;
mod webhook_server;

use bytes::Bytes;
use common::{Answer, Cluster, start};
use http::Method;
use serde_json::{Value, json};
use std::time::Duration;
use webhook_server::HookServer;

const ADMISSION: &str = "/apis/admissionregistration.k8s.io/v1";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const MUTATING: &str = "mutatingwebhookconfigurations";
const VALIDATING: &str = "validatingwebhookconfigurations";

struct World {
    cluster: Cluster,
    hooks: HookServer,
}

fn rule(group: &str, version: &str, plural: &str, operations: &[&str]) -> Value {
    json!({"apiGroups": [group], "apiVersions": [version], "resources": [plural], "operations": operations})
}

fn maps() -> Value {
    rule("", "v1", "configmaps", &["CREATE", "UPDATE"])
}

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"own": "yes"}}})
}

impl World {
    async fn new() -> Self {
        let cluster = start().await;
        let hooks = HookServer::start(&cluster.runtime).await;
        Self { cluster, hooks }
    }

    /// A webhook that is called at a path; `more` are further members.
    fn webhook(&self, name: &str, path: &str, rule: &Value, more: Value) -> Value {
        let mut own = json!({"name": format!("{name}.hooks.example"), "clientConfig": self.hooks.client(path), "rules": [rule],
            "sideEffects": "None", "admissionReviewVersions": ["v1"], "objectSelector": {"matchLabels": {"own": "yes"}}});
        own.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        own
    }

    /// Writes a configuration; it counts once this returns.
    async fn configure(&self, plural: &str, name: &str, mut webhooks: Vec<Value>) {
        let probe = format!("/probe-{name}");
        let mut own = self.webhook("probe", &probe, &maps(), json!({}));
        own["objectSelector"] = json!({"matchLabels": {"probe": name}});
        webhooks.push(own);
        let configuration = json!({"metadata": {"name": name}, "webhooks": webhooks});
        let path = format!("{ADMISSION}/{plural}");
        self.cluster
            .admin()
            .post(&path, configuration.to_string())
            .await
            .is(201);
        while self.hooks.seen(&probe).is_empty() {
            self.probe(name).await;
        }
    }

    async fn probe(&self, name: &str) {
        let probe = json!({"metadata": {"name": "probe", "labels": {"probe": name}}});
        let path = format!("{MAPS}?dryRun=All");
        self.cluster.admin().post(&path, probe.to_string()).await.is(201);
        self.cluster.runtime.sleep(Duration::from_millis(5)).await;
    }

    async fn make(&self, name: &str) -> Answer {
        self.cluster.admin().post(MAPS, map(name).to_string()).await
    }

    async fn send(&self, method: Method, path: &str, kind: &'static str, body: &Value) -> Answer {
        let ask = self.cluster.admin().header("content-type", kind);
        ask.send(method, path, Bytes::from(body.to_string())).await
    }

    async fn metric(&self, name: &str, labels: &str) -> bool {
        let page = self.cluster.admin().get("/metrics").await.body;
        page.lines()
            .any(|line| line.starts_with(&format!("{name}{{")) && line.contains(labels))
    }
}

fn message(answer: &Answer) -> String {
    answer.json()["message"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn webhook_changes_and_refuses_requests_in_order() {
    let world = World::new().await;
    let first = world.webhook("a", "/second", &maps(), json!({}));
    let again = world.webhook("c", "/first", &maps(), json!({}));
    world.configure(MUTATING, "b", vec![first]).await;
    world.configure(MUTATING, "a", vec![again]).await;
    let made = world.make("one").await.is(201).json();
    assert_eq!(made["data"], json!({"first": "yes", "second": "yes"}));
    assert_eq!(world.hooks.order(), ["/first", "/second"]);
    let seen = world.hooks.seen("/second").remove(0);
    for (member, expected) in [
        ("kind", json!({"group": "", "version": "v1", "kind": "ConfigMap"})),
        (
            "resource",
            json!({"group": "", "version": "v1", "resource": "configmaps"}),
        ),
        (
            "requestKind",
            json!({"group": "", "version": "v1", "kind": "ConfigMap"}),
        ),
        ("name", json!("one")),
        ("namespace", json!("default")),
        ("operation", json!("CREATE")),
        ("dryRun", json!(false)),
        ("oldObject", Value::Null),
        (
            "options",
            json!({"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"}),
        ),
    ] {
        assert_eq!(seen[member], expected, "{member}");
    }
    assert_eq!(seen["userInfo"]["username"], "admin");
    assert_eq!(seen["object"]["data"]["first"], "yes");
    assert_eq!(seen["object"]["kind"], "ConfigMap");
    // Owners of what a webhook has set are not the request's; the record stays.
    assert!(made["metadata"]["managedFields"].as_array().unwrap().len() == 1);
    // An update has the object before.
    let path = format!("{MAPS}/one");
    let change = json!({"data": {"x": "y"}});
    world
        .send(Method::PATCH, &path, "application/merge-patch+json", &change)
        .await
        .is(200);
    let seen = world.hooks.seen("/second").remove(1);
    assert_eq!(seen["operation"], "UPDATE");
    assert_eq!(
        seen["oldObject"]["data"],
        json!({"first": "yes", "second": "yes"})
    );
    assert_eq!(seen["options"]["kind"], "UpdateOptions");
}

#[tokio::test(flavor = "multi_thread")]
async fn webhook_denials_are_its_own_answers() {
    let world = World::new().await;
    let deny = world.webhook("deny", "/deny", &maps(), json!({}));
    world.configure(VALIDATING, "deny", vec![deny]).await;
    let refused = world.make("one").await.is(418);
    let expected = "admission webhook \"deny.hooks.example\" denied the request: not today";
    assert_eq!(message(&refused), expected);
    assert_eq!(refused.json()["reason"], "Teapot");
    let labels = r#"error_type="no_error",name="deny.hooks.example",operation="CREATE",rejection_code="418",type="validating""#;
    assert!(
        world
            .metric("apiserver_admission_webhook_rejection_count", labels)
            .await
    );
    let labels =
        r#"code="418",name="deny.hooks.example",operation="CREATE",rejected="true",type="validating""#;
    assert!(
        world
            .metric("apiserver_admission_webhook_request_total", labels)
            .await
    );
    let name = "apiserver_admission_webhook_admission_duration_seconds_count";
    assert!(world.metric(name, r#"name="deny.hooks.example""#).await);
    // The configuration goes, and requests pass.
    let path = format!("{ADMISSION}/{VALIDATING}/deny");
    world
        .cluster
        .admin()
        .send(Method::DELETE, &path, Bytes::new())
        .await
        .is(200);
    while world.make("one").await.code != 201 {
        world.cluster.runtime.sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn webhook_failure_policy_decides_about_broken_webhooks() {
    let world = World::new().await;
    let mut webhooks = Vec::new();
    let hostile = ["hang", "huge", "broken", "text", "nested", "wrong-uid"];
    for name in hostile {
        let more = json!({"timeoutSeconds": 1, "objectSelector": {"matchLabels": {"try": name}}});
        webhooks.push(world.webhook(name, &format!("/{name}"), &maps(), more));
    }
    for name in ["grow", "deep"] {
        let more = json!({"objectSelector": {"matchLabels": {"try": name}}});
        webhooks.push(world.webhook(name, &format!("/{name}"), &maps(), more));
    }
    world.configure(MUTATING, "closed", webhooks).await;
    let open = json!({"timeoutSeconds": 1, "failurePolicy": "Ignore", "objectSelector": {"matchLabels": {"try": "open"}}});
    let open = world.webhook("open", "/hang", &maps(), open);
    world.configure(VALIDATING, "open", vec![open]).await;
    for (name, expected) in [
        ("hang", "/hang?timeout=1s\": context deadline exceeded"),
        ("huge", "the answer has more than"),
        (
            "broken",
            "an error on the server (\"it broke\") has prevented the request from succeeding",
        ),
        ("text", "couldn't get version/kind; json parse error"),
        ("nested", "couldn't get version/kind; json parse error"),
        (
            "wrong-uid",
            "received invalid webhook response: expected response.uid=",
        ),
        ("grow", "Unable to complete the copy"),
        ("deep", ""),
    ] {
        let object = json!({"metadata": {"name": "x", "labels": {"try": name}}});
        let refused = world.cluster.admin().post(MAPS, object.to_string()).await.is(500);
        let message = message(&refused);
        let begin = match name {
            "grow" | "deep" => "Internal error occurred: ".to_owned(),
            name => format!("Internal error occurred: failed calling webhook \"{name}.hooks.example\": "),
        };
        assert!(
            message.starts_with(&begin) && message.contains(expected),
            "{name}: {message}"
        );
    }
    let object = json!({"metadata": {"name": "open", "labels": {"try": "open"}}});
    world.cluster.admin().post(MAPS, object.to_string()).await.is(201);
    let labels = r#"name="open.hooks.example",type="validating""#;
    assert!(
        world
            .metric("apiserver_admission_webhook_fail_open_count", labels)
            .await
    );
}

/// A webhook that wants to see later changes is called once more, and not more than that.
#[tokio::test(flavor = "multi_thread")]
async fn webhook_is_called_again_where_it_wants_to() {
    let world = World::new().await;
    let webhooks = vec![
        world.webhook(
            "count",
            "/count",
            &maps(),
            json!({"reinvocationPolicy": "IfNeeded"}),
        ),
        world.webhook("once", "/once", &maps(), json!({})),
        world.webhook(
            "first",
            "/first",
            &maps(),
            json!({"reinvocationPolicy": "IfNeeded"}),
        ),
    ];
    world.configure(MUTATING, "all", webhooks).await;
    let made = world.make("one").await.is(201).json();
    assert_eq!(made["data"], json!({"count": "2", "first": "yes"}));
    // The second change of the first one is a later change for the last one.
    let expected = ["/count", "/once", "/first", "/count", "/first"];
    assert_eq!(world.hooks.order(), expected);
}

/// A rule for one version matches requests in another, which the webhook sees in its own.
#[tokio::test(flavor = "multi_thread")]
async fn webhook_sees_equivalent_versions_converted() {
    let world = World::new().await;
    let own = rule("autoscaling", "v2", "horizontalpodautoscalers", &["CREATE"]);
    let more = json!({"objectSelector": {}});
    let webhooks = vec![world.webhook("scale", "/replicas", &own, more.clone())];
    world.configure(MUTATING, "scale", webhooks).await;
    let exact = json!({"objectSelector": {}, "matchPolicy": "Exact"});
    let exact = world.webhook("exact", "/exact", &own, exact);
    world.configure(VALIDATING, "exact", vec![exact]).await;
    let object = json!({"apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "h"},
        "spec": {"maxReplicas": 5, "targetCPUUtilizationPercentage": 50, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}}});
    let path = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers";
    let made = world
        .cluster
        .admin()
        .post(path, object.to_string())
        .await
        .is(201)
        .json();
    assert_eq!(
        (&made["apiVersion"], &made["spec"]["minReplicas"]),
        (&json!("autoscaling/v1"), &json!(2))
    );
    assert_eq!(made["spec"]["targetCPUUtilizationPercentage"], 50);
    let seen = world.hooks.seen("/replicas").remove(0);
    assert_eq!(seen["kind"]["version"], "v2");
    assert_eq!(seen["requestKind"]["version"], "v1");
    assert_eq!(seen["object"]["apiVersion"], "autoscaling/v2");
    assert_eq!(
        seen["object"]["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"],
        50
    );
    assert!(
        world.hooks.seen("/exact").is_empty(),
        "the rule is for another version"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn webhook_sees_deletes_and_connections() {
    let world = World::new().await;
    let deletes = rule("", "v1", "configmaps", &["DELETE"]);
    let connects = rule("", "v1", "pods/attach", &["CONNECT"]);
    let any = json!({"objectSelector": {}});
    let webhooks = vec![
        world.webhook("deletes", "/deny-silently", &deletes, json!({})),
        world.webhook("connects", "/deny", &connects, any.clone()),
    ];
    world.configure(VALIDATING, "all", webhooks).await;
    let changes = world.webhook("changes", "/allowed", &deletes, json!({}));
    world.configure(MUTATING, "all", vec![changes]).await;
    world.make("one").await.is(201);
    let path = format!("{MAPS}/one");
    let refused = world
        .cluster
        .admin()
        .send(Method::DELETE, &path, Bytes::new())
        .await
        .is(400);
    let expected = "admission webhook \"deletes.hooks.example\" denied the request without explanation";
    assert_eq!(message(&refused), expected);
    for path in ["/allowed", "/deny-silently"] {
        let seen = world.hooks.seen(path).remove(0);
        assert_eq!(
            (&seen["object"], &seen["oldObject"]["metadata"]["name"]),
            (&Value::Null, &json!("one"))
        );
        assert_eq!(seen["options"]["kind"], "DeleteOptions");
    }
    let attach = "/api/v1/namespaces/default/pods/p/attach?stdin=true&container=c";
    let refused = world.cluster.admin().post(attach, "").await.is(418);
    assert!(message(&refused).ends_with("denied the request: not today"));
    let seen = world.hooks.seen("/deny").remove(0);
    assert_eq!(seen["object"]["kind"], "PodAttachOptions");
    assert_eq!(
        (&seen["object"]["stdin"], &seen["subResource"]),
        (&json!(true), &json!("attach"))
    );
}

/// Options of a connection are those that webhooks left.
#[tokio::test(flavor = "multi_thread")]
async fn webhook_changes_what_a_connection_is_for() {
    let world = World::new().await;
    let admin = || world.cluster.admin();
    let account = json!({"metadata": {"name": "default"}});
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    admin().post(accounts, account.to_string()).await.is(201);
    let containers = json!([{"name": "c", "image": "i"}]);
    let pod = json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n", "containers": containers}});
    let pods = "/api/v1/namespaces/default/pods";
    admin().post(pods, pod.to_string()).await.is(201);
    let execs = rule("", "v1", "pods/exec", &["CONNECT"]);
    let other = world.webhook("other", "/other-container", &execs, json!({"objectSelector": {}}));
    world.configure(MUTATING, "other", vec![other]).await;
    let exec = format!("{pods}/p/exec?command=a&command=b%20c&stdout=true&container=c");
    let refused = admin().post(&exec, "").await.is(400);
    assert_eq!(message(&refused), "container other is not valid for pod p");
    let seen = world.hooks.seen("/other-container").remove(0);
    assert_eq!(
        seen["object"],
        json!({"kind": "PodExecOptions", "apiVersion": "v1", "stdout": true, "container": "c", "command": ["a", "b c"]})
    );
    assert_eq!(seen["options"], Value::Null);
    let dry = admin().post(&format!("{exec}&dryRun=All"), "").await.is(400);
    assert_eq!(message(&dry), "dryRun is not supported");
    let ports = format!("{pods}/p/portforward?ports=80,x");
    let refused = admin().post(&ports, "").await.is(400);
    assert_eq!(
        message(&refused),
        "cannot convert to []int32: strconv.ParseUint: parsing \"x\": invalid syntax"
    );
}

/// Validating webhooks see a request for a token as it will be granted, and none that is invalid.
#[tokio::test(flavor = "multi_thread")]
async fn webhook_sees_completed_token_requests() {
    let world = World::new().await;
    let admin = || world.cluster.admin();
    let account = json!({"metadata": {"name": "a"}});
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let account = admin().post(accounts, account.to_string()).await.is(201).json();
    let tokens = rule("", "v1", "serviceaccounts/token", &["CREATE"]);
    let any = json!({"objectSelector": {}});
    let before = world.webhook("before", "/before", &tokens, any.clone());
    world.configure(MUTATING, "tokens", vec![before]).await;
    let after = world.webhook("after", "/after", &tokens, any);
    world.configure(VALIDATING, "tokens", vec![after]).await;
    let path = format!("{accounts}/a/token");
    let body = json!({"spec": {}, "status": {"token": "mine"}});
    let granted = admin().post(&path, body.to_string()).await.is(201).json();
    let before = world.hooks.seen("/before").remove(0);
    assert_eq!(before["object"]["spec"]["audiences"], Value::Null);
    let after = world.hooks.seen("/after").remove(0);
    assert_eq!(after["object"]["spec"], granted["spec"]);
    assert!(!granted["spec"]["audiences"].as_array().unwrap().is_empty());
    assert_eq!(after["object"]["status"]["token"], "");
    for member in ["name", "namespace", "uid"] {
        assert_eq!(
            after["object"]["metadata"][member], account["metadata"][member],
            "{member}"
        );
    }
    let created = &after["object"]["metadata"]["creationTimestamp"];
    assert_eq!(*created, granted["metadata"]["creationTimestamp"]);
    assert!(created.is_string());
    let short = json!({"spec": {"expirationSeconds": 1}});
    admin().post(&path, short.to_string()).await.is(422);
    assert_eq!(world.hooks.seen("/before").len(), 2);
    assert_eq!(world.hooks.seen("/after").len(), 1);
}

/// Configurations of admission can be changed whatever webhooks say.
#[tokio::test(flavor = "multi_thread")]
async fn webhook_does_not_see_configurations_of_admission_nor_reviews() {
    let world = World::new().await;
    let all = rule("*", "*", "*", &["*"]);
    let any = json!({"objectSelector": {"matchExpressions": [{"key": "probe", "operator": "DoesNotExist"}]}});
    let deny = world.webhook("deny", "/deny", &all, any);
    world.configure(VALIDATING, "deny", vec![deny.clone()]).await;
    world.make("one").await.is(418);
    let other = json!({"metadata": {"name": "other"}, "webhooks": []});
    for plural in [MUTATING, VALIDATING] {
        let path = format!("{ADMISSION}/{plural}");
        world.cluster.admin().post(&path, other.to_string()).await.is(201);
    }
    let review = json!({"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}});
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    world.cluster.admin().post(path, review.to_string()).await.is(201);
}

#[tokio::test(flavor = "multi_thread")]
async fn webhook_warnings_reach_the_client_and_broken_owners_are_put_back() {
    let world = World::new().await;
    let webhooks = vec![
        world.webhook("warn", "/warn", &maps(), json!({})),
        world.webhook("owners", "/break-owners", &maps(), json!({})),
    ];
    world.configure(MUTATING, "all", webhooks).await;
    let made = world.make("one").await.is(201);
    let warnings: Vec<&str> = made
        .headers
        .get_all("warning")
        .iter()
        .map(|own| own.to_str().unwrap())
        .collect();
    assert!(
        warnings.iter().any(|own| own.contains("mind the gap")),
        "{warnings:?}"
    );
    let broken = ".metadata.managedFields was in an invalid state after admission";
    assert!(warnings.iter().any(|own| own.contains(broken)), "{warnings:?}");
    let owners = made.json()["metadata"]["managedFields"].clone();
    assert_ne!(owners[0]["manager"], "m");
    assert!(owners[0]["fieldsV1"]["f:metadata"].is_object());
}

/// A service never leads to this machine: its addresses are decided by others than the webhook's.
#[tokio::test(flavor = "multi_thread")]
async fn webhook_of_a_service_is_not_looked_for_on_this_machine() {
    let world = World::new().await;
    let service = json!({"metadata": {"name": "hook"}, "spec": {"ports": [{"port": 443}]}});
    world
        .cluster
        .admin()
        .post("/api/v1/namespaces/default/services", service.to_string())
        .await
        .is(201);
    let client = json!({"service": {"namespace": "default", "name": "hook", "path": "/allowed"}, "caBundle": world.hooks.ca_bundle});
    let own = world.webhook("own", "", &maps(), json!({"clientConfig": client}));
    world.configure(VALIDATING, "own", vec![own]).await;
    let failed = "Internal error occurred: failed calling webhook \"own.hooks.example\": failed to call webhook: Post \"https://hook.default.svc:443/allowed?timeout=10s\": ";
    let refused = world.make("one").await.is(500);
    let expected = format!("{failed}no endpoints available for service \"hook\"");
    assert_eq!(message(&refused), expected);
    let slice = json!({"metadata": {"name": "hook", "labels": {"kubernetes.io/service-name": "hook"}}, "addressType": "IPv4",
        "endpoints": [{"addresses": ["169.254.169.254"]}], "ports": [{"name": "", "port": world.hooks.address.port()}]});
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    world
        .cluster
        .admin()
        .post(slices, slice.to_string())
        .await
        .is(422);
    let outside =
        json!({"metadata": {"name": "out"}, "spec": {"type": "ExternalName", "externalName": "localhost"}});
    world
        .cluster
        .admin()
        .post("/api/v1/namespaces/default/services", outside.to_string())
        .await
        .is(201);
    let client = json!({"service": {"namespace": "default", "name": "out", "port": world.hooks.address.port()}, "caBundle": world.hooks.ca_bundle});
    let more = json!({"clientConfig": client, "objectSelector": {"matchLabels": {"out": "yes"}}});
    let own = world.webhook("out", "", &maps(), more);
    world.configure(VALIDATING, "out", vec![own]).await;
    let before = world.hooks.connections();
    let object = json!({"metadata": {"name": "x", "labels": {"out": "yes"}}});
    let refused = world.cluster.admin().post(MAPS, object.to_string()).await.is(500);
    assert!(
        message(&refused).ends_with("address not allowed"),
        "{}",
        message(&refused)
    );
    assert_eq!(world.hooks.connections(), before);
}

/// One connection serves many calls.
#[tokio::test(flavor = "multi_thread")]
async fn webhook_connections_are_kept() {
    let world = World::new().await;
    let own = world.webhook("own", "/allowed", &maps(), json!({}));
    world.configure(VALIDATING, "own", vec![own]).await;
    let before = world.hooks.connections();
    for at in 0..20 {
        world.make(&format!("m{at}")).await.is(201);
    }
    assert_eq!(world.hooks.seen("/allowed").len(), 20);
    assert_eq!(world.hooks.connections(), before + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn webhook_changes_of_custom_objects_are_pruned_and_defaulted() {
    let world = World::new().await;
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "known": {"type": "string"}, "set": {"type": "string", "default": "here"}}}}});
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "boats.hooks.example"},
        "spec": {"group": "hooks.example", "scope": "Namespaced", "names": {"plural": "boats", "kind": "Boat"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}});
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    world
        .cluster
        .admin()
        .post(path, definition.to_string())
        .await
        .is(201);
    let boats = "/apis/hooks.example/v1/namespaces/default/boats";
    while world.cluster.admin().get(boats).await.code != 200 {
        world.cluster.runtime.sleep(Duration::from_millis(5)).await;
    }
    let own = rule("hooks.example", "v1", "boats", &["CREATE"]);
    let own = world.webhook("more", "/more", &own, json!({}));
    world.configure(MUTATING, "more", vec![own]).await;
    let boat = json!({"apiVersion": "hooks.example/v1", "kind": "Boat", "metadata": {"name": "b", "labels": {"own": "yes"}}, "spec": {}});
    let made = world
        .cluster
        .admin()
        .post(boats, boat.to_string())
        .await
        .is(201)
        .json();
    assert_eq!(made["spec"], json!({"known": "yes", "set": "here"}));
}

#[tokio::test(flavor = "multi_thread")]
async fn webhook_match_conditions_choose_requests() {
    let world = World::new().await;
    let conditions = json!([{"name": "skipped", "expression": "object.metadata.name != 'skipped'"},
        {"name": "admins", "expression": "!authorizer.group('').resource('pods').namespace('default').check('never').allowed() || true"}]);
    let own = world.webhook("own", "/deny", &maps(), json!({"matchConditions": conditions}));
    world.configure(VALIDATING, "own", vec![own]).await;
    world.make("one").await.is(418);
    world.make("skipped").await.is(201);
    let failing = json!([{"name": "failing", "expression": "object.data.gone == 'x'"}]);
    let labels = json!({"matchConditions": failing, "objectSelector": {"matchLabels": {"try": "failing"}}});
    let own = world.webhook("failing", "/deny", &maps(), labels);
    world.configure(VALIDATING, "failing", vec![own]).await;
    let object = json!({"metadata": {"name": "failing", "labels": {"try": "failing"}}, "data": {"a": "b"}});
    let refused = world.cluster.admin().post(MAPS, object.to_string()).await.is(403);
    let expected = "configmaps \"failing\" is forbidden: expression 'object.data.gone == 'x'' resulted in error: no such key: gone";
    assert_eq!(message(&refused), expected);
    let broken = json!([{"name": "broken", "expression": "object.metadata.name =="}]);
    let own = world.webhook("broken", "/deny", &maps(), json!({"matchConditions": broken}));
    let configuration = json!({"metadata": {"name": "broken"}, "webhooks": [own]});
    let path = format!("{ADMISSION}/{VALIDATING}");
    let refused = world
        .cluster
        .admin()
        .post(&path, configuration.to_string())
        .await
        .is(422);
    assert!(
        message(&refused).contains("compilation failed"),
        "{}",
        message(&refused)
    );
}

/// An object that was moved would be listed as one of the other namespace, and never be found there.
#[tokio::test(flavor = "multi_thread")]
async fn webhook_moves_no_object_into_another_namespace() {
    let world = World::new().await;
    let own = world.webhook("m", "/move", &maps(), json!({}));
    world.configure(MUTATING, "m", vec![own]).await;
    let refused = world.make("moved").await.is(400);
    assert!(message(&refused).contains("namespace"), "{}", message(&refused));
    world
        .cluster
        .admin()
        .get("/api/v1/namespaces/kube-system/configmaps/moved")
        .await
        .is(404);
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let rule = rule("rbac.authorization.k8s.io", "v1", "clusterroles", &["CREATE"]);
    let own = world.webhook("r", "/move", &rule, json!({}));
    world.configure(MUTATING, "r", vec![own]).await;
    let role = json!({"metadata": {"name": "moved", "labels": {"own": "yes"}}});
    let made = world
        .cluster
        .admin()
        .post(roles, role.to_string())
        .await
        .is(201)
        .json();
    assert!(made["metadata"]["namespace"].is_null(), "{made}");
}
