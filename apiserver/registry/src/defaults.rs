//! Defaults that upstream sets in code, beyond those its OpenAPI publishes (which the table has).
//!
//! A line `a.b[].c=value` sets `c` to a value in every struct the path leads to, unless it is set; [`Additions`] says how.
//! The lines of a kind are compiled once; what depends on other fields is in functions below. `machinery/api/facts/defaults.json` is what upstream's defaulters were seen to do; the diff tool compares.

use crate::kinds::core::pod::defaults as pod;
use machinery_schema::{Additions, Mut, Ref, Step, Tree, TypeId, Value};
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// Lines of a kind, by `group/plural`.
const LINES: &[(&str, &[&str])] = &[
    ("admissionregistration.k8s.io/mutatingadmissionpolicies", POLICY),
    ("admissionregistration.k8s.io/validatingadmissionpolicies", POLICY),
    (
        "admissionregistration.k8s.io/mutatingadmissionpolicybindings",
        BINDING,
    ),
    (
        "admissionregistration.k8s.io/validatingadmissionpolicybindings",
        BINDING,
    ),
    (
        "admissionregistration.k8s.io/mutatingwebhookconfigurations",
        WEBHOOKS,
    ),
    (
        "admissionregistration.k8s.io/mutatingwebhookconfigurations",
        &["webhooks[].reinvocationPolicy=\"Never\""],
    ),
    (
        "admissionregistration.k8s.io/validatingwebhookconfigurations",
        WEBHOOKS,
    ),
    (
        "apiextensions.k8s.io/customresourcedefinitions",
        &["spec.conversion.webhook.clientConfig.service.port=443"],
    ),
    ("apiregistration.k8s.io/apiservices", &["spec.service.port=443"]),
    ("apps/daemonsets", &["spec.revisionHistoryLimit=10"]),
    (
        "apps/deployments",
        &[
            "spec.progressDeadlineSeconds=600",
            "spec.replicas=1",
            "spec.revisionHistoryLimit=10",
        ],
    ),
    ("apps/replicasets", &["spec.replicas=1"]),
    (
        "apps/statefulsets",
        &[
            "spec.persistentVolumeClaimRetentionPolicy={}",
            "spec.persistentVolumeClaimRetentionPolicy.whenDeleted=\"Retain\"",
            "spec.persistentVolumeClaimRetentionPolicy.whenScaled=\"Retain\"",
            "spec.podManagementPolicy=\"OrderedReady\"",
            "spec.replicas=1",
            "spec.revisionHistoryLimit=10",
            "spec.volumeClaimTemplates[].apiVersion=\"v1\"",
            "spec.volumeClaimTemplates[].kind=\"PersistentVolumeClaim\"",
            "spec.volumeClaimTemplates[].spec.volumeMode=\"Filesystem\"",
            "spec.volumeClaimTemplates[].status.phase=\"Pending\"",
        ],
    ),
    ("autoscaling/horizontalpodautoscalers", &["spec.minReplicas=1"]),
    (
        "batch/cronjobs",
        &[
            "spec.concurrencyPolicy=\"Allow\"",
            "spec.failedJobsHistoryLimit=1",
            "spec.successfulJobsHistoryLimit=3",
            "spec.suspend=false",
            "spec.jobTemplate.spec.podFailurePolicy.rules[].onPodConditions[].status=\"True\"",
        ],
    ),
    (
        "batch/jobs",
        &[
            "spec.completionMode=\"NonIndexed\"",
            "spec.manualSelector=false",
            "spec.suspend=false",
            "spec.podFailurePolicy.rules[].onPodConditions[].status=\"True\"",
        ],
    ),
    (
        "certificates.k8s.io/podcertificaterequests",
        &["spec.maxExpirationSeconds=86400"],
    ),
    (
        "discovery.k8s.io/endpointslices",
        &["ports[].name=\"\"", "ports[].protocol=\"TCP\""],
    ),
    (
        "flowcontrol.apiserver.k8s.io/prioritylevelconfigurations",
        &[
            "spec.exempt.lendablePercent=0",
            "spec.exempt.nominalConcurrencyShares=0",
            "spec.limited.lendablePercent=0",
            "spec.limited.limitResponse.queuing.handSize=8",
            "spec.limited.limitResponse.queuing.queueLengthLimit=50",
            "spec.limited.limitResponse.queuing.queues=64",
            "spec.limited.nominalConcurrencyShares=30",
        ],
    ),
    (
        "networking.k8s.io/ingressclasses",
        &["spec.parameters.scope=\"Cluster\""],
    ),
    (
        "networking.k8s.io/networkpolicies",
        &[
            "spec.egress[].ports[].protocol=\"TCP\"",
            "spec.ingress[].ports[].protocol=\"TCP\"",
        ],
    ),
    (
        "rbac.authorization.k8s.io/clusterrolebindings",
        &["roleRef.apiGroup=\"rbac.authorization.k8s.io\""],
    ),
    (
        "rbac.authorization.k8s.io/rolebindings",
        &["roleRef.apiGroup=\"rbac.authorization.k8s.io\""],
    ),
    (
        "resource.k8s.io/resourceclaims",
        &[
            "spec.devices.requests[].exactly.allocationMode=\"ExactCount\"",
            "spec.devices.requests[].exactly.tolerations[].operator=\"Equal\"",
            "spec.devices.requests[].firstAvailable[].allocationMode=\"ExactCount\"",
            "spec.devices.requests[].firstAvailable[].tolerations[].operator=\"Equal\"",
            "status.allocation.devices.results[].tolerations[].operator=\"Equal\"",
        ],
    ),
    (
        "resource.k8s.io/resourceclaimtemplates",
        &[
            "spec.spec.devices.requests[].exactly.allocationMode=\"ExactCount\"",
            "spec.spec.devices.requests[].exactly.tolerations[].operator=\"Equal\"",
            "spec.spec.devices.requests[].firstAvailable[].allocationMode=\"ExactCount\"",
            "spec.spec.devices.requests[].firstAvailable[].tolerations[].operator=\"Equal\"",
        ],
    ),
    (
        "scheduling.k8s.io/priorityclasses",
        &["preemptionPolicy=\"PreemptLowerPriority\""],
    ),
    (
        "storage.k8s.io/csidrivers",
        &[
            "spec.attachRequired=true",
            "spec.fsGroupPolicy=\"ReadWriteOnceWithFSType\"",
            "spec.podInfoOnMount=false",
            "spec.preventPodSchedulingIfMissing=false",
            "spec.requiresRepublish=false",
            "spec.seLinuxMount=false",
            "spec.storageCapacity=false",
            "spec.volumeLifecycleModes=[\"Persistent\"]",
        ],
    ),
    (
        "storage.k8s.io/storageclasses",
        &["reclaimPolicy=\"Delete\"", "volumeBindingMode=\"Immediate\""],
    ),
    ("/endpoints", &["subsets[].ports[].protocol=\"TCP\""]),
    (
        "/persistentvolumes",
        &[
            "spec.persistentVolumeReclaimPolicy=\"Retain\"",
            "spec.volumeMode=\"Filesystem\"",
            "status.phase=\"Pending\"",
            "spec.hostPath.type=\"\"",
            "spec.iscsi.iscsiInterface=\"default\"",
            "spec.rbd.keyring=\"/etc/ceph/keyring\"",
            "spec.rbd.pool=\"rbd\"",
            "spec.rbd.user=\"admin\"",
            "spec.scaleIO.fsType=\"xfs\"",
            "spec.scaleIO.storageMode=\"ThinProvisioned\"",
            "spec.azureDisk.cachingMode=\"ReadWrite\"",
            "spec.azureDisk.fsType=\"ext4\"",
            "spec.azureDisk.kind=\"Shared\"",
            "spec.azureDisk.readOnly=false",
        ],
    ),
    (
        "/persistentvolumeclaims",
        &["spec.volumeMode=\"Filesystem\"", "status.phase=\"Pending\""],
    ),
    ("/replicationcontrollers", &["spec.replicas=1"]),
    ("/pods", &["spec.enableServiceLinks=true"]),
    ("/secrets", &["type=\"Opaque\""]),
    (
        "/services",
        &[
            "spec.sessionAffinity=\"None\"",
            "spec.type=\"ClusterIP\"",
            "spec.ports[].protocol=\"TCP\"",
        ],
    ),
];

