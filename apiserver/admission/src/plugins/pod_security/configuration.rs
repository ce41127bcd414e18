//! `PodSecurityConfiguration` of `pod-security.admission.config.k8s.io`: policy of namespaces without labels, and exemptions.

use crate::plugins::configured::{aggregate, check_fields, check_kind};
use machinery_meta::field::{FieldError, FieldPath};
use machinery_meta::syntax::{dns1123_label, dns1123_subdomain};
use machinery_pod_security::{Level, LevelVersion, Mode, Policy, Version};
use serde::Deserialize;
use serde_json::Value;
use std::collections::HashSet;

const KIND: &str = "PodSecurityConfiguration";
/// Versions that upstream reads.
const KINDS: [(&str, &str); 3] = [
    ("pod-security.admission.config.k8s.io/v1", KIND),
    ("pod-security.admission.config.k8s.io/v1beta1", KIND),
    ("pod-security.admission.config.k8s.io/v1alpha1", KIND),
];
const FIELDS: [(&str, &[&str]); 3] = [
    ("", &["apiVersion", "kind", "defaults", "exemptions"]),
    (
        "defaults",
        &[
            "enforce",
            "enforce-version",
            "audit",
            "audit-version",
            "warn",
            "warn-version",
        ],
    ),
    ("exemptions", &["usernames", "namespaces", "runtimeClasses"]),
];

/// The plugin's configuration; without one nothing is enforced that a namespace does not request, and no user is exempt.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Configuration {
    pub(super) defaults: Policy,
    pub(super) usernames: HashSet<String>,
    pub(super) namespaces: HashSet<String>,
    pub(super) runtime_classes: HashSet<String>,
}

/// A configuration that cannot be used; words are upstream's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigurationError {
    /// It is no such configuration: the plugin cannot be made.
    #[error("{0}")]
    Form(String),
    /// Its values are wrong: the plugin cannot be initialized.
    #[error("{0}")]
    Invalid(String),
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Written {
    defaults: Option<Defaults>,
    exemptions: Option<Exemptions>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "kebab-case")]
