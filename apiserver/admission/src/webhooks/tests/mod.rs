mod fixtures;

pub(crate) use fixtures::{OneNamespace, deployments, none, request};

use super::answer::{self, BadAnswer};
use super::conditions;
use super::configuration::ReviewVersion;
use crate::expressions::{Inputs, Matched, matched};
use crate::matching::{Asked, Objects, Selection, patched as apply};
use crate::{AdmissionError, Operation, Plugin};
use fixtures::{Nobody, Patching, Refusing, resource, webhook};
use machinery_meta::UserInfo;
use machinery_meta::reader::ObjectReader;
use machinery_schema::Tree;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upstream's `rules_test.go`.
const RULES: &str = include_str!("../../../testdata/webhook_rules.json");
/// Upstream's `TestShouldCallHook`.
const SELECTION: &str = include_str!("../../../testdata/webhook_selection.json");
/// Upstream's `TestVerifyAdmissionResponse`, and answers of other forms.
const ANSWERS: &str = include_str!("../../../testdata/webhook_answers.json");

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

fn operation(text: &str) -> Operation {
    match text {
        "CREATE" => Operation::Create,
        "UPDATE" => Operation::Update,
        "DELETE" => Operation::Delete,
        _ => Operation::Connect,
    }
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
