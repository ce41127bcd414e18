//! `--runtime-config`: versions and resources of the API that are served or not, as upstream's flag has them.
//!
//! First `api/all`, `api/ga`, `api/beta` and `api/alpha`, then versions, then resources. This server has the versions that
//! upstream serves by default: one that upstream has beyond them ([`ABSENT`]) is refused where it is named, and is not there
//! for `api/all=true` and its like either, which the log says at the start.

use apiserver_registry::{ResourceRow, kinds};
use std::collections::{BTreeMap, BTreeSet};

/// Versions of upstream's that are off by default, and that this server does not have.
const ABSENT: [(&str, &str); 24] = [
    ("admissionregistration.k8s.io", "v1alpha1"),
    ("admissionregistration.k8s.io", "v1beta1"),
    ("authentication.k8s.io", "v1alpha1"),
    ("authentication.k8s.io", "v1beta1"),
    ("certificates.k8s.io", "v1alpha1"),
    ("certificates.k8s.io", "v1beta1"),
    ("coordination.k8s.io", "v1alpha2"),
    ("coordination.k8s.io", "v1beta1"),
    ("flowcontrol.apiserver.k8s.io", "v1beta1"),
    ("flowcontrol.apiserver.k8s.io", "v1beta2"),
    ("flowcontrol.apiserver.k8s.io", "v1beta3"),
    ("internal.apiserver.k8s.io", "v1alpha1"),
    ("lifecycle.k8s.io", "v1alpha1"),
    ("networking.k8s.io", "v1beta1"),
    ("resource.k8s.io", "v1alpha3"),
    ("resource.k8s.io", "v1beta1"),
    ("resource.k8s.io", "v1beta2"),
    ("scheduling.k8s.io", "v1alpha3"),
    ("scheduling.k8s.io", "v1beta1"),
    ("storage.k8s.io", "v1alpha1"),
    ("storage.k8s.io", "v1beta1"),
    ("storagemigration.k8s.io", "v1beta1"),
    ("apiextensions.k8s.io", "v1beta1"),
    ("apiregistration.k8s.io", "v1beta1"),
];
/// Served by an extension of upstream's, whatever the flag says.
const METRICS: &str = "metrics.k8s.io";
/// The group without which there is no API.
const REGISTRATION: (&str, &str) = ("apiregistration.k8s.io", "v1");
/// The versions of FlowSchemas and PriorityLevelConfigurations, by which requests are queued.
const FLOW_CONTROL: (&str, &str) = ("flowcontrol.apiserver.k8s.io", "v1");
/// Keys for many versions, in the order in which they are looked at.
const MANY: [&str; 4] = ["api/all", "api/ga", "api/beta", "api/alpha"];

/// States of versions and resources that were given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RuntimeConfig {
    many: Vec<(&'static str, bool)>,
    versions: BTreeMap<(String, String), bool>,
    resources: BTreeMap<(String, String, String), bool>,
}

/// The stage of a version by its name: `v1` is one of `api/ga`.
fn key_of(version: &str) -> Option<&'static str> {
    let rest = version.strip_prefix('v')?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let staged = |stage: &str| {
        let parts = rest.split_once(stage);
        parts.is_some_and(|(major, minor)| is_number(major) && is_number(minor))
    };
    match rest {
        _ if is_number(rest) => Some("api/ga"),
        _ if staged("beta") => Some("api/beta"),
        _ if staged("alpha") => Some("api/alpha"),
        _ => None,
    }
}

/// Versions of the built-in kinds.
fn present() -> BTreeSet<(String, String)> {
    let rows = kinds::built_in_rows().into_iter();
    let versions = rows.map(|row| (row.gvk.group.clone(), row.gvk.version.clone()));
    versions.filter(|(group, _)| group != METRICS).collect()
}

