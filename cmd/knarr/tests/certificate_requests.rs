//! Certificates by request, with upstream's kubectl and without a node: approval, signing, refusal, and the way of a node that
//! joins from its token to its two certificates.

#![allow(clippy::disallowed_methods, reason = "tests stand outside the product")]

mod support;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType};
use serde_json::json;
use std::path::PathBuf;
use std::process::Command;
use support::{Server, text};

/// A request of a new key.
struct Request<'a> {
    name: &'a str,
    signer: &'a str,
    usages: &'a [&'a str],
    organization: &'a str,
    common_name: &'a str,
    names: Vec<SanType>,
}

impl Request<'_> {
    fn manifest(&self, key: &KeyPair) -> String {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::OrganizationName, self.organization);
        params
            .distinguished_name
            .push(DnType::CommonName, self.common_name);
        params.subject_alt_names.clone_from(&self.names);
        let request = params
            .serialize_request(key)
            .expect("a request")
            .pem()
            .expect("PEM");
        json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
            "metadata": {"name": self.name},
            "spec": {"request": STANDARD.encode(request), "signerName": self.signer, "usages": self.usages,
                "expirationSeconds": 3_600}})
        .to_string()
    }
}

fn user<'a>(name: &'a str, usages: &'a [&'a str]) -> Request<'a> {
    Request {
        name,
        signer: "kubernetes.io/kube-apiserver-client",
        usages,
        organization: "developers",
        common_name: name,
        names: Vec::new(),
    }
}

fn conditions(server: &Server, name: &str) -> String {
    let path = r"{range .status.conditions[*]}{.type}/{.reason}/{.message};{end}";
    server.field(&format!("csr/{name}"), path)
}

/// Waits for the certificate, and writes it beside its key.
fn files(server: &Server, name: &str, key: &KeyPair) -> (PathBuf, PathBuf) {
    let certificate = || server.field(&format!("csr/{name}"), "{.status.certificate}");
    server.until(&format!("the certificate of {name}"), || {
        !certificate().is_empty()
    });
    let folder = server.dir.path();
    let paths = (
        folder.join(format!("{name}.crt")),
        folder.join(format!("{name}.key")),
    );
    std::fs::write(&paths.0, STANDARD.decode(certificate()).expect("base64")).expect("written");
    std::fs::write(&paths.1, key.serialize_pem()).expect("written");
    paths
}

/// kubectl with these credentials alone.
fn kubectl_as(server: &Server, credentials: &[&str], arguments: &[&str]) -> std::process::Output {
    let authority = server.dir.path().join("data/pki/ca.crt");
    let mut command = Command::new(&server.program);
    command
        .args(["--kubeconfig", "/dev/null", "--server"])
        .arg(format!("https://127.0.0.1:{}", server.port))
        .arg("--certificate-authority")
        .arg(authority);
    command.args(credentials).args(arguments);
    command
        .env("HOME", server.dir.path())
        .output()
        .expect("kubectl starts")
}

#[track_caller]
fn done_as(server: &Server, credentials: &[&str], arguments: &[&str]) -> String {
    let output = kubectl_as(server, credentials, arguments);
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {said}");
    said
}

#[test]
fn certificate_requests_are_approved_signed_and_refused() {
    let Some(server) = Server::start_or_skip("certificate_requests_are_approved_signed_and_refused") else {
        return;
    };
    server.until("the trust bundle of the server", || {
        let path = "{.items[*].spec.trustBundle}";
        server
            .field("clustertrustbundles", path)
            .contains("BEGIN CERTIFICATE")
    });
    let key = KeyPair::generate().expect("a key");
    let create = |request: &Request<'_>| server.feed(&["create"], &request.manifest(&key));
    create(&user("anna", &["client auth", "digital signature"]));
    create(&user("ben", &["client auth"]));
    create(&user("carol", &["client auth", "server auth"]));
    assert!(server.kubectl(&["get", "csr"]).contains("Pending"));
    server.kubectl(&["certificate", "deny", "ben"]);
    server.kubectl(&["certificate", "approve", "anna", "carol"]);
    let (certificate, key) = files(&server, "anna", &key);
    let credentials = [
        "--client-certificate",
        &certificate.display().to_string(),
        "--client-key",
        &key.display().to_string(),
    ];
    let whoami = done_as(&server, &credentials, &["auth", "whoami"]);
    assert!(
        whoami.contains("anna") && whoami.contains("developers"),
        "{whoami}"
    );
    server.until("a failure", || conditions(&server, "carol").contains("Failed"));
    let said = conditions(&server, "carol");
    let expected = "Failed/SignerValidationFailure/invalid usage for client certificate: server auth;";
    assert!(said.contains(expected), "{said}");
    let listed = server.kubectl(&["get", "csr"]);
    for stands in ["Approved,Issued", "Denied", "Approved,Failed"] {
        assert!(listed.contains(stands), "{listed}");
    }
    assert_eq!(server.field("csr/ben", "{.status.certificate}"), "");
}

fn node_client(name: &str) -> Request<'_> {
    Request {
        name,
        signer: "kubernetes.io/kube-apiserver-client-kubelet",
        usages: &["digital signature", "client auth"],
        organization: "system:nodes",
        common_name: "system:node:worker-1",
        names: Vec::new(),
    }
}

