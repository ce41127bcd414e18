//! Reachability: of the API from pods, and of the node from clients.

use crate::support::cluster::Cluster;
use crate::support::image::TOOLS;
use crate::support::kubectl::{Kubectl, text};
use std::process::{Output, Stdio};

pub(crate) fn a_pod_reaches_the_api_as_itself(cluster: &Cluster) {
    let story = cluster.namespace("in-cluster");
    let program = cluster.kubectl.program.display();
    story.feed(
        &["apply"],
        &format!(
            "
apiVersion: v1
kind: Pod
metadata: {{name: main}}
spec:
  terminationGracePeriodSeconds: 1
  volumes: [{{name: kubectl, hostPath: {{path: '{program}', type: File}}}}]
  containers:
  - name: main
    image: {TOOLS}
    imagePullPolicy: IfNotPresent
    command: [sleep, '10000']
    volumeMounts: [{{name: kubectl, mountPath: /bin/kubectl, readOnly: true}}]
"
        ),
    );
    story.wait("pod/main", "condition=Ready");
    let inside = |words: &[&str]| story.kubectl(&[&["exec", "main", "--"], words].concat());
    // By the service's address, as every client library does it.
    let whoami = [
        "kubectl",
        "auth",
        "whoami",
        "-o",
        "jsonpath={.status.userInfo.username}",
    ];
    assert_eq!(inside(&whoami), "system:serviceaccount:in-cluster:default");
    // By its name, with the mounted authority and token.
    let account = "/var/run/secrets/kubernetes.io/serviceaccount";
    let by_name = format!(
        "kubectl --server https://kubernetes.default --certificate-authority {account}/ca.crt --token $(cat {account}/token) get --raw /version"
    );
    let version = inside(&["sh", "-c", &by_name]);
    assert!(version.contains("\"gitVersion\": \"v1.37"), "{version}");
    // And may no more than its account.
    let refused = story.refused(&["exec", "main", "--", "kubectl", "get", "secrets"]);
    assert!(
        refused
            .contains("User \"system:serviceaccount:in-cluster:default\" cannot list resource \"secrets\""),
        "{refused}"
    );
}

/// kubectl as a bare client of one address: no kubeconfig, these credentials.
pub(crate) fn ask(story: &Kubectl, server: &str, credentials: &[&str], words: &[&str]) -> Output {
    let mut command = story.host.command(&story.program);
    command.args([
        "--kubeconfig=/dev/null",
        "--insecure-skip-tls-verify",
        "--server",
        server,
    ]);
    command.args(credentials).args(words);
    command.env("HOME", &story.folder).stdin(Stdio::null());
    command.output().expect("kubectl starts")
}

const PODS: [&str; 3] = ["get", "--raw", "/pods"];

/// A node's own server, as clients reach it.
struct NodeServer<'a> {
    story: &'a Kubectl,
    address: String,
}

impl NodeServer<'_> {
    #[track_caller]
    fn refuses(&self, credentials: &[&str], words: &[&str], complaint: &str) {
        let output = ask(self.story, &self.address, credentials, words);
        let said = text(&output.stderr);
        assert!(
            !output.status.success() && said.contains(complaint),
            "{words:?}: {said}"
        );
    }

    fn refuses_clients_without_an_identity(&self) {
        let unknown = "You must be logged in to the server";
        self.refuses(&["--token=unknown"], &PODS, unknown);
        // A text that is too long for a token is not reviewed, and a head that is too long is not read.
        let long = |bytes: usize| format!("--token={}", "x".repeat(bytes));
        self.refuses(&[&long(20 << 10)], &PODS, unknown);
        let user = format!("--as={}", "x".repeat(120 << 10));
        self.refuses(&[&long(120 << 10), &user], &PODS, "431");
        let (certificate, key) = certificate_of_its_own(self.story);
        let credentials = [
            format!("--client-certificate={certificate}"),
            format!("--client-key={key}"),
        ];
        self.refuses(&credentials.each_ref().map(String::as_str), &PODS, "");
    }

    fn refuses_users_without_a_right(&self) {
        let token = token_of(self.story, "default");
        let forbidden = |verb: &str, of: &str| {
            let user = "user=system:serviceaccount:node-access:default";
            format!("Forbidden ({user}, verb={verb}, resource=nodes, subresource(s)=[{of}])")
        };
        self.refuses(&[&token], &PODS, &forbidden("get", "pods proxy"));
        let path = "/exec/node-access/main/main?command=id&output=1";
        let exec = ["create", "--raw", path, "-f", "/dev/null"];
        self.refuses(&[&token], &exec, &forbidden("create", "proxy"));
    }

    fn answers_users_by_their_roles(&self) {
        let name = "node-access";
        let create = |words: &[&str]| self.story.kubectl(&[&["create"], words].concat());
        create(&["clusterrole", name, "--verb=get", "--resource=nodes/pods"]);
        create(&["serviceaccount", "reader"]);
        let (role, account) = ("--clusterrole=node-access", "--serviceaccount=node-access:reader");
        create(&["clusterrolebinding", name, role, account]);
        let token = token_of(self.story, "reader");
        let answer = ask(self.story, &self.address, &[&token], &PODS);
        assert!(
            text(&answer.stdout).contains("\"kind\":\"PodList\""),
            "{answer:?}"
        );
    }
}

