//! Flags of `knarr server` and `knarr agent` in a YAML file (`--config`), under their names without dashes, as k3s has them, and of the
//! agent in upstream's form ([`kubelet_configuration`]).
//!
//! The file becomes words of the command line, before those that were given, so that types, bounds and relations of flags are checked in one
//! place. A flag that is given is not taken from the file, lists included.

use crate::kubelet_configuration::{self, KubeletConfigurationError};
use crate::{drop_in, near};
use clap::{Arg, ArgAction, Args, Command};
use serde_json::{Map, Value};
use std::ffi::{OsStr, OsString};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// A longer file is refused.
const MAX_FILE_BYTES: usize = 1 << 20;
/// Name of the flag, which the file cannot have.
const FLAG: &str = "config";
/// Names of the flags of a KubeletConfiguration and of its drop-ins.
const KUBELET_FLAG: &str = "kubelet-config";
const DROP_IN_FLAGS: [&str; 2] = ["kubelet-config-dir", "config-dir"];
/// Flag by which a server makes its agent start again when the content of those files has changed.
const REVISION_FLAG: &str = "kubelet-config-revision";
/// The command to which a KubeletConfiguration belongs.
const AGENT: &str = "agent";

/// The flag.
#[derive(Args, Debug, Clone)]
pub(crate) struct ConfigArguments {
    /// YAML file with flags by their names, such as `secure-port: 6443`; flags of the command line win
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl ConfigArguments {
    /// Writes to the log which file was read.
    pub(crate) fn log(&self) {
        if let Some(path) = &self.config {
            tracing::info!(path = %path.display(), "configuration file read");
        }
    }
}

/// The file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigFileError {
    #[error("--config {}", path.display())]
    Reading {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("--config {}: {problem}", path.display())]
    Content { path: PathBuf, problem: String },
    #[error(transparent)]
    Kubelet(#[from] KubeletConfigurationError),
    #[error("--config is a KubeletConfiguration: leave out --kubelet-config")]
    Twice,
    /// A flag of upstream's that cannot be honoured.
    #[error("{0}")]
    DropIn(String),
}

/// Words of this process's command line, with those of a configuration file.
static WORDS: OnceLock<Vec<OsString>> = OnceLock::new();

/// The command line of this process as [`expand`] has returned it.
pub(crate) fn words() -> Vec<OsString> {
    WORDS
        .get()
        .cloned()
        .unwrap_or_else(|| std::env::args_os().collect())
}

/// Reads the configuration file that the command line of this process names, and keeps the words.
pub(crate) fn expand_own(command: &Command) -> Result<Vec<OsString>, ConfigFileError> {
    let words = drop_in::command_line(std::env::args_os().collect());
    let words = expand(command, words.map_err(ConfigFileError::DropIn)?)?;
    Ok(WORDS.get_or_init(|| words).clone())
}

/// Puts the flags of the configuration files, where the words name some, behind the subcommand.
pub(crate) fn expand(command: &Command, words: Vec<OsString>) -> Result<Vec<OsString>, ConfigFileError> {
    let named = |word: &OsString| {
        command
            .get_subcommands()
            .find(|own| OsStr::new(own.get_name()) == word)
    };
    let Some((at, subcommand)) = words
        .iter()
        .enumerate()
        .skip(1)
        .find_map(|(at, word)| Some((at, named(word)?)))
    else {
        return Ok(words);
    };
    let (before, given) = words.split_at(at + 1);
    let flags = flags_of(command, subcommand);
    let takes_file = flags.iter().any(|flag| flag.get_long() == Some(FLAG));
    let path = path_in(given, &[FLAG]).filter(|_| takes_file);
    let (mut own, mut kubelet) = (Vec::new(), None);
    if let Some(path) = path {
        let settings = read(&path)?;
        if !kubelet_configuration::is_one(&settings) {
            own = flag_words(&path, &settings, given, &flags)?;
        } else if subcommand.get_name() == AGENT {
            kubelet = Some(path);
        } else {
            let problem = format!("it is a KubeletConfiguration, which --{KUBELET_FLAG} takes");
            return Err(content(&path)(problem));
        }
    }
    own.extend_from_slice(given);
    let of_kubelet = kubelet_words(command, subcommand, kubelet, &own)?;
    Ok(before.iter().cloned().chain(of_kubelet).chain(own).collect())
}

fn flags_of<'a>(command: &'a Command, subcommand: &'a Command) -> Vec<&'a Arg> {
    let global = command.get_arguments().filter(|flag| flag.is_global_set());
    subcommand.get_arguments().chain(global).collect()
}

/// Words of a file of flags, without those of flags that are given.
fn flag_words(
    path: &Path,
    settings: &Map<String, Value>,
    given: &[OsString],
    flags: &[&Arg],
) -> Result<Vec<OsString>, ConfigFileError> {
    let mut words = Vec::new();
    for (key, value) in settings {
        let own = content(path);
        let flag = flags.iter().find(|flag| is_named(flag, key) && key != FLAG);
        let flag = flag.ok_or_else(|| own(unknown(key, flags)))?;
        if !is_given(flag, given) {
            words.extend(words_of(key, value, flag).map_err(own)?);
        }
    }
    Ok(words)
}

fn is_given(flag: &Arg, given: &[OsString]) -> bool {
    let mut names = given.iter().filter_map(name_of);
    names.any(|name| is_named(flag, name))
}

/// Words of a KubeletConfiguration and its drop-ins: the agent's flags, or for a server, which hands the files on, their revision.
fn kubelet_words(
    command: &Command,
    subcommand: &Command,
    file: Option<PathBuf>,
    given: &[OsString],
) -> Result<Vec<OsString>, ConfigFileError> {
    let named = path_in(given, &[KUBELET_FLAG]);
    if file.is_some() && named.is_some() {
        return Err(ConfigFileError::Twice);
    }
    let takes = subcommand
        .get_arguments()
        .any(|flag| flag.get_long() == Some(KUBELET_FLAG));
    let (file, drop_ins) = (file.or(named), path_in(given, &DROP_IN_FLAGS));
    let agent = command.find_subcommand(AGENT).filter(|_| takes);
    let Some(agent) = agent.filter(|_| file.is_some() || drop_ins.is_some()) else {
        return Ok(Vec::new());
    };
    let is_agent = subcommand.get_name() == AGENT;
    let is_given = |flag: &Arg| is_agent && is_given(flag, given);
    let flags = flags_of(command, agent);
    let words = kubelet_configuration::words(file.as_deref(), drop_ins.as_deref(), &is_given, &flags)?;
    if is_agent {
        return Ok(words);
    }
    let mut hasher = DefaultHasher::new();
    words.hash(&mut hasher);
    Ok(vec![format!("--{REVISION_FLAG}={:x}", hasher.finish()).into()])
}

fn content(path: &Path) -> impl Fn(String) -> ConfigFileError {
    let path = path.to_owned();
    move |problem| ConfigFileError::Content {
        path: path.clone(),
        problem,
    }
}

/// The path that a flag of one of these names has; none where help is requested.
fn path_in(given: &[OsString], names: &[&str]) -> Option<PathBuf> {
    let wants_help = given.iter().any(|word| word == "--help" || word == "-h");
    let mut words = given.iter().filter(|_| !wants_help);
    let own = |word: &OsString| {
        let flag = word.to_str()?.strip_prefix("--")?;
        let (name, value) = flag
            .split_once('=')
            .map_or((flag, None), |(name, value)| (name, Some(value)));
        names.contains(&name).then(|| value.map(PathBuf::from))
    };
    while let Some(word) = words.next() {
        match own(word) {
            Some(Some(path)) => return Some(path),
            Some(None) => return words.next().map(PathBuf::from),
            None => {}
        }
    }
    None
}

/// The name of a flag that a word gives.
fn name_of(word: &OsString) -> Option<&str> {
    let word = word.to_str()?;
    match word.strip_prefix("--") {
        Some(flag) => flag.split('=').next(),
        None => word.strip_prefix('-').and_then(|short| short.get(..1)),
    }
}

fn is_named(flag: &Arg, name: &str) -> bool {
    let is_alias = || {
        flag.get_all_aliases()
            .is_some_and(|aliases| aliases.contains(&name))
    };
    flag.get_long() == Some(name) || is_alias()
}

/// The content of a file of bounded length.
pub(crate) fn bytes(path: &Path) -> Result<Vec<u8>, String> {
    let bytes = node_sys::fs::read_head(path, MAX_FILE_BYTES as u64 + 1);
    let bytes = bytes.map_err(|error| format!("open {}: {error}", path.display()))?;
    match bytes.len() > MAX_FILE_BYTES {
        true => Err(format!("it is longer than {MAX_FILE_BYTES} bytes")),
        false => Ok(bytes),
    }
}

fn read(path: &Path) -> Result<Map<String, Value>, ConfigFileError> {
    let bytes = node_sys::fs::read_head(path, MAX_FILE_BYTES as u64 + 1);
    let bytes = bytes.map_err(|source| ConfigFileError::Reading {
        path: path.to_owned(),
        source,
    })?;
    let problem = content(path);
    if bytes.len() > MAX_FILE_BYTES {
        return Err(problem(format!("it is longer than {MAX_FILE_BYTES} bytes")));
    }
    let json = machinery_schema::yaml::yaml_to_json(&bytes).map_err(|error| problem(error.to_string()))?;
    let settings = match serde_json::from_str(&json) {
        Ok(Value::Object(settings)) => settings,
        Ok(Value::Null) => Map::new(),
        Ok(_) => return Err(problem("it is not a map of flags and values".to_owned())),
        Err(error) => return Err(problem(error.to_string())),
    };
    // That of a KubeletConfiguration is reported by its own reader.
    match machinery_schema::yaml::duplicate_key(&bytes) {
        Some((line, key)) if !kubelet_configuration::is_one(&settings) => {
            Err(problem(format!("line {line}: the key {key} is there already")))
        }
        _ => Ok(settings),
    }
}

/// Words of the command line that mean what the file says.
fn words_of(key: &str, value: &Value, flag: &Arg) -> Result<Vec<OsString>, String> {
    if !flag.get_action().takes_values() {
        return match value {
            Value::Bool(true) => Ok(vec![OsString::from(format!("--{key}"))]),
            Value::Bool(false) => Ok(Vec::new()),
            // Of flags without a value only one counts how often it is given.
            _ => Err(format!("{key}: must be true or false")),
        };
    }
    let values = match value {
        Value::Array(values) if matches!(flag.get_action(), ArgAction::Append) => values.as_slice(),
        Value::Array(_) => return Err(format!("{key}: takes one value, not a list")),
        one => std::slice::from_ref(one),
    };
    values.iter().map(|value| word_of(key, value)).collect()
}

fn word_of(key: &str, value: &Value) -> Result<OsString, String> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        // YAML takes words such as n, yes and off for it, which a name may be.
        Value::Bool(value) => {
            return Err(format!(
                "{key}: YAML reads its value as {value}; write it in quotes"
            ));
        }
        Value::Null => return Err(format!("{key}: has no value")),
        _ => return Err(format!("{key}: must be a value or a list of values")),
    };
    Ok(OsString::from(format!("--{key}={text}")))
}

