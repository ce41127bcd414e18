//! `WebhookAdmissionConfiguration` of the plugins that call webhooks: the kubeconfig with the server's credentials for them
//! (k8s.io/apiserver/pkg/admission/plugin/webhook/config).

use crate::admission_configuration::{AdmissionConfiguration, AdmissionConfigurationError};
use apiserver_auth::webhook_credentials;
use apiserver_egress::CredentialsByHost;
use machinery_meta::{FieldError, FieldPath};
use serde::Deserialize;
use serde_json::Value;
use std::path::{Path, PathBuf};

const API_VERSION: &str = "apiserver.config.k8s.io/v1";
const KIND: &str = "WebhookAdmissionConfiguration";
const FIELDS: [&str; 4] = ["apiVersion", "kind", "kubeConfigFile", "staticManifestsDir"];

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Written {
    api_version: String,
    kind: String,
    kube_config_file: PathBuf,
    static_manifests_dir: String,
}

/// The credentials that a plugin's configuration names; none without one.
pub(crate) fn credentials(
    read: &AdmissionConfiguration,
    plugin: &'static str,
) -> Result<CredentialsByHost, AdmissionConfigurationError> {
    let wrong = |why: String| AdmissionConfigurationError::Plugin { plugin, why };
    let Some(configuration) = read.of(plugin)? else {
        return Ok(CredentialsByHost::default());
    };
    let path = kubeconfig(&configuration).map_err(wrong)?;
    match path.as_os_str().is_empty() {
        true => Ok(CredentialsByHost::default()),
        false => webhook_credentials(&path).map_err(|error| wrong(error.to_string())),
    }
}

/// The path of the kubeconfig; empty for none.
fn kubeconfig(configuration: &Value) -> Result<PathBuf, String> {
    let written = Written::deserialize(configuration).map_err(|error| error.to_string())?;
    let (kind, version) = (&written.kind, &written.api_version);
    if kind != KIND || version != API_VERSION {
        return Err(format!(
            "no kind {kind:?} is registered for version {version:?} in scheme \"pkg/runtime/scheme.go:111\""
        ));
    }
    let names = configuration.as_object().into_iter().flat_map(|own| own.keys());
    let unknown: Vec<String> = names
        .filter(|name| !FIELDS.contains(&name.as_str()))
        .map(|name| format!("unknown field {name:?}"))
        .collect();
    if !unknown.is_empty() {
        return Err(format!("strict decoding error: {}", unknown.join(", ")));
    }
    refuse_manifests(&written.static_manifests_dir)?;
    let path = written.kube_config_file;
    if !path.as_os_str().is_empty() && !Path::is_absolute(&path) {
        let (field, shown) = (FieldPath::new("kubeConfigFile"), path.display().to_string());
        let problem = FieldError::invalid(&field, shown, "must be an absolute file path");
        return Err(problem.to_string());
    }
    Ok(path)
}

/// Refuses configurations of admission from files: upstream's gate ManifestBasedAdmissionControlConfig is beta and on, but a directory that
/// is not read would guard nothing.
fn refuse_manifests(folder: &str) -> Result<(), String> {
    match folder.is_empty() {
        true => Ok(()),
        false => Err(
            "staticManifestsDir: Forbidden: manifests of admission are not read by this server".to_owned(),
        ),
    }
}

/// Refuses the same directory of a plugin that evaluates policies, which takes no other configuration.
pub(crate) fn check_policies(
    read: &AdmissionConfiguration,
    plugin: &'static str,
) -> Result<(), AdmissionConfigurationError> {
    let configuration = read.of(plugin)?.unwrap_or_default();
    let folder = configuration.get("staticManifestsDir").and_then(Value::as_str);
    refuse_manifests(folder.unwrap_or_default())
        .map_err(|why| AdmissionConfigurationError::Plugin { plugin, why })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(fields: Value, expected: Result<&str, &str>) {
        let mut configuration = json!({"apiVersion": API_VERSION, "kind": KIND});
        let members = configuration.as_object_mut().unwrap();
        members.extend(fields.as_object().unwrap().clone());
        let found = kubeconfig(&configuration).map(|path| path.display().to_string());
        assert_eq!(found.as_deref().map_err(String::as_str), expected);
    }

    #[test]
    fn webhook_admission_configuration_is_strict() {
        check(json!({}), Ok(""));
        check(json!({"kubeConfigFile": "/a"}), Ok("/a"));
        let relative = "kubeConfigFile: Invalid value: \"a\": must be an absolute file path";
        check(json!({"kubeConfigFile": "a"}), Err(relative));
        let unknown = "strict decoding error: unknown field \"kubeconfigFile\"";
        check(json!({"kubeconfigFile": "/a"}), Err(unknown));
        let manifests = "staticManifestsDir: Forbidden: manifests of admission are not read by this server";
        check(json!({"staticManifestsDir": "/a"}), Err(manifests));
        let kind = "no kind \"Other\" is registered for version \"apiserver.config.k8s.io/v1\" in scheme \"pkg/runtime/scheme.go:111\"";
        check(json!({"kind": "Other"}), Err(kind));
    }
}
