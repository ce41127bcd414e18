//! `CredentialProviderConfig` of `kubelet.config.k8s.io`: decoded strictly, joined from the files of a folder, and checked by upstream's rules in
//! its words (`pkg/credentialprovider/plugin/config.go`).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use machinery_meta::go_text::go_quote;
use machinery_meta::syntax::qualified_name;
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// A larger file is no configuration, and a folder has no more of them.
const FILE_BYTES_MAX: u64 = 1 << 20;
const FILES_MAX: usize = 64;
const GROUP: &str = "kubelet.config.k8s.io/";
const KIND: &str = "CredentialProviderConfig";
/// Versions of the interface of plugins.
const API_VERSIONS: [&str; 3] = [
    "credentialprovider.kubelet.k8s.io/v1",
    "credentialprovider.kubelet.k8s.io/v1alpha1",
    "credentialprovider.kubelet.k8s.io/v1beta1",
];
const CACHE_TYPES: [&str; 2] = ["ServiceAccount", "Token"];

/// Place of the configuration, and readers of formats that it has.
#[derive(Debug, Clone)]
pub struct CredentialProvidersSource {
    /// `--image-credential-provider-config`: a file, or a folder of files `*.json`, `*.yaml` and `*.yml`.
    pub config: PathBuf,
    /// `--image-credential-provider-bin-dir`: the folder of the programs.
    pub bin_dir: PathBuf,
    /// Reads YAML or JSON.
    pub decode: fn(&[u8]) -> Result<Value, String>,
    /// Reads a duration as Go does, in nanoseconds.
    pub duration: fn(&str) -> Result<i64, String>,
}

/// A configuration that was read and checked.
#[derive(Debug, Clone)]
pub struct CredentialProvidersConfig {
    pub(super) providers: Vec<ProviderConfig>,
    pub(super) bin_dir: PathBuf,
    pub(super) duration: fn(&str) -> Result<i64, String>,
    /// Digest of the files, for the figures.
    pub(super) hash: String,
}

/// A plugin.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(super) struct ProviderConfig {
    pub(super) name: String,
    pub(super) match_images: Vec<String>,
    default_cache_duration: Option<String>,
    pub(super) api_version: String,
    pub(super) args: Vec<String>,
    pub(super) env: Vec<ExecEnvVar>,
    pub(super) token_attributes: Option<TokenAttributes>,
    /// [`Self::default_cache_duration`] in nanoseconds.
    #[serde(skip)]
    pub(super) cache_nanoseconds: i64,
}

/// A variable of a plugin's environment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ExecEnvVar {
    pub(super) name: String,
    pub(super) value: String,
}

/// Tokens of service accounts for a plugin.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(super) struct TokenAttributes {
    pub(super) service_account_token_audience: String,
    pub(super) cache_type: String,
    pub(super) require_service_account: Option<bool>,
    pub(super) required_service_account_annotation_keys: Vec<String>,
    pub(super) optional_service_account_annotation_keys: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Document {
    api_version: String,
    kind: String,
    providers: Vec<ProviderConfig>,
}

impl CredentialProvidersSource {
    /// Reads and checks it all. Blocks.
    ///
    /// # Errors
    /// In upstream's words: something cannot be read, is wrong, or has no program.
    pub fn read(&self) -> Result<CredentialProvidersConfig, String> {
        if !self.bin_dir.is_dir() {
            let folder = self.bin_dir.display();
            return Err(format!("plugin binary directory {folder} did not exist"));
        }
        let (mut providers, hash) = self.documents()?;
        let mut problems = Vec::new();
        if providers.is_empty() {
            problems.push("providers: Required value: at least 1 item in plugins is required".to_owned());
        }
        for provider in &mut providers {
            problems.extend(provider.problems(self.duration));
        }
        match problems.as_slice() {
            [] => {}
            [one] => return Err(format!("failed to validate credential provider config: {one}")),
            all => {
                let all = all.join(", ");
                return Err(format!("failed to validate credential provider config: [{all}]"));
            }
        }
        for provider in &providers {
            is_executable(&self.bin_dir.join(&provider.name))?;
        }
        Ok(CredentialProvidersConfig {
            providers,
            bin_dir: self.bin_dir.clone(),
            duration: self.duration,
            hash,
        })
    }

