use super::super::tests::{Objects, block_on};
use super::*;
use machinery_meta::UserInfo;
use serde_json::{Value, json};

/// One case: the object under a range of this item.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    resource: String,
    object: Value,
    limit: Value,
    allowed: bool,
}

struct Run {
    plugin: LimitRanger,
    user: UserInfo,
}

impl Run {
    fn with(ranges: &[Value]) -> Self {
        let mut objects = Objects::default();
        for (at, limits) in ranges.iter().enumerate() {
            let range = json!({"spec": {"limits": limits}}).to_string();
            objects = objects.with("limitranges", "test", &format!("abc-{at}"), &range);
        }
        let reader: Arc<dyn ObjectReader> = Arc::new(objects);
        Self {
            plugin: LimitRanger::new(&reader),
            user: UserInfo::named("jane", ["dev"]),
        }
    }

    fn request<'a>(&'a self, operation: Operation, resource: &'a str, subresource: &'a str) -> Request<'a> {
        Request {
            user: &self.user,
            operation,
            group: "",
            kind: if resource == "pods" {
                "Pod"
            } else {
                "PersistentVolumeClaim"
            },
            resource,
            subresource,
            namespace: "test",
            name: "",
            dry_run: false,
            remarks: &crate::Unheard,
            host: None,
            reinvocation: None,
        }
    }

    /// The object as it is admitted, or the words of the refusal.
    fn admit(&self, request: &Request<'_>, object: &Value) -> Result<Value, String> {
        assert!(self.plugin.handles(request));
        let mut tree = Tree::from_json(&object.to_string()).unwrap();
        block_on(self.plugin.mutate(request, &mut tree, None)).map_err(|error| error.to_string())?;
        block_on(self.plugin.validate(request, Some(&tree), None)).map_err(|error| error.to_string())?;
        Ok(serde_json::from_str(&tree.root().to_json()).unwrap())
    }
}

#[test]
fn limit_ranges_without_limits_bound_nothing() {
    let run = Run::with(&[Value::Null]);
    let claim = json!({"metadata": {"name": "a"}, "spec": {}});
    let request = run.request(Operation::Create, "persistentvolumeclaims", "");
    assert_eq!(run.admit(&request, &claim), Ok(claim));
}

/// `TestPodLimitFunc` and `TestPersistentVolumeClaimLimitFunc` of upstream's `limitranger/admission_test.go`.
#[test]
fn limit_ranges_bound_as_upstreams_table_says() {
    let cases: Vec<Case> = serde_json::from_str(include_str!("../../../testdata/limit_ranger.json")).unwrap();
    assert!(cases.len() == 90, "{}", cases.len());
    for case in cases {
        let run = Run::with(&[json!([case.limit])]);
        let request = run.request(Operation::Create, &case.resource, "");
        let answer = run.admit(&request, &case.object);
        let name = &case.object["metadata"]["name"];
        assert_eq!(
            answer.is_ok(),
            case.allowed,
            "{name} under {}: {answer:?}",
            case.limit
        );
    }
}

#[track_caller]
fn refused(limit: &Value, resources: &Value, expected: &str) {
    let run = Run::with(&[json!([limit])]);
    let pod = json!({"spec": {"containers": [{"name": "c", "resources": resources}]}});
    let request = run.request(Operation::Create, "pods", "");
    assert_eq!(run.admit(&request, &pod).unwrap_err(), expected);
}

#[test]
fn limit_ranges_refuse_in_upstreams_words() {
    let range = |side: &str, amount: &str| json!({"type": "Container", side: {"cpu": amount}});
    let own = |request: &str, limit: &str| json!({"requests": {"cpu": request}, "limits": {"cpu": limit}});
    let less = "minimum cpu usage per Container is 50m";
    refused(
        &range("min", "50m"),
        &json!({}),
        &format!("{less}.  No request is specified"),
    );
    refused(
        &range("min", "50m"),
        &own("40m", "1"),
        &format!("{less}, but request is 40m"),
    );
    refused(
        &range("min", "50m"),
        &own("60m", "40m"),
        &format!("{less}, but limit is 40m"),
    );
    let more = "maximum cpu usage per Container is 2";
    refused(
        &range("max", "2"),
        &json!({}),
        &format!("{more}.  No limit is specified"),
    );
    refused(
        &range("max", "2"),
        &own("1", "2500m"),
        &format!("{more}, but limit is 2500m"),
    );
    refused(
        &range("max", "2"),
        &own("3", "2"),
        &format!("{more}, but request is 3"),
    );
    let ratio = "cpu max limit to request ratio per Container is 1500m";
    let ranged = range("maxLimitRequestRatio", "1.5");
    refused(
        &ranged,
        &own("1", "2"),
        &format!("{ratio}, but provided ratio is 2.000000"),
    );
    refused(
        &ranged,
        &own("0", "2"),
        &format!("{ratio}, but no request is specified or request is 0"),
    );
    refused(
        &ranged,
        &own("1", "0"),
        &format!("{ratio}, but no limit is specified or limit is 0"),
    );
    let both = json!({"type": "Container", "min": {"cpu": "50m"}, "max": {"cpu": "2"}});
    let told = format!("[{less}.  No request is specified, {more}.  No limit is specified]");
    refused(&both, &json!({}), &told);
}

