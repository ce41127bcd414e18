use super::answer::{self, BadAnswer};
use super::conditions;
use super::configuration::{ConfiguredWebhooks, ReviewVersion};
use crate::expressions::{Inputs, Matched, matched};
use crate::matching::{Asked, Objects, Selection, patched as apply};
use crate::{AdmissionError, Equivalent, Host, Operation, Plugin, Request};
use async_trait::async_trait;
use machinery_meta::reader::{ObjectReader, ReadFuture, ReadObject};
use machinery_meta::{
    GroupResource, GroupVersion, GroupVersionKind, GroupVersionResource, ObjectHeader, ObjectKey, Revision,
    UserInfo,
};
use machinery_schema::Tree;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// Upstream's `rules_test.go`.
const RULES: &str = include_str!("../../testdata/webhook_rules.json");
/// Upstream's `TestShouldCallHook`.
const SELECTION: &str = include_str!("../../testdata/webhook_selection.json");
/// Upstream's `TestVerifyAdmissionResponse`, and answers of other forms.
const ANSWERS: &str = include_str!("../../testdata/webhook_answers.json");

/// No webhook, and no way to one.
#[derive(Debug)]
struct Nobody;

#[async_trait]
impl super::WebhookClient for Nobody {
    async fn post(
        &self,
        call: apiserver_egress::HookCall<'_>,
    ) -> Result<Vec<u8>, apiserver_egress::HookError> {
        Err(apiserver_egress::HookError::Failed {
            url: call.target.url(call.query),
            why: "nobody is called here".to_owned(),
        })
    }
}

/// A webhook that refuses everything at once.
struct Refusing;

#[async_trait]
impl super::WebhookClient for Refusing {
    async fn post(
        &self,
        call: apiserver_egress::HookCall<'_>,
    ) -> Result<Vec<u8>, apiserver_egress::HookError> {
        let review: Value = serde_json::from_slice(&call.body).unwrap();
        let response = json!({"uid": review["request"]["uid"], "allowed": false});
        let answer =
            json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response});
        Ok(answer.to_string().into_bytes())
    }
}

/// A webhook that changes everything.
struct Patching;

#[async_trait]
impl super::WebhookClient for Patching {
    async fn post(
        &self,
        call: apiserver_egress::HookCall<'_>,
    ) -> Result<Vec<u8>, apiserver_egress::HookError> {
        let review: Value = serde_json::from_slice(&call.body).unwrap();
        // [{"op": "add", "path": "/a", "value": 1}]
        let patch = "W3sib3AiOiAiYWRkIiwgInBhdGgiOiAiL2EiLCAidmFsdWUiOiAxfV0=";
        let response = json!({"uid": review["request"]["uid"], "allowed": true, "patch": patch, "patchType": "JSONPatch"});
        let answer =
            json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response});
        Ok(answer.to_string().into_bytes())
    }
}

