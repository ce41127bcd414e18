//! One run of a plugin: a `CredentialProviderRequest` on its standard input, a `CredentialProviderResponse` on its standard output.

use std::collections::BTreeMap;
use std::time::Duration;

use machinery_runtime::Runtime;
use node_cri::v1::AuthConfig;
use node_sys::CommandSpec;
use node_sys::exec::run_bounded;
use serde::Deserialize;
use serde_json::{Value, json};

use super::config::{CredentialProvidersConfig, ProviderConfig};
use super::{DURATION, ERRORS};

/// Upstream's catch-all time of a plugin.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes of each of its streams that are kept; a longer answer is cut, and cannot be decoded.
const OUTPUT_BYTES_MAX: usize = 1 << 20;
/// Bytes of its complaints in the log.
const COMPLAINT_BYTES_MAX: usize = 1_024;
/// Registries that an answer may have credentials for.
const ENTRIES_MAX: usize = 1_024;

/// Token and annotations of a service account for a plugin.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct AccountData {
    pub(super) token: String,
    pub(super) annotations: BTreeMap<String, String>,
}

/// Images that an answer counts for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CacheKeyType {
    Image,
    Registry,
    Global,
}

/// An answer.
#[derive(Clone, PartialEq)]
pub(super) struct Answer {
    pub(super) key_type: CacheKeyType,
    /// Nanoseconds that it counts for; `None` is the configuration's.
    pub(super) cache_nanoseconds: Option<i64>,
    /// By registry, as a pull secret has them.
    pub(super) auth: Vec<(String, AuthConfig)>,
}

