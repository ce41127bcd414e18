//! Flags and commands: every flag of the server has its effect, mistakes are one line, other commands do their work.

#![allow(clippy::disallowed_methods, reason = "tests stand outside the product")]

mod support;

use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use support::kubectl::skipped;
use support::{Launch, Server, text, until};

const TOKEN: &str = "a-token-of-a-file";
const POLICY: &str = "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n- level: None\n  users: [\"system:apiserver\"]\n- level: Metadata\n";
const NOBODY: u32 = 65_534;
/// As `docs/storage.md` has it: a comment stands in the place of the key.
const SAMPLE: &str = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n  providers:\n  - secretbox:\n      keys:\n      - name: key1\n        secret: # head -c 32\n  - identity: {}\n";

fn knarr(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_knarr"));
    command.args(arguments).stdin(Stdio::null());
    command.output().expect("the built binary starts")
}

#[test]
fn flags_every_server_flag_has_effect() {
    let files = tempfile::tempdir().expect("a folder");
    let file = |name: &str| files.path().join(name).display().to_string();
    std::fs::write(file("tokens"), format!("{TOKEN},robot,42,\"robots,tinkers\"\n")).expect("tokens");
    std::fs::write(file("policy"), POLICY).expect("a policy");
    let flags = [
        format!("--token-auth-file={}", file("tokens")),
        format!("--audit-log-path={}", file("audit")),
        format!("--audit-policy-file={}", file("policy")),
        "--audit-log-maxage=7".to_owned(),
        "--audit-log-maxbackup=2".to_owned(),
        "--audit-log-maxsize=1".to_owned(),
        "--cluster-cidr=10.50.0.0/16".to_owned(),
        "--service-cluster-ip-range=10.40.0.0/16".to_owned(),
        "--service-node-port-range=31000-31009".to_owned(),
        "--advertise-address=192.0.2.77".to_owned(),
        "--tls-san=knarr.test,192.0.2.78".to_owned(),
        "--cluster-domain=knarr.test".to_owned(),
        "--max-requests-inflight=7".to_owned(),
        "--max-mutating-requests-inflight=5".to_owned(),
        "--request-timeout=1m9s".to_owned(),
        "--storage-quota-bytes=123456788".to_owned(),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let Some(server) = Server::start_with_or_skip("flags_every_server_flag_has_effect", &flags) else {
        return;
    };
    addresses_are_of_the_ranges(&server);
    certificates_have_the_names(&server);
    a_token_of_the_file_is_known(&server);
    audited(&server, Path::new(&file("audit")));
    quota_is_of_the_flag(&server);
}

fn quota_is_of_the_flag(server: &Server) {
    let metrics = server.kubectl(&["get", "--raw", "/metrics"]);
    for line in [
        "knarr_storage_quota_bytes 123456788",
        "knarr_storage_namespace_quota_bytes 30864197",
    ] {
        assert!(metrics.contains(line), "{line}");
    }
}

fn addresses_are_of_the_ranges(server: &Server) {
    assert_eq!(
        server.field("service/kubernetes", "{.spec.clusterIP}"),
        "10.40.0.1"
    );
    let slice = server.field("endpointslice/kubernetes", "{.endpoints[0].addresses[0]}");
    assert_eq!(slice, "192.0.2.77");
    server.kubectl(&["create", "service", "nodeport", "web", "--tcp=80"]);
    let port: u16 = server
        .field("service/web", "{.spec.ports[0].nodePort}")
        .parse()
        .expect("a port");
    assert!((31_000..=31_009).contains(&port), "{port}");
    let address = server.field("service/web", "{.spec.clusterIP}");
    assert!(address.starts_with("10.40."), "{address}");
    let node = r#"{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "far"}}"#;
    server.feed(&["create"], node);
    server.until("the node to have a range", || {
        server.field("node/far", "{.spec.podCIDR}").starts_with("10.50.")
    });
}

fn certificates_have_the_names(server: &Server) {
    for name in ["knarr.test", "192.0.2.78", "kubernetes.default.svc.knarr.test"] {
        server.kubectl(&["--tls-server-name", name, "get", "--raw", "/version"]);
    }
    let refused = server.refused(&["--tls-server-name", "elsewhere.test", "get", "--raw", "/version"]);
    assert!(refused.contains("certificate is valid for"), "{refused}");
}

fn a_token_of_the_file_is_known(server: &Server) {
    let address = format!("https://127.0.0.1:{}", server.port);
    let mut command = Command::new(&server.program);
    let kubectl = command
        .env("HOME", &server.folder)
        .args(["--kubeconfig", "/dev/null"]);
    kubectl.args([
        "--server",
        &address,
        "--token",
        TOKEN,
        "--insecure-skip-tls-verify",
    ]);
    let output = kubectl
        .args(["auth", "whoami", "-o", "json"])
        .output()
        .expect("kubectl");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let user = &said["status"]["userInfo"];
    assert_eq!((&user["username"], &user["uid"]), (&"robot".into(), &"42".into()));
    let groups = serde_json::json!(["robots", "tinkers", "system:authenticated"]);
    assert_eq!(user["groups"], groups);
}

/// Checks the audit log: user, verb, object and response of a request.
fn audited(server: &Server, log: &Path) {
    server.refused(&["get", "configmap", "of-the-audit"]);
    let is_told = |event: &serde_json::Value| {
        event["verb"] == "get"
            && event["user"]["username"] == "kubernetes-admin"
            && event["objectRef"]["name"] == "of-the-audit"
            && event["objectRef"]["resource"] == "configmaps"
            && event["responseStatus"]["code"] == 404
            && event["kind"] == "Event"
    };
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(log).expect("the log").permissions());
    assert_eq!(mode & 0o777, 0o600, "who asked for what is nothing for others");
    server.until("the line in the audit log", || {
        let lines = std::fs::read_to_string(log).unwrap_or_default();
        lines
            .lines()
            .any(|line| serde_json::from_str(line).is_ok_and(|event| is_told(&event)))
    });
}

