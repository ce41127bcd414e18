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
const FIELDS: [&str; 3] = ["apiVersion", "kind", "plugins"];
const PLUGIN_FIELDS: [&str; 3] = ["configuration", "name", "path"];

/// Configurations by the names of plugins.
#[derive(Debug, Default)]
pub(crate) struct AdmissionConfiguration(HashMap<String, Source>);

/// The source of a plugin's configuration. A file of a disabled plugin is not read.
#[derive(Debug)]
enum Source {
    Nested(Value),
    File(PathBuf),
}

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
    /// Upstream's words for values that are wrong.
    #[error("failed to initialize admission plugin {plugin:?}: {why}")]
    Values { plugin: &'static str, why: String },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    api_version: Option<String>,
    kind: Option<String>,
    plugins: Option<Vec<Plugin>>,
}

#[derive(Deserialize)]
struct Plugin {
    name: Option<String>,
    /// Relative to the file that names it.
    path: Option<PathBuf>,
    /// Goes before the path.
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

/// Fields that are no fields of these kinds, as upstream's strict decoder reports them.
fn unknown_fields(written: &Value) -> Vec<String> {
    let names = |value: &Value| -> Vec<String> {
        let object = value.as_object();
        object.map_or_else(Vec::new, |object| object.keys().cloned().collect())
    };
    let own = names(written);
    let own = own.iter().filter(|name| !FIELDS.contains(&&***name));
    let mut unknown: Vec<String> = own.cloned().collect();
    let plugins = written.get("plugins").and_then(Value::as_array);
    for (at, plugin) in plugins.into_iter().flatten().enumerate() {
        let names = names(plugin);
        let names = names.iter().filter(|name| !PLUGIN_FIELDS.contains(&&***name));
        unknown.extend(names.map(|name| format!("plugins[{at}].{name}")));
    }
    unknown
}

impl AdmissionConfiguration {
    /// Reads the file.
    pub(crate) fn read(path: &Path) -> Result<Self, AdmissionConfigurationError> {
        let form = |why: String| AdmissionConfigurationError::Form {
            path: path.to_owned(),
            why,
        };
        let written = read(path)?;
        let unknown = unknown_fields(&written);
        let written = Written::deserialize(&written).map_err(|error| form(error.to_string()))?;
        let text = |own: Option<String>| own.unwrap_or_default();
        let (kind, version) = (&*text(written.kind), &*text(written.api_version));
        if kind != KIND || !API_VERSIONS.contains(&version) {
            return Err(form(format!(
                "no kind {kind:?} is registered for version {version:?} in scheme \"pkg/runtime/scheme.go:111\""
            )));
        }
        if !unknown.is_empty() {
            let unknown: Vec<String> = unknown
                .iter()
                .map(|name| format!("unknown field {name:?}"))
                .collect();
            return Err(form(format!("strict decoding error: {}", unknown.join(", "))));
        }
        let folder = path.parent().unwrap_or(Path::new(""));
        let mut plugins = HashMap::new();
        for plugin in written.plugins.unwrap_or_default() {
            let name = plugin.name.unwrap_or_default();
            // The first of a name counts.
            if plugins.contains_key(&name) {
                continue;
            }
            let configuration = match plugin.configuration {
                Some(configuration) => Source::Nested(configuration),
                None => match plugin.path {
                    Some(path) if !path.as_os_str().is_empty() => Source::File(folder.join(path)),
                    _ => continue,
                },
            };
            plugins.insert(name, configuration);
        }
        Ok(Self(plugins))
    }

    /// The configuration of a plugin, as it is written here or in a file of its own.
    pub(crate) fn of(&self, plugin: &str) -> Result<Option<Value>, AdmissionConfigurationError> {
        match self.0.get(plugin) {
            None => Ok(None),
            Some(Source::Nested(configuration)) => Ok(Some(configuration.clone())),
            Some(Source::File(path)) => read(path).map(Some),
        }
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

    /// Returns the configuration of each of these plugins.
    fn read_text(text: &str, plugins: &[&str]) -> Result<Vec<Option<Value>>, String> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("other.yaml"), "beside: true\n").unwrap();
        let path = folder.path().join("admission.yaml");
        std::fs::write(&path, text).unwrap();
        let place = folder.path().display().to_string();
        let read = AdmissionConfiguration::read(&path);
        let of = read.and_then(|read| plugins.iter().map(|plugin| read.of(plugin)).collect());
        of.map_err(|error| error.to_string().replace(&place, ""))
    }

    #[test]
    fn admission_configuration_is_nested_or_in_a_file_beside_it() {
        let nested = serde_json::json!({"nested": true});
        let beside = serde_json::json!({"beside": true});
        let read = read_text(NESTED, &["EventRateLimit", "PodSecurity", "NodeRestriction"]);
        assert_eq!(read.unwrap(), [Some(nested), Some(beside), None]);
        let named = |name: &str| (name.to_owned(), Source::Nested(Value::Null));
        let read = AdmissionConfiguration(["EventRateLimit", "PodSecurity"].map(named).into());
        let unused: Vec<&str> = read.unused(&["EventRateLimit"]).collect();
        assert_eq!(unused, ["PodSecurity"]);
    }

    #[test]
    fn admission_configuration_reads_null_as_absent() {
        let null = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n- {name: PodSecurity, path: , configuration: }\n- {name: , path: , configuration: }\n";
        assert_eq!(read_text(null, &["PodSecurity"]), Ok(vec![None]));
    }

    #[test]
    fn admission_configuration_that_is_none_is_refused() {
        let refused = |text: &str| read_text(text, &["PodSecurity"]).unwrap_err();
        let other = NESTED.replace("k8s.io/v1", "k8s.io/v9");
        let why = "no kind \"AdmissionConfiguration\" is registered for version \"apiserver.config.k8s.io/v9\" in scheme \"pkg/runtime/scheme.go:111\"";
        assert_eq!(refused(&other), format!("/admission.yaml: {why}"));
        let absent = NESTED.replace("PodSecurity, path: other", "PodSecurity, path: gone");
        assert_eq!(refused(&absent), "reading /gone.yaml");
        assert!(
            read_text(&absent, &["EventRateLimit"]).is_ok(),
            "a file that nobody asks for"
        );
        let strict = NESTED.replace("PodSecurity, path", "PodSecurity, pth: x, path") + "more: 1\n";
        let why = "strict decoding error: unknown field \"more\", unknown field \"plugins[2].pth\"";
        assert_eq!(refused(&strict), format!("/admission.yaml: {why}"));
    }
}
