//! Validation of encryption configurations, as upstream's `ValidateEncryptionConfiguration`, with its fields and
//! words.

use super::EncryptionConfigError;
use super::config::{EncryptionConfiguration, Keys, Kms, NamedKey, ProviderConfiguration};
use super::kms;
use std::collections::HashSet;

pub(super) const AES_KEY_BYTES: [usize; 3] = [16, 24, 32];
pub(super) const SECRETBOX_KEY_BYTES: [usize; 1] = [32];
const NO_ADDRESS: [&str; 3] = [
    "apiserveripinfo",
    "serviceipallocations",
    "servicenodeportallocations",
];
const NO_PROVIDER: &str =
    "provider does not contain any of the expected providers: KMS, AESGCM, AESCBC, Secretbox, Identity";
const SEVERAL: &str =
    "more than one provider specified in a single element, should split into different list elements";

/// A resource and its group, as `schema.ParseGroupResource` reads them.
pub(super) fn group_resource(text: &str) -> (&str, &str) {
    text.split_once('.')
        .map_or(("", text), |(resource, group)| (group, resource))
}

/// Checks everything at once.
pub(super) fn validate(config: &EncryptionConfiguration) -> Result<(), EncryptionConfigError> {
    let mut problems = Problems(Vec::new());
    let mut plugins = HashSet::new();
    if config.resources.is_empty() {
        problems.required("resources", "at least one resources is required");
    }
    for (at, resource) in config.resources.iter().enumerate() {
        let names = format!("resources[{at}].resources");
        let providers = format!("resources[{at}].providers");
        if resource.resources.is_empty() {
            problems.required(&names, &format!("at least one {names} is required"));
        }
        overlaps(&resource.resources, &names, &mut problems);
        for (at, name) in resource.resources.iter().enumerate() {
            if let Some(why) = name_problem(name) {
                problems.invalid(&format!("{names}[{at}]"), &format!("{name:?}"), why);
            }
        }
        if resource.providers.is_empty() {
            problems.required(&providers, &format!("at least one {providers} is required"));
        }
        for (at, provider) in resource.providers.iter().enumerate() {
            let field = format!("{providers}[{at}]");
            check_provider(provider, &field, &mut plugins, &mut problems);
        }
    }
    problems.into_result()
}

struct Problems(Vec<String>);

impl Problems {
    fn required(&mut self, field: &str, why: &str) {
        self.0.push(format!("{field}: Required value: {why}"));
    }

    fn invalid(&mut self, field: &str, value: &str, why: &str) {
        self.0.push(format!("{field}: Invalid value: {value}: {why}"));
    }

    fn into_result(self) -> Result<(), EncryptionConfigError> {
        let text = match &self.0[..] {
            [] => return Ok(()),
            [one] => one.clone(),
            several => format!("[{}]", several.join(", ")),
        };
        Err(EncryptionConfigError(format!("error while parsing file: {text}")))
    }
}

fn overlaps(resources: &[String], field: &str, problems: &mut Problems) {
    let parsed: Vec<_> = resources.iter().map(|text| group_resource(text)).collect();
    let (mut overlap, mut duplicate) = (false, false);
    for (at, one) in parsed.iter().enumerate() {
        for (_, other) in parsed.iter().enumerate().filter(|(other, _)| *other != at) {
            // As upstream: the first pair of equals is a duplicate alone, further ones are compared as others are.
            if one == other && !duplicate {
                duplicate = true;
                continue;
            }
            let wild = one.1 == "*" || other.1 == "*";
            overlap |= *one == ("*", "*") || (one.0 == other.0 && wild);
        }
    }
    let quoted: Vec<String> = resources.iter().map(|text| format!("{text:?}")).collect();
    let value = format!("[{}]", quoted.join(","));
    if duplicate {
        problems.invalid(
            field,
            &value,
            "the same resource cannot be specified multiple times",
        );
    }
    if overlap {
        let why = "using overlapping resources such as 'secrets' and '*.' in the same resource list is not allowed as they will be masked";
        problems.invalid(field, &value, why);
    }
}

fn name_problem(name: &str) -> Option<&'static str> {
    let (group, resource) = group_resource(name);
    if name.to_lowercase() != name {
        Some("resource name should not contain capital letters")
    } else if name == "*" {
        Some("use '*.' to encrypt all the resources from core API group or *.* to encrypt all resources")
    } else if NO_ADDRESS.contains(&name) {
        Some("resources which do not have REST API/s cannot be encrypted")
    } else if group == "events.k8s.io" {
        Some(
            "'*.events.k8s.io' objects are stored using the 'events' API group in etcd. Use 'events' instead in the config file",
        )
    } else if group == "extensions" {
        Some("'extensions' group has been removed and cannot be used for encryption")
    } else if group == "*" && resource != "*" {
        Some("encrypting the same resource across groups is not supported")
    } else {
        None
    }
}

