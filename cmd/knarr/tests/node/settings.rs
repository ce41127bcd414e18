//! Settings of a pod for its containers' surroundings, one pod a row, and what its process then sees.

use crate::support::cluster::Cluster;
use crate::support::image::TOOLS;
use crate::support::kubectl::Kubectl;
use crate::support::network::ask;
use std::net::SocketAddr;

/// Parts of a row's pod: members of the pod, members of its container, its script.
type Row = (
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    &'static str,
);

/// Name, pod, container, script, and what the script prints.
const SEEN: &[Row] = &[
    (
        "env-from",
        "",
        "envFrom: [{configMapRef: {name: settings}}, {prefix: S_, secretRef: {name: password}}, {configMapRef: {name: missing, optional: true}}]",
        "echo $color $size $S_word",
        "blue 9 open sesame\n",
    ),
    (
        "user",
        "securityContext: {runAsUser: 1000, supplementalGroups: [3000]}",
        "securityContext: {runAsGroup: 2000}",
        "id -u; id -g; id -G",
        "1000\n2000\n2000 3000\n",
    ),
    (
        "capabilities",
        "",
        "securityContext: {capabilities: {drop: [ALL], add: [NET_BIND_SERVICE]}}",
        "grep CapEff /proc/1/status",
        "CapEff:\t0000000000000400\n",
    ),
    (
        "read-only",
        "",
        "securityContext: {readOnlyRootFilesystem: true}",
        "touch /x 2>/dev/null || echo refused",
        "refused\n",
    ),
    (
        "unprivileged",
        "",
        "",
        "mount -t tmpfs none /tmp 2>/dev/null || echo refused",
        "refused\n",
    ),
    (
        "privileged",
        "",
        "securityContext: {privileged: true}",
        "mount -t tmpfs none /tmp && echo mounted",
        "mounted\n",
    ),
    (
        "no-new-privileges",
        "",
        "securityContext: {allowPrivilegeEscalation: false}",
        "grep NoNewPrivs /proc/1/status",
        "NoNewPrivs:\t1\n",
    ),
    (
        "seccomp",
        "securityContext: {seccompProfile: {type: RuntimeDefault}}",
        "",
        "grep Seccomp: /proc/1/status",
        "Seccomp:\t2\n",
    ),
    (
        "no-seccomp",
        "securityContext: {seccompProfile: {type: RuntimeDefault}}",
        "securityContext: {seccompProfile: {type: Unconfined}}",
        "grep Seccomp: /proc/1/status",
        "Seccomp:\t0\n",
    ),
    (
        "safe-sysctl",
        "securityContext: {sysctls: [{name: net.ipv4.ip_unprivileged_port_start, value: '81'}]}",
        "",
        "cat /proc/sys/net/ipv4/ip_unprivileged_port_start",
        "81\n",
    ),
    (
        "runtime-class",
        "runtimeClassName: settings-plain",
        "",
        "echo runs",
        "runs\n",
    ),
    (
        "host-aliases",
        "hostAliases: [{ip: 192.0.2.7, hostnames: [one.test, two.test]}]",
        "",
        "grep one.test /etc/hosts",
        "192.0.2.7\tone.test\ttwo.test\n",
    ),
    (
        "dns-none",
        "dnsPolicy: None, dnsConfig: {nameservers: [192.0.2.53], searches: [one.test], options: [{name: ndots, value: '2'}]}",
        "",
        "sort /etc/resolv.conf",
        "nameserver 192.0.2.53\noptions ndots:2\nsearch one.test\n",
    ),
    (
        "dns-default",
        "dnsPolicy: Default",
        "",
        "grep -c cluster.local /etc/resolv.conf",
        "0\n",
    ),
    (
        "dns-cluster",
        "",
        "",
        "grep -c 'search settings.svc.cluster.local svc.cluster.local cluster.local' /etc/resolv.conf",
        "1\n",
    ),
    (
        "dns-host-network",
        "hostNetwork: true, dnsPolicy: ClusterFirstWithHostNet",
        "",
        "grep -c 'search settings.svc.cluster.local' /etc/resolv.conf",
        "1\n",
    ),
    (
        "host-network",
        "hostNetwork: true",
        "env: [{name: POD, valueFrom: {fieldRef: {fieldPath: status.podIP}}}, {name: NODE, valueFrom: {fieldRef: {fieldPath: status.hostIP}}}]",
        "test $POD = $NODE && ip -o addr | grep -c \" $NODE/\"",
        "1\n",
    ),
];

