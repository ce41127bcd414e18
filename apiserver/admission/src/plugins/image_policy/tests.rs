//! Upstream's tables (`testdata/image_policy.json`, of admission_test.go and config_test.go), over a backend in this process.

use super::*;
use crate::plugins::tests::block_on;
use machinery_meta::UserInfo;

const TABLES: &str = include_str!("../../../testdata/image_policy.json");

fn rows(table: &str) -> Vec<Value> {
    let tables: Value = serde_json::from_str(TABLES).unwrap();
    tables[table].as_array().unwrap().clone()
}

/// Upstream's service of the tests: it allows as it is set, `good` in any case, and never `bad`.
#[derive(Debug)]
struct Backend {
    allow: bool,
    code: Mutex<u64>,
    annotations: Value,
    seen: Mutex<Vec<Value>>,
}

#[async_trait]
impl ImageReviewer for Backend {
    async fn review(
        &self,
        review: &Value,
        user: &str,
        namespace: &str,
        _: Option<Duration>,
    ) -> Result<Value, NoReview> {
        assert_eq!((user, namespace), ("anna", "namespace"));
        self.seen.lock().push(review.clone());
        let code = *self.code.lock();
        if code != 200 {
            return Err(NoReview::Failed(format!("it answered {code}")));
        }
        let images = review["spec"]["containers"].as_array().unwrap();
        let is_bad = images.iter().any(|own| own["image"] == "bad");
        let allowed = !is_bad && (self.allow || images[0]["image"] == "good");
        let mut status = json!({"allowed": allowed, "auditAnnotations": self.annotations});
        if !allowed {
            status["reason"] = json!("not allowed");
        }
        Ok(json!({"kind": IMAGE_REVIEW, "status": status}))
    }
}

fn backend() -> Backend {
    Backend {
        allow: false,
        code: Mutex::new(200),
        annotations: Value::Null,
        seen: Mutex::default(),
    }
}

fn configuration(default_allow: bool) -> Configuration {
    let written = json!({"imagePolicy": {"kubeConfigFile": "/kubeconfig", "defaultAllow": default_allow}});
    Configuration::parse(Some(&written)).unwrap()
}

fn plugin(backend: &Arc<Backend>, default_allow: bool) -> ImagePolicyWebhook {
    let reviewer = Arc::clone(backend) as Arc<dyn ImageReviewer>;
    ImagePolicyWebhook::new(
        configuration(default_allow),
        reviewer,
        Arc::new(|| Duration::ZERO),
    )
}

/// A plugin whose name and steps alone matter.
pub(in crate::plugins) fn unasked() -> ImagePolicyWebhook {
    plugin(&Arc::new(backend()), false)
}

/// Audit annotations of a request.
#[derive(Debug, Default)]
struct Annotations(Mutex<Map<String, Value>>);

#[async_trait]
impl crate::Remarks for Annotations {
    fn warn(&self, _: String) {}

    fn annotate(&self, key: String, value: String) {
        self.0.lock().insert(key, value.into());
    }

    fn time_left(&self) -> Option<Duration> {
        None
    }

    async fn heavy_from(&self, _: usize) -> Result<(), AdmissionError> {
        Ok(())
    }
}

/// A request for a pod, its answer, and the audit annotations.
fn ask(
    plugin: &ImagePolicyWebhook,
    pod: &Value,
    (operation, subresource): (Operation, &str),
) -> (Result<(), String>, Value) {
    let annotations = Annotations::default();
    let user = UserInfo {
        name: "anna".to_owned(),
        ..UserInfo::default()
    };
    let request = Request {
        user: &user,
        operation,
        group: "",
        kind: "Pod",
        resource: "pods",
        subresource,
        namespace: "namespace",
        name: "",
        dry_run: false,
        remarks: &annotations,
        host: None,
        reinvocation: None,
    };
    let pod = Tree::from_json(&pod.to_string()).unwrap();
    assert!(plugin.handles(&request));
    let answer = block_on(plugin.validate(&request, Some(&pod), None));
    (
        answer.map_err(|error| error.to_string()),
        annotations.0.into_inner().into(),
    )
}

fn create(plugin: &ImagePolicyWebhook, pod: &Value) -> (Result<(), String>, Value) {
    ask(plugin, pod, (Operation::Create, ""))
}

fn containers(images: &Value) -> Value {
    let images = images.as_array().cloned().unwrap_or_default();
    images.into_iter().map(|image| json!({"image": image})).collect()
}

fn pod_of(image: &Value) -> Value {
    json!({"spec": {"containers": [{"image": image}]}})
}

#[test]
fn image_policy_decides_about_the_containers_that_are_written() {
    for row in rows("containers") {
        let plugin = plugin(&Arc::new(backend()), false);
        let pod = json!({"spec": {
            "containers": containers(&row["containers"]),
            "initContainers": containers(&row["init"]),
            "ephemeralContainers": containers(&row["ephemeral"]),
        }});
        let operation = match row["update"] == true {
            true => Operation::Update,
            false => Operation::Create,
        };
        let subresource = row["subresource"].as_str().unwrap_or_default();
        let (answer, _) = ask(&plugin, &pod, (operation, subresource));
        let refused = "image policy webhook backend denied one or more images: not allowed";
        let expected = match row["allowed"] == true {
            true => Ok(()),
            false => Err(refused.to_owned()),
        };
        assert_eq!(answer, expected, "{row}");
    }
}

