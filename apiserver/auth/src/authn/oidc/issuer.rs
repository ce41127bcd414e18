//! Keys of one issuer: where they are (OpenID Connect Discovery), and what they are now.
//!
//! The address of the keys is looked for until it is found. Keys are fetched when the first token needs them, again when none of them
//! verifies a token, and beside a request when they are old, so that a key that the issuer took back is forgotten.
//! Fetching is one task for all requests that need the keys; it goes on when they leave. Tokens make it begin a few times in
//! a row and then at an interval, whatever their senders and number.

use super::observer::JwtObserver;
use crate::authn::Refusal;
use crate::jwt::{Compact, SignatureAlgorithm, WebKey, read_web_keys};
use apiserver_egress::{Dialer, RemoteAccess, RemoteAnswer};
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use machinery_runtime::Runtime;
use parking_lot::Mutex;
use serde::Deserialize;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// Time of one request to the issuer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Pause between attempts to find the address of the keys; upstream's.
const DISCOVERY_PAUSE: Duration = Duration::from_secs(10);
/// Age at which keys are fetched again.
const MAX_AGE: Duration = Duration::from_secs(600);
/// Fetches that tokens may begin in a row.
const BURST: u32 = 3;
/// Interval at which they may begin another.
const INTERVAL: Duration = Duration::from_secs(10);
/// Requests that wait for keys of this issuer.
const MAX_WAITING: usize = 256;
/// Bytes of a document of the issuer.
const MAX_DOCUMENT: usize = 1 << 20;
/// Characters of an issuer's document in an error.
const MAX_SHOWN: usize = 256;
/// Bytes of the address of its keys.
const MAX_ADDRESS: usize = 2_048;
const WELL_KNOWN: &str = "/.well-known/openid-configuration";

type Fetched = Result<Arc<[WebKey]>, Arc<str>>;

/// See the module.
pub(super) struct IssuerKeys {
    issuer: String,
    discovery_url: String,
    access: RemoteAccess,
    dialer: Dialer,
    /// Tasks end with it.
    runtime: Runtime,
    observer: Arc<dyn JwtObserver>,
    waiting: Semaphore,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The address of the keys, once it is known.
    address: Option<String>,
    /// The last reason why it is not.
    problem: Option<String>,
    keys: Option<Arc<[WebKey]>>,
    /// The time at which they were fetched.
    fetched: Duration,
    fetching: Option<Shared<BoxFuture<'static, Fetched>>>,
    allowance: Allowance,
}

/// Fetches that tokens may begin.
#[derive(Debug)]
struct Allowance {
    left: u32,
    /// The time from which the next one counts.
    since: Duration,
}

impl Default for Allowance {
    fn default() -> Self {
        Self {
            left: BURST,
            since: Duration::ZERO,
        }
    }
}

impl Allowance {
    fn take(&mut self, now: Duration) -> bool {
        let passed = now.saturating_sub(self.since).as_secs() / INTERVAL.as_secs();
        if passed > 0 {
            let more = u32::try_from(passed).unwrap_or(BURST);
            self.left = self.left.saturating_add(more).min(BURST);
            self.since = now;
        }
        match self.left {
            0 => false,
            left => {
                self.left = left - 1;
                true
            }
        }
    }
}

/// Parts of an issuer's document.
#[derive(Deserialize)]
struct Discovered {
    #[serde(default)]
    issuer: String,
    #[serde(default)]
    jwks_uri: String,
}

impl fmt::Debug for IssuerKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IssuerKeys")
            .field("issuer", &self.issuer)
            .finish_non_exhaustive()
    }
}

impl IssuerKeys {
    /// `discovery_url` is empty where the document is at the usual place.
    pub(super) fn new(
        issuer: &str,
        discovery_url: &str,
        access: RemoteAccess,
        dialer: Dialer,
        observer: Arc<dyn JwtObserver>,
        runtime: Runtime,
    ) -> Arc<Self> {
        let discovery_url = match discovery_url {
            "" => format!("{}{WELL_KNOWN}", issuer.strip_suffix('/').unwrap_or(issuer)),
            given => given.to_owned(),
        };
        Arc::new(Self {
            issuer: issuer.to_owned(),
            discovery_url,
            access,
            dialer,
            runtime,
            observer,
            waiting: Semaphore::new(MAX_WAITING),
            state: Mutex::default(),
        })
    }