const POLICY: &[&str] = &[
    "spec.failurePolicy=\"Fail\"",
    "spec.matchConstraints.matchPolicy=\"Equivalent\"",
    "spec.matchConstraints.namespaceSelector={}",
    "spec.matchConstraints.objectSelector={}",
    "spec.matchConstraints.resourceRules[].scope=\"*\"",
    "spec.matchConstraints.excludeResourceRules[].scope=\"*\"",
];
const BINDING: &[&str] = &[
    "spec.matchResources.matchPolicy=\"Equivalent\"",
    "spec.matchResources.namespaceSelector={}",
    "spec.matchResources.objectSelector={}",
    "spec.matchResources.resourceRules[].scope=\"*\"",
    "spec.matchResources.excludeResourceRules[].scope=\"*\"",
];
const WEBHOOKS: &[&str] = &[
    "webhooks[].clientConfig.service.port=443",
    "webhooks[].failurePolicy=\"Fail\"",
    "webhooks[].matchPolicy=\"Equivalent\"",
    "webhooks[].namespaceSelector={}",
    "webhooks[].objectSelector={}",
    "webhooks[].rules[].scope=\"*\"",
    "webhooks[].timeoutSeconds=10",
];

/// Of a pod's spec, wherever one stands.
const POD_SPEC: &[&str] = &[
    "dnsPolicy=\"ClusterFirst\"",
    "restartPolicy=\"Always\"",
    "schedulerName=\"default-scheduler\"",
    "securityContext={}",
    "terminationGracePeriodSeconds=30",
    "volumes[].azureDisk.cachingMode=\"ReadWrite\"",
    "volumes[].azureDisk.fsType=\"ext4\"",
    "volumes[].azureDisk.kind=\"Shared\"",
    "volumes[].azureDisk.readOnly=false",
    "volumes[].configMap.defaultMode=420",
    "volumes[].downwardAPI.defaultMode=420",
    "volumes[].downwardAPI.items[].fieldRef.apiVersion=\"v1\"",
    "volumes[].ephemeral.volumeClaimTemplate.spec.volumeMode=\"Filesystem\"",
    "volumes[].hostPath.type=\"\"",
    "volumes[].iscsi.iscsiInterface=\"default\"",
    "volumes[].projected.defaultMode=420",
    "volumes[].projected.sources[].downwardAPI.items[].fieldRef.apiVersion=\"v1\"",
    "volumes[].projected.sources[].serviceAccountToken.expirationSeconds=3600",
    "volumes[].rbd.keyring=\"/etc/ceph/keyring\"",
    "volumes[].rbd.pool=\"rbd\"",
    "volumes[].rbd.user=\"admin\"",
    "volumes[].scaleIO.fsType=\"xfs\"",
    "volumes[].scaleIO.storageMode=\"ThinProvisioned\"",
    "volumes[].secret.defaultMode=420",
];

