//! The file and the drop-ins of a command line, and the words that they stand for.

use super::settings::{Setting, given, settings};
use super::{API_VERSION, KIND, decoding, fields, validation};
use clap::Arg;
use machinery_meta::go_text::go_quote;
use node_kubelet::node::reserve::Reserve;
use serde_json::{Map, Value};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Drop-ins that are read.
const DROP_INS_MAX: usize = 256;
/// Suffix of their names.
const DROP_IN_SUFFIX: &str = "conf";
/// Fields with paths, which start at the folder of their file.
const PATHS: [&str; 5] = [
    "staticPodPath",
    "authentication.x509.clientCAFile",
    "tlsCertFile",
    "tlsPrivateKeyFile",
    "resolvConf",
];

/// The configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KubeletConfigurationError {
    #[error("failed to load kubelet config file, path: {}, error: {problem}", path.display())]
    File { path: PathBuf, problem: String },
    #[error("failed to load kubelet dropin file, path: {}, error: {problem}", path.display())]
    DropIn { path: PathBuf, problem: String },
    #[error("failed to walk through kubelet dropin directory {}", go_quote(&path.display().to_string()))]
    Folder {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error(
        "kubelet dropin directory {} has more than {most} files",
        go_quote(&path.display().to_string()),
        most = DROP_INS_MAX
    )]
    TooMany { path: PathBuf },
    #[error("failed to validate kubelet configuration, error: {0}")]
    Invalid(String),
}

/// Reports whether a file of `--config` is one, and not one of flags.
pub(crate) fn is_one(document: &Map<String, Value>) -> bool {
    document.contains_key("kind") || document.contains_key("apiVersion")
}

/// The words that a file and a folder of drop-ins stand for, without those of flags that are given.
pub(crate) fn words(
    file: Option<&Path>,
    drop_ins: Option<&Path>,
    is_given: &dyn Fn(&Arg) -> bool,
    flags: &[&Arg],
) -> Result<Vec<OsString>, KubeletConfigurationError> {
    let mut document = match file {
        Some(path) => document(path).map_err(|problem| KubeletConfigurationError::File {
            path: path.to_owned(),
            problem,
        })?,
        None => Map::new(),
    };
    if let Some(folder) = drop_ins {
        if file.is_some() {
            fill_in_hard_thresholds(&mut document);
        }
        join_drop_ins(&mut document, folder)?;
    }
    merge_hard_thresholds(&mut document);
    let settings =
        checked(&document).map_err(|problems| KubeletConfigurationError::Invalid(aggregate(&problems)))?;
    Ok(settings
        .iter()
        .flat_map(|setting| words_of(setting, is_given, flags))
        .collect())
}

/// Upstream's form of several errors.
fn aggregate(problems: &[String]) -> String {
    match problems {
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    }
}

fn checked(document: &Map<String, Value>) -> Result<Vec<Setting>, Vec<String>> {
    let mut problems = validation::problems(document);
    match settings(document) {
        Ok(settings) if problems.is_empty() => return Ok(settings),
        Ok(_) => {}
        Err(refused) => problems.extend(refused),
    }
    Err(problems)
}

fn words_of(setting: &Setting, is_given: &dyn Fn(&Arg) -> bool, flags: &[&Arg]) -> Vec<OsString> {
    let flag = flags.iter().find(|flag| flag.get_long() == Some(setting.flag));
    if flag.is_none_or(|flag| is_given(flag)) {
        return Vec::new();
    }
    let values = setting.values.iter();
    values
        .map(|value| format!("--{}={value}", setting.flag).into())
        .collect()
}

/// Reads one document, with absolute paths.
fn document(path: &Path) -> Result<Map<String, Value>, String> {
    let bytes = crate::config_file::bytes(path)?;
    if bytes.is_empty() {
        return Err(format!(
            "kubelet config file {} was empty",
            go_quote(&path.display().to_string())
        ));
    }
    let mut document = decoded(&bytes)?;
    let folder = std::path::absolute(path).map_err(|error| error.to_string())?;
    resolve_paths(&mut document, folder.parent().unwrap_or(Path::new("/")));
    Ok(document)
}