/// `TestMergePodResourceRequirements`.
#[test]
fn limit_ranges_complete_containers_and_say_so() {
    let item = json!({"type": "Container", "default": {"cpu": "75m", "memory": "10Mi"},
        "defaultRequest": {"cpu": "50m", "memory": "5Mi"}});
    let run = Run::with(&[json!([item])]);
    let request = run.request(Operation::Create, "pods", "");
    let annotation = |pod: &Value| pod["metadata"]["annotations"]["kubernetes.io/limit-ranger"].clone();
    let pod = json!({"spec": {"containers": [{"name": "foo-0"}]}});
    let admitted = run.admit(&request, &pod).unwrap();
    let whole =
        json!({"requests": {"cpu": "50m", "memory": "5Mi"}, "limits": {"cpu": "75m", "memory": "10Mi"}});
    assert_eq!(admitted["spec"]["containers"][0]["resources"], whole);
    assert_eq!(
        annotation(&admitted),
        "LimitRanger plugin set: cpu, memory request for container foo-0; cpu, memory limit for container foo-0"
    );
    let some = json!({"requests": {"memory": "512Mi"}});
    let pod = json!({"spec": {"containers": [{"name": "foo-0", "resources": some}],
        "initContainers": [{"name": "first", "resources": whole}, {"name": "second", "resources": some}]}});
    assert_eq!(
        annotation(&run.admit(&request, &pod).unwrap()),
        "LimitRanger plugin set: cpu request for container foo-0; cpu, memory limit for container foo-0; \
         cpu request for init container second; cpu, memory limit for init container second"
    );
    let pod = json!({"spec": {"containers": [{"name": "foo-0", "resources": whole}]}});
    assert_eq!(run.admit(&request, &pod).unwrap(), pod);
}

/// `TestLimitRangerIgnoresSubresource`, `TestLimitRangerAllowPodResize` and the pod on its way out of
/// `TestLimitRangerAdmitPod`.
#[test]
fn limit_ranges_look_at_new_and_resized_pods_alone() {
    let run = Run::with(&[json!([{"type": "Pod", "max": {"cpu": "200m"}, "min": {"cpu": "50m"}}])]);
    let pod = json!({"spec": {"containers": [{"name": "c"}]}});
    assert!(
        run.admit(&run.request(Operation::Create, "pods", ""), &pod)
            .is_err()
    );
    let resize = run.request(Operation::Update, "pods", "resize");
    assert!(run.admit(&resize, &pod).is_err());
    for (operation, subresource) in [(Operation::Update, ""), (Operation::Update, "status")] {
        assert!(!run.plugin.handles(&run.request(operation, "pods", subresource)));
    }
    let ending = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": pod["spec"]});
    let ending = Tree::from_json(&ending.to_string()).unwrap();
    block_on(run.plugin.validate(&resize, Some(&ending), Some(&ending))).unwrap();
}

#[test]
fn limit_ranges_compare_so_many_amounts_and_no_more() {
    let amounts: serde_json::Map<String, Value> = (0..1_500)
        .map(|at| (format!("example.com/r{at}"), json!("1")))
        .collect();
    let item = json!({"type": "Container", "min": amounts});
    let run = Run::with(&[json!([item])]);
    let containers: Vec<Value> = (0..1_000).map(|at| json!({"name": format!("c{at}")})).collect();
    let request = run.request(Operation::Create, "pods", "");
    let told = run
        .admit(&request, &json!({"spec": {"containers": containers}}))
        .unwrap_err();
    assert!(
        told.starts_with("more than 1048576 amounts"),
        "{}",
        &told[..200.min(told.len())]
    );
    let told = run
        .admit(&request, &json!({"spec": {"containers": containers[..2]}}))
        .unwrap_err();
    assert_eq!(told.matches("minimum ").count(), 100);
}
