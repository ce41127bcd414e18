//! Attributes that admission receives for each operation: upstream's, in both phases, for every way to write or
//! connect.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

mod common;

use apiserver_registry::Operation::{self, Connect, Create, Delete, Update};
use common::Api;
use http::Method;
use machinery_runtime::Runtime;
use serde_json::{Value, json};

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

/// A request and what is asked about it: operation, kind, resource with subresource, namespace, name.
struct Case(
    Method,
    &'static str,
    &'static str,
    Value,
    (Operation, &'static str, &'static str, &'static str, &'static str),
);

const NONE: Value = Value::Null;

impl Api {
    /// Calls of admission for a request, in order: `mutate CREATE v1 Pod pods ns/name object old`.
    async fn asked(&self, method: Method, path: &str, content: &str, body: &Value) -> Vec<String> {
        self.admission.take();
        let text = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let answer = self.ask(method, path, (content, JSON), text).await;
        // Without hooks streams, reviews and tokens end at what is not there.
        assert!(
            (200..300).contains(&answer.code) || answer.code == 503,
            "{path}: {} {}",
            answer.code,
            String::from_utf8_lossy(&answer.body)
        );
        let asked = self.admission.take().into_iter();
        asked
            .map(|asked| {
                let told = asked.attributes;
                let kind = format!("{} {}", told.kind.api_version(), told.kind.kind);
                let sub = if told.subresource.is_empty() { "" } else { "/" };
                format!(
                    "{} {:?} {kind} {}{sub}{} {}/{} {} {}",
                    asked.phase,
                    told.operation,
                    told.resource.resource,
                    told.subresource,
                    told.namespace,
                    told.name,
                    asked.object.unwrap_or_else(|| "-".into()),
                    asked.old.unwrap_or_else(|| "-".into()),
                )
            })
            .collect()
    }
}

fn expected(told: (Operation, &str, &str, &str, &str)) -> Vec<String> {
    let (operation, kind, resource, namespace, name) = told;
    let short = kind.rsplit(' ').next().unwrap();
    let old = if operation == Update { short } else { "-" };
    let line =
        |phase: &str| format!("{phase} {operation:?} {kind} {resource} {namespace}/{name} {short} {old}");
    if operation == Delete {
        return vec![format!(
            "validate Delete {kind} {resource} {namespace}/{name} - {short}"
        )];
    }
    vec![line("mutate"), line("validate")]
}

fn pod(name: &str) -> Value {
    json!({"apiVersion":"v1","kind":"Pod","metadata":{"name":name},"spec":{"containers":[{"name":"c","image":"i"}]}})
}

fn deployment(name: &str) -> Value {
    let labels = json!({"a":"b"});
    json!({"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":name},"spec":{"selector":{"matchLabels":labels},
        "template":{"metadata":{"labels":labels},"spec":{"containers":[{"name":"c","image":"i"}]}}}})
}

fn named(kind: &str, name: &str) -> Value {
    json!({"apiVersion":"v1","kind":kind,"metadata":{"name":name}})
}

