mod off_by_default;

use super::*;
use crate::webhooks::tests::none;
use crate::{AdmissionChain, AdmissionError, Operation, Request, Step, counted_step, examining_step};
use machinery_meta::reader::{ReadFuture, ReadObject};
use machinery_meta::{Fields, GroupResource, ObjectHeader, ObjectKey, OwnerRef, Revision, Uid, UserInfo};
use machinery_schema::Tree;
use std::collections::BTreeMap;
use std::future::Future;

#[derive(Default)]
pub(super) struct Objects(BTreeMap<(String, ObjectKey), ReadObject>);

impl Objects {
    pub(super) fn with(mut self, resource: &str, namespace: &str, name: &str, json: &str) -> Self {
        let key = ObjectKey::new(namespace, name);
        let mut header = ObjectHeader {
            labels: labels_in(json),
            owners: owners_in(json),
            key: key.clone(),
            uid: Uid(text_in(json, "uid").unwrap_or_else(|| format!("uid-{name}"))),
            creation_timestamp: text_in(json, "creationTimestamp").map(Into::into),
            fields: fields_of_slice(json),
            ..ObjectHeader::default()
        };
        if json.contains("deletionTimestamp") {
            header.deletion_timestamp = Some("2026-01-01T00:00:00Z".into());
        }
        let object = ReadObject {
            header: Arc::new(header),
            revision: Revision(1),
            json: json.as_bytes().to_vec(),
        };
        self.0.insert((resource.to_owned(), key), object);
        self
    }
}

fn labels_in(json: &str) -> Vec<(Box<str>, Box<str>)> {
    let object: serde_json::Value = serde_json::from_str(json).unwrap_or_default();
    let labels = object["metadata"]["labels"]
        .as_object()
        .cloned()
        .unwrap_or_default();
    let label =
        |(key, value): (String, serde_json::Value)| (key.into(), value.as_str().unwrap_or_default().into());
    let mut labels: Vec<(Box<str>, Box<str>)> = labels.into_iter().map(label).collect();
    labels.sort();
    labels
}

/// Selectable fields of a ResourceSlice.
fn fields_of_slice(json: &str) -> Fields {
    let object: serde_json::Value = serde_json::from_str(json).unwrap_or_default();
    if object["kind"] != "ResourceSlice" {
        return Fields::default();
    }
    let text = |path: &str| {
        object
            .pointer(path)
            .and_then(|own| own.as_str())
            .unwrap_or_default()
            .to_owned()
    };
    Fields::from([
        ("spec.nodeName", text("/spec/nodeName")),
        ("spec.driver", text("/spec/driver")),
        ("spec.pool.name", text("/spec/pool/name")),
    ])
}

fn owners_in(json: &str) -> Vec<OwnerRef> {
    let object: serde_json::Value = serde_json::from_str(json).unwrap_or_default();
    let owners = object["metadata"]["ownerReferences"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let owner = |own: serde_json::Value| OwnerRef {
        uid: Uid(own["uid"].as_str().unwrap_or_default().to_owned()),
        controller: own["controller"] == true,
        ..OwnerRef::default()
    };
    owners.into_iter().map(owner).collect()
}

/// A text of an object's metadata.
fn text_in(json: &str, member: &str) -> Option<String> {
    let object: serde_json::Value = serde_json::from_str(json).ok()?;
    Some(object["metadata"][member].as_str()?.to_owned())
}

impl ObjectReader for Objects {
    fn get<'a>(
        &'a self,
        resource: &'a GroupResource,
        key: &'a ObjectKey,
    ) -> ReadFuture<'a, Option<ReadObject>> {
        let found = self.0.get(&(resource.resource.clone(), key.clone())).cloned();
        Box::pin(std::future::ready(Ok(found)))
    }

    fn list<'a>(&'a self, resource: &'a GroupResource, _: &'a str) -> ReadFuture<'a, Vec<ReadObject>> {
        let found = self
            .0
            .iter()
            .filter(|((own, _), _)| *own == resource.resource)
            .map(|(_, object)| object.clone());
        Box::pin(std::future::ready(Ok(found.collect())))
    }
}

pub(super) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::pin!(future).poll(&mut context) {
        std::task::Poll::Ready(value) => value,
        std::task::Poll::Pending => panic!("nothing here waits"),
    }
}

