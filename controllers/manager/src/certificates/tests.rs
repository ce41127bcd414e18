//! Upstream's tables of approver, signer and cleaner.

use super::approve::{NODE_CLIENT, Recognized, SELF_NODE_CLIENT, SELF_NODE_SERVER, pause, recognized};
use super::clean::left;
use super::sign::{checked, lifetime};
use super::view::RequestView;
use super::{API_CLIENT, KUBELET_CLIENT, KUBELET_SERVING};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::CertificateSigningRequestSpec;
use machinery_client::object::object_of;
use machinery_x509::CertificateRequest;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

/// A request, its requestor, and the address that it came from.
#[derive(Clone)]
struct Case {
    common_name: &'static str,
    organizations: Vec<&'static str>,
    requestor: &'static str,
    usages: Vec<&'static str>,
    signer: &'static str,
    names: Vec<SanType>,
    seen: Option<&'static str>,
}

fn api_server_names() -> BTreeSet<String> {
    ["kubernetes.default.svc", "192.0.2.1"].map(str::to_owned).into()
}

fn dns(name: &str) -> SanType {
    SanType::DnsName(name.try_into().unwrap())
}

fn ip(address: &str) -> SanType {
    SanType::IpAddress(address.parse().unwrap())
}

impl Case {
    fn client() -> Self {
        Self {
            common_name: "system:node:foo",
            organizations: vec!["system:nodes"],
            requestor: "system:node:foo",
            usages: vec!["key encipherment", "digital signature", "client auth"],
            signer: KUBELET_CLIENT,
            names: Vec::new(),
            seen: None,
        }
    }

    fn serving() -> Self {
        Self {
            usages: vec!["key encipherment", "digital signature", "server auth"],
            signer: KUBELET_SERVING,
            names: vec![dns("foo"), ip("192.0.2.7")],
            seen: Some("192.0.2.7"),
            ..Self::client()
        }
    }

    fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    fn spec(&self) -> CertificateSigningRequestSpec {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        for organization in &self.organizations {
            params
                .distinguished_name
                .push(DnType::OrganizationName, *organization);
        }
        params
            .distinguished_name
            .push(DnType::CommonName, self.common_name);
        params.subject_alt_names.clone_from(&self.names);
        let key = KeyPair::generate().unwrap();
        CertificateSigningRequestSpec {
            request: ByteString(
                params
                    .serialize_request(&key)
                    .unwrap()
                    .pem()
                    .unwrap()
                    .into_bytes(),
            ),
            signer_name: self.signer.to_owned(),
            username: Some(self.requestor.to_owned()),
            usages: Some(self.usages.iter().map(|own| (*own).to_owned()).collect()),
            ..CertificateSigningRequestSpec::default()
        }
    }

    #[track_caller]
    fn check(&self, case: &str, expected: &[Recognized]) {
        let spec = self.spec();
        let request = CertificateRequest::from_pem(&spec.request.0).unwrap();
        let seen = self.seen.map(|seen| seen.parse().unwrap());
        assert_eq!(
            recognized(&spec, &request, seen, &api_server_names()),
            expected,
            "{case}"
        );
    }

    #[track_caller]
    fn check_problem(&self, expected: Option<&str>) {
        let found = checked(&self.spec(), &api_server_names());
        assert_eq!(found.err().as_deref(), expected);
    }
}

/// Upstream's `TestRecognizers`.
#[test]
fn requests_of_kubelet_clients_are_recognized_as_upstreams() {
    let both = [SELF_NODE_CLIENT, NODE_CLIENT];
    Case::client().check("good", &both);
    Case::client()
        .with(|case| case.usages = vec!["digital signature", "client auth"])
        .check("without the encipherment of keys", &both);
    Case::client()
        .with(|case| case.common_name = "mike")
        .check("a user", &[]);
    Case::client()
        .with(|case| case.organizations = Vec::new())
        .check("no organization", &[]);
    Case::client()
        .with(|case| case.organizations = vec!["system:master"])
        .check("another organization", &[]);
    Case::client()
        .with(|case| case.usages.push("server auth"))
        .check("another usage", &[]);
    Case::client()
        .with(|case| case.usages = vec!["digital signature"])
        .check("no client", &[]);
    Case::client()
        .with(|case| case.requestor = "joe")
        .check("another requestor", &[NODE_CLIENT]);
    Case::client()
        .with(|case| case.common_name = "system:node:bar")
        .check("another node", &[NODE_CLIENT]);
    Case::client()
        .with(|case| case.signer = API_CLIENT)
        .check("another signer", &[]);
    Case::client()
        .with(|case| case.names = vec![dns("foo")])
        .check("a name", &[]);
}

