use super::*;
use crate::authz::attributes::{AttributesTarget, ResourceTarget};
use crate::authz::{Authorizer, AuthzFuture, Busy, Decision, UserRules};
use crate::testing::block_on;
use http::{HeaderName, HeaderValue};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::Arc;

fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in pairs {
        map.append(
            name.parse::<HeaderName>().unwrap(),
            HeaderValue::from_bytes(value.as_bytes()).unwrap(),
        );
    }
    map
}

#[test]
fn impersonation_headers_name_a_user() {
    let map = headers(&[
        ("Impersonate-User", "jürgen"),
        ("Impersonate-Group", "dev"),
        ("Impersonate-Extra-acme%2ecom%2Fscope", "a"),
    ]);
    let wanted = headers::wanted(&map).unwrap().unwrap();
    assert_eq!(
        (wanted.name.as_str(), wanted.groups.as_slice()),
        ("jürgen", &["dev".to_owned()][..])
    );
    assert_eq!(wanted.extra["acme.com/scope"], ["a"]);
    assert!(headers::wanted(&headers(&[("Accept", "x")])).unwrap().is_none());
    assert!(matches!(
        headers::wanted(&headers(&[("Impersonate-Group", "x")])),
        Err(ImpersonationError::WithoutUser(_))
    ));
    let mut map = HeaderMap::new();
    map.append("impersonate-user", HeaderValue::from_bytes(b"j\xffn").unwrap());
    assert!(matches!(headers::wanted(&map), Err(ImpersonationError::NotText)));
}

#[derive(Debug, Clone, Deserialize, PartialEq, Eq)]
struct User {
    name: String,
    #[serde(default)]
    uid: String,
    #[serde(default)]
    groups: Vec<String>,
    #[serde(default)]
    extra: BTreeMap<String, Vec<String>>,
}

impl User {
    fn info(&self) -> UserInfo {
        UserInfo {
            name: self.name.clone(),
            uid: self.uid.clone(),
            groups: self.groups.clone(),
            extra: self.extra.clone(),
        }
    }

    fn headers(&self) -> HeaderMap {
        let mut map = headers(&[("impersonate-user", &self.name)]);
        let mut add = |name: &str, value: &str| {
            let name: HeaderName = name.parse().unwrap();
            map.append(name, HeaderValue::from_str(value).unwrap());
        };
        if !self.uid.is_empty() {
            add("impersonate-uid", &self.uid);
        }
        self.groups
            .iter()
            .for_each(|group| add("impersonate-group", group));
        for (key, values) in &self.extra {
            let escaped: String = key.bytes().map(|byte| format!("%{byte:02x}")).collect();
            values
                .iter()
                .for_each(|value| add(&format!("impersonate-extra-{escaped}"), value));
        }
        map
    }
}

#[derive(Debug, Clone, Default, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(default)]
struct RecordedRequest {
    verb: String,
    group: String,
    version: String,
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
    path: String,
}

impl RecordedRequest {
    fn of(attributes: &Attributes<'_>) -> Self {
        let verb = attributes.verb.to_owned();
        match &attributes.target {
            AttributesTarget::Path(path) => Self {
                verb,
                path: (*path).to_owned(),
                ..Self::default()
            },
            AttributesTarget::Resource(own) => Self {
                verb,
                group: own.group.to_owned(),
                version: own.version.to_owned(),
                resource: own.resource.to_owned(),
                subresource: own.subresource.to_owned(),
                namespace: own.namespace.to_owned(),
                name: own.name.to_owned(),
                path: String::new(),
            },
        }
    }

    fn target(&self) -> AttributesTarget<'_> {
        if self.resource.is_empty() {
            return AttributesTarget::Path(&self.path);
        }
        AttributesTarget::Resource(ResourceTarget {
            group: &self.group,
            version: &self.version,
            resource: &self.resource,
            subresource: &self.subresource,
            namespace: &self.namespace,
            name: &self.name,
            field_selector: None,
            label_selector: None,
        })
    }
}

#[derive(Debug, Clone, Deserialize)]
struct Check {
    #[serde(flatten)]
    asked: RecordedRequest,
    user: User,
    allowed: bool,
}

/// A request of upstream's table, with upstream's calls of its authorizer and the answers.
#[derive(Debug, Deserialize)]
struct Case {
    case: String,
    requestor: User,
    request: RecordedRequest,
    wanted: User,
    checks: Vec<Check>,
    user: Option<User>,
    constraint: Option<String>,
    message: Option<String>,
}

/// An authorizer with the answers of upstream's, for upstream's calls alone.
#[derive(Debug)]
struct Recorded {
    checks: Vec<Check>,
    asked: Mutex<Vec<RecordedRequest>>,
}

impl Authorizer for Recorded {
    fn name(&self) -> &'static str {
        "recorded"
    }

    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> AuthzFuture<'a, Result<Decision, Busy>> {
        let asked = RecordedRequest::of(attributes);
        let known = self.checks.iter().find(|check| check.asked == asked);
        let known = known.unwrap_or_else(|| panic!("upstream does not ask {asked:?}"));
        assert_eq!(known.user.info(), *attributes.user, "{asked:?}");
        self.asked.lock().push(asked);
        let decision = if known.allowed {
            Decision::Allow(Default::default())
        } else {
            Decision::no_opinion("deny by default")
        };
        Box::pin(std::future::ready(Ok(decision)))
    }

    fn rules_for<'a>(&'a self, _: &'a UserInfo, _: &'a str) -> AuthzFuture<'a, UserRules> {
        Box::pin(std::future::ready(UserRules::default()))
    }
}

