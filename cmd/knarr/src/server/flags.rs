//! The flags of this process with their values, as `/flagz` of server and agent shows them. Most secrets are in files; values of
//! flags that may hold one are not shown.

use crate::Arguments;
use clap::{ArgMatches, Command, CommandFactory};
use std::ffi::OsStr;

/// Flags whose values may be secret.
const SECRET: [&str; 2] = ["token", "manifest-url-header"];
/// A URL that may name a user with a password.
const URL: &str = "manifest-url";
/// Shown in place of a secret, upstream's word.
const MASKED: &str = "<masked>";

/// Every flag of a subcommand, `server` or `agent`, in order of their names; none in a process that was started otherwise.
pub(crate) fn shown(subcommand: &str) -> Vec<(String, String)> {
    let command = Arguments::command();
    let matches = command
        .clone()
        .try_get_matches_from(crate::config_file::words())
        .ok();
    let given = matches
        .as_ref()
        .and_then(|matches| matches.subcommand_matches(subcommand));
    match (command.find_subcommand(subcommand), given) {
        (Some(command), Some(matches)) => of(command, matches),
        _ => Vec::new(),
    }
}

/// The flags of a subcommand as a command line has them, in order of their names.
pub(crate) fn of(command: &Command, matches: &ArgMatches) -> Vec<(String, String)> {
    let mut flags: Vec<(String, String)> = command
        .get_arguments()
        .filter_map(|flag| Some((flag.get_long()?.to_owned(), flag.get_id())))
        .filter(|(name, _)| name != "help")
        .map(|(name, id)| {
            let values = matches.try_get_raw(id.as_str()).ok().flatten();
            let values: Vec<_> = values.into_iter().flatten().map(OsStr::to_string_lossy).collect();
            let value = masked(&name, values.join(","));
            (name, value)
        })
        .collect();
    flags.sort();
    flags
}

fn masked(name: &str, value: String) -> String {
    let has_user = || value.contains('@');
    match value.is_empty() {
        false if SECRET.contains(&name) || (name == URL && has_user()) => MASKED.to_owned(),
        _ => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_shown_with_their_values() {
        let command = Arguments::command();
        let words = [
            "knarr",
            "server",
            "--secure-port=0",
            "--tls-san=a,b",
            "--disable-agent",
        ];
        let matches = command.clone().try_get_matches_from(words).unwrap();
        let server = matches.subcommand_matches("server").unwrap();
        let flags = of(command.find_subcommand("server").unwrap(), server);
        let value = |name: &str| {
            let found = flags.iter().find(|(own, _)| own == name);
            found.map(|(_, value)| value.as_str())
        };
        assert_eq!(value("secure-port"), Some("0"));
        assert_eq!(value("tls-san"), Some("a,b"));
        assert_eq!(value("disable-agent"), Some("true"));
        assert_eq!(value("allow-unenforced"), Some("false"));
        assert_eq!(value("bind-address"), Some("0.0.0.0"));
        assert_eq!(value("audit-log-path"), Some(""));
        assert_eq!(value("help"), None);
        assert!(flags.is_sorted());
    }

    #[test]
    fn flags_with_secrets_are_masked() {
        let command = Arguments::command();
        let words = [
            "knarr",
            "agent",
            "--server=https://server:6443",
            "--token=secret",
            "--manifest-url=http://user:secret@pods.test/",
            "--manifest-url-header=a:secret",
        ];
        let matches = command.clone().try_get_matches_from(words).unwrap();
        let agent = matches.subcommand_matches("agent").unwrap();
        let flags = of(command.find_subcommand("agent").unwrap(), agent);
        let shown: Vec<&str> = flags
            .iter()
            .filter(|(name, _)| name == URL || SECRET.contains(&name.as_str()))
            .map(|(_, value)| value.as_str())
            .collect();
        assert_eq!(shown, [MASKED; 3]);
        assert!(!format!("{flags:?}").contains("secret"));
    }
}
