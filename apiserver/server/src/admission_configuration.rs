//! `--admission-control-config-file`: `AdmissionConfiguration`, which holds the configurations of plugins or names their files.

use machinery_schema::yaml_to_json;
use serde::Deserialize;
use serde_json::Value;
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

/// Versions that upstream reads.
const API_VERSIONS: [&str; 2] = ["apiserver.config.k8s.io/v1", "apiserver.k8s.io/v1alpha1"];
const KIND: &str = "AdmissionConfiguration";

/// Configurations by the names of plugins.
#[derive(Debug, Default)]
pub(crate) struct AdmissionConfiguration(HashMap<String, Value>);

/// A configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AdmissionConfigurationError {
    #[error("reading {}", path.display())]
    File {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{}: {why}", path.display())]
    Form { path: PathBuf, why: String },
    /// Upstream's words.
    #[error("couldn't init admission plugin {plugin:?}: {why}")]
    Plugin { plugin: &'static str, why: String },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    plugins: Option<Vec<Plugin>>,
}

#[derive(Deserialize)]
struct Plugin {
    name: String,
    /// Relative to the file that names it.
    #[serde(default)]
    path: PathBuf,
    /// Goes before the path.
    #[serde(default)]
    configuration: Option<Value>,
}

fn read(path: &Path) -> Result<Value, AdmissionConfigurationError> {
    let text = std::fs::read(path).map_err(|source| AdmissionConfigurationError::File {
        path: path.to_owned(),
        source,
    })?;
    let form = |why: String| AdmissionConfigurationError::Form {
        path: path.to_owned(),
        why,
    };
    let json = yaml_to_json(&text).map_err(|error| form(error.to_string()))?;
    serde_json::from_str(&json).map_err(|error| form(error.to_string()))
}

impl AdmissionConfiguration {
    /// Reads the file and those that it names.
    pub(crate) fn read(path: &Path) -> Result<Self, AdmissionConfigurationError> {
        let form = |why: String| AdmissionConfigurationError::Form {
            path: path.to_owned(),
            why,
        };
        let written = Written::deserialize(read(path)?).map_err(|error| form(error.to_string()))?;
        let (kind, version) = (&*written.kind, &*written.api_version);
        if kind != KIND || !API_VERSIONS.contains(&version) {
            return Err(form(format!(
                "no kind {kind:?} is registered for version {version:?} in scheme \"pkg/runtime/scheme.go:111\""
            )));
        }
        let folder = path.parent().unwrap_or(Path::new(""));
        let mut plugins = HashMap::new();
        for plugin in written.plugins.unwrap_or_default() {
            // The first of a name counts.
            if plugins.contains_key(&plugin.name) {
                continue;
            }
            let configuration = match plugin.configuration {
                Some(configuration) => configuration,
                None if plugin.path.as_os_str().is_empty() => continue,
                None => read(&folder.join(&plugin.path))?,
            };
            plugins.insert(plugin.name, configuration);
        }
        Ok(Self(plugins))
    }

    /// The configuration of a plugin, as it is written.
    pub(crate) fn of(&self, plugin: &str) -> Option<&Value> {
        self.0.get(plugin)
    }

    /// Names of plugins that take no configuration here.
    pub(crate) fn unused<'a>(&'a self, used: &'a [&str]) -> impl Iterator<Item = &'a str> {
        let names = self.0.keys().map(String::as_str);
        names.filter(|name| !used.contains(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NESTED: &str = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n- name: EventRateLimit\n  path: other.yaml\n  configuration: {nested: true}\n- {name: EventRateLimit, path: gone.yaml}\n- {name: PodSecurity, path: other.yaml}\n- name: NodeRestriction\n";

    fn read_text(text: &str) -> Result<AdmissionConfiguration, String> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("other.yaml"), "beside: true\n").unwrap();
        let path = folder.path().join("admission.yaml");
        std::fs::write(&path, text).unwrap();
        let place = folder.path().display().to_string();
        AdmissionConfiguration::read(&path).map_err(|error| error.to_string().replace(&place, ""))
    }

    #[test]
    fn admission_configuration_is_nested_or_in_a_file_beside_it() {
        let read = read_text(NESTED).unwrap();
        let nested = serde_json::json!({"nested": true});
        assert_eq!(read.of("EventRateLimit"), Some(&nested));
        let beside = serde_json::json!({"beside": true});
        assert_eq!(read.of("PodSecurity"), Some(&beside));
        assert_eq!(read.of("NodeRestriction"), None);
        let unused: Vec<&str> = read.unused(&["EventRateLimit"]).collect();
        assert_eq!(unused, ["PodSecurity"]);
    }

    #[test]
    fn admission_configuration_that_is_none_is_refused() {
        let other = NESTED.replace("k8s.io/v1", "k8s.io/v9");
        let why = "no kind \"AdmissionConfiguration\" is registered for version \"apiserver.config.k8s.io/v9\" in scheme \"pkg/runtime/scheme.go:111\"";
        assert_eq!(read_text(&other).unwrap_err(), format!("/admission.yaml: {why}"));
        let absent = NESTED.replace("PodSecurity, path: other", "PodSecurity, path: gone");
        assert_eq!(read_text(&absent).unwrap_err(), "reading /gone.yaml");
    }
}