#[test]
fn requests_for_serving_are_recognized_for_names_and_addresses_that_the_server_saw() {
    Case::serving().check("good", &[SELF_NODE_SERVER]);
    Case::serving()
        .with(|case| case.seen = None)
        .check("nobody saw it", &[]);
    Case::serving()
        .with(|case| case.seen = Some("192.0.2.8"))
        .check("another address", &[]);
    Case::serving()
        .with(|case| case.names.push(ip("192.0.2.8")))
        .check("one address more", &[]);
    Case::serving()
        .with(|case| case.names.push(dns("kubernetes")))
        .check("another name", &[]);
    Case::serving()
        .with(|case| case.requestor = "system:node:bar")
        .check("another node's", &[]);
    Case::serving()
        .with(|case| case.names = vec![dns("foo")])
        .check("its name alone", &[SELF_NODE_SERVER]);
    Case::serving()
        .with(|case| case.names.clear())
        .check("no name", &[]);
}

/// Pods trust the authority: a kubelet that served for these would be the API server to them.
#[test]
fn kubelets_never_serve_for_the_api_server() {
    let node = |name: &'static str, user: &'static str| {
        let names = vec![dns(name), ip("192.0.2.7")];
        Case::serving().with(|case| {
            (case.common_name, case.requestor, case.names) = (user, user, names);
        })
    };
    node("bar", "system:node:bar").check("another node's own name", &[SELF_NODE_SERVER]);
    let server = node("kubernetes.default.svc", "system:node:kubernetes.default.svc");
    server.check("a node with the server's name", &[]);
    let refused = Some("subjectAltNames of the API server are not allowed");
    server.check_problem(refused);
    let wildcard = node("*.default.svc", "system:node:*.default.svc");
    wildcard.check("a node with a wildcard for a name", &[]);
    for name in [
        "webhook.prod.svc",
        "webhook.prod.svc.cluster.local",
        "10-0-0-1.prod.pod.cluster.local",
        "localhost",
    ] {
        let user: &'static str = Box::leak(format!("system:node:{name}").into_boxed_str());
        node(name, user).check("a node with the name of a Service or a pod", &[]);
    }
    let address = Case::serving().with(|case| {
        (case.names, case.seen) = (vec![ip("192.0.2.1")], Some("192.0.2.1"));
    });
    address.check("the server's address", &[]);
    address.check_problem(refused);
}

/// Upstream's `TestHandle` of the signer, and the words of its helpers.
#[test]
fn requests_that_signers_refuse_have_upstreams_words() {
    let user = Case::client().with(|case| {
        (case.signer, case.common_name) = (API_CLIENT, "hello-world");
        case.organizations = vec!["some-org"];
    });
    user.check_problem(None);
    user.clone()
        .with(|case| case.usages.push("server auth"))
        .check_problem(Some("invalid usage for client certificate: server auth"));
    user.clone()
        .with(|case| case.organizations.push("system:masters"))
        .check_problem(Some(
            "use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed",
        ));
    user.with(|case| case.usages = vec!["digital signature"])
        .check_problem(Some("missing required usage for client certificate: client auth"));
    Case::client().check_problem(None);
    Case::client()
        .with(|case| case.organizations = vec!["system:nodes", "other"])
        .check_problem(Some("subject organization is not system:nodes"));
    let client = |name: SanType, problem: &str| {
        Case::client()
            .with(|case| case.names = vec![name])
            .check_problem(Some(problem));
    };
    client(dns("a"), "DNS subjectAltNames are not allowed");
    client(ip("192.0.2.7"), "IP subjectAltNames are not allowed");
    let email = || SanType::Rfc822Name("a@example.com".try_into().unwrap());
    let uri = || SanType::URI("https://example.com".try_into().unwrap());
    client(email(), "Email subjectAltNames are not allowed");
    client(uri(), "URI subjectAltNames are not allowed");
    Case::client()
        .with(|case| case.common_name = "hello-world")
        .check_problem(Some("subject common name does not begin with system:node:"));
    Case::client()
        .with(|case| case.usages = vec!["client auth"])
        .check_problem(Some(
            "usages did not match [client auth digital signature key encipherment]",
        ));
    // Signed for any name: its approver has checked the names.
    Case::serving()
        .with(|case| case.names = vec![dns("example.com")])
        .check_problem(None);
    Case::serving()
        .with(|case| case.names.clear())
        .check_problem(Some("DNS or IP subjectAltName is required"));
    Case::serving()
        .with(|case| case.names.push(email()))
        .check_problem(Some("Email subjectAltNames are not allowed"));
    Case::serving()
        .with(|case| case.names.push(uri()))
        .check_problem(Some("URI subjectAltNames are not allowed"));
    Case::serving()
        .with(|case| case.usages.push("client auth"))
        .check_problem(Some(
            "usages did not match [digital signature key encipherment server auth]",
        ));
    Case::serving()
        .with(|case| case.common_name = "foo")
        .check_problem(Some("subject common name does not begin with system:node:"));
}