struct Defaults {
    enforce: Option<String>,
    enforce_version: Option<String>,
    audit: Option<String>,
    audit_version: Option<String>,
    warn: Option<String>,
    warn_version: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Exemptions {
    usernames: Option<Vec<String>>,
    namespaces: Option<Vec<String>>,
    runtime_classes: Option<Vec<String>>,
}

impl Configuration {
    /// Reads a configuration.
    ///
    /// # Errors
    /// The first form or the values that upstream refuses.
    pub fn parse(written: Option<&Value>) -> Result<Self, ConfigurationError> {
        let Some(written) = written else {
            return Ok(Self::default());
        };
        let form = ConfigurationError::Form;
        check_kind(written, &KINDS).map_err(form)?;
        let read = Written::deserialize(written).map_err(|error| form(error.to_string()))?;
        check_fields(written, &FIELDS).map_err(form)?;
        let defaults = read.defaults.unwrap_or_default().policy()?;
        let exemptions = read.exemptions.unwrap_or_default();
        let mut problems = Vec::new();
        let mut set = |field: &str, names: Option<Vec<String>>, check: Check| {
            let path = FieldPath::new("exemptions").child(field);
            exempt(&path, names.unwrap_or_default(), check, &mut problems)
        };
        // In upstream's order of problems.
        let namespaces = set("namespaces", exemptions.namespaces, dns1123_label);
        let runtime_classes = set("runtimeClasses", exemptions.runtime_classes, dns1123_subdomain);
        let usernames = set("usernames", exemptions.usernames, check_username);
        if problems.is_empty() {
            return Ok(Self {
                defaults,
                usernames,
                namespaces,
                runtime_classes,
            });
        }
        let problems = aggregate(problems.iter().map(FieldError::to_string));
        Err(ConfigurationError::Invalid(format!(
            "PodSecurity invalid: {problems}"
        )))
    }
}

impl Defaults {
    fn policy(self) -> Result<Policy, ConfigurationError> {
        let (mut policy, mut problems) = (Policy::default(), Vec::new());
        let written = [
            (Mode::Enforce, self.enforce, self.enforce_version),
            (Mode::Audit, self.audit, self.audit_version),
            (Mode::Warn, self.warn, self.warn_version),
        ];
        for (mode, level, version) in written {
            // An empty text is as good as none.
            let given = |text: Option<String>| text.filter(|text| !text.is_empty());
            let level = given(level).map_or(Some(Level::Privileged), |text| Level::parse(&text));
            let version = given(version).map_or(Some(Version::Latest), |text| Version::parse(&text));
            let name = mode.as_str();
            problems.extend(level.is_none().then(|| format!("{name}: {}", Level::INVALID)));
            problems.extend(
                version
                    .is_none()
                    .then(|| format!("{name}-version: {}", Version::INVALID)),
            );
            if let Some((level, version)) = level.zip(version) {
                *policy.of_mut(mode) = LevelVersion { level, version };
            }
        }
        match problems.is_empty() {
            true => Ok(policy),
            false => Err(ConfigurationError::Invalid(format!(
                "PodSecurity configuration error: {}",
                aggregate(problems)
            ))),
        }
    }
}

type Check = fn(&str) -> Vec<String>;

fn check_username(name: &str) -> Vec<String> {
    match name {
        "" => vec!["username must not be empty".to_owned()],
        _ => Vec::new(),
    }
}

fn exempt(
    path: &FieldPath,
    names: Vec<String>,
    check: Check,
    problems: &mut Vec<FieldError>,
) -> HashSet<String> {
    let mut exempt = HashSet::new();
    for (at, name) in names.into_iter().enumerate() {
        let why = check(&name);
        if !why.is_empty() {
            problems.push(FieldError::invalid(&path.index(at), &name, why.join(", ")));
        } else if let Some(again) = exempt.replace(name) {
            problems.push(FieldError::duplicate(&path.index(at), &again));
        }
    }
    exempt
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const VERSION: &str = "pod-security.admission.config.k8s.io/v1";

    fn parse(mut members: Value) -> Result<Configuration, ConfigurationError> {
        members["apiVersion"] = VERSION.into();
        members["kind"] = KIND.into();
        Configuration::parse(Some(&members))
    }

    /// Cases of upstream's `load_test.go`.
    #[test]
    fn configuration_without_a_member_has_its_default() {
        assert_eq!(Configuration::parse(None), Ok(Configuration::default()));
        assert_eq!(parse(json!({})), Ok(Configuration::default()));
        let nothing =
            json!({"defaults": {"enforce": "", "warn-version": null}, "exemptions": {"usernames": null}});
        assert_eq!(parse(nothing), Ok(Configuration::default()));
        for (version, kind) in KINDS {
            let written = json!({"apiVersion": version, "kind": kind,
                "defaults": {"enforce": "baseline", "enforce-version": "v1.7"},
                "exemptions": {"usernames": ["alice", "bob"], "namespaces": ["kube-system"], "runtimeClasses": ["special"]}});
            let read = Configuration::parse(Some(&written)).unwrap();
            let shown = Mode::ALL.map(|mode| read.defaults.of(mode).to_string());
            assert_eq!(shown, ["baseline:v1.7", "privileged:latest", "privileged:latest"]);
            let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
            assert_eq!(read.usernames, set(&["alice", "bob"]));
            assert_eq!(read.namespaces, set(&["kube-system"]));
            assert_eq!(read.runtime_classes, set(&["special"]));
        }
    }

    /// Answers of kube-apiserver 1.37.1 at its start, but for those of Go's JSON reader.
    #[test]
    fn configuration_that_is_none_is_refused_in_upstreams_words() {
        let form = |written: Value| match Configuration::parse(Some(&written)) {
            Err(ConfigurationError::Form(why)) => why,
            other => panic!("{other:?}"),
        };
        let registered = "is registered for version";
        assert_eq!(
            form(json!({"apiVersion": format!("{VERSION}9"), "kind": KIND})),
            format!("no kind \"{KIND}\" {registered} \"{VERSION}9\" in scheme \"pkg/runtime/scheme.go:111\"")
        );
        assert_eq!(
            form(json!({"apiVersion": VERSION, "kind": "Other"})),
            format!("no kind \"Other\" {registered} \"{VERSION}\" in scheme \"pkg/runtime/scheme.go:111\"")
        );
        assert!(form(json!({"kind": KIND})).starts_with("Object 'apiVersion' is missing in"));
        assert!(form(json!({"apiVersion": VERSION})).starts_with("Object 'Kind' is missing in"));
        let unknown =
            json!({"apiVersion": VERSION, "kind": KIND, "deflaults": {}, "exemptions": {"names": []}});
        let why = "strict decoding error: unknown field \"deflaults\", unknown field \"exemptions.names\"";
        assert_eq!(form(unknown), why);
        let number = json!({"apiVersion": VERSION, "kind": KIND, "defaults": {"enforce": 3}});
        assert!(form(number).contains("expected a string"));
    }

    #[test]
    fn configuration_with_wrong_values_is_refused_in_upstreams_words() {
        let invalid = |members: Value| match parse(members) {
            Err(ConfigurationError::Invalid(why)) => why,
            other => panic!("{other:?}"),
        };
        let defaults = json!({"enforce": "secret", "warn-version": "v1"});
        assert_eq!(
            invalid(json!({"defaults": defaults, "exemptions": {"namespaces": ["A b"]}})),
            "PodSecurity configuration error: [enforce: must be one of privileged, baseline, restricted, warn-version: must be \"latest\" or \"v1.x\"]"
        );
        assert_eq!(
            invalid(json!({"defaults": {"audit": "x"}})),
            "PodSecurity configuration error: audit: must be one of privileged, baseline, restricted"
        );
        let exemptions = json!({"namespaces": ["A b", "x", "x"], "usernames": ["", "u", "u"], "runtimeClasses": ["R", "r", "r"]});
        let why = invalid(json!({"exemptions": exemptions}));
        let parts = [
            "PodSecurity invalid: [exemptions.namespaces[0]: Invalid value: \"A b\": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
            "exemptions.namespaces[2]: Duplicate value: \"x\"",
            "exemptions.runtimeClasses[0]: Invalid value: \"R\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
            "exemptions.runtimeClasses[2]: Duplicate value: \"r\"",
            "exemptions.usernames[0]: Invalid value: \"\": username must not be empty",
            "exemptions.usernames[2]: Duplicate value: \"u\"]",
        ];
        assert_eq!(why, parts.join(", "));
    }
}
