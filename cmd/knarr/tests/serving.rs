//! A server with certificates of an operator's authority, made by openssl as an operator would, and the real kubectl.

#![allow(clippy::disallowed_methods, reason = "tests stand outside the product")]

mod support;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use support::kubectl::skipped;
use support::{Launch, Server, text, tool_or_skip};

const TEST: &str = "kubectl_trusts_the_operators_authority";

/// A folder in which openssl makes an authority and what it signs.
struct Operator(PathBuf);

impl Operator {
    fn openssl(&self, arguments: &[&str]) {
        let mut command = Command::new("openssl");
        let output = command
            .args(arguments)
            .current_dir(&self.0)
            .stdin(Stdio::null())
            .output();
        let output = output.expect("openssl starts");
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    }

    fn new(folder: PathBuf) -> Self {
        std::fs::create_dir(&folder).expect("a folder");
        let own = Self(folder);
        own.openssl(&[
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-keyout",
            "ca.key",
            "-out",
            "ca.crt",
            "-subj",
            "/CN=operator",
            "-days",
            "30",
        ]);
        own
    }

    /// A certificate with its key of this kind.
    fn sign(&self, name: &str, key: &[&str], names: &str) {
        let file = |end: &str| format!("{name}.{end}");
        let mut request = vec!["req", "-new", "-nodes", "-newkey"];
        request.extend(key);
        let (key, asked) = (file("key"), file("csr"));
        request.extend(["-keyout", &key, "-out", &asked, "-subj", "/CN=knarr"]);
        self.openssl(&request);
        std::fs::write(self.path("names"), format!("subjectAltName={names}\n")).expect("names");
        let new = file("new");
        self.openssl(&[
            "x509",
            "-req",
            "-in",
            &asked,
            "-CA",
            "ca.crt",
            "-CAkey",
            "ca.key",
            "-CAcreateserial",
            "-days",
            "30",
            "-extfile",
            "names",
            "-out",
            &new,
        ]);
        // The certificate comes last and at once, as careful renewers put it.
        std::fs::rename(self.path(&new), self.path(&file("crt"))).expect("a certificate");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn serial(&self, name: &str) -> String {
        let mut command = Command::new("openssl");
        command
            .args(["x509", "-noout", "-serial", "-in"])
            .arg(self.path(name));
        text(&command.output().expect("openssl starts").stdout)
    }
}

/// kubectl without a kubeconfig, that trusts this bundle.
fn trusting(server: &Server, authority: &Path, name: &str) -> Output {
    let mut command = Command::new(&server.program);
    command
        .env("HOME", &server.folder)
        .args(["--kubeconfig", "/dev/null", "--token", "a-token"]);
    command.arg("--certificate-authority").arg(authority);
    command.args(["--server", &format!("https://127.0.0.1:{}", server.port)]);
    if !name.is_empty() {
        command.args(["--tls-server-name", name]);
    }
    command
        .args(["get", "namespaces", "-o", "name"])
        .output()
        .expect("kubectl starts")
}

#[track_caller]
fn is_served(server: &Server, authority: &Path, name: &str) {
    let output = trusting(server, authority, name);
    let found = text(&output.stdout);
    assert!(
        output.status.success() && found.contains("namespace/default"),
        "{name}: {}",
        text(&output.stderr)
    );
}

/// The serial number of the certificate that is shown to clients with this server name.
fn shown(server: &Server, name: &str) -> String {
    let script = format!(
        "openssl s_client -connect 127.0.0.1:{} -servername {name} </dev/null 2>/dev/null | openssl x509 -noout -serial",
        server.port
    );
    text(
        &Command::new("sh")
            .args(["-c", &script])
            .output()
            .expect("a shell")
            .stdout,
    )
}

#[test]
fn kubectl_trusts_the_operators_authority() {
    let Some(kubectl) = tool_or_skip(TEST, "kubectl") else {
        return;
    };
    if Command::new("openssl").arg("version").output().is_err() {
        assert!(std::env::var("KNARR_TOOLS").is_err(), "openssl is not installed");
        return skipped(TEST, "openssl is not installed");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let operator = Operator::new(folder.path().join("operator"));
    operator.sign("default", &["rsa:2048"], "DNS:api.example.com,IP:127.0.0.1");
    operator.sign("ed", &["ed25519"], "DNS:ed.example.com");
    let p384 = ["ec", "-pkeyopt", "ec_paramgen_curve:secp384r1"];
    operator.sign("ec", &p384, "DNS:*.example.org");
    std::fs::set_permissions(operator.path("ec.key"), PermissionsExt::from_mode(0o644)).expect("a mode");
    std::fs::write(operator.path("tokens"), "a-token,operator,1,system:masters\n").expect("tokens");
    let path = |name: &str| operator.path(name).display().to_string();
    let flags = [
        format!("--tls-cert-file={}", path("default.crt")),
        format!("--tls-private-key-file={}", path("default.key")),
        format!("--tls-sni-cert-key={},{}", path("ed.crt"), path("ed.key")),
        format!(
            "--tls-sni-cert-key={},{}:*.example.org,127.0.0.2",
            path("ec.crt"),
            path("ec.key")
        ),
        format!("--root-ca-file={}", path("ca.crt")),
        format!("--token-auth-file={}", path("tokens")),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    // It is ready when the kubeconfig of its own making has been used.
    let server = Server::start_in(folder, kubectl, Launch::with(&flags));
    let authority = operator.path("ca.crt");
    for name in ["", "api.example.com", "ed.example.com", "any.example.org"] {
        is_served(&server, &authority, name);
    }
    let refused = trusting(&server, &authority, "elsewhere.example.net");
    assert!(
        text(&refused.stderr).contains("certificate is valid for api.example.com, not elsewhere"),
        "{refused:?}"
    );
    let said = server.log();
    assert!(
        said.contains("private key can be read by other users") && said.contains("ec.key"),
        "{said}"
    );
    // Pods trust both authorities.
    server.until("the authorities of pods", || {
        let bundle = server.try_kubectl(&[
            "get",
            "configmap",
            "kube-root-ca.crt",
            "-o",
            "jsonpath={.data.ca\\.crt}",
        ]);
        let own = std::fs::read_to_string(&authority).expect("the authority");
        let bundle = text(&bundle.stdout);
        bundle.matches("BEGIN CERTIFICATE").count() == 2
            && bundle.contains(own.lines().nth(1).expect("a line"))
    });

    // Renewed with another kind of key, in place, while the server runs.
    operator.sign(
        "default",
        &["ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"],
        "DNS:api.example.com,IP:127.0.0.1",
    );
    let renewed = operator.serial("default.crt");
    server.until("the renewed certificate", || {
        shown(&server, "api.example.com") == renewed
    });
    is_served(&server, &authority, "");
    server.kubectl(&["get", "namespaces"]);
}
