//! Who asks, and whether they may. Both are the API server's to say, remembered for a short while.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::time::Duration;

use http::Method;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::Client;
use kube::api::{Api, PostParams};
use machinery_meta::UserInfo;
use machinery_runtime::Runtime;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

/// Upstream's cache times: of tokens, of a yes, of a no.
const TOKEN_AGE_MAX: Duration = Duration::from_secs(120);
const ALLOWED_AGE_MAX: Duration = Duration::from_secs(300);
const DENIED_AGE_MAX: Duration = Duration::from_secs(30);
/// Longer tokens are nobody's: those of service accounts have about a thousand bytes.
const TOKEN_BYTES_MAX: usize = 16 << 10;
/// Answers remembered; where more are still good, all are forgotten.
const REMEMBERED_MAX: usize = 1024;

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// Nobody known asks.
    Unauthorized,
    /// They may not.
    Forbidden(String),
    /// It could not be found out.
    Unavailable(String),
}

#[derive(Debug)]
struct Remembered<K, V> {
    table: Mutex<HashMap<K, (Duration, V)>>,
}

impl<K, V> Default for Remembered<K, V> {
    fn default() -> Self {
        Self {
            table: Mutex::default(),
        }
    }
}

impl<K: Hash + Eq, V: Clone> Remembered<K, V> {
    fn get(&self, key: &K, now: Duration) -> Option<V> {
        let table = self.table.lock();
        table
            .get(key)
            .filter(|(until, _)| *until > now)
            .map(|(_, value)| value.clone())
    }

    fn put(&self, key: K, value: V, now: Duration, age: Duration) {
        let mut table = self.table.lock();
        table.retain(|_, (until, _)| *until > now);
        if table.len() >= REMEMBERED_MAX {
            table.clear();
        }
        table.insert(key, (now + age, value));
    }
}

/// What a token is remembered by: nobody reads a token out of our memory, and each takes the same room.
type TokenDigest = [u8; 32];

fn digest(token: &str) -> TokenDigest {
    Sha256::digest(token).into()
}

/// What a decision is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Question {
    name: String,
    uid: String,
    groups: Vec<String>,
    extra: BTreeMap<String, Vec<String>>,
    verb: &'static str,
    subresource: &'static str,
}

/// Asks the API server.
pub struct Delegated {
    runtime: Runtime,
    client: Client,
    node_name: String,
    tokens: Remembered<TokenDigest, UserInfo>,
    /// Tokens that are nobody's have a table of their own: invented ones displace no others.
    nobodys: Remembered<TokenDigest, ()>,
    decisions: Remembered<Question, bool>,
}

impl std::fmt::Debug for Delegated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Delegated")
            .field("node_name", &self.node_name)
            .finish_non_exhaustive()
    }
}

impl Delegated {
    /// Nothing is remembered yet.
    pub fn new(runtime: Runtime, client: Client, node_name: String) -> Self {
        Self {
            runtime,
            client,
            node_name,
            tokens: Remembered::default(),
            nobodys: Remembered::default(),
            decisions: Remembered::default(),
        }
    }

    /// Who asks: the certificate's user, or the token's.
    pub async fn authenticate(
        &self,
        known: Option<UserInfo>,
        bearer: Option<&str>,
    ) -> Result<UserInfo, Refusal> {
        if let Some(known) = known {
            return Ok(known);
        }
        let token = bearer.ok_or(Refusal::Unauthorized)?;
        if token.len() > TOKEN_BYTES_MAX {
            return Err(Refusal::Unauthorized);
        }
        let (key, now) = (digest(token), self.runtime.monotonic());
        if let Some(known) = self.tokens.get(&key, now) {
            return Ok(known);
        }
        if self.nobodys.get(&key, now).is_some() {
            return Err(Refusal::Unauthorized);
        }
        match self.review(token).await? {
            Some(user) => {
                self.tokens.put(key, user.clone(), now, TOKEN_AGE_MAX);
                Ok(user)
            }
            None => {
                self.nobodys.put(key, (), now, TOKEN_AGE_MAX);
                Err(Refusal::Unauthorized)
            }
        }
    }

    /// Whose token the API server says it is.
    async fn review(&self, token: &str) -> Result<Option<UserInfo>, Refusal> {
        let spec = TokenReviewSpec {
            token: token.to_string(),
            audiences: None,
        };
        let review = TokenReview {
            spec,
            ..TokenReview::default()
        };
        let answer = Api::<TokenReview>::all(self.client.clone())
            .create(&PostParams::default(), &review)
            .await;
        let status = answer
            .map_err(|error| Refusal::Unavailable(error.to_string()))?
            .status
            .unwrap_or_default();
        Ok((status.authenticated == Some(true)).then(|| {
            let user = status.user.unwrap_or_default();
            UserInfo {
                name: user.username.unwrap_or_default(),
                uid: user.uid.unwrap_or_default(),
                groups: user.groups.unwrap_or_default(),
                extra: user.extra.unwrap_or_default(),
            }
        }))
    }

