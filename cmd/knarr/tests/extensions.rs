//! Upstream's sample-apiserver behind an APIService of a real server, driven by upstream's kubectl.

#![allow(clippy::disallowed_methods, reason = "tests stand outside the product")]

mod support;

use serde_json::json;
use std::net::{IpAddr, UdpSocket};
use std::process::{Child, Command, Stdio};
use support::etcd::Etcd;
use support::kubectl::skipped;
use support::{Server, free_port, tool_or_skip};

const NAME: &str = "v1alpha1.wardle.example.com";

/// Ends with the test.
struct Sample {
    child: Child,
    _etcd: Etcd,
    port: u16,
    at: IpAddr,
}

impl Drop for Sample {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An address of this machine that services may lead to.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then_some(address)
}

impl Sample {
    /// Authenticates and authorizes by the server, as one in the cluster does.
    fn start_or_skip(test: &str, server: &Server) -> Option<Self> {
        let program = tool_or_skip(test, "sample-apiserver")?;
        let etcd = Etcd::start_or_skip(test)?;
        let Some(at) = own_address() else {
            skipped(test, "this machine has no address but the loopback's");
            return None;
        };
        let port = free_port();
        let folder = server.dir.path();
        let log = std::fs::File::create(folder.join("sample.log")).expect("a log");
        let kubeconfig = server.kubeconfig();
        let mut command = Command::new(program);
        command.args([
            "--bind-address",
            &at.to_string(),
            "--secure-port",
            &port.to_string(),
        ]);
        command.args(["--etcd-servers", &etcd.endpoint]);
        for flag in [
            "--kubeconfig",
            "--authentication-kubeconfig",
            "--authorization-kubeconfig",
        ] {
            command.arg(flag).arg(&kubeconfig);
        }
        command.arg("--cert-dir").arg(folder.join("sample-certificates"));
        let child = command
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a log"))
            .stderr(log)
            .spawn()
            .expect("the sample-apiserver starts");
        Some(Self {
            child,
            _etcd: etcd,
            port,
            at,
        })
    }

    /// Everything that leads to it.
    fn register(&self, server: &Server) {
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "sample", "namespace": "default"},
            "spec": {"ports": [{"name": "api", "port": 443}]}});
        let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {"name": "sample", "namespace": "default",
                "labels": {"kubernetes.io/service-name": "sample"}}, "addressType": "IPv4",
            "endpoints": [{"addresses": [self.at.to_string()]}], "ports": [{"name": "api", "port": self.port, "protocol": "TCP"}]});
        let registration = json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": NAME},
            "spec": {"group": "wardle.example.com", "version": "v1alpha1", "groupPriorityMinimum": 2000, "versionPriority": 200,
                "insecureSkipTLSVerify": true, "service": {"namespace": "default", "name": "sample"}}});
        for object in [service, slice, registration] {
            server.feed(&["create"], &object.to_string());
        }
    }
}

fn flunder(namespace: &str, name: &str) -> String {
    json!({"apiVersion": "wardle.example.com/v1alpha1", "kind": "Flunder",
        "metadata": {"name": name, "namespace": namespace, "labels": {"sample-label": "true"}}, "spec": {"reference": "none"}})
    .to_string()
}

#[test]
fn sample_apiserver_is_aggregated() {
    let test = "sample_apiserver_is_aggregated";
    let Some(server) = Server::start_or_skip(test) else {
        return;
    };
    let Some(sample) = Sample::start_or_skip(test, &server) else {
        return;
    };
    sample.register(&server);
    server.wait(&format!("apiservice/{NAME}"), "condition=Available");
    server.until("discovery of the extension", || {
        let listed =
            server.try_kubectl(&["api-resources", "--api-group=wardle.example.com", "--output=name"]);
        support::text(&listed.stdout).contains("flunders.wardle.example.com")
    });
    server.feed(&["create"], &flunder("default", "one"));
    assert_eq!(
        server.kubectl(&["get", "flunders", "--output=name"]),
        "flunder.wardle.example.com/one\n"
    );
    server.feed(&["apply", "--server-side"], &flunder("default", "two"));
    server.kubectl(&["label", "flunder", "two", "changed=yes"]);
    assert_eq!(server.field("flunder/two", "{.metadata.labels.changed}"), "yes");
    let explained = server.kubectl(&["explain", "flunder.spec"]);
    assert!(explained.contains("reference"), "{explained}");
    // The owner is of another server than what it owns.
    let uid = server.field("flunder/one", "{.metadata.uid}");
    let owned = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owned", "namespace": "default",
        "ownerReferences": [{"apiVersion": "wardle.example.com/v1alpha1", "kind": "Flunder", "name": "one", "uid": uid}]}});
    server.feed(&["create"], &owned.to_string());
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "flunders", "namespace": "default"},
        "spec": {"hard": {"count/flunders.wardle.example.com": "9"}}});
    server.feed(&["create"], &quota.to_string());
    server.until("the count of the quota", || {
        let path = "jsonpath={.status.used.count/flunders\\.wardle\\.example\\.com}";
        let used = server.try_kubectl(&["get", "resourcequota", "flunders", "--output", path]);
        support::text(&used.stdout) == "2"
    });
    server.kubectl(&["delete", "flunder", "one"]);
    server.wait_gone("configmap/owned");
    server.kubectl(&["create", "namespace", "passing"]);
    server.feed(&["create"], &flunder("passing", "three"));
    server.kubectl(&["delete", "namespace", "passing"]);
    let left = server.kubectl(&["get", "flunders", "--all-namespaces", "--output=name"]);
    assert_eq!(left, "flunder.wardle.example.com/two\n");
    let refused = server.refused(&["get", "flunders", "--as=jane"]);
    assert!(refused.contains("Forbidden"), "{refused}");
    server.kubectl(&["delete", "apiservice", NAME]);
    server.until("the group to be gone", || {
        !server
            .try_kubectl(&["get", "--raw", "/apis/wardle.example.com"])
            .status
            .success()
    });
}