/// Upstream's `Test_signer_duration`.
#[test]
fn lives_of_certificates_are_upstreams() {
    const HOUR: Duration = Duration::from_secs(3_600);
    for (requested, expected) in [
        (Some(1_800), Duration::from_secs(1_800)),
        (Some(3 * 3_600), HOUR),
        (Some(-60), Duration::from_secs(600)),
        (Some(599), Duration::from_secs(600)),
        (Some(600), Duration::from_secs(600)),
        (Some(3_600), HOUR),
        (None, HOUR),
    ] {
        assert_eq!(lifetime(requested, HOUR), expected, "{requested:?}");
    }
}

const NOW: &str = "2026-11-28T12:00:00Z";

fn ago(minutes: i64) -> Value {
    let at = NOW.parse::<Timestamp>().unwrap() - SignedDuration::from_mins(minutes);
    json!(at.to_string())
}

/// A certificate that ends at the end of this year.
fn certificate(year: i32) -> String {
    let mut params = CertificateParams::default();
    (params.not_before, params.not_after) = (
        rcgen::date_time_ymd(year, 1, 1),
        rcgen::date_time_ymd(year, 12, 31),
    );
    params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem()
}

fn view(created_minutes_ago: i64, certificate: Option<&str>, conditions: &Value) -> RequestView {
    let certificate = certificate.map(|own| STANDARD.encode(own));
    let json = json!({"metadata": {"name": "r", "creationTimestamp": ago(created_minutes_ago)},
        "spec": {"signerName": KUBELET_CLIENT},
        "status": {"certificate": certificate, "conditions": conditions}});
    object_of::<RequestView>(&json.to_string()).unwrap().projection
}

#[track_caller]
fn check_cleaned(case: &str, request: &RequestView, expected: bool) {
    let now = NOW.parse().unwrap();
    let goes = request.goes_after.is_some_and(|at| left(at, now).is_none());
    assert_eq!(goes, expected, "{case}");
}

/// Upstream's `TestCleanerWithApprovedExpiredCSR`.
#[test]
fn requests_are_cleaned_at_upstreams_ages() {
    let (good, expired) = (certificate(2027), certificate(2025));
    let condition =
        |kind: &str, minutes: i64| json!({"type": kind, "status": "True", "lastUpdateTime": ago(minutes)});
    let one = |kind: &str, minutes: i64| json!([condition(kind, minutes)]);
    let failed = |minutes: i64| json!([condition("Approved", 120), condition("Failed", minutes)]);
    let check = check_cleaned;
    check("approved", &view(1, Some(&good), &one("Approved", 50)), false);
    check(
        "approved, not issued",
        &view(1, None, &one("Approved", 50)),
        false,
    );
    check(
        "approved long ago, not issued",
        &view(1, None, &one("Approved", 120)),
        false,
    );
    // `isApprovedUnissuedPastDeadline`, of 1.37.
    let unissued = |hours: i64| view(1, None, &one("Approved", hours * 60));
    check("approved yesterday, not issued", &unissued(25), true);
    check("approved today, not issued", &unissued(23), false);
    check(
        "approved long ago",
        &view(1, Some(&good), &one("Approved", 120)),
        true,
    );
    check("denied", &view(1, None, &one("Denied", 50)), false);
    check("denied long ago", &view(1, None, &one("Denied", 120)), true);
    check("failed", &view(1, None, &failed(50)), false);
    check("failed long ago", &view(1, None, &failed(120)), true);
    check("pending", &view(5 * 60, None, &json!([])), false);
    check("pending for long", &view(25 * 60, None, &json!([])), true);
    check("expired", &view(1, Some(&expired), &one("Approved", 50)), true);
    check("garbage", &view(1, Some("garbage"), &one("Approved", 50)), false);
    check(
        "garbage long ago",
        &view(1, Some("garbage"), &one("Approved", 120)),
        true,
    );
    check("just now", &view(1, Some(&good), &one("Approved", 60)), false);
}

#[test]
fn requests_wait_for_approver_or_signer() {
    let conditions = |kinds: &[&str]| {
        json!(
            kinds
                .iter()
                .map(|kind| json!({"type": kind, "status": "True"}))
                .collect::<Vec<_>>()
        )
    };
    let stands = |certificate: Option<&str>, kinds: &[&str]| {
        let view = view(1, certificate, &conditions(kinds));
        (view.is_pending(), view.waits_for_signer())
    };
    assert_eq!(stands(None, &[]), (true, false));
    assert_eq!(stands(None, &["Approved"]), (false, true));
    assert_eq!(stands(None, &["Denied"]), (false, false));
    assert_eq!(stands(None, &["Approved", "Denied"]), (false, false));
    assert_eq!(stands(None, &["Approved", "Failed"]), (false, false));
    assert_eq!(stands(Some("c"), &["Approved"]), (false, false));
}

#[test]
fn reviews_are_repeated_ever_more_seldom() {
    let now: Timestamp = NOW.parse().unwrap();
    let at = |seconds: i64| pause(now - SignedDuration::from_secs(seconds), now);
    assert_eq!(at(0), Duration::from_millis(200));
    assert_eq!(at(30), Duration::from_secs(30));
    assert_eq!(at(100_000), Duration::from_secs(1_000));
}