fn cases() -> Vec<Case> {
    let scale =
        json!({"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"d"},"spec":{"replicas":2}});
    let applied = named("ConfigMap", "applied");
    let binding = |name: &str| json!({"metadata":{"name":name},"target":{"kind":"Node","name":"n"}});
    let review = |spec: Value| json!({"spec":spec});
    let sar = json!({"user":"x","resourceAttributes":{"namespace":"a","verb":"get","resource":"pods"}});
    let maps = "/api/v1/namespaces/a/configmaps";
    vec![
        Case(
            Method::POST,
            "/api/v1/namespaces",
            JSON,
            named("Namespace", "a"),
            (Create, "v1 Namespace", "namespaces", "a", "a"),
        ),
        Case(
            Method::POST,
            maps,
            JSON,
            named("ConfigMap", "m"),
            (Create, "v1 ConfigMap", "configmaps", "a", "m"),
        ),
        Case(
            Method::PUT,
            "/api/v1/namespaces/a/configmaps/m",
            JSON,
            named("ConfigMap", "m"),
            (Update, "v1 ConfigMap", "configmaps", "a", "m"),
        ),
        Case(
            Method::PATCH,
            "/api/v1/namespaces/a/configmaps/m",
            MERGE,
            json!({"data":{"k":"v"}}),
            (Update, "v1 ConfigMap", "configmaps", "a", "m"),
        ),
        Case(
            Method::PATCH,
            "/api/v1/namespaces/a/configmaps/applied?fieldManager=f",
            APPLY,
            applied.clone(),
            (Create, "v1 ConfigMap", "configmaps", "a", "applied"),
        ),
        Case(
            Method::PATCH,
            "/api/v1/namespaces/a/configmaps/applied?fieldManager=f",
            APPLY,
            applied,
            (Update, "v1 ConfigMap", "configmaps", "a", "applied"),
        ),
        Case(
            Method::DELETE,
            "/api/v1/namespaces/a/configmaps/m",
            JSON,
            NONE,
            (Delete, "v1 ConfigMap", "configmaps", "a", "m"),
        ),
        Case(
            Method::DELETE,
            maps,
            JSON,
            NONE,
            (Delete, "v1 ConfigMap", "configmaps", "a", ""),
        ),
        Case(
            Method::POST,
            "/api/v1/namespaces/a/serviceaccounts",
            JSON,
            named("ServiceAccount", "s"),
            (Create, "v1 ServiceAccount", "serviceaccounts", "a", "s"),
        ),
        Case(
            Method::POST,
            "/api/v1/namespaces/a/serviceaccounts/s/token",
            JSON,
            review(json!({})),
            (
                Create,
                "authentication.k8s.io/v1 TokenRequest",
                "serviceaccounts/token",
                "a",
                "s",
            ),
        ),
        Case(
            Method::POST,
            "/api/v1/namespaces/a/pods",
            JSON,
            pod("p"),
            (Create, "v1 Pod", "pods", "a", "p"),
        ),
        Case(
            Method::POST,
            "/api/v1/namespaces/a/pods/p/binding",
            JSON,
            binding("p"),
            (Create, "v1 Binding", "pods/binding", "a", "p"),
        ),
        Case(
            Method::PATCH,
            "/api/v1/namespaces/a/pods/p/status",
            MERGE,
            json!({"status":{"message":"m"}}),
            (Update, "v1 Pod", "pods/status", "a", "p"),
        ),
        Case(
            Method::GET,
            "/api/v1/namespaces/a/pods/p/exec?command=x",
            JSON,
            NONE,
            (Connect, "v1 PodExecOptions", "pods/exec", "a", "p"),
        ),
        Case(
            Method::POST,
            "/api/v1/namespaces/a/pods/p/attach?stdin=1",
            JSON,
            NONE,
            (Connect, "v1 PodAttachOptions", "pods/attach", "a", "p"),
        ),
        Case(
            Method::POST,
            "/api/v1/namespaces/a/pods/p/portforward?ports=80",
            JSON,
            NONE,
            (Connect, "v1 PodPortForwardOptions", "pods/portforward", "a", "p"),
        ),
        Case(
            Method::GET,
            "/api/v1/namespaces/a/pods/p/proxy/x/y",
            JSON,
            NONE,
            (Connect, "v1 PodProxyOptions", "pods/proxy", "a", "p"),
        ),
        Case(
            Method::DELETE,
            "/api/v1/namespaces/a/services/x/proxy",
            JSON,
            NONE,
            (Connect, "v1 ServiceProxyOptions", "services/proxy", "a", "x"),
        ),
        Case(
            Method::HEAD,
            "/api/v1/nodes/n/proxy/",
            JSON,
            NONE,
            (Connect, "v1 NodeProxyOptions", "nodes/proxy", "", "n"),
        ),
        Case(
            Method::POST,
            "/api/v1/namespaces/a/pods/p/eviction",
            JSON,
            json!({"metadata":{"name":"p"}}),
            (Create, "policy/v1 Eviction", "pods/eviction", "a", "p"),
        ),
        Case(
            Method::POST,
            "/api/v1/namespaces/a/pods",
            JSON,
            pod("q"),
            (Create, "v1 Pod", "pods", "a", "q"),
        ),
        Case(
            Method::POST,
            "/api/v1/namespaces/a/bindings",
            JSON,
            binding("q"),
            (Create, "v1 Binding", "bindings", "a", "q"),
        ),
        Case(
            Method::POST,
            "/apis/apps/v1/namespaces/a/deployments",
            JSON,
            deployment("d"),
            (Create, "apps/v1 Deployment", "deployments", "a", "d"),
        ),
        Case(
            Method::PUT,
            "/apis/apps/v1/namespaces/a/deployments/d/scale",
            JSON,
            scale,
            (Update, "autoscaling/v1 Scale", "deployments/scale", "a", "d"),
        ),
        Case(
            Method::PATCH,
            "/apis/apps/v1/namespaces/a/deployments/d/scale",
            MERGE,
            json!({"spec":{"replicas":3}}),
            (Update, "autoscaling/v1 Scale", "deployments/scale", "a", "d"),
        ),
        Case(
            Method::POST,
            "/apis/authorization.k8s.io/v1/namespaces/a/localsubjectaccessreviews",
            JSON,
            review(sar.clone()),
            (
                Create,
                "authorization.k8s.io/v1 LocalSubjectAccessReview",
                "localsubjectaccessreviews",
                "a",
                "",
            ),
        ),
        Case(
            Method::POST,
            "/apis/authorization.k8s.io/v1/subjectaccessreviews",
            JSON,
            review(sar.clone()),
            (
                Create,
                "authorization.k8s.io/v1 SubjectAccessReview",
                "subjectaccessreviews",
                "",
                "",
            ),
        ),
        Case(
            Method::POST,
            "/apis/authentication.k8s.io/v1/tokenreviews",
            JSON,
            review(json!({"token":"t"})),
            (
                Create,
                "authentication.k8s.io/v1 TokenReview",
                "tokenreviews",
                "",
                "",
            ),
        ),
        Case(
            Method::PUT,
            "/api/v1/namespaces/a/finalize",
            JSON,
            named("Namespace", "a"),
            (Update, "v1 Namespace", "namespaces/finalize", "", "a"),
        ),
    ]
}

#[tokio::test]
async fn admission_is_called_for_every_write_and_connection() {
    let api = Api::new(Runtime::real()).await;
    let mut wrong = Vec::new();
    for Case(method, path, content, body, told) in cases() {
        let asked = api.asked(method.clone(), path, content, &body).await;
        let expected = expected(told);
        if asked != expected {
            wrong.push(format!(
                "{method} {path}\n  asked    {asked:?}\n  expected {expected:?}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn admission_is_not_called_for_reads() {
    let api = Api::new(Runtime::real()).await;
    api.ask(
        Method::POST,
        "/api/v1/namespaces/a/pods",
        (JSON, JSON),
        pod("p").to_string(),
    )
    .await;
    for path in [
        "/api/v1/namespaces/a/pods",
        "/api/v1/namespaces/a/pods/p",
        "/api/v1/namespaces/a/pods/p/log",
        "/api/v1/componentstatuses",
    ] {
        assert_eq!(
            api.asked(Method::GET, path, JSON, &NONE).await,
            Vec::<String>::new(),
            "{path}"
        );
    }
}

#[tokio::test]
async fn admission_that_adds_to_an_object_is_followed_by_defaults() {
    let api = Api::new(Runtime::real()).await;
    api.asked(Method::POST, "/api/v1/namespaces", JSON, &named("Namespace", "a"))
        .await;
    api.admission.change_with(|pod| {
        pod.with(&["spec", "containers"], |mut containers| {
            let mut sidecar = containers.push(machinery_schema::Value::Null);
            sidecar.set("name", "sidecar");
            sidecar.set("image", "i:1");
            let mut ports = sidecar.entry("ports");
            let mut port = ports.push(machinery_schema::Value::Null);
            port.set("containerPort", 80);
        });
    });
    let answer = api
        .ask(
            Method::POST,
            "/api/v1/namespaces/a/pods",
            (JSON, JSON),
            pod("p").to_string(),
        )
        .await;
    let pod = answer.json(201).unwrap();
    let sidecar = &pod["spec"]["containers"][1];
    assert_eq!(sidecar["imagePullPolicy"], "IfNotPresent", "{sidecar}");
    // One default of the schema, one of the kind.
    assert_eq!(sidecar["ports"][0]["protocol"], "TCP", "{sidecar}");
}