fn node_serving<'a>(name: &'a str, address: Option<&str>) -> Request<'a> {
    let address = address.map(|own| SanType::IpAddress(own.parse().expect("an address")));
    let name_of_node = SanType::DnsName("worker-1".try_into().expect("a name"));
    Request {
        signer: "kubernetes.io/kubelet-serving",
        usages: &["digital signature", "server auth"],
        names: std::iter::once(name_of_node).chain(address).collect(),
        ..node_client(name)
    }
}

#[test]
fn node_with_a_token_gets_its_certificates_and_no_others() {
    let Some(server) = Server::start_or_skip("node_with_a_token_gets_its_certificates_and_no_others") else {
        return;
    };
    let knarr = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_knarr"));
        command
            .args(arguments)
            .arg("--data-dir")
            .arg(server.dir.path().join("data"));
        let output = command.output().expect("the built binary starts");
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let command = knarr(&["token", "create", "--print-join-command"]);
    assert!(command.starts_with("knarr agent --server https://"), "{command}");
    let token = knarr(&["token", "create", "--description", "of a test"]);
    let bearer = token
        .trim()
        .split_once("::")
        .expect("a hash and a token")
        .1
        .to_owned();
    let id = bearer.split_once('.').expect("an id").0.to_owned();
    let listed = knarr(&["token", "list"]);
    assert!(listed.contains(&id) && !listed.contains(&bearer), "{listed}");
    let signature = format!(r"{{.data.jws-kubeconfig-{id}}}");
    server.until("a signature of cluster-info", || {
        let path = format!("jsonpath={signature}");
        let map = [
            "get",
            "configmap",
            "cluster-info",
            "-n",
            "kube-public",
            "-o",
            &path,
        ];
        !server.kubectl(&map).is_empty()
    });

    // The token's bearer gets the certificate of a node, and reads nothing else.
    let bearer = ["--token", bearer.as_str()];
    assert!(done_as(&server, &bearer, &["auth", "whoami"]).contains("system:bootstrappers"));
    done_as(
        &server,
        &bearer,
        &["get", "configmap", "knarr-node-config", "-n", "kube-system"],
    );
    assert!(
        !kubectl_as(&server, &bearer, &["get", "secrets", "-n", "kube-system"])
            .status
            .success()
    );
    let key = KeyPair::generate().expect("a key");
    let manifest = server.dir.path().join("request.json");
    let create_as = |credentials: &[&str], request: &Request<'_>| {
        std::fs::write(&manifest, request.manifest(&key)).expect("written");
        kubectl_as(
            &server,
            credentials,
            &["create", "-f", &manifest.display().to_string()],
        )
    };
    assert!(create_as(&bearer, &node_client("client")).status.success());
    let (certificate, path) = files(&server, "client", &key);
    assert!(conditions(&server, "client").starts_with("Approved/AutoApproved/"));

    // The node has its own serving certificate, and none for an address that its request did not come from.
    let (certificate, path) = (certificate.display().to_string(), path.display().to_string());
    let node = [
        "--client-certificate",
        certificate.as_str(),
        "--client-key",
        path.as_str(),
    ];
    assert!(done_as(&server, &node, &["auth", "whoami"]).contains("system:node:worker-1"));
    done_as(&server, &node, &["get", "endpointslices.discovery.k8s.io", "-A"]);
    for (name, address) in [("elsewhere", "192.0.2.9"), ("of-the-server", "127.0.0.1")] {
        let request = node_serving(name, Some(address));
        assert!(create_as(&node, &request).status.success());
    }
    let forged = node_serving("forged", Some("192.0.2.9")).manifest(&key);
    let forged = forged.replace(
        r#""metadata":{"#,
        r#""metadata":{"annotations":{"knarr.dev/requested-from":"192.0.2.9"},"#,
    );
    std::fs::write(&manifest, forged).expect("written");
    done_as(&server, &node, &["create", "-f", &manifest.display().to_string()]);
    let noted = server.field("csr/forged", r"{.metadata.annotations.knarr\.dev/requested-from}");
    assert_eq!(noted, "127.0.0.1");
    assert!(create_as(&node, &node_serving("serving", None)).status.success());
    files(&server, "serving", &key);
    assert!(conditions(&server, "serving").contains("Auto approving self kubelet serving certificate"));
    for waits in ["elsewhere", "of-the-server", "forged"] {
        assert_eq!(conditions(&server, waits), "", "{waits}");
    }
    server.kubectl(&["certificate", "approve", "elsewhere", "of-the-server"]);
    files(&server, "elsewhere", &key);
    server.until("a failure", || {
        conditions(&server, "of-the-server").contains("Failed")
    });
    let said = conditions(&server, "of-the-server");
    assert!(
        said.contains("subjectAltNames of the API server are not allowed"),
        "{said}"
    );
    let other = Request {
        common_name: "system:node:worker-2",
        ..node_client("other")
    };
    let refused = text(&create_as(&node, &other).stderr);
    assert!(
        refused.contains("can only create a node CSR with CN=system:node:worker-1"),
        "{refused}"
    );

    knarr(&["token", "delete", &id]);
    // Tokens are known to be good for some seconds.
    server.until("the end of the token", || {
        !kubectl_as(&server, &bearer, &["auth", "whoami"]).status.success()
    });
}