/// Shows nothing of the credentials.
impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Answer").finish_non_exhaustive()
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Response {
    api_version: String,
    kind: String,
    cache_key_type: String,
    cache_duration: Option<String>,
    auth: Option<BTreeMap<String, Entry>>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Entry {
    username: String,
    password: String,
}

/// Runs a plugin for an image.
pub(super) async fn run(
    runtime: &Runtime,
    config: &CredentialProvidersConfig,
    own: &ProviderConfig,
    image: &str,
    account: &AccountData,
) -> Result<Answer, String> {
    let name = own.name.as_str();
    let program = config.bin_dir.join(name);
    let mut spec = CommandSpec::new(program.display().to_string())
        .args(own.args.clone())
        .stdin(request(own, image, account).to_string());
    for variable in &own.env {
        spec = spec.env(variable.name.clone(), variable.value.clone());
    }
    let began = runtime.monotonic();
    let ended = runtime
        .timeout(TIMEOUT, run_bounded(spec, OUTPUT_BYTES_MAX))
        .await;
    let took = runtime.monotonic().saturating_sub(began);
    let metrics = runtime.metrics();
    metrics
        .histograms(&DURATION)
        .of(&[name])
        .observe(took.as_secs_f64());
    let why = match ended {
        Err(_) => "context deadline exceeded: ".to_owned(),
        Ok(Err(error)) => format!("{error}: "),
        Ok(Ok(output)) if output.code == 0 => {
            return decode(&output.stdout, &own.api_version, config.duration);
        }
        Ok(Ok(output)) => format!("exit status {}: {}", output.code, complaint(&output.stderr)),
    };
    metrics.counters(&ERRORS).of(&[name]).inc();
    Err(format!(
        "error execing credential provider plugin {name} for image {image}: {why}"
    ))
}

fn request(own: &ProviderConfig, image: &str, account: &AccountData) -> Value {
    let mut request = json!({
        "kind": "CredentialProviderRequest",
        "apiVersion": own.api_version,
        "image": image,
    });
    if !account.token.is_empty() {
        request["serviceAccountToken"] = json!(account.token);
    }
    if !account.annotations.is_empty() {
        request["serviceAccountAnnotations"] = json!(account.annotations);
    }
    request
}

fn complaint(stderr: &[u8]) -> String {
    let kept = &stderr[..stderr.len().min(COMPLAINT_BYTES_MAX)];
    crate::api::printable(&String::from_utf8_lossy(kept)).into_owned()
}

/// Reads an answer. An error never has parts of it.
fn decode(
    answer: &[u8],
    api_version: &str,
    duration: fn(&str) -> Result<i64, String>,
) -> Result<Answer, String> {
    let undecoded = || "error decoding credential provider plugin response from stdout".to_owned();
    let value: Value = serde_json::from_slice(answer).map_err(|_| undecoded())?;
    let found = value["apiVersion"].as_str().unwrap_or_default();
    if found != api_version {
        let found: String = found.chars().take(64).collect();
        return Err(format!(
            "apiVersion from credential plugin response did not match expected apiVersion:{api_version}, actual apiVersion:{found}"
        ));
    }
    let response: Response = serde_json::from_value(value).map_err(|_| undecoded())?;
    let auth = response.auth.unwrap_or_default();
    if response.kind != "CredentialProviderResponse" || auth.len() > ENTRIES_MAX {
        return Err(undecoded());
    }
    let cached = response.cache_duration.as_deref().map(duration).transpose();
    let key_type = match response.cache_key_type.as_str() {
        "Image" => CacheKeyType::Image,
        "Registry" => CacheKeyType::Registry,
        "Global" => CacheKeyType::Global,
        other => {
            let other: String = other.chars().take(64).collect();
            return Err(format!(
                "credential provider plugin did not return a valid cacheKeyType: {other}"
            ));
        }
    };
    let auth = auth.into_iter().map(|(registry, entry)| {
        let own = AuthConfig {
            username: entry.username,
            password: entry.password,
            ..AuthConfig::default()
        };
        (registry, own)
    });
    Ok(Answer {
        key_type,
        cache_nanoseconds: cached.map_err(|_| undecoded())?,
        auth: auth.collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::config::tests::seconds;
    use super::*;

    const VERSION: &str = "credentialprovider.kubelet.k8s.io/v1";

    fn response(with: &Value) -> Result<Answer, String> {
        let mut response =
            json!({"kind": "CredentialProviderResponse", "apiVersion": VERSION, "cacheKeyType": "Registry"});
        for (name, value) in with.as_object().unwrap() {
            response[name] = value.clone();
        }
        decode(response.to_string().as_bytes(), VERSION, seconds)
    }

    #[test]
    fn credential_plugin_answer_is_decoded_strictly() {
        let auth =
            json!({"auth": {"registry.test": {"username": "u", "password": "p"}}, "cacheDuration": "5s"});
        let answer = response(&auth).unwrap();
        assert_eq!(answer.key_type, CacheKeyType::Registry);
        assert_eq!(answer.cache_nanoseconds, Some(5_000_000_000));
        let (registry, entry) = &answer.auth[0];
        assert_eq!(
            (
                registry.as_str(),
                entry.username.as_str(),
                entry.password.as_str()
            ),
            ("registry.test", "u", "p")
        );
        assert_eq!(response(&json!({})).unwrap().cache_nanoseconds, None);
    }

    #[test]
    fn credential_plugin_answer_that_is_wrong_is_not_in_its_error() {
        let undecoded = "error decoding credential provider plugin response from stdout";
        for (with, expected) in [
            (json!({"auth": {"a": {"password": 7}}}), undecoded),
            (json!({"secret": "word"}), undecoded),
            (json!({"cacheDuration": "word"}), undecoded),
            (json!({"kind": "Other"}), undecoded),
            (
                json!({"cacheKeyType": "Pod"}),
                "credential provider plugin did not return a valid cacheKeyType: Pod",
            ),
            (
                json!({"apiVersion": "v1"}),
                "apiVersion from credential plugin response did not match expected apiVersion:credentialprovider.kubelet.k8s.io/v1, \
                 actual apiVersion:v1",
            ),
        ] {
            assert_eq!(response(&with).unwrap_err(), expected, "{with}");
        }
        assert_eq!(decode(b"{\"pass", VERSION, seconds).unwrap_err(), undecoded);
    }

    #[test]
    fn credential_plugin_answer_fuzz_never_panics() {
        let good = json!({"kind": "CredentialProviderResponse", "apiVersion": VERSION, "cacheKeyType": "Global", "cacheDuration": "1s",
            "auth": {"*.test": {"username": "u", "password": "p"}}});
        machinery_fuzz::fuzz([good.to_string()], |input: &[u8]| {
            drop(machinery_fuzz::in_proportion(input, 128, || {
                decode(input, VERSION, seconds)
            }));
        });
    }
}
