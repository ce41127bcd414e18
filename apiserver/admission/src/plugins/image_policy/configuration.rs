//! The configuration of ImagePolicyWebhook (k8s.io/kubernetes/plugin/pkg/admission/imagepolicy/config.go).

use machinery_schema::leaf;
use serde::Deserialize;
use serde_json::Value;
use std::path::PathBuf;
use std::time::Duration;

const SECOND: i64 = 1_000_000_000;
const MILLISECOND: i64 = 1_000_000;

/// A configuration in its bounds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Configuration {
    /// The kubeconfig of the backend.
    pub kube_config_file: PathBuf,
    /// Times for which answers are remembered; zero for none.
    pub allow_ttl: Duration,
    pub deny_ttl: Duration,
    /// Pause before a call that failed is made again.
    pub retry_backoff: Duration,
    /// Pods are let through while the backend does not answer.
    pub default_allow: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Written {
    image_policy: ImagePolicy,
}

/// Numbers of seconds, the pause of milliseconds: 0 for the default, -1 for none.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ImagePolicy {
    #[serde(rename = "kubeConfigFile")]
    kube_config_file: PathBuf,
    #[serde(rename = "allowTTL")]
    allow_ttl: i64,
    #[serde(rename = "denyTTL")]
    deny_ttl: i64,
    #[serde(rename = "retryBackoff")]
    retry_backoff: i64,
    #[serde(rename = "defaultAllow")]
    default_allow: bool,
}

impl Configuration {
    /// Reads `imagePolicy`; fields that are not known are ignored, as upstream's reader has it.
    ///
    /// # Errors
    /// There is none, or a value is out of its bounds; in upstream's words.
    pub fn parse(written: Option<&Value>) -> Result<Self, String> {
        let written = written.ok_or("no config specified")?;
        let own = Written::deserialize(written).map_err(|error| error.to_string())?;
        let own = own.image_policy;
        if own.kube_config_file.as_os_str().is_empty() {
            return Err("no kubeConfigFile specified".to_owned());
        }
        // The order of upstream's checks.
        let retry_backoff = time(
            own.retry_backoff,
            MILLISECOND,
            (1, 300 * SECOND),
            500 * MILLISECOND,
        )?;
        let ttl = |value, default| time(value, SECOND, (SECOND, 1_800 * SECOND), default);
        Ok(Self {
            kube_config_file: own.kube_config_file,
            allow_ttl: ttl(own.allow_ttl, 300 * SECOND)?,
            deny_ttl: ttl(own.deny_ttl, 30 * SECOND)?,
            retry_backoff,
            default_allow: own.default_allow,
        })
    }
}

/// A number of units as a time, all in nanoseconds.
fn time(value: i64, unit: i64, (least, most): (i64, i64), default: i64) -> Result<Duration, String> {
    let nanos = match value {
        -1 => 0,
        0 => default,
        value => {
            let nanos = value.saturating_mul(unit);
            if nanos < least || nanos > most {
                let [least, most, nanos] = [least, most, nanos].map(leaf::write_duration);
                return Err(format!("valid value is between {least} and {most}, got {nanos}"));
            }
            nanos
        }
    };
    Ok(Duration::from_nanos(nanos.unsigned_abs()))
}