#[test]
fn flags_control_plane_needs_no_root() {
    if !nix::unistd::geteuid().is_root() {
        return skipped(
            "flags_control_plane_needs_no_root",
            "the others have shown it: this is not root",
        );
    }
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("knarr");
    std::fs::copy(env!("CARGO_BIN_EXE_knarr"), &program).expect("a copy where anybody finds it");
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).expect("open to all");
    let own = folder.path().join("own");
    std::fs::create_dir(&own).expect("a folder of its own");
    chown(&own, Some(NOBODY), Some(NOBODY)).expect("given away");
    let log = std::fs::File::create(folder.path().join("log")).expect("a log");
    let mut server = Command::new("setpriv");
    server
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
        .arg(&program);
    server.args([
        "server",
        "--disable-agent",
        "--bind-address",
        "127.0.0.1",
        "--secure-port",
        "0",
    ]);
    server.arg("--data-dir").arg(own.join("data"));
    server.arg("--write-kubeconfig").arg(own.join("kubeconfig"));
    let mut server = server
        .stdin(Stdio::null())
        .stderr(log)
        .spawn()
        .expect("setpriv of util-linux");
    until(
        "the server of nobody to be there",
        || own.join("kubeconfig").is_file(),
        || std::fs::read_to_string(folder.path().join("log")).unwrap_or_default(),
    );
    // A second file, made from what the server keeps, has the same authority.
    let data = own.join("data").display().to_string();
    let made = knarr(&[
        "kubeconfig",
        "--data-dir",
        &data,
        "--server",
        "https://192.0.2.1:7",
    ]);
    let authority = |text: &str| {
        let line = text
            .lines()
            .find(|line| line.contains("certificate-authority-data"));
        line.map(str::to_owned).expect("an authority")
    };
    let (made, own) = (
        text(&made.stdout),
        std::fs::read_to_string(own.join("kubeconfig")).expect("it"),
    );
    assert!(made.contains("server: https://192.0.2.1:7"), "{made}");
    assert_eq!(authority(&made), authority(&own));
    server.kill().expect("it runs");
    server.wait().expect("it ends");
}

