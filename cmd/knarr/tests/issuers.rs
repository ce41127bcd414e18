//! Users of an OpenID Connect issuer, with upstream's kubectl: the service accounts of another cluster, which is such an issuer.

#![allow(clippy::disallowed_methods, reason = "tests stand outside the product")]

mod support;

use serde_json::json;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use support::{Launch, Server, text, tool_or_skip};

const AUDIENCE: &str = "second";

/// kubectl with a token and nothing else.
fn with_token(program: &Path, server: &Server, token: &str, arguments: &[&str]) -> Output {
    let authority = server.dir.path().join("data/pki/ca.crt");
    Command::new(program)
        .args(["--kubeconfig", "/dev/null", "--token", token])
        .args(["--server", &format!("https://127.0.0.1:{}", server.port)])
        .arg("--certificate-authority")
        .arg(authority)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("kubectl starts")
}

/// A cluster whose issuer is at its own address, and shows its keys to any client.
fn issuing(program: &Path) -> Server {
    let mut server = Server::start(program.to_owned(), &[]);
    let url = format!("https://127.0.0.1:{}", server.port);
    server.restart_with(Launch::with(&[
        &format!("--service-account-issuer={url}"),
        &format!("--service-account-jwks-uri={url}/openid/v1/jwks"),
    ]));
    server.kubectl(&[
        "create",
        "clusterrolebinding",
        "discovery",
        "--clusterrole=system:service-account-issuer-discovery",
        "--group=system:unauthenticated",
    ]);
    server
}

fn configuration(issuer: &Server) -> String {
    let authority = std::fs::read_to_string(issuer.dir.path().join("data/pki/ca.crt"));
    json!({
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AuthenticationConfiguration",
        "jwt": [{
            "issuer": {
                "url": format!("https://127.0.0.1:{}", issuer.port),
                "audiences": [AUDIENCE],
                "certificateAuthority": authority.expect("the issuer's authority"),
            },
            "claimMappings": {
                "username": {"expression": "'first:' + claims.sub"},
                "groups": {"expression": "['first:' + claims['kubernetes.io'].namespace]"},
            },
            "userValidationRules": [{"expression": "!user.username.endsWith(':refused')", "message": "no"}],
        }],
    })
    .to_string()
}

#[test]
fn issuer_users_are_accounts_of_another_cluster() {
    let Some(program) = tool_or_skip("issuer_users_are_accounts_of_another_cluster", "kubectl") else {
        return;
    };
    let first = issuing(&program);
    let files = tempfile::tempdir().expect("a folder");
    let file = files.path().join("authentication.json");
    std::fs::write(&file, configuration(&first)).expect("a file");
    let second = Server::start(
        program.clone(),
        &[&format!("--authentication-config={}", file.display())],
    );
    first.kubectl(&["create", "serviceaccount", "refused"]);
    let token = |account: &str, audience: &str| {
        first.kubectl(&["create", "token", account, &format!("--audience={audience}")])
    };
    let good = token("default", AUDIENCE);
    let whoami = [
        "auth",
        "whoami",
        "-o",
        "jsonpath={.status.userInfo.username} {.status.userInfo.groups}",
    ];
    second.until("the issuer to be known", || {
        with_token(&program, &second, &good, &whoami).status.success()
    });
    let found = with_token(&program, &second, &good, &whoami);
    let expected = "first:system:serviceaccount:default:default [\"first:default\",\"system:authenticated\"]";
    assert_eq!(text(&found.stdout), expected);

    let get = ["get", "configmaps", "-n", "default", "-o", "name"];
    let refused = with_token(&program, &second, &good, &get);
    assert!(
        text(&refused.stderr).contains("User \"first:system:serviceaccount:default:default\" cannot list")
    );
    second.kubectl(&[
        "create",
        "rolebinding",
        "first",
        "--clusterrole=view",
        "--group=first:default",
    ]);
    second.until("the role to count", || {
        with_token(&program, &second, &good, &get).status.success()
    });

    for bad in [
        token("default", "another"),
        token("refused", AUDIENCE),
        format!("{good}x"),
    ] {
        let refused = with_token(&program, &second, &bad, &get);
        let said = text(&refused.stderr).to_owned();
        assert!(
            said.contains("Unauthorized") || said.contains("must be logged in"),
            "{said}"
        );
    }
    let log = std::fs::read_to_string(second.dir.path().join("log")).expect("a log");
    assert!(!log.contains(&good), "no token is in the log");
}