fn pod((name, pod, container, script, _): &Row) -> String {
    let comma = |text: &str| {
        if text.is_empty() {
            String::new()
        } else {
            format!("{text}, ")
        }
    };
    let (pod, container) = (comma(pod), comma(container));
    let script = script.replace('\'', "''");
    let container = format!(
        "{{name: main, image: '{TOOLS}', imagePullPolicy: IfNotPresent, {container}command: [sh, -c, '{script}']}}"
    );
    format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{restartPolicy: Never, {pod}containers: [{container}]}}}}"
    )
}

/// A namespace, and a class of runtimes for its pods alone: stories run side by side.
fn prepare(cluster: &Cluster, name: &str, class: &str, handler: &str) -> Kubectl {
    let story = cluster.namespace(name);
    let class = format!(
        "{{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {{name: {class}}}, handler: {handler}}}"
    );
    story.feed(&["apply"], &class);
    story
}

pub(crate) fn a_pods_settings_reach_its_process(cluster: &Cluster) {
    let story = prepare(cluster, "settings", "settings-plain", "runc");
    let settings = ["--from-literal=color=blue", "--from-literal=size=9"];
    story.kubectl(&[&["create", "configmap", "settings"], &settings[..]].concat());
    story.kubectl(&[
        "create",
        "secret",
        "generic",
        "password",
        "--from-literal=word=open sesame",
    ]);
    let pods: Vec<String> = SEEN.iter().map(pod).collect();
    story.feed(&["apply"], &pods.join("\n---\n"));
    for (name, _, _, _, expected) in SEEN {
        let pod = format!("pod/{name}");
        story.until(&format!("{name} to end"), || {
            matches!(
                story.field(&pod, "{.status.phase}").as_str(),
                "Succeeded" | "Failed"
            )
        });
        assert_eq!(story.kubectl(&["logs", name]), *expected, "{name}");
    }
}

/// Name, pod, container, script; then where a status or event says what.
const REFUSED: &[(Row, &str)] = &[
    (
        (
            "root",
            "securityContext: {runAsNonRoot: true}",
            "",
            "true",
            "{.status.containerStatuses[0].state.waiting.reason}",
        ),
        "container has runAsNonRoot and image will run as root (pod: \"root_refused(",
    ),
    (
        (
            "unsafe-sysctl",
            "securityContext: {sysctls: [{name: kernel.shmmax, value: '1'}]}",
            "",
            "true",
            "{.status.reason}",
        ),
        "forbidden sysctl: \"kernel.shmmax\" not allowlisted",
    ),
    (
        (
            "armor",
            "",
            "securityContext: {appArmorProfile: {type: Localhost, localhostProfile: strict}}",
            "true",
            "{.status.reason}",
        ),
        "Cannot enforce AppArmor: AppArmor is not enabled on the host",
    ),
    (
        (
            "strict-groups",
            "securityContext: {supplementalGroupsPolicy: Strict}",
            "",
            "true",
            "{.status.reason}",
        ),
        "SupplementalGroupsPolicy=Strict is not supported in this node",
    ),
    (
        (
            "recursive",
            "volumes: [{name: v, emptyDir: {}}]",
            "volumeMounts: [{name: v, mountPath: /v, readOnly: true, recursiveReadOnly: Enabled}]",
            "true",
            "{.status.containerStatuses[0].state.waiting.reason}",
        ),
        "failed to resolve recursive read-only mode: volume \"v\" requested recursive read-only mode, but it is not supported by the runtime",
    ),
    (
        (
            "unknown-handler",
            "runtimeClassName: settings-unknown",
            "",
            "true",
            "{.status.phase}",
        ),
        "Failed to create pod sandbox: rpc error: code = Unknown desc = failed to get sandbox runtime: no runtime for \"nobody-knows\" is configured",
    ),
    (
        (
            "too-much-memory",
            "",
            "resources: {limits: {memory: 16Mi}}",
            "until [ -e /tmp/go ]; do sleep 0.1; done; tail /dev/zero",
            "{.status.containerStatuses[0].state.terminated.reason}",
        ),
        "Container started",
    ),
];