const CONTAINER_LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];
const PROBES: [&str; 3] = ["livenessProbe", "readinessProbe", "startupProbe"];

/// Of a container.
const CONTAINER: &[&str] = &[
    "env[].valueFrom.fieldRef.apiVersion=\"v1\"",
    "env[].valueFrom.fileKeyRef.optional=false",
    "ports[].protocol=\"TCP\"",
    "terminationMessagePath=\"/dev/termination-log\"",
    "terminationMessagePolicy=\"File\"",
];

/// Of a probe.
const PROBE: &[&str] = &[
    "failureThreshold=3",
    "grpc.service=\"\"",
    "periodSeconds=10",
    "successThreshold=1",
    "timeoutSeconds=1",
];

/// Sets what upstream's code sets for a kind; strategies with defaults of their own call it first.
pub fn apply(group: &str, plural: &str, object: &mut Tree) {
    if let Some(additions) = compiled().get(&object.ty()) {
        additions.apply(object);
    }
    match (group, plural) {
        ("apps", "deployments") => rolling(
            object,
            "strategy",
            &[
                ("maxUnavailable", Value::Str("25%")),
                ("maxSurge", Value::Str("25%")),
            ],
        ),
        ("apps", "daemonsets") => rolling(
            object,
            "updateStrategy",
            &[("maxUnavailable", Value::Int(1)), ("maxSurge", Value::Int(0))],
        ),
        ("apps", "statefulsets") => rolling(
            object,
            "updateStrategy",
            &[("partition", Value::Int(0)), ("maxUnavailable", Value::Int(1))],
        ),
        ("batch", "jobs") => job(object),
        ("networking.k8s.io", "networkpolicies") => policy_types(object),
        ("rbac.authorization.k8s.io", "rolebindings" | "clusterrolebindings") => subjects(object),
        ("", "replicationcontrollers") => controller_labels(object),
        ("", "nodes") => allocatable(object),
        ("autoscaling", "horizontalpodautoscalers") => {
            metrics(object);
            behavior(object);
        }
        ("flowcontrol.apiserver.k8s.io", "flowschemas") => precedence(object),
        ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations") => queues(object),
        ("", "limitranges") => limits(object),
        ("resource.k8s.io", "resourceclaims") => device_counts(object, &["spec", "devices"]),
        ("resource.k8s.io", "resourceclaimtemplates") => device_counts(object, &["spec", "spec", "devices"]),
        _ => {}
    }
    if let Some(path) = pod_spec_of(group, plural) {
        object.with(path, |mut spec| {
            image_volumes(&mut spec);
            pod::spec(&mut spec);
        });
        let above = path.split_last().map_or(&[][..], |(_, above)| above);
        object.with(&[above, &["metadata"]].concat(), |mut own| {
            pod::metadata(&mut own)
        });
    }
}

