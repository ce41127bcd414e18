use super::service_account::ServiceAccountTokens;
use super::token::{TokenAuthenticator, TokenAuthenticators};
use super::*;
use crate::jwt::SigningKey;
use crate::testing::{Objects, block_on};
use crate::token_request::{
    Account, BoundObjectReference, TokenIssuer, TokenLifetimes, TokenRequestError, TokenRequestSpec,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderValue;
use jiff::SignedDuration;

const ISSUER: &str = "https://kubernetes.default.svc";

struct Setup {
    objects: Arc<Objects>,
    issuer: TokenIssuer,
    chain: AuthenticatorChain,
}

fn now() -> Timestamp {
    "2026-11-21T12:00:00Z".parse().unwrap()
}

fn after(seconds: i64) -> Timestamp {
    now().checked_add(SignedDuration::from_secs(seconds)).unwrap()
}

fn setup() -> Setup {
    let objects = Arc::new(Objects::default());
    objects.put("", "serviceaccounts", "a", "sa", "{}");
    objects.put(
        "",
        "pods",
        "a",
        "pod",
        r#"{"spec":{"serviceAccountName":"sa","nodeName":"n1"}}"#,
    );
    objects.put("", "nodes", "", "n1", "{}");
    let key = SigningKey::generate().unwrap();
    let audiences = vec![ISSUER.to_owned()];
    let tokens = ServiceAccountTokens::new(
        Arc::clone(&objects) as _,
        vec![key.public().clone()],
        audiences.clone(),
    );
    let tokens = TokenAuthenticators::new(
        vec![Arc::new(tokens) as Arc<dyn TokenAuthenticator>],
        audiences.clone(),
    );
    let chain = AuthenticatorChain::new(vec![Arc::new(tokens), Arc::new(anonymous::Anonymous::default())]);
    Setup {
        objects,
        issuer: TokenIssuer {
            issuer: ISSUER.to_owned(),
            api_audiences: audiences,
            key,
            lifetimes: TokenLifetimes {
                maximum_seconds: 0,
                extends: true,
            },
        },
        chain,
    }
}

impl Setup {
    fn issue(&self, spec: &TokenRequestSpec) -> Result<String, TokenRequestError> {
        let account = Account {
            namespace: "a",
            name: "sa",
            uid: "uid-sa",
        };
        let mut spec = spec.clone();
        self.issuer.complete(&mut spec)?;
        block_on(
            self.issuer
                .issue(&*self.objects, account, &spec, now(), "id".to_owned()),
        )
        .map(|issued| issued.token)
    }

    fn ask(&self, token: Option<&str>, at: Timestamp) -> Result<UserInfo, Refusal> {
        let mut headers = HeaderMap::new();
        if let Some(token) = token {
            headers.insert(
                "authorization",
                HeaderValue::from_str(&format!("Bearer {token}")).unwrap(),
            );
        }
        let credentials = Credentials {
            peer: None,
            headers: &headers,
            path: "/api",
            client: None,
            now: at,
        };
        block_on(self.chain.authenticate(&credentials)).map(|found| found.user)
    }
}

fn bound(kind: &str, name: &str, uid: &str) -> TokenRequestSpec {
    let reference = BoundObjectReference {
        kind: kind.to_owned(),
        api_version: "v1".to_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
    };
    TokenRequestSpec {
        bound_object_ref: Some(reference),
        ..TokenRequestSpec::default()
    }
}

#[test]
fn token_issued_names_its_account() {
    let setup = self::setup();
    let token = setup.issue(&bound("Pod", "pod", "uid-pod")).unwrap();
    let user = setup.ask(Some(&token), after(10)).unwrap();
    assert_eq!(user.name, "system:serviceaccount:a:sa");
    assert_eq!(
        user.groups,
        [
            "system:serviceaccounts",
            "system:serviceaccounts:a",
            "system:authenticated"
        ]
    );
    let extra: Vec<_> = user
        .extra
        .iter()
        .map(|(key, values)| (key.rsplit('/').next().unwrap(), values[0].as_str()))
        .collect();
    assert_eq!(
        extra,
        [
            ("credential-id", "JTI=id"),
            ("node-name", "n1"),
            ("node-uid", "uid-n1"),
            ("pod-name", "pod"),
            ("pod-uid", "uid-pod")
        ]
    );
}

#[test]
fn tokens_end() {
    let setup = self::setup();
    let token = setup.issue(&TokenRequestSpec::default()).unwrap();
    let of_pod = setup.issue(&bound("Pod", "pod", "")).unwrap();
    assert!(
        setup
            .ask(Some(&token), after(-120))
            .unwrap_err()
            .reason
            .contains("not valid yet")
    );
    setup.objects.remove("", "pods", "a", "pod");
    assert!(setup.ask(Some(&of_pod), after(1)).is_err());
    assert!(setup.ask(Some(&token), after(3_600)).is_ok());
    assert!(
        setup
            .ask(Some(&token), after(3_700))
            .unwrap_err()
            .reason
            .contains("expired")
    );
    let other = self::setup();
    let token = other.issue(&TokenRequestSpec::default()).unwrap();
    other.objects.remove("", "serviceaccounts", "a", "sa");
    assert!(other.ask(Some(&token), after(60)).is_err());
}

#[test]
fn bad_tokens_are_never_anonymous() {
    let setup = self::setup();
    assert_eq!(setup.ask(None, now()).unwrap().name, "system:anonymous");
    assert!(setup.ask(Some("x"), now()).is_err());
    let other = self::setup();
    assert!(
        setup
            .ask(Some(&other.issue(&TokenRequestSpec::default()).unwrap()), now())
            .is_err()
    );
    let spec = TokenRequestSpec {
        audiences: vec!["vault".to_owned()],
        ..TokenRequestSpec::default()
    };
    assert!(
        setup
            .ask(Some(&setup.issue(&spec).unwrap()), now())
            .unwrap_err()
            .reason
            .contains("audiences")
    );
}

#[test]
fn requests_are_checked() {
    let setup = self::setup();
    let short = TokenRequestSpec {
        expiration_seconds: Some(1),
        ..TokenRequestSpec::default()
    };
    assert!(matches!(setup.issue(&short), Err(TokenRequestError::Invalid(_))));
    assert!(matches!(
        setup.issue(&bound("Pod", "gone", "")),
        Err(TokenRequestError::NotFound { .. })
    ));
    assert!(matches!(
        setup.issue(&bound("Pod", "pod", "other")),
        Err(TokenRequestError::Conflict { .. })
    ));
    assert!(matches!(
        setup.issue(&bound("Job", "x", "")),
        Err(TokenRequestError::BadRequest(_))
    ));
}

#[test]
fn bearer_token_of_browser_is_read_once_and_removed() {
    let setup = setup();
    let token = setup.issue(&TokenRequestSpec::default()).unwrap();
    let encoded = URL_SAFE_NO_PAD.encode(&token);
    let own = format!("base64url.bearer.authorization.k8s.io.{encoded}");
    let ask_with = |authorization: Option<&'static str>, upgrade: bool, protocols: &[&str]| {
        let mut headers = HeaderMap::new();
        if let Some(authorization) = authorization {
            headers.insert("authorization", HeaderValue::from_static(authorization));
        }
        if upgrade {
            headers.insert("upgrade", HeaderValue::from_static("WebSocket"));
            headers.insert("connection", HeaderValue::from_static("Upgrade"));
        }
        for list in protocols {
            headers.append("sec-websocket-protocol", list.parse().unwrap());
        }
        headers.insert("x-remote-user", HeaderValue::from_static("mallory"));
        headers.insert("x-remote-extra-scopes", HeaderValue::from_static("all"));
        let credentials = Credentials {
            peer: None,
            headers: &headers,
            path: "/api",
            client: None,
            now: now(),
        };
        let found = block_on(setup.chain.authenticate(&credentials)).map(|found| found.user.name);
        forget_credentials(&mut headers, &FrontProxyHeaders::default());
        let rest = headers
            .get("sec-websocket-protocol")
            .map(|rest| rest.to_str().unwrap().to_owned());
        assert!(!headers.keys().any(|name| name.as_str().starts_with("x-remote")));
        (found.map_err(|refusal| refusal.reason), rest.unwrap_or_default())
    };
    let ask = |upgrade, protocols: &[&str]| ask_with(None, upgrade, protocols);
    let account = Ok("system:serviceaccount:a:sa".to_owned());
    let both = format!("v5.channel.k8s.io, {own}");
    assert_eq!(
        ask(true, &[&both, "v4.channel.k8s.io"]),
        (account, "v5.channel.k8s.io,v4.channel.k8s.io".to_owned())
    );
    // A header that always comes along hides no good token (upstream's union of authenticators).
    let found = ask_with(Some("Bearer bad"), true, &[&both]).0;
    assert_eq!(found, Ok("system:serviceaccount:a:sa".to_owned()));
    for (protocols, why) in [
        (vec![own.as_str()], "missing additional subprotocol"),
        (
            vec![own.as_str(), "x", own.as_str()],
            "multiple base64.bearer.authorization tokens specified",
        ),
        (
            vec!["base64url.bearer.authorization.k8s.io.?", "x"],
            "invalid base64.bearer.authorization token encoding",
        ),
    ] {
        assert_eq!(ask(true, &protocols).0, Err(why.to_owned()));
    }
    // What is no WebSocket brings no token there.
    assert_eq!(ask(false, &[&both]).0, Ok("system:anonymous".to_owned()));
}

#[test]
fn token_bound_to_a_name_no_path_can_hold_is_a_bad_request() {
    let setup = self::setup();
    let refused = setup.issue(&bound("Pod", "/", "")).unwrap_err();
    let told = r#"Name parameter invalid: "/": may not contain '/'"#;
    assert!(matches!(refused, TokenRequestError::BadRequest(why) if why == told));
    // A version of three parts is of no group: the kind decides, as upstream.
    let mut odd = bound("Pod", "pod", "uid-pod");
    odd.bound_object_ref.as_mut().unwrap().api_version = "a/b/v1".to_owned();
    assert!(setup.issue(&odd).is_ok());
    odd.bound_object_ref.as_mut().unwrap().kind = "Thing".to_owned();
    let refused = setup.issue(&odd).unwrap_err();
    let told = "cannot bind token to object of type /, Kind=Thing";
    assert!(matches!(refused, TokenRequestError::BadRequest(why) if why == told));
}