    /// The plugins of all files, each name once, and a digest of the files with their lengths.
    fn documents(&self) -> Result<(Vec<ProviderConfig>, String), String> {
        let mut digest = Sha256::new();
        let (mut providers, mut names) = (Vec::new(), BTreeSet::new());
        for path in files(&self.config)? {
            let shown = go_quote(&path.display().to_string());
            let content = node_sys::fs::read_regular_by_links(&path, FILE_BYTES_MAX + 1)
                .map_err(|error| format!("unable to read file {shown}: {error}"))?;
            if content.len() as u64 > FILE_BYTES_MAX {
                return Err(format!(
                    "unable to read file {shown}: it is larger than {FILE_BYTES_MAX} bytes"
                ));
            }
            digest.update((content.len() as u64).to_be_bytes());
            digest.update(&content);
            let document = (self.decode)(&content).and_then(document);
            let document = document.map_err(|why| format!("error decoding config {shown}: {why}"))?;
            for provider in document.providers {
                if !names.insert(provider.name.clone()) {
                    let name = go_quote(&provider.name);
                    return Err(format!(
                        "duplicate provider name {name} found in configuration file(s)"
                    ));
                }
                providers.push(provider);
            }
        }
        Ok((providers, format!("sha256:{:x}", digest.finalize())))
    }
}

fn document(value: Value) -> Result<Document, String> {
    let document: Document = serde_json::from_value(value).map_err(|error| error.to_string())?;
    if document.kind != KIND {
        return Err(format!(
            "failed to decode {} (wrong Kind)",
            go_quote(&document.kind)
        ));
    }
    let version = document.api_version.strip_prefix(GROUP);
    if !matches!(version, Some("v1" | "v1beta1" | "v1alpha1")) {
        let version = go_quote(&document.api_version);
        return Err(format!("no kind \"{KIND}\" is registered for version {version}"));
    }
    // Earlier versions have no such field.
    let with_tokens = document
        .providers
        .iter()
        .any(|own| own.token_attributes.is_some());
    if with_tokens && version != Some("v1") {
        return Err("strict decoding error: unknown field \"providers[0].tokenAttributes\"".to_owned());
    }
    Ok(document)
}

/// The file itself, or the files of a folder by name.
fn files(config: &Path) -> Result<Vec<PathBuf>, String> {
    let shown = go_quote(&config.display().to_string());
    let found =
        std::fs::metadata(config).map_err(|error| format!("unable to access path {shown}: {error}"))?;
    if !found.is_dir() {
        return Ok(vec![config.to_owned()]);
    }
    let failed = |error: std::io::Error| format!("unable to read directory {shown}: {error}");
    let mut files = Vec::new();
    for entry in std::fs::read_dir(config).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let extension = path.extension().and_then(|own| own.to_str());
        if matches!(extension, Some("json" | "yaml" | "yml")) && !path.is_dir() {
            files.push(path);
        }
        if files.len() > FILES_MAX {
            return Err(format!(
                "unable to read directory {shown}: it has more than {FILES_MAX} files"
            ));
        }
    }
    if files.is_empty() {
        return Err(format!("no configuration files found in directory {shown}"));
    }
    files.sort();
    Ok(files)
}

fn is_executable(program: &Path) -> Result<(), String> {
    use std::os::unix::fs::PermissionsExt as _;
    let shown = program.display();
    match std::fs::metadata(program) {
        Err(_) => Err(format!("plugin binary executable {shown} did not exist")),
        Ok(found) if found.is_dir() || found.permissions().mode() & 0o111 == 0 => Err(format!(
            "error inspecting binary executable {shown}: exec: {}: permission denied",
            go_quote(&shown.to_string())
        )),
        Ok(_) => Ok(()),
    }
}

impl ProviderConfig {
    /// Everything wrong with it; notes its cache duration.
    fn problems(&mut self, duration: fn(&str) -> Result<i64, String>) -> Vec<String> {
        let mut problems = self.name_problems();
        let version = &self.api_version;
        if version.is_empty() {
            problems.push("providers.apiVersion: Required value".to_owned());
        } else if !API_VERSIONS.contains(&version.as_str()) {
            problems.push(format!(
                "providers.apiVersion: Unsupported value: {}: supported values: {}",
                go_quote(version),
                API_VERSIONS.map(go_quote).join(", ")
            ));
        }
        if self.match_images.is_empty() {
            problems.push(
                "providers.matchImages: Required value: at least 1 item in matchImages is required"
                    .to_owned(),
            );
        }
        for image in self.match_images.iter().filter(|image| !is_address(image)) {
            let image = go_quote(image);
            problems.push(format!(
                "providers.matchImages: Invalid value: {image}: match image is invalid: parse error"
            ));
        }
        let given = self.default_cache_duration.as_deref();
        match given.map(|given| (given, duration(given))) {
            None => problems.push("providers.defaultCacheDuration: Required value".to_owned()),
            Some((given, Ok(nanoseconds))) if nanoseconds < 0 => problems.push(format!(
                "providers.defaultCacheDuration: Invalid value: {}: must be greater than or equal to 0",
                go_quote(given)
            )),
            Some((_, Ok(nanoseconds))) => self.cache_nanoseconds = nanoseconds,
            Some((_, Err(why))) => problems.push(why),
        }
        if let Some(attributes) = &self.token_attributes {
            problems.extend(attributes.problems(&self.api_version));
        }
        problems
    }