pub(crate) fn token_of(story: &Kubectl, account: &str) -> String {
    let token = story.kubectl(&["create", "token", account]);
    format!("--token={}", token.trim())
}

pub(crate) fn the_node_answers_those_it_knows_and_who_may(cluster: &Cluster) {
    let story = cluster.namespace("node-access");
    let node = story.field(
        "nodes",
        "{.items[0].status.addresses[?(@.type==\"InternalIP\")].address}",
    );
    let server = NodeServer {
        story: &story,
        address: format!("https://{node}:10250"),
    };
    server.refuses_clients_without_an_identity();
    server.refuses_users_without_a_right();
    server.answers_users_by_their_roles();
    // Through the API server it is the server that asks, for users with the right.
    let name = story.field("nodes", "{.items[0].metadata.name}");
    let proxied = story.kubectl(&["get", "--raw", &format!("/api/v1/nodes/{name}/proxy/pods")]);
    assert!(proxied.contains("PodList"), "{proxied}");
}

pub(crate) fn the_nodes_health_is_told_on_the_loopback_only(cluster: &Cluster) {
    let story = cluster.namespace("node-health");
    let node = story.field(
        "nodes",
        "{.items[0].status.addresses[?(@.type==\"InternalIP\")].address}",
    );
    let healthz = |address: &str| {
        let server = format!("http://{address}:10248");
        ask(&story, &server, &["--token=none"], &["get", "--raw", "/healthz"])
    };
    assert_eq!(text(&healthz("127.0.0.1").stdout), "ok");
    let elsewhere = healthz(&node);
    let said = text(&elsewhere.stderr);
    assert!(!elsewhere.status.success() && said.contains("refused"), "{said}");
}

pub(crate) fn what_the_node_keeps_is_nothing_for_others(cluster: &Cluster) {
    use std::os::unix::fs::PermissionsExt;
    for place in [
        "",
        "agent",
        "agent/pods",
        "agent/logs/pods",
        "agent/agent.log",
        "agent/containerd/containerd.log",
    ] {
        let path = cluster.data_dir().join(place);
        let mode = std::fs::metadata(&path).expect(place).permissions().mode();
        assert_eq!(mode & 0o007, 0, "{}: {mode:o}", path.display());
    }
}

/// A client certificate that an authority of its own signed.
fn certificate_of_its_own(story: &Kubectl) -> (String, String) {
    let key = rcgen::KeyPair::generate().expect("a key");
    let mut names = rcgen::CertificateParams::default();
    names
        .distinguished_name
        .push(rcgen::DnType::CommonName, "kube-apiserver-kubelet-client");
    names
        .distinguished_name
        .push(rcgen::DnType::OrganizationName, "system:masters");
    let certificate = names.self_signed(&key).expect("a certificate");
    let place = |name: &str, content: String| {
        let path = story.folder.join(name);
        std::fs::write(&path, content).expect("a file");
        path.display().to_string()
    };
    (
        place("own.crt", certificate.pem()),
        place("own.key", key.serialize_pem()),
    )
}