/// Nothing here has a quota.
struct NoUsage;

#[async_trait::async_trait]
impl resource_quota::UsageWriter for NoUsage {
    async fn write(
        &self,
        _: &str,
        _: &str,
        _: &str,
        _: &machinery_semantics::ResourceList,
    ) -> Result<(), resource_quota::UsageError> {
        unreachable!("there is no quota")
    }
}

/// The runtime is entered where a plugin is made alone.
fn quota(reader: &Arc<dyn ObjectReader>) -> ResourceQuota {
    let tokio = tokio::runtime::Runtime::new().unwrap();
    let _entered = tokio.enter();
    let runtime = machinery_runtime::Runtime::real();
    ResourceQuota::new(
        reader,
        Arc::new(NoUsage),
        resource_quota::Configuration::default(),
        &runtime,
    )
}

/// Nothing is enforced that a namespace does not request.
fn pod_security(reader: &Arc<dyn ObjectReader>) -> PodSecurity {
    let clock: pod_security::Clock = Arc::new(|| std::time::Duration::ZERO);
    let configuration = pod_security::Configuration::default();
    PodSecurity::new(reader, configuration, Arc::new(pod_security::Uncounted), clock)
}

struct NoRights;

#[async_trait::async_trait]
impl Permissions for NoRights {
    async fn has(
        &self,
        _: &UserInfo,
        _: crate::permissions::Right<'_>,
    ) -> Result<bool, crate::AdmissionError> {
        Ok(false)
    }
}

fn chain() -> AdmissionChain {
    let objects = Objects::default()
        .with("namespaces", "", "a", "{}")
        .with(
            "namespaces",
            "",
            "gone",
            r#"{"metadata":{"deletionTimestamp":"x"}}"#,
        )
        .with(
            "serviceaccounts",
            "a",
            "default",
            r#"{"imagePullSecrets":[{"name":"pull"}]}"#,
        )
        .with("nodes", "", "n1", "{}")
        .with("pods", "a", "other", r#"{"spec":{"nodeName":"n2"}}"#)
        .with(
            "priorityclasses",
            "",
            "high",
            r#"{"metadata":{"name":"high"},"value":7}"#,
        )
        .with(
            "runtimeclasses",
            "",
            "sandboxed",
            r#"{"overhead":{"podFixed":{"cpu":"1"}},"scheduling":{"nodeSelector":{"vm":"yes"},"tolerations":[{"key":"vm","operator":"Exists"}]}}"#,
        );
    let reader: Arc<dyn ObjectReader> = Arc::new(objects);
    let permissions: Arc<dyn Permissions> = Arc::new(NoRights);
    let all = all(&reader, &permissions, Arc::new(|| 0), parts(&reader, None));
    let on = all.into_iter();
    AdmissionChain::new(on.filter(|own| !OFF_BY_DEFAULT.contains(&own.name())).collect())
}

/// Parts of a server without configurations, in which a test makes namespaces.
pub(super) fn parts(reader: &Arc<dyn ObjectReader>, event_rate_limit: Option<EventRateLimit>) -> Parts {
    Parts {
        event_rate_limit,
        image_policy: None,
        pod_security: pod_security(reader),
        quota: quota(reader),
        node_selectors: PodNodeSelectorConfiguration::default(),
        tolerations: PodTolerationRestrictionConfiguration::default(),
        provisioner: Arc::new(off_by_default::Provisioned::default()),
        webhooks: none(reader),
        policies: crate::policies::tests::none(reader),
    }
}

struct Case {
    user: UserInfo,
    operation: Operation,
    resource: &'static str,
    namespace: &'static str,
    name: &'static str,
}

impl Case {
    fn request(&self) -> Request<'_> {
        Request {
            user: &self.user,
            operation: self.operation,
            group: "",
            kind: "",
            resource: self.resource,
            subresource: "",
            namespace: self.namespace,
            name: self.name,
            dry_run: false,
            remarks: &crate::Unheard,
            host: None,
            reinvocation: None,
        }
    }

    fn run(&self, object: &str) -> Result<Tree, AdmissionError> {
        let request = self.request();
        let mut tree = Tree::from_json(object).unwrap();
        let chain = chain();
        if self.operation == Operation::Delete {
            block_on(chain.validate(&request, None, Some(&tree)))?;
            return Ok(tree);
        }
        block_on(chain.mutate(&request, &mut tree, None))?;
        block_on(chain.validate(&request, Some(&tree), None))?;
        Ok(tree)
    }
}

