//! The flags of this process with their values, as `/flagz` of server and agent and the answers of `knarr up` show them: a
//! [secret](crate::secret) without its value, a URL without its credentials.

use crate::Arguments;
use crate::secret::{self, without_credentials};
use clap::{Arg, ArgMatches, Command, CommandFactory};
use std::ffi::OsStr;

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
        .filter_map(|flag| Some((flag.get_long()?.to_owned(), flag)))
        .filter(|(name, _)| name != "help")
        .map(|(name, flag)| {
            let values = matches.try_get_raw(flag.get_id().as_str()).ok().flatten();
            let values = values.into_iter().flatten().map(|value| shown_value(flag, value));
            (name, values.collect::<Vec<_>>().join(","))
        })
        .collect();
    flags.sort();
    flags
}

fn shown_value(flag: &Arg, value: &OsStr) -> String {
    match secret::is_held_by(flag) {
        true => secret::SHOWN.to_owned(),
        false => without_credentials(&value.to_string_lossy()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use apiserver_server::SniCertificate;
    use std::any::TypeId;
    use std::path::PathBuf;
    use std::time::Duration;

    /// Commands whose flags a page shows.
    const SHOWN_COMMANDS: [&str; 2] = ["agent", "server"];
    /// Words in the name or the help of a flag that may take a secret.
    const WORDS: [&str; 6] = ["token", "password", "secret", "key", "credential", "header"];
    /// Flags with such a word whose text is no secret.
    const PUBLIC: [&str; 16] = [
        "authentication-token-webhook-version",
        "controllers",
        "discovery-token-ca-cert-hash",
        "oidc-client-id",
        "oidc-issuer-url",
        "oidc-required-claim",
        "oidc-signing-algs",
        "register-with-taints",
        "requestheader-allowed-names",
        "requestheader-extra-headers-prefix",
        "requestheader-group-headers",
        "requestheader-uid-headers",
        "requestheader-username-headers",
        "runtime-config",
        "service-account-issuer",
        "service-account-jwks-uri",
    ];

    fn agent_flags(words: &[&str]) -> Vec<(String, String)> {
        let words = ["knarr", "agent"].iter().chain(words);
        let command = Arguments::command();
        let matches = command.clone().try_get_matches_from(words).unwrap();
        let agent = matches.subcommand_matches("agent").unwrap();
        of(command.find_subcommand("agent").unwrap(), agent)
    }

    #[test]
    fn flags_of_secrets_are_shown_without_their_value() {
        let secret = "0123456789abcdef";
        let token = format!("--token=abcdef.{secret}");
        let flags = agent_flags(&[
            &token,
            "--server=https://u:0123456789abcdef@s:6443/",
            "--manifest-url=http://0123456789abcdef@pods.test/",
            "--manifest-url-header=a:0123456789abcdef",
        ]);
        let value = |name: &str| flags.iter().find(|(own, _)| own == name).unwrap().1.as_str();
        assert_eq!(value("token"), secret::SHOWN);
        assert_eq!(value("server"), "https://xxxxx@s:6443/");
        assert_eq!(value("manifest-url"), "http://xxxxx@pods.test/");
        assert_eq!(value("manifest-url-header"), secret::SHOWN);
        assert_eq!(value("token-file"), "");
        assert!(!format!("{flags:?}").contains(secret));
        let unset = agent_flags(&[]);
        assert!(unset.contains(&("token".to_owned(), String::new())));
    }

    #[test]
    fn flags_that_may_take_a_secret_are_marked() {
        let command = Arguments::command();
        let commands = SHOWN_COMMANDS.map(|name| command.find_subcommand(name).unwrap());
        let mut unmarked: Vec<&str> = commands
            .iter()
            .flat_map(|own| own.get_arguments())
            .filter(|flag| flag.get_action().takes_values() && takes_text(flag) && names_a_secret(flag))
            .filter(|flag| !secret::is_held_by(flag))
            .filter_map(Arg::get_long)
            .collect();
        unmarked.sort_unstable();
        unmarked.dedup();
        assert_eq!(
            unmarked, PUBLIC,
            "give such a flag the type `Secret`, or list it here if its text is none"
        );
    }

    /// Other types hold a file's name, a number, a duration or a choice.
    fn takes_text(flag: &Arg) -> bool {
        let own = flag.get_value_parser().type_id();
        let others = [
            TypeId::of::<PathBuf>(),
            TypeId::of::<SniCertificate>(),
            TypeId::of::<Duration>(),
            TypeId::of::<bool>(),
            TypeId::of::<u8>(),
            TypeId::of::<u16>(),
            TypeId::of::<u32>(),
            TypeId::of::<u64>(),
            TypeId::of::<i64>(),
            TypeId::of::<usize>(),
            TypeId::of::<f64>(),
        ];
        others.iter().all(|other| own != *other)
    }

    fn names_a_secret(flag: &Arg) -> bool {
        let help = flag.get_long_help().or(flag.get_help());
        let help = help.map(ToString::to_string).unwrap_or_default();
        let text = format!("{} {help}", flag.get_long().unwrap_or_default()).to_lowercase();
        WORDS.iter().any(|word| text.contains(word))
    }

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
}