/// Path of the pod spec in a kind; none for most.
fn pod_spec_of(group: &str, plural: &str) -> Option<&'static [&'static str]> {
    Some(match (group, plural) {
        ("", "pods") => &["spec"],
        ("", "podtemplates") => &["template", "spec"],
        ("apps", "deployments" | "replicasets" | "statefulsets" | "daemonsets")
        | ("batch", "jobs")
        | ("", "replicationcontrollers") => &["spec", "template", "spec"],
        ("batch", "cronjobs") => &["spec", "jobTemplate", "spec", "template", "spec"],
        _ => return None,
    })
}

/// The lines of every kind, by the type of its objects.
fn compiled() -> &'static BTreeMap<TypeId, Additions> {
    static COMPILED: OnceLock<BTreeMap<TypeId, Additions>> = OnceLock::new();
    COMPILED.get_or_init(|| {
        let table = machinery_api::table();
        let kinds = table.kinds().iter().map(|kind| {
            let lines = lines_of(&kind.gvk.group, &kind.plural);
            let lines = lines.iter().map(String::as_str);
            // Another version may lack a field: a line that leads nowhere there says nothing there.
            let known = lines.filter(|line| Additions::compile(table.schema(), kind.ty, [*line]).is_ok());
            let additions = Additions::compile(table.schema(), kind.ty, known);
            (kind.ty, additions.expect("no line is there twice"))
        });
        kinds.filter(|(_, additions)| !additions.is_empty()).collect()
    })
}

/// All lines of a kind, those of its pods among them.
fn lines_of(group: &str, plural: &str) -> Vec<String> {
    let own = LINES.iter().filter(|(kind, _)| {
        kind.split_once('/')
            .is_some_and(|(g, p)| g == group && p == plural)
    });
    let mut lines: Vec<String> = own
        .flat_map(|(_, lines)| *lines)
        .map(|line| (*line).to_owned())
        .collect();
    if let Some(path) = pod_spec_of(group, plural) {
        let spec = path.join(".");
        lines.extend(pod_lines().map(|line| format!("{spec}.{line}")));
    }
    lines
}