    /// Whether a user may do this to one of the node's subresources; any of those given is enough.
    pub async fn authorize(
        &self,
        user: &UserInfo,
        verb: &'static str,
        subresources: &[&'static str],
    ) -> Result<(), Refusal> {
        for subresource in subresources {
            if self.decide(user, verb, subresource).await? {
                return Ok(());
            }
        }
        Err(Refusal::Forbidden(format!(
            "Forbidden (user={}, verb={verb}, resource=nodes, subresource(s)=[{}])",
            user.name,
            subresources.join(" ")
        )))
    }

    /// Whether they may.
    async fn decide(
        &self,
        user: &UserInfo,
        verb: &'static str,
        subresource: &'static str,
    ) -> Result<bool, Refusal> {
        let key = Question {
            name: user.name.clone(),
            uid: user.uid.clone(),
            groups: user.groups.clone(),
            extra: user.extra.clone(),
            verb,
            subresource,
        };
        let now = self.runtime.monotonic();
        if let Some(known) = self.decisions.get(&key, now) {
            return Ok(known);
        }
        let attributes = ResourceAttributes {
            verb: Some(verb.into()),
            version: Some("v1".into()),
            resource: Some("nodes".into()),
            subresource: Some(subresource.into()),
            name: Some(self.node_name.clone()),
            ..ResourceAttributes::default()
        };
        let spec = SubjectAccessReviewSpec {
            user: Some(user.name.clone()),
            groups: Some(user.groups.clone()),
            uid: Some(user.uid.clone()).filter(|uid| !uid.is_empty()),
            extra: Some(user.extra.clone()).filter(|extra| !extra.is_empty()),
            resource_attributes: Some(attributes),
            ..SubjectAccessReviewSpec::default()
        };
        let review = SubjectAccessReview {
            spec,
            ..SubjectAccessReview::default()
        };
        let answer = Api::<SubjectAccessReview>::all(self.client.clone())
            .create(&PostParams::default(), &review)
            .await;
        let status = answer
            .map_err(|error| Refusal::Unavailable(error.to_string()))?
            .status
            .unwrap_or_default();
        let age = match status.allowed {
            true => ALLOWED_AGE_MAX,
            false => DENIED_AGE_MAX,
        };
        self.decisions.put(key, status.allowed, now, age);
        Ok(status.allowed)
    }
}

/// The verb of a request. Running something in a container or connecting to it is `create` whatever the method: a
/// WebSocket begins with GET, and who may look at the node's proxied paths may not therefore act in its pods.
pub fn verb_of(method: &Method, path: &str) -> &'static str {
    if STREAMING_PATHS.iter().any(|prefix| is_below(path, prefix)) {
        return "create";
    }
    match method.as_str() {
        "POST" => "create",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => "get",
    }
}

/// What acts in containers. `/run` is not served, and is not to become readable if it ever is.
const STREAMING_PATHS: [&str; 4] = ["/exec", "/attach", "/portForward", "/run"];

/// Whether a path is this one or one below it. Routing drops empty segments, and so does this.
fn is_below(path: &str, prefix: &str) -> bool {
    let mut segments = path.split('/').filter(|segment| !segment.is_empty());
    segments.next() == Some(&prefix[1..])
}

/// The subresources of the node a path belongs to.
pub fn subresources_of(path: &str) -> &'static [&'static str] {
    let below = |prefix: &str| is_below(path, prefix);
    match path {
        _ if below("/stats") => &["stats"],
        _ if below("/metrics") => &["metrics"],
        _ if below("/logs") => &["log"],
        _ if below("/pods") || below("/runningpods") => &["pods", "proxy"],
        _ if below("/healthz") => &["healthz", "proxy"],
        _ if below("/configz") => &["configz", "proxy"],
        _ => &["proxy"],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auth_cache_expires_and_is_bounded() {
        let remembered = Remembered::<TokenDigest, bool>::default();
        let (age, at) = (TOKEN_AGE_MAX, Duration::from_secs);
        remembered.put(digest("one"), true, at(0), age);
        assert_eq!(remembered.get(&digest("one"), at(119)), Some(true));
        assert_eq!(remembered.get(&digest("other"), at(0)), None);
        remembered.put(digest("two"), false, at(120), age);
        assert_eq!(remembered.get(&digest("two"), at(120)), Some(false));
        let held = || remembered.table.lock().len();
        assert_eq!(held(), 1, "what is too old is gone");
        for number in 0..2 * REMEMBERED_MAX {
            remembered.put(digest(&number.to_string()), false, at(121), age);
            assert!(held() <= REMEMBERED_MAX);
        }
    }

    #[test]
    fn auth_path_maps_to_node_subresource() {
        for (path, expected) in [
            ("/stats/summary", &["stats"][..]),
            ("/metrics", &["metrics"]),
            ("/metrics/cadvisor", &["metrics"]),
            ("/logs/x", &["log"]),
            ("/pods", &["pods", "proxy"]),
            ("/healthz/ping", &["healthz", "proxy"]),
            ("/configz", &["configz", "proxy"]),
            ("/exec/n/p/c", &["proxy"]),
            ("/podsandmore", &["proxy"]),
            ("/", &["proxy"]),
        ] {
            assert_eq!(subresources_of(path), expected, "{path}");
        }
        for (method, path, verb) in [
            ("GET", "/pods", "get"),
            ("HEAD", "/pods", "get"),
            ("POST", "/pods", "create"),
            ("DELETE", "/pods", "delete"),
            ("GET", "/exec/n/p/c", "create"),
            ("GET", "//exec/n/p/c", "create"),
            ("GET", "/attach/n/p/c", "create"),
            ("GET", "/portForward/n/p", "create"),
            ("POST", "/exec/n/p/c", "create"),
            ("GET", "/execute", "get"),
            ("GET", "/containerLogs/n/p/c", "get"),
        ] {
            assert_eq!(verb_of(&method.parse().unwrap(), path), verb, "{method} {path}");
        }
    }
}