/// The refusal of a key, with the name that it resembles most.
fn unknown(key: &str, flags: &[&Arg]) -> String {
    let names = flags
        .iter()
        .filter_map(|flag| flag.get_long())
        .filter(|name| *name != FLAG);
    match near::nearest(key, names) {
        Some(name) => format!("unknown key {:?}; did you mean {name:?}?", near::shown(key)),
        None => format!("unknown key {:?}; --help lists the flags", near::shown(key)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Arguments;
    use clap::CommandFactory;

    struct File {
        _folder: tempfile::TempDir,
        path: PathBuf,
    }

    fn file(text: &str) -> File {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.yaml");
        std::fs::write(&path, text).unwrap();
        File {
            _folder: folder,
            path,
        }
    }

    /// The words behind `--config FILE` and before it.
    fn expanded(text: &str, given: &[&str]) -> Result<Vec<String>, String> {
        let file = file(text);
        let config = format!("--config={}", file.path.display());
        let words = ["knarr", "-v", "2", "server", config.as_str()]
            .into_iter()
            .chain(given.iter().copied());
        let all = expand(&Arguments::command(), words.map(OsString::from).collect());
        let all = all.map_err(|error| {
            error
                .to_string()
                .replace(&file.path.display().to_string(), "FILE")
        })?;
        let words = all.iter().map(|word| word.to_string_lossy().into_owned());
        Ok(words.filter(|word| *word != config).skip(4).collect())
    }

    #[track_caller]
    fn check(text: &str, given: &[&str], expected: &[&str]) {
        assert_eq!(expanded(text, given).unwrap(), expected, "{text}");
    }

    #[track_caller]
    fn refused(text: &str, reason: &str) {
        let error = expanded(text, &[]).unwrap_err();
        assert!(
            error.starts_with("--config FILE: ") && error.contains(reason),
            "{error}"
        );
    }

    #[test]
    fn config_file_has_the_flags_by_their_names() {
        check("", &["--disable-agent"], &["--disable-agent"]);
        check(
            "secure-port: 7443\ndata-dir: /srv/a b\n",
            &[],
            &["--data-dir=/srv/a b", "--secure-port=7443"],
        );
        check(
            "disable-agent: true\nallow-unenforced: false\n",
            &[],
            &["--disable-agent"],
        );
        check(
            "tls-san: [a, b]\nnode-name: 'n'\n",
            &[],
            &["--node-name=n", "--tls-san=a", "--tls-san=b"],
        );
        check("tls-san: a,b\n", &[], &["--tls-san=a,b"]);
    }

    #[test]
    fn config_file_gives_way_to_flags_that_are_given() {
        check(
            "secure-port: 7443\n",
            &["--secure-port", "1"],
            &["--secure-port", "1"],
        );
        check(
            "node-name: o\n",
            &["--hostname-override=m"],
            &["--hostname-override=m"],
        );
        check(
            "tls-san: [a]\nrequest-timeout: 5s\n",
            &["--tls-san=b"],
            &["--request-timeout=5s", "--tls-san=b"],
        );
        check("v: 3\n", &["-v2"], &["-v2"]);
    }

    #[test]
    fn config_file_with_mistakes_is_refused() {
        refused(
            "secure-prot: 1\n",
            r#"unknown key "secure-prot"; did you mean "secure-port"?"#,
        );
        refused("secure_port: 1\n", r#"did you mean "secure-port"?"#);
        refused("bananas: 1\n", r#"unknown key "bananas"; --help lists the flags"#);
        refused("config: other.yaml\n", "unknown key");
        refused(
            "secure-port: 1\nsecure-port: 2\n",
            "line 2: the key secure-port is there already",
        );
        refused(
            "secure-port: [1, 2]\n",
            "secure-port: takes one value, not a list",
        );
        refused("secure-port:\n", "secure-port: has no value");
        refused(
            "tls-san: {a: b}\n",
            "tls-san: must be a value or a list of values",
        );
        refused(
            "node-name: n\n",
            "node-name: YAML reads its value as false; write it in quotes",
        );
        refused("disable-agent: 1\n", "disable-agent: must be true or false");
        refused("- a\n", "it is not a map");
        refused("a: [\n", "yaml: ");
        refused(
            &"# long\n".repeat(MAX_FILE_BYTES / 7 + 1),
            "it is longer than 1048576 bytes",
        );
    }

    #[test]
    fn config_file_is_read_for_commands_that_have_the_flag() {
        let command = Arguments::command();
        for words in [
            vec!["knarr", "version", "--config=/nowhere"],
            vec!["knarr", "server", "--help", "--config=/nowhere"],
            vec!["knarr", "server", "--config"],
            vec!["knarr"],
        ] {
            let words: Vec<OsString> = words.into_iter().map(OsString::from).collect();
            assert_eq!(expand(&command, words.clone()).unwrap(), words);
        }
        for subcommand in ["server", "agent"] {
            let words = ["knarr", subcommand, "--config", "/nowhere"]
                .map(OsString::from)
                .to_vec();
            let error = expand(&command, words).unwrap_err();
            assert_eq!(error.to_string(), "--config /nowhere");
        }
    }

    #[test]
    fn config_file_means_what_the_flags_mean() {
        let file = file(
            "secure-port: 7443\ndisable-dns: true\ntls-san: [a.test, b.test]\nmax-pods: 7\npod-max-pids: -1\n",
        );
        let words = [
            OsString::from("knarr"),
            "server".into(),
            "--config".into(),
            file.path.clone().into(),
        ];
        let expanded = expand(&Arguments::command(), words.to_vec()).unwrap();
        let matches = Arguments::command().try_get_matches_from(expanded).unwrap();
        let flags = [
            "--secure-port=7443",
            "--disable-dns",
            "--tls-san=a.test,b.test",
            "--max-pods=7",
            "--pod-max-pids=-1",
        ];
        let same = Arguments::command()
            .try_get_matches_from(["knarr", "server"].into_iter().chain(flags))
            .unwrap();
        let raw = |matches: &clap::ArgMatches, id: &str| {
            let server = matches.subcommand_matches("server").unwrap();
            let values = server.get_raw(id).into_iter().flatten();
            values
                .map(|value| value.to_string_lossy().into_owned())
                .collect::<Vec<_>>()
        };
        for id in [
            "secure_port",
            "disable_dns",
            "tls_san",
            "max_pods",
            "pod_max_pids",
        ] {
            assert_eq!(raw(&matches, id), raw(&same, id), "{id}");
        }
    }
}