fn check_provider<'a>(
    provider: &'a ProviderConfiguration,
    field: &str,
    plugins: &mut HashSet<&'a str>,
    problems: &mut Problems,
) {
    let found = [
        provider.kms.is_some(),
        provider.aesgcm.is_some(),
        provider.aescbc.is_some(),
        provider.secretbox.is_some(),
        provider.identity.is_some(),
    ];
    // The value would show keys.
    match found.iter().filter(|found| **found).count() {
        0 => problems.invalid(field, "\"REDACTED\"", NO_PROVIDER),
        1 => {}
        _ => problems.invalid(field, "\"REDACTED\"", SEVERAL),
    }
    if let Some(kms) = &provider.kms {
        check_kms(kms, &format!("{field}.kms"), plugins, problems);
        plugins.insert(&kms.name);
    } else if let Some(keys) = &provider.aesgcm {
        check_keys(keys, &format!("{field}.aesgcm.keys"), &AES_KEY_BYTES, problems);
    } else if let Some(keys) = &provider.aescbc {
        check_keys(keys, &format!("{field}.aescbc.keys"), &AES_KEY_BYTES, problems);
    } else if let Some(keys) = &provider.secretbox {
        check_keys(
            keys,
            &format!("{field}.secretbox.keys"),
            &SECRETBOX_KEY_BYTES,
            problems,
        );
    }
}

fn check_kms(own: &Kms, field: &str, plugins: &HashSet<&str>, problems: &mut Problems) {
    let (name, is_first) = (own.name.as_str(), own.api_version() == "v1");
    let at = |name: &str| format!("{field}.{name}");
    if name.is_empty() {
        problems.required(&at("name"), "name is a mandatory field for a provider");
    }
    if !is_first && name.contains(':') {
        let why = format!("invalid KMS provider name {name}, must not contain ':'");
        problems.invalid(&at("name"), &format!("{name:?}"), &why);
    }
    if plugins.contains(name) {
        let why = format!("duplicate KMS provider name {name}, names must be unique");
        problems.invalid(&at("name"), &format!("{name:?}"), &why);
    }
    if own.timeout().is_none() {
        let why = "timeout should be a positive value";
        problems.invalid(&at("timeout"), &own.timeout_text(), why);
    }
    if let Err(why) = kms::socket(&own.endpoint) {
        problems.invalid(&at("endpoint"), &format!("{:?}", own.endpoint), &why);
    }
    match own.cache_size {
        Some(size) if !is_first => {
            problems.invalid(
                &at("cachesize"),
                &size.to_string(),
                "cachesize is not supported in v2",
            );
        }
        Some(0) => {
            let why = "cachesize should be a positive value, or negative to disable";
            problems.invalid(&at("cachesize"), "0", why);
        }
        _ => {}
    }
    let version = own.api_version();
    if !["v1", "v2"].contains(&version) {
        let why = "unsupported apiVersion apiVersion for KMS provider, only v1 and v2 are supported";
        problems.invalid(&at("apiVersion"), &format!("{version:?}"), why);
    }
}

fn check_keys(keys: &Keys, field: &str, lengths: &[usize], problems: &mut Problems) {
    if keys.keys.is_empty() {
        problems.required(field, "at least one keys is required");
    }
    for (at, key) in keys.keys.iter().enumerate() {
        check_key(key, &format!("{field}[{at}]"), lengths, problems);
    }
}

fn check_key(key: &NamedKey, field: &str, lengths: &[usize], problems: &mut Problems) {
    if key.name.is_empty() {
        problems.required(&format!("{field}.name"), "name is a mandatory field for a key");
    }
    let field = format!("{field}.secret");
    if key.secret.is_empty() {
        problems.required(&field, "secret is a mandatory field for a key");
        return;
    }
    let Some(secret) = key.secret() else {
        problems.invalid(&field, "\"REDACTED\"", "secrets must be base64 encoded");
        return;
    };
    if !lengths.contains(&secret.len()) {
        let expected: Vec<String> = lengths.iter().map(usize::to_string).collect();
        let why = format!(
            "secret is not of the expected length, got {}, expected one of [{}]",
            secret.len(),
            expected.join(" ")
        );
        problems.invalid(&field, "\"REDACTED\"", &why);
    }
}