fn check(case: &Case) {
    let recorded = Arc::new(Recorded {
        checks: case.checks.clone(),
        asked: Mutex::default(),
    });
    let chain = AuthorizerChain::new(vec![Arc::clone(&recorded) as _]);
    let requestor = case.requestor.info();
    let request = Attributes {
        asker: None,
        user: &requestor,
        verb: &case.request.verb,
        target: case.request.target(),
    };
    let found = block_on(Impersonation::default().impersonate(&request, &case.wanted.headers(), &chain));
    let what = &case.case;
    match found {
        Ok(found) => {
            let found = found.unwrap();
            let expected = case
                .user
                .as_ref()
                .unwrap_or_else(|| panic!("{what}: {:?}", case.message));
            assert_eq!(found.user, expected.info(), "{what}");
            assert_eq!(found.constraint, case.constraint.as_deref(), "{what}");
        }
        // Upstream's answers are of an authorizer alone, which has no name.
        Err(error) => assert_eq!(
            Some(error.to_string().replace("recorded: ", "")),
            case.message,
            "{what}"
        ),
    }
    let (mut asked, mut expected) = (
        recorded.asked.lock().clone(),
        case.checks
            .iter()
            .map(|check| check.asked.clone())
            .collect::<Vec<_>>(),
    );
    // Upstream goes through extras in no order.
    if case.wanted.extra.len() > 1 {
        asked.sort();
        expected.sort();
    }
    assert_eq!(asked, expected, "{what}");
}

#[test]
fn impersonation_asks_and_answers_as_upstreams() {
    let cases: Vec<Case> = serde_json::from_str(include_str!("../../testdata/impersonation.json")).unwrap();
    assert_eq!(cases.len(), 29);
    cases.iter().for_each(check);
}

/// Allows one verb.
#[derive(Debug)]
struct Only(&'static str, Mutex<Vec<String>>);

impl Authorizer for Only {
    fn name(&self) -> &'static str {
        "only"
    }

    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> AuthzFuture<'a, Result<Decision, Busy>> {
        self.1.lock().push(attributes.verb.to_owned());
        let decision = if attributes.verb == self.0 {
            Decision::Allow(Default::default())
        } else {
            Decision::no_opinion("")
        };
        Box::pin(std::future::ready(Ok(decision)))
    }

    fn rules_for<'a>(&'a self, _: &'a UserInfo, _: &'a str) -> AuthzFuture<'a, UserRules> {
        Box::pin(std::future::ready(UserRules::default()))
    }
}

#[test]
fn impersonation_tries_the_mode_that_served_a_user_last_first() {
    let only = Arc::new(Only("impersonate", Mutex::default()));
    let chain = AuthorizerChain::new(vec![Arc::clone(&only) as _]);
    let (impersonation, user) = (Impersonation::default(), UserInfo::named("ann", ["dev"]));
    let request = Attributes {
        asker: None,
        user: &user,
        verb: "get",
        target: AttributesTarget::Path("/version"),
    };
    let map = headers(&[("impersonate-user", "jane")]);
    for expected in [
        &["impersonate-on:user-info:get", "impersonate"][..],
        &["impersonate"],
    ] {
        let found = block_on(impersonation.impersonate(&request, &map, &chain)).unwrap();
        assert_eq!(found.unwrap().constraint, None);
        assert_eq!(std::mem::take(&mut *only.1.lock()), expected);
    }
}

/// Allows the old mode, and has not decided about others.
#[derive(Debug)]
struct OnlyOldDecided;

impl Authorizer for OnlyOldDecided {
    fn name(&self) -> &'static str {
        "old"
    }

    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> AuthzFuture<'a, Result<Decision, Busy>> {
        let decision = match attributes.verb {
            "impersonate" => Ok(Decision::Allow(Default::default())),
            _ => Err(Busy),
        };
        Box::pin(std::future::ready(decision))
    }

    fn rules_for<'a>(&'a self, _: &'a UserInfo, _: &'a str) -> AuthzFuture<'a, UserRules> {
        Box::pin(std::future::ready(UserRules::default()))
    }
}

/// Asks to be `anna` where this chain authorizes.
fn anna_by(chain: &AuthorizerChain) -> Result<Option<Impersonated>, ImpersonationError> {
    let requestor = UserInfo::named("ops", [UserInfo::AUTHENTICATED]);
    let request = Attributes {
        asker: None,
        user: &requestor,
        verb: "get",
        target: AttributesTarget::Path("/healthz"),
    };
    let wanted = headers(&[("impersonate-user", "anna")]);
    block_on(Impersonation::default().impersonate(&request, &wanted, chain))
}

#[test]
fn impersonation_that_one_mode_allows_waits_for_no_other() {
    let chain = AuthorizerChain::new(vec![Arc::new(OnlyOldDecided)]);
    assert_eq!(anna_by(&chain).unwrap().unwrap().user.name, "anna");
}

/// No refusal is an answer where the authorizers have not decided.
#[test]
fn impersonation_that_is_not_decided_is_no_refusal() {
    let found = anna_by(&crate::testing::crowded());
    assert!(matches!(found, Err(ImpersonationError::Busy(_))), "{found:?}");
}