fn create(resource: &'static str, namespace: &'static str) -> Case {
    Case {
        user: UserInfo::named("jane", ["dev"]),
        operation: Operation::Create,
        resource,
        namespace,
        name: "",
    }
}

#[test]
fn pod_defaults_match_upstream() {
    let pod = create("pods", "a")
        .run(r#"{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c"}],"priorityClassName":"high"}}"#);
    let pod = pod.unwrap();
    assert_eq!(pod.str_at(&["spec", "serviceAccountName"]), "default");
    assert_eq!(pod.at(&["spec", "priority"]).unwrap().as_i64(), Some(7));
    assert_eq!(
        pod.at(&["spec", "volumes"]).unwrap().item(0).unwrap().str("name"),
        "kube-api-access-bbbbb"
    );
    let mounts = pod
        .at(&["spec", "containers"])
        .unwrap()
        .item(0)
        .unwrap()
        .get("volumeMounts")
        .unwrap()
        .to_json();
    assert!(
        mounts.contains("/var/run/secrets/kubernetes.io/serviceaccount"),
        "{mounts}"
    );
    assert_eq!(
        pod.at(&["spec", "imagePullSecrets"]).unwrap().to_json(),
        r#"[{"name":"pull"}]"#
    );
    assert_eq!(pod.at(&["spec", "tolerations"]).unwrap().len(), 2);
}

#[test]
fn pod_automount_token_can_be_disabled() {
    let pod = create("pods", "a")
        .run(r#"{"spec":{"containers":[{"name":"c"}],"automountServiceAccountToken":false}}"#);
    assert!(pod.unwrap().at(&["spec", "volumes"]).is_none());
}

#[test]
fn namespace_life_cycle_is_enforced() {
    let object = r#"{"metadata":{"name":"x"}}"#;
    assert!(create("configmaps", "a").run(object).is_ok());
    assert!(matches!(
        create("configmaps", "b").run(object),
        Err(AdmissionError::NotFound { .. })
    ));
    assert!(matches!(
        create("configmaps", "gone").run(object),
        Err(AdmissionError::NamespaceTerminating(_))
    ));
    let delete = |name| Case {
        operation: Operation::Delete,
        name,
        ..create("namespaces", "")
    };
    assert!(matches!(
        delete("kube-system").run("{}"),
        Err(AdmissionError::Forbidden(_))
    ));
    assert!(delete("a").run("{}").is_ok());
}

#[test]
fn node_created_has_not_ready_taint() {
    let node = create("nodes", "").run(r#"{"metadata":{"name":"n1"}}"#).unwrap();
    assert_eq!(
        node.at(&["spec", "taints"]).unwrap().to_json(),
        r#"[{"effect":"NoSchedule","key":"node.kubernetes.io/not-ready"}]"#
    );
}

#[test]
fn pod_runtime_class_is_applied() {
    let run = |spec: &str| {
        let object = format!(r#"{{"spec":{{"containers":[{{"name":"c"}}],{spec}}}}}"#);
        create("pods", "a").run(&object)
    };
    let pod = run(
        r#""runtimeClassName":"sandboxed","overhead":{"cpu":"1000m"},"tolerations":[{"key":"vm","value":"x"}]"#,
    )
    .unwrap();
    assert_eq!(pod.at(&["spec", "overhead"]).unwrap().to_json(), r#"{"cpu":"1"}"#);
    assert_eq!(pod.str_at(&["spec", "nodeSelector", "vm"]), "yes");
    let tolerations = pod.at(&["spec", "tolerations"]).unwrap().to_json();
    assert!(
        tolerations.contains(r#"{"key":"vm","operator":"Exists"}"#)
            && !tolerations.contains(r#""value":"x""#),
        "{tolerations}"
    );
    let refused = |spec: &str| run(spec).err().map(|error| error.to_string()).unwrap_or_default();
    assert_eq!(
        refused(r#""runtimeClassName":"none""#),
        r#"pod rejected: RuntimeClass "none" not found"#
    );
    assert_eq!(
        refused(r#""overhead":{"cpu":"1"}"#),
        "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
    );
    assert_eq!(
        refused(r#""runtimeClassName":"sandboxed","nodeSelector":{"vm":"no"}"#),
        "conflict: runtimeClass.scheduling.nodeSelector[vm] = yes; pod.spec.nodeSelector[vm] = no"
    );
}

#[test]
fn external_addresses_are_refused_but_stay_where_they_are() {
    let service = |addresses: &str| format!(r#"{{"spec":{{"externalIPs":[{addresses}]}}}}"#);
    let case = create("services", "a");
    assert!(case.run("{}").is_ok());
    assert!(case.run(&service("")).is_ok());
    let refused = case.run(&service(r#""198.51.100.7""#)).unwrap_err();
    let AdmissionError::Forbidden(words) = refused else {
        panic!("{refused}");
    };
    assert_eq!(words, "Use of external IPs is denied by admission control");
    let change = |old: &str, new: &str| {
        let request = Request {
            operation: Operation::Update,
            ..case.request()
        };
        let tree = |addresses: &str| Tree::from_json(&service(addresses)).unwrap();
        block_on(chain().validate(&request, Some(&tree(new)), Some(&tree(old))))
    };
    let (one, both) = (r#""198.51.100.7""#, r#""198.51.100.7","198.51.100.8""#);
    assert!(change(both, one).is_ok());
    assert!(change(one, both).is_err());
}

fn rate_limit() -> EventRateLimit {
    let limits = serde_json::json!([{"type": "Server", "qps": 1, "burst": 1}]);
    let written = serde_json::json!({
        "apiVersion": "eventratelimit.admission.k8s.io/v1alpha1", "kind": "Configuration", "limits": limits,
    });
    let configuration = event_rate_limit::Configuration::parse(Some(&written)).unwrap();
    EventRateLimit::new(&configuration, Arc::new(|| std::time::Duration::ZERO))
}

#[test]
fn plugins_have_the_names_that_flags_take() {
    let reader: Arc<dyn ObjectReader> = Arc::new(Objects::default());
    let permissions: Arc<dyn Permissions> = Arc::new(NoRights);
    let parts = Parts {
        image_policy: Some(image_policy::tests::unasked()),
        ..parts(&reader, Some(rate_limit()))
    };
    let all = all(&reader, &permissions, Arc::new(|| 0), parts);
    let names: Vec<&str> = all.iter().map(|plugin| plugin.name()).collect();
    assert_eq!(names, super::NAMES);
}

/// Upstream's plugins by the interfaces that they implement.
#[test]
fn plugin_steps_are_upstreams() {
    let (admit, validate) = (&[Step::Admit][..], &[Step::Validate][..]);
    let both = &[Step::Admit, Step::Validate][..];
    let expected = [
        both, admit, admit, validate, validate, both, both, admit, admit, both, validate, validate, both,
        both, admit, both, validate, admit, admit, admit, validate, validate, both, validate, validate,
        validate, validate, admit, validate, admit, validate, validate, admit, admit, validate, validate,
        validate, both,
    ];
    let reader: Arc<dyn ObjectReader> = Arc::new(Objects::default());
    let permissions: Arc<dyn Permissions> = Arc::new(NoRights);
    let parts = Parts {
        image_policy: Some(image_policy::tests::unasked()),
        ..parts(&reader, Some(rate_limit()))
    };
    let plugins = all(&reader, &permissions, Arc::new(|| 0), parts);
    assert_eq!(plugins.len(), NAMES.len());
    for (plugin, expected) in plugins.iter().zip(expected) {
        let name = plugin.name();
        assert_eq!(plugin.steps(), expected, "{name}");
        for step in [Step::Admit, Step::Validate] {
            let own = expected.contains(&step).then_some(step);
            assert_eq!(counted_step(&**plugin, step), own, "{name}");
        }
        let validates = expected.contains(&Step::Validate);
        let of_delete = if validates { Step::Validate } else { Step::Admit };
        for (operation, step) in [
            (Operation::Create, Step::Validate),
            (Operation::Delete, of_delete),
        ] {
            assert_eq!(examining_step(&**plugin, operation), step, "{name}");
        }
    }
}