/// A control plane whose files are in the folder, until it is ready.
fn ready(folder: &Path, kubeconfig: &Path) -> Child {
    let log = folder.join("log");
    let mut server = Command::new(env!("CARGO_BIN_EXE_knarr"));
    server.args([
        "server",
        "--disable-agent",
        "--bind-address=127.0.0.1",
        "--secure-port=0",
    ]);
    server.arg("--data-dir").arg(folder.join("data"));
    server.arg("--write-kubeconfig").arg(kubeconfig);
    let server = server
        .stdin(Stdio::null())
        .stderr(std::fs::File::create(&log).expect("a log"));
    let mut server = server.spawn().expect("the built binary starts");
    let said = || std::fs::read_to_string(&log).unwrap_or_default();
    until(
        "the server to be ready, or to end",
        || said().contains(" ready") || server.try_wait().is_ok_and(|ended| ended.is_some()),
        said,
    );
    server
}

#[test]
fn kubeconfigs_are_kept_by_a_server_that_starts_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let (folder, file) = (folder.path(), folder.path().join("config"));
    let stop = |mut server: Child| {
        server.kill().expect("it runs");
        server.wait().expect("it ends");
    };
    stop(ready(folder, &file));
    let read = |path: &Path| std::fs::read_to_string(path).expect("a kubeconfig");
    let is_address = |line: &&str| line.trim().starts_with("server: ");
    let with_namespace = read(&file).replace("    user: kub", "    namespace: shop\n    user: kub");
    assert!(with_namespace.contains("namespace"), "{with_namespace}");
    std::fs::write(&file, &with_namespace).expect("its owner's change");
    stop(ready(folder, &file));
    let kept = read(&file);
    let rest = |text: &str| {
        let lines = text.lines().filter(|line| !is_address(line));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(rest(&kept), rest(&with_namespace), "the port alone is another");
    // The command prints the address of the server, and the same credentials.
    let data = folder.join("data").display().to_string();
    let printed = text(&knarr(&["kubeconfig", "--data-dir", &data]).stdout);
    assert_eq!(printed, read(&folder.join("data/admin.kubeconfig")));
    assert_eq!(
        printed.lines().find(is_address),
        kept.lines().find(is_address),
        "{printed}"
    );
    // Another cluster's file is refused, and stays.
    let other = tempfile::tempdir().expect("a folder");
    let mut refused = ready(other.path(), &file);
    let code = refused.wait().expect("it ended").code();
    let said = read(&other.path().join("log"));
    assert!(
        code == Some(1) && said.contains("--write-kubeconfig") && said.contains("is another cluster"),
        "{said}"
    );
    assert_eq!(read(&file), kept);
}

/// The end of a server that does not start.
#[track_caller]
fn ended(server: &Server, flags: &[&str]) -> String {
    let data = server.dir.path().join("data").display().to_string();
    let usual = [
        "server",
        "--disable-agent",
        "--bind-address=127.0.0.1",
        "--secure-port=0",
        "--data-dir",
        &data,
    ];
    let output = knarr(&[&usual[..], flags].concat());
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    text(&output.stderr)
}

#[test]
fn flags_another_range_of_services_than_the_clusters_is_refused() {
    let test = "flags_another_range_of_services_than_the_clusters_is_refused";
    let Some(mut server) = Server::start_or_skip(test) else {
        return;
    };
    server.stop();
    let said = ended(&server, &["--service-cluster-ip-range=10.41.0.0/16"]);
    let refusal = "--service-cluster-ip-range 10.41.0.0/16 is not the cluster's, which is 10.96.0.0/16";
    assert!(said.contains(refusal), "{said}");
    // The way to another range: the default one is going.
    server.start_again();
    server.kubectl(&["delete", "servicecidr", "kubernetes", "--wait=false"]);
    server.restart_with(Launch::with(&["--service-cluster-ip-range=10.41.0.0/16"]));
    server.kubectl(&["get", "--raw", "/readyz"]);
}