/// The client of a request whose patch has no turn is to come again.
#[test]
fn patch_without_a_turn_is_busy() {
    let rule = json!({"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]});
    let own = webhook(json!({"rules": [rule], "failurePolicy": "Ignore"}));
    let reader: Arc<dyn ObjectReader> = Arc::new(OneNamespace);
    let runtime = machinery_runtime::Simulation::new(1).runtime();
    let webhooks = super::Webhooks::new(Arc::new(Patching), reader, runtime, Arc::new(Nobody));
    webhooks.set_mutating(vec![own]);
    let plugin = super::MutatingWebhooks::new(&webhooks);
    let user = UserInfo::named("anna", ["staff"]);
    for is_busy in [false, true] {
        let mut host = deployments("");
        host.is_busy = is_busy;
        let mut object = Tree::from_json("{}").unwrap();
        let request = request(&user, &host, "ns");
        let changed = futures::executor::block_on(plugin.mutate(&request, &mut object, None));
        assert_eq!(
            matches!(changed, Err(AdmissionError::Busy)),
            is_busy,
            "{changed:?}"
        );
    }
}

/// The client of a request for which there is no memory is to come again, and is counted.
#[test]
fn webhook_that_is_not_called_for_want_of_memory_is_counted() {
    let rule = json!({"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]});
    let reader: Arc<dyn ObjectReader> = Arc::new(OneNamespace);
    let runtime = machinery_runtime::Simulation::new(1).runtime();
    let webhooks = super::Webhooks::new(Arc::new(Patching), reader, runtime.clone(), Arc::new(Nobody));
    webhooks.set_mutating(vec![webhook(json!({"rules": [rule.clone()]}))]);
    webhooks.set_validating(vec![webhook(json!({"rules": [rule]}))]);
    let user = UserInfo::named("anna", ["staff"]);
    let mut host = deployments("");
    host.is_full = true;
    let mut object = Tree::from_json("{}").unwrap();
    let request = request(&user, &host, "ns");
    let changing = super::MutatingWebhooks::new(&webhooks);
    let changed = futures::executor::block_on(changing.mutate(&request, &mut object, None));
    assert!(matches!(changed, Err(AdmissionError::Busy)), "{changed:?}");
    let checking = super::ValidatingWebhooks::new(&webhooks);
    let checked = futures::executor::block_on(checking.validate(&request, Some(&object), None));
    assert!(matches!(checked, Err(AdmissionError::Busy)), "{checked:?}");
    let counted = "knarr_webhook_calls_turned_away_total{review=\"AdmissionReview\"} 2";
    assert!(runtime.metrics().text().contains(counted));
}

/// Calls of others are not the webhook's failure: with `Ignore`, too, a request waits for a place however long that takes.
#[test]
fn webhook_is_passed_by_nobody_while_its_places_are_taken() {
    const LARGE: usize = 8 << 20;
    let simulation = machinery_runtime::Simulation::new(1);
    let runtime = simulation.runtime();
    simulation.run(async move {
        let reader: Arc<dyn ObjectReader> = Arc::new(OneNamespace);
        let webhooks = super::Webhooks::new(Arc::new(Refusing), reader, runtime.clone(), Arc::new(Nobody));
        let rule = json!({"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]});
        let own = webhook(json!({"rules": [rule], "failurePolicy": "Ignore", "timeoutSeconds": 1,
            "clientConfig": {"url": "https://hooks.example/deny"}, "sideEffects": "None", "admissionReviewVersions": ["v1"]}));
        let (user, host) = (UserInfo::named("anna", ["staff"]), deployments(""));
        let asked = request(&user, &host, "ns");
        let selection = Selection::new(&asked, &OneNamespace).unwrap();
        let objects = Objects { new: None, old: None };
        let to = selection.matching(&own.constraints, objects).await.unwrap().unwrap();
        let invocation = super::call::Invocation {
            webhook: &own,
            to: &to,
            selection: &selection,
        };
        let target = own.target.as_ref().unwrap();
        let mut others = Vec::new();
        for _ in 0..4 {
            others.push(target.enter("ns", LARGE).await);
        }
        let mut called = std::pin::pin!(webhooks.call(&invocation, objects, crate::Step::Validate));
        let hour = runtime.timeout(Duration::from_secs(3_600), &mut called).await;
        assert!(hour.is_err(), "it waits: {hour:?}");
        others.clear();
        let refused = called.await;
        assert!(
            matches!(refused, Err(super::call::CallError::Rejected(_))),
            "{refused:?}"
        );
    });
}

/// Counts events.
#[derive(Default)]
struct Events(std::sync::atomic::AtomicUsize);

impl tracing::Subscriber for &'static Events {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

/// Requests of one webhook cannot fill the log; another webhook's failure has its line nevertheless.
#[test]
fn webhook_failures_are_one_line_at_a_time() {
    let simulation = machinery_runtime::Simulation::new(1);
    let runtime = simulation.runtime();
    let reader: Arc<dyn ObjectReader> = Arc::new(OneNamespace);
    let webhooks = super::Webhooks::new(Arc::new(Nobody), reader, runtime, Arc::new(Nobody));
    let (user, host) = (UserInfo::named("anna", ["staff"]), deployments(""));
    let asked = request(&user, &host, "ns");
    let selection = Selection::new(&asked, &OneNamespace).unwrap();
    let to = selection.own_version();
    let events: &'static Events = Box::leak(Box::default());
    tracing::subscriber::with_default(events, || {
        for policy in ["Ignore", "Fail"] {
            let own = webhook(json!({"failurePolicy": policy}));
            let invocation = super::call::Invocation {
                webhook: &own,
                to: &to,
                selection: &selection,
            };
            for _ in 0..100 {
                let failed = Some(super::call::CallError::calling("nobody answers".to_owned()));
                let step = crate::Step::Validate;
                let _ = webhooks.settle(&invocation, step, Duration::ZERO, failed, String::new);
            }
        }
    });
    assert_eq!(events.0.load(std::sync::atomic::Ordering::Relaxed), 2);
}

impl super::WebhookObserver for Nobody {
    fn called(&self, _: super::WebhookCall<'_>, _: Duration, _: bool, _: u16) {}

    fn rejected(&self, _: super::WebhookCall<'_>, _: &'static str, _: u16) {}

    fn failed_open(&self, _: super::WebhookCall<'_>) {}
}

/// Webhooks of a server without configurations.
pub(crate) fn none(reader: &Arc<dyn ObjectReader>) -> Arc<super::Webhooks> {
    let runtime = machinery_runtime::Simulation::new(1).runtime();
    super::Webhooks::new(Arc::new(Nobody), Arc::clone(reader), runtime, Arc::new(Nobody))
}

fn operation(text: &str) -> Operation {
    match text {
        "CREATE" => Operation::Create,
        "UPDATE" => Operation::Update,
        "DELETE" => Operation::Delete,
        _ => Operation::Connect,
    }
}

fn resource(group: &str, version: &str, plural: &str) -> GroupVersionResource {
    GroupVersion::new(group, version).resource(plural)
}

/// One webhook with these members beside those that it must have.
fn webhook(members: Value) -> Arc<super::Webhook> {
    let mut own = json!({"name": "a.b.c", "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "clientConfig": {"url": "https://a.example"}, "namespaceSelector": {}, "objectSelector": {}});
    let members = members.as_object().cloned().unwrap_or_default();
    own.as_object_mut().unwrap().extend(members);
    let text = json!({"webhooks": [own]}).to_string();
    let mut all = ConfiguredWebhooks::compile("own", text.as_bytes()).unwrap().0;
    all.remove(0)
}

#[test]
fn webhook_rules_match_as_upstreams() {
    #[derive(Deserialize)]
    struct Case {
        name: String,
        rule: Value,
        matching: Vec<[String; 6]>,
        other: Vec<[String; 6]>,
    }
    let cases: Vec<Case> = serde_json::from_str(RULES).unwrap();
    for case in cases {
        let own = webhook(json!({"rules": [case.rule]}));
        let matches = |[group, version, plural, subresource, namespace, verb]: &[String; 6]| {
            let asked = Asked {
                operation: operation(verb),
                resource: &resource(group, version, plural),
                subresource,
                namespace,
                name: "",
            };
            own.constraints.rules[0].matches(asked)
        };
        for own in &case.matching {
            assert!(matches(own), "{}: {own:?}", case.name);
        }
        for own in &case.other {
            assert!(!matches(own), "{}: {own:?}", case.name);
        }
    }
}

/// A request for a deployment, of which there are four resources.
#[derive(Debug)]
pub(crate) struct Deployments {
    kind: GroupVersionKind,
    resource: GroupVersionResource,
    subresource: String,
    /// The authorizer does not answer at once.
    pub(crate) answers_later: bool,
    /// The authorizer has not decided, and heavy work has no turn.
    pub(crate) is_busy: bool,
    /// There is no memory for reviews.
    is_full: bool,
    /// Bytes of work that were announced.
    pub(crate) work: AtomicUsize,
    pub(crate) interrupt: Option<Arc<dyn machinery_cel::Interrupt>>,
}

#[async_trait]
impl Host for Deployments {
    fn kind(&self) -> &GroupVersionKind {
        &self.kind
    }

    fn is_custom(&self) -> bool {
        false
    }

    fn resource(&self) -> &GroupVersionResource {
        &self.resource
    }

    fn options(&self) -> Option<String> {
        None
    }

    fn resources_of_kind(&self, group: &str, version: &str, kind: &str) -> Vec<(GroupVersionResource, bool)> {
        match kind {
            "Node" => vec![(resource(group, version, "nodes"), false)],
            "Pod" => vec![(resource(group, version, "pods"), true)],
            _ => Vec::new(),
        }
    }

    fn equivalents(&self) -> Vec<Equivalent> {
        let kind = if self.subresource.is_empty() {
            "Deployment"
        } else {
            "Scale"
        };
        [
            ("extensions", "v1beta1"),
            ("apps", "v1beta1"),
            ("apps", "v1alpha1"),
        ]
        .map(|(group, version)| Equivalent {
            resource: resource(group, version, "deployments"),
            kind: GroupVersionKind::new(group, version, kind),
        })
        .to_vec()
    }

    async fn convert(
        &self,
        _: &Tree,
        _: &GroupVersionResource,
        _: &Equivalent,
    ) -> Result<Tree, AdmissionError> {
        Err(AdmissionError::Internal("nothing is converted here".to_owned()))
    }

    async fn authorize(
        &self,
        _: Option<(&str, &str)>,
        check: &machinery_cel::Check,
        verb: &str,
    ) -> Result<machinery_cel::Decision, AdmissionError> {
        let mut waited = !self.answers_later;
        std::future::poll_fn(|context| {
            context.waker().wake_by_ref();
            match std::mem::replace(&mut waited, true) {
                true => std::task::Poll::Ready(()),
                false => std::task::Poll::Pending,
            }
        })
        .await;
        if self.is_busy {
            return Err(AdmissionError::Busy);
        }
        Ok(machinery_cel::Decision {
            allowed: check.resource == "deployments" && verb == "breakglass",
            ..machinery_cel::Decision::default()
        })
    }

    fn set_defaults(&self, _: &mut Tree, _: &GroupVersionResource) {}

    fn field_owners_problem(&self, _: &Tree) -> Option<String> {
        None
    }

    fn warn(&self, _: String) {}

    fn annotate(&self, _: String, _: String) {}

    fn audits_bodies(&self) -> bool {
        false
    }

    fn waited(&self, _: bool, _: Duration) {}

    fn time_left(&self) -> Option<Duration> {
        None
    }

    fn interrupt(&self) -> Option<Arc<dyn machinery_cel::Interrupt>> {
        self.interrupt.clone()
    }

    fn hold(&self, _: usize) -> Result<crate::Held, AdmissionError> {
        match self.is_full {
            true => Err(AdmissionError::Busy),
            false => Ok(Box::new(())),
        }
    }

    async fn heavy_from(&self, bytes: usize) -> Result<(), AdmissionError> {
        self.work.fetch_add(bytes, Ordering::Relaxed);
        match self.is_busy {
            true => Err(AdmissionError::Busy),
            false => Ok(()),
        }
    }
}

/// The namespace `ns`, with a label.
pub(crate) struct OneNamespace;

impl ObjectReader for OneNamespace {
    fn get<'a>(&'a self, of: &'a GroupResource, key: &'a ObjectKey) -> ReadFuture<'a, Option<ReadObject>> {
        let found = (of.resource == "namespaces" && key.name == "ns").then(|| ReadObject {
            header: ObjectHeader {
                labels: vec![("team".into(), "red".into())],
                ..ObjectHeader::default()
            }
            .into(),
            revision: Revision::ZERO,
            json: b"{}".to_vec(),
        });
        Box::pin(async move { Ok(found) })
    }

    fn list<'a>(&'a self, _: &'a GroupResource, _: &'a str) -> ReadFuture<'a, Vec<ReadObject>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}

pub(crate) fn deployments(subresource: &str) -> Deployments {
    let kind = match subresource {
        "" => GroupVersionKind::new("apps", "v1", "Deployment"),
        _ => GroupVersionKind::new("autoscaling", "v1", "Scale"),
    };
    Deployments {
        work: AtomicUsize::new(0),
        kind,
        resource: resource("apps", "v1", "deployments"),
        subresource: subresource.to_owned(),
        answers_later: false,
        is_busy: false,
        is_full: false,
        interrupt: None,
    }
}

pub(crate) fn request<'a>(user: &'a UserInfo, host: &'a Deployments, namespace: &'a str) -> Request<'a> {
    Request {
        user,
        operation: Operation::Create,
        group: "apps",
        kind: &host.kind.kind,
        resource: "deployments",
        subresource: &host.subresource,
        namespace,
        name: "name",
        dry_run: false,
        remarks: &crate::Unheard,
        host: Some(host),
        reinvocation: None,
    }
}

#[tokio::test]
async fn webhook_is_called_with_the_version_that_its_rules_name() {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Case {
        name: String,
        rules: Value,
        match_policy: String,
        subresource: String,
        called: Option<String>,
        kind: Option<String>,
    }
    let cases: Vec<Case> = serde_json::from_str(SELECTION).unwrap();
    let user = UserInfo::named("anna", ["staff"]);
    for case in cases {
        let own = webhook(json!({"rules": case.rules, "matchPolicy": case.match_policy}));
        let host = deployments(&case.subresource);
        let request = request(&user, &host, "ns");
        let selection = Selection::new(&request, &OneNamespace).unwrap();
        let objects = Objects { new: None, old: None };
        let found = selection.matching(&own.constraints, objects).await.unwrap();
        let called = found
            .as_ref()
            .map(|own| format!("{}/{}", own.resource.group, own.resource.version));
        let kind = found.map(|own| format!("{} {}", own.kind.api_version(), own.kind.kind));
        assert_eq!((called, kind), (case.called, case.kind), "{}", case.name);
    }
}

#[tokio::test]
async fn webhook_is_called_where_both_selectors_match() {
    let user = UserInfo::named("anna", ["staff"]);
    let host = deployments("");
    let labelled = Tree::from_json(r#"{"metadata": {"labels": {"on": "yes"}}}"#).unwrap();
    let plain = Tree::from_json(r#"{"metadata": {}}"#).unwrap();
    let rule = json!({"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]});
    let (red, on) = (
        json!({"matchLabels": {"team": "red"}}),
        json!({"matchLabels": {"on": "yes"}}),
    );
    let other = json!({"matchLabels": {"team": "blue"}});
    for (namespaces, wanted, namespace, new, old, expected) in [
        (&red, &on, "ns", &labelled, &plain, Ok(true)),
        (&red, &on, "ns", &plain, &labelled, Ok(true)),
        (&red, &on, "ns", &plain, &plain, Ok(false)),
        (&other, &on, "ns", &labelled, &plain, Ok(false)),
        (&red, &on, "", &labelled, &plain, Ok(true)),
        (&red, &on, "gone", &labelled, &plain, Err(())),
    ] {
        let own =
            webhook(json!({"rules": [rule], "namespaceSelector": namespaces, "objectSelector": wanted}));
        let request = request(&user, &host, namespace);
        let selection = Selection::new(&request, &OneNamespace).unwrap();
        let objects = Objects {
            new: Some(new),
            old: Some(old),
        };
        let found = selection.matching(&own.constraints, objects).await;
        let called = found.map(|own| own.is_some()).map_err(drop);
        assert_eq!(called, expected, "{namespaces} {wanted} {namespace}");
    }
}

#[test]
fn webhook_answers_are_checked_as_upstreams() {
    #[derive(Deserialize)]
    struct Case {
        name: String,
        version: String,
        mutates: bool,
        answer: Value,
        error: Option<String>,
        patch: Option<String>,
    }
    let cases: Vec<Case> = serde_json::from_str(ANSWERS).unwrap();
    for case in cases {
        let version = match case.version.as_str() {
            "v1" => ReviewVersion::V1,
            _ => ReviewVersion::V1Beta1,
        };
        let text = case.answer.to_string();
        let read = answer::read(text.as_bytes(), version, "123", case.mutates);
        let patch = read
            .as_ref()
            .ok()
            .map(|own| String::from_utf8(own.patch.clone()).unwrap());
        let error = read.err().map(|error| match error {
            BadAnswer::Invalid(why) => why,
            BadAnswer::Unreadable(why) => format!("! {why}"),
        });
        assert_eq!(error, case.error, "{}", case.name);
        if let Some(expected) = case.patch {
            assert_eq!(patch.as_deref(), Some(expected.as_str()), "{}", case.name);
        }
    }
}

#[tokio::test]
async fn webhook_match_conditions_decide_as_upstreams() {
    let user = UserInfo::named("anna", ["staff"]);
    let host = deployments("");
    let request = request(&user, &host, "ns");
    let selection = Selection::new(&request, &OneNamespace).unwrap();
    let object = Tree::from_json(r#"{"metadata": {"name": "name", "labels": {"on": "yes"}}}"#).unwrap();
    let objects = Objects {
        new: Some(&object),
        old: None,
    };
    let cases: [(&[&str], Matched); 8] = [
        (
            &["object.metadata.name == 'name'", "oldObject == null"][..],
            Matched::Yes,
        ),
        (&["request.operation == 'DELETE'"], Matched::No),
        (&["object.metadata.gone == 'x'", "false"], Matched::No),
        (
            &["'staff' in request.userInfo.groups && request.resource.group == 'apps'"],
            Matched::Yes,
        ),
        (&["has(request.subResource)"], Matched::No),
        (
            &["authorizer.requestResource.check('breakglass').allowed()"],
            Matched::Yes,
        ),
        (
            &["authorizer.group('apps').resource('deployments').check('get').allowed()"],
            Matched::No,
        ),
        (
            &["object.metadata.gone == 'x'", "true"],
            Matched::Failed(
                "expression 'object.metadata.gone == 'x'' resulted in error: no such key: gone".to_owned(),
            ),
        ),
    ];
    for (expressions, expected) in cases {
        let all: Vec<Value> = expressions
            .iter()
            .map(|own| json!({"name": "own", "expression": own}))
            .collect();
        let own = webhook(json!({"matchConditions": all}));
        let inputs = Inputs {
            selection: &selection,
            objects,
            request: &crate::matching::request::json(&selection, &selection.own_version()),
            namespace: None,
            params: None,
            variables: None,
            runtime: None,
            work: &AtomicU64::new(0),
        };
        let (found, _) = matched(&own.conditions, &inputs).await.unwrap();
        assert_eq!(found, expected, "{expressions:?}");
    }
    let own = webhook(json!({"matchConditions": [{"name": "own", "expression": "true"}]}));
    let to = selection.own_version();
    let runtime = machinery_runtime::Runtime::real();
    let held = conditions::hold(&own, &selection, &to, objects, &runtime).await;
    assert!(held.unwrap());
    assert_eq!(host.work.load(Ordering::Relaxed), object.arena_bytes());
}

fn pod() -> Tree {
    let (schema, ty) = machinery_api::schema_for("", "v1", "Pod").unwrap();
    let text = br#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}"#;
    machinery_schema::decode_json(schema, ty, text, machinery_schema::Strictness::Ignore)
        .unwrap()
        .tree
}

/// Patches of any size, depth and kind end in an error or in an object within bounds.
#[test]
fn webhook_patches_are_bounded() {
    let deep = format!(
        r#"[{{"op": "add", "path": "/metadata/annotations", "value": {}1{}}}]"#,
        "[".repeat(5_000),
        "]".repeat(5_000)
    );
    let mut doubling =
        vec![json!({"op": "add", "path": "/metadata/annotations", "value": {"a0": "x".repeat(1 << 20)}})];
    for step in 0..100 {
        doubling.push(json!({"op": "copy", "from": "/metadata/annotations/a0", "path": format!("/metadata/annotations/b{step}")}));
    }
    let many: Vec<Value> = (0..20_000)
        .map(|_| json!({"op": "test", "path": "/kind", "value": "Pod"}))
        .collect();
    let typed = json!([{"op": "replace", "path": "/spec/containers", "value": 7}]);
    for patch in [
        deep,
        json!(doubling).to_string(),
        json!(many).to_string(),
        typed.to_string(),
        "{}".to_owned(),
        r#"[{"op": "remove", "path": "/gone"}]"#.to_owned(),
    ] {
        assert!(
            apply(&pod(), patch.as_bytes()).is_err(),
            "{}",
            &patch[..60.min(patch.len())]
        );
    }
    let labelled = apply(&pod(), br#"[{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}, {"op": "add", "path": "/unknown", "value": 1}]"#);
    let labelled = labelled.unwrap();
    assert_eq!(labelled.str_at(&["metadata", "labels", "a"]), "b");
    assert!(labelled.get("unknown").is_none(), "fields of no kind are dropped");
}

/// A number of two characters is a node of a tree, and a patch may write it more than once.
const HELD_BY_BYTE: usize = 128;

/// Answers of a hostile webhook, byte by byte: no panic, and nothing in memory out of proportion.
#[test]
fn webhook_answers_of_any_bytes_are_read() {
    let seeds: Vec<Vec<u8>> = serde_json::from_str::<Vec<Value>>(ANSWERS)
        .unwrap()
        .iter()
        .map(|case| case["answer"].to_string().into_bytes())
        .collect();
    let pod = pod();
    machinery_fuzz::fuzz(seeds, |input| {
        for version in [ReviewVersion::V1, ReviewVersion::V1Beta1] {
            let read = || answer::read(input, version, "123", true);
            if let Ok(own) = machinery_fuzz::in_proportion(input, HELD_BY_BYTE, read) {
                assert!(own.annotations.len() <= 64 && own.warnings.len() <= 64);
                let _ = machinery_fuzz::in_proportion(input, HELD_BY_BYTE, || apply(&pod, &own.patch));
            }
        }
        let _ = machinery_fuzz::in_proportion(input, HELD_BY_BYTE, || apply(&pod, input));
    });
}
