//! Lists that are looked at together, as long as a body may be.

use crate::verbs::create_and_update;
use apiserver_registry::kinds;
use machinery_fuzz::growth;

/// An eighth of what a body may have: all of it takes many minutes.
const BODY_BYTES: usize = 384 << 10;

/// An item of a list, by its number.
type Item = fn(usize) -> String;

/// A kind, an object of it in which each `[@]` stands for a list, and how the items of these are made.
type Long = (&'static str, &'static str, &'static [Item]);

fn named(at: usize) -> String {
    format!(r#"{{"name":"n{at}"}}"#)
}

fn text(at: usize) -> String {
    format!(r#""n{at}""#)
}

fn address(at: usize) -> String {
    format!(r#""{}""#, dotted(at))
}

fn dotted(at: usize) -> String {
    format!("10.{}.{}.{}", at >> 16 & 255, at >> 8 & 255, at & 255)
}

fn ingress(at: usize) -> String {
    format!(r#"{{"ip":"{}"}}"#, dotted(at))
}

fn service_port(at: usize) -> String {
    format!(r#"{{"name":"n{at}","port":{at},"nodePort":{at}}}"#)
}

fn slice_port(at: usize) -> String {
    format!(r#"{{"name":"n{at}"}}"#)
}

fn container(at: usize) -> String {
    format!(r#"{{"name":"n{at}","image":"a"}}"#)
}

fn ephemeral(at: usize) -> String {
    format!(r#"{{"name":"e{at}","image":"a","targetContainerName":"x{at}"}}"#)
}

fn ended(at: usize) -> String {
    format!(r#"{{"name":"n{at}","state":{{"terminated":{{"exitCode":1}}}}}}"#)
}

fn toleration(at: usize) -> String {
    format!(r#"{{"key":"k{at}","operator":"Exists"}}"#)
}

fn volume(at: usize) -> String {
    format!(r#"{{"name":"n{at}","emptyDir":{{}}}}"#)
}

fn mount(at: usize) -> String {
    format!(r#"{{"name":"n{at}","mountPath":"/{at}"}}"#)
}

fn device(at: usize) -> String {
    format!(r#"{{"name":"d{at}","devicePath":"/d{at}"}}"#)
}

fn file_key(at: usize) -> String {
    format!(
        r#"{{"name":"v{at}","valueFrom":{{"fileKeyRef":{{"volumeName":"x{at}","path":"p","key":"k"}}}}}}"#
    )
}

fn with_claim(at: usize) -> String {
    format!(r#"{{"name":"n{at}","image":"a","resources":{{"claims":[{{"name":"n{at}"}}]}}}}"#)
}

fn same_port(_: usize) -> String {
    r#"{"containerPort":1}"#.to_owned()
}

fn host_port(at: usize) -> String {
    format!(r#"{{"containerPort":1,"hostPort":7,"hostIP":"{}"}}"#, dotted(at))
}

fn apparmor(at: usize) -> String {
    format!(r#""container.apparmor.security.beta.kubernetes.io/x{at}":"unconfined""#)
}

fn exit_codes(at: usize) -> String {
    format!(
        r#"{{"action":"FailJob","onExitCodes":{{"containerName":"x{at}","operator":"In","values":[1]}}}}"#
    )
}

fn condition(at: usize) -> String {
    format!(r#"{{"type":"T{at}","status":"True"}}"#)
}

fn version(at: usize) -> String {
    format!(r#"{{"name":"v{at}","served":true,"storage":true}}"#)
}

fn node_address(at: usize) -> String {
    format!(r#"{{"type":"InternalIP","address":"{}"}}"#, dotted(at))
}

fn template_claim(at: usize) -> String {
    format!(r#"{{"metadata":{{"name":"n{at}"}}}}"#)
}

fn held(at: usize) -> String {
    format!(r#"{{"request":"a","driver":"a.b","pool":"p","device":"d{at}"}}"#)
}

fn reported(at: usize) -> String {
    format!(r#"{{"driver":"a.b","pool":"p","device":"x{at}"}}"#)
}

const LONG: &[Long] = &[
    (
        "v1 Service",
        r#"{"spec":{"type":"NodePort","ports":[@]}}"#,
        &[service_port],
    ),
    (
        "v1 Service",
        r#"{"spec":{"type":"ClusterIP","ports":[@]}}"#,
        &[|_| r#"{"port":1}"#.to_owned()],
    ),
    (
        "v1 Service",
        r#"{"spec":{"externalIPs":[@],"clusterIPs":[@],"ipFamilies":[@]}}"#,
        &[address, address, text],
    ),
    (
        "v1 Service",
        r#"{"spec":{"type":"LoadBalancer","loadBalancerSourceRanges":[@]}}"#,
        &[text],
    ),
    (
        "v1 Service",
        r#"{"status":{"loadBalancer":{"ingress":[@]}}}"#,
        &[ingress],
    ),
    (
        "v1 Pod",
        r#"{"spec":{"containers":[{"name":"a","image":"a","volumeMounts":[@],"volumeDevices":[@]}],"volumes":[@]}}"#,
        &[mount, device, volume],
    ),
    (
        "v1 Pod",
        r#"{"spec":{"containers":[{"name":"a","image":"a","env":[@]}],"volumes":[@]}}"#,
        &[file_key, volume],
    ),
    (
        "v1 Pod",
        r#"{"spec":{"containers":[@],"ephemeralContainers":[@]}}"#,
        &[container, ephemeral],
    ),
    (
        "v1 Pod",
        r#"{"spec":{"containers":[@],"resourceClaims":[@]}}"#,
        &[with_claim, named],
    ),
    (
        "v1 Pod",
        r#"{"spec":{"containers":[{"name":"a","image":"a","ports":[@]}]}}"#,
        &[same_port],
    ),
    (
        "v1 Pod",
        r#"{"spec":{"containers":[{"name":"a","image":"a","ports":[@]}]}}"#,
        &[host_port],
    ),
    (
        "v1 Pod",
        r#"{"spec":{"containers":[@],"tolerations":[@],"schedulingGates":[@]}}"#,
        &[container, toleration, named],
    ),
    (
        "v1 Pod",
        r#"{"metadata":{"annotations":{@}},"spec":{"containers":[@]}}"#,
        &[apparmor, container],
    ),
    (
        "v1 Pod",
        r#"{"spec":{"containers":[@],"restartPolicy":"Never"},"status":{"containerStatuses":[@],"resourceClaimStatuses":[@],"podIPs":[@],"hostIPs":[@]}}"#,
        &[container, ended, named, ingress, ingress],
    ),
    (
        "v1 Pod",
        r#"{"spec":{"affinity":{"podAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"topologyKey":"a","labelSelector":{},"matchLabelKeys":[@],"mismatchLabelKeys":[@]}]}}}}"#,
        &[text, |at| format!(r#""x{at}""#)],
    ),
    (
        "v1 Pod",
        r#"{"spec":{"hostAliases":[@],"imagePullSecrets":[@],"readinessGates":[@]}}"#,
        &[ingress, named, |at| format!(r#"{{"conditionType":"n{at}"}}"#)],
    ),
    ("v1 Node", r#"{"status":{"addresses":[@]}}"#, &[node_address]),
    (
        "v1 Node",
        r#"{"spec":{"podCIDRs":[@],"taints":[@]}}"#,
        &[address, |at| format!(r#"{{"key":"k{at}","effect":"x"}}"#)],
    ),
    (
        "apps/v1 StatefulSet",
        r#"{"spec":{"volumeClaimTemplates":[@],"template":{"spec":{"volumes":[@]}}}}"#,
        &[template_claim, volume],
    ),
    (
        "batch/v1 Job",
        r#"{"spec":{"podFailurePolicy":{"rules":[@]},"template":{"spec":{"containers":[@]}}}}"#,
        &[exit_codes, container],
    ),
    (
        "discovery.k8s.io/v1 EndpointSlice",
        r#"{"addressType":"IPv4","ports":[@]}"#,
        &[slice_port],
    ),
    (
        "certificates.k8s.io/v1 CertificateSigningRequest",
        r#"{"spec":{"usages":[@]},"status":{"conditions":[@]}}"#,
        &[text, condition],
    ),
    (
        "resource.k8s.io/v1 ResourceClaim",
        r#"{"spec":{"devices":{"requests":[@]}},"status":{"allocation":{"devices":{"results":[@]}},"devices":[@]}}"#,
        &[named, held, reported],
    ),
    (
        "apiextensions.k8s.io/v1 CustomResourceDefinition",
        r#"{"spec":{"versions":[@]},"status":{"storedVersions":[@]}}"#,
        &[version, text],
    ),
    (
        "apiextensions.k8s.io/v1 CustomResourceDefinition",
        r#"{"spec":{"conversion":{"strategy":"Webhook","webhook":{"conversionReviewVersions":[@]}},"versions":[{"name":"v1","storage":true,"selectableFields":[@]}]}}"#,
        &[text, |at| format!(r#"{{"jsonPath":".n{at}"}}"#)],
    ),
    (
        "apiextensions.k8s.io/v1 CustomResourceDefinition",
        r#"{"spec":{"versions":[@,{"name":"z"}]}}"#,
        &[|at| format!(r#"{{"name":"v{at}","schema":{{"openAPIV3Schema":{{"type":"object"}}}}}}"#)],
    ),
    (
        "apiextensions.k8s.io/v1 CustomResourceDefinition",
        r#"{"spec":{"versions":[{"name":"v1","schema":{"openAPIV3Schema":{"type":"object","properties":{"a":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":[@],"items":{"type":"object","required":[@]}}}}}}]}}"#,
        &[text, text],
    ),
    (
        "v1 ConfigMap",
        r#"{"metadata":{"ownerReferences":[@]}}"#,
        &[|at| format!(r#"{{"apiVersion":"v1","kind":"A","name":"n","uid":"{at}","controller":true}}"#)],
    ),
    (
        "v1 ConfigMap",
        r#"{"metadata":{"managedFields":[{"manager":"@"}]}}"#,
        &[|_| r"\u007f".to_owned()],
    ),
    (
        "v1 Pod",
        r#"{"spec":{"containers":[{"name":"a","securityContext":{"allowPrivilegeEscalation":false,"capabilities":{"add":[@]}}}]}}"#,
        &[|_| r#""CAP_SYS_ADMIN""#.to_owned()],
    ),
    (
        "v1 Pod",
        r#"{"spec":{"readinessGates":[@],"initContainers":[@]},"status":{"conditions":[@],"initContainerStatuses":[@]}}"#,
        &[
            |at| format!(r#"{{"conditionType":"n{at}"}}"#),
            |at| format!(r#"{{"name":"n{at}","restartPolicy":"Always"}}"#),
            |at| format!(r#"{{"type":"x{at}","status":"True"}}"#),
            |at| format!(r#"{{"name":"x{at}","state":{{"terminated":{{"exitCode":0}}}}}}"#),
        ],
    ),
];

/// The object with all of its lists, which share so many bytes, and begin at this number.
fn body(object: &str, items: &[Item], bytes: usize, from: usize) -> String {
    let mut parts = object.split('@');
    let mut text = parts.next().unwrap().to_owned();
    for (item, after) in items.iter().zip(parts) {
        let end = text.len() + bytes / items.len();
        for number in from.. {
            text.push_str(&item(number));
            if text.len() >= end {
                break;
            }
            text.push(',');
        }
        text.push_str(after);
    }
    text
}

fn look_at((kind, object, items): &Long) -> Vec<String> {
    let (version, kind) = kind.split_once(' ').unwrap();
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let rows = kinds::built_in_rows();
    let row = rows
        .iter()
        .find(|row| (&*row.gvk.group, &*row.gvk.version, &*row.gvk.kind) == (group, version, kind))
        .expect("a built-in kind");
    let beyond = growth(BODY_BYTES, |stages, bytes| {
        let (old, new) = (body(object, items, bytes, 1), body(object, items, bytes, 2));
        assert!(
            create_and_update(stages, row, (&old, &new), false),
            "{kind} {object}"
        );
    });
    beyond
        .into_iter()
        .map(|beyond| format!("{kind} {object}: {beyond}"))
        .collect()
}

/// Every so many rows from one on, so that others are looked at beside them.
pub(crate) fn check(part: usize, of: usize) {
    let own = LONG.iter().skip(part).step_by(of);
    let problems: Vec<String> = own.flat_map(look_at).collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