#[test]
fn command_line_errors_are_one_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data").display().to_string();
    let sample = folder.path().join("encryption.yaml");
    std::fs::write(&sample, SAMPLE).expect("a file");
    let sample = sample.display().to_string();
    let cases: [(&[&str], &str); 16] = [
        (
            &["agent", "--data-dir", "/nowhere/agent"],
            "join a cluster with the line that `knarr token create --print-join-command` prints",
        ),
        (
            &[
                "server",
                "--disable-agent",
                "--secure-port=0",
                "--data-dir",
                &data,
                "--encryption-provider-config",
                &sample,
            ],
            "resources[0].providers[0].secretbox.keys[0].secret: Required value: secret is a mandatory field for a key",
        ),
        (
            &[
                "server",
                "--disable-agent",
                "--controllers=*,-deploymnet-controller",
            ],
            "did you mean \"deployment-controller\"?",
        ),
        (
            &["stop", "--data-dir", "/nowhere"],
            "there is no cluster: /nowhere does not exist",
        ),
        (
            &[
                "server",
                "--disable-agent",
                "--secure-port=0",
                "--data-dir",
                &data,
                "--token-auth-file=/nowhere/tokens",
            ],
            "--token-auth-file /nowhere/tokens: No such file",
        ),
        (
            &["server", "--service-cluster-ip-range", "bad"],
            "--service-cluster-ip-range",
        ),
        (
            &["server", "--service-node-port-range", "9"],
            "give two ports, as in 30000-32767",
        ),
        (&["server", "--no-such-flag"], "--no-such-flag"),
        (
            &["server", "--disable-agent", "--tls-san=good.test,bad_name/x"],
            "bad_name/x",
        ),
        (
            &["server", "--disable-agent", "--feature-gates=NoSuchGate=true"],
            "--feature-gates: unrecognized feature gate: NoSuchGate",
        ),
        (
            &["agent", "--feature-gates=PodLevelResources=false"],
            "this agent always has the feature on",
        ),
        (
            &["server", "--disable-agent", "--runtime-config=boats.test/v1=true"],
            "--runtime-config: unknown api groups boats.test/v1",
        ),
        (
            &["server", "--disable-agent", "--tls-min-version=VersionTLS10"],
            "this server does not have VersionTLS10",
        ),
        (&["sever"], "sever"),
        (&["image", "import"], "<ARCHIVES>"),
        (
            &["kubeconfig", "--data-dir", "/nowhere"],
            "start one with `knarr server`",
        ),
    ];
    for (arguments, word) in cases {
        let output = knarr(arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
        assert!(
            said.lines()
                .last()
                .is_some_and(|last| last.starts_with("knarr: "))
                && said.contains(word),
            "{arguments:?}: {said}"
        );
        // A server that reads files has logged what else it did by then.
        assert!(
            said.lines().count() == 1 || word.contains("/nowhere/tokens") || word.contains("secretbox"),
            "{arguments:?}: {said}"
        );
    }
}

#[test]
fn version_names_release_and_platform() {
    let version = text(&knarr(&["version"]).stdout);
    assert!(
        version.starts_with("knarr v") && version.contains("Kubernetes v1.37."),
        "{version}"
    );
    assert_eq!(text(&knarr(&["--version"]).stdout), version);
    let json = text(&knarr(&["version", "-o", "json"]).stdout);
    let found: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let git = found["clientVersion"]["gitVersion"].as_str().unwrap_or_default();
    assert!(git.starts_with("v1.37.") && git.contains("+knarr."), "{json}");
    let yaml = text(&knarr(&["version", "--output=yaml"]).stdout);
    assert!(yaml.contains(&format!("  gitVersion: {git}\n")), "{yaml}");
    let help = knarr(&["server", "--help"]);
    assert!(help.status.success() && text(&help.stdout).contains("--write-kubeconfig"));
}
