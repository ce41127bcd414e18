use super::*;
use crate::authn::{PeerCertificate, forget_credentials};
use crate::pki::{Authority, Identity, Pki, ServingNames};
use crate::testing::{block_on, yaml};
use jiff::Timestamp;
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Deserialize)]
struct Case {
    case: String,
    #[serde(default)]
    names: Vec<String>,
    #[serde(default)]
    uids: Vec<String>,
    #[serde(default)]
    groups: Vec<String>,
    #[serde(default)]
    prefixes: Vec<String>,
    #[serde(default)]
    request: BTreeMap<String, Vec<String>>,
    user: Option<User>,
    #[serde(default)]
    left: Vec<String>,
}

#[derive(Debug, Deserialize, PartialEq)]
struct User {
    name: String,
    #[serde(default)]
    uid: String,
    #[serde(default)]
    groups: Vec<String>,
    #[serde(default)]
    extra: BTreeMap<String, Vec<String>>,
}

impl Case {
    fn headers(&self) -> FrontProxyHeaders {
        let names = |all: &[String]| all.iter().map(|name| name.parse().unwrap()).collect();
        FrontProxyHeaders {
            username: names(&self.names),
            uid: names(&self.uids),
            group: names(&self.groups),
            extra_prefix: self.prefixes.iter().map(|own| own.to_ascii_lowercase()).collect(),
        }
    }

    fn request(&self) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, values) in &self.request {
            for value in values {
                let name: HeaderName = name.parse().unwrap();
                map.append(name, HeaderValue::from_str(value).unwrap());
            }
        }
        map
    }
}

#[test]
fn front_proxy_headers_are_read_and_stripped_as_upstreams() {
    let cases: Vec<Case> = yaml(include_str!("../../../testdata/authn/request_header.yaml"));
    for case in cases {
        let (headers, mut request) = (case.headers(), case.request());
        let found = headers.user(&request).unwrap().map(|user| User {
            name: user.name,
            uid: user.uid,
            groups: user.groups,
            extra: user.extra,
        });
        assert_eq!(found, case.user, "{}", case.case);
        if found.is_none() {
            continue;
        }
        headers.forget(&mut request);
        let mut left: Vec<&str> = request.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, case.left, "{}", case.case);
    }
}

struct Proxy {
    trusted: Pki,
    other: Pki,
}

fn now() -> Timestamp {
    "2026-11-21T12:00:00Z".parse().unwrap()
}

impl Proxy {
    fn new() -> Self {
        let generate = || Pki::generate(&ServingNames::default(), now()).unwrap();
        Self {
            trusted: generate(),
            other: generate(),
        }
    }

    fn authenticator(&self, allowed: &[&str]) -> RequestHeader {
        let allowed = allowed.iter().map(|name| (*name).to_owned()).collect();
        let authority = [self.trusted.front_proxy.certificate().clone()];
        RequestHeader::new(&authority, allowed, FrontProxyHeaders::default()).unwrap()
    }
}

fn ask(proxy: &RequestHeader, peer: Option<&PeerCertificate>, user: &[u8]) -> Outcome {
    let mut headers = HeaderMap::new();
    if !user.is_empty() {
        headers.insert("x-remote-user", HeaderValue::from_bytes(user).unwrap());
    }
    let credentials = Credentials {
        peer,
        headers: &headers,
        path: "/api",
        client: None,
        now: now(),
    };
    block_on(proxy.authenticate(&credentials))
}

fn peer(identity: &Identity) -> PeerCertificate {
    PeerCertificate::new(identity.chain()).unwrap()
}

#[test]
fn front_proxy_is_known_by_authority_and_common_name() {
    let setup = Proxy::new();
    let proxy = |name: &str| peer(&setup.trusted.front_proxy.client(name, None, now()).unwrap());
    let forged = peer(&setup.other.front_proxy.client("proxy", None, now()).unwrap());
    let by_name = setup.authenticator(&["proxy"]);
    let any = setup.authenticator(&[]);
    for (authenticator, peer, let_in) in [
        (&by_name, Some(&proxy("proxy")), true),
        (&by_name, Some(&proxy("other")), false),
        (&by_name, Some(&forged), false),
        (&by_name, None, false),
        (&any, Some(&proxy("other")), true),
        (&any, Some(&forged), false),
    ] {
        match ask(authenticator, peer, b"Bob") {
            Outcome::User(found) => {
                assert!(let_in);
                assert_eq!((found.user.name.as_str(), found.user.groups.len()), ("Bob", 1));
            }
            Outcome::Pass => assert!(!let_in),
            Outcome::Refused(refusal) => panic!("{refusal}"),
        }
    }
    assert!(matches!(ask(&by_name, Some(&proxy("proxy")), b""), Outcome::Pass));
    assert!(matches!(
        ask(&by_name, Some(&proxy("proxy")), b"B\xffb"),
        Outcome::Refused(_)
    ));
}

#[test]
fn front_proxy_authorities_are_replaced_under_open_connections() {
    let setup = Proxy::new();
    let authenticator = setup.authenticator(&[]);
    let open = peer(&setup.trusted.front_proxy.client("proxy", None, now()).unwrap());
    assert!(matches!(
        ask(&authenticator, Some(&open), b"Bob"),
        Outcome::User(_)
    ));
    authenticator
        .replace(&[setup.other.front_proxy.certificate().clone()])
        .unwrap();
    assert!(matches!(ask(&authenticator, Some(&open), b"Bob"), Outcome::Pass));
}

#[test]
fn front_proxy_headers_are_removed_after_authentication() {
    let own = FrontProxyHeaders {
        username: vec![HeaderName::from_static("x-our-user")],
        ..FrontProxyHeaders::default()
    };
    let mut headers = HeaderMap::new();
    for name in ["x-our-user", "x-remote-user", "x-remote-extra-scopes", "accept"] {
        headers.insert(name, HeaderValue::from_static("x"));
    }
    forget_credentials(&mut headers, &own);
    assert_eq!(
        headers.keys().map(HeaderName::as_str).collect::<Vec<_>>(),
        ["accept"]
    );
}

#[test]
fn front_proxies_of_an_operator_refuse_other_certificates() {
    let setup = Proxy::new();
    let (own, strict) = (
        setup.authenticator(&["proxy"]),
        setup.authenticator(&["proxy"]).refusing_others(),
    );
    let client = |authority: &Authority, name: &str| peer(&authority.client(name, None, now()).unwrap());
    let named = client(&setup.trusted.front_proxy, "other");
    let stranger = client(&setup.trusted.cluster, "proxy");
    let unknown = "x509: certificate signed by unknown authority";
    for (peer, why) in [
        (&named, "x509: subject with cn=other is not in the allowed list"),
        (&stranger, unknown),
    ] {
        for user in [b"" as &[u8], b"Bob"] {
            assert!(matches!(ask(&own, Some(peer), user), Outcome::Pass));
            let Outcome::Refused(refusal) = ask(&strict, Some(peer), user) else {
                panic!("refused")
            };
            assert_eq!(refusal.reason, why);
        }
    }
    let proxy = client(&setup.trusted.front_proxy, "proxy");
    assert!(matches!(ask(&strict, Some(&proxy), b""), Outcome::Pass));
    assert!(matches!(ask(&strict, Some(&proxy), b"Bob"), Outcome::User(_)));
    assert!(matches!(ask(&strict, None, b"Bob"), Outcome::Pass));
}