    /// Looks for the address of the keys until it is found.
    pub(super) async fn discover(self: Arc<Self>) {
        loop {
            match self.find_address().await {
                Ok(address) => {
                    let mut state = self.state.lock();
                    state.problem = None;
                    state.address = Some(address);
                    return;
                }
                Err(why) => {
                    tracing::error!(
                        issuer = self.issuer,
                        why,
                        "oidc authenticator: initializing plugin"
                    );
                    self.state.lock().problem = Some(why);
                }
            }
            self.runtime.sleep(DISCOVERY_PAUSE).await;
        }
    }

    async fn find_address(&self) -> Result<String, String> {
        let answer = self.document(&self.discovery_url).await?;
        address_of_keys(&self.issuer, &answer)
    }

    /// A document of the issuer.
    async fn document(&self, url: &str) -> Result<Vec<u8>, String> {
        let asking = self.access.get(&self.dialer, url, MAX_DOCUMENT);
        let answer = self.runtime.timeout(TIMEOUT, asking).await;
        let answer = answer.map_err(|_| format!("Get {url:?}: context deadline exceeded"))?;
        match answer.map_err(|error| error.to_string())? {
            RemoteAnswer { code: 200, body, .. } => Ok(body),
            RemoteAnswer { code, .. } => Err(format!("Get {url:?}: the server answered with code {code}")),
        }
    }

    /// Reports whether tokens can be verified, as far as is known.
    pub(super) fn is_ready(&self) -> bool {
        self.state.lock().address.is_some()
    }

    /// The reason why they cannot be.
    pub(super) fn problem(&self) -> Option<String> {
        let state = self.state.lock();
        if state.address.is_some() {
            return None;
        }
        let why = state.problem.as_deref();
        let why = why.unwrap_or("oidc: the authenticator is not initialized");
        Some(format!(
            "oidc: authenticator for issuer {:?} is not healthy: {why}",
            self.issuer
        ))
    }

    /// Checks a signature, with new keys where those that are known do not do.
    pub(super) async fn verify(
        self: &Arc<Self>,
        algorithm: SignatureAlgorithm,
        token: &Compact<'_>,
    ) -> Result<(), Refusal> {
        let known = self.known();
        if known
            .as_deref()
            .is_some_and(|keys| verified(keys, algorithm, token))
        {
            return Ok(());
        }
        let unknown = "failed to verify signature: failed to verify id token signature";
        let _place = self
            .waiting
            .try_acquire()
            .map_err(|_| Refusal::unchecked("too many requests wait for the keys of the issuer"))?;
        let Some(fetching) = self.fetch_for_token() else {
            return Err(Refusal::new(unknown));
        };
        let keys = fetching
            .await
            .map_err(|why| format!("failed to verify signature: fetching keys {why}"))?;
        match verified(&keys, algorithm, token) {
            true => Ok(()),
            false => Err(Refusal::new(unknown)),
        }
    }

    /// The keys; old ones are fetched again beside the request.
    fn known(self: &Arc<Self>) -> Option<Arc<[WebKey]>> {
        let mut state = self.state.lock();
        let keys = state.keys.clone()?;
        let now = self.runtime.monotonic();
        if now.saturating_sub(state.fetched) > MAX_AGE && state.fetching.is_none() {
            // The retry interval for an issuer that does not answer, too.
            state.fetched = now;
            drop(self.begin(&mut state));
        }
        Some(keys)
    }