#[test]
fn image_policy_without_an_answer_is_that_of_the_configuration() {
    for row in rows("default_allow") {
        let backend = Arc::new(backend());
        *backend.code.lock() = 500;
        let plugin = plugin(&backend, row["default"] == true);
        let (answer, annotations) = create(&plugin, &pod_of(&row["image"]));
        assert_eq!(answer.is_ok(), row["allowed"] == true, "{row}");
        let failed_open = annotations["imagepolicywebhook.image-policy.k8s.io/failed-open"] == "true";
        assert_eq!(failed_open, row["failed_open"] == true, "{row}");
    }
}

#[test]
fn image_policy_sends_annotations_of_image_policies_alone() {
    for row in rows("annotation_filtering") {
        let backend = Arc::new(Backend {
            allow: true,
            ..backend()
        });
        let mut pod = pod_of(&json!("test"));
        pod["metadata"] = json!({"annotations": row["annotations"]});
        assert_eq!(create(&plugin(&backend, true), &pod).0, Ok(()));
        let mut spec = json!({"containers": [{"image": "test"}], "namespace": "namespace"});
        if row["sent"].is_object() {
            spec["annotations"] = row["sent"].clone();
        }
        let expected = json!({
            "kind": "ImageReview", "apiVersion": "imagepolicy.k8s.io/v1alpha1",
            "metadata": {}, "spec": spec, "status": {"allowed": false},
        });
        assert_eq!(*backend.seen.lock(), [expected], "{row}");
    }
}

#[test]
fn image_policy_adds_returned_annotations_to_the_audit_event() {
    for row in rows("returned_annotations") {
        let backend = Arc::new(Backend {
            annotations: row["returned"].clone(),
            ..backend()
        });
        let plugin = plugin(&backend, true);
        // The second answer is remembered.
        for _ in 0..2 {
            let (answer, annotations) = create(&plugin, &pod_of(&row["image"]));
            assert_eq!(answer.is_err(), row["refused"] == true, "{row}");
            assert_eq!(annotations, row["added"], "{row}");
        }
        assert_eq!(backend.seen.lock().len(), 1);
    }
    let odd: Map<String, Value> = (0..1_000)
        .map(|number| (format!("key-{number:04}"), json!("x".repeat(10))))
        .chain([("a b".to_owned(), json!("no key"))])
        .collect();
    let backend = Arc::new(Backend {
        annotations: odd.into(),
        ..backend()
    });
    let (_, annotations) = create(&plugin(&backend, true), &pod_of(&json!("good")));
    assert_eq!(
        annotations.as_object().unwrap().len(),
        MAX_ANNOTATIONS - 1,
        "one has no key"
    );
}

#[test]
fn image_policy_reads_null_as_no_value() {
    let refused = Status::default();
    let allowed = Status {
        allowed: true,
        ..Status::default()
    };
    for (answer, expected) in [
        (json!({}), &refused),
        (json!({"status": null}), &refused),
        (json!({"status": {"allowed": null}}), &refused),
        (
            json!({"status": {"allowed": true, "reason": null, "auditAnnotations": null}}),
            &allowed,
        ),
    ] {
        assert_eq!(read(&answer).as_ref(), Ok(expected), "{answer}");
    }
    let annotated = json!({"status": {"allowed": true, "auditAnnotations": {"key": null}}});
    let annotations = read(&annotated).unwrap().audit_annotations;
    assert_eq!(annotations, BTreeMap::from([("key".to_owned(), String::new())]));
    assert!(read(&json!({"status": {"allowed": "yes"}})).is_err());
}

#[test]
fn image_policy_remembers_answers_and_no_failures() {
    let backend = Arc::new(Backend {
        allow: true,
        ..backend()
    });
    let plugin = plugin(&backend, false);
    for row in rows("cache") {
        *backend.code.lock() = row["code"].as_u64().unwrap();
        let (answer, _) = create(&plugin, &pod_of(&row["image"]));
        assert_eq!(answer.is_ok(), row["allowed"] == true, "{row}");
    }
    assert_eq!(backend.seen.lock().len(), 7, "two were remembered");
}

#[test]
fn image_policy_configuration_has_upstreams_bounds() {
    for row in rows("configuration") {
        let written = json!({"imagePolicy": {
            "kubeConfigFile": "/kubeconfig", "allowTTL": row["allowTTL"], "denyTTL": row["denyTTL"],
            "retryBackoff": row["retryBackoff"], "unknown": 1,
        }});
        match Configuration::parse(Some(&written)) {
            Ok(own) => {
                let found = [own.allow_ttl, own.deny_ttl, own.retry_backoff]
                    .map(|own| json!(u64::try_from(own.as_millis()).unwrap()));
                assert_eq!(json!(found), row["millis"], "{row}");
            }
            Err(why) => assert_eq!(json!(why), row["refused"], "{row}"),
        }
    }
    let refused = |written: Option<Value>| Configuration::parse(written.as_ref()).unwrap_err();
    assert_eq!(refused(None), "no config specified");
    assert_eq!(
        refused(Some(json!({"imagePolicy": {}}))),
        "no kubeConfigFile specified"
    );
    let text = refused(Some(json!({"imagePolicy": {"allowTTL": "5m"}})));
    assert!(text.contains("invalid type"), "{text}");
}