    fn name_problems(&self) -> Vec<String> {
        let name = self.name.as_str();
        let wrong = [
            (name.contains('/'), "provider name cannot contain '/'"),
            (name.contains(' '), "provider name cannot contain spaces"),
            (name == ".", "provider name cannot be '.'"),
            (name == "..", "provider name cannot be '..'"),
        ];
        let wrong = wrong.into_iter().filter(|(is_so, _)| *is_so);
        wrong
            .map(|(_, words)| format!("providers.name: Invalid value: {}: {words}", go_quote(name)))
            .collect()
    }
}

/// Reports whether a text is an address without a scheme: a host, a port of digits, and a path without letters that no address has.
fn is_address(text: &str) -> bool {
    let (host, _) = text.split_once('/').unwrap_or((text, ""));
    let is_host = |host: &str| {
        host.starts_with('[') || {
            host.bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-._*?[]~!$&'()+,;=".contains(&byte))
        }
    };
    let is_plain = !text.chars().any(|letter| letter.is_control() || letter == ' ');
    let is_hosted = match host.rsplit_once(':') {
        None => is_host(host),
        Some((host, port)) => is_host(host) && port.bytes().all(|byte| byte.is_ascii_digit()),
    };
    is_plain && is_hosted
}

impl TokenAttributes {
    fn problems(&self, api_version: &str) -> Vec<String> {
        const AT: &str = "providers.tokenAttributes";
        let mut problems = Vec::new();
        if self.service_account_token_audience.is_empty() {
            problems.push(format!("{AT}.serviceAccountTokenAudience: Required value"));
        }
        if self.require_service_account.is_none() {
            problems.push(format!("{AT}.requireServiceAccount: Required value"));
        }
        if api_version != API_VERSIONS[0] {
            problems.push(format!(
                "{AT}: Forbidden: tokenAttributes is only supported for {} API version",
                API_VERSIONS[0]
            ));
        }
        let required = &self.required_service_account_annotation_keys;
        let optional = &self.optional_service_account_annotation_keys;
        if self.require_service_account == Some(false) && !required.is_empty() {
            problems.push(format!(
                "{AT}.requiredServiceAccountAnnotationKeys: Forbidden: requireServiceAccount cannot be false when \
                 requiredServiceAccountAnnotationKeys is set"
            ));
        }
        problems.extend(annotation_problems(
            &format!("{AT}.requiredServiceAccountAnnotationKeys"),
            required,
        ));
        problems.extend(annotation_problems(
            &format!("{AT}.optionalServiceAccountAnnotationKeys"),
            optional,
        ));
        let required: BTreeSet<&String> = required.iter().collect();
        let optional: BTreeSet<&String> = optional.iter().collect();
        let both: Vec<&&String> = required.intersection(&optional).collect();
        if !both.is_empty() {
            let both = serde_json::json!(both);
            problems.push(format!(
                "{AT}: Invalid value: {both}: annotation keys cannot be both required and optional"
            ));
        }
        match self.cache_type.as_str() {
            "" => problems.push(format!(
                "{AT}.cacheType: Required value: cacheType is required to be set when tokenAttributes is specified. Supported values \
                 are: {}",
                CACHE_TYPES.join(", ")
            )),
            own if !CACHE_TYPES.contains(&own) => problems.push(format!(
                "{AT}.cacheType: Unsupported value: {}: supported values: {}",
                go_quote(own),
                CACHE_TYPES.map(go_quote).join(", ")
            )),
            _ => {}
        }
        problems
    }
}

fn annotation_problems(at: &str, keys: &[String]) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let mut problems = Vec::new();
    for key in keys {
        let wrong = qualified_name(&key.to_lowercase()).into_iter();
        problems.extend(wrong.map(|why| format!("{at}: Invalid value: {}: {why}", go_quote(key))));
        if !seen.insert(key) {
            problems.push(format!("{at}: Duplicate value: {}", go_quote(key)));
        }
    }
    problems
}

#[cfg(test)]
#[path = "config_tests.rs"]
pub(super) mod tests;
