//! The file: `EncryptionConfiguration` of `apiserver.config.k8s.io/v1`.

use super::EncryptionConfigError;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};
use base64::{Engine, alphabet};
use machinery_meta::go_duration;
use serde::{Deserialize, Deserializer};
use std::fmt;
use std::path::Path;
use std::time::Duration;

const API_VERSION: &str = "apiserver.config.k8s.io/v1";
const KIND: &str = "EncryptionConfiguration";
/// Nanoseconds.
const DEFAULT_TIMEOUT: i64 = 3_000_000_000;

/// See the module.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct EncryptionConfiguration {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) resources: Vec<ResourceConfiguration>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ResourceConfiguration {
    #[serde(default, deserialize_with = "or_default")]
    pub(super) resources: Vec<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) providers: Vec<ProviderConfiguration>,
}

/// One of them is there.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ProviderConfiguration {
    pub(super) aesgcm: Option<Keys>,
    pub(super) aescbc: Option<Keys>,
    pub(super) secretbox: Option<Keys>,
    pub(super) identity: Option<Identity>,
    pub(super) kms: Option<Kms>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Keys {
    #[serde(default, deserialize_with = "or_default")]
    pub(super) keys: Vec<NamedKey>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NamedKey {
    #[serde(default, deserialize_with = "or_default")]
    pub(super) name: String,
    /// Base64.
    #[serde(default, deserialize_with = "or_default")]
    pub(super) secret: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Identity {}

/// A plugin of a key management service.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Kms {
    #[serde(default, deserialize_with = "or_default")]
    api_version: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) name: String,
    #[serde(rename = "cachesize")]
    pub(super) cache_size: Option<i32>,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) endpoint: String,
    /// Of a call.
    timeout: Option<GoDuration>,
}

/// Nanoseconds, written as Go does: `1m30s`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GoDuration(i64);

/// A list or a text, or null for an empty one, as Go reads it.
fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

impl Kms {
    /// `v1` where none is given.
    pub(super) fn api_version(&self) -> &str {
        match self.api_version.as_str() {
            "" => "v1",
            given => given,
        }
    }

    /// The timeout as Go writes it, in quotes.
    pub(super) fn timeout_text(&self) -> String {
        let nanoseconds = self.timeout.map_or(DEFAULT_TIMEOUT, |given| given.0);
        format!("\"{}\"", go_duration::write_nanos(nanoseconds))
    }

    /// The time that a call may take, 3 s where none is given; `None` for one that is not above zero.
    pub(super) fn timeout(&self) -> Option<Duration> {
        let nanoseconds = self.timeout.map_or(DEFAULT_TIMEOUT, |given| given.0);
        let positive = u64::try_from(nanoseconds).ok().filter(|own| *own > 0);
        positive.map(Duration::from_nanos)
    }
}

impl<'de> Deserialize<'de> for GoDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        go_duration::parse(&text)
            .map(Self)
            .map_err(serde::de::Error::custom)
    }
}

impl NamedKey {
    /// The bytes of the secret, read as Go reads base64: lines may end within it, and bits that are left over may be set.
    pub(super) fn secret(&self) -> Option<Vec<u8>> {
        const GO: GeneralPurpose = GeneralPurpose::new(
            &alphabet::STANDARD,
            GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
        );
        let lines = |letter: &char| !matches!(letter, '\r' | '\n');
        GO.decode(self.secret.chars().filter(lines).collect::<String>())
            .ok()
    }
}

impl EncryptionConfiguration {
    pub(super) fn parse(path: &Path, bytes: &[u8]) -> Result<Self, EncryptionConfigError> {
        let path = path.display().to_string();
        let failed = |why: String| EncryptionConfigError(format!("error while parsing file: {why}"));
        if bytes.is_empty() {
            return Err(failed(format!(
                "error while loading file: encryption provider configuration file {path:?} is empty"
            )));
        }
        let decoding = |why: String| {
            failed(format!(
                "error decoding encryption provider configuration file {path:?}: {why}"
            ))
        };
        let text = std::str::from_utf8(bytes).map_err(|_| decoding("it is not UTF-8".to_owned()))?;
        // What the parser says may quote the line, and the line may hold a secret.
        let place = |error: serde_saphyr::Error| match error.location() {
            Some(at) => decoding(format!(
                "strict decoding error: line {}, column {}",
                at.line(),
                at.column()
            )),
            None => decoding("strict decoding error".to_owned()),
        };
        let own: Self = serde_saphyr::from_str(text).map_err(place)?;
        if own.kind != KIND || own.api_version != API_VERSION {
            return Err(decoding(format!(
                "no kind {:?} is registered for version {:?}",
                own.kind, own.api_version
            )));
        }
        Ok(own)
    }
}

impl fmt::Debug for NamedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NamedKey")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
