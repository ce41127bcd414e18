//! Pods behind a service.

use crate::support::cluster::{Cluster, service_address};
use crate::support::network::{Load, ask, ask_often};
use std::collections::BTreeSet;
use std::net::SocketAddr;

const WEB: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  strategy: {rollingUpdate: {maxUnavailable: 0, maxSurge: 1}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 10
      containers:
      - name: web
        image: knarr.local/hello:1
        imagePullPolicy: IfNotPresent
        ports: [{name: http, containerPort: 8080}]
        readinessProbe: {httpGet: {path: /, port: http}, periodSeconds: 1}
        # While it is taken out of service a pod goes on answering.
        lifecycle: {preStop: {sleep: {seconds: 3}}}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  type: NodePort
  selector: {app: web}
  ports: [{port: 80, targetPort: http}]
";

pub(crate) fn a_service_is_reached_by_address_port_and_name(cluster: &Cluster) {
    let story = cluster.namespace("services");
    story.feed(&["apply"], WEB);
    story.kubectl(&["rollout", "status", "deployment/web"]);
    let pods: BTreeSet<String> = pod_names(&story.kubectl(&["get", "pods", "-l", "app=web", "-o", "name"]));
    let answers = |address| {
        let outcome = ask_often(&cluster.host, address, 60);
        assert!(outcome.failures.is_empty(), "{address}: {:?}", outcome.failures);
        let from = |answer: &String| answer.trim_start_matches("hello from ").to_owned();
        outcome.answers.keys().map(from).collect::<BTreeSet<_>>()
    };
    story.until("an answer", || {
        ask(&cluster.host, service_address(&story, "web")).is_ok()
    });
    story.until("all three to be asked", || {
        answers(service_address(&story, "web")) == pods
    });
    let node = cluster.kubectl.field(
        "nodes",
        "{.items[0].status.addresses[?(@.type=='InternalIP')].address}",
    );
    let port = story.field("service/web", "{.spec.ports[0].nodePort}");
    let node_port: SocketAddr = format!("{node}:{port}").parse().expect("an address and a port");
    assert_eq!(answers(node_port), pods, "by the node's address and port");
    let one = pods.first().expect("three pods").as_str();
    for name in ["web", "web.services", "web.services.svc.cluster.local"] {
        let answer = story.kubectl(&["exec", one, "--", "/base", "ask", &format!("http://{name}/")]);
        assert!(answer.starts_with("hello from web-"), "{name}: {answer}");
    }
}

fn pod_names(listed: &str) -> BTreeSet<String> {
    listed
        .lines()
        .map(|line| line.trim_start_matches("pod/").to_owned())
        .collect()
}

pub(crate) fn a_rolling_update_drops_no_request(cluster: &Cluster) {
    let story = cluster.namespace("rolling");
    story.feed(&["apply"], WEB);
    story.kubectl(&["rollout", "status", "deployment/web"]);
    let old = pod_names(&story.kubectl(&["get", "pods", "-o", "name"]));
    let address = service_address(&story, "web");
    story.until("an answer", || ask(&cluster.host, address).is_ok());
    let load = Load::start(&cluster.host, address);
    story.kubectl(&["set", "env", "deployment/web", "COLOR=blue"]);
    story.kubectl(&["rollout", "status", "deployment/web"]);
    for pod in &old {
        story.wait_gone(&format!("pod/{pod}"));
    }
    let outcome = load.end_well();
    let answered: BTreeSet<&str> = outcome
        .answers
        .keys()
        .map(|text| text.trim_start_matches("hello from "))
        .collect();
    let new = pod_names(&story.kubectl(&["get", "pods", "-o", "name"]));
    assert!(new.is_disjoint(&old), "{new:?} and {old:?}");
    assert!(
        old.iter().any(|pod| answered.contains(pod.as_str())),
        "old pods answered, before"
    );
    assert!(
        new.iter().any(|pod| answered.contains(pod.as_str())),
        "new pods answered, after"
    );
}

pub(crate) fn a_deleted_pod_is_replaced(cluster: &Cluster) {
    let story = cluster.namespace("replaced");
    story.feed(&["apply"], WEB);
    story.kubectl(&["rollout", "status", "deployment/web"]);
    let before = pod_names(&story.kubectl(&["get", "pods", "-o", "name"]));
    let lost = before.first().expect("three pods");
    story.kubectl(&["delete", "pod", lost]);
    story.wait_value("deployment/web", "{.status.readyReplicas}", "3");
    let after = pod_names(&story.kubectl(&["get", "pods", "-o", "name"]));
    assert_eq!(after.len(), 3);
    assert_eq!(
        after.intersection(&before).count(),
        2,
        "{before:?} became {after:?}"
    );
}