pub(super) fn decoded(bytes: &[u8]) -> Result<Map<String, Value>, String> {
    if let Some((line, key)) = machinery_schema::yaml::duplicate_key(bytes) {
        return Err(format!(
            "strict decoding error: yaml: unmarshal errors: line {line}: key {} already set in map",
            go_quote(&key)
        ));
    }
    let json =
        machinery_schema::yaml::yaml_to_json(bytes).map_err(|error| format!("failed to decode: {error}"))?;
    let document: Value =
        serde_json::from_str(&json).map_err(|error| format!("failed to decode: {error}"))?;
    let Value::Object(document) = document else {
        return Err("failed to decode: it is not an object".to_owned());
    };
    check_type(&document)?;
    decoding::check(&document)?;
    Ok(document)
}

fn check_type(document: &Map<String, Value>) -> Result<(), String> {
    let of = |name: &str| document.get(name).and_then(Value::as_str).unwrap_or_default();
    match (of("apiVersion"), of("kind")) {
        (_, "") => Err("failed to decode: Object 'Kind' is missing".to_owned()),
        ("", _) => Err("failed to decode: Object 'apiVersion' is missing".to_owned()),
        (API_VERSION, KIND) => Ok(()),
        (version, kind) => Err(format!(
            "failed to decode: no kind {} is registered for version {}",
            go_quote(&kind.chars().take(64).collect::<String>()),
            go_quote(&version.chars().take(64).collect::<String>())
        )),
    }
}

fn resolve_paths(document: &mut Map<String, Value>, folder: &Path) {
    for path in PATHS {
        let mut names = path.split('.');
        let first = names.next().and_then(|name| document.get_mut(name));
        let value = first.and_then(|first| names.try_fold(first, |value, name| value.get_mut(name)));
        if let Some(Value::String(text)) = value
            && !text.is_empty()
        {
            *text = folder.join(text.as_str()).display().to_string();
        }
    }
}

fn join_drop_ins(document: &mut Map<String, Value>, folder: &Path) -> Result<(), KubeletConfigurationError> {
    let paths = drop_ins(folder).map_err(|source| KubeletConfigurationError::Folder {
        path: folder.to_owned(),
        source,
    })?;
    if paths.len() > DROP_INS_MAX {
        return Err(KubeletConfigurationError::TooMany {
            path: folder.to_owned(),
        });
    }
    for path in paths {
        let own = self::document(&path);
        let own = own.map_err(|problem| KubeletConfigurationError::DropIn { path, problem })?;
        merge(document, own);
    }
    Ok(())
}

/// Files of the folder and of those below it in the order of their names, as upstream walks.
fn drop_ins(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut entries: Vec<PathBuf> = std::fs::read_dir(folder)?
        .map(|entry| Ok(entry?.path()))
        .collect::<std::io::Result<_>>()?;
    entries.sort();
    let mut found = Vec::new();
    for entry in entries {
        if found.len() > DROP_INS_MAX {
            break;
        }
        if std::fs::symlink_metadata(&entry)?.is_dir() {
            found.extend(drop_ins(&entry)?);
        } else if entry.extension().is_some_and(|suffix| suffix == DROP_IN_SUFFIX) {
            found.push(entry);
        }
    }
    Ok(found)
}

/// Joins as RFC 7396 says: objects by their fields, all else is replaced, and `null` removes.
fn merge(document: &mut Map<String, Value>, patch: Map<String, Value>) {
    for (name, value) in patch {
        match (document.get_mut(&name), value) {
            (_, Value::Null) => {
                document.remove(&name);
            }
            (Some(Value::Object(own)), Value::Object(patch)) => merge(own, patch),
            (_, value) => {
                document.insert(name, value);
            }
        }
    }
}

/// A file without hard thresholds has upstream's, to which drop-ins add theirs.
fn fill_in_hard_thresholds(document: &mut Map<String, Value>) {
    let named = document.get("evictionHard").is_some_and(|own| !own.is_null());
    if !named {
        document.insert("evictionHard".to_owned(), Value::Object(hard_thresholds()));
    }
}

/// Adds upstream's hard thresholds to those of the document, where it is to.
fn merge_hard_thresholds(document: &mut Map<String, Value>) {
    let wanted = fields::field("mergeDefaultEvictionSettings").and_then(|field| given(document, field));
    if wanted != Some(&Value::Bool(true)) {
        return;
    }
    if let Some(Value::Object(own)) = document.get_mut("evictionHard") {
        for (signal, level) in hard_thresholds() {
            own.entry(signal).or_insert(level);
        }
    }
}

fn hard_thresholds() -> Map<String, Value> {
    let levels = Reserve::default().eviction_hard.into_iter();
    levels
        .map(|(signal, level)| (signal, level.to_string().into()))
        .collect()
}
