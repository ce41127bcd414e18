use super::*;
use crate::jwt::SigningKey;
use crate::testing::{Objects, block_on, yaml};
use parking_lot::Mutex;

const API: &str = "https://kubernetes.default.svc";

#[derive(Debug, Default)]
struct Tracker {
    counted: Mutex<Vec<TokenUse>>,
    days: Mutex<Vec<String>>,
}

impl TokenTracker for Tracker {
    fn count(&self, used: TokenUse) {
        self.counted.lock().push(used);
    }

    fn used_on<'a>(&'a self, secret: &'a ReadObject, day: String) -> AuthnFuture<'a, ()> {
        assert_eq!(secret.header.key.name, "token");
        self.days.lock().push(day);
        Box::pin(std::future::ready(()))
    }
}

/// A change of the world in which a good token is good, and what becomes of it.
#[derive(Deserialize)]
#[serde(default)]
struct Case {
    case: String,
    /// Members of the claims that are other than those of the good token.
    claims: serde_json::Map<String, serde_json::Value>,
    /// The key that signs; the authenticator knows `known`.
    key: String,
    secret: State,
    /// The Secret has another token.
    other_token: bool,
    labels: std::collections::BTreeMap<String, String>,
    account: State,
    account_uid: String,
    /// The account lists the Secret.
    listed: bool,
    audiences: Vec<String>,
    refused: Option<String>,
    pass: bool,
    annotations: Vec<String>,
    warns: bool,
    counted: Vec<String>,
    days: Vec<String>,
}

#[derive(Deserialize, PartialEq, Clone, Copy)]
#[serde(rename_all = "lowercase")]
enum State {
    There,
    Absent,
    Deleted,
}

impl Default for Case {
    fn default() -> Self {
        Self {
            case: String::new(),
            claims: serde_json::Map::new(),
            key: "known".to_owned(),
            secret: State::There,
            other_token: false,
            labels: Default::default(),
            account: State::There,
            account_uid: "uid-sa".to_owned(),
            listed: false,
            audiences: vec![API.to_owned()],
            refused: None,
            pass: false,
            annotations: Vec::new(),
            warns: false,
            counted: Vec::new(),
            days: Vec::new(),
        }
    }
}

impl Case {
    fn token(&self, known: &SigningKey, other: &SigningKey) -> String {
        let good = LegacyClaims::new("a", "sa", "uid-sa", "token");
        let mut claims = serde_json::to_value(good).unwrap();
        for (name, value) in &self.claims {
            claims[name] = value.clone();
        }
        let key = if self.key == "known" { known } else { other };
        jwt::sign(key, &claims).unwrap()
    }

    fn world(&self, token: &str) -> Objects {
        let objects = Objects::default();
        let meta = |state: State| match state {
            State::Deleted => r#""deletionTimestamp":"2026-11-21T11:59:59Z""#,
            _ => r#""namespace":"a""#,
        };
        let kept = if self.other_token { "other" } else { token };
        if self.secret != State::Absent {
            let data = STANDARD.encode(kept);
            let labels = serde_json::to_string(&self.labels).unwrap();
            let json = format!(
                r#"{{"metadata":{{"labels":{labels},{}}},"data":{{"token":"{data}"}}}}"#,
                meta(self.secret)
            );
            objects.put("", "secrets", "a", "token", &json);
        }
        if self.account != State::Absent {
            let listed = if self.listed {
                r#"[{"name":"token"}]"#
            } else {
                "null"
            };
            let json = format!(
                r#"{{"metadata":{{"uid":"{}",{}}},"secrets":{listed}}}"#,
                self.account_uid,
                meta(self.account)
            );
            objects.put("", "serviceaccounts", "a", "sa", &json);
        }
        objects
    }

    #[track_caller]
    fn check(&self, known: &SigningKey, other: &SigningKey) {
        let token = self.token(known, other);
        let tracker = Arc::new(Tracker::default());
        let authenticator = LegacyServiceAccountTokens::new(
            Arc::new(self.world(&token)),
            vec![known.public().clone()],
            vec![API.to_owned()],
            Arc::clone(&tracker) as _,
        );
        let now = "2026-11-21T12:00:00Z".parse().unwrap();
        let shown = ShownToken {
            token: &token,
            audiences: &self.audiences,
            client: "",
            now,
        };
        let outcome = block_on(authenticator.authenticate_token(shown));
        let remarks = match outcome {
            Outcome::Pass => {
                assert!(self.pass, "{}: passed on", self.case);
                return;
            }
            Outcome::User(found) => {
                assert_eq!(self.refused, None, "{}", self.case);
                assert_eq!(found.user.name, "system:serviceaccount:a:sa");
                assert_eq!(found.user.uid, "uid-sa");
                assert_eq!(
                    found.user.groups[..2],
                    ["system:serviceaccounts", "system:serviceaccounts:a"]
                );
                assert!(found.user.extra.is_empty(), "{}", self.case);
                found.remarks
            }
            Outcome::Refused(refusal) => {
                let expected = self.refused.as_deref().unwrap_or("no refusal");
                assert!(refusal.reason.contains(expected), "{}: {refusal}", self.case);
                refusal.remarks
            }
        };
        assert!(!self.pass, "{}", self.case);
        let annotations: Vec<String> = remarks
            .annotations
            .iter()
            .map(|(name, value)| format!("{}={value}", name.rsplit('/').next().unwrap()))
            .collect();
        assert_eq!(annotations, self.annotations, "{}", self.case);
        assert_eq!(!remarks.warnings.is_empty(), self.warns, "{}", self.case);
        let counted: Vec<String> = tracker
            .counted
            .lock()
            .iter()
            .map(|used| format!("{used:?}"))
            .collect();
        assert_eq!(counted, self.counted, "{}", self.case);
        assert_eq!(*tracker.days.lock(), self.days, "{}", self.case);
    }
}

#[test]
fn tokens_of_secrets_are_verified_as_upstreams() {
    let (known, other) = (SigningKey::generate().unwrap(), SigningKey::generate().unwrap());
    let cases: Vec<Case> = yaml(include_str!("../../../testdata/authn/legacy_tokens.yaml"));
    for case in cases {
        case.check(&known, &other);
    }
}
