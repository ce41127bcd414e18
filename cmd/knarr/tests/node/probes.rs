//! Results of probes, and their effect on containers.

use crate::support::cluster::{Cluster, service_address};
use crate::support::image::TOOLS;
use crate::support::kubectl::{Kubectl, text};
use crate::support::network::ask_often;

/// A pod of one container that serves `/www` over HTTP.
fn pod(name: &str, command: &str, probes: &str) -> String {
    format!(
        "
apiVersion: v1
kind: Pod
metadata: {{name: {name}, labels: {{app: {name}}}}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: {TOOLS}
    imagePullPolicy: IfNotPresent
    command: [sh, -c, '{command}']
    {probes}
"
    )
}

const RESTARTS: &str = "{.status.containerStatuses[0].restartCount}";
const SERVE: &str = "echo well > /www/health; exec httpd -f -p 80 -h /www";

fn restarts_when(story: &Kubectl, broken: &[&str]) {
    story.wait("pod/main", "condition=Ready");
    assert_eq!(story.field("pod/main", RESTARTS), "0");
    story.kubectl(&[&["exec", "main", "--"], broken].concat());
    story.wait_value("pod/main", RESTARTS, "1");
    story.wait("pod/main", "condition=Ready");
    story.until("events that say why", || {
        let events = story.kubectl(&["events", "--for", "pod/main"]);
        events.contains("Liveness probe failed")
            && events.contains("Container main failed liveness probe, will be restarted")
    });
}

pub(crate) fn a_failed_http_liveness_probe_restarts(cluster: &Cluster) {
    let story = cluster.namespace("liveness-http");
    let probes = "livenessProbe: {httpGet: {path: /health, port: 80}, periodSeconds: 1, timeoutSeconds: 10}";
    story.feed(&["apply"], &pod("main", SERVE, probes));
    restarts_when(&story, &["rm", "/www/health"]);
}

pub(crate) fn a_failed_exec_liveness_probe_restarts(cluster: &Cluster) {
    let story = cluster.namespace("liveness-exec");
    let probes = "livenessProbe: {exec: {command: [cat, /tmp/alive]}, periodSeconds: 1, timeoutSeconds: 10}";
    story.feed(
        &["apply"],
        &pod("main", "touch /tmp/alive; exec sleep 10000", probes),
    );
    restarts_when(&story, &["rm", "/tmp/alive"]);
}

pub(crate) fn a_container_given_up_is_asked_no_more(cluster: &Cluster) {
    let story = cluster.namespace("given-up");
    let probes = "livenessProbe: {exec: {command: [sh, -c, test -e /tmp/up && echo asked >> /own/asked; false]}, periodSeconds: 1, failureThreshold: 1}
    volumeMounts: [{name: own, mountPath: /own}]
  volumes: [{name: own, emptyDir: {}}]";
    // Each start reports how often the one before was probed, and takes its time to end. A probe that comes before the report leaves no note.
    let ends_late = "cat /own/asked; echo began; rm -f /own/asked; touch /tmp/up; trap : TERM; while true; do sleep 1; done";
    let pod = pod("main", ends_late, probes).replace("GracePeriodSeconds: 1", "GracePeriodSeconds: 4");
    story.feed(&["apply"], &pod);
    let mut log = String::new();
    story.until("the second to have begun", || {
        log = text(&story.try_kubectl(&["logs", "main"]).stdout);
        log.starts_with("asked") && log.ends_with("began\n")
    });
    assert_eq!(log, "asked\nbegan\n");
}

pub(crate) fn a_pod_that_ends_still_says_whether_it_is_ready(cluster: &Cluster) {
    let story = cluster.namespace("ends-ready");
    let probes = "readinessProbe: {exec: {command: [cat, /tmp/ready]}, periodSeconds: 1, timeoutSeconds: 10}";
    let command =
        "touch /tmp/ready; trap \"rm -f /tmp/ready\" TERM; while ! test -e /tmp/end; do sleep 1; done";
    let pod = pod("main", command, probes).replace("GracePeriodSeconds: 1", "GracePeriodSeconds: 300");
    story.feed(&["apply"], &pod);
    story.wait("pod/main", "condition=Ready");
    story.kubectl(&["delete", "pod", "main", "--wait=false"]);
    let ready = "{.status.conditions[?(@.type==\"Ready\")].status}";
    story.wait_value("pod/main", ready, "False");
    let runs = "{.status.containerStatuses[0].state.running.startedAt}";
    assert_ne!(story.field("pod/main", runs), "");
    story.kubectl(&["exec", "main", "--", "touch", "/tmp/end"]);
    story.wait_gone("pod/main");
}

pub(crate) fn a_failed_readiness_probe_takes_traffic_away(cluster: &Cluster) {
    let story = cluster.namespace("readiness");
    let probes = "readinessProbe: {httpGet: {path: /health, port: 80}, periodSeconds: 1, timeoutSeconds: 10}";
    for name in ["one", "two"] {
        let command = format!("echo {name} > /www/index.html; {SERVE}");
        let pod = pod(name, &command, probes).replace(&format!("app: {name}"), "app: pair");
        story.feed(&["apply"], &pod);
    }
    story.feed(
        &["apply"],
        "{apiVersion: v1, kind: Service, metadata: {name: pair}, spec: {selector: {app: pair}, ports: [{port: 80}]}}",
    );
    story.wait("pod/one", "condition=Ready");
    story.wait("pod/two", "condition=Ready");
    let address = service_address(&story, "pair");
    let answers = |wanted: &[&str]| {
        let outcome = ask_often(&cluster.host, address, 20);
        outcome.failures.is_empty() && outcome.answers.keys().eq(wanted)
    };
    story.until("both to answer", || answers(&["one", "two"]));
    story.kubectl(&["exec", "one", "--", "rm", "/www/health"]);
    story.wait("pod/one", "condition=Ready=false");
    let ready = "{.items[0].endpoints[?(@.targetRef.name==\"one\")].conditions.ready}";
    story.until("the slice to say so", || {
        story.field("endpointslices", ready) == "false"
    });
    story.until("only the other to answer", || answers(&["two"]));
    assert_eq!(
        story.field("pod/one", RESTARTS),
        "0",
        "not ready is no reason to restart"
    );
    story.kubectl(&["exec", "one", "--", "touch", "/www/health"]);
    story.wait("pod/one", "condition=Ready");
    story.until("both to answer again", || answers(&["one", "two"]));
}

pub(crate) fn a_failed_tcp_probe_takes_readiness_away(cluster: &Cluster) {
    let story = cluster.namespace("readiness-tcp");
    let probes = "readinessProbe: {tcpSocket: {port: 80}, periodSeconds: 1, timeoutSeconds: 10}";
    let serve = "httpd -p 80 -h /www; exec sleep 10000";
    story.feed(&["apply"], &pod("main", serve, probes));
    story.wait("pod/main", "condition=Ready");
    story.kubectl(&["exec", "main", "--", "killall", "httpd"]);
    story.wait("pod/main", "condition=Ready=false");
    story.until("an event that says why", || {
        story
            .kubectl(&["events", "--for", "pod/main"])
            .contains(":80: connect: connection refused")
    });
    story.kubectl(&["exec", "main", "--", "httpd", "-p", "80", "-h", "/www"]);
    story.wait("pod/main", "condition=Ready");
    assert_eq!(story.field("pod/main", RESTARTS), "0");
}

pub(crate) fn a_grpc_probe_is_asked(cluster: &Cluster) {
    let story = cluster.namespace("grpc");
    let probes = "readinessProbe: {grpc: {port: 9000}, periodSeconds: 1, timeoutSeconds: 10}";
    story.feed(
        &["apply"],
        &pod(
            "main",
            "touch /tmp/serving; exec grpc-health 9000 /tmp/serving",
            probes,
        ),
    );
    story.wait("pod/main", "condition=Ready");
    story.kubectl(&["exec", "main", "--", "rm", "/tmp/serving"]);
    story.wait("pod/main", "condition=Ready=false");
    story.until("an event that says why", || {
        story
            .kubectl(&["events", "--for", "pod/main"])
            .contains("service unhealthy (responded with \"NOT_SERVING\")")
    });
}

pub(crate) fn a_startup_probe_holds_the_others_back(cluster: &Cluster) {
    let story = cluster.namespace("startup");
    let probes = "startupProbe: {exec: {command: [cat, /tmp/started]}, periodSeconds: 1, failureThreshold: 1000, timeoutSeconds: 10}
    livenessProbe: {exec: {command: [cat, /tmp/started]}, periodSeconds: 1, failureThreshold: 1, timeoutSeconds: 10}
    readinessProbe: {exec: {command: [cat, /tmp/started]}, periodSeconds: 1, timeoutSeconds: 10}";
    story.feed(&["apply"], &pod("main", "exec sleep 10000", probes));
    story.until("the startup probe to have failed", || {
        story
            .kubectl(&["events", "--for", "pod/main"])
            .contains("Startup probe failed")
    });
    let started = "{.status.containerStatuses[0].started}";
    assert_eq!(story.field("pod/main", started), "false");
    story.kubectl(&["exec", "main", "--", "touch", "/tmp/started"]);
    story.wait("pod/main", "condition=Ready");
    assert_eq!(story.field("pod/main", started), "true");
    assert_eq!(
        story.field("pod/main", RESTARTS),
        "0",
        "liveness was not asked before"
    );
}