    /// The fetch that is under way, or a new one where tokens may begin one.
    fn fetch_for_token(self: &Arc<Self>) -> Option<Shared<BoxFuture<'static, Fetched>>> {
        let mut state = self.state.lock();
        if let Some(fetching) = &state.fetching {
            return Some(fetching.clone());
        }
        let now = self.runtime.monotonic();
        let may = state.allowance.take(now);
        may.then(|| self.begin(&mut state))
    }

    fn begin(self: &Arc<Self>, state: &mut State) -> Shared<BoxFuture<'static, Fetched>> {
        let fetching = Arc::clone(self).fetch().boxed().shared();
        state.fetching = Some(fetching.clone());
        let driven = fetching.clone();
        self.runtime
            .spawn_request("keys of an issuer", driven.map(drop))
            .detach();
        fetching
    }

    async fn fetch(self: Arc<Self>) -> Fetched {
        let address = self.state.lock().address.clone().unwrap_or_default();
        let document = self.document(&address).await;
        let keys = document.and_then(|text| keys_of(&text).map(|keys| (text, keys)));
        let mut state = self.state.lock();
        state.fetching = None;
        match keys {
            Ok((text, keys)) => {
                state.keys = Some(Arc::clone(&keys));
                state.fetched = self.runtime.monotonic();
                drop(state);
                self.observer.fetched(&self.issuer, Some(&text));
                Ok(keys)
            }
            Err(why) => {
                drop(state);
                tracing::warn!(
                    issuer = self.issuer,
                    why,
                    "the keys of an issuer cannot be fetched"
                );
                self.observer.fetched(&self.issuer, None);
                Err(why.into())
            }
        }
    }
}

/// The address of an issuer's keys, by the document that discovery found.
fn address_of_keys(issuer: &str, document: &[u8]) -> Result<String, String> {
    let found: Discovered = serde_json::from_slice(document).map_err(|error| {
        format!(
            "oidc: failed to decode provider discovery object: {}",
            shown(&error)
        )
    })?;
    if found.issuer != issuer {
        return Err(format!(
            "oidc: issuer did not match the issuer returned by provider, expected {issuer:?} got {:?}",
            shown(&found.issuer)
        ));
    }
    match found.jwks_uri.as_str() {
        "" => Err("provider did not return JWKS URL".to_owned()),
        address if !address.starts_with("https://") => Err("the JWKS URL is none of https".to_owned()),
        address if address.len() > MAX_ADDRESS => Err("the JWKS URL is too long".to_owned()),
        address => Ok(address.to_owned()),
    }
}

/// The keys of a document.
fn keys_of(document: &[u8]) -> Result<Arc<[WebKey]>, String> {
    let keys = read_web_keys(document).map_err(|error| shown(&error))?;
    Ok(keys.into())
}

/// The beginning of a text that may quote an issuer's document, as errors of its reader do.
fn shown(text: &impl fmt::Display) -> String {
    text.to_string().chars().take(MAX_SHOWN).collect()
}

fn verified(keys: &[WebKey], algorithm: SignatureAlgorithm, token: &Compact<'_>) -> bool {
    let mut meant = keys.iter().filter(|key| key.is_meant_by(&token.key_id));
    meant.any(|key| key.verifies(algorithm, token.signed.as_bytes(), &token.signature))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_of_an_issuers_document_shows_its_beginning() {
        let long = "x".repeat(MAX_DOCUMENT / 2);
        let text = format!(r#""{long}""#);
        let of_another = format!(r#"{{"issuer": "{long}", "jwks_uri": "https://a"}}"#);
        for given in [&text, &of_another] {
            let error = address_of_keys("https://issuer.example", given.as_bytes()).unwrap_err();
            assert!(error.len() <= MAX_SHOWN + 128, "{}", error.len());
        }
        for given in [text, format!(r#"{{"keys": "{long}"}}"#)] {
            let error = keys_of(given.as_bytes()).unwrap_err();
            assert!(error.len() <= MAX_SHOWN, "{}", error.len());
        }
    }

    #[test]
    fn tokens_begin_few_fetches() {
        let mut allowance = Allowance::default();
        let mut begun = |from: u64, to: u64| {
            let times = (from * 100..to * 100).map(|at| Duration::from_millis(at * 10));
            times.filter(|now| allowance.take(*now)).count()
        };
        assert_eq!(begun(0, 9), 3);
        assert_eq!(begun(9, 30), 2);
        assert_eq!(begun(1_000, 1_009), 3);
    }
}