/// Of a pod's spec with its containers and their probes.
fn pod_lines() -> impl Iterator<Item = String> {
    let containers = CONTAINER_LISTS.iter().flat_map(|list| {
        let probes = PROBES
            .iter()
            .flat_map(|probe| PROBE.iter().map(move |line| format!("{probe}.{line}")));
        let own = CONTAINER.iter().map(|line| (*line).to_owned());
        own.chain(probes).map(move |line| format!("{list}[].{line}"))
    });
    POD_SPEC.iter().map(|line| (*line).to_owned()).chain(containers)
}

/// An image volume pulls like a container.
fn image_volumes(spec: &mut Mut<'_>) {
    spec.each("volumes", |mut volume| {
        if let Some(mut image) = volume.field("image") {
            let policy = pod::pull_policy(image.as_ref().str("reference"));
            image.default("pullPolicy", policy);
        }
    });
}

/// The strategy is a rolling update, with its numbers.
fn rolling(object: &mut Tree, member: &str, numbers: &[(&str, Value<'_>)]) {
    object.with(&["spec"], |mut spec| {
        let mut strategy = spec.entry(member);
        if strategy.is_null() {
            strategy.set_value(Value::EmptyMap);
        }
        strategy.default("type", "RollingUpdate");
        if strategy.as_ref().str("type") == "RollingUpdate" {
            let mut rolling = strategy.entry("rollingUpdate");
            if rolling.is_null() {
                rolling.set_value(Value::EmptyMap);
            }
            for (name, value) in numbers {
                rolling.default(name, *value);
            }
        }
    });
}

fn job(object: &mut Tree) {
    let has = |object: &Tree, name: &str| object.at(&["spec", name]).is_some_and(|value| !value.is_null());
    let (completions, parallelism) = (has(object, "completions"), has(object, "parallelism"));
    let per_index = has(object, "backoffLimitPerIndex");
    let policy = has(object, "podFailurePolicy");
    let labelled = object
        .at(&["metadata", "labels"])
        .is_some_and(|labels| !labels.is_empty());
    let template = object
        .at(&["spec", "template", "metadata", "labels"])
        .filter(|l| !l.is_empty())
        .map(Ref::to_tree);
    object.with(&["spec"], |mut spec| {
        if !completions && !parallelism {
            spec.default("completions", 1);
        }
        spec.default("parallelism", 1);
        spec.default("backoffLimit", if per_index { i64::from(i32::MAX) } else { 6 });
        spec.default(
            "podReplacementPolicy",
            if policy { "Failed" } else { "TerminatingOrFailed" },
        );
    });
    if let Some(labels) = template.filter(|_| !labelled) {
        object.set(&[Step::Name("metadata"), Step::Name("labels")], labels.root());
    }
}

/// Ingress always; egress where there are egress rules.
fn policy_types(object: &mut Tree) {
    let said = object
        .at(&["spec", "policyTypes"])
        .is_some_and(|types| !types.is_empty());
    let egress = object
        .at(&["spec", "egress"])
        .is_some_and(|rules| !rules.is_empty());
    if !said && object.get("spec").is_some() {
        object.push(&["spec", "policyTypes"], "Ingress");
        if egress {
            object.push(&["spec", "policyTypes"], "Egress");
        }
    }
}

fn subjects(object: &mut Tree) {
    object.root_mut().each("subjects", |mut subject| {
        if matches!(subject.as_ref().str("kind"), "User" | "Group") {
            subject.default("apiGroup", "rbac.authorization.k8s.io");
        }
    });
}

/// The oldest controller takes labels and selector from its template.
fn controller_labels(object: &mut Tree) {
    let Some(labels) = object
        .at(&["spec", "template", "metadata", "labels"])
        .map(Ref::to_tree)
    else {
        return;
    };
    if labels.root().is_empty() {
        return;
    }
    for path in [["spec", "selector"], ["metadata", "labels"]] {
        if object.at(&path).is_none_or(Ref::is_empty) {
            object.set(&path.map(Step::Name), labels.root());
        }
    }
}

/// Without metrics the CPU is to be used to four fifths (`autoscaling/v2`; `v1` shows it as a number of its own).
fn metrics(object: &mut Tree) {
    let second = object.str_at(&["apiVersion"]) == "autoscaling/v2";
    let said = object
        .at(&["spec", "metrics"])
        .is_some_and(|metrics| !metrics.is_empty());
    if !second || said {
        return;
    }
    object.with(&["spec"], |mut spec| {
        let mut metrics = spec.entry("metrics");
        let mut metric = metrics.push(Value::EmptyMap);
        metric.set("type", "Resource");
        let mut resource = metric.entry("resource");
        resource.set("name", "cpu");
        let mut target = resource.entry("target");
        target.set("type", "Utilization");
        target.set("averageUtilization", 80);
    });
}

/// Fills all rules of both directions, if a behavior is given.
pub(crate) fn behavior(object: &mut Tree) {
    object.with(&["spec", "behavior"], |mut behavior| {
        if behavior.is_null() {
            return;
        }
        scaling_rules(
            &mut behavior.entry("scaleUp"),
            &[("Pods", 4), ("Percent", 100)],
            Some(0),
        );
        scaling_rules(&mut behavior.entry("scaleDown"), &[("Percent", 100)], None);
    });
}

/// Every policy is for fifteen seconds.
fn scaling_rules(rules: &mut Mut<'_>, policies: &[(&str, i64)], window: Option<i64>) {
    if rules.is_null() {
        rules.set_value(Value::EmptyMap);
    }
    rules.default("selectPolicy", "Max");
    if let Some(seconds) = window {
        rules.default("stabilizationWindowSeconds", seconds);
    }
    if rules.as_ref().list("policies").len() > 0 {
        return;
    }
    for (kind, value) in policies {
        let mut list = rules.entry("policies");
        let mut policy = list.push(Value::EmptyMap);
        policy.set("type", *kind);
        policy.set("value", *value);
        policy.set("periodSeconds", 15);
    }
}

/// Zero is no precedence, and stands for the usual one.
fn precedence(object: &mut Tree) {
    let given = object
        .at(&["spec", "matchingPrecedence"])
        .and_then(Ref::as_i64)
        .unwrap_or(0);
    if given == 0 && object.get("spec").is_some() {
        object.with(&["spec"], |mut spec| spec.set("matchingPrecedence", 1000));
    }
}

/// Zero is no number of queues, and stands for the usual one.
fn queues(object: &mut Tree) {
    object.with(&["spec", "limited", "limitResponse", "queuing"], |mut queuing| {
        for (name, usual) in [("handSize", 8), ("queueLengthLimit", 50), ("queues", 64)] {
            if queuing.as_ref().get(name).and_then(Ref::as_i64) == Some(0) {
                queuing.set(name, usual);
            }
        }
    });
}

/// For containers: the limit is the maximum, the request the limit or the minimum, unless said otherwise.
fn limits(object: &mut Tree) {
    object.with(&["spec"], |mut spec| {
        spec.each("limits", |mut limit| {
            if limit.as_ref().str("type") != "Container" {
                return;
            }
            for (from, to) in [
                ("max", "default"),
                ("default", "defaultRequest"),
                ("min", "defaultRequest"),
            ] {
                let amounts = limit.as_ref().get(from).map(Ref::to_tree);
                for (resource, amount) in amounts.iter().flat_map(|tree| tree.root().entries()) {
                    limit.entry(to).default(resource, amount);
                }
            }
        });
    });
}

fn allocatable(object: &mut Tree) {
    let unset = object.at(&["status", "allocatable"]).is_none_or(Ref::is_empty);
    let capacity = object
        .at(&["status", "capacity"])
        .filter(|c| !c.is_empty())
        .map(Ref::to_tree);
    if let Some(capacity) = capacity.filter(|_| unset) {
        object.set(
            &[Step::Name("status"), Step::Name("allocatable")],
            capacity.root(),
        );
    }
}

/// Requests for an exact number ask for one.
fn device_counts(object: &mut Tree, path: &[&str]) {
    let count = |request: &mut Mut<'_>| {
        let exact = request.as_ref().str("allocationMode") == "ExactCount";
        let unset = request.as_ref().get("count").and_then(Ref::as_i64).unwrap_or(0) == 0;
        if exact && unset {
            request.set("count", 1);
        }
    };
    object.with(path, |mut devices| {
        devices.each("requests", |mut request| {
            if let Some(mut exactly) = request.field("exactly") {
                count(&mut exactly);
            }
            request.each("firstAvailable", |mut one| count(&mut one));
        });
    });
}

#[cfg(test)]
mod tests {
    use super::{LINES, apply, lines_of};
    use machinery_schema::{Additions, Strictness, decode_json};

    #[track_caller]
    fn check(group: &str, kind: &str, plural: &str, input: &str, path: &[&str], expected: &str) {
        let (schema, ty) = machinery_api::schema_for(group, "v1", kind).unwrap();
        let mut tree = decode_json(schema, ty, input.as_bytes(), Strictness::Ignore)
            .unwrap()
            .tree;
        apply(group, plural, &mut tree);
        assert_eq!(
            tree.at(path).map(|found| found.to_json()).as_deref(),
            Some(expected),
            "{}",
            tree.root().to_json()
        );
    }

    #[test]
    fn defaults_drop_annotations_of_init_containers() {
        let metadata = r#"{"annotations":{"a":"b","pod.beta.kubernetes.io/init-containers":"[]",
            "pod.alpha.kubernetes.io/init-container-statuses":"[]"}}"#;
        let pod = format!(r#"{{"metadata":{metadata},"spec":{{"containers":[]}}}}"#);
        let kept = r#"{"a":"b"}"#;
        check("", "Pod", "pods", &pod, &["metadata", "annotations"], kept);
        let set = format!(r#"{{"metadata":{metadata},"spec":{{"template":{pod}}}}}"#);
        let own = &["spec", "template", "metadata", "annotations"];
        check("apps", "ReplicaSet", "replicasets", &set, own, kept);
        let name = "pod.beta.kubernetes.io/init-containers";
        let own = &["metadata", "annotations", name];
        check("apps", "ReplicaSet", "replicasets", &set, own, r#""[]""#);
    }

    #[test]
    fn defaults_depend_on_other_fields() {
        let deployment = r#"{"spec":{"template":{"spec":{"containers":[{"name":"a","image":"b"}]}}}}"#;
        let path = &["spec", "strategy"];
        check(
            "apps",
            "Deployment",
            "deployments",
            deployment,
            path,
            r#"{"type":"RollingUpdate","rollingUpdate":{"maxUnavailable":"25%","maxSurge":"25%"}}"#,
        );
        check(
            "apps",
            "Deployment",
            "deployments",
            deployment,
            &["spec", "template", "spec", "restartPolicy"],
            "\"Always\"",
        );
        check("batch", "Job", "jobs", deployment, &["spec", "completions"], "1");
        check(
            "",
            "Pod",
            "pods",
            r#"{"spec":{"containers":[{"name":"a","image":"b:1","livenessProbe":{"httpGet":{"port":1}}}]}}"#,
            &["spec", "containers"],
            r#"[{"name":"a","image":"b:1","resources":{},"livenessProbe":{"httpGet":{"path":"/","port":1,"scheme":"HTTP"},"timeoutSeconds":1,"periodSeconds":10,"successThreshold":1,"failureThreshold":3},"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","imagePullPolicy":"IfNotPresent"}]"#,
        );
    }

    #[test]
    fn defaults_every_line_resolves_in_some_version() {
        let table = machinery_api::table();
        for (name, _) in LINES {
            let (group, plural) = name.split_once('/').unwrap();
            let kinds = table.kinds().iter();
            let versions: Vec<_> = kinds
                .filter(|kind| kind.gvk.group == group && kind.plural == plural)
                .collect();
            for line in lines_of(group, plural) {
                let known = |ty| Additions::compile(table.schema(), ty, [line.as_str()]).is_ok();
                assert!(versions.iter().any(|kind| known(kind.ty)), "{name}: {line}");
            }
        }
    }
}