pub(crate) fn what_a_pod_may_not_is_refused(cluster: &Cluster) {
    let story = prepare(cluster, "refused", "settings-unknown", "nobody-knows");
    let reasons = [
        "CreateContainerConfigError",
        "SysctlForbidden",
        "AppArmor",
        "SupplementalGroupsPolicyNotSupported",
        "CreateContainerConfigError",
        "Pending",
        "OOMKilled",
    ];
    let pods: Vec<String> = REFUSED.iter().map(|(row, _)| pod(row)).collect();
    story.feed(&["apply"], &pods.join("\n---\n"));
    // containerd counts kills for memory from a container's start on, and misses those of its first moments.
    story.wait_value("pod/too-much-memory", "{.status.phase}", "Running");
    // Not asserted on: containerd answers that there is no such task where the container ends before it has reported how touch
    // ended. Without the file no reason below comes.
    let _ = story.try_kubectl(&["exec", "too-much-memory", "--", "touch", "/tmp/go"]);
    for (((name, _, _, _, path), event), reason) in REFUSED.iter().zip(reasons) {
        let pod = format!("pod/{name}");
        story.wait_value(&pod, path, reason);
        story.until(&format!("an event of {name}: {event}"), || {
            story.kubectl(&["events", "--for", &pod]).contains(event)
        });
    }
    assert_eq!(
        story.field(
            "pod/unsafe-sysctl",
            "{.status.phase} {.status.message}{.status.containerStatuses}"
        ),
        "Failed Pod was rejected: forbidden sysctl: \"kernel.shmmax\" not allowlisted"
    );
}

pub(crate) fn a_port_of_the_node_leads_to_a_pod(cluster: &Cluster) {
    const PORT: u16 = 8099;
    let story = cluster.namespace("host-port");
    let container = format!(
        "{{name: main, image: '{TOOLS}', imagePullPolicy: IfNotPresent, command: [httpd, -f, -p, '80', -h, /www], ports: [{{containerPort: 80, hostPort: {PORT}}}]}}"
    );
    story.feed(
        &["apply"],
        &format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: main}}, spec: {{terminationGracePeriodSeconds: 1, containers: [{container}]}}}}"
        ),
    );
    story.wait("pod/main", "condition=Ready");
    let node = story.field("pod/main", "{.status.hostIP}");
    let address: SocketAddr = format!("{node}:{PORT}").parse().expect("an address and a port");
    story.until("an answer", || {
        ask(&cluster.host, address).as_deref() == Ok("well")
    });
    let local = SocketAddr::from(([127, 0, 0, 1], PORT));
    assert_eq!(ask(&cluster.host, local).as_deref(), Ok("well"));
    // The agent's own port is none of a pod's.
    let greedy = container.replace(&PORT.to_string(), "10250");
    story.feed(
        &["apply"],
        &format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: greedy}}, spec: {{containers: [{greedy}]}}}}"
        ),
    );
    story.until("an event of greedy", || {
        story
            .kubectl(&["events", "--for", "pod/greedy"])
            .contains("host port 10250/TCP is in use by a program of the node")
    });
    story.kubectl(&["delete", "pod", "main"]);
    assert!(
        ask(&cluster.host, address).is_err(),
        "with the pod its port is gone"
    );
    assert!(ask(&cluster.host, local).is_err());
}

/// Bound without the scheduler, which would never have chosen the node.
pub(crate) fn a_pod_that_the_node_has_no_place_for_is_refused(cluster: &Cluster) {
    let story = cluster.namespace("no-place");
    let node = story.kubectl(&["get", "nodes", "-o", "jsonpath={.items[0].metadata.name}"]);
    let pod = |name: &str, spec: &str, container: &str| {
        format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{nodeName: '{node}', terminationGracePeriodSeconds: 1, {spec} containers: [{{name: main, image: {TOOLS}, imagePullPolicy: IfNotPresent, command: [sleep, '10000'], {container}}}]}}}}"
        )
    };
    let port = "ports: [{containerPort: 80, hostPort: 8098}]";
    story.feed(&["apply"], &pod("first", "", port));
    story.wait("pod/first", "condition=Ready");
    let refused = [
        ("large", "", "resources: {requests: {cpu: '1000'}}", "OutOfcpu"),
        ("second", "", port, "NodePorts"),
        ("elsewhere", "nodeSelector: {disk: none},", "", "NodeAffinity"),
        ("windows", "os: {name: windows},", "", "PodOSNotSupported"),
    ];
    for (name, spec, container, reason) in refused {
        story.feed(&["apply"], &pod(name, spec, container));
        let object = format!("pod/{name}");
        story.wait_value(&object, "{.status.reason}", reason);
        assert_eq!(story.field(&object, "{.status.phase}"), "Failed");
        story.until(&format!("an event of {name}"), || {
            story.kubectl(&["events", "--for", &object]).contains(reason)
        });
    }
    let told = story.field("pod/large", "{.status.message}");
    assert!(
        told.starts_with(
            "Pod was rejected: Node didn't have enough resource: cpu, requested: 1000000, used: "
        ),
        "{told}"
    );
    story.kubectl(&["delete", "pod", "first"]);
    story.feed(&["apply"], &pod("third", "", port));
    story.wait("pod/third", "condition=Ready");
}