impl RuntimeConfig {
    /// Reads values of the flag, `key=value` or a key alone for `true`; the last of a key counts.
    ///
    /// # Errors
    /// Upstream's words for keys and values that are none, and ours for versions that this server does not have.
    pub fn parse<'a>(values: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let items = values.into_iter().flat_map(|value| value.split(','));
        let mut given: BTreeMap<&str, &str> = BTreeMap::new();
        for item in items.filter(|item| !item.trim().is_empty()) {
            let (key, value) = item.split_once('=').unwrap_or((item, ""));
            given.insert(key.trim(), value.trim());
        }
        if given.len() == 1 && given.get("api/all") == Some(&"false") {
            return Err("invalid runtime-config with only api/all=false".to_owned());
        }
        let mut own = Self::default();
        for key in MANY {
            own.many.extend(match given.remove(key) {
                None => None,
                Some("true") => Some((key, true)),
                Some("false") => Some((key, false)),
                Some(value) => return Err(format!("invalid value {key}={value}")),
            });
        }
        let present = present();
        check_groups(given.keys().copied(), &present)?;
        for (key, value) in given {
            own.add(key, value, &present)?;
        }
        own.check_flow_control()?;
        match own.serves_version(REGISTRATION.0, REGISTRATION.1) {
            true => Ok(own),
            false => Err(format!(
                "API group/version {}/{} must be enabled",
                REGISTRATION.0, REGISTRATION.1
            )),
        }
    }

    fn add(&mut self, key: &str, value: &str, present: &BTreeSet<(String, String)>) -> Result<(), String> {
        let parts: Vec<&str> = key.split('/').collect();
        let (group, version) = (parts[0], parts.get(1).copied().unwrap_or_default());
        let is_absent = ABSENT.contains(&(group, version));
        if !is_absent && !present.contains(&(group.to_owned(), version.to_owned())) {
            return Err(format!(
                "group version {} that has not been registered",
                key_without_resource(&parts)
            ));
        }
        let is_on = state_of(key, value)?;
        if is_absent && is_on {
            return Err(format!(
                "this server does not have {}",
                key_without_resource(&parts)
            ));
        }
        let (group, version) = (group.to_owned(), version.to_owned());
        match parts.get(2) {
            None => self.versions.insert((group, version), is_on),
            Some(resource) if resource.to_lowercase() != **resource => {
                return Err(format!(
                    "invalid key {key}: group/version/resource and resource is always lowercase plural, not {resource:?}"
                ));
            }
            Some(resource) => self
                .resources
                .insert((group, version, (*resource).to_owned()), is_on),
        };
        Ok(())
    }

    /// Refuses to take priority and fairness its configurations: of these keys the first that is given counts (upstream's
    /// `validateAPIPriorityAndFairness`).
    fn check_flow_control(&self) -> Result<(), String> {
        let (group, version) = FLOW_CONTROL;
        let named = self.versions.get(&(group.to_owned(), version.to_owned()));
        let many = |key: &str| self.many.iter().find(|(own, _)| *own == key);
        let states = [
            (format!("{group}/{version}"), named.copied()),
            ("api/ga".to_owned(), many("api/ga").map(|own| own.1)),
            ("api/all".to_owned(), many("api/all").map(|own| own.1)),
        ];
        match states.into_iter().find(|(_, state)| state.is_some()) {
            Some((key, Some(false))) => Err(format!(
                "{key}=false conflicts with --enable-priority-and-fairness=true"
            )),
            _ => Ok(()),
        }
    }

    fn serves_version(&self, group: &str, version: &str) -> bool {
        let key = (group.to_owned(), version.to_owned());
        let by_stage = self
            .many
            .iter()
            .rev()
            .find(|(key, _)| *key == MANY[0] || key_of(version) == Some(*key));
        let named = self.versions.get(&key).copied();
        named.unwrap_or_else(|| by_stage.is_none_or(|(_, is_on)| *is_on))
    }

    /// Reports whether clients see a resource of this server.
    pub(crate) fn serves(&self, row: &ResourceRow) -> bool {
        let (group, version) = (&row.gvk.group, &row.gvk.version);
        if group == METRICS {
            return true;
        }
        let key = (group.to_string(), version.to_string(), row.plural.clone());
        let named = self.resources.get(&key).copied();
        named.unwrap_or_else(|| self.serves_version(group, version))
    }

    /// Reports whether everything is served that there is.
    pub(crate) fn serves_all(&self) -> bool {
        *self == Self::default() || kinds::built_in_rows().iter().all(|row| self.serves(row))
    }

    /// Versions that are requested by a key for many, and that this server does not have.
    pub(crate) fn absent(&self) -> Vec<String> {
        let requested = |version: &str| {
            let of = |key: &str| key == MANY[0] || key_of(version) == Some(key);
            self.many
                .iter()
                .rev()
                .find(|(key, _)| of(key))
                .is_some_and(|(_, is_on)| *is_on)
        };
        let absent = ABSENT.iter().filter(|(_, version)| requested(version));
        absent
            .map(|(group, version)| format!("{group}/{version}"))
            .collect()
    }
}

fn key_without_resource(parts: &[&str]) -> String {
    match parts {
        ["", version, ..] => (*version).to_owned(),
        [group, version, ..] => format!("{group}/{version}"),
        _ => parts.join("/"),
    }
}

/// Refuses keys of another form, and groups that upstream has not either.
fn check_groups<'a>(
    keys: impl Iterator<Item = &'a str>,
    present: &BTreeSet<(String, String)>,
) -> Result<(), String> {
    let mut unknown = BTreeSet::new();
    for key in keys {
        let parts: Vec<&str> = key.split('/').collect();
        if !(2..=3).contains(&parts.len()) {
            return Err(format!("runtime-config invalid key {key}"));
        }
        let is_known = present.iter().any(|(group, _)| group == parts[0])
            || ABSENT.iter().any(|(group, _)| *group == parts[0]);
        if !is_known {
            unknown.insert(key_without_resource(&parts));
        }
    }
    match unknown.is_empty() {
        true => Ok(()),
        false => {
            let unknown: Vec<String> = unknown.into_iter().collect();
            Err(format!("unknown api groups {}", unknown.join(",")))
        }
    }
}

/// A state as Go's `ParseBool` reads it, `true` without a text.
fn state_of(key: &str, value: &str) -> Result<bool, String> {
    match value {
        "" | "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(format!(
            "invalid value of {key}: {value}, err: strconv.ParseBool: parsing {value:?}: invalid syntax"
        )),
    }
}

#[cfg(test)]
mod tests;
